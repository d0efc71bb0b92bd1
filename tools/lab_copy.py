"""The chapters as JupyterLab can show them: copies in ``lab/``, a folder that is the reader's own.

    python tools/lab_copy.py --settings FOLDER    what `make lab` does before JupyterLab starts
    python tools/lab_copy.py OTHER                the copies in another folder, no settings
    python tools/lab_copy.py notebooks --plain    copies for VS Code and others that know plain Markdown only

JupyterLab shows one notebook at a time: it finds no equation of another chapter, no source, and folds no solution that
reaches over several cells. The copies say such things in plain Markdown, which any notebook program shows:

* a reference becomes what the site shows, "(2.5)" or "Howard, 1960", and links to the notebook or the source;
* an exercise begins with a heading, its solution is a folded heading; code that the site folds is folded;
* a box with a mistake gets the red that Lab knows;
* a lab, which computes in the page of the book and not in a notebook, becomes a sentence that says where it is;
* the first figure brings what the site has in files for all of them, so that stored sliders move.

A copy is written anew only when its chapter's text or code changed. What the reader changed stays: the old copy is
then kept beside the new one, as ``03_maze.mine.ipynb``. The chapters themselves are never touched.

The settings say that Lab asks no one for news, and shows a Markdown page as a page. Those that are there stay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "_ext")]

from labs import LABS

from rlbook_lib.explore import dressed

CHAPTERS = ROOT / "chapters"
CONTENTS = "00_contents.md"  # the page that `make lab` opens
Form = Callable[[str], str]

SETTINGS: dict[str, dict[str, Any]] = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
}

ROLE = re.compile(r"\{(eq|ref|doc|download|cite|cite:t|term)\}`([^`]+)`")
TITLED = re.compile(r"^(.*?)\s*<([^<>]+)>$", re.DOTALL)  # words <target>
TARGET = re.compile(r"^\(([\w-]+)\)=[ \t]*\n+(?:#+ +(.*))?", re.MULTILINE)
PLAIN = re.compile(r"^[\w ,;:.?'()-]+$")
BLOCK = r"^(`{{3,}}){{{name}}}([^\n]*)\n(.*?)^\1[ \t]*$"  # a directive: its fence, argument and body
MATH, EXERCISE, BORDER, LAB = (
    re.compile(BLOCK.format(name=name), re.MULTILINE | re.DOTALL)
    for name in ("math", "exercise", "solution-(start|end)", "lab")
)
SITE_ONLY = re.compile(
    BLOCK.format(name="(?:eval-rst|bibliography|equation-index|exercise-index|formula-sheet)"), re.MULTILINE | re.DOTALL
)
HEADING = re.compile(r"^#+ ", re.MULTILINE)
BOX = re.compile(BLOCK.format(name="(dropdown|admonition|note|container)"), re.MULTILINE | re.DOTALL)
LABEL = re.compile(r"^:label:[ \t]*(\S+)[ \t]*\n", re.MULTILINE)
OPTION = re.compile(r"\A(?::[\w-]+:[^\n]*\n)+")


# ---------------------------------------------------------------------------------------------------
# What the whole book knows: numbers of equations and exercises, titles, sources
# ---------------------------------------------------------------------------------------------------


SPHINX = {"genindex": "index", "modindex": "index of modules", "search": "search"}  # pages that only the site has


class Book:
    """Where each label stands and what it is called, for all pages in the order of the table of contents."""

    def __init__(self, root: Path = ROOT):
        self.titles: dict[str, str] = {}  # page: its title
        self.places: dict[str, tuple[str, str]] = {}  # label: page, what to call it
        self.sources = parse_file(str(root / "references.bib")).entries
        chapter = 0
        for part in yaml.safe_load((root / "_toc.yml").read_text("utf-8"))["parts"]:
            for entry in part["chapters"]:
                chapter += bool(part.get("numbered"))
                counts = {"equation": 0, "Exercise": 0}
                for page in (entry, *entry.get("sections", [])):
                    if page["file"].startswith("chapters/"):
                        self._read(root, page["file"], chapter, counts)

    def _read(self, root: Path, file: str, chapter: int, counts: dict[str, int]) -> None:
        page = Path(file).name
        text = "\n".join(_markdown(root / file))
        title = re.search(r"^# +(.*)$", text, re.MULTILINE)
        self.titles[page] = title[1] if title else page
        for name, title in TARGET.findall(text):
            self.places[name] = page, title or name
        found = [
            (block.start(), kind, block)
            for kind, form in (("equation", MATH), ("Exercise", EXERCISE))
            for block in form.finditer(text)
        ]
        for _, kind, block in sorted(found, key=lambda entry: entry[0]):
            label = LABEL.search(block[3])
            if label:
                counts[kind] += 1
                number = f"{chapter}.{counts[kind]}"
                self.places[label[1]] = page, f"({number})" if kind == "equation" else f"Exercise {number}"

    def reference(self, role: str, words: str, here: str) -> str:
        """One role in Markdown, as seen from the page ``here``."""
        if role.startswith("cite"):
            cited = [self._citation(key.strip(), role) for key in words.split(",")]
            return ", ".join(cited) if role == "cite:t" else f"({'; '.join(cited)})"
        titled = TITLED.match(words)
        text, target = (titled[1], titled[2]) if titled else ("", words)
        if role == "term":  # its meaning is shown on the site
            return text or target
        if role in ("doc", "download"):
            page = Path(target).name
            name = page.partition(".")[0]
            return _link(text or self.titles.get(name, page), _file(name) if name in self.titles else target)
        if target in SPHINX:
            return text or SPHINX[target]
        page, title = self.places[target]
        if page == here:  # on this page the words say where
            return text or title
        # Lab opens a notebook at its top: who points at the link is told the section
        return _link(text or title, _file(page) + (f' "{title}"' if PLAIN.match(title) and text else ""))

    def _citation(self, key: str, role: str) -> str:
        """Howard, 1960; in a sentence ("cite:t") Howard (1960). Linked where the source has an address."""
        entry = self.sources[key]
        names = [" ".join(str(part) for part in person.rich_last_names) for person in entry.persons["author"]]
        if len(names) == 2 and names[1] != "others":
            who = " and ".join(names)
        else:
            who = names[0] + (" et al." if len(names) > 1 else "")
        year = entry.fields["year"]
        words = f"{who} ({year})" if role == "cite:t" else f"{who}, {year}"
        return _link(words, entry.fields["url"]) if "url" in entry.fields else words


def _markdown(stem: Path) -> list[str]:
    """The Markdown cells of a page, or the one text of a page that is no notebook."""
    notebook = stem.with_name(stem.name + ".ipynb")
    if not notebook.exists():
        return [stem.with_name(stem.name + ".md").read_text("utf-8")]
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def _file(page: str) -> str:
    return page + (".ipynb" if (CHAPTERS / f"{page}.ipynb").exists() else ".md")


def _link(words: str, address: str) -> str:
    return f"[{words}]({address})"


# ---------------------------------------------------------------------------------------------------
# One page
# ---------------------------------------------------------------------------------------------------


def rewritten(text: str, page: str, book: Book) -> str:
    """One cell's Markdown with its references said in words, its equations numbered as on the site."""

    def numbered(block: re.Match[str]) -> str:
        label = LABEL.search(block[3])
        if not label:
            return block[0]
        body = block[3].replace(label[0], "").rstrip("\n")
        return f"{block[1]}{{math}}{block[2]}\n{body} \\tag{{{book.places[label[1]][1].strip('()')}}}\n{block[1]}"

    def named(block: re.Match[str]) -> str:
        options = OPTION.match(block[3])
        mode = re.search(r"^:mode: *(\S+)", options[0], re.MULTILINE) if options else None
        title, *_ = LABS[block[2].strip()][mode[1] if mode else ""]
        site = os.environ.get("BOOK_URL", "").rstrip("/")
        path = f"chapters/{page}.html"
        built = f"`_build/html/{path}`, which `make book` makes ({_link('all labs', 'laboratory.md')})"
        where = _link("this page of the book", f"{site}/{path}") if site else built
        return f"{OPTION.sub('', block[3]).strip()}\n\n*Lab: {title}. It computes in a page, not in a notebook: open {where}.*"

    text = re.sub(r'<a href="#lab-[^"]*">(.*?)</a>', r"\1", LAB.sub(named, text))  # what sets a lab
    text = ROLE.sub(lambda role: book.reference(role[1], role[2], page), text)
    text = MATH.sub(numbered, text)
    text = TARGET.sub(lambda target: target[0].partition("\n")[2].lstrip("\n"), text)
    text = SITE_ONLY.sub("*(This list is made when the book is built: `make book`.)*", text)
    return re.sub(r"^:class: mistake\b", ":class: danger", text, flags=re.MULTILINE)


def plain(text: str) -> str:
    """Boxes and formulas without directives: what folds becomes ``details``, any other box a quotation."""

    def formula(block: re.Match[str]) -> str:
        lines = [line for line in OPTION.sub("", block[3]).split("\n") if line.strip()]
        return "\n".join(["$$", *lines, "$$"])

    def box(block: re.Match[str]) -> str:
        _, name, title, inside = block.groups()
        options = "".join(OPTION.findall(inside))
        body, title = plain(OPTION.sub("", inside).strip()), title.strip() or name.capitalize()
        if name == "container":
            return body
        if name == "dropdown" or "dropdown" in options:
            # blank lines around a title with a formula: without them it is not read as Markdown
            head = f"\n\n{title}\n\n" if re.search(r"[$*`]", title) else title
            return f"<details>\n<summary>{head}</summary>\n\n{body}\n\n</details>"
        return "\n".join(f"> {line}".rstrip() for line in f"**{title}**\n\n{body}".split("\n"))

    return BOX.sub(box, MATH.sub(formula, text))


def _exercise(block: re.Match[str], book: Book) -> str:
    """A heading, which also ends the fold of the solution before it."""
    name = book.places[LABEL.search(block[3])[1]][1]  # type: ignore[index]
    return f"#### {name}: {block[2].strip()}\n\n{OPTION.sub('', block[3]).strip()}"


def pieces(text: str, book: Book) -> Iterator[tuple[str, bool]]:
    """A Markdown cell as one cell or several, each with True where it is a folded heading.

    A folded heading hides all that follows up to the next cell with a heading. So what ends a solution must not share
    a cell with it, and what follows it must have a heading.
    """
    text = EXERCISE.sub(lambda block: _exercise(block, book), text)
    begun, block = 0, None
    for block in BORDER.finditer(text):
        yield text[begun : block.start()].strip(), False
        if block[2] == "start":
            yield f"##### Solution of {book.places[block[3].strip()][1].lower()}", True
        begun = block.end()
    rest = text[begun:].strip()
    if rest and block and block[2] == "end" and not HEADING.search(rest):
        rest = f"#### After the exercises\n\n{rest}"
    yield rest, False


def lab_cells(cells: list[dict[str, Any]], page: str, book: Book, form: Form = str) -> Iterator[dict[str, Any]]:
    """The cells of the copy; ``form`` is what its Markdown goes through at last."""
    for cell in cells:
        metadata = dict(cell["metadata"])
        if cell["cell_type"] == "code" and "hide-input" in metadata.get("tags", []):
            metadata["jupyter"] = {"source_hidden": True}
        if cell["cell_type"] != "markdown":
            yield cell | {"metadata": metadata}
            continue
        text = rewritten("".join(cell["source"]), page, book)
        kept = [piece for piece in pieces(text, book) if piece[0]]
        for number, (source, folded) in enumerate(kept):
            fold = {"jp-MarkdownHeadingCollapsed": True} if folded else {}
            name = cell["id"] + (f"-{number}" if number else "")
            yield cell | {"id": name, "metadata": metadata | fold, "source": form(source).splitlines(keepends=True)}


def dress(cells: list[dict[str, Any]]) -> None:
    """Style and script of all figures, which the chapters are stored without, to the first of them."""
    for data in (output.get("data", {}) for cell in cells for output in cell.get("outputs", [])):
        stored = "".join(data.get("text/html", ""))
        if dressed(stored) != stored:
            data["text/html"] = dressed(stored)
            return


def mark(cells: list[dict[str, Any]]) -> str:
    """What was written, without outputs: the same as long as the reader changed no text and no code."""
    return hashlib.sha256(json.dumps(["".join(cell["source"]) for cell in cells]).encode()).hexdigest()[:16]


def write_notebook(source: Path, folder: Path, book: Book, form: Form = str) -> None:
    """Bring one copy up to date; the reader's version of it stays, under another name."""
    notebook = json.loads(source.read_text("utf-8"))
    notebook["cells"] = list(lab_cells(notebook["cells"], source.stem, book, form))
    dress(notebook["cells"])
    fresh, copy = mark(notebook["cells"]), folder / source.name
    if copy.exists():
        old = json.loads(copy.read_text("utf-8"))
        made_from = old["metadata"].get("rlbook")
        if made_from == fresh:
            return
        if mark(old["cells"]) != made_from:
            copy.replace(_free_name(copy))
    notebook["metadata"]["rlbook"] = fresh
    copy.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def plain_notebook(path: Path, book: Book) -> None:
    """A chapter's notebook in plain Markdown, in place."""
    notebook = json.loads(path.read_text("utf-8"))
    notebook["cells"] = list(lab_cells(notebook["cells"], path.stem, book, plain))
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


def contents(book: Book, root: Path = ROOT) -> str:
    """The first page of a folder of copies: all pages by their titles, in the book's order, a Deeper page below its lesson."""
    lines = [
        "# Reinforcement Learning: From Mazes to Language Models",
        "",
        "These copies are yours: change the code, run it again.",
    ]
    number = 0
    for part in yaml.safe_load((root / "_toc.yml").read_text("utf-8"))["parts"]:
        lines += ["", f"## {part['caption']}", ""]
        for entry in part["chapters"]:
            number += bool(part["numbered"])
            for page in (entry, *entry.get("sections", [])):
                name = Path(page["file"]).name
                first = f"{number}. " if page is entry and part["numbered"] else ""
                lines.append(("- " if page is entry else "  - ") + _link(first + book.titles[name], _file(name)))
    return "\n".join(lines) + "\n"


def _free_name(copy: Path) -> Path:
    names = (copy.with_name(f"{copy.stem}.mine{number or ''}.ipynb") for number in range(1000))
    return next(name for name in names if not name.exists())


def write_all(folder: Path, form: Form = str) -> None:
    """All pages, and the stored runs that their cells read."""
    book = Book()
    folder.mkdir(exist_ok=True)
    for data in ("runs", "recordings"):
        if (CHAPTERS / data).exists():
            shutil.copytree(CHAPTERS / data, folder / data, dirs_exist_ok=True)
    for page in sorted(CHAPTERS.glob("*.ipynb")):
        write_notebook(page, folder, book, form)
    (folder / CONTENTS).write_text(contents(book), "utf-8")
    for page in sorted(CHAPTERS.glob("*.md")):
        (folder / page.name).write_text(form(rewritten(page.read_text("utf-8"), page.stem, book)), "utf-8")


def write_settings(folder: Path) -> None:
    """JupyterLab's settings, where the reader has none yet."""
    for name, settings in SETTINGS.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings, indent=4) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the chapters as JupyterLab can show them.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "lab", help="default: lab/")
    parser.add_argument("--settings", type=Path, help="JupyterLab's folder of settings")
    parser.add_argument(
        "--plain", action="store_true", help="boxes in plain Markdown, for VS Code and others without MyST"
    )
    options = parser.parse_args()
    write_all(options.folder, plain if options.plain else str)
    if options.settings:
        write_settings(options.settings)
