import numpy as np
from claims import cells

from rlbook_lib.evaluation import bootstrap_interval
from rlbook_lib.temporal_difference import q_learning, sarsa

PAGE = "04_mc_and_td"


def without_exploration_stuck(seed):
    """With $\\varepsilon = 0$ the agent is stuck"""
    corridor = cells(PAGE, "mt-ex02")["corridor"]
    learned = q_learning(corridor, episodes=200, gamma=0.9, alpha=0.5, epsilon=0.0, seed=seed, runs=300)
    return np.mean(learned.returns[:, -1] == 1.0) > 0.85


def start_fully_random(seed):
    """*Falling*, the best is to start fully random"""
    corridor, starts = cells(PAGE, "mt-ex02")["corridor"], (0.1, 0.3, 0.5, 1.0)
    earned = []
    for first in starts:
        fall = lambda episode: first * max(0.0, 1 - episode / 100)
        learned = q_learning(corridor, episodes=200, gamma=0.9, alpha=0.5, epsilon=fall, seed=seed, runs=300)
        earned.append((learned.returns * 0.9 ** (learned.lengths - 1)).mean())
    return int(np.argmax(earned)) == len(starts) - 1


def sarsa_earns_more_on_the_cliff(seed):
    """Yet from $\\varepsilon = 0.1$ on SARSA earns *more* while learning."""
    settings = dict(episodes=120, gamma=1.0, alpha=0.5, epsilon=0.1, seed=seed, runs=100)
    late = [learn("CliffWalking-v1", **settings).returns[:, 70:].mean(axis=1) for learn in (sarsa, q_learning)]
    return bootstrap_interval(late[0])[0] > bootstrap_interval(late[1])[1]


def ten_walks_are_enough(seed):
    """After *ten* it goes straight to G"""
    page = cells(PAGE, "mt-mc02", "mt-pr01", "mt-pr03", "mt-pr05")
    steps = [len(page["act"](page["learn"](10, seed=1000 * seed + k)[0], seed=k)) - 1 for k in range(30)]
    return sum(n == 4 for n in steps) >= 24
