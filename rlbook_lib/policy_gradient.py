"""Policy gradients: exact on small processes, estimated from samples, and in training (chapter 6).

The objective is the expected discounted return ``J = E[sum_t gamma^t r_t]``; the policy has parameters. In
order: scores (gradients of log-probabilities); the gradient by the policy gradient theorem, exactly; the same
by listing all trajectories, which also gives the variance of every estimator; weights Psi_t from samples; the
losses whose gradients are the estimates; REINFORCE; A2C.

The exact part is numpy, for a softmax policy with one row of logits per state: parameters (S, A). The score
is then ``1[b = a] - pi(b | s)`` in the row of s and zero elsewhere. The training part is torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from rlbook_lib.dynamic_programming import action_values, policy_evaluation, q_from_values
from rlbook_lib.environments import TorchCartPole, is_ready_made, vectorize
from rlbook_lib.experience import check_count, check_flag
from rlbook_lib.mdp import MDP, Trajectory, check_seed, check_unit_interval, enumerate_trajectories
from rlbook_lib.networks import CategoricalPolicy, ValueNetwork, check_tensors, make_policy, softmax_log_probs
from rlbook_lib.returns import (
    _check_finite,
    _float_arrays,
    _library_of,
    effective_horizon,
    gae,
    lambda_returns,
    n_step_returns,
    normalize_advantages,
    td_residuals,
)
from rlbook_lib.rollout import Collector, Rollout, flatten, value_estimates
from rlbook_lib.training import (
    TrainingError,
    TrainingResult,
    Update,
    check_state,
    config_dict,
    pack,
    train,
    unpack,
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


# ---------------------------------------------------------------------- losses

def policy_gradient_loss(log_prob: Tensor, psi: Tensor, weights: Tensor | None = None) -> Tensor:
    """The loss whose gradient is minus the estimate: ``-mean(Psi_t log pi(a_t | s_t))``, with Psi_t constant.

    Only its gradient means anything: its value may go up while the policy gets better.

    Equation: eq-policy-gradient-loss

    Args:
        log_prob: log pi(a_t | s_t), any shape, with gradients.
        psi: the weights Psi_t, same shape; treated as constants.
        weights: None takes the mean over all steps; otherwise the sum with these weights, same shape: 1/N for
            N trajectories, or the probability of each step's trajectory.

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that differ, an empty tensor, or a value that is not finite.
        TypeError: an argument is no tensor.

    Source: Schulman et al. (2016), equation 1.
    """
    check_tensors(log_prob=log_prob, psi=psi, **({} if weights is None else {"weights": weights}))
    return _policy_loss(log_prob, psi, weights)


def _policy_loss(log_prob: Tensor, psi: Tensor, weights: Tensor | None = None) -> Tensor:
    terms = psi.detach() * log_prob
    return -terms.mean() if weights is None else -(weights * terms).sum()


def critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Half the mean squared error of the values; the targets are constants, no gradient flows into them.

    Equation: eq-critic-loss

    Args:
        values: V(s_t), any shape, with gradients.
        targets: what V should say, same shape; detached here.

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that differ, an empty tensor, or a value that is not finite.
        TypeError: an argument is no tensor.

    Source: Mnih et al. (2016), algorithm 3.
    """
    check_tensors(values=values, targets=targets)
    return _critic_loss(values, targets)


def _critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * ((values - targets.detach()) ** 2).mean()


# ---------------------------------------------------------------------- REINFORCE

@dataclass(frozen=True)
class ReinforceConfig:
    """Settings of REINFORCE; the defaults solve CartPole-v1.

    Args:
        total_steps: environment steps of all episodes together; the update that reaches it is the last.
        episodes: N, whole episodes per update, run side by side; 1 to 64.
        learning_rate: of the policy, for Adam; 1e-4 to 1e-1, the high end for tables.
        value_learning_rate: of the value network, if the baseline is "value".
        gamma: discount; 0.9 to 1.
        psi: "reward_to_go", or "return" as the derivation starts with.
        baseline: "none", "mean", "value" (learned), or "optimal" (a number, estimated from the same episodes,
            with scores by the policy's outputs).
        discount_time: weight with gamma^t, as the gradient of the discounted objective asks.
        normalize: shift and scale the weights of an update to mean 0 and deviation 1.
        entropy_coefficient: reward for entropy, 0 to 0.05.
        max_steps: cut longer episodes; None trusts the environment's limit. What would come after a cut, or
            after a truncation, counts by its value with the baseline "value", and not at all with the others.
        hidden: sizes of the hidden layers of both networks; () with one-hot observations is a table.
        activation: "tanh" or "relu".
        initial_log_std: of a Gaussian policy.
    """

    total_steps: int = 200_000
    episodes: int = 8
    learning_rate: float = 1e-2
    value_learning_rate: float = 1e-2
    gamma: float = 0.99
    psi: str = "reward_to_go"
    baseline: str = "value"
    discount_time: bool = False
    normalize: bool = True
    entropy_coefficient: float = 0.0
    max_steps: int | None = None
    hidden: tuple[int, ...] = (64,)
    activation: str = "tanh"
    initial_log_std: float = 0.0

    def __post_init__(self) -> None:
        _check_word("psi", self.psi, SAMPLED_KINDS[:2])
        _check_word("baseline", self.baseline, BASELINES)
        _check_common(self)
        check_count("episodes", self.episodes)
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)


def iterate_reinforce(env: Any, config: ReinforceConfig | None = None, *, seed: int,
                      state: dict[str, Any] | None = None) -> Iterator[Update]:
    """REINFORCE: run whole episodes, weight each score by what followed, take one step uphill; again.

    Args:
        env: a Gymnasium id, a constructor, or a vector environment (whose number of copies then counts).
        config: settings; None takes the defaults.
        seed: of networks, environments and actions.
        state: from a record of an earlier run with the same config and seed; goes on from there.

    Yields:
        A record after each update; metrics "policy_loss", "entropy", "episode_return" (undiscounted),
        "episode_length", and "value_loss" with the baseline "value". env_steps counts the steps of the
        episodes learned from, not those that a copy takes while it waits for the longest.

    Raises:
        ValueError: an environment with the wrong kind of space; a NaN from the environment; a state of
            another run.
        TypeError: config is no ``ReinforceConfig``.
        TrainingError: a loss that is not finite.

    Source: Williams (1992); Sutton & Barto (2018), section 13.4.
    """
    config = _settings(config, ReinforceConfig)
    learner = _Learner(env, config, seed, config.episodes, 1, state)
    try:
        if learner.env_steps >= config.total_steps:  # a state of a run that had ended
            yield Update(learner.update, learner.env_steps, {}, learner.policy, learner.state)
        while learner.env_steps < config.total_steps:
            rollout, mask = learner.collector.collect_episodes(config.max_steps)
            metrics = _reinforce_update(learner, rollout, mask)
            steps = int(mask.sum())
            metrics["episode_return"] = float((rollout.rewards * mask).sum() / rollout.copies)
            metrics["episode_length"] = steps / rollout.copies
            yield learner.record(steps, metrics)
    finally:
        learner.close()


def _reinforce_update(learner: _Learner, rollout: Rollout, mask: Array) -> dict[str, float]:
    """One step of the policy, and of the baseline where it is learned, on N whole episodes."""
    config, critic = learner.config, learner.config.baseline == "value"
    values, next_values = value_estimates(rollout, learner.value) if critic else (None, None)
    flags = (rollout.terminated, rollout.truncated)
    psi = psi_weights(config.psi, rollout.rewards, *flags, values=values, next_values=next_values,
                      gamma=config.gamma, baseline=config.baseline, discount_time=config.discount_time,
                      mask=mask, squared_scores=_squared_scores(learner.policy, rollout))
    kept = flatten(mask)                                               # (T N,)
    batch, psi = rollout.batch(), flatten(psi)[kept]
    if config.normalize:
        psi = normalize_advantages(psi)
    outputs = learner.policy(batch.observations[kept])
    log_probs = learner.policy.log_prob_of(outputs, batch.actions[kept])
    shares = torch.full_like(psi, 1 / rollout.copies)                  # sum over time, mean over episodes
    policy_loss, entropy = _policy_loss(log_probs, psi, shares), learner.policy.entropy_of(outputs).mean()
    losses = {"policy_loss": policy_loss}
    if critic:
        returns = psi_weights("reward_to_go", rollout.rewards, *flags, next_values=next_values,
                              gamma=config.gamma)
        scale = learner.value.scale
        losses["value_loss"] = _critic_loss(learner.value(batch.observations[kept]) / scale,
                                            flatten(returns)[kept] / scale)
    learner.step(sum(losses.values()) - config.entropy_coefficient * entropy)
    return {name: loss.item() for name, loss in (losses | {"entropy": entropy}).items()}


def _squared_scores(policy: Any, rollout: Rollout) -> Array:
    """|grad log pi(a_t | s_t)|^2 by the logits, or by the means and logarithms of deviations; (T, N)."""
    outputs, actions = torch.as_tensor(rollout.outputs), torch.as_tensor(rollout.actions)
    if isinstance(policy, CategoricalPolicy):
        probabilities = outputs.exp()
        taken = probabilities.gather(-1, actions[..., None])[..., 0]
        squares = 1 - 2 * taken + (probabilities**2).sum(-1)
    else:
        mean, log_std = outputs.chunk(2, -1)
        z = (actions - mean) * torch.exp(-log_std)
        squares = ((z * torch.exp(-log_std)) ** 2 + (z * z - 1) ** 2).sum(-1)
    return squares if isinstance(rollout.rewards, Tensor) else squares.numpy()


def train_reinforce(env: Any, config: ReinforceConfig | None = None, *, seed: int, **options: Any
                    ) -> TrainingResult:
    """Run ``iterate_reinforce`` out.

    Args:
        env, config, seed: as for ``iterate_reinforce``.
        **options: state, progress, checkpoint, checkpoint_every, stop: as for ``training.train``.

    Returns:
        The policy, the curves and the state.

    Raises:
        ValueError, TrainingError: as ``training.train``.
    """
    return train(iterate_reinforce, env, _settings(config, ReinforceConfig), seed=seed, **options)


# ---------------------------------------------------------------------- A2C

@dataclass(frozen=True)
class A2CConfig:
    """Settings of advantage actor-critic; the defaults solve CartPole-v1.

    Args:
        total_steps: environment steps of all copies together; the update that reaches it is the last.
        copies: N, environments side by side; 1 to 64, thousands on a GPU.
        steps: T, steps of each copy per update; 5 to 128.
        learning_rate: of both networks, for Adam; 3e-4 to 1e-2.
        gamma: discount; 0.9 to 1.
        psi: the advantage: "td_error", "n_step", "gae", or "reward_to_go" with V(s_t) as baseline.
        lam: for "gae"; 0.9 to 1.
        n: for "n_step"; 1 to T.
        normalize: shift and scale the advantages of an update to mean 0 and deviation 1.
        value_coefficient: weight of the critic's loss; matters only where gradients are clipped, for the
            networks are separate.
        entropy_coefficient: reward for entropy, 0 to 0.05.
        max_gradient_norm: longer gradients are scaled down to it; None never does.
        return_scale: size of typical returns, in reward units; None takes 1 / (1 - gamma), at most 1000.
        hidden: sizes of the hidden layers of each network.
        activation: "relu" or "tanh".
        initial_log_std: of a Gaussian policy.
    """

    total_steps: int = 100_000
    copies: int = 16
    steps: int = 32
    learning_rate: float = 7e-3
    gamma: float = 0.99
    psi: str = "gae"
    lam: float = 0.98
    n: int = 5
    normalize: bool = True
    value_coefficient: float = 1.0
    entropy_coefficient: float = 0.01
    max_gradient_norm: float | None = None
    return_scale: float | None = None
    hidden: tuple[int, ...] = (64,)
    activation: str = "relu"
    initial_log_std: float = 0.0

    def __post_init__(self) -> None:
        _check_word("psi", self.psi, SAMPLED_KINDS[1:])
        _check_common(self)
        for name in ("copies", "steps", "n"):
            check_count(name, getattr(self, name))
        check_unit_interval("lam", self.lam)
        _check_number("value_coefficient", self.value_coefficient, 0.0)
        for name in ("max_gradient_norm", "return_scale"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), 0.0, above=True)


def iterate_a2c(env: Any, config: A2CConfig | None = None, *, seed: int, state: dict[str, Any] | None = None
                ) -> Iterator[Update]:
    """Advantage actor-critic: T steps of N copies, one step of actor and critic on all of them; again.

    Args:
        env: a Gymnasium id, a constructor, or a vector environment (whose number of copies then counts).
        config: settings; None takes the defaults.
        seed: of networks, environments and actions.
        state: from a record of an earlier run with the same config and seed; goes on from there.

    Yields:
        A record after each update; metrics "policy_loss", "value_loss" (in scaled units), "entropy", and,
        where episodes ended, "episode_return" (undiscounted) and "episode_length".

    Raises:
        ValueError: an environment with the wrong kind of space; a NaN from the environment; a state of
            another run.
        TypeError: config is no ``A2CConfig``.
        TrainingError: a loss that is not finite.

    Source: Mnih et al. (2016), in its synchronous form.
    """
    config = _settings(config, A2CConfig)
    learner = _Learner(env, config, seed, config.copies, config.steps, state)
    try:
        if learner.env_steps >= config.total_steps:  # a state of a run that had ended
            yield Update(learner.update, learner.env_steps, {}, learner.policy, learner.state)
        while learner.env_steps < config.total_steps:
            rollout = learner.collector.collect()
            advantages, targets = a2c_targets(rollout, learner.value, config)
            metrics = _a2c_update(learner, rollout, advantages, targets)
            yield learner.record(len(rollout), metrics | _finished_episodes(learner.collector.environments))
    finally:
        learner.close()


def a2c_targets(rollout: Rollout, value_network: Any, config: A2CConfig) -> tuple[Array, Array]:
    """The advantages of a rollout, and what the critic is to say: advantage plus value.

    Truncated steps, and the end of the buffer, bootstrap from the value of the real next state; terminations
    do not.

    Args:
        rollout: T steps of N copies.
        value_network: the critic.
        config: gamma, psi, lam and n count.

    Returns:
        (advantages, targets), (T, N) each, reward units.

    Source: Mnih et al. (2016), section 4; Schulman et al. (2016).
    """
    values, next_values = value_estimates(rollout, value_network)
    baseline = "value" if config.psi == "reward_to_go" else "none"
    advantages = psi_weights(config.psi, rollout.rewards, rollout.terminated, rollout.truncated,
                             values=values, next_values=next_values, gamma=config.gamma, lam=config.lam,
                             n=config.n, baseline=baseline)
    return advantages, advantages + values


def _a2c_update(learner: _Learner, rollout: Rollout, advantages: Array, targets: Array) -> dict[str, float]:
    """One step of both networks on the whole rollout."""
    config, batch, scale = learner.config, rollout.batch(), learner.value.scale
    advantages, targets = flatten(advantages), flatten(targets)
    if config.normalize:
        advantages = normalize_advantages(advantages)
    outputs = learner.policy(batch.observations)
    policy_loss = _policy_loss(learner.policy.log_prob_of(outputs, batch.actions), advantages)
    value_loss = _critic_loss(learner.value(batch.observations) / scale, targets / scale)
    entropy = learner.policy.entropy_of(outputs).mean()
    learner.step(policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy,
                 config.max_gradient_norm)
    return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "entropy": entropy.item()}


def train_a2c(env: Any, config: A2CConfig | None = None, *, seed: int, **options: Any) -> TrainingResult:
    """Run ``iterate_a2c`` out.

    Args:
        env, config, seed: as for ``iterate_a2c``.
        **options: state, progress, checkpoint, checkpoint_every, stop: as for ``training.train``.

    Returns:
        The policy, the curves and the state.

    Raises:
        ValueError, TrainingError: as ``training.train``.
    """
    return train(iterate_a2c, env, _settings(config, A2CConfig), seed=seed, **options)


# ---------------------------------------------------------------------- what both trainers keep

class _Learner:
    """Both networks, their optimizer, the collector and the counts: all that a checkpoint must hold."""

    def __init__(self, env: Any, config: Any, seed: int, copies: int, steps: int,
                 state: dict[str, Any] | None) -> None:
        self.config, self.seed = config, check_seed(seed)
        self.ready_made = is_ready_made(env)
        environment_seed, policy_seed, value_seed, action_seed = (
            int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(4))
        environments = env
        if not isinstance(env, TorchCartPole):
            environments = vectorize(env, copies, seed=environment_seed)
        device = getattr(environments, "device", None)
        self.policy = make_policy(
            environments.observation_space, environments.action_space, hidden=config.hidden,
            activation=config.activation, seed=policy_seed, initial_log_std=config.initial_log_std,
            env=environments.name).to(device)
        self.value = ValueNetwork(environments.observation_size, hidden=config.hidden,
                                  activation=config.activation, seed=value_seed,
                                  scale=_return_scale(config)).to(device)
        value_rate = getattr(config, "value_learning_rate", config.learning_rate)
        self.optimizer = torch.optim.Adam(
            [{"params": list(self.policy.parameters())},
             {"params": list(self.value.parameters()), "lr": value_rate}],
            lr=config.learning_rate, eps=1e-5, fused=True)             # fused: a third of the time per step
        rng = np.random.default_rng(action_seed) if device is None \
            else torch.Generator(device).manual_seed(action_seed)
        self.collector = Collector(environments, self.policy, steps, rng)
        self.update, self.env_steps = 0, 0
        if state is not None:
            self.load_state(state)

    def step(self, loss: Tensor, max_gradient_norm: float | None = None) -> None:
        """One step of the optimizer down the loss; nothing is changed by a loss that is no number."""
        if not math.isfinite(loss.item()):
            raise TrainingError(f"update {self.update + 1}: the loss is {loss.item()}; the networks are "
                                f"broken, learning_rate is {self.config.learning_rate:g}")
        self.optimizer.zero_grad()
        loss.backward()
        if max_gradient_norm is not None:
            nn.utils.clip_grad_norm_([p for group in self.optimizer.param_groups for p in group["params"]],
                                     max_gradient_norm)
        self.optimizer.step()

    def record(self, env_steps: int, metrics: dict[str, float]) -> Update:
        """Count one update."""
        self.update += 1
        self.env_steps += env_steps
        return Update(self.update, self.env_steps, metrics, self.policy, self.state)

    def state(self) -> dict[str, Any]:
        """Everything, as tensors and plain data."""
        return {"config": config_dict(self.config), "seed": self.seed, "update": self.update,
                "env_steps": self.env_steps, "policy": pack(self.policy), "value": pack(self.value),
                "optimizer": pack(self.optimizer), "collector": self.collector.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state`` was taken."""
        check_state(state, self.config, self.seed)
        for name in ("policy", "value", "optimizer"):
            unpack(getattr(self, name), state[name])
        self.collector.load_state(state["collector"])
        self.update, self.env_steps = state["update"], state["env_steps"]

    def close(self) -> None:
        """Close the environments, unless they came ready-made."""
        if not self.ready_made:
            self.collector.environments.close()


def _settings(config: Any, kind: type) -> Any:
    """The config, or the defaults for None."""
    if not isinstance(config, kind) and config is not None:
        raise TypeError(f"config is {type(config).__name__}; expected {kind.__name__}")
    return kind() if config is None else config


def _return_scale(config: Any) -> float:
    """Size of typical returns: with it the critic's perceptron computes numbers around one."""
    given = getattr(config, "return_scale", None)
    return given if given is not None else min(1000.0, effective_horizon(config.gamma))


def _finished_episodes(environments: Any) -> dict[str, float]:
    """Mean return and length of the episodes that ended since the last call; nothing if none did."""
    returns, lengths = environments.pop_episodes()
    if len(returns) == 0:
        return {}
    return {"episode_return": float(returns.mean()), "episode_length": float(lengths.mean())}


def _check_common(config: Any) -> None:
    """Fields that both configs have."""
    check_count("total_steps", config.total_steps)
    check_unit_interval("gamma", config.gamma)
    for name in ("learning_rate", "value_learning_rate"):
        if hasattr(config, name):
            _check_number(name, getattr(config, name), 0.0, above=True)
    _check_number("entropy_coefficient", config.entropy_coefficient, 0.0)
    _check_number("initial_log_std", config.initial_log_std)
    for name in ("normalize", "discount_time"):
        if hasattr(config, name):
            check_flag(name, getattr(config, name))


def _check_number(name: str, value: Any, low: float = -math.inf, above: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value) or value < low or (above and value == low):
        bound = "above" if above else "of at least"
        raise ValueError(f"{name} must be a finite number {bound} {low}, got {value}")


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
