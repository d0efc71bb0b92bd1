import numpy as np
from claims import cells

PAGE = "appendix_what_is_next"


def bad_arms_are_tried_ever_more_rarely(seed):
    """UCB and Thompson sampling try a bad arm ever more rarely"""
    names = cells(PAGE, "next-17")
    lost = [names["bandits"](names[rule], seed=seed).mean(0) for rule in ("ucb", "thompson")]
    return all(np.all(np.diff(regret[[0, 250, 500, 750, -1]], 2) < 0) for regret in lost)


def planning_runs_ahead_of_the_walker(seed):
    """with 50 steps a move it runs ahead of the walker *within* the second episode"""
    dyna = cells(PAGE, "next-22")["dyna"]
    known = [int((dyna(n, seed, episodes=2)[1][-1].max(1) > 1e-6).sum()) for n in (0, 50)]
    return known[0] <= 3 and known[1] > 10
