"""Drawings that more than one page uses, and the figures' style.

``use_style()`` once at the top of a notebook, ``show(figure, alt)`` as the last line of a cell. Colors read
on light and on dark pages; black is drawn in the page's text color.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Arc, Circle, FancyArrowPatch, FancyBboxPatch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path
from matplotlib.text import Text

from rlbook_lib.checks import Array, Floats, Integers, Natural, Numbers, Offers, Positive
from rlbook_lib.checks import check, checked
from rlbook_lib.evaluation import bootstrap_interval
from rlbook_lib.explore import StaticFigure
from rlbook_lib.svg import PALETTE

COLORS: dict[str, str] = {**{name: colors[0] for name, colors in PALETTE.items()}, "text": "#000000"}
MazeLike = Annotated[Any, Offers("a maze", ("rows", "columns", "wall_states", "goal_states", "trap_states"))]
_LINES = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1.2)), (0, (8, 2))]
_TINT = 0.5  # the strongest tint of a cell, so that text stays readable on it in light and dark
Direction: TypeAlias = Literal["up", "down", "left", "right"]
_DIRECTIONS = {"up": (0.0, -1.0), "down": (0.0, 1.0), "left": (-1.0, 0.0), "right": (1.0, 0.0)}


def use_style() -> None:
    """Set matplotlib's defaults to the book's style: thin axes, a light grid, calm colors."""
    names = ("blue", "red", "green", "purple", "orange", "sky")
    matplotlib.rcParams.update(
        {
            "figure.figsize": (6.4, 3.4),
            "figure.constrained_layout.use": True,
            "figure.dpi": 100,
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 11,
            "mathtext.fontset": "dejavusans",
            "axes.titlesize": 11.5,
            "axes.titlelocation": "left",
            "axes.titlepad": 8,
            "axes.labelsize": 11,
            "axes.linewidth": 0.8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": True,
            "axes.prop_cycle": cycler(color=[COLORS[name] for name in names]) + cycler(linestyle=_LINES),
            "grid.color": COLORS["gray"],
            "grid.alpha": 0.25,
            "grid.linewidth": 0.7,
            "xtick.labelsize": 10,
            "ytick.labelsize": 10,
            "xtick.major.width": 0.8,
            "ytick.major.width": 0.8,
            "lines.linewidth": 2.0,
            "lines.markersize": 6,
            "legend.frameon": False,
            "legend.fontsize": 10,
            "svg.fonttype": "none",
            "svg.hashsalt": "rlbook",
        }
    )


@checked
def show(figure: Figure, alt: str) -> StaticFigure:
    """A still figure, which is closed; make it the last line of a cell. ``alt`` says in words what it shows."""
    plt.close(figure)
    return StaticFigure(figure, alt)


@checked
def show_record(record: dict[str, Any] | None, x: str, *columns: str, by: Sequence[str] = ()) -> StaticFigure | None:
    """The curve of a run on a GPU (``devices.gpu_run``), as the last line of a cell; nothing where there is none.

    Args:
        x: the curve's column for the horizontal axis.
        columns: for the vertical axis, a panel each; "return" stands for columns such as "return, seed 0", too.
        by: columns that tell apart the lines that stand one below the other in the curve.
    """
    if record is None:
        return None
    curve, said = record["curve"], []
    lines = list(zip(*(curve[name] for name in by))) or [()] * len(curve[x])
    figure, panels = plt.subplots(1, len(columns), figsize=(7.4, 3.0), squeeze=False)
    for axes, column in zip(panels[0], columns):
        for name in (name for name in curve if name.partition(", ")[0] == column):
            for line in dict.fromkeys(lines):
                rows = [k for k, other in enumerate(lines) if other == line]
                label = ", ".join(f"{n} {v}" for n, v in zip(by, line)) or name.partition(", ")[2]
                y = [curve[name][k] for k in rows]
                axes.plot([curve[x][k] for k in rows], y, label=label or None)
                said.append(f"{label or column} from {y[0]:.3g} to {y[-1]:.3g}")
        axes.set(xlabel=x.replace("_", " "), title=column.replace("_", " "))
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
    return show(figure, f"{', '.join(columns)} over {x}: {'; '.join(said)}".replace("_", " "))


@checked
def plot_interval(
    ax: Axes, x: Floats[Array, "T"], runs: Floats[Array, "R T"], label: str | None = None, color: str | None = None
) -> tuple[Line2D, Any]:
    """The mean over two runs or more as a line, and its ``bootstrap_interval`` as a band; returns both.

    ``color`` is one, or a name in ``COLORS``; the next color of the cycle otherwise.
    """
    if len(runs) < 2:
        raise ValueError(f"runs has shape {runs.shape}; expected (R, T) with R of 2 or more")
    low, high = bootstrap_interval(runs)
    (line,) = ax.plot(x, runs.mean(axis=0), label=label, color=COLORS.get(color, color) if color else None)
    band = ax.fill_between(x, low, high, color=line.get_color(), alpha=0.22, linewidth=0)
    return line, band


# ---------------------------------------------------------------------------------------------------
# The maze
# ---------------------------------------------------------------------------------------------------


class MazeDrawing:
    """A drawn maze whose parts can be moved; made by ``draw_maze``."""

    @checked
    def __init__(self, maze: MazeLike, ax: Axes, actions: Sequence[Direction], scale: Positive, decimals: Natural):
        self.ax, self.figure = ax, ax.figure
        self._scale, self._decimals = scale, decimals
        self._rows, self._columns = int(maze.rows), int(maze.columns)
        self._n_states = self._rows * self._columns
        self._directions = [_DIRECTIONS[name] for name in actions]
        self.axes_lengths = {"S": self._n_states, "A": len(actions)}  # what the arrays of a call must fit
        self._walls = set(map(int, maze.wall_states))
        self._marks = {int(s): "G" for s in maze.goal_states} | {int(s): "T" for s in maze.trap_states}
        self._start = int(maze.start_state)
        self._has_values = self._has_q = False
        self._policy: np.ndarray | None = None
        self._size = _cell_points(ax, self._rows, self._columns)
        self._draw_cells()
        self._draw_layers()

    # The parts.

    def _place(self, state: int) -> tuple[float, float]:
        row, column = divmod(state, self._columns)
        return column + 0.5, row + 0.5

    def _draw_cells(self) -> None:
        ax = self.ax
        ax.set_xlim(-0.03, self._columns + 0.03)
        ax.set_ylim(self._rows + 0.03, -0.03)
        ax.set_aspect("equal")
        ax.axis("off")
        self._tiles: dict[int, Rectangle] = {}
        for state in range(self._n_states):
            x, y = self._place(state)
            tile = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="none", edgecolor=COLORS["gray"], linewidth=0.8)
            if state in self._walls:
                tile.set_facecolor((*matplotlib.colors.to_rgb(COLORS["gray"]), 0.6))
            elif state in self._marks:
                # A frame and no tint: a tint is a value.
                color = COLORS["green" if self._marks[state] == "G" else "red"]
                ax.add_patch(Rectangle((x - 0.4, y - 0.4), 0.8, 0.8, fill=False, edgecolor=color, linewidth=2))
                self._text(x, y, self._marks[state], 0.34, weight="bold")
            ax.add_patch(tile)
            self._tiles[state] = tile
        x, y = self._place(self._start)
        self._text(x - 0.41, y - 0.4, "S", 0.13)
        outline = Rectangle((0, 0), self._columns, self._rows, fill=False, edgecolor=COLORS["text"], linewidth=1.4)
        ax.add_patch(outline)

    def _text(self, x: float, y: float, text: str, size: float, **style: Any) -> Text:
        points = float(np.clip(size * self._size, 5.5, 24))
        return self.ax.text(x, y, text, fontsize=points, ha="center", va="center_baseline", **style)

    def _draw_layers(self) -> None:
        """Everything that can be shown later is made now, hidden: ``explore`` only lets artists move."""
        self._triangles: dict[tuple[int, int], Polygon] = {}
        self._q_texts: dict[tuple[int, int], Text] = {}
        self._value_texts: dict[int, Text] = {}
        self._arrows: dict[int, PathPatch] = {}
        thin: dict[str, Any] = {"edgecolor": (*matplotlib.colors.to_rgb(COLORS["gray"]), 0.6), "linewidth": 0.6}
        for state in (s for s in range(self._n_states) if s not in self._walls and s not in self._marks):
            x, y = self._place(state)
            for action, (dx, dy) in enumerate(self._directions):
                corners = [(x, y), (x + (dx - dy) / 2, y + (dy + dx) / 2), (x + (dx + dy) / 2, y + (dy - dx) / 2)]
                triangle = Polygon(corners, facecolor="none", visible=False, **thin)
                self.ax.add_patch(triangle)
                self._triangles[state, action] = triangle
                number = self._text(x + 0.29 * dx, y + 0.36 * dy, "", 0.125, visible=False)
                self._q_texts[state, action] = number
            self._value_texts[state] = self._text(x, y, "", 0.19, visible=False)
            arrow = PathPatch(Path(np.zeros((0, 2))), facecolor=COLORS["text"], edgecolor="none", visible=False)
            self.ax.add_patch(arrow)
            self._arrows[state] = arrow
        (self._path,) = self.ax.plot([], [], color=COLORS["purple"], linewidth=2.6, alpha=0.8, linestyle="-", zorder=4)
        (self._agent,) = self.ax.plot(
            [], [], "o", color=COLORS["purple"], markersize=0.26 * self._size, markeredgecolor="white", zorder=5
        )

    # What an update may call.

    @checked
    def set_values(self, values: Numbers[Array, "S"]) -> None:
        """Show one value per state, but for walls, goals and traps: its number, and a tint (blue above zero, red below)."""
        first = not self._has_values
        self._has_values = True
        for state, text in self._value_texts.items():
            text.set_text(self._format(values[state]))
            text.set_visible(True)
            self._tiles[state].set_facecolor(self._tint(values[state]))
        if first and self._policy is not None:
            self.set_policy(self._policy)

    @checked
    def set_q_values(self, q_values: Numbers[Array, "S A"]) -> None:
        """Show one number per state and action in the four triangles of each cell; the largest is bold."""
        self._has_q = True
        for (state, action), triangle in self._triangles.items():
            value = q_values[state, action]
            triangle.set_facecolor(self._tint(value))
            triangle.set_visible(True)
            text = self._q_texts[state, action]
            text.set_text(self._format(value))
            best = value >= q_values[state].max() - 1e-9
            text.set_fontweight("bold" if best else "normal")
            text.set_visible(True)

    @checked
    def set_policy(self, policy: Integers[Array, "S"] | Floats[Array, "S A"]) -> None:
        """Show arrows, the longer the likelier the action; an unlikely one is short and not a dot."""
        actions = len(self._directions)
        if policy.ndim == 1:
            if policy.min() < 0 or policy.max() >= actions:
                raise ValueError(f"policy holds an action outside 0 to {actions - 1}")
            policy = np.eye(actions)[policy]
        self._policy = policy
        # Numbers stand in the middle, so arrows start around them.
        inner, longest = (0.26, 0.2) if self._has_values or self._has_q else (0.08, 0.36)
        for state, arrow in self._arrows.items():
            x, y = self._place(state)
            pieces = [
                _arrow(x, y, direction, inner, longest * (0.25 + 0.75 * probability))
                for direction, probability in zip(self._directions, policy[state], strict=True)
                if probability > 0.005
            ]
            arrow.set_path(Path.make_compound_path(*pieces) if pieces else Path(np.zeros((0, 2))))
            arrow.stale = True  # set_path does not say so
            arrow.set_visible(True)

    @checked
    def set_agent(self, state: int | None) -> None:
        """Put the agent on a state, or take it away."""
        points = [] if state is None else [self._beside(state)]
        self._agent.set_data([p[0] for p in points], [p[1] for p in points])

    @checked
    def set_path(self, states: Sequence[int] | None) -> None:
        """Draw the way through these states; later visits of a cell stand a little beside the first."""
        points, visits = [], dict.fromkeys(range(self._n_states), 0)
        for state in states if states is not None else []:
            x, y = self._beside(state)
            visit, turn = visits[int(state)], 2.4 * visits[int(state)]  # 2.4 radians: no two visits coincide
            reach = min(0.18, 0.09 * visit**0.5)
            points.append((x + reach * np.cos(turn), y + reach * np.sin(turn)))
            visits[int(state)] = visit + 1
        self._path.set_data([p[0] for p in points], [p[1] for p in points])

    def _beside(self, state: int) -> tuple[float, float]:
        """Where the agent stands: beside the number or the letter, if the cell shows one."""
        if not 0 <= int(state) < self._n_states:
            raise ValueError(f"state is {state}; expected 0 to {self._n_states - 1}")
        x, y = self._place(int(state))
        aside = self._has_values or self._has_q or state in self._marks
        return (x - 0.31, y + 0.31) if aside else (x, y)

    def _format(self, value: float) -> str:
        if not np.isfinite(value):
            return "–"
        text = f"{value:.{self._decimals}f}"
        return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")

    def _tint(self, value: float) -> tuple[float, float, float, float]:
        strength = min(1.0, abs(value) / self._scale) if np.isfinite(value) else 0.0
        color = COLORS["blue"] if value >= 0 else COLORS["red"]
        return (*matplotlib.colors.to_rgb(color), round(_TINT * strength, 3))


def _cell_points(ax: Axes, rows: int, columns: int) -> float:
    """Side of a cell in points, as the axes stand now."""
    box = ax.get_window_extent()
    return min(box.width / columns, box.height / rows) * 72 / ax.figure.dpi


def _arrow(x: float, y: float, direction: tuple[float, float], inner: float, length: float) -> Path:
    """A flat arrow from ``inner`` outwards; a short arrow is a small one."""
    head = min(0.11, 0.7 * length)
    outline = np.array([(0, -0.18 * head), (length - head, -0.18 * head), (length - head, -0.6 * head), (length, 0)])
    outline = np.concatenate([outline, outline[:3][::-1] * [1, -1]])
    dx, dy = direction
    turned = (outline + [inner, 0]) @ np.array([[dx, dy], [-dy, dx]])
    return Path(np.concatenate([turned + [x, y], [[x, y]]]), closed=True)


@checked
def draw_maze(
    maze: MazeLike,
    ax: Axes | None = None,
    values: Numbers[Array, "S"] | None = None,
    q_values: Numbers[Array, "S A"] | None = None,
    policy: Integers[Array, "S"] | Floats[Array, "S A"] | None = None,
    agent: int | None = None,
    *,
    path: Sequence[int] | None = None,
    scale: Positive = 10.0,
    decimals: Natural | None = None,
    actions: Sequence[Direction] = ("up", "down", "left", "right"),
) -> MazeDrawing:
    """A maze with whatever is known about it: values, action values, a policy, an agent and its path.

    The set methods of what comes back only move artists, so they may be called in an ``explore`` update.

    Args:
        maze: A ``Maze``, or any object with rows, columns, start_state, goal_states, trap_states and
            wall_states.
        ax: Where to draw; a new figure of a fitting size otherwise.
        values: As a tint with the number; ``q_values`` as four triangles a cell, ``policy`` as arrows.
        scale: The absolute value that has the strongest tint.
        decimals: Decimals of the numbers; otherwise 2, and fewer in small cells.
        actions: What the columns of ``policy`` and ``q_values`` mean.
    """
    if ax is None:
        side = min(1.45, 7.2 / maze.columns)  # inches per cell
        _, ax = plt.subplots(figsize=(maze.columns * side, maze.rows * side), layout="none")
        ax.set_position((0.01, 0.01, 0.98, 0.98))
    if decimals is None:
        small = _cell_points(ax, maze.rows, maze.columns) <= 60
        decimals = 2 - small - (small and q_values is not None and scale >= 20)
    drawing = MazeDrawing(maze, ax, actions, scale, decimals)
    states, pairs = str(maze.rows * maze.columns), f"{maze.rows * maze.columns} {len(actions)}"
    if values is not None:
        drawing.set_values(check("values", values, Numbers[Array, states]))
    if q_values is not None:
        drawing.set_q_values(check("q_values", q_values, Numbers[Array, pairs]))
    if policy is not None:
        drawing.set_policy(check("policy", policy, Integers[Array, states] | Floats[Array, pairs]))
    drawing.set_path(path)
    drawing.set_agent(agent)
    return drawing


# ---------------------------------------------------------------------------------------------------
# Diagrams
# ---------------------------------------------------------------------------------------------------


Node = tuple[float, float, float]  # x, y, radius, in inches


class _Tree:
    """Nodes and edges of a backup diagram: circles are states, filled dots are actions, squares are ends."""

    def __init__(self, ax: Axes, left: float, top: float, step: float):
        self.ax, self._left, self._top, self._step = ax, left, top, step

    def state(self, x: float, level: float, label: str = "", end: bool = False) -> Node:
        x, y = x + self._left, self._top - self._step * level
        style: dict[str, Any] = {"facecolor": "none", "edgecolor": COLORS["text"], "linewidth": 1.4}
        self.ax.add_patch(
            Rectangle((x - 0.11, y - 0.11), 0.22, 0.22, **style) if end else Circle((x, y), 0.13, **style)
        )
        self.label(x + 0.2, y, label)
        return x, y, 0.11 if end else 0.13

    def action(self, x: float, level: float, label: str = "") -> Node:
        x, y = x + self._left, self._top - self._step * level
        self.ax.add_patch(Circle((x, y), 0.07, facecolor=COLORS["text"], edgecolor="none"))
        self.label(x + 0.15, y, label)
        return x, y, 0.07

    def edge(self, start: Node, stop: Node, label: str = "", skipped: bool = False) -> None:
        a, b = np.array(start[:2]), np.array(stop[:2])
        unit = (b - a) / np.hypot(*(b - a))
        a, b = a + start[2] * unit, b - stop[2] * unit
        dashes = (0, (1, 2.5)) if skipped else "-"
        self.ax.plot(*np.array([a, b]).T, color=COLORS["text"], linewidth=1.1, linestyle=dashes)
        x, y = (a + b) / 2
        self.label(x + 0.09, y, label)

    def arc(self, root: Node, spread: float, label: str, color: str = "blue") -> None:
        """The arc across the branches that are joined by a maximum or a mean."""
        x, y, _ = root
        reach = 270 + spread
        self.ax.add_patch(
            Arc((x, y), 0.72, 0.72, theta1=270 - spread, theta2=reach, edgecolor=COLORS[color], linewidth=1.8)
        )
        reach = np.deg2rad(reach)
        self.label(x + 0.36 * np.cos(reach) + 0.08, y + 0.36 * np.sin(reach), label, color=COLORS[color])

    def label(self, x: float, y: float, label: str, **style: Any) -> None:
        if label:
            self.ax.text(x, y, label, ha="left", va="center", fontsize=11, **style)


def _backup_v(tree: _Tree, kind: str) -> None:
    maximum = kind == "v_star"
    root = tree.state(1.5, 0, "$s$")
    for branch, x in enumerate((0.6, 1.5, 2.4)):
        action = tree.action(x, 1, "$a$" if branch == 2 else "")
        tree.edge(root, action)
        for leaf in (x - 0.24, x + 0.24):
            last = branch == 2 and leaf > x
            tree.edge(action, tree.state(leaf, 2, "$s'$" if last else ""), r"$P,\, R$" if last else "")
    tree.arc(root, 50, "max" if maximum else "mean under π", "blue" if maximum else "purple")


def _backup_q(tree: _Tree, kind: str) -> None:
    maximum = kind == "q_star"
    root = tree.action(1.5, 0, "$s, a$")
    for branch, x in enumerate((0.75, 2.05)):
        state = tree.state(x, 1, "$s'$" if branch == 1 else "")
        tree.edge(root, state, r"$P,\, R$" if branch == 1 else "")
        for leaf in (x - 0.35, x, x + 0.35):
            last = branch == 1 and leaf > x
            tree.edge(state, tree.action(leaf, 2, "$a'$" if last else ""))
        label = "max" if maximum else "mean under π"
        tree.arc(state, 30, label if branch == 1 else "", "blue" if maximum else "purple")


def _backup_line(tree: _Tree, kind: str) -> None:
    """One sampled way down: one step, n steps, or to the end of the episode."""
    x = 0.6
    start = tree.state(x, 0, "$s_t$")
    action = tree.action(x, 1, "$a_t$")
    state = tree.state(x, 2, "$s_{t+1}$")
    tree.edge(start, action)
    tree.edge(action, state, "$r_t$")
    if kind != "td0":
        action = tree.action(x, 3, "$a_{t+n-1}$" if kind == "n_step" else "$a_{T-1}$")
        last = tree.state(x, 4, "$s_{t+n}$" if kind == "n_step" else "$s_T$, the end", end=kind == "mc")
        tree.edge(state, action, skipped=True)
        tree.edge(action, last, "$r_{t+n-1}$" if kind == "n_step" else "$r_{T-1}$")


def _backup_control(tree: _Tree, kind: str) -> None:
    root = tree.action(0.9, 0, "$s_t, a_t$")
    state = tree.state(0.9, 1, "$s_{t+1}$")
    tree.edge(root, state, "$r_t$")
    if kind == "sarsa":
        tree.edge(state, tree.action(0.9, 2, "$a_{t+1}$"))
        return
    for leaf in (0.35, 0.9, 1.45):
        tree.edge(state, tree.action(leaf, 2, "$a'$" if leaf > 1.4 else ""))
    tree.arc(state, 36, "max")


# Kind: title, width in inches, levels, inches per level, and what draws it.
_BACKUPS: dict[str, tuple[str, float, int, float, Callable[[_Tree, str], None]]] = {
    "v": ("state value", 3.1, 2, 0.72, _backup_v),
    "q": ("action value", 3.8, 2, 0.72, _backup_q),
    "v_star": ("best state value", 3.1, 2, 0.72, _backup_v),
    "q_star": ("best action value", 3.1, 2, 0.72, _backup_q),
    "mc": ("Monte Carlo", 2.0, 4, 0.62, _backup_line),
    "td0": ("TD(0)", 2.0, 2, 0.62, _backup_line),
    "n_step": ("n-step TD", 2.0, 4, 0.62, _backup_line),
    "sarsa": ("SARSA", 1.9, 2, 0.72, _backup_control),
    "q_learning": ("Q-learning", 2.1, 2, 0.72, _backup_control),
}
BACKUP_KINDS = tuple(_BACKUPS)


@checked
def backup_diagram(*kinds: str) -> Figure:
    """Which states and actions an update looks at: circles are states, dots are actions, squares are ends.

    Several of ``BACKUP_KINDS`` stand side by side, each under its name.

    Source: Sutton & Barto (2018), the diagrams of chapters 3 to 7, drawn anew.
    """
    for kind in kinds:
        if kind not in _BACKUPS:
            raise ValueError(f"kind is {kind!r}; expected one of {list(BACKUP_KINDS)}")
    if not kinds:
        raise ValueError(f"no kind; expected one or more of {list(BACKUP_KINDS)}")
    head = 0.35 if len(kinds) > 1 else 0.0  # room for the names
    width = sum(_BACKUPS[kind][1] for kind in kinds)
    height = 0.5 + head + max(_BACKUPS[kind][2] * _BACKUPS[kind][3] for kind in kinds)
    figure = plt.figure(figsize=(width, height), layout="none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    left = 0.0
    for kind in kinds:
        name, room, _, step, draw = _BACKUPS[kind]
        draw(_Tree(ax, left, height - head - 0.25, step), kind)
        if head:
            ax.text(left + 0.3, height - 0.2, name, ha="left", va="center", fontsize=11, fontweight="bold")
        left += room
    return figure


def agent_environment_loop() -> Figure:
    """The loop of reinforcement learning: the agent acts, the environment answers with a reward and a state."""
    figure = plt.figure(figsize=(6.0, 2.7), layout="none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 6), ylim=(0, 2.7), aspect="equal")
    ax.axis("off")
    for y, name, color in ((2.1, "Agent", "blue"), (0.6, "Environment", "green")):
        ground = (*matplotlib.colors.to_rgb(COLORS[color]), 0.18)
        box = FancyBboxPatch((2.05, y - 0.3), 1.9, 0.6, "round,pad=0,rounding_size=0.12", linewidth=1.6)
        box.set(facecolor=ground, edgecolor=COLORS[color])
        ax.add_patch(box)
        ax.text(3, y, name, ha="center", va="center_baseline", fontsize=13)
    ways = (
        [(3.95, 2.1), (5.0, 2.1), (5.0, 0.6), (3.98, 0.6)],
        [(2.05, 0.72), (1.15, 0.72), (1.15, 2.0), (2.02, 2.0)],
        [(2.05, 0.48), (0.85, 0.48), (0.85, 2.22), (2.02, 2.22)],
    )
    line: dict[str, Any] = dict(color=COLORS["text"], linewidth=1.4, joinstyle="round", shrinkA=0, shrinkB=0)
    for points in ways:
        arrow = FancyArrowPatch(path=Path(points), arrowstyle="-|>", mutation_scale=13, **line)
        ax.add_patch(arrow)
    ax.text(5.1, 1.35, "action $a_t$", ha="left", va="center")
    ax.text(1.25, 1.35, "reward $r_t$", ha="left", va="center")
    ax.text(0.75, 1.35, "next\nstate\n$s_{t+1}$", ha="right", va="center")
    return figure
