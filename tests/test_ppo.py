"""Tests of the PPO objectives and of their training loop."""

import dataclasses
import json
import math
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib import ppo
from rlbook_lib.environments import TorchCartPole
from rlbook_lib.networks import CategoricalPolicy, GaussianPolicy, ValueNetwork
from rlbook_lib.ppo import (
    PPOBatch,
    Learner,
    PPOConfig,
    clip_gradient,
    clip_objective,
    diagnose,
    explained_variance,
    interpolate_objectives,
    interpolate_parameters,
    iterate_ppo,
    kl_penalty_objective,
    minibatches,
    ppo_loss,
    ppo_objective,
    ppo_update,
    prepare_batch,
    probability_ratio,
    train_ppo,
    update_kl_coefficient,
    value_loss,
)
from rlbook_lib.rollout import SeparatePolicyValue
from rlbook_lib.training import evaluate_policy
from tests.by_hand import PlainAdam, advantages_by_hand, assert_same_weights, log_pi, mlp, short_poles, weights_of

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text("utf-8"))

SMALL = PPOConfig(total_steps=384, copies=4, steps=16, epochs=2, minibatches=2, hidden=(8,))  # six quick updates

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


def test_the_range_may_reach_further_above_than_below():
    """Against the four cases written out: clipped where going on would gain nothing, and only there."""
    for ratio in (0.5, 0.85, 1.0, 1.25, 1.6):
        for advantage in (-2.0, 2.0):
            held = min(max(ratio, 0.8), 1.4)
            expected = min(ratio * advantage, held * advantage)
            assert clip_objective(np.log(ratio), 0.0, advantage, (0.2, 0.4)) == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"epsilon\[0\] is 1.2; expected a number, above 0 and below 1"):
        clip_objective(0.0, 0.0, 1.0, (1.2, 0.2))


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


@pytest.mark.parametrize("kl, target", [(0.0135, 0.009), (0.022, 0.033)])
def test_a_threshold_is_one_in_spite_of_rounding(kl, target):
    assert kl > 1.5 * target or kl < target / 1.5  # as floating-point numbers, though not as decimals
    assert update_kl_coefficient(1.0, kl, target) == 1.0


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
        (lambda: clip_gradient([0.0], [1.0], 0.2), "ratio holds 0; expected real numbers, above 0"),
        (lambda: value_loss([1.0], [1.0], clip=0.2), "values_old is None"),
        (lambda: value_loss([1.0], [1.0], [1.0]), "clip is None"),
        (lambda: ppo_objective([1.0, 2.0], [1.0], [0.0, 0.0]), "value_loss has shape"),
    ],
)
def test_wrong_values_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_numbers_arrays_and_tensors_give_their_own_kind():
    assert isinstance(clip_objective(0.0, 0.0, 1.0, 0.2), float)
    assert clip_objective(np.zeros(3), np.zeros(3), np.ones(3), 0.2).dtype == np.float64
    single = torch.zeros(3)
    assert clip_objective(single, single, single, 0.2).dtype == torch.float32


# --------------------------------------------------------------------------- from the old policy to the new


@pytest.mark.equation("eq-interpolation")
def test_parameters_between_two_policies():
    old, new = {"w": torch.tensor([0.0, 1.0])}, {"w": torch.tensor([2.0, -1.0])}
    for alpha, expected in ((0.0, [0.0, 1.0]), (0.25, [0.5, 0.5]), (1.0, [2.0, -1.0]), (1.5, [3.0, -2.0])):
        np.testing.assert_allclose(interpolate_parameters(old, new, alpha)["w"], expected, atol=1e-7)


@pytest.mark.equation("eq-interpolation")
def test_objectives_along_the_line_of_a_table_policy_are_the_hand_computed_ones():
    """Linear policies on one-hot states are tables of logits: everything can be written down in numpy."""
    generator = np.random.default_rng(4)
    old, new = (CategoricalPolicy(3, 2, hidden=(), seed=seed, output_gain=1.5) for seed in (0, 1))
    states, actions, advantage = (
        generator.integers(3, size=40),
        generator.integers(2, size=40),
        generator.normal(size=40),
    )
    alphas, epsilon = [0.0, 0.5, 1.0, 1.5], 0.2
    line = interpolate_objectives(old, new, np.eye(3, dtype=np.float32)[states], actions, advantage, alphas, epsilon)

    def table(policy):
        weight, bias = policy.network[0].weight, policy.network[0].bias
        return (weight.T + bias).detach().numpy().astype(float)  # (S, A)

    def softmax(z):
        return np.exp(z) / np.exp(z).sum(-1, keepdims=True)

    before = softmax(table(old))
    for k, alpha in enumerate(alphas):
        pi = softmax((1 - alpha) * table(old) + alpha * table(new))
        ratio = (pi / before)[states, actions]
        clipped = np.clip(ratio, 0.8, 1.2) * advantage
        assert line.kl[k] == pytest.approx((before * np.log(before / pi)).sum(-1)[states].mean(), abs=1e-6)
        assert line.surrogate[k] == pytest.approx((ratio * advantage).mean(), abs=1e-6)
        assert line.clipped[k] == pytest.approx(clipped.mean(), abs=1e-6)
        assert line.objective[k] == pytest.approx(np.minimum(ratio * advantage, clipped).mean(), abs=1e-6)
    assert line.kl[0] == pytest.approx(0, abs=1e-7) and (np.diff(line.kl) > 0).all()
    assert (line.objective <= line.surrogate + 1e-9).all() and (line.objective <= line.clipped + 1e-9).all()


def test_interpolation_leaves_both_policies_alone_and_works_for_gaussians():
    old, new = (GaussianPolicy(2, 1, hidden=(4,), seed=seed) for seed in (0, 1))
    before = [p.clone() for p in (*old.parameters(), *new.parameters())]
    x, a = np.ones((5, 2), np.float32), np.zeros((5, 1), np.float32)
    line = interpolate_objectives(old, new, x, a, np.ones(5), [0.0, 1.0], 0.2)
    assert line.surrogate[0] == pytest.approx(1.0) and line.kl[1] > 0
    assert all(torch.equal(p, q) for p, q in zip(before, (*old.parameters(), *new.parameters())))
    with pytest.raises(ValueError, match="same names and shapes"):
        interpolate_parameters(old.state_dict(), ValueNetwork(2, seed=0).state_dict(), 0.5)
    with pytest.raises(ValueError, match=r"actions has shape \(4, 1\); expected \(5, k\), like observations"):
        interpolate_objectives(old, new, x, a[:4], np.ones(5), [0.0], 0.2)
    with pytest.raises(ValueError, match=r"advantages has shape \(5, 1\); expected \(5,\)"):
        interpolate_objectives(old, new, x, a, np.ones((5, 1)), [0.0], 0.2)
    with pytest.raises(ValueError, match="observations holds NaN"):
        interpolate_objectives(old, new, x * np.float32(math.nan), a, np.ones(5), [0.0], 0.2)


# ------------------------------------------------------------------------------------- the loss of a minibatch


def random_batch(networks, size, seed=0, moved=0.1):
    """A batch whose old policy and old values differ a little from the networks."""
    generator = torch.Generator().manual_seed(seed)
    observations = torch.randn(size, networks.policy.observation_size, generator=generator)
    with torch.no_grad():
        outputs, values = networks(observations)
        if isinstance(networks.policy, CategoricalPolicy):
            outputs = torch.log_softmax(outputs + moved * torch.randn(outputs.shape, generator=generator), -1)
            actions = torch.randint(outputs.shape[-1], (size,), generator=generator)
        else:
            outputs = outputs + moved * torch.randn(outputs.shape, generator=generator)
            actions = outputs[:, : outputs.shape[1] // 2] + torch.randn(
                size, outputs.shape[1] // 2, generator=generator
            )
        log_probs = networks.policy.log_prob_of(outputs, actions)
    advantages, targets = torch.randn(2, size, generator=generator)
    return PPOBatch(observations, actions, outputs, log_probs, values + 0.3 * targets, advantages, targets)


def two_networks(seed=0, gaussian=False, scale=1.0):
    policy = (
        GaussianPolicy(3, 2, hidden=(8,), seed=seed, output_gain=1.0)
        if gaussian
        else CategoricalPolicy(3, 4, hidden=(8,), seed=seed, output_gain=1.0)
    )
    return SeparatePolicyValue(policy, ValueNetwork(3, hidden=(8,), seed=seed + 1, scale=scale))


@pytest.mark.parametrize("clip_values", [None, 0.2])
@pytest.mark.parametrize("gaussian", [False, True])
def test_loss_and_gradient_equal_stable_baselines(gaussian, clip_values):
    """One gradient step of Stable-Baselines3's PPO on the same weights and the same data; its gradient is kept."""
    sb3 = pytest.importorskip("stable_baselines3")
    networks = two_networks(gaussian=gaussian)
    batch = random_batch(networks, 32)
    actions = Box(-9.0, 9.0, (2,)) if gaussian else Discrete(4)

    class Empty(gymnasium.Env):
        observation_space, action_space = Box(-9.0, 9.0, (3,)), actions

    model = sb3.PPO(
        "MlpPolicy",
        Empty(),
        n_steps=32,
        batch_size=32,
        n_epochs=1,
        clip_range=0.1,
        clip_range_vf=clip_values,
        normalize_advantage=False,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=1e9,
        device="cpu",
        policy_kwargs=dict(net_arch=[8], activation_fn=torch.nn.Tanh),
    )
    theirs = model.policy
    pairs = [
        (theirs.mlp_extractor.policy_net[0], networks.policy.network[0]),
        (theirs.action_net, networks.policy.network[2]),
        (theirs.mlp_extractor.value_net[0], networks.value.network[0]),
        (theirs.value_net, networks.value.network[2]),
    ]
    for their_layer, our_layer in pairs:
        their_layer.load_state_dict(our_layer.state_dict())
    buffer = model.rollout_buffer
    buffer.observations[:, 0], buffer.actions[:, 0] = batch.observations, batch.actions.reshape(32, -1)
    buffer.log_probs[:, 0], buffer.values[:, 0] = batch.log_probs, batch.values
    buffer.advantages[:, 0], buffer.returns[:, 0], buffer.full = batch.advantages, batch.targets, True
    theirs.optimizer = torch.optim.SGD(theirs.parameters(), lr=0.0)  # keeps the gradients and the weights
    model.set_logger(sb3.common.logger.Logger(None, []))
    model.train()
    # their value loss has no factor one half
    config = PPOConfig(
        normalize="none", return_scale=1.0, value_coefficient=1.0, entropy_coefficient=0.01, value_clip=clip_values
    )
    if clip_values is not None:  # nor do they take the worse of the two values
        near = batch.values + (networks.value(batch.observations) - batch.values).clamp(-clip_values, clip_values)
        values_loss = 0.5 * ((near - batch.targets) ** 2).mean()
        policy_part, _ = ppo_loss(networks, batch, dataclasses.replace(config, value_coefficient=0.0), 0.1, 0.0)
        loss = policy_part + values_loss
    else:
        loss, _ = ppo_loss(networks, batch, config, epsilon=0.1, beta=0.0)
    loss.backward()
    assert loss.item() == pytest.approx(model.logger.name_to_value["train/loss"], rel=1e-5)
    for their_layer, our_layer in pairs:
        torch.testing.assert_close(our_layer.weight.grad, their_layer.weight.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(our_layer.bias.grad, their_layer.bias.grad, rtol=1e-4, atol=1e-6)
    if gaussian:
        torch.testing.assert_close(networks.policy.log_std.grad, theirs.log_std.grad, rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------------------------------------ the update


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 5))
def test_every_step_is_in_exactly_one_minibatch(count, size, seed):
    batch = PPOBatch(*(torch.arange(count * size) for _ in PPOBatch._fields))
    parts = list(minibatches(batch, count, np.random.default_rng(seed)))
    assert [len(part.values) for part in parts] == [size] * count
    assert sorted(torch.cat([part.values for part in parts]).tolist()) == list(range(count * size))


def test_each_pass_shuffles_anew_and_keeps_steps_whole():
    batch, shuffle = PPOBatch(*(torch.arange(64) for _ in PPOBatch._fields)), np.random.default_rng(0)
    passes = [torch.cat([part.values for part in minibatches(batch, 4, shuffle)]).tolist() for _ in range(2)]
    assert passes[0] != passes[1] and list(range(64)) not in passes
    assert all(torch.equal(x, part.values) for part in minibatches(batch, 4, shuffle) for x in part)
    for count in (3, 0):
        with pytest.raises(ValueError, match="count"):
            next(minibatches(batch, count, shuffle))


def test_update_stops_early_at_the_divergence():
    networks = two_networks()
    batch = random_batch(networks, 64, moved=0.0)
    optimizer = torch.optim.Adam(networks.parameters(), 0.05)
    config = PPOConfig(epochs=50, stop_kl=0.02)
    done = ppo_update(networks, optimizer, batch, config, epsilon=0.2, beta=0.0, shuffle=np.random.default_rng(0))
    assert 1 <= done < 50
    kl = diagnose(networks, batch, 0.2)["kl"]
    assert 0.02 < kl < 0.2  # the step that crossed the limit was the last
    assert ppo_update(networks, optimizer, batch, config, epsilon=0.2, beta=0.0, shuffle=np.random.default_rng(0)) == 0


def test_the_update_ends_at_the_first_minibatch_over_the_limit(monkeypatch):
    """Whatever later minibatches would say, and without a step on this one."""
    for measured, steps in (([0.0, 0.03, 0.0, 0.0], 1), ([0.03, 0.0, 0.0, 0.0], 0), ([0.0, 0.0, 0.02, 0.0], 4)):
        networks, values = two_networks(), iter(measured)
        monkeypatch.setattr(ppo, "_mean_kl", lambda *_: next(values))
        config = PPOConfig(epochs=2, minibatches=2, stop_kl=0.02)
        done = ppo_update(
            networks,
            torch.optim.SGD(networks.parameters(), 0.1),
            random_batch(networks, 16),
            config,
            epsilon=0.2,
            beta=0.0,
            shuffle=np.random.default_rng(0),
        )
        assert done == steps


@pytest.mark.parametrize("gaussian", [False, True])
def test_diagnostics_are_their_definitions(gaussian):
    """KL(old || new), in this direction, for the metric as for the early stop; the other would be another number."""
    networks = two_networks(gaussian=gaussian)
    batch = random_batch(networks, 64, moved=1.0)
    with torch.no_grad():
        outputs, values = networks(batch.observations)
    if gaussian:
        old, new = (
            torch.distributions.Independent(torch.distributions.Normal(x[:, :2], x[:, 2:].exp()), 1)
            for x in (batch.outputs, outputs)
        )
    else:
        old, new = (torch.distributions.Categorical(logits=x) for x in (batch.outputs, outputs))
    forward, backward = (torch.distributions.kl_divergence(p, q).mean().item() for p, q in ((old, new), (new, old)))
    log_prob, entropy = new.log_prob(batch.actions), new.entropy()
    assert abs(forward - backward) > 0.01
    ratio = (log_prob - batch.log_probs).exp()
    left = (batch.targets - batch.values).var(correction=0) / batch.targets.var(correction=0)
    expected = {
        "kl": forward,
        "entropy": entropy.mean(),
        "clip_fraction": ((ratio < 0.8) | (ratio > 1.2)).float().mean(),
        "surrogate": (ratio * batch.advantages).mean(),
        "value_loss": ((values - batch.targets) ** 2).mean() / 2,
        "explained_variance": 1 - left,
    }
    measured = diagnose(networks, batch, 0.2)
    assert measured.keys() == expected.keys() and 0 < measured["clip_fraction"] < 1
    for name, value in expected.items():
        assert measured[name] == pytest.approx(float(value), rel=1e-4), name
    low, high = sorted((forward, backward))
    batch = batch._replace(log_probs=log_prob)  # ratios of 1: only the divergence counts from here
    for limit in (0.9 * low, (low + high) / 2, 1.1 * high):
        config = PPOConfig(epochs=1, stop_kl=limit)
        done = ppo_update(
            networks,
            torch.optim.SGD(networks.parameters(), 0.0),
            batch,
            config,
            epsilon=0.2,
            beta=0.0,
            shuffle=np.random.default_rng(0),
        )
        assert done == (forward <= limit)


def test_a_high_price_keeps_the_penalized_policy_close():
    kls = []
    for beta in (0.0, 10.0):
        networks = two_networks()
        batch = random_batch(networks, 64, moved=0.0)
        optimizer = torch.optim.Adam(networks.parameters(), 0.02)
        config = PPOConfig(objective="penalty", epochs=20)
        ppo_update(networks, optimizer, batch, config, epsilon=0.2, beta=beta, shuffle=np.random.default_rng(0))
        kls.append(diagnose(networks, batch, 0.2)["kl"])
    assert kls[1] < 0.2 * kls[0]


def test_coefficient_adapts_while_training():
    config = dataclasses.replace(SMALL, objective="penalty", kl_coefficient=1.0, kl_target=1e-4, learning_rate=1e-2)
    records = [record.metrics for record in iterate_ppo("CartPole-v1", config, seed=0)]
    beta = 1.0
    for metrics in records:
        assert metrics["kl_coefficient"] == beta
        beta = update_kl_coefficient(beta, metrics["kl"], 1e-4, "paper")
    assert beta > 1.0
    fixed = dataclasses.replace(config, kl_rule="fixed")
    assert all(r.metrics["kl_coefficient"] == 1.0 for r in iterate_ppo("CartPole-v1", fixed, seed=0))


@pytest.mark.parametrize("factor, limit", [(0.5, 1e-12), (2.0, 1e12)])
def test_the_coefficient_of_a_long_run_stays_a_number(factor, limit, monkeypatch):
    """Halved in every update, it would be 0 after some 1070 of them, and 0 cannot adapt."""
    monkeypatch.setattr(ppo, "update_kl_coefficient", lambda beta, *_: factor * beta)
    config = dataclasses.replace(SMALL, objective="penalty", kl_coefficient=limit / factor**3)
    betas = [record.metrics["kl_coefficient"] for record in iterate_ppo("CartPole-v1", config, seed=0)]
    np.testing.assert_allclose(betas, limit / factor ** np.array([3, 2, 1, 0, 0, 0]))


def test_what_changes_from_update_to_update_reaches_the_update(monkeypatch):
    """Learning rate and epsilon fall linearly, the penalty's coefficient is the adapted one, every pass is made."""
    config = dataclasses.replace(
        SMALL,
        objective="penalty",
        learning_rate=1e-2,
        learning_rate_end=0.0,
        clip=0.3,
        clip_end=0.0,
        kl_target=1e-4,
        epochs=3,
    )
    used = []

    def update(networks, optimizer, batch, config, *, epsilon, beta, shuffle):
        done = ppo_update(networks, optimizer, batch, config, epsilon=epsilon, beta=beta, shuffle=shuffle)
        used.append((optimizer.param_groups[0]["lr"], epsilon, beta, done))
        return done

    measured = []

    def measure(networks, batch, epsilon):
        measured.append(epsilon)
        return diagnose(networks, batch, epsilon)

    monkeypatch.setattr(ppo, "ppo_update", update)
    monkeypatch.setattr(ppo, "diagnose", measure)
    records = [record.metrics for record in iterate_ppo("CartPole-v1", config, seed=0)]
    rates, epsilons, betas, steps = np.array(used).T
    left = np.arange(6, 0, -1) / 6
    np.testing.assert_allclose(rates, 1e-2 * left)
    np.testing.assert_allclose(epsilons, 0.3 * left)
    assert measured == epsilons.tolist()  # the clip fraction is that of the range in force
    assert (steps == 3 * 2).all() and len(set(betas)) > 2  # three passes over two minibatches
    for metrics, rate, beta, done in zip(records, rates, betas, steps):
        assert (metrics["learning_rate"], metrics["kl_coefficient"], metrics["gradient_steps"]) == (rate, beta, done)


# ------------------------------------------------------------------------------------------------- training


class Bandit(gymnasium.Env):
    """One step: the second of three actions pays 1."""

    observation_space, action_space = Discrete(1), Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, float(action == 1), True, False, {}


class Identity(gymnasium.Env):
    """Name the state that is shown; 1 for a right answer, ten answers an episode."""

    observation_space, action_space = Discrete(4), Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.left = int(self.np_random.integers(4)), 10
        return self.state, {}

    def step(self, action):
        reward, self.left = float(action == self.state), self.left - 1
        self.state = int(self.np_random.integers(4))
        return self.state, reward, False, self.left == 0, {}


class Continuous(Identity):
    """Name a number within [-1, 1]: the reward is the squared distance, negative."""

    observation_space, action_space = Box(-1.0, 1.0, (1,)), Box(-2.0, 2.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.state, {}

    def step(self, action):
        reward, self.left = -float(((action - self.state) ** 2).sum()), self.left - 1
        self.state = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.state, reward, False, self.left == 0, {}


class Pay(gymnasium.Env):
    """One state, reward 1 for whatever is done; after ``length`` steps the end, of one kind or the other."""

    observation_space, action_space = Box(0.0, 1.0, (1,)), Discrete(2)

    def __init__(self, length, terminates):
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.clock += 1
        over = self.clock == self.length
        return np.ones(1, np.float32), 1.0, over and self.terminates, over and not self.terminates, {}


def test_bandit_is_solved():
    result = train_ppo(
        Bandit, PPOConfig(total_steps=2048, copies=8, steps=32, hidden=(8,), gamma=0.0, learning_rate=2e-2), seed=0
    )
    assert result.policy.act(np.array([0])).tolist() == [1]
    assert result.history["episode_return"][-1] > 0.95
    assert np.isfinite(result.history["explained_variance"]).all()


@pytest.mark.parametrize("extra", [{}, {"objective": "penalty", "kl_coefficient": 0.1}])
def test_identity_is_solved(extra):
    config = PPOConfig(total_steps=12_000, copies=8, steps=32, gamma=0.5, hidden=(16,), learning_rate=2e-2, **extra)
    result = train_ppo(Identity, config, seed=0, stop=lambda record: record.metrics.get("episode_return", 0) > 9.8)
    assert result.policy.act(np.arange(4)).tolist() == [0, 1, 2, 3]
    assert result.history["episode_return"][-1] > 9


def test_continuous_identity_is_solved():
    config = PPOConfig(total_steps=8_000, copies=8, steps=32, gamma=0.0, hidden=(16,), learning_rate=2e-2)
    result = train_ppo(Continuous, config, seed=0)
    x = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    assert np.abs(result.policy.act(x) - x).max() < 0.25
    assert result.history["entropy"][-1] < result.history["entropy"][0] - 0.5


@pytest.mark.parametrize("terminates", [False, True])
def test_values_past_time_limits_and_terminations(terminates):
    """Reward 1 forever is worth 1 / (1 - gamma) = 5, whatever the time limit of 4 steps says.

    If the same 4 steps end in a terminal state, a state that does not tell the time is worth the mean of
    1, 1 + 0.8, ... over the four positions: that is where a truncation taken for a termination ends, too.
    """
    gamma, length = 0.8, 4
    config = PPOConfig(
        total_steps=40 * 128,
        copies=8,
        steps=16,
        gamma=gamma,
        lam=0.95,
        epochs=6,
        hidden=(),
        learning_rate=5e-2,
        learning_rate_end=1e-3,
    )
    learner = Learner(lambda: Pay(length, terminates), config, 0)
    while learner.run.env_steps < config.total_steps:
        learner.improve(prepare_batch(learner.collector.collect(), learner.networks.value, config))
    value = learner.networks.value.numpy(np.ones((1, 1), np.float32)).item()
    forever = 1 / (1 - gamma)
    mean_to_the_end = np.mean([sum(gamma**k for k in range(left)) for left in range(1, length + 1)])
    assert value == pytest.approx(mean_to_the_end if terminates else forever, abs=0.05)
    assert abs(forever - mean_to_the_end) > 2


WIDE = dict(hidden=(64, 64), learning_rate=3e-3, learning_rate_end=3e-4)


@pytest.mark.parametrize("seed, extra", [(0, {}), (1, {}), (0, WIDE)])
def test_defaults_and_a_wider_network_solve_cartpole(seed, extra):
    best = [0.0]

    def good(record):
        if record.update % 4 == 0:
            best[0] = evaluate_policy(record.policy, "CartPole-v1", seed=7).mean()
        return best[0] >= 475

    result = train_ppo("CartPole-v1", PPOConfig(**extra), seed=seed, stop=good)
    assert best[0] >= 475 and result.env_steps <= 60_000


@pytest.mark.slow
def test_pendulum_improves():
    config = PPOConfig(
        total_steps=64_000,
        copies=16,
        steps=200,
        minibatches=10,
        epochs=10,
        hidden=(64, 64),
        activation="tanh",
        learning_rate=1e-3,
        gamma=0.9,
        clip=0.2,
        return_scale=10.0,
    )
    returns = train_ppo("Pendulum-v1", config, seed=0).history["episode_return"]
    assert returns[:3].mean() < -900 and returns[-3:].mean() > -700


def test_copies_on_a_device_of_their_own():
    environments = TorchCartPole(64, seed=0, device="cpu")
    config = dataclasses.replace(SMALL, steps=8, total_steps=20 * 512, epochs=4)
    result = train_ppo(environments, config, seed=0)
    assert result.env_steps == 20 * 512
    assert result.history["episode_return"][-1] > result.history["episode_return"][1] + 5


# ------------------------------------------------------------------------------------------------ bad input


def test_batches_that_do_not_divide_name_both_numbers():
    with pytest.raises(ValueError, match="minibatches is 3; expected a divisor of 64, steps times copies"):
        next(iterate_ppo("CartPole-v1", dataclasses.replace(SMALL, minibatches=3), seed=0))
    with pytest.raises(ValueError, match="normalize is 'minibatch', which needs two steps"):
        next(iterate_ppo("CartPole-v1", dataclasses.replace(SMALL, minibatches=64, normalize="minibatch"), seed=0))


# ---------------------------------------------------------------------------------- one update, number by number

BY_HAND = PPOConfig(total_steps=512, copies=4, steps=32, epochs=2, minibatches=2, hidden=(8,), gamma=0.9, lam=0.8)


@pytest.mark.parametrize(
    "change",
    [
        {"clip": 0.01, "entropy_coefficient": 5.0, "value_coefficient": 0.7},
        {"clip": 0.01, "normalize": "minibatch", "max_gradient_norm": 0.01, "value_clip": 0.01},
        {"objective": "penalty", "kl_coefficient": 3.0, "normalize": "none", "return_scale": 5.0, "learning_rate": 0.1},
    ],
)
def test_an_update_is_the_one_of_a_plain_script(change):
    config, seed = dataclasses.replace(BY_HAND, **change), 5
    state = next(iterate_ppo(short_poles, config, seed=seed)).state()
    learner = Learner(short_poles, config, seed)
    w, before = (weights_of(learner.networks.state_dict()) for _ in range(2))
    rollout = learner.collector.collect()
    assert rollout.terminated.any() and rollout.truncated.any()
    scale = config.return_scale or 1 / (1 - 0.9)
    x, a = torch.tensor(rollout.observations).reshape(128, -1), torch.tensor(rollout.actions).reshape(-1, 1)
    ends = torch.tensor(rollout.next_observations).reshape(128, -1)
    old_pi, old_v = log_pi(w, x).detach(), scale * mlp(w, "value.network", x)[:, 0].detach()
    next_v = scale * mlp(w, "value.network", ends)[:, 0].detach()
    advantage = advantages_by_hand(rollout, old_v.reshape(32, 4), next_v.reshape(32, 4), 0.9, 0.8).reshape(-1)
    target, advantage = (advantage + old_v).float(), advantage.float()
    if config.normalize == "batch":
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    adam, shuffle = (
        PlainAdam(w, config.learning_rate, 1e-5),
        np.random.default_rng(np.random.SeedSequence(seed).generate_state(5)[4]),
    )
    for _ in range(2):
        for rows in torch.from_numpy(shuffle.permutation(128)).split(64):
            pi, v, part = log_pi(w, x[rows]), scale * mlp(w, "value.network", x[rows])[:, 0], advantage[rows]
            if config.normalize == "minibatch":
                part = (part - part.mean()) / (part.std(correction=0) + 1e-8)
            rho = (pi.gather(1, a[rows]) - old_pi[rows].gather(1, a[rows])).exp()[:, 0]
            if config.objective == "clip":
                gain = torch.minimum(rho * part, rho.clamp(0.99, 1.01) * part)
            else:
                gain = rho * part - 3.0 * (old_pi[rows].exp() * (old_pi[rows] - pi)).sum(1)
            error = (v - target[rows]) ** 2
            if config.value_clip:
                near = old_v[rows] + (v - old_v[rows]).clamp(-0.01, 0.01)
                error = torch.maximum(error, (near - target[rows]) ** 2)
            entropy = -(pi.exp() * pi).sum(1)
            loss = config.value_coefficient * 0.5 * (error / scale**2).mean() - gain.mean()
            adam.step(loss - config.entropy_coefficient * entropy.mean(), config.max_gradient_norm)
    assert_same_weights(w, state["networks"], before)
    moved = (old_pi.exp() * (old_pi - log_pi(w, x))).sum(1).mean().item()
    factor = (2.0 if moved > 0.015 else 0.5 if moved < 0.01 / 1.5 else 1.0) if config.objective == "penalty" else 1.0
    assert state["beta"] == factor * config.kl_coefficient
