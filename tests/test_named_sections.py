"""Sections of the book that assignments and the errata name by title are on the page that they are said to be on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASSIGNMENTS = sorted(path.parent for path in (ROOT / "assignments").glob("0*/rubric.md"))
# chapter 3 ("A", "B"); chapter 4's Deeper page, "C" and "D"; Chapter 8 has the formulas ("E")
NAMED = re.compile(r"""[Cc]hapters?\ (\d+)('s\ Deeper\ page)?[^".;]{0,24}("[^"]+"(?:(?:,|\ and)\ "[^"]+")*)""", re.X)

POINTER = re.compile(r"\{doc\}`[^`<]*<(?P<page>\w+)>`(?P<rest>[^;.]*?), \"(?P<section>[^\"]+)\"")
BOX = re.compile(r"(?m)^[`:]{3,}\{(?:admonition|dropdown)\} (?:Mistake: )?(.+)\n:class:.*\bmistake\b")


def named(text: str) -> list[tuple[int, bool, str]]:
    """Chapter, whether its Deeper page is meant, and title, for each title that a text names."""
    found = NAMED.findall(" ".join(text.split()))
    return [
        (int(chapter), bool(deeper), title)
        for chapter, deeper, titles in found
        for title in re.findall('"([^"]+)"', titles)
    ]


def texts(folder: Path) -> list[str]:
    """The markdown cells of an assignment, and its rubric."""
    notebook = json.loads((folder / f"{folder.name}.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return [*cells, (folder / "rubric.md").read_text("utf-8")]


def markdown(page: str) -> str:
    """The text of a chapter's page."""
    cells = json.loads((ROOT / "chapters" / f"{page}.ipynb").read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def headings(page: str) -> list[str]:
    return [title.strip() for title in re.findall(r"(?m)^#{1,4} (.+)", markdown(page))]


def titles(chapter: int, deeper: bool) -> set[str]:
    """Headings of a lesson or of its Deeper page, and the bold words with which its paragraphs begin."""
    pages = [path.stem for path in (ROOT / "chapters").glob(f"{chapter:02d}_*.ipynb")]
    (page,) = [name for name in pages if name.endswith("_deeper") == deeper]
    return {*headings(page), *(bold.rstrip(".:") for bold in re.findall(r"(?m)^\*\*([^*]+)\*\*", markdown(page)))}


def plain(title: str) -> str:
    return re.sub(r"[`*]", "", title.strip())


def test_titles_are_found_in_a_text():
    text = 'see chapter 3 ("One", "Two"), and\nchapter 4\'s Deeper page, "Three" and "Four". He said "no".'
    assert named(text) == [(3, False, "One"), (3, False, "Two"), (4, True, "Three"), (4, True, "Four")]


@pytest.mark.parametrize("folder", ASSIGNMENTS, ids=lambda folder: folder.name)
def test_each_section_that_an_assignment_names_is_there(folder):
    found = {place for text in texts(folder) for place in named(text)}
    assert len(found) >= 5
    missing = [place for place in sorted(found) if place[2] not in titles(*place[:2])]
    assert not missing


def test_pointers_of_the_errata_lead_somewhere():
    """Each says a page and a heading, or the title of a box of mistakes, as that title begins."""
    text = (ROOT / "chapters" / "appendix_errata.md").read_text("utf-8")
    shown = [line for line in text.splitlines() if line.startswith("**Shown.**")]
    pointers = [(found["page"], plain(found["section"])) for line in shown for found in POINTER.finditer(line)]
    assert len(pointers) > 50
    known = {page: [plain(t) for t in [*headings(page), *BOX.findall(markdown(page))]] for page, _ in pointers}
    assert [place for place in pointers if not any(title.startswith(place[1]) for title in known[place[0]])] == []
