"""Which functions of the book's library an answer uses that the instructor's own answer does not.

Whether that is allowed is for a person to say: the names stand in the note of the table. Texts are searched and nothing
is run, so whoever hides a call is not found.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from .cells import as_python_reads

# no "(" inside: thousands without an end take no time
FROM = re.compile(r"\bfrom[ \t]+rlbook_lib[\w.]*[ \t]+import[ \t]*(\([^()]*\)|[^\n#;]*)")
IMPORT = re.compile(r"\bimport[ \t]+rlbook_lib[\w.]*(?:[ \t]+as[ \t]+(\w+))?")


@functools.cache
def library_names() -> frozenset[str]:
    """The public functions and classes of ``rlbook_lib``, by its text: Python's parser fails in two threads at once."""
    found = importlib.util.find_spec("rlbook_lib")
    folder = Path(found.origin).parent if found and found.origin else Path()
    texts = [path.read_text("utf-8") for path in folder.glob("*.py")]
    return frozenset(name for text in texts for name in re.findall(r"^(?:def|class) ([A-Za-z]\w*)", text, re.MULTILINE))


def imports(texts: Sequence[str]) -> dict[str, str]:
    """Which names these texts bind to something of the library: the name there, and the name in the library."""
    text = re.sub(r"#[^\n]*", "", as_python_reads("\n".join(texts)))
    bound = {alias or "rlbook_lib": "rlbook_lib" for alias in IMPORT.findall(text)}
    for names in FROM.findall(text):
        for item in names.strip("()").split(","):
            words = item.split()
            if words == ["*"]:
                bound |= {name: name for name in library_names()}
            elif words:
                bound[words[-1]] = words[0]
    return bound


def used(answers: Sequence[str], bound: dict[str, str]) -> set[str]:
    """What of the library's functions and classes stands in these texts, by the names that are bound."""
    text = as_python_reads("\n".join(answers))
    text = IMPORT.sub("", FROM.sub("", text))  # what is imported only is not used
    found = set()
    for chain in re.findall(r"(?<![\w.])\w+(?:[ \t]*\.[ \t]*\w+)*", text):
        first, *more = re.split(r"[ \t]*\.[ \t]*", chain)
        if first in bound:
            found.update([bound[first], *more])
    return found & library_names()


def borrowed(answers: Sequence[str], own: Sequence[str], release: Sequence[str]) -> list[str]:
    """What the answers use and the instructor's own answers do not; ``release``: all texts that students get."""
    bound = imports([*release, *answers])
    return sorted(used(answers, bound) - used(own, bound))
