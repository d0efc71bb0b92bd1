"""Make the supervised starts of the small language model that the laboratory trains in the page.

    python tools/lab_weights.py

The model of chapter 13 with five digits in the place of twelve and half the width: 27,648 weights. Supervised
fine-tuning decides whether GRPO gets anywhere: after 400 updates it does not, after 1,200 it does. First half of the
demonstrators write their work, then hardly any do, so that the model can do it and seldom does. The seeds are in the
file; a start is written only if it knows how to answer and is often wrong. Two minutes a start.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rlbook_lib.fine_tuning import SFTConfig, train_sft
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, generate
from rlbook_lib.text_tasks import CheckDigit, score_completions

TARGET = Path(__file__).resolve().parent.parent / "_static" / "lab" / "weights.js"
SEEDS = (0, 2)
TASK = CheckDigit(digits=5, written=0.03)  # what the demonstrators of the second round do, and the task of the page
SIZE = TransformerConfig(width=32, layers=2, heads=4, max_length=40)
WORKING = SFTConfig(updates=1200, batch_size=64, learning_rate=2e-3)  # half of the demonstrators write their work
HASTY = SFTConfig(updates=150, batch_size=64, learning_rate=1e-3, warmup=10)  # three in a hundred do


def flat(model: nn.Module, values: str = "data") -> np.ndarray:
    """All parameters, or their gradients, in one row: the order that the engine's ``transformer`` reads.

    Linear layers are turned to (inputs, outputs), as the engine keeps them; the order is the library's own.
    """
    parts = []
    for name, parameter in model.named_parameters():
        array = getattr(parameter, values).detach().numpy()
        parts.append((array.T if array.ndim == 2 and not name.startswith("embed") else array).ravel())
    return np.concatenate(parts)


def make_start(seed: int) -> dict[str, Any]:
    """One start: its seed, its weights, and how often its sampled answers are right."""
    model = Transformer(CharTokenizer(TASK.alphabet), SIZE, seed=seed)
    train_sft(model, replace(TASK, written=0.5), WORKING, seed=seed)
    train_sft(model, TASK, HASTY, seed=seed + 1000)
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    prompts = TASK.prompts(512, np.random.default_rng(seed), "eval")
    answers = generate(model, prompts, max_new_tokens=TASK.max_new_tokens, seed=seed)
    right = float(score_completions(TASK.reward, answers).mean())
    at_once = float(np.mean([text.startswith("=") for text in answers.texts]))
    if not (0.05 < right < 0.4 and at_once > 0.9):
        raise ValueError(
            f"seed {seed}: {right:.2f} right, {at_once:.2f} at once; no start that GRPO could show much on"
        )
    weights = base64.b64encode(flat(model).astype("<f2").tobytes()).decode()
    return {"seed": seed, "right": round(right, 3), "at_once": round(at_once, 3), "weights": weights}


def main() -> None:
    torch.set_num_threads(1)
    starts = [make_start(seed) for seed in SEEDS]
    text = json.dumps(starts).replace("}, {", "},\n  {")
    TARGET.write_text(f'"use strict";\n// Made by tools/lab_weights.py.\nlab.weights = {text};\n', "utf-8")
    print(f"{TARGET}: {[{k: v for k, v in start.items() if k != 'weights'} for start in starts]}")


if __name__ == "__main__":
    main()
