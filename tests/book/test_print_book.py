"""The book as one PDF, tried on some chapters: pages, bookmarks, links, boxes, and nothing wider than its page."""

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

# the first has pictures whose states are numbers of its formula, too
TRIED = ["02_mdps", "02_mdps_deeper", "04_mc_and_td"]


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
    """No two pages of the printed book share a name."""
    sheets = [printing.Sheet(f"chapters/{name}.html") for name in ("02_mdps", "04_mc_and_td")]
    named = []
    for sheet in sheets:
        body = printing.article(site, sheet)
        wanted = re.findall(r'<rlx-figure class="rlx" data-states="([^"]*)"', body)
        assert len(wanted) == body.count('class="rlx-controls"') > 2
        assert set(wanted) == set(re.findall(r'<script type="application/json" id="([^"]*)">', body))
        named.append(set(re.findall(r'<clipPath id="([^"]*)"', body)))
    assert named[0] and named[1] and not named[0] & named[1]


def below(bookmark: Dictionary) -> Iterator[Dictionary]:
    one = bookmark.get("/First")
    while one is not None:
        yield one
        one = one.get("/Next")


def text(page: Page) -> bytes:
    return page.obj.Contents.read_bytes()


MOVE = re.compile(rb"(?<!\S)(?:(?P<save>q)|(?P<restore>Q)|(?P<matrix>(?:-?[\d.]+\s+){6})(?P<to>cm|Tm))(?!\S)")


def words(page: Page) -> list[tuple[float, float]]:
    """Where each piece of text begins, in points from the lower left corner: what moves the pen is multiplied out."""
    now, saved, found = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0), [], []
    for move in MOVE.finditer(text(page)):
        if move["save"]:
            saved.append(now)
        elif move["restore"]:
            now = saved.pop()
        else:
            a, b, c, d, e, f = map(float, move["matrix"].split())
            A, B, C, D, E, F = now
            then = (a * A + b * C, a * B + b * D, c * A + d * C, c * B + d * D, e * A + f * C + E, e * B + f * D + F)
            if move["to"] == b"cm":
                now = then
            else:
                found.append(then[4:])
    return found


MARGIN = 17 / 25.4 * 72  # points, above and below the text
SIDE = 16 / 25.4 * 72


def white(page: Page) -> float:
    """The share of a page's height below its last line of text; the running title and the number are not counted."""
    height = float(page.mediabox[3])
    inside = [y for _, y in words(page) if MARGIN < y < height - MARGIN]
    return (min(inside, default=height - MARGIN) - MARGIN) / (height - 2 * MARGIN)


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
        assert [str(one.Title).split(".")[0] for one in first] == ["Contents", "2", "4"]
        assert (
            str(first[2].Title) == "4. Learning from experience: Monte Carlo and temporal differences"
        )  # on two lines of its page
        sections = [str(one.Title) for one in below(first[1])]
        assert sections[0].startswith("2.1.") and any("Deeper" in title for title in sections)
        numbers = [Page(one.Dest[0]).index for one in first]
        assert numbers == sorted(set(numbers)) and numbers[0] == 1  # behind the cover

    def test_every_link_inside_leads_to_a_page(self, book: Pdf) -> None:
        pages = {page.objgen for page in book.pages}
        links = [link for page in book.pages for link in page.obj.get("/Annots", Array())]
        inside = [link for link in links if "/Dest" in link]
        lost = [
            str(link.Dest)
            for link in inside
            if book.Root.Dests.get(str(link.Dest), [Dictionary()])[0].objgen not in pages
        ]
        assert lost == []
        assert len(inside) > 50  # that there are any: lessons grow and shrink
        outside = [str(link.A.URI) for link in links if "/A" in link]
        assert [uri for uri in outside if not uri.startswith("http")] == []

    def test_the_contents_name_the_pages(
        self, book: Pdf, printed: tuple[printing.Printed, Path], site: Path, browser: Any
    ) -> None:
        """The first chapter starts behind cover and contents, the second where its own bookmark leads."""
        starts = [Page(one.Dest[0]).index for one in below(book.Root.Outlines)]
        links = [str(link.Dest) for link in book.pages[1].obj.Annots]
        assert [Page(book.Root.Dests[name][0]).index for name in links] == [
            starts[1],
            Page(book.Root.Dests[links[1]][0]).index,
            starts[2],
        ]
        assert starts[1] == 2

    def test_no_page_is_empty(self, book: Pdf) -> None:
        # a page with nothing but its number and its running title draws two texts; a line of text is one more
        assert [
            number
            for number, page in enumerate(book.pages, start=1)
            if text(page).count(b"Tj") + text(page).count(b"TJ") < 4
        ] == []

    def test_only_the_last_page_of_a_chapter_is_half_empty(self, book: Pdf) -> None:
        starts = {Page(book.Root.Dests[f"/{name}--"][0]).index for name in TRIED}
        inner = [
            page
            for number, page in enumerate(book.pages)
            if number > 1 and number + 1 not in {*starts, len(book.pages)}
        ]
        assert len(inner) > 50
        assert [(page.index + 1, round(white(page), 2)) for page in inner if white(page) > 0.4] == []

    def test_all_text_begins_between_the_margins(self, book: Pdf) -> None:
        width = float(book.pages[1].mediabox[2])
        outside = {
            page.index + 1
            for page in list(book.pages)[1:]
            for x, _ in words(page)
            if not SIDE - 1 < x < width - SIDE + 1
        }
        assert outside == set()

    def test_readers_that_speak_get_one_tree(self, book: Pdf) -> None:
        tree = book.Root.StructTreeRoot
        keys = list(tree.ParentTree.Nums)[::2]
        assert [int(key) for key in keys] == list(range(int(tree.ParentTreeNextKey)))
        for number, page in enumerate(book.pages):
            elements = tree.ParentTree.Nums[2 * int(page.obj.StructParents) + 1]
            assert number in {index for one in elements if one is not None for index in pages_of(one)}


# What the site's own script draws in a state, and what is printed of it, without what only one of them has: larger words, handles.
DRAWN = """picture => {
  const copy = picture.cloneNode(true);
  copy.querySelectorAll(".rlx-handle, .rlx-ghost, .rlx-cover, .rlx-marks").forEach(one => one.remove());
  copy.querySelectorAll("[font-size]").forEach(one => one.removeAttribute("font-size"));
  const attributes = one => [...one.attributes].map(({name, value}) => `${name}=${value}`).sort().join(" ");
  return [...copy.querySelectorAll("*")].map(one => `${one.tagName} ${attributes(one)} ${one.children.length ? "" : one.textContent}`).join("\\n");
}"""
PRINTED_STATES = f"""() => [...document.querySelectorAll(".rlx")].filter(one => one.querySelector("[data-state]")).map(figure =>
  [...figure.querySelectorAll("[data-state]")].map(one => [one.dataset.state.split(",").map(Number), ({DRAWN})(one.querySelector("svg")), one.textContent]))"""
SITE_STATES = f"""states => [...document.querySelectorAll(".rlx")].filter(one => one.querySelector("form")).map((figure, number) =>
  states[number].map(state => {{
    figure.querySelectorAll("[data-control]").forEach((control, index) => {{
      const one = control.querySelector("input[type=range], select");
      if (one) one.value = state[index]; else control.querySelectorAll("input[type=radio]")[state[index]].checked = true;
      control.querySelector("input, select").dispatchEvent(new Event("input", {{bubbles: true}}));
    }});
    return [({DRAWN})(figure.querySelector("svg")), figure.querySelector(".rlx-readout").textContent];
  }}))"""


def fit_for_paper(site: Path, names: list[str], folder: Path, browser: Any) -> Any:
    """The document of some pages, in the browser, as it goes to the printer."""
    file = folder / "book.html"
    file.write_text(printing.document(site, [sheet for sheet in printing.sheets() if sheet.name in names]), "utf-8")
    return printing.prepared(browser, file)[0]


@pytest.mark.browser
@pytest.mark.site
def test_an_interactive_picture_is_printed_in_some_of_its_states(site: Path, browser: Any, tmp_path: Path) -> None:
    """Two to four of them side by side, each as the site draws it."""
    page = fit_for_paper(site, ["03_maze"], tmp_path, browser)
    printed = page.evaluate(PRINTED_STATES)
    left = page.locator(".rlx :is(form, input, script, select)").count()
    page.close()
    assert left == 0 and len(printed) > 3
    assert {len(frames) for frames in printed} <= {2, 3, 4}
    assert all(len({(drawn, said) for _, drawn, said in frames}) == len(frames) for frames in printed)
    live = browser.new_page()
    live.goto((site / "chapters" / "03_maze.html").as_uri())
    drawn = live.evaluate(SITE_STATES, [[state for state, _, _ in frames] for frames in printed])
    live.close()
    for frame, (picture, said) in zip(sum(printed, []), sum(drawn, []), strict=True):
        assert frame[1] == picture and frame[2].endswith(said)


@pytest.mark.browser
@pytest.mark.site
def test_every_page_of_the_reference_stands_in_two_columns(site: Path, browser: Any, tmp_path: Path) -> None:
    page = fit_for_paper(site, ["appendix_api", "appendix_api_tools"], tmp_path, browser)
    style = "articles => articles.map(one => [getComputedStyle(one).columnCount, getComputedStyle(one).fontSize])"
    styles = page.eval_on_selector_all("article[data-page]", style)
    page.close()
    assert len(styles) == 2 and styles[0] == styles[1] and styles[0][0] == "2"


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


@pytest.mark.browser
@pytest.mark.parametrize(("line", "share"), [("0mm", 1.0), ("130mm", 0.5), ("250mm", 0.05)])
def test_white_is_measured_from_the_last_line(browser: Any, line: str, share: float) -> None:
    page = browser.new_page()
    page.set_content(
        f"<style>@page {{ size: A4; margin: 17mm 16mm }} body {{ margin: 0 }}</style><p style='margin: {line} 0 0'>last</p>"
    )
    data = page.pdf(prefer_css_page_size=True)
    page.close()
    with Pdf.open(io.BytesIO(data)) as pdf:
        assert white(pdf.pages[0]) == pytest.approx(share, abs=0.03)


def test_without_chromium_one_sentence_says_so() -> None:
    command = [sys.executable, ROOT / "tools" / "print_book.py", "--check"]
    environment = os.environ | {"RLBOOK_CHROMIUM": "/nowhere/chromium"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr.startswith("Printing needs Chromium, and /nowhere/chromium does not start")
        and done.stderr.count("\n") == 1
    )
