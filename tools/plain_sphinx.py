"""Does the book still build without Jupyter Book, on the newest Sphinx? Called by `make plain`.

    python tools/plain_sphinx.py             the theme stays at its pin, and Sphinx is the newest that it supports
    python tools/plain_sphinx.py --themes    the newest theme too

Builds two chapters twice: by Jupyter Book in the environment of every day, and by plain Sphinx, with the same extensions in
their newest versions, in an environment under ``_build`` that is thrown away. Then counts formulas, figures, exercises and
more on the pages of both: plain Sphinx must not lose any. With the pinned theme, what it found is kept in
``tools/plain_sphinx.txt``, which a page of the book shows. Needs the package index; two to three minutes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from outdated import PINNED, environment, in_passing, installed

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "plain"
FOUND = ROOT / "tools" / "plain_sphinx.txt"
CHAPTERS = ("02_mdps", "03_maze")
BESIDE = ("appendix_bibliography", "appendix_glossary")  # what they lead to
LINKED = ("_ext", "_static", "_templates", "rlbook_lib", "tests", "tools", "pyproject.toml", "references.bib")
THEMES = ("furo",)
BY_JUPYTER_BOOK = (
    "sphinx-external-toc",
    "sphinx-multitoc-numbering",
    "sphinx-copybutton",
)  # it brings these extensions along
BY_THE_LIBRARY = ("numpy", "matplotlib")  # what the modules of it import that an extension imports
# A link to a chapter that is not among the two.
ELSEWHERE = re.compile(
    r"undefined label|unknown document|equation not found|cross-reference target not found|reference target not found"
)

PIECES = {
    "formulas": r'class="katex"',
    "numbered formulas": r'class="eqno"',
    "interactive figures": r'class="rlx"',
    "pictures": r"<img |<svg ",
    "code cells": r'class="[^"]*\bcell_input\b',
    "exercises": r'class="exercise',
    "quizzes and answers": r'class="[^"]*\bquiz\b',
    "folded boxes": r"<details",
    "citations": r'class="[^"]*\bcitation\b',
    "headings": r"<h[1-4]\b",
    "faults": r'class="[^"]*system-message',
}


def wanted(requirements: str, newest_themes: bool) -> list[str]:
    """What plain Sphinx needs: the part of requirements.txt that builds the book, without Jupyter Book and without versions."""
    part = requirements.partition("# Building the HTML book")[2].partition("\n\n")[0]
    found = [
        f"{name}=={version}" if name in THEMES and not newest_themes else name
        for name, version in PINNED.findall(part)
        if name not in ("jupyter-book", "docutils")
    ]
    return [*found, *BY_JUPYTER_BOOK, *BY_THE_LIBRARY]


def counted(page: str) -> dict[str, int]:
    """How often each kind of piece stands in the text of a page."""
    text = page.partition("<article")[2].partition("</article>")[0]
    return {name: len(re.findall(pattern, text)) for name, pattern in PIECES.items()}


def lost(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """One line for each kind of piece of which the second page has another number."""
    return [
        f"{name}: {before[name]} by Jupyter Book, {now[name]} by plain Sphinx"
        for name in before
        if before[name] != now[name]
    ]


def lay_out(folder: Path) -> None:
    """A book of two chapters with the settings of the whole one."""
    (folder / "chapters").mkdir(parents=True)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    for name in (*(f"{name}.ipynb" for name in CHAPTERS), *(f"{name}.md" for name in BESIDE)):
        shutil.copy(ROOT / "chapters" / name, folder / "chapters")
    settings = (ROOT / "_config.yml").read_text("utf-8")
    (folder / "_config.yml").write_text(
        settings.replace("only_build_toc_files: false", "only_build_toc_files: true"), "utf-8"
    )
    files = "".join(f"  - file: chapters/{name}\n" for name in (*CHAPTERS, *BESIDE))
    (folder / "_toc.yml").write_text(f"format: jb-book\nroot: index\nchapters:\n{files}", "utf-8")
    (folder / "index.md").write_text("# Two chapters\n", "utf-8")


def without_jupyter_book(settings: str) -> str:
    """The settings that Jupyter Book wrote for Sphinx, as Sphinx alone can read them."""
    return "import sys\nsys.path.insert(0, '_ext')\n" + settings.replace("'jupyter_book', ", "")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=FOLDER / "book", capture_output=True, text=True, check=False)


def warnings(said: str) -> list[str]:
    """The warnings of a build that are not about other chapters."""
    return [line for line in said.splitlines() if "WARNING" in line and not ELSEWHERE.search(line)]


def try_plain(newest_themes: bool) -> int:
    book = FOLDER / "book"
    lay_out(book)
    tool = Path(sys.executable).with_name("jupyter-book")
    by_book = run(tool, "build", ".", "--path-output", FOLDER / "by_book")
    written = run(tool, "config", "sphinx", ".")
    if by_book.returncode or written.returncode:
        print(f"Nothing was tried: Jupyter Book failed.\n{(by_book.stderr + written.stderr)[-3000:]}")
        return 2
    settings = book / "conf.py"
    settings.write_text(without_jupyter_book(settings.read_text("utf-8")), "utf-8")

    python = environment(FOLDER / "venv", wanted((ROOT / "requirements.txt").read_text("utf-8"), newest_themes))
    versions = installed(python)
    shown = ("sphinx", "docutils", "myst-parser", "myst-nb", *THEMES)
    head = [f"{name:<24}{versions[name]:>8}" for name in shown]
    built = run(python, "-m", "sphinx", "-b", "html", ".", FOLDER / "by_sphinx")
    (FOLDER.parent / "plain.log").write_text(built.stdout + built.stderr, "utf-8")
    if built.returncode:
        reason = [line.strip() for line in built.stderr.splitlines() if "Error" in line or "exception" in line]
        print(
            "\n".join(
                [
                    *head,
                    "",
                    "It does not build (all of it is in _build/plain.log):",
                    *(f"  {line}" for line in reason[-5:]),
                ]
            )
        )
        return 1
    text, whole = report(head, warnings(built.stderr))
    print(text)
    if not newest_themes:
        FOUND.write_text(text + "\n", "utf-8")
    return 0 if whole else 1


def report(head: list[str], warned: list[str]) -> tuple[str, bool]:
    """The versions, what plain Sphinx made, and what warned or is lost; and whether nothing did or is."""
    pages = {
        by: [counted(next((FOLDER / by).rglob(f"{name}.html")).read_text("utf-8")) for name in CHAPTERS]
        for by in ("by_book", "by_sphinx")
    }
    faults = [f"  warning: {line}" for line in warned]
    for name, before, now in zip(CHAPTERS, *pages.values(), strict=True):
        faults += [f"  {name}: {line}" for line in lost(before, now)]
    table = ["".join([f"{'on the pages':<24}", *(f"{name:>10}" for name in CHAPTERS)])]
    table += ["".join([f"{piece:<24}", *(f"{now[piece]:>10}" for now in pages["by_sphinx"])]) for piece in PIECES]
    end = ["Not as by Jupyter Book:", *faults] if faults else ["The same pieces as by Jupyter Book, and no warning."]
    return "\n".join([*head, "", *table, "", *end]), not faults


def main() -> int:
    parser = argparse.ArgumentParser(description="Build two chapters without Jupyter Book, by the newest Sphinx.")
    parser.add_argument("--themes", action="store_true", help="the newest theme too")
    options = parser.parse_args()
    return in_passing(FOLDER, lambda: try_plain(options.themes))


if __name__ == "__main__":
    sys.exit(main())
