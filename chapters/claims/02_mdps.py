import numpy as np
from claims import cells

from rlbook_lib.dynamic_programming import bellman_expectation_backup, policy_evaluation, value_iteration
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP


def averages_approach_the_value(seed):
    """The number that such averages approach is called a **value**."""
    page = cells("02_mdps", "hook0002", "mdps-code-5a66e057")
    for policy in page["WALKERS"].values():
        returns = page["sampled_returns"](page["world"], policy, 1000, seed)
        if abs(returns.mean() - policy_evaluation(page["world"], policy)[0]) > 4 * returns.std() / np.sqrt(1000):
            return False
    return True


def one_slider_moves_all_values_one_way(seed):
    """With one slider, never: no value falls while the other rises."""
    rng = np.random.default_rng(seed)
    for _ in range(20):  # other worlds with two states
        world = MDP(rng.dirichlet(np.ones(2), (2, 2)), rng.normal(size=(2, 2)), 0.9)
        before = rng.dirichlet(np.ones(2), 2)
        after = np.array([rng.dirichlet(np.ones(2)), before[1]])
        change = policy_evaluation(world, after) - policy_evaluation(world, before)
        if change.min() < -1e-9 and change.max() > 1e-9:
            return False
    return True


def news_travels_one_move_a_round(seed):
    """**Each round of backups carries the news of the prizes one move farther, until no residual is left to see.**"""
    world, policy = Maze("L1").to_mdp(0.9), np.random.default_rng(seed).dirichlet(np.ones(4), 6)
    values, moves_away = np.zeros(6), np.array([2, 1, 1, 1])  # A to D, to the nearest of T and G
    for k in range(1, 400):
        values = bellman_expectation_backup(world, policy, values)
        if k < 3 and (values[:4].astype(bool) != (moves_away <= k)).any():
            return False
    return np.abs(bellman_expectation_backup(world, policy, values) - values).max() < 0.005


def the_same_values_the_opposite_buttons(seed):
    """**The same values, the opposite buttons: $V^*$ knows where it is good to be, and $Q^*$ how to get there.**"""
    rng, crossed = np.random.default_rng(seed), [1, 0, 3, 2]
    layout = rng.permutation(list("SGT......"))
    world = Maze(tuple("".join(row) for row in layout.reshape(3, 3))).to_mdp(rng.uniform(0.5, 0.99))
    other = MDP(world.transitions[:, crossed], world.rewards[:, crossed], world.gamma, world.terminal, world.start)
    here, there = value_iteration(world), value_iteration(other)
    return np.allclose(here.values, there.values) and np.allclose(here.q_values, there.q_values[:, crossed])
