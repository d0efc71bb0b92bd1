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
import numbers
from typing import Any, TypeAlias

import numpy as np

from rlbook_lib.returns import _library_of

__all__ = [
    "code_length",
    "entropy",
    "cross_entropy",
    "kl_divergence",
    "gaussian_kl",
    "jensen_shannon",
    "kl_estimate",
    "kl_estimate_moments",
    "kl_gradient_of_estimate",
    "importance_weights",
    "importance_estimate",
    "self_normalized_estimate",
    "effective_sample_size",
    "importance_variance",
    "trajectory_ratio",
]

Array: TypeAlias = Any  # a numpy array or a torch tensor; float32 in, float32 out

KINDS = ("k1", "k2", "k3")


# ------------------------------------------------------------------------------- entropy and divergences


def code_length(p: Array, base: float | None = None) -> Array:
    """The length of the ideal code word of an outcome: -log p, long for rare outcomes.

    Equation: eq-code-length

    Args:
        p: probabilities, any shape, in [0, 1]; they need not sum to one.
        base: of the logarithm, above 1; None is e (nats), 2 gives bits.

    Returns:
        The same shape; 0 for a certain outcome, inf for an impossible one. A float for a number.

    Raises:
        ValueError: a probability outside [0, 1] or NaN; an empty array; a base of 1 or less.
        TypeError: p or base are not numbers.

    Source: Shannon (1948); Cover & Thomas (2006), chapter 5.
    """
    library = _library_of(p)
    p = _floats(library, "p", p)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError("p holds values outside [0, 1]; expected probabilities")
    possible = p > 0
    lengths = -library.log(library.where(possible, p, 1.0)) + 0.0  # + 0: no minus zero
    return _plain(library, library.where(possible, lengths, math.inf) / _unit(base))


def entropy(p: Array, base: float | None = None) -> Array:
    """The mean code length of p under its own code: H(p) = -sum over x of p(x) log p(x).

    Equation: eq-entropy

    Args:
        p: (K,) or (..., K), probabilities, each row sums to one.
        base: of the logarithm, above 1; None is e (nats), 2 gives bits.

    Returns:
        One entropy per row, between 0 and log K; a float for numpy input of shape (K,).

    Raises:
        ValueError: a row that is no distribution; a base of 1 or less.
        TypeError: p or base are not numbers.

    Source: Shannon (1948); Cover & Thomas (2006), section 2.1.
    """
    library, (p,) = _distributions(p=p)
    return _plain(library, _cross_entropy(library, p, p) / _unit(base))


def cross_entropy(p: Array, q: Array, base: float | None = None) -> Array:
    """The mean code length of p under the code made for q: H(p, q) = -sum over x of p(x) log q(x).

    Equation: eq-cross-entropy

    Args:
        p: (K,) or (..., K), the distribution the outcomes come from; each row sums to one.
        q: of a shape that goes with p, the distribution the code is made for.
        base: of the logarithm, above 1; None is e (nats), 2 gives bits.

    Returns:
        One number per row, H(p) or more; inf where q gives 0 to an outcome that p can have.

    Raises:
        ValueError: a row that is no distribution; different numbers of outcomes; a base of 1 or less.
        TypeError: an argument is not a number or an array of numbers.

    Source: Cover & Thomas (2006), theorem 5.4.3.
    """
    library, (p, q) = _distributions(p=p, q=q)
    return _plain(library, _cross_entropy(library, p, q) / _unit(base))


def kl_divergence(p: Array, q: Array, base: float | None = None) -> Array:
    """The code length that q's code wastes on p: KL(p || q) = sum over x of p(x) log (p(x) / q(x)).

    Equation: eq-kl

    Args:
        p: (K,) or (..., K), the distribution the outcomes come from; each row sums to one.
        q: of a shape that goes with p.
        base: of the logarithm, above 1; None is e (nats), 2 gives bits.

    Returns:
        One number per row: 0 where p = q, positive elsewhere, inf where q gives 0 to an outcome that p can
        have.

    Raises:
        ValueError: a row that is no distribution; different numbers of outcomes; a base of 1 or less.
        TypeError: an argument is not a number or an array of numbers.

    Source: Kullback & Leibler (1951); Cover & Thomas (2006), section 2.3.
    """
    library, (p, q) = _distributions(p=p, q=q)
    return _plain(library, _kl(library, p, q) / _unit(base))


def gaussian_kl(mean_p: Array, std_p: Array, mean_q: Array, std_q: Array) -> Array:
    """KL(p || q) of two Gaussians with independent components, in nats.

    Equation: eq-gaussian-kl

    Each component adds log(std_q / std_p) + (std_p^2 + (mean_p - mean_q)^2) / (2 std_q^2) - 1/2.

    Args:
        mean_p: (d,) or (..., d), or a number for one component.
        std_p: standard deviations, positive; a shape that goes with mean_p.
        mean_q: a shape that goes with mean_p.
        std_q: standard deviations, positive; a shape that goes with mean_p.

    Returns:
        The sum over the last axis; a float where all arguments are numbers or numpy vectors.

    Raises:
        ValueError: a standard deviation that is not positive; a value that is not finite; an empty array;
            shapes that do not go together.
        TypeError: an argument is not a number or an array of numbers.

    Source: a Gaussian integral, worked out in chapter 8.
    """
    library = _library_of(mean_p, std_p, mean_q, std_q)
    named = {"mean_p": mean_p, "std_p": std_p, "mean_q": mean_q, "std_q": std_q}
    arrays = _together(library, named)
    for name, array in arrays.items():
        _check(bool(library.isfinite(array).all()), f"{name} holds NaN or infinite values")
        _check(name[0] == "m" or bool((array > 0).all()), f"{name} holds values of 0 or less")
    return _plain(library, _gaussian_kl(library, *arrays.values()))


def jensen_shannon(p: Array, q: Array, base: float | None = None) -> Array:
    """KL's symmetric, bounded relative: the mean of KL(p || m) and KL(q || m), m halfway between them.

    Equation: eq-jensen-shannon

    Args:
        p: (K,) or (..., K), each row sums to one.
        q: of a shape that goes with p.
        base: of the logarithm, above 1; None is e (nats), 2 gives bits.

    Returns:
        One number per row, between 0 (p = q) and log 2 (no outcome in common).

    Raises:
        ValueError: a row that is no distribution; different numbers of outcomes; a base of 1 or less.
        TypeError: an argument is not a number or an array of numbers.

    Source: Lin (1991).
    """
    library, (p, q) = _distributions(p=p, q=q)
    middle = (p + q) / 2
    return _plain(library, (_kl(library, p, middle) + _kl(library, q, middle)) / 2 / _unit(base))


# ------------------------------------------------------------------------------- estimators of KL(p || q)


def kl_estimate(log_prob: Array, log_prob_ref: Array, kind: str = "k3") -> Array:
    """An estimate of KL(p || ref) from each sample of p: k1, k2 or k3.

    Equation: eq-k1, eq-k2, eq-k3

    With u = ref(x) / p(x): k1 = -log u, k2 = (log u)^2 / 2, k3 = (u - 1) - log u. Over samples of p, k1 and
    k3 have the divergence as their mean, if p can have all that ref can (k1 always); k2 nearly so, near
    p = ref. k2 and k3 are never negative, and 0 at u = 1.

    Args:
        log_prob: log p(x) of samples x ~ p, any shape, finite, nats.
        log_prob_ref: log ref(x) of the same samples, same shape; -inf where ref cannot have x.
        kind: "k1", "k2" or "k3".

    Returns:
        One estimate per sample, nats; inf where ref cannot have the sample. A float for numbers.

    Raises:
        ValueError: shapes that differ, an empty array, NaN, a log_prob that is not finite, a kind of another
            name.
        TypeError: an argument of the wrong type.

    Source: Schulman (2020), "Approximating KL divergence".
    """
    library, log_prob, log_prob_ref = _log_pair("log_prob", log_prob, "log_prob_ref", log_prob_ref)
    return _plain(library, _kl_estimate(library, log_prob, log_prob_ref, _checked_kind(kind)))


def kl_estimate_moments(
    p: Array, ref: Array, kind: str = "k3", sampling: Array | None = None
) -> tuple[float, float]:
    """The exact mean and variance of one estimate of KL(p || ref), over samples of p or of something else.

    Args:
        p: (K,), sums to one.
        ref: (K,), sums to one; positive where outcomes are sampled.
        kind: "k1", "k2" or "k3".
        sampling: (K,), the distribution the samples really come from, positive only where p is; None is p.
            With an older policy in its place, no estimator has the divergence as its mean.

    Returns:
        (mean, variance), in nats and nats squared. The mean is inf where ref misses a sampled outcome.

    Raises:
        ValueError: a row that is no distribution; different lengths; a kind of another name; a sampled
            outcome that p cannot have.
        TypeError: an argument is not an array of numbers.

    Source: a sum over the outcomes; Schulman (2020).
    """
    library, rows = _distributions(p=p, ref=ref, sampling=p if sampling is None else sampling)
    p, ref, weights = (np.asarray(x if library is np else x.detach().cpu(), dtype=float) for x in rows)
    _check(p.shape == ref.shape == weights.shape and p.ndim == 1, "p, ref and sampling must have shape (K,)")
    seen = weights > 0
    _check(bool((p[seen] > 0).all()), "sampling gives mass to an outcome that p cannot have")
    if (ref[seen] == 0).any():
        return math.inf, math.nan
    k = _kl_estimate(np, np.log(p[seen]), np.log(ref[seen]), _checked_kind(kind))
    mean = float(weights[seen] @ k)
    return mean, float(weights[seen] @ (k - mean) ** 2)


def kl_gradient_of_estimate(logits: Array, logits_ref: Array, kind: str = "k3") -> Array:
    """The expected gradient of an estimate that is used as a loss on samples of the softmax policy.

    Equation: eq-kl-gradient

    Automatic differentiation takes the samples as given, so the mean gradient of the estimate is not the
    gradient of its mean. It is E[c(x) grad log p(x)] with c = 1 for k1, -log u for k2 and 1 - u for k3:
    nothing at all for k1, the gradient of KL(p || ref) for k2, that of KL(ref || p) for k3.

    Args:
        logits: (K,) or (..., K), finite; p = softmax(logits).
        logits_ref: same shape; ref = softmax(logits_ref).
        kind: "k1", "k2" or "k3".

    Returns:
        The expected gradient with respect to the logits, the same shape.

    Raises:
        ValueError: shapes that differ, an empty array, values that are not finite, a kind of another name.
        TypeError: an argument is not an array of numbers.

    Source: Tang & Munos (2025); the derivation is in chapter 8.
    """
    library = _library_of(logits, logits_ref)
    arrays = _together(library, {"logits": logits, "logits_ref": logits_ref})
    for name, array in arrays.items():
        finite = bool(library.isfinite(array).all())
        _check(array.ndim > 0 and finite, f"{name} must be finite, of shape (K,) or (..., K)")
    shapes = [tuple(array.shape) for array in arrays.values()]
    _check(shapes[0] == shapes[1], f"logits_ref has shape {shapes[1]}; logits has {shapes[0]}")
    log_p, log_ref = (_log_softmax(library, x) for x in arrays.values())
    log_ratio = log_ref - log_p  # log u
    factor = {
        "k1": library.ones_like(log_ratio),
        "k2": -log_ratio,
        "k3": -library.expm1(log_ratio),
    }[_checked_kind(kind)]
    p = library.exp(log_p)
    mean = (p * factor).sum(-1)[..., None]  # (..., 1)
    return p * (factor - mean)  # sum over x of p(x) c(x) (1[x = k] - p(k)), for each logit k


# -------------------------------------------------------------------------------------- importance sampling


def importance_weights(log_prob: Array, log_prob_proposal: Array) -> Array:
    """How much a sample of the proposal counts for the target: w(x) = p(x) / q(x).

    Equation: eq-importance-weights

    Args:
        log_prob: log p(x) under the target of samples x ~ q, any shape; -inf where p cannot have x.
        log_prob_proposal: log q(x) under the proposal they came from, same shape, finite.

    Returns:
        One weight per sample, 0 or more, same shape; its mean over q is 1 if q can have all that p can.

    Raises:
        ValueError: shapes that differ, an empty array, NaN, or a sample that the proposal cannot have given.
        TypeError: an argument is not an array of numbers.

    Source: Sutton & Barto (2018), section 5.5; Owen (2013), chapter 9.
    """
    library, proposal, target = _log_pair("log_prob_proposal", log_prob_proposal, "log_prob", log_prob)
    return _plain(library, _weights(library, target, proposal))


def importance_estimate(values: Array, log_prob: Array, log_prob_proposal: Array) -> Array:
    """The mean of f under p from samples of q: the mean of w(x) f(x).

    Equation: eq-importance-sampling

    Its mean is right if the proposal can have every outcome where p f is not 0. Samples alone cannot show
    whether that holds; ``importance_variance`` checks it for distributions that are written out.

    Args:
        values: f(x) of samples x ~ q, samples first: (n,) or (n, ...), finite.
        log_prob: log p(x) of the samples, (n,).
        log_prob_proposal: log q(x) of the samples, (n,), finite.

    Returns:
        The estimate: a float, or the shape that is left without the samples' axis.

    Raises:
        ValueError: lengths that differ, NaN, no samples, or a sample that the proposal cannot have given.
        TypeError: an argument is not an array of numbers.

    Source: Sutton & Barto (2018), equation 5.5; Owen (2013), section 9.1.
    """
    library, values, weights = _weighted_samples(values, log_prob, log_prob_proposal)
    return _plain(library, (weights * values).mean(0))


def self_normalized_estimate(values: Array, log_prob: Array, log_prob_proposal: Array) -> Array:
    """The weighted mean sum w f / sum w: a little biased, never outside the range of f, no constants needed.

    Equation: eq-self-normalized

    Args:
        values: f(x) of samples x ~ q, samples first: (n,) or (n, ...), finite.
        log_prob: log p(x) of the samples, (n,); a constant that is missing cancels.
        log_prob_proposal: log q(x) of the samples, (n,), finite; likewise.

    Returns:
        The estimate: a float, or the shape that is left without the samples' axis.

    Raises:
        ValueError: lengths that differ, NaN, no samples, all weights 0, or a sample that the proposal
            cannot have given.
        TypeError: an argument is not an array of numbers.

    Source: Sutton & Barto (2018), equation 5.6; Owen (2013), section 9.2.
    """
    library, proposal, target = _log_pair("log_prob_proposal", log_prob_proposal, "log_prob", log_prob)
    _check(target.ndim == 1, "log_prob must have shape (n,)")
    _check(bool((target > -math.inf).any()), "all weights are 0: the target can have none of the samples")
    ratio = target - proposal
    largest = ratio.max() if library is np else ratio.max().detach()  # cancels; keeps exp from overflowing
    library, values, weights = _weighted_samples(values, ratio - largest, library.zeros_like(ratio))
    return _plain(library, (weights * values).sum(0) / weights.sum(0))


def effective_sample_size(weights: Array) -> Array:
    """How many equally weighted samples are worth as much: (sum w)^2 / sum w^2, from 1 to n.

    Equation: eq-effective-sample-size

    Args:
        weights: (n,) or (n, ...), samples first; 0 or more, finite, not all 0.

    Returns:
        A float, or one number for each of the other axes; a factor on all weights cancels.

    Raises:
        ValueError: weights negative, not finite, all 0, or empty.
        TypeError: weights are not numbers.

    Source: Kish (1965); Owen (2013), section 9.3.
    """
    library = _library_of(weights)
    weights = _floats(library, "weights", weights)
    _check(weights.ndim > 0, "weights must have shape (n,) or (n, ...)")
    _check(bool(library.isfinite(weights).all()), "weights holds NaN or infinite values")
    _check(bool((weights >= 0).all()), "weights holds negative values; expected 0 or more")
    _check(bool((weights > 0).any(0).all()), "weights are all 0; expected at least one positive weight")
    largest = weights.max(0) if library is np else weights.amax(0)
    weights = weights / largest  # squares neither overflow nor vanish
    return _plain(library, weights.sum(0) ** 2 / (weights**2).sum(0))


def importance_variance(p: Array, q: Array, values: Array) -> Array:
    """The exact variance of w(x) f(x) for one sample x ~ q: sum of p^2 f^2 / q, minus the square of the mean.

    Equation: eq-importance-variance

    Args:
        p: (K,), the target, sums to one.
        q: (K,), the proposal, sums to one; positive wherever p f is not 0 (the support condition).
        values: (K,), f(x) of each outcome, finite. All ones give the variance of the weights.

    Returns:
        The variance, a float (or a 0-d tensor); that of a mean of n samples is n times smaller. With q = p
        it is the variance of f.

    Raises:
        ValueError: a row that is no distribution, different lengths, values that are not finite, or a
            proposal without the support (the estimate would have the wrong mean).
        TypeError: an argument is not an array of numbers.

    Source: Owen (2013), section 9.1.
    """
    library, (p, q) = _distributions(p=p, q=q)
    values = _together(library, {"values": values, "p": p})["values"]
    _check(p.shape == q.shape == values.shape and p.ndim == 1, "p, q and values must all have shape (K,)")
    _check(bool(library.isfinite(values).all()), "values holds NaN or infinite values")
    product = p * values
    _check(not bool(((product != 0) & (q == 0)).any()), "q gives 0 to an outcome where p f is not 0")
    weighted = product / library.where(q > 0, q, 1.0)  # w f
    mean = product.sum(-1)
    return _plain(library, (q * (weighted - mean) ** 2).sum(-1))


def trajectory_ratio(log_prob: Array, log_prob_old: Array) -> Array:
    """The ratio of two policies' probabilities of the same path: the product of the ratios of its actions.

    Equation: eq-trajectory-ratio

    The start and the transitions are the same under both policies, and cancel.

    Args:
        log_prob: log pi(a_t | s_t) under the policy asked about, (T,) or (T, N), time first.
        log_prob_old: the same under the policy that acted, same shape, finite.

    Returns:
        A float, or (N,): one ratio for each path.

    Raises:
        ValueError: shapes that differ, NaN, no steps, or an action that the old policy cannot have taken.
        TypeError: an argument is not an array of numbers.

    Source: Sutton & Barto (2018), equation 5.3.
    """
    library, old, new = _log_pair("log_prob_old", log_prob_old, "log_prob", log_prob)
    _check(old.ndim in (1, 2), "log_prob must have shape (T,) or (T, N)")
    return _plain(library, _weights(library, new.sum(0), old.sum(0)))


# --------------------------------------------------------------------- the formulas, without the checks


def _cross_entropy(library: Any, p: Array, q: Array) -> Array:
    """-sum p log q over the last axis, with 0 log 0 = 0, and inf where q misses what p has."""
    terms = -p * library.log(library.where(q > 0, q, 1.0))
    return library.where((p > 0) & (q == 0), math.inf, terms).sum(-1) + 0.0  # + 0: no minus zero


def _kl(library: Any, p: Array, q: Array) -> Array:
    """sum p (log p - log q) over the last axis, by the same rules, and no rounding error below 0."""
    log_ratio = library.log(library.where(p > 0, p, 1.0)) - library.log(library.where(q > 0, q, 1.0))
    total = library.where((p > 0) & (q == 0), math.inf, p * log_ratio).sum(-1)
    if library is np:
        return np.maximum(total, 0.0)
    return total + (-total.detach()).clamp(min=0.0)  # moves the value only, never the gradient


def _gaussian_kl(library: Any, mean_p: Array, std_p: Array, mean_q: Array, std_q: Array) -> Array:
    """The closed form, summed over the last axis where there is one."""
    ratio = std_p / std_q
    terms = ((mean_p - mean_q) / std_q) ** 2 / 2 + (ratio**2 - 1) / 2 - library.log(ratio)
    return terms.sum(-1) if terms.ndim else terms


def _kl_estimate(library: Any, log_prob: Array, log_prob_ref: Array, kind: str) -> Array:
    """k1, k2 or k3; expm1 keeps the digits of u - 1 where p and ref are close."""
    log_ratio = log_prob_ref - log_prob  # log u
    if kind == "k1":
        return -log_ratio
    if kind == "k2":
        return log_ratio**2 / 2
    with np.errstate(over="ignore"):  # u beyond the largest number is inf, and so is the estimate
        estimate = library.expm1(log_ratio) - log_ratio
    # rounding can take the last digit below 0
    return np.maximum(estimate, 0.0) if library is np else estimate.clamp(min=0.0)


def _weights(library: Any, log_prob: Array, log_prob_old: Array) -> Array:
    """exp(log p - log q): inf where the ratio is beyond the largest number."""
    with np.errstate(over="ignore"):
        return library.exp(log_prob - log_prob_old)


def _log_softmax(library: Any, logits: Array) -> Array:
    """log softmax over the last axis."""
    shifted = logits - (logits.max(-1, keepdims=True) if library is np else logits.amax(-1, keepdim=True))
    return shifted - library.log(library.exp(shifted).sum(-1))[..., None]


# ------------------------------------------------------------------------------------------------ the door


def _distributions(**named: Array) -> tuple[Any, list[Array]]:
    """Checked rows of one floating type whose shapes go together, and the library they belong to."""
    library = _library_of(*named.values())
    arrays = _together(library, named)
    for name, array in arrays.items():
        _check(array.ndim > 0, f"{name} is a number; expected (K,) or (..., K)")
        _check(bool((array >= 0).all()), f"{name} holds negative values or NaN; expected probabilities")
        total = array.sum(-1) if library is np else array.detach().sum(-1)
        error = float(abs(total - 1).max())
        tolerance = 1e-6 if array.dtype == library.float64 else 1e-3
        _check(error <= tolerance, f"{name} has a row whose sum differs from 1 by {error:.1e}")
    outcomes = {name: array.shape[-1] for name, array in arrays.items()}
    _check(len(set(outcomes.values())) == 1, f"numbers of outcomes differ: {outcomes}")
    return library, list(arrays.values())


def _log_pair(name: str, log_prob: Array, other: str, log_prob_other: Array) -> tuple[Any, Array, Array]:
    """Two log-probabilities of the same samples; the samples came from the first, so that one is finite."""
    library = _library_of(log_prob, log_prob_other)
    arrays = _together(library, {name: log_prob, other: log_prob_other})
    first, second = arrays[name], arrays[other]
    _check(first.shape == second.shape,
           f"{other} has shape {tuple(second.shape)}; {name} has {tuple(first.shape)}")
    _check(bool(library.isfinite(first).all()), f"{name} must be finite: the samples came from it")
    _check(bool((second < math.inf).all()), f"{other} holds NaN or inf; expected numbers or -inf")
    return library, first, second


def _weighted_samples(values: Array, log_prob: Array, log_prob_proposal: Array) -> tuple[Any, Array, Array]:
    """Values (n, ...) and weights of a shape that multiplies them."""
    library = _library_of(values, log_prob, log_prob_proposal)
    _, proposal, target = _log_pair("log_prob_proposal", log_prob_proposal, "log_prob", log_prob)
    values = _floats(library, "values", values, getattr(target, "device", None))
    _check(target.ndim == 1, "log_prob must have shape (n,)")
    _check(values.ndim > 0 and len(values) == len(target),
           f"values has shape {tuple(values.shape)}; expected ({len(target)},) or ({len(target)}, ...)")
    _check(bool(library.isfinite(values).all()), "values holds NaN or infinite values")
    weights = _weights(library, target, proposal)
    return library, values, weights.reshape((-1,) + (1,) * (values.ndim - 1))


def _together(library: Any, named: dict[str, Array]) -> dict[str, Array]:
    """The arguments as arrays of one floating type; shapes must go together."""
    device = next((x.device for x in named.values() if hasattr(x, "is_complex")), None)  # of the first tensor
    arrays = {name: _floats(library, name, array, device) for name, array in named.items()}
    kind = next(iter(arrays.values())).dtype
    for array in arrays.values():
        kind = library.promote_types(kind, array.dtype)
    try:
        np.broadcast_shapes(*(tuple(array.shape) for array in arrays.values()))
    except ValueError:
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        raise ValueError(f"shapes do not go together: {shapes}") from None
    return {n: a.astype(kind, copy=False) if library is np else a.to(kind) for n, a in arrays.items()}


def _floats(library: Any, name: str, array: Array, device: Any = None) -> Array:
    """One argument as an array of floating numbers, not empty; beside tensors, a tensor."""
    shape = tuple(np.shape(array))
    _check(0 not in shape, f"{name} has shape {shape}; expected an array that is not empty")
    if library is not np and isinstance(array, library.Tensor):
        if array.is_complex():
            raise TypeError(f"{name} has type {array.dtype}; expected real numbers")
        return array if array.is_floating_point() else array.to(library.get_default_dtype())
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} has type {array.dtype}; expected an array of real numbers")
    array = array if array.dtype.kind == "f" else array.astype(float)
    return array if library is np else library.as_tensor(array, device=device)


def _unit(base: float | None) -> float:
    """Nats per unit of the result: log of the base."""
    if base is None:
        return 1.0
    if isinstance(base, bool) or not isinstance(base, numbers.Real):
        raise TypeError(f"base is {base!r}; expected a number above 1, or None for nats")
    if not 1.0 < base < math.inf:
        raise ValueError(f"base is {base}; expected a number above 1, or None for nats")
    return math.log(base)


def _checked_kind(kind: str) -> str:
    if not isinstance(kind, str):
        raise TypeError(f"kind is {kind!r}; expected one of {KINDS}")
    _check(kind in KINDS, f"kind is {kind!r}; expected one of {KINDS}")
    return kind


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _plain(library: Any, result: Array) -> Array:
    """A single numpy number as a float; anything else as it is."""
    return float(result) if library is np and np.ndim(result) == 0 else result
