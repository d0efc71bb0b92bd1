"""The loop of chapter 12 with one line changed: the page's own cells are run, as they stand or with a line replaced.

Each seed has a fine-tuned model of its own; seed 0 as on the page. Case "rounding" is the page's run again and again: every
weight of its start is off by some 1e-7 of itself, as another processor's rounding would have it, and all else is seed 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from rlbook_lib.text_tasks import Sorting

SEEDS = range(5)
PAGE = Path(__file__).resolve().parents[2] / "chapters" / "12_rlhf.ipynb"
CELLS = ("rlhf-imports", "rlhf-sft", "rlhf-phase2", "rlhf-phase3", "rlhf-phase4", "rlhf-loop")

CASES: dict[str, dict[str, Any]] = {  # a line as it stands, and in its place
    "none": {"old": "256, 0.02, 0.95, 0.2", "new": "256, 0.02, 0.95, 0.2"},
    "BETA = 0": {"old": "256, 0.02, 0.95, 0.2", "new": "256, 0.0, 0.95, 0.2"},
    "LAM = 0": {"old": "256, 0.02, 0.95, 0.2", "new": "256, 0.02, 0.0, 0.2"},
    "values = 0": {"old": "value_model.values(batch)", "new": "0 * value_model.values(batch)"},
    "no whiten": {"old": "whiten(advantages, batch.mask)", "new": "advantages"},
    "rounding": {"old": "(sft_model.state_dict())", "new": "(nearly(sft_model.state_dict()))", "page_seed": True},
}


def run(seed: int, old: str, new: str, page_seed: bool = False) -> dict[str, list[float]]:
    """Before each of twenty updates: the share of samples that are right, and the divergence from the reference."""
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(PAGE.read_text("utf-8"))["cells"]}
    text = "\n".join(cells[name] for name in CELLS)
    if text.count(old) != 1:
        raise ValueError(f"the page has {text.count(old)} times {old!r}; expected it once")
    for start in ("seed=", "default_rng(", "manual_seed("):
        text = text.replace(f"{start}0", f"{start}{0 if page_seed else seed}")
    generator = torch.Generator().manual_seed(seed)

    def nearly(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: x * (1 + 1e-7 * torch.randn(x.shape, generator=generator)) for name, x in weights.items()}

    names: dict[str, Any] = {"task": Sorting(), "nearly": nearly}
    exec(text.replace(old, new), names)
    torch.set_num_threads(1)
    share, kl, _ = zip(*names["log"])
    return {"right": list(share), "kl": list(kl)}
