"""Policy gradients in training: the loss, REINFORCE, A2C (chapter 6).

The losses are those whose gradients are the estimates of ``gradient_estimators``, where the formulas and the weights Psi_t
live; its names can be imported from here too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rlbook_lib.environments import TorchCartPole, is_ready_made, vectorize
from rlbook_lib.experience import check_count, check_flag
from rlbook_lib.gradient_estimators import (  # noqa: F401  (the old home of these names)
    BASELINES,
    EXACT_KINDS,
    SAMPLED_KINDS,
    TAKES_BASELINE,
    FloatArray,
    GradientMoments,
    PsiFunction,
    causality,
    discounted_state_distribution,
    expected_score,
    gaussian_score,
    gradient_estimate,
    gradient_samples,
    gradient_variance,
    log_derivative_gradient,
    n_step_advantage,
    optimal_baseline,
    policy_gradient_exact,
    psi_weights,
    softmax_policy,
    softmax_score,
    td_advantage,
    trajectory_gradient,
)
from rlbook_lib.mdp import check_seed, check_unit_interval
from rlbook_lib.networks import CategoricalPolicy, ValueNetwork, check_tensors, make_policy
from rlbook_lib.returns import effective_horizon, normalize_advantages
from rlbook_lib.rollout import Collector, Rollout, flatten, value_estimates
from rlbook_lib.training import (
    TrainingError,
    TrainingResult,
    Update,
    check_state,
    config_dict,
    pack,
    train,
    unpack,
)

Array: TypeAlias = Any  # a numpy array or a torch tensor


# ---------------------------------------------------------------------- losses

def policy_gradient_loss(log_prob: Tensor, psi: Tensor, weights: Tensor | None = None) -> Tensor:
    """The loss whose gradient is minus the estimate: ``-mean(Psi_t log pi(a_t | s_t))``, with Psi_t constant.

    Only its gradient means anything: its value may go up while the policy gets better.

    Equation: eq-policy-gradient-loss

    Args:
        log_prob: log pi(a_t | s_t), any shape, with gradients.
        psi: the weights Psi_t, same shape; treated as constants.
        weights: None takes the mean over all steps; otherwise the sum with these weights, same shape: 1/N for
            N trajectories, or the probability of each step's trajectory.

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that differ, an empty tensor, or a value that is not finite.
        TypeError: an argument is no tensor.

    Source: Schulman et al. (2016), equation 1.
    """
    check_tensors(log_prob=log_prob, psi=psi, **({} if weights is None else {"weights": weights}))
    return _policy_loss(log_prob, psi, weights)


def _policy_loss(log_prob: Tensor, psi: Tensor, weights: Tensor | None = None) -> Tensor:
    terms = psi.detach() * log_prob
    return -terms.mean() if weights is None else -(weights * terms).sum()


def critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Half the mean squared error of the values; the targets are constants, no gradient flows into them.

    Equation: eq-critic-loss

    Args:
        values: V(s_t), any shape, with gradients.
        targets: what V should say, same shape; detached here.

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that differ, an empty tensor, or a value that is not finite.
        TypeError: an argument is no tensor.

    Source: Mnih et al. (2016), algorithm 3.
    """
    check_tensors(values=values, targets=targets)
    return _critic_loss(values, targets)


def _critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * ((values - targets.detach()) ** 2).mean()


# ---------------------------------------------------------------------- REINFORCE

@dataclass(frozen=True)
class ReinforceConfig:
    """Settings of REINFORCE; the defaults solve CartPole-v1.

    Args:
        total_steps: environment steps of all episodes together; the update that reaches it is the last.
        episodes: N, whole episodes per update, run side by side; 1 to 64.
        learning_rate: of the policy, for Adam; 1e-4 to 1e-1, the high end for tables.
        value_learning_rate: of the value network, if the baseline is "value".
        gamma: discount; 0.9 to 1.
        psi: "reward_to_go", or "return" as the derivation starts with.
        baseline: "none", "mean", "value" (learned), or "optimal" (a number, estimated from the same episodes,
            with scores by the policy's outputs).
        discount_time: weight with gamma^t, as the gradient of the discounted objective asks.
        normalize: shift and scale the weights of an update to mean 0 and deviation 1.
        entropy_coefficient: reward for entropy, 0 to 0.05.
        max_steps: cut longer episodes; None trusts the environment's limit. What would come after a cut, or
            after a truncation, counts by its value with the baseline "value", and not at all with the others.
        hidden: sizes of the hidden layers of both networks; () with one-hot observations is a table.
        activation: "tanh" or "relu".
        initial_log_std: of a Gaussian policy.
    """

    total_steps: int = 200_000
    episodes: int = 8
    learning_rate: float = 1e-2
    value_learning_rate: float = 1e-2
    gamma: float = 0.99
    psi: str = "reward_to_go"
    baseline: str = "value"
    discount_time: bool = False
    normalize: bool = True
    entropy_coefficient: float = 0.0
    max_steps: int | None = None
    hidden: tuple[int, ...] = (64,)
    activation: str = "tanh"
    initial_log_std: float = 0.0

    def __post_init__(self) -> None:
        _check_word("psi", self.psi, SAMPLED_KINDS[:2])
        _check_word("baseline", self.baseline, BASELINES)
        _check_common(self)
        check_count("episodes", self.episodes)
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)


def iterate_reinforce(env: Any, config: ReinforceConfig | None = None, *, seed: int,
                      state: dict[str, Any] | None = None) -> Iterator[Update]:
    """REINFORCE: run whole episodes, weight each score by what followed, take one step uphill; again.

    Args:
        env: a Gymnasium id, a constructor, or a vector environment (whose number of copies then counts).
        config: settings; None takes the defaults.
        seed: of networks, environments and actions.
        state: from a record of an earlier run with the same config and seed; goes on from there.

    Yields:
        A record after each update; metrics "policy_loss", "entropy", "episode_return" (undiscounted),
        "episode_length", and "value_loss" with the baseline "value". env_steps counts the steps of the
        episodes learned from, not those that a copy takes while it waits for the longest.

    Raises:
        ValueError: an environment with the wrong kind of space; a NaN from the environment; a state of
            another run.
        TypeError: config is no ``ReinforceConfig``.
        TrainingError: a loss that is not finite.

    Source: Williams (1992); Sutton & Barto (2018), section 13.4.
    """
    config = _settings(config, ReinforceConfig)
    learner = _Learner(env, config, seed, config.episodes, 1, state)
    try:
        if learner.env_steps >= config.total_steps:  # a state of a run that had ended
            yield Update(learner.update, learner.env_steps, {}, learner.policy, learner.state)
        while learner.env_steps < config.total_steps:
            rollout, mask = learner.collector.collect_episodes(config.max_steps)
            metrics = _reinforce_update(learner, rollout, mask)
            steps = int(mask.sum())
            metrics["episode_return"] = float((rollout.rewards * mask).sum() / rollout.copies)
            metrics["episode_length"] = steps / rollout.copies
            yield learner.record(steps, metrics)
    finally:
        learner.close()


def _reinforce_update(learner: _Learner, rollout: Rollout, mask: Array) -> dict[str, float]:
    """One step of the policy, and of the baseline where it is learned, on N whole episodes."""
    config, critic = learner.config, learner.config.baseline == "value"
    values, next_values = value_estimates(rollout, learner.value) if critic else (None, None)
    flags = (rollout.terminated, rollout.truncated)
    psi = psi_weights(config.psi, rollout.rewards, *flags, values=values, next_values=next_values,
                      gamma=config.gamma, baseline=config.baseline, discount_time=config.discount_time,
                      mask=mask, squared_scores=_squared_scores(learner.policy, rollout))
    kept = flatten(mask)                                               # (T N,)
    batch, psi = rollout.batch(), flatten(psi)[kept]
    if config.normalize:
        psi = normalize_advantages(psi)
    outputs = learner.policy(batch.observations[kept])
    log_probs = learner.policy.log_prob_of(outputs, batch.actions[kept])
    shares = torch.full_like(psi, 1 / rollout.copies)                  # sum over time, mean over episodes
    policy_loss, entropy = _policy_loss(log_probs, psi, shares), learner.policy.entropy_of(outputs).mean()
    losses = {"policy_loss": policy_loss}
    if critic:
        returns = psi_weights("reward_to_go", rollout.rewards, *flags, next_values=next_values,
                              gamma=config.gamma)
        scale = learner.value.scale
        losses["value_loss"] = _critic_loss(learner.value(batch.observations[kept]) / scale,
                                            flatten(returns)[kept] / scale)
    learner.step(sum(losses.values()) - config.entropy_coefficient * entropy)
    return {name: loss.item() for name, loss in (losses | {"entropy": entropy}).items()}


def _squared_scores(policy: Any, rollout: Rollout) -> Array:
    """|grad log pi(a_t | s_t)|^2 by the logits, or by the means and logarithms of deviations; (T, N)."""
    outputs, actions = torch.as_tensor(rollout.outputs), torch.as_tensor(rollout.actions)
    if isinstance(policy, CategoricalPolicy):
        probabilities = outputs.exp()
        taken = probabilities.gather(-1, actions[..., None])[..., 0]
        squares = 1 - 2 * taken + (probabilities**2).sum(-1)
    else:
        mean, log_std = outputs.chunk(2, -1)
        z = (actions - mean) * torch.exp(-log_std)
        squares = ((z * torch.exp(-log_std)) ** 2 + (z * z - 1) ** 2).sum(-1)
    return squares if isinstance(rollout.rewards, Tensor) else squares.numpy()


def train_reinforce(env: Any, config: ReinforceConfig | None = None, *, seed: int, **options: Any
                    ) -> TrainingResult:
    """Run ``iterate_reinforce`` out.

    Args:
        env, config, seed: as for ``iterate_reinforce``.
        **options: state, progress, checkpoint, checkpoint_every, stop: as for ``training.train``.

    Returns:
        The policy, the curves and the state.

    Raises:
        ValueError, TrainingError: as ``training.train``.
    """
    return train(iterate_reinforce, env, _settings(config, ReinforceConfig), seed=seed, **options)


# ---------------------------------------------------------------------- A2C

@dataclass(frozen=True)
class A2CConfig:
    """Settings of advantage actor-critic; the defaults solve CartPole-v1.

    Args:
        total_steps: environment steps of all copies together; the update that reaches it is the last.
        copies: N, environments side by side; 1 to 64, thousands on a GPU.
        steps: T, steps of each copy per update; 5 to 128.
        learning_rate: of both networks, for Adam; 3e-4 to 1e-2.
        gamma: discount; 0.9 to 1.
        psi: the advantage: "td_error", "n_step", "gae", or "reward_to_go" with V(s_t) as baseline.
        lam: for "gae"; 0.9 to 1.
        n: for "n_step"; 1 to T.
        normalize: shift and scale the advantages of an update to mean 0 and deviation 1.
        value_coefficient: weight of the critic's loss; matters only where gradients are clipped, for the
            networks are separate.
        entropy_coefficient: reward for entropy, 0 to 0.05.
        max_gradient_norm: longer gradients are scaled down to it; None never does.
        return_scale: size of typical returns, in reward units; None takes 1 / (1 - gamma), at most 1000.
        hidden: sizes of the hidden layers of each network.
        activation: "relu" or "tanh".
        initial_log_std: of a Gaussian policy.
    """

    total_steps: int = 100_000
    copies: int = 16
    steps: int = 32
    learning_rate: float = 7e-3
    gamma: float = 0.99
    psi: str = "gae"
    lam: float = 0.98
    n: int = 5
    normalize: bool = True
    value_coefficient: float = 1.0
    entropy_coefficient: float = 0.01
    max_gradient_norm: float | None = None
    return_scale: float | None = None
    hidden: tuple[int, ...] = (64,)
    activation: str = "relu"
    initial_log_std: float = 0.0

    def __post_init__(self) -> None:
        _check_word("psi", self.psi, SAMPLED_KINDS[1:])
        _check_common(self)
        for name in ("copies", "steps", "n"):
            check_count(name, getattr(self, name))
        check_unit_interval("lam", self.lam)
        _check_number("value_coefficient", self.value_coefficient, 0.0)
        for name in ("max_gradient_norm", "return_scale"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), 0.0, above=True)


def iterate_a2c(env: Any, config: A2CConfig | None = None, *, seed: int, state: dict[str, Any] | None = None
                ) -> Iterator[Update]:
    """Advantage actor-critic: T steps of N copies, one step of actor and critic on all of them; again.

    Args:
        env: a Gymnasium id, a constructor, or a vector environment (whose number of copies then counts).
        config: settings; None takes the defaults.
        seed: of networks, environments and actions.
        state: from a record of an earlier run with the same config and seed; goes on from there.

    Yields:
        A record after each update; metrics "policy_loss", "value_loss" (in scaled units), "entropy", and,
        where episodes ended, "episode_return" (undiscounted) and "episode_length".

    Raises:
        ValueError: an environment with the wrong kind of space; a NaN from the environment; a state of
            another run.
        TypeError: config is no ``A2CConfig``.
        TrainingError: a loss that is not finite.

    Source: Mnih et al. (2016), in its synchronous form.
    """
    config = _settings(config, A2CConfig)
    learner = _Learner(env, config, seed, config.copies, config.steps, state)
    try:
        if learner.env_steps >= config.total_steps:  # a state of a run that had ended
            yield Update(learner.update, learner.env_steps, {}, learner.policy, learner.state)
        while learner.env_steps < config.total_steps:
            rollout = learner.collector.collect()
            advantages, targets = a2c_targets(rollout, learner.value, config)
            metrics = _a2c_update(learner, rollout, advantages, targets)
            yield learner.record(len(rollout), metrics | _finished_episodes(learner.collector.environments))
    finally:
        learner.close()


def a2c_targets(rollout: Rollout, value_network: Any, config: A2CConfig) -> tuple[Array, Array]:
    """The advantages of a rollout, and what the critic is to say: advantage plus value.

    Truncated steps, and the end of the buffer, bootstrap from the value of the real next state; terminations
    do not.

    Args:
        rollout: T steps of N copies.
        value_network: the critic.
        config: gamma, psi, lam and n count.

    Returns:
        (advantages, targets), (T, N) each, reward units.

    Source: Mnih et al. (2016), section 4; Schulman et al. (2016).
    """
    values, next_values = value_estimates(rollout, value_network)
    baseline = "value" if config.psi == "reward_to_go" else "none"
    advantages = psi_weights(config.psi, rollout.rewards, rollout.terminated, rollout.truncated,
                             values=values, next_values=next_values, gamma=config.gamma, lam=config.lam,
                             n=config.n, baseline=baseline)
    return advantages, advantages + values


def _a2c_update(learner: _Learner, rollout: Rollout, advantages: Array, targets: Array) -> dict[str, float]:
    """One step of both networks on the whole rollout."""
    config, batch, scale = learner.config, rollout.batch(), learner.value.scale
    advantages, targets = flatten(advantages), flatten(targets)
    if config.normalize:
        advantages = normalize_advantages(advantages)
    outputs = learner.policy(batch.observations)
    policy_loss = _policy_loss(learner.policy.log_prob_of(outputs, batch.actions), advantages)
    value_loss = _critic_loss(learner.value(batch.observations) / scale, targets / scale)
    entropy = learner.policy.entropy_of(outputs).mean()
    learner.step(policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy,
                 config.max_gradient_norm)
    return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "entropy": entropy.item()}


def train_a2c(env: Any, config: A2CConfig | None = None, *, seed: int, **options: Any) -> TrainingResult:
    """Run ``iterate_a2c`` out.

    Args:
        env, config, seed: as for ``iterate_a2c``.
        **options: state, progress, checkpoint, checkpoint_every, stop: as for ``training.train``.

    Returns:
        The policy, the curves and the state.

    Raises:
        ValueError, TrainingError: as ``training.train``.
    """
    return train(iterate_a2c, env, _settings(config, A2CConfig), seed=seed, **options)


# ---------------------------------------------------------------------- what both trainers keep

class _Learner:
    """Both networks, their optimizer, the collector and the counts: all that a checkpoint must hold."""

    def __init__(self, env: Any, config: Any, seed: int, copies: int, steps: int,
                 state: dict[str, Any] | None) -> None:
        self.config, self.seed = config, check_seed(seed)
        self.ready_made = is_ready_made(env)
        environment_seed, policy_seed, value_seed, action_seed = (
            int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(4))
        environments = env
        if not isinstance(env, TorchCartPole):
            environments = vectorize(env, copies, seed=environment_seed)
        device = getattr(environments, "device", None)
        self.policy = make_policy(
            environments.observation_space, environments.action_space, hidden=config.hidden,
            activation=config.activation, seed=policy_seed, initial_log_std=config.initial_log_std,
            env=environments.name).to(device)
        self.value = ValueNetwork(environments.observation_size, hidden=config.hidden,
                                  activation=config.activation, seed=value_seed,
                                  scale=_return_scale(config)).to(device)
        value_rate = getattr(config, "value_learning_rate", config.learning_rate)
        self.optimizer = torch.optim.Adam(
            [{"params": list(self.policy.parameters())},
             {"params": list(self.value.parameters()), "lr": value_rate}],
            lr=config.learning_rate, eps=1e-5, fused=True)             # fused: a third of the time per step
        rng = np.random.default_rng(action_seed) if device is None \
            else torch.Generator(device).manual_seed(action_seed)
        self.collector = Collector(environments, self.policy, steps, rng)
        self.update, self.env_steps = 0, 0
        if state is not None:
            self.load_state(state)

    def step(self, loss: Tensor, max_gradient_norm: float | None = None) -> None:
        """One step of the optimizer down the loss; nothing is changed by a loss that is no number."""
        if not math.isfinite(loss.item()):
            raise TrainingError(f"update {self.update + 1}: the loss is {loss.item()}; the networks are "
                                f"broken, learning_rate is {self.config.learning_rate:g}")
        self.optimizer.zero_grad()
        loss.backward()
        if max_gradient_norm is not None:
            nn.utils.clip_grad_norm_([p for group in self.optimizer.param_groups for p in group["params"]],
                                     max_gradient_norm)
        self.optimizer.step()

    def record(self, env_steps: int, metrics: dict[str, float]) -> Update:
        """Count one update."""
        self.update += 1
        self.env_steps += env_steps
        return Update(self.update, self.env_steps, metrics, self.policy, self.state)

    def state(self) -> dict[str, Any]:
        """Everything, as tensors and plain data."""
        return {"config": config_dict(self.config), "seed": self.seed, "update": self.update,
                "env_steps": self.env_steps, "policy": pack(self.policy), "value": pack(self.value),
                "optimizer": pack(self.optimizer), "collector": self.collector.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from where ``state`` was taken."""
        check_state(state, self.config, self.seed)
        for name in ("policy", "value", "optimizer"):
            unpack(getattr(self, name), state[name])
        self.collector.load_state(state["collector"])
        self.update, self.env_steps = state["update"], state["env_steps"]

    def close(self) -> None:
        """Close the environments, unless they came ready-made."""
        if not self.ready_made:
            self.collector.environments.close()


def _settings(config: Any, kind: type) -> Any:
    """The config, or the defaults for None."""
    if not isinstance(config, kind) and config is not None:
        raise TypeError(f"config is {type(config).__name__}; expected {kind.__name__}")
    return kind() if config is None else config


def _return_scale(config: Any) -> float:
    """Size of typical returns: with it the critic's perceptron computes numbers around one."""
    given = getattr(config, "return_scale", None)
    return given if given is not None else min(1000.0, effective_horizon(config.gamma))


def _finished_episodes(environments: Any) -> dict[str, float]:
    """Mean return and length of the episodes that ended since the last call; nothing if none did."""
    returns, lengths = environments.pop_episodes()
    if len(returns) == 0:
        return {}
    return {"episode_return": float(returns.mean()), "episode_length": float(lengths.mean())}


def _check_common(config: Any) -> None:
    """Fields that both configs have."""
    check_count("total_steps", config.total_steps)
    check_unit_interval("gamma", config.gamma)
    for name in ("learning_rate", "value_learning_rate"):
        if hasattr(config, name):
            _check_number(name, getattr(config, name), 0.0, above=True)
    _check_number("entropy_coefficient", config.entropy_coefficient, 0.0)
    _check_number("initial_log_std", config.initial_log_std)
    for name in ("normalize", "discount_time"):
        if hasattr(config, name):
            check_flag(name, getattr(config, name))


def _check_number(name: str, value: Any, low: float = -math.inf, above: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value) or value < low or (above and value == low):
        bound = "above" if above else "of at least"
        raise ValueError(f"{name} must be a finite number {bound} {low}, got {value}")


def _check_word(name: str, word: Any, words: tuple[str, ...]) -> None:
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {word!r}")
