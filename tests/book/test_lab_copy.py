"""The copies of the chapters for JupyterLab: nothing in them that one notebook alone cannot show."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import lab_copy  # noqa: E402
from notebook_checks import html_outputs, read  # noqa: E402

from rlbook_lib.explore import dressing, undressed  # noqa: E402


@pytest.fixture(scope="module")
def book():
    return lab_copy.Book()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("copies") / "lab"
    lab_copy.write_all(made)
    return made


def cells_of(path):
    return json.loads(path.read_text("utf-8"))["cells"]


def text_of(path):
    return "\n".join("".join(cell["source"]) for cell in cells_of(path) if cell["cell_type"] == "markdown")


def test_no_copy_holds_what_lab_cannot_resolve(folder):
    unknown = re.compile(
        r"\{(?:ref|eq|doc|cite|cite:t|download)\}`|\{(?:exercise|solution-start|solution-end|eval-rst)\}|:label:|^\([\w-]+\)=",
        re.M,
    )
    for path in sorted(folder.glob("*.ipynb")):
        assert unknown.findall(text_of(path)) == [], path.name
    assert len(list(folder.glob("*.ipynb"))) == len(list((ROOT / "chapters").glob("*.ipynb"))) >= 26


def test_a_lab_is_said_to_be_in_the_page(folder, book, monkeypatch):
    text = text_of(folder / "03_maze.ipynb")
    assert "{lab}" not in text and ":mode:" not in text
    assert (
        "*Lab: Own the maze. It computes in a page, not in a notebook: open `_build/html/chapters/03_maze.html`" in text
    )
    monkeypatch.setenv("BOOK_URL", "https://book.example/rl/")
    said = lab_copy.rewritten("```{lab} agent\n:mode: pull\nYour *own*.\n```", "06_policy_gradients", book)
    address = "https://book.example/rl/chapters/06_policy_gradients.html"
    assert said.startswith("Your *own*.\n\n*Lab: Your choices pull.") and f"]({address})" in said


def test_every_link_to_a_page_has_its_page(folder):
    links = {
        link for path in folder.glob("*.ipynb") for link in re.findall(r"\]\(([\w./-]+\.(?:ipynb|md))", text_of(path))
    }
    assert len(links) > 20
    assert [link for link in links if not (folder / link).exists()] == []


def test_the_first_page_lists_all_in_the_books_order(folder):
    """Beside it Lab sorts a Deeper page before its lesson, and cuts long names."""
    links = re.findall(r"\]\(([\w.]+)\)", (folder / lab_copy.CONTENTS).read_text("utf-8"))
    names = re.findall(r"file: chapters/(\w+)", (ROOT / "_toc.yml").read_text("utf-8"))
    assert [link.partition(".")[0] for link in links] == names
    assert all((folder / link).is_file() for link in links)
    assert f"--notebook-dir=lab lab/{lab_copy.CONTENTS}\n" in (ROOT / "Makefile").read_text("utf-8")


def test_references_are_said_in_words(book):
    def said(role, words, here="03_maze"):
        return book.reference(role, words, here)

    number = book.places["eq-bellman-v"][1]
    assert re.fullmatch(r"\(2\.\d+\)", number)
    assert said("eq", "eq-bellman-v") == f"[{number}](02_mdps.ipynb)"
    assert said("eq", "eq-bellman-v", "02_mdps") == number
    assert said("doc", "chapter 2 <02_mdps>") == "[chapter 2](02_mdps.ipynb)"
    assert said("doc", "03_maze_deeper") == f"[{book.titles['03_maze_deeper']}](03_maze_deeper.ipynb)"
    assert said("cite", "howard1960dynamic,puterman1978modified") == "(Howard, 1960; Puterman and Shin, 1978)"
    assert said("cite:t", "kaelbling1996survey").startswith("Kaelbling et al. (1996)")
    assert said("ref", "E09 <e09>").startswith("[E09](appendix_errata.md")


def test_every_solution_is_folded(folder):
    folds = 0
    for path in sorted(folder.glob("*.ipynb")):
        for cell in cells_of(path):
            begins = "".join(cell["source"]).startswith("##### Solution of exercise ")
            assert begins == bool(cell["metadata"].get("jp-MarkdownHeadingCollapsed"))
            folds += begins
    sources = sum(text_of(path).count("{solution-start}") for path in (ROOT / "chapters").glob("*.ipynb"))
    assert folds == sources > 80


def test_a_fold_holds_the_solution_and_no_more(book):
    """In Lab a folded heading hides all cells up to the next one with a heading: what follows a solution must have one."""
    ends = 0
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        ended = False
        for cell in cells_of(path):
            _, end, after = "".join(cell["source"]).rpartition("{solution-end}\n```")
            follows = end and after.strip()
            if ended or follows:
                text = "```{solution-end}\n```" + after if follows else "".join(cell["source"])
                shown = next(piece for piece, _ in lab_copy.pieces(text, book) if piece)
                assert re.search(r"^#+ ", shown, re.M), (path.name, cell["id"])
                ends += 1
            ended = end and not follows
    assert ends > 80


def test_a_solution_shares_no_cell_with_what_ends_it(book):
    text = "```{solution-start} ex-03-2\n:class: dropdown\n```\nA.\n\n```{solution-end}\n```\n\n## Sources\n\nB."
    title = f"##### Solution of {book.places['ex-03-2'][1].lower()}"
    kept = [piece for piece in lab_copy.pieces("Before.\n\n" + text, book) if piece[0]]
    assert kept == [("Before.", False), (title, True), ("A.", False), ("## Sources\n\nB.", False)]


def test_the_first_figure_of_a_copy_brings_the_script_of_all(folder):
    for path in sorted(folder.glob("*.ipynb")):
        figures = [html for _, html in html_outputs(read(path)) if "<rlx-figure" in html]
        assert [dressing() in html for html in figures] == [True, *[False] * (len(figures) - 1)][: len(figures)], (
            path.name
        )
        assert [(html, undressed(html)) for html in figures[1:]] == [(html, html) for html in figures[1:]]


def test_folded_code_and_mistakes_look_so(folder):
    source, copy = (cells_of(place / "03_maze.ipynb") for place in (ROOT / "chapters", folder))
    folded = [cell for cell in copy if cell["metadata"].get("jupyter") == {"source_hidden": True}]
    assert len(folded) == sum("hide-input" in cell["metadata"].get("tags", []) for cell in source) > 0
    assert ":class: danger dropdown" in text_of(folder / "03_maze.ipynb")
    ids = [cell["id"] for cell in copy]
    assert len(set(ids)) == len(ids)


def test_plain_copies_hold_no_directive(tmp_path):
    """VS Code shows a directive as code: its title gone, its formulas as they were typed, all answers of a quiz in sight."""
    lab_copy.write_all(tmp_path / "plain", lab_copy.plain)
    folds = 0
    for path in sorted((tmp_path / "plain").glob("*.ipynb")):
        text = text_of(path)
        assert re.findall(r"(?m)^(?:> )*`{3,}\{\w+\}|^(?:> )*:\w[\w-]*:", text) == [], path.name
        assert text.count("<details>") == text.count("</details>")
        folds += text.count("<details>")
    sources = "\n".join(text_of(path) for path in (ROOT / "chapters").glob("*.ipynb"))
    assert (
        folds
        == sources.count("{dropdown}")
        + len(re.findall(r"(?m)^:class:.*\bdropdown\b", sources))
        - sources.count("{solution-start}")
        > 300
    )
    assert sources.count("{math}") > 100


def test_boxes_in_plain_markdown():
    quiz = "````{admonition} Quiz: which?\n:class: quiz\nThis one?\n\n```{dropdown} $V$\n:class-container: quiz-wrong\n**No.**\n```\n````"
    assert lab_copy.plain(quiz) == (
        "> **Quiz: which?**\n>\n> This one?\n>\n> <details>\n> <summary>\n>\n> $V$\n>\n> </summary>\n>\n> **No.**\n>\n> </details>"
    )
    mistake = "```{admonition} Always?\n:class: danger dropdown\nNo.\n```\nText"
    assert lab_copy.plain(mistake) == "<details>\n<summary>Always?</summary>\n\nNo.\n\n</details>\nText"
    assert lab_copy.plain("```{math}\n\na = b \\tag{2.1}\n```") == "$$\na = b \\tag{2.1}\n$$"
    assert lab_copy.plain("```python\nx = 1\n```") == "```python\nx = 1\n```"


@pytest.fixture
def notebook(tmp_path):
    """A chapter of two cells, its copy, and a function that brings the copy up to date."""
    source, folder = tmp_path / "03_maze.ipynb", tmp_path / "lab"
    folder.mkdir()

    def write(text):
        cells = [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": [text]},
            {"cell_type": "code", "id": "b", "metadata": {}, "source": ["1 + 1"], "outputs": [], "execution_count": 1},
        ]
        source.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))

    def update():
        lab_copy.write_notebook(source, folder, lab_copy.Book())
        return {path.name: "".join(cells_of(path)[0]["source"]) for path in folder.iterdir()}

    return write, update, folder / "03_maze.ipynb"


def change(path, edit):
    data = json.loads(path.read_text())
    edit(data["cells"])
    path.write_text(json.dumps(data))


def test_a_copy_is_new_when_its_chapter_is(notebook):
    write, update, copy = notebook
    write("one")
    assert update() == {"03_maze.ipynb": "one"}
    change(copy, lambda cells: cells[1].update(execution_count=7))
    update()
    assert cells_of(copy)[1]["execution_count"] == 7, "a run in the copy stays while the chapter is the same"
    write("two")
    assert update() == {"03_maze.ipynb": "two"}


def test_what_the_reader_changed_stays(notebook):
    write, update, copy = notebook
    write("one")
    update()
    change(copy, lambda cells: cells[0].update(source=["mine"]))
    assert update() == {"03_maze.ipynb": "mine"}
    write("two")
    assert update() == {"03_maze.ipynb": "two", "03_maze.mine.ipynb": "mine"}
    change(copy, lambda cells: cells[0].update(source=["mine again"]))
    write("three")
    assert update() == {"03_maze.ipynb": "three", "03_maze.mine.ipynb": "mine", "03_maze.mine1.ipynb": "mine again"}


def test_settings_of_the_reader_stay(tmp_path):
    lab_copy.write_settings(tmp_path)
    path = tmp_path / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    assert json.loads(path.read_text()) == {"fetchNews": "false", "checkForUpdates": False}
    path.write_text("{}")
    lab_copy.write_settings(tmp_path)
    assert path.read_text() == "{}"


@pytest.mark.site
def test_the_numbers_are_those_of_the_site(book, site):
    equation = re.compile(r'id="equation-([\w-]+)"[^>]*>.*?class="eqno">(\([\d.]+\))<', re.S)
    exercise = re.compile(
        r'id="(ex-[\w-]+)"[^>]*>\s*<p class="admonition-title"[^>]*><span class="caption-number">(Exercise [\d.]+)\s*</span>'
    )
    shown = {}
    for page in (site / "chapters").glob("[01]*.html"):
        for form in (equation, exercise):
            shown |= {label: (page.stem, name) for label, name in form.findall(page.read_text("utf-8"))}
    counted = {label: place for label, place in book.places.items() if re.match(r"\(\d|Exercise \d", place[1])}
    assert len(counted) > 200
    assert {label: shown.get(label) for label in counted} == counted
