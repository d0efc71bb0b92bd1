"""Dynamic programming: values and policies computed from a known model (chapters 2 and 3).

The optimality backup, then the three solvers that repeat it: value iteration, policy iteration and modified
policy iteration. Each is a generator of sweeps (``iterate_...``), so that it can be watched, and a plain
function that runs the generator out. Then the other backups, exact evaluation, how episodes end, error
bounds, and the case without a discount.

V is (S,), Q is (S, A), both in units of reward and 0 at terminal states, whatever is handed in for these. A
policy is (S,) integers or (S, A) probabilities. A tolerance is the largest error of a value.

At gamma = 1 the optimum is the largest total reward of all policies that end, or come to rest: that go on for
ever only where every step pays 0, which earns 0. Some policy attains it. Endless walks whose gains and losses
cancel have no total and do not count. A loop that pays on average can be walked for ever: then there is no
optimum, and the solvers raise a ValueError, as exact evaluation does of a policy that may never end. A
RuntimeError says that sweeps do not settle.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads scipy.sparse at its first use

from rlbook_lib.checks import Array, Floats, Natural, NotNegative, Positive, UnitInterval, checked
from rlbook_lib.mdp import MDP, BoolArray, FloatArray, IntArray, Policy, policy_rows


@checked
def bellman_optimality_backup(mdp: MDP, values: Floats[Array, "S"]) -> FloatArray:
    """One optimality backup: ``max_a [r(s, a) + gamma sum_s' P(s'|s, a) V(s')]``.

    Equation: eq-bellman-optimality-v

    Source: Sutton & Barto (2018), equation 3.19.
    """
    return q_from_values(mdp, values).max(1)


@checked
def value_iteration(mdp: MDP, tolerance: Positive = 1e-8) -> Solution:
    """Optimal values by value iteration; ``iterate_value_iteration`` shows the sweeps.

    The error bound holds, and is at most the tolerance when gamma < 1. At gamma = 1, where some policy never
    ends, sweeps bound nothing: policy iteration has the last word.
    """
    return _run_out(mdp, iterate_value_iteration(mdp, tolerance=tolerance), tolerance)


@checked
def iterate_value_iteration(
    mdp: MDP, values: Floats[Array, "S"] | None = None, tolerance: Positive = 1e-8
) -> Iterator[Sweep]:
    """Value iteration: repeat V <- max_a [r + gamma P V].

    A sweep's error bound is the contraction bound. The last sweep is moved to the middle of the interval that
    must hold V* (the span bound), which needs far fewer sweeps where the discount is close to 1.

    At gamma = 1 the bound uses the longest expected episode over all policies; it is infinite where some
    policy never ends, and then the sweeps stop when the largest change is at most the tolerance. They start
    at zero where that is safe, else at the values of a policy that ends.

    Equation: eq-bellman-optimality-v, eq-value-error-bound, eq-span-bound

    Args:
        tolerance: stop once the error bound is at most this, above 0, in units of reward. If it asks for more
            digits than numbers have, the sweeps stop where rounding takes over, and the bound says so.

    Source: Sutton & Barto (2018), section 4.4; Puterman (1994), section 6.3.
    """
    start = _first_values(mdp, may_fall=True) if values is None else _zero_at_ends(mdp, values)
    return _sweeps(mdp, start, tolerance)


def _sweeps(mdp: MDP, values: FloatArray, tolerance: float, advance: Advance | None = None) -> Iterator[Sweep]:
    """Back up until the error bound is small enough."""
    accuracy, before = _Accuracy(mdp), math.inf
    for iteration in itertools.count(1):
        q_values = _backup(mdp, values)
        policy, new_values = _take_best(q_values)
        change = new_values - values
        residual = float(max(change.max(), -change.min()))
        bound = float(value_error_bound(residual, accuracy.most))
        shift, half_width = accuracy.interval(change)
        rounding = accuracy.rounding(new_values, reach=bound)
        settled = half_width <= rounding < math.inf or accuracy.is_stuck(new_values, residual, before)
        if half_width + rounding <= tolerance or settled and new_values.dtype == FINEST:
            moved = np.where(mdp.terminal, 0.0, shift)
            values, q_values = _plain(new_values + moved), _plain(q_values + moved[:, None])
            yield Sweep(iteration, values, q_values, policy, residual, half_width + rounding)
            return
        yield Sweep(iteration, _plain(new_values), _plain(q_values), policy, residual, bound + rounding)
        if accuracy.most >= 1:
            if residual <= tolerance:
                return
            if iteration == UNDISCOUNTED_SWEEPS:
                raise RuntimeError(f"at gamma = 1 values change by {residual:.3g} after {iteration} sweeps")
        values, before = new_values, residual
        if settled and values.dtype == float:  # only rounding is in the way: go on with longer numbers
            values, accuracy = values.astype(FINEST), _Accuracy(mdp, accuracy.remaining, FINEST)
        elif advance and values.dtype == float:
            values = advance(policy, values, float(change.max() - change.min()))


def _take_best(q_values: FloatArray) -> tuple[IntArray, FloatArray]:
    """The greedy policy, of several best actions the first, and its values."""
    states, actions = q_values.shape
    if actions <= FEW_ACTIONS and states >= MANY_STATES:  # by columns: numpy is slow on a lot of short rows
        best, below = functools.reduce(np.maximum, q_values.T), np.ones(states, dtype=bool)
        policy = np.zeros(states, dtype=np.int64)
        for column in q_values.T[:-1]:
            below &= column < best
            policy += below
        return policy, best
    policy = q_values.argmax(1)
    return policy, q_values[np.arange(states), policy]


@checked
def policy_iteration(mdp: MDP) -> Solution:
    """Optimal values by policy iteration, exact up to rounding; ``iterate_policy_iteration`` shows the steps."""
    for last in iterate_policy_iteration(mdp):
        pass
    return Solution(last.values, last.q_values, last.policy, last.iteration, last.error_bound)


@checked
def iterate_policy_iteration(mdp: MDP) -> Iterator[Sweep]:
    """Policy iteration: evaluate the policy exactly, make it greedy, until no state changes its action.

    A sweep holds V and Q of the policy evaluated, and the policy improved on them. An action is kept unless
    another is strictly better. At gamma = 1 the first policy is one that ends; then ties cannot make a later
    one walk forever.

    Equation: eq-matrix-form, eq-policy-improvement

    Source: Howard (1960); Sutton & Barto (2018), section 4.3.
    """
    model, rest = _with_rest(mdp)
    policy = _policy_that_ends(model) if mdp.gamma == 1 else model.rewards.argmax(1)
    return _policy_sweeps(mdp, model, rest, policy)


def _improvements(mdp: MDP, policy: IntArray) -> Iterator[tuple[FloatArray, FloatArray, IntArray, bool]]:
    """Evaluate, improve, until nothing changes: V, Q, the policy improved on them, and if it is the last.

    A better policy earns more; where it does not, rounding chose it, and could choose to and fro for ever.
    """
    last, earned = False, -math.inf
    while not last:
        transitions = mdp.policy_transitions(policy)
        _require_no_paying_loop(mdp, transitions)
        values = policy_evaluation(mdp, policy)
        q_values = _backup(mdp, values)
        steps = _steps_to(mdp.terminal, transitions).max() if mdp.gamma == 1 else 1 / (1 - mdp.gamma)
        improved = _improve(q_values, policy, slack=2 * _Accuracy(mdp, remaining=steps).rounding(values))
        last = bool((improved == policy).all()) or values.sum() <= earned
        yield values, q_values, improved, last
        policy, earned = improved, values.sum()


def _improve(q_values: FloatArray, policy: IntArray, slack: float) -> IntArray:
    """The greedy policy, but a state keeps its action unless another is better by more than the slack."""
    own = np.take_along_axis(q_values, policy[:, None], 1)[:, 0]
    return np.where(q_values.max(1) > own + slack, greedy_policy(q_values), policy)


@checked
def modified_policy_iteration(mdp: MDP, tolerance: Positive = 1e-8) -> Solution:
    """Optimal values by modified policy iteration: the fast way for large sparse models. Bounds as above."""
    return _run_out(mdp, iterate_modified_policy_iteration(mdp, tolerance), tolerance)


@checked
def iterate_modified_policy_iteration(mdp: MDP, tolerance: Positive = 1e-8) -> Iterator[Sweep]:
    """Modified policy iteration: value iteration that evaluates each greedy policy a little.

    After each optimality backup the chosen rows of P alone are applied until the span of the changes has
    fallen twentyfold; such a sweep costs 1 / A of a backup. Where the rewards tell most states nothing about
    their actions, as in a maze, it starts from a policy that takes the shortest way to a promising state.
    Bounds are as in ``iterate_value_iteration``. At gamma = 1 the values must rise: evaluating an endless
    policy could push them below V*, to a false fixed point. So they start at zero only if each state has an
    action that costs nothing, or if every walk ends; else at the values of a policy that ends.

    Equation: eq-bellman-optimality-v, eq-span-bound

    Source: Puterman (1994), section 6.5.
    """
    start = _first_values(mdp, may_fall=False) if mdp.gamma == 1 else _head_start(mdp)
    return _sweeps(mdp, start, tolerance, _PartialEvaluation(mdp, tolerance))


# ---------------------------------------------------------------------- what solvers return


@dataclass(frozen=True)
class Sweep:
    """What one sweep of a solver has reached."""

    iteration: int  #: 1 for the first sweep
    values: FloatArray  #: V after the sweep, (S,)
    q_values: FloatArray  #: Q after the sweep, (S, A)
    policy: IntArray  #: (S,) integers, greedy on ``q_values``
    residual: float  #: largest change of a value that a Bellman backup made (sup norm)
    error_bound: float  #: a sup-norm bound on the distance of ``values`` to the exact solution


@dataclass(frozen=True)
class Solution:
    """The answer of a solver.

    The error bound is infinite only at gamma = 1, where a loop with rewards breaks even so nearly that rounding
    could hide a gain.
    """

    values: FloatArray  #: optimal values, (S,), within ``error_bound``
    q_values: FloatArray  #: optimal action values, (S, A), within ``error_bound``
    policy: IntArray  #: (S,), greedy on ``q_values``; at gamma = 1 it is the tie that earns them
    iterations: int  #: number of sweeps, in policy iteration of evaluations
    error_bound: float  #: sup-norm bound on the error of ``values``


# ---------------------------------------------------------------------- backups and links


@checked
def q_from_values(mdp: MDP, values: Floats[Array, "S"]) -> FloatArray:
    """Action values from state values: ``Q(s, a) = r(s, a) + gamma sum_s' P(s'|s, a) V(s')``.

    Equation: eq-q-from-v

    Source: Sutton & Barto (2018), section 3.5.
    """
    return _backup(mdp, _zero_at_ends(mdp, values))


@checked
def values_from_q(policy: Policy, q_values: Floats[Array, "S A"]) -> FloatArray:
    """State values from action values: V(s) = sum_a pi(a|s) Q(s, a).

    Equation: eq-v-from-q

    Source: Sutton & Barto (2018), section 3.5.
    """
    return (policy_rows(policy, *q_values.shape) * q_values).sum(1)  # sum over actions


@checked
def bellman_expectation_backup(mdp: MDP, policy: Policy, values: Floats[Array, "S"]) -> FloatArray:
    """One backup under a policy: ``sum_a pi(a|s) [r(s, a) + gamma sum_s' P(s'|s, a) V(s')]``.

    Equation: eq-bellman-v

    It equals ``values`` only at V of this policy.

    Source: Sutton & Barto (2018), equation 3.14.
    """
    return values_from_q(policy, q_from_values(mdp, values))


@checked
def bellman_expectation_backup_q(mdp: MDP, policy: Policy, q_values: Floats[Array, "S A"]) -> FloatArray:
    """One backup under a policy: ``r(s, a) + gamma sum_s' P(s'|s, a) sum_a' pi(a'|s') Q(s', a')``.

    Equation: eq-bellman-q

    Source: Sutton & Barto (2018), exercise 3.17.
    """
    return q_from_values(mdp, values_from_q(policy, q_values))


@checked
def bellman_optimality_backup_q(mdp: MDP, q_values: Floats[Array, "S A"]) -> FloatArray:
    """One optimality backup: ``r(s, a) + gamma sum_s' P(s'|s, a) max_a' Q(s', a')``.

    Equation: eq-bellman-optimality-q

    Source: Sutton & Barto (2018), equation 3.20.
    """
    return q_from_values(mdp, q_values.max(1))


@checked
def greedy_policy(q_values: Floats[Array, "S A"]) -> IntArray:
    """The action of largest value in each state; of several, the first.

    Equation: eq-greedy

    Source: Sutton & Barto (2018), equation 4.9.
    """
    return _take_best(q_values)[0]


# ---------------------------------------------------------------------- exact evaluation


@checked
def policy_evaluation(mdp: MDP, policy: Policy) -> FloatArray:
    """Exact values of a policy: the solution of (I - gamma P_pi) V = r_pi.

    The linear system is solved directly, by a sparse factorization above 200 states. On large models without
    local structure the factors fill up; ``truncated_policy_evaluation`` is the way there.

    Equation: eq-matrix-form, eq-state-value

    Source: Puterman (1994), section 6.1; Sutton & Barto (2018), section 4.1.
    """
    rewards, transitions = mdp.policy_rewards(policy), mdp.policy_transitions(policy)
    if mdp.gamma == 1:
        _require_end(mdp, transitions)
    return _solve(mdp.gamma * transitions, rewards)


@checked
def truncated_policy_evaluation(mdp: MDP, policy: Policy, values: Floats[Array, "S"], sweeps: Natural) -> FloatArray:
    """Evaluate a policy for a few sweeps only: apply V <- r_pi + gamma P_pi V so many times.

    With the policy that is greedy on the values this is one step of modified policy iteration.

    Equation: eq-modified-policy-iteration

    Source: Puterman & Shin (1978); Puterman (1994), section 6.5.
    """
    transitions = mdp.gamma * mdp.policy_transitions(policy)
    return _follow(transitions, mdp.policy_rewards(policy), _zero_at_ends(mdp, values), sweeps)


def _follow(transitions: scipy.sparse.csr_array, rewards: FloatArray, values: FloatArray, sweeps: int) -> FloatArray:
    """V <- r + gamma P V so many times; ``transitions`` hold gamma P."""
    for _ in range(sweeps):
        values = transitions @ values
        values += rewards
    return values


@checked
def action_values(mdp: MDP, policy: Policy) -> FloatArray:
    """Exact action values of a policy: take action a now, follow the policy afterwards.

    Equation: eq-action-value

    Source: Sutton & Barto (2018), equation 3.13.
    """
    return _backup(mdp, policy_evaluation(mdp, policy))


@checked
def advantages(mdp: MDP, policy: Policy) -> FloatArray:
    """How much better an action is than the policy's average: A(s, a) = Q(s, a) - V(s).

    Equation: eq-advantage

    Its average under the policy is 0 in every state.

    Source: Baird (1993), "Advantage updating".
    """
    values = policy_evaluation(mdp, policy)
    return _backup(mdp, values) - values[:, None]


@checked
def expected_return(mdp: MDP, policy: Policy) -> float:
    """The objective: the expected return from the start, J = sum_s mu_0(s) V(s).

    Equation: eq-objective

    Source: Sutton & Barto (2018), section 13.2.
    """
    return float(mdp.start @ policy_evaluation(mdp, policy))


@checked
def policy_improvement(mdp: MDP, policy: Policy) -> IntArray:
    """The greedy policy on Q of the given policy; it is no worse in any state.

    Equation: eq-policy-improvement

    A deterministic policy keeps its action where no other is better.

    Source: Sutton & Barto (2018), section 4.2.
    """
    values = policy_evaluation(mdp, policy)
    q_values = _backup(mdp, values)
    if policy.ndim == 2:
        return greedy_policy(q_values)
    return _improve(q_values, policy, slack=_Accuracy(mdp, remaining=0.0).rounding(values))


# ---------------------------------------------------------------------- how an episode ends


@checked
def absorption_probabilities(mdp: MDP, policy: Policy) -> FloatArray:
    """Where an episode ends: the probability of ending in each terminal state.

    Solves (I - P_pi) B = P_pi restricted to the terminal columns; the discount plays no part.

    Equation: eq-absorption

    Returns:
        (S, n_terminal), columns in the order of ``np.flatnonzero(mdp.terminal)``. A row sums to the
        probability of ending at all. A terminal state ends in itself.

    Source: Kemeny & Snell (1960), theorem 3.3.7.
    """
    transitions = mdp.policy_transitions(policy)
    ends = np.eye(mdp.n_states)[:, mdp.terminal]  # (S, n_terminal)
    inside = _can_reach(transitions, mdp.terminal) & ~mdp.terminal
    if inside.any():
        ends[inside] = _solve(transitions[inside][:, inside], transitions[inside][:, mdp.terminal].toarray())
    return ends


@checked
def expected_episode_length(mdp: MDP, policy: Policy) -> FloatArray:
    """Expected number of steps until the episode ends: the solution of (I - P_pi) L = 1.

    Equation: eq-episode-length

    (S,) steps; 0 at terminal states, infinite where the episode may never end.

    Source: Kemeny & Snell (1960), theorem 3.3.5.
    """
    return _steps_to(mdp.terminal, mdp.policy_transitions(policy))


@checked
def expected_visits(mdp: MDP, policy: Policy, gamma: UnitInterval | None = None) -> FloatArray:
    """How often a policy comes to each state in an episode: the solution of d = mu_0 + gamma P_pi^T d.

    A terminal state counts once, when it is entered. The discount is that of the process, if no other is given.

    Source: Sutton & Barto (2018), section 9.2.
    """
    gamma, transitions = mdp.gamma if gamma is None else gamma, mdp.policy_transitions(policy)
    if gamma == 1:
        _require_end(mdp, transitions)
    return _solve(scipy.sparse.csr_array(gamma * transitions.T), mdp.start)


# ---------------------------------------------------------------------- error bounds


@checked
def value_error_bound(residual: NotNegative, gamma: UnitInterval) -> float:
    """How far V_{k+1} can be from V*, given the largest change: ``gamma / (1 - gamma) max|V_{k+1} - V_k|``.

    At gamma = 1 it is infinite.

    Equation: eq-value-error-bound

    Source: Puterman (1994), section 6.3.
    """
    return gamma / (1 - gamma) * residual if gamma < 1 else math.inf


@checked
def span_bound(
    change: Floats[Array, "S"], gamma: UnitInterval, largest_gamma: UnitInterval | None = None
) -> tuple[float, float]:
    """The middle of the interval that holds V* - V_{k+1}, and half its width.

    With change = V_{k+1} - V_k every entry of V* - V_{k+1} lies between gamma / (1 - gamma) min(change) and
    gamma / (1 - gamma) max(change). Adding the middle to V_{k+1} leaves an error of at most half the width.
    Terminal states count with their change of 0, and stay at 0. Where the rows of P add up to almost 1 only, ``gamma`` is
    the discount times the smallest sum, and ``largest_gamma`` times the largest.

    Equation: eq-span-bound

    Source: Puterman (1994), theorem 6.6.6 and section 8.5.
    """
    least, most = gamma, gamma if largest_gamma is None else largest_gamma
    if max(least, most) == 1:
        raise ValueError("gamma is 1; expected a number below 1: without a discount the span bounds nothing")
    low, high = change.min(), change.max()
    low, high = value_error_bound(low, most if low < 0 else least), value_error_bound(high, most if high > 0 else least)
    return float(low + high) / 2, float(high - low) / 2


@checked
def contraction_ratio(mdp: MDP, values: Floats[Array, "S"], other: Floats[Array, "S"]) -> float:
    """How much closer one optimality backup brings two tables: ``max|TV - TW| / max|V - W|``; at most gamma.

    V and W must differ in some state that is not terminal.

    Equation: eq-contraction

    Source: Puterman (1994), proposition 6.2.4.
    """
    first, second = _zero_at_ends(mdp, values), _zero_at_ends(mdp, other)
    distance = np.abs(first - second).max()
    if distance == 0:
        raise ValueError("other is values; it must differ in a state that is not terminal")
    after = bellman_optimality_backup(mdp, first) - bellman_optimality_backup(mdp, second)
    return float(np.abs(after).max() / distance)


@checked
def policy_loss_bound(value_error: NotNegative, gamma: UnitInterval) -> float:
    """How much a policy can lose that is greedy on values with this error: 2 gamma error / (1 - gamma).

    The error is ``max_s |V(s) - V*(s)|``; at gamma = 1 the bound is infinite.

    Equation: eq-policy-loss

    Source: Singh & Yee (1994), "An upper bound on the loss from approximate optimal-value functions".
    """
    return 2 * gamma / (1 - gamma) * value_error if gamma < 1 else math.inf


class _Accuracy:
    """What the change made by a backup T says about the distance to its fixed point, rounding included.

    Let d = Tv - v, with d = 0 at terminal states, and x the fixed point.
    (1) If c >= 0 then T(v + c) <= Tv + gamma c, since each row of P adds up to at most 1 (less where it leads
        to a terminal state, which takes no part). With c = max(d) / (1 - gamma) >= 0 this gives
        T(v + c) <= v + max(d) + gamma c = v + c, and applying T again and again x <= v + c. So
        x - Tv <= gamma c = gamma / (1 - gamma) max(d). The lower side is the same with min(d) <= 0.
    (2) With a terminal state min(d) <= 0 <= max(d), and (1) is all that is needed. Without one each row adds
        up to exactly 1, T(v + c) = Tv + gamma c for either sign of c, and (1) holds whatever the signs are.
    Hence x - Tv lies in gamma / (1 - gamma) [min(d), max(d)] in every state. Moving Tv to the middle of this
    interval, terminal states excepted (they are exact), leaves half its width as the error. Q has the same
    interval, as x_q - q = gamma P (x - v).
    Rows that add up to slightly more or less than 1 make gamma the ``least`` and the ``most`` of gamma times a row's
    sum. Without a discount, n, the longest expected number of steps after the first, takes the place of
    gamma / (1 - gamma): as if the discount was n / (1 + n).
    """

    def __init__(self, mdp: MDP, remaining: float | None = None, dtype: np.dtype = np.dtype(float)) -> None:
        if remaining is None and mdp.gamma == 1:
            remaining = _longest_rest(mdp)
        self.remaining = remaining
        if remaining is None:
            sums = (mdp.continuation @ np.ones(mdp.n_states, dtype)).reshape(mdp.rewards.shape)[~mdp.terminal]
            discounts: Any = mdp.gamma * sums if sums.size else np.zeros(1)
            self.least, self.most = discounts.min(), discounts.max()
        else:
            self.least = self.most = np.nextafter(remaining / (1 + remaining), 1) if remaining < math.inf else 1.0
        # a sum of n products is off by at most about n units of rounding of its terms' size
        self.terms = int(np.diff(mdp.continuation.indptr).max(initial=0)) + 6
        self.largest_reward = float(np.abs(mdp.rewards).max())

    def interval(self, change: FloatArray) -> tuple[float, float]:
        """Middle and half the width of the interval that holds x - Tv, in exact arithmetic; change = Tv - v."""
        return span_bound(change, self.least, self.most) if self.most < 1 else (0.0, math.inf)

    def backup_rounding(self, values: FloatArray, more: float = 0.0) -> float:
        """How far off a computed backup of values of this size, plus some more, can be."""
        largest = float(np.abs(values).max()) + more
        return self.terms * float(np.finfo(values.dtype).eps) / 2 * (self.largest_reward + largest)

    def rounding(self, values: FloatArray, reach: float = 0.0) -> float:
        """What rounding can add to the error of ``values`` once they are moved by up to ``reach``."""
        error = self.backup_rounding(values, reach)
        error += float(value_error_bound(error, self.most))
        if values.dtype == float:
            return error
        # the answer is stored in plain floats
        return error + np.finfo(float).eps / 2 * (float(np.abs(values).max()) + reach)

    def is_stuck(self, values: FloatArray, residual: float, before: float) -> bool:
        """Whether rounding keeps the changes going, perhaps for ever, from the largest of this backup and the last.

        But for the rounding of two backups, a backup shrinks the largest change by the factor ``most``. Where it
        shrinks by less than half of that, the change is at most four roundings, each as often as steps count.
        """
        if self.most >= 1 or residual <= (1 + self.most) / 2 * before:
            return False
        return bool(residual <= 4 * self.backup_rounding(values) / (1 - self.most))


# ---------------------------------------------------------------------- steps of the solvers

FEW_ACTIONS, MANY_STATES = 8, 2000  # tables of such shapes are searched faster by columns
DENSE_STATES = 200  # up to this size a dense linear solve is faster than a sparse one
UNDISCOUNTED_SWEEPS = 100_000  # at gamma = 1 nothing says beforehand how many sweeps are needed
FINEST = np.dtype(np.longdouble)  # the longest numbers of the machine; on some no longer than float

# Modified policy iteration, between two improvements of the policy:
LOOKS = range(0, 501, 10)  # evaluation sweeps after which it looks at the progress; the last ends it
ENOUGH_PROGRESS = 20.0  # the evaluation ends when the span of the changes has fallen by this factor
EXTRAPOLATE_EVERY = 100  # sweeps after which only slow changes are left, which can be extrapolated
EXTRAPOLATING_IMPROVEMENTS = 200  # after so many improvements: plain sweeps, which are known to converge

Advance = Callable[[IntArray, FloatArray, float], FloatArray]  # policy, V, span of the last changes to V'


def _policy_sweeps(mdp: MDP, model: MDP, rest: BoolArray, policy: IntArray) -> Iterator[Sweep]:
    """The records of policy iteration from this policy on; ``model`` and ``rest`` are ``_with_rest(mdp)``."""
    accuracy = _Accuracy(mdp)
    for iteration, (values, q_values, policy, last) in enumerate(_improvements(model, policy), 1):
        q_values, policy = q_values[:, : mdp.n_actions], _rest_for_good(mdp, policy, rest)
        residual = float(np.abs(q_values.max(1) - values).max())
        # V* - V = (V* - TV) + (TV - V)
        bound = float(value_error_bound(residual, accuracy.most)) + residual + accuracy.rounding(values)
        if last and accuracy.most >= 1:
            bound = max(_most_above(mdp, values), _most_below(mdp, values, q_values, policy))
        yield Sweep(iteration, values, q_values, policy, residual, bound)


def _run_out(mdp: MDP, sweeps: Iterator[Sweep], tolerance: float) -> Solution:
    for last in sweeps:
        pass
    values, q_values, policy, bound = last.values, last.q_values, last.policy, last.error_bound
    if mdp.gamma == 1:  # of equally good actions take one that leads to an end
        model, rest = _with_rest(mdp)
        q_model = _backup(model, values)
        policy = _policy_that_ends(model, q_model >= q_model.max(1, keepdims=True) - tolerance)
        if bound == math.inf:  # some policy never ends: settled sweeps prove nothing
            for best in _policy_sweeps(mdp, model, rest, policy):
                pass
            values, q_values, policy, bound = best.values, best.q_values, best.policy, best.error_bound
    return Solution(values, q_values, policy, last.iteration, bound)


def _plain(array: FloatArray) -> FloatArray:
    return array.astype(float, copy=False)


class _PartialEvaluation:
    """The evaluation step of modified policy iteration: V <- r_pi + gamma P_pi V, some times."""

    def __init__(self, mdp: MDP, tolerance: float) -> None:
        self.mdp, self.smallest_span = mdp, tolerance * (1 - mdp.gamma)
        self.policy: IntArray | None = None
        self.improvements = 0

    def __call__(self, policy: IntArray, values: FloatArray, span: float) -> FloatArray:
        """Evaluate a policy, starting from ``values``; ``span`` is that of the change of the last backup."""
        self.improvements += 1
        may_extrapolate = self.mdp.gamma < 1 and self.improvements <= EXTRAPOLATING_IMPROVEMENTS
        if self.policy is None or not np.array_equal(policy, self.policy):
            self.policy, (self.transitions, self.rewards) = policy, _rows_of(self.mdp, policy)
        enough = max(span / ENOUGH_PROGRESS, self.smallest_span)
        kept, kept_span = values, math.inf
        for done, sweeps in itertools.pairwise(LOOKS):
            before = _follow(self.transitions, self.rewards, values, sweeps - done - 1)
            values = _follow(self.transitions, self.rewards, before, 1)
            change = values - before
            span = float(change.max() - change.min())
            if span <= enough:
                break
            if may_extrapolate and sweeps % EXTRAPOLATE_EVERY == 0:
                if span > kept_span:  # the last extrapolation did harm
                    return kept
                kept, kept_span = values, span
                # if P changes the change no more, all changes to come add up to gamma / (1 - gamma) times it
                values = values + self.mdp.gamma / (1 - self.mdp.gamma) * change
        return values


def _rows_of(mdp: MDP, policy: IntArray) -> tuple[scipy.sparse.csr_array, FloatArray]:
    """gamma P_pi, CSR (S, S), and r_pi, (S,), of a deterministic policy."""
    rows = np.arange(mdp.n_states) * mdp.n_actions + policy
    transitions = mdp.continuation[rows]
    transitions.data *= mdp.gamma
    return transitions, mdp.rewards.ravel()[rows]


def _head_start(mdp: MDP) -> FloatArray:
    """Where modified policy iteration starts, for gamma < 1.

    Any start will do; a good one saves sweeps. Usually it is the best reward of one step. If that is the same
    for all actions of most states, the start is the values of the policy that heads for a promising state.
    """
    best, open_states = _take_best(mdp.rewards)[1], ~mdp.terminal
    undecided = (best + _take_best(-mdp.rewards)[1] <= 1e-12 * np.abs(best)) & open_states
    if 2 * np.count_nonzero(undecided) <= np.count_nonzero(open_states):
        return best
    usual = np.median(best[open_states])
    promising = best / (1 - mdp.gamma) > (best.max() + usual) / (1 - mdp.gamma) / 2
    harmless = mdp.rewards >= usual - 1e-12 * abs(usual)
    return _values_on_the_way(mdp, *_shortest_ways(mdp, promising, harmless))


def _values_on_the_way(mdp: MDP, policy: IntArray, toward: IntArray, chances: FloatArray) -> FloatArray:
    """About what a policy earns, (S,), as if a step led to the next state on the way or, by a slip, nowhere.

    Then V = (r + gamma p V(next)) / (1 - gamma q), where the step succeeds with chance p and slips with q. It is
    solved for all states at once, by jumps of doubled length.
    ``toward``, (S + 1,), is the next state on the way; S, which leads to itself, where the way is over.
    """
    transitions, rewards = _rows_of(mdp, policy)  # gamma P and r of the policy
    arrive = mdp.gamma * chances
    leave = 1 - (transitions @ (~mdp.terminal).astype(float) - arrive)
    values, weights, jump = np.append(rewards / leave, 0.0), np.append(arrive / leave, 0.0), toward
    while (jump < mdp.n_states).any():
        values += weights * values[jump]
        weights *= weights[jump]
        jump = jump[jump]
    return values[:-1]


def _shortest_ways(mdp: MDP, target: BoolArray, allowed: BoolArray) -> tuple[IntArray, IntArray, FloatArray]:
    """A policy that follows the shortest ways to the target, the next state on them, and the chance to get there.

    The ways use allowed pairs (s, a) only; where there is none the policy takes the best reward, the next state
    is the extra one of ``_values_on_the_way``, and the chance is 0.
    """
    S, A = mdp.n_states, mdp.n_actions
    pairs = np.repeat(np.arange(S * A), np.diff(mdp.continuation.indptr))  # the row of each stored entry
    used = allowed.ravel()[pairs]
    pairs, after, chances = pairs[used], mdp.continuation.indices[used], mdp.continuation.data[used]
    # walk backward from one extra node, S, that stands for the whole target
    ends = np.flatnonzero(target)
    source, sink = np.concatenate((after, np.full(len(ends), S))), np.concatenate((pairs // A, ends))
    backward = scipy.sparse.csr_array((np.ones(len(source), dtype=np.int8), (source, sink)), shape=(S + 1, S + 1))
    _, toward = scipy.sparse.csgraph.breadth_first_order(backward, S)
    toward = np.where(toward < 0, S, toward)
    chances = chances * (after == toward[pairs // A])
    closer = np.bincount(pairs, weights=chances, minlength=S * A).astype(float, copy=False)
    policy, chance = _take_best(closer.reshape(S, A))
    return np.where(chance > 0, policy, mdp.rewards.argmax(1)), toward, chance


def _zero_at_ends(mdp: MDP, values: FloatArray) -> FloatArray:
    return np.where(mdp.terminal, 0.0, np.asarray(values, dtype=float))


def _backup(mdp: MDP, values: FloatArray) -> FloatArray:
    """Q = r + gamma P V, (S, A), for V that is 0 at terminal states."""
    q_values = (mdp.continuation @ values).reshape(mdp.n_states, mdp.n_actions)
    q_values *= mdp.gamma
    q_values += mdp.rewards
    return q_values


def _solve(transitions: scipy.sparse.csr_array, right: FloatArray) -> FloatArray:
    """The solution X of (I - transitions) X = right."""
    size = transitions.shape[0]
    if size <= DENSE_STATES:
        return np.linalg.solve(np.eye(size) - transitions.toarray(), right)
    return scipy.sparse.linalg.splu(scipy.sparse.csc_array(scipy.sparse.eye_array(size) - transitions)).solve(right)


# ---------------------------------------------------------------------- without a discount


def _can_reach(transitions: scipy.sparse.csr_array, target: BoolArray) -> BoolArray:
    """States from which the target is reached with positive probability."""
    reached = target.copy()
    while True:
        wider = reached | (transitions @ reached.astype(float) > 0)
        if (wider == reached).all():
            return reached
        reached = wider


def _steps_to(ends: BoolArray, transitions: scipy.sparse.csr_array) -> FloatArray:
    """Expected number of steps to the ends, (S,): 0 there, infinite where they may never be reached."""
    never = ~_can_reach(transitions, ends)
    steps = np.zeros(len(ends))
    steps[_can_reach(transitions, never)] = np.inf
    inside = np.isfinite(steps) & ~ends
    if inside.any():
        steps[inside] = _solve(transitions[inside][:, inside], np.ones(inside.sum()))
    return steps


def _require_end(mdp: MDP, transitions: scipy.sparse.csr_array) -> None:
    stuck = _stuck(mdp, transitions)
    if stuck:
        raise ValueError(f"policy must end the episode at gamma = 1; from states {stuck} it cannot")


class PayingLoop(ValueError):
    """At gamma = 1 a loop collects more than zero on average: returns grow for ever."""


def _require_no_paying_loop(mdp: MDP, transitions: scipy.sparse.csr_array) -> None:
    """Refuse a policy that never ends.

    Policy iteration changes a policy that ends only where that is strictly better. If the new policy walks
    round a loop forever, the old one did not, so the loop holds a strict improvement and no loss: it pays
    more than zero on average.
    """
    stuck = _stuck(mdp, transitions) if mdp.gamma == 1 else ""
    if stuck:
        raise PayingLoop(
            f"gamma = 1 needs finite returns; a loop through states {stuck} collects more than zero and can go on forever"
        )


def _stuck(mdp: MDP, transitions: scipy.sparse.csr_array) -> str:
    """The first states that do not reach an end, in words; nothing if all do."""
    states = np.flatnonzero(~_can_reach(transitions, mdp.terminal))
    shown = ", ".join(str(s) for s in states[:10])
    return f"[{shown}{', ...' if len(states) > 10 else ''}]" if len(states) else ""


def _endless(mdp: MDP, allowed: BoolArray) -> BoolArray:
    """The allowed pairs (s, a) with which an episode can go on forever, (S, A)."""
    pairs = allowed & ~mdp.terminal[:, None]
    while True:
        outside = ~pairs.any(1)
        leaves = (mdp.continuation @ outside.astype(float)).reshape(pairs.shape) > 0
        kept = pairs & ~leaves
        if (kept == pairs).all():
            return pairs
        pairs = kept


def _policy_that_ends(mdp: MDP, allowed: BoolArray | None = None) -> IntArray:
    """A policy that surely ends: each state moves toward an end, by allowed pairs where these lead there."""
    policy, ends = np.zeros(mdp.n_states, dtype=np.int64), mdp.terminal.copy()
    everything = np.ones_like(mdp.rewards, dtype=bool)
    for pairs in (everything,) if allowed is None else (allowed, everything):
        while True:
            closer = pairs & ((mdp.continuation @ ends.astype(float)).reshape(pairs.shape) > 0)
            found = closer.any(1) & ~ends
            if not found.any():
                break
            policy[found] = closer[found].argmax(1)
            ends |= found
    return policy


def _with_rest(mdp: MDP) -> tuple[MDP, BoolArray]:
    """At gamma = 1: where walking forever costs nothing, add an action that ends the episode at once.

    An endless walk without rewards returns 0, and so does the new action: the optimal values stay the same,
    and some policy that ends attains them. Also returns the pairs (s, a) that the action stands for. Without
    negative rewards no such action is needed, as ending is never worse than resting.
    """
    if mdp.gamma < 1 or mdp.rewards.min() >= 0:
        return mdp, np.zeros((mdp.n_states, mdp.n_actions), dtype=bool)
    rest = _endless(mdp, mdp.rewards == 0)
    states, able = np.arange(mdp.n_states), rest.any(1)
    first_end = np.full(mdp.n_states, np.flatnonzero(mdp.terminal)[0])
    leave = scipy.sparse.csr_array((np.ones(mdp.n_states), (states, first_end)), shape=(mdp.n_states, mdp.n_states))
    own = mdp.continuation[states * mdp.n_actions]  # elsewhere the new action is the first one again
    extra = scipy.sparse.diags_array(able.astype(float)) @ leave + scipy.sparse.diags_array((~able).astype(float)) @ own
    pairs = np.arange(mdp.n_states * mdp.n_actions).reshape(mdp.n_states, mdp.n_actions)
    order = np.column_stack((pairs, pairs.size + states)).ravel()
    transitions = scipy.sparse.csr_array(scipy.sparse.vstack((mdp.continuation, extra)))[order]
    rewards = np.column_stack((mdp.rewards, np.where(able, 0.0, mdp.rewards[:, 0])))
    return MDP(transitions, rewards, 1.0, mdp.terminal, mdp.start), rest


def _rest_for_good(mdp: MDP, policy: IntArray, rest: BoolArray) -> IntArray:
    """A policy of ``_with_rest`` in the model itself: where it rests, all that follows rests as well.

    All of it is worth 0. What follows could have another action as good, but its gains and losses might then
    go round for ever.
    """
    resting = policy == mdp.n_actions
    if not resting.any():
        return policy
    first = rest.argmax(1)
    return np.where(_can_reach(_rows_of(mdp, first)[0].T.tocsr(), resting), first, policy)


def _most_above(mdp: MDP, values: FloatArray) -> float:
    """At gamma = 1: how far V* can lie above V.

    V* <= U if U >= 0, and U >= r + P U for all pairs (s, a), by more than rounding: then U is at least the
    total of any policy that ends or comes to rest. U is V plus a little for each step that is still to come.
    The pairs of a free loop need no margin: U is the same on all of it, so that they hold with equality.
    Pairs that lose much are not counted as steps; how much that has to be is tried.
    """
    free, loop = _free_loops(mdp)
    open_pairs = ~free & ~mdp.terminal[:, None]

    def same_on_loops(table: FloatArray) -> FloatArray:
        highest = np.full(mdp.n_states, -np.inf)
        np.maximum.at(highest, loop, table)
        return highest[loop]

    top = same_on_loops(values)
    top = np.where(free.any(1), np.maximum(top, 0.0), top)  # a free loop can be walked for ever
    accuracy = _Accuracy(mdp, remaining=0.0)
    loss = np.where(open_pairs, top[:, None] - _backup(mdp, top), np.inf)
    margin = 2 * (max(-loss.min(), 0.0) + 2 * accuracy.backup_rounding(top))
    for much in (1e-10, 1e-7, 1e-4):
        steps = _longest_walk(mdp, loss <= much * (accuracy.largest_reward + np.abs(values).max()), free)
        if steps.max() < math.inf:
            upper = top + margin * same_on_loops(steps)
            slack = np.where(open_pairs, upper[:, None] - _backup(mdp, upper), np.inf).min()
            if slack >= accuracy.backup_rounding(upper):
                return float((upper - values).max())
    return math.inf


def _most_below(mdp: MDP, values: FloatArray, q_values: FloatArray, policy: IntArray) -> float:
    """At gamma = 1: how far the policy can earn less than V: what a step falls short, times the steps."""
    chosen = np.eye(mdp.n_actions, dtype=bool)[policy]
    at_rest = mdp.terminal | _endless(mdp, (mdp.rewards == 0) & chosen).any(1)
    short = (values - q_values[chosen])[~at_rest].max(initial=0.0)
    lost = 2 * (short + 2 * _Accuracy(mdp, remaining=0.0).backup_rounding(values))
    steps = _steps_to(at_rest, _rows_of(mdp, policy)[0]).max()
    return float(np.abs(values[at_rest]).max() + (lost * steps if lost else 0.0))


def _free_loops(mdp: MDP) -> tuple[BoolArray, IntArray]:
    """States that reach each other at no cost: the pairs (s, a) that stay there, and each state's group."""
    pairs = _endless(mdp, mdp.rewards == 0)
    entries = np.repeat(np.arange(pairs.size), np.diff(mdp.continuation.indptr))  # the pair of each entry
    after = mdp.continuation.indices
    while True:
        used = pairs.ravel()[entries] & (mdp.continuation.data > 0)
        edges = (np.ones(used.sum(), dtype=np.int8), (entries[used] // mdp.n_actions, after[used]))
        graph = scipy.sparse.csr_array(edges, shape=(mdp.n_states, mdp.n_states))
        loop = scipy.sparse.csgraph.connected_components(graph, directed=True, connection="strong")[1]
        leaves = np.bincount(entries, (loop[entries // mdp.n_actions] != loop[after]) & used, pairs.size) > 0
        kept = _endless(mdp, pairs & ~leaves.reshape(pairs.shape))
        if (kept == pairs).all():
            return pairs, loop
        pairs = kept


def _longest_walk(mdp: MDP, counted: BoolArray, free: BoolArray) -> FloatArray:
    """The largest expected number of counted pairs in a walk of counted and free pairs, (S,), or infinite."""
    other = ~(counted | free) & ~mdp.terminal[:, None]  # these end the walk
    ends = np.full(int(other.sum()), np.flatnonzero(mdp.terminal)[0])
    leave = scipy.sparse.csr_array((np.ones(len(ends)), (np.flatnonzero(other), ends)), shape=mdp.continuation.shape)
    keep = scipy.sparse.diags_array((~other).ravel().astype(float))
    transitions = scipy.sparse.csr_array(keep @ mdp.continuation + leave)
    clock = MDP(transitions, counted.astype(float), 1.0, mdp.terminal, mdp.start)
    try:
        for values, *_ in _improvements(clock, _policy_that_ends(clock)):
            pass
    except PayingLoop:
        return np.full(mdp.n_states, np.inf)
    return values


def _longest_rest(mdp: MDP) -> float:
    """At gamma = 1: the longest expected number of steps after the first, over all policies."""
    everything = np.ones_like(mdp.rewards, dtype=bool)
    if _endless(mdp, everything).any():
        return math.inf
    steps = _longest_walk(mdp, everything & ~mdp.terminal[:, None], free=~everything)
    return max(float(steps.max()) * (1 + 1e-6) - 1, 0.0)  # rounding may have hidden a little


def _first_values(mdp: MDP, may_fall: bool) -> FloatArray:
    """Where sweeps start: zeros, or at gamma = 1 values from which they surely come to V*.

    Zeros are safe with a discount. Without one they are if every walk ends, if each state has an action that
    costs nothing (the sweeps rise to V*), or, for plain backups, which may fall, if no reward is positive.
    Otherwise a sweep could end just before a price has to be paid, and never notice it: then the start is
    what a policy that ends or rests earns, from where sweeps rise.
    """
    if mdp.gamma < 1:
        return np.zeros(mdp.n_states)
    endless = _endless(mdp, np.ones_like(mdp.rewards, dtype=bool))
    if (mdp.rewards[endless] > 0).any():
        model, _ = _with_rest(mdp)
        for _ in _improvements(model, _policy_that_ends(model)):  # raises if a loop pays
            pass
    if not endless.any() or mdp.rewards.max(1).min() >= 0 or may_fall and mdp.rewards.max() <= 0:
        return np.zeros(mdp.n_states)
    values = policy_evaluation(mdp, _policy_that_ends(mdp))
    return np.where(_endless(mdp, mdp.rewards == 0).any(1), np.maximum(values, 0.0), values)
