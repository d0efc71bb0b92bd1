"""How long until CartPole-v1 is solved? Our PPO, DQN, A2C and TRPO, and the peers, CPU seconds, one thread.

    python tools/bench/cartpole.py run --peers DIR          all cases, ten seeds; a rerun continues
    python tools/bench/cartpole.py run --only ppo,a2c       some cases
    python tools/bench/cartpole.py cold --peers DIR         from the start of a process, imports and compiling included
    python tools/bench/cartpole.py table                    the tables of what is recorded
    python tools/bench/cartpole.py cases                    what the names mean

Solved means: the greedy policy, judged after every 2048 steps or so, has a mean return of at least 475 over 20
episodes of Gymnasium's CartPole-v1, and again over 100 further ones (``judge.py``). Judging is not counted; making
the environments and the networks is. The seeds, from 1000 on, were not used to choose any setting. The cases take
turns, seed by seed, in one process, so that a busy moment of the machine hits all of them; each has one short
run first that is not counted: one update at least, so that what a peer compiles once is compiled. ``--output FILE``
names the record, ``tools/bench/results/cartpole.json`` if it is not given, which is written anew after every run.
``cartpole.json`` is of an Intel Xeon; ``cartpole_epyc.json``, of an AMD EPYC, has the peers in JAX, too.

One thread holds for JAX, too (``common.py``). Put ``taskset -c 0`` before the command to be sure of it.

The peers are not part of this project. To bring them into a folder of their own, beside this project's packages:

    pip install --no-deps --target DIR stable-baselines3==2.9.2
    pip install --no-deps --ignore-requires-python --target DIR cleanrl==1.2.0
    pip install --no-deps --target DIR sbx-rl==0.28.0 rejax==0.1.3 gymnax==0.0.9 jax==0.10.2 jaxlib==0.10.2 \\
        flax==0.12.8 optax==0.2.8 distrax==0.1.9 chex==0.1.92 tfp-nightly==0.26.0.dev20261027 ml_dtypes==0.6.0 \\
        opt_einsum==3.4.0 orbax-checkpoint==0.12.8 tensorstore==0.1.86 treescope==0.1.10 msgpack==1.2.4 \\
        absl-py==2.5.1 toolz==1.2.0 gast==0.7.0 decorator==5.3.1 dm-tree==0.1.10 wrapt==2.5.2 six==1.17.0 \\
        humanize==4.17.0 etils==1.15.0 seaborn==0.13.2 pandas==3.1.1 rich==15.0.0 markdown-it-py==4.3.0 mdurl==0.1.2 \\
        pygments==2.21.0 pyyaml==6.0.3 tqdm==4.70.1 typing_extensions==4.16.0 cloudpickle==3.1.2

They are run unchanged. CleanRL's ``ppo.py`` is a script for an old Gym; a stand-in for the few names of Gym that it
uses passes its calls on to Gymnasium, and its log goes nowhere. SBX compiles PPO anew for every model, so
that compiling is part of each of its runs, warm or cold.
"""

from common import RESULTS, machine, table  # isort: skip  (first: it fixes the threads)

import argparse
import dataclasses
import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from judge import GOAL, Judge, Solved
from peers import run_cleanrl_ppo, run_sb3_dqn, run_sb3_ppo, run_sbx_dqn, run_sbx_ppo

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rlbook_lib.dqn import DQNConfig, iterate_dqn  # noqa: E402
from rlbook_lib.policy_gradient import A2CConfig, iterate_a2c  # noqa: E402
from rlbook_lib.ppo import PPOConfig, iterate_ppo  # noqa: E402
from rlbook_lib.trpo import TRPOConfig, iterate_trpo  # noqa: E402

torch.set_num_threads(1)

FIRST_SEED, SEEDS, LIMIT = 1000, 10, 300


# ------------------------------------------------------------------------------------------------- the cases


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table: how it is run, in words what it is, and with which settings."""

    run: Callable[[int, Judge], None]
    words: str
    settings: dict[str, Any]
    needs: str = ""  # the peer's package


def run_in_jax(name: str) -> Callable[[int, Judge], None]:
    """A function of ``jax_peers.py``, which is imported when it first runs: only then need JAX be there."""
    return lambda seed, judge: getattr(importlib.import_module("jax_peers"), name)(seed, judge)


def ours(iterate: Callable[..., Any], config: Any, words: str) -> Case:
    def run(seed: int, judge: Judge) -> None:
        for record in iterate("CartPole-v1", config, seed=seed):
            judge(record.env_steps, record.policy.act)
        judge.next = 0
        judge(record.env_steps, record.policy.act)

    settings = {key: list(x) if isinstance(x, tuple) else x for key, x in dataclasses.asdict(config).items()}
    settings = {key: None if x == float("inf") else x for key, x in settings.items()}
    return Case(run, words, settings)


RELU = dict(hidden=(64, 64), activation="relu", learning_rate=3e-3, learning_rate_end=3e-4)
TANH = dict(hidden=(64, 64), activation="tanh", learning_rate=1e-3, learning_rate_end=1e-4)
AS_SB3 = dict(
    total_steps=100_000,
    copies=8,
    steps=32,
    epochs=20,
    minibatches=1,
    gamma=0.98,
    lam=0.8,
    learning_rate=1e-3,
    learning_rate_end=0.0,
    clip=0.2,
    clip_end=0.0,
    normalize="minibatch",
    value_coefficient=1.0,
    return_scale=1.0,
    max_gradient_norm=0.5,
    hidden=(64, 64),
    activation="tanh",
)
AS_CLEANRL = dict(
    total_steps=500_000,
    copies=4,
    steps=128,
    epochs=4,
    minibatches=4,
    gamma=0.99,
    lam=0.95,
    learning_rate=2.5e-4,
    learning_rate_end=0.0,
    clip=0.2,
    normalize="minibatch",
    value_coefficient=0.5,
    return_scale=1.0,
    value_clip=0.2,
    entropy_coefficient=0.01,
    max_gradient_norm=0.5,
    hidden=(64, 64),
    activation="tanh",
)
DQN_AS_SB3 = dict(  # theirs makes 128 updates in a row every 256 steps; ours one every 2 steps
    total_steps=50_000,
    copies=1,
    batch_size=64,
    learning_rate=2.3e-3,
    gamma=0.99,
    n_step=1,
    target="copy",
    copy_interval=128,
    buffer_capacity=100_000,
    double=False,
    hidden=(256, 256),
    epsilon_end=0.04,
    epsilon_steps=8000,
    learning_starts=1000,
    steps_per_update=2,
    return_scale=1.0,
    max_gradient_norm=10.0,
)
GROUPS = [  # the cases of a group take turns; the groups come one after the other, the cheap ones first
    {
        "ppo": ours(iterate_ppo, PPOConfig(), "our PPO, defaults: one layer of 64, ReLU"),
        "ppo_64x64_relu": ours(iterate_ppo, PPOConfig(**RELU), "our PPO, 64 x 64 ReLU"),
        "ppo_64x64_tanh": ours(iterate_ppo, PPOConfig(**TANH), "our PPO, 64 x 64 tanh"),
        "a2c": ours(iterate_a2c, A2CConfig(), "our A2C, defaults"),
        "trpo": ours(iterate_trpo, TRPOConfig(), "our TRPO, defaults"),
        "cleanrl_ppo": Case(run_cleanrl_ppo, "CleanRL's PPO, defaults: 64 x 64 tanh", {}, "cleanrl"),
        "sb3_ppo": Case(
            run_sb3_ppo,
            "Stable-Baselines3's PPO, settings of its zoo: 64 x 64 tanh",
            {"zoo": "CartPole-v1"},
            "stable-baselines3",
        ),
        "sbx_ppo": Case(run_sbx_ppo, "SBX's PPO, settings of the zoo: 64 x 64 tanh", {"zoo": "CartPole-v1"}, "sbx-rl"),
        "rejax_ppo": Case(
            run_in_jax("run_rejax_ppo"),
            "Rejax's PPO on Gymnax, settings of its repository: 64 x 64 tanh",
            {"config": "configs/gymnax/cartpole.yaml"},
            "rejax",
        ),
        "jax_ppo": Case(
            run_in_jax("run_jax_ppo"), "a lean JAX loop with the settings of our PPO", {"as": "ppo"}, "jax"
        ),
        "ppo_as_cleanrl": ours(iterate_ppo, PPOConfig(**AS_CLEANRL), "our PPO, network and settings of CleanRL"),
        "ppo_as_sb3": ours(iterate_ppo, PPOConfig(**AS_SB3), "our PPO, network and settings of the zoo"),
    },
    {
        "dqn": ours(iterate_dqn, DQNConfig(), "our double DQN, defaults"),
        "sb3_dqn": Case(
            run_sb3_dqn, "Stable-Baselines3's DQN, settings of its zoo", {"zoo": "CartPole-v1"}, "stable-baselines3"
        ),
        "sbx_dqn": Case(run_sbx_dqn, "SBX's DQN, settings of the zoo", {"zoo": "CartPole-v1"}, "sbx-rl"),
        "dqn_as_sb3": ours(iterate_dqn, DQNConfig(**DQN_AS_SB3), "our DQN, network and settings of the zoo"),
    },
]
CASES = {name: case for group in GROUPS for name, case in group.items()}
COLD = "ppo", "jax_ppo", "sbx_ppo", "rejax_ppo", "sb3_ppo", "cleanrl_ppo", "dqn", "sbx_dqn"
RATIOS = [  # (ours, peer, the same settings)
    ("ppo", "cleanrl_ppo", "ppo_as_cleanrl"),
    ("ppo", "sb3_ppo", "ppo_as_sb3"),
    ("ppo_64x64_relu", "cleanrl_ppo", "ppo_as_cleanrl"),
    ("ppo_64x64_relu", "sb3_ppo", "ppo_as_sb3"),
    ("ppo_64x64_tanh", "cleanrl_ppo", "ppo_as_cleanrl"),
    ("ppo_64x64_tanh", "sb3_ppo", "ppo_as_sb3"),
    ("ppo", "sbx_ppo", "ppo_as_sb3"),
    ("ppo", "rejax_ppo", ""),
    ("ppo", "jax_ppo", "ppo"),
    ("dqn", "sb3_dqn", "dqn_as_sb3"),
    ("dqn", "sbx_dqn", "dqn_as_sb3"),
]


# ----------------------------------------------------------------------------------------------- the measuring


def measure(case: Case, seed: int, limit: float) -> dict[str, Any]:
    """One run, to the goal or to the limit."""
    judge = Judge(limit)
    try:
        case.run(seed, judge)
    except Solved:
        pass
    return {
        "solved": judge.solved,
        "cpu_s": round(judge.cpu_s, 3),
        "env_steps": judge.env_steps,
        "load": round(os.getloadavg()[0], 1),
    }


def run_all(names: list[str], seeds: range, limit: float, file: Path, peers: Path | None) -> None:
    """Every case with every seed that is not in the file yet."""
    if peers is not None:
        sys.path.append(str(peers))
    here, record = machine(packages_of(names)), read(file)
    before = record["machine"] or {**here, "threads": torch.get_num_threads()}
    versions = before["versions"] | here["versions"]
    if before["cpu"] != here["cpu"] or versions != here["versions"] | before["versions"]:
        raise SystemExit(f"{file} was written by another machine or other versions; move it away to start anew")
    record["machine"] = {**before, "versions": versions}
    for name in names:
        entry = record["cases"].setdefault(name, {"runs": {}})
        if entry["runs"] and entry["settings"] != CASES[name].settings:
            print(f"{name}: its settings have changed, so its runs are measured again")
            entry["runs"] = {}
        entry |= {"words": CASES[name].words, "settings": CASES[name].settings}
    todo = [
        (name, seed)
        for group in GROUPS
        for seed in seeds
        for name in group
        if name in names and str(seed) not in record["cases"][name]["runs"]
    ]
    warm: set[str] = set()
    for number, (name, seed) in enumerate(todo, 1):
        if name not in warm:  # the first run of a case in a process pays for imports and caches
            measure(CASES[name], 0, 0.0)
            warm.add(name)
        result = measure(CASES[name], seed, limit)
        record["cases"][name]["runs"][str(seed)] = result
        summarize(record)
        write(file, record)
        verdict = "solved" if result["solved"] else "NOT SOLVED"
        print(
            f"[{number:3d}/{len(todo)}] {name:15s} seed {seed}  {result['cpu_s']:7.2f} s  "
            f"{result['env_steps']:7d} steps  {verdict}",
            flush=True,
        )


def packages_of(names: list[str]) -> list[str]:
    """The packages whose versions are recorded with these cases."""
    with_it = {
        "rejax": ["gymnax", "jax", "jaxlib", "flax", "optax"],
        "sbx-rl": ["jax", "jaxlib", "flax", "optax"],
        "jax": ["jaxlib"],
    }
    needed = [package for name in names if (peer := CASES[name].needs) for package in (peer, *with_it.get(peer, []))]
    return list(dict.fromkeys(["numpy", "torch", "gymnasium", *needed]))


def run_cold(names: list[str], seed: int, file: Path, peers: Path) -> None:
    """Each case in processes of its own, in turns: five, or three where one takes ten seconds and more."""
    record = read(file)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    script = str(Path(__file__).with_name("cartpole_cold.py"))
    for turn in range(5):
        for name in names:
            if turn >= 3 and statistics.median(run["cpu_s"] for run in runs[name]) >= 10:
                continue
            command = [sys.executable, script, name, str(seed), str(peers.resolve())]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            runs[name].append(json.loads(answer.splitlines()[-1]))
            seconds = [run["cpu_s"] for run in runs[name]]
            record.setdefault("cold", {})[name] = {
                "seed": seed,
                "runs": runs[name],
                "median_s": round(statistics.median(seconds), 3),
                "min_s": min(seconds),
                "max_s": max(seconds),
                "solved": sum(run["solved"] for run in runs[name]),
                "repeats": len(seconds),
            }
            write(file, record)
            print(f"{name:15s} {seconds[-1]:7.2f} s from the start of the process", flush=True)


def summarize(record: dict[str, Any]) -> None:
    """Medians, maxima and ratios of medians, over all seeds of each case."""
    medians = {}
    for name, entry in record["cases"].items():
        runs = list(entry["runs"].values())
        if runs:
            seconds, steps = ([run[key] for run in runs] for key in ("cpu_s", "env_steps"))
            medians[name] = statistics.median(seconds)
            entry["summary"] = {
                "median_s": round(medians[name], 3),
                "max_s": max(seconds),
                "min_s": min(seconds),
                "median_steps": statistics.median(steps),
                "solved": sum(run["solved"] for run in runs),
                "seeds": len(runs),
            }
    record["ratios"] = [
        {
            "ours": mine,
            "peer": peer,
            "times_faster": round(medians[peer] / medians[mine], 2),
            "by_settings": round(medians[same] / medians[mine], 2) if same in medians else None,
            "by_code": round(medians[peer] / medians[same], 2) if same in medians else None,
        }
        for mine, peer, same in RATIOS
        if mine in medians and peer in medians
    ]


def read(file: Path) -> dict[str, Any]:
    if file.exists():
        return json.loads(file.read_text("utf-8"))
    return {
        "what": f"CPU seconds until the greedy policy's mean return is {GOAL:g} over 20 episodes of CartPole-v1 and "
        "again over 100 more; one thread, judging not counted. A run that never got there counts with "
        "its whole time.",
        "machine": {},
        "cases": {},
        "ratios": [],
    }


def write(file: Path, record: dict[str, Any]) -> None:
    """All or nothing: a run that is killed leaves the previous file."""
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    os.replace(part, file)


def print_tables(record: dict[str, Any]) -> None:
    entries = [(name, record["cases"][name]) for name in CASES if record["cases"].get(name, {}).get("runs")]
    if not entries and not record.get("cold"):
        raise SystemExit("nothing is recorded yet")
    if entries:
        print(
            table(
                [
                    {
                        "case": name,
                        "median s": f"{e['summary']['median_s']:.2f}",
                        "max s": f"{e['summary']['max_s']:.2f}",
                        "min s": f"{e['summary']['min_s']:.2f}",
                        "median steps": f"{e['summary']['median_steps']:.0f}",
                        "solved": f"{e['summary']['solved']}/{e['summary']['seeds']}",
                    }
                    for name, e in entries
                ]
            )
        )
    if record["ratios"]:
        print()
        print(
            table(
                [
                    {
                        "ours": r["ours"],
                        "peer": r["peer"],
                        "times faster": f"{r['times_faster']:.1f}",
                        "by settings": "-" if r["by_settings"] is None else f"{r['by_settings']:.1f}",
                        "by code": "-" if r["by_code"] is None else f"{r['by_code']:.1f}",
                    }
                    for r in record["ratios"]
                ]
            )
        )
        print("\nby settings: ours with the peer's settings, divided by ours; by code: the peer, divided by that")
    if record.get("cold"):
        print()
        print(
            table(
                [
                    {
                        "from the start of a process": name,
                        "median s": f"{e['median_s']:.2f}",
                        "max s": f"{e['max_s']:.2f}",
                        "min s": f"{e['min_s']:.2f}",
                        "solved": f"{e['solved']}/{e['repeats']}",
                    }
                    for name, e in record["cold"].items()
                ]
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "cold", "table", "cases"))
    parser.add_argument("--peers", type=Path, help="folder with the peers")
    parser.add_argument("--only", help="names of cases, separated by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds of one run")
    parser.add_argument("--output", type=Path, default=RESULTS / "cartpole.json")
    arguments = parser.parse_args()
    if arguments.what == "cases":
        print("\n".join(f"{name:15s}  {case.words}" for name, case in CASES.items()))
        return
    if arguments.what == "cold":
        if arguments.peers is None:
            parser.error("cold needs --peers")
        names = list(COLD) if arguments.only is None else arguments.only.split(",")
        if unknown := [name for name in names if name not in COLD]:
            parser.error(f"unknown cases {unknown}; cold knows {list(COLD)}")
        run_cold(names, arguments.first_seed, arguments.output, arguments.peers)
    if arguments.what == "run":
        names = list(CASES) if arguments.only is None else arguments.only.split(",")
        if unknown := [name for name in names if name not in CASES]:
            parser.error(f"unknown cases {unknown}; there are {list(CASES)}")
        if arguments.peers is None and (left := [name for name in names if CASES[name].needs]):
            print(f"without --peers these are left out: {', '.join(left)}")
            names = [name for name in names if name not in left]
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        run_all(names, seeds, arguments.limit, arguments.output, arguments.peers)
    print_tables(read(arguments.output))


if __name__ == "__main__":
    main()
