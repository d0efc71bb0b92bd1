"""Tests of ``rlbook_lib.maze``: the environment, its model and its pictures."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib import maze as maze_module
from rlbook_lib.maze import ACTIONS, LAYOUTS, Maze, move_probabilities, register_environments
from rlbook_lib.mdp import MDP

UP, DOWN, LEFT, RIGHT = range(4)
STEPS = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
SIDEWAYS = {UP: (LEFT, RIGHT), DOWN: (LEFT, RIGHT), LEFT: (UP, DOWN), RIGHT: (UP, DOWN)}

# the layout L1, S . . / . T G, worked out by hand: (state, action) -> (next state, reward)
L1_TABLE = {
    (0, UP): (0, 0),
    (0, DOWN): (3, 0),
    (0, LEFT): (0, 0),
    (0, RIGHT): (1, 0),
    (1, UP): (1, 0),
    (1, DOWN): (4, -10),
    (1, LEFT): (0, 0),
    (1, RIGHT): (2, 0),
    (2, UP): (2, 0),
    (2, DOWN): (5, 10),
    (2, LEFT): (1, 0),
    (2, RIGHT): (2, 0),
    (3, UP): (0, 0),
    (3, DOWN): (3, 0),
    (3, LEFT): (3, 0),
    (3, RIGHT): (4, -10),
    (4, UP): (4, 0),
    (4, DOWN): (4, 0),
    (4, LEFT): (4, 0),
    (4, RIGHT): (4, 0),
    (5, UP): (5, 0),
    (5, DOWN): (5, 0),
    (5, LEFT): (5, 0),
    (5, RIGHT): (5, 0),
}


def walk(layout, row, column, direction):
    """One move without slipping, written down a second time: look ahead, stay if that is blocked."""
    down, right = STEPS[direction]
    to_row, to_column = row + down, column + right
    inside = 0 <= to_row < len(layout) and 0 <= to_column < len(layout[0])
    blocked = layout[row][column] in "GT#" or not inside or layout[to_row][to_column] == "#"
    return (row, column) if blocked else (to_row, to_column)


@st.composite
def layouts(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    cells = draw(st.lists(st.sampled_from("GT#..."), min_size=rows * columns, max_size=rows * columns))
    cells[draw(st.integers(0, rows * columns - 1))] = "S"
    return tuple("".join(cells[r * columns : (r + 1) * columns]) for r in range(rows))


# ------------------------------------------------------------------ the environment


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_gymnasium_accepts_the_environment(layout, slip):
    check_env(gymnasium.make("rlbook/Maze-v0", layout=layout, slip=slip).unwrapped, skip_render_check=True)


def test_registration_is_there_once_and_has_no_time_limit():
    register_environments()
    register_environments()
    env = gymnasium.make("rlbook/Maze-v0", layout=["S.", ".G"])
    assert isinstance(env.unwrapped, Maze)
    assert env.spec.max_episode_steps is None
    assert env.unwrapped.layout == ("S.", ".G")


def test_the_four_layouts():
    assert LAYOUTS == {"L1": ("S..", ".TG"), "L2": ("S..", "T.G"), "L3": ("S.G", "..T"), "L4": ("S#T", "..G")}
    assert ACTIONS == ("up", "down", "left", "right")
    maze = Maze("L4")
    assert (maze.start_state, maze.goal_states, maze.trap_states, maze.wall_states) == (0, (5,), (2,), (1,))
    assert (maze.rows, maze.columns) == (2, 3)


@pytest.mark.parametrize("state, action", sorted(L1_TABLE))
def test_every_state_and_action_of_the_first_layout(state, action):
    next_state, reward = L1_TABLE[state, action]
    mdp = Maze("L1").to_mdp(0.9)
    row = np.zeros(6)
    row[next_state] = 1
    np.testing.assert_array_equal(mdp.transitions[state, action], row)
    assert mdp.rewards[state, action] == reward
    env = Maze("L1")
    if state in (4, 5):
        with pytest.raises(ValueError, match="start"):
            env.reset(options={"start": state})
        return
    assert env.reset(options={"start": state}) == (state, {})
    seen, paid, terminated, truncated, info = env.step(action)
    assert (seen, paid, terminated, truncated) == (next_state, reward, next_state in (4, 5), False)
    assert info == {"direction": ACTIONS[action]}


def test_cells_and_numbers_are_inverse_to_each_other():
    maze = Maze(("S...", "..#G", "T..."))
    cells = [maze.cell(state) for state in range(12)]
    assert cells == [(row, column) for row in range(3) for column in range(4)]
    assert [maze.state(*cell) for cell in cells] == list(range(12))


def test_the_same_seed_gives_the_same_slips():
    def walk_randomly(seed):
        env, states = Maze(("S....", ".....", "....G"), slip=0.5), []
        env.reset(seed=seed)
        for action in [RIGHT, DOWN, LEFT, UP] * 5:
            states.append(env.step(action)[0])
            if env.terminal[states[-1]]:
                env.reset()
        return states

    assert walk_randomly(3) == walk_randomly(3)
    assert len({tuple(walk_randomly(seed)) for seed in range(10)}) > 1


# ------------------------------------------------------------------ slip and the model


@pytest.mark.equation("eq-slip")
def test_slip_rows_by_hand():
    np.testing.assert_allclose(
        move_probabilities(0.2), [[0.8, 0, 0.1, 0.1], [0, 0.8, 0.1, 0.1], [0.1, 0.1, 0.8, 0], [0.1, 0.1, 0, 0.8]]
    )
    mdp = Maze("L1", slip=0.2).to_mdp(0.9)
    # from (0, 1) right: 0.8 to (0, 2), up bumps (0.1), down into the trap (0.1)
    np.testing.assert_allclose(mdp.transitions[1, RIGHT], [0, 0.1, 0.8, 0, 0.1, 0])
    assert mdp.rewards[1, RIGHT] == pytest.approx(-1)
    # from (0, 0) up: bumps up (0.8) and left (0.1), right to (0, 1)
    np.testing.assert_allclose(mdp.transitions[0, UP], [0.9, 0.1, 0, 0, 0, 0])
    # from (0, 2) down: the goal (0.8), left to (0, 1), right bumps
    np.testing.assert_allclose(mdp.transitions[2, DOWN], [0, 0.1, 0.1, 0, 0, 0.8])
    assert mdp.rewards[2, DOWN] == pytest.approx(8)


@pytest.mark.equation("eq-slip")
@settings(max_examples=40, deadline=None)
@given(layout=layouts(), slip=st.floats(0, 1))
def test_slip_model_is_the_sum_over_three_walks(layout, slip):
    env = Maze(layout, slip)
    mdp = env.to_mdp(0.9)
    expected = np.zeros((env.n_states, 4, env.n_states))
    for state, action in itertools.product(range(env.n_states), range(4)):
        left, right = SIDEWAYS[action]
        for direction, chance in ((action, 1 - slip), (left, slip / 2), (right, slip / 2)):
            expected[state, action, env.state(*walk(layout, *env.cell(state), direction))] += chance
    np.testing.assert_allclose(mdp.transitions, expected, atol=1e-15)
    entered = np.array([{"G": 10.0, "T": -10.0}.get(cell, 0.0) for cell in "".join(layout)])
    rewards = (expected @ entered) * ~np.array([cell in "GT#" for cell in "".join(layout)])[:, None]
    np.testing.assert_allclose(mdp.rewards, rewards, atol=1e-12)


@pytest.mark.equation("eq-slip")
def test_steps_follow_the_model():
    env = Maze("L1", slip=0.4)
    mdp, n = env.to_mdp(0.9), 4000
    env.reset(seed=0)
    for state, action in [(1, RIGHT), (0, DOWN), (3, UP)]:
        counts = np.zeros(6)
        for _ in range(n):
            env.reset(options={"start": state})
            counts[env.step(action)[0]] += 1
        expected = mdp.transitions[state, action]
        spread = np.sqrt(expected * (1 - expected) / n)
        assert (np.abs(counts / n - expected) <= 5 * spread).all()


def test_a_full_slip_never_goes_straight():
    mdp = Maze(("...", ".S.", "..G"), slip=1.0).to_mdp(0.9)
    np.testing.assert_allclose(mdp.transitions[4, UP], [0, 0, 0, 0.5, 0, 0.5, 0, 0, 0])


def test_walls_are_worth_nothing_and_never_entered():
    env = Maze("L4", slip=0.3)
    mdp = env.to_mdp(1.0)
    assert mdp.terminal.tolist() == [False, True, True, False, False, True]
    assert (mdp.transitions[[0, 3, 4], :, 1] == 0).all()
    assert (mdp.rewards[1] == 0).all()


@settings(max_examples=25, deadline=None)
@given(layout=layouts(), slip=st.sampled_from([0.0, 0.1, 1.0]))
def test_a_sparse_model_is_the_same_model(layout, slip):
    env = Maze(layout, slip)
    dense = env.to_mdp(0.9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maze_module, "DENSE_CELLS", 0)
        sparse = env.to_mdp(0.9)
    assert isinstance(dense.transitions, np.ndarray) and not isinstance(sparse.transitions, np.ndarray)
    unfolded = sparse.transitions.toarray().reshape(dense.transitions.shape)
    np.testing.assert_array_equal(unfolded, dense.transitions)
    np.testing.assert_allclose(sparse.rewards, dense.rewards, atol=1e-12)
    for state, action in itertools.product(range(env.n_states), range(4)):
        for after in sparse.successors(state, action)[0]:
            paid = sparse.transition_reward(state, action, after)
            assert paid == dense.transition_reward(state, action, after)


def test_model_from_a_wrapped_environment():
    env = gymnasium.make("rlbook/Maze-v0", layout="L3", slip=0.1)
    own, read = Maze("L3", slip=0.1).to_mdp(0.8), MDP.from_gymnasium(env, 0.8)
    np.testing.assert_array_equal(read.transitions, own.transitions)
    np.testing.assert_array_equal(read.rewards, own.rewards)
    assert read.gamma == 0.8 and read.start.tolist() == [1, 0, 0, 0, 0, 0]


def test_a_large_maze_is_sparse():
    side = 60
    rows = ["S" + "." * (side - 1)] + ["." * side] * (side - 2) + ["." * (side - 1) + "G"]
    mdp = Maze(tuple(rows), slip=0.1).to_mdp(0.99)
    assert mdp.n_states == 3600 and mdp.continuation.nnz <= 3600 * 4 * 3


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "layout, message",
    [
        ("L9", "L9"),
        (("S..", ".G"), "lengths"),
        ((), "lengths"),
        (("", ""), "lengths"),
        (("..", ".G"), "start"),
        (("SS", ".G"), "start"),
        (("S?", ".G"), "cells"),
    ],
)
def test_bad_layouts(layout, message):
    with pytest.raises(ValueError, match=message):
        Maze(layout)


@pytest.mark.parametrize("layout", [3, None, ("S.", 3)])
def test_layouts_of_a_wrong_type(layout):
    with pytest.raises(TypeError, match="layout"):
        Maze(layout)


@pytest.mark.parametrize("slip", [-0.1, 1.1, float("nan"), float("inf")])
def test_slip_out_of_range(slip):
    for refuse in (lambda: Maze("L1", slip), lambda: move_probabilities(slip)):
        with pytest.raises(ValueError, match="slip"):
            refuse()


@pytest.mark.parametrize("slip", ["0.1", None, True])
def test_slip_of_a_wrong_type(slip):
    with pytest.raises(TypeError, match="slip"):
        Maze("L1", slip)


@pytest.mark.parametrize("action", [-1, 4, 100])
def test_action_out_of_range(action):
    env = Maze("L1")
    env.reset()
    with pytest.raises(ValueError, match="action"):
        env.step(action)


@pytest.mark.parametrize("action", [1.0, None, "up", np.array([0, 1])])
def test_action_of_a_wrong_type(action):
    env = Maze("L1")
    env.reset()
    with pytest.raises(TypeError, match="action"):
        env.step(action)


def test_numpy_integers_are_actions():
    env = Maze("L1")
    env.reset()
    assert env.step(np.int64(RIGHT))[0] == 1
    assert env.step(np.array(RIGHT))[0] == 2


@pytest.mark.parametrize(
    "start, error",
    [(1, ValueError), (2, ValueError), (5, ValueError), (6, ValueError), (-1, ValueError), (0.0, TypeError)],
)
def test_start_on_a_wall_a_terminal_or_nowhere(start, error):
    with pytest.raises(error, match="start|state"):
        Maze("L4").reset(options={"start": start})


def test_unknown_option():
    with pytest.raises(ValueError, match="begin"):
        Maze("L1").reset(options={"begin": 3})


def test_no_step_before_a_reset_or_after_the_end():
    env = Maze("L1")
    for expected in (ValueError, gymnasium.error.ResetNeeded):
        with pytest.raises(expected, match="reset"):
            env.step(UP)
    env.reset(options={"start": 2})
    assert env.step(DOWN)[:3] == (5, 10.0, True)
    with pytest.raises(ValueError, match="reset"):
        env.step(UP)
    env.reset()
    assert env.step(RIGHT)[0] == 1


def test_cells_outside_the_maze():
    maze = Maze("L1")
    for row, column in ((2, 0), (0, 3), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="column is" if row == 0 else "row is"):
            maze.state(row, column)
    for state in (6, -1):
        with pytest.raises(ValueError, match="state"):
            maze.cell(state)


def test_no_discount_where_nothing_ends():
    with pytest.raises(ValueError, match="gamma"):
        Maze(("S.", "..")).to_mdp(1.0)
    with pytest.raises(ValueError, match="gamma"):
        Maze("L1").to_mdp(1.5)
