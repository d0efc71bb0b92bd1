"""Four ways on from a fine-tuned sorting model (the page "What is next"): GRPO, expert iteration, and two kinds of distillation; and LoRA.

Each update takes as many answers and gradient steps in all of them. The fine-tuned models and their teachers are kept in a temporary
folder while the cases are run.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from rlbook_lib.fine_tuning import SFTConfig, masked_mean, sft_loss, train_sft
from rlbook_lib.grpo import group_advantages, grpo_loss
from rlbook_lib.language_model import (
    CharTokenizer,
    Completions,
    LanguageModel,
    Transformer,
    TransformerConfig,
    completion_log_probs,
    generate,
    temperature_log_probs,
)
from rlbook_lib.text_tasks import Sorting, evaluate_accuracy, score_completions
from rlbook_lib.training import Adam, frozen_copy, gradient_step

SEEDS = range(5)
TASK = Sorting()  # its demonstrators have a habit: they often drop repeated digits
CLEAN = Sorting(drop=0.0, swap=0.0)  # what the teacher was shown
SIZES = {"same": TransformerConfig(), "small": TransformerConfig(width=32, layers=1, heads=2)}
UPDATES, PROMPTS, GROUP, MINIBATCHES = 40, 32, 8, 4

CASES: dict[str, dict[str, Any]] = {
    f"{way} {rate:g}": {"way": way, "rate": rate}
    for way in ("grpo", "expert iteration", "teacher's answers", "own answers")
    for rate in (1e-4, 3e-4)
}
CASES |= {
    f"{way}, small student": {"way": way, "rate": 1e-3, "size": "small"} for way in ("teacher's answers", "own answers")
}
CASES |= {
    f"{way}, rank {rank}": {"way": way, "rate": 3e-3, "rank": rank}
    for way in ("grpo", "teacher's answers")
    for rank in (1, 2, 4)
}


def trained(seed: int, task: Sorting, updates: int, size: str) -> Transformer:
    """A model that was fine-tuned on a task's demonstrations, or as it was kept by an earlier case."""
    model = Transformer(CharTokenizer(task.alphabet), SIZES[size], seed=seed)
    kept = Path(tempfile.gettempdir()) / "rlbook_what_is_next" / f"{seed}_{task.drop}_{updates}_{size}.pt"
    if kept.exists():
        model.load_state_dict(torch.load(kept))
        return model
    train_sft(model, task, SFTConfig(updates=updates), seed=seed)
    kept.parent.mkdir(exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    torch.save(model.state_dict(), part)
    os.replace(part, kept)
    return model


def logits_at(model: LanguageModel, batch: Completions) -> Tensor:
    """(B, N, V) log-probabilities of every token at every place of the answers."""
    first = batch.prompt_tokens.shape[1]
    return temperature_log_probs(model.head(model.hidden(*batch.whole)[:, first - 1 : -1]))


def reverse_kl(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """KL(student || teacher) in nats a token, exact in the tokens, at the places where the student's own answers led."""
    return masked_mean((student.exp() * (student - teacher)).sum(-1), mask)


class LowRank(nn.Module):
    """W + B A with few rows in A: what LoRA adds to a frozen weight."""

    def __init__(self, weight: Tensor, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.A = nn.Parameter(torch.randn(rank, columns, generator=generator) / columns**0.5)
        self.B = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.B @ self.A


def add_lora(model: Transformer, rank: int, seed: int) -> None:
    """Freeze a model and put thin matrices beside the weights of its blocks."""
    generator = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    for layer in [one for one in model.blocks.modules() if isinstance(one, nn.Linear)]:
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, rank, generator))


def run(seed: int, way: str, rate: float, size: str = "same", rank: int = 0) -> dict[str, list[float]]:
    """Go on from the fine-tuned model, by all weights or by LoRA; the curves begin before the first update."""
    model = trained(seed, TASK, 300, size)
    if rank:
        add_lora(model, rank, seed)
    weights = [one for one in model.parameters() if one.requires_grad]
    teacher = frozen_copy(trained(seed + 100, CLEAN, 800, "same"))
    optimizer = Adam(weights, rate, decay=0.0)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    curves: dict[str, list[float]] = {"accuracy": [], "entropy": [], "kept": []}
    curves["teacher"] = [evaluate_accuracy(teacher, TASK)]
    curves["trained"] = [sum(one.numel() for one in weights)]
    watched = TASK.prompts(128, np.random.default_rng(77), "eval")
    for update in range(UPDATES + 1):
        if update % 4 == 0:
            curves["accuracy"].append(evaluate_accuracy(model, TASK))
            with torch.no_grad():
                seen = generate(model, watched, max_new_tokens=TASK.max_new_tokens, seed=5)
                curves["entropy"].append(float(masked_mean(completion_log_probs(model, seen)[1], seen.mask)))
        if update == UPDATES:
            break
        group = GROUP if way in ("grpo", "expert iteration") else 1  # who needs no comparison asks more prompts
        asked = [q for q in TASK.prompts(PROMPTS * GROUP // group, rng) for _ in range(group)]
        writer = teacher if way == "teacher's answers" else model
        batch = generate(writer, asked, max_new_tokens=TASK.max_new_tokens, generator=generator)
        right = score_completions(TASK.reward, batch)
        rows = torch.arange(len(batch))
        if way == "expert iteration":
            rows = rows[right == 1]
            curves["kept"].append(len(rows) / len(batch))
        advantages = group_advantages(right.view(-1, group)).view(-1) if way == "grpo" else right
        order = rows[torch.from_numpy(rng.permutation(len(rows)))]
        for index in order.chunk(MINIBATCHES):
            if not len(index):
                continue
            part = batch.take(index)
            if way == "own answers":
                with torch.no_grad():
                    wanted = logits_at(teacher, part)
                loss = reverse_kl(logits_at(model, part), wanted, part.mask)
            else:
                log_prob, _ = completion_log_probs(model, part)
                if way == "grpo":
                    loss = grpo_loss(log_prob, part.log_probs, advantages[index], part.mask, normalize="token")
                else:
                    loss = sft_loss(log_prob, part.mask)
            gradient_step(optimizer, loss, rate * min(1.0, (update + 1) / 5), 1.0)
    return {name: values for name, values in curves.items() if values}
