"""One run from the start of a process until CartPole-v1 is solved: ``cartpole.py cold`` calls this.

    python tools/bench/cartpole_cold.py NAME SEED [PEERS]

Prints one line of JSON. Only what the named case needs is imported, and the imports count; so does compiling.
"""

import common  # isort: skip  (first: it fixes the threads)

import json
import sys
import time
from collections.abc import Callable

from judge import Judge, Solved

LIMIT = 300.0


def run_ours(algorithm: str, seed: int, judge: Judge) -> None:
    sys.path.insert(0, str(common.RESULTS.parents[2]))
    if algorithm == "ppo":
        from rlbook_lib.ppo import iterate_ppo as iterate
    else:
        from rlbook_lib.dqn import iterate_dqn as iterate
    for record in iterate("CartPole-v1", seed=seed):
        judge(record.env_steps, record.policy.act)
    judge.next = 0
    judge(record.env_steps, record.policy.act)


def run_peer(name: str, seed: int, judge: Judge) -> None:
    if name in ("jax_ppo", "rejax_ppo"):
        import jax_peers as module
    else:
        import peers as module
    run: Callable[[int, Judge], None] = getattr(module, f"run_{name}")
    run(seed, judge)


def main() -> None:
    name, seed, *folder = sys.argv[1:]
    sys.path += folder
    judge, run = Judge(LIMIT, from_start=True), run_ours if name in ("ppo", "dqn") else run_peer
    begin = time.perf_counter()
    try:
        run(name, int(seed), judge)
    except Solved:
        pass
    wall = time.perf_counter() - begin
    print(
        json.dumps(
            {
                "solved": judge.solved,
                "cpu_s": round(judge.cpu_s, 3),
                "env_steps": judge.env_steps,
                "cpu_with_judge_s": round(time.process_time(), 3),
                "wall_with_judge_s": round(wall, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
