"""Tests of ``rlbook_lib.policy_gradient``: losses and updates by hand, training in small environments."""

from itertools import product

import gymnasium
import numpy as np
import pytest
import torch
from test_gradient_estimators import HORIZON, gradient_by_differences, layers, logits_of

from rlbook_lib import policy_gradient
from rlbook_lib.gradient_estimators import softmax_policy
from rlbook_lib.mdp import enumerate_trajectories
from rlbook_lib.policy_gradient import (
    A2CConfig,
    ReinforceConfig,
    a2c_targets,
    a2c_update,
    critic_loss,
    iterate_a2c,
    iterate_reinforce,
    policy_gradient_loss,
    reinforce_update,
    train_a2c,
    train_reinforce,
)
from rlbook_lib.returns import discounted_returns
from rlbook_lib.rollout import Collector, open_actors
from rlbook_lib.training import TrainingError, evaluate_policy, load_checkpoint
from tests.by_hand import PlainAdam, advantages_by_hand, assert_same_weights, log_pi, mlp, short_poles, weights_of


# ------------------------------------------------------------------ losses


@pytest.mark.equation("eq-policy-gradient-loss")
def test_the_gradient_of_the_loss_over_all_trajectories_is_the_policy_gradient():
    mdp = layers(0)
    logits = torch.tensor(logits_of(1, mdp), requires_grad=True)
    states, actions, psi, chances = [], [], [], []
    for path, taken, rewards, probability in enumerate_trajectories(mdp, softmax_policy(logits.detach()), HORIZON):
        steps = len(taken)
        states += path[:-1]
        actions += taken
        psi += list(mdp.gamma ** np.arange(steps) * discounted_returns(rewards, mdp.gamma))
        chances += [probability] * steps
    log_prob = torch.log_softmax(logits, 1)[states, actions]
    policy_gradient_loss(log_prob, torch.tensor(psi), torch.tensor(chances)).backward()
    assert np.allclose(-logits.grad, gradient_by_differences(mdp, logits.detach().numpy()), atol=1e-6)


@pytest.mark.equation("eq-policy-gradient-loss")
def test_the_loss_is_a_mean_and_its_weights_are_constants():
    log_prob = torch.tensor([-1.0, -2.0, -4.0], requires_grad=True)
    psi = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
    loss = policy_gradient_loss(log_prob, psi)
    assert loss.item() == pytest.approx((2 - 2 + 2) / 3)
    loss.backward()
    assert psi.grad is None and torch.allclose(log_prob.grad, -psi.detach() / 3)


@pytest.mark.equation("eq-critic-loss")
def test_the_critic_moves_toward_constant_targets():
    values, targets = (torch.tensor(x, requires_grad=True) for x in ([1.0, 2.0, -1.0], [0.0, 5.0, -1.0]))
    loss = critic_loss(values, targets)
    assert loss.item() == pytest.approx((1 + 9) / 6)
    loss.backward()
    assert targets.grad is None and torch.allclose(values.grad, (values - targets).detach() / 3)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: policy_gradient_loss(torch.zeros(3), torch.full((3,), torch.nan)), "psi"),
        (lambda: critic_loss(torch.zeros(3, 1), torch.zeros(3)), "targets has shape"),
        (lambda: critic_loss(torch.full((3,), torch.inf), torch.zeros(3)), "values"),
        (lambda: policy_gradient_loss(torch.zeros(3), torch.zeros(2)), "psi"),
        (lambda: policy_gradient_loss(torch.zeros(3), torch.zeros(3), torch.zeros(2)), "weights"),
        (lambda: critic_loss(torch.zeros(0), torch.zeros(0)), "values"),
        (lambda: A2CConfig(psi="return"), "psi"),
        (lambda: ReinforceConfig(psi="gae"), "psi"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(ValueError, match=name):
        call()


# ------------------------------------------------------------------ training


class Bandit(gymnasium.Env):
    """One step an episode; action 2 pays 1, the others 0."""

    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, float(action == 2), True, False, {}


class Identity(gymnasium.Env):
    """Say what you see, five times; 1 for each right answer."""

    observation_space, action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen, self.steps = int(self.np_random.integers(3)), 0
        return self.seen, {}

    def step(self, action):
        reward, self.seen, self.steps = float(action == self.seen), int(self.np_random.integers(3)), self.steps + 1
        return self.seen, reward, self.steps == 5, False, {}


class Forever(gymnasium.Env):
    """Reward 1 forever, one state; stopped every five steps, and nothing else ever happens."""

    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(2)
    stop_is_an_end = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        stopped = self.steps == 5
        return 0, 1.0, stopped and self.stop_is_an_end, stopped and not self.stop_is_an_end, {}


class Mistaken(Forever):
    """The same, by a time limit that says the episode terminated."""

    stop_is_an_end = True


def values_of(result_state, config):
    """What the critic of a saved run says about the only state."""
    value = result_state["networks"]
    return float(value["value.network.0.weight"][0, 0] + value["value.network.0.bias"][0]) / (1 - config.gamma)


@pytest.mark.slow
@pytest.mark.parametrize("env, worth", [(Forever, 10.0), (Mistaken, 1 / (1 - 0.9 * 4 / 5))])
def test_the_critic_learns_the_known_value_of_a_truncated_task(env, worth):
    """Worth 1/(1 - gamma) = 10. Where the stop passes for an end, one step in five is worth 1 only, and the
    one-step fixed point is V = 1 + gamma (4/5) V = 3.57: the bias that the two flags are there to avoid."""
    config = A2CConfig(total_steps=10_000, copies=20, steps=5, psi="td_error", gamma=0.9, hidden=(), learning_rate=0.05)
    result = train_a2c(env, config, seed=0)
    assert values_of(result.state(), config) == pytest.approx(worth, rel=0.03)


class Ragged(gymnasium.Env):
    """Two observations, a reward that depends on both; episodes end after 2 to 5 steps, some by truncation."""

    observation_space, action_space = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float32), gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.by_truncation = int(self.np_random.integers(2, 6)), bool(self.np_random.integers(2))
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.left -= 1
        over = self.left == 0
        observation = self.np_random.normal(size=2).astype(np.float32)
        return (
            observation,
            float(action + observation[0]),
            over and not self.by_truncation,
            over and self.by_truncation,
            {},
        )


class RaggedReal(Ragged):
    """The same with real actions."""

    action_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)

    def step(self, action):
        return super().step(float(action[0] - action[1]))


def pieces(rollout, value, mask=None):
    """V(s_t), V(s_{t+1}) without terminations, and where each step's episode ends: (T, N) each."""
    with torch.no_grad():
        v, v_next = (
            value(torch.as_tensor(x)).numpy().astype(float) for x in (rollout.observations, rollout.next_observations)
        )
    ends = rollout.terminated | rollout.truncated
    ends[-1] = True
    return v, np.where(rollout.terminated, 0.0, v_next), ends


@pytest.mark.parametrize("env", [Ragged, RaggedReal])
@pytest.mark.parametrize("psi", ["td_error", "n_step", "gae", "reward_to_go"])
def test_the_gradient_of_an_a2c_update_is_the_written_out_one(env, psi):
    """Advantages by their definitions, every coefficient in its place, gradients shortened: by hand, from the record."""
    config = A2CConfig(
        copies=3,
        steps=6,
        psi=psi,
        n=3,
        lam=0.6,
        gamma=0.8,
        hidden=(8,),
        value_coefficient=0.3,
        entropy_coefficient=0.2,
        max_gradient_norm=0.5,
        return_scale=4.0,
    )
    with open_actors(env, config, (0, 1, 2, 3), copies=3, steps=6) as actors, torch.no_grad():
        for parameter in actors.value.parameters():
            parameter.mul_(2.0)
        if env is RaggedReal:
            actors.policy.log_std.fill_(-0.3)
        rollout = actors.collector.collect()
    v, v_next, ends = pieces(rollout, actors.value)
    delta, wanted = rollout.rewards + 0.8 * v_next - v, np.zeros((6, 3))
    decay, most = {"td_error": (0.0, 1), "n_step": (0.8, 3), "gae": (0.48, 6), "reward_to_go": (0.8, 6)}[psi]
    for t, i in product(range(6), range(3)):
        for k in range(min(most, 6 - t)):
            wanted[t, i] += decay**k * delta[t + k, i]
            if ends[t + k, i]:
                break
    advantages, targets = a2c_targets(rollout, actors.value, config)
    assert np.allclose(advantages, wanted, atol=1e-5) and np.allclose(targets, wanted + v, atol=1e-5)

    shifted = torch.as_tensor((wanted - wanted.mean()) / wanted.std()).flatten().float()
    batch, policy = rollout.batch(), actors.policy
    outputs, values = policy(batch.observations), actors.value(batch.observations)
    error = (values - torch.as_tensor(wanted + v).flatten()) / 4.0
    loss = (
        -(policy.log_prob_of(outputs, batch.actions) * shifted).mean()
        + 0.3 * 0.5 * (error**2).mean()
        - 0.2 * policy.entropy_of(outputs).mean()
    )
    parameters = [*policy.parameters(), *actors.value.parameters()]
    by_hand = torch.autograd.grad(loss, parameters)
    norm = torch.sqrt(sum((g**2).sum() for g in by_hand))
    assert norm > 0.5
    optimizer = torch.optim.SGD(actors.networks.parameters(), lr=0.0)
    metrics = a2c_update(actors, optimizer, rollout, advantages, targets, config)
    for parameter, gradient in zip(parameters, by_hand):
        assert torch.allclose(parameter.grad, gradient * 0.5 / norm, atol=1e-5)
    assert metrics["value_loss"] == pytest.approx(0.5 * 16 * (error**2).mean().item(), rel=1e-4)


@pytest.mark.parametrize("env", [Ragged, RaggedReal])
@pytest.mark.parametrize(
    "psi, baseline, timed, normalize",
    [
        ("reward_to_go", "value", True, False),
        ("reward_to_go", "value", False, True),
        ("return", "value", False, False),
        ("reward_to_go", "mean", True, False),
        ("return", "none", True, True),
    ],
)
def test_the_gradient_of_a_reinforce_update_is_the_written_out_one(env, psi, baseline, timed, normalize):
    """A sum over the steps of each episode, a mean over episodes; a learned baseline also bootstraps truncations."""
    config = ReinforceConfig(
        episodes=8,
        psi=psi,
        baseline=baseline,
        discount_time=timed,
        normalize=normalize,
        gamma=0.8,
        hidden=(8,),
        entropy_coefficient=0.2,
        max_steps=4,
    )
    with open_actors(env, config, (0, 1, 2, 3), copies=8, steps=1) as actors:
        if env is RaggedReal:
            actors.policy.log_std.data.fill_(-0.3)
        rollout, mask = actors.collector.collect_episodes(4)
    v, v_next, ends = pieces(rollout, actors.value)
    if baseline != "value":
        v, v_next = 0 * v, 0 * v_next
    lengths = mask.sum(0)
    assert len(set(lengths)) > 1 and rollout.terminated[mask].any() and rollout.truncated[mask].any()
    returns, weights, times = np.zeros(mask.shape), np.zeros(mask.shape), np.zeros(mask.shape)
    for i, length in enumerate(lengths):
        times[:length, i] = np.arange(length)
        for t in range(length):
            last = length - 1
            returns[t, i] = (
                sum(0.8 ** (k - t) * rollout.rewards[k, i] for k in range(t, length))
                + 0.8 ** (length - t) * v_next[last, i]
            )
        weights[:length, i] = returns[0, i] if psi == "return" else returns[:length, i]
    discount = 0.8**times if timed and psi != "return" else np.ones(mask.shape)

    batch, policy, kept = rollout.batch(), actors.policy, torch.as_tensor(mask).flatten()
    outputs = policy(batch.observations)
    log_prob = policy.log_prob_of(outputs, batch.actions)
    if baseline == "mean":
        b = weights[mask].mean()
    psi_t = ((weights - (v if baseline == "value" else b if baseline != "none" else 0.0)) * discount)[mask]
    if normalize:
        psi_t = (psi_t - psi_t.mean()) / psi_t.std()
    loss = -(log_prob[kept] * torch.as_tensor(psi_t)).sum() / 8 - 0.2 * policy.entropy_of(outputs[kept]).mean()
    by_hand = torch.autograd.grad(loss, list(policy.parameters()), retain_graph=True)
    critic = []
    if baseline == "value":
        error = (actors.value(batch.observations) - torch.as_tensor(returns).flatten())[kept] / actors.value.scale
        critic = torch.autograd.grad(0.5 * (error**2).mean(), list(actors.value.parameters()))
    optimizer = torch.optim.SGD(actors.networks.parameters(), lr=0.0)
    reinforce_update(actors, optimizer, rollout, mask, config)
    for parameter, gradient in zip(policy.parameters(), by_hand):
        assert torch.allclose(parameter.grad, gradient.float(), atol=2e-5)
    for parameter, gradient in zip(actors.value.parameters(), critic):
        assert torch.allclose(parameter.grad, gradient.float(), atol=2e-5)


QUICK_A2C = A2CConfig(total_steps=3000, copies=4, steps=8, hidden=(), learning_rate=0.05, return_scale=1.0)
QUICK_REINFORCE = ReinforceConfig(total_steps=3000, episodes=4, hidden=(), learning_rate=0.05, value_learning_rate=0.05)
trainers = pytest.mark.parametrize(
    "iterate, train, config",
    [(iterate_a2c, train_a2c, QUICK_A2C), (iterate_reinforce, train_reinforce, QUICK_REINFORCE)],
    ids=["a2c", "reinforce"],
)


@trainers
@pytest.mark.parametrize("env, best", [(Bandit, 1.0), (Identity, 5.0)])
def test_trivial_environments_are_solved(iterate, train, config, env, best):
    config = type(config)(**vars(config) | {"total_steps": 600 if env is Bandit else 3000})
    result = train(env, config, seed=0)
    assert (evaluate_policy(result.policy, env, episodes=10, seed=1) == best).all()
    assert result.env_steps >= config.total_steps > result.history["env_steps"][-2]


def test_an_evaluation_is_greedy_or_draws():
    class Sure:  # pushes right, unless it is told to draw
        def act(self, observations, greedy=True, rng=None):
            return np.ones(len(observations), dtype=int) if greedy else rng.integers(2, size=len(observations))

    greedy = evaluate_policy(Sure(), "CartPole-v1", episodes=50, seed=0)
    drawn = evaluate_policy(Sure(), "CartPole-v1", episodes=50, seed=0, rng=np.random.default_rng(0))
    assert greedy.max() <= 11 < 15 < drawn.mean() < 35  # a push for ever; a coin stands for some 22 steps


@pytest.mark.parametrize(
    "psi, baseline, timed",
    [
        *product(["return", "reward_to_go"], ["none", "mean", "value"], [False]),
        ("reward_to_go", "none", True),
        ("reward_to_go", "value", True),
    ],
)
def test_reinforce_solves_the_maze_with_every_weight(psi, baseline, timed):
    config = ReinforceConfig(
        total_steps=3000,
        episodes=8,
        hidden=(),
        learning_rate=0.1,
        psi=psi,
        gamma=0.9,
        value_learning_rate=0.1,
        baseline=baseline,
        discount_time=timed,
        max_steps=50,
    )
    result = train_reinforce("rlbook/Maze-v0", config, seed=1)
    assert (evaluate_policy(result.policy, "rlbook/Maze-v0", episodes=5, seed=0, max_steps=20) == 10.0).all()


@pytest.mark.parametrize("psi", ["td_error", "n_step", "gae", "reward_to_go"])
def test_a2c_solves_the_maze_with_every_weight(psi):
    config = A2CConfig(
        total_steps=8000,
        copies=8,
        steps=8,
        hidden=(),
        learning_rate=0.05,
        psi=psi,
        gamma=0.9,
        entropy_coefficient=0.02,
        max_gradient_norm=5.0,
        return_scale=5.0,
    )
    result = train_a2c("rlbook/Maze-v0", config, seed=1)
    assert (evaluate_policy(result.policy, "rlbook/Maze-v0", episodes=5, seed=0, max_steps=20) == 10.0).all()


@trainers
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_run_that_breaks_says_so(iterate, train, config, tmp_path):
    config = type(config)(**vars(config) | {"learning_rate": 1e30, "hidden": (8,)})
    # a loss that is NaN, or, where the first broken number is an action, the environment that refuses it
    with pytest.raises(
        (TrainingError, ValueError), match="update 2: .*(is nan|is NaN)|Pendulum-v1: actions must be .* nan"
    ):
        train("Pendulum-v1", config, seed=0, checkpoint=tmp_path / "run", checkpoint_every=1)
    assert load_checkpoint(tmp_path / "run")["update"] == 1


def test_metrics_have_names_and_episodes_are_counted():
    records = list(iterate_a2c("CartPole-v1", A2CConfig(total_steps=3000), seed=0))
    assert [record.env_steps for record in records] == [512 * (i + 1) for i in range(6)]
    assert {"policy_loss", "value_loss", "entropy", "episode_return", "episode_length"} == records[-1].metrics.keys()
    assert records[-1].metrics["episode_return"] == records[-1].metrics["episode_length"]
    assert 0 < records[-1].metrics["entropy"] <= np.log(2)
    record = next(iterate_reinforce("CartPole-v1", seed=0))
    assert record.env_steps == pytest.approx(8 * record.metrics["episode_length"])
    assert record.metrics["episode_return"] == record.metrics["episode_length"]  # only of the steps that count


@pytest.mark.slow
def test_gaussian_policies_improve_on_a_target():
    class Target(gymnasium.Env):
        """One step; the reward is minus the squared distance to (0.5, -0.5)."""

        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), -float(((action - [0.5, -0.5]) ** 2).sum()), True, False, {}

    configs = (
        (train_a2c, A2CConfig(total_steps=4800, copies=8, steps=4, hidden=(), learning_rate=0.02, return_scale=1.0)),
        (
            train_reinforce,
            ReinforceConfig(total_steps=4800, episodes=32, hidden=(), learning_rate=0.02, baseline="mean"),
        ),
    )
    for train, config in configs:
        result = train(Target, config, seed=0)
        action = result.policy.act(np.zeros((1, 1), np.float32))
        assert np.allclose(action, [[0.5, -0.5]], atol=0.15)
        assert float(result.policy.log_std.detach().max()) < -0.3  # and it became surer


@pytest.mark.slow
@pytest.mark.parametrize("iterate, limit", [(iterate_a2c, 60_000), (iterate_reinforce, 120_000)])
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_defaults_solve_cartpole(iterate, limit, seed):
    for record in iterate("CartPole-v1", seed=seed):
        if record.update % 4 == 0 and evaluate_policy(record.policy, "CartPole-v1", seed=7).mean() >= 475:
            break
        assert record.env_steps < limit
    assert evaluate_policy(record.policy, "CartPole-v1", episodes=100, seed=8).mean() >= 450


def test_defaults_learn_cartpole_quickly():
    result = train_a2c("CartPole-v1", A2CConfig(total_steps=15_000), seed=0)
    assert evaluate_policy(result.policy, "CartPole-v1", seed=7).mean() >= 150


# ---------------------------------------------------------------------------------- one update, number by number


def beginning(config, seed, collect, **sizes):
    """The weights that a run begins with, and what it collects first."""
    with open_actors(short_poles, config, policy_gradient._seeds(seed), **sizes) as actors:
        return weights_of(actors.networks.state_dict()), collect(actors.collector)


def test_an_update_of_a2c_is_the_one_of_a_plain_script():
    sizes = {"total_steps": 128, "copies": 4, "steps": 32, "hidden": (8,), "gamma": 0.9, "lam": 0.8}
    config = A2CConfig(**sizes, entropy_coefficient=5.0, value_coefficient=0.7, max_gradient_norm=0.1)
    state = next(iterate_a2c(short_poles, config, seed=3)).state()
    w, rollout = beginning(config, 3, Collector.collect, copies=4, steps=32)
    before = weights_of(w)
    assert rollout.terminated.any() and rollout.truncated.any()
    x, a = torch.tensor(rollout.observations).reshape(128, -1), torch.tensor(rollout.actions).reshape(-1, 1)
    ends = torch.tensor(rollout.next_observations).reshape(128, -1)
    v = 10 * mlp(w, "value.network", x)[:, 0]  # 10 = 1 / (1 - 0.9)
    next_v = 10 * mlp(w, "value.network", ends)[:, 0].detach()
    psi = advantages_by_hand(rollout, v.detach().reshape(32, 4), next_v.reshape(32, 4), 0.9, 0.8).reshape(-1)
    target = (psi + v.detach()).float()
    psi = ((psi - psi.mean()) / (psi.std(correction=0) + 1e-8)).float()
    pi = log_pi(w, x)
    loss = -(psi * pi.gather(1, a)[:, 0]).mean() + 0.7 * 0.5 * ((v - target) ** 2 / 100).mean()
    PlainAdam(w, 7e-3, 1e-5).step(
        loss - 5.0 * -(pi.exp() * pi).sum(1).mean(), 0.1
    )  # much, for a policy that is near uniform
    assert_same_weights(w, state["networks"], before)


@pytest.mark.parametrize("normalize, discount_time", [(True, False), (False, True)])
def test_an_update_of_reinforce_is_the_one_of_a_plain_script(normalize, discount_time):
    sizes = {"total_steps": 10, "episodes": 6, "hidden": (8,), "activation": "relu", "gamma": 0.9}
    kind = {"normalize": normalize, "discount_time": discount_time, "entropy_coefficient": 5.0}
    config = ReinforceConfig(**sizes, **kind, value_learning_rate=3e-3)
    state = next(iterate_reinforce(short_poles, config, seed=4)).state()
    w, (rollout, mask) = beginning(config, 4, Collector.collect_episodes, copies=6, steps=1)
    before = weights_of(w)
    rows = []  # of each step of an episode: observation, action, what followed, gamma^t
    for n in range(6):
        length = int(mask[:, n].sum())
        last = torch.tensor(rollout.next_observations[length - 1, n])
        followed = 0.0 if rollout.terminated[length - 1, n] else 10 * mlp(w, "value.network", last[None]).item()
        for t in reversed(range(length)):
            followed = float(rollout.rewards[t, n]) + 0.9 * followed
            rows.append((torch.tensor(rollout.observations[t, n]), int(rollout.actions[t, n]), followed, 0.9**t))
    x, (a, g, late) = torch.stack([row[0] for row in rows]), (torch.tensor(c) for c in list(zip(*rows))[1:])
    v, pi = 10 * mlp(w, "value.network", x)[:, 0], log_pi(w, x)
    psi = (g - v.detach()) * (late if discount_time else 1)
    psi = (psi - psi.mean()) / (psi.std(correction=0) + 1e-8) if normalize else psi
    loss = -(psi * pi.gather(1, a[:, None])[:, 0]).sum() / 6 + 0.5 * ((v - g) ** 2 / 100).mean()
    loss = loss - 5.0 * -(pi.exp() * pi).sum(1).mean()
    PlainAdam(w, {name: 3e-3 if name.startswith("value") else 1e-2 for name in w}, 1e-5).step(loss)
    assert_same_weights(w, state["networks"], before)
