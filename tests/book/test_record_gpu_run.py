"""Tests of ``tools/record_gpu_run.py``, as an author calls it, on the CPU."""

import json
import runpy
import subprocess
import sys

import pytest
from conftest import ROOT

from rlbook_lib import devices

RECORDINGS = ROOT / "chapters" / "recordings"
IMPORTS = "import torch\nimport a_module_that_nobody_has\nfrom rlbook_lib.devices import gpu_run\n"
RUN = """def experiment(device):
    return {"config": {"copies": 2}, "seeds": [0], "curve": {"x": [1.0]},
            "summary": {"sum": float(torch.ones(3, device=device).sum())}}

record = gpu_run("toy", experiment)
"""


def notebook(path, *cells):
    """A notebook of (source, tags) cells."""
    cells = [
        {
            "cell_type": "code",
            "id": f"c{i}",
            "metadata": {"tags": tags},
            "source": source.splitlines(True),
            "outputs": [],
            "execution_count": None,
        }
        for i, (source, tags) in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def record(*arguments):
    """Call the tool; the message it gave up with, or None."""
    tool = runpy.run_path(str(ROOT / "tools" / "record_gpu_run.py"))
    try:
        tool["main"]([str(argument) for argument in arguments])
    except SystemExit as end:
        return str(end)
    return None


def test_a_rehearsal_writes_a_record_that_says_so(tmp_path, capsys):
    page = notebook(
        tmp_path / "page.ipynb", (IMPORTS, []), ("raise RuntimeError('not for the GPU')", []), (RUN, ["gpu-run"])
    )
    assert record(page, "--device", "cpu", "--output", tmp_path / "out") is None
    assert "left out: import a_module_that_nobody_has" in capsys.readouterr().err
    made = json.loads((tmp_path / "out" / "toy.json").read_text())
    assert made["summary"] == {"sum": 3.0} and made["seeds"] == [0]
    assert made["rehearsal"] is True and made["name"] == "toy"
    assert devices.gpu_run.__module__ == devices.__name__  # put back


@pytest.mark.parametrize("output", [[], ["--output", RECORDINGS / "deeper"], ["--output", "tools/../chapters"]])
def test_a_rehearsal_is_never_written_below_chapters(tmp_path, monkeypatch, output):
    monkeypatch.chdir(ROOT)
    page = notebook(tmp_path / "page.ipynb", (IMPORTS, []), (RUN, ["gpu-run"]))
    assert "not written below chapters" in record(page, "--device", "cpu", *output)
    assert not (RECORDINGS / "deeper").exists()
    assert not (RECORDINGS / "toy.json").exists() and not (ROOT / "chapters" / "toy.json").exists()


def test_a_page_without_a_gpu_run_is_an_error(tmp_path):
    untagged = notebook(tmp_path / "untagged.ipynb", (IMPORTS, []), (RUN, []))
    silent = notebook(tmp_path / "silent.ipynb", (IMPORTS, []), ("x = 1", ["gpu-run"]))
    for page, said in ((untagged, "no cell has the tag"), (silent, "never called gpu_run")):
        assert said in record(page, "--device", "cpu", "--output", tmp_path / "out")


@pytest.mark.slow
def test_every_gpu_run_of_the_book_is_rehearsed_to_its_end(tmp_path, capsys):
    """Small, on the CPU, with what the pages would print of it."""
    pages = sorted((ROOT / "chapters").glob("*_deeper.ipynb"))
    assert record(*pages, "--device", "cpu", "--small", "--output", tmp_path) is None
    small = runpy.run_path(str(ROOT / "tools" / "record_gpu_run.py"))["SMALL"]
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(small) and len(small) == 5
    for path in tmp_path.iterdir():
        made = json.loads(path.read_text())
        assert made["rehearsal"] is True and made["summary"] and made["seeds"]
        assert all(len(column) >= 2 for column in made["curve"].values())
    assert "million parameters, accuracy" in (said := capsys.readouterr().out) and "matrix rate" in said
    assert said.count(" -> ") == 5


def test_the_tool_runs_by_itself(tmp_path):
    tool = ROOT / "tools" / "record_gpu_run.py"
    done = subprocess.run(
        [sys.executable, str(tool), "none.ipynb", "--device", "nothing"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 1 and "'nothing'" in done.stderr
