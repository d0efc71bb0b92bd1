"""Words of the glossary show their meaning on the page: to a pointer, to the keyboard, and to a finger."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from page_visit import Visit, opened, served

pytestmark = [pytest.mark.browser, pytest.mark.site]

PAGE = "chapters/appendix_questions.html"
SHOWN = "document.querySelector('#meaning').hidden ? null : document.querySelector('#meaning').textContent"


def test_every_link_to_a_word_says_what_it_means(site: Path) -> None:
    page = (site / PAGE).read_text("utf-8")
    links = re.findall(r"<a ([^>]*)><span class=\"[^\"]*std-term", page)
    assert len(links) > 20
    assert [link for link in links if not re.search(r'title="[A-Z0-9nQV][^"]{15,}[.;:,a-z]"', link)] == []


def test_a_word_is_explained_to_pointer_keyboard_and_finger(site: Path, browser: Any) -> None:
    seen = Visit("words")
    with served(site) as base, opened(browser, base + PAGE, seen) as page:
        word = page.locator("a:has(> .std-term)").nth(1)
        word.focus()
        meaning = page.evaluate(SHOWN)
        assert meaning and word.get_attribute("aria-describedby") == "meaning"
        page.keyboard.press("Escape")
        assert page.evaluate(SHOWN) is None and word.get_attribute("aria-describedby") is None
        word.hover()
        assert page.evaluate(SHOWN) == meaning
        page.locator("h1").hover()
        page.wait_for_function(f"({SHOWN}) === null")
    finger = browser.new_context(has_touch=True, viewport={"width": 390, "height": 800})
    with served(site) as base:
        page = finger.new_page()
        page.goto(base + PAGE)
        word = page.locator("a:has(> .std-term)").nth(1)
        word.tap()
        assert page.evaluate(SHOWN) == meaning and page.url.endswith(PAGE)
        box = page.locator("#meaning").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        with page.expect_navigation():
            word.tap()
        assert "appendix_glossary.html#term-" in page.url
    finger.close()
    assert (seen.console, seen.failed, seen.outside) == ([], [], [])
