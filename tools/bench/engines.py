"""The example of the page on scale, trained by TRL (``grpo_command``) and by ``train_grpo``: rewards and seconds.

    python tools/bench/engines.py           two seeds; needs the extra "engine"

It runs the page's own ``make_model.py`` and the page's own command. Writes ``results/engines.json``.
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

import common  # fixes the number of threads: before numpy and torch

from rlbook_lib.engines import EngineConfig
from rlbook_lib.grpo import GRPOConfig, train_grpo
from rlbook_lib.grpo_command import main as command
from rlbook_lib.language_model import load_hugging_face
from rlbook_lib.text_tasks import PromptFile

PAGE = common.RESULTS.parent.parent.parent / "chapters" / "appendix_scale.ipynb"
SEEDS = (0, 1)


def blocks() -> list[str]:
    """The page's fenced blocks of code, in order."""
    cells = json.loads(PAGE.read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for kind, block in fenced if kind in ("", "python")]


def main() -> None:
    make, run = (next(b for b in blocks() if word in b) for word in ("LlamaForCausalLM", "python make_model.py"))
    words = shlex.split(run.replace("\\\n", " ").splitlines()[-1])[3:]
    rewards: dict[str, dict[str, list[float]]] = {"TRL": {}, "train_grpo": {}}
    seconds: dict[str, list[float]] = {"TRL": [], "train_grpo": []}
    found, here = {}, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec(compile(make, "make_model.py", "exec"), {})
        for seed in SEEDS:
            command([*words, "--output", f"run{seed}", "--seed", str(seed), "--quiet"])
            rows = [json.loads(line) for line in Path(f"run{seed}/metrics.jsonl").read_text().splitlines()]
            rewards["TRL"][str(seed)] = [row["reward"] for row in rows if "reward" in row]
            found[str(seed)] = [row["evaluation_accuracy"] for row in rows if "evaluation_accuracy" in row]
            times = [row["seconds"] for row in rows if "seconds" in row]
            seconds["TRL"].append((times[-1] - times[0]) / (len(times) - 1))
            settings = json.loads(Path(f"run{seed}/settings.json").read_text())["config"]
            same = {name: settings[name] for name in GRPOConfig.__dataclass_fields__ if name != "clip"}
            model, task = load_hugging_face("my-model"), PromptFile("questions.jsonl", "equal", 4)
            began = time.perf_counter()
            run_ours = train_grpo(model, task, GRPOConfig(**same), seed=seed)
            seconds["train_grpo"].append((time.perf_counter() - began) / EngineConfig(**settings).updates)
            rewards["train_grpo"][str(seed)] = run_ours.history["reward"].tolist()
        os.chdir(here)
    middle = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    common.save(
        "engines",
        {
            "machine": common.machine(["torch", "transformers", "trl"]) | {"neighbors": "other work ran beside it"},
            "seeds": SEEDS,
            "reward": rewards,
            "evaluation_accuracy_of_TRL": found,
            "seconds_an_update": middle,
        },
    )
    for name, curves in rewards.items():
        for seed, curve in curves.items():
            print(name, seed, *(round(statistics.mean(curve[k : k + 5]), 3) for k in (0, 35)))
    print(middle, found)


if __name__ == "__main__":
    main()
