"""Markov decision processes: the model, its samples and its trajectories (chapter 2).

A model lists what can happen: from state ``s`` action ``a`` leads to ``s'`` with probability
``P(s' | s, a)`` and pays ``r(s, a)`` on average. Rows of a transition matrix are ordered by state, then by
action, so that the pair ``(s, a)`` stands in row ``s * A + a``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy  # loads scipy.sparse at its first use
from numpy.typing import NDArray

from rlbook_lib.checks import Array, Count, Environment, Flags, Floats, Integers, Natural, Probabilities, Seed
from rlbook_lib.checks import UnitInterval
from rlbook_lib.checks import check, checked

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Policy: TypeAlias = Integers[Array, "S"] | Probabilities[Array, "S A"]  # an action or its chances, by state

ROW_SUM_TOLERANCE = 1e-8


class MDP:
    """A finite Markov decision process with known transitions.

    Args:
        transitions: ``P(s' | s, a)`` as an array (S, A, S), or as a ``scipy.sparse`` matrix (S*A, S).
        rewards: expected reward ``r(s, a)`` as an array (S, A), or the reward of each transition
            ``R(s, a, s')`` as an array (S, A, S) or, beside sparse transitions, a sparse matrix (S*A, S).
        gamma: discount in [0, 1]. At 1 every state must be able to reach a terminal state.
        terminal: flags (S,), true where an episode ends; default: nowhere. A terminal state is worth 0,
            whatever its rows of ``transitions`` and ``rewards`` say.
        start: probabilities (S,) of the first state; default: uniform over the states that are not terminal.

    Raises:
        ValueError: a row that is no distribution; at gamma = 1 a state from which no terminal state is in reach.

    Source: Puterman (1994), section 2.1; Sutton & Barto (2018), section 3.1.
    """

    @checked
    def __init__(
        self,
        transitions: Array,
        rewards: Array,
        gamma: UnitInterval,
        terminal: Flags[Array, "S"] | None = None,
        start: Array | None = None,
    ) -> None:
        self.gamma = gamma
        rows, dense_shape = _transition_rows(transitions)  # CSR (S*A, S)
        self.n_states = rows.shape[1]
        self.n_actions = rows.shape[0] // self.n_states
        self.axes_lengths = {"S": self.n_states, "A": self.n_actions}  # what the arrays of a call must fit
        flags = np.zeros(self.n_states) if terminal is None else terminal
        self.terminal = np.array(check("terminal", flags, Flags[Array, str(self.n_states)]))
        ending = np.repeat(self.terminal, self.n_actions)  # by row
        self.continuation = _without_rows(rows, ending)
        _require_distributions(self.continuation, ending, self.n_actions)
        stay = ending.nonzero()[0], ending.nonzero()[0] // self.n_actions
        loops = scipy.sparse.csr_array((np.ones(len(stay[0])), stay), shape=rows.shape)
        with_loops = scipy.sparse.csr_array(self.continuation + loops)
        self.transitions = with_loops.toarray().reshape(dense_shape) if dense_shape else with_loops
        self.reward_table, self.rewards = self._read_rewards(rewards)
        if start is None:
            start = ~self.terminal if not self.terminal.all() else self.terminal
            start = start / start.sum()
        self.start = np.array(check("start", start, Probabilities[Array, str(self.n_states)]), dtype=float)
        if self.gamma == 1:
            self._require_reachable_end()
        for array in (self.terminal, self.rewards, self.start):
            array.setflags(write=False)

    def __repr__(self) -> str:
        return (
            f"MDP({self.n_states} states, {self.n_actions} actions, gamma={self.gamma:g}, "
            f"{int(self.terminal.sum())} terminal)"
        )

    @classmethod
    @checked
    def from_gymnasium(cls, env_or_id: Environment, gamma: UnitInterval) -> MDP:
        """Read the model of a Gymnasium environment, or its id, that publishes its transition table ``P``.

        Wrappers are ignored; transitions are sparse. States that an episode cannot reach keep their table rows.

        Raises:
            ValueError: the environment has no table, or enters a state both with and without ending.
        """
        import gymnasium

        if not isinstance(env_or_id, (str, gymnasium.Env)):
            raise TypeError(f"env_or_id is {env_or_id!r}; expected a Gymnasium environment or its id")
        env: Any = (gymnasium.make(env_or_id) if isinstance(env_or_id, str) else env_or_id).unwrapped
        if hasattr(env, "to_mdp"):
            return env.to_mdp(gamma)
        if not hasattr(env, "P"):
            raise ValueError(f"env_or_id is {env!r}; expected one with a transition table P or a method to_mdp")
        return _mdp_from_table(cls, env.P, getattr(env, "initial_state_distrib", None), gamma)

    @checked
    def replace(self, *, gamma: UnitInterval) -> MDP:
        """The same process with another discount in [0, 1]."""
        rewards = self.rewards if self.reward_table is None else self.reward_table
        return MDP(self.transitions, rewards, gamma, self.terminal, self.start)

    # ------------------------------------------------------------------ policies

    @checked
    def policy_rows(self, policy: Policy) -> FloatArray:
        """A policy as probabilities ``pi(a | s)``, (S, A); see the function ``policy_rows``."""
        return policy_rows(policy, self.n_states, self.n_actions)

    @checked
    def policy_transitions(self, policy: Policy) -> scipy.sparse.csr_array:
        """State to state under a policy: ``P_pi(s, s') = sum_a pi(a|s) P(s'|s, a)``, CSR (S, S).

        Rows of terminal states are empty: nothing follows an end.
        """
        weights = policy_rows(policy, self.n_states, self.n_actions)
        if policy.ndim == 1:  # pick one row per state: no sums needed
            return self.continuation[np.arange(self.n_states) * self.n_actions + policy]
        pairs = self.n_states * self.n_actions
        average = scipy.sparse.csr_array(
            (weights.ravel(), np.arange(pairs), np.arange(0, pairs + 1, self.n_actions)), shape=(self.n_states, pairs)
        )
        return scipy.sparse.csr_array(average @ self.continuation)

    @checked
    def policy_rewards(self, policy: Policy) -> FloatArray:
        """Expected reward of one step under a policy: ``r_pi(s) = sum_a pi(a|s) r(s, a)``, (S,)."""
        return (policy_rows(policy, self.n_states, self.n_actions) * self.rewards).sum(1)

    # ------------------------------------------------------------------ sampling

    def successors(self, state: int, action: int) -> tuple[IntArray, FloatArray]:
        """The states that can follow ``(state, action)`` and their probabilities; both empty at a terminal."""
        row = self._row(state, action)
        here = slice(self.continuation.indptr[row], self.continuation.indptr[row + 1])
        return self.continuation.indices[here].astype(np.int64), self.continuation.data[here]

    def transition_reward(self, state: int, action: int, next_state: int) -> float:
        """The reward ``R(s, a, s')`` where the model has one per transition, else ``r(s, a)``."""
        row, _ = self._row(state, action), index("next_state", next_state, self.n_states)
        if self.reward_table is None:
            return float(self.rewards[state, action])
        if scipy.sparse.issparse(self.reward_table):
            return float(self.reward_table[row, next_state])
        return float(self.reward_table[state, action, next_state])

    def sample(self, state: int, action: int, rng: np.random.Generator) -> tuple[int, float]:
        """Draw one transition, from a state that is not terminal: the next state and the reward."""
        states, probabilities = self.successors(state, action)
        if self.terminal[state]:
            raise ValueError(f"state is {state}, a terminal state; expected one in which the episode goes on")
        next_state = int(states[_draw(probabilities, rng)])
        return next_state, self.transition_reward(state, action, next_state)

    # ------------------------------------------------------------------ reading the arguments

    def _row(self, state: int, action: int) -> int:
        return index("state", state, self.n_states) * self.n_actions + index("action", action, self.n_actions)

    def _read_rewards(self, rewards: Array) -> tuple[Any, FloatArray]:
        """The reward per transition, or None, and the expected reward (S, A), zero at terminals."""
        pair_shape = (self.n_states, self.n_actions)
        table = None
        if scipy.sparse.issparse(rewards):
            table = scipy.sparse.csr_array(rewards, dtype=float)
            if table.shape != self.continuation.shape:
                raise ValueError(f"rewards has shape {table.shape}; expected {self.continuation.shape}")
            if table.nnz:
                check("rewards", table.data, Floats[Array, "N"])
        else:
            values = check("rewards", rewards, Floats[Array, "..."]).astype(float)
            if values.shape == (*pair_shape, self.n_states):
                table = values
            elif values.shape != pair_shape:
                raise ValueError(
                    f"rewards has shape {values.shape}; expected {pair_shape} or {(*pair_shape, self.n_states)}"
                )
        mean = values if table is None else expected_rewards(self.continuation, table).reshape(pair_shape)
        mean[self.terminal] = 0
        return table, mean

    def _require_reachable_end(self) -> None:
        """With gamma = 1 a return is finite only if the process can end."""
        S = self.n_states
        if not self.terminal.any():
            raise ValueError("gamma = 1 needs a terminal state, and none is marked: returns could be infinite")
        row, next_state = self.continuation.nonzero()
        source = row // self.n_actions
        ends = np.flatnonzero(self.terminal)
        # walk backward from one extra node, S, that stands for "the end"
        edges = np.r_[next_state, np.full(len(ends), S)], np.r_[source, ends]
        backward = scipy.sparse.csr_array((np.ones(len(edges[0]), dtype=np.int8), edges), shape=(S + 1, S + 1))
        reached = np.zeros(S + 1, dtype=bool)
        reached[scipy.sparse.csgraph.breadth_first_order(backward, S, return_predecessors=False)] = True
        if not reached.all():
            stuck = np.flatnonzero(~reached[:S])
            raise ValueError(
                f"gamma = 1 needs a terminal state within reach of every state; "
                f"{len(stuck)} cannot reach one, the first is state {stuck[0]}"
            )


def index(name: str, value: Any, size: int) -> int:
    """An integer of any kind as a place in a list of this size: the quick check of calls at every step."""
    try:
        place = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; expected a whole number from 0 to {size - 1}") from None
    if not 0 <= place < size:
        raise ValueError(f"{name} is {place}; expected a whole number from 0 to {size - 1}")
    return place


@checked
def policy_rows(policy: Policy, n_states: Count, n_actions: Count) -> FloatArray:
    """A policy, actions (S,) or probabilities (S, A), as probabilities."""
    if policy.shape not in ((n_states,), (n_states, n_actions)):
        raise ValueError(f"policy has shape {policy.shape}; expected ({n_states},) or ({n_states}, {n_actions})")
    if policy.ndim == 2:
        return policy.astype(float)
    if policy.min() < 0 or policy.max() >= n_actions:
        raise ValueError(f"policy holds actions {policy.min()} to {policy.max()}; expected 0 to {n_actions - 1}")
    return np.eye(n_actions)[policy]


@checked
def expected_rewards(transitions: Array, reward_table: Array) -> FloatArray:
    """Average the reward of each transition over where it leads: ``r(s, a) = sum_s' P(s'|s, a) R(s, a, s')``.

    Equation: eq-expected-reward

    Transitions are (S, A, S), or sparse (S*A, S), and so is the table ``R(s, a, s')``, dense or sparse. The expected
    rewards are (S, A) for dense transitions, (S*A,) for sparse ones.

    Source: Sutton & Barto (2018), equation 3.5.
    """
    if scipy.sparse.issparse(transitions):
        table = reward_table if scipy.sparse.issparse(reward_table) else np.reshape(reward_table, transitions.shape)
        return np.asarray(transitions.multiply(table).sum(axis=1)).ravel()
    transitions = check("transitions", transitions, Floats[Array, "S A S"])
    return (transitions * check("reward_table", reward_table, Floats[Array, "S A S"])).sum(axis=2)  # sum over s'


# ---------------------------------------------------------------------- episodes and trajectories


@dataclass(frozen=True)
class Episode:
    """One run through a process: ``s_0, a_0, r_0, s_1, ..., s_T``; ``rewards[t]`` follows ``actions[t]``."""

    states: IntArray  #: (T+1,), the last state included
    actions: IntArray  #: (T,)
    rewards: FloatArray  #: (T,)
    terminated: bool  #: the last state is terminal
    truncated: bool  #: the step limit cut the episode off; what would have followed still has a value

    def __len__(self) -> int:
        return len(self.actions)


class Trajectory(NamedTuple):
    """States (T+1,), actions (T,), rewards (T,) and the probability of exactly this course of events."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[float, ...]
    probability: float


@checked
def sample_episode(
    mdp: MDP, policy: Policy, *, seed: Seed, start: Natural | None = None, max_steps: Count = 10_000
) -> Episode:
    """Follow a policy from a first state until the process ends or ``max_steps`` have passed.

    ``start`` is the first state, by default drawn from ``mdp.start``; reaching ``max_steps`` truncates the episode.
    """
    rows = mdp.policy_rows(policy)
    rng = np.random.default_rng(seed)
    state = _draw(mdp.start, rng) if start is None else start
    if not 0 <= state < mdp.n_states or mdp.terminal[state]:
        raise ValueError(f"start is {state}; expected a state, 0 to {mdp.n_states - 1}, that is not terminal")
    states = [int(state)]
    actions: list[int] = []
    rewards: list[float] = []
    while not mdp.terminal[state] and len(actions) < max_steps:
        action = _draw(rows[state], rng)
        state, reward = mdp.sample(state, action, rng)
        states.append(state)
        actions.append(action)
        rewards.append(reward)
    terminated = bool(mdp.terminal[state])
    return Episode(np.array(states), np.array(actions), np.array(rewards), terminated, not terminated)


@checked
def trajectory_probability(mdp: MDP, policy: Policy, states: Sequence[Natural], actions: Sequence[Natural]) -> float:
    """Probability of one trajectory: ``mu_0(s_0) prod_t pi(a_t|s_t) P(s_{t+1}|s_t, a_t)``.

    Equation: eq-trajectory-probability

    Raises:
        ValueError: the lengths do not fit, or an action is taken in a terminal state.
    """
    rows = mdp.policy_rows(policy)
    if len(states) != len(actions) + 1:
        raise ValueError(f"states has {len(states)} entries; expected one more than actions, {len(actions) + 1}")
    if max(states) >= mdp.n_states:
        raise ValueError(f"states holds {max(states)}; expected states 0 to {mdp.n_states - 1}")
    if mdp.terminal[states[:-1]].any():
        raise ValueError(f"states is {states}; expected none after a terminal state")
    probability = mdp.start[states[0]]
    for state, action, next_state in zip(states, actions, states[1:]):
        after, chances = mdp.successors(state, action)
        probability *= rows[state, action] * chances[after == next_state].sum()
    return float(probability)


@checked
def enumerate_trajectories(mdp: MDP, policy: Policy, horizon: Natural) -> list[Trajectory]:
    """List every trajectory of positive probability that ends, or that has run for ``horizon`` steps.

    The number of trajectories grows exponentially with the horizon: this is for small processes, to check
    by brute force what the rest of the library computes cleverly. The probabilities sum to one.
    """
    rows = mdp.policy_rows(policy)
    unfinished = [Trajectory((int(s),), (), (), float(mdp.start[s])) for s in np.flatnonzero(mdp.start)]
    finished = []
    while unfinished:
        states, actions, rewards, probability = unfinished.pop()
        state = states[-1]
        if mdp.terminal[state] or len(actions) == horizon:
            finished.append(Trajectory(states, actions, rewards, probability))
            continue
        for action in np.flatnonzero(rows[state]).tolist():
            for after, chance in zip(*mdp.successors(state, action)):
                unfinished.append(
                    Trajectory(
                        (*states, int(after)),
                        (*actions, action),
                        (*rewards, mdp.transition_reward(state, action, int(after))),
                        float(probability * rows[state, action] * chance),
                    )
                )
    return finished


# ---------------------------------------------------------------------- helpers of the constructor


def _draw(probabilities: FloatArray, rng: np.random.Generator) -> int:
    """Draw an index by inverting the cumulative distribution."""
    cumulative = probabilities.cumsum()  # methods: numpy's functions of these names take twice as long on a few numbers
    return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))


def _transition_rows(transitions: Any) -> tuple[scipy.sparse.csr_array, tuple[int, int, int] | None]:
    """Transitions as CSR (S*A, S), and their dense shape where they came as an array."""
    if scipy.sparse.issparse(transitions):
        rows = scipy.sparse.csr_array(transitions, dtype=float, copy=True)
        pairs, states = rows.shape
        if states == 0 or pairs == 0 or pairs % states:
            raise ValueError(f"transitions has shape {rows.shape}; expected (S*A, S), as it is sparse")
        rows.sum_duplicates()
        return rows, None
    array = check("transitions", transitions, Floats[Array, "S A S"]).astype(float)
    states, actions, _ = array.shape
    return scipy.sparse.csr_array(array.reshape(states * actions, states)), (states, actions, states)


def _without_rows(rows: scipy.sparse.csr_array, drop: BoolArray) -> scipy.sparse.csr_array:
    """The matrix with some rows emptied."""
    keep = np.repeat(~drop, np.diff(rows.indptr))
    counts = np.where(drop, 0, np.diff(rows.indptr))
    # products with 32-bit indices move less memory
    index = np.int32 if max(rows.nnz, *rows.shape) < 2**31 else np.int64
    pointers = np.concatenate(([0], np.cumsum(counts))).astype(index)
    return scipy.sparse.csr_array((rows.data[keep], rows.indices[keep].astype(index), pointers), shape=rows.shape)


def _require_distributions(rows: scipy.sparse.csr_array, ending: BoolArray, actions: int) -> None:
    if not np.isfinite(rows.data).all():
        raise ValueError("transitions holds NaN or infinite values; expected finite numbers")
    if (rows.data < 0).any():
        raise ValueError(f"transitions holds {rows.data.min():g}; expected probabilities")
    sums = np.asarray(rows.sum(axis=1)).ravel()
    bad = np.flatnonzero((np.abs(sums - 1) > ROW_SUM_TOLERANCE) & ~ending)
    if len(bad):
        state, action = divmod(int(bad[0]), actions)
        raise ValueError(
            f"transitions for state {state}, action {action} sum to {sums[bad[0]]:g}; "
            "expected probabilities that sum to 1 over next states"
        )


def table_columns(table: Any) -> tuple[IntArray, FloatArray, IntArray, FloatArray, BoolArray]:
    """What a Gymnasium table ``P[s][a] = [(probability, next_state, reward, done), ...]`` holds: s * A + a, and these four."""
    n_states, n_actions = len(table), len(table[0])
    pairs = [(s, a) for s in range(n_states) for a in range(n_actions)]
    rows = [(s * n_actions + a, *entry) for s, a in pairs for entry in table[s][a] if entry[0] > 0]
    pair, chance, after, reward, done = (np.array(column) for column in zip(*rows))
    return pair, chance, after, reward, done.astype(bool)


def _mdp_from_table(cls: type[MDP], table: Any, start: Array, gamma: float) -> MDP:
    n_states, n_actions = len(table), len(table[0])
    pair, chance, after, reward, done = table_columns(table)
    source = pair // n_actions
    # only states that an episode can be in decide where episodes end
    inside = np.ones(n_states, dtype=bool) if start is None else np.asarray(start) > 0
    while True:
        reached = inside.copy()
        reached[after[inside[source] & ~done]] = True
        if (reached == inside).all():
            break
        inside = reached
    visited = inside[source]
    terminal = np.zeros(n_states, dtype=bool)
    terminal[after[visited & done]] = True
    clash = np.flatnonzero(terminal[after] & visited & ~done & ~terminal[source])
    if len(clash):
        raise ValueError(f"env_or_id enters state {after[clash[0]]} both with and without ending the episode")
    shape = n_states * n_actions, n_states
    transitions = scipy.sparse.csr_array((chance.astype(float), (pair, after)), shape=shape)  # sums duplicates
    paid = scipy.sparse.csr_array((chance * reward, (pair, after)), shape=shape)
    rewards = paid.copy()
    rewards.data = paid.data / transitions.data  # mean reward of each transition
    return cls(transitions, rewards, gamma, terminal, start)
