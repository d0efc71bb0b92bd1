"""Estimates of the policy gradient: exact on small processes, and from samples (chapter 6).

The objective is the expected discounted return ``J = E[sum_t gamma^t r_t]``; the policy has parameters. In
order: scores (gradients of log-probabilities); the gradient by the policy gradient theorem, exactly; the same
by listing all trajectories, which also gives the variance of every estimator; weights Psi_t from samples.

The exact part is numpy, for a softmax policy with one row of logits per state: parameters (S, A). The score
is then ``1[b = a] - pi(b | s)`` in the row of s and zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook_lib.checks import Array, Count, Floats, Integers, Numbers, Probabilities, Range, UnitInterval
from rlbook_lib.checks import check, checked, library_of
from rlbook_lib.dynamic_programming import action_values, expected_visits, policy_evaluation, q_from_values
from rlbook_lib.mdp import MDP, enumerate_trajectories
from rlbook_lib.networks import softmax_log_probs
from rlbook_lib.returns import Ends, NextValues, Steps, gae, lambda_returns, n_step_returns, td_residuals

FloatArray: TypeAlias = NDArray[np.float64]
PsiFunction: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64], FloatArray], ArrayLike]
SampledKind: TypeAlias = Literal["return", "reward_to_go", "td_error", "n_step", "gae"]
ExactKind: TypeAlias = Literal["action_value", "advantage"]
Baseline: TypeAlias = Literal["none", "mean", "value"]

SAMPLED_KINDS: tuple[str, ...] = get_args(SampledKind)
EXACT_KINDS: tuple[str, ...] = get_args(ExactKind)
TAKES_BASELINE = ("return", "reward_to_go", "action_value")

PolicyTable: TypeAlias = Integers[NDArray[np.int64], "S"] | Probabilities[FloatArray, "S A"]
Logits: TypeAlias = Floats[FloatArray, "S A"]  # of a softmax policy, one row per state
StateValues: TypeAlias = Floats[FloatArray, "S"]
StateBaseline: TypeAlias = Baseline | Literal["optimal"] | Floats[FloatArray, ""] | StateValues
StepNumbers: TypeAlias = Numbers[Array, "T N?"]


# ---------------------------------------------------------------------- scores


@checked
def softmax_policy(logits: Logits) -> FloatArray:
    """Probabilities of a softmax policy, (S, A), with one row of logits per state.

    Source: Sutton & Barto (2018), equation 13.2.
    """
    probabilities: FloatArray = np.exp(softmax_log_probs(logits.astype(float)))
    return probabilities


@checked
def softmax_score(logits: Floats[FloatArray, "A"] | Logits) -> FloatArray:
    """Gradient of each log-probability by the logits of its own row: ``1[b = a] - pi(b | s)``.

    Equation: eq-softmax-score

    (A, A) or (S, A, A): entry [..., a, b] is the derivative of log pi(a | s) by logit b.

    Source: Sutton & Barto (2018), exercise 13.3.
    """
    return np.eye(logits.shape[-1]) - softmax_policy(logits)[..., None, :]  # (..., A, A)


@checked
def gaussian_score(
    mean: Floats[FloatArray, "*"], log_std: Floats[FloatArray, "*"], actions: Floats[FloatArray, "*"]
) -> tuple[FloatArray, FloatArray]:
    """Gradient of a normal log-density by its mean and by the logarithm of its standard deviation.

    With z = (a - mean) / std these are z / std and z^2 - 1.

    Equation: eq-gaussian-score

    Source: Williams (1992), section 6.
    """
    mean, log_std, actions = np.broadcast_arrays(mean, log_std, actions)
    z = (actions - mean) * np.exp(-log_std)
    return z * np.exp(-log_std), z * z - 1


@checked
def log_derivative_gradient(logits: Floats[FloatArray, "... A"], payoffs: Floats[FloatArray, "... A"]) -> FloatArray:
    """Gradient of ``E[h(a)]`` by the logits, as an expectation to sample from: ``E[h(a) grad log p(a)]``.

    Equation: eq-log-derivative

    ``logits`` are of the distribution p, or of one in each row; ``payoffs`` are h(a).

    Source: Williams (1992), section 4.
    """
    gradient: FloatArray = np.einsum("...a,...ab->...b", softmax_policy(logits) * payoffs, softmax_score(logits))
    return gradient


@checked
def expected_score(logits: Logits) -> FloatArray:
    """The mean score of each state, ``sum_a pi(a | s) grad log pi(a | s)``: zero, whatever the logits.

    This is why a baseline, which multiplies the score by a number free of the action, adds no bias.

    Equation: eq-expected-score

    Source: Sutton & Barto (2018), section 13.4.
    """
    return log_derivative_gradient(logits, np.ones(logits.shape))


# ---------------------------------------------------------------------- the gradient by states


@checked
def discounted_state_distribution(mdp: MDP, policy: PolicyTable) -> FloatArray:
    """Where a discounted process spends its time: ``d(s) = (1 - gamma) sum_t gamma^t P(s_t = s)``.

    An episode that has ended stays in its terminal state, so that d sums to one.

    Equation: eq-state-distribution

    Raises:
        ValueError: gamma is 1, where the sum has no such scale.

    Source: Sutton et al. (2000), theorem 1, with the factor 1 - gamma that makes it a distribution.
    """
    if mdp.gamma == 1.0:
        raise ValueError("mdp.gamma is 1; the discounted state distribution needs a discount below 1")
    visits = expected_visits(mdp, policy)
    return np.where(mdp.terminal, visits, (1 - mdp.gamma) * visits)


@checked
def policy_gradient_exact(mdp: MDP, logits: Logits) -> FloatArray:
    """The gradient of J, by the theorem: ``1/(1 - gamma) sum_s d(s) sum_a pi(a|s) Q(s, a) grad log pi(a|s)``.

    Equation: eq-policy-gradient-theorem

    At gamma = 1, d(s) / (1 - gamma) is the expected number of visits, and a policy that never ends a ValueError. The gradient
    is by the logits, (S, A), in reward units; zero in terminal states.

    Source: Sutton et al. (2000), theorem 1.
    """
    policy = softmax_policy(logits)
    by_state = log_derivative_gradient(logits, action_values(mdp, policy))
    return np.where(mdp.terminal[:, None], 0.0, expected_visits(mdp, policy)[:, None] * by_state)


@checked
def td_advantage(mdp: MDP, values: StateValues) -> FloatArray:
    """What the one-step error is on average: ``r(s, a) + gamma sum_s' P(s'|s, a) V(s') - V(s)``.

    With the policy's own values this is its advantage; with other values it is biased by what they are off.

    Equation: eq-td-advantage

    (S, A); terminal states are worth 0, whatever ``values`` says.

    Source: Schulman et al. (2016), section 3.
    """
    return np.where(mdp.terminal[:, None], 0.0, q_from_values(mdp, values) - values[:, None])


# ---------------------------------------------------------------------- the gradient by trajectories


class GradientMoments(NamedTuple):
    """Mean and total variance of what one trajectory says about the gradient."""

    mean: FloatArray  # (S, A)
    variance: float  # summed over all parameters


@checked
def trajectory_gradient(
    mdp: MDP,
    logits: Logits,
    horizon: Count,
    psi: SampledKind | ExactKind | PsiFunction = "reward_to_go",
    *,
    values: StateValues | None = None,
    lam: UnitInterval | None = None,
    n: Count | None = None,
    baseline: StateBaseline = "none",
    discount_time: bool = True,
) -> GradientMoments:
    """Mean and variance of ``sum_t Psi_t grad log pi(a_t | s_t)`` over all trajectories, by listing them.

    Equation: eq-policy-gradient-trajectory

    Args:
        mdp: a small process; the number of trajectories grows exponentially with the horizon.
        horizon: steps after which a trajectory is cut; where all end by then, nothing is.
        psi: "return": R(tau), at every step; "reward_to_go": G_t; "action_value": Q(s_t, a_t); "advantage":
            A(s_t, a_t); "td_error", "n_step", "gae": with ``values``; or a function of one trajectory's
            states (T+1,), actions (T,) and rewards (T,) that gives its weights (T,), used as they are.
        values: V(s), for the last three kinds and the baseline "value"; None: the policy's exact ones.
        lam, n: for "gae" and for "n_step".
        baseline: subtracted from "return", "reward_to_go" and "action_value": "none"; "mean", the mean weight
            of a step; "value", V(s_t); "optimal" (not for "return"), the b(s) of least variance
            (``optimal_baseline`` in each state; exact if no state is visited twice); a number; or b(s), (S,).
        discount_time: multiply Psi_t by gamma^t, as the gradient of the discounted J asks; "return" has the
            factor already.

    Raises:
        ValueError: a baseline for a kind that has one built in, or lam or n missing.

    Source: Schulman et al. (2016), equation 1, computed by enumeration.
    """
    samples = _gradient_samples(mdp, logits, horizon, psi, values, lam, n, baseline, discount_time)
    gradients, probabilities = samples
    return GradientMoments(np.einsum("k,ksa->sa", probabilities, gradients), gradient_variance(*samples))


def _gradient_samples(
    mdp: MDP, logits: Any, horizon: int, psi: Any, v: Any, lam: Any, n: Any, baseline: Any, discount_time: bool
) -> tuple[FloatArray, FloatArray]:
    """Every trajectory's ``sum_t Psi_t grad log pi(a_t | s_t)``, (K, S, A), and its probability, (K,)."""
    policy, scores = softmax_policy(logits), softmax_score(logits)  # (S, A), (S, A, A)
    trajectories = enumerate_trajectories(mdp, policy, horizon)
    probabilities = np.array([trajectory.probability for trajectory in trajectories])
    paths = [(np.array(x.states), np.array(x.actions, int), np.array(x.rewards, float)) for x in trajectories]
    if callable(psi):
        weights = [np.asarray(psi(*path), dtype=float) for path in paths]
    else:
        v = np.where(mdp.terminal, 0.0, policy_evaluation(mdp, policy) if v is None else v)
        if psi in EXACT_KINDS:
            exact = policy_evaluation(mdp, policy)
            table = action_values(mdp, policy) if psi == "action_value" else td_advantage(mdp, exact)
            cores = [table[states[:-1], actions] for states, actions, _ in paths]
        else:
            cores = [_core_of_path(mdp, psi, states, rewards, v, lam, n) for states, _, rewards in paths]
        b = _state_baseline(mdp, policy, psi, cores, probabilities, v, baseline)
        weights = [core - b[states[:-1]] for core, (states, _, _) in zip(cores, paths)]
        if discount_time and psi != "return":
            weights = [weight * mdp.gamma ** np.arange(len(weight)) for weight in weights]
    gradients = np.zeros((len(trajectories), *logits.shape))
    for gradient, (states, actions, _), weight in zip(gradients, paths, weights):
        np.add.at(gradient, states[:-1], weight[:, None] * scores[states[:-1], actions])
    return gradients, probabilities


@checked
def causality(mdp: MDP, logits: Logits, horizon: Count) -> FloatArray:
    """The mean of each product of a score and a reward, ``E[grad log pi(a_t | s_t) r_k]``: zero where k < t.

    An action cannot change an earlier reward. This is the step from the whole return R(tau) to the
    reward-to-go: the products with k >= t, weighted by gamma^k, already sum up to the gradient of J.

    Equation: eq-reward-to-go

    (H, H, S, A): entry [t, k], where H is the horizon, the steps after which a trajectory is cut.

    Source: Baxter & Bartlett (2001); Sutton & Barto (2018), section 13.3.
    """
    policy, scores = softmax_policy(logits), softmax_score(logits)
    products = np.zeros((horizon, horizon, *logits.shape))
    for states, actions, rewards, probability in enumerate_trajectories(mdp, policy, horizon):
        for t, (state, action) in enumerate(zip(states, actions)):
            for k, reward in enumerate(rewards):
                products[t, k, state] += probability * reward * scores[state, action]
    return products


def _core_of_path(
    mdp: MDP, kind: str, states: Any, rewards: FloatArray, v: FloatArray, lam: float | None, n: int | None
) -> FloatArray:
    """Psi_t of one trajectory, (T,), without baseline and without gamma^t."""
    if len(rewards) == 0:
        return rewards
    terminated = mdp.terminal[states[1:]]
    bootstraps = kind not in ("return", "reward_to_go")  # those are of the trajectory as cut
    following = v[states[1:]] if bootstraps else np.zeros(len(rewards))
    truncated = np.zeros(len(rewards), dtype=bool)
    core: FloatArray = _core(kind, rewards, v[states[:-1]], following, terminated, truncated, mdp.gamma, lam, n)
    return core


def _state_baseline(
    mdp: MDP, policy: FloatArray, psi: str, cores: list[FloatArray], chances: FloatArray, v: FloatArray, baseline: Any
) -> FloatArray:
    """b(s), (S,)."""
    b, kind = baseline, baseline if isinstance(baseline, str) else "given"
    if kind != "none":  # R(tau) holds past rewards too, for which there is no best b(s)
        _require_takes_baseline(psi, TAKES_BASELINE[1:] if kind == "optimal" else TAKES_BASELINE)
    if kind == "none":
        b = 0.0
    elif kind == "mean":
        b = sum(p * core.sum() for p, core in zip(chances, cores)) / (chances @ [len(core) for core in cores])
    elif kind == "value":
        b = v
    elif kind == "optimal":
        squared_scores = 1 - 2 * policy + (policy**2).sum(1, keepdims=True)
        b = optimal_baseline(squared_scores, action_values(mdp, policy), policy)
    return np.broadcast_to(b, (mdp.n_states,))


# ---------------------------------------------------------------------- estimates from samples


@checked
def gradient_estimate(scores: Floats[FloatArray, "T N ..."], psi: Floats[FloatArray, "T N"]) -> FloatArray:
    """The estimate from N trajectories: the mean over them of ``sum_t Psi_t grad log pi(a_t | s_t)``.

    Equation: eq-gradient-estimator

    ``scores`` are grad log pi of each step, in any parameters; ``psi`` is 0 after a trajectory's end.

    Source: Schulman et al. (2016), equation 1.
    """
    mean: FloatArray = np.einsum("tn,tn...->...", psi, scores) / psi.shape[1]
    return mean


@checked
def gradient_variance(
    gradients: Floats[FloatArray, "K ..."], probabilities: Probabilities[FloatArray, "K"] | None = None
) -> float:
    """Total variance of gradient samples: ``E|g|^2 - |E g|^2``, the trace of their covariance.

    Equation: eq-gradient-variance

    It is the sum of the variances of all components; a mean of N samples has 1/N of it. ``gradients`` holds one
    gradient per trajectory; ``probabilities`` None means 1/K each.

    Source: Greensmith, Bartlett & Baxter (2004).
    """
    flat = gradients.reshape(len(gradients), -1)  # (K, P)
    p = np.full(len(flat), 1 / len(flat)) if probabilities is None else probabilities
    return float(p @ ((flat - p @ flat) ** 2).sum(1))


@checked
def optimal_baseline(
    squared_scores: Floats[FloatArray, "... K", Range(-1e-12)],
    returns: Floats[FloatArray, "... K"],
    probabilities: Probabilities[FloatArray, "... K"] | None = None,
) -> FloatArray | float:
    """The b that makes ``(G - b) grad log pi`` vary least: ``E[|grad log pi|^2 G] / E[|grad log pi|^2]``.

    Equation: eq-optimal-baseline

    ``squared_scores`` are |grad log pi|^2 of K actions or samples, ``returns`` their returns or action values (b is in their
    units), ``probabilities`` of None 1/K each. Where all scores are 0, b is the mean return.

    Source: Greensmith, Bartlett & Baxter (2004); Weaver & Tao (2001).
    """
    p = np.full(returns.shape, 1 / returns.shape[-1]) if probabilities is None else probabilities
    weights = p * squared_scores
    weights = np.where(weights.sum(-1, keepdims=True) > 1e-300, weights, p)
    b = (weights * returns).sum(-1) / weights.sum(-1)
    return float(b) if b.ndim == 0 else b


@checked(arrays="either")
def n_step_advantage(
    rewards: Steps,
    values: Steps,
    next_values: NextValues,
    terminated: Ends,
    truncated: Ends,
    gamma: UnitInterval,
    n: Count,
) -> Array:
    """The n-step return minus V(s_t): ``sum_{k<n} gamma^k r_{t+k} + gamma^n V(s_{t+n}) - V(s_t)``.

    Equation: eq-n-step-advantage

    Fewer rewards count where the episode or the buffer ends first; the arguments are those of ``returns.gae``.

    Source: Mnih et al. (2016), section 4.
    """
    return n_step_returns(rewards, next_values, terminated, truncated, gamma, n) - values


@checked(arrays="either")
def psi_weights(
    kind: SampledKind,
    rewards: Steps,
    terminated: Ends,
    truncated: Ends,
    *,
    values: StepNumbers | None = None,
    next_values: NextValues | None = None,
    gamma: UnitInterval,
    lam: UnitInterval | None = None,
    n: Count | None = None,
    baseline: Baseline = "none",
    discount_time: bool = False,
    mask: Ends | None = None,
) -> Array:
    """The weight Psi_t of each step's score in the gradient's estimate.

    Equation: eq-psi

    Args:
        kind: "return": R(tau), the discounted return of the whole episode, at every step of it;
            "reward_to_go": G_t; "td_error": delta_t; "n_step": n-step advantage; "gae": generalized
            advantage.
        rewards, terminated, truncated: (T,) or (T, N), as for ``returns.gae``.
        values: V(s_t), same shape; for the last three kinds and the baseline "value".
        next_values: V(s_{t+1}) of the real next states, same shape; for the last three kinds. The first two
            bootstrap with them at truncations and at the buffer's end; without them, nothing comes after.
        lam, n: for "gae" and for "n_step".
        baseline: subtracted from the first two kinds: "none"; "mean", the mean of all weights (which contains
            the step's own, and so shrinks the gradient by a factor 1 - 1/N for N one-step episodes); or "value", V(s_t).
        discount_time: multiply by gamma^t, t counted from the start of the episode (or of the buffer).
            Without it the estimate is the usual one, not of the gradient of J. No effect on "return", which
            has it.
        mask: same shape, not all 0; weights are 0 where it is 0, and such steps count for no
            baseline.

    The weights are constants: no gradient flows through.

    Raises:
        ValueError: something missing, a mask that is all 0, or a baseline for a kind that has one built in.

    Source: Schulman et al. (2016), section 2.
    """
    needed = {"values": values} if kind not in SAMPLED_KINDS[:2] or baseline == "value" else {}
    needed |= {"next_values": next_values} if kind not in SAMPLED_KINDS[:2] else {}
    for name, array in needed.items():
        if array is None:
            raise ValueError(f"{name} is None; the kind {kind!r} with the baseline {baseline!r} needs it")
    if baseline != "none":
        _require_takes_baseline(kind, TAKES_BASELINE)
    rewards, values, next_values = (x.detach() if isinstance(x, Tensor) else x for x in (rewards, values, next_values))
    counted = rewards == rewards if mask is None else mask  # (T,) or (T, N) bool
    if not bool(counted.any()):
        raise ValueError("mask is 0 everywhere; expected at least one step that counts")
    if values is not None and "values" in needed:  # as a baseline they may be anything where nothing counts
        check("values", values if kind not in SAMPLED_KINDS[:2] else values[counted], Floats[Array, "..."])
    following = rewards * 0 if next_values is None else next_values
    weights = _core(kind, rewards, values, following, terminated, truncated, gamma, lam, n)
    if baseline == "mean":
        weights = weights - weights[counted].mean()
    elif baseline == "value":
        weights = library_of(weights).where(counted, weights - values, weights)
    if discount_time and kind != "return":
        weights = weights * gamma ** _time_in_episode(terminated | truncated, weights)
    return weights * counted


def _core(
    kind: str,
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float | None,
    n: int | None,
) -> Array:
    """Psi_t without baseline and without gamma^t."""
    steps = (rewards, next_values, terminated, truncated)
    if kind == "td_error":
        return td_residuals(rewards, values, next_values, terminated, gamma)
    if kind == "n_step":
        if n is None:
            raise ValueError("n is None; the kind 'n_step' needs it")
        return n_step_advantage(rewards, values, *steps[1:], gamma, n)
    if kind == "gae":
        if lam is None:
            raise ValueError("lam is None; the kind 'gae' needs it")
        return gae(rewards, values, *steps[1:], gamma, lam)[0]
    returns = lambda_returns(*steps, gamma, 1.0)  # G_t
    return returns if kind == "reward_to_go" else _first_of_episode(returns, terminated | truncated)


def _first_of_episode(returns: Array, ends: Array) -> Array:
    """At every step, the return of the first step of its episode."""
    library, first = library_of(returns), [returns[0]]
    for t in range(1, len(returns)):
        first.append(library.where(ends[t - 1], returns[t], first[-1]))
    return library.stack(first)


def _time_in_episode(ends: Array, like: Array) -> Array:
    """Steps since the episode's start, or since the start of the buffer."""
    library, times = library_of(like), [like[0] * 0]
    for t in range(1, len(like)):
        times.append(library.where(ends[t - 1], times[0], times[-1] + 1))
    return library.stack(times)


def _require_takes_baseline(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        takers = ", ".join(map(repr, kinds))
        raise ValueError(f"baseline is not 'none'; expected 'none' for {kind!r}, only {takers} take this one")
