"""Run the tests in stages and say at the end what passed: what `make test`, `make quick`, `make test-portable` and `make test-grader` call.

A stage that fails does not stop the later ones, so that one run shows all there is to see; the exit code is 1 if any
stage failed. The output of each stage is also kept in ``_build/test-logs``.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "_build" / "test-logs"
PYTEST = [sys.executable, "-m", "pytest", "-q", "--color=no"]
CLOSING_LINE = re.compile(r"^=* ?(\d+ (?:passed|failed|error|skipped|deselected).*?) ?=*$", re.MULTILINE)


@dataclass
class Stage:
    """One command, what it does in words, and how it ended."""

    name: str
    says: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    ahead: bool = False  # starts with the first stage; its output is shown when its turn comes
    seconds: float = 0.0
    code: int = 0
    closing: str = ""


def unit_stage(processes: str, quick: bool) -> Stage:
    selection = ["-m", "not slow"] if quick else []
    left_out = ["--ignore=tests/book", "--ignore=tests/assignments"]
    command = [*PYTEST, "tests", *left_out, "-n", processes, "--dist", "loadfile", "--durations=5", *selection]
    return Stage("unit", "the library's tests" + (", the quick ones" if quick else ""), command)


def grader_stage(processes: str, slow: bool) -> Stage:
    selection = ["-m", "slow" if slow else "not slow"]
    command = [*PYTEST, "tests/assignments", "-n", processes, "--dist", "loadfile", "--durations=5", *selection]
    return Stage(
        "grader", "the grader's tests" + (", the slow ones: attacks, kills, full disks" if slow else ""), command
    )


def grader_stages(processes: str, workers: str) -> list[Stage]:
    """What takes minutes and needs the sandbox."""
    round_trip = [sys.executable, "tools/round_trip.py", "--workers", workers]
    return [
        grader_stage(processes, slow=True),
        Stage("course", "forty submissions of every assignment, from release to grades", round_trip),
    ]


def notebooks_stage(processes: str, keep_seconds: bool) -> Stage:
    found = [*(ROOT / "chapters").glob("*.ipynb"), *(ROOT / "assignments").glob("[0-9]*/*.ipynb")]
    # the later a chapter, the longer it trains: those first, so that no worker is left with one at the end
    notebooks = sorted(
        (str(path.relative_to(ROOT)) for path in found),
        key=lambda name: (name.startswith("chapters"), name),
        reverse=True,
    )
    nbval = ["--nbval", "--nbval-current-env", "-p", "numeric_outputs"]
    if keep_seconds:  # for the last stage, which compares them with the limit
        nbval += ["-p", "notebook_seconds"]
    return Stage(
        "notebooks",
        "every chapter and assignment is executed and its outputs are compared with the stored ones, number by number",
        [*PYTEST, *nbval, "-n", processes, "--dist", "loadfile", "--no-loadscope-reorder", *notebooks],
        {"PYTHONPATH": str(ROOT / "tests" / "book")},
    )


def stages(processes: str) -> list[Stage]:
    """All stages in order: library, notebooks, build, pages."""
    return [
        unit_stage(processes, quick=False),
        grader_stage(processes, slow=False),
        notebooks_stage(processes, keep_seconds=True),
        # a single process: it takes what the stages before leave of the cores
        Stage("build", "the book, built with warnings as errors", ["nice", "-n", "19", "make", "book"], ahead=True),
        Stage(
            "book",
            "the notebooks' form, the built pages, and every page in a browser",
            [*PYTEST, "tests/book", "-n", processes, "--dist", "loadfile"],
        ),
    ]


def portable_stages(processes: str) -> list[Stage]:
    """What computes numbers, as on a processor without today's vector instructions: other roundings in the sixteenth digit."""
    found = [unit_stage(processes, quick=False), notebooks_stage(processes, keep_seconds=False)]
    for stage in found:
        stage.environment |= plain_processor()
    return found


def plain_processor() -> dict[str, str]:
    """Settings that hide what a processor can do beyond its family's common ground, one for each library that would use it."""
    from numpy._core._multiarray_umath import __cpu_dispatch__  # the names that this numpy may be told to leave out

    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__),
        "ATEN_CPU_CAPABILITY": "default",  # torch
        "ONEDNN_MAX_CPU_ISA": "SSE41" if is_x86 else "DEFAULT",  # torch's layers
        "MKL_CBWR": "COMPATIBLE",  # torch's linear algebra
        "OPENBLAS_CORETYPE": "Nehalem" if is_x86 else "ARMV8",  # numpy's and scipy's
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",  # exp, log, sin of Python
    }


def run(stage: Stage, started: subprocess.Popen[str] | None = None) -> None:
    """Run one stage, or wait for it if it was started before; its output goes to the terminal and to a log file."""
    print(f"\n=== {stage.name}: {stage.says}", flush=True)
    began = time.monotonic()
    process = started or start(stage)
    lines = []
    with log(stage).open(encoding="utf-8", errors="replace") as file:
        while True:
            ended = process.poll() is not None
            for line in file:
                sys.stdout.write(line)
                lines.append(line)
            sys.stdout.flush()
            if ended:
                break
            time.sleep(0.2)
    stage.code = process.returncode
    stage.seconds = time.monotonic() - began
    closings = CLOSING_LINE.findall("".join(lines))
    stage.closing = closings[-1] if closings else ""


def start(stage: Stage) -> subprocess.Popen[str]:
    with log(stage).open("w", encoding="utf-8") as file:
        return subprocess.Popen(
            stage.command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | stage.environment,
        )


def log(stage: Stage) -> Path:
    return LOGS / f"{stage.name}.log"


def summary(done: list[Stage]) -> str:
    rows = [f"{'stage':<11}{'result':<9}{'seconds':>8}   counts", "-" * 70]
    for stage in done:
        result = "passed" if stage.code == 0 else "FAILED"
        counts = re.sub(r" in [\d.]+s.*", "", stage.closing)
        rows.append(f"{stage.name:<11}{result:<9}{stage.seconds:>8.0f}   {counts}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the book's tests in stages.")
    parser.add_argument("--quick", action="store_true", help="only the unit tests that are not marked slow")
    parser.add_argument(
        "--portable", action="store_true", help="unit tests and notebooks with the processor's features hidden"
    )
    parser.add_argument("--grader", action="store_true", help="the grader's long tests")
    parser.add_argument("--workers", type=int, default=2, help="how many cores to keep busy (default: 2)")
    options = parser.parse_args()
    # a third of a test's time it waits: for a browser, a kernel, a process that was killed
    processes, workers = str(options.workers + 1), str(options.workers)
    os.chdir(ROOT)
    LOGS.mkdir(parents=True, exist_ok=True)
    # Chromium keeps crash reports in its configuration folder: let that be ours, not the home's
    os.environ["XDG_CONFIG_HOME"] = str(LOGS.parent / "config")
    if options.quick:
        done = [unit_stage(processes, quick=True)]
    elif options.portable:
        done = portable_stages(processes)
    else:
        done = grader_stages(processes, workers) if options.grader else stages(processes)
    started = {stage.name: start(stage) for stage in done if stage.ahead}
    for stage in done:
        run(stage, started.get(stage.name))
    print(f"\n=== summary\n{summary(done)}")
    failed = [stage.name for stage in done if stage.code != 0]
    print(f"\nFAILED: {', '.join(failed)}; logs in {LOGS.relative_to(ROOT)}" if failed else "\nAll passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
