"""PPO on a language model: reinforcement learning from human feedback (chapter 12).

Four models take part. The policy and the value model are trained. The reference, a copy of the policy as it
came from supervised fine-tuning, and the reward model are frozen; a rule may stand in for the reward model.
The policy as it was when it sampled needs no model of its own: its log-probabilities are stored with the
samples.

A completion is an episode of the token MDP: the state is the prompt and the tokens so far, the action is the
next token, the transition appends it. The score comes with the last token, and each token pays for leaving
the reference.

Shapes: B completions, N tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlbook_lib.divergences import kl_divergence
from rlbook_lib.experience import check_count, check_positive
from rlbook_lib.fine_tuning import (
    demonstrations,
    frozen_copy,
    gradient_step,
    learning_rate_share,
    masked_mean,
    sft_loss,
)
from rlbook_lib.language_model import Completions, completion_log_probs, generate, sequence_log_prob
from rlbook_lib.mdp import check_seed, check_unit_interval
from rlbook_lib.ppo import clip_objective, value_loss
from rlbook_lib.returns import gae
from rlbook_lib.reward_model import RewardModel
from rlbook_lib.text_tasks import TextTask, evaluate_accuracy, score_completions
from rlbook_lib.training import (
    State,
    TrainingResult,
    Update,
    check_state,
    config_dict,
    pack,
    rng_state,
    set_rng_state,
    train,
    unpack,
)

__all__ = [
    "RLHFConfig",
    "rlhf_objective",
    "rlhf_optimum",
    "sequence_kl",
    "shape_rewards",
    "completion_gae",
    "whiten",
    "rlhf_policy_loss",
    "rlhf_value_loss",
    "total_loss",
    "adapt_beta",
    "dpo_loss",
    "score_with",
    "iterate_rlhf",
    "train_rlhf",
]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RLHFConfig:
    """Settings of PPO on a language model.

    Args:
        updates: rounds of sampling and training.
        batch_size: prompts a round, one completion each; 64 to 1024.
        epochs: passes over a round's completions; 1 to 4.
        minibatches: gradient steps a pass; must divide batch_size.
        learning_rate: of the policy's AdamW at its highest.
        value_learning_rate: of the value model's.
        warmup: updates until the learning rates are at their highest.
        final_share: share of the learning rates that is left at the end.
        value_warmup: updates at the start that train the value model only.
        max_gradient_norm: longer gradients are scaled down to this length.
        clip: half the width of the ratio's range, 0.1 to 0.3.
        value_clip: how far a value may move in an update before its gradient stops; None for no limit.
        gamma: discount between tokens, in [0, 1]; 1 is usual: a late token is worth as much as an early one.
        lam: of the generalized advantages, in [0, 1].
        beta: price of a nat of divergence from the reference, in reward units; 0.01 to 0.3.
        kl_target: nats a completion that ``adapt_beta`` steers to by changing beta; None leaves beta alone.
        step_kl_limit: the pass ends when the policy is this far (nats a token, k3) from the one that sampled;
            None for no limit.
        entropy_coefficient: weight of the entropy bonus.
        pretraining_coefficient: weight of the demonstrations' log-likelihood in the objective, the
            pretraining mix.
        temperature: of the sampling, and of the policy that is trained.
        evaluate_every: updates between greedy evaluations (metric "accuracy"); 0 for none.
    """

    updates: int = 40
    batch_size: int = 512
    epochs: int = 2
    minibatches: int = 4
    learning_rate: float = 3e-4
    value_learning_rate: float = 1e-3
    warmup: int = 5
    final_share: float = 0.1
    value_warmup: int = 3
    max_gradient_norm: float = 1.0
    clip: float = 0.2
    value_clip: float | None = 0.2
    gamma: float = 1.0
    lam: float = 0.95
    beta: float = 0.02
    kl_target: float | None = None
    step_kl_limit: float | None = 0.05
    entropy_coefficient: float = 0.0
    pretraining_coefficient: float = 0.0
    temperature: float = 1.0
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        for name in ("updates", "batch_size", "epochs", "minibatches"):
            check_count(name, getattr(self, name))
        if self.batch_size % self.minibatches:
            raise ValueError(
                f"minibatches is {self.minibatches}; expected a divisor of batch_size = {self.batch_size}"
            )
        for name in ("learning_rate", "value_learning_rate", "max_gradient_norm", "temperature"):
            check_positive(name, getattr(self, name))
        for name in ("gamma", "lam"):
            check_unit_interval(name, getattr(self, name))
        for name in ("value_clip", "kl_target", "step_kl_limit"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("beta", "entropy_coefficient", "pretraining_coefficient"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected a finite number, 0 or more")
        if not 0 < self.clip < 1:
            raise ValueError(f"clip is {self.clip!r}; expected a number between 0 and 1")


# ---------------------------------------------------------------------------------- the objective, exactly


def rlhf_objective(policy: ArrayLike, rewards: ArrayLike, reference: ArrayLike, beta: float) -> float:
    """What RLHF maximizes, for one prompt and a few answers: expected reward minus beta KL(policy || reference).

    Equation: eq-rlhf-objective

    Args:
        policy: (A,) probabilities of the answers.
        rewards: (A,).
        reference: (A,) probabilities under the reference.
        beta: price of a nat, 0 or more.

    Returns:
        A number in reward units.

    Raises:
        ValueError: rows that are no distributions, shapes that differ, beta negative.

    Source: Ziegler et al. (2019), section 2.
    """
    policy, rewards = np.asarray(policy, dtype=float), np.asarray(rewards, dtype=float)
    divergence = float(kl_divergence(policy, reference))
    if rewards.shape != policy.shape:
        raise ValueError(f"rewards has shape {rewards.shape}; the policy has {policy.shape}")
    _check_not_negative("beta", beta)
    return float(policy @ rewards) - (beta * divergence if beta > 0 else 0.0)


def rlhf_optimum(rewards: ArrayLike, reference: ArrayLike, beta: float) -> FloatArray:
    """The policy that maximizes it: the reference, reweighted by exp(reward / beta).

    Equation: eq-rlhf-optimum

    Args:
        rewards: (A,).
        reference: (A,) probabilities under the reference.
        beta: price of a nat, above 0.

    Returns:
        (A,) probabilities.

    Raises:
        ValueError: shapes that differ, beta not above 0.

    Source: Rafailov et al. (2023), equation 4.
    """
    rewards, reference = np.asarray(rewards, dtype=float), np.asarray(reference, dtype=float)
    if rewards.shape != reference.shape or rewards.ndim != 1:
        raise ValueError(
            f"rewards has shape {rewards.shape} and reference {reference.shape}; expected (A,) twice"
        )
    check_positive("beta", beta)
    weights = reference * np.exp((rewards - rewards.max()) / beta)
    return np.asarray(weights / weights.sum())


# ------------------------------------------------------------------------------------ rewards and advantages


def sequence_kl(log_prob: Tensor, log_prob_ref: Tensor, mask: Tensor) -> Tensor:
    """How far each sampled completion says the policy is from the reference: log pi(o|q) - log pi_ref(o|q).

    Equation: eq-sequence-kl

    Its mean over samples of the policy is the divergence of the distributions over whole completions. A
    single one may be negative.

    Args:
        log_prob: (B, N), of the policy that sampled.
        log_prob_ref: (B, N), of the reference.
        mask: (B, N) bool or 0/1.

    Returns:
        (B,) nats.

    Raises:
        ValueError: shapes that differ.
    """
    return sequence_log_prob(log_prob, mask) - sequence_log_prob(log_prob_ref, mask)


def shape_rewards(
    scores: Tensor, log_prob: Tensor, log_prob_ref: Tensor, mask: Tensor, beta: float
) -> Tensor:
    """The reward of each token: it pays beta for its log-ratio to the reference, and the last one gets the score.

    Equation: eq-shaped-reward

    Args:
        scores: (B,), one a completion.
        log_prob: (B, N), of the policy that sampled: NOT of the one that is being trained.
        log_prob_ref: (B, N), of the frozen reference.
        mask: (B, N) bool or 0/1, no row empty; the score goes to the last unmasked position.
        beta: price of a nat, 0 or more.

    Returns:
        (B, N); 0 where masked. A row's sum is its score minus beta times its ``sequence_kl``.

    Raises:
        ValueError: shapes that differ, an empty row, NaN at an unmasked position, beta negative.

    Source: Ouyang et al. (2022), equation 2; Shao et al. (2024), equation 2.
    """
    mask = _checked_rows(mask, log_prob=log_prob, log_prob_ref=log_prob_ref)
    if scores.shape != mask.shape[:1] or not scores.isfinite().all():
        raise ValueError(f"scores has shape {tuple(scores.shape)}; expected ({len(mask)},) finite numbers")
    _check_not_negative("beta", beta)
    rewards = -beta * (log_prob - log_prob_ref).masked_fill(~mask, 0.0)
    rows = torch.arange(len(mask), device=mask.device)
    rewards[rows, _last(mask)] += scores.to(rewards.dtype)
    return rewards


def completion_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float = 1.0, lam: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Generalized advantages along each completion, which ends with its last real token.

    Equation: eq-completion-gae

    The end of sequence terminates the episode: nothing follows, and no value is added. A completion that was
    cut off at its longest length terminates too, because its score, given at that token, is all it will ever get.

    Args:
        rewards: (B, N).
        values: (B, N); V before each token is written.
        mask: (B, N) bool or 0/1, no row empty; what stands at masked positions changes nothing.
        gamma: discount between tokens, in [0, 1].
        lam: in [0, 1].

    Returns:
        (advantages, value_targets), both (B, N), 0 where masked.

    Raises:
        ValueError: shapes that differ, an empty row, NaN at an unmasked position, gamma or lam out of range.

    Source: Schulman et al. (2016), section 3.
    """
    mask = _checked_rows(mask, rewards=rewards, values=values)
    rewards, values = rewards.masked_fill(~mask, 0.0), values.masked_fill(~mask, 0.0)
    ends = ~mask
    ends[torch.arange(len(mask), device=mask.device), _last(mask)] = (
        True  # after it, padding: episodes of one empty step
    )
    next_values = F.pad(values[:, 1:], (0, 1))
    truncated = torch.zeros_like(ends)
    advantages, targets = gae(
        rewards.T, values.T, next_values.T, ends.T, truncated.T, gamma, lam
    )  # time first
    return advantages.T.masked_fill(~mask, 0.0), targets.T.masked_fill(~mask, 0.0)


def whiten(advantages: Tensor, mask: Tensor) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over the real tokens of a batch.

    Equation: eq-whitening

    Args:
        advantages: (B, N).
        mask: (B, N) bool or 0/1.

    Returns:
        (B, N), 0 where masked; the standard deviation divides by the number of tokens (ddof 0), plus 1e-8.

    Raises:
        ValueError: shapes that differ, or no real token.
    """
    centered = advantages - masked_mean(advantages, mask)
    deviation = masked_mean(centered**2, mask).sqrt()
    return (centered / (deviation + 1e-8)).masked_fill(~mask.bool(), 0.0)


# ------------------------------------------------------------------------------------------------- the losses


def rlhf_policy_loss(
    log_prob: Tensor, log_prob_old: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2
) -> Tensor:
    """Minus PPO's clipped objective, averaged over the real tokens of the batch.

    Equation: eq-rlhf-policy-loss

    Args:
        log_prob: (B, N), of the policy that is trained.
        log_prob_old: (B, N), of the policy that sampled, stored with the samples.
        advantages: (B, N).
        mask: (B, N) bool or 0/1.
        clip: half the width of the ratio's range.

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that differ, no real token, clip out of range, NaN at an unmasked position.

    Source: Schulman et al. (2017), equation 7; Ouyang et al. (2022).
    """
    mask = _checked_rows(mask, log_prob=log_prob, log_prob_old=log_prob_old, advantages=advantages)
    terms: Tensor = clip_objective(log_prob[mask], log_prob_old[mask], advantages[mask], clip)
    return -terms.mean()


def rlhf_value_loss(
    values: Tensor, targets: Tensor, mask: Tensor, values_old: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """PPO's value loss over the real tokens of a batch.

    Args:
        values: (B, N).
        targets: (B, N), constants.
        mask: (B, N) bool or 0/1.
        values_old: (B, N), at the time of sampling; needed with a clip.
        clip: how far a value may move before its gradient stops; None for the plain loss.

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that differ, no real token, NaN at an unmasked position.
    """
    mask = _checked_rows(mask, values=values, targets=targets)
    old = None if values_old is None else values_old[mask]
    loss: Tensor = value_loss(values[mask], targets[mask], old, clip)
    return loss


def total_loss(
    policy_loss: Tensor,
    *,
    entropy: Tensor | float = 0.0,
    entropy_coefficient: float = 0.0,
    pretraining_loss: Tensor | float = 0.0,
    pretraining_coefficient: float = 0.0,
) -> Tensor:
    """The policy's loss with an entropy bonus and the pretraining mix.

    Equation: eq-pretraining-mix

    Args:
        policy_loss: of the clipped objective.
        entropy: mean over tokens, nats; a bonus, so it is subtracted.
        entropy_coefficient: 0 or more.
        pretraining_loss: mean negative log-probability of text that the policy should not forget.
        pretraining_coefficient: gamma_ptx, 0 or more.

    Returns:
        policy_loss - entropy_coefficient * entropy + pretraining_coefficient * pretraining_loss.

    Raises:
        ValueError: a negative coefficient.

    Source: Ouyang et al. (2022), equation 2, as a loss.
    """
    _check_not_negative("entropy_coefficient", entropy_coefficient)
    _check_not_negative("pretraining_coefficient", pretraining_coefficient)
    return policy_loss - entropy_coefficient * entropy + pretraining_coefficient * pretraining_loss


def adapt_beta(beta: float, kl: float, target: float, gain: float = 0.1) -> float:
    """Steer the price of divergence: raise it when completions are further from the reference than wanted.

    Equation: eq-kl-controller

    Args:
        beta: the price so far, above 0.
        kl: measured, nats a completion.
        target: wanted, nats a completion, above 0.
        gain: K, how fast; the relative error is cut to [-0.2, 0.2] first.

    Returns:
        beta (1 + K clip(kl / target - 1, -0.2, 0.2)).

    Raises:
        ValueError: a number out of range.

    Source: Ziegler et al. (2019), section 2.2.
    """
    for name, value in (("beta", beta), ("target", target), ("gain", gain)):
        check_positive(name, value)
    if not math.isfinite(kl):
        raise ValueError(f"kl is {kl!r}; expected a finite number")
    return beta * (1 + gain * min(0.2, max(-0.2, kl / target - 1)))


def dpo_loss(
    log_prob_chosen: Tensor, log_prob_rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float
) -> Tensor:
    """Direct preference optimization: the pairwise loss with beta times the log-ratio to the reference as the score.

    Equation: eq-dpo-loss

    No reward model and no sampling: at its minimum the policy is ``rlhf_optimum`` for the rewards behind the
    preferences.

    Args:
        log_prob_chosen: (B,), log pi(o|q) of the preferred completions.
        log_prob_rejected: (B,), of the others.
        ref_chosen: (B,), the same under the reference.
        ref_rejected: (B,).
        beta: above 0.

    Returns:
        A scalar, to be minimized.

    Raises:
        ValueError: shapes that differ, beta not above 0.

    Source: Rafailov et al. (2023), equation 7.
    """
    check_positive("beta", beta)
    shapes = {tuple(x.shape) for x in (log_prob_chosen, log_prob_rejected, ref_chosen, ref_rejected)}
    if len(shapes) != 1:
        raise ValueError(f"the log-probabilities have shapes {sorted(shapes)}; expected one shape")
    margin = beta * ((log_prob_chosen - ref_chosen) - (log_prob_rejected - ref_rejected))
    return -F.logsigmoid(margin).mean()


# ----------------------------------------------------------------------------------------------- the training


def iterate_rlhf(
    model: Any,
    task: TextTask,
    config: RLHFConfig | None = None,
    *,
    seed: int,
    value_model: RewardModel | None = None,
    reference: Any = None,
    reward: Any = None,
    state: State | None = None,
) -> Iterator[Update]:
    """Train a language model with PPO, one round of sampling and training an update.

    Args:
        model: the policy; it is trained in place.
        task: makes training prompts, and rewards completions unless ``reward`` is given.
        config: the settings; default ``RLHFConfig()``.
        seed: of prompts, sampling and minibatches.
        value_model: V of the token MDP, trained in place; default: the policy's trunk with a new scalar head.
        reference: the frozen model; default: a copy of the policy as it comes. A run that goes on from a
            state needs it again.
        reward: called with prompt, completion and whether it ended; or an object with
            ``scores(completions)``, a reward model.
        state: to go on from, as an earlier record's ``state()`` gave it.

    Yields:
        One record an update; ``env_steps`` counts sampled tokens. Metrics: reward (mean score), kl (to the
        reference, nats a completion), beta, length, entropy, clipped, step_kl (nats a token), policy_steps
        (gradient steps before the limit), value_loss, explained_variance, and accuracy where it was
        evaluated.

    Raises:
        ValueError: the state was made with other settings, or comes without its reference.
        RewardError: the reward raised or returned NaN; the sample is named.
    """
    config = config or RLHFConfig()
    if state is not None and reference is None:
        raise ValueError("reference is missing: a run goes on only with the reference it began with")
    run = _Run(model, task, config, seed, value_model, reference, reward)
    if state is not None:
        check_state(state, config, seed)
        run.restore(state)
    if run.update >= config.updates:  # a state of a run that had ended
        yield Update(run.update, run.tokens, {}, model, run.snapshot)
    while run.update < config.updates:
        share = learning_rate_share(run.update, config.updates, config.warmup, config.final_share)
        round_ = run.sample()
        metrics = run.improve(round_, share) | round_.metrics
        run.update, run.tokens = run.update + 1, run.tokens + int(round_.completions.mask.sum())
        if config.kl_target is not None:
            run.beta = adapt_beta(run.beta, metrics["kl"], config.kl_target)
        if config.evaluate_every and run.update % config.evaluate_every == 0:
            metrics["accuracy"] = evaluate_accuracy(model, task)
        yield Update(run.update, run.tokens, metrics, model, run.snapshot)


@dataclass(frozen=True)
class _Round:
    """What one round of sampling leaves for training; all tensors (B, N)."""

    completions: Completions
    values: Tensor
    advantages: Tensor
    targets: Tensor
    metrics: dict[str, float]


class _Run:
    """The four models, two optimizers and generators of one training run."""

    def __init__(
        self,
        model: Any,
        task: TextTask,
        config: RLHFConfig,
        seed: int,
        value_model: Any,
        reference: Any,
        reward: Any,
    ) -> None:
        self.model, self.task, self.config, self.seed = model, task, config, check_seed(seed)
        self.value_model = value_model if value_model is not None else RewardModel(model)
        self.reference = reference if reference is not None else frozen_copy(model)
        self.reward = reward if reward is not None else task.reward
        self.rng = np.random.default_rng(seed)
        device = next(model.parameters()).device
        self.generator = torch.Generator(device).manual_seed(int(self.rng.integers(2**62)))
        self.optimizer = _adam(model, config.learning_rate)
        self.value_optimizer = _adam(self.value_model, config.value_learning_rate)
        self.update, self.tokens, self.beta = 0, 0, config.beta

    @torch.no_grad()
    def sample(self) -> _Round:
        """Completions with shaped token rewards, advantages and value targets, all under the policy as it is now."""
        config = self.config
        prompts = self.task.prompts(config.batch_size, self.rng, "train")
        batch = generate(
            self.model, prompts, max_new_tokens=self.task.max_new_tokens,
            temperature=config.temperature, generator=self.generator,
        )  # fmt: skip
        scores = score_with(self.reward, batch)  # (B,)
        reference, _ = completion_log_probs(self.reference, batch, config.temperature)
        rewards = shape_rewards(scores, batch.log_probs, reference, batch.mask, self.beta)
        values = self.value_model.values(batch)
        advantages, targets = completion_gae(rewards, values, batch.mask, config.gamma, config.lam)
        metrics = {
            "reward": float(scores.mean()),
            "kl": float(sequence_kl(batch.log_probs, reference, batch.mask).mean()),
            "beta": self.beta,
            "length": float(batch.lengths.float().mean()),
            "explained_variance": _explained(values[batch.mask], targets[batch.mask]),
        }
        return _Round(batch, values, whiten(advantages, batch.mask), targets, metrics)

    def improve(self, round_: _Round, share: float) -> dict[str, float]:
        """The epochs of gradient steps over one round; the policy stops early when it has moved far enough."""
        config, rows, value_losses = self.config, [], []
        policy_learns = self.update >= config.value_warmup
        for _ in range(config.epochs):
            order = torch.from_numpy(self.rng.permutation(config.batch_size)).to(round_.values.device)
            for index in order.chunk(config.minibatches):
                part = round_.completions.take(index)
                columns = slice(0, part.mask.shape[1])
                value_losses.append(self._value_step(part, round_, index, columns, share))
                if policy_learns:
                    row = self._policy_step(part, round_.advantages[index, columns], share)
                    policy_learns = row is not None
                    rows += [row] if row is not None else []
        found = {name: float(np.mean([row[name] for row in rows])) for name in (rows[0] if rows else {})}
        return found | {"policy_steps": float(len(rows)), "value_loss": float(np.mean(value_losses))}

    def _value_step(
        self, part: Completions, round_: _Round, index: Tensor, columns: slice, share: float
    ) -> float:
        old = round_.values[index, columns] if self.config.value_clip is not None else None
        loss = rlhf_value_loss(
            self.value_model.values(part),
            round_.targets[index, columns],
            part.mask,
            old,
            self.config.value_clip,
        )
        rate = self.config.value_learning_rate * share
        gradient_step(self.value_optimizer, loss, rate, self.config.max_gradient_norm)
        return loss.item()

    def _policy_step(self, part: Completions, advantages: Tensor, share: float) -> dict[str, float] | None:
        """One gradient step; None, and no step, if the policy is beyond the limit already."""
        config = self.config
        log_prob, entropies = completion_log_probs(self.model, part, config.temperature)
        difference = (part.log_probs - log_prob.detach())[
            part.mask
        ]  # samples of the old policy: k3 of KL(old || new)
        step_kl = float((torch.expm1(-difference) + difference).mean())
        if config.step_kl_limit is not None and step_kl > config.step_kl_limit:
            return None
        entropy = masked_mean(entropies, part.mask)
        loss = total_loss(
            rlhf_policy_loss(log_prob, part.log_probs, advantages, part.mask, config.clip),
            entropy=entropy, entropy_coefficient=config.entropy_coefficient,
            pretraining_loss=self._pretraining_loss(len(part)), pretraining_coefficient=config.pretraining_coefficient,
        )  # fmt: skip
        gradient_step(self.optimizer, loss, config.learning_rate * share, config.max_gradient_norm)
        clipped = float((torch.expm1(-difference).abs() > config.clip).float().mean())
        return {"entropy": entropy.item(), "clipped": clipped, "step_kl": step_kl}

    def _pretraining_loss(self, count: int) -> Tensor | float:
        if self.config.pretraining_coefficient == 0:
            return 0.0
        batch = demonstrations(self.model, self.task, count, self.rng)
        return sft_loss(completion_log_probs(self.model, batch)[0], batch.mask)

    def snapshot(self) -> State:
        return {
            "config": config_dict(self.config), "seed": self.seed, "update": self.update, "tokens": self.tokens,
            "beta": self.beta, "model": pack(self.model), "value_model": pack(self.value_model),
            "optimizer": pack(self.optimizer), "value_optimizer": pack(self.value_optimizer),
            "rng": rng_state(self.rng), "generator": rng_state(self.generator),
        }  # fmt: skip

    def restore(self, state: State) -> None:
        self.update, self.tokens, self.beta = state["update"], state["tokens"], state["beta"]
        for name in ("model", "value_model", "optimizer", "value_optimizer"):
            unpack(getattr(self, name), state[name])
        set_rng_state(self.rng, state["rng"])
        set_rng_state(self.generator, state["generator"])


def train_rlhf(
    model: Any,
    task: TextTask,
    config: RLHFConfig | None = None,
    *,
    seed: int,
    value_model: RewardModel | None = None,
    reference: Any = None,
    reward: Any = None,
    **options: Any,
) -> TrainingResult:
    """Run ``iterate_rlhf`` out.

    Args:
        model: the policy; it is trained in place.
        task: makes training prompts, and rewards completions unless ``reward`` is given.
        config: the settings; default ``RLHFConfig()``.
        seed: of prompts, sampling and minibatches.
        value_model: as in ``iterate_rlhf``.
        reference: as in ``iterate_rlhf``.
        reward: as in ``iterate_rlhf``.
        options: state, progress, checkpoint, checkpoint_every and stop, as in ``training.train``.

    Returns:
        The trained policy, and the curves.

    Raises:
        ValueError: the state was made with other settings; a damaged checkpoint.
        RewardError: the reward raised or returned NaN; the last good checkpoint stays.
        TrainingError: a metric or a parameter is NaN.
    """

    def iterate(_: Any, config: RLHFConfig, **rest: Any) -> Iterator[Update]:
        return iterate_rlhf(
            model, task, config, value_model=value_model, reference=reference, reward=reward, **rest
        )

    return train(iterate, None, config or RLHFConfig(), seed=seed, **options)


@torch.no_grad()
def score_with(reward: Any, completions: Completions) -> Tensor:
    """(B,) scores of completions, from a rule or from a reward model.

    Args:
        reward: called with prompt, completion and whether it ended; or an object with
            ``scores(completions)``.
        completions: B of them.

    Returns:
        (B,).

    Raises:
        RewardError: a rule raised or returned NaN; the sample is named.
    """
    scores: Tensor = (
        reward.scores(completions) if hasattr(reward, "scores") else score_completions(reward, completions)
    )
    return scores


def _adam(model: Any, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0, betas=(0.9, 0.99))


def _explained(values: Tensor, targets: Tensor) -> float:
    """1 - Var(target - value) / Var(target); 0 where the targets do not vary."""
    spread = float(targets.var(correction=0))
    return 1.0 - float((targets - values).var(correction=0)) / spread if spread > 0 else 0.0


# --------------------------------------------------------------------------------------------------- the door


def _last(mask: Tensor) -> Tensor:
    """(B,) column of the last real token of each row."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, -1).amax(1)


def _checked_rows(mask: Tensor, **named: Tensor) -> Tensor:
    """The mask as booleans, no row empty, of everybody's shape; finite numbers where it is True."""
    if mask.dim() != 2 or 0 in mask.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}; expected (B, N), not empty")
    mask = mask.bool()
    if not mask.any(1).all():
        raise ValueError(
            f"row {int((~mask.any(1)).nonzero()[0])} of mask is empty; expected a real token in each"
        )
    for name, x in named.items():
        if x.shape != mask.shape:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; the mask has {tuple(mask.shape)}")
        if not x[mask].isfinite().all():
            raise ValueError(
                f"{name} holds NaN or infinite values at unmasked positions; expected finite numbers"
            )
    return mask


def _check_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value!r}; expected a finite number, 0 or more")
