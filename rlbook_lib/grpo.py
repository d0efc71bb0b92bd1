"""Group relative policy optimization: several answers to each prompt, compared with each other (chapter 13).

PPO asks a value network how good an answer was expected to be. GRPO asks the other answers to the same
prompt: P prompts get G completions each, and a completion's advantage says how much better its reward is than
its group's. All its tokens share that number.

Shapes: P prompts, G completions a prompt, B = P G completions, N tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlbook_lib.divergences import kl_estimate
from rlbook_lib.experience import check_count, check_positive
from rlbook_lib.fine_tuning import frozen_copy, gradient_step, learning_rate_share
from rlbook_lib.language_model import Completions, completion_log_probs, generate
from rlbook_lib.mdp import check_seed, check_unit_interval
from rlbook_lib.rlhf import score_with
from rlbook_lib.text_tasks import TextTask, evaluate_accuracy
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
    "GRPOConfig",
    "group_advantages",
    "leave_one_out_baseline",
    "group_baseline_factor",
    "zero_variance_probability",
    "token_objective",
    "token_kl",
    "aggregate",
    "grpo_loss",
    "iterate_grpo",
    "train_grpo",
    "training_memory",
    "training_flops",
]

SCALES = ("std", "none", "leave_one_out")
NORMALIZATIONS = ("sequence", "token", "constant")
KINDS = ("k1", "k2", "k3")


@dataclass(frozen=True)
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

    updates: int = 80
    prompts: int = 64
    group: int = 8
    epochs: int = 1
    minibatches: int = 4
    learning_rate: float = 5e-4
    warmup: int = 5
    final_share: float = 0.1
    max_gradient_norm: float = 1.0
    clip: tuple[float, float] = (0.2, 0.2)
    beta: float = 0.0
    kl: str = "k3"
    scale: str = "std"
    ddof: int = 0
    normalize: str = "token"
    temperature: float = 1.0
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        for name in ("updates", "prompts", "epochs", "minibatches"):
            check_count(name, getattr(self, name))
        if self.group < 2:
            raise ValueError(
                f"group is {self.group}; expected 2 or more: a completion needs others to be compared with"
            )
        if self.prompts * self.group % self.minibatches:
            raise ValueError(
                f"minibatches is {self.minibatches}; expected a divisor of prompts * group = {self.prompts * self.group}"
            )
        for name in ("learning_rate", "max_gradient_norm", "temperature"):
            check_positive(name, getattr(self, name))
        _check_clip(self.clip)
        _check_beta(self.beta)
        _check_word("kl", self.kl, KINDS)
        _check_word("scale", self.scale, SCALES)
        _check_word("normalize", self.normalize, NORMALIZATIONS)


# ------------------------------------------------------------------------------------------- group advantages


def group_advantages(rewards: Tensor, scale: str = "std", ddof: int = 0, epsilon: float = 1e-6) -> Tensor:
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
        ValueError: rewards not (P, G) with G at least 2, or not finite; an unknown scale; ddof not 0 or 1;
            epsilon negative.

    Source: Shao et al. (2024), section 4.1 (std); Liu et al. (2025) (none); Kool et al. (2019) (leave one
        out).
    """
    rewards = _float_tensor("rewards", rewards)
    if rewards.dim() != 2 or 0 in rewards.shape:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; expected (P, G), not empty")
    if rewards.shape[1] < 2:
        raise ValueError("rewards has groups of one; expected 2 or more completions a prompt")
    if not rewards.isfinite().all():
        raise ValueError("rewards holds NaN or infinite values; expected finite numbers")
    _check_word("scale", scale, SCALES)
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}; expected 0 or 1")
    if not epsilon >= 0:
        raise ValueError(f"epsilon is {epsilon!r}; expected 0 or more")
    return _group_advantages(rewards, scale, ddof, epsilon)


def _group_advantages(rewards: Tensor, scale: str, ddof: int, epsilon: float) -> Tensor:
    if scale == "leave_one_out":
        advantages = rewards - _leave_one_out(rewards)
    else:
        advantages = rewards - rewards.mean(1, keepdim=True)
    equal = rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True)
    if scale == "std":
        spread = rewards.std(1, correction=ddof, keepdim=True)
        advantages = advantages / torch.where(equal, 1.0, spread + epsilon)
    return advantages.masked_fill(equal, 0.0)  # the rounding of the mean must not make an advantage


def leave_one_out_baseline(rewards: Tensor) -> Tensor:
    """For each completion the mean reward of the others in its group.

    Equation: eq-leave-one-out

    Args:
        rewards: (P, G), G at least 2.

    Returns:
        (P, G).

    Raises:
        ValueError: rewards not (P, G) with G at least 2.

    Source: Kool et al. (2019).
    """
    rewards = _float_tensor("rewards", rewards)
    if rewards.dim() != 2 or rewards.shape[0] < 1 or rewards.shape[1] < 2:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; expected (P, G) with G at least 2")
    return _leave_one_out(rewards)


def _leave_one_out(rewards: Tensor) -> Tensor:
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)


def group_baseline_factor(group: int) -> float:
    """What the group mean as a baseline does to the expected gradient: it becomes (1 - 1/G) times what it should be.

    Equation: eq-group-baseline-bias

    The mean contains the completion's own reward, so it takes a G-th of the signal away. Leaving that reward
    out takes nothing.

    Args:
        group: G, at least 2.

    Returns:
        1 - 1 / G.

    Raises:
        ValueError: group below 2.
    """
    if check_count("group", group) < 2:
        raise ValueError(f"group is {group}; expected 2 or more")
    return 1.0 - 1.0 / group


def zero_variance_probability(accuracy: float, group: int) -> float:
    """The chance that a whole group is right or a whole group is wrong, so that it teaches nothing.

    Equation: eq-zero-variance

    Args:
        accuracy: p, the chance that one completion is right, in [0, 1].
        group: G, at least 1.

    Returns:
        p^G + (1 - p)^G.

    Raises:
        ValueError: accuracy outside [0, 1], group below 1.
    """
    accuracy, group = check_unit_interval("accuracy", accuracy), check_count("group", group)
    return accuracy**group + (1.0 - accuracy) ** group


# ---------------------------------------------------------------------------------------------- the objective


def token_objective(
    log_prob: Tensor, log_prob_old: Tensor, advantage: Tensor, clip: tuple[float, float] = (0.2, 0.2)
) -> Tensor:
    """What each token adds to the clipped objective, with a range of its own below and above 1.

    Equation: eq-grpo-clip

    Args:
        log_prob: (B, N), of the policy that is trained.
        log_prob_old: (B, N), of the policy that sampled.
        advantage: (B, N) or broadcastable.
        clip: (below, above): the ratio's range is [1 - below, 1 + above].

    Returns:
        (B, N), to be maximized.

    Raises:
        ValueError: clip out of range.

    Source: Yu et al. (2025), "clip-higher"; with equal numbers, Schulman et al. (2017), equation 7.
    """
    _check_clip(clip)
    return _token_objective(log_prob, log_prob_old, advantage, clip)


def _token_objective(
    log_prob: Tensor, log_prob_old: Tensor, advantage: Tensor, clip: tuple[float, float]
) -> Tensor:
    ratio = (log_prob - log_prob_old).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip[0], 1.0 + clip[1]) * advantage)


def token_kl(log_prob: Tensor, log_prob_ref: Tensor, kind: str = "k3") -> Tensor:
    """The estimate, token by token, of how far the policy is from the reference; part of the loss.

    Equation: eq-grpo-kl

    Args:
        log_prob: (B, N), of the policy that is trained.
        log_prob_ref: (B, N), of the frozen reference.
        kind: "k1", "k2" or "k3". As a term of a loss k1 has a gradient whose mean is 0 and does nothing but
            harm (chapter 8).

    Returns:
        (B, N), nats.

    Raises:
        ValueError: shapes that differ, NaN, an unknown kind.

    Source: Shao et al. (2024), equation 4.
    """
    estimate: Tensor = kl_estimate(log_prob, log_prob_ref, kind)
    return estimate


def _token_kl(log_prob: Tensor, log_prob_ref: Tensor, kind: str) -> Tensor:
    log_ratio = log_prob_ref - log_prob
    if kind == "k1":
        return -log_ratio
    return 0.5 * log_ratio**2 if kind == "k2" else torch.expm1(log_ratio) - log_ratio


def aggregate(
    terms: Tensor, mask: Tensor, normalize: str = "sequence", denominator: float | None = None
) -> Tensor:
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

    Raises:
        ValueError: shapes that differ or are not (B, N), an empty row, an unknown word.

    Source: Shao et al. (2024) (sequence); Yu et al. (2025) (token); Liu et al. (2025) (constant).
    """
    mask = _checked_mask(terms, mask, "terms")
    _check_word("normalize", normalize, NORMALIZATIONS)
    return _aggregate(terms.masked_fill(~mask, 0.0), mask, normalize, denominator)


def _aggregate(terms: Tensor, mask: Tensor, normalize: str, denominator: float | None) -> Tensor:
    lengths = mask.sum(1)
    if normalize == "sequence":
        return (terms.sum(1) / lengths).sum() / (denominator or len(terms))
    return terms.sum() / (denominator or (lengths.sum() if normalize == "token" else mask.numel()))


def grpo_loss(
    log_prob: Tensor,
    log_prob_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    log_prob_ref: Tensor | None = None,
    clip: tuple[float, float] = (0.2, 0.2),
    beta: float = 0.0,
    kl: str = "k3",
    normalize: str = "sequence",
    denominator: float | None = None,
) -> Tensor:
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
        ValueError: shapes that differ, an empty row, NaN at an unmasked position, beta above 0 without a
            reference, a number out of range, an unknown word.

    Source: Shao et al. (2024), equation 3.
    """
    _check_clip(clip)
    _check_beta(beta)
    _check_word("kl", kl, KINDS)
    _check_word("normalize", normalize, NORMALIZATIONS)
    mask = _checked_mask(log_prob, mask, "log_prob")
    if advantages.shape != log_prob.shape[:1]:
        raise ValueError(
            f"advantages has shape {tuple(advantages.shape)}; expected ({len(log_prob)},), one a completion"
        )
    if beta > 0 and log_prob_ref is None:
        raise ValueError(
            f"beta is {beta} and log_prob_ref is missing; expected the reference's log-probabilities"
        )
    named = {"log_prob": log_prob, "log_prob_old": log_prob_old}
    if log_prob_ref is not None:
        named["log_prob_ref"] = log_prob_ref
    clean = {name: _clean(name, x, mask) for name, x in named.items()}
    if not advantages.isfinite().all():
        raise ValueError("advantages holds NaN or infinite values; expected finite numbers")
    return _grpo_loss(
        clean["log_prob"], clean["log_prob_old"], advantages, mask, clean.get("log_prob_ref"),
        clip, beta, kl, normalize, denominator,
    )  # fmt: skip


def _grpo_loss(
    log_prob: Tensor, log_prob_old: Tensor, advantages: Tensor, mask: Tensor, log_prob_ref: Tensor | None,
    clip: tuple[float, float], beta: float, kl: str, normalize: str, denominator: float | None = None,
) -> Tensor:  # fmt: skip
    """The loss itself; masked positions hold 0 in all log-probabilities."""
    terms = -_token_objective(log_prob, log_prob_old, advantages[:, None], clip)
    if beta > 0 and log_prob_ref is not None:
        terms = terms + beta * _token_kl(log_prob, log_prob_ref, kl)
    return _aggregate(terms * mask, mask, normalize, denominator)


# ----------------------------------------------------------------------------------------------- the training


def iterate_grpo(
    model: Any,
    task: TextTask,
    config: GRPOConfig | None = None,
    *,
    seed: int,
    reference: Any = None,
    reward: Any = None,
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
    rng = np.random.default_rng(check_seed(seed))
    generator = torch.Generator(next(model.parameters()).device).manual_seed(int(rng.integers(2**62)))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=0.0, betas=(0.9, 0.99)
    )
    if config.beta > 0 and reference is None:
        if state is not None:
            raise ValueError(
                "reference is missing: a run with beta above 0 goes on only with the reference it began with"
            )
        reference = frozen_copy(model)
    update = tokens = 0
    if state is not None:
        check_state(state, config, seed)
        update, tokens = state["update"], state["tokens"]
        unpack(model, state["model"])
        unpack(optimizer, state["optimizer"])
        set_rng_state(rng, state["rng"])
        set_rng_state(generator, state["generator"])

    def snapshot() -> State:
        return {
            "config": config_dict(config), "seed": seed, "update": update, "tokens": tokens, "model": pack(model),
            "optimizer": pack(optimizer), "rng": rng_state(rng), "generator": rng_state(generator),
        }  # fmt: skip

    if update >= config.updates:  # a state of a run that had ended
        yield Update(update, tokens, {}, model, snapshot)
    while update < config.updates:
        learning_rate = config.learning_rate * learning_rate_share(
            update, config.updates, config.warmup, config.final_share
        )
        prompts = [
            prompt for prompt in task.prompts(config.prompts, rng, "train") for _ in range(config.group)
        ]
        batch = generate(
            model,
            prompts,
            max_new_tokens=task.max_new_tokens,
            temperature=config.temperature,
            generator=generator,
        )
        rewards = score_with(reward if reward is not None else task.reward, batch).view(
            config.prompts, config.group
        )  # (P, G)
        advantages = _group_advantages(rewards, config.scale, config.ddof, 1e-6).view(-1)  # (B,)
        reference_log_prob = _reference_log_probs(reference, batch, config)
        metrics = _improve(
            model, optimizer, batch, advantages, reference_log_prob, config, learning_rate, rng
        )
        update, tokens = update + 1, tokens + int(batch.mask.sum())
        metrics |= {
            "reward": float(rewards.mean()),
            "length": float(batch.lengths.float().mean()),
            "zero_variance": float((rewards.amax(1) == rewards.amin(1)).float().mean()),
        }
        if config.evaluate_every and update % config.evaluate_every == 0:
            metrics["accuracy"] = evaluate_accuracy(model, task)
        yield Update(update, tokens, metrics, model, snapshot)


def _improve(
    model: Any, optimizer: torch.optim.Optimizer, batch: Completions, advantages: Tensor,
    reference_log_prob: Tensor | None, config: GRPOConfig, learning_rate: float, rng: np.random.Generator,
) -> dict[str, float]:  # fmt: skip
    """The epochs of gradient steps over one round of completions."""
    rows = []
    for _ in range(config.epochs):
        order = torch.from_numpy(rng.permutation(len(batch))).to(batch.tokens.device)
        for index in order.chunk(config.minibatches):
            part = batch.take(index)
            log_prob, entropy = completion_log_probs(model, part, config.temperature)
            ref = None if reference_log_prob is None else reference_log_prob[index, : part.mask.shape[1]]
            loss = _grpo_loss(
                log_prob, part.log_probs, advantages[index], part.mask, ref,
                config.clip, config.beta, config.kl, config.normalize,
            )  # fmt: skip
            norm = gradient_step(optimizer, loss, learning_rate, config.max_gradient_norm)
            rows.append(
                _diagnostics(log_prob.detach(), entropy.detach(), part, ref, config) | {"gradient_norm": norm}
            )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _diagnostics(
    log_prob: Tensor, entropy: Tensor, part: Completions, ref: Tensor | None, config: GRPOConfig
) -> dict[str, float]:
    """What a minibatch shows before its gradient step."""
    ratio, count = (log_prob - part.log_probs).exp(), part.mask.sum()
    outside = ((ratio < 1 - config.clip[0]) | (ratio > 1 + config.clip[1])) & part.mask
    found = {"entropy": float(entropy.sum() / count), "clipped": float(outside.sum() / count)}
    if ref is not None:
        found["kl"] = float((_token_kl(log_prob, ref, "k3") * part.mask).sum() / count)
    return found


@torch.no_grad()
def _reference_log_probs(reference: Any, batch: Completions, config: GRPOConfig) -> Tensor | None:
    """(B, N) of the reference, where the loss needs them."""
    return completion_log_probs(reference, batch, config.temperature)[0] if config.beta > 0 else None


def train_grpo(
    model: Any,
    task: TextTask,
    config: GRPOConfig | None = None,
    *,
    seed: int,
    reference: Any = None,
    reward: Any = None,
    **options: Any,
) -> TrainingResult:
    """Run ``iterate_grpo`` out.

    Args:
        model: the language model; it is trained in place.
        task: makes training prompts, and rewards completions unless ``reward`` is given.
        config: the settings; default ``GRPOConfig()``.
        seed: of prompts, sampling and minibatches.
        reference: as in ``iterate_grpo``.
        reward: as in ``iterate_grpo``.
        options: state, progress, checkpoint, checkpoint_every and stop, as in ``training.train``.

    Returns:
        The trained model as ``policy``, and the curves.

    Raises:
        ValueError: the state was made with other settings; a damaged checkpoint.
        RewardError: the reward raised or returned NaN; the last good checkpoint stays.
        TrainingError: a metric or a parameter is NaN.
    """

    def iterate(_: Any, config: GRPOConfig, **rest: Any) -> Iterator[Update]:
        return iterate_grpo(model, task, config, reference=reference, reward=reward, **rest)

    return train(iterate, None, config or GRPOConfig(), seed=seed, **options)


# ------------------------------------------------------------------------------------------- what a run costs


def training_memory(
    parameters: int, *, trained: int = 1, frozen: int = 1, weight_bytes: int = 2, state_bytes: int = 14
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

    Raises:
        ValueError: a negative number.
    """
    numbers = {"parameters": parameters, "trained": trained, "frozen": frozen,
               "weight_bytes": weight_bytes, "state_bytes": state_bytes}  # fmt: skip
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}; expected a whole number, 0 or more")
    return parameters * (trained * (weight_bytes + state_bytes) + frozen * weight_bytes)


def training_flops(
    parameters: int, prompt_tokens: int, completion_tokens: int, *, epochs: int = 1, frozen_passes: int = 1
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

    Raises:
        ValueError: a negative number.
    """
    numbers = {"parameters": parameters, "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
               "epochs": epochs, "frozen_passes": frozen_passes}  # fmt: skip
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}; expected a whole number, 0 or more")
    forward = 2 * parameters * (prompt_tokens + completion_tokens)
    return {"sampling": forward, "frozen": frozen_passes * forward, "training": 3 * epochs * forward}


# --------------------------------------------------------------------------------------------------- the door


def _float_tensor(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        try:
            x = torch.as_tensor(np.asarray(x, dtype=float))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is {type(x).__name__}; expected a tensor of numbers") from error
    return x if x.is_floating_point() else x.float()


def _checked_mask(x: Tensor, mask: Tensor, name: str) -> Tensor:
    """The mask as booleans, of x's shape, with a real token in every row."""
    if x.dim() != 2 or 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (B, N), not empty")
    if mask.shape != x.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}; {name} has {tuple(x.shape)}")
    if mask.dtype != torch.bool and not ((mask == 0) | (mask == 1)).all():
        raise ValueError("mask holds values other than 0 and 1")
    mask = mask.bool()
    if not mask.any(1).all():
        raise ValueError(
            f"row {int((~mask.any(1)).nonzero()[0])} of mask is empty; expected a real token in each"
        )
    return mask


def _clean(name: str, x: Tensor, mask: Tensor) -> Tensor:
    """0 at masked positions; finite elsewhere."""
    if x.shape != mask.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected {tuple(mask.shape)}")
    x = torch.where(mask, x, 0.0)
    if not x.isfinite().all():
        raise ValueError(
            f"{name} holds NaN or infinite values at unmasked positions; expected finite numbers"
        )
    return x


def _check_clip(clip: tuple[float, float]) -> None:
    if not isinstance(clip, tuple) or len(clip) != 2:
        raise ValueError(f"clip is {clip!r}; expected (below, above)")
    below, above = clip
    if not (0 < below < 1) or not (above > 0 and math.isfinite(above)):
        raise ValueError(f"clip is {clip!r}; expected below in (0, 1) and above larger than 0")


def _check_beta(beta: float) -> None:
    if not (math.isfinite(beta) and beta >= 0):
        raise ValueError(f"beta is {beta!r}; expected a finite number, 0 or more")


def _check_word(name: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise ValueError(f"{name} is {word!r}; expected one of {', '.join(map(repr, known))}")
