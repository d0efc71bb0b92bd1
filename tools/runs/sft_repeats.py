"""The sorting model of chapter 11 where a digit comes for the second time: how probable it makes the second one; five seeds, 1,600 updates.

The prompts are the unseen ones of ``sft_sorting`` in which a digit repeats.
"""

from __future__ import annotations

import numpy as np
import torch

from rlbook_lib.fine_tuning import SFTConfig, iterate_sft
from rlbook_lib.language_model import CharTokenizer, Transformer, completion_log_probs, encode_completions, generate
from rlbook_lib.text_tasks import Sorting, score_completions

SEEDS = range(5)
CASES: dict[str, dict[str, int]] = {"main": {"updates": 1600}}
FRAMES = [50, 100, 200, 400, 800, 1600]
BINS = 20  # of the probability of the second digit

TASK = Sorting()
UNSEEN = [q for q in TASK.prompts(1500, np.random.default_rng(7), "eval") if len(set(q)) < len(q)][:600]
RIGHT = [TASK.answer(q) for q in UNSEEN]
SECOND = torch.tensor([next(k for k in range(1, len(o)) if o[k] == o[k - 1]) for o in RIGHT])  # its first second digit


def run(seed: int, updates: int) -> dict[str, list[float]]:
    """At each frame: shares of the prompts by the probability of the second digit; right answers, greedy and sampled."""
    model = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
    curves: dict[str, list[float]] = {"frames": [], "mean": [], "spread": [], "bins": [], "greedy": [], "sampled": []}
    for update in iterate_sft(model, TASK, SFTConfig(updates=updates), seed=seed):
        if update.update in FRAMES:
            watch(model, curves)
            curves["frames"].append(float(update.update))
    return curves


@torch.no_grad()
def watch(model: Transformer, curves: dict[str, list[float]]) -> None:
    """Measure one model, and append."""
    log_prob, _ = completion_log_probs(model, encode_completions(model, UNSEEN, RIGHT))
    second = log_prob[torch.arange(len(UNSEEN)), SECOND].exp().numpy()
    curves["mean"].append(float(second.mean()))
    curves["spread"].append(float(second.std()))
    curves["bins"] += (np.histogram(second, np.linspace(0, 1, BINS + 1))[0] / len(UNSEEN)).tolist()
    for name, how in (("greedy", {"greedy": True}), ("sampled", {"seed": 11})):
        written = generate(model, UNSEEN, max_new_tokens=TASK.max_new_tokens, **how)
        curves[name].append(float(score_completions(TASK.reward, written).mean()))
