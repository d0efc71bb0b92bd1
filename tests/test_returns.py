"""Tests of ``rlbook_lib.returns``: each formula against its definition, written out as sums."""

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib import returns
from rlbook_lib.returns import (
    BLOCK,
    discounted_return,
    discounted_returns,
    effective_horizon,
    gae,
    gae_mixture,
    gae_recursion,
    gae_weights,
    k_step_advantages,
    lambda_returns,
    mixture_weights,
    n_step_returns,
    normalize_advantages,
    return_bound,
    td_residuals,
    value_targets,
)

HERE = Path(__file__).resolve().parent
REFERENCE = json.loads((HERE / "reference_values.json").read_text())


# ------------------------------------------------------------------ the definitions, as sums over one column


def path_length(terminated, truncated, t):
    """How many steps, from step t on, belong to the same episode and lie in the buffer."""
    end = t
    while end < len(terminated) - 1 and not terminated[end] and not truncated[end]:
        end += 1
    return end - t + 1


def n_step_by_definition(rewards, next_values, terminated, truncated, gamma, n, t):
    steps = min(n, path_length(terminated, truncated, t))
    total = sum(gamma**k * rewards[t + k] for k in range(steps))
    last = t + steps - 1
    return total if terminated[last] else total + gamma**steps * next_values[last]


def lambda_by_definition(rewards, next_values, terminated, truncated, gamma, lam, t):
    length = path_length(terminated, truncated, t)
    n_step = [
        n_step_by_definition(rewards, next_values, terminated, truncated, gamma, n, t) for n in range(1, length + 1)
    ]
    weights = [(1 - lam) * lam ** (n - 1) for n in range(1, length)] + [lam ** (length - 1)]
    return sum(weight * value for weight, value in zip(weights, n_step))


def gae_by_definition(rewards, values, next_values, terminated, truncated, gamma, lam, t):
    total = 0.0
    for k in range(path_length(terminated, truncated, t)):
        following = 0.0 if terminated[t + k] else next_values[t + k]
        total += (gamma * lam) ** k * (rewards[t + k] + gamma * following - values[t + k])
    return total


def every_step(definition, columns, *parameters):
    """The definition at each step of each column; ``columns`` are arrays (T, N)."""
    steps, copies = columns[0].shape
    return np.array(
        [
            [definition(*(array[:, i].tolist() for array in columns), *parameters, t) for i in range(copies)]
            for t in range(steps)
        ]
    )


def plain_gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    """The loop that everybody writes: the reference of the blocked scan."""
    advantages = np.zeros_like(rewards)
    following = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        delta = rewards[t] + gamma * np.where(terminated[t], 0, next_values[t]) - values[t]
        following = delta + gamma * lam * np.where(terminated[t] | truncated[t], 0, following)
        advantages[t] = following
    return advantages, advantages + values


def random_steps(steps, copies, seed, ends=0.2):
    """Rewards, values, next values, terminated, truncated, each (T, N); some steps carry both flags."""
    rng = np.random.default_rng(seed)
    numbers = [rng.normal(size=(steps, copies)) for _ in range(3)]
    return *numbers, rng.random((steps, copies)) < ends, rng.random((steps, copies)) < ends


SETTINGS = settings(max_examples=60, deadline=None)
BUFFERS = st.builds(
    random_steps, st.integers(1, 9), st.integers(1, 3), st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.6])
)
FRACTIONS = st.one_of(st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.floats(0.0, 1.0))


# ------------------------------------------------------------------ returns of one episode


@pytest.mark.equation("eq-return")
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=30), st.integers(0, 8))
@SETTINGS
def test_discounted_return_is_the_exact_sum(rewards, eighths):
    gamma = Fraction(eighths, 8)
    exact = sum(gamma**k * reward for k, reward in enumerate(rewards))
    assert discounted_return(rewards, float(gamma)) == pytest.approx(float(exact), rel=1e-12, abs=1e-12)


@pytest.mark.equation("eq-return")
def test_discounted_return_reproduces_the_reference():
    rewards = REFERENCE["gae"]["rewards"]
    result = discounted_return(rewards, 0.9)
    assert isinstance(result, float)
    assert result == pytest.approx(REFERENCE["n_step"]["monte_carlo_returns"][0], abs=1e-10)
    columns = np.stack([rewards, np.ones(5)], axis=1)  # (T, 2)
    assert np.allclose(discounted_return(columns, 0.5), [discounted_return(rewards, 0.5), 1.9375])


@pytest.mark.equation("eq-return-recursion")
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=30), st.integers(0, 8))
@SETTINGS
def test_the_recursion_gives_the_sum_from_every_step(rewards, eighths):
    gamma = Fraction(eighths, 8)
    steps = range(len(rewards))
    exact = [float(sum(gamma ** (k - t) * rewards[k] for k in steps if k >= t)) for t in steps]
    assert np.allclose(discounted_returns(rewards, float(gamma)), exact, rtol=1e-12, atol=1e-12)


@pytest.mark.equation("eq-return-recursion")
def test_discounted_returns_reproduce_the_reference():
    returns = discounted_returns(REFERENCE["gae"]["rewards"], 0.9)
    assert np.allclose(returns, REFERENCE["n_step"]["monte_carlo_returns"], atol=1e-10)


@pytest.mark.equation("eq-return-recursion")
@pytest.mark.parametrize("steps", [127, 128, 129, 1000])
def test_discounted_returns_equal_a_recursive_filter(steps):
    rewards = np.random.default_rng(steps).normal(size=(steps, 3))
    filtered = scipy.signal.lfilter([1.0], [1.0, -0.97], rewards[::-1], axis=0)[::-1]
    assert np.allclose(discounted_returns(rewards, 0.97), filtered, atol=1e-10)
    assert np.allclose(discounted_returns(rewards[:, 1], 0.97), filtered[:, 1], atol=1e-10)


def test_a_recursive_filter_leaks_over_an_episode_end():
    """Why gae is not one call of scipy.signal.lfilter."""
    rewards, ends = np.ones(6), np.array([0, 0, 1, 0, 0, 1])
    filtered = scipy.signal.lfilter([1.0], [1.0, -0.9], rewards[::-1])[::-1]
    right = gae(rewards, np.zeros(6), np.zeros(6), ends, np.zeros(6), 0.9, 1.0)[0]
    assert np.allclose(right, [2.71, 1.9, 1.0, 2.71, 1.9, 1.0])
    assert np.allclose(filtered[3:], right[3:]) and filtered[0] > right[0] + 1.9


@pytest.mark.equation("eq-return-bound")
@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=60), st.floats(0.0, 0.99))
@SETTINGS
def test_no_return_exceeds_the_bound(rewards, gamma):
    total = sum(gamma**k * reward for k, reward in enumerate(rewards))
    assert abs(total) <= return_bound(3.0, gamma) + 1e-9


@pytest.mark.equation("eq-return-bound")
@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.9, 0.99])
def test_the_bound_is_reached_by_constant_rewards(gamma):
    long = sum(gamma**k * 2.5 for k in range(5000))
    assert return_bound(2.5, gamma) == pytest.approx(long, rel=1e-9)


def test_without_discount_there_is_no_bound():
    assert return_bound(1.0, 1.0) == math.inf
    assert return_bound(0.0, 1.0) == 0.0


@pytest.mark.equation("eq-effective-horizon")
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
def test_effective_horizon_is_a_sum_of_weights_and_a_mean_length(gamma):
    weights = sum(gamma**k for k in range(5000))
    mean_length = sum(k * gamma ** (k - 1) * (1 - gamma) for k in range(1, 5000))
    assert effective_horizon(gamma) == pytest.approx(weights, rel=1e-9)
    assert effective_horizon(gamma) == pytest.approx(mean_length, rel=1e-9)


def test_effective_horizon_without_discount_is_infinite():
    assert effective_horizon(1.0) == math.inf


# ------------------------------------------------------------------ bootstrapped returns


@pytest.mark.equation("eq-n-step-return")
@given(BUFFERS, FRACTIONS, st.integers(1, 12))
@SETTINGS
def test_n_step_returns_are_their_definition(buffer, gamma, n):
    rewards, _, *rest = buffer
    expected = every_step(n_step_by_definition, (rewards, *rest), gamma, n)
    assert np.allclose(n_step_returns(rewards, *rest, gamma, n), expected, atol=1e-10)


@pytest.mark.equation("eq-n-step-return")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 50])
def test_n_step_returns_reproduce_the_reference(n):
    rewards, values = (np.array(REFERENCE["gae"][name]) for name in ("rewards", "values"))
    next_values, no, last = np.append(values[1:], 0.7), np.zeros(5), np.eye(5)[4]
    tables, row = REFERENCE["n_step"], str(min(n, 5))
    returns = n_step_returns(rewards, next_values, last, no, 0.9, n)
    assert np.allclose(returns, tables["terminal"][row], atol=1e-10)
    for truncated in (last, no):  # the end of the buffer is a truncation
        returns = n_step_returns(rewards, next_values, no, truncated, 0.9, n)
        assert np.allclose(returns, tables["truncation_bootstrap_0.7"][row], atol=1e-10)


@pytest.mark.equation("eq-lambda-return")
@given(BUFFERS, FRACTIONS, FRACTIONS)
@SETTINGS
def test_lambda_returns_are_the_mixture_of_n_step_returns(buffer, gamma, lam):
    rewards, _, *rest = buffer
    expected = every_step(lambda_by_definition, (rewards, *rest), gamma, lam)
    assert np.allclose(lambda_returns(rewards, *rest, gamma, lam), expected, atol=1e-10)


@pytest.mark.equation("eq-lambda-return")
@pytest.mark.parametrize("lam", ["0.0", "0.5", "0.95", "1.0"])
@pytest.mark.parametrize("case", ["terminal", "truncation_bootstrap_0.7"])
def test_lambda_returns_reproduce_the_reference(case, lam):
    rewards, values = (np.array(REFERENCE["gae"][name]) for name in ("rewards", "values"))
    terminated = np.eye(5)[4] * (case == "terminal")
    returns = lambda_returns(rewards, np.append(values[1:], 0.7), terminated, np.zeros(5), 0.9, float(lam))
    assert np.allclose(returns, REFERENCE["gae"]["cases"][case][lam]["value_targets"], atol=1e-10)


def test_lambda_zero_is_one_step_and_lambda_one_is_the_whole_episode():
    rewards, _, next_values, terminated, truncated = random_steps(40, 2, seed=3)
    steps = (rewards, next_values, terminated, truncated)
    assert np.allclose(lambda_returns(*steps, 0.9, 0.0), n_step_returns(*steps, 0.9, 1))
    assert np.allclose(lambda_returns(*steps, 0.9, 1.0), n_step_returns(*steps, 0.9, 40))
    terminated[:], truncated[:], terminated[-1] = False, False, True
    assert np.allclose(lambda_returns(*steps, 0.9, 1.0), discounted_returns(rewards, 0.9))


# ------------------------------------------------------------------ generalized advantages


@pytest.mark.equation("eq-gae")
@given(BUFFERS, FRACTIONS, FRACTIONS)
@SETTINGS
def test_gae_is_the_sum_of_discounted_errors(buffer, gamma, lam):
    advantages, targets = gae(*buffer, gamma, lam)
    assert np.allclose(advantages, every_step(gae_by_definition, buffer, gamma, lam), atol=1e-10)
    assert np.allclose(targets, advantages + buffer[1], atol=1e-12)


@pytest.mark.equation("eq-gae")
@pytest.mark.parametrize("lam", ["0.0", "0.5", "0.95", "1.0"])
@pytest.mark.parametrize("case", ["terminal", "truncation_bootstrap_0.7"])
def test_gae_reproduces_the_reference(case, lam):
    reference = REFERENCE["gae"]
    rewards, values = np.array(reference["rewards"]), np.array(reference["values"])
    next_values, terminated = np.append(values[1:], 0.7), np.eye(5)[4] * (case == "terminal")
    advantages, targets = gae(rewards, values, next_values, terminated, np.zeros(5), 0.9, float(lam))
    assert np.allclose(advantages, reference["cases"][case][lam]["adv"], atol=1e-10)
    assert np.allclose(targets, reference["cases"][case][lam]["value_targets"], atol=1e-10)


@pytest.mark.equation("eq-gae")
@pytest.mark.parametrize("lam", ["0.0", "0.5", "0.95", "1.0"])
def test_gae_reproduces_the_reference_with_an_episode_end_inside(lam):
    reference = REFERENCE["gae"]
    rewards, values = np.array(reference["rewards"]), np.array(reference["values"])
    done, no = np.array(reference["done_mid_buffer"]["done"]), np.zeros(5)
    advantages, _ = gae(rewards, values, np.append(values[1:], 0.7), done, no, 0.9, float(lam))
    assert np.allclose(advantages, reference["done_mid_buffer"]["adv"][lam], atol=1e-10)
    next_values = np.append(values[1:], 0.7)
    next_values[2] = 2.0  # the value of the real last state, not of the next episode's first
    advantages, _ = gae(rewards, values, next_values, no, done, 0.9, float(lam))
    assert np.allclose(advantages, reference["truncated_mid_buffer"]["adv"][lam], atol=1e-10)


@pytest.mark.parametrize("steps", [4 * BLOCK - 1, 4 * BLOCK, 4 * BLOCK + 1, 5 * BLOCK - 1, 300])
@pytest.mark.parametrize("ends", [0.0, 0.01, 0.3])
def test_the_blocked_scan_equals_the_plain_loop(steps, ends):
    buffer = random_steps(steps, 3, seed=steps, ends=ends)
    expected, targets = plain_gae(*buffer, 0.99, 0.95)
    assert np.allclose(gae(*buffer, 0.99, 0.95), [expected, targets], atol=1e-11)
    column = gae(*(array[:, 1] for array in buffer), 0.99, 0.95)[0]
    assert column.shape == (steps,) and np.allclose(column, expected[:, 1], atol=1e-11)


@pytest.mark.parametrize("ends", [0.0, 0.01, 0.3])
def test_long_lambda_returns_obey_the_recursion(ends):
    rewards, _, next_values, terminated, truncated = random_steps(300, 3, seed=9, ends=ends)
    returns = lambda_returns(rewards, next_values, terminated, truncated, 0.99, 0.95)
    bootstrap = 0.99 * np.where(terminated, 0.0, next_values)
    following = 0.05 * bootstrap[:-1] + 0.95 * 0.99 * returns[1:]
    expected = rewards + bootstrap  # where the episode or the buffer ends
    expected[:-1] = np.where((terminated | truncated)[:-1], expected[:-1], rewards[:-1] + following)
    assert np.allclose(returns, expected, atol=1e-11)


def test_float32_stays_float32_and_keeps_its_precision():
    buffer = random_steps(2048, 64, seed=0, ends=0.005)
    expected = plain_gae(*buffer, 0.99, 0.95)
    rewards, values, next_values = (array.astype(np.float32) for array in buffer[:3])
    advantages, targets = gae(rewards, values, next_values, *buffer[3:], 0.99, 0.95)
    assert advantages.dtype == targets.dtype == np.float32
    assert np.abs(advantages - expected[0]).max() < 3e-5
    assert discounted_returns(rewards, np.float64(0.9)).dtype == np.float32
    assert n_step_returns(rewards, next_values, *buffer[3:], 0.9, 3).dtype == np.float32
    assert lambda_returns(rewards, next_values, *buffer[3:], 0.9, 0.5).dtype == np.float32
    assert discounted_returns([1, 2], 0.5).dtype == np.float64


# ------------------------------------------------------------------ the two commonest bugs

FUNCTIONS = {
    "n_step_returns": lambda buffer: n_step_returns(buffer[0], *buffer[2:], 0.9, 4),
    "lambda_returns": lambda buffer: lambda_returns(buffer[0], *buffer[2:], 0.9, 0.8),
    "gae": lambda buffer: gae(*buffer, 0.9, 0.8)[0],
    "k_step_advantages": lambda buffer: k_step_advantages(*buffer, 0.9, 3),
    "gae_mixture": lambda buffer: gae_mixture(*buffer, 0.9, 0.8),
    "gae_recursion": lambda buffer: gae_recursion(*buffer, 0.9, 0.8),
}
all_functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@all_functions
@pytest.mark.parametrize("poison", [1e6, np.nan, np.inf])
def test_a_termination_ignores_the_next_value(function, poison):
    buffer = random_steps(10, 1, seed=1, ends=0.0)
    buffer[3][4] = True
    before = function(buffer)
    buffer[2][4] = poison
    assert np.array_equal(function(buffer), before)


@all_functions
def test_a_truncation_uses_the_next_value_and_nothing_after_it(function):
    buffer = random_steps(10, 1, seed=2, ends=0.0)
    buffer[4][4] = True
    before = function(buffer)
    for array in buffer[:3]:
        array[5:] += 100.0  # the next episode
    assert np.array_equal(function(buffer)[:5], before[:5])
    buffer[2][4] += 1.0
    assert np.allclose(function(buffer)[4] - before[4], 0.9)


@all_functions
def test_both_flags_mean_terminated(function):
    buffer = random_steps(10, 2, seed=3, ends=0.0)
    buffer[3][4] = True
    before = function(buffer)
    buffer[4][4] = True
    assert np.array_equal(function(buffer), before)


@all_functions
def test_the_end_of_the_buffer_is_a_truncation(function):
    buffer = random_steps(10, 2, seed=4)
    buffer[3][-1] = buffer[4][-1] = False
    before = function(buffer)
    buffer[4][-1] = True
    assert np.array_equal(function(buffer), before)


@all_functions
@pytest.mark.parametrize("steps", [10, 200])
def test_inputs_are_left_as_they_were(function, steps):
    buffer = random_steps(steps, 2, seed=5)
    copies = [array.copy() for array in buffer]
    function(buffer)
    assert all(np.array_equal(array, copy) for array, copy in zip(buffer, copies))
    rewards = buffer[0]
    discounted_returns(rewards, 0.9)
    assert np.array_equal(rewards, copies[0])


# ------------------------------------------------------------------ tensors


@all_functions
@pytest.mark.parametrize("steps", [10, 200])
def test_tensors_give_what_arrays_give(function, steps):
    buffer = random_steps(steps, 2, seed=6)
    tensors = [torch.tensor(array) for array in buffer]
    result = function(tensors)
    assert isinstance(result, torch.Tensor)
    assert np.allclose(result.numpy(), function(buffer), atol=1e-12)
    mixed = function([*tensors[:3], *(array.astype(np.float32) for array in buffer[3:])])
    assert torch.equal(mixed, result)
    assert all(np.array_equal(tensor.numpy(), array) for tensor, array in zip(tensors, buffer))


@all_functions
def test_gradients_equal_finite_differences(function):
    buffer = random_steps(7, 2, seed=7)
    buffer[2][buffer[3]] = np.nan  # no gradient may come out of an unused value
    numbers = [torch.tensor(array, requires_grad=True) for array in buffer[:3]]
    weights = torch.tensor(np.random.default_rng(8).normal(size=(7, 2)))
    (function([*numbers, *map(torch.tensor, buffer[3:])]) * weights).sum().backward()
    step = 1e-6
    for array, tensor in zip(buffer[:3], numbers):
        got = np.zeros_like(array) if tensor.grad is None else tensor.grad.numpy()
        for index in np.ndindex(array.shape):
            center = array[index]
            array[index] = center + step
            above = function(buffer)
            array[index] = center - step
            slope = ((above - function(buffer)) * weights.numpy()).sum() / (2 * step)
            array[index] = center
            assert got[index] == pytest.approx(slope, abs=1e-6)


def test_gradients_flow_through_long_returns():
    rewards = torch.ones(200, requires_grad=True)
    discounted_returns(rewards, 0.9)[0].backward()
    assert torch.allclose(rewards.grad, 0.9 ** torch.arange(200.0))
    rewards.grad = None
    discounted_return(rewards, 0.9).backward()
    assert torch.allclose(rewards.grad, 0.9 ** torch.arange(200.0))


def test_importing_the_module_does_not_import_torch():
    code = "import sys, rlbook_lib.returns, rlbook_lib.evaluation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=HERE.parent).returncode == 0


# ------------------------------------------------------------------ bad input

BY_STEP = [f for f in vars(returns).values() if "Steps" in getattr(f, "__annotations__", {}).values()]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("function", BY_STEP)
def test_what_a_step_cannot_be_is_named(function, kind):
    """Time first: (T,) or (T, N), the same for all; numbers that are finite, flags that are 0 or 1."""
    numbers = {"gamma": 0.9, "lam": 0.9, "n": 2, "k": 2}
    arrays = {p: a for p, a in function.__annotations__.items() if a in ("Steps", "NextValues", "Ends")}
    others = {p: numbers[p] for p in function.__annotations__ if p in numbers}
    for name, annotation in arrays.items():
        for wrong in (np.zeros((2, 2, 2)), np.zeros(()), np.full((2, 2), 0.5 if annotation == "Ends" else np.nan)):
            arguments = {p: kind(wrong if p == name else np.zeros((2, 2))) for p in arrays}
            with pytest.raises(ValueError, match=rf"^{name} (has shape|holds)"):
                function(**arguments, **others)


# ------------------------------------------------------------------ generalized advantages, step by step


def consistent_steps(steps, copies, seed, ends=0.2):
    """As ``random_steps``, but the next value of a step is the value of the following one inside an episode."""
    buffer = random_steps(steps, copies, seed, ends)
    goes_on = ~(buffer[3] | buffer[4])[:-1]
    buffer[2][:-1][goes_on] = buffer[1][1:][goes_on]
    return buffer


CONSISTENT = st.builds(
    consistent_steps, st.integers(1, 9), st.integers(1, 3), st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.6])
)


@pytest.mark.equation("eq-td-residual")
@pytest.mark.parametrize("case, bootstrap", [("delta_terminal", None), ("delta_truncated", 0.7)])
def test_td_residuals_reproduce_the_reference(case, bootstrap):
    reference = REFERENCE["gae"]
    values = np.array(reference["values"])
    next_values = np.append(values[1:], np.nan if bootstrap is None else bootstrap)
    terminated = np.eye(5)[4] * (bootstrap is None)
    errors = td_residuals(reference["rewards"], values, next_values, terminated, 0.9)
    assert np.allclose(errors, reference[case], atol=1e-10)


@pytest.mark.equation("eq-td-residual")
@given(BUFFERS, FRACTIONS)
@SETTINGS
def test_a_td_residual_is_the_one_step_return_minus_the_value(buffer, gamma):
    rewards, values, next_values, terminated, truncated = buffer
    expected = n_step_returns(rewards, next_values, terminated, truncated, gamma, 1) - values
    assert np.allclose(td_residuals(rewards, values, next_values, terminated, gamma), expected, atol=1e-12)


@pytest.mark.equation("eq-k-step-advantage")
@given(CONSISTENT, FRACTIONS, st.integers(1, 12))
@SETTINGS
def test_the_values_in_between_cancel(buffer, gamma, k):
    rewards, values, *rest = buffer
    expected = every_step(n_step_by_definition, (rewards, *rest), gamma, k) - values
    assert np.allclose(k_step_advantages(*buffer, gamma, k), expected, atol=1e-10)


@pytest.mark.equation("eq-k-step-advantage")
@given(BUFFERS, FRACTIONS, st.integers(1, 12))
@SETTINGS
def test_k_step_advantages_are_sums_of_errors(buffer, gamma, k):
    """A value function need not agree with itself: each error counts as it is."""
    errors = td_residuals(*buffer[:4], gamma)

    def definition(errors, terminated, truncated, t):
        return sum(gamma**j * errors[t + j] for j in range(min(k, path_length(terminated, truncated, t))))

    expected = every_step(definition, (errors, *buffer[3:]))
    assert np.allclose(k_step_advantages(*buffer, gamma, k), expected, atol=1e-10)


@pytest.mark.equation("eq-gae-weights")
@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("gamma", [0.5, 0.99])
def test_weights_of_errors_come_from_the_mixture_of_k_step_advantages(gamma, lam):
    """Error l is in every advantage of more than l steps, with gamma^l each time."""
    horizon = 7
    mixture = [(1 - lam) * lam ** (k - 1) for k in range(1, horizon)] + [lam ** (horizon - 1)]
    assert np.allclose(mixture_weights(lam, horizon), mixture) and sum(mixture) == pytest.approx(1.0)
    expected = [gamma**j * sum(mixture[j:]) for j in range(horizon)]
    assert np.allclose(gae_weights(gamma, lam, horizon), expected, atol=1e-12)
    assert gae_weights(gamma, lam, 4000).sum() == pytest.approx(1 / (1 - gamma * lam), abs=1e-9)


@pytest.mark.equation("eq-gae-weights")
def test_weights_are_the_gradient_of_an_advantage():
    rewards = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    zeros = torch.zeros(6, dtype=torch.float64)
    gae(rewards, zeros, zeros, zeros, zeros, 0.9, 0.8)[0][0].backward()  # a reward moves its own error only
    assert np.allclose(gae_weights(0.9, 0.8, 6), rewards.grad.numpy(), atol=1e-12)


@pytest.mark.equation("eq-gae-mixture")
@given(BUFFERS, FRACTIONS, FRACTIONS)
@SETTINGS
def test_the_mixture_is_the_sum_of_discounted_errors(buffer, gamma, lam):
    expected = every_step(gae_by_definition, buffer, gamma, lam)
    assert np.allclose(gae_mixture(*buffer, gamma, lam), expected, atol=1e-10)


@pytest.mark.equation("eq-gae-mixture")
def test_the_mixture_gives_its_leftover_weight_to_the_longest():
    reference = REFERENCE["gae"]
    rewards, values = np.array(reference["rewards"]), np.array(reference["values"])
    steps = (rewards, values, np.append(values[1:], 0.7), np.zeros(5), np.eye(5)[4])
    advantages = [k_step_advantages(*steps, 0.9, k)[0] for k in range(1, 6)]
    expected = reference["cases"]["truncation_bootstrap_0.7"]["0.95"]["adv"][0]
    assert mixture_weights(0.95, 5) @ advantages == pytest.approx(expected, abs=1e-10)
    assert gae_mixture(*steps, 0.9, 0.95)[0] == pytest.approx(expected, abs=1e-10)
    without = [0.05 * 0.95**k for k in range(5)] @ np.array(advantages)  # an infinite mixture, cut off
    assert abs(without - expected) > 1.0


@pytest.mark.equation("eq-gae-recursion")
@pytest.mark.parametrize("steps", [1, 40, 300])
@pytest.mark.parametrize("ends", [0.0, 0.05, 0.5])
def test_the_recursion_equals_the_definition_and_the_blocked_form(steps, ends):
    buffer = random_steps(steps, 2, seed=steps, ends=ends)
    result = gae_recursion(*buffer, 0.97, 0.9)
    assert np.allclose(result, gae(*buffer, 0.97, 0.9)[0], atol=1e-11)
    assert np.allclose(result, every_step(gae_by_definition, buffer, 0.97, 0.9), atol=1e-10)


@pytest.mark.equation("eq-value-target")
@given(CONSISTENT, FRACTIONS, FRACTIONS)
@SETTINGS
def test_a_value_target_is_the_lambda_return(buffer, gamma, lam):
    expected = every_step(lambda_by_definition, (buffer[0], *buffer[2:]), gamma, lam)
    targets = value_targets(gae_recursion(*buffer, gamma, lam), buffer[1])
    assert np.allclose(targets, expected, atol=1e-10)


@pytest.mark.equation("eq-advantage-normalization")
@pytest.mark.parametrize("ddof", [0, 1])
def test_normalized_advantages_reproduce_the_reference(ddof):
    reference = REFERENCE["gae"]
    advantages = np.array(reference["cases"]["terminal"]["0.95"]["adv"])
    expected = reference["normalised_terminal_lam095"][f"ddof{ddof}"]
    assert np.allclose(normalize_advantages(advantages, ddof=ddof), expected, atol=1e-7)


@pytest.mark.equation("eq-advantage-normalization")
def test_normalized_advantages_have_mean_zero_and_deviation_one():
    advantages = np.random.default_rng(0).normal(3.0, 5.0, size=(20, 4))
    result = normalize_advantages(advantages)
    assert result.mean() == pytest.approx(0.0, abs=1e-9) and result.std() == pytest.approx(1.0, abs=1e-7)
    assert np.allclose(normalize_advantages(10 * advantages - 7), result, atol=1e-7)
    assert np.array_equal(normalize_advantages(np.full(4, 2.5)), np.zeros(4))
    assert np.array_equal(normalize_advantages([2.5]), [0.0])
    tensor = normalize_advantages(torch.tensor(advantages, dtype=torch.float32))
    assert tensor.dtype == torch.float32 and np.allclose(tensor, result, atol=1e-5)


def test_a_deviation_needs_more_advantages_than_it_loses():
    with pytest.raises(ValueError, match="ddof is 1 for 1 advantages"):
        normalize_advantages(np.zeros(1), ddof=1)


def test_no_value_is_used_where_an_episode_terminated():
    """Each function that takes next values lets them be NaN there, and only there."""
    rewards, values, flags, no = np.ones(3), np.ones(3), np.array([0, 1, 0]), np.zeros(3)
    unknown = np.array([1.0, np.nan, 1.0])
    assert np.allclose(td_residuals(rewards, values, unknown, flags, 0.9), [0.9, 0.0, 0.9])
    assert np.allclose(k_step_advantages(rewards, values, unknown, flags, no, 0.9, 1), [0.9, 0.0, 0.9])
    with pytest.raises(ValueError, match="next_values holds NaN"):
        td_residuals(rewards, values, unknown, no, 0.9)
    with pytest.raises(ValueError, match="next_values holds NaN"):
        k_step_advantages(rewards, values, unknown, no, flags, 0.9, 1)
