import numpy as np
from claims import cells


def the_unbiased_estimate_does_not_pull(seed):
    """**The unbiased estimate, $k_1$, does not pull at all.**"""
    descend = cells("08_entropy_kl_deeper", "kl8-ml-code", "kl8-descent-code")["descend"]
    drift, *home = (np.median(descend(kind, seed=seed)[:, [0, -1]], axis=0) for kind in ("k1", "k2", "k3"))
    return drift[1] > drift[0] and max(last for _, last in home) < 0.01
