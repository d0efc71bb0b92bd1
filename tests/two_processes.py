"""What tests/test_data_parallel.py starts with torchrun: a small training run shared by two processes.

torchrun --standalone --nproc-per-node 2 tests/two_processes.py FOLDER grpo rlhf ... [--dies-at 5]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed  # noqa: F401

from rlbook_lib.data_parallel import join, leave, rank
from rlbook_lib.grpo import GRPOConfig, train_grpo
from rlbook_lib.language_model import CharTokenizer, Completions, Transformer, TransformerConfig
from rlbook_lib.rlhf import RLHFConfig, train_rlhf
from rlbook_lib.text_tasks import Sorting
from rlbook_lib.training import frozen_copy

TASK = Sorting(1, 3)
CONFIGS: dict[str, Any] = {
    "grpo": GRPOConfig(updates=8, prompts=6, group=4, epochs=2, minibatches=1, beta=0.1),
    "grpo-sequence": GRPOConfig(updates=2, prompts=6, group=4, minibatches=1, normalize="sequence"),
    "grpo-constant": GRPOConfig(updates=2, prompts=6, group=4, minibatches=1, normalize="constant"),
    "rlhf": RLHFConfig(updates=3, batch_size=12, epochs=2, minibatches=1, value_warmup=1, kl_target=3.0),
}


def model() -> Transformer:
    """The same one in every process; in float64, since Adam makes steps of full size of a gradient that is 0 but for rounding."""
    return Transformer(
        CharTokenizer(TASK.alphabet), TransformerConfig(width=16, layers=1, heads=2, max_length=16), seed=0
    ).double()


def partly(prompt: str, text: str, finished: bool) -> float:
    """A reward that answers differ in from the start: the share of the prompt's digits that stand in the answer."""
    return sum(digit in text for digit in prompt[:-1]) / len(prompt[:-1]) - 0.1 * len(text)


def train(name: str, student: Transformer, **options: Any) -> Any:
    """Train by either method."""
    method = train_rlhf if name == "rlhf" else train_grpo
    return method(student, TASK, CONFIGS[name], seed=3, reward=partly, reference=frozen_copy(model()), **options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=CONFIGS)
    parser.add_argument("--dies-at", type=int)
    parser.add_argument("--stops-at", type=int)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    join(minutes=options.minutes)
    for name in options.names:
        run(name, options.folder / name, options.dies_at, options.stops_at)
    leave()


def run(name: str, folder: Path, dies_at: int | None, stops_at: int | None) -> None:
    """Train, and leave what each process sampled and ended with."""
    rounds: list[Completions] = []

    def watch(batch: Completions, rewards: torch.Tensor) -> dict[str, float]:
        rounds.append(batch)
        if rank() == 1 and len(rounds) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank() == 1 and len(rounds) == stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        return {}

    student = model()
    result = train(name, student, watch=watch, checkpoint=folder / "checkpoint.pt", checkpoint_every=2)
    torch.save([vars(batch) for batch in rounds], folder / f"rounds{rank()}.pt")
    torch.save(student.state_dict(), folder / f"weights{rank()}.pt")
    if rank() == 0:
        (folder / "history.json").write_text(
            json.dumps({name: curve.tolist() for name, curve in result.history.items()})
        )


if __name__ == "__main__":
    main()
