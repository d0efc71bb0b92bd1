import numpy as np
from claims import cells

from rlbook_lib.dynamic_programming import advantages, policy_evaluation
from rlbook_lib.evaluation import interquartile_mean

PAGE = "07_gae"
LEARNER = ("gae-walk", "gae-five", "gae-learning-collect")


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


def _best(seed):
    """The lambda of least error on windy walks drawn by lot, critics with a small and a large error, 30 and 3000 samples: (6, 2, 2)."""
    page, rng, lams = (
        cells(PAGE, "gae-walk", "gae-five", "gae-moments"),
        np.random.default_rng(seed),
        (0.0, 0.3, 0.7, 0.9, 0.95, 1.0),
    )
    coin, inner, found = page["coin"], np.arange(1, 10), []
    for _ in range(6):
        walk, errors = (
            page["windy_walk"](sure=rng.uniform(0.6, 0.9)),
            rng.normal(size=11) * ~np.isin(np.arange(11), (0, 10)),
        )
        for size in (0.1, 0.3):
            critic = policy_evaluation(walk, coin) + size * errors
            means, variances = zip(*(page["estimate_moments"](walk, critic, lam, 200) for lam in lams))
            gap = np.diff(np.array(means)[:, inner] - advantages(walk, coin)[inner], axis=2)[..., 0] / 2
            noise = np.array(variances)[:, inner, 1].mean(1)
            found += [lams[np.argmin((gap**2).mean(1) + noise / n)] for n in (30, 3000)]
    return np.reshape(found, (6, 2, 2))


def more_samples_want_a_larger_lambda(seed):
    """**Averaging removes the variance and leaves the bias: as long as the critic errs, more samples speak for a larger $\\lambda$.**"""
    few, many = np.moveaxis(_best(seed), 2, 0)
    return (many >= few).all() and (many > few).mean() > 0.7


def a_worse_critic_wants_a_larger_lambda(seed):
    """$\\lambda$ should be the larger, the worse the critic, the larger the batch, and the smaller the step."""
    better, worse = np.moveaxis(_best(seed), 1, 0)
    return (worse >= better).all() and (worse > better).mean() > 0.7
