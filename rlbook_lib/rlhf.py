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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Unpack

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rlbook_lib.checks import Array, Count, Finite, Floats, Natural, NotNegative, OpenUnitInterval, Positive
from rlbook_lib.checks import Probabilities, Seed, UnitInterval
from rlbook_lib.checks import checked, settings
from rlbook_lib.divergences import kl_divergence, kl_estimate
from rlbook_lib.fine_tuning import demonstrations, masked_mean, sft_loss
from rlbook_lib.language_model import Completions, LanguageModel, PerToken, RealTokens
from rlbook_lib.language_model import completion_log_probs, generate, sequence_log_prob
from rlbook_lib.ppo import clip_objective, explained_variance, value_loss
from rlbook_lib.returns import gae
from rlbook_lib.reward_model import RewardModel, preference_loss
from rlbook_lib.text_tasks import Reward, Scorer, TextTask, Watch, evaluate_accuracy, score_with
from rlbook_lib.training import Adam, Optimizer, Run, RunOptions, State, TrainingResult, Update
from rlbook_lib.training import frozen_copy, gradient_step, learning_rate_share, train

FloatArray = NDArray[np.float64]


@settings
class RLHFConfig:
    """Settings of PPO on a language model."""

    updates: Count = 40  #: rounds of sampling and training
    batch_size: Count = 512  #: prompts a round, one completion each; 64 to 1024
    epochs: Count = 2  #: passes over a round's completions; 1 to 4
    minibatches: Count = 4  #: gradient steps a pass; must divide batch_size
    learning_rate: Positive = 3e-4  #: of the policy's AdamW at its highest
    value_learning_rate: Positive = 1e-3  #: of the value model's
    warmup: Natural = 5  #: updates until the learning rates are at their highest
    final_share: UnitInterval = 0.1  #: share of the learning rates that is left at the end
    value_warmup: Natural = 3  #: updates at the start that train the value model only
    max_gradient_norm: Positive = 1.0  #: longer gradients are scaled down to this length
    clip: OpenUnitInterval = 0.2  #: half the width of the ratio's range; 0.1 to 0.3
    value_clip: Positive | None = 0.2  #: how far a value may move before its gradient stops; None lets it
    gamma: UnitInterval = 1.0  #: discount between tokens; 1 is usual, a late token is worth as much as an early one
    lam: UnitInterval = 0.95  #: of the generalized advantages
    beta: NotNegative = 0.02  #: price of a nat of divergence from the reference, in reward units; 0.01 to 0.3
    kl_target: Positive | None = None  #: nats a completion that ``adapt_beta`` steers beta to; None leaves it alone
    step_kl_limit: Positive | None = 0.05  #: nats a token (k3) from the sampling policy that end a pass; None for never
    entropy_coefficient: NotNegative = 0.0  #: weight of the entropy bonus
    pretraining_coefficient: NotNegative = 0.0  #: weight of the demonstrations' log-likelihood, the pretraining mix
    temperature: Positive = 1.0  #: of the sampling, and of the policy that is trained
    evaluate_every: Natural = 0  #: updates between greedy evaluations (metric "accuracy"); 0 for none

    def check_together(self) -> None:
        """Every minibatch has as many completions, and a price that is steered is above 0."""
        if self.batch_size % self.minibatches:
            raise ValueError(f"minibatches is {self.minibatches}; expected a divisor of batch_size = {self.batch_size}")
        if self.kl_target is not None and self.beta == 0:
            raise ValueError("beta is 0.0 and kl_target is set; expected a beta above 0 to steer")


# ------------------------------------------------------------------------------------ rewards and advantages


@checked(arrays="tensors")
def shape_rewards(
    scores: Floats[Array, "B"], log_prob: PerToken, log_prob_ref: PerToken, mask: RealTokens, beta: NotNegative
) -> Array:
    """The reward of each token: it pays beta for its log-ratio to the reference, and the last one gets the score.

    Equation: eq-shaped-reward

    ``log_prob`` is of the policy that sampled, NOT of the one that is being trained; ``log_prob_ref`` of the frozen
    reference; ``beta`` the price of a nat. The last position is the last unmasked one. A row's sum, of (B, N), is its
    score minus beta times its ``sequence_kl``.

    Source: Ouyang et al. (2022), equation 2; Shao et al. (2024), equation 2.
    """
    rewards = -beta * (log_prob - log_prob_ref).masked_fill(~mask, 0.0)
    rows = torch.arange(len(mask), device=mask.device)
    rewards[rows, _last(mask)] += scores.to(rewards.dtype)
    return rewards


def _last(mask: Tensor) -> Tensor:
    """(B,) column of the last real token of each row."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, -1).amax(1)


@checked(arrays="tensors")
def completion_gae(
    rewards: PerToken, values: PerToken, mask: RealTokens, gamma: UnitInterval = 1.0, lam: UnitInterval = 0.95
) -> tuple[Array, Array]:
    """Generalized advantages along each completion, which ends with its last real token.

    Equation: eq-completion-gae

    The end of sequence terminates the episode: nothing follows, and no value is added. A completion that was
    cut off at its longest length terminates too, because its score, given at that token, is all it will ever get.

    ``values`` are V before each token is written; advantages and value targets come back, both (B, N), 0 where masked.

    Source: Schulman et al. (2016), section 3.
    """
    rewards, values = rewards.masked_fill(~mask, 0.0), values.masked_fill(~mask, 0.0)
    ends = ~mask  # padding: episodes of one empty step
    ends[torch.arange(len(mask), device=mask.device), _last(mask)] = True
    next_values = F.pad(values[:, 1:], (0, 1))
    truncated = torch.zeros_like(ends)
    advantages, targets = gae(rewards.T, values.T, next_values.T, ends.T, truncated.T, gamma, lam)  # time first
    return advantages.T, targets.T


@checked(arrays="tensors")
def whiten(advantages: PerToken, mask: RealTokens) -> Array:
    """Advantages with mean 0 and standard deviation 1 over the real tokens of a batch; 0 elsewhere.

    Equation: eq-whitening

    The standard deviation divides by the number of tokens (ddof 0), plus 1e-8.
    """
    centered = (advantages - masked_mean(advantages, mask)).masked_fill(~mask, 0.0)
    return centered / (masked_mean(centered**2, mask).sqrt() + 1e-8)


# ------------------------------------------------------------------------------------------------- the losses


@checked(arrays="tensors")
def rlhf_policy_loss(
    log_prob: PerToken, log_prob_old: PerToken, advantages: PerToken, mask: RealTokens, clip: OpenUnitInterval = 0.2
) -> Array:
    """Minus PPO's clipped objective, averaged over the real tokens of the batch.

    Equation: eq-rlhf-policy-loss

    Source: Schulman et al. (2017), equation 7; Ouyang et al. (2022).
    """
    return -clip_objective(log_prob[mask], log_prob_old[mask], advantages[mask], clip).mean()


@checked(arrays="tensors")
def total_loss(
    policy_loss: Floats[Array, ""],
    *,
    entropy: Floats[Array, ""] = 0.0,
    entropy_coefficient: NotNegative = 0.0,
    pretraining_loss: Floats[Array, ""] = 0.0,
    pretraining_coefficient: NotNegative = 0.0,
) -> Array:
    """The policy's loss with an entropy bonus and the pretraining mix.

    Equation: eq-pretraining-mix

    The entropy, a mean over tokens in nats, is a bonus, so it is subtracted. ``pretraining_loss`` is the mean negative
    log-probability of text that the policy should not forget; its coefficient is gamma_ptx of the source.

    Source: Ouyang et al. (2022), equation 2, as a loss.
    """
    return policy_loss - entropy_coefficient * entropy + pretraining_coefficient * pretraining_loss


# ----------------------------------------------------------------------------------------------- the training


@dataclass
class RLHFRun(Run):
    """A run of PPO on a language model."""

    model: LanguageModel
    value_model: RewardModel
    optimizer: Optimizer
    value_optimizer: Optimizer
    rng: np.random.Generator  # of prompts and minibatches
    generator: torch.Generator  # of the sampling
    beta: float  # the price of the divergence


@checked
def iterate_rlhf(
    model: LanguageModel,
    task: TextTask,
    config: RLHFConfig | None = None,
    *,
    seed: Seed,
    value_model: RewardModel | None = None,
    reference: LanguageModel | None = None,
    reward: Reward | Scorer | None = None,
    watch: Watch | None = None,
    state: State | None = None,
) -> Iterator[Update]:
    """Train a language model with PPO, one round of sampling an update; the rest as for every trainer (``training``).

    Args:
        model: the policy; it is trained in place.
        task: makes training prompts, and rewards completions unless ``reward`` is given.
        value_model: V of the token MDP, trained in place; default: the policy's trunk with a new scalar head.
        reference: default: a copy of the policy as it comes. A run that goes on from a state needs it again.
        reward: called with prompt, completion and whether it ended; or a reward model.
        watch: called with each round's completions and their scores (B,) before the models learn from them;
            what it returns joins the metrics.

    Yields:
        One record an update; ``env_steps`` counts sampled tokens. Metrics: reward (mean score), kl (to the
        reference, nats a completion), beta, length, entropy, clipped, step_kl (nats a token), policy_steps
        (gradient steps before the limit), value_loss (half the mean squared error, before each step),
        explained_variance (of the values before the update), and accuracy where it was evaluated.

    Raises:
        ValueError: a state comes without its reference.
        RewardError: the reward raised or returned NaN; the sample is named.
    """
    config = config or RLHFConfig()
    if state is not None and reference is None:
        raise ValueError("reference is missing: a run goes on only with the reference it began with")
    rng = np.random.default_rng(seed)
    draws = torch.Generator(next(model.parameters()).device).manual_seed(int(rng.integers(2**62)))
    value_model = RewardModel(model) if value_model is None else value_model
    reference = frozen_copy(model) if reference is None else reference
    reward = task.reward if reward is None else reward
    adam = partial(Adam, betas=(0.9, 0.99), fused=False)
    optimizer = adam(model.parameters(), config.learning_rate)
    value_optimizer = adam(value_model.parameters(), config.value_learning_rate)
    run = RLHFRun(config, seed, model, model, value_model, optimizer, value_optimizer, rng, draws, config.beta)
    yield from run.go_on(state)
    while not run.ended:
        # sample a completion of each prompt, score it, and say of each token how good it was
        batch = generate(
            model,
            task.prompts(config.batch_size, rng, "train"),
            max_new_tokens=task.max_new_tokens,
            temperature=config.temperature,
            generator=draws,
        )
        scores = score_with(reward, batch)  # (B,)
        samples, metrics = _judge(run, batch, scores, reference)
        if watch is not None:
            metrics |= watch(batch, scores) or {}
        # learn: the values always, the policy after its time of waiting and until it has moved far enough
        share = learning_rate_share(run.update, config.updates, config.warmup, config.final_share)
        learns, rows, errors = run.update >= config.value_warmup, [], []
        for _ in range(config.epochs):
            order = torch.from_numpy(rng.permutation(len(batch))).to(scores.device)
            for index in order.chunk(config.minibatches):
                part = samples.take(index)
                errors.append(_value_step(run, part, share))
                row = _policy_step(run, part, share, task) if learns else None
                learns = row is not None
                rows += [row] if row is not None else []
        metrics |= {name: float(np.mean([row[name] for row in rows])) for name in (rows[0] if rows else {})}
        metrics |= {"policy_steps": float(len(rows)), "value_loss": float(np.mean(errors))}
        if config.kl_target is not None:
            run.beta = adapt_beta(run.beta, metrics["kl"], config.kl_target)
        if config.evaluate_every and (run.update + 1) % config.evaluate_every == 0:
            metrics["accuracy"] = evaluate_accuracy(model, task)
        yield run.record(metrics, int(batch.mask.sum()))


@dataclass(frozen=True)
class _Samples:
    """What one round of sampling leaves for training; all tensors (B, N)."""

    completions: Completions
    values: Tensor
    advantages: Tensor
    targets: Tensor

    def take(self, rows: Tensor) -> _Samples:
        """Some of the rows, cut to their longest completion."""
        part = self.completions.take(rows)
        cut = (x[rows, : part.mask.shape[1]] for x in (self.values, self.advantages, self.targets))
        return _Samples(part, *cut)


@torch.no_grad()
def _judge(
    run: RLHFRun, batch: Completions, scores: Tensor, reference: LanguageModel
) -> tuple[_Samples, dict[str, float]]:
    """Token rewards, advantages and value targets of a round, all under the models as they are before it."""
    config: RLHFConfig = run.config
    log_prob_ref, _ = completion_log_probs(reference, batch, config.temperature)
    rewards = shape_rewards(scores, batch.log_probs, log_prob_ref, batch.mask, run.beta)
    values = run.value_model.values(batch)
    advantages, targets = completion_gae(rewards, values, batch.mask, config.gamma, config.lam)
    metrics = {
        "reward": float(scores.mean()),
        "kl": float(sequence_kl(batch.log_probs, log_prob_ref, batch.mask).mean()),
        "beta": run.beta,
        "length": float(batch.lengths.float().mean()),
        "explained_variance": explained_variance(values[batch.mask], targets[batch.mask]),
    }
    return _Samples(batch, values, whiten(advantages, batch.mask), targets), metrics


def _value_step(run: RLHFRun, part: _Samples, share: float) -> float:
    """One gradient step, by the real tokens alone; half the mean squared error before it."""
    config, mask = run.config, part.completions.mask
    values, targets = run.value_model.values(part.completions)[mask], part.targets[mask]
    loss = value_loss(values, targets, None if config.value_clip is None else part.values[mask], config.value_clip)
    gradient_step(run.value_optimizer, loss, config.value_learning_rate * share, config.max_gradient_norm)
    return float(value_loss(values.detach(), targets))


def _policy_step(run: RLHFRun, part: _Samples, share: float, task: TextTask) -> dict[str, float] | None:
    """One gradient step; None, and no step, if the policy is beyond the limit already."""
    config: RLHFConfig = run.config
    batch = part.completions
    log_prob, entropies = completion_log_probs(run.model, batch, config.temperature)
    new, old = log_prob.detach()[batch.mask], batch.log_probs[batch.mask]
    step_kl = float(kl_estimate(old, new, "k3").mean())  # KL(old || new): the old one sampled
    if config.step_kl_limit is not None and step_kl > config.step_kl_limit:
        return None
    entropy = masked_mean(entropies, batch.mask)
    pretraining_loss: Tensor | float = 0.0
    if config.pretraining_coefficient > 0:
        shown = demonstrations(run.model, task, len(batch), run.rng)
        pretraining_loss = sft_loss(completion_log_probs(run.model, shown)[0], shown.mask)
    loss = total_loss(
        rlhf_policy_loss(log_prob, batch.log_probs, part.advantages, batch.mask, config.clip),
        entropy=entropy,
        entropy_coefficient=config.entropy_coefficient,
        pretraining_loss=pretraining_loss,
        pretraining_coefficient=config.pretraining_coefficient,
    )
    gradient_step(run.optimizer, loss, config.learning_rate * share, config.max_gradient_norm)
    clipped = float((torch.expm1(new - old).abs() > config.clip).float().mean())
    return {"entropy": entropy.item(), "clipped": clipped, "step_kl": step_kl}


@checked
def train_rlhf(
    model: LanguageModel,
    task: TextTask,
    config: RLHFConfig | None = None,
    *,
    seed: Seed,
    value_model: RewardModel | None = None,
    reference: LanguageModel | None = None,
    reward: Reward | Scorer | None = None,
    watch: Watch | None = None,
    **options: Unpack[RunOptions],
) -> TrainingResult:
    """Run ``iterate_rlhf`` out; options as in ``training.RunOptions``."""
    begin = partial(iterate_rlhf, model, task, value_model=value_model, reference=reference, reward=reward, watch=watch)
    return train(begin, config or RLHFConfig(), seed=seed, **options)


# ------------------------------------------------------------------------------ the divergence and its price


@checked
def adapt_beta(beta: Positive, kl: Finite, target: Positive, gain: Positive = 0.1) -> float:
    """Steer the price of divergence: raise it when completions are further from the reference than wanted.

    Equation: eq-kl-controller

    beta (1 + K clip(kl / target - 1, -0.2, 0.2)), with the gain K; kl and target in nats a completion.

    Source: Ziegler et al. (2019), section 2.2.
    """
    return beta * (1 + gain * min(0.2, max(-0.2, kl / target - 1)))


@checked(arrays="tensors")
def sequence_kl(log_prob: PerToken, log_prob_ref: PerToken, mask: RealTokens) -> Array:
    """How far each sampled completion says the policy is from the reference: log pi(o|q) - log pi_ref(o|q), nats.

    Equation: eq-sequence-kl

    ``log_prob`` is of the policy that sampled. The mean over its samples is the divergence of the distributions over
    whole completions. A single one may be negative.
    """
    return sequence_log_prob(log_prob, mask) - sequence_log_prob(log_prob_ref, mask)


# ---------------------------------------------------------------------------------- the objective, exactly


@checked
def rlhf_objective(
    policy: Probabilities[Array, "A"],
    rewards: Floats[Array, "A"],
    reference: Probabilities[Array, "A"],
    beta: NotNegative,
) -> float:
    """What RLHF maximizes, for one prompt and a few answers: expected reward minus beta KL(policy || reference).

    Equation: eq-rlhf-objective

    Source: Ziegler et al. (2019), section 2.
    """
    divergence = float(kl_divergence(policy, reference))
    return float(policy @ rewards) - (beta * divergence if beta > 0 else 0.0)


@checked
def rlhf_optimum(rewards: Floats[Array, "A"], reference: Probabilities[Array, "A"], beta: Positive) -> FloatArray:
    """The policy that maximizes it: the reference, reweighted by exp(reward / beta).

    Equation: eq-rlhf-optimum

    Source: Rafailov et al. (2023), equation 4.
    """
    with np.errstate(over="ignore"):  # a reward that is infinitely many betas below the best one has the weight 0
        below = np.minimum(rewards - rewards[reference > 0].max(), 0.0) / beta  # the best of what the reference can do
    weights = reference * np.exp(below)
    return np.asarray(weights / weights.sum())


@checked(arrays="tensors")
def dpo_loss(
    log_prob_chosen: Floats[Array, "..."],
    log_prob_rejected: Floats[Array, "..."],
    ref_chosen: Floats[Array, "..."],
    ref_rejected: Floats[Array, "..."],
    beta: Positive,
) -> Array:
    """Direct preference optimization: the pairwise loss with beta times the log-ratio to the reference as the score.

    Equation: eq-dpo-loss

    No reward model and no sampling: at its minimum the policy is ``rlhf_optimum`` for the rewards behind the
    preferences. All four are log pi(o|q) of whole completions, two of them under the reference.

    Source: Rafailov et al. (2023), equation 7.
    """
    return preference_loss(beta * (log_prob_chosen - ref_chosen), beta * (log_prob_rejected - ref_rejected))
