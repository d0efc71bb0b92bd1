"""Would plain loops, compiled by numba, serve the book better than numpy? Three loops, warm and cold, one thread.

    pip install -e .[bench]
    python tools/bench/compiled.py

Each loop is written once, as one would write it for a reader, and runs twice: compiled, and as plain Python, which is
what a reader without numba would get. The peer is the library's public function, with its checks. CartPole keeps the
library's checks, resets and records in both forms; only its physics is exchanged. "same numbers" says whether the loop
gives the library's results bit for bit, as stored outputs need. Q-learning draws its own random numbers, so there it
cannot. "first call" is what the compiler takes before the first result; cold starts are new processes. Repeats
alternate, CPU-seconds count, the median comes first. Writes ``tools/bench/results/compiled.json``.
"""

from __future__ import annotations

from common import cold_seconds, cpu_seconds, machine, save, summary, table  # isort: skip  (first: it fixes the threads)

import math
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numba
import numpy as np
from gae import GAMMA, LAM, gae_loop, make_buffer
from q_learning import ENVIRONMENTS, SETTINGS, read_table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rlbook_lib.environments import (  # noqa: E402
    ANGLE_LIMIT,
    FORCE,
    GRAVITY,
    HALF_LENGTH,
    POLE_SHARE,
    POSITION_LIMIT,
    TIME_STEP,
    TOTAL_MASS,
    BatchedCartPole,
    VectorStep,
)
from rlbook_lib.returns import gae  # noqa: E402
from rlbook_lib.temporal_difference import q_learning  # noqa: E402

REPEATS = 7
COPIES = {64: 4000, 1024: 500, 16384: 60}  # of CartPole, and steps of all of them in one timing
STARTS = {
    "python and numpy": "import numpy",
    "numpy and scipy.sparse": "import numpy, scipy.sparse",
    "rlbook_lib.returns": "import rlbook_lib.returns",
    "rlbook_lib.mdp": "import rlbook_lib.mdp",
    "rlbook_lib.temporal_difference": "import rlbook_lib.temporal_difference",
    "rlbook_lib.environments": "import rlbook_lib.environments",
    "numpy and numba": "import numpy, numba",
}
# a file of its own, for numba keeps compiled code only of functions that have one
CACHED = """
import numpy as np
from numba import njit

@njit(cache=True)
def scan(terms, factor):
    out, following = np.empty_like(terms), np.zeros_like(terms[0])
    for t in range(len(terms) - 1, -1, -1):
        for n in range(terms.shape[1]):
            following[n] = terms[t, n] + factor * following[n]
            out[t, n] = following[n]
    return out

scan(np.ones((4, 2), np.float32), np.float32(0.5))
"""


# ----------------------------------------------------------------- the loops; that of the advantages is in gae.py


def cartpole_loop(before, actions, lengths, max_steps, after, observations, terminated, truncated):
    """One time step of every cart, (4, N) to (4, N); the number of episodes that ended."""
    ended = 0
    for n in range(before.shape[1]):
        position, speed, angle, spin = before[0, n], before[1, n], before[2, n], before[3, n]
        cos, sin = math.cos(angle), math.sin(angle)
        push = (2 * FORCE / TOTAL_MASS) * actions[n] - FORCE / TOTAL_MASS
        pull = push + (POLE_SHARE * HALF_LENGTH) * (spin * spin * sin)
        inertia = HALF_LENGTH * 4 / 3 - (HALF_LENGTH * POLE_SHARE) * (cos * cos)
        spin_up = (GRAVITY * sin - cos * pull) / inertia
        after[0, n] = speed * TIME_STEP + position
        after[1, n] = (pull - (POLE_SHARE * HALF_LENGTH) * (spin_up * cos)) * TIME_STEP + speed
        after[2, n] = spin * TIME_STEP + angle
        after[3, n] = spin_up * TIME_STEP + spin
        for i in range(4):
            observations[n, i] = after[i, n]
        lengths[n] += 1
        terminated[n] = abs(after[0, n]) > POSITION_LIMIT or abs(after[2, n]) > ANGLE_LIMIT
        truncated[n] = lengths[n] >= max_steps and not terminated[n]
        ended += terminated[n] or truncated[n]
    return ended


def q_learning_loop(chances, after, rewards, terminal, start, limit, episodes, gamma, alpha, epsilon):
    """One run on tables (S, A, K); the number of updates. Ties go to the first of the best actions."""
    q, updates = np.zeros(chances.shape[:2]), 0
    for _ in range(episodes):
        state, steps, over = start, 0, False
        while not over:
            if np.random.random() < epsilon:
                action = int(np.random.random() * q.shape[1])
            else:
                action = q[state].argmax()
            u, slot = np.random.random(), 0
            while u >= chances[state, action, slot]:
                slot += 1
            next_state, ends = after[state, action, slot], terminal[state, action, slot]
            target = rewards[state, action, slot]
            if not ends:
                target += gamma * q[next_state].max()
            q[state, action] += alpha * (target - q[state, action])
            state, steps = next_state, steps + 1
            over = ends or steps >= limit
        updates += steps
    return updates


class LoopCartPole(BatchedCartPole):
    """The library's CartPole with its physics in one loop."""

    def __init__(self, loop, copies: int) -> None:
        super().__init__(copies, seed=0)
        self.loop = loop

    def step(self, actions):
        actions, shape = self._usable_actions(actions), (self.copies,)
        physics, observations = np.empty((4, *shape)), np.empty((*shape, 4), np.float32)
        terminated, truncated = np.empty(shape, bool), np.empty(shape, bool)
        some_ended = self.loop(
            self.physics, actions, self._lengths, self.max_steps, physics, observations, terminated, truncated
        )
        self.physics, self.observations = physics, observations
        self.steps += 1
        if some_ended:
            ended = (terminated | truncated).nonzero()[0]
            lengths = self._lengths[ended]
            self._finished.append((lengths.astype(float), lengths))
            self._lengths[ended] = 0
            physics[:, ended] = self._starts(ended.size)
            self.observations = physics.T.astype(np.float32)
        return VectorStep(self.observations, self._ones, terminated, truncated, observations)


# --------------------------------------------------------------------------------------------------- measurements


def same_numbers(first, second) -> bool:
    """Whether two results are equal bit for bit."""
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(first, second, strict=True))


def compiled(loop, *arguments):
    """The compiled loop, and the CPU seconds of its first call."""
    fast = numba.njit(loop)
    begin = time.process_time()
    fast(*arguments)
    return fast, time.process_time() - begin


def per_unit(cases, units) -> dict:
    """Median, fastest and slowest CPU seconds of one unit of work (a call, a step, an update)."""
    seconds, results = cpu_seconds(cases, REPEATS)
    spread = {}
    for name, taken in seconds.items():
        count = results[name] if units is None else units[name]
        spread[name] = {key: value / count for key, value in summary(taken).items()}
    return spread


def measure_gae() -> dict:
    buffer = make_buffer()
    loop = partial(gae_loop, gamma=np.float32(GAMMA), decay=np.float32(GAMMA * LAM))
    fast, first = compiled(gae_loop, *buffer, np.float32(GAMMA), np.float32(GAMMA * LAM))
    compiled_call = lambda: fast(*buffer, np.float32(GAMMA), np.float32(GAMMA * LAM))  # noqa: E731
    calls = {"library": 20, "compiled": 20, "python": 1}
    return {
        "what": "generalized advantages, (2048, 64) in float32, one call",
        "seconds": per_unit(
            {
                "library": lambda: [gae(*buffer, GAMMA, LAM) for _ in range(calls["library"])],
                "compiled": lambda: [compiled_call() for _ in range(calls["compiled"])],
                "python": lambda: loop(*buffer),
            },
            calls,
        ),
        "first_call_s": first,
        "same_numbers": same_numbers(gae(*buffer, GAMMA, LAM), compiled_call()),
    }


def measure_cartpole(copies: int, steps: int) -> dict:
    actions = np.random.default_rng(0).integers(2, size=(steps, copies))
    flags = [np.zeros(copies, bool) for _ in range(2)]
    fast, first = compiled(
        cartpole_loop,
        np.zeros((4, copies)),
        actions[0],
        np.zeros(copies, np.int64),
        500,
        np.empty((4, copies)),
        np.empty((copies, 4), np.float32),
        *flags,
    )
    few = max(1, 64_000 // copies)  # steps, in plain Python
    made = {
        "library": BatchedCartPole(copies, seed=0),
        "compiled": LoopCartPole(fast, copies),
        "python": LoopCartPole(cartpole_loop, copies),
    }
    for environment in made.values():
        environment.reset()
    same = all(same_numbers(*(made[name].step(row) for name in ("library", "compiled"))) for row in actions)

    def run(environment, rows):
        for row in rows:
            environment.step(row)
        environment.pop_episodes()

    rows = {"library": actions, "compiled": actions, "python": actions[:few]}
    return {
        "what": f"CartPole, {copies} copies, one step of all",
        "seconds": per_unit(
            {name: partial(run, made[name], rows[name]) for name in made},
            {name: len(part) for name, part in rows.items()},
        ),
        "first_call_s": first,
        "same_numbers": same,
    }


def tables_of(name: str) -> tuple[list[np.ndarray], int]:
    """Cumulative chances, next states, rewards and terminations of an environment, (S, A, K) each, and its start."""
    rows, start = read_table(name)
    width = max(len(results) for row in rows for _, results in row)
    tables = [np.zeros((len(rows), len(rows[0]), width), kind) for kind in (float, np.int64, float, bool)]
    for s, row in enumerate(rows):
        for a, (chances, results) in enumerate(row):
            tables[0][s, a] = 1.0  # the last result takes what is left of [0, 1)
            tables[0][s, a, : len(chances)] = chances
            for k, result in enumerate(results):
                for array, value in zip(tables[1:], result, strict=True):
                    array[s, a, k] = value
    return tables, start


def measure_q_learning(name: str, limit: int, many: int, single: int) -> dict:
    tables, start = tables_of(name)
    rates = tuple(SETTINGS.values())
    fast, first = compiled(q_learning_loop, *tables, start, limit, 1, *rates)
    learn = partial(q_learning, name, seed=0, max_steps=limit, **SETTINGS)
    return {
        "what": f"Q-learning on {name}, one update",
        "seconds": per_unit(
            {
                "library": lambda: int(learn(episodes=single).lengths.sum()),
                "compiled": lambda: fast(*tables, start, limit, single * 20, *rates),
                "python": lambda: q_learning_loop(*tables, start, limit, max(1, single // 20), *rates),
                "library, 1024 runs": lambda: int(learn(episodes=many, runs=1024).lengths.sum()),
            },
            None,
        ),
        "first_call_s": first,
        "same_numbers": None,
    }


def cold_start(command: list[str], folder: str) -> float:
    """CPU seconds of a new process whose cache of compiled code is this folder."""
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
    return cold_seconds(command, NUMBA_CACHE_DIR=folder, PYTHONPATH=path)


def measure_starts() -> dict:
    """What a new process takes, by what it imports; and with one small compiled loop, new or from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "scan.py"
        script.write_text(CACHED)
        taken: dict[str, list[float]] = {}
        for round_ in range(REPEATS + 1):
            seconds = {name: cold_start(["-c", code], folder) for name, code in STARTS.items()}
            fresh = tempfile.mkdtemp(dir=folder)
            seconds["one small loop, compiled"] = cold_start([str(script)], fresh)
            seconds["one small loop, from the cache"] = cold_start([str(script)], fresh)
            if round_:  # the first fills the caches of files
                for name, value in seconds.items():
                    taken.setdefault(name, []).append(value)
    return {name: summary(values) for name, values in taken.items()}


def main() -> None:
    warm = [
        measure_gae(),
        *(measure_cartpole(*size) for size in COPIES.items()),
        *(measure_q_learning(*row) for row in ENVIRONMENTS),
    ]
    print(
        table(
            [
                {
                    "warm": case["what"],
                    **{
                        name: f"{case['seconds'][name]['median_s'] * 1e6:.4g} us"
                        for name in ("library", "compiled", "python")
                    },
                    "library / compiled": f"{case['seconds']['library']['median_s'] / case['seconds']['compiled']['median_s']:.2f}",
                    "first call": f"{case['first_call_s']:.2f} s",
                    "same numbers": str(case["same_numbers"]),
                }
                for case in warm
            ]
        )
    )
    many = {
        case["what"]: case["seconds"]["library, 1024 runs"]["median_s"]
        for case in warm
        if "library, 1024 runs" in case["seconds"]
    }
    print("\n".join(f"{what}, 1024 runs side by side: {seconds * 1e6:.3g} us" for what, seconds in many.items()))
    starts = measure_starts()
    print(table([{"new process": name, "CPU s": f"{taken['median_s']:.3f}"} for name, taken in starts.items()]))
    save(
        "compiled",
        {
            "what": "plain loops compiled by numba against the library, CPU seconds, one thread",
            "repeats": REPEATS,
            "machine": machine(["numpy", "numba", "scipy", "gymnasium"]),
            "warm": warm,
            "starts": starts,
        },
    )


if __name__ == "__main__":
    main()
