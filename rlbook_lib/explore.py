"""The interactive figure: sliders that work in JupyterLab and on a page without any server.

``explore(setup, update, gamma=(0.5, 1.0, 0.05))`` draws one figure and lets the reader move its controls.
With a live kernel the controls are ipywidgets. Everywhere else the same cell output is a small piece of
HTML: one SVG, the attribute changes of every other state, native inputs and a short script.

How the static twin is made, in four steps:

1. ``_SvgRenderer`` turns artists into short SVG elements. Coordinates are whole tenths of a point, black
   becomes ``currentColor`` and white becomes the page, so one picture serves light and dark pages.
2. ``_Picture`` draws a figure artist by artist and keeps what did not change since the last state.
3. ``_encode`` compares all states and keeps, for each attribute that moves, its values and the controls
   that it depends on.
4. ``_page`` writes the HTML.
"""

from __future__ import annotations

import base64
import hashlib
import html
import inspect
import io
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.cm import ScalarMappable
from matplotlib.colors import rgb2hex
from matplotlib.figure import Figure, FigureBase
from matplotlib.font_manager import weight_dict
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

MAX_STATES = 1000
MAX_BYTES = 200_000  # of one figure's HTML, before compression
_UNITS = 10  # SVG units per point: coordinates are written as whole tenths of a point
_IMAGE_SCALE = 2  # pixels per point of embedded raster images
_RC: Any = {"image.composite_image": False, "axes.unicode_minus": True}

# One SVG element: tag, attributes, text (or "").
Element = tuple[str, dict[str, str], str]


# ---------------------------------------------------------------------------------------------------
# 1. From artists to short SVG elements
# ---------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    """A length in SVG units, with at most one decimal."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _color(rgb: Any) -> str:
    """The page's text color for black, the page itself for white, a hex color otherwise."""
    name = rgb2hex(rgb[:3])
    return {"#000000": "currentColor", "#ffffff": "var(--rlx-paper)"}.get(name, name)


def _matrix(transform: Affine2D) -> str:
    """A transform in SVG's order of the six numbers."""
    a, c, e, b, d, f = transform.get_matrix()[:2].ravel()
    return "matrix(" + " ".join(f"{v:.6g}" for v in (a, b, c, d, e, f)) + ")"


def _join(numbers: Iterable[int]) -> str:
    """Numbers in the shortest form that SVG reads: a minus sign also separates."""
    return re.sub(r" -", "-", " ".join(map(str, numbers)))


def _is_circle(vertices: np.ndarray, codes: np.ndarray) -> bool:
    """Whether a path is matplotlib's circle: eight curves whose ends are equally far from the middle."""
    if len(codes) != 26 or codes[0] != Path.MOVETO or np.any(codes[1:25] != Path.CURVE4):
        return False
    ends = vertices[3:25:3]
    distances = np.hypot(*(ends - ends.mean(axis=0)).T)
    return bool(np.ptp(distances) < 1e-3 * distances.max())


def _circle(center: np.ndarray, radius: float) -> str:
    x, y, r = (int(round(v)) for v in (center[0] - radius, center[1], radius))
    return f"M{_join([x, y])}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0-{2 * r} 0z" if r else f"M{_join([x, y])}z"


# How many points each path code takes, and its letter in SVG.
_CODE_LENGTH = {int(Path.MOVETO): 1, int(Path.LINETO): 1, int(Path.CURVE3): 2, int(Path.CURVE4): 3}
_LETTER = {int(Path.LINETO): "l", int(Path.CURVE3): "q", int(Path.CURVE4): "c"}


def _path_data(vertices: Any, codes: Any) -> str:
    """The ``d`` attribute: whole units, steps relative to the last point (rounding never adds up)."""
    if len(codes) and codes[-1] == Path.STOP:
        vertices, codes = vertices[:-1], codes[:-1]
    if not len(codes):
        return ""
    if _is_circle(vertices, codes):
        ends = vertices[3:25:3]
        center = ends.mean(axis=0)
        return _circle(center, float(np.hypot(*(ends[0] - center))))
    points = np.rint(vertices).astype(np.int64).tolist()
    parts: list[str] = []
    last, here, first = 0, (0, 0), (0, 0)  # the code of the last segment; points in whole units
    index = 0
    while index < len(points):
        code = int(codes[index])
        length = _CODE_LENGTH.get(code, 1)
        if code == Path.CLOSEPOLY:
            parts.append("z")
            last, here = 0, first
        elif code == Path.MOVETO:
            here = first = tuple(points[index])
            parts.append("M" + _join(here))
            last = 0
        else:
            run: list[int] = []
            for x, y in points[index : index + length]:
                run += [x - here[0], y - here[1]]
            here = tuple(points[index + length - 1])
            text = _join(run)
            if last == code:
                parts.append(text if text.startswith("-") else " " + text)
            else:
                parts.append(_LETTER[code] + text)
                last = code
        index += length
    return "".join(parts)


class _SvgRenderer(RendererBase):
    """A matplotlib renderer that collects SVG elements for one artist."""

    def __init__(self, width: float, height: float):
        super().__init__()
        self.width, self.height = width, height
        self.elements: list[Element] = []
        self.definitions: dict[str, str] = {}  # id -> markup of a clip region or a hatch
        # Points, origin at the bottom, become units, origin at the top.
        self._to_page = Affine2D().scale(_UNITS, -_UNITS).translate(0, height * _UNITS)
        self._alignment: str | None = None

    # What matplotlib asks of a renderer.

    def flipy(self) -> bool:
        return True

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def points_to_pixels(self, points: Any) -> Any:
        return points

    def option_scale_image(self) -> bool:
        return True

    def get_image_magnification(self) -> float:
        return float(_IMAGE_SCALE)

    def open_group(self, s: str, gid: str | None = None) -> None:
        if gid in ("rlx-left", "rlx-center", "rlx-right"):
            self._alignment = gid[4:]

    def close_group(self, s: str) -> None:
        if s == "text":
            self._alignment = None

    # Attributes shared by all shapes.

    def _clip(self, gc: Any, undo: Any = None) -> dict[str, str]:
        # A clip region is read in the coordinates of its element; ``undo`` takes back what the element's own
        # transform does to them.
        path, transform = gc.get_clip_path()
        if path is not None:
            clean = path.cleaned(transform + self._to_page)
            data = _path_data(clean.vertices, clean.codes)
        elif gc.get_clip_rectangle() is not None:
            (x0, y0), (x1, y1) = self._to_page.transform(gc.get_clip_rectangle().get_points())
            x0, x1, y0, y1 = (int(round(v)) for v in (x0, x1, y0, y1))
            data = f"M{x0} {y1}h{x1 - x0}v{y0 - y1}h{x0 - x1}z"
        else:
            return {}
        move = "" if undo is None else f' transform="{_matrix(undo)}"'
        region = self._define("clipPath", f'<path d="{data}"{move}/>')
        return {"clip-path": f"url(#{region})"}

    def _define(self, tag: str, inner: str, attributes: str = "") -> str:
        name = "rlxid-" + tag[0] + hashlib.sha256((tag + attributes + inner).encode()).hexdigest()[:8]
        self.definitions[name] = f'<{tag} id="{name}"{attributes}>{inner}</{tag}>'
        return name

    def _hatch(self, gc: Any, face: Any) -> str:
        size = 72 * _UNITS
        path = gc.get_hatch_path().cleaned(Affine2D().scale(size, -size).translate(0, size))
        ground = "none" if face is None else _color(face)
        stroke = _color(gc.get_hatch_color())
        inner = (
            f'<path d="M0 0h{size}v{size}h-{size}z" fill="{ground}"/>'
            f'<path d="{_path_data(path.vertices, path.codes)}" fill="{stroke}" stroke="{stroke}" '
            f'stroke-width="{_number(gc.get_hatch_linewidth() * _UNITS)}"/>'
        )
        return self._define(
            "pattern", inner, f' patternUnits="userSpaceOnUse" x="0" y="0" width="{size}" height="{size}"'
        )

    def _style(self, gc: Any, face: Any) -> dict[str, str]:
        style: dict[str, str] = {}
        forced = gc.get_forced_alpha()
        if gc.get_hatch_path() is not None:
            style["fill"] = f"url(#{self._hatch(gc, face)})"
        elif face is None:
            style["fill"] = "none"
        else:
            style["fill"] = _color(face)
            if len(face) == 4 and face[3] != 1 and not forced:
                style["fill-opacity"] = f"{face[3]:.3g}"
        if forced and gc.get_alpha() != 1:
            style["opacity"] = f"{gc.get_alpha():.3g}"
        width = gc.get_linewidth()
        if width:
            rgb = gc.get_rgb()
            style["stroke"] = _color(rgb)
            style["stroke-width"] = _number(width * _UNITS)
            if not forced and rgb[3] != 1:
                style["stroke-opacity"] = f"{rgb[3]:.3g}"
            offset, dashes = gc.get_dashes()
            if dashes is not None:
                style["stroke-dasharray"] = " ".join(_number(v * _UNITS) for v in dashes)
                if offset:
                    style["stroke-dashoffset"] = _number(offset * _UNITS)
            if gc.get_joinstyle() != "round":
                style["stroke-linejoin"] = str(gc.get_joinstyle())
            if gc.get_capstyle() != "butt":
                cap = str(gc.get_capstyle())
                style["stroke-linecap"] = "square" if cap == "projecting" else cap
        return style

    def _shape(self, data: str, gc: Any, face: Any) -> None:
        self.elements.append(("path", {"d": data, **self._style(gc, face), **self._clip(gc)}, ""))

    # Drawing.

    def draw_path(self, gc: Any, path: Path, transform: Any, rgbFace: Any = None) -> None:
        open_line = rgbFace is None and gc.get_hatch_path() is None
        page = (0.0, 0.0, self.width * _UNITS, self.height * _UNITS)
        clean = path.cleaned(
            transform + self._to_page,
            remove_nans=True,
            clip=page if open_line else None,
            simplify=path.should_simplify and open_line,
            curves=True,
            sketch=gc.get_sketch_params(),
        )
        self._shape(_path_data(clean.vertices, clean.codes), gc, rgbFace)

    def draw_markers(
        self, gc: Any, marker_path: Path, marker_trans: Any, path: Path, trans: Any, rgbFace: Any = None
    ) -> None:
        # All markers of a line share one style, so they are one path: their number may change freely.
        flip = Affine2D().scale(_UNITS, -_UNITS)
        clean = marker_path.cleaned(marker_trans + flip, curves=True)
        pieces = []
        for vertices, _ in path.iter_segments(trans + self._to_page, simplify=False):
            center = np.rint(vertices[-2:])
            if np.all(np.isfinite(center)) and np.all(np.abs(center) < 1e6):
                pieces.append(_path_data(clean.vertices + center, clean.codes))
        self._shape("".join(pieces), gc, rgbFace)

    def draw_path_collection(
        self, gc: Any, master_transform: Any, paths: Any, all_transforms: Any, offsets: Any,
        offset_trans: Any, facecolors: Any, edgecolors: Any, linewidths: Any, linestyles: Any,
        antialiaseds: Any, urls: Any, offset_position: Any, *, hatchcolors: Any = None,
    ) -> None:  # fmt: skip
        base: Any = self  # its helpers for collections carry no types
        ready = [
            (path, Affine2D(transform.get_matrix()))
            for path, transform in base._iter_collection_raw_paths(master_transform, paths, all_transforms)
        ]
        # matplotlib before 3.11 knows no hatch colors.
        known = "hatchcolors" in inspect.signature(base._iter_collection).parameters
        hatching = {"hatchcolors": [] if hatchcolors is None else hatchcolors} if known else {}
        drawn: list[tuple[str, dict[str, str]]] = []
        for x, y, (path, transform), gc0, face in base._iter_collection(
            gc, ready, offsets, offset_trans, facecolors, edgecolors, linewidths, linestyles,
            antialiaseds, urls, offset_position, **hatching,
        ):  # fmt: skip
            if not (math.isfinite(x) and math.isfinite(y)):
                continue
            moved = transform.frozen().translate(x, y) + self._to_page
            clean = path.cleaned(moved, remove_nans=True, curves=True)
            style = {**self._style(gc0, face), **self._clip(gc0)}
            drawn.append((_path_data(clean.vertices, clean.codes), style))
        # Neighbors of one style join into one path.
        for _, group in itertools.groupby(drawn, key=lambda item: tuple(item[1].items())):
            items = list(group)
            self.elements.append(("path", {"d": "".join(data for data, _ in items), **items[0][1]}, ""))

    def draw_image(self, gc: Any, x: float, y: float, im: Any, transform: Any = None) -> None:
        rows, columns = im.shape[:2]
        if rows == 0 or columns == 0:
            return
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(im[::-1]).save(file, format="png", optimize=True)
        if transform is None:
            width, height = columns / _IMAGE_SCALE, rows / _IMAGE_SCALE
            placed = Affine2D().scale(width / columns, height / rows).translate(x, y)
        else:
            placed = Affine2D().scale(1 / columns, 1 / rows) + transform.frozen().translate(x, y)
        # Image pixels run downwards from the top left corner.
        whole = Affine2D((Affine2D().scale(1, -1).translate(0, rows) + placed + self._to_page).get_matrix())
        attributes = {
            "width": str(columns),
            "height": str(rows),
            "transform": _matrix(whole),
            "preserveAspectRatio": "none",
            "style": "image-rendering:pixelated",
            "href": "data:image/png;base64," + base64.b64encode(file.getvalue()).decode(),
            **self._clip(gc, whole.inverted()),
        }
        self.elements.append(("image", attributes, ""))

    def draw_text(
        self,
        gc: Any,
        x: float,
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        rgb = gc.get_rgb()
        alpha = gc.get_alpha() if gc.get_forced_alpha() else rgb[3]
        style: dict[str, str] = {}
        if _color(rgb) != "currentColor":
            style["fill"] = _color(rgb)
        if alpha != 1:
            style["opacity"] = f"{alpha:.3g}"
        if ismath:
            # A formula is drawn as outlines: its glyphs then stand where the layout put them.
            outline = _formula(s, prop.get_size_in_points(), prop)
            placed = Affine2D().scale(_UNITS, -_UNITS).rotate_deg(-angle).translate(x * _UNITS, y * _UNITS)
            clean = outline.cleaned(placed, curves=True)
            attributes = {"d": _path_data(clean.vertices, clean.codes), **style, **self._clip(gc)}
            self.elements.append(("path", attributes, ""))
            return
        # The reader's font is not the one that was measured: anchor each line where it is aligned.
        width = self.get_text_width_height_descent(s, prop, False)[0]
        aligned = self._alignment or (mtext.get_ha() if mtext is not None else "left")
        if mtext is not None and angle and mtext.get_rotation_mode() != "anchor":
            aligned = "center"
        shift = {"left": 0.0, "center": width / 2, "right": width}[aligned]
        turn = math.radians(angle)
        x, y = x + shift * math.cos(turn), y - shift * math.sin(turn)
        attributes = {"x": _number(x * _UNITS), "y": _number(y * _UNITS)}
        if angle:
            attributes["transform"] = f"rotate({_number(-angle)} {attributes['x']} {attributes['y']})"
        if aligned != "left":
            attributes["text-anchor"] = {"center": "middle", "right": "end"}[aligned]
        attributes["font-size"] = _number(prop.get_size_in_points() * _UNITS)
        weight = weight_dict.get(prop.get_weight(), prop.get_weight())
        if weight != 400:
            attributes["font-weight"] = str(weight)
        if prop.get_style() != "normal":
            attributes["font-style"] = prop.get_style()
        if "monospace" in prop.get_family():
            attributes["font-family"] = "monospace"
        undo = Affine2D().rotate_deg_around(x * _UNITS, y * _UNITS, angle) if angle else None
        self.elements.append(("text", {**attributes, **style, **self._clip(gc, undo)}, s))


@lru_cache(maxsize=512)
def _formula(text: str, size: float, prop: Any) -> Path:
    return TextPath((0, 0), text, size=size, prop=prop)


def _markup(elements: Sequence[Element]) -> str:
    """The elements of one artist as SVG text."""
    parts = []
    for tag, attributes, text in elements:
        inside = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
        parts.append(
            f"<{tag}{inside}>{html.escape(text, quote=False)}</{tag}>" if text else f"<{tag}{inside}/>"
        )
    return "".join(parts)


# ---------------------------------------------------------------------------------------------------
# 2. A figure, artist by artist
# ---------------------------------------------------------------------------------------------------


def _describe(artist: Artist) -> str:
    """A name that leads an author to the artist: kind, label or text, axes."""
    name = type(artist).__name__
    text = getattr(artist, "get_text", lambda: "")()
    label = artist.get_label() if hasattr(artist, "get_label") else ""
    if isinstance(text, str) and text.strip():
        name += f" {text!r}"
    elif label and not str(label).startswith("_"):
        name += f" labeled {str(label)!r}"
    axes = getattr(artist, "axes", None)
    if axes is not None and axes.figure is not None:
        where = (
            axes.get_title() or f"number {axes.figure.axes.index(axes) + 1}"
            if axes in axes.figure.axes
            else ""
        )
        name += f" in the axes {where}".rstrip()
    return name


def _leaves(parent: Artist) -> list[Artist]:
    """The artists that are drawn one by one: children of axes and figures, containers left out."""
    found: list[Artist] = []
    for child in parent.get_children():
        if isinstance(child, (Axes, FigureBase)):
            found += _leaves(child)
        else:
            found.append(child)
    return found


def _pin_legend(axes: Axes) -> None:
    """A legend at the "best" place would walk as the data move: leave it where it stands first."""
    legend = axes.get_legend()
    if legend is not None and getattr(legend, "_loc_real", None) == 0:
        corner = legend.get_window_extent().p0
        legend.set_loc(tuple(axes.transAxes.inverted().transform(corner)))


class _Picture:
    """A figure that is drawn again and again, and remembers the artists that stood still."""

    def __init__(self, figure: Figure):
        self.figure = figure
        figure.set_dpi(72)  # one pixel is one point, as in the SVG
        for patch in [figure.patch, *(axes.patch for axes in figure.axes)]:
            if tuple(patch.get_facecolor()[:3]) == (1.0, 1.0, 1.0):
                patch.set_facecolor("none")
        with matplotlib.rc_context(_RC):
            figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what was laid out once stays where it is
        for axes in figure.axes:
            axes._autotitlepos = False  # type: ignore[attr-defined]  # and so do titles
            _pin_legend(axes)
        self.width, self.height = figure.bbox.size
        self.artists = _leaves(figure)
        self._known = {id(artist) for artist in self.artists}
        self._cache: dict[int, tuple[list[Element], dict[str, str], list[Artist]]] = {}
        self._frame: tuple = ()

    def draw(self, *, reuse: bool = True) -> tuple[dict[int, list[Element]], dict[str, str]]:
        """Elements of each artist, by its id, in drawing order; and the clip regions they name."""
        self._check_artists()
        frame = tuple(
            value
            for axes in self.figure.axes
            for value in (*axes.viewLim.extents, *axes.bbox.extents, axes.get_xscale(), axes.get_yscale())
        )
        if frame != self._frame or not reuse:
            self._cache.clear()
            self._frame = frame
        drawn: dict[int, list[Element]] = {}
        definitions: dict[str, str] = {}

        def capture(artist: Any) -> Callable[..., None]:
            def draw(_outer: Any, *args: Any, **kwargs: Any) -> None:
                kept = self._cache.get(id(artist))
                if kept is None or any(part.stale for part in kept[2]):
                    renderer = _SvgRenderer(self.width, self.height)
                    type(artist).draw(artist, renderer, *args, **kwargs)
                    parts = artist.findobj(include_self=True)
                    for part in parts:
                        part.stale = False
                    kept = (renderer.elements, renderer.definitions, parts)
                    if not any(isinstance(p, ScalarMappable) and p.get_array() is not None for p in parts):
                        self._cache[id(artist)] = kept
                drawn[id(artist)] = kept[0]
                definitions.update(kept[1])

            return draw

        texts: list[Any] = self.figure.findobj(Text)
        aligned = [text for text in texts if "\n" in text.get_text() and not text.get_gid()]
        for text in aligned:
            text.set_gid("rlx-" + (getattr(text, "_multialignment", None) or text.get_ha()))
        for artist in self.artists:
            vars(artist)["draw"] = capture(artist)
        try:
            with matplotlib.rc_context(_RC):
                self.figure.draw(_SvgRenderer(self.width, self.height))
        finally:
            for artist in self.artists:
                del vars(artist)["draw"]
            for text in aligned:
                text.set_gid(None)
        return drawn, definitions

    def _check_artists(self) -> None:
        now = _leaves(self.figure)
        new = [artist for artist in now if id(artist) not in self._known]
        here = {id(artist) for artist in now}
        gone = [artist for artist in self.artists if id(artist) not in here]
        if new or gone:
            what = f"added {_describe(new[0])}" if new else f"removed {_describe(gone[0])}"
            raise ValueError(
                f"update {what}; it may only move what setup made. Make every artist in setup and change it "
                "in update (set_data, set_height, set_text, set_alpha, set_visible), or give it no data."
            )

    def svg(self, order: Sequence[int], drawn: Mapping[int, list[Element]], definitions: Mapping[str, str],
            alt: str | None) -> str:  # fmt: skip
        """The whole SVG. One group per artist; an artist that is not drawn leaves an empty group."""
        width, height = (_number(v * _UNITS) for v in (self.width, self.height))
        name = html.escape(alt if alt else "Figure")
        pixels = _number(self.width * 96 / 72), _number(self.height * 96 / 72)
        defs = "".join(definitions[key] for key in sorted(definitions))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" width="{pixels[0]}" '
            f'height="{pixels[1]}" viewBox="0 0 {width} {height}" fill="currentColor" '
            'stroke-linejoin="round">'
            + (f"<defs>{defs}</defs>" if defs else "")
            + "".join(f"<g>{_markup(drawn.get(key, []))}</g>" for key in order)
            + "</svg>"
        )


def _keep_order(orders: Sequence[list[int]], artists: Mapping[int, Artist]) -> list[int]:
    """The drawing order of all states, or an error that names the artist that broke it."""
    order = max(orders, key=len)
    place = {key: number for number, key in enumerate(order)}
    for other in orders:
        last = -1
        for key in other:
            number = place.get(key, -1)
            if number <= last:
                raise ValueError(
                    f"update changed the drawing order of {_describe(artists[key])}; "
                    "keep the zorder that setup gave it."
                )
            last = number
    return order


# ---------------------------------------------------------------------------------------------------
# 3. All states as one picture and its changes
# ---------------------------------------------------------------------------------------------------


def _column(
    values: Sequence[str | None], sizes: Sequence[int]
) -> tuple[list[int], list[str | None], list[int]]:
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
    states: Sequence[Mapping[int, list[Element]]],
    order: Sequence[int],
    base: int,
    first: int,
    changes: _Changes,
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
                cost[key] = changes.add(position, "#markup", [_markup(drawing) for drawing in drawings])
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
# 4. The page
# ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def _asset(name: str) -> str:
    """The style or the script, without comments and indentation."""
    text = resources.files("rlbook_lib").joinpath(name).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _finish(page: str) -> str:
    """Make the ids of one figure its own: the same figure has the same ids, another figure has others."""
    return page.replace("rlxid", "rlx" + hashlib.sha256(page.encode()).hexdigest()[:8])


class _Control:
    """One control: its name, label, values, and the words for its values."""

    def __init__(self, name: str, spec: Any, label: str, initial: Any, has_initial: bool):
        self.name, self.label = name, label
        self.values, self.texts, self.numeric = _options(name, spec)
        self.start = len(self.values) // 2 if self.numeric else 0
        if has_initial:
            self.start = self._find(initial)

    def _find(self, initial: Any) -> int:
        for index, value in enumerate(self.values):
            if value is initial or (not isinstance(value, bool) and value == initial):
                return index
            if (
                self.numeric
                and isinstance(initial, (int, float))
                and math.isclose(value, initial, abs_tol=1e-9)
            ):
                return index
        raise ValueError(f"initial[{self.name!r}] is {initial!r}; it must be one of {_some(self.values)}")


def _some(values: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, values[:6]))
    return f"[{shown}, ..., {values[-1]!r}]" if len(values) > 7 else f"[{', '.join(map(repr, values))}]"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, (bool, np.bool_)
    )


def _options(name: str, spec: Any) -> tuple[list[Any], list[str], bool]:
    """Values and their texts from one abbreviation; True when they are numbers on a scale."""
    if isinstance(spec, (bool, np.bool_)):
        return [bool(spec), not spec], [("on" if v else "off") for v in (spec, not spec)], False
    if isinstance(spec, tuple) and len(spec) in (2, 3) and all(_is_number(v) for v in spec):
        values = _range(name, spec)
        return values, _number_texts(values), True
    if isinstance(spec, Mapping):
        pairs = [(str(text), value) for text, value in spec.items()]
    elif isinstance(spec, Iterable) and not isinstance(spec, (str, bytes)):
        items = list(spec)
        numbers = bool(items) and all(_is_number(v) for v in items)
        texts = _number_texts(items) if numbers else [str(v) for v in items]
        if numbers:
            if len(set(items)) != len(items):
                raise ValueError(f"control {name!r} repeats a value: {_some(items)}")
            return [v.item() if isinstance(v, np.generic) else v for v in items], texts, True
        pairs = list(zip(texts, items, strict=True))
    else:
        raise TypeError(
            f"control {name!r} is {spec!r}; expected (low, high), (low, high, step), a list of values, "
            "a dictionary of words and values, or True or False"
        )
    if not pairs:
        raise ValueError(f"control {name!r} has no values; expected at least one")
    if len({text for text, _ in pairs}) != len(pairs):
        raise ValueError(f"control {name!r} repeats a word: {_some([text for text, _ in pairs])}")
    return [value for _, value in pairs], [text for text, _ in pairs], False


def _range(name: str, spec: tuple) -> list[Any]:
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
        inside = f"<legend>{label}</legend>{options}"
        return f'<fieldset class="rlx-control" data-control="{index}">{inside}</fieldset>'
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


def _page(svg: str, controls: Sequence[_Control], play: str | None, readout: str | None, data: dict) -> str:
    form = "".join(_control_html(c, i, c.name == play) for i, c in enumerate(controls))
    text = (
        json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        .replace("</", "<\\/")
        .replace("<!--", "<\\!--")
    )
    line = "" if readout is None else f'<p class="rlx-readout" aria-live="polite">{html.escape(readout)}</p>'
    return _finish(
        f'<div class="rlx"><style>{_asset("explore.css")}</style><div class="rlx-picture">{svg}</div>'
        f'<form class="rlx-controls" autocomplete="off">{form}</form>{line}'
        f'<script type="application/json">{text}</script><script>{_asset("explore.js")}</script></div>'
    )


# ---------------------------------------------------------------------------------------------------
# What notebooks call
# ---------------------------------------------------------------------------------------------------


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100, facecolor="white", metadata={"Software": None})
    return file.getvalue()


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
        made = _figures_in(artists)
    if len(made) != 1:
        raise ValueError("setup made no figure; expected one, for example with plt.subplots()")
    return made[0], artists


def _figures_in(artists: Any) -> list[Figure]:
    """The figure that returned artists belong to, for figures made without pyplot."""
    if isinstance(artists, Figure):
        return [artists]
    if isinstance(artists, Artist):
        figure = artists.get_figure(root=True)
        return [figure] if figure is not None else []
    if isinstance(artists, Mapping):
        artists = artists.values()
    elif not isinstance(artists, Iterable):
        artists = vars(artists).values() if hasattr(artists, "__dict__") else ()
    for artist in artists:
        found = _figures_in(artist) if not isinstance(artist, (str, bytes, np.ndarray)) else []
        if found:
            return found
    return []


def _has_kernel() -> bool:
    """Whether this runs under a kernel that can hold live widgets (RLBOOK_STATIC=1 says no)."""
    if os.environ.get("RLBOOK_STATIC") == "1":
        return False
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


class Explore:
    """An interactive figure; a notebook shows it when it is the last value of a cell.

    Attributes:
        alt: What the picture shows, in words.
        html: The static twin: one piece of HTML that needs no kernel and no network.
        n_states: Number of states of all controls together.
    """

    def __init__(
        self, setup: Callable[[], Any], update: Callable[..., Any], controls: list[_Control],
        play: str | None, alt: str | None,
    ):  # fmt: skip
        self.alt = alt
        self._update, self._controls, self._play = update, controls, play
        self._sizes = [len(control.values) for control in controls]
        self.n_states = math.prod(self._sizes)
        figure, self._artists = _new_figure(setup)
        self._picture = _Picture(figure)
        self.html = self._precompute()
        self.png = self._base_png()

    def _move(self, state: Sequence[int]) -> str | None:
        """Move the artists to a state, given as one index per control; returns the readout."""
        values = {c.name: c.values[index] for c, index in zip(self._controls, state, strict=True)}
        readout = self._update(self._artists, **values)
        if readout is not None and not isinstance(readout, str):
            raise TypeError(f"update returned {type(readout).__name__}; expected None or a string to show")
        return readout

    @property
    def _start(self) -> list[int]:
        return [control.start for control in self._controls]

    def _precompute(self) -> str:
        states = list(itertools.product(*map(range, self._sizes)))
        drawings, readouts = [], []
        definitions: dict[str, str] = {}
        for state in states:
            readouts.append(self._move(state))
            drawn, defined = self._picture.draw()
            drawings.append(drawn)
            definitions.update(defined)
        self._check_reuse(states[-1], drawings[-1])
        order = _keep_order([list(drawn) for drawn in drawings], {id(a): a for a in self._picture.artists})
        base = states.index(tuple(self._start))
        svg = self._picture.svg(order, drawings[base], definitions, self.alt)
        first = len(re.findall(r"<[a-z]", svg[: svg.index("<g>")], flags=re.I)) - 1
        changes = _Changes(self._sizes)
        cost = _encode(drawings, order, base, first, changes)
        if any(readout is not None for readout in readouts):
            changes.add(0, "#readout", [readout or "" for readout in readouts])
        self._order, self._definitions = order, definitions
        frames = max(
            (size for c, size in zip(self._controls, self._sizes, strict=True) if c.name == self._play),
            default=1,
        )
        data = {
            "sizes": self._sizes,
            "texts": [control.texts for control in self._controls],
            "changes": changes.rows,
            "indices": changes.indices,
            "pace": int(min(700, max(100, 8000 / frames))),  # milliseconds per state of the film
        }
        page = _page(svg, self._controls, self._play, readouts[base], data)
        size = len(page.encode())
        if size > MAX_BYTES:
            named = {id(artist): artist for artist in self._picture.artists}
            worst = sorted(cost, key=cost.__getitem__, reverse=True)[:3]
            heavy = ", ".join(f"{_describe(named[key])} ({cost[key] // 1000} KB)" for key in worst)
            raise ValueError(
                f"the figure would weigh {size // 1000} KB over {self.n_states} states; expected at most "
                f"{MAX_BYTES // 1000} KB. What moves most: {heavy}. Use fewer states or points, or artists "
                "that keep their structure (change data, text, color or alpha)."
            )
        return page

    def _check_reuse(self, state: Sequence[int], drawn: Mapping[int, list[Element]]) -> None:
        """The last state once more, with every artist drawn anew: what was kept must have been right."""
        self._move(state)
        fresh, _ = self._picture.draw(reuse=False)
        for artist in self._picture.artists:
            if fresh.get(id(artist)) != drawn.get(id(artist)):
                raise ValueError(
                    f"{_describe(artist)} changed without being told: after editing its data in place, call "
                    "its setter (set_data, set_xdata, set_offsets) or set artist.stale = True in update."
                )

    def _base_png(self) -> bytes:
        self._move(self._start)
        return _png(self._picture.figure)

    def svg(self, **values: Any) -> str:
        """The picture of one state, drawn now.

        Args:
            **values: One value per control; a control left out stands at its initial value.

        Returns:
            SVG text.
        """
        return self._draw(self._state(values))[0]

    def _state(self, values: Mapping[str, Any]) -> list[int]:
        unknown = set(values) - {control.name for control in self._controls}
        if unknown:
            raise ValueError(
                f"unknown control {sorted(unknown)[0]!r}; expected one of {[c.name for c in self._controls]}"
            )
        return [c._find(values[c.name]) if c.name in values else c.start for c in self._controls]

    def _draw(self, state: Sequence[int]) -> tuple[str, str | None]:
        readout = self._move(state)
        drawn, _ = self._picture.draw()
        return self._picture.svg(self._order, drawn, self._definitions, self.alt), readout

    def widget(self) -> Any:
        """The live view: ipywidgets whose controls call ``update``.

        Returns:
            An ipywidgets box; needs no static twin.
        """
        import ipywidgets

        picture, line = ipywidgets.HTML(), ipywidgets.HTML()
        boxes, players = [], []
        wide = {"description_width": "initial"}
        for control in self._controls:
            options = [(text, index) for index, text in enumerate(control.texts)]
            settings = {
                "options": options,
                "value": control.start,
                "description": control.label,
                "style": wide,
            }
            if control.numeric or control.name == self._play:
                box = ipywidgets.SelectionSlider(**settings, layout={"width": "min(100%, 32rem)"})
            elif len(options) <= 5:
                box = ipywidgets.RadioButtons(**settings)
            else:
                box = ipywidgets.Dropdown(**settings)
            boxes.append(box)
            if control.name == self._play:
                pace = int(min(700, max(100, 8000 / len(options))))
                player = ipywidgets.Play(min=0, max=len(options) - 1, value=control.start, interval=pace)
                ipywidgets.jslink((player, "value"), (box, "index"))
                players.append(ipywidgets.HBox([box, player]))
            else:
                players.append(box)

        def show(_change: Any = None) -> None:
            svg, readout = self._draw([box.value for box in boxes])
            style = f"<style>{_asset('explore.css')}</style>"
            picture.value = _finish(f'<div class="rlx">{style}<div class="rlx-picture">{svg}</div></div>')
            line.value = f'<p class="rlx-readout" role="status">{html.escape(readout)}</p>' if readout else ""

        for box in boxes:
            box.observe(show, "value")
        show()
        return ipywidgets.VBox([picture, *players, line])

    def __repr__(self) -> str:
        names = ", ".join(f"{c.name} ({len(c.values)})" for c in self._controls)
        return f"<interactive figure: {names}; {self.n_states} states>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {
            "text/plain": repr(self),
            "text/html": self.html,
            "image/png": _base64(self.png),
        }
        if _has_kernel():
            live = self.widget()._repr_mimebundle_()
            bundle.update({kind: value for kind, value in live.items() if "widget-view" in kind})
        return bundle


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def explore(
    setup: Callable[[], Any],
    update: Callable[..., Any],
    *,
    play: str | None = None,
    alt: str | None = None,
    labels: Mapping[str, str] | None = None,
    initial: Mapping[str, Any] | None = None,
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
        **controls: ``(low, high)`` or ``(low, high, step)``, a list of values or of words, a dictionary of
            words and values, or True or False. At most 1000 states in all.

    Returns:
        An object that a notebook displays.

    Raises:
        TypeError: A control is none of the above, or ``update`` returns something that is not text.
        ValueError: An empty range, a step of 0, an unknown control in ``play``, ``labels`` or ``initial``, an
            initial value that is not among the values, too many states, an artist added or removed by
            ``update``, or a figure that would be too heavy.
    """
    for name, function in (("setup", setup), ("update", update)):
        if not callable(function):
            raise TypeError(f"{name} is {type(function).__name__}; expected a function")
    if alt is not None and (not isinstance(alt, str) or not alt.strip()):
        raise ValueError(f"alt is {alt!r}; expected a sentence that says what the picture shows")
    if not controls:
        raise ValueError("no controls; expected at least one, such as gamma=(0.5, 1.0, 0.05)")
    labels, initial = dict(labels or {}), dict(initial or {})
    for what, names in (
        ("play", [play] if play is not None else []),
        ("labels", labels),
        ("initial", initial),
    ):
        for name in names:
            if name not in controls:
                raise ValueError(
                    f"{what} names {name!r}, which is no control; expected one of {list(controls)}"
                )
    built = [
        _Control(name, spec, labels.get(name, name.replace("_", " ")), initial.get(name), name in initial)
        for name, spec in controls.items()
    ]
    count = math.prod(len(control.values) for control in built)
    if count > MAX_STATES:
        parts = " x ".join(str(len(control.values)) for control in built)
        raise ValueError(f"the controls have {parts} = {count} states; expected at most {MAX_STATES}")
    return Explore(setup, update, built, play, alt)


class StaticFigure:
    """A figure without controls, drawn like the interactive ones; a notebook displays it."""

    def __init__(self, figure: Figure, alt: str):
        picture = _Picture(figure)
        drawn, definitions = picture.draw()
        svg = picture.svg(list(drawn), drawn, definitions, alt)
        style = f"<style>{_asset('explore.css')}</style>"
        self.alt = alt
        self.html = _finish(f'<div class="rlx">{style}<div class="rlx-picture">{svg}</div></div>')
        self.png = _png(figure)

    def __repr__(self) -> str:
        return "<figure>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self.html, "image/png": _base64(self.png)}


def static_figure(figure: Figure, alt: str) -> StaticFigure:
    """A figure as themed SVG, right on light and dark pages.

    Args:
        figure: A matplotlib figure; it is closed.
        alt: What the picture shows, in words.

    Returns:
        An object that a notebook displays.

    Raises:
        TypeError: ``figure`` is no matplotlib figure.
        ValueError: ``alt`` is empty.
    """
    if not isinstance(figure, Figure):
        raise TypeError(f"figure is {type(figure).__name__}; expected a matplotlib figure")
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt is {alt!r}; expected a sentence that says what the picture shows")
    plt.close(figure)
    return StaticFigure(figure, alt)
