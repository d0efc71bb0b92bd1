"""Tests of ``rlbook_lib.networks``: torch against numpy, formulas against torch.distributions and sums."""

import copy
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from rlbook_lib.networks import (
    CategoricalPolicy,
    GaussianPolicy,
    QNetwork,
    ValueNetwork,
    gaussian_log_prob,
    make_policy,
    mlp,
    NumpyForward,
    softmax_log_probs,
)

HIDDEN = [(), (64,), (8, 5)]


def rows(n=7, d=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def rough(policy, seed=1):
    """The policy with larger weights, so that its distributions differ from row to row."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.7 * torch.randn(parameter.shape, generator=generator))
    return policy


def categorical(**options):
    return rough(CategoricalPolicy(4, 3, seed=0, **options))


def gaussian(**options):
    return rough(GaussianPolicy(4, 2, seed=0, **options))


def distribution(outputs):
    """The same distribution by torch: categorical for three outputs, else Gaussian."""
    if outputs.shape[-1] == 3:
        return Categorical(logits=outputs)
    mean, log_std = outputs.chunk(2, -1)
    return Independent(Normal(mean, log_std.exp()), 1)


# ---------------------------------------------------------------------- formulas


@pytest.mark.equation("eq-softmax-policy")
@given(st.lists(st.floats(-300, 300), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_softmax_is_exp_over_its_sum(logits):
    highest = max(logits)
    weights = [math.exp(z - highest) for z in logits]
    expected = [z - highest - math.log(math.fsum(weights)) for z in logits]
    assert softmax_log_probs(logits) == pytest.approx(expected, abs=1e-9)
    assert softmax_log_probs(torch.tensor(logits, dtype=torch.float64)).tolist() == pytest.approx(expected, abs=1e-9)
    assert math.fsum(np.exp(softmax_log_probs(logits))) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_of_huge_logits_does_not_overflow(dtype):
    logits = np.array([1e4, 0.0, 1e4], dtype)
    for log_probs in (softmax_log_probs(logits), softmax_log_probs(torch.tensor(logits)).numpy()):
        assert log_probs.dtype == dtype and log_probs == pytest.approx([-math.log(2), -1e4 - math.log(2), -math.log(2)])


def test_softmax_keeps_the_shape_and_does_not_change_its_argument():
    logits = rows(6, 4).reshape(2, 3, 4)
    before = logits.copy()
    assert softmax_log_probs(logits).shape == (2, 3, 4)
    assert np.array_equal(logits, before)


@pytest.mark.equation("eq-gaussian-policy")
def test_gaussian_density_is_a_product_of_densities_that_integrate_to_one():
    mean, log_std, actions = np.array([0.3, -1.0]), np.array([0.2, -0.7]), np.array([1.1, -1.4])
    density = math.prod(
        math.exp(-0.5 * ((a - m) / math.exp(s)) ** 2) / (math.exp(s) * math.sqrt(2 * math.pi))
        for m, s, a in zip(mean, log_std, actions)
    )
    assert gaussian_log_prob(mean, log_std, actions) == pytest.approx(math.log(density), abs=1e-12)
    as_tensors = gaussian_log_prob(*(torch.tensor(x) for x in (mean, log_std, actions)))
    assert float(as_tensors) == pytest.approx(math.log(density), abs=1e-12)
    grid = np.linspace(-12, 12, 4001)[:, None]
    values = np.exp(gaussian_log_prob(np.full_like(grid, 0.3), np.array([0.2]), grid))
    assert np.trapezoid(values, grid[:, 0]) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: softmax_log_probs(1.0), r"logits has shape \(\); expected \(..., A\)"),
        (lambda: softmax_log_probs([0.0, math.nan]), "logits holds NaN"),
        (lambda: gaussian_log_prob([0.0], [0.0], [0.0, 1.0]), r"actions has shape \(2,\); expected \(1,\), like mean"),
        (lambda: gaussian_log_prob([0.0, 0.0], [0.0], [0.0, 1.0]), "log_std has shape"),
        (lambda: gaussian_log_prob(np.zeros((3, 2)), np.zeros((1, 2)), np.zeros((3, 2))), "log_std has shape"),
    ],
)
def test_formulas_refuse_what_they_cannot_use(call, said):
    with pytest.raises((ValueError, TypeError), match=said):
        call()


@pytest.mark.parametrize("make", [categorical, gaussian])
def test_log_prob_entropy_and_divergence_agree_with_torch(make):
    policy, other = make(hidden=(8,)), rough(make(hidden=(8,)), seed=2)
    observations = torch.tensor(rows(50))
    old, new = policy(observations).detach(), other(observations).detach()
    actions = distribution(old).sample()
    assert torch.allclose(policy.log_prob_of(old, actions), distribution(old).log_prob(actions), atol=1e-5)
    assert torch.allclose(policy.entropy_of(old), distribution(old).entropy(), atol=1e-5)
    assert torch.allclose(
        policy.kl_of(old, new), kl_divergence(distribution(old), distribution(new)), rtol=1e-4, atol=1e-5
    )
    assert policy.kl_of(old, new).min() > 0
    assert policy.kl_of(old, old).abs().max() < 1e-6


def test_an_action_that_never_happens_has_finite_entropy_and_divergence():
    policy = CategoricalPolicy(4, 3, seed=0)
    outputs = torch.log_softmax(torch.tensor([[0.0, 500.0, -500.0]]), -1)
    assert float(policy.entropy_of(outputs)) == 0
    assert float(policy.kl_of(outputs, outputs)) == 0


# ---------------------------------------------------------------------- the perceptron


@pytest.mark.parametrize("sizes", [(4, 2), (4, 64, 2), (5, 8, 8, 3)])
def test_weights_are_orthogonal_and_biases_zero(sizes):
    linear = [layer for layer in mlp(sizes, output_gain=0.5, seed=3) if isinstance(layer, nn.Linear)]
    for i, layer in enumerate(linear):
        gain = 0.5 if i == len(linear) - 1 else math.sqrt(2)
        weight = layer.weight.detach().double()
        small = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
        assert torch.allclose(small, gain**2 * torch.eye(len(small), dtype=torch.float64), atol=1e-5)
        assert not layer.bias.any()


def test_nothing_touches_the_global_generators():
    before_torch, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()
    policy = CategoricalPolicy(4, 2, seed=0)
    GaussianPolicy(4, 2, seed=0).sample(rows(), np.random.default_rng(0))
    policy.sample(rows(), np.random.default_rng(0))
    policy.sample_torch(torch.tensor(rows()), torch.Generator().manual_seed(0))
    QNetwork(4, 2, seed=2).act(rows(), greedy=False, rng=np.random.default_rng(0))
    assert torch.equal(torch.get_rng_state(), before_torch)
    assert np.array_equal(np.random.get_state()[1], before_numpy)


def test_the_seed_decides_the_weights():
    weights = [mlp((4, 8, 2), seed=seed)[0].weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_numpy_computes_what_torch_computes(hidden, activation):
    network = rough(mlp((4, *hidden, 3), activation=activation, seed=0))
    x = rows()
    expected = network(torch.tensor(x)).detach().numpy()
    assert NumpyForward(network)(x) == pytest.approx(expected, abs=1e-5)


def replaced(network):
    """New weights in new memory."""
    vector = nn.utils.parameters_to_vector(network.parameters()).detach() * 1.5
    nn.utils.vector_to_parameters(vector, network.parameters())


def stepped(network):
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1, fused=True)
    network(torch.tensor(rows())).sum().backward()
    optimizer.step()


def loaded(network):
    network.load_state_dict(mlp((4, 8, 3), seed=9).state_dict())


@pytest.mark.parametrize("change", [replaced, stepped, loaded, nn.Module.double])
def test_numpy_sees_every_change_of_the_weights(change):
    network = mlp((4, 8, 3), seed=0)
    forward = NumpyForward(network)
    first = forward(rows())
    change(network)
    dtype = network[0].weight.dtype
    expected = network(torch.tensor(rows(), dtype=dtype)).detach().numpy()
    assert forward(rows()) == pytest.approx(expected, abs=1e-5)
    assert not np.allclose(first, expected) or forward(rows()).dtype == np.float64 != first.dtype


def test_a_copied_policy_acts_with_its_own_weights():
    policy = categorical()
    first = policy.sample(rows(), np.random.default_rng(0))[2]
    twin = copy.deepcopy(policy)
    with torch.no_grad():
        policy.network[0].weight.mul_(3)
    assert np.array_equal(twin.sample(rows(), np.random.default_rng(0))[2], first)
    assert not np.allclose(policy.sample(rows(), np.random.default_rng(0))[2], first)


@pytest.mark.parametrize(
    "call, error, said",
    [
        (lambda: mlp((4,), seed=0), ValueError, r"sizes is \[4\]; expected at least"),
        (lambda: mlp((4, 0, 2), seed=0), ValueError, r"sizes\[1\] is 0"),
        (lambda: NumpyForward(nn.Sequential()), ValueError, "at least one linear layer"),
        (lambda: NumpyForward(nn.Sequential(nn.Linear(2, 2, bias=False))), ValueError, "biases"),
        (lambda: NumpyForward(nn.Sequential(nn.Linear(2, 2), nn.GELU())), ValueError, "network holds GELU"),
        (
            lambda: GaussianPolicy(4, 1, seed=0, low=1.0, high=-1.0),
            ValueError,
            "low is 1.0; expected at most high, -1.0",
        ),
        (lambda: GaussianPolicy(4, 3, seed=0, low=[0, 0]), ValueError, "low is .*; expected one number or 3"),
        (lambda: GaussianPolicy(4, 1, seed=0, high=math.nan), ValueError, "high is nan; expected one number or 1"),
        (lambda: CategoricalPolicy(1, 2, seed=0).act([["a"]]), TypeError, "observations has type"),
        (
            lambda: CategoricalPolicy(1, 2, seed=0).act([[0.0]], greedy=False, rng=3),
            TypeError,
            "rng is 3; expected a Generator",
        ),
    ],
)
def test_networks_refuse_what_they_cannot_use(call, error, said):
    with pytest.raises(error, match=said):
        call()


# ---------------------------------------------------------------------- policies


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("make", [categorical, gaussian])
def test_a_sample_says_what_torch_says_about_it(make, hidden):
    policy = make(hidden=hidden)
    actions, log_probs, outputs = policy.sample(rows(200), np.random.default_rng(3))
    expected = policy(torch.tensor(rows(200))).detach()
    assert outputs == pytest.approx(expected.numpy(), abs=1e-5)
    assert log_probs == pytest.approx(policy.log_prob_of(expected, torch.tensor(actions)).numpy(), abs=1e-5)
    assert outputs.dtype == log_probs.dtype == np.float32


def test_log_probabilities_of_numpy_and_torch_agree_to_a_millionth():
    policy = CategoricalPolicy(4, 3, seed=0)
    actions, log_probs, outputs = policy.sample(rows(500), np.random.default_rng(3))
    expected = policy(torch.tensor(rows(500))).detach()
    assert np.abs(outputs - expected.numpy()).max() < 1e-6
    assert np.abs(log_probs - policy.log_prob_of(expected, torch.tensor(actions)).numpy()).max() < 1e-6


def chances(actions):
    return np.bincount(actions, minlength=3) / len(actions)


def test_categorical_samples_follow_the_probabilities():
    policy, n = categorical(), 40_000
    x = np.repeat(rows(1), n, axis=0)
    p = policy(torch.tensor(x[:1])).exp().detach().numpy()[0]
    tolerance = 5 * np.sqrt(p * (1 - p) / n)  # five standard errors
    assert (np.abs(chances(policy.sample(x, np.random.default_rng(0))[0]) - p) < tolerance).all()
    drawn = policy.sample_torch(torch.tensor(x), torch.Generator().manual_seed(0))
    assert (np.abs(chances(drawn[0].numpy()) - p) < tolerance).all()
    assert torch.equal(drawn[1], policy.log_prob_of(drawn[2], drawn[0]))


def test_gaussian_samples_have_the_mean_and_the_deviation():
    policy, n = gaussian(), 40_000
    x = np.repeat(rows(1), n, axis=0)
    mean, log_std = policy(torch.tensor(x[:1])).detach().chunk(2, -1)
    mean, std = mean.numpy()[0], log_std.exp().numpy()[0]
    drawn = policy.sample_torch(torch.tensor(x), torch.Generator().manual_seed(0))
    assert torch.allclose(drawn[1], policy.log_prob_of(drawn[2], drawn[0]))
    for actions in (policy.sample(x, np.random.default_rng(0))[0], drawn[0].numpy()):
        assert (np.abs(actions.mean(0) - mean) < 5 * std / math.sqrt(n)).all()
        assert actions.std(0) == pytest.approx(std, rel=0.02)


def test_an_action_without_probability_is_never_drawn():
    policy = CategoricalPolicy(1, 3, hidden=(), seed=0)
    with torch.no_grad():
        policy.network[0].bias.copy_(torch.tensor([-200.0, 0.0, -200.0]))
    actions, log_probs, _ = policy.sample(np.zeros((5000, 1), np.float32), np.random.default_rng(0))
    assert (actions == 1).all() and not log_probs.any()


def test_act_is_greedy_or_drawn():
    policy = categorical()
    x = rows(300)
    outputs = policy(torch.tensor(x)).detach().numpy()
    assert np.array_equal(policy.act(x), outputs.argmax(1))
    drawn = policy.act(x, greedy=False, rng=np.random.default_rng(5))
    assert np.array_equal(drawn, policy.sample(x, np.random.default_rng(5))[0])
    assert not np.array_equal(drawn, policy.act(x))
    with pytest.raises(ValueError, match="rng"):
        policy.act(x, greedy=False)


def test_actions_are_clipped_only_on_their_way_to_the_environment():
    policy = GaussianPolicy(4, 2, seed=0, low=[-1.0, -2.0], high=[1.0, 2.0])
    policy.log_std.data.fill_(2.0)
    actions, log_probs, outputs = policy.sample(rows(100), np.random.default_rng(0))
    assert np.abs(actions).max() > 2
    expected = policy.log_prob_of(torch.tensor(outputs), torch.tensor(actions)).numpy()
    assert log_probs == pytest.approx(expected, abs=1e-5)  # of the unclipped action
    clipped = policy.for_environment(actions)
    assert np.array_equal(clipped, np.clip(actions, [-1, -2], [1, 2]).astype(np.float32))
    assert np.array_equal(policy.act(rows(100), greedy=False, rng=np.random.default_rng(0)), clipped)
    assert policy.act(rows(100)) == pytest.approx(outputs[:, :2])
    assert categorical().for_environment(np.array([2, 0])).tolist() == [2, 0]


def test_discrete_observations_are_looked_up():
    policy = CategoricalPolicy(6, 3, hidden=(), seed=0, output_gain=1.0)
    table = policy.network[0].weight.detach().numpy().T  # (S, A)
    assert np.array_equal(policy.act(np.arange(6)), table.argmax(1))
    assert np.array_equal(policy.act(np.eye(6)), table.argmax(1))
    with pytest.raises(ValueError, match=r"0\.\.5"):
        policy.act(np.array([6]))


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 5), ()])
def test_act_refuses_observations_of_another_shape(shape):
    with pytest.raises(ValueError, match=r"\(n, 4\)"):
        categorical().act(np.zeros(shape))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_act_refuses_observations_that_are_not_finite(broken):
    with pytest.raises(ValueError, match="observations.*finite"):
        categorical().act(np.array([[0.0, 0.0, broken, 0.0]]))


def test_no_observation_gives_no_action():
    assert categorical().act(np.zeros((0, 4))).shape == (0,)


def test_images_are_flattened():
    assert CategoricalPolicy(12, 2, seed=0).act(np.zeros((5, 3, 4))).shape == (5,)


# ---------------------------------------------------------------------- values


def test_values_are_in_return_units():
    small, large = ValueNetwork(4, seed=0), ValueNetwork(4, seed=0, scale=100.0)
    x = torch.tensor(rows())
    assert small(x).shape == (7,)
    assert torch.allclose(large(x), 100 * small(x))
    assert large.numpy(rows()) == pytest.approx(large(x).detach().numpy(), rel=1e-4, abs=1e-3)


def test_action_values_and_how_they_act():
    network = QNetwork(4, 3, seed=0, scale=10.0)
    x = rows(3000)
    q = network(torch.tensor(x)).detach().numpy()
    assert network.numpy(x) == pytest.approx(q, abs=1e-3)
    assert (network.act(x) == q.argmax(1)).mean() > 0.999
    drawn = network.act(x, greedy=False, rng=np.random.default_rng(0), epsilon=0.3)
    assert (drawn != network.act(x)).mean() == pytest.approx(0.2, abs=0.04)  # two thirds of 0.3
    uniform = network.act(x, greedy=False, rng=np.random.default_rng(0), epsilon=1.0)
    assert chances(uniform) == pytest.approx(np.full(3, 1 / 3), abs=0.05)  # nearly six standard errors
    assert np.array_equal(network.act(x, greedy=False, rng=np.random.default_rng(0), epsilon=0.0), network.act(x))
    with pytest.raises(ValueError, match="epsilon"):
        network.act(x, greedy=False, rng=np.random.default_rng(0), epsilon=1.5)


# ---------------------------------------------------------------------- spaces


def test_the_action_space_picks_the_policy():
    box = gym.spaces.Box(-1, 1, (2, 3))
    policy = make_policy(box, gym.spaces.Discrete(5), hidden=(3,), activation="relu", seed=0)
    assert isinstance(policy, CategoricalPolicy)
    assert (policy.observation_size, policy.n_actions) == (6, 5) and isinstance(policy.network[1], torch.nn.ReLU)
    actions = gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
    policy = make_policy(gym.spaces.Discrete(7), actions, seed=0)
    assert isinstance(policy, GaussianPolicy)
    assert (policy.observation_size, policy.action_size) == (7, 2)
    assert policy.low.tolist() == [-2, 0] and policy.high.tolist() == [2, 1]
    assert policy.log_std.tolist() == [0, 0]


@pytest.mark.parametrize(
    "space", [gym.spaces.MultiDiscrete([2, 2]), gym.spaces.Box(0, 9, (2,), np.int64), gym.spaces.MultiBinary(3)]
)
def test_other_action_spaces_are_refused_by_name(space):
    with pytest.raises(ValueError, match="Toy-v0.*action space"):
        make_policy(gym.spaces.Discrete(3), space, seed=0, env="Toy-v0")


@pytest.mark.parametrize("space", [gym.spaces.MultiBinary(3), gym.spaces.Dict({}), gym.spaces.Box(0, 1, (0,))])
def test_other_observation_spaces_are_refused_by_name(space):
    with pytest.raises(ValueError, match="Toy-v0.*observation space"):
        make_policy(space, gym.spaces.Discrete(2), seed=0, env="Toy-v0")


# ---------------------------------------------------------------------- GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("make", [categorical, gaussian])
def test_a_policy_on_a_gpu_acts_like_the_one_on_the_cpu(make):
    policy = make()
    twin = copy.deepcopy(policy).to("cuda")
    ours, theirs = (p.sample(rows(64), np.random.default_rng(0)) for p in (policy, twin))
    assert np.asarray(ours[0]) == pytest.approx(np.asarray(theirs[0]), abs=1e-4)
    drawn = twin.sample_torch(torch.tensor(rows(64), device="cuda"), torch.Generator("cuda").manual_seed(0))
    assert all(tensor.is_cuda for tensor in drawn)
    assert policy.act(rows(64)) == pytest.approx(twin.act(rows(64)), abs=1e-4)
