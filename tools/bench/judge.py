"""Says when CartPole-v1 is solved, and how much CPU time a run took till then: for ``cartpole.py``."""

import time
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np

JUDGE_EVERY = 2048  # environment steps
GOAL = 475.0


class Solved(Exception):
    """Raised by the judge through the trainer: the goal is reached, or the run is over its limit."""


class Judge:
    """Keeps the time of one run, and says when it is over.

    A trainer calls the judge between updates with the number of steps so far and a function that maps
    observations (n, 4) to greedy actions (n,).

    Args:
        limit: CPU seconds after which a run is given up.
        from_start: count from the start of the process, so imports, too.
    """

    def __init__(self, limit: float, from_start: bool = False) -> None:
        self.limit, self.next, self.away = limit, JUDGE_EVERY, 0.0
        self.solved, self.env_steps, self.cpu_s = False, 0, 0.0
        self.begin = 0.0 if from_start else time.process_time()  # 0 is where the process began

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
    import gymnasium  # here, so that a peer that has no use for it does not pay for it

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
