"""GRPO from the command line: a model of your own, a file of prompts, a rule that checks answers (chapter 13).

    python -m rlbook_lib.grpo_command --model FOLDER --task PROMPTS.jsonl --rule "last number" --output RUN

It trains by TRL's ``GRPOTrainer`` (``pip install -e '.[engine]'`` in the book's folder), with this book's names, rules and checks:
``rlbook_lib.engines`` says what becomes of each setting. The model is any causal language model that transformers saved in a
folder; nothing is downloaded. The file holds a prompt and its answer a line: ``{"prompt": "47+85=", "answer": "132"}``. The
output folder holds settings.json, metrics.jsonl (a line an update), samples.jsonl (some answers), curves.png, the last two
checkpoints, and at the end the trained model in ``model``. The same command goes on where a killed run left off, and ends
where it would have ended.

Several processes share the prompts of an update and write one folder:

    torchrun --standalone --nproc-per-node 2 -m rlbook_lib.grpo_command --model ...
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import inspect
import json
import math
import os
import re
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

import torch

from rlbook_lib import engines
from rlbook_lib.checks import Count, check, checked
from rlbook_lib.engines import METRICS, EngineConfig, gradient_steps, reward_stretch
from rlbook_lib.text_tasks import PromptFile, RewardError
from rlbook_lib.training import TrainingError

__all__ = ["main"]

SAMPLES = 4  # answers kept a checkpoint
LARGEST = 1e18  # a reward: its square is a number in float32
EXTRA = "training needs an extra: pip install -e '.[engine]' in the book's folder (trl, transformers, peft)"
Paid = Callable[[str, str, str], float]  # prompt, completion, right answer


@checked
def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or go on training; by this process's own arguments, if none are given. The exit status is 130 after Ctrl-C, else 0.

    Raises:
        SystemExit: one line that says what stopped it: a wrong argument, a file that is not there, a run that was made with other
            settings, a reward or a loss that is no number, a full disk.
    """
    options = _options(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    folder = _Folder(options.output)
    try:
        ended = _train(options, folder)
    except (ImportError, OSError, ValueError, TrainingError) as error:
        nameless = isinstance(error, OSError) and error.errno is not None and error.filename is None
        raise SystemExit(f"grpo_command: {error}{f', below {options.output}' if nameless else ''}") from error
    except KeyboardInterrupt:
        ended = False
    finally:
        folder.close()
    if not ended:
        print("grpo_command: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
    return 0 if ended else 130


def _train(options: argparse.Namespace, folder: _Folder) -> bool:
    """From the last checkpoint to the end; process 0 writes. False after Ctrl-C."""
    config, processes = _config(options), int(os.environ.get("WORLD_SIZE", "1"))
    if not options.model.is_dir():
        raise ValueError(f"--model {options.model} is no folder; expected one with a model and its tokenizer")
    task = PromptFile(options.task, options.rule, config.max_new_tokens)
    if config.prompts > (there := len(task.by_split["train"])):
        raise ValueError(f"prompts is {config.prompts}; expected at most {there}, the file's for training")
    rewards = [_reward(text, task) for text in options.reward or ["rule"]]
    if len({name for name, _, _ in rewards}) < len(rewards):
        raise ValueError("--reward: two have the same name, under which each is written into metrics.jsonl")
    given = engines.trl_arguments(config, processes, [weight for _, _, weight in rewards])
    given |= engines.other_arguments(options.trl)
    if config.vllm and given["top_p"] != 1.0:  # TRL issue 6789
        raise ValueError(f"top_p is {given['top_p']} with vLLM; expected 1: its log-probabilities leave the cut out")

    trainer, longest = _trainer(options, config, task, rewards, given, folder)
    first, model, steps = trainer.is_world_process_zero(), options.output / "model", gradient_steps(config)
    last = engines.last_whole_checkpoint(options.output, processes, before=config.updates * steps)
    done = config.updates if model.exists() else int(last.name.split("-")[1]) // steps if last else 0
    seen = trainer.accelerator.gather(torch.tensor([done], device=trainer.accelerator.device))
    if int(seen.min()) != int(seen.max()):
        raise ValueError(f"--output {options.output}: expected a folder that all processes share")
    if done == config.updates:
        print(f"{options.output}: all {done} updates are made", flush=True)
        return True
    if first:
        folder.go_on(done, config, options.quiet)
        print(f"{options.output}: {engines.foretold(trainer, config, longest)}", flush=True)
    if last is None:
        trainer.evaluate()
    with engines.stop_between_updates(trainer, config) as interrupted:
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    if interrupted():
        return False
    if not config.evaluate_every or config.updates % config.evaluate_every:
        trainer.evaluate()
    if config.lora_rank and not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        # checkpoints hold the adapters
        trainer.model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    part = model.with_suffix(".part")
    with engines.whole_or_nothing(part):
        trainer.save_model(str(part))
    trainer.accelerator.wait_for_everyone()
    if first:
        folder.draw()
        os.replace(part, model)
    return True


def _trainer(
    options: argparse.Namespace,
    config: EngineConfig,
    task: PromptFile,
    rewards: list[tuple[str, Paid, float]],
    given: dict[str, Any],
    folder: _Folder,
) -> tuple[Any, int]:
    """TRL's trainer with this command's rewards, schedule and files; and the tokens of the longest prompt."""
    try:
        # as objects without types, whether they are installed where the types are checked or not
        datasets, transformers, trl = map(importlib.import_module, ("datasets", "transformers", "trl"))
    except ImportError as error:
        raise ImportError(f"{EXTRA}; {error}") from error
    transformers.utils.logging.disable_progress_bar()
    # TRL 1.16 and transformers 5.23 call each other by an old name
    warnings.filterwarnings("ignore", r"`(is_)?gradient_checkpointing(_\w+)?` is deprecated", FutureWarning)
    try:  # float32 even for bfloat16: a step of 1e-6 is lost in the rounding of a 16-bit weight
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    except Exception as error:  # its kind depends on what is missing or damaged
        words = " ".join(str(error).split())[:300]
        raise ValueError(f"--model {options.model}: {words}") from error
    longest = _require_room(options.task, task, tokenizer, model, config, given.get("chat_template_kwargs") or {})
    cpu = options.device == "cpu" or not torch.cuda.is_available()
    arguments = trl.GRPOConfig(output_dir=str(options.output), use_cpu=cpu, disable_tqdm=True, **given)
    first, steps = arguments.process_index == 0, gradient_steps(config)
    base: Any = trl.GRPOTrainer

    class Trainer(base):  # type: ignore[misc]
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            share = engines.learning_rate_schedule(config)
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, share)
            return self.lr_scheduler

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            super().log(logs, start_time)  # puts TRL's numbers into logs
            update = self.state.global_step // steps
            if "loss" in logs and not math.isfinite(logs["loss"] + logs["grad_norm"]):
                raise TrainingError(f"update {update}: the loss is {logs['loss']}, the gradient {logs['grad_norm']}")
            if first:
                folder.note(update, logs)

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            with engines.whole_or_nothing(options.output / f"checkpoint-{self.state.global_step}"):
                super()._save_checkpoint(model, trial)

    def shown(split: str, count: int | None) -> Any:
        prompts = task.by_split[split][:count]
        said = [_message(p) for p in prompts] if config.chat else prompts
        return datasets.Dataset.from_dict({"prompt": said, "plain": prompts})

    eos: set[int] = set()
    try:
        trainer = Trainer(
            model=model,
            args=arguments,
            processing_class=tokenizer,
            train_dataset=shown("train", None),
            eval_dataset=shown("eval", options.evaluation_prompts),
            reward_funcs=[_called(task, name, paid, eos) for name, paid, _ in rewards],
            peft_config=engines.adapters(config),
        )
    except RuntimeError as error:  # a package that is wanted by ``--trl report_to=...``, say
        raise ImportError(str(error)) from error
    eos |= set(trainer.eos_token_ids)  # every one that the model declares, not only the tokenizer's
    said = [*_message("?"), {"role": "assistant", "content": "!"}]
    if config.chat and not eos & set(tokenizer.apply_chat_template(said)["input_ids"]):
        raise ValueError(
            "--chat: the template ends a turn with no eos_token_id of generation_config.json; name it there"
        )
    if first:
        folder.open(_described(options, config, arguments.world_size))
    arguments.distributed_state.wait_for_everyone()  # the folder is there

    def watched(trainer_state: Any, log_metric: Callable[[str, float], None], **sampled: Any) -> list[float]:
        right = _called(task, "strict", lambda p, text, _: task.strict(p, text, True), eos)(**sampled)
        log_metric("accuracy", fmean(right))
        earned = paid_first(**sampled)
        update = trainer_state.global_step // steps + 1
        if first and trainer.model.training and update % config.checkpoint_every == 0:
            folder.sample(update, sampled["plain"], sampled["completions"], earned)
        return earned

    paid_first, trainer.reward_funcs[0] = trainer.reward_funcs[0], watched
    trainer.reward_func_names = [name for name, _, _ in rewards]
    for callback in (transformers.PrinterCallback, transformers.ProgressCallback):
        trainer.remove_callback(callback)
    return trainer, longest


# ---------------------------------------------------------------------------------------------------- the rewards


def _reward(text: str, task: PromptFile) -> tuple[str, Paid, float]:
    """Name, function and weight of ``rule``, ``rule=0.5``, ``file.py:function`` or ``file.py:function=0.5``."""
    source, sign, number = text.partition("=")
    try:
        weight = float(number) if sign else 1.0
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise ValueError(f"--reward {text}: the weight is {number!r}; expected a number")
    if source == "rule":
        return "rule", lambda prompt, completion, answer: task.reward(prompt, completion, True), weight
    path, _, name = source.rpartition(":")
    if not (path.endswith(".py") and Path(path).is_file()):
        wrong = f"{path} is no file of Python; " if path else ""
        raise ValueError(f"--reward {text}: {wrong}expected rule, or file.py:function")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"--reward {text}: {path} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(paid := getattr(module, name, None)):
        raise ValueError(f"--reward {text}: {path} has no function {name!r}")
    try:
        (takes := inspect.signature(paid)).bind("prompt", "completion", "answer")
    except TypeError:  # TRL's form, most likely: lists of everything
        expected = f"{name}(prompt, completion, answer), which returns a number for one answer"
        raise ValueError(f"--reward {text}: {name} takes {takes}; expected {expected}") from None
    return name, paid, weight


def _called(task: PromptFile, name: str, paid: Paid, eos: set[int]) -> Callable[..., list[float]]:
    """A reward as TRL calls it, with lists. What did not end earns nothing, and no more than nothing is taken off for it."""

    def call(plain: list[str], completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        found = []
        for prompt, text, tokens in zip(plain, map(_text, completions), completion_ids, strict=True):
            where = f"prompt in line {task.lines[prompt]}, {prompt!r}, completion {text!r}"
            try:
                reward = paid(prompt, text, task.answers[prompt])
            except (Exception, SystemExit) as error:
                raise RewardError(f"the reward {name!r} raised {type(error).__name__}: {error} ({where})") from error
            number = getattr(reward, "item", lambda: reward)()  # of numpy and of torch, too
            if not isinstance(number, (int, float)) or not abs(number) < LARGEST:
                raise RewardError(f"the reward {name!r} returned {reward!r}; expected a finite number ({where})")
            found.append(float(number) if tokens and tokens[-1] in eos else min(0.0, float(number)))
        return found

    return call


def _text(completion: Any) -> str:
    """Of a plain completion, or of a list of messages."""
    return completion if isinstance(completion, str) else str(completion[0]["content"])


# --------------------------------------------------------------------------------------------- what must fit, at once


def _config(options: argparse.Namespace) -> EngineConfig:
    chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(EngineConfig)}
    check("evaluation_prompts", options.evaluation_prompts, Count)
    if chosen["learning_rate"] is None:
        chosen["learning_rate"] = 1e-5 if chosen["lora_rank"] else 1e-6
    return EngineConfig(**chosen | {"clip": tuple(chosen["clip"])})


def _message(prompt: str) -> list[dict[str, str]]:
    """A prompt as a user's message, for a chat template."""
    return [{"role": "user", "content": prompt}]


def _require_room(
    path: Path, task: PromptFile, tokenizer: Any, model: Any, config: EngineConfig, template: dict[str, Any]
) -> int:
    """The longest prompt's tokens; every prompt leaves room for its answer: now, not when it is drawn after hours."""
    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer has no end-of-sequence token: no answer could end")
    if config.chat and tokenizer.chat_template is None:
        raise ValueError("--chat: the tokenizer has no chat template; a base model is trained without --chat")
    if not config.chat and tokenizer.chat_template is not None:
        print("grpo_command: the tokenizer has a chat template: an instruct model wants --chat", file=sys.stderr)
    room = getattr(model.config.get_text_config(), "max_position_embeddings", None) or sys.maxsize
    longest, read = 0, tokenizer
    if config.chat:
        read = lambda prompt: tokenizer.apply_chat_template(_message(prompt), add_generation_prompt=True, **template)
    for prompt in task.answers:
        try:
            tokens = len(read(prompt)["input_ids"])
        except Exception as error:  # a template is a program
            raise ValueError(f"{path}: the prompt {prompt[:80]!r}: {type(error).__name__}: {error}") from error
        if tokens + config.max_new_tokens > room:
            both = f"{tokens} tokens and its answer may have {config.max_new_tokens} (--max-new-tokens)"
            raise ValueError(f"{path}: the prompt {prompt[:80]!r} has {both}; expected at most {room} together")
        longest = max(longest, tokens)
    return longest


# ---------------------------------------------------------------------------------------------------------- the files


class _Folder:
    """The files of a run, for one command at a time; lines after the last checkpoint are cut off before it goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, set[str]()
        self.lock: TextIO | None = None
        self.metrics, self.samples = folder / "metrics.jsonl", folder / "samples.jsonl"

    def open(self, settings: dict[str, Any]) -> None:
        """Take the folder; write the settings of a new run, and refuse a run with others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = (self.folder / ".lock").open("a")  # freed when this process ends, however it ends
        if not _locked(self.lock):
            raise ValueError(f"--output {self.folder} is in use: another command writes there; name another folder")
        path = self.folder / "settings.json"
        if not path.exists():
            _write(path, json.dumps(settings, indent=1) + "\n")
        try:
            known = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}; remove it if the run has these settings") from error
        if known != settings:
            other = sorted(key for key in settings.keys() | known.keys() if settings.get(key) != known.get(key))
            said = f"a run with other settings ({', '.join(other)})"
            raise ValueError(f"--output {self.folder} holds {said}; name another folder")

    def close(self) -> None:
        """Let another command write here."""
        if self.lock is not None:
            self.lock.close()

    def go_on(self, update: int, config: EngineConfig, quiet: bool) -> None:
        """Keep the lines up to an update."""
        self.config, self.quiet = config, quiet
        for path in (self.metrics, self.samples):
            rows = [row for row in _rows(path) if row["update"] <= update and (update or path == self.samples)]
            _write(path, "".join(json.dumps(row) + "\n" for row in rows))
        self.recent = deque(_rows(self.metrics), maxlen=5)
        self.tokens = next((row["tokens"] for row in reversed(self.recent) if "tokens" in row), 0)
        before = next((row["seconds"] for row in reversed(self.recent) if "seconds" in row), 0.0)
        self.at, self.told = time.perf_counter(), 0
        self.started, self.began = self.at, self.at - before  # seconds go on where they were

    def note(self, update: int, logs: dict[str, float]) -> None:
        """One line for an update, or for an evaluation."""
        stretch, now = reward_stretch(self.config), time.perf_counter()
        before = "eval_" if "eval_reward" in logs else ""
        if f"{before}reward" not in logs:  # the trainer's last words
            return
        found = {ours: logs[before + name] for ours, name in METRICS.items() if logs.get(before + name) is not None}
        found["reward"] /= stretch
        parts = {name.split("/")[1]: x for name, x in logs.items() if re.fullmatch(f"{before}rewards/.+/mean", name)}
        found |= {f"reward_{name}": x for name, x in parts.items() if len(parts) > 1}
        row: dict[str, Any] = {"update": update}
        if before:
            row |= {f"evaluation_{n}": found[n] for n in ("accuracy", "reward", "length", "truncated")}
        else:
            rate = (found["tokens"] - self.tokens) / (now - self.at)
            row |= {"seconds": round(now - self.began, 1), "tokens_a_second": round(rate), **found}
            self.tokens = found["tokens"]
        self.at = now
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._tell(row)

    def _tell(self, row: dict[str, Any]) -> None:
        """A line for who watches; a warning once, also for who does not."""
        if not self.quiet or "evaluation_accuracy" in row:
            wanted = ("reward", "accuracy", "length", "truncated", "entropy", "tokens_a_second", "seconds")
            shown = [f"{n} {row[n]:.3g}" for n in (*wanted, *(f"evaluation_{n}" for n in wanted)) if n in row]
            print(f"update {row['update']}: {', '.join(shown)}", flush=True)
        if "reward" in row:
            self.recent.append(row)
            self.told += 1
            if self.told == 3:  # measured: what the engine does besides, and answers as long as they are
                left = (self.config.updates - row["update"]) * (self.at - self.started) / 3
                print(f"about {left / 60:.2g} minutes to go, by the first three updates", flush=True)
            for words in engines.symptoms([line for line in self.recent if "reward" in line]):
                kind = words.partition(":")[2]
                if kind not in self.said:
                    self.said.add(kind)
                    print(f"grpo_command: update {row['update']}: {words}", file=sys.stderr, flush=True)

    def draw(self) -> None:
        """The curves, in one picture."""
        from matplotlib.figure import Figure

        rows = [row for row in _rows(self.metrics) if "reward" in row]
        figure = Figure(figsize=(9, 6), layout="constrained")
        for axes, name in zip(figure.subplots(3, 3).flat, METRICS):
            values = [row[name] for row in rows if name in row]
            axes.set_visible(bool(values))  # no divergence without a reference
            axes.plot([row["update"] for row in rows if name in row], values)
            axes.set_ylim(min([0.0, *values]), 1.05 * max([0.0, *values]) or 1.0)
            axes.set_title(name, fontsize=9)
        figure.savefig(self.folder / "curves.png")

    def sample(self, update: int, prompts: list[str], completions: list[Any], rewards: list[float]) -> None:
        """Some answers to the first prompt."""
        with self.samples.open("a", encoding="utf-8") as file:
            for prompt, completion, reward in list(zip(prompts, completions, rewards))[:SAMPLES]:
                row = {"update": update, "prompt": prompt, "text": _text(completion), "reward": reward}
                file.write(json.dumps(row) + "\n")


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


def _locked(file: TextIO) -> bool:
    """Whether this process may write; a file system without locks does not stop it."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _described(options: argparse.Namespace, config: EngineConfig, processes: int) -> dict[str, Any]:
    """What decides over the result, as JSON gives it back."""
    kept = {name: str(getattr(options, name)) for name in ("model", "task", "rule", "reward", "trl")}
    said = {**kept, "processes": processes, "config": dataclasses.asdict(config)}
    return dict(json.loads(json.dumps(said)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says; a name of TRL's is answered with the one that it has here."""
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    said = []
    for word in unknown:
        option = engines.option_for(word.strip("-").partition("=")[0].replace("-", "_"))
        if word.startswith("--") and option is not None:
            said.append(f"{word.partition('=')[0]} is --{option} here{' NAME=VALUE' if option == 'trl' else ''}")
    if said:
        parser.error("; ".join(said))
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rlbook_lib.grpo_command",
        usage="%(prog)s --model FOLDER --task FILE --output FOLDER [options; --help lists them]",
        description="GRPO on a model of your own, by TRL's GRPOTrainer.",
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="folder with a causal language model and its tokenizer")
    add("--task", type=Path, required=True, help='JSON lines: {"prompt": ..., "answer": ...}')
    add("--rule", default="equal", choices=["equal", "contains", "last number"], help="when an answer is right")
    add("--output", type=Path, required=True, help="folder of the run")
    add("--reward", action="append", help="rule, or file.py:function, =weight if you like; several are added up")
    add("--trl", action="append", default=[], metavar="NAME=VALUE", help="any other argument of trl.GRPOConfig")
    add("--device", default="auto", choices=["auto", "cpu"])
    add("--evaluation-prompts", type=int, default=128, help="of the evaluation split, sampled before and after")
    add("--quiet", action="store_true", help="no line an update")
    group = parser.add_argument_group("settings", "those of rlbook_lib.engines.EngineConfig; in brackets: TRL's names")
    names = engines.trl_names()
    for name, default in dataclasses.asdict(EngineConfig()).items():
        first, *more = default if isinstance(default, tuple) else (default,)
        said = "1e-06, with LoRA 1e-05" if name == "learning_rate" else str(default)
        how: dict[str, Any] = {"type": type(first), "default": None if name == "learning_rate" else default}
        how |= {"nargs": 1 + len(more)} if more else {}
        group.add_argument(
            f"--{name.replace('_', '-')}",
            help=f"default: {said}" + (f" ({', '.join(names[name])})" if names[name] else ""),
            **{"action": "store_true"} if default is False else how,
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
