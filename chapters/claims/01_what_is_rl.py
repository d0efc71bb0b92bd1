import numpy as np
from claims import cells

PAGE = "01_what_is_rl"


def rewards_take_more_examples(seed):
    """**About three times as many** (with 400 runs and other seeds between 2.2 and 4.5 at each level)"""
    learn = cells(PAGE, "df3219cb")["learn_classes"]
    label, reward = (learn(feedback, runs=400, examples=150, seed=seed).mean(0) for feedback in ("label", "reward"))
    ratios = [np.argmax(reward >= level) / np.argmax(label >= level) for level in (0.55, 0.65, 0.70)]
    return all(2.2 <= ratio <= 4.5 for ratio in ratios)


def too_low_a_guess_does_not_explore(seed):
    """So the move into G is hardly ever tried"""
    last_ten = cells(PAGE, "hook0101", "ex108a")["last_ten"]
    return sum(last_ten(0.0, -1.0, 100 * seed + k) > 0 for k in range(20)) <= 3


def nine_in_ten_need_7_to_21_answers(seed):
    """nine in ten others need 7 to 21"""
    page, rng, needed = cells(PAGE, "45f885e5"), np.random.default_rng(seed), []
    for _ in range(400):
        theta, answers = np.log([0.3, 0.5, 0.2]), 0
        while page["softmax"](theta)[0] <= 0.5:
            theta = theta + 0.2 * page["push"](theta, rng.choice(3, p=page["softmax"](theta)))
            answers += 1
        needed.append(answers)
    return 0.85 < np.mean([7 <= answers <= 21 for answers in needed]) < 0.96


def alike_arms_want_a_longer_look(seed):
    """The more alike the arms, the longer it pays to look, and the less there is to win."""
    page, better = cells(PAGE, "explore1"), np.sort(np.random.default_rng(seed).uniform(0.53, 0.95, 6))
    page["PAIRS"] = {q: (q, 1 - q) for q in better}
    totals = page["totals"](lambda first, second: np.where(first == second, 0.5, first > second))[1].values()
    best, won = np.array([(np.argmax(total), max(total) - total[0]) for total in totals]).T
    return (np.diff(best) <= 0).all() and (np.diff(won) > 0).all()
