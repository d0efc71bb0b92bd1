"""The formulas on two pages: printed they are two pages, and no formula is cut off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from page_visit import served

pytestmark = [pytest.mark.browser, pytest.mark.site]

CUT_OFF = "[...document.querySelectorAll('.formula-sheet .katex-scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"


def test_the_sheet_fills_two_printed_pages(site: Path, browser: Any) -> None:
    with served(site) as base:
        page = browser.new_page(viewport={"width": 718, "height": 1000})  # A4 less its margins
        page.goto(base + "chapters/appendix_formulas.html", wait_until="load")
        page.emulate_media(media="print")
        assert page.evaluate(CUT_OFF) == 0
        printed = page.pdf(format="A4")
        page.close()
    assert len(re.findall(rb"/Type\s*/Page[^s]", printed)) == 2


def test_no_formula_is_cut_off_on_the_screen(site: Path, browser: Any) -> None:
    with served(site) as base:
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(base + "chapters/appendix_formulas.html", wait_until="load")
        assert page.evaluate("document.querySelectorAll('.formula-sheet .formula').length") > 40
        assert page.evaluate(CUT_OFF) == 0
        page.close()
