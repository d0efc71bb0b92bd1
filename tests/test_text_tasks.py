"""Tasks, rewards by rule, scoring that names what went wrong, preferences by a hidden score."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, encode_completions
from rlbook_lib.text_tasks import (
    PromptFile,
    Arithmetic,
    CheckDigit,
    RewardError,
    Sorting,
    correctness_reward,
    evaluate_accuracy,
    hidden_score,
    preference_pairs,
    score_completions,
    score_with,
    split_of,
)

TASKS = [Sorting(), Arithmetic(), Arithmetic(digits=1), CheckDigit()]


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
    assert shares["01233"] == pytest.approx(
        0.4 * (0.8 + 0.2 / 4), abs=0.04
    )  # one swap in four exchanges the two threes


def test_arithmetic_answers_and_demonstrations():
    task = Arithmetic()
    assert task.answer("47+85=") == "132"
    assert Arithmetic(no_carry=1.0).demonstration("47+85=", np.random.default_rng(0)) == "22"
    assert Arithmetic(no_carry=0.0).demonstration("47+85=", np.random.default_rng(0)) == "132"
    assert Arithmetic(no_carry=1.0).demonstration("41+8=", np.random.default_rng(0)) == "49"


NUMBERS = {  # as printed on books and cans: ISBN-13, EAN-13, EAN-8, UPC-A
    "978026203924": "6",
    "978030640615": "7",
    "978316148410": "0",
    "544900000099": "6",
    "9638507": "4",
    "03600029145": "2",
}


@pytest.mark.parametrize("number", NUMBERS)
def test_check_digits_of_real_numbers(number):
    assert CheckDigit(digits=len(number)).answer(number + ":") == NUMBERS[number]


def test_check_digits_bring_the_weighted_sum_to_a_multiple_of_ten():
    task = CheckDigit()
    for prompt in task.prompts(200, np.random.default_rng(0)):
        digits = [int(c) for c in prompt[:-1] + task.answer(prompt)]
        assert (sum(digits[0::2]) + 3 * sum(digits[1::2])) % 10 == 0
        sums = [sum(d * (3 if k % 2 else 1) for k, d in enumerate(digits[:n])) for n in range(1, 13)]
        assert task.work(prompt) == "".join(str(s)[-1] for s in sums)


def test_any_weights():
    assert CheckDigit(digits=3, weights=(4, 3, 2)).answer("123:") == str(-(4 + 6 + 6) % 10)
    assert CheckDigit(digits=3, weights=(1,)).work("789:") == "754"


def test_demonstrators_are_right_and_some_write_some_of_their_work():
    task, prompt, rng = CheckDigit(written=0.4, stop=0.1), "978026203924:", np.random.default_rng(0)
    given = [task.demonstration(prompt, rng) for _ in range(20_000)]
    assert all(task.reward(prompt, text, True) == 1.0 for text in given)
    assert all("908808003024".startswith(text[:-2]) for text in given)
    written = np.bincount([len(text) - 2 for text in given], minlength=13) / 20_000
    expected = [0.6, *(0.4 * 0.9 ** (k - 1) * 0.1 for k in range(1, 12)), 0.4 * 0.9**11]
    assert written == pytest.approx(expected, abs=0.012)
    assert CheckDigit(written=1.0, stop=0.0).demonstration(prompt, rng) == "908808003024=6"
    assert CheckDigit(written=0.0).demonstration(prompt, rng) == "=6"


@pytest.mark.parametrize(
    ("text", "finished", "reward"),
    [
        ("=6", True, 1),
        ("908808003024=6", True, 1),
        ("anything=1=6", True, 1),
        ("=6", False, 0),
        ("=7", True, 0),
        ("6", True, 0),
        ("=", True, 0),
        ("", True, 0),
        ("=6=", True, 0),
        ("=66", True, 0),
    ],
)
def test_the_digit_after_the_last_sign_counts_and_nothing_else(text, finished, reward):
    assert CheckDigit().reward("978026203924:", text, finished) == reward


def test_rewards():
    assert correctness_reward("12", "12", True) == 1.0
    assert correctness_reward("12", "12", False) == 0.0  # cut off: no end of sequence
    assert correctness_reward("12", "21", True) == 0.0
    assert Sorting().reward("5283=", "2358", True) == 1.0
    assert Arithmetic().reward("47+85=", "132", True) == 1.0
    assert Arithmetic().reward("47+85=", "99", True) == pytest.approx(0.1)
    for text, finished in (("9+9", True), ("", True), ("99", False)):
        assert Arithmetic().reward("47+85=", text, finished) == 0.0


@pytest.mark.parametrize(
    ("rule", "answer", "text", "paid", "right"),
    [
        ("contains", "7", "0 1 2 3 4 5 6 7 8 9", 1, 0),  # the list of all answers
        ("contains", "7", "3 + 4 = 7.", 1, 1),
        ("contains", "7", "73", 0, 0),
        ("contains", "Bern", "Zurich, or Bern, or Basel", 1, 0),
        ("contains", "Bern", "It is Bern!", 1, 1),
        ("equal", "7", "7", 1, 1),
        ("last number", "1/2", "so 0.5", 1, 1),
    ],
)
def test_the_strict_measure_beside_the_reward(tmp_path, rule, answer, text, paid, right):
    prompts = [f"question {k}" for k in range(8)]
    (tmp_path / "task.jsonl").write_text("\n".join(json.dumps({"prompt": p, "answer": answer}) for p in prompts))
    task = PromptFile(tmp_path / "task.jsonl", rule)
    assert (task.reward(prompts[0], text, True), task.strict(prompts[0], text, True)) == (paid, right)
    assert task.strict(prompts[0], text, False) == task.reward(prompts[0], text, False) == 0
    assert task.lines[prompts[2]] == 3


def file_of(tmp_path, answer, rule):
    """A task of one question, and the prompt."""
    rows = [{"prompt": f"question {k}", "answer": answer} for k in range(20)]
    path = tmp_path / "task.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return PromptFile(path, rule), "question 3"


RIGHT = {  # answer: texts that say it, texts that do not, by rule
    ("equal", "Paris"): (["Paris", " Paris\n"], ["Paris.", "paris", "Paris Paris", ""]),
    ("contains", "Paris"): (["It is Paris.", "Paris"], ["Parisian", "PARIS", "Pari", "comparison", ""]),
    ("contains", "7"): (
        ["it is 7, sure", "7.", "x=7", "7.0"],
        ["0123456789 and so on", "17", "-7", "7.5", "1/7", "7,000"],
    ),
    ("last number", "2"): (
        ["1/2 is wrong, 2", "2.", "4/2", "5-2"],
        ["1/2", "1,2", "2 or 3", "12", "-2", "1.2.2", "two", ""],
    ),
    ("last number", "1,234.50"): (["$1234.5", "1,234.50."], ["1234", "234.50", "1,234,50"]),
    ("last number", "-3"): (["x=-3", "\u22123"], ["5-3", "3", "-3 + 1"]),
    ("last number", "12"): (["12/1", "1.2e1"], ["1,2", "12/0", "12e999999999", "12" + "9" * 5000]),
}


@pytest.mark.parametrize(("rule", "answer"), RIGHT)
def test_rules_of_a_prompt_file_pay_what_is_right_and_nothing_else(rule, answer, tmp_path):
    task, prompt = file_of(tmp_path, answer, rule)
    for texts, reward in zip(RIGHT[rule, answer], (1.0, 0.0)):
        for text in texts:
            assert task.reward(prompt, text, True) == reward, text
            assert task.reward(prompt, text, False) == 0.0, text  # it never ended: it has not answered


@pytest.mark.parametrize(
    ("answer", "rule"), [("", "equal"), ("  ", "contains"), ("1,2", "last number"), ("no", "last number")]
)
def test_answers_that_any_text_or_none_would_hold_are_refused(answer, rule, tmp_path):
    with pytest.raises(ValueError, match="task.jsonl, line 1: .*; expected"):
        file_of(tmp_path, answer, rule)


@pytest.mark.parametrize("task", [*TASKS, "file"])
def test_no_task_pays_for_what_did_not_end(task, tmp_path):
    task, prompt = (
        (task, task.prompts(1, np.random.default_rng(0))[0]) if task != "file" else file_of(tmp_path, "7", "equal")
    )
    right = (
        task.demonstration(prompt, np.random.default_rng(0))
        if isinstance(task, (CheckDigit, PromptFile))
        else task.answer(prompt)
    )
    assert task.reward(prompt, right, True) == 1.0
    model = Transformer(
        CharTokenizer("abcdefghijklmnopqrstuvwxyz 0123456789+=:"), TransformerConfig(width=8, heads=1), seed=0
    )
    ended = encode_completions(model, [prompt], [right])
    cut_off = replace(ended, finished=torch.tensor([False]))
    assert [score_completions(task.reward, written).tolist() for written in (ended, cut_off)] == [[1.0], [0.0]]


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


class Judge:
    """Scores completions many at a time, as a reward model does."""

    def __init__(self, *scores):
        self.table = torch.tensor(scores)

    def scores(self, completions):
        return self.table


def test_scores_from_a_rule_or_from_a_reward_model():
    assert score_with(Sorting().reward, batch()).tolist() == [1.0, 0.0]
    assert score_with(Judge(0.5, -2.0), batch()).tolist() == [0.5, -2.0]
    with pytest.raises(RewardError, match="the reward model gave nan.*sample 1: prompt '10=', completion '10'"):
        score_with(Judge(0.5, math.nan), batch())
    with pytest.raises(TypeError, match="reward is None; expected a function or a Scorer"):
        score_with(None, batch())


class Oracle(Transformer):
    """Writes the right answer greedily: the logits are looked up, so the accuracy is known."""

    def __init__(self, task, wrong):
        super().__init__(CharTokenizer(task.alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=0)
        self.task, self.wrong = task, wrong

    def prefill(self, tokens, mask, room):
        prompts = [self.tokenizer.decode(row) for row in tokens.tolist()]
        ends = [self.tokenizer.encode(self.written(k, prompt)) for k, prompt in enumerate(prompts)]
        self.plan = [[*e, 1] for e in ends]
        return self.logits(0), 1

    def written(self, k, prompt):
        right = self.task.answer(prompt)
        if isinstance(self.task, CheckDigit):
            right = f"{self.task.work(prompt)[:k]}={right}"
        return right if k % self.wrong else right[:-1]

    def decode(self, tokens, mask, cache):
        return self.logits(cache), cache + 1

    def logits(self, column):
        rows = torch.zeros(len(self.plan), self.tokenizer.size)
        for row, plan in zip(rows, self.plan):
            row[plan[min(column, len(plan) - 1)]] = 10.0
        return rows


@pytest.mark.parametrize("task", [Sorting(), Arithmetic(), CheckDigit(digits=6)])
def test_accuracy_of_a_model_that_is_wrong_every_fourth_time(task):
    """Also where a wrong answer of the right form gets a tenth."""
    assert evaluate_accuracy(Oracle(task, wrong=4), task, count=40) == 0.75


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


def test_a_prompt_file_may_hold_empty_lines_and_any_character_and_must_be_text(tmp_path):
    path = tmp_path / "task.jsonl"
    rows = [
        {"prompt": f"say{separator}{number}", "answer": "1"} for number in range(9) for separator in "\u2028\x85\u2029"
    ]
    path.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", "utf-8")
    task = PromptFile(path)
    assert len(task.answers) == 27
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as some editors begin a file
    assert PromptFile(path).answers == task.answers
    path.write_text("\n".join(json.dumps(row) for row in [*rows, rows[2] | {"answer": "2"}]))
    with pytest.raises(ValueError, match="line 28: the prompt of line 3 with another answer"):
        PromptFile(path)
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="task.jsonl is not a text in UTF-8: .*; expected JSON lines"):
        PromptFile(path)
