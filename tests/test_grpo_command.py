"""GRPO from the command line: its files, its errors, and a run that is killed and goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import rlbook_lib.grpo_command as grpo_command
from rlbook_lib.grpo_command import main
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig
from rlbook_lib.training import load_checkpoint
from tests.full_disk import no_file_longer_than
from tests.tiny_llama import save_tiny_llama

SETTINGS = [
    "--updates",
    "7",
    "--checkpoint-every",
    "3",
    "--prompts",
    "4",
    "--group",
    "4",
    "--minibatches",
    "2",
    "--quiet",
    "--max-new-tokens",
    "3",
    "--evaluation-prompts",
    "16",
]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    rows = [{"prompt": f"{a}+{b}=", "answer": str((a + b) % 10)} for a in range(9) for b in range(9)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


class Small(Transformer):
    """A model of this book that is saved and chats as one of transformers does."""

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        torch.save(self.state_dict(), folder / "weights.pt")


@pytest.fixture
def command(tmp_path: Path, task: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the command in this process, on a small model that is the same each time."""

    def load(folder: str, *, dtype: str, device: torch.device) -> Small:
        return Small(
            CharTokenizer("0123456789+="), TransformerConfig(width=16, layers=1, heads=2, max_length=16), seed=0
        )

    monkeypatch.setattr(grpo_command, "load_hugging_face", load)

    def run(output: str, *more: str) -> Path:
        (tmp_path / "small").mkdir(exist_ok=True)
        assert main([*run.arguments, "--output", str(tmp_path / output), *more]) == 0
        return tmp_path / output

    run.arguments = ["--model", str(tmp_path / "small"), "--task", str(task), *SETTINGS]
    return run


def lines(path: Path) -> list[dict]:
    """The lines of a file, without the time they took."""
    return [
        {key: value for key, value in json.loads(line).items() if key != "seconds"}
        for line in path.read_text().splitlines()
    ]


def test_a_run_leaves_settings_metrics_samples_and_a_model(command):
    folder = command("run")
    assert [row["update"] for row in lines(folder / "metrics.jsonl")] == list(range(8))
    assert {"reward", "length", "entropy", "tokens"} <= lines(folder / "metrics.jsonl")[-1].keys()
    assert [row["update"] for row in lines(folder / "samples.jsonl")] == [3] * 4 + [6] * 4
    assert json.loads((folder / "settings.json").read_text())["config"]["group"] == 4
    assert (folder / "model" / "weights.pt").exists()


@pytest.mark.parametrize("settings", [[], ["--beta", "0.1"]])
def test_a_run_that_was_cut_off_ends_as_if_nothing_had_happened(command, monkeypatch, settings):
    whole = command("whole", *settings)
    watch = grpo_command._Folder.watch

    def dies(self, batch, rewards):
        if self.update == 4:
            raise RuntimeError("the lights go out")
        return watch(self, batch, rewards)

    with monkeypatch.context() as patch:
        patch.setattr(grpo_command._Folder, "watch", dies)
        with pytest.raises(RuntimeError, match="lights"):
            command("cut", *settings)
    folder = command("cut", *settings)
    assert lines(folder / "metrics.jsonl") == lines(whole / "metrics.jsonl")
    assert lines(folder / "samples.jsonl") == lines(whole / "samples.jsonl")
    trained, again = (torch.load(run / "model" / "weights.pt") for run in (whole, folder))
    assert all(torch.equal(trained[name], again[name]) for name in trained)


def test_a_folder_of_another_run_is_left_alone(command):
    folder = command("run")
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(SystemExit, match="other settings \\(config\\)"):
        command("run", "--group", "2")
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: '{'; expected a JSON object"),
        ('{"prompt": "1"}', "expected a JSON object"),
        ('{"prompt": "", "answer": "1"}', "texts"),
        ('{"prompt": "1", "answer": "one"}', "expected a number"),
        ('{"prompt": "1", "answer": "1"}', "has no prompt for the"),
    ],
)
def test_a_task_file_that_cannot_be_used_is_named(command, task, line, words):
    task.write_text(line + "\n")
    with pytest.raises(SystemExit, match=words):
        command("run", "--rule", "last number")


@pytest.mark.parametrize(
    "arguments", [["--task", "nowhere.jsonl"], ["--group", "1"], ["--minibatches", "3"], ["--device", "abacus"]]
)
def test_what_cannot_work_is_said_in_one_line(command, arguments):
    with pytest.raises(SystemExit, match="^grpo_command: ") as caught:
        command("run", *arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "nowhere"], "--model nowhere is no folder; expected one with a causal language model"),
        (["--checkpoint-every", "0"], "checkpoint_every is 0"),
        (
            ["--max-new-tokens", "15"],
            "the prompt '0\\+0=' has 4 tokens and its answer may have 15; expected at most 16 together",
        ),
    ],
)
def test_what_would_stop_the_run_later_is_said_at_once(command, tmp_path, arguments, words):
    with pytest.raises(SystemExit, match=words):
        command("run", *arguments)
    assert not (tmp_path / "run").exists()


def test_two_commands_cannot_write_one_folder(command, tmp_path):
    folder = command("run")
    other = grpo_command._Folder(folder, json.loads((folder / "settings.json").read_text()))
    with pytest.raises(SystemExit, match="run is in use: another command writes there"):
        command("run")
    other.close()
    command("run")


def test_after_ctrl_c_the_run_goes_on_and_no_line_is_missing(command, monkeypatch, tmp_path, capsys):
    whole, watch = command("whole"), grpo_command._Folder.watch

    def interrupted(self, batch, rewards):
        if self.update == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return watch(self, batch, rewards)

    with monkeypatch.context() as patch:
        patch.setattr(grpo_command._Folder, "watch", interrupted)
        assert main([*command.arguments, "--output", str(tmp_path / "cut")]) == 130
    assert "the same command goes on from the checkpoint" in capsys.readouterr().err
    assert (
        load_checkpoint(tmp_path / "cut" / "checkpoint.pt")["update"]
        == 5
        == lines(tmp_path / "cut" / "metrics.jsonl")[-1]["update"]
    )
    assert lines(command("cut") / "metrics.jsonl") == lines(whole / "metrics.jsonl")


def test_lines_of_metrics_that_were_cut_off_or_lost_come_back(command):
    folder = command("run")
    path, before = folder / "metrics.jsonl", lines(folder / "metrics.jsonl")
    text = path.read_text().splitlines(keepends=True)
    path.write_text(
        "".join(text[:5]) + text[5][:20]
    )  # a kill between the checkpoint and its line, and one in the middle of a line
    assert lines(command("run") / "metrics.jsonl") == before


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("settings.json", "", "settings.json is damaged"),
        ("metrics.jsonl", "\0}\n{}\n", "metrics.jsonl, line 1 is damaged: .*; remove this line"),
        ("checkpoint.pt", "PK", "checkpoint.pt is not a checkpoint, or is damaged: .*; remove this file to start anew"),
    ],
)
def test_a_damaged_file_is_named(command, name, damage, words):
    folder = command("run")
    (folder / name).write_text(damage)
    with pytest.raises(SystemExit, match=words):
        command("run")
    assert (folder / name).read_text() == damage


def test_a_full_disk_ends_the_run_in_one_line_and_with_room_it_goes_on(command, tmp_path):
    whole = command("whole")
    size = (whole / "checkpoint.pt").stat().st_size
    with (
        no_file_longer_than(size // 2),
        pytest.raises(SystemExit, match="the checkpoint before this one stays: .*checkpoint.pt"),
    ):
        command("cut")
    assert not list((tmp_path / "cut").glob(".checkpoint*"))
    assert lines(command("cut") / "metrics.jsonl") == lines(whole / "metrics.jsonl")


def test_a_killed_process_goes_on(tmp_path, task):
    """The real command on a tiny Llama: killed in the middle, started again, the same lines as undisturbed."""
    model = save_tiny_llama(tmp_path / "llama", "0123456789+=")
    settings = [*SETTINGS, "--updates", "40", "--model", str(model), "--task", str(task), "--device", "cpu"]

    def start(output: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "rlbook_lib.grpo_command", *settings, "--output", str(tmp_path / output)]
        )

    assert start("whole").wait() == 0
    victim, checkpoint = start("killed"), tmp_path / "killed" / "checkpoint.pt"
    while not checkpoint.exists():
        assert victim.poll() is None
        time.sleep(0.02)
    time.sleep(0.2)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert start("killed").wait() == 0
    assert lines(tmp_path / "killed" / "metrics.jsonl") == lines(tmp_path / "whole" / "metrics.jsonl")
    assert lines(tmp_path / "killed" / "samples.jsonl") == lines(tmp_path / "whole" / "samples.jsonl")
