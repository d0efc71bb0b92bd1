"""Deep Q-learning: targets, loss, target networks, double DQN, training (chapter 5).

In order: the settings; the targets and the loss, the update and the loop; the target network; n-step transitions;
and two things that the chapter looks at by the side, the bias of a maximum and a quadratic ``Q`` for continuous
actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Unpack

import numpy as np
import torch
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook_lib.checks import Array, Axes, Count, Environment, Flags, Floats, Natural, Positive, Range
from rlbook_lib.checks import Seed, UnitInterval
from rlbook_lib.checks import checked, library_of, settings
from rlbook_lib.devices import choose_device
from rlbook_lib.environments import VectorEnvironment, VectorStep, opened
from rlbook_lib.experience import linear_decay
from rlbook_lib.networks import QNetwork
from rlbook_lib.replay_buffer import Batch as ReplayBatch, ReplayBuffer
from rlbook_lib.training import Adam, Optimizer, Run, RunOptions, State, TrainingResult, Update
from rlbook_lib.training import frozen_copy, gradient_step, split_seed, train

Share = Annotated[float, Range(0, 1, open_low=True)]  # above 0, at most 1


@settings
class DQNConfig:
    """Settings of DQN. The defaults solve CartPole-v1 with double DQN, mostly in two or three seconds."""

    total_steps: Count = 120_000  #: environment steps, all copies together; 10^4 to 10^7
    copies: Count = 16  #: environments side by side, where the environment is given by its id; 1 to 64
    batch_size: Count = 512  #: transitions in an update; 32 to 512
    learning_rate: Positive = 2.5e-3  #: of Adam; 1e-4 to 5e-3
    gamma: UnitInterval = 0.99  #: discount; 0.9 to 0.999
    n_step: Count = 8  #: rewards before the bootstrap; 1 to 10
    target: Literal["ema", "copy"] = "ema"  #: the target network moves each time, or is replaced at times
    tau: Share = 0.1  #: how much of the online network the moving target takes in; 0.005 to 0.1
    copy_interval: Count = 100  #: updates between two copies; 100 to 10 000
    buffer_capacity: Count = 8192  #: transitions kept; 10^4 to 10^6
    double: bool = True  #: choose the next action with the online network, value it with the target network
    loss: Literal["huber", "squared"] = "huber"  #: Huber's form pulls no harder than 1, however large the error
    hidden: tuple[Count, ...] = (128,)  #: sizes of the hidden layers
    activation: Literal["tanh", "relu"] = "relu"  #: between the layers
    epsilon_start: UnitInterval = 1.0  #: chance of a random action at first
    epsilon_end: UnitInterval = 0.05  #: the same at the end; 0.01 to 0.1
    epsilon_steps: Count = 4000  #: environment steps in which it falls from the first to the last
    learning_starts: Count = 1000  #: environment steps before the first update; fewer than total_steps
    steps_per_update: Count = 2  #: steps of the vector environment between updates; 1 to 4
    return_scale: Positive = 100.0  #: the network predicts returns divided by this; the size of typical returns
    max_gradient_norm: Positive | None = None  #: longer gradients are cut to this length; None cuts none
    device: str = "cpu"  #: where the networks and the buffer are, "cpu", "cuda" or "auto"

    def check_together(self) -> None:
        """Learning starts before the run ends."""
        if self.learning_starts >= self.total_steps:
            raise ValueError(
                f"learning_starts is {self.learning_starts}; expected less than total_steps, {self.total_steps}"
            )


# ---------------------------------------------------------------------------------- targets, loss, update, loop


@checked(arrays="tensors")
def n_step_targets(
    returns: Floats[Array, "B"],
    discounts: Floats[Array, "B", Range(0, 1)],
    next_q: Floats[Array, "B A"],
    next_q_online: Floats[Array, "B A"] | None = None,
) -> Array:
    """``y = G + discount * max_a Q_target(s', a)``: s' is up to n steps later, G holds the rewards before.

    Equation: eq-dqn-n-step

    With m rewards in the window, ``G = r_0 + gamma r_1 + ... + gamma^(m-1) r_(m-1)``. The discount is
    ``gamma^m``, or 0 where the window ends in a terminal state. ``NStepWindow`` makes both. No gradient flows
    through a target.

    ``next_q`` are the target network's values where the windows end, ``next_q_online`` the online network's: if given,
    they pick the action (double DQN).

    Source: Sutton & Barto (2018), section 7.1; Hessel et al. (2018).
    """
    with torch.no_grad():
        if next_q_online is None:
            next_values = next_q.amax(1)
        else:
            next_values = next_q.gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)
        return returns + discounts * next_values


@checked(arrays="tensors")
def dqn_loss(
    q_values: Floats[Array, "B A"],
    actions: Annotated[Array, Axes("B", "integers", Range(0), below="A")],
    targets: Floats[Array, "B"],
    kind: Literal["huber", "squared"] = "huber",
) -> Array:
    """How far the values of the actions taken are from their targets: half the mean square, or Huber's form.

    Equation: eq-dqn-loss

    Targets are constants. The actions not taken have no part in the loss.

    Source: Mnih et al. (2015), equation 2.
    """
    errors = q_values.gather(1, actions.unsqueeze(1)).squeeze(1) - targets.detach()  # (B,)
    return huber_loss(errors).mean() if kind == "huber" else 0.5 * (errors**2).mean()


@checked
def dqn_update(
    online: QNetwork, target: QNetwork, optimizer: Optimizer, batch: ReplayBatch, config: DQNConfig
) -> dict[str, float]:
    """One step of the online network toward its targets; all values are in units of ``return_scale``.

    Returns:
        "loss", in units of ``return_scale``, and "target_value", the mean target in reward units.
    """
    with torch.no_grad():
        next_q = target.network(batch.next_observations)  # (B, A)
        next_q_online = online.network(batch.next_observations) if config.double else None
    targets = n_step_targets(batch.returns, batch.discounts, next_q, next_q_online)
    loss = dqn_loss(online.network(batch.observations), batch.actions, targets, config.loss)
    gradient_step(optimizer, loss, max_norm=config.max_gradient_norm)
    return {"loss": loss.item(), "target_value": targets.mean().item() * config.return_scale}


@dataclass
class DQNRun(Run):
    """A run of DQN."""

    environments: VectorEnvironment
    online: QNetwork
    target: QNetwork
    optimizer: Optimizer
    buffer: ReplayBuffer
    window: NStepWindow
    rng: np.random.Generator  #: of the actions


@checked
def iterate_dqn(
    env: Environment, config: DQNConfig | None = None, *, seed: Seed, state: State | None = None
) -> Iterator[Update]:
    """DQN: act epsilon-greedily, remember, train on random memories; arguments and errors as for every trainer (``training``).

    The environment has Discrete actions, and works with numpy.

    Yields:
        Records after each update; metrics: "loss" (in units of ``return_scale``), "target_value" (mean target, reward
        units), "epsilon", and "episode_return" and "episode_length" (means) where episodes ended.

    Source: Mnih et al. (2015), algorithm 1; van Hasselt, Guez & Silver (2016).
    """
    config = config or DQNConfig()
    network_seed, buffer_seed, action_seed = split_seed(seed, 3)
    with opened(env, config.copies, seed=seed) as environments:
        online = _q_network(environments, config, network_seed)
        target = frozen_copy(online)
        optimizer = Adam(online.parameters(), config.learning_rate)
        size, rng = environments.observation_size, np.random.default_rng(action_seed)
        buffer = ReplayBuffer(config.buffer_capacity, size, seed=buffer_seed, device=choose_device(config.device))
        window = NStepWindow(environments.copies, size, config.n_step, config.gamma)
        epsilon = linear_decay(config.epsilon_start, config.epsilon_end, config.epsilon_steps)
        run = DQNRun(config, seed, online, environments, online, target, optimizer, buffer, window, rng)
        yield from run.go_on(state)
        observations = environments.reset() if state is None else environments.observations
        steps = 0  # since the last update
        while run.env_steps + steps < config.total_steps:
            for _ in range(config.steps_per_update):
                chance = epsilon(run.env_steps + steps + 1)
                actions = online.act(observations, greedy=False, rng=rng, epsilon=chance)
                step = environments.step(actions)
                starts, taken, returns, ends, discounts = window.push(observations, actions, step)
                buffer.add(starts, taken, returns / config.return_scale, ends, discounts)
                observations, steps = step.observations, steps + len(actions)
            if run.env_steps + steps >= config.learning_starts and len(buffer):
                metrics = dqn_update(online, target, optimizer, buffer.sample(config.batch_size), config)
                if config.target == "ema":
                    ema_update(online, target, config.tau)
                elif (run.update + 1) % config.copy_interval == 0:
                    copy_target(online, target)
                metrics["epsilon"] = epsilon(run.env_steps + steps)
                yield run.record(metrics | environments.episode_metrics(), steps)
                steps = 0


def _q_network(environments: Any, config: DQNConfig, seed: int) -> QNetwork:
    actions = environments.action_space
    if environments.in_tensors:
        raise ValueError(
            f"env is {environments}, which works with tensors; expected an environment that works with numpy"
        )
    if not isinstance(actions, Discrete):
        raise ValueError(
            f"env is {environments.name} with the action space {actions}; expected a Discrete action "
            "space, for DQN compares finitely many actions"
        )
    network = QNetwork(
        environments.observation_size,
        int(actions.n),
        hidden=config.hidden,
        seed=seed,
        activation=config.activation,
        scale=config.return_scale,
    )
    return network.to(choose_device(config.device))


@checked
def train_dqn(
    env: Environment, config: DQNConfig | None = None, *, seed: Seed, **options: Unpack[RunOptions]
) -> TrainingResult:
    """Run ``iterate_dqn`` out; options as in ``training.RunOptions``, but ``checkpoint_every`` is 100 if not given."""
    options = {"checkpoint_every": 100, **options}
    return train(partial(iterate_dqn, env), config or DQNConfig(), seed=seed, **options)


# ---------------------------------------------------------------------------------------- targets of one step


@checked(arrays="tensors")
def dqn_targets(
    rewards: Floats[Array, "B"], next_q: Floats[Array, "B A"], terminated: Flags[Array, "B"], gamma: UnitInterval
) -> Array:
    """What DQN trains towards: ``y = r + gamma (1 - terminated) max_a Q_target(s', a)``.

    Equation: eq-dqn-target

    ``next_q`` are the target network's values of the next states; one that is ``terminated`` is worth 0. A truncated
    episode is not a terminated one: its next state has a value.

    Source: Mnih et al. (2015), equation 2 and algorithm 1.
    """
    return n_step_targets(rewards, gamma * (~terminated).to(rewards.dtype), next_q)


@checked(arrays="tensors")
def double_dqn_targets(
    rewards: Floats[Array, "B"],
    next_q_online: Floats[Array, "B A"],
    next_q_target: Floats[Array, "B A"],
    terminated: Flags[Array, "B"],
    gamma: UnitInterval,
) -> Array:
    """Double DQN: the online network picks the next action, the target network says what it is worth.

    Equation: eq-double-dqn-target

    Arguments as for ``dqn_targets``, with the values of both networks.

    Source: van Hasselt, Guez & Silver (2016), equation 4.
    """
    discounts = gamma * (~terminated).to(rewards.dtype)
    return n_step_targets(rewards, discounts, next_q_target, next_q_online)


@checked(arrays="tensors")
def huber_loss(errors: Floats[Array, "..."], delta: Positive = 1.0) -> Array:
    """Half the square for small errors, a straight line beyond: gradients stay within ``[-delta, delta]``.

    Equation: eq-huber

    ``1/2 e^2`` where ``|e| <= delta``, else ``delta (|e| - delta / 2)``: the two meet with equal slopes.

    Source: Huber (1964).
    """
    return nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=delta)  # in one kernel


# ------------------------------------------------------------------------------------------- the target network


@checked
def copy_target(online: nn.Module, target: nn.Module) -> None:
    """Make the target network equal to the online network, in place.

    Source: Mnih et al. (2015), algorithm 1.
    """
    ema_update(online, target, 1.0)


@checked
@torch.no_grad()
def ema_update(online: nn.Module, target: nn.Module, tau: Share) -> None:
    """Move the target network a little, in place: ``theta' <- (1 - tau) theta' + tau theta``; tau = 1 copies.

    Equation: eq-ema

    Source: Lillicrap et al. (2016); as a teacher: Tarvainen & Valpola (2017).
    """
    theirs: list[Tensor] = list(online.parameters())
    ours: list[Tensor] = list(target.parameters())
    if [p.shape for p in theirs] != [p.shape for p in ours]:
        raise ValueError("target has parameters of other shapes than online; expected the same shapes")
    if tau == 1.0:
        torch._foreach_copy_(ours, theirs)  # exact, which the line below need not be
    else:
        torch._foreach_lerp_(ours, theirs, tau)


@checked
def ema_weights(steps: Natural, tau: Share) -> NDArray[np.float64]:
    """What a moving target consists of: its weights after t updates, in closed form; (t + 1,), they sum to one.

    Equation: eq-ema-closed-form

    ``theta'_t = (1 - tau)^t theta'_0 + sum over k = 1..t of tau (1 - tau)^(t-k) theta_k``: entry 0 is the weight of
    where the target started, entry k that of the online network at update k.

    Source: unrolling the recursion.
    """
    weights = tau * (1 - tau) ** np.arange(steps, -1.0, -1.0)  # entry k: tau (1 - tau)^(t - k)
    weights[0] = (1 - tau) ** steps
    return weights


# ------------------------------------------------------------------------------------------- n-step transitions


class NStepWindow:
    """Turns single steps into transitions of up to n steps, in N copies at once.

    In every copy up to n windows are open, one begun at each of the last n steps. A window closes when it
    holds n rewards, or when its episode ends; an end closes all windows of its copy. The closed window
    becomes one transition: its first observation and action, its discounted rewards, the real last
    observation, and the discount ``gamma^m`` for m rewards, 0 after a termination. A truncation leaves the
    discount as it is.
    """

    @checked
    def __init__(self, copies: Count, observation_size: Count, n: Count, gamma: UnitInterval) -> None:
        self.n, self.gamma = n, gamma
        self.slot = 0  # where the next window begins
        self.observations = np.zeros((n, copies, observation_size), dtype=np.float32)
        self.actions = np.zeros((n, copies), dtype=np.int64)
        self.returns, self.discounts = np.zeros((2, n, copies))
        self.open = np.zeros((n, copies), dtype=bool)

    def push(
        self, observations: NDArray[Any], actions: NDArray[Any], step: VectorStep
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Take in one step of all copies: where they were (N, d), what they did (N,), and what came of it.

        The m transitions that this step completes come back, as columns: what ``ReplayBuffer.add`` takes.
        """
        new, self.slot = self.slot, (self.slot + 1) % self.n  # self.slot is now the oldest window
        self.observations[new], self.actions[new] = observations, actions
        self.returns[new], self.discounts[new], self.open[new] = 0.0, 1.0, True
        self.returns += self.discounts * step.rewards
        self.discounts *= self.gamma

        closing = self.open & (step.terminated | step.truncated)  # (n, N)
        closing[self.slot] = self.open[self.slot]
        self.open ^= closing
        window, copy_ = closing.nonzero()  # (m,) each
        discounts = self.discounts[window, copy_] * ~step.terminated[copy_]
        return (
            self.observations[window, copy_],
            self.actions[window, copy_],
            self.returns[window, copy_],
            step.next_observations[copy_],
            discounts,
        )

    def state(self) -> State:
        """The open windows, as tensors, copied."""
        return {"slot": self.slot, **{name: torch.tensor(getattr(self, name)) for name in self._arrays}}

    @checked
    def load_state(self, state: State) -> None:
        """Go on from where ``state`` was taken; ValueError if the sizes differ."""
        ours, theirs = self.observations.shape, tuple(state["observations"].shape)
        if ours != theirs:
            raise ValueError(f"state has windows (n, copies, d) = {theirs}; expected {ours}")
        self.slot = state["slot"]
        for name in self._arrays:
            getattr(self, name)[:] = state[name].numpy()

    _arrays = ("observations", "actions", "returns", "discounts", "open")


# ------------------------------------------------------------------------------------- the bias of a maximum


@checked
def maximization_bias(outcomes: Floats[Array, "A K"]) -> float:
    """How much the largest of several noisy estimates overstates: ``E[max_a X_a] - max_a E[X_a]``, 0 or more.

    Equation: eq-maximization-bias

    Exact, for independent estimates, each with K equally likely ``outcomes``: the chance that all estimates are at
    most v is the product of their chances.

    Source: Thrun & Schwartz (1993); van Hasselt (2010).
    """
    x, p = outcomes, 1 / outcomes.shape[1]
    values = np.unique(x)  # (V,) sorted
    at_most = (p * (x[:, :, None] <= values)).sum(1).prod(0)  # (V,) P(max <= v)
    mean_of_maximum = (values * np.diff(at_most, prepend=0.0)).sum()
    return float(mean_of_maximum - (p * x).sum(1).max())


@checked
def double_estimator_bias(outcomes: Floats[Array, "A K"]) -> float:
    """The same when one set of estimates picks the action and an independent one values it; 0 or less.

    ``E[E[X_(a*)]] - max_a E[X_a]``, where a* is the first best action of the set that picks.

    Source: van Hasselt (2010).
    """
    x, p = outcomes, 1 / outcomes.shape[1]
    picked = np.empty(len(x))  # (A,) P(a* = a)
    for a, own in enumerate(x):
        below = (p * (x[:a, :, None] < own)).sum(1).prod(0)  # (K,) the first best wins a tie
        not_above = (p * (x[a + 1 :, :, None] <= own)).sum(1).prod(0)
        picked[a] = (p * below * not_above).sum()
    means = (p * x).sum(1)
    return float(picked @ means - means.max())


# ------------------------------------------------------------------------------------------ continuous actions


@checked(arrays="either")
def naf_q(
    value: Floats[Array, "n"],
    mean: Floats[Array, "n d"],
    precision: Floats[Array, "n d d"],
    actions: Floats[Array, "n d"],
) -> Array:
    """A ``Q`` that is a parabola in the action: its maximum is known without a search.

    Equation: eq-naf

    ``Q(s, a) = V(s) - 1/2 (a - mu(s))^T P(s) (a - mu(s))`` with P positive definite: the best action is
    mu(s), and its value V(s).

    Raises:
        ValueError: a precision that is not symmetric and positive definite.

    Source: Gu, Lillicrap, Sutskever & Levine (2016), equations 2 and 3.
    """
    library = library_of(precision)
    symmetric = library.allclose(precision, precision.swapaxes(1, 2))
    if not symmetric or bool((library.linalg.eigvalsh(precision) <= 0).any()):
        raise ValueError("precision holds other matrices; expected symmetric and positive definite ones")
    offset = actions - mean  # (n, d)
    return value - 0.5 * ((precision @ offset[..., None])[..., 0] * offset).sum(-1)
