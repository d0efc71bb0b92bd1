"""What a page of the book has beside its text: boxes that fold, code beside what it made, the two ways on.

All of it is made from Sphinx's own nodes, before any HTML is written. How the nodes are written stands in ``spoken.py``, the
style in ``style.py``, and what is the theme's in ``frame.py``.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from pathlib import Path
from typing import Any

import frame
import pybtex.plugin
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

LOG = logging.getLogger(__name__)
CONTROLS = '<form class="rlx-controls"'  # of an interactive figure
LESSON = re.compile(r"chapters/\d\d_(?!.*_deeper$)")
# Scripts of Sphinx and of extensions, whose part in this book _static/book.js does, or that nothing here uses.
REPLACED = {"documentation_options.js", "doctools.js", "sphinx_highlight.js", "design-tabs.js", *frame.SCRIPTS}
REPLACED |= {"own_errors.js"}  # book.js brings it when there is something to show
NO_SCRIPT = (
    '<noscript><p class="book-noscript">The sliders of this page need JavaScript, which is switched off here. Each picture shows its '
    "first state; text, formulas, quizzes and solutions are complete.</p></noscript>"
)


# ---------------------------------------------------------------- folded boxes


class Folded(nodes.Element):
    """A box that folds, as ``details``: without a script, and known to keyboards and screen readers."""


class FoldedTitle(nodes.TextElement):
    """What is always in sight of it."""


def folds(node: nodes.Node) -> bool:
    """Whether a node is a box that folds: a mistake, a solution, an answer of a quiz, a dropdown."""
    return isinstance(node, nodes.Element) and (
        node.get("design_component") == "dropdown" or "dropdown" in node.get("classes", ())
    )


class FoldBoxes(SphinxPostTransform):
    default_priority = 198  # after the titles of solutions are known, before sphinx_design makes something of its own
    formats = ("html",)

    def run(self, **options: Any) -> None:
        for box in list(self.document.findall(folds)):
            title = box[0] if box.children else None
            if not isinstance(title, (nodes.title, nodes.rubric)):
                LOG.warning("a box that folds has no title", location=box, type="page")
                continue
            # what is clicked to unfold must not lead elsewhere
            words = [nodes.inline("", one.astext()) if isinstance(one, nodes.reference) else one for one in title]
            classes = [*box["classes"], *box.get("container_classes", ())]
            kind = [name for name in classes if name not in ("dropdown", "admonition", "sd-mb-3")]
            folded = Folded("", FoldedTitle("", "", *words), *box[1:], classes=["fold", *kind])
            folded["ids"] = [*box["ids"], *title["ids"]]
            box.parent.replace(box, folded)


def visit_folded(self: Any, node: Folded) -> None:
    self.body.append(self.starttag(node, "details", ""))


def depart_folded(self: Any, node: Folded) -> None:
    self.body.append("</div></details>\n")


def visit_folded_title(self: Any, node: FoldedTitle) -> None:
    self.body.append("<summary>")


def depart_folded_title(self: Any, node: FoldedTitle) -> None:
    self.body.append('</summary><div class="folded">\n')


# ---------------------------------------------------------------- hidden code


class GatherCode(SphinxPostTransform):
    """The hidden code of cells that show nothing goes to the next cell that does, in front of its own, in the same box."""

    default_priority = 197  # before MyST-NB folds hidden code
    formats = ("html",)

    def run(self, **options: Any) -> None:
        waiting: dict[int, list[nodes.Element]] = {}  # by the box that holds them
        cells = [node for node in self.document.findall(nodes.container) if node.get("nb_element") == "cell_code"]
        for cell in cells:
            if {"tag_runs", "tag_hide-input"} <= set(cell["classes"]):
                continue  # it runs in the page, and is found there
            around = cell.parent
            while around is not self.document and not folds(around):
                around = around.parent
            before = waiting.setdefault(id(around), [])
            hidden = cell.get("hide_mode") == "input"
            if hidden and len(cell) == 1:
                before.append(cell)
            elif before and (hidden or len(cell) > 1):
                code = [source for one in before for source in one[0].children]
                for one in before:
                    one.parent.remove(one)
                if hidden:
                    cell[0].insert(0, code)
                else:
                    source = nodes.container("", *code, classes=["cell_input"])
                    cell.insert(0, HideCodeCellNode("", source))
                before.clear()


def visit_code(self: Any, node: HideCodeCellNode) -> None:
    self.body.append('<details class="hide"><summary>code</summary>\n')


def depart_code(self: Any, node: HideCodeCellNode) -> None:
    self.body.append("</details>\n")


# ---------------------------------------------------------------- the page around the text


def find_lessons(app: Sphinx, env: Any) -> None:
    """The lessons in the book's order, by the parts of its table of contents."""
    contents = env.get_doctree(app.config.root_doc).findall(lambda node: node.tagname == "toctree")
    parts = [[page for _, page in tree["entries"] if page and LESSON.match(page)] for tree in contents]
    app.lessons = [part for part in parts if part]  # type: ignore[attr-defined]


def add_ways(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """For the templates: the lessons, and where to go from here, the main way first."""
    lessons = [lesson for part in app.lessons for lesson in part]  # type: ignore[attr-defined]
    own, deeper = page.removesuffix("_deeper"), f"{page}_deeper"
    link = app.builder.get_relative_uri
    ways = []
    if own in lessons:
        if own != lessons[-1]:
            following = lessons[lessons.index(own) + 1]
            ways.append(("Next lesson", link(page, following), full_title(app, following)))
        if own != page:
            ways.append(("Back to the lesson", link(page, own), full_title(app, own)))
        elif deeper in app.env.found_docs:
            ways.append(("Deeper on this chapter", link(page, deeper), ""))
    context["ways_on"] = ways
    context["parts"] = [
        [(link(page, lesson), full_title(app, lesson), lesson == own) for lesson in part]
        for part in app.lessons  # type: ignore[attr-defined]
    ]


def full_title(app: Sphinx, page: str) -> str:
    """``7. Advantages``."""
    number = ".".join(map(str, app.env.toc_secnumbers.get(page, {}).get("") or ()))
    title = app.env.titles[page].astext()
    return f"{number}. {title}" if number else title


def lighten(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """One style sheet, and the scripts that this page needs, once and deferred."""
    body = context.get("body") or ""
    context["body"] = (NO_SCRIPT if CONTROLS in body else "") + body
    kept = {}
    for script in context["script_files"]:
        name = str(script.filename or "").partition("?")[0].rpartition("/")[2]
        if name and name not in REPLACED:
            kept[name] = type(script)(
                script.filename, priority=script.priority, **{**script.attributes, "defer": "defer"}
            )
    context["script_files"][:] = kept.values()
    sheet = type(context["css_files"][0])
    context["css_files"][:] = [sheet("_static/style.css")]


def drop_duplicates(app: Sphinx, config: Config) -> None:
    """Jupyter Book lists each file below ``_static`` once more than needed: keep the first of each."""
    config.html_css_files = list(dict.fromkeys(config.html_css_files))
    config.html_js_files = list(dict.fromkeys(config.html_js_files))


# ---------------------------------------------------------------- words of the glossary


def meanings(env: Any) -> dict[str, str]:
    """The id of each term of a glossary, and its meaning: its definition up to the first link, which leads to its place."""
    pages = {page for *_, kind, page, _, _ in env.get_domain("std").get_objects() if kind == "term"}
    items = [item for page in pages for item in env.get_doctree(page).findall(nodes.definition_list_item)]
    found = {}
    for item in items:
        parts = itertools.takewhile(lambda part: isinstance(part, nodes.Text), item[-1][0])
        found |= dict.fromkeys(item[0]["ids"], "".join(map(str, parts)).strip())
    return found


def show_meanings(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """A link to a term carries its meaning; ``_static/book.js`` shows it to pointers, fingers and keyboards."""
    found = [one.parent for one in doctree.findall(nodes.inline) if "std-term" in one["classes"]]
    links = [one for one in found if isinstance(one, nodes.reference)]  # in a part of the book a term may lead nowhere
    if links and not hasattr(app, "meanings"):
        app.meanings = meanings(app.env)  # type: ignore[attr-defined]
    for link in links:
        link["reftitle"] = app.meanings[link.get("refid") or link["refuri"].rpartition("#")[2]]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- strictness


def check_pictures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for image in doctree.findall(nodes.image):
        if not image.get("alt"):
            LOG.warning("picture without alternative text: %s", image.get("uri"), location=image, type="page")


def check_notebooks(app: Sphinx, docname: str, source: list[str]) -> None:
    """Error outputs and missing outputs of a notebook are warnings, with the number of the cell."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"], start=1):
        where = f"{path}:{number}"
        if any(output["output_type"] == "error" for output in cell.get("outputs", [])):
            LOG.warning("cell %d holds an error output", number, location=where, type="page")
        if cell["cell_type"] == "code" and cell["execution_count"] is None and "".join(cell["source"]).strip():
            LOG.warning("cell %d was never executed: run `make execute`", number, location=where, type="page")


def start(app: Sphinx) -> None:
    # asked for the style of every citation, pybtex reads the lists of all installed packages anew each time
    pybtex.plugin._load_entry_point = functools.cache(pybtex.plugin._load_entry_point)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", drop_duplicates, priority=700)
    app.connect("builder-inited", start)
    app.connect("env-updated", find_lessons)
    app.connect("source-read", check_notebooks)
    app.connect("doctree-resolved", check_pictures)
    app.connect("doctree-resolved", show_meanings)
    app.connect("html-page-context", add_ways)
    app.connect("html-page-context", lighten, priority=990)
    app.add_post_transform(GatherCode)
    app.add_post_transform(FoldBoxes)
    app.add_node(Folded, html=(visit_folded, depart_folded))
    app.add_node(FoldedTitle, html=(visit_folded_title, depart_folded_title))
    app.add_node(HideCodeCellNode, override=True, html=(visit_code, depart_code))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
