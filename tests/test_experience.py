"""Tests of ``rlbook_lib.experience``: schedules, epsilon-greedy choices, and where experience comes from."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib.experience import (
    EnvironmentWalk,
    PolicySampler,
    TableWalk,
    TransitionTable,
    epsilon_greedy_actions,
    epsilon_greedy_probabilities,
    harmonic,
    linear_decay,
    open_walk,
)
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP, table_columns
from rlbook_lib.monte_carlo import monte_carlo_prediction

UNIFORM = np.full((6, 4), 0.25)


class ScriptedEnv(gymnasium.Env):
    """Plays given episodes (states s_0..s_T, rewards r_0..r_{T-1}, terminated), whatever the action."""

    def __init__(self, episodes, n_states, n_actions=1, first=0):
        self.observation_space = Discrete(n_states, start=first)
        self.action_space = Discrete(n_actions, start=first)
        self.episodes, self.first, self.number = episodes, first, -1
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.number += 1
        self.states, self.rewards, self.terminated = self.episodes[self.number % len(self.episodes)]
        self.time = 0
        return self.states[0] + self.first, {}

    def step(self, action):
        assert self.action_space.contains(np.int64(action))
        reward, self.time = self.rewards[self.time], self.time + 1
        last = self.time == len(self.rewards)
        return (self.states[self.time] + self.first, reward, last and self.terminated, last and not self.terminated, {})


def loop_mdp(gamma=0.5):
    """One state, one action, reward 1, no end: worth 1 / (1 - gamma)."""
    return MDP(np.ones((1, 1, 1)), [[1.0]], gamma)


def assert_mean_within(samples, expected, errors=4.5):
    """The mean over runs (first axis) lies within so many standard errors of what it should be."""
    samples = np.asarray(samples)
    standard_error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - expected) <= errors * standard_error + 1e-12).all()


def chain_with_return(gamma=0.9):
    """State 0 comes back to itself, goes on to 1 or ends; 1 ends. Enough to visit a state twice."""
    transitions = np.zeros((3, 1, 3))
    transitions[0, 0] = [0.2, 0.5, 0.3]
    transitions[1, 0] = [0.0, 0.0, 1.0]
    transitions[2, 0, 2] = 1
    rewards = np.zeros((3, 1, 3))
    rewards[0, 0] = [1.0, -2.0, 3.0]
    rewards[1, 0] = [0.0, 0.0, 0.5]
    return MDP(transitions, rewards, gamma, [0, 0, 1], [1, 0, 0])


def exact_values(mdp):
    """V by a dense solve written out here."""
    inside = np.flatnonzero(~mdp.terminal)
    p = mdp.transitions[inside, 0][:, inside]
    values = np.zeros(mdp.n_states)
    values[inside] = np.linalg.solve(np.eye(len(inside)) - mdp.gamma * p, mdp.rewards[inside, 0])
    return values


# ------------------------------------------------------------------ schedules


@pytest.mark.equation("eq-robbins-monro")
@pytest.mark.parametrize("first, delay", [(1.0, 1.0), (0.5, 10.0)])
def test_harmonic_meets_both_conditions(first, delay):
    schedule = harmonic(first, delay)
    steps = np.array([schedule(n) for n in range(1, 100_001)])
    # the sum grows like c log n without end: each tenfold n adds c log 10; the squares have a limit
    tenfold = steps[10_000:].sum()
    assert tenfold == pytest.approx(first * delay * np.log(10), rel=1e-3)
    assert schedule(int(delay) + 1) == pytest.approx(first / 2)
    assert (steps[10_000:] ** 2).sum() < (first * delay) ** 2 / 10_000


@pytest.mark.equation("eq-robbins-monro")
def test_harmonic_squares_sum_to_a_known_limit():
    steps = np.array([harmonic()(n) for n in range(1, 100_001)])
    assert (steps**2).sum() == pytest.approx(np.pi**2 / 6, abs=2e-5)
    assert steps.sum() - np.log(100_000) == pytest.approx(np.euler_gamma, abs=1e-5)


def test_linear_decay_is_a_line_and_then_flat():
    schedule = linear_decay(1.0, 0.1, 10)
    assert [schedule(n) for n in (1, 4, 10, 11, 500)] == pytest.approx([1.0, 0.7, 0.1, 0.1, 0.1])
    assert linear_decay(1.0, 0.2, 1)(1) == 0.2


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: harmonic(first=1.5), "first"),
        (lambda: harmonic(delay=0), "delay"),
        (lambda: harmonic(delay=np.nan), "delay"),
        (lambda: linear_decay(1, -0.1, 5), "last"),
        (lambda: linear_decay(1, 0, 0), "steps"),
    ],
)
def test_schedules_refuse_nonsense(call, name):
    with pytest.raises(ValueError, match=name):
        call()


# ------------------------------------------------------------------ epsilon-greedy


@pytest.mark.equation("eq-epsilon-greedy")
def test_epsilon_greedy_by_hand():
    q = [[1.0, 3.0, 2.0, 0.0], [5.0, 5.0, 1.0, 5.0]]
    expected = [[0.05, 0.85, 0.05, 0.05], [0.05 + 0.8 / 3, 0.05 + 0.8 / 3, 0.05, 0.05 + 0.8 / 3]]
    assert np.allclose(epsilon_greedy_probabilities(q, 0.2), expected, atol=1e-15)


@pytest.mark.equation("eq-epsilon-greedy")
@given(q=st.lists(st.integers(0, 2), min_size=1, max_size=5), epsilon=st.sampled_from([0.0, 0.3, 0.9, 1.0]))
@settings(max_examples=60, deadline=None)
def test_drawn_actions_have_the_stated_probabilities(q, epsilon):
    # every u of a fine grid once: frequencies are probabilities up to the grid's width
    n = 3000
    u = (np.arange(n) + 0.5) / n
    columns = np.tile(np.array(q, dtype=float)[:, None], (1, n))  # (A, n)
    actions = epsilon_greedy_actions(columns, np.full(n, epsilon), u)
    shares = np.bincount(actions, minlength=len(q)) / n
    assert np.abs(shares - epsilon_greedy_probabilities(q, epsilon)).max() < 3 / n
    assert (actions == epsilon_greedy_actions(columns, epsilon, u)).all()


def test_drawn_actions_at_the_edges_of_u():
    q = np.ones((3, 4))
    edges = np.array([0.0, np.nextafter(1, 0), 0.5, np.nextafter(0.5, 0)])
    for epsilon in (0.0, 0.5, 1.0):
        assert set(epsilon_greedy_actions(q, epsilon, edges)) <= {0, 1, 2}


def test_drawn_actions_with_many_actions():
    q = np.zeros((300, 2))
    q[[299, 7], 1] = 1
    assert epsilon_greedy_actions(q, 0.0, np.array([0.999, 0.6])).tolist() == [299, 299]


@pytest.mark.parametrize(
    "q, epsilon, name",
    [([], 0.1, "q_values"), ([1.0, np.nan], 0.1, "q_values"), ([1.0], 1.1, "epsilon"), ([1.0], np.nan, "epsilon")],
)
def test_epsilon_greedy_refuses_nonsense(q, epsilon, name):
    with pytest.raises(ValueError, match=name):
        epsilon_greedy_probabilities(q, epsilon)


# ------------------------------------------------------------------ where experience comes from


def walk_for(env, **options):
    return open_walk(env, **{**dict(runs=2, episodes=2, seed=0, max_steps=None), **options})


@pytest.mark.parametrize("name, limit", [("FrozenLake-v1", 100), ("CliffWalking-v1", None), ("Taxi-v4", 200)])
def test_known_tables_are_used_and_time_limits_kept(name, limit):
    for env in (name, gymnasium.make(name)):
        walk = walk_for(env)
        assert isinstance(walk, TableWalk) and walk.max_steps == (limit or 10_000)
    assert walk_for(name, max_steps=7).max_steps == 7
    assert walk_for(gymnasium.wrappers.TimeLimit(gymnasium.make(name), 5)).max_steps == 5


def test_maze_is_used_as_a_table():
    for env in (Maze(slip=0.2), "rlbook/Maze-v0", Maze("L2").to_mdp(0.9)):
        assert isinstance(walk_for(env), TableWalk)


class Shy(gymnasium.Wrapper):
    """A wrapper nobody knows."""


class Overridden(Maze):
    """A maze whose step is somebody else's."""

    def step(self, action):
        return super().step(action)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Shy(gymnasium.make("FrozenLake-v1")),
        lambda: gymnasium.wrappers.TransformReward(gymnasium.make("CliffWalking-v1"), lambda r: 2 * r),
        lambda: gymnasium.make("Taxi-v4", fickle_passenger=True),
        lambda: gymnasium.wrappers.TimeLimit(Shy(Maze()), 3),
        Overridden,
    ],
)
def test_anything_that_may_differ_is_stepped_for_real(make):
    assert isinstance(walk_for(make()), EnvironmentWalk)


def test_wrapped_rewards_and_limits_reach_the_learner():
    doubled = gymnasium.wrappers.TransformReward(gymnasium.make("CliffWalking-v1"), lambda r: 2 * r)
    result = monte_carlo_prediction(
        doubled, np.zeros(48, dtype=int), episodes=2, gamma=1.0, seed=0, runs=2, max_steps=6
    )
    assert (result.returns == -12).all() and (result.lengths == 6).all()
    limited = gymnasium.wrappers.TimeLimit(Shy(gymnasium.make("CliffWalking-v1")), 4)
    result = monte_carlo_prediction(limited, np.zeros(48, dtype=int), episodes=2, gamma=1.0, seed=0)
    assert (result.lengths == 4).all()


def test_real_and_tabulated_experience_have_the_same_law():
    policy = np.full((16, 4), 0.25)
    options = dict(episodes=400, gamma=0.95, seed=1)
    table = monte_carlo_prediction("FrozenLake-v1", policy, runs=10, **options)
    real = monte_carlo_prediction(Shy(gymnasium.make("FrozenLake-v1")), policy, **options)
    difference = table.lengths.mean() - real.lengths.mean()
    assert abs(difference) < 4.5 * table.lengths.std() / np.sqrt(400)


def test_each_run_of_a_real_environment_resets_with_its_own_seed():
    env = ScriptedEnv([((0, 1), (1.0,), True)], 2)
    monte_carlo_prediction(env, [0, 0], episodes=3, gamma=1.0, seed=0, runs=2)
    assert env.seeds[1:3] == [None, None] == env.seeds[4:6] and len(env.seeds) == 6
    assert None not in (env.seeds[0], env.seeds[3]) and env.seeds[0] != env.seeds[3]


def test_spaces_that_do_not_start_at_zero():
    env = ScriptedEnv([((0, 1, 2), (1.0, 2.0), True)], 3, n_actions=2, first=5)
    result = monte_carlo_prediction(env, np.full((3, 2), 0.5), episodes=2, gamma=1.0, seed=0)
    assert result.values.tolist() == [3.0, 2.0, 0.0]


def test_transitions_are_drawn_with_their_chances():
    mdp = chain_with_return()
    walk = walk_for(mdp)
    u = (np.arange(1000) + 0.5) / 1000
    drawn = walk.table.draw(np.zeros(1000, dtype=int), u)
    shares = np.bincount(walk.table.next_state[drawn], minlength=3) / 1000
    assert np.abs(shares - [0.2, 0.5, 0.3]).max() < 2e-3
    last = walk.table.draw(np.ones(1, dtype=int), np.array([np.nextafter(1, 0)]))
    assert walk.table.next_state[last] == 2  # never a slot that state 1 does not have


def test_transitions_of_chance_zero_never_happen():
    transitions = np.array([[[0.0, 0.5, 0.5, 0.0]]] + [[[0, 0, 0, 1.0]]] * 3)
    table = walk_for(MDP(transitions, np.zeros((4, 1)), 0.9, [0, 1, 1, 1])).table
    drawn = table.next_state[table.draw(np.zeros(3, dtype=int), np.array([0.0, 0.5, np.nextafter(1, 0)]))]
    assert drawn.tolist() == [1, 2, 2]


def test_sparse_models_and_start_distributions():
    import scipy.sparse as sp

    dense = chain_with_return()
    sparse = MDP(
        sp.csr_array(dense.transitions.reshape(3, 3)),
        sp.csr_array(dense.reward_table.reshape(3, 3)),
        0.9,
        dense.terminal,
        [0.25, 0.75, 0],
    )
    result = monte_carlo_prediction(sparse, [0, 0, 0], episodes=200, gamma=0.9, seed=0, runs=50)
    assert_mean_within(result.values[:, :2], exact_values(dense)[:2])
    assert_mean_within((result.counts[:, 0] < 200), 1.0)


def test_rounding_draws_nothing_impossible():
    """Ten tenths add up to a little less than 1; the largest number below 1 draws the last of them, not what has no chance."""
    policy = PolicySampler(np.array([[0.1] * 10 + [0.0]]), 1, 11)
    largest = np.nextafter(1.0, 0.0)
    assert np.cumsum([0.1] * 10)[-1] <= largest
    assert policy.actions(np.array([0]), np.array([largest])).tolist() == [9] == [policy.action(0, largest)]


def test_a_state_that_episodes_also_start_in_is_no_end():
    """Every step comes home and is over: home has a value all the same, an end that nobody starts in has none."""
    columns = table_columns([[[(0.5, 0, 1.0, True), (0.5, 1, 0.0, True)]], [[(1.0, 1, 0.0, True)]]])
    table = TransitionTable(2, 1, *columns, np.array([1.0, 0.0]))
    assert table.ends.tolist() == [False, True]


@pytest.mark.parametrize("together", [False, True])
def test_the_step_limit_counts_steps(together):
    walk = open_walk(loop_mdp(), episodes=2, seed=0, runs=3, max_steps=4, together=together)
    while walk.next_step():
        next_state, _, terminated, over = walk.step(np.zeros(len(walk.run), dtype=int))
        assert not terminated.any()
        walk.move_on(next_state, over)
    assert (walk.lengths == 4).all()
