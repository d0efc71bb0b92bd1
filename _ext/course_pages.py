"""Two pages that are gathered from the chapters when the book is built: the index of exercises and the formula sheet.

``{exercise-index}`` lists each ``{exercise}`` of the chapters with its kind, its page and how hard it is. ``{formula-sheet}``
prints chosen numbered formulas as their chapters write them. A label that no chapter has is a build warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from equation_index import Gathered, chapter_number, markdown_of, numbered_equations, table
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)

EXERCISE = re.compile(
    r"^`{3,}\{exercise\} (?P<title>.+)\n:label: (?P<label>\S+)\n\s*\*(?P<kind>[^*\n]+?)\.?\*", re.MULTILINE
)


@dataclass(frozen=True)
class Exercise:
    """One exercise: its title, label, kind in words, and the page that has it."""

    title: str
    label: str
    kind: str
    name: str  # the page, as chapters/02_mdps_deeper

    @property
    def level(self) -> str:
        """First ones stand in the lesson; the others go further, and some say that they are hard."""
        if "harder" in self.kind:
            return "hard"
        return "further" if self.name.endswith("_deeper") else "first"


def exercises(root: Path) -> Iterator[Exercise]:
    """The exercises of all chapters, in the book's order."""
    for path in sorted((root / "chapters").glob("*.ipynb")):
        name = path.relative_to(root).with_suffix("").as_posix()
        for text in markdown_of(path):
            for found in EXERCISE.finditer(text):
                yield Exercise(found["title"].strip(), found["label"], found["kind"].strip(), name)


def formulas(root: Path) -> dict[str, tuple[str, str]]:
    """The numbered formulas of all chapters: label -> (formula, page)."""
    end = ".,; "  # of its sentence
    return {one.label: (one.formula.rstrip(end).rstrip("\\").rstrip(end), one.name) for one in numbered_equations(root)}


COLUMN = 42  # signs of a formula that a column of the sheet can hold


def signs(formula: str) -> int:
    """About how many signs the longest line of a formula has when it is set."""
    commands = (
        r"\\(begin|end)\{\w+\}|\\(label|text|mathrm|mathbb|operatorname\*?|big|Big|bigg|left|right|q?quad)\b|\\[,;!:]"
    )
    plain = re.sub(r"\\[a-zA-Z]+", "x", re.sub(commands, "", formula))
    return max(len(re.sub(r"[{}^_&\s]", "", line)) for line in plain.split("\\\\"))


class FromChapters(Gathered):
    """A page that is made anew when a chapter changes."""

    has_content = True

    def root(self) -> Path:
        root = Path(self.env.srcdir)
        for path in root.glob("chapters/*.ipynb"):
            self.env.note_dependency(str(path))
        return root


class ExerciseIndex(FromChapters):
    """``{exercise-index}``: one table for all exercises."""

    def run(self) -> list[nodes.Node]:
        rows = []
        found = list(exercises(self.root()))
        for one in found:
            page = chapter_number(one.name) + (", Deeper" if one.name.endswith("_deeper") else "")
            links = self.link("std", "ref", one.label, one.title), self.link("std", "doc", "/" + one.name, page)
            kind, level = nodes.inline(text=one.kind.removesuffix(", harder")), nodes.inline(text=one.level)
            rows.append([[links[0]], [kind], [links[1]], [level]])
        levels = {level: sum(one.level == level for one in found) for level in ("first", "further", "hard")}
        counted = ", ".join(f"{count} {level}" for level, count in levels.items())
        result = table(["Exercise", "Kind", "Chapter", "Level"], rows)
        result["classes"] = ["exercise-index"]
        return [nodes.paragraph(text=f"{len(rows)} exercises: {counted}."), result]


class FormulaSheet(FromChapters):
    """``{formula-sheet}``: lines ``# heading`` and ``eq-label name``."""

    def run(self) -> list[nodes.Node]:
        known = formulas(self.root())
        sheet = nodes.container(classes=["formula-sheet"])
        for row in self.content:
            if row.startswith("# "):
                sheet += nodes.rubric(text=row[2:])
            elif row.strip():
                label, _, name = row.strip().partition(" ")
                if label not in known:
                    LOG.warning("formula sheet: no chapter numbers %s", label, location=self.get_location())
                    continue
                sheet += self.item(name, label, *known[label])
        return [sheet]

    def item(self, name: str, label: str, formula: str, page: str) -> nodes.Node:
        item = nodes.container(classes=["formula", "wide"] if signs(formula) > COLUMN else ["formula"])
        head = nodes.paragraph()
        head += [nodes.inline(text=name + " "), self.link("math", "eq", label, label, explicit=False)]
        item += head
        item += nodes.math_block(formula, formula, nowrap=False, number=None, label=None, docname=self.env.docname)
        return item


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("exercise-index", ExerciseIndex)
    app.add_directive("formula-sheet", FormulaSheet)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
