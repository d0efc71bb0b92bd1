"""Tests of tools/plain_sphinx: what it asks for, what it counts, and what it says. The builds themselves need the package index: `make plain`."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

import plain_sphinx  # noqa: E402

REQUIREMENTS = (ROOT / "requirements.txt").read_text("utf-8")
PAGE = '<img alt="outside"><article><h1>One</h1><span class="katex">x</span><details>more</details></article><img alt="outside">'


def test_it_asks_for_the_extensions_of_the_book_and_not_for_jupyter_book() -> None:
    names = plain_sphinx.wanted(REQUIREMENTS, newest_themes=False)
    assert {"sphinx", "myst-nb", "mini-racer"} <= set(names)
    assert not {"jupyter-book", "torch", "pytest"} & set(names)
    assert [name for name in names if "==" in name] == [
        f"{name}=={re.search(f'^{name}==(.*?) ', REQUIREMENTS, re.MULTILINE)[1]}" for name in plain_sphinx.THEMES
    ]
    assert not any("==" in name for name in plain_sphinx.wanted(REQUIREMENTS, newest_themes=True))


def test_every_extension_from_elsewhere_is_asked_for() -> None:
    """An extension that _config.yml gets and the exit does not would end it."""
    extensions = re.findall(
        r"^      - (sphinx\w+|myst_nb|sphinxcontrib\.\w+)$", (ROOT / "_config.yml").read_text("utf-8"), re.MULTILINE
    )
    names = {name.split("==")[0].replace("_", "-") for name in plain_sphinx.wanted(REQUIREMENTS, newest_themes=True)}
    assert len(extensions) > 5
    assert [
        name
        for name in extensions
        if name.replace("_", "-").replace(".", "-") not in {known.replace(".", "-") for known in names}
    ] == []


def test_what_the_extensions_import_is_asked_for_or_comes_along() -> None:
    """By name: the modules of ``_ext``, and those of the library that these import, from the first to the last."""
    waiting, seen, needed = sorted((ROOT / "_ext").glob("*.py")), set[Path](), set[str]()
    while waiting:
        seen.add(path := waiting.pop())
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                library = node.module == "rlbook_lib"
                names = [f"{node.module}.{name.name}" for name in node.names] if library else [f"{node.module}"]
            else:
                continue
            files = [ROOT / "rlbook_lib" / f"{name.split('.')[1]}.py" for name in names if name[:11] == "rlbook_lib."]
            waiting += [file for file in files if file not in seen]
            needed |= {name.split(".")[0] for name in names} - {"rlbook_lib"}
    own = {path.stem for path in seen} | set(sys.stdlib_module_names)
    asked = {name.split("==")[0].replace("-", "_") for name in plain_sphinx.wanted(REQUIREMENTS, newest_themes=True)}
    brought = {"docutils", "pygments"}  # by Sphinx
    brought |= {"pybtex"}  # by sphinxcontrib-bibtex
    called = {"fonttools": "fontTools", "mini_racer": "py_mini_racer"}
    assert {"numpy", "sphinx"} <= needed
    assert needed - own - brought <= {called.get(name, name) for name in asked}


def test_a_lost_formula_is_named() -> None:
    whole = plain_sphinx.counted(PAGE)
    assert {name: number for name, number in whole.items() if number} == {
        "headings": 1,
        "formulas": 1,
        "folded boxes": 1,
    }
    without = plain_sphinx.counted(PAGE.replace("katex", "math"))
    assert plain_sphinx.lost(whole, whole) == []
    assert plain_sphinx.lost(whole, without) == ["formulas: 1 by Jupyter Book, 0 by plain Sphinx"]


def test_only_warnings_about_the_two_chapters_count() -> None:
    said = "a.ipynb:3: WARNING: undefined label: 'e09'\nWARNING: the node class has no visitor\nreading sources\n"
    assert plain_sphinx.warnings(said) == ["WARNING: the node class has no visitor"]


def test_the_settings_of_jupyter_book_are_read_by_sphinx_alone() -> None:
    settings = plain_sphinx.without_jupyter_book("extensions = ['myst_nb', 'jupyter_book', 'hosting']\n")
    found: dict[str, object] = {}
    path = [*sys.path]
    exec(settings, found)  # noqa: S102 - it is what Sphinx does with conf.py
    assert found["extensions"] == ["myst_nb", "hosting"]
    assert sys.path[0] == "_ext"
    sys.path[:] = path


def test_what_the_page_shows_is_what_the_tool_wrote() -> None:
    text = plain_sphinx.FOUND.read_text("utf-8")
    for name in (*plain_sphinx.CHAPTERS, *plain_sphinx.PIECES, "sphinx "):
        assert name in text
    assert "{literalinclude} ../tools/plain_sphinx.txt" in (ROOT / "chapters" / "kept_alive.md").read_text("utf-8")
