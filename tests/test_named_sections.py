"""Sections of the book that assignments name by title are on the page that they are said to be on."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "book"))

from places import read  # noqa: E402

ASSIGNMENTS = sorted(path.parent for path in (ROOT / "assignments").glob("0*/rubric.md"))
# chapter 3 ("A", "B"); chapter 4's Deeper page, "C" and "D"; Chapter 8 has the formulas ("E")
NAMED = re.compile(r"""[Cc]hapters?\ (\d+)('s\ Deeper\ page)?[^".;]{0,24}("[^"]+"(?:(?:,|\ and)\ "[^"]+")*)""", re.X)


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


def titles(chapter: int, deeper: bool) -> set[str]:
    """Headings of a lesson or of its Deeper page, and the bold words with which its paragraphs begin."""
    (path,) = [
        path for path in (ROOT / "chapters").glob(f"{chapter:02d}_*.ipynb") if path.stem.endswith("_deeper") == deeper
    ]
    cells = json.loads(path.read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return {*read(path).headings, *(bold.rstrip(".:") for bold in re.findall(r"(?m)^\*\*([^*]+)\*\*", text))}


def test_titles_are_found_in_a_text():
    text = 'see chapter 3 ("One", "Two"), and\nchapter 4\'s Deeper page, "Three" and "Four". He said "no".'
    assert named(text) == [(3, False, "One"), (3, False, "Two"), (4, True, "Three"), (4, True, "Four")]


@pytest.mark.parametrize("folder", ASSIGNMENTS, ids=lambda folder: folder.name)
def test_each_section_that_an_assignment_names_is_there(folder):
    found = {place for text in texts(folder) for place in named(text)}
    assert len(found) >= 5
    missing = [place for place in sorted(found) if place[2] not in titles(*place[:2])]
    assert not missing
