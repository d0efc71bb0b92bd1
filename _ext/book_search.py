"""Search inside the book: one small script, ``_static/search.js``, that works from a server and from a disk.

It holds the sections of all pages (title, text, words in bold or italics) without code, outputs and TeX, the search
library MiniSearch 7.2.0 (vendored under ``_ext/search``, MIT license), and what ranks and shows the results. A page loads it when the
reader opens the search. The search of Sphinx itself, which reads every page it finds again, is switched off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from docutils import nodes
from page import FoldedTitle
from sphinx import addnodes
from sphinx.application import Sphinx

FOLDER = Path(__file__).parent / "search"
# How much a page's sections count: first the lessons, last the reference. The first pattern that fits decides.
WEIGHTS = [
    (r"chapters/\d\d_.*_deeper", 0.3),
    (r"chapters/\d\d_", 1.0),
    (r"chapters/appendix_questions", 0.12),
    (r"chapters/appendix_what_is_next", 0.4),
    (r"chapters/appendix_glossary", 0.05),
    (r"chapters/appendix_api", 0.12),
    (r"chapters/appendix_", 0.3),
    (r"", 0.5),
]
# Sections that speak of everything and explain nothing.
MINOR = re.compile(
    r"quiz|check yourself|exercises|questions|summary|five lines|^sources|further reading|three paths|how to read",
    re.IGNORECASE,
)
LEFT_OUT = (
    nodes.literal_block,
    nodes.math_block,
    nodes.raw,
    nodes.comment,
    nodes.image,
    nodes.system_message,
    nodes.title,
    addnodes.desc,
    addnodes.toctree,
    addnodes.index,
)
BLOCKS = (nodes.Body, nodes.Part, nodes.Admonition, nodes.TextElement)
LABEL = re.compile(r"^(eq|ch|ex|sec|fig|tab)-|-+|^id\d+$")
NAMED = (nodes.strong, nodes.emphasis)
SOURCES = "Sources and further reading"  # names and years: the bibliography has them all
REMARKS = re.compile(r"(?m)^\s*(//|/\*\*|\*( |/|$)).*\n?|^[ \t]+")  # and indentation: readers need not load them
LETTERS = re.compile(r'class="katex-html"[^>]*>(.*)', re.DOTALL)


def formula_text(app: Sphinx, tex: str) -> str:
    """A formula as a reader sees it in a line of text: ``V^\\pi(s)`` is "Vπ(s)"."""
    seen = LETTERS.search(app.typesetter(tex, False).get("html", ""))  # type: ignore[attr-defined]
    return unescape(re.sub(r"<[^>]+>", "", seen[1])).replace("\u200b", "") if seen else ""


def opens_section(node: nodes.Node) -> bool:
    """Whether a node has a heading of its own; exercises are sections without one."""
    return isinstance(node, nodes.section) and any(isinstance(child, nodes.title) for child in node.children)


def words(app: Sphinx, node: nodes.Node) -> Iterator[str]:
    """The text of a node in pieces, without code cells, outputs, displays, wrong answers and sections below."""
    if isinstance(node, nodes.Text):
        yield str(node)
    elif isinstance(node, nodes.math):
        yield formula_text(app, node.astext())
    elif (
        not isinstance(node, LEFT_OUT)
        and not (isinstance(node, FoldedTitle) and {"solution", "mistake"} & set(node.parent["classes"]))
        and not opens_section(node)
        and not {"cell", "quiz-wrong"} & set(getattr(node, "attributes", {}).get("classes", []))
    ):
        for child in node.children:
            yield from words(app, child)
        if isinstance(node, BLOCKS) and not isinstance(node, nodes.Inline):
            yield " "


def text_of(app: Sphinx, children: list[nodes.Node]) -> str:
    return re.sub(r"\s+", " ", "".join(piece for child in children for piece in words(app, child))).strip()


def title_of(app: Sphinx, node: nodes.Element) -> str:
    title = next((child for child in node.children if isinstance(child, nodes.title)), None)
    return text_of(app, title.children) if title else ""


def terms_of(app: Sphinx, section: nodes.section, children: list[nodes.Node]) -> str:
    """What the section is the home of: its labels and those of its equations, with a "=", and words in bold or italics."""
    found = ["=" + LABEL.sub(" ", name).strip() for name in section["ids"][1:] if "-" in name]
    for child in children:
        labels = [block["label"] for block in child.findall(nodes.math_block) if block.get("label")]
        found += ["=" + LABEL.sub(" ", label).strip() for label in labels]
        if not opens_section(child):
            found += [text_of(app, node.children) for node in child.findall(lambda one: isinstance(one, NAMED))]
    return " · ".join(dict.fromkeys(term.strip() for term in found if 2 < len(term.strip()) < 45))


def collect(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Keep the sections of a page, and the public names of a page of the reference."""
    base = next(weight for pattern, weight in WEIGHTS if re.match(pattern, page))
    numbers = app.env.toc_secnumbers.get(page, {})
    rows: list[list[Any]] = []
    for section in doctree.findall(opens_section):
        own = [child for child in section.children if not isinstance(child, nodes.title) and not opens_section(child)]
        title, top = title_of(app, section), isinstance(section.parent, nodes.document)
        own = [] if title == SOURCES else own
        anchor = "" if top else section["ids"][0]
        number = ".".join(map(str, numbers.get("" if top else f"#{anchor}") or ()))
        weight = base * (0.4 if MINOR.search(title) and not top else 1.0)
        rows.append([anchor, number, title, terms_of(app, section, own), text_of(app, own), round(weight, 3)])
    for item in doctree.findall(nodes.definition_list_item):
        if isinstance(item.parent.parent, addnodes.glossary):
            name, meaning = text_of(app, item[0].children), text_of(app, item[-1].children)
            rows.append([item[0]["ids"][0], "", name, "", meaning, base])
    for signature in doctree.findall(addnodes.desc_signature):
        if signature["ids"] and not signature.get("class"):
            anchor, body = signature["ids"][0], signature.parent[-1]  # its content
            first = next((child for child in body.children if isinstance(child, nodes.paragraph)), None)
            said = text_of(app, first.children) if first else ""
            rows.append([anchor, "", anchor.removeprefix("rlbook_lib."), "", said, base])
    app.book_sections[page] = rows  # type: ignore[attr-defined]


def write(app: Sphinx, error: Exception | None) -> None:
    """Write ``_static/search.js``, and take away what Sphinx's own search would have needed."""
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir, "_static")
    pages = {}
    for page, rows in app.book_sections.items():  # type: ignore[attr-defined]
        title = next((row[2] for row in rows if not row[0]), page)
        number = ".".join(map(str, app.env.toc_secnumbers.get(page, {}).get("") or ()))
        pages[page] = [f"{number}. {title}" if number else title, short_name(page), rows]
    scripts = [(FOLDER / name).read_text("utf-8") for name in ("minisearch.js", "search.js")]
    parts = [REMARKS.sub("", script) for script in scripts]
    text = json.dumps(pages, ensure_ascii=False, separators=(",", ":")).replace("\u2028", " ")
    (static / "search.js").write_text("\n".join([*parts, f"bookSearch.read({text});\n"]), "utf-8")
    for name in ("searchtools.js", "language_data.js"):
        (static / name).unlink(missing_ok=True)


def short_name(page: str) -> str:
    """``chapters/07_gae`` is known as "gae"."""
    return re.sub(r"^(\d\d|appendix)_|_deeper$", "", page.rsplit("/", 1)[-1]).replace("_", " ")


def start(app: Sphinx) -> None:
    app.book_sections = {}  # type: ignore[attr-defined]
    app.builder.search = False


def search_page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    if app.builder.format == "html":
        yield "search", {"title": "Search"}, "search.html"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", start)
    app.connect("doctree-resolved", collect, priority=900)
    app.connect("html-collect-pages", search_page)
    app.connect("build-finished", write, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
