"""A pytest plugin for the nbval run: keep how long each notebook took, so that none has to be executed a second time for it.

With ``-p notebook_seconds`` (this folder on PYTHONPATH) the seconds of each notebook go to ``_build/seconds/<name>.json``, and
``test_notebooks.py`` compares them with the limit. The file names the notebook's digest: after an edit it counts no more.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell

KEPT = Path(__file__).resolve().parents[2] / "_build" / "seconds"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kept(path: Path) -> float | None:
    """The seconds that nbval's run of the notebook took; None if there was none of this very file."""
    file = KEPT / f"{path.stem}.json"
    if not file.exists():
        return None
    record = json.loads(file.read_text("utf-8"))
    return float(record["seconds"]) if record["digest"] == digest(path) else None


class Keeper:
    """Adds up the seconds of each notebook's cells, in one test process."""

    def __init__(self) -> None:
        self.seconds: dict[Path, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        result = yield
        if isinstance(item, IPyNbCell):
            self.seconds[item.path] = self.seconds.get(item.path, 0.0) + time.monotonic() - began
        return result

    def pytest_sessionfinish(self) -> None:
        KEPT.mkdir(parents=True, exist_ok=True)
        for path, seconds in self.seconds.items():
            (KEPT / f"{path.stem}.json").write_text(json.dumps({"digest": digest(path), "seconds": seconds}), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Keeper())
