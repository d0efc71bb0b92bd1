"""What an assignment consists of: questions, their cases, and the mistakes that students make.

A question names the function that a student writes, a reference, a generator of cases, and known mistakes: wrong
solutions, each with the sentence that a student should read. The grader's tests demand that each is rejected, and when a
student's results agree with those of one, the feedback says so. References, cases and mistakes never enter the sandbox.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .comparing import Comparison, close

HOME = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Case:
    """One call of the student's function.

    ``arguments``: positional arguments; plain values, lists, dictionaries and numpy arrays. ``part``: the name of the
    part of the question that this case decides about.
    """

    arguments: tuple[Any, ...]
    part: str


@dataclass(frozen=True)
class Mistake:
    """A wrong solution, self-contained, with the student's signature, and what to tell whoever wrote it.

    ``says`` completes "This looks like the following mistake:" and must not contain a number from a hidden case.
    """

    solution: Callable[..., Any]
    says: str


@dataclass(frozen=True)
class Question:
    """One question that is graded by calls.

    ``name``: the ``grade_id`` of the solution cell; the visible checks are in the cell ``name + "-checks"``.
    ``parts``: points of each part, by its name; a part is earned when all its cases are right. ``shares``: by the names
    of parts whose result is an array, what its entries are ("states"): these parts earn a share of their points by the
    entries that are right, see :func:`comparing.entries_right`.
    ``reference``: a right solution, computed in another way than the notebook's where there is one.
    ``cases``: makes the cases from a random generator; every part needs at least one.
    ``mistakes``: at least five known wrong solutions. ``alternatives``: right ones that look different.
    ``driver``: if given, runs in the sandbox as ``driver(function, *arguments)`` and returns plain values and arrays:
    for gradients, for classes, for many calls in one. It is self-contained and imports inside its body. It hands over
    what came out, both runs of two and arguments as they are after the call, and never says itself whether that is right.
    ``compare``: says what is wrong with a result, see :mod:`comparing`. ``seconds``: of one call.
    ``sampled``: results are drawn, so that two right ones differ: then no wrong one is compared with other right ones.
    """

    name: str
    title: str
    function: str
    parts: dict[str, float]
    reference: Callable[..., Any]
    cases: Callable[[np.random.Generator], list[Case]]
    mistakes: tuple[Mistake, ...]
    alternatives: tuple[Callable[..., Any], ...] = ()
    driver: Callable[..., Any] | None = None
    compare: Comparison = field(default_factory=close)
    seconds: float = 10.0
    sampled: bool = False
    shares: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> float:
        return sum(self.parts.values())

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return self.driver(function, *arguments) if self.driver else function(*arguments)


@dataclass(frozen=True)
class Written:
    """The question that a person grades: the cell's ``grade_id``, its title and points."""

    name: str
    title: str
    points: float


@dataclass(frozen=True)
class Assignment:
    """Questions and limits.

    ``seconds``: for a whole submission, ``cell_seconds``: for one of its cells. ``memory_mb``: for all its processes
    together. ``name`` and ``folder`` are set by :func:`load`.
    """

    title: str
    questions: tuple[Question, ...]
    written: Written
    seconds: float = 120.0
    memory_mb: int = 1024
    name: str = ""
    folder: Path = HOME
    cell_seconds: float = 10.0

    @property
    def notebook(self) -> Path:
        return self.folder / f"{self.name}.ipynb"

    @property
    def points(self) -> float:
        return sum(question.points for question in self.questions) + self.written.points


def names(home: Path = HOME) -> list[str]:
    return sorted(path.parent.name for path in home.glob("*/hidden_tests.py"))


def load(name: str, home: Path = HOME) -> Assignment:
    """The assignment of this name; raises ``ValueError`` that lists the known ones."""
    if name not in names(home):
        raise ValueError(f"assignment: got {name!r}, expected one of {', '.join(names(home))}")
    found: Assignment = load_module(home / name / "hidden_tests.py").ASSIGNMENT
    return dataclasses.replace(found, name=name, folder=home / name)


def load_module(path: Path) -> ModuleType:
    """A Python file as a module, whatever its folder is called."""
    spec = importlib.util.spec_from_file_location(f"hidden_tests_of_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def source_of(function: Callable[..., Any]) -> str:
    """The text of a self-contained function or class; one that was made from a text (see :mod:`edits`) carries it."""
    made: str | None = vars(function).get("__source__")
    return made if made is not None else textwrap.dedent(inspect.getsource(function))


def as_solution(question: Question, solution: Callable[..., Any]) -> str:
    """A wrong or alternative solution as the cell that a student would have written."""
    return f"{source_of(solution)}\n\n{question.function} = {solution.__name__}\n"
