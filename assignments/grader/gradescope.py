"""The grader inside Gradescope: what ``setup.sh`` and ``run_autograder`` of the archive call.

Gradescope starts a container for each submission, as root, with the archive and the student's files side by side. A
student's code therefore runs in the same sandbox as everywhere, or not at all: where the container does not allow a
sandbox, the result says "not graded", and why is told to the instructor only.

``/autograder`` holds ``source`` (the archive), ``submission`` (the student's files), ``submission_metadata.json``, and
``results``, where ``results.json`` is written. ``grades`` is ours: an output folder like any other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from . import batch, questions, reports, results, submissions
from .questions import Assignment
from .results import Result
from .sandbox import Limits, Sandbox
from .tables import number

COURSE = "course.json"
VISIBILITIES = ("visible", "after_due_date", "after_published", "hidden")
NO_NUMBER = "The 0 is not a grade: this system asks for a number."
FAILED = "The grader could not do its work here. This is not your fault. Please tell your instructor."
ADVICE = (
    "FOR THE INSTRUCTOR: nothing was graded: a student's code runs in the sandbox or not at all. If the sandbox is what"
    " failed, this system's containers do not allow one: download the submissions and grade them on a machine of yours, as"
    " the instructor's guide says."
)


def prepare(home: Path) -> None:
    """Keep the seed when the image is built, and see whether the references run here; no student's code is there yet."""
    course = json.loads((home / "source" / COURSE).read_text("utf-8"))
    assignment, folder = questions.load(course["assignment"]), home / "grades"
    results.private_folder(folder)
    batch.write_settings(folder, {name: course[name] for name in ("assignment", "seed", "secret") if name in course})
    with Sandbox() as sandbox:
        opened = batch.open_course(assignment, sandbox, course["seed"])
    print(f"{assignment.name}: {len(opened.prepared)} questions are ready.")


def grade(home: Path) -> int:
    """Grade the one submission and write its result, whatever happens; 1 if it could not be graded."""
    began = time.monotonic()
    course = json.loads((home / "source" / COURSE).read_text("utf-8"))
    assignment = questions.load(course["assignment"])
    try:
        with Sandbox() as sandbox:
            print(sandbox.describe())
            sandbox.start(Limits()).close()
        submission = find(home, assignment, student_of(home))
        result = batch.single(assignment, submission, home, home / "grades", course["seed"], course.get("secret"))
    except Exception as error:  # whatever it is: the student's page must not be empty, and must not show it
        result = Result("", results.INFRASTRUCTURE_ERROR, note=f"{type(error).__name__}: {error}")
    if result.status == results.INFRASTRUCTURE_ERROR:
        print(ADVICE)
    print(f"{result.status} {number(result.points)} {result.note}".strip())
    content = report(assignment, result, course["visibility"], time.monotonic() - began)
    results.write_whole(home / "results" / "results.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return int(result.status == results.INFRASTRUCTURE_ERROR)


def student_of(home: Path) -> str:
    """Whose submission it is: the addresses of those who hand in together, in one order whoever of them uploads it."""
    users = json.loads((home / "submission_metadata.json").read_text("utf-8"))["users"]
    return submissions.student_name(" ".join(sorted(str(user["email"]).lower() for user in users)))


def find(home: Path, assignment: Assignment, student: str) -> submissions.Submission:
    """What was handed in, found as in a student's folder of a course."""
    with os.scandir(home) as entries:
        (entry,) = [entry for entry in entries if entry.name == "submission"]
    return submissions.in_folder(entry, student, assignment.name, [])


def report(assignment: Assignment, result: Result, visibility: str, seconds: float) -> dict[str, Any]:
    """The content of ``results.json``, with the fields that Gradescope documents.

    One test for each part of a question. As on a page of feedback, what stands there are sentences of the assignment and
    of the grader: no input, no expected value, no text of the student's code. ``visibility``: of the tests; what is said
    about the submission as a whole can be read at once.
    """
    is_ours = result.status == results.INFRASTRUCTURE_ERROR
    says = [FAILED] if is_ours else [f"Status: {result.status}. {reports.MEANINGS[result.status]}", result.note]
    content: dict[str, Any] = {
        "execution_time": round(seconds),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
    }
    if result.points is None:
        return content | {"score": 0, "output": " ".join(["NOT GRADED.", *filter(None, says), NO_NUMBER]), "tests": []}
    written = assignment.written
    says.append(f"The written question “{written.title}” ({number(written.points)} points) is graded by a person.")
    if not result.written:
        says.append("No answer to it was found in the notebook.")
    return content | {"output": " ".join(filter(None, says)), "tests": list(tests(result, visibility))}


def tests(result: Result, visibility: str) -> list[dict[str, Any]]:
    """One test for each part; what the grader says about a question stands at the first part that lost points."""
    found = []
    for count, question in enumerate(result.questions, 1):
        messages = question.messages
        for place, part in enumerate(question.parts, 1):
            passed = part.right == part.cases
            said = [f"{part.right} of {part.cases} tests passed."]
            if not passed:
                said, messages = [*said, *messages], []
            found.append(
                {
                    "name": f"{question.name}, {question.title}: {part.name}",
                    "number": f"{count}.{place}",
                    "score": part.points,
                    "max_score": part.max_points,
                    "status": "passed" if passed else "failed",
                    "output": "\n".join(said),
                    "output_format": "text",
                    "visibility": visibility,
                }
            )
    return found


if __name__ == "__main__":
    what, place = sys.argv[1:]
    sys.exit({"prepare": prepare, "grade": grade}[what](Path(place).resolve()))
