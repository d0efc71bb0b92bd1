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

from rlbook_lib.mdp import check_unit_interval

__all__ = [
    "discounted_return",
    "discounted_returns",
    "return_bound",
    "effective_horizon",
    "n_step_returns",
    "lambda_returns",
    "gae",
]

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
    errors = rewards + _bootstrap(next_values, terminated, gamma) - values
    advantages = _reverse_scan(library, errors, gamma * lam, terminated | truncated)
    return advantages, advantages + values


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
            raise ValueError(f"{name} has shape {tuple(array.shape)}; the rewards have {tuple(first)}")
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
