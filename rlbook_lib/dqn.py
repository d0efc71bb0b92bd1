"""Deep Q-learning: targets, loss, target networks, double DQN, training (chapter 5).

In order: the config; the targets and the loss as pure functions; the target network; n-step transitions; the
training loop; and two things that the chapter looks at by the side, the bias of a maximum and a quadratic
``Q`` for continuous actions.
"""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from rlbook_lib.devices import choose_device
from rlbook_lib.environments import Step, VectorEnvironment, is_ready_made, vectorize
from rlbook_lib.experience import check_count, check_flag, check_positive, linear_decay
from rlbook_lib.mdp import check_seed, check_unit_interval
from rlbook_lib.networks import ACTIVATIONS, QNetwork, check_sizes
from rlbook_lib.replay_buffer import Batch, ReplayBuffer
from rlbook_lib.training import (
    State, TrainingResult, Update, check_state, config_dict, pack, rng_state, set_rng_state, train, unpack,
)

Array = Any  # a numpy array or a torch tensor


# ---------------------------------------------------------------------- the config

@dataclass(frozen=True)
class DQNConfig:
    """Settings of DQN. The defaults solve CartPole-v1 with double DQN, mostly in two or three seconds.

    Args:
        total_steps: environment steps, all copies together; 10^4 to 10^7.
        copies: environments side by side, where the environment is given by its id; 1 to 64.
        batch_size: transitions in an update; 32 to 512.
        learning_rate: of Adam; 1e-4 to 5e-3.
        gamma: discount, in [0, 1]; 0.9 to 0.999.
        n_step: rewards before the bootstrap; 1 to 10.
        target: "ema" moves the target network a little after each update, "copy" replaces it now and then.
        tau: how much of the online network the moving target takes in; 0.005 to 0.1.
        copy_interval: updates between two copies; 100 to 10 000.
        buffer_capacity: transitions kept; 10^4 to 10^6.
        double: choose the next action with the online network, value it with the target network.
        loss: "huber" or "squared".
        hidden: sizes of the hidden layers.
        activation: "relu" or "tanh".
        epsilon_start: chance of a random action at first.
        epsilon_end: the same at the end; 0.01 to 0.1.
        epsilon_steps: environment steps in which it falls from the first to the last.
        learning_starts: environment steps before the first update.
        steps_per_update: steps of the vector environment between updates; 1 to 4.
        return_scale: the network predicts returns divided by this; the size of typical returns.
        max_gradient_norm: longer gradients are cut to this length; inf cuts none.
        device: where the networks and the buffer are: "cpu", "cuda" or "auto".
    """

    total_steps: int = 120_000
    copies: int = 16
    batch_size: int = 512
    learning_rate: float = 2.5e-3
    gamma: float = 0.99
    n_step: int = 8
    target: str = "ema"
    tau: float = 0.1
    copy_interval: int = 100
    buffer_capacity: int = 8192
    double: bool = True
    loss: str = "huber"
    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 4000
    learning_starts: int = 1000
    steps_per_update: int = 2
    return_scale: float = 100.0
    max_gradient_norm: float = math.inf
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("total_steps", "copies", "batch_size", "n_step", "copy_interval", "buffer_capacity",
                     "epsilon_steps", "learning_starts", "steps_per_update"):
            check_count(name, getattr(self, name))
        for name in ("gamma", "epsilon_start", "epsilon_end"):
            check_unit_interval(name, getattr(self, name))
        _check_tau(self.tau)
        for name in ("learning_rate", "return_scale"):
            check_positive(name, getattr(self, name))
        if self.max_gradient_norm != math.inf:
            check_positive("max_gradient_norm", self.max_gradient_norm)
        for name, words in (("target", TARGETS), ("loss", LOSSES), ("activation", ACTIVATIONS)):
            _check_word(name, getattr(self, name), words)
        check_flag("double", self.double)
        object.__setattr__(self, "hidden", check_sizes("hidden", self.hidden))
        if self.learning_starts >= self.total_steps:
            raise ValueError(f"learning_starts is {self.learning_starts}; expected less than total_steps, "
                             f"which is {self.total_steps}")


# ---------------------------------------------------------------------- targets

def dqn_targets(rewards: Tensor, next_q: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """What DQN trains towards: ``y = r + gamma (1 - terminated) max_a Q_target(s', a)``.

    Equation: eq-dqn-target

    No gradient flows through a target. A truncated episode is not a terminated one: its next state has a
    value.

    Args:
        rewards: (B,), reward units.
        next_q: (B, A), the target network's action values of the next states.
        terminated: (B,), 0 or 1; the next state is an end and worth 0.
        gamma: discount, in [0, 1].

    Returns:
        (B,).

    Raises:
        ValueError: shapes that do not fit, an empty batch, a number that is not finite, a flag that is not 0
            or 1, gamma outside [0, 1].

    Source: Mnih et al. (2015), equation 2 and algorithm 1.
    """
    gamma, rewards = check_unit_interval("gamma", gamma), _vector("rewards", rewards)
    flags = _flags(terminated, rewards)
    return _targets(rewards, gamma * (1 - flags), _table("next_q", next_q, rewards))


def double_dqn_targets(rewards: Tensor, next_q_online: Tensor, next_q_target: Tensor, terminated: Tensor,
                       gamma: float) -> Tensor:
    """Double DQN: the online network picks the next action, the target network says what it is worth.

    Equation: eq-double-dqn-target

    Args:
        rewards: (B,), reward units.
        next_q_online: (B, A), the online network's action values of the next states.
        next_q_target: (B, A), the target network's.
        terminated: (B,), 0 or 1; the next state is an end and worth 0.
        gamma: discount, in [0, 1].

    Returns:
        (B,).

    Raises:
        ValueError: shapes that do not fit, an empty batch, a number that is not finite, a flag that is not 0
            or 1, gamma outside [0, 1].

    Source: van Hasselt, Guez & Silver (2016), equation 4.
    """
    gamma, rewards = check_unit_interval("gamma", gamma), _vector("rewards", rewards)
    flags = _flags(terminated, rewards)
    online, target = (_table(name, table, rewards) for name, table in
                      (("next_q_online", next_q_online), ("next_q_target", next_q_target)))
    if online.shape != target.shape:
        raise ValueError(f"next_q_online and next_q_target must have equal shapes, got {tuple(online.shape)} "
                         f"and {tuple(target.shape)}")
    return _targets(rewards, gamma * (1 - flags), target, online)


def n_step_targets(returns: Tensor, discounts: Tensor, next_q: Tensor, next_q_online: Tensor | None = None
                   ) -> Tensor:
    """``y = G + discount * max_a Q_target(s', a)``: s' is up to n steps later, G holds the rewards before.

    Equation: eq-dqn-n-step

    With m rewards in the window, ``G = r_0 + gamma r_1 + ... + gamma^(m-1) r_(m-1)``. The discount is
    ``gamma^m``, or 0 where the window ends in a terminal state. ``NStepWindow`` makes both.

    Args:
        returns: (B,) discounted sums of the rewards in the windows.
        discounts: (B,) in [0, 1].
        next_q: (B, A), the target network's action values where the windows end.
        next_q_online: (B, A), the online network's there; if given, it picks the action (double DQN).

    Returns:
        (B,).

    Raises:
        ValueError: shapes that do not fit, an empty batch, a number that is not finite or out of range.

    Source: Sutton & Barto (2018), section 7.1; Hessel et al. (2018).
    """
    returns, discounts = _vector("returns", returns), _vector("discounts", discounts)
    if discounts.shape != returns.shape or discounts.min() < 0 or discounts.max() > 1:
        raise ValueError(f"discounts must be {tuple(returns.shape)} numbers in [0, 1], got {discounts}")
    online = None if next_q_online is None else _table("next_q_online", next_q_online, returns)
    return _targets(returns, discounts, _table("next_q", next_q, returns), online)


def _targets(returns: Tensor, discounts: Tensor, next_q: Tensor, next_q_online: Tensor | None = None
             ) -> Tensor:
    """All targets of this module, unchecked; (B,), without gradient."""
    with torch.no_grad():
        if next_q_online is None:
            next_values = next_q.amax(1)
        else:
            next_values = next_q.gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)
        return returns + discounts * next_values


# ---------------------------------------------------------------------- the loss

def huber_loss(errors: Tensor, delta: float = 1.0) -> Tensor:
    """Half the square for small errors, a straight line beyond: gradients stay within ``[-delta, delta]``.

    Equation: eq-huber

    ``1/2 e^2`` where ``|e| <= delta``, else ``delta (|e| - delta / 2)``: the two meet with equal slopes.

    Args:
        errors: any shape.
        delta: where the line begins, above 0 and finite.

    Returns:
        The same shape.

    Raises:
        ValueError: an error that is not finite, or delta not positive.

    Source: Huber (1964).
    """
    delta = check_positive("delta", delta)
    errors = torch.as_tensor(errors)
    if not bool(errors.isfinite().all()):
        raise ValueError(f"errors must be finite, got {errors}")
    size = errors.abs()
    return torch.where(size <= delta, 0.5 * errors * errors, delta * (size - 0.5 * delta))


def dqn_loss(q_values: Tensor, actions: Tensor, targets: Tensor, kind: str = "huber") -> Tensor:
    """How far the values of the actions taken are from their targets: half the mean square, or Huber's form.

    Equation: eq-dqn-loss

    Targets are constants. The actions not taken have no part in the loss.

    Args:
        q_values: (B, A), the online network's, with gradients.
        actions: (B,) integers.
        targets: (B,).
        kind: "huber" (delta 1) or "squared".

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that do not fit, an empty batch, a number that is not finite, actions out of range,
            an unknown kind.

    Source: Mnih et al. (2015), equation 2.
    """
    _check_word("kind", kind, LOSSES)
    targets = _vector("targets", targets)
    q_values, actions = _table("q_values", q_values, targets), torch.as_tensor(actions)
    if actions.shape != targets.shape or actions.dtype == torch.bool or actions.is_floating_point() \
            or actions.min() < 0 or actions.max() >= q_values.shape[1]:
        raise ValueError(f"actions must be {tuple(targets.shape)} integers from 0 to "
                         f"{q_values.shape[1] - 1}, got {actions}")
    return _loss(q_values, actions.long(), targets, kind)


def _loss(q_values: Tensor, actions: Tensor, targets: Tensor, kind: str) -> Tensor:
    """``dqn_loss``, unchecked."""
    chosen = q_values.gather(1, actions.unsqueeze(1)).squeeze(1)              # (B,)
    return LOSSES[kind](chosen, targets.detach())


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "huber": nn.functional.smooth_l1_loss,
    "squared": lambda chosen, targets: 0.5 * nn.functional.mse_loss(chosen, targets),
}
TARGETS = ("ema", "copy")


# ---------------------------------------------------------------------- the target network

def copy_target(online: nn.Module, target: nn.Module) -> None:
    """Make the target network equal to the online network.

    Args:
        online: the network that learns.
        target: a network of the same shape; changed in place.

    Raises:
        ValueError: networks of different shapes.

    Source: Mnih et al. (2015), algorithm 1.
    """
    ema_update(online, target, 1.0)


def ema_update(online: nn.Module, target: nn.Module, tau: float) -> None:
    """Move the target network a little: ``theta' <- (1 - tau) theta' + tau theta``.

    Equation: eq-ema

    Args:
        online: the network that learns.
        target: a network of the same shape; changed in place.
        tau: in (0, 1]; 1 copies.

    Raises:
        ValueError: tau out of range, or networks of different shapes.

    Source: Lillicrap et al. (2016); as a teacher: Tarvainen & Valpola (2017).
    """
    tau = _check_tau(tau)
    theirs: list[Tensor] = list(online.parameters())
    ours: list[Tensor] = list(target.parameters())
    if [p.shape for p in theirs] != [p.shape for p in ours]:
        raise ValueError("online and target must have parameters of the same shapes")
    _lerp(ours, theirs, tau)


@torch.no_grad()
def _lerp(target: list[Tensor], online: list[Tensor], tau: float) -> None:
    """``ema_update`` on lists of parameters, unchecked."""
    if tau == 1.0:
        torch._foreach_copy_(target, online)          # exact, which the line below need not be
    else:
        torch._foreach_lerp_(target, online, tau)


def ema_weights(steps: int, tau: float) -> NDArray[np.float64]:
    """What a moving target consists of: its weights after so many updates, in closed form.

    Equation: eq-ema-closed-form

    ``theta'_t = (1 - tau)^t theta'_0 + sum over k = 1..t of tau (1 - tau)^(t-k) theta_k``.

    Args:
        steps: t, number of updates, 0 or more.
        tau: in (0, 1].

    Returns:
        (t + 1,): entry 0 is the weight of where the target started, entry k that of the online network at
        update k. They sum to one.

    Raises:
        ValueError: ``steps`` negative, or tau out of range.
        TypeError: ``steps`` is not an integer.

    Source: unrolling the recursion.
    """
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)):
        raise TypeError(f"steps must be an integer of at least 0, got {steps!r}")
    if steps < 0:
        raise ValueError(f"steps must be an integer of at least 0, got {steps}")
    tau = _check_tau(tau)
    weights = tau * (1 - tau) ** np.arange(steps, -1.0, -1.0)                 # entry k: tau (1 - tau)^(t - k)
    weights[0] = (1 - tau) ** steps
    return weights


# ---------------------------------------------------------------------- n-step transitions

class NStepWindow:
    """Turns single steps into transitions of up to n steps, in N copies at once.

    In every copy up to n windows are open, one begun at each of the last n steps. A window closes when it
    holds n rewards, or when its episode ends; an end closes all windows of its copy. The closed window
    becomes one transition: its first observation and action, its discounted rewards, the real last
    observation, and the discount ``gamma^m`` for m rewards, 0 after a termination. A truncation leaves the
    discount as it is.

    Args:
        copies: N, at least 1.
        observation_size: d.
        n: rewards in a full window, at least 1.
        gamma: discount, in [0, 1].

    Raises:
        ValueError: a number out of range.
    """

    def __init__(self, copies: int, observation_size: int, n: int, gamma: float) -> None:
        self.n, self.gamma = check_count("n", n), check_unit_interval("gamma", gamma)
        self.slot = 0                                            # where the next window begins
        self.observations = np.zeros((n, copies, observation_size), dtype=np.float32)
        self.actions = np.zeros((n, copies), dtype=np.int64)
        self.returns, self.discounts = np.zeros((2, n, copies))
        self.open = np.zeros((n, copies), dtype=bool)

    def push(self, observations: NDArray[Any], actions: NDArray[Any], step: Step
             ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Take in one step of all copies.

        Args:
            observations: (N, d), where the actions were taken.
            actions: (N,).
            step: what came of it.

        Returns:
            The transitions that this step completes: observations (m, d), actions (m,), returns (m,), next
            observations (m, d), discounts (m,); what ``ReplayBuffer.add`` takes.
        """
        new, self.slot = self.slot, (self.slot + 1) % self.n     # self.slot is now the oldest window
        self.observations[new], self.actions[new] = observations, actions
        self.returns[new], self.discounts[new], self.open[new] = 0.0, 1.0, True
        self.returns += self.discounts * step.rewards
        self.discounts *= self.gamma

        closing = self.open & (step.terminated | step.truncated)              # (n, N)
        closing[self.slot] = self.open[self.slot]
        self.open ^= closing
        window, copy_ = closing.nonzero()                                     # (m,) each
        discounts = self.discounts[window, copy_] * ~step.terminated[copy_]
        return (self.observations[window, copy_], self.actions[window, copy_], self.returns[window, copy_],
                step.next_observations[copy_], discounts)

    def state(self) -> State:
        """The open windows, as tensors.

        Returns:
            Tensors and plain data, copied.
        """
        return {"slot": self.slot, **{name: torch.tensor(getattr(self, name)) for name in self._arrays}}

    def load_state(self, state: State) -> None:
        """Go on from where ``state`` was taken.

        Args:
            state: from ``state()`` of a window of the same size.

        Raises:
            ValueError: a state of another size.
        """
        ours, theirs = self.observations.shape, tuple(state["observations"].shape)
        if ours != theirs:
            raise ValueError(f"state has windows (n, copies, d) = {theirs}, expected {ours}")
        self.slot = state["slot"]
        for name in self._arrays:
            getattr(self, name)[:] = state[name].numpy()

    _arrays = ("observations", "actions", "returns", "discounts", "open")


# ---------------------------------------------------------------------- training

class _Learner:
    """Everything that DQN carries from one update to the next."""

    def __init__(self, environments: VectorEnvironment, config: DQNConfig, seed: int) -> None:
        actions = environments.action_space
        if not isinstance(actions, Discrete):
            raise ValueError("DQN compares finitely many actions: it needs a Discrete action space, but that "
                             f"of {environments.name} is {actions}")
        self.config, self.seed, self.environments = config, seed, environments
        self.device = choose_device(config.device)
        network_seed, buffer_seed, action_seed = _seeds(seed, 3)
        size, n_actions = environments.observation_size, int(actions.n)
        self.online = QNetwork(size, n_actions, hidden=config.hidden, activation=config.activation,
                               seed=network_seed, scale=config.return_scale).to(self.device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.parameters: list[Tensor] = list(self.online.parameters())
        self.target_parameters: list[Tensor] = list(self.target.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.learning_rate, fused=True)
        self.buffer = ReplayBuffer(config.buffer_capacity, size, seed=buffer_seed, device=self.device)
        self.window = NStepWindow(environments.copies, size, config.n_step, config.gamma)
        self.rng = np.random.default_rng(action_seed)
        self.epsilon = linear_decay(config.epsilon_start, config.epsilon_end, config.epsilon_steps)
        self.update = self.env_steps = 0

    def act(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Epsilon-greedy actions, (N,)."""
        epsilon = self.epsilon(self.env_steps + 1)
        return self.online.act(observations, greedy=False, rng=self.rng, epsilon=epsilon)

    def remember(self, observations: NDArray[Any], actions: NDArray[Any], step: Step) -> None:
        """Put the transitions that are now complete into the buffer. Returns are stored scaled."""
        starts, taken, returns, ends, discounts = self.window.push(observations, actions, step)
        self.buffer.add(starts, taken, returns / self.config.return_scale, ends, discounts)
        self.env_steps += len(actions)

    def learn(self, batch: Batch) -> dict[str, float]:
        """One step of the optimizer; all values are in units of ``return_scale``."""
        config = self.config
        with torch.no_grad():
            next_q = self.target.network(batch.next_observations)             # (B, A)
            next_q_online = self.online.network(batch.next_observations) if config.double else None
        targets = _targets(batch.returns, batch.discounts, next_q, next_q_online)
        loss = _loss(self.online.network(batch.observations), batch.actions, targets, config.loss)
        self.optimizer.zero_grad()
        loss.backward()
        if config.max_gradient_norm < math.inf:
            nn.utils.clip_grad_norm_(self.parameters, config.max_gradient_norm)
        self.optimizer.step()
        self.update += 1
        return {"loss": loss.item(), "target_value": targets.mean().item() * config.return_scale}

    def move_target(self) -> None:
        """Let the target network follow: a little each time, or all the way now and then."""
        if self.config.target == "ema":
            _lerp(self.target_parameters, self.parameters, self.config.tau)
        elif self.update % self.config.copy_interval == 0:
            _lerp(self.target_parameters, self.parameters, 1.0)

    def record(self, metrics: dict[str, float]) -> Update:
        """What the generator yields."""
        returns, lengths = self.environments.pop_episodes()
        metrics["epsilon"] = self.epsilon(self.env_steps)
        if returns.size:
            metrics |= {"episode_return": float(returns.mean()), "episode_length": float(lengths.mean())}
        return Update(self.update, self.env_steps, metrics, self.online, self.state)

    def state(self) -> State:
        """Tensors and plain data, copied."""
        return {
            "config": config_dict(self.config), "seed": self.seed, "update": self.update,
            "env_steps": self.env_steps, "online": pack(self.online), "target": pack(self.target),
            "optimizer": pack(self.optimizer), "buffer": self.buffer.state(), "window": self.window.state(),
            "rng": rng_state(self.rng), "environments": self.environments.state(),
        }

    def load_state(self, state: State) -> None:
        """Go on from where ``state`` was taken."""
        check_state(state, self.config, self.seed)
        for name in ("environments", "buffer", "window"):        # the environments say whether they are others
            getattr(self, name).load_state(state[name])
        for name in ("online", "target", "optimizer"):
            unpack(getattr(self, name), state[name])
        self.update, self.env_steps = state["update"], state["env_steps"]
        set_rng_state(self.rng, state["rng"])


def iterate_dqn(env: Any, config: DQNConfig | None = None, *, seed: int, state: State | None = None
                ) -> Iterator[Update]:
    """DQN: act epsilon-greedily, remember, train on random memories. Yields after each update.

    Args:
        env: a Gymnasium id, or a vector environment; with Discrete actions.
        config: settings; None takes the defaults.
        seed: a non-negative integer.
        state: of an ``Update`` to go on from; the rest of the run is the same, bit for bit.

    Returns:
        A generator of records; metrics: "loss" (in units of ``return_scale``), "target_value" (mean target,
        reward units), "epsilon", and "episode_return" and "episode_length" (means) where episodes ended.

    Raises:
        ValueError: an action space that is not Discrete, a NaN from the environment, a negative seed, or a
            state of other settings or of another environment.
        TypeError: an argument of the wrong type.

    Source: Mnih et al. (2015), algorithm 1; van Hasselt, Guez & Silver (2016).
    """
    config = DQNConfig() if config is None else config
    if not isinstance(config, DQNConfig):
        raise TypeError(f"config must be a DQNConfig, got {config!r}")
    return _iterate(env, config, check_seed(seed), state)


def _iterate(env: Any, config: DQNConfig, seed: int, state: State | None) -> Iterator[Update]:
    environments = vectorize(env, config.copies, seed=seed)
    try:
        learner = _Learner(environments, config, seed)
        if state is None:
            observations = environments.reset()
        else:
            learner.load_state(state)
            observations = environments.observations
            if learner.env_steps >= config.total_steps:  # the run had ended
                yield Update(learner.update, learner.env_steps, {}, learner.online, learner.state)
        while learner.env_steps < config.total_steps:
            for _ in range(config.steps_per_update):
                actions = learner.act(observations)
                step = environments.step(actions)
                learner.remember(observations, actions, step)
                observations = step.observations
            if learner.env_steps >= config.learning_starts and len(learner.buffer):
                metrics = learner.learn(learner.buffer.sample(config.batch_size))
                learner.move_target()
                yield learner.record(metrics)
    finally:
        if not is_ready_made(env):
            environments.close()


def train_dqn(
    env: Any, config: DQNConfig | None = None, *, seed: int, state: State | str | Path | None = None,
    progress: bool = False, checkpoint: str | Path | None = None, checkpoint_every: int = 100,
    stop: Callable[[Update], bool] | None = None,
) -> TrainingResult:
    """Run ``iterate_dqn`` out, or until ``stop`` says so.

    Args:
        env: a Gymnasium id, or a vector environment; with Discrete actions.
        config: settings; None takes the defaults.
        seed: a non-negative integer.
        state: a state or a checkpoint file to go on from; None goes on from ``checkpoint`` if it is there.
        progress: show a progress bar.
        checkpoint: file to save the state in.
        checkpoint_every: in updates.
        stop: called with each record; True ends the run.

    Returns:
        The policy, the curves, and the state.

    Raises:
        ValueError: as ``iterate_dqn``; or the state was made with another config or seed.
        TrainingError: a metric or a parameter is NaN.

    Source: as ``iterate_dqn``.
    """
    config = DQNConfig() if config is None else config
    return train(iterate_dqn, env, config, seed=seed, state=state, progress=progress, checkpoint=checkpoint,
                 checkpoint_every=checkpoint_every, stop=stop)


# ---------------------------------------------------------------------- the bias of a maximum

def maximization_bias(outcomes: ArrayLike, probabilities: ArrayLike | None = None) -> float:
    """How much the largest of several noisy estimates overstates: ``E[max_a X_a] - max_a E[X_a]``, 0 or more.

    Equation: eq-maximization-bias

    Exact, for independent estimates with finitely many outcomes: the chance that all estimates are at most v
    is the product of their chances.

    Args:
        outcomes: (A, K), the K values that the estimate of each action can take.
        probabilities: (A, K), rows that sum to one; None makes the K values equally likely.

    Returns:
        The bias, in the units of the outcomes.

    Raises:
        ValueError: a wrong shape, a number that is not finite, or rows that are not distributions.

    Source: Thrun & Schwartz (1993); van Hasselt (2010).
    """
    x, p = _checked_outcomes(outcomes, probabilities)
    values = np.unique(x)                                                     # (V,) sorted
    at_most = (p[:, :, None] * (x[:, :, None] <= values)).sum(1).prod(0)      # (V,) P(max <= v)
    mean_of_maximum = (values * np.diff(at_most, prepend=0.0)).sum()
    return float(mean_of_maximum - (p * x).sum(1).max())


def double_estimator_bias(outcomes: ArrayLike, probabilities: ArrayLike | None = None) -> float:
    """The same when one set of estimates picks the action and an independent one values it; 0 or less.

    ``E[E[X_(a*)]] - max_a E[X_a]``, where a* is the first best action of the set that picks.

    Args:
        outcomes: (A, K), the K values that the estimate of each action can take.
        probabilities: (A, K), rows that sum to one; None makes the K values equally likely.

    Returns:
        The bias, in the units of the outcomes.

    Raises:
        ValueError: a wrong shape, a number that is not finite, or rows that are not distributions.

    Source: van Hasselt (2010).
    """
    x, p = _checked_outcomes(outcomes, probabilities)
    picked = np.empty(len(x))                                                 # (A,) P(a* = a)
    for a, (own, chance) in enumerate(zip(x, p)):
        below = (p[:a, :, None] * (x[:a, :, None] < own)).sum(1).prod(0)      # (K,) the first best wins a tie
        not_above = (p[a + 1:, :, None] * (x[a + 1:, :, None] <= own)).sum(1).prod(0)
        picked[a] = (chance * below * not_above).sum()
    means = (p * x).sum(1)
    return float(picked @ means - means.max())


def _checked_outcomes(outcomes: ArrayLike, probabilities: ArrayLike | None
                      ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    try:
        x = np.asarray(outcomes, dtype=float)
    except (TypeError, ValueError):
        x = np.zeros(0)
    if x.ndim != 2 or x.size == 0 or not np.isfinite(x).all():
        raise ValueError(f"outcomes must be a finite table (actions, outcomes), got {outcomes!r}")
    p = np.full(x.shape, 1 / x.shape[1]) if probabilities is None else np.asarray(probabilities, dtype=float)
    if p.shape != x.shape or not (p >= 0).all() or not np.allclose(p.sum(1), 1.0):
        raise ValueError(f"probabilities must be {x.shape} rows that sum to one, got {probabilities!r}")
    return x, p


# ---------------------------------------------------------------------- continuous actions

def naf_q(value: Array, mean: Array, precision: Array, actions: Array) -> Array:
    """A ``Q`` that is a parabola in the action: its maximum is known without a search.

    Equation: eq-naf

    ``Q(s, a) = V(s) - 1/2 (a - mu(s))^T P(s) (a - mu(s))`` with P positive definite: the best action is
    mu(s), and its value V(s).

    Args:
        value: V(s), (n,).
        mean: mu(s), (n, d), action units.
        precision: P(s), (n, d, d), symmetric and positive definite.
        actions: (n, d), action units. All four are numpy arrays, or all four tensors.

    Returns:
        (n,) action values.

    Raises:
        ValueError: shapes that do not fit, a number that is not finite, or a precision that is not symmetric
            and positive definite.
        TypeError: neither all arrays nor all tensors.

    Source: Gu, Lillicrap, Sutskever & Levine (2016), equations 2 and 3.
    """
    _check_naf(value, mean, precision, actions)
    offset = actions - mean                                                   # (n, d)
    return value - 0.5 * ((precision @ offset[..., None])[..., 0] * offset).sum(-1)


def _check_naf(*arguments: Array) -> None:
    names = ("value", "mean", "precision", "actions")
    if not any(all(isinstance(a, kind) for a in arguments) for kind in (np.ndarray, Tensor)):
        raise TypeError(f"{', '.join(names)} must be all numpy arrays or all tensors, got "
                        f"{', '.join(type(a).__name__ for a in arguments)}")
    arrays = [np.asarray(a.detach().cpu() if isinstance(a, Tensor) else a) for a in arguments]
    mean, precision = arrays[1], arrays[2]
    n, d = mean.shape if mean.ndim == 2 else (-1, -1)
    for name, array, shape in zip(names, arrays, ((n,), (n, d), (n, d, d), (n, d))):
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(f"{name} has shape {array.shape}, mean {mean.shape}; expected finite numbers, "
                             "value (n,), mean (n, d), precision (n, d, d), actions (n, d)")
    if not np.allclose(precision, np.swapaxes(precision, 1, 2)) or (np.linalg.eigvalsh(precision) <= 0).any():
        raise ValueError("precision must be symmetric and positive definite")


# ---------------------------------------------------------------------- checks

def _seeds(seed: int, count: int) -> list[int]:
    """Independent seeds made from one."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(count)]


def _as_tensor(name: str, values: Any) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a tensor, got {values!r}") from None


def _vector(name: str, values: Tensor) -> Tensor:
    values = _as_tensor(name, values)
    if values.ndim != 1 or values.numel() == 0 or not bool(values.isfinite().all()):
        raise ValueError(f"{name} must be (B,) finite numbers, B at least 1, got {values}")
    return values if values.is_floating_point() else values.to(torch.get_default_dtype())


def _table(name: str, values: Tensor, like: Tensor) -> Tensor:
    values = _as_tensor(name, values)
    if values.ndim != 2 or len(values) != len(like) or values.shape[1] == 0 \
            or not bool(values.isfinite().all()):
        raise ValueError(f"{name} must be ({len(like)}, A) finite numbers, got shape {tuple(values.shape)}: "
                         f"{values}")
    return values if values.is_floating_point() else values.to(like.dtype)


def _flags(values: Tensor, like: Tensor) -> Tensor:
    values = _as_tensor("terminated", values)
    if values.shape != like.shape or not bool(((values == 0) | (values == 1)).all()):
        raise ValueError(f"terminated must be {tuple(like.shape)} flags, 0 or 1, got {values}")
    return values.to(like.dtype)


def _check_tau(tau: float) -> float:
    if isinstance(tau, bool) or not isinstance(tau, numbers.Real) or not 0 < tau <= 1:
        raise ValueError(f"tau must be in (0, 1], got {tau!r}")
    return float(tau)


def _check_word(name: str, word: str, words: Any) -> None:
    if word not in list(words):
        raise ValueError(f"{name} must be one of {sorted(words)}, got {word!r}")
