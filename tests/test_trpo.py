"""Tests of ``rlbook_lib.trpo``: exact identities on random processes, curvature by other routes, and the training."""

import math
import re
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib import trpo
from rlbook_lib.dynamic_programming import advantages, expected_return
from rlbook_lib.maze import Maze
from rlbook_lib.mdp import MDP, enumerate_trajectories
from rlbook_lib.networks import CategoricalPolicy, GaussianPolicy, ValueNetwork
from rlbook_lib.rollout import open_actors
from rlbook_lib.training import TrainingError, split_seed
from rlbook_lib.trpo import (
    TRPOConfig,
    conjugate_gradient,
    fit_values,
    fisher_matrix,
    fisher_vector_product,
    iterate_conjugate_gradient,
    iterate_trpo,
    line_search,
    natural_gradient_step,
    performance_difference,
    policy_improvement_bound,
    quadratic_kl,
    surrogate_loss,
    surrogate_objective,
    train_trpo,
    trpo_step,
)
from tests.by_hand import PlainAdam, advantages_by_hand, assert_same_weights, log_pi, mlp, short_poles, weights_of


def softmax(logits):
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def kl(p, q):
    return (p * np.log(p / q)).sum(-1)


@st.composite
def processes(draw):
    """A random MDP, with or without an end, and two policies."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k = draw(st.integers(2, 5)), draw(st.integers(2, 4))
    gamma = draw(st.sampled_from([0.0, 0.5, 0.9, 0.99]))
    terminal = np.zeros(n, dtype=bool)
    terminal[-1] = draw(st.booleans())
    mdp = MDP(
        rng.dirichlet(np.ones(n), (n, k)),
        rng.normal(size=(n, k, n)),
        gamma,
        terminal,
        start=None if draw(st.booleans()) else np.eye(n)[0],
    )
    new, old = rng.dirichlet(np.ones(k), (2, n))
    return mdp, new, old


# --------------------------------------------------------------------------------- two policies, exactly


@pytest.mark.equation("eq-performance-difference")
@given(processes())
@settings(max_examples=40, deadline=None)
def test_performance_difference_lemma(case):
    mdp, new, old = case
    expected = expected_return(mdp, new) - expected_return(mdp, old)
    assert performance_difference(mdp, new, old) == pytest.approx(expected, abs=1e-10)


def test_performance_difference_by_trajectories_and_at_gamma_one():
    maze = Maze().to_mdp(1.0)
    rng = np.random.default_rng(0)
    new, old = rng.dirichlet(np.ones(4), (2, maze.n_states))
    expected = expected_return(maze, new) - expected_return(maze, old)
    assert performance_difference(maze, new, old) == pytest.approx(expected, abs=1e-10)
    # as the expected discounted sum of old's advantages along new's paths, counted out one by one
    mdp = MDP(np.full((2, 2, 2), 0.5), [[1.0, 0.0], [0.5, 2.0]], 0.3)
    new, old = rng.dirichlet(np.ones(2), (2, 2))
    a = advantages(mdp, old)
    total = sum(
        path.probability * sum(0.3**t * a[s, b] for t, (s, b) in enumerate(zip(path.states, path.actions)))
        for path in enumerate_trajectories(mdp, new, 6)
    )
    assert performance_difference(mdp, new, old) == pytest.approx(total, abs=2 * 0.3**6)


def test_policies_that_never_end_are_refused_at_gamma_one():
    maze = Maze().to_mdp(1.0)
    walks_up = np.zeros(maze.n_states, dtype=int)
    with pytest.raises(ValueError, match="end"):
        performance_difference(maze, walks_up, np.full((maze.n_states, 4), 0.25))


@pytest.mark.equation("eq-surrogate")
@given(processes())
@settings(max_examples=30, deadline=None)
def test_surrogate_is_the_objective_at_the_old_policy_in_value_and_slope(case):
    mdp, _, old = case
    logits = np.log(old)
    assert surrogate_objective(mdp, old, old) == pytest.approx(expected_return(mdp, old), abs=1e-10)
    direction = np.sin(np.arange(logits.size)).reshape(logits.shape)
    for function in (expected_return, lambda m, p: surrogate_objective(m, p, old)):
        ends = [function(mdp, softmax(logits + h * direction)) for h in (1e-5, -1e-5)]
        slope = (ends[0] - ends[1]) / 2e-5
        if function is expected_return:
            expected = slope
    assert slope == pytest.approx(expected, abs=1e-5 * (1 + abs(expected)))


def test_surrogate_by_trajectories_of_the_old_policy():
    # J(old) + E over old's paths of the sum of gamma^t rho_t A_t: the ratio of the action only, not of the state
    rng = np.random.default_rng(1)
    mdp = MDP(rng.dirichlet(np.ones(2), (2, 2)), [[3.0, 0.0], [0.0, -3.0]], 0.2)
    new, old = rng.dirichlet(np.ones(2), (2, 2))
    weighted = new / old * advantages(mdp, old)
    total = sum(
        path.probability * sum(0.2**t * weighted[s, a] for t, (s, a) in enumerate(zip(path.states, path.actions)))
        for path in enumerate_trajectories(mdp, old, 5)
    )
    assert surrogate_objective(mdp, new, old) == pytest.approx(expected_return(mdp, old) + total, abs=2e-3)
    assert abs(surrogate_objective(mdp, new, old) - expected_return(mdp, new)) > 0.01


def test_the_error_of_the_surrogate_is_of_second_order():
    rng = np.random.default_rng(2)
    mdp = MDP(rng.dirichlet(np.ones(4), (4, 3)), rng.normal(size=(4, 3)), 0.9)
    logits, direction = rng.normal(size=(2, 4, 3))
    old = softmax(logits)
    errors = [
        abs(surrogate_objective(mdp, p, old) - expected_return(mdp, p))
        for p in (softmax(logits + h * direction) for h in (4e-4, 2e-4))
    ]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


@pytest.mark.equation("eq-improvement-bound")
@given(processes(), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_the_bound_holds(case, share):
    mdp, other, old = case
    new = (1 - share) * old + share * other
    bound = policy_improvement_bound(mdp, new, old)
    assert bound.lower_bound <= expected_return(mdp, new) + 1e-9
    assert policy_improvement_bound(mdp, old, old).lower_bound == pytest.approx(expected_return(mdp, old))
    alive = ~mdp.terminal
    assert bound.kl_max == pytest.approx(kl(old, new)[alive].max(), abs=1e-12)
    epsilon = np.abs(advantages(mdp, old)).max()
    assert bound.coefficient == pytest.approx(4 * epsilon * mdp.gamma / (1 - mdp.gamma) ** 2)


def test_the_bound_at_its_limits():
    maze = Maze().to_mdp(1.0)
    with pytest.raises(ValueError, match="gamma = 1"):
        policy_improvement_bound(maze, np.full((6, 4), 0.25), np.full((6, 4), 0.25))
    maze = maze.replace(gamma=0.9)
    bound = policy_improvement_bound(maze, np.full(6, 3), np.full((6, 4), 0.25))  # cannot do what old can
    assert bound.lower_bound == -math.inf


@pytest.mark.equation("eq-sample-surrogate")
def test_sample_surrogate_is_the_mean_of_ratio_times_advantage():
    rng = np.random.default_rng(3)
    new, old, a = rng.dirichlet(np.ones(3)), np.array([0.25, 0.25, 0.5]), rng.normal(size=3)
    actions = np.array([0, 1, 2, 2])  # as often as old takes them: the mean over samples is the expectation
    loss = surrogate_loss(*(torch.tensor(x[actions]) for x in (np.log(new), np.log(old), a)))
    assert -loss.item() == pytest.approx(new @ a)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    log_prob = torch.log_softmax(logits, 0)[torch.tensor([0, 1, 2])]
    surrogate_loss(log_prob, log_prob, torch.tensor(a)).backward()  # the old log-probabilities are constants
    np.testing.assert_allclose(-logits.grad, a / 3 - a.mean() / 3, atol=1e-12)


# ------------------------------------------------------------------------------------------------ curvature


def numeric_hessian(function, x, h=1e-4):
    n = len(x)
    steps = h * np.eye(n)
    return np.array(
        [
            [
                (function(x + a + b) - function(x + a - b) - function(x - a + b) + function(x - a - b)) / (4 * h * h)
                for b in steps
            ]
            for a in steps
        ]
    )


@pytest.mark.equation("eq-fisher")
def test_fisher_matrix_is_the_mean_of_scores_and_the_hessian_of_the_kl():
    logits = np.array([0.5, -0.3, 1.2])
    p = softmax(logits)
    scores = np.eye(3) - p  # row a: the gradient of log pi(a)
    np.testing.assert_allclose(fisher_matrix(logits), sum(p[a] * np.outer(scores[a], scores[a]) for a in range(3)))
    for function in (lambda z: kl(p, softmax(z)), lambda z: kl(softmax(z), p)):  # both directions, same Hessian
        np.testing.assert_allclose(fisher_matrix(logits), numeric_hessian(function, logits), atol=1e-6)
    table, weights = np.stack([logits, -logits]), np.array([0.3, 0.7])
    whole = fisher_matrix(table, weights)
    hessian = numeric_hessian(lambda z: weights @ kl(softmax(table), softmax(z.reshape(2, 3))), table.ravel())
    np.testing.assert_allclose(whole, hessian, atol=1e-6)
    np.testing.assert_allclose(whole @ np.repeat([1.0, 2.0], 3), 0, atol=1e-15)  # constants change nothing
    np.testing.assert_allclose(fisher_matrix(table), fisher_matrix(table, [0.5, 0.5]))


@pytest.mark.equation("eq-quadratic-kl")
def test_quadratic_kl_is_right_up_to_third_order():
    logits, step = np.array([0.5, -0.3, 1.2]), np.array([0.4, 0.1, -0.6])
    fisher = fisher_matrix(logits)
    errors = [
        abs(quadratic_kl(h * step, fisher.__matmul__) - kl(softmax(logits), softmax(logits + h * step)))
        for h in (0.2, 0.1)
    ]
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.1)
    far = softmax(logits + 3 * step)
    forward, backward = kl(softmax(logits), far), kl(far, softmax(logits))
    assert abs(forward - backward) > 1e-3  # equal Hessians, different values


@pytest.mark.equation("eq-fisher-vector-product")
@pytest.mark.parametrize(
    "make",
    [
        lambda: CategoricalPolicy(3, 4, hidden=(5,), seed=0, output_gain=1.0),
        lambda: GaussianPolicy(3, 2, hidden=(5,), seed=0, output_gain=1.0),
    ],
)
def test_product_by_double_backward_is_the_mean_of_scores_and_the_numeric_hessian(make):
    policy = make().double()
    observations = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = list(policy.parameters())
    old = policy(observations).detach()

    def mean_kl():
        return policy.kl_of(old, policy(observations)).mean()

    n = sum(p.numel() for p in parameters)
    columns = [fisher_vector_product(mean_kl, parameters, v) for v in torch.eye(n, dtype=torch.float64)]
    fisher = torch.stack(columns)
    theta = torch.nn.utils.parameters_to_vector(parameters).detach().clone()

    def at(vector):
        torch.nn.utils.vector_to_parameters(torch.as_tensor(vector), parameters)
        with torch.no_grad():
            return float(mean_kl())

    rng = np.random.default_rng(0)
    for direction in rng.normal(size=(3, n)):  # curvature along lines, by finite differences
        bent = (at(theta + 1e-4 * torch.tensor(direction)) + at(theta - 1e-4 * torch.tensor(direction))) / 1e-8
        assert direction @ fisher.numpy() @ direction == pytest.approx(bent, rel=1e-4)
    at(theta)
    if isinstance(policy, CategoricalPolicy):  # E over states and actions of score times score', counted out
        total = torch.zeros(n, n, dtype=torch.float64)
        for i in range(6):
            for a in range(4):
                log_prob = policy(observations)[i, a]
                score = torch.cat([g.reshape(-1) for g in torch.autograd.grad(log_prob, parameters)])
                total += old[i, a].exp() * torch.outer(score, score) / 6
        torch.testing.assert_close(fisher, total)
    else:  # the closed form: a mean counts 1 / variance, the logarithm of a standard deviation 2
        outputs, total = policy(observations), torch.zeros(n, n, dtype=torch.float64)  # (6, 4)
        weights = torch.cat([torch.exp(-2 * old[:, 2:]), torch.full((6, 2), 2.0)], 1)
        for i in range(6):
            for k in range(4):
                grads = torch.autograd.grad(outputs[i, k], parameters, retain_graph=True, materialize_grads=True)
                slope = torch.cat([g.reshape(-1) for g in grads])
                total += weights[i, k] * torch.outer(slope, slope) / 6
        torch.testing.assert_close(fisher, total)
    v = torch.tensor(rng.normal(size=n))
    torch.testing.assert_close(fisher_vector_product(mean_kl, parameters, v, damping=0.5), fisher @ v + 0.5 * v)


def test_product_for_a_function_of_the_parameters():
    logits = torch.tensor([0.5, -0.3, 1.2], dtype=torch.float64)
    log_p = torch.log_softmax(logits, 0)
    v = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    expected = torch.tensor(fisher_matrix(logits.numpy())) @ v
    product = fisher_vector_product(lambda z: (log_p.exp() * (log_p - torch.log_softmax(z, 0))).sum(), logits, v)
    torch.testing.assert_close(product, expected)
    parts = [logits[:1], logits[1:]]
    product = fisher_vector_product(
        lambda z: (log_p.exp() * (log_p - torch.log_softmax(torch.cat(z), 0))).sum(), parts, v
    )
    torch.testing.assert_close(product, expected)
    assert not logits.requires_grad


# ------------------------------------------------------------------------------------------------- the step


def system(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    return root @ root.T + np.eye(n), rng.normal(size=n)


@pytest.mark.equation("eq-conjugate-gradient")
@given(st.integers(0, 10_000), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_conjugate_gradient_against_a_direct_solve(seed, n):
    matrix, b = system(seed, n)
    np.testing.assert_allclose(
        conjugate_gradient(matrix.__matmul__, b, 10 * n, 1e-12), np.linalg.solve(matrix, b), rtol=1e-7, atol=1e-9
    )
    tensor = conjugate_gradient(torch.tensor(matrix).__matmul__, torch.tensor(b), 10 * n, 1e-12)
    np.testing.assert_allclose(tensor, np.linalg.solve(matrix, b), rtol=1e-7, atol=1e-9)


def test_conjugate_gradient_needs_one_product_per_eigenvalue():
    rng = np.random.default_rng(4)
    basis, _ = np.linalg.qr(rng.normal(size=(20, 20)))
    matrix, b = basis @ np.diag(np.repeat([1.0, 5.0, 30.0], [10, 6, 4])) @ basis.T, rng.normal(size=20)
    records = list(iterate_conjugate_gradient(matrix.__matmul__, b, 20, 1e-9))
    assert len(records) == 3
    for record in records:
        assert record.residual == pytest.approx(np.linalg.norm(b - matrix @ record.solution), abs=1e-8)
    # each iterate is the best of its Krylov space in the energy norm
    krylov = np.stack([b, matrix @ b], 1)
    best = krylov @ np.linalg.solve(krylov.T @ matrix @ krylov, krylov.T @ b)
    np.testing.assert_allclose(records[1].solution, best, rtol=1e-8)


def test_conjugate_gradient_on_singular_indefinite_and_zero_systems():
    fisher, p = fisher_matrix([0.2, -0.1, 0.7]), softmax(np.array([0.2, -0.1, 0.7]))
    b = p * (np.array([1.0, 0, 0]) - p[0])
    x = conjugate_gradient(fisher.__matmul__, b, 30, 1e-12)
    np.testing.assert_allclose(fisher @ x, b, atol=1e-12)  # singular, but b is in its range
    assert (conjugate_gradient(fisher.__matmul__, np.zeros(3), 5, 1e-10) == 0).all()
    with pytest.raises(ValueError, match="not positive definite"):
        conjugate_gradient(lambda v: -v, b, 5, 1e-10)
    with pytest.raises(ValueError, match="not positive definite"):
        conjugate_gradient(lambda v: v * math.nan, b, 5, 1e-10)


@pytest.mark.equation("eq-natural-step")
@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_natural_step_is_the_best_within_the_trust_region(seed, n):
    matrix, g = system(seed, n)
    delta = 0.01
    step = natural_gradient_step(g, matrix.__matmul__, delta)
    assert quadratic_kl(step, matrix.__matmul__) == pytest.approx(delta)
    # Lagrange: g = multiplier F step
    multiplier = math.sqrt(g @ np.linalg.solve(matrix, g) / (2 * delta))
    np.testing.assert_allclose(multiplier * matrix @ step, g, rtol=1e-6, atol=1e-8)
    rng = np.random.default_rng(seed)
    others = rng.normal(size=(200, n))
    others *= np.sqrt(2 * delta / np.einsum("ij,jk,ik->i", others, matrix, others))[:, None]  # all on the boundary
    assert (others @ g <= g @ step + 1e-9).all()


def test_a_matvec_of_another_length_is_named():
    for like in (np.ones(3), torch.ones(3)):
        with pytest.raises(ValueError, match=r"matvec returns shape \(2,\); expected \(3,\), like b"):
            conjugate_gradient(lambda v: v[:2], like)


def test_natural_step_does_not_depend_on_the_coordinates():
    matrix, g = system(5, 4)
    change = np.random.default_rng(5).normal(size=(4, 4))  # theta = change @ other coordinates
    step = natural_gradient_step(g, matrix.__matmul__, 0.01)
    other = natural_gradient_step(change.T @ g, (change.T @ matrix @ change).__matmul__, 0.01)
    np.testing.assert_allclose(change @ other, step, rtol=1e-5)


@pytest.mark.equation("eq-line-search")
def test_line_search_takes_the_first_step_that_gains_within_the_region():
    logits, reward, delta = np.array([0.0, 1.5]), np.array([1.0, 0.0]), 0.1
    p = softmax(logits)
    fisher, g = fisher_matrix(logits), p * (reward - p @ reward)

    def evaluate(step):
        q = softmax(logits + step)
        return float((q - p) @ reward), float(kl(p, q))

    step = natural_gradient_step(g, fisher.__matmul__, delta)
    assert evaluate(step)[1] > delta  # the model holds the region, the policy does not
    found = line_search(evaluate, step, delta)
    by_hand = next(j for j in range(10) if evaluate(0.8**j * step)[1] <= delta)
    assert found.accepted and found.backtracks == by_hand > 0 and found.kl <= delta
    np.testing.assert_allclose(found.step, 0.8**by_hand * step)
    assert (found.gain, found.kl) == pytest.approx(evaluate(found.step))


def test_line_search_that_finds_nothing_stays():
    for evaluate in (lambda s: (-1.0, 0.0), lambda s: (1.0, 1.0), lambda s: (math.nan, 0.0), lambda s: (1.0, math.nan)):
        found = line_search(evaluate, np.ones(2), 0.01, factor=0.5, tries=4)
        assert not found.accepted and (found.step == 0).all() and found.backtracks == 4
        assert (found.gain, found.kl) == (0, 0)
    at_zero = line_search(lambda s: (0.0, 0.0), np.ones(2), 0.01)
    assert not at_zero.accepted  # no gain is not enough


# ------------------------------------------------------------------------------------------------- training


class OneStep(gymnasium.Env):
    """One step, reward 1 for the right action: always action 1, or the one the observation names."""

    def __init__(self, identity=False, broken=0):
        self.observation_space, self.action_space = Box(0, 1, (2,)), Discrete(2)
        self.identity, self.broken = identity, broken

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(2)) if self.identity else 1
        return np.eye(2, dtype=np.float32)[self.right if self.identity else 0], {}

    def step(self, action):
        self.broken -= 1  # at 0 the reward breaks
        reward = math.nan if self.broken == 0 else float(action == self.right)
        return np.zeros(2, dtype=np.float32), reward, True, False, {}


class Target(gymnasium.Env):
    """One step with a real number: the reward is minus the squared distance to 0.5."""

    observation_space, action_space = Box(0, 1, (1,)), Box(-2, 2, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        return np.zeros(1, dtype=np.float32), -float((action[0] - 0.5) ** 2), True, False, {}


SMALL = TRPOConfig(total_steps=256 * 8, copies=8, steps=32, hidden=(16,), value_batch_size=100, value_epochs=2)


@pytest.mark.parametrize("identity", [False, True])
def test_solves_one_step_environments(identity):
    result = train_trpo(lambda: OneStep(identity), replace(SMALL, total_steps=256 * 15), seed=0)
    observations = np.eye(2, dtype=np.float32) if identity else np.array([[1, 0]], dtype=np.float32)
    assert result.policy.act(observations).tolist() == ([0, 1] if identity else [1])
    assert result.history["episode_return"][-1] > 0.9


def test_solves_a_one_step_environment_with_real_actions():
    result = train_trpo(Target, replace(SMALL, total_steps=256 * 20, delta=0.1), seed=0)
    assert isinstance(result.policy, GaussianPolicy)
    assert result.policy.act(np.zeros((1, 1), dtype=np.float32))[0, 0] == pytest.approx(0.5, abs=0.15)
    assert result.history["episode_return"][-1] > result.history["episode_return"][0]


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_true_kl_of_every_update_is_within_delta(env, monkeypatch):
    seen, radii = [], []

    def checked(policy, observations, actions, advantage, config):
        before = policy(observations).detach().double()
        metrics = trpo_step(policy, observations, actions, advantage, config)
        after = policy(observations).detach().double()
        if isinstance(policy, CategoricalPolicy):
            exact = (before.exp() * (before - after)).sum(-1).mean()
        else:
            normals = [torch.distributions.Normal(x[:, :1], x[:, 1:].exp()) for x in (before, after)]
            exact = torch.distributions.kl_divergence(*normals).mean()
        seen.append(float(exact))
        radii.append(config.delta)
        assert metrics["kl"] == pytest.approx(float(exact), abs=1e-6)
        assert metrics["kl"] <= config.delta <= 0.02
        return metrics

    monkeypatch.setattr(trpo, "trpo_step", checked)
    config = replace(SMALL, damping=1e-3, delta=0.02, delta_end=0.01)
    updates = list(iterate_trpo(env, config, seed=1))
    np.testing.assert_allclose(radii, 0.02 - 0.01 * np.arange(8) / 8)  # falls toward delta_end
    assert len(seen) == len(updates) == 8 and max(seen) <= 0.02 + 1e-7 and max(seen) > 0.005
    assert all(u.metrics["gain"] > 0 for u in updates if u.metrics["accepted"])
    assert updates[-1].env_steps == config.total_steps


def test_no_accepted_step_leaves_the_policy_as_it_was():
    policy = CategoricalPolicy(2, 2, hidden=(4,), seed=0)
    before = [p.detach().clone() for p in policy.parameters()]
    observations, actions = torch.randn(8, 2), torch.zeros(8, dtype=torch.long)
    few = replace(SMALL, line_search_tries=3)
    metrics = trpo_step(policy, observations, actions, torch.zeros(8), few)  # nothing to gain
    assert metrics["accepted"] == 0 and metrics["kl"] == 0 and metrics["backtracks"] == 3
    assert all(torch.equal(p, q) for p, q in zip(policy.parameters(), before))
    advantage = torch.arange(8.0) - 3.0
    observations = torch.arange(16.0).reshape(8, 2) / 16
    metrics = trpo_step(
        policy, observations, actions, advantage, replace(SMALL, line_search_tries=1, delta=1e-12, delta_end=1e-12)
    )
    assert all(torch.equal(p, q) for p, q in zip(policy.parameters(), before)) or metrics["accepted"]


def test_the_gain_is_over_the_old_policy_whatever_the_mean_of_the_advantages():
    policy, rng = CategoricalPolicy(2, 3, hidden=(4,), seed=0), torch.Generator().manual_seed(1)
    observations, actions = torch.randn(64, 2, generator=rng), torch.randint(3, (64,), generator=rng)
    advantages = torch.randn(64, generator=rng) - 5.0  # each action looks bad: without that mean no step would gain
    old = policy.log_prob_of(policy(observations), actions).detach()
    metrics = trpo_step(policy, observations, actions, advantages, SMALL)
    ratio = (policy.log_prob_of(policy(observations), actions) - old).exp()
    assert metrics["accepted"] == 1
    gain = ((ratio * advantages).mean() - advantages.mean()).item()
    assert metrics["gain"] == pytest.approx(gain, rel=1e-3)


def test_values_are_fitted_in_units_of_their_scale():
    config = replace(SMALL, value_epochs=3, value_batch_size=4)
    observations, targets = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), torch.linspace(5, 60, 10)

    def fit(config):
        value = ValueNetwork(4, hidden=(8,), seed=0, scale=20.0)
        with torch.no_grad():
            errors = value(observations) - targets
        optimizer = torch.optim.Adam(value.parameters(), 7e-3)
        loss = fit_values(value, optimizer, observations, targets, config, torch.Generator().manual_seed(0))
        return loss, float((errors**2).mean()) / 2, [int(entry["step"]) for entry in optimizer.state.values()]

    loss, first, steps = fit(config)
    assert 0 < loss < first  # a mean over the passes, during which the error falls
    assert set(steps) == {3 * 3}  # 4 + 4 + 2 samples, three times
    loss, first, _ = fit(replace(config, value_epochs=1, value_batch_size=10))
    assert loss == pytest.approx(first, rel=1e-5)


def test_a_gradient_that_is_no_number_leaves_the_policy_as_it_was():
    policy = CategoricalPolicy(2, 2, hidden=(4,), seed=0)
    before = [p.detach().clone() for p in policy.parameters()]
    with pytest.raises(TrainingError, match="gradient of the surrogate"):
        trpo_step(policy, torch.zeros(3, 2), torch.zeros(3, dtype=torch.long), torch.full((3,), math.nan), SMALL)
    assert all(torch.equal(p, q) for p, q in zip(policy.parameters(), before))


@pytest.mark.slow
def test_defaults_solve_cartpole():
    from rlbook_lib.training import evaluate_policy

    for seed in range(3):
        result = train_trpo("CartPole-v1", seed=seed)
        assert evaluate_policy(result.policy, "CartPole-v1", episodes=100, seed=1000).mean() >= 475


# -------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: fisher_matrix([0.0, 0], [1.0]), ValueError, "weights has shape .* expected None beside logits"),
        (lambda: fisher_matrix([[0.0, 0]], [-1.0]), ValueError, "weights holds -1; expected"),
        (
            lambda: fisher_vector_product(lambda z: z.sum(), torch.zeros(3), torch.zeros(2)),
            ValueError,
            "2 entries; expected 3",
        ),
        (lambda: fisher_vector_product(lambda z: z.sum(), torch.arange(3), torch.zeros(3)), TypeError, "floating"),
        (
            lambda: fisher_vector_product(lambda z: z, torch.zeros(3), torch.zeros(3)),
            ValueError,
            r"returned shape \(3,\); expected one",
        ),
        (lambda: fisher_vector_product(lambda z: z.sum(), [], torch.zeros(1)), TypeError, "parameters"),
        (lambda: quadratic_kl([1.0, 2.0], np.eye(2)), TypeError, "matvec is array.*; expected a function"),
        (lambda: conjugate_gradient(lambda v: v, [[1.0]], 5, 1e-9), ValueError, "b has shape"),
        (lambda: TRPOConfig(delta=0.1, delta_end=0.2), ValueError, "delta_end is 0.2; expected at most delta, 0.1"),
    ],
)
def test_bad_arguments_are_named(call, error, match):
    with pytest.raises(error, match=re.compile(match, re.DOTALL)):
        call()


# ---------------------------------------------------------------------------------- one update, number by number


@pytest.mark.parametrize("damping, every, backtracks", [(0.1, 3, 0), (0.05, 60, 1)])
def test_an_update_is_the_one_of_a_plain_script(damping, every, backtracks):
    """One linear layer has 10 weights: the Fisher matrix of its policy is written out, and the system solved."""
    sizes = {"total_steps": 128, "copies": 4, "steps": 32, "hidden": (), "value_epochs": 2, "value_batch_size": 50}
    search = {"damping": damping, "fisher_every": every, "cg_iterations": 30, "line_search_factor": 0.7}
    config = TRPOConfig(**sizes, **search, gamma=0.9, lam=0.8)
    record = next(iterate_trpo(short_poles, config, seed=6))
    env_seed, action_seed, policy_seed, value_seed, order_seed = split_seed(6, 5)
    seeds = env_seed, policy_seed, value_seed, action_seed
    with open_actors(short_poles, config, seeds, copies=4, steps=32) as actors:
        w, rollout = weights_of(actors.networks.state_dict()), actors.collector.collect()
    before = weights_of(w)
    x, a = torch.tensor(rollout.observations).reshape(128, -1), torch.tensor(rollout.actions).reshape(-1, 1)
    ends = torch.tensor(rollout.next_observations).reshape(128, -1)
    v, next_v = (10 * mlp(w, "value.network", s)[:, 0].detach() for s in (x, ends))
    A = advantages_by_hand(rollout, v.reshape(32, 4), next_v.reshape(32, 4), 0.9, 0.8).reshape(-1)
    target, A = (A + v).float(), (A - A.mean()) / (A.std(correction=0) + 1e-8)

    names = ["policy.network.0.weight", "policy.network.0.bias"]  # theta: these two in a row
    theta = torch.cat([w[name].detach().reshape(-1) for name in names]).double()
    old = log_pi(w, x).detach().double()

    def pi(theta):
        z = x.double() @ theta[:8].reshape(2, 4).T + theta[8:]
        return z - z.logsumexp(1, keepdim=True)

    def surrogate(theta):
        return ((pi(theta) - old).gather(1, a).exp()[:, 0] * A).mean()

    def kl(theta, rows=slice(None)):
        return (old[rows].exp() * (old[rows] - pi(theta)[rows])).sum(1).mean()

    g = torch.autograd.functional.jacobian(surrogate, theta)
    F = torch.autograd.functional.hessian(
        lambda theta: kl(theta, slice(None, None, every)), theta
    ) + damping * torch.eye(10)
    step = torch.linalg.solve(F, g)
    step *= (2 * config.delta / (step @ F @ step)) ** 0.5
    j = next(
        j
        for j in range(10)
        if surrogate(theta + 0.7**j * step) > A.mean() and kl(theta + 0.7**j * step) <= config.delta
    )
    new = (theta + 0.7**j * step).float()
    w[names[0]].data, w[names[1]].data = new[:8].reshape(2, 4), new[8:]

    value = {name: weight for name, weight in w.items() if name.startswith("value")}
    adam, order = PlainAdam(value, 7e-3, 1e-5), torch.Generator().manual_seed(order_seed)
    for _ in range(2):
        for rows in torch.randperm(128, generator=order).split(50):
            adam.step(((mlp(w, "value.network", x[rows])[:, 0] - target[rows] / 10) ** 2).mean())
    said = j, float(surrogate(new.double()) - A.mean()), float(kl(new.double()))
    assert [record.metrics[name] for name in ("backtracks", "gain", "kl")] == pytest.approx(said, rel=1e-3)
    assert j == backtracks and rollout.terminated.any() and rollout.truncated.any()
    assert_same_weights(w, record.state()["networks"], before, rtol=1e-5, atol=1e-4)
