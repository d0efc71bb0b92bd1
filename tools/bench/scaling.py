"""What a second process gains: a sweep of 16 runs of PPO, and GRPO whose prompts two gloo processes share.

    python tools/bench/scaling.py                both, three repeats, one and two processes taking turns
    python tools/bench/scaling.py --only start   only the cases whose name begins so; the others stay as they are stored

Wall time, since that is what more processes are for, and CPU-seconds of all of them together, which say what they cost and do not
depend on what else the machine does. ``load`` is the machine's load just before: where it and the processes are more than the cores, the
wall time says more about the neighbors. The start of the processes counts for the sweep; for GRPO the first update is left out.
Writes ``results/scaling.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import common  # fixes the number of threads: before numpy and torch

import torch

from rlbook_lib.data_parallel import join, leave, rank, total
from rlbook_lib.evaluation import sweep
from rlbook_lib.grpo import GRPOConfig, iterate_grpo
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig
from rlbook_lib.ppo import PPOConfig, train_ppo
from rlbook_lib.text_tasks import Sorting

RUNS, STEPS = 16, 150_000
WIDTHS, UPDATES = (32, 128), 16
GRPO = GRPOConfig(updates=UPDATES + 1, prompts=32, group=8, minibatches=4)


def ppo(seed: int, steps: int) -> dict[str, Any]:
    """One run of PPO on CartPole."""
    return {
        "episode_return": train_ppo("CartPole-v1", PPOConfig(total_steps=steps), seed=seed).history["episode_return"]
    }


def cpu() -> float:
    """CPU-seconds of this process and of those it started that have ended."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def timed_sweep(workers: int, runs: int = RUNS, steps: int = STEPS) -> dict[str, float]:
    """A whole sweep, the start and the end of its processes with it."""
    from joblib.externals.loky import get_reusable_executor

    with tempfile.TemporaryDirectory() as folder:
        load, wall, cost = os.getloadavg()[0], time.perf_counter(), cpu()
        sweep(
            ppo,
            {"ppo": {"steps": steps}},
            range(runs),
            folder=folder,
            workers=workers,
            backend="loky" if workers > 1 else "sequential",
            progress=False,
        )
        if workers > 1:
            get_reusable_executor().shutdown(wait=True)  # their CPU-seconds are counted when they have ended
        return {"wall_s": time.perf_counter() - wall, "cpu_s": cpu() - cost, "load": load}


def timed_grpo(workers: int, width: int) -> dict[str, float]:
    """Tokens of GRPO by as many processes; what process 0 printed."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)]
    done = subprocess.run(
        [*start, __file__, "--share", str(width)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )
    return {**json.loads(done.stdout.strip().splitlines()[-1]), "load": os.getloadavg()[0]}


def share(width: int) -> None:
    """What each of these processes does."""
    torch.set_num_threads(1)
    join()
    task = Sorting()
    model = Transformer(CharTokenizer(task.alphabet), TransformerConfig(width=width), seed=0)
    run = iterate_grpo(model, task, GRPO, seed=0)
    before = next(run).env_steps
    wall, cost = time.perf_counter(), time.process_time()
    for record in run:
        tokens = record.env_steps - before
    wall, cost = time.perf_counter() - wall, total(time.process_time() - cost)
    if rank() == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(json.dumps({"tokens": tokens, "wall_s": wall, "cpu_s": cost, "parameters": parameters}), flush=True)
    leave()


def middle(rows: list[dict[str, float]]) -> dict[str, float]:
    """The median of each number."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--share", type=int)
    options = parser.parse_args()
    if options.share:
        return share(options.share)
    ways = {f"sweep, {n}": (lambda n=n: timed_sweep(n)) for n in (1, 2)}
    ways["start, 2"] = lambda: timed_sweep(2, runs=2, steps=2048)  # what two processes cost before they do much
    ways |= {f"grpo {width}, {n}": (lambda n=n, width=width: timed_grpo(n, width)) for width in WIDTHS for n in (1, 2)}
    train_ppo("CartPole-v1", PPOConfig(total_steps=2048), seed=0)  # warm
    repeats = json.loads((common.RESULTS / "scaling.json").read_text())["repeats"] if options.only else {}
    ways = {name: way for name, way in ways.items() if name.startswith(options.only)}
    repeats |= {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, way in ways.items():
            repeats[name].append(way())
    medians = {name: middle(rows) for name, rows in repeats.items()}
    print(
        common.table(
            [
                {
                    "case": name,
                    "wall s": f"{row['wall_s']:.2f}",
                    "CPU s": f"{row['cpu_s']:.2f}",
                    "load before": f"{row['load']:.1f}",
                    "tokens/s": f"{row['tokens'] / row['wall_s']:,.0f}" if "tokens" in row else "",
                }
                for name, row in medians.items()
            ]
        )
    )
    common.save(
        "scaling",
        {
            "what": f"{RUNS} runs of PPO on CartPole, {STEPS} steps each, by sweep; {UPDATES} updates of GRPO on sorting, "
            f"{GRPO.prompts} prompts in groups of {GRPO.group}; one and two processes of one thread, taking turns",
            "machine": common.machine(["numpy", "torch", "joblib"])
            | {"neighbors": "other work ran beside it: see load"},
            "repeats": repeats,
            "medians": medians,
        },
    )


if __name__ == "__main__":
    main()
