"""Supervised fine-tuning: raise the probability of demonstrated completions (chapter 11).

The second half holds the three small steps that every trainer of a language model in this book shares, which
are the learning rate of an update, one gradient step, and a frozen copy of a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlbook_lib.experience import check_count, check_positive
from rlbook_lib.language_model import Completions, LanguageModel, completion_log_probs, encode_completions
from rlbook_lib.mdp import check_seed
from rlbook_lib.text_tasks import TextTask
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
    "SFTConfig",
    "masked_mean",
    "sft_loss",
    "demonstrations",
    "iterate_sft",
    "train_sft",
    "learning_rate_share",
    "gradient_step",
    "frozen_copy",
]


@dataclass(frozen=True)
class SFTConfig:
    """Settings of supervised fine-tuning.

    Args:
        updates: gradient steps; 400 here, one to three passes over the data where data is scarce.
        batch_size: demonstrations in a step, 16 to 512.
        learning_rate: of AdamW at its highest; 1e-3 to 3e-3 for this small model, 1e-6 to 1e-5 for large
            pretrained ones.
        warmup: updates until the learning rate is at its highest; then it falls linearly.
        final_share: share of the learning rate that is left at the end.
        weight_decay: of AdamW.
        max_gradient_norm: longer gradients are scaled down to this length.
    """

    updates: int = 400
    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup: int = 50
    final_share: float = 0.1
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0

    def __post_init__(self) -> None:
        check_count("updates", self.updates)
        check_count("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate)
        check_positive("max_gradient_norm", self.max_gradient_norm)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real tokens of a batch.

    Equation: eq-masked-mean

    Args:
        x: (B, N); what stands at masked positions, NaN included, changes nothing.
        mask: (B, N) bool or 0/1, with at least one real token.

    Returns:
        A scalar.

    Raises:
        ValueError: shapes that differ, or no real token.
    """
    if x.shape != mask.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}; x has {tuple(x.shape)}")
    mask = mask.bool()
    count = mask.sum()
    if not count:
        raise ValueError("mask is all zero; expected at least one real token")
    return x.masked_fill(~mask, 0.0).sum() / count


def sft_loss(log_prob: Tensor, mask: Tensor) -> Tensor:
    """Mean negative log-probability of the demonstrated tokens, the end of sequence included.

    Equation: eq-sft-loss

    Args:
        log_prob: (B, N), of the demonstrated tokens.
        mask: (B, N) bool or 0/1.

    Returns:
        A scalar, to be minimized: the cross-entropy between demonstrators and model, in nats a token.

    Raises:
        ValueError: shapes that differ, or no real token.

    Source: maximum likelihood.
    """
    return -masked_mean(log_prob, mask)


def iterate_sft(
    model: Any, task: TextTask, config: SFTConfig | None = None, *, seed: int, state: State | None = None
) -> Iterator[Update]:
    """Train a model on fresh demonstrations, one gradient step an update.

    Args:
        model: the language model; it is trained in place.
        task: makes training prompts and demonstrations.
        config: the settings; default ``SFTConfig()``.
        seed: of prompts and demonstrations.
        state: to go on from, as an earlier record's ``state()`` gave it.

    Yields:
        One record an update; ``env_steps`` counts demonstrated tokens; metrics: loss, learning_rate.

    Raises:
        ValueError: the state was made with other settings.
    """
    config = config or SFTConfig()
    rng = np.random.default_rng(check_seed(seed))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.98)
    )
    update = tokens = 0
    if state is not None:
        check_state(state, config, seed)
        update, tokens = state["update"], state["tokens"]
        unpack(model, state["model"])
        unpack(optimizer, state["optimizer"])
        set_rng_state(rng, state["rng"])

    def snapshot() -> State:
        return {
            "config": config_dict(config), "seed": seed, "update": update, "tokens": tokens,
            "model": pack(model), "optimizer": pack(optimizer), "rng": rng_state(rng),
        }  # fmt: skip

    if update >= config.updates:  # a state of a run that had ended
        yield Update(update, tokens, {}, model, snapshot)
    while update < config.updates:
        share = learning_rate_share(update, config.updates, config.warmup, config.final_share)
        batch = demonstrations(model, task, config.batch_size, rng)
        log_prob, _ = completion_log_probs(model, batch)
        loss = sft_loss(log_prob, batch.mask)
        gradient_step(optimizer, loss, config.learning_rate * share, config.max_gradient_norm)
        update, tokens = update + 1, tokens + int(batch.mask.sum())
        metrics = {"loss": loss.item(), "learning_rate": config.learning_rate * share}
        yield Update(update, tokens, metrics, model, snapshot)


def train_sft(
    model: Any, task: TextTask, config: SFTConfig | None = None, *, seed: int, **options: Any
) -> TrainingResult:
    """Run ``iterate_sft`` out.

    Args:
        model: the language model; it is trained in place.
        task: makes training prompts and demonstrations.
        config: the settings; default ``SFTConfig()``.
        seed: of prompts and demonstrations.
        options: state, progress, checkpoint, checkpoint_every and stop, as in ``training.train``.

    Returns:
        The trained model as ``policy``, and the curves.

    Raises:
        ValueError: the state was made with other settings; a damaged checkpoint.
        TrainingError: a loss or a parameter is NaN.
    """

    def iterate(_: Any, config: SFTConfig, **rest: Any) -> Iterator[Update]:
        return iterate_sft(model, task, config, **rest)

    return train(iterate, None, config or SFTConfig(), seed=seed, **options)


def demonstrations(model: LanguageModel, task: TextTask, count: int, rng: np.random.Generator) -> Completions:
    """Fresh training prompts with what the demonstrators answer.

    Args:
        model: gives the tokenizer.
        task: makes prompts and demonstrations.
        count: how many.
        rng: the source of randomness.
    """
    prompts = task.prompts(count, rng, "train")
    return encode_completions(model, prompts, [task.demonstration(prompt, rng) for prompt in prompts])


# ----------------------------------------------------------- steps that all trainers of language models share


def learning_rate_share(update: int, updates: int, warmup: int, final_share: float) -> float:
    """The share of the highest learning rate that an update uses: a linear rise, then a linear fall.

    Args:
        update: from 0.
        updates: of the whole run.
        warmup: updates until the rise is over.
        final_share: what is left at the end, in [0, 1].

    Returns:
        A share in (0, 1].
    """
    rise = min(1.0, (update + 1) / max(1, warmup))
    return rise * max(final_share, 1.0 - update / updates)


def gradient_step(
    optimizer: torch.optim.Optimizer, loss: Tensor, learning_rate: float, max_norm: float
) -> float:
    """One step down the gradient of a loss.

    Args:
        optimizer: of the parameters that are trained.
        loss: a scalar with a gradient.
        learning_rate: of this step.
        max_norm: a longer gradient is scaled down to this length.

    Returns:
        The length of the gradient before scaling.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    return float(norm)


def frozen_copy(model: Any) -> Any:
    """A copy of a model that does not learn: the reference that a trained policy is held to."""
    return copy.deepcopy(model).eval().requires_grad_(False)
