"""GRPO: advantages against reference values, the loss and its gradient by hand and against a peer, exact expectations, training."""

import copy
import functools
import inspect
import itertools
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rlbook_lib import fine_tuning, grpo, language_model, reward_model as reward_model_module, rlhf, text_tasks
from rlbook_lib.checks import checked
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
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig
from rlbook_lib.reward_model import RewardModel
from rlbook_lib.text_tasks import RewardError, Sorting
from rlbook_lib.training import frozen_copy, load_checkpoint
from tests.language_models import Letter, alone, descend, same_weights, small_model, weights

REFERENCE = json.loads((Path(__file__).parent / "reference_values.json").read_text("utf-8"))["grpo"]
SHORT = GRPOConfig(updates=4, prompts=4, group=4, minibatches=2, warmup=1, beta=0.05)
NORMALIZATIONS = ["sequence", "token", "constant"]


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
        (torch.tensor([[1.0, math.nan]]), {}, "NaN"),
        (torch.ones(1, 2), {"ddof": 2}, "ddof is 2"),
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


@pytest.mark.parametrize("loss_of", [grpo_loss, grpo_loss.__unchecked__], ids=["through the door", "bare"])
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 123.0])
def test_what_stands_at_masked_positions_changes_nothing(normalize, garbage, loss_of):
    new, old, ref, advantages, mask = batch()
    results = []
    for fill in (0.0, garbage):
        dirty = [torch.where(mask, x, fill) for x in (new, old, ref)]
        leaf = dirty[0].requires_grad_(True)
        loss = loss_of(leaf, dirty[1], advantages, mask, log_prob_ref=dirty[2], beta=0.1, normalize=normalize)
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
    assert aggregate.__unchecked__(terms, mask.bool(), "sequence").item() == pytest.approx((2.5 + 8) / 2)


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
        ({"advantages": torch.ones(4, 6)}, "advantages has shape"),
        ({"advantages": torch.tensor([1.0, math.nan, 0.0, 0.0])}, "advantages holds NaN"),
        ({"log_prob_old": torch.full((4, 6), math.nan)}, "log_prob_old holds NaN"),
        ({"beta": 0.1, "log_prob_ref": None}, "log_prob_ref is None and beta is 0.1"),
        ({"clip": (1.0, 0.2)}, "clip"),
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


@pytest.mark.parametrize("normalize", ["sequence", "token", "constant"])
def test_rows_read_in_parts_train_as_all_at_once(normalize):
    config = dict(updates=2, prompts=4, group=4, minibatches=2, beta=0.05, normalize=normalize, learning_rate=1e-2)
    ends = []
    for rows in (0, 3):
        model, settings = small_model().double(), GRPOConfig(**config, rows_at_once=rows)
        run = train_grpo(model, Sorting(), settings, seed=0, reward=lambda prompt, text, finished: len(set(text)))
        ends.append((model, run.history))
    (one, whole), (other, parts) = ends
    assert same_weights(one, other)
    for name in whole:
        assert np.allclose(whole[name], parts[name], rtol=1e-5), name


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


@pytest.mark.parametrize(("kl", "normalize"), [("k2", "sequence"), ("k3", "token")])
def test_one_update_number_by_number(kl, normalize):
    """Two epochs of two minibatches in plain torch, a completion at a time: weights and metrics."""
    task, seen = Sorting(shortest=2, longest=4), []
    model, reference = small_model().double(), small_model(1).double()
    plain = copy.deepcopy(model)
    config = GRPOConfig(
        updates=4, prompts=3, group=4, epochs=2, minibatches=2, learning_rate=1e-2, warmup=2, max_gradient_norm=0.3
    )
    config = replace(config, clip=(0.1, 0.15), beta=0.3, kl=kl, normalize=normalize, temperature=0.7)
    options = {"reference": reference, "reward": lambda p, text, f: len(text) + 2.0 * f, "seed": 5}
    metrics = next(iterate_grpo(model, task, config, watch=lambda c, r: seen.append((c, r)), **options)).metrics

    (batch, rewards), rng, shown = seen[0], np.random.default_rng(5), []
    rng.integers(2**62)  # the seed of the sampling
    assert batch.prompts == [prompt for prompt in task.prompts(3, rng) for _ in range(4)]
    optimizer = torch.optim.AdamW(plain.parameters(), betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    for order in [rng.permutation(12), rng.permutation(12)]:
        for index in (order[:6], order[6:]):
            terms, found = [], {"entropy": [], "clipped": [], "kl": []}
            for i in index.tolist():
                group = rewards[i // 4]
                advantage = (group[i % 4] - group.mean()) / (((group - group.mean()) ** 2).mean().sqrt() + 1e-6)
                new, rows, _ = alone(plain, batch, i, 0.7)
                old, ref = batch.log_probs[i][batch.mask[i]], alone(reference, batch, i, 0.7)[0].detach()
                ratio = (new - old).exp()
                k3 = (ref - new).exp() - 1 - (ref - new)
                objective = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.15) * advantage)
                terms.append(objective - 0.3 * (k3 if kl == "k3" else (ref - new) ** 2 / 2))
                found["entropy"] += (-(rows.exp() * rows).sum(1)).tolist()
                found["clipped"] += ((ratio < 0.9) | (ratio > 1.15)).tolist()
                found["kl"] += k3.tolist()
            mean = torch.cat(terms).mean() if normalize == "token" else torch.stack([t.mean() for t in terms]).mean()
            norm = descend(optimizer, -mean, 1e-2 / 2, 0.3)
            shown.append({name: np.mean(values) for name, values in found.items()} | {"gradient_norm": norm})
    for name in shown[0]:
        assert metrics[name] == pytest.approx(np.mean([row[name] for row in shown]), rel=1e-5), name
    assert same_weights(model, plain)
    assert metrics["clipped"] > 0 and metrics["kl"] > 0.01  # the batch has what the formulas are about


def same_thing(one, other):
    """Of one kind and equal: an array for an array, a float for a float."""
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same_thing, one, other))
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    return one is other or (type(one) is type(other) and bool(np.all(one == other)))


def through_the_door(function, faults, called):
    """The bare function, and a note where the door, which inner calls pass by, would have handed it something else."""
    bare = function.__unchecked__
    taken = functools.wraps(bare)(lambda **arguments: arguments)
    door = checked(taken, arrays=inspect.getclosurevars(function).nonlocals["arrays"])

    def spied(*args, **kwargs):
        came = inspect.signature(bare).bind(*args, **kwargs)
        came.apply_defaults()
        called.add(bare.__name__)
        for name, value in door(*args, **kwargs).items():
            if not same_thing(came.arguments[name], value):
                faults.append(f"{bare.__name__}: {name} came as {came.arguments[name]!r}, and goes in as {value!r}")
        return bare(*args, **kwargs)

    return functools.wraps(bare)(spied)


FORMULAS = """masked_mean sft_loss preference_loss shape_rewards completion_gae gae whiten rlhf_policy_loss clip_objective
    value_loss total_loss sequence_kl sequence_log_prob adapt_beta kl_estimate group_advantages grpo_loss
    leave_one_out_baseline token_objective token_kl aggregate temperature_log_probs causal_attention explained_variance"""


def test_trainers_run_the_formulas_and_hand_over_what_the_door_would_have_made_of_it(monkeypatch):
    model, faults, called = small_model(), [], set()
    reward_model = RewardModel(model)
    for module in (language_model, text_tasks, fine_tuning, reward_model_module, rlhf, grpo):
        for name, function in list(vars(module).items()):
            is_plain = inspect.isfunction(function) and hasattr(function, "__unchecked__")
            if is_plain and not name.startswith(("iterate", "train")):
                spied = through_the_door(function, faults, called)
                monkeypatch.setattr(module, name, spied)
    for name in ("scores", "values"):
        spied = through_the_door(getattr(RewardModel, name), faults, called)
        monkeypatch.setattr(RewardModel, name, spied)
    sft = fine_tuning.SFTConfig(updates=1, batch_size=4)
    fine_tuning.train_sft(model, Sorting(), sft, seed=0)
    pairs = text_tasks.preference_pairs(model, Sorting(), 8, seed=0)
    reward_model_module.train_reward_model(reward_model, pairs, seed=0)
    steered = {"kl_target": 1.0, "entropy_coefficient": 0.1, "pretraining_coefficient": 0.1, "evaluate_every": 1}
    ppo = rlhf.RLHFConfig(updates=1, batch_size=4, minibatches=2, value_warmup=0, **steered)
    rlhf.train_rlhf(model, Sorting(), ppo, seed=0, reward=reward_model)
    for beta, scale in ((0.1, "leave_one_out"), (0.0, "std")):
        config = replace(SHORT, updates=2, beta=beta, scale=scale, evaluate_every=2)
        found = train_grpo(model, Sorting(), config, seed=0, reward=reward_model if beta else None).history["accuracy"]
        assert np.isnan(found[0]) and found[1] >= 0  # measured when it was asked for
    assert faults == [] and called >= set(FORMULAS.split())


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


PPO = rlhf.RLHFConfig(updates=4, batch_size=16, minibatches=2, value_warmup=1, warmup=1)


CHANGES = {
    "learning_rate": 1e-4,
    "warmup": 3,
    "final_share": 0.9,
    "max_gradient_norm": 0.01,
    "epochs": 3,
    "minibatches": 4,
}
CHANGES |= {"temperature": 0.7, "beta": 0.3, "updates": 5}
OF_GRPO = {
    "prompts": 6,
    "group": 6,
    "clip": (1e-3, 0.2),
    "kl": "k1",
    "scale": "none",
    "ddof": 1,
    "normalize": "sequence",
}
OF_PPO = {
    "batch_size": 20,
    "value_learning_rate": 1e-4,
    "value_warmup": 0,
    "clip": 1e-3,
    "value_clip": 1e-4,
    "gamma": 0.5,
}
OF_PPO |= {
    "lam": 0.3,
    "kl_target": 1.0,
    "step_kl_limit": 1e-7,
    "entropy_coefficient": 0.5,
    "pretraining_coefficient": 0.5,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "config", "changes"), [(train_grpo, SHORT, CHANGES | OF_GRPO), (rlhf.train_rlhf, PPO, CHANGES | OF_PPO)]
)
def test_every_setting_matters(train, config, changes):
    def trained(config):
        return weights(train(small_model(), Sorting(), config, seed=0, reward=lambda p, t, f: len(t) + 2.0 * f).policy)

    # when one looks, and how many rows are read at once, are no part of what is learned
    assert {field.name for field in fields(config)} - changes.keys() <= {"evaluate_every", "rows_at_once"}
    assert changes.keys() <= {field.name for field in fields(config)}
    before = trained(config)
    assert [
        name for name, value in changes.items() if torch.equal(before, trained(replace(config, **{name: value})))
    ] == []


@pytest.mark.parametrize(("train", "config"), [(train_grpo, SHORT), (rlhf.train_rlhf, PPO)], ids=["grpo", "rlhf"])
@pytest.mark.parametrize("broken", [lambda p, t, f: math.nan, lambda p, t, f: 1 / 0])
def test_a_broken_reward_stops_the_run_with_its_sample(broken, train, config, tmp_path):
    calls, path = itertools.count(), tmp_path / "run.pt"

    def reward(prompt, text, finished):
        return broken(prompt, text, finished) if next(calls) >= 2 * 16 + 3 else 0.0

    with pytest.raises(RewardError, match="sample 3: prompt '"):
        train(small_model(), Sorting(), config, seed=0, reward=reward, checkpoint=path, checkpoint_every=1)
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


def test_the_reference_is_the_model_as_it_comes_unless_another_is_given():
    options = {"seed": 1, "reward": lambda prompt, text, finished: float(len(text))}
    given = train_grpo(small_model(), Sorting(), SHORT, reference=frozen_copy(small_model()), **options)
    default = train_grpo(small_model(), Sorting(), SHORT, **options)
    other = train_grpo(small_model(), Sorting(), SHORT, reference=small_model(1), **options)
    assert np.array_equal(given.history["kl"], default.history["kl"])
    assert default.history["kl"][0] < default.history["kl"][-1] < other.history["kl"][0]


def test_a_run_goes_on_only_with_its_reference():
    state = next(iterate_grpo(small_model(), Sorting(), SHORT, seed=1)).state()
    with pytest.raises(ValueError, match="reference is missing"):
        next(iterate_grpo(small_model(), Sorting(), SHORT, seed=1, state=state))
    free = replace(SHORT, beta=0.0)  # needs none
    state = next(iterate_grpo(small_model(), Sorting(), free, seed=1)).state()
    assert next(iterate_grpo(small_model(), Sorting(), free, seed=1, state=state)).update == 2


@pytest.mark.parametrize(
    ("bad", "message"), [({"minibatches": 5}, "a divisor of prompts . group = 512"), ({"group": 1}, "2 or more")]
)
def test_settings_that_do_not_go_together(bad, message):
    with pytest.raises(ValueError, match=message):
        GRPOConfig(**bad)


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
