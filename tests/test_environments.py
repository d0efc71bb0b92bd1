"""Tests of rlbook_lib.environments: every transition is real, resets are explicit, resuming is exact."""

import io

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlbook_lib.environments import (
    BatchedCartPole,
    GymnasiumEnvironments,
    VectorStep,
    TorchCartPole,
    VectorEnvironment,
    cartpole_change,
    opened,
    vectorize,
)
from rlbook_lib.maze import Maze


class Clock(gymnasium.Env):
    """An environment whose transitions can be told apart: it observes (episode, time, last action).

    Episode e of a copy lasts 2 + (e + phase) % 4 steps; every second one is truncated. Reward = time + action / 10.
    """

    def __init__(self, phase=0, actions=3, bad_reward_at=None, bad_observation_at=None, bad_start_at=None):
        self.observation_space = Box(-1.0, 1e6, (3,), np.float32)
        self.action_space = Discrete(actions)
        self.phase, self.episode, self.total = phase, -1, 0
        self.bad_reward_at, self.bad_observation_at, self.bad_start_at = bad_reward_at, bad_observation_at, bad_start_at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.seen(np.nan if self.episode == self.bad_start_at else -1), {}

    def step(self, action):
        self.time += 1
        self.total += 1
        over = self.time == 2 + (self.episode + self.phase) % 4
        reward = np.nan if self.total == self.bad_reward_at else self.time + action / 10
        return self.seen(action), reward, over and self.episode % 2 == 0, over and self.episode % 2 == 1, {}

    def seen(self, action):
        bad = self.total == self.bad_observation_at and self.total > 0
        return np.array([self.episode, np.inf if bad else self.time, action], dtype=np.float32)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def random_actions(environment, rng):
    space = environment.action_space
    if isinstance(space, Discrete):
        return rng.integers(int(space.n), size=environment.copies)
    return rng.uniform(-1, 1, (environment.copies, *space.shape)).astype(np.float32)


def as_arrays(step):
    return [np.asarray(part) for part in step]


# ---------------------------------------------------------------------- CartPole


@pytest.mark.parametrize(
    "make, rtol, atol",
    [
        (lambda n: BatchedCartPole(n, seed=1), 2e-7, 1e-9),  # equal but for the cast to float32
        (lambda n: TorchCartPole(n, seed=1, device="cpu"), 0, 2e-5),  # rounding adds up over an episode
    ],
    ids=["numpy", "torch"],
)
def test_batched_cartpole_is_gymnasiums_for_ten_thousand_random_steps(make, rtol, atol):
    copies, rng = 20, np.random.default_rng(0)
    ours = make(copies)
    theirs = [gymnasium.make("CartPole-v1").unwrapped for _ in range(copies)]
    ours.reset()

    def start(copy):
        theirs[copy].reset()
        theirs[copy].state = np.array([float(number) for number in ours.physics[:, copy]])

    for copy in range(copies):
        start(copy)
    ends = 0
    for _ in range(500):
        actions = rng.integers(2, size=copies)
        step = VectorStep(*as_arrays(ours.step(torch.tensor(actions) if isinstance(ours, TorchCartPole) else actions)))
        for copy, action in enumerate(actions):
            observation, reward, terminated, truncated, _ = theirs[copy].step(action)
            np.testing.assert_allclose(step.next_observations[copy], observation, rtol=rtol, atol=atol)
            assert (step.rewards[copy], step.terminated[copy], step.truncated[copy]) == (reward, terminated, truncated)
            if terminated:
                ends += 1
                start(copy)
    assert ends > 300


def balance(observations):
    """A hand-made controller that keeps the pole up for ever."""
    position, speed, angle, spin = observations.T
    return ((0.2 * position + 0.5 * speed + 4 * angle + spin) > 0).astype(np.int64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BatchedCartPole(8, seed=0),
        lambda: TorchCartPole(8, seed=0, device="cpu"),
        lambda: vectorize(lambda: gymnasium.make("CartPole-v1"), 8, seed=0),
    ],
)
def test_a_balanced_pole_is_truncated_after_500_steps(make):
    environment = make()
    observations = environment.reset()
    for t in range(1, 1001):
        actions = balance(np.asarray(observations))
        step = environment.step(torch.tensor(actions) if torch.is_tensor(observations) else actions)
        observations, rewards, terminated, truncated, next_observations = as_arrays(step)
        assert (rewards == 1).all() and not terminated.any() and (truncated == (t % 500 == 0)).all()
        if t % 500 == 0:
            assert (np.abs(observations) <= 0.05).all() and (next_observations != observations).all()
        else:
            assert (next_observations == observations).all()
        observations = step.observations
    returns, lengths = environment.pop_episodes()
    assert returns.tolist() == [500.0] * 16 and lengths.tolist() == [500] * 16


@pytest.mark.parametrize(
    "make",
    [
        lambda: BatchedCartPole(3, seed=0, max_steps=20),
        lambda: TorchCartPole(3, seed=0, device="cpu", max_steps=20),
        lambda: vectorize(lambda: gymnasium.make("CartPole-v1", max_episode_steps=20), 3, seed=0),
        lambda: vectorize(gymnasium.make_vec("CartPole-v1", num_envs=3, max_episode_steps=20), seed=0),
        lambda: vectorize(gymnasium.make_vec("CartPole-v1", 3, "sync", max_episode_steps=20), seed=0),
    ],
)
def test_a_reset_gives_up_the_episodes_under_way(make):
    environment, starts = make(), []
    for steps in (12, 20):
        observations = environment.reset()
        starts.append(np.asarray(observations))
        for t in range(1, steps + 1):
            actions = balance(np.asarray(observations))
            step = environment.step(torch.tensor(actions) if torch.is_tensor(observations) else actions)
            observations = step.observations
            assert step.truncated.tolist() == [t == 20] * 3
    returns, lengths = environment.pop_episodes()
    assert returns.tolist() == [20.0] * 3 and lengths.tolist() == [20] * 3
    assert (starts[0] != starts[1]).all()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_an_end_by_itself_at_the_time_limit_is_a_termination(kind):
    if kind == "numpy":
        environment, actions = BatchedCartPole(3, seed=0, max_steps=1), np.array([0, 1, 1])
    else:
        environment, actions = TorchCartPole(3, seed=0, device="cpu", max_steps=1), torch.tensor([0, 1, 1])
    environment.reset()
    environment.physics[:, 0] = environment.physics[:, 0] * 0 + 5.0
    step = environment.step(actions)
    assert step.terminated.tolist() == [True, False, False] and step.truncated.tolist() == [False, True, True]


def test_next_observations_come_before_the_reset_and_observations_after_it():
    environment, rng = BatchedCartPole(50, seed=0), np.random.default_rng(0)
    given = [environment.reset()]
    copies = [given[0].copy()]
    for _ in range(60):
        before = environment.physics.copy()
        actions = rng.integers(2, size=50)
        step = environment.step(actions)
        change = cartpole_change(before, actions.astype(float), np.cos(before[2]), np.sin(before[2]))
        after = (before + 0.02 * np.array(change)).T
        np.testing.assert_allclose(step.next_observations, after, rtol=1e-6)
        ended = step.terminated | step.truncated
        out = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 0.2095)
        assert (ended == out).all() and (step.observations[~ended] == step.next_observations[~ended]).all()
        assert (np.abs(step.observations[ended]) <= 0.05).all()
        given += [step.observations, step.next_observations]
        copies += [step.observations.copy(), step.next_observations.copy()]
    for array, copy in zip(given, copies):
        assert (array == copy).all()  # nothing handed out was written to


def test_cartpole_in_torch_follows_cartpole_in_numpy():
    ours, theirs = TorchCartPole(200, seed=0, device="cpu"), BatchedCartPole(200, seed=0)
    rng = np.random.default_rng(0)
    theirs.reset()
    ours.reset()
    assert (ours.observations.abs() <= 0.05).all() and ours.observations.std() > 0.02
    for _ in range(60):
        ours.physics = torch.tensor(theirs.physics, dtype=torch.float32)
        actions = rng.integers(2, size=200)
        a, b = as_arrays(ours.step(torch.tensor(actions))), as_arrays(theirs.step(actions))
        np.testing.assert_allclose(a[4], b[4], rtol=1e-5, atol=1e-6)
        assert all((x == y).all() for x, y in zip(a[1:4], b[1:4]))
    assert len(theirs.pop_episodes()[0]) == len(ours.pop_episodes()[0]) > 200
    assert len(ours.pop_episodes()[0]) == 0


def test_starts_are_uniform():
    starts = BatchedCartPole(20_000, seed=0).reset()
    assert np.abs(starts).max() <= 0.05
    np.testing.assert_allclose(starts.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(starts.std(0), 0.1 / np.sqrt(12), rtol=0.02)


@pytest.mark.parametrize("n", [1, 300])
def test_pop_episodes_adds_up(n):
    environment, rng = BatchedCartPole(n, seed=0), np.random.default_rng(0)
    environment.reset()
    running, expected = np.zeros(n), []
    for _ in range(100):
        step = environment.step(rng.integers(2, size=n))
        running += step.rewards
        ended = step.terminated | step.truncated
        expected += running[ended].tolist()
        running[ended] = 0
    returns, lengths = environment.pop_episodes()
    assert returns.tolist() == expected == lengths.tolist()
    assert environment.pop_episodes()[0].shape == (0,)


# ---------------------------------------------------------------------- the same promise for every kind


def constructors(n=4):
    return [lambda phase=phase: Clock(phase) for phase in range(n)]


MODES = {
    "loop": lambda: GymnasiumEnvironments(constructors(), seed=0),
    **{
        f"sync {mode.name}": lambda mode=mode: SyncVectorEnv(constructors(), autoreset_mode=mode)
        for mode in AutoresetMode
    },
    "no copies of arrays": lambda: SyncVectorEnv(constructors(), copy=False),
}


@pytest.mark.parametrize("name", MODES)
def test_every_transition_is_real(name):
    environment = vectorize(MODES[name](), seed=0)
    rng, steps = np.random.default_rng(0), 40
    now = environment.reset()
    total, ends = 0.0, 0
    np.testing.assert_array_equal(now, [[0, 0, -1]] * 4)
    for _ in range(steps):
        actions = rng.integers(3, size=4)
        step = environment.step(actions)
        np.testing.assert_array_equal(step.next_observations, np.column_stack((now[:, 0], now[:, 1] + 1, actions)))
        np.testing.assert_allclose(step.rewards, now[:, 1] + 1 + actions / 10)
        over = step.next_observations[:, 1] == 2 + (now[:, 0] + np.arange(4)) % 4
        even = now[:, 0] % 2 == 0
        np.testing.assert_array_equal(step.terminated, over & even)
        np.testing.assert_array_equal(step.truncated, over & ~even)
        fresh = np.column_stack((now[:, 0] + 1, np.zeros(4), -np.ones(4)))
        np.testing.assert_array_equal(step.observations, np.where(over[:, None], fresh, step.next_observations))
        np.testing.assert_array_equal(environment.observations, step.observations)
        now, total, ends = step.observations, total + step.rewards.sum(), ends + over.sum()
    returns, lengths = environment.pop_episodes()
    assert len(returns) == ends > 30
    open_steps = int(now[:, 1].sum())
    assert lengths.sum() + open_steps == 4 * steps and returns.sum() <= total
    environment.close()


def test_gymnasiums_vector_cartpole_makes_no_dummy_transition():
    original = gymnasium.make_vec("CartPole-v1", num_envs=8, max_episode_steps=20)
    assert original.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    environment, rng = vectorize(original, seed=0), np.random.default_rng(0)
    assert environment.copies == 8
    length = np.zeros(8, dtype=int)
    environment.reset()
    original.reset(seed=0)
    for _ in range(300):
        actions = rng.integers(2, size=8)
        original.state, original.prev_done[:] = environment.physics.copy(), False
        step, (theirs, _, terminated, _, _) = environment.step(actions), original.step(actions)
        np.testing.assert_allclose(step.next_observations, theirs, rtol=2e-7, atol=1e-9)
        np.testing.assert_array_equal(step.terminated, terminated)
        length += 1
        np.testing.assert_array_equal(step.truncated, (length == 20) & ~terminated)
        ended = step.terminated | step.truncated
        assert (step.rewards == 1).all() and (np.abs(step.observations[ended]) <= 0.05).all()
        length[ended] = 0
    _, lengths = environment.pop_episodes()
    assert lengths.sum() + length.sum() == 8 * 300


@pytest.mark.parametrize(
    "change", [{"gravity": 1.6}, {"_sutton_barto_reward": True}, {"kinematics_integrator": "semi"}]
)
def test_a_vector_cartpole_of_other_numbers_is_not_taken_for_the_usual_one(change):
    original = gymnasium.make_vec("CartPole-v1", num_envs=2)
    vars(original).update(change)
    with pytest.raises(
        ValueError, match=rf"CartPoleVectorEnv whose {next(iter(change))} are not the usual.*expected an id"
    ):
        vectorize(original, seed=0)


def test_vector_environments_that_reset_in_their_own_way_are_refused():
    wrapper = gymnasium.wrappers.vector.TransformReward
    makes = {
        "AsyncVectorEnv": lambda: AsyncVectorEnv(constructors(2)),
        "TransformReward": lambda: wrapper(SyncVectorEnv(constructors(2)), lambda reward: reward),
        "RecordEpisodeStatistics": lambda: gymnasium.wrappers.vector.RecordEpisodeStatistics(
            gymnasium.make_vec("CartPole-v1", num_envs=2)
        ),
    }
    for name, make in makes.items():
        theirs = make()
        with pytest.raises(ValueError, match=rf"env is {name}, which resets .*make_vec\(id.*'sync'"):
            vectorize(theirs, seed=0)
        theirs.close()


# ---------------------------------------------------------------------- seeds and resuming

KINDS = {
    "CartPole-v1": lambda seed: vectorize("CartPole-v1", 5, seed=seed),
    "torch CartPole": lambda seed: TorchCartPole(5, seed=seed, device="cpu"),
    "CartPole one by one": lambda seed: vectorize(lambda: gymnasium.make("CartPole-v1"), 5, seed=seed),
    "maze": lambda seed: vectorize("rlbook/Maze-v0", 5, seed=seed),
    "slippery maze": lambda seed: vectorize(lambda: Maze("L2", slip=0.6), 5, seed=seed),
    "Pendulum-v1": lambda seed: vectorize("Pendulum-v1", 5, seed=seed),
    "FrozenLake-v1": lambda seed: vectorize("FrozenLake-v1", 5, seed=seed),
    "vector CartPole": lambda seed: vectorize(gymnasium.make_vec("CartPole-v1", num_envs=5), seed=seed),
    "sync vector": lambda seed: vectorize(gymnasium.make_vec("MountainCar-v0", num_envs=5), seed=seed),
}


def run(environment, rng, steps):
    made = []
    for _ in range(steps):
        actions = random_actions(environment, rng)
        torch_actions = isinstance(environment, TorchCartPole)
        made.append(as_arrays(environment.step(torch.tensor(actions) if torch_actions else actions)))
    return made


def same(a, b):
    return all(np.array_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_the_same_seed_gives_the_same_run(name):
    runs, starts = [], []
    for seed in (3, 3, 4):
        environment = KINDS[name](seed)
        starts.append(np.asarray(environment.reset()))
        runs.append(run(environment, np.random.default_rng(0), 60))
        environment.close()
    assert np.array_equal(starts[0], starts[1]) and same(runs[0], runs[1])
    if name not in ("maze", "FrozenLake-v1"):  # the maze without slip has no randomness
        assert not same(runs[0], runs[2])


@pytest.mark.parametrize("name", KINDS)
def test_a_run_goes_on_bit_for_bit_from_a_saved_state(name):
    environment, rng = KINDS[name](3), np.random.default_rng(0)
    environment.reset()
    for steps in (0, 1, 37, 180):
        run(environment, rng, steps)
        state, generator = through_a_file(environment.state()), rng.bit_generator.state
        episodes = environment.pop_episodes()
        expected = run(environment, rng, 40)
        later = environment.pop_episodes()
        for other in (KINDS[name](8), environment):  # a fresh one, and the same one rewound
            other.load_state(state)
            assert all(np.array_equal(a, b) for a, b in zip(other.pop_episodes(), episodes))
            rng.bit_generator.state = generator
            assert same(run(other, rng, 40), expected)
            assert all(np.array_equal(a, b) for a, b in zip(other.pop_episodes(), later))
            if other is not environment:
                other.close()
    environment.close()


def test_the_observations_of_a_loaded_state_are_the_current_ones():
    for name, make in KINDS.items():
        environment = make(0)
        environment.reset()
        run(environment, np.random.default_rng(0), 25)
        other = make(1)
        other.load_state(environment.state())
        assert np.array_equal(np.asarray(other.observations), np.asarray(environment.observations)), name
        environment.close()
        other.close()


def test_copies_differ_and_so_do_their_episodes():
    environment = vectorize(lambda: gymnasium.make("CartPole-v1", max_episode_steps=1), 6, seed=0)
    starts = [environment.reset(), *(environment.step(np.zeros(6, int)).observations for _ in range(5))]
    assert len({tuple(row) for rows in starts for row in rows}) == 36


def test_a_state_belongs_to_one_kind_of_environment():
    state = BatchedCartPole(3, seed=0).state()
    for other in (BatchedCartPole(4, seed=0), TorchCartPole(3, seed=0, device="cpu"), vectorize(Maze, 3, seed=0)):
        with pytest.raises(ValueError, match=r"the state belongs to BatchedCartPole\('CartPole-v1', copies=3\)"):
            other.load_state(state)


@pytest.mark.parametrize("name", ["CartPole-v1", "torch CartPole", "maze"])
def test_a_state_from_before_the_first_reset_brings_that_moment_back(name):
    environment, other = KINDS[name](0), KINDS[name](1)
    state = environment.state()
    other.reset()
    other.load_state(state)
    with pytest.raises(ValueError, match="call reset"):
        run(other, np.random.default_rng(0), 1)
    assert np.array_equal(np.asarray(other.reset()), np.asarray(environment.reset()))
    with pytest.raises(ValueError, match=r"state is {}; expected what state\(\)"):
        other.load_state({})
    with pytest.raises(TypeError, match="state is None; expected a mapping"):
        other.load_state(None)


def test_a_state_that_cannot_be_exact_is_refused():
    forgetful = GymnasiumEnvironments(constructors(), seed=0)  # its episodes do not start from the seed
    forgetful.reset()
    run(forgetful, np.random.default_rng(0), 9)
    with pytest.raises(ValueError, match="not deterministic given its seed"):
        GymnasiumEnvironments(constructors(), seed=0).load_state(forgetful.state())


# ---------------------------------------------------------------------- spaces


class Echo(gymnasium.Env):
    """One step an episode; shows its last action in the info and gives any observation."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.seen = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.seen.append(action)
        return self.observation_space.sample(), 0.0, True, False, {}


class BothFlags(Echo):
    """Says at every step that the episode terminated and that it was truncated."""

    def step(self, action):
        return (*super().step(action)[:2], True, True, {})


@pytest.mark.parametrize(
    "wrap",
    [
        lambda makers: GymnasiumEnvironments(makers, seed=0),
        *(
            lambda makers, mode=mode: vectorize(SyncVectorEnv(makers, autoreset_mode=mode), seed=0)
            for mode in AutoresetMode
        ),
    ],
)
def test_both_flags_mean_terminated_and_actions_count_from_zero(wrap):
    seen = []

    def make():
        seen.append(BothFlags(Discrete(4, start=3), Discrete(3, start=-1)))
        return seen[-1]

    environment = wrap([make, make])
    environment.reset()
    step = environment.step(np.array([0, 2]))
    assert step.terminated.all() and not step.truncated.any()
    assert [int(env.seen[0]) for env in seen] == [-1, 1]


def test_discrete_observations_become_one_hot_rows():
    environment = vectorize(lambda: Maze("L2"), 3, seed=0)
    assert environment.observation_size == 6 and environment.observation_space.shape == (6,)
    assert environment.reset().dtype == np.float32
    np.testing.assert_array_equal(environment.observations, np.eye(6)[[0, 0, 0]])
    step = environment.step(np.array([3, 1, 0]))  # right, down, bump
    np.testing.assert_array_equal(step.next_observations, np.eye(6)[[1, 3, 0]])
    np.testing.assert_array_equal(step.rewards, [0, -10, 0])
    np.testing.assert_array_equal(step.observations, np.eye(6)[[1, 0, 0]])


def test_spaces_that_start_elsewhere_and_boxes_of_any_shape():
    environment = vectorize(lambda: Echo(Discrete(4, start=3), Discrete(3, start=-1)), 2, seed=0)
    assert (environment.reset().sum(1) == 1).all() and environment.observation_size == 4
    environment.step(np.array([0, 2]))
    assert [env.seen for env in environment.environments] == [[-1], [1]]
    environment = vectorize(lambda: Echo(Box(0, 9, (2, 3), np.uint8), Box(-1, 1, (2, 2))), 2, seed=0)
    observations = environment.reset()
    assert observations.shape == (2, 6) and observations.dtype == np.float32
    actions = np.linspace(-1, 1, 8).reshape(2, 4)
    environment.step(actions)
    for copy in range(2):
        np.testing.assert_allclose(environment.environments[copy].seen[0], actions[copy].reshape(2, 2), rtol=1e-6)


@pytest.mark.parametrize(
    "observation, action, words",
    [
        (Dict({"a": Discrete(2)}), Discrete(2), "Echo: the observation space is Dict.*expected a Box or a Discrete"),
        (Discrete(2), MultiDiscrete([2, 2]), "Echo: the action space is MultiDiscrete.*expected a Box or a Discrete"),
    ],
)
def test_other_kinds_of_space_are_named(observation, action, words):
    with pytest.raises(ValueError, match=words):
        vectorize(lambda: Echo(observation, action), 2, seed=0)


class Says(gymnasium.Env):
    """Gives the same observation again and again, whatever its space says."""

    def __init__(self, observation_space, observation):
        self.observation_space, self.action_space, self.observation = observation_space, Discrete(2), observation

    def reset(self, *, seed=None, options=None):
        return self.observation, {}


@pytest.mark.parametrize(
    "space, observation, words",
    [
        (Box(-1, 1, (3,)), np.zeros(2, np.float32), r"numbers of shape \(3,\), got ndarray of shape \[\(2,\)\]"),
        (Box(-1, 1, (3,)), "abc", "numbers of shape .*got str"),
        (Discrete(3), 3, r"integers from 0 to 2, got \[3, 3\]"),
        (Discrete(3), -1, "integers from 0 to 2"),
        (Discrete(3, start=1), 0, "integers from 1 to 3"),
        (Discrete(3), 0.5, "integers from 0 to 2"),
    ],
)
def test_observations_outside_their_space_are_named(space, observation, words):
    with pytest.raises(ValueError, match=f"Says: observations must be {words}"):
        vectorize(lambda: Says(space, observation), 2, seed=0).reset()


def test_copies_must_have_equal_spaces():
    with pytest.raises(ValueError, match="copy 1 has other spaces"):
        GymnasiumEnvironments([Clock, lambda: Clock(actions=5)], seed=0)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"bad_reward_at": 7}, "Clock: the reward of copy 2 at step 7 is nan"),
        ({"bad_observation_at": 6}, "Clock: the observation of copy 2 at step 6 is .*inf"),
        ({"bad_start_at": 2}, "Clock: the first observation of copy 2 at step 5 is .*nan"),  # after episodes of 2 and 3
        ({"bad_start_at": 0}, "Clock: the first observation of copy 2 at step 0 is .*nan"),
    ],
)
def test_numbers_that_are_not_finite_stop_the_run(bad, words):
    environment = GymnasiumEnvironments([Clock, Clock, lambda: Clock(**bad), Clock], seed=0)
    with pytest.raises(ValueError, match=words):
        environment.reset()
        run(environment, np.random.default_rng(0), 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BatchedCartPole(3, seed=0),
        lambda: vectorize(Clock, 3, seed=0),
        lambda: vectorize(gymnasium.make_vec("CartPole-v1", num_envs=3), seed=0),
    ],
)
def test_bad_actions(make):
    environment = make()
    with pytest.raises(ValueError, match="call reset"):
        environment.step(np.zeros(3, int))
    environment.reset()
    for actions in ([0, 1], [[0], [1], [0]], [0, 1, 5], [0, -1, 0], [0.0, 1.0, 0.0], [True, False, True]):
        with pytest.raises(ValueError, match=r"actions must be \(3,\) integers from 0 to [12], got shape"):
            environment.step(np.array(actions))
    assert environment.step([0, 1, 1]).rewards.shape == (3,)


def test_bad_real_actions():
    environment = vectorize("Pendulum-v1", 2, seed=0)
    environment.reset()
    for actions in ([0.0, 1.0], [[0.0], [np.nan]], [["a"], ["b"]]):
        with pytest.raises(ValueError, match=r"Pendulum-v1: actions must be \(2, 1\) finite numbers"):
            environment.step(np.array(actions))


def test_torch_cartpole_checks_what_costs_nothing():
    environment = TorchCartPole(3, seed=0, device="cpu")
    with pytest.raises(ValueError, match="call reset"):
        environment.step(torch.zeros(3, dtype=torch.long))
    environment.reset()
    for actions in (torch.zeros(2, dtype=torch.long), torch.zeros(3), [0, 1, 1], np.zeros(3, int)):
        with pytest.raises(ValueError, match=r"actions must be a tensor of \(3,\) integers, got"):
            environment.step(actions)


def test_bad_environments():
    for env in ("NoSuch-v0", "not an id at all", "CartPole-v9"):
        with pytest.raises(ValueError, match="which Gymnasium cannot make"):
            vectorize(env, 2, seed=0)
    for env in (Maze(), 3, None):
        with pytest.raises(TypeError, match="env is .*; expected a Gymnasium id, a constructor"):
            vectorize(env, 2, seed=0)
    with pytest.raises(TypeError, match="environments holds 3; expected Gymnasium environments"):
        vectorize(lambda: 3, 2, seed=0)
    with pytest.raises(ValueError, match="empty"):
        GymnasiumEnvironments([], seed=0)
    with pytest.raises(ValueError, match="max_steps"):
        BatchedCartPole(2, seed=0, max_steps=0)


def test_opened_environments_are_closed_also_after_an_error(monkeypatch):
    closed = []
    monkeypatch.setattr(Maze, "close", lambda self: closed.append(self))
    with pytest.raises(ZeroDivisionError), opened(Maze, 2, seed=0) as environments:
        assert environments.reset().shape == (2, 6) and not closed
        1 / 0
    assert closed == environments.environments
    with opened(environments, 5, seed=0) as same:
        assert same is environments
    assert len(closed) == 2
    with pytest.raises(ValueError, match="copies is 0"):  # at the call, before "with"
        opened(Maze, 0, seed=0)


def test_each_environment_says_what_draws_its_actions():
    numpy, tensors = vectorize("CartPole-v1", 2, seed=0), TorchCartPole(2, seed=0, device="cpu")
    assert numpy.generator(3).random() == np.random.default_rng(3).random() and not numpy.in_tensors
    drawn = [torch.rand(1, generator=g) for g in (tensors.generator(3), torch.Generator().manual_seed(3))]
    assert tensors.in_tensors and drawn[0] == drawn[1] and vectorize(tensors, seed=0) is tensors


def test_a_vector_environment_comes_back_as_it_is():
    environment = vectorize("CartPole-v1", 3, seed=0)
    assert isinstance(environment, VectorEnvironment) and vectorize(environment, 7, seed=1) is environment
    assert repr(environment) == "BatchedCartPole('CartPole-v1', copies=3)"
