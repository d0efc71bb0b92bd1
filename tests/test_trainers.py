"""The contract of every trainer: one seed one run, exact resume, NaN stops it, environments closed, bad input refused.

A row is a way to begin a short run. ``iterate(*begin(), config, seed=..., state=...)`` yields its records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlbook_lib.dqn import DQNConfig, iterate_dqn, train_dqn
from rlbook_lib.environments import TorchCartPole, vectorize
from rlbook_lib.fine_tuning import SFTConfig, iterate_sft, train_sft
from rlbook_lib.grpo import GRPOConfig, iterate_grpo, train_grpo
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig
from rlbook_lib.policy_gradient import (
    A2CConfig,
    ReinforceConfig,
    iterate_a2c,
    iterate_reinforce,
    train_a2c,
    train_reinforce,
)
from rlbook_lib.ppo import PPOConfig, iterate_ppo, train_ppo
from rlbook_lib.reward_model import RewardModel, RewardModelConfig, iterate_reward_model, train_reward_model
from rlbook_lib.rlhf import RLHFConfig, iterate_rlhf, train_rlhf
from rlbook_lib.text_tasks import Sorting, preference_pairs
from rlbook_lib.training import TrainingError, frozen_copy, load_checkpoint, save_checkpoint
from rlbook_lib.trpo import TRPOConfig, iterate_trpo, train_trpo

torch.set_num_threads(1)

# ------------------------------------------------------------------------------------------------------- the rows


@dataclass
class Row:
    iterate: Callable[..., Any]
    train: Callable[..., Any]
    config: Any  # of a run of three updates or more
    begin: Callable[[], tuple[Any, ...]]  # what comes before the config: an environment, or a model and its task
    options: dict[str, Any]  # by name


def agent(iterate, train, config, env="CartPole-v1"):
    """A trainer in an environment: an id or a class, or a function that makes a vector environment."""
    ready_made = callable(env) and not isinstance(env, type)
    return Row(iterate, train, config, (lambda: (env(),)) if ready_made else lambda: (env,), {})


def model_of(seed=0):
    return Transformer(CharTokenizer(Sorting().alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=seed)


def language(iterate, train, config, **options):
    return Row(iterate, train, config, lambda: (model_of(), Sorting()), options)


DQN = DQNConfig(total_steps=200, copies=4, batch_size=32, hidden=(8,), learning_starts=64, n_step=3, epsilon_steps=150)
REINFORCE = ReinforceConfig(total_steps=500, episodes=4, hidden=(8,), max_steps=40)
A2C = A2CConfig(total_steps=160, copies=4, steps=8, hidden=(8,))
TRPO = TRPOConfig(total_steps=512, copies=4, steps=32, hidden=(8,), value_batch_size=50, value_epochs=2)
PPO = PPOConfig(total_steps=256, copies=4, steps=16, epochs=2, minibatches=2, hidden=(8,))
RLHF = RLHFConfig(
    updates=3, batch_size=16, minibatches=2, value_warmup=1, warmup=1, kl_target=0.5, pretraining_coefficient=0.1
)
GRPO = GRPOConfig(updates=3, prompts=4, group=4, minibatches=2, warmup=1, beta=0.05)
PAIRS = preference_pairs(model_of(), Sorting(), 40, seed=0)
REFERENCE = frozen_copy(model_of())


def tensor_poles():
    return TorchCartPole(4, seed=0, device="cpu")


def caller_poles():
    return gymnasium.make_vec("CartPole-v1", num_envs=4)


ROWS = {
    "dqn": agent(iterate_dqn, train_dqn, DQN),
    "dqn, copied target": agent(
        iterate_dqn,
        train_dqn,
        replace(DQN, target="copy", copy_interval=7, double=False, n_step=1, loss="squared", max_gradient_norm=0.1),
        "rlbook/Maze-v0",
    ),
    "dqn, Acrobot": agent(iterate_dqn, train_dqn, replace(DQN, steps_per_update=1), "Acrobot-v1"),
    "dqn, a caller's environment": agent(iterate_dqn, train_dqn, DQN, caller_poles),
    "reinforce": agent(iterate_reinforce, train_reinforce, REINFORCE),
    "reinforce, real actions": agent(
        iterate_reinforce, train_reinforce, replace(REINFORCE, baseline="mean"), "Pendulum-v1"
    ),
    "reinforce, tensors": agent(iterate_reinforce, train_reinforce, replace(REINFORCE, baseline="mean"), tensor_poles),
    "a2c": agent(iterate_a2c, train_a2c, replace(A2C, max_gradient_norm=0.5)),
    "a2c, maze": agent(iterate_a2c, train_a2c, A2C, "rlbook/Maze-v0"),
    "a2c, real actions": agent(iterate_a2c, train_a2c, replace(A2C, psi="n_step"), "Pendulum-v1"),
    "a2c, tensors": agent(iterate_a2c, train_a2c, A2C, tensor_poles),
    "trpo": agent(iterate_trpo, train_trpo, TRPO),
    "trpo, real actions": agent(iterate_trpo, train_trpo, TRPO, "Pendulum-v1"),
    "trpo, tensors": agent(iterate_trpo, train_trpo, TRPO, tensor_poles),
    "ppo": agent(iterate_ppo, train_ppo, PPO),
    "ppo, penalty": agent(iterate_ppo, train_ppo, replace(PPO, objective="penalty", kl_target=1e-4)),
    "ppo, everything falls": agent(
        iterate_ppo,
        train_ppo,
        replace(
            PPO,
            learning_rate_end=0.0,
            clip_end=0.01,
            normalize="minibatch",
            value_clip=0.2,
            max_gradient_norm=0.5,
            entropy_coefficient=0.01,
        ),
    ),
    "ppo, real actions": agent(iterate_ppo, train_ppo, replace(PPO, stop_kl=0.01), "Pendulum-v1"),
    "ppo, tensors": agent(iterate_ppo, train_ppo, PPO, tensor_poles),
    "sft": language(iterate_sft, train_sft, SFTConfig(updates=4, batch_size=8, warmup=2)),
    "reward model": Row(
        iterate_reward_model,
        train_reward_model,
        RewardModelConfig(epochs=3, batch_size=16),
        lambda: (RewardModel(model_of()), PAIRS),
        {},
    ),
    "rlhf": language(iterate_rlhf, train_rlhf, RLHF, reference=REFERENCE),
    "grpo": language(iterate_grpo, train_grpo, GRPO, reference=REFERENCE, reward=lambda p, text, f: float(len(text))),
}
AGENTS = ("dqn", "reinforce", "a2c", "trpo", "ppo")
TRAINERS = (*AGENTS, "sft", "reward model", "rlhf", "grpo")
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
every_trainer = pytest.mark.parametrize("row", [ROWS[name] for name in TRAINERS], ids=TRAINERS)
every_agent = pytest.mark.parametrize("row", [ROWS[name] for name in AGENTS], ids=AGENTS)


def run(row, seed=3, state=None, config=None):
    return row.iterate(*row.begin(), config or row.config, seed=seed, state=state, **row.options)


def train(row, seed=3, config=None, **options):
    return row.train(*row.begin(), config or row.config, seed=seed, **row.options, **options)


def told(record):
    return record.update, record.env_steps, record.metrics, record.state()


def identical(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(identical, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def without_history(state):
    return {name: part for name, part in state.items() if name != "history"}


# --------------------------------------------------------------------------------------------- records and seeds


@every_row
def test_records_count_updates_and_steps(row):
    records = [told(record) for record in run(row)]
    assert [update for update, *_ in records] == list(range(1, len(records) + 1)) and len(records) >= 3
    steps = [env_steps for _, env_steps, *_ in records]
    assert all(a < b for a, b in zip([0, *steps], steps))
    for update, env_steps, metrics, state in records:
        assert metrics and all(type(value) is float and math.isfinite(value) for value in metrics.values()), metrics
        assert (state["update"], state["env_steps"], state["seed"]) == (update, env_steps, 3)


@every_row
def test_one_seed_one_run_whatever_the_global_generators_do(row):
    torch.manual_seed(1)
    np.random.seed(1)
    first = [told(record) for record in run(row)]
    before = torch.manual_seed(2).get_state(), np.random.RandomState(2).get_state()[1]
    np.random.seed(2)
    second = [told(record) for record in run(row)]
    assert identical(first, second)
    assert torch.equal(torch.get_rng_state(), before[0]) and np.array_equal(np.random.get_state()[1], before[1])
    assert not identical(first[0][2], told(next(run(row, seed=4)))[2])


# ------------------------------------------------------------------------------------------------------ going on


@every_row
def test_a_run_goes_on_bit_for_bit_from_any_update(row, tmp_path):
    records = [told(record) for record in run(row)]
    for i in sorted({0, len(records) // 2, len(records) - 2}):
        save_checkpoint(tmp_path / "run", records[i][3])
        for state in (records[i][3], load_checkpoint(tmp_path / "run")):
            rest = [told(record) for record in run(row, state=state)]
            assert identical(rest, records[i + 1 :])


@every_row
def test_a_run_that_had_ended_tells_its_last_record_again(row):
    for record in run(row):
        end = told(record)
    (again,) = [told(record) for record in run(row, state=end[3])]
    assert identical(again, (*end[:2], {}, end[3]))


@every_trainer
def test_training_goes_on_from_its_checkpoint(row, tmp_path):
    path = tmp_path / "run"
    whole = train(row)
    train(row, checkpoint=path, checkpoint_every=3, stop=lambda record: record.update == 2)
    assert load_checkpoint(path)["update"] == 2
    rest = train(row, checkpoint=path)
    assert identical(without_history(rest.state()), without_history(whole.state())) and rest.updates == whole.updates
    for name, curve in whole.history.items():
        np.testing.assert_array_equal(rest.history[name], curve)


@every_trainer
def test_a_state_of_another_run_is_refused(row):
    state = next(run(row)).state()
    name = "learning_rate" if hasattr(row.config, "learning_rate") else "value_learning_rate"
    with pytest.raises(ValueError, match=f"{name} was .* and is 0.123"):
        next(run(row, state=state, config=replace(row.config, **{name: 0.123})))
    with pytest.raises(ValueError, match="seed was 3 and is 4"):
        next(run(row, state=state, seed=4))


# ---------------------------------------------------------------------------------------------------- what breaks


@every_trainer
def test_nan_stops_the_run_and_leaves_a_checkpoint_that_goes_on(row, tmp_path):
    path, whole = tmp_path / "run", train(row)

    def poison(record):
        if record.update == 2:
            with torch.no_grad():
                next(record.policy.parameters()).fill_(math.nan)
        return False

    with pytest.raises((TrainingError, ValueError), match="(?i)nan|finite"):
        train(row, checkpoint=path, checkpoint_every=1, stop=poison)
    assert load_checkpoint(path)["update"] == 2
    rest = train(row, checkpoint=path)
    assert identical(without_history(rest.state()), without_history(whole.state()))


class Poles(gymnasium.Env):
    """Two observations, two actions, reward 1; episodes of seven steps. Step ``breaks`` of a copy is no number."""

    observation_space, action_space = Box(-1.0, 1.0, (2,)), Discrete(2)
    broken_reward, broken_observation, breaks = 1.0, 0.5, 0
    closed: list["Poles"] = []

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(2, 0.5, np.float32), {}

    def step(self, action):
        self.steps += 1
        now = self.steps == self.breaks
        observation, reward = (self.broken_observation, self.broken_reward) if now else (0.5, 1.0)
        return np.full(2, observation, np.float32), reward, self.steps % 7 == 0, False, {}

    def close(self):
        self.closed.append(self)


@every_agent
@pytest.mark.parametrize("what, value", [("reward", math.nan), ("observation", math.nan), ("observation", math.inf)])
def test_what_is_not_a_number_names_the_environment(row, what, value, tmp_path):
    class Broken(Poles):
        breaks, closed = 70, []

    setattr(Broken, f"broken_{what}", value)
    config = replace(row.config, total_steps=2000)
    with pytest.raises(ValueError, match=f"Broken: the {what} of copy 0 at step 70 is .*{value}"):
        row.train(Broken, config, seed=0, checkpoint=tmp_path / "run", checkpoint_every=1)
    assert load_checkpoint(tmp_path / "run")["update"] >= 1
    assert len(Broken.closed) == len(set(map(id, Broken.closed))) > 0  # each copy, once


# -------------------------------------------------------------------------------------------------------- closing


@every_agent
def test_environments_are_closed_by_whoever_made_them(row):
    class Counted(Poles):
        closed = []

    for stop in (None, lambda record: record.update == 2):
        row.train(Counted, row.config, seed=0, stop=stop)
        assert len(Counted.closed) == 4
        Counted.closed.clear()
    began = row.iterate(Counted, row.config, seed=0)
    next(began)
    began.close()
    assert len(Counted.closed) == 4
    Counted.closed.clear()
    for ready_made in (gymnasium.vector.SyncVectorEnv([Counted] * 4), vectorize(Counted, 4, seed=0)):
        row.train(ready_made, row.config, seed=0)
        assert not Counted.closed


@every_agent
def test_environments_that_a_run_cannot_begin_in_are_closed_too(row):
    class Several(Poles):
        closed, action_space = [], MultiDiscrete([2, 2])

    class Unreadable(Poles):
        closed, observation_space = [], gymnasium.spaces.Tuple((Discrete(2),))

    for env, words in ((Several, "action space"), (Unreadable, "observation space")):
        with pytest.raises(ValueError, match=f"{env.__name__}.*{words}"):
            next(row.iterate(env, row.config, seed=0))

    class Refused(Poles):
        closed = []

    state = next(row.iterate(Refused, row.config, seed=0)).state()
    Refused.closed.clear()
    with pytest.raises(ValueError, match="seed was 0 and is 1"):
        next(row.iterate(Refused, row.config, seed=1, state=state))
    assert len(Refused.closed) == 4


@every_agent
def test_environments_without_a_name_are_refused(row):
    with pytest.raises(ValueError, match="NoSuchThing-v0"):
        next(row.iterate("NoSuchThing-v0", row.config, seed=0))
    with pytest.raises(TypeError, match="env is 3; expected a Gymnasium id"):
        next(row.iterate(3, row.config, seed=0))


# -------------------------------------------------------------------------------------------- refused at the call


@every_trainer
def test_a_wrong_config_and_a_wrong_seed_are_refused_at_the_call(row):
    kind = type(row.config).__name__
    for call in (row.iterate, row.train):
        for wrong in ({"epochs": 3}, {}, row.config.__class__, ToyConfig()):
            with pytest.raises(TypeError, match=f"config is .*; expected an? {kind}"):
                call(*row.begin(), wrong, seed=0, **row.options)
        with pytest.raises(TypeError, match="seed is 1.5; expected a whole number, 0 or more"):
            call(*row.begin(), row.config, seed=1.5, **row.options)
        with pytest.raises(ValueError, match="seed is -1; expected a whole number, 0 or more"):
            call(*row.begin(), row.config, seed=-1, **row.options)


@dataclass(frozen=True)
class ToyConfig:
    total_steps: int = 3
    updates: int = 3


# -------------------------------------------------------------------------------- the same words mean the same


@pytest.mark.parametrize("config", [A2CConfig, ReinforceConfig, TRPOConfig, PPOConfig])
def test_the_scale_of_returns_is_the_sum_of_the_discounts_or_one(config):
    assert config(gamma=0.9).scale == pytest.approx(sum(0.9**k for k in range(1000)))
    assert config(gamma=1.0).scale == 1.0
    if config is not ReinforceConfig:
        assert config(gamma=0.9, return_scale=7.0).scale == 7.0


@pytest.mark.parametrize(
    "row", [ROWS[name] for name in ("reinforce", "a2c", "trpo", "ppo")], ids=["reinforce", "a2c", "trpo", "ppo"]
)
def test_the_value_loss_is_half_the_mean_squared_error_in_units_of_reward(row):
    """In a world of one state, one step and reward 6 the error is 6 - V: told before or after the steps of an update."""

    class Six(Poles):
        closed = []

        def step(self, action):
            return np.full(2, 0.5, np.float32), 6.0, True, False, {}

    rate = {"value_learning_rate": 1e-9} if hasattr(row.config, "value_learning_rate") else {"learning_rate": 1e-9}
    record = next(row.iterate(Six, replace(row.config, gamma=0.9, **rate), seed=0))
    parts = record.state()["networks"]
    value = [torch.as_tensor(parts[f"value.network.{i}.{name}"]) for i in (0, 2) for name in ("weight", "bias")]
    activation = torch.tanh if row.config.activation == "tanh" else torch.relu
    v = 10.0 * (value[2] @ activation(value[0] @ torch.full((2,), 0.5) + value[1]) + value[3])
    assert record.metrics["value_loss"] == pytest.approx(0.5 * (6.0 - v.item()) ** 2, rel=1e-3)
