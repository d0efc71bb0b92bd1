"""Slides and cards: what a lesson has is there once, a deck needs no other file, and its pictures move."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from lxml.html import HtmlElement, fromstring
from page_visit import COLOR_RULES, axe, shorten

sys.path.insert(0, str(ROOT / "tools"))
import slides

NAMES = sorted(slides.lessons())


def count(page: HtmlElement, path: str) -> int:
    return len(page.xpath(path))


@pytest.mark.site
@pytest.mark.parametrize("name", NAMES)
def test_what_a_lesson_has_is_on_one_slide(site: Path, name: str) -> None:
    lesson = slides.article(site, name)
    text, number = slides.deck(site, name, 1)
    shown = fromstring(text.encode())
    assert count(shown, "//section[@class='slide']") == number
    for what in (
        "//rlx-figure[@data-states]",
        "//*[@class='eqno']",
        "//div[contains(@class, 'quiz')]",
        "//div[contains(@class, 'exercise')]",
        "//details[contains(@class, 'mistake')]",
        "//table[not(ancestor::details)]",
    ):
        assert count(shown, what) == count(lesson, what), what
    lines = [slides.words(one) for one in lesson.xpath("//section[@id='the-chapter-in-five-lines']/ol/li")]
    assert len(lines) == 5 and {*lines} <= {slides.words(one) for one in shown.xpath("//li")}
    assert {*shown.xpath("//rlx-figure/@data-states")} == {*shown.xpath("//script[@type='application/json']/@id")}


@pytest.mark.site
def test_a_deck_needs_no_other_file(site: Path) -> None:
    text, _ = slides.deck(site, "04_mc_and_td", 1)
    assert re.findall(r'(?:src|href)="(?!https?:)[^"]*"', text) == []
    assert re.findall(r"url\((?!data:|#|[\"']data:)[^)]*\)", text) == []


def test_a_lesson_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"04_mc_and_td\.html is not there; expected a built book"):
        slides.article(tmp_path, "04_mc_and_td")


# where each slide ends against the window, and how the deck stands
HIGH = """() => [...document.querySelectorAll(".slide")].filter(one => one.scrollHeight > one.clientHeight + 1
  || one.scrollWidth > one.clientWidth + 1 || Math.abs(one.clientHeight - innerHeight) > 1).map(one => one.id)"""
HERE = (
    "() => [...document.querySelectorAll('.slide')].findIndex(one => Math.abs(one.getBoundingClientRect().top) < 2) + 1"
)


@pytest.mark.site
@pytest.mark.browser
def test_a_teacher_moves_through_a_deck(site: Path, browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "04.html"
    file.write_text(slides.deck(site, "04_mc_and_td", 1)[0], "utf-8")
    page = browser.new_page(viewport={"width": 1366, "height": 768}, color_scheme="dark")
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if request.url.startswith("http") else None)
    page.goto(f"{file.as_uri()}#3")
    page.wait_for_function(f"({HERE})() === 3")
    page.wait_for_function(f"({HIGH})().length === 0")  # slides are fitted once their pictures are
    assert page.evaluate("document.body.dataset.theme") == "dark"

    def is_at(number: int) -> None:
        page.wait_for_function(f"number => ({HERE})() === number", arg=number)

    for key, number in [("ArrowLeft", 2), ("PageDown", 3), (" ", 4), ("Home", 1), ("ArrowRight", 2)]:
        page.keyboard.press(key)
        is_at(number)
    page.keyboard.press("Enter")  # nothing is told before the guess, which gets the keys instead
    assert page.evaluate("document.activeElement.closest('.rlx-guess') !== null")
    assert page.locator("[id='2'] details[open]").count() == 0
    page.locator("[id='2']").get_by_role("button", name="Just show").click()
    slider = page.locator("[id='2'] input[type=range]")
    drawn = page.locator("[id='2'] .rlx-picture > svg").inner_html()
    slider.focus()
    slider.press("ArrowLeft")  # belongs to the slider, which stands at its end
    page.wait_for_function(
        "drawn => document.querySelector(\"[id='2'] .rlx-picture > svg\").innerHTML !== drawn", arg=drawn
    )
    assert page.evaluate(HERE) == 2
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    is_at(3)
    page.keyboard.press("ArrowLeft")
    is_at(2)
    for wanted in (1, 0):  # the one fold of this slide
        page.keyboard.press("Enter")
        page.wait_for_function("n => document.querySelectorAll(\"[id='2'] details[open]\").length === n", arg=wanted)
    shorten(page)
    found = axe(page, COLOR_RULES)
    page.keyboard.press("d")
    page.wait_for_function("document.body.dataset.theme === 'light'")
    assert (found, axe(page, None)) == ([], [])
    page.close()
    assert faults == []
