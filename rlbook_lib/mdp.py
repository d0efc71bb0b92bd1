"""Markov decision processes: the model, its samples and its trajectories (chapter 2).

A model lists what can happen: from state ``s`` action ``a`` leads to ``s'`` with probability
``P(s' | s, a)`` and pays ``r(s, a)`` on average. Rows of a transition matrix are ordered by state, then by
action, so that the pair ``(s, a)`` stands in row ``s * A + a``.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import breadth_first_order

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

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
        ValueError: an argument has the wrong shape, is not finite, is not a distribution or is out of range.
        TypeError: an argument is of a kind that cannot be read as numbers.

    Source: Puterman (1994), section 2.1; Sutton & Barto (2018), section 3.1.
    """

    def __init__(
        self,
        transitions: ArrayLike | sp.spmatrix | sp.sparray,
        rewards: ArrayLike | sp.spmatrix | sp.sparray,
        gamma: float,
        terminal: ArrayLike | None = None,
        start: ArrayLike | None = None,
    ) -> None:
        self.gamma = check_unit_interval("gamma", gamma)
        rows, dense_shape = _transition_rows(transitions)                 # CSR (S*A, S)
        self.n_states = rows.shape[1]
        self.n_actions = rows.shape[0] // self.n_states
        self.axes_lengths = {"S": self.n_states, "A": self.n_actions}     # what the arrays of a call must fit
        self.terminal = _flags("terminal", terminal, self.n_states)
        self.continuation = _without_rows(rows, np.repeat(self.terminal, self.n_actions))
        _check_distribution_rows(self.continuation, self.terminal, self.n_actions)
        loops = _self_loops(self.terminal, self.n_actions)
        with_loops = sp.csr_array(self.continuation + loops)
        self.transitions = with_loops.toarray().reshape(dense_shape) if dense_shape else with_loops
        self.reward_table, self.rewards = self._read_rewards(rewards)
        self.start = self._read_start(start)
        if self.gamma == 1:
            self._require_reachable_end()
        for array in (self.terminal, self.rewards, self.start):
            array.setflags(write=False)

    def __repr__(self) -> str:
        return (f"MDP({self.n_states} states, {self.n_actions} actions, gamma={self.gamma:g}, "
                f"{int(self.terminal.sum())} terminal)")

    @classmethod
    def from_gymnasium(cls, env_or_id: Any, gamma: float) -> MDP:
        """Read the model of a Gymnasium environment that publishes its transition table ``P``.

        Args:
            env_or_id: an environment or a registered id, for example ``"FrozenLake-v1"``. Wrappers are ignored.
            gamma: discount in [0, 1].

        Returns:
            The MDP with sparse transitions. States that an episode cannot reach keep their table rows.

        Raises:
            ValueError: the environment has no table, or enters a state both with and without ending.
        """
        import gymnasium

        env: Any = (gymnasium.make(env_or_id) if isinstance(env_or_id, str) else env_or_id).unwrapped
        if hasattr(env, "to_mdp"):
            return env.to_mdp(gamma)
        if not hasattr(env, "P"):
            raise ValueError(f"env_or_id must have a transition table P or a method to_mdp; {env!r} has neither")
        return _mdp_from_table(cls, env.P, getattr(env, "initial_state_distrib", None), gamma)

    def replace(self, *, gamma: float) -> MDP:
        """The same process with another discount in [0, 1]."""
        rewards = self.rewards if self.reward_table is None else self.reward_table
        return MDP(self.transitions, rewards, gamma, self.terminal, self.start)

    # ------------------------------------------------------------------ policies

    def policy_rows(self, policy: ArrayLike) -> FloatArray:
        """A policy as checked probabilities ``pi(a | s)``, (S, A); see the function ``policy_rows``."""
        return policy_rows(policy, self.n_states, self.n_actions)

    def policy_transitions(self, policy: ArrayLike) -> sp.csr_array:
        """State to state under a policy: ``P_pi(s, s') = sum_a pi(a|s) P(s'|s, a)``, CSR (S, S).

        Rows of terminal states are empty: nothing follows an end.
        """
        array = np.asarray(policy)
        if array.ndim == 1:                                              # pick one row per state: no sums needed
            chosen = self.policy_rows(array).argmax(1)
            return self.continuation[np.arange(self.n_states) * self.n_actions + chosen]
        weights = self.policy_rows(array)
        pairs = self.n_states * self.n_actions
        average = sp.csr_array((weights.ravel(), np.arange(pairs), np.arange(0, pairs + 1, self.n_actions)),
                               shape=(self.n_states, pairs))
        return sp.csr_array(average @ self.continuation)

    def policy_rewards(self, policy: ArrayLike) -> FloatArray:
        """Expected reward of one step under a policy: ``r_pi(s) = sum_a pi(a|s) r(s, a)``, (S,)."""
        return (self.policy_rows(policy) * self.rewards).sum(1)

    # ------------------------------------------------------------------ sampling

    def successors(self, state: int, action: int) -> tuple[IntArray, FloatArray]:
        """The states that can follow ``(state, action)`` and their probabilities; both empty at a terminal."""
        row = self._row(state, action)
        here = slice(self.continuation.indptr[row], self.continuation.indptr[row + 1])
        return self.continuation.indices[here].astype(np.int64), self.continuation.data[here]

    def transition_reward(self, state: int, action: int, next_state: int) -> float:
        """The reward ``R(s, a, s')`` where the model has one per transition, else ``r(s, a)``."""
        if self.reward_table is None:
            return float(self.rewards[state, action])
        if sp.issparse(self.reward_table):
            return float(self.reward_table[self._row(state, action), next_state])
        return float(self.reward_table[state, action, next_state])

    def sample(self, state: int, action: int, rng: np.random.Generator) -> tuple[int, float]:
        """Draw one transition.

        Args:
            state: a state that is not terminal.
            action: an action, 0 to A - 1.
            rng: the source of randomness.

        Returns:
            The next state and the reward.

        Raises:
            ValueError: a terminal state, or a state or action out of range.
        """
        states, probabilities = self.successors(state, action)
        if self.terminal[state]:
            raise ValueError(f"state must not be terminal: the episode ended in state {state}")
        next_state = int(states[_draw(probabilities, rng)])
        return next_state, self.transition_reward(state, action, next_state)

    # ------------------------------------------------------------------ reading the arguments

    def _row(self, state: int, action: int) -> int:
        if not 0 <= state < self.n_states:
            raise ValueError(f"state must be 0 to {self.n_states - 1}, got {state}")
        if not 0 <= action < self.n_actions:
            raise ValueError(f"action must be 0 to {self.n_actions - 1}, got {action}")
        return int(state) * self.n_actions + int(action)

    def _read_rewards(self, rewards: Any) -> tuple[Any, FloatArray]:
        """The reward per transition, or None, and the expected reward (S, A), zero at terminals."""
        pair_shape = (self.n_states, self.n_actions)
        table = None
        if sp.issparse(rewards):
            table = sp.csr_array(rewards, dtype=float)
            if table.shape != self.continuation.shape:
                raise ValueError(f"rewards must have shape {self.continuation.shape}, got {table.shape}")
            values = table.data
        else:
            values = np.asarray(rewards, dtype=float)
            if values.shape == (*pair_shape, self.n_states):
                table = values
            elif values.shape != pair_shape:
                raise ValueError(f"rewards must have shape {pair_shape} or {(*pair_shape, self.n_states)}, "
                                 f"got {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError("rewards must be finite, got NaN or infinity")
        mean = values.copy() if table is None else expected_rewards(self.continuation, table).reshape(pair_shape)
        mean[self.terminal] = 0
        return table, mean

    def _read_start(self, start: ArrayLike | None) -> FloatArray:
        if start is None:
            open_states = ~self.terminal if not self.terminal.all() else self.terminal
            return open_states / open_states.sum()
        array = np.array(start, dtype=float)
        if array.shape != (self.n_states,):
            raise ValueError(f"start must have shape ({self.n_states},), got {array.shape}")
        if not np.isfinite(array).all() or (array < 0).any() or abs(array.sum() - 1) > ROW_SUM_TOLERANCE:
            raise ValueError(f"start must be a distribution over states, got {array}")
        return array

    def _require_reachable_end(self) -> None:
        """With gamma = 1 a return is finite only if the process can end."""
        S = self.n_states
        if not self.terminal.any():
            raise ValueError("gamma = 1 needs a terminal state, and none is marked: returns could be infinite")
        row, next_state = self.continuation.nonzero()
        source = row // self.n_actions
        ends = np.flatnonzero(self.terminal)
        # walk backward from one extra node, S, that stands for "the end"
        backward = sp.csr_array((np.ones(len(source) + len(ends), dtype=np.int8),
                                 (np.r_[next_state, np.full(len(ends), S)], np.r_[source, ends])),
                                shape=(S + 1, S + 1))
        reached = np.zeros(S + 1, dtype=bool)
        reached[breadth_first_order(backward, S, return_predecessors=False)] = True
        if not reached.all():
            stuck = np.flatnonzero(~reached[:S])
            raise ValueError(f"gamma = 1 needs a terminal state within reach of every state; "
                             f"{len(stuck)} cannot reach one, the first is state {stuck[0]}")


def policy_rows(policy: ArrayLike, n_states: int, n_actions: int) -> FloatArray:
    """A policy as probabilities, checked.

    Args:
        policy: actions (S,) as integers, or probabilities (S, A) whose rows sum to one.
        n_states: number of states S.
        n_actions: number of actions A.

    Returns:
        Probabilities ``pi(a | s)``, (S, A).

    Raises:
        ValueError: another shape, an action out of range, or a row that is no distribution.
    """
    array = np.asarray(policy)
    if array.shape == (n_states,):
        if not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"policy of shape (S,) must hold integers, got {array.dtype}")
        if array.min() < 0 or array.max() >= n_actions:
            raise ValueError(f"policy must hold actions 0 to {n_actions - 1}, got {array.min()} to {array.max()}")
        return np.eye(n_actions)[array]
    if array.shape != (n_states, n_actions):
        raise ValueError(f"policy must have shape ({n_states},) or ({n_states}, {n_actions}), got {array.shape}")
    rows = array.astype(float)
    bad = ~np.isfinite(rows).all(1) | (rows < 0).any(1) | (np.abs(rows.sum(1) - 1) > ROW_SUM_TOLERANCE)
    if bad.any():
        state = int(np.flatnonzero(bad)[0])
        raise ValueError(f"policy must be a distribution in every state; in state {state} it is {rows[state]}")
    return rows


def expected_rewards(transitions: Any, reward_table: Any) -> FloatArray:
    """Average the reward of each transition over where it leads: ``r(s, a) = sum_s' P(s'|s, a) R(s, a, s')``.

    Equation: eq-expected-reward

    Args:
        transitions: probabilities, (S, A, S), or sparse (S*A, S).
        reward_table: rewards ``R(s, a, s')``, (S, A, S) or (S*A, S), dense or sparse.

    Returns:
        Expected rewards, (S, A) for dense transitions, (S*A,) for sparse ones.

    Source: Sutton & Barto (2018), equation 3.5.
    """
    if sp.issparse(transitions):
        table = reward_table if sp.issparse(reward_table) else np.reshape(reward_table, transitions.shape)
        return np.asarray(transitions.multiply(table).sum(axis=1)).ravel()
    return (np.asarray(transitions) * np.asarray(reward_table)).sum(axis=2)       # sum over s'


# ---------------------------------------------------------------------- episodes and trajectories

@dataclass(frozen=True)
class Episode:
    """One run through a process: ``s_0, a_0, r_0, s_1, ..., s_T``; ``rewards[t]`` follows ``actions[t]``.

    Args:
        states: (T+1,) integers, the last state included.
        actions: (T,) integers.
        rewards: (T,) floats.
        terminated: the last state is terminal.
        truncated: the step limit cut the episode off; what would have followed still has a value.
    """

    states: IntArray
    actions: IntArray
    rewards: FloatArray
    terminated: bool
    truncated: bool

    def __len__(self) -> int:
        return len(self.actions)


class Trajectory(NamedTuple):
    """States (T+1,), actions (T,), rewards (T,) and the probability of exactly this course of events."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[float, ...]
    probability: float


def sample_episode(
    mdp: MDP, policy: ArrayLike, *, seed: int, start: int | None = None, max_steps: int = 10_000
) -> Episode:
    """Follow a policy from a first state until the process ends or ``max_steps`` have passed.

    Args:
        mdp: the process.
        policy: (S,) integers or (S, A) probabilities.
        seed: a non-negative integer; the same seed gives the same episode.
        start: the first state; default: drawn from ``mdp.start``.
        max_steps: at least 1; reaching it truncates the episode.

    Returns:
        The episode.

    Raises:
        ValueError: a policy that is no distribution, a terminal or unknown start, ``max_steps`` below 1.
    """
    rows = mdp.policy_rows(policy)
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    rng = np.random.default_rng(check_seed(seed))
    state = _draw(mdp.start, rng) if start is None else start
    if not 0 <= state < mdp.n_states or mdp.terminal[state]:
        raise ValueError(f"start must be a state that is not terminal, got {state}")
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


def trajectory_probability(mdp: MDP, policy: ArrayLike, states: ArrayLike, actions: ArrayLike) -> float:
    """Probability of one trajectory: ``mu_0(s_0) prod_t pi(a_t|s_t) P(s_{t+1}|s_t, a_t)``.

    Equation: eq-trajectory-probability

    Args:
        mdp: the process.
        policy: (S,) integers or (S, A) probabilities.
        states: ``s_0, ..., s_T``, (T+1,) integers.
        actions: ``a_0, ..., a_{T-1}``, (T,) integers.

    Returns:
        A probability in [0, 1].

    Raises:
        ValueError: the lengths do not fit, or an action is taken in a terminal state.
    """
    rows, states, actions = mdp.policy_rows(policy), np.asarray(states), np.asarray(actions)
    if states.ndim != 1 or len(states) != len(actions) + 1:
        raise ValueError(f"states must be one longer than actions, got {len(states)} and {len(actions)}")
    if mdp.terminal[states[:-1]].any():
        raise ValueError(f"states must not go on after a terminal state, got {states.tolist()}")
    probability = mdp.start[states[0]]
    for state, action, next_state in zip(states, actions, states[1:]):
        after, chances = mdp.successors(state, action)
        probability *= rows[state, action] * chances[after == next_state].sum()
    return float(probability)


def enumerate_trajectories(mdp: MDP, policy: ArrayLike, horizon: int) -> list[Trajectory]:
    """List every trajectory of positive probability that ends, or that has run for ``horizon`` steps.

    The number of trajectories grows exponentially with the horizon: this is for small processes, to check
    by brute force what the rest of the library computes cleverly.

    Args:
        mdp: the process.
        policy: (S,) integers or (S, A) probabilities.
        horizon: number of steps after which a trajectory is cut, at least 0.

    Returns:
        Trajectories whose probabilities sum to one.

    Raises:
        ValueError: a negative horizon, or a policy that is no distribution.
    """
    rows = mdp.policy_rows(policy)
    if horizon < 0:
        raise ValueError(f"horizon must be at least 0, got {horizon}")
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
                unfinished.append(Trajectory(
                    (*states, int(after)), (*actions, action),
                    (*rewards, mdp.transition_reward(state, action, int(after))),
                    float(probability * rows[state, action] * chance)))
    return finished


# ---------------------------------------------------------------------- checks that other modules share

def check_unit_interval(name: str, value: float) -> float:
    """``value`` as a float, or a ValueError that says ``name`` must lie in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number in [0, 1], got {value!r}")
    if not 0 <= value <= 1:                                                # also refuses NaN
        raise ValueError(f"{name} must be in [0, 1], got {value!r}")
    return float(value)


def check_seed(seed: int) -> int:
    """``seed`` as an int, or an error that says it must be a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be a non-negative integer, got {seed!r}")
    if seed < 0:
        raise ValueError(f"seed must be a non-negative integer, got {seed}")
    return int(seed)


# ---------------------------------------------------------------------- helpers of the constructor

def _draw(probabilities: FloatArray, rng: np.random.Generator) -> int:
    """Draw an index by inverting the cumulative distribution."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def _transition_rows(transitions: Any) -> tuple[sp.csr_array, tuple[int, int, int] | None]:
    """Transitions as CSR (S*A, S), and their dense shape where they came as an array."""
    if sp.issparse(transitions):
        rows = sp.csr_array(transitions, dtype=float, copy=True)
        pairs, states = rows.shape
        if states == 0 or pairs == 0 or pairs % states:
            raise ValueError(f"sparse transitions must have shape (S*A, S), got {rows.shape}")
        rows.sum_duplicates()
        return rows, None
    array = np.asarray(transitions, dtype=float)
    if array.ndim != 3 or array.shape[0] != array.shape[2] or 0 in array.shape:
        raise ValueError(f"transitions must have shape (S, A, S), or be sparse (S*A, S); got {array.shape}")
    states, actions, _ = array.shape
    return sp.csr_array(array.reshape(states * actions, states)), (states, actions, states)


def _flags(name: str, flags: ArrayLike | None, length: int) -> NDArray[np.bool_]:
    if flags is None:
        return np.zeros(length, dtype=bool)
    array = np.asarray(flags)
    if array.shape != (length,) or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must be {length} flags, true or false, got {flags!r}")
    return array.astype(bool)


def _without_rows(rows: sp.csr_array, drop: NDArray[np.bool_]) -> sp.csr_array:
    """The matrix with some rows emptied."""
    keep = np.repeat(~drop, np.diff(rows.indptr))
    counts = np.where(drop, 0, np.diff(rows.indptr))
    # products with 32-bit indices move less memory
    index = np.int32 if max(rows.nnz, *rows.shape) < 2**31 else np.int64
    pointers = np.concatenate(([0], np.cumsum(counts))).astype(index)
    return sp.csr_array((rows.data[keep], rows.indices[keep].astype(index), pointers), shape=rows.shape)


def _self_loops(terminal: NDArray[np.bool_], actions: int) -> sp.csr_array:
    """Rows (S*A, S) that stay in a terminal state and are empty elsewhere."""
    states = np.repeat(np.flatnonzero(terminal), actions)
    pairs = np.flatnonzero(np.repeat(terminal, actions))
    return sp.csr_array((np.ones(len(pairs)), (pairs, states)), shape=(len(terminal) * actions, len(terminal)))


def _check_distribution_rows(rows: sp.csr_array, terminal: NDArray[np.bool_], actions: int) -> None:
    if not np.isfinite(rows.data).all():
        raise ValueError("transitions must be finite, got NaN or infinity")
    if (rows.data < 0).any():
        raise ValueError(f"transitions must be probabilities, got {rows.data.min():g}")
    sums = np.asarray(rows.sum(axis=1)).ravel()
    bad = np.flatnonzero((np.abs(sums - 1) > ROW_SUM_TOLERANCE) & ~np.repeat(terminal, actions))
    if len(bad):
        state, action = divmod(int(bad[0]), actions)
        raise ValueError(f"transitions must sum to 1 over next states; "
                         f"for state {state}, action {action} they sum to {sums[bad[0]]:g}")


def _mdp_from_table(cls: type[MDP], table: Any, start: ArrayLike | None, gamma: float) -> MDP:
    """Build an MDP from a Gymnasium table ``P[s][a] = [(probability, next_state, reward, done), ...]``."""
    n_states, n_actions = len(table), len(table[0])
    entries = [(s, a, *entry) for s in range(n_states) for a in range(n_actions) for entry in table[s][a]
               if entry[0] > 0]
    source, action, chance, after, reward, done = (np.array(column) for column in zip(*entries))
    done = done.astype(bool)
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
    pair, shape = source * n_actions + action, (n_states * n_actions, n_states)
    transitions = sp.csr_array((chance.astype(float), (pair, after)), shape=shape)          # sums duplicates
    paid = sp.csr_array((chance * reward, (pair, after)), shape=shape)
    rewards = paid.copy()
    rewards.data = paid.data / transitions.data                          # mean reward of each transition
    return cls(transitions, rewards, gamma, terminal, start)
