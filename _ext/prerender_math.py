"""Set every formula while the book is built, so that no page carries a typesetting script.

KaTeX (vendored under ``_ext/katex``, MIT license) runs inside Python, in the V8 engine that the package ``mini-racer``
brings. Each formula becomes HTML for the eye and MathML for screen readers. A formula KaTeX cannot read is a warning that
names its place, and the strict build fails. Equation numbers stay with Sphinx, so ``{eq}`` references and the numbers in
the margin agree. A wide formula scrolls inside its own box. ``lean_formula`` takes out the boxes with which KaTeX draws nothing.
"""

from __future__ import annotations

import atexit
import json
import re
from html import escape
from pathlib import Path
from typing import Any

import live_formula
from docutils import nodes
from lean_formula import lighter
from py_mini_racer import MiniRacer
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

LOG = logging.getLogger(__name__)
KATEX = Path(__file__).parent / "katex"

# Sphinx prints the number, so environments that would number themselves take their starred form.
NUMBERED = re.compile(r"\\(begin|end)\{(align|gather|equation|multline|alignat|eqnarray)\}")
LABEL = re.compile(r"\\label\{[^}]*\}")
# The source stands in the element around the formula, once, and not once more as a note inside.
TWICE = re.compile(r'<math xmlns="[^"]*"([^>]*)><semantics>(.*?)<annotation\b.*?</annotation></semantics>', re.DOTALL)
BLANK_LINE = re.compile(r"\n\s*\n")

# katex.renderToString throws on bad input; the error comes back as data.
# Three strictness rules are off: text such as "π" inside formulas, a line break at the top level of a display, and the marks of live_formula.
RENDER = r"""
function renderFormula(tex, displayMode, macros) {
  const harmless = ["unicodeTextInMathMode", "newLineInDisplayMode", "htmlExtension"];
  const trust = context => context.command === "\\htmlData";
  const strict = code => harmless.includes(code) ? "ignore" : "error";
  try {
    return {html: katex.renderToString(tex, {displayMode, macros, strict, trust, throwOnError: true, maxExpand: 1000})};
  } catch (error) {
    return {error: String(error.message || error)};
  }
}
"""


class Typesetter:
    """KaTeX in a V8 engine, started at the first formula; the same formula is set once."""

    def __init__(self, macros: dict[str, str]):
        self.macros = macros
        self.engine: MiniRacer | None = None
        self.known: dict[tuple[str, bool], dict[str, str]] = {}

    def __call__(self, tex: str, display: bool) -> dict[str, str]:
        """``{"html": ...}``, or ``{"error": ...}`` for a formula that cannot be read."""
        if self.engine is None:
            self.engine = MiniRacer()
            atexit.register(self.engine.close)  # left to the garbage collector, the engine can hang the exit
            self.engine.eval((KATEX / "katex.min.js").read_text("utf-8"))
            self.engine.eval(RENDER)
        key = (tex, display)
        if key not in self.known:
            arguments = json.dumps([tex, display, self.macros])
            answer = self.engine.eval(f"JSON.stringify(renderFormula(...{arguments}))")
            self.known[key] = json.loads(str(answer))
        return self.known[key]


def set_formula(app: Sphinx, tex: str, display: bool, node: nodes.Node) -> str:
    """The HTML of a formula; the bare source, and a warning with its place, when KaTeX cannot read it."""
    tex = NUMBERED.sub(r"\\\1{\2*}", LABEL.sub("", tex)).strip()
    typesetter: Typesetter = app.typesetter  # type: ignore[attr-defined]
    answer = typesetter(tex, display)
    if "error" in answer:
        LOG.warning("formula: %s, in %r", answer["error"], tex[:120], location=node, type="math", subtype="tex")
        return f"<code>{escape(tex)}</code>"
    return lighter(TWICE.sub(r"<math\1>\2", answer["html"]))


def visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate", **{"data-tex": node.astext()}))
    self.body.append(set_formula(self.builder.app, node.astext(), False, node) + "</span>")
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    tex = node.astext()
    self.body.append(self.starttag(node, "div", "", CLASS="math notranslate", **{"data-tex": tex}))
    if not node.get("nowrap") and "amsmath" not in node.get("classes", []):
        tex = join_lines(tex)
    live = live_formula.formula_of(node.get("label"), node.astext())
    if live:
        tex = live_formula.marked(tex, live[0])
    # the class katex-scroll is what the script and the style sheet look for
    self.body.append(f'<div class="katex-scroll">{set_formula(self.builder.app, tex, True, node)}</div>')
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    if live:
        self.body.append(live_formula.names(*live, lambda one: set_formula(self.builder.app, one, False, node)))
    raise nodes.SkipNode


def join_lines(tex: str) -> str:
    """Several lines or blank-line separated parts as one display, the way Sphinx does it for other engines."""
    parts = [part for part in BLANK_LINE.split(tex) if part.strip()]
    lines = [
        rf"\begin{{split}}{part}\end{{split}}" if r"\\" in part and not part.lstrip().startswith(r"\begin{") else part
        for part in parts
    ]
    return lines[0] if len(lines) == 1 else r"\begin{gathered}" + r"\\".join(lines) + r"\end{gathered}"


def start(app: Sphinx) -> None:
    app.typesetter = Typesetter(app.config.math_macros)  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("math_macros", {}, "env")
    app.add_html_math_renderer("prerender", (visit_inline, None), (visit_block, None))
    app.connect("builder-inited", start)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
