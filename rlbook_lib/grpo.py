"""Group relative policy optimization: several answers to each prompt, compared with each other (chapter 13).

PPO asks a value network how good an answer was expected to be. GRPO asks the other answers to the same
prompt: P prompts get G completions each, and a completion's advantage says how much better its reward is than
its group's. All its tokens share that number.

Shapes: P prompts, G completions a prompt, B = P G completions, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeAlias, Unpack

import numpy as np
import torch
from torch import Tensor

from rlbook_lib.checks import (
    Array,
    Count,
    Floats,
    LogProbs,
    Mask,
    MaskedFloats,
    Natural,
    NotNegative,
    OpenUnitInterval,
    Positive,
    Range,
    Seed,
    UnitInterval,
    checked,
    settings,
)
from rlbook_lib.data_parallel import PerProcess, largest, mean_of_metrics, my_part, processes, total
from rlbook_lib.divergences import kl_estimate
from rlbook_lib.language_model import Completions, LanguageModel, completion_log_probs, generate
from rlbook_lib.ppo import clip_objective
from rlbook_lib.text_tasks import Reward, Scorer, TextTask, evaluate_accuracy, score_with
from rlbook_lib.training import (
    Adam,
    Optimizer,
    Run,
    RunOptions,
    State,
    TrainingResult,
    Update,
    frozen_copy,
    gradient_step,
    learning_rate_share,
    train,
)

__all__ = [
    "GRPOConfig",
    "group_advantages",
    "token_objective",
    "token_kl",
    "aggregate",
    "grpo_loss",
    "iterate_grpo",
    "train_grpo",
    "leave_one_out_baseline",
    "group_baseline_factor",
    "zero_variance_probability",
    "training_memory",
    "training_flops",
]

GroupSize: TypeAlias = Annotated[int, Range(2)]  # a completion needs others to be compared with
Clip: TypeAlias = tuple[OpenUnitInterval, Positive]  # how far the ratio may go (below, above) 1
Scale: TypeAlias = Literal["std", "none", "leave_one_out"]
Estimator: TypeAlias = Literal["k1", "k2", "k3"]
Normalization: TypeAlias = Literal["sequence", "token", "constant"]
Watch: TypeAlias = Callable[[Completions, Tensor], Mapping[str, float] | None]


@settings
class GRPOConfig:
    """Settings of GRPO.

    Args:
        updates: rounds of sampling and training; 80 here.
        prompts: P, prompts a round; 8 to 512.
        group: G, completions a prompt, at least 2; 4 to 64. Small groups are often all right or all wrong,
            and then teach nothing.
        epochs: passes over a round's completions; 1 is usual.
        minibatches: gradient steps a pass; must divide P G.
        learning_rate: of AdamW at its highest; 5e-4 for this small model, about 1e-6 for large ones.
        warmup: updates until the learning rate is at its highest.
        final_share: share of the learning rate that is left at the end.
        max_gradient_norm: longer gradients are scaled down to this length.
        clip: how far the ratio may fall below and rise above 1 before its gradient stops; (0.2, 0.2), or
            (0.2, 0.28).
        beta: weight of the divergence from the reference, in the loss; 0 needs no reference. 0 to 0.1.
        kl: which estimator of that divergence, "k1", "k2" or "k3".
        scale: "std" divides a group's advantages by its standard deviation, "none" does not, "leave_one_out"
            compares each completion with the others only.
        ddof: 0 for the standard deviation of the group as it is, 1 for the sample estimate.
        normalize: how token terms become one number: "sequence", "token" or "constant" (see ``aggregate``).
        temperature: of the sampling, and of the policy that is trained.
        evaluate_every: updates between greedy evaluations (metric "accuracy"); 0 for none.
    """

    updates: Count = 80
    prompts: Count = 64
    group: GroupSize = 8
    epochs: Count = 1
    minibatches: Count = 4
    learning_rate: Positive = 5e-4
    warmup: Natural = 5
    final_share: UnitInterval = 0.1
    max_gradient_norm: Positive = 1.0
    clip: Clip = (0.2, 0.2)
    beta: NotNegative = 0.0
    kl: Estimator = "k3"
    scale: Scale = "std"
    ddof: Literal[0, 1] = 0
    normalize: Normalization = "token"
    temperature: Positive = 1.0
    evaluate_every: Natural = 0

    def check_together(self) -> None:
        """Every minibatch has as many completions."""
        size = self.prompts * self.group
        if size % self.minibatches:
            raise ValueError(f"minibatches is {self.minibatches}; expected a divisor of prompts * group = {size}")


# --------------------------------------------------------------------------------- the advantage and the loss


@checked(arrays="tensors")
def group_advantages(
    rewards: Floats[Array, "P G"], scale: Scale = "std", ddof: Literal[0, 1] = 0, epsilon: NotNegative = 1e-6
) -> Array:
    """How much better each completion's reward is than its group's.

    Equation: eq-group-advantage, eq-leave-one-out

    Args:
        rewards: (P, G), G completions of each of P prompts, G at least 2.
        scale: "std": (R - mean) / (std + epsilon). "none": R - mean. "leave_one_out": R minus the mean of the
            OTHERS.
        ddof: 0 divides the sum of squares in the standard deviation by G, 1 by G - 1.
        epsilon: added to the standard deviation.

    Returns:
        (P, G). A group of equal rewards gets exactly 0: nothing in it is better than anything else.

    Raises:
        ValueError: groups of one.

    Source: Shao et al. (2024), section 4.1 (std); Liu et al. (2025) (none); Kool et al. (2019) (leave one
        out).
    """
    _require_company(rewards)
    if scale == "leave_one_out":
        advantages = rewards - leave_one_out_baseline(rewards)
    else:
        advantages = rewards - rewards.mean(1, keepdim=True)
    equal = rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True)
    if scale == "std":
        spread = rewards.std(1, correction=ddof, keepdim=True)
        advantages = advantages / torch.where(equal, 1.0, spread + epsilon)
    return advantages.masked_fill(equal, 0.0)  # the rounding of the mean must not make an advantage


def _require_company(rewards: Tensor) -> None:
    if rewards.shape[1] < 2:
        shape = tuple(rewards.shape)
        raise ValueError(f"rewards has shape {shape}, groups of one; expected (P, G) with G at least 2")


@checked(arrays="tensors")
def token_objective(
    log_prob: Floats[Array, "*"],
    log_prob_old: Floats[Array, "*"],
    advantage: Floats[Array, "*"],
    clip: Clip = (0.2, 0.2),
) -> Array:
    """What each token adds to the clipped objective, with a range of its own below and above 1.

    Equation: eq-grpo-clip

    Args:
        log_prob: (B, N), of the policy that is trained.
        log_prob_old: (B, N), of the policy that sampled.
        advantage: (B, N) or broadcastable.
        clip: (below, above): the ratio's range is [1 - below, 1 + above].

    Returns:
        (B, N), to be maximized.

    Source: Yu et al. (2025), "clip-higher"; with equal numbers, Schulman et al. (2017), equation 7.
    """
    return clip_objective(log_prob, log_prob_old, advantage, clip)


@checked(arrays="tensors")
def token_kl(log_prob: Floats[Array, "..."], log_prob_ref: LogProbs[Array, "..."], kind: Estimator = "k3") -> Array:
    """The estimate, token by token, of how far the policy is from the reference; part of the loss.

    Equation: eq-grpo-kl

    Args:
        log_prob: (B, N), of the policy that is trained.
        log_prob_ref: (B, N), of the frozen reference.
        kind: "k1", "k2" or "k3" (``divergences.kl_estimate``). As a term of a loss k1 has a gradient whose
            mean is 0 and does nothing but harm (chapter 8).

    Returns:
        (B, N), nats.

    Source: Shao et al. (2024), equation 4.
    """
    return kl_estimate(log_prob, log_prob_ref, kind)


@checked(arrays="tensors")
def aggregate(
    terms: MaskedFloats[Array, "B N"],
    mask: Mask[Array, "B N"],
    normalize: Normalization = "sequence",
    denominator: Positive | None = None,
) -> Array:
    """Token terms to one number, in one of three ways that weigh long completions differently.

    Equation: eq-sequence-normalization, eq-token-normalization, eq-constant-normalization

    Args:
        terms: (B, N); what stands at masked positions, NaN included, changes nothing.
        mask: (B, N) bool or 0/1, no row empty.
        normalize: "sequence": the mean over completions of the mean over their tokens; a token of a long
            completion weighs less. "token": the mean over all tokens. "constant": the sum over B N, so that
            no weight depends on the lengths.
        denominator: divides the sum instead of the number of completions ("sequence"), of tokens ("token") or
            B N ("constant"): that of a whole batch, when the terms are a part of it and the parts are added
            up.

    Returns:
        A scalar.

    Source: Shao et al. (2024) (sequence); Yu et al. (2025) (token); Liu et al. (2025) (constant).
    """
    terms, lengths = terms * mask, mask.sum(1)
    if normalize == "sequence":
        return (terms.sum(1) / lengths).sum() / (denominator or len(terms))
    return terms.sum() / (denominator or (lengths.sum() if normalize == "token" else mask.numel()))


@checked(arrays="tensors")
def grpo_loss(
    log_prob: MaskedFloats[Array, "B N"],
    log_prob_old: MaskedFloats[Array, "B N"],
    advantages: Floats[Array, "B"],
    mask: Mask[Array, "B N"],
    *,
    log_prob_ref: MaskedFloats[Array, "B N"] | None = None,
    clip: Clip = (0.2, 0.2),
    beta: NotNegative = 0.0,
    kl: Estimator = "k3",
    normalize: Normalization = "sequence",
    denominator: Positive | None = None,
) -> Array:
    """GRPO's loss: minus the clipped objective, plus beta times the divergence from the reference.

    Equation: eq-grpo-objective

    Args:
        log_prob: (B, N), of the policy that is trained; the gradient flows through it only.
        log_prob_old: (B, N), of the policy that sampled, a constant.
        advantages: (B,), one number for all tokens of a completion.
        mask: (B, N) bool or 0/1; True up to the end of sequence, which is included. What stands at masked
            positions changes nothing.
        log_prob_ref: (B, N), of the frozen reference; needed if beta is above 0.
        clip: (below, above): the ratio's range is [1 - below, 1 + above].
        beta: weight of the divergence, 0 or more.
        kl: its estimator, "k1", "k2" or "k3".
        normalize: "sequence", "token" or "constant" (see ``aggregate``).
        denominator: of a larger batch that these rows are a part of (see ``aggregate``).

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: beta above 0 without a reference.

    Source: Shao et al. (2024), equation 3.
    """
    terms = -token_objective(log_prob, log_prob_old, advantages[:, None], clip)
    if beta > 0:
        if log_prob_ref is None:
            raise ValueError(f"log_prob_ref is None and beta is {beta}; expected the reference's numbers")
        terms = terms + beta * token_kl(log_prob, log_prob_ref, kl)
    return aggregate(terms, mask, normalize, denominator)


# ----------------------------------------------------------------------------------------------- the training


@dataclass
class GRPORun(Run):
    """A run of GRPO."""

    model: LanguageModel
    optimizer: Optimizer
    rng: np.random.Generator  # of prompts and minibatches
    generator: PerProcess  # of the sampling


@checked
def iterate_grpo(
    model: LanguageModel,
    task: TextTask,
    config: GRPOConfig | None = None,
    *,
    seed: Seed,
    reference: LanguageModel | None = None,
    reward: Reward | Scorer | None = None,
    watch: Watch | None = None,
    state: State | None = None,
) -> Iterator[Update]:
    """Train a language model with GRPO, one round of sampling and training an update.

    Args:
        model: the language model; it is trained in place.
        task: makes training prompts, and rewards completions unless ``reward`` is given.
        config: the settings; default ``GRPOConfig()``.
        seed: of prompts, sampling and minibatches.
        reference: the frozen model that the divergence is measured from; default: a copy of the model as it
            comes, if beta is above 0. A run that goes on from a state needs the same reference again.
        reward: called with prompt, completion and whether it ended; or an object with
            ``scores(completions)``, a reward model.
        watch: called with each round's completions and their rewards (P, G) before the model learns from
            them, to keep a few or to measure them; what it returns joins the metrics.
        state: to go on from, as an earlier record's ``state()`` gave it.

    Yields:
        One record an update; ``env_steps`` counts sampled tokens. Metrics: reward (mean), length (tokens),
        zero_variance (share of groups with equal rewards), entropy (nats a token), clipped (share of tokens
        out of range), kl (of the reference, nats a token, if beta is above 0), gradient_norm, and accuracy
        where it was evaluated.

    Raises:
        ValueError: the state was made with other settings, or without the reference that beta above 0 needs.
        RewardError: the reward raised or returned NaN; the sample is named.
    """
    config = config or GRPOConfig()
    reward = task.reward if reward is None else reward
    rng = np.random.default_rng(seed)
    draws = PerProcess(int(rng.integers(2**62)), next(model.parameters()).device)
    optimizer = Adam(model.parameters(), config.learning_rate, betas=(0.9, 0.99), fused=False)
    if config.beta > 0 and reference is None:
        if state is not None:
            raise ValueError(
                "reference is missing: a run with beta above 0 goes on only with the reference it began with"
            )
        reference = frozen_copy(model)
    share = config.prompts // processes() * config.group
    if share % config.minibatches:
        raise ValueError(
            f"minibatches is {config.minibatches}; expected a divisor of the {share} completions of each of "
            f"{processes()} processes"
        )
    run = GRPORun(config, seed, model, model, optimizer, rng, draws)
    yield from run.go_on(state)
    while not run.ended:
        # sample G completions of each prompt
        drawn = my_part(task.prompts(config.prompts, rng, "train"))
        batch = generate(
            model,
            [prompt for prompt in drawn for _ in range(config.group)],
            max_new_tokens=task.max_new_tokens,
            temperature=config.temperature,
            generator=draws.generator,
        )
        # compare each reward with those of its group
        rewards = score_with(reward, batch).view(len(drawn), config.group)  # (P, G)
        advantages = group_advantages(rewards, config.scale, config.ddof).view(-1)  # (B,)
        metrics = {
            "reward": float(rewards.mean()),
            "length": float(batch.lengths.float().mean()),
            "zero_variance": float((rewards.amax(1) == rewards.amin(1)).float().mean()),
        }
        if watch is not None:
            metrics |= watch(batch, rewards) or {}
        # learn: raise the probability of what was better than its group
        learning_rate = config.learning_rate * learning_rate_share(
            run.update, config.updates, config.warmup, config.final_share
        )
        metrics |= _learn(model, optimizer, batch, advantages, reference, config, learning_rate, rng)
        if config.evaluate_every and (run.update + 1) % config.evaluate_every == 0:
            metrics["accuracy"] = evaluate_accuracy(model, task)
        yield run.record(mean_of_metrics(metrics), int(total(float(batch.mask.sum()))))


def _learn(
    model: LanguageModel,
    optimizer: Optimizer,
    batch: Completions,
    advantages: Tensor,
    reference: LanguageModel | None,
    config: GRPOConfig,
    learning_rate: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """The epochs of gradient steps over one round of completions; the mean of what the minibatches showed."""
    log_prob_ref = None
    if config.beta > 0 and reference is not None:
        with torch.no_grad():
            log_prob_ref, _ = completion_log_probs(reference, batch, config.temperature)  # (B, N)
    rows = []
    for _ in range(config.epochs):
        order = torch.from_numpy(rng.permutation(len(batch))).to(batch.tokens.device)
        for index in order.chunk(config.minibatches):
            part = batch.take(index)
            ref = None if log_prob_ref is None else log_prob_ref[index, : part.mask.shape[1]]
            log_prob, entropy = completion_log_probs(model, part, config.temperature)
            loss = grpo_loss(
                log_prob,
                part.log_probs,
                advantages[index],
                part.mask,
                log_prob_ref=ref,
                clip=config.clip,
                beta=config.beta,
                kl=config.kl,
                normalize=config.normalize,
                denominator=_whole_denominator(part.mask, config.normalize),
            )
            norm = gradient_step(optimizer, loss, learning_rate, config.max_gradient_norm)
            found = _diagnose(log_prob.detach(), entropy.detach(), part, ref, config)
            rows.append(found | {"gradient_norm": norm})
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _whole_denominator(mask: Tensor, normalize: Normalization) -> float | None:
    """What divides the loss of a minibatch that is shared by several processes; None for one process, which divides by its own."""
    if processes() == 1:
        return None
    if normalize == "token":
        return total(float(mask.sum()))
    return total(float(len(mask))) * (largest(float(mask.shape[1])) if normalize == "constant" else 1.0)


def _diagnose(
    log_prob: Tensor, entropy: Tensor, part: Completions, ref: Tensor | None, config: GRPOConfig
) -> dict[str, float]:
    """What a minibatch shows before its gradient step."""
    ratio, count = (log_prob - part.log_probs).exp(), part.mask.sum()
    outside = ((ratio < 1 - config.clip[0]) | (ratio > 1 + config.clip[1])) & part.mask
    found = {"entropy": float(entropy.sum() / count), "clipped": float(outside.sum() / count)}
    if ref is not None:
        found["kl"] = float((token_kl(log_prob, ref) * part.mask).sum() / count)
    return found


@checked
def train_grpo(
    model: LanguageModel,
    task: TextTask,
    config: GRPOConfig | None = None,
    *,
    seed: Seed,
    reference: LanguageModel | None = None,
    reward: Reward | Scorer | None = None,
    watch: Watch | None = None,
    **options: Unpack[RunOptions],
) -> TrainingResult:
    """Run ``iterate_grpo`` out; options as in ``training.RunOptions``."""
    begin = partial(iterate_grpo, model, task, reference=reference, reward=reward, watch=watch)
    return train(begin, config or GRPOConfig(), seed=seed, **options)


# ------------------------------------------------------------------------------------- what a group can teach


@checked(arrays="tensors")
def leave_one_out_baseline(rewards: Floats[Array, "P G"]) -> Array:
    """For each completion the mean reward of the others in its group.

    Equation: eq-leave-one-out

    Args:
        rewards: (P, G), G at least 2.

    Returns:
        (P, G).

    Raises:
        ValueError: groups of one.

    Source: Kool et al. (2019).
    """
    _require_company(rewards)
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)


@checked
def group_baseline_factor(group: GroupSize) -> float:
    """What the group mean as a baseline does to the expected gradient: it becomes (1 - 1/G) times what it should be.

    Equation: eq-group-baseline-bias

    The mean contains the completion's own reward, so it takes a G-th of the signal away. Leaving that reward
    out takes nothing.

    Args:
        group: G, at least 2.

    Returns:
        1 - 1 / G.
    """
    return 1.0 - 1.0 / group


@checked
def zero_variance_probability(accuracy: UnitInterval, group: Count) -> float:
    """The chance that a whole group is right or a whole group is wrong, so that it teaches nothing.

    Equation: eq-zero-variance

    Args:
        accuracy: p, the chance that one completion is right, in [0, 1].
        group: G, at least 1.

    Returns:
        p^G + (1 - p)^G.
    """
    return accuracy**group + (1.0 - accuracy) ** group


# ------------------------------------------------------------------------------------------- what a run costs


@checked
def training_memory(
    parameters: Natural,
    *,
    trained: Natural = 1,
    frozen: Natural = 1,
    weight_bytes: Natural = 2,
    state_bytes: Natural = 14,
) -> int:
    """Bytes that the models of a training run hold, activations and caches not counted.

    Equation: eq-training-memory

    Args:
        parameters: of one model.
        trained: models that are trained: 2 for PPO (policy and value), 1 for GRPO.
        frozen: models that are only read: 2 for PPO with a reward model (reference, reward model), 1 or 0 for
            GRPO with a rule.
        weight_bytes: a weight's bytes; 2 in bfloat16, 4 in float32.
        state_bytes: what training holds for each weight besides: gradient, master copy and Adam's two
            moments; 2 + 4 + 8 = 14 in mixed precision, 4 + 8 = 12 in float32.

    Returns:
        parameters * (trained * (weight_bytes + state_bytes) + frozen * weight_bytes).
    """
    return parameters * (trained * (weight_bytes + state_bytes) + frozen * weight_bytes)


@checked
def training_flops(
    parameters: Natural,
    prompt_tokens: Natural,
    completion_tokens: Natural,
    *,
    epochs: Natural = 1,
    frozen_passes: Natural = 1,
) -> dict[str, int]:
    """Floating-point operations for one completion, by what they are spent on; attention over the context not counted.

    Equation: eq-training-flops

    A multiplication and an addition for each weight and token make 2 operations forward; backward costs twice
    as much.

    Args:
        parameters: of the model, N.
        prompt_tokens: tokens of the prompt.
        completion_tokens: tokens of the completion.
        epochs: passes of training over it.
        frozen_passes: frozen models that read it: reference, reward model.

    Returns:
        "sampling" 2 N (P + T), "frozen" 2 N (P + T) a pass, "training" 6 N (P + T) an epoch.
    """
    forward = 2 * parameters * (prompt_tokens + completion_tokens)
    return {"sampling": forward, "frozen": frozen_passes * forward, "training": 3 * epochs * forward}
