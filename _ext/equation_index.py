"""Every numbered equation has a function that computes it and a test that checks it.

Three places name an equation's label, and this module reads all three without importing anything:

* a chapter numbers it: a ``{math}`` directive with ``:label: eq-name``;
* a public docstring of ``rlbook_lib`` says ``Equation: eq-name`` (several labels: separated by commas);
* a test carries ``@pytest.mark.equation("eq-name")``.

The directive ``{equation-index}`` prints them as a table. A gap is a build warning, so a strict build fails; the test
``tests/test_equations.py`` calls the same functions and fails as well.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)

LABEL_LINE = re.compile(r"^[ \t]*:label:[ \t]*(\S+)", re.MULTILINE)
MATH_DIRECTIVE = re.compile(r"^([ \t]*)(`{3,}|:{3,})\{math\}[^\n]*\n(.*?)^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
EQUATION_LINE = re.compile(r"^[ \t]*Equation:[ \t]*(\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """Where a label is named."""

    label: str
    name: str  # the function's or test's full name, or the chapter's document name
    file: str  # relative to the book's root
    line: int
    formula: str = ""  # where a chapter numbers it


@dataclass(frozen=True)
class Equations:
    """All labels in the three places, chapters in order of their file names."""

    numbered: list[Place]
    functions: list[Place]
    tests: list[Place]


# ---------------------------------------------------------------- reading the three places


def collect(root: Path) -> Equations:
    """Read chapters, library and tests below the book's root."""
    return Equations(
        numbered=list(numbered_equations(root)),
        functions=list(library_equations(root)),
        tests=list(tested_equations(root)),
    )


def numbered_equations(root: Path) -> Iterator[Place]:
    """The labels of ``{math}`` directives in the chapters."""
    for path in sorted((root / "chapters").glob("*")):
        if path.suffix not in {".ipynb", ".md"}:
            continue
        name = path.relative_to(root).with_suffix("").as_posix()
        for number, text in enumerate(markdown_of(path), start=1):
            for block in MATH_DIRECTIVE.finditer(text):
                label = LABEL_LINE.search(block.group(3))
                if label:
                    # in a notebook the line is the number of the markdown cell
                    line = text.count("\n", 0, block.start()) + 1 if path.suffix == ".md" else number
                    formula = LABEL_LINE.sub("", block.group(3)).strip()
                    yield Place(label.group(1), name, path.relative_to(root).as_posix(), line, formula)


def markdown_of(path: Path) -> list[str]:
    """The markdown of a page: one string, or one string for each cell of a notebook (code cells are empty)."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return [text]
    cells = json.loads(text)["cells"]
    return ["".join(cell["source"]) if cell["cell_type"] == "markdown" else "" for cell in cells]


def library_equations(root: Path) -> Iterator[Place]:
    """The ``Equation:`` lines of public docstrings."""
    for path in sorted((root / "rlbook_lib").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        for name, node in definitions(ast.parse(path.read_text("utf-8"))):
            docstring = ast.get_docstring(node)
            if any(part.startswith("_") for part in name.split(".")) or not docstring:
                continue
            for line in EQUATION_LINE.findall(docstring):
                for label in re.split(r"[,\s]+", line.strip().rstrip(".")):
                    yield Place(label, f"{module}.{name}", path.relative_to(root).as_posix(), node.lineno)


def tested_equations(root: Path) -> Iterator[Place]:
    """The labels in ``@pytest.mark.equation(...)`` decorators of tests."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        for name, node in definitions(ast.parse(path.read_text("utf-8"))):
            if not name.rsplit(".", 1)[-1].startswith("test_"):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.equation":
                    for argument in decorator.args:
                        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                            yield Place(argument.value, name, path.relative_to(root).as_posix(), node.lineno)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Functions, classes and methods with their dotted names; nothing defined inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{prefix}{node.name}.")


# ---------------------------------------------------------------- what is missing


def gaps(equations: Equations) -> list[tuple[Place, str]]:
    """Every fault with its place: a label without function or test, a name that no chapter numbers, a label used twice."""
    numbered = {place.label for place in equations.numbered}
    computed = {place.label for place in equations.functions}
    tested = {place.label for place in equations.tests}
    found: list[tuple[Place, str]] = []
    seen: set[str] = set()
    for place in equations.numbered:
        if not place.label.startswith("eq-"):
            found.append((place, f"the label {place.label} should start with eq-"))
        if place.label in seen:
            found.append((place, f"the label {place.label} is used twice"))
        seen.add(place.label)
        if place.label not in computed:
            found.append((place, f"no function names {place.label} on an 'Equation:' line of its docstring"))
        if place.label not in tested:
            found.append((place, f'no test carries @pytest.mark.equation("{place.label}")'))
    for place in [*equations.functions, *equations.tests]:
        if place.label not in numbered:
            found.append((place, f"{place.name} names {place.label}, which no chapter numbers"))
    return found


# ---------------------------------------------------------------- the page


class Gathered(SphinxDirective):
    """A directive that gathers from other pages: its references are resolved by Sphinx."""

    def link(
        self, domain: str, role: str, target: str, text: str, explicit: bool = True, literal: bool = False
    ) -> nodes.Node:
        """A reference that Sphinx resolves, with its own text or with ours; a missing target is a warning."""
        where = {"refdomain": domain, "reftype": role, "reftarget": target, "refdoc": self.env.docname}
        reference = addnodes.pending_xref("", refwarn=True, refexplicit=explicit, **where)
        reference += nodes.literal(text=text) if literal else nodes.inline(text=text)
        self.set_source_info(reference)
        return reference


class EquationIndex(Gathered):
    """``{equation-index}``: the table of all numbered equations with chapter, function and test."""

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        equations = collect(root)
        for place, fault in gaps(equations):
            LOG.warning("equation: %s", fault, location=f"{root / place.file}:{place.line}", type="equation")
        for path in [*root.glob("rlbook_lib/*.py"), *root.glob("tests/test_*.py"), *root.glob("chapters/*.ipynb")]:
            self.env.note_dependency(str(path))
        rows = [self.row(place, equations) for place in equations.numbered]
        return [
            nodes.paragraph(text=f"{len(rows)} numbered equations, each with its function and its test."),
            table(["Equation", "Chapter", "Computed or used by", "Checked by"], rows),
        ]

    def row(self, place: Place, equations: Equations) -> list[list[nodes.Node]]:
        """The four cells of one equation."""
        functions = [p for p in equations.functions if p.label == place.label]
        tests = [p for p in equations.tests if p.label == place.label]
        return [
            [self.link("math", "eq", place.label, place.label, explicit=False)],
            [self.link("std", "doc", "/" + place.name, chapter_number(place.name))],
            [self.link("py", "obj", p.name, p.name.removeprefix("rlbook_lib."), literal=True) for p in functions],
            [nodes.literal(text=f"{Path(p.file).name}: {p.name}") for p in tests],
        ]


def chapter_number(page: str) -> str:
    """``chapters/02_mdps`` is chapter 2."""
    number = re.search(r"/0*(\d+)_", page)
    return number.group(1) if number else page


def table(heads: list[str], rows: list[list[list[nodes.Node]]]) -> nodes.table:
    """A table with one line for each node of a cell; the widths of its columns stand in the style sheet."""
    group = nodes.tgroup(cols=len(heads))
    group += [nodes.colspec(colwidth=1) for _ in heads]
    head, body = nodes.thead(), nodes.tbody()
    head += line([[nodes.inline(text=text)] for text in heads])
    body += [line(cells) for cells in rows]
    group += [head, body]
    result = nodes.table(classes=["equation-index"])
    result += group
    return result


def line(cells: list[list[nodes.Node]]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        entry += [nodes.paragraph("", "", node) for node in cell]
        row += entry
    return row


# ---------------------------------------------------------------- docstrings


LITERAL = re.compile(r"(``.*?``)")


def link_equations(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """In the API reference, the ``Equation:`` line links to the equations, and ``P(s'|s, a)`` is plain text."""
    for index, text in enumerate(lines):
        match = EQUATION_LINE.match(text)
        if match:
            labels = re.split(r"[,\s]+", match.group(1).strip().rstrip("."))
            lines[index] = "**Equation** " + ", ".join(f":eq:`{label}`" for label in labels)
        elif "|" in text:
            parts = LITERAL.split(text)  # every second part is code
            lines[index] = "".join(part if n % 2 else part.replace("|", r"\|") for n, part in enumerate(parts))


def check_numbered(app: Sphinx, env: BuildEnvironment) -> None:
    """A label Sphinx knows and this module does not see was not written with the ``{math}`` directive."""
    known = {place.label for place in numbered_equations(Path(app.srcdir))}
    for label, (docname, _) in env.get_domain("math").equations.items():  # type: ignore[attr-defined]
        if label not in known:
            LOG.warning("equation %s: number it with the {math} directive", label, location=docname, type="equation")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("equation-index", EquationIndex)
    app.connect("autodoc-process-docstring", link_equations, priority=400)
    app.connect("env-check-consistency", check_numbered)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
