from claims import cells

from rlbook_lib.experience import harmonic
from rlbook_lib.maze import Maze
from rlbook_lib.monte_carlo import monte_carlo_control
from rlbook_lib.temporal_difference import sarsa

PAGE = "04_mc_and_td_deeper"


def the_step_closes_most_of_the_gap(seed):
    """So most of the gap is the noise that a constant $\\alpha$ leaves in the table when whole returns, the noisiest targets of all, move it."""
    settings = dict(episodes=100, gamma=0.9, epsilon=0.1, seed=seed, runs=700)
    methods = (monte_carlo_control, 0.2), (monte_carlo_control, harmonic()), (sarsa, 0.2)
    constant, falling, td = (
        learn(Maze("L1", slip=0.2), alpha=alpha, **settings).returns[:, -50:].mean() for learn, alpha in methods
    )
    return td > constant and (falling - constant) / (td - constant) > 0.5


def double_is_lured_less(seed):
    """The upward bias is gone either way."""
    hall = cells(PAGE, "beb62a13")["hall"]
    single, double = (hall(double, seed=seed)[50:].mean() for double in (False, True))
    return single > double + 0.05 > 0.05
