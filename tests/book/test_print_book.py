"""The book as one PDF, tried on two chapters: pages, bookmarks, links, boxes, and nothing wider than its page."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from pikepdf import Array, Dictionary, Page, Pdf

sys.path.insert(0, str(ROOT / "tools"))
import print_book as printing
from join_pdfs import join, packed

TRIED = ["03_maze", "03_maze_deeper", "04_mc_and_td"]


# ---------------------------------------------------------------- the book, two chapters of it


@pytest.fixture(scope="module")
def printed(site: Path, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[printing.Printed, Path]:
    file = tmp_path_factory.mktemp("print") / "book.pdf"
    return printing.print_book(site, file, TRIED, browser), file


@pytest.fixture(scope="module")
def book(printed: tuple[printing.Printed, Path]) -> Iterator[Pdf]:
    with Pdf.open(printed[1]) as pdf:
        yield pdf


@pytest.mark.site
def test_every_picture_has_its_states_and_names_of_its_own(site: Path) -> None:
    """The site keeps the states of all pictures at a page's end, and names that other pages use, too."""
    sheets = [printing.Sheet(f"chapters/{name}.html") for name in ("03_maze", "04_mc_and_td")]
    named = []
    for sheet in sheets:
        body = printing.article(site, sheet)
        forms = [part.split("</div>")[0] for part in body.split("</form>")[1:]]
        assert len(forms) == body.count('class="rlx-controls"') > 2
        assert all(form.startswith('<script type="application/json">') for form in forms) and "rlx-states" not in body
        named.append(set(re.findall(r'<clipPath id="([^"]*)"', body)))
    assert named[0] and named[1] and not named[0] & named[1]


def below(bookmark: Dictionary) -> Iterator[Dictionary]:
    one = bookmark.get("/First")
    while one is not None:
        yield one
        one = one.get("/Next")


def text(page: Page) -> bytes:
    return page.obj.Contents.read_bytes()


def pages_of(element: Dictionary) -> Iterator[int]:
    """The pages of an element: its own, and those of the pieces that run on over a page's end."""
    kids = element.get("/K", Array())
    for one in [element, *(kids if isinstance(kids, Array) else [kids])]:
        if isinstance(one, Dictionary) and "/Pg" in one:
            yield Page(one.Pg).index


@pytest.mark.browser
@pytest.mark.site
class TestTwoChapters:
    def test_nothing_is_broken_too_wide_or_closed(self, printed: tuple[printing.Printed, Path]) -> None:
        found = printed[0]
        assert (found.broken, found.wide, found.closed) == ([], [], 0)

    def test_every_chapter_has_a_bookmark_that_opens_it(self, book: Pdf) -> None:
        first = list(below(book.Root.Outlines))
        assert [str(one.Title).split(".")[0] for one in first] == ["Contents", "3", "4"]
        assert str(first[2].Title) == "4. Learning from experience: Monte Carlo and temporal differences"  # on two lines of its page
        sections = [str(one.Title) for one in below(first[1])]
        assert sections[0].startswith("3.1.") and any("Deeper" in title for title in sections)
        numbers = [Page(one.Dest[0]).index for one in first]
        assert numbers == sorted(set(numbers)) and numbers[0] == 1  # behind the cover

    def test_every_link_inside_leads_to_a_page(self, book: Pdf) -> None:
        pages = {page.objgen for page in book.pages}
        links = [link for page in book.pages for link in page.obj.get("/Annots", Array())]
        inside = [link for link in links if "/Dest" in link]
        lost = [str(link.Dest) for link in inside if book.Root.Dests.get(str(link.Dest), [Dictionary()])[0].objgen not in pages]
        assert lost == []
        assert len(inside) > 100
        outside = [str(link.A.URI) for link in links if "/A" in link]
        assert [uri for uri in outside if not uri.startswith("http")] == []

    def test_the_contents_name_the_pages(self, book: Pdf, printed: tuple[printing.Printed, Path], site: Path, browser: Any) -> None:
        """The first chapter starts behind cover and contents, the second where its own bookmark leads."""
        starts = [Page(one.Dest[0]).index for one in below(book.Root.Outlines)]
        links = [str(link.Dest) for link in book.pages[1].obj.Annots]
        assert [Page(book.Root.Dests[name][0]).index for name in links] == [starts[1], Page(book.Root.Dests[links[1]][0]).index, starts[2]]
        assert starts[1] == 2

    def test_no_page_is_empty(self, book: Pdf) -> None:
        # a page with nothing but its number and its running title draws two texts; a line of text is one more
        assert [number for number, page in enumerate(book.pages, start=1) if text(page).count(b"Tj") + text(page).count(b"TJ") < 4] == []

    def test_readers_that_speak_get_one_tree(self, book: Pdf) -> None:
        tree = book.Root.StructTreeRoot
        keys = list(tree.ParentTree.Nums)[::2]
        assert [int(key) for key in keys] == list(range(int(tree.ParentTreeNextKey)))
        for number, page in enumerate(book.pages):
            elements = tree.ParentTree.Nums[2 * int(page.obj.StructParents) + 1]
            assert number in {index for one in elements if one is not None for index in pages_of(one)}


@pytest.mark.browser
@pytest.mark.site
def test_a_page_that_the_book_lacks_is_named(site: Path, browser: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"only names \['99_none'\]; expected some of \['index', '01_what_is_rl'"):
        printing.print_book(site, tmp_path / "book.pdf", ["99_none"], browser)


# ---------------------------------------------------------------- without the book


@pytest.mark.browser
def test_what_is_joined_can_be_walked(browser: Any) -> None:
    """Two documents, each with a link to the other: joined, both links have their places and both bookmarks are there."""
    stub = '<div hidden><a href="#{0}"></a><i id="{1}"></i></div>'
    parts = []
    for here, there in (("one", "two"), ("two", "one")):
        page = browser.new_page()
        page.set_content(f'<h1 id="{here}">{here}</h1><p><a href="#{there}">{there}</a></p>' + stub.format(here, there))
        parts.append(page.pdf(outline=True, tagged=True))
        page.close()
    data = packed(join(parts, "both"))
    assert data == packed(join(parts, "both"))
    with Pdf.open(io.BytesIO(data)) as book:
        assert [Page(book.Root.Dests[name][0]).index for name in ("/one", "/two")] == [0, 1]
        assert [str(page.obj.Annots[0].Dest) for page in book.pages] == ["/two", "/one"]
        assert [str(one.Title) for one in below(book.Root.Outlines)] == ["one", "two"]
        assert str(book.docinfo["/Title"]) == "both"


def test_without_chromium_one_sentence_says_so() -> None:
    command = [sys.executable, ROOT / "tools" / "print_book.py", "--check"]
    environment = os.environ | {"RLBOOK_CHROMIUM": "/nowhere/chromium"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Printing needs Chromium, and /nowhere/chromium does not start") and done.stderr.count("\n") == 1
