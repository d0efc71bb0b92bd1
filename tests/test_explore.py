"""The interactive figure: what the page shows in each state is what matplotlib would draw there."""

import gzip
import html
import itertools
import json
import re
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest.mock import Mock

import lean_figures
import matplotlib
import numpy as np
import pytest
from docutils import nodes
from docutils.utils import new_document
from style import short_script

matplotlib.use("agg")

from matplotlib import pyplot as plt  # noqa: E402

from rlbook_lib.explore import MAX_STATES, WIDGET_VIEW, Explore, explore, script, style, undressed  # noqa: E402

from rlbook_lib.figures import show  # noqa: E402

# ---------------------------------------------------------------------------------------------------
# Figures to test with
# ---------------------------------------------------------------------------------------------------


def setup_bars():
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3))
    bars = left.bar(range(10), np.ones(10), color="#0072b2")
    left.set_ylim(0, 1.1)
    x = np.linspace(0, 5, 40)
    (line,) = right.plot(x, 0 * x, "--", color="#d55e00", label="wave")
    (dots,) = right.plot([], [], "o", color="black")
    right.set(xlim=(0, 5), ylim=(-1.2, 1.2))
    right.legend()
    return bars, line, dots, right.text(0.2, -1, ""), x


def update_bars(artists, gamma, lam):
    bars, line, dots, text, x = artists
    for step, bar in enumerate(bars):
        bar.set_height((gamma * lam) ** step)
    line.set_ydata(lam * np.sin(2 * gamma * x))
    many = 1 + int(round(10 * gamma))  # the number of markers changes with the state
    dots.set_data(np.linspace(0, 4, many), np.full(many, lam))
    text.set_text(f"γλ < {gamma * lam:.2f}" if gamma > 0.6 else "")
    dots.set_visible(lam < 0.9)
    return f"The product is {gamma * lam:.3f}."


def bars():
    """Two sliders, 121 states: the size that the budgets speak of."""
    controls = {"gamma": (0.5, 1.0, 0.05), "lam": (0.0, 1.0, 0.1), "play": "gamma", "initial": {"lam": 0.3}}
    return explore(setup_bars, update_bars, alt="Bars and a wave", labels={"gamma": "discount γ"}, **controls)


@pytest.fixture(scope="module")
def typical():
    return bars()


def small(**settings):
    """One line that moves; a fresh figure for each test."""

    def setup():
        _, ax = plt.subplots(figsize=(3, 2))
        ax.set(xlim=(0, 1), ylim=(0, 1))
        return ax.plot([0, 1], [0, 0])[0]

    def update(line, **values):
        line.set_ydata([0, sum(v for v in values.values() if isinstance(v, (int, float))) / 10])

    return explore(setup, update, **settings)


# ---------------------------------------------------------------------------------------------------
# A reader of the page, written without the library
# ---------------------------------------------------------------------------------------------------


class Page:
    """What the script does, in Python: it moves the base picture of a static twin to a state."""

    def __init__(self, text):
        self.data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.S).group(1))
        self.svg = re.search(r'<div class="rlx-picture">(<svg.*?</svg>)</div>', text, re.S).group(1)

    def at(self, state):
        """The picture and the readout in a state, one index per control."""
        root = ElementTree.fromstring(self.svg)
        elements = list(root.iter())[1:]
        readout = None
        for number, name, controls, values, shared, before, after in self.data["changes"]:
            key = 0
            for control in controls:
                key = key * self.data["sizes"][control] + state[control]
            if shared >= 0:
                key = self.data["indices"][shared][key]
            value = values[key]
            if value is None:
                elements[number].attrib.pop(name, None)
                continue
            value = before + value + after
            if name == "#readout":
                readout = value
            elif name == "#text":
                elements[number].text = value
            elif name == "#markup":
                group = elements[number]
                for child in list(group):
                    group.remove(child)
                space = "{http://www.w3.org/2000/svg}"
                wrapped = ElementTree.fromstring(f'<g xmlns="{space[1:-1]}">{value}</g>')
                group.extend(list(wrapped))
            else:
                elements[number].set(name, value)
        return canonical(root), readout


def canonical(root):
    """Nested tuples of tag, attributes, text and children; a missing text and an empty one are the same."""
    attributes = tuple(sorted(root.attrib.items()))
    return root.tag, attributes, root.text or "", tuple(canonical(child) for child in root)


def same_ids(svg, text):
    """A picture drawn directly, with the ids that its page gave it."""
    return svg.replace("rlxid", re.search(r"rlx[0-9a-f]{8}", text).group(0)) if "rlxid" in svg else svg


# ---------------------------------------------------------------------------------------------------
# Every state of the page is the state that matplotlib draws
# ---------------------------------------------------------------------------------------------------


def test_decoded_states_equal_states_drawn_directly(typical):
    page = Page(typical.html)
    gammas, lams = typical._controls
    for state in itertools.product(range(0, 11, 2), range(0, 11, 3)):
        values = {"gamma": gammas.values[state[0]], "lam": lams.values[state[1]]}
        direct = ElementTree.fromstring(same_ids(typical.svg(**values), typical.html))
        decoded, readout = page.at(state)
        assert decoded == canonical(direct), values
        assert readout == f"The product is {values['gamma'] * values['lam']:.3f}."


def test_states_differ_in_the_picture(typical):
    page = Page(typical.html)
    pictures = {page.at(state)[0] for state in [(0, 0), (0, 10), (10, 0), (10, 10), (5, 5)]}
    assert len(pictures) == 5


def test_a_state_drawn_from_memory_equals_a_state_drawn_by_a_fresh_figure(typical):
    fresh = explore(setup_bars, update_bars, gamma=[0.7], lam=[0.4], alt="Bars and a wave")
    with_memory = typical.svg(gamma=0.7, lam=0.4)
    # The axes were laid out with other first values, but the axes themselves are fixed.
    assert re.findall(r' d="[^"]*"', with_memory) == re.findall(r' d="[^"]*"', fresh.svg())


def test_base_picture_is_the_initial_state(typical):
    page = Page(typical.html)
    assert page.at((5, 3))[0] == canonical(ElementTree.fromstring(page.svg))
    assert 'value="3"' in typical.html and "The product is 0.225." in typical.html


def test_columns_depend_only_on_the_controls_that_move_them():
    def setup():
        _, ax = plt.subplots()
        ax.set(xlim=(0, 1), ylim=(0, 1))
        return ax.plot([0, 1], [0, 0])[0], ax.plot([0, 1], [1, 1])[0]

    def update(lines, a, b):
        lines[0].set_ydata([0, a / 10])
        lines[1].set_ydata([1, b / 10])

    page = Page(explore(setup, update, a=(0, 6), b=(1, 9)).html)
    paths = [change for change in page.data["changes"] if change[1] == "d"]
    assert [change[2] for change in paths] == [[0], [1]]
    assert [len(change[3]) for change in paths] == [7, 9]


def test_text_needs_escaping_only_once():
    def setup():
        _, ax = plt.subplots()
        return ax.text(0.5, 0.5, "")

    def update(text, word):
        text.set_text(word)
        return word

    words = ['a < b & "c"', "</script><b>", "d"]
    figure = explore(setup, update, word=words)
    page = Page(figure.html)
    for index, word in enumerate(words):
        assert word in str(page.at((index,))[0]) or html.escape(word) in str(page.at((index,))[0])
        assert page.at((index,))[1] == word
    assert figure.html.count("</script>") == 1


# ---------------------------------------------------------------------------------------------------
# Budgets, determinism, what notebooks store
# ---------------------------------------------------------------------------------------------------


def test_weight_and_time_of_a_typical_figure_which_is_the_same_twice(typical):
    raw, packed = len(typical.html.encode()), len(gzip.compress(typical.html.encode()))
    assert typical.n_states == 121
    assert raw <= 200_000 and packed <= 40_000, (raw, packed)
    start = time.process_time()
    again = bars()
    assert time.process_time() - start < 6.0
    assert again.html == typical.html


def test_ids_differ_between_figures_and_match_their_uses(typical):
    other = small(a=(0, 3))
    ids = [set(re.findall(r' id="([^"]*)"', figure.html)) for figure in (typical, other)]
    assert ids[0] and ids[1] and not ids[0] & ids[1]
    for figure, names in zip((typical, other), ids, strict=True):
        assert set(re.findall(r"url\(#(rlx[^)]*)\)", figure.html)) == names


def test_a_running_cell_shows_a_figure_with_its_dressing_which_is_not_stored(typical):
    bundle = typical._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == "<interactive figure: gamma (11), lam (11); 121 states>"
    shown = bundle["text/html"]
    assert style() in shown and script() in shown and typical.html in shown
    assert undressed(shown) == undressed(typical.html) == typical.html
    assert not re.search(r"<style|<script(?! type=.application/json)", typical.html)


def test_page_asks_for_nothing_from_outside(typical):
    page = typical._repr_mimebundle_()["text/html"]
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page and "src=" not in page and not re.search(r"url\((?!#)", page)


def test_no_figure_stays_open():
    before = plt.get_fignums()
    small(a=(0, 3))
    assert plt.get_fignums() == before


def test_black_follows_the_page_and_no_white_box_is_left(typical):
    svg = Page(typical.html).svg
    assert "#000000" not in svg and "#ffffff" not in svg
    assert "currentColor" in svg


# ---------------------------------------------------------------------------------------------------
# Controls
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec, values, texts",
    [
        ((0, 3), [0, 1, 2, 3], ["0", "1", "2", "3"]),
        ((0.0, 0.3), [0.0, 0.1, 0.2, 0.3], ["0.0", "0.1", "0.2", "0.3"]),
        ((0.5, 1.0, 0.25), [0.5, 0.75, 1.0], ["0.50", "0.75", "1.00"]),
        ((1, 6, 2), [1, 3, 5], ["1", "3", "5"]),
        ([0, 0.5, 0.9], [0, 0.5, 0.9], ["0.0", "0.5", "0.9"]),
        ([1, 10, 1000], [1, 10, 1000], ["1", "10", "1000"]),
        (["up", "down"], ["up", "down"], ["up", "down"]),
        ({"first": 1, "second": 2}, [1, 2], ["first", "second"]),
        (True, [True, False], ["on", "off"]),
        (np.array([1.0, 2.0]), [1.0, 2.0], ["1", "2"]),
    ],
)
def test_abbreviations(spec, values, texts):
    control = small(a=spec)._controls[0]
    assert control.values == pytest.approx(values) if control.numeric else control.values == values
    assert control.texts == texts


def test_each_kind_of_control_is_native_and_named():
    figure = small(
        size=(0, 2), few=["one", "two"], many=list("abcdefg"), labels={"size": "size <x>"}, play="size", alt='A "line"'
    )
    page = figure.html
    assert '<input type="range"' in page and 'aria-valuetext="1"' in page and "size &lt;x&gt;" in page
    assert page.count('<input type="radio"') == 2 and 'role="radiogroup" aria-label="few"' in page
    assert "<select" in page and page.count("<option") == 7
    assert '<button type="button"' in page
    assert 'role="img" aria-label="A &quot;line&quot;"' in page


def data_of(figure):
    """The numbers that a page hands to its script."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure.html, re.S)[1])


def test_a_handle_stands_where_its_values_stand_in_the_picture():
    figure = small(n=[0.0, 0.25, 1.0], handle={"n": "x"})
    [[control, (left, top, width, height), points, way]] = data_of(figure)["handles"]
    assert (control, way) == (0, "x")
    assert [round((x - left) / width, 2) for x, _ in points] == [0.0, 0.25, 1.0]
    assert all(y == round(top + height / 2) or abs(y - top - height / 2) < 1 for _, y in points)


def test_points_can_be_picked_in_a_chosen_axes():
    def setup():
        _, axes = plt.subplots(1, 2, figsize=(4, 2))
        for ax in axes:
            ax.set(xlim=(0, 2), ylim=(0, 1))
        return axes[1].plot([0], [0], "o")[0]

    def update(dot, cell):
        dot.set_xdata([cell])

    figure = explore(setup, update, cell={"left": 0, "right": 2}, handle={"cell": ([(0, 0), (2, 1)], 1)})
    both = explore(setup, update, cell=[0, 2], handle={"cell": ("x", (0, 1))})
    assert [way for *_, way in data_of(both)["handles"]] == ["x", "x"]
    [[_, (left, top, width, height), points, way]] = data_of(figure)["handles"]
    assert way == "xy"
    assert points == [[left, top + height], [left + width, top]]
    assert left > figure._picture.width * 10 / 2  # the second axes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": (0, 3), "handle": {"m": "x"}}, "handle names 'm', which is no control"),
        ({"n": ["a", "b"], "handle": {"n": "x"}}, "the control's values are no numbers"),
        ({"n": (0, 3), "handle": {"n": "z"}}, '"x", "y" or 4 points'),
        ({"n": (0, 3), "handle": {"n": [(0, 0)]}}, '"x", "y" or 4 points'),
    ],
)
def test_bad_handles_are_named(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        small(**settings)


def test_the_readout_has_room_for_its_longest_line():
    def setup():
        return plt.subplots(figsize=(3, 2))[1].plot([0, 1], [0, 0])[0]

    figure = explore(setup, lambda line, n: "word " * (n + 1), n=(0, 3))
    assert '<p class="rlx-room" aria-hidden="true">word word word word </p>' in figure.html
    silent = small(n=(0, 3))
    assert 'class="rlx-line"' not in silent.html


def test_controls_stand_above_a_tall_picture():
    def order(size):
        figure = explore(
            lambda: plt.subplots(figsize=size)[1].plot([0, 1], [0, 0])[0],
            lambda line, n: line.set_ydata([0, n]),
            n=(0, 3),
        )
        return figure.html.index('class="rlx-picture"') < figure.html.index("<form")

    assert order((6, 3)) and not order((4, 4))


def test_a_ghost_is_only_made_on_request():
    assert data_of(small(n=(0, 3)))["ghost"] is False
    assert data_of(small(n=(0, 3), ghost=True))["ghost"] is True


def test_words_can_be_played():
    page = small(stage=["start", "middle", "end"], play="stage").html
    assert 'type="range"' in page and 'aria-valuetext="start"' in page


# ---------------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "no controls"),
        ({"a": (3, 1)}, "empty range 3 to 1"),
        ({"a": (0, 1, 0)}, "step 0"),
        ({"a": (0, 1, -0.1)}, "step -0.1"),
        ({"a": (0, float("nan"))}, "finite"),
        ({"a": []}, "no values"),
        ({"a": ["x", "x"]}, r"repeats a value: \['x', 'x'\]"),
        ({"a": [1, 1]}, "repeats a value"),
        ({"a": (0, 3), "play": "b"}, "play names 'b'"),
        ({"a": (0, 3), "labels": {"b": "c"}}, "labels names 'b'"),
        ({"a": (0, 3), "initial": {"b": 1}}, "initial names 'b'"),
        ({"a": (0, 3), "initial": {"a": 7}}, r"initial\['a'\] is 7"),
        ({"a": (0, 3), "alt": " "}, "alt is ' '"),
        ({"a": (0, MAX_STATES)}, "1001 values"),
        ({"a": (0, 99), "b": (0, 10)}, "100 x 11 = 1100 states"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)


@pytest.mark.parametrize("spec", [5, "word", 0.5, None])
def test_bad_abbreviations_are_named(spec):
    with pytest.raises(TypeError, match="control 'a' is"):
        small(a=spec)


def test_setup_and_update_must_be_functions():
    with pytest.raises(TypeError, match="setup is 3; expected a function"):
        explore(3, lambda artists: None, a=(0, 1))
    with pytest.raises(TypeError, match="update is None; expected a function"):
        explore(plt.subplots, None, a=(0, 1))


def test_update_must_return_text():
    with pytest.raises(TypeError, match="update returned float"):
        explore(plt.subplots, lambda artists, a: 0.5, a=(0, 1))
    assert plt.get_fignums() == []


@pytest.mark.parametrize("count, message", [(0, "no figure"), (2, "2 figures")])
def test_setup_makes_one_figure(count, message):
    with pytest.raises(ValueError, match=message):
        explore(lambda: [plt.subplots() for _ in range(count)] and None, lambda artists, a: None, a=(0, 1))
    assert plt.get_fignums() == []


def test_an_artist_added_in_update_is_named():
    def setup():
        _, ax = plt.subplots()
        return ax

    with pytest.raises(ValueError, match="update added Line2D labeled 'extra'"):
        explore(setup, lambda ax, a: ax.plot([0, a], label="extra") and None, a=(0, 3))


def test_an_artist_removed_in_update_is_named():
    def setup():
        _, ax = plt.subplots()
        return ax.text(0, 0, "hello")

    def update(text, a):
        if a:
            text.remove()

    with pytest.raises(ValueError, match="update removed Text 'hello'"):
        explore(setup, update, a=(0, 1))


def test_a_changed_drawing_order_is_named():
    def setup():
        _, ax = plt.subplots()
        return [ax.plot([0, 1], label=name)[0] for name in ("first", "second")]

    with pytest.raises(
        ValueError, match="drawing order of Line2D labeled 'second'|drawing order of Line2D labeled 'first'"
    ):
        explore(setup, lambda lines, a: lines[0].set_zorder(2 + a), a=(0, 1))


def test_data_edited_in_place_is_noticed():
    data = np.zeros(5)

    def setup():
        _, ax = plt.subplots()
        ax.set(xlim=(0, 4), ylim=(0, 9))
        line = ax.plot(data, label="hidden change")[0]
        return line

    def update(line, a):
        line._path.vertices[:, 1] = a  # changes the picture and tells nobody

    with pytest.raises(ValueError, match="Line2D labeled 'hidden change' .*changed without being told"):
        explore(setup, update, a=(1, 3))


def test_too_heavy_a_figure_names_the_heavy_artist():
    x = np.linspace(0, 1, 600)

    def setup():
        _, ax = plt.subplots()
        ax.set(xlim=(0, 1), ylim=(0, 1))
        return ax.plot(x, x, label="noise")[0]

    def update(line, a):
        line.set_ydata(np.random.default_rng(a).random(len(x)))

    with pytest.raises(ValueError, match="KB over 150 states.*Line2D labeled 'noise'"):
        explore(setup, update, a=(1, 150))


def test_errors_in_update_reach_the_author():
    def setup():
        _, ax = plt.subplots()
        return ax

    with pytest.raises(ZeroDivisionError):
        explore(setup, lambda ax, a: str(1 / a), a=(0, 1))
    assert plt.get_fignums() == []


# ---------------------------------------------------------------------------------------------------
# What artists may do
# ---------------------------------------------------------------------------------------------------


def test_scatter_images_hatches_and_formulas_follow_the_state():
    def setup():
        figure, axes = plt.subplots(1, 3)
        dots = axes[0].scatter([0.2, 0.8], [0.5, 0.5], c=[0.0, 1.0], vmin=0, vmax=1)
        image = axes[1].imshow(np.eye(3), vmin=0, vmax=4)
        bar = axes[2].bar([0], [1], hatch="//", facecolor="none", edgecolor="black")[0]
        title = axes[2].set_title("$V_0$")
        axes[2].set_ylim(0, 4)
        return dots, image, bar, title

    def update(artists, a):
        dots, image, bar, title = artists
        dots.set_offsets([[0.2, a / 4], [0.8, 0.5]])
        dots.set_array(np.array([a / 3, 0.5]))
        image.set_data(a * np.eye(3))
        bar.set_height(a)
        title.set_text(f"$V_{a}$")

    figure = explore(setup, update, a=(0, 3))
    page = Page(figure.html)
    pictures = []
    for index in range(4):
        direct = ElementTree.fromstring(same_ids(figure.svg(a=index), figure.html))
        assert page.at((index,))[0] == canonical(direct)
        pictures.append(page.at((index,))[0])
    assert len(set(pictures)) == 4


def test_clip_regions_of_turned_and_scaled_elements_stay_on_their_axes():
    """A clip region is read in its element's coordinates; the element's transform moves it back in place."""
    figure, ax = plt.subplots(figsize=(4, 3))
    ax.imshow(np.eye(3), aspect="auto")
    ax.text(1, 1, "turned", rotation=30, clip_on=True)
    corners = ax.get_window_extent().transformed(matplotlib.transforms.Affine2D().scale(72 / figure.dpi))
    svg = re.search(r"<svg.*</svg>", show(figure, "x").html, re.S).group(0)
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    regions = {region.get("id"): region[0] for region in root.iter(space + "clipPath")}
    checked = 0
    for element in root.iter():
        if "transform" not in element.attrib or "clip-path" not in element.attrib:
            continue
        region = regions[element.get("clip-path")[5:-1]]
        numbers = [float(v) for v in re.findall(r"-?[\d.]+", region.get("d"))]
        x, y, width, height = numbers[:4]
        inside = _transform(region.get("transform")) @ [x, y, 1]
        back = _transform(element.get("transform")) @ inside
        assert back[:2] == pytest.approx([corners.x0 * 10, 3 * 720 - corners.y1 * 10], abs=3)
        checked += 1
    assert checked == 2


def _transform(text):
    """The 3 x 3 matrix of an SVG transform: matrix(...) or rotate(angle x y)."""
    numbers = [float(v) for v in re.findall(r"-?[\d.]+(?:e-?\d+)?", text)]
    if text.startswith("matrix"):
        a, b, c, d, e, f = numbers
        return np.array([[a, c, e], [b, d, f], [0, 0, 1]])
    angle, x, y = numbers
    return matplotlib.transforms.Affine2D().rotate_deg_around(x, y, angle).get_matrix()


def test_invisible_and_broken_lines_are_fine():
    def setup():
        _, ax = plt.subplots()
        ax.set(xlim=(0, 1), ylim=(0, 1))
        return ax.plot([0, 0.5, 1], [0, 0.5, 1])[0], ax

    def update(artists, a):
        line, ax = artists
        line.set_ydata([0, np.nan if a == 1 else 0.5, 1])
        line.set_visible(a != 2)
        ax.set_visible(a != 3)

    figure = explore(setup, update, a=(0, 3))
    page = Page(figure.html)
    for index in range(4):
        direct = ElementTree.fromstring(same_ids(figure.svg(a=index), figure.html))
        assert page.at((index,))[0] == canonical(direct)


def test_a_page_has_each_table_of_states_once_at_its_end(typical):
    other = small(a=(0, 3))
    shown = [typical.html, "<p>words</p>", other.html, show(plt.figure(), "Nothing").html, typical.html]
    page = new_document("page")
    page += [nodes.raw("", part, format="html") for part in shown]
    lean_figures.StatesLast(page).run()
    *parts, end = [part.astext() for part in page]
    assert [part.count("application/json") for part in parts] == [0] * 5 and end.count("<script ") == 2
    tables = dict(re.findall(r'<script type="application/json" id="([^"]*)">(.*?)</script>', end, re.S))
    names = [re.findall(r'<rlx-figure class="rlx" data-states="([^"]*)">', part) for part in parts]
    assert [len(found) for found in names] == [1, 0, 1, 0, 1] and names[0] == names[4] != names[2]
    for figure, [name] in ((typical, names[0]), (other, names[2])):
        assert json.loads(tables[name]) == data_of(figure)


@pytest.mark.parametrize(
    "body, files", [("<p>words</p>", []), ('<rlx-figure class="rlx">', ["explore.css", "explore.js"])]
)
def test_a_page_loads_style_and_script_where_it_has_figures(body, files, tmp_path):
    app = Mock(outdir=tmp_path, builder=Mock(format="html"))
    lean_figures.write_files(app)
    lean_figures.add_files(app, "page", "page.html", {"body": body}, None)
    assert [call.args[0] for call in (*app.add_css_file.mock_calls, *app.add_js_file.mock_calls)] == files
    assert (tmp_path / "_static" / "explore.css").read_text("utf-8") == style()
    live = (Path(lean_figures.__file__).parent / "live_formula.js").read_text("utf-8")
    assert (tmp_path / "_static" / "explore.js").read_text("utf-8") == script() + short_script(live)


# ---------------------------------------------------------------------------------------------------
# The live view
# ---------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch):
    """What ``_ipython_display_`` hands to the notebook, under a kernel."""
    bundles = []
    monkeypatch.setattr("rlbook_lib.explore._has_kernel", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: bundles.append(bundle))
    return bundles


def test_widgets_move_the_picture():
    figure = small(n=(0, 10), kind=["plain", "twice"], play="n", live=True)
    picture, first, second, _ = figure.widget().children
    slider = first.children[0]  # the played control stands beside its play button
    before = picture.value
    slider.index = 0
    middle = picture.value
    assert middle != before
    assert re.findall(r' d="[^"]*"', middle) == re.findall(r' d="[^"]*"', figure.svg(n=0))
    assert slider.description == "n" and second.options[1][0] == "twice"


def test_a_live_view_is_never_in_one_output_with_the_stored_one(shown):
    """A notebook prefers a widget, dead or alive, to anything else in the same output."""
    figure = small(n=(0, 3), live=True)
    figure._ipython_display_()
    stored, live = shown
    assert stored == figure._repr_mimebundle_() and stored["text/html"].endswith(figure.html)
    assert set(live) == {WIDGET_VIEW}


def test_only_what_asks_for_it_is_live(monkeypatch, shown):
    assert not hasattr(small(n=(0, 3)), "_ipython_display_")
    monkeypatch.setattr("rlbook_lib.explore._has_kernel", lambda: False)
    small(n=(0, 3), live=True)._ipython_display_()
    assert len(shown) == 1


def test_without_ipywidgets_the_stored_figure_and_a_sentence(monkeypatch, shown, capsys):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    small(n=(0, 3), live=True)._ipython_display_()
    assert len(shown) == 1
    assert capsys.readouterr().out.startswith("live=True needs ipywidgets")


def test_finer_steps_live_and_coarser_ones_stored():
    """A thousand states and more only live; the stored figure has the same range and starts at the same value."""
    figure = small(n=(0.0, 0.999, 0.001), m=(0, 9), kind=["plain", "twice"], initial={"n": 0.627}, live=True)
    assert figure.n_states <= 100
    fine, coarse = figure._fine[0], figure._controls[0]
    assert len(fine.values) == 1000 and fine.values[fine.start] == coarse.values[coarse.start] == 0.627
    assert set(coarse.values) < set(fine.values)
    assert [len(control.values) for control in figure._controls] == [7, 5, 2]  # the longest slider gives first
    slider = figure.widget().children[1]
    assert slider.options[1][0] == "0.001"
    with pytest.raises(ValueError, match="expected at most 1000, or live=True"):
        small(n=(0.0, 0.9, 0.001), m=(0, 9))


def test_an_author_says_what_is_stored():
    """The stored figure of a live one may be, to the byte, the figure that was there before it was live."""
    steps = {"n": (0.0, 1.0, 0.01), "kind": ["plain", "twice"], "initial": {"n": 0.4}}
    figure = small(**steps, stored={"n": [0.0, 0.1, 0.4]}, live=True)
    assert [len(control.values) for control in figure._controls] == [3, 2]
    assert figure.html.removesuffix("</div>").endswith(small(**steps | {"n": [0.0, 0.1, 0.4]}).html)
    assert figure.widget().children[1].options[1][0] == "0.01"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stored": {"m": [0, 1]}, "live": True}, "stored names 'm', which is no control; expected one of"),
        ({"stored": {"n": [0, 1]}}, r"stored names \['n'\] of a figure that is not live; expected live=True"),
        ({"stored": {"n": [0, 1]}, "live": True}, r"initial\['n'\] is 2; it must be one of \[0, 1\]"),
        (
            {"stored": {"kind": range(501)}, "live": True},
            "3 x 501 = 1503 states; expected at most 1000, or stored values",
        ),
    ],
)
def test_what_is_stored_must_be_part_of_a_live_figure(settings, message):
    with pytest.raises(ValueError, match=message):
        small(n=range(3), kind=["plain", "twice"], initial={"n": 2}, **settings)


def test_points_to_pick_from_keep_all_their_values():
    figure = small(n=(0, 149), m=(0, 9), handle={"n": [(k / 150, 0.5) for k in range(150)]}, live=True)
    assert [len(control.values) for control in figure._controls] == [150, 3]


def test_svg_rejects_unknown_controls_and_values(typical):
    with pytest.raises(ValueError, match="unknown control 'theta'"):
        typical.svg(theta=1)
    with pytest.raises(ValueError, match="gamma"):
        typical.svg(gamma=0.123)


# ---------------------------------------------------------------------------------------------------
# Static figures
# ---------------------------------------------------------------------------------------------------


def test_static_figure_is_themed_named_and_closed():
    figure, ax = plt.subplots()
    ax.plot([0, 1], [0, 1], color="black")
    shown = show(figure, "A rising line")
    assert plt.get_fignums() == []
    assert 'role="img" aria-label="A rising line"' in shown.html
    assert "currentColor" in shown.html and "<script" not in shown.html
    assert set(shown._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_static_figure_needs_a_figure_and_words():
    with pytest.raises(TypeError, match="figure is 3; expected a Figure"):
        show(3, "words")
    with pytest.raises(ValueError, match="alt is ''"):
        show(plt.figure(), "")
    plt.close("all")


def test_explore_is_an_object_that_says_what_it_is():
    figure = small(a=(0, 3), b=["x", "y"])
    assert isinstance(figure, Explore)
    assert repr(figure) == "<interactive figure: a (4), b (2); 8 states>"


# ---------------------------------------------------------------------------------------------------
# Guess first
# ---------------------------------------------------------------------------------------------------


def asking(**guess):
    """What the page of a figure knows about its question, and its HTML."""
    guess = {"question": "How high < 1?", "truth": lambda artists: artists[0][1].get_height()} | guess
    figure = explore(setup_bars, update_bars, gamma=(0.5, 1.0, 0.1), lam=(0.0, 1.0, 0.5), alt="Bars", guess=guess)
    return json.loads(re.search(r"<script[^>]*>(.*?)</script>", figure.html, re.DOTALL)[1])["guess"], figure.html


def test_the_truth_of_a_guess_is_what_the_figure_shows_in_the_state_that_is_asked_about():
    """Bar 1 is gamma times lambda high; the axis of the left panel ends at 1.1."""
    asked, page = asking(on="y", at={"gamma": 0.9, "lam": 0.5}, cover=(1,), unit=" m")
    assert (asked["truth"], asked["at"], asked["range"], asked["unit"]) == (0.45, [4, 1], [0.0, 1.1, 0.01], " m")
    assert asked["ends"] == [asked["box"][1] + asked["box"][3], asked["box"][1]]  # upwards
    assert asked["cover"][0][0] > asked["box"][0] + asked["box"][2]
    assert "<strong>Guess first.</strong> How high &lt; 1?" in page.partition("<svg")[0]
    assert "rlx-question" not in bars().html


def test_a_guess_may_be_a_choice():
    asked, _ = asking(choices=["low", "high"], truth=lambda artists: "high", at={"lam": 1.0})
    assert asked == {"question": "How high < 1?", "at": [3, 2], "cover": [], "choices": ["low", "high"], "truth": 1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "choices or on"),
        ({"on": "y", "choices": ["a"]}, "choices or on"),
        ({"on": "y", "units": " m"}, "choices or on"),
        ({"choices": ["a", "b"]}, "expected one of"),
        ({"on": "y", "truth": lambda _: 2.0}, "from 0 to 1.1"),
        ({"on": "y", "at": {"beta": 1}}, "unknown control"),
    ],
)
def test_a_guess_that_cannot_be_asked_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        asking(**wrong)
