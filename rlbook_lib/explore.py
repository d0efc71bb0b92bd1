"""The interactive figure: sliders, and pictures to pull at, that work in JupyterLab and on a page without any server.

``explore(setup, update, gamma=(0.5, 1.0, 0.05))`` draws one figure and lets the reader move its controls. A figure is a small piece of HTML: one SVG, the attribute changes of every other state, and native inputs.
It needs no kernel. What all figures share, style and script, is their dressing: a running cell's output brings it, the
notebooks of the book are stored without it, and a page of the book loads it once.

1. ``_encode`` compares the drawings of all states (see ``svg``) and keeps, for each attribute that moves, its values
   and the controls that it depends on.
2. ``_page`` writes the HTML.
"""

from __future__ import annotations

import functools
import hashlib
import html
import inspect
import itertools
import json
import linecache
import math
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from rlbook_lib.checks import checked
from rlbook_lib.svg import Element, Picture, describe, keep_order, markup, palette_css

MAX_STATES = 1000
MAX_BYTES = 200_000  # of one figure's HTML, before compression
STORED_STATES = 100  # what the stored figure of a live one has at most, where its sliders allow it
TALL = 0.7  # a picture whose height is more than this share of its width has its controls above it


# ---------------------------------------------------------------------------------------------------
# 1. All states as one picture and its changes
# ---------------------------------------------------------------------------------------------------


def _column(values: Sequence[str | None], sizes: Sequence[int]) -> tuple[list[int], list[str | None], list[int]]:
    """One value per state becomes the controls it depends on, a value table and indices into it."""
    table = list(dict.fromkeys(values))
    number = {value: index for index, value in enumerate(table)}
    grid = np.array([number[value] for value in values]).reshape(sizes)  # one axis per control
    controls = [axis for axis in range(grid.ndim) if np.any(grid != grid.take([0], axis=axis))]
    kept = tuple(slice(None) if axis in controls else 0 for axis in range(grid.ndim))
    return controls, table, grid[kept].ravel().tolist()


class _Changes:
    """What moves: one row per attribute, with index lists that rows share."""

    def __init__(self, sizes: Sequence[int]):
        self.sizes = list(sizes)
        self.rows: list[list[Any]] = []
        self.indices: list[list[int]] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    def add(self, element: int, name: str, values: Sequence[str | None]) -> int:
        """Add the row of one attribute (None: absent) over all states; returns its size in bytes."""
        if all(value == values[0] for value in values):
            return 0
        controls, table, indices = _column(values, self.sizes)
        texts = [value for value in table if value is not None]
        before = os.path.commonprefix(texts)
        after = os.path.commonprefix([text[len(before) :][::-1] for text in texts])[::-1]
        end = -len(after) or None
        short = [None if value is None else value[len(before) : end] for value in table]
        if indices == list(range(len(table))):
            shared = -1  # the values already stand in the order of the states
        else:
            shared = self._numbers.setdefault(tuple(indices), len(self.indices))
            if shared == len(self.indices):
                self.indices.append(indices)
        self.rows.append([element, name, controls, short, shared, before, after])
        return sum(len(text) + 3 for text in texts) + 2 * len(indices)


def _encode(
    states: Sequence[Mapping[int, list[Element]]], order: Sequence[int], base: int, first: int, changes: _Changes
) -> dict[int, int]:
    """Fill ``changes`` with what differs between the states; returns the bytes that each artist costs.

    ``first`` is the position of the first artist's group among the SVG's elements, in document order.
    """
    cost: dict[int, int] = {}
    position = first
    for key in order:
        drawings = [state.get(key, []) for state in states]
        # Artists that stood still are the same list in every state.
        if any(drawing is not drawings[0] for drawing in drawings):
            if len({tuple(tag for tag, _, _ in drawing) for drawing in drawings}) > 1:
                cost[key] = changes.add(position, "#markup", [markup(drawing) for drawing in drawings])
            else:
                cost[key] = 0
                for number, (_, attributes, _) in enumerate(drawings[base]):
                    element = position + 1 + number
                    names = dict.fromkeys(name for drawing in drawings for name in drawing[number][1])
                    for name in names:
                        column = [drawing[number][1].get(name) for drawing in drawings]
                        cost[key] += changes.add(element, name, column)
                    cost[key] += changes.add(element, "#text", [drawing[number][2] for drawing in drawings])
        position += 1 + len(drawings[base])
    return cost


# ---------------------------------------------------------------------------------------------------
# 2. The page
# ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def _asset(name: str) -> str:
    """A file of this package without comments and indentation."""
    text = resources.files("rlbook_lib").joinpath(name).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    lines = [re.sub(r"\s+// .*", "", line).strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def style() -> str:
    """The style sheet of all figures, with the book's colors (``svg.PALETTE``)."""
    return f"{_asset('explore.css')}\n:root{{{palette_css()}}}\n"


def script() -> str:
    """The script of all figures."""
    return _asset("explore.js") + "\n"


def dressing() -> str:
    """What a figure needs beside itself, where no page has it already."""
    return f'<style class="rlx-dressing">{style()}</style><script class="rlx-dressing">{script()}</script>'


@checked
def dressed(output: str) -> str:
    """An output as a notebook needs it that is read alone; one without a figure stays as it is."""
    return dressing() + output if "<rlx-figure" in output else output


@checked
def undressed(output: str) -> str:
    """An output as notebooks of the book store it."""
    return re.sub(r'<(style|script) class="rlx-dressing">.*?</\1>', "", output, flags=re.S)


def _named(page: str) -> str:
    """Make the ids of one figure its own: the same figure has the same ids, another figure has others."""
    return page.replace("rlxid", "rlx" + hashlib.sha256(page.encode()).hexdigest()[:8])


class _Control:
    """One control: its name, label, values, and the words for its values."""

    def __init__(self, name: str, spec: Any, labels: Mapping[str, str], initial: Mapping[str, Any]):
        self.name, self.label = name, labels.get(name, name.replace("_", " "))
        self.values, self.texts, self.numeric = _options(name, spec)
        self.start = len(self.values) // 2 if self.numeric else 0
        if name in initial:
            self.start = self._find(initial[name])

    def _find(self, initial: Any) -> int:
        for index, value in enumerate(self.values):
            if value is initial or (type(value) is not bool and value == initial):
                return index
            if self.numeric and isinstance(initial, (int, float)) and math.isclose(value, initial, abs_tol=1e-9):
                return index
        raise ValueError(f"initial[{self.name!r}] is {initial!r}; it must be one of {_some(self.values)}")


def _some(values: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, values[:6]))
    return f"[{shown}, ..., {values[-1]!r}]" if len(values) > 7 else f"[{', '.join(map(repr, values))}]"


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, (int, float, np.integer, np.floating))


def _options(name: str, spec: Any) -> tuple[list[Any], list[str], bool]:
    """Values and their texts from one abbreviation; True when they are numbers on a scale."""
    if type(spec) in (bool, np.bool_):
        spec = {("on" if value else "off"): bool(value) for value in (spec, not spec)}
    if isinstance(spec, tuple) and len(spec) in (2, 3) and all(_is_number(v) for v in spec):
        spec = _range(name, spec)
    if not isinstance(spec, Iterable) or isinstance(spec, (str, bytes)):
        raise TypeError(
            f"control {name!r} is {spec!r}; expected (low, high), (low, high, step), a list of values, "
            "a dictionary of words and values, or True or False"
        )
    values = list(spec.values() if isinstance(spec, Mapping) else spec)
    numeric = not isinstance(spec, Mapping) and all(_is_number(v) for v in values)
    if not values:
        raise ValueError(f"control {name!r} has no values; expected at least one")
    texts = _number_texts(values) if numeric else list(map(str, spec if isinstance(spec, Mapping) else values))
    if len(set(texts)) != len(texts):
        raise ValueError(f"control {name!r} repeats a value: {_some(texts)}")
    return [v.item() if numeric and isinstance(v, np.generic) else v for v in values], texts, numeric


def _range(name: str, spec: tuple[Any, ...]) -> list[Any]:
    """The values of (low, high[, step]); the step is 1 for integers and 0.1 otherwise, as in ipywidgets."""
    low, high = spec[:2]
    whole = all(float(v).is_integer() and isinstance(v, (int, np.integer)) for v in spec)
    step = spec[2] if len(spec) == 3 else (1 if whole else 0.1)
    if not all(math.isfinite(v) for v in (low, high, step)):
        raise ValueError(f"control {name!r} is {spec!r}; expected finite numbers")
    if step <= 0:
        raise ValueError(f"control {name!r} has step {step!r}; expected a step above 0")
    if high < low:
        raise ValueError(f"control {name!r} has the empty range {low!r} to {high!r}; expected low <= high")
    count = int(math.floor((high - low) / step + 1e-9)) + 1
    if count > MAX_STATES:
        raise ValueError(f"control {name!r} has {count} values; expected at most {MAX_STATES} states in all")
    if whole:
        return [int(low) + index * int(step) for index in range(count)]
    return [round(float(low) + index * float(step), 10) for index in range(count)]


def _number_texts(values: Sequence[Any]) -> list[str]:
    """Numbers with one number of decimals, so that the text does not jump."""
    texts = [f"{v:.10g}" for v in values]
    if any("e" in text or "n" in text for text in texts):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [f"{v:.{decimals}f}" if decimals <= 4 else text for v, text in zip(values, texts, strict=True)]


def _control_html(control: _Control, index: int, plays: bool) -> str:
    """A slider for numbers and long lists, radio buttons for a few words, a drop-down list for many."""
    label = html.escape(control.label)
    texts = [html.escape(text) for text in control.texts]
    if control.numeric or plays:
        inside = (
            f'<label><span class="rlx-name">{label}</span>'
            f'<input type="range" min="0" max="{len(texts) - 1}" step="1" '
            f'value="{control.start}" aria-valuetext="{texts[control.start]}" disabled></label>'
            f'<output class="rlx-value" aria-live="off">{texts[control.start]}</output>'
        )
    elif len(texts) <= 5 and sum(map(len, texts)) <= 60:
        options = "".join(
            f'<label class="rlx-option">'
            f'<input type="radio" name="{html.escape(control.name)}" value="{number}"'
            f"{' checked' if number == control.start else ''} disabled>{text}</label>"
            for number, text in enumerate(texts)
        )
        inside = f'<span class="rlx-name" aria-hidden="true">{label}</span><div class="rlx-options">{options}</div>'
        role = f'role="radiogroup" aria-label="{label}"'
        return f'<div class="rlx-control" {role} data-control="{index}">{inside}</div>'
    else:
        options = "".join(
            f'<option value="{number}"{" selected" if number == control.start else ""}>{text}</option>'
            for number, text in enumerate(texts)
        )
        inside = f'<label><span class="rlx-name">{label}</span><select disabled>{options}</select></label>'
    button = (
        f'<button type="button" class="rlx-play" data-plays="{index}" disabled>'
        f'<span>Play</span><span class="rlx-hidden"> {label}</span></button>'
        if plays
        else ""
    )
    return f'<div class="rlx-control" data-control="{index}">{inside}{button}</div>'


def _readout_html(readouts: Sequence[str | None], start: str | None) -> str:
    """The line below the picture, with room for the longest of all lines, so that nothing shifts when it changes."""
    if all(readout is None for readout in readouts):
        return ""
    longest = html.escape(max((readout or "" for readout in readouts), key=len))
    return (
        f'<div class="rlx-line"><p class="rlx-readout" aria-live="polite">{html.escape(start or "")}</p>'
        f'<p class="rlx-room" aria-hidden="true">{longest}</p></div>'
    )


def _page(
    picture: str, controls: Sequence[_Control], play: str | None, line: str, data: dict[str, Any], tall: bool
) -> str:
    asked = data.get("guess", {}).get("question")
    question = f'<p class="rlx-question"><strong>Guess first.</strong> {html.escape(asked)}</p>' if asked else ""
    form = "".join(_control_html(c, i, c.name == play) for i, c in enumerate(controls))
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/").replace("<!--", "<\\!--")
    parts = [_picture_html(picture), f'<form class="rlx-controls" autocomplete="off">{form}</form>']
    return _figure(
        f'{question}{"".join(reversed(parts) if tall else parts)}{line}<script type="application/json">{text}</script>'
    )


def _picture_html(svg: str) -> str:
    return f'<div class="rlx-picture">{svg}</div>'


def _figure(inside: str) -> str:
    return _named(f'<rlx-figure class="rlx">{inside}</rlx-figure>')


# ---------------------------------------------------------------------------------------------------
# What notebooks call
# ---------------------------------------------------------------------------------------------------


def _new_figure(setup: Callable[[], Any]) -> tuple[Figure, Any]:
    """Call ``setup`` and find the one figure it made."""
    before = set(plt.get_fignums())
    try:
        artists = setup()
    except BaseException:
        for number in set(plt.get_fignums()) - before:
            plt.close(number)
        raise
    made = [plt.figure(number) for number in sorted(set(plt.get_fignums()) - before)]
    for figure in made:
        plt.close(figure)
    if len(made) > 1:
        raise ValueError(f"setup made {len(made)} figures; expected one")
    if not made:
        raise ValueError("setup made no figure; expected one, for example with plt.subplots()")
    return made[0], artists


def _has_kernel() -> bool:
    """Whether this runs under a kernel that can hold live widgets (RLBOOK_STATIC=1 says no)."""
    if os.environ.get("RLBOOK_STATIC") == "1":
        return False
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


class _Looks(NamedTuple):
    """What ``explore`` is told beside setup, update and controls, by the same names."""

    play: str | None
    alt: str | None
    handle: Mapping[str, Any]
    ghost: bool
    guess: Mapping[str, Any] | None
    terms: Callable[..., Mapping[str, Any]] | None


class Explore:
    """An interactive figure; a notebook shows it when it is the last value of a cell.

    Attributes:
        alt: What the picture shows, in words.
        html: The static twin: one piece of HTML that needs no kernel and no network.
        n_states: Number of states of all controls together.
    """

    def __init__(self, setup: Callable[[], Any], update: Callable[..., Any], controls: list[_Control], looks: _Looks):
        self.alt, self._update, self._controls, self._looks = looks.alt, update, controls, looks
        self._sizes = [len(control.values) for control in controls]
        self.n_states = math.prod(self._sizes)
        figure, self._artists = _new_figure(setup)
        self._picture = Picture(figure)
        self.html = self._precompute()

    def _move(self, state: Sequence[int], controls: Sequence[_Control] | None = None) -> str | None:
        """Move the artists to a state, given as one index per control; returns the readout."""
        values = {c.name: c.values[index] for c, index in zip(controls or self._controls, state, strict=True)}
        readout = self._update(self._artists, **values)
        if readout is not None and not isinstance(readout, str):
            raise TypeError(f"update returned {type(readout).__name__}; expected None or a string to show")
        return readout

    def _precompute(self) -> str:
        states = list(itertools.product(*map(range, self._sizes)))
        drawings, readouts = [], []
        definitions: dict[str, str] = {}
        for state in states:
            readouts.append(self._move(state))
            drawn, defined = self._picture.draw()
            drawings.append(drawn)
            definitions.update(defined)
        self._require_right_memory(states[-1], drawings[-1])
        order = keep_order([list(drawn) for drawn in drawings], {id(a): a for a in self._picture.artists})
        base = states.index(tuple(control.start for control in self._controls))
        svg = self._picture.svg(order, drawings[base], definitions, self.alt)
        first = len(re.findall(r"<[a-z]", svg[: svg.index("<g")], flags=re.I)) - 1
        changes = _Changes(self._sizes)
        cost = _encode(drawings, order, base, first, changes)
        if any(readout is not None for readout in readouts):
            changes.add(0, "#readout", [readout or "" for readout in readouts])
        self._add_terms(states, changes)
        self._order, self._definitions = order, definitions
        frames = [size for c, size in zip(self._controls, self._sizes) if c.name == self._looks.play]
        data = {
            "sizes": self._sizes,
            "texts": [control.texts for control in self._controls],
            "changes": changes.rows,
            "indices": changes.indices,
            "pace": _pace(*frames),
            "handles": [h for c in self._controls if c.name in self._looks.handle for h in self._place_handles(c)],
            "ghost": self._looks.ghost,
        } | ({"guess": self._ask(self._looks.guess)} if self._looks.guess else {})
        tall = self._picture.height > TALL * self._picture.width
        line = _readout_html(readouts, readouts[base])
        page = _page(svg, self._controls, self._looks.play, line, data, tall)
        size = len(page.encode())
        if size > MAX_BYTES:
            named = {id(artist): artist for artist in self._picture.artists}
            worst = sorted(cost, key=cost.__getitem__, reverse=True)[:3]
            heavy = ", ".join(f"{describe(named[key])} ({cost[key] // 1000} KB)" for key in worst)
            raise ValueError(
                f"the figure would weigh {size // 1000} KB over {self.n_states} states; expected at most "
                f"{MAX_BYTES // 1000} KB. What moves most: {heavy}. Use fewer states or points, or artists "
                "that keep their structure (change data, text, color or alpha)."
            )
        return page

    def _add_terms(self, states: Sequence[Sequence[int]], changes: _Changes) -> None:
        """A row for each term of the formula, also for one that never changes; ``_ext/live_formula.js`` writes them into it."""
        every = [{c.name: c.values[at] for c, at in zip(self._controls, state, strict=True)} for state in states]
        found = [self._looks.terms(**values) for values in every] if self._looks.terms else [{}]
        for name in found[0]:
            texts = [_term(numbers[name]) for numbers in found]
            if not changes.add(0, f"={name}", texts):
                changes.rows.append([0, f"={name}", [], texts[:1], -1, "", ""])

    def _place_handles(self, control: _Control) -> list[list[Any]]:
        """For each axes: number of the control, the box to press in, the point of each value, which distances count."""
        where, numbers = _handle_parts(self._looks.handle[control.name])
        index = [c.name for c in self._controls].index(control.name)
        handles = []
        for axes in (self._picture.figure.axes[number] for number in numbers):
            if where in ("x", "y"):
                points = [self._picture.place(axes, **{where: float(value)}) for value in control.values]
            else:
                points = [self._picture.place(axes, *map(float, point)) for point in where]
            handles.append([index, self._picture.box(axes), points, where if where in ("x", "y") else "xy"])
        return handles

    def _ask(self, guess: Mapping[str, Any]) -> dict[str, Any]:
        """The question as the page asks it. The truth is read off the artists, which stand as the question says."""
        if not {"question", "truth"} <= set(guess) <= _ASKED or ("choices" in guess) == ("on" in guess):
            raise ValueError(f"guess has {sorted(guess)}; expected question, truth, and choices or on (see explore)")
        at, axes = self._state(guess.get("at", {})), self._picture.figure.axes
        self._move(at)
        truth = guess["truth"](self._artists)
        cover = [self._picture.box(axes[number]) for number in guess.get("cover", ())]
        asked: dict[str, Any] = {"question": guess["question"], "at": at, "cover": cover}
        if "choices" in guess:
            choices = list(guess["choices"])
            if truth not in choices:
                raise ValueError(f"guess: the truth is {truth!r}; expected one of {_some(choices)}")
            return asked | {"choices": choices, "truth": choices.index(truth)}
        where, (number, *_) = _handle_parts(guess["on"])
        scale, edges = getattr(axes[number], f"get_{where}scale")(), getattr(axes[number], f"get_{where}lim")()
        step = guess.get("step") or 10.0 ** math.floor(math.log10(abs(edges[1] - edges[0]) / 40))
        low = round(math.ceil(min(edges) / step - 1e-9) * step, 10)
        high = round(math.floor(max(edges) / step + 1e-9) * step, 10)
        if scale != "linear" or not low <= truth <= high:
            raise ValueError(f"guess: the truth is {truth:g}; expected it on a linear axis, from {low:g} to {high:g}")
        ends = [self._picture.place(axes[number], **{where: end})["xy".index(where)] for end in (low, high)]
        asked |= {"box": self._picture.box(axes[number]), "way": where, "ends": ends, "unit": guess.get("unit", "")}
        return asked | {"range": [low, high, step], "truth": float(f"{truth:.4g}")}

    def _require_right_memory(self, state: Sequence[int], drawn: Mapping[int, list[Element]]) -> None:
        """The last state once more, with every artist drawn anew: what was kept must have been right."""
        self._move(state)
        fresh, _ = self._picture.draw(reuse=False)
        for artist in self._picture.artists:
            if fresh.get(id(artist)) != drawn.get(id(artist)):
                raise ValueError(
                    f"{describe(artist)} changed without being told: after editing its data in place, call "
                    "its setter (set_data, set_xdata, set_offsets) or set artist.stale = True in update."
                )

    def svg(self, **values: Any) -> str:
        """The picture of one state, drawn now, as SVG; a control that is left out stands at its initial value."""
        self._move(self._state(values))
        drawn, _ = self._picture.draw()
        return self._picture.svg(self._order, drawn, self._definitions, self.alt)

    def _state(self, values: Mapping[str, Any]) -> list[int]:
        unknown = set(values) - {control.name for control in self._controls}
        if unknown:
            raise ValueError(
                f"unknown control {sorted(unknown)[0]!r}; expected one of {[c.name for c in self._controls]}"
            )
        return [c._find(values[c.name]) if c.name in values else c.start for c in self._controls]

    def __repr__(self) -> str:
        names = ", ".join(f"{c.name} ({len(c.values)})" for c in self._controls)
        return f"<interactive figure: {names}; {self.n_states} states>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": dressed(self.html)}


_ASKED = {"question", "truth", "at", "cover", "choices", "on", "step", "unit"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class LiveExplore(Explore):
    """An interactive figure with two views: the stored one, and under it sliders that call ``update`` in the kernel.

    They are two outputs, because a notebook prefers the view of a widget to any other of the same output, also when
    the kernel that held the widget is gone. The style sheet shows one of the two: the live one while it lives.
    """

    def __init__(
        self,
        setup: Callable[[], Any],
        update: Callable[..., Any],
        controls: list[_Control],
        stored: list[_Control],
        looks: _Looks,
    ):
        self._fine = controls
        super().__init__(setup, update, stored, looks)
        self.html = f'<div class="rlx-stored">{self.html}</div>'

    def widget(self) -> Any:
        """The live view: an ipywidgets box whose sliders call ``update`` for every value."""
        try:
            import ipywidgets
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "live=True needs ipywidgets: pip install ipywidgets, then restart the kernel."
            ) from error

        picture, line = ipywidgets.HTML(), ipywidgets.HTML()
        boxes, rows = [], []
        for control in self._fine:
            # A slider for words too: JupyterLab takes the arrow keys from radio buttons and lists, not from its sliders.
            box = ipywidgets.SelectionSlider(
                options=[*zip(control.texts, itertools.count())],
                value=control.start,
                description=control.label,
                style={"description_width": "initial"},
                layout={"width": "min(100%, 32rem)"},
            )
            boxes.append(box)
            rows.append(box)
            if control.name == self._looks.play:
                last = len(control.texts) - 1
                player = ipywidgets.Play(min=0, max=last, value=control.start, interval=_pace(last + 1))
                ipywidgets.jslink((player, "value"), (box, "index"))
                rows[-1] = ipywidgets.HBox([box, player])

        def show(_change: Any = None) -> None:
            try:
                readout = self._move([box.value for box in boxes], self._fine)
            except ReadersMistake as mistake:
                line.value = f'<p class="rlx-readout" role="status">{html.escape(str(mistake))}</p>'
                return
            drawn, _ = self._picture.draw()
            svg = self._picture.svg(self._order, drawn, self._definitions, self.alt)
            picture.value = _named(f'<div class="rlx">{_picture_html(svg)}</div>')
            line.value = f'<p class="rlx-readout" role="status">{html.escape(readout)}</p>' if readout else ""

        for box in boxes:
            box.observe(show, "value")
        show()
        return ipywidgets.VBox([picture, *rows, line])

    def _ipython_display_(self) -> None:
        """Show the stored view and, with a kernel, the live one."""
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        if not _has_kernel():
            return
        try:
            view = self.widget()._repr_mimebundle_()
        except ModuleNotFoundError as error:
            print(f"{error} This is the stored figure.")
        else:
            display({WIDGET_VIEW: view[WIDGET_VIEW]}, raw=True)  # no text: nothing of it is worth storing


def _coarser(controls: Sequence[_Control], handle: Mapping[str, Any]) -> list[_Control]:
    """The controls of the stored view: sliders lose every other value, the longest first, until the states are few."""
    kept = list(map(copy, controls))
    while math.prod(len(c.values) for c in kept) > STORED_STATES:
        fine = [
            c
            for c in kept
            if c.numeric and len(c.values) > 4 and _handle_parts(handle.get(c.name, "x"))[0] in ("x", "y")
        ]
        if not fine:
            break
        slider = max(fine, key=lambda control: len(control.values))
        half = slice(slider.start % 2, None, 2)  # the value it starts with stays
        slider.values, slider.texts, slider.start = slider.values[half], slider.texts[half], slider.start // 2
    return kept


def _term(value: Any) -> str:
    """A number of a formula: three decimals, of a small one three digits."""
    number = float(value)
    decimals = 2 - math.floor(math.log10(abs(number))) if 1e-7 < abs(number) < 0.1 else 3
    return f"{number:z.{decimals}f}".rstrip("0").rstrip(".").replace("-", "−")


def _pace(frames: int = 1) -> int:
    """Milliseconds per state of a film: about 8 seconds in all."""
    return int(min(700, max(100, 8000 / frames)))


@checked
def explore(
    setup: Callable[[], Any],
    update: Callable[..., Any],
    *,
    play: str | None = None,
    alt: str | None = None,
    labels: Mapping[str, str] | None = None,
    initial: Mapping[str, Any] | None = None,
    handle: Mapping[str, Any] | None = None,
    ghost: bool = False,
    guess: Mapping[str, Any] | None = None,
    live: bool = False,
    stored: Mapping[str, Any] | None = None,
    terms: Callable[..., Mapping[str, Any]] | None = None,
    **controls: Any,
) -> Explore:
    """An interactive figure that works with a kernel, and on a page without one.

    Every state is drawn once when this is called, so keep ``update`` quick and the number of states near 100.

    Args:
        setup: Called once. Makes one figure with fixed axes limits and returns its artists, as any object.
        update: Called as ``update(artists, **values)``. Only moves the artists; may return one line of text,
            which is shown under the picture and read aloud. Colors, text, visibility and the number of points
            or markers may change; artists may not come or go, and axes limits stay.
        play: Name of the control that gets a play button. The film stops at the last value and at any touch
            of a control; for readers who ask for less motion the button makes one step a press.
        alt: What the picture shows, in words, for readers who do not see it.
        labels: Control name to visible label. Plain text, no TeX.
        initial: Control name to first value; otherwise the middle of a range and the first of some words.
        handle: Control name to where it can be pulled in the picture: "x" or "y", the axis on which its numbers lie,
            or one point (x, y) per value, in data coordinates, to pick from. ``("x", 1)`` means the second axes,
            ``("x", (0, 1))`` both. The slider stays, for the keyboard.
        ghost: Leave what was there before the last move as a faint trace.
        guess: A question that comes before the controls: ``{"question": "Where is the top?", "on": "x", "truth": ...}``.
            ``truth`` is called with the artists, moved to the values of ``at`` (others: initial), and returns what is
            right: a number on the axis ``on`` (as in ``handle``; ``step`` and ``unit`` for the reader's mark), or one of
            the words in ``choices``. ``cover`` hides axes until then, by their numbers.
        live: With a kernel and ipywidgets, show sliders that call ``update`` for every value, however many states
            they have. What is stored, and moves without a kernel, has the same range in coarser steps.
        stored: Control name to the values that the stored figure of a live one has instead; otherwise sliders lose
            every other value until the states are few.
        terms: Called as ``terms(**values)``; returns the numbers of the formula that the picture is about, by the names that
            ``_ext/live_formula.py`` gives them. The book's page writes them into the formula while one pulls.
        **controls: ``(low, high)`` or ``(low, high, step)``, a list of values or of words, a dictionary of
            words and values, or True or False. At most 1000 states in all, without ``live``.
    """
    _require_alt(alt)
    if not controls:
        raise ValueError("no controls; expected at least one, such as gamma=(0.5, 1.0, 0.05)")
    labels, initial, handle, stored = dict(labels or {}), dict(initial or {}), dict(handle or {}), dict(stored or {})
    if stored and not live:
        raise ValueError(f"stored names {list(stored)} of a figure that is not live; expected live=True with it")
    for what, names in (
        ("play", [play] if play is not None else []),
        ("labels", labels),
        ("initial", initial),
        ("handle", handle),
        ("stored", stored),
    ):
        for name in names:
            if name not in controls:
                raise ValueError(f"{what} names {name!r}, which is no control; expected one of {list(controls)}")
    built = [_Control(name, spec, labels, initial) for name, spec in controls.items()]
    coarse = {name: _Control(name, spec, labels, initial) for name, spec in stored.items()}
    kept = [coarse.get(control.name, control) for control in built]
    counts = [len(control.values) for control in kept]
    if (stored or not live) and math.prod(counts) > MAX_STATES:
        states = f"{' x '.join(map(str, counts))} = {math.prod(counts)} states"
        remedy = "stored values for more of them" if live else "live=True"
        raise ValueError(f"the controls have {states}; expected at most {MAX_STATES}, or {remedy}")
    for control in kept:
        if control.name in handle:
            _require_handle(control, handle[control.name])
    looks = _Looks(play, alt, handle, ghost, guess, terms)
    if live:
        return LiveExplore(setup, update, built, kept if stored else _coarser(built, handle), looks)
    return Explore(setup, update, built, looks)


def _require_alt(alt: str | None) -> None:
    if alt is not None and not alt.strip():
        raise ValueError(f"alt is {alt!r}; expected a sentence that says what the picture shows")


def _handle_parts(where: Any) -> tuple[Any, tuple[int, ...]]:
    """An axis or points, and the numbers of the axes that can be pressed: those of the first if none are named."""
    if (
        isinstance(where, tuple)
        and len(where) == 2
        and (isinstance(where[0], str) or not isinstance(where[0][0], (int, float)))
    ):
        place, numbers = where
        if isinstance(numbers, int) or (isinstance(numbers, tuple) and all(isinstance(n, int) for n in numbers)):
            return place, (numbers,) if isinstance(numbers, int) else numbers
    return where, (0,)


def _require_handle(control: _Control, where: Any) -> None:
    """An axis for numbers, or one point per value."""
    place, _ = _handle_parts(where)
    if isinstance(place, str) and place in ("x", "y"):
        if not control.numeric:
            raise ValueError(
                f"handle[{control.name!r}] is {where!r}, but the control's values are no numbers; expected points"
            )
    elif np.shape(place) != (len(control.values), 2):
        wanted = f'"x", "y" or {len(control.values)} points (x, y), one per value'
        raise ValueError(f"handle[{control.name!r}] is {where!r}; expected {wanted}")


class ReadersMistake(Exception):
    """What a reader's own function did wrong, in one sentence; a notebook shows it without a trace."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@checked
def your_turn(picture_of: Callable[..., Any]) -> Callable[..., Any]:
    """A lesson's ``picture_of(mine)``, so that a mistake in the reader's ``mine`` is told in one sentence.

    Args:
        picture_of: takes the reader's function; returns the arguments of ``explore``, by name.
    """

    def told(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except ReadersMistake:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise ReadersMistake(f"The picture cannot be drawn with what `mine` returns. {what}") from error

        return call

    def picture(mine: Callable[..., Any]) -> dict[str, Any]:
        asked = told(picture_of)(_watched(mine))
        return {**asked, "setup": told(asked["setup"]), "update": told(asked["update"])}

    return picture


def _watched(mine: Callable[..., Any]) -> Callable[..., Any]:
    """The reader's function; what it raises becomes a sentence with its line, and so does a result that is no number."""

    @functools.wraps(mine)
    def call(*given: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                found = mine(*given)
        except Exception as error:
            file, what = inspect.getfile(mine), f"{type(error).__name__}: {error}"
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            if not lines or lines[-1] is None:
                raise ReadersMistake(f"`mine` cannot be called with {len(given)} arguments. {what}.") from error
            written = linecache.getline(file, lines[-1]).strip()
            raise ReadersMistake(f"Line {lines[-1]}, `{written}`: {what}.") from error
        where = " and ".join(
            f"{name} = {value:g}" if isinstance(value, (int, float)) else f"an array {name}"
            for name, value in zip(inspect.signature(mine).parameters, given, strict=True)
        )
        if found is None:
            raise ReadersMistake(f"`mine` returned None for {where}: is a `return` missing?")
        if _finite(found) is False and False not in map(_finite, given):
            raise ReadersMistake(f"`mine` returned a value that is no finite number for {where}.")
        return found

    return call


def _finite(found: Any) -> bool | None:
    """Whether all numbers are finite; None where there are no numbers, as in a maze."""
    try:
        return bool(np.isfinite(np.asarray(found.detach() if hasattr(found, "detach") else found, dtype=float)).all())
    except (TypeError, ValueError):
        return None


class StaticFigure:
    """A figure without controls, drawn like the interactive ones; a notebook displays it."""

    def __init__(self, figure: Figure, alt: str):
        _require_alt(alt)
        picture = Picture(figure)
        drawn, definitions = picture.draw()
        self.alt = alt
        self.html = _figure(_picture_html(picture.svg(list(drawn), drawn, definitions, alt)))

    def __repr__(self) -> str:
        return "<figure>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": dressed(self.html)}
