"""Guess first: each lesson asks, what is true is what another way says, too, and the reader's errors are shown."""

from __future__ import annotations

import ast
import json
from functools import cache
from itertools import permutations
from math import exp, log2, sqrt
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import ROOT
from lesson_limits import CENTRAL
from page_visit import Visit, opened, served
from stored_figures import data_of, is_interactive

from rlbook_lib.evaluation import stored_runs
from rlbook_lib.explore import dressed
from rlbook_lib.reward_model import bradley_terry_newton


@cache
def asking(chapter: str) -> list[str]:
    """A lesson's stored figures that ask, in their order."""
    cells = json.loads((ROOT / "chapters" / f"{chapter}.ipynb").read_text("utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    figures = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    return [figure for figure in figures if is_interactive(figure) and "guess" in data_of(figure)]


def guesses(chapter: str) -> list[dict[str, Any]]:
    return [data_of(figure)["guess"] for figure in asking(chapter)]


def truth(chapter: str, number: int) -> Any:
    asked = guesses(chapter)[number]
    return asked["choices"][asked["truth"]] if "choices" in asked else asked["truth"]


@pytest.mark.parametrize("chapter", CENTRAL)
def test_every_lesson_asks(chapter: str) -> None:
    assert guesses(chapter)
    questions = [asked["question"] for asked in guesses(chapter)]
    assert len(set(questions)) == len(questions)  # what the reader says is kept by the question
    for asked in guesses(chapter):
        assert (
            2 <= len(asked["choices"]) <= 6
            if "choices" in asked
            else asked["range"][0] < asked["truth"] < asked["range"][1]
        )


def test_streams_of_reward_by_their_sums() -> None:
    worth = {"steady": (1 - 0.9**10) / (1 - 0.9), "late prize": 12 * 0.9**6, "quick win": 5}
    assert truth("02_mdps", 5) == max(worth, key=lambda name: worth[name])


def test_the_maze_by_counting_moves() -> None:
    """The start is two moves from the trap, however the buttons are wired; no first move saves a walker that is random afterwards."""
    assert truth("02_mdps", 2) == "2"
    assert 0.9 * max(-3.93, -3.46, -6.15) < 0 and truth("02_mdps", 3) == "none"
    assert truth("02_mdps", 4) == "only the best values"


def test_the_workday_by_hand() -> None:
    """The careful policy is worth 4.8 and 2.4; of a fresh hour three things can come, of a tired one two."""
    assert 0.5 * 4.8 < 4.8 and 1 + 0.5 * 2.4 < 2.4 and truth("02_mdps", 6) == "careful"
    fresh, tired = 1, 1
    for _ in range(9):
        fresh, tired = 2 * fresh + tired, fresh + tired
    assert truth("02_mdps", 7) == str(fresh)
    assert 1 + 2 + 3 > 2 * (1 + 2 / 2 + 3 / 4) and truth("02_mdps", 1) == "more than twice that"


GO = {"A": "ADAB", "B": "BTAC", "C": "CGBC", "D": "ADDT"}  # up, down, left, right
PAYS = {"G": 10.0, "T": -10.0}


def test_the_arrow_that_turns_first_by_sweeps() -> None:
    def plan(slip: float) -> dict[str, int]:
        V = dict.fromkeys(GO, 0.0)

        def worth(cell: str, action: int) -> float:
            pushes = [PAYS.get(end, 0.9 * V.get(end, 0.0)) for end in GO[cell]]
            return (1 - slip) * pushes[action] + slip * sum(pushes[2:] if action < 2 else pushes[:2]) / 2

        for _ in range(300):
            V = {cell: max(worth(cell, action) for action in range(4)) for cell in GO}
        return {cell: max(range(4), key=lambda action: round(worth(cell, action), 9)) for cell in GO}

    turned = next(new for k in range(1, 21) if (new := {cell for cell in GO if plan(k / 20)[cell] != plan(0)[cell]}))
    assert truth("03_maze", 3) in turned and len(turned) == 1
    assert 0.9 * -3.46 < 0 < 0.9**2 * 3.13 and truth("03_maze", 1) == "2"  # a random walk from B, and from C


def test_the_first_of_the_best_by_walking() -> None:
    policy, best = {"A": 3, "B": 3, "C": 1, "D": 0}, []
    for _ in range(8):
        V = {}
        for start in GO:
            cell = start
            for _ in range(9):
                cell = GO[cell][policy[cell]] if cell in GO else cell
            V[start] = PAYS.get(cell, 0.0)
        best.append(min(V.values()) == 10)
        policy = {cell: max(range(4), key=lambda a: PAYS.get(GO[cell][a], V.get(GO[cell][a], 0.0))) for cell in GO}
    assert best[0] and not any(best[1:]) and truth("03_maze", 7) == "loses it for good"


def test_the_careless_stop_by_hand() -> None:
    """A reward of 0.01 forever is worth 1; the first sweep gives 0.01, which is the first change, too."""
    assert round(0.01 / (1 - 0.99) - 0.01, 9) == 0.99 and truth("03_maze", 5) == "about 1"


def test_the_crossing_by_hand() -> None:
    """TD(0) learns 5 from the first walk, then 2.25 below it, and pulls the crossing toward that; Monte Carlo pulls it toward -9."""
    td, monte_carlo = 5 + 0.5 * (0.9 * 0.5 * 0.9 * 5 - 5), 5 + 0.5 * (-9 - 5)
    assert monte_carlo < 0 < td and truth("04_mc_and_td", 2) == "to Monte Carlo only"
    first, second = 30 + 0.5 * (28 - 30), 30 + 0.5 * (33 - 30)
    assert abs(33 - first) > abs(33 - second) and truth("04_mc_and_td", 0) == "the second app's"


def test_the_crossing_with_traces_by_hand() -> None:
    """5 at the first goal; 2.25 at the cell below; then two more errors reach it through its trace, the last is the fall."""
    trace, lower, V, below = 0.0, 0.0, 5.0, 0.0
    for here, there in (("below", "V"), ("V", "below"), ("below", "T")):
        pays, after = (-10.0, 0.0) if there == "T" else (0.0, V if there == "V" else below)
        trace, lower = 0.72 * trace + (here == "V"), 0.72 * lower + (here == "below")
        delta = pays + 0.9 * after - (below if here == "below" else V)
        V, below = V + 0.5 * delta * trace, below + 0.5 * delta * lower
    assert V == pytest.approx(-0.51, abs=5e-3)
    assert 0.5 * 10 * 0.72**3 == pytest.approx(2, abs=0.2) and truth("04_mc_and_td", 4) == "by about 2"


def test_the_luck_of_four_rooms_by_draws() -> None:
    """A door's entry is the mean of its coins, weighed 0.1 * 0.9^k; each of the four rooms behind adds the largest of ten of them."""
    coins = np.random.default_rng(0).choice([-1.0, 1.0], size=(4000, 10, 60))
    largest = (coins @ (0.1 * 0.9 ** np.arange(60))).max(axis=1).mean()
    assert truth("05_dqn", 4) == pytest.approx(4 * largest, abs=0.05)


def test_which_change_of_dqn_costs_most() -> None:
    """From the record itself, by single tests and their mean over all seeds, not by medians of seeds."""
    cases = json.loads((ROOT / "chapters" / "runs" / "dqn_program.json").read_text("utf-8"))["cases"]
    changes = {
        "C = 1, memory 20000": "no target",
        "C = 1000, memory 20000": "a copy only",
        "C = 100, memory 128": "a memory",
    }
    held = {
        words: np.mean([run["curves"]["steps"][-10:] for run in cases[case]["runs"].values()])
        for case, words in changes.items()
    }
    assert truth("05_dqn", 3).startswith(min(held, key=held.__getitem__))


def test_what_a_mean_of_steps_in_a_row_is_worth() -> None:
    """By Gymnasium's cart and other draws: how far the means of blocks of 32 scatter, against single positions."""
    rng, positions = np.random.default_rng(5), []
    env = gymnasium.make("CartPole-v1")
    x, _ = env.reset(seed=5)
    for _ in range(32_000):
        positions.append(x[0])
        push = rng.integers(2) if rng.random() < 0.5 else x[2] + x[3] > 0
        x, _, fallen, cut, _ = env.step(int(push))
        if fallen or cut:
            x, _ = env.reset()
    blocks = np.reshape(positions, (-1, 32)).mean(axis=1)
    assert np.var(positions) / np.var(blocks) < 2 and truth("05_dqn", 2) == "about 1"


def test_the_change_that_alone_does_nothing() -> None:
    """By ranks: of all pairs of runs, one with a change alone and one without any, the share that the change wins."""
    steps = {
        case: run["steps"][:, -5:].mean(axis=1)
        for case, run in stored_runs(ROOT / "chapters" / "runs" / "dqn_changes.json").items()
    }
    wins = lambda case: np.mean(steps[case][:, None] > steps["without all four"][None])
    shares = {name: wins(f"only {name}") for name in ("n-step", "average", "Huber", "double")}
    assert min(shares, key=lambda name: abs(shares[name] - 0.5)) == "Huber" == truth("05_dqn_deeper", 0)


def test_one_step_leaves_the_range() -> None:
    """One logit a whole unit above nine equal ones."""
    assert truth("10_ppo", 6) == pytest.approx(10 * exp(1) / (exp(1) + 9), abs=5e-3)


def test_a_sure_policy_hardly_moves() -> None:
    """The best dose pays 2.25 more than the others on average, so its pull is 2.25 p (1 - p)."""
    at = {z: exp(z) / (exp(z) + 2) for z in (0.5, 4.5)}
    ratio = at[4.5] * (1 - at[4.5]) / (at[0.5] * (1 - at[0.5]))
    assert abs(ratio - 0.1) < 0.05 and truth("06_policy_gradients", 2) == "a tenth"


def test_the_doctors_whom_a_gift_misleads() -> None:
    """The logits' difference x moves by 2 * 0.2 * 5 (1 - p) or by 2 * 0.2 * 4 p the other way: one walk at a time, other draws."""
    rng, lost = np.random.default_rng(9), 0
    for _ in range(1000):
        x = 0.0
        for draw in rng.random(300):
            p = 1 / (1 + exp(-x))
            x += 0.4 * 5 * (1 - p) if draw < p else -0.4 * 4 * p
        lost += 1 / (1 + exp(-x)) < 0.1
    assert abs(lost / 1000 - 0.2) < 0.04 and truth("06_policy_gradients", 3) == "about four"


def test_the_best_baseline_of_two_doses() -> None:
    """For pays 1 and 0 the squared scores weigh the good dose by p (1 - p)^2 and the bad one by (1 - p) p^2: b* = 1 - p."""
    assert truth("06_policy_gradients_deeper", 0) == pytest.approx(1 - 1 / (1 + exp(-2)), abs=1e-4)


def test_a_critic_that_says_2_everywhere() -> None:
    """At visit 1 its TD error sees today's pay only: 0 by a strong dose, 1 by a mild one; where V is subtracted the mean stays."""
    p = 1 / (1 + exp(-0.5))
    assert abs(p * (1 - p) * (0 - 1) - -0.044) > 0.1 and truth("06_policy_gradients", 4) == "TD error"


def test_the_gap_of_a_critic_that_knows_nothing() -> None:
    """At 1 the returns count alone; before, a part of the mean stays with a critic that says the same of both actions."""
    assert truth("07_gae", 2) == "at 1"


def test_what_the_first_of_eleven_steps_hears() -> None:
    """One surprise, ten steps later: 0.5^10 of it."""
    assert 0.0005 < 0.5**10 < 0.002 and truth("07_gae", 1) == "a thousandth"


def test_one_lucky_step_in_five() -> None:
    others = [1.388, -0.014, 1.469, 1.695]
    assert max(others) < (sum(others) + 10) / 5 and truth("07_gae", 4) == "all four"


def test_the_shortest_code_of_three_moves() -> None:
    """All sets of three words of at most three digits, none the beginning of another."""
    words = [f"{number:0{size}b}" for size in (1, 2, 3) for number in range(2**size)]
    codes = [code for code in permutations(words, 3) if not any(b.startswith(a) for a, b in permutations(code, 2))]
    best = min(0.5 * len(a) + 0.25 * len(b) + 0.25 * len(c) for a, b, c in codes)
    assert truth("08_entropy_kl", 0) == f"{best:g} bits"


def test_the_words_of_a_code_that_is_a_little_wrong() -> None:
    cost = [share * log2(1 / 0.8) + (1 - share) * log2(1 / 0.1) for share in (0.8, 0.9)]
    assert truth("08_entropy_kl", 1) == ("longer" if cost[1] > cost[0] else "shorter")


def test_what_a_policy_that_looks_no_more_finds_after_the_swap() -> None:
    """One agent after the other, by softmax of its logits: few earn more than 0.8 at the end, and most of them nothing."""
    rng, rich, pay, means = np.random.default_rng(5), 0, 0.0, np.array([1.0, 0.6, 0.3, 0.0])
    for _ in range(40):
        z = np.zeros(4)
        for t in range(3000):
            now = means if t < 1500 else means[::-1]
            pi = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            a = rng.choice(4, p=pi)
            z += 0.1 * (now[a] + 0.3 * rng.standard_normal()) * ((np.arange(4) == a) - pi)
        rich += pi @ now > 0.8
        pay += pi @ now / 40
    assert rich < 0.4 * 40 and pay < 0.43
    assert truth("08_entropy_kl", 3) == "about 0.25"


def test_new_actions_in_the_old_mix_of_cells_by_long_walks() -> None:
    """Walks of the uniform policy, and in each cell the mean pay of the other one."""
    rng, new = np.random.default_rng(0), np.array([0.1, 0.1, 0.1, 0.7])  # up, down, left, right
    pays = {(1, 1): -10.0, (2, 1): 10.0, (3, 3): -10.0}  # (cell, way): into the trap, into the goal
    moves = {0: (0, 3, 0, 1), 1: (1, 4, 0, 2), 2: (2, 5, 1, 2), 3: (0, 3, 3, 4)}
    found = []
    for _ in range(4000):
        cell, weight, total = 0, 1.0, 0.0
        while cell in moves and weight > 1e-3:
            total += weight * sum(new[way] * pays.get((cell, way), 0.0) for way in range(4))
            cell, weight = moves[cell][rng.integers(4)], 0.9 * weight
        found.append(total)
    assert np.mean(found) < -3.93 - 1 and truth("08_entropy_kl", 5) == "worse"


def test_each_bump_is_a_valley_of_the_reverse_divergence() -> None:
    """So what slides into one stays, wherever the other is; the forward one has the mean and the width of p, from any start."""
    x = np.linspace(-8, 8, 4001)
    bell = lambda m, s: np.exp(-(((x - m) / s) ** 2) / 2) / s / sqrt(2 * np.pi)
    p = 0.7 * bell(-2, 0.6) + 0.3 * bell(2, 0.6)
    reverse = lambda m, s: float(np.sum(bell(m, s) * (np.log(bell(m, s)) - np.log(p))))
    for m in (-2, 2):
        assert reverse(m, 0.6) < min(reverse(m - 0.3, 0.6), reverse(m + 0.3, 0.6), reverse(m, 0.8), reverse(m, 0.4))
    assert truth("08_entropy_kl", 2) == "reverse"


def test_samples_that_are_too_narrow() -> None:
    """The mean square of the weights, integrated as far as 6 and as 12: it does not end where q is narrow."""
    worth = {}
    for width in (0.4, 2.5):
        squares = []
        for end in (6, 12):
            x = np.linspace(-end, end, 4001)
            q = np.exp(-((x / width) ** 2) / 2) / width / sqrt(2 * np.pi)
            squares.append(np.sum(np.exp(-(x**2)) / (2 * np.pi) / q) * (x[1] - x[0]))
        worth[width] = squares[1] < 1.01 * squares[0]
    assert worth == {0.4: False, 2.5: True} and truth("08_entropy_kl", 4) == "too narrow, 0.4"


def test_what_the_ten_heaviest_of_a_thousand_paths_hold() -> None:
    """Other paths, by their numbers of heads: more than half of the sum, each of many times."""
    for heads in np.random.default_rng(8).binomial(100, 0.5, (50, 1000)):
        weights = sorted(1.4**heads * 0.6 ** (100 - heads), reverse=True)
        assert sum(weights[:10]) > 0.5 * sum(weights)
    heads = (np.random.default_rng(1).random((1000, 100)) < 0.5).sum(
        axis=1
    )  # the page's own: they claim to be worth 3.6
    weights = 1.4**heads * 0.6 ** (100 - heads)
    assert f"{weights.mean():.2f} {weights.sum() ** 2 / (weights @ weights):.1f}" == "0.59 3.6"
    assert truth("08_entropy_kl", 6) == "most of it"


def test_where_a_step_of_one_logit_counts() -> None:
    """By the Fisher number of one logit, p (1 - p)."""
    price = lambda theta: exp(-theta) / (1 + exp(-theta)) ** 2
    assert price(0) > 5 * price(4) and truth("09_trpo", 1) == "in the middle"


def test_the_top_of_the_ledge() -> None:
    """Out with p, then +1 with 1 - p and -19 with p: p - 20 p^2."""
    assert truth("09_trpo", 2) == pytest.approx(1 / 40, abs=5e-4)


def test_the_steps_of_a_walk_that_falls() -> None:
    """All that follows is the -1 at the left end, against the forecast of a fair game: below 0 wherever the step began."""
    forecasts = np.linalg.solve(np.eye(9) - (np.eye(9, k=1) + np.eye(9, k=-1)) / 2, [-0.5, *[0.0] * 7, 0.5])
    assert (-1 - forecasts < 0).all() and truth("07_gae", 0) == "all eleven"


def test_when_the_first_answer_is_on_top_by_newtons_method() -> None:
    first = [
        ab
        for ab in range(1, 12)
        if np.argmax(bradley_terry_newton(np.array([[0.0, ab, 3], [12 - ab, 0, 2], [5, 3, 0]]))[0]) == 0
    ]
    assert truth("11_preferences", 0) == str(first[0])


def test_the_second_digit_by_the_bars_beyond_one_half() -> None:
    bars = stored_runs(ROOT / "chapters" / "runs" / "sft_repeats.json")["main"]["bins"][:, -20:]  # after 1,600 updates
    beyond = sorted(sum(run[10:]) for run in bars)
    assert truth("11_preferences_deeper", 0) == f"{round(10 * beyond[2])} of 10"


def test_weaker_habits_by_the_shares_that_were_counted() -> None:
    weak = stored_runs(ROOT / "chapters" / "runs" / "sft_sorting.json")["habit 0.2"]["right_repeated"][:, -1]
    assert truth("11_preferences", 1) == pytest.approx(sorted(weak)[2], abs=1e-3)


def test_how_hard_a_pair_pulls_by_differences_of_its_loss() -> None:
    far, near = (np.log1p(np.exp(-x + 1e-4)) - np.log1p(np.exp(-x - 1e-4)) for x in (-4.0, 0.0))
    assert truth("11_preferences", 2) == str(round(far / near))


def test_the_score_of_two_digits_swapped_by_the_record() -> None:
    """The first stored run's number for 32377, in the order of the answers that the record's own file has."""
    record = ast.parse((ROOT / "tools" / "runs" / "sft_sorting.py").read_text("utf-8")).body
    (words,) = [
        node.value.func.value.value  # TYPED = "...".split()
        for node in record
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TYPED"
    ]
    runs = stored_runs(ROOT / "chapters" / "runs" / "sft_sorting.json")["main"]["typed"]
    assert truth("11_preferences", 3) == pytest.approx(runs[0, words.split().index("32377")], abs=2e-3)


def test_the_favorite_of_many_and_the_price_that_is_best() -> None:
    """Medians over the five stored runs, by sorting."""
    favorites = stored_runs(ROOT / "chapters" / "runs" / "sft_sorting.json")["main"]["best_truth_1"][:, -1]
    assert truth("11_preferences", 4) == pytest.approx(sorted(favorites)[2], abs=1e-3)
    priced = stored_runs(ROOT / "chapters" / "runs" / "rlhf_sorting.json")
    truths = {
        price: sorted(priced[f"price {price}"]["truth"][:, -1])[2] for price in ("1", "0.3", "0.1", "0.03", "0.01", "0")
    }
    assert truth("12_rlhf", 1) == max(truths, key=truths.__getitem__)
    by_pairs = priced["dpo 3e-05"]["truth"]
    middles = [sorted(column)[2] for column in by_pairs.T.tolist()]
    assert truth("12_rlhf", 2) == middles.index(max(middles))


def test_the_least_likely_letter_of_the_right_answer() -> None:
    """Letters by their numbers less 2; a push on a letter of one answer is the larger the less likely the letter was."""
    runs = stored_runs(ROOT / "chapters" / "runs" / "check_digit.json")
    tokens, chances = (runs["healthy"][name][1].reshape(7, 8, 17)[2] for name in ("group_tokens", "group_chances"))
    right = [row for row in range(8) if tokens[row][:15].tolist() == [int(x) + 2 for x in "908808003024"] + [13, 8, 1]]
    assert [int(np.argmin(chances[row][:14])) for row in right] == [0] and truth("13_grpo", 0) == "the 9 at the front"


def test_the_advantage_of_the_only_right_answer_of_four() -> None:
    assert truth("13_grpo", 1) == pytest.approx((1 - 1 / 4) / sqrt(1 / 4 * 3 / 4), abs=1e-3)


def test_groups_that_teach_nothing_at_the_end_by_what_is_right_then() -> None:
    """Eight of eight are right at .96 a piece in 72 of 100 groups; at .11 all are wrong in 39 of 100."""
    right = np.median(stored_runs(ROOT / "chapters" / "runs" / "check_digit.json")["grpo"]["right"][:, [0, -1]], 0)
    first, last = right**8 + (1 - right) ** 8
    assert last > first + 0.1 and truth("13_grpo", 2) == "more"


def test_who_learns_and_who_writes_by_what_is_right_and_how_long_in_the_end() -> None:
    runs = stored_runs(ROOT / "chapters" / "runs" / "check_digit.json")
    starts = ("never shown", "taught, then hidden", "never taught, 3 % shown")
    assert max(np.median(runs[name]["right"][:, 55:60]) for name in starts) < 0.2
    assert truth("13_grpo", 3) == "none of them"
    divided, plain = (np.median(runs[f"price 0.06{end}"]["length"][:, -5:]) for end in ("", ", no division"))
    assert plain < 5 < 10 < divided and truth("13_grpo_deeper", 0) == "only with division"


def test_the_token_that_the_price_pulls_back_by_differences_of_its_objective() -> None:
    """Four of eight are right, so the deviation is a half; the token is four times as probable as in the reference."""

    def objective(ratio: float) -> float:
        u = 1 / (4 * ratio)
        return min(ratio, float(np.clip(ratio, 0.8, 1.2))) * (1 - 0.5) / 0.5 - 3 * (u - np.log(u) - 1)

    assert objective(1.001) < objective(0.999) and truth("13_grpo", 4) == "less probable"


def test_the_ill_run_by_its_first_update() -> None:
    """Only steps that are too long throw tokens out of the clip's range in the first update, in which the ratios begin at 1."""
    runs = stored_runs(ROOT / "chapters" / "runs" / "check_digit.json")
    causes = {"learning rate 1e-2": "the learning rate is too high", "KL price 3": "the KL price is too high"}
    (case,) = [name for name in causes if runs[name]["clipped"][:, 0].min() > 0.1]
    assert truth("13_grpo", 5) == causes[case]


def test_what_is_right_where_length_is_paid() -> None:
    late = stored_runs(ROOT / "chapters" / "runs" / "check_digit.json")["a point a token"]["right"][:, -5:]
    assert late.max() < 0.1 and truth("13_grpo", 6) == "hardly any"


def test_the_push_on_a_token_of_a_long_answer_by_sequence() -> None:
    assert 1 / (2 * 8) / (1 / (2 * 2)) == 1 / 4 and truth("13_grpo_deeper", 1) == "a quarter"


def test_the_token_that_surprises_the_critic_most() -> None:
    """By hand: what is expected before each token of 1133$, nothing after the last; fines at a price of 0.1."""
    expects = [0.40, 0.45, 0.70, 0.75, 0.90, 0.0]
    policy, reference = (0.90, 0.60, 0.85, 0.75, 0.95), (0.85, 0.20, 0.80, 0.50, 0.90)
    paid = [-0.1 * np.log(new / old) + (t == 4) for t, (new, old) in enumerate(zip(policy, reference, strict=True))]
    surprise = [r + later - now for r, now, later in zip(paid, expects, expects[1:], strict=False)]
    assert max(surprise) == surprise[1] and truth("12_rlhf_deeper", 0) == "the second 1"


def test_the_line_that_the_loop_cannot_do_without() -> None:
    """By counting: runs whose last five shares of right answers are above their first; without it none of the five."""
    runs = stored_runs(ROOT / "chapters" / "runs" / "rlhf_lines.json")
    risen = {case: np.sum(run["right"][:, -5:].mean(axis=1) > run["right"][:, 0]) for case, run in runs.items()}
    assert (
        risen.pop("LAM = 0") == 0
        and set(risen.values()) == {5}
        and truth("12_rlhf_deeper", 1) == "the far score: LAM = 0"
    )


def test_a_middle_price_is_best() -> None:
    """By the formula, the four answers of the exact example one by one: the true score at each price of the choice."""
    # 133, 13, 331, 1333333 for 313: twice the share of right places, less 1, less 0.3 for each digit too many or too few
    worth = [1.0, 2 * 2 / 3 - 1 - 0.3, 2 / 3 - 1, 1 - 0.3 * 4]
    rows = list(zip((0.35, 0.48, 0.15, 0.02), (1.0, 0.2, -0.4, 1.6), worth, strict=True))

    def true_score(price: float) -> float:
        weights = [chance * exp(score / price) for chance, score, _ in rows]
        return sum(weight * worth for weight, (_, _, worth) in zip(weights, rows, strict=True)) / sum(weights)

    assert max((2, 0.4, 0.15, 0.05), key=true_score) == 0.4 and truth("12_rlhf", 0) == "0.4"


def test_the_ratio_of_a_network_to_itself_ruins_the_policy() -> None:
    """By sorting: the middle of five runs at their last look."""
    runs = stored_runs(ROOT / "chapters" / "runs" / "ppo_lines.json")
    middle = {case: sorted(row[-1] for row in run["pushes"])[2] for case, run in runs.items()}
    assert {len(run["pushes"]) for run in runs.values()} == {5}
    assert {case: round(pushes) for case, pushes in middle.items()} == {
        "none": 500, "log_old": 10, "clip only": 156, "no scale": 460, "end": 359, "leak": 497,
    }  # fmt: skip
    assert truth("10_ppo", 3) == "log_old of now"


def test_thirty_passes_without_a_clip() -> None:
    """Between the tenth and the eleventh of 20 runs."""
    last = sorted(stored_runs(ROOT / "chapters" / "runs" / "ppo_cartpole.json")["no clip"]["return"][:, -1])
    assert 100 < (last[9] + last[10]) / 2 < 400 and truth("10_ppo", 4) == "100 to 400"


def test_what_is_wrong_by_two_curves_that_contradict_each_other() -> None:
    """No ratio outside in any update, and a KL of nats: only a program that compares the network with itself says both."""
    runs = stored_runs(ROOT / "chapters" / "runs" / "ppo_lines.json")
    both = [case for case, run in runs.items() if run["clip_fraction"].max() == 0 and run["kl"].max() > 1]
    assert both == ["log_old"] and truth("10_ppo", 7) == "log_old of now"


def test_a_step_three_times_as_long_on_all_ten_seeds() -> None:
    """What the lesson says of its ten runs is counted here."""
    line = stored_runs(ROOT / "chapters" / "runs" / "ppo_line.json")["after 8 updates"]
    alpha = line["alpha"][0]
    near, thrice, far = (int(np.flatnonzero(alpha == place)[0]) for place in (1, 3, 8))
    better = sum(after > before for before, after in line["return"][:, [near, thrice]])
    assert len(line["return"]) == 10 and better == 5 and truth("10_ppo", 5) == "four to six"
    assert (line["surrogate"][:, far] > line["surrogate"][:, near]).all()
    peaks = alpha[line["minimum"].argmax(axis=1)]
    assert peaks.min() == 1.0 and peaks.max() == 1.5


LESSON = "chapters/10_ppo.html"


@pytest.mark.browser
@pytest.mark.site
def test_a_guess_is_made_kept_shown_and_forgotten(site: Path, browser: Any) -> None:
    first, second, *others = guesses("10_ppo")
    with served(site) as base, opened(browser, base + LESSON, Visit(LESSON)) as page:
        film, still = (page.locator("rlx-figure:has(.rlx-question)").nth(number) for number in (0, 1))
        told = "figure => figure.querySelector('.rlx-told').textContent.includes('The truth')"
        assert film.locator(".rlx-controls").is_hidden() and page.locator(".own-errors").count() == 0
        assert film.get_by_role("group", name="Your guess").count() == 1

        said = page.locator(".cell:has(.rlx-question) + p")  # what each picture says
        assert said.count() == 2 + len(others) and not said.first.is_visible() and not said.nth(1).is_visible()

        # by the keyboard: an arrow, Enter; the film runs and the truth comes with it
        slider = film.get_by_role("slider", name=first["question"])
        slider.focus()
        page.keyboard.press("ArrowLeft")
        guess = slider.get_attribute("aria-valuetext")
        page.keyboard.press("Enter")
        assert film.locator(".rlx-told").inner_text() == f"Your guess, dashed: {guess}."
        assert page.evaluate("document.activeElement.className") == "rlx-play"
        assert said.first.is_visible() and not said.nth(1).is_visible()
        page.wait_for_function(told, arg=film.element_handle())
        assert film.locator(".rlx-told").inner_text().endswith(f"The truth: {first['truth']:.0f} passes.")
        assert film.locator(".rlx-controls output").first.inner_text() == "40"

        # by the mouse, in the picture: the axis is covered until then
        still.scroll_into_view_if_needed()
        assert still.locator(".rlx-cover").count() == 1
        area = still.locator(".rlx-marks rect").bounding_box()
        low, high = second["range"][:2]
        page.mouse.click(area["x"] + area["width"] * (0.5 - low) / (high - low), area["y"] + 9)
        assert still.locator(".rlx-guess output").inner_text() == "0.5"
        still.get_by_role("button", name="Guess", exact=True).click()
        marks = still.evaluate(
            "figure => [...figure.querySelectorAll('.rlx-marks path')].map(one => one.getBoundingClientRect().x)"
        )
        share = (marks[0] - marks[1]) / area["width"]
        assert share == pytest.approx((0.5 - second["truth"]) / (high - low), abs=0.01)
        assert still.locator(".rlx-cover").count() == 0 and still.locator(".rlx-controls").is_visible()

        # the marks are those of one setting, and stay after the page is opened again
        film.get_by_label("clip 0.2").click()
        assert film.locator(".rlx-marks").is_hidden()
        assert (
            film.locator(".rlx-told").inner_text()
            == f"Your guess: {guess}. The truth there: {first['truth']:.0f} passes."
        )
        chart = page.locator(".own-errors tbody tr")
        before = chart.all_inner_texts()
        assert len(before) == 2 and f"+{100 * share:.0f} %" in before[1]
        page.reload()
        chart.first.wait_for()
        assert page.locator(".rlx-asks").count() == len(others) and chart.all_inner_texts() == before
        assert still.locator(".rlx-told").inner_text() == f"Your guess: 0.5. The truth there: {second['truth']}."
        assert page.locator(".rlx-truth").count() == 2

        # the last page has all of them; one press forgets
        page.goto(base + "chapters/appendix_what_is_next.html")
        chart.first.wait_for()
        assert [row.startswith("10. ") for row in chart.all_inner_texts()] == [True, True]
        page.goto(base + "index.html")
        with page.expect_navigation():
            page.get_by_role("button", name="Forget").click()
        page.goto(base + LESSON)
        assert page.locator(".rlx-asks").count() == 2 + len(others) and page.locator(".own-errors").count() == 0

        # who passes sees the truth and has no error; paper and a page without scripts show everything
        page.emulate_media(media="print")
        assert film.locator(".rlx-controls").is_visible() and still.locator(".rlx-cover").is_hidden()
        assert still.locator(".rlx-guess").is_hidden() and still.locator(".rlx-question").is_visible()
        assert said.first.is_visible() and said.last.is_visible()
        page.emulate_media(media="screen")
        still.get_by_role("button", name="Just show").click()
        assert still.locator(".rlx-told").inner_text() == f"The truth: {second['truth']}."
        assert page.evaluate("Object.values(JSON.parse(localStorage.book).guess['10_ppo.html'])") == [None]
        assert page.locator(".own-errors").count() == 0
    context = browser.new_context(java_script_enabled=False)
    bare = context.new_page()
    bare.goto((site / LESSON).as_uri())
    assert bare.locator(".rlx-question").count() == 2 + len(others) and bare.locator(".rlx-controls").first.is_visible()
    assert bare.locator(".rlx-guess, .rlx-cover").count() == 0
    context.close()


@pytest.mark.browser
@pytest.mark.site
def test_a_choice_on_a_phone(site: Path, browser: Any) -> None:
    """Buttons that a finger meets; with less motion the truth comes at once."""
    asked, *_ = (one for one in guesses("09_trpo") if "choices" in one)
    page_name = "chapters/09_trpo.html"
    with served(site) as base, opened(browser, base + page_name, Visit(page_name)) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(reduced_motion="reduce")
        figure = page.locator("rlx-figure", has_text=asked["question"])
        buttons = figure.locator(".rlx-guess button")
        assert buttons.all_inner_texts() == [*asked["choices"], "Just show"]
        assert all(button.bounding_box()["height"] >= 44 for button in buttons.all())
        buttons.nth(1 - asked["truth"]).click()
        wrong, right = asked["choices"][1 - asked["truth"]], asked["choices"][asked["truth"]]
        assert figure.locator(".rlx-told").inner_text() == f"Your guess: {wrong}. The truth: {right}."
        assert page.locator(".own-errors tbody").inner_text().split()[-1] == "wrong"
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.browser
@pytest.mark.parametrize("lab", [True, False])
def test_in_jupyterlab_a_guess_outlives_a_reload(browser: Any, tmp_path: Path, lab: bool) -> None:
    """There no script of the book keeps it; other pages without one ask again."""
    figure, asked = next((f, g) for f, g in zip(asking("09_trpo"), guesses("09_trpo")) if "choices" in g)
    body = '<body data-jp-theme-name="JupyterLab Light">' if lab else "<body>"
    (tmp_path / "page.html").write_text(f'<!doctype html><meta charset="utf-8">{body}{dressed(figure)}', "utf-8")
    page, faults = browser.new_page(), []
    page.on("pageerror", lambda fault: faults.append(str(fault)))
    page.goto((tmp_path / "page.html").as_uri())
    # a notebook is there before its figures' script: it comes once more, on a page that has loaded
    page.evaluate("""() => {
      const frame = document.body.appendChild(document.createElement("iframe")), script = document.querySelector("script:not([type])");
      frame.contentWindow.onerror = what => { throw new Error(what); };
      frame.contentDocument.body.innerHTML = document.querySelector("rlx-figure").outerHTML.replace("data-ready", "data-again");
      frame.contentDocument.body.append(Object.assign(frame.contentDocument.createElement("script"), {textContent: script.textContent}));
    }""")
    assert faults == []
    page.locator("body > rlx-figure .rlx-guess button").first.click()
    page.reload()
    page.locator("rlx-figure[data-ready]").wait_for()
    assert page.locator(".rlx-asks").count() == (not lab)
    assert (f"Your guess: {asked['choices'][0]}." in page.locator(".rlx-told").inner_text()) == lab
    page.close()
