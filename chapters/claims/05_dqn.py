from functools import cache

import numpy as np
import torch
from claims import cells

PAGE = "05_dqn"


@cache
def _errors(units, seed):
    """Typical error after every tenth step of training."""
    page = cells(PAGE, "dqn-fit-explore")
    x, wanted = page["position"].numpy(), page["exact_values"]
    kept = page["fit"](units, torch.tensor(wanted), seed)
    return np.array([np.sqrt(np.mean((c + np.maximum(0, x * w + b) @ v - wanted) ** 2)) for w, b, v, c in kept])


def many_units_need_fewer_steps(seed):
    """Many units need *fewer* steps"""
    return np.argmax(_errors(32, seed) < 0.5) < np.argmax(_errors(4, seed) < 0.5)


def before_training_no_size_is_any_good(seed):
    """Before training no size is any good: an error of 3 and more, with 32 bends as with one."""
    return min(_errors(units, seed)[0] for units in (4, 32)) > 3


def _fitted(units, dots, seed, held):
    """Typical error after 1000 steps, and where the bends stand."""
    page = cells(PAGE, "dqn-fit-explore")
    x = page["position"].numpy()
    w, b, v, c = page["fit"](units, torch.tensor(dots), seed, held)[-1]
    return np.sqrt(np.mean((c + np.maximum(0, x * w + b) @ v - dots) ** 2)), 12 - 12 * b / w


def bends_move_where_the_dots_ask_for_it(seed):
    """Two of the three bends walk there, and the error falls to 0.00. Held where they start, three bends stop at 1.84, whatever their slopes."""
    tent = 8.0 - np.abs(np.arange(1, 24) - 15)
    free, bends = _fitted(3, tent, seed, False)
    held, _ = _fitted(3, tent, seed, True)
    return free < 0.05 and (np.abs(bends - 15) < 0.2).sum() >= 2 and abs(held - 1.84) < 0.05


def on_the_corridor_they_hardly_have_to(seed):
    """On these dots the bends move little, and they hardly have to: with four bends that are held where they start, the error is 0.26."""
    dots = cells(PAGE, "dqn-fit-explore")["exact_values"]
    free, bends = _fitted(4, dots, seed, False)
    held, _ = _fitted(4, dots, seed, True)
    return abs(free - 0.18) < 0.05 and abs(held - 0.26) < 0.05 and np.abs(bends - [4.8, 9.6, 14.4, 19.2]).mean() < 1.5


def _moved(name, seed):
    """(24,) what the other cells' "right" moved, in shares of the trained cell's, and the two neighbors of it."""
    page = cells(PAGE, "dqn-neighbors")
    make, inputs = page["kinds"][name]
    torch.manual_seed(seed)
    change = page["change_of"](make(), inputs)[:, 1]
    share = change / change[18]
    return np.delete(share, 18), share[[17, 19]]


def in_a_network_every_cell_moves(seed):
    """With the position as input the neighbors moved as much as the trained cell, and the far end less."""
    one_hot, _ = _moved("network, one-hot input", seed)
    far, near = _moved("network, position as input", seed)
    return one_hot.min() > 0.5 and one_hot.max() < 1 and near.min() > 0.9 and 0 < far[0] < 0.95 and far.min() > 0


def whether_a_copy_buys_calm_depends_on_the_network(seed):
    """A copy that stands still costs waiting; whether it also buys calm depends on the network."""
    page = cells(PAGE, "dqn-small", "dqn-strip", "dqn-corridor")
    exact, one_hot = 10 * 0.95 ** np.arange(23, -1, -1), page["one_hot"]
    errors = []
    for inputs, C in ((one_hot, 1), (one_hot, 50), (torch.linspace(-1, 1, 25)[:, None], 1)):
        *_, network = page["train_corridor"](seed, copy_every=C, inputs=inputs)
        values = network(inputs).detach().numpy()[:24].max(axis=1)
        errors.append(np.sqrt(np.mean((values - exact) ** 2)))
    calm, near = errors[1:]
    return errors[0] > 2 * calm and near < 0.3 and errors[0] > 0.2


def neighbors_in_time_look_alike(seed):
    """Neighbors in time look alike."""
    place = cells(PAGE, "dqn-c036")["pole_stream"](5000, seed)[:, 0]
    means = np.lib.stride_tricks.sliding_window_view(place, 32).mean(axis=1)
    worth = place.var() / means.var()  # so many independent steps have a mean as noisy as that of 32 in a row
    return 1 <= worth < 1.5


def a_still_target_lets_the_news_travel_one_cell_a_copy(seed):
    """With $C = 50$ the news runs along a straight line, one cell with each copy"""
    page = cells(PAGE, "dqn-small", "dqn-strip", "dqn-corridor")
    *_, network = page["train_corridor"](seed, copy_every=50, updates=600)  # 12 copies
    values = network(page["one_hot"]).detach().numpy()[:24].max(axis=1)
    exact = 10 * 0.95 ** np.arange(23, -1, -1)
    return 11 <= (values > exact / 2).sum() <= 12  # cells behind the front


def the_maximum_adds_up_and_an_older_judge_takes_it_away(seed):
    """the maximum adds a little in every room, and the sum is believed. A judge with errors of its own takes most of it away."""
    page = cells(PAGE, "dqn-c045")
    highest, fair = (
        [page["rooms"](double, C, seed=seed)[-15:].mean() for C in page["COPIES"]] for double in (False, True)
    )
    return min(highest) > 1.2 and fair[0] == highest[0] and max(fair[2:]) < 0.3


def most_starts_draw_the_wave(seed):
    """Most other starts draw it"""
    page = cells(PAGE, "dqn-fit-explore")
    x, wave, errors = page["position"].numpy(), 8 * np.sin(np.arange(1, 24) / 2), []
    for start in range(100 * seed, 100 * seed + 30):
        w, b, v, c = page["fit"](32, torch.tensor(wave), start)[-1]
        errors.append(np.sqrt(np.mean((c + np.maximum(0, x * w + b) @ v - wave) ** 2)))
    return np.median(errors) < 1.2
