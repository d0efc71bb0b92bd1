"""What does a new Python process pay before the first result? Imports, and PPO from the start of the process.

    python tools/bench/starts.py                 the library
    python tools/bench/starts.py --peers DIR     and Stable-Baselines3, from the folder that cartpole.py describes

User and system CPU seconds of new processes, one thread, that take turns; the files are in the system's cache. The
programs train 20,480 steps of CartPole, about what the library's PPO needs to solve it; the peer has its zoo's
settings and 8 copies. Writes ``tools/bench/results/starts.json``.
"""

from __future__ import annotations

from common import cold_seconds, machine, save, summary, table  # isort: skip  (first: it fixes the threads)

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPEATS = 5
MODULES = ("returns", "mdp", "dynamic_programming", "monte_carlo", "temporal_difference", "maze", "environments", "ppo")
IMPORTS = ("numpy", "scipy.sparse", "gymnasium", "torch")
PPO = """
import torch
torch.set_num_threads(1)
from rlbook_lib.ppo import PPOConfig, train_ppo
train_ppo("CartPole-v1", PPOConfig(total_steps=20_480), seed=0)
"""
SB3 = """
import torch
torch.set_num_threads(1)
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
model = PPO(
    "MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=0), seed=0, device="cpu", n_steps=32, batch_size=256, gae_lambda=0.8,
    gamma=0.98, n_epochs=20, ent_coef=0.0, learning_rate=lambda left: 0.001 * left, clip_range=lambda left: 0.2 * left,
)
model.learn(20_480)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="folder with Stable-Baselines3")
    peers = parser.parse_args().peers
    programs = {f"import {name}": f"import {name}" for name in (*IMPORTS, *(f"rlbook_lib.{name}" for name in MODULES))}
    programs["PPO, 20,480 steps"] = PPO
    if peers is not None:
        programs["Stable-Baselines3's PPO, 20,480 steps"] = SB3
        sys.path.append(str(peers))
    path = os.pathsep.join([str(ROOT), *([] if peers is None else [str(peers)])])
    taken: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:  # no file of the caller's folder is imported by mistake
        for round_ in range(REPEATS + 1):
            for name, code in programs.items():
                seconds = cold_seconds(["-c", code], cwd=folder, PYTHONPATH=path)
                if round_:  # the first fills the caches of files
                    taken[name].append(seconds)
    print(
        table(
            [
                {"new process": name, **{key: f"{value:.3f}" for key, value in summary(of).items()}}
                for name, of in taken.items()
            ]
        )
    )
    packages = ["numpy", "scipy", "gymnasium", "torch", *([] if peers is None else ["stable-baselines3"])]
    save(
        "starts",
        {
            "what": "CPU seconds of a new process, one thread",
            "repeats": REPEATS,
            "load": round(os.getloadavg()[0], 1),
            "machine": machine(packages),
            "starts": {name: summary(of) for name, of in taken.items()},
        },
    )


if __name__ == "__main__":
    main()
