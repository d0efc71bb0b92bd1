import numpy as np
from claims import cells

from rlbook_lib.evaluation import interquartile_mean


def _reused(epsilon, seed):
    j, gain, _ = cells("10_ppo", "ppo-reuse-tools")["reuse"](epsilon, seed=seed)
    return j, gain.mean(axis=1)


def a_batch_wears_out(seed):
    """**What is climbed rises at every pass; what is true turns back: a batch wears out.**"""
    j, gain = _reused(None, seed)
    middle = interquartile_mean(j.T)
    return (np.diff(gain) > 0).all() and middle.max() > middle[0] + 1 and middle[-1] < middle[0]


def the_clip_is_insurance(seed):
    """It is insurance: nobody tells you when pass three was."""
    j, _ = _reused(0.2, seed)
    middle = interquartile_mean(j.T)
    return middle[-1] > middle[0] + 1 and (j[-1] < j[0]).mean() < 0.1
