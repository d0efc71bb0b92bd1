import numpy as np
from claims import cells

PAGE = "08_entropy_kl"


def the_entropy_collapses_without_a_bonus(seed):
    """this is called **entropy collapse**: the agent has stopped looking."""
    learn = cells(PAGE, "kl8-direction-code", "kl8-bonus-learn")["learn"]
    policies, pay = learn(0.0, seed=seed)
    before = policies[1499]
    entropy = -(before * np.log(before)).sum(axis=1)
    return np.median(entropy) < 0.15 and np.sum(pay[-1] > 0.9) < 40


def a_bonus_finds_the_new_arm(seed):
    """With bonus $0.1$ all 100 do (98 to 100 on other seeds), and before the swap it cost about a hundredth of the pay."""
    learn = cells(PAGE, "kl8-direction-code", "kl8-bonus-learn")["learn"]
    with_bonus, without = learn(0.1, seed=seed)[1], learn(0.0, seed=seed)[1]
    return np.sum(with_bonus[-1] > 0.9) >= 98 and 0 < np.median(without[1499]) - np.median(with_bonus[1499]) < 0.03
