"""What a screen reader says of the book's pages. Checkers of accessibility have no rule for these."""

from __future__ import annotations

import pytest
import spoken

FORMULA = (
    '<span class="math notranslate"><span class="katex"><span class="katex-mathml"><math><mrow>{}</mrow></math></span>'
    '<span class="katex-html" aria-hidden="true"><span class="base">drawn<span>twice</span></span></span></span></span>'
)
STAR = FORMULA.format("<msup><mi>Q</mi><mo>∗</mo></msup>")
WORDS = STAR.replace("<math><mrow><msup><mi>Q</mi><mo>∗</mo></msup></mrow></math>", "Q star")


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
    heading = f"<h2>{FORMULA.format(formula)}</h2>"
    assert f'"katex-mathml">{expected}</span>' in spoken.worded_formulas(heading)


@pytest.mark.parametrize(
    "form",
    [
        '<h2><span class="section-number">2. </span>{} says what to do<a class="headerlink" href="#q">#</a></h2>',
        '<a class="nav-link" href="#q">2. {} &amp; more</a>',
        "<summary>Is {} unique, and {} too?</summary>",
    ],
)
def test_headings_and_links_say_their_formulas(form: str) -> None:
    """Browsers leave MathML out of a name: the section would be called "2. says what to do"."""
    assert WORDS != STAR
    assert spoken.worded_formulas(form.format(STAR, STAR)) == form.format(WORDS, WORDS)
    assert spoken.spoken_contents(lambda kind: kind + form.format(STAR, STAR))("html") == "html" + form.format(
        WORDS, WORDS
    )


def test_only_what_has_a_name_is_put_into_words() -> None:
    """A link beside a formula and a formula in a paragraph stay as they are."""
    for kept in (f'<p><a href="#x">word</a> {STAR} <a href="#y">word</a></p>', f"<p>{STAR}</p>"):
        assert spoken.worded_formulas(kept) == kept


def test_code_and_what_it_prints_say_what_they_are() -> None:
    cell = '<div class="cell docutils container">\n<div class="cell_input docutils container">\n{}</div>\n<div class="cell_output docutils container">\n{}</div>\n</div>\n'
    code = '<div class="highlight-ipython3 notranslate"><div class="highlight"><pre>x</pre></div></div>'
    printed = (
        '<div class="output text_plain highlight-myst-ansi notranslate"><div class="highlight"><pre>1</pre></div></div>'
    )
    moving = '<div class="output text_html"><div class="rlx"><form class="rlx-controls"></form></div></div>'
    picture = '<div class="output text_html"><div class="rlx"></div></div>'
    found = spoken.spoken("".join(cell.format(code, output) for output in (picture, printed, moving, picture)))
    assert found.count('<div class="highlight-ipython3 notranslate" role="group" aria-label="Code">') == 4
    said = [part.partition(">")[0].partition('aria-label="')[2] for part in found.split('<div class="cell_output')[1:]]
    assert said == ["", 'Output"', 'Interactive figure"', ""]


def test_a_picture_is_one_thing() -> None:
    """Without this, some readers go on to say every number along the axes."""
    figure = (
        '<div class="rlx-picture"><svg xmlns="x" role="img" aria-label="A line" width="1"><text>0</text></svg></div>'
    )
    assert spoken.spoken(figure) == (
        '<div class="rlx-picture" role="img" aria-label="A line"><svg xmlns="x" aria-hidden="true" width="1"><text>0</text></svg></div>'
    )


def test_the_number_of_an_equation_says_that_it_is_one() -> None:
    link = '<a class="reference internal" href="a.html#equation-eq-x">(1.5)</a>'
    named = link.replace(">(", ' aria-label="equation (1.5)">(')
    assert spoken.spoken(f"by {link} and equation {link}") == f"by {named} and equation {link}"


@pytest.mark.parametrize(
    ("above", "level"),
    [("<h1>a</h1>", 2), ("<h1>a</h1><h2>b</h2><h3>c</h3>", 4), ("<h1>a</h1><h3>c</h3><h2>b</h2>", 3)],
)
def test_quizzes_and_exercises_are_found_from_a_list_of_headings(above: str, level: int) -> None:
    title = '<p class="admonition-title">{}</p>'
    for box in ('<div class="quiz admonition">\n', '<div class="exercise admonition" id="ex-1">\n\n'):
        assert f'<p class="admonition-title" role="heading" aria-level="{level}">A</p>' in spoken.spoken(
            above + box + title.format("A")
        )
    note = above + '<div class="note admonition">' + title.format("A")
    assert spoken.spoken(note) == note


def test_the_note_of_a_citation_ends_before_the_address() -> None:
    link = '<a class="reference internal" href="b.html#id1" title="R. Bellman. Dynamic Programming. 1957.{}">1957</a>'
    assert spoken.spoken(link.format(" URL: https://example.org/a-b.")) == link.format("")


@pytest.mark.parametrize("icon", ['"\\f059"', '"\uf019"', "var(--pst-icon-admonition-tip)"])
def test_icons_of_a_style_sheet_are_silent(icon: str) -> None:
    assert (
        spoken.silent_icons(f"a::after{{color:red;content:{icon}}}")
        == f'a::after{{color:red;content:{icon};content:{icon}/""}}'
    )
    assert (
        spoken.silent_icons(f"a::after{{content:{icon} !important;}}")
        == f'a::after{{content:{icon} !important;content:{icon}/"" !important;}}'
    )
    for kept in ('a::after{content:"›"}', 'a{content:"\\f059"/""}', "a{justify-content:center}"):
        assert spoken.silent_icons(kept) == kept
