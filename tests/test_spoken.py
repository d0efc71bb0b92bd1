"""What a screen reader says of the book's pages. Checkers of accessibility have no rule for these."""

from __future__ import annotations

import re

import pytest
import small_book
import spoken
from small_book import code, text


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("<msup><mi>Q</mi><mo>∗</mo></msup>", "Q star"),
        ("<msub><mi>r</mi><mi>t</mi></msub>", "r t"),
        ("<msup><mi>γ</mi><mi>t</mi></msup>", "γ to the t"),
        ("<msubsup><mi>s</mi><mi>t</mi><mo>′</mo></msubsup>", "s t prime"),
        ("<mover><mi>A</mi><mo>^</mo></mover>", "A hat"),
        ("<mi>log</mi><mo>\u2061</mo><mi>π</mi>", "log π"),
        ("<msup><mi>γ</mi><mi>k</mi></msup><mi>V</mi>", "γ to the k V"),
        ("<mo></mo><mi>a</mi>", "a"),
        ("<mi>γ</mi><mo>=</mo><mn>1</mn>", "γ = 1"),
        ("<mfrac><mn>1</mn><mn>2</mn></mfrac>", "1 over 2"),
        ("<mi>a</mi><mo>&lt;</mo><mi>b</mi>", "a &lt; b"),
    ],
)
def test_a_formula_in_words(formula: str, expected: str) -> None:
    page = f"<i>before</i><math><mrow>{formula}</mrow></math> and <math><mi>x</mi></math>!"
    assert spoken.without(page, "<math", "</math>", spoken.in_words) == f"<i>before</i>{expected} and x!"


MOVING = '<div class="rlx"><div class="rlx-picture"><svg xmlns="x" role="img" aria-label="A line" width="1"><text>0</text></svg></div>{}</div>'
FORM = '<form class="rlx-controls"></form><script type="application/json">{}</script>'
CELLS = [
    text(
        "# One",
        "",
        "Read $a$, and {eq}`eq-x`, not equation {eq}`eq-x`; {cite}`bellman`; a [word](#two).",
        "",
        "```{math}",
        ":label: eq-x",
        "x",
        "```",
        "",
        "|   | heads |",
        "|---|---|",
        "| 1 | 2 |",
        "| 3 | `a.long_name=4`, 0.5 |",
    ),
    text("(two)=", "## $Q^*$ & more", "### Three"),
    text("````{admonition} Quiz: $Q^*$", ":class: quiz", "?", "", "```{dropdown} $Q^*$", "No $b$.", "```", "````"),
    text("```{exercise} Five", ":label: ex-1", "Do.", "```", "", "```{note}", "So.", "```"),
    code("x = 1\nprint(f'{x}')", {"text/plain": "1"}),
    code("y", {"text/html": MOVING.format(FORM)}),
    code("z", {"text/html": MOVING.format("")}),
    text("## Last", "", "```{eval-rst}", ".. py:function:: f(first, second)", "```", "", "```{bibliography}", "```"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_book.build(tmp_path_factory.mktemp("book"), CELLS)


def test_what_has_a_name_says_its_formulas(page: str) -> None:
    """Browsers leave MathML out of a name: the section would be called "& more"."""
    for start, end in (
        ("<h2>", "</h2>"),
        ('<p class="admonition-title"', "</p>"),
        ("<summary>", "</summary>"),
        ('<div class="toc-tree">', "</div>"),
    ):
        named = [part.partition(end)[0] for part in page.split(start)[1:]]
        said = [name for name in named if "katex" in name]
        assert said and all("<math" not in name and "Q star" in name for name in said), start


def test_only_what_has_a_name_is_put_into_words(page: str) -> None:
    for letter in "ab":
        assert f"<mi>{letter}</mi>" in page


def test_code_and_what_it_shows_say_what_they_are(page: str) -> None:
    assert len(re.findall(r'<div class="highlight-ipython3 notranslate" role="group" aria-label="Code">', page)) == 3
    outputs = re.findall(r'<div ([^>]*)class="cell_output"([^>]*)>', page)
    said = [re.findall(r'aria-label="(.*?)"', "".join(one)) for one in outputs]
    assert said == [["Output"], ["Interactive figure"], []]
    assert ['role="group"' in "".join(one) for one in outputs] == [True, True, False]


def test_a_picture_is_one_thing(page: str) -> None:
    """Without this, some readers go on to say every number along the axes."""
    picture = '<div class="rlx-picture" role="img" aria-label="A line"><svg xmlns="x" aria-hidden="true" width="1">'
    assert page.count(picture) == 2


def test_the_number_of_an_equation_says_that_it_is_one(page: str) -> None:
    links = re.findall(r'<a ([^>]*)href="#equation-eq-x"[^>]*>\(1\)</a>', page)
    assert ['aria-label="equation (1)"' in link for link in links] == [True, False]


def test_quizzes_and_exercises_are_found_from_a_list_of_headings(page: str) -> None:
    titles = re.findall(r'<p class="admonition-title"([^>]*)>', page)
    assert [title for title in titles if 'role="heading"' in title and 'aria-level="4"' in title] == titles[:2]
    assert titles[2:] == [""]  # a note


def test_the_note_of_a_citation_ends_before_the_address(page: str) -> None:
    notes = re.findall(r'title="([^"]*Bellman[^"]*)"', page)
    assert notes and not [note for note in notes if "URL" in note or "example.org" in note]


def test_a_citation_is_an_item_of_a_plain_list(page: str) -> None:
    assert 'role="list"' in page and 'role="listitem"' in page and "doc-biblioentry" not in page


def test_the_sign_of_a_heading_is_no_stop_for_the_tab_key(page: str) -> None:
    signs = re.findall(r'<a [^>]*class="headerlink"[^>]*>', page)
    assert len(signs) > 4 and all('tabindex="-1"' in sign for sign in signs)


def test_the_empty_corner_of_a_table_heads_nothing(page: str) -> None:
    head = page.partition("<thead>")[2].partition("</thead>")[0]
    assert re.findall(r"<(t[dh])\b.*?</(t[dh])>", head, re.DOTALL) == [("td", "td"), ("th", "th")]


def test_a_long_name_in_a_table_breaks_between_its_words(page: str) -> None:
    assert "a.<wbr>long_<wbr>name=4</span>" in page and page.count("<wbr>") == 2


def test_code_keeps_every_letter_and_strings_have_one_color(page: str) -> None:
    found = re.search(r"<pre>(.*?)</pre>", page, re.DOTALL)
    assert found
    assert re.sub("<[^>]+>", "", found[1]).strip() == "x = 1\nprint(f'{x}')"
    assert found[1].startswith('x = <span class="mi">1</span>\n')
    assert '<span class="s2">f\'{</span>x<span class="s2">}\'</span>)' in found[1]


def test_joined_strings_look_as_they_did() -> None:
    """The parts of a string are joined because both styles of the book color them alike."""
    from pygments.styles import get_style_by_name
    from pygments.token import Comment, String

    for name in ("a11y-high-contrast-light", "a11y-high-contrast-dark"):
        style = get_style_by_name(name)
        colors = {style.style_for_token(kind)["color"] for kind in (*spoken.ONE_COLOR, String.Double)}
        assert len(colors) == 1 and colors != {style.style_for_token(Comment)["color"]}


def test_a_signature_of_several_lines_is_no_list(page: str) -> None:
    signature = page.partition('<dt class="sig')[2].partition("</dt>")[0]
    assert re.findall(r"</?d[dl]\b", signature) == []
    assert re.findall(r'<span class="sig-line"><em class="sig-param">.*?>(\w+)<.*?</em>,</span>', signature) == [
        "first",
        "second",
    ]
