"""A lesson can be read in one sitting: the measure of ``lesson_limits``, which ``test_pages`` puts to the built pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lesson_limits import CENTRAL, LIMITS, Lesson, beyond, measure
from notebook_checks import folded_faults
from page_visit import served
from conftest import ROOT

pytestmark = [pytest.mark.browser]


@pytest.mark.parametrize("name", sorted(CENTRAL))
def test_no_two_folded_cells_in_a_row(name: str) -> None:
    for part in (name, f"{name}_deeper"):
        assert folded_faults(json.loads((ROOT / "chapters" / f"{part}.ipynb").read_text("utf-8"))) == []


# ---------------------------------------------------------------------------- the measure itself, on small pages

CODE = '<div class="cell"><div class="cell_input"><pre>{}</pre></div></div>'
PAGE = """<!doctype html><html lang="en"><title>A</title><body style="margin:0"><article>
<p>Three words here, and <span class="katex">x = y</span> a don't.</p>
<details><summary>One line</summary><p>hidden words do not count</p></details>
<details class="fold"><summary>Seen</summary><p>but take their time</p></details>
<div id="equation-eq-a" style="height:100px"></div>
{code}<div class="cell tag_acts"><div class="cell_output"><pre>{output}</pre></div></div>
<div class="rlx" style="height:{figure}px"><div class="rlx-picture"><svg height="9"></svg></div><form></form></div><p>A lesson of 9 minutes; with more.</p>{more}<div style="height:1000px"></div></article></body></html>"""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    with served(tmp_path) as base:

        def write(code: str = "", output: str = "", figure: int = 400, more: str = "") -> str:
            (tmp_path / "a.html").write_text(PAGE.format(code=code, output=output, figure=figure, more=more), "utf-8")
            return base

        yield write


def test_what_is_counted(page: Any, browser: Any) -> None:
    found = measure(browser, page(CODE.format("a = 1\nb = 2") * 2, "True 1.5 False Falsehood"), "a.html", "eq-a")
    assert (found.words, found.code_cells, found.code_lines, found.truths, found.tallest_explorer) == (16, 2, 4, 2, 400)
    assert found.time_off == pytest.approx(9 - ((16 + 4) / 130 + 4 / 12 + 3 + 5))
    assert 0 < found.formula < found.acting < found.first_control / found.height < 0.6


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"code": CODE.format("x\n" * 321)}, "code_lines"),
        ({"code": CODE.format("x") * 25}, "code_cells"),
        ({"code": f"<p>{'word ' * 4500}</p>"}, "words"),
        ({"code": '<div style="height:22000px"></div>'}, "first_control"),
        ({"output": "check: True"}, "truths"),
        ({"figure": 640}, "tallest_explorer"),
        ({"code": CODE.format("x\n" * 100)}, "time_off"),
        ({"code": '<div style="height:768px"></div>'}, "first_picture"),
        ({"more": '<a class="reference" href="a_deeper.html#b">Deeper</a> ' * 7}, "deeper"),
        ({"more": '<details class="mistake"><summary>Pigs fly.</summary>False.</details>'}, "mistakes_told"),
    ],
)
def test_what_is_beyond_a_limit_is_named(page: Any, browser: Any, fault: dict[str, Any], expected: str) -> None:
    assert beyond(measure(browser, page(), "a.html", "eq-a")) == []
    assert expected in " ".join(beyond(measure(browser, page(**fault), "a.html", "eq-a")))


def test_what_is_missing_is_beyond_the_limit() -> None:
    assert [fault.split()[0] for fault in beyond(Lesson())] == [
        "first_control",
        "formula",
        "acting",
        "first_picture",
        "time_off",
    ]
    assert LIMITS.words == 4500
