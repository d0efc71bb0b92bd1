"""Every assignment from release to grades, unattended: a course of submissions each, made here, graded in the sandbox.

    python tools/round_trip.py                    all six
    python tools/round_trip.py 01_mdps --keep DIR

A submission takes, for every question, the stub of the release, the instructor's solution, another right solution or a
known mistake, each of these at least once where no wrong answer to another question spoils it; three more hang, exit or
are no notebook at all. What each must score is computed beforehand, in this process, with the same hidden inputs; a
question whose answer calls a wrong function of another question is left out of that. The run fails if one score, status,
feedback page or row of the CSV differs.
"""

from __future__ import annotations

import argparse
import collections
import csv
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assignments.grader import notebooks  # noqa: E402
from assignments.grader.batch import grade  # noqa: E402
from assignments.grader.checking import mark_namespace, mark_solution, solutions  # noqa: E402
from assignments.grader.marking import mark  # noqa: E402
from assignments.grader.preparing import prepare  # noqa: E402
from assignments.grader.questions import Assignment, as_solution, load, names  # noqa: E402

SEED = 7
Choice = tuple[str | None, float]  # a cell's text (None: as in the release) and the points that it must score


@dataclass
class Expected:
    """What a submission must get: points by question, and its status; ``spoiled`` are questions that others spoil."""

    points: dict[str, float] = field(default_factory=dict)
    status: str = "graded"
    spoiled: set[str] = field(default_factory=set)


def pieces(assignment: Assignment) -> dict[str, list[Choice]]:
    """What may be answered to each question: the stub, the solution, then what else is right or wrong."""
    notebook = notebooks.read(assignment.notebook)
    texts = {notebooks.role(cell).get("grade_id"): notebooks.text_of(cell) for cell in notebook["cells"]}
    solved = solutions(assignment, notebook)
    found: dict[str, list[Choice]] = {}
    for question in assignment.questions:
        prepared = prepare(question, SEED)
        found[question.name] = [(None, 0.0), (texts[question.name], mark_namespace(prepared, solved).points)]
        for solution in question.alternatives:
            found[question.name].append((as_solution(question, solution), mark_solution(prepared, solution).points))
        for mistake, known in zip(question.mistakes, prepared.mistakes, strict=True):
            given = iter(known)  # what it gave when the question was prepared
            points = mark(prepared, lambda question, case, given=given: next(given)).points
            found[question.name].append((as_solution(question, mistake.solution), points))
    return found


def spoiled(assignment: Assignment, chosen: dict[str, Choice]) -> set[str]:
    """Questions whose answer calls, directly or not, a function of another question that is wrong."""
    functions = {question.function: question for question in assignment.questions}
    bad = {question.name for question in assignment.questions if chosen[question.name][1] < question.points}
    found: set[str] = set()
    for _ in functions:  # as often as a chain of calls can be long
        for question in assignment.questions:
            called = [
                one
                for name, one in functions.items()
                if name in (chosen[question.name][0] or "") and one is not question
            ]
            if any(one.name in bad | found for one in called):
                found.add(question.name)
    return found


def with_cells(release: notebooks.Notebook, cells: dict[str, str | None]) -> notebooks.Notebook:
    """The release with the student's cells filled in."""
    filled: notebooks.Notebook = json.loads(json.dumps(release))
    for cell in filled["cells"]:
        text = cells.get(notebooks.role(cell).get("grade_id", ""))
        if text is not None:
            cell["source"] = text
    return filled


def mixes(assignment: Assignment, choices: dict[str, list[Choice]]) -> Iterator[dict[str, Choice]]:
    """One choice for every question: all solutions, all stubs, then until every other choice was there and not spoiled."""
    yield {name: options[1] for name, options in choices.items()}
    yield {name: options[0] for name, options in choices.items()}
    waiting = {name: options[2:] for name, options in choices.items()}
    while any(waiting.values()):
        chosen = {name: (waiting[name] or options[1:])[0] for name, options in choices.items()}
        unspoiled = waiting.keys() - spoiled(assignment, chosen)
        assert any(waiting[name] for name in unspoiled), "questions that call each other spoil each other for ever"
        for name in unspoiled:
            waiting[name] = waiting[name][1:]
        yield chosen


def make_submissions(assignment: Assignment, folder: Path) -> dict[str, Expected]:
    """The students' folders, and what each must get."""
    choices, release = pieces(assignment), notebooks.released(notebooks.read(assignment.notebook))
    expected = {}
    for number, chosen in enumerate(mixes(assignment, choices)):
        student = f"student-{number:02}"
        path = folder / student / f"{assignment.name}.ipynb"
        notebooks.write(with_cells(release, {name: text for name, (text, _) in chosen.items()}), path)
        points = {name: score for name, (_, score) in chosen.items()}
        expected[student] = Expected(points, spoiled=spoiled(assignment, chosen))
    last = assignment.questions[-1]
    right = {name: options[1] for name, options in choices.items()}
    for student, status, text in (
        ("student-hangs", "timeout", f"def {last.function}(*arguments, **more):\n    while True:\n        pass\n"),
        ("student-exits", "crashed", f"import os\n\ndef {last.function}(*arguments, **more):\n    os._exit(0)\n"),
    ):
        cells = {name: one for name, (one, _) in right.items()} | {last.name: text}
        notebooks.write(with_cells(release, cells), folder / student / f"{assignment.name}.ipynb")
        expected[student] = Expected({name: points for name, (_, points) in right.items()} | {last.name: 0.0}, status)
    broken = folder / "student-broken" / f"{assignment.name}.ipynb"
    broken.parent.mkdir(parents=True)
    broken.write_text("{ this is no notebook", "utf-8")
    expected["student-broken"] = Expected(status="unreadable")
    return expected


def differences(expected: dict[str, Expected], results: list[Any], output: Path) -> list[str]:
    """Everything that is not as it must be."""
    wrong = []
    with (output / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    if rows.keys() != expected.keys() or len(results) != len(expected):
        wrong.append(f"{len(rows)} rows in the CSV and {len(results)} results for {len(expected)} submissions")
    for result in results:
        want = expected[result.student]
        if result.status != want.status and not want.spoiled:
            wrong.append(f"{result.student}: status {result.status}, expected {want.status}")
        got = {question.name: question.points for question in result.questions}
        if got.keys() != want.points.keys() or any(
            got[name] != want.points[name] for name in got.keys() - want.spoiled
        ):
            wrong.append(f"{result.student}: {got}, expected {want.points}, not counting {sorted(want.spoiled)}")
    pages = len(list((output / "feedback").glob("*.html")))
    if pages != len(expected):
        wrong.append(f"{pages} feedback pages for {len(expected)} submissions")
    return wrong


def round_trip(name: str, folder: Path, workers: int) -> bool:
    """One assignment; whether all went as it must."""
    assignment = load(name)
    expected = make_submissions(assignment, folder / "submitted")
    began = time.monotonic()
    results = grade(folder / "submitted", name, output=folder / "grades", workers=workers, seed=SEED)
    seconds = time.monotonic() - began
    wrong = differences(expected, results, folder / "grades")
    statuses = collections.Counter(result.status for result in results)
    compared = sum(len(one.points.keys() - one.spoiled) for one in expected.values())
    print(
        f"{name}: {len(results)} submissions in {seconds:.0f} s:",
        ", ".join(f"{n} {s}" for s, n in sorted(statuses.items())),
        f"({compared} scores compared)",
        flush=True,
    )
    for line in wrong:
        print(f"  WRONG {line}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assignments", nargs="*", help="names; all if none is given")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="keep submissions, grades and feedback in this folder")
    options = parser.parse_args()
    good = 0
    chosen = options.assignments or names()
    with tempfile.TemporaryDirectory() as scratch:
        for name in chosen:
            good += round_trip(name, (options.keep or Path(scratch)) / name, options.workers)
    print(f"{good} passed, {len(chosen) - good} failed")
    return int(good < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
