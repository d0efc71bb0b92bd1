"""Which cells of a submission are run: found by what they are and define, not by where they stand.

The setup cells come from the instructor's notebook. The visible checks of a submission are never run: the hidden tests
decide, and a student may have edited the checks; what a page quotes of them comes from ours. Cells of the release that
nobody changed and that are neither (small experiments and plots) are run only if a call fails because a name is
missing: they take time and rarely matter.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from .notebooks import TEXT_STUB, Notebook, released, role, text_of
from .questions import Assignment


@dataclass(frozen=True)
class Given:
    """What the release holds, as texts."""

    setup: list[str]
    checks: frozenset[str]
    check_ids: frozenset[str]
    stubs: dict[str, str]  # text, and the function it is the stub of
    others: frozenset[str]
    functions: tuple[str, ...]
    written: str
    quoted: dict[str, tuple[str, str]]  # by the name of a question: our cells that its checks need, and the checks


@dataclass(frozen=True)
class Chosen:
    """The cells to run: ours before all others, then the student's, and more of them if a name was missing.

    ``written``: whether the written question has an answer.
    """

    setup: list[str]
    first: list[str]
    everything: list[str]
    written: bool


def given(assignment: Assignment, notebook: Notebook) -> Given:
    """What students were given, from the instructor's notebook."""
    functions = {question.name: question.function for question in assignment.questions}
    setup, checks, ids, stubs, others, helpers, quoted = [], set(), set(), {}, set(), "", {}
    answered = False
    for cell in released(notebook)["cells"]:
        if cell.get("cell_type") != "code":
            continue
        says, text = role(cell), text_of(cell)
        name = says.get("grade_id", "")
        if says.get("grade"):
            checks.add(text.strip())
            ids.add(name)
            if name.removesuffix("-checks") in functions:
                quoted[name.removesuffix("-checks")] = (helpers, text)
        elif says.get("solution"):
            answered = True
            stubs[text.strip()] = functions.get(name, "")
        elif name.startswith("setup") or (says.get("locked") and not answered):
            setup.append(text)
        else:
            others.add(text.strip())
            helpers += f"{text}\n" if says.get("locked") else ""
    known, written = tuple(functions.values()), assignment.written.name
    return Given(setup, frozenset(checks), frozenset(ids), stubs, frozenset(others), known, written, quoted)


def choose(notebook: Notebook, release: Given) -> Chosen:
    """The cells of a submission to run, whatever was done to it."""
    setup_texts = {text.strip() for text in release.setup}
    rows: list[tuple[str, bool]] = []  # text, and whether it is an unchanged cell of the release
    stubs: list[str] = []
    answer = False
    for cell in notebook["cells"]:
        if not isinstance(cell, dict):
            continue
        text, says = text_of(cell), role(cell)
        bare, name = text.strip(), says.get("grade_id", "")
        if cell.get("cell_type") != "code":
            written = release.written in (name, cell.get("id"))
            answer = answer or (written and bare not in ("", TEXT_STUB))
            continue
        found = defined(bare, release.functions)
        marked = bool(says.get("grade") and says.get("locked")) or name in release.check_ids
        if not bare or bare in setup_texts or bare in release.checks or (marked and not found):
            continue
        if bare in release.stubs:
            stubs.append(bare)
        else:
            rows.append((text, bare in release.others))
    solved = set().union(*(defined(text, release.functions) for text, _ in rows))
    unsolved = [text for text in dict.fromkeys(stubs) if release.stubs[text] not in solved]
    first = [*unsolved, *(text for text, unchanged in rows if not unchanged)]
    return Chosen(release.setup, first, [*unsolved, *(text for text, _ in rows)], answer)


def as_python_reads(text: str) -> str:
    """Letters of other shapes, which Python takes for the plain ones in a name, are plain; a line that goes on is one.

    One by one: of a whole text that consists of accents, the same takes hours.
    """
    others = {one for one in text if not one.isascii()}
    return text.translate({ord(one): plain_letter(one) for one in others}).replace("\\\n", " ")


@functools.cache
def plain_letter(one: str) -> str:
    plain = unicodedata.normalize("NFKC", one)
    return plain if plain.isascii() and plain.isalnum() else one


def defined(text: str, functions: tuple[str, ...]) -> set[str]:
    """Those of the functions that the text of a cell defines.

    The text is searched, not parsed: a parser can be made to end its process by the text it reads.
    """
    text = as_python_reads(text)
    return {
        name
        for name in functions
        if re.search(rf"^((async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*(:[^=\n]*)?=(?!=)", text, re.MULTILINE)
    }


def calls(function: str, texts: list[str], functions: Sequence[str]) -> set[str]:
    """Those of the functions whose names stand in the cell that defines this one."""
    own = as_python_reads("\n".join(text for text in texts if function in defined(text, (function,))))
    return {name for name in functions if name != function and re.search(rf"\b{re.escape(name)}\b", own)}
