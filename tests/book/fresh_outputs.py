"""A pytest plugin for the nbval run: keep what the cells gave, so that no chapter has to be executed a second time.

nbval compares texts and cannot compare figures. With ``-p fresh_outputs`` (this folder on PYTHONPATH) each chapter's fresh outputs and
its seconds go to ``_build/fresh/<chapter>.json``, and ``test_notebooks.py`` compares the figures in them with the stored ones. The file
names the notebook's digest: after an edit it counts no more.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FRESH = Path(__file__).resolve().parents[2] / "_build" / "fresh"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kept(path: Path) -> tuple[dict[str, Any], float] | None:
    """The notebook as nbval's run left it and the seconds that took; None if there was none of this very file."""
    file = FRESH / f"{path.stem}.json"
    if not file.exists():
        return None
    record = json.loads(file.read_text("utf-8"))
    return (record["notebook"], record["seconds"]) if record["digest"] == digest(path) else None


class Keeper:
    """Collects the cells of each notebook, in one test process."""

    def __init__(self) -> None:
        self.cells: dict[Path, list[dict[str, Any]]] = {}
        self.seconds: dict[Path, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        result = yield
        if type(item).__name__ == "IPyNbCell":
            cell, outputs = item.cell, item.test_outputs or []  # type: ignore[attr-defined]
            tags = {"tags": list(cell.metadata.get("tags", []))}
            fresh = {"cell_type": "code", "id": cell.id, "source": cell.source, "metadata": tags, "outputs": outputs}
            self.cells.setdefault(item.path, []).append(fresh)
            self.seconds[item.path] = self.seconds.get(item.path, 0.0) + time.monotonic() - began
        return result

    def pytest_sessionfinish(self) -> None:
        FRESH.mkdir(parents=True, exist_ok=True)
        for path, cells in self.cells.items():
            record = {"digest": digest(path), "seconds": self.seconds[path], "notebook": {"cells": cells}}
            (FRESH / f"{path.stem}.json").write_text(json.dumps(record), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Keeper())
