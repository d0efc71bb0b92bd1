"""Entropy, KL divergence, importance weights and the estimators of a KL divergence (chapter 8).

Distributions over K outcomes are arrays whose last axis has length K and sums to one: (K,) or (..., K).
Logarithms are natural, so results are in nats; ``base=2`` gives bits. Two rules are limits, not accidents:
an outcome of probability 0 adds nothing (0 log 0 = 0), and a divergence is inf where p can do what q
cannot.

Samples come with their log-probabilities or log-densities, whatever the distribution: the importance
weights and the estimators k1, k2, k3 need nothing else.

numpy arrays and torch tensors go through the same lines. This module never imports torch; if a tensor comes
in, torch is there already. Gradients flow through.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

import numpy as np

from rlbook_lib.checks import Array, Floats, LogProbs, Probabilities, Range, checked, library_of

Rows: TypeAlias = Probabilities[Array, "* K"]  # a row is one distribution
Deviations: TypeAlias = Floats[Array, "*", Range(0, open_low=True)]
Base: TypeAlias = Annotated[float, Range(1, open_low=True)] | None
Kind: TypeAlias = Literal["k1", "k2", "k3"]


# ------------------------------------------------------------------------------- entropy and divergences


@checked(arrays="either")
def code_length(p: Floats[Array, "...", Range(0, 1)], base: Base = None) -> Array:
    """The length of the ideal code word of an outcome: -log p, long for rare outcomes.

    Equation: eq-code-length

    0 for a certain outcome, inf for an impossible one; the probabilities p need not sum to one. ``base`` is of the
    logarithm, here and below; None is e (nats), 2 gives bits.

    Source: Shannon (1948); Cover & Thomas (2006), chapter 5.
    """
    library = library_of(p)
    lengths = -library.log(library.where(p > 0, p, 1.0)) + 0.0  # + 0: no minus zero
    return library.where(p > 0, lengths, math.inf) / _unit(base)


@checked(arrays="either")
def entropy(p: Rows, base: Base = None) -> Array:
    """The mean code length of p under its own code: H(p) = -sum over x of p(x) log p(x).

    Equation: eq-entropy

    One number per row, between 0 and log K; a float for numpy input of shape (K,).

    Source: Shannon (1948); Cover & Thomas (2006), section 2.1.
    """
    return cross_entropy(p, p, base)


@checked(arrays="either")
def cross_entropy(p: Rows, q: Rows, base: Base = None) -> Array:
    """The mean code length of p under the code made for q: H(p, q) = -sum over x of p(x) log q(x).

    Equation: eq-cross-entropy

    One number per row, H(p) or more; inf where q gives 0 to an outcome that p can have.

    Source: Cover & Thomas (2006), theorem 5.4.3.
    """
    library = library_of(p, q)
    terms = -p * library.log(library.where(q > 0, q, 1.0))  # 0 log 0 = 0
    terms = library.where((p > 0) & (q == 0), math.inf, terms)
    return (terms.sum(-1) + 0.0) / _unit(base)  # + 0: no minus zero


@checked(arrays="either")
def kl_divergence(p: Rows, q: Rows, base: Base = None) -> Array:
    """The code length that q's code wastes on p: KL(p || q) = sum over x of p(x) log (p(x) / q(x)).

    Equation: eq-kl

    One number per row: 0 where p = q, positive elsewhere, inf where q gives 0 to an outcome that p can have.

    Source: Kullback & Leibler (1951); Cover & Thomas (2006), section 2.3.
    """
    library = library_of(p, q)
    log_ratio = library.log(library.where(p > 0, p, 1.0)) - library.log(library.where(q > 0, q, 1.0))
    total = library.where((p > 0) & (q == 0), math.inf, p * log_ratio).sum(-1)
    # rounding can take it below 0; it moves back without moving its gradient
    total = np.maximum(total, 0.0) if library is np else total + (-total.detach()).clamp(min=0.0)
    return total / _unit(base)


@checked(arrays="either")
def gaussian_kl(mean_p: Floats[Array, "*"], std_p: Deviations, mean_q: Floats[Array, "*"], std_q: Deviations) -> Array:
    """KL(p || q) of two Gaussians with independent components, in nats.

    Equation: eq-gaussian-kl

    Each component adds log(std_q / std_p) + (std_p^2 + (mean_p - mean_q)^2) / (2 std_q^2) - 1/2.

    Arguments are (d,) or (..., d), or numbers for one component; the sum is over the last axis.

    Source: a Gaussian integral, worked out in chapter 8.
    """
    ratio = std_p / std_q
    terms = ((mean_p - mean_q) / std_q) ** 2 / 2 + (ratio**2 - 1) / 2 - library_of(ratio).log(ratio)
    return terms.sum(-1) if terms.ndim else terms


@checked(arrays="either")
def jensen_shannon(p: Rows, q: Rows, base: Base = None) -> Array:
    """KL's symmetric, bounded relative: the mean of KL(p || m) and KL(q || m), m halfway between them.

    Equation: eq-jensen-shannon

    One number per row, between 0 (p = q) and log 2 (no outcome in common).

    Source: Lin (1991).
    """
    middle = (p + q) / 2
    return (kl_divergence(p, middle, base) + kl_divergence(q, middle, base)) / 2


def _unit(base: float | None) -> float:
    """Nats per unit of the result: log of the base."""
    return 1.0 if base is None else math.log(base)


# ------------------------------------------------------------------------------- estimators of KL(p || q)


@checked(arrays="either")
def kl_estimate(log_prob: Floats[Array, "..."], log_prob_ref: LogProbs[Array, "..."], kind: Kind = "k3") -> Array:
    """An estimate of KL(p || ref) from each sample of p: k1, k2 or k3.

    Equation: eq-k1, eq-k2, eq-k3

    With u = ref(x) / p(x): k1 = -log u, k2 = (log u)^2 / 2, k3 = (u - 1) - log u. Over samples of p, k1 and
    k3 have the divergence as their mean, if p can have all that ref can (k1 always); k2 nearly so, near
    p = ref. k2 and k3 are never negative, and 0 at u = 1.

    The arguments are log p(x) and log ref(x) of samples x ~ p, nats; where the second is -inf, ref cannot have the sample,
    and the estimate is inf.

    Source: Schulman (2020), "Approximating KL divergence".
    """
    log_u = log_prob_ref - log_prob
    if kind == "k1":
        return -log_u
    if kind == "k2":
        return log_u**2 / 2
    library = library_of(log_u)
    with np.errstate(over="ignore"):  # u beyond the largest number is inf, and so is the estimate
        estimate = library.expm1(log_u) - log_u  # expm1 keeps the digits of u - 1 where p and ref are close
    # rounding can take the last digit below 0
    return np.maximum(estimate, 0.0) if library is np else estimate.clamp(min=0.0)


@checked
def kl_estimate_moments(
    p: Probabilities[Array, "K"], ref: Probabilities[Array, "K"], kind: Kind = "k3"
) -> tuple[float, float]:
    """The exact mean and variance of one estimate of KL(p || ref), over samples of p, in nats and nats squared.

    The mean is inf where ref misses an outcome that p can have.

    Source: a sum over the outcomes; Schulman (2020).
    """
    p, ref = p[p > 0].astype(float), ref[p > 0].astype(float)
    if (ref == 0).any():
        return math.inf, math.nan
    k = kl_estimate(np.log(p), np.log(ref), kind)
    mean = float(p @ k)
    return mean, float(p @ (k - mean) ** 2)


@checked(arrays="either")
def kl_gradient_of_estimate(
    logits: Floats[Array, "... K"], logits_ref: Floats[Array, "... K"], kind: Kind = "k3"
) -> Array:
    """The expected gradient of an estimate that is used as a loss on samples of the softmax policy.

    Equation: eq-kl-gradient

    Automatic differentiation takes the samples as given, so the mean gradient of the estimate is not the
    gradient of its mean. It is E[c(x) grad log p(x)] with c = 1 for k1, -log u for k2 and 1 - u for k3:
    nothing at all for k1, the gradient of KL(p || ref) for k2, that of KL(ref || p) for k3.

    Here p = softmax(logits) and ref = softmax(logits_ref); the gradient is by ``logits``.

    Source: Tang & Munos (2025); the derivation is in chapter 8.
    """
    library = library_of(logits, logits_ref)
    log_p, log_ref = _log_softmax(logits), _log_softmax(logits_ref)
    log_u = log_ref - log_p
    c = {"k1": library.ones_like(log_u), "k2": -log_u, "k3": -library.expm1(log_u)}[kind]
    p = library.exp(log_p)
    mean = (p * c).sum(-1)[..., None]  # (..., 1)
    return p * (c - mean)  # sum over x of p(x) c(x) (1[x = k] - p(k)), for each logit k


def _log_softmax(logits: Array) -> Array:
    """log softmax over the last axis."""
    library = library_of(logits)
    shifted = logits - (logits.max(-1, keepdims=True) if library is np else logits.amax(-1, keepdim=True))
    return shifted - library.log(library.exp(shifted).sum(-1))[..., None]


# -------------------------------------------------------------------------------------- importance sampling


@checked(arrays="either")
def importance_weights(log_prob: LogProbs[Array, "..."], log_prob_proposal: Floats[Array, "..."]) -> Array:
    """How much a sample of the proposal counts for the target: w(x) = p(x) / q(x).

    Equation: eq-importance-weights

    The arguments are log p(x) and log q(x) of samples x ~ q; -inf where p cannot have x. The mean weight over q is 1 if q
    can have all that p can.

    Source: Sutton & Barto (2018), section 5.5; Owen (2013), chapter 9.
    """
    with np.errstate(over="ignore"):  # a ratio beyond the largest number is inf
        return library_of(log_prob, log_prob_proposal).exp(log_prob - log_prob_proposal)


@checked(arrays="either")
def importance_estimate(
    values: Floats[Array, "n ..."], log_prob: LogProbs[Array, "n"], log_prob_proposal: Floats[Array, "n"]
) -> Array:
    """The mean of f under p from samples of q: the mean of w(x) f(x).

    Equation: eq-importance-sampling

    Its mean is right if the proposal can have every outcome where p f is not 0. Samples alone cannot show
    whether that holds; ``importance_variance`` checks it for distributions that are written out.

    ``values`` are f(x) of samples x ~ q, samples first; the other two log p(x) and log q(x) of the samples.

    Source: Sutton & Barto (2018), equation 5.5; Owen (2013), section 9.1.
    """
    weights = importance_weights(log_prob, log_prob_proposal)
    return (_beside(values, weights) * values).mean(0)


@checked(arrays="either")
def self_normalized_estimate(
    values: Floats[Array, "n ..."], log_prob: LogProbs[Array, "n"], log_prob_proposal: Floats[Array, "n"]
) -> Array:
    """The weighted mean sum w f / sum w: a little biased, never outside the range of f, no constants needed.

    Equation: eq-self-normalized

    The arguments are those of ``importance_estimate``; a constant that is missing in the log-probabilities cancels.

    Raises:
        ValueError: all weights are 0.

    Source: Sutton & Barto (2018), equation 5.6; Owen (2013), section 9.2.
    """
    log_ratio = log_prob - log_prob_proposal
    largest = log_ratio.max() if library_of(log_ratio) is np else log_ratio.max().detach()
    if largest == -math.inf:
        raise ValueError("all weights are 0; expected a sample that the target can have")
    # the largest cancels, and keeps exp from overflowing
    weights = _beside(values, library_of(log_ratio).exp(log_ratio - largest))
    return (weights * values).sum(0) / weights.sum(0)


def _beside(values: Array, weights: Array) -> Array:
    """Weights (n,) in a shape that multiplies values (n, ...)."""
    return weights.reshape((-1,) + (1,) * (values.ndim - 1))


@checked(arrays="either")
def effective_sample_size(weights: Floats[Array, "n ...", Range(0)]) -> Array:
    """How many equally weighted samples are worth as much: (sum w)^2 / sum w^2, from 1 to n.

    Equation: eq-effective-sample-size

    There is one number for each of the other axes; a factor on all weights cancels. Weights that are all 0 are a ValueError.

    Source: Kish (1965); Owen (2013), section 9.3.
    """
    largest = weights.max(0) if library_of(weights) is np else weights.amax(0)
    if not bool((largest > 0).all()):
        raise ValueError("weights are all 0; expected at least one positive weight")
    weights = weights / largest  # squares neither overflow nor vanish
    return weights.sum(0) ** 2 / (weights**2).sum(0)


@checked(arrays="either")
def importance_variance(
    p: Probabilities[Array, "K"], q: Probabilities[Array, "K"], values: Floats[Array, "K"]
) -> Array:
    """The exact variance of w(x) f(x) for one sample x ~ q: sum of p^2 f^2 / q, minus the square of the mean.

    Equation: eq-importance-variance

    p is the target, q the proposal, ``values`` are f(x) of each outcome: all ones give the variance of the weights, and
    q = p that of f. A mean of n samples has an n-th of it.

    Raises:
        ValueError: a proposal that is 0 where p f is not (the estimate would have the wrong mean).

    Source: Owen (2013), section 9.1.
    """
    product = p * values
    if bool(((product != 0) & (q == 0)).any()):
        raise ValueError("q gives 0 to an outcome where p f is not 0; expected a proposal that can have it")
    weighted = product / library_of(q).where(q > 0, q, 1.0)  # w f
    mean = product.sum(-1)
    return (q * (weighted - mean) ** 2).sum(-1)


@checked(arrays="either")
def trajectory_ratio(log_prob: LogProbs[Array, "T N?"], log_prob_old: Floats[Array, "T N?"]) -> Array:
    """The ratio of two policies' probabilities of the same path: the product of the ratios of its actions.

    Equation: eq-trajectory-ratio

    The start and the transitions are the same under both policies, and cancel. The arguments are log pi(a_t | s_t) under
    the policy asked about and the one that acted, time first; there is one ratio for each path.

    Source: Sutton & Barto (2018), equation 5.3.
    """
    return importance_weights(log_prob.sum(0), log_prob_old.sum(0))
