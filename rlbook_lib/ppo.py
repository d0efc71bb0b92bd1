"""Proximal policy optimization: the clipped and the penalized objective, and training (chapter 10).

One update collects ``steps`` steps of ``copies`` environments, computes advantages and value targets once, and
then takes ``epochs`` passes of gradient steps over that data.

Two policies appear everywhere. The old one collected the data and stays fixed during an update; the new one
is being changed. The ratio rho of their probabilities says how much more often the new one takes an action,
and the divergence is KL(old || new).

In order: the settings; the clipped objective, the loss, the update and the loop; the batch that an update works
on; the penalty; the other parts of the objective; the line from the old policy to the new one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rlbook_lib.checks import Array, Count, Environment, Finite, Floats, Integers, Network, NotNegative
from rlbook_lib.checks import OpenUnitInterval, Positive, Range, Seed, UnitInterval
from rlbook_lib.checks import checked, settings
from rlbook_lib.networks import ValueNetwork
from rlbook_lib.returns import gae, normalize_advantages
from rlbook_lib.rollout import Actors, Collector, Rollout, flatten, open_actors, value_estimates
from rlbook_lib.training import Adam, Optimizer, ReturnScale, Run, RunOptions, State, TrainingResult, Update
from rlbook_lib.training import gradient_step, split_seed, train


@settings
class PPOConfig(ReturnScale):
    """Settings of PPO; the defaults solve CartPole-v1.

    One update works on a batch of ``steps`` times ``copies`` steps. Larger networks need smaller steps: with
    ``hidden=(64, 64)`` take ``learning_rate=3e-3, learning_rate_end=3e-4``, and with tanh a third of these.
    """

    total_steps: Count = 100_000  #: environment steps, all copies together, after which training ends
    copies: Count = 16  #: environments side by side; 4 to 64 on a CPU, thousands on a GPU
    steps: Count = 64  #: of each copy in one batch; 32 to 2048
    epochs: Count = 6  #: passes over a batch; 3 to 20
    minibatches: Count = 1  #: equal parts into which each pass shuffles the batch; 1 takes it whole each time
    objective: Literal["clip", "penalty"] = "clip"  #: "penalty" for the KL penalty
    clip: OpenUnitInterval = 0.3  #: epsilon; 0.1 to 0.3
    clip_end: Annotated[float, Range(0, 1, open_high=True)] | None = None  #: it falls to this; None keeps it
    kl_coefficient: Positive = 1.0  #: the penalty's first coefficient, per nat
    kl_target: Positive = 0.01  #: nats that an update should reach, for the penalty; 0.003 to 0.03
    kl_rule: Literal["paper", "doubled", "fixed"] = "paper"  #: how the coefficient adapts; "fixed" keeps it
    stop_kl: Positive | None = None  #: nats from old to new beyond which an update ends; None means never
    learning_rate: Positive = 7e-3  #: of Adam; 3e-4 to 1e-2, less for larger networks
    learning_rate_end: NotNegative | None = None  #: it falls linearly to this over total_steps; None keeps it
    gamma: UnitInterval = 0.99  #: discount; 0.9 to 0.999
    lam: UnitInterval = 0.95  #: decay of later errors in the advantages (GAE); 0.9 to 1
    normalize: Literal["batch", "minibatch", "none"] = "batch"  #: advantages to mean 0 and deviation 1, and where
    value_coefficient: NotNegative = 1.0  #: c1, on half the squared error of V / return_scale; 0.5 to 1
    return_scale: Positive | None = None  #: size of typical returns; None takes 1 / (1 - gamma), or 1 for gamma = 1
    value_clip: Positive | None = None  #: how far values may move in an update, reward units; None means freely
    entropy_coefficient: NotNegative = 0.0  #: c2; 0 to 0.01
    max_gradient_norm: Positive | None = None  #: longer gradients are shortened to this; None leaves them; 0.5
    hidden: tuple[Count, ...] = (64,)  #: sizes of the hidden layers, of the policy as of the value network
    activation: Literal["tanh", "relu"] = "relu"  #: between the layers


# ------------------------------------------------------------------------------------------- loss, update, loop

PerStep: TypeAlias = Floats[Array, "..."]  # one number a step; all of one shape


@checked(arrays="tensors")
def clip_objective(
    log_prob: PerStep,
    log_prob_old: PerStep,
    advantage: PerStep,
    epsilon: OpenUnitInterval | tuple[OpenUnitInterval, Positive],
) -> Array:
    """What each step adds to the clipped objective: the smaller of rho A and clip(rho, 1 - eps, 1 + eps) A.

    Equation: eq-clip-objective

    To be maximized. It is a lower bound of rho A, and equal to it while rho stays within the range. ``epsilon`` is half
    the width of the range, 0.1 to 0.3 are usual; or its reach (below, above) 1, each for itself.

    Source: Schulman et al. (2017), equation 7.
    """
    below, above = epsilon if isinstance(epsilon, tuple) else (epsilon, epsilon)
    ratio = probability_ratio(log_prob, log_prob_old)
    clipped = ratio.clamp(1.0 - below, 1.0 + above)
    return torch.minimum(ratio * advantage, clipped * advantage)


@checked
def ppo_loss(
    networks: Network, batch: PPOBatch, config: PPOConfig, epsilon: NotNegative, beta: NotNegative
) -> tuple[Tensor, Tensor]:
    """The loss of one minibatch, to be minimized, and the policy's outputs, for whoever wants the divergence.

    ``networks`` maps observations to policy outputs and values; its ``policy`` knows what outputs mean. ``epsilon`` is
    half the width of the clip's range, ``beta`` the penalty's coefficient.

    Source: Schulman et al. (2017), equations 7 to 9.
    """
    outputs, values = networks(batch.observations)
    policy, advantages = networks.policy, batch.advantages
    if config.normalize == "minibatch":
        advantages = normalize_advantages(advantages)
    log_prob = policy.log_prob_of(outputs, batch.actions)
    if config.objective == "clip":
        surrogate = clip_objective(log_prob, batch.log_probs, advantages, epsilon)
    else:
        kl = policy.kl_of(batch.outputs, outputs)
        surrogate = kl_penalty_objective(log_prob, batch.log_probs, advantages, kl, beta)
    values_old = None if config.value_clip is None else batch.values
    error = value_loss(values, batch.targets, values_old, config.value_clip)
    entropy = policy.entropy_of(outputs) if config.entropy_coefficient else torch.zeros(())  # which takes time
    c1, c2 = config.value_coefficient / config.scale**2, config.entropy_coefficient
    return -ppo_objective(surrogate, error, entropy, c1, c2), outputs


@checked
def ppo_update(
    networks: Network,
    optimizer: Optimizer,
    batch: PPOBatch,
    config: PPOConfig,
    *,
    epsilon: NotNegative,
    beta: NotNegative,
    shuffle: np.random.Generator,
) -> int:
    """Several passes of gradient steps over one batch; how many steps were made.

    ``epsilon`` and ``beta`` are as for ``ppo_loss``; ``shuffle`` draws the minibatches, whose number divides the batch.

    Raises:
        ValueError: a batch that does not divide into the minibatches.
        TrainingError: a loss that is not finite.
    """
    done = 0
    for _ in range(config.epochs):
        for part in minibatches(batch, config.minibatches, shuffle):
            loss, outputs = ppo_loss(networks, part, config, epsilon, beta)
            if config.stop_kl is not None and _mean_kl(networks, part, outputs) > config.stop_kl:
                return done
            gradient_step(optimizer, loss, max_norm=config.max_gradient_norm)
            done += 1
    return done


@checked
def iterate_ppo(
    env: Environment, config: PPOConfig | None = None, *, seed: Seed, state: State | None = None
) -> Iterator[Update]:
    """Train with PPO, one record per update; arguments and errors as for every trainer (``training``).

    Yields:
        ``Update`` records with the metrics of ``diagnose``, "episode_return" and "episode_length" (means over the
        episodes that ended), "gradient_steps", "learning_rate", and for the penalty "kl_coefficient".

    Source: Schulman et al. (2017), algorithm 1.
    """
    config = config or PPOConfig()
    with _actors(env, config, seed) as actors:
        run = _begin(actors, config, seed)
        yield from run.go_on(state)
        while not run.ended:
            rollout = actors.collector.collect()
            batch = prepare_batch(rollout, actors.value, config)
            metrics = improve(run, batch)
            yield run.record(metrics | actors.environments.episode_metrics(), len(rollout))


@checked
def improve(run: PPORun, batch: PPOBatch) -> dict[str, float]:
    """One update of a run: gradient steps on a batch, measurements, the penalty's next coefficient.

    The batch is what ``prepare_batch`` gave, and the metrics are those of ``iterate_ppo``, but for the episodes'.
    """
    config, networks, optimizer, beta = run.config, run.networks, run.optimizer, run.beta
    left = 1.0 - run.env_steps / config.total_steps
    epsilon = _annealed(config.clip, config.clip_end, left)
    learning_rate = _annealed(config.learning_rate, config.learning_rate_end, left)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    done = ppo_update(networks, optimizer, batch, config, epsilon=epsilon, beta=beta, shuffle=run.shuffle)
    metrics = diagnose(networks, batch, epsilon) | {"gradient_steps": float(done), "learning_rate": learning_rate}
    if config.objective == "penalty":
        metrics["kl_coefficient"] = beta
        if config.kl_rule != "fixed":
            beta = update_kl_coefficient(beta, metrics["kl"], config.kl_target, config.kl_rule)
            run.beta = min(max(beta, KL_COEFFICIENTS[0]), KL_COEFFICIENTS[1])
    return metrics


@checked
def train_ppo(
    env: Environment, config: PPOConfig | None = None, *, seed: Seed, **options: Unpack[RunOptions]
) -> TrainingResult:
    """Run ``iterate_ppo`` out, or until ``stop`` says so; options as in ``training.RunOptions``."""
    return train(partial(iterate_ppo, env), config or PPOConfig(), seed=seed, **options)


# ---------------------------------------------------------------------------------------- the parts of the loop


class PPOBatch(NamedTuple):
    """The steps of one rollout in a row, with everything an update needs; all fixed during the update."""

    observations: Tensor  #: (B, d)
    actions: Tensor  #: (B,) or (B, k)
    outputs: Tensor  #: (B, ...), of the old policy
    log_probs: Tensor  #: (B,), of the old policy
    values: Tensor  #: (B,), of the value network before the update
    advantages: Tensor  #: (B,)
    targets: Tensor  #: (B,)

    def rows(self, index: Tensor) -> PPOBatch:
        """The steps that ``index`` names."""
        return PPOBatch(*(x[index] for x in self))


@checked
def prepare_batch(rollout: Rollout, value_network: ValueNetwork, config: PPOConfig) -> PPOBatch:
    """Advantages and value targets of a rollout, computed once, before the first gradient step.

    Source: Schulman et al. (2017), equations 10 and 11; Schulman et al. (2016).
    """
    values, next_values = value_estimates(rollout, value_network)
    advantages, targets = gae(
        rollout.rewards, values, next_values, rollout.terminated, rollout.truncated, config.gamma, config.lam
    )
    if config.normalize == "batch":
        advantages = normalize_advantages(advantages)
    return PPOBatch(*rollout.batch(), *map(flatten, (values, advantages, targets)))


@checked
def minibatches(batch: PPOBatch, count: Count, shuffle: np.random.Generator) -> Iterator[PPOBatch]:
    """One pass over a batch in ``count`` equal parts, drawn by ``shuffle``; every step is in exactly one.

    Raises:
        ValueError: a count that does not divide the size of the batch.
    """
    size = len(batch.log_probs)
    if size % count:
        raise ValueError(f"count is {count}; expected a divisor of the batch's {size} steps")
    if count == 1:
        yield batch
        return
    order = torch.from_numpy(shuffle.permutation(size)).to(batch.log_probs.device)
    for index in order.chunk(count):
        yield batch.rows(index)


def _mean_kl(networks: Any, batch: PPOBatch, outputs: Tensor) -> float:
    with torch.no_grad():
        return networks.policy.kl_of(batch.outputs, outputs).mean().item()


@checked
@torch.no_grad()
def diagnose(networks: Network, batch: PPOBatch, epsilon: NotNegative) -> dict[str, float]:
    """What an update did, measured on its batch after the last step.

    Returns:
        "kl", the mean KL(old || new), exact; "entropy", the mean, nats; "clip_fraction", the share of steps
        whose ratio is further than epsilon from 1; "surrogate", the mean of rho A; "value_loss", half the mean squared
        error, reward units squared; "explained_variance" of the values before the update.
    """
    outputs, values = networks(batch.observations)
    policy = networks.policy
    ratio = probability_ratio(policy.log_prob_of(outputs, batch.actions), batch.log_probs)
    return {
        "kl": policy.kl_of(batch.outputs, outputs).mean().item(),
        "entropy": policy.entropy_of(outputs).mean().item(),
        "clip_fraction": ((ratio - 1.0).abs() > epsilon).float().mean().item(),
        "surrogate": (ratio * batch.advantages).mean().item(),
        "value_loss": value_loss(values, batch.targets).item(),
        "explained_variance": explained_variance(batch.values, batch.targets),
    }


def _actors(env: Any, config: PPOConfig, seed: int) -> Any:
    return open_actors(env, config, split_seed(seed, 4), copies=config.copies, steps=config.steps)


@dataclass
class PPORun(Run):
    """A run of PPO."""

    config: PPOConfig
    networks: nn.Module
    optimizer: Optimizer
    collector: Collector
    shuffle: np.random.Generator  #: draws the minibatches
    beta: float  #: the penalty's coefficient


def _begin(actors: Actors, config: PPOConfig, seed: int) -> PPORun:
    """What a run begins with."""
    size = config.steps * actors.environments.copies
    smallest = size if config.normalize == "batch" else size // config.minibatches
    if size % config.minibatches:
        raise ValueError(f"minibatches is {config.minibatches}; expected a divisor of {size}, steps times copies")
    if config.normalize != "none" and smallest < 2:
        raise ValueError(
            f"normalize is {config.normalize!r}, which needs two steps; expected larger batches than "
            f"{size} steps in {config.minibatches} minibatches"
        )
    optimizer = Adam(actors.networks.parameters(), config.learning_rate, eps=1e-5)
    shuffle = np.random.default_rng(split_seed(seed, 5)[4])
    return PPORun(
        config, seed, actors.policy, actors.networks, optimizer, actors.collector, shuffle, config.kl_coefficient
    )


def _annealed(start: float, end: float | None, left: float) -> float:
    """``start`` at the first update, close to ``end`` at the last."""
    return start if end is None else end + (start - end) * left


class Learner:
    """One run of PPO to be taken step by step, for experiments: collect, ``prepare_batch``, ``improve``."""

    @checked
    def __init__(self, env: Environment, config: PPOConfig, seed: Seed) -> None:
        with ExitStack() as stack:
            actors = stack.enter_context(_actors(env, config, seed))
            self.run = _begin(actors, config, seed)
            self._stack = stack.pop_all()  # the environments stay open
        self.environments, self.networks, self.collector = actors.environments, actors.networks, actors.collector

    @checked
    def improve(self, batch: PPOBatch) -> dict[str, float]:
        """One update on ``batch``: gradient steps, measurements (returned), the penalty's next coefficient."""
        metrics = improve(self.run, batch)
        self.run.record(metrics, len(batch.log_probs))
        return metrics


# ------------------------------------------------------------------------------------------------- the penalty

PerStepOrMean: TypeAlias = Floats[Array, "B"] | Floats[Array, ""]
KL_RULES = {"paper": 1.5, "doubled": 2.0}  # how far the divergence may be off its target, as a factor
KL_COEFFICIENTS = 1e-12, 1e12  # halving or doubling in every update of a long run would end at 0 or inf


@checked(arrays="tensors")
def kl_penalty_objective(
    log_prob: PerStep, log_prob_old: PerStep, advantage: PerStep, kl: PerStep, beta: NotNegative
) -> Array:
    """What each step adds to the penalized objective: rho A - beta KL(old || new).

    Equation: eq-kl-penalty

    To be maximized. ``kl`` is the divergence of the two policies in each state, nats (an estimate of it may be
    negative), ``beta`` the price of one, reward units.

    Source: Schulman et al. (2017), equation 8.
    """
    return probability_ratio(log_prob, log_prob_old) * advantage - beta * kl


@checked
def update_kl_coefficient(
    beta: Positive, kl: Finite, target: Positive, rule: Literal["paper", "doubled"] = "paper"
) -> float:
    """The penalty's next coefficient: twice as large if the step went too far, half if it was too short.

    Equation: eq-adaptive-beta

    ``beta``, in reward units per nat, is of the update just done, and ``kl`` the mean KL(old || new) which it reached. The
    rule "paper" calls an update too far above 1.5 target and too short below target / 1.5; "doubled" above 2 target and
    below target / 2. On a threshold the coefficient stays.

    Source: Schulman et al. (2017), section 4, for "paper"; "doubled" has its factors and the wider thresholds of RLlib.
    """
    factor = KL_RULES[rule]
    too_far, too_short = factor * target, target / factor
    if math.isclose(kl, too_far) or math.isclose(kl, too_short):  # on a threshold, but for rounding
        return beta
    return 2.0 * beta if kl > too_far else 0.5 * beta if kl < too_short else beta


# ------------------------------------------------------------------ ratio, slope, value loss, total, diagnostics


@checked(arrays="tensors")
def probability_ratio(log_prob: PerStep, log_prob_old: PerStep) -> Array:
    """How much more likely the new policy makes each action: rho = pi_new(a|s) / pi_old(a|s), from logarithms.

    Equation: eq-ratio

    Source: Schulman et al. (2017), section 3.
    """
    return (log_prob - log_prob_old).exp()


@checked(arrays="tensors")
def clip_gradient(
    ratio: Floats[Array, "...", Range(0, open_low=True)], advantage: PerStep, epsilon: OpenUnitInterval
) -> Array:
    """The derivative of the clipped objective by the ratio: A, or 0 where going on would gain nothing.

    Equation: eq-clip-gradient

    It is 0 in two cases only: A > 0 and rho > 1 + epsilon, or A < 0 and rho < 1 - epsilon. In the other two
    cases outside the range the ratio has moved against the advantage, and the gradient pulls it back. On an
    edge of the range, where the objective has a kink, this returns A, as automatic differentiation does.

    Source: the derivative of equation 7 of Schulman et al. (2017).
    """
    done_up = (advantage > 0) & (ratio > 1.0 + epsilon)  # nothing to gain from a still larger ratio
    done_down = (advantage < 0) & (ratio < 1.0 - epsilon)  # nor here from a still smaller one
    return advantage.masked_fill(done_up | done_down, 0.0)


@checked(arrays="tensors")
def value_loss(
    values: PerStep, targets: PerStep, values_old: PerStep | None = None, clip: Positive | None = None
) -> Array:
    """Half the mean squared error of the values; with a clip, of the worse of two values per state.

    Equation: eq-value-loss

    With ``clip``, in reward units, the second value is V_old, that of the collection, moved toward V by at most
    ``clip``: a state whose value has moved further than that, toward its target, has no gradient. The targets are
    constants. The factor one half is a choice; it makes the gradient V - target.

    Raises:
        ValueError: one of ``values_old`` and ``clip`` without the other.

    Source: Schulman et al. (2017), section 5, without the factor one half; the clip is not in the paper but
    in the code its authors published.
    """
    if (values_old is None) != (clip is None):
        missing = "values_old" if values_old is None else "clip"
        raise ValueError(f"{missing} is None; expected both values_old and clip for the clipped loss")
    error = (values - targets.detach()) ** 2
    if values_old is not None and clip is not None:
        nearby = values_old + (values - values_old).clamp(-clip, clip)
        error = torch.maximum(error, (nearby - targets.detach()) ** 2)
    return 0.5 * error.mean()


@checked(arrays="tensors")
def ppo_objective(
    surrogate: PerStepOrMean,
    value_loss: PerStepOrMean,
    entropy: PerStepOrMean,
    value_coefficient: NotNegative = 0.5,
    entropy_coefficient: NotNegative = 0.0,
) -> Array:
    """The total objective, to be maximized: the mean of surrogate - c1 value_loss + c2 entropy.

    Equation: eq-ppo-objective

    The signs: the surrogate and the entropy are wanted large, the value loss small. Optimizers minimize, so
    they get the negative of this. Each of the three is one number a step, (B,), or its mean.

    Source: Schulman et al. (2017), equation 9.
    """
    return surrogate.mean() - value_coefficient * value_loss.mean() + entropy_coefficient * entropy.mean()


@checked(arrays="tensors")
def explained_variance(values: PerStep, targets: PerStep) -> float:
    """How much of the targets' variance the values explain: 1 - Var(targets - values) / Var(targets).

    Equation: eq-explained-variance

    1 is a perfect prediction up to a constant, 0 is as good as any constant, below 0 is worse. Where the targets do
    not vary: 1 if the error does not vary either, else 0.

    Source: the coefficient of determination, for an error with its mean removed.
    """
    left, total = float((targets - values).var(correction=0)), float(targets.var(correction=0))
    if total == 0.0:
        return 1.0 if left == 0.0 else 0.0
    return 1.0 - left / total


# ------------------------------------------------------------------------------- from the old policy to the new


@checked
def interpolate_parameters(old: dict[str, Tensor], new: dict[str, Tensor], alpha: Finite) -> dict[str, Tensor]:
    """Parameters on the straight line through two sets of them: theta_old + alpha (theta_new - theta_old).

    Equation: eq-interpolation

    The parameters are as ``module.state_dict()`` gives them. Above alpha = 1 the line goes on past the new ones.

    Raises:
        ValueError: other names or shapes.

    Source: Schulman et al. (2017), figure 2.
    """
    if old.keys() != new.keys() or any(old[name].shape != new[name].shape for name in old):
        raise ValueError("new holds other names or shapes than old; expected the same names and shapes")
    return {name: old[name].detach() + alpha * (new[name] - old[name]).detach() for name in old}


@dataclass(frozen=True)
class Interpolation:
    """Means over the data at each of K points of the line from the old policy to the new one."""

    alphas: np.ndarray  #: 0 is the old policy and 1 the new one
    kl: np.ndarray  #: nats; KL(old || the policy at alpha)
    surrogate: np.ndarray  #: reward units; rho A, unclipped
    clipped: np.ndarray  #: reward units; clip(rho, 1 - eps, 1 + eps) A, without the minimum
    objective: np.ndarray  #: reward units; the minimum of both, which PPO maximizes


@checked(arrays="tensors")
def interpolate_objectives(
    old: nn.Module,
    new: nn.Module,
    observations: Floats[Array, "B d"],
    actions: Integers[Array, "B"] | Floats[Array, "B k"],
    advantages: Floats[Array, "B"],
    alphas: Sequence[Finite],
    epsilon: OpenUnitInterval,
) -> Interpolation:
    """The objectives and the divergence along the line from the old policy's parameters to the new one's.

    ``old`` took the actions; ``new`` is a policy of the same shape, or a ValueError. ``alphas``, (K,), say where on the
    line; ``epsilon`` is half the width of the clip's range.

    Source: Schulman et al. (2017), figure 2.
    """
    theta_old, theta_new = old.state_dict(), new.state_dict()
    between: Any = copy.deepcopy(old)
    points = []
    with torch.no_grad():
        outputs_old: Tensor = between(observations)
        log_probs_old = between.log_prob_of(outputs_old, actions)
        for alpha in alphas:
            between.load_state_dict(interpolate_parameters(theta_old, theta_new, alpha))
            outputs = between(observations)
            log_probs = between.log_prob_of(outputs, actions)
            ratio = probability_ratio(log_probs, log_probs_old)
            surrogate, clipped = ratio * advantages, ratio.clamp(1.0 - epsilon, 1.0 + epsilon) * advantages
            objective = clip_objective(log_probs, log_probs_old, advantages, epsilon)
            kl = between.kl_of(outputs_old, outputs)
            points.append([x.mean().item() for x in (kl, surrogate, clipped, objective)])
    return Interpolation(np.array(alphas, dtype=float), *np.array(points).reshape(-1, 4).T)
