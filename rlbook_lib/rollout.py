"""Collected experience: one frozen record, and the loop that fills it (chapter 6 on).

A ``Collector`` lets a policy act in N copies of an environment for T steps at a time and keeps where it
stopped: the next call goes on from there. Time is the first axis, copies are the second.

On a CPU everything is numpy, which is faster there for networks as small as ours. Environments that hand out
tensors (``TorchCartPole``) get tensors back, and the record holds tensors on their device: nothing is copied
to the CPU in between. Everything below works for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rlbook_lib.environments import TorchCartPole, VectorEnvironment
from rlbook_lib.experience import check_count
from rlbook_lib.training import rng_state, set_rng_state

Array: TypeAlias = Any  # a numpy array or a torch tensor

__all__ = ["Batch", "Collector", "Rollout", "flatten", "value_estimates"]


@dataclass(frozen=True)
class Rollout:
    """T steps of N copies: what was seen, done and received.

    Args:
        observations: (T, N, d) float32; s_t.
        actions: (T, N) integers, or (T, N, k) float32 as drawn, before any clipping.
        rewards: (T, N) float32, reward units; r_t follows a_t.
        terminated: (T, N) bool; the step led into a terminal state.
        truncated: (T, N) bool; the episode was stopped after this step.
        next_observations: (T, N, d) float32; s_{t+1} of the same episode, before any reset.
        outputs: (T, N, k) float32; what the policy network computed at s_t: describes pi_old(. | s_t).
        log_probs: (T, N) float32; log pi_old(a_t | s_t).
    """

    observations: Array
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    next_observations: Array
    outputs: Array
    log_probs: Array

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

    def batch(self) -> Batch:
        """What a loss needs, as tensors without the time axis."""
        return Batch(*(flatten(x) for x in (self.observations, self.actions, self.outputs, self.log_probs)))


class Batch(NamedTuple):
    """Transitions as tensors, time and copies in one axis: observations, actions, outputs, log_probs."""

    observations: Tensor  # (T N, d)
    actions: Tensor  # (T N,) or (T N, k)
    outputs: Tensor  # (T N, k), of the policy that acted
    log_probs: Tensor  # (T N,), of the policy that acted


def flatten(array: Array) -> Tensor:
    """A (T, N, ...) array or tensor as a tensor (T N, ...): the first N rows are time 0. Shares memory.

    Args:
        array: (T, N, ...), numpy or tensor.

    Returns:
        (T N, ...), on the same device.

    Raises:
        ValueError: fewer than two axes.
        TypeError: neither a numpy array nor a tensor.
    """
    if not isinstance(array, (np.ndarray, Tensor)):
        raise TypeError(f"array is {type(array).__name__}; expected a numpy array or a tensor")
    if array.ndim < 2:
        raise ValueError(f"array has shape {tuple(array.shape)}; expected (T, N, ...)")
    return torch.as_tensor(array).flatten(0, 1)


class Collector:
    """Lets a policy act in all copies, T steps at a time, going on where it stopped.

    Args:
        environments: a vector environment (see ``environments.vectorize``).
        policy: its ``sample`` draws actions; it may change between two calls.
        steps: T, 1 or more.
        rng: draws the actions: a numpy Generator, or a torch Generator on the environments' device if they
            hand out tensors.

    Raises:
        ValueError: steps below 1.
        TypeError: steps is no whole number, environments are no vector environment, or rng is of the wrong
            kind.
    """

    def __init__(self, environments: Any, policy: Any, steps: int,
                 rng: np.random.Generator | torch.Generator) -> None:
        if not isinstance(environments, (VectorEnvironment, TorchCartPole)):
            raise TypeError(f"environments is {environments!r}; expected what environments.vectorize gives")
        self.environments, self.policy = environments, policy
        self.steps, self.rng = check_count("steps", steps), rng
        self.observations = environments.reset()  # (N, d): where the next step starts
        self._library = torch if isinstance(self.observations, Tensor) else np
        wanted = torch.Generator if self._library is torch else np.random.Generator
        if not isinstance(rng, wanted):
            raise TypeError(f"rng must be a {self._library.__name__} Generator here, got {rng!r}")
        self._sample = policy.sample_torch if self._library is torch else policy.sample

    def collect(self) -> Rollout:
        """The next T steps of every copy; a finished episode is followed by a new one in the same column.

        Returns:
            A rollout that later calls leave as it is.
        """
        return self._stacked([self._step() for _ in range(self.steps)])

    def collect_episodes(self, max_steps: int | None = None) -> tuple[Rollout, Array]:
        """One whole episode of every copy, from a reset to its end.

        The copies run side by side, and one that has finished starts over until the last has finished: those
        steps belong to no episode of the record.

        Args:
            max_steps: episodes still under way then are cut, as a truncation; None trusts the environment's
                own limit.

        Returns:
            A rollout as long as the longest episode, and a mask (T, N): True where a step belongs to the
            copy's episode.

        Raises:
            ValueError: max_steps below 1.
            TypeError: max_steps is no whole number.
        """
        limit = math.inf if max_steps is None else check_count("max_steps", max_steps)
        self.observations = self.environments.reset()
        rows: list[_Row] = []
        masks: list[Array] = []
        running = self._library.ones_like(self.observations[:, 0], dtype=bool)  # (N,)
        while running.any() and len(rows) < limit:
            rows.append(self._step())
            masks.append(running)
            running = running & ~(rows[-1].terminated | rows[-1].truncated)
        if running.any():
            rows[-1] = rows[-1]._replace(truncated=rows[-1].truncated | running)
        return self._stacked(rows), self._library.stack(masks)

    def _step(self) -> _Row:
        """One action in every copy."""
        observations = self.observations
        actions, log_probs, outputs = self._sample(observations, self.rng)
        step = self.environments.step(self.policy.for_environment(actions))
        self.observations = step.observations
        return _Row(observations, actions, step.rewards, step.terminated, step.truncated,
                    step.next_observations, outputs, log_probs)

    def _stacked(self, rows: list[_Row]) -> Rollout:
        """Rows (N, ...) one above the other: (T, N, ...)."""
        arrays = _Row(*(self._library.stack(column) for column in zip(*rows)))
        rewards = arrays.rewards.float() if self._library is torch else arrays.rewards.astype(np.float32)
        return Rollout(**arrays._replace(rewards=rewards)._asdict())

    def state(self) -> dict[str, Any]:
        """Everything needed to go on from here, bit for bit; the policy's weights are not in it.

        Returns:
            Tensors and plain data.
        """
        return {"environments": self.environments.state(), "rng": rng_state(self.rng)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state`` was taken.

        Args:
            state: from ``state()`` of a collector made alike.

        Raises:
            ValueError: the state of another environment or of another number of copies.
        """
        self.environments.load_state(state["environments"])
        self.observations = self.environments.observations
        set_rng_state(self.rng, state["rng"])


class _Row(NamedTuple):
    """One step of all copies, (N, ...) each, in the order of the record."""

    observations: Array
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    next_observations: Array
    outputs: Array
    log_probs: Array


def value_estimates(rollout: Rollout, value_network: Any) -> tuple[Array, Array]:
    """V(s_t) and V(s_{t+1}) of every step, with as few evaluations as possible.

    Inside an episode V(s_{t+1}) is the value of the next row. The network is asked again only where the next
    row belongs to another episode although this one was truncated, and at the end of the buffer.

    Args:
        rollout: T steps of N copies.
        value_network: has ``numpy(observations)`` for arrays and can be called on tensors; (n, d) to (n,).

    Returns:
        (values, next_values), (T, N) each, in units of return, without gradients; next_values are of the real
        next states, before any reset, and 0 at terminations.
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
