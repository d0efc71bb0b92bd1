"""Bradley-Terry two ways against reference values and a general optimizer; the pairwise loss; the reward model."""

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from rlbook_lib.language_model import Transformer, encode_completions
from rlbook_lib.reward_model import (
    RewardModel,
    RewardModelConfig,
    bradley_terry_log_likelihood,
    bradley_terry_mle,
    bradley_terry_mm_step,
    bradley_terry_newton,
    bradley_terry_probability,
    iterate_reward_model,
    preference_accuracy,
    preference_loss,
    preference_probability,
    train_reward_model,
)
from rlbook_lib.text_tasks import PreferencePairs, Sorting, preference_pairs
from tests.language_models import alone, descend, same_weights, small_model

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text("utf-8"))["bradley_terry"]
WINS = np.array(REFERENCE["wins"])


def random_wins(seed: int, items: int) -> np.ndarray:
    wins = np.random.default_rng(seed).integers(1, 9, size=(items, items)).astype(float)
    np.fill_diagonal(wins, 0)
    return wins


# -------------------------------------------------------------------------------------------------- Bradley-Terry


@pytest.mark.equation("eq-bradley-terry")
def test_probabilities_of_the_table():
    a, b, c = REFERENCE["strengths_sum1"]
    assert bradley_terry_probability(a, b) == pytest.approx(REFERENCE["P"]["A_beats_B"], abs=1e-9)
    assert bradley_terry_probability(a, c) == pytest.approx(REFERENCE["P"]["A_beats_C"], abs=1e-9)
    assert bradley_terry_probability(b, c) == pytest.approx(REFERENCE["P"]["B_beats_C"], abs=1e-9)
    # the same number as the sigmoid of the difference of the logarithms, and free of the scale
    assert bradley_terry_probability(7 * a, 7 * b) == pytest.approx(1 / (1 + math.exp(math.log(b) - math.log(a))))


@pytest.mark.equation("eq-bradley-terry-likelihood")
def test_likelihood_is_the_logarithm_of_the_product():
    strengths = REFERENCE["strengths_sum1"]
    product = 1.0
    for i in range(3):
        for j in range(3):
            for _ in range(int(WINS[i, j])):
                product *= strengths[i] / (strengths[i] + strengths[j])
    found = bradley_terry_log_likelihood(WINS, strengths)
    assert found == pytest.approx(math.log(product), abs=1e-9)
    assert found == pytest.approx(REFERENCE["loglik"], abs=1e-9)
    assert bradley_terry_log_likelihood(WINS, np.ones(3)) == pytest.approx(REFERENCE["loglik_equal"], abs=1e-9)


def test_both_ways_reach_the_reference():
    newton, covariance = bradley_terry_newton(WINS)
    for strengths in (bradley_terry_mle(WINS), newton):
        assert strengths == pytest.approx(REFERENCE["strengths_sum1"], abs=1e-10)
        assert strengths.sum() == pytest.approx(1.0)
    assert np.sqrt(np.diag(covariance))[:2] == pytest.approx(REFERENCE["std_err_vs_C"], abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_maximum_is_that_of_a_general_optimizer(seed):
    wins = random_wins(seed, items=5)

    def minus_likelihood(free):
        r = np.append(free, 0.0)
        return (wins * np.logaddexp(0, r[None, :] - r[:, None])).sum()

    best = np.exp(np.append(minimize(minus_likelihood, np.zeros(4), tol=1e-14).x, 0.0))
    for strengths in (bradley_terry_mle(wins), bradley_terry_newton(wins)[0]):
        assert strengths == pytest.approx(best / best.sum(), abs=1e-5)


@pytest.mark.equation("eq-bradley-terry-mm")
def test_a_round_is_fair_at_the_maximum_and_never_lowers_the_likelihood():
    strengths = bradley_terry_mle(WINS)
    expected_wins = ((WINS + WINS.T) * bradley_terry_probability(strengths[:, None], strengths[None, :])).sum(1)
    assert expected_wins == pytest.approx(WINS.sum(1), abs=1e-8)  # the equation that the maximum solves
    assert bradley_terry_mm_step(WINS, strengths) == pytest.approx(strengths, abs=1e-11)
    first = WINS.sum(1) / (WINS + WINS.T).sum(1)  # from equal strengths: each item's share of wins in its games
    assert bradley_terry_mm_step(WINS, np.ones(3)) == pytest.approx(first / first.sum(), abs=1e-12)
    for seed in range(5):
        wins, p = random_wins(seed, 4), np.random.default_rng(seed).dirichlet(np.ones(4))
        before = bradley_terry_log_likelihood(wins, p)
        assert bradley_terry_log_likelihood(wins, bradley_terry_mm_step(wins, p)) > before


@pytest.mark.parametrize(
    ("wins", "message"),
    [
        ([[0, 3], [0, 0]], "no unique finite maximum"),  # one never lost
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], "no unique finite maximum"),  # one never played
        ([[0, 2, 1], [1, 0, 1], [0, 0, 0]], "no unique finite maximum"),  # one never won
        ([[1, 2], [1, 0]], "diagonal"),
        ([[0, -1], [1, 0]], "wins .*; expected .* 0 or more"),
        ([[0, 1, 2], [1, 0, 1]], "shape"),
        ([[0]], "shape"),
        ([[0, math.nan], [1, 0]], "infinite"),
    ],
)
@pytest.mark.parametrize("fit", [bradley_terry_mle, bradley_terry_newton])
def test_bad_tables(fit, wins, message):
    with pytest.raises(ValueError, match=message):
        fit(wins)


@pytest.mark.parametrize("strength", [0.0, -1.0, math.inf])
def test_bad_strengths(strength):
    with pytest.raises(ValueError, match="strength holds"):
        bradley_terry_probability(strength, 1.0)
    with pytest.raises(ValueError, match="strengths holds"):
        bradley_terry_log_likelihood(WINS, [strength, 1.0, 1.0])


@pytest.mark.parametrize("power", [-1000, 3])
def test_a_power_of_two_in_the_counts_changes_no_digit(power):
    factor = 2.0**power
    assert np.array_equal(bradley_terry_mle(WINS * factor), bradley_terry_mle(WINS))
    assert np.array_equal(bradley_terry_mm_step(WINS * factor, np.ones(3)), bradley_terry_mm_step(WINS, np.ones(3)))
    (strengths, covariance), (as_counted, spread) = bradley_terry_newton(WINS * factor), bradley_terry_newton(WINS)
    assert np.array_equal(strengths, as_counted)
    assert covariance * factor == pytest.approx(spread, rel=1e-9)


def test_strengths_of_very_different_sizes():
    """The loser's chance is too small for a float, and its logarithm counts as often as it won: not at all."""
    assert bradley_terry_log_likelihood([[0, 5], [0, 0]], [1e200, 1e-200]) == 0.0
    assert bradley_terry_log_likelihood([[0, 5], [1, 0]], [1e200, 1e-200]) == pytest.approx(-400 * math.log(10))


# ---------------------------------------------------------------------------------------------- the pairwise loss


@pytest.mark.equation("eq-preference-probability")
def test_preference_probability_is_bradley_terry_with_exponential_strengths():
    chosen, rejected = torch.tensor([0.3, -2.0, 5.0]), torch.tensor([0.1, 4.0, 5.0])
    expected = bradley_terry_probability(chosen.exp().numpy(), rejected.exp().numpy())
    assert preference_probability(chosen, rejected).numpy() == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(
        preference_probability(chosen + 9, rejected + 9), preference_probability(chosen, rejected), atol=1e-6
    )


@pytest.mark.equation("eq-preference-loss")
def test_the_loss_on_the_table_is_minus_the_mean_log_likelihood():
    scores = np.log(REFERENCE["strengths_sum1"])
    games = [(i, j) for i in range(3) for j in range(3) for _ in range(int(WINS[i, j]))]
    chosen, rejected = (torch.tensor([scores[game[side]] for game in games]) for side in (0, 1))
    assert preference_loss(chosen, rejected).item() == pytest.approx(REFERENCE["mean_loss"], abs=1e-9)
    assert preference_loss(chosen, rejected).item() == pytest.approx(-REFERENCE["loglik"] / len(games), abs=1e-9)


def test_the_gradient_of_the_loss_is_what_the_model_did_not_expect():
    chosen, rejected = torch.tensor([0.4, -1.0], requires_grad=True), torch.tensor([1.0, 2.0], requires_grad=True)
    preference_loss(chosen, rejected).backward()
    surprise = 1 - preference_probability(chosen, rejected).detach()
    assert torch.allclose(chosen.grad, -surprise / 2)
    assert torch.allclose(rejected.grad, surprise / 2)


def test_the_loss_rises_with_a_wrong_margin_and_survives_large_ones():
    assert preference_loss(torch.zeros(3), torch.zeros(3)).item() == pytest.approx(math.log(2))
    assert preference_loss(torch.tensor([-200.0]), torch.tensor([0.0])).item() == pytest.approx(200.0)
    assert preference_loss(torch.tensor([200.0]), torch.tensor([0.0])).item() == pytest.approx(0.0, abs=1e-6)


# ---------------------------------------------------------------------------------------------- the reward model


def test_a_new_reward_model_says_nothing():
    model = small_model()
    pairs = preference_pairs(model, Sorting(), 20, seed=0)
    assert (RewardModel(model).scores(pairs.chosen) == 0).all()


def shaken(model: Transformer) -> RewardModel:
    reward_model = RewardModel(model)
    with torch.no_grad():
        reward_model.score.weight.normal_(generator=torch.Generator().manual_seed(0))
    return reward_model


def test_the_score_is_read_at_the_last_real_token():
    model = small_model()
    reward_model = shaken(model)
    completions = encode_completions(model, ["5283=", "10="], ["2358", "01"])
    for row in range(2):
        alone = completions.take(torch.tensor([row]))
        assert torch.allclose(reward_model.scores(alone), reward_model.scores(completions)[row : row + 1], atol=1e-5)
        tokens = torch.cat([alone.prompt_tokens, alone.tokens], 1)[:, -int(alone.lengths) - len(alone.prompts[0]) :]
        hidden = model.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool))[0, -1]
        assert torch.allclose(reward_model.score(hidden), reward_model.scores(alone), atol=1e-5)


def test_values_know_the_past_only():
    model = small_model()
    reward_model = shaken(model)
    one = encode_completions(model, ["5283="], ["2358"])
    two = encode_completions(model, ["5283="], ["2359"])
    values = [reward_model.values(x)[0] for x in (one, two)]
    assert torch.equal(values[0][:4], values[1][:4])  # before the fourth digit is written the two agree
    assert not torch.allclose(values[0][4], values[1][4])


def test_the_trunk_is_a_copy():
    model = small_model()
    reward_model = shaken(model)
    before = [p.clone() for p in model.parameters()]
    train_reward_model(
        reward_model, preference_pairs(model, Sorting(), 32, seed=0), RewardModelConfig(epochs=1), seed=0
    )
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert any(p.requires_grad for p in reward_model.parameters())


def test_two_epochs_number_by_number():
    """In plain torch, a completion at a time: loss, accuracy and weights."""
    language_model = small_model().double()
    pairs, model = preference_pairs(language_model, Sorting(), 6, seed=0), shaken(language_model).double()
    plain, rng = copy.deepcopy(model), np.random.default_rng(3)
    config = RewardModelConfig(epochs=3, batch_size=4, learning_rate=1e-2, weight_decay=0.1, max_gradient_norm=0.5)
    run = iterate_reward_model(model, pairs, config, seed=3)
    optimizer = torch.optim.AdamW(plain.parameters(), betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    for share in (1.0, 2 / 3):
        losses, right, order = [], 0, rng.permutation(6).tolist()
        for index in (order[:4], order[4:]):
            last = [[alone(plain.trunk, side, i)[2][-1] for i in index] for side in (pairs.chosen, pairs.rejected)]
            chosen, rejected = (torch.stack(h) @ plain.score.weight[0] + plain.score.bias for h in last)
            terms = -(1 / (1 + (rejected - chosen).exp())).log()
            losses, right = losses + terms.tolist(), right + int((chosen > rejected).sum())
            descend(optimizer, terms.mean(), 1e-2 * share, 0.5)
        expected = {"loss": np.mean(losses), "accuracy": right / 6}
        assert next(run).metrics == pytest.approx(expected, rel=1e-6)
    assert same_weights(model, plain)


class Length:
    """The judge likes long answers."""

    def __call__(self, prompt, text, finished):
        return float(len(text))


@pytest.mark.slow
def test_a_reward_model_learns_what_the_judge_likes():
    model = small_model()
    pairs = preference_pairs(model, Sorting(), 500, seed=0, score=Length(), sharpness=3.0)
    held_out = preference_pairs(model, Sorting(), 300, seed=1, score=Length(), split="eval")
    reward_model = RewardModel(model)
    result = train_reward_model(reward_model, pairs, RewardModelConfig(epochs=12, learning_rate=2e-3), seed=0)
    assert result.history["loss"][-1] < 0.7 * math.log(2)
    assert preference_accuracy(reward_model, held_out) > 0.87


def test_accuracy_by_hand():
    class Table:
        def scores(self, completions):
            return torch.tensor([float(len(text)) for text in completions.texts])

    model = small_model()
    chosen = encode_completions(model, ["1=", "2=", "3=", "4="], ["11", "2", "33", "4"])
    rejected = encode_completions(model, ["1=", "2=", "3=", "4="], ["1", "22", "3", "44"])
    # right; right, for the judge erred; wrong, for the judge erred; a tie, left out
    pairs = PreferencePairs(chosen, rejected, torch.tensor([1.0, -1.0, -1.0, 0.0]))
    assert preference_accuracy(Table(), pairs) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="ties"):
        preference_accuracy(Table(), PreferencePairs(chosen, rejected, torch.zeros(4)))


def test_no_pairs_are_refused():
    model = small_model()
    pairs = preference_pairs(model, Sorting(), 2, seed=0)

    class Empty(PreferencePairs):
        def __len__(self):
            return 0

    with pytest.raises(ValueError, match="pairs is empty"):
        train_reward_model(RewardModel(model), Empty(pairs.chosen, pairs.rejected, pairs.margins), seed=0)
