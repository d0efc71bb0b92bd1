"""Collected experience: one frozen record, the loop that fills it, and the actors that make it (chapter 6 on).

A ``Collector`` lets a policy act in N copies of an environment for T steps at a time and keeps where it
stopped: the next call goes on from there. Time is the first axis, copies are the second.

``open_actors`` makes what REINFORCE, A2C, TRPO and PPO begin with: environments, a policy and a value network,
and the collector that lets the one act in the others.

On a CPU everything is numpy, which is faster there for networks as small as ours. Environments that hand out
tensors (``TorchCartPole``) get tensors back, and the record holds tensors on their device: nothing is copied
to the CPU in between. Everything below works for both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rlbook_lib.checks import Actor, Array, Count, Environment, Seed, Settings, Values, checked
from rlbook_lib.environments import VectorEnvironment, opened
from rlbook_lib.networks import Policy, ValueNetwork, make_policy
from rlbook_lib.training import pack, unpack


@dataclass(frozen=True)
class Rollout:
    """T steps of N copies: what was seen, done and received. A single step of them has no axis T."""

    observations: Array  #: (T, N, d) float32; s_t
    actions: Array  #: (T, N) integers, or (T, N, k) float32 as drawn, before any clipping
    rewards: Array  #: (T, N) float32, reward units; r_t follows a_t
    terminated: Array  #: (T, N) bool; the step led into a terminal state
    truncated: Array  #: (T, N) bool; the episode was stopped after this step
    next_observations: Array  #: (T, N, d) float32; s_{t+1} of the same episode, before any reset
    outputs: Array  #: (T, N, k) float32; what the policy network computed at s_t, which describes pi_old(. | s_t)
    log_probs: Array  #: (T, N) float32; log pi_old(a_t | s_t)

    @property
    def steps(self) -> int:
        """T."""
        return int(self.rewards.shape[0])

    @property
    def copies(self) -> int:
        """N."""
        return int(self.rewards.shape[1])

    def __len__(self) -> int:
        """Number of transitions, T N."""
        return self.steps * self.copies

    def batch(self) -> RolloutBatch:
        """What a loss needs, as tensors without the time axis."""
        columns = self.observations, self.actions, self.outputs, self.log_probs
        return RolloutBatch(*map(flatten, columns))


class RolloutBatch(NamedTuple):
    """Transitions as tensors, time and copies in one axis: observations, actions, outputs, log_probs."""

    observations: Tensor  #: (T N, d)
    actions: Tensor  #: (T N,) or (T N, k)
    outputs: Tensor  #: (T N, k), of the policy that acted
    log_probs: Tensor  #: (T N,), of the policy that acted


@checked
def flatten(array: np.ndarray | Tensor) -> Tensor:
    """A (T, N, ...) array or tensor as a tensor (T N, ...): the first N rows are time 0. Shares memory."""
    if array.ndim < 2:
        raise ValueError(f"array has shape {tuple(array.shape)}; expected (T, N, ...)")
    return torch.as_tensor(array).flatten(0, 1)


class Collector:
    """Lets a policy, which may change between two calls, act in all copies, T ``steps`` at a time, going on where it stopped.

    ``rng`` draws the actions: a torch Generator, on their device, for environments that hand out tensors.
    """

    @checked
    def __init__(
        self, environments: VectorEnvironment, policy: Actor, steps: Count, rng: np.random.Generator | torch.Generator
    ) -> None:
        wanted = torch.Generator if environments.in_tensors else np.random.Generator
        if not isinstance(rng, wanted):
            library = wanted.__module__.partition(".")[0]
            raise TypeError(f"rng is {rng!r}; expected a {library} Generator for {environments}")
        self.environments, self.policy, self.steps, self.rng = environments, policy, steps, rng
        self.observations = environments.reset()  # (N, d): where the next step starts
        self._library: Any = torch if environments.in_tensors else np
        self._sample = policy.sample_torch if environments.in_tensors else policy.sample

    def collect(self) -> Rollout:
        """The next T steps of every copy; a finished episode is followed by a new one in the same column."""
        return self._stacked([self._step() for _ in range(self.steps)])

    @checked
    def collect_episodes(self, max_steps: Count | None = None) -> tuple[Rollout, Array]:
        """One whole episode of every copy, from a reset to its end.

        The copies run side by side, and one that has finished starts over until the last has finished: those
        steps belong to no episode of the record, and the mask (T, N) is False there. Episodes that are still under
        way after ``max_steps`` are cut, as a truncation; None trusts the environment's limit.
        """
        limit = math.inf if max_steps is None else max_steps
        self.observations = self.environments.reset()
        rows: list[Rollout] = []
        masks: list[Array] = []
        running = self._library.ones_like(self.observations[:, 0], dtype=bool)  # (N,)
        while running.any() and len(rows) < limit:
            rows.append(self._step())
            masks.append(running)
            running = running & ~(rows[-1].terminated | rows[-1].truncated)
        if running.any():
            rows[-1] = dataclasses.replace(rows[-1], truncated=rows[-1].truncated | running)
        return self._stacked(rows), self._library.stack(masks)

    def _step(self) -> Rollout:
        """One action in every copy; (N, ...) each."""
        observations = self.observations
        actions, log_probs, outputs = self._sample(observations, self.rng)
        step = self.environments.step(self.policy.for_environment(actions))
        self.observations = step.observations
        _, rewards, terminated, truncated, after = step
        return Rollout(observations, actions, rewards, terminated, truncated, after, outputs, log_probs)

    def _stacked(self, rows: list[Rollout]) -> Rollout:
        """Steps (N, ...) one above the other: (T, N, ...)."""
        join: Any = torch.stack if self._library is torch else np.array  # np.stack gives the same in twice the time
        columns = {name: join([getattr(row, name) for row in rows]) for name in vars(rows[0])}
        rewards = columns["rewards"]
        columns["rewards"] = rewards.float() if self._library is torch else rewards.astype(np.float32)
        return Rollout(**columns)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on from here, bit for bit; the policy's weights are not in it."""
        return {"environments": self.environments.state(), "rng": pack(self.rng)}

    @checked
    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state`` was taken."""
        self.environments.load_state(state["environments"])
        self.observations = self.environments.observations
        unpack(self.rng, state["rng"])


@checked
def value_estimates(rollout: Rollout, value_network: Values) -> tuple[Any, Any]:
    """V(s_t) and V(s_{t+1}) of every step, (T, N) each, in units of return, without gradients.

    The second are of the real next states, before any reset, and 0 at terminations. Inside an episode V(s_{t+1}) is
    the value of the next row: the network (``numpy(observations)`` for arrays, a call on tensors) is asked again only
    where the next row belongs to another episode although this one was truncated, and at the end of the buffer.
    """
    on_tensors = isinstance(rollout.observations, Tensor)
    value = torch.no_grad()(value_network) if on_tensors else value_network.numpy
    shape, size = rollout.rewards.shape, rollout.observations.shape[-1]
    values = value(rollout.observations.reshape(-1, size)).reshape(shape)
    next_values = torch.empty_like(values) if on_tensors else np.empty_like(values)
    next_values[:-1] = values[1:]
    elsewhere = rollout.truncated | rollout.terminated
    elsewhere[-1] = True
    next_values[elsewhere] = 0.0
    needed = elsewhere & ~rollout.terminated
    if needed.any():
        next_values[needed] = value(rollout.next_observations[needed])
    return values, next_values


# ---------------------------------------------------------------------- the actors of a run


class SeparatePolicyValue(nn.Module):
    """A policy and a value network in one module, which share nothing."""

    @checked
    def __init__(self, policy: nn.Module, value: ValueNetwork) -> None:
        super().__init__()
        self.policy, self.value = policy, value

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Policy outputs (n, k) and values (n,) for observations (n, d)."""
        return self.policy(observations), self.value(observations)


class Actors(NamedTuple):
    """What acts, and where: all on one device."""

    environments: VectorEnvironment
    policy: Policy
    value: ValueNetwork
    networks: nn.Module  #: both of them, from observations to (policy outputs, values)
    collector: Collector


@checked
@contextmanager
def open_actors(
    env: Environment, config: Settings, seeds: Sequence[Seed], *, copies: Count, steps: Count
) -> Iterator[Actors]:
    """Environments, a policy and a value network for them, and a collector: ``with open_actors(...) as actors``.

    Environments that were made here are closed afterwards; those that came ready-made stay open.

    Args:
        config: its ``hidden``, ``activation`` and ``scale`` are those of the networks.
        seeds: four of them: of the environments, the policy, the value network and the actions.
        steps: T, of each copy in one rollout.
    """
    with opened(env, copies, seed=seeds[0]) as environments:
        layers: dict[str, Any] = {"hidden": config.hidden, "activation": config.activation}
        spaces = environments.observation_space, environments.action_space
        policy: Any = make_policy(*spaces, seed=seeds[1], env=environments.name, **layers)
        value = ValueNetwork(environments.observation_size, seed=seeds[2], scale=config.scale, **layers)
        networks = SeparatePolicyValue(policy, value).to(environments.device)
        collector = Collector(environments, policy, steps, environments.generator(seeds[3]))
        yield Actors(environments, policy, value, networks, collector)
