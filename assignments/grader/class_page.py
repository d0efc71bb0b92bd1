"""What a class could do: how many were right in each part, and which mistakes are frequent; a page and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from . import results
from .questions import Assignment
from .reports import FOOT, Grade, head, message_html
from .tables import number, table

FEW = 0.5  # share of a class from which on a mistake is worth a word to all: the page sets it off
STYLE = "td:nth-child(2), th:nth-child(2) { width: 7rem; } .often { font-weight: 600; }"


def shares(assignment: Assignment, everybody: Sequence[Grade]) -> list[tuple[str, str, int, int, int]]:
    """Question, part, how many have it right, how many a share of its points, and of how many who have a grade."""
    graded = [grade.result for grade in everybody if grade.result.points is not None]
    rows = []
    for place, question in enumerate(assignment.questions):
        for name in question.parts:
            parts = [part for one in graded for part in one.questions[place].parts if part.name == name]
            partly = sum(0 < part.points < part.max_points for part in parts)
            rows.append((question.name, name, sum(part.right == part.cases for part in parts), partly, len(parts)))
    return rows


def mistakes(assignment: Assignment, everybody: Sequence[Grade]) -> list[tuple[str, str, int]]:
    """Question, sentence and how many students read it, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for grade in everybody:
        for question in grade.result.questions if grade.result.points is not None else ():
            messages = {message for message in question.messages if "visible checks" not in message}
            counts.update((question.name, message) for message in messages)
    order = [question.name for question in assignment.questions]
    ranked = sorted(counts.items(), key=lambda one: (order.index(one[0][0]), -one[1], one[0]))
    return [(*key, count) for key, count in ranked]


def write(output: Path, assignment: Assignment, everybody: Sequence[Grade]) -> Path:
    """Write ``statistics.html`` and ``statistics.csv``; the path of the page."""
    parts, said = shares(assignment, everybody), mistakes(assignment, everybody)
    scores = sorted(grade.score for grade in everybody if grade.score is not None)
    of = sum(grade.result.points is not None for grade in everybody)
    rows = [("question", "kind", "what", "students", "of")]
    for name, part, right, partly, count in parts:
        rows.append((name, "right", part, str(right), str(count)))
        rows += [(name, "partly", part, str(partly), str(count))] if partly else []
    rows += [(name, "mistake", sentence, str(count), str(of)) for name, sentence, count in said]
    results.write_whole(output / "statistics.csv", table(rows))
    middle = f", the median is {number(scores[len(scores) // 2])}" if scores else ""
    lines = [*head(f"{assignment.title}: the class", STYLE), f"<h1>{escape(assignment.title)}: the class</h1>"]
    lines.append(f"<p>{len(everybody)} students, {len(scores)} with points{middle} of {number(assignment.points)}.</p>")
    for question in assignment.questions:
        lines += [f"<section><h2>{escape(question.name)}: {escape(question.title)}</h2>", "<table>"]
        lines.append("<tr><th>Part</th><th>Right</th><th>Share</th></tr>")
        for name, part, right, partly, count in parts:
            if name == question.name:
                some = f", {partly} partly" if partly else ""
                cells = (escape(part), f"{right} of {count}{some}", share(right, count))
                lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        lines += ["</table>", "<ul>"]
        for name, sentence, count in said:
            if name == question.name:
                often = ' class="often"' if of and count >= FEW * of else ""
                lines.append(f"<li{often}>{count} of {of}: {message_html(sentence)}</li>")
        lines += ["</ul>", "</section>"]
    results.write_whole(output / "statistics.html", "\n".join([*lines, *FOOT]))
    return output / "statistics.html"


def share(right: int, count: int) -> str:
    return f"{100 * right / count:.0f}%" if count else ""
