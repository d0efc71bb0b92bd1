"""Returns and advantages: discounted, n-step and lambda returns, generalized advantages (chapters 2, 4, 7).

Time is the first axis, of length T; a second axis, of length N, holds parallel environments: (T,) or (T, N).
Reward ``rewards[t]`` is r_t, the one that follows action a_t, and time starts at 0.

The functions that bootstrap take two flags for each step. ``terminated[t]`` says that the step led into a
terminal state: nothing follows, and the value of the next state is not used. ``truncated[t]`` says that
somebody stopped the episode (a time limit): the next state has a value, so it is used, but the rewards
after it belong to another episode. When both are set the episode terminated. The last step of the buffer is
treated like a truncation unless it terminated.

The functions give back what came in, numpy array or torch tensor, float32 as float32; gradients flow through.
This module never imports torch; if a tensor comes in, torch is there already.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlbook_lib.checks import Array, Count, Flags, Floats, NotNegative, Positive, Range, UnitInterval
from rlbook_lib.checks import checked, library_of

FloatArray: TypeAlias = NDArray[np.float64]

# One number or flag a step, (T,) or (T, N). A next value that is not used, at a termination, may be anything.
Steps: TypeAlias = Floats[Array, "T N?"]
NextValues: TypeAlias = Floats[Array, "T N?", Range(), "terminated"]
Ends: TypeAlias = Flags[Array, "T N?"]

BLOCK = 32  # steps per block in the blocked scan: the fastest of 16, 32, 64 and 128 at (2048, 64)


# ------------------------------------------------------------------------------------------------- returns


@checked(arrays="either")
def discounted_return(rewards: Steps, gamma: UnitInterval) -> Array:
    """The return of the first step, as the sum it is defined by: G_0 = sum over k of gamma^k r_k.

    Equation: eq-return

    A float for numpy input of shape (T,); otherwise one return per column, shape (N,), or a 0-d tensor.

    Source: Sutton & Barto (2018), equation 3.8, whose R_{t+1} is our r_t.
    """
    library = library_of(rewards)
    weights = library.full_like(rewards, gamma)  # (T,) or (T, N)
    weights[0] = 1.0
    weights = library.cumprod(weights, 0)  # gamma^k at step k
    return (weights * rewards).sum(0)


@checked(arrays="either")
def discounted_returns(rewards: Steps, gamma: UnitInterval) -> Array:
    """The return of every step of one episode, backward: G_t = r_t + gamma G_{t+1}, and G_T = 0.

    Equation: eq-return-recursion

    Source: Sutton & Barto (2018), equation 3.9.
    """
    return _reverse_scan(rewards + 0.0, gamma)  # + 0: a copy, the scan works in place


# --------------------------------------------------------------- generalized advantages (chapter 7)


@checked(arrays="either")
def gae(
    rewards: Steps,
    values: Steps,
    next_values: NextValues,
    terminated: Ends,
    truncated: Ends,
    gamma: UnitInterval,
    lam: UnitInterval,
) -> tuple[Array, Array]:
    """Generalized advantage estimates: A_t = sum over l of (gamma lam)^l delta_{t+l}, to the episode's end.

    Equation: eq-gae

    Args:
        values, next_values: V(s_t), and V(s_{t+1}) of the real next state, before any reset; unused at terminations.
        terminated: the step led into a terminal state.
        truncated: the episode was stopped after this step.
        lam: decay of the later errors, in [0, 1]; 0 is the one-step error, 1 the sum of rewards minus V(s_t).

    Returns:
        (advantages, value_targets), both (T,) or (T, N); the targets are lambda returns.

    Source: Schulman et al. (2016), section 3.
    """
    errors = td_residuals(rewards, values, next_values, terminated, gamma)
    advantages = _reverse_scan(errors, gamma * lam, terminated | truncated)
    return advantages, value_targets(advantages, values)


@checked(arrays="either")
def td_residuals(
    rewards: Steps, values: Steps, next_values: NextValues, terminated: Ends, gamma: UnitInterval
) -> Array:
    """The one-step errors: delta_t = r_t + gamma V(s_{t+1}) - V(s_t), without V(s_{t+1}) at a termination.

    Equation: eq-td-residual

    A truncation needs no flag here: the value of the real next state is used, as at every other step.

    Source: Schulman et al. (2016), section 3.
    """
    return rewards + gamma * _following(next_values, terminated) - values


@checked(arrays="either")
def gae_recursion(
    rewards: Steps,
    values: Steps,
    next_values: NextValues,
    terminated: Ends,
    truncated: Ends,
    gamma: UnitInterval,
    lam: UnitInterval,
) -> Array:
    """Generalized advantages, backward, one step at a time: A_t = delta_t + gamma lam A_{t+1}.

    Equation: eq-gae-recursion

    The second term is left out where the episode ends, whether it terminated or was truncated: what follows
    belongs to another episode. gae computes the same numbers in blocks, which is faster for long buffers.

    Source: Schulman et al. (2016), section 3, written as a recursion.
    """
    errors = td_residuals(rewards, values, next_values, terminated, gamma)
    return _plain_scan(errors, gamma * lam, terminated | truncated)


@checked(arrays="either")
def value_targets(advantages: Steps, values: Steps) -> Array:
    """What the value network is trained to say: the advantage estimate plus the value it was measured from.

    Equation: eq-value-target

    With generalized advantages this is the lambda return. The targets are constants: detach them.

    Source: Schulman et al. (2016), section 5, with Sutton & Barto (2018), equation 12.3.
    """
    return advantages + values


@checked(arrays="either")
def normalize_advantages(advantages: Steps, *, ddof: Literal[0, 1] = 0, epsilon: Positive = 1e-8) -> Array:
    """Advantages shifted to mean 0 and scaled to standard deviation 1, over all steps of all copies.

    Equation: eq-advantage-normalization

    Args:
        ddof: 0 divides the sum of squares by the number of advantages, 1 by one less.
        epsilon: added to the standard deviation, so that equal advantages give 0; reward units.

    Raises:
        ValueError: no more than ddof advantages.

    Source: common practice; used in the published code of Schulman et al. (2017).
    """
    count = math.prod(advantages.shape)
    if count <= ddof:
        raise ValueError(f"ddof is {ddof} for {count} advantages; expected 0, or 1 for two or more")
    centered = advantages - advantages.mean()
    variance = (centered**2).sum() / (count - ddof)
    return centered / (variance**0.5 + epsilon)


# ------------------------------------------------------------------------------ n-step and lambda returns


@checked(arrays="either")
def n_step_returns(
    rewards: Steps, next_values: NextValues, terminated: Ends, truncated: Ends, gamma: UnitInterval, n: Count
) -> Array:
    """n rewards, then the value of the state they lead to; fewer where the episode or the buffer ends first.

    Equation: eq-n-step-return

    Source: Sutton & Barto (2018), equation 7.1.
    """
    ends = _path_ends(terminated, truncated)
    one_step = rewards + gamma * _following(next_values, terminated)
    if n >= len(rewards):  # every path ends before n rewards are counted: run the recursion to its end
        return _reverse_scan(library_of(rewards).where(ends, one_step, rewards), gamma, ends)
    returns = one_step
    for _ in range(n - 1):
        returns = _one_step_more(rewards, one_step, returns, gamma, ends)
    return returns


@checked(arrays="either")
def lambda_returns(
    rewards: Steps, next_values: NextValues, terminated: Ends, truncated: Ends, gamma: UnitInterval, lam: UnitInterval
) -> Array:
    """The mixture of all n-step returns, weights (1 - lam) lam^(n-1); what is left goes to the longest.

    Equation: eq-lambda-return

    With lam = 0 it is the one-step target; lam = 1 counts all rewards.

    Computed backward: G_t = r_t + gamma [(1 - lam) V(s_{t+1}) + lam G_{t+1}] inside an episode,
    r_t + gamma V(s_{t+1}) at a truncation or at the end of the buffer, r_t at a termination.

    Source: Sutton & Barto (2018), equations 12.2 and 12.3.
    """
    ends = _path_ends(terminated, truncated)
    bootstrap = gamma * _following(next_values, terminated)
    known = library_of(rewards).where(ends, rewards + bootstrap, rewards + (1.0 - lam) * bootstrap)
    return _reverse_scan(known, gamma * lam, ends)


# ------------------------------------------------- advantages of k steps, and their mixture (chapter 7)


@checked(arrays="either")
def k_step_advantages(
    rewards: Steps,
    values: Steps,
    next_values: NextValues,
    terminated: Ends,
    truncated: Ends,
    gamma: UnitInterval,
    k: Count,
) -> Array:
    """The sum of k discounted one-step errors; fewer where the episode or the buffer ends first.

    Equation: eq-k-step-advantage

    The values in between cancel, so that k rewards, the value after them and -V(s_t) are left.

    Source: Schulman et al. (2016), equations 11 to 15.
    """
    ends = _path_ends(terminated, truncated)
    errors = td_residuals(rewards, values, next_values, terminated, gamma)
    advantages = errors
    for _ in range(min(k, len(errors)) - 1):
        advantages = _one_step_more(errors, errors, advantages, gamma, ends)
    return advantages


@checked
def gae_weights(gamma: UnitInterval, lam: UnitInterval, horizon: Count) -> FloatArray:
    """The weight of each later error in a generalized advantage: (gamma lam)^l for l = 0, 1, ...

    Equation: eq-gae-weights

    (horizon,) weights, the first is 1. They are no average: their sum goes to 1 / (1 - gamma lam).

    Source: Schulman et al. (2016), equation 16.
    """
    return np.power(gamma * lam, np.arange(horizon), dtype=np.float64)


@checked
def mixture_weights(lam: UnitInterval, horizon: Count) -> FloatArray:
    """The weight of each k-step advantage in the mixture: (1 - lam) lam^(k-1); what is left, to the longest.

    The horizon is the number of steps to the end of the episode or of the buffer. The weights, (horizon,), sum to one; entry
    k - 1 belongs to k steps, the last is lam^(horizon - 1).

    Source: Sutton & Barto (2018), section 12.1, where the same weights mix returns.
    """
    weights = lam ** np.arange(horizon, dtype=np.float64)  # lam^(k-1) for k = 1, 2, ...
    weights[:-1] *= 1.0 - lam
    return weights


@checked(arrays="either")
def gae_mixture(
    rewards: Steps,
    values: Steps,
    next_values: NextValues,
    terminated: Ends,
    truncated: Ends,
    gamma: UnitInterval,
    lam: UnitInterval,
) -> Array:
    """Generalized advantages as the mixture of all k-step advantages; the longest takes the leftover weight.

    Equation: eq-gae-mixture

    This is the definition, in about T^2 operations: gae gives the same numbers in T.

    Source: Schulman et al. (2016), equation 16; finite horizon as in Sutton & Barto (2018), equation 12.3.
    """
    library, steps = library_of(rewards), len(rewards)
    left = _plain_scan(library.ones_like(rewards), 1.0, _path_ends(terminated, truncated))  # steps to the path's end
    table = np.zeros((steps, steps))  # row h - 1: the weights of k = 1, 2, ... where h steps are left
    for row in range(steps):
        table[row, : row + 1] = mixture_weights(lam, row + 1)
    weights = library.asarray(table, dtype=rewards.dtype, device=rewards.device)[library.asarray(left - 1, dtype=int)]
    buffer = (rewards, values, next_values, terminated, truncated)
    return sum(weights[..., k] * k_step_advantages(*buffer, gamma, k + 1) for k in range(steps))


# ------------------------------------------------------------------------- how far a discount looks ahead


@checked
def return_bound(reward_bound: NotNegative, gamma: UnitInterval) -> float:
    """The largest absolute return that rewards within [-reward_bound, reward_bound] can sum up to.

    Equation: eq-return-bound

    r_max / (1 - gamma), with ``reward_bound`` as r_max; inf at gamma = 1, where no finite bound holds for every length (0 if
    r_max is 0).

    Source: the geometric series; Sutton & Barto (2018), section 3.3.
    """
    return 0.0 if reward_bound == 0.0 else reward_bound * effective_horizon(gamma)


@checked
def effective_horizon(gamma: UnitInterval) -> float:
    """How many steps a discount looks ahead: the sum of all its weights gamma^k.

    Equation: eq-effective-horizon

    1 / (1 - gamma), in steps; inf at gamma = 1. It is also the mean length of an episode that goes on with probability
    gamma after every step.

    Source: the geometric series.
    """
    return math.inf if gamma == 1.0 else 1.0 / (1.0 - gamma)


# ------------------------------------------------------------------------------------------ the recursion


def _following(next_values: Array, terminated: Array) -> Array:
    """V(s_{t+1}) where something follows, else 0, whatever stood there."""
    return library_of(next_values).where(terminated, 0.0, next_values)


def _path_ends(terminated: Array, truncated: Array) -> Array:
    """True where the recursion must not look at the next row: an episode's end, or the buffer's."""
    ends = terminated | truncated
    ends[-1] = True
    return ends


def _one_step_more(terms: Array, last: Array, totals: Array, gamma: float, ends: Array) -> Array:
    """Sums of one step more: terms_t + gamma totals_{t+1}, or last_t where nothing of the path follows."""
    library = library_of(terms)
    following = library.concatenate([totals[1:], totals[-1:]])  # totals_{t+1}; the last row is an end
    return library.where(ends, last, terms + gamma * following)


def _reverse_scan(terms: Array, factor: float, ends: Array | None = None) -> Array:
    """x_t = terms_t + factor x_{t+1}, from the last step to the first; at an end, x_t = terms_t.

    The last step is an end in any case. ``terms`` is overwritten unless gradients flow.
    """
    ends = library_of(terms).zeros_like(terms, dtype=bool) if ends is None else ends
    needs_gradient = getattr(terms, "requires_grad", False)
    scan = _blocked_scan if len(terms) >= 4 * BLOCK and not needs_gradient else _plain_scan
    return scan(terms, factor, ends)


def _plain_scan(terms: Array, factor: float, ends: Array) -> Array:
    """One step at a time: the recursion as it is written, for short buffers and where gradients flow."""
    library = library_of(terms)
    decay = library.full_like(terms, factor) * ~ends  # 0 where nothing of the same episode follows
    total = library.zeros_like(terms[0])
    totals = []
    for t in reversed(range(len(terms))):
        total = terms[t] + decay[t] * total
        totals.append(total)
    return library.stack(totals[::-1])


def _blocked_scan(terms: Array, factor: float, ends: Array) -> Array:
    """The same recursion in about T / 32 + 32 array operations in place of T: all blocks run side by side.

    Within a block of 32 steps the recursion starts from 0, and ``decay`` becomes the product of all decays
    from t to the end of the block: the factor on what the later steps hand over. That carry is then found
    block by block.
    """
    library = library_of(terms)
    blocks, rest = divmod(len(terms), BLOCK)
    tail = blocks * BLOCK  # the steps from here on do not fill a block
    if rest:
        terms[tail:] = _plain_scan(terms[tail:], factor, ends[tail:])

    by_block = (blocks, BLOCK) + terms.shape[1:]  # (K, B) or (K, B, N)
    target = terms[:tail].reshape(by_block).swapaxes(0, 1)  # a view (B, K) or (B, K, N)
    x = target.copy() if library is np else target.clone(memory_format=library.contiguous_format)
    decay = library.full_like(x, factor)
    decay *= ~ends[:tail].reshape(by_block).swapaxes(0, 1)
    for b in range(BLOCK - 2, -1, -1):
        x[b] += decay[b] * x[b + 1]
        decay[b] *= decay[b + 1]

    carry = library.zeros_like(x[0])  # (K,) or (K, N): the result at the first step after each block
    if rest:
        carry[-1] = terms[tail]
    first, factors = x[0], decay[0]
    for k in range(blocks - 1, 0, -1):
        carry[k - 1] = first[k] + factors[k] * carry[k]
    decay *= carry
    library.add(x, decay, out=target)
    return terms
