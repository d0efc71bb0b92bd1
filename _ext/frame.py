"""What the book asks of its theme, Furo 2025.12.19. This file, ``_templates``, the part "frame" of ``_static/book.css`` and
the containers that ``_static/book.js`` looks for are all that know its names: another theme takes its place by other ones.

The theme is used through its templates, its variables and its style sheet. Its script is left out, because ``_static/book.js``
does what is used of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform

SHEETS = ("pygments.css", "styles/furo.css")  # below _static, in the order in which a page would load them
SCRIPTS = {"furo.js"}
OPTIONS = {"top_of_page_buttons": ["view"]}  # its place is taken by _templates/components/view-this-page.html
DARK_CODE = "a11y-high-contrast-dark"


def settle(app: Sphinx, config: Config) -> None:
    """The theme's own options only: Jupyter Book hands each theme those of another one."""
    config.html_theme_options = OPTIONS


def choose_dark_code(app: Sphinx) -> None:
    """The theme registers this value too late for a configuration file of Jupyter Book."""
    app.config.pygments_dark_style = DARK_CODE


def keep_contents(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """The templates write the contents at the side; the theme, which would do it again, page by page, sees none."""
    context["contents"] = context.pop("toctree", lambda **options: "")


class OneName(SphinxPostTransform):
    """The theme puts a box around each table and formula, and gives it the names that these have, a second time."""

    default_priority = 501  # after the theme's
    formats = ("html",)

    def run(self, **options: Any) -> None:
        for box in self.document.findall(nodes.container):
            if {"math-wrapper", "table-wrapper"} & set(box["classes"]):
                box["ids"] = []


def sheets(static: Path) -> str:
    """The theme's style sheets, joined."""
    return "\n".join((static / name).read_text("utf-8") for name in SHEETS)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("comments_config", {}, "html")  # Jupyter Book sets it; sphinx_comments itself is left out
    app.connect("config-inited", settle, priority=700)
    app.connect("builder-inited", choose_dark_code, priority=300)  # before the theme looks
    app.connect("html-page-context", keep_contents, priority=300)
    app.add_post_transform(OneName)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
