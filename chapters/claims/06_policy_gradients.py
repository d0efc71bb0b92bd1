import numpy as np
from claims import cells

PAGE = "06_policy_gradients"


def a_gift_ruins_runs(seed):
    """The gift ruins many runs"""
    bandit = cells(PAGE, "pg-bandit")["bandit"]
    return np.sum(bandit((5.0, 4.0), seed=seed)[:, -1] < 0.1) >= 10


def a_running_mean_mends_it(seed):
    """Subtract a running mean, and it is as good as the first bandit."""
    bandit = cells(PAGE, "pg-bandit")["bandit"]
    plain, mended = bandit((1.0, 0.0), seed=seed), bandit((5.0, 4.0), baseline=True, seed=seed)
    return abs(plain[:, 100].mean() - mended[:, 100].mean()) < 0.03 and np.sum(mended[:, -1] < 0.1) <= 1
