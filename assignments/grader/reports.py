"""What is made from the results: a page of feedback for every student, and tables for people and gradebooks.

The pages hold sentences of the assignment and of the grader, points, and the student's name. Nothing else that a
student controls gets into them, and neither does a hidden input or an expected value.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from . import late, overrides, results
from .late import Days, Late, Policy
from .overrides import TOTAL, Overrides, safe_cell
from .questions import Assignment
from .results import Result
from .submissions import Roster

UNMATCHED = "unmatched.csv"  # what lay among the submissions and could not be matched with a student
UNGRADED = "The written answer has no points yet."
UNKNOWN_DAYS = "Late, but late.csv does not say by how many days: nothing is taken off yet."
ABOVE = "Above the maximum."
MEANINGS = {
    results.GRADED: "All questions were graded. A part earns its points when all of its tests pass.",
    results.TIMEOUT: "Some code took too long and was stopped. The questions that it did not concern keep their points.",
    results.CRASHED: "Some code ended its process or was stopped: too much memory or output, too many files or processes, or"
    " an exit. The questions that it did not concern keep their points.",
    results.UNREADABLE: "The submission could not be read, so there is no grade. Please hand it in again.",
    results.NOT_SUBMITTED: "Nothing was handed in, so there is no grade.",
    results.INFRASTRUCTURE_ERROR: "The grader failed. This is not your fault and not a grade; it will be tried again.",
}


@dataclass(frozen=True)
class Grade:
    """A result together with what a person decided. Points are ``None`` where there are none, which is not 0.

    ``questions``: points by the name of the question. ``overridden``: the names of what a person replaced. ``late``:
    what was taken off to get ``score``; ``None`` if the work was not late.
    """

    result: Result
    questions: dict[str, float | None]
    written: float | None
    score: float | None
    overridden: tuple[str, ...]
    notes: tuple[str, ...]
    late: Late | None = None

    @property
    def points_are_missing(self) -> bool:
        """Whether the score is a sum to which the written question's points are still to be added."""
        return self.score is not None and self.written is None and TOTAL not in self.overridden


def combine(
    assignment: Assignment, result: Result, decisions: Overrides, days: Days | None = None, policy: Policy | None = None
) -> Grade:
    """The grade of one student. From a total that a person set, nothing is taken off."""
    own = {question: one for (student, question), one in decisions.items() if student == result.student}
    has_grade = result.points is not None
    points: dict[str, float | None] = {question.name: None for question in assignment.questions}
    if has_grade:
        points |= {question.name: question.points for question in result.questions}
    points |= {name: own[name].points for name in points if name in own}
    written = own[assignment.written.name].points if assignment.written.name in own else None
    known = [number for number in (*points.values(), written) if number is not None]
    score = own[TOTAL].points if TOTAL in own else (sum(known) if known else None)
    replaced = tuple(sorted(name for name in own if name != assignment.written.name))
    lateness = None
    if days and result.student in days and TOTAL not in own:
        lateness = Late(days[result.student], score)
        if policy and lateness.days and score is not None:
            lateness = Late(lateness.days, score, min(score, policy.cost(lateness.days, assignment.points)))
            score -= lateness.taken
    return Grade(
        result,
        points,
        written,
        score,
        replaced,
        tuple(one.note for _, one in sorted(own.items()) if one.note),
        lateness,
    )


def grades(output: Path, assignment: Assignment) -> list[Grade]:
    """All grades of an output folder; raises ``ValueError`` for an impossible line in a table of decisions."""
    found = results.load_all(output)
    known = {result.student for result in found}
    missing = [Result(student, results.NOT_SUBMITTED) for student in read_roster(output) if student not in known]
    everybody = sorted([*found, *missing], key=lambda result: result.student)
    decisions = overrides.read(output, assignment, [result.student for result in everybody])
    days, policy = late.counted(output), late.policy_of(output)
    return [combine(assignment, result, decisions, days, policy) for result in everybody]


def read_roster(output: Path) -> Roster:
    """The roster that was given last, empty if none was."""
    path = output / "roster.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write_all(output: Path, assignment: Assignment, unmatched: list[tuple[str, str]] | None = None) -> None:
    """Write the table of grades and every page of feedback anew; with ``unmatched`` that table as well."""
    everybody = grades(output, assignment)
    if unmatched is not None:
        strangers = late.strangers(output, [grade.result.student for grade in everybody])
        results.write_whole(output / UNMATCHED, table([("name", "what"), *unmatched, *strangers]))
    results.write_whole(output / "grades.csv", grades_csv(assignment, everybody))
    for grade in everybody:
        write_page(output, assignment, grade)


def write_feedback(output: Path, assignment: Assignment, result: Result) -> None:
    """Write one student's page."""
    known = (
        results.load_all(output) if overrides.path_of(output).exists() else []
    )  # a job does not read a course for nothing
    decisions = overrides.read(output, assignment, [one.student for one in known])
    write_page(output, assignment, combine(assignment, result, decisions, late.counted(output), late.policy_of(output)))


def write_page(output: Path, assignment: Assignment, grade: Grade) -> None:
    """Write one page, unless it is already there as it should be."""
    path = output / "feedback" / f"{results.file_name(grade.result.student)}.html"
    page = feedback_page(assignment, grade)
    if not path.exists() or path.read_bytes() != page.encode("utf-8", "replace"):
        results.write_whole(path, page.encode("utf-8", "replace"))


def number(points: float | None) -> str:
    """Points as people write them; empty if there are none."""
    return "" if points is None else f"{points:.2f}".rstrip("0").rstrip(".")


def table(rows: Iterable[Iterable[str]]) -> str:
    """Rows as CSV, safe for spreadsheets."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([safe_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def grades_csv(assignment: Assignment, everybody: list[Grade]) -> str:
    """One line a student: ``student, status``, points per question, ``written, score, max, before, late, overridden, note``.

    A cell is empty where there is no grade. ``score`` is the sum of what is graded so far: the written question counts
    once its points are entered. ``before`` and ``late``: points before what is taken off for late work, and how much that is.
    """
    names = [question.name for question in assignment.questions]
    rows = [["student", "status", *names, "written", "score", "max", "before", "late", "overridden", "note"]]
    for grade in everybody:
        rows.append(
            [
                grade.result.student,
                grade.result.status,
                *(number(grade.questions[name]) for name in names),
                number(grade.written),
                number(grade.score),
                number(assignment.points),
                number(grade.late.before if grade.late else None),
                number(grade.late.taken if grade.late else None),
                " ".join(grade.overridden),
                note_of(assignment, grade),
            ]
        )
    return table(rows)


def note_of(assignment: Assignment, grade: Grade) -> str:
    """What the table says about a grade in words."""
    ungraded = UNGRADED if grade.points_are_missing and grade.result.written else ""
    above = ABOVE if grade.score is not None and grade.score > assignment.points else ""
    return " ".join(filter(None, (grade.result.note, ungraded, late_line(grade), above, *grade.notes)))


def late_line(grade: Grade) -> str:
    """How late, and what it costs; empty if the work was not late or there is no grade."""
    if grade.late is None or grade.late.before is None:
        return ""
    if grade.late.days is None:
        return UNKNOWN_DAYS
    days = f"{grade.late.days} day{'s' * (grade.late.days != 1)} late"
    if not grade.late.taken:
        return f"{days}: nothing is taken off."
    return f"{days}: {number(grade.late.taken)} points are taken off, from {number(grade.late.before)}."


def check_written(assignment: Assignment, everybody: list[Grade], partial: bool) -> tuple[list[Grade], str]:
    """The grades to export, and a sentence about the written question, empty if there is nothing to say.

    An answer that nobody has graded yet is no zero. Raises ``ValueError`` that names such students, unless ``partial``
    is true: then they are exported without a grade. Who wrote no answer gets nothing for it, and that is said.
    """
    open_question = [grade for grade in everybody if grade.points_are_missing]
    waiting = [grade for grade in open_question if grade.result.written]
    names = ", ".join(repr(grade.result.student) for grade in waiting[:5]) + (", ..." if len(waiting) > 5 else "")
    if waiting and not partial:
        raise ValueError(
            f"{assignment.written.name}: {len(waiting)} written answers have no points yet ({names}): enter them, or say --partial to"
            " export these students without a grade"
        )
    said = (
        [f"{len(waiting)} students without a grade, because their written answers have no points yet: {names}."]
        if waiting
        else []
    )
    empty = len(open_question) - len(waiting)
    said += [f"{empty} students wrote no answer to {assignment.written.name}: it counts as 0."] if empty else []
    unknown = sum(late_line(grade) == UNKNOWN_DAYS for grade in everybody)
    said += [f"{unknown} late students lose nothing, because late.csv does not say how many days."] if unknown else []
    return [dataclasses.replace(grade, score=None) if grade in waiting else grade for grade in everybody], " ".join(
        said
    )


def not_found(output: Path, everybody: list[Grade], system: str) -> str:
    """A sentence about students whom the other system may not find, because the list of the course does not say who they are."""
    columns = {"canvas": ("id", "sis_user_id", "sis_login_id"), "moodle": ("email", "id")}[system]
    roster = read_roster(output)
    unknown = [
        grade.result.student
        for grade in everybody
        if not any(roster.get(grade.result.student, {}).get(name) for name in columns)
    ]
    if not unknown:
        return ""
    names = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
    return (
        f"{len(unknown)} students are known by the name of their folder alone ({names}): if {system} does not know them by it, grade again with a"
        f" list of the course (ROSTER, --roster) that has the column {' or '.join(map(repr, columns))}. What is graded is kept."
    )


def canvas_csv(output: Path, assignment: Assignment, everybody: list[Grade]) -> str:
    """The layout that Canvas's gradebook imports.

    Columns ``Student, ID, SIS User ID, SIS Login ID, Section`` and one named like the assignment; the second line says
    ``Points Possible``. Canvas finds a student by ``ID``, ``SIS User ID`` or ``SIS Login ID``: the roster's columns
    ``id``, ``sis_user_id`` and ``sis_login_id`` go there, and without the last the student's folder name. Canvas makes a
    new assignment if there is none of this name. Students without a grade have an empty cell.
    """
    roster = read_roster(output)
    rows = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment.title]]
    rows.append(["Points Possible", "", "", "", "", number(assignment.points)])
    for grade in everybody:
        student = grade.result.student
        known = roster.get(student, {})
        ids = [known.get("id", ""), known.get("sis_user_id", ""), known.get("sis_login_id", student)]
        rows.append([known.get("name", student), *ids, known.get("section", ""), number(grade.score)])
    return table(rows)


def moodle_csv(output: Path, assignment: Assignment, everybody: list[Grade]) -> str:
    """The layout for Moodle's "Grades, Import, CSV file", whose columns are mapped by hand at the import.

    Columns ``Username`` (the folder name), ``ID number``, ``Email address`` (the roster's ``id`` and ``email``), one named
    like the assignment, and its feedback: map one of the first three to the user, the last two to the grade item and
    its feedback. Students without a grade are left out, because an empty grade would delete one that is there.
    """
    roster = read_roster(output)
    rows = [["Username", "ID number", "Email address", assignment.title, f"{assignment.title} (feedback)"]]
    for grade in everybody:
        if grade.score is not None:
            known = roster.get(grade.result.student, {})
            said = f"{grade.result.status}: {number(grade.score)} of {number(assignment.points)} points"
            said += f" ({late_line(grade)})" if grade.late and grade.late.taken else ""
            rows.append([grade.result.student, known.get("id", ""), known.get("email", ""), number(grade.score), said])
    return table(rows)


def write_gradebook(output: Path, assignment: Assignment, everybody: list[Grade], database: str) -> int:
    """Enter the scores into the ``Gradebook`` of nbgrader; how many students were entered.

    ``database``: a URL such as ``sqlite:///gradebook.db``. Students without a grade are not entered: nbgrader would store
    a zero. Each question is a grade cell named like in the notebook; the written question is left for a person to
    grade in nbgrader if its points are not known. Raises ``ImportError`` without nbgrader.
    """
    try:
        from nbgrader.api import Gradebook  # an extra for instructors: not needed to grade
    except ModuleNotFoundError as error:
        raise ImportError(
            f"nbgrader is not installed here ({error.name} is missing): say `{sys.executable} -m pip install nbgrader==0.9.6`"
        ) from error

    # it starts the program alembic, which stands beside this Python even where the environment is not activated
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    checks = {question.name: f"{question.name}-checks" for question in assignment.questions}
    with Gradebook(database) as book:
        book.update_or_create_assignment(assignment.name)
        book.update_or_create_notebook(assignment.name, assignment.name)
        cells = [(checks[question.name], question.points, "code") for question in assignment.questions]
        cells.append((assignment.written.name, assignment.written.points, "markdown"))
        for cell, points, kind in cells:
            book.update_or_create_grade_cell(cell, assignment.name, assignment.name, max_score=points, cell_type=kind)
        entered = 0
        for grade in everybody:
            if grade.score is None:
                continue
            student = grade.result.student
            if len(student) > 128:  # nbgrader's limit
                student = results.file_name(student)
            book.update_or_create_student(student)
            submission = book.update_or_create_submission(assignment.name, student)
            by_cell = {cell: grade.questions[name] for name, cell in checks.items()}
            for notebook in submission.notebooks:
                for entry in notebook.grades:
                    known = grade.written if entry.name == assignment.written.name else by_cell[entry.name]
                    entry.manual_score, entry.auto_score = known, known
                    entry.needs_manual_grade = known is None
                notebook.late_submission_penalty = grade.late.taken if grade.late else 0.0
            entered += 1
        book.db.commit()
    return entered


STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #ffffff; --soft: #f1f3f5; --line: #ced4da; --dim: #545b62;
  --right: #1b6e3c; --wrong: #a02a1c; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --paper: #17191c; --soft: #22262a; --line: #464d54; --dim: #aab2ba;
  --right: #6fcf97; --wrong: #ff9d8c; } }
body { margin: 0 auto; max-width: 46rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin: 0; }
.dim { color: var(--dim); } .score { font-size: 1.3rem; font-weight: 600; }
section { border: 1px solid var(--line); border-radius: 0.5rem; padding: 0.9rem 1.1rem; margin: 1rem 0; }
header { display: flex; justify-content: space-between; gap: 1rem; } header > :last-child { min-width: 4.5rem; text-align: right; }
table { border-collapse: collapse; width: 100%; margin-top: 0.5rem; table-layout: fixed; }
th:nth-child(2), td:nth-child(2) { width: 9rem; } th:last-child, td:last-child { width: 6rem; }
th, td { text-align: left; padding: 0.2rem 0.5rem 0.2rem 0; border-bottom: 1px solid var(--line); font-weight: normal; }
td:last-child, th:last-child { text-align: right; padding-right: 0; white-space: nowrap; }
.status { background: var(--soft); border-radius: 0.5rem; padding: 0.7rem 1.1rem; }
.right { color: var(--right); } .wrong { color: var(--wrong); } code { font-family: ui-monospace, monospace; }
ul { margin: 0.6rem 0 0; padding-left: 1.2rem; }
@media (max-width: 34rem) { body { padding: 0.8rem; } section { padding: 0.7rem 0.8rem; }
  table, tbody, tr { display: block; } tr:first-child { display: none; }
  tr { display: flex; flex-wrap: wrap; gap: 0 1rem; border-bottom: 1px solid var(--line); padding: 0.3rem 0; }
  td { border: 0; padding: 0; } td:first-child { flex: 1 0 100%; } td:nth-child(2), td:last-child { width: auto; }
  td:nth-child(2) { flex: 1; } }
@media print { :root { color-scheme: light; } section { break-inside: avoid; } body { max-width: none; padding: 0; } }
"""
FOOT = ("</main>", "</body>", "</html>", "")
CHECKS = (
    "You can run the checks in the notebook yourself: they stand in the cell below each question. They are examples; the"
    " tests behind these points use other data, so passing the checks is the first step, not the last."
)


def head(title: str, style: str = "") -> list[str]:
    """The beginning of a page that is complete in one file: it runs no script and loads nothing."""
    return [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{style}</style>",
        "</head>",
        "<body>",
        "<main>",
    ]


def feedback_page(assignment: Assignment, grade: Grade) -> str:
    """A student's page, complete in one file."""
    result = grade.result
    parts = [
        *head(f"{assignment.title}: feedback"),
        f"<h1>{escape(assignment.title)}</h1>",
        f'<p class="dim">{escape(assignment.name)}, feedback for {escape(result.student[:200])}</p>',
        f'<p class="score">{score_line(assignment, grade)}</p>',
        *([f"<p>{escape(late_line(grade))}</p>"] if grade.late and grade.late.taken else []),
        f'<p class="status"><strong>Status: {escape(result.status)}.</strong> {escape(meaning(grade))}'
        + (f" {escape(result.note)}" if result.note and result.status != results.INFRASTRUCTURE_ERROR else "")
        + "</p>",
    ]
    if result.points is not None and any(question.points < question.max_points for question in result.questions):
        parts.append(f"<p>{escape(CHECKS)}</p>")
    parts += [question_section(question, grade) for question in (result.questions if result.points is not None else ())]
    if result.points is not None or grade.written is not None:
        parts.append(written_section(assignment, grade))
    if grade.notes:
        parts += ["<section>", "<h2>Notes of your instructor</h2>", "<ul>"]
        parts += [f"<li>{escape(note)}</li>" for note in grade.notes]
        parts += ["</ul>", "</section>"]
    return "\n".join([*parts, *FOOT])


def meaning(grade: Grade) -> str:
    """What the status means; where a person gave points to what has none, nobody is told that there is no grade."""
    if grade.result.points is None and grade.score is not None:
        return "Your instructor set the points."
    return MEANINGS[grade.result.status]


def score_line(assignment: Assignment, grade: Grade) -> str:
    """The sum in words."""
    if grade.score is None:
        return "No grade"
    total = assignment.points
    if grade.written is None and TOTAL not in grade.overridden:
        total -= assignment.written.points
        return f"{number(grade.score)} of {number(total)} points, without the written question"
    return f"{number(grade.score)} of {number(total)} points" + (
        " (set by your instructor)" if TOTAL in grade.overridden else ""
    )


def question_section(question: results.QuestionResult, grade: Grade) -> str:
    """One question: points of its parts, and what is wrong."""
    changed = question.name in grade.overridden
    points = grade.questions[question.name]
    lines = [
        "<section>",
        f"<header><h2>{escape(question.name)}: {escape(question.title)}</h2>",
        f"<span>{number(points)} of {number(question.max_points)}{' (set by your instructor)' if changed else ''}</span></header>",
        "<table>",
        "<tr><th>Part</th><th>Tests</th><th>Points</th></tr>",
    ]
    for part in question.parts:
        kind, word = (
            ("right", "passed") if part.right == part.cases else ("wrong", f"{part.right} of {part.cases} passed")
        )
        points_of_part = f"{number(part.points)} of {number(part.max_points)}"
        lines.append(f'<tr><td>{escape(part.name)}</td><td class="{kind}">{word}</td><td>{points_of_part}</td></tr>')
    lines.append("</table>")
    if question.messages:
        lines += ["<ul>", *(f"<li>{message_html(message)}</li>" for message in question.messages), "</ul>"]
    return "\n".join([*lines, "</section>"])


def message_html(message: str) -> str:
    """A sentence; what stands between backticks is code."""
    pieces = escape(message).split("`")
    return "".join(
        f"<code>{piece}</code>" if index % 2 and index < len(pieces) - 1 else piece
        for index, piece in enumerate(pieces)
    )


def written_section(assignment: Assignment, grade: Grade) -> str:
    """The question that a person grades."""
    written = assignment.written
    if grade.written is not None:
        says, points = "Graded by hand.", f"{number(grade.written)} of {number(written.points)}"
    elif not grade.result.written:
        says, points = "No answer was found in the notebook.", f"– of {number(written.points)}"
    else:
        says, points = "It is graded by hand later.", f"– of {number(written.points)}"
    return (
        f"<section>\n<header><h2>{escape(written.name)}: {escape(written.title)}</h2><span>{points}</span></header>\n"
        f"<p>{says}</p>\n</section>"
    )
