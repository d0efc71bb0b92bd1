"""A deck of cards to recall: every quiz and every numbered formula of the built book, once, as text that Anki imports.

    python tools/cards.py        writes _build/rlbook-cards.txt; in Anki: File, Import

A card keeps its name when the book is built again, so that a second import brings the changes and no doubles. What Anki reads in the first
lines of the file: https://docs.ankiweb.net/importing/text-files.html.
"""

from __future__ import annotations

import copy
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from lxml.html import HtmlElement, fromstring, tostring
from slides import ROOT, SITE, article, has, sentences, words

sys.path.insert(0, str(ROOT / "_ext"))
from equation_index import library_equations

NUMBERED = ".//div[contains(@class, 'math-wrapper')][.//*[@class='eqno']]"
FILE = ROOT / "_build" / "rlbook-cards.txt"
HEAD = ["#separator:tab", "#html:true", "#notetype:Basic", "#guid column:1", "#deck column:2", "#tags column:5"]


def field(*elements: HtmlElement) -> str:
    """Elements as one line of HTML, with formulas as Anki sets them."""
    lines = []
    for element in map(copy.deepcopy, elements):
        for formula in element.xpath("descendant-or-self::*[@data-tex]"):
            start, end = (r"\(", r"\)") if formula.tag == "span" else (r"\[", r"\]")
            text = f"{start} {formula.get('data-tex')} {end}"
            formula.clear(keep_tail=True)
            formula.text = text
        for one in element.iter():
            one.attrib.clear()
        lines.append(" ".join(tostring(element, encoding="unicode", with_tail=False).split()))
    return "".join(lines)


def quiz(box: HtmlElement) -> tuple[str, str]:
    """The question with its answers, in their order; and the right one, with what is said of each."""
    title, *question = (one for one in box if one.tag != "details")
    answers = box.findall("details")
    options = fromstring("<ol></ol>")
    for answer in answers:
        option = copy.deepcopy(answer.find("summary"))
        option.tag = "li"
        options.append(option)
    said = "".join(
        f"<p><b>Answer {number}</b></p>{field(*one.find('div'))}"
        for number, one in sorted(enumerate(answers, start=1), key=lambda pair: not has(pair[1], "quiz-right"))
    )
    return f"<p><b>{words(title)}</b></p>{field(*question, options)}", said


def formula(wrapper: HtmlElement, functions: dict[str, str]) -> tuple[str, str]:
    """The sentence that leads to it, and which function computes it; and the formula with its number."""
    body = wrapper.find(".//*[@data-tex]")
    number = words(wrapper.find_class("eqno")[0])
    lead = next((sentences(one, -1) for one in wrapper.itersiblings(preceding=True) if one.tag == "p"), None)
    asked = f"<p>Write down {number}, which <code>{functions[body.get('id').removeprefix('equation-')]}</code> computes.</p>"
    section = words(next(one for box in wrapper.iterancestors() for one in box if one.tag in ("h1", "h2", "h3")))
    front = f"<p><b>{section}</b></p>{field(lead) if lead is not None else ''}{asked}"
    return front, f"{field(body)}<p>{number}</p>"


def cards(site: Path = SITE, root: Path = ROOT) -> Iterator[list[str]]:
    """The rows of the file: name, deck, front, back, tags."""
    contents = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    functions = {place.label: place.name.removeprefix("rlbook_lib.") for place in reversed([*library_equations(root)])}
    chapters = [chapter for part in contents["parts"] if part.get("numbered") for chapter in part["chapters"]]
    for number, chapter in enumerate(chapters, start=1):
        names = [Path(page["file"]).name for page in (chapter, *chapter.get("sections", []))]
        pages = {name: article(site, name) for name in names}
        title = words(pages[names[0]].find(".//h1")).partition(" ")[2]
        for name, page in pages.items():
            found = [(one.find(".//*[@data-tex]").get("id"), formula(one, functions)) for one in page.xpath(NUMBERED)]
            boxes = page.xpath(".//div[contains(@class, 'quiz')]")
            found += [(f"{name}-quiz-{words(one[0])}", quiz(one)) for one in boxes]
            for guid, (front, back) in found:
                kind = "quiz" if "-quiz-" in guid else "formula"
                yield [guid, f"Reinforcement Learning::{number:02} {title}", front, back, f"{kind} chapter-{number:02}"]


def main() -> int:
    try:
        rows = list(cards())
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    with FILE.open("w", encoding="utf-8", newline="") as file:
        file.write("\n".join(HEAD) + "\n")
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)
    print(f"{FILE}: {len(rows)} cards; in Anki: File, Import")
    return 0


if __name__ == "__main__":
    sys.exit(main())
