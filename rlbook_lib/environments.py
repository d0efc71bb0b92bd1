"""Many copies of an environment side by side, with explicit resets; a batched CartPole (chapter 5).

A learner acts in N copies at once. What happens when one of them ends an episode must be said aloud, because
most bugs of deep reinforcement learning hide there. All environments of this module do the same, in SAME_STEP
style: ``step`` takes one real transition in every copy and starts a new episode at once where one ended. The
``VectorStep`` holds both sides of that moment:

- ``next_observations`` is where the action really led, final observations included. Learn from it.
- ``observations`` is where the next action is taken: the same, except for copies that started a new episode.
- ``terminated`` and ``truncated`` are apart: after a termination nothing follows; a truncation is a stop from
  outside, so the value of ``next_observations`` still counts. With both set the episode terminated.

In order: the record and what all environments share; CartPole in numpy, and in torch for a GPU; any Gymnasium
environment in a plain loop; ``vectorize``, which picks one, and ``opened``, which closes it too.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

import rlbook_lib.maze  # noqa: F401  (registers the maze)
from rlbook_lib.checks import Count, Environment, Seed, Space, checked

Array = NDArray[Any]
Tensor = torch.Tensor


# ---------------------------------------------------------------------- what all environments share


class VectorStep(NamedTuple):
    """One transition in each of the N copies."""

    observations: Any  #: (N, d) float32; where the next action is taken, after any reset
    rewards: Any  #: (N,) reward units
    terminated: Any  #: (N,) bool; the episode ended by itself, its next state is worth 0
    truncated: Any  #: (N,) bool; the episode was stopped from outside; never set together with ``terminated``
    next_observations: Any  #: (N, d) float32; where the action led, before any reset


class VectorEnvironment:
    """N copies of one environment: the spaces, the checks and the book of finished episodes.

    The subclasses below add ``reset``, ``step``, ``state``, ``load_state``. Arrays that ``reset`` and
    ``step`` hand out are never written to again. They are numpy arrays, unless ``in_tensors`` says that the
    environment works with tensors on its ``device``. The spaces are those of one copy: a Box or Discrete, else a ValueError.
    """

    observations: Any
    device = torch.device("cpu")
    in_tensors = False

    @checked
    def __init__(self, name: str, copies: Count, observation_space: Space, action_space: Space) -> None:
        self.name, self.copies = name, copies
        self.action_space = _usable_space(name, "action", action_space)
        self.raw_observation_space = _usable_space(name, "observation", observation_space)
        self.observation_space = _encoded_space(observation_space)
        self.observation_size = int(self.observation_space.shape[0])
        self.steps = 0  # steps of every copy so far
        self._returns, self._lengths = np.zeros(copies), np.zeros(copies, dtype=np.int64)
        self._finished: Any = []  # (returns, lengths) of each step with ends

    @checked
    def generator(self, seed: Seed) -> np.random.Generator | torch.Generator:
        """What draws actions here: a new generator of numpy, or of torch on the device."""
        return torch.Generator(self.device).manual_seed(seed) if self.in_tensors else np.random.default_rng(seed)

    def reset(self) -> Any:
        """Start a new episode in every copy: (N, d) float32 observations."""
        raise NotImplementedError

    def step(self, actions: Any) -> VectorStep:
        """Take one action in every copy; where an episode ends, start the next one.

        Args:
            actions: (N,) integers from 0 for a Discrete space; (N, a) floats for a Box.

        Raises:
            ValueError: actions of another shape or kind, or out of range; from the environment a NaN (the message
                names environment, copy and step) or an observation outside its space; no ``reset`` before.
        """
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Everything needed to go on from here, bit for bit: tensors and plain data."""
        raise NotImplementedError

    @checked
    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state()`` was called; ``observations`` then holds the current ones.

        Raises:
            ValueError: a state of another kind of environment or of another number of copies.
        """
        raise NotImplementedError

    def pop_episodes(self) -> tuple[Array, Array]:
        """Undiscounted returns (E,) and lengths (E,) of the episodes that ended since the last call, in that order."""
        finished, self._finished = self._finished, []
        if not finished:
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        returns, lengths = zip(*finished)
        return np.concatenate(returns), np.concatenate(lengths)

    def episode_metrics(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call; nothing if none did."""
        returns, lengths = self.pop_episodes()
        if not len(returns):
            return {}
        return {"episode_return": float(returns.mean()), "episode_length": float(lengths.mean())}

    def close(self) -> None:
        """Free what the environment holds."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, copies={self.copies})"

    # what subclasses use

    def _count(self, rewards: Array, ended: Array) -> None:
        """Add rewards to the running returns; file the episodes that ended."""
        self.steps += 1
        self._returns += rewards
        self._lengths += 1
        if ended.size:
            self._finished.append((self._returns[ended], self._lengths[ended]))
            self._returns[ended] = 0.0
            self._lengths[ended] = 0

    def _usable_actions(self, given: Any) -> Array:
        if not hasattr(self, "observations"):
            raise ValueError(f"{self.name}: call reset() before the first step()")
        actions: Array = np.asarray(given)
        if isinstance(self.action_space, Discrete):
            choices = int(self.action_space.n)
            if not _are_numbers_of_choices(actions, self.copies, 0, choices):
                wanted = f"({self.copies},) integers from 0 to {choices - 1}"
                raise ValueError(f"{self.name}: actions must be {wanted}, got {_described(actions)}")
            return actions
        size = math.prod(self.action_space.shape)
        if actions.shape != (self.copies, size) or actions.dtype.kind not in "fiu" or not np.isfinite(actions).all():
            wanted = f"({self.copies}, {size}) finite numbers"
            raise ValueError(f"{self.name}: actions must be {wanted}, got {_described(actions)}")
        return actions

    def _base_state(self) -> dict[str, Any]:
        """What every state holds: whose it is, and where it stands."""
        return {"kind": type(self).__name__, "name": self.name, "copies": self.copies, "steps": self.steps}

    def _load_base_state(self, state: dict[str, Any]) -> None:
        if not {"kind", "name", "copies"} <= state.keys():
            raise ValueError(f"state is {state!r}; expected what state() of an environment gave")
        belongs = f"{state['kind']}({state['name']!r}, copies={state['copies']})"
        if belongs != repr(self):
            raise ValueError(f"the state belongs to {belongs}, this is {self!r}")
        self.__dict__.pop("observations", None)  # set again, unless the state is from before a reset
        self.steps = state["steps"]

    def _episodes(self) -> dict[str, Any]:
        """The book of episodes, as a part of a state."""
        finished = [(torch.tensor(r), torch.tensor(n)) for r, n in self._finished]
        return {"finished": finished, "returns": torch.tensor(self._returns), "lengths": torch.tensor(self._lengths)}

    def _load_episodes(self, state: dict[str, Any]) -> None:
        self._finished = [(r.numpy(), n.numpy()) for r, n in state["finished"]]
        self._returns, self._lengths = state["returns"].numpy().copy(), state["lengths"].numpy().copy()


def _are_numbers_of_choices(index: Array, n: int, first: int, size: int) -> bool:
    """Whether these are n integers, each one of ``size`` from ``first`` on."""
    is_row = index.shape == (n,) and index.dtype.kind in "iu"
    return bool(is_row and first <= index.min() and index.max() < first + size)


def _described(array: Array) -> str:
    """Shape, kind and range of an array, for an error message."""
    kind = f"shape {array.shape} of {array.dtype}"
    return f"{kind} from {array.min()} to {array.max()}" if array.size and array.dtype.kind in "iuf" else kind


def _usable_space(name: str, role: str, space: Any) -> Any:
    if isinstance(space, (Box, Discrete)):
        return space
    raise ValueError(f"{name}: the {role} space is {space}; expected a Box or a Discrete space")


def _encoded_space(space: Any) -> Box:
    """The space of what a learner sees: flat float32 vectors."""
    if isinstance(space, Discrete):
        return Box(0.0, 1.0, (int(space.n),), np.float32)
    return Box(space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32), dtype=np.float32)


# ---------------------------------------------------------------------- CartPole

GRAVITY, MASS_CART, MASS_POLE, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5  # m/s^2, kg, kg, m
TOTAL_MASS = MASS_CART + MASS_POLE
POLE_SHARE = MASS_POLE / TOTAL_MASS
FORCE, TIME_STEP = 10.0, 0.02  # N, s
POSITION_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360  # m, rad
LIMITS = np.array([[POSITION_LIMIT], [ANGLE_LIMIT]])
START_BOUND = 0.05
_HIGH = np.array([2 * POSITION_LIMIT, np.inf, 2 * ANGLE_LIMIT, np.inf], dtype=np.float32)


def cartpole_change(state: Any, actions: Any, cos: Any, sin: Any) -> tuple[Any, Any, Any, Any]:
    """How fast position (m), speed (m/s), angle (rad) and angular speed (rad/s) change: the equations of motion.

    ``state`` holds the four, (4, N), and their four time derivatives come back, (N,) each. Actions are (N,) floats, 0 pushes
    left, 1 right; ``cos`` and ``sin`` are of the angles. All are arrays, or tensors.

    Source: Barto, Sutton & Anderson (1983); Gymnasium's CartPole-v1.
    """
    _, speed, _, spin = state
    push = (2 * FORCE / TOTAL_MASS) * actions - FORCE / TOTAL_MASS  # acceleration of the whole
    pull = push + (POLE_SHARE * HALF_LENGTH) * (spin * spin * sin)
    inertia = HALF_LENGTH * 4 / 3 - (HALF_LENGTH * POLE_SHARE) * (cos * cos)
    spin_up = (GRAVITY * sin - cos * pull) / inertia
    return speed, pull - (POLE_SHARE * HALF_LENGTH) * (spin_up * cos), spin, spin_up


class BatchedCartPole(VectorEnvironment):
    """CartPole-v1 for any number of copies at once, in numpy. Reward 1 a step, truncated after 500 steps.

    The state is float64, like Gymnasium's; observations are float32.

    Source: Gymnasium's CartPole-v1.
    """

    observations: Array

    @checked
    def __init__(self, copies: Count, *, seed: Seed, max_steps: Count = 500) -> None:
        super().__init__("CartPole-v1", copies, Box(-_HIGH, _HIGH), Discrete(2))
        self.max_steps = max_steps
        self._rng = np.random.default_rng(seed)
        self._ones = np.ones(copies)
        self._ones.flags.writeable = False
        self.physics = np.zeros((4, copies))  # position, speed, angle, angular speed of every copy

    def reset(self) -> Array:
        """Start a new episode in every copy: all four numbers uniform in [-0.05, 0.05]."""
        self.physics = self._starts(self.copies)
        self._lengths[:] = 0
        self.observations = self.physics.T.astype(np.float32)
        return self.observations

    def step(self, actions: Any) -> VectorStep:
        """Push every cart, 0 left or 1 right, for 0.02 s; where an episode ends, start the next one."""
        actions, angle = self._usable_actions(actions), self.physics[2]
        change = cartpole_change(self.physics, actions, np.cos(angle), np.sin(angle))
        physics = np.array(change)  # (4, N)
        physics *= TIME_STEP
        physics += self.physics
        self.physics = physics
        self._lengths += 1
        self.steps += 1
        out = np.abs(physics[::2]) > LIMITS  # (2, N)
        terminated = out[0] | out[1]
        truncated = self._lengths >= self.max_steps
        truncated &= ~terminated
        ended = (terminated | truncated).nonzero()[0]
        next_observations = self.observations = physics.T.astype(np.float32)  # (N, 4)
        if ended.size:
            lengths = self._lengths[ended]
            self._finished.append((lengths.astype(float), lengths))  # reward 1 a step
            self._lengths[ended] = 0
            physics[:, ended] = self._starts(ended.size)
            self.observations = physics.T.astype(np.float32)
        return VectorStep(self.observations, self._ones, terminated, truncated, next_observations)

    def state(self) -> dict[str, Any]:
        """Positions, clocks and the generator."""
        return {
            **self._base_state(),
            **self._episodes(),
            "physics": torch.tensor(self.physics),
            "generator": self._rng.bit_generator.state,
            "running": hasattr(self, "observations"),
        }

    @checked
    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state()`` was called."""
        self._load_base_state(state)
        self._load_episodes(state)
        self._rng.bit_generator.state = state["generator"]
        self.physics = state["physics"].numpy().copy()
        if state["running"]:
            self.observations = self.physics.T.astype(np.float32)

    def _starts(self, n: int) -> Array:
        return self._rng.uniform(-START_BOUND, START_BOUND, (4, n))


class TorchCartPole(VectorEnvironment):
    """CartPole-v1 for thousands of copies on a device: actions in, a ``Step`` of tensors out, no waiting.

    The same equations as ``BatchedCartPole``, on any device. The state is float32, not float64: many GPUs compute
    float64 at a small fraction of the speed, and policies see float32 anyway. A step differs from the float64 one by
    rounding, about 1e-7. ``step`` never asks the device for a result, so the CPU can run ahead of the GPU.
    """

    observations: Tensor
    in_tensors = True
    kept_steps = 1000  # pop_episodes looks back at most so many steps

    @checked
    def __init__(self, copies: Count, *, seed: Seed, device: str | torch.device, max_steps: Count = 500) -> None:
        super().__init__("CartPole-v1", copies, Box(-_HIGH, _HIGH), Discrete(2))
        self.max_steps, self.device = max_steps, torch.device(device)
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._ones = torch.ones(copies, device=self.device)
        self.physics = torch.zeros(4, copies, device=self.device)
        self._lengths: Any = torch.zeros(copies, dtype=torch.int32, device=self.device)
        self._finished = deque(maxlen=self.kept_steps)  # (N,) lengths where ended, else 0

    def reset(self) -> Tensor:
        """Start a new episode in every copy: (N, 4) float32 observations on the device."""
        self.physics = self._starts()
        self._lengths = torch.zeros_like(self._lengths)
        self.observations = self.physics.T.contiguous()
        return self.observations

    @torch.no_grad()
    def step(self, actions: Tensor) -> VectorStep:
        """Push every cart; where an episode ends, start the next one.

        Args:
            actions: (N,) integers on the device; their values are not checked, for that would wait for the device.

        Raises:
            ValueError: actions of another shape or kind; no ``reset`` before.
        """
        if not hasattr(self, "observations"):
            raise ValueError(f"{self.name}: call reset() before the first step()")
        if not isinstance(actions, Tensor) or actions.shape != (self.copies,) or actions.is_floating_point():
            got = f"{tuple(actions.shape)} of {actions.dtype}" if isinstance(actions, Tensor) else repr(actions)
            raise ValueError(f"{self.name}: actions must be a tensor of ({self.copies},) integers, got {got}")
        angle = self.physics[2]
        change = cartpole_change(self.physics, actions.to(torch.float32), angle.cos(), angle.sin())
        moved = self.physics + TIME_STEP * torch.stack(change)  # (4, N)
        self.steps += 1
        lengths = self._lengths + 1
        terminated = (moved[0].abs() > POSITION_LIMIT) | (moved[2].abs() > ANGLE_LIMIT)
        truncated = (lengths >= self.max_steps) & ~terminated
        ended = terminated | truncated
        self._finished.append(lengths * ended)
        self._lengths = lengths * ~ended
        self.physics = torch.where(ended, self._starts(), moved)
        self.observations = self.physics.T.contiguous()
        return VectorStep(self.observations, self._ones, terminated, truncated, moved.T.contiguous())

    def pop_episodes(self) -> tuple[Array, Array]:
        """Returns and lengths as above, of the last 1000 steps at most. Waits for the device."""
        if not self._finished:
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        lengths = torch.stack(list(self._finished)).cpu().numpy().ravel().astype(np.int64)
        self._finished.clear()
        lengths = lengths[lengths > 0]
        return lengths.astype(float), lengths

    def state(self) -> dict[str, Any]:
        """Positions, clocks and the generator, on the CPU."""
        return {
            **self._base_state(),
            "device": self.device.type,
            "physics": self.physics.cpu().clone(),
            "lengths": self._lengths.cpu().clone(),
            "generator": self._generator.get_state(),
            "finished": [lengths.cpu() for lengths in self._finished],
            "running": hasattr(self, "observations"),
        }

    @checked
    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state()`` was called, on the same kind of device, else ValueError."""
        self._load_base_state(state)
        if state["device"] != self.device.type:
            raise ValueError(
                f"the state was taken on {state['device']!r}, this is on {self.device.type!r}: random numbers would differ"
            )
        self.physics, self._lengths = state["physics"].to(self.device), state["lengths"].to(self.device)
        self._generator.set_state(state["generator"].cpu())
        self._finished = deque([n.to(self.device) for n in state["finished"]], maxlen=self.kept_steps)
        if state["running"]:
            self.observations = self.physics.T.contiguous()

    def _starts(self) -> Tensor:
        uniform = torch.rand((4, self.copies), generator=self._generator, device=self.device)
        return uniform * (2 * START_BOUND) - START_BOUND


# ---------------------------------------------------------------------- any Gymnasium environment


class GymnasiumEnvironments(VectorEnvironment):
    """N Gymnasium environments, stepped one after another.

    Every episode starts from ``reset(seed=...)`` with a seed of its own, made from ``seed``, the copy's
    number and the episode's number. An environment that is deterministic given its seed can therefore be
    brought back to any moment: ``state`` keeps the episode's number and the actions so far, and
    ``load_state`` plays them again. ``environments`` may hold constructors without arguments.

    Raises:
        ValueError: no environment, or spaces that differ between copies or are neither Box nor Discrete.
    """

    observations: Array

    @checked
    def __init__(
        self,
        environments: Sequence[gymnasium.Env[Any, Any] | Callable[[], Any]],
        *,
        seed: Seed,
        name: str | None = None,
    ) -> None:
        self.environments = [e if isinstance(e, gymnasium.Env) else e() for e in environments]
        if not self.environments:
            raise ValueError("environments is empty; expected at least one")
        if strange := [e for e in self.environments if not isinstance(e, gymnasium.Env)]:
            raise TypeError(f"environments holds {strange[0]!r}; expected Gymnasium environments")
        first = self.environments[0]
        name = name or (first.spec.id if first.spec is not None else type(first.unwrapped).__name__)
        super().__init__(name, len(self.environments), first.observation_space, first.action_space)
        for copy, other in enumerate(self.environments):
            if (other.observation_space, other.action_space) != (first.observation_space, first.action_space):
                raise ValueError(f"{self.name}: copy {copy} has other spaces than copy 0; expected equal ones")
        self._seed = seed
        self._episode = np.full(self.copies, -1)  # number of each copy's episode
        self._actions: list[list[Any]] = [[] for _ in self.environments]  # of the episodes under way

    def reset(self) -> Array:
        self._returns[:], self._lengths[:] = 0.0, 0  # gives up the episodes under way
        self.observations = self._encode([self._start_next(copy) for copy in range(self.copies)])
        self._require_finite("the first observation", self.observations)
        return self.observations

    def step(self, actions: Any) -> VectorStep:
        actions = self._usable_actions(actions)
        rewards, terminated, truncated = np.empty(self.copies), *np.zeros((2, self.copies), dtype=bool)
        seen = []
        for copy, environment in enumerate(self.environments):
            action = self._real_action(actions[copy])
            self._actions[copy].append(action)
            observation, rewards[copy], terminated[copy], truncated[copy], _ = environment.step(action)
            seen.append(observation)
        truncated &= ~terminated
        ended = (terminated | truncated).nonzero()[0]
        self._count(rewards, ended)
        self._require_finite("the reward", rewards)
        self.observations = next_observations = self._encode(seen)
        self._require_finite("the observation", next_observations)
        if ended.size:
            self.observations = next_observations.copy()
            self.observations[ended] = self._encode([self._start_next(copy) for copy in ended])
            self._require_finite("the first observation", self.observations)
        return VectorStep(self.observations, rewards, terminated, truncated, next_observations)

    def state(self) -> dict[str, Any]:
        """For each copy the number of its episode and the actions so far."""
        return {
            **self._base_state(),
            **self._episodes(),
            "seed": self._seed,
            "episode": self._episode.tolist(),
            "actions": [torch.tensor(np.array(actions)) for actions in self._actions],
            "observations": torch.tensor(getattr(self, "observations", ())),
        }

    @checked
    def load_state(self, state: dict[str, Any]) -> None:
        """Replay the episode under way in every copy; ValueError if it does not end where it did."""
        self._load_base_state(state)
        self._load_episodes(state)
        self._seed = state["seed"]
        self._episode = np.array(state["episode"])
        self._actions = [[] for _ in self.environments]
        if (self._episode < 0).any():
            return  # the state was taken before the first reset
        self.observations = self._encode(
            [self._replay(copy, actions.numpy()) for copy, actions in enumerate(state["actions"])]
        )
        if not np.array_equal(self.observations, state["observations"].numpy()):
            raise ValueError(
                f"{self.name}: the replayed episodes differ from those of the state; the "
                "environment is not deterministic given its seed, so a run in it cannot be "
                "resumed exactly"
            )

    def close(self) -> None:
        for environment in self.environments:
            environment.close()

    def _require_finite(self, what: str, values: Array) -> None:
        """Stop at the first NaN or infinity, and say in which copy and at which step."""
        if not np.isfinite(values).all():
            copy = int(np.flatnonzero(~np.isfinite(values.reshape(self.copies, -1)).all(axis=1))[0])
            raise ValueError(
                f"{self.name}: {what} of copy {copy} at step {self.steps} is {values[copy]}; expected finite numbers"
            )

    def _encode(self, observations: Any) -> Array:
        """Observations of the environment as (n, d) float32 rows, a copy: flattened, or one-hot."""
        space, n = self.raw_observation_space, len(observations)
        if isinstance(space, Discrete):
            first, size = int(space.start), int(space.n)
            index = np.asarray(observations)
            if not _are_numbers_of_choices(index, n, first, size):
                wanted = f"integers from {first} to {first + size - 1}"
                raise ValueError(f"{self.name}: observations must be {wanted}, got {observations!r}")
            one_hot: Array = np.eye(size, dtype=np.float32)[index - first]
            return one_hot
        try:
            return np.array(observations, dtype=np.float32).reshape(n, self.observation_size)
        except (TypeError, ValueError):
            shapes = sorted({np.shape(observation) for observation in observations})
            raise ValueError(
                f"{self.name}: observations must be numbers of shape {space.shape}, got "
                f"{type(observations[0]).__name__} of shape {shapes}"
            ) from None

    def _start_next(self, copy: Any) -> Any:
        self._episode[copy] += 1
        self._actions[copy] = []
        return self._start(copy)

    def _start(self, copy: int) -> Any:
        """Reset one copy with the seed of its episode."""
        entropy = np.random.SeedSequence([self._seed, copy, int(self._episode[copy])])
        observation, _ = self.environments[copy].reset(seed=int(entropy.generate_state(1)[0]))
        return observation

    def _replay(self, copy: int, actions: Array) -> Any:
        observation = self._start(copy)
        for stored in actions:
            action = stored if stored.ndim else int(stored)
            self._actions[copy].append(action)
            observation, *_ = self.environments[copy].step(action)
        return observation

    def _real_action(self, action: Any) -> Any:
        """An action as the environment takes it."""
        space = self.action_space
        if isinstance(space, Discrete):
            return int(action) + int(space.start)
        return np.array(action, dtype=space.dtype).reshape(space.shape)


# ---------------------------------------------------------------------- the front door


@checked
def vectorize(env: Environment, copies: Count = 16, *, seed: Seed) -> VectorEnvironment:
    """Copies of an environment side by side, with the resets of this module.

    Args:
        env: a Gymnasium id; a constructor of a Gymnasium environment; a ``SyncVectorEnv``, whose environments are then
            stepped directly; or a ``VectorEnvironment``, which comes back as it is. "CartPole-v1" gives the batched one,
            and so does Gymnasium's vector CartPole: some of its own steps are no transitions.
        copies: N; a vector environment has its own number.

    Raises:
        ValueError: an unknown id; spaces neither Box nor Discrete; another vector environment of Gymnasium.
    """
    if isinstance(env, VectorEnvironment):
        return env
    if type(env) is SyncVectorEnv:
        return GymnasiumEnvironments(env.envs, seed=seed)
    if isinstance(env, VectorEnv):
        return _batched(env, seed)
    if isinstance(env, str):
        if env == "CartPole-v1":
            return BatchedCartPole(copies, seed=seed)
        return GymnasiumEnvironments([lambda: _make(env)] * copies, seed=seed, name=env)
    if callable(env) and not isinstance(env, gymnasium.Env):
        return GymnasiumEnvironments([env] * copies, seed=seed)
    raise TypeError(
        f"env is {env!r}; expected a Gymnasium id, a constructor of an environment (a function without "
        "arguments), or a vector environment"
    )


@checked
@contextmanager
def opened(env: Environment, copies: Count = 16, *, seed: Seed) -> Iterator[VectorEnvironment]:
    """``with opened(...) as environments``: as ``vectorize``, closed afterwards unless they came ready-made."""
    environments = vectorize(env, copies, seed=seed)
    try:
        yield environments
    finally:
        if not isinstance(env, (VectorEnvironment, VectorEnv)):
            environments.close()


def _make(name: str) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(name, disable_env_checker=True)
    except gymnasium.error.Error as error:
        raise ValueError(f"env is {name!r}, which Gymnasium cannot make: {error}") from error


def _batched(environment: VectorEnv[Any, Any, Any], seed: int) -> BatchedCartPole:
    """The batched CartPole in place of Gymnasium's, unless its numbers are others; nothing stands for other vectors."""
    wrong = f"is {type(environment).__name__}, which resets its copies in its own way"
    if type(environment) is CartPoleVectorEnv:
        limit = environment.max_episode_steps
        usual = vars(CartPoleVectorEnv(environment.num_envs, limit, environment.render_mode))
        changed = [name for name, value in vars(environment).items() if np.isscalar(value) and value != usual.get(name)]
        if not changed:
            return BatchedCartPole(environment.num_envs, seed=seed, max_steps=limit)
        wrong = f"is a CartPoleVectorEnv whose {', '.join(changed)} are not the usual ones"
    raise ValueError(
        f"env {wrong}, so that some of its steps may be no transitions; expected an id or a constructor, or "
        "gymnasium.make_vec(id, num_envs=n, vectorization_mode='sync')"
    )
