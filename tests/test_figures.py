"""The drawings: they show the numbers they are given, keep their structure, and read in light and dark."""

import itertools
import re

import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402

from rlbook_lib.evaluation import bootstrap_interval  # noqa: E402
from rlbook_lib.explore import explore  # noqa: E402
from rlbook_lib.figures import (  # noqa: E402
    BACKUP_KINDS,
    COLORS,
    agent_environment_loop,
    backup_diagram,
    draw_maze,
    plot_interval,
    show,
    show_record,
    use_style,
)
from rlbook_lib.maze import Maze  # noqa: E402
from test_svg import contrast  # noqa: E402

PAGES = ["#ffffff", "#121212", "#14181e", "#1e1e1e"]
INKS = {"#ffffff": "#222832", "#121212": "#ced6dd", "#14181e": "#ced6dd", "#1e1e1e": "#ced6dd"}
CLIFF = ("............", "............", "............", "STTTTTTTTTTG")


@pytest.fixture(autouse=True)
def own_style():
    """Each test starts from matplotlib's defaults and leaves no figure open."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.use("agg")
        yield
    plt.close("all")


def over(tint, page):
    """The color of a transparent tint on a page."""
    return tuple(tint[3] * np.array(tint[:3]) + (1 - tint[3]) * np.array(to_rgb(page)))


def shown_texts(drawing):
    return [text.get_text() for text in drawing.ax.texts if text.get_visible() and text.get_text()]


# ---------------------------------------------------------------------------------------------------
# Colors and style
# ---------------------------------------------------------------------------------------------------


def test_first_colors_differ_for_color_blind_readers():
    """The three colors used most, under simulated protanopia and deuteranopia (Machado et al. 2009)."""
    sights = [
        np.eye(3),
        np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
        np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    ]
    for sight in sights:
        seen = {name: np.clip(sight @ np.array(to_rgb(COLORS[name])), 0, 1) for name in ("blue", "red", "green")}
        for one, other in itertools.combinations(seen, 2):
            assert np.linalg.norm(seen[one] - seen[other]) > 0.2, (one, other)


def test_style_tells_lines_apart_without_color():
    use_style()
    _, ax = plt.subplots()
    lines = [ax.plot([0, 1])[0] for _ in range(6)]
    assert len({repr(line._dash_pattern) for line in lines}) == 6
    assert not ax.spines["top"].get_visible() and not ax.spines["right"].get_visible()


# ---------------------------------------------------------------------------------------------------
# The maze
# ---------------------------------------------------------------------------------------------------


def test_maze_shows_values_marks_and_walls():
    maze = Maze("L4")  # start, wall, trap / free, free, goal
    drawing = draw_maze(maze, values=[1.25, 0, 0, -3.5, -0.001, 0])
    texts = shown_texts(drawing)
    assert {"1.25", "−3.50", "0.00", "S", "G", "T"} == set(texts)
    assert texts.count("G") == 1 and texts.count("T") == 1
    tiles = drawing._tiles
    assert (
        tiles[2].get_facecolor()[3] == tiles[5].get_facecolor()[3] == 0
    )  # trap and goal have a frame: a tint is a value
    assert tiles[0].get_facecolor()[:3] == pytest.approx(to_rgb(COLORS["blue"]))
    assert tiles[3].get_facecolor()[:3] == pytest.approx(to_rgb(COLORS["red"]))
    assert tiles[3].get_facecolor()[3] > tiles[0].get_facecolor()[3]


def test_maze_shows_action_values_and_marks_the_best_in_bold():
    maze = Maze("L1")
    q_values = np.arange(24, dtype=float).reshape(6, 4)
    drawing = draw_maze(maze, q_values=q_values)
    for (state, action), text in drawing._q_texts.items():
        assert text.get_text() == f"{q_values[state, action]:.2f}"
        assert (text.get_fontweight() == "bold") == (action == 3)
    assert len(drawing._q_texts) == 4 * 4  # goal and trap have none


def test_triangles_and_numbers_lie_towards_their_action():
    drawing = draw_maze(Maze("L1"), q_values=np.zeros((6, 4)))
    for action, (dx, dy) in enumerate([(0, -1), (0, 1), (-1, 0), (1, 0)]):
        x, y = drawing._place(0)
        middle = drawing._triangles[0, action].get_xy()[:3].mean(axis=0) - [x, y]
        assert middle @ [dx, dy] == pytest.approx(1 / 3)
        place = np.array(drawing._q_texts[0, action].get_position()) - [x, y]
        assert place @ [dx, dy] > 0.25 and abs(place @ [dy, dx]) < 1e-12


def test_arrows_point_and_are_longer_the_likelier_the_action():
    drawing = draw_maze(Maze("L1"), policy=np.tile([0.0, 0.2, 0.0, 0.8], (6, 1)))
    x, y = drawing._place(0)
    vertices = drawing._arrows[0].get_path().vertices - [x, y]
    reach = {"up": -vertices[:, 1].min(), "down": vertices[:, 1].max(), "right": vertices[:, 0].max()}
    assert reach["down"] == pytest.approx(0.08 + 0.36 * 0.4) and reach["right"] == pytest.approx(0.08 + 0.36 * 0.85)
    assert reach["up"] < 0.08 and vertices[:, 0].min() > -0.08
    around = draw_maze(Maze("L1"), q_values=np.zeros((6, 4)), policy=[3] * 6)._arrows[0].get_path().vertices - [x, y]
    assert around[:-1, 0].min() == pytest.approx(0.26)  # numbers stand in the middle


def test_a_policy_of_integers_is_a_policy_of_rows():
    one = draw_maze(Maze("L1"), policy=[3, 1, 0, 2, 0, 0])
    other = draw_maze(Maze("L1"), policy=np.eye(4)[[3, 1, 0, 2, 0, 0]])
    for state, arrow in one._arrows.items():
        assert np.array_equal(arrow.get_path().vertices, other._arrows[state].get_path().vertices)


def test_other_action_orders():
    order = ("left", "down", "right", "up")  # Gymnasium's FrozenLake
    drawing = draw_maze(Maze("L1"), policy=[2, 2, 2, 2, 2, 2], actions=order)
    vertices = drawing._arrows[0].get_path().vertices - drawing._place(0)
    assert vertices[:, 0].max() == pytest.approx(0.44)


def test_agent_and_path():
    drawing = draw_maze(Maze("L1"), agent=0, path=[0, 1, 2, 5])
    assert drawing._path.get_xydata().tolist() == [[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [2.19, 1.81]]
    assert drawing._agent.get_xydata().tolist() == [[0.5, 0.5]]
    drawing.set_agent(None)
    drawing.set_path(None)
    assert len(drawing._agent.get_xydata()) == 0 and len(drawing._path.get_xydata()) == 0


def test_a_path_shows_every_visit_and_stays_in_its_cells():
    states = [0, 1, 0, 1, 0, 0, 0, 3, 3, 0]
    points = draw_maze(Maze("L1"), path=states)._path.get_xydata()
    assert len({tuple(point) for point in points.round(3)}) == len(states)
    assert [int(y) * 3 + int(x) for x, y in points] == states


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"values": np.zeros(5)}, r"values has shape \(5,\); expected \(6,\)"),
        ({"q_values": np.zeros((6, 3))}, r"q_values has shape \(6, 3\); expected \(6, 4\)"),
        ({"policy": np.zeros((5, 4))}, r"policy has shape \(5, 4\); expected \(6, 4\)"),
        ({"policy": np.zeros((6, 3))}, "policy has shape"),
        ({"policy": [0, 0, 0, 0, 0, 0.5]}, "policy holds fractions"),
        ({"policy": [0, 0, 0, 0, 0, 4]}, "policy holds an action outside 0 to 3"),
        ({"agent": 6}, "state is 6"),
        ({"path": [0, -1]}, "state is -1"),
        ({"scale": 0}, "scale is 0"),
        ({"actions": ("north",)}, r"actions\[0\] is 'north'"),
    ],
)
def test_bad_maze_input_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        draw_maze(Maze("L1"), **settings)


def test_drawing_moves_inside_explore():
    maze = Maze("L1")

    def update(drawing, sweep, layer):
        if layer == "values":
            drawing.set_values(np.full(6, sweep))
        else:
            drawing.set_q_values(np.full((6, 4), sweep))
        drawing.set_policy([sweep % 4] * 6)
        drawing.set_agent(sweep if sweep else None)
        drawing.set_path(range(sweep))
        return f"Sweep {sweep}"

    for layer in ("values", "q_values"):
        figure = explore(lambda: draw_maze(maze), update, sweep=(0, 5), layer=[layer], play="sweep", alt="A maze")
        assert len(figure.html) < 60_000
        assert f"{3:.2f}" in figure.svg(sweep=3)


def test_a_cliff_of_48_cells_stays_light():
    maze = Maze(CLIFF)
    rng = np.random.default_rng(0)
    values = rng.normal(-20, 10, (20, 48))
    figure = explore(
        lambda: draw_maze(maze, values=values[0], policy=np.zeros(48, int), scale=40),
        lambda drawing, sweep: drawing.set_values(values[sweep]),
        sweep=(0, 19),
        play="sweep",
        alt="A cliff",
    )
    assert len(figure.html.encode()) < 100_000


@pytest.mark.parametrize("page", PAGES)
def test_numbers_read_on_every_tint(page):
    """Text in the page's ink on the strongest tints: at least 4.5 to 1."""
    drawing = draw_maze(Maze("L1"), values=[10, -10, 99, -99, 0, 0])
    for tile in drawing._tiles.values():
        assert contrast(INKS[page], over(tile.get_facecolor(), page)) >= 4.5


@pytest.mark.parametrize("layout", ["L1", CLIFF])
@pytest.mark.parametrize("layer", ["values", "q_values"])
def test_numbers_fit_into_their_cells(layout, layer):
    maze = Maze(layout)
    numbers = np.full((maze.n_states, 4), -9.87 if layout == "L1" else -98.76)
    scale = 10 if layout == "L1" else 100
    drawing = draw_maze(maze, scale=scale, **{layer: numbers if layer == "q_values" else numbers[:, 0]})
    drawing.figure.set_dpi(72)
    drawing.figure.draw_without_rendering()
    cell = drawing.ax.transData.transform([[0, 0], [1, 0]])
    room = (cell[1, 0] - cell[0, 0]) * (0.5 if layer == "q_values" else 1.0)
    for text in drawing.ax.texts:
        if text.get_visible() and text.get_text():
            assert text.get_window_extent().width <= room, text.get_text()


# ---------------------------------------------------------------------------------------------------
# Curves
# ---------------------------------------------------------------------------------------------------


def test_interval_is_the_one_of_the_evaluation_module():
    runs = np.random.default_rng(1).normal(size=(12, 30)).cumsum(axis=1)
    _, ax = plt.subplots()
    line, band = plot_interval(ax, np.arange(30), runs, label="runs", color="green")
    low, high = bootstrap_interval(runs)
    np.testing.assert_allclose(line.get_ydata(), runs.mean(axis=0))
    vertices = band.get_paths()[0].vertices
    for step in range(30):
        heights = vertices[vertices[:, 0] == step, 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [low[step], high[step]])
    assert line.get_color() == COLORS["green"] and line.get_label() == "runs"


@pytest.mark.parametrize(
    "x, runs, message",
    [
        (np.arange(3), np.zeros((1, 3)), "R of 2 or more"),
        (np.arange(3), np.zeros(3), r"runs has shape \(3,\); expected \(R, 3\), like x"),
        (np.arange(2), np.zeros((4, 3)), r"runs has shape \(4, 3\); expected \(R, 2\), like x"),
        (np.arange(3), np.full((4, 3), np.nan), "runs holds NaN"),
    ],
)
def test_bad_curves_are_named(x, runs, message):
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=message):
        plot_interval(ax, x, runs)


# ---------------------------------------------------------------------------------------------------
# Diagrams
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BACKUP_KINDS)
def test_backup_diagrams_show_what_the_update_looks_at(kind):
    figure = backup_diagram(kind)
    ax = figure.axes[0]
    filled = [p for p in ax.patches if type(p).__name__ == "Circle" and p.get_radius() < 0.1]
    circles = [p for p in ax.patches if type(p).__name__ == "Circle" and p.get_radius() > 0.1]
    ends = [p for p in ax.patches if type(p).__name__ == "Rectangle"]
    arcs = [p for p in ax.patches if type(p).__name__ == "Arc"]
    expected = {  # states, actions, ends, arcs
        "v": (7, 3, 0, 1),
        "v_star": (7, 3, 0, 1),
        "q": (2, 7, 0, 2),
        "q_star": (2, 7, 0, 2),
        "mc": (2, 2, 1, 0),
        "td0": (2, 1, 0, 0),
        "n_step": (3, 2, 0, 0),
        "sarsa": (1, 2, 0, 0),
        "q_learning": (1, 4, 0, 1),
    }
    assert (len(circles), len(filled), len(ends), len(arcs)) == expected[kind]
    texts = " ".join(text.get_text() for text in ax.texts)
    assert ("max" in texts) == (kind in ("v_star", "q_star", "q_learning"))
    assert ("mean" in texts) == (kind in ("v", "q"))


def test_backup_diagrams_side_by_side_have_names():
    ax = backup_diagram("td0", "n_step", "mc").axes[0]
    texts = [text.get_text() for text in ax.texts]
    assert [name for name in texts if name in ("TD(0)", "n-step TD", "Monte Carlo")] == [
        "TD(0)",
        "n-step TD",
        "Monte Carlo",
    ]
    assert len([p for p in ax.patches if type(p).__name__ == "Circle" and p.get_radius() > 0.1]) == 2 + 3 + 2


def test_unknown_backup_diagram_is_named():
    with pytest.raises(ValueError, match="kind is 'w'"):
        backup_diagram("v", "w")
    with pytest.raises(ValueError, match="no kind"):
        backup_diagram()


@pytest.mark.parametrize(
    "make",
    [
        agent_environment_loop,
        lambda: backup_diagram(*BACKUP_KINDS),
        *(lambda k=k: backup_diagram(k) for k in BACKUP_KINDS),
    ],
)
def test_labels_stay_inside_their_diagrams(make):
    figure = make()
    figure.set_dpi(72)
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text.get_text()


def test_the_curve_of_a_record_is_drawn_and_said():
    record = {"curve": {"x": [1, 2, 1, 2], "n": [4, 4, 8, 8], "up, seed 0": [0.0, 1.5, 2.0, 3.0], "other": [7] * 4}}
    assert show_record(None, "x", "up") is None
    assert show_record(record, "x", "up", by=["n"]).alt == "up over x: n 4 from 0 to 1.5; n 8 from 2 to 3"
    whole = show_record(record, "x", "up", "other")
    assert whole.alt == "up, other over x: seed 0 from 0 to 3; other from 7 to 7"
    assert plt.get_fignums() == [] and ">seed 0</text>" in whole.html


def test_show_is_themed_and_the_same_twice():
    pages = [show(agent_environment_loop(), "The loop of agent and environment").html for _ in range(2)]
    assert pages[0] == pages[1]
    assert 'aria-label="The loop of agent and environment"' in pages[0]
    assert not re.search(r"#000000|#ffffff", pages[0])
    assert plt.get_fignums() == []
