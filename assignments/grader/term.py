"""A term: the grades of all assignments side by side, and a budget of late days."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from . import late, questions, reports, results
from .tables import number, table

TABLE = "term.csv"


def gather(folder: Path, home: Path = questions.HOME) -> dict[str, list[reports.Grade]]:
    """The grades of every assignment that has an output folder of its own name here, in course order."""
    there = [name for name in questions.names(home) if (folder / name / "settings.json").is_file()]
    return {name: reports.grades(folder / name, questions.load(name, home)) for name in there}


def write(folder: Path, home: Path = questions.HOME) -> tuple[Path, int, list[str]]:
    """Write one line a student: points and late days of each assignment, the sum, and its share of what there was.

    Returns the path, how many students there are, and the names that several of them have; raises ``ValueError``.
    """
    found = gather(folder, home)
    if not found:
        raise ValueError(f"grades: no assignment was graded in {str(folder)!r}")
    most = sum(questions.load(name, home).points for name in found)
    by_student: dict[str, dict[str, reports.Grade]] = {}
    for name, everybody in found.items():
        for grade in everybody:
            by_student.setdefault(grade.result.student, {})[name] = grade
    columns = [word for name in found for word in (name, f"{name} days late")]
    rows = [["student", "name", *columns, "sum", "of", "share"]]
    late_days = {name: late.after_extensions(folder / name) for name in found}
    for student, grades in sorted(by_student.items()):
        cells = []
        for name in found:
            days = late_days[name].get(student, 0)
            points = grades[name].score if name in grades else None
            cells += [number(points), "?" if days is None else str(days or "")]
        total = sum(grade.score for grade in grades.values() if grade.score is not None)
        called = next((grade.name for grade in grades.values() if grade.name), "")
        rows.append([student, called, *cells, number(total), number(most), f"{100 * total / most:.1f}%"])
    results.write_whole(folder / TABLE, table(rows))
    names = Counter(row[1] for row in rows[1:] if row[1])
    return folder / TABLE, len(by_student), [name for name, count in names.items() if count > 1]
