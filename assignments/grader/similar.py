"""The code of a class as files for a program that compares programs: what is each student's own, and what all were given.

Comparing is left to a program of its own, which others look after (the instructor's guide names one). Nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import cells, notebooks, questions, results
from .questions import Assignment
from .submissions import Submission, Unreadable

LONGEST = 200_000  # characters of a submission that are written
OWN, GIVEN = "students", "given"  # folders


def write(assignment: Assignment, found: Sequence[Submission], folder: Path) -> tuple[int, list[str]]:
    """Write a file for each student and what everybody has, for their owner only; how many, and who has none and why.

    Raises ``ValueError`` if something is in the folder already: what somebody handed in before would be compared, too.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"folder: {str(folder)!r} is not empty")
    for place in (folder, folder / OWN, folder / GIVEN):
        results.private_folder(place)
    notebook, said, count = notebooks.read(assignment.notebook), list[str](), 0
    given = cells.given(assignment, notebook)
    for submission in found:
        try:
            chosen = cells.choose(submission.notebook(), given)
        except Unreadable as problem:
            said.append(f"{submission.student!r}: {problem}")
            continue
        text = "\n\n".join(text for text in chosen.first if text.strip() not in given.stubs)
        if len(text) > LONGEST:
            said.append(f"{submission.student!r}: only the first {LONGEST} characters were written")
        path = folder / OWN / f"{results.file_name(submission.student)}.py"
        results.write_whole(path, text[:LONGEST].encode("utf-8", "replace"))
        count += 1
    # what nobody has to be asked about: the release, and the instructor's answers, references and alternatives
    codes = [cell for book in (notebook, notebooks.released(notebook)) for cell in book["cells"]]
    known = [notebooks.text_of(cell) for cell in codes if cell["cell_type"] == "code"]
    for question in assignment.questions:
        known += [questions.source_of(one) for one in (question.reference, *question.alternatives)]
    results.write_whole(folder / GIVEN / "given.py", "\n\n".join(known))
    return count, said
