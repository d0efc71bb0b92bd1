"""A book of one page, built as the whole one is: what the extensions below ``_ext`` make of a few lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "_ext")!r})
extensions = ["myst_nb", "sphinx_design", "sphinx_exercise", "sphinxcontrib.bibtex",
              "book_search", "frame", "page", "spoken", "style", "prerender_math"]
html_theme = "furo"
html_theme_options = {{"an_option_of_another_theme": 1}}
templates_path = [{str(ROOT / "_templates")!r}]
html_static_path = [{str(ROOT / "_static")!r}]
html_css_files = ["book.css"]
html_js_files = ["book.js", "book.js"]
html_math_renderer = "prerender"
html_permalinks_icon = "#"
pygments_style = "a11y-high-contrast-light"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
math_numfig = numfig = True
nb_execution_mode = "off"
bibtex_bibfiles = ["sources.bib"]
exclude_patterns = ["build"]
python_maximum_signature_line_length = 10
project = "Small"
"""
SOURCES = """@book{bellman, author={Richard Bellman}, title={Dynamic Programming}, year={1957}, publisher={P}, url={https://example.org/a-b}}
"""


def text(*lines: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": "\n".join(lines)}


def code(source: str, *outputs: dict[str, str], hidden: bool = False) -> dict[str, Any]:
    """A cell and what it shows; each output is a dictionary of mime types."""
    shown = [{"output_type": "display_data", "data": data, "metadata": {}} for data in outputs]
    tags = {"tags": ["hide-input"]} if hidden else {}
    return {"cell_type": "code", "metadata": tags, "execution_count": 1, "source": source, "outputs": shown}


def build(folder: Path, cells: list[dict[str, Any]]) -> str:
    """The HTML of a page of these cells."""
    for number, cell in enumerate(cells):
        cell["id"] = f"c{number}"
    kernel: dict[str, Any] = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    kernel |= {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "conf.py").write_text(CONF, "utf-8")
    (folder / "sources.bib").write_text(SOURCES, "utf-8")
    (folder / "index.ipynb").write_text(json.dumps(notebook), "utf-8")
    (folder / "chapters").mkdir()
    (folder / "chapters" / "appendix_equations.md").write_text("---\norphan: true\n---\n# Equations\n", "utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-E", "-b", "html", ".", "build"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return (folder / "build" / "index.html").read_text("utf-8")


def article(page: str) -> str:
    """What a page says, without the frame around it."""
    return page.partition("<article")[2].partition("</article>")[0]
