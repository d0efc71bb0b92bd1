"""Compare stored figures with fresh ones, number by number.

A figure's HTML holds one SVG and, for an interactive one, the attribute values of every other state (see
``rlbook_lib/explore.py``). Each attribute of each element in each state is compared: coordinates and colors to a tolerance that no
eye sees, all else (what is written, opacities, widths of lines) as words and printed numbers, see ``numeric_text.py``.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
from numeric_text import Tolerance, line_difference
from PIL import Image

TENTHS_OF_A_POINT = 4.0  # how far a coordinate may lie off
COORDINATES = {"d", "x", "y", "width", "height", "transform", "box", "ends", "cover"}
TOKEN = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?|[A-Za-z]+|[^\sA-Za-z\d]")
COLOR = re.compile(r"#[0-9a-fA-F]{6}")
COLOR_STEPS = 3  # of 255, how far a color may lie off in red, green or blue
# The names of clip regions and hatches begin with a digest of the picture; a color's name counts, not what stands behind it
# for readers without a style sheet.
NAME = re.compile(r"\brlx[0-9a-f]{8}(?=-\d)|(?<=\(--rlx-)([a-z-]+),#\w+")
Key = tuple[int, str]  # element and attribute
PRINTED = Tolerance()


class SvgReader(HTMLParser):
    """The elements inside the picture's SVG, in document order, each with its attributes and text."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[dict[str, str]] = []
        self.depth = 0
        self.open: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self.depth += 1
        elif self.depth:
            self.open.append(len(self.elements))
            self.elements.append({"#tag": tag, "#text": ""} | {name: value or "" for name, value in attrs})

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            self.depth -= 1
        elif self.depth and self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.depth and self.open:
            self.elements[self.open[-1]]["#text"] += data


def is_figure(html: str) -> bool:
    return '<rlx-figure class="rlx">' in html


def is_interactive(html: str) -> bool:
    return '<form class="rlx-controls"' in html


def data_of(html: str) -> dict:
    """The table of states of an interactive figure."""
    found = re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    return json.loads(found.group(1)) if found else {"sizes": [], "texts": [], "changes": [], "indices": []}


def n_states(html: str) -> int:
    return math.prod(data_of(html)["sizes"])


def values(html: str) -> tuple[list[dict[str, str]], dict[Key, list[str | None]]]:
    """The SVG as it stands, and for each attribute that moves its value in every state."""
    data = data_of(html)
    states = list(itertools.product(*map(range, data["sizes"])))
    moving: dict[Key, list[str | None]] = {}
    for element, name, controls, table, index, before, after in data["changes"]:
        column: list[str | None] = []
        for state in states:
            key = 0
            for control in controls:
                key = key * data["sizes"][control] + state[control]
            if index >= 0:
                key = data["indices"][index][key]
            value = table[key]
            column.append(None if value is None else f"{before}{value}{after}")
        moving[element, name] = column
    return SvgReader(html).elements, moving


def written(html: str) -> list[str]:
    """Every text that the figure shows, in any state."""
    elements, moving = values(html)
    found = [element["#text"] for element in elements]
    for (_, name), column in moving.items():
        if name in {"#text", "#readout", "#markup"}:
            found += [re.sub("<[^>]*>", " ", text) for text in column if text]
    return found


def differences(stored: str, fresh: str, tolerance: Tolerance = PRINTED) -> list[str]:
    """Where two figures differ by more than the tolerance, which holds for written numbers; empty if they show the same."""
    (old, old_moving), (new, new_moving) = values(stored), values(fresh)
    if len(old) != len(new):
        return [f"{len(old)} elements stored, {len(new)} now"]
    if (data_of(stored)["sizes"], data_of(stored)["texts"]) != (data_of(fresh)["sizes"], data_of(fresh)["texts"]):
        return ["the controls differ"]
    asked, asks = (data_of(html).get("guess", {}) for html in (stored, fresh))
    if asked.keys() != asks.keys() or not all(
        same(name, str(asked[name]), str(asks[name]), tolerance) for name in asked
    ):
        return ["the questions differ"]
    found = []
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        for name in before.keys() | after.keys():
            if (number, name) not in old_moving and (number, name) not in new_moving:
                if not same(name, before.get(name), after.get(name), tolerance):
                    found.append(f"element {number}, {name}: {short(before.get(name))}, now {short(after.get(name))}")
    for number, name in old_moving.keys() | new_moving.keys():
        count = max(len(old_moving.get((number, name), [])), len(new_moving.get((number, name), [])))
        rest_old, rest_new = [at_rest(elements, number, name) for elements in (old, new)]
        column_old = old_moving.get((number, name), [rest_old] * count)
        column_new = new_moving.get((number, name), [rest_new] * count)
        for state, (a, b) in enumerate(zip(column_old, column_new, strict=True)):
            if not same(name, a, b, tolerance):
                found.append(f"state {state}, element {number}, {name}: {short(a)}, now {short(b)}")
                break
    return found


def at_rest(elements: list[dict[str, str]], number: int, name: str) -> str | None:
    return elements[number].get(name) if number < len(elements) else None


def short(value: str | None) -> str:
    return repr(value if value is None or len(value) < 60 else value[:57] + "...")


def same(name: str, a: str | None, b: str | None, tolerance: Tolerance) -> bool:
    """Whether two values of the attribute ``name`` are equal, or as good as equal."""
    if a is None or b is None:
        return a == b
    a, b = NAME.sub(r"\1", a), NAME.sub(r"\1", b)
    if a == b:
        return True
    if a.startswith("data:image") and b.startswith("data:image"):
        return same_image(a, b)
    if COLOR.fullmatch(a) and COLOR.fullmatch(b):
        return all(abs(int(a[i : i + 2], 16) - int(b[i : i + 2], 16)) <= COLOR_STEPS for i in (1, 3, 5))
    return same_coordinates(a, b) if name in COORDINATES else not line_difference(a, b, tolerance)


def same_coordinates(a: str, b: str) -> bool:
    left, right = TOKEN.findall(a), TOKEN.findall(b)
    return len(left) == len(right) and all(x == y or near(x, y) for x, y in zip(left, right, strict=True))


def near(a: str, b: str) -> bool:
    try:
        return abs(float(a) - float(b)) <= TENTHS_OF_A_POINT
    except ValueError:
        return False


def same_image(a: str, b: str) -> bool:
    left, right = (np.asarray(Image.open(io.BytesIO(base64.b64decode(x.partition(",")[2]))), float) for x in (a, b))
    return left.shape == right.shape and bool(np.abs(left - right).max() <= 4)
