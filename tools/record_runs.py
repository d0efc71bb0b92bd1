"""Remake the many-seed runs that pages show: what a page's curves are drawn from is stored, and this is how it was made.

    python tools/record_runs.py                     all of tools/runs, two processes
    python tools/record_runs.py ppo_cartpole        only this one
    python tools/record_runs.py --seeds 2 ppo_cartpole --output DIR      a rehearsal
    python tools/record_runs.py --backend dask       on the cluster whose scheduler is named in DASK_SCHEDULER_ADDRESS

A file of ``tools/runs`` defines ``SEEDS``, ``CASES`` (name -> keyword arguments) and ``run(seed, **case)``, which returns
curves by name, a list of numbers each. The result is ``chapters/runs/NAME.json``; ``rlbook_lib.evaluation.stored_runs`` reads
it. A case and seed that is in the file already is not run again, unless its arguments changed: delete the file, and its folder below
``_build/runs``, to start anew. After a kill only the runs under way are lost.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from rlbook_lib.evaluation import keep_run, kept_run, sweep

ROOT = Path(__file__).resolve().parent.parent
SPECS = ROOT / "tools" / "runs"
PARTS = ROOT / "_build" / "runs"


def load(name: str) -> ModuleType:
    """The file of ``tools/runs`` as a module."""
    spec = importlib.util.spec_from_file_location(name, SPECS / f"{name}.py")
    if spec is None or spec.loader is None or not (SPECS / f"{name}.py").exists():
        raise ValueError(f"name is {name!r}; expected one of {sorted(path.stem for path in SPECS.glob('*.py'))}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(name: str, seeds: list[int] | None, folder: Path, workers: int, backend: str = "loky") -> Path:
    """Run what is missing, each run into a file of its own below the parts folder, then all of them into one record."""
    module, path = load(name), folder / f"{name}.json"
    seeds = list(module.SEEDS) if seeds is None else seeds
    old = json.loads(path.read_text("utf-8")) if path.exists() else {"cases": {}}
    known, arguments = old["cases"], json.loads(json.dumps(module.CASES))
    parts = PARTS / name
    for case, rows in known.items():  # what the record holds already
        for seed, run in rows["runs"].items():
            keep_run(parts, {"case": case, "seed": int(seed), "arguments": rows["arguments"], **run})
    sweep(module.run, module.CASES, seeds, folder=parts, workers=workers, backend=backend)
    made = {
        "command": f"python tools/record_runs.py {name}",
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("numpy", "torch")},
        "processor": platform.machine(),
    }
    others = {
        case: {int(seed) for seed in known[case]["runs"]}
        for case in known
        if known[case]["arguments"] == arguments.get(case)
    }
    cases = {
        case: {
            "arguments": given,
            "runs": {
                str(seed): {key: kept_run(parts, case, seed)[key] for key in ("curves", "cpu_seconds")}
                for seed in sorted({*seeds, *others.get(case, ())})
            },
        }
        for case, given in arguments.items()
    }
    is_old = all({*seeds} <= others.get(case, set()) for case in arguments)
    write(path, {"made": old["made"] if is_old else made, "cases": cases})  # old numbers keep their origin
    return path


def write(path: Path, data: dict[str, Any]) -> None:
    """Numbers with six digits, one run a line; renamed into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = json.loads(json.dumps(data), parse_float=lambda text: float(f"{float(text):.6g}"))
    lines = json.dumps({**rounded, "cases": {}})[: -len('"cases": {}}')]
    body = ",\n".join(
        f' {json.dumps(case)}: {{"arguments": {json.dumps(rows["arguments"])}, "runs": {{\n'
        + ",\n".join(
            f"  {json.dumps(seed)}: {json.dumps(run)}"
            for seed, run in sorted(rows["runs"].items(), key=lambda x: int(x[0]))
        )
        + "\n }}"
        for case, rows in rounded["cases"].items()
    )
    part = path.with_suffix(".part")
    part.write_text(f'{lines}"cases": {{\n{body}\n}}}}\n', "utf-8")
    os.replace(part, path)


def main() -> int:
    parser = argparse.ArgumentParser(description="Remake the many-seed runs that pages show.")
    parser.add_argument("names", nargs="*", help="default: all of tools/runs")
    parser.add_argument("--seeds", type=int, help="only so many of the seeds")
    parser.add_argument("--output", type=Path, default=ROOT / "chapters" / "runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--backend",
        default="loky",
        choices=["loky", "sequential", "dask", "ray"],
        help="where the runs run; default: processes here",
    )
    options = parser.parse_args()
    if options.backend == "dask":
        from distributed import Client

        Client()  # of the scheduler in DASK_SCHEDULER_ADDRESS, else a cluster of this machine's cores
    for name in options.names or sorted(path.stem for path in SPECS.glob("*.py")):
        seeds = None if options.seeds is None else list(load(name).SEEDS)[: options.seeds]
        print(record(name, seeds, options.output, options.workers, options.backend).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
