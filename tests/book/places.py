"""Nothing that stood in the book is lost: where each heading, equation, exercise and mistakes box stands now.

``places.json`` holds what every chapter had when lesson and Deeper page were one. ``moved/02_mdps.json`` says of each
chapter where a heading or a box with a new title went: old title -> new title, or ``page: title`` if another chapter took
it. What kept its title needs no entry. ``python tests/book/places.py`` prints the table old place -> new place.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
CHAPTERS = HERE.parents[1] / "chapters"
FENCE = re.compile(r"^(`{3,}|:{3,})")


@dataclass
class Page:
    """What can be pointed at on a page, by its title or label."""

    headings: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)  # equations, exercises, targets


def read(path: Path) -> Page:
    """The headings, mistakes boxes and labels in the markdown cells of a notebook."""
    page = Page()
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        opened: list[str] = []  # fences that are open
        lines = "".join(cell["source"]).splitlines()
        for number, line in enumerate(lines):
            if fence := FENCE.match(line):
                if opened and line.strip() == opened[-1]:
                    opened.pop()
                elif line.strip() != fence[1]:
                    opened.append(fence[1])
            box = re.match(r"[`:]{3,}\{(?:admonition|dropdown)\} (.+)", line)
            if box and number + 1 < len(lines) and re.match(r":class:.*\bmistake\b", lines[number + 1]):
                page.mistakes.append(re.sub(r"^Mistake: ", "", box[1].strip()))
            if not opened and (heading := re.match(r"#{1,4} (.+)", line)):
                page.headings.append(heading[1].strip())
            if label := re.match(r":label: (\S+)", line) or re.match(r"\(([\w-]+)\)=$", line):
                page.labels.append(label[1])
    return page


def pages_now() -> dict[str, Page]:
    """All lessons and Deeper pages by name."""
    return {path.stem: read(path) for path in sorted(CHAPTERS.glob("*.ipynb"))}


def lost(before: dict[str, Page], now: dict[str, Page], moved: dict[str, dict[str, str]]) -> list[str]:
    """What stood in the book and cannot be found, and entries of the table that lead nowhere."""
    return [fault for row in table(before, now, moved) if (fault := row[2])]


def table(
    before: dict[str, Page], now: dict[str, Page], moved: dict[str, dict[str, str]]
) -> list[tuple[str, str, str]]:
    """Rows of old place, new place, and what is wrong ("" if nothing)."""
    rows = []
    for chapter, page in before.items():
        own = {name: now[name] for name in (chapter, chapter + "_deeper") if name in now}
        for kind in ("headings", "mistakes", "labels"):
            for old in getattr(page, kind):
                wanted = moved.get(chapter, {}).get(old, old)
                elsewhere, _, title = wanted.partition(": ")
                where, title = ({elsewhere: now[elsewhere]}, title) if elsewhere in now else (own, wanted)
                kinds = ("headings", "mistakes") if kind != "labels" else ("labels",)
                found = [name for name, here in where.items() for k in kinds if title in getattr(here, k)]
                place = f"{found[0]}: {title}" if found else "?"
                rows.append((f"{chapter}: {old}", place, "" if found else f"{chapter}: {kind[:-1]} {old!r} is nowhere"))
    return rows


def load() -> tuple[dict[str, Page], dict[str, dict[str, str]]]:
    """What was, and what moved."""
    before = {name: Page(**page) for name, page in json.loads((HERE / "places.json").read_text("utf-8")).items()}
    moved = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((HERE / "moved").glob("*.json"))}
    return before, moved


if __name__ == "__main__":
    before, moved = load()
    for old, new, fault in table(before, pages_now(), moved):
        print(f"{old:<80} -> {new}{'   LOST' if fault else ''}")
