"""GRPO: advantages against reference values, the loss and its gradient by hand and against a peer, exact expectations, training."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbook_lib.divergences import kl_divergence
from rlbook_lib.grpo import (
    GRPOConfig,
    aggregate,
    group_advantages,
    group_baseline_factor,
    grpo_loss,
    iterate_grpo,
    leave_one_out_baseline,
    token_kl,
    token_objective,
    train_grpo,
    training_flops,
    training_memory,
    zero_variance_probability,
)
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, generate
from rlbook_lib.reward_model import RewardModel
from rlbook_lib.text_tasks import RewardError, Sorting
from rlbook_lib.training import frozen_copy, load_checkpoint

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text("utf-8"))["grpo"]
SHORT = GRPOConfig(updates=4, prompts=4, group=4, minibatches=2, warmup=1, beta=0.05)
NORMALIZATIONS = ["sequence", "token", "constant"]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small_model(seed: int = 0, alphabet: str = Sorting().alphabet) -> Transformer:
    return Transformer(CharTokenizer(alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=seed)


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# ----------------------------------------------------------------------------------------------- group advantages


@pytest.mark.equation("eq-group-advantage")
@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: str(case["R"]))
def test_advantages_of_the_reference_groups(case):
    rewards = torch.tensor([case["R"]], dtype=torch.float64)
    assert group_advantages(rewards, epsilon=1e-4)[0].tolist() == pytest.approx(case["A_pop_eps1e_4"], abs=1e-9)
    assert group_advantages(rewards, ddof=1, epsilon=1e-4)[0].tolist() == pytest.approx(
        case["A_sample_eps1e_4"], abs=1e-9
    )
    assert group_advantages(rewards, "none")[0].tolist() == pytest.approx(case["mean_only_DrGRPO"], abs=1e-12)
    if case["A_pop_noeps"] is not None:
        assert group_advantages(rewards, epsilon=0.0)[0].tolist() == pytest.approx(case["A_pop_noeps"], abs=1e-9)


@pytest.mark.equation("eq-leave-one-out")
@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: str(case["R"]))
def test_leave_one_out_of_the_reference_groups(case):
    rewards = torch.tensor([case["R"]], dtype=torch.float64)
    assert group_advantages(rewards, "leave_one_out")[0].tolist() == pytest.approx(case["leave_one_out"], abs=1e-9)
    others = [np.mean(np.delete(case["R"], k)) for k in range(len(case["R"]))]
    assert leave_one_out_baseline(rewards)[0].tolist() == pytest.approx(others, abs=1e-12)


@pytest.mark.parametrize("scale", ["std", "none", "leave_one_out"])
@pytest.mark.parametrize("value", [0.1, 1 / 3, -7.7, 1e8])
def test_equal_rewards_get_exactly_nothing(scale, value):
    assert (group_advantages(torch.full((2, 7), value), scale, epsilon=0.0) == 0).all()


@pytest.mark.parametrize("scale", ["std", "none", "leave_one_out"])
def test_groups_stay_apart(scale):
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    whole = group_advantages(rewards, scale)
    assert whole.sum(1).abs().max() < 1e-12
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.equal(group_advantages(rewards[order], scale), whole[order])  # shuffled prompts, shuffled results
    assert torch.allclose(group_advantages(rewards + 10 * torch.arange(5)[:, None], scale), whole, atol=1e-9)


@pytest.mark.parametrize(
    ("rewards", "options", "message"),
    [
        (torch.ones(3, 1), {}, "groups of one"),
        (torch.ones(3), {}, "shape"),
        (torch.ones(0, 4), {}, "shape"),
        (torch.tensor([[1.0, math.nan]]), {}, "NaN"),
        (torch.ones(1, 2), {"scale": "mean"}, "scale is 'mean'"),
        (torch.ones(1, 2), {"ddof": 2}, "ddof is 2"),
        (torch.ones(1, 2), {"epsilon": -1.0}, "epsilon"),
    ],
)
def test_bad_input_to_group_advantages(rewards, options, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, **options)


def expected_gradient(scale: str, group: int) -> torch.Tensor:
    """E[(1/G) sum_i A_i grad log pi(a_i)] for a bandit with three answers, by enumeration of all groups."""
    logits, rewards = (
        torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64),
        torch.tensor([1.0, 0.0, 0.4], dtype=torch.float64),
    )
    chances = logits.softmax(0)
    total = torch.zeros(3, dtype=torch.float64)
    for drawn in itertools.product(range(3), repeat=group):
        index = torch.tensor(drawn)
        advantages = group_advantages(rewards[index][None], scale)[0]
        scores = torch.eye(3, dtype=torch.float64)[index] - chances  # grad log pi(a) of a softmax
        total += chances[index].prod() * (advantages[:, None] * scores).mean(0)
    return total


@pytest.mark.equation("eq-group-baseline-bias")
@pytest.mark.parametrize("group", [2, 3, 5])
def test_the_group_mean_shortens_the_gradient_and_leaving_one_out_does_not(group):
    logits = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad(logits.softmax(0) @ torch.tensor([1.0, 0.0, 0.4], dtype=torch.float64), logits)
    assert torch.allclose(expected_gradient("none", group), group_baseline_factor(group) * exact, atol=1e-12)
    assert torch.allclose(expected_gradient("leave_one_out", group), exact, atol=1e-12)
    assert not torch.allclose(expected_gradient("std", group), exact, atol=1e-2)


@pytest.mark.equation("eq-zero-variance")
@pytest.mark.parametrize(("accuracy", "group"), [(0.0, 4), (0.3, 1), (0.3, 4), (0.9, 8), (1.0, 3)])
def test_chance_of_a_group_that_teaches_nothing(accuracy, group):
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=group):
        if len(set(outcome)) == 1:
            total += math.prod(accuracy if right else 1 - accuracy for right in outcome)
    assert zero_variance_probability(accuracy, group) == pytest.approx(total, abs=1e-12)


# ------------------------------------------------------------------------------------------------- the objective


def batch(seed: int = 0, dtype=torch.float64):
    """Four completions of uneven lengths, ratios well outside the clip range, advantages of both signs."""
    generator = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(4, 6, generator=generator, dtype=dtype)
    new = old + 0.4 * torch.randn(4, 6, generator=generator, dtype=dtype)
    ref = old + 0.3 * torch.randn(4, 6, generator=generator, dtype=dtype)
    advantages = torch.tensor([1.5, -0.7, 0.4, -1.2], dtype=dtype)
    mask = torch.arange(6)[None] < torch.tensor([6, 2, 4, 1])[:, None]
    return new, old, ref, advantages, mask


def loss_by_loops(new, old, ref, advantages, mask, clip, beta, kl, normalize):
    """The formula of the paper, one token at a time, in plain Python."""
    rows = []
    for i in range(len(new)):
        row = []
        for t in range(new.shape[1]):
            if not mask[i, t]:
                continue
            ratio, a = math.exp(float(new[i, t]) - float(old[i, t])), float(advantages[i])
            objective = min(ratio * a, min(max(ratio, 1 - clip[0]), 1 + clip[1]) * a)
            x = float(ref[i, t]) - float(new[i, t])
            divergence = {"k1": -x, "k2": x * x / 2, "k3": math.exp(x) - 1 - x}[kl]
            row.append(-(objective - beta * divergence))
        rows.append(row)
    if normalize == "sequence":
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    return sum(map(sum, rows)) / (sum(map(len, rows)) if normalize == "token" else new.numel())


@pytest.mark.equation("eq-grpo-objective")
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("beta", [0.0, 0.05])
@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
@pytest.mark.parametrize("clip", [(0.2, 0.2), (0.2, 0.28)])
def test_the_loss_and_its_gradient_against_loops(normalize, beta, kl, clip):
    new, old, ref, advantages, mask = batch()
    leaf = new.clone().requires_grad_(True)
    options = {"clip": clip, "beta": beta, "kl": kl, "normalize": normalize}
    loss = grpo_loss(leaf, old, advantages, mask, log_prob_ref=ref, **options)
    assert loss.item() == pytest.approx(loss_by_loops(new, old, ref, advantages, mask, *options.values()), abs=1e-12)
    (gradient,) = torch.autograd.grad(loss, leaf)
    step = 1e-6
    for i, t in itertools.product(range(4), range(6)):
        shifted = [new.clone(), new.clone()]
        shifted[0][i, t] += step
        shifted[1][i, t] -= step
        up, down = (loss_by_loops(x, old, ref, advantages, mask, *options.values()) for x in shifted)
        assert gradient[i, t].item() == pytest.approx((up - down) / (2 * step), abs=1e-7)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 123.0])
def test_what_stands_at_masked_positions_changes_nothing(normalize, garbage):
    new, old, ref, advantages, mask = batch()
    results = []
    for fill in (0.0, garbage):
        dirty = [torch.where(mask, x, fill) for x in (new, old, ref)]
        leaf = dirty[0].requires_grad_(True)
        loss = grpo_loss(leaf, dirty[1], advantages, mask, log_prob_ref=dirty[2], beta=0.1, normalize=normalize)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert (results[1][1][~mask] == 0).all()


def test_at_the_first_step_the_gradient_is_the_plain_policy_gradient():
    new, _, _, advantages, mask = batch()
    leaf = new.clone().requires_grad_(True)
    grpo_loss(leaf, new, advantages, mask, normalize="token").backward()
    assert torch.allclose(leaf.grad, -(advantages[:, None] * mask) / mask.sum())


@pytest.mark.equation("eq-grpo-clip")
def test_the_four_cases_of_an_uneven_clip():
    old = torch.zeros(1, 4, dtype=torch.float64)
    ratios = torch.tensor([[0.5, 0.9, 1.25, 1.5]], dtype=torch.float64)
    for advantage, gradients in ((1.0, [0.5, 0.9, 1.25, 0.0]), (-1.0, [0.0, -0.9, -1.25, -1.5])):
        new = ratios.log().requires_grad_(True)
        value = token_objective(new, old, torch.full((1, 4), advantage, dtype=torch.float64), clip=(0.2, 0.28))
        value.sum().backward()
        assert new.grad[0].tolist() == pytest.approx(gradients)
        expected = [min(r * advantage, min(max(r, 0.8), 1.28) * advantage) for r in ratios[0].tolist()]
        assert value[0].tolist() == pytest.approx(expected)


@pytest.mark.equation("eq-grpo-kl")
def test_token_divergence_as_value_and_as_gradient_by_enumeration():
    """Under samples of the policy: k1 and k3 have the right mean, and only k2 the right mean gradient (k1's is 0)."""
    logits = torch.tensor([0.5, -0.3, 0.1], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-0.2, 0.4, 0.0], dtype=torch.float64).log_softmax(0)
    p = logits.log_softmax(0)
    exact = (p.exp() * (p - ref)).sum()
    (right,) = torch.autograd.grad(exact, logits, retain_graph=True)
    reverse = (ref.exp() * (ref - p)).sum()
    (other,) = torch.autograd.grad(reverse, logits, retain_graph=True)
    mean, gradient = {}, {}
    for kind in ("k1", "k2", "k3"):
        terms = token_kl(p[None], ref[None], kind)[0]
        mean[kind] = float((p.exp() * terms).sum().detach())
        (gradient[kind],) = torch.autograd.grad((p.detach().exp() * terms).sum(), logits, retain_graph=True)
    value = float(kl_divergence(p.detach().exp().numpy(), ref.exp().numpy()))
    assert mean["k1"] == pytest.approx(value) and mean["k3"] == pytest.approx(value)
    assert mean["k2"] != pytest.approx(value, rel=1e-3)
    assert gradient["k1"].abs().max() < 1e-12
    assert torch.allclose(gradient["k2"], right, atol=1e-12)
    assert torch.allclose(gradient["k3"], other, atol=1e-12)


@pytest.mark.equation("eq-sequence-normalization")
@pytest.mark.equation("eq-token-normalization")
@pytest.mark.equation("eq-constant-normalization")
def test_three_ways_to_one_number():
    terms = torch.tensor([[1.0, 2.0, 3.0, 4.0], [8.0, math.nan, 5.0, 5.0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    assert aggregate(terms, mask, "sequence").item() == pytest.approx((2.5 + 8) / 2)
    assert aggregate(terms, mask, "token").item() == pytest.approx(18 / 5)
    assert aggregate(terms, mask, "constant").item() == pytest.approx(18 / 8)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_a_batch_in_parts_gives_the_same_loss_and_gradient(normalize):
    new, old, ref, advantages, mask = batch()
    whole = new.clone().requires_grad_(True)
    grpo_loss(whole, old, advantages, mask, log_prob_ref=ref, beta=0.1, normalize=normalize).backward()
    denominator = {"sequence": 4, "token": int(mask.sum()), "constant": mask.numel()}[normalize]
    parts = new.clone().requires_grad_(True)
    for rows in (slice(0, 1), slice(1, 4)):
        grpo_loss(
            parts[rows],
            old[rows],
            advantages[rows],
            mask[rows],
            log_prob_ref=ref[rows],
            beta=0.1,
            normalize=normalize,
            denominator=denominator,
        ).backward()
    assert torch.allclose(whole.grad, parts.grad, atol=1e-14)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask": torch.zeros(4, 6)}, "mask is empty in row 0"),
        ({"mask": torch.ones(4, 5)}, "mask has shape"),
        ({"mask": 0.5 * torch.ones(4, 6)}, "other than 0 and 1"),
        ({"advantages": torch.ones(4, 1)}, "advantages has shape"),
        ({"advantages": torch.ones(4, 6)}, "advantages has shape"),
        ({"advantages": torch.tensor([1.0, math.nan, 0.0, 0.0])}, "advantages holds NaN"),
        ({"log_prob_old": torch.full((4, 6), math.nan)}, "log_prob_old holds NaN"),
        ({"log_prob_old": torch.zeros(4, 5)}, "log_prob_old has shape"),
        ({"beta": 0.1, "log_prob_ref": None}, "log_prob_ref is None and beta is 0.1"),
        ({"beta": -0.1}, "beta"),
        ({"clip": (0.2,)}, "clip"),
        ({"clip": (1.0, 0.2)}, "clip"),
        ({"kl": "k4"}, "kl is 'k4'"),
        ({"normalize": "batch"}, "normalize is 'batch'"),
    ],
)
def test_bad_input_to_the_loss(changes, message):
    new, old, ref, advantages, mask = batch()
    arguments = {"log_prob": new, "log_prob_old": old, "advantages": advantages, "mask": mask, "log_prob_ref": ref}
    with pytest.raises(ValueError, match=message):
        grpo_loss(**(arguments | changes))


# ------------------------------------------------------------------------------------------------ against a peer


@pytest.mark.parametrize("beta", [0.0, 0.05])
@pytest.mark.filterwarnings("ignore")  # the peer's imports warn about their own dependencies
@pytest.mark.parametrize(
    ("loss_type", "normalize"), [("grpo", "sequence"), ("bnpo", "token"), ("dr_grpo", "constant"), ("dapo", "token")]
)
def test_loss_and_gradient_equal_those_of_trl(loss_type, normalize, beta):
    pytest.importorskip("trl", reason="an optional peer")
    from trl_peer import trl_loss

    new, old, ref, advantages, mask = batch()
    ours, theirs = new.clone().requires_grad_(True), new.clone().requires_grad_(True)
    loss = grpo_loss(ours, old, advantages, mask, log_prob_ref=ref, beta=beta, normalize=normalize)
    loss.backward()
    peer = trl_loss(theirs, old, ref, advantages, mask, loss_type, beta)
    peer.backward()
    assert loss.item() == pytest.approx(peer.item(), abs=1e-12)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)


# ------------------------------------------------------------------------------------------------ the training


class Letter:
    """Write "b": a bandit of one token and an end of sequence."""

    alphabet, max_new_tokens = "ab", 2

    def prompts(self, count, rng, split="train"):
        return ["a"] * count

    def demonstration(self, prompt, rng):
        return "a"

    def answer(self, prompt):
        return "b"

    def reward(self, prompt, text, finished):
        return float(text == "b" and finished)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["std", "none", "leave_one_out"])
def test_it_learns_a_bandit(scale):
    config = GRPOConfig(updates=25, prompts=8, group=8, learning_rate=8e-3, scale=scale)
    result = train_grpo(small_model(alphabet="ab"), Letter(), config, seed=0)
    assert result.history["reward"][:3].mean() < 0.4
    assert result.history["reward"][-5:].mean() > 0.9


@pytest.mark.slow
def test_a_high_price_of_divergence_keeps_the_policy_home():
    kl = {}
    for beta in (0.001, 2.0):
        config = GRPOConfig(updates=25, prompts=8, group=8, learning_rate=8e-3, beta=beta)
        kl[beta] = train_grpo(small_model(alphabet="ab"), Letter(), config, seed=0).history["kl"][-5:].mean()
    assert kl[2.0] < 0.25 * kl[0.001]


def test_groups_without_variance_are_counted_and_teach_nothing():
    model = small_model()
    before = weights(model)
    run = iterate_grpo(model, Sorting(), replace(SHORT, beta=0.0), seed=0, reward=lambda p, t, f: 1.0)
    assert next(run).metrics["zero_variance"] == 1.0
    assert torch.equal(before, weights(model))
    letter = iterate_grpo(small_model(alphabet="ab"), Letter(), replace(SHORT, prompts=64, beta=0.0), seed=0)
    metrics = next(letter).metrics
    expected = zero_variance_probability(metrics["reward"], 4)
    assert metrics["zero_variance"] == pytest.approx(expected, abs=0.2)


def test_the_reference_stays_as_it_is():
    model = small_model()
    reference, start = frozen_copy(model), weights(model)
    before = weights(reference)
    train_grpo(model, Sorting(), SHORT, seed=0, reference=reference, reward=lambda p, t, f: float(len(t)))
    assert torch.equal(before, weights(reference))
    assert not torch.equal(start, weights(model))


def test_a_reward_model_can_take_the_rule_s_place():
    model = small_model()
    reward_model = RewardModel(model)
    with torch.no_grad():
        reward_model.score.weight.normal_(generator=torch.Generator().manual_seed(0))
    record = next(iterate_grpo(model, Sorting(), SHORT, seed=0, reward=reward_model))
    written = generate(small_model(), Sorting().prompts(2, np.random.default_rng(0)), max_new_tokens=4)
    assert reward_model.scores(written).requires_grad  # it could learn, but the trainer only reads it
    assert math.isfinite(record.metrics["reward"])


@pytest.mark.parametrize("stop_at", [1, 3])
def test_a_resumed_run_ends_bit_for_bit_where_an_undisturbed_one_does(stop_at, tmp_path):
    reference = frozen_copy(small_model())
    reward = lambda prompt, text, finished: float(len(text))  # noqa: E731
    options = {"seed": 1, "reference": reference, "reward": reward}
    whole, begun, resumed = small_model(), small_model(), small_model(seed=4)
    expected = train_grpo(whole, Sorting(), SHORT, **options)
    path = tmp_path / "grpo.pt"
    train_grpo(
        begun, Sorting(), SHORT, **options, checkpoint=path, checkpoint_every=1, stop=lambda u: u.update == stop_at
    )
    result = train_grpo(resumed, Sorting(), SHORT, **options, checkpoint=path)
    assert torch.equal(weights(whole), weights(resumed))
    assert np.array_equal(expected.history["reward"], result.history["reward"])
    with pytest.raises(ValueError, match="reference is missing"):
        train_grpo(small_model(), Sorting(), SHORT, seed=1, reward=reward, checkpoint=path)


def test_one_seed_one_result():
    models = [small_model() for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        train_grpo(model, Sorting(), replace(SHORT, updates=2), seed=seed, reward=lambda p, t, f: float(len(t)))
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert not torch.equal(weights(models[0]), weights(models[2]))


@pytest.mark.parametrize("broken", [lambda p, t, f: math.nan, lambda p, t, f: 1 / 0])
def test_a_broken_reward_stops_the_run_with_its_sample(broken, tmp_path):
    calls, path = itertools.count(), tmp_path / "grpo.pt"

    def reward(prompt, text, finished):
        return broken(prompt, text, finished) if next(calls) >= 2 * 16 + 3 else 0.0

    with pytest.raises(RewardError, match="sample 3: prompt '"):
        train_grpo(small_model(), Sorting(), SHORT, seed=0, reward=reward, checkpoint=path, checkpoint_every=1)
    assert load_checkpoint(path)["update"] == 2


def test_a_watcher_sees_every_round_and_may_add_metrics():
    seen = []

    def watch(completions, rewards):
        seen.append((completions.texts[0], rewards))
        return {"longest": float(completions.lengths.max())}

    length = lambda prompt, text, finished: float(len(text))  # noqa: E731
    watched, plain = small_model(), small_model()
    result = train_grpo(watched, Sorting(), SHORT, seed=0, reward=length, watch=watch)
    train_grpo(plain, Sorting(), SHORT, seed=0, reward=length)
    assert torch.equal(weights(watched), weights(plain))
    assert [rewards.shape for _, rewards in seen] == [(4, 4)] * SHORT.updates
    assert [float(rewards[0, 0]) for _, rewards in seen] == [len(text) for text, _ in seen]
    assert result.history["reward"].tolist() == pytest.approx([float(rewards.mean()) for _, rewards in seen])
    assert (result.history["longest"] >= result.history["length"]).all()
    train_grpo(small_model(), Sorting(), SHORT, seed=0, watch=lambda completions, rewards: None)


def test_a_wrong_call_is_refused_before_anything_runs():
    for arguments in ({"config": 3}, {"seed": -1}, {"task": None}, {"reward": 3}, {"watch": 3}):
        arguments = {"model": small_model(), "task": Sorting(), "config": SHORT, "seed": 0} | arguments
        with pytest.raises((TypeError, ValueError), match="config is 3|seed is -1|task is None|reward is 3|watch is 3"):
            iterate_grpo(**arguments)


def test_accuracy_is_evaluated_when_asked():
    run = iterate_grpo(small_model(), Sorting(), replace(SHORT, evaluate_every=2), seed=0)
    found = ["accuracy" in next(run).metrics for _ in range(4)]
    assert found == [False, True, False, True]


@pytest.mark.parametrize(
    "bad",
    [
        {"group": 1},
        {"minibatches": 5},
        {"prompts": 0},
        {"clip": (0.0, 0.2)},
        {"beta": -1.0},
        {"kl": "k0"},
        {"scale": "var"},
        {"normalize": "none"},
        {"learning_rate": 0.0},
        {"temperature": 0.0},
        {"ddof": 7},
        {"final_share": -3},
    ],
)
def test_bad_settings(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        GRPOConfig(**bad)


@pytest.mark.parametrize("bad", [{"group": 2.5}, {"beta": "x"}, {"clip": 0.2}, {"learning_rate": None}, {"kl": 3}])
def test_settings_of_the_wrong_kind(bad):
    with pytest.raises(TypeError, match=next(iter(bad))):
        GRPOConfig(**bad)


def test_text_is_no_price():
    with pytest.raises(TypeError, match="epsilon is 'x'; expected a number, 0 or more"):
        group_advantages(torch.ones(1, 2), epsilon="x")
    new, old, ref, advantages, mask = batch()
    with pytest.raises(TypeError, match="beta is 'x'; expected a number, 0 or more"):
        grpo_loss(new, old, advantages, mask, log_prob_ref=ref, beta="x")


# ------------------------------------------------------------------------------------------------ what a run costs


@pytest.mark.equation("eq-training-memory")
def test_memory_of_real_models_and_optimizers():
    """Counted on tensors: two models with their gradients and Adam's moments in float32, and two frozen ones."""
    trained, held = [small_model(), small_model(1)], [frozen_copy(small_model()), frozen_copy(small_model())]
    count = 0
    for model in trained:
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.tensor([[2, 3]]), torch.ones(1, 2, dtype=torch.bool)).sum().backward()
        for p in model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        optimizer.step()
        moments = [s[name] for s in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
        count += sum(x.numel() * 4 for x in [*model.parameters(), *(p.grad for p in model.parameters()), *moments])
    count += sum(p.numel() * 4 for model in held for p in model.parameters())
    size = sum(p.numel() for p in trained[0].parameters())
    assert training_memory(size, trained=2, frozen=2, weight_bytes=4, state_bytes=12) == count


def test_memory_in_mixed_precision():
    assert training_memory(7_000_000_000, trained=2, frozen=2) == 7_000_000_000 * (2 * 16 + 2 * 2)
    assert training_memory(7_000_000_000, trained=1, frozen=0) == 7_000_000_000 * 16
    with pytest.raises(ValueError, match="frozen is -1"):
        training_memory(10, frozen=-1)


@pytest.mark.equation("eq-training-flops")
def test_operations_against_a_counter():
    """torch counts the operations of a model that is large enough for its matrices to dominate."""
    from torch.utils.flop_counter import FlopCounterMode

    model = Transformer(CharTokenizer("ab"), TransformerConfig(width=128, layers=2, heads=2), seed=0)
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name)
    tokens = torch.tensor([[2, 3, 2, 3, 2, 3]])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(tokens, mask)
    with FlopCounterMode(display=False) as both:
        model(tokens, mask).sum().backward()
    expected = training_flops(matrices, 4, 2)
    assert forward.get_total_flops() == pytest.approx(expected["frozen"], rel=0.03)
    assert both.get_total_flops() == pytest.approx(expected["training"], rel=0.05)
    two_epochs = training_flops(10, 3, 2, epochs=2, frozen_passes=3)  # by hand: 5 tokens, 2 operations a weight
    assert two_epochs == {"sampling": 100, "frozen": 300, "training": 600}
    with pytest.raises(ValueError, match="epochs"):
        training_flops(1, 1, 1, epochs=-1)
