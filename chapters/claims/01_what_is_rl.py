import numpy as np
from claims import cells

PAGE = "01_what_is_rl"


def rewards_take_more_examples(seed):
    """About three times as many (with 400 runs and other seeds between 2.7 and 4.0 at each level)"""
    learn = cells(PAGE, "df3219cb")["learn_classes"]
    label, reward = (learn(feedback, runs=400, examples=150, seed=seed).mean(0) for feedback in ("label", "reward"))
    ratios = [np.argmax(reward >= level) / np.argmax(label >= level) for level in (0.55, 0.65, 0.70)]
    return all(2.5 <= ratio <= 4.2 for ratio in ratios)


def too_low_a_guess_does_not_explore(seed):
    """So the move into G is hardly ever tried"""
    last_ten = cells(PAGE, "hook0101", "ex108a")["last_ten"]
    return sum(last_ten(0.0, -1.0, 100 * seed + k) > 0 for k in range(20)) <= 3
