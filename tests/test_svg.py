"""Tests of the drawing behind the figures that test_explore.py and test_figures.py do not cover: its colors."""

import re

import matplotlib
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from rlbook_lib.svg import PALETTE, Picture, markup

LIGHT, DARK = ["#ffffff"], ["#121212", "#14181e", "#1e1e1e"]


@pytest.fixture(autouse=True)
def closed():
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever another test has set
        yield
    plt.close("all")


def contrast(one: str, other: str) -> float:
    """The ratio that the accessibility guidelines define (WCAG 2.2, relative luminance)."""

    def luminance(color: str) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", PALETTE)
def test_lines_have_a_contrast_of_three_and_text_of_four_and_a_half(name: str) -> None:
    line, ink, dark = PALETTE[name]
    assert all(contrast(line, page) >= 3 and contrast(ink, page) >= 4.5 for page in LIGHT)
    assert all(contrast(dark, page) >= 4.5 for page in DARK)


def test_the_books_colors_become_variables_and_others_stay() -> None:
    figure, ax = plt.subplots(figsize=(3, 2))
    ax.plot([0, 1], [0, 1], color=PALETTE["blue"][0])
    ax.plot([0, 1], [1, 0], color="#123456")
    ax.text(0.5, 0.5, "word", color=PALETTE["red"][0])
    drawn, _ = Picture(figure).draw()
    text = "".join(markup(elements) for elements in drawn.values())
    assert f'stroke="var(--rlx-blue,{PALETTE["blue"][0]})"' in text and 'stroke="#123456"' in text
    assert re.search(rf'<text[^>]* fill="var\(--rlx-red-ink,{PALETTE["red"][1]}\)"[^>]*>word', text)


def test_a_point_and_a_box_stand_where_matplotlib_puts_them() -> None:
    figure, ax = plt.subplots(figsize=(4, 2))
    ax.set(xlim=(0, 10), ylim=(0, 1))
    ax.set_position((0.25, 0.5, 0.5, 0.25))
    picture = Picture(figure)
    assert picture.box(ax) == (720, 360, 1440, 360)  # tenths of a point, from the top left corner
    assert picture.place(ax, 0, 0) == (720, 720)
    assert picture.place(ax, x=5) == (1440, 540)


def test_other_limits_move_what_did_not_change_itself() -> None:
    figure, ax = plt.subplots(figsize=(4, 2))
    line = ax.plot([0, 1], [0, 1])[0]
    picture = Picture(figure)
    before = picture.draw()[0][id(line)]
    assert picture.draw()[0][id(line)] is before
    ax.set_xlim(0, 2)
    assert picture.draw()[0][id(line)] != before


def test_a_filled_shape_that_leaves_the_picture_stays_whole() -> None:
    figure, ax = plt.subplots(figsize=(4, 2))
    patch = ax.add_patch(plt.Rectangle((-9, -9), 20, 20, clip_on=False))
    ((_, shape, _),) = Picture(figure).draw()[0][id(patch)]
    corners = re.findall(r"-?\d+", shape["d"])
    assert shape["d"].count("M") == 1 and max(map(abs, map(int, corners))) > 10_000


def test_an_alpha_of_the_whole_shape_counts_once() -> None:
    """An artist's alpha fades face and edge together; a face of its own alpha fades alone."""
    figure, ax = plt.subplots()
    whole = ax.add_patch(plt.Rectangle((0, 0), 1, 1, facecolor="#0072b2", edgecolor="black", alpha=0.5))
    face = ax.add_patch(plt.Rectangle((0, 0), 1, 1, facecolor=(*to_rgb("#0072b2"), 0.25), edgecolor="black"))
    drawn, _ = Picture(figure).draw()
    ((_, style, _),) = drawn[id(whole)]
    assert style["opacity"] == "0.5" and "fill-opacity" not in style
    ((_, style, _),) = drawn[id(face)]
    assert style["fill-opacity"] == "0.25" and "opacity" not in style
