"""Tests of ``rlbook_lib.gradient_estimators``: gradients against finite differences, autograd and enumeration."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib.dynamic_programming import (
    action_values,
    advantages,
    expected_return,
    expected_visits,
    policy_evaluation,
)
from rlbook_lib.gradient_estimators import (
    _gradient_samples,
    causality,
    discounted_state_distribution,
    expected_score,
    gaussian_score,
    gradient_estimate,
    gradient_variance,
    log_derivative_gradient,
    n_step_advantage,
    optimal_baseline,
    policy_gradient_exact,
    psi_weights,
    softmax_policy,
    softmax_score,
    td_advantage,
    trajectory_gradient,
)
from rlbook_lib.mdp import MDP, enumerate_trajectories
from rlbook_lib.networks import gaussian_log_prob
from rlbook_lib.returns import discounted_returns

HERE = Path(__file__).resolve().parent
REFERENCE = json.loads((HERE / "reference_values.json").read_text())
HORIZON, STATES, ACTIONS = 3, 7, 2
SETTINGS = settings(max_examples=40, deadline=None)


# ------------------------------------------------------------------ small processes


def layers(seed, gamma=0.8):
    """Three layers of two states; every step leads to the next layer or to the end: no state comes twice."""
    rng = np.random.default_rng(seed)
    transitions, rewards = np.zeros((STATES, ACTIONS, STATES)), 2 * rng.normal(size=(STATES, ACTIONS, STATES))
    for state, action in product(range(6), range(ACTIONS)):
        layer = state // 2
        after = [6] if layer == 2 else [2 * layer + 2, 2 * layer + 3, 6]
        transitions[state, action, after] = rng.dirichlet(np.ones(len(after)))
    transitions[6, :, 6] = 1.0
    return MDP(transitions, rewards, gamma, terminal=np.arange(STATES) == 6, start=[0.5, 0.5, 0, 0, 0, 0, 0])


def loops(seed, gamma=0.8):
    """Three states that go everywhere, forever."""
    rng = np.random.default_rng(seed)
    return MDP(rng.dirichlet(np.ones(3), size=(3, 2)), rng.normal(size=(3, 2)), gamma, start=rng.dirichlet(np.ones(3)))


def bandit(rewards):
    """One decision; action a pays rewards[a] for certain."""
    transitions = np.zeros((2, len(rewards), 2))
    transitions[..., 1] = 1.0
    return MDP(transitions, [rewards, np.zeros(len(rewards))], 1.0, terminal=[False, True], start=[1.0, 0.0])


def logits_of(seed, mdp):
    return np.random.default_rng(seed).normal(size=(mdp.n_states, mdp.n_actions))


def finite_differences(function, point, step=1e-5):
    slopes = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        ahead, behind = point.copy(), point.copy()
        ahead[index] += step
        behind[index] -= step
        slopes[index] = (function(ahead) - function(behind)) / (2 * step)
    return slopes


def gradient_by_differences(mdp, logits):
    return finite_differences(lambda x: expected_return(mdp, softmax_policy(x)), logits)


def by_states(mdp, logits, weights, table):
    """sum_s weights(s) sum_a pi(a|s) table(s, a) grad log pi(a|s): the theorem's form, written as loops."""
    policy, result = softmax_policy(logits), np.zeros_like(logits)
    for s, a, b in product(range(mdp.n_states), range(mdp.n_actions), range(mdp.n_actions)):
        result[s, b] += weights[s] * policy[s, a] * table[s, a] * ((a == b) - policy[s, b])
    return result


def visits_by_steps(mdp, policy, gamma, steps=400):
    """sum_t gamma^t P(s_t = s), step by step; an ended episode is nowhere."""
    total, here = np.zeros(mdp.n_states), mdp.start.copy()
    for t in range(steps):
        total += gamma**t * here
        here = here @ mdp.policy_transitions(policy).toarray()
    return total


KINDS = {
    "return": {},
    "reward_to_go": {},
    "td_error": {},
    "n_step": {"n": 2},
    "gae": {"lam": 0.7},
    "action_value": {},
    "advantage": {},
}
all_kinds = pytest.mark.parametrize("kind", KINDS)


# ------------------------------------------------------------------ scores


@pytest.mark.equation("eq-softmax-score")
def test_softmax_scores_are_gradients_of_log_probabilities():
    logits = np.random.default_rng(0).normal(size=(3, 4)) * 3
    for s, a in product(range(3), range(4)):
        row = torch.tensor(logits[s], requires_grad=True)
        torch.log_softmax(row, 0)[a].backward()
        assert np.allclose(softmax_score(logits)[s, a], row.grad, atol=1e-12)
        assert np.allclose(softmax_score(logits[s])[a], row.grad, atol=1e-12)


@pytest.mark.equation("eq-gaussian-score")
def test_gaussian_scores_are_gradients_of_the_log_density():
    rng = np.random.default_rng(1)
    mean, log_std, actions = (torch.tensor(rng.normal(size=(5, 2)), requires_grad=i < 2) for i in range(3))
    gaussian_log_prob(mean, log_std, actions).sum().backward()
    by_mean, by_log_std = gaussian_score(mean.detach(), log_std.detach(), actions)
    assert np.allclose(by_mean, mean.grad, atol=1e-12) and np.allclose(by_log_std, log_std.grad, atol=1e-12)


@pytest.mark.equation("eq-log-derivative")
def test_the_log_derivative_gives_the_gradient_of_an_expectation():
    rng = np.random.default_rng(2)
    logits, payoffs = rng.normal(size=4), rng.normal(size=4)
    expected = finite_differences(lambda x: softmax_policy(x[None])[0] @ payoffs, logits)
    assert np.allclose(log_derivative_gradient(logits, payoffs), expected, atol=1e-9)


@pytest.mark.equation("eq-log-derivative")
@pytest.mark.parametrize("case", REFERENCE["bandit_pg"])
def test_the_bandit_gradient_of_the_reference(case):
    assert np.allclose(log_derivative_gradient(case["theta"], case["r"]), case["grad"], atol=1e-10)
    for action, score in case["per_action_score"].items():
        assert np.allclose(softmax_score(case["theta"])[int(action)], score, atol=1e-10)


@pytest.mark.equation("eq-expected-score")
@given(st.integers(0, 10**6), st.floats(0.1, 8.0))
@SETTINGS
def test_scores_average_to_zero_under_their_own_policy_only(seed, scale):
    logits = np.random.default_rng(seed).normal(size=(3, 4)) * scale
    assert np.allclose(expected_score(logits), 0.0, atol=1e-12)
    other = np.einsum("sa,sab->sb", softmax_policy(-logits), softmax_score(logits))
    assert np.allclose(other, softmax_policy(-logits) - softmax_policy(logits))  # any other mean is not 0


# ------------------------------------------------------------------ the theorem


@pytest.mark.equation("eq-state-distribution")
@pytest.mark.parametrize("make", [layers, loops])
def test_the_state_distribution_is_the_discounted_sum_over_time(make):
    mdp = make(3)
    policy = softmax_policy(logits_of(0, mdp))
    steps = visits_by_steps(mdp, policy, mdp.gamma)
    d = discounted_state_distribution(mdp, policy)
    inside = ~mdp.terminal
    assert np.allclose(d[inside], (1 - mdp.gamma) * steps[inside], atol=1e-10)
    assert d.sum() == pytest.approx(1.0) and (d >= 0).all()


@pytest.mark.equation("eq-policy-gradient-theorem")
@pytest.mark.parametrize("make, gamma", [(layers, 0.8), (loops, 0.8), (loops, 0.99), (layers, 1.0), (layers, 0.0)])
def test_the_theorem_equals_finite_differences(make, gamma):
    mdp = make(0, gamma)
    logits = logits_of(1, mdp)
    assert np.allclose(policy_gradient_exact(mdp, logits), gradient_by_differences(mdp, logits), atol=1e-6)


@pytest.mark.equation("eq-policy-gradient-theorem")
def test_the_theorem_equals_autograd_through_the_linear_solve():
    mdp = loops(4)
    logits = torch.tensor(logits_of(5, mdp), requires_grad=True)
    policy = torch.softmax(logits, 1)
    transitions = torch.tensor(mdp.transitions)
    matrix = torch.eye(3) - mdp.gamma * torch.einsum("sa,sat->st", policy, transitions)
    values = torch.linalg.solve(matrix, (policy * torch.tensor(mdp.rewards)).sum(1))
    (torch.tensor(mdp.start) @ values).backward()
    assert np.allclose(policy_gradient_exact(mdp, logits.detach()), logits.grad, atol=1e-12)


@pytest.mark.equation("eq-policy-gradient-theorem")
def test_the_theorem_is_the_formula_with_its_factor():
    mdp = loops(6)
    logits = logits_of(7, mdp)
    policy = softmax_policy(logits)
    d = discounted_state_distribution(mdp, policy)
    expected = by_states(mdp, logits, d / (1 - mdp.gamma), action_values(mdp, policy))
    assert np.allclose(policy_gradient_exact(mdp, logits), expected, atol=1e-12)


def test_the_term_that_unrolls_is_not_to_be_dropped():
    """Weighting states by the start alone, as if grad Q were nothing, gives another vector."""
    mdp = loops(6)
    logits = logits_of(7, mdp)
    dropped = by_states(mdp, logits, mdp.start, action_values(mdp, softmax_policy(logits)))
    exact = policy_gradient_exact(mdp, logits)
    assert np.linalg.norm(dropped - exact) > 0.5 * np.linalg.norm(exact)


@pytest.mark.equation("eq-td-advantage")
@pytest.mark.parametrize("make", [layers, loops])
def test_the_mean_td_error_is_the_advantage_for_the_right_values_only(make):
    mdp = make(1)
    policy = softmax_policy(logits_of(2, mdp))
    values = policy_evaluation(mdp, policy)
    assert np.allclose(td_advantage(mdp, values), advantages(mdp, policy), atol=1e-10)
    off = np.where(mdp.terminal, 0.0, np.random.default_rng(3).normal(size=mdp.n_states))
    bias = mdp.gamma * np.einsum("sat,t->sa", dense(mdp), off) - off[:, None]
    bias[mdp.terminal] = 0.0
    assert np.allclose(td_advantage(mdp, values + off) - advantages(mdp, policy), bias, atol=1e-10)


def dense(mdp):
    transitions = mdp.transitions
    array = transitions if isinstance(transitions, np.ndarray) else transitions.toarray()
    return array.reshape(mdp.n_states, mdp.n_actions, mdp.n_states)


# ------------------------------------------------------------------ all trajectories, listed


@pytest.mark.equation("eq-policy-gradient-trajectory")
@all_kinds
@pytest.mark.parametrize("gamma", [0.8, 1.0])
def test_every_weight_is_unbiased_where_theory_says_so(kind, gamma):
    mdp = layers(0, gamma)
    logits = logits_of(1, mdp)
    result = trajectory_gradient(mdp, logits, HORIZON, kind, **KINDS[kind])
    assert np.allclose(result.mean, gradient_by_differences(mdp, logits), atol=1e-6)
    assert result.variance > 0


@pytest.mark.equation("eq-policy-gradient-trajectory")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "return"])
def test_without_the_time_discount_states_are_weighted_by_undiscounted_visits(kind):
    """What the usual heuristic computes: Q with gamma, states without. It is off by a known amount."""
    mdp = layers(0)
    logits = logits_of(1, mdp)
    policy = softmax_policy(logits)
    result = trajectory_gradient(mdp, logits, HORIZON, kind, discount_time=False, **KINDS[kind])
    expected = by_states(mdp, logits, visits_by_steps(mdp, policy, 1.0), action_values(mdp, policy))
    assert np.allclose(result.mean, expected, atol=1e-10)
    error = np.linalg.norm(result.mean - policy_gradient_exact(mdp, logits))
    assert error == pytest.approx(0.3608, abs=1e-4)


@pytest.mark.parametrize("kind", ["td_error", "n_step", "gae"])
def test_wrong_values_bias_the_weight_by_a_known_amount(kind):
    mdp = layers(2)
    logits = logits_of(3, mdp)
    policy, p = softmax_policy(logits), dense(mdp)
    values = np.where(mdp.terminal, 0.0, 3 * np.random.default_rng(4).normal(size=STATES))
    error = td_advantage(mdp, values)  # mean delta, (S, A)
    mean_error = (policy * error).sum(1)
    if kind == "td_error":
        table = error
    elif kind == "n_step":  # two errors: delta_t + gamma delta_{t+1}
        table = error + mdp.gamma * np.einsum("sat,t->sa", p, mean_error)
    else:  # X = mean_error + gamma lam P X
        follow = mdp.policy_transitions(policy).toarray()
        later = np.linalg.solve(np.eye(STATES) - 0.7 * mdp.gamma * follow, mean_error)
        table = error + 0.7 * mdp.gamma * np.einsum("sat,t->sa", p, later)
    result = trajectory_gradient(mdp, logits, HORIZON, kind, values=values, **KINDS[kind])
    expected = by_states(mdp, logits, visits_by_steps(mdp, policy, mdp.gamma), table)
    assert np.allclose(result.mean, expected, atol=1e-10)
    assert np.linalg.norm(result.mean - policy_gradient_exact(mdp, logits)) > 0.02


def test_lambda_one_and_long_n_steps_are_unbiased_for_any_values():
    mdp = layers(2)
    logits = logits_of(3, mdp)
    exact, values = policy_gradient_exact(mdp, logits), np.random.default_rng(4).normal(size=STATES)
    errors = [
        np.linalg.norm(trajectory_gradient(mdp, logits, HORIZON, "gae", values=values, lam=lam).mean - exact)
        for lam in (0.0, 0.5, 0.9, 1.0)
    ]
    assert sorted(errors, reverse=True) == errors and errors[-1] < 1e-12 < errors[-2]
    result = trajectory_gradient(mdp, logits, HORIZON, "n_step", values=values, n=3)
    assert np.allclose(result.mean, exact, atol=1e-12)


@pytest.mark.equation("eq-reward-to-go")
def test_an_action_cannot_change_an_earlier_reward():
    mdp = layers(5)
    logits = logits_of(6, mdp)
    products = causality(mdp, logits, HORIZON)
    for t, k in product(range(HORIZON), range(HORIZON)):
        assert np.allclose(products[t, k], 0.0, atol=1e-12) == (k < t)
    later = sum(mdp.gamma**k * products[t, k] for t in range(HORIZON) for k in range(t, HORIZON))
    assert np.allclose(later, gradient_by_differences(mdp, logits), atol=1e-6)


def test_a_trajectory_cut_at_the_horizon_gives_the_gradient_of_the_return_so_far():
    mdp = loops(8)
    logits = logits_of(9, mdp)

    def cut_return(x):
        return sum(
            t.probability * sum(mdp.gamma**k * r for k, r in enumerate(t.rewards))
            for t in enumerate_trajectories(mdp, softmax_policy(x), 3)
        )

    expected = finite_differences(cut_return, logits)
    for kind in ("return", "reward_to_go"):
        assert np.allclose(trajectory_gradient(mdp, logits, 3, kind).mean, expected, atol=1e-8)


# ------------------------------------------------------------------ baselines and variance


@pytest.mark.parametrize(
    "kind, baseline",
    [
        (kind, baseline)
        for kind in ("return", "reward_to_go", "action_value")
        for baseline in ("mean", "value", "optimal", 1.7, np.arange(7.0))
        if (kind, str(baseline)) != ("return", "optimal")
    ],
)  # that one is of the reward-to-go
def test_no_baseline_adds_bias(kind, baseline):
    mdp = layers(0)
    logits = logits_of(1, mdp)
    for timed in (True, False):
        plain = trajectory_gradient(mdp, logits, HORIZON, kind, discount_time=timed)
        based = trajectory_gradient(mdp, logits, HORIZON, kind, baseline=baseline, discount_time=timed)
        assert np.allclose(based.mean, plain.mean, atol=1e-12) and based.variance != plain.variance


def test_the_mean_and_the_value_as_baselines_are_these_numbers():
    mdp = layers(0)
    logits = logits_of(1, mdp)
    paths = enumerate_trajectories(mdp, softmax_policy(logits), HORIZON)
    total = sum(path.probability * discounted_returns(path.rewards, mdp.gamma).sum() for path in paths)
    mean = total / sum(path.probability * len(path.rewards) for path in paths)  # over steps, not over trajectories
    for word, number in (("mean", mean), ("value", policy_evaluation(mdp, softmax_policy(logits)))):
        one, other = (trajectory_gradient(mdp, logits, HORIZON, baseline=b).variance for b in (word, number))
        assert one == pytest.approx(other, abs=1e-12)


@pytest.mark.equation("eq-optimal-baseline")
@pytest.mark.parametrize("kind", ["reward_to_go", "action_value"])
def test_the_variance_is_flat_at_the_optimal_baseline_and_higher_elsewhere(kind):
    mdp = layers(0)
    logits = logits_of(1, mdp)
    policy = softmax_policy(logits)
    best = optimal_baseline((softmax_score(logits) ** 2).sum(2), action_values(mdp, policy), policy)

    def variance(b):
        return trajectory_gradient(mdp, logits, HORIZON, kind, baseline=b).variance

    least = trajectory_gradient(mdp, logits, HORIZON, kind, baseline="optimal").variance
    assert variance(best) == pytest.approx(least, abs=1e-12)
    assert np.allclose(finite_differences(variance, best), 0.0, atol=1e-6)
    for baseline in ("none", "mean", "value"):
        assert trajectory_gradient(mdp, logits, HORIZON, kind, baseline=baseline).variance > least + 0.01


@pytest.mark.equation("eq-optimal-baseline", "eq-gradient-variance")
@pytest.mark.parametrize("case", REFERENCE["bandit_pg"])
def test_the_bandit_of_the_reference(case):
    """In the third case V as a baseline raises the variance; b* removes it."""
    mdp, logits = bandit(case["r"]), np.array([case["theta"], [0.0, 0.0]])
    policy = softmax_policy(logits)[0]
    squares = (softmax_score(case["theta"]) ** 2).sum(1)
    assert optimal_baseline(squares, case["r"], policy) == pytest.approx(case["b_star"], abs=1e-10)
    for baseline, name in (("none", "b=0"), ("value", "b=V"), ("optimal", "b=b*")):
        result = trajectory_gradient(
            mdp, logits, 1, "return" if baseline != "optimal" else "reward_to_go", baseline=baseline
        )
        assert result.variance == pytest.approx(case["total_variance"][name], abs=1e-10)
        assert np.allclose(result.mean[0], case["grad"], atol=1e-10)
    assert policy @ case["r"] == pytest.approx(case["J"], abs=1e-10)


def test_optimal_baselines_of_samples_and_of_states_without_choice():
    rng = np.random.default_rng(0)
    squares, returns = rng.random(500), rng.normal(size=500)
    best = optimal_baseline(squares, returns)
    spread = finite_differences(lambda b: np.mean(squares * (returns - b[0]) ** 2), np.array([best]))
    assert isinstance(best, float) and np.allclose(spread, 0.0, atol=1e-8)
    assert optimal_baseline([0.0, 0.0], [3.0, 5.0], [0.25, 0.75]) == pytest.approx(4.5)


@pytest.mark.equation("eq-gradient-variance")
def test_total_variance_is_the_trace_of_the_covariance():
    gradients = np.random.default_rng(1).normal(size=(50, 3, 2)) * 3
    expected = np.trace(np.cov(gradients.reshape(50, -1).T, ddof=0))
    assert gradient_variance(gradients) == pytest.approx(expected)
    mdp = layers(0)
    samples, probabilities = _gradient_samples(
        mdp, logits_of(1, mdp), HORIZON, "reward_to_go", None, None, None, "none", True
    )
    covariance = np.cov(samples.reshape(len(samples), -1).T, aweights=probabilities, ddof=0)
    assert gradient_variance(samples, probabilities) == pytest.approx(np.trace(covariance))


# ------------------------------------------------------------------ the usual mistakes, by known amounts


def test_a_baseline_inside_the_sum_changes_the_rewards():
    """Subtracting b(s_i) from every later reward is the gradient for the rewards r - b: not the one asked for."""
    mdp = layers(0)
    logits, b = logits_of(1, mdp), 2 * np.arange(7.0)

    def inside(states, actions, rewards):
        returns = discounted_returns(rewards - b[states[:-1]], mdp.gamma)
        return mdp.gamma ** np.arange(len(rewards)) * returns

    def once(states, actions, rewards):
        return mdp.gamma ** np.arange(len(rewards)) * (discounted_returns(rewards, mdp.gamma) - b[states[:-1]])

    exact = policy_gradient_exact(mdp, logits)
    shifted = MDP(
        mdp.transitions,
        mdp.rewards - b[:, None] * ~mdp.terminal[:, None],
        mdp.gamma,
        terminal=mdp.terminal,
        start=mdp.start,
    )
    wrong = trajectory_gradient(mdp, logits, HORIZON, inside).mean
    assert np.allclose(wrong, gradient_by_differences(shifted, logits), atol=1e-6)
    assert np.allclose(trajectory_gradient(mdp, logits, HORIZON, once).mean, exact, atol=1e-12)
    assert np.linalg.norm(wrong - exact) == pytest.approx(0.3916, abs=1e-4)


def test_one_step_without_the_sum_over_time_is_the_first_term_only():
    mdp = layers(0)
    logits = logits_of(1, mdp)

    def first(states, actions, rewards):
        return discounted_returns(rewards, mdp.gamma) * (np.arange(len(rewards)) == 0)

    policy = softmax_policy(logits)
    result = trajectory_gradient(mdp, logits, HORIZON, first).mean
    assert np.allclose(result, by_states(mdp, logits, mdp.start, action_values(mdp, policy)), atol=1e-10)
    assert np.linalg.norm(result - policy_gradient_exact(mdp, logits)) > 0.1


# ------------------------------------------------------------------ samples


@pytest.mark.equation("eq-gradient-estimator")
def test_the_estimate_is_the_mean_over_trajectories():
    rng = np.random.default_rng(0)
    scores, psi = rng.normal(size=(4, 3, 2, 5)), rng.normal(size=(4, 3))
    expected = np.mean([sum(psi[t, i] * scores[t, i] for t in range(4)) for i in range(3)], axis=0)
    assert np.allclose(gradient_estimate(scores, psi), expected)


@pytest.mark.equation("eq-gradient-estimator")
def test_the_error_of_the_estimate_shrinks_with_the_square_root():
    mdp = layers(0)
    samples, probabilities = _gradient_samples(
        mdp, logits_of(1, mdp), HORIZON, "reward_to_go", None, None, None, "none", True
    )
    exact = np.einsum("k,ksa->sa", probabilities, samples)
    rng = np.random.default_rng(0)
    for size in (10, 1000):
        drawn = samples[rng.choice(len(samples), p=probabilities, size=(300, size))]  # (300, D, S, A)
        estimates = [gradient_estimate(group[None], np.ones((1, size))) for group in drawn]
        squared = np.mean([((estimate - exact) ** 2).sum() for estimate in estimates])
        assert squared == pytest.approx(gradient_variance(samples, probabilities) / size, rel=0.25)


@pytest.mark.equation("eq-n-step-advantage")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 9])
def test_n_step_advantages_reproduce_the_reference(n):
    rewards, values = (np.array(REFERENCE["gae"][name]) for name in ("rewards", "values"))
    no = np.zeros(5)
    expected = np.array(REFERENCE["n_step"]["truncation_bootstrap_0.7"][str(min(n, 5))]) - values
    result = n_step_advantage(rewards, values, np.append(values[1:], 0.7), no, no, 0.9, n)
    assert np.allclose(result, expected, atol=1e-10)
    if n == 3:  # the last value is worth gamma^n, not gamma
        total = rewards[0] + 0.9 * rewards[1] + 0.81 * rewards[2]
        assert result[0] == pytest.approx(total + 0.9**3 * values[3] - values[0])
        assert abs(result[0] - (total + 0.9 * values[3] - values[0])) > 0.1


@pytest.mark.equation("eq-psi")
@pytest.mark.parametrize(
    "kind, baseline",
    [
        ("return", "none"),
        ("return", "value"),
        ("reward_to_go", "none"),
        ("reward_to_go", "value"),
        ("td_error", "none"),
        ("n_step", "none"),
        ("gae", "none"),
    ],
)
def test_weights_of_samples_average_to_the_gradient(kind, baseline):
    mdp = layers(0)
    logits = logits_of(1, mdp)
    policy, scores, total = softmax_policy(logits), softmax_score(logits), np.zeros_like(logits)
    values = policy_evaluation(mdp, policy)
    for states, actions, rewards, probability in enumerate_trajectories(mdp, policy, HORIZON):
        ends, states = np.arange(len(actions)) == len(actions) - 1, np.array(states)
        psi = psi_weights(
            kind,
            np.array(rewards),
            ends,
            0 * ends,
            values=values[states[:-1]],
            gamma=mdp.gamma,
            next_values=values[states[1:]] if kind not in ("return", "reward_to_go") else None,
            baseline=baseline,
            discount_time=True,
            **KINDS[kind],
        )
        for t, action in enumerate(actions):
            total[states[t]] += probability * psi[t] * scores[states[t], action]
    assert np.allclose(total, gradient_by_differences(mdp, logits), atol=1e-6)


def buffer(steps=30, copies=2, seed=0, ends=0.2):
    rng = np.random.default_rng(seed)
    rewards, values, next_values = (rng.normal(size=(steps, copies)) for _ in range(3))
    terminated, truncated = (rng.random((steps, copies)) < ends for _ in range(2))
    return rewards, values, next_values, terminated, truncated


@pytest.mark.equation("eq-psi")
@pytest.mark.parametrize("kind", ["return", "reward_to_go"])
@pytest.mark.parametrize("timed", [True, False])
def test_weights_of_a_buffer_are_those_of_its_episodes(kind, timed):
    rewards, _, _, terminated, truncated = buffer()
    result = psi_weights(kind, rewards, terminated, truncated, gamma=0.9, discount_time=timed)
    for i in range(2):
        start = 0
        for t in range(30):
            if terminated[t, i] or truncated[t, i] or t == 29:
                returns = discounted_returns(rewards[start : t + 1, i], 0.9)
                expected = np.full(t + 1 - start, returns[0]) if kind == "return" else returns
                if timed and kind == "reward_to_go":
                    expected = expected * 0.9 ** np.arange(t + 1 - start)
                assert np.allclose(result[start : t + 1, i], expected, atol=1e-10)
                start = t + 1


def test_weights_bootstrap_at_truncations_if_they_are_given_values():
    """Reward 1 forever, gamma 0.9: worth 10 wherever the record stops. Cut off, the last step is worth 1."""
    ones, stopped = np.ones(5), np.arange(5) == 4
    with_values = psi_weights("reward_to_go", ones, 0 * stopped, stopped, next_values=10 * ones, gamma=0.9)
    assert np.allclose(with_values, 10.0)
    without = psi_weights("reward_to_go", ones, 0 * stopped, stopped, gamma=0.9)
    assert without[-1] == 1.0 and np.allclose(without, (1 - 0.9 ** np.arange(5, 0, -1)) / 0.1)
    ended = psi_weights("reward_to_go", ones, stopped, 0 * stopped, next_values=10 * ones, gamma=0.9)
    assert np.allclose(ended, without)


def test_the_mean_of_the_batch_as_a_baseline_shrinks_the_gradient_by_a_known_factor():
    """Each weight is in its own baseline: N one-step episodes give 1 - 1/N of the gradient on average."""
    theta, payoffs = np.array([0.3, -0.5, 0.1]), np.array([1.0, 0.0, 2.0])
    policy, scores = softmax_policy(theta[None])[0], softmax_score(theta)
    for copies in (2, 3):
        total = np.zeros(3)
        for actions in product(range(3), repeat=copies):
            psi = psi_weights(
                "reward_to_go",
                payoffs[list(actions)][None],
                np.ones((1, copies)),
                np.zeros((1, copies)),
                gamma=1.0,
                baseline="mean",
            )
            total += policy[list(actions)].prod() * gradient_estimate(scores[list(actions)][None], psi)
        exact = log_derivative_gradient(theta, payoffs)
        assert np.allclose(total, (1 - 1 / copies) * exact, atol=1e-12)


def test_sampled_baselines_and_the_mask():
    rewards, values, next_values, terminated, truncated = buffer(seed=3)
    mask = np.random.default_rng(5).random((30, 2)) < 0.5
    options = dict(gamma=0.9, mask=mask, discount_time=True)
    plain = psi_weights("reward_to_go", rewards, terminated, truncated, gamma=0.9)
    timed = psi_weights("reward_to_go", rewards, terminated, truncated, gamma=0.9, discount_time=True)
    assert not (psi_weights("reward_to_go", rewards, terminated, truncated, **options)[~mask]).any()
    factor = timed[mask] / plain[mask]
    mean = psi_weights("reward_to_go", rewards, terminated, truncated, baseline="mean", **options)
    assert np.allclose(mean[mask], factor * (plain[mask] - plain[mask].mean()))
    based = psi_weights("reward_to_go", rewards, terminated, truncated, baseline="value", values=values, **options)
    assert np.allclose(based[mask], factor * (plain[mask] - values[mask]))


@pytest.mark.parametrize(
    "kind, baseline",
    [
        *product(("return", "reward_to_go"), ("none", "mean", "value")),
        ("td_error", "none"),
        ("n_step", "none"),
        ("gae", "none"),
    ],
)
def test_tensors_give_the_same_weights_without_gradients(kind, baseline):
    rewards, values, next_values, terminated, truncated = buffer(seed=6)
    mask = np.random.default_rng(4).random((30, 2)) < 0.7
    arrays = dict(values=values, next_values=next_values, mask=mask)
    options = dict(gamma=0.9, baseline=baseline, discount_time=True, n=3, lam=0.9)
    tensors = {name: torch.tensor(array, requires_grad=array.dtype == float) for name, array in arrays.items()}
    expected = psi_weights(kind, rewards, terminated, truncated, **arrays, **options)
    result = psi_weights(
        kind,
        torch.tensor(rewards, requires_grad=True),
        torch.tensor(terminated),
        torch.tensor(truncated),
        **tensors,
        **options,
    )
    assert isinstance(result, torch.Tensor) and not result.requires_grad
    assert np.allclose(result, expected, atol=1e-10)
    column = {name: array[:, 0] for name, array in arrays.items()}
    one = psi_weights(kind, rewards[:, 0], terminated[:, 0], truncated[:, 0], **column, **options)
    assert one.shape == (30,)


# ------------------------------------------------------------------ bad input

MDP0 = layers(0)
LOGITS0 = logits_of(1, MDP0)
FLAT = np.zeros(3)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: softmax_policy(np.zeros(3)), r"logits has shape \(3,\); expected \(S, A\)"),
        (lambda: softmax_score(np.zeros((2, 2, 2))), "logits has shape"),
        (lambda: gaussian_score(np.zeros(3), 0.0, np.zeros(2)), r"actions has shape \(2,\); expected \(3,\)"),
        (lambda: discounted_state_distribution(layers(0, 1.0), np.zeros(7, int)), "mdp.gamma is 1"),
        (
            lambda: policy_gradient_exact(MDP0, np.zeros((7, 3))),
            r"logits has shape \(7, 3\); expected \(7, 2\), like mdp",
        ),
        (lambda: causality(MDP0, np.zeros((6, 2)), 2), "logits has shape"),
        (lambda: td_advantage(MDP0, np.zeros(3)), r"values has shape \(3,\); expected \(7,\), like mdp"),
        (lambda: trajectory_gradient(MDP0, LOGITS0, 3, "gae"), "lam is None"),
        (lambda: trajectory_gradient(MDP0, LOGITS0, 3, "n_step"), "n is None"),
        (
            lambda: trajectory_gradient(MDP0, LOGITS0, 3, baseline=[1.0, 2.0]),
            r"baseline has shape \(2,\); expected \(7,\)",
        ),
        (lambda: trajectory_gradient(MDP0, LOGITS0, 3, "td_error", baseline="value"), "expected 'none' for 'td_error'"),
        (lambda: trajectory_gradient(MDP0, LOGITS0, 3, "return", baseline="optimal"), "expected 'none' for 'return'"),
        (lambda: trajectory_gradient(MDP0, LOGITS0, 3, "td_error", values=np.zeros(3)), "values has shape"),
        (lambda: gradient_estimate(np.zeros((3, 2)), np.zeros((2, 3))), "psi has shape"),
        (lambda: optimal_baseline([-1.0, 1.0], [1.0, 2.0]), "squared_scores holds -1; expected"),
        (lambda: n_step_advantage(FLAT, np.zeros(2), FLAT, FLAT, FLAT, 0.9, 1), "values has shape"),
        (lambda: psi_weights("gae", FLAT, FLAT, FLAT, gamma=0.9, lam=0.9), "values is None"),
        (lambda: psi_weights("gae", FLAT, FLAT, FLAT, gamma=0.9, values=FLAT, next_values=FLAT), "lam is None"),
        (
            lambda: psi_weights(
                "gae", FLAT, FLAT, FLAT, gamma=0.9, values=FLAT, next_values=FLAT, lam=0.9, baseline="value"
            ),
            "expected 'none' for 'gae'",
        ),
        (lambda: psi_weights("return", FLAT, FLAT, FLAT, gamma=0.9, baseline="value"), "values is None"),
        (
            lambda: psi_weights("return", FLAT, FLAT, FLAT, gamma=0.9, mask=FLAT, baseline="mean"),
            "mask is 0 everywhere",
        ),
        (
            lambda: psi_weights("return", FLAT, FLAT, FLAT, gamma=0.9, baseline="value", values=FLAT * np.nan),
            "values holds NaN",
        ),
        (
            lambda: psi_weights(
                "td_error", FLAT, FLAT, FLAT, gamma=0.9, values=FLAT * [0, 0, np.nan], next_values=FLAT, mask=[1, 1, 0]
            ),
            "values holds NaN",
        ),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("make", [layers, loops])
def test_expected_visits_are_the_sum_over_time(make):
    """Without a discount too, where every episode ends; where one need not, there is no such number."""
    for gamma in (0.0, 0.9):
        mdp = make(0, gamma)
        policy = softmax_policy(logits_of(1, mdp))
        assert np.allclose(expected_visits(mdp, policy), visits_by_steps(mdp, policy, gamma), atol=1e-9)
    mdp = layers(0, 1.0)
    policy = softmax_policy(logits_of(1, mdp))
    assert np.allclose(expected_visits(mdp, policy), visits_by_steps(mdp, policy, 1.0), atol=1e-9)


def test_visits_without_an_end_are_refused():
    stay = MDP(
        np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]),
        np.zeros((2, 2)),
        1.0,
        terminal=[0, 1],
        start=[1.0, 0.0],
    )
    assert expected_visits(stay, [1, 0]).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="policy must end the episode"):
        expected_visits(stay, [0, 0])


def test_a_masked_value_may_be_anything():
    values, mask = np.array([1.0, 2.0, np.nan]), np.array([1, 1, 0])
    psi = psi_weights("reward_to_go", FLAT, FLAT, FLAT, gamma=0.9, baseline="value", values=values, mask=mask)
    assert psi.tolist() == [-1.0, -2.0, 0.0]
