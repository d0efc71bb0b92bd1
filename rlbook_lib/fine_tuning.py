"""Supervised fine-tuning: raise the probability of demonstrated completions (chapter 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Unpack

import numpy as np

from rlbook_lib.checks import Array, Count, Natural, NotNegative, Positive, Seed, UnitInterval, checked, settings
from rlbook_lib.language_model import Completions, LanguageModel, PerToken, RealTokens
from rlbook_lib.language_model import completion_log_probs, encode_completions
from rlbook_lib.text_tasks import TextTask
from rlbook_lib.training import Adam, Optimizer, Run, RunOptions, State, TrainingResult, Update
from rlbook_lib.training import gradient_step, learning_rate_share, train


@settings
class SFTConfig:
    """Settings of supervised fine-tuning."""

    updates: Count = 400  #: gradient steps; one to three passes over the data where data is scarce
    batch_size: Count = 128  #: demonstrations in a step; 16 to 512
    learning_rate: Positive = 2e-3  #: of AdamW at its highest; 1e-6 to 1e-5 for large pretrained models
    warmup: Natural = 50  #: updates until the learning rate is at its highest; then it falls linearly
    final_share: UnitInterval = 0.1  #: share of the learning rate that is left at the end
    weight_decay: NotNegative = 0.01  #: of AdamW
    max_gradient_norm: Positive = 1.0  #: longer gradients are scaled down to this length


@checked(arrays="tensors")
def masked_mean(x: PerToken, mask: RealTokens) -> Array:
    """The mean over the real tokens of a batch; what stands elsewhere, NaN included, changes nothing.

    Equation: eq-masked-mean
    """
    return x.masked_fill(~mask, 0.0).sum() / mask.sum()


@checked(arrays="tensors")
def sft_loss(log_prob: PerToken, mask: RealTokens) -> Array:
    """Mean negative log-probability of the demonstrated tokens, the end of sequence included.

    Equation: eq-sft-loss

    To be minimized: the cross-entropy between demonstrators and model, in nats a token.
    """
    return -masked_mean(log_prob, mask)


@dataclass
class SFTRun(Run):
    """A run of supervised fine-tuning."""

    model: LanguageModel
    optimizer: Optimizer
    rng: np.random.Generator


@checked
def iterate_sft(
    model: LanguageModel, task: TextTask, config: SFTConfig | None = None, *, seed: Seed, state: State | None = None
) -> Iterator[Update]:
    """Train a model, in place, on fresh demonstrations, one gradient step an update; the rest as for every trainer.

    Yields:
        One record an update; ``env_steps`` counts demonstrated tokens; metrics: loss, learning_rate.
    """
    config = config or SFTConfig()
    rng = np.random.default_rng(seed)
    optimizer = Adam(
        model.parameters(), config.learning_rate, decay=config.weight_decay, betas=(0.9, 0.98), fused=False
    )
    run = SFTRun(config, seed, model, model, optimizer, rng)
    yield from run.go_on(state)
    while not run.ended:
        share = learning_rate_share(run.update, config.updates, config.warmup, config.final_share)
        batch = demonstrations(model, task, config.batch_size, rng)
        log_prob, _ = completion_log_probs(model, batch)
        loss = sft_loss(log_prob, batch.mask)
        gradient_step(optimizer, loss, config.learning_rate * share, config.max_gradient_norm)
        metrics = {"loss": loss.item(), "learning_rate": config.learning_rate * share}
        yield run.record(metrics, int(batch.mask.sum()))


@checked
def train_sft(
    model: LanguageModel, task: TextTask, config: SFTConfig | None = None, *, seed: Seed, **options: Unpack[RunOptions]
) -> TrainingResult:
    """Run ``iterate_sft`` out; options as in ``training.RunOptions``."""
    return train(partial(iterate_sft, model, task), config or SFTConfig(), seed=seed, **options)


@checked
def demonstrations(model: LanguageModel, task: TextTask, count: Count, rng: np.random.Generator) -> Completions:
    """Fresh training prompts with what the demonstrators answer, in the model's tokens."""
    prompts = task.prompts(count, rng, "train")
    texts = [task.demonstration(prompt, rng) for prompt in prompts]
    return encode_completions(model, prompts, texts)
