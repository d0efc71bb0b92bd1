"""What a stored notebook must look like; each function returns the faults it found, in words."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import stored_figures
from numeric_text import tolerance_of
from stored_figures import is_figure, is_interactive

MAX_LINES, MAX_FOLDED_LINES = 25, 60  # of a cell that the reader sees; of one that is folded, such as a drawing
MAX_IGNORED = 0.15
IGNORE_TAGS = {"nbval-ignore-output", "nbval-skip", "nbval-raises-exception", "raises-exception"}
BOOK_TAGS = {*"acts hide-input hide-output remove-input remove-output remove-cell gpu-run runs below".split()}
NEGATIVE_ZERO = re.compile(r"(?<![\w)\].])[-\u2212]0(?:\.0*)?(?!\w|\.\d)")
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/<])/(?:home|root|tmp|work|usr|opt|var|mnt|private|Users)/\w|\b[A-Z]:\\\\")
WIDGETS = "application/vnd.jupyter.widget"

Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def code_cells(notebook: Notebook) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def tags(cell: dict[str, Any]) -> set[str]:
    return set(cell["metadata"].get("tags", []))


def ignored(cell: dict[str, Any]) -> bool:
    return bool(tags(cell) & IGNORE_TAGS)


def length_faults(notebook: Notebook) -> list[str]:
    """Cells longer than a screen; a folded cell may be longer."""
    faults = []
    for cell in code_cells(notebook):
        count = len(cell["source"].rstrip().splitlines())
        most = MAX_FOLDED_LINES if tags(cell) & {"hide-input", "remove-input", "hide-cell"} else MAX_LINES
        if count > most:
            faults.append(f"cell {cell['id']} has {count} lines, at most {most} are allowed")
    return faults


def folded_faults(notebook: Notebook) -> list[str]:
    """Two folded bars in a row say nothing: what belongs together is one cell."""
    pairs = zip(notebook["cells"], notebook["cells"][1:])
    folded = "hide-input"
    return [
        f"cells {one['id']} and {two['id']} are folded one after the other: make them one"
        for one, two in pairs
        if folded in tags(one) and folded in tags(two) and not one["outputs"]
    ]


def import_faults(notebook: Notebook) -> list[str]:
    """The first code cell imports and sets the style, no more."""
    first = code_cells(notebook)[0]
    allowed = (ast.Import, ast.ImportFrom, ast.Expr)
    return [
        f"the first cell does more than import: {ast.unparse(node)}"
        for node in ast.parse(first["source"]).body
        if not isinstance(node, allowed)
        or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call | ast.Constant))
    ]


def ignored_faults(notebook: Notebook) -> list[str]:
    """Few outputs are left out of the comparison, and the next cell asserts their band."""
    cells = code_cells(notebook)
    left_out = [index for index, cell in enumerate(cells) if ignored(cell)]
    faults = []
    if len(left_out) > MAX_IGNORED * len(cells):
        faults.append(f"{len(left_out)} of {len(cells)} cells are not compared, at most {MAX_IGNORED:.0%} may be")
    for index in left_out:
        following = cells[index + 1]["source"] if index + 1 < len(cells) else ""
        if "assert" not in following:
            faults.append(f"cell {cells[index]['id']} is not compared, and the next cell asserts nothing")
    return faults


def output_faults(notebook: Notebook) -> list[str]:
    """Every cell ran, in order, without error, without a word on stderr."""
    faults = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        if cell["execution_count"] != number:
            faults.append(
                f"cell {cell['id']} is number {number} and was executed as {cell['execution_count']}: run `make execute`"
            )
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                faults.append(f"cell {cell['id']} holds an error: {output['ename']}")
            if output.get("name") == "stderr":
                faults.append(f"cell {cell['id']} writes to stderr: {''.join(output['text'])[:80]!r}")
    return faults


def tag_faults(notebook: Notebook) -> list[str]:
    """Every tag is a known one, and a tolerance stands where outputs are compared."""
    faults = []
    for cell in code_cells(notebook):
        tolerances = {tag for tag in tags(cell) if tag.startswith("tolerance")}
        unknown = sorted(tags(cell) - BOOK_TAGS - IGNORE_TAGS - tolerances)
        faults += [f"cell {cell['id']}: unknown tag {tag!r}" for tag in unknown]
        try:
            tolerance_of(tolerances)
        except ValueError as error:
            faults.append(f"cell {cell['id']}: {error}")
        if tolerances and ignored(cell):
            faults.append(f"cell {cell['id']} has a tolerance and is not compared")
    return faults


def negative_zero_faults(notebook: Notebook) -> list[str]:
    """No cell prints -0.00: whether a zero has a sign depends on the processor; the format ``z.2f`` leaves it out."""
    written = [(cell["id"], text) for cell in code_cells(notebook) for text in texts(cell) if not is_figure(text)]
    written += [
        (name, text)
        for name, html in html_outputs(notebook)
        if is_figure(html)
        for text in stored_figures.written(html)
    ]
    return [f"cell {name} prints {found}" for name, text in written for found in NEGATIVE_ZERO.findall(text)]


def unseen_faults(notebook: Notebook) -> list[str]:
    """A figure is what its cell ends with: before another line it is drawn and never seen."""
    return [
        f"cell {cell['id']}: {ast.unparse(node.value.func)}(...) is not the last line, so nothing is shown"
        for cell in code_cells(notebook)
        for node in ast.parse(cell["source"]).body[:-1]
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in {"show", "explore"}
    ]


def undrawn_faults(notebook: Notebook) -> list[str]:
    """A cell that ends with a figure holds it: without a stored output the page has none."""
    drawn = {name for name, _ in html_outputs(notebook)}
    return [
        f"cell {cell['id']}: its figure is not stored: run `make execute`"
        for cell in code_cells(notebook)
        for node in ast.parse(cell["source"]).body[-1:]
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in {"show", "explore"}
        and cell["id"] not in drawn
    ]


def silent_faults(notebook: Notebook) -> list[str]:
    """Whoever cannot see the picture hears what a control did: the line below an interactive figure changes with each of them."""
    faults = []
    for name, html in html_outputs(notebook):
        if is_figure(html) and is_interactive(html):
            data = stored_figures.data_of(html)
            heard = {control for change in data["changes"] if change[1] == "#readout" for control in change[2]}
            silent = sorted(set(range(len(data["sizes"]))) - heard)
            faults += [
                f"cell {name}: the sentence that update returns does not change with control {number + 1}"
                for number in silent
            ]
    return faults


def leftover_faults(notebook: Notebook) -> list[str]:
    """No widget state, no timings, no paths of a machine, ids on all cells."""
    faults = []
    if set(notebook["metadata"]) - {"kernelspec", "language_info"}:
        faults.append(f"notebook metadata: {sorted(notebook['metadata'])}")
    if notebook["metadata"].get("kernelspec", {}).get("name") != "python3":
        faults.append("the kernel is not python3")
    ids = [cell.get("id") for cell in notebook["cells"]]
    if None in ids or len(set(ids)) != len(ids):
        faults.append("cell ids are missing or repeated")
    text = json.dumps(notebook, ensure_ascii=False)
    if WIDGETS in text:
        faults.append("widget state or views are stored: run `make execute`")
    for cell in notebook["cells"]:
        extra = set(cell["metadata"]) - {"tags", "mystnb", "editable", "deletable"}
        if extra:
            faults.append(f"cell {cell['id']}: metadata {sorted(extra)}")
        for part in [cell["source"], *texts(cell)]:
            if ABSOLUTE_PATH.search(part):
                faults.append(f"cell {cell['id']} holds an absolute path: {ABSOLUTE_PATH.search(part)!r}")
    return faults


def fence_faults(notebook: Notebook) -> list[str]:
    """A box begins a line: behind a sentence it is no box, and its source shows on the page."""
    return [
        f"cell {cell['id']}: a fence stands behind text: {line[:60]!r}"
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
        for line in cell["source"].split("\n")
        if re.search(r"[^\s`>] *```+\{", line)
    ]


def texts(cell: dict[str, Any]) -> list[str]:
    """The text outputs of a cell."""
    found = []
    for output in cell.get("outputs", []):
        found.append("".join(output.get("text", "")))
        for kind, value in output.get("data", {}).items():
            if kind.startswith("text/"):
                found.append("".join(value))
    return found


def html_outputs(notebook: Notebook) -> list[tuple[str, str]]:
    """Cell id and HTML of every HTML output, in order."""
    return [
        (cell["id"], "".join(output["data"]["text/html"]))
        for cell in code_cells(notebook)
        for output in cell["outputs"]
        if "text/html" in output.get("data", {})
    ]


ALL = [
    length_faults,
    import_faults,
    ignored_faults,
    output_faults,
    tag_faults,
    negative_zero_faults,
    unseen_faults,
    undrawn_faults,
    silent_faults,
    leftover_faults,
    fence_faults,
]
