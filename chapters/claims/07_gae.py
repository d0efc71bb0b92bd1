import numpy as np
from claims import cells

from rlbook_lib.evaluation import interquartile_mean

PAGE = "07_gae"
LEARNER = ("gae-walk", "gae-five", "gae-learning-collect", "gae-learning-train")


def _speed(seed, lam, step_size, copies):
    return float(interquartile_mean(cells(PAGE, *LEARNER)["learn"](lam, step_size, copies, seed=seed).mean(axis=1)))


def no_mixture_is_slow(seed):
    """$\\lambda = 0$ is clearly slower, for it has to wait for its critic"""
    return _speed(seed, 0.0, 0.3, 1) < min(_speed(seed, lam, 0.3, 1) for lam in (0.8, 0.95)) - 0.05


def large_steps_want_a_small_lambda(seed):
    """large steps along noisy gradients are dangerous."""
    return _speed(seed, 1.0, 3.0, 1) < _speed(seed, 0.5, 3.0, 1) - 0.05


def four_copies_move_the_best_up(seed):
    """The large $\\lambda$ gain most, and lie close together now"""
    gains = [_speed(seed, lam, 1.0, 4) - _speed(seed, lam, 1.0, 1) for lam in (0.5, 1.0)]
    four = [_speed(seed, lam, 1.0, 4) for lam in (0.9, 0.95, 1.0)]
    return gains[1] > gains[0] and np.ptp(four) < 0.05
