import numpy as np

from rlbook_lib.dynamic_programming import q_from_values, span_bound, value_error_bound
from rlbook_lib.mdp import MDP


def _sweeps(mdp, bound, tolerance=0.001):
    values, sweeps = np.zeros(mdp.n_states), 0
    while True:
        new, sweeps = q_from_values(mdp, values).max(axis=1), sweeps + 1
        change, values = new - values, new
        if bound(change) <= tolerance:
            return sweeps


def _saved(transitions, rewards):
    mdp = MDP(transitions, rewards, 0.99)
    span = _sweeps(mdp, lambda change: span_bound(change, 0.99)[1])
    return 1 - span / _sweeps(mdp, lambda change: value_error_bound(np.abs(change).max(), 0.99))


def a_process_that_mixes(seed):
    """In this endless world, where each step may lead to any of several places, it stops after a fiftieth of the sweeps."""
    rng, transitions = np.random.default_rng(seed), np.zeros((100, 4, 100))
    for row in transitions.reshape(400, 100):
        row[rng.choice(100, 5, replace=False)] = rng.dirichlet(np.ones(5))
    return 0.97 < _saved(transitions, rng.random((100, 4))) < 0.99


def a_ring_does_not(seed):
    """a fifth to a quarter on a ring of 50 states"""
    rng, cells, transitions = np.random.default_rng(seed), np.arange(50), np.zeros((50, 2, 50))
    transitions[cells, 0, (cells + 1) % 50] = transitions[cells, 1, (cells - 1) % 50] = 1.0
    return 0.1 < _saved(transitions, rng.random((50, 2))) < 0.4
