"""Tests of ``rlbook_lib.temporal_difference``: one-step and n-step updates, prediction and control."""

import json
from collections import namedtuple
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_experience import ScriptedEnv, Shy, assert_mean_within, chain_with_return, loop_mdp

from rlbook_lib import dynamic_programming as dp
from rlbook_lib.dynamic_programming import action_values, policy_evaluation, q_from_values, value_iteration
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP
from rlbook_lib.monte_carlo import monte_carlo_prediction, running_mean
from rlbook_lib.returns import n_step_returns
from rlbook_lib.experience import epsilon_greedy_probabilities, harmonic, linear_decay, one_or_all
from rlbook_lib.temporal_difference import (
    _Control,
    _Prediction,
    expected_sarsa,
    n_step_td_prediction,
    q_learning,
    residual_gradient_fixed_point,
    sarsa,
    td_error,
    td_fixed_point,
    td_prediction,
    td_target,
)

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text())
UNIFORM = np.full((6, 4), 0.25)
CONTROL = {"q_learning": q_learning, "sarsa": sarsa, "expected_sarsa": expected_sarsa}
Step = namedtuple("Step", "run episode state action reward next_state terminated truncated td_error table")


def steps_of(learner):
    """What a learner does, step by step; plain numbers where there is one run. ``table`` is the live one."""
    for *before, terminated, over, delta, table in learner.iterate():
        fields = [*before, terminated, over & ~terminated, delta]
        if learner.walk.runs == 1:
            fields, table = [field[0].item() for field in fields], table[0]
        yield Step._make([*fields, table])


def iterate_control(rule, env, **options):
    return steps_of(_Control(rule, env, **options))


def iterate_prediction(env, policy, *, n=1, initial_values=None, **options):
    return steps_of(_Prediction(env, policy, n=n, initial_values=initial_values, **options))


every_rule = pytest.mark.parametrize("rule", list(CONTROL))


# ------------------------------------------------------------------ the error


@pytest.mark.equation("eq-td-target", "eq-td-error", "eq-td-update")
def test_the_ride():
    ride = REFERENCE["ride_sharing_td"]
    now, then = ride["V_before"], ride["V_next"]
    assert td_target(ride["R"], then, False, ride["gamma"]) == ride["target"]
    assert td_error(ride["R"], now, then, False, ride["gamma"]) == ride["delta"]
    negative = ride["as_negative_reward"]
    assert td_error(negative["R"], negative["V_before"], negative["V_next"], False, 1) == negative["delta"]
    env = ScriptedEnv([((0, 1), (ride["R"],), False)], 2)
    for alpha, after in ride["V_after"].items():
        result = td_prediction(env, [0, 0], episodes=1, gamma=1, alpha=float(alpha), seed=0, initial_values=[now, then])
        assert result.values.tolist() == pytest.approx([after, then])


@pytest.mark.equation("eq-td-target", "eq-td-error")
def test_at_the_true_values_errors_average_to_zero():
    mdp = chain_with_return()
    values = policy_evaluation(mdp, [0, 0, 0])
    for state in (0, 1):
        chance = mdp.transitions[state, 0]
        args = mdp.reward_table[state, 0], values, mdp.terminal, mdp.gamma
        assert chance @ td_target(*args) == pytest.approx(values[state])
        errors = td_error(args[0], values[state], *args[1:])
        assert chance @ errors == pytest.approx(0, abs=1e-12)
    assert np.ptp(td_error(mdp.reward_table[0, 0], values[0], values, mdp.terminal, 0.9)) > 1


def test_a_single_target_can_be_worse_though_the_average_is_better():
    # the guess is 0.6 too high everywhere; the mean target is closer, one of the targets is farther away
    mdp = chain_with_return()
    values = policy_evaluation(mdp, [0, 0, 0])
    guess = np.where(mdp.terminal, 0, values + 0.6)
    targets = td_target(mdp.reward_table[0, 0], guess, mdp.terminal, 0.9)
    assert abs(mdp.transitions[0, 0] @ targets - values[0]) < 0.6
    assert np.abs(targets - values[0]).max() > 0.6


def test_nothing_is_looked_at_beyond_an_end():
    assert td_target([1.0, 1.0], [np.nan, 4.0], [True, False], 0.5).tolist() == [1.0, 3.0]
    assert td_error(1.0, 0.25, np.inf, True, 0.5) == 0.75


@pytest.mark.parametrize(
    "changes, name",
    [
        (dict(terminated=2), "terminated"),
        (dict(gamma=-0.1), "gamma"),
        (dict(reward=np.nan), "reward"),
        (dict(next_value=np.inf), "next_value"),
        (dict(value=np.nan), "value"),
    ],
)
def test_the_error_refuses_nonsense(changes, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        td_error(**{**dict(reward=1.0, value=0.0, next_value=0.0, terminated=False, gamma=0.9), **changes})


# ------------------------------------------------------------------ prediction


@pytest.mark.equation("eq-td-update")
def test_td_by_hand():
    # V = (0, 0, 4): from 0 to 1 with reward 2, to 2 with reward -1, end with reward 6; gamma = alpha = 1/2
    env = ScriptedEnv([((0, 1, 2, 0), (2.0, -1.0, 6.0), True)], 3)
    result = td_prediction(env, [0, 0, 0], episodes=1, gamma=0.5, alpha=0.5, seed=0, initial_values=[0, 0, 4])
    assert result.values.tolist() == [1.0, 0.5, 5.0]
    assert result.counts.tolist() == [1, 1, 1] and result.returns.tolist() == [[7.0]]


def n_step_by_the_book(states, rewards, terminated, values, gamma, alpha, n):
    """The textbook's loop over one episode, one number at a time."""
    values, T = list(values), len(rewards)
    for t in range(T + n - 1):
        if t == T - 1:
            after_the_end = 0.0 if terminated else values[states[T]]  # a cut-off episode goes on in our mind
        update = t - n + 1
        if update >= 0:
            end = min(update + n, T)
            target = sum(gamma ** (k - update) * rewards[k] for k in range(update, end))
            target += gamma ** (end - update) * (values[states[end]] if end < T else after_the_end)
            values[states[update]] += alpha * (target - values[states[update]])
    return values


@pytest.mark.equation("eq-n-step-update")
@pytest.mark.parametrize("n", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("max_steps", [6, 1000])
def test_n_step_is_the_textbook_loop(n, max_steps):
    options = dict(episodes=30, gamma=0.9, alpha=0.3, seed=1, max_steps=max_steps)
    start = np.array([1.0, -2.0, 0.5, 3.0, 0.0, 0.0])
    steps = list(iterate_prediction(Maze(), UNIFORM, n=n, initial_values=start, **options))
    values = start.tolist()
    for episode in range(30):
        path = [step for step in steps if step.episode == episode]
        states = [path[0].state] + [step.next_state for step in path]
        values = n_step_by_the_book(states, [step.reward for step in path], path[-1].terminated, values, 0.9, 0.3, n)
    result = n_step_td_prediction(Maze(), UNIFORM, n=n, initial_values=start, **options)
    assert result.values == pytest.approx(values, abs=1e-10)
    assert (result.values == steps[-1].table).all()
    assert {step.truncated for step in steps} == ({False, True} if max_steps == 6 else {False})


@pytest.mark.equation("eq-n-step-update")
@pytest.mark.parametrize("kind", ["terminal", "truncation_bootstrap_0.7"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_n_step_targets_are_the_reference_values(kind, n):
    case, expected = REFERENCE["gae"], REFERENCE["n_step"][kind][str(n)]
    env = ScriptedEnv([((0, 1, 2, 3, 4, 5), case["rewards"], kind == "terminal")], 6)
    start = [*case["values"], 0.7]
    result = n_step_td_prediction(
        env, np.zeros(6, dtype=int), n=n, episodes=1, gamma=case["gamma"], alpha=1.0, seed=0, initial_values=start
    )
    assert result.values[:5] == pytest.approx(expected)  # alpha = 1: V becomes the target
    last = np.arange(5) == 4
    by_returns = n_step_returns(
        np.array(case["rewards"]),
        np.array(start[1:]),
        last & (kind == "terminal"),
        last & (kind != "terminal"),
        case["gamma"],
        n,
    )
    assert result.values[:5] == pytest.approx(by_returns)


@pytest.mark.equation("eq-td-update", "eq-n-step-update")
def test_one_step_is_td_bit_for_bit():
    options = dict(episodes=40, gamma=0.9, seed=7, runs=6, max_steps=5)
    for alpha in (0.2, harmonic(1, 4)):
        td = td_prediction(Maze(slip=0.2), UNIFORM, alpha=alpha, history=True, **options)
        one = n_step_td_prediction(Maze(slip=0.2), UNIFORM, alpha=alpha, n=1, history=True, **options)
        assert (td.history == one.history).all()
    # and against plain Python, from the transitions alone
    values = np.zeros((6, 6))
    for step in iterate_prediction(Maze(slip=0.2), UNIFORM, alpha=0.2, **options):
        for i, run in enumerate(step.run):
            v, s = values[run], step.state[i]
            delta = float(td_error(step.reward[i], v[s], v[step.next_state[i]], step.terminated[i], 0.9))
            assert delta == step.td_error[i]
            v[s] += 0.2 * delta
    assert (values == td_prediction(Maze(slip=0.2), UNIFORM, alpha=0.2, **options).values).all()


def test_large_n_is_monte_carlo_with_a_constant_step():
    options = dict(episodes=60, gamma=0.9, alpha=0.1, seed=3)
    td = n_step_td_prediction(Maze(), UNIFORM, n=500, history=True, **options)
    mc = monte_carlo_prediction(Maze(), UNIFORM, first_visit=False, history=True, **options)
    assert td.lengths.max() < 500 and (td.lengths == mc.lengths).all()
    assert np.allclose(td.history, mc.history, atol=1e-12)


@pytest.mark.equation("eq-td-update")
@pytest.mark.parametrize("n", [1, 4])
def test_prediction_converges_to_the_exact_values(n):
    exact = np.array(list(REFERENCE["maze"]["layouts"]["L1_primary"]["by_gamma"]["0.9"]["V_uniform"].values()))
    result = n_step_td_prediction(
        Maze(), UNIFORM, n=n, episodes=1000, gamma=0.9, alpha=harmonic(1, 20), seed=2, runs=150
    )
    standard_error = result.values.std(axis=0) / np.sqrt(150)
    assert (np.abs(result.values.mean(axis=0) - exact) <= 0.1 + 4 * standard_error).all()
    assert standard_error.max() < 0.15  # so that the band means something
    assert result.values.shape == (150, 6) and result.counts.sum() == result.lengths.sum()


def test_td_is_biased_by_its_first_guess_and_monte_carlo_is_not():
    # one episode: TD averages the first guess in, the mean of a return does not
    mdp = chain_with_return()
    exact = policy_evaluation(mdp, [0, 0, 0])
    options = dict(episodes=1, gamma=0.9, seed=4, runs=4000)
    td = td_prediction(mdp, [0, 0, 0], alpha=harmonic(), initial_values=[9.0, 9.0, 0], **options)
    mc = monte_carlo_prediction(mdp, [0, 0, 0], **options)
    assert_mean_within(mc.values[:, 0], exact[0])
    assert td.values[:, 0].mean() > exact[0] + 1
    assert td.values[:, 0].std() != mc.values[:, 0].std()


# ------------------------------------------------------------------ terminated and truncated


@pytest.mark.parametrize("n", [1, 2, 3])
def test_prediction_bootstraps_at_a_truncation(n):
    # a loop worth 2, always cut off: an end would make it worth at most 1 + 1/2 + 1/4
    for max_steps in (1, 3):
        result = n_step_td_prediction(
            loop_mdp(), [0], n=n, episodes=200, gamma=0.5, alpha=0.3, seed=0, max_steps=max_steps
        )
        assert result.values == pytest.approx([2.0], abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_prediction_never_bootstraps_at_a_termination(n):
    # the end shows the same observation as the start, which is worth a lot: the flag decides, not the state
    env = ScriptedEnv([((0, 0), (1.0,), True)], 1)
    result = n_step_td_prediction(env, [0], n=n, episodes=1, gamma=0.5, alpha=1.0, seed=0, initial_values=[100.0])
    assert result.values.tolist() == [1.0]


@every_rule
@pytest.mark.parametrize("runs", [1, 3])
def test_control_bootstraps_at_a_truncation(rule, runs):
    result = CONTROL[rule](loop_mdp(), episodes=200, gamma=0.5, alpha=0.3, epsilon=0.1, seed=0, runs=runs, max_steps=1)
    assert np.allclose(result.q_values, 2.0, atol=1e-6)
    env = ScriptedEnv([((0, 0), (1.0,), False)], 1)
    result = CONTROL[rule](env, episodes=200, gamma=0.5, alpha=0.3, epsilon=0.1, seed=0, runs=runs)
    assert np.allclose(result.q_values, 2.0, atol=1e-6)


@every_rule
@pytest.mark.parametrize("runs", [1, 3])
def test_control_never_bootstraps_at_a_termination(rule, runs):
    env = ScriptedEnv([((0, 0), (1.0,), True)], 1)
    result = CONTROL[rule](env, episodes=200, gamma=0.5, alpha=0.3, epsilon=0.1, seed=0, runs=runs)
    assert np.allclose(result.q_values, 1.0, atol=1e-6)
    mdp = MDP(np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), np.ones((2, 1)), 0.5, [0, 1])
    result = CONTROL[rule](mdp, episodes=200, gamma=0.5, alpha=0.3, epsilon=0.1, seed=0, runs=runs)
    assert np.allclose(result.q_values, [[1.0], [0.0]], atol=1e-6)


class BothFlags(ScriptedEnv):
    def step(self, action):
        *head, terminated, truncated, info = super().step(action)
        return (*head, terminated, True, info)


@every_rule
def test_both_flags_mean_terminated(rule):
    env = BothFlags([((0, 0), (1.0,), True)], 1)
    result = CONTROL[rule](env, episodes=50, gamma=0.5, alpha=0.5, epsilon=0.1, seed=0)
    assert result.q_values == pytest.approx(np.ones((1, 1)))


# ------------------------------------------------------------------ control, by hand

EQUATION = {"q_learning": "eq-q-learning", "sarsa": "eq-sarsa", "expected_sarsa": "eq-expected-sarsa"}


def replay(rule, steps, shape, gamma, alpha, epsilon):
    """Learn again from recorded transitions, one number at a time, by the formula in the book."""
    q = np.zeros(shape)
    for i, step in enumerate(steps):
        row = q[step.next_state]
        if rule == "q_learning":
            worth = max(row)
        elif rule == "expected_sarsa":
            ties = [a for a in range(shape[1]) if row[a] == max(row)]
            worth = sum(row) * epsilon / shape[1] + (1 - epsilon) * np.mean(row[ties])
        else:
            worth = row[steps[i + 1].action] if i + 1 < len(steps) else 0.0  # the action that really came next
        target = step.reward + (0.0 if step.terminated else gamma * worth)
        q[step.state, step.action] += alpha * (target - q[step.state, step.action])
        yield q


@pytest.mark.equation("eq-q-learning", "eq-sarsa", "eq-expected-sarsa")
@every_rule
def test_control_is_the_formula_transition_by_transition(rule):
    options = dict(gamma=0.9, alpha=0.4, epsilon=0.3)
    steps, tables = [], []
    for step in iterate_control(rule, Maze(slip=0.3), episodes=40, seed=5, **options):
        steps.append(step)
        tables.append(step.table.copy())
    for table, replayed in zip(tables, replay(rule, steps, (6, 4), 0.9, 0.4, 0.3)):
        assert np.allclose(table, replayed, atol=1e-12)
    assert len(tables) > 100 and steps[-1].episode == 39


@pytest.mark.equation("eq-q-learning")
def test_q_learning_looks_at_the_best_next_action():
    # 0 -> 1 (reward 0), then 1 ends with reward 4 or is left with reward -8: learn row 1 first, then row 0
    env = ScriptedEnv([((1, 2), (4.0,), True), ((0, 1), (0.0,), False)], 3, n_actions=1)
    result = q_learning(env, episodes=2, gamma=0.5, alpha=0.5, epsilon=0.0, seed=0)
    assert result.q_values.tolist() == [[0.5 * 0.5 * 2.0], [2.0], [0.0]]


# ------------------------------------------------------------------ control, in the limit


def epsilon_soft_fixed_point(mdp, epsilon):
    """The table that is its own expected SARSA backup, and a check that it is the value of its own policy."""
    q = np.zeros((mdp.n_states, mdp.n_actions))
    for _ in range(3000):
        values = (epsilon_greedy_probabilities(q, epsilon) * q).sum(axis=1)
        q = q_from_values(mdp, np.where(mdp.terminal, 0, values))
    assert np.allclose(q, action_values(mdp, epsilon_greedy_probabilities(q, epsilon)), atol=1e-9)
    return q


@pytest.mark.slow
@pytest.mark.equation("eq-sarsa", "eq-expected-sarsa")
@pytest.mark.parametrize("rule", ["sarsa", "expected_sarsa"])
def test_on_policy_control_reaches_the_value_of_its_own_soft_policy(rule):
    mdp = Maze(slip=0.2).to_mdp(0.9)
    exact = epsilon_soft_fixed_point(mdp, 0.3)
    result = CONTROL[rule](mdp, episodes=4000, gamma=0.9, alpha=harmonic(1, 10), epsilon=0.3, seed=0, runs=60)
    assert np.abs(result.q_values.mean(axis=0) - exact).max() < 0.25
    assert np.abs(exact - value_iteration(mdp).q_values).max() > 0.5  # so this is not the optimal table


@pytest.mark.slow
@pytest.mark.equation("eq-q-learning")
def test_q_learning_reaches_the_optimal_table():
    mdp = Maze(slip=0.2).to_mdp(0.9)
    exact = value_iteration(mdp).q_values
    result = q_learning(mdp, episodes=4000, gamma=0.9, alpha=harmonic(1, 10), epsilon=0.5, seed=0, runs=60)
    assert np.abs(result.q_values.mean(axis=0) - exact).max() < 0.25
    assert (result.q_values.argmax(2)[:, :3] == exact.argmax(1)[:3]).all(1).mean() > 0.95


@pytest.mark.equation("eq-q-learning")
def test_in_a_deterministic_maze_a_step_of_one_is_exact():
    cells = REFERENCE["maze"]["layouts"]["L1_primary"]["by_gamma"]["0.9"]["Q_star"]
    result = q_learning(Maze(), episodes=300, gamma=0.9, alpha=1.0, epsilon=1.0, seed=0, runs=50)
    for row, column in [(0, 0), (0, 1), (0, 2), (1, 0)]:
        exact = [cells[f"({row},{column})"][action] for action in ("up", "down", "left", "right")]
        assert np.allclose(result.q_values[:, 3 * row + column], exact, atol=1e-9)


def coin():
    """One state; the only action ends the episode and pays 0 or 1 with equal chances."""
    transitions = np.zeros((3, 1, 3))
    transitions[0, 0, 1:] = 0.5
    transitions[1, 0, 1] = transitions[2, 0, 2] = 1
    rewards = np.zeros((3, 1, 3))
    rewards[0, 0, 2] = 1
    return MDP(transitions, rewards, 0.9, [0, 1, 1], [1, 0, 0])


@pytest.mark.equation("eq-robbins-monro")
@every_rule
def test_with_noise_a_step_of_one_never_settles_and_one_over_n_does(rule):
    options = dict(episodes=400, gamma=0.9, epsilon=0.1, seed=0, runs=2000)
    restless = CONTROL[rule](coin(), alpha=1.0, **options).q_values[:, 0, 0]
    settled = CONTROL[rule](coin(), alpha=harmonic(), **options)
    assert set(restless) == {0.0, 1.0} and restless.std() == pytest.approx(0.5, abs=0.01)
    assert settled.q_values[:, 0, 0] == pytest.approx(settled.returns.mean(axis=1))  # 1/n: the mean itself
    assert settled.q_values[:, 0, 0].std() == pytest.approx(0.5 / np.sqrt(400), rel=0.1)


@pytest.mark.slow
def test_bootstrapping_with_the_behaviors_own_action_learns_the_behaviors_values():
    mdp = Maze().to_mdp(0.9)
    options = dict(episodes=1500, gamma=0.9, alpha=harmonic(1, 10), epsilon=1.0, seed=1, runs=60)
    on, off = sarsa(mdp, **options).q_values.mean(0), q_learning(mdp, **options).q_values.mean(0)
    of_behavior, optimal = action_values(mdp, UNIFORM), value_iteration(mdp).q_values
    assert np.abs(on - of_behavior).max() < 0.3 and np.abs(off - optimal).max() < 0.3
    assert np.abs(of_behavior - optimal).max() > 5


def test_on_the_cliff_sarsa_keeps_away_from_the_edge():
    options = dict(episodes=200, gamma=1.0, alpha=0.5, epsilon=0.1, seed=0, runs=40)
    returns = {rule: CONTROL[rule]("CliffWalking-v1", **options).returns[:, -100:].mean(1) for rule in CONTROL}
    assert returns["sarsa"].mean() > returns["q_learning"].mean() + 10
    assert returns["expected_sarsa"].mean() > returns["sarsa"].mean()


# ------------------------------------------------------------------ one run alone and many side by side


@every_rule
@pytest.mark.parametrize("env", ["FrozenLake-v1", "Taxi-v4", "maze", "slip"])
@pytest.mark.parametrize(
    "alpha, epsilon", [(0.3, 0.1), (harmonic(1, 5), linear_decay(1, 0, 15)), (1.0, 0.0), (0.5, 1.0)]
)
@pytest.mark.parametrize("runs", [1, 3])
def test_runs_on_lists_are_bit_equal_to_arrays(rule, env, alpha, epsilon, runs):
    env = {"maze": Maze(), "slip": Maze(slip=0.3)}.get(env, env)
    options = dict(episodes=20, gamma=0.95, seed=9, runs=runs, history=True, max_steps=60)
    arrays = _Control(rule, env, alpha, epsilon, **options)
    for _ in arrays.iterate():
        pass
    lists = CONTROL[rule](env, alpha=alpha, epsilon=epsilon, **options)
    assert (lists.history == arrays.history).all() and (lists.q_values == one_or_all(arrays.q)).all()
    assert (lists.returns == arrays.walk.returns).all() and (lists.lengths == arrays.walk.lengths).all()
    assert lists.lengths.max() > 3


@pytest.mark.parametrize("runs", [1, 2])
def test_known_ends_are_worth_nothing_whatever_the_first_guess_says(runs):
    maze = Maze()
    options = dict(alpha=0.0, episodes=1, gamma=0.9, seed=0, runs=runs, initial_values=np.full(6, 7.0))
    values = td_prediction(maze, UNIFORM, **options).values
    assert (values == np.where(maze.terminal, 0.0, 7.0)).all()


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("env", ["FrozenLake-v1", "maze", "slip"])
@pytest.mark.parametrize("alpha, max_steps", [(0.3, 60), (harmonic(1, 5), 7), (1.0, 1)])
@pytest.mark.parametrize("runs", [1, 3])
def test_predictions_on_lists_are_bit_equal_to_arrays(n, env, alpha, max_steps, runs):
    env = {"maze": Maze(), "slip": Maze(slip=0.3)}.get(env, env)
    policy = np.random.default_rng(1).dirichlet(np.ones(4), size=16 if env == "FrozenLake-v1" else 6)
    options = dict(episodes=20, gamma=0.95, seed=9, runs=runs, history=True, max_steps=max_steps)
    arrays = _Prediction(env, policy, alpha, n, None, **options)
    for _ in arrays.iterate():
        pass
    lists = n_step_td_prediction(env, policy, n=n, alpha=alpha, **options)
    assert (lists.history == arrays.history).all() and (lists.values == one_or_all(arrays.v)).all()
    assert (lists.counts == one_or_all(arrays.counts)).all() and lists.counts.sum() == lists.lengths.sum()
    assert (lists.returns == arrays.walk.returns).all() and (lists.lengths == arrays.walk.lengths).all()
    if n == 1:
        assert (td_prediction(env, policy, alpha=alpha, **options).values == lists.values).all()


@every_rule
def test_runs_do_not_depend_on_how_long_others_take(rule):
    # some runs are done with a few episodes long before others, which go on as if nothing had happened
    # (with 60 runs one leaves at the same step as another begins an episode, again and again)
    options = dict(gamma=0.9, alpha=0.3, epsilon=0.3, seed=6, runs=60, history=True)
    few, many = CONTROL[rule](Maze(), episodes=4, **options), CONTROL[rule](Maze(), episodes=12, **options)
    assert len(set(few.lengths.sum(axis=1))) > 1
    assert (few.history == many.history[:5]).all() and (few.returns == many.returns[:, :4]).all()


@every_rule
def test_every_run_sees_all_its_episodes(rule):
    result = CONTROL[rule](Maze(), episodes=9, gamma=0.9, alpha=0.3, epsilon=0.3, seed=6, runs=50, history=True)
    assert result.returns.shape == result.lengths.shape == (50, 9) and (result.lengths >= 1).all()
    assert result.q_values.shape == (50, 6, 4) and result.history.shape == (10, 50, 6, 4)
    assert not result.history[0].any() and (result.history[-1] == result.q_values).all()
    assert set(np.unique(result.returns)) <= {-10.0, 10.0}
    changed = (result.history[1:] != result.history[:-1]).any(axis=(2, 3))
    assert changed[0].sum() == np.count_nonzero(result.returns[:, 0])  # the first reward moves the first table


@every_rule
@pytest.mark.parametrize("runs", [1, 4])
def test_same_seed_same_bits(rule, runs):
    def learn(seed):
        return CONTROL[rule](Maze(slip=0.1), episodes=15, gamma=0.9, alpha=0.3, epsilon=0.3, seed=seed, runs=runs)

    assert (learn(1).q_values == learn(1).q_values).all() and (learn(1).returns == learn(1).returns).all()
    assert (learn(1).q_values != learn(2).q_values).any()
    if runs > 1:
        assert (learn(1).q_values[0] != learn(1).q_values[1]).any()


@every_rule
@pytest.mark.parametrize("runs", [1, 3])
def test_generators_give_the_same_numbers(rule, runs):
    options = dict(episodes=10, gamma=0.9, alpha=0.3, epsilon=0.2, seed=3, runs=runs)
    steps = list(iterate_control(rule, Maze(), **options))
    result = CONTROL[rule](Maze(), **options)
    assert (steps[-1].table == result.q_values).all()
    if runs == 1:
        assert len(steps) == result.lengths.sum() and isinstance(steps[0].state, int)
        assert sum(step.reward for step in steps) == result.returns.sum()
    else:
        assert sum(len(step.run) for step in steps) == result.lengths.sum()


@every_rule
def test_schedules_count_visits_and_episodes_from_one(rule):
    seen = {"alpha": set(), "epsilon": set()}

    def watch(name):
        return lambda n: seen[name].add(n) or 0.5

    CONTROL[rule](Maze(), episodes=5, gamma=0.9, alpha=watch("alpha"), epsilon=watch("epsilon"), seed=0, runs=2)
    assert min(seen["alpha"]) == 1 and seen["epsilon"] >= {1, 2, 3, 4, 5} and 0 not in seen["epsilon"]
    # epsilon: all random in the first episode, greedy ever after
    steps = iterate_control(
        rule, Maze(), episodes=30, gamma=0.9, alpha=0.5, epsilon=lambda n: float(n == 1), seed=0, max_steps=40
    )
    before, greedy = np.zeros((6, 4)), []
    for step in steps:
        if step.episode > 0 and rule != "sarsa":
            greedy.append(before[step.state, step.action] == before[step.state].max())
        before = step.table.copy()
    assert all(greedy)


# ------------------------------------------------------------------ Gymnasium's environments


@every_rule
@pytest.mark.parametrize(
    "name, shape", [("FrozenLake-v1", (16, 4)), ("CliffWalking-v1", (48, 4)), ("Taxi-v4", (500, 6))]
)
def test_gymnasium_by_id_by_instance_and_wrapped(rule, name, shape):
    options = dict(episodes=3, gamma=0.95, alpha=0.5, epsilon=0.2, seed=0, max_steps=30)
    by_id = CONTROL[rule](name, runs=2, **options)
    by_instance = CONTROL[rule](gymnasium.make(name), runs=2, **options)
    assert by_id.q_values.shape == (2, *shape) and (by_id.q_values == by_instance.q_values).all()
    wrapped = CONTROL[rule](Shy(gymnasium.make(name)), runs=2, **options)
    assert wrapped.q_values.shape == (2, *shape) and wrapped.lengths.max() <= 30


def test_q_learning_solves_the_lake_wrapped_or_not():
    def reward(r):
        return 3 * r

    options = dict(episodes=400, gamma=0.95, alpha=harmonic(1, 20), epsilon=0.5, seed=1)
    plain = q_learning(gymnasium.make("FrozenLake-v1", is_slippery=False), runs=20, **options)
    tripled = q_learning(
        gymnasium.wrappers.TransformReward(gymnasium.make("FrozenLake-v1", is_slippery=False), reward), **options
    )
    exact = value_iteration(MDP.from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False), 0.95))
    assert plain.q_values.max(2)[:, 14] == pytest.approx(np.ones(20), abs=0.1)
    assert np.median(plain.q_values.max(2)[:, 0]) == pytest.approx(exact.values[0], abs=0.1)
    assert tripled.q_values.max() == pytest.approx(3.0, abs=0.3)


@pytest.mark.slow
@every_rule
def test_taxi_is_learned(rule):
    result = CONTROL[rule](
        "Taxi-v4", episodes=1500, gamma=0.99, alpha=0.5, epsilon=linear_decay(0.3, 0.0, 1000), seed=0, runs=16
    )
    assert result.returns[:, -200:].mean() > 6


# ------------------------------------------------------------------ fixed points


def a_split():
    """A goes to B or C with equal chances; B ends with reward 1, C with reward 0."""
    transitions = np.zeros((4, 1, 4))
    transitions[0, 0, [1, 2]] = 0.5
    transitions[1:, 0, 3] = 1
    return MDP(transitions, [[0.0], [1.0], [0.0], [0.0]], 1.0, [0, 0, 0, 1], [1, 0, 0, 0])


@pytest.mark.equation("eq-semi-gradient", "eq-residual-gradient")
def test_the_a_split_example():
    policy = [0, 0, 0, 0]
    for features in (np.eye(4), np.eye(4)[:, :3]):
        assert td_fixed_point(a_split(), policy, features)[:3] == pytest.approx([0.5, 1.0, 0.0])
        assert residual_gradient_fixed_point(a_split(), policy, features)[:3] == pytest.approx([0.5, 0.75, 0.25])
    assert td_fixed_point(a_split(), policy, np.eye(4))[:3] == pytest.approx(policy_evaluation(a_split(), policy)[:3])


@st.composite
def linear_problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, d = draw(st.integers(3, 6)), draw(st.integers(1, 3))
    mdp = MDP(
        rng.dirichlet(np.ones(n), size=(n, 2)),
        rng.normal(size=(n, 2, n)),
        0.9,
        np.arange(n) == 0,
        np.r_[0, rng.dirichlet(np.ones(n - 1))],
    )
    return mdp, rng.dirichlet(np.ones(2), size=n), rng.normal(size=(n, d))


def errors_of(mdp, policy, features, theta):
    """(weight, delta, features) of every transition, by plain loops; visits by summing powers."""
    features = np.where(mdp.terminal[:, None], 0, features)
    p = np.einsum("sa,sat->st", policy, mdp.transitions) * ~mdp.terminal[:, None]
    visits, now = np.zeros(mdp.n_states), mdp.start.copy()
    for _ in range(3000):
        visits += now
        now = now @ p
    for s in np.flatnonzero(~mdp.terminal):
        for a in range(mdp.n_actions):
            for t in range(mdp.n_states):
                delta = mdp.reward_table[s, a, t] + 0.9 * features[t] @ theta - features[s] @ theta
                yield visits[s] * policy[s, a] * mdp.transitions[s, a, t], delta, features[s]


@pytest.mark.equation("eq-semi-gradient")
@given(linear_problems())
@settings(max_examples=15, deadline=None)
def test_at_the_td_fixed_point_the_expected_update_is_zero(problem):
    theta = td_fixed_point(*problem)
    update = sum(weight * delta * feature for weight, delta, feature in errors_of(*problem, theta))
    assert np.abs(update).max() < 1e-6 * (1 + np.abs(theta).max())


@pytest.mark.equation("eq-residual-gradient")
@given(linear_problems())
@settings(max_examples=15, deadline=None)
def test_the_residual_gradient_rests_where_the_mean_squared_error_is_least(problem):
    def loss(theta):
        return sum(weight * delta**2 for weight, delta, _ in errors_of(*problem, theta))

    theta = residual_gradient_fixed_point(*problem)
    for direction in np.eye(len(theta)):
        slope = (loss(theta + 1e-3 * direction) - loss(theta - 1e-3 * direction)) / 2e-3  # finite differences
        assert abs(slope) < 1e-6 * (1 + loss(theta))
        assert loss(theta + 0.1 * direction) > loss(theta)


def test_given_weights_are_used():
    features = np.array([[1.0], [1.0], [1.0], [0.0]])  # one number for all states
    one = td_fixed_point(a_split(), [0] * 4, features, weights=[0, 1, 0, 0])
    assert one == pytest.approx([1.0])
    assert td_fixed_point(a_split(), [0] * 4, features, weights=[0, 1, 3, 0]) == pytest.approx([0.25])


@pytest.mark.parametrize("function", [td_fixed_point, residual_gradient_fixed_point])
@pytest.mark.parametrize(
    "arguments, name",
    [
        ((a_split(), [0] * 4, np.eye(3)), "features"),
        ((a_split(), [0] * 4, np.ones(4)), "features"),
        ((a_split(), [0] * 4, np.full((4, 1), np.nan)), "features"),
        ((a_split(), [0] * 3, np.eye(4)), "policy"),
        ((a_split(), [0] * 4, np.eye(4), [1, 1, -1, 0]), "weights"),
        ((loop_mdp(), [0], [[1.0]]), "weights"),
    ],
)
def test_fixed_points_refuse_nonsense(function, arguments, name):
    with pytest.raises(ValueError, match=name):
        function(*arguments)


def test_a_policy_that_never_ends_needs_weights():
    mdp = MDP(np.array([[[1.0, 0.0], [0.0, 1.0]], [[0, 1.0], [0, 1.0]]]), np.ones((2, 2)), 0.5, [0, 1])
    with pytest.raises(ValueError, match="weights"):
        td_fixed_point(mdp, [0, 0], np.eye(2))
    assert td_fixed_point(mdp, [0, 0], np.eye(2), weights=[1, 0]) == pytest.approx([2.0, 0.0])


# ------------------------------------------------------------------ the body alone, as the library calls it

MODEL, WHOLE, ACTIONS = Maze(slip=0.2).to_mdp(0.9), np.arange(24).reshape(6, 4) % 5, np.array([3, 3, 1, 0, 0, 0])
ENDS = np.array([1, 0]), np.array([np.nan, 4.0])


@pytest.mark.parametrize(
    "function, arguments",
    [
        *((f, (MODEL, np.arange(6))) for f in (dp.q_from_values, dp.bellman_optimality_backup)),
        *((f, (MODEL, ACTIONS)) for f in (policy_evaluation, action_values, dp.advantages, dp.policy_improvement)),
        (dp.bellman_optimality_backup_q, (MODEL, WHOLE)),
        (dp.bellman_expectation_backup, (MODEL, ACTIONS, np.arange(6))),
        (dp.bellman_expectation_backup_q, (MODEL, ACTIONS, WHOLE)),
        (dp.truncated_policy_evaluation, (MODEL, ACTIONS, np.arange(6), 3)),
        (dp.values_from_q, (ACTIONS, WHOLE)),
        (dp.greedy_policy, (WHOLE,)),
        (dp.span_bound, (np.arange(6), 0.9)),
        (dp.contraction_ratio, (MODEL, np.arange(6), WHOLE[:, 0])),
        (epsilon_greedy_probabilities, (WHOLE, 0.25)),
        (td_target, (np.array([1, 2]), ENDS[1], ENDS[0], 0.5)),
        (td_error, (np.array([1, 2]), np.array([3, 4]), ENDS[1], ENDS[0], 0.5)),
        (running_mean, (np.array([1, 2]), np.array([2, 3]), np.array([4, 7]))),
        (td_fixed_point, (MODEL, ACTIONS, np.arange(12).reshape(6, 2), np.ones(6, dtype=int))),
        (residual_gradient_fixed_point, (MODEL, ACTIONS, np.arange(12).reshape(6, 2), np.ones(6, dtype=int))),
    ],
)
def test_the_door_changes_no_result(function, arguments):
    """Whole numbers, flags as 0 and 1, NaN behind an end: inside the library nothing converts or masks them."""
    np.testing.assert_array_equal(function.__unchecked__(*arguments), function(*arguments))


# ------------------------------------------------------------------ bad input


@every_rule
@pytest.mark.parametrize(
    "changes, error, name",
    [
        (dict(gamma=1.2), ValueError, "gamma"),
        (dict(alpha=np.nan), ValueError, "alpha"),
        (dict(alpha=-1), ValueError, "alpha"),
        (dict(alpha="small"), TypeError, "alpha"),
        (dict(epsilon=1.1), ValueError, "epsilon"),
        (dict(epsilon=lambda n: -1.0), ValueError, r"epsilon\(1\)"),
        (dict(alpha=lambda n: 1.5), ValueError, r"alpha\(1\)"),
        (dict(episodes=0), ValueError, "episodes"),
        (dict(runs=0), ValueError, "runs"),
        (dict(runs=1.0), TypeError, "runs"),
        (dict(seed=-3), ValueError, "seed"),
        (dict(seed=None), TypeError, "seed"),
        (dict(max_steps=0), ValueError, "max_steps"),
        (dict(history="all"), TypeError, "history"),
        (dict(env_or_mdp=None), TypeError, "env_or_mdp"),
        (dict(env_or_mdp="CartPole-v1"), ValueError, "observation"),
    ],
)
def test_control_refuses_nonsense(rule, changes, error, name):
    good = dict(env_or_mdp=Maze(), episodes=2, gamma=0.9, alpha=0.1, epsilon=0.1, seed=0)
    with pytest.raises(error, match=name):
        CONTROL[rule](**{**good, **changes})


@pytest.mark.parametrize(
    "changes, error, name",
    [
        (dict(n=0), ValueError, "^n "),
        (dict(n=1.5), TypeError, "^n "),
        (dict(alpha=2), ValueError, "alpha"),
        (dict(gamma=-1), ValueError, "gamma"),
        (dict(initial_values=[0, 1]), ValueError, "initial_values"),
        (dict(initial_values=[np.nan] * 6), ValueError, "initial_values"),
        (dict(policy=[0, 1]), ValueError, "policy"),
        (dict(policy=-UNIFORM), ValueError, "policy"),
        (dict(episodes=-1), ValueError, "episodes"),
        (dict(runs=-1), ValueError, "runs"),
        (dict(seed="x"), TypeError, "seed"),
    ],
)
def test_prediction_refuses_nonsense(changes, error, name):
    good = dict(env_or_mdp=Maze(), policy=UNIFORM, episodes=2, gamma=0.9, alpha=0.1, seed=0, n=2)
    with pytest.raises(error, match=name):
        n_step_td_prediction(**{**good, **changes})
