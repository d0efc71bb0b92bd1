"""Run the tests in stages and say at the end what passed: what `make test`, `make quick`, `make test-portable` and `make test-grader` call.

Stages run beside each other where they can, so that none is left alone with a core that waits; each is shown when its turn
comes. One that fails does not stop the later ones, so that one run shows all there is to see; the exit code is 1 if any
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
    after: str = ""  # the stage that must have ended before this one starts; none: it starts at once
    process: subprocess.Popen[str] | None = None
    began: float = 0.0
    seconds: float = 0.0
    processor: float = 0.0  # seconds of it and of all that it started and waited for
    code: int | None = None
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
        Stage("course", "every known answer to every question, right and wrong, from release to grades", round_trip),
    ]


def notebooks_stage(processes: str, limited: bool) -> Stage:
    found = [*(ROOT / "chapters").glob("*.ipynb"), *(ROOT / "assignments").glob("[0-9]*/*.ipynb")]
    # the later a chapter, the longer it trains: those first, so that no worker is left with one at the end
    notebooks = sorted(
        (str(path.relative_to(ROOT)) for path in found),
        key=lambda name: (name.startswith("chapters"), name),
        reverse=True,
    )
    nbval = ["--nbval", "--nbval-current-env", "-p", "numeric_outputs"]
    if limited:  # none may take longer than its limit
        nbval += ["-p", "notebook_seconds"]
    return Stage(
        "notebooks",
        "every chapter and assignment is executed and its outputs are compared with the stored ones, number by number",
        [*PYTEST, *nbval, "-n", processes, "--dist", "loadfile", "--no-loadscope-reorder", *notebooks],
        {"PYTHONPATH": str(ROOT / "tests" / "book")},
    )


def stages(processes: str, workers: str) -> list[Stage]:
    """In two rows that run beside each other: the build and the pages, the notebooks and the rest."""
    grader = grader_stage(processes, slow=False)
    grader.after = "notebooks"
    unit = unit_stage(processes, quick=False)
    unit.after = "grader"
    build = Stage("build", "the book, built with warnings as errors", ["make", "book"])
    says = "the notebooks' form, the built pages, and every page in a browser"
    book = Stage("book", says, [*PYTEST, "tests/book", "-n", workers, "--dist", "loadfile"], after="build")
    return [build, notebooks_stage(workers, limited=True), grader, book, unit]


def portable_stages(processes: str) -> list[Stage]:
    """What computes numbers, as on a processor without today's vector instructions: other roundings in the sixteenth digit."""
    found = [unit_stage(processes, quick=False), notebooks_stage(processes, limited=False)]
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


def run(done: list[Stage]) -> None:
    """Run the stages, each as soon as it can start, and show their output one after the other."""
    for stage in done:
        print(f"\n=== {stage.name}: {stage.says}", flush=True)
        while stage.process is None:
            step(done)
        lines = []
        with log(stage).open(encoding="utf-8", errors="replace") as file:
            while True:
                ended = stage.code is not None
                for line in file:
                    sys.stdout.write(line)
                    lines.append(line)
                sys.stdout.flush()
                if ended:
                    break
                step(done)
        closings = CLOSING_LINE.findall("".join(lines))
        stage.closing = closings[-1] if closings else ""


def step(done: list[Stage]) -> None:
    """Start what can start, and note what has ended."""
    ended = {"", *(stage.name for stage in done if stage.code is not None)}
    for stage in done:
        if stage.process is None and stage.after in ended:
            start(stage)
        if stage.process and stage.code is None:
            pid, status, usage = os.wait4(stage.process.pid, os.WNOHANG)
            if pid:
                stage.code = stage.process.returncode = os.waitstatus_to_exitcode(status)
                stage.seconds = time.monotonic() - stage.began
                stage.processor = usage.ru_utime + usage.ru_stime
    time.sleep(0.2)


def start(stage: Stage) -> None:
    stage.began = time.monotonic()
    with log(stage).open("w", encoding="utf-8") as file:
        stage.process = subprocess.Popen(
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
    rows = [f"{'stage':<11}{'result':<9}{'seconds':>8}{'processor':>11}   counts", "-" * 80]
    for stage in done:
        result = "passed" if stage.code == 0 else "FAILED"
        counts = re.sub(r" in [\d.]+s.*", "", stage.closing)
        rows.append(f"{stage.name:<11}{result:<9}{stage.seconds:>8.0f}{stage.processor:>11.0f}   {counts}")
    whole = max(stage.began + stage.seconds for stage in done) - min(stage.began for stage in done)
    rows.append(f"{'in all':<20}{whole:>8.0f}{sum(stage.processor for stage in done):>11.0f}")
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
        done = (grader_stages if options.grader else stages)(processes, workers)
    run(done)
    print(f"\n=== summary\n{summary(done)}")
    failed = [stage.name for stage in done if stage.code != 0]
    print(f"\nFAILED: {', '.join(failed)}; logs in {LOGS.relative_to(ROOT)}" if failed else "\nAll passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
