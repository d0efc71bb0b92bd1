"""From preferences to a reward: the Bradley-Terry model, the pairwise loss, and a reward model (chapter 11).

Bradley and Terry give each item i a strength p_i > 0 and say that i beats j with probability p_i / (p_i +
p_j). With r_i = log p_i that is the sigmoid of the difference r_i - r_j. A reward model replaces the table of
strengths by a network that reads a prompt and a completion, and is fitted by the same likelihood.

A table of wins holds at [i, j] how often i beat j; its diagonal is 0, and it has two items or more, else a ValueError.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Unpack

import numpy as np
import scipy  # loads scipy.special and scipy.sparse at their first use
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook_lib.checks import Array, Count, Floats, NotNegative, Positive, Range, Seed, checked, settings
from rlbook_lib.language_model import Completions, LanguageModel
from rlbook_lib.text_tasks import PreferencePairs, Scorer
from rlbook_lib.training import Adam, Optimizer, Run, RunOptions, State, TrainingResult, Update
from rlbook_lib.training import gradient_step, learning_rate_share, train

FloatArray = NDArray[np.float64]
ABOVE_0 = Range(0, open_low=True)


# ---------------------------------------------------------------------------------------------- Bradley-Terry


@checked
def bradley_terry_probability(strength: Floats[Array, "*", ABOVE_0], other: Floats[Array, "*", ABOVE_0]) -> Array:
    """The chance that an item of one strength beats an item of another: p_i / (p_i + p_j).

    Equation: eq-bradley-terry

    Source: Bradley & Terry (1952).
    """
    return strength / (strength + other)


@checked
def bradley_terry_log_likelihood(wins: Floats[Array, "K K", Range(0)], strengths: Floats[Array, "K", ABOVE_0]) -> float:
    """How probable the observed wins are, as a sum of logarithms: sum over i, j of wins_ij log P(i beats j).

    Equation: eq-bradley-terry-likelihood
    """
    _require_games(wins)
    return _log_likelihood(wins, np.log(strengths))


def _log_likelihood(wins: FloatArray, scores: FloatArray) -> float:
    """The same by the logarithms of the strengths, whose differences neither overflow nor vanish."""
    return float((wins * scipy.special.log_expit(scores[:, None] - scores[None, :])).sum())


@checked
def bradley_terry_mm_step(wins: Floats[Array, "K K", Range(0)], strengths: Floats[Array, "K", ABOVE_0]) -> FloatArray:
    """One round of Zermelo's iteration: the wins of each item over the wins that its strength would lead one to expect.

    Equation: eq-bradley-terry-mm

    p_i becomes W_i / sum_j n_ij / (p_i + p_j), where W_i counts the wins of i and n_ij its games against j;
    then the strengths are scaled to sum to 1. The likelihood never falls.

    Source: Zermelo (1929); Hunter (2004).
    """
    _require_games(wins)
    games = wins + wins.T
    new = wins.sum(1) / (games / (strengths[:, None] + strengths[None, :])).sum(1)
    return np.asarray(new / new.sum())


@checked
def bradley_terry_mle(wins: Floats[Array, "K K", Range(0)]) -> FloatArray:
    """The strengths (K,), summing to 1, under which the observed wins are most probable.

    Raises:
        ValueError: no unique finite maximum, because the items fall into two groups of which one never lost to the other
            (or never met it).

    Source: Ford (1957) for when the maximum exists; Hunter (2004).
    """
    _require_games(wins)
    _require_maximum(wins)
    strengths = np.full(len(wins), 1.0 / len(wins))
    for _ in range(100_000):
        new = bradley_terry_mm_step(wins, strengths)
        if (np.abs(new - strengths) <= 1e-12 * new).all():
            return new
        strengths = new
    return strengths


@checked
def bradley_terry_newton(wins: Floats[Array, "K K", Range(0)]) -> tuple[FloatArray, FloatArray]:
    """The same maximum by logistic regression: Newton's method on the log-strengths, with their uncertainty.

    Each Newton step is halved until the likelihood rises. Strengths that sum to 1 come back, and the covariance (K, K) of the
    log-strengths measured from the last item: its row and column are 0.
    """
    _require_games(wins)
    _require_maximum(wins)
    games, free = wins + wins.T, slice(0, len(wins) - 1)  # the last log-strength is held at 0
    scores = np.zeros(len(wins))
    for _ in range(50):
        chances = scipy.special.expit(scores[:, None] - scores[None, :])
        gradient = (wins - games * chances).sum(1)
        information = _information(games, chances)
        step = np.zeros(len(wins))
        step[free] = np.linalg.solve(information[free, free], gradient[free])
        before = _log_likelihood(wins, scores)
        while _log_likelihood(wins, scores + step) < before and np.abs(step).max() > 1e-14:
            step /= 2
        scores = scores + step
        if np.abs(step).max() < 1e-13:
            break
    covariance = np.zeros(wins.shape)
    chances = scipy.special.expit(scores[:, None] - scores[None, :])
    covariance[free, free] = np.linalg.inv(_information(games, chances)[free, free])
    strengths = np.exp(scores - scores.max())
    return strengths / strengths.sum(), covariance


def _information(games: FloatArray, chances: FloatArray) -> FloatArray:
    """Minus the Hessian of the log-likelihood in the log-strengths."""
    weights = games * chances * (1 - chances)
    return np.diag(weights.sum(1)) - weights


def _require_games(wins: FloatArray) -> None:
    if len(wins) < 2:
        raise ValueError(f"wins has shape {wins.shape}; expected (K, K) with K at least 2")
    if np.diag(wins).any():
        raise ValueError(f"wins has the diagonal {np.diag(wins)}; expected 0: nobody beats himself")


def _require_maximum(wins: FloatArray) -> None:
    """Up to the scale there is one finite maximum if and only if a chain of wins leads from every item to every other."""
    groups, group = scipy.sparse.csgraph.connected_components(wins > 0, directed=True, connection="strong")
    if groups > 1:
        members = [np.flatnonzero(group == g).tolist() for g in range(groups)]
        raise ValueError(
            f"wins has no unique finite maximum: between the groups of items {members} no chain of wins leads both ways"
        )


# ------------------------------------------------------------------------------------------ the pairwise loss


@checked(arrays="tensors")
def preference_probability(score_chosen: Floats[Array, "..."], score_rejected: Floats[Array, "..."]) -> Array:
    """The chance that the first of two completions is preferred: sigmoid of the margin of their scores.

    Equation: eq-preference-probability

    Source: Stiennon et al. (2020), section 3.4.
    """
    return torch.sigmoid(score_chosen - score_rejected)


@checked(arrays="tensors")
def preference_loss(score_chosen: Floats[Array, "B"], score_rejected: Floats[Array, "B"]) -> Array:
    """Mean negative log-probability of the observed preferences: -log sigmoid(margin).

    Equation: eq-preference-loss

    To be minimized; log 2 where the scores say nothing.

    Source: Stiennon et al. (2020), section 3.4; Ouyang et al. (2022), equation 1.
    """
    return -F.logsigmoid(score_chosen - score_rejected).mean()


# ------------------------------------------------------------------------------------------- the reward model


class RewardModel(nn.Module):
    """A copy of a language model's trunk with a scalar head, which starts at zero.

    Read at the last token of a completion, the scalar scores it. Read before each token, it can serve as a
    value function of the token MDP (chapter 12).
    """

    @checked
    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(model)
        self.trunk.requires_grad_(True)  # type: ignore[attr-defined]
        if isinstance(getattr(self.trunk, "head", None), nn.Module):
            self.trunk.head = nn.Identity()  # type: ignore[method-assign]  # the head that predicts tokens has no use here
        device = next(model.parameters()).device
        self.score = nn.Linear(model.width, 1, device="meta")  # draws nothing from the global generator
        self.score.weight = nn.Parameter(torch.zeros(1, model.width, device=device))
        self.score.bias = nn.Parameter(torch.zeros(1, device=device))

    @checked
    def scores(self, completions: Completions) -> Tensor:
        """(B,): the scalar at the last real token of each completion."""
        last = completions.prompt_tokens.shape[1] + completions.lengths - 1  # (B,)
        return self._scalars(self.trunk.hidden(*completions.whole)).gather(1, last[:, None])[:, 0]

    @checked
    def values(self, completions: Completions) -> Tensor:
        """(B, N): the scalar BEFORE each completion token is written, when the prompt and the tokens so far are known."""
        hidden = self.trunk.predicting(*completions.whole, completions.prompt_tokens.shape[1])
        return self._scalars(hidden).masked_fill(~completions.mask, 0.0)

    def _scalars(self, hidden: Tensor) -> Tensor:
        scalars: Tensor = self.score(hidden.to(self.score.weight.dtype))[..., 0]
        return scalars


@settings
class RewardModelConfig:
    """Settings of a reward model's training."""

    epochs: Count = 4  #: passes over the pairs; 1 where data is plenty; more lets it memorize
    batch_size: Count = 64  #: pairs in a gradient step
    learning_rate: Positive = 1e-3  #: of AdamW at its highest
    weight_decay: NotNegative = 0.01  #: of AdamW
    max_gradient_norm: Positive = 1.0  #: longer gradients are scaled down to this length

    @property
    def updates(self) -> int:
        """One update is an epoch."""
        return self.epochs


@dataclass
class RewardModelRun(Run):
    """A run of the fit to preference pairs."""

    model: RewardModel
    optimizer: Optimizer
    rng: np.random.Generator


@checked
def iterate_reward_model(
    model: RewardModel,
    pairs: PreferencePairs,
    config: RewardModelConfig | None = None,
    *,
    seed: Seed,
    state: State | None = None,
) -> Iterator[Update]:
    """Fit a reward model, in place, to preference pairs, one epoch an update; the rest as for every trainer.

    Yields:
        One record an epoch; ``env_steps`` counts pairs; metrics: loss, accuracy (share of training pairs
        ranked as they were).

    Raises:
        ValueError: no pairs.
    """
    config = config or RewardModelConfig()
    if not len(pairs):
        raise ValueError("pairs is empty; expected at least one")
    rng = np.random.default_rng(seed)
    optimizer = Adam(model.parameters(), config.learning_rate, decay=config.weight_decay, fused=False)
    run = RewardModelRun(config, seed, model, model, optimizer, rng)
    yield from run.go_on(state)
    while not run.ended:
        share = learning_rate_share(run.update, config.epochs, 1, 0.1)
        losses, right = [], 0
        for index in torch.from_numpy(rng.permutation(len(pairs))).split(config.batch_size):
            part = pairs.take(index)
            chosen, rejected = model.scores(part.chosen), model.scores(part.rejected)
            loss = preference_loss(chosen, rejected)
            gradient_step(optimizer, loss, config.learning_rate * share, config.max_gradient_norm)
            losses.append(loss.item() * len(index))
            right += int((chosen > rejected).sum())
        metrics = {"loss": sum(losses) / len(pairs), "accuracy": right / len(pairs)}
        yield run.record(metrics, len(pairs))


@checked
def train_reward_model(
    model: RewardModel,
    pairs: PreferencePairs,
    config: RewardModelConfig | None = None,
    *,
    seed: Seed,
    **options: Unpack[RunOptions],
) -> TrainingResult:
    """Run ``iterate_reward_model`` out; options as in ``training.RunOptions``."""
    return train(partial(iterate_reward_model, model, pairs), config or RewardModelConfig(), seed=seed, **options)


@checked
@torch.no_grad()
def preference_accuracy(model: Scorer, pairs: PreferencePairs) -> float:
    """Share of pairs that the model ranks as the hidden score does; ties are left out.

    The judges' noise is left out too: a pair in which a judge erred counts as right if the model sides with
    the hidden score. The pairs should be such that it was not trained on.

    Raises:
        ValueError: all pairs are ties.
    """
    untied = pairs.margins != 0
    if not untied.any():
        raise ValueError("pairs holds ties only; expected at least one pair with a better side")
    margin = (model.scores(pairs.chosen) - model.scores(pairs.rejected)).cpu()[untied]
    return float((torch.sign(margin) == torch.sign(pairs.margins[untied])).float().mean())
