from functools import cache

import numpy as np
import torch
from claims import cells

PAGE = "05_dqn"


TENT, WAVE = 8.0 - np.abs(np.arange(1, 24) - 15), 8 * np.sin(np.arange(1, 24) / 2)


def _trained(units, seed, dots=None):
    """Weights, and typical error, after every tenth step of training."""
    page = cells(PAGE, "dqn-fit-explore")
    wanted = page["exact_values"] if dots is None else dots
    kept = page["fit"](units, torch.tensor(wanted), seed)
    return kept, np.array([page["typical_error"](weights, wanted) for weights in kept])


@cache
def _errors(units, seed):
    return _trained(units, seed)[1]


def many_units_need_fewer_steps(seed):
    """Many units need *fewer* steps"""
    return np.argmax(_errors(32, seed) < 0.5) < np.argmax(_errors(4, seed) < 0.5)


def before_training_no_size_is_any_good(seed):
    """Before training no size is any good: an error of 3 and more, with 32 bends as with one."""
    return min(_errors(units, seed)[0] for units in (4, 32)) > 3


def bends_move_where_the_dots_ask_for_it(seed):
    """Two of the three bends walk there, and the error falls to 0.00."""
    kept, errors = _trained(3, seed, TENT)
    w, b, *_ = kept[-1]
    return errors[-1] < 0.05 and (np.abs(12 - 12 * b / w - 15) < 0.2).sum() >= 2


def _moved(name, seed):
    """(9,) what the other cells moved, in shares of the trained cell's, and the two neighbors of it."""
    page = cells(PAGE, "dqn-neighbors")
    make, inputs = page["kinds"][name]
    torch.manual_seed(seed)
    change = page["change_of"](make(), inputs)
    share = change / change[6]
    return np.delete(share, 6), share[[5, 7]]


def in_a_network_every_cell_moves(seed):
    """In the network *every* cell rises"""
    one_hot, _ = _moved("network, one-hot", seed)
    far, near = _moved("network, position", seed)
    return one_hot.min() > 0.4 and one_hot.max() < 1 and near.min() > 0.85 and far.min() > 0


PLAIN = ("torch.optim.Adam(online.parameters(), lr=0.005)", "torch.optim.SGD(online.parameters(), lr=0.3)")


@cache
def _counted(seed, copy_every, updates, inputs="one_hot", edits=()):
    """(updates + 1, 10) counts, before the first update and after each."""
    page = cells(PAGE, "dqn-small", "dqn-strip", "dqn-neighbors", "dqn-corridor", edits=edits)
    coded = page[inputs]
    trained = page["train_counting"](seed, copy_every=copy_every, updates=updates, inputs=coded)
    return np.array([network(coded)[:, 0].detach().numpy() for network, _ in trained])


def labels_from_the_network_itself_run_ahead_of_it(seed):
    """Labels from the network itself run ahead of it: it counts past everything that is there."""
    return _counted(seed, 1, 120).max() > 13 and _counted(seed, 50, 600).max() < 10.4


def each_copy_counts_one_step_more(seed):
    """Labels from a copy wait for it, and each copy counts one step more."""
    first, exact = _counted(seed, 50, 600)[:, 0], np.arange(10, 0, -1)
    stairs = all(abs(first[50 * copies] - copies) < 0.5 for copies in range(1, 11))
    return stairs and np.abs(_counted(seed, 50, 600)[-1] - exact).max() < 0.25


def whether_you_need_a_copy_depends(seed):
    """with the cell's position as input, or with plain gradient descent (step size 0.3) in place of Adam, the network itself runs less far ahead, and is there before the copy."""
    exact = np.arange(10, 0, -1)
    for inputs, edits in (("place", ()), ("one_hot", (PLAIN,))):
        moving, held = (_counted(seed, C, 400, inputs, edits) for C in (1, 50))
        error, late = (np.sqrt(((counts[-1] - exact) ** 2).mean()) for counts in (moving, held))
        if moving.max() > _counted(seed, 1, 120).max() or error > 0.3 or late < 0.4:
            return False
    return True


def neighbors_in_time_look_alike(seed):
    """Neighbors in time look alike."""
    place = cells(PAGE, "dqn-c036")["pole_stream"](5000, seed)[:, 0]
    means = np.lib.stride_tricks.sliding_window_view(place, 32).mean(axis=1)
    worth = place.var() / means.var()  # so many independent steps have a mean as noisy as that of 32 in a row
    return 1 <= worth < 1.5


def the_maximum_adds_up_and_an_older_judge_takes_it_away(seed):
    """the maximum adds a little in every room, and the sum is believed. A judge that is old enough, with errors of its own, takes most of it away."""
    page = cells(PAGE, "dqn-c045")
    highest, fair = (
        [page["rooms"](double, C, seed=seed)[-15:].mean() for C in page["COPIES"]] for double in (False, True)
    )
    return min(highest) > 1.2 and fair[0] == highest[0] and max(fair[2:]) < 0.3


def most_starts_draw_the_wave(seed):
    """most other starts come to 0.97"""
    return np.median([_trained(32, start, WAVE)[1][-1] for start in range(100 * seed, 100 * seed + 30)]) < 1.2
