"""A wrong answer as the right one to another call: what the reference gives if an argument is another one.

Who forgets the discount computes what is right for gamma 1; who takes one flag for the other, what is right with the
flags exchanged. So the reference, in the grader's process, is run on changed arguments. A change is named only if it
explains every case that it is asked about, those that are right included, in numbers enough that it is no accident.
Then what is said is true, whatever the student wrote.

Sentences are made of the names of arguments, as the assignment writes them, before any answer is looked at
(:func:`sentences`): a student's code, which knows the hidden inputs, can choose one of them and nothing else.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from .comparing import is_numeric, seen_by
from .diagnosing import leaves, several_results
from .questions import Case, Question, source_of

Path = tuple[Any, ...]  # from the arguments of a case to one of them: its number, then keys of dictionaries
Run = Callable[[Question, Case], Any]  # what the reference returns; raises whatever it raises

IF = "The result is what a right solution gives if "
CALLS = 5  # times those of the reference on the case as it is: a changed case may make it run for ever
ALL_CALLS = 400_000  # of the references of all suppositions about one answer, some seconds; then nothing is said


@dataclass(frozen=True)
class Supposition:
    """``change``: other arguments in place of these, or None if it makes no sense for them.

    ``turned``: whether the numbers that come back are negated.
    """

    says: str
    change: Callable[[Sequence[Any]], Sequence[Any] | None]
    turned: bool = False


@dataclass(frozen=True)
class Leaf:
    """One argument: where it stands, its name if the student knows it, and the values that it has in the cases."""

    path: Path
    name: str | None
    values: list[Any]

    @property
    def kind(self) -> str:
        kinds = {kind_of(value) for value in self.values}
        return kinds.pop() if len(kinds) == 1 else "word" if kinds == {"word", "number"} else ""


def kind_of(value: Any) -> str:
    if value is None or isinstance(value, (str, bool)):
        return "word"
    if isinstance(value, (int, float)):
        return "count" if isinstance(value, int) else "number"
    if isinstance(value, np.ndarray) and value.ndim:
        return {"f": "reals", "i": "integers", "b": "flags"}.get(value.dtype.kind, "")
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(one, float) for one in value):
        return "pair"
    return ""


# --- the arguments of a question and their names


def names_of(question: Question, count: int) -> list[str]:
    """The names of the positional arguments of a case."""
    given = list(inspect.signature(question.reference).parameters)
    if question.driver is None:
        return given[:count]
    named, rest = [], False
    for parameter in list(inspect.signature(question.driver).parameters.values())[1:]:
        rest = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        if not rest:
            named.append(parameter.name)
    if rest:  # what a driver hands on as it is has the function's own names
        start = given.index(named[-1]) + 1 if named and named[-1] in given else 0
        named += given[start:]
    return named[:count]


def arguments_of(question: Question, cases: Sequence[Case]) -> list[Leaf]:
    """All arguments, those in dictionaries one by one; a name only where the student knows it."""
    known, text = (set(inspect.signature(question.reference).parameters), source_of(question.reference))
    found: dict[Path, list[Any]] = {}
    for case in cases:
        for number, argument in enumerate(case.arguments):
            for path, value in inner((number,), argument):
                found.setdefault(path, []).append(value)
    names = names_of(question, max(len(case.arguments) for case in cases))
    made = []
    for path, values in found.items():
        name = path[-1] if len(path) > 1 else names[path[0]] if path[0] < len(names) else ""
        made.append(Leaf(path, name if name in known or f'"{name}"' in text else None, values))
    return [leaf for leaf in made if leaf.kind and leaf.name != "seed"]


def everywhere(question: Question, cases: Sequence[Case]) -> list[Leaf]:
    """The arguments that the student knows and that every case has."""
    return [leaf for leaf in arguments_of(question, cases) if leaf.name and len(leaf.values) == len(cases)]


def inner(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key in value:
            yield from inner((*path, key), value[key])
    else:
        yield path, value


def at(arguments: Sequence[Any], path: Path) -> Any:
    value: Any = arguments
    for key in path:
        value = value[key]
    return value


def replaced(arguments: Sequence[Any], path: Path, value: Any) -> list[Any]:
    """A copy of the arguments with another value at one place."""
    made = list(arguments)
    if len(path) == 1:
        made[path[0]] = value
        return made
    inside = made[path[0]] = dict(made[path[0]])
    for key in path[1:-1]:
        inside[key] = dict(inside[key])
        inside = inside[key]
    inside[path[-1]] = value
    return made


# --- what may be supposed


def sentences(question: Question, cases: Sequence[Case]) -> set[str]:
    """All that this module may say about a question: it depends on no answer."""
    said = {one.says for one in suppositions(question, cases)} | {says for says, _, _ in meetings(question, cases)}
    return said | set(places(question, cases))


def suppositions(question: Question, cases: Sequence[Case]) -> list[Supposition]:
    """All that may be said about a question, simple things first. It depends on no answer."""
    known = arguments_of(question, cases)
    visible = [leaf for leaf in known if leaf.name]
    found: list[Supposition] = []
    for leaf in visible:
        found += [one_changed(leaf, says, change) for says, change in CHANGES.get(leaf.kind, ())]
    for leaf in visible:
        found += other_words(leaf)
    for one, other in itertools.permutations(visible, 2):
        found += of_two(one, other)
    for leaf in known:
        if leaf.name is None and leaf.kind == "word":  # a driver's word for what is looked at
            found += [Supposition(ANOTHER_RESULT, put(leaf, word)) for word in unique(leaf.values)]
    flags = [leaf for leaf in visible if leaf.kind == "flags"]
    if len(flags) == 2:
        found += [masked_by_both(leaf, *flags) for leaf in visible if leaf.kind == "reals"]
    # what is never negative is a probability, a number of something or a width: that stays
    reals = [leaf for leaf in visible if leaf.kind == "reals" and any((value < 0).any() for value in leaf.values)]
    if reals:
        found.append(Supposition(SMALLEST, lambda arguments: all_negated(arguments, reals), turned=True))
    return list({(one.says, id(one.change)): one for one in found}.values())


ANOTHER_RESULT = "The result is another one of those that are asked for: have two of them changed places?"
SMALLEST = (
    "The result is right for everything with the opposite sign, and then turned around: is the smallest taken where the"
    " largest is asked for, or the other way round?"
)


def unique(values: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def put(leaf: Leaf, value: Any) -> Callable[[Sequence[Any]], Sequence[Any] | None]:
    return lambda arguments: replaced(arguments, leaf.path, value)


def all_negated(arguments: Sequence[Any], places: Sequence[Leaf]) -> Sequence[Any]:
    for leaf in places:
        arguments = replaced(arguments, leaf.path, -at(arguments, leaf.path))
    return arguments


def one_changed(leaf: Leaf, says: str, change: Callable[[Any], Any]) -> Supposition:
    def changed(arguments: Sequence[Any]) -> Sequence[Any]:
        return replaced(arguments, leaf.path, change(at(arguments, leaf.path)))

    return Supposition(IF + says.replace("*", f"`{leaf.name}`") + ".", changed)


def other_words(leaf: Leaf) -> list[Supposition]:
    """A word, a truth value or None as in other cases."""
    if leaf.kind != "word":
        return []
    words = [value for value in unique(leaf.values) if kind_of(value) == "word"]
    return [
        Supposition(f"{IF}`{leaf.name}` is always `{word!r}`.", put(leaf, word))
        for word in words
        if len(unique(leaf.values)) > 1
    ]


def of_two(one: Leaf, other: Leaf) -> list[Supposition]:
    """Two arguments that are confused, or meet where they should not."""

    def alike(arguments: Sequence[Any]) -> bool:
        return bool(np.shape(at(arguments, one.path)) == np.shape(at(arguments, other.path)))

    def in_place(arguments: Sequence[Any]) -> Sequence[Any] | None:
        return replaced(arguments, one.path, at(arguments, other.path)) if alike(arguments) else None

    def exchanged(arguments: Sequence[Any]) -> Sequence[Any] | None:
        made = in_place(arguments)
        return None if made is None else replaced(made, other.path, at(arguments, one.path))

    def times(arguments: Sequence[Any]) -> Sequence[Any]:
        return replaced(arguments, one.path, at(arguments, one.path) * at(arguments, other.path))

    def masked(arguments: Sequence[Any]) -> Sequence[Any] | None:
        value = at(arguments, one.path)
        return (
            replaced(arguments, one.path, np.where(at(arguments, other.path), 0.0, value)) if alike(arguments) else None
        )

    found = []
    if one.kind == other.kind != "word":
        found.append(Supposition(f"{IF}`{other.name}` stands in the place of `{one.name}`.", in_place))
        if one.path < other.path:
            found.append(Supposition(f"{IF}`{one.name}` and `{other.name}` change places.", exchanged))
    if one.kind in ("reals", "number") and other.kind == "number":
        found.append(Supposition(f"{IF}`{one.name}` is multiplied by `{other.name}`.", times))
    if one.kind == "reals" and other.kind == "flags":
        found.append(Supposition(f"{IF}`{one.name}` is 0 where `{other.name}` is set.", masked))
    return found


def masked_by_both(leaf: Leaf, one: Leaf, other: Leaf) -> Supposition:
    def masked(arguments: Sequence[Any]) -> Sequence[Any] | None:
        value, first, second = (at(arguments, place.path) for place in (leaf, one, other))
        if not value.shape == first.shape == second.shape:
            return None
        return replaced(arguments, leaf.path, np.where(first | second, 0.0, value))

    return Supposition(f"{IF}`{leaf.name}` is 0 where `{one.name}` or `{other.name}` is set.", masked)


def step(by: int) -> Callable[[np.ndarray], np.ndarray]:
    """Everything one place later or earlier along the first axis; the entry at the edge stays."""
    return lambda value: np.concatenate([value[:1], value[:-1]] if by > 0 else [value[1:], value[-1:]])


def each_row(how: Callable[..., Any]) -> Callable[[np.ndarray], np.ndarray]:
    """The same number at all places of a row, along the last axis."""
    return lambda value: np.broadcast_to(how(value, axis=-1, keepdims=True), value.shape).copy()


CHANGES: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "number": [
        ("* is 1", lambda value: 1.0),
        ("* is 0", lambda value: 0.0),
        ("* has the opposite sign", lambda value: -value),
        ("* is replaced by 1 - *", lambda value: 1 - value),
        ("* is squared", lambda value: value**2),
        ("* is twice as large", lambda value: 2 * value),
        ("* is half as large", lambda value: value / 2),
    ],
    "count": [
        ("* is larger by one", lambda value: value + 1),
        ("* is smaller by one", lambda value: value - 1),
        ("* is 1", lambda value: 1),
    ],
    "pair": [("the two numbers of * change places", lambda value: type(value)([value[1], value[0]]))],
    "flags": [
        ("* is set nowhere", np.zeros_like),
        ("* is set everywhere", np.ones_like),
        ("* is turned around", np.logical_not),
        ("* stands one step later", step(1)),
        ("* stands one step earlier", step(-1)),
    ],
    "integers": [
        ("* is larger by one", lambda value: value + 1),
        ("* is smaller by one", lambda value: value - 1),
        ("* stands one step later", step(1)),
        ("* stands one step earlier", step(-1)),
    ],
    "reals": [
        ("* is 0 everywhere", np.zeros_like),
        ("* has the opposite sign", np.negative),
        ("* is the mean of * everywhere", lambda value: np.full_like(value, value.mean())),
        ("the mean of * is subtracted from it", lambda value: value - value.mean()),
        ("* is normalized", lambda value: (value - value.mean()) / value.std()),
        ("* is normalized", lambda value: (value - value.mean()) / (value.std(ddof=1) if value.size > 1 else 0.0)),
        ("* has no sign", np.abs),
        ("what is negative in * is 0", lambda value: value.clip(min=0)),
        ("* is twice as large", lambda value: 2 * value),
        ("* is half as large", lambda value: value / 2),
        ("* is squared", np.square),
        ("the exponential of * is taken", np.exp),
        ("the logarithm of * is taken", np.log),
        ("* is cut to whole numbers", np.trunc),
        ("of each row of * the mean is taken", each_row(np.mean)),
        ("of each row of * the largest is taken", each_row(np.max)),
        ("* stands one step later", step(1)),
        ("* stands one step earlier", step(-1)),
        ("* is in the opposite order", lambda value: value[::-1].copy()),
    ],
}


# --- what needs no other call: an argument in the result, and where the wrong results are

MET: dict[str, Callable[[Any, Any], Any]] = {
    "The result is `{name}` as it came in.": lambda want, value: value,
    "The result is the right one times `{name}`.": lambda want, value: want * value,
    "The result is the right one divided by `{name}`.": lambda want, value: want / value,
    "The result is the right one plus `{name}`.": lambda want, value: want + value,
    "The result is the right one minus `{name}`.": lambda want, value: want - value,
}
WHERE_SET = "Only the entries where `{name}` is set are wrong."
WHERE_NOT_SET = "Only the entries where `{name}` is not set are wrong."
RIGHT_AT = "All tests in which `{name}` is {value} are right, and all others are wrong."


def meetings(question: Question, cases: Sequence[Case]) -> list[tuple[str, Leaf, Callable[[Any, Any], Any]]]:
    """Sentences about a result that contains an argument, each with the argument and what is made with it."""
    visible = [leaf for leaf in everywhere(question, cases) if leaf.kind in ("number", "count", "reals")]
    return [(says.format(name=leaf.name), leaf, build) for says, build in MET.items() for leaf in visible]


def met(
    question: Question, cases: Sequence[Case], wrong: Sequence[tuple[int, list[tuple[np.ndarray, np.ndarray]] | None]]
) -> str | None:
    """The sentence about an argument that explains all wrong arrays: pairs of what came back and what is right."""
    for says, leaf, build in meetings(question, cases):
        numbers: list[float] = []
        for number, pairs in wrong:
            fitting = fitting_numbers(pairs, at(cases[number].arguments, leaf.path), build)
            if fitting is None:
                break
            numbers += fitting
        else:
            if weight(numbers) >= 2:
                return says
    return None


def fitting_numbers(
    pairs: list[tuple[np.ndarray, np.ndarray]] | None, value: Any, build: Callable[[Any, Any], Any]
) -> list[float] | None:
    """The numbers of wrong arrays if all are what ``build`` makes of the right ones and an argument, else None."""
    numbers: list[float] = []
    for got, want in pairs or ():
        if np.ndim(value) and np.shape(value) != want.shape:
            return None
        with np.errstate(all="ignore"):
            supposed = np.asarray(build(want, value), dtype=np.float64)
        if supposed.shape != got.shape or not np.isfinite(supposed).all() or not close_to(got, supposed):
            return None
        numbers += got.ravel().tolist()
    return numbers or None


def places(question: Question, cases: Sequence[Case]) -> list[str]:
    """All sentences about where the wrong results are."""
    found = []
    for leaf in everywhere(question, cases):
        if leaf.kind == "flags":
            found += [says.format(name=leaf.name) for says in (WHERE_SET, WHERE_NOT_SET)]
        if leaf.kind in ("number", "count", "word"):
            found += [RIGHT_AT.format(name=leaf.name, value=shown(value)) for value in special(leaf)]
    return found


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)


def special(leaf: Leaf) -> list[Any]:
    """The values of an argument after which tests are told apart: words, 0 and 1, if there are others too."""
    values = unique(leaf.values)
    return [value for value in values if kind_of(value) == "word" or value in (0, 1)] if len(values) > 1 else []


def where_flags(
    question: Question, cases: Sequence[Case], wrong: Sequence[tuple[int, list[tuple[np.ndarray, np.ndarray]] | None]]
) -> str | None:
    """Whether the wrong entries are those where a flag is set, or those where it is not."""
    for leaf in everywhere(question, cases):
        if leaf.kind != "flags":
            continue
        for says, turned in ((WHERE_SET, False), (WHERE_NOT_SET, True)):
            fits = [fits_flags(pairs, at(cases[number].arguments, leaf.path) != turned) for number, pairs in wrong]
            if None not in fits and sum(one or 0 for one in fits) > 2:
                return says.format(name=leaf.name)
    return None


def fits_flags(pairs: list[tuple[np.ndarray, np.ndarray]] | None, flags: np.ndarray) -> int | None:
    """How many entries are wrong, if they are those of the flags, and others are right; else None."""
    if not pairs or flags.all():
        return None
    for got, want in pairs:
        if (
            got.shape != want.shape
            or want.shape != flags.shape
            or not np.array_equal(~np.isclose(got, want, rtol=1e-4, atol=1e-6), flags)
        ):
            return None
    return int(flags.sum())


def right_at(question: Question, cases: Sequence[Case], right: Sequence[bool]) -> str | None:
    """A value of an argument with which all tests are right, while without it all are wrong."""
    for leaf in everywhere(question, cases):
        if leaf.kind in ("number", "count", "word"):
            for value in special(leaf):
                has = [type(one) is type(value) and one == value for one in leaf.values]
                if has == list(right) and sum(has) > 1 and len(has) - sum(has) > 1:
                    return RIGHT_AT.format(name=leaf.name, value=shown(value))
    return None


# --- which of it explains an answer


def explained(
    question: Question,
    cases: Sequence[Case],
    wanted: Sequence[Any],
    values: Mapping[int, Any],
    wrong: Sequence[int],
    run: Run,
) -> str | None:
    """The first supposition under which each of some cases comes out as the student's, or None.

    ``values``: what came back, by the number of the case, ``wrong``: which of these are wrong.
    """
    if question.sampled or not wrong:
        return None
    limits: dict[int, int] = {}
    left = ALL_CALLS
    order = sorted(values, key=lambda number: number not in wrong)  # most suppositions fall with the first one

    def weigh(one: Supposition, number: int) -> float | None:
        """How much a case speaks for a supposition; None if it speaks against it."""
        nonlocal left
        case, value = cases[number], values[number]
        changed = one.change(case.arguments)
        if changed is None or (number in wrong and not one.turned and same_arguments(changed, case.arguments)):
            return None
        if number not in limits:
            limits[number] = CALLS * counted(lambda: run(question, case), ALL_CALLS)[1] + 1000
        if left < 0:
            return None
        other, calls = counted(lambda: run(question, Case(tuple(changed), case.part)), limits[number])
        left -= calls
        if isinstance(other, Stopped):
            return None
        other = echoed(negated(other) if one.turned else other, wanted[number], case.arguments)
        if question.compare(value, other) is not None:
            return None
        if number not in wrong:
            return 0.0
        return agreement(*(seen_by(question.compare, result) for result in (value, other, wanted[number])))

    def enough(one: Supposition) -> bool:
        evidence = 0.0
        for number in order:
            try:
                with np.errstate(all="ignore"):
                    speaks = weigh(one, number)
            except Exception:  # the reference has no result for this, or what a student returned cannot be read
                return False
            if speaks is None:
                return False
            evidence += speaks
        return evidence >= 2

    return next((one.says for one in suppositions(question, cases) if enough(one)), None)


def echoed(other: Any, want: Any, arguments: Sequence[Any]) -> Any:
    """The result of a changed call, but where one of several right results is an argument as it came in, that argument."""
    if isinstance(want, dict):
        return {
            key: want[key] if is_given(want[key], arguments) else echoed(other[key], want[key], arguments)
            for key in want
        }
    if several_results(want):
        pairs = zip(other, want, strict=True)
        return [right if is_given(right, arguments) else echoed(one, right, arguments) for one, right in pairs]
    return other


def is_given(value: Any, arguments: Sequence[Any]) -> bool:
    """Whether something is an array among the arguments, or a list of such."""
    if several_results(value):
        return all(is_given(one, arguments) for one in value)
    if not isinstance(value, np.ndarray) or value.size < 2:
        return False
    given = [one for number, argument in enumerate(arguments) for _, one in inner((number,), argument)]
    return any(isinstance(one, np.ndarray) and same_arguments(one, value) for one in given)


def agreement(value: Any, other: Any, want: Any) -> float | None:
    """How many numbers of the wrong result are those supposed; None if one of them is not, but for rounding.

    A comparison of frequencies or of trained policies lets much pass that proves nothing. Whole numbers prove less.
    """
    numbers: list[float] = []
    for (got, supposed), (_, right) in zip(leaves(value, other), leaves(value, want), strict=True):
        if not is_numeric(got):
            continue
        one, two, three = (np.asarray(x, dtype=np.float64) for x in (got, supposed, right))
        if one.shape != two.shape or not close_to(one, two):
            return None
        if one.shape != three.shape:
            numbers += one.ravel().tolist()
        else:
            numbers += one[~np.isclose(one, three, rtol=1e-3, atol=1e-6)].ravel().tolist()
    return weight(numbers)


def close_to(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one shape agree to three digits."""
    return bool(
        np.allclose(one, other, rtol=1e-3, atol=1e-5 * max(1.0, np.abs(other).max(initial=0.0)), equal_nan=True)
    )


def weight(numbers: Sequence[float]) -> float:
    """How much numbers that agree prove: different ones count, whole numbers less."""
    return sum(1 / 3 if x == int(x) else 1.0 for x in {round(x, 6) for x in numbers if np.isfinite(x)})


def same_arguments(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(same_arguments(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same_arguments, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.shape(one) == np.shape(other) and bool(np.array_equal(one, other))
    return bool(one == other)


def negated(value: Any) -> Any:
    """The result with all numbers that are not whole numbers negated: those are counts and choices."""
    if isinstance(value, dict):
        return {key: negated(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [negated(one) for one in value]
    real = isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
    return -value if real else value


class Stopped:
    """In place of a result: there is none, or it takes too long."""


class TooLongError(Exception):
    """A changed case makes the reference run on and on."""


def counted(work: Callable[[], Any], limit: int) -> tuple[Any, int]:
    """What ``work`` returns, or ``Stopped``, and how many calls it makes; after ``limit`` of them it is stopped.

    Calls are counted, not seconds: the same is said on a slow machine. Those of an import are not: a module that is
    stopped halfway would stay broken for all who need it later, and only the first who needs it would pay.
    """
    calls, importing, before = 0, 0, sys.getprofile()

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls, importing
        if frame.f_code.co_name == "_find_and_load" and event in ("call", "return"):
            importing += 1 if event == "call" else -1
        elif not importing and event in ("call", "c_call"):
            calls += 1
            if calls > limit:
                raise TooLongError

    try:
        sys.setprofile(count)
        try:
            result = work()
        finally:
            sys.setprofile(before)  # a call like others: it may be the one too many
    except Exception:  # too many calls, or the reference has no result for this
        result = Stopped()
        sys.setprofile(before)
    return result, calls
