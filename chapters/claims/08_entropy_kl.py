import numpy as np
from claims import cells

PAGE = "08_entropy_kl"


def the_entropy_collapses_without_a_bonus(seed):
    """Without a bonus the agent stops looking."""
    learn = cells(PAGE, "kl8-bonus-learn")["learn"]
    policies, pay = learn(0.0, seed=seed)
    before = policies[1499]
    entropy = -(before * np.log(before)).sum(axis=1)
    quarter = pay[-1].mean() / pay[1499].mean()
    return np.median(entropy) < 0.15 and np.mean(pay[-1] > 0.8) < 0.3 and 0.2 < quarter < 0.35


def a_bonus_finds_the_new_arm(seed):
    """With bonus $0.1$ at least $98\\,\\%$ find it."""
    learn = cells(PAGE, "kl8-bonus-learn")["learn"]
    with_bonus, without = learn(0.1, seed=seed)[1], learn(0.0, seed=seed)[1]
    return np.mean(with_bonus[-1] > 0.8) >= 0.98 and 0 < without[1499].mean() - with_bonus[1499].mean() < 0.03


def twice_the_bonus_recovers_faster_and_costs_more(seed):
    """Twice the bonus recovers faster ($0.82$ instead of $0.43$ after 500 pulls) and costs more"""
    learn = cells("08_entropy_kl", "kl8-bonus-learn")["learn"]
    once, twice = (learn(bonus, seed=seed)[1].mean(axis=1) for bonus in (0.1, 0.2))
    return twice[2000] > once[2000] + 0.2 and twice[1499] < once[1499] - 0.02


def where_nothing_changes_a_bonus_only_costs(seed):
    """In this world of four arms it only costs where nothing changes, and the more the larger it is;"""
    learn = cells("08_entropy_kl", "kl8-bonus-learn")["learn"]
    none, once, twice = (learn(bonus, swap=3000, seed=seed)[1] for bonus in (0.0, 0.1, 0.2))
    last = none[-1].mean() > once[-1].mean() + 0.003 and once[-1].mean() > twice[-1].mean() + 0.03
    return last and none.mean() > once.mean() > twice.mean() and np.mean(none[-1] > 0.8) > 0.99


def reverse_keeps_its_start(seed):
    """**Forward forgets where it started. Reverse does not: where a deep valley parts the modes, it seeks *a* mode, not the best one.**"""
    page, rng = cells("08_entropy_kl", "kl8-hook-explorer", "kl8-slide"), np.random.default_rng(seed)
    share, far, width = rng.uniform(0.2, 0.45), rng.uniform(1.7, 2.5), rng.uniform(0.4, 0.7)  # two other bumps
    bumps = [np.log(p) + page["log_gauss"](page["grid"], m, width) for p, m in ((1 - share, -far), (share, far))]
    page["LOG_P"] = np.logaddexp(*bumps)
    page["P"] = np.exp(page["LOG_P"])
    forward, reverse = ([page["slide"](way, start)[-1] for start in (-3.0, 3.0)] for way in (0, 1))
    return (
        abs(forward[0][0] - forward[1][0]) < 0.15
        and reverse[0][0] < -1
        and reverse[1][0] > 1
        and reverse[1][2] > reverse[0][2]
    )


def too_narrow_hides(seed):
    """Too narrow is a disaster, and a hidden one."""
    page, x = (
        cells("08_entropy_kl", "kl8-hook-explorer", "kl8-is-explorer"),
        np.random.default_rng(seed).normal(0, 0.4, (200, 30)),
    )
    weights = np.exp(page["log_gauss"](x, 0, 1) - page["log_gauss"](x, 0, 0.4))
    sizes, estimates = weights.sum(1) ** 2 / (weights**2).sum(1), (weights * x**2).mean(1)
    return np.median(sizes) > 10 and np.median(estimates) < 0.5


def ever_fewer_paths_hold_the_sum(seed):
    """**The longer the paths, the fewer of them hold the sum.**"""
    on_seed = (("default_rng(1).random((1000", f"default_rng({seed}).random((1000"),)
    heaviest = cells("08_entropy_kl", "kl8-product-table", edits=on_seed)["heaviest"]
    one, ten, hundred = (heaviest(tosses).sum() for tosses in (1, 10, 100))
    return one < 0.02 < 0.05 < ten < 0.25 and hundred > 0.5


def a_small_bonus_is_small_beside_the_pays(seed):
    """with 1 added to each of them, bonus $0.1$ brings back only about four agents in five."""
    learn = cells("08_entropy_kl", "kl8-bonus-learn")["learn"]
    return 0.7 < np.mean(learn(0.1, seed=seed, extra=1.0)[1][-1] > 0.8) < 0.9
