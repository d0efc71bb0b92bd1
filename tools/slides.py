"""Slides of each lesson, made from its built page: question, pictures, formulas, programs, quiz, exercises, five lines.

    python tools/slides.py                 all lessons, into _build/slides
    python tools/slides.py 04_mc_and_td    some of them

A deck is one file that needs nothing else: style, fonts and the script of the pictures are in it, so its explorers work
anywhere. Nothing is written for the slides alone: what becomes one is said in ``slides_of``, how it looks in ``slides/``.
"""

from __future__ import annotations

import argparse
import base64
import copy
import html
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from lxml.html import HtmlElement, HTMLParser, fromstring, tostring
from lxml.html.builder import DETAILS, DIV, SUMMARY, P

ROOT = Path(__file__).resolve().parent.parent
SITE, DECKS = ROOT / "_build" / "html", ROOT / "_build" / "slides"
PARTS = Path(__file__).resolve().parent / "slides"
SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[A-Z(])")
KEYS = (
    '<p class="keys">→ and ← move, Enter opens what is folded, 1 2 3 an answer, F is the full screen, D the colors; '
    "Esc takes the arrows back from a slider.</p>"
)


@dataclass(frozen=True)
class Slide:
    """A heading, as its section has it, and what stands below it."""

    heading: HtmlElement
    body: list[HtmlElement]


def lessons(root: Path = ROOT) -> dict[str, int]:
    """The names of the lessons, each with the number of its part."""
    parts = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))["parts"]
    numbered = [part["chapters"] for part in parts if part.get("numbered")]
    return {Path(page["file"]).name: part for part, pages in enumerate(numbered, start=1) for page in pages}


def article(site: Path, name: str) -> HtmlElement:
    """What a page of the site says, without its frame, its folded code, and the links that only the site can follow.

    Raises:
        FileNotFoundError: the site has no such page.
    """
    file = site / "chapters" / f"{name}.html"
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} is not there; expected a built book (`make book`) and a name such as 04_mc_and_td"
        )
    found = fromstring(file.read_bytes(), parser=HTMLParser(encoding="utf-8", huge_tree=True)).find(".//article")
    for away in found.xpath(
        ".//*[contains(@class, 'headerlink')] | .//noscript | .//details[contains(@class, 'hide')] | .//div[@class='live-names']"
    ):
        away.drop_tree()
    for link in found.xpath(".//a[not(starts-with(@href, 'http'))]"):
        link.drop_tag()
    return found


# ---------------------------------------------------------------- pieces of text


def has(block: HtmlElement, *names: str) -> bool:
    """Whether it is of one of these classes."""
    return not {*names}.isdisjoint(block.get("class", "").split())


def words(block: HtmlElement) -> str:
    """Its text, with each formula once."""
    return " ".join("".join(block.xpath(".//text()[not(ancestor::*[@class='katex-mathml'])]")).split())


def sentences(paragraph: HtmlElement, first: int | None, last: int | None = None) -> HtmlElement:
    """The sentences of a paragraph from one up to another, counted as Python counts, as a paragraph of its own."""
    pieces: list[list[HtmlElement | str]] = [[]]
    for child, text in [(None, paragraph.text), *((one, one.tail) for one in paragraph)]:
        if child is not None:
            pieces[-1].append(alone(child))
        head, *rest = SENTENCE.split(text or "")
        pieces[-1].append(head)
        pieces += [[" ", one] for one in rest]
    return P(*(one for piece in pieces[first:last] for one in piece))


def alone(element: HtmlElement) -> HtmlElement:
    """A copy without the text that follows it."""
    twin = copy.deepcopy(element)
    twin.tail = None
    return twin


# ---------------------------------------------------------------- what is a slide


def slides_of(section: HtmlElement) -> Iterator[Slide]:
    """The slides of a section and of those in it.

    One for its first paragraph and its numbered formulas, two or three of these at a time, each with the sentence that leads to it; one for each
    picture, with the question before it and, folded, what is said after it; one for each box, table and function.
    """
    blocks = [one for whole in section if isinstance(whole.tag, str) for one in opened(whole) if one.tag != "span"]
    heading, *blocks = blocks
    if "Sources and further reading" in words(heading):
        return
    first = blocks[0] if blocks and blocks[0].tag == "p" else None
    numbered = [one for one in blocks if has(one, "math-wrapper") and one.xpath(".//*[@class='eqno']")]
    formulas, shown, waiting = [], [], []  # waiting is text that no slide has yet
    for block, *after in (blocks[number : number + 3] for number in range(len(blocks))):
        if block.tag in ("p", "ul") or (block.tag == "ol" and "five lines" not in words(heading)):
            waiting.append(block)
            continue
        if block in numbered:
            lead = [sentences(one, -1) for one in waiting[-1:] if one is not first]
            leads_on = len(after) > 1 and has(after[1], "math-wrapper")
            where = [sentences(one, 0, 1) for one in after[:1] if words(one)[:1].islower() and not leads_on]
            formulas.append(DIV(*lead, alone(block), *where))
        elif has(block, "cell") and block.xpath(".//svg"):
            asked = next((n for n, one in enumerate(waiting) if words(one).startswith("Question")), len(waiting) - 1)
            picture = DIV(*map(alone, block.xpath("./*[contains(@class, 'cell_output')]")), {"class": "cell"})
            beside = [*(one for one in waiting[max(asked, 0) :] if one.tag == "p"), *told(after)]
            shown.append(Slide(heading, [DIV(*map(alone, beside), {"class": "beside"}), picture]))
            if waiting[:1] == [first] and asked <= 0:
                first = None  # it stands beside the picture
        elif has(block, "cell") and re.search(r"^(def|class) ", "".join(block.xpath("./*[1]//text()")), re.MULTILINE):
            lead = [sentences(one, -2) for one in waiting[-1:] if one.tag == "p" and one is not first]
            shown.append(Slide(heading, [*lead, block]))
        elif has(block, "quiz", "tip", "mistake", "table-wrapper") or block.tag == "ol":
            shown.append(Slide(heading, [block]))
        elif has(block, "exercise"):
            shown.append(Slide(heading, [block, *(without_code(one) for one in after[:1] if has(one, "solution"))]))
        elif block.tag == "section" and not has(block, "lab"):
            shown += slides_of(block)
        waiting = []
    most = 3 if len(formulas) == 3 else 2
    if first is not None:
        goes_on = [one for one in blocks[1:3] if (one.tag == "ul" or has(one, "math-wrapper")) and one not in numbered]
        opening = [sentences(first, 0, 5), *(one for one in goes_on if one.getprevious() in (first, *goes_on))]
        if not formulas and shown and has(shown[0].body[0], "cell"):
            opening += shown.pop(0).body  # a program
        yield Slide(heading, opening + formulas[:most])
        formulas = formulas[most:]
    for number in range(0, len(formulas), most):
        yield Slide(heading, formulas[number : number + most])
    yield from shown


def without_code(solution: HtmlElement) -> HtmlElement:
    """A solution as one says it in a hall: words and formulas; programs stay in the book."""
    twin = alone(solution)
    for program in twin.xpath(".//div[contains(@class, 'highlight-')]"):
        program.getparent().replace(program, P("The program is in the book."))
    return twin


def opened(block: HtmlElement) -> list[HtmlElement]:
    """What a fold holds, if that is a numbered formula; else the block itself."""
    holds = block.tag == "details" and not has(block, "mistake") and block.xpath(".//*[@class='eqno']")
    return list(block.find("div")) if holds else [block]


def told(after: list[HtmlElement]) -> list[HtmlElement]:
    """What follows a picture, folded: the box of what one should have seen, and the first sentence after it."""
    seen = [one for one in after[:1] if one.tag == "details" and not has(one, "mistake")]
    rest = [one for one in after[len(seen) : len(seen) + 1] if one.tag == "p"]
    said = [sentences(one, 0, 1) for one in rest if not words(one).startswith(("Question", "Deeper", "Your turn"))]
    if not seen and not said:
        return []
    box = alone(seen[0]) if seen else DETAILS(SUMMARY("What it shows"), DIV({"class": "folded"}), {"class": "fold"})
    box.find("div").extend(said)
    return [box]


# ---------------------------------------------------------------- the deck


def markup(elements: Iterable[HtmlElement]) -> str:
    return "".join(tostring(one, encoding="unicode", with_tail=False) for one in elements)


def title_of(slide: Slide, number: int) -> HtmlElement:
    """The heading of a slide, all but the first at one level: a deck is a list."""
    title = alone(slide.heading)
    title.tag = "h1" if number == 1 else "h2"
    return title


def style(site: Path) -> str:
    """The site's own sheet with its fonts in it, that of the pictures, and what is the slides'."""

    def inside(font: re.Match[str]) -> str:
        return f"url(data:font/woff2;base64,{base64.b64encode((site / '_static' / font[1]).read_bytes()).decode()})"

    sheets = [site / "_static" / "style.css", site / "_static" / "explore.css", PARTS / "slides.css"]
    return re.sub(
        r"""url\(["']?(katex/[\w-]+\.woff2)["']?\)""", inside, "".join(one.read_text("utf-8") for one in sheets)
    )


def deck(site: Path, name: str, part: int) -> tuple[str, int]:
    """The file of a lesson's slides, and how many there are."""
    found = article(site, name)
    slides = list(slides_of(found.find("section")))
    title = html.escape(words(slides[0].heading))
    pages = "".join(
        f'<section class="slide" id="{number}" tabindex="-1" aria-label="Slide {number} of {len(slides)}"><div class="fit">'
        f"{markup([title_of(slide, number)])}{markup(slide.body)}{KEYS if number == 1 else ''}</div>"
        f'<p class="foot"><span>{title}</span> {number} / {len(slides)}</p></section>'
        for number, slide in enumerate(slides, start=1)
    )
    states = markup(found.xpath(".//script[@type='application/json']"))
    scripts = [site / "_static" / "explore.js", PARTS / "slides.js"]
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style(site)}</style></head>'
        f'<body><main><article style="--book-part: var(--part-{part})">{pages}</article></main>{states}'
        + "".join(f"<script>{script.read_text('utf-8')}</script>" for script in scripts)
        + "</body></html>\n"
    ), len(slides)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="lessons, as 04_mc_and_td; all without it")
    parts = lessons()
    DECKS.mkdir(parents=True, exist_ok=True)
    for name in parser.parse_args().names or parts:
        try:
            text, count = deck(SITE, name, parts.get(name, 1))
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 1
        (DECKS / f"{name}.html").write_text(text, "utf-8")
        print(f"{DECKS / name}.html: {count} slides, {len(text) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
