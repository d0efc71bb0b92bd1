"""What the labs cost in the page, beside the same work in the library: CPU seconds, one thread.

    python tools/bench/labs.py                 ten seeds of each in the page, three of GRPO in the library; five minutes
    python tools/bench/labs.py --seeds 2       a short form
    python tools/bench/labs.py --save          keep the record in tools/bench/results/labs.json
    python tools/bench/labs.py --phone         each lab at 390 px by touch, the processor slowed by four: seconds, longest task

In the page means: in a worker of a page in Chromium, opened from the disk; what is counted is the time of all of the
browser's processes from the launch of the run to the record that ends it. Both sides stop by the same rule: PPO when the
last 20 episodes lasted 475 steps on average, the language model when four fifths of 128 sampled answers to unseen prompts
are right, asked every five updates (that of chapter 13, with twelve digits: nine tenths). The seeds of the two are not the same streams, so compare medians. A sweep is timed
inside the page, and has no process of its own.
"""

from common import machine, save, table  # isort: skip  (first: it fixes the threads)

import argparse
import gzip
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "_ext"), str(ROOT / "tools"), str(ROOT / "tests")]

from lab_weights import SIZE, TASK  # noqa: E402
from labs import LABS, loading, opening  # noqa: E402

from rlbook_lib.dynamic_programming import bellman_optimality_backup  # noqa: E402
from rlbook_lib.grpo import GRPOConfig, iterate_grpo  # noqa: E402
from rlbook_lib.language_model import CharTokenizer, Transformer, generate  # noqa: E402
from rlbook_lib.maze import Maze  # noqa: E402
from rlbook_lib.ppo import Learner, PPOConfig, prepare_batch  # noqa: E402
from rlbook_lib.text_tasks import score_completions  # noqa: E402

LAB = ROOT / "_static" / "lab"
FIRST_SEED = 1000  # these seeds chose no setting
WORKS: dict[str, tuple[str, dict[str, Any], str | float, str]] = {  # module, settings, goal, what is counted
    "ppo": ("ppo", {}, "solved", "PPO to 475, steps"),
    "a2c": ("policy_gradient", {"method": "a2c"}, "solved", "A2C to 475, steps"),
    "trpo": ("trpo", {}, "solved", "TRPO to 475, steps"),
    "reinforce": ("policy_gradient", {"method": "reinforce"}, "solved", "REINFORCE to 475, steps"),
    "dqn": ("dqn", {}, "solved", "DQN to 475, steps"),
    "grpo": ("grpo", {"digits": 5}, 0.8, "27,648 weights to 0.8 right, updates"),
    "twelve": ("grpo", {"digits": 12}, 0.9, "104,448 weights to 0.9 right, updates"),
}
RUN = """([module, settings, goal]) => new Promise(done => {
  const began = performance.now();
  if (module === "grpo") settings.weights = lab.weights[settings.digits][0].weights;
  const reached = record => goal === "solved" ? record.solved : record.right >= goal;
  const job = lab.use("worker").launch(module, settings, ({ record, over }) => {
    if (record && reached(record)) { job.stop(); done([(performance.now() - began) / 1000, record.steps ?? record.update]); }
    else if (over) done([NaN, NaN]);
  });
})"""
SWEEPS = """layout => {
  const maze = new (lab.use("maze").Maze)(layout, 0.2), { sweep } = lab.use("tabular");
  let values = new Float64Array(maze.nStates), began;
  for (let k = -200; k < 2000; k++) { if (k === 0) began = performance.now(); values = sweep(maze, values, 0.99); }
  return (performance.now() - began) / 2000;
}"""
BIG = ["S...#...", ".#.#.#..", ".#...#T.", "...#....", "##.#.##.", "...T....", ".#.##.#.", ".......G"]


def children_cpu() -> float:
    """CPU seconds of all processes below this one."""
    rows: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        rows[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    mine = {os.getpid()}
    for _ in range(8):
        mine |= {pid for pid, (parent, _) in rows.items() if parent in mine}
    return sum(rows[pid][1] for pid in mine if pid != os.getpid() and pid in rows) / os.sysconf("SC_CLK_TCK")


def timed(run: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, Any]:
    begin = clock()
    result = run()
    return clock() - begin, result


def ppo_in_library(seed: int) -> int:
    """Steps until the last 20 episodes lasted 475 steps on average."""
    learner, lengths = Learner("CartPole-v1", PPOConfig(total_steps=200_000), seed=seed), []
    for update in range(1, 200):
        batch = prepare_batch(learner.collector.collect(), learner.networks.value, learner.run.config)
        learner.improve(batch)
        lengths += [int(n) for n in learner.environments.pop_episodes()[1]]
        if len(lengths) >= 20 and np.mean(lengths[-20:]) >= 475:
            return update * len(batch.log_probs)
    return -1


def grpo_in_library(seed: int, start: dict[str, torch.Tensor]) -> int:
    """Updates until four fifths of 128 unseen prompts are answered right."""
    model = Transformer(CharTokenizer(TASK.alphabet), SIZE, seed=0)
    model.load_state_dict(start)
    held = TASK.prompts(128, np.random.default_rng(1), "eval")
    for record in iterate_grpo(model, TASK, GRPOConfig(prompts=16, minibatches=2), seed=seed):
        if record.update % 5 == 0:
            answers = generate(model, held, max_new_tokens=TASK.max_new_tokens, seed=record.update)
            if float(score_completions(TASK.reward, answers).mean()) >= 0.8:
                return record.update
    return -1


def on_a_phone(play: Any, seeds: int) -> None:
    """From the touch of the run button to "solved", and the longest task of the page's own thread, in each lab.

    The task is measured by the processor's time, in which the slow-down counts and other programs do not.
    """
    chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
    for name in ("agent", "maze", "cartpole", "language"):
        found = []
        for _ in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "index.html")
                shutil.copytree(LAB, Path(folder, "lab"))
                file.write_text(f"<!doctype html><title>phone</title>{opening(name)}{loading('lab/')}", "utf-8")
                context = chromium.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
                page = context.new_page()
                context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
                page.goto(file.as_uri())
                chromium.start_tracing(page=page, categories=["toplevel", "__metadata"])
                began = time.monotonic()
                page.locator(".lab-run").tap()
                page.wait_for_selector(f'[data-lab="{name}"][data-state="solved"]', timeout=240_000, state="attached")
                seconds = time.monotonic() - began
                events = json.loads(chromium.stop_tracing())["traceEvents"]
                own = {(e["pid"], e["tid"]) for e in events if e["args"].get("name") == "CrRendererMain"}
                tasks = [e.get("tdur", 0) for e in events if (e["pid"], e["tid"]) in own and "RunTask" in e["name"]]
                found.append((seconds, max(tasks) / 1000))
                context.close()
        seconds, longest = zip(*found)
        print(
            f"{name:9s} solved after {statistics.median(seconds):5.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), longest task {max(longest):.0f} ms"
        )
    chromium.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="of PPO; the language model has a third of them")
    parser.add_argument("--save", action="store_true", help="keep the record")
    parser.add_argument("--phone", action="store_true", help="the labs on a slow phone, and nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    from playwright.sync_api import sync_playwright

    if options.phone:
        with sync_playwright() as play:
            return on_a_phone(play, options.seeds)
    from test_lab_parity import model, scripts_of

    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    few = seeds[: max(1, options.seeds // 3)]
    found: dict[str, dict[str, list[Any]]] = {name: {"page": [], "library": []} for name in WORKS}
    needs = {name: scripts_of(name) for name in LABS}
    scripts = [script for names in needs.values() for script in names] + ["weights", "weights_twelve"]
    engine = [name for name in dict.fromkeys(scripts) if not name.startswith(("lab_", "page", "maze_picture"))]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        page_file = Path(folder, "index.html")
        tags = "".join(f'<script src="{(LAB / name).as_uri()}.js"></script>' for name in ["lab", *engine])
        page_file.write_text(f"<!doctype html><title>bench</title>{tags}{opening('maze')}", "utf-8")
        chromium = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = chromium.new_page()
        page.goto(page_file.as_uri())
        sweep_ms = {f"sweep of {len(m)} x {len(m[0])}, ms": page.evaluate(SWEEPS, m) for m in (["S..", ".TG"], BIG)}
        for name, (module, settings, goal, _) in WORKS.items():
            for seed in seeds:
                order = [module, settings | {"seed": seed}, goal]
                cpu, (wall, count) = timed(lambda: page.evaluate(RUN, order), children_cpu)
                found[name]["page"].append(
                    {"seed": seed, "cpu_s": round(cpu, 2), "wall_s": round(wall, 2), "count": count}
                )
        chromium.close()
    start = model().state_dict()
    for seed in seeds:
        cpu, count = timed(lambda: ppo_in_library(seed), time.process_time)
        found["ppo"]["library"].append({"seed": seed, "cpu_s": round(cpu, 2), "count": count})
    for seed in few:
        cpu, count = timed(lambda: grpo_in_library(seed, start), time.process_time)
        found["grpo"]["library"].append({"seed": seed, "cpu_s": round(cpu, 2), "count": count})
    for layout in (["S..", ".TG"], BIG):
        mdp = Maze(layout, slip=0.2).to_mdp(0.99)
        values, begin = np.zeros(mdp.n_states), time.process_time()
        for _ in range(500):
            values = bellman_optimality_backup(mdp, values)
        sweep_ms[f"library, {len(layout)} x {len(layout[0])}, ms"] = (time.process_time() - begin) / 500 * 1000

    rows = []
    for name, (*_, words) in WORKS.items():
        for where, runs in found[name].items():
            if not runs:
                continue
            cpu = [run["cpu_s"] for run in runs]
            rows.append(
                {
                    "work": words,
                    "where": where,
                    "seeds": str(len(runs)),
                    "CPU s, median": f"{statistics.median(cpu):.2f}",
                    "min": f"{min(cpu):.2f}",
                    "max": f"{max(cpu):.2f}",
                    "count, median": f"{statistics.median(run['count'] for run in runs):.0f}",
                    "not reached": str(sum(run["count"] != run["count"] or run["count"] < 0 for run in runs)),
                }
            )
    print(table(rows))
    print(", ".join(f"{name}: {value:.4f}" for name, value in sweep_ms.items()))
    packed = lambda names: sum(len(gzip.compress((LAB / name).read_bytes())) for name in names) / 1000
    print(f"first load, gzip: {packed(['lab.js']):.1f} KB; on touch, KB:", end=" ")
    kb = {name: packed([*(f"{script}.js" for script in scripts), "lab.css"]) for name, scripts in needs.items()}
    kb["weights"], kb["twelve digits"] = packed(["weights.js"]), packed(["weights_twelve.js"])
    print(", ".join(f"{name} {value:.1f}" for name, value in kb.items()))
    if options.save:
        save("labs", {"machine": machine(["torch", "playwright"]), "runs": found, "sweeps": sweep_ms})


if __name__ == "__main__":
    main()
