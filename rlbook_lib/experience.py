"""Experience for tabular learners: many runs at once, from a table or from a real environment (chapter 4).

All tabular learners of the book, in ``monte_carlo`` and ``temporal_difference``, work on R independent runs
side by side: one value table (R, S) or one action-value table (R, S, A). Experience comes from a
``TableWalk``, which samples a transition table for all runs at once, or from an ``EnvironmentWalk``, which
steps a real Gymnasium environment, one run after another. Learners cannot tell the two apart.

What is random: one generator made from ``seed`` feeds all runs; each run reads its own column of the random
numbers. A run therefore never depends on what other runs do. But run ``r`` of ``runs=R`` is not the run that
``seed + r`` would give, and another R gives other numbers.

In order: what learners are told and return; schedules; acting epsilon-greedily; the walks; opening an environment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from rlbook_lib.checks import Array, Count, Environment, Floats, Positive, Seed, UnitInterval, check, checked
from rlbook_lib.mdp import MDP, BoolArray, FloatArray, IntArray, Policy, policy_rows, table_columns

Schedule: TypeAlias = UnitInterval | Callable[[int], float]  # one number, or a number for each count from 1

DEFAULT_MAX_STEPS = 10_000


# ---------------------------------------------------------------------- what learners are told, and return


class RunLimits(TypedDict, total=False):
    """What every tabular learner may be told, by name."""

    runs: Count  #: number of independent runs R; 1 if not given
    history: bool  #: keep the table before the first and after every episode; False if not given
    max_steps: Count | None  #: an episode is truncated here; if not given, at the environment's own limit, or 10000


class LearnerOptions(RunLimits):
    """What every tabular learner must be told, by name."""

    episodes: Count  #: number of episodes of every run
    gamma: UnitInterval  #: discount
    seed: Seed  #: of all randomness


@dataclass(frozen=True)
class Prediction:
    """What a prediction method learned about a fixed policy."""

    values: FloatArray  #: ``V(s)``, (S,), or (R, S) when ``runs`` is above 1
    counts: IntArray  #: how many returns or targets went into each value; same shape
    returns: FloatArray  #: undiscounted return of every episode, (R, episodes)
    lengths: IntArray  #: number of steps of every episode, (R, episodes)
    history: FloatArray | None = None  #: values before the first and after every episode, (episodes+1, R, S)


@dataclass(frozen=True)
class Control:
    """What a control method learned while it acted."""

    q_values: FloatArray  #: ``Q(s, a)``, (S, A), or (R, S, A) when ``runs`` is above 1
    returns: FloatArray  #: undiscounted return of every episode, exploration included, (R, episodes)
    lengths: IntArray  #: number of steps of every episode, (R, episodes)
    history: FloatArray | None = None  #: tables before the first and after every episode, (episodes+1, R, S, A)


# ---------------------------------------------------------------------- schedules


@checked
def harmonic(first: UnitInterval = 1.0, delay: Positive = 1.0) -> Callable[[int], float]:
    """A schedule that falls like 1/n: ``first * delay / (delay + n - 1)`` at count n = 1, 2, ...

    Equation: eq-robbins-monro

    Its sum diverges and the sum of its squares converges: the two conditions of Robbins and Monro, under
    which the noise is averaged out and yet any starting point is forgotten. The defaults give 1/n; at n = delay + 1 the
    value has fallen to half.

    Source: Robbins & Monro (1951); Sutton & Barto (2018), equation 2.7.
    """
    return lambda n: first * delay / (delay + n - 1)


@checked
def linear_decay(first: UnitInterval, last: UnitInterval, steps: Count) -> Callable[[int], float]:
    """A schedule that goes straight from ``first`` at n = 1 to ``last`` at n = ``steps``, and stays there."""
    return lambda n: last if n >= steps else first + (last - first) * (n - 1) / (steps - 1)


class ScheduleTable:
    """A schedule as a growing array, for arrays of counts to look up: entry n is the schedule at count n."""

    def __init__(self, name: str, schedule: Schedule) -> None:
        self.name, self.schedule, self.values = name, schedule, np.zeros(1)
        self.constant: float | None = None if callable(schedule) else schedule

    def at(self, counts: IntArray) -> FloatArray | float:
        """The schedule at an array of counts; a constant stays one number."""
        if self.constant is not None:
            return self.constant
        return self.up_to(int(counts.max()))[counts]

    def of(self, count: int) -> float:
        """The schedule at one count."""
        return self.up_to(count).item(count) if self.constant is None else self.constant

    def up_to(self, count: int) -> FloatArray:
        """The array, with entries up to ``count`` at least."""
        if count >= len(self.values):
            have, need = len(self.values), max(count + 1, 2 * len(self.values))
            at: Any = self.schedule if callable(self.schedule) else lambda n: self.constant
            more = [check(f"{self.name}({n})", at(n), UnitInterval) for n in range(have, need)]
            self.values = np.concatenate([self.values, more])
        return self.values


# ---------------------------------------------------------------------- epsilon-greedy


@checked
def epsilon_greedy_probabilities(
    q_values: Floats[Array, "... A"], epsilon: UnitInterval, axis: Literal[-1, 0] = -1
) -> FloatArray:
    """Mostly a best action, sometimes any: ``epsilon / A``, and ``(1 - epsilon) / ties`` more for the best.

    Equation: eq-epsilon-greedy

    Actions that tie for the best share the greedy mass. ``axis`` is that of the actions; 0 for (A, ...).

    Source: Sutton & Barto (2018), section 5.4.
    """
    is_best = q_values == q_values.max(axis, keepdims=True)
    return epsilon / q_values.shape[axis] + is_best * ((1 - epsilon) / is_best.sum(axis, keepdims=True))


JUST_BELOW_ONE = 1 - 2.0**-40  # keeps a product below the next integer


def epsilon_greedy_actions(q: FloatArray, epsilon: FloatArray | float, u: FloatArray) -> IntArray:
    """Draw one action per column of ``q`` (A, n); ``u`` (n,), uniform in [0, 1), is the only randomness.

    Below epsilon, ``u`` picks any action; above, what is left of it picks one of the best.
    """
    is_best = (q == np.maximum.reduce(q, axis=0)).astype(float)  # (A, n)
    passed = _lower_triangle(len(q)) @ is_best  # best actions among the first 1, 2, ..., A
    _, explore, exploit = exploration(epsilon, len(q))
    rank = (u - epsilon) * exploit * passed[-1]  # which of the best, from 0, and a fraction
    action = np.add.reduce(passed <= rank, axis=0, dtype=np.int32).astype(np.int64)  # all actions before it
    np.copyto(action, u * explore, where=u < epsilon, casting="unsafe")  # rounds down
    return action


def exploration(epsilon: Any, n_actions: int) -> tuple[Any, Any, Any]:
    """Epsilon, one number or an array, and the factors that turn a uniform number into an action: any, or a best one."""
    return (
        epsilon,
        JUST_BELOW_ONE * n_actions / (epsilon + (epsilon == 0)),
        JUST_BELOW_ONE / (1 - epsilon + (epsilon == 1)),
    )


def epsilon_greedy_action(row: list[float], epsilon: float, u: float) -> int:
    """The same as ``epsilon_greedy_actions`` for one row of numbers."""
    _, explore, exploit = exploration(epsilon, len(row))
    return int(u * explore) if u < epsilon else one_of(row, max(row), (u - epsilon) * exploit)


def one_of(row: list[float], best: float, u: float) -> int:
    """One of the places of ``best`` in a row, by a uniform number."""
    if row.count(best) == 1:
        return row.index(best)
    places = [action for action, value in enumerate(row) if value == best]
    return places[int(u * len(places))]


def mean_of(row: list[float], best: float, epsilon: float) -> float:
    """What the epsilon-greedy policy expects of a row."""
    share, floor, total = (1 - epsilon) / row.count(best), epsilon / len(row), 0.0
    for value in row:
        total += (floor + (share if value == best else 0.0)) * value
    return total


@cache
def _lower_triangle(n: int) -> FloatArray:
    """Ones on and below the diagonal: times a column, its running sums."""
    return np.tril(np.ones((n, n)))


# ---------------------------------------------------------------------- experience, for all runs at once


class _Walk:
    """Where experience comes from. The arrays are (n,), one entry for each run that is under way.

    A learner draws with ``uniform``, acts with ``step``, learns, and calls ``move_on``, which files finished
    episodes and starts the next ones. Runs that have played all their episodes leave the arrays: ``run`` says which
    runs the others are, ``began`` and ``total`` when their episode began and what it has paid, and ``offset`` where
    their part begins in a table of all states of all runs, (R*S, A). ``returns`` and ``lengths`` are (R, episodes).
    """

    run: IntArray
    episode: IntArray
    began: IntArray
    total: FloatArray
    random: UniformColumns
    all_ended = False
    clock = 0

    @property
    def steps(self) -> IntArray:
        """Number of steps of the episode under way, (n,)."""
        return self.clock - self.began

    def next_step(self) -> bool:
        """On to the next step and its random numbers; false when every run has played all its episodes."""
        self.random.advance()
        return self.run.size > 0


class TableWalk(_Walk):
    """R runs in lockstep on one transition table; a run that ends an episode starts the next one at once.

    With ``together`` runs wait for each other: the next episode begins when all have ended the last.
    """

    FEW = 40  # so many runs or fewer are quicker one after the other, as plain numbers

    def __init__(
        self,
        table: TransitionTable,
        *,
        runs: int,
        episodes: int,
        max_steps: int,
        rng: np.random.Generator,
        columns: tuple[str, ...],
        together: bool,
    ) -> None:
        self.table, self.runs, self.episodes, self.max_steps = table, runs, episodes, max_steps
        self.n_states, self.n_actions, self.together = table.n_states, table.n_actions, together
        self.random = UniformColumns(rng, table.needs + columns, runs)
        self.flat_returns = np.zeros(episodes * runs)  # run r of episode e stands at e * R + r
        self.flat_lengths = np.zeros(episodes * runs, dtype=np.int64)
        self.returns = self.flat_returns.reshape(episodes, runs).T  # (R, episodes), the same memory
        self.lengths = self.flat_lengths.reshape(episodes, runs).T
        self.one_by_one = runs <= (1 if together else self.FEW)  # no lock-step is needed: ``alone`` gives the same
        self._everyone(episode=0)
        self.random.advance()
        self.state = np.full(runs, self._first_states(self.run))

    def uniform(self, column: str) -> FloatArray:
        """One uniform random number for each run under way, (n,), from its column of that name."""
        return self.random.row(column, self.run)

    def step(self, action: IntArray) -> tuple[IntArray, FloatArray, BoolArray, BoolArray]:
        """Take one action in each run: next states, rewards, and two flags, each (n,).

        These are ``terminated`` (the next state is an end, worth 0) and ``over`` (the episode is, by termination or by
        truncation).
        """
        transition = self.state * self.n_actions + action
        if self.table.slots > 1:
            transition = self.table.draw(transition, self.uniform("transition"))
        reward, terminated = self.table.reward.take(transition), self.table.terminated.take(transition)
        self.clock += 1
        self.total += reward
        over = terminated | (self.began <= self.clock - self.max_steps)
        return self.table.next_state.take(transition), reward, terminated, over

    def move_on(self, next_state: IntArray, over: BoolArray) -> BoolArray | None:
        """Go to the next states, or on to a new episode; returns which entries stay, None for all."""
        self.state, self.all_ended, keep = next_state, False, None
        ended = over.nonzero()[0]
        if ended.size:
            place = self.episode[ended] * self.runs + self.run[ended]
            self.flat_returns[place] = self.total[ended]
            self.flat_lengths[place] = self.clock - self.began[ended]
            self.total[ended] = 0
            self.began[ended] = self.clock
            self.episode = self.episode + over
            if self.together:
                keep = self._wait(~over)
            else:
                self.state = next_state.copy()
                self.state[ended] = self._first_states(place % self.runs)
                if place.max() >= (self.episodes - 1) * self.runs:  # somebody played the last episode
                    keep = self._keep(self.episode < self.episodes)
        return keep

    def alone(
        self, run: int, act: Callable[[int, float], int]
    ) -> Iterator[tuple[int, int, int, float, int, bool, bool]]:
        """One run, step after step, as plain numbers: those that ``step`` and ``move_on`` would give.

        ``act`` chooses by the state and a uniform number. Yields the episode (from 0), state, action, reward,
        next state, terminated and over.
        """
        outcomes, state = self.table.outcomes(1.0), self.state.item(run)
        draws = chain.from_iterable(self.random.blocks(run, "action", "transition", "start"))
        for episode in range(self.episodes):
            total, steps, over = 0.0, 0, False
            while not over:
                u, u_transition, u_start = next(draws)
                action = act(state, u)
                chances, results = outcomes[state][action]
                next_state, reward, _, terminated = results[bisect_right(chances, u_transition)]
                total, steps = total + reward, steps + 1
                over = terminated or steps == self.max_steps
                yield episode, state, action, reward, next_state, terminated, over
                state = next_state
            self.returns[run, episode], self.lengths[run, episode] = total, steps
            state = self.table.first_state(u_start)

    def _wait(self, going: BoolArray) -> BoolArray:
        """Runs whose episode is over leave; when all have left, all come back for the next episode."""
        episode = int(self.episode.max())
        self._keep(going)
        if not self.run.size:
            self.all_ended = True
            if episode < self.episodes:
                self._everyone(episode)
                self.state = np.full(self.runs, self._first_states(self.run))
        return going

    def _everyone(self, episode: int) -> None:
        self.run, self.episode = np.arange(self.runs), np.full(self.runs, episode)
        self.began, self.total = np.full(self.runs, self.clock), np.zeros(self.runs)
        self.offset = self.run * self.n_states

    def _keep(self, keep: BoolArray) -> BoolArray:
        self.run, self.state, self.episode = self.run[keep], self.state[keep], self.episode[keep]
        self.began, self.total, self.offset = self.began[keep], self.total[keep], self.offset[keep]
        return keep

    def _first_states(self, run: IntArray) -> IntArray | int:
        if "start" not in self.table.needs:
            return self.table.start_states[0]
        place = np.searchsorted(self.table.start_cumulative, self.random.row("start", run), side="right")
        return self.table.start_states[place]


class EnvironmentWalk(_Walk):
    """A real Gymnasium environment, one run after another: the arrays have one entry."""

    def __init__(
        self,
        env: Any,
        *,
        runs: int,
        episodes: int,
        max_steps: int,
        rng: np.random.Generator,
        columns: tuple[str, ...],
        close: bool,
    ) -> None:
        self.env, self.runs, self.episodes, self.max_steps = env, runs, episodes, max_steps
        self.n_states, self.n_actions = discrete_size("observation", env), discrete_size("action", env)
        self.first_state, self.first_action = int(env.observation_space.start), int(env.action_space.start)
        self.columns, self.close = columns, close
        self.returns = np.zeros((runs, episodes))
        self.lengths = np.zeros((runs, episodes), dtype=np.int64)
        self.seeds = rng.integers(2**31, size=runs)  # each run on its own, whatever came before
        self._begin(run=0)

    def uniform(self, column: str) -> FloatArray:
        """As of a ``TableWalk``, and so are ``step`` and ``move_on``."""
        return self.random.row(column, np.zeros(1, dtype=np.int64))

    def step(self, action: IntArray) -> tuple[IntArray, FloatArray, BoolArray, BoolArray]:
        """One step of the environment."""
        observation, reward, terminated, truncated, _ = self.env.step(int(action[0]) + self.first_action)
        self.clock += 1
        self.total = self.total + float(reward)
        over = bool(terminated or truncated or self.steps[0] >= self.max_steps)  # both flags: it terminated
        return self._state(observation), np.array([float(reward)]), np.array([bool(terminated)]), np.array([over])

    def move_on(self, next_state: IntArray, over: BoolArray) -> BoolArray | None:
        """Go to the next state, or on to a new episode or run."""
        self.state = next_state
        self.all_ended = bool(over[0])
        keep = None
        if over[0]:
            run, episode = int(self.run[0]), int(self.episode[0])
            self.returns[run, episode], self.lengths[run, episode] = self.total[0], self.steps[0]
            if episode + 1 < self.episodes:
                self.episode = self.episode + 1
                self.began, self.total = np.array([self.clock]), np.zeros(1)
                self.state = self._reset(None)
            elif run + 1 < self.runs:
                self._begin(run + 1)
            else:
                keep = np.zeros(1, dtype=bool)
                self.run, self.state, self.episode = self.run[keep], self.state[keep], self.episode[keep]
                if self.close:
                    self.env.close()
        return keep

    def _begin(self, run: int) -> None:
        """A new run: its own random numbers, and a reset of the environment with its own seed."""
        self.run, self.episode, self.offset = np.array([[run], [0], [run * self.n_states]])
        self.began, self.total = np.array([self.clock]), np.zeros(1)
        self.random = UniformColumns(np.random.default_rng(self.seeds[run]), self.columns, 1)
        self.random.advance()
        self.state = self._reset(int(self.seeds[run]))

    def _reset(self, seed: int | None) -> IntArray:
        return self._state(self.env.reset(seed=seed)[0])

    def _state(self, observation: Any) -> IntArray:
        state = int(observation) - self.first_state
        if not 0 <= state < self.n_states:
            raise ValueError(f"env_or_mdp gave the observation {observation!r}, outside {self.env.observation_space}")
        return np.array([state])


Walk: TypeAlias = TableWalk | EnvironmentWalk


class UniformColumns:
    """Uniform random numbers in [0, 1), drawn in blocks: at each step a row per purpose, a column per run."""

    BLOCK = 1 << 15

    def __init__(self, rng: np.random.Generator, columns: tuple[str, ...], runs: int) -> None:
        self.rng, self.fresh, self.runs = rng, deepcopy(rng), runs
        self.columns = {name: i for i, name in enumerate(columns)}
        self.steps_per_block = max(1, self.BLOCK // (runs * max(1, len(columns))))
        self.block = np.empty((0, len(columns), runs))
        self.step = -1

    def advance(self) -> None:
        """On to the next step's numbers."""
        self.step += 1
        if self.step >= len(self.block):
            self.block = self.rng.random((self.steps_per_block, len(self.columns), self.runs))
            self.step = 0

    def blocks(self, run: int, *columns: str) -> Iterator[Iterator[tuple[float, ...]]]:
        """One run's numbers once more, as Python floats: block after block, step after step, from the second step on.

        A column that was not asked for when this was made is all zeros. All runs are drawn again for each: that keeps no
        more than a block, and costs little while they are few.
        """
        rng, first = deepcopy(self.fresh), 1
        while True:
            here = rng.random((self.steps_per_block, len(self.columns), self.runs))[first:, :, run]  # (steps, columns)
            first = 0
            yield zip(
                *(
                    here[:, self.columns[name]].tolist() if name in self.columns else repeat(0.0, len(here))
                    for name in columns
                )
            )

    def row(self, column: str, run: IntArray) -> FloatArray:
        """The numbers of some runs for one purpose."""
        row = self.block[self.step, self.columns[column]]
        return row if len(run) == self.runs else row[run]


class TransitionTable:
    """Every transition of a finite process, laid out for sampling: slot k of the pair s * A + a.

    Args:
        pair, chance, next_state, reward, terminated: (N,) each, one entry per possible transition.
        start: probabilities (S,) of the first state.
    """

    def __init__(
        self,
        n_states: int,
        n_actions: int,
        pair: IntArray,
        chance: FloatArray,
        next_state: IntArray,
        reward: FloatArray,
        terminated: BoolArray,
        start: FloatArray,
    ) -> None:
        self.n_states, self.n_actions = n_states, n_actions
        order = np.argsort(pair, kind="stable")
        pair = pair[order]
        self.pairs = n_states * n_actions
        slot = np.arange(len(pair)) - np.searchsorted(pair, pair)  # k-th transition of its pair
        self.slots = int(slot.max()) + 1

        def spread(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
            array = np.zeros((self.slots, self.pairs), dtype=dtype)  # (K, S*A)
            array[slot, pair] = values[order]
            return array

        self.cumulative = cumulative_chances(spread(chance, float))  # (K-1, S*A)
        self.next_state = spread(next_state, np.int64).ravel()  # slot k of pair p stands at k*S*A + p
        self.reward = spread(reward, float).ravel()
        self.terminated = spread(terminated, bool).ravel()
        self.start_states = np.flatnonzero(start)
        self.ends = np.zeros(n_states, dtype=bool)  # states in which episodes only end
        self.ends[next_state[terminated]] = True
        self.ends[next_state[~terminated]] = False
        self.ends[self.start_states] = False
        self.start_cumulative = cumulative_chances(start[self.start_states, None])[:, 0]
        self.outcomes = cache(self._outcomes)  # one list for all runs
        self.needs = ("transition",) * (self.slots > 1) + ("start",) * (len(self.start_states) > 1)

    def draw(self, pair: IntArray, u: FloatArray) -> IntArray:
        """Positions of the transitions drawn, by inverting each pair's cumulative distribution."""
        slot = np.add.reduce(u >= self.cumulative.take(pair, axis=1), axis=0, dtype=np.int32)
        return slot * np.int64(self.pairs) + pair

    def _outcomes(self, gamma: float) -> list[list[tuple[list[float], list[tuple[int, float, float, bool]]]]]:
        """By state and action, as lists: cumulative chances, and what can happen with them.

        That is (next_state, reward, discount, terminated); the discount is gamma, or 0 at an end.
        """
        columns = (self.next_state, self.reward, gamma * ~self.terminated, self.terminated)
        results = [
            list(zip(*slots))
            for slots in zip(*(column.reshape(self.slots, self.pairs).T.tolist() for column in columns))
        ]
        pairs = list(zip(self.cumulative.T.tolist(), results))
        return [pairs[first : first + self.n_actions] for first in range(0, self.pairs, self.n_actions)]

    def first_state(self, u: float) -> int:
        """One first state."""
        return self.start_states.item(bisect_right(self.start_cumulative, u) if "start" in self.needs else 0)

    @classmethod
    def from_mdp(cls, mdp: MDP) -> TransitionTable:
        """The table of an MDP; an episode never starts in a terminal state."""
        rows = mdp.continuation
        pair = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        likely = rows.data > 0
        pair, after, chance = pair[likely], rows.indices[likely], rows.data[likely]
        if mdp.reward_table is None:
            reward = mdp.rewards.ravel()[pair]
        elif isinstance(mdp.reward_table, np.ndarray):
            reward = mdp.reward_table.reshape(rows.shape)[pair, after]
        else:
            reward = np.asarray(mdp.reward_table.tocsr()[pair, after]).ravel()
        start = np.where(mdp.terminal, 0.0, mdp.start)
        if start.sum() == 0:
            raise ValueError("env_or_mdp starts in a terminal state; expected a start in another state")
        return cls(mdp.n_states, mdp.n_actions, pair, chance, after, reward, mdp.terminal[after], start / start.sum())


class PolicySampler:
    """Draws actions of a fixed policy, given as (S,) integers or (S, A) probabilities."""

    def __init__(self, policy: Policy, n_states: int, n_actions: int) -> None:
        rows = policy_rows(policy, n_states, n_actions)
        self.cumulative = cumulative_chances(rows.T)  # (A-1, S)
        self._columns: list[list[float]] = []

    def action(self, state: int, u: float) -> int:
        """One action."""
        self._columns = self._columns or self.cumulative.T.tolist()
        return bisect_right(self._columns[state], u)

    def actions(self, state: IntArray, u: FloatArray) -> IntArray:
        """One action per entry of ``state``, (n,)."""
        return (u >= self.cumulative.take(state, axis=1)).sum(axis=0)


def cumulative_chances(chances: FloatArray) -> FloatArray:
    """Cumulative sums down the first axis, without the last; nothing after the last chance can be drawn."""
    more = np.flip(np.maximum.accumulate(np.flip(chances > 0, 0), 0), 0)  # something at k or later
    cumulative = chances.cumsum(axis=0)[:-1]
    cumulative[~more[1:]] = 2.0  # above any uniform number
    return cumulative


# ---------------------------------------------------------------------- opening an environment


@checked
def open_walk(
    env_or_mdp: MDP | Environment,
    *,
    episodes: Count,
    seed: Seed,
    runs: Count = 1,
    max_steps: Count | None = None,
    columns: tuple[str, ...] = ("action",),
    together: bool = False,
) -> Walk:
    """Experience for a learner: a ``TableWalk`` if the dynamics are known, else an ``EnvironmentWalk``.

    Known exactly: an MDP; a Maze; FrozenLake, CliffWalking or Taxi; bare or under the wrappers that
    ``gymnasium.make`` adds, whose time limit is kept. Under any other wrapper the real one is stepped.
    """
    settings: dict[str, Any] = dict(runs=runs, episodes=episodes, rng=np.random.default_rng(seed), columns=columns)
    if isinstance(env_or_mdp, MDP):
        table = TransitionTable.from_mdp(env_or_mdp)
        return TableWalk(table, max_steps=max_steps or DEFAULT_MAX_STEPS, together=together, **settings)
    env = _make(env_or_mdp)
    for space in ("observation", "action"):
        discrete_size(space, env)
    known, own_limit = _known_dynamics(env)
    shortest = min((x for x in (max_steps, own_limit) if x is not None), default=DEFAULT_MAX_STEPS)
    if known is not None:
        return TableWalk(known, max_steps=shortest, together=together, **settings)
    return EnvironmentWalk(env, max_steps=shortest, close=isinstance(env_or_mdp, str), **settings)


def _make(env_or_id: Any) -> Any:
    import gymnasium

    if isinstance(env_or_id, str):
        import rlbook_lib.maze  # noqa: F401  (registers the maze)

        return gymnasium.make(env_or_id)
    if not isinstance(env_or_id, gymnasium.Env):
        raise TypeError(f"env_or_mdp is {env_or_id!r}; expected an MDP, a Gymnasium environment or its id")
    return env_or_id


def _known_dynamics(env: Any) -> tuple[TransitionTable | None, int | None]:
    """The exact transition table below harmless wrappers, or None; and the time limit on the way down."""
    from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

    from rlbook_lib.maze import Maze

    limit = None
    while env is not env.unwrapped:
        if type(env) is TimeLimit:
            limit = min(limit or env._max_episode_steps, env._max_episode_steps)
        elif type(env) not in (OrderEnforcing, PassiveEnvChecker):
            return None, None  # it may change anything, the limit too
        env = env.env
    if type(env) is Maze:
        return TransitionTable.from_mdp(env.to_mdp(0.0)), limit
    sources = {getattr(env, name).__module__ for name in ("step", "reset")}  # a subclass may have its own
    if (
        all(source.startswith("gymnasium.envs.toy_text") for source in sources)
        and hasattr(env, "P")
        and not getattr(env, "fickle_passenger", False)
    ):
        return TransitionTable(len(env.P), len(env.P[0]), *table_columns(env.P), env.initial_state_distrib), limit
    return None, limit


def discrete_size(which: str, env: Any) -> int:
    """Number of elements of a Discrete observation or action space."""
    from gymnasium.spaces import Discrete

    space = getattr(env, f"{which}_space")
    if not isinstance(space, Discrete):
        raise ValueError(f"env_or_mdp has the {which} space {space}; expected a Discrete one")
    return int(space.n)


# ---------------------------------------------------------------------- small things that learners share


def new_history(wanted: bool, episodes: int, table: FloatArray) -> FloatArray | None:
    """Room for the tables before the first and after every episode, filled with the first; or None."""
    return np.repeat(table[None], episodes + 1, axis=0) if wanted else None


def one_or_all(table: NDArray[Any]) -> NDArray[Any]:
    """Without the runs' axis when there is one run."""
    return table[0] if len(table) == 1 else table
