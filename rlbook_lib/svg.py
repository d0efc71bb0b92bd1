"""A matplotlib figure as a short SVG that suits light and dark pages (behind every figure of the book).

1. ``_SvgRenderer`` turns artists into short SVG elements. Coordinates are whole tenths of a point. Black becomes
   ``currentColor``, white becomes the page, and the book's colors become variables that a dark page sets otherwise.
2. ``Picture`` draws a figure artist by artist and keeps what did not change since the last time.
"""

from __future__ import annotations

import base64
import html
import inspect
import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import matplotlib
import numpy as np
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

__all__ = ["PALETTE", "palette_css", "Element", "Picture", "keep_order", "describe", "markup"]

UNITS = 10  # SVG units per point: coordinates are written as whole tenths of a point
MAX_SCALE = 1.3  # a figure fills its column, but never becomes larger than this
_IMAGE_SCALE = 2  # pixels per point of embedded raster images
_RC: Any = {"image.composite_image": False, "axes.unicode_minus": True}

# The book's colors: of lines and areas on a light page, of text there, and of both on a dark page. Lines have a
# contrast of 3 or more with the page, text of 4.5 or more. Some look alike to some readers, so lines also differ in
# their dashes, and labels say what is what.
PALETTE: dict[str, tuple[str, str, str]] = {
    "blue": ("#0072b2", "#0072b2", "#3d9be0"),
    "red": ("#d55e00", "#b95200", "#f07a2a"),
    "green": ("#009e73", "#007f5d", "#2fbf95"),
    "purple": ("#b565a7", "#a84f99", "#cf85c3"),
    "orange": ("#c98500", "#9b6700", "#e0a028"),
    "sky": ("#3b9ad9", "#2277b0", "#8fcaf5"),
    "gray": ("#808080", "#737373", "#9a9a9a"),
}

# One SVG element: tag, attributes, text (or "").
Element = tuple[str, dict[str, str], str]


def palette_css() -> str:
    """The names that the book's colors have in pictures, with the colors themselves, for light and for dark pages."""
    return "".join(
        f"--rlx-{name}:light-dark({line},{dark});--rlx-{name}-ink:light-dark({ink},{dark});"
        for name, (line, ink, dark) in PALETTE.items()
    )


# ---------------------------------------------------------------------------------------------------
# 1. From artists to short SVG elements
# ---------------------------------------------------------------------------------------------------


def _length(value: float) -> str:
    """A length in SVG units, with at most one decimal."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _color(rgb: Any, ink: bool = False) -> str:
    """What a picture says for a color: its name, and the color for where no style sheet knows the name.

    Black is the page's text color, white the page itself; a color that the book does not name stays as it is.
    """
    color = rgb2hex(rgb[:3])
    for name, (line, dark_enough, _) in PALETTE.items():
        if color == line:
            return f"var(--rlx-{name}-ink,{dark_enough})" if ink else f"var(--rlx-{name},{line})"
    return {"#000000": "currentColor", "#ffffff": "var(--rlx-paper,#fff)"}.get(color, color)


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
        radius = float(np.hypot(*(ends[0] - center)))
        x, y, r = (int(round(v)) for v in (center[0] - radius, center[1], radius))
        return f"M{_join([x, y])}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0-{2 * r} 0z" if r else f"M{_join([x, y])}z"
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

    def __init__(self, width: float, height: float, names: dict[str, str]):
        super().__init__()
        self.width, self.height = width, height
        self._names = names  # of clip regions and hatches, by what they hold
        self.elements: list[Element] = []
        self.definitions: dict[str, str] = {}  # id -> markup of a clip region or a hatch
        # Points, origin at the bottom, become units, origin at the top.
        self._to_page = Affine2D().scale(UNITS, -UNITS).translate(0, height * UNITS)
        self._alignment: str | None = None

    # What matplotlib asks of a renderer.

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

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
        name = self._names.setdefault(tag + attributes + inner, f"rlxid-{len(self._names)}")
        self.definitions[name] = f'<{tag} id="{name}"{attributes}>{inner}</{tag}>'
        return name

    def _hatch(self, gc: Any, face: Any) -> str:
        size = 72 * UNITS
        path = gc.get_hatch_path().cleaned(Affine2D().scale(size, -size).translate(0, size))
        ground = "none" if face is None else _color(face)
        stroke = _color(gc.get_hatch_color())
        inner = (
            f'<path d="M0 0h{size}v{size}h-{size}z" fill="{ground}"/>'
            f'<path d="{_path_data(path.vertices, path.codes)}" fill="{stroke}" stroke="{stroke}" '
            f'stroke-width="{_length(gc.get_hatch_linewidth() * UNITS)}"/>'
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
            if _color(face) != "currentColor":  # which a shape inherits
                style["fill"] = _color(face)
            if len(face) == 4 and face[3] != 1 and not forced:
                style["fill-opacity"] = f"{face[3]:.3g}"
        if forced and gc.get_alpha() != 1:
            style["opacity"] = f"{gc.get_alpha():.3g}"
        width = gc.get_linewidth()
        if width:
            rgb = gc.get_rgb()
            style["stroke"] = _color(rgb)
            style["stroke-width"] = _length(width * UNITS)
            if not forced and rgb[3] != 1:
                style["stroke-opacity"] = f"{rgb[3]:.3g}"
            offset, dashes = gc.get_dashes()
            if dashes is not None:
                style["stroke-dasharray"] = " ".join(_length(v * UNITS) for v in dashes)
                if offset:
                    style["stroke-dashoffset"] = _length(offset * UNITS)
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
        page = (0.0, 0.0, self.width * UNITS, self.height * UNITS)
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
        flip = Affine2D().scale(UNITS, -UNITS)
        clean = marker_path.cleaned(marker_trans + flip, curves=True)
        pieces = []
        for vertices, _ in path.iter_segments(trans + self._to_page, simplify=False):
            center = np.rint(vertices[-2:])
            if np.all(np.isfinite(center)) and np.all(np.abs(center) < 1e6):
                pieces.append(_path_data(clean.vertices + center, clean.codes))
        self._shape("".join(pieces), gc, rgbFace)

    def draw_path_collection(
        self, gc: Any, master: Any, paths: Any, transforms: Any, *collection: Any, hatchcolors: Any = None
    ) -> None:
        base: Any = self  # its helpers for collections carry no types
        ready = [
            (path, Affine2D(transform.get_matrix()))
            for path, transform in base._iter_collection_raw_paths(master, paths, transforms)
        ]
        # matplotlib before 3.11 knows no hatch colors.
        known = "hatchcolors" in inspect.signature(base._iter_collection).parameters
        hatching = {"hatchcolors": [] if hatchcolors is None else hatchcolors} if known else {}
        drawn: list[tuple[str, dict[str, str]]] = []
        for x, y, (path, transform), gc0, face in base._iter_collection(gc, ready, *collection, **hatching):
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
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        rgb = gc.get_rgb()
        alpha = gc.get_alpha() if gc.get_forced_alpha() else rgb[3]
        style: dict[str, str] = {}
        if _color(rgb) != "currentColor":
            style["fill"] = _color(rgb, ink=True)
        if alpha != 1:
            style["opacity"] = f"{alpha:.3g}"
        if ismath:
            # A formula is drawn as outlines: its glyphs then stand where the layout put them.
            outline = _formula(s, prop.get_size_in_points(), prop)
            placed = Affine2D().scale(UNITS, -UNITS).rotate_deg(-angle).translate(x * UNITS, y * UNITS)
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
        attributes = {"x": _length(x * UNITS), "y": _length(y * UNITS)}
        if angle:
            attributes["transform"] = f"rotate({_length(-angle)} {attributes['x']} {attributes['y']})"
        if aligned != "left":
            attributes["text-anchor"] = {"center": "middle", "right": "end"}[aligned]
        attributes["font-size"] = _length(prop.get_size_in_points() * UNITS)
        weight = weight_dict.get(prop.get_weight(), prop.get_weight())
        if weight != 400:
            attributes["font-weight"] = str(weight)
        if prop.get_style() != "normal":
            attributes["font-style"] = prop.get_style()
        if "monospace" in prop.get_family():
            attributes["font-family"] = "monospace"
        undo = Affine2D().rotate_deg_around(x * UNITS, y * UNITS, angle) if angle else None
        self.elements.append(("text", {**attributes, **style, **self._clip(gc, undo)}, s))


@lru_cache(maxsize=512)
def _formula(text: str, size: float, prop: Any) -> Path:
    return TextPath((0, 0), text, size=size, prop=prop)


def markup(elements: Sequence[Element]) -> str:
    """The elements of one artist as SVG text."""
    parts = []
    for tag, attributes, text in elements:
        inside = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
        parts.append(f"<{tag}{inside}>{html.escape(text, quote=False)}</{tag}>" if text else f"<{tag}{inside}/>")
    return "".join(parts)


# ---------------------------------------------------------------------------------------------------
# 2. A figure, artist by artist
# ---------------------------------------------------------------------------------------------------


def describe(artist: Artist) -> str:
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
        where = axes.get_title() or f"number {axes.figure.axes.index(axes) + 1}" if axes in axes.figure.axes else ""
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


class Picture:
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
        self._frame: tuple[Any, ...] = ()
        self._names: dict[str, str] = {}

    def draw(self, *, reuse: bool = True) -> tuple[dict[int, list[Element]], dict[str, str]]:
        """Elements of each artist, by its id, in drawing order; and the clip regions they name."""
        self._require_the_same_artists()
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
                    renderer = _SvgRenderer(self.width, self.height, self._names)
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
                self.figure.draw(_SvgRenderer(self.width, self.height, self._names))
        finally:
            for artist in self.artists:
                del vars(artist)["draw"]
            for text in aligned:
                text.set_gid(None)
        return drawn, definitions

    def place(self, axes: Axes, x: float | None = None, y: float | None = None) -> tuple[int, int]:
        """Where a point of the axes stands in the SVG, in its units; a coordinate that is None lies in the middle."""
        middle = axes.transData.inverted().transform(axes.transAxes.transform((0.5, 0.5)))
        at = axes.transData.transform((middle[0] if x is None else x, middle[1] if y is None else y))
        return round(at[0] * UNITS), round((self.height - at[1]) * UNITS)

    def box(self, axes: Axes) -> tuple[int, int, int, int]:
        """The axes' rectangle in the SVG: left, top, width, height."""
        x0, y0, x1, y1 = axes.bbox.extents
        return round(x0 * UNITS), round((self.height - y1) * UNITS), round((x1 - x0) * UNITS), round((y1 - y0) * UNITS)

    def _require_the_same_artists(self) -> None:
        now = _leaves(self.figure)
        new = [artist for artist in now if id(artist) not in self._known]
        here = {id(artist) for artist in now}
        gone = [artist for artist in self.artists if id(artist) not in here]
        if new or gone:
            what = f"added {describe(new[0])}" if new else f"removed {describe(gone[0])}"
            raise ValueError(
                f"update {what}; it may only move what setup made. Make every artist in setup and change it "
                "in update (set_data, set_height, set_text, set_alpha, set_visible), or give it no data."
            )

    def svg(
        self, order: Sequence[int], drawn: Mapping[int, list[Element]], definitions: Mapping[str, str], alt: str | None
    ) -> str:
        """The whole SVG. One group per artist; an artist that is not drawn leaves an empty group. Its ``gid`` names a symbol."""
        width, height = (_length(v * UNITS) for v in (self.width, self.height))
        name = html.escape(alt if alt else "Figure")
        pixels = _length(self.width * 96 / 72), _length(self.height * 96 / 72)
        defs = "".join(definitions.values())
        widest = _length(self.width * 96 / 72 * MAX_SCALE)
        symbols = ((id(one), one.get_gid() or "rlx-") for one in self.artists)
        live = {key: f' data-live="{html.escape(gid)}"' for key, gid in symbols if not gid.startswith("rlx-")}
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" width="{pixels[0]}" '
            f'height="{pixels[1]}" viewBox="0 0 {width} {height}" style="max-width:min(100%,{widest}px)" '
            'fill="currentColor" stroke-linejoin="round">'
            + (f"<defs>{defs}</defs>" if defs else "")
            + "".join(f"<g{live.get(key, '')}>{markup(drawn.get(key, []))}</g>" for key in order)
            + "</svg>"
        )


def keep_order(orders: Sequence[list[int]], artists: Mapping[int, Artist]) -> list[int]:
    """The drawing order of all states, or an error that names the artist that broke it."""
    order = max(orders, key=len)
    place = {key: number for number, key in enumerate(order)}
    for other in orders:
        last = -1
        for key in other:
            number = place.get(key, -1)
            if number <= last:
                raise ValueError(
                    f"update changed the drawing order of {describe(artists[key])}; keep the zorder that setup gave it."
                )
            last = number
    return order
