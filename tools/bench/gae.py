"""How fast is the blocked scan of ``rlbook_lib.returns.gae``? Against two reverse loops in numpy, one thread.

    python tools/bench/gae.py

The buffer is (2048, 64) in float32, with terminations and truncations. The usual loop has the error of a step
inside the loop. The lean loop takes out of the loop all that can be taken out, so that only the recursion is
left; it is the stricter comparison. Repeats alternate between the three, CPU-seconds count, the median comes
first. Writes ``tools/bench/results/gae.json``.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import datetime
import json
import platform
import sys
import time
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


def library(rewards, values, next_values, terminated, truncated):
    """The public function, checks included."""
    return gae(rewards, values, next_values, terminated, truncated, GAMMA, LAM)


def make_buffer():
    """Rewards, values, next values (float32), terminated, truncated (0.7 and 0.3 percent of the steps)."""
    rng = np.random.default_rng(0)
    numbers = [rng.standard_normal((STEPS, COPIES)).astype(np.float32) for _ in range(3)]
    flags = [rng.random((STEPS, COPIES)) < share for share in (0.007, 0.003)]
    return *numbers, *flags


def cpu_milliseconds(function, buffer):
    """CPU time of one call, averaged over a repeat. The first call warms caches and is left out."""
    function(*buffer)
    start = time.process_time()
    for _ in range(CALLS - 1):
        function(*buffer)
    return (time.process_time() - start) / (CALLS - 1) * 1e3


def processor():
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main():
    buffer = make_buffer()
    exact = usual_loop(*(array.astype(float) for array in buffer[:3]), *buffer[3:])[0]
    cases = {"library": library, "lean loop": lean_loop, "usual loop": usual_loop}
    times = {case: [] for case in cases}
    for _ in range(REPEATS):
        for case, function in cases.items():
            times[case].append(cpu_milliseconds(function, buffer))

    ours = np.array(times["library"])
    rows = {}
    for case, function in cases.items():
        taken = np.array(times[case])
        rows[case] = {
            "median_cpu_ms": round(float(np.median(taken)), 3),
            "min_cpu_ms": round(float(taken.min()), 3),
            "max_cpu_ms": round(float(taken.max()), 3),
            "library_over_this_median": round(float(np.median(ours / taken)), 3),
            "largest_error": float(np.abs(function(*buffer)[0] - exact).max()),
        }
        print(f"{case:11s}" + "".join(f"  {name} {value:.3g}" for name, value in rows[case].items()))

    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({
        "what": "generalized advantages, CPU milliseconds per call, one thread",
        "shape": [STEPS, COPIES], "dtype": "float32", "gamma": GAMMA, "lam": LAM,
        "repeats": REPEATS, "calls_per_repeat": CALLS - 1,
        "date": datetime.date.today().isoformat(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "cases": rows,
    }, indent=1) + "\n")


if __name__ == "__main__":
    main()
