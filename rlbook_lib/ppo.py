"""Proximal policy optimization: the clipped and the penalized objective, and training (chapter 10).

The first half holds the formulas, as functions of arrays: what one step contributes to the objective, how the
penalty's coefficient adapts, what the value function loses. numpy arrays, plain numbers and torch tensors are
accepted; gradients flow through tensors, and without a tensor the result is a numpy array or a float.

The second half trains. One update collects ``steps`` steps of ``copies`` environments, computes advantages
and value targets once, and then takes ``epochs`` passes of gradient steps over that data.

Two policies appear everywhere. The old one collected the data and stays fixed during an update; the new one
is being changed. The ratio rho of their probabilities says how much more often the new one takes an action,
and the divergence is KL(old || new).
"""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rlbook_lib.environments import TorchCartPole, is_ready_made, vectorize
from rlbook_lib.experience import check_count, check_flag
from rlbook_lib.mdp import check_seed, check_unit_interval
from rlbook_lib.networks import SharedPolicyValue, ValueNetwork, make_policy
from rlbook_lib.returns import gae, normalize_advantages
from rlbook_lib.rollout import Collector, Rollout, flatten, value_estimates
from rlbook_lib.training import (
    State,
    TrainingResult,
    Update,
    check_state,
    config_dict,
    pack,
    rng_state,
    set_rng_state,
    train,
    unpack,
)

__all__ = [
    "probability_ratio",
    "clip_objective",
    "clip_gradient",
    "kl_penalty_objective",
    "update_kl_coefficient",
    "value_loss",
    "ppo_objective",
    "explained_variance",
    "interpolate_parameters",
    "interpolate_objectives",
    "Interpolation",
    "PPOConfig",
    "Batch",
    "SeparatePolicyValue",
    "prepare_batch",
    "ppo_loss",
    "ppo_update",
    "minibatches",
    "diagnose",
    "iterate_ppo",
    "train_ppo",
    "Learner",
]

Array: TypeAlias = Any  # a torch tensor, a numpy array or a number; tensor in, tensor out

KL_RULES = {"paper": 1.5, "doubled": 2.0}  # how far the divergence may be off its target, as a factor
KL_COEFFICIENTS = 1e-12, 1e12  # halving or doubling in every update of a long run would end at 0 or inf


# ---------------------------------------------------------------------------------- the objective of one step


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
    log_prob: Tensor, log_prob_old: Tensor, advantage: Tensor, epsilon: float
) -> Tensor:
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
    done_up = (advantage > 0) & (ratio > 1.0 + epsilon)  # nothing to gain from a still larger ratio
    done_down = (advantage < 0) & (ratio < 1.0 - epsilon)  # nor here from a still smaller one
    return give_back(advantage.masked_fill(done_up | done_down, 0.0))


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
        kl: same shape, nats; the divergence of the two policies in each state. An estimate of it may be
            negative.
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
    log_prob: Tensor, log_prob_old: Tensor, advantage: Tensor, kl: Tensor, beta: float
) -> Tensor:
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
    if not isinstance(rule, str) or rule not in KL_RULES:
        raise ValueError(f"rule is {rule!r}; expected one of {', '.join(map(repr, KL_RULES))}")
    factor = KL_RULES[rule]
    too_far, too_short = factor * target, target / factor
    if math.isclose(kl, too_far) or math.isclose(kl, too_short):  # on a threshold, but for rounding
        return beta
    return 2.0 * beta if kl > too_far else 0.5 * beta if kl < too_short else beta


# ----------------------------------------------------------------------------- value loss, total, diagnostics


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

    Source: Schulman et al. (2017), section 5, without the factor one half; the clip is not in the paper but
    in the code its authors published.
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
    values: Tensor, targets: Tensor,
    values_old: Tensor | None = None, clip: float | None = None,
) -> Tensor:
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
        ValueError: arrays of different lengths, an empty array, NaN or infinite values, a negative
            coefficient.
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


def _explained_variance(values: Tensor, targets: Tensor) -> float:
    left, total = float((targets - values).var(correction=0)), float(targets.var(correction=0))
    if total == 0.0:
        return 1.0 if left == 0.0 else 0.0
    return 1.0 - left / total


# ----------------------------------------------------------------------------- from the old policy to the new


def interpolate_parameters(old: dict[str, Tensor], new: dict[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """Parameters on the straight line through two sets of them: theta_old + alpha (theta_new - theta_old).

    Equation: eq-interpolation

    Args:
        old: name to tensor, as ``module.state_dict()`` gives them; alpha = 0.
        new: the same names and shapes; alpha = 1.
        alpha: any finite number; above 1 the line goes on past the new parameters.

    Returns:
        Name to tensor.

    Raises:
        ValueError: other names or shapes, alpha not finite.
        TypeError: alpha is not a number.

    Source: Schulman et al. (2017), figure 2.
    """
    alpha = _checked_number("alpha", alpha, "finite", lambda x: True)
    if old.keys() != new.keys() or any(old[name].shape != new[name].shape for name in old):
        raise ValueError("old and new must hold tensors of the same names and shapes")
    return {name: old[name].detach() + alpha * (new[name] - old[name]).detach() for name in old}


@dataclass(frozen=True)
class Interpolation:
    """Means over the data at each point of the line from the old policy to the new one.

    Args:
        alphas: (K,), 0 is the old policy and 1 the new one.
        kl: (K,) nats; KL(old || the policy at alpha).
        surrogate: (K,) reward units; rho A, unclipped.
        clipped: (K,) reward units; clip(rho, 1 - eps, 1 + eps) A, without the minimum.
        objective: (K,) reward units; the minimum of both, which PPO maximizes.
    """

    alphas: np.ndarray
    kl: np.ndarray
    surrogate: np.ndarray
    clipped: np.ndarray
    objective: np.ndarray


def interpolate_objectives(
    old: nn.Module, new: nn.Module, observations: Array, actions: Array, advantages: Array,
    alphas: Sequence[float], epsilon: float,
) -> Interpolation:
    """The objectives and the divergence along the line from the old policy's parameters to the new one's.

    Args:
        old: the policy that acted; a policy of ``networks``.
        new: a policy of the same shape.
        observations: (B, d); where the old policy acted.
        actions: (B,) integers or (B, k); what it did.
        advantages: (B,), reward units.
        alphas: (K,) where on the line.
        epsilon: half the width of the clip's range, above 0 and below 1.

    Returns:
        Five arrays (K,).

    Raises:
        ValueError: policies of different shapes, arrays of different lengths, a number out of range.
        TypeError: an argument does not hold numbers.

    Source: Schulman et al. (2017), figure 2.
    """
    epsilon = _checked_epsilon(epsilon)
    (advantages,), _ = _checked(advantages=advantages)
    (observations,), _ = _checked(observations=observations)
    actions = torch.as_tensor(actions)
    if advantages.ndim != 1 or not len(observations) == len(actions) == len(advantages):
        shapes = [tuple(x.shape) for x in (observations, actions, advantages)]
        raise ValueError(f"observations, actions and advantages have shapes {shapes[0]}, {shapes[1]} and "
                         f"{shapes[2]}; expected (B, d), (B,) or (B, k), and (B,)")
    theta_old, theta_new = old.state_dict(), new.state_dict()
    between: Any = copy.deepcopy(old)
    points = []
    with torch.no_grad():
        outputs_old: Tensor = between(observations)
        log_probs_old = between.log_prob_of(outputs_old, actions)
        for alpha in alphas:
            between.load_state_dict(interpolate_parameters(theta_old, theta_new, alpha))
            outputs = between(observations)
            ratio = (between.log_prob_of(outputs, actions) - log_probs_old).exp()
            surrogate, clipped = ratio * advantages, ratio.clamp(1.0 - epsilon, 1.0 + epsilon) * advantages
            kl, objective = between.kl_of(outputs_old, outputs), torch.minimum(surrogate, clipped)
            points.append([x.mean().item() for x in (kl, surrogate, clipped, objective)])
    return Interpolation(np.array(alphas, dtype=float), *np.array(points).reshape(-1, 4).T)


# --------------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO; the defaults solve CartPole-v1.

    One update works on a batch of ``steps`` times ``copies`` steps. Larger networks need smaller steps: with
    ``hidden=(64, 64)`` take ``learning_rate=3e-3, learning_rate_end=3e-4``, and with tanh a third of these.

    Args:
        total_steps: environment steps, all copies together, after which training ends.
        copies: environments side by side; 4 to 64 on a CPU, thousands on a GPU.
        steps: of each copy in one batch; 32 to 2048.
        epochs: passes over a batch; 3 to 20.
        minibatches: into how many equal parts each pass shuffles the batch; 1 takes it whole each time.
        objective: "clip", or "penalty" for the KL penalty.
        clip: epsilon; 0.1 to 0.3.
        kl_coefficient: the penalty's first coefficient, per nat.
        kl_target: nats that an update should reach, for the penalty; 0.003 to 0.03.
        kl_rule: how the coefficient adapts, within 1e-12 and 1e12: "paper" or "doubled"; "fixed" keeps it.
        stop_kl: nats; an update ends when KL(old || new) on a minibatch exceeds this; None never stops early.
        learning_rate: of Adam; 3e-4 to 1e-2, less for larger networks.
        learning_rate_end: it falls linearly to this over ``total_steps``; None keeps it.
        clip_end: epsilon falls linearly to this; None keeps it.
        gamma: discount; 0.9 to 0.999.
        lam: decay of later errors in the advantages (GAE); 0.9 to 1.
        normalize: "batch" brings the advantages to mean 0 and standard deviation 1 once per batch,
            "minibatch" in every minibatch anew, "none" not at all.
        value_coefficient: c1, on half the squared error of V / return_scale; 0.5 to 1.
        return_scale: size of typical returns; None takes 1 / (1 - gamma), or 1 for gamma = 1.
        value_clip: how far values may move in one update, reward units; None for the plain loss.
        entropy_coefficient: c2; 0 to 0.01.
        max_gradient_norm: longer gradients are shortened to this; None leaves them. 0.5 is common.
        hidden: sizes of the hidden layers, of the policy as of the value network.
        activation: "tanh" or "relu".
        shared: policy and value share their hidden layers.
        initial_log_std: where a Gaussian policy's log standard deviations start.
    """

    total_steps: int = 100_000
    copies: int = 16
    steps: int = 64
    epochs: int = 6
    minibatches: int = 1
    objective: str = "clip"
    clip: float = 0.3
    kl_coefficient: float = 1.0
    kl_target: float = 0.01
    kl_rule: str = "paper"
    stop_kl: float | None = None
    learning_rate: float = 7e-3
    learning_rate_end: float | None = None
    clip_end: float | None = None
    gamma: float = 0.99
    lam: float = 0.95
    normalize: str = "batch"
    value_coefficient: float = 1.0
    return_scale: float | None = None
    value_clip: float | None = None
    entropy_coefficient: float = 0.0
    max_gradient_norm: float | None = None
    hidden: tuple[int, ...] = (64,)
    activation: str = "relu"
    shared: bool = False
    initial_log_std: float = 0.0

    def __post_init__(self) -> None:
        for name in ("total_steps", "copies", "steps", "epochs", "minibatches"):
            check_count(name, getattr(self, name))
        for name, words in (("objective", ("clip", "penalty")), ("kl_rule", (*KL_RULES, "fixed")),
                            ("normalize", ("batch", "minibatch", "none")), ("activation", ("tanh", "relu"))):
            if getattr(self, name) not in words:
                raise ValueError(f"{name} must be one of {', '.join(words)}, got {getattr(self, name)!r}")
        for name in ("gamma", "lam"):
            check_unit_interval(name, getattr(self, name))
        _checked_epsilon(self.clip, "clip")
        for name in ("kl_coefficient", "kl_target", "learning_rate"):
            _checked_number(name, getattr(self, name), "above 0", lambda x: x > 0)
        for name in ("value_coefficient", "entropy_coefficient"):
            _checked_number(name, getattr(self, name), "0 or more", lambda x: x >= 0)
        for name in ("stop_kl", "return_scale", "value_clip", "max_gradient_norm"):
            if getattr(self, name) is not None:
                _checked_number(name, getattr(self, name), "above 0", lambda x: x > 0)
        if self.learning_rate_end is not None:
            _checked_number("learning_rate_end", self.learning_rate_end, "0 or more", lambda x: x >= 0)
        if self.clip_end is not None:
            _checked_number("clip_end", self.clip_end, "0 or more and below 1", lambda x: 0 <= x < 1)
        check_flag("shared", self.shared)
        _checked_number("initial_log_std", self.initial_log_std, "finite", lambda x: True)

    @property
    def scale(self) -> float:
        """The unit of the value network's outputs, in reward units."""
        if self.return_scale is not None:
            return self.return_scale
        return 1.0 / (1.0 - self.gamma) if self.gamma < 1.0 else 1.0


# ------------------------------------------------------------------------------------------------- the update


class Batch(NamedTuple):
    """The steps of one rollout in a row, with everything an update needs; all fixed during the update."""

    observations: Tensor  # (B, d)
    actions: Tensor  # (B,) or (B, k)
    outputs: Tensor  # (B, ...), of the old policy
    log_probs: Tensor  # (B,), of the old policy
    values: Tensor  # (B,), of the value network before the update
    advantages: Tensor  # (B,)
    targets: Tensor  # (B,)

    def rows(self, index: Tensor) -> Batch:
        """The steps that ``index`` names."""
        return Batch(*(x[index] for x in self))


class SeparatePolicyValue(nn.Module):
    """A policy and a value network that share nothing, behind the interface of ``SharedPolicyValue``.

    Args:
        policy: a policy of ``networks``.
        value: a ``ValueNetwork``.
    """

    def __init__(self, policy: nn.Module, value: ValueNetwork) -> None:
        super().__init__()
        self.policy, self.value = policy, value

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Policy outputs (n, k) and values (n,) for observations (n, d)."""
        return self.policy(observations), self.value(observations)


def prepare_batch(rollout: Rollout, value_network: ValueNetwork, config: PPOConfig) -> Batch:
    """Advantages and value targets of a rollout, computed once, before the first gradient step.

    Args:
        rollout: (T, N) steps.
        value_network: as it is before the update.
        config: its gamma, lam and normalize are used.

    Returns:
        T N steps in a row.

    Source: Schulman et al. (2017), equations 10 and 11; Schulman et al. (2016).
    """
    values, next_values = value_estimates(rollout, value_network)
    advantages, targets = gae(rollout.rewards, values, next_values, rollout.terminated, rollout.truncated,
                              config.gamma, config.lam)
    if config.normalize == "batch":
        advantages = normalize_advantages(advantages)
    return Batch(*rollout.batch(), *(flatten(x) for x in (values, advantages, targets)))


def ppo_loss(
    networks: Any, batch: Batch, config: PPOConfig, epsilon: float, beta: float
) -> tuple[Tensor, Tensor]:
    """The loss of one minibatch, to be minimized: the total objective with its sign changed.

    Args:
        networks: maps observations to policy outputs and values; its ``policy`` knows what outputs mean.
        batch: the minibatch.
        config: which objective, and its coefficients.
        epsilon: half the width of the clip's range.
        beta: the penalty's coefficient.

    Returns:
        (loss, policy outputs), the outputs for whoever wants the divergence.

    Source: Schulman et al. (2017), equations 7 to 9.
    """
    outputs, values = networks(batch.observations)
    policy, advantages = networks.policy, batch.advantages
    if config.normalize == "minibatch":
        advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
    log_prob = policy.log_prob_of(outputs, batch.actions)
    if config.objective == "clip":
        surrogate = _clip_objective(log_prob, batch.log_probs, advantages, epsilon)
    else:
        kl = policy.kl_of(batch.outputs, outputs)
        surrogate = _kl_penalty_objective(log_prob, batch.log_probs, advantages, kl, beta)
    values_old = None if config.value_clip is None else batch.values
    loss = config.value_coefficient / config.scale**2 * _value_loss(values, batch.targets, values_old,
                                                                    config.value_clip)
    loss = loss - surrogate.mean()
    if config.entropy_coefficient:
        loss = loss - config.entropy_coefficient * policy.entropy_of(outputs).mean()
    return loss, outputs


def ppo_update(
    networks: Any, optimizer: torch.optim.Optimizer, batch: Batch, config: PPOConfig, *, epsilon: float,
    beta: float, shuffle: np.random.Generator,
) -> int:
    """Several passes of gradient steps over one batch.

    Args:
        networks: are changed.
        optimizer: of the networks' parameters.
        batch: its size must be a multiple of ``config.minibatches``.
        config: epochs, minibatches, early stop, and what ``ppo_loss`` needs.
        epsilon: half the width of the clip's range.
        beta: the penalty's coefficient.
        shuffle: draws the minibatches.

    Returns:
        The number of gradient steps done.

    Raises:
        ValueError: a batch that does not divide into the minibatches.
    """
    parameters, done = list(networks.parameters()), 0
    for _ in range(config.epochs):
        for part in minibatches(batch, config.minibatches, shuffle):
            loss, outputs = ppo_loss(networks, part, config, epsilon, beta)
            if config.stop_kl is not None and _mean_kl(networks, part, outputs) > config.stop_kl:
                return done
            optimizer.zero_grad()
            loss.backward()
            if config.max_gradient_norm is not None:
                nn.utils.clip_grad_norm_(parameters, config.max_gradient_norm, foreach=True)
            optimizer.step()
            done += 1
    return done


def minibatches(batch: Batch, count: int, shuffle: np.random.Generator) -> Iterator[Batch]:
    """One pass over a batch in ``count`` equal parts; every step is in exactly one.

    Args:
        batch: B steps, a multiple of ``count``.
        count: 1 gives the batch as it is.
        shuffle: draws which steps come together.

    Yields:
        Batches of B / count steps.

    Raises:
        ValueError: a count below 1, or one that does not divide B.
    """
    size = len(batch.log_probs)
    if check_count("count", count) and size % count:
        raise ValueError(f"count is {count}; it does not divide the batch of {size} steps")
    if count == 1:
        yield batch
        return
    order = torch.from_numpy(shuffle.permutation(size)).to(batch.log_probs.device)
    for index in order.chunk(count):
        yield batch.rows(index)


def _mean_kl(networks: Any, batch: Batch, outputs: Tensor) -> float:
    with torch.no_grad():
        return networks.policy.kl_of(batch.outputs, outputs).mean().item()


@torch.no_grad()
def diagnose(networks: Any, batch: Batch, epsilon: float) -> dict[str, float]:
    """What an update did, measured on its batch after the last step.

    Args:
        networks: after the update.
        batch: the data of the update.
        epsilon: half the width of the clip's range.

    Returns:
        "kl", the mean KL(old || new), exact; "entropy", the mean, nats; "clip_fraction", the share of steps
        whose ratio is outside the range; "surrogate", the mean of rho A; "value_loss", half the mean squared
        error, reward units squared; "explained_variance" of the values before the update.
    """
    outputs, values = networks(batch.observations)
    policy = networks.policy
    ratio = (policy.log_prob_of(outputs, batch.actions) - batch.log_probs).exp()
    return {
        "kl": policy.kl_of(batch.outputs, outputs).mean().item(),
        "entropy": policy.entropy_of(outputs).mean().item(),
        "clip_fraction": ((ratio - 1.0).abs() > epsilon).float().mean().item(),
        "surrogate": (ratio * batch.advantages).mean().item(),
        "value_loss": _value_loss(values, batch.targets).item(),
        "explained_variance": _explained_variance(batch.values, batch.targets),
    }


# --------------------------------------------------------------------------------------------------- the loop


def iterate_ppo(
    env: Any, config: PPOConfig | None = None, *, seed: int, state: State | None = None
) -> Iterator[Update]:
    """Train with PPO, one record per update.

    Args:
        env: a Gymnasium id, a constructor, or a vector environment; actions Discrete or Box.
        config: settings; None takes the defaults.
        seed: a non-negative integer; decides everything.
        state: from a record of a run with the same config and seed: go on from there.

    Yields:
        ``Update`` records with the metrics of ``diagnose``, "episode_return" (the mean return of the episodes
        that ended), "gradient_steps", "learning_rate", and for the penalty "kl_coefficient".

    Raises:
        ValueError: spaces of another kind, a batch that does not divide into the minibatches, NaN from the
            environment, a state of another run.
        TypeError: config is no ``PPOConfig``.

    Source: Schulman et al. (2017), algorithm 1.
    """
    learner = Learner(env, PPOConfig() if config is None else config, seed)
    try:
        if state is not None:
            learner.load_state(state)
            if learner.is_done():
                yield learner.record({})
        while not learner.is_done():
            rollout = learner.collector.collect()
            batch = prepare_batch(rollout, learner.networks.value, learner.config)
            metrics = learner.improve(batch)
            yield learner.record(metrics)
    finally:
        if not is_ready_made(env):
            learner.environments.close()


def train_ppo(
    env: Any, config: PPOConfig | None = None, *, seed: int, state: Any = None, progress: bool = False,
    checkpoint: Any = None, checkpoint_every: int = 10, stop: Any = None,
) -> TrainingResult:
    """Train with PPO to the end of ``config.total_steps``, or until ``stop`` says so.

    Args:
        env: a Gymnasium id, a constructor, or a vector environment; actions Discrete or Box.
        config: settings; None takes the defaults.
        seed: a non-negative integer.
        state: a state or a checkpoint file to go on from; None goes on from ``checkpoint`` if that is there.
        progress: show a progress bar.
        checkpoint: file to save the state in, every ``checkpoint_every`` updates and at the end.
        checkpoint_every: in updates.
        stop: called with each record; True ends the run.

    Returns:
        Policy, curves and state.

    Raises:
        ValueError: as ``iterate_ppo``; a state made with other settings.
        TrainingError: a metric or a parameter is NaN.
    """
    return train(iterate_ppo, env, PPOConfig() if config is None else config, seed=seed, state=state,
                 progress=progress, checkpoint=checkpoint, checkpoint_every=checkpoint_every, stop=stop)


class Learner:
    """Everything that changes while PPO trains: environments, networks, optimizer, generators, coefficient.

    Args:
        env: a Gymnasium id, a constructor, or a vector environment.
        config: settings.
        seed: a non-negative integer.

    Raises:
        ValueError: spaces of another kind, a batch that does not divide into the minibatches.
    """

    def __init__(self, env: Any, config: PPOConfig, seed: int) -> None:
        if not isinstance(config, PPOConfig):
            raise TypeError(f"config must be a PPOConfig, got {config!r}")
        self.config, self.seed = config, check_seed(seed)
        seeds = [int(x) for x in np.random.SeedSequence(seed).generate_state(5)]
        own = isinstance(env, TorchCartPole)
        self.environments: Any = env if own else vectorize(env, config.copies, seed=seeds[0])
        self.batch_size = config.steps * self.environments.copies
        _check_parts(self.batch_size, config)
        device = getattr(self.environments, "device", torch.device("cpu"))
        self.networks = _make_networks(self.environments, config, seeds[1], seeds[2]).to(device)
        self.optimizer = torch.optim.Adam(
            self.networks.parameters(), config.learning_rate, eps=1e-5, fused=True
        )
        draws: Any = np.random.default_rng(seeds[3])
        if own:  # it works with tensors, and so must the draws
            draws = torch.Generator(device).manual_seed(seeds[3])
        self.collector = Collector(self.environments, self.networks.policy, config.steps, draws)
        self.shuffle = np.random.default_rng(seeds[4])
        self.beta, self.updates = config.kl_coefficient, 0

    @property
    def env_steps(self) -> int:
        """Steps so far, all copies together."""
        return self.updates * self.batch_size

    def is_done(self) -> bool:
        """Whether ``total_steps`` are reached."""
        return self.env_steps >= self.config.total_steps

    def improve(self, batch: Batch) -> dict[str, float]:
        """One update on ``batch``: gradient steps, measurements (returned), the penalty's next coefficient."""
        config, left = self.config, 1.0 - self.env_steps / self.config.total_steps
        learning_rate = _annealed(config.learning_rate, config.learning_rate_end, left)
        epsilon = _annealed(config.clip, config.clip_end, left)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        done = ppo_update(self.networks, self.optimizer, batch, config, epsilon=epsilon, beta=self.beta,
                          shuffle=self.shuffle)
        metrics = diagnose(self.networks, batch, epsilon)
        metrics |= {"gradient_steps": float(done), "learning_rate": learning_rate}
        if config.objective == "penalty":
            metrics["kl_coefficient"] = self.beta
            if config.kl_rule != "fixed":
                beta = update_kl_coefficient(self.beta, metrics["kl"], config.kl_target, config.kl_rule)
                self.beta = min(max(beta, KL_COEFFICIENTS[0]), KL_COEFFICIENTS[1])
        self.updates += 1
        returns, _ = self.environments.pop_episodes()
        if len(returns):
            metrics["episode_return"] = float(returns.mean())
        return metrics

    def record(self, metrics: dict[str, float]) -> Update:
        """What ``iterate_ppo`` yields."""
        return Update(self.updates, self.env_steps, metrics, self.networks.policy, self.state)

    def state(self) -> State:
        """Everything needed to go on, as tensors and plain data."""
        return {
            "config": config_dict(self.config), "seed": self.seed, "updates": self.updates, "beta": self.beta,
            "networks": pack(self.networks), "optimizer": pack(self.optimizer),
            "collector": self.collector.state(), "shuffle": rng_state(self.shuffle),
        }

    def load_state(self, state: State) -> None:
        """Go on from where ``state`` was taken."""
        check_state(state, self.config, self.seed)
        self.updates, self.beta = state["updates"], state["beta"]
        unpack(self.networks, state["networks"])
        unpack(self.optimizer, state["optimizer"])
        self.collector.load_state(state["collector"])
        set_rng_state(self.shuffle, state["shuffle"])


def _make_networks(environments: Any, config: PPOConfig, policy_seed: int, value_seed: int) -> Any:
    policy = make_policy(
        environments.observation_space, environments.action_space, hidden=config.hidden,
        activation=config.activation, seed=policy_seed, initial_log_std=config.initial_log_std,
        env=environments.name,
    )
    if config.shared:
        return SharedPolicyValue(policy, seed=value_seed, scale=config.scale)
    value = ValueNetwork(environments.observation_size, hidden=config.hidden, activation=config.activation,
                         seed=value_seed, scale=config.scale)
    return SeparatePolicyValue(policy, value)


def _annealed(start: float, end: float | None, left: float) -> float:
    """``start`` at the first update, close to ``end`` at the last."""
    return start if end is None else end + (start - end) * left


def _check_parts(batch_size: int, config: PPOConfig) -> None:
    if batch_size % config.minibatches:
        raise ValueError(f"the batch of {batch_size} steps (steps times copies) does not divide into "
                         f"{config.minibatches} minibatches")
    smallest = batch_size if config.normalize == "batch" else batch_size // config.minibatches
    if config.normalize != "none" and smallest < 2:
        raise ValueError(f"normalize={config.normalize!r} needs two steps at least, got a batch of "
                         f"{batch_size} steps in {config.minibatches} minibatches")


# --------------------------------------------------------------------------------------------------- the door


def _checked(means_allowed: bool = False, **named: Array) -> tuple[list[Tensor], Any]:
    """The arguments as tensors of one shape, and the way back to what the caller works with."""
    any_tensor = any(isinstance(value, Tensor) for value in named.values())
    tensors = {name: _float_tensor(name, value, any_tensor) for name, value in named.items()}
    shape = next((t.shape for t in tensors.values() if t.ndim or not means_allowed), torch.Size())
    for name, tensor in tensors.items():
        if tensor.shape != shape and not (means_allowed and tensor.ndim == 0):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; "
                             f"expected {tuple(shape)}, like the others")
        if tensor.numel() == 0:
            raise ValueError(f"{name} is empty; expected at least one number")
        if not bool(torch.isfinite(tensor.detach()).all()):
            raise ValueError(f"{name} holds NaN or infinite values; expected finite numbers")
    return list(tensors.values()), (_as_tensor if any_tensor else _as_numpy)


def _float_tensor(name: str, value: Array, any_tensor: bool) -> Tensor:
    if isinstance(value, Tensor):
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


def _as_tensor(result: Tensor) -> Tensor:
    return result


def _as_numpy(result: Tensor) -> Any:
    return result.item() if result.ndim == 0 else result.numpy()


def _checked_epsilon(epsilon: float, name: str = "epsilon") -> float:
    return _checked_number(name, epsilon, "above 0 and below 1", lambda x: 0 < x < 1)


def _checked_number(name: str, value: Any, wanted: str, is_right: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; expected a number, {wanted}")
    if not (math.isfinite(value) and is_right(value)):
        raise ValueError(f"{name} is {value}; expected a number, {wanted}")
    return float(value)
