"""Figures on a page: style and script once, from ``_static``, and tables of states at the end of the text.

Compression looks back 32 KB only, and finds more of what it has seen when prose and formulas are not parted by tables of
numbers: 1 to 3 KB of 80. The script finds a table by the name that its figure bears.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from style import short_script

from rlbook_lib import explore

FIGURE = '<rlx-figure class="rlx"'
STATES = re.compile(r'<script type="application/json">(.*?)</script>', re.DOTALL)
NAME = re.compile(r"\brlx[0-9a-f]{8}\b")  # of the figure, before the numbers of its clip regions


class StatesLast(SphinxPostTransform):
    default_priority = 900  # after MyST-NB chose among the forms of an output
    formats = ("html",)

    def run(self, **options: Any) -> None:
        tables: dict[str, str] = {}
        for output in [node for node in self.document.findall(nodes.raw) if FIGURE in node.astext()]:
            figure = output.astext()
            found, named = STATES.search(figure), NAME.search(figure)
            if found and named:
                name = f"{named[0]}-states"
                tables[name] = f'<script type="application/json" id="{name}">{found[1]}</script>'
                moved = figure.replace(found[0], "").replace(FIGURE, f'{FIGURE} data-states="{name}"')
                output.children = [nodes.Text(moved)]
        self.document.append(nodes.raw("", "".join(tables.values()), format="html"))


def write_files(app: Sphinx) -> None:
    if app.builder.format == "html":
        static = Path(app.outdir, "_static")
        static.mkdir(parents=True, exist_ok=True)
        (static / "explore.css").write_text(explore.style(), "utf-8")
        # each live formula has a figure on its page
        live = Path(__file__).with_name("live_formula.js").read_text("utf-8")
        (static / "explore.js").write_text(explore.script() + short_script(live), "utf-8")


def add_files(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    if FIGURE in (context.get("body") or ""):
        app.add_css_file("explore.css", priority=900)
        app.add_js_file("explore.js", priority=900, loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_files)
    app.connect("html-page-context", add_files, priority=999)  # after the theme's changes
    app.add_post_transform(StatesLast)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
