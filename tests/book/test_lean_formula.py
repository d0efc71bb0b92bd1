"""Every formula of the book, with and without the boxes that KaTeX draws nothing with: each sign stands at the same place."""

from __future__ import annotations

import html
import re
from pathlib import Path
from xml.etree import ElementTree
from typing import Any

import lean_formula
import prerender_math
import pytest
import yaml
from conftest import ROOT
from lean_formula import APPLY
from page_visit import served

pytestmark = [pytest.mark.browser]

KATEX = ROOT / "_ext" / "katex"
NEAR = 0.1  # CSS pixels: sizes in em have four decimals
# What KaTeX builds in ways of its own, also where no page has it today.
BUILT = [
    r"x",
    r"a = b + c, d",
    r"x_i^2 + y^{n-1}_{t+1} - z'",
    r"\pi_{\theta_{k_1}}^{a^{b^c}}",
    r"e^{\frac{a}{b}} + \sqrt[3]{x^2_1} + \sqrt{\frac{a}{b}}",
    r"\sum_{i=1}^n \frac{1}{x_i} \prod_k \int_0^1 f\,dx",
    r"\left(\frac{a}{b}\right)^2 \Big[ x \Big| y \bigg\} \big\Vert",
    r"\hat A_t \bar x \tilde{\mathbf v} \vec w",
    r"\underbrace{a+b}_{\text{two}} \overbrace{c}^{x^2} \overset{!}{=} \underset{x}{\operatorname{arg\,max}}",
    r"\begin{cases} a & x > 0 \\ b & \text{else} \end{cases}",
    r"\begin{pmatrix} a_1 & b \\ c & d^2 \end{pmatrix}",
    r"\begin{aligned} a &= \frac12 b \\ &= c_1^2 \end{aligned}",
    r"\binom{n}{k} \tfrac12 \dfrac12 \mathcal{T}^n \mathbb{E}_{x \sim p}",
    r"a \! b \, c \; d \quad e \qquad f ~ g",
    r"\overline{x + y} \underline{z} \boxed{a} \cancel{b} \phantom{c} \text{if } x \text{ is } \textit{it}, \textbf{b} \mathrm{Var}",
    r"\lim_{n \to \infty} \max_{a'} \log x \limits",
    r"x \mapsto y \xrightarrow{abc} z \mathrel{\bot} w \not= v",
    r"1.5\cdot 10^{-3}\% \$ \# \{ \}",
]
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>A</title><style>@CSS</style>
<body style="font:16px/1.65 serif;width:750px">@FORMULAS</body></html>"""
# Of each formula its width and height, and of each letter, line and drawing in it the place.
PLACES = r"""() => [...document.querySelectorAll(".one")].map(one => {
  const from = one.getBoundingClientRect(), found = [from.width, from.height];
  const note = box => found.push(box.left - from.left, box.top - from.top, box.width);
  const walker = document.createTreeWalker(one.querySelector(".katex-html"), NodeFilter.SHOW_TEXT), range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (let index = 0; index < node.length; index++) {
      if (node.data[index] === "\u200b") continue;
      range.setStart(node, index);
      range.setEnd(node, index + 1);
      note(range.getBoundingClientRect());
    }
  }
  one.querySelectorAll(".frac-line, .overline-line, .underline-line, .katex-hline, svg, .fbox").forEach(line => note(line.getBoundingClientRect()));
  return found;
})"""


def set_in(typesetter: prerender_math.Typesetter, tex: str, display: bool) -> str:
    """As KaTeX writes it, on a page."""
    tex = prerender_math.NUMBERED.sub(r"\\\1{\2*}", prerender_math.LABEL.sub("", tex)).strip()
    answer = typesetter(tex, display)
    return prerender_math.TWICE.sub(r"<math\1>\2", answer.get("html", ""))


def of_pages(site: Path) -> set[tuple[str, bool]]:
    """The sources of all formulas, and whether they are displays."""
    found = set()
    for path in sorted(site.glob("chapters/*.html")):
        for tag, tex in re.findall(
            r'<(span|div) class="math notranslate[^"]*" data-tex="([^"]*)"', path.read_text("utf-8")
        ):
            found.add((html.unescape(tex), tag == "div"))
    return found


def places(browser: Any, folder: Path, formulas: list[str], rules: str) -> list[list[float]]:
    css = (KATEX / "katex.min.css").read_text("utf-8") + rules
    blocks = "".join(f'<p><span class="one">{one}</span>, and so on</p>' for one in formulas)
    (folder / "page.html").write_text(PAGE.replace("@CSS", css).replace("@FORMULAS", blocks), "utf-8")
    if not (folder / "fonts").exists():
        (folder / "fonts").symlink_to(KATEX / "fonts")
    with served(folder) as base:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(base + "page.html")
        page.evaluate("document.fonts.ready")
        found: list[list[float]] = page.evaluate(PLACES)
        page.close()
    return found


def moved(browser: Any, folder: Path, formulas: list[str], lighter: list[str]) -> list[str]:
    """The formulas of which a sign has another place."""
    before, after = places(browser, folder, formulas, ""), places(browser, folder, lighter, lean_formula.RULES)
    return [
        f"{re.sub('<[^>]*>', '', formula.split('</math>')[0])[:60]}"
        for formula, a, b in zip(formulas, before, after, strict=True)
        if len(a) != len(b) or max(abs(x - y) for x, y in zip(a, b, strict=True)) > NEAR
    ]


@pytest.fixture(scope="module")
def typesetter() -> prerender_math.Typesetter:
    macros = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]["math_macros"]
    return prerender_math.Typesetter(macros)


def test_what_katex_can_build_stays(browser: Any, tmp_path: Path, typesetter: prerender_math.Typesetter) -> None:
    formulas = [one for tex in BUILT for display in (False, True) if (one := set_in(typesetter, tex, display))]
    lighter = [lean_formula.lighter(one) for one in formulas]
    assert len(formulas) >= 2 * len(BUILT) - 4  # a matrix or two needs a display
    assert moved(browser, tmp_path, formulas, lighter) == []
    assert sum(one.count("<") for one in lighter) < 0.7 * sum(one.count("<") for one in formulas)


def test_a_sign_that_moves_is_noticed(browser: Any, tmp_path: Path, typesetter: prerender_math.Typesetter) -> None:
    formula = set_in(typesetter, "x^2 + y", False)
    lighter = lean_formula.lighter(formula)
    shifted = lighter.replace("top:-.5186em", "top:-.53em")
    assert shifted != lighter and moved(browser, tmp_path, [formula, formula], [lighter, shifted]) == ["x2+y"]


# How many children an element has, by the recommendation MathML 3, section 3.1.3.2.
CHILDREN = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "msubsup": 3, "munder": 2, "mover": 2, "munderover": 3}


def miscounted(page: str) -> list[str]:
    """The elements of a page's MathML that have too many children, or too few."""
    return [
        ElementTree.tostring(element, encoding="unicode")
        for formula in re.findall("<math.*?</math>", page, re.DOTALL)
        for element in ElementTree.fromstring(formula).iter()
        if element.tag in CHILDREN
        and len(element) != CHILDREN[element.tag]
        or element.tag == "mtable"
        and {row.tag for row in element} != {"mtr"}
        or element.tag == "mtr"
        and {cell.tag for cell in element} != {"mtd"}
    ]


def test_names_of_functions_are_one_part(typesetter: prerender_math.Typesetter) -> None:
    named = [r"r_{\max}", r"x^{\log}_{\min}", r"\frac{\sin}{\cos}", r"\sqrt[\log]{x}", r"\overset{\max}{y}"]
    formulas = [set_in(typesetter, tex, False) for tex in named] + [set_in(typesetter, tex, True) for tex in BUILT]
    assert all(miscounted(formula) for formula in formulas[:2])  # as KaTeX writes them
    for formula in filter(None, formulas):
        lighter = lean_formula.lighter(formula)
        assert miscounted(lighter) == [] and lighter.count(APPLY) == formula.count(APPLY)


@pytest.mark.site
def test_every_formula_of_the_book_can_be_read_aloud(site: Path) -> None:
    pages = [path.read_text("utf-8") for path in sorted(site.rglob("*.html"))]
    assert sum(page.count("<math") for page in pages) > 5000
    assert [fault for page in pages for fault in miscounted(page)] == []


@pytest.mark.site
def test_every_formula_of_the_book_stays(
    site: Path, browser: Any, tmp_path: Path, typesetter: prerender_math.Typesetter
) -> None:
    sources = sorted(of_pages(site))
    assert len(sources) > 2000
    builds: dict[str, str] = {}  # one formula of each build: others differ from it in letters and lengths only
    for tex, display in sources:
        one = set_in(typesetter, tex, display) or set_in(typesetter, prerender_math.join_lines(tex), display)
        assert one, tex
        drawn = one.split('class="katex-html"')[1]
        builds.setdefault(re.sub(r">[^<]+<|-?[\d.]+em|<span class=\"mord[^>]*>[^<]*</span>", "", drawn), one)
    formulas = list(builds.values())
    assert moved(browser, tmp_path, formulas, [lean_formula.lighter(one) for one in formulas]) == []
