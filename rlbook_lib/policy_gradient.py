"""Policy gradients in training: the loss, REINFORCE, A2C (chapter 6).

The loss is the one whose gradient is the estimate of ``gradient_estimators``, where the formulas and the weights Psi_t
are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rlbook_lib.checks import Array, Count, Environment, Flags, Floats, NotNegative, Positive, Seed
from rlbook_lib.checks import UnitInterval, Values
from rlbook_lib.checks import checked, settings
from rlbook_lib.gradient_estimators import psi_weights
from rlbook_lib.networks import ValueNetwork
from rlbook_lib.returns import normalize_advantages
from rlbook_lib.rollout import Actors, Collector, Rollout, flatten, open_actors, value_estimates
from rlbook_lib.training import Adam, Optimizer, ReturnScale, Run, RunOptions, State, TrainingResult, Update
from rlbook_lib.training import gradient_step, train

# --------------------------------------------------------------------------------------------------- the losses


@checked(arrays="tensors")
def policy_gradient_loss(
    log_prob: Floats[Array, "..."], psi: Floats[Array, "..."], weights: Floats[Array, "..."] | None = None
) -> Array:
    """The loss whose gradient is minus the estimate: ``-mean(Psi_t log pi(a_t | s_t))``, with Psi_t constant.

    Equation: eq-policy-gradient-loss

    Only its gradient means anything: its value may go up while the policy gets better.

    ``weights`` None takes the mean over all steps; otherwise the sum with these weights is taken: 1/N for N
    trajectories, or the probability of each step's trajectory.

    Source: Schulman et al. (2016), equation 1.
    """
    terms = psi.detach() * log_prob
    return -terms.mean() if weights is None else -(weights * terms).sum()


@checked(arrays="tensors")
def critic_loss(values: Floats[Array, "..."], targets: Floats[Array, "..."]) -> Array:
    """Half the mean squared error of the values; the targets are constants, no gradient flows into them.

    Equation: eq-critic-loss

    Source: Mnih et al. (2016), algorithm 3.
    """
    return 0.5 * ((values - targets.detach()) ** 2).mean()


# --------------------------------------------------------------------------------------------------- REINFORCE


@settings
class ReinforceConfig(ReturnScale):
    """Settings of REINFORCE; the defaults solve CartPole-v1."""

    total_steps: Count = 200_000  #: environment steps, all episodes together; the update that reaches it is last
    episodes: Count = 8  #: N, whole episodes per update, run side by side; 1 to 64
    learning_rate: Positive = 1e-2  #: of the policy, for Adam; 1e-4 to 1e-1, the high end for tables
    value_learning_rate: Positive = 1e-2  #: of the value network, if the baseline is "value"
    gamma: UnitInterval = 0.99  #: discount; 0.9 to 1
    psi: Literal["return", "reward_to_go"] = "reward_to_go"  #: "return" is what the derivation starts with
    baseline: Literal["none", "mean", "value"] = "value"  #: "value" is learned
    discount_time: bool = False  #: weight with gamma^t, as the gradient of the discounted objective asks
    normalize: bool = True  #: shift and scale the weights of an update to mean 0 and deviation 1
    entropy_coefficient: NotNegative = 0.0  #: reward for entropy, 0 to 0.05
    #: cut longer episodes; None trusts the environment's limit. What would come after a cut, or after a truncation,
    #: counts by its value with the baseline "value", and not at all with the others
    max_steps: Count | None = None
    hidden: tuple[Count, ...] = (64,)  #: hidden layers of both networks; () with one-hot observations is a table
    activation: Literal["tanh", "relu"] = "tanh"  #: between the layers


@checked
def iterate_reinforce(
    env: Environment, config: ReinforceConfig | None = None, *, seed: Seed, state: State | None = None
) -> Iterator[Update]:
    """REINFORCE: run whole episodes, weight each score by what followed, take one step uphill; again.

    Arguments and errors as for every trainer (``training``).

    Yields:
        A record after each update; metrics "policy_loss", "entropy", "episode_return" (undiscounted),
        "episode_length", and "value_loss" with the baseline "value" (half the mean squared error, reward units
        squared). env_steps counts the steps of the episodes learned from, not those that a copy takes while it waits
        for the longest.

    Source: Williams (1992); Sutton & Barto (2018), section 13.4.
    """
    config = config or ReinforceConfig()
    with open_actors(env, config, _seeds(seed), copies=config.episodes, steps=1) as actors:
        run = _begin(actors, config, seed)
        yield from run.go_on(state)
        while not run.ended:
            rollout, mask = actors.collector.collect_episodes(config.max_steps)
            steps = int(mask.sum())
            metrics = reinforce_update(actors, run.optimizer, rollout, mask, config)
            metrics["episode_return"] = float((rollout.rewards * mask).sum() / rollout.copies)
            metrics["episode_length"] = steps / rollout.copies
            yield run.record(metrics, steps)


@checked
def reinforce_update(
    actors: Actors, optimizer: Optimizer, rollout: Rollout, mask: Flags[Array, "T N"], config: ReinforceConfig
) -> dict[str, float]:
    """One step of the policy, and of the baseline where it is learned, on N whole episodes.

    ``optimizer`` is of both networks; ``mask`` is True where a step belongs to its copy's episode.

    Returns:
        "policy_loss", "entropy", and "value_loss" with the baseline "value".
    """
    policy, value, flags = actors.policy, actors.value, (rollout.terminated, rollout.truncated)
    critic = config.baseline == "value"
    values, next_values = value_estimates(rollout, value) if critic else (None, None)
    psi = psi_weights(
        config.psi,
        rollout.rewards,
        *flags,
        values=values,
        next_values=next_values,
        gamma=config.gamma,
        baseline=config.baseline,
        discount_time=config.discount_time,
        mask=mask,
    )
    kept = flatten(mask)  # (T N,)
    batch, psi = rollout.batch(), flatten(psi)[kept]
    if config.normalize:
        psi = normalize_advantages(psi)
    outputs = policy(batch.observations[kept])
    log_prob, entropy = policy.log_prob_of(outputs, batch.actions[kept]), policy.entropy_of(outputs).mean()
    shares = torch.full_like(psi, 1 / rollout.copies)  # sum over time, mean over episodes
    loss = policy_loss = policy_gradient_loss(log_prob, psi, shares)
    metrics = {"policy_loss": policy_loss.item(), "entropy": entropy.item()}
    if critic:
        returns = psi_weights("reward_to_go", rollout.rewards, *flags, next_values=next_values, gamma=config.gamma)
        value_loss = _scaled_critic_loss(value, batch.observations[kept], flatten(returns)[kept])
        loss, metrics["value_loss"] = loss + value_loss, value_loss.item() * value.scale**2
    gradient_step(optimizer, loss - config.entropy_coefficient * entropy)
    return metrics


@checked
def train_reinforce(
    env: Environment, config: ReinforceConfig | None = None, *, seed: Seed, **options: Unpack[RunOptions]
) -> TrainingResult:
    """Run ``iterate_reinforce`` out; options as in ``training.RunOptions``."""
    return train(partial(iterate_reinforce, env), config or ReinforceConfig(), seed=seed, **options)


# --------------------------------------------------------------------------------------------------------- A2C


@settings
class A2CConfig(ReturnScale):
    """Settings of advantage actor-critic; the defaults solve CartPole-v1."""

    total_steps: Count = 100_000  #: environment steps, all copies together; the update that reaches it is the last
    copies: Count = 16  #: N, environments side by side; 1 to 64, thousands on a GPU
    steps: Count = 32  #: T, steps of each copy per update; 5 to 128
    learning_rate: Positive = 7e-3  #: of both networks, for Adam; 3e-4 to 1e-2
    gamma: UnitInterval = 0.99  #: discount; 0.9 to 1
    psi: Literal["reward_to_go", "td_error", "n_step", "gae"] = "gae"  #: "reward_to_go" has V(s_t) as baseline
    lam: UnitInterval = 0.98  #: for "gae"; 0.9 to 1
    n: Count = 5  #: for "n_step"; 1 to T
    normalize: bool = True  #: shift and scale the advantages of an update to mean 0 and deviation 1
    value_coefficient: NotNegative = 1.0  #: of the critic's loss; matters where gradients are cut
    entropy_coefficient: NotNegative = 0.01  #: reward for entropy, 0 to 0.05
    max_gradient_norm: Positive | None = None  #: longer gradients are scaled down to it; None never does
    return_scale: Positive | None = None  #: size of typical returns; None takes 1 / (1 - gamma), or 1 for gamma = 1
    hidden: tuple[Count, ...] = (64,)  #: sizes of the hidden layers of each network
    activation: Literal["tanh", "relu"] = "relu"  #: between the layers


@checked
def iterate_a2c(
    env: Environment, config: A2CConfig | None = None, *, seed: Seed, state: State | None = None
) -> Iterator[Update]:
    """Advantage actor-critic: T steps of N copies, one step of actor and critic on all of them; again.

    Arguments and errors as for every trainer (``training``).

    Yields:
        A record after each update; metrics "policy_loss", "value_loss" (half the mean squared error, reward units
        squared), "entropy", and, where episodes ended, "episode_return" (undiscounted) and "episode_length".

    Source: Mnih et al. (2016), in its synchronous form.
    """
    config = config or A2CConfig()
    with open_actors(env, config, _seeds(seed), copies=config.copies, steps=config.steps) as actors:
        run = _begin(actors, config, seed)
        yield from run.go_on(state)
        while not run.ended:
            rollout = actors.collector.collect()
            advantages, targets = a2c_targets(rollout, actors.value, config)
            metrics = a2c_update(actors, run.optimizer, rollout, advantages, targets, config)
            yield run.record(metrics | actors.environments.episode_metrics(), len(rollout))


@checked
def a2c_targets(rollout: Rollout, value_network: Values, config: A2CConfig) -> tuple[Array, Array]:
    """The advantages of a rollout, and what the critic is to say: advantage plus value; (T, N) each, reward units.

    Truncated steps, and the end of the buffer, bootstrap from the value of the real next state; terminations do not.

    Source: Mnih et al. (2016), section 4; Schulman et al. (2016).
    """
    values, next_values = value_estimates(rollout, value_network)
    baseline: Literal["value", "none"] = "value" if config.psi == "reward_to_go" else "none"
    advantages = psi_weights(
        config.psi,
        rollout.rewards,
        rollout.terminated,
        rollout.truncated,
        values=values,
        next_values=next_values,
        gamma=config.gamma,
        lam=config.lam,
        n=config.n,
        baseline=baseline,
    )
    return advantages, advantages + values


@checked(arrays="either")
def a2c_update(
    actors: Actors,
    optimizer: Optimizer,
    rollout: Rollout,
    advantages: Floats[Array, "T N"],
    targets: Floats[Array, "T N"],
    config: A2CConfig,
) -> dict[str, float]:
    """One step of both networks on the whole rollout, with what ``a2c_targets`` gave.

    Returns:
        "policy_loss", "value_loss" and "entropy".
    """
    policy, value, batch = actors.policy, actors.value, rollout.batch()
    advantages, targets = flatten(advantages), flatten(targets)
    if config.normalize:
        advantages = normalize_advantages(advantages)
    outputs = policy(batch.observations)
    policy_loss = policy_gradient_loss(policy.log_prob_of(outputs, batch.actions), advantages)
    value_loss = _scaled_critic_loss(value, batch.observations, targets)
    entropy = policy.entropy_of(outputs).mean()
    loss = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy
    gradient_step(optimizer, loss, max_norm=config.max_gradient_norm)
    return {
        "policy_loss": policy_loss.item(),
        "value_loss": value_loss.item() * value.scale**2,
        "entropy": entropy.item(),
    }


@checked
def train_a2c(
    env: Environment, config: A2CConfig | None = None, *, seed: Seed, **options: Unpack[RunOptions]
) -> TrainingResult:
    """Run ``iterate_a2c`` out; options as in ``training.RunOptions``."""
    return train(partial(iterate_a2c, env), config or A2CConfig(), seed=seed, **options)


# ---------------------------------------------------------------------------------------- what both begin with


def _seeds(seed: int) -> list[int]:
    """Of the environments, the policy, the value network and the actions; the book's curves were made with these."""
    return [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(4)]


@dataclass
class ActorCriticRun(Run):
    """A run of REINFORCE or A2C."""

    networks: nn.Module
    optimizer: Optimizer
    collector: Collector


def _begin(actors: Actors, config: Any, seed: int) -> ActorCriticRun:
    value_rate = getattr(config, "value_learning_rate", config.learning_rate)
    groups = [
        {"params": list(actors.policy.parameters())},
        {"params": list(actors.value.parameters()), "lr": value_rate},
    ]
    optimizer = Adam(groups, config.learning_rate, eps=1e-5)
    return ActorCriticRun(config, seed, actors.policy, actors.networks, optimizer, actors.collector)


def _scaled_critic_loss(value: ValueNetwork, observations: Tensor, targets: Tensor) -> Tensor:
    """The critic's loss in units of its scale."""
    return critic_loss(value(observations) / value.scale, targets / value.scale)
