"""Trust-region policy optimization: the surrogate, its bound, the natural step, and training (chapter 9).

Two policies are compared all the time: ``old`` took the data, ``new`` is asked about. Step control is
KL(old || new), averaged over the states that old visits; its radius is ``delta``, in nats.

The exact functions take an ``MDP`` and policies as tables, (S,) integers or (S, A) probabilities. The
functions on vectors take a symmetric matrix only through its products with vectors, ``matvec(v)``, and work
on numpy arrays and torch tensors alike. The training at the end puts them together on a neural network.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike
from scipy.sparse.linalg import spsolve
from torch.nn.utils import vector_to_parameters

from rlbook_lib.divergences import kl_divergence
from rlbook_lib.dynamic_programming import advantages, expected_episode_length, expected_return
from rlbook_lib.environments import TorchCartPole, is_ready_made, vectorize
from rlbook_lib.experience import check_count
from rlbook_lib.mdp import MDP, FloatArray, check_seed, check_unit_interval
from rlbook_lib.networks import Policy, ValueNetwork, check_tensors, make_policy
from rlbook_lib.returns import gae, normalize_advantages
from rlbook_lib.rollout import Collector, Rollout, flatten, value_estimates
from rlbook_lib.training import (
    State,
    TrainingError,
    TrainingResult,
    Update,
    check_state,
    config_dict,
    pack,
    rng_state,
    set_rng_state,
    train,
    unpack,
)

Array: TypeAlias = Any  # a numpy array or a torch tensor
Matvec: TypeAlias = Callable[[Array], Array]


# ----------------------------------------------------------------- two policies, exactly: tables on an MDP


def performance_difference(mdp: MDP, new: ArrayLike, old: ArrayLike) -> float:
    """How much better new is than old, from the advantages of old: the performance-difference lemma.

    Equation: eq-performance-difference

    J(new) - J(old) = 1/(1 - gamma) E over s ~ d^new, a ~ new of A^old(s, a). The factor and d^new together
    are the expected discounted number of visits to each state, and that is what is computed: it exists at
    gamma = 1 too.

    Args:
        mdp: the process.
        new: the policy that is followed, (S,) integers or (S, A) probabilities.
        old: the policy that is judged by its advantages, likewise.

    Returns:
        J(new) - J(old), in reward units.

    Raises:
        ValueError: a policy of the wrong shape or no distribution; at gamma = 1, a policy whose episodes
            need not end.

    Source: Kakade & Langford (2002), lemma 6.1.
    """
    per_state = (mdp.policy_rows(new) * advantages(mdp, old)).sum(1)  # (S,): E over a ~ new of A^old
    return float(_visits(mdp, new) @ per_state)


def surrogate_objective(mdp: MDP, new: ArrayLike, old: ArrayLike) -> float:
    """What new would earn if it visited states as often as old does: L(new), a local approximation.

    Equation: eq-surrogate

    L(new) = J(old) + 1/(1 - gamma) E over s ~ d^old, a ~ new of A^old(s, a). It equals J at new = old, where
    the second part is 0, and has the same slope there. Only the states are approximated; the mean over
    a ~ new equals that of rho A^old over a ~ old, exactly, if old can take every action that new can.

    Args:
        mdp: the process.
        new: the policy asked about, (S,) integers or (S, A) probabilities.
        old: the policy that takes the data, likewise.

    Returns:
        L(new), in reward units.

    Raises:
        ValueError: a policy of the wrong shape or no distribution; at gamma = 1, a policy whose episodes
            need not end.

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
    """What new earns at least: J(new) >= L(new) - C max KL(old || new), C = 4 eps gamma / (1 - gamma)^2.

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


def surrogate_loss(
    log_prob: torch.Tensor, log_prob_old: torch.Tensor, advantage: torch.Tensor
) -> torch.Tensor:
    """Minus the mean of rho A over samples of the old policy: what is minimized, the KL aside.

    Equation: eq-sample-surrogate

    Args:
        log_prob: log pi_theta(a|s) of the sampled actions, any shape; gradients flow.
        log_prob_old: the same under the policy that sampled them; a constant.
        advantage: estimates of A^old(s, a), the same shape; constants.

    Returns:
        A 0-d tensor. At theta = theta_old its gradient is minus the policy gradient.

    Raises:
        ValueError: shapes that differ, no samples, or a value that is not finite.
        TypeError: an argument is no tensor.

    Source: Schulman et al. (2015), equation 14.
    """
    check_tensors(log_prob=log_prob, log_prob_old=log_prob_old, advantage=advantage)
    return _surrogate_loss(log_prob, log_prob_old.detach(), advantage.detach())


def _surrogate_loss(
    log_prob: torch.Tensor, log_prob_old: torch.Tensor, advantage: torch.Tensor
) -> torch.Tensor:
    return -(torch.exp(log_prob - log_prob_old) * advantage).mean()


def _visits(mdp: MDP, policy: ArrayLike) -> FloatArray:
    """Expected discounted number of visits, (S,): sum over t of gamma^t P(s_t = s), or d / (1 - gamma)."""
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
        raise ValueError(f"weights must be finite, 0 or more, of shape ({len(rows)},); got {share.shape}")
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
        ValueError: step is no finite vector.
        TypeError: matvec is no function.

    Source: Schulman et al. (2015), appendix C.
    """
    step = _checked_vector("step", step)
    _check_function("matvec", matvec)
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
        kl_function: returns the mean KL(old || new) as a 0-d tensor. It is called with ``parameters``, or
            with nothing if it takes no argument (a network's KL, say, whose parameters it holds itself).
        parameters: the tensors to differentiate by: one tensor, or several; they sit at theta_old.
        vector: v, (n,), n the number of all entries of the parameters, in their order.
        damping: added to the diagonal of F, 0 or more; keeps the system solvable where F is singular.

    Returns:
        (F + damping I) v, the shape of the vector.

    Raises:
        ValueError: a vector of another length or not finite, a KL that is no single number, or a damping
            that is negative.
        TypeError: parameters that cannot be differentiated by, or a kl_function that is no function.

    Source: Pearlmutter (1994); Schulman et al. (2015), appendix C.
    """
    _check_function("kl_function", kl_function)
    damping = _checked_number("damping", damping, 0.0, math.inf)
    tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    if not tensors or not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in tensors):
        raise TypeError("parameters must be floating-point tensors")
    entries = sum(t.numel() for t in tensors)
    if not isinstance(vector, torch.Tensor) or vector.numel() != entries:
        raise ValueError(f"vector must be a tensor with {entries} entries, one per parameter")
    if not vector.is_floating_point() or not bool(torch.isfinite(vector).all()):
        raise ValueError(f"vector must hold finite floating-point numbers; its type is {vector.dtype}")
    if inspect.signature(kl_function).parameters:
        tensors = [t.detach().requires_grad_() for t in tensors]
        kl = kl_function(tensors[0] if isinstance(parameters, torch.Tensor) else tensors)
    else:
        kl = kl_function()
    if kl.numel() != 1:
        raise ValueError(f"kl_function must return one number, the mean KL; got shape {tuple(kl.shape)}")
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
        TypeError: matvec is no function, or an argument is not a number.

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
        TypeError: matvec is no function, or an argument is not a number.

    Source: Hestenes & Stiefel (1952); Nocedal & Wright (2006), algorithm 5.2.
    """
    b = _checked_vector("b", b)
    _check_function("matvec", matvec)
    iterations = _checked_count("iterations", iterations)
    tolerance = _checked_number("tolerance", tolerance, 0.0, math.inf, open_below=True)
    return _conjugate_gradient(matvec, b, iterations, tolerance)


def _conjugate_gradient(
    matvec: Matvec, b: Array, iterations: int, tolerance: float
) -> Iterator[ConjugateGradient]:
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
        TypeError: matvec is no function, or an argument is not a number.

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
        TypeError: evaluate is no function.

    Source: Schulman et al. (2015), appendix C; Nocedal & Wright (2006), section 3.1.
    """
    step = _checked_vector("step", step)
    _check_function("evaluate", evaluate)
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


# ---------------------------------------------------------------------------------------------- the training


@dataclass(frozen=True)
class TRPOConfig:
    """Settings of TRPO; the defaults solve CartPole-v1.

    Args:
        total_steps: environment steps in all, of all copies together; the last update may go over it.
        copies: N, environments side by side; 1 or more, 8 to 64 are usual.
        steps: T, steps of each copy before an update; N T samples an update, 1000 to 50 000 are usual.
        gamma: discount, in [0, 1]; .95 to .999.
        lam: of the generalized advantages, in [0, 1]; .9 to 1.
        delta: trust region: KL(old || new), averaged over the batch, is at most this after each update; nats,
            positive; .01 to .05.
        delta_end: delta falls linearly to this at total_steps, in (0, delta]; equal to delta keeps it
            constant.
        damping: added to the diagonal of the Fisher matrix, 0 or more; .001 to .1.
        cg_iterations: Fisher-vector products an update, 1 or more; 10 is usual.
        fisher_every: the Fisher matrix is averaged over every so many-th sample of the batch, 1 or more; 1
            takes all, 10 a tenth. The line search always takes all.
        line_search_factor: how much shorter each further try is, between 0 and 1.
        line_search_tries: at most so many steps are tried, 1 or more; then the old policy stays.
        hidden: sizes of the hidden layers of both networks.
        activation: "tanh" or "relu".
        initial_log_std: where a Gaussian policy's log standard deviations start.
        value_learning_rate: of Adam for the value network, positive.
        value_epochs: passes over the batch for the value network, 1 or more.
        value_batch_size: samples in a minibatch of these passes, 1 or more; the last one may be smaller.
        return_scale: size of typical returns; None is 1 / (1 - gamma) (1 at gamma = 1).
    """

    total_steps: int = 80_000
    copies: int = 32
    steps: int = 64
    gamma: float = 0.99
    lam: float = 0.97
    delta: float = 0.05
    delta_end: float = 0.001
    damping: float = 0.05
    cg_iterations: int = 10
    fisher_every: int = 4
    line_search_factor: float = 0.8
    line_search_tries: int = 10
    hidden: tuple[int, ...] = (64,)
    activation: str = "relu"
    initial_log_std: float = 0.0
    value_learning_rate: float = 7e-3
    value_epochs: int = 8
    value_batch_size: int = 512
    return_scale: float | None = None

    def __post_init__(self) -> None:
        for name in ("total_steps", "copies", "steps", "cg_iterations", "fisher_every", "line_search_tries",
                     "value_epochs", "value_batch_size"):
            check_count(name, getattr(self, name))
        check_unit_interval("gamma", self.gamma)
        check_unit_interval("lam", self.lam)
        for name in ("delta", "value_learning_rate"):
            _checked_number(name, getattr(self, name), 0.0, math.inf, open_below=True)
        _checked_number("delta_end", self.delta_end, 0.0, self.delta, open_below=True)
        _checked_number("damping", self.damping, 0.0, math.inf)
        factor = self.line_search_factor
        _checked_number("line_search_factor", factor, 0.0, 1.0, open_below=True, open_above=True)
        if self.activation not in ("tanh", "relu"):
            raise ValueError(f"activation must be one of tanh, relu, got {self.activation!r}")
        _checked_number("initial_log_std", self.initial_log_std, -math.inf, math.inf, open_below=True)
        if self.return_scale is not None:
            _checked_number("return_scale", self.return_scale, 0.0, math.inf, open_below=True)


def iterate_trpo(
    env: Any, config: TRPOConfig | None = None, *, seed: int, state: State | None = None
) -> Iterator[Update]:
    """Trust-region policy optimization: one record per batch and update.

    Args:
        env: an environment's id or constructor, or a vector environment; actions Discrete or Box.
        config: settings; None is ``TRPOConfig()``.
        seed: a non-negative integer; the same seed gives the same run on the same machine.
        state: what a record's ``state()`` gave, to go on from there.

    Returns:
        A generator of ``Update``. Metrics: kl, gain (of the surrogate), backtracks, accepted (0 or 1; 0 means
        that the policy stayed as it was), entropy, value_loss, and episode_return and episode_length where an
        episode ended.

    Raises:
        ValueError: spaces that TRPO cannot handle, an unknown environment, a state of another config or
            seed, a NaN from the environment.
        TrainingError: a gradient that is not finite.

    Source: Schulman et al. (2015), section 6; advantages: Schulman et al. (2016).
    """
    config = TRPOConfig() if config is None else config
    if not isinstance(config, TRPOConfig):
        raise TypeError(f"config is {type(config).__name__}; expected a TRPOConfig")
    if state is not None:
        check_state(state, config, seed)
    return _iterate(_Learner(env, config, check_seed(seed), state), close=not is_ready_made(env))


def train_trpo(
    env: Any,
    config: TRPOConfig | None = None,
    *,
    seed: int,
    state: State | str | Path | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 10,
    stop: Callable[[Update], bool] | None = None,
) -> TrainingResult:
    """Run ``iterate_trpo`` out, or until ``stop`` says so; see ``training.train``.

    Args:
        env: an environment's id or constructor, or a vector environment.
        config: settings; None is ``TRPOConfig()``.
        seed: a non-negative integer.
        state: a state or a checkpoint file to go on from.
        progress: show a progress bar.
        checkpoint: a file to save the state in, and to go on from if it is there.
        checkpoint_every: in updates, 1 or more.
        stop: called with each record; True ends the run.

    Returns:
        The policy, the curves and the state.

    Raises:
        ValueError: as ``iterate_trpo``, or a damaged checkpoint.
        TrainingError: a gradient, a metric or a parameter that is not finite.
    """
    config = TRPOConfig() if config is None else config
    return train(iterate_trpo, env, config, seed=seed, state=state, progress=progress, checkpoint=checkpoint,
                 checkpoint_every=checkpoint_every, stop=stop)


def _iterate(learner: _Learner, close: bool) -> Iterator[Update]:
    try:
        if learner.env_steps >= learner.config.total_steps:  # a state of a run that had ended
            yield Update(learner.update, learner.env_steps, {}, learner.policy, learner.state)
        while learner.env_steps < learner.config.total_steps:
            rollout = learner.collector.collect()
            batch = rollout.batch()
            advantages, value_targets = _advantages(rollout, learner.value, learner.config)
            config = learner.config_now()
            metrics = trpo_step(learner.policy, batch.observations, batch.actions, advantages, config)
            metrics["value_loss"] = learner.fit_values(batch.observations, value_targets)
            learner.env_steps += len(rollout)
            learner.update += 1
            metrics |= learner.episodes()
            yield Update(learner.update, learner.env_steps, metrics, learner.policy, learner.state)
    finally:
        if close:
            learner.environments.close()


def _advantages(
    rollout: Rollout, value: ValueNetwork, config: TRPOConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalized advantages and value targets, (T N,) each."""
    values, next_values = value_estimates(rollout, value)  # (T, N)
    advantages, value_targets = gae(
        rollout.rewards, values, next_values, rollout.terminated, rollout.truncated, config.gamma, config.lam
    )
    return flatten(normalize_advantages(advantages)), flatten(value_targets)


def trpo_step(
    policy: Policy,
    observations: torch.Tensor,
    actions: torch.Tensor,
    advantages: torch.Tensor,
    config: TRPOConfig,
) -> dict[str, float]:
    """One update of the policy, in place: gradient, conjugate gradient, line search.

    The policy has not changed since it took the actions, so what it computes now is what it acted with. If
    no step is accepted, the policy stays as it is.

    Args:
        policy: the policy that took the actions.
        observations: (n, d).
        actions: (n,) or (n, k).
        advantages: (n,), best normalized.
        config: the settings.

    Returns:
        kl, gain, backtracks, accepted, entropy (of the old policy).

    Raises:
        TrainingError: the gradient is not finite.
        ValueError: the Fisher matrix is not positive definite; only without enough damping.

    Source: Schulman et al. (2015), section 6 and appendix C.
    """
    parameters = list(policy.parameters())
    outputs = policy(observations)
    old_outputs = outputs.detach()
    log_prob = policy.log_prob_of(outputs, actions)
    old_log_prob = log_prob.detach()

    gradient = -_flat(torch.autograd.grad(_surrogate_loss(log_prob, old_log_prob, advantages), parameters))
    if not math.isfinite(float(gradient.sum())):
        raise TrainingError("the gradient of the surrogate is not finite; the policy was left as it was")
    some = slice(None, None, config.fisher_every)  # a part of the samples is enough for the curvature
    kl = policy.kl_of(old_outputs[some], policy(observations[some])).mean()
    fisher = _fisher_product(kl, parameters, config.damping)
    direction = gradient * 0
    for record in _conjugate_gradient(fisher, gradient, config.cg_iterations, 1e-4):
        direction = record.solution
    full_step = _scaled_to(direction, fisher, config.delta)

    theta = _flat(parameters).detach().clone()
    old_surrogate = float(advantages.mean())

    @torch.no_grad()
    def evaluate(step: torch.Tensor) -> tuple[float, float]:
        vector_to_parameters(theta + step, parameters)
        outputs = policy(observations)
        loss = _surrogate_loss(policy.log_prob_of(outputs, actions), old_log_prob, advantages)
        return -float(loss) - old_surrogate, float(policy.kl_of(old_outputs, outputs).mean())

    found = _line_search(
        evaluate, full_step, config.delta, config.line_search_factor, config.line_search_tries
    )
    if not found.accepted:
        vector_to_parameters(theta, parameters)
    return {"kl": found.kl, "gain": found.gain, "backtracks": float(found.backtracks),
            "accepted": float(found.accepted), "entropy": float(policy.entropy_of(old_outputs).mean())}


class _Learner:
    """All that changes during training, and its state."""

    def __init__(self, env: Any, config: TRPOConfig, seed: int, state: State | None) -> None:
        self.config, self.seed, self.update, self.env_steps = config, seed, 0, 0
        # independent seeds: of the environments, the actions, the two networks, the minibatches
        seeds = [int(x) for x in np.random.SeedSequence(seed).generate_state(5)]
        on_tensors = isinstance(env, TorchCartPole)  # then everything lives on its device
        self.environments: Any = env if on_tensors else vectorize(env, config.copies, seed=seeds[0])
        device = env.device if on_tensors else None
        spaces = self.environments.observation_space, self.environments.action_space
        self.policy = make_policy(*spaces, hidden=config.hidden, activation=config.activation, seed=seeds[2],
                                  initial_log_std=config.initial_log_std,
                                  env=self.environments.name).to(device)
        scale = config.return_scale or (1 / (1 - config.gamma) if config.gamma < 1 else 1.0)
        self.value = ValueNetwork(self.environments.observation_size, hidden=config.hidden, scale=scale,
                                  activation=config.activation, seed=seeds[3]).to(device)
        self.optimizer = torch.optim.Adam(
            self.value.parameters(), lr=config.value_learning_rate, eps=1e-5, fused=True
        )
        rng: Any = np.random.default_rng(seeds[1])
        if on_tensors:
            rng = torch.Generator(device).manual_seed(seeds[1])
        self.collector = Collector(self.environments, self.policy, config.steps, rng)
        self.generator = torch.Generator().manual_seed(seeds[4])  # of the minibatches
        if state is not None:
            self._load(state)

    def fit_values(self, observations: torch.Tensor, targets: torch.Tensor) -> float:
        """Regress the value network on the targets; the mean squared error, in units of the scale squared."""
        losses = []
        for _ in range(self.config.value_epochs):
            order = torch.randperm(len(targets), generator=self.generator).to(targets.device)
            for rows in order.split(self.config.value_batch_size):
                errors = (self.value(observations[rows]) - targets[rows]) / self.value.scale
                loss = (errors * errors).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.detach())
        return float(torch.stack(losses).mean())

    def config_now(self) -> TRPOConfig:
        """The config with delta on its way to delta_end."""
        config, done = self.config, self.env_steps / self.config.total_steps
        return replace(config, delta=config.delta + done * (config.delta_end - config.delta))

    def episodes(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call; nothing if none did."""
        returns, lengths = self.environments.pop_episodes()
        if len(returns) == 0:
            return {}
        return {"episode_return": float(returns.mean()), "episode_length": float(lengths.mean())}

    def state(self) -> State:
        """Tensors and plain data; training that goes on from them ends bit for bit the same."""
        return {
            "config": config_dict(self.config), "seed": self.seed, "update": self.update,
            "env_steps": self.env_steps, "policy": pack(self.policy), "value": pack(self.value),
            "optimizer": pack(self.optimizer), "collector": self.collector.state(),
            "generator": rng_state(self.generator),
        }

    def _load(self, state: State) -> None:
        self.update, self.env_steps = state["update"], state["env_steps"]
        for name in ("policy", "value", "optimizer"):
            unpack(getattr(self, name), state[name])
        self.collector.load_state(state["collector"])
        set_rng_state(self.generator, state["generator"])


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


def _check_function(name: str, function: Any) -> None:
    if not callable(function):  # a matrix, most often: then matrix.__matmul__ is the function
        raise TypeError(f"{name} is {type(function).__name__}; expected a function")


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
