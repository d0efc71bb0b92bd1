"""A finite first-in-first-out memory of transitions, sampled at random (chapter 5).

A transition here may span several steps: it holds the observation and action it starts from, the discounted
sum of the rewards in between, the observation it leads to, and the discount of that observation's value,
which is ``gamma^steps``, or 0 after a termination. One-step Q-learning, n-step targets and both ways for an
episode to end are then the same line: ``target = return + discount * value``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbook_lib.checks import Array, Count, Floats, Range, Seed, check, checked

Updates: TypeAlias = Floats[Array, "...", Range(0)]


class Batch(NamedTuple):
    """B transitions drawn from the buffer."""

    observations: Tensor  #: (B, d) float32
    actions: Tensor  #: (B,) int64, from 0
    returns: Tensor  #: (B,) float32; discounted sum of the transition's rewards
    next_observations: Tensor  #: (B, d) float32; the real ones, final observations included
    discounts: Tensor  #: (B,) float32; factors of the value of the next observation, 0 after a termination


class ReplayBuffer:
    """The last ``capacity`` transitions, on ``device``; a full buffer forgets the oldest first. ``seed`` is of the sampling.

    Source: Lin (1992); Mnih et al. (2015).
    """

    @checked
    def __init__(
        self, capacity: Count, observation_size: Count, *, seed: Seed, device: str | torch.device = "cpu"
    ) -> None:
        self.capacity, self.observation_size = capacity, observation_size
        # one row a transition: observation, action, return, next observation, discount. Then one look-up
        # fetches a whole batch. Actions are small integers, which float32 holds exactly.
        self._widths = (observation_size, 1, 1, observation_size, 1)
        self._rows = torch.zeros(capacity, sum(self._widths), device=device)
        self._generator = torch.Generator().manual_seed(seed)
        self._size, self._next = 0, 0  # filled rows; where the next row goes

    def __len__(self) -> int:
        return self._size

    def add(
        self, observations: Array, actions: Array, returns: Array, next_observations: Array, discounts: Array
    ) -> None:
        """Store n transitions, oldest first; the columns are those of ``Batch``, with n rows, which may be 0."""
        columns: list[NDArray[np.float32]] = []
        for name, values in zip(Batch._fields, (observations, actions, returns, next_observations, discounts)):
            try:
                columns.append(np.asarray(values, dtype=np.float32))
            except (TypeError, ValueError):
                raise TypeError(f"{name} is {values!r}; expected an array of numbers") from None
        n = columns[0].shape[:1]
        wide = (*n, self.observation_size)
        for name, column, shape in zip(Batch._fields, columns, (wide, n, n, wide, n)):
            if column.shape != shape:
                raise ValueError(f"{name} has shape {column.shape}; expected {shape}")
        rows = np.column_stack(columns)  # (n, 2 d + 3)
        if not np.isfinite(rows).all():
            name = next(name for name, column in zip(Batch._fields, columns) if not np.isfinite(column).all())
            raise ValueError(f"{name} holds NaN or infinite values; expected finite numbers")
        if np.asarray(actions).dtype.kind not in "iu" or columns[1].min(initial=0) < 0:
            raise ValueError(f"actions is {actions!r}; expected whole numbers, 0 or more")
        if columns[4].min(initial=0) < 0 or columns[4].max(initial=1) > 1:
            raise ValueError(f"discounts is {discounts!r}; expected numbers from 0 to 1")
        rows = rows[-self.capacity :]
        places = (self._next + np.arange(len(rows))) % self.capacity
        self._rows[torch.from_numpy(places)] = torch.from_numpy(rows).to(self._rows.device)
        self._next = int((self._next + len(rows)) % self.capacity)
        self._size = min(self._size + len(rows), self.capacity)

    def sample(self, batch_size: Count) -> Batch:
        """Draw transitions uniformly, with replacement; there may be more of them than are stored."""
        if self._size == 0:
            raise ValueError("the buffer is empty: add transitions before sampling")
        size = (check("batch_size", batch_size, Count),)
        index = torch.randint(self._size, size, generator=self._generator)
        rows = self._rows.index_select(0, index.to(self._rows.device))  # (B, 2 d + 3)
        observations, actions, returns, next_observations, discounts = rows.split(self._widths, 1)
        return Batch(
            observations, actions.squeeze(1).long(), returns.squeeze(1), next_observations, discounts.squeeze(1)
        )

    def state(self) -> dict[str, Any]:
        """Everything needed to go on from here, bit for bit, copied."""
        return {
            "capacity": self.capacity,
            "rows": self._rows[: self._size].cpu().clone(),
            "next": self._next,
            "generator": self._generator.get_state().clone(),
        }

    @checked
    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state`` was taken."""
        if not {"capacity", "rows", "next", "generator"} <= state.keys():
            raise ValueError(f"state has {sorted(state)}; expected what state() of a ReplayBuffer gave")
        size, width = state["rows"].shape
        if (state["capacity"], width) != (self.capacity, sum(self._widths)):
            raise ValueError(
                f"the state has {state['capacity']} rows of {width} numbers, this buffer "
                f"{self.capacity} of {sum(self._widths)}"
            )
        self._rows[:size] = state["rows"].to(self._rows.device)
        self._size, self._next = size, state["next"]
        self._generator.set_state(state["generator"])


@checked
def draw_chance(updates: Updates, batch_size: Count, capacity: Count) -> NDArray[np.float64]:
    """The chance that one stored transition has been drawn at least once: ``1 - (1 - 1/C)^(k B)``.

    Equation: eq-replay-age

    Each of the k updates since it was stored draws B of the C stored transitions, uniformly and with replacement. The
    mean number of draws is ``k B / C``; where that is 1, the chance is about 63 percent.
    """
    if capacity == 1:
        return np.where(updates > 0, 1.0, 0.0)
    return -np.expm1(updates * batch_size * math.log1p(-1 / capacity))


@checked
def expected_draws(updates: Updates, batch_size: Count, capacity: Count) -> NDArray[np.float64]:
    """How often one stored transition has been drawn on average in k updates: ``k B / C``."""
    return updates * batch_size / capacity
