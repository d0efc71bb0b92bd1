"""What students and readers get: nothing of the solutions, the hidden tests or the rubrics is in it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import hostile
import pytest
from conftest import ROOT

from assignments.grader import notebooks, questions
from assignments.grader.__main__ import main

MARKER = re.compile(rb"RLBOOK-(?:SOLUTION|HIDDEN|RUBRIC)-")
NAMES = questions.names()
PLANTED = ("SOLUTION", "HIDDEN", "RUBRIC")


def marked(folder):
    """Files below a folder that hold a marker."""
    return [path for path in folder.rglob("*") if path.is_file() and MARKER.search(path.read_bytes())]


def test_the_release_of_the_small_assignment(small):
    notebook = notebooks.read(small.notebook)
    made = notebooks.released(notebook)
    text = str(made)
    assert (
        "RLBOOK" not in text and "BEGIN SOLUTION" not in text and "np.arange" not in text and "stay finite" not in text
    )
    cells = {notebooks.role(cell).get("grade_id"): cell for cell in made["cells"]}
    assert notebooks.text_of(cells["q1"]).endswith("    # YOUR CODE HERE\n    raise NotImplementedError()")
    assert notebooks.text_of(cells["written"]) == notebooks.TEXT_STUB
    assert cells["q1-checks"]["metadata"]["editable"] is False and "assert" in notebooks.text_of(cells["q1-checks"])
    assert "editable" not in cells["q1"]["metadata"]
    assert notebooks.released(
        made | {"cells": [cell for cell in made["cells"] if not notebooks.role(cell).get("solution")]}
    )
    assert "RLBOOK" in str(notebook)  # the instructor's notebook is as it was


def test_outputs_are_not_handed_out(small):
    notebook = notebooks.read(small.notebook)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [{"output_type": "stream", "text": "42"}], 3
    assert all(
        not cell.get("outputs") and not cell.get("execution_count") for cell in notebooks.released(notebook)["cells"]
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "found no"),
        ("### BEGIN SOLUTION\nx", "not closed"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n", "inside a region"),
        ("### END SOLUTION\n### BEGIN SOLUTION\n", "without"),
    ],
)
def test_a_solution_that_would_be_handed_out_is_an_error(source, message):
    role = {"solution": True, "grade": False, "locked": False, "grade_id": "q1"}
    with pytest.raises(ValueError, match=message):
        notebooks.released({"cells": [{"cell_type": "code", "source": source, "metadata": {"nbgrader": role}}]})


def test_hidden_tests_in_a_cell_are_taken_out():
    role = {"solution": False, "grade": True, "locked": True, "grade_id": "c"}
    text = "assert a\n### BEGIN HIDDEN TESTS\nassert secret\n### END HIDDEN TESTS\n"
    (cell,) = notebooks.released({"cells": [{"cell_type": "code", "source": text, "metadata": {"nbgrader": role}}]})[
        "cells"
    ]
    assert notebooks.text_of(cell) == "assert a"


def test_the_command_writes_what_is_released(small, tmp_path):
    shutil.copytree(hostile.HOME / "small", tmp_path / "home" / "small")
    assert main(["release", "small"], tmp_path / "home") == 0
    assert notebooks.read(tmp_path / "home" / "release" / "small.ipynb") == notebooks.released(
        notebooks.read(small.notebook)
    )
    assert not marked(tmp_path / "home" / "release")


@pytest.mark.parametrize("name", NAMES)
def test_markers_are_planted(name):
    """Without them the tests below would find nothing whatever happens."""
    folder = questions.HOME / name
    texts = {
        "SOLUTION": (folder / f"{name}.ipynb").read_text("utf-8"),
        "HIDDEN": (folder / "hidden_tests.py").read_text("utf-8"),
        "RUBRIC": (folder / "rubric.md").read_text("utf-8"),
    }
    assert [kind for kind in PLANTED if f"RLBOOK-{kind}-" not in texts[kind]] == []
    assert texts["SOLUTION"].count("RLBOOK-SOLUTION-") >= len(questions.load(name).questions) + 1


@pytest.mark.parametrize("name", NAMES)
def test_the_checked_in_release_is_the_newest(name):
    path = questions.HOME / "release" / f"{name}.ipynb"
    assert notebooks.read(path) == notebooks.released(notebooks.read(questions.load(name).notebook)), (
        "run `make release`"
    )


def test_nothing_leaks_into_the_releases():
    assert not marked(questions.HOME / "release")


@pytest.mark.site
def test_nothing_leaks_into_the_book():
    site = ROOT / "_build" / "html"
    if not site.is_dir():
        pytest.skip("the book is not built")
    assert not marked(site)


@pytest.mark.slow
def test_nothing_leaks_into_wheel_and_sdist(tmp_path):
    """Both are built from a copy of what is tracked, markers included."""
    copy = tmp_path / "copy"
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in tracked:
        needed = name.startswith("chapters/runs/") or not name.startswith(
            ("chapters/", "_static/")
        )  # the runs travel in the wheel
        if (ROOT / name).is_file() and needed:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    assert marked(copy)
    code = f"from setuptools import build_meta as b; b.build_wheel({str(tmp_path)!r}); b.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, check=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert not [
            name for name in archive.namelist() if MARKER.search(archive.read(name)) or name.startswith("assignments")
        ]
    with tarfile.open(sdist) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        assert not [member.name for member in files if MARKER.search(archive.extractfile(member).read())]
        assert not [member.name for member in files if "hidden_tests" in member.name or "rubric" in member.name]


@pytest.mark.parametrize("name", questions.names())
def test_a_release_imports_only_what_readers_have(name):
    allowed = {"numpy", "torch", "matplotlib", "gymnasium", "rlbook_lib", *sys.stdlib_module_names}
    for cell in notebooks.read(questions.HOME / "release" / f"{name}.ipynb")["cells"]:
        if cell["cell_type"] != "code":
            continue
        for node in ast.walk(ast.parse(notebooks.text_of(cell))):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed
            elif isinstance(node, ast.ImportFrom):
                assert node.module and node.module.split(".")[0] in allowed


@pytest.mark.parametrize("name", NAMES)
def test_the_first_cell_says_what_is_missing_and_how_to_get_it(name, monkeypatch):
    """As a student reads it whose kernel has not the library, or has it without torch."""
    (first, *_) = [
        one
        for one in notebooks.read(questions.HOME / "release" / f"{name}.ipynb")["cells"]
        if one["cell_type"] == "code"
    ]
    text = notebooks.text_of(first)
    needs_torch = "import torch" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extra = "[deep]" if needs_torch else ""
    for missing in ("rlbook_lib", *(["torch"] if needs_torch else [])):
        with monkeypatch.context() as without:
            for module in [one for one in sys.modules if one.partition(".")[0] == "rlbook_lib"]:
                without.delitem(sys.modules, module)
            without.setitem(sys.modules, missing, None)  # as if it were not there
            with pytest.raises(ModuleNotFoundError) as said:
                exec(text, {})
        assert said.value.name == missing and said.value.__suppress_context__
        assert str(said.value).startswith(
            f"This notebook needs {missing}, which is not installed here: run `pip install "
        )
        assert f"rlbook_lib-{project['version']}-py3-none-any.whl{extra}" in str(said.value) and "\n" not in str(
            said.value
        )
