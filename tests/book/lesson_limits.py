"""Measure a lesson on its built page: how long it is, and how soon the reader sees, touches and meets the formula.

A lesson is a page of the table of contents that a person reads in one sitting; what is too much for that stands on its
Deeper page. ``python tests/book/lesson_limits.py`` prints the table for all lessons.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from page_visit import BROAD, Visit, opened

# The formula that the chapter is about: it stands in the first third of the page.
CENTRAL = {
    "01_what_is_rl": "",  # it numbers none
    "02_mdps": "eq-bellman-v",
    "03_maze": "eq-policy-improvement",
    "04_mc_and_td": "eq-td-update",
    "05_dqn": "eq-dqn-target",
    "06_policy_gradients": "eq-policy-gradient-trajectory",
    "07_gae": "eq-gae",
    "08_entropy_kl": "eq-kl",
    "09_trpo": "eq-surrogate",
    "10_ppo": "eq-clip-objective",
    "11_preferences": "eq-bradley-terry",
    "12_rlhf": "eq-rlhf-objective",
    "13_grpo": "eq-group-advantage",
}


@dataclass
class Lesson:
    """What was measured; heights and places in CSS pixels at a window of 1280, places from the top of the page."""

    words: int = 0  # of prose that shows before anything is opened; formulas, code and outputs not counted
    height: int = 0
    code_cells: int = 0  # that show before anything is opened
    code_lines: int = 0
    first_control: float = float("inf")  # the first explorer's top
    formula: float = float("inf")  # the central formula's top, as a share of the height; 0 where there is none
    acting: float = float("inf")  # the first thing that acts or learns (a cell tagged "acts"), as a share of the height
    tallest_explorer: int = 0  # picture and controls together
    gzip_kb: float = 0.0  # all that a first visit loads
    truths: int = 0  # the words True and False in outputs
    first_picture: float = float("inf")  # the first picture's bottom at a window of 1366 x 768
    deeper: int = 0  # links to the lesson's Deeper page, but for the one at its foot
    mistakes_told: int = 0  # boxes of common mistakes that do not ask "True or false?"
    time_off: float = float("inf")  # minutes between the time that the lesson states and that of ``MINUTES``


LIMITS = Lesson(
    words=4500,
    height=22_000,
    code_cells=24,
    code_lines=320,
    first_control=2500,
    formula=1 / 3,
    acting=1 / 2,
    tallest_explorer=620,
    gzip_kb=150,
    truths=0,
    first_picture=768,
    deeper=6,
    mistakes_told=0,
    time_off=5,
)

# How long a lesson takes: 130 words a minute, what is folded under a title included, a minute for a displayed formula and for a
# question of the quiz, 5 seconds a line of open code, 3 minutes an explorer, 5 a lab, and 5 for the first exercise, which the path
# through the book asks for. Careful readers' clocks are met within 5 minutes on the average (chapters 5, 6, 8 to 13).
MINUTES = "(words + folded) / 130 + formulas + quizzes + lines / 12 + 3 * explorers.length + 5 * labs + 5"

MEASURE = r"""formula => {
  const article = document.querySelector("article");
  const shows = element => element.checkVisibility({contentVisibilityAuto: true}) && element.getClientRects().length > 0;
  const top = element => element.getBoundingClientRect().top + scrollY;
  const height = document.documentElement.scrollHeight;
  const share = element => element ? top(element) / height : null;

  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  let words = 0, folded = 0;
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent.closest(".cell, .katex, .math, pre, script, style, .headerlink, .rlx")) continue;
    const here = (walker.currentNode.textContent.match(/[\p{L}\p{N}]+(?:['’-][\p{L}\p{N}]+)*/gu) ?? []).length;
    if (shows(parent)) words += here;
    else if (parent.closest(".fold") && !parent.closest(".quiz, .solution")) folded += here;
  }
  const code = [...article.querySelectorAll(".cell_input pre")].filter(shows);
  const outputs = [...article.querySelectorAll(".cell_output pre, .cell_output table")].map(e => e.textContent).join("\n");
  const explorers = [...article.querySelectorAll(".rlx:has(form)")].filter(shows);
  const acts = article.querySelector(".tag_acts");
  const lines = code.reduce((sum, block) => sum + block.textContent.trimEnd().split("\n").length, 0);
  const formulas = [...article.querySelectorAll("div.math")].filter(shows).length;
  const quizzes = article.querySelectorAll(".quiz").length, labs = article.querySelectorAll("[data-lab]").length;
  const said = article.textContent.match(/(\d+) minutes; with/);
  return {
    words, height,
    code_cells: code.length,
    code_lines: lines,
    time_off: said && Math.abs(said[1] - (MINUTES)),
    first_control: explorers.length ? top(explorers[0]) : null,
    formula: share(document.getElementById("equation-" + formula)),
    acting: share(acts),
    tallest_explorer: Math.round(Math.max(0, ...explorers.map(e => e.getBoundingClientRect().height))),
    truths: (outputs.match(/\b(True|False)\b/g) ?? []).length,
    deeper: [...article.querySelectorAll("a.reference[href*='_deeper.html']")].filter(shows).length,
    mistakes_told: [...article.querySelectorAll("details.mistake > summary")].filter(
      title => !title.textContent.startsWith("True or false?")).length,
  };
}""".replace("MINUTES", MINUTES)
FIRST_PICTURE = """() => {
  const picture = document.querySelector("article .rlx-picture svg, article .cell_output img");
  return picture ? Math.round(picture.getBoundingClientRect().bottom + scrollY) : null;
}"""


def measure(browser: Any, base: str, page_name: str, formula: str) -> Lesson:
    """Open a page and measure it."""
    seen = Visit(page_name)
    with opened(browser, base + page_name, seen) as page:
        lesson = measure_opened(page, formula)
    return replace(lesson, gzip_kb=round(seen.gzip_kb, 1))


def measure_opened(page: Any, formula: str) -> Lesson:
    """A page that is opened at 1280 pixels and was not touched; its weight is not known here."""
    found = page.evaluate(MEASURE, formula)
    page.evaluate('document.querySelectorAll(".rlx-guess > button:last-child").forEach(pass => pass.click())')
    shown = page.evaluate(MEASURE, formula)  # a figure that asks first is another one after the answer
    found |= {name: max(found[name], shown[name]) for name in ("height", "tallest_explorer")}
    page.set_viewport_size(BROAD)
    found["first_picture"] = page.evaluate(FIRST_PICTURE)
    known = {name: value for name, value in found.items() if value is not None} | ({} if formula else {"formula": 0.0})
    return Lesson(**known)


def beyond(lesson: Lesson, limits: Lesson = LIMITS) -> list[str]:
    """What is more than a lesson may have."""
    pairs = [(name, value, getattr(limits, name)) for name, value in asdict(lesson).items()]
    return [f"{name} is {value:.6g}, at most {limit:.4g}" for name, value, limit in pairs if value > limit]


def chapter_of(page_name: str) -> str | None:
    """``chapters/02_mdps.html`` is the lesson 02_mdps; Deeper pages and the rest are none."""
    found = re.fullmatch(r"chapters/(\d\d_\w+?)\.html", page_name)
    return found[1] if found and not found[1].endswith("_deeper") else None


def main() -> None:
    from conftest import FLAGS, SITE
    from page_visit import served
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, served(SITE) as base:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        names = list(asdict(Lesson()))
        print(f"{'lesson':<22}" + "".join(f"{name:>17}" for name in names))
        for chapter, formula in CENTRAL.items():
            row = asdict(measure(browser, base, f"chapters/{chapter}.html", formula))
            print(f"{chapter:<22}" + "".join(f"{value:>17.4g}" for value in row.values()), flush=True)


if __name__ == "__main__":
    main()
