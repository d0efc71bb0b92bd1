"""Tests of rlbook_lib.dqn: targets by hand, loss by hand and against a peer, exact resume, exact time limits."""

import itertools
import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbook_lib.dqn import (
    DQNConfig,
    NStepWindow,
    copy_target,
    double_dqn_targets,
    double_estimator_bias,
    dqn_loss,
    dqn_targets,
    ema_update,
    ema_weights,
    huber_loss,
    iterate_dqn,
    maximization_bias,
    n_step_targets,
    naf_q,
    train_dqn,
)
from rlbook_lib.environments import VectorStep, TorchCartPole, vectorize
from rlbook_lib.networks import QNetwork, mlp
from rlbook_lib.returns import n_step_returns
from rlbook_lib.training import evaluate_policy
from tests import by_hand
from tests.by_hand import PlainAdam, assert_same_weights, short_poles, weights_of

tensor = torch.tensor


# ---------------------------------------------------------------------- targets


@pytest.mark.equation("eq-dqn-target")
def test_targets_by_hand():
    rewards, next_q = tensor([10.0, 10.0, -1.0]), tensor([[5.0, 3.0], [5.0, 3.0], [-4.0, -2.0]])
    targets = dqn_targets(rewards, next_q, tensor([0, 1, 0]), 0.9)
    # 10 + 0.9 * 5; nothing follows an end; -1 + 0.9 * (-2)
    torch.testing.assert_close(targets, tensor([14.5, 10.0, -2.8]))
    assert dqn_targets(rewards, next_q, tensor([True, True, True]), 0.9).tolist() == rewards.tolist()


@pytest.mark.equation("eq-double-dqn-target")
def test_double_targets_by_hand():
    online = tensor([[1.0, 2.0], [2.0, 1.0], [0.0, 9.0]])
    target = tensor([[7.0, 4.0], [7.0, 4.0], [8.0, 8.5]])
    targets = double_dqn_targets(tensor([1.0, 1.0, 1.0]), online, target, tensor([0, 0, 1]), 0.5)
    # the online network picks action 1, then 0; the target network says 4, then 7
    assert targets.tolist() == [3.0, 4.5, 1.0]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), gamma=st.floats(0, 1))
def test_double_targets_never_exceed_the_others_and_agree_where_networks_agree(seed, gamma):
    generator = torch.Generator().manual_seed(seed)
    rewards, online, target = (torch.randn(shape, generator=generator) for shape in ((9,), (9, 4), (9, 4)))
    terminated = torch.rand(9, generator=generator) < 0.3
    plain = dqn_targets(rewards, target, terminated, gamma)
    assert (double_dqn_targets(rewards, online, target, terminated, gamma) <= plain).all()
    assert torch.equal(double_dqn_targets(rewards, target, target, terminated, gamma), plain)
    # one by one, in plain Python
    for i in range(9):
        best = max(range(4), key=lambda a: online[i, a].item())
        expected = rewards[i].item() + (0.0 if terminated[i] else gamma * target[i, best].item())
        assert double_dqn_targets(rewards, online, target, terminated, gamma)[i].item() == pytest.approx(
            expected, abs=1e-5
        )


def test_no_gradient_flows_through_a_target():
    rewards, next_q = torch.ones(3, requires_grad=True), torch.ones(3, 2, requires_grad=True)
    flags = torch.zeros(3)
    for targets in (
        dqn_targets(rewards, next_q, flags, 0.9),
        double_dqn_targets(rewards, next_q, next_q, flags, 0.9),
        n_step_targets(rewards, flags, next_q),
    ):
        assert not targets.requires_grad
    q_values, targets = torch.zeros(2, 2, requires_grad=True), torch.ones(2, requires_grad=True)
    dqn_loss(q_values, tensor([0, 1]), targets).backward()
    assert targets.grad is None and q_values.grad is not None


# ---------------------------------------------------------------------- n steps


def make_steps(rng, length, copies, ends=0.2):
    """A stretch of experience, time first: observations count up, so that each one is known by its number."""
    rewards = rng.normal(size=(length, copies))
    over, terminated = rng.random((length, copies)) < ends, rng.random((length, copies)) < 0.5
    number = np.arange(length * copies, dtype=np.float32).reshape(length, copies, 1)
    return rewards, over & terminated, over & ~terminated, number, number + 0.5


def push_all(window, rewards, terminated, truncated, observations, next_observations):
    """The transitions of a whole stretch; actions are the time."""
    made = []
    for t in range(len(rewards)):
        step = VectorStep(None, rewards[t], terminated[t], truncated[t], next_observations[t])
        made.append(window.push(observations[t], np.full(rewards.shape[1], t), step))
    return [np.concatenate(parts) for parts in zip(*made)]


def test_windows_by_hand():
    # copy 0 terminates at its third step; copy 1 is truncated at its second; both go on with new episodes
    rewards = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]])
    terminated = np.array([[0, 0], [0, 0], [1, 0], [0, 0]], dtype=bool)
    truncated = np.array([[0, 0], [0, 1], [0, 0], [0, 0]], dtype=bool)
    observations = np.array([[[0], [10]], [[1], [11]], [[2], [20]], [[3], [21]]], dtype=np.float32)
    next_observations = np.array([[[1], [11]], [[2], [12]], [[9], [21]], [[4], [22]]], dtype=np.float32)
    first, action, returns, last, discount = push_all(
        NStepWindow(2, 1, 2, 0.5), rewards, terminated, truncated, observations, next_observations
    )
    table = {
        start: (a, g, end, d)
        for start, a, g, end, d in zip(
            first[:, 0].tolist(), action.tolist(), returns.tolist(), last[:, 0].tolist(), discount.tolist()
        )
    }
    assert len(table) == len(first) == 6
    assert table == {
        0.0: (0, 1 + 0.5 * 2, 2.0, 0.25),  # a full window
        1.0: (1, 2 + 0.5 * 4, 9.0, 0.0),  # full, and ends in the terminal state
        2.0: (2, 4.0, 9.0, 0.0),  # cut short by the termination
        10.0: (0, 10 + 0.5 * 20, 12.0, 0.25),  # full, up to the truncation
        11.0: (1, 20.0, 12.0, 0.5),  # cut short by it: one step, gamma^1
        20.0: (2, 40 + 0.5 * 80, 22.0, 0.25),
    }  # windows 3 and 21 are still open


@pytest.mark.equation("eq-dqn-n-step")
@pytest.mark.parametrize("n", [1, 2, 3, 5, 40])
def test_window_targets_against_n_step_returns(n):
    rng = np.random.default_rng(n)
    gamma, copies, length = 0.8, 7, 60
    rewards, terminated, truncated, observations, next_observations = make_steps(rng, length, copies)
    truncated[-1] = ~terminated[-1]  # everything closes at the end
    table = torch.tensor(rng.normal(size=(length, copies, 3)))  # Q of each step's next observation
    expected = n_step_returns(rewards, table.amax(2).numpy(), terminated, truncated, gamma, n)
    first, _, returns, last, discounts = push_all(
        NStepWindow(copies, 1, n, gamma), rewards, terminated, truncated, observations, next_observations
    )
    place = np.floor(last[:, 0]).astype(int)
    targets = n_step_targets(torch.tensor(returns), torch.tensor(discounts), table.reshape(-1, 3)[place])
    assert sorted(first[:, 0]) == list(range(length * copies))  # every step became one transition
    np.testing.assert_allclose(targets, expected.ravel()[first[:, 0].astype(int)], rtol=1e-12)


def test_one_step_windows_are_the_steps():
    rng = np.random.default_rng(0)
    rewards, terminated, truncated, observations, next_observations = make_steps(rng, 20, 3)
    window = NStepWindow(3, 1, 1, 0.9)
    for t in range(20):
        step = VectorStep(None, rewards[t], terminated[t], truncated[t], next_observations[t])
        first, action, returns, last, discounts = window.push(observations[t], np.arange(3), step)
        np.testing.assert_array_equal(first, observations[t])
        np.testing.assert_array_equal(action, [0, 1, 2])
        np.testing.assert_array_equal(returns, rewards[t])
        np.testing.assert_array_equal(last, next_observations[t])
        np.testing.assert_array_equal(discounts, np.where(terminated[t], 0, 0.9))


def test_n_step_targets_with_a_second_network():
    online, target = tensor([[1.0, 2.0]]), tensor([[30.0, 40.0]])
    assert n_step_targets(tensor([5.0]), tensor([0.5]), target).item() == 25
    assert n_step_targets(tensor([5.0]), tensor([0.5]), tensor([[60.0, 40.0]]), online).item() == 25


# ---------------------------------------------------------------------- the loss


@pytest.mark.equation("eq-huber")
def test_huber_loss_against_the_integral_of_its_clipped_slope():
    for delta in (0.5, 1.0, 3.0):
        errors = torch.linspace(-4, 4, 33, dtype=torch.float64)
        losses = huber_loss(errors, delta)
        for error, loss in zip(errors.tolist(), losses.tolist()):
            points = np.linspace(0, error, 20_001)
            assert loss == pytest.approx(np.trapezoid(np.clip(points, -delta, delta), points), abs=1e-7)
    torch.testing.assert_close(huber_loss(tensor([-2.0, 0.5, 1.0, 3.0])), tensor([1.5, 0.125, 0.5, 2.5]))


@pytest.mark.equation("eq-dqn-loss")
@pytest.mark.parametrize("kind", ["huber", "squared"])
def test_loss_and_gradient_by_hand(kind):
    q_values = tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 3.0]], requires_grad=True)
    actions, targets = tensor([1, 0, 0]), tensor([1.5, 3.5, 3.25])
    loss = dqn_loss(q_values, actions, targets, kind)
    loss.backward()
    # the errors Q - y are 0.5, -3, -0.25
    if kind == "squared":
        assert loss.item() == pytest.approx((0.25 + 9 + 0.0625) / 2 / 3)
        slope = [0.5, -3.0, -0.25]
    else:
        assert loss.item() == pytest.approx((0.125 + 2.5 + 0.03125) / 3)
        slope = [0.5, -1.0, -0.25]  # the error -3 pulls no harder than -1
    expected = tensor([[0.0, slope[0]], [slope[1], 0.0], [slope[2], 0.0]]) / 3
    torch.testing.assert_close(q_values.grad, expected)


@pytest.mark.parametrize("kind", ["huber", "squared"])
def test_gradient_against_finite_differences(kind):
    generator = torch.Generator().manual_seed(0)
    q_values = 3 * torch.randn(6, 3, generator=generator, dtype=torch.float64)
    actions = torch.randint(3, (6,), generator=generator)
    targets = torch.randn(6, generator=generator, dtype=torch.float64)
    q_values.requires_grad_()
    assert torch.autograd.gradcheck(lambda q: dqn_loss(q, actions, targets, kind), (q_values,))


def test_loss_and_gradient_are_those_of_stable_baselines3():
    baselines = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    rng, gamma, size = np.random.default_rng(0), 0.97, 64
    model = baselines.DQN(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        gamma=gamma,
        learning_rate=0.0,
        batch_size=size,
        max_grad_norm=1e9,
        policy_kwargs={"net_arch": [32]},
        seed=0,
        device="cpu",
    )
    online, target = (mlp((4, 32, 2), activation="relu", seed=seed) for seed in (1, 2))
    model.q_net.q_net.load_state_dict(online.state_dict())
    model.q_net_target.q_net.load_state_dict(target.state_dict())
    observations, next_observations = (tensor(rng.normal(size=(size, 4)), dtype=torch.float32) for _ in "ab")
    actions, rewards = tensor(rng.integers(2, size=size)), tensor(5 * rng.normal(size=size), dtype=torch.float32)
    terminated = tensor(rng.random(size) < 0.3).float()
    sample = ReplayBufferSamples(
        observations, actions[:, None], next_observations, terminated[:, None], rewards[:, None]
    )
    model.replay_buffer.sample = lambda *_, **__: sample
    model._setup_learn(1)
    model.train(gradient_steps=1, batch_size=size)

    loss = dqn_loss(online(observations), actions, dqn_targets(rewards, target(next_observations), terminated, gamma))
    loss.backward()
    assert loss.item() == pytest.approx(model.logger.name_to_value["train/loss"], rel=1e-6)
    for ours, theirs in zip(online.parameters(), model.q_net.q_net.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


# ---------------------------------------------------------------------- target networks


def networks():
    return QNetwork(3, 2, hidden=(5,), seed=1), QNetwork(3, 2, hidden=(5,), seed=2)


def flat(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.equation("eq-ema")
def test_moving_target_by_hand():
    online, target = networks()
    a, b = flat(online), flat(target)
    ema_update(online, target, 0.25)
    torch.testing.assert_close(flat(target), 0.75 * b + 0.25 * a)
    assert torch.equal(flat(online), a)
    single = [torch.nn.Linear(1, 1, bias=False) for _ in "ot"]
    with torch.no_grad():
        single[0].weight.fill_(10.0)
        single[1].weight.fill_(0.0)
    seen = []
    for _ in range(3):
        ema_update(*single, 0.1)
        seen.append(single[1].weight.item())
    assert seen == pytest.approx([1.0, 1.9, 2.71])


def test_copied_target_is_equal_and_separate():
    online, target = networks()
    copy_target(online, target)
    assert torch.equal(flat(online), flat(target))
    with torch.no_grad():
        next(online.parameters()).add_(1.0)
    assert not torch.equal(flat(online), flat(target))
    ema_update(online, target, 1.0)
    assert torch.equal(flat(online), flat(target))


@pytest.mark.equation("eq-ema-closed-form")
@settings(max_examples=30, deadline=None)
@given(steps=st.integers(0, 30), tau=st.floats(0.001, 1.0), seed=st.integers(0, 1000))
def test_closed_form_of_the_moving_target_against_its_recursion(steps, tau, seed):
    rng = np.random.default_rng(seed)
    start, online = rng.normal(), rng.normal(size=steps)
    moving = start
    for theta in online:
        moving = (1 - tau) * moving + tau * theta
    weights = ema_weights(steps, tau)
    assert weights.shape == (steps + 1,) and weights.sum() == pytest.approx(1)
    assert weights @ np.concatenate([[start], online]) == pytest.approx(moving, abs=1e-12)


# ---------------------------------------------------------------------- by the side

tables = (
    st.integers(0, 10_000)
    .map(lambda seed: np.random.default_rng(seed))
    .map(lambda rng: rng.integers(-2, 3, size=(rng.integers(1, 5), rng.integers(1, 4))).astype(float))
)


@pytest.mark.equation("eq-maximization-bias")
@settings(max_examples=40, deadline=None)
@given(tables)
def test_biases_against_all_combinations_of_outcomes(outcomes):
    actions, count = outcomes.shape
    chance, means = float(count) ** -actions, outcomes.mean(1)  # equal outcomes make unequal chances
    best, picked = 0.0, 0.0
    for combination in itertools.product(range(count), repeat=actions):
        estimates = [outcomes[a, k] for a, k in enumerate(combination)]
        best += chance * max(estimates)
        picked += chance * means[int(np.argmax(estimates))]
    assert maximization_bias(outcomes) == pytest.approx(best - means.max(), abs=1e-12)
    assert double_estimator_bias(outcomes) == pytest.approx(picked - means.max(), abs=1e-12)
    assert maximization_bias(outcomes) >= -1e-12 and double_estimator_bias(outcomes) <= 1e-12


def test_bias_of_coin_flips():
    # each of A estimates is +1 or -1 by a fair coin; the largest is -1 only if all are
    for actions in (1, 2, 5):
        assert maximization_bias([[-1, 1]] * actions) == pytest.approx(1 - 2 * 0.5**actions)
        assert double_estimator_bias([[-1, 1]] * actions) == 0


@pytest.mark.equation("eq-naf")
def test_naf_against_the_formula_and_a_grid():
    rng = np.random.default_rng(0)
    value, mean = rng.normal(size=5), rng.normal(size=(5, 2))
    root = rng.normal(size=(5, 2, 2))
    precision = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(2)
    actions = rng.normal(size=(5, 2))
    q = naf_q(value, mean, precision, actions)
    for i in range(5):
        d = actions[i] - mean[i]
        expected = value[i] - 0.5 * sum(d[j] * precision[i, j, k] * d[k] for j in range(2) for k in range(2))
        assert q[i] == pytest.approx(expected)
    torch.testing.assert_close(naf_q(*map(torch.tensor, (value, mean, precision, actions))), torch.tensor(q))
    np.testing.assert_allclose(naf_q(value, mean, precision, mean), value)
    for dx, dy in itertools.product(np.linspace(-2, 2, 9), repeat=2):
        assert (naf_q(value, mean, precision, mean + [dx, dy]) <= value + 1e-12).all()


# ---------------------------------------------------------------------- training


class Identity(gymnasium.Env):
    """One step an episode: the right action is the one that the observation names."""

    def __init__(self, size=4):
        self.observation_space, self.action_space = Discrete(size), Discrete(size)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(self.action_space.n))
        return self.shown, {}

    def step(self, action):
        return self.shown, float(action == self.shown), True, False, {}


class Bandit(gymnasium.Env):
    """One state, one step an episode, noisy rewards of mean -0.5, 1, 0."""

    def __init__(self):
        self.observation_space, self.action_space = Discrete(1), Discrete(3)

    def step(self, action):
        return 0, float((-0.5, 1.0, 0.0)[action] + 0.3 * self.np_random.standard_normal()), True, False, {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}


class Forever(gymnasium.Env):
    """One state, one action, reward 1; stopped from outside after five steps, or said to end there."""

    def __init__(self, says_terminated=False):
        self.observation_space, self.action_space = Discrete(1), Discrete(1)
        self.says_terminated = says_terminated

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return 0, {}

    def step(self, action):
        self.time += 1
        over = self.time == 5
        return 0, 1.0, over and self.says_terminated, over and not self.says_terminated, {}


SMALL = DQNConfig(
    total_steps=800,
    copies=4,
    batch_size=32,
    hidden=(16,),
    learning_starts=64,
    buffer_capacity=300,
    epsilon_steps=400,
    return_scale=1.0,
    n_step=3,
)


def changed(config=SMALL, **changes):
    return DQNConfig(**{**{name: getattr(config, name) for name in config.__dataclass_fields__}, **changes})


@pytest.mark.parametrize("double", [True, False])
def test_it_learns_the_identity(double):
    result = train_dqn(Identity, changed(double=double, learning_rate=1e-2, total_steps=1600), seed=0)
    assert result.policy.act(np.arange(4)).tolist() == [0, 1, 2, 3]
    assert evaluate_policy(result.policy, Identity, episodes=20, seed=0).tolist() == [1.0] * 20
    np.testing.assert_allclose(result.policy.numpy(np.eye(4, dtype=np.float32)), np.eye(4), atol=0.1)


@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_it_learns_a_bandit(loss):
    result = train_dqn(
        Bandit, changed(loss=loss, hidden=(), epsilon_end=1.0, batch_size=300, learning_rate=2e-2), seed=0
    )
    np.testing.assert_allclose(result.policy.numpy(np.ones((1, 1), np.float32)), [[-0.5, 1.0, 0.0]], atol=0.12)


@pytest.mark.parametrize("n_step, target", [(1, "ema"), (3, "copy")])
def test_time_limits_are_exact(n_step, target):
    """The state is worth 1 / (1 - gamma) = 5. Taking the time limit for an end makes it worth much less.

    How much is known. With one-step targets one in five is 1 alone: V = 1 + gamma V 4 / 5, which is 2.778. With
    n steps the windows that begin 1, 2, ..., n steps before the limit end there.
    """
    config = changed(
        n_step=n_step,
        target=target,
        copy_interval=10,
        tau=0.2,
        gamma=0.8,
        hidden=(),
        copies=10,
        batch_size=250,
        buffer_capacity=500,
        total_steps=3500,
        learning_starts=500,
        learning_rate=5e-2,
        loss="squared",
        steps_per_update=1,
    )

    def learned(says_terminated):
        values = [
            float(record.policy.numpy(np.ones((1, 1), np.float32))[0, 0])
            for record in iterate_dqn(lambda: Forever(says_terminated), config, seed=0)
        ]
        return np.mean(values[-50:])

    assert learned(False) == pytest.approx(5, rel=0.02)
    # the window that begins at time t holds min(n, 5 - t) rewards, and bootstraps unless it reaches the limit
    rewards = [sum(0.8**k for k in range(min(n_step, 5 - t))) for t in range(5)]
    bootstraps = [0.8**n_step if t + n_step < 5 else 0.0 for t in range(5)]
    biased = np.mean(rewards) / (1 - np.mean(bootstraps))
    assert biased == pytest.approx({1: 1 / (1 - 0.8 * 4 / 5), 3: 2.024 / (1 - 0.2048)}[n_step])  # by hand
    assert learned(True) == pytest.approx(biased, rel=0.03)


def test_the_target_network_starts_as_the_online_network():
    config = changed(target="copy", copy_interval=100, learning_rate=1e-4)
    state = next(iterate_dqn("CartPole-v1", config, seed=0)).state()
    for name, weight in state["online"].items():
        moved = (weight - state["target"][name]).abs().max()
        assert 0 < moved < 1.01e-4  # the first step of Adam is at most the rate


def test_exploration_follows_its_schedule(monkeypatch):
    seen, act = [], QNetwork.act

    def watched(self, observations, greedy=True, rng=None, epsilon=0.05):
        seen.append((greedy, epsilon))
        return act(self, observations, greedy, rng, epsilon)

    monkeypatch.setattr(QNetwork, "act", watched)
    config = changed(epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=401)
    list(iterate_dqn("CartPole-v1", config, seed=0))
    assert not any(greedy for greedy, _ in seen)
    expected = [max(0.1, 0.9 - 0.8 * step / 400) for step in range(0, 800, 4)]  # four copies take a step at a time
    assert [epsilon for _, epsilon in seen] == pytest.approx(expected)


def test_the_seed_reaches_every_source_of_chance():
    config = changed(target="copy", copy_interval=100)  # the target still is what online was at first
    one, two = (next(iterate_dqn("CartPole-v1", config, seed=seed)).state() for seed in (0, 1))
    assert not torch.equal(one["target"]["network.0.weight"], two["target"]["network.0.weight"])
    assert not torch.equal(one["buffer"]["generator"], two["buffer"]["generator"])
    streams = [
        (state["rng"]["state"]["inc"], state["environments"]["generator"]["state"]["inc"]) for state in (one, two)
    ]
    assert all(a != b for a, b in zip(*streams))  # "inc" is the seed's, however much was drawn


def test_records():
    records = list(iterate_dqn("CartPole-v1", SMALL, seed=0))
    first, last = records[0], records[-1]
    assert first.update == 1 and first.env_steps == 64 and last.env_steps == 800
    assert len(records) == last.update == (800 - 64) // 8 + 1
    assert {"loss", "target_value", "epsilon"} <= first.metrics.keys()
    assert first.metrics["epsilon"] == pytest.approx(1 - 0.95 * 63 / 399) and last.metrics["epsilon"] == 0.05
    assert all(math.isfinite(value) for record in records for value in record.metrics.values())
    observations = np.zeros((5, 4), dtype=np.float32)
    assert last.policy.act(observations).shape == (5,) and last.policy.act(observations, greedy=True).dtype.kind == "i"


def test_the_first_update_comes_when_enough_was_seen_and_the_others_every_so_many_steps():
    for starts, every in ((64, 1), (65, 3), (1, 2)):
        config = changed(learning_starts=starts, steps_per_update=every, n_step=1)
        steps = [record.env_steps for record in iterate_dqn("CartPole-v1", config, seed=0)]
        first = -(-starts // (4 * every)) * 4 * every  # four copies, ``every`` steps at a time
        assert steps == list(range(first, 800 + 4 * every, 4 * every))[: len(steps)] and steps[-2] < 800 <= steps[-1]


def test_every_real_transition_is_counted_whatever_the_environment():
    for env in ("CartPole-v1", gymnasium.make_vec("CartPole-v1", num_envs=4), vectorize("CartPole-v1", 4, seed=9)):
        records = itertools.islice(iterate_dqn(env, SMALL, seed=0), 3)
        assert [record.env_steps for record in records] == [64, 72, 80]


@pytest.mark.slow
def test_the_defaults_solve_cartpole():
    for seed in range(3):

        def solved(record):
            return (
                record.update % 64 == 0
                and evaluate_policy(record.policy, "CartPole-v1", episodes=20, seed=100 + seed).mean() >= 475
                and evaluate_policy(record.policy, "CartPole-v1", episodes=100, seed=200 + seed).mean() >= 475
            )

        result = train_dqn("CartPole-v1", changed(DQNConfig(), total_steps=150_000), seed=seed, stop=solved)
        assert result.env_steps < 150_000


# ---------------------------------------------------------------------- bad input


def test_bad_runs():
    with pytest.raises(
        ValueError, match="env is Pendulum-v1 with the action space Box.*; expected a Discrete action space"
    ):
        next(iterate_dqn("Pendulum-v1", SMALL, seed=0))
    with pytest.raises(ValueError, match="which works with tensors; expected an environment that works with numpy"):
        next(iterate_dqn(TorchCartPole(4, seed=0, device="cpu"), SMALL, seed=0))
    state = next(iterate_dqn("CartPole-v1", SMALL, seed=0)).state()
    with pytest.raises(ValueError, match=r"the state belongs to BatchedCartPole\('CartPole-v1', copies=4\), this is"):
        next(iterate_dqn("Acrobot-v1", SMALL, seed=0, state=state))
    with pytest.raises(ValueError, match="learning_starts is 10; expected less than total_steps, 10"):
        DQNConfig(total_steps=10, learning_starts=10)


def test_bad_arguments_of_the_pure_functions():
    rewards, q, actions = torch.ones(3), torch.ones(3, 2), tensor([0, 1, 1])
    for call, words in (
        (lambda: double_dqn_targets(rewards, torch.ones(3, 4), q, rewards, 0.9), r"next_q_target has shape \(3, 2\)"),
        (lambda: n_step_targets(rewards, 2 * rewards, q), "discounts holds .*; expected"),
        (lambda: dqn_loss(q, tensor([0, 1, 2]), rewards), "actions holds 2; expected numbers from 0 to 1"),
        (lambda: dqn_loss(q, -actions, rewards), "actions holds -1; expected whole numbers, 0 or more"),
        (lambda: dqn_loss(q, actions + 0.5, rewards), "actions holds fractions"),
        (
            lambda: NStepWindow(2, 2, 3, 0.9).load_state(NStepWindow(2, 2, 1, 0.9).state()),
            r"\(1, 2, 2\); expected \(3, 2, 2\)",
        ),
        (lambda: ema_update(*networks(), 0.0), "tau is 0.0; expected a number, above 0"),
        (lambda: ema_update(networks()[0], QNetwork(3, 3, hidden=(5,), seed=0), 0.5), "same shapes"),
        (lambda: naf_q(np.ones(2), np.ones((2, 1)), -np.ones((2, 1, 1)), np.ones((2, 1))), "positive definite"),
        (
            lambda: naf_q(np.ones(1), np.ones((1, 2)), np.array([[[1.0, 0.5], [0.0, 1.0]]]), np.ones((1, 2))),
            "symmetric",
        ),
        (lambda: naf_q(np.ones(2), np.ones((2, 1)), np.ones((2, 1)), np.ones((2, 1))), "precision has shape"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_lists_will_do():
    assert dqn_targets([1.0, 2.0], [[1, 3], [0, 0]], [0, 1], 0.5).tolist() == [2.5, 2.0]
    assert double_dqn_targets([1, 2], [[1, 3], [0, 0]], [[8, 6], [0, 0]], [False, True], 0.5).tolist() == [4.0, 2.0]
    assert dqn_loss([[1.0, 3.0]], [1], [2.0], "squared") == 0.5


# ---------------------------------------------------------------------------------- one update, number by number


def transitions_by_hand(steps, copies, n, gamma, scale):
    """All that a memory may hold: o, a, rewards of up to n steps, the observation after them, its discount."""
    rows = []
    for i in range(copies):
        for t in range(len(steps)):
            total = 0.0
            for m, (_, _, step) in enumerate(steps[t : t + n]):
                total += gamma**m * step.rewards[i]
                ended = step.terminated[i] or step.truncated[i]
                if ended or m == n - 1:
                    follows = 0.0 if step.terminated[i] else gamma ** (m + 1)
                    row = *steps[t][0][i], steps[t][1][i], total / scale, *step.next_observations[i], follows
                    rows.append(np.array(row, np.float32))
                    break
    return rows


@pytest.mark.parametrize(
    "change",
    [
        {"double": True, "loss": "huber", "target": "ema", "tau": 0.3, "max_gradient_norm": 0.05},
        {"double": False, "loss": "squared", "target": "copy", "copy_interval": 2, "return_scale": 0.5},
        {"double": True, "loss": "huber", "target": "copy", "copy_interval": 5, "return_scale": 1.5},
    ],
)
def test_an_update_is_the_one_of_a_plain_script(change, monkeypatch):
    """The second update: the optimizer has a past, and the target network is another one than the online network."""
    sizes = {"total_steps": 200, "copies": 4, "batch_size": 64, "hidden": (8,), "learning_starts": 100}
    config = DQNConfig(**sizes, n_step=3, gamma=0.9, steps_per_update=5, learning_rate=0.2, **change)
    steps, push = [], NStepWindow.push
    monkeypatch.setattr(NStepWindow, "push", lambda window, *step: steps.append(step) or push(window, *step))
    run = iterate_dqn(short_poles, config, seed=2)
    first, record = next(run).state(), next(run)
    second = record.state()
    rows = second["buffer"]["rows"]
    expected = transitions_by_hand(steps, 4, 3, 0.9, config.return_scale)
    assert sorted(map(tuple, np.round(expected, 5))) == sorted(map(tuple, np.round(rows.numpy(), 5)))
    draws = torch.Generator()
    draws.set_state(first["buffer"]["generator"])
    batch = rows[torch.randint(len(rows), (64,), generator=draws)]
    x, a, g, after, discount = batch.split((4, 1, 1, 4, 1), 1)

    w, target = weights_of(first["online"]), first["target"]
    q_target, q_online = by_hand.mlp(target, "network", after), by_hand.mlp(w, "network", after).detach()
    chosen = q_online if config.double else q_target
    assert (q_online.argmax(1) != q_target.argmax(1)).any() or config.target == "ema"
    y = g[:, 0] + discount[:, 0] * torch.stack([q[i] for q, i in zip(q_target, chosen.argmax(1))])
    error = by_hand.mlp(w, "network", x).gather(1, a.long())[:, 0] - y
    if config.loss == "huber":
        each = torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)
        assert 0 < (error.abs() > 1).sum() < 64 or config.return_scale > 1.5
    else:
        each = 0.5 * error**2
    adam = PlainAdam(w, 0.2, 1e-8)
    adam.t = 1
    for number, name in enumerate(w):
        moments = first["optimizer"]["state"][number]
        adam.m[name], adam.v[name] = moments["exp_avg"], moments["exp_avg_sq"]
    adam.step(each.mean(), config.max_gradient_norm)
    assert_same_weights(w, second["online"], first["online"])
    moved = {"ema": 0.3, "copy": 1.0 if config.copy_interval == 2 else 0.0}[config.target]
    for name, weight in w.items():
        mixed = (1 - moved) * target[name] + moved * weight.detach()
        torch.testing.assert_close(second["target"][name], mixed, rtol=1e-5, atol=1e-6)
    said = each.mean().item(), y.mean().item() * config.return_scale
    assert (record.metrics["loss"], record.metrics["target_value"]) == pytest.approx(said, rel=1e-4)
    values = config.return_scale * by_hand.mlp(w, "network", x).detach()  # what the policy says is in reward units
    np.testing.assert_allclose(record.policy.numpy(x.numpy()), values, rtol=1e-3)
