"""Where tensors live, how many threads work, what a run costs; recorded GPU runs (chapter 5 on).

Some cells of this book are worth a GPU: thousands of environments side by side. Few readers have one at
hand, so ``gpu_run`` does the run where there is a GPU, and elsewhere shows the recorded run: a small file
with the settings, the seeds, the device, the date and the curve, which ``tools/record_gpu_run.py`` wrote on
a GPU.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlbook_lib.checks import Count, Natural, checked

RECORDINGS = Path(__file__).resolve().parent.parent / "chapters" / "recordings"
RECORDED_BY_EXPERIMENT = ("config", "seeds", "curve", "summary")


# ---------------------------------------------------------------------- where and how


@checked
def choose_device(name: str = "auto") -> torch.device:
    """The device of this name on this machine: "cpu", "cuda", "cuda:1"; "auto" is a CUDA GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    there = ["cpu"] + ["cuda"] * (count > 0) + [f"cuda:{i}" for i in range(count)]
    if name not in there:
        raise ValueError(f"name is {name!r}; expected 'auto' or a device that this machine has ({', '.join(there)})")
    return torch.device(name)


def _device(given: str | torch.device) -> torch.device:
    """A device as it is, or the one of this name."""
    return choose_device(given) if isinstance(given, str) else given


@checked
def use_threads(n: Count = 1) -> None:
    """Let torch compute with ``n`` threads; the small networks of this book are fastest with one."""
    torch.set_num_threads(n)


@checked
def describe_machine(device: str | torch.device = "cpu") -> dict[str, str]:
    """What a measurement was made on: the names of device and processor, the versions of Python, torch and numpy."""
    device, processor = _device(device), _processor()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor
    return {
        "device": name,
        "processor": processor,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


# ---------------------------------------------------------------------- what a run costs


@checked
def peak_memory(device: str | torch.device = "cpu") -> int:
    """The most memory in use so far, in bytes: what torch took of a GPU's, or that of this process."""
    device = _device(device)
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux units of 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Throughput:
    """Counts items, and says how many came per second; a GPU is waited for before the clock is read."""

    @checked
    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device, self.items = _device(device), 0
        self._began = self._clock()

    @checked
    def add(self, items: Natural) -> None:
        """Count ``items`` more."""
        self.items += items

    def read(self) -> dict[str, float]:
        """Items, seconds since the start, and items per second."""
        seconds = self._clock() - self._began
        return {"items": self.items, "seconds": seconds, "per_second": self.items / seconds if seconds else math.inf}

    def _clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


# ---------------------------------------------------------------------- runs on a GPU, recorded


@checked
def gpu_run(
    name: str,
    experiment: Callable[[torch.device], dict[str, Any]],
    *,
    summary: Callable[[dict[str, Any]], str] | None = None,
) -> dict[str, Any] | None:
    """Show the recorded run of an experiment, or say that there is none; where ``RLBOOK_GPU=1`` asks for it, run it on the GPU.

    One line is printed that says which of the three it was. Unasked nothing starts, so that a page prints the same
    everywhere.

    Args:
        name: of the recording: lowercase letters, digits, hyphens and underscores.
        experiment: called with the GPU. It returns a dict of plain data with "config" (a dict), "seeds" (a
            list), "curve" (a dict of equally long lists) and "summary" (a dict of numbers).
        summary: makes a sentence of a record, printed too.

    Returns:
        The record: what the experiment returned, and "name", "device", "versions", "date" and "seconds".
        None if it is neither asked for nor recorded.

    Raises:
        ValueError: another kind of name or result, a recording that is damaged, or asked for where there is no GPU.
    """
    path = RECORDINGS / f"{_word(name)}.json"
    if os.environ.get("RLBOOK_GPU") == "1":
        record = make_record(name, experiment, choose_device("cuda"))
        print(f"Run here, on {record['device']}, in {record['seconds']:.0f} s.")
    elif path.is_file():
        record = read_record(path)
        print(
            f"Recorded run: on {record['device']}, {record['date']}, "
            f"in {record['seconds']:.0f} s, seeds {', '.join(map(str, record['seeds']))}."
        )
    else:
        print(f"Not recorded yet: {name}. With RLBOOK_GPU=1 this cell runs on a GPU.")
        return None
    if summary is not None:
        print(summary(record))
    return record


@checked
def make_record(
    name: str, experiment: Callable[[torch.device], dict[str, Any]], device: torch.device
) -> dict[str, Any]:
    """Run an experiment as ``gpu_run`` does, and describe the run; the device "cpu" marks the record as a rehearsal."""
    _word(name)
    clock = Throughput(device)
    result = experiment(device)
    seconds = clock.read()["seconds"]
    if not isinstance(result, dict) or not set(RECORDED_BY_EXPERIMENT) <= result.keys():
        raise ValueError(f"experiment returned {result!r}; expected a dict with {', '.join(RECORDED_BY_EXPERIMENT)}")
    for part, kind in zip(RECORDED_BY_EXPERIMENT, (dict, list, dict, dict)):
        if not isinstance(result[part], kind):
            raise ValueError(f"experiment returned {result[part]!r} as {part!r}; expected a {kind.__name__}")
    lengths = {key: len(column) if isinstance(column, list) else None for key, column in result["curve"].items()}
    if None in lengths.values() or len(set(lengths.values())) > 1:
        raise ValueError(f"experiment returned a curve of lengths {lengths}; expected equally long lists")
    versions = describe_machine(device)
    record = {
        **result,
        "name": name,
        "device": versions.pop("device"),
        "rehearsal": device.type != "cuda",
        "versions": versions,
        "date": datetime.date.today().isoformat(),
        "seconds": round(seconds, 2),
        "peak_memory": peak_memory(device),
    }
    try:
        json.dumps(record, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"experiment returned {error}; expected plain data without NaN") from error
    return record


@checked
def read_record(path: Path) -> dict[str, Any]:
    """A record from the file that ``tools/record_gpu_run.py`` wrote; one that is damaged or a rehearsal is refused."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    needed = {*RECORDED_BY_EXPERIMENT, "name", "device", "versions", "date", "seconds"}
    if not isinstance(record, dict) or not needed <= record.keys():
        raise ValueError(f"{path} is not a recorded run: it must have {', '.join(sorted(needed))}")
    if record.get("rehearsal"):
        raise ValueError(f"{path} is a rehearsal on a CPU, not a run on a GPU")
    return record


def _word(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise ValueError(f"name is {name!r}; expected lowercase letters, digits, hyphens and underscores")
    return name
