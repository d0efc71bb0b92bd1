"""Supervised fine-tuning: the loss against entropies, learning what is demonstrated, exact resuming, bad input."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlbook_lib.fine_tuning import SFTConfig, demonstrations, iterate_sft, masked_mean, sft_loss, train_sft
from rlbook_lib.language_model import (
    CharTokenizer,
    Transformer,
    TransformerConfig,
    completion_log_probs,
    encode_completions,
    generate,
)
from rlbook_lib.text_tasks import Sorting, split_of
from rlbook_lib.training import frozen_copy, learning_rate_share
from tests.language_models import alone, descend, same_weights, small_model, weights

SHORT = SFTConfig(updates=6, batch_size=8, warmup=2)


class Coin:
    """One prompt; the demonstrators answer "1" with chance 0.7, else "0"."""

    alphabet, max_new_tokens = "01=", 2

    def prompts(self, count, rng, split="train"):
        return ["="] * count

    def demonstration(self, prompt, rng):
        return "1" if rng.random() < 0.7 else "0"

    def reward(self, prompt, text, finished):
        return float(text == "1" and finished)


@pytest.mark.equation("eq-masked-mean")
def test_masked_mean_by_hand():
    x = torch.tensor([[1.0, 2.0, math.nan], [6.0, math.inf, -3.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    for mean_of, sign in ((masked_mean, 1), (masked_mean.__unchecked__, 1), (sft_loss.__unchecked__, -1)):
        x.grad, mean = None, mean_of(x, mask)
        assert mean.item() == pytest.approx(sign * (1 + 2 + 6) / 3)
        mean.backward()
        assert torch.allclose(x.grad, sign * torch.tensor([[1 / 3, 1 / 3, 0.0], [1 / 3, 0.0, 0.0]]))


@pytest.mark.equation("eq-sft-loss")
def test_the_loss_of_the_true_distribution_is_its_entropy():
    """Cross-entropy by enumeration: two answers, one token each, and an end of sequence that is certain."""
    chances = torch.tensor([0.3, 0.7])
    log_prob = torch.stack([chances.log(), torch.zeros(2)], 1)  # (two answers, answer and end of sequence)
    counts = [300, 700]
    batch = torch.cat([row.expand(n, 2) for row, n in zip(log_prob, counts, strict=True)])
    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert sft_loss(batch, torch.ones_like(batch)).item() == pytest.approx(entropy / 2, abs=1e-6)


@pytest.mark.slow
def test_the_model_learns_the_chances_of_the_demonstrators():
    task = Coin()
    model = Transformer(CharTokenizer(task.alphabet), TransformerConfig(width=8, layers=1, heads=1), seed=0)
    result = train_sft(model, task, SFTConfig(updates=150, batch_size=256, learning_rate=1e-2, warmup=5), seed=0)
    tokens, mask = torch.tensor([model.tokenizer.encode("=")]), torch.ones(1, 1, dtype=torch.bool)
    chances = model(tokens, mask)[0, -1].softmax(0)
    assert chances[model.tokenizer.encode("1")[0]].item() == pytest.approx(0.7, abs=0.04)
    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert np.mean(result.history["loss"][-30:]) == pytest.approx(entropy / 2, abs=0.02)
    assert set(generate(model, ["="] * 50, max_new_tokens=2, seed=0).texts) == {"0", "1"}


def test_two_updates_number_by_number():
    """In plain torch, a demonstration at a time: loss and weights."""
    model, task = small_model().double(), Sorting()
    plain, rng = copy.deepcopy(model), np.random.default_rng(7)
    config = SFTConfig(updates=5, batch_size=6, learning_rate=1e-2, warmup=2, weight_decay=0.1, max_gradient_norm=0.5)
    config = replace(config, final_share=0.9)
    run = iterate_sft(model, task, config, seed=7)
    optimizer, tokens = torch.optim.AdamW(plain.parameters(), betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1), 0
    for share in (0.5, 0.9):  # half of the rise; then its end, and a fall that stops at 0.9
        prompts = task.prompts(6, rng)
        texts = [task.demonstration(prompt, rng) for prompt in prompts]
        batch = encode_completions(plain, prompts, texts)
        assert batch.texts == texts and [plain.tokenizer.decode(row) for row in batch.tokens.tolist()] == texts
        loss = -torch.cat([alone(plain, batch, i)[0] for i in range(6)]).mean()
        descend(optimizer, loss, 1e-2 * share, 0.5)
        record = next(run)
        assert record.metrics == pytest.approx({"loss": loss.item(), "learning_rate": 1e-2 * share}, abs=1e-9)
        tokens += sum(map(len, texts)) + 6  # each with its end
        assert record.env_steps == tokens and {split_of(prompt) for prompt in prompts} == {"train"}
    assert same_weights(model, plain)


def test_learning_rate_rises_and_falls():
    shares = [learning_rate_share(k, 100, 10, 0.1) for k in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert max(shares) == pytest.approx(shares[9], abs=0.02)
    assert shares[-1] == pytest.approx(0.1)
    assert all(0 < share <= 1 for share in shares)


def test_a_frozen_copy_does_not_learn():
    model = small_model()
    frozen = frozen_copy(model)
    before = weights(frozen)
    train_sft(model, Sorting(), SHORT, seed=0)
    assert torch.equal(before, weights(frozen)) and not torch.equal(before, weights(model))
    assert not any(p.requires_grad for p in frozen.parameters())
    batch = demonstrations(model, Sorting(), 4, np.random.default_rng(0))
    assert not completion_log_probs(frozen, batch)[0].requires_grad


def test_the_progress_bar_counts_updates(capsys):
    train_sft(small_model(), Sorting(), SHORT, seed=0, progress=True)
    assert f"/{SHORT.updates} [" in capsys.readouterr().err
