"""What the first page of the book is made of, gathered from the chapters when it is built.

``{stored-figure} chapters/01_what_is_rl hook0101`` shows the interactive figure that a notebook's cell has stored.
``{chapter-map}`` draws the chapters as boxes that link: its lines say their short names, the chapters themselves how long
they take and which others they need. A cell, a page or a time that is missing is a build warning.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from equation_index import markdown_of
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)

NEEDS = re.compile(
    r"(?:\*\*You need\*\*|What you need)(?P<needs>.*?)(?P<minutes>\d+) minutes; with\s+\{doc\}", re.DOTALL
)
NOT_NEEDED = re.compile(r"Nothing [^.]*\.")
DOC = re.compile(r"\{doc\}`[^`]*<(\d\d_\w+?)>`")


class StoredFigure(SphinxDirective):
    """``{stored-figure} page cell``: the figure of a cell, as it is on its own page."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        page, cell = self.arguments
        path = Path(self.env.srcdir, f"{page}.ipynb")
        self.env.note_dependency(str(path))
        cells = json.loads(path.read_text("utf-8"))["cells"] if path.is_file() else []
        found = [
            "".join(output["data"]["text/html"])
            for one in cells
            if one.get("id") == cell
            for output in one.get("outputs", [])
            if "text/html" in output.get("data", {})
        ]
        if len(found) != 1:
            said = f"stored-figure: {page} has {len(found)} figures in a cell {cell!r}"
            LOG.warning(said, location=self.get_location())
            return []
        around = '<div class="cell landing-figure"><div class="cell_output"><div class="output text_html">'
        return [nodes.raw("", f"{around}{found[0]}</div></div></div>", format="html")]


@dataclass(frozen=True)
class Stop:
    """One chapter on the map."""

    page: str
    name: str
    row: int
    column: int
    minutes: int
    needs: tuple[str, ...]  # pages

    @property
    def number(self) -> int:
        return int(self.page[9:11])


BOX, GAP, HEIGHT, ROW, TOP = 108, 17, 62, 118, 24
LANE = 6  # between two arrows that run side by side from one row to the next


def read_needs(root: Path, page: str) -> tuple[int, tuple[str, ...]]:
    """Minutes of a lesson and the chapters it needs, as its own page says them; 0 minutes where it does not."""
    for text in markdown_of(root / f"{page}.ipynb"):
        if found := NEEDS.search(text):
            return int(found["minutes"]), tuple(
                f"chapters/{name}" for name in DOC.findall(NOT_NEEDED.sub("", found["needs"]))
            )
    return 0, ()


def direct(stops: dict[str, Stop]) -> list[tuple[Stop, Stop]]:
    """The arrows: what a chapter needs and no other chapter that it needs brings along."""

    def all_needs(page: str) -> set[str]:
        return {below for need in stops[page].needs for below in {need, *all_needs(need)}}

    return [
        (stops[need], stop)
        for stop in stops.values()
        for need in stop.needs
        if not any(need in all_needs(other) for other in stop.needs if other != need)
    ]


def place(stop: Stop) -> tuple[int, int]:
    return stop.column * (BOX + GAP), TOP + stop.row * ROW


def arrow(start: Stop, end: Stop, lane: int) -> str:
    """From box to box in a row, under the boxes between, or along a lane of its own above the next row."""
    (x0, y0), (x1, y1) = place(start), place(end)
    if start.row == end.row and end.column == start.column + 1:
        path = f"M{x0 + BOX} {y0 + HEIGHT / 2}H{x1 - 2}"
    elif start.row == end.row:
        below = y0 + HEIGHT
        path = f"M{x0 + BOX - 20} {below}C{x0 + BOX} {below + 20} {x1} {below + 20} {x1 + 18} {below + 2}"
    else:
        path = f"M{x0 + BOX / 2} {y0 + HEIGHT}V{y1 - 10 - LANE * lane}H{x1 + BOX / 2}V{y1 - 2}"
    return f'<path d="{path}" marker-end="url(#chapter-map-tip)"/>'


def lanes(stops: dict[str, Stop], row: int) -> list[str]:
    """The chapters from which arrows lead down to a row, the nearest to the left margin first."""
    return sorted(
        {start.page for start, end in direct(stops) if start.row < end.row == row}, key=lambda page: stops[page].column
    )


def box(stop: Stop, address: str) -> str:
    x, y = place(stop)
    lines = stop.name.split(" / ")
    words = " ".join(f'<tspan x="{x + 10}" dy="16">{escape(line)}</tspan>' for line in lines)
    return (  # its name is what it shows, in the order in which that is said
        f'<a class="part-{stop.row + 1}" href="{escape(address)}"><rect x="{x}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x + 10}" y="{y + 17}"><tspan class="chapter-map-number">{stop.number}</tspan> {words} '
        f'<tspan class="chapter-map-time" x="{x + BOX - 10}" y="{y + 17}" text-anchor="end">{stop.minutes} min</tspan></text></a>'
    )


class ChapterMap(SphinxDirective):
    """``{chapter-map}``: lines ``# part`` and ``page short / name``."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        root, parts, stops = Path(self.env.srcdir), [], {}
        for line in filter(str.strip, self.content):
            if line.startswith("# "):
                parts.append(line[2:])
                continue
            page, _, name = line.strip().partition(" ")
            path = root / f"{page}.ipynb"
            self.env.note_dependency(str(path))
            minutes, needs = read_needs(root, page) if path.is_file() else (0, ())
            if not minutes:
                said = f"chapter map: {page} does not say what it needs and how long it takes"
                LOG.warning(said, location=self.get_location())
            row = len(parts) - 1
            column = sum(stop.row == row for stop in stops.values())
            stops[page] = Stop(page, name, row, column, minutes, needs)
        for stop in stops.values():
            if unknown := set(stop.needs) - stops.keys():
                said = f"chapter map: {stop.page} needs {unknown}, not on the map"
                LOG.warning(said, location=self.get_location())
                return []
        width = max(place(stop)[0] for stop in stops.values()) + BOX
        height = TOP + len(parts) * ROW - (ROW - HEIGHT) + 4
        titles = "".join(
            f'<text class="chapter-map-part part-{row + 1}" x="0" y="{TOP + row * ROW - (9 if row == 0 else 23)}">{escape(part)}</text>'
            for row, part in enumerate(parts)
        )
        relative = self.env.app.builder.get_relative_uri
        drawing = "".join(box(stop, relative(self.env.docname, stop.page)) for stop in stops.values())
        arrows = "".join(
            arrow(start, end, lanes(stops, end.row).index(start.page) if start.row < end.row else 0)
            for start, end in direct(stops)
        )
        total = sum(stop.minutes for stop in stops.values())
        svg = (
            f'<figure class="chapter-map"><svg viewBox="-1 0 {width + 2} {height}" role="group" aria-label="Map of the chapters">'
            '<defs><marker id="chapter-map-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z"/></marker></defs><g class="chapter-map-arrows" aria-hidden="true">{arrows}</g>{titles}{drawing}</svg>'
            f"<figcaption>An arrow leads from a chapter to one that needs it. The times are those of the lessons, "
            f"{total // 60} hours and {total % 60} minutes in all.</figcaption></figure>"
        )
        return [nodes.raw("", svg, format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("stored-figure", StoredFigure)
    app.add_directive("chapter-map", ChapterMap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
