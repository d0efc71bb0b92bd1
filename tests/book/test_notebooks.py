"""The stored notebooks: their form, and the weight of their figures. The nbval run compares their outputs with fresh ones."""

from __future__ import annotations

import gzip
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import notebook_checks
import notebook_seconds
import pytest
from conftest import ROOT
from notebook_checks import code_cells, html_outputs, read
from stored_figures import is_figure, is_interactive, n_states

CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
SECONDS = 60  # of the processor, a chapter
LANGUAGE_MODEL_SECONDS = 150  # chapters 11 to 13 train a language model
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


def seconds_of(path: Path, folder: Path) -> float:
    """The processor's seconds of a chapter in the nbval run before; if it was not in it, of a run in a copy of the book's folders."""
    if (by_nbval := notebook_seconds.kept(path)) is not None:
        return by_nbval
    copy = folder / "chapters" / path.name
    copy.parent.mkdir()
    (folder / "tools").symlink_to(ROOT / "tools")
    for stored in (one for one in path.parent.iterdir() if one.is_dir()):
        (copy.parent / stored.name).symlink_to(stored)
    shutil.copy(path, copy)
    command = [sys.executable, str(ROOT / "tools" / "execute_notebooks.py"), str(copy)]
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert run.returncode == 0, run.stderr
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before


@pytest.mark.slow
@chapters
def test_a_chapter_is_quick(path: Path, tmp_path: Path, report: dict[str, Any]) -> None:
    stored, seconds = read(path), seconds_of(path, tmp_path)
    cells = code_cells(stored)
    report.setdefault("notebooks", {})[path.stem] = {
        "seconds": seconds,
        "code_cells": len(cells),
        "ignored": sum(map(notebook_checks.ignored, cells)),
        "figures": sum(is_figure(html) for _, html in html_outputs(stored)),
        "explorers": sum(is_interactive(html) for _, html in html_outputs(stored)),
    }
    assert seconds < (LANGUAGE_MODEL_SECONDS if path.stem[:2] in {"11", "12", "13"} else SECONDS)
