"""Make the supervised starts of the language models that the laboratory trains in the page.

    python tools/lab_weights.py            both files; or
    python tools/lab_weights.py 12         the one of twelve digits

Twelve digits is the model of chapter 13: 104,448 weights. The small one has five digits and half the width: 27,648.
Supervised fine-tuning decides whether GRPO gets anywhere: after 400 updates the small one does not, after 1,200 it
does. First half of the demonstrators write their work, then hardly any do, so that the model can do it and seldom does.
The seeds are in the file; a start is written only if it knows how to answer and is often wrong. Two minutes a start.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rlbook_lib.fine_tuning import SFTConfig, train_sft
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, generate
from rlbook_lib.text_tasks import CheckDigit, score_completions

FOLDER = Path(__file__).resolve().parent.parent / "_static" / "lab"
TASK = CheckDigit(digits=5, written=0.03)  # what the demonstrators of the second round do, and the task of the page
SIZE = TransformerConfig(width=32, layers=2, heads=4, max_length=40)


class Start(NamedTuple):
    """A file of starts: the task, the model, half of the demonstrators writing their work, then three in a hundred."""

    file: str
    seeds: tuple[int, ...]
    task: CheckDigit
    size: TransformerConfig
    working: SFTConfig
    hasty: SFTConfig


STARTS = {
    5: Start(
        "weights.js",
        (0, 2),
        TASK,
        SIZE,
        SFTConfig(updates=1200, batch_size=64, learning_rate=2e-3),
        SFTConfig(updates=150, batch_size=64, learning_rate=1e-3, warmup=10),
    ),
    12: Start(  # as tools/runs/check_digit.py does it
        "weights_twelve.js",
        (0,),
        CheckDigit(written=0.03),
        TransformerConfig(),
        SFTConfig(updates=1000, batch_size=64),
        SFTConfig(updates=150, batch_size=64, learning_rate=5e-4, warmup=10),
    ),
}


def flat(model: nn.Module, values: str = "data") -> np.ndarray:
    """All parameters, or their gradients, in one row: the order that the engine's ``transformer`` reads.

    Linear layers are turned to (inputs, outputs), as the engine keeps them; the order is the library's own.
    """
    parts = []
    for name, parameter in model.named_parameters():
        array = getattr(parameter, values).detach().numpy()
        parts.append((array.T if array.ndim == 2 and not name.startswith("embed") else array).ravel())
    return np.concatenate(parts)


def make_start(start: Start, seed: int) -> dict[str, Any]:
    """One start: its seed, its weights, and how often its sampled answers are right."""
    task = start.task
    model = Transformer(CharTokenizer(task.alphabet), start.size, seed=seed)
    train_sft(model, replace(task, written=0.5), start.working, seed=seed)
    train_sft(model, task, start.hasty, seed=seed + 1000)
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    prompts = task.prompts(512, np.random.default_rng(seed), "eval")
    answers = generate(model, prompts, max_new_tokens=task.max_new_tokens, seed=seed)
    right = float(score_completions(task.reward, answers).mean())
    at_once = float(np.mean([text.startswith("=") for text in answers.texts]))
    if not (0.05 < right < 0.4 and at_once > 0.9):
        raise ValueError(
            f"seed {seed}: {right:.2f} right, {at_once:.2f} at once; no start that GRPO could show much on"
        )
    weights = base64.b64encode(flat(model).astype("<f2").tobytes()).decode()
    return {"seed": seed, "right": round(right, 3), "at_once": round(at_once, 3), "weights": weights}


def main() -> None:
    torch.set_num_threads(1)
    for digits in [int(word) for word in sys.argv[1:]] or STARTS:
        start = STARTS[digits]
        rows = [make_start(start, seed) for seed in start.seeds]
        text = json.dumps(rows).replace("}, {", "},\n  {")
        head = '"use strict";\n// Made by tools/lab_weights.py.\n'
        (FOLDER / start.file).write_text(f"{head}(lab.weights ??= {{}})[{digits}] = {text};\n", "utf-8")
        print(f"{start.file}: {[{k: v for k, v in row.items() if k != 'weights'} for row in rows]}")


if __name__ == "__main__":
    main()
