"""Record the GPU runs of chapters, so that readers without a GPU see them.

    python tools/record_gpu_run.py chapters/10_ppo_deeper.ipynb                       on a machine with a GPU
    python tools/record_gpu_run.py chapters/*_deeper.ipynb --device cpu --small --output DIR    a rehearsal of all, in a minute

Of each notebook it executes the first code cell, which imports, and then the cells with the tag ``gpu-run``; a notebook
without them is passed over. What their calls of ``gpu_run`` return is written to NAME.json below chapters/recordings: config,
seeds, device, versions, date, seconds, curve, summary. A rehearsal, on a CPU or small, says so in its files, and is never
written below chapters.

It needs torch, numpy, scipy and gymnasium only, and runs from a plain checkout. An import that fails, matplotlib's say,
is left out: the tagged cells compute, and draw nothing. Where it is there, what a page's curve shows is printed in words.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = ROOT / "chapters"
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from rlbook_lib import devices  # noqa: E402
from rlbook_lib.fine_tuning import SFTConfig  # noqa: E402
from rlbook_lib.language_model import TransformerConfig  # noqa: E402
from rlbook_lib.rlhf import RLHFConfig  # noqa: E402
from rlbook_lib.text_tasks import Sorting  # noqa: E402

# ``--small``: other arguments of the experiments, by the name of the recording.
SMALL: dict[str, dict[str, Any]] = {
    "dqn-many-carts": {"copies": 16, "batch": 64, "updates": 40, "seeds": (0, 1)},
    "trpo-cartpole": {"copies": 8, "steps": 8, "updates": 2, "seeds": (0, 1)},
    "ppo_cartpole": {"copies": (4, 8), "updates": 2, "seeds": (0, 1)},
    "rlhf-large": {
        "size": {
            "task": Sorting(shortest=3, longest=4),
            "model": TransformerConfig(width=32, layers=1, heads=2),
            "sft": SFTConfig(updates=4, batch_size=16),
            "rlhf": RLHFConfig(updates=4, batch_size=16, evaluate_every=2),
            "matrix": 64,
        }
    },
    "grpo_sorting": {
        **{"width": 32, "layers": 1, "digits": (3, 4), "steps": 4, "updates": 2},
        **{"prompts": 8, "group": 4, "size": 64, "count": 16},
    },
}


def cells_to_run(path: Path) -> list[str]:
    """Sources of the first code cell and of the cells tagged ``gpu-run``; none without such cells."""
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    tagged = [cell for cell in cells if "gpu-run" in cell["metadata"].get("tags", [])]
    if not tagged:
        return []
    return ["".join(cell["source"]) for cell in [cells[0], *(cell for cell in tagged if cell is not cells[0])]]


def run_imports(source: str, names: dict[str, Any]) -> None:
    """Execute a cell statement by statement; an import of something that is not installed is left out."""
    for statement in ast.parse(source).body:
        try:
            exec(compile(ast.Module([statement], []), "first code cell", "exec"), names)
        except (ImportError, NameError) as error:
            print(f"left out: {ast.unparse(statement)}: {error}", file=sys.stderr)


def record(path: Path, device: torch.device, folder: Path, small: bool = False) -> list[Path]:
    """Run a notebook's GPU cells, write what they return, and say where."""
    if not (sources := cells_to_run(path)):
        return []
    written: list[Path] = []

    def recording_run(name: str, experiment: Any, *, summary: Any = None) -> dict[str, Any]:
        how = partial(experiment, **SMALL[name]) if small else experiment
        made = devices.make_record(name, how, device)
        made["rehearsal"] |= small
        print(summary(made) if summary else f"{name}: {made['summary']}")
        target = folder / f"{name}.json"
        target.write_text(json.dumps(made, indent=1, allow_nan=False) + "\n", "utf-8")
        written.append(target)
        return made

    names: dict[str, Any] = {"__name__": "__main__"}
    imports, *tagged = sources
    original, where = devices.gpu_run, Path.cwd()
    devices.gpu_run = recording_run
    os.chdir(path.parent)  # as in a kernel, which starts there
    try:
        run_imports(imports, names)
        draw = names.get("show_record", lambda *what, **how: None)
        names["show_record"] = lambda *what, **how: print(f"curve: {getattr(draw(*what, **how), 'alt', 'not drawn')}")
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
    parser.add_argument("--small", action="store_true", help="a rehearsal of seconds, with SMALL's sizes")
    options = parser.parse_args(arguments)
    try:
        device = devices.choose_device(options.device)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    folder = options.output.resolve()
    if (device.type != "cuda" or options.small) and folder.is_relative_to(CHAPTERS):
        raise SystemExit("a rehearsal is not written below chapters: name another folder with --output")
    folder.mkdir(parents=True, exist_ok=True)
    made = {path: record(path.resolve(), device, folder, options.small) for path in options.notebooks}
    for path, targets in made.items():
        for target in targets:
            print(f"{path} -> {target}")
    if not any(made.values()):
        raise SystemExit(f"{', '.join(map(str, made))}: no cell has the tag gpu-run")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main()
