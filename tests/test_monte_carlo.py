"""Tests of ``rlbook_lib.monte_carlo``: averages of returns, schedules, and where experience comes from."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP, enumerate_trajectories
from rlbook_lib.monte_carlo import (
    EnvironmentWalk,
    TableWalk,
    epsilon_greedy_actions,
    epsilon_greedy_probabilities,
    harmonic,
    iterate_monte_carlo_control,
    iterate_monte_carlo_prediction,
    linear_decay,
    monte_carlo_control,
    monte_carlo_prediction,
    open_walk,
    running_mean,
)

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text())
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
        return (
            self.states[self.time] + self.first,
            reward,
            last and self.terminated,
            last and not self.terminated,
            {},
        )


def loop_mdp(gamma=0.5):
    """One state, one action, reward 1, no end: worth 1 / (1 - gamma)."""
    return MDP(np.ones((1, 1, 1)), [[1.0]], gamma)


def assert_mean_within(samples, expected, errors=4.5):
    """The mean over runs (first axis) lies within so many standard errors of what it should be."""
    samples = np.asarray(samples)
    standard_error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - expected) <= errors * standard_error + 1e-12).all()


# ------------------------------------------------------------------ means and schedules


@pytest.mark.equation("eq-running-mean")
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_running_mean_is_the_mean(numbers):
    mean = 12.0
    for count, number in enumerate(numbers, start=1):
        mean = running_mean(mean, count, number)
    assert mean == pytest.approx(np.mean(numbers), abs=1e-9)


def test_running_mean_needs_a_count():
    with pytest.raises(ValueError, match="count"):
        running_mean(0.0, 0, 1.0)


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
    [
        ([], 0.1, "q_values"),
        ([1.0, np.nan], 0.1, "q_values"),
        ([1.0], 1.1, "epsilon"),
        ([1.0], np.nan, "epsilon"),
    ],
)
def test_epsilon_greedy_refuses_nonsense(q, epsilon, name):
    with pytest.raises(ValueError, match=name):
        epsilon_greedy_probabilities(q, epsilon)


# ------------------------------------------------------------------ prediction


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


def enumerated_estimate(mdp, episodes, horizon, first_visit):
    """Expected Monte Carlo estimate, by playing every sequence of episodes; and the mass left out."""
    paths = enumerate_trajectories(mdp, np.zeros(3, dtype=int), horizon)
    total, mass, chances = np.zeros(3), np.zeros(3), 0.0
    for indices in np.ndindex(*(len(paths),) * episodes):
        chosen = [paths[i] for i in indices]
        chance = np.prod([path.probability for path in chosen])
        if chance < 1e-9:
            continue
        chances += chance
        env = ScriptedEnv([(p.states, p.rewards, True) for p in chosen], 3)
        result = monte_carlo_prediction(
            env, np.zeros(3, dtype=int), episodes=episodes, gamma=mdp.gamma, seed=0, first_visit=first_visit
        )
        seen = result.counts > 0
        total[seen] += chance * result.values[seen]
        mass[seen] += chance
    return total / np.maximum(mass, 1e-300), 1 - chances


@pytest.mark.equation("eq-mc-estimate")
@pytest.mark.parametrize("episodes, horizon", [(1, 14), (2, 10)])
def test_first_visit_is_unbiased_by_enumeration(episodes, horizon):
    mdp = chain_with_return()
    mean, left_out = enumerated_estimate(mdp, episodes, horizon, first_visit=True)
    assert left_out < 1e-6
    # the bias is exactly 0; what is left is the mass of the paths left out, times a few units of return
    assert np.abs(mean[:2] - exact_values(mdp)[:2]).max() < 1e-5


def test_every_visit_is_biased_by_enumeration():
    mdp = chain_with_return()
    mean, _ = enumerated_estimate(mdp, 1, 14, first_visit=False)
    assert abs(mean[0] - exact_values(mdp)[0]) > 0.02


def test_first_and_every_visit_by_hand():
    # states 0 1 0 end, rewards 1 2 3, gamma 1/2: G = 1 + 1 + 3/4, 2 + 3/2, 3
    env = ScriptedEnv([((0, 1, 0, 2), (1.0, 2.0, 3.0), True)], 3)
    options = dict(episodes=1, gamma=0.5, seed=0)
    first = monte_carlo_prediction(env, [0, 0, 0], **options)
    every = monte_carlo_prediction(env, [0, 0, 0], first_visit=False, **options)
    assert first.values.tolist() == [2.75, 3.5, 0] and first.counts.tolist() == [1, 1, 0]
    assert every.values == pytest.approx([(2.75 + 3) / 2, 3.5, 0]) and every.counts.tolist() == [2, 1, 0]
    assert first.returns.tolist() == [[6.0]] and first.lengths.tolist() == [[3]]
    constant = monte_carlo_prediction(env, [0, 0, 0], first_visit=False, alpha=0.5, **options)
    assert constant.values == pytest.approx([0.5 * (0.5 * 2.75) + 0.5 * 3, 1.75, 0])


@pytest.mark.equation("eq-mc-estimate")
@pytest.mark.parametrize("first_visit", [True, False])
def test_prediction_agrees_with_the_exact_values_of_the_maze(first_visit):
    cells = REFERENCE["maze"]["layouts"]["L1_primary"]["by_gamma"]["0.9"]["V_uniform"]
    exact = np.array(list(cells.values()))
    result = monte_carlo_prediction(
        Maze(), UNIFORM, episodes=400, gamma=0.9, seed=3, runs=300, first_visit=first_visit
    )
    assert_mean_within(result.values, exact)
    assert result.values.std(axis=0)[0] > 0.01
    assert result.values.shape == (300, 6) and result.returns.shape == (300, 400)
    assert (result.counts[:, 0] >= 400).all() and (result.counts.sum(1) <= result.lengths.sum(1)).all()


def test_a_truncated_return_is_continued_and_a_terminated_one_is_not():
    # episode 1 gives V(1) = 8; episode 2 is cut off (or ends) in state 1 after reward 1
    for terminated, expected in ((False, 1 + 0.5 * 8), (True, 1.0)):
        env = ScriptedEnv([((1, 2), (8.0,), True), ((0, 1), (1.0,), terminated)], 3)
        result = monte_carlo_prediction(env, [0, 0, 0], episodes=2, gamma=0.5, seed=0)
        assert result.values.tolist() == [expected, 8.0, 0.0]
        control = monte_carlo_control(env, episodes=2, gamma=0.5, epsilon=0.1, seed=0)
        assert control.q_values[:, 0].tolist() == [expected, 8.0, 0.0]


def test_the_step_limit_truncates():
    # every episode has one step and is cut off: V <- 1 + V / 2 approaches 2; as an end it would stay 1
    result = monte_carlo_prediction(loop_mdp(), [0], episodes=60, gamma=0.5, seed=0, max_steps=1, alpha=0.5)
    assert result.values == pytest.approx([2.0], abs=1e-3)
    assert (result.lengths == 1).all()


def test_gamma_zero_averages_first_rewards():
    result = monte_carlo_prediction(chain_with_return(), [0, 0, 0], episodes=300, gamma=0.0, seed=1, runs=100)
    assert_mean_within(result.values[:, 0], 0.2 * 1 - 0.5 * 2 + 0.3 * 3)


# ------------------------------------------------------------------ control


def test_control_finds_the_best_policy_of_the_maze():
    result = monte_carlo_control(Maze(), episodes=800, gamma=0.9, epsilon=0.2, seed=5, runs=40)
    greedy = result.q_values.argmax(axis=2)
    assert ((greedy[:, :3] == [3, 3, 1]).all(axis=1)).mean() > 0.9
    assert result.q_values.shape == (40, 6, 4) and result.history is None
    assert result.returns[:, -200:].mean() > 5


def test_control_epsilon_schedule_counts_episodes_from_one():
    # explores in episode 1 only; with one best action per state known, later episodes are greedy and equal
    result = monte_carlo_control(
        Maze(),
        episodes=30,
        gamma=0.9,
        epsilon=lambda n: 1.0 if n == 1 else 0.0,
        alpha=1.0,
        seed=1,
        runs=20,
        max_steps=50,
    )
    one = monte_carlo_control(
        Maze(), episodes=1, gamma=0.9, epsilon=1.0, alpha=1.0, seed=1, runs=20, max_steps=50
    )
    assert (result.returns[:, 0] == one.returns[:, 0]).all()
    assert result.returns[:, -1].mean() > 0


# ------------------------------------------------------------------ runs, seeds, history, generators


def test_same_seed_same_bits():
    for call in (
        lambda s: monte_carlo_prediction(Maze(), UNIFORM, episodes=20, gamma=0.9, seed=s, runs=3).values,
        lambda s: monte_carlo_control(Maze(), episodes=20, gamma=0.9, epsilon=0.3, seed=s, runs=3).q_values,
    ):
        assert (call(4) == call(4)).all()
        assert (call(4) != call(5)).any()
        assert (call(4)[0] != call(4)[1]).any()


def test_history_and_generators_tell_the_same_story():
    options = dict(episodes=12, gamma=0.9, seed=2, runs=4)
    result = monte_carlo_prediction(Maze(), UNIFORM, history=True, **options)
    assert result.history.shape == (13, 4, 6) and not result.history[0].any()
    assert (result.history[-1] == result.values).all()
    for update in iterate_monte_carlo_prediction(Maze(), UNIFORM, **options):
        assert (update.table == result.history[update.episode + 1]).all()
    assert update.episode == 11
    control = monte_carlo_control(Maze(), history=True, epsilon=0.2, **options)
    tables = [update.table.copy() for update in iterate_monte_carlo_control(Maze(), epsilon=0.2, **options)]
    assert (np.array(tables) == control.history[1:]).all()


def test_more_episodes_continue_the_same_runs():
    # runs end their episodes at different times, and no run depends on that
    few = monte_carlo_prediction(Maze(), UNIFORM, episodes=4, gamma=0.9, seed=2, runs=5, history=True)
    many = monte_carlo_prediction(Maze(), UNIFORM, episodes=9, gamma=0.9, seed=2, runs=5, history=True)
    assert (few.history == many.history[:5]).all()
    assert (few.lengths == many.lengths[:, :4]).all()


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


# ------------------------------------------------------------------ bad input


class BoxEnv(gymnasium.Env):
    observation_space, action_space = Box(0, 1), Discrete(2)


GOOD = dict(episodes=2, gamma=0.9, seed=0)


@pytest.mark.parametrize(
    "changes, error, name",
    [
        (dict(gamma=1.2), ValueError, "gamma"),
        (dict(gamma=np.nan), ValueError, "gamma"),
        (dict(gamma="high"), TypeError, "gamma"),
        (dict(episodes=0), ValueError, "episodes"),
        (dict(episodes=2.0), TypeError, "episodes"),
        (dict(runs=0), ValueError, "runs"),
        (dict(seed=-1), ValueError, "seed"),
        (dict(seed=1.5), TypeError, "seed"),
        (dict(max_steps=0), ValueError, "max_steps"),
        (dict(alpha=1.5), ValueError, "alpha"),
        (dict(alpha=lambda n: -n), ValueError, r"alpha\(1\)"),
        (dict(first_visit="yes"), TypeError, "first_visit"),
        (dict(history=3), TypeError, "history"),
        (dict(policy=np.zeros(5, dtype=int)), ValueError, "policy"),
        (dict(policy=np.full((6, 4), 0.3)), ValueError, "policy"),
        (dict(policy=np.full(6, 4)), ValueError, "policy"),
        (dict(env_or_mdp=[1]), TypeError, "env_or_mdp"),
        (dict(env_or_mdp=BoxEnv()), ValueError, "observation"),
    ],
)
def test_prediction_refuses_nonsense(changes, error, name):
    arguments = {**dict(env_or_mdp=Maze(), policy=UNIFORM), **GOOD, **changes}
    with pytest.raises(error, match=name):
        monte_carlo_prediction(**arguments)


@pytest.mark.parametrize(
    "changes, error, name",
    [
        (dict(epsilon=1.01), ValueError, "epsilon"),
        (dict(epsilon=None), TypeError, "epsilon"),
        (dict(epsilon=lambda n: 2.0), ValueError, r"epsilon\(1\)"),
        (dict(alpha=-0.1), ValueError, "alpha"),
        (dict(runs=True), TypeError, "runs"),
        (dict(env_or_mdp="CartPole-v1"), ValueError, "observation"),
    ],
)
def test_control_refuses_nonsense(changes, error, name):
    with pytest.raises(error, match=name):
        monte_carlo_control(**{**dict(env_or_mdp=Maze(), epsilon=0.1), **GOOD, **changes})


def test_an_unknown_observation_is_reported():
    env = ScriptedEnv([((0, 7), (1.0,), True)], 2)
    with pytest.raises(ValueError, match="observation"):
        monte_carlo_prediction(env, [0, 0], **GOOD)


def test_a_start_in_an_end_is_refused():
    with pytest.raises(ValueError, match="start"):
        monte_carlo_prediction(MDP(np.ones((1, 1, 1)), [[0.0]], 0.9, [1]), [0], **GOOD)


def test_importing_does_not_load_torch_or_matplotlib():
    code = "import sys, rlbook_lib.temporal_difference\nassert not {'torch', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
