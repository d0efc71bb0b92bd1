"""Trust-region policy optimization: the step, its training, the surrogate and its bound (chapter 9).

Two policies are compared all the time: ``old`` took the data, ``new`` is asked about. Step control is
KL(old || new), averaged over the states that old visits; its radius is ``delta``, in nats.

In order: the settings; the surrogate loss, the step and the loop; what the step is made of (curvature, conjugate
gradient, line search), where a symmetric matrix is known only through its products with vectors, ``matvec(v)``, in
numpy and torch alike; two policies compared exactly, as tables (S,) or (S, A) on an ``MDP``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, Unpack

import numpy as np
import scipy  # loads scipy.sparse at its first use
import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from rlbook_lib.checks import Array, Count, Environment, Floats, Integers, NotNegative, OpenUnitInterval
from rlbook_lib.checks import Positive, Probabilities, Range, Seed, UnitInterval
from rlbook_lib.checks import checked, settings
from rlbook_lib.divergences import kl_divergence
from rlbook_lib.dynamic_programming import advantages, expected_return, expected_visits
from rlbook_lib.mdp import MDP, FloatArray
from rlbook_lib.networks import Policy, ValueNetwork
from rlbook_lib.returns import gae, normalize_advantages
from rlbook_lib.rollout import Collector, Rollout, flatten, open_actors, value_estimates
from rlbook_lib.training import Adam, Optimizer, ReturnScale, Run, RunOptions, State, TrainingError, TrainingResult
from rlbook_lib.training import Update, gradient_step, split_seed, train


@settings
class TRPOConfig(ReturnScale):
    """Settings of TRPO; the defaults solve CartPole-v1."""

    total_steps: Count = 80_000  #: environment steps, all copies together; the last update may go over it
    copies: Count = 32  #: N, environments side by side; 8 to 64 are usual
    steps: Count = 64  #: T, of each copy before an update; N T samples an update, 1000 to 50 000 are usual
    gamma: UnitInterval = 0.99  #: discount; .95 to .999
    lam: UnitInterval = 0.97  #: of the generalized advantages; .9 to 1
    delta: Positive = 0.05  #: nats that the divergence from old to new may reach in an update; .01 to .05
    delta_end: Positive = 0.001  #: delta falls linearly to this at total_steps; at most delta
    damping: NotNegative = 0.05  #: added to the diagonal of the Fisher matrix; .001 to .1
    cg_iterations: Count = 10  #: Fisher-vector products an update; 10 is usual
    fisher_every: Count = 4  #: the Fisher matrix is averaged over every so many-th sample; the line search takes all
    line_search_factor: OpenUnitInterval = 0.8  #: how much shorter each further try is
    line_search_tries: Count = 10  #: at most so many steps are tried; then the old policy stays
    hidden: tuple[Count, ...] = (64,)  #: sizes of the hidden layers of both networks
    activation: Literal["tanh", "relu"] = "relu"  #: between the layers
    value_learning_rate: Positive = 7e-3  #: of Adam for the value network
    value_epochs: Count = 8  #: passes over the batch for the value network
    value_batch_size: Count = 512  #: samples in a minibatch of these passes; the last one may be smaller
    return_scale: Positive | None = None  #: size of typical returns; None takes 1 / (1 - gamma), or 1 for gamma = 1

    def check_together(self) -> None:
        """The region does not grow."""
        if self.delta_end > self.delta:
            raise ValueError(f"delta_end is {self.delta_end}; expected at most delta, {self.delta}")


# ------------------------------------------------------------------------------------------- loss, update, loop


@checked(arrays="tensors")
def surrogate_loss(
    log_prob: Floats[Array, "..."], log_prob_old: Floats[Array, "..."], advantage: Floats[Array, "..."]
) -> Array:
    """Minus the mean of rho A over samples of the old policy: what is minimized, the KL aside.

    Equation: eq-sample-surrogate

    At theta = theta_old its gradient is minus the policy gradient. Gradients flow through ``log_prob`` alone.

    Source: Schulman et al. (2015), equation 14.
    """
    return -(torch.exp(log_prob - log_prob_old.detach()) * advantage.detach()).mean()


@checked
def trpo_step(
    policy: Policy, observations: Tensor, actions: Tensor, advantages: Tensor, config: TRPOConfig
) -> dict[str, float]:
    """One update of the policy, in place: gradient, conjugate gradient, line search.

    The policy has not changed since it took the actions, so what it computes now is what it acted with. If
    no step is accepted, the policy stays as it is. Advantages are best normalized.

    What comes back is kl, gain, backtracks, accepted, and entropy (of the old policy).

    Raises:
        TrainingError: the gradient is not finite.
        ValueError: the Fisher matrix is not positive definite; only without enough damping.

    Source: Schulman et al. (2015), section 6 and appendix C.
    """
    parameters, loss_of = list(policy.parameters()), surrogate_loss
    outputs = policy(observations)
    old_outputs = outputs.detach()
    log_prob = policy.log_prob_of(outputs, actions)
    old_log_prob = log_prob.detach()

    gradient = -_flat(torch.autograd.grad(loss_of(log_prob, old_log_prob, advantages), parameters))
    if not math.isfinite(float(gradient.sum())):
        raise TrainingError("the gradient of the surrogate is not finite; the policy was left as it was")
    some = slice(None, None, config.fisher_every)  # a part of the samples is enough for the curvature
    kl = policy.kl_of(old_outputs[some], policy(observations[some])).mean()
    fisher = _fisher_product(kl, parameters, config.damping)
    full_step = natural_gradient_step(gradient, fisher, config.delta, iterations=config.cg_iterations, tolerance=1e-4)

    theta = _flat(parameters).detach().clone()
    old_surrogate = float(advantages.mean())

    @torch.no_grad()
    def evaluate(step: Tensor) -> tuple[float, float]:
        vector_to_parameters(theta + step, parameters)
        outputs = policy(observations)
        loss = loss_of(policy.log_prob_of(outputs, actions), old_log_prob, advantages)
        return -float(loss) - old_surrogate, float(policy.kl_of(old_outputs, outputs).mean())

    found = line_search(
        evaluate, full_step, config.delta, factor=config.line_search_factor, tries=config.line_search_tries
    )
    if not found.accepted:
        vector_to_parameters(theta, parameters)
    return {
        "kl": found.kl,
        "gain": found.gain,
        "backtracks": float(found.backtracks),
        "accepted": float(found.accepted),
        "entropy": float(policy.entropy_of(old_outputs).mean()),
    }


@dataclass
class TRPORun(Run):
    """A run of TRPO."""

    networks: nn.Module
    optimizer: Optimizer  #: of the value network
    collector: Collector
    order: torch.Generator  #: of the samples in the value network's passes


@checked
def iterate_trpo(
    env: Environment, config: TRPOConfig | None = None, *, seed: Seed, state: State | None = None
) -> Iterator[Update]:
    """Trust-region policy optimization, one record per batch; arguments and errors as for every trainer (``training``).

    Yields:
        ``Update`` records. Metrics: kl, gain (of the surrogate), backtracks, accepted (0 or 1; 0 means that the
        policy stayed as it was), entropy, value_loss (half the mean squared error during its passes, reward units
        squared), and episode_return and episode_length where an episode ended.

    Source: Schulman et al. (2015), section 6; advantages: Schulman et al. (2016).
    """
    config = config or TRPOConfig()
    env_seed, action_seed, policy_seed, value_seed, order_seed = split_seed(seed, 5)
    seeds = env_seed, policy_seed, value_seed, action_seed
    with open_actors(env, config, seeds, copies=config.copies, steps=config.steps) as actors:
        policy, value, collector = actors.policy, actors.value, actors.collector
        optimizer = Adam(value.parameters(), config.value_learning_rate, eps=1e-5)
        order = torch.Generator().manual_seed(order_seed)
        run = TRPORun(config, seed, policy, actors.networks, optimizer, collector, order)
        yield from run.go_on(state)
        while not run.ended:
            rollout = collector.collect()
            batch, (advantages, targets) = rollout.batch(), trpo_targets(rollout, value, config)
            delta = config.delta + run.env_steps / config.total_steps * (config.delta_end - config.delta)
            metrics = trpo_step(policy, batch.observations, batch.actions, advantages, replace(config, delta=delta))
            metrics["value_loss"] = fit_values(value, optimizer, batch.observations, targets, config, order)
            yield run.record(metrics | actors.environments.episode_metrics(), len(rollout))


@checked
def trpo_targets(rollout: Rollout, value_network: ValueNetwork, config: TRPOConfig) -> tuple[Tensor, Tensor]:
    """Normalized advantages of a rollout, and what the value network is to say, reward units; (T N,) each.

    Source: Schulman et al. (2016).
    """
    values, next_values = value_estimates(rollout, value_network)  # (T, N)
    advantages, targets = gae(
        rollout.rewards, values, next_values, rollout.terminated, rollout.truncated, config.gamma, config.lam
    )
    return flatten(normalize_advantages(advantages)), flatten(targets)


@checked
def fit_values(
    value_network: ValueNetwork,
    optimizer: Optimizer,
    observations: Tensor,
    targets: Tensor,
    config: TRPOConfig,
    generator: torch.Generator,
) -> float:
    """Passes of gradient steps of the value network toward its targets, in units of its scale, in drawn orders.

    Half the mean squared error during the passes comes back, reward units squared.
    """
    losses = []
    for _ in range(config.value_epochs):
        order = torch.randperm(len(targets), generator=generator).to(targets.device)
        for rows in order.split(config.value_batch_size):
            errors = (value_network(observations[rows]) - targets[rows]) / value_network.scale
            loss = (errors * errors).mean()
            gradient_step(optimizer, loss)
            losses.append(loss.detach())
    return 0.5 * value_network.scale**2 * float(torch.stack(losses).mean())


@checked
def train_trpo(
    env: Environment, config: TRPOConfig | None = None, *, seed: Seed, **options: Unpack[RunOptions]
) -> TrainingResult:
    """Run ``iterate_trpo`` out, or until ``stop`` says so; options as in ``training.RunOptions``."""
    return train(partial(iterate_trpo, env), config or TRPOConfig(), seed=seed, **options)


# ------------------------------------------------------------------ the step: conjugate gradient, line search

Matvec: TypeAlias = Callable[[Array], Array]


class ConjugateGradient(NamedTuple):
    """One iteration of the conjugate gradient method."""

    solution: Array  #: (n,), x so far
    residual: float  #: the length of b - A x
    iteration: int


@checked(arrays="either")
def conjugate_gradient(
    matvec: Matvec, b: Floats[Array, "n"], iterations: Count = 10, tolerance: Positive = 1e-10
) -> Array:
    """Solve A x = b for a symmetric positive definite A that is known only through products A v.

    Equation: eq-conjugate-gradient

    At most ``iterations`` products are made (n of them are enough but for rounding); they stop when the length of b - A
    x is at most ``tolerance`` times that of b.

    Raises:
        ValueError: A is not positive definite, or has another size.

    Source: Hestenes & Stiefel (1952); Nocedal & Wright (2006), algorithm 5.2.
    """
    solution = b * 0
    for record in iterate_conjugate_gradient(matvec, b, iterations, tolerance):
        solution = record.solution
    return solution


@checked(arrays="either")
def iterate_conjugate_gradient(
    matvec: Matvec, b: Floats[Array, "n"], iterations: Count = 10, tolerance: Positive = 1e-10
) -> Iterator[ConjugateGradient]:
    """The same, one record per iteration; none where b is 0."""
    solution, residual, direction = b * 0, b + 0, b + 0
    size = first = float(residual @ residual)
    for iteration in range(1, iterations + 1):
        if size <= tolerance**2 * first:
            return
        product = matvec(direction)
        if np.shape(product) != np.shape(b):
            raise ValueError(f"matvec returns shape {tuple(np.shape(product))}; expected {tuple(np.shape(b))}, like b")
        curvature = float(direction @ product)
        if not curvature > 0:
            if math.sqrt(size) < 1e-6 * math.sqrt(first):
                return  # only rounding is left, in a direction that A does not see
            raise ValueError(
                f"matvec is not positive definite: v @ matvec(v) is {curvature:.3g}; "
                "expected a positive number (more damping helps)"
            )
        length = size / curvature
        solution = solution + length * direction
        residual = residual - length * product
        before, size = size, float(residual @ residual)
        direction = residual + (size / before) * direction
        yield ConjugateGradient(solution, math.sqrt(size), iteration)


@checked(arrays="either")
def natural_gradient_step(
    gradient: Floats[Array, "n"],
    matvec: Matvec,
    delta: Positive,
    *,
    iterations: Count | None = None,
    tolerance: Positive = 1e-10,
) -> Array:
    """The best step of a linear objective within a quadratic KL of delta: sqrt(2 delta / g' F^-1 g) F^-1 g.

    Equation: eq-natural-step

    ``gradient`` is g of the objective that is to grow; ``matvec`` is v -> F v; half of step' F step is ``delta``, nats.
    ``iterations`` and ``tolerance`` are of the conjugate gradient method; None: as many as the tolerance asks for, at
    most 10 n.

    Raises:
        ValueError: F is not positive definite.

    Source: Schulman et al. (2015), appendix C; Kakade (2001).
    """
    iterations = 10 * len(gradient) if iterations is None else iterations
    direction = conjugate_gradient(matvec, gradient, iterations, tolerance)
    curvature = float(direction @ matvec(direction))
    return math.sqrt(2 * delta / curvature) * direction if curvature > 0 else direction * 0


class LineSearch(NamedTuple):
    """What a line search found. Not accepted: the step is 0, and so are gain and KL."""

    step: Array  #: (n,)
    backtracks: int  #: j, where the step is factor^j of the full one
    gain: float  #: of the surrogate, over that of the old policy
    kl: float  #: KL(old || new) after the step, nats
    accepted: bool


@checked(arrays="either")
def line_search(
    evaluate: Callable[[Array], tuple[float, float]],
    step: Floats[Array, "n"],
    delta: Positive,
    *,
    factor: OpenUnitInterval = 0.8,
    tries: Count = 10,
) -> LineSearch:
    """The first of step, factor step, factor^2 step, ... that gains and whose true KL is at most delta.

    Equation: eq-line-search

    ``evaluate`` maps a step to the gain of the surrogate and KL(old || new), both true, not modeled. At most ``tries``
    steps are tried; the step is 0 if none is accepted.

    Source: Schulman et al. (2015), appendix C; Nocedal & Wright (2006), section 3.1.
    """
    for j in range(tries):
        candidate = factor**j * step
        gain, kl = evaluate(candidate)
        if gain > 0 and kl <= delta:  # False for NaN: such a step is never taken
            return LineSearch(candidate, j, gain, kl, True)
    return LineSearch(step * 0, tries, 0.0, 0.0, False)


# ------------------------------------------------------------- curvature: the Fisher matrix and its products


@checked
def fisher_matrix(
    logits: Floats[Array, "K"] | Floats[Array, "S K"], weights: Floats[Array, "S", Range(0)] | None = None
) -> FloatArray:
    """The Fisher matrix of a softmax policy with one logit per state and action: E of score times score'.

    Equation: eq-fisher

    In one state it is diag(p) - p p'. It is the Hessian of KL(old || new) at new = old, exactly, and singular: a
    constant on all logits of a state changes nothing.

    Logits (K,) give (K, K). Logits (S, K) give (S*K, S*K): one block per state, times its weight, by default 1 / S: how
    often the state is visited. Weights beside logits (K,) are a ValueError.

    Source: Amari (1998); Kakade (2001).
    """
    if weights is not None and logits.ndim == 1:
        raise ValueError(f"weights has shape {weights.shape}; expected None beside logits of shape (K,)")
    rows = np.atleast_2d(np.asarray(logits, dtype=float))
    share = np.full(len(rows), 1 / len(rows)) if weights is None else weights
    p = np.exp(rows - rows.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    blocks = [w * (np.diag(row) - np.outer(row, row)) for w, row in zip(share, p)]
    return scipy.sparse.block_diag(blocks).toarray()


@checked(arrays="either")
def quadratic_kl(step: Floats[Array, "n"], matvec: Matvec) -> float:
    """The second-order model of KL(old || new) after a step theta - theta_old: half of step' F step, nats.

    Equation: eq-quadratic-kl

    The true one differs by terms of third order in the step.

    Source: Schulman et al. (2015), appendix C.
    """
    return 0.5 * float(step @ matvec(step))


@checked(arrays="tensors")
def fisher_vector_product(
    kl_function: Callable[..., Tensor],
    parameters: Tensor | Sequence[Tensor],
    vector: Floats[Array, "..."],
    damping: NotNegative = 0.0,
) -> Array:
    """F v without F: differentiate the KL once, take the product with v, differentiate again; plus damping v.

    Equation: eq-fisher-vector-product

    Args:
        kl_function: returns the mean KL(old || new) as a 0-d tensor. It is called with ``parameters``, or
            with nothing if it takes no argument (a network's KL, say, whose parameters it holds itself).
        parameters: one tensor, or several, which sit at theta_old; ``vector`` is v, in their order.
        damping: added to the diagonal of F; keeps the system solvable where F is singular.

    Raises:
        ValueError: a vector of another length, or a KL that is no single number.
        TypeError: parameters that cannot be differentiated by.

    Source: Pearlmutter (1994); Schulman et al. (2015), appendix C.
    """
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not tensors or not all(tensor.is_floating_point() for tensor in tensors):
        types = [str(tensor.dtype) for tensor in tensors]
        raise TypeError(f"parameters has the types {types}; expected floating-point tensors")
    entries = sum(tensor.numel() for tensor in tensors)
    if vector.numel() != entries:
        raise ValueError(f"vector has {vector.numel()} entries; expected {entries}, one per parameter")
    if inspect.signature(kl_function).parameters:
        tensors = [t.detach().requires_grad_() for t in tensors]
        kl = kl_function(tensors[0] if isinstance(parameters, Tensor) else tensors)
    else:
        kl = kl_function()
    if kl.numel() != 1:
        raise ValueError(f"kl_function returned shape {tuple(kl.shape)}; expected one number, the mean KL")
    return _fisher_product(kl, tensors, damping)(vector.reshape(-1)).reshape(vector.shape)


def _fisher_product(kl: Tensor, parameters: Sequence[Tensor], damping: float) -> Callable[[Tensor], Tensor]:
    """v -> (F + damping I) v; the first derivative of the KL is taken once, for all v."""
    gradient = _flat(torch.autograd.grad(kl, parameters, create_graph=True))

    def product(vector: Tensor) -> Tensor:
        columns = torch.autograd.grad(gradient @ vector, parameters, retain_graph=True)
        return _flat(columns) + damping * vector

    return product


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """All entries behind one another, (n,)."""
    return torch.cat([t.reshape(-1) for t in tensors])


# ----------------------------------------------------------------- two policies, exactly: tables on an MDP
# At gamma = 1 a policy whose episodes need not end is a ValueError.

TablePolicy: TypeAlias = Integers[Array, "S"] | Probabilities[Array, "S A"]  # an action or its chances, by state


@checked
def performance_difference(mdp: MDP, new: TablePolicy, old: TablePolicy) -> float:
    """How much better new is than old, from the advantages of old: the performance-difference lemma.

    Equation: eq-performance-difference

    J(new) - J(old) = 1/(1 - gamma) E over s ~ d^new, a ~ new of A^old(s, a), in reward units. The factor and d^new
    together are the expected discounted number of visits to each state, and that is what is computed: it exists at
    gamma = 1 too.

    Source: Kakade & Langford (2002), lemma 6.1.
    """
    per_state = (mdp.policy_rows(new) * advantages(mdp, old)).sum(1)  # (S,): E over a ~ new of A^old
    return float(expected_visits(mdp, new) @ per_state)


@checked
def surrogate_objective(mdp: MDP, new: TablePolicy, old: TablePolicy) -> float:
    """What new would earn if it visited states as often as old does: L(new), a local approximation.

    Equation: eq-surrogate

    L(new) = J(old) + 1/(1 - gamma) E over s ~ d^old, a ~ new of A^old(s, a), in reward units. It equals J at
    new = old, where the second part is 0, and has the same slope there. Only the states are approximated; the mean
    over a ~ new equals that of rho A^old over a ~ old, exactly, if old can take every action that new can.

    Source: Schulman et al. (2015), equation 3.
    """
    per_state = (mdp.policy_rows(new) * advantages(mdp, old)).sum(1)
    return expected_return(mdp, old) + float(expected_visits(mdp, old) @ per_state)


class ImprovementBound(NamedTuple):
    """A lower bound on J(new): ``lower_bound = surrogate - coefficient * kl_max``."""

    lower_bound: float
    surrogate: float  #: L(new)
    coefficient: float  #: C = 4 eps gamma / (1 - gamma)^2, eps the largest absolute advantage of old
    kl_max: float  #: the largest KL(old || new) of any state, nats


@checked
def policy_improvement_bound(mdp: MDP, new: TablePolicy, old: TablePolicy) -> ImprovementBound:
    """What new earns at least: J(new) >= L(new) - C max KL(old || new), C = 4 eps gamma / (1 - gamma)^2.

    Equation: eq-improvement-bound

    It is -inf where old can take an action that new cannot.

    Raises:
        ValueError: gamma = 1, where C would be infinite.

    Source: Schulman et al. (2015), theorem 1.
    """
    if mdp.gamma == 1:
        raise ValueError("mdp has gamma = 1; expected gamma below 1, because the bound divides by 1 - gamma")
    alive = ~mdp.terminal
    epsilon = float(np.abs(advantages(mdp, old)).max())
    coefficient = 4 * epsilon * mdp.gamma / (1 - mdp.gamma) ** 2
    kl = kl_divergence(mdp.policy_rows(old)[alive], mdp.policy_rows(new)[alive])  # (states that go on,)
    kl_max = float(kl.max(initial=0.0))
    surrogate = surrogate_objective(mdp, new, old)
    penalty = coefficient * kl_max if coefficient > 0 else 0.0  # 0 times inf is 0 here: nothing can be lost
    return ImprovementBound(surrogate - penalty, surrogate, coefficient, kl_max)
