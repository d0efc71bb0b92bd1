"""What a screen reader says: names for what is clear to the eye only, and no words for what is there for the eye only.

Found by listening to a lesson from end to end. No rule of a checker asks for these:

* browsers leave MathML out of the names of links, headings and folded boxes: their formulas are in words;
* code, outputs and interactive figures are groups that say what they are, so that one hears where the text stops;
* a picture is one thing with one description, without the numbers along its axes;
* the number of an equation says that it is one; quizzes and exercises are headings, to be found from a list of headings;
* icons that a style sheet draws have no name, which would be read as an unknown letter;
* the note of a citation does not end in an address, spelled letter by letter.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sphinx.application import Sphinx

FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
NAMED = re.compile(r"<(a|h[1-6]|summary)\b[^>]*>(?:(?!</\1>).)*?<math\b.*?</\1>", re.DOTALL)
PICTURE = re.compile(r'<div class="rlx-picture">(<svg [^>]*?) role="img" (aria-label="[^"]*")')
CODE = re.compile(r'<div class="(highlight-\w+ notranslate)">')
OUTPUT = re.compile(r'<div class="cell_output docutils container">')
CELL = re.compile(r'<div class="cell[ _]')
EQUATION = re.compile(
    r'(?<!equation )(?<!Equation )(?<!equations )(<a class="reference internal" href="[^"]*#equation-[^"]*")>(\([^<]*\))</a>'
)
TITLE = re.compile(r'<p class="admonition-title">')
BOX = re.compile(r'<div class="[^"]*\b(?:quiz|exercise)\b[^"]*"[^>]*>\s*\Z')
HEADING = re.compile(r"<h([1-6])\b")
ADDRESS = re.compile(r' URL: [^"]*(?=")')
ICON = re.compile(
    r'content:\s*(var\(--pst-icon-[\w-]+\)|"(?:\\f[0-9a-f]{3}|[\ue000-\uf8ff])")((?:\s*!important)?)(?=[;}])'
)
SIGNS = {"′": " prime", "∗": " star", "⋆": " star"}  # raised, they are read with the letter and not as an exponent
ACCENTS = {"^": "hat", "ˆ": "hat", "~": "tilde", "˜": "tilde", "ˉ": "bar", "¯": "bar"}


def spoken(body: str) -> str:
    """The HTML of a page with what a listener needs."""
    body = PICTURE.sub(r'<div class="rlx-picture" role="img" \2>\1 aria-hidden="true"', body)
    body = CODE.sub(r'<div class="\1" role="group" aria-label="Code">', body)
    body = EQUATION.sub(r'\1 aria-label="equation \2">\2</a>', body)
    body = re.sub(
        r'(?<=class="reference internal" )href="[^"]*" title="[^"]*"', lambda match: ADDRESS.sub("", match[0]), body
    )
    return worded_formulas(headed_boxes(named_outputs(body)))


def named_outputs(body: str) -> str:
    """An interactive figure and printed text say what they are; a picture alone does so by itself."""

    def name(match: re.Match[str]) -> str:
        rest = CELL.search(body, match.end())
        inside = body[match.end() : rest.start() if rest else len(body)]
        if '<form class="rlx-controls"' in inside:
            said = "Interactive figure"
        elif "<pre>" in inside:
            said = "Output"
        else:
            return match[0]
        return f'{match[0][:-1]} role="group" aria-label="{said}">'

    return OUTPUT.sub(name, body)


def headed_boxes(body: str) -> str:
    """The titles of quizzes and exercises are headings, one level below the heading they stand under."""

    def head(match: re.Match[str]) -> str:
        if not BOX.search(body[max(0, match.start() - 300) : match.start()]):
            return match[0]
        above = HEADING.findall(body, 0, match.start())
        return f'<p class="admonition-title" role="heading" aria-level="{min(6, int(above[-1] if above else 1) + 1)}">'

    return TITLE.sub(head, body)


def worded_formulas(text: str) -> str:
    """Links, headings and the heads of folded boxes whose formulas stand there in words, in place of MathML.

    They are not given a second name: one who speaks to the browser calls them by what is seen.
    """
    return NAMED.sub(lambda match: FORMULA.sub(in_words, match[0]), text)


def in_words(formula: re.Match[str]) -> str:
    return html.escape(" ".join(said(ElementTree.fromstring(formula[0])).split()))


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


def spoken_contents(contents: Callable[..., Any]) -> Callable[..., str]:
    """The theme's list of a page's sections."""
    return lambda *arguments, **options: worded_formulas(str(contents(*arguments, **options)))


def silent_icons(sheet: str) -> str:
    """A style sheet whose icons have the empty text as their words; browsers that cannot read it keep the line before."""
    return ICON.sub(r'content:\1\2;content:\1/""\2', sheet)


def mend_sheet(app: Sphinx, error: Exception | None) -> None:
    sheet = Path(app.outdir, "_static", "lean.css")
    if not error and sheet.is_file():
        sheet.write_text(silent_icons(sheet.read_text("utf-8")), "utf-8")


def mend_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    context["body"] = spoken(context.get("body") or "")
    if "generate_toc_html" in context:
        context["generate_toc_html"] = spoken_contents(context["generate_toc_html"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", mend_page, priority=995)  # after lean_theme, which makes the folded boxes
    app.connect("build-finished", mend_sheet, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
