"""Tasks, rewards by rule, scoring that names what went wrong, preferences by a hidden score."""

import math

import numpy as np
import pytest
import torch

from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, encode_completions
from rlbook_lib.text_tasks import (
    Arithmetic,
    RewardError,
    Sorting,
    correctness_reward,
    evaluate_accuracy,
    format_reward,
    hidden_score,
    preference_pairs,
    score_completions,
    split_of,
)

TASKS = [Sorting(), Arithmetic(), Arithmetic(digits=1)]


def small_model(task, seed: int = 0) -> Transformer:
    return Transformer(CharTokenizer(task.alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=seed)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("split", ["train", "eval"])
def test_prompts_belong_to_their_split_and_can_be_written(task, split):
    prompts = task.prompts(200, np.random.default_rng(0), split)
    tokenizer = CharTokenizer(task.alphabet)
    assert len(prompts) == 200
    assert {split_of(prompt) for prompt in prompts} == {split}
    for prompt in prompts:
        assert tokenizer.decode(tokenizer.encode(prompt)) == prompt
        assert len(tokenizer.encode(task.answer(prompt))) + 1 <= task.max_new_tokens


@pytest.mark.parametrize("task", TASKS)
def test_no_evaluation_prompt_is_ever_trained_on(task):
    train = set(task.prompts(2000, np.random.default_rng(0), "train"))
    assert not train & set(task.prompts(500, np.random.default_rng(1), "eval"))


def test_the_split_is_the_same_on_every_machine():
    assert [split_of(prompt) for prompt in ("5283=", "47+85=", "10=", "0=")] == ["eval", "eval", "train", "train"]
    share = np.mean([split_of(str(k)) == "eval" for k in range(20_000)])
    assert share == pytest.approx(0.2, abs=0.01)


def test_prompts_repeat_with_the_seed():
    one, two = (Sorting().prompts(5, np.random.default_rng(7)) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(("count", "split"), [(0, "train"), (3, "test")])
def test_bad_arguments_of_prompts(count, split):
    with pytest.raises(ValueError):
        Sorting().prompts(count, np.random.default_rng(0), split)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(Sorting, {"shortest": 0}), (Sorting, {"longest": 3}), (Sorting, {"drop": 1.5}), (Sorting, {"swap": -0.1}),
     (Arithmetic, {"digits": 0}), (Arithmetic, {"no_carry": 2.0})],
)  # fmt: skip
def test_bad_settings(kind, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        kind(**arguments)


def test_sorting_answers_and_demonstrations():
    task = Sorting()
    assert task.answer("5283=") == "2358"
    assert task.answer("33021=") == "01233"
    exact = Sorting(drop=0.0, swap=0.0)
    assert exact.demonstration("33021=", np.random.default_rng(0)) == "01233"
    assert Sorting(drop=1.0, swap=0.0).demonstration("33021=", np.random.default_rng(0)) == "0123"
    swapped = Sorting(drop=0.0, swap=1.0).demonstration("5283=", np.random.default_rng(0))
    assert swapped != "2358" and sorted(swapped) == sorted("2358")


def test_the_most_common_demonstration_is_wrong_where_digits_repeat():
    task, rng = Sorting(), np.random.default_rng(0)
    given = [task.demonstration("33021=", rng) for _ in range(2000)]
    shares = {text: given.count(text) / 2000 for text in set(given)}
    assert max(shares, key=shares.get) == "0123"
    assert shares["0123"] == pytest.approx(0.6 * 0.8, abs=0.04)
    assert shares["01233"] == pytest.approx(0.4 * (0.8 + 0.2 / 4), abs=0.04)  # one swap in four exchanges the two threes


def test_arithmetic_answers_and_demonstrations():
    task = Arithmetic()
    assert task.answer("47+85=") == "132"
    assert Arithmetic(no_carry=1.0).demonstration("47+85=", np.random.default_rng(0)) == "22"
    assert Arithmetic(no_carry=0.0).demonstration("47+85=", np.random.default_rng(0)) == "132"
    assert Arithmetic(no_carry=1.0).demonstration("41+8=", np.random.default_rng(0)) == "49"


def test_rewards():
    assert correctness_reward("12", "12", True) == 1.0
    assert correctness_reward("12", "12", False) == 0.0  # cut off: no end of sequence
    assert correctness_reward("12", "21", True) == 0.0
    assert format_reward("12", True, "0123456789") == 1.0
    assert format_reward("1=2", True, "0123456789") == 0.0
    assert format_reward("", True, "0123456789") == 0.0
    assert format_reward("12", False, "0123456789") == 0.0
    assert Sorting().reward("5283=", "2358", True) == 1.0
    assert Arithmetic().reward("47+85=", "132", True) == 1.0
    assert Arithmetic().reward("47+85=", "99", True) == pytest.approx(0.1)
    assert Arithmetic().reward("47+85=", "9+9", True) == 0.0


def test_hidden_score_by_hand():
    assert hidden_score("5283=", "2358", True) == pytest.approx(1.0)
    assert hidden_score("5283=", "2385", True) == pytest.approx(2 * 0.5 - 1)
    assert hidden_score("5283=", "235", True) == pytest.approx(2 * 0.75 - 1 - 0.3)
    assert hidden_score("5283=", "2358", False) == pytest.approx(0.5)


# -------------------------------------------------------------------------------------------------------- scoring


def batch():
    task = Sorting()
    return encode_completions(small_model(task), ["5283=", "10="], ["2358", "10"])


def test_scores():
    assert score_completions(Sorting().reward, batch()).tolist() == [1.0, 0.0]


def raising(prompt, text, finished):
    if prompt == "10=":
        raise KeyError("no such thing")
    return 0.0


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (raising, r"raised KeyError.*sample 1: prompt '10=', completion '10'"),
        (lambda p, t, f: math.nan, r"returned nan.*sample 0: prompt '5283=', completion '2358'"),
        (lambda p, t, f: "good", r"returned 'good'.*sample 0"),
        (lambda p, t, f: None, r"returned None.*sample 0"),
    ],
)
def test_a_broken_reward_names_the_sample(reward, message):
    with pytest.raises(RewardError, match=message):
        score_completions(reward, batch())


class Oracle(Transformer):
    """Writes the right answer greedily: the logits are looked up, so the accuracy is known."""

    def __init__(self, task, wrong):
        super().__init__(CharTokenizer(task.alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=0)
        self.task, self.wrong = task, wrong

    def prefill(self, tokens, mask, room):
        prompts = [self.tokenizer.decode(row) for row in tokens.tolist()]
        ends = [*(self.tokenizer.encode(self.task.answer(p)) for p in prompts)]
        self.plan = [[*e, 1] if k % self.wrong else [1] for k, e in enumerate(ends)]
        return self.logits(0), 1

    def decode(self, tokens, mask, cache):
        return self.logits(cache), cache + 1

    def logits(self, column):
        rows = torch.zeros(len(self.plan), self.tokenizer.size)
        for row, plan in zip(rows, self.plan):
            row[plan[min(column, len(plan) - 1)]] = 10.0
        return rows


def test_accuracy_of_a_model_that_is_wrong_every_fourth_time():
    task = Sorting()
    assert evaluate_accuracy(Oracle(task, wrong=4), task, count=40) == pytest.approx(0.75)


# ---------------------------------------------------------------------------------------------------- preferences


def test_preferences_follow_the_sigmoid_of_the_margin():
    task = Sorting()
    pairs = preference_pairs(small_model(task), task, 3000, seed=0, sharpness=1.5)
    size = pairs.margins.abs().numpy()
    right = (pairs.margins > 0).numpy()
    expected = 1 / (1 + np.exp(-1.5 * size))
    untied = size > 0
    share, error = right[untied].mean(), math.sqrt((expected * (1 - expected))[untied].sum()) / untied.sum()
    assert abs(share - expected[untied].mean()) < 4 * error


def test_margins_are_those_of_the_completions_and_prompts_are_shared():
    task = Sorting()
    pairs = preference_pairs(small_model(task), task, 50, seed=1)
    assert pairs.chosen.prompts == pairs.rejected.prompts
    margin = score_completions(hidden_score, pairs.chosen) - score_completions(hidden_score, pairs.rejected)
    assert torch.allclose(margin, pairs.margins, atol=1e-6)
    part = pairs.take(torch.tensor([3, 1]))
    assert torch.equal(part.margins, pairs.margins[[3, 1]])


def test_a_cut_off_completion_has_no_end_of_sequence_among_its_tokens():
    task = Sorting()
    pairs = preference_pairs(small_model(task), task, 200, seed=2)
    cut = ~pairs.chosen.finished
    assert cut.any()
    for row in cut.nonzero()[:, 0].tolist():
        written = pairs.chosen.tokens[row][pairs.chosen.mask[row]].tolist()
        assert 1 not in written
        assert len(written) == task.max_new_tokens


def test_sharp_judges_never_err_and_blunt_ones_toss_a_coin():
    task = Sorting()
    model = small_model(task)
    assert (preference_pairs(model, task, 200, seed=3, sharpness=1e6).margins >= 0).all()
    blunt = preference_pairs(model, task, 2000, seed=3, sharpness=0.0).margins
    assert (blunt[blunt != 0] > 0).float().mean() == pytest.approx(0.5, abs=0.05)
    with pytest.raises(ValueError, match="sharpness"):
        preference_pairs(model, task, 5, seed=0, sharpness=-1.0)
