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
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from rlbook_lib.checks import Count, check, checked
from rlbook_lib.data_parallel import (
    ProcessLost,
    any_process,
    join,
    leave,
    my_part,
    processes,
    rank,
    require_as_many,
    same_everywhere,
)
from rlbook_lib.devices import choose_device
from rlbook_lib.grpo import GRPOConfig, train_grpo
from rlbook_lib.language_model import Completions, HuggingFaceModel, load_hugging_face
from rlbook_lib.text_tasks import PromptFile, evaluate_accuracy
from rlbook_lib.training import TrainingError, Update, frozen_copy, resume_state

__all__ = ["main"]

SAMPLES = 4  # answers kept a checkpoint


@checked
def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or go on training.

    Args:
        arguments: of the command line; default: this process's own.

    Returns:
        The exit status: 0, and 130 after Ctrl-C.

    Raises:
        SystemExit: one line that says what stopped it: a wrong argument, a file that is not there, a run that was made with other
            settings, a loss that is no number, a process that was lost, a full disk.
    """
    options = _parser().parse_args(arguments)
    folder: _Folder | None = None
    try:
        device, config, model, task = _prepare(options)
        folder = _Folder(options.output, _described(options, config)) if rank() == 0 else None
        _train(options, device, config, model, task, folder)
    except (ImportError, OSError, ValueError, TrainingError, ProcessLost) as error:
        nameless = isinstance(error, OSError) and error.errno is not None and error.filename is None
        raise SystemExit(f"grpo_command: {error}{f', below {options.output}' if nameless else ''}") from error
    except KeyboardInterrupt:
        where = "the checkpoint" if (options.output / "checkpoint.pt").exists() else "the beginning"
        print(f"grpo_command: stopped; the same command goes on from {where}", file=sys.stderr)
        return 130
    finally:
        if folder is not None:
            folder.close()
    leave()
    return 0


def _prepare(options: argparse.Namespace) -> tuple[torch.device, GRPOConfig, HuggingFaceModel, PromptFile]:
    """What the run needs, before anything is written; every process meets the same errors."""
    chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(GRPOConfig)}
    config = GRPOConfig(**chosen | {"clip": tuple(chosen["clip"])})
    for name in ("max_new_tokens", "checkpoint_every", "evaluation_prompts"):
        check(name, getattr(options, name), Count)
    if not options.model.is_dir():
        raise ValueError(
            f"--model {options.model} is no folder; expected one with a causal language model and its tokenizer"
        )
    device = choose_device(options.device)
    if join(device, options.minutes):
        my_part(range(config.prompts))
        if device.type == "cuda":
            device = choose_device(f"cuda:{os.environ['LOCAL_RANK']}")
    model = load_hugging_face(str(options.model), dtype=options.dtype, device=device)
    task = PromptFile(
        options.task, options.rule, options.max_new_tokens, model.tokenizer.chat if options.chat else None
    )
    for prompt in task.answers:  # now, not when it is drawn after hours
        if (tokens := len(model.tokenizer.encode(prompt))) + options.max_new_tokens > model.max_length:
            raise ValueError(
                f"{options.task}: the prompt {prompt[:80]!r} has {tokens} tokens and its answer may have {options.max_new_tokens}; "
                f"expected at most {model.max_length} together"
            )
    return device, config, model, task


def _train(
    options: argparse.Namespace,
    device: torch.device,
    config: GRPOConfig,
    model: HuggingFaceModel,
    task: PromptFile,
    folder: _Folder | None,
) -> None:
    """From the last checkpoint to the end; process 0 writes."""
    path = options.output / "checkpoint.pt"
    reference = frozen_copy(model) if config.beta > 0 else None  # before a state is loaded
    any_process(False)  # all are here, and process 0 has made the folder
    state = resume_state(path, config, options.seed)
    if state is not None:
        require_as_many(state["generator"])
    if not same_everywhere(0 if state is None else int(state["update"])):
        raise ValueError(
            f"--output {options.output} shows the processes different checkpoints; expected a folder that all machines share"
        )
    notes: dict[str, Any] = {}
    if folder is not None:
        folder.go_on(state, options.checkpoint_every)
        print(
            f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}, {processes()} process(es); {folder.folder}",
            flush=True,
        )
        measured = folder.first_accuracy()
        before = evaluate_accuracy(model, task, count=options.evaluation_prompts) if measured is None else measured
        folder.note({"update": 0, "accuracy": before})
        notes = {"watch": folder.watch, "stop": folder.note_update, "progress": not options.quiet}
    train_grpo(
        model,
        task,
        config,
        seed=options.seed,
        reference=reference,
        state=state,
        checkpoint=path,
        checkpoint_every=options.checkpoint_every,
        **notes,
    )
    if folder is not None:
        after = evaluate_accuracy(model, task, count=options.evaluation_prompts)
        print(
            f"accuracy on {options.evaluation_prompts} prompts that were not trained on: {before:.3f} before, {after:.3f} after"
        )
        model.save(folder.folder / "model")


class _Folder:
    """The files of a run, for one command at a time; lines after the last checkpoint are cut off before it goes on."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.noted = folder, set[int]()
        self.metrics, self.samples = folder / "metrics.jsonl", folder / "samples.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (folder / ".lock").open("a")  # freed when this process ends, however it ends
        if not _locked(self.lock):
            self.close()
            raise ValueError(
                f"--output {folder} is in use: another command writes there; wait for its end, or name another folder"
            )
        try:
            self._compare(folder / "settings.json", settings)
        except BaseException:
            self.close()
            raise

    def _compare(self, path: Path, settings: dict[str, Any]) -> None:
        """Write the settings of a new run; refuse a run with others."""
        if not path.exists():
            _write(path, json.dumps(settings, indent=1) + "\n")
        try:
            known = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(
                f"{path} is damaged: {error}; remove it if the other files are of a run with these settings"
            ) from error
        if known != settings:
            other = sorted(key for key in settings.keys() | known.keys() if settings.get(key) != known.get(key))
            raise ValueError(
                f"--output {self.folder} holds a run with other settings ({', '.join(other)}); name another folder"
            )

    def close(self) -> None:
        """Let another command write here."""
        self.lock.close()

    def go_on(self, state: dict[str, Any] | None, every: int) -> None:
        """Keep the lines up to the state's update; a line that was lost with a kill comes back from the state, without its time."""
        self.update, self.every, self.began = 0 if state is None else int(state["update"]), every, time.perf_counter()
        lost = {} if state is None else {row["update"]: row for row in _history(state)}
        for path in (self.metrics, self.samples):
            rows = [row for row in _rows(path) if row["update"] <= self.update]
            if path == self.metrics:
                self.noted = {row["update"] for row in rows}
                rows = sorted(
                    rows + [row for update, row in lost.items() if update not in self.noted],
                    key=lambda row: row["update"],
                )
            _write(path, "".join(json.dumps(row) + "\n" for row in rows))

    def first_accuracy(self) -> float | None:
        """The accuracy before training, if it was measured."""
        return next((row["accuracy"] for row in _rows(self.metrics) if row["update"] == 0), None)

    def note(self, row: dict[str, Any]) -> None:
        """One line of metrics, unless it is there."""
        if row["update"] not in self.noted:
            self.noted.add(row["update"])
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
                    file.write(
                        json.dumps(
                            {"update": self.update + 1, "prompt": batch.prompts[0], "text": text, "reward": reward}
                        )
                        + "\n"
                    )
        return {}


def _write(path: Path, text: str) -> None:
    """A whole file or none."""
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    os.replace(part, path)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; the last one may have been cut off."""
    lines = path.read_text("utf-8", "replace").split("\n") if path.exists() else []
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):  # what follows the last newline is empty, or was cut off
                raise ValueError(f"{path}, line {number} is damaged: {line[:80]!r}; remove this line") from error
    return rows


def _history(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of metrics that a state remembers."""
    curves = {"tokens" if name == "env_steps" else name: curve.tolist() for name, curve in state["history"].items()}
    for values in zip(*curves.values(), strict=True):
        row = {name: value for name, value in zip(curves, values) if not math.isnan(value)}
        yield row | {name: int(row[name]) for name in ("update", "tokens")}


def _locked(file: TextIO) -> bool:
    """Whether this process may write; a file system without locks does not stop it."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _described(options: argparse.Namespace, config: GRPOConfig) -> dict[str, Any]:
    """What decides over the result, as JSON gives it back."""
    kept = ("task", "rule", "max_new_tokens", "chat", "seed", "dtype")
    return json.loads(
        json.dumps(
            {
                "model": str(options.model),
                **{name: str(getattr(options, name)) for name in kept},
                "config": dataclasses.asdict(config),
            }
        )
    )  # type: ignore[no-any-return]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rlbook_lib.grpo_command", description="GRPO on a model of your own."
    )
    parser.add_argument(
        "--model", type=Path, required=True, help="folder with a causal language model and its tokenizer"
    )
    parser.add_argument("--task", type=Path, required=True, help='JSON lines: {"prompt": ..., "answer": ...}')
    parser.add_argument(
        "--rule", default="equal", choices=["equal", "contains", "last number"], help="when an answer is right"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="longest answer")
    parser.add_argument("--chat", action="store_true", help="put each prompt into the tokenizer's chat template")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=["float32", "bfloat16"],
        help="of the weights while they are used; the optimizer keeps them in float32 besides",
    )
    parser.add_argument("--checkpoint-every", type=int, default=10, help="updates")
    parser.add_argument(
        "--evaluation-prompts", type=int, default=128, help="drawn from the evaluation split, before and after"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=30.0,
        help="with several processes: how long one waits for the others before it gives up",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    group = parser.add_argument_group("settings of GRPO", "what they mean: rlbook_lib.grpo.GRPOConfig")
    for name, default in dataclasses.asdict(GRPOConfig()).items():
        first, *more = default if isinstance(default, tuple) else (default,)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(first),
            default=default,
            nargs=1 + len(more) if more else None,
            help=f"default: {default}",
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
