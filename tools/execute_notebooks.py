"""Execute notebooks in place and store normalized outputs.

    python tools/execute_notebooks.py                          all chapters
    python tools/execute_notebooks.py chapters/02_mdps.ipynb   only this one
    python tools/execute_notebooks.py --only-form              run nothing: the normal form only

Each notebook runs from top to bottom in a fresh kernel, in its own folder. What is stored does not depend on when or
where it ran: no widget state, no timings, fixed cell ids, and the kernel's data as Jupyter itself writes them, so that
to open and save a notebook changes nothing (but the version of Python, where another one is used). A notebook that fails is left as it was;
the failing cell and its error are printed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rlbook_lib.explore import undressed

CHAPTERS = ROOT / "chapters"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
KEPT_CELL_METADATA = {"tags", "mystnb", "editable", "deletable", "nbgrader"}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def read_notebook(path: Path) -> NotebookNode:
    """The notebook with an id on every cell: its own where it has one, else one made from its source."""
    notebook: NotebookNode = nbformat.from_dict(json.loads(path.read_text("utf-8")))  # type: ignore[no-untyped-call]
    if notebook.get("nbformat") != 4:
        raise ValueError(f"{path}: notebook format 4 expected, got {notebook.get('nbformat')}")
    notebook.nbformat_minor = 5
    taken = {cell["id"] for cell in notebook.cells if cell.get("id")}
    seen: set[str] = set()
    for cell in notebook.cells:
        if not cell.get("id") or cell["id"] in seen:
            source = cell.source if isinstance(cell.source, str) else "".join(cell.source)
            digest = hashlib.sha256(source.encode()).hexdigest()
            # the same source may stand in two cells: take the next slice of the digest
            cell["id"] = next(digest[i : i + 8] for i in range(40) if digest[i : i + 8] not in taken | seen)
        seen.add(cell["id"])
        if isinstance(cell.source, list):
            cell.source = "".join(cell.source)
    return notebook


def python_version(notebook: NotebookNode) -> str:
    """The version of Python that the notebook names; of this one where it names none."""
    stored = notebook.metadata.get("language_info", {}).get("version")
    return stored or platform.python_version()


def normalize(notebook: NotebookNode, version: str) -> NotebookNode:
    """Remove what depends on the run (timings, widget views and state), and what the site has once for all figures."""
    notebook.metadata = nbformat.from_dict(  # type: ignore[no-untyped-call]
        {"kernelspec": KERNEL, "language_info": LANGUAGE | {"version": version}}
    )
    count = 0
    for cell in notebook.cells:
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT_CELL_METADATA}
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
            if "data" in output:
                output.data.pop(WIDGET_VIEW, None)
                if "text/html" in output.data:
                    output.data["text/html"] = undressed("".join(output.data["text/html"]))
        # a bare widget (a progress bar without a text form) leaves nothing to store
        cell.outputs = [output for output in cell.outputs if output.get("data", True)]
    return notebook


def execute(path: Path, timeout: int, only_form: bool = False) -> float:
    """Run one notebook (or not), write it back in normal form, return the seconds it took."""
    notebook = read_notebook(path)
    version = python_version(notebook)  # the kernel overwrites it, and need not be the one of the last time
    began = time.monotonic()
    if not only_form:
        client = NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
            store_widget_state=False,
            record_timing=False,
            coalesce_streams=True,
        )
        client.execute()
    seconds = time.monotonic() - began
    text = nbformat.writes(normalize(notebook, version))  # type: ignore[no-untyped-call]
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_text(text if text.endswith("\n") else text + "\n", "utf-8")
        os.replace(partial, path)  # all or nothing
    finally:
        partial.unlink(missing_ok=True)
    return seconds


def failure_report(path: Path, error: Exception) -> str:
    """What failed and where, in plain text."""
    lines = [f"{path}: FAILED, the file is left as it was"]
    if isinstance(error, CellExecutionError):
        lines.append(ANSI.sub("", str(error)).strip())  # holds the cell's source and the traceback
    elif isinstance(error, CellTimeoutError):
        lines.append(f"a cell ran into the time limit: {ANSI.sub('', str(error)).strip()}")
    else:
        lines.append(f"{type(error).__name__}: {error}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Execute notebooks in place and store normalized outputs.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all notebooks under chapters/")
    parser.add_argument("--timeout", type=int, default=300, help="seconds a single cell may take (default: 300)")
    parser.add_argument("--only-form", action="store_true", help="run nothing, only write the normal form")
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted(CHAPTERS.glob("*.ipynb"))
    if not paths:
        print(f"no notebook found under {CHAPTERS}", file=sys.stderr)
        return 1
    failed = 0
    for path in paths:
        try:
            seconds = execute(path, options.timeout, options.only_form)
            print(f"{path}: {seconds:.1f} s", flush=True)
        except (CellExecutionError, CellTimeoutError, DeadKernelError, OSError, ValueError) as error:
            failed += 1
            print(failure_report(path, error), file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
