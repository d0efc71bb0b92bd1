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
