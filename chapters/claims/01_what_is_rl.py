import numpy as np
from claims import cells

PAGE = "01_what_is_rl"


def rewards_take_more_examples(seed):
    """About three times as many (with 400 runs and other seeds between 2.2 and 4.5 at each level)"""
    learn = cells(PAGE, "df3219cb")["learn_classes"]
    label, reward = (learn(feedback, runs=400, examples=150, seed=seed).mean(0) for feedback in ("label", "reward"))
    ratios = [np.argmax(reward >= level) / np.argmax(label >= level) for level in (0.55, 0.65, 0.70)]
    return all(2.2 <= ratio <= 4.5 for ratio in ratios)


def too_low_a_guess_does_not_explore(seed):
    """So the move into G is hardly ever tried"""
    last_ten = cells(PAGE, "hook0101", "ex108a")["last_ten"]
    return sum(last_ten(0.0, -1.0, 100 * seed + k) > 0 for k in range(20)) <= 3


def longer_steps_hardly_help(seed):
    """Longer steps hardly help: they do not bring back the examples that were answered wrongly."""
    learn = cells(PAGE, "df3219cb")["learn_classes"]
    steps = [learn("reward", runs=400, examples=150, rate=rate, seed=seed).mean(0) for rate in (0.05, 0.15)]
    needed = [np.argmax(accuracy >= 0.70) for accuracy in steps]
    return 0.7 < needed[1] / needed[0] < 1.1


def alike_arms_want_a_longer_look(seed):
    """The more alike the arms, the longer it pays to look, and the less there is to win."""
    page, better = cells(PAGE, "explore1"), np.sort(np.random.default_rng(seed).uniform(0.53, 0.95, 6))
    page["PAIRS"] = {q: (q, 1 - q) for q in better}
    totals = page["totals"](lambda first, second: np.where(first == second, 0.5, first > second))[1].values()
    best, won = np.array([(np.argmax(total), max(total) - total[0]) for total in totals]).T
    return (np.diff(best) <= 0).all() and (np.diff(won) > 0).all()
