"""Monte Carlo: learn values by averaging the returns of whole episodes (chapter 4).

``experience`` says how runs, random numbers and environments work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rlbook_lib.checks import Array, Count, Environment, Floats, Integers, Range, Seed, UnitInterval, checked
from rlbook_lib.experience import (
    Control,
    PolicySampler,
    Prediction,
    Schedule,
    ScheduleTable,
    Walk,
    epsilon_greedy_actions,
    epsilon_greedy_rows,
    harmonic,
    new_history,
    one_or_all,
    open_walk,
    run_out,
)
from rlbook_lib.mdp import MDP, FloatArray, IntArray, Policy


class EpisodeUpdate(NamedTuple):
    """One step of a Monte Carlo generator: the table after an episode, and the episode itself.

    ``table`` is the live table, (R, S) or (R, S, A), without R when ``runs`` is 1: copy it to keep it.
    ``steps`` lists, for each time t, the arrays (run, state, action, reward) of the runs still under way.
    """

    episode: int
    table: FloatArray
    steps: list[tuple[IntArray, IntArray, IntArray, FloatArray]]


# ---------------------------------------------------------------------- prediction


@checked
def monte_carlo_prediction(
    env_or_mdp: MDP | Environment,
    policy: Policy,
    *,
    episodes: Count,
    gamma: UnitInterval,
    seed: Seed,
    runs: Count = 1,
    first_visit: bool = True,
    alpha: Schedule | None = None,
    history: bool = False,
    max_steps: Count | None = None,
) -> Prediction:
    """Estimate ``V^pi(s)`` by the mean of the returns that followed visits to ``s``.

    Equation: eq-mc-estimate

    First-visit estimates are unbiased: given that ``s`` was visited in N episodes, their mean is exactly
    ``V^pi(s)``. An episode cut off by the step limit is continued by the current estimate of its last state.

    Args:
        env_or_mdp: an MDP, a Maze, or a Gymnasium environment or id with Discrete spaces.
        policy: (S,) integers or (S, A) probabilities.
        episodes: number of episodes of every run, at least 1.
        gamma: discount in [0, 1].
        seed: a non-negative integer.
        runs: number of independent runs R.
        first_visit: count the first visit of an episode only; otherwise every visit.
        alpha: step size in [0, 1], or a schedule of the visit count; default: 1/n, the plain mean.
        history: keep the values after every episode.
        max_steps: an episode is truncated here; default: the environment's own limit, or 10000.

    Returns:
        A ``Prediction``; ``counts`` are the numbers of returns averaged.

    Source: Sutton & Barto (2018), section 5.1.
    """
    learner = _Prediction(
        policy,
        env_or_mdp=env_or_mdp,
        episodes=episodes,
        gamma=gamma,
        seed=seed,
        runs=runs,
        first_visit=first_visit,
        alpha=alpha,
        history=history,
        max_steps=max_steps,
    )
    run_out(learner.iterate())
    walk = learner.walk
    return Prediction(
        one_or_all(learner.values), one_or_all(learner.counts), walk.returns, walk.lengths, learner.history
    )


@checked
def iterate_monte_carlo_prediction(
    env_or_mdp: MDP | Environment,
    policy: Policy,
    *,
    episodes: Count,
    gamma: UnitInterval,
    seed: Seed,
    runs: Count = 1,
    first_visit: bool = True,
    alpha: Schedule | None = None,
    max_steps: Count | None = None,
) -> Iterator[EpisodeUpdate]:
    """``monte_carlo_prediction`` as a generator: one ``EpisodeUpdate`` per episode. Same arguments."""
    return _Prediction(
        policy,
        env_or_mdp=env_or_mdp,
        episodes=episodes,
        gamma=gamma,
        seed=seed,
        runs=runs,
        first_visit=first_visit,
        alpha=alpha,
        history=False,
        max_steps=max_steps,
    ).iterate()


@checked
def running_mean(
    mean: Floats[Array, "*"], count: Integers[Array, "*", Range(1)], value: Floats[Array, "*"]
) -> FloatArray | float:
    """The mean of ``count`` numbers from the mean of all but the last: ``mean + (value - mean) / count``.

    Equation: eq-running-mean

    Args:
        mean: mean of the first ``count - 1`` numbers; any number when ``count`` is 1.
        count: how many numbers there are with the new one, at least 1.
        value: the new number.

    Returns:
        The new mean.

    Source: Sutton & Barto (2018), equation 2.3.
    """
    return (mean + (value - mean) / count)[()]


class _Prediction:
    """The state of a Monte Carlo prediction: tables, walk, and the loop over episodes."""

    table: FloatArray  # what is learned, as the caller sees it

    def __init__(self, policy: Policy, **common: Any) -> None:
        self.prepare(**common)
        self.policy = PolicySampler(policy, self.walk.n_states, self.walk.n_actions)
        self.table = self.values = np.zeros((self.walk.runs, self.walk.n_states))
        self.counts = np.zeros(self.values.shape, dtype=np.int64)
        self.history = new_history(self.keep_history, self.walk.episodes, self.table)

    def prepare(
        self,
        env_or_mdp: Any,
        episodes: int,
        gamma: float,
        seed: int,
        runs: int,
        first_visit: bool,
        alpha: Schedule | None,
        history: bool,
        max_steps: int | None,
    ) -> None:
        """Keep what prediction and control have in common."""
        self.gamma, self.first_visit, self.keep_history = gamma, first_visit, history
        self.alpha = ScheduleTable("alpha", harmonic() if alpha is None else alpha)
        self.walk = open_walk(env_or_mdp, runs=runs, episodes=episodes, seed=seed, max_steps=max_steps, together=True)

    def iterate(self) -> Iterator[EpisodeUpdate]:
        for episode, steps, tail in whole_episodes(self.walk, self.choose, self.estimate):
            visits = [(run, self.entry(state, action)) for run, state, action, _ in steps]
            returns = returns_of(steps, tail, self.gamma)
            if self.first_visit:
                visits, returns = self.first_visits(visits, returns)
            for (run, entry), g in zip(visits, returns):
                self.update(run, entry, g)
            everyone = steps[0][0]
            if self.history is not None:
                self.history[episode + 1, everyone] = self.table[everyone]
            yield EpisodeUpdate(episode, one_or_all(self.table), steps)

    def choose(self, run: IntArray, state: IntArray, u: FloatArray) -> IntArray:
        return self.policy.actions(state, u)

    def estimate(self, run: IntArray, state: IntArray) -> FloatArray:
        """What a state is held to be worth, (n,)."""
        return self.values[run, state]

    def entry(self, state: IntArray, action: IntArray) -> IntArray:
        """Which column of ``values`` a visit belongs to."""
        return state

    def first_visits(self, visits: list[Any], returns: list[FloatArray]) -> tuple[list[Any], list[FloatArray]]:
        """Only the first visit of every run to every entry, all in one batch."""
        first_return = np.full(self.values.shape, np.nan)  # (R, S)
        for visit, g in zip(reversed(visits), reversed(returns)):
            first_return[visit] = g  # an earlier visit replaces a later one
        visited = np.nonzero(~np.isnan(first_return))
        return [visited], [first_return[visited]]

    def update(self, run: IntArray, entry: IntArray, g: FloatArray) -> None:
        """Move each value toward its return; with alpha = 1/n this is the running mean."""
        self.counts[run, entry] += 1
        alpha = self.alpha.at(self.counts[run, entry])
        self.values[run, entry] += alpha * (g - self.values[run, entry])


def whole_episodes(
    walk: Walk, choose: Callable[..., IntArray], estimate: Callable[..., FloatArray]
) -> Iterator[tuple[int, list[tuple[IntArray, IntArray, IntArray, FloatArray]], FloatArray]]:
    """Play one episode in every run, again and again.

    Yields:
        The episode number from 0, its steps, and per run what the end is worth: 0 where it terminated,
        ``estimate(run, state)`` of the last state where it was truncated.
    """
    steps: list[tuple[IntArray, IntArray, IntArray, FloatArray]] = []
    tail = np.zeros(walk.runs)
    while walk.next_step():
        run, state, episode = walk.run, walk.state, int(walk.episode[0])
        action = choose(run, state, walk.uniform("action"))
        next_state, reward, terminated, over = walk.step(action)
        steps.append((run, state, action, reward))
        tail[run] = np.where(terminated, 0.0, estimate(run, next_state))
        walk.move_on(next_state, over)
        if walk.all_ended:
            yield episode, steps, tail
            steps = []


def returns_of(steps: list[Any], tail: FloatArray, gamma: float) -> list[FloatArray]:
    """The return ``G_t`` of every step, by the backward recursion, for all runs at once."""
    g = tail.copy()  # (R,)
    returns = []
    for run, _, _, reward in reversed(steps):
        g[run] = reward + gamma * g[run]
        returns.append(g[run])
    return returns[::-1]


# ---------------------------------------------------------------------- control


@checked
def monte_carlo_control(
    env_or_mdp: MDP | Environment,
    *,
    episodes: Count,
    gamma: UnitInterval,
    epsilon: Schedule,
    seed: Seed,
    runs: Count = 1,
    alpha: Schedule | None = None,
    first_visit: bool = True,
    history: bool = False,
    max_steps: Count | None = None,
) -> Control:
    """Estimate ``Q`` from returns and act epsilon-greedily on it, episode after episode.

    Each greedy step improves the policy that its values belong to. But values that average the returns of all
    policies so far belong to none of them: in general nothing promises that this settles, or settles at the
    best policy among those that explore with that epsilon. Often it comes close.
    An episode cut off by the step limit is continued by the current estimate of its last state.

    Args:
        env_or_mdp: an MDP, a Maze, or a Gymnasium environment or id with Discrete spaces.
        episodes: number of episodes of every run, at least 1.
        gamma: discount in [0, 1].
        epsilon: probability of a uniformly drawn action, in [0, 1], or a schedule of the episode number
            (from 1).
        seed: a non-negative integer.
        runs: number of independent runs R.
        alpha: step size in [0, 1], or a schedule of the visit count of ``(s, a)``; default: 1/n, the mean.
        first_visit: count the first visit of ``(s, a)`` in an episode only; otherwise every visit.
        history: keep the tables after every episode.
        max_steps: an episode is truncated here; default: the environment's own limit, or 10000.

    Returns:
        A ``Control``.

    Source: Sutton & Barto (2018), section 5.4.
    """
    learner = _Control(
        epsilon,
        env_or_mdp=env_or_mdp,
        episodes=episodes,
        gamma=gamma,
        seed=seed,
        runs=runs,
        first_visit=first_visit,
        alpha=alpha,
        history=history,
        max_steps=max_steps,
    )
    run_out(learner.iterate())
    return Control(one_or_all(learner.table), learner.walk.returns, learner.walk.lengths, learner.history)


@checked
def iterate_monte_carlo_control(
    env_or_mdp: MDP | Environment,
    *,
    episodes: Count,
    gamma: UnitInterval,
    epsilon: Schedule,
    seed: Seed,
    runs: Count = 1,
    alpha: Schedule | None = None,
    first_visit: bool = True,
    max_steps: Count | None = None,
) -> Iterator[EpisodeUpdate]:
    """``monte_carlo_control`` as a generator: one ``EpisodeUpdate`` per episode. Same arguments."""
    return _Control(
        epsilon,
        env_or_mdp=env_or_mdp,
        episodes=episodes,
        gamma=gamma,
        seed=seed,
        runs=runs,
        first_visit=first_visit,
        alpha=alpha,
        history=False,
        max_steps=max_steps,
    ).iterate()


class _Control(_Prediction):
    """The same on pairs: (s, a) is column s * A + a, and the policy follows the table."""

    def __init__(self, epsilon: Schedule, **common: Any) -> None:
        self.prepare(**common)
        self.epsilon = ScheduleTable("epsilon", epsilon).up_to(self.walk.episodes)
        self.table = np.zeros((self.walk.runs, self.walk.n_states, self.walk.n_actions))
        self.values = self.table.reshape(self.walk.runs, -1)  # the same memory, (R, S*A)
        self.counts = np.zeros(self.values.shape, dtype=np.int64)
        self.history = new_history(self.keep_history, self.walk.episodes, self.table)

    def choose(self, run: IntArray, state: IntArray, u: FloatArray) -> IntArray:
        return epsilon_greedy_actions(self.table[run, state].T, self.epsilon[self.walk.episode + 1], u)

    def estimate(self, run: IntArray, state: IntArray) -> FloatArray:
        q = self.table[run, state].T  # (A, n)
        return (epsilon_greedy_rows(q, self.epsilon[self.walk.episode + 1]) * q).sum(axis=0)

    def entry(self, state: IntArray, action: IntArray) -> IntArray:
        return state * self.walk.n_actions + action
