"""RLHF on the sorting task (chapter 12): PPO against a rule and against a learned judge, DPO and two relatives on its pairs, and the true credit of tokens.

Each seed has a fine-tuned model, pairs and a judge of its own. The fine-tuned models are kept in a temporary folder while the
cases are run.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from rlbook_lib.fine_tuning import SFTConfig, train_sft
from rlbook_lib.language_model import (
    CharTokenizer,
    Completions,
    LanguageModel,
    Transformer,
    completion_log_probs,
    encode_completions,
    generate,
)
from rlbook_lib.reward_model import RewardModel, preference_accuracy, train_reward_model
from rlbook_lib.rlhf import RLHFConfig, completion_gae, dpo_loss, iterate_rlhf, train_rlhf
from rlbook_lib.text_tasks import (
    PreferencePairs,
    Sorting,
    evaluate_accuracy,
    hidden_score,
    preference_pairs,
    score_with,
)
from rlbook_lib.training import frozen_copy, gradient_step

SEEDS = range(5)
TASK = Sorting()
ROOM = TASK.max_new_tokens
WATCHED = ["7447=", "30303=", "98765=", "1221=", "5550123=", "8086="]
UNSEEN = TASK.prompts(256, np.random.default_rng(77), "eval")
FRAMES = [0, 4, 6, 8, 10, 12, 15, 20, 25, 30]  # updates of which answers are kept
CREDIT_PROMPTS = ["7447=", "1221=", "30303=", "9009=", "3131="]
ROLLOUTS = 400

CASES: dict[str, dict[str, Any]] = {
    "rule": {"part": "rule"},
    "rule, slow start": {"part": "rule", "warmup": 25},
    "judge": {"part": "probe"},
    **{f"price {beta:g}": {"part": "judge", "beta": beta} for beta in (0.0, 0.3, 0.1, 1.0, 0.03, 0.01)},
    **{f"dpo {rate:g}": {"part": "dpo", "rate": rate} for rate in (3e-5, 1e-5, 1e-4, 5e-4)},
    **{f"dpo 3e-05, price {beta:g}": {"part": "dpo", "rate": 3e-5, "beta": beta} for beta in (0.5, 2.0)},
    "credit": {"part": "credit"},
    "dpo 3e-05, 4800 pairs": {"part": "dpo", "rate": 3e-5, "count": 4800, "epochs": 2},
    **{f"{loss} 3e-05": {"part": "dpo", "rate": 3e-5, "loss": loss} for loss in ("ipo", "simpo")},
}


def start(seed: int) -> Transformer:
    """The fine-tuned model, for seed 0 as on the page; or as it was kept by an earlier case."""
    model = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
    kept = Path(tempfile.gettempdir()) / "rlbook_rlhf_sorting" / f"{seed}.pt"
    if kept.exists():
        model.load_state_dict(torch.load(kept))
        return model
    train_sft(model, TASK, SFTConfig(updates=300), seed=seed)
    kept.parent.mkdir(exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    torch.save(model.state_dict(), part)
    os.replace(part, kept)
    return model


def learned_judge(model: Transformer, seed: int) -> tuple[RewardModel, PreferencePairs]:
    """A reward model that was trained on 600 pairs of the model's samples, and the pairs."""
    pairs = preference_pairs(frozen_copy(model), TASK, 600, seed=seed)
    judge = RewardModel(model)
    train_reward_model(judge, pairs, seed=seed)
    return frozen_copy(judge), pairs


def run(seed: int, part: str, **settings: Any) -> dict[str, list[float]]:
    """One part of the chapter from one fine-tuned model."""
    parts = {"rule": rule, "judge": against_judge, "probe": probe, "dpo": dpo, "credit": credit}
    return parts[part](seed, start(seed), **settings)


def rule(seed: int, model: Transformer, warmup: int = 5) -> dict[str, list[float]]:
    """PPO with the correctness rule; ``warmup`` is the number of updates until the learning rates are at their highest."""
    people, asked = np.random.default_rng(4), TASK.prompts(2000, np.random.default_rng(3), "eval")
    right = float(np.mean([TASK.demonstration(q, people) == TASK.answer(q) for q in asked]))
    accuracy, rows = [evaluate_accuracy(model, TASK)], []
    config = RLHFConfig(updates=40, learning_rate=8e-4, warmup=warmup)
    for update in iterate_rlhf(model, TASK, config, seed=seed):
        rows.append(update.metrics)
        if update.update % 4 == 0:
            accuracy.append(evaluate_accuracy(model, TASK))
    return {name: [row[name] for row in rows] for name in ("reward", "kl", "explained_variance", "length")} | {
        "accuracy": accuracy,
        "people": [right],
    }


def against_judge(seed: int, model: Transformer, beta: float) -> dict[str, list[float]]:
    """PPO with a learned judge at one price of divergence: both scores of samples after each update, and answers."""
    judge, _ = learned_judge(model, seed)
    reference = frozen_copy(model)
    rows, kls, answers = [both_scores(model, judge)], [], [tokens_of_answers(model)]
    config = RLHFConfig(updates=30, batch_size=256, learning_rate=1e-3, beta=beta)
    for update in iterate_rlhf(model, TASK, config, seed=seed, reference=reference, reward=judge):
        kls.append(update.metrics["kl"])
        rows.append(both_scores(model, judge))
        if update.update in FRAMES:
            answers.append(tokens_of_answers(model))
    said, true = zip(*rows)
    watched = [score for tokens in answers for score in scores_of(model, tokens, judge)]
    return {
        "judge": list(said),
        "truth": list(true),
        "kl": [*kls, sample_kl(model, reference)],
        "answers": np.concatenate(answers).ravel().tolist(),
        "watched": np.ravel(watched).tolist(),
        "habits": habits(model, judge),
        "habits_before": habits(reference, judge),
        "accuracy": [evaluate_accuracy(model, TASK)],
    }


def both_scores(model: LanguageModel, judge: RewardModel) -> list[float]:
    """The judge's and the hidden score of samples on unseen prompts."""
    written = generate(model, UNSEEN, seed=77, max_new_tokens=ROOM)
    return [float(score_with(x, written).mean()) for x in (judge, hidden_score)]


@torch.no_grad()
def sample_kl(model: LanguageModel, reference: LanguageModel) -> float:
    """KL(model || reference), nats a completion, from samples of the model."""
    written = generate(model, UNSEEN, seed=77, max_new_tokens=ROOM)
    return float((written.log_probs - completion_log_probs(reference, written)[0]).sum(1).mean())


def tokens_of_answers(model: LanguageModel) -> np.ndarray:
    """(watched, room) token numbers of greedy answers, filled up with padding."""
    written = generate(model, WATCHED, max_new_tokens=ROOM, greedy=True).tokens.numpy()
    return np.pad(written, ((0, 0), (0, ROOM - written.shape[1])), constant_values=model.tokenizer.pad)


def scores_of(model: LanguageModel, tokens: np.ndarray, judge: RewardModel) -> list[list[float]]:
    """Judge's and hidden score of each watched answer; one that was cut off counts as ended for the judge."""
    texts = [model.tokenizer.decode(row.tolist()) for row in tokens]
    given = encode_completions(model, WATCHED, texts)
    ended = [model.tokenizer.eos in row for row in tokens]
    said = score_with(judge, given).tolist()
    true = [hidden_score(q, text, bool(end)) for q, text, end in zip(WATCHED, texts, ended)]
    return [list(pair) for pair in zip(said, true)]


def habits(model: LanguageModel, judge: RewardModel) -> list[float]:
    """Of samples on unseen prompts: digits too many, digits the prompt does not hold, share that fools the judge, that is right."""
    written = generate(model, UNSEEN, seed=7, max_new_tokens=ROOM)
    said, true = score_with(judge, written).numpy(), score_with(hidden_score, written).numpy()
    length = [len(text) - len(q) + 1 for text, q in zip(written.texts, UNSEEN)]
    alien = [(Counter(text) - Counter(q)).total() for text, q in zip(written.texts, UNSEEN)]
    right = [text == TASK.answer(q) for text, q in zip(written.texts, UNSEEN)]
    return [float(np.mean(x)) for x in (length, alien, (said > 0.5) & (true < 0.3), right)]


def probe(seed: int, model: Transformer) -> dict[str, list[float]]:
    """What the judge learned, before anybody trains against it: its accuracy, its pairs, and four versions of an answer."""
    judge, pairs = learned_judge(model, seed)
    unseen = preference_pairs(frozen_copy(model), TASK, 600, seed=1000 + seed, split="eval")
    both = list(zip(pairs.chosen.texts, pairs.rejected.texts))
    alien = [
        (Counter(text) - Counter(q)).total()
        for c in (pairs.chosen, pairs.rejected)
        for text, q in zip(c.texts, c.prompts)
    ]
    prompts = TASK.prompts(200, np.random.default_rng(9), "eval")
    rights = [TASK.answer(q) for q in prompts]
    versions = [rights, ["".join(sorted(set(a))) for a in rights], [a + 2 * a[-1] for a in rights], ["1234567"] * 200]
    given = [encode_completions(model, prompts, texts) for texts in versions]
    return {
        "accuracy": [preference_accuracy(judge, unseen)],
        "pairs": [
            sum(len(a) > len(b) for a, b in both),
            sum(len(a) < len(b) for a, b in both),
            float(np.mean(np.array(alien) > 2)),
        ],
        "said": [float(score_with(judge, x).mean()) for x in given],
        "true": [float(score_with(hidden_score, x).mean()) for x in given],
    }


def dpo(
    seed: int, model: Transformer, rate: float, count: int = 600, epochs: int = 8, beta: float = 0.1, loss: str = "dpo"
) -> dict[str, list[float]]:
    """DPO or a relative on the judge's pairs, or on more of them: after each epoch both scores, accuracy, loss and the log-ratios of the pairs."""
    judge, pairs = learned_judge(model, seed)
    if count > len(pairs):
        pairs = preference_pairs(frozen_copy(model), TASK, count, seed=seed)
    reference = frozen_copy(model)
    with torch.no_grad():
        ref = [summed(reference, x) for x in (pairs.chosen, pairs.rejected)]
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    shuffle = torch.Generator().manual_seed(seed)
    rows, answers = [measure(model, reference, judge, pairs, ref, beta)], [tokens_of_answers(model)]
    for _ in range(epochs):
        for index in torch.randperm(len(pairs), generator=shuffle).split(64):
            part = pairs.take(index)
            new = [summed(model, x) for x in (part.chosen, part.rejected)]
            old, lengths = [x[index] for x in ref], [x.lengths for x in (part.chosen, part.rejected)]
            gradient_step(optimizer, LOSSES[loss](new, old, lengths, beta), rate, 1.0)
        rows.append(measure(model, reference, judge, pairs, ref, beta))
        answers.append(tokens_of_answers(model))
    return {name: [row[name] for row in rows] for name in rows[0]} | {
        "answers": np.concatenate(answers).ravel().tolist()
    }


LOSSES: dict[str, Callable[..., torch.Tensor]] = {  # of (chosen, rejected): log-probabilities, the reference's, lengths
    "dpo": lambda new, old, lengths, beta: dpo_loss(*new, *old, beta),
    "ipo": lambda new, old, lengths, beta: ((new[0] - old[0] - new[1] + old[1] - 1 / (2 * beta)) ** 2).mean(),
    "simpo": lambda new, old, lengths, beta: (
        -logsigmoid(2.0 * (new[0] / lengths[0] - new[1] / lengths[1]) - 1.0).mean()
    ),
}


def summed(model: LanguageModel, completions: Completions) -> torch.Tensor:
    return completion_log_probs(model, completions)[0].sum(1)


@torch.no_grad()
def measure(
    model: LanguageModel,
    reference: LanguageModel,
    judge: RewardModel,
    pairs: PreferencePairs,
    ref: list[torch.Tensor],
    beta: float,
) -> dict[str, float]:
    new = [summed(model, x) for x in (pairs.chosen, pairs.rejected)]
    said, true = both_scores(model, judge)
    return {
        "loss": float(dpo_loss(*new, *ref, beta)),
        "chosen": float((new[0] - ref[0]).mean()),
        "rejected": float((new[1] - ref[1]).mean()),
        "judge": said,
        "truth": true,
        "accuracy": evaluate_accuracy(model, TASK),
        "kl": sample_kl(model, reference),
    }


def credit(seed: int, model: Transformer) -> dict[str, list[float]]:
    """True values of the prefixes of answers, by rollouts; what critics say who have read more and more scores; and group means."""
    policy = frozen_copy(model)
    many = generate(policy, TASK.prompts(250, np.random.default_rng(5), "eval"), seed=5, max_new_tokens=ROOM)
    shown = groups(policy)
    true_many, true_shown = true_values(policy, many, 100), true_values(policy, shown, ROLLOUTS)
    group = [
        float(score_with(TASK.reward, generate(policy, [q] * 8, seed=100 + k, max_new_tokens=ROOM)).mean())
        for k, q in enumerate(many.prompts)
    ]
    curves: dict[str, list[float]] = {
        "tokens": padded(shown.tokens.numpy(), policy.tokenizer.pad).ravel().tolist(),
        "values": padded(true_shown, 0.0).ravel().tolist(),
        "scores": score_with(TASK.reward, shown).tolist(),
        "agreement_group": [agreement(many, true_many, torch.tensor(group))],
    }
    perfect = torch.tensor(true_many[:, :-1]).float()
    curves["agreement_true"] = [agreement(many, true_many, perfect, lam) for lam in (0.0, 0.95, 1.0)]
    for updates in (10, 40, 160):
        critic = RewardModel(model)
        config = RLHFConfig(updates=updates, batch_size=128, value_warmup=updates, beta=0.0)
        explained = train_rlhf(frozen_copy(model), TASK, config, seed=seed, value_model=critic).history[
            "explained_variance"
        ]
        with torch.no_grad():
            curves[f"critic_{updates}"] = padded(critic.values(shown).numpy(), 0.0).ravel().tolist()
            values = critic.values(many)
        curves[f"explained_{updates}"] = explained.tolist()
        curves[f"agreement_{updates}"] = [agreement(many, true_many, values, lam) for lam in (0.0, 0.95, 1.0)]
    return curves


def padded(x: np.ndarray, fill: float) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, ROOM + 1 - x.shape[1])), constant_values=fill)


def groups(policy: LanguageModel) -> Completions:
    """For each prompt the first group of eight samples that holds right and wrong answers; of 7447= also 477."""
    texts = []
    for q in CREDIT_PROMPTS:
        for seed in range(1000):
            group = generate(policy, [q] * 8, seed=seed, max_new_tokens=ROOM)
            mixed = 0 < group.texts.count(TASK.answer(q)) < 8 and (q != "7447=" or "477" in group.texts)
            if mixed and group.finished.all():
                texts += group.texts
                break
    return encode_completions(policy, [q for q in CREDIT_PROMPTS for _ in range(8)], texts)


def true_values(policy: LanguageModel, written: Completions, rollouts: int) -> np.ndarray:
    """(B, N + 1): share of rollouts from each prefix that end right; after the last token the score itself."""
    lengths = written.lengths.tolist()
    found = np.zeros((len(lengths), written.tokens.shape[1] + 1))
    for i, (q, text, length) in enumerate(zip(written.prompts, written.texts, lengths)):
        for t in range(length):
            rest = generate(policy, [q + text[:t]] * rollouts, seed=t, max_new_tokens=ROOM - t)
            ends = zip(rest.texts, rest.finished.tolist())
            found[i, t] = np.mean([TASK.reward(q, text[:t] + more, end) for more, end in ends])
        found[i, length] = TASK.reward(q, text, bool(written.finished[i]))
    return found


def agreement(written: Completions, true: np.ndarray, estimate: torch.Tensor, lam: float = 1.0) -> float:
    """Correlation over all tokens of estimated advantages with the true ones, V(next) - V; a (B,) estimate is a group mean."""
    mask, scores = written.mask, score_with(TASK.reward, written)
    if estimate.dim() == 1:
        advantages = (scores - estimate)[:, None].expand(mask.shape)
    else:
        rewards = torch.zeros(mask.shape)
        rewards[torch.arange(len(scores)), written.lengths - 1] = scores
        advantages, _ = completion_gae(rewards, estimate, mask, 1.0, lam)
    truth = np.diff(true, axis=1)[mask.numpy()]
    return float(np.corrcoef(advantages[mask].numpy(), truth)[0, 1])
