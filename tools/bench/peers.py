"""Libraries of others that ``cartpole.py`` runs, unchanged: Stable-Baselines3, its JAX twin SBX, CleanRL.

Each import stands in the function that needs it: a process pays for the peer it runs and for no other.
"""

import sys
import types
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from judge import Judge


def run_sb3_ppo(seed: int, judge: Judge) -> None:
    """Stable-Baselines3's PPO with the zoo's settings for CartPole-v1."""
    from stable_baselines3 import PPO

    _zoo_ppo(PPO, seed, judge)


def run_sb3_dqn(seed: int, judge: Judge) -> None:
    """Stable-Baselines3's DQN with the zoo's settings for CartPole-v1."""
    from stable_baselines3 import DQN

    _zoo_dqn(DQN, seed, judge)


def run_sbx_ppo(seed: int, judge: Judge) -> None:
    """SBX's PPO with the same settings; it compiles its functions anew for every model."""
    from sbx import PPO

    _zoo_ppo(PPO, seed, judge)


def run_sbx_dqn(seed: int, judge: Judge) -> None:
    """SBX's DQN with the same settings as Stable-Baselines3's."""
    from sbx import DQN

    _zoo_dqn(DQN, seed, judge)


def _zoo_ppo(kind: Any, seed: int, judge: Judge) -> None:
    from stable_baselines3.common.env_util import make_vec_env

    model = kind(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed),
        seed=seed,
        device="cpu",
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: 0.001 * left,
        clip_range=lambda left: 0.2 * left,
    )
    _learn(model, 100_000, judge)


def _zoo_dqn(kind: Any, seed: int, judge: Judge) -> None:
    from stable_baselines3.common.env_util import make_vec_env

    model = kind(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=1, seed=seed),
        seed=seed,
        device="cpu",
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs=dict(net_arch=[256, 256]),
    )
    _learn(model, 50_000, judge)


def _learn(model: Any, total_steps: int, judge: Judge) -> None:
    """Train a model of Stable-Baselines3 or SBX; the judge looks at it whenever an update is done."""
    from stable_baselines3.common.callbacks import BaseCallback

    def act(observations: np.ndarray) -> np.ndarray:
        rows = np.zeros((100, 4), np.float32)  # always as many: SBX would compile for every other number
        rows[: len(observations)] = observations
        return model.predict(rows, deterministic=True)[0][: len(observations)]

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
    import torch

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

    import gymnasium

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
    return {
        "gym": gym,
        "gym.wrappers": wrappers,
        "gym.vector": vector,
        "gym.spaces": spaces,
        "distutils": module("distutils", util=words),
        "distutils.util": words,
    }  # gone from Python 3.12
