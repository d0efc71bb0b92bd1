"""Tests of rlbook_lib.replay_buffer: first in first out, uniform draws, exact resume."""

import io
import itertools

import numpy as np
import pytest
import torch

from rlbook_lib.replay_buffer import Batch, ReplayBuffer, draw_chance, expected_draws


def rows(first, count, size=2):
    """Transitions that carry their number in every column."""
    n = np.arange(first, first + count)
    wide = np.repeat(n[:, None], size, axis=1)
    return wide + 0.5, n, n + 0.25, wide + 1.5, np.full(count, 0.9)


def contents(buffer):
    """The actions, which are the numbers of the transitions, of everything in the buffer."""
    return sorted(set(buffer.sample(4000).actions.tolist()))


def test_a_batch_gives_back_what_was_stored():
    buffer = ReplayBuffer(10, 2, seed=0)
    buffer.add(*rows(3, 4))
    batch = buffer.sample(100)
    assert isinstance(batch, Batch) and batch.actions.dtype == torch.int64
    n = batch.actions.numpy()
    assert set(n) == {3, 4, 5, 6}
    np.testing.assert_array_equal(batch.observations, np.repeat(n[:, None] + 0.5, 2, axis=1))
    np.testing.assert_array_equal(batch.next_observations, np.repeat(n[:, None] + 1.5, 2, axis=1))
    np.testing.assert_array_equal(batch.returns, n + 0.25)
    np.testing.assert_array_equal(batch.discounts, np.full(100, 0.9, np.float32))


def test_the_oldest_transitions_leave_first():
    buffer, stored = ReplayBuffer(7, 2, seed=0), []
    for first, count in ((0, 3), (3, 3), (6, 5), (11, 1), (12, 20), (32, 2), (34, 0)):
        buffer.add(*rows(first, count))
        stored = (stored + list(range(first, first + count)))[-7:]
        assert len(buffer) == len(stored)
        assert contents(buffer) == stored


def test_discounts_and_actions_at_the_ends_of_their_ranges_are_kept():
    buffer = ReplayBuffer(3, 1, seed=0)
    buffer.add(np.zeros((3, 1)), [0, 1, 10**6], np.zeros(3), np.zeros((3, 1)), [0.0, 1.0, 0.5])
    batch = buffer.sample(100)
    assert dict(zip(batch.actions.tolist(), batch.discounts.tolist())) == {0: 0.0, 1: 1.0, 10**6: 0.5}


def test_draws_are_uniform():
    buffer = ReplayBuffer(8, 1, seed=0)
    buffer.add(*rows(0, 8, size=1))
    counts = np.bincount(buffer.sample(80_000).actions.numpy(), minlength=8)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 30  # chi-squared, 7 degrees of freedom


def test_the_same_seed_draws_the_same_batch():
    buffers = [ReplayBuffer(20, 2, seed=seed) for seed in (4, 4, 5)]
    for buffer in buffers:
        buffer.add(*rows(0, 20))
    a, b, c = (buffer.sample(50).actions.tolist() for buffer in buffers)
    assert a == b != c


def test_a_buffer_goes_on_from_its_state():
    buffer = ReplayBuffer(9, 2, seed=0)
    buffer.add(*rows(0, 5))
    buffer.add(*rows(5, 7))  # full, and its oldest row is in the middle
    buffer.sample(3)
    file = io.BytesIO()
    torch.save(buffer.state(), file)
    file.seek(0)
    other = ReplayBuffer(9, 2, seed=1)
    other.load_state(torch.load(file, weights_only=True))
    for first in (12, 17):
        for one, two in zip(buffer.sample(30), other.sample(30)):
            assert torch.equal(one, two)
        buffer.add(*rows(first, 5))
        other.add(*rows(first, 5))
    assert contents(buffer) == contents(other)


def test_a_state_is_a_copy_and_belongs_to_one_size():
    buffer = ReplayBuffer(4, 2, seed=0)
    buffer.add(*rows(0, 4))
    state = buffer.state()
    buffer.add(*rows(4, 4))
    assert state["rows"][:, 2].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="4 rows of 7"):
        ReplayBuffer(5, 2, seed=0).load_state(state)
    with pytest.raises(ValueError, match="this buffer 4 of 9"):
        ReplayBuffer(4, 3, seed=0).load_state(state)
    for other in ({}, {"rows": 3}):
        with pytest.raises(ValueError, match="state has .*; expected what state"):
            buffer.load_state(other)


def test_bad_input():
    buffer = ReplayBuffer(4, 2, seed=0)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    good = rows(0, 3)
    for place, name in enumerate(Batch._fields):
        bad = list(good)
        bad[place] = np.zeros((3, 5))
        with pytest.raises(ValueError, match=f"^{name} has shape"):
            buffer.add(*bad)
        bad[place] = np.full_like(np.asarray(good[place], dtype=float), np.nan)
        with pytest.raises(ValueError, match=f"^{name} holds NaN or infinite values"):
            buffer.add(*bad)
        bad[place] = "abc"
        with pytest.raises(TypeError, match=f"^{name} is 'abc'; expected an array of numbers"):
            buffer.add(*bad)
    observations, actions, returns, next_observations, discounts = good
    for wrong in (actions - 5, actions + 0.5):
        with pytest.raises(ValueError, match=r"(?s)^actions is .*; expected whole numbers, 0 or more"):
            buffer.add(observations, wrong, returns, next_observations, discounts)
    for wrong in (discounts + 1, -discounts):
        with pytest.raises(ValueError, match=r"(?s)^discounts is .*; expected numbers from 0 to 1"):
            buffer.add(observations, actions, returns, next_observations, wrong)
    with pytest.raises(ValueError, match=r"^actions has shape \(\); expected \(1,\)"):
        buffer.add(observations[:1], 1, returns[:1], next_observations[:1], discounts[:1])
    assert len(buffer) == 0
    buffer.add(*good)
    with pytest.raises(ValueError, match="batch_size"):
        buffer.sample(0)


@pytest.mark.equation("eq-replay-age")
@pytest.mark.parametrize("updates, batch, capacity", [(0, 2, 3), (1, 1, 4), (1, 3, 2), (2, 2, 3), (3, 2, 1), (3, 2, 4)])
def test_draw_chance_against_all_sequences_of_draws(updates, batch, capacity):
    sequences = list(itertools.product(range(capacity), repeat=updates * batch))
    drawn = sum(0 in sequence for sequence in sequences)
    times = sum(sequence.count(0) for sequence in sequences)
    assert draw_chance(updates, batch, capacity) == pytest.approx(drawn / len(sequences), abs=1e-12)
    assert expected_draws(updates, batch, capacity) == pytest.approx(times / len(sequences), abs=1e-12)


def test_draw_chance_takes_arrays():
    chance = draw_chance([0, 10, 1000], 32, 10_000)
    assert chance.shape == (3,) and chance[0] == 0 and (np.diff(chance) > 0).all()
    assert draw_chance(10_000 / 32, 32, 10_000) == pytest.approx(1 - np.exp(-1), abs=1e-4)
