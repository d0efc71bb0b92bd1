"""Points of written answers while a person gives them: saved at once, and entered into the table of decisions later.

A draft is a file for each student in the folder ``drafts``, written whole at every change, so that it survives whatever
ends the program. Nobody sees it until it is exported: then sum and note go into ``overrides.csv``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from . import overrides, reports, results, written
from .questions import Assignment
from .rubrics import Rubric
from .submissions import Submission, Unreadable
from .written import is_visible

LONGEST = 4_000  # characters of a comment


@dataclass(frozen=True)
class Draft:
    """What a person gave one answer so far: ``points`` and chosen rows of the rubric, ``items``, by the title of the part.

    ``answer``: a hash of the one that was graded. ``version``: how often it was saved. ``exported``: points and note that
    were entered into the table of decisions last.
    """

    student: str
    answer: str
    points: dict[str, float] = field(default_factory=dict)
    items: dict[str, list[int]] = field(default_factory=dict)
    comment: str = ""
    version: int = 0
    exported: tuple[float, str] | None = None


@dataclass(frozen=True)
class Answer:
    """What one student wrote. ``pictures``: how many are attached, which are not shown."""

    student: str
    text: str
    pictures: int

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


class Outdated(ValueError):
    """Somebody else saved this draft in the meantime, or the page shows another answer."""


def answers(assignment: Assignment, found: Sequence[Submission]) -> tuple[list[Answer], dict[str, str]]:
    """Everybody's answers, and by student a sentence about who has none that can be shown."""
    kept, said = [], {}
    for submission in found:
        try:
            notebook = submission.notebook()
            texts, pictures = written.answer(assignment, notebook), written.pictures(assignment, notebook)
            if not texts and not pictures:
                raise Unreadable("No answer was found.")
            kept.append(Answer(submission.student, "\n\n(another cell)\n\n".join(texts), pictures))
        except Unreadable as problem:
            said[submission.student] = str(problem)
    return kept, said


def path_of(output: Path, student: str) -> Path:
    return output / "drafts" / f"{results.file_name(student)}.json"


def load(output: Path, answer: Answer) -> Draft:
    """The draft of a student, a new one if there is none; raises ``ValueError`` for a file that is damaged."""
    path = path_of(output, answer.student)
    if not path.exists():
        return Draft(answer.student, answer.hash)
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        exported = content.pop("exported")
        return Draft(**content, exported=tuple(exported) if exported else None)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"drafts: {str(path)!r} is damaged; move it away to begin anew with this student") from error


def store(output: Path, draft: Draft) -> None:
    results.private_folder(output / "drafts")
    results.write_whole(path_of(output, draft.student), json.dumps(asdict(draft), indent=1, ensure_ascii=False) + "\n")


def changed(draft: Draft, rubric: Rubric, said: dict[str, Any]) -> Draft:
    """The draft as the page says that it is now; raises :class:`Outdated`, or ``ValueError`` that names what is impossible."""
    if said.get("version") != draft.version:
        raise Outdated("version: this answer was graded in another window in the meantime")
    parts = {part.title: part for part in rubric.parts}
    points, items, comment = said.get("points"), said.get("items"), said.get("comment")
    if not isinstance(points, dict) or not isinstance(items, dict) or not set(points) | set(items) <= set(parts):
        raise ValueError(f"points, items: expected values by part, one of {', '.join(parts)}")
    for title, value in points.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= parts[title].points:
            most = parts[title].points
            raise ValueError(f"points: got {value!r} for {title!r}, expected a number from 0 to {most:g}")
    for title, chosen in items.items():
        known = range(len(parts[title].items))
        if not isinstance(chosen, list) or not all(type(number) is int and number in known for number in chosen):
            raise ValueError(f"items: got {chosen!r} for {title!r}, expected numbers of its {len(known)} items")
    if not isinstance(comment, str) or len(comment) > LONGEST:
        raise ValueError(f"comment: expected a text of at most {LONGEST} characters")
    now: dict[str, Any] = {"points": points, "items": items, "comment": comment, "version": draft.version + 1}
    return replace(draft, answer=str(said.get("answer")), **now)


def is_complete(draft: Draft, rubric: Rubric, answer: Answer) -> bool:
    """Whether every part has points, given to the answer as it is now."""
    return draft.answer == answer.hash and all(part.title in draft.points for part in rubric.parts)


def total(draft: Draft, rubric: Rubric) -> float:
    return math.fsum(draft.points[part.title] for part in rubric.parts)


def note(draft: Draft, rubric: Rubric) -> str:
    """What the student reads: the points of each part, if there are several, and the comment."""
    parts = rubric.parts if len(rubric.parts) > 1 else ()
    said = "; ".join(f"{part.title}: {draft.points[part.title]:g} of {part.points:g}" for part in parts)
    comment = " ".join("".join(one if is_visible(one) else " " for one in draft.comment).split())
    return ". ".join(filter(None, [said, comment]))


@dataclass
class Exported:
    """How many decisions are new or were replaced, how many stand there already, how many answers lack some points."""

    entered: int = 0
    same: int = 0
    open: int = 0


def export(output: Path, assignment: Assignment, rubric: Rubric, found: Sequence[Answer]) -> Exported:
    """Enter every complete draft into the table of decisions, and make tables and pages again.

    A draft that was entered before and has not changed since is left alone: what a person wrote afterwards stays.
    """
    done, entered = Exported(), []
    students = [one.result.student for one in reports.grades(output, assignment)]
    decisions = overrides.read(output, assignment, students)
    known = {name: name for name in students}
    for answer in found:
        draft = load(output, answer)
        if not is_complete(draft, rubric, answer):
            done.open += 1
            continue
        now = (total(draft, rubric), note(draft, rubric))
        if draft.exported == now:
            done.same += 1
            continue
        one = overrides.check(assignment, known, answer.student, assignment.written.name, f"{now[0]:g}", now[1])
        decisions[answer.student, assignment.written.name] = one
        entered.append(replace(draft, exported=now))
    if entered:
        overrides.write(output, decisions)
        for draft in entered:
            store(output, draft)
        reports.write_all(output, assignment)
    done.entered = len(entered)
    return done
