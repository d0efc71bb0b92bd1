"""Tests of ``rlbook_lib.monte_carlo``: averages of returns, prediction and control."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from test_experience import ScriptedEnv, assert_mean_within, chain_with_return, exact_values, loop_mdp

from rlbook_lib.experience import harmonic, linear_decay
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP, enumerate_trajectories
from rlbook_lib.monte_carlo import _Control, _Prediction, monte_carlo_control, monte_carlo_prediction, running_mean

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text())
UNIFORM = np.full((6, 4), 0.25)


# ------------------------------------------------------------------ means


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


# ------------------------------------------------------------------ prediction


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
    result = monte_carlo_prediction(Maze(), UNIFORM, episodes=400, gamma=0.9, seed=3, runs=300, first_visit=first_visit)
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
    one = monte_carlo_control(Maze(), episodes=1, gamma=0.9, epsilon=1.0, alpha=1.0, seed=1, runs=20, max_steps=50)
    assert (result.returns[:, 0] == one.returns[:, 0]).all()
    assert result.returns[:, -1].mean() > 0


def test_a_truncated_episode_goes_on_with_the_epsilon_of_its_own_episode():
    # all random in episode 1, greedy in episode 2, whose end is worth the best action: 1 + 1/2
    mdp = MDP(np.ones((1, 2, 1)), [[1.0, 0.0]], 0.5)
    options = dict(alpha=1.0, epsilon=lambda n: float(n == 1), seed=0, runs=20, max_steps=1)
    q_values = monte_carlo_control(mdp, episodes=2, gamma=0.5, **options).q_values[:, 0]
    assert set(q_values[q_values[:, 0] > 0, 0]) <= {1.0, 1.5} and 1.5 in q_values and 1.25 not in q_values


# ------------------------------------------------------------------ runs, seeds, history, generators


def test_same_seed_same_bits():
    for call in (
        lambda s: monte_carlo_prediction(Maze(), UNIFORM, episodes=20, gamma=0.9, seed=s, runs=3).values,
        lambda s: monte_carlo_control(Maze(), episodes=20, gamma=0.9, epsilon=0.3, seed=s, runs=3).q_values,
    ):
        assert (call(4) == call(4)).all()
        assert (call(4) != call(5)).any()
        assert (call(4)[0] != call(4)[1]).any()


def test_history_holds_the_table_before_the_first_and_after_every_episode():
    options = dict(episodes=12, gamma=0.9, seed=2, runs=4)
    result = monte_carlo_prediction(Maze(), UNIFORM, history=True, **options)
    assert result.history.shape == (13, 4, 6) and not result.history[0].any()
    assert (result.history[-1] == result.values).all()
    control = monte_carlo_control(Maze(), history=True, epsilon=0.2, **options)
    assert control.history.shape == (13, 4, 6, 4) and (control.history[-1] == control.q_values).all()
    for table, one in ((result.history, monte_carlo_prediction), (control.history, monte_carlo_control)):
        acting = dict(policy=UNIFORM) if one is monte_carlo_prediction else dict(epsilon=0.2)
        after_five = one(Maze(), history=True, **acting, **{**options, "episodes": 5}).history
        assert (after_five == table[:6]).all()


@pytest.mark.parametrize("kind", [_Prediction, _Control])
@pytest.mark.parametrize("first_visit", [True, False])
@pytest.mark.parametrize("alpha, max_steps", [(None, 60), (0.3, 7), (harmonic(1, 5), 1)])
@pytest.mark.parametrize("env", ["FrozenLake-v1", "maze", "slip"])
def test_one_run_on_lists_is_bit_equal_to_arrays(kind, first_visit, alpha, max_steps, env):
    env = {"maze": Maze(), "slip": Maze(slip=0.3)}.get(env, env)
    policy = np.random.default_rng(1).dirichlet(np.ones(4), size=16 if env == "FrozenLake-v1" else 6)
    behavior = policy if kind is _Prediction else linear_decay(1, 0, 15)
    options = dict(episodes=20, gamma=0.95, seed=9, history=True, max_steps=max_steps)
    lists, arrays = (kind(env, behavior, first_visit, alpha, **options) for _ in range(2))
    lists.learn()
    arrays.learn_side_by_side()
    assert (lists.history == arrays.history).all() and (lists.table == arrays.table).all()
    assert (lists.counts == arrays.counts).all() and lists.counts.any()
    assert (lists.walk.returns == arrays.walk.returns).all() and (lists.walk.lengths == arrays.walk.lengths).all()


def test_more_episodes_continue_the_same_runs():
    # runs end their episodes at different times, and no run depends on that
    few = monte_carlo_prediction(Maze(), UNIFORM, episodes=4, gamma=0.9, seed=2, runs=5, history=True)
    many = monte_carlo_prediction(Maze(), UNIFORM, episodes=9, gamma=0.9, seed=2, runs=5, history=True)
    assert (few.history == many.history[:5]).all()
    assert (few.lengths == many.lengths[:, :4]).all()


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
