"""Supervised fine-tuning: the loss against entropies, learning what is demonstrated, exact resuming, bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlbook_lib.fine_tuning import SFTConfig, demonstrations, iterate_sft, masked_mean, sft_loss, train_sft
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, completion_log_probs, generate
from rlbook_lib.text_tasks import Sorting
from rlbook_lib.training import TrainingError, frozen_copy, gradient_step, learning_rate_share, load_checkpoint

SHORT = SFTConfig(updates=6, batch_size=8, warmup=2)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small_model(seed: int = 0) -> Transformer:
    return Transformer(CharTokenizer(Sorting().alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=seed)


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


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
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    mean = masked_mean(x, mask)
    assert mean.item() == pytest.approx((1 + 2 + 6) / 3)
    mean.backward()
    assert torch.allclose(x.grad, torch.tensor([[1 / 3, 1 / 3, 0.0], [1 / 3, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("mask", "message"), [(torch.zeros(1, 2), "mask is empty in row 0"), (torch.ones(2), "mask has shape")]
)
def test_bad_masks(mask, message):
    with pytest.raises(ValueError, match=message):
        masked_mean(torch.ones(1, 2), mask)


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


def test_demonstrations_come_from_the_training_split_and_end():
    batch = demonstrations(small_model(), Sorting(), 20, np.random.default_rng(0))
    assert batch.finished.all()
    assert len(batch) == 20


@pytest.mark.parametrize("stop_at", [1, 4])
def test_a_resumed_run_ends_bit_for_bit_where_an_undisturbed_one_does(stop_at, tmp_path):
    whole = small_model()
    train_sft(whole, Sorting(), SHORT, seed=3)
    model, path = small_model(), tmp_path / "sft.pt"
    train_sft(model, Sorting(), SHORT, seed=3, checkpoint=path, checkpoint_every=1, stop=lambda u: u.update == stop_at)
    resumed = small_model(seed=9)  # other weights: all must come from the file
    result = train_sft(resumed, Sorting(), SHORT, seed=3, checkpoint=path)
    assert torch.equal(weights(whole), weights(resumed))
    assert len(result.history["loss"]) == SHORT.updates


def test_one_seed_one_result():
    one, two, other = small_model(), small_model(), small_model()
    for model, seed in ((one, 0), (two, 0), (other, 1)):
        train_sft(model, Sorting(), SHORT, seed=seed)
    assert torch.equal(weights(one), weights(two))
    assert not torch.equal(weights(one), weights(other))


def test_a_state_of_other_settings_is_refused():
    state = next(iterate_sft(small_model(), Sorting(), SHORT, seed=0)).state()
    with pytest.raises(ValueError, match="batch_size was 8 and is 16"):
        next(iterate_sft(small_model(), Sorting(), replace(SHORT, batch_size=16), seed=0, state=state))


def test_nan_stops_the_run_and_leaves_the_last_good_checkpoint(tmp_path):
    model, path = small_model(), tmp_path / "sft.pt"

    class Breaking(Sorting):
        drawn = 0

        def demonstration(self, prompt, rng):
            type(self).drawn += 1
            if type(self).drawn == 3 * SHORT.batch_size:
                with torch.no_grad():
                    model.head.weight[0, 0] = math.nan
            return super().demonstration(prompt, rng)

    with pytest.raises(TrainingError, match="update 3"):
        train_sft(model, Breaking(), SHORT, seed=0, checkpoint=path, checkpoint_every=1)
    assert load_checkpoint(path)["update"] == 2


def test_learning_rate_rises_and_falls():
    shares = [learning_rate_share(k, 100, 10, 0.1) for k in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert max(shares) == pytest.approx(shares[9], abs=0.02)
    assert shares[-1] == pytest.approx(0.1)
    assert all(0 < share <= 1 for share in shares)


def test_gradient_step_cuts_long_gradients():
    x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = torch.optim.SGD([x], lr=99.0)
    norm = gradient_step(optimizer, (x**2).sum(), learning_rate=1.0, max_norm=1.0)
    assert norm == pytest.approx(10.0)  # |2 x|
    assert torch.allclose(x.detach(), torch.tensor([3.0 - 0.6, 4.0 - 0.8]), atol=1e-4)


def test_a_frozen_copy_does_not_learn():
    model = small_model()
    copy = frozen_copy(model)
    before = weights(copy)
    train_sft(model, Sorting(), SHORT, seed=0)
    assert torch.equal(before, weights(copy))
    assert not any(p.requires_grad for p in copy.parameters())
    batch = demonstrations(model, Sorting(), 4, np.random.default_rng(0))
    assert not completion_log_probs(copy, batch)[0].requires_grad


@pytest.mark.parametrize(
    "bad",
    [
        {"updates": 0},
        {"batch_size": 0},
        {"learning_rate": -1.0},
        {"max_gradient_norm": math.nan},
        {"weight_decay": math.nan},
        {"final_share": -3},
    ],
)
def test_bad_settings(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        SFTConfig(**bad)


def test_a_run_that_had_ended_gives_its_result_again(tmp_path):
    path, model = tmp_path / "sft.pt", small_model()
    first = train_sft(model, Sorting(), SHORT, seed=0, checkpoint=path)
    again = train_sft(small_model(seed=5), Sorting(), SHORT, seed=0, checkpoint=path)
    assert torch.equal(weights(model), weights(again.policy))
    assert np.array_equal(first.history["loss"], again.history["loss"])


def test_the_progress_bar_counts_updates(capsys):
    train_sft(small_model(), Sorting(), SHORT, seed=0, progress=True)
    assert f"/{SHORT.updates} [" in capsys.readouterr().err
