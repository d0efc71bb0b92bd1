"""Late work: how many days, how many of these are forgiven, and what the rest costs.

``late.csv`` and ``extensions.csv`` in the output folder have the columns ``student`` and ``days`` and may be edited by
hand; a ``?`` in the first says that the days are not known, and the second's are subtracted. The policy, such as
``10% a day, at most 50%``, stands in the settings. Percents are of the assignment's points; no grade falls below 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path

from .results import write_whole
from .submissions import student_name
from .tables import read_table, table

LATE, EXTENSIONS, BUDGET = "late.csv", "extensions.csv", "late_budget.json"
MAX_DAYS = 1_000
AMOUNT = r"(\d+(?:\.\d+)?) ?(%|points?)"
POLICY = re.compile(rf"{AMOUNT} (?:a|per) day(?:,? at most {AMOUNT})?")
EXAMPLES = "'10% a day, at most 50%', '2 points a day' or 'none'"

Days = dict[str, int | None]  # by student; None: late, but nobody knows by how much


@dataclass(frozen=True)
class Late:
    """Lateness of one student: days that count, points before, and points that are taken off."""

    days: int | None
    before: float | None = None
    taken: float = 0.0


@dataclass(frozen=True)
class Policy:
    """What a day costs, and the most that all together cost; ``percent``: of the assignment's points."""

    text: str
    amount: float
    percent: bool
    most: float
    most_percent: bool

    def cost(self, days: int, points: float) -> float:
        whole = days * self.amount * (points / 100 if self.percent else 1)
        return min(whole, self.most * (points / 100 if self.most_percent else 1))


def parse(text: str) -> Policy:
    found = POLICY.fullmatch(" ".join(text.lower().split()))
    if not found:
        raise ValueError(f"policy: got {text!r}, expected a sentence like {EXAMPLES}")
    amount, unit, most, most_unit = found.groups()
    limit = float(most) if most else 100.0
    return Policy(found[0], float(amount), unit == "%", limit, (most_unit or "%") == "%")


def policy_of(output: Path) -> Policy | None:
    path = output / "settings.json"
    text = json.loads(path.read_text("utf-8")).get("late") if path.exists() else None
    return parse(text) if text else None


def set_policy(output: Path, text: str) -> None:
    """Keep a policy in the settings of an output folder; ``none`` takes it out. Raises ``ValueError``."""
    path = output / "settings.json"
    settings = json.loads(path.read_text("utf-8"))
    settings.pop("late", None)
    if text.strip().lower() != "none":
        settings["late"] = parse(text).text
    write_whole(path, json.dumps(settings, indent=1) + "\n")


def read(path: Path) -> Days:
    """The days in a table, by student; raises ``ValueError`` that names the line."""
    if not path.exists():
        return {}
    found: Days = {}
    for line, row in read_table(path, path.name, ("student", "days")):
        text, student = row["days"], row["student"]
        known = re.fullmatch(r"[0-9]{1,4}", text) and int(text) <= MAX_DAYS
        if not student or not (known or (text == "?" and path.name == LATE)):
            what = f"days: got {text!r}, expected a whole number from 0 to {MAX_DAYS}"
            raise ValueError(f"{path.name}, line {line}: {what if student else 'student: got nothing'}")
        found[student_name(student)] = int(text) if known else None
    return found


def counted(output: Path) -> Days:
    """The days that count for each student: without extensions, and without what is left of the budget of the term.

    The budget is used up in the order of the assignments' names, by the output folders beside this one.
    """
    found, budget = after_extensions(output), budget_of(output.parent)
    if budget:
        before = [path.parent for path in output.parent.glob(f"*/{LATE}") if path.parent.name < output.name]
        earlier = list(map(after_extensions, before))
        for student, days in found.items():
            left = max(0, budget - sum(days.get(student) or 0 for days in earlier))
            found[student] = days if days is None else max(0, days - left)
    return {student: days for student, days in found.items() if days != 0}


def budget_of(folder: Path) -> int:
    """How many late days of a term are forgiven each student; 0 if nothing was said. Raises ``ValueError``."""
    path = folder / BUDGET
    try:
        return int(json.loads(path.read_text("utf-8"))["days"]) if path.exists() else 0
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"grades: {str(path)!r} is damaged") from error


def set_budget(folder: Path, days: int) -> None:
    """Keep a budget of late days for all assignments of a folder; 0 takes it away. Raises ``ValueError``."""
    if not 0 <= days <= MAX_DAYS:
        raise ValueError(f"late-days: got {days}, expected a number from 0 to {MAX_DAYS}")
    write_whole(folder / BUDGET, json.dumps({"days": days}) + "\n")


def after_extensions(output: Path) -> Days:
    """Days late of each student, without those that were granted."""
    granted = read(output / EXTENSIONS)
    late = read(output / LATE).items()
    found = {one: days if days is None else max(0, days - (granted.get(one) or 0)) for one, days in late}
    return {student: days for student, days in found.items() if days != 0}


def strangers(output: Path, students: Collection[str]) -> list[tuple[str, str]]:
    named = [(name, table) for table in (LATE, EXTENSIONS) for name in read(output / table)]
    known = set(map(student_name, students))
    return [(name, f"Stands in {table}, but has no result.") for name, table in named if name not in known]


def days_late(when: datetime, due: datetime) -> int:
    return max(0, math.ceil((when - due) / timedelta(days=1)))


def read_due(text: str) -> datetime:
    """A date, which ends at midnight, or a date and time; raises ``ValueError``."""
    try:
        due = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"due: got {text!r}, expected something like 2026-10-01 or '2026-10-01 18:00'") from error
    if due.tzinfo is not None:
        due = due.astimezone().replace(tzinfo=None)
    return datetime.combine(due, time(23, 59, 59)) if len(text.strip()) <= 10 else due


def update(output: Path, seen: Mapping[str, int | None]) -> list[str]:
    """Bring ``late.csv`` up to date with what was collected; sentences about what changed.

    Days that somebody entered for a ``?`` stay.
    """
    before = read(output / LATE)
    after = dict(before)
    for student, days in seen.items():
        if days is None:
            after.setdefault(student, None)
        elif days == 0:
            after.pop(student, None)
        else:
            after[student] = days
    if after != before:
        rows = [(student, "?" if days is None else str(days)) for student, days in sorted(after.items())]
        write_whole(output / LATE, table([("student", "days"), *rows]))
    days_of = {one: (after.get(one, 0), before.get(one, 0)) for one in sorted(after | before)}
    earlier = {one: f"; before, {shown(days)}" for one, days in before.items()}
    return [f"{one}: {shown(now)}{earlier.get(one, '')}." for one, (now, then) in days_of.items() if now != then]


def shown(days: int | None) -> str:
    if days is None:
        return "late, nobody knows how much"
    return f"{days} day{'s' * (days != 1)} late" if days else "in time"
