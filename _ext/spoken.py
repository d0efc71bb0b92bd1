"""How nodes are written so that a listener is served as well: names for what is clear to the eye only, no words for the eye only.

Found by listening to a lesson from end to end. No rule of a checker asks for most of it:

* browsers leave MathML out of the names of links, headings and folded boxes: their formulas are in words;
* code, outputs and interactive figures are groups that say what they are, so that one hears where the text stops;
* a picture is one thing with one description, without the numbers along its axes;
* the number of an equation says that it is one; quizzes and exercises are headings, to be found from a list of headings;
* the note of a citation does not end in an address, spelled letter by letter;
* the sign that links a heading to itself is no stop for the Tab key, the corner of a table heads nothing, and a signature of
  several lines is no list.

Code is written with an element for a word only where that changes its color: a third of what the highlighter writes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from page import CONTROLS, FoldedTitle
from pygments.formatters import HtmlFormatter
from pygments.token import Name, Operator, Punctuation, String, Whitespace, _TokenType
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge
from sphinx.writers.html5 import HTML5Translator

PICTURE = re.compile(r'<div class="rlx-picture">(<svg [^>]*?) role="img" (aria-label="[^"]*")')  # in a stored figure
SIGNS = {"′": " prime", "∗": " star", "⋆": " star"}  # raised, they are read with the letter and not as an exponent
ACCENTS = {"^": "hat", "ˆ": "hat", "~": "tilde", "˜": "tilde", "ˉ": "bar", "¯": "bar"}
# words of code in the color of the text around them: names, points, space; and operators, whose color says nothing
PLAIN = {Name, Name.Namespace, Punctuation, Whitespace, Operator}
ONE_COLOR = {String.Affix, String.Interpol, String.Single, String.Escape}


class LighterCode(HtmlFormatter):
    """The highlighter's own, which joins neighbors of one class; fewer classes, and none for plain words."""

    def _get_css_classes(self, ttype: _TokenType) -> str:
        if ttype in PLAIN:
            return ""
        return str(super()._get_css_classes(String.Double if ttype in ONE_COLOR else ttype))


def without(text: str, start: str, end: str, instead: Callable[[str], str]) -> str:
    """A text in which each part from one mark to another is something else."""
    before, mark, rest = text.partition(start)
    if not mark:
        return text
    inside, mark, after = rest.partition(end)
    return before + instead(start + inside + mark) + without(after, start, end, instead)


def in_words(formula: str) -> str:
    """A formula of MathML as it is said."""
    return html.escape(" ".join(said(ElementTree.fromstring(formula)).split()))


def said(node: ElementTree.Element) -> str:
    """One element of MathML in words."""
    parts = [said(child) for child in node]
    tag = node.tag.rsplit("}", 1)[-1]
    if tag == "annotation":
        return ""
    if tag == "msub":
        return f"{parts[0]} {parts[1]}"
    if tag in ("msup", "msubsup"):
        *below, above = parts
        return " ".join(below) + SIGNS.get(above.strip(), f" to the {above} ")
    if tag == "mover":
        return f"{parts[0]} {ACCENTS.get(parts[1].strip(), parts[1])}"
    if tag == "mfrac":
        return f"{parts[0]} over {parts[1]}"
    if tag == "mo" and (node.text or "") == "\u2061":  # between a function and what it is of
        return " "
    if tag == "mo" and node.text and node.text in "=<>≤≥≠≈":
        return f" {node.text} "
    return (node.text or "") + "".join(parts)


def is_named(node: nodes.Node) -> bool:
    """Whether a node stands in something that has a name, made from its words."""
    while node := node.parent:
        if isinstance(node, (nodes.title, nodes.reference, FoldedTitle)):
            return True
    return False


def kind_of_output(node: nodes.Element) -> str:
    """What a listener is told that a cell shows; nothing for a picture, which has a name already."""
    raw = "".join(one.astext() for one in node.findall(nodes.raw))
    if CONTROLS in raw:
        return "Interactive figure"
    return "Output" if "<pre>" in raw or next(node.findall(nodes.literal_block), None) else ""


def visit_container(self: HTML5Translator, node: nodes.container) -> None:
    """What a cell shows is a group with a name. In the place of sphinx_design's writer, which would go before one of the class."""
    named = {"style": node["style"]} if "style" in node else {}
    if node.get("nb_element") == "cell_code_output" and (what := kind_of_output(node)):
        named |= {"role": "group", "aria-label": what}
    self.body.append(self.starttag(node, "div", **named))


def depart_container(self: HTML5Translator, node: nodes.container) -> None:
    self.body.append("</div>\n")


WORD_ENDS = re.compile(r"((?<=[^\W_])_+(?=\w)|(?<=[a-zA-Z])[.=]+(?=[a-zA-Z]))(?![^<]*>)")  # in text, not in a tag


class BookTranslator(HTML5Translator):
    """Sphinx's own writer, with what a listener needs. What it has written is changed as a whole word or not at all."""

    def changed(self, write: Callable[[Any], None], node: nodes.Node, *changes: tuple[str, str]) -> None:
        """Let Sphinx write, and replace words in that."""
        start = len(self.body)
        try:
            write(node)
        finally:  # some end with SkipNode
            for old, new in changes:
                self.body[start:] = [part.replace(old, new) for part in self.body[start:]]

    def visit_math(self, node: nodes.math, math_env: str = "") -> None:
        start = len(self.body)
        try:
            super().visit_math(node, math_env)
        finally:
            formula = "".join(self.body[start:])
            self.builder.app.drawn.add(formula)
            if is_named(node):
                self.body[start:] = [without(formula, "<math", "</math>", in_words)]

    def visit_math_block(self, node: nodes.math_block, math_env: str = "") -> None:
        start = len(self.body)
        try:
            super().visit_math_block(node, math_env)
        finally:
            self.builder.app.drawn.add("".join(self.body[start:]))

    def visit_raw(self, node: nodes.raw) -> None:
        start = len(self.body)
        try:
            super().visit_raw(node)
        finally:
            replace = r'<div class="rlx-picture" role="img" \2>\1 aria-hidden="true"'
            self.body[start:] = [PICTURE.sub(replace, part) for part in self.body[start:]]

    def visit_literal_block(self, node: nodes.literal_block) -> None:
        named = ' notranslate" role="group" aria-label="Code">'
        is_output = "output" in node.parent.get("classes", ()) or "output" in node["classes"]
        changes = [] if is_output else [(' notranslate">', named)]
        self.changed(super().visit_literal_block, node, *changes, ("<pre><span></span>", "<pre>"))

    def visit_reference(self, node: nodes.reference) -> None:
        if "reftitle" in node:
            node["reftitle"] = node["reftitle"].partition(" URL: ")[0]
        words, before = node.astext(), node.previous_sibling()
        said_before = before.astext().rstrip().lower() if before is not None else ""
        changes = []
        if "#equation-" in f"#{node.get('refid', '')}{node.get('refuri', '')}" and words.startswith("("):
            if not said_before.endswith(("equation", "equations")):
                changes = [("<a ", f'<a aria-label="equation {html.escape(words)}" ')]
        self.changed(super().visit_reference, node, *changes)

    def visit_title(self, node: nodes.title) -> None:
        box = node.parent
        changes = [(' role="heading"', "")]  # above a list of pages: one without a level
        if isinstance(box, nodes.Admonition) and {"quiz", "exercise"} & {*box["classes"], *box.get("type", "").split()}:
            level = min(6, self.section_level + 1)
            changes = [('class="admonition-title"', f'class="admonition-title" role="heading" aria-level="{level}"')]
        self.changed(super().visit_title, node, *changes)

    def add_permalink_ref(self, node: nodes.Element, title: str) -> None:
        write = super().add_permalink_ref
        self.changed(lambda node: write(node, title), node, ("<a ", '<a tabindex="-1" '))

    def visit_entry(self, node: nodes.entry) -> None:
        empty = not node.astext().strip()
        self.changed(super().visit_entry, node, *([("<th", "<td")] if empty else []))
        if empty:
            self.context[-1] = "</td>\n"

    def visit_Text(self, node: nodes.Text) -> None:
        start = len(self.body)
        super().visit_Text(node)
        name, cell = node.parent, getattr(getattr(node.parent, "parent", None), "parent", None)
        if isinstance(name, nodes.literal) and isinstance(cell, nodes.entry):  # narrow: breaks between words only
            self.body[start:] = [WORD_ENDS.sub(r"\g<0><wbr>", part) for part in self.body[start:]]

    def visit_citation(self, node: nodes.citation) -> None:
        # the list around it is plain; a role of its own may only stand inside a bibliography list
        self.changed(super().visit_citation, node, (' role="doc-biblioentry"', ' role="listitem"'))

    def visit_desc_parameterlist(self, node: addnodes.desc_parameterlist) -> None:
        self.changed(super().visit_desc_parameterlist, node, ("<dl>", "<span>"))

    def depart_desc_parameterlist(self, node: addnodes.desc_parameterlist) -> None:
        self.changed(super().depart_desc_parameterlist, node, ("</dl>", "</span>"))

    def visit_desc_parameter(self, node: addnodes.desc_parameter) -> None:
        self.changed(super().visit_desc_parameter, node, ("<dd>", '<span class="sig-line">'))

    def depart_desc_parameter(self, node: addnodes.desc_parameter) -> None:
        self.changed(super().depart_desc_parameter, node, ("</dd>", "</span>"))


def start(app: Sphinx) -> None:
    app.drawn = set()  # type: ignore[attr-defined]  # every formula as it is drawn, for the fonts


def setup(app: Sphinx) -> dict[str, Any]:
    PygmentsBridge.html_formatter = LighterCode
    app.set_translator("html", BookTranslator)
    app.add_node(nodes.container, override=True, html=(visit_container, depart_container))
    app.connect("builder-inited", start)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
