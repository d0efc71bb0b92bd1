"""Temporal differences: learn a guess from the next guess, at every step (chapter 4).

TD(0) and n-step TD predict the value of a fixed policy; SARSA, expected SARSA and Q-learning learn to act.
Each rule stands here twice, with the same numbers: one run on a table, one number at a time, as a book writes it;
and R independent runs in lock-step. ``experience`` says how runs, random numbers and environments work.

In every method an end of the episode is worth 0, while an episode that the step limit cuts off (truncated) is
continued by the estimate of the state it was cut off in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count, islice
from typing import Any, TypeAlias, Unpack

import numpy as np

from rlbook_lib.checks import ANY_FINITE, Array, Count, Environment, Flags, Floats, Range, UnitInterval, checked
from rlbook_lib.dynamic_programming import expected_visits
from rlbook_lib.experience import Control, LearnerOptions, PolicySampler, Prediction, Schedule, ScheduleTable, TableWalk
from rlbook_lib.experience import epsilon_greedy_actions, epsilon_greedy_probabilities, exploration, mean_of
from rlbook_lib.experience import new_history, one_of, one_or_all, open_walk
from rlbook_lib.mdp import MDP, BoolArray, FloatArray, IntArray, Policy
from rlbook_lib.returns import discounted_returns

# ---------------------------------------------------------------------- the error


@checked
def td_target(
    reward: Floats[Array, "*"],
    next_value: Floats[Array, "*", ANY_FINITE, "terminated"],
    terminated: Flags[Array, "*"],
    gamma: UnitInterval,
) -> FloatArray:
    """One step of experience, then the estimate: ``r + gamma * V(s')``, and only ``r`` at an end.

    Equation: eq-td-target

    ``terminated`` where the next state ends the episode: its value is not looked at. A truncation is not an end.

    Source: Sutton & Barto (2018), section 6.1.
    """
    return reward + gamma * np.where(terminated, 0.0, next_value)


@checked
def td_error(
    reward: Floats[Array, "*"],
    value: Floats[Array, "*"],
    next_value: Floats[Array, "*", ANY_FINITE, "terminated"],
    terminated: Flags[Array, "*"],
    gamma: UnitInterval,
) -> FloatArray:
    """How far the target lies above the estimate: ``delta = r + gamma * V(s') - V(s)``.

    Equation: eq-td-error

    The arguments are those of ``td_target``, and the value of the state.

    Source: Sutton & Barto (2018), equation 6.5.
    """
    return td_target(reward, next_value, terminated, gamma) - value


# ---------------------------------------------------------------------- learning to act

Table: TypeAlias = list[list[float]]  # Q, a row for each state
ByVisit: TypeAlias = Callable[[int, int], float] | None  # alpha by state and action, where it depends on the visits
Learning: TypeAlias = tuple[Table, Any, float, ByVisit]  # Q, outcomes, alpha, or what gives it
Steps: TypeAlias = Iterator[tuple[float, ...]]
EpisodeEnd: TypeAlias = tuple[float, int, float, float]  # return, length, the u of the next state and action


@checked
def q_learning(
    env_or_mdp: MDP | Environment, *, alpha: Schedule, epsilon: Schedule, **options: Unpack[LearnerOptions]
) -> Control:
    """Act epsilon-greedily, learn about the best: ``Q(s,a) += alpha * (r + gamma * max_b Q(s',b) - Q(s,a))``.

    Equation: eq-q-learning

    Args:
        env_or_mdp: an MDP, a Maze, or a Gymnasium environment or id with Discrete spaces.
        alpha: step size in [0, 1], or a schedule of the visit count of ``(s, a)`` in its run (from 1).
        epsilon: probability of a uniformly drawn action, in [0, 1], or a schedule of the episode number
            (from 1). Greedy actions that tie are drawn with equal chances.
        options: ``episodes``, ``gamma``, ``seed``, and, if wanted, ``runs=1``, ``history=False``, ``max_steps``;
            see ``experience.LearnerOptions``.

    Tables start at 0.

    Source: Watkins & Dayan (1992); Sutton & Barto (2018), section 6.5.
    """
    return _Control("q_learning", env_or_mdp, alpha, epsilon, **options).learn()


@checked
def sarsa(
    env_or_mdp: MDP | Environment, *, alpha: Schedule, epsilon: Schedule, **options: Unpack[LearnerOptions]
) -> Control:
    """Learn about the policy that acts: ``Q(s,a) += alpha * (r + gamma * Q(s',a') - Q(s,a))``.

    Equation: eq-sarsa

    Here a' is the action that comes next. It is drawn before the update, and then taken.

    Arguments and result are those of ``q_learning``.

    Source: Rummery & Niranjan (1994); Sutton & Barto (2018), section 6.4.
    """
    return _Control("sarsa", env_or_mdp, alpha, epsilon, **options).learn()


@checked
def expected_sarsa(
    env_or_mdp: MDP | Environment, *, alpha: Schedule, epsilon: Schedule, **options: Unpack[LearnerOptions]
) -> Control:
    """SARSA without the luck of a': ``Q(s,a) += alpha * (r + gamma * sum_b pi(b|s') Q(s',b) - Q(s,a))``.

    Equation: eq-expected-sarsa

    Arguments and result are those of ``q_learning``.

    Source: van Seijen et al. (2009); Sutton & Barto (2018), section 6.6.
    """
    return _Control("expected_sarsa", env_or_mdp, alpha, epsilon, **options).learn()


# One run on a table, one number at a time, as a book writes it; ``_Control.iterate`` does the same, to the last bit, for R
# runs in lock-step. The u are uniform numbers of a step; ``outcomes[s][a]`` holds cumulative chances and what happens with
# them; the discount is gamma, or 0 at an end. Lists, the carried ``best`` and no calls make the first one fast.


def _q_learning_episode(
    run: Learning,
    steps: Steps,
    state: int,
    _: float,
    epsilon: float,
    explore: float,
    exploit: float,
    expected: bool = False,
) -> EpisodeEnd:
    """``Q(s,a) += alpha * (r + gamma * max_b Q(s',b) - Q(s,a))``; in expected SARSA a mean in place of the maximum."""
    q, outcomes, alpha, by_visit = run
    total, length, row, best = 0.0, 0, q[state], max(q[state])
    for u, u_transition, u_start, u_first in steps:
        if u < epsilon:
            action = int(u * explore)
        elif row.count(best) == 1:
            action = row.index(best)
        else:
            action = one_of(row, best, (u - epsilon) * exploit)
        chances, results = outcomes[state][action]
        next_state, reward, discount, terminated = results[bisect_right(chances, u_transition) if chances else 0]
        next_row = q[next_state]
        next_best = max(next_row)
        next_value = mean_of(next_row, next_best, epsilon) if expected else next_best
        if by_visit:
            alpha = by_visit(state, action)
        row[action] += alpha * (reward + discount * next_value - row[action])
        total += reward
        length += 1
        if terminated:
            break
        best = next_best if next_state != state else max(row)
        state, row = next_state, next_row
    return total, length, u_start, u_first


def _sarsa_episode(
    run: Learning, steps: Steps, state: int, u: float, epsilon: float, explore: float, exploit: float
) -> EpisodeEnd:
    """``Q(s,a) += alpha * (r + gamma * Q(s',a') - Q(s,a))``: a' is drawn before the update, and then taken."""
    q, outcomes, alpha, by_visit = run
    total, length, action = 0.0, 0, _choose(q[state], u, epsilon, explore, exploit)
    for u, u_transition, u_start, u_first in steps:
        chances, results = outcomes[state][action]
        next_state, reward, discount, terminated = results[bisect_right(chances, u_transition) if chances else 0]
        row, next_row = q[state], q[next_state]
        next_action = _choose(next_row, u, epsilon, explore, exploit)
        if by_visit:
            alpha = by_visit(state, action)
        row[action] += alpha * (reward + discount * next_row[next_action] - row[action])
        total += reward
        length += 1
        if terminated:
            break
        state, action = next_state, next_action
    return total, length, u_start, u_first


def _choose(row: list[float], u: float, epsilon: float, explore: float, exploit: float) -> int:
    return int(u * explore) if u < epsilon else one_of(row, max(row), (u - epsilon) * exploit)


EPISODES: dict[str, Callable[..., EpisodeEnd]] = {
    "q_learning": _q_learning_episode,
    "sarsa": _sarsa_episode,
    "expected_sarsa": partial(_q_learning_episode, expected=True),
}


def _learn_alone(learner: _Control, walk: TableWalk, run: int) -> None:
    """One run on a table, episode after episode."""
    q, visits, play, alpha = learner.q[run].tolist(), [0] * learner.q[run].size, EPISODES[learner.rule], learner.alpha
    outcomes, returns, lengths = walk.table.outcomes(learner.gamma), [], []

    def by_visit(state: int, action: int) -> float:
        visits[state * walk.n_actions + action] += 1
        return alpha.of(visits[state * walk.n_actions + action])

    draws = chain.from_iterable(walk.random.blocks(run, "action", "transition", "start", "first_action"))
    learning = q, outcomes, *((0.0, by_visit) if alpha.constant is None else (alpha.constant, None))
    state, u_first = walk.state.item(run), walk.uniform("first_action").item(run) if learner.rule == "sarsa" else 0.0
    for episode in range(1, walk.episodes + 1):
        if episode == 1 or learner.epsilon.constant is None:
            greed = exploration(learner.epsilons.item(episode), walk.n_actions)
        total, length, u_start, u_first = play(learning, islice(draws, walk.max_steps), state, u_first, *greed)
        state = walk.table.first_state(u_start)
        returns.append(total)
        lengths.append(length)
        if learner.history is not None:
            learner.history[episode, run] = q
    learner.q[run], walk.returns[run], walk.lengths[run] = q, returns, lengths


class _Control:
    """The same for many runs in lock-step, or in a real environment: arrays (n,) hold a number for each run."""

    def __init__(
        self,
        rule: str,
        env_or_mdp: Any,
        alpha: Schedule,
        epsilon: Schedule,
        *,
        gamma: float,
        history: bool = False,
        **walk: Any,
    ) -> None:
        self.rule, self.gamma = rule, gamma
        self.alpha, self.epsilon = ScheduleTable("alpha", alpha), ScheduleTable("epsilon", epsilon)
        columns = ("action", "first_action") if rule == "sarsa" else ("action",)
        self.walk = open_walk(env_or_mdp, columns=columns, **walk)
        self.epsilons = self.epsilon.up_to(self.walk.episodes)
        self.q = np.zeros((self.walk.runs, self.walk.n_states, self.walk.n_actions))
        self.counts = np.zeros(self.q.size, dtype=np.int64)  # visits, if alpha is a schedule
        self.history = new_history(history, self.walk.episodes, self.q)

    def learn(self) -> Control:
        if isinstance(self.walk, TableWalk) and self.walk.one_by_one:
            for run in range(self.walk.runs):
                _learn_alone(self, self.walk, run)
        else:
            for _ in self.iterate():
                pass
        return Control(one_or_all(self.q), self.walk.returns, self.walk.lengths, self.history)

    def iterate(self) -> Iterator[tuple[Any, ...]]:
        walk, q = self.walk, self.q.ravel()  # the same table, flat
        rows = self.q.reshape(-1, walk.n_actions)  # and once more, (R*S, A)
        next_action = self.first_actions()
        while walk.next_step():
            run, state, episode, epsilon = walk.run, walk.state, walk.episode, self.epsilon_in(walk.episode)
            row = walk.offset + state
            if self.rule == "sarsa":
                action = next_action
            else:
                action = epsilon_greedy_actions(_columns(rows, row), epsilon, walk.uniform("action"))
            next_state, reward, terminated, over = walk.step(action)

            q_next = _columns(rows, walk.offset + next_state)  # (A, n)
            if self.rule == "q_learning":
                next_value = np.maximum.reduce(q_next, axis=0)
            elif self.rule == "sarsa":
                next_action = epsilon_greedy_actions(q_next, epsilon, walk.uniform("action"))
                next_value = q_next[next_action, np.arange(len(run))]
            else:
                chances = epsilon_greedy_probabilities(q_next, epsilon, axis=0)
                next_value = sum(chances * q_next, start=np.zeros(len(run)))  # over actions, in order
            here = row * walk.n_actions + action  # Q(s, a) of every run
            delta = td_error(reward, q.take(here), next_value, terminated, self.gamma)
            q[here] += self.step_size(here) * delta

            if self.history is not None and over.any():
                self.history[episode[over] + 1, run[over]] = self.q[run[over]]
            keep = walk.move_on(next_state, over)
            next_action = self.carry(next_action, over, keep)
            yield run, episode, state, action, reward, next_state, terminated, over, delta, self.q

    def epsilon_in(self, episode: IntArray) -> Any:
        """Epsilon of each run's episode."""
        return self.epsilons[episode + 1] if self.epsilon.constant is None else self.epsilon.constant

    def step_size(self, here: IntArray) -> FloatArray | float:
        """Alpha, by the visit count where it is a schedule."""
        if self.alpha.constant is not None:
            return self.alpha.constant
        self.counts[here] += 1
        return self.alpha.at(self.counts[here])

    def first_actions(self) -> IntArray:
        """SARSA's action for the first state of an episode, (n,); the other rules choose later."""
        walk = self.walk
        if self.rule != "sarsa":
            return walk.run
        q = self.q[walk.run, walk.state].T  # (A, n)
        return epsilon_greedy_actions(q, self.epsilon_in(walk.episode), walk.uniform("first_action"))

    def carry(self, next_action: IntArray, over: BoolArray, keep: BoolArray | None) -> IntArray:
        """SARSA's next action is the one it learned from; after an end, a fresh one for the first state."""
        if self.rule != "sarsa":
            return next_action
        if keep is not None:
            next_action, over = next_action[keep], over[keep]
        if over.any():
            next_action = np.where(over, self.first_actions(), next_action)
        return next_action


def _columns(table: FloatArray, rows: IntArray) -> FloatArray:
    """Some rows (n,) of a table (.., A) as columns, (A, n)."""
    return np.ascontiguousarray(table.take(rows, axis=0).T)


# ---------------------------------------------------------------------- prediction


@checked
def td_prediction(
    env_or_mdp: MDP | Environment,
    policy: Policy,
    *,
    alpha: Schedule,
    initial_values: Floats[Array, "S"] | None = None,
    **options: Unpack[LearnerOptions],
) -> Prediction:
    """TD(0): move ``V(s)`` toward the target at every step: ``V(s) += alpha * (r + gamma * V(s') - V(s))``.

    Equation: eq-td-update

    Args:
        env_or_mdp: an MDP, a Maze, or a Gymnasium environment or id with Discrete spaces.
        alpha: step size in [0, 1], or a schedule of the visit count of the state in its run (from 1).
        initial_values: first guess, (S,); default 0. Known terminal states are set to 0.
        options: as for ``q_learning``.

    The ``counts`` of what comes back are numbers of updates.

    Source: Sutton & Barto (2018), section 6.1.
    """
    return _Prediction(env_or_mdp, policy, alpha, 1, initial_values, **options).learn()


@checked
def n_step_td_prediction(
    env_or_mdp: MDP | Environment,
    policy: Policy,
    *,
    alpha: Schedule,
    n: Count,
    initial_values: Floats[Array, "S"] | None = None,
    **options: Unpack[LearnerOptions],
) -> Prediction:
    """n-step TD: ``V(s_t) += alpha * (r_t + ... + gamma^(n-1) r_{t+n-1} + gamma^n V(s_{t+n}) - V(s_t))``.

    Equation: eq-n-step-update

    The sum stops where the episode ends; a truncated episode adds the value of its last state. n = 1 is
    TD(0), and an n that no episode outlasts is every-visit Monte Carlo with step size alpha. The rest is as for
    ``td_prediction``.

    Source: Sutton & Barto (2018), section 7.1.
    """
    return _Prediction(env_or_mdp, policy, alpha, n, initial_values, **options).learn()


class _Prediction:
    """A TD prediction: values, the last n steps of every run, and the loop, for one run and for many."""

    def __init__(
        self,
        env_or_mdp: Any,
        policy: Policy,
        alpha: Schedule,
        n: int,
        initial_values: FloatArray | None,
        *,
        gamma: float,
        history: bool = False,
        **walk: Any,
    ) -> None:
        self.gamma, self.n, self.alpha = gamma, n, ScheduleTable("alpha", alpha)
        self.walk = open_walk(env_or_mdp, **walk)
        self.policy = PolicySampler(policy, self.walk.n_states, self.walk.n_actions)
        first = np.zeros(self.walk.n_states) if initial_values is None else np.array(initial_values, dtype=float)
        if first.shape != (self.walk.n_states,):
            raise ValueError(f"initial_values has shape {first.shape}; expected ({self.walk.n_states},)")
        if isinstance(self.walk, TableWalk):  # ends are worth 0
            first[self.walk.table.ends] = 0
        self.v = np.tile(first, (self.walk.runs, 1))  # (R, S)
        self.counts = np.zeros(self.v.shape, dtype=np.int64)
        self.history = new_history(history, self.walk.episodes, self.v)
        self.last_states = np.zeros((self.n, self.walk.runs), dtype=np.int64)  # ring buffers over time
        self.last_rewards = np.zeros((self.n, self.walk.runs))

    def learn(self) -> Prediction:
        walk = self.walk
        if isinstance(walk, TableWalk) and walk.one_by_one:
            for run in range(walk.runs):
                self.learn_alone(walk, run)
        else:
            for _ in self.iterate():
                pass
        return Prediction(one_or_all(self.v), one_or_all(self.counts), walk.returns, walk.lengths, self.history)

    def learn_alone(self, walk: TableWalk, run: int) -> None:
        """One run on a table, one number at a time: n-step TD as a book writes it, and with n = 1 TD(0).

        The numbers are those of ``iterate``, to the last bit up to n = 126; beyond, returns are summed in blocks there.
        """
        v, counts = self.v[run].tolist(), self.counts[run].tolist()
        waiting: deque[int] = deque()  # states whose update is to come, oldest first
        rewards: deque[float] = deque(maxlen=self.n)  # of the last n steps
        for episode, state, _, reward, next_state, terminated, over in walk.alone(run, self.policy.action):
            waiting.append(state)
            rewards.append(reward)
            if len(waiting) == self.n or over:
                target, targets = 0.0 if terminated else v[next_state], []  # newest state first
                for r in reversed(rewards):
                    target = r + self.gamma * target
                    targets.append(target)
                for _ in range(len(waiting) if over else 1):  # at an end all states that still wait
                    s = waiting.popleft()
                    counts[s] += 1
                    v[s] += self.alpha.of(counts[s]) * (targets.pop() - v[s])
            if over:
                rewards.clear()
                if self.history is not None:
                    self.history[episode + 1, run] = v
        self.v[run], self.counts[run] = v, counts

    def iterate(self) -> Iterator[tuple[Any, ...]]:
        """The same for many runs in lock-step, or in a real environment: arrays (n,) hold a number for each run."""
        walk = self.walk
        for time in count():
            if not walk.next_step():
                return
            run, state, episode = walk.run, walk.state, walk.episode
            action = self.policy.actions(state, walk.uniform("action"))
            next_state, reward, terminated, over = walk.step(action)

            delta = td_error(reward, self.v[run, state], self.v[run, next_state], terminated, self.gamma)
            if self.n == 1:
                self.update(run, state, delta)
            else:
                self.last_states[time % self.n, run], self.last_rewards[time % self.n, run] = state, reward
                tail = np.where(terminated, 0.0, self.v[run, next_state])
                full = ~over & (walk.steps >= self.n)  # the oldest step has its n rewards
                self.n_step_update(time, run[full], tail[full], oldest=self.n, newest=self.n)
                # at an end all states that still wait, oldest first
                self.n_step_update(time, run[over], tail[over], np.minimum(walk.steps[over], self.n), newest=1)
            if self.history is not None and over.any():
                self.history[episode[over] + 1, run[over]] = self.v[run[over]]
            walk.move_on(next_state, over)
            yield run, episode, state, action, reward, next_state, terminated, over, delta, self.v

    def update(self, run: IntArray, state: IntArray, delta: FloatArray) -> None:
        self.counts[run, state] += 1
        self.v[run, state] += self.alpha.at(self.counts[run, state]) * delta

    def n_step_update(self, time: int, run: IntArray, tail: FloatArray, oldest: IntArray | int, newest: int) -> None:
        """Update the states of ``oldest`` to ``newest`` steps ago, counted from 1, each with the rewards since.

        ``tail``, (n,), is worth what comes after the last reward.
        """
        if not run.size:
            return
        longest = int(np.max(oldest))
        then = np.arange(time - longest + 1, time + 1) % self.n
        targets = discounted_returns(np.vstack((self.last_rewards[then][:, run], tail)), self.gamma)
        for ago in range(longest, newest - 1, -1):
            here = np.flatnonzero(oldest >= np.full(len(run), ago))
            state = self.last_states[(time - ago + 1) % self.n, run[here]]
            self.update(run[here], state, targets[longest - ago, here] - self.v[run[here], state])


# ---------------------------------------------------------------------- fixed points with linear features


@checked
def td_fixed_point(
    mdp: MDP, policy: Policy, features: Floats[Array, "S d"], weights: Floats[Array, "S", Range(0)] | None = None
) -> FloatArray:
    """Where semi-gradient TD(0) with ``V(s) = features[s] @ theta`` comes to rest.

    Equation: eq-semi-gradient

    There the expected update vanishes: ``sum d(s) E[delta] features[s] = 0``. theta is (d,); the shortest, where several fit.

    Args:
        features: (S, d); the rows of terminal states count as 0. The identity gives one value per state.
        weights: how often each state is updated, (S,), not negative; default: expected visits per episode.

    Raises:
        ValueError: no weights for a policy that may never end the episode.

    Source: Sutton & Barto (2018), section 9.4.
    """
    x, next_x, reward, weight = _weighted_transitions(mdp, policy, features, weights)
    gradient = x  # of V(s); the target counts as constant
    matrix = (gradient * weight[:, None]).T @ (x - mdp.gamma * next_x)  # (d, d)
    return np.asarray(np.linalg.lstsq(matrix, (gradient * weight[:, None]).T @ reward, rcond=None)[0])


@checked
def residual_gradient_fixed_point(
    mdp: MDP, policy: Policy, features: Floats[Array, "S d"], weights: Floats[Array, "S", Range(0)] | None = None
) -> FloatArray:
    """The minimum of the mean squared TD error: where following its full gradient comes to rest.

    Equation: eq-residual-gradient

    As soon as transitions are random this is not the value function, even with one parameter per state. Arguments,
    result and errors are those of ``td_fixed_point``.

    Source: Baird (1995); Sutton & Barto (2018), section 11.5.
    """
    x, next_x, reward, weight = _weighted_transitions(mdp, policy, features, weights)
    gradient = x - mdp.gamma * next_x  # of -delta: the target moves too
    matrix = (gradient * weight[:, None]).T @ (x - mdp.gamma * next_x)  # (d, d)
    return np.asarray(np.linalg.lstsq(matrix, (gradient * weight[:, None]).T @ reward, rcond=None)[0])


def _weighted_transitions(
    mdp: MDP, policy: Policy, features: FloatArray, weights: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Every transition: features before and after, (N, d), reward (N,), and how often it happens, (N,)."""
    rows = mdp.policy_rows(policy)
    phi = np.where(mdp.terminal[:, None], 0.0, features)
    if weights is None:
        try:
            weights = np.maximum(expected_visits(mdp, policy, gamma=1.0), 0)
        except ValueError as error:
            raise ValueError("weights is None; expected numbers, as the policy may never end the episode") from error
    pair = np.repeat(np.arange(mdp.n_states * mdp.n_actions), np.diff(mdp.continuation.indptr))
    after, state, action = mdp.continuation.indices, pair // mdp.n_actions, pair % mdp.n_actions
    reward = np.array([mdp.transition_reward(*key) for key in zip(state, action, after)])
    return phi[state], phi[after], reward, weights[state] * rows[state, action] * mdp.continuation.data
