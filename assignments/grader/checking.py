"""What must hold for an assignment before it is handed out, checked in this process with trusted code only."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import cells, notebooks
from .marking import mark
from .outcomes import MISSING, Outcome, QuestionResult
from .preparing import Prepared, call_here, prepare
from .questions import Assignment, Case, Question

MISTAKES = 5  # of every question, at least


def mark_solution(prepared: Prepared, solution: Callable[..., Any]) -> QuestionResult:
    return mark(prepared, lambda question, case: call_here(question, solution, case))


def run_cells(cells: list[str]) -> dict[str, Any]:
    """Run trusted code cells, silently; only a stub may fail, with the error that says so."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(NotImplementedError):
            exec(compile(cell, f"<cell {number}>", "exec"), namespace)
    return namespace


def solutions(assignment: Assignment, notebook: notebooks.Notebook) -> dict[str, Any]:
    """What the cells of a trusted notebook define that the grader runs: the given ones and the answers."""
    given = cells.given(assignment, notebooks.read(assignment.notebook))
    chosen = cells.choose(notebook, given)
    return run_cells([*chosen.setup, *chosen.first])


def mark_namespace(prepared: Prepared, namespace: dict[str, Any]) -> QuestionResult:
    """Grade what trusted cells have defined, in this process."""

    def call(question: Question, case: Case) -> Outcome:
        if question.function not in namespace:
            return Outcome(MISSING)
        return call_here(question, namespace[question.function], case)

    return mark(prepared, call)


def faults(assignment: Assignment, seeds: Iterable[int] = (0,)) -> Iterator[str]:
    """Everything about an assignment that is not as it must be, as sentences."""
    notebook = notebooks.read(assignment.notebook)
    yield from notebook_faults(assignment, notebook)
    solved, stub = solutions(assignment, notebook), solutions(assignment, notebooks.released(notebook))
    for seed in seeds:
        for question in assignment.questions:
            prepared = prepare(question, seed)
            result = mark_namespace(prepared, solved)
            if result.points != result.max_points:
                yield f"{result.name}: the notebook's solution loses points: {result.messages}"
            result = mark_namespace(prepared, stub)
            if result.points:
                yield f"{result.name}: the stub scores {result.points}"
            yield from question_faults(prepared)
    yield from visible_faults(assignment, notebook, solved)


def notebook_faults(assignment: Assignment, notebook: notebooks.Notebook) -> Iterator[str]:
    roles = {notebooks.role(cell).get("grade_id"): notebooks.role(cell) for cell in notebook["cells"]}
    for question in assignment.questions:
        solution, checks = roles.get(question.name), roles.get(f"{question.name}-checks")
        if not solution or not solution.get("solution") or solution.get("grade"):
            yield f"{question.name}: no solution cell with this grade_id (solution true, grade false)"
        if not checks or not checks.get("grade") or not checks.get("locked"):
            yield f"{question.name}: no cell {question.name}-checks (grade true, locked true)"
        elif checks.get("points") != question.points:
            yield f"{question.name}: {checks.get('points')} points in the notebook, {question.points} in the hidden tests"
    written = roles.get(assignment.written.name)
    if not written or not written.get("solution") or not written.get("grade"):
        yield f"{assignment.written.name}: no cell of the written question (solution true, grade true)"
    elif written.get("points") != assignment.written.points:
        yield f"{assignment.written.name}: {written.get('points')} points in the notebook, {assignment.written.points} in the hidden tests"
    if not (assignment.folder / "rubric.md").is_file():
        yield "no rubric.md"


def question_faults(prepared: Prepared) -> Iterator[str]:
    """Known mistakes that pass or get the wrong name, right solutions that do not pass."""
    question = prepared.question
    if len(question.mistakes) < MISTAKES:
        yield f"{question.name}: {len(question.mistakes)} known mistakes, at least {MISTAKES} are wanted"
    for number, mistake in enumerate(question.mistakes, 1):
        result = mark_solution(prepared, mistake.solution)
        name = f"{question.name}: mistake {number} ({mistake.solution.__name__}, {mistake.says[:40]!r})"
        if result.points >= result.max_points:
            yield f"{name} scores full marks"
        elif not any(message.endswith(mistake.says) for message in result.messages):
            yield f"{name} is not called by its name but: {result.messages}"
    if not question.alternatives:
        yield f"{question.name}: no alternative right solution"
    for alternative in question.alternatives:
        result = mark_solution(prepared, alternative)
        if result.points != result.max_points:
            yield f"{question.name}: {alternative.__name__} is right and loses points: {result.messages}"


def visible_faults(assignment: Assignment, notebook: notebooks.Notebook, solved: dict[str, Any]) -> Iterator[str]:
    """Visible checks that a right solution fails or a known mistake passes: their numbers do not tell the two apart."""
    quoted = cells.given(assignment, notebook).quoted
    for question in assignment.questions:
        ends = [(one, True) for one in (solved[question.function], *question.alternatives)]
        for number, (solution, right) in enumerate([*ends, *((one.solution, False) for one in question.mistakes)]):
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    names = {**solved, question.function: solution}
                    for text in quoted[question.name]:
                        exec(compile(text, "<visible checks>", "exec"), names)
                said = None
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            if right and said is not None:
                yield f"{question.name}: the visible checks refuse right solution {number}: {said}"
            if not right and said is None:
                says = question.mistakes[number - len(ends)].says
                yield f"{question.name}: mistake {number - len(ends) + 1} ({says[:40]!r}) passes the visible checks"
