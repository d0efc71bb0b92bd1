"""How fast is tabular Q-learning? Many runs side by side, one run, and two plain loops, one thread.

    python tools/bench/q_learning.py
    python tools/bench/q_learning.py --peers FOLDER       with the loop of compiled.py, which numba compiles, too

The plain loops are what one would write by hand for a single run on the environment's transition table: one
keeps Q as a numpy array, the other as Python lists. Both draw the next state by inverting the cumulative
distribution, act epsilon-greedily (the first best action instead of a random one among ties), keep the
return and the length of every episode and honor the time limit, as the library does. Repeats alternate
between all cases, CPU-seconds count, the median comes first. Setting up (making the environment, reading its
table) is inside the library's time and outside the loops'. Runs that have played all their episodes drop out,
and a step of few runs costs almost as much as one of many: "width" is the mean number under way. The compiled
loop keeps neither returns nor lengths, and plays its 1024 runs one after another; FOLDER comes from
``pip install --target FOLDER numba==0.68.1 numpy==2.4.6``. Writes ``tools/bench/results/q_learning.json``.
"""

from common import RESULTS, cpu_seconds, first_calls, machine, summary, table  # isort: skip  (first: it fixes the threads)

import argparse
import json
import random
import sys
from itertools import accumulate
from pathlib import Path

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rlbook_lib.temporal_difference import q_learning  # noqa: E402

SETTINGS = dict(gamma=0.99, alpha=0.1, epsilon=0.1)
REPEATS = 7
# environment, time limit, episodes of the 1024 runs, episodes of the single runs
ENVIRONMENTS = [("FrozenLake-v1", 100, 1000, 6000), ("CliffWalking-v1", 10_000, 100, 2000)]


def read_table(name):
    """Per state and action: cumulative chances but the last, and (next_state, reward, terminated) of each."""
    model = gymnasium.make(name).unwrapped
    rows = [
        [
            (list(accumulate(entry[0] for entry in model.P[s][a]))[:-1], [entry[1:] for entry in model.P[s][a]])
            for a in range(model.action_space.n)
        ]
        for s in range(model.observation_space.n)
    ]
    return rows, int(np.argmax(model.initial_state_distrib))


def list_loop(rows, start, limit, episodes, seed):
    """Q as lists of lists, the generator of the standard library."""
    draw, gamma, alpha, epsilon = random.Random(seed).random, *SETTINGS.values()
    q, actions, returns, lengths = [[0.0] * len(rows[0]) for _ in rows], len(rows[0]), [], []
    for _ in range(episodes):
        state, total, steps, over = start, 0.0, 0, False
        while not over:
            row, u = q[state], draw()
            action = int(draw() * actions) if u < epsilon else row.index(max(row))
            chances, results = rows[state][action]
            u, slot = draw(), 0
            while slot < len(chances) and u >= chances[slot]:
                slot += 1
            next_state, reward, terminated = results[slot]
            target = reward if terminated else reward + gamma * max(q[next_state])
            row[action] += alpha * (target - row[action])
            state, total, steps = next_state, total + reward, steps + 1
            over = terminated or steps >= limit
        returns.append(total)
        lengths.append(steps)
    return sum(lengths)


def numpy_loop(rows, start, limit, episodes, seed):
    """Q as a numpy array, numpy's generator."""
    rng, gamma, alpha, epsilon = np.random.default_rng(seed), *SETTINGS.values()
    q, returns, lengths = np.zeros((len(rows), len(rows[0]))), [], []
    for _ in range(episodes):
        state, total, steps, over = start, 0.0, 0, False
        while not over:
            action = int(rng.integers(q.shape[1])) if rng.random() < epsilon else int(np.argmax(q[state]))
            chances, results = rows[state][action]
            next_state, reward, terminated = results[int(np.searchsorted(chances, rng.random(), side="right"))]
            target = reward if terminated else reward + gamma * q[next_state].max()
            q[state, action] += alpha * (target - q[state, action])
            state, total, steps = next_state, total + reward, steps + 1
            over = terminated or steps >= limit
        returns.append(total)
        lengths.append(steps)
    return sum(lengths)


def compiled_cases(name, limit, many, single):
    """The loop that numba compiles, for one run and for 1024 of them in turn."""
    import numba
    from compiled import q_learning_loop, tables_of

    tables, start = tables_of(name)
    loop = numba.njit(q_learning_loop)

    def learn(episodes, runs):
        return sum(loop(*tables, start, limit, episodes, *SETTINGS.values()) for _ in range(runs)), 1.0

    return {
        "compiled loop, 1024 runs": lambda: learn(many, 1024),
        "compiled loop, 1 run": lambda: learn(single * 20, 1),
    }


def cases_for(name, limit, many, single):
    """Case name to a function that learns and returns the number of updates and the width."""
    rows, start = read_table(name)

    def library(episodes, runs):
        result = q_learning(name, episodes=episodes, seed=0, runs=runs, max_steps=limit, **SETTINGS)
        per_run = result.lengths.sum(axis=1)
        return int(per_run.sum()), float(per_run.sum() / per_run.max())

    return {
        "library, 1024 runs": lambda: library(many, 1024),
        "library, 1 run": lambda: library(single, 1),
        "plain list loop, 1 run": lambda: (list_loop(rows, start, limit, single, 0), 1.0),
        "plain numpy loop, 1 run": lambda: (numpy_loop(rows, start, limit, max(1, single // 20), 0), 1.0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="a folder with numba")
    peers = parser.parse_args().peers
    record = {
        "what": "tabular Q-learning, updates per CPU-second, one thread",
        "settings": SETTINGS,
        "repeats": REPEATS,
        "machine": machine(["numpy", "gymnasium", *(["numba"] if peers else [])]),
        "results": [],
    }
    lines = []
    for name, limit, many, single in ENVIRONMENTS:
        cases = cases_for(name, limit, many, single)
        if peers:
            cases |= compiled_cases(name, limit, many, single)
        first = first_calls(cases)
        seconds, counts = cpu_seconds(cases, REPEATS)
        for case, times in seconds.items():
            spread, (updates, width) = summary(times), counts[case]
            rate = {
                "median": updates / spread["median_s"],
                "slowest": updates / spread["max_s"],
                "fastest": updates / spread["min_s"],
            }
            record["results"].append(
                {
                    "environment": name,
                    "case": case,
                    "updates": updates,
                    "width": round(width),
                    "million_updates_per_cpu_second": {key: round(value / 1e6, 3) for key, value in rate.items()},
                    "seconds": {key: round(value, 4) for key, value in spread.items()} | first[case],
                }
            )
            lines.append(
                {
                    "environment": name,
                    "case": case,
                    "width": f"{width:.0f}",
                    **{f"{key} (M/s)": f"{value / 1e6:.3f}" for key, value in rate.items()},
                }
            )
    print(table(lines))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "q_learning.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
