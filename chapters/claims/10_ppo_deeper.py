import numpy as np

from rlbook_lib.divergences import kl_divergence


def twice_the_advantages_four_times_the_divergence(seed):
    """where they are twice as large, a short step becomes about twice as long, and its KL, which goes with the square, about four times as large"""
    rng = np.random.default_rng(seed)
    old, price = rng.dirichlet(np.full(4, 3.0)), 60.0
    good = rng.normal(size=4)
    good -= old @ good

    def best(advantage):  # its gain less the price of KL(old || pi) is largest at pi = old price / (level - A)
        low, high = advantage.max(), advantage.max() + price
        for _ in range(100):
            level = (low + high) / 2
            low, high = (level, high) if (old * price / (level - advantage)).sum() > 1 else (low, level)
        return old * price / (level - advantage)

    near, far = best(good), best(2 * good)
    longer = np.linalg.norm(far - old) / np.linalg.norm(near - old)
    return 1.8 < longer < 2.2 and 3.4 < kl_divergence(old, far) / kl_divergence(old, near) < 4.6
