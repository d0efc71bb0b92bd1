"""Returns and advantages: discounted, n-step and lambda returns, generalized advantages (chapters 2, 4, 7).

Time is the first axis, of length T; a second axis, of length N, holds parallel environments: (T,) or (T, N).
Reward ``rewards[t]`` is r_t, the one that follows action a_t, and time starts at 0.

The functions that bootstrap take two flags for each step. ``terminated[t]`` says that the step led into a
terminal state: nothing follows, and the value of the next state is not used. ``truncated[t]`` says that
somebody stopped the episode (a time limit): the next state has a value, so it is used, but the rewards
after it belong to another episode. When both are set the episode terminated. The last step of the buffer is
treated like a truncation unless it terminated.

numpy arrays and torch tensors go through the same lines. This module never imports torch; if a tensor comes
in, torch is there already. Gradients flow through.
"""

from __future__ import annotations

import math
import numbers
import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbook_lib.mdp import check_unit_interval

__all__ = [
    "discounted_return",
    "discounted_returns",
    "return_bound",
    "effective_horizon",
    "n_step_returns",
    "lambda_returns",
    "gae",
    "td_residuals",
    "k_step_advantages",
    "gae_weights",
    "mixture_weights",
    "gae_mixture",
    "gae_recursion",
    "value_targets",
    "normalize_advantages",
]

FloatArray: TypeAlias = NDArray[np.float64]
Array: TypeAlias = Any  # a numpy array or a torch tensor; float32 in, float32 out

BLOCK = 32  # steps per block in the blocked scan: the fastest of 16, 32, 64 and 128 at (2048, 64)


# ---------------------------------------------------------------------------------------- public functions


def discounted_return(rewards: Array, gamma: float) -> Array:
    """The return of the first step, as the sum it is defined by: G_0 = sum over k of gamma^k r_k.

    Equation: eq-return

    Args:
        rewards: (T,) or (T, N), reward units; the rewards of one episode, or of N side by side.
        gamma: discount, in [0, 1].

    Returns:
        A float for numpy input of shape (T,); otherwise one return per column, shape (N,), or a 0-d tensor.

    Raises:
        ValueError: rewards empty, of another shape or not finite; gamma outside [0, 1].
        TypeError: rewards or gamma are not numbers.

    Source: Sutton & Barto (2018), equation 3.8, whose R_{t+1} is our r_t.
    """
    library, rewards = _checked_rewards(rewards)
    gamma = check_unit_interval("gamma", gamma)
    weights = library.full_like(rewards, gamma)  # (T,) or (T, N)
    weights[0] = 1.0
    weights = library.cumprod(weights, 0)  # gamma^k at step k
    total = (weights * rewards).sum(0)
    return float(total) if library is np and rewards.ndim == 1 else total


def discounted_returns(rewards: Array, gamma: float) -> Array:
    """The return of every step of one episode, backward: G_t = r_t + gamma G_{t+1}, and G_T = 0.

    Equation: eq-return-recursion

    Args:
        rewards: (T,) or (T, N), reward units; the rewards of one episode, or of N side by side.
        gamma: discount, in [0, 1].

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError: rewards empty, of another shape or not finite; gamma outside [0, 1].
        TypeError: rewards or gamma are not numbers.

    Source: Sutton & Barto (2018), equation 3.9.
    """
    library, rewards = _checked_rewards(rewards)
    gamma = check_unit_interval("gamma", gamma)
    return _reverse_scan(library, rewards + 0.0, gamma)  # + 0: a copy, the scan works in place


def return_bound(reward_bound: float, gamma: float) -> float:
    """The largest absolute return that rewards within [-reward_bound, reward_bound] can sum up to.

    Equation: eq-return-bound

    Args:
        reward_bound: r_max, reward units, 0 or more.
        gamma: discount, in [0, 1]. At gamma = 1 no finite bound holds for every length, and the result is inf
            (unless all rewards are 0).

    Returns:
        r_max / (1 - gamma).

    Raises:
        ValueError: reward_bound negative or not finite; gamma outside [0, 1].
        TypeError: an argument is not a number.

    Source: the geometric series; Sutton & Barto (2018), section 3.3.
    """
    reward_bound = _checked_number("reward_bound", reward_bound)
    if not (math.isfinite(reward_bound) and reward_bound >= 0.0):
        raise ValueError(f"reward_bound is {reward_bound}; expected a finite number, 0 or more")
    if reward_bound == 0.0:
        check_unit_interval("gamma", gamma)
        return 0.0
    return reward_bound * effective_horizon(gamma)


def effective_horizon(gamma: float) -> float:
    """How many steps a discount looks ahead: the sum of all its weights gamma^k.

    Equation: eq-effective-horizon

    Args:
        gamma: discount, in [0, 1]; 1 gives inf.

    Returns:
        1 / (1 - gamma), in steps. It is also the mean length of an episode that goes on with probability
        gamma after every step.

    Raises:
        ValueError: gamma outside [0, 1].
        TypeError: gamma is not a number.

    Source: the geometric series.
    """
    gamma = check_unit_interval("gamma", gamma)
    return math.inf if gamma == 1.0 else 1.0 / (1.0 - gamma)


def n_step_returns(
    rewards: Array, next_values: Array, terminated: Array, truncated: Array, gamma: float, n: int
) -> Array:
    """n rewards, then the value of the state they lead to; fewer where the episode or the buffer ends first.

    Equation: eq-n-step-return

    Args:
        rewards: (T,) or (T, N), reward units.
        next_values: same shape; V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: same shape, 0 or 1; the step led into a terminal state.
        truncated: same shape, 0 or 1; the episode was stopped after this step.
        gamma: discount, in [0, 1].
        n: number of rewards, 1 or more.

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError: shapes that differ, an empty array, a flag that is not 0 or 1, a value that is not finite,
            gamma or n out of range.
        TypeError: an argument of the wrong type.

    Source: Sutton & Barto (2018), equation 7.1.
    """
    library, (rewards, next_values), terminated, truncated = _checked_steps(
        {"rewards": rewards, "next_values": next_values}, terminated, truncated
    )
    gamma, n = check_unit_interval("gamma", gamma), _checked_count("n", n)
    ends = _path_ends(library, terminated, truncated)
    one_step = rewards + _bootstrap(next_values, terminated, gamma)
    if n >= rewards.shape[0]:  # every path ends before n rewards are counted: run the recursion to its end
        return _reverse_scan(library, library.where(ends, one_step, rewards), gamma, ends)
    returns = one_step
    for _ in range(n - 1):  # G^(k+1)_t = r_t + gamma G^(k)_{t+1}, except where nothing of this path follows
        following = library.concatenate([returns[1:], returns[-1:]])  # G^(k)_{t+1}; the last row is an end
        returns = library.where(ends, one_step, rewards + gamma * following)
    return returns


def lambda_returns(
    rewards: Array, next_values: Array, terminated: Array, truncated: Array, gamma: float, lam: float
) -> Array:
    """The mixture of all n-step returns, weights (1 - lam) lam^(n-1); what is left goes to the longest.

    Equation: eq-lambda-return

    Computed backward: G_t = r_t + gamma [(1 - lam) V(s_{t+1}) + lam G_{t+1}] inside an episode,
    r_t + gamma V(s_{t+1}) at a truncation or at the end of the buffer, r_t at a termination.

    Args:
        rewards: (T,) or (T, N), reward units.
        next_values: same shape; V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: same shape, 0 or 1; the step led into a terminal state.
        truncated: same shape, 0 or 1; the episode was stopped after this step.
        gamma: discount, in [0, 1].
        lam: mixing weight, in [0, 1]; 0 is the one-step target, 1 counts all rewards.

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError: shapes that differ, an empty array, a flag that is not 0 or 1, a value that is not finite,
            gamma or lam out of range.
        TypeError: an argument of the wrong type.

    Source: Sutton & Barto (2018), equations 12.2 and 12.3.
    """
    library, (rewards, next_values), terminated, truncated = _checked_steps(
        {"rewards": rewards, "next_values": next_values}, terminated, truncated
    )
    gamma, lam = check_unit_interval("gamma", gamma), check_unit_interval("lam", lam)
    ends = _path_ends(library, terminated, truncated)
    share = library.full_like(rewards, 1.0 - lam)  # of the bootstrap value; all of it where the path ends
    share[ends] = 1.0
    known = rewards + share * _bootstrap(next_values, terminated, gamma)
    return _reverse_scan(library, known, gamma * lam, ends)


def gae(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """Generalized advantage estimates: A_t = sum over l of (gamma lam)^l delta_{t+l}, to the episode's end.

    Equation: eq-gae

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t), without the middle term at a termination.

    Args:
        rewards: (T,) or (T, N), reward units.
        values: same shape; V(s_t).
        next_values: same shape; V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: same shape, 0 or 1; the step led into a terminal state.
        truncated: same shape, 0 or 1; the episode was stopped after this step.
        gamma: discount, in [0, 1].
        lam: decay of the later errors, in [0, 1]; 0 is the one-step error, 1 the sum of rewards minus V(s_t).

    Returns:
        (advantages, value_targets), both (T,) or (T, N); value_targets = advantages + values, the lambda
        return.

    Raises:
        ValueError: shapes that differ, an empty array, a flag that is not 0 or 1, a value that is not finite,
            gamma or lam out of range.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), section 3.
    """
    library, (rewards, values, next_values), terminated, truncated = _checked_steps(
        {"rewards": rewards, "values": values, "next_values": next_values}, terminated, truncated
    )
    gamma, lam = check_unit_interval("gamma", gamma), check_unit_interval("lam", lam)
    errors = _errors(rewards, values, next_values, terminated, gamma)
    advantages = _reverse_scan(library, errors, gamma * lam, terminated | truncated)
    return advantages, advantages + values


# ------------------------------------------------------- generalized advantages, step by step (chapter 7)


def td_residuals(rewards: Array, values: Array, next_values: Array, terminated: Array, gamma: float) -> Array:
    """The one-step errors: delta_t = r_t + gamma V(s_{t+1}) - V(s_t), without V(s_{t+1}) at a termination.

    Equation: eq-td-residual

    A truncation needs no flag here: the value of the real next state is used, as at every other step.

    Args:
        rewards: (T,) or (T, N), reward units.
        values: same shape; V(s_t).
        next_values: same shape; V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: same shape, 0 or 1; the step led into a terminal state.
        gamma: discount, in [0, 1].

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError: shapes that differ, an empty array, a flag that is not 0 or 1, a value that is not finite,
            gamma out of range.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), section 3.
    """
    _, (rewards, values, next_values), terminated, _ = _checked_steps(
        {"rewards": rewards, "values": values, "next_values": next_values}, terminated, terminated
    )
    return _errors(rewards, values, next_values, terminated, check_unit_interval("gamma", gamma))


def k_step_advantages(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    k: int,
) -> Array:
    """The sum of k discounted one-step errors; fewer where the episode or the buffer ends first.

    Equation: eq-k-step-advantage

    The values in between cancel, so that k rewards, the value after them and -V(s_t) are left.

    Args:
        rewards: (T,) or (T, N), reward units.
        values: same shape; V(s_t).
        next_values: same shape; V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: same shape, 0 or 1; the step led into a terminal state.
        truncated: same shape, 0 or 1; the episode was stopped after this step.
        gamma: discount, in [0, 1].
        k: number of errors, 1 or more.

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError: shapes that differ, an empty array, a flag that is not 0 or 1, a value that is not finite,
            gamma or k out of range.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), equations 11 to 15.
    """
    library, errors, ends, gamma = _checked_errors(rewards, values, next_values, terminated, truncated, gamma)
    advantages = errors
    for _ in range(min(_checked_count("k", k), len(errors)) - 1):
        advantages = _one_error_more(library, errors, advantages, gamma, ends)
    return advantages


def gae_weights(gamma: float, lam: float, horizon: int) -> FloatArray:
    """The weight of each later error in a generalized advantage: (gamma lam)^l for l = 0, 1, ...

    Equation: eq-gae-weights

    Args:
        gamma: discount, in [0, 1].
        lam: decay of the later errors, in [0, 1].
        horizon: number of weights, 1 or more.

    Returns:
        (horizon,) weights, the first is 1. They are no average: their sum goes to 1 / (1 - gamma lam).

    Raises:
        ValueError: gamma, lam or horizon out of range.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), equation 16.
    """
    factor = check_unit_interval("gamma", gamma) * check_unit_interval("lam", lam)
    return np.power(factor, np.arange(_checked_count("horizon", horizon)), dtype=np.float64)


def mixture_weights(lam: float, horizon: int) -> FloatArray:
    """The weight of each k-step advantage in the mixture: (1 - lam) lam^(k-1); what is left, to the longest.

    Args:
        lam: mixing weight, in [0, 1].
        horizon: number of steps to the end of the episode or of the buffer, 1 or more.

    Returns:
        (horizon,) weights that sum to one; entry k - 1 belongs to k steps, the last is lam^(horizon - 1).

    Raises:
        ValueError: lam or horizon out of range.
        TypeError: an argument of the wrong type.

    Source: Sutton & Barto (2018), section 12.1, where the same weights mix returns.
    """
    weights = gae_weights(1.0, lam, horizon)  # lam^(k-1) for k = 1, 2, ...
    weights[:-1] *= 1.0 - lam
    return weights


def gae_mixture(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float,
) -> Array:
    """Generalized advantages as the mixture of all k-step advantages; the longest takes the leftover weight.

    Equation: eq-gae-mixture

    This is the definition, in about T^2 operations: gae gives the same numbers in T.

    Args:
        rewards: (T,) or (T, N), reward units.
        values: same shape; V(s_t).
        next_values: same shape; V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: same shape, 0 or 1; the step led into a terminal state.
        truncated: same shape, 0 or 1; the episode was stopped after this step.
        gamma: discount, in [0, 1].
        lam: mixing weight, in [0, 1].

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError: shapes that differ, an empty array, a flag that is not 0 or 1, a value that is not finite,
            gamma or lam out of range.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), equation 16; finite horizon as in Sutton & Barto (2018), equation 12.3.
    """
    library, errors, ends, gamma = _checked_errors(rewards, values, next_values, terminated, truncated, gamma)
    lam = check_unit_interval("lam", lam)
    left = _plain_scan(library, library.ones_like(errors), 1.0, ends)  # steps left to the end of the path
    mixture, advantages = library.zeros_like(errors), errors
    for k in range(1, len(errors) + 1):
        weight = library.full_like(errors, lam ** (k - 1))  # all that is left, where k steps are the longest
        weight[left > k] *= 1.0 - lam
        weight[left < k] = 0.0
        mixture = mixture + weight * advantages
        advantages = _one_error_more(library, errors, advantages, gamma, ends)
    return mixture


def gae_recursion(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float,
) -> Array:
    """Generalized advantages, backward, one step at a time: A_t = delta_t + gamma lam A_{t+1}.

    Equation: eq-gae-recursion

    The second term is left out where the episode ends, whether it terminated or was truncated: what follows
    belongs to another episode. gae computes the same numbers in blocks, which is faster for long buffers.

    Args:
        rewards: (T,) or (T, N), reward units.
        values: same shape; V(s_t).
        next_values: same shape; V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: same shape, 0 or 1; the step led into a terminal state.
        truncated: same shape, 0 or 1; the episode was stopped after this step.
        gamma: discount, in [0, 1].
        lam: decay of the later errors, in [0, 1].

    Returns:
        (T,) or (T, N), the same type as the rewards.

    Raises:
        ValueError: shapes that differ, an empty array, a flag that is not 0 or 1, a value that is not finite,
            gamma or lam out of range.
        TypeError: an argument of the wrong type.

    Source: Schulman et al. (2016), section 3, written as a recursion.
    """
    library, errors, ends, gamma = _checked_errors(rewards, values, next_values, terminated, truncated, gamma)
    lam = check_unit_interval("lam", lam)
    following = library.zeros_like(errors[0])
    advantages = []
    for t in reversed(range(len(errors))):
        following = errors[t] + gamma * lam * following * ~ends[t]
        advantages.append(following)
    return library.stack(advantages[::-1])


def value_targets(advantages: Array, values: Array) -> Array:
    """What the value network is trained to say: the advantage estimate plus the value it was measured from.

    Equation: eq-value-target

    With generalized advantages this is the lambda return. The targets are constants: detach them.

    Args:
        advantages: (T,) or (T, N), reward units.
        values: same shape; V(s_t), the values that the advantages were computed with.

    Returns:
        (T,) or (T, N).

    Raises:
        ValueError: shapes that differ, an empty array, or a value that is not finite.
        TypeError: an argument is not numbers.

    Source: Schulman et al. (2016), section 5, with Sutton & Barto (2018), equation 12.3.
    """
    library = _library_of(advantages, values)
    named = {"advantages": advantages, "values": values}
    advantages, values = arrays = _float_arrays(library, named)
    for name, array in zip(named, arrays):
        _check_finite(name, array)
    return advantages + values


def normalize_advantages(advantages: Array, *, ddof: int = 0, epsilon: float = 1e-8) -> Array:
    """Advantages shifted to mean 0 and scaled to standard deviation 1, over all steps of all copies.

    Equation: eq-advantage-normalization

    Args:
        advantages: (T,) or (T, N), reward units.
        ddof: 0 divides the sum of squares by the number of advantages, 1 by one less.
        epsilon: added to the standard deviation, so that equal advantages give 0; above 0, reward units.

    Returns:
        The same shape, without a unit.

    Raises:
        ValueError: an empty array, a value that is not finite, ddof other than 0 or 1, no more than ddof
            advantages, epsilon not above 0.
        TypeError: an argument is not numbers.

    Source: common practice; used in the published code of Schulman et al. (2017).
    """
    library = _library_of(advantages)
    (advantages,) = _float_arrays(library, {"advantages": advantages})
    _check_finite("advantages", advantages)
    epsilon = _checked_number("epsilon", epsilon)
    if not (math.isfinite(epsilon) and epsilon > 0.0):
        raise ValueError(f"epsilon is {epsilon}; expected a finite number above 0")
    count = math.prod(advantages.shape)
    if ddof not in (0, 1) or count <= ddof:
        raise ValueError(f"ddof is {ddof!r} for {count} advantages; expected 0, or 1 for two or more")
    centered = advantages - advantages.mean()
    variance = (centered**2).sum() / (count - ddof)
    return centered / (variance**0.5 + epsilon)


# ------------------------------------------------------------------------------------------ the recursion


def _reverse_scan(library: Any, terms: Array, factor: float, ends: Array | None = None) -> Array:
    """x_t = terms_t + factor x_{t+1}, from the last step to the first; at an end, x_t = terms_t.

    The last step is an end in any case. ``terms`` is overwritten unless gradients flow.
    """
    ends = library.zeros_like(terms, dtype=bool) if ends is None else ends
    needs_gradient = library is not np and terms.requires_grad
    if len(terms) >= 4 * BLOCK and not needs_gradient:
        return _blocked_scan(library, terms, factor, ends)
    return _plain_scan(library, terms, factor, ends)


def _plain_scan(library: Any, terms: Array, factor: float, ends: Array) -> Array:
    """The recursion as it is written: one step at a time."""
    decay = library.full_like(terms, factor) * ~ends  # 0 where nothing of the same episode follows
    total = library.zeros_like(terms[0])
    totals = []
    for t in range(len(terms) - 1, -1, -1):
        total = terms[t] + decay[t] * total
        totals.append(total)
    return library.stack(totals[::-1])


def _blocked_scan(library: Any, terms: Array, factor: float, ends: Array) -> Array:
    """The same recursion in about T / 32 + 32 array operations in place of T: all blocks run side by side.

    Within a block of 32 steps the recursion starts from 0, and ``decay`` becomes the product of all decays
    from t to the end of the block: the factor on what the later steps hand over. That carry is then found
    block by block.
    """
    blocks, rest = divmod(len(terms), BLOCK)
    tail = blocks * BLOCK  # the steps from here on do not fill a block
    if rest:
        terms[tail:] = _plain_scan(library, terms[tail:], factor, ends[tail:])

    by_block = (blocks, BLOCK) + terms.shape[1:]  # (K, B) or (K, B, N)
    target = terms[:tail].reshape(by_block).swapaxes(0, 1)  # a view (B, K) or (B, K, N)
    x = _contiguous(library, target)
    decay = library.full_like(x, factor)
    decay *= ~ends[:tail].reshape(by_block).swapaxes(0, 1)
    for b in range(BLOCK - 2, -1, -1):
        x[b] += decay[b] * x[b + 1]
        decay[b] *= decay[b + 1]

    carry = library.zeros_like(x[0])  # (K,) or (K, N): the result at the first step after each block
    if rest:
        carry[-1] = terms[tail]
    for k in range(blocks - 1, 0, -1):
        carry[k - 1] = x[0, k] + decay[0, k] * carry[k]
    decay *= carry
    x += decay
    target[...] = x
    return terms


def _contiguous(library: Any, array: Array) -> Array:
    """A copy with the first axis outermost in memory, so that the rows of one step lie together."""
    return array.copy(order="C") if library is np else array.clone(memory_format=library.contiguous_format)


def _errors(rewards: Array, values: Array, next_values: Array, terminated: Array, gamma: float) -> Array:
    """The one-step errors delta_t."""
    return rewards + _bootstrap(next_values, terminated, gamma) - values


def _one_error_more(library: Any, errors: Array, advantages: Array, gamma: float, ends: Array) -> Array:
    """From k errors to k + 1: delta_t + gamma A_{t+1}, except where nothing of this path follows."""
    following = library.concatenate([advantages[1:], advantages[-1:]])  # A_{t+1}; the last row is an end
    return library.where(ends, errors, errors + gamma * following)


def _bootstrap(next_values: Array, terminated: Array, gamma: float) -> Array:
    """gamma V(s_{t+1}), and 0 after a termination: nothing comes after it."""
    return gamma * next_values * ~terminated


def _path_ends(library: Any, terminated: Array, truncated: Array) -> Array:
    """True where the recursion must not look at the next row: an episode's end, or the buffer's."""
    ends = terminated | truncated
    ends[-1] = True
    return ends


# ---------------------------------------------------------------------------------------------- the door


def _library_of(*arrays: Any) -> Any:
    """torch if a tensor is among the arrays, else numpy. Where a tensor is, torch has been imported."""
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(array, torch.Tensor) for array in arrays):
        return torch
    return np


def _checked_rewards(rewards: Array) -> tuple[Any, Array]:
    """The rewards as a float array of shape (T,) or (T, N), and the library it belongs to."""
    library = _library_of(rewards)
    (rewards,) = _float_arrays(library, {"rewards": rewards})
    _check_finite("rewards", rewards)
    return library, rewards


def _checked_steps(
    named: dict[str, Array], terminated: Array, truncated: Array
) -> tuple[Any, list[Array], Array, Array]:
    """Float arrays of one shape and type, and both flags as booleans."""
    library = _library_of(*named.values(), terminated, truncated)
    arrays = dict(zip(named, _float_arrays(library, named)))
    like = arrays["rewards"]
    terminated = _flags(library, "terminated", terminated, like)
    truncated = _flags(library, "truncated", truncated, like)
    if not _is_finite(arrays["next_values"]):  # past a termination a value may be anything: take 0 there
        arrays["next_values"] = library.where(terminated, 0.0, arrays["next_values"])
    for name, array in arrays.items():
        _check_finite(name, array)
    return library, list(arrays.values()), terminated, truncated


def _checked_errors(
    rewards: Array, values: Array, next_values: Array, terminated: Array, truncated: Array, gamma: float
) -> tuple[Any, Array, Array, float]:
    """The one-step errors, where the paths end, and the checked discount."""
    library, (rewards, values, next_values), terminated, truncated = _checked_steps(
        {"rewards": rewards, "values": values, "next_values": next_values}, terminated, truncated
    )
    gamma = check_unit_interval("gamma", gamma)
    errors = _errors(rewards, values, next_values, terminated, gamma)
    return library, errors, _path_ends(library, terminated, truncated), gamma


def _float_arrays(library: Any, named: dict[str, Array]) -> list[Array]:
    """The arguments as arrays of one floating type and one shape, (T,) or (T, N)."""
    arrays = [_array(library, name, array, named) for name, array in named.items()]
    kind = arrays[0].dtype
    for array in arrays[1:]:
        kind = library.promote_types(kind, array.dtype)
    if library is np and kind.kind != "f":
        kind = np.dtype(float)
    elif library is not np and not kind.is_floating_point:
        kind = library.get_default_dtype()
    first = arrays[0].shape
    for name, array in zip(named, arrays):
        if array.ndim not in (1, 2) or 0 in array.shape:
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected (T,) or (T, N), not empty")
        if array.shape != first:
            other = next(iter(named))
            raise ValueError(f"{name} has shape {tuple(array.shape)}; the {other} have {tuple(first)}")
    return [array.astype(kind, copy=False) if library is np else array.to(kind) for array in arrays]


def _array(library: Any, name: str, array: Array, others: dict[str, Array]) -> Array:
    """One argument as an array of real numbers; next to tensors, a tensor on the same device."""
    if library is np:
        array = np.asarray(array)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} has type {array.dtype}; expected an array of real numbers")
        return array
    if isinstance(array, library.Tensor):
        if array.is_complex():
            raise TypeError(f"{name} has type {array.dtype}; expected an array of real numbers")
        return array
    device = next((x.device for x in others.values() if isinstance(x, library.Tensor)), "cpu")
    return library.as_tensor(_array(np, name, array, others), device=device)


def _flags(library: Any, name: str, flags: Array, like: Array) -> Array:
    """A flag array as booleans, of the shape of the rewards."""
    flags = _array(library, name, flags, {"rewards": like})
    if flags.shape != like.shape:
        raise ValueError(f"{name} has shape {tuple(flags.shape)}; the rewards have {tuple(like.shape)}")
    if flags.dtype == (bool if library is np else library.bool):
        return flags
    if not ((flags == 0) | (flags == 1)).all():
        raise ValueError(f"{name} holds values other than 0 and 1; expected one flag per step")
    return flags == 1


def _check_finite(name: str, array: Array) -> None:
    if not _is_finite(array):
        raise ValueError(f"{name} holds NaN or infinite values; expected finite numbers")


def _is_finite(array: Array) -> bool:
    """NaN turns the smallest and the largest number into NaN, so two numbers stand for all."""
    array = array.detach() if hasattr(array, "detach") else array
    return math.isfinite(float(array.min())) and math.isfinite(float(array.max()))


def _checked_number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; expected a number")
    return float(value)


def _checked_count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {value!r}; expected a whole number")
    if value < 1:
        raise ValueError(f"{name} is {value}; expected 1 or more")
    return int(value)
