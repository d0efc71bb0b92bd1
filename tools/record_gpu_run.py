"""Record the GPU runs of chapters, so that readers without a GPU see them.

    python tools/record_gpu_run.py chapters/10_ppo.ipynb                              on a machine with a GPU
    python tools/record_gpu_run.py chapters/10_ppo.ipynb --device cpu --output DIR    a rehearsal

Of each notebook it executes the first code cell, which imports, and then the cells with the tag ``gpu-run``. What their
calls of ``gpu_run`` return is written to NAME.json below chapters/recordings: config, seeds, device, versions, date,
seconds, curve, summary. A rehearsal on a CPU says so in its files, and is never written below chapters.

It needs torch, numpy, scipy and gymnasium only, and runs from a plain checkout. An import that fails, matplotlib's say,
is left out: the tagged cells compute, and draw nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = ROOT / "chapters"
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from rlbook_lib import devices  # noqa: E402


def cells_to_run(path: Path) -> list[str]:
    """Sources of the first code cell and of the cells tagged ``gpu-run``."""
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    tagged = [cell for cell in cells if "gpu-run" in cell["metadata"].get("tags", [])]
    if not tagged:
        raise SystemExit(f"{path}: no cell has the tag gpu-run")
    return ["".join(cell["source"]) for cell in [cells[0], *(cell for cell in tagged if cell is not cells[0])]]


def run_imports(source: str, names: dict[str, Any]) -> None:
    """Execute a cell statement by statement; an import of something that is not installed is left out."""
    for statement in ast.parse(source).body:
        try:
            exec(compile(ast.Module([statement], []), "first code cell", "exec"), names)
        except (ImportError, NameError) as error:
            print(f"left out: {ast.unparse(statement)}: {error}", file=sys.stderr)


def record(path: Path, device: torch.device, folder: Path) -> list[Path]:
    """Run a notebook's GPU cells, write what they return, and say where."""
    written: list[Path] = []

    def recording_run(name: str, experiment: Any, *, summary: Any = None) -> dict[str, Any]:
        made = devices.make_record(name, experiment, device)
        target = folder / f"{name}.json"
        target.write_text(json.dumps(made, indent=1, allow_nan=False) + "\n", "utf-8")
        written.append(target)
        return made

    names: dict[str, Any] = {"__name__": "__main__"}
    imports, *tagged = cells_to_run(path)
    original, where = devices.gpu_run, Path.cwd()
    devices.gpu_run = recording_run
    os.chdir(path.parent)  # as in a kernel, which starts there
    try:
        run_imports(imports, names)
        for source in tagged:
            exec(compile(source, f"{path.name}, gpu-run", "exec"), names)
    finally:
        devices.gpu_run = original
        os.chdir(where)
    if not written:
        raise SystemExit(f"{path}: the cells with the tag gpu-run never called gpu_run")
    return written


def main(arguments: list[str] | None = None) -> None:
    """Record every notebook that was named."""
    parser = argparse.ArgumentParser(description="Record the GPU runs of chapters.")
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal")
    parser.add_argument("--output", type=Path, default=devices.RECORDINGS, help="folder for the files")
    options = parser.parse_args(arguments)
    try:
        device = devices.choose_device(options.device)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    folder = options.output.resolve()
    if device.type != "cuda" and folder.is_relative_to(CHAPTERS):
        raise SystemExit("a rehearsal on a CPU is not written below chapters: name another folder with --output")
    folder.mkdir(parents=True, exist_ok=True)
    for path in options.notebooks:
        for target in record(path.resolve(), device, folder):
            print(f"{path} -> {target}")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main()
