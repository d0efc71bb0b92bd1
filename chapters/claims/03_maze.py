import numpy as np

from rlbook_lib import dynamic_programming as dp
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP


def _world(rng, states=8, actions=3):
    return MDP(rng.dirichlet(np.ones(states), (states, actions)), rng.normal(size=(states, actions)), 0.9)


def looking_one_step_ahead_never_hurts(seed):
    """for $\\gamma < 1$ the new policy is no worse anywhere"""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        world, policy = _world(rng), rng.dirichlet(np.ones(3), 8)
        values = dp.policy_evaluation(world, policy)
        if (dp.policy_evaluation(world, dp.policy_improvement(world, policy)) < values - 1e-9).any():
            return False
    return True


def each_sweep_shrinks_the_error(seed):
    """each sweep shrinks the error to $\\gamma$ times or less, and the last change bounds what is left"""
    rng = np.random.default_rng(seed)
    world = _world(rng)
    exact, old = dp.policy_iteration(world).values, rng.normal(size=8) * 10
    for _ in range(40):
        new = dp.bellman_optimality_backup(world, old)
        error, change = np.abs(new - exact).max(), np.abs(new - old).max()
        if error > min(0.9 * np.abs(old - exact).max(), dp.value_error_bound(change, 0.9)) + 1e-9:
            return False
        old = new
    return True


def few_rounds_are_enough(seed):
    """In practice few rounds are enough"""
    rng = np.random.default_rng(seed)
    layout = rng.choice([".", "#"], (15, 15), p=[0.75, 0.25])
    layout[0, 0], layout[14, 14] = "S", "G"
    slippery = Maze(tuple("".join(row) for row in layout), slip=0.1).to_mdp(0.95)
    return max(dp.policy_iteration(world).iterations for world in (slippery, _world(rng, states=300))) <= 25
