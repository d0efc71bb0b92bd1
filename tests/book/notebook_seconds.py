"""A pytest plugin for the nbval run: keep what each notebook cost, so that none has to be executed a second time for it.

With ``-p notebook_seconds`` (this folder on PYTHONPATH) the processor's seconds of each notebook go to ``_build/seconds/<name>.json``, and
``test_notebooks.py`` compares them with the limit. The file names the notebook's digest: after an edit it counts no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from nbval.plugin import IPyNbCell

KEPT = Path(__file__).resolve().parents[2] / "_build" / "seconds"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kept(path: Path) -> float | None:
    """The processor's seconds that nbval's run of the notebook took; None if there was none of this very file."""
    file = KEPT / f"{path.stem}.json"
    if not file.exists():
        return None
    record = json.loads(file.read_text("utf-8"))
    return float(record["seconds"]) if record["digest"] == digest(path) else None


def of_children() -> float:
    """The processor's seconds of this process's kernel: a busy machine does not count."""
    seconds = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            seconds += sum(child.cpu_times()[:2])
    return seconds


class Keeper:
    """Looks at the kernel after each cell, in one test process; each notebook has a kernel of its own."""

    def __init__(self) -> None:
        self.seconds: dict[Path, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        if isinstance(item, IPyNbCell):
            self.seconds[item.path] = max(self.seconds.get(item.path, 0.0), of_children())
        return result

    def pytest_sessionfinish(self) -> None:
        KEPT.mkdir(parents=True, exist_ok=True)
        for path, seconds in self.seconds.items():
            (KEPT / f"{path.stem}.json").write_text(json.dumps({"digest": digest(path), "seconds": seconds}), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Keeper())
