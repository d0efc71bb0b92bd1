"""What is made from the results: a page of feedback for every student, and tables for people and gradebooks.

The pages hold sentences of the assignment and of the grader, points, and the student's name. Nothing else that a
student controls gets into them, and neither does a hidden input or an expected value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from . import late, overrides, results
from .late import Days, Late, Policy
from .outcomes import QuestionResult
from .overrides import TOTAL, Overrides
from .questions import Assignment
from .results import Result
from .submissions import Roster, student_name
from .tables import number, table

UNMATCHED = "unmatched.csv"  # what lay among the submissions and could not be matched with a student
UNGRADED = "The written answer has no points yet."
UNKNOWN_DAYS = "Late, but late.csv does not say by how many days: nothing is taken off yet."
ABOVE = "Above the maximum."
GROUP = "Handed in by {} for the group."
SET_ALL = "Your instructor has given all points."
SET = "Your instructor has set these points. What the tests said is below for your information."
GUESSED = "What a guess would have right does not count: one number everywhere, or an argument handed back."
MEANINGS = {
    results.GRADED: "All questions were graded. A part earns its points when all of its tests pass, and some parts give a share of them.",
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
    what was taken off to get ``score``; ``None`` if the work was not late. ``name``: of the student, if the list of the
    course has one.
    """

    result: Result
    questions: dict[str, float | None]
    written: float | None
    score: float | None
    overridden: tuple[str, ...]
    notes: tuple[str, ...]
    late: Late | None = None
    name: str = ""

    @property
    def who(self) -> str:
        """The student for people to read: a number alone says nothing."""
        return called(self.result.student, self.name)

    @property
    def points_are_missing(self) -> bool:
        """Whether the score is a sum to which the written question's points are still to be added."""
        return self.score is not None and self.written is None and TOTAL not in self.overridden


def combine(
    assignment: Assignment, result: Result, decisions: Overrides, days: Days | None = None, policy: Policy | None = None
) -> Grade:
    """The grade of one student. From a total that a person set, nothing is taken off."""
    own = {question: one for (student, question), one in decisions.items() if student == result.student}
    points: dict[str, float | None] = {question.name: None for question in assignment.questions}
    if result.points is not None:
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
    notes = tuple(one.note for _, one in sorted(own.items()) if one.note)
    return Grade(result, points, written, score, replaced, notes, lateness)


def grades(output: Path, assignment: Assignment) -> list[Grade]:
    """All grades of an output folder; raises ``ValueError`` for an impossible line in a table of decisions."""
    found, roster = results.load_all(output), read_roster(output)
    known = {result.student for result in found}
    missing = [Result(student, results.NOT_SUBMITTED) for student in roster if student not in known]
    everybody = sorted([*found, *missing], key=lambda result: result.student)
    decisions = overrides.read(output, assignment, [result.student for result in everybody])
    days, policy = late.counted(output), late.policy_of(output)
    by = handed_in_by(everybody, roster)
    of = {result.student: result for result in everybody}
    made = []
    for result in everybody:
        if (one := by.get(result.student)) is not None:
            theirs = {(result.student, what): said for (student, what), said in decisions.items() if student == one}
            decisions = theirs | decisions  # what is decided about one of the group stays with that one
            days |= {result.student: days[one]} if one in days else {}
            note = GROUP.format(called(one, name_in(roster, one)))
            result = replace(of[one], student=result.student, note=" ".join(filter(None, [note, of[one].note])))
        made.append(replace(combine(assignment, result, decisions, days, policy), name=name_in(roster, result.student)))
    return made


def handed_in_by(everybody: list[Result], roster: Roster) -> dict[str, str]:
    """By students who handed in nothing, the one of their group who did; nobody where several did."""
    groups: dict[str, list[str]] = {}
    for result in everybody:
        if result.status != results.NOT_SUBMITTED and (group := roster.get(result.student, {}).get("group")):
            groups.setdefault(group, []).append(result.student)
    waiting = [result.student for result in everybody if result.status == results.NOT_SUBMITTED]
    worked = {student: groups.get(roster.get(student, {}).get("group", ""), []) for student in waiting}
    return {student: ones[0] for student, ones in worked.items() if len(ones) == 1}


def name_in(roster: Roster, student: str) -> str:
    return student_name(name) if (name := roster.get(student, {}).get("name")) else ""


def called(student: str, name: str) -> str:
    return f"{name} ({student})" if name and name != student else student


def read_roster(output: Path) -> Roster:
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
        path = output / "feedback" / f"{results.file_name(grade.result.student)}.html"
        page = feedback_page(assignment, grade).encode("utf-8", "replace")
        if not path.exists() or path.read_bytes() != page:
            results.write_whole(path, page)


def grades_csv(assignment: Assignment, everybody: list[Grade]) -> str:
    """One line a student; a cell is empty where there is no grade.

    ``score`` is the sum of what is graded so far. ``before`` and ``late``: points before what is taken off for late work,
    and how much that is.
    """
    names = [question.name for question in assignment.questions]
    rows = [["student", "name", "status", *names, "written", "score", "max", "before", "late", "overridden", "note"]]
    for grade in everybody:
        late = (grade.late.before, grade.late.taken) if grade.late else (None, None)
        points = (*map(grade.questions.get, names), grade.written, grade.score, assignment.points, *late)
        who, why = (grade.result.student, grade.name, grade.result.status), " ".join(grade.overridden)
        ungraded = UNGRADED if grade.points_are_missing and grade.result.written else ""
        above = ABOVE if grade.score is not None and grade.score > assignment.points else ""
        note = " ".join(filter(None, (grade.result.note, ungraded, late_line(grade), above, *grade.notes)))
        rows.append([*who, *map(number, points), why, note])
    return table(rows)


def late_line(grade: Grade) -> str:
    """How late, and what it costs; empty if the work was not late or there is no grade."""
    late = grade.late
    if late is None or late.before is None:
        return ""
    if late.days is None:
        return UNKNOWN_DAYS
    what = (
        f"{number(late.taken)} points are taken off, from {number(late.before)}"
        if late.taken
        else "nothing is taken off"
    )
    return f"{late.days} day{'s' * (late.days != 1)} late: {what}."


STYLE = (Path(__file__).parent / "page" / "feedback.css").read_text("utf-8")
FOOT = ("</main>", "</body>", "</html>", "")
CHECKS = (
    "You can run the checks in the notebook yourself: they stand in the cell below each question. They are examples; the"
    " tests behind these points use other data, so passing the checks is the first step, not the last."
)


def head(title: str, style: str = "") -> list[str]:
    """The beginning of a page that is complete in one file: it runs no script and loads nothing."""
    rules = "default-src 'none'; style-src 'unsafe-inline'"
    return [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>",
    ]


def feedback_page(assignment: Assignment, grade: Grade) -> str:
    result = grade.result
    said = result.note if result.status != results.INFRASTRUCTURE_ERROR else ""
    by_hand = result.points is None and grade.score is not None  # then nobody is told that there is no grade
    meaning = "Your instructor set the points." if by_hand else MEANINGS[result.status]
    status = f"<strong>Status: {escape(result.status)}.</strong> {escape(f'{meaning} {said}'.strip())}"
    parts = [
        *head(f"{assignment.title}: feedback"),
        f"<h1>{escape(assignment.title)}</h1>",
        f'<p class="dim">{escape(assignment.name)}, feedback for {escape(grade.who[:200])}</p>',
        f'<p class="score">{score_line(assignment, grade)}</p>',
        *([f"<p>{escape(late_line(grade))}</p>"] if grade.late and grade.late.taken else []),
        f'<p class="status">{status}</p>',
    ]
    if result.points is not None and any(question.points < question.max_points for question in result.questions):
        parts.append(f"<p>{escape(CHECKS)}</p>")
    parts += [question_section(question, grade) for question in (result.questions if result.points is not None else ())]
    if result.points is not None or grade.written is not None:
        parts.append(written_section(assignment, grade))
    if grade.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in grade.notes)
        parts.append(f"<section>\n<h2>Notes of your instructor</h2>\n<ul>{notes}</ul>\n</section>")
    return "\n".join([*parts, *FOOT])


def score_line(assignment: Assignment, grade: Grade) -> str:
    if grade.score is None:
        return "No grade"
    if grade.points_are_missing:
        most = number(assignment.points - assignment.written.points)
        return f"{number(grade.score)} of {most} points, without the written question"
    by_hand = " (set by your instructor)" if TOTAL in grade.overridden else ""
    return f"{number(grade.score)} of {number(assignment.points)} points{by_hand}"


def question_section(question: QuestionResult, grade: Grade) -> str:
    changed = question.name in grade.overridden
    points = grade.questions[question.name]
    lines = [
        "<section>",
        f"<header><h2>{escape(question.name)}: {escape(question.title)}</h2>",
        f"<span>{number(points)} of {number(question.max_points)}</span></header>",
    ]
    if changed:  # what the tests say stands below as what it is: not as the points
        lines.append(f"<p>{SET}</p>")
        if points is not None and points >= question.max_points:
            lines[-1] = f"<p>{SET_ALL}</p>"
            return "\n".join([*lines, "</section>"])
    lines += ["<table>", f"<tr><th>Part</th><th>Tests</th>{'' if changed else '<th>Points</th>'}</tr>"]
    for part in question.parts:
        right = part.right == part.cases
        word, kind = "passed" if right else f"{part.right} of {part.cases} passed", "right" if right else "wrong"
        of_part = "" if changed else f"<td>{number(part.points)} of {number(part.max_points)}</td>"
        lines.append(
            f'<tr><td>{escape(part.name)}</td><td class="{"dim" if changed else kind}">{word}</td>{of_part}</tr>'
        )
    lines.append("</table>")
    shares = [f"<li>“{escape(part.name)}”: {escape(part.said)}</li>" for part in question.parts if part.said]
    lines += ["<ul>", *shares, f"<li>{GUESSED}</li>", "</ul>"] if shares and not changed else []
    if question.messages:
        lines += ["<ul>", *(f"<li>{message_html(message)}</li>" for message in question.messages), "</ul>"]
    return "\n".join([*lines, "</section>"])


def message_html(message: str) -> str:
    """A sentence; what stands between backticks is code."""
    pieces = escape(message).split("`")
    coded = (index % 2 and index < len(pieces) - 1 for index in range(len(pieces)))
    return "".join(f"<code>{piece}</code>" if code else piece for piece, code in zip(pieces, coded, strict=True))


def written_section(assignment: Assignment, grade: Grade) -> str:
    written, says = assignment.written, "Graded by hand."
    if grade.written is None:
        says = "It is graded by hand later." if grade.result.written else "No answer was found in the notebook."
    points = f"{number(grade.written) or '–'} of {number(written.points)}"
    title = f"<header><h2>{escape(written.name)}: {escape(written.title)}</h2><span>{points}</span></header>"
    return f"<section>\n{title}\n<p>{says}</p>\n</section>"
