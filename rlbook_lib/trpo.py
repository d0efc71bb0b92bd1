"""Trust-region policy optimization: the surrogate, its bound, the natural step, and training (chapter 9).

Two policies are compared all the time: ``old`` took the data, ``new`` is asked about. Step control is
KL(old || new), averaged over the states that old visits; its radius is ``delta``, in nats.

The exact functions take an ``MDP`` and policies as tables, (S,) integers or (S, A) probabilities. The functions on
vectors take a symmetric matrix only through its products with vectors, ``matvec(v)``, and work on numpy arrays and
torch tensors alike. The training at the end puts them together on a neural network.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike
from scipy.sparse.linalg import spsolve

from rlbook_lib.divergences import kl_divergence
from rlbook_lib.dynamic_programming import advantages, expected_episode_length, expected_return
from rlbook_lib.mdp import MDP, FloatArray

Array: TypeAlias = Any  # a numpy array or a torch tensor
Matvec: TypeAlias = Callable[[Array], Array]


# ----------------------------------------------------------------- two policies, exactly: tables on an MDP


def performance_difference(mdp: MDP, new: ArrayLike, old: ArrayLike) -> float:
    """How much better new is than old, from the advantages of old: the performance-difference lemma.

    Equation: eq-performance-difference

    J(new) - J(old) = 1/(1 - gamma) E over s ~ d^new, a ~ new of A^old(s, a). The factor and d^new together are the
    expected discounted number of visits to each state, and that is what is computed: it exists at gamma = 1 too.

    Args:
        mdp: the process.
        new: the policy that is followed, (S,) integers or (S, A) probabilities.
        old: the policy that is judged by its advantages, likewise.

    Returns:
        J(new) - J(old), in reward units.

    Raises:
        ValueError: a policy of the wrong shape or no distribution; at gamma = 1, a policy whose episodes need not
            end.

    Source: Kakade & Langford (2002), lemma 6.1.
    """
    per_state = (mdp.policy_rows(new) * advantages(mdp, old)).sum(1)  # (S,): E over a ~ new of A^old
    return float(_visits(mdp, new) @ per_state)


def surrogate_objective(mdp: MDP, new: ArrayLike, old: ArrayLike) -> float:
    """What new would earn if it visited states as often as old does: L(new), the local approximation of J(new).

    Equation: eq-surrogate

    L(new) = J(old) + 1/(1 - gamma) E over s ~ d^old, a ~ new of A^old(s, a). It equals J at new = old, where the
    second part is 0, and has the same slope there. Only the states are approximated; the mean over a ~ new equals
    that of rho A^old over a ~ old, exactly, if old can take every action that new can.

    Args:
        mdp: the process.
        new: the policy asked about, (S,) integers or (S, A) probabilities.
        old: the policy that takes the data, likewise.

    Returns:
        L(new), in reward units.

    Raises:
        ValueError: a policy of the wrong shape or no distribution; at gamma = 1, a policy whose episodes need not
            end.

    Source: Schulman et al. (2015), equation 3.
    """
    per_state = (mdp.policy_rows(new) * advantages(mdp, old)).sum(1)
    return expected_return(mdp, old) + float(_visits(mdp, old) @ per_state)


class ImprovementBound(NamedTuple):
    """A lower bound on J(new): ``lower_bound = surrogate - coefficient * kl_max``."""

    lower_bound: float
    surrogate: float  # L(new)
    coefficient: float  # C = 4 eps gamma / (1 - gamma)^2, eps the largest absolute advantage of old
    kl_max: float  # the largest KL(old || new) of any state, nats


def policy_improvement_bound(mdp: MDP, new: ArrayLike, old: ArrayLike) -> ImprovementBound:
    """What new earns at least: J(new) >= L(new) - C max over s of KL(old || new), C = 4 eps gamma / (1 - gamma)^2.

    Equation: eq-improvement-bound

    Args:
        mdp: the process; gamma below 1.
        new: the policy asked about, (S,) integers or (S, A) probabilities.
        old: the policy that takes the data, likewise.

    Returns:
        The bound and its three parts. It is -inf where old can take an action that new cannot.

    Raises:
        ValueError: gamma = 1 (C would be infinite); a policy of the wrong shape or no distribution.

    Source: Schulman et al. (2015), theorem 1.
    """
    if mdp.gamma == 1:
        raise ValueError("mdp has gamma = 1; the bound needs gamma below 1, because it divides by 1 - gamma")
    alive = ~mdp.terminal
    epsilon = float(np.abs(advantages(mdp, old)).max())
    coefficient = 4 * epsilon * mdp.gamma / (1 - mdp.gamma) ** 2
    kl = kl_divergence(mdp.policy_rows(old)[alive], mdp.policy_rows(new)[alive])  # (states that go on,)
    kl_max = float(kl.max(initial=0.0))
    surrogate = surrogate_objective(mdp, new, old)
    penalty = coefficient * kl_max if coefficient > 0 else 0.0  # 0 times inf is 0 here: nothing can be lost
    return ImprovementBound(surrogate - penalty, surrogate, coefficient, kl_max)


def surrogate_loss(log_prob: torch.Tensor, log_prob_old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """Minus the mean of rho A over samples of the old policy: what is minimized, the KL aside.

    Equation: eq-sample-surrogate

    Args:
        log_prob: log pi_theta(a|s) of the sampled actions, any shape; gradients flow.
        log_prob_old: the same under the policy that sampled them; a constant.
        advantage: estimates of A^old(s, a), the same shape; constants.

    Returns:
        A 0-d tensor. At theta = theta_old its gradient is minus the policy gradient.

    Raises:
        ValueError: shapes that differ, or no samples.
        TypeError: an argument is no tensor.

    Source: Schulman et al. (2015), equation 14.
    """
    for name, tensor in (("log_prob", log_prob), ("log_prob_old", log_prob_old), ("advantage", advantage)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}; expected a tensor")
        if tensor.shape != log_prob.shape or tensor.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; log_prob has {tuple(log_prob.shape)}, "
                             "expected equal shapes, not empty")
    return _surrogate_loss(log_prob, log_prob_old.detach(), advantage.detach())


def _surrogate_loss(log_prob: torch.Tensor, log_prob_old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    return -(torch.exp(log_prob - log_prob_old) * advantage).mean()


def _visits(mdp: MDP, policy: ArrayLike) -> FloatArray:
    """Expected discounted number of visits, (S,): the sum over t of gamma^t P(s_t = s), which is d / (1 - gamma)."""
    if mdp.gamma == 1 and not np.isfinite(expected_episode_length(mdp, policy)[mdp.start > 0]).all():
        raise ValueError("policy need not end its episodes; at gamma = 1 the visits would be infinite")
    transitions = mdp.policy_transitions(policy)  # CSR (S, S)
    system = sp.eye_array(mdp.n_states, format="csc") - mdp.gamma * sp.csc_array(transitions.T)
    return spsolve(sp.csc_array(system), mdp.start)


# ------------------------------------------------------------- curvature: the Fisher matrix and its products


def fisher_matrix(logits: ArrayLike, weights: ArrayLike | None = None) -> FloatArray:
    """The Fisher matrix of a softmax policy with one logit per state and action: E of score times score'.

    Equation: eq-fisher

    In one state it is diag(p) - p p'. It is the Hessian of KL(old || new) at new = old, exactly.

    Args:
        logits: (K,) for one state, or (S, K), finite.
        weights: (S,), how often each state is visited, 0 or more; default: each 1 / S. Only beside (S, K).

    Returns:
        (K, K), or (S*K, S*K): one block per state, times its weight. Singular: a constant on all logits of a
        state changes nothing.

    Raises:
        ValueError: wrong shapes, values that are not finite, negative weights.

    Source: Amari (1998); Kakade (2001).
    """
    table = np.asarray(logits, dtype=float)
    if table.ndim not in (1, 2) or table.size == 0 or not np.isfinite(table).all():
        raise ValueError(f"logits must be finite, (K,) or (S, K) and not empty; got shape {table.shape}")
    if weights is not None and table.ndim == 1:
        raise ValueError("weights go with logits of shape (S, K); logits have shape (K,)")
    rows = np.atleast_2d(table)
    share = np.full(len(rows), 1 / len(rows)) if weights is None else np.asarray(weights, dtype=float)
    if share.shape != (len(rows),) or not (np.isfinite(share) & (share >= 0)).all():
        raise ValueError(f"weights must be finite, 0 or more, of shape ({len(rows)},); got shape {share.shape}")
    p = np.exp(rows - rows.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    blocks = [w * (np.diag(row) - np.outer(row, row)) for w, row in zip(share, p)]
    return sp.block_diag(blocks).toarray()


def quadratic_kl(step: Array, matvec: Matvec) -> float:
    """The second-order model of KL(old || new) after a step: half of step' F step.

    Equation: eq-quadratic-kl

    Args:
        step: theta - theta_old, (n,).
        matvec: the product of the Fisher matrix F with a vector.

    Returns:
        The model's KL in nats. The true one differs by terms of third order in the step.

    Raises:
        ValueError: step is no vector.

    Source: Schulman et al. (2015), appendix C.
    """
    step = _checked_vector("step", step)
    return 0.5 * float(step @ matvec(step))


def fisher_vector_product(
    kl_function: Callable[..., torch.Tensor],
    parameters: torch.Tensor | Sequence[torch.Tensor],
    vector: torch.Tensor,
    damping: float = 0.0,
) -> torch.Tensor:
    """F v without F: differentiate the KL once, take the product with v, differentiate again; plus damping v.

    Equation: eq-fisher-vector-product

    Args:
        kl_function: returns the mean KL(old || new) as a 0-d tensor. It is called with ``parameters``, or with
            nothing if it takes no argument (a network's KL, say, whose parameters it holds itself).
        parameters: the tensors to differentiate by: one tensor, or several; they sit at theta_old.
        vector: v, (n,), n the number of all entries of the parameters, in their order.
        damping: added to the diagonal of F, 0 or more; keeps the system solvable where F is singular.

    Returns:
        (F + damping I) v, the shape of the vector.

    Raises:
        ValueError: a vector of another length, or a negative damping.
        TypeError: parameters that cannot be differentiated by.

    Source: Pearlmutter (1994); Schulman et al. (2015), appendix C.
    """
    damping = _checked_number("damping", damping, 0.0, math.inf)
    tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    if not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in tensors):
        raise TypeError("parameters must be floating-point tensors")
    if not isinstance(vector, torch.Tensor) or vector.numel() != sum(t.numel() for t in tensors):
        raise ValueError(f"vector must be a tensor with {sum(t.numel() for t in tensors)} entries, one per parameter")
    if inspect.signature(kl_function).parameters:
        tensors = [t.detach().requires_grad_() for t in tensors]
        kl = kl_function(tensors[0] if isinstance(parameters, torch.Tensor) else tensors)
    else:
        kl = kl_function()
    return _fisher_product(kl, tensors, damping)(vector.reshape(-1)).reshape(vector.shape)


def _fisher_product(
    kl: torch.Tensor, parameters: Sequence[torch.Tensor], damping: float
) -> Callable[[torch.Tensor], torch.Tensor]:
    """v -> (F + damping I) v; the first derivative of the KL is taken once, for all v."""
    gradient = _flat(torch.autograd.grad(kl, parameters, create_graph=True))

    def product(vector: torch.Tensor) -> torch.Tensor:
        columns = torch.autograd.grad(gradient @ vector, parameters, retain_graph=True)
        return _flat(columns) + damping * vector

    return product


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All entries behind one another, (n,)."""
    return torch.cat([t.reshape(-1) for t in tensors])


# ------------------------------------------------------------------ the step: conjugate gradient, line search


class ConjugateGradient(NamedTuple):
    """One iteration of the conjugate gradient method."""

    solution: Array  # (n,): x so far
    residual: float  # the length of b - A x
    iteration: int


def conjugate_gradient(matvec: Matvec, b: Array, iterations: int = 10, tolerance: float = 1e-10) -> Array:
    """Solve A x = b for a symmetric positive definite A that is known only through products A v.

    Equation: eq-conjugate-gradient

    Args:
        matvec: v -> A v.
        b: the right-hand side, (n,), finite.
        iterations: at most so many products, 1 or more. n of them are enough but for rounding.
        tolerance: stop when the length of b - A x is at most tolerance times that of b; positive.

    Returns:
        x, (n,), the same type as b.

    Raises:
        ValueError: b is no finite vector, a number out of range, or A is not positive definite.

    Source: Hestenes & Stiefel (1952); Nocedal & Wright (2006), algorithm 5.2.
    """
    solution = _checked_vector("b", b) * 0
    for record in iterate_conjugate_gradient(matvec, b, iterations, tolerance):
        solution = record.solution
    return solution


def iterate_conjugate_gradient(
    matvec: Matvec, b: Array, iterations: int = 10, tolerance: float = 1e-10
) -> Iterator[ConjugateGradient]:
    """The same, one record per iteration; none where b is 0.

    Args:
        matvec: v -> A v.
        b: the right-hand side, (n,), finite.
        iterations: at most so many products, 1 or more.
        tolerance: stop when the length of b - A x is at most tolerance times that of b; positive.

    Returns:
        A generator of records: the solution so far, the length of its residual, the number of the iteration.

    Raises:
        ValueError: b is no finite vector, a number out of range, or A is not positive definite.

    Source: Hestenes & Stiefel (1952); Nocedal & Wright (2006), algorithm 5.2.
    """
    b = _checked_vector("b", b)
    iterations = _checked_count("iterations", iterations)
    tolerance = _checked_number("tolerance", tolerance, 0.0, math.inf, open_below=True)
    return _conjugate_gradient(matvec, b, iterations, tolerance)


def _conjugate_gradient(matvec: Matvec, b: Array, iterations: int, tolerance: float) -> Iterator[ConjugateGradient]:
    solution, residual, direction = b * 0, b + 0, b + 0
    size = first = float(residual @ residual)
    for iteration in range(1, iterations + 1):
        if size <= tolerance**2 * first:
            return
        product = matvec(direction)
        curvature = float(direction @ product)
        if not curvature > 0:
            if math.sqrt(size) < 1e-6 * math.sqrt(first):
                return  # only rounding is left, in a direction that A does not see
            raise ValueError(f"matvec is not positive definite: v @ matvec(v) is {curvature:.3g}; "
                             "expected a positive number (more damping helps)")
        length = size / curvature
        solution = solution + length * direction
        residual = residual - length * product
        before, size = size, float(residual @ residual)
        direction = residual + (size / before) * direction
        yield ConjugateGradient(solution, math.sqrt(size), iteration)


def natural_gradient_step(
    gradient: Array, matvec: Matvec, delta: float, *, iterations: int | None = None, tolerance: float = 1e-10
) -> Array:
    """The best step of a linear objective within a quadratic KL of delta: sqrt(2 delta / g' F^-1 g) F^-1 g.

    Equation: eq-natural-step

    Args:
        gradient: g of the objective that is to grow, (n,), finite.
        matvec: v -> F v, positive definite.
        delta: the radius in nats, positive.
        iterations: of the conjugate gradient method; None: as many as the tolerance asks for, at most 10 n.
        tolerance: of the conjugate gradient method, positive.

    Returns:
        The step, (n,); half of step' F step is delta. It is 0 where the gradient is.

    Raises:
        ValueError: the gradient is no finite vector, a number out of range, or F is not positive definite.

    Source: Schulman et al. (2015), appendix C; Kakade (2001).
    """
    gradient = _checked_vector("gradient", gradient)
    delta = _checked_number("delta", delta, 0.0, math.inf, open_below=True)
    iterations = 10 * len(gradient) if iterations is None else iterations
    direction = conjugate_gradient(matvec, gradient, iterations, tolerance)
    return _scaled_to(direction, matvec, delta)


def _scaled_to(direction: Array, matvec: Matvec, delta: float) -> Array:
    """The multiple of the direction whose quadratic KL is delta; 0 for no direction."""
    curvature = float(direction @ matvec(direction))
    return math.sqrt(2 * delta / curvature) * direction if curvature > 0 else direction * 0


class LineSearch(NamedTuple):
    """What a line search found. Not accepted: the step is 0, and so are gain and KL."""

    step: Array  # (n,)
    backtracks: int  # j: the step is factor^j of the full one
    gain: float  # of the surrogate, over that of the old policy
    kl: float  # KL(old || new) after the step, nats
    accepted: bool


def line_search(
    evaluate: Callable[[Array], tuple[float, float]],
    step: Array,
    delta: float,
    *,
    factor: float = 0.8,
    tries: int = 10,
) -> LineSearch:
    """The first of step, factor step, factor^2 step, ... that gains and whose true KL is at most delta.

    Equation: eq-line-search

    Args:
        evaluate: step -> (gain of the surrogate, KL(old || new)), both true, not modeled.
        step: the full step, (n,), finite.
        delta: the largest KL that is accepted, nats, positive.
        factor: how much shorter the next try is, between 0 and 1.
        tries: at most so many steps are tried, 1 or more.

    Returns:
        The accepted step with its gain and KL, or a step of 0.

    Raises:
        ValueError: step is no finite vector, or a number out of range.

    Source: Schulman et al. (2015), appendix C; Nocedal & Wright (2006), section 3.1.
    """
    step = _checked_vector("step", step)
    delta = _checked_number("delta", delta, 0.0, math.inf, open_below=True)
    factor = _checked_number("factor", factor, 0.0, 1.0, open_below=True, open_above=True)
    return _line_search(evaluate, step, delta, factor, _checked_count("tries", tries))


def _line_search(
    evaluate: Callable[[Array], tuple[float, float]], step: Array, delta: float, factor: float, tries: int
) -> LineSearch:
    for j in range(tries):
        candidate = factor**j * step
        gain, kl = evaluate(candidate)
        if gain > 0 and kl <= delta:  # False for NaN: such a step is never taken
            return LineSearch(candidate, j, gain, kl, True)
    return LineSearch(step * 0, tries, 0.0, 0.0, False)


# ------------------------------------------------------------------------------------------------ the door


def _checked_vector(name: str, vector: Array) -> Array:
    """A finite vector (n,): a tensor as it is, anything else as a numpy array."""
    if isinstance(vector, torch.Tensor):
        finite = bool(torch.isfinite(vector).all())
    else:
        vector = np.asarray(vector, dtype=None if hasattr(vector, "dtype") else float)
        vector = vector if vector.dtype.kind == "f" else vector.astype(float)
        finite = bool(np.isfinite(vector).all())
    if vector.ndim != 1 or len(vector) == 0:
        raise ValueError(f"{name} has shape {tuple(vector.shape)}; expected (n,), not empty")
    if not finite:
        raise ValueError(f"{name} holds NaN or infinite values; expected finite numbers")
    return vector


def _checked_number(
    name: str, value: float, low: float, high: float, *, open_below: bool = False, open_above: bool = False
) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; expected a number")
    above = value > low if open_below else value >= low
    below = value < high if open_above or high == math.inf else value <= high
    if not (above and below):
        words = f"above {low:g}" if open_below else f"{low:g} or more"
        limit = "" if high == math.inf else f" and below {high:g}" if open_above else f" and at most {high:g}"
        raise ValueError(f"{name} is {value}; expected a finite number {words}{limit}")
    return float(value)


def _checked_count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {value!r}; expected a whole number")
    if value < 1:
        raise ValueError(f"{name} is {value}; expected 1 or more")
    return int(value)
