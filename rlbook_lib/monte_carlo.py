"""Monte Carlo: learn values by averaging the returns of whole episodes (chapter 4).

One run on a table is learned one number at a time, as a book writes it; R independent runs in lock-step, with the same
numbers. ``experience`` says how runs, random numbers and environments work.
"""

from __future__ import annotations

from typing import Any, TypeAlias, Unpack

import numpy as np

from rlbook_lib.checks import Array, Environment, Floats, Integers, Range, checked
from rlbook_lib.experience import Control, LearnerOptions, PolicySampler, Prediction, Schedule, ScheduleTable, TableWalk
from rlbook_lib.experience import epsilon_greedy_action, epsilon_greedy_actions, epsilon_greedy_probabilities, mean_of
from rlbook_lib.experience import new_history, one_or_all, open_walk
from rlbook_lib.mdp import MDP, FloatArray, IntArray, Policy
from rlbook_lib.returns import discounted_returns

Visits: TypeAlias = tuple[IntArray, IntArray]  # runs and entries of their tables, (n,) each


@checked
def running_mean(
    mean: Floats[Array, "*"], count: Integers[Array, "*", Range(1)], value: Floats[Array, "*"]
) -> FloatArray | float:
    """The mean of ``count`` numbers from the mean of all but the last: ``mean + (value - mean) / count``.

    Equation: eq-running-mean

    With ``count`` 1, where there was no number before, the mean before may be anything.

    Source: Sutton & Barto (2018), equation 2.3.
    """
    return mean + (value - mean) / count


# ---------------------------------------------------------------------- prediction


@checked
def monte_carlo_prediction(
    env_or_mdp: MDP | Environment,
    policy: Policy,
    *,
    first_visit: bool = True,
    alpha: Schedule | None = None,
    **options: Unpack[LearnerOptions],
) -> Prediction:
    """Estimate ``V^pi(s)`` by the mean of the returns that followed visits to ``s``.

    Equation: eq-mc-estimate

    First-visit estimates are unbiased: given that ``s`` was visited in N episodes, their mean is exactly
    ``V^pi(s)``. An episode cut off by the step limit is continued by the current estimate of its last state.

    Args:
        env_or_mdp: an MDP, a Maze, or a Gymnasium environment or id with Discrete spaces.
        policy: (S,) integers or (S, A) probabilities.
        first_visit: count the first visit of an episode only; otherwise every visit.
        alpha: step size in [0, 1], or a schedule of the visit count; default: 1/n, the plain mean.
        options: ``episodes``, ``gamma``, ``seed``, and, if wanted, ``runs=1``, ``history=False``, ``max_steps``;
            see ``experience.LearnerOptions``.

    The ``counts`` of what comes back are the numbers of returns averaged.

    Source: Sutton & Barto (2018), section 5.1.
    """
    learner = _Prediction(env_or_mdp, policy, first_visit, alpha, **options)
    learner.learn()
    walk, values, counts = learner.walk, one_or_all(learner.table), one_or_all(learner.counts)
    return Prediction(values, counts, walk.returns, walk.lengths, learner.history)


@checked
def monte_carlo_control(
    env_or_mdp: MDP | Environment,
    *,
    epsilon: Schedule,
    alpha: Schedule | None = None,
    first_visit: bool = True,
    **options: Unpack[LearnerOptions],
) -> Control:
    """Estimate ``Q`` from returns and act epsilon-greedily on it, episode after episode.

    Each greedy step improves the policy that its values belong to. But values that average the returns of all
    policies so far belong to none of them: in general nothing promises that this settles, or settles at the
    best policy among those that explore with that epsilon. Often it comes close.
    An episode cut off by the step limit is continued by the current estimate of its last state.

    ``epsilon`` is as for ``q_learning``; the other arguments are as for ``monte_carlo_prediction``, of ``(s, a)`` instead
    of ``s``.

    Source: Sutton & Barto (2018), section 5.4.
    """
    learner = _Control(env_or_mdp, epsilon, first_visit, alpha, **options)
    learner.learn()
    return Control(one_or_all(learner.table), learner.walk.returns, learner.walk.lengths, learner.history)


class _Prediction:
    """Play an episode in every run, then move what was visited toward the returns; again and again."""

    table: FloatArray  # what is learned, as the caller sees it
    numbers: list[float]  # the same of a run that is alone
    playing = 0  # its episode

    def __init__(
        self,
        env_or_mdp: Any,
        behavior: Any,
        first_visit: bool,
        alpha: Schedule | None,
        *,
        gamma: float,
        history: bool = False,
        **walk: Any,
    ) -> None:
        self.gamma, self.first_visit = gamma, first_visit
        self.alpha = None if alpha is None else ScheduleTable("alpha", alpha)
        self.walk = open_walk(env_or_mdp, together=True, **walk)
        self.prepare(behavior)
        self.values = self.table.reshape(self.walk.runs, -1)  # the same memory, (R, entries)
        self.counts = np.zeros(self.values.shape, dtype=np.int64)
        self.history = new_history(history, self.walk.episodes, self.table)

    def prepare(self, policy: Policy) -> None:
        self.policy = PolicySampler(policy, self.walk.n_states, self.walk.n_actions)
        self.table = np.zeros((self.walk.runs, self.walk.n_states))

    def choose(self, run: IntArray, state: IntArray, u: FloatArray) -> IntArray:
        return self.policy.actions(state, u)

    def estimate(self, run: IntArray, state: IntArray) -> FloatArray:
        return self.values[run, state]

    def entry(self, state: Any, action: Any) -> Any:
        return state

    def learn(self) -> None:
        if isinstance(self.walk, TableWalk) and self.walk.one_by_one:
            self.learn_alone(self.walk)
        else:
            self.learn_side_by_side()

    def learn_alone(self, walk: TableWalk) -> None:
        """One run on a table, one number at a time: Monte Carlo as a book writes it.

        The numbers are those of ``learn_side_by_side``, to the last bit in episodes of at most 126 steps; the returns
        of longer ones are summed in blocks there.
        """
        self.numbers, counts = self.values[0].tolist(), self.counts[0].tolist()
        values, steps = self.numbers, []
        for episode, state, action, reward, next_state, terminated, over in walk.alone(0, self.choose_alone):
            steps.append((self.entry(state, action), reward))
            if over:
                g = 0.0 if terminated else self.estimate_alone(next_state)
                visits = []  # each with the return that followed it, the last visit first
                for entry, reward in reversed(steps):
                    g = reward + self.gamma * g
                    visits.append((entry, g))
                counted = dict(visits).items() if self.first_visit else reversed(visits)  # dict: the first visit wins
                for entry, g in counted:
                    counts[entry] += 1
                    if self.alpha is None:
                        values[entry] = running_mean(values[entry], counts[entry], g)
                    else:
                        values[entry] += self.alpha.of(counts[entry]) * (g - values[entry])
                steps = []
                self.values[0] = values
                if self.history is not None:
                    self.history[episode + 1] = self.table
                self.playing = episode + 1
        self.counts[0] = counts

    def choose_alone(self, state: int, u: float) -> int:
        return self.policy.action(state, u)

    def estimate_alone(self, state: int) -> float:
        return self.numbers[state]

    def learn_side_by_side(self) -> None:
        """The same for many runs, or in a real environment: arrays (n,) hold a number for each run."""
        walk, visits, rewards = self.walk, [], []
        tail = np.zeros(walk.runs)  # what comes after the episode: nothing at an end, else the estimate
        while walk.next_step():
            run, state, episode = walk.run, walk.state, int(walk.episode[0])
            action = self.choose(run, state, walk.uniform("action"))
            next_state, reward, terminated, over = walk.step(action)
            visits.append((run, self.entry(state, action)))
            rewards.append(reward)
            tail[run] = np.where(terminated, 0.0, self.estimate(run, next_state))
            walk.move_on(next_state, over)
            if walk.all_ended:
                self.learn_from(visits, self.returns_of(visits, rewards, tail))
                if self.history is not None:
                    everyone = visits[0][0]
                    self.history[episode + 1, everyone] = self.table[everyone]
                visits, rewards = [], []

    def returns_of(self, visits: list[Visits], rewards: list[FloatArray], tail: FloatArray) -> list[FloatArray]:
        """The return ``G_t`` of every visit, for all runs at once."""
        table = np.zeros((len(visits) + 1, len(tail)))  # (T + 1, R): rewards, then once the tail, then zeros
        for t, ((run, _), reward) in enumerate(zip(visits, rewards)):
            table[t, run], table[t + 1, run] = reward, tail[run]
        return [g[run] for g, (run, _) in zip(discounted_returns(table, self.gamma), visits)]

    def learn_from(self, visits: list[Visits], returns: list[FloatArray]) -> None:
        """Move each value toward its return, by 1/n to the running mean, or by alpha."""
        if self.first_visit:
            visits, returns = self.first_visits(visits, returns)
        for at, g in zip(visits, returns):
            self.counts[at] += 1
            if self.alpha is None:
                self.values[at] = running_mean(self.values[at], self.counts[at], g)
            else:
                self.values[at] += self.alpha.at(self.counts[at]) * (g - self.values[at])

    def first_visits(self, visits: list[Visits], returns: list[FloatArray]) -> tuple[list[Any], list[FloatArray]]:
        """Only the first visit of every run to every entry, all in one batch."""
        first_return = np.full(self.values.shape, np.nan)
        for at, g in zip(reversed(visits), reversed(returns)):
            first_return[at] = g  # an earlier visit replaces a later one
        visited = np.nonzero(~np.isnan(first_return))
        return [visited], [first_return[visited]]


class _Control(_Prediction):
    """The same for pairs: (s, a) is entry s * A + a, and the policy follows the table."""

    def prepare(self, epsilon: Schedule) -> None:
        self.epsilon: Any = ScheduleTable("epsilon", epsilon).up_to(self.walk.episodes)
        self.table = np.zeros((self.walk.runs, self.walk.n_states, self.walk.n_actions))

    def choose(self, run: IntArray, state: IntArray, u: FloatArray) -> IntArray:
        return epsilon_greedy_actions(self.table[run, state].T, self.epsilon[self.walk.episode + 1], u)

    def estimate(self, run: IntArray, state: IntArray) -> FloatArray:
        q = self.table[run, state].T  # (A, n)
        return (epsilon_greedy_probabilities(q, self.epsilon[self.walk.episode + 1], axis=0) * q).sum(axis=0)

    def choose_alone(self, state: int, u: float) -> int:
        return epsilon_greedy_action(self.row(state), self.epsilon.item(self.playing + 1), u)

    def estimate_alone(self, state: int) -> float:
        row = self.row(state)
        return mean_of(row, max(row), self.epsilon.item(self.playing + 1))

    def row(self, state: int) -> list[float]:
        return self.numbers[state * self.walk.n_actions : (state + 1) * self.walk.n_actions]

    def entry(self, state: Any, action: Any) -> Any:
        return state * self.walk.n_actions + action
