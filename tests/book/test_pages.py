"""Every page of the built book in a browser: loads clean, asks nobody else, fits, can be used by everyone, moves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SITE
from page_visit import Visit, move_controls, opened, served, visit, worst_step

pytestmark = [pytest.mark.browser, pytest.mark.site]

PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if not {"_static", "_sources"} & set(path.relative_to(SITE).parts)
) or ["index.html"]
STEP_MS = 16
# Measured budgets of a first visit, in KB: what every page loads, and what an interactive figure may add.
PAGE_GZIP_KB, FIGURE_GZIP_KB = 350, 40
# Faults that are the theme's own and cannot be mended from here: axe rule -> reason. None is known.
WAIVERS: dict[str, str] = {}


@pytest.fixture(scope="module")
def visits(site: Path, browser: Any, report: dict[str, Any]) -> Iterator[Callable[[str], Visit]]:
    """Pages by name, each loaded once and shared by the tests."""
    known: dict[str, Visit] = {}
    pictures = None
    if os.environ.get("RLBOOK_SCREENSHOTS") == "1":  # they take a fifth of a visit's time, and only people look at them
        pictures = ROOT / "_build" / "screenshots"
        pictures.mkdir(parents=True, exist_ok=True)
    with served(site) as base:

        def look(name: str) -> Visit:
            if name not in known:
                known[name] = Visit(name)
                known[name].console.append("the visit did not come to its end")  # unless the next line returns
                known[name] = visit(browser, base, name, pictures)
                note(report, known[name])
            return known[name]

        yield look


def note(report: dict[str, Any], seen: Visit) -> None:
    middle, worst = worst_step(seen.step_ms)
    report.setdefault("pages", {})[seen.page] = {
        "raw_kb": round(seen.raw_kb, 1),
        "gzip_kb": round(seen.gzip_kb, 1),
        "requests": seen.requests,
        "controls": seen.controls,
        "quizzes": seen.quizzes,
        "step_ms_median": round(middle, 2),
        "step_ms_max": round(worst, 2),
    }


@pytest.mark.parametrize("name", PAGES)
class TestPage:
    def test_loads_clean(self, visits: Callable[[str], Visit], name: str) -> None:
        seen = visits(name)
        assert seen.console == []
        assert seen.failed == []

    def test_asks_no_other_host(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).outside == []

    def test_fits_the_window(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).overflow == {1280: [], 390: []}

    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_accessible(self, visits: Callable[[str], Visit], name: str, theme: str) -> None:
        found = [finding for finding in visits(name).axe[theme] if finding.split(":")[0] not in WAIVERS]
        assert found == []

    def test_controls_move_their_pictures(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).dead == []

    def test_steps_are_fast(self, visits: Callable[[str], Visit], name: str) -> None:
        assert worst_step(visits(name).step_ms)[1] < STEP_MS

    def test_quizzes_answer(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).quiz_faults == []

    def test_weight(self, visits: Callable[[str], Visit], name: str) -> None:
        seen = visits(name)
        figures = (SITE / name).read_text("utf-8").count('class="rlx"')
        assert seen.gzip_kb < PAGE_GZIP_KB + FIGURE_GZIP_KB * figures


def test_a_page_from_disk(site: Path, browser: Any) -> None:
    """Opened without any server, a chapter loads clean and its sliders move."""
    chapters = [name for name in PAGES if '<form class="rlx-controls"' in (site / name).read_text("utf-8")]
    assert chapters, "no page holds an interactive figure"
    seen = Visit(chapters[0])
    with opened(browser, (site / chapters[0]).as_uri(), seen) as page:
        move_controls(page, seen)
    assert seen.controls > 0
    assert (seen.dead, seen.console, seen.failed, seen.outside) == ([], [], [], [])


def test_copying_a_formula_gives_its_tex(site: Path, browser: Any) -> None:
    name = next(name for name in PAGES if 'class="katex' in (site / name).read_text("utf-8"))
    with served(site) as base, opened(browser, base + name, Visit(name)) as page:
        copied = page.evaluate(
            """() => {
              const formula = document.querySelector("article .math");
              getSelection().selectAllChildren(formula);
              const event = new ClipboardEvent("copy", {clipboardData: new DataTransfer(), bubbles: true, cancelable: true});
              formula.dispatchEvent(event);
              return [event.clipboardData.getData("text/plain"), formula.dataset.tex];
            }"""
        )
    assert copied[1] in copied[0] and copied[0].strip().startswith("$")


def test_every_formula_has_mathml(site: Path) -> None:
    for name in PAGES:
        text = (site / name).read_text("utf-8")
        assert text.count('class="katex-mathml"') == text.count('class="katex"'), name
