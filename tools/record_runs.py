"""Remake the many-seed runs that pages show: what a page's curves are drawn from is stored, and this is how it was made.

    python tools/record_runs.py                     all of tools/runs, two processes
    python tools/record_runs.py ppo_cartpole        only this one
    python tools/record_runs.py --seeds 2 ppo_cartpole --output DIR      a rehearsal

A file of ``tools/runs`` defines ``SEEDS``, ``CASES`` (name -> keyword arguments) and ``run(seed, **case)``, which returns
curves by name, a list of numbers each. The result is ``chapters/runs/NAME.json``; ``rlbook_lib.evaluation.stored_runs`` reads
it. A case and seed that is in the file already is not run again, unless its arguments changed: delete the file to
start anew. After a kill only the runs under way are lost.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SPECS = ROOT / "tools" / "runs"


def load(name: str) -> ModuleType:
    """The file of ``tools/runs`` as a module."""
    spec = importlib.util.spec_from_file_location(name, SPECS / f"{name}.py")
    if spec is None or spec.loader is None or not (SPECS / f"{name}.py").exists():
        raise ValueError(f"name is {name!r}; expected one of {sorted(path.stem for path in SPECS.glob('*.py'))}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_run(name: str, case: str, seed: int) -> dict[str, Any]:
    """One case with one seed, in a process of its own, on one thread."""
    began = time.process_time()
    module = load(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    curves = {curve: [float(x) for x in values] for curve, values in module.run(seed, **module.CASES[case]).items()}
    return {"curves": curves, "cpu_seconds": round(time.process_time() - began, 1)}


def record(name: str, seeds: list[int] | None, folder: Path, workers: int) -> Path:
    """Run what is missing and write after each run, all or nothing."""
    module, path = load(name), folder / f"{name}.json"
    seeds = list(module.SEEDS) if seeds is None else seeds
    arguments = json.loads(json.dumps(module.CASES))
    known = json.loads(path.read_text("utf-8")) if path.exists() else {"cases": {}}
    cases = {
        case: known["cases"][case] if known["cases"].get(case, {}).get("arguments") == given else {"arguments": given, "runs": {}}
        for case, given in arguments.items()
    }
    missing = [(case, seed) for case in cases for seed in seeds if str(seed) not in cases[case]["runs"]]
    made = {
        "command": f"python tools/record_runs.py {name}",
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("numpy", "torch")},
        "processor": platform.machine(),
    }
    with ProcessPoolExecutor(workers) as pool:  # each run on a core of its own
        waiting = {pool.submit(one_run, name, case, seed): (case, seed) for case, seed in missing}
        for done, future in enumerate(as_completed(waiting), start=1):
            case, seed = waiting[future]
            cases[case]["runs"][str(seed)] = future.result()
            write(path, {"made": made, "cases": cases})
            print(f"{name}: {case}, seed {seed}: {cases[case]['runs'][str(seed)]['cpu_seconds']} CPU-seconds ({done} of {len(missing)})", flush=True)
    return path


def write(path: Path, data: dict[str, Any]) -> None:
    """Numbers with six digits, one run a line; renamed into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = json.loads(json.dumps(data), parse_float=lambda text: float(f"{float(text):.6g}"))
    lines = json.dumps({**rounded, "cases": {}})[: -len('"cases": {}}')]
    body = ",\n".join(
        f" {json.dumps(case)}: {{\"arguments\": {json.dumps(rows['arguments'])}, \"runs\": {{\n"
        + ",\n".join(f"  {json.dumps(seed)}: {json.dumps(run)}" for seed, run in sorted(rows["runs"].items(), key=lambda x: int(x[0])))
        + "\n }}"
        for case, rows in rounded["cases"].items()
    )
    part = path.with_suffix(".part")
    part.write_text(f"{lines}\"cases\": {{\n{body}\n}}}}\n", "utf-8")
    os.replace(part, path)


def main() -> int:
    parser = argparse.ArgumentParser(description="Remake the many-seed runs that pages show.")
    parser.add_argument("names", nargs="*", help="default: all of tools/runs")
    parser.add_argument("--seeds", type=int, help="only so many of the seeds")
    parser.add_argument("--output", type=Path, default=ROOT / "chapters" / "runs")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    for name in options.names or sorted(path.stem for path in SPECS.glob("*.py")):
        seeds = None if options.seeds is None else list(load(name).SEEDS)[: options.seeds]
        print(record(name, seeds, options.output, options.workers).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
