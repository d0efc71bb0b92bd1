"""What is computed once for a course, kept for single jobs: right results, the results of known mistakes, and on which
machines the grader has tested itself.

The file lies beside the results, for its owner only, and holds for the key that the results hold for.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

from . import wire
from .marking import Outcome, Prepared, generator
from .questions import Assignment
from .results import write_whole
from .sandbox import Sandbox

FILE, TESTED = "prepared.json", "tested"


def store(folder: Path, key: str, prepared: list[Prepared]) -> None:
    """Keep it; raises ``OSError``."""
    questions = [
        {
            "wanted": [wire.encode(value) for value in one.wanted],
            "mistakes": [[[outcome.kind, wire.encode(outcome.value), outcome.error] for outcome in row] for row in one.mistakes],
        }
        for one in prepared
    ]
    write_whole(folder / FILE, json.dumps({"key": key, "questions": questions}))


def load(folder: Path, key: str, assignment: Assignment, seed: int) -> list[Prepared] | None:
    """What was kept for this key; ``None`` if nothing was. The cases are drawn again, which takes no time."""
    try:
        content = json.loads((folder / FILE).read_text("utf-8"))
        if content["key"] != key:
            return None
        found = []
        for question, kept in zip(assignment.questions, content["questions"], strict=True):
            cases = question.cases(generator(question, seed))
            wanted = [wire.decode(value) for value in kept["wanted"]]
            mistakes = [[Outcome(kind, wire.decode(value), error) for kind, value, error in row] for row in kept["mistakes"]]
            if {len(cases)} != {len(row) for row in (wanted, *mistakes)} or len(mistakes) != len(question.mistakes):
                return None
            found.append(Prepared(question, cases, wanted, mistakes))
        return found
    except (OSError, ValueError, TypeError, KeyError):
        return None


def mark_of(folder: Path, key: str, sandbox: Sandbox) -> Path:
    """The file that says that the grader has tested itself on this machine, as it is now, with this key."""
    said = "\n".join([key, platform.node(), platform.release(), sandbox.describe()])
    return folder / TESTED / hashlib.sha256(said.encode()).hexdigest()[:20]
