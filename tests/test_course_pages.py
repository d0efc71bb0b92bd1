"""The index of exercises and the formula sheet are gathered from the chapters: nothing is left out, and nothing stale."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from course_pages import exercises, formulas, signs

ROOT = Path(__file__).resolve().parent.parent


def test_every_exercise_is_in_the_index() -> None:
    written = 0
    for path in (ROOT / "chapters").glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        written += sum("".join(c["source"]).count("{exercise} ") for c in cells if c["cell_type"] == "markdown")
    found = list(exercises(ROOT))
    assert len(found) == written > 90
    assert len({one.label for one in found}) == len(found)
    assert {one.level for one in found} == {"first", "further", "hard"}


def test_formulas_are_those_of_the_equation_index() -> None:
    sheet = re.findall(r"^(eq-\S+)", (ROOT / "chapters" / "appendix_formulas.md").read_text("utf-8"), re.MULTILINE)
    known = formulas(ROOT)
    assert len(sheet) == len(set(sheet)) > 40
    assert [label for label in sheet if label not in known] == []


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("x", 1),
        (r"\alpha\, \beta", 2),
        (r"\begin{aligned} a &= b \\ &= ccc \end{aligned}", 4),
        (r"\mathrm{KL}(p \Vert q)", 7),
    ],
)
def test_signs_counts_what_is_set(formula: str, expected: int) -> None:
    assert signs(formula) == expected
