"""Two processes that share a batch train as one process with the whole batch; and one of them may die."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rlbook_lib.grpo
import rlbook_lib.rlhf
from rlbook_lib import data_parallel
from rlbook_lib.data_parallel import PerProcess, add_gradients, join, mean_of_metrics, my_part, processes, rank, total
from rlbook_lib.language_model import Completions
from rlbook_lib.training import load_checkpoint
from tests import two_processes

SCRIPT = Path(two_processes.__file__)


def start(folder: Path, *more: str) -> subprocess.CompletedProcess:
    """Two processes over gloo, on this machine."""
    for name in two_processes.CONFIGS.keys() & set(more):
        (folder / name).mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(SCRIPT),
        str(folder),
        *more,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left of every run."""
    folder = tmp_path_factory.mktemp("together")
    done = start(folder, *two_processes.CONFIGS)
    assert done.returncode == 0, done.stderr
    return folder


def padded(x: torch.Tensor, width: int, left: bool) -> torch.Tensor:
    empty = x.new_zeros(len(x), width - x.shape[1])
    return torch.cat([empty, x] if left else [x, empty], 1)


def joined(parts: list[dict]) -> Completions:
    """The completions of several processes as one batch."""
    whole: dict = {name: [x for part in parts for x in part[name]] for name in ("prompts", "texts")}
    for name in ("prompt_tokens", "prompt_mask", "tokens", "mask", "log_probs"):
        width = max(part[name].shape[1] for part in parts)
        whole[name] = torch.cat([padded(part[name], width, left=name.startswith("prompt")) for part in parts])
    return Completions(**whole, finished=torch.cat([part["finished"] for part in parts]))


@pytest.mark.slow
@pytest.mark.parametrize("name", two_processes.CONFIGS)
def test_two_processes_train_as_one_with_the_whole_batch(name, together, monkeypatch):
    folder = together / name
    rounds = [torch.load(folder / f"rounds{i}.pt", weights_only=False) for i in range(2)]
    assert len(rounds[0]) == two_processes.CONFIGS[name].updates
    assert any(
        a["mask"].shape != b["mask"].shape or a["mask"].sum() != b["mask"].sum() for a, b in zip(*rounds, strict=True)
    )
    batches = iter([joined(list(parts)) for parts in zip(*rounds, strict=True)])
    for module in (rlbook_lib.grpo, rlbook_lib.rlhf):
        monkeypatch.setattr(module, "generate", lambda *arguments, **options: next(batches))
    student, untrained = two_processes.model(), two_processes.model().state_dict()
    result = two_processes.train(name, student)
    first, second = (torch.load(folder / f"weights{i}.pt") for i in range(2))
    for key, weight in student.state_dict().items():
        assert torch.equal(first[key], second[key])
        torch.testing.assert_close(first[key], weight, rtol=0, atol=1e-6)
    assert max(float((first[key] - untrained[key]).abs().max()) for key in first) > 1e-4
    history = json.loads((folder / "history.json").read_text())
    assert history["reward"] == pytest.approx(result.history["reward"].tolist(), abs=1e-6)
    assert history["env_steps"] == result.history["env_steps"].tolist()


@pytest.mark.slow
def test_a_process_that_dies_ends_the_job_and_its_checkpoint_goes_on(together, tmp_path):
    cut = start(tmp_path, "grpo", "--dies-at", "6")
    assert cut.returncode != 0 and "SIGKILL" in cut.stderr
    assert load_checkpoint(tmp_path / "grpo" / "checkpoint.pt")["update"] == 4
    again = start(tmp_path, "grpo")
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "grpo" / "history.json").read_text()) == json.loads(
        (together / "grpo" / "history.json").read_text()
    )
    for key, weight in torch.load(together / "grpo" / "weights0.pt").items():
        assert torch.equal(weight, torch.load(tmp_path / "grpo" / "weights0.pt")[key])
    with pytest.raises(
        ValueError, match="made by 2 processes, and this run has 1"
    ):  # one process cannot take two streams
        two_processes.train("grpo", two_processes.model(), state=tmp_path / "grpo" / "checkpoint.pt")


@pytest.mark.slow
def test_a_process_that_hangs_is_not_waited_for_without_end(tmp_path):
    """It is stopped, not dead: nobody closes its connections. The other one gives up after the time it was given."""
    (tmp_path / "grpo").mkdir()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    group = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
    }
    command = [
        sys.executable,
        "-m",
        "tests.two_processes",
        str(tmp_path),
        "grpo",
        "--stops-at",
        "6",
        "--minutes",
        "0.05",
    ]
    started = [
        subprocess.Popen(command, env={**group, "RANK": str(number)}, stderr=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    said = started[0].communicate(timeout=120)[1]
    started[1].kill()
    started[1].communicate()
    assert (
        started[0].returncode == 1
        and "ProcessLost: process 0 of 2 waited too long for another one; start the same command again" in said
    )
    assert load_checkpoint(tmp_path / "grpo" / "checkpoint.pt")["update"] == 4


def test_minibatches_divide_what_each_process_has(monkeypatch):
    config = rlbook_lib.grpo.GRPOConfig(updates=1, prompts=2, group=4, minibatches=8)
    monkeypatch.setattr(rlbook_lib.grpo, "processes", lambda: 2)
    with pytest.raises(
        ValueError, match="minibatches is 8; expected a divisor of the 4 completions of each of 2 processes"
    ):
        next(rlbook_lib.grpo.iterate_grpo(two_processes.model(), two_processes.TASK, config, seed=0))
    monkeypatch.setattr(rlbook_lib.rlhf, "processes", lambda: 2)
    with pytest.raises(
        ValueError, match="minibatches is 8; expected a divisor of the 4 completions of each of 2 processes"
    ):
        next(
            rlbook_lib.rlhf.iterate_rlhf(
                two_processes.model(),
                two_processes.TASK,
                rlbook_lib.rlhf.RLHFConfig(batch_size=8, minibatches=8),
                seed=0,
            )
        )


def test_a_number_is_the_same_everywhere_or_not(monkeypatch):
    for others, same in (([3.0, 3.0], True), ([3.0, 5.0], False), ([1.0], False)):
        monkeypatch.setattr(
            data_parallel, "largest", lambda own, others=others: max([own, *(x if own > 0 else -x for x in others)])
        )
        assert data_parallel.same_everywhere(3.0) == same


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        ValueError, match="process 1 of this machine has no GPU of its own; expected at most 1 processes"
    ):
        join("cuda")


def test_alone_everything_is_the_identity(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not join() and processes() == 1 and rank() == 0
    assert my_part([1, 2, 3]) == [1, 2, 3] and total(2.5) == 2.5 and mean_of_metrics({"a": 1.0}) == {"a": 1.0}
    weight = torch.nn.Parameter(torch.ones(2))
    add_gradients([weight])
    assert weight.grad is None


def test_parts_in_order_are_the_whole_and_unequal_ones_are_refused(monkeypatch):
    monkeypatch.setattr(data_parallel, "processes", lambda: 3)
    parts = []
    for number in range(3):
        monkeypatch.setattr(data_parallel, "rank", lambda number=number: number)
        parts += my_part(list("abcdef"))
    assert parts == list("abcdef")
    with pytest.raises(ValueError, match="4 prompts do not divide among 3 processes"):
        my_part(list("abcd"))


def test_each_process_has_a_stream_of_its_own(monkeypatch):
    streams = []
    for number in range(2):
        monkeypatch.setattr(data_parallel, "rank", lambda number=number: number)
        streams.append(torch.rand(3, generator=PerProcess(5, torch.device("cpu")).generator).tolist())
    assert streams[0] != streams[1]
    assert streams[0] == torch.rand(3, generator=torch.Generator().manual_seed(5)).tolist()


def test_what_the_others_say_when_one_has_gone(monkeypatch):
    def gone(*arguments):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(data_parallel, "processes", lambda: 2)
    monkeypatch.setattr(data_parallel, "rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "all_reduce", gone)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "gloo")
    with pytest.raises(
        data_parallel.ProcessLost, match="process 0 of 2 lost another one; start the same command again"
    ):
        total(1.0)
