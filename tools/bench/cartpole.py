"""How long until CartPole-v1 is solved? Our PPO, DQN, A2C and TRPO, and the peers, CPU seconds, one thread.

    python tools/bench/cartpole.py run --peers DIR          all cases, ten seeds; a rerun continues
    python tools/bench/cartpole.py run --only ppo,a2c       some cases
    python tools/bench/cartpole.py table                    the tables of what is recorded
    python tools/bench/cartpole.py cases                    what the names mean

Solved means: the greedy policy, judged after every 2048 steps or so, has a mean return of at least 475 over 20
episodes of Gymnasium's CartPole-v1, and again over 100 further ones. Judging is not counted; making the
environments and the networks is. The seeds, from 1000 on, were not used to choose any setting. The cases take
turns, seed by seed, in one process, so that a busy moment of the machine hits all of them; each has one short
run first that is not counted. After every run, ``tools/bench/results/cartpole.json`` is written anew.

The peers are not part of this project. To bring them into a folder of their own:

    pip install --no-deps --target DIR stable-baselines3==2.9.2
    pip install --no-deps --ignore-requires-python --target DIR cleanrl==1.2.0

CleanRL's ``ppo.py`` is a script for an old Gym. It is run unchanged, with its defaults; a stand-in for the few
names of Gym that it uses passes its calls on to Gymnasium, and its log goes nowhere.
"""

from common import RESULTS, machine, table  # isort: skip  (first: it fixes the threads)

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
import types
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rlbook_lib.dqn import DQNConfig, iterate_dqn  # noqa: E402
from rlbook_lib.policy_gradient import A2CConfig, iterate_a2c  # noqa: E402
from rlbook_lib.ppo import PPOConfig, iterate_ppo  # noqa: E402
from rlbook_lib.trpo import TRPOConfig, iterate_trpo  # noqa: E402

torch.set_num_threads(1)

FIRST_SEED, SEEDS, LIMIT = 1000, 10, 300
JUDGE_EVERY = 2048  # environment steps
GOAL = 475.0


# ------------------------------------------------------------------------------------------------- the judge


class Solved(Exception):
    """Raised by the judge through the trainer: the goal is reached, or the run is over its limit."""


class Judge:
    """Keeps the time of one run, and says when it is over.

    A trainer calls the judge between updates with the number of steps so far and a function that maps
    observations (n, 4) to greedy actions (n,).
    """

    def __init__(self, limit: float) -> None:
        self.limit, self.next, self.away = limit, JUDGE_EVERY, 0.0
        self.solved, self.env_steps, self.cpu_s = False, 0, 0.0
        self.begin = time.process_time()

    def seconds(self) -> float:
        return time.process_time() - self.begin - self.away

    @contextmanager
    def pause(self):
        begin = time.process_time()
        yield
        self.away += time.process_time() - begin

    def __call__(self, env_steps: int, act: Callable[[np.ndarray], np.ndarray]) -> None:
        if env_steps < self.next:
            return
        self.next, self.env_steps, self.cpu_s = env_steps + JUDGE_EVERY, env_steps, self.seconds()
        with self.pause():
            self.solved = all(bool(episodes(act, *of).mean() >= GOAL) for of in ((20, 10_000), (100, 20_000)))
        if self.solved or self.cpu_s > self.limit:
            raise Solved


def episodes(act: Callable[[np.ndarray], np.ndarray], count: int, seed: int) -> np.ndarray:
    """Returns of ``count`` episodes, all played side by side; the first states depend on the seed only."""
    envs = [gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(count)]
    observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])  # (n, 4)
    returns, live = np.zeros(count), np.arange(count)
    while live.size:
        over = np.zeros(live.size, bool)
        for k, (i, action) in enumerate(zip(live, act(observations[live]))):
            observations[i], reward, terminated, truncated, _ = envs[i].step(int(action))
            returns[i] += reward
            over[k] = terminated or truncated
        live = live[~over]
    return returns


# ------------------------------------------------------------------------------------------------- the peers


def run_sb3_ppo(seed: int, judge: Judge) -> None:
    """Stable-Baselines3's PPO with the zoo's settings for CartPole-v1."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=seed), seed=seed, device="cpu",
        n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
        learning_rate=lambda left: 0.001 * left, clip_range=lambda left: 0.2 * left,
    )
    _learn(model, 100_000, judge)


def run_sb3_dqn(seed: int, judge: Judge) -> None:
    """Stable-Baselines3's DQN with the zoo's settings for CartPole-v1."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    model = DQN(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=1, seed=seed), seed=seed, device="cpu",
        learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
        target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16,
        exploration_final_eps=0.04, policy_kwargs=dict(net_arch=[256, 256]),
    )
    _learn(model, 50_000, judge)


def _learn(model: Any, total_steps: int, judge: Judge) -> None:
    """Train a model of Stable-Baselines3; the judge looks at it whenever an update is done."""
    from stable_baselines3.common.callbacks import BaseCallback

    def act(observations: np.ndarray) -> np.ndarray:
        return model.predict(observations, deterministic=True)[0]

    class AskTheJudge(BaseCallback):
        def _on_rollout_start(self) -> None:  # the moment after an update
            judge(model.num_timesteps, act)

        def _on_step(self) -> bool:
            return True

    model.learn(total_steps, callback=AskTheJudge())
    judge.next = 0  # the end of the run is judged in any case
    judge(model.num_timesteps, act)


def run_cleanrl_ppo(seed: int, judge: Judge) -> None:
    """CleanRL's PPO at its defaults; its network is two layers of 64 with tanh."""
    import cleanrl

    path = Path(list(cleanrl.__path__)[0]) / "ppo.py"
    program = compile(path.read_text("utf-8"), str(path), "exec")
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}

    def act(observations: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return names["agent"].actor(torch.from_numpy(observations)).argmax(1).numpy()

    class Log:  # in place of the script's SummaryWriter; its last entry of an update asks the judge
        def __init__(self, *_: Any) -> None: ...
        def add_text(self, *_: Any) -> None: ...
        def close(self) -> None: ...

        def add_scalar(self, name: str, value: float, step: int) -> None:
            if name == "charts/SPS":
                judge(step, act)

    names["print"] = lambda *_: None
    arguments = sys.argv
    sys.argv = [str(path), "--seed", str(seed), "--cuda", "False"]
    try:
        with stand_ins({**old_gym(), "torch.utils.tensorboard": module("tensorboard", SummaryWriter=Log)}):
            exec(program, names)
    finally:
        sys.argv = arguments


def module(name: str, **content: Any) -> types.ModuleType:
    result = types.ModuleType(name)
    vars(result).update(content)
    return result


@contextmanager
def stand_ins(modules: dict[str, types.ModuleType]):
    """Let an import of these names find these modules."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, old in before.items():
            sys.modules.pop(name) if old is None else sys.modules.__setitem__(name, old)


def old_gym() -> dict[str, types.ModuleType]:
    """What CleanRL's script needs of Gym 0.21, on top of Gymnasium and as lean as can be, and of distutils."""

    class Env:
        def __init__(self, name: str) -> None:
            self.env, self.first_seed = gymnasium.make(name, disable_env_checker=True), None
            self.action_space, self.observation_space = self.env.action_space, self.env.observation_space
            self.total = 0.0

        def seed(self, seed: int) -> None:
            self.first_seed = seed

        def reset(self) -> np.ndarray:
            observation, _ = self.env.reset(seed=self.first_seed)
            self.first_seed, self.total = None, 0.0
            return observation

    class SyncVectorEnv:
        def __init__(self, thunks: list[Callable[[], Env]]) -> None:
            self.envs = [thunk() for thunk in thunks]
            self.single_action_space = self.envs[0].action_space
            self.single_observation_space = self.envs[0].observation_space

        def reset(self) -> np.ndarray:
            return np.stack([env.reset() for env in self.envs])

        def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            observations, rewards, done, infos = [], [], [], []
            for env, action in zip(self.envs, actions):
                observation, reward, terminated, truncated, _ = env.env.step(action)
                env.total += reward
                over = terminated or truncated
                infos.append({"episode": {"r": env.total, "l": env.total}} if over else {})
                observations.append(env.reset() if over else observation)
                rewards.append(reward)
                done.append(over)
            return np.stack(observations), np.array(rewards), np.array(done), infos

        def close(self) -> None: ...

    wrappers = module("gym.wrappers", RecordEpisodeStatistics=lambda env: env)
    vector, spaces = module("gym.vector", SyncVectorEnv=SyncVectorEnv), gymnasium.spaces
    gym = module("gym", make=Env, wrappers=wrappers, vector=vector, spaces=spaces)
    words = module("distutils.util", strtobool=lambda word: word.lower() in ("true", "yes", "1"))
    return {"gym": gym, "gym.wrappers": wrappers, "gym.vector": vector, "gym.spaces": spaces,
            "distutils": module("distutils", util=words), "distutils.util": words}  # gone from Python 3.12


# ------------------------------------------------------------------------------------------------- the cases


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table: how it is run, in words what it is, and with which settings."""

    run: Callable[[int, Judge], None]
    words: str
    settings: dict[str, Any]
    needs: str = ""  # the peer's package


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
    total_steps=100_000, copies=8, steps=32, epochs=20, minibatches=1, gamma=0.98, lam=0.8, learning_rate=1e-3,
    learning_rate_end=0.0, clip=0.2, clip_end=0.0, normalize="minibatch", value_coefficient=1.0, return_scale=1.0,
    max_gradient_norm=0.5, hidden=(64, 64), activation="tanh",
)
AS_CLEANRL = dict(
    total_steps=500_000, copies=4, steps=128, epochs=4, minibatches=4, gamma=0.99, lam=0.95, learning_rate=2.5e-4,
    learning_rate_end=0.0, clip=0.2, normalize="minibatch", value_coefficient=0.5, return_scale=1.0, value_clip=0.2,
    entropy_coefficient=0.01, max_gradient_norm=0.5, hidden=(64, 64), activation="tanh",
)
DQN_AS_SB3 = dict(  # theirs makes 128 updates in a row every 256 steps; ours one every 2 steps
    total_steps=50_000, copies=1, batch_size=64, learning_rate=2.3e-3, gamma=0.99, n_step=1, target="copy",
    copy_interval=128, buffer_capacity=100_000, double=False, hidden=(256, 256), epsilon_end=0.04, epsilon_steps=8000,
    learning_starts=1000, steps_per_update=2, return_scale=1.0, max_gradient_norm=10.0,
)
GROUPS = [  # the cases of a group take turns; the groups come one after the other, the cheap ones first
    {
        "ppo": ours(iterate_ppo, PPOConfig(), "our PPO, defaults: one layer of 64, ReLU"),
        "ppo_64x64_relu": ours(iterate_ppo, PPOConfig(**RELU), "our PPO, 64 x 64 ReLU"),
        "ppo_64x64_tanh": ours(iterate_ppo, PPOConfig(**TANH), "our PPO, 64 x 64 tanh"),
        "a2c": ours(iterate_a2c, A2CConfig(), "our A2C, defaults"),
        "trpo": ours(iterate_trpo, TRPOConfig(), "our TRPO, defaults"),
        "cleanrl_ppo": Case(run_cleanrl_ppo, "CleanRL's PPO, defaults: 64 x 64 tanh", {}, "cleanrl"),
        "sb3_ppo": Case(run_sb3_ppo, "Stable-Baselines3's PPO, settings of its zoo: 64 x 64 tanh",
                        {"zoo": "CartPole-v1"}, "stable-baselines3"),
        "ppo_as_cleanrl": ours(iterate_ppo, PPOConfig(**AS_CLEANRL), "our PPO, network and settings of CleanRL"),
        "ppo_as_sb3": ours(iterate_ppo, PPOConfig(**AS_SB3), "our PPO, network and settings of the zoo"),
    },
    {
        "dqn": ours(iterate_dqn, DQNConfig(), "our double DQN, defaults"),
        "sb3_dqn": Case(run_sb3_dqn, "Stable-Baselines3's DQN, settings of its zoo", {"zoo": "CartPole-v1"},
                        "stable-baselines3"),
        "dqn_as_sb3": ours(iterate_dqn, DQNConfig(**DQN_AS_SB3), "our DQN, network and settings of the zoo"),
    },
]
CASES = {name: case for group in GROUPS for name, case in group.items()}
RATIOS = [  # (ours, peer, the same settings)
    ("ppo", "cleanrl_ppo", "ppo_as_cleanrl"), ("ppo", "sb3_ppo", "ppo_as_sb3"),
    ("ppo_64x64_relu", "cleanrl_ppo", "ppo_as_cleanrl"), ("ppo_64x64_relu", "sb3_ppo", "ppo_as_sb3"),
    ("ppo_64x64_tanh", "cleanrl_ppo", "ppo_as_cleanrl"), ("ppo_64x64_tanh", "sb3_ppo", "ppo_as_sb3"),
    ("dqn", "sb3_dqn", "dqn_as_sb3"),
]


# ----------------------------------------------------------------------------------------------- the measuring


def measure(case: Case, seed: int, limit: float) -> dict[str, Any]:
    """One run, to the goal or to the limit."""
    judge = Judge(limit)
    try:
        case.run(seed, judge)
    except Solved:
        pass
    return {"solved": judge.solved, "cpu_s": round(judge.cpu_s, 3), "env_steps": judge.env_steps,
            "load": round(os.getloadavg()[0], 1)}


def run_all(names: list[str], seeds: range, limit: float, file: Path, peers: Path | None) -> None:
    """Every case with every seed that is not in the file yet."""
    packages = ["numpy", "torch", "gymnasium"]
    if peers is not None:
        sys.path.append(str(peers))
        packages += ["stable-baselines3", "cleanrl"]
    here, record = machine(packages), read(file)
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
    todo = [(name, seed) for group in GROUPS for seed in seeds for name in group
            if name in names and str(seed) not in record["cases"][name]["runs"]]
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
        print(f"[{number:3d}/{len(todo)}] {name:15s} seed {seed}  {result['cpu_s']:7.2f} s  "
              f"{result['env_steps']:7d} steps  {verdict}", flush=True)


def summarize(record: dict[str, Any]) -> None:
    """Medians, maxima and ratios of medians, over all seeds of each case."""
    medians = {}
    for name, entry in record["cases"].items():
        runs = list(entry["runs"].values())
        if runs:
            seconds, steps = ([run[key] for run in runs] for key in ("cpu_s", "env_steps"))
            medians[name] = statistics.median(seconds)
            entry["summary"] = {
                "median_s": round(medians[name], 3), "max_s": max(seconds), "min_s": min(seconds),
                "median_steps": statistics.median(steps), "solved": sum(run["solved"] for run in runs),
                "seeds": len(runs),
            }
    record["ratios"] = [
        {"ours": mine, "peer": peer, "times_faster": round(medians[peer] / medians[mine], 2),
         "by_settings": round(medians[same] / medians[mine], 2) if same in medians else None,
         "by_code": round(medians[peer] / medians[same], 2) if same in medians else None}
        for mine, peer, same in RATIOS if mine in medians and peer in medians
    ]


def read(file: Path) -> dict[str, Any]:
    if file.exists():
        return json.loads(file.read_text("utf-8"))
    return {
        "what": f"CPU seconds until the greedy policy's mean return is {GOAL:g} over 20 episodes of CartPole-v1 and "
                "again over 100 more; one thread, judging not counted. A run that never got there counts with "
                "its whole time.",
        "machine": {}, "cases": {}, "ratios": [],
    }


def write(file: Path, record: dict[str, Any]) -> None:
    """All or nothing: a run that is killed leaves the previous file."""
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    os.replace(part, file)


def print_tables(record: dict[str, Any]) -> None:
    entries = [(name, record["cases"][name]) for name in CASES if record["cases"].get(name, {}).get("runs")]
    if not entries:
        raise SystemExit("nothing is recorded yet")
    print(table([
        {"case": name, "median s": f"{e['summary']['median_s']:.2f}", "max s": f"{e['summary']['max_s']:.2f}",
         "min s": f"{e['summary']['min_s']:.2f}", "median steps": f"{e['summary']['median_steps']:.0f}",
         "solved": f"{e['summary']['solved']}/{e['summary']['seeds']}"}
        for name, e in entries
    ]))
    if record["ratios"]:
        print()
        print(table([
            {"ours": r["ours"], "peer": r["peer"], "times faster": f"{r['times_faster']:.1f}",
             "by settings": "-" if r["by_settings"] is None else f"{r['by_settings']:.1f}",
             "by code": "-" if r["by_code"] is None else f"{r['by_code']:.1f}"}
            for r in record["ratios"]
        ]))
        print("\nby settings: ours with the peer's settings, divided by ours; by code: the peer, divided by that")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "table", "cases"))
    parser.add_argument("--peers", type=Path, help="folder with Stable-Baselines3 and CleanRL")
    parser.add_argument("--only", help="names of cases, separated by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds of one run")
    parser.add_argument("--output", type=Path, default=RESULTS / "cartpole.json")
    arguments = parser.parse_args()
    if arguments.what == "cases":
        print("\n".join(f"{name:15s}  {case.words}" for name, case in CASES.items()))
        return
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
