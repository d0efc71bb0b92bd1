"""Proximal policy optimization: the clipped and the penalized objective, and training (chapter 10).

The first half holds the formulas, as functions of arrays: what one step contributes to the objective, how the
penalty's coefficient adapts, what the value function loses. numpy arrays, plain numbers and torch tensors are
accepted; gradients flow through tensors, and without a tensor the result is a numpy array or a float.

The second half trains. One update collects ``steps`` steps of ``copies`` environments, computes advantages and
value targets once, and then takes ``epochs`` passes of gradient steps over that data.

Two policies appear everywhere. The old one collected the data and stays fixed during an update; the new one is
being changed. The ratio rho of their probabilities says how much more often the new one takes an action, and
the divergence is KL(old || new).
"""

from __future__ import annotations

import math
import numbers
from typing import Any, TypeAlias

import numpy as np
import torch

__all__ = [
    "probability_ratio",
    "clip_objective",
    "clip_gradient",
    "kl_penalty_objective",
    "update_kl_coefficient",
    "value_loss",
    "ppo_objective",
    "explained_variance",
]

Array: TypeAlias = Any  # a torch tensor, a numpy array or a number; tensor in, tensor out

KL_RULES = {"paper": 1.5, "doubled": 2.0}  # how far the divergence may be off its target, as a factor


# ----------------------------------------------------------------------------------- the objective of one step


def probability_ratio(log_prob: Array, log_prob_old: Array) -> Array:
    """How much more likely the new policy makes each action: rho = pi_new(a|s) / pi_old(a|s).

    Equation: eq-ratio

    Args:
        log_prob: any shape; log pi_new(a|s), natural logarithm.
        log_prob_old: same shape; log pi_old(a|s), of the policy that collected the data.

    Returns:
        exp(log_prob - log_prob_old), the same shape; 1 where the policies agree.

    Raises:
        ValueError: shapes that differ, an empty array, NaN or infinite values.
        TypeError: an argument does not hold numbers.

    Source: Schulman et al. (2017), section 3.
    """
    (log_prob, log_prob_old), give_back = _checked(log_prob=log_prob, log_prob_old=log_prob_old)
    return give_back((log_prob - log_prob_old).exp())


def clip_objective(log_prob: Array, log_prob_old: Array, advantage: Array, epsilon: float) -> Array:
    """What each step adds to the clipped objective: the smaller of rho A and clip(rho, 1 - eps, 1 + eps) A.

    Equation: eq-clip-objective

    To be maximized. It is a lower bound of rho A, and equal to it while rho stays within the range.

    Args:
        log_prob: any shape; log pi_new(a|s).
        log_prob_old: same shape; log pi_old(a|s).
        advantage: same shape, reward units; the estimate of A(s, a).
        epsilon: half the width of the range, above 0 and below 1; 0.1 to 0.3 are usual.

    Returns:
        One number per step, the same shape.

    Raises:
        ValueError: shapes that differ, an empty array, NaN or infinite values, epsilon out of range.
        TypeError: an argument does not hold numbers.

    Source: Schulman et al. (2017), equation 7.
    """
    epsilon = _checked_epsilon(epsilon)
    (log_prob, log_prob_old, advantage), give_back = _checked(
        log_prob=log_prob, log_prob_old=log_prob_old, advantage=advantage
    )
    return give_back(_clip_objective(log_prob, log_prob_old, advantage, epsilon))


def _clip_objective(
    log_prob: torch.Tensor, log_prob_old: torch.Tensor, advantage: torch.Tensor, epsilon: float
) -> torch.Tensor:
    ratio = (log_prob - log_prob_old).exp()
    clipped = ratio.clamp(1.0 - epsilon, 1.0 + epsilon)
    return torch.minimum(ratio * advantage, clipped * advantage)


def clip_gradient(ratio: Array, advantage: Array, epsilon: float) -> Array:
    """The derivative of the clipped objective by the ratio: A, or 0 where going on would gain nothing.

    Equation: eq-clip-gradient

    It is 0 in two cases only: A > 0 and rho > 1 + epsilon, or A < 0 and rho < 1 - epsilon. In the other two
    cases outside the range the ratio has moved against the advantage, and the gradient pulls it back. On an
    edge of the range, where the objective has a kink, this returns A, as automatic differentiation does.

    Args:
        ratio: any shape, above 0.
        advantage: same shape, reward units.
        epsilon: half the width of the range, above 0 and below 1.

    Returns:
        The derivative for each step, the same shape.

    Raises:
        ValueError: shapes that differ, an empty array, NaN or infinite values, a ratio that is not above 0,
            epsilon out of range.
        TypeError: an argument does not hold numbers.

    Source: the derivative of equation 7 of Schulman et al. (2017).
    """
    epsilon = _checked_epsilon(epsilon)
    (ratio, advantage), give_back = _checked(ratio=ratio, advantage=advantage)
    if not bool((ratio > 0).all()):
        raise ValueError("ratio holds numbers that are not above 0; expected ratios of probabilities")
    nothing_to_gain = ((advantage > 0) & (ratio > 1.0 + epsilon)) | ((advantage < 0) & (ratio < 1.0 - epsilon))
    return give_back(advantage.masked_fill(nothing_to_gain, 0.0))


def kl_penalty_objective(
    log_prob: Array, log_prob_old: Array, advantage: Array, kl: Array, beta: float
) -> Array:
    """What each step adds to the penalized objective: rho A - beta KL(old || new).

    Equation: eq-kl-penalty

    To be maximized.

    Args:
        log_prob: any shape; log pi_new(a|s).
        log_prob_old: same shape; log pi_old(a|s).
        advantage: same shape, reward units.
        kl: same shape, nats, 0 or more; the divergence of the two policies in each state.
        beta: price of one nat, reward units, 0 or more.

    Returns:
        One number per step, the same shape.

    Raises:
        ValueError: shapes that differ, an empty array, NaN or infinite values, a negative beta.
        TypeError: an argument does not hold numbers.

    Source: Schulman et al. (2017), equation 8.
    """
    beta = _checked_number("beta", beta, "0 or more", lambda x: x >= 0)
    (log_prob, log_prob_old, advantage, kl), give_back = _checked(
        log_prob=log_prob, log_prob_old=log_prob_old, advantage=advantage, kl=kl
    )
    return give_back(_kl_penalty_objective(log_prob, log_prob_old, advantage, kl, beta))


def _kl_penalty_objective(
    log_prob: torch.Tensor, log_prob_old: torch.Tensor, advantage: torch.Tensor, kl: torch.Tensor, beta: float
) -> torch.Tensor:
    return (log_prob - log_prob_old).exp() * advantage - beta * kl


def update_kl_coefficient(beta: float, kl: float, target: float, rule: str = "paper") -> float:
    """The penalty's next coefficient: twice as large if the step went too far, half if it was too short.

    Equation: eq-adaptive-beta

    Args:
        beta: the coefficient of the update just done, reward units per nat, above 0.
        kl: the mean KL(old || new) which that update reached, nats.
        target: the divergence that an update should reach, nats, above 0.
        rule: "paper" calls an update too far above 1.5 target and too short below target / 1.5; "doubled"
            above 2 target and below target / 2. On a threshold the coefficient stays.

    Returns:
        2 beta, beta / 2 or beta.

    Raises:
        ValueError: a number out of range, an unknown rule.
        TypeError: an argument is not a number.

    Source: Schulman et al. (2017), section 4, for "paper"; "doubled" is a common variant.
    """
    beta = _checked_number("beta", beta, "above 0", lambda x: x > 0)
    kl = _checked_number("kl", kl, "finite", lambda x: True)  # a sampled estimate may fall below 0
    target = _checked_number("target", target, "above 0", lambda x: x > 0)
    if rule not in KL_RULES:
        raise ValueError(f"rule is {rule!r}; expected one of {', '.join(map(repr, KL_RULES))}")
    factor = KL_RULES[rule]
    too_far, too_short = factor * target, target / factor
    if math.isclose(kl, too_far) or math.isclose(kl, too_short):  # on a threshold, but for rounding
        return beta
    return 2.0 * beta if kl > too_far else 0.5 * beta if kl < too_short else beta


# ------------------------------------------------------------------------------- value loss, total, diagnostics


def value_loss(
    values: Array, targets: Array, values_old: Array | None = None, clip: float | None = None
) -> Array:
    """Half the mean squared error of the values; with a clip, of the worse of two values per state.

    Equation: eq-value-loss

    With ``clip`` the second value is V_old moved toward V by at most ``clip``: a state whose value has moved
    further than that, toward its target, has no gradient. The factor one half is a choice; it makes the
    gradient V - target.

    Args:
        values: any shape, reward units; V(s).
        targets: same shape; constants, whatever they were computed from.
        values_old: same shape; the values at the time of collection; needed with ``clip``.
        clip: how far a value may move, reward units, above 0; None for the plain loss.

    Returns:
        The loss, to be minimized: a 0-d tensor or a float.

    Raises:
        ValueError: shapes that differ, an empty array, NaN or infinite values, a clip that is not above 0, or
            one of ``values_old`` and ``clip`` without the other.
        TypeError: an argument does not hold numbers.

    Source: Schulman et al. (2017), section 5, without the factor one half; the clip is not in the paper but in
    the code its authors published.
    """
    if (values_old is None) != (clip is None):
        missing = "values_old" if values_old is None else "clip"
        raise ValueError(f"{missing} is None; the clipped loss needs both values_old and clip")
    if clip is None:
        (values, targets), give_back = _checked(values=values, targets=targets)
        return give_back(_value_loss(values, targets))
    clip = _checked_number("clip", clip, "above 0", lambda x: x > 0)
    (values, targets, values_old), give_back = _checked(values=values, targets=targets, values_old=values_old)
    return give_back(_value_loss(values, targets, values_old, clip))


def _value_loss(
    values: torch.Tensor, targets: torch.Tensor,
    values_old: torch.Tensor | None = None, clip: float | None = None,
) -> torch.Tensor:
    error = (values - targets.detach()) ** 2
    if values_old is not None and clip is not None:
        nearby = values_old + (values - values_old).clamp(-clip, clip)
        error = torch.maximum(error, (nearby - targets.detach()) ** 2)
    return 0.5 * error.mean()


def ppo_objective(
    surrogate: Array, value_loss: Array, entropy: Array, value_coefficient: float = 0.5,
    entropy_coefficient: float = 0.0,
) -> Array:
    """The total objective, to be maximized: the mean of surrogate - c1 value_loss + c2 entropy.

    Equation: eq-ppo-objective

    The signs: the surrogate and the entropy are wanted large, the value loss small. Optimizers minimize, so
    they get the negative of this.

    Args:
        surrogate: (B,), or its mean; the clipped or penalized objective of each step.
        value_loss: (B,), or its mean, as ``value_loss`` returns it.
        entropy: (B,), or its mean, nats.
        value_coefficient: c1, 0 or more.
        entropy_coefficient: c2, reward units per nat, 0 or more.

    Returns:
        One number: a 0-d tensor or a float.

    Raises:
        ValueError: arrays of different lengths, an empty array, NaN or infinite values, a negative coefficient.
        TypeError: an argument does not hold numbers.

    Source: Schulman et al. (2017), equation 9.
    """
    c1 = _checked_number("value_coefficient", value_coefficient, "0 or more", lambda x: x >= 0)
    c2 = _checked_number("entropy_coefficient", entropy_coefficient, "0 or more", lambda x: x >= 0)
    (surrogate, value_loss, entropy), give_back = _checked(
        surrogate=surrogate, value_loss=value_loss, entropy=entropy, means_allowed=True
    )
    return give_back((surrogate - c1 * value_loss + c2 * entropy).mean())


def explained_variance(values: Array, targets: Array) -> float:
    """How much of the targets' variance the values explain: 1 - Var(targets - values) / Var(targets).

    Equation: eq-explained-variance

    1 is a perfect prediction up to a constant, 0 is as good as any constant, below 0 is worse.

    Args:
        values: any shape, reward units; predictions.
        targets: same shape; what they should have been.

    Returns:
        A number of at most 1. Where the targets do not vary: 1 if the error does not vary either, else 0.

    Raises:
        ValueError: shapes that differ, an empty array, NaN or infinite values.
        TypeError: an argument does not hold numbers.

    Source: the coefficient of determination, for an error with its mean removed.
    """
    (values, targets), _ = _checked(values=values, targets=targets)
    return _explained_variance(values.detach(), targets.detach())


def _explained_variance(values: torch.Tensor, targets: torch.Tensor) -> float:
    left, total = float((targets - values).var(correction=0)), float(targets.var(correction=0))
    if total == 0.0:
        return 1.0 if left == 0.0 else 0.0
    return 1.0 - left / total


# -------------------------------------------------------------------------------------------------- the door


def _checked(means_allowed: bool = False, **named: Array) -> tuple[list[torch.Tensor], Any]:
    """The arguments as tensors of one shape, and the way back to what the caller works with."""
    any_tensor = any(isinstance(value, torch.Tensor) for value in named.values())
    tensors = {name: _float_tensor(name, value, any_tensor) for name, value in named.items()}
    shape = next((t.shape for t in tensors.values() if t.ndim or not means_allowed), torch.Size())
    for name, tensor in tensors.items():
        if tensor.shape != shape and not (means_allowed and tensor.ndim == 0):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {tuple(shape)}, like the others")
        if tensor.numel() == 0:
            raise ValueError(f"{name} is empty; expected at least one number")
        if not bool(torch.isfinite(tensor.detach()).all()):
            raise ValueError(f"{name} holds NaN or infinite values; expected finite numbers")
    return list(tensors.values()), (_as_tensor if any_tensor else _as_numpy)


def _float_tensor(name: str, value: Array, any_tensor: bool) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise TypeError(f"{name} has type {value.dtype}; expected real numbers")
        return value if value.is_floating_point() else value.to(torch.get_default_dtype())
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} has type {array.dtype}; expected real numbers")
    if array.dtype != np.float32:
        array = array.astype(float)
    if any_tensor and array.ndim == 0:  # a plain number takes the type of the tensors around it
        return torch.tensor(float(array))
    return torch.as_tensor(array)


def _as_tensor(result: torch.Tensor) -> torch.Tensor:
    return result


def _as_numpy(result: torch.Tensor) -> Any:
    return result.item() if result.ndim == 0 else result.numpy()


def _checked_epsilon(epsilon: float) -> float:
    return _checked_number("epsilon", epsilon, "above 0 and below 1", lambda x: 0 < x < 1)


def _checked_number(name: str, value: Any, wanted: str, is_right: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; expected a number, {wanted}")
    if not (math.isfinite(value) and is_right(value)):
        raise ValueError(f"{name} is {value}; expected a number, {wanted}")
    return float(value)
