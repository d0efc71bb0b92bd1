"""Tests of ``rlbook_lib.training``: a toy trainer is stopped, killed and resumed in every way, and ends the same."""

import copy
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlbook_lib.dqn import DQNConfig, train_dqn
from rlbook_lib.networks import CategoricalPolicy, GaussianPolicy
from rlbook_lib.training import (
    Adam,
    Run,
    TrainingError,
    Update,
    evaluate_policy,
    frozen_copy,
    gradient_step,
    learning_rate_share,
    load_checkpoint,
    pack,
    save_checkpoint,
    split_seed,
    train,
    unpack,
)
from tests.full_disk import no_file_longer_than

torch.set_num_threads(1)


# ---------------------------------------------------------------------- a trainer that learns a bandit


@dataclass(frozen=True)
class ToyConfig:
    """A toy: how long, how fast, how wide; ``pause`` in seconds makes it slow enough to be hit."""

    total_steps: int = 80
    learning_rate: float = 0.05
    hidden: tuple[int, ...] = (4,)
    pause: float = 0.0


@dataclass
class Toy(Run):
    """Cross-entropy on random targets: a network, fused Adam, a numpy and a torch generator, a number."""

    network: CategoricalPolicy
    optimizer: torch.optim.Optimizer
    rng: np.random.Generator
    generator: torch.Generator
    total: float = 0.0

    def learn(self):
        x = torch.tensor(self.rng.standard_normal((8, 3)), dtype=torch.float32)
        actions = torch.randint(2, (8,), generator=self.generator)
        loss = -self.policy.log_prob_of(self.policy(x), actions).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(self.config.pause)
        self.total += loss.item()
        return loss.item()


def new_toy(config, seed):
    policy = CategoricalPolicy(3, 2, hidden=config.hidden, seed=seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate, fused=True)
    return Toy(
        config, seed, policy, policy, optimizer, np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    )


def iterate_toy(config, *, seed, state=None):
    toy = new_toy(config, seed)
    yield from toy.go_on(state)
    while not toy.ended:
        loss, number = toy.learn(), float(toy.update + 1)
        yield toy.record({"loss": loss, **({"episode_return": number} if number % 3 == 0 else {})}, 8)


def train_through(change, **options):
    """The toy, its records changed on the way."""
    return train(lambda *args, **rest: change(iterate_toy(*args, **rest)), ToyConfig(), seed=0, **options)


def train_toy(config=ToyConfig(), seed=0, **options):
    return train(iterate_toy, config, seed=seed, **options)


def same(one, other):
    """Whether two states are equal, bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and same_tensors(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def same_tensors(one, other):
    """Equal shape, kind and numbers; NaN equals NaN."""
    return one.dtype == other.dtype and np.array_equal(one.numpy(), other.numpy(), equal_nan=one.is_floating_point())


# ---------------------------------------------------------------------- the loop


def test_the_curves_are_what_the_records_said():
    records = [(r.update, r.env_steps, r.metrics) for r in iterate_toy(ToyConfig(), seed=0)]
    result = train_toy()
    assert result.history["update"].tolist() == [u for u, _, _ in records] == list(range(1, 11))
    assert result.history["env_steps"].tolist() == [s for _, s, _ in records]
    assert result.history["loss"].tolist() == [m["loss"] for _, _, m in records]
    expected = [m.get("episode_return", math.nan) for _, _, m in records]
    assert np.array_equal(result.history["episode_return"], expected, equal_nan=True)
    assert (result.updates, result.env_steps) == (10, 80)
    assert isinstance(result.policy, CategoricalPolicy)


def test_stop_ends_the_run_after_the_update_that_it_saw():
    result = train_toy(stop=lambda record: record.metrics.get("episode_return", 0) >= 6)
    assert result.updates == 6 and len(result.history["loss"]) == 6


def test_a_progress_bar_is_shown_only_when_asked_for(capsys):
    train_toy()
    assert capsys.readouterr() == ("", "")
    train_toy(progress=True)
    shown = capsys.readouterr()
    assert "80" in shown.out + shown.err


def test_a_trainer_without_updates_is_an_error():
    with pytest.raises(ValueError, match="begin made no update"):
        train_through(lambda records: iter([]))
    with pytest.raises(ValueError, match="checkpoint_every"):
        train_toy(checkpoint_every=0)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"stop": 5}, "stop is 5; expected a function"),
        ({"progress": 3}, "progress is 3; expected True or False"),
        ({"checkpoint_every": 2.5}, "checkpoint_every is 2.5; expected a whole number, 1 or more"),
        ({"state": 7}, "state is 7; expected a mapping or text or a Path"),
        ({"check_point": "run.pt"}, "check_point is no option here; expected one of state, progress, stop, checkpoint"),
    ],
)
def test_options_are_checked_by_name(wrong, said):
    small = DQNConfig(total_steps=100, learning_starts=50)
    for run in (train_toy, lambda **options: train_dqn("CartPole-v1", small, seed=0, **options)):
        with pytest.raises(TypeError, match=said):
            run(**wrong)


def spoil(records, at, how):
    for record in records:
        if record.update == at:
            record = how(record)
        yield record


def nan_metric(record):
    return Update(record.update, record.env_steps, {**record.metrics, "loss": math.nan}, record.policy, record.state)


def nan_parameter(record):
    with torch.no_grad():
        record.policy.network[0].weight[1, 2] = math.nan
    return record


def nan_elsewhere(record):
    state = {**record.state(), "critic": {"weight": torch.tensor([0.0, math.nan])}}
    return Update(record.update, record.env_steps, record.metrics, record.policy, lambda: state)


@pytest.mark.parametrize(
    "how, said",
    [
        (nan_metric, "update 6: the metric 'loss'"),
        (nan_parameter, r"update 6: the parameter 'network\.0\.weight'"),
        (nan_elsewhere, r"state\['critic'\]\['weight'\] holds NaN"),
    ],
)
def test_nan_stops_the_run_and_the_last_good_checkpoint_stays(tmp_path, how, said):
    path = tmp_path / "run.pt"
    with pytest.raises(TrainingError, match=said):
        train_through(lambda records: spoil(records, 6, how), checkpoint=path, checkpoint_every=1)
    assert load_checkpoint(path)["update"] == 5
    assert same(train_toy(checkpoint=path).state(), train_toy().state())
    assert os.listdir(tmp_path) == ["run.pt"]


def test_an_error_of_the_environment_keeps_the_last_good_checkpoint(tmp_path):
    def broken(record):
        raise ValueError("Toy-v0: the reward of copy 3 at step 17 is nan")

    with pytest.raises(ValueError, match="copy 3"):
        train_through(lambda records: spoil(records, 8, broken), checkpoint=tmp_path / "run.pt", checkpoint_every=3)
    assert load_checkpoint(tmp_path / "run.pt")["update"] == 6


# ---------------------------------------------------------------------- stopping and going on


@pytest.mark.parametrize("at", [1, 4, 9, 10])
def test_a_run_resumed_at_any_update_ends_the_same(tmp_path, at):
    whole = train_toy()
    state = train_toy(stop=lambda record: record.update == at).state()
    kept = copy.deepcopy(state)
    save_checkpoint(tmp_path / "run.pt", state)
    for source in (state, tmp_path / "run.pt", str(tmp_path / "run.pt")):
        result = train_toy(state=source)
        assert same(result.state(), whole.state())
        assert result.history.keys() == whole.history.keys()
        for name, curve in whole.history.items():
            assert np.array_equal(result.history[name], curve, equal_nan=True), name
    assert same(state, kept)  # training on did not write into it


def test_a_state_is_not_changed_by_further_training():
    states = []
    for record in iterate_toy(ToyConfig(), seed=0):
        states.append(record.state())
        if record.update == 1:
            first = copy.deepcopy(states[0])
    assert same(states[0], first)
    assert not same(states[0]["network"], states[-1]["network"])


def test_a_finished_run_is_not_trained_further(tmp_path):
    path = tmp_path / "run.pt"
    first, again = train_toy(checkpoint=path), train_toy(checkpoint=path)
    assert same(first.state(), again.state())
    assert again.history["loss"].tolist() == first.history["loss"].tolist()


def test_checkpoints_come_every_so_many_updates_and_at_the_end(tmp_path):
    path, seen = tmp_path / "run.pt", []

    def look(record):
        seen.append(load_checkpoint(path)["update"] if path.exists() else 0)
        return False

    train_toy(checkpoint=path, checkpoint_every=4, stop=look)
    assert seen == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8]
    assert load_checkpoint(path)["update"] == 10


@pytest.mark.parametrize(
    "config, seed, said",
    [
        (ToyConfig(learning_rate=0.1), 0, "learning_rate was 0.05 and is 0.1"),
        (ToyConfig(), 1, "seed was 0 and is 1"),
        (ToyConfig(hidden=(4, 4)), 0, r"hidden was \(4,\) and is \(4, 4\)"),
    ],
)
def test_other_settings_cannot_go_on(tmp_path, config, seed, said):
    path = tmp_path / "run.pt"
    state = train_toy(checkpoint=path).state()
    for options in ({"state": state}, {"checkpoint": path}, {"state": path}):
        with pytest.raises(ValueError, match=said):
            train_toy(config, seed, **options)
    with pytest.raises(ValueError, match="run.pt.*" + said):
        train_toy(config, seed, checkpoint=path)


def test_a_state_of_something_else_is_refused():
    with pytest.raises(ValueError, match="config"):
        train_toy(state={"weights": torch.zeros(3)})


# ---------------------------------------------------------------------- interruptions


def interrupting(records, times):
    """Ctrl-C in the middle of an update, ``times`` times."""
    for record in records:
        if record.update == 5:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        yield record


def test_one_interrupt_ends_the_update_and_saves(tmp_path):
    path = tmp_path / "run.pt"
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train_through(lambda records: interrupting(records, 1), checkpoint=path, checkpoint_every=100)
    assert load_checkpoint(path)["update"] == 5
    assert same(train_toy(checkpoint=path).state(), train_toy().state())
    assert signal.getsignal(signal.SIGINT) is before


def test_stop_sees_the_last_record_of_an_interrupted_run():
    seen = []
    with pytest.raises(KeyboardInterrupt):
        train_through(lambda records: interrupting(records, 1), stop=lambda record: seen.append(record.update))
    assert seen == [1, 2, 3, 4, 5]


def test_a_checkpoint_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match="expected a file in a folder that exists"):
        train_toy(checkpoint=tmp_path / "new" / "run.pt")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_keeps_the_checkpoint_before_and_names_the_file(tmp_path):
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"good": 1})
    with no_file_longer_than(20_000), pytest.raises(OSError, match="the checkpoint before this one stays: .*a.pt"):
        save_checkpoint(path, {"large": torch.zeros(100_000)})
    assert load_checkpoint(path) == {"good": 1} and [file.name for file in tmp_path.iterdir()] == ["a.pt"]


def test_two_interrupts_stop_at_once_and_save_nothing(tmp_path):
    path = tmp_path / "run.pt"
    with pytest.raises(KeyboardInterrupt):
        train_through(lambda records: interrupting(records, 2), checkpoint=path, checkpoint_every=3)
    assert load_checkpoint(path)["update"] == 3


def test_training_works_in_another_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(train_toy()))
    thread.start()
    thread.join()
    assert results[0].updates == 10


KILLED = """
import os, random, signal, sys, time
sys.path.insert(0, {folder!r})
from test_training import endless, load_checkpoint

chance = random.Random(0)
for trainer in ("toy", "dqn"):
    endless(trainer, stop=lambda record: record.update == 2)  # imports what the first step of an optimizer needs
    path, updates = os.path.join(sys.argv[1], trainer + ".pt"), 0
    for _ in range(5):                                    # each run goes on from what the one before it left
        out, into = os.pipe()
        child = os.fork()
        if child == 0:                                    # an update is told after it was saved, if it is to be saved
            os.close(out)                                 # so that it ends when nobody listens any more
            endless(trainer, checkpoint=path, checkpoint_every=3,
                    stop=lambda record: os.write(into, b"%9d" % record.update) < 0)
        os.close(into)
        while not (os.path.exists(path) and load_checkpoint(path)["update"] > updates):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open(out, "rb") as file:
            told = int(file.read()[-9:])
        updates = load_checkpoint(path)["update"]
        print(trainer, told, updates, flush=True)
"""


def endless(trainer, **options):
    """A run that only ends when it is killed or stopped: of the toy, or of DQN."""
    if trainer == "toy":
        return train_toy(ToyConfig(total_steps=10**9, pause=0.001), **options)
    config = DQNConfig(
        total_steps=10**9, copies=4, batch_size=32, hidden=(16,), learning_starts=64, buffer_capacity=300
    )
    return train_dqn("CartPole-v1", config, seed=0, **options)


@pytest.mark.slow
def test_a_killed_run_loses_at_most_what_came_after_the_last_save_and_goes_on_the_same(tmp_path):
    code = KILLED.format(folder=str(Path(__file__).parent))
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert killed.returncode == 0, killed.stderr
    lines = [line.split() for line in killed.stdout.splitlines()]
    for trainer in ("toy", "dqn"):
        told, saved = zip(*((int(a), int(b)) for name, a, b in lines if name == trainer))
        assert len(saved) == 5 and list(saved) == sorted(set(saved))  # every run got further
        assert all(b % 3 == 0 and b >= a - a % 3 for a, b in zip(told, saved))
        whole = endless(trainer, stop=lambda record: record.update == saved[-1])
        assert same(load_checkpoint(tmp_path / f"{trainer}.pt"), whole.state())
    assert set(os.listdir(tmp_path)) <= {
        f"{dot}{name}.pt{part}" for name in ("toy", "dqn") for dot, part in (("", ""), (".", ".part"))
    }


# ---------------------------------------------------------------------- checkpoints


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path):
    state = {
        "tensor": torch.arange(6.0).reshape(2, 3),
        "long": torch.tensor([2**60]),
        "big": 2**127 + 1,
        "none": None,
        "nested": {"list": [1, 2.5, "word", True], "tuple": (1, (2, 3)), 7: "integer keys"},
        "infinite": torch.tensor([-math.inf]),
        "empty": {},
    }
    save_checkpoint(tmp_path / "a.pt", state)
    assert same(load_checkpoint(tmp_path / "a.pt"), state)
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize(
    "value, said",
    [
        (np.zeros(3), "ndarray"),
        (np.float64(1.0), "float64"),
        (ToyConfig(), "ToyConfig"),
        (lambda: 0, "function"),
        ({(1, 2): 0}, "key"),
        ([{"a": {1}}], "set"),
    ],
)
def test_only_tensors_and_plain_data_are_saved(tmp_path, value, said):
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"good": 1})
    with pytest.raises(TypeError, match=rf"state\['x'\].*{said}"):
        save_checkpoint(path, {"x": value})
    assert load_checkpoint(path) == {"good": 1}


def test_a_damaged_checkpoint_is_named(tmp_path):
    whole, path = tmp_path / "whole.pt", tmp_path / "damaged.pt"
    save_checkpoint(whole, train_toy().state())
    content = whole.read_bytes()
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match="damaged.pt"):
            load_checkpoint(path)
    for place in range(0, len(content), len(content) // 40):  # a flipped bit is seen, or was not read
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            assert same(load_checkpoint(path), load_checkpoint(whole))
        except ValueError as error:
            assert "damaged.pt" in str(error)
    for foreign in (b"hello\n" * 50, pickle.dumps([1, 2]), pickle.dumps(ToyConfig())):
        path.write_bytes(foreign)
        with pytest.raises(ValueError, match="damaged.pt"):
            load_checkpoint(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="damaged.pt.*list"):
        load_checkpoint(path)
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "absent.pt")


class Trap:
    """A pickle that would run code when it is read."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state": Trap()}, "trap.pt")
    with pytest.raises(ValueError, match="trap.pt"):
        load_checkpoint("trap.pt")
    assert os.listdir(tmp_path) == ["trap.pt"]


def test_a_failed_write_keeps_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"good": 1})

    def full(state, file):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="space"):
        save_checkpoint(path, {"good": 2})
    assert load_checkpoint(path) == {"good": 1}
    assert os.listdir(tmp_path) == ["a.pt"]


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    path, events = tmp_path / "a.pt", []
    save_checkpoint(path, {"n": 1})
    sync, replace = os.fsync, os.replace

    def look(part, target):
        events.append("replace")
        assert load_checkpoint(path) == {"n": 1} and load_checkpoint(part) == {"n": 2}
        replace(part, target)

    monkeypatch.setattr(os, "fsync", lambda file: (events.append("sync"), sync(file)))
    monkeypatch.setattr(os, "replace", look)
    save_checkpoint(path, {"n": 2})
    assert events == ["sync", "replace"] + ["sync"] * (os.name == "posix")
    assert load_checkpoint(path) == {"n": 2}


def test_what_cannot_be_a_checkpoint_is_refused_before_the_first_update(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere" / "run.pt"):
        with pytest.raises(ValueError, match="checkpoint is .*; expected a file in a folder that exists"):
            train_toy(checkpoint=path, stop=lambda record: pytest.fail("an update was made"))
    with pytest.raises(TypeError, match="stop is 3; expected a function"):
        train_toy(stop=3)
    with pytest.raises(TypeError, match=r"state is \[1, 2\]; expected a mapping"):
        save_checkpoint(tmp_path / "a.pt", [1, 2])


# ---------------------------------------------------------------------- generators


def test_generators_go_on_where_they_stood(tmp_path):
    ours, torchs = np.random.default_rng(3), torch.Generator().manual_seed(3)
    (
        ours.random(5),
        ours.integers(3, dtype=np.int32),
        torch.rand(3, generator=torchs),
    )  # half a 64-bit number is left over
    save_checkpoint(tmp_path / "a.pt", {"ours": pack(ours), "torchs": pack(torchs)})
    expected = ours.integers(10, size=5, dtype=np.int32), ours.standard_normal(7), torch.rand(4, generator=torchs)
    state = load_checkpoint(tmp_path / "a.pt")
    assert state["ours"]["state"]["state"] > 2**64  # a 128-bit integer
    ours, torchs = np.random.default_rng(0), torch.Generator()
    unpack(ours, state["ours"])
    unpack(torchs, state["torchs"])
    again = ours.integers(10, size=5, dtype=np.int32), ours.standard_normal(7), torch.rand(4, generator=torchs)
    assert all(np.array_equal(a, b) for a, b in zip(expected, again))


def test_only_generators_with_plain_states_are_packed():
    with pytest.raises(TypeError, match="part is .*; expected numpy's default generator"):
        pack(np.random.Generator(np.random.MT19937(0)))


# ---------------------------------------------------------------------- evaluation


class Countdown(gym.Env):
    """Reward 1 a step; ends after 2 to 6 steps, drawn at reset; by truncation when the number is even."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.length = int(self.np_random.integers(2, 7))
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        over = self.left == 0
        return np.zeros(2, np.float32), 1.0 + action, over and self.length % 2 == 1, over and self.length % 2 == 0, {}


class Always:
    """A policy that always takes one action."""

    def __init__(self, action):
        self.action = action

    def act(self, observations, greedy=True):
        assert greedy
        return np.full(len(observations), self.action)


def test_evaluation_counts_one_whole_episode_per_copy():
    returns = evaluate_policy(Always(0), Countdown, episodes=60, seed=0)
    assert returns.shape == (60,)
    assert set(returns) == {2, 3, 4, 5, 6}  # neither more nor less than one episode
    assert np.array_equal(evaluate_policy(Always(1), Countdown, episodes=60, seed=0), 2 * returns)
    assert np.array_equal(evaluate_policy(Always(0), Countdown, episodes=60, seed=0), returns)
    assert not np.array_equal(evaluate_policy(Always(0), Countdown, episodes=60, seed=1), returns)
    assert evaluate_policy(Always(0), Countdown, episodes=60, seed=0, max_steps=3).max() == 3


class Upright:
    """Push to where the pole leans and turns: balances CartPole."""

    def act(self, observations, greedy=True):
        return (observations @ np.array([0.02, 0.1, 1.0, 0.5]) > 0).astype(np.int64)


def test_a_good_controller_gets_500_on_cartpole_and_a_bad_one_about_ten():
    assert (evaluate_policy(Upright(), "CartPole-v1", episodes=10, seed=0) == 500).all()
    bad = evaluate_policy(Always(1), "CartPole-v1", episodes=20, seed=0)
    assert 8 <= bad.min() and bad.max() <= 11


def test_actions_of_real_numbers_reach_the_environment_within_its_bounds():
    policy = GaussianPolicy(3, 1, seed=0, low=-2.0, high=2.0)
    with torch.no_grad():
        policy.network[-1].bias.fill_(50.0)  # the mean is far out of bounds
    returns = evaluate_policy(policy, "Pendulum-v1", episodes=3, seed=0)
    assert returns.shape == (3,) and (returns < -100).all() and (returns > -3300).all()


def test_split_seeds_are_those_of_numpy_and_the_first_ones_stay():
    assert split_seed(7, 3) == np.random.SeedSequence(7).generate_state(3).tolist() == split_seed(7, 5)[:3]
    assert len({*split_seed(7, 5), *split_seed(8, 5)}) == 10


def test_a_number_is_a_part_of_a_run_and_a_missing_part_is_named():
    toy, other = new_toy(ToyConfig(), 0), new_toy(ToyConfig(), 0)
    toy.total = 0.25
    toy.record({}, 8)
    state = toy.state()
    assert list(other.go_on(state)) == [] and (other.total, other.update, other.env_steps) == (0.25, 1, 8)
    older = {name: part for name, part in state.items() if name not in ("total", "rng")}
    with pytest.raises(ValueError, match="state is without rng, total; expected what this version of Toy saves"):
        list(new_toy(ToyConfig(), 0).go_on(older))


def test_the_learning_rate_rises_from_nothing_and_falls_to_its_last_share():
    shares = [learning_rate_share(t, 10, 4, 0.3) for t in range(10)]
    assert shares == pytest.approx([0.25, 0.5 * 0.9, 0.75 * 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.3])


def test_a_frozen_copy_neither_learns_nor_drops_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    frozen = frozen_copy(model)
    assert not frozen[1].training and not any(p.requires_grad for p in frozen.parameters())
    assert model[1].training and all(p.requires_grad for p in model.parameters())
    assert torch.equal(frozen[0].weight, model[0].weight) and frozen[0].weight is not model[0].weight


def test_a_gradient_step_by_hand():
    x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = torch.optim.SGD([x], lr=1.0)
    assert math.isnan(gradient_step(optimizer, (x**2).sum() / 2))  # to 0: the gradient is x
    assert x.tolist() == [0.0, 0.0]
    norm = gradient_step(optimizer, (x * torch.tensor([3.0, 4.0])).sum(), learning_rate=0.5, max_norm=1.0)
    assert norm == pytest.approx(5.0) and x.tolist() == pytest.approx([-0.3, -0.4])
    for broken in (math.nan, math.inf):
        with pytest.raises(TrainingError, match=f"the loss is -?{broken}"):
            gradient_step(optimizer, (x * broken).sum())
    assert x.tolist() == pytest.approx([-0.3, -0.4])


def test_evaluation_does_not_use_up_an_environment():
    for env in (Countdown(), gym.make_vec("CartPole-v1", 2), 3):
        with pytest.raises(TypeError, match="env"):
            evaluate_policy(Always(0), env, seed=0)
    with pytest.raises(TypeError, match="policy is None; expected something with a method act"):
        evaluate_policy(None, "CartPole-v1", seed=0)


def test_evaluation_leaves_a_networks_policy_as_it_was():
    policy = CategoricalPolicy(4, 2, seed=0)
    before = pack(policy)
    evaluate_policy(policy, "CartPole-v1", episodes=3, seed=0)
    assert same(pack(policy), before)


@pytest.mark.parametrize(
    "options, said", [({"episodes": 0}, "episodes"), ({"max_steps": 0}, "max_steps"), ({"seed": -1}, "seed")]
)
def test_evaluation_refuses_what_it_cannot_do(options, said):
    with pytest.raises(ValueError, match=said):
        evaluate_policy(Always(0), "CartPole-v1", **{"seed": 0, **options})


# ---------------------------------------------------------------------- Adam


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_takes_the_steps_of_torch_optim_bit_for_bit(fused, decay):
    ours, theirs = (nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    settings = {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-5}
    adam = Adam(ours.parameters(), decay=decay, fused=fused, **settings)
    peer = torch.optim.AdamW(theirs.parameters(), weight_decay=decay, fused=fused, **settings)
    for step in range(20):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
        for network, optimizer in ((ours, adam), (theirs, peer)):
            gradient_step(optimizer, (network(x) ** 2).sum() + network(x)[:, 0].sum(), learning_rate=0.02 / (1 + step))
    for mine, peers in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, peers)
    mine, peers = adam.state_dict(), peer.state_dict()
    assert [group["lr"] for group in mine["param_groups"]] == [group["lr"] for group in peers["param_groups"]]
    for number, entry in peers["state"].items():
        assert entry.keys() == mine["state"][number].keys()
        assert all(torch.equal(entry[name], mine["state"][number][name]) for name in entry)


def test_adam_goes_on_where_it_was_with_the_rates_of_its_groups():
    def make():
        torch.manual_seed(1)
        a, b = nn.Linear(2, 1), nn.Linear(2, 1)
        return a, b, Adam([{"params": a.parameters()}, {"params": b.parameters(), "lr": 0.5}], 0.1)

    def steps(a, b, optimizer, count):
        for _ in range(count):
            gradient_step(optimizer, (a(torch.ones(2)) - 3) ** 2 + (b(torch.ones(2)) + 3) ** 2)

    a, b, optimizer = make()
    before = b.weight.detach().clone()
    steps(a, b, optimizer, 1)
    torch.testing.assert_close(
        (b.weight - before).abs(), torch.full((1, 2), 0.5)
    )  # the first step is the rate, up to eps
    kept = pack(optimizer), pack(a), pack(b)
    steps(a, b, optimizer, 3)
    again_a, again_b, again = make()
    for part, state in zip((again, again_a, again_b), kept, strict=True):
        unpack(part, state)
    steps(again_a, again_b, again, 3)
    assert torch.equal(a.weight, again_a.weight) and torch.equal(b.weight, again_b.weight)


def test_training_does_not_load_the_compiler():
    """The first object of torch.optim imports torch._dynamo, torch's skip_init sympy: a second of every process."""
    code = (
        "import sys; from rlbook_lib.ppo import PPOConfig, train_ppo; "
        "train_ppo('CartPole-v1', PPOConfig(total_steps=1024), seed=0); "
        "print({'torch._dynamo', 'sympy', 'scipy.sparse'} & set(sys.modules) or 'none')"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        == "none"
    )
