"""The many-seed runs behind the pages: they can be remade, go on after a kill, and are what their files say."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbook_lib.evaluation import stored_runs

ROOT = Path(__file__).resolve().parents[2]
SPEC = """
import numpy as np
SEEDS = range(3)
CASES = {"low": {"slope": 1}, "high": {"slope": 3}}
def run(seed, slope):
    return {"y": slope * np.arange(seed + 2), "last": [seed]}
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("record_runs", ROOT / "tools" / "record_runs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "record_runs", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SPECS", tmp_path)
    (tmp_path / "small.py").write_text(SPEC, "utf-8")
    monkeypatch.setattr(module, "PARTS", tmp_path / "parts")
    calls: list[Any] = []
    load = module.load

    def counted(name: str) -> Any:
        """The file of runs; each run is noted."""
        loaded = load(name)
        run = loaded.run
        loaded.run = lambda seed, **case: calls.append((case["slope"], seed)) or run(seed, **case)
        return loaded

    monkeypatch.setattr(module, "load", counted)
    module.calls = calls
    return module


def test_a_record_holds_every_case_and_seed(tool: Any, tmp_path: Path) -> None:
    runs = stored_runs(tool.record("small", None, tmp_path / "out", 1, "sequential"))
    assert runs.keys() == {"low", "high"}
    np.testing.assert_array_equal(runs["high"]["y"], [[0, 3, np.nan, np.nan], [0, 3, 6, np.nan], [0, 3, 6, 9]])
    assert runs["low"]["last"].tolist() == [[0], [1], [2]]
    assert runs["low"]["seeds"].tolist() == [0, 1, 2] and (runs["low"]["cpu_seconds"] >= 0).all()


def test_what_was_run_is_not_run_again_unless_it_changed(tool: Any, tmp_path: Path) -> None:
    path = tool.record("small", [0], tmp_path / "out", 1, "sequential")
    before = json.loads(path.read_text())["cases"]["low"]
    tool.calls.clear()
    # another length, too: Python tells two versions of a file apart by its size and the second in which it was written
    (tmp_path / "small.py").write_text(SPEC.replace('"slope": 3', '"slope": 4.0'), "utf-8")
    tool.record("small", [0, 1], tmp_path / "out", 1, "sequential")
    assert sorted(tool.calls) == [(1, 1), (4, 0), (4, 1)]
    assert json.loads(path.read_text())["cases"]["low"]["runs"]["0"] == before["runs"]["0"]
    assert stored_runs(path)["high"]["y"][1].tolist() == [0, 4, 8]


def test_numbers_keep_the_origin_that_they_had(tool: Any, tmp_path: Path) -> None:
    path = tool.record("small", [0], tmp_path / "out", 1, "sequential")
    path.write_text(path.read_text("utf-8").replace('"made": {', '"made": {"place": "elsewhere", ', 1), "utf-8")
    tool.record("small", [0], tmp_path / "out", 1, "sequential")
    assert json.loads(path.read_text("utf-8"))["made"]["place"] == "elsewhere"
    tool.record("small", [0, 1], tmp_path / "out", 1, "sequential")
    assert "place" not in json.loads(path.read_text("utf-8"))["made"]


def test_what_is_no_record_is_named(tool: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for path in (tmp_path / "bad.json", tmp_path / "none.json"):
        with pytest.raises(ValueError, match="record_runs.py"):
            stored_runs(path)
    with pytest.raises(ValueError, match="name is 'nothing'"):
        tool.load("nothing")


def test_every_stored_record_has_its_maker_and_at_least_five_seeds() -> None:
    for path in sorted((ROOT / "chapters" / "runs").glob("*.json")):
        assert (ROOT / "tools" / "runs" / path.name).with_suffix(".py").exists(), path.name
        cases = json.loads(path.read_text("utf-8"))["cases"]
        assert cases and all(len(rows["runs"]) >= 5 for rows in cases.values()), path.name


PROGRAMS = [path.stem for path in sorted((ROOT / "tools" / "runs").glob("*.py")) if "def program(" in path.read_text()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_recorded_is_still_the_pages_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells that a file names can be run by themselves, and what it edits stands in them."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    record_runs = importlib.import_module("record_runs")
    module = record_runs.load(name)
    wanted = inspect.signature(module.program).parameters
    for case in module.CASES.values():
        assert module.program(**{key: value for key, value in case.items() if key in wanted})
