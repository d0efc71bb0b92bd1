import numpy as np
from claims import cells

PAGE = "06_policy_gradients_deeper"
MAZE = ("pgd-worlds-code", "pg-curve", "pg-maze-tools", "pg-maze-reinforce")


def beyond_a_tenth_runs_fall(seed):
    """Beyond that the mean gains nothing, even early on, and runs begin to fall to zero"""
    reinforce = cells(PAGE, *MAZE)["reinforce"]
    small, large = (reinforce(rate, 1, 240, runs=300, seed=seed)[0] for rate in (0.1, 0.3))
    return large[:, 40].mean() < small[:, 40].mean() and 0.02 < np.mean(large[:, -1] < 1) < 0.15


def one_batch_again_and_again(seed):
    """Then the reused batch stalls, and a good part of its runs collapses, while *by its own measure it improves all the time*."""
    many_steps = cells(PAGE, *MAZE, "pg-reuse")["many_steps"]
    reused, gained = many_steps(fresh=False, seed=seed)
    renewed, _ = many_steps(fresh=True, seed=seed)
    falls = np.mean(reused[:, 40] < 0.1)
    return (
        renewed[:, 40].mean() > reused[:, 40].mean() + 1
        and 0.1 < falls < 0.5
        and gained[:, 40].mean() > gained[:, 20].mean()
    )
