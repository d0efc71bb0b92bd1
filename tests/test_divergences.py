"""Tests of ``rlbook_lib.divergences``: against sums written out, integrals, autograd, and reference values."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from rlbook_lib.divergences import (
    code_length,
    cross_entropy,
    effective_sample_size,
    entropy,
    gaussian_kl,
    importance_estimate,
    importance_variance,
    importance_weights,
    jensen_shannon,
    kl_divergence,
    kl_estimate,
    kl_estimate_moments,
    kl_gradient_of_estimate,
    self_normalized_estimate,
    trajectory_ratio,
)
from rlbook_lib.mdp import MDP, enumerate_trajectories, trajectory_probability

REFERENCE = json.loads((Path(__file__).resolve().parent / "reference_values.json").read_text())
CASES = list(REFERENCE["entropy_kl"].values())
ESTIMATORS = REFERENCE["kl_estimators"]["categorical"]


@st.composite
def distributions(draw, size=None, zeros=True):
    """Probabilities; some may be 0."""
    size = size or draw(st.integers(2, 6))
    weights = draw(st.lists(st.integers(0 if zeros else 1, 9), min_size=size, max_size=size).filter(any))
    return np.array(weights) / sum(weights)


pairs = st.integers(2, 6).flatmap(lambda k: st.tuples(distributions(k), distributions(k)))


# ---------------------------------------------------------------------------------- entropy and divergences


@pytest.mark.equation("eq-code-length")
@pytest.mark.parametrize("case", CASES)
def test_code_lengths(case):
    np.testing.assert_allclose(code_length(case["p"], 2), case["code_length_bits"], rtol=1e-11)
    # a code with these lengths can be decoded (Kraft), and wastes nothing
    assert (2.0 ** -np.asarray(code_length(case["p"], 2))).sum() == pytest.approx(1)


def test_code_length_of_certain_and_impossible_outcomes():
    assert code_length(1.0) == 0.0 and math.copysign(1, code_length(1.0)) == 1
    assert code_length(0.0) == math.inf
    assert code_length(1 / 8, base=2) == pytest.approx(3)


@pytest.mark.equation("eq-entropy")
@pytest.mark.parametrize("case", CASES)
def test_entropy_matches_reference_and_peer(case):
    assert entropy(case["p"], base=2) == pytest.approx(case["H_p_bits"], abs=1e-11)
    assert entropy(case["q"], base=2) == pytest.approx(case["H_q_bits"], abs=1e-11)
    assert entropy(case["p"]) == pytest.approx(scipy.stats.entropy(case["p"]))


@pytest.mark.equation("eq-cross-entropy")
@pytest.mark.parametrize("case", CASES)
def test_cross_entropy_matches_reference_and_mean_code_length(case):
    p, q = np.array(case["p"]), np.array(case["q"])
    q /= q.sum()
    assert cross_entropy(p, q, base=2) == pytest.approx(case["cross_bits"], abs=1e-11)
    assert cross_entropy(p, q) == pytest.approx(p @ code_length(q))


@pytest.mark.equation("eq-kl")
@pytest.mark.parametrize("case", CASES)
def test_kl_matches_reference_in_both_directions_and_units(case):
    p, q = case["p"], case["q"]
    assert kl_divergence(p, q) == pytest.approx(case["KL_pq_nats"], abs=1e-11)
    assert kl_divergence(q, p) == pytest.approx(case["KL_qp_nats"], abs=1e-11)
    assert kl_divergence(p, q, base=2) == pytest.approx(case["KL_pq_bits"], abs=1e-11)
    assert kl_divergence(p, q) == pytest.approx(scipy.special.rel_entr(p, q).sum())


@pytest.mark.equation("eq-jensen-shannon")
@pytest.mark.parametrize("case", CASES)
def test_jensen_shannon_matches_reference_and_entropies(case):
    p, q = np.array(case["p"]), np.array(case["q"])
    assert jensen_shannon(p, q) == pytest.approx(case["JS_nats"], abs=1e-11)
    middle = (p + q) / (p + q).sum()
    assert jensen_shannon(p, q) == pytest.approx(entropy(middle) - (entropy(p) + entropy(q / q.sum())) / 2)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_inequalities_and_limits(pair):
    p, q = pair
    cross, kl, mixed = cross_entropy(p, q), kl_divergence(p, q), jensen_shannon(p, q)
    assert 0 <= entropy(p) <= math.log(len(p)) + 1e-12
    assert kl >= 0 and 0 <= mixed <= math.log(2) + 1e-12
    assert mixed == pytest.approx(jensen_shannon(q, p), abs=1e-15)
    assert (kl == math.inf) == bool(((p > 0) & (q == 0)).any()) == (cross == math.inf)
    if kl < math.inf:
        assert kl == pytest.approx(cross - entropy(p), abs=1e-12)
        # Pinsker: the total variation distance is at most sqrt(KL / 2)
        assert np.abs(p - q).sum() / 2 <= math.sqrt(kl / 2) + 1e-12
    assert kl_divergence(p, p) == 0.0


def test_missing_support_gives_inf_and_certainty_gives_zero():  # any warning fails the test
    assert kl_divergence([0.5, 0.5], [1.0, 0.0]) == math.inf
    assert kl_divergence([1.0, 0.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert cross_entropy([0.0, 1.0], [1.0, 0.0]) == math.inf
    assert entropy([0.0, 1.0]) == 0.0
    assert jensen_shannon([0.0, 1.0], [1.0, 0.0], base=2) == pytest.approx(1)


def test_rows_on_the_last_axis_and_broadcasting():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(4), (2, 3)), rng.dirichlet(np.ones(4))
    expected = [[kl_divergence(row, q) for row in block] for block in p]
    np.testing.assert_allclose(kl_divergence(p, q), expected, rtol=1e-12)
    assert entropy(p).shape == (2, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_the_same_numbers_and_keep_their_type(dtype):
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(5), 3), rng.dirichlet(np.ones(5), 3)
    tp, tq = torch.tensor(p, dtype=dtype), torch.tensor(q, dtype=dtype)
    for function in (cross_entropy, kl_divergence, jensen_shannon):
        result = function(tp, tq, 2)
        assert result.dtype == dtype
        np.testing.assert_allclose(result, function(p, q, 2), rtol=1e-4 if dtype == torch.float32 else 1e-12)
    np.testing.assert_allclose(entropy(tp), entropy(p), rtol=1e-4)
    np.testing.assert_allclose(kl_divergence(tp, q), kl_divergence(p, q), rtol=1e-3)  # array beside tensor
    assert entropy(p.astype(np.float32)).dtype == np.float32


def test_gradients_of_the_divergences():
    logits = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    for function in (cross_entropy, kl_divergence, jensen_shannon):
        assert torch.autograd.gradcheck(lambda z: function(torch.softmax(z, 0), q), logits)
        assert torch.autograd.gradcheck(lambda z: function(q, torch.softmax(z, 0)), logits)
    p = torch.softmax(logits.detach().clone(), 0)
    assert torch.autograd.gradgradcheck(
        lambda z: kl_divergence(p, torch.softmax(z, 0)), logits
    )  # at p = q, where the value is 0
    certain = torch.tensor([1.0, 0.0], requires_grad=True)
    entropy(certain).backward()
    assert torch.isfinite(certain.grad).all()


def test_the_gradient_survives_where_rounding_would_make_the_divergence_negative():
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(torch.randn(200, 5, generator=generator), -1)
    q = (p * (1 + 1e-5 * torch.randn(p.shape, generator=generator))).requires_grad_()
    assert ((p * (p.log() - q.log())).sum(-1) < 0).sum() > 20  # where that is so
    kl = kl_divergence(p, q)
    assert (kl >= 0).all()
    kl.sum().backward()
    torch.testing.assert_close(q.grad, -p / q.detach())


@pytest.mark.equation("eq-gaussian-kl")
@pytest.mark.parametrize(("mean_p", "std_p", "mean_q", "std_q"), [(0, 1, 0, 1), (1, 0.5, -0.3, 1.2), (0, 2, 1, 0.7)])
def test_gaussian_kl_is_the_integral(mean_p, std_p, mean_q, std_q):
    p, q = scipy.stats.norm(mean_p, std_p), scipy.stats.norm(mean_q, std_q)
    integral, _ = quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), mean_p - 12 * std_p, mean_p + 12 * std_p)
    assert gaussian_kl(mean_p, std_p, mean_q, std_q) == pytest.approx(integral, abs=1e-9)


def test_gaussian_kl_sums_components_and_matches_torch():
    rng = np.random.default_rng(2)
    means, stds = rng.normal(size=(2, 4, 3)), rng.uniform(0.5, 2, size=(2, 4, 3))
    normal = torch.distributions.Normal
    p, q = (normal(torch.tensor(m), torch.tensor(s)) for m, s in zip(means, stds))
    peer = torch.distributions.kl_divergence(p, q).sum(-1)
    np.testing.assert_allclose(gaussian_kl(means[0], stds[0], means[1], stds[1]), peer, rtol=1e-12)
    tensors = [torch.tensor(x) for x in (means[0], stds[0], means[1], stds[1])]
    np.testing.assert_allclose(gaussian_kl(*tensors), peer, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ estimators


@pytest.mark.equation("eq-k1")
@pytest.mark.equation("eq-k2")
@pytest.mark.equation("eq-k3")
@pytest.mark.parametrize("case", ESTIMATORS)
@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_estimators_match_reference_by_enumeration(case, kind):
    p, ref = case["sampling_q"], case["other_p"]  # the reference calls the sampling distribution q
    each = kl_estimate(np.log(p), np.log(ref), kind)
    np.testing.assert_allclose(each, case[kind]["per_outcome"], atol=1e-11)
    mean, variance = kl_estimate_moments(p, ref, kind)
    assert (mean, variance) == pytest.approx((case[kind]["mean"], case[kind]["var"]), abs=1e-11)
    assert mean == pytest.approx(np.dot(p, each))
    if kind != "k2":  # k1 and k3 are unbiased over samples of p
        assert mean == pytest.approx(kl_divergence(p, ref)) == pytest.approx(case["KL_qp"])


def test_k2_is_biased_and_k3_can_vary_more_than_k1():
    p, ref = [0.7, 0.2, 0.1], [0.2, 0.3, 0.5]
    assert kl_estimate_moments(p, ref, "k2")[0] - kl_divergence(p, ref) > 0.05
    p, ref = [0.9, 0.1], [0.1, 0.9]
    assert kl_estimate_moments(p, ref, "k3")[1] > kl_estimate_moments(p, ref, "k1")[1]


def test_k3_over_samples_of_an_older_policy_is_biased():
    p, ref, old = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.2, 0.3, 0.5]
    assert kl_divergence(p, ref) == pytest.approx(0.02527, abs=5e-6)
    assert np.dot(old, kl_estimate(np.log(p), np.log(ref))) == pytest.approx(0.01832, abs=5e-6)
    # weighted by p / old, the mean is right again
    weighted = importance_weights(np.log(p), np.log(old)) * kl_estimate(np.log(p), np.log(ref))
    assert np.dot(old, weighted) == pytest.approx(kl_divergence(p, ref))


@given(st.floats(-20, 0), st.floats(-30, 3), st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_k3_is_never_negative_in_float32(log_prob, exponent, power):
    difference = np.float32((-1) ** power * 10.0**exponent / 100)
    a = np.float32(log_prob)
    for estimate in (
        kl_estimate(np.array([a, 0]), np.array([a + difference, difference]).astype(np.float32)),
        kl_estimate(torch.tensor([a, 0.0]), torch.tensor([a + difference, difference])),
    ):
        assert (estimate >= 0).all() and not np.isnan(np.asarray(estimate)).any()


def test_k3_keeps_its_digits_where_the_policies_are_close():
    difference = np.float32(1e-3)
    exact = math.expm1(float(difference)) - float(difference)
    estimate = kl_estimate(np.zeros(1, np.float32), np.array([difference]))[0]
    naive = np.exp(difference) - np.float32(1) - difference  # loses them
    assert abs(estimate - exact) < 2e-4 * exact < abs(naive - exact)


def test_estimates_at_the_edges():
    assert kl_estimate(-1.0, -1.0) == 0.0
    for kind in ("k1", "k2", "k3"):
        assert kl_estimate(-1.0, -math.inf, kind) == math.inf
    assert kl_estimate(-1000.0, 0.0, "k3") == math.inf  # beyond the largest number
    assert kl_estimate_moments([0.5, 0.5], [1.0, 0.0])[0] == math.inf
    assert kl_estimate_moments([1.0, 0.0], [0.5, 0.5])[0] == pytest.approx(math.log(2) - 0.0 + 0.5 - 1)


@pytest.mark.equation("eq-kl-gradient")
@given(pairs=st.integers(2, 5).flatmap(lambda k: st.tuples(*[st.lists(st.floats(-2, 2), min_size=k, max_size=k)] * 2)))
@settings(max_examples=25, deadline=None)
def test_gradient_of_each_estimate_by_autograd_and_enumeration(pairs):
    logits = torch.tensor(pairs[0], dtype=torch.float64, requires_grad=True)
    log_ref = torch.log_softmax(torch.tensor(pairs[1], dtype=torch.float64), 0)

    def gradient(value):
        return torch.autograd.grad(value, logits)[0].numpy()

    log_p = torch.log_softmax(logits, 0)
    p, ref = log_p.exp(), log_ref.exp()
    targets = {
        "k1": np.zeros(len(log_ref)),
        "k2": gradient(kl_divergence(p, ref)),
        "k3": gradient(kl_divergence(ref, torch.softmax(logits, 0))),
    }
    for kind, target in targets.items():
        weights = torch.softmax(logits, 0).detach()  # the samples: given, so no gradient through them
        by_sample = gradient((weights * kl_estimate(torch.log_softmax(logits, 0), log_ref, kind)).sum())
        computed = kl_gradient_of_estimate(np.array(pairs[0]), np.array(pairs[1]), kind)
        np.testing.assert_allclose(computed, by_sample, atol=1e-12)
        np.testing.assert_allclose(computed, target, atol=1e-12)
        tensors = kl_gradient_of_estimate(logits.detach(), torch.tensor(pairs[1], dtype=torch.float64), kind)
        np.testing.assert_allclose(tensors, computed, atol=1e-12)


# --------------------------------------------------------------------------------------- importance sampling

P, Q, F = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.2, 0.4, 0.3, 0.1]), np.array([1.0, -2.0, 4.0, 7.0])
LOG_P = np.array([math.log(x) if x else -math.inf for x in P])


@pytest.mark.equation("eq-importance-weights")
def test_weights_turn_one_mean_into_another():
    weights = importance_weights(LOG_P, np.log(Q))
    np.testing.assert_allclose(weights, P / Q)
    assert Q @ weights == pytest.approx(1)
    assert Q @ (weights * F) == pytest.approx(P @ F)
    assert importance_weights(0.0, 0.0) == 1.0


@pytest.mark.equation("eq-importance-sampling")
def test_estimate_has_the_right_mean_over_all_samples_of_size_two():
    mean = sum(
        Q[i] * Q[j] * importance_estimate(F[[i, j]], LOG_P[[i, j]], np.log(Q)[[i, j]])
        for i in range(4)
        for j in range(4)
    )
    assert mean == pytest.approx(P @ F)
    columns = importance_estimate(np.stack([F, F**2], 1), LOG_P, np.log(Q))  # two functions at once
    np.testing.assert_allclose(columns, [np.mean(P / Q * F), np.mean(P / Q * F**2)])


@pytest.mark.equation("eq-self-normalized")
def test_self_normalized_is_a_weighted_mean_that_converges_and_needs_no_constants():
    weights = P / Q
    assert self_normalized_estimate(F, LOG_P, np.log(Q)) == pytest.approx(weights @ F / weights.sum())
    assert self_normalized_estimate(F, LOG_P + 800, np.log(Q) - 3) == pytest.approx(weights @ F / weights.sum())
    rng = np.random.default_rng(0)
    x = rng.choice(4, 40_000, p=Q)
    error = math.sqrt(Q @ (weights * (F - P @ F)) ** 2 / len(x))  # delta method
    assert abs(self_normalized_estimate(F[x], LOG_P[x], np.log(Q)[x]) - P @ F) < 4 * error
    # biased for few samples: all samples of size two
    pairs_of = [(i, j) for i in range(3) for j in range(3)]  # outcome 3 alone has no weight at all
    mean = sum(Q[i] * Q[j] * self_normalized_estimate(F[[i, j]], LOG_P[[i, j]], np.log(Q)[[i, j]]) for i, j in pairs_of)
    assert abs(mean / Q[:3].sum() ** 2 - P @ F) > 0.01


@pytest.mark.equation("eq-effective-sample-size")
def test_effective_sample_size_against_the_variance_of_a_weighted_mean():
    rng = np.random.default_rng(3)
    w = rng.exponential(size=50)
    share = w / w.sum()
    # the weighted mean of independent numbers of variance 1 has variance sum share^2, that of n has 1 / n
    assert effective_sample_size(w) == pytest.approx(1 / (share @ share))
    assert effective_sample_size(np.full(7, 1e200)) == pytest.approx(7)
    assert effective_sample_size([3.0, 0.0, 0.0]) == pytest.approx(1)
    assert 1 <= effective_sample_size(w) <= 50
    np.testing.assert_allclose(effective_sample_size(torch.tensor(w)), effective_sample_size(w))
    assert effective_sample_size(np.ones((5, 2))).tolist() == [5, 5]


@pytest.mark.parametrize("width", [0.8, 1.0, 1.5, 3.0])
def test_effective_sample_size_of_a_gaussian_proposal(width):
    # target N(0, 1), proposal N(0, width): E w^2 = width^2 / sqrt(2 width^2 - 1)
    rng = np.random.default_rng(4)
    x = width * rng.standard_normal(200_000)
    weights = importance_weights(scipy.stats.norm.logpdf(x), scipy.stats.norm.logpdf(x, scale=width))
    expected = math.sqrt(2 * width**2 - 1) / width**2
    assert effective_sample_size(weights) / len(x) == pytest.approx(expected, rel=0.05)


@pytest.mark.equation("eq-importance-variance")
def test_variance_by_enumeration():
    weighted = P / Q * F
    assert importance_variance(P, Q, F) == pytest.approx(Q @ weighted**2 - (Q @ weighted) ** 2)
    # the same as a mean over the target: each square inflated by its weight
    assert importance_variance(P, Q, F) == pytest.approx(P @ (P / Q * F**2) - (P @ F) ** 2)
    assert importance_variance(P, P, F) == pytest.approx(P @ F**2 - (P @ F) ** 2)
    ideal = P * np.abs(F) / (P @ np.abs(F))  # where f is positive, this proposal has no variance at all
    assert importance_variance(P, ideal, np.abs(F)) == pytest.approx(0, abs=1e-12)
    assert importance_variance(torch.tensor(P), torch.tensor(Q), torch.tensor(F)).item() == pytest.approx(
        importance_variance(P, Q, F)
    )


def test_importance_sampling_can_add_variance():
    assert importance_variance([0.5, 0.5], [0.95, 0.05], [1, 2]) > 20 * importance_variance(
        [0.5, 0.5], [0.5, 0.5], [1, 2]
    )


def test_support_condition():
    with pytest.raises(ValueError, match="q gives 0"):
        importance_variance([0.5, 0.5], [1.0, 0.0], [1, 2])
    assert importance_variance([0.5, 0.5], [1.0, 0.0], [1, 0]) == pytest.approx(0)  # f is 0 there: no harm
    with pytest.raises(ValueError, match="log_prob_proposal"):
        importance_weights([-1.0], [-math.inf])


# ---------------------------------------------------------------------------------------- in reinforcement learning


def small_mdp():
    rng = np.random.default_rng(5)
    return MDP(rng.dirichlet(np.ones(3), (3, 2)), rng.normal(size=(3, 2)), 0.9, terminal=[False, False, True])


@pytest.mark.equation("eq-trajectory-ratio")
def test_product_of_action_ratios_is_the_ratio_of_trajectory_probabilities():
    mdp, rng = small_mdp(), np.random.default_rng(6)
    new, old = rng.dirichlet(np.ones(2), (2, 3))
    total = 0.0
    for states, actions, _, probability in enumerate_trajectories(mdp, old, 3):
        steps = np.array(states[:-1], dtype=int), np.array(actions, dtype=int)
        if not actions:  # started in the terminal state: nothing to compare
            continue
        ratio = trajectory_ratio(np.log(new[steps]), np.log(old[steps]))
        assert ratio == pytest.approx(trajectory_probability(mdp, new, states, actions) / probability)
        total += probability * ratio
    assert total == pytest.approx(1)
    columns = trajectory_ratio(torch.zeros(4, 2), torch.full((4, 2), math.log(0.5)))
    np.testing.assert_allclose(columns, [16, 16], rtol=1e-6)


def test_the_action_ratio_corrects_the_action_but_not_the_state():
    mdp, rng = small_mdp(), np.random.default_rng(7)
    new, old = rng.dirichlet(np.ones(2), (2, 3))
    f = rng.normal(size=(3, 2))

    def state_distribution(policy):
        system = np.eye(3) - mdp.gamma * mdp.policy_transitions(policy).toarray().T
        visits = np.linalg.solve(system, mdp.start) * ~mdp.terminal
        return visits / visits.sum()

    d_new, d_old = state_distribution(new), state_distribution(old)
    ratio = importance_weights(np.log(new), np.log(old))
    np.testing.assert_allclose((old * ratio * f).sum(1), (new * f).sum(1))  # exact in each state
    wanted = d_new @ (new * f).sum(1)
    action_ratio_only = d_old @ (old * ratio * f).sum(1)
    assert abs(action_ratio_only - wanted) > 1e-3
    alive = ~mdp.terminal
    both = (d_old[alive] * (d_new[alive] / d_old[alive])) @ (old * ratio * f).sum(1)[alive]
    assert both == pytest.approx(wanted)


# ------------------------------------------------------------------------------------------------ bad arguments

HALF = [0.5, 0.5]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: entropy([0.5, 0.6]), ValueError, "p has a row that sums to 1.1"),
        (lambda: entropy(1.0), ValueError, r"p has shape \(\); expected \(\*, K\)"),
        (lambda: kl_divergence(HALF, [0.2, 0.3, 0.5]), ValueError, r"q has shape \(3,\); expected \(2,\), like p"),
        (lambda: kl_divergence(HALF, [[1.0], [1.0]]), ValueError, r"q has shape \(2, 1\); expected \(2, 2\), like p"),
        (lambda: kl_divergence(np.full((2, 2), 0.5), np.full((3, 2), 0.5)), ValueError, r"q has shape \(3, 2\)"),
        (lambda: code_length([1.2]), ValueError, "p holds 1.2; expected"),
        (lambda: gaussian_kl(0.0, 0.0, 0.0, 1.0), ValueError, "std_p holds 0; expected"),
        (lambda: kl_estimate([-1.0], [-1.0, -2.0]), ValueError, "log_prob_ref has shape"),
        (lambda: kl_estimate([-math.inf], [-1.0]), ValueError, "log_prob holds NaN or infinite values"),
        (lambda: kl_estimate([-1.0], [math.inf]), ValueError, "log_prob_ref holds NaN or inf;"),
        (lambda: kl_gradient_of_estimate([[0.0, 1.0]], [0.0, 1.0]), ValueError, "logits_ref has shape"),
        (lambda: importance_estimate([1.0], [0.0, 0.0], [0.0, 0.0]), ValueError, "log_prob has shape"),
        (lambda: self_normalized_estimate([1.0], [-math.inf], [0.0]), ValueError, "all weights are 0"),
        (lambda: effective_sample_size([0.0, 0.0]), ValueError, "all 0"),
        (lambda: effective_sample_size([[1.0, 0.0], [2.0, 0.0]]), ValueError, "all 0"),
        (lambda: effective_sample_size([-1.0, 2.0]), ValueError, "weights holds -1; expected"),
        (lambda: trajectory_ratio(0.0, 0.0), ValueError, r"log_prob has shape \(\); expected \(T,\) or \(T, N\)"),
        (lambda: trajectory_ratio([0.0], [-math.inf]), ValueError, "log_prob_old"),
    ],
)
def test_bad_arguments_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_torch_is_not_imported():
    code = "import sys, rlbook_lib.divergences as d; d.kl_divergence([.5, .5], [.1, .9]); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
