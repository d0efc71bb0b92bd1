"""What the extensions of the book leave out of a page changes nothing that a reader sees; what they gather is right."""

from __future__ import annotations

import html
import re
from pathlib import Path

import landing
import lean_formula
import lean_theme
import prerender_math
import pytest
import tinycss2
import used_rules
from landing import Stop

PAGE = """<body class="page"><div class="a" id="top"><p class="b">Text <span class="katex"><span class="katex-html">
<span class="mord mathbb">E</span></span></span></p><br><ul><li class="c">One</ul></div><table><tr><td class="d">1</td></tr></table>
<svg><path class="line"/></svg></body>"""
SCRIPT = 'box.classList.toggle("open"); list.append(document.createElement("mark"));'


def kept(sheet: str) -> str:
    pages = used_rules.Pages([PAGE], SCRIPT, {"top"})
    return "".join(used_rules.kept_rules(tinycss2.parse_stylesheet(sheet), pages))


@pytest.mark.parametrize(
    "selector",
    [
        "p",
        ".b",
        ".a .b",
        ".a > .b",
        "div.a p.b",
        "#top .c",
        ".open .b",
        ".a.open",
        "mark",
        ".a mark",
        ".b:hover",
        ".b::after",
        ".c + li",
        ".mathbb",
        ".katex .mathbb",
        ".line",
        "table > tbody > tr > .d",
        ".a:not(.zz)",
        "[data-x]",
        "*",
        ":root",
        ".page .a :is(.zz)",
        "li ~ .c",
    ],
)
def test_a_rule_that_a_page_meets_stays(selector: str) -> None:
    assert kept(selector + "{color:red}") == selector + "{color:red}"


@pytest.mark.parametrize(
    "selector", [".zz", "#zz", ".b .a", ".d .c", "h1", "p.a", ".a.b", ".a .zz .b", ".zz > .b", "main .b"]
)
def test_a_rule_that_no_page_meets_goes(selector: str) -> None:
    assert kept(selector + "{color:red}") == ""
    assert kept(f".b,{selector}{{color:red}}") == ".b{color:red}"
    assert kept(f"@media print{{{selector}{{color:red}}}}") == ""


def test_declarations_are_only_shortened() -> None:
    assert kept('.b { color : red ;  /* why */ content: "a: b; c" ; }') == '.b{color:red;content:"a: b; c"}'


def test_properties_that_nobody_reads_go() -> None:
    sheet = ":root{--a:1px;--b:var(--c);--c:2px;--d:3px;color:red}.x{width:var(--a)}"
    assert (
        used_rules.without_unused_properties(sheet, "style='--d'")
        == ":root{--a:1px;--d:3px;color:red}.x{width:var(--a)}"
    )


def test_folded_boxes_become_details_around_all_that_they_hold() -> None:
    box = '<div class="solution dropdown admonition" id="s">\n<p class="admonition-title">Of <a href="#e">1</a></p><div><div>In</div></div></div><p>After</p>'
    expected = '<details class="solution dropdown admonition" id="s"><summary class="admonition-title">Of 1</summary><div><div>In</div></div></details><p>After</p>'
    assert lean_theme.mended(box) == expected
    with pytest.raises(ValueError, match="without an end"):
        lean_theme.mended(box.replace("</div></div></div>", "</div>"))


def test_code_keeps_every_letter() -> None:
    code = '<pre><span></span><span class="n">a</span> <span class="o">=</span> <span class="sa">f</span><span class="s2">&quot;x</span><span class="si">{</span>'
    lighter = lean_theme.mended(code)
    assert lighter == '<pre>a = <span class="s2">f&quot;x{</span>'
    assert re.sub("<[^>]+>", "", lighter) == re.sub("<[^>]+>", "", code)


def test_strings_have_one_color() -> None:
    """The parts of a string are joined because both styles of the book color them alike."""
    from pygments.styles import get_style_by_name
    from pygments.token import Comment, String

    for name in ("a11y-high-contrast-light", "a11y-high-contrast-dark"):
        style = get_style_by_name(name)
        colors = {
            style.style_for_token(kind)["color"]
            for kind in (String.Affix, String.Interpol, String.Single, String.Double, String.Escape)
        }
        assert len(colors) == 1 and colors != {style.style_for_token(Comment)["color"]}


def test_the_empty_corner_of_a_table_heads_nothing() -> None:
    assert (
        lean_theme.mended('<th class="head"><p></p></th><th class="head"><p>x</p></th>')
        == '<td class="head"></td><th class="head"><p>x</p></th>'
    )


def test_the_source_of_a_formula_stands_once() -> None:
    setter = prerender_math.Typesetter({})
    text = prerender_math.TWICE.sub(r"<math\1>\2", setter(r"x^2 < \gamma", True)["html"])
    assert "annotation" not in text and "semantics" not in text and '<math display="block">' in text
    assert html.unescape(re.sub("<[^>]+>", "", text.split("</math>")[0])) == "x2<γ"


def of_katex(tex: str) -> str:
    return prerender_math.TWICE.sub(r"<math\1>\2", prerender_math.Typesetter({})(tex, False)["html"])


def test_a_formula_has_half_the_elements() -> None:
    """Its letters, spoken and drawn, are those of before, and a script is one element, shifted by what KaTeX says."""
    formula = of_katex(r"V^\pi(s') = \max_a Q(s_{t+1}, a) \ge 0")
    lighter = lean_formula.lighter(formula)
    assert lighter.count("<span") + lighter.count("<var") < 0.45 * formula.count("<span")
    assert re.sub("<[^>]+>|\u200b", "", lighter) == re.sub("<[^>]+>|\u200b", "", formula)
    assert '<span class="script" style="top:-.5186em;margin-right:.0714em"><var' in lighter  # (2.7 - 3.063) / 0.7
    assert (
        '<span style="margin-right:.2778em">≥</span>' in lighter and "mspace" not in lighter and "strut" not in lighter
    )


def test_no_rule_names_a_class_that_is_left_out() -> None:
    """KaTeX's sheet and ours: what is taken for plain has no rule of its own."""
    root = Path(__file__).resolve().parents[1]
    sheet = (root / "_ext" / "katex" / "katex.min.css").read_text("utf-8") + (root / "_static" / "book.css").read_text(
        "utf-8"
    )
    heads = " ".join(re.findall(r"([^{}]*)\{", re.sub(r"@font-face\{[^}]*\}", "", sheet)))
    assert {name for name in lean_formula.PLAIN if re.search(rf"\.{name}(?![\w-])", heads)} == set()
    assert re.search(r"\.mathnormal(?![\w-])", heads)


def test_the_letters_of_each_font() -> None:
    formula = lean_formula.lighter(of_katex(r"\sum_x \mathbb{E}[\Big(1\Big)] = V^\pi"))
    wanted = lean_theme.letters_by_font([f"<p>Words. {formula} Words.</p>", "<p>None</p>"])
    assert wanted["Math-Italic"] == set("xVπ") and wanted["AMS-Regular"] == {"E"}
    assert wanted["Size2-Regular"] == set("∑()") and wanted["Main-Regular"] == set("∑()[]1=")


def stop(page: str, row: int, column: int, *needs: str) -> Stop:
    return Stop(f"chapters/{page}", page, row, column, 30, tuple(f"chapters/{need}" for need in needs))


def test_the_map_draws_what_is_needed_and_nothing_twice() -> None:
    stops = {
        one.page: one
        for one in [
            stop("01_a", 0, 0),
            stop("02_b", 0, 1, "01_a"),
            stop("03_c", 0, 2, "01_a", "02_b"),
            stop("04_d", 1, 0, "01_a"),
        ]
    }
    assert [(start.number, end.number) for start, end in landing.direct(stops)] == [(1, 2), (2, 3), (1, 4)]


def test_every_lesson_says_what_it_needs_and_how_long_it_takes() -> None:
    root = Path(__file__).resolve().parents[1]
    lessons = [
        f"chapters/{path.stem}"
        for path in sorted(root.glob("chapters/[01]*.ipynb"))
        if not path.stem.endswith("_deeper")
    ]
    found = {lesson: landing.read_needs(root, lesson) for lesson in lessons}
    assert len(found) == 13 and all(10 <= minutes <= 60 for minutes, _ in found.values())
    assert found["chapters/02_mdps"][1] == ()  # "Nothing of chapter 1 is assumed"
    for lesson, (_, needs) in found.items():
        assert all(need in found and need < lesson for need in needs)


def test_the_path_to_language_models_has_what_its_lessons_need() -> None:
    """Each lesson of the first page's paths finds its needs in those before it, except for what that page names."""
    root = Path(__file__).resolve().parents[1]
    card = re.search(r"I want language models\n(.*?)\n:::", (root / "index.md").read_text("utf-8"), re.DOTALL)
    assert card
    named = [int(number) for number in re.findall(r"(?<![\w^])\d+", re.sub("<[^>]*>", "", card[1]))]
    # 2, 4 and 6 to 13; 4 mentions 3, 2 says it, too; who knows 6, 7 and 10: 8 and 11 to 13
    assert named == [2, 4, 6, 13, 4, 3, 2, 6, 7, 10, 8, 11, 13]
    assert "eq-bellman-optimality-v" in (root / "chapters" / "02_mdps.ipynb").read_text("utf-8")
    needs = {}
    for path in sorted(root.glob("chapters/[01]*.ipynb")):
        if not path.stem.endswith("_deeper"):
            needs[int(path.stem[:2])] = {
                int(need[9:11]) for need in landing.read_needs(root, f"chapters/{path.stem}")[1]
            }
    for lessons, known in (([2, 4, *range(6, 14)], {3}), ([8, 11, 12, 13], {6, 7, 10})):
        for place, lesson in enumerate(lessons):
            assert needs[lesson] <= {*lessons[:place], *known}, lesson
