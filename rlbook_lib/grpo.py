"""Group relative policy optimization: several answers to each prompt, compared with each other (chapter 13).

PPO asks a value network how good an answer was expected to be. GRPO asks the other answers to the same
prompt: P prompts get G completions each, and a completion's advantage says how much better its reward is than
its group's. All its tokens share that number.

Shapes: P prompts, G completions a prompt, B = P G completions, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeAlias, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlbook_lib.checks import Array, Count, Floats, LogProbs, Natural, NotNegative, OpenUnitInterval, Positive, Range
from rlbook_lib.checks import Seed, UnitInterval
from rlbook_lib.checks import checked, settings
from rlbook_lib.divergences import kl_estimate
from rlbook_lib.fine_tuning import masked_mean
from rlbook_lib.language_model import LOGITS_AT_ONCE, Completions, LanguageModel, PerToken, RealTokens
from rlbook_lib.language_model import completion_log_probs, generate
from rlbook_lib.ppo import clip_objective
from rlbook_lib.text_tasks import Reward, Scorer, TextTask, Watch, evaluate_accuracy, score_with
from rlbook_lib.training import Adam, Optimizer, Run, RunOptions, State, TrainingResult, Update
from rlbook_lib.training import frozen_copy, gradient_step, learning_rate_share, train

GroupSize: TypeAlias = Annotated[int, Range(2)]  # a completion needs others to be compared with
Clip: TypeAlias = tuple[OpenUnitInterval, Positive]  # how far the ratio may go (below, above) 1
Scale: TypeAlias = Literal["std", "none", "leave_one_out"]
Estimator: TypeAlias = Literal["k1", "k2", "k3"]
Normalization: TypeAlias = Literal["sequence", "token", "constant"]


@settings
class GRPOConfig:
    """Settings of GRPO."""

    updates: Count = 80  #: rounds of sampling and training
    prompts: Count = 64  #: P, prompts a round; 8 to 512
    group: GroupSize = 8  #: G, completions a prompt; 4 to 64; small groups are often all right or all wrong
    epochs: Count = 1  #: passes over a round's completions; 1 is usual
    minibatches: Count = 4  #: gradient steps a pass; must divide P G
    rows_at_once: Natural = 0  #: completions that are read at once, the gradients of more are added up; 0 for all
    learning_rate: Positive = 5e-4  #: of AdamW at its highest; about 1e-6 for large models
    warmup: Natural = 5  #: updates until the learning rate is at its highest
    final_share: UnitInterval = 0.1  #: share of the learning rate that is left at the end
    max_gradient_norm: Positive = 1.0  #: longer gradients are scaled down to this length
    clip: Clip = (0.2, 0.2)  #: how far the ratio may go (below, above) 1 before its gradient stops; or (0.2, 0.28)
    beta: NotNegative = 0.0  #: weight of the divergence from the reference; 0 needs no reference; 0 to 0.1
    kl: Estimator = "k3"  #: which estimator of that divergence
    scale: Scale = "std"  #: what a group's advantages are divided by and measured from (see ``group_advantages``)
    ddof: Literal[0, 1] = 0  #: 0 for the standard deviation of the group as it is, 1 for the sample estimate
    normalize: Normalization = "token"  #: how token terms become one number (see ``aggregate``)
    temperature: Positive = 1.0  #: of the sampling, and of the policy that is trained
    evaluate_every: Natural = 0  #: updates between greedy evaluations (metric "accuracy"); 0 for none

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
        rewards: G completions of each of P prompts, G at least 2.
        scale: "std": (R - mean) / (std + epsilon). "none": R - mean. "leave_one_out": R minus the mean of the OTHERS.
        ddof: 0 divides the sum of squares in the standard deviation by G, 1 by G - 1.

    Returns:
        (P, G). A group of equal rewards gets exactly 0: nothing in it is better than anything else.

    Source: Shao et al. (2024), section 4.1 (std); Liu et al. (2025) (none); Kool et al. (2019) (leave one out).
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

    To be maximized; the ratio of the policy that is trained to the one that sampled moves in [1 - below, 1 + above].

    Source: Yu et al. (2025), "clip-higher"; with equal numbers, Schulman et al. (2017), equation 7.
    """
    log_prob, log_prob_old, advantage = torch.broadcast_tensors(log_prob, log_prob_old, advantage)
    return clip_objective(log_prob, log_prob_old, advantage, clip)


@checked(arrays="tensors")
def token_kl(log_prob: Floats[Array, "..."], log_prob_ref: LogProbs[Array, "..."], kind: Estimator = "k3") -> Array:
    """The estimate, token by token, of how far the policy is from the reference; part of the loss.

    Equation: eq-grpo-kl

    ``divergences.kl_estimate``. As a term of a loss k1 has a gradient whose mean is 0 and does nothing but harm (chapter 8).

    Source: Shao et al. (2024), equation 4.
    """
    return kl_estimate(log_prob, log_prob_ref, kind)


@checked(arrays="tensors")
def aggregate(
    terms: PerToken, mask: RealTokens, normalize: Normalization = "sequence", denominator: Positive | None = None
) -> Array:
    """Token terms to one number, in one of three ways that weigh long completions differently.

    Equation: eq-sequence-normalization, eq-token-normalization, eq-constant-normalization

    Args:
        normalize: "sequence": the mean over completions of the mean over their tokens; a token of a long
            completion weighs less. "token": the mean over all tokens. "constant": the sum over B N, so that
            no weight depends on the lengths.
        denominator: divides the sum instead of the number of completions ("sequence"), of tokens ("token") or
            B N ("constant"): that of a whole batch, when the terms are a part of it and the parts are added up.

    Source: Shao et al. (2024) (sequence); Yu et al. (2025) (token); Liu et al. (2025) (constant).
    """
    terms, lengths = terms.masked_fill(~mask, 0.0), mask.sum(1)
    if normalize == "sequence":
        return (terms.sum(1) / lengths).sum() / (denominator or len(terms))
    return terms.sum() / (denominator or (lengths.sum() if normalize == "token" else mask.numel()))


@checked(arrays="tensors")
def grpo_loss(
    log_prob: PerToken,
    log_prob_old: PerToken,
    advantages: Floats[Array, "B"],
    mask: RealTokens,
    *,
    log_prob_ref: PerToken | None = None,
    clip: Clip = (0.2, 0.2),
    beta: NotNegative = 0.0,
    kl: Estimator = "k3",
    normalize: Normalization = "sequence",
    denominator: Positive | None = None,
) -> Array:
    """GRPO's loss: minus the clipped objective, plus beta times the divergence from the reference.

    Equation: eq-grpo-objective

    A scalar, to be minimized.

    Args:
        log_prob: of the policy that is trained; the gradient flows through it only.
        log_prob_old: of the policy that sampled, a constant.
        advantages: one number for all tokens of a completion.
        log_prob_ref: of the frozen reference; needed if beta is above 0.
        clip: (below, above): the ratio's range is [1 - below, 1 + above].
        beta: weight of the divergence, estimated by ``kl``.
        normalize, denominator: as in ``aggregate``.

    Raises:
        ValueError: beta above 0 without a reference.

    Source: Shao et al. (2024), equation 3.
    """
    masked = ~mask  # here and not in the end: NaN times the 0 of a masked gradient would be NaN
    log_prob, log_prob_old = log_prob.masked_fill(masked, 0.0), log_prob_old.masked_fill(masked, 0.0)
    terms = -token_objective(log_prob, log_prob_old, advantages[:, None], clip)
    if beta > 0:
        if log_prob_ref is None:
            raise ValueError(f"log_prob_ref is None and beta is {beta}; expected the reference's numbers")
        terms = terms + beta * token_kl(log_prob, log_prob_ref.masked_fill(masked, 0.0), kl)
    return aggregate(terms, mask, normalize, denominator)


# ----------------------------------------------------------------------------------------------- the training


@dataclass
class GRPORun(Run):
    """A run of GRPO."""

    model: LanguageModel
    optimizer: Optimizer
    rng: np.random.Generator  # of prompts and minibatches
    generator: torch.Generator  # of the sampling


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
    """Train a language model with GRPO, one round of sampling an update; the rest as for every trainer (``training``).

    Args:
        model: is trained in place.
        task: makes training prompts, and rewards completions unless ``reward`` is given.
        reference: what the divergence is measured from; default: a copy of the model as it comes, if beta is
            above 0. A run that goes on from a state needs the same reference again.
        reward: called with prompt, completion and whether it ended; or a reward model.
        watch: called with each round's completions and their rewards (P, G) before the model learns from
            them; what it returns joins the metrics.

    Yields:
        One record an update; ``env_steps`` counts sampled tokens. Metrics: reward (mean), length (tokens),
        truncated (share of completions cut off), zero_variance (share of groups with equal rewards), entropy (nats a token), clipped (share of tokens
        out of range), kl (of the reference, nats a token, if beta is above 0), gradient_norm, and accuracy
        where it was evaluated.

    Raises:
        ValueError: a state comes without the reference that beta above 0 needs.
        RewardError: the reward raised or returned NaN; the sample is named.
    """
    config = config or GRPOConfig()
    reward = task.reward if reward is None else reward
    rng = np.random.default_rng(seed)
    draws = torch.Generator(next(model.parameters()).device).manual_seed(int(rng.integers(2**62)))
    optimizer = Adam(model.parameters(), config.learning_rate, betas=(0.9, 0.99), fused=False)
    if config.beta > 0 and reference is None:
        if state is not None:
            raise ValueError(
                "reference is missing: a run with beta above 0 goes on only with the reference it began with"
            )
        reference = frozen_copy(model)
    run = GRPORun(config, seed, model, model, optimizer, rng, draws)
    yield from run.go_on(state)
    while not run.ended:
        # sample G completions of each prompt
        drawn = task.prompts(config.prompts, rng, "train")
        batch = generate(
            model,
            [prompt for prompt in drawn for _ in range(config.group)],
            max_new_tokens=task.max_new_tokens,
            temperature=config.temperature,
            generator=draws,
        )
        # compare each reward with those of its group
        rewards = score_with(reward, batch).view(len(drawn), config.group)  # (P, G)
        advantages = group_advantages(rewards, config.scale, config.ddof).view(-1)  # (B,)
        metrics = {
            "reward": float(rewards.mean()),
            "length": float(batch.lengths.float().mean()),
            "truncated": float((~batch.finished).float().mean()),
            "zero_variance": float((rewards.amax(1) == rewards.amin(1)).float().mean()),
        }
        if watch is not None:
            metrics |= watch(batch, rewards) or {}
        # learn: raise the probability of what was better than its group
        learning_rate = config.learning_rate * learning_rate_share(
            run.update, config.updates, config.warmup, config.final_share
        )
        metrics |= _learn(run, batch, advantages, reference, learning_rate)
        if config.evaluate_every and (run.update + 1) % config.evaluate_every == 0:
            metrics["accuracy"] = evaluate_accuracy(model, task)
        yield run.record(metrics, int(batch.mask.sum()))


def _learn(
    run: GRPORun, batch: Completions, advantages: Tensor, reference: LanguageModel | None, learning_rate: float
) -> dict[str, float]:
    """The epochs of gradient steps over one round of completions; the mean of what the minibatches showed."""
    config: GRPOConfig = run.config
    log_prob_ref = None
    if config.beta > 0 and reference is not None:
        with torch.no_grad():
            rows = torch.arange(len(batch)).split(config.rows_at_once or len(batch))
            parts = [completion_log_probs(reference, batch.take(r), config.temperature)[0] for r in rows]
            log_prob_ref = torch.cat([F.pad(p, (0, batch.mask.shape[1] - p.shape[1])) for p in parts])  # (B, N)
    steps = []
    for _ in range(config.epochs):
        order = torch.from_numpy(run.rng.permutation(len(batch))).to(batch.tokens.device)
        for index in order.chunk(config.minibatches):
            found: list[dict[str, float]] = []
            losses = _losses(run, batch, index, advantages, log_prob_ref, found)
            norm = gradient_step(run.optimizer, losses, learning_rate, config.max_gradient_norm)
            steps.append(_mean_over_tokens(found) | {"gradient_norm": norm})
    return {name: float(np.mean([step[name] for step in steps])) for name in steps[0]}


def _losses(
    run: GRPORun,
    batch: Completions,
    index: Tensor,
    advantages: Tensor,
    log_prob_ref: Tensor | None,
    found: list[dict[str, float]],
) -> Iterator[Tensor]:
    """The loss of a minibatch in parts that add up to it, one after another, and what each of them shows."""
    config: GRPOConfig = run.config
    whole = batch.take(index).mask
    count = float({"sequence": len(whole), "token": int(whole.sum()), "constant": whole.numel()}[config.normalize])
    for rows in index.split(config.rows_at_once or len(index)):
        part = batch.take(rows)
        ref = None if log_prob_ref is None else log_prob_ref[rows, : part.mask.shape[1]]
        log_prob, entropy = completion_log_probs(run.model, part, config.temperature)
        found.append(_diagnose(log_prob.detach(), entropy.detach(), part, ref, config))
        yield grpo_loss(
            log_prob,
            part.log_probs,
            advantages[rows],
            part.mask,
            log_prob_ref=ref,
            clip=config.clip,
            beta=config.beta,
            kl=config.kl,
            normalize=config.normalize,
            denominator=count,
        )


def _mean_over_tokens(parts: list[dict[str, float]]) -> dict[str, float]:
    tokens = [part.pop("tokens") for part in parts]
    return {name: float(np.average([part[name] for part in parts], weights=tokens)) for name in parts[0]}


def _diagnose(
    log_prob: Tensor, entropy: Tensor, part: Completions, ref: Tensor | None, config: GRPOConfig
) -> dict[str, float]:
    """What rows show before the gradient step: means over their tokens, and how many."""
    ratio = (log_prob - part.log_probs).exp()
    outside = (ratio < 1 - config.clip[0]) | (ratio > 1 + config.clip[1])
    shown = {"entropy": entropy, "clipped": outside.float()}
    if ref is not None:
        shown["kl"] = token_kl(log_prob, ref)
    return {name: float(masked_mean(x, part.mask)) for name, x in shown.items()} | {"tokens": float(part.mask.sum())}


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
    """
    return 1.0 - 1.0 / group


@checked
def zero_variance_probability(accuracy: UnitInterval, group: Count) -> float:
    """The chance that a whole group is right or a whole group is wrong, so that it teaches nothing: p^G + (1 - p)^G.

    Equation: eq-zero-variance
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
        frozen: models that are only read: 2 for PPO (reference, reward model), 1 or 0 for GRPO with a rule.
        weight_bytes: a weight's bytes; 2 in bfloat16, 4 in float32.
        state_bytes: what training holds for each weight besides: gradient, master copy and Adam's two
            moments; 2 + 4 + 8 = 14 in mixed precision, 4 + 8 = 12 in float32.
    """
    return parameters * (trained * (weight_bytes + state_bytes) + frozen * weight_bytes)


@checked
def activation_memory(
    tokens: Natural,
    *,
    layers: Natural,
    width: Natural,
    inner: Natural,
    vocabulary: Natural,
    number_bytes: Natural = 4,
    logits_at_once: Natural = LOGITS_AT_ONCE,
) -> dict[str, int]:
    """Bytes that a gradient step holds besides the models: what each layer keeps for the way back, and the logits.

    About 16 numbers of the width and 4 of the inner width a layer and token (a block as in Llama or Qwen, attention that keeps
    no table of scores); four tables of float32 logits, of a slice of the tokens where all would be too many.

    Args:
        tokens: that are read at once, prompts and padding with them.
        inner: of the two-layer network in a block.
        number_bytes: 4, or 2 under autocast.
        logits_at_once: as in ``language_model.completion_log_probs``.
    """
    return {
        "layers": tokens * layers * (16 * width + 4 * inner) * number_bytes,
        "logits": 4 * 4 * min(tokens * vocabulary, max(logits_at_once, vocabulary)),
    }


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
    as much. ``epochs`` are passes of training, ``frozen_passes`` those of reference and reward model.

    That is "sampling" 2 N (P + T), "frozen" 2 N (P + T) a pass, "training" 6 N (P + T) an epoch.
    """
    forward = 2 * parameters * (prompt_tokens + completion_tokens)
    return {"sampling": forward, "frozen": frozen_passes * forward, "training": 3 * epochs * forward}
