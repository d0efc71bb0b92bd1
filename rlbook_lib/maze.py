"""The maze: a small grid world as a Gymnasium environment and as an exact ``MDP``.

Six cells are few enough to compute every value by hand, and the same class takes a layout of any size.
A move can slip: with probability ``slip`` the agent is pushed to one of the two sides at a right angle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import scipy  # loads scipy.sparse at its first use

from rlbook_lib.checks import Natural, Seed, UnitInterval, checked
from rlbook_lib.mdp import MDP, FloatArray, IntArray, index

ENVIRONMENT_ID = "rlbook/Maze-v0"

# "S" start, "G" goal, "T" trap, "#" wall, "." free
LAYOUTS: dict[str, tuple[str, ...]] = {
    "L1": ("S..", ".TG"),
    "L2": ("S..", "T.G"),
    "L3": ("S.G", "..T"),
    "L4": ("S#T", "..G"),
}
CELLS = "SGT#."
ACTIONS: tuple[str, ...] = ("up", "down", "left", "right")
GOAL_REWARD = 10.0
TRAP_REWARD = -10.0

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # (row, column) step of each action
SIDES = ((2, 3), (2, 3), (0, 1), (0, 1))  # the two directions at a right angle to each action
DENSE_CELLS = 256  # up to this size to_mdp keeps the full reward table R(s, a, s')


class EpisodeOver(gymnasium.error.ResetNeeded, ValueError):
    """A step where no episode runs: before the first reset, or after the end."""


def register_environments() -> None:
    """Register the maze with Gymnasium, once; its plugin entry point and importing this module both call it."""
    if ENVIRONMENT_ID not in gymnasium.registry:
        gymnasium.register(id=ENVIRONMENT_ID, entry_point="rlbook_lib.maze:Maze")


@checked
def move_probabilities(slip: UnitInterval) -> FloatArray:
    """Probability of really moving in each direction, for each chosen action.

    The chosen direction keeps 1 - slip; each of the two directions at a right angle gets slip / 2.

    Equation: eq-slip

    (4, 4) rows that sum to one: row is the chosen action, column the direction of the move.
    """
    probabilities = (1.0 - slip) * np.eye(len(ACTIONS))
    for action, sides in enumerate(SIDES):
        probabilities[action, list(sides)] = slip / 2
    return probabilities


class Maze(gymnasium.Env[Any, Any]):
    """A grid world with a start, goals, traps and walls.

    The observation is the cell's number, row by row from the top left. Entering a goal pays +10, entering a
    trap pays -10, both end the episode; every other move pays 0. A move into a wall or over the edge leaves
    the agent where it is. A wall cell has a number too, cannot be entered, and counts as terminal (worth 0).
    There is no time limit: wrap the environment in ``gymnasium.wrappers.TimeLimit`` where one is wanted. A picture of
    it makes ``figures.draw_maze``.

    ``layout`` is a name in ``LAYOUTS``, or equally long row strings of the cells "S", "G", "T", "#", "."; ``slip`` the
    probability of being pushed sideways, half of it to each side.

    Raises:
        ValueError: an unknown layout or cell, ragged rows, or not exactly one start.
    """

    @checked
    def __init__(self, layout: str | Sequence[str] = "L1", slip: UnitInterval = 0.0) -> None:
        self.layout, self.slip = _read_layout(layout), slip
        self.rows, self.columns = len(self.layout), len(self.layout[0])
        self.n_states, self.n_actions = self.rows * self.columns, len(ACTIONS)
        self._cells = np.array(list("".join(self.layout)))  # (n_states,) one character each
        self.start_state = int(np.flatnonzero(self._cells == "S")[0])
        self.goal_states = self._states_of("G")
        self.trap_states = self._states_of("T")
        self.wall_states = self._states_of("#")
        self.terminal = np.isin(self._cells, list("GT#"))  # (n_states,)
        self._destinations = self._find_destinations()  # (n_states, 4)
        self._entry_rewards = np.where(
            self._cells == "G", GOAL_REWARD, np.where(self._cells == "T", TRAP_REWARD, 0.0)
        )  # (n_states,)

        self.observation_space = gymnasium.spaces.Discrete(self.n_states)
        self.action_space = gymnasium.spaces.Discrete(self.n_actions)
        self.agent_state = self.start_state  # where the agent stands, also after the end
        self._running = False

    # ---------------------------------------------------------------- cells and numbers

    @checked
    def cell(self, state: Natural) -> tuple[int, int]:
        """The (row, column) of a state; row 0 is the top."""
        return divmod(index("state", state, self.n_states), self.columns)

    @checked
    def state(self, row: Natural, column: Natural) -> int:
        """The number of the cell at (row, column)."""
        return index("row", row, self.rows) * self.columns + index("column", column, self.columns)

    # ---------------------------------------------------------------- the environment

    @checked
    def reset(self, *, seed: Seed | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start an episode: (state, info), with an empty info.

        ``seed`` is of the slips; None keeps the generator as it is. ``options={"start": state}`` starts in another cell than
        "S", which is no wall and not terminal.
        """
        super().reset(seed=seed)
        options = options or {}
        unknown = set(options) - {"start"}
        if unknown:
            raise ValueError(f"options has {sorted(unknown)}; the only option is 'start'")
        start = index("start", options.get("start", self.start_state), self.n_states)
        if self.terminal[start]:
            raise ValueError(f"start is state {start}, cell {self._cells[start]!r}; expected a free cell")
        self.agent_state, self._running = start, True
        return start, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Make one move, 0 up, 1 down, 2 left, 3 right.

        Returns:
            (state, reward, terminated, truncated, info); truncated is always False, info["direction"] names
            the direction of the move after a possible slip.

        Raises:
            EpisodeOver: no episode runs; a ValueError and Gymnasium's ResetNeeded.
        """
        action = index("action", action, self.n_actions)
        if not self._running:
            raise EpisodeOver("step() needs a running episode: call reset() first, and again after an end")
        direction = self._slip(action)
        self.agent_state = int(self._destinations[self.agent_state, direction])
        reward = float(self._entry_rewards[self.agent_state])
        terminated = bool(self.terminal[self.agent_state])
        self._running = not terminated
        return self.agent_state, reward, terminated, False, {"direction": ACTIONS[direction]}

    # ---------------------------------------------------------------- the model

    @checked
    def to_mdp(self, gamma: UnitInterval) -> MDP:
        """The same maze as an exact model.

        The chance of reaching a cell is the sum over the directions that lead there. Goals, traps and walls
        are terminal; every episode starts on "S". The model knows the reward of each transition. Its arrays
        are dense up to 256 cells and sparse above.

        Equation: eq-slip

        Raises:
            ValueError: gamma = 1 where no goal or trap can be reached.
        """
        transitions = self._transition_matrix()
        rewards = transitions.copy()  # R(s, a, s') depends on the entered cell; a terminal cell pays nothing
        source = np.repeat(np.arange(self.n_states), np.diff(rewards.indptr[:: self.n_actions]))
        rewards.data = np.where(self.terminal[source], 0.0, self._entry_rewards[rewards.indices])
        if self.n_states <= DENSE_CELLS:
            shape = (self.n_states, self.n_actions, self.n_states)
            transitions, rewards = transitions.toarray().reshape(shape), rewards.toarray().reshape(shape)
        return MDP(transitions, rewards, gamma, terminal=self.terminal, start=self._cells == "S")

    # ---------------------------------------------------------------- steps of the above

    def _states_of(self, kind: str) -> tuple[int, ...]:
        return tuple(int(s) for s in np.flatnonzero(self._cells == kind))

    def _find_destinations(self) -> IntArray:
        """(n_states, 4): the cell that each move reaches; blocked moves and terminal cells stay."""
        states = np.arange(self.n_states)
        row, column = np.divmod(states, self.columns)
        destinations = np.empty((self.n_states, self.n_actions), dtype=np.int64)
        for direction, (down, right) in enumerate(MOVES):
            to_row = np.clip(row + down, 0, self.rows - 1)
            to_column = np.clip(column + right, 0, self.columns - 1)
            target = to_row * self.columns + to_column
            blocked = self.terminal | (self._cells[target] == "#")
            destinations[:, direction] = np.where(blocked, states, target)
        return destinations

    def _transition_matrix(self) -> scipy.sparse.csr_array:
        """CSR (n_states * 4, n_states): row s * 4 + a is P(. | s, a)."""
        shape = (self.n_states, self.n_actions, self.n_actions)  # state, action, direction
        pairs = np.arange(self.n_states * self.n_actions).reshape(self.n_states, self.n_actions, 1)
        rows = np.broadcast_to(pairs, shape)
        columns = np.broadcast_to(self._destinations[:, None, :], shape)
        values = np.broadcast_to(move_probabilities(self.slip), shape)
        used = values > 0
        # making a CSR array adds up the directions that lead to the same cell
        return scipy.sparse.csr_array((values[used], (rows[used], columns[used])), shape=(pairs.size, self.n_states))

    def _slip(self, action: int) -> int:
        """The direction of the move: one draw decides between the chosen one and the two sides."""
        if self.slip == 0:
            return action
        draw = self.np_random.random()
        if draw >= self.slip:
            return action
        return SIDES[action][0] if draw < self.slip / 2 else SIDES[action][1]


def _read_layout(layout: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(layout, str):
        if layout not in LAYOUTS:
            raise ValueError(f"layout is {layout!r}; expected one of {sorted(LAYOUTS)} or row strings")
        return LAYOUTS[layout]
    rows = tuple(layout)
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"layout has rows of lengths {sorted(lengths)}; expected equal lengths, at least 1")
    unknown = sorted(set("".join(rows)) - set(CELLS))
    if unknown:
        raise ValueError(f"layout has the cells {unknown}; expected only {list(CELLS)}")
    starts = "".join(rows).count("S")
    if starts != 1:
        raise ValueError(f"layout has {starts} start cells 'S'; expected exactly one")
    return rows


register_environments()
