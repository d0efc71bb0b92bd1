"""Estimates of the policy gradient: exact on small processes, and from samples (chapter 6).

The objective is the expected discounted return ``J = E[sum_t gamma^t r_t]``; the policy has parameters. In
order: scores (gradients of log-probabilities); the gradient by the policy gradient theorem, exactly; the same
by listing all trajectories, which also gives the variance of every estimator; weights Psi_t from samples.

The exact part is numpy, for a softmax policy with one row of logits per state: parameters (S, A). The score
is then ``1[b = a] - pi(b | s)`` in the row of s and zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook_lib.dynamic_programming import action_values, policy_evaluation, q_from_values
from rlbook_lib.experience import check_count, check_flag
from rlbook_lib.mdp import MDP, Trajectory, check_unit_interval, enumerate_trajectories
from rlbook_lib.networks import softmax_log_probs
from rlbook_lib.returns import (
    _check_finite,
    _float_arrays,
    _library_of,
    gae,
    lambda_returns,
    n_step_returns,
    td_residuals,
)

Array: TypeAlias = Any  # a numpy array or a torch tensor
FloatArray: TypeAlias = NDArray[np.float64]
PsiFunction: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64], FloatArray], ArrayLike]

SAMPLED_KINDS = ("return", "reward_to_go", "td_error", "n_step", "gae")
EXACT_KINDS = ("action_value", "advantage")
TAKES_BASELINE = ("return", "reward_to_go", "action_value")
BASELINES = ("none", "mean", "value", "optimal")


# ---------------------------------------------------------------------- scores

def softmax_policy(logits: ArrayLike) -> FloatArray:
    """Probabilities of a softmax policy with one row of logits per state.

    Args:
        logits: preferences, (S, A).

    Returns:
        (S, A), rows that sum to one.

    Raises:
        ValueError: another shape, or a logit that is not finite.

    Source: Sutton & Barto (2018), equation 13.2.
    """
    return np.exp(_table("logits", logits, log=True))


def softmax_score(logits: ArrayLike) -> FloatArray:
    """Gradient of each log-probability by the logits of its own row: ``1[b = a] - pi(b | s)``.

    Equation: eq-softmax-score

    Args:
        logits: preferences, (A,) or (S, A).

    Returns:
        (A, A) or (S, A, A): entry [..., a, b] is the derivative of log pi(a | s) by logit b.

    Raises:
        ValueError: another shape, or a logit that is not finite.

    Source: Sutton & Barto (2018), exercise 13.3.
    """
    log_probs = softmax_log_probs(np.asarray(logits, dtype=float))
    if log_probs.ndim > 2:
        raise ValueError(f"logits must be (A,) or (S, A), got shape {log_probs.shape}")
    return np.eye(log_probs.shape[-1]) - np.exp(log_probs)[..., None, :]       # (..., A, A)


def gaussian_score(mean: ArrayLike, log_std: ArrayLike, actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Gradient of a normal log-density by its mean and by the logarithm of its standard deviation.

    With z = (a - mean) / std these are z / std and z^2 - 1.

    Equation: eq-gaussian-score

    Args:
        mean: (..., d), action units.
        log_std: broadcasts against mean.
        actions: broadcasts against mean, action units.

    Returns:
        (by mean, by log_std), both of the common shape.

    Raises:
        ValueError: shapes that do not fit, or a number that is not finite.

    Source: Williams (1992), section 6.
    """
    mean, log_std, actions = (_finite(name, value) for name, value in
                              (("mean", mean), ("log_std", log_std), ("actions", actions)))
    try:
        mean, log_std, actions = np.broadcast_arrays(mean, log_std, actions)
    except ValueError:
        raise ValueError(f"mean, log_std and actions must fit together, got shapes {mean.shape}, "
                         f"{log_std.shape} and {actions.shape}") from None
    z = (actions - mean) * np.exp(-log_std)
    return z * np.exp(-log_std), z * z - 1


def log_derivative_gradient(logits: ArrayLike, payoffs: ArrayLike) -> FloatArray:
    """Gradient of ``E[h(a)]`` by the logits, as an expectation to sample from: ``E[h(a) grad log p(a)]``.

    Equation: eq-log-derivative

    Args:
        logits: of the distribution p, (A,).
        payoffs: h(a), (A,), any unit.

    Returns:
        (A,): the gradient.

    Raises:
        ValueError: shapes that differ, or a number that is not finite.

    Source: Williams (1992), section 4.
    """
    logits, payoffs = _finite("logits", logits), _finite("payoffs", payoffs)
    if logits.ndim != 1 or payoffs.shape != logits.shape:
        raise ValueError(f"logits and payoffs must both be (A,), got {logits.shape} and {payoffs.shape}")
    probabilities = np.exp(softmax_log_probs(logits))
    return (probabilities * payoffs) @ softmax_score(logits)


def expected_score(logits: ArrayLike) -> FloatArray:
    """The mean score of each state, ``sum_a pi(a | s) grad log pi(a | s)``: zero, whatever the logits.

    This is why a baseline, which multiplies the score by a number free of the action, adds no bias.

    Equation: eq-expected-score

    Args:
        logits: (S, A).

    Returns:
        (S, A): the mean of the gradient by the row's logits.

    Raises:
        ValueError: another shape, or a logit that is not finite.

    Source: Sutton & Barto (2018), section 13.4.
    """
    return np.einsum("sa,sab->sb", softmax_policy(logits), softmax_score(logits))


# ---------------------------------------------------------------------- the gradient by states

def discounted_state_distribution(mdp: MDP, policy: ArrayLike) -> FloatArray:
    """Where a discounted process spends its time: ``d(s) = (1 - gamma) sum_t gamma^t P(s_t = s)``.

    An episode that has ended stays in its terminal state, so that d sums to one.

    Equation: eq-state-distribution

    Args:
        mdp: the process, with gamma below 1.
        policy: (S,) integers or (S, A) probabilities.

    Returns:
        (S,): probabilities.

    Raises:
        ValueError: gamma is 1, where the sum has no such scale.

    Source: Sutton et al. (2000), theorem 1, with the factor 1 - gamma that makes it a distribution.
    """
    if mdp.gamma == 1.0:
        raise ValueError("mdp.gamma is 1; the discounted state distribution needs a discount below 1")
    visits = _expected_visits(mdp, mdp.policy_rows(policy))
    return np.where(mdp.terminal, visits, (1 - mdp.gamma) * visits)


def _expected_visits(mdp: MDP, rows: FloatArray) -> FloatArray:
    """sum_t gamma^t P(s_t = s), by a linear solve; a terminal state counts once, when it is entered."""
    following = sp.eye_array(mdp.n_states) - mdp.gamma * mdp.policy_transitions(rows)
    return np.atleast_1d(scipy.sparse.linalg.spsolve(following.T.tocsc(), mdp.start))


def policy_gradient_exact(mdp: MDP, logits: ArrayLike) -> FloatArray:
    """The gradient of J, by the theorem: ``1/(1 - gamma) sum_s d(s) sum_a pi(a|s) Q(s, a) grad log pi(a|s)``.

    Equation: eq-policy-gradient-theorem

    Args:
        mdp: the process. At gamma = 1, d(s) / (1 - gamma) is the expected number of visits.
        logits: of the softmax policy, (S, A).

    Returns:
        (S, A): the gradient by the logits, reward units; zero in terminal states.

    Raises:
        ValueError: logits of another shape, or not finite; gamma = 1 and a policy that never ends.

    Source: Sutton et al. (2000), theorem 1.
    """
    policy = softmax_policy(_for_mdp(mdp, logits))
    q_values, visits = action_values(mdp, policy), _expected_visits(mdp, policy)
    by_state = np.einsum("sa,sa,sab->sb", policy, q_values, softmax_score(logits))
    return np.where(mdp.terminal[:, None], 0.0, visits[:, None] * by_state)


def td_advantage(mdp: MDP, values: ArrayLike) -> FloatArray:
    """What the one-step error is on average: ``r(s, a) + gamma sum_s' P(s'|s, a) V(s') - V(s)``.

    With the policy's own values this is its advantage; with other values it is biased by what they are off.

    Equation: eq-td-advantage

    Args:
        mdp: the process.
        values: V, (S,), reward units; terminal states are worth 0 whatever stands there.

    Returns:
        (S, A); 0 in terminal states.

    Raises:
        ValueError: values of another shape, or not finite.

    Source: Schulman et al. (2016), section 3.
    """
    q_values = q_from_values(mdp, values)                                  # checks the values
    return np.where(mdp.terminal[:, None], 0.0, q_values - np.asarray(values, dtype=float)[:, None])


# ---------------------------------------------------------------------- the gradient by trajectories

class GradientMoments(NamedTuple):
    """Mean and total variance of what one trajectory says about the gradient."""

    mean: FloatArray  # (S, A)
    variance: float  # summed over all parameters


def trajectory_gradient(
    mdp: MDP, logits: ArrayLike, horizon: int, psi: str | PsiFunction = "reward_to_go", *,
    values: ArrayLike | None = None, lam: float | None = None, n: int | None = None,
    baseline: str | float | ArrayLike = "none", discount_time: bool = True,
) -> GradientMoments:
    """Mean and variance of ``sum_t Psi_t grad log pi(a_t | s_t)`` over all trajectories, by listing them.

    Equation: eq-policy-gradient-trajectory

    Args:
        mdp: a small process; the number of trajectories grows exponentially with the horizon.
        logits: of the softmax policy, (S, A).
        horizon: steps after which a trajectory is cut; where all end by then, nothing is.
        psi: "return": R(tau), at every step; "reward_to_go": G_t; "action_value": Q(s_t, a_t); "advantage":
            A(s_t, a_t); "td_error", "n_step", "gae": with ``values``; or a function of one trajectory's
            states (T+1,), actions (T,) and rewards (T,) that gives its weights (T,), used as they are.
        values: V(s), (S,), for the last three kinds and the baseline "value"; None: the policy's exact ones.
        lam: for "gae".
        n: for "n_step".
        baseline: subtracted from "return", "reward_to_go" and "action_value": "none"; "mean", the mean weight
            of a step; "value", V(s_t); "optimal" (not for "return"), the b(s) of least variance
            (``optimal_baseline`` in each state; exact if no state is visited twice); a number; or b(s), (S,).
        discount_time: multiply Psi_t by gamma^t, as the gradient of the discounted J asks; "return" has the
            factor already.

    Returns:
        Mean (S, A) and total variance of the estimate from one trajectory, in reward units and their square.

    Raises:
        ValueError: an unknown word, a number out of range, logits or values of another shape, a baseline for
            a kind that has one built in, or lam or n missing.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), equation 1, computed by enumeration.
    """
    gradients, probabilities = gradient_samples(
        mdp, logits, horizon, psi, values=values, lam=lam, n=n, baseline=baseline,
        discount_time=discount_time)
    return GradientMoments(np.einsum("k,ksa->sa", probabilities, gradients),
                           gradient_variance(gradients, probabilities))


def gradient_samples(
    mdp: MDP, logits: ArrayLike, horizon: int, psi: str | PsiFunction = "reward_to_go", *,
    values: ArrayLike | None = None, lam: float | None = None, n: int | None = None,
    baseline: str | float | ArrayLike = "none", discount_time: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Every trajectory's ``sum_t Psi_t grad log pi(a_t | s_t)``, and its probability.

    Args:
        mdp, logits, horizon, psi, values, lam, n, baseline, discount_time: as for ``trajectory_gradient``.

    Returns:
        (gradients (K, S, A), probabilities (K,)) of all K trajectories.

    Raises:
        ValueError, TypeError: as ``trajectory_gradient``.
    """
    logits = _for_mdp(mdp, logits)
    policy, scores = softmax_policy(logits), softmax_score(logits)             # (S, A), (S, A, A)
    trajectories = enumerate_trajectories(mdp, policy, check_count("horizon", horizon))
    probabilities = np.array([trajectory.probability for trajectory in trajectories])
    weights = _enumerated_weights(mdp, policy, trajectories, psi, values, lam, n, baseline, discount_time)
    gradients = np.zeros((len(trajectories), *logits.shape))
    for gradient, trajectory, weight in zip(gradients, trajectories, weights):
        states = list(trajectory.states[:-1])
        np.add.at(gradient, states, weight[:, None] * scores[states, list(trajectory.actions)])
    return gradients, probabilities


def causality(mdp: MDP, logits: ArrayLike, horizon: int) -> FloatArray:
    """The mean of each product of a score and a reward, ``E[grad log pi(a_t | s_t) r_k]``: zero where k < t.

    An action cannot change an earlier reward. This is the step from the whole return R(tau) to the
    reward-to-go: the products with k >= t, weighted by gamma^k, already sum up to the gradient of J.

    Equation: eq-reward-to-go

    Args:
        mdp: a small process.
        logits: of the softmax policy, (S, A).
        horizon: H, steps after which a trajectory is cut.

    Returns:
        (H, H, S, A): entry [t, k].

    Raises:
        ValueError: logits of another shape, or not finite; horizon below 1.

    Source: Baxter & Bartlett (2001); Sutton & Barto (2018), section 13.3.
    """
    logits = _for_mdp(mdp, logits)
    scores = softmax_score(logits)
    products = np.zeros((check_count("horizon", horizon), horizon, *logits.shape))
    for states, actions, rewards, probability in enumerate_trajectories(mdp, softmax_policy(logits), horizon):
        for t, (state, action) in enumerate(zip(states, actions)):
            for k, reward in enumerate(rewards):
                products[t, k, state] += probability * reward * scores[state, action]
    return products


def _enumerated_weights(
    mdp: MDP, policy: FloatArray, trajectories: list[Trajectory], psi: str | PsiFunction,
    values: ArrayLike | None, lam: float | None, n: int | None, baseline: str | float | ArrayLike,
    discount_time: bool,
) -> list[FloatArray]:
    """Psi_t of every step of every trajectory, (T,) each."""
    paths = [tuple(np.array(x, dtype=kind) for x, kind in zip(trajectory[:3], (np.int64, np.int64, float)))
             for trajectory in trajectories]
    if callable(psi):
        return [np.asarray(psi(*path), dtype=float) for path in paths]
    _check_word("psi", psi, SAMPLED_KINDS + EXACT_KINDS)
    check_flag("discount_time", discount_time)
    v = policy_evaluation(mdp, policy) if values is None else _finite("values", values)
    if v.shape != (mdp.n_states,):
        raise ValueError(f"values must be ({mdp.n_states},), got shape {v.shape}")
    v = np.where(mdp.terminal, 0.0, v)
    if psi in EXACT_KINDS:
        q_values = action_values(mdp, policy)
        table = q_values if psi == "action_value" else q_values - policy_evaluation(mdp, policy)[:, None]
        cores = [table[states[:-1], actions] for states, actions, _ in paths]
    else:
        cores = [_core_of_path(mdp, psi, states, rewards, v, lam, n) for states, _, rewards in paths]
    discounts = [mdp.gamma ** np.arange(len(core)) for core in cores]
    b = _state_baseline(mdp, policy, psi, cores, [t.probability for t in trajectories], v, baseline)
    weights = [core - b[path[0][:-1]] for core, path in zip(cores, paths)]
    return [w * d for w, d in zip(weights, discounts)] if discount_time and psi != "return" else weights


def _core_of_path(mdp: MDP, kind: str, states: Any, rewards: FloatArray, v: FloatArray, lam: float | None,
                  n: int | None) -> FloatArray:
    """Psi_t of one trajectory, (T,), without baseline and without gamma^t."""
    if len(rewards) == 0:
        return rewards
    terminated = mdp.terminal[states[1:]]
    bootstraps = kind not in ("return", "reward_to_go")               # those are of the trajectory as cut
    return _core(kind, rewards, v[states[:-1]], v[states[1:]] if bootstraps else np.zeros(len(rewards)),
                 terminated, np.zeros(len(rewards), dtype=bool), mdp.gamma, lam, n)


def _state_baseline(mdp: MDP, policy: FloatArray, psi: str, cores: list[FloatArray], chances: list[float],
                    v: FloatArray, baseline: str | float | ArrayLike) -> FloatArray:
    """b(s), (S,)."""
    if not isinstance(baseline, str):
        b = _finite("baseline", baseline)
        if b.shape not in ((), (mdp.n_states,)):
            raise ValueError(f"baseline must be a number or ({mdp.n_states},), got shape {b.shape}")
    else:
        _check_word("baseline", baseline, BASELINES)
        b = np.zeros(())
    if not (isinstance(baseline, str) and baseline == "none"):
        _check_takes_baseline(psi, TAKES_BASELINE)
    if isinstance(baseline, str) and baseline == "mean":
        lengths = sum(p * len(core) for p, core in zip(chances, cores))
        b = np.array(sum(p * core.sum() for p, core in zip(chances, cores)) / lengths)
    elif isinstance(baseline, str) and baseline == "value":
        b = v
    elif isinstance(baseline, str) and baseline == "optimal":
        _check_takes_baseline(psi, TAKES_BASELINE[1:])                # R(tau) holds past rewards too
        b = optimal_baseline(1 - 2 * policy + (policy**2).sum(1, keepdims=True), action_values(mdp, policy),
                             policy)
    return np.broadcast_to(b, (mdp.n_states,))


# ---------------------------------------------------------------------- estimates from samples

def gradient_estimate(scores: ArrayLike, psi: ArrayLike) -> FloatArray:
    """The estimate from N trajectories: the mean over them of ``sum_t Psi_t grad log pi(a_t | s_t)``.

    Equation: eq-gradient-estimator

    Args:
        scores: (T, N, ...): grad log pi of each step, in any parameters.
        psi: (T, N): weights; 0 after a trajectory's end.

    Returns:
        (...): the gradient's estimate.

    Raises:
        ValueError: shapes that do not fit, an empty array, or a number that is not finite.

    Source: Schulman et al. (2016), equation 1.
    """
    scores, psi = _finite("scores", scores), _finite("psi", psi)
    if psi.ndim != 2 or psi.size == 0 or scores.shape[:2] != psi.shape:
        raise ValueError(f"psi must be (T, N) and scores (T, N, ...), got {psi.shape} and {scores.shape}")
    return np.einsum("tn,tn...->...", psi, scores) / psi.shape[1]


def gradient_variance(gradients: ArrayLike, probabilities: ArrayLike | None = None) -> float:
    """Total variance of gradient samples: ``E|g|^2 - |E g|^2``, the trace of their covariance.

    Equation: eq-gradient-variance

    Args:
        gradients: (K, ...): one gradient per trajectory.
        probabilities: (K,); None means 1/K each.

    Returns:
        The sum of the variances of all components, 0 or more. A mean of N samples has 1/N of it.

    Raises:
        ValueError: shapes that do not fit, no gradient, probabilities that do not sum to one, or a number
            that is not finite.

    Source: Greensmith, Bartlett & Baxter (2004).
    """
    gradients = _finite("gradients", gradients)
    if gradients.ndim < 1 or len(gradients) == 0:
        raise ValueError(f"gradients must be (K, ...) with K at least 1, got shape {gradients.shape}")
    flat = gradients.reshape(len(gradients), -1)                       # (K, P)
    uniform = np.full(len(flat), 1 / len(flat))
    p = uniform if probabilities is None else _finite("probabilities", probabilities)
    if p.shape != (len(flat),) or (p < 0).any() or abs(p.sum() - 1) > 1e-6:
        raise ValueError(f"probabilities must be ({len(flat)},) and sum to 1, got shape {p.shape}")
    return float(p @ ((flat - p @ flat) ** 2).sum(1))


def optimal_baseline(squared_scores: ArrayLike, returns: ArrayLike, probabilities: ArrayLike | None = None
                     ) -> Any:
    """The b that makes ``(G - b) grad log pi`` vary least: ``E[|grad log pi|^2 G] / E[|grad log pi|^2]``.

    Equation: eq-optimal-baseline

    Args:
        squared_scores: (..., K): |grad log pi|^2 of each of K actions or samples, 0 or more.
        returns: (..., K): their returns or action values, reward units.
        probabilities: (..., K) that sum to one along the last axis; None means 1/K each.

    Returns:
        (...): b, reward units; a float where there is one. The mean return where all scores are 0.

    Raises:
        ValueError: shapes that do not fit, no sample, a negative square, probabilities that do not sum to
            one, or a number that is not finite.

    Source: Greensmith, Bartlett & Baxter (2004); Weaver & Tao (2001).
    """
    squares, returns = _finite("squared_scores", squared_scores), _finite("returns", returns)
    if squares.shape != returns.shape or squares.ndim == 0 or squares.size == 0:
        raise ValueError(f"squared_scores and returns must both be (..., K), got {squares.shape} and "
                         f"{returns.shape}")
    if (squares < -1e-12).any():
        raise ValueError(f"squared_scores must be 0 or more, got {squares.min()}")
    p = np.full(squares.shape, 1 / squares.shape[-1]) if probabilities is None \
        else _finite("probabilities", probabilities)
    if p.shape != squares.shape or (p < 0).any() or (abs(p.sum(-1) - 1) > 1e-6).any():
        raise ValueError(f"probabilities must be {squares.shape} and sum to 1 along the last axis, "
                         f"got shape {p.shape}")
    weights = p * squares
    weights = np.where(weights.sum(-1, keepdims=True) > 1e-300, weights, p)
    b = (weights * returns).sum(-1) / weights.sum(-1)
    return float(b) if b.ndim == 0 else b


def n_step_advantage(
    rewards: Array, values: Array, next_values: Array, terminated: Array, truncated: Array, gamma: float,
    n: int,
) -> Array:
    """The n-step return minus V(s_t): ``sum_{k<n} gamma^k r_{t+k} + gamma^n V(s_{t+n}) - V(s_t)``.

    Equation: eq-n-step-advantage

    Args:
        rewards, values, next_values, terminated, truncated: (T,) or (T, N), as for ``returns.gae``.
        gamma: discount, in [0, 1].
        n: number of rewards, 1 or more; fewer where the episode or the buffer ends first.

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError, TypeError: as ``returns.n_step_returns``.

    Source: Mnih et al. (2016), section 4.
    """
    returns = n_step_returns(rewards, next_values, terminated, truncated, gamma, n)
    (values,) = _float_arrays(_library_of(returns), {"values": values})
    if values.shape != returns.shape:
        raise ValueError(f"values has shape {tuple(values.shape)}; the rewards have {tuple(returns.shape)}")
    _check_finite("values", values)
    return returns - values


def psi_weights(
    kind: str, rewards: Array, terminated: Array, truncated: Array, *, values: Array | None = None,
    next_values: Array | None = None, gamma: float, lam: float | None = None, n: int | None = None,
    baseline: str = "none", discount_time: bool = False, mask: Array | None = None,
    squared_scores: Array | None = None,
) -> Array:
    """The weight Psi_t of each step's score in the gradient's estimate.

    Equation: eq-psi

    Args:
        kind: "return": R(tau), the discounted return of the whole episode, at every step of it;
            "reward_to_go": G_t; "td_error": delta_t; "n_step": n-step advantage; "gae": generalized
            advantage.
        rewards: (T,) or (T, N), reward units.
        terminated, truncated: same shape, flags 0 or 1, as in ``returns``.
        values: V(s_t), same shape; for the last three kinds and the baseline "value".
        next_values: V(s_{t+1}) of the real next states, same shape; for the last three kinds. The first two
            bootstrap with them at truncations and at the buffer's end; without them, nothing comes after.
        gamma: discount, in [0, 1].
        lam: for "gae", in [0, 1].
        n: for "n_step", 1 or more.
        baseline: subtracted from the first two kinds: "none"; "mean", the mean of all weights (which contains
            the step's own, and so shrinks the gradient by a factor 1 - 1/N for N one-step episodes); "value",
            V(s_t); "optimal", the number of least variance as estimated from the same steps.
        discount_time: multiply by gamma^t, t counted from the start of the episode (or of the buffer).
            Without it the estimate is the usual one, not of the gradient of J. No effect on "return", which
            has it.
        mask: same shape, flags 0 or 1, not all 0; weights are 0 where it is 0, and such steps count for no
            baseline.
        squared_scores: |grad log pi|^2 of each step, same shape; for the baseline "optimal".

    Returns:
        (T,) or (T, N), the same type as the rewards; no gradient flows through, they are constants.

    Raises:
        ValueError: an unknown word, a number out of range, shapes that differ, a value that is not finite,
            something missing, or a baseline for a kind that has one built in.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), section 2.
    """
    _check_word("kind", kind, SAMPLED_KINDS)
    _check_word("baseline", baseline, BASELINES)
    check_flag("discount_time", discount_time)
    gamma = check_unit_interval("gamma", gamma)
    needed = {"values": values} if kind not in SAMPLED_KINDS[:2] or baseline == "value" else {}
    needed |= {"next_values": next_values} if kind not in SAMPLED_KINDS[:2] else {}
    needed |= {"squared_scores": squared_scores} if baseline == "optimal" else {}
    for name, array in needed.items():
        if array is None:
            raise ValueError(f"{name} is None; the kind {kind!r} with the baseline {baseline!r} needs it")
    if baseline != "none":
        _check_takes_baseline(kind, TAKES_BASELINE)
    rewards, values, next_values, mask, squared_scores = (
        _detached(x) for x in (rewards, values, next_values, mask, squared_scores))
    following = rewards * 0 if next_values is None else next_values        # shapes are checked in _core
    weights = _core(kind, rewards, values, following, terminated, truncated, gamma, lam, n)
    ends = _flags(terminated, truncated, weights)
    for name, array in (("mask", mask), ("values", values), ("squared_scores", squared_scores)):
        if array is not None and tuple(array.shape) != tuple(weights.shape):
            raise ValueError(f"{name} has shape {tuple(array.shape)}; "
                             f"the rewards have {tuple(weights.shape)}")
    if mask is not None and not (bool(((mask == 0) | (mask == 1)).all()) and bool((mask != 0).any())):
        raise ValueError("mask must hold flags 0 or 1, at least one of them 1")
    counted = weights == weights if mask is None else mask != 0             # (T,) or (T, N) bool
    discount = gamma ** _time_in_episode(ends, weights) if discount_time and kind != "return" else 1.0
    if baseline == "mean":
        weights = weights - weights[counted].mean()
    elif baseline == "value":
        _check_finite("values", values[counted])
        weights = _where(counted, weights - values, weights)
    elif baseline == "optimal":
        squares = (squared_scores * discount**2)[counted]
        weights = weights - optimal_baseline(_on_cpu(squares), _on_cpu(weights[counted]))
    return weights * discount * counted


def _core(kind: str, rewards: Array, values: Array, next_values: Array, terminated: Array, truncated: Array,
          gamma: float, lam: float | None, n: int | None) -> Array:
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
    returns = lambda_returns(*steps, gamma, 1.0)                          # G_t
    return returns if kind == "reward_to_go" else _first_of_episode(returns, _flags(*steps[2:], returns))


def _first_of_episode(returns: Array, ends: Array) -> Array:
    """At every step, the return of the first step of its episode."""
    first = [returns[0]]
    for t in range(1, len(returns)):
        first.append(_where(ends[t - 1], returns[t], first[-1]))
    return _library_of(returns).stack(first)


def _time_in_episode(ends: Array, like: Array) -> Array:
    """Steps since the episode's start, or since the start of the buffer."""
    times = [like[0] * 0]
    for t in range(1, len(like)):
        times.append(_where(ends[t - 1], times[0], times[-1] + 1))
    return _library_of(like).stack(times)

# ---------------------------------------------------------------------- checks and small helpers

def _check_word(name: str, word: Any, words: tuple[str, ...]) -> None:
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {word!r}")


def _check_takes_baseline(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        takers = ", ".join(map(repr, kinds))
        raise ValueError(f"baseline must be 'none' for {kind!r}; only {takers} take this one")


def _finite(name: str, value: ArrayLike) -> FloatArray:
    array = np.asarray(value, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {value!r}")
    return array


def _table(name: str, logits: ArrayLike, log: bool = False) -> FloatArray:
    """Logits (S, A), checked; or their log-probabilities."""
    table = _finite(name, logits)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"{name} must be (S, A), got shape {table.shape}")
    return softmax_log_probs(table) if log else table


def _for_mdp(mdp: MDP, logits: ArrayLike) -> FloatArray:
    table = _table("logits", logits)
    if table.shape != (mdp.n_states, mdp.n_actions):
        raise ValueError(f"logits must be ({mdp.n_states}, {mdp.n_actions}), got shape {table.shape}")
    return table


def _where(condition: Array, one: Array, other: Array) -> Array:
    return _library_of(one).where(condition, one, other)


def _flags(terminated: Array, truncated: Array, like: Array) -> Array:
    """Where an episode ends, as booleans of the library of ``like``; checked before."""
    if isinstance(like, Tensor):
        terminated, truncated = (torch.as_tensor(x, device=like.device) for x in (terminated, truncated))
        return (terminated != 0) | (truncated != 0)
    return (np.asarray(terminated) != 0) | (np.asarray(truncated) != 0)


def _on_cpu(array: Array) -> NDArray[Any]:
    return array.cpu().numpy() if isinstance(array, Tensor) else array


def _detached(array: Array) -> Array:
    if isinstance(array, Tensor):
        return array.detach()
    return None if array is None else np.asarray(array)
