"""Tests of the PPO objectives and of their training loop."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib.ppo import (
    clip_gradient,
    clip_objective,
    explained_variance,
    kl_penalty_objective,
    ppo_objective,
    probability_ratio,
    update_kl_coefficient,
    value_loss,
)

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text("utf-8"))

log_probs = st.floats(-5.0, 0.0)
advantages = st.floats(-3.0, 3.0)


# ----------------------------------------------------------------------------------------- ratio and clip


@pytest.mark.equation("eq-ratio")
def test_ratio_is_the_quotient_of_the_probabilities():
    new, old = np.array([0.5, 0.25, 0.9]), np.array([0.25, 0.5, 0.9])
    np.testing.assert_allclose(probability_ratio(np.log(new), np.log(old)), [2.0, 0.5, 1.0], rtol=1e-14)


@pytest.mark.equation("eq-ratio")
def test_mean_ratio_under_the_old_policy_is_one():
    generator = np.random.default_rng(0)
    old, new = generator.dirichlet(np.ones(5), 2)
    assert old @ probability_ratio(np.log(new), np.log(old)) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.equation("eq-clip-objective")
def test_clip_objective_has_the_reference_values():
    reference = REFERENCE["ppo_clip"]
    for row in reference["grid"]:
        value = clip_objective(math.log(row["r"]), 0.0, row["A"], reference["eps"])
        assert value == pytest.approx(row["L"], abs=1e-12)


@pytest.mark.equation("eq-clip-objective")
@settings(max_examples=100, deadline=None)
@given(log_probs, log_probs, advantages, st.floats(0.05, 0.5))
def test_clip_objective_is_its_definition_by_cases_and_a_lower_bound(new, old, advantage, epsilon):
    ratio = math.exp(new - old)
    if advantage >= 0:
        expected = min(ratio, 1 + epsilon) * advantage
    else:
        expected = max(ratio, 1 - epsilon) * advantage
    value = clip_objective(new, old, advantage, epsilon)
    assert value == pytest.approx(expected, abs=1e-12)
    assert value <= ratio * advantage + 1e-12


@pytest.mark.equation("eq-clip-gradient")
def test_clip_gradient_has_the_reference_values_and_sides():
    reference = REFERENCE["ppo_clip"]
    for row in reference["grid"]:
        gradient = clip_gradient(row["r"], row["A"], reference["eps"])
        if row["dL_dr"] is not None:
            assert gradient == row["dL_dr"], row
        else:
            assert gradient in row["one_sided"], row


@pytest.mark.equation("eq-clip-gradient")
@pytest.mark.parametrize(
    "ratio, advantage, alive",
    [(1.5, 1.0, False), (0.5, -1.0, False), (0.5, 1.0, True), (1.5, -1.0, True), (1.1, 1.0, True), (0.9, -1.0, True)],
)
def test_four_cases_outside_the_range_by_autograd(ratio, advantage, alive):
    log_prob = torch.tensor(math.log(ratio), dtype=torch.float64, requires_grad=True)
    clip_objective(log_prob, torch.zeros((), dtype=torch.float64), advantage, 0.2).backward()
    # d objective / d log pi = (d objective / d rho) rho
    assert log_prob.grad.item() == pytest.approx(clip_gradient(ratio, advantage, 0.2) * ratio, abs=1e-12)
    assert (log_prob.grad.item() != 0) == alive


@pytest.mark.equation("eq-clip-gradient")
@settings(max_examples=60, deadline=None)
@given(st.floats(0.2, 3.0), advantages)
def test_clip_gradient_is_the_finite_difference(ratio, advantage):
    epsilon, step = 0.2, 1e-6
    if min(abs(ratio - 0.8), abs(ratio - 1.2)) < 1e-4:
        return
    up, down = (clip_objective(math.log(ratio + s), 0.0, advantage, epsilon) for s in (step, -step))
    assert clip_gradient(ratio, advantage, epsilon) == pytest.approx((up - down) / (2 * step), abs=1e-6)


def test_clipping_does_not_bound_the_ratio():
    """One state, two actions that share a parameter: steps on the clipped objective leave the range."""
    features = torch.tensor([1.0, 0.2], dtype=torch.float64)  # logits of action 1 in two states: theta * feature
    advantage = torch.tensor([1.0, 3.0], dtype=torch.float64)
    theta = torch.zeros((), dtype=torch.float64, requires_grad=True)
    old = torch.nn.functional.logsigmoid(0.0 * features)
    for _ in range(200):
        objective = clip_objective(torch.nn.functional.logsigmoid(theta * features), old, advantage, 0.2).mean()
        (gradient,) = torch.autograd.grad(objective, theta)
        theta = (theta + 0.5 * gradient).detach().requires_grad_()
    ratio = probability_ratio(torch.nn.functional.logsigmoid(theta * features), old).tolist()
    assert ratio[0] > 1.5 and ratio[1] == pytest.approx(1.2, abs=0.05)


def test_the_divergence_can_be_large_where_the_sampled_ratio_is_one():
    old, new = np.array([0.1, 0.89, 0.01]), np.array([0.1, 0.05, 0.85])
    assert probability_ratio(np.log(new[0]), np.log(old[0])) == 1.0
    assert clip_objective(np.log(new[0]), np.log(old[0]), 2.0, 0.2) == 2.0
    assert (old * np.log(old / new)).sum() > 2.4


# ------------------------------------------------------------------------------------------------ penalty


@pytest.mark.equation("eq-kl-penalty")
def test_penalty_gradient_of_a_softmax_is_the_exact_one():
    """With all actions weighted by pi_old, the penalized objective is sum(pi A) - beta KL(pi_old || pi)."""
    generator = np.random.default_rng(1)
    logits = torch.tensor(generator.normal(size=4), requires_grad=True)
    old, advantage, beta = generator.dirichlet(np.ones(4)), generator.normal(size=4), 0.7
    log_prob, log_old = torch.log_softmax(logits, 0), torch.tensor(np.log(old))
    kl = (torch.tensor(old) * (log_old - log_prob)).sum().expand(4)
    objective = kl_penalty_objective(log_prob, log_old, torch.tensor(advantage), kl, beta)
    (torch.tensor(old) * objective).sum().backward()
    pi = np.exp(log_prob.detach().numpy())
    by_hand = pi * (advantage - pi @ advantage) - beta * (pi - old)
    np.testing.assert_allclose(logits.grad.numpy(), by_hand, atol=1e-12)


@pytest.mark.equation("eq-kl-penalty")
def test_penalty_costs_beta_per_nat():
    assert kl_penalty_objective(math.log(0.6), math.log(0.5), 2.0, 0.1, 3.0) == pytest.approx(2.4 - 0.3)


@pytest.mark.equation("eq-adaptive-beta")
@pytest.mark.parametrize("rule, letter", [("paper", "A"), ("doubled", "B")])
def test_coefficient_follows_the_reference(rule, letter):
    reference = REFERENCE["adaptive_beta"]
    for row in reference["single_update_from_1"]:
        assert update_kl_coefficient(1.0, row["d_over_target"], 1.0, rule) == row[letter], row
    chain = reference["chained"]
    beta = chain[letter][0]
    for kl, expected in zip(chain["d"], chain[letter][1:]):
        beta = update_kl_coefficient(beta, kl, chain["d_targ"], rule)
        assert beta == expected


@pytest.mark.equation("eq-adaptive-beta")
@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 10.0), st.sampled_from([("paper", 1.5), ("doubled", 2.0)]))
def test_on_a_threshold_the_coefficient_stays(target, rule):
    name, factor = rule
    for kl in (factor * target, target / factor, target):
        assert update_kl_coefficient(3.0, kl, target, name) == 3.0
    assert update_kl_coefficient(3.0, 1.001 * factor * target, target, name) == 6.0
    assert update_kl_coefficient(3.0, 0.999 * target / factor, target, name) == 1.5


# ---------------------------------------------------------------------- value loss, total, explained variance


@pytest.mark.equation("eq-value-loss")
def test_value_loss_has_the_error_as_its_gradient():
    values = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    targets = torch.tensor([0.0, 1.0, 0.5], requires_grad=True)
    loss = value_loss(values, targets)
    loss.backward()
    assert loss.item() == pytest.approx((1 + 9 + 0) / 6)
    np.testing.assert_allclose(values.grad, np.array([1.0, -3.0, 0.0]) / 3)
    assert targets.grad is None  # targets are constants


@pytest.mark.equation("eq-value-loss")
@settings(max_examples=80, deadline=None)
@given(advantages, advantages, advantages, st.floats(0.1, 1.0))
def test_clipped_value_loss_case_by_case(value, target, old, clip):
    near = min(max(value, old - clip), old + clip)
    expected = 0.5 * max((value - target) ** 2, (near - target) ** 2)
    assert value_loss([value], [target], [old], clip) == pytest.approx(expected, abs=1e-12)


def test_clipped_value_loss_stops_only_on_the_way_to_the_target():
    def gradient(value, target, old, clip):
        v = torch.tensor([value], requires_grad=True)
        value_loss(v, torch.tensor([target]), torch.tensor([old]), clip).backward()
        return v.grad.item()

    assert gradient(1.5, 3.0, 0.0, 1.0) == 0.0  # moved past the clip, toward the target
    assert gradient(0.5, 3.0, 0.0, 1.0) == -2.5  # within the clip
    assert gradient(-1.5, 3.0, 0.0, 1.0) == -4.5  # moved past it the wrong way


@pytest.mark.equation("eq-ppo-objective")
def test_objective_adds_up_with_the_right_signs():
    generator = np.random.default_rng(2)
    surrogate, errors, entropy = generator.normal(size=(3, 8))
    by_step = sum(s - 0.5 * v + 0.01 * h for s, v, h in zip(surrogate, errors, entropy)) / 8
    assert ppo_objective(surrogate, errors, entropy, 0.5, 0.01) == pytest.approx(by_step, abs=1e-14)
    of_means = ppo_objective(surrogate.mean(), errors.mean(), entropy.mean(), 0.5, 0.01)
    assert of_means == pytest.approx(by_step, abs=1e-14)
    assert ppo_objective(surrogate, errors.mean(), entropy, 0.5, 0.01) == pytest.approx(by_step, abs=1e-14)


@pytest.mark.equation("eq-explained-variance")
def test_explained_variance_is_the_squared_correlation_of_a_least_squares_fit():
    generator = np.random.default_rng(3)
    x = generator.normal(size=50)
    y = 2 * x + generator.normal(size=50)
    slope, intercept = np.polyfit(x, y, 1)
    fit = explained_variance(slope * x + intercept, y)
    assert fit == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2, abs=1e-12)
    assert explained_variance(slope * x, y) == pytest.approx(fit, abs=1e-12)  # a constant offset is not seen


def test_explained_variance_at_its_edges():
    assert explained_variance([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert explained_variance([0.0, 0.0], [1.0, 2.0]) == 0.0
    assert explained_variance([2.0, 1.0], [1.0, 2.0]) == -3.0
    assert explained_variance([1.0, 1.0], [3.0, 3.0]) == 1.0
    assert explained_variance([1.0, 2.0], [3.0, 3.0]) == 0.0


# ------------------------------------------------------------------------------------------------ the door


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: clip_objective([0.0, 0.0], [0.0], [1.0], 0.2), "log_prob_old has shape"),
        (lambda: clip_objective([0.0], [0.0], [[1.0]], 0.2), "advantage has shape"),
        (lambda: clip_objective([], [], [], 0.2), "log_prob is empty"),
        (lambda: clip_objective([math.nan], [0.0], [1.0], 0.2), "log_prob holds NaN"),
        (lambda: clip_objective([0.0], [0.0], [1.0], 0.0), "epsilon is 0.0"),
        (lambda: clip_objective([0.0], [0.0], [1.0], 1.0), "epsilon is 1.0"),
        (lambda: clip_objective([0.0], [0.0], [1.0], math.nan), "epsilon is nan"),
        (lambda: clip_gradient([0.0], [1.0], 0.2), "ratio holds numbers that are not above 0"),
        (lambda: kl_penalty_objective([0.0], [0.0], [1.0], [0.1], -1.0), "beta is -1.0"),
        (lambda: update_kl_coefficient(0.0, 0.1, 0.1), "beta is 0.0"),
        (lambda: update_kl_coefficient(1.0, math.inf, 0.1), "kl is inf"),
        (lambda: update_kl_coefficient(1.0, 0.1, 0.0), "target is 0.0"),
        (lambda: update_kl_coefficient(1.0, 0.1, 0.1, "other"), "rule is 'other'"),
        (lambda: value_loss([1.0], [1.0], clip=0.2), "values_old is None"),
        (lambda: value_loss([1.0], [1.0], [1.0]), "clip is None"),
        (lambda: value_loss([1.0], [1.0], [1.0], -0.2), "clip is -0.2"),
        (lambda: ppo_objective([1.0, 2.0], [1.0], [0.0, 0.0]), "value_loss has shape"),
        (lambda: ppo_objective([1.0], [1.0], [0.0], -0.5), "value_coefficient is -0.5"),
        (lambda: explained_variance([1.0, 2.0], [1.0]), "targets has shape"),
    ],
)
def test_wrong_values_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: clip_objective(["x"], [0.0], [1.0], 0.2), "log_prob has type"),
        (lambda: clip_objective([0.0], [0.0], [1.0], "wide"), "epsilon is 'wide'"),
        (lambda: clip_objective([0.0], [0.0], [1j], 0.2), "advantage has type"),
        (lambda: update_kl_coefficient(True, 0.1, 0.1), "beta is True"),
    ],
)
def test_wrong_types_are_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_numbers_arrays_and_tensors_give_their_own_kind():
    assert isinstance(clip_objective(0.0, 0.0, 1.0, 0.2), float)
    assert clip_objective(np.zeros(3), np.zeros(3), np.ones(3), 0.2).dtype == np.float64
    single = torch.zeros(3)
    assert clip_objective(single, single, single, 0.2).dtype == torch.float32
