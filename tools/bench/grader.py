"""How fast does the grader grade a class? The instructor's notebook of an assignment, handed in by many students.

    python tools/bench/grader.py                      assignment 1, 100 submissions, two workers
    python tools/bench/grader.py 02_td --students 20

One submission alone comes first, five times after a warm-up, in seconds of the clock and in CPU-seconds of the grader's own
process (the sandboxes are not counted). Then the class, with the memory of that process all the while. Writes
``tools/bench/results/grader.json``.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common import RESULTS, machine, summary, table  # noqa: E402  (fixes the number of threads)

from assignments.grader import batch, questions  # noqa: E402

SEED, REPEATS = 0, 5


def cpu_seconds() -> float:
    """Of this process and of those that it waited for; a sandbox that is killed is not among them."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def memory_mb() -> float:
    """What this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assignment", nargs="?", default="01_mdps")
    parser.add_argument("--students", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    assignment = questions.load(options.assignment)
    alone, alone_cpu = [], []
    with tempfile.TemporaryDirectory() as folder, batch.Sandbox() as sandbox:
        course = batch.open_course(assignment, sandbox, SEED)
        content = json.loads(assignment.notebook.read_text("utf-8"))
        chosen = batch.cells.choose(content, course.given)
        for _ in range(REPEATS + 1):
            began, cpu = time.monotonic(), cpu_seconds()
            graded, status = batch.grade_notebook(course, chosen)
            alone.append(time.monotonic() - began)
            alone_cpu.append(cpu_seconds() - cpu)
            assert (
                status == "graded"
                and sum(one.points for one in graded) == assignment.points - assignment.written.points
            )
        submissions = Path(folder) / "submissions"
        for number in range(options.students):
            place = submissions / f"student{number:03d}"
            place.mkdir(parents=True)
            shutil.copy(assignment.notebook, place)
        memory: list[float] = []
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.5):
                memory.append(memory_mb())

        watcher = threading.Thread(target=watch)
        watcher.start()
        began, cpu = time.monotonic(), cpu_seconds()
        found = batch.grade(submissions, assignment, Path(folder) / "output", workers=options.workers, seed=SEED)
        seconds, used = time.monotonic() - began, cpu_seconds() - cpu
        ended.set()
        watcher.join()
        assert all(result.points == assignment.points - assignment.written.points for result in found)
    third = max(1, len(memory) // 3)
    record = {
        "assignment": options.assignment,
        "students": options.students,
        "workers": options.workers,
        "one_submission_wall": summary(alone[1:]),
        "one_submission_cpu": summary(alone_cpu[1:]),
        "class_wall_s": seconds,
        "class_cpu_s": used,
        "load_before": os.getloadavg()[2],
        "memory_mb": {"first_third": max(memory[:third]), "last_third": max(memory[-third:])},
        "machine": machine(["numpy", "scipy"]),
    }
    rows = [
        {"what": "one submission, clock", "value": f"{record['one_submission_wall']['median_s']:.2f} s"},
        {
            "what": "one submission, CPU of the grader itself",
            "value": f"{record['one_submission_cpu']['median_s']:.2f} s",
        },
        {"what": f"{options.students} submissions, {options.workers} workers, clock", "value": f"{seconds:.1f} s"},
        {"what": f"{options.students} submissions, CPU of the grader itself", "value": f"{used:.1f} s"},
        {
            "what": "memory of the grader, first and last third",
            "value": f"{max(memory[:third]):.0f} and {max(memory[-third:]):.0f} MB",
        },
    ]
    print(table(rows))
    (RESULTS / "grader.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
