"""The labs that compute in the page: one directive, and nothing on pages without a lab.

    ```{lab} maze
    What one can do here, for readers before they press, on paper, and without scripts.
    ```

The engine and the pages of the labs lie in ``_static/lab``. A page with a lab loads one small script at first; it brings
the rest when the lab is touched. ``LABS`` names the labs and their first buttons.
"""

from __future__ import annotations

import html
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective

FOLDER = "lab/"  # below _static
LABS = {
    "maze": ("Own the maze", "Sweep until the values stand still"),
    "cartpole": ("Train it", "Train both"),
    "language": ("Teach it to write its work", "Train"),
    "agent": ("You are the agent", "Let someone else walk"),
}


def opening(name: str) -> str:
    """The frame of a lab before it is touched."""
    title, run = LABS[name]
    return (
        f'<section class="lab" data-lab="{name}" data-state="stopped" aria-label="Lab: {html.escape(title)}">'
        f'<p><button type="button" class="lab-run">{html.escape(run)}</button> '
        '<button type="button" class="lab-open">Open it and look first</button></p>'
        '<p class="lab-status" role="status"></p>'
        "<noscript><p>This lab computes in the page and needs JavaScript, which is switched off here.</p></noscript>"
        "</section>"
    )


class lab(nodes.General, nodes.Element):
    """A lab's place on a page."""


class LabDirective(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in LABS:
            raise self.error(f"lab is {name!r}; expected one of {sorted(LABS)}")
        return [*self.parse_content_to_nodes(), lab("", name=name)]


def visit_html(self: Any, node: lab) -> None:
    self.body.append(opening(node["name"]))
    raise nodes.SkipNode


def visit_elsewhere(self: Any, node: lab) -> None:
    raise nodes.SkipNode


def leave_out(app: Sphinx, config: Config) -> None:
    """Jupyter Book lists every script and sheet below ``_static`` for every page: the labs' are no page's, but for one."""
    for option in ("html_css_files", "html_js_files"):
        names = lambda file: file if isinstance(file, str) else file[0]
        setattr(config, option, [file for file in getattr(config, option) if not names(file).startswith(FOLDER)])


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """A page with a lab gets its sheet and its one script, at the end of the text."""
    body = context.get("body") or ""
    if 'data-lab="' in body:
        root = "../" * (len(PurePosixPath(page).parts) - 1) + "_static/" + FOLDER
        script = f'<link rel="stylesheet" href="{root}lab.css"><script src="{root}lab.js" defer></script>'
        context["body"] = body + script


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """The labs' files, which Sphinx leaves out: what ``exclude_patterns`` says of the folder ``lab`` it takes for this one, too."""
    if not error and app.builder.format == "html":
        shutil.copytree(Path(app.srcdir, "_static", FOLDER), Path(app.outdir, "_static", FOLDER), dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(lab, html=(visit_html, None), **{name: (visit_elsewhere, None) for name in ("latex", "text", "epub")})
    app.add_directive("lab", LabDirective)
    app.connect("config-inited", leave_out, priority=600)
    app.connect("html-page-context", add_script, priority=980)
    app.connect("build-finished", copy_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
