import numpy as np
from claims import cells

PAGE = "06_policy_gradients"


def a_gift_ruins_runs(seed):
    """The gift ruins many runs"""
    bandit = cells(PAGE, "pg-bandit")["bandit"]
    return np.sum(bandit((5.0, 4.0), seed=seed)[:, -1] < 0.1) >= 10


def a_running_mean_mends_it(seed):
    """Subtract a running mean, and it is as good as without the gift."""
    bandit = cells(PAGE, "pg-bandit")["bandit"]
    plain, mended = bandit((1.0, 0.0), seed=seed), bandit((5.0, 4.0), baseline=True, seed=seed)
    return abs(plain[:, 100].mean() - mended[:, 100].mean()) < 0.03 and np.sum(mended[:, -1] < 0.1) <= 1


def more_doses_miss_by_less(seed):
    """the average aims at the truth, and misses it by less the more doses"""
    page = cells(PAGE, "pg-pull-numbers")
    page["NOISE"][:] = np.random.default_rng(seed).standard_normal(page["NOISE"].shape)
    truth = page["expected"](-0.5, page["SIGMA"])[1]
    miss = [np.abs(page["pulls_at"](-0.5, 0, n, False)[1].mean(axis=1) - truth).mean() for n in (4, 100, 1000)]
    return miss[0] > miss[1] > miss[2]


def a_coin_tosser_learns_to_balance(seed):
    """short ones push it away from what they did, and the coin-tosser learns to balance"""
    walk = cells(PAGE, "pg-pull-numbers", "pg-pull-explore", "pg-pole-explore")["pole_walk"](True, seed)
    return walk[-1][1].mean() > 4 * walk[0][1].mean()
