"""What the benchmarks share: one thread, alternated repeats in CPU seconds, and a record of the machine.

Import this module before numpy: it fixes the number of threads.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"  # the same for JAX

import importlib.metadata
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
if "--peers" in sys.argv:  # a folder with peers: at the end of the path, so that what the book uses stays what it is
    sys.path.append(sys.argv[sys.argv.index("--peers") + 1])


def cpu_seconds(
    cases: Mapping[str, Callable[[], Any]], repeats: int = 5
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Time every case ``repeats`` times, taking turns, so that a busy moment of the machine hits all of them.

    Args:
        cases: name to function without arguments.
        repeats: rounds, at least 5; one more round first warms caches and compilers up.

    Returns:
        Name to the CPU seconds of each round, and name to what the function returned last.
    """
    if repeats < 5:
        raise ValueError(f"repeats must be at least 5, got {repeats}")
    results = {name: run() for name, run in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, run in cases.items():
            begin = time.process_time()
            results[name] = run()
            seconds[name].append(time.process_time() - begin)
    return seconds, results


def first_calls(cases: Mapping[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
    """CPU seconds of the first call of every case, compilers included, and how many cores the second one keeps busy."""
    found = {}
    for name, run in cases.items():
        start = time.process_time()
        run()
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        wall, busy = time.perf_counter() - wall, time.process_time() - cpu
        found[name] = {"first_call_s": round(cpu - start, 4), "cores": round(busy / wall, 2)}
    return found


def cold_seconds(command: Sequence[str], cwd: str | None = None, **environment: str) -> float:
    """User and system CPU seconds of a new Python process with these arguments and these variables besides."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, cwd=cwd, env={**os.environ, **environment})
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median, fastest and slowest of some timings, in seconds."""
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "max_s": max(seconds)}


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """The processor, its cores and the versions that took part."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of equal keys as a text table with a header line."""
    names = list(rows[0])
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in names]
    lines = [[name.ljust(width) for name, width in zip(names, widths)], ["-" * width for width in widths]]
    lines += [[row[name].rjust(width) for name, width in zip(names, widths)] for row in rows]
    return "\n".join("  ".join(line) for line in lines)


def save(name: str, record: Mapping[str, Any]) -> None:
    """Write a record to ``results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
