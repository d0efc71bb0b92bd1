"""Tests of ``rlbook_lib.dynamic_programming``: backups, exact evaluation, solvers, error bounds."""

import inspect
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from rlbook_lib import dynamic_programming
from rlbook_lib.dynamic_programming import (
    absorption_probabilities,
    action_values,
    advantages,
    bellman_expectation_backup,
    bellman_expectation_backup_q,
    bellman_optimality_backup,
    bellman_optimality_backup_q,
    contraction_ratio,
    expected_episode_length,
    expected_return,
    expected_visits,
    greedy_policy,
    iterate_modified_policy_iteration,
    iterate_policy_iteration,
    iterate_value_iteration,
    modified_policy_iteration,
    policy_evaluation,
    policy_improvement,
    policy_iteration,
    policy_loss_bound,
    q_from_values,
    span_bound,
    truncated_policy_evaluation,
    value_error_bound,
    value_iteration,
    values_from_q,
)
from rlbook_lib.maze import ACTIONS, Maze
from rlbook_lib.mdp import MDP, enumerate_trajectories, sample_episode

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text())["maze"]["layouts"]
MAZES = {"L1": "L1_primary", "L2": "L2"}
CASES = [
    (layout, gamma)
    for layout, key in MAZES.items()
    for gamma in REFERENCE[key]["by_gamma"]
    if gamma != "uniform_absorption"
]
SOLVERS = [value_iteration, policy_iteration, modified_policy_iteration]
UNIFORM = np.full((6, 4), 0.25)


@pytest.fixture(autouse=True, scope="module")
def no_solver_goes_on_for_ever():
    """Far more sweeps than any process of this file needs: a solver that hangs fails."""

    def count(start):
        yield from range(start, 20_001)
        raise AssertionError("a solver goes on after 20,000 sweeps")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic_programming, "itertools", SimpleNamespace(count=count, pairwise=itertools.pairwise))
        yield


def cell(state):
    return f"({state // 3},{state % 3})"


def reference_values(layout, gamma, name):
    return np.array([REFERENCE[MAZES[layout]]["by_gamma"][gamma][name][cell(s)] for s in range(6)])


def reference_q(layout, gamma, name):
    """(6, 4); terminal states have no entry and count as 0."""
    table = REFERENCE[MAZES[layout]]["by_gamma"][gamma][name]
    return np.array([[table.get(cell(s), {}).get(a, 0.0) for a in ACTIONS] for s in range(6)])


# ------------------------------------------------------------------ a second way to compute things


def plain_tables(mdp):
    """Dense P (S, A, S) with empty terminal rows, and r (S, A)."""
    return mdp.continuation.toarray().reshape(mdp.n_states, mdp.n_actions, mdp.n_states), mdp.rewards


def plain_evaluation(mdp, actions):
    """V of a deterministic policy by a dense solve, or None where it has none."""
    transitions, rewards = plain_tables(mdp)
    states = np.arange(mdp.n_states)
    matrix = np.eye(mdp.n_states) - mdp.gamma * transitions[states, actions]
    if mdp.gamma == 1 and np.linalg.matrix_rank(matrix) < mdp.n_states:
        return None
    return np.linalg.solve(matrix, rewards[states, actions])


def best_of_all_policies(mdp):
    """V* by trying every deterministic policy."""
    open_states = np.flatnonzero(~mdp.terminal)
    best = np.full(mdp.n_states, -np.inf)
    best[mdp.terminal] = 0
    for choice in itertools.product(range(mdp.n_actions), repeat=len(open_states)):
        actions = np.zeros(mdp.n_states, dtype=int)
        actions[open_states] = choice
        values = plain_evaluation(mdp, actions)
        if values is not None:
            best = np.maximum(best, values)
    return best


def backup_by_loops(mdp, state, action, values):
    """r(s, a) + gamma sum P V, one term after the other; terminal states are worth 0."""
    transitions, rewards = plain_tables(mdp)
    total = rewards[state, action]
    for after in range(mdp.n_states):
        if not mdp.terminal[after]:
            total += mdp.gamma * transitions[state, action, after] * values[after]
    return total


def all_backups(mdp, values):
    return [[backup_by_loops(mdp, s, a, values) for a in range(mdp.n_actions)] for s in range(mdp.n_states)]


@st.composite
def random_mdps(draw, gammas=(0.0, 0.3, 0.9, 0.99), must_end=False, largest=4):
    """Small MDPs, dense or sparse in every sense, with none to many terminal states."""
    n_states, n_actions = draw(st.integers(1 + must_end, largest)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    evenness = draw(st.sampled_from([0.1, 1.0]))
    transitions = rng.dirichlet(np.full(n_states, evenness), size=(n_states, n_actions))
    transitions[transitions < 1e-3] = 0
    if must_end:  # every step may lead to the last state
        transitions = 0.9 * transitions + 0.1 * np.eye(n_states)[-1]
    transitions /= transitions.sum(2, keepdims=True)
    terminal = rng.random(n_states) < draw(st.sampled_from([0.0, 0.3]))
    terminal[-1] |= must_end
    scale = draw(st.sampled_from([1.0, 1000.0]))
    rewards = rng.normal(size=(n_states, n_actions)) * scale + draw(st.sampled_from([0.0, 5.0, -5.0]))
    if draw(st.booleans()):
        transitions = sp.csr_array(transitions.reshape(-1, n_states))
    return MDP(transitions, rewards, draw(st.sampled_from(gammas)), terminal)


def random_policy(mdp, seed, deterministic=False):
    rng = np.random.default_rng(seed)
    if deterministic:
        return rng.integers(mdp.n_actions, size=mdp.n_states)
    return rng.dirichlet(np.ones(mdp.n_actions), size=mdp.n_states)


SEEDS = st.integers(0, 100_000)
few = settings(max_examples=40, deadline=None)


# ------------------------------------------------------------------ backups and links


@pytest.mark.equation("eq-q-from-v")
@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_q_from_values_term_by_term(mdp, seed):
    values = np.random.default_rng(seed).normal(size=mdp.n_states)  # not zero at terminals: they count as 0
    expected = all_backups(mdp, values)
    np.testing.assert_allclose(q_from_values(mdp, values), expected, atol=1e-10)


@pytest.mark.equation("eq-v-from-q")
@few
@given(mdp=random_mdps(), seed=SEEDS, deterministic=st.booleans())
def test_values_from_q_links_the_two_exact_tables(mdp, seed, deterministic):
    policy = random_policy(mdp, seed, deterministic)
    q_values = action_values(mdp, policy)
    np.testing.assert_allclose(values_from_q(policy, q_values), policy_evaluation(mdp, policy), atol=1e-8)


@pytest.mark.equation("eq-v-from-q")
def test_values_from_q_by_hand():
    q_values = [[1.0, 3.0], [10.0, -10.0]]
    np.testing.assert_array_equal(values_from_q([[0.5, 0.5], [0.75, 0.25]], q_values), [2.0, 5.0])
    np.testing.assert_array_equal(values_from_q([1, 0], q_values), [3.0, 10.0])


@pytest.mark.equation("eq-bellman-v")
@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_expectation_backup_term_by_term_and_its_fixed_point(mdp, seed):
    policy, values = random_policy(mdp, seed), np.random.default_rng(seed).normal(size=mdp.n_states)
    expected = [
        sum(policy[s, a] * backup_by_loops(mdp, s, a, values) for a in range(mdp.n_actions))
        for s in range(mdp.n_states)
    ]
    np.testing.assert_allclose(bellman_expectation_backup(mdp, policy, values), expected, atol=1e-10)
    exact = policy_evaluation(mdp, policy)
    np.testing.assert_allclose(bellman_expectation_backup(mdp, policy, exact), exact, rtol=1e-9, atol=1e-8)


@pytest.mark.equation("eq-bellman-q")
@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_expectation_backup_of_q_term_by_term_and_its_fixed_point(mdp, seed):
    policy = random_policy(mdp, seed)
    q_values = np.random.default_rng(seed).normal(size=(mdp.n_states, mdp.n_actions))
    next_values = [sum(p * q for p, q in zip(*rows)) for rows in zip(policy, q_values)]
    expected = all_backups(mdp, next_values)
    np.testing.assert_allclose(bellman_expectation_backup_q(mdp, policy, q_values), expected, atol=1e-10)
    exact = action_values(mdp, policy)
    np.testing.assert_allclose(bellman_expectation_backup_q(mdp, policy, exact), exact, rtol=1e-9, atol=1e-8)


@pytest.mark.equation("eq-bellman-optimality-v")
@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_optimality_backup_term_by_term_and_its_fixed_point(mdp, seed):
    values = np.random.default_rng(seed).normal(size=mdp.n_states)
    expected = [max(row) for row in all_backups(mdp, values)]
    np.testing.assert_allclose(bellman_optimality_backup(mdp, values), expected, atol=1e-10)
    best = best_of_all_policies(mdp)
    np.testing.assert_allclose(bellman_optimality_backup(mdp, best), best, rtol=1e-9, atol=1e-8)


@pytest.mark.equation("eq-bellman-optimality-q")
@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_optimality_backup_of_q_term_by_term_and_its_fixed_point(mdp, seed):
    q_values = np.random.default_rng(seed).normal(size=(mdp.n_states, mdp.n_actions))
    expected = all_backups(mdp, [max(row) for row in q_values])
    np.testing.assert_allclose(bellman_optimality_backup_q(mdp, q_values), expected, atol=1e-10)
    best = policy_iteration(mdp).q_values
    np.testing.assert_allclose(bellman_optimality_backup_q(mdp, best), best, rtol=1e-9, atol=1e-8)


@pytest.mark.equation("eq-greedy")
def test_greedy_policy_takes_the_first_of_the_best():
    q_values = [[1.0, 2.0, 2.0], [0.0, 0.0, 0.0], [-3.0, -5.0, -1.0]]
    policy = greedy_policy(q_values)
    assert policy.tolist() == [1, 0, 2]
    for row, action in zip(q_values, policy):
        assert row[action] == max(row) and action == row.index(max(row))


# ------------------------------------------------------------------ exact evaluation


@pytest.mark.equation("eq-state-value")
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_state_value_is_the_average_return_over_all_trajectories(gamma):
    horizon = 9
    mdp = Maze("L1").to_mdp(gamma)
    for state in (0, 1, 2, 3):
        start = MDP(mdp.transitions, mdp.rewards, gamma, mdp.terminal, np.eye(6)[state])
        average = sum(
            probability * sum(gamma**t * r for t, r in enumerate(rewards))
            for _, _, rewards, probability in merged_trajectories(start, UNIFORM, horizon)
        )
        # what comes after the horizon is worth at most 10 gamma^horizon
        assert abs(policy_evaluation(mdp, UNIFORM)[state] - average) <= 10 * gamma**horizon


def merged_trajectories(mdp, policy, horizon):
    """``enumerate_trajectories`` of the process with one action, the policy's average: fewer of them."""
    chain = mdp.policy_transitions(policy).toarray() + np.diag(mdp.terminal.astype(float))
    average = MDP(chain[:, None, :], mdp.policy_rewards(policy)[:, None], mdp.gamma, mdp.terminal, mdp.start)
    return enumerate_trajectories(average, np.zeros(mdp.n_states, dtype=int), horizon)


@pytest.mark.equation("eq-state-value")
def test_state_value_against_sampled_returns():
    mdp = Maze("L1").to_mdp(0.9)
    returns = []
    for seed in range(1500):
        rewards = sample_episode(mdp, UNIFORM, seed=seed, start=2).rewards
        returns.append(sum(0.9**t * r for t, r in enumerate(rewards)))
    error = np.std(returns) / math.sqrt(len(returns))
    assert abs(policy_evaluation(mdp, UNIFORM)[2] - np.mean(returns)) < 4 * error


@pytest.mark.equation("eq-matrix-form")
@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_matrix_form_is_the_sum_of_the_discounted_powers(mdp, seed):
    policy = random_policy(mdp, seed)
    transitions, rewards = plain_tables(mdp)
    chain = np.einsum("sa,sat->st", policy, transitions)
    term = total = (policy * rewards).sum(1)
    while np.abs(term).max() > 1e-13 * (1 + np.abs(total).max()):  # V = r + gamma P r + gamma^2 P^2 r + ...
        term = mdp.gamma * chain @ term
        total = total + term
    np.testing.assert_allclose(policy_evaluation(mdp, policy), total, rtol=1e-8, atol=1e-8)


@pytest.mark.equation("eq-matrix-form")
@pytest.mark.parametrize("layout, gamma", CASES)
def test_uniform_policy_reference_values(layout, gamma):
    mdp = Maze(layout).to_mdp(float(gamma))
    np.testing.assert_allclose(
        policy_evaluation(mdp, UNIFORM), reference_values(layout, gamma, "V_uniform"), atol=1e-10
    )


@pytest.mark.equation("eq-action-value")
@pytest.mark.parametrize("layout, gamma", CASES)
def test_uniform_policy_reference_action_values(layout, gamma):
    mdp = Maze(layout).to_mdp(float(gamma))
    expected = reference_q(layout, gamma, "Q_uniform")
    np.testing.assert_allclose(action_values(mdp, UNIFORM), expected, atol=1e-10)


@pytest.mark.equation("eq-action-value")
@few
@given(mdp=random_mdps(), seed=SEEDS, state=st.integers(0, 3), action=st.integers(0, 2))
def test_action_value_is_the_value_of_a_process_with_one_more_state(mdp, seed, state, action):
    """Take the action in a new first state, then follow the policy: V of that state is Q(s, a)."""
    state, action = state % mdp.n_states, action % mdp.n_actions
    assume(not mdp.terminal[state])
    policy = random_policy(mdp, seed)
    S = mdp.n_states
    transitions, rewards = plain_tables(mdp)
    chain, pay = np.zeros((S + 1, S + 1)), np.zeros(S + 1)
    chain[:S, :S], pay[:S] = np.einsum("sa,sat->st", policy, transitions), (policy * rewards).sum(1)
    chain[S, :S], pay[S] = transitions[state, action], rewards[state, action]
    values = np.linalg.solve(np.eye(S + 1) - mdp.gamma * chain, pay)
    assert action_values(mdp, policy)[state, action] == pytest.approx(values[S], rel=1e-9, abs=1e-8)


@pytest.mark.equation("eq-advantage")
@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_advantage_is_the_slope_of_the_value_toward_an_action(mdp, seed):
    """Move pi(.|s) a little toward a: dV/d eps = occupancy of s times A(s, a), by finite differences."""
    policy, step = random_policy(mdp, seed), 1e-6
    table = advantages(mdp, policy)
    np.testing.assert_allclose((policy * table).sum(1), 0, atol=1e-7 * (1 + np.abs(table).max()))
    transitions, _ = plain_tables(mdp)
    visits = np.linalg.inv(np.eye(mdp.n_states) - mdp.gamma * np.einsum("sa,sat->st", policy, transitions))
    for state, action in itertools.product(np.flatnonzero(~mdp.terminal), range(mdp.n_actions)):
        toward = policy.copy()
        toward[state] = (1 - step) * toward[state] + step * np.eye(mdp.n_actions)[action]
        slope = (policy_evaluation(mdp, toward) - policy_evaluation(mdp, policy))[state] / step
        assert slope == pytest.approx(
            visits[state, state] * table[state, action], rel=1e-2, abs=1e-4 * (1 + np.abs(table).max())
        )


@pytest.mark.equation("eq-objective")
def test_objective_is_the_average_over_starts_and_trajectories():
    start = np.array([0.25, 0, 0.5, 0.25, 0, 0])
    maze = Maze("L1").to_mdp(0.5)
    mdp = MDP(maze.transitions, maze.rewards, 0.5, maze.terminal, start)
    average = sum(
        probability * sum(0.5**t * r for t, r in enumerate(rewards))
        for _, _, rewards, probability in merged_trajectories(mdp, UNIFORM, 10)
    )
    assert abs(expected_return(mdp, UNIFORM) - average) <= 10 * 0.5**10
    assert expected_return(Maze("L1").to_mdp(0.9), UNIFORM) == pytest.approx(-3.93253168735)


@few
@given(mdp=random_mdps(), seed=SEEDS)
def test_both_forms_of_a_policy_are_the_same_policy(mdp, seed):
    actions = random_policy(mdp, seed, deterministic=True)
    rows = np.eye(mdp.n_actions)[actions]
    values = policy_evaluation(mdp, actions)
    np.testing.assert_allclose(values, policy_evaluation(mdp, rows), atol=1e-9)
    np.testing.assert_allclose(values, plain_evaluation(mdp, actions), rtol=1e-9, atol=1e-9)


def test_sparse_and_dense_evaluation_agree_on_a_large_maze():
    maze = Maze(("S" + "." * 19,) + ("." * 20,) * 18 + ("." * 19 + "G",), slip=0.2)  # 400 states: sparse
    mdp, policy = maze.to_mdp(0.95), np.random.default_rng(0).dirichlet(np.ones(4), size=400)
    chain = mdp.policy_transitions(policy).toarray()
    expected = np.linalg.solve(np.eye(400) - 0.95 * chain, mdp.policy_rewards(policy))
    np.testing.assert_allclose(policy_evaluation(mdp, policy), expected, atol=1e-10)


def test_without_a_discount_the_policy_must_end():
    mdp = Maze("L1").to_mdp(1.0)
    with pytest.raises(ValueError, match=r"policy must end .* \[0, 1, 3\]"):
        policy_evaluation(mdp, [0, 0, 1, 0, 0, 0])  # up for ever, except above the goal


# ------------------------------------------------------------------ policy improvement


@pytest.mark.equation("eq-policy-improvement")
@few
@given(mdp=random_mdps(), seed=SEEDS, deterministic=st.booleans())
def test_the_improved_policy_is_nowhere_worse(mdp, seed, deterministic):
    policy = random_policy(mdp, seed, deterministic)
    values, better = policy_evaluation(mdp, policy), policy_improvement(mdp, policy)
    gain = policy_evaluation(mdp, better) - values
    scale = 1 + np.abs(values).max()
    assert (gain >= -1e-8 * scale).all()
    q_values = action_values(mdp, policy)
    np.testing.assert_allclose(q_values[np.arange(mdp.n_states), better], q_values.max(1), atol=1e-9 * scale)
    if (q_values.max(1) > values + 1e-6 * scale).any():
        assert gain.max() > 1e-7


@pytest.mark.equation("eq-policy-improvement")
def test_improvement_keeps_an_action_that_is_as_good_as_any():
    mdp = Maze("L1").to_mdp(1.0)
    right_then_down = np.array([3, 3, 1, 0, 0, 0])
    np.testing.assert_array_equal(policy_improvement(mdp, right_then_down), right_then_down)
    # the first maximizer would bump into the upper wall for ever
    assert greedy_policy(action_values(mdp, right_then_down))[0] == 0


# ------------------------------------------------------------------ the solvers


@pytest.mark.equation("eq-bellman-optimality-v")
@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("layout, gamma", CASES)
def test_optimal_reference_values(solve, layout, gamma):
    mdp = Maze(layout).to_mdp(float(gamma))
    solution = solve(mdp)
    np.testing.assert_allclose(solution.values, reference_values(layout, gamma, "V_star"), atol=1e-9)
    np.testing.assert_allclose(solution.q_values, reference_q(layout, gamma, "Q_star"), atol=1e-9)
    best = REFERENCE[MAZES[layout]]["by_gamma"][gamma]["optimal_actions"]
    for state in np.flatnonzero(~mdp.terminal):
        q = solution.q_values[state]
        assert [ACTIONS[a] for a in np.flatnonzero(q >= q.max() - 1e-9)] == best[cell(state)]  # ties included
        assert ACTIONS[solution.policy[state]] in best[cell(state)]
    np.testing.assert_allclose(policy_evaluation(mdp, solution.policy), solution.values, atol=1e-9)


@pytest.mark.parametrize("solve", SOLVERS)
@few
@given(mdp=random_mdps())
def test_solvers_agree_with_trying_every_policy(solve, mdp):
    best, solution = best_of_all_policies(mdp), solve(mdp)
    scale = 1 + np.abs(best).max()
    error = np.abs(solution.values - best).max()
    assert error <= solution.error_bound + 1e-12 * scale / (1 - mdp.gamma)
    if solve is not policy_iteration:
        assert solution.error_bound <= 1e-8
    assert solution.iterations <= {value_iteration: 5000, policy_iteration: 10, modified_policy_iteration: 400}[solve]
    np.testing.assert_allclose(solution.q_values, q_from_values(mdp, best), atol=2e-8 * scale)
    np.testing.assert_array_equal(
        solution.policy, greedy_policy(solution.q_values) if solve is not policy_iteration else solution.policy
    )
    own_values = policy_evaluation(mdp, solution.policy)
    np.testing.assert_allclose(own_values, best, atol=1e-7 * scale / (1 - mdp.gamma))
    residual = bellman_optimality_backup(mdp, solution.values) - solution.values
    assert np.abs(residual).max() <= 2 * solution.error_bound + 1e-10 * scale
    assert (solution.values[mdp.terminal] == 0).all()


@pytest.mark.parametrize("solve", SOLVERS)
@few
@given(mdp=random_mdps(gammas=(1.0,), must_end=True))
def test_solvers_without_a_discount_where_every_policy_ends(solve, mdp):
    best, solution = best_of_all_policies(mdp), solve(mdp)
    scale = 1 + np.abs(best).max()
    assert np.abs(solution.values - best).max() <= solution.error_bound + 1e-10 * scale
    assert solution.error_bound <= 1e-7 * scale
    np.testing.assert_allclose(policy_evaluation(mdp, solution.policy), best, atol=1e-7 * scale)


@pytest.mark.equation("eq-value-error-bound", "eq-span-bound")
@few
@given(mdp=random_mdps(), seed=SEEDS, tolerance=st.sampled_from([10.0, 0.1, 1e-5]))
def test_the_bound_of_every_sweep_holds(mdp, seed, tolerance):
    best = best_of_all_policies(mdp)
    values = np.random.default_rng(seed).normal(size=mdp.n_states) * 3
    slack = 1e-12 * (1 + np.abs(best).max()) / (1 - mdp.gamma)
    for sweeps in (
        iterate_value_iteration(mdp, values=values, tolerance=tolerance),
        iterate_modified_policy_iteration(mdp, tolerance=tolerance),
        iterate_policy_iteration(mdp),
    ):
        for sweep in sweeps:
            assert np.abs(sweep.values - best).max() <= sweep.error_bound + slack
            assert sweep.policy.shape == (mdp.n_states,)
            assert sweep.q_values.shape == (mdp.n_states, mdp.n_actions)
    sweeps = list(iterate_modified_policy_iteration(mdp, tolerance=tolerance))
    assert sweeps[-1].error_bound <= tolerance


@pytest.mark.equation("eq-value-error-bound")
@few
@given(mdp=random_mdps(gammas=(0.3, 0.9, 0.99)), seed=SEEDS)
def test_contraction_bound_against_the_true_error(mdp, seed):
    values = np.random.default_rng(seed).normal(size=mdp.n_states) * ~mdp.terminal
    after = bellman_optimality_backup(mdp, values)
    bound = value_error_bound(np.abs(after - values).max(), mdp.gamma)
    best = best_of_all_policies(mdp)
    assert np.abs(best - after).max() <= bound + 1e-9 * (1 + np.abs(best).max())


@pytest.mark.equation("eq-value-error-bound")
def test_contraction_bound_is_reached_by_a_single_loop():
    # one state, reward 1: V_k = 1 + ... + gamma^(k-1), V* = 1 / (1 - gamma)
    before, after, gamma = 1 + 0.9, 1 + 0.9 + 0.81, 0.9
    assert value_error_bound(after - before, gamma) == pytest.approx(1 / (1 - gamma) - after)
    assert value_error_bound(1.0, 1.0) == math.inf


@pytest.mark.equation("eq-span-bound")
@few
@given(mdp=random_mdps(gammas=(0.3, 0.9, 0.99)), seed=SEEDS)
def test_span_bound_against_the_true_error(mdp, seed):
    values = np.random.default_rng(seed).normal(size=mdp.n_states) * ~mdp.terminal
    after = bellman_optimality_backup(mdp, values)
    shift, bound = span_bound(after - values, mdp.gamma)
    best = best_of_all_policies(mdp)
    middle = after + np.where(mdp.terminal, 0, shift)
    slack = 1e-9 * (1 + np.abs(best).max())
    assert np.abs(best - middle).max() <= bound + slack
    assert bound <= value_error_bound(np.abs(after - values).max(), mdp.gamma) + slack


@pytest.mark.equation("eq-span-bound")
def test_span_bound_is_exact_where_all_values_change_alike():
    gamma = 0.9
    mdp = MDP(np.full((3, 1, 3), 1 / 3), np.ones((3, 1)), gamma)  # V* = 10 everywhere
    shift, bound = span_bound(bellman_optimality_backup(mdp, np.zeros(3)), gamma)
    assert (1 + shift, bound) == (pytest.approx(10), pytest.approx(0, abs=1e-12))
    assert value_iteration(mdp).iterations == 1


def test_moving_a_terminal_state_would_break_the_answer():
    # one step pays 1 and may end: the middle of the interval must not move the end away from 0
    mdp = MDP([[[0.5, 0.5]], [[0, 1]]], [[1.0], [0.0]], 0.9, [False, True])
    for solve in SOLVERS:
        np.testing.assert_allclose(solve(mdp).values, [1 / (1 - 0.45), 0], atol=1e-8)


@pytest.mark.parametrize("solve", SOLVERS)
def test_rows_that_add_up_to_almost_one_are_solved_as_they_are(solve):
    off = 1 + 8e-9
    mdp = MDP(np.full((2, 1, 2), 0.5 * off), [[1.0], [3.0]], 0.999)
    exact = np.linalg.solve(np.eye(2) - 0.999 * np.full((2, 2), 0.5 * off), [1.0, 3.0])
    solution = solve(mdp)
    assert np.abs(solution.values - exact).max() <= solution.error_bound + 1e-9
    assert solution.error_bound <= 2e-8


@pytest.mark.parametrize("solve", [value_iteration, modified_policy_iteration])
def test_a_tolerance_below_rounding_ends_with_an_honest_bound(solve):
    mdp = MDP(np.full((3, 2, 3), 1 / 3), np.arange(6.0).reshape(3, 2), 0.999)
    solution = solve(mdp, tolerance=1e-18)
    assert 1e-18 < solution.error_bound < 1e-7
    assert np.abs(solution.values - policy_iteration(mdp).values).max() <= solution.error_bound + 1e-8


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="no longer numbers here")
@pytest.mark.parametrize("solve", [value_iteration, modified_policy_iteration])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_tolerance_is_kept_where_rounding_adds_up(solve, terminal):
    """Values near 10 000 from sums of 60 terms: in plain floats rounding alone could be off by 1e-6."""
    rng = np.random.default_rng(0)
    S = 60
    mdp = MDP(rng.dirichlet(np.ones(S), size=(S, 2)), 10 * rng.random((S, 2)), 0.999, np.arange(S) < terminal)
    solution = solve(mdp)
    assert solution.error_bound <= 1e-8
    assert solution.values.dtype == float and solution.q_values.dtype == float
    # the exact answer, by refining a solve with residuals in long numbers
    states = np.arange(S)
    chain, rewards = plain_tables(mdp)[0][states, solution.policy], mdp.rewards[states, solution.policy]
    matrix = np.eye(S) - 0.999 * chain
    exact_matrix = np.eye(S, dtype=np.longdouble) - np.longdouble(0.999) * chain
    exact = np.zeros(S, dtype=np.longdouble)
    for _ in range(5):
        exact += np.linalg.solve(matrix, (rewards - exact_matrix @ exact).astype(float))
    assert np.abs(solution.values - exact).max() <= solution.error_bound


@pytest.mark.parametrize("pay", [(1234.5, -876.5), (700.1, 10.3), (2000.7, 1.0), (1e6 / 3, 7.0)])
@pytest.mark.parametrize("iterate", [iterate_value_iteration, iterate_modified_policy_iteration])
def test_rounding_does_not_keep_sweeps_going(iterate, pay):
    """There and back for ever: changes alternate in sign, and in plain floats settle at a size that never fades."""
    mdp = MDP([[[0.0, 1.0]], [[1.0, 0.0]]], np.array(pay)[:, None], 0.99)
    sweeps = list(iterate(mdp))
    exact = (np.array(pay) + 0.99 * np.array(pay[::-1])) / (1 - 0.99**2)
    assert np.abs(sweeps[-1].values - exact).max() <= sweeps[-1].error_bound + 1e-15 * np.abs(exact).max() / 0.01
    assert sweeps[-1].error_bound <= 1e-8 + 1e-15 * np.abs(exact).max()
    assert len(sweeps) < (1000 if iterate is iterate_modified_policy_iteration else 5000)


@pytest.mark.parametrize("solve", SOLVERS)
def test_many_states_with_few_actions_against_plain_sweeps(solve):
    """2,500 states, where the best action is looked for by columns; the last action is a copy of the first."""
    rng, S, B = np.random.default_rng(5), 2500, 3
    chains = [
        sp.csr_array(
            (rng.dirichlet(np.ones(B), S).ravel(), rng.integers(S, size=S * B), np.arange(0, S * B + 1, B)), (S, S)
        )
        for _ in range(3)
    ]
    chains.append(chains[0])
    rewards = rng.normal(size=(S, 3))[:, [0, 1, 2, 0]]
    values = np.zeros(S)
    for _ in range(300):
        q_values = np.column_stack([rewards[:, a] + 0.9 * (chain @ values) for a, chain in enumerate(chains)])
        values = np.array([max(row) for row in q_values.tolist()])
    transitions = sp.csr_array(sp.vstack(chains))[np.arange(4 * S).reshape(4, S).T.ravel()]
    solution = solve(MDP(transitions, rewards, 0.9))
    np.testing.assert_allclose(solution.values, values, atol=1e-7)
    clear = np.diff(np.sort(q_values[:, :3], axis=1), axis=1)[:, -1] > 1e-6
    best = np.array([row.index(max(row)) for row in q_values.tolist()])
    assert clear.sum() > 0.99 * S and (solution.policy[clear] == best[clear]).all()
    assert greedy_policy(q_values).tolist() == best.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_large_sparse_models_agree_with_each_other(seed):
    rng = np.random.default_rng(seed)
    S, A, B = 500, 3, 4
    successors, chances = rng.integers(S, size=(S * A, B)), rng.dirichlet(np.ones(B), size=S * A)
    pointers = np.arange(0, S * A * B + 1, B)
    transitions = sp.csr_array((chances.ravel(), successors.ravel(), pointers), shape=(S * A, S))
    mdp = MDP(transitions, rng.random((S, A)), 0.99, rng.random(S) < 0.01 * seed)
    exact = policy_iteration(mdp)
    assert exact.error_bound < 1e-9
    for solve in (value_iteration, modified_policy_iteration):
        solution = solve(mdp, tolerance=1e-7)
        assert np.abs(solution.values - exact.values).max() <= solution.error_bound + exact.error_bound
        assert solution.error_bound <= 1e-7


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_modified_policy_iteration_on_a_maze_where_most_states_know_nothing_at_first(slip):
    rng = np.random.default_rng(1)
    cells = np.where(rng.random((30, 30)) < 0.3, "#", np.where(rng.random((30, 30)) < 0.02, "T", "."))
    cells[0], cells[:, 29], cells[0, 0], cells[29, 29] = ".", ".", "S", "G"
    mdp = Maze(tuple("".join(row) for row in cells), slip=slip).to_mdp(0.99)
    solution, exact = modified_policy_iteration(mdp, tolerance=1e-9), policy_iteration(mdp)
    assert np.abs(solution.values - exact.values).max() <= 1e-9 + exact.error_bound
    assert solution.iterations < value_iteration(mdp, tolerance=1e-9).iterations / 3


def test_pockets_without_an_exit_are_extrapolated():
    mdp = Maze(("S.#...", "..#...", ".G#..."), slip=0.1).to_mdp(0.99)
    costly = MDP(mdp.transitions, np.full((18, 4), -1.0), 0.99, mdp.terminal)
    solution = modified_policy_iteration(costly)
    assert solution.iterations < 30 and solution.error_bound <= 1e-8
    np.testing.assert_allclose(solution.values[[3, 4, 5]], -100, atol=1e-8)
    np.testing.assert_allclose(solution.values, policy_iteration(costly).values, atol=2e-8)


@few
@given(
    seed=SEEDS,
    gamma=st.sampled_from([0.0, 0.5, 0.99]),
    reward=st.sampled_from([0.0, 1.0, -1.0]),
    ends=st.integers(0, 2),
    prizes=st.integers(0, 2),
)
def test_rare_rewards(seed, gamma, reward, ends, prizes):
    """Most pairs pay the same: modified policy iteration takes its head start, whether or not a way exists."""
    rng, S, A = np.random.default_rng(seed), 12, 2
    transitions = np.eye(S)[rng.integers(S, size=(S, A))] * 0.7 + np.eye(S)[rng.integers(S, size=(S, A))] * 0.3
    rewards = np.full((S, A), reward)
    rewards[rng.integers(S, size=prizes), 0] = [7.0, -7.0][:prizes]
    mdp = MDP(transitions, rewards, gamma, np.arange(S) < ends)
    solution, exact = modified_policy_iteration(mdp), policy_iteration(mdp)
    assert np.abs(solution.values - exact.values).max() <= solution.error_bound + exact.error_bound
    assert solution.error_bound <= 1e-8


def test_sweeps_of_value_iteration_are_plain_backups_until_the_last():
    mdp = Maze("L1").to_mdp(0.9)
    values = np.zeros(6)
    sweeps = list(iterate_value_iteration(mdp))
    for sweep in sweeps[:-1]:
        np.testing.assert_allclose(sweep.q_values, q_from_values(mdp, values))
        np.testing.assert_allclose(sweep.values, bellman_optimality_backup(mdp, values))
        assert sweep.residual == pytest.approx(np.abs(sweep.values - values).max())
        values = sweep.values
    assert sweeps[-1].error_bound <= 1e-8
    assert value_iteration(mdp).iterations == len(sweeps)


def test_policy_iteration_stops_at_the_policy_it_evaluated():
    mdp = Maze("L1", slip=0.2).to_mdp(0.9)
    sweeps = list(iterate_policy_iteration(mdp))
    for sweep, following in zip(sweeps, sweeps[1:]):
        np.testing.assert_allclose(following.values, policy_evaluation(mdp, sweep.policy))
        assert (following.values >= sweep.values - 1e-12).all()
    np.testing.assert_allclose(sweeps[-1].values, policy_evaluation(mdp, sweeps[-1].policy))


def twins(seed, K=60):
    """A million steps at gamma = 1, every state twice: the second action goes over to the twins, and is as good."""
    rng, size = np.random.default_rng(seed), 2 * K + 1
    chain, cost = 0.999999 * rng.dirichlet(np.full(K, 0.3), K), rng.uniform(0.1, 1, (K, 1))
    both = rng.permutation(2 * K).reshape(2, K)
    transitions, rewards = np.zeros((size, 2, size)), np.zeros((size, 2))
    for own, twin in (both, both[::-1]):
        transitions[np.ix_(own, [0], own)] = transitions[np.ix_(own, [1], twin)] = chain[:, None]
        rewards[own] = -cost
    transitions[..., -1] = 1 - transitions.sum(2)
    return MDP(transitions, rewards, 1.0, np.arange(size) == 2 * K)


@pytest.mark.parametrize("seed", range(5))
def test_rounding_does_not_look_like_an_improvement(seed):
    mdp = twins(seed)
    sweeps = list(iterate_policy_iteration(mdp))
    assert len(sweeps) == 1 and not sweeps[-1].policy.any()


@pytest.mark.parametrize("seed", range(5))
def test_policy_iteration_ends_even_where_rounding_chooses(seed, monkeypatch):
    monkeypatch.setattr(dynamic_programming._Accuracy, "rounding", lambda self, values, reach=0.0: 0.0)
    improvements = dynamic_programming._improvements(twins(seed), np.zeros(121, dtype=int))
    assert len(list(itertools.islice(improvements, 60))) < 60


# ------------------------------------------------------------------ no discount


def test_ties_without_a_discount_do_not_walk_for_ever():
    mdp = Maze("L1").to_mdp(1.0)
    careless = greedy_policy(value_iteration(mdp).q_values)
    with pytest.raises(ValueError, match="end"):
        policy_evaluation(mdp, careless)
    for solve in SOLVERS:
        assert expected_episode_length(mdp, solve(mdp).policy)[0] == 3


@pytest.mark.parametrize("solve", SOLVERS)
@few
@given(seed=SEEDS)
def test_shortest_paths(solve, seed):
    """Every step costs something: V* is minus the cheapest way; walking for ever is no way out."""
    rng = np.random.default_rng(seed)
    S, A = 5, 3
    target = rng.integers(S, size=(S, A))
    target[np.arange(S - 1), 0] = np.arange(1, S)  # a way to the end
    cost = rng.integers(1, 9, size=(S, A)).astype(float)
    mdp = MDP(np.eye(S)[target], -cost, 1.0, np.arange(S) == S - 1)
    distance = np.append(np.full(S - 1, np.inf), 0)
    for _ in range(S):  # Bellman-Ford
        for s, a in itertools.product(range(S - 1), range(A)):
            distance[s] = min(distance[s], cost[s, a] + distance[target[s, a]])
    solution = solve(mdp)
    np.testing.assert_allclose(solution.values, -distance, atol=1e-8)
    np.testing.assert_allclose(policy_evaluation(mdp, solution.policy), -distance, atol=1e-8)


def paying_loops():
    """Processes in which some walk collects more and more."""
    yield "bump", MDP([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[0.5, 1.0], [0.0, 0.0]], 1.0, [False, True])
    two = np.zeros((3, 2, 3))
    two[0, 0, 1] = two[1, 0, 0] = two[0, 1, 2] = two[1, 1, 2] = two[2, :, 2] = 1
    yield "there and back", MDP(two, [[2.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], 1.0, [False, False, True])
    chance = two.copy()
    chance[0, 0] = [0.5, 0.5, 0]
    yield "by chance", MDP(chance, [[-1.0, 0.0], [3.0, 0.0], [0.0, 0.0]], 1.0, [False, False, True])


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("mdp", [pytest.param(mdp, id=name) for name, mdp in paying_loops()])
def test_a_loop_that_pays_is_refused(solve, mdp):
    with pytest.raises(ValueError, match="gamma = 1.*loop"):
        solve(mdp)
    solve(mdp.replace(gamma=0.9))


@pytest.mark.parametrize("solve", SOLVERS)
def test_a_loop_that_loses_as_much_as_it_pays_less_often_is_fine(solve):
    two = np.zeros((3, 2, 3))
    two[0, 0, 1] = two[1, 0, 0] = two[0, 1, 2] = two[1, 1, 2] = two[2, :, 2] = 1
    mdp = MDP(two, [[2.0, 0.0], [-3.0, -1.0], [0.0, 0.0]], 1.0, [False, False, True])
    np.testing.assert_allclose(solve(mdp).values, [1.0, -1.0, 0.0], atol=1e-7)  # 2, then -1 and out


@pytest.mark.parametrize("solve", SOLVERS)
def test_staying_away_from_a_trap_is_worth_zero(solve):
    mdp = Maze(("S.", ".T")).to_mdp(1.0)  # the only way to end is the trap
    np.testing.assert_allclose(solve(mdp).values, 0, atol=1e-9)
    slippery = Maze(("S..", "..T"), slip=0.2).to_mdp(1.0)
    np.testing.assert_allclose(solve(slippery).values, 0, atol=1e-6)


@pytest.mark.parametrize("solve", SOLVERS)
def test_a_gain_that_must_be_paid_back_is_no_gain(solve):
    """State 0 may rest; or take 5 and then lose 100. Sweeps from zero would always end just after the 5."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0, 0] = transitions[0, 1, 1] = transitions[1, :, 2] = transitions[2, :, 2] = 1
    mdp = MDP(transitions, [[0.0, 5.0], [-100.0, -100.0], [0.0, 0.0]], 1.0, [False, False, True])
    np.testing.assert_allclose(solve(mdp).values, [0, -100, 0], atol=1e-9)


# Every deterministic policy, one by one: its chain falls into sets that it cannot leave. Ends and sets without
# rewards are worth 0; a set that pays on average has no bound; any other set is no way to go on for ever.


def closed_sets(chain):
    """The sets of states that a chain never leaves, as flags (S,) each."""
    count, label = connected_components(chain > 0, directed=True, connection="strong")
    sets = [label == k for k in range(count)]
    return [inside for inside in sets if not (chain[inside][:, ~inside] > 0).any()]


def mean_reward(chain, rewards):
    """What a chain that never leaves its states collects per step in the long run."""
    balance = np.vstack([chain.T - np.eye(len(chain)), np.ones(len(chain))])
    return np.linalg.lstsq(balance, np.append(np.zeros(len(chain)), 1.0), rcond=None)[0] @ rewards


def total_rewards(mdp, actions):
    """Total reward of a policy, -inf where it has none; its best mean reward; whether a set breaks even."""
    states = np.arange(mdp.n_states)
    chain, rewards = plain_tables(mdp)[0][states, actions], mdp.rewards[states, actions]
    good, bad, best, even = mdp.terminal.copy(), np.zeros(mdp.n_states, dtype=bool), -np.inf, False
    for inside in closed_sets(chain + np.diag(mdp.terminal.astype(float))):
        if not mdp.terminal[inside].any():
            free = not rewards[inside].any()
            gain = 0.0 if free else mean_reward(chain[np.ix_(inside, inside)], rewards[inside])
            best, even = max(best, gain), even or not free and abs(gain) < 1e-9
            good, bad = good | inside & free, bad | inside & (not free)
    for _ in states:
        bad |= chain @ bad > 0
    values, inside = np.where(bad, -np.inf, 0.0), ~good & ~bad
    if inside.any():
        values[inside] = np.linalg.solve(np.eye(inside.sum()) - chain[np.ix_(inside, inside)], rewards[inside])
    return values, best, even


def best_total_rewards(mdp):
    found = [
        total_rewards(mdp, np.array(actions))
        for actions in itertools.product(range(mdp.n_actions), repeat=mdp.n_states)
    ]
    values, gains, even = zip(*found)
    return np.max(values, axis=0), max(gains), any(even)


def random_undiscounted(seed):
    """Coarse transitions and rewards, many of them zero: loops of every kind. None where no end is in reach."""
    rng = np.random.default_rng(seed)
    S = int(rng.integers(2, 6))
    A = int(rng.integers(1, 4 if S < 5 else 3))
    transitions = np.zeros((S, A, S))
    for state, action in itertools.product(range(S), range(A)):
        size = rng.integers(1, 3)
        transitions[state, action, rng.choice(S, size, replace=False)] = 1 / size
    rewards = rng.choice([0.0, 0, 0, 1, -1, -1, 2, -2, -3], size=(S, A)) * rng.choice([1.0, 1.0, 0.1, 1 / 3, 1000.0])
    terminal = rng.random(S) < 0.25
    terminal[-1] = True
    try:
        return MDP(transitions, rewards, 1.0, terminal)
    except ValueError:
        return None


@pytest.mark.parametrize("block", range(6))
def test_solvers_without_a_discount_agree_with_trying_every_policy(block):
    solved = refused = 0
    for seed in range(40 * block, 40 * (block + 1)):
        mdp = random_undiscounted(seed)
        if mdp is None:
            continue
        best, gain, even = best_total_rewards(mdp)
        for solve in SOLVERS:
            if gain > 1e-9:
                refused += 1
                with pytest.raises(ValueError, match="gamma = 1.*loop"):
                    solve(mdp)
                continue
            solved += 1
            solution, where = solve(mdp), f"{solve.__name__}, seed {seed}"
            scale = 1 + np.abs(best).max()
            assert np.abs(solution.values - best).max() <= min(solution.error_bound, 1e-8) + 1e-14 * scale, where
            assert np.abs(total_rewards(mdp, solution.policy)[0] - best).max() <= 1e-10 * scale, where
            np.testing.assert_allclose(solution.q_values, all_backups(mdp, best), atol=2e-8, err_msg=where)
            assert solution.error_bound <= 1e-8 or even and solution.error_bound == math.inf, where
    assert solved > 60 and refused > 3


def moves(*states):
    """An MDP at gamma = 1 from (next state, reward) pairs, one row of pairs for each state but the last, the end."""
    S, A = len(states) + 1, len(states[0])
    transitions, rewards = np.zeros((S, A, S)), np.zeros((S, A))
    transitions[-1, :, -1] = 1
    for (state, row), action in itertools.product(enumerate(states), range(A)):
        after, rewards[state, action] = row[action]
        transitions[state, action, after] = 1
    return MDP(transitions, rewards, 1.0, np.arange(S) == S - 1)


LOOPS = {
    "stay for ever, where going on pays": (moves([(0, 0), (2, -1)], [(1, 0), (0, 2)]), [0, 2, 0]),
    "an evaluation that falls": (moves([(1, 0), (2, -2), (0, 0)], [(0, -1), (0, -1), (0, -1)]), [0, -1, 0]),
    "rest through a state with another way": (
        moves([(1, 0), (1, 0), (1, 0)], [(2, 1), (0, 0), (3, -3)], [(0, -1), (0, -1), (0, -1)]),
        [0, 0, -1, 0],
    ),
    "free until the prize": (moves([(0, 0), (1, 0)], [(0, 0), (2, 5)]), [5, 5, 0]),
    "rest beside a price": (moves([(0, 0), (1, 5)], [(2, -100), (2, -100)]), [0, -100, 0]),
    "break even round and round": (moves([(1, 1), (2, -5)], [(0, -1), (2, 2)]), [3, 2, 0]),
}


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_without_a_discount(solve, name):
    mdp, best = LOOPS[name]
    solution = solve(mdp)
    np.testing.assert_allclose(solution.values, best, atol=1e-12)
    np.testing.assert_allclose(total_rewards(mdp, solution.policy)[0], best, atol=1e-12)
    _, _, breaks_even = best_total_rewards(mdp)
    assert solution.error_bound < 1e-12 if not breaks_even else solution.error_bound == math.inf


@pytest.mark.parametrize("iterate", [iterate_value_iteration, iterate_modified_policy_iteration])
@pytest.mark.parametrize("name", LOOPS)
def test_plain_sweeps_come_to_the_same_values(iterate, name):
    mdp, best = LOOPS[name]
    *_, last = iterate(mdp)
    np.testing.assert_allclose(last.values, best, atol=1e-7)


def test_the_bound_without_a_discount_knows_how_long_a_walk_can_be():
    """Each step costs 1 and ends with chance 1e-6: an error of rounding counts a million times."""
    mdp = MDP([[[1 - 1e-6, 1e-6], [1.0, 0.0]], [[0, 1], [0, 1]]], [[-1.0, -1.0], [0.0, 0.0]], 1.0, [False, True])
    solution = policy_iteration(mdp)
    assert 1e-8 < solution.error_bound < 1
    assert abs(solution.values[0] + 1e6) <= solution.error_bound


def test_without_a_discount_the_bound_is_finite_whether_or_not_all_walks_end():
    solution = value_iteration(Maze("L1").to_mdp(1.0))
    assert np.abs(solution.values - [10, 10, 10, 10, 0, 0]).max() <= solution.error_bound < 1e-12
    assert all(sweep.error_bound == math.inf for sweep in iterate_value_iteration(Maze("L1").to_mdp(1.0)))
    ending = MDP([[[0.5, 0.5], [0.9, 0.1]], [[0, 1], [0, 1]]], [[1.0, 0.1], [0.0, 0.0]], 1.0, [False, True])
    for solve in SOLVERS:
        solution = solve(ending)
        assert np.abs(solution.values - [2, 0]).max() <= solution.error_bound <= 1e-8


def test_sweeps_that_never_settle_are_stopped(monkeypatch):
    monkeypatch.setattr("rlbook_lib.dynamic_programming.UNDISCOUNTED_SWEEPS", 50)
    swap = np.zeros((3, 2, 3))
    swap[0, 0, 1] = swap[1, 0, 0] = swap[0, 1, 2] = swap[1, 1, 2] = swap[2, :, 2] = 1
    mdp = MDP(swap, [[0.0, -9.0], [0.0, -9.0], [0.0, 0.0]], 1.0, [False, False, True])
    with pytest.raises(RuntimeError, match="50 sweeps"):
        list(iterate_value_iteration(mdp, values=[5.0, -5.0, 0.0]))


@pytest.mark.parametrize("solve", SOLVERS)
def test_where_nothing_is_ever_paid_the_bound_is_zero(solve):
    solution = solve(moves([(0, 0), (1, 0)]))
    assert solution.error_bound == 0 and not solution.values.any() and solution.policy[0] == 1


def test_nothing_but_terminal_states():
    mdp = MDP(np.ones((1, 1, 1)), [[7.0]], 1.0, [True])
    for solve in SOLVERS:
        assert solve(mdp).values.tolist() == [0.0]


# ------------------------------------------------------------------ how an episode ends


@pytest.mark.equation("eq-absorption")
def test_absorption_of_the_uniform_policy_in_elevenths():
    mdp = Maze("L1").to_mdp(1.0)
    ends = absorption_probabilities(mdp, UNIFORM)  # columns: trap (4), goal (5)
    np.testing.assert_allclose(ends[[0, 1, 2, 3], 1], np.array([2, 3, 7, 1]) / 11, atol=1e-12)
    np.testing.assert_allclose(ends.sum(1), 1)
    np.testing.assert_array_equal(ends[4:], np.eye(2))
    given_values = (
        REFERENCE["L1_primary"]["by_gamma"].get("uniform_absorption") or REFERENCE["L1_primary"]["uniform_absorption"]
    )
    for state in range(4):
        assert ends[state, 1] == pytest.approx(given_values["P_goal"][cell(state)])


@pytest.mark.equation("eq-absorption")
@few
@given(mdp=random_mdps(gammas=(0.9,), must_end=True), seed=SEEDS)
def test_absorption_is_the_limit_of_many_steps(mdp, seed):
    policy = random_policy(mdp, seed)
    chain = mdp.policy_transitions(policy).toarray() + np.diag(mdp.terminal.astype(float))
    limit = np.linalg.matrix_power(chain, 4096)[:, mdp.terminal]
    np.testing.assert_allclose(absorption_probabilities(mdp, policy), limit, atol=1e-9)


def test_absorption_where_an_episode_may_never_end():
    mdp = Maze("L1").to_mdp(0.9)
    up_or_down = np.full((6, 4), 0.0)
    up_or_down[:, :2] = 0.5
    ends = absorption_probabilities(mdp, up_or_down)
    np.testing.assert_allclose(ends, [[0, 0], [1, 0], [0, 1], [0, 0], [1, 0], [0, 1]])
    assert expected_episode_length(mdp, up_or_down).tolist() == [math.inf, 2, 2, math.inf, 0, 0]


@pytest.mark.equation("eq-episode-length")
def test_length_of_the_uniform_policy():
    lengths = expected_episode_length(Maze("L1").to_mdp(1.0), UNIFORM)
    np.testing.assert_allclose(lengths[:4], np.array([84, 60, 52, 64]) / 11)
    assert lengths[4:].tolist() == [0, 0]


@pytest.mark.equation("eq-episode-length")
@few
@given(mdp=random_mdps(gammas=(0.9,), must_end=True), seed=SEEDS)
def test_length_is_the_sum_of_the_chances_to_be_still_under_way(mdp, seed):
    policy = random_policy(mdp, seed)
    chain = mdp.policy_transitions(policy).toarray()
    under_way, total = (~mdp.terminal).astype(float), np.zeros(mdp.n_states)
    while under_way.max() > 1e-14:
        total += under_way
        under_way = (chain @ under_way) * ~mdp.terminal
    np.testing.assert_allclose(expected_episode_length(mdp, policy), total, atol=1e-9)


@few
@given(mdp=random_mdps(gammas=(0.9, 1.0), must_end=True), seed=SEEDS, gamma=st.sampled_from([None, 0.5, 1.0]))
def test_visits_are_the_sum_of_the_chances_to_be_there(mdp, seed, gamma):
    policy = random_policy(mdp, seed)
    discount, chain = mdp.gamma if gamma is None else gamma, mdp.policy_transitions(policy).toarray()
    here, total = mdp.start, np.zeros(mdp.n_states)
    while here.max() > 1e-14:
        total, here = total + here, discount * here @ chain
    np.testing.assert_allclose(expected_visits(mdp, policy, gamma), total, atol=1e-9)
    if gamma is None:  # the other way to compute the objective
        objective = expected_visits(mdp, policy) @ mdp.policy_rewards(policy)
        assert objective == pytest.approx(expected_return(mdp, policy), rel=1e-9, abs=1e-6)


def test_visits_of_a_policy_that_may_never_end():
    with pytest.raises(ValueError, match="policy must end"):
        expected_visits(Maze("L1").to_mdp(0.9), np.zeros(6, dtype=int), gamma=1.0)


# ------------------------------------------------------------------ Gymnasium's own environments


def test_cliff_walking():
    mdp = MDP.from_gymnasium("CliffWalking-v1", 1.0)
    for solve in SOLVERS:
        solution = solve(mdp)
        assert solution.values[36] == pytest.approx(-13)
        assert expected_return(mdp, solution.policy) == pytest.approx(-13)


def test_frozen_lake():
    for gamma, start in ((0.99, 0.542025932), (1.0, 14 / 17)):
        mdp = MDP.from_gymnasium("FrozenLake-v1", gamma)
        for solve in SOLVERS:
            assert solve(mdp).values[0] == pytest.approx(start, abs=1e-6)


def test_taxi_in_the_real_environment():
    mdp = MDP.from_gymnasium("Taxi-v4", 0.99)
    solutions = [solve(mdp) for solve in SOLVERS]
    for solution in solutions[1:]:
        np.testing.assert_allclose(solution.values, solutions[0].values, atol=1e-7)
    env = gymnasium.make("Taxi-v4")
    for seed in range(5):
        first, _ = env.reset(seed=seed)
        state, total, discount, terminated = first, 0.0, 1.0, False
        while not terminated:
            state, reward, terminated, truncated, _ = env.step(int(solutions[0].policy[state]))
            total, discount = total + discount * reward, discount * 0.99
            assert not truncated
        assert total == pytest.approx(solutions[0].values[first])


# ------------------------------------------------------------------ bad input

NAN = float("nan")
GOOD = dict(mdp=Maze("L1").to_mdp(0.9), policy=UNIFORM, values=np.zeros(6), other=np.ones(6), q_values=UNIFORM)
GOOD |= dict(change=[1.0], residual=1.0, value_error=1.0, gamma=0.9, sweeps=1)
BAD = {
    "policy": [np.zeros(5, int), UNIFORM + 0.05, np.full(6, 4), np.full(6, 0.5), UNIFORM * NAN, np.full((4, 6), 0.25)],
    "values": [np.zeros(5), np.zeros((6, 1)), [0, 0, 0, 0, 0, NAN], [math.inf] * 6],
    "q_values": [np.zeros(6), UNIFORM * NAN, np.zeros((0, 4)), np.zeros((2, 0))],
    "tolerance": [0, -1e-8, NAN, math.inf],
    "gamma": [-0.1, 1.1, NAN],
    "change": [[], [NAN]],
    "residual": [-1.0],
    "value_error": [-1.0],
    "sweeps": [-1],
}
DOORS = [*SOLVERS, iterate_value_iteration, iterate_modified_policy_iteration]
DOORS += [q_from_values, values_from_q, bellman_expectation_backup, bellman_expectation_backup_q, greedy_policy]
DOORS += [bellman_optimality_backup, bellman_optimality_backup_q, policy_evaluation, action_values, advantages]
DOORS += [expected_return, policy_improvement, absorption_probabilities, expected_episode_length, expected_visits]
DOORS += [truncated_policy_evaluation, value_error_bound, span_bound, policy_loss_bound, contraction_ratio]


@pytest.mark.parametrize("function", DOORS)
def test_what_an_argument_may_not_be(function):
    names = inspect.signature(function).parameters
    arguments = {name: GOOD[name] for name in names if name in GOOD}
    for name in names:
        for value in BAD.get(name, []):
            with pytest.raises(ValueError, match=rf"\b{name}\b"):
                function(**{**arguments, name: value})
        if name == "tolerance":
            for value in (None, "1e-8", [1e-8]):
                with pytest.raises(TypeError, match="^tolerance is .*; expected a number, above 0"):
                    function(**{**arguments, name: value})
        if name == "mdp":
            for value in (None, Maze("L1"), "L1"):
                with pytest.raises(TypeError, match="^mdp is .*; expected an MDP"):
                    function(**{**arguments, name: value})


def test_the_span_of_rows_that_add_up_to_different_sums_by_hand():
    assert span_bound([-1.0, 2.0], 0.5, 0.75) == pytest.approx((1.5, 4.5))  # from -3 to 6
    assert span_bound([1.0, 2.0], 0.5, 0.75) == pytest.approx((3.5, 2.5))  # from 1 to 6
    assert span_bound([-2.0, -1.0], 0.5, 0.75) == pytest.approx((-3.5, 2.5))


def test_the_span_bounds_nothing_without_a_discount():
    for gammas in ((1.0,), (0.9, 1.0)):
        with pytest.raises(ValueError, match="gamma"):
            span_bound([1.0], *gammas)


# ------------------------------------------------------------------ contraction, truncated evaluation, policy loss


def _random_endless(seed, n_states=5, n_actions=3, gamma=0.9):
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(n_states), size=(n_states, n_actions))
    return MDP(transitions, rng.normal(size=(n_states, n_actions)), gamma)


@pytest.mark.equation("eq-contraction")
@pytest.mark.parametrize("seed", range(5))
def test_contraction_ratio_is_the_plain_loop_and_at_most_gamma(seed):
    mdp, rng = _random_endless(seed), np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 5))

    def backup(values):
        return [
            max(
                mdp.rewards[s, a] + 0.9 * sum(mdp.transitions[s, a, after] * values[after] for after in range(5))
                for a in range(3)
            )
            for s in range(5)
        ]

    closer = max(abs(x - y) for x, y in zip(backup(first), backup(second)))
    ratio = contraction_ratio(mdp, first, second)
    assert ratio == pytest.approx(closer / np.abs(first - second).max(), abs=1e-12)
    assert ratio <= 0.9 + 1e-12
    assert contraction_ratio(mdp, first, first + 3.0) == pytest.approx(0.9)  # a shift shrinks by exactly gamma


def test_contraction_ratio_refuses_equal_tables():
    mdp = Maze("L1").to_mdp(0.9)
    table = np.arange(6.0)
    other = np.where(mdp.terminal, 7.0, table)  # differs at the ends only
    with pytest.raises(ValueError, match="differ"):
        contraction_ratio(mdp, table, other)


@pytest.mark.equation("eq-modified-policy-iteration")
@pytest.mark.parametrize("sweeps", [0, 1, 2, 3])
def test_truncated_evaluation_is_the_mean_over_all_trajectories(sweeps):
    """m sweeps from W: the expected discounted reward of m steps, then W where the trajectory stands."""
    mdp, guess = Maze("L1", slip=0.2).to_mdp(0.9), np.array([1.0, -2.0, 3.0, 4.0, 9.0, 9.0])
    policy = np.full((6, 4), 0.25)
    expected = 0.0
    for states, _, rewards, probability in enumerate_trajectories(mdp, policy, horizon=sweeps):
        total = sum(0.9**t * reward for t, reward in enumerate(rewards))
        rest = 0.0 if mdp.terminal[states[-1]] else 0.9 ** len(rewards) * guess[states[-1]]
        expected += probability * (total + rest)
    assert truncated_policy_evaluation(mdp, policy, guess, sweeps)[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.equation("eq-modified-policy-iteration")
def test_modified_policy_iteration_lies_between_the_two_others():
    mdp = _random_endless(7)
    low = np.full(5, mdp.rewards.min() / 0.1)
    greedy = greedy_policy(q_from_values(mdp, low))
    once = truncated_policy_evaluation(mdp, greedy, low, sweeps=1)
    assert np.allclose(once, bellman_optimality_backup(mdp, low))  # m = 1: value iteration
    often = truncated_policy_evaluation(mdp, greedy, low, sweeps=400)
    assert np.allclose(often, policy_evaluation(mdp, greedy))  # m large: policy iteration


@pytest.mark.equation("eq-policy-loss")
@pytest.mark.parametrize("gamma, error", [(0.5, 1.0), (0.9, 0.3), (0.99, 2.0)])
def test_policy_loss_bound_is_reached(gamma, error):
    """Stay and pay 2 gamma e for ever, or leave for a state without rewards: the worst case, by hand."""
    stay, leave = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    mdp = MDP([[stay, leave], [leave, leave]], [[-2 * gamma * error, 0.0], [0.0, 0.0]], gamma)
    wrong_values = np.array([error, -error])  # V* is 0 in both states
    q_values = q_from_values(mdp, wrong_values)
    assert q_values[0, 0] == pytest.approx(q_values[0, 1])  # so "stay" is greedy too
    loss = -policy_evaluation(mdp, np.array([0, 0]))[0]
    assert loss == pytest.approx(policy_loss_bound(error, gamma))


@pytest.mark.equation("eq-policy-loss")
@pytest.mark.parametrize("seed", range(10))
def test_greedy_policies_lose_at_most_the_bound(seed):
    mdp, rng = _random_endless(seed), np.random.default_rng(seed)
    best = policy_iteration(mdp).values
    values = best + rng.uniform(-1, 1, size=5)
    policy = greedy_policy(q_from_values(mdp, values))
    loss = (best - policy_evaluation(mdp, policy)).max()
    assert loss <= policy_loss_bound(np.abs(values - best).max(), 0.9) + 1e-12


def test_policy_loss_bound_at_the_ends():
    assert policy_loss_bound(1.0, 0.0) == 0.0
    assert policy_loss_bound(1.0, 1.0) == np.inf
