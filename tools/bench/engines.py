"""The example of the page on scale, trained by TRL (``grpo_command``) and by the book's own loop: rewards and CPU-seconds.

    python tools/bench/engines.py           five seeds, some minutes; needs the extra "engine"

It runs the page's own ``make_model.py`` and the page's own command, without its checkpoints; seconds are those between the first
update and the last. Writes ``results/engines.json`` after each seed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import common  # fixes the number of threads: before numpy and torch

from rlbook_lib.grpo import GRPOConfig, iterate_grpo
from rlbook_lib.grpo_command import _Folder
from rlbook_lib.grpo_command import main as command
from rlbook_lib.language_model import load_hugging_face
from rlbook_lib.text_tasks import PromptFile

PAGE = common.RESULTS.parent.parent.parent / "chapters" / "appendix_scale.ipynb"
SEEDS = 5


def blocks() -> list[str]:
    """The page's fenced blocks of code, in order."""
    cells = json.loads(PAGE.read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for kind, block in fenced if kind in ("", "python")]


def trained_by_trl(words: list[str], seed: int) -> tuple[list[float], list[float], float]:
    """By the command: the reward of each update, strict accuracy before and after, and CPU-seconds an update."""
    marks, note = [], _Folder.note

    def noted(self: _Folder, update: int, logs: dict[str, float]) -> None:
        note(self, update, logs)
        if "reward" in logs:
            marks.append(time.process_time())

    _Folder.note = noted  # type: ignore[method-assign]
    try:
        folder = f"run{seed}"
        command([*words, "--output", folder, "--seed", str(seed), "--checkpoint-every", "1000", "--quiet"])
    finally:
        _Folder.note = note  # type: ignore[method-assign]
    rows = [json.loads(line) for line in Path(f"{folder}/metrics.jsonl").read_text().splitlines()]
    accuracy = [row["evaluation_accuracy"] for row in rows if "evaluation_accuracy" in row]
    return [row["reward"] for row in rows if "reward" in row], accuracy, (marks[-1] - marks[0]) / (len(marks) - 1)


def trained_here(seed: int) -> tuple[list[float], float]:
    """By ``iterate_grpo``, with the settings of the command: the reward of each update, and CPU-seconds an update."""
    settings = json.loads(Path(f"run{seed}/settings.json").read_text())["config"]
    same = {name: settings[name] for name in GRPOConfig.__dataclass_fields__ if name != "clip"}
    model, task = load_hugging_face("my-model"), PromptFile("questions.jsonl", "equal", 4)
    updates = iterate_grpo(model, task, GRPOConfig(**same), seed=seed)
    found = [(update.metrics["reward"], time.process_time()) for update in updates]
    return [reward for reward, _ in found], (found[-1][1] - found[0][1]) / (len(found) - 1)


def main() -> None:
    make, run = (next(b for b in blocks() if word in b) for word in ("LlamaForCausalLM", "python make_model.py"))
    words = shlex.split(run.replace("\\\n", " ").splitlines()[-1])[3:]
    rewards: dict[str, dict[str, list[float]]] = {"TRL": {}, "train_grpo": {}}
    seconds: dict[str, list[float]] = {"TRL": [], "train_grpo": []}
    accuracy, here, load = {}, Path.cwd(), [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec(compile(make, "make_model.py", "exec"), {})
        for seed in range(SEEDS):
            rewards["TRL"][str(seed)], accuracy[str(seed)], theirs = trained_by_trl(words, seed)
            rewards["train_grpo"][str(seed)], ours = trained_here(seed)
            for name, value in (("TRL", theirs), ("train_grpo", ours)):
                curve = rewards[name][str(seed)]
                seconds[name].append(round(value, 3))
                print(
                    name,
                    seed,
                    *(round(statistics.mean(part), 3) for part in (curve[:5], curve[-5:])),
                    seconds[name][-1],
                )
            load.append(os.getloadavg()[0])
            record: dict[str, Any] = {
                "machine": common.machine(["torch", "transformers", "trl"]) | {"load": [round(x, 1) for x in load]},
                "seeds": list(range(seed + 1)),
                "reward": rewards,
                "evaluation_accuracy_of_TRL": accuracy,
                "cpu_seconds_an_update": seconds,
            }
            common.save("engines", record)
        os.chdir(here)


if __name__ == "__main__":
    main()
