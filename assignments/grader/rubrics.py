"""The rubric of the written question: which parts it has, and what each of them earns.

A part of ``rubric.md`` is a heading of the second level that ends with its points, ``## (a) The error (3 points)`` or
``## (a) The error: 3 points``. In a part, the rows of a table whose first column is headed ``points`` are its items. An
item with a plain number is a level, of which one is chosen; ``+1`` is added to it. Where the plain numbers of a part
are exactly its points and none is 0, all of them are added. The section that is headed "Model answer" is the reference;
everything else are remarks. A rubric without such headings is one part.
"""

from __future__ import annotations

import atexit
import json
import re
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from py_mini_racer import JSEvalException, MiniRacer

from . import notebooks
from .notebooks import Notebook, role, text_of
from .questions import HOME, Assignment

KATEX = HOME.parent / "_ext" / "katex" / "katex.min.js"
HEADING = re.compile(r"^(?P<title>.*?)(?:\s*\((?P<a>\d+(?:\.\d+)?) points?\)|:\s*(?P<b>\d+(?:\.\d+)?) points?)$")
ITEM = re.compile(r"^(?P<sign>\+?)(?P<points>\d+(?:\.\d+)?)$")
COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
MARKS = re.compile(r"^### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)


@dataclass(frozen=True)
class Item:
    """A row of a rubric. ``adds``: whether its points are added to those of the chosen level. ``html``: what it says."""

    points: float
    adds: bool
    html: str


@dataclass(frozen=True)
class Part:
    """What is graded on its own. ``html``: what the rubric says about it, with an empty ``div`` where its items belong."""

    title: str
    points: float
    items: tuple[Item, ...]
    html: str


@dataclass(frozen=True)
class Rubric:
    """All that a person needs who grades: the parts, the question, the reference answer and remarks, as HTML."""

    parts: tuple[Part, ...]
    question: str
    reference: str
    remarks: str


def load(assignment: Assignment) -> Rubric:
    """The rubric of an assignment; raises ``ValueError`` if the points of its parts are not those of the question."""
    path = assignment.folder / "rubric.md"
    text = COMMENT.sub("", path.read_text("utf-8")) if path.is_file() else ""
    sections = split(text)
    parts, references, remarks = [], [], []
    for title, body in sections:
        found = HEADING.match(title)
        if found:
            parts.append(part_of(found["title"], float(found["a"] or found["b"]), body))
        elif "model answer" in title.lower():
            references.append(render(body))
        else:
            remarks.append(render(f"## {title}\n{body}" if title else body))
    total = assignment.written.points
    if not parts:
        parts = [Part(assignment.written.title, total, (), "")]
    if sum(part.points for part in parts) != total:
        said = " + ".join(f"{part.points:g}" for part in parts)
        raise ValueError(f"rubric.md: its parts have {said} points, but {assignment.written.name} has {total:g}")
    titles = [part.title for part in parts]
    if len(set(titles)) < len(titles):
        raise ValueError(f"rubric.md: two parts have the same heading: {titles}")
    notebook = notebooks.read(assignment.notebook)
    own = [text_of(cell) for cell in notebook["cells"] if role(cell).get("grade_id") == assignment.written.name]
    answer = COMMENT.sub("", MARKS.sub("", "\n\n".join(own))).strip()
    if references and answer:
        summary = "<summary>The answer in the instructor's notebook</summary>"
        references.append(f"<details>{summary}{render(answer)}</details>")
    reference = "".join(references) or render(answer)
    return Rubric(tuple(parts), render(asked(assignment, notebook)), reference, "".join(remarks))


def split(text: str) -> list[tuple[str, str]]:
    """The sections by headings of the second level, with their titles; what stands before the first has none."""
    lines = text.splitlines()
    heads = [token for token in reader().parse(text) if token.type == "heading_open" and token.tag == "h2"]
    starts = [token.map[0] for token in heads if token.map]
    first = "\n".join(lines[: starts[0]] if starts else lines)
    pairs = zip(starts, [*starts, len(lines)][1:], strict=True)
    sections = [(lines[start].lstrip("# ").strip(), "\n".join(lines[start + 1 : end])) for start, end in pairs]
    return [*([("", first)] if first.strip() else []), *sections]


def part_of(title: str, points: float, body: str) -> Part:
    """A part: the rows of its tables of points, and what stands around them."""
    rows: list[tuple[str, float, str]] = []
    rest: list[Token] = []
    table: list[Token] = []
    for token in reader().parse(body):
        (table if token.type == "table_open" or table else rest).append(token)
        if token.type == "table_close":
            found = rows_of(table)
            span = f'data-from="{len(rows)}" data-to="{len(rows) + len(found)}"'
            place = Token("html_block", "", 0, content=f'<div class="items" {span}></div>')
            rest += [place] if found else table
            rows += found
            table = []
    plain = [number for sign, number, _ in rows if not sign]
    all_add = 0 not in plain and sum(number for _, number, _ in rows) == points
    items = tuple(Item(number, bool(sign) or all_add, html) for sign, number, html in rows)
    (heading,) = reader().parseInline(title)
    plain_title = "".join(child.content for child in heading.children or ())
    return Part(plain_title, points, items, as_html(rest))


def rows_of(table: list[Token]) -> list[tuple[str, float, str]]:
    """Sign, points and text of every row; nothing if this is not a table of points or a row is not one of points."""
    rows: list[list[Token]] = []
    for token in table:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(token)
    if len(rows) < 2 or rows[0][0].content.strip().lower() != "points":
        return []
    found = []
    for first, *others in rows[1:]:
        number = ITEM.match(first.content.strip())
        if not number:
            return []
        found.append((number["sign"], float(number["points"]), " ".join(as_html([cell]) for cell in others)))
    return found


def asked(assignment: Assignment, notebook: Notebook) -> str:
    """The text of the question: the cells right before the answer's, back to the one that is named after it."""
    cells = notebook["cells"]
    places = {role(cell).get("grade_id"): number for number, cell in enumerate(cells)}
    end = places.get(assignment.written.name, 0)
    start = places.get(f"{assignment.written.name}-task", max(0, end - 1))
    return "\n\n".join(text_of(cell) for cell in cells[start:end] if cell.get("cell_type") == "markdown")


@cache
def reader() -> MarkdownIt:
    """A reader of Markdown with tables and formulas, in which HTML is text and pictures are their description."""
    made = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    return made.use(dollarmath_plugin, renderer=lambda tex, options: formula(tex, bool(options["display_mode"])))


def render(text: str) -> str:
    return as_html(reader().parse(text))


def as_html(tokens: list[Token]) -> str:
    made = reader()
    html: str = made.renderer.render(tokens, made.options, {})
    return html


@cache
def formula(tex: str, display: bool) -> str:
    """A formula as MathML, which browsers set without fonts or scripts of ours; its source if it cannot be read."""
    options = {"displayMode": display, "output": "mathml", "throwOnError": True, "maxExpand": 1000, "strict": False}
    arguments = json.dumps([tex, options])
    try:
        return str(katex().eval(f"katex.renderToString(...{arguments})"))
    except JSEvalException:
        return f"<code>{escape(tex)}</code>"


@cache
def katex() -> MiniRacer:
    """KaTeX in its engine, started at the first formula."""
    engine = MiniRacer()
    atexit.register(engine.close)  # left to the garbage collector, the engine can hang the exit
    engine.eval(Path(KATEX).read_text("utf-8"))
    return engine
