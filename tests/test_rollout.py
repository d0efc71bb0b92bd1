"""Tests of ``rlbook_lib.rollout``: the record against the environment replayed, one step at a time."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

from rlbook_lib.environments import BatchedCartPole, TorchCartPole, vectorize
from rlbook_lib.networks import CategoricalPolicy, GaussianPolicy, ValueNetwork, make_policy
from rlbook_lib.returns import gae
from rlbook_lib.rollout import Collector, Rollout, flatten, value_estimates
from rlbook_lib.training import load_checkpoint, save_checkpoint


class Corridor(gymnasium.Env):
    """Position 0 at first, one further each step; ends at 5 by itself; the reward is the position left."""

    observation_space = gymnasium.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit=None):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        reward, self.position = float(self.position), self.position + 1
        observation = np.array([self.position], np.float32)
        return observation, reward, self.position == 5, self.position == self.limit, {}


class TableValue:
    """V(s) = 100 + s, and the rows it was asked for."""

    def __init__(self):
        self.asked = []

    def numpy(self, observations):
        self.asked.append(len(observations))
        return 100 + observations[:, 0]


def collector(environments, steps=7, seed=0, log_std=0.0):
    policy = make_policy(environments.observation_space, environments.action_space, seed=1)
    if log_std:
        policy.log_std.data.fill_(log_std)
    if isinstance(environments, TorchCartPole):
        return Collector(environments, policy, steps, torch.Generator().manual_seed(seed))
    return Collector(environments, policy, steps, np.random.default_rng(seed))


def arrays(rollout):
    return {field.name: np.asarray(getattr(rollout, field.name)) for field in dataclasses.fields(rollout)}


def same(one, other):
    one, other = arrays(one), arrays(other)
    return all(np.array_equal(one[name], other[name]) for name in one)


# ------------------------------------------------------------------ the record


def test_the_record_is_the_environment_replayed():
    collected = collector(BatchedCartPole(3, seed=5), steps=40).collect()
    environments = BatchedCartPole(3, seed=5)
    observations = environments.reset()
    for t in range(40):
        assert np.array_equal(collected.observations[t], observations)
        step = environments.step(collected.actions[t])
        assert np.array_equal(collected.next_observations[t], step.next_observations)
        assert np.array_equal(collected.terminated[t], step.terminated)
        assert np.array_equal(collected.truncated[t], step.truncated)
        observations = step.observations
    assert collected.terminated.any() and (collected.rewards == 1).all()
    assert (collected.steps, collected.copies, len(collected)) == (40, 3, 120)


def test_shapes_and_types():
    rollout = collector(BatchedCartPole(3, seed=0)).collect()
    kinds = {name: (array.shape, array.dtype) for name, array in arrays(rollout).items()}
    single, flag = np.dtype(np.float32), np.dtype(bool)
    assert kinds == {
        "observations": ((7, 3, 4), single),
        "actions": ((7, 3), np.dtype(int)),
        "rewards": ((7, 3), single),
        "terminated": ((7, 3), flag),
        "truncated": ((7, 3), flag),
        "next_observations": ((7, 3, 4), single),
        "outputs": ((7, 3, 2), single),
        "log_probs": ((7, 3), single),
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        rollout.rewards = None


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_outputs_and_log_probs_are_those_of_the_policy_that_acted(env):
    collecting = collector(vectorize(env, 3, seed=0))
    batch = collecting.collect().batch()
    outputs = collecting.policy(batch.observations)
    assert torch.allclose(batch.outputs, outputs, atol=1e-5)
    assert torch.allclose(batch.log_probs, collecting.policy.log_prob_of(outputs, batch.actions), atol=1e-5)


def test_gaussian_actions_are_kept_as_drawn_and_clipped_for_the_environment():
    environments = vectorize("Pendulum-v1", 4, seed=0)
    rollout = collector(environments, steps=50, log_std=1.5).collect()
    assert rollout.actions.shape == (50, 4, 1) and np.abs(rollout.actions).max() > 2.0  # torque within -2..2
    other = vectorize("Pendulum-v1", 4, seed=0)
    other.reset()
    step = other.step(np.clip(rollout.actions[0], -2.0, 2.0))
    assert np.array_equal(rollout.next_observations[0], step.next_observations)


def test_the_environment_gets_actions_within_its_bounds():
    class Strict(Corridor):
        action_space = gymnasium.spaces.Box(-1.0, 0.5, (2,), np.float32)

        def step(self, action):
            assert self.action_space.contains(action)
            return super().step(0)

    rollout = collector(vectorize(Strict, 4, seed=0), steps=20, log_std=1.0).collect()
    assert rollout.actions.min() < -1.0 and rollout.actions.max() > 0.5  # what the log-probabilities are of


def test_two_calls_are_one_long_call():
    short = collector(BatchedCartPole(3, seed=2), steps=20)
    long = collector(BatchedCartPole(3, seed=2), steps=40).collect()
    first, second = short.collect(), short.collect()
    kept = {name: array.copy() for name, array in arrays(first).items()}
    short.collect()  # a later call leaves earlier rollouts as they are
    for name, array in arrays(long).items():
        assert np.allclose(array, np.concatenate([kept[name], arrays(second)[name]]), atol=1e-6)
        assert np.array_equal(arrays(first)[name], kept[name])


def test_the_first_axis_of_a_flat_array_is_time_first():
    array = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    flat = flatten(array)
    assert flat.shape == (12, 2) and np.array_equal(flat[4], array[1, 0])
    array[1, 0] = -1.0
    assert (flat[4] == -1.0).all()  # the same memory
    with pytest.raises(ValueError, match="array"):
        flatten(np.zeros(3))
    with pytest.raises(TypeError, match="array is .*; expected a ndarray or a Tensor"):
        flatten([[1.0]])


# ------------------------------------------------------------------ whole episodes


@pytest.mark.parametrize("limit", [500, 15])  # with the second one some episodes are truncated
def test_whole_episodes_end_where_the_mask_says(limit):
    rollout, mask = collector(BatchedCartPole(5, seed=3, max_steps=limit)).collect_episodes()
    ended = rollout.terminated | rollout.truncated
    lengths = mask.sum(0)
    assert rollout.steps == lengths.max() <= limit and len(set(lengths)) > 1
    for i, length in enumerate(lengths):
        assert ended[:, i].argmax() == length - 1  # the first end of the column
        assert mask[:length, i].all() and not mask[length:, i].any()


def test_every_call_starts_new_episodes_and_a_limit_truncates():
    collecting = collector(vectorize(Corridor, 2, seed=0))
    for _ in range(2):
        rollout, mask = collecting.collect_episodes()
        assert mask.all() and rollout.steps == 5 and rollout.terminated[-1].all()
        rollout, mask = collecting.collect_episodes(max_steps=3)
        assert rollout.observations[:, 0, 0].tolist() == [0.0, 1.0, 2.0]
        assert rollout.truncated.tolist() == [[False] * 2, [False] * 2, [True] * 2] and not rollout.terminated.any()


# ------------------------------------------------------------------ values


def test_values_are_evaluated_only_where_needed():
    """Copies run 0, 1, 2, then are truncated at 3; the buffer ends in the middle of the third episode."""
    rollout = collector(vectorize(lambda: Corridor(limit=3), 1, seed=0), steps=8).collect()
    network = TableValue()
    values, next_values = value_estimates(rollout, network)
    assert values[:, 0].tolist() == [100, 101, 102, 100, 101, 102, 100, 101]
    assert next_values[:, 0].tolist() == [101, 102, 103, 101, 102, 103, 101, 102]
    assert network.asked == [8, 3]  # all rows, then two truncations and the end of the buffer


def test_values_past_a_termination_are_zero():
    rollout = collector(vectorize(Corridor, 2, seed=0), steps=10).collect()
    network = TableValue()
    next_values = value_estimates(rollout, network)[1]
    assert next_values[:, 0].tolist() == [101, 102, 103, 104, 0] * 2
    assert network.asked == [20]


@pytest.mark.parametrize("steps", [40, 41])
def test_values_equal_those_of_every_next_observation(steps):
    rollout = collector(BatchedCartPole(4, seed=1, max_steps=15), steps=steps).collect()
    assert rollout.truncated.any() and rollout.terminated.any()
    network = ValueNetwork(4, seed=3, scale=10.0)
    values, next_values = value_estimates(rollout, network)
    with torch.no_grad():
        everywhere = network(torch.from_numpy(rollout.next_observations).flatten(0, 1)).numpy().reshape(steps, 4)
    assert np.allclose(next_values, np.where(rollout.terminated, 0.0, everywhere), atol=1e-4)
    assert np.allclose(values.ravel(), network(flatten(rollout.observations)).detach(), atol=1e-4)


def test_a_truncated_episode_of_known_value():
    """Reward 1 forever, stopped every 5 steps, V = 1 / (1 - gamma) exactly: no advantage is left anywhere.

    Had the stop been taken for a termination, the last step would be blamed for gamma V = 9.
    """

    class Constant(Corridor):
        def step(self, action):
            observation, _, _, truncated, info = super().step(action)
            return observation, 1.0, False, truncated, info

    class Exact:
        def numpy(self, observations):
            return np.full(len(observations), 10.0)

    rollout = collector(vectorize(lambda: Constant(limit=5), 2, seed=0), steps=12).collect()
    values, next_values = value_estimates(rollout, Exact())
    ends = (rollout.terminated, rollout.truncated)
    assert np.allclose(gae(rollout.rewards, values, next_values, *ends, 0.9, 0.95)[0], 0.0, atol=1e-6)
    wrong = gae(rollout.rewards, values, next_values, rollout.truncated, rollout.terminated, 0.9, 0.95)[0]
    assert np.allclose(wrong[4], -9.0, atol=1e-5) and np.allclose(wrong[0], -9.0 * (0.9 * 0.95) ** 4, atol=1e-5)


# ------------------------------------------------------------------ tensors


def test_tensors_stay_tensors():
    collecting = collector(TorchCartPole(6, seed=0, device="cpu", max_steps=20), steps=60)
    rollout = collecting.collect()
    assert all(isinstance(getattr(rollout, field.name), torch.Tensor) for field in dataclasses.fields(Rollout))
    network = ValueNetwork(4, seed=0)
    values, next_values = value_estimates(rollout, network)
    assert not values.requires_grad and values.shape == (60, 6)
    with torch.no_grad():
        everywhere = network(rollout.next_observations.flatten(0, 1)).reshape(60, 6)
    assert torch.allclose(next_values, torch.where(rollout.terminated, 0.0, everywhere), atol=1e-5)
    assert rollout.truncated.any() and rollout.terminated.any()
    assert rollout.batch().observations.shape == (360, 4)
    episodes, mask = collecting.collect_episodes()
    assert mask[0].all() and int(mask.sum(0).max()) == episodes.steps


def test_tensor_state_goes_on_where_it_stopped():
    collecting = collector(TorchCartPole(3, seed=0, device="cpu"))
    collecting.collect()
    state = collecting.state()
    expected = collecting.collect()
    other = collector(TorchCartPole(3, seed=9, device="cpu"), seed=8)
    other.load_state(state)
    assert same(other.collect(), expected)


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "rlbook/Maze-v0"])
def test_a_saved_collector_goes_on_bit_for_bit(env, tmp_path):
    collecting = collector(vectorize(env, 2, seed=0))
    collecting.collect()
    save_checkpoint(tmp_path / "state", collecting.state())
    expected = [collecting.collect() for _ in range(3)]
    other = collector(vectorize(env, 2, seed=0), seed=77)
    other.load_state(load_checkpoint(tmp_path / "state"))
    assert all(same(other.collect(), rollout) for rollout in expected)


def test_the_same_seed_gives_the_same_rollout_and_another_seed_another():
    one, two, three = (collector(BatchedCartPole(3, seed=0), seed=seed).collect() for seed in (0, 0, 1))
    assert same(one, two) and not same(one, three)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize("steps, error", [(0, ValueError), (-3, ValueError), (2.0, TypeError)])
def test_bad_numbers_of_steps_are_refused(steps, error):
    with pytest.raises(error, match="steps"):
        collector(BatchedCartPole(2, seed=0), steps=steps)
    with pytest.raises(error, match="max_steps"):
        collector(BatchedCartPole(2, seed=0)).collect_episodes(max_steps=steps)


def test_a_generator_of_the_wrong_kind_is_refused():
    policy = CategoricalPolicy(4, 2, seed=0)
    with pytest.raises(TypeError, match="rng"):
        Collector(BatchedCartPole(2, seed=0), policy, 3, torch.Generator())
    with pytest.raises(TypeError, match="rng"):
        Collector(TorchCartPole(2, seed=0, device="cpu"), policy, 3, np.random.default_rng(0))


def test_an_environment_that_is_no_vector_is_refused():
    for environments in ("CartPole-v1", Corridor()):
        with pytest.raises(TypeError, match="environments is .*; expected a VectorEnvironment"):
            Collector(environments, CategoricalPolicy(1, 2, seed=0), 3, np.random.default_rng(0))


def test_a_state_of_another_environment_is_refused():
    state = collector(BatchedCartPole(2, seed=0)).state()
    with pytest.raises(ValueError, match="copies"):
        collector(BatchedCartPole(3, seed=0)).load_state(state)


def test_a_nan_reward_stops_the_collection():
    class Broken(Corridor):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, np.nan, *rest

    with pytest.raises(ValueError, match="reward"):
        collector(vectorize(Broken, 2, seed=0)).collect()


def test_gaussian_policies_with_several_actions():
    policy = GaussianPolicy(3, 2, seed=0)
    actions, log_probs, outputs = policy.sample(np.zeros((5, 3), np.float32), np.random.default_rng(0))
    assert (actions.shape, log_probs.shape, outputs.shape) == ((5, 2), (5,), (5, 4))
