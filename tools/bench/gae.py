"""How fast is the blocked scan of ``rlbook_lib.returns.gae``? Against two reverse loops in numpy, one thread.

    python tools/bench/gae.py

The buffer is (2048, 64) in float32, with terminations and truncations. The usual loop has the error of a step
inside the loop. The lean loop takes out of the loop all that can be taken out, so that only the recursion is
left; it is the stricter comparison. Repeats alternate between all cases, CPU-seconds count, the median comes
first. Writes ``tools/bench/results/gae.json``, which a page prints, or the file that ``--output`` names.

    python tools/bench/gae.py --peers FOLDER --output gae_epyc.json

adds the library on tensors, the same loop compiled, a jitted scan of JAX (the arrays already on its device;
unrolling it gained nothing), and the buffer of Stable-Baselines3, whose rewards carry what it has no argument for. FOLDER comes from
``pip install --target FOLDER jax==0.10.2 numba==0.68.1 numpy==2.4.6`` and, with ``--no-deps``, stable-baselines3==2.9.2.
"""

from common import first_calls, machine  # isort: skip  (first: it fixes the threads)

import argparse
import datetime
import json
import os
import platform
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rlbook_lib.returns import gae  # noqa: E402

STEPS, COPIES, GAMMA, LAM = 2048, 64, 0.99, 0.95
REPEATS, CALLS = 15, 10  # calls per repeat; the first of them is not counted
RESULT = ROOT / "tools" / "bench" / "results" / "gae.json"


def usual_loop(rewards, values, next_values, terminated, truncated):
    """Error and recursion together, one step at a time."""
    goes_on = (~terminated).astype(rewards.dtype)
    same_episode = (~(terminated | truncated)).astype(rewards.dtype)
    advantages, following = np.empty_like(rewards), np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        delta = rewards[t] + GAMMA * goes_on[t] * next_values[t] - values[t]
        following = delta + GAMMA * LAM * same_episode[t] * following
        advantages[t] = following
    return advantages, advantages + values


def lean_loop(rewards, values, next_values, terminated, truncated):
    """All errors and decays at once, then only the recursion in the loop."""
    deltas = rewards + GAMMA * next_values * ~terminated - values
    decays = np.full_like(rewards, GAMMA * LAM)
    decays *= ~(terminated | truncated)
    advantages, following = np.empty_like(rewards), np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        following = deltas[t] + decays[t] * following
        advantages[t] = following
    return advantages, advantages + values


def gae_loop(rewards, values, next_values, terminated, truncated, gamma, decay):
    """Advantages and targets, (T, N) each: error and recursion together, one number at a time."""
    advantages, targets, following = np.empty_like(rewards), np.empty_like(rewards), np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        for n in range(rewards.shape[1]):
            advantage = rewards[t, n]
            if not terminated[t, n]:
                advantage += gamma * next_values[t, n]
            advantage -= values[t, n]
            if not (terminated[t, n] or truncated[t, n]):
                advantage += decay * following[n]
            following[n] = advantages[t, n] = advantage
            targets[t, n] = advantage + values[t, n]
    return advantages, targets


def library(rewards, values, next_values, terminated, truncated):
    """The public function, checks included."""
    return gae(rewards, values, next_values, terminated, truncated, GAMMA, LAM)


def peer_cases(buffer):
    """Case name to a function without arguments that returns advantages and targets."""
    import jax
    import numba
    import torch
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import RolloutBuffer

    torch.set_num_threads(1)
    rewards, values, next_values, terminated, truncated = buffer
    loop, factors = numba.njit(gae_loop), (np.float32(GAMMA), np.float32(GAMMA * LAM))

    @jax.jit
    def scan(rewards, values, next_values, terminated, truncated):
        deltas = rewards + GAMMA * next_values * ~terminated - values
        decays = GAMMA * LAM * ~(terminated | truncated)

        def back(following, row):
            following = row[0] + row[1] * following
            return following, following

        _, advantages = jax.lax.scan(back, jax.numpy.zeros(COPIES), (deltas, decays), reverse=True)
        return advantages, advantages + values

    tensors, arrays = [torch.tensor(array) for array in buffer], [jax.device_put(array) for array in buffer]
    theirs = RolloutBuffer(STEPS, Box(-1, 1, (1,)), Box(-1, 1, (1,)), "cpu", gae_lambda=LAM, gamma=GAMMA, n_envs=COPIES)
    ends, after = (
        terminated | truncated,
        np.roll(values, -1, axis=0),
    )  # it takes the next row's value, and none at an end
    theirs.values[:], theirs.episode_starts[1:] = values, ends[:-1]
    theirs.rewards[:] = rewards + GAMMA * (next_values * ~terminated - after * ~ends)
    last = torch.tensor(after[-1])

    def sb3():
        theirs.compute_returns_and_advantage(last, ends[-1])
        return theirs.advantages, theirs.returns

    return {
        "library, tensors": lambda: [tensor.numpy() for tensor in library(*tensors)],
        "numba loop": lambda: loop(*buffer, *factors),
        "JAX scan": lambda: jax.block_until_ready(scan(*arrays)),
        "SB3 buffer": sb3,
    }


def make_buffer():
    """Rewards, values, next values (float32), terminated, truncated (0.7 and 0.3 percent of the steps)."""
    rng = np.random.default_rng(0)
    numbers = [rng.standard_normal((STEPS, COPIES)).astype(np.float32) for _ in range(3)]
    flags = [rng.random((STEPS, COPIES)) < share for share in (0.007, 0.003)]
    return *numbers, *flags


def cpu_milliseconds(run):
    """CPU time of one call, averaged over a repeat. The first call warms caches and is left out."""
    run()
    start = time.process_time()
    for _ in range(CALLS - 1):
        run()
    return (time.process_time() - start) / (CALLS - 1) * 1e3


def processor():
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="a folder with jax, numba and stable-baselines3")
    parser.add_argument("--output", default=RESULT.name, help="the name of the file of results")
    options = parser.parse_args()
    buffer = make_buffer()
    exact = usual_loop(*(array.astype(float) for array in buffer[:3]), *buffer[3:])[0]
    plain = {"library": library, "lean loop": lean_loop, "usual loop": usual_loop}
    cases = {name: partial(function, *buffer) for name, function in plain.items()}
    if options.peers:
        cases |= peer_cases(buffer)
    first = first_calls(cases)
    times = {case: [] for case in cases}
    for _ in range(REPEATS):
        for case, function in cases.items():
            times[case].append(cpu_milliseconds(function))

    ours = np.array(times["library"])
    rows = {}
    for case, function in cases.items():
        taken = np.array(times[case])
        rows[case] = {
            "median_cpu_ms": round(float(np.median(taken)), 3),
            "min_cpu_ms": round(float(taken.min()), 3),
            "max_cpu_ms": round(float(taken.max()), 3),
            "library_over_this_median": round(float(np.median(ours / taken)), 3),
            "largest_error": float(np.abs(function()[0] - exact).max()),
            **first[case],
        }
        print(f"{case:16s}" + "".join(f"  {name} {value:.3g}" for name, value in rows[case].items()))

    packages = ["numpy", *(["torch", "jax", "numba", "stable-baselines3"] if options.peers else [])]
    RESULT.with_name(options.output).write_text(
        json.dumps(
            {
                "what": "generalized advantages, CPU milliseconds per call, one thread",
                "shape": [STEPS, COPIES],
                "dtype": "float32",
                "gamma": GAMMA,
                "lam": LAM,
                "repeats": REPEATS,
                "calls_per_repeat": CALLS - 1,
                "date": datetime.date.today().isoformat(),
                "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system()},
                "versions": {"python": platform.python_version(), **machine(packages)["versions"]},
                "cases": rows,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
