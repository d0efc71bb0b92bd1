"""GRPO from the command line: a model of your own, a file of prompts, a rule that checks answers (chapter 13).

    python -m rlbook_lib.grpo_command --model FOLDER --task PROMPTS.jsonl --rule "last number" --output RUN

The model is any causal language model that transformers saved in a folder. The file holds a prompt and its answer a line:
``{"prompt": "47+85=", "answer": "132"}``. The output folder holds settings.json, metrics.jsonl (a line an update),
samples.jsonl (some answers), checkpoint.pt, and at the end the trained model in ``model``. The same command goes on where a
killed run left off, and ends where it would have ended: what came after the last checkpoint is made again, the same.

Several processes, one for each GPU, share the prompts of an update and write one folder:

    torchrun --standalone --nproc-per-node 4 -m rlbook_lib.grpo_command --model ...
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from rlbook_lib.checks import checked
from rlbook_lib.data_parallel import join, leave, processes, rank
from rlbook_lib.devices import choose_device
from rlbook_lib.grpo import GRPOConfig, train_grpo
from rlbook_lib.language_model import Completions, load_hugging_face
from rlbook_lib.text_tasks import PromptFile, evaluate_accuracy
from rlbook_lib.training import Update, frozen_copy, resume_state

__all__ = ["main"]

SAMPLES = 4  # answers kept a checkpoint


@checked
def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or go on training.

    Args:
        arguments: of the command line; default: this process's own.

    Returns:
        0; the exit status.

    Raises:
        SystemExit: a wrong argument, a file that is not there, or a run that was made with other settings.
    """
    options = _parser().parse_args(arguments)
    try:
        chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(GRPOConfig)}
        config = GRPOConfig(**chosen | {"clip": tuple(chosen["clip"])})
        device = choose_device(options.device)
        if join(device) and device.type == "cuda":
            device = choose_device(f"cuda:{os.environ['LOCAL_RANK']}")
        model = load_hugging_face(str(options.model), dtype=options.dtype, device=device)
        template = model.tokenizer.chat if options.chat else None
        task = PromptFile(options.task, options.rule, options.max_new_tokens, template)
        run = _Folder(options.output, _described(options, config)) if rank() == 0 else None
        reference = frozen_copy(model) if config.beta > 0 else None  # before a state is loaded
        state = resume_state(options.output / "checkpoint.pt", config, options.seed)
        if run is not None:
            run.go_on(state, options.checkpoint_every)
    except (ImportError, OSError, ValueError) as error:
        raise SystemExit(f"grpo_command: {error}") from error
    if run is not None:
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}, {processes()} process(es); {run.folder}", flush=True)
        measured = run.first_accuracy()
        before = evaluate_accuracy(model, task, count=options.evaluation_prompts) if measured is None else measured
        run.note({"update": 0, "accuracy": before})
    notes: dict[str, Any] = {} if run is None else {"watch": run.watch, "stop": run.note_update, "progress": not options.quiet}
    train_grpo(model, task, config, seed=options.seed, reference=reference, state=state,
               checkpoint=options.output / "checkpoint.pt", checkpoint_every=options.checkpoint_every, **notes)  # fmt: skip
    if run is not None:
        after = evaluate_accuracy(model, task, count=options.evaluation_prompts)
        print(f"accuracy on {options.evaluation_prompts} prompts that were not trained on: {before:.3f} before, {after:.3f} after")
        model.save(run.folder / "model")
    leave()
    return 0


class _Folder:
    """The files of a run; lines after the last checkpoint are cut off before it goes on."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.metrics, self.samples = folder / "metrics.jsonl", folder / "samples.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "settings.json"
        if path.exists() and (known := json.loads(path.read_text("utf-8"))) != settings:
            other = sorted(key for key in settings.keys() | known.keys() if settings.get(key) != known.get(key))
            raise ValueError(f"--output {folder} holds a run with other settings ({', '.join(other)}); name another folder")
        path.write_text(json.dumps(settings, indent=1) + "\n", "utf-8")

    def go_on(self, state: dict[str, Any] | None, every: int) -> None:
        """Keep the lines up to the state's update."""
        self.update, self.every, self.began = 0 if state is None else int(state["update"]), every, time.perf_counter()
        for path in (self.metrics, self.samples):
            rows = [line for line in path.read_text("utf-8").splitlines() if line.endswith("}")] if path.exists() else []
            kept = [line for line in rows if json.loads(line)["update"] <= self.update]
            part = path.with_suffix(".part")
            part.write_text("".join(line + "\n" for line in kept), "utf-8")
            os.replace(part, path)

    def first_accuracy(self) -> float | None:
        """The accuracy before training, if it was measured."""
        first = self.metrics.read_text("utf-8").partition("\n")[0]
        return json.loads(first)["accuracy"] if first else None

    def note(self, row: dict[str, Any]) -> None:
        """One line of metrics, unless it is there."""
        if row["update"] or not self.metrics.stat().st_size:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def note_update(self, record: Update) -> bool:
        """One line for an update; never stops the run."""
        if record.update > self.update:
            self.update = record.update
            seconds = round(time.perf_counter() - self.began, 1)
            self.note({"update": record.update, "tokens": record.env_steps, "seconds": seconds, **record.metrics})
        return False

    def watch(self, batch: Completions, rewards: Tensor) -> dict[str, float]:
        """Some answers to the first prompt, where a checkpoint is due."""
        if (self.update + 1) % self.every == 0:
            with self.samples.open("a", encoding="utf-8") as file:
                for text, reward in list(zip(batch.texts, rewards.view(-1).tolist()))[:SAMPLES]:
                    file.write(json.dumps({"update": self.update + 1, "prompt": batch.prompts[0], "text": text, "reward": reward}) + "\n")
        return {}


def _described(options: argparse.Namespace, config: GRPOConfig) -> dict[str, Any]:
    """What decides over the result, as JSON gives it back."""
    kept = ("task", "rule", "max_new_tokens", "chat", "seed", "dtype")
    return json.loads(json.dumps({"model": str(options.model), **{name: str(getattr(options, name)) for name in kept}, "config": dataclasses.asdict(config)}))  # type: ignore[no-any-return]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rlbook_lib.grpo_command", description="GRPO on a model of your own.")
    parser.add_argument("--model", type=Path, required=True, help="folder with a causal language model and its tokenizer")
    parser.add_argument("--task", type=Path, required=True, help='JSON lines: {"prompt": ..., "answer": ...}')
    parser.add_argument("--rule", default="equal", choices=["equal", "contains", "last number"], help="when an answer is right")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="longest answer")
    parser.add_argument("--chat", action="store_true", help="put each prompt into the tokenizer's chat template")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--checkpoint-every", type=int, default=10, help="updates")
    parser.add_argument("--evaluation-prompts", type=int, default=128, help="drawn from the evaluation split, before and after")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    group = parser.add_argument_group("settings of GRPO", "what they mean: rlbook_lib.grpo.GRPOConfig")
    for name, default in dataclasses.asdict(GRPOConfig()).items():
        first, *more = default if isinstance(default, tuple) else (default,)
        group.add_argument(f"--{name.replace('_', '-')}", type=type(first), default=default, nargs=1 + len(more) if more else None,
                           help=f"default: {default}")  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
