import numpy as np
import torch

from rlbook_lib import reward_model as rm
from rlbook_lib.language_model import temperature_log_probs


def the_likelihood_never_falls(seed):
    """This is Zermelo's iteration, the first way, and the likelihood never falls in it."""
    rng = np.random.default_rng(seed)
    for _ in range(50):
        table = rng.integers(1, 9, (4, 4)) * (1 - np.eye(4, dtype=int))
        p, values = rng.dirichlet(np.ones(4)), []
        for _ in range(10):
            values.append(rm.bradley_terry_log_likelihood(table, p))
            p = rm.bradley_terry_mm_step(table, p)
        if np.diff(values).min() < -1e-9:
            return False
    return True


def newton_and_the_iteration_agree(seed):
    """Newton converges in a few steps, and it gives something that the iteration does not"""
    table = np.random.default_rng(seed).integers(1, 9, (5, 5)) * (1 - np.eye(5, dtype=int))
    return np.allclose(rm.bradley_terry_newton(table)[0], rm.bradley_terry_mle(table), atol=1e-5)


def the_likelier_answer_may_lose_by_cooling(seed):
    """For whole answers there is no such rule: temperature acts on each step"""
    # among random two-step answers the likeliest of all is sometimes overtaken when it gets cooler
    rng = np.random.default_rng(seed)
    overtaken = 0
    for _ in range(300):
        first, then = (torch.from_numpy(rng.normal(0, 1, shape)) for shape in ((3,), (3, 3)))
        best = [
            (temperature_log_probs(first, k)[:, None] + temperature_log_probs(then, k)).argmax().item()
            for k in (1.0, 0.25)
        ]
        overtaken += best[0] != best[1]
    return 0 < overtaken < 300
