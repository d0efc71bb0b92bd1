"""The live formulas: every symbol of the table stands in its formula, and every stored state shows the library's numbers."""

import itertools
import json
import math
import re
import sys
from pathlib import Path

import live_formula
import numpy as np
import pytest
import torch

from rlbook_lib import divergences, gradient_estimators, grpo, ppo, returns, reward_model, rlhf, trpo
from rlbook_lib import dynamic_programming as dp

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT), str(ROOT / "tests" / "book")]

from lesson_limits import CENTRAL

from tools.claims import cells

LESSONS = {
    name: json.loads((ROOT / "chapters" / f"{name}.ipynb").read_text("utf-8"))["cells"]
    for name in (*sorted(CENTRAL), "06_policy_gradients_deeper")
}
WRITTEN = {}  # label, or source where there is none -> source
for lesson in LESSONS.values():
    for text in ("".join(cell["source"]) for cell in lesson if cell["cell_type"] == "markdown"):
        WRITTEN |= dict(re.findall(r":label: (eq-\S+)\n(.*?)```", text, re.DOTALL))
        WRITTEN |= {" ".join(tex.split()): tex for tex in re.findall(r"\$\$\n(.*?)\$\$", text, re.DOTALL)}


def states_of(html):
    """Each state of a stored figure: the words of its controls, and its terms as they are shown."""
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    rows = [row for row in data["changes"] if row[1].startswith("=")]
    for state in itertools.product(*map(range, data["sizes"])):
        shown = {}
        for _, name, controls, values, shared, before, after in rows:
            key = 0
            for control in controls:
                key = key * data["sizes"][control] + state[control]
            text = before + values[key if shared < 0 else data["indices"][shared][key]] + after
            shown[name[1:]] = float(text.replace("−", "-"))
        yield [texts[at] for texts, at in zip(data["texts"], state, strict=True)], shown


def backup(names, cell, k, policy):
    table = np.zeros(6)
    for _ in range(int(k)):
        table = dp.bellman_expectation_backup(names["world"], names["WALKERS"][policy], table)
    weights, q = names["WALKERS"][policy], dp.q_from_values(names["world"], table)
    cell = names["CELLS"][names["CELL_TEXTS"].index(cell)]
    exact = {f"policy{a}": weights[cell, a] for a in range(4)} | {f"q{a}": q[cell, a] for a in range(4)}
    return exact | {"value": dp.bellman_expectation_backup(names["world"], weights, table)[cell]}


def log_derivative(names, z, n):
    p = np.exp([float(z), 0.0, 0.0]) / np.exp([float(z), 0.0, 0.0]).sum()
    score, pays = gradient_estimators.softmax_score(np.array([float(z), 0.0, 0.0]))[:, 0], names["PAYS"]
    exact = {
        f"{key}{k + 1}": row[k] for key, row in (("policy", p), ("payoff", pays), ("slope", score)) for k in range(3)
    }
    return exact | {"gradient": p[0] * (pays[0] - p @ pays)}


def baseline(names, b, x, gift):
    p = np.exp([float(x), 0.0]) / np.exp([float(x), 0.0]).sum()
    size, r = ((np.eye(2) - p) ** 2).sum(axis=1), np.array([1.0, 0.0]) + float(gift)
    exact = {f"size{a + 1}": p[a] * size[a] for a in (0, 1)} | {f"quality{a + 1}": r[a] for a in (0, 1)}
    return exact | {"baseline": gradient_estimators.optimal_baseline(size, r, p)}


def advantage(names, lam):
    errors, (found, _) = names["delta"], returns.gae(*names["steps"], names["gamma"], float(lam))
    weights = returns.gae_weights(names["gamma"], float(lam), 5)
    return (
        {f"weight{k}": weights[k] for k in range(5)}
        | {f"error{k}": errors[k] for k in range(5)}
        | {"advantage": found[0]}
    )


def divergence(names, p, q):
    one, other = (np.array([float(x), (1 - float(x)) / 2, (1 - float(x)) / 2]) for x in (p, q))
    kl = divergences.kl_divergence(one, other) / math.log(2)
    return {"p1": one[0], "p2": one[1], "q1": other[0], "q2": other[1], "kl": kl}


def surrogate(names, p, p_old):
    new, old = (names["walker"](float(x)) for x in (p, p_old))
    base, found = names["truth"](float(p_old)), trpo.surrogate_objective(names["ledge"], new, old)
    return {"base": base, "horizon": 1 / (1 - names["ledge"].gamma), "gain": (found - base) / 10, "surrogate": found}


def clip(names, rho, epsilon):
    ratio, width = torch.tensor([float(rho)] * 2, dtype=torch.float64), float(epsilon)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    found = ppo.clip_objective(ratio.log(), torch.zeros_like(ratio), signs, width)
    exact = {"ratio": float(rho), "epsilon": width, "clipped": ratio[0].clamp(1 - width, 1 + width), "advantage1": 1}
    return exact | {"advantage2": -1, "objective1": found[0], "objective2": found[1]}


def strength(names, ab, ac, bc):
    wins = np.array([[0, int(ab), int(ac)], [12 - int(ab), 0, int(bc)], [8 - int(ac), 5 - int(bc), 0]])
    p = reward_model.bradley_terry_mle(wins)
    chances = reward_model.bradley_terry_probability(p[[0, 0]], p[1:])
    return {"strength1": p[0], "rival1": p[1], "rival2": p[2], "chance1": chances[0], "chance2": chances[1]}


def optimum(names, beta):
    judge, reference, price = names["judge"], names["reference"], float(beta)
    best = rlhf.rlhf_optimum(judge, reference, price)
    exact = {"price": price, "norm": np.log(reference[0]) + judge[0] / price - np.log(best[0])}
    for number, k in ((1, 0), (2, 3)):
        exact |= {f"reference{number}": reference[k], f"score{number}": judge[k], f"answer{number}": best[k]}
    return exact


def group(names, a, b, c, d, points):
    scores = torch.tensor([float(points) * answer.endswith("=6") for answer in (a, b, c, d)], dtype=torch.float64)
    found = grpo.group_advantages(scores[None])[0]
    exact = {"score1": scores.max(), "score2": scores.min(), "meanscore": scores.mean()}
    exact["spread"] = scores.std(correction=0) + 1e-6
    return exact | {"advantage1": found.max(), "advantage2": found.min()}


# Formula, its explorer, the cells that it needs, the library's terms, and what the shown terms must give.
NUMBERS = [
    ("eq-bellman-v", "02_mdps", "bellmanx", ["hook0002"], backup,
     lambda t: {"value": sum(t[f"policy{a}"] * t[f"q{a}"] for a in range(4))}),
    ("eq-log-derivative", "06_policy_gradients", "pg-logtrick-code", ["pg-logtrick-code"], log_derivative,
     lambda t: {"gradient": sum(t[f"policy{k}"] * t[f"payoff{k}"] * t[f"slope{k}"] for k in (1, 2, 3))}),
    ("eq-optimal-baseline", "06_policy_gradients_deeper", "pg-baseline-explore", [], baseline,
     lambda t: {"baseline": sum(t[f"size{a}"] * t[f"quality{a}"] for a in (1, 2)) / (t["size1"] + t["size2"])}),
    ("eq-gae", "07_gae", "mine0701", ["gae-walk", "gae-five"], advantage,
     lambda t: {"advantage": sum(t[f"weight{k}"] * t[f"error{k}"] for k in range(5))}),
    ("eq-kl", "08_entropy_kl", "kl8-two-explorer", [], divergence,
     lambda t: {"kl": t["p1"] * math.log2(t["p1"] / t["q1"]) + 2 * t["p2"] * math.log2(t["p2"] / t["q2"])}),
    ("eq-surrogate", "09_trpo", "tr9-ledge-explorer", ["tr9-worlds"], surrogate,
     lambda t: {"surrogate": t["base"] + t["horizon"] * t["gain"]}),
    ("eq-clip-objective", "10_ppo", "mine1001", [], clip,
     lambda t: {f"objective{k}": min(t["ratio"] * t[f"advantage{k}"], t["clipped"] * t[f"advantage{k}"]) for k in (1, 2)}),
    ("eq-bradley-terry", "11_preferences", "c11-bt-explore", [], strength,
     lambda t: {f"chance{k}": t["strength1"] / (t["strength1"] + t[f"rival{k}"]) for k in (1, 2)}),
    ("eq-rlhf-optimum", "12_rlhf", "rlhf-bandit-setup", ["rlhf-bandit"], optimum,
     lambda t: {f"answer{k}": t[f"reference{k}"] * math.exp(t[f"score{k}"] / t["price"] - t["norm"]) for k in (1, 2)}),
    ("eq-group-advantage", "13_grpo", "mine1301", [], group,
     lambda t: {f"advantage{k}": (t[f"score{k}"] - t["meanscore"]) / t["spread"] for k in (1, 2)}),
]  # fmt: skip


@pytest.mark.parametrize("label, page, figure, needs, library, formula", NUMBERS, ids=[row[0] for row in NUMBERS])
def test_the_numbers_in_the_formula_are_those_of_the_library(label, page, figure, needs, library, formula):
    stored = next(cell for cell in LESSONS[page] if cell["id"] == figure)["outputs"]
    html = next("".join(one["data"]["text/html"]) for one in stored if "text/html" in one.get("data", {}))
    names = cells(page, *needs)
    states = list(states_of(html))
    names |= {"CELLS": [0, 1, 2, 3], "CELL_TEXTS": list(dict.fromkeys(texts[0] for texts, _ in states))}
    slots = {key + number for key, number, _ in live_formula.TERM.findall(live_formula.FORMULAS[label][1])}
    for texts, shown in states:
        exact = library(names, *texts)
        assert slots <= shown.keys() == exact.keys()
        for name, value in exact.items():
            assert shown[name] == pytest.approx(float(value), rel=5.1e-3, abs=5.1e-4), (texts, name)
        for name, value in formula(shown).items():
            assert value == pytest.approx(shown[name], abs=5e-3), (texts, name)


@pytest.mark.parametrize("label", live_formula.FORMULAS)
def test_every_symbol_stands_in_its_formula_and_nothing_is_left_of_the_source(label):
    keys = live_formula.FORMULAS[label][0].split()
    marked = live_formula.marked(WRITTEN[label], " ".join(keys))
    assert [key for key in keys if f"{{live={key}}}" not in marked] == []
    inside = "[^{}]"
    for _ in range(4):  # braces within braces
        inside = rf"(?:[^{{}}]|\{{{inside}*\}})"
    bare = marked
    while "htmlData" in bare:
        bare = re.sub(rf"\\htmlData\{{live=\w+\}}\{{({inside}*)\}}", r"\1", bare)
    assert bare == WRITTEN[label]


def test_each_lesson_has_its_central_formula_and_the_table_nothing_else():
    assert {label for label in CENTRAL.values() if label} <= live_formula.FORMULAS.keys()
    used = {key for keys, _ in live_formula.FORMULAS.values() for key in keys.split()}
    assert used == live_formula.SYMBOLS.keys()
    assert sum(bool(numbers) for _, numbers in live_formula.FORMULAS.values()) == len(NUMBERS) >= 8
