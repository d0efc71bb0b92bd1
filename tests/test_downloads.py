"""Tests of _ext/downloads: the wheel that the site serves, and the cell that a downloaded notebook starts with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import downloads
import pytest

from rlbook_lib.evaluation import stored_runs

ROOT = Path(__file__).resolve().parent.parent
WHEEL = "rlbook_lib-0.1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return downloads.build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


# ---------------------------------------------------------------- the wheel


def test_the_wheel_holds_the_library_the_stored_runs_and_the_measurements(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"rlbook_lib/{path.name}"
        for path in (ROOT / "rlbook_lib").iterdir()
        if path.suffix in {".py", ".css", ".js", ".typed"}
    }
    expected |= {"rlbook_lib/py.typed"} | {
        f"rlbook_lib/runs/{path.name}" for path in (ROOT / "chapters" / "runs").glob("*.json")
    }
    expected |= {f"rlbook_lib/measured/{path.name}" for path in (ROOT / "tools" / "bench" / "results").glob("*.json")}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert wheel.name == WHEEL
    assert wheel.stat().st_size < 1_000_000


def test_the_wheel_has_the_same_bytes_when_built_again(wheel: Path, tmp_path: Path) -> None:
    assert downloads.build_wheel(ROOT, tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_asks_for_torch_only_as_an_extra(wheel: Path) -> None:
    metadata = zipfile.ZipFile(wheel).read("rlbook_lib-0.1.0.dist-info/METADATA").decode()
    assert re.findall(r"^Requires-Dist: (torch.*)$", metadata, re.MULTILINE) == ['torch>=2.11; extra == "deep"']
    assert "Requires-Python: >=3.11" in metadata


def test_stored_runs_are_found_in_the_wheel_and_from_another_folder(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = stored_runs("runs/a2c_cartpole.json")
    zipfile.ZipFile(wheel).extractall(tmp_path / "far")
    code = "from rlbook_lib import evaluation as e; print(e.__file__); print(sorted(e.stored_runs('runs/a2c_cartpole.json')))"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "far")},
    )
    assert said.stdout.splitlines() == [str(tmp_path / "far" / "rlbook_lib" / "evaluation.py"), str(sorted(here))]
    with pytest.raises(ValueError, match="path is 'runs/nothing.json'"):
        stored_runs("runs/nothing.json")


# ---------------------------------------------------------------- the cell


def notebook(*sources: str) -> dict[str, Any]:
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "id": "title", "metadata": {}, "source": ["# Title"]}]
    cells += [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "execution_count": n, "source": [s]}
        for n, s in enumerate(sources)
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_the_cell_stands_before_the_first_code_cell_once(tmp_path: Path) -> None:
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps(notebook("import numpy as np", "x = 1")), "utf-8")
    for _ in range(2):
        downloads.add_cell(path, WHEEL)
        cells = json.loads(path.read_text("utf-8"))["cells"]
        assert [cell["id"] for cell in cells] == ["title", downloads.CELL_ID, "c0", "c1"]


@pytest.mark.parametrize(
    ("source", "deep"),
    [
        ("import torch", True),
        ("from torch import nn", True),
        ("from rlbook_lib.dqn import DQNConfig", True),
        ("from rlbook_lib import grpo", True),
        ("from rlbook_lib.mdp import MDP", False),
        ("from rlbook_lib import dynamic_programming as dp", False),
    ],
)
def test_only_a_notebook_that_uses_torch_asks_for_it(source: str, deep: bool) -> None:
    cell = downloads.cell_for(notebook(source), WHEEL)
    assert ('"torch"' in cell) is deep
    assert ("rlbook-lib[deep]" in cell) is deep


@pytest.mark.parametrize("path", sorted((ROOT / "chapters").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_copy_of_a_chapter_reads_what_lies_beside_the_book(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    downloads.add_cell(copy, WHEEL)
    cells = [
        cell
        for cell in json.loads(copy.read_text("utf-8"))["cells"]
        if cell["cell_type"] == "code" and cell["id"] != downloads.CELL_ID
    ]
    code = re.sub(r"#.*", "", "\n".join("".join(cell["source"]) for cell in cells))  # a comment may say who made a run
    assert re.findall(r""".*(?:["']\.\./|\.parent\.parent|tools/).*""", code) == []
    for name in re.findall(r'MEASURED \+ "/(\w+\.json)"|Path\(MEASURED\)', code):
        assert (ROOT / "tools" / "bench" / "results" / name).exists()
    assert set(re.findall(r'"runs/(\w+\.json)"', code)) <= {
        path.name for path in (ROOT / "chapters" / "runs").iterdir()
    }


def test_what_was_measured_is_read_from_the_library(tmp_path: Path) -> None:
    path = tmp_path / "one.ipynb"
    path.write_text(
        json.dumps(
            notebook(
                'print(open("../tools/bench/results/gae.json").read()[0])',
                'B = HERE.parent.parent / "tools" / "bench" / "results"',
            )
        ),
        "utf-8",
    )
    downloads.add_cell(path, WHEEL)
    code = [
        "".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    done, _ = run_cell("\n".join([*code, "print((B / 'gae.json').is_file())"]), tmp_path, missing=set())
    assert (done.stdout, done.stderr) == ("{\nTrue\n", "")


def run_cell(
    cell: str, folder: Path, missing: set[str], pip_fails: bool = False
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a cell where packages are missing, with a pip that only writes down what it was asked; the run, and that."""
    (folder / "fake" / "pip").mkdir(parents=True)
    asked = folder / "asked"
    code = f"import sys\nopen({str(asked)!r}, 'a').write(sys.argv[-1] + '\\n')\nsys.exit('no such wheel' if {pip_fails} else 0)\n"
    (folder / "fake" / "pip" / "__main__.py").write_text(code, "utf-8")
    (folder / "fake" / "pip" / "__init__.py").write_text("", "utf-8")
    before = f"import importlib.util as u\nfound = u.find_spec\nu.find_spec = lambda name: None if name in {missing or 'set()'} else found(name)\n"
    environment = os.environ | {"PYTHONPATH": str(folder / "fake")}
    done = subprocess.run(
        [sys.executable, "-c", before + cell], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done, asked.read_text("utf-8").splitlines() if asked.exists() else []


def test_the_cell_does_nothing_where_nothing_is_missing(tmp_path: Path) -> None:
    done, asked = run_cell(downloads.cell_for(notebook("import torch"), WHEEL), tmp_path, missing=set())
    assert (done.returncode, done.stdout, done.stderr, asked) == (0, "", "", [])


def test_the_cell_installs_from_the_site_that_it_came_from(tmp_path: Path) -> None:
    address = "https://book.invalid/_static/" + WHEEL
    cell = downloads.cell_for(notebook("import torch"), WHEEL, address)
    done, asked = run_cell(cell, tmp_path, missing={"rlbook_lib", "torch"})
    assert (done.returncode, done.stderr) == (0, "")
    assert asked == [f"rlbook-lib[deep] @ {address}"]


def test_the_cell_installs_from_the_file_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "my notebooks"
    folder.mkdir()
    (folder / WHEEL).write_bytes(b"")
    _, asked = run_cell(downloads.cell_for(notebook("x = 1"), WHEEL), folder, missing={"rlbook_lib"})
    assert asked == [f"rlbook-lib @ {(folder / WHEEL).as_uri()}"]


def test_the_cell_installs_torch_alone_where_only_torch_is_missing(tmp_path: Path) -> None:
    _, asked = run_cell(downloads.cell_for(notebook("import torch"), WHEEL), tmp_path, missing={"torch"})
    assert asked == ["rlbook-lib[deep]"]


def test_the_cell_says_what_to_do_where_it_knows_no_site(tmp_path: Path) -> None:
    done, asked = run_cell(downloads.cell_for(notebook("x = 1"), WHEEL), tmp_path, missing={"rlbook_lib"})
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: This notebook needs the book's library. The foot of its page has the file: "
        f"put {WHEEL} into {tmp_path} and run this cell again."
    )
    assert asked == []


def test_the_cell_shows_what_pip_says_when_it_fails(tmp_path: Path) -> None:
    cell = downloads.cell_for(notebook("x = 1"), WHEEL, "https://book.invalid/" + WHEEL)
    done, _ = run_cell(cell, tmp_path, missing={"rlbook_lib"}, pip_fails=True)
    assert "RuntimeError: The book's library could not be installed. What pip says:\nno such wheel" in done.stderr


def test_the_cell_names_a_python_that_is_too_old(tmp_path: Path) -> None:
    cell = "import sys\nsys.version_info = (3, 10, 1)\n" + downloads.cell_for(notebook("x = 1"), WHEEL)
    done, asked = run_cell(cell, tmp_path, missing={"rlbook_lib"})
    assert "RuntimeError: The book needs Python 3.11 or newer" in done.stderr
    assert asked == []
