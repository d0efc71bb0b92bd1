"""The stored notebooks: their form, and the weight of their figures. The nbval run compares their outputs with fresh ones, and
``notebook_seconds`` looks there at how long they take."""

from __future__ import annotations

import gzip
import shutil
import sys
from pathlib import Path
from typing import Any

import notebook_checks
import pytest
from conftest import ROOT
from notebook_checks import html_outputs, read
from stored_figures import is_interactive, n_states

CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
sys.path.insert(0, str(ROOT / "tools"))

import execute_notebooks  # noqa: E402

RAW_KB, GZIP_KB = 200, 40  # an interactive figure's weight

chapters = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


@chapters
@pytest.mark.parametrize("check", notebook_checks.ALL, ids=lambda check: check.__name__)
def test_form(path: Path, check: Any) -> None:
    assert check(read(path)) == []


@chapters
def test_to_open_and_save_a_chapter_changes_nothing(path: Path, tmp_path: Path) -> None:
    """The file is byte by byte what Jupyter would write; see ``test_live_lab`` for Jupyter itself."""
    copy = Path(shutil.copy(path, tmp_path))
    execute_notebooks.execute(copy, timeout=0, only_form=True)
    assert copy.read_text("utf-8") == path.read_text("utf-8"), "run: python tools/execute_notebooks.py --only-form"


@chapters
def test_figures_are_light(path: Path, report: dict[str, Any]) -> None:
    counts: dict[str, int] = {}
    for cell, html in html_outputs(read(path)):
        if not is_interactive(html):
            continue
        counts[cell] = counts.get(cell, 0) + 1
        raw, packed = len(html.encode()) / 1000, len(gzip.compress(html.encode())) / 1000
        name = f"{path.stem} {cell}" + (f" ({counts[cell]})" if counts[cell] > 1 else "")
        report.setdefault("figures", {})[name] = {"raw_kb": raw, "gzip_kb": packed, "states": n_states(html)}
        assert raw <= RAW_KB and packed <= GZIP_KB, name
