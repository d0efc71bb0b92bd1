import numpy as np
from claims import cells

from rlbook_lib.dynamic_programming import policy_evaluation
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
