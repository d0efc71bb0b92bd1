"""Print the built site as one PDF: cover, contents with page numbers, every page of the book, bookmarks, links that stay inside.

    python tools/print_book.py                                       the whole book, into _build/rlbook.pdf
    python tools/print_book.py --only 03_maze 04_mc_and_td --to x.pdf   some pages, for a look

The site's own pages are put into one document, so numbers of equations and sections are the site's; tools/print/book.js makes it fit
for paper, tools/print/book.css says how it looks. Chromium prints it chapter by chapter, and the PDFs are joined.
"""

from __future__ import annotations

import argparse
import html
import io
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from join_pdfs import join, name_bookmarks, packed
from pikepdf import Dictionary, Pdf
from playwright.sync_api import Browser, Error, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
PARTS = Path(__file__).resolve().parent / "print"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MARGIN_BOXES = 131  # the first Chromium that prints what @page says about page numbers
PAGE_HEIGHT = 263 / 25.4 * 96  # of the text of an A4 page, in CSS pixels
MINUTES = 20


@dataclass(frozen=True)
class Sheet:
    """One page of the site: its address, the part it belongs to, and whether it stands below another one."""

    address: str
    part: str = ""
    below: bool = False

    @property
    def name(self) -> str:
        return Path(self.address).stem


@dataclass(frozen=True)
class Printed:
    """What was found while printing."""

    pages: int
    broken: list[str]  # links that lead nowhere
    wide: list[str]  # blocks that leave the column
    closed: int  # boxes that are still folded


# ---------------------------------------------------------------- the document


def sheets() -> list[Sheet]:
    """The pages in the book's order."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    found = [Sheet(f"{contents['root']}.html")]
    for part in contents["parts"]:
        for chapter in part["chapters"]:
            found.append(Sheet(f"{chapter['file']}.html", part["caption"]))
            found += [Sheet(f"{one['file']}.html", part["caption"], True) for one in chapter.get("sections", [])]
    return found


def article(site: Path, sheet: Sheet) -> str:
    """What a page of the site says, without the frame around it and without its scripts."""
    text = (site / sheet.address).read_text("utf-8")
    start = text.index(">", text.index("<article")) + 1
    body = text[start : text.rindex("</article>")]
    body = re.sub(
        r"<script\b(?![^>]*application/json).*?</script>", "", body, flags=re.DOTALL
    )  # those of JSON are the states of pictures
    below = " data-below" if sheet.below else ""
    part = f' data-part="{html.escape(sheet.part)}"' if sheet.part else ""
    return f'<article class="sheet" data-page="{sheet.address}"{part}{below} style="page: {page_name(sheet)}">{body}</article>'


def page_name(sheet: Sheet) -> str:
    """The name that a style sheet has for the printed pages of a sheet."""
    return "page-" + re.sub(r"\W+", "-", sheet.name)


def running_titles(site: Path, wanted: list[Sheet]) -> str:
    """Rules that print the title of each sheet above its pages."""
    rules = []
    for sheet in wanted:
        title = re.search(r"<title>(.*?)(?: - [^<]*)?</title>", (site / sheet.address).read_text("utf-8"), re.DOTALL)
        words = html.unescape(title[1]).strip().replace("\\", "").replace('"', "\\22 ") if title else sheet.name
        rules.append(
            f'@page {page_name(sheet)} {{ @top-center {{ content: "{words}"; font: 8.5pt sans-serif; color: #555; }} }}'
        )
    return "\n".join(rules)


def document(site: Path, wanted: list[Sheet]) -> str:
    """One page of HTML that holds all of them, to be kept two folders beside the site's style sheet."""
    title = re.search(r"<h1>(.*?)<a ", (site / "index.html").read_text("utf-8"), re.DOTALL)
    whole = re.sub(r"<[^>]*>", "", title[1]) if title else "The book"
    first, _, rest = whole.partition(": ")
    icon = (site / "_static" / "favicon.svg").read_text("utf-8")
    cover = (
        f'<section class="print-cover">{icon}<p class="print-title">{first}</p><p class="print-subtitle">{rest}</p>'
        '<p class="print-foot">The site of this book has its pictures to move, its quizzes to answer and its pages as notebooks.<br>'
        "Text and figures: CC BY 4.0. Code: MIT.</p></section>"
    )
    contents = '<section class="print-contents" style="page: contents"><h1>Contents</h1><div id="print-contents"></div></section>'
    return (
        f'<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{whole}</title>'
        f'<link rel="stylesheet" href="{(site / "_static" / "style.css").as_uri()}">'
        f'<link rel="stylesheet" href="{(site / "_static" / "explore.css").as_uri()}">'
        f"<style>{(PARTS / 'book.css').read_text('utf-8')}\n{running_titles(site, wanted)}</style></head>"
        f'<body data-theme="light"><main>{cover}{contents}{"".join(article(site, sheet) for sheet in wanted)}</main></body></html>'
    )


# ---------------------------------------------------------------- the browser


class NoChromium(RuntimeError):
    """Nothing here can print."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that can print.

    Raises:
        NoChromium: none is installed, or it is too old; says what to do.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("RLBOOK_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as play:
        if not found and not Path(play.chromium.executable_path).exists():
            raise NoChromium(
                "Printing needs Chromium, and none is here: install it, or name it with RLBOOK_CHROMIUM=/path/to/chromium."
            )
        try:
            browser = play.chromium.launch(executable_path=found, args=FLAGS)
        except Error as error:
            raise NoChromium(
                f"Printing needs Chromium, and {found or 'the one of Playwright'} does not start: {error.message.splitlines()[0]}"
            ) from None
        if int(browser.version.split(".")[0]) < MARGIN_BOXES:
            raise NoChromium(f"Printing needs Chromium {MARGIN_BOXES} or newer, and this is {browser.version}.")
        yield browser
        browser.close()


def prepared(browser: Browser, file: Path) -> tuple[Page, dict[str, Any]]:
    """The document, opened and made fit for paper, and what was found on the way."""
    page = browser.new_page(viewport={"width": 794, "height": 1123})
    page.set_default_timeout(MINUTES * 60_000)
    page.emulate_media(media="print", color_scheme="light", reduced_motion="reduce")
    page.goto(file.as_uri())
    page.evaluate("document.fonts.ready.then(() => true)")
    page.add_script_tag(path=PARTS / "book.js")
    return page, page.evaluate("height => window.preparePrint(height)", PAGE_HEIGHT)


def paper(page: Page, articles: list[str], before: int) -> bytes:
    """The PDF of some articles, whose pages count on from those before; cover and contents where no article is named.

    One after the other, because Chromium takes four times as long for twice the pages.
    """
    page.evaluate("([articles, before]) => window.showOnly(articles, before)", [articles, before])
    return page.pdf(prefer_css_page_size=True, print_background=True, outline=True, tagged=True)


def places(data: bytes) -> tuple[int, dict[str, int]]:
    """The number of pages, and for each name that a link leads to, the page that has it, counted from 1."""
    with Pdf.open(io.BytesIO(data)) as part:
        numbers = {page.objgen: number for number, page in enumerate(part.pages, start=1)}
        names = part.Root.get("/Dests", Dictionary())
        return len(part.pages), {name[1:]: numbers[target[0].objgen] for name, target in names.items()}


def print_groups(page: Page, groups: list[list[str]]) -> list[bytes]:
    """Cover and contents first, although they are printed last: only then are the numbers of the pages known."""
    count, _ = places(paper(page, [], 0))
    front, numbers, parts = count, {}, []
    for group in groups:
        part = paper(page, group, count)
        pages, here = places(part)
        numbers |= {name: count + number for name, number in here.items()}
        parts.append(part)
        count += pages
    page.evaluate("numbers => window.numberContents(numbers)", numbers)
    first = paper(page, [], 0)
    if places(first)[0] != front:
        raise RuntimeError(f"the contents took {front} pages without their numbers, and {places(first)[0]} with them")
    return [first, *parts]


def print_book(site: Path, file: Path, only: list[str] | None = None, browser: Browser | None = None) -> Printed:
    """Print the site, or some of its pages.

    Args:
        site: folder of the built site.
        file: the PDF to write; the document that it is printed from stands beside it meanwhile.
        only: names of pages without their endings, as ``03_maze``; all of them without it.
        browser: the one to print with; its own without it.

    Returns:
        What was found: number of pages, links that lead nowhere, blocks that are too wide, closed boxes.

    Raises:
        NoChromium: see ``chromium``.
        FileNotFoundError: the folder holds no built site.
        ValueError: ``only`` names a page that the site does not have.
    """
    if not (site / "index.html").is_file():
        raise FileNotFoundError(f"site is {site}, which has no index.html; expected a built book: run `make book`")
    if browser is None:
        with chromium() as own:
            return print_book(site, file, only, own)
    wanted = sheets()
    if only is not None:
        if unknown := sorted(set(only) - {sheet.name for sheet in wanted}):
            raise ValueError(f"only names {unknown}; expected some of {[sheet.name for sheet in wanted]}")
        wanted = [sheet for sheet in wanted if sheet.name in only]
    file.parent.mkdir(parents=True, exist_ok=True)
    source = file.with_suffix(".print.html")
    source.write_text(document(site, wanted), "utf-8")
    page, found = prepared(browser, source)
    book = join(print_groups(page, found["groups"]), page.title())
    name_bookmarks(book, found["headings"])
    page.close()
    source.unlink()
    file.write_bytes(packed(book))
    return Printed(len(book.pages), found["broken"], found["wide"], found["closed"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="pages to print, as 03_maze; all without it")
    parser.add_argument("--to", type=Path, default=ROOT / "_build" / "rlbook.pdf")
    parser.add_argument("--check", action="store_true", help="only say whether this computer can print")
    chosen = parser.parse_args()
    start = time.monotonic()
    try:
        if chosen.check:
            with chromium():
                return 0
        printed = print_book(SITE, chosen.to, chosen.only)
    except (NoChromium, FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for kind, lines in (("link that leads nowhere", printed.broken), ("too wide", printed.wide)):
        for line in lines:
            print(f"{kind}: {line}", file=sys.stderr)
    print(f"{chosen.to}: {printed.pages} pages, {time.monotonic() - start:.0f} s")
    return 1 if printed.broken or printed.wide or printed.closed else 0


if __name__ == "__main__":
    sys.exit(main())
