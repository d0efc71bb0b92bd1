"""What the extensions of the book leave out of a page changes nothing that a reader sees; what they gather is right."""

from __future__ import annotations

import ast
import html
import re
from pathlib import Path

import landing
import lean_formula
import prerender_math
import pytest
import small_book
import style
from landing import Stop
from small_book import code, text

ROOT = Path(__file__).resolve().parents[1]

# ---------------------------------------------------------------- the style


@pytest.mark.parametrize(
    "selector",
    [
        "p",
        ".a",
        "div.a>p.b",
        ".a.b:hover",
        "#zz .b",
        ".a:not(.zz)",
        "[data-x]",
        ":root",
        ".a :is(.zz,.b)",
        ".open",
        "*",
    ],
)
def test_a_rule_that_a_page_may_meet_stays(selector: str) -> None:
    used = style.classes_of(['<p class="a b">'], ['box.classList.toggle("open")'])
    assert style.pruned(selector + "{color:red}", used) == selector + "{color:red}"


@pytest.mark.parametrize("selector", [".zz", ".a .zz", ".zz>.a", "p.zz:hover", ".a.zz::after"])
def test_a_rule_that_no_page_meets_goes(selector: str) -> None:
    used = style.classes_of(['<p class="a b">zz'], [])
    assert style.pruned(selector + "{color:red}", used) == ""
    assert style.pruned(f".b,{selector}{{color:red}}", used) == ".b{color:red}"
    assert style.pruned(f"@media print{{{selector}{{color:red}}}}", used) == ""


def test_the_page_says_whether_it_is_dark() -> None:
    sheet = "@media print{.a{x:1}}@media (prefers-color-scheme:dark){.a{x:2}}@font-face{y:3}"
    assert style.pruned(sheet, {"a"}) == "@media print{.a{x:1}}@font-face{y:3}"


def test_variables_that_nobody_reads_go() -> None:
    sheet = ".r{--a:1px;--b:var(--c);--c:2px;--d:3px;color:red;--e:url('x;y')}.x{width:var(--a)}"
    assert style.without_idle_variables(sheet, "var(--d)") == ".r{--a:1px;--d:3px;color:red;}.x{width:var(--a)}"


def test_a_written_sheet_and_script_lose_their_remarks_only() -> None:
    assert style.short("/* why */\n.a { --b: 1 2;\n  c: d; }\n") == ".a{ --b: 1 2;c: d; }"
    assert style.short_script("  // why\n  f('//x');  // because\n\n") == "f('//x');\n"


# ---------------------------------------------------------------- the page

HIDDEN = [code(f"first_{n} = {n}", hidden=True) for n in range(2)]
CELLS = [
    text("# One"),
    *HIDDEN,
    text("Words."),
    code("shown = 1", {"text/plain": "out"}, hidden=True),
    code("kept = 1", hidden=True),
    text("````{admonition} A claim of [One](https://example.org)", ":class: mistake dropdown", "Inside.", "````"),
    text("```{exercise} Two", ":label: ex-2", "Do.", "```", "", "```{solution-start} ex-2", ":class: dropdown", "```"),
    code("of_the_solution = 1", {"text/plain": "out"}, hidden=True),
    text("```{solution-end}", "```"),
    code("visible = 1", {"text/plain": "out"}),
    code("last = 1", hidden=True),
    text(
        "````{admonition} Quiz",
        ":class: quiz",
        "?",
        "```{dropdown} Yes",
        ":class-container: quiz-right",
        "**Right.**",
        "```",
        "````",
    ),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_book.build(tmp_path_factory.mktemp("book"), CELLS)


def test_boxes_fold_around_all_that_they_hold(page: str) -> None:
    boxes = re.findall(
        r'<details class="(fold[^"]*)"[^>]*><summary>(.*?)</summary><div class="folded">', page, re.DOTALL
    )
    names = [(kind, re.sub("<[^>]+>", "", title).strip()) for kind, title in boxes]
    assert names == [
        ("fold mistake", "A claim of One"),
        ("fold solution", "Solution to Exercise 1 (Two)"),
        ("fold quiz-right", "Yes"),
    ]
    assert not [title for _, title in boxes if "<a " in title]  # what is clicked to unfold leads nowhere else
    solution = page.partition('<details class="fold solution"')[2].partition("</div></details>")[0]
    assert "of_the_solution" in solution and "visible" not in solution


def test_code_that_shows_nothing_opens_with_the_next_tag(page: str) -> None:
    """In the same box, and what nothing follows has a tag of its own."""
    tags = re.findall(r'<details class="hide"><summary>code</summary>(.*?)</details>', page, re.DOTALL)
    said = [re.findall(r"(\w+) = ", re.sub("<[^>]+>", "", tag)) for tag in tags]
    assert said == [["first_0", "first_1", "shown"], ["of_the_solution"], ["kept"], ["last"]]
    after = small_book.article(page).partition("kept = ")[2].partition("<details")[0]
    assert "visible" in after  # it opens above the cell that comes next


def test_a_page_loads_one_sheet_and_one_script(page: str) -> None:
    assert re.findall(r'<link rel="stylesheet"[^>]*href="([^"?]*)', page) == ["_static/style.css"]
    assert re.findall(r'<script [^>]*src="([^"?]*)', page) == ["_static/book.js"]
    assert page.count("<noscript>") == 0  # there is no slider


# Modules that read what they have made themselves: figures and formulas.
OWN_MARKUP = {"lean_figures.py", "lean_formula.py", "prerender_math.py"}


def tags_in(pattern: str) -> list[str]:
    """The HTML that a regular expression looks for; its own signs (?<= and (?P<name> are none."""
    return re.findall(r"<(?:\\?/|[a-z]|\(/|\[)", re.sub(r"\(\?(?:P<\w+>|<[=!]|P=)", "(", pattern))


def test_no_regular_expression_reads_the_html_of_a_page() -> None:
    """Pages are made from nodes and templates; what takes HTML apart breaks with the next theme."""
    found = {}
    for path in sorted((ROOT / "_ext").glob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        asked = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func).startswith("re.") and call.args]
        if any(tags_in(pattern) for pattern in asked) and path.name not in OWN_MARKUP:
            found[path.name] = [pattern for pattern in asked if tags_in(pattern)]
    # one figure's picture, before it is on a page; the letters of KaTeX's formulas, for its fonts and for the search
    assert {name: len(patterns) for name, patterns in found.items()} == {
        "book_search.py": 1,
        "spoken.py": 1,
        "style.py": 1,
    }
    assert tags_in(r"<div class=(.*)</div>") and tags_in(r"</?a\b") and not tags_in(r"(?<=x)(?P<name>y)")


def test_one_file_knows_the_theme() -> None:
    """Another theme takes its place by other templates, another ``frame.py`` and another part of the style sheet."""
    knowing = [path.name for path in sorted((ROOT / "_ext").glob("*.py")) if "furo" in path.read_text("utf-8").lower()]
    assert knowing == ["frame.py"]
    assert not re.search(
        "furo",
        (ROOT / "_static" / "book.js").read_text("utf-8") + (ROOT / "tools" / "print_book.py").read_text("utf-8"),
    )


# ---------------------------------------------------------------- formulas


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
    root = ROOT
    sheet = (root / "_ext" / "katex" / "katex.min.css").read_text("utf-8") + (root / "_static" / "book.css").read_text(
        "utf-8"
    )
    heads = " ".join(re.findall(r"([^{}]*)\{", re.sub(r"@font-face\{[^}]*\}", "", sheet)))
    assert {name for name in lean_formula.PLAIN if re.search(rf"\.{name}(?![\w-])", heads)} == set()
    assert re.search(r"\.mathnormal(?![\w-])", heads)


def test_the_letters_of_each_font() -> None:
    formula = lean_formula.lighter(of_katex(r"\sum_x \mathbb{E}[\Big(1\Big)] = V^\pi"))
    wanted = style.letters_by_font([f"<p>Words. {formula} Words.</p>", "<p>None</p>"])
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
    assert len(found) == 13 and all(10 <= minutes <= 115 for minutes, _ in found.values())
    long = [lesson for lesson, (minutes, _) in found.items() if minutes > 60]  # each says where to rest
    assert [lesson for lesson in long if "(Pause " not in (root / f"{lesson}.ipynb").read_text("utf-8")] == []
    assert found["chapters/02_mdps"][1] == ()  # "Nothing of chapter 1 is assumed"
    for lesson, (_, needs) in found.items():
        assert all(need in found and need < lesson for need in needs)


def test_the_path_to_language_models_has_what_its_lessons_need() -> None:
    """Each lesson of the first page's paths finds its needs in those before it, except for what that page names."""
    root = Path(__file__).resolve().parents[1]
    card = re.search(r"I want language models\n(.*?)\n:::", (root / "index.md").read_text("utf-8"), re.DOTALL)
    assert card
    named = [int(number) for number in re.findall(r"(?<![\w^])\d+", re.sub("<[^>]*>", "", card[1]))]
    # 2, 4 and 6 to 13; 4 names 3, 2 says it, too; PyTorch is of 5; who knows what 6, 7 and 10 teach: 8 and 11 to 13
    assert named == [2, 4, 6, 13, 4, 3, 2, 5, 8, 11, 13]
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
