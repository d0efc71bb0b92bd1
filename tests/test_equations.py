"""Every numbered equation has a function and a test, and every name leads to an equation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from equation_index import Equations, collect, gaps

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = ["01_what_is_rl", "02_mdps", "03_maze", "04_mc_and_td"]


@pytest.fixture(scope="module")
def equations() -> Equations:
    return collect(ROOT)


def test_no_equation_without_function_or_test(equations: Equations) -> None:
    found = gaps(equations)
    assert not found, "\n" + "\n".join(f"{place.file}:{place.line}: {fault}" for place, fault in found)


def test_chapters_two_to_four_number_at_least_25_equations(equations: Equations) -> None:
    if not all((ROOT / "chapters" / f"{name}.ipynb").exists() for name in CHAPTERS):
        pytest.skip("a chapter is missing")
    numbered = [place for place in equations.numbered if place.name[len("chapters/") :] in CHAPTERS[1:]]
    assert len(numbered) >= 25


# ---------------------------------------------------------------- the reader itself, on small books


def small_book(root: Path, *, chapter: str, library: str, tests: str) -> Path:
    for folder in ("chapters", "rlbook_lib", "tests"):
        (root / folder).mkdir()
    cell = {"cell_type": "markdown", "source": chapter.splitlines(keepends=True)}
    (root / "chapters" / "01_one.ipynb").write_text(json.dumps({"cells": [cell]}))
    (root / "rlbook_lib" / "returns.py").write_text(library)
    (root / "tests" / "test_returns.py").write_text(tests)
    return root


CHAPTER = "# One\n\n```{math}\n:label: eq-one\nx = 1\n```\n\n$$y = 2$$\n"
LIBRARY = 'def one():\n    """One.\n\n    Equation: eq-one\n    """\n'
TESTS = 'import pytest\n\n@pytest.mark.equation("eq-one")\ndef test_one():\n    assert True\n'


def faults(root: Path) -> str:
    return " | ".join(fault for _, fault in gaps(collect(root)))


def test_a_complete_book_has_no_gap(tmp_path: Path) -> None:
    root = small_book(tmp_path, chapter=CHAPTER, library=LIBRARY, tests=TESTS)
    assert faults(root) == ""
    assert collect(root).functions[0].name == "rlbook_lib.returns.one"
    assert collect(root).tests[0].name == "test_one"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"library": 'def one():\n    """One."""\n'}, "no function names eq-one"),
        ({"library": LIBRARY.replace("one()", "_one()")}, "no function names eq-one"),  # private functions do not count
        ({"tests": "def test_one():\n    assert True\n"}, "no test carries"),
        ({"tests": TESTS.replace("test_one", "helper")}, "no test carries"),
        ({"chapter": "# One\n"}, "eq-one, which no chapter numbers"),
        ({"chapter": CHAPTER + CHAPTER}, "eq-one is used twice"),
        ({"chapter": CHAPTER + "\n```{math}\n:label: wrong\nx\n```\n"}, "should start with eq-"),
        ({"library": LIBRARY.replace("eq-one", "eq-one, eq-two")}, "eq-two, which no chapter numbers"),
    ],
)
def test_each_gap_is_found(tmp_path: Path, changed: dict[str, str], expected: str) -> None:
    parts = {"chapter": CHAPTER, "library": LIBRARY, "tests": TESTS} | changed
    assert expected in faults(small_book(tmp_path, **parts))
