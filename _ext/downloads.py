"""Notebooks that run where they land: the site serves the library, and each notebook that it offers can install it.

* The library's wheel is built with the book and lies in ``_static``. Built twice, it has the same bytes.
* A chapter is offered in plain Markdown (``tools/lab_copy.py``), which any notebook program shows: no roles, no directives.
* In the copies for download, and only there, a cell before the first code cell installs what the kernel lacks, from the
  wheel beside the notebook or from the site. Where nothing is missing it does nothing.
* A notebook does not know where the site is. ``html_baseurl`` says so when the book is built; otherwise the page's script
  writes it into the copy that a reader downloads.
* One line at the foot of the page says all this.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from rlbook_lib.explore import dressed
from rlbook_lib.needs import NEED_TORCH

CELL_ID = "get-the-library"
ADDRESS = "@BOOK_WHEEL@"  # stands in a notebook for the address of the wheel until that is known
MADE_OF = ("rlbook_lib", "chapters/runs", "tools/bench/results", "pyproject.toml", "README.md", "LICENSE")  # the wheel
TORCH = re.compile(
    rf"^\s*(import|from) torch\b|\brlbook_lib(\.| import .*\b)({'|'.join(sorted(NEED_TORCH))})\b", re.MULTILINE
)

# How chapters write the folder of the benchmarks' results, and what a copy far from the book says instead.
RESULTS = [
    (re.compile(r'"\.\./tools/bench/results/(\w+\.json)"'), r'MEASURED + "/\1"'),
    (re.compile(r'\w+\.parent\.parent / "tools" / "bench" / "results"'), "Path(MEASURED)"),
]

CELL = """\
# Installs the book's library where this notebook runs without it, as on Colab; elsewhere this cell does nothing.
import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

NEEDED = {needed}
WHEEL, ADDRESS = "{wheel}", "{address}"  # the library's file, and where the book's site has it
if not all(map(find_spec, NEEDED)):
    if sys.version_info < (3, 11):
        raise RuntimeError(f"The book needs Python 3.11 or newer, and this is {{sys.version.split()[0]}}.")
    beside = [path for path in (Path(WHEEL), Path("../../_static", WHEEL)) if path.is_file()]
    if not (beside or ADDRESS.startswith("http") or find_spec("rlbook_lib")):
        raise ModuleNotFoundError(
            "This notebook needs the book's library. The foot of its page has the file: "
            f"put {{WHEEL}} into {{Path.cwd()}} and run this cell again."
        )
    source = beside[0].resolve().as_uri() if beside else ADDRESS
    wanted = "rlbook-lib{extra}" + ("" if find_spec("rlbook_lib") else f" @ {{source}}")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", wanted], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"The book's library could not be installed. What pip says:\\n{{done.stderr}}")
    importlib.invalidate_caches()
"""

MEASURED = """
# What the benchmarks measured, which a cell below reads, came with the library.
LIBRARY = Path(find_spec("rlbook_lib").origin).parent
MEASURED = str(next(filter(Path.is_dir, (LIBRARY / "measured", LIBRARY.parent / "tools/bench/results"))))
"""

# The copy that a reader gets names the address that the page has now. From a disk, where pages may not read files, and
# without scripts, the link does what links do.
SCRIPT = (
    """<script>
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href$=".ipynb"]');
  const wheel = document.querySelector('a[href$=".whl"]');
  if (!link || !wheel || !location.protocol.startsWith("http")) return;
  event.preventDefault();
  fetch(link.href).then((answer) => answer.ok ? answer.text() : Promise.reject()).then((text) => {
    const copy = document.createElement("a");
    copy.href = URL.createObjectURL(new Blob([text.replace("%s", wheel.href)]));
    copy.download = link.pathname.split("/").pop();
    copy.click();
  }).catch(() => location.assign(link.href));
});
</script>"""
    % ADDRESS
)


# ---------------------------------------------------------------- the wheel


def wheel_name(root: Path) -> str:
    """The file name of the wheel that the project's settings make."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return f"{project['name'].replace('-', '_')}-{project['version']}-py3-none-any.whl"


def build_wheel(root: Path, folder: Path) -> Path:
    """Build the library's wheel into a folder, from a copy of what it is made of, with the same bytes each time.

    Raises:
        RuntimeError: the build failed; holds what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        for name in MADE_OF:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, copy / name)
        for path in copy.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
        command = [sys.executable, "-c", code, str(folder.resolve())]
        environment = os.environ | {"SOURCE_DATE_EPOCH": "1577836800"}  # the first second of 2020
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the library's wheel could not be built:\n{done.stderr[-2000:]}")
    return folder / wheel_name(root)


# ---------------------------------------------------------------- the notebooks


def cell_for(notebook: dict[str, Any], wheel: str, address: str = ADDRESS) -> str:
    """The source of the cell that gets what this notebook imports."""
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    deep = bool(TORCH.search(code))
    needed = ["rlbook_lib", "torch"] if deep else ["rlbook_lib"]
    extra = "[deep]" if deep else ""
    return CELL.format(needed=json.dumps(needed), wheel=wheel, address=address, extra=extra).rstrip("\n")


def add_cell(path: Path, wheel: str, address: str = ADDRESS) -> None:
    """Put the cell before the first code cell of a notebook, in place; a notebook that has it stays as it is.

    Where the notebook reads what the benchmarks measured, it reads what came with the library.
    """
    notebook = json.loads(path.read_text("utf-8"))
    cells = notebook["cells"]
    if any(cell.get("id") == CELL_ID for cell in cells):
        return
    text = cell_for(notebook, wheel, address)
    if read_elsewhere(notebook):
        text += "\n" + MEASURED.rstrip("\n")
    cell = {"cell_type": "code", "execution_count": None, "id": CELL_ID, "metadata": {}, "outputs": []}
    for data in (output.get("data", {}) for cell in cells for output in cell.get("outputs", [])):
        if "text/html" in data:  # on Colab each output stands alone
            data["text/html"] = dressed("".join(data["text/html"]))
    first = next((number for number, cell in enumerate(cells) if cell["cell_type"] == "code"), len(cells))
    cells.insert(first, {**cell, "source": text.splitlines(keepends=True)})
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_elsewhere(notebook: dict[str, Any]) -> bool:
    """Let code cells read the benchmarks' results from ``MEASURED``, in place; whether any does."""
    changed = False
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            before = text = "".join(cell["source"])
            for pattern, instead in RESULTS:
                text = pattern.sub(instead, text)
            if text != before:
                cell["source"], changed = text.splitlines(keepends=True), True
    return changed


# ---------------------------------------------------------------- the site


def serves_the_library(app: Sphinx) -> bool:
    """Whether this is the whole book, and not a trial of a few pages."""
    return app.builder.format == "html" and all((Path(app.srcdir) / name).exists() for name in MADE_OF)


def add_line(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """At the foot of a page that offers notebooks: how to run them."""
    if doctree is None or not serves_the_library(app):
        return
    wheel = wheel_name(Path(app.srcdir))
    library = f'<a href="{context["pathto"]("_static/" + wheel, 1)}" download>{wheel}</a>'
    if context.get("page_source_suffix") == ".ipynb":
        source = context["pathto"]("_sources/" + context["sourcename"], 1)
        line = f'To run this page: <a href="{source}" download>download it as a notebook</a>. Its first code cell'
    elif any(node["reftarget"].endswith(".ipynb") for node in doctree.findall(is_download)):
        line = "The first code cell of each notebook"
    else:
        return
    context["body"] += (
        f'<p class="book-run">{line} installs the book\'s library, {library}, where it is missing. '
        f'<a href="{context["pathto"]("chapters/run_it_yourself")}">All ways to run it.</a></p>\n{SCRIPT}'
    )


def is_download(node: nodes.Node) -> bool:
    return type(node).__name__ == "download_reference"


def finish(app: Sphinx, error: Exception | None) -> None:
    """The wheel, and the cell in every notebook that the site offers."""
    if error or not serves_the_library(app):
        return
    root, site = Path(app.srcdir), Path(app.outdir)
    wheel = build_wheel(root, site / "_static")
    base = app.config.html_baseurl
    address = f"{base.rstrip('/')}/_static/{wheel.name}" if base else ADDRESS
    sys.path.append(str(root / "tools"))
    from lab_copy import Book, plain_notebook

    book = Book(root)
    for path in site.glob("_sources/chapters/*.ipynb"):
        plain_notebook(path, book)
    for path in [*site.glob("_sources/**/*.ipynb"), *site.glob("_downloads/**/*.ipynb")]:
        add_cell(path, wheel.name, address)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_line, priority=980)
    app.connect("build-finished", finish, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
