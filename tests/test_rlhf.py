"""PPO on a language model: exact small cases, hand-computed trajectories, masks, frozen models, exact resuming, broken rewards."""

import copy
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from rlbook_lib import rlhf
from rlbook_lib.divergences import kl_divergence
from rlbook_lib.language_model import encode_completions, generate, left_pad, token_log_probs
from rlbook_lib.reward_model import RewardModel
from rlbook_lib.rlhf import (
    RLHFConfig,
    adapt_beta,
    completion_gae,
    dpo_loss,
    iterate_rlhf,
    rlhf_objective,
    rlhf_optimum,
    rlhf_policy_loss,
    sequence_kl,
    shape_rewards,
    total_loss,
    train_rlhf,
    whiten,
)
from rlbook_lib.text_tasks import Sorting
from rlbook_lib.training import frozen_copy
from tests.language_models import Letter, alone, descend, same_weights, small_model, weights

SHORT = RLHFConfig(updates=5, batch_size=16, minibatches=2, value_warmup=1, warmup=1)


# ---------------------------------------------------------------------------------- the objective, exactly


REWARDS, REFERENCE, BETA = np.array([1.0, 0.2, -0.5, 0.9]), np.array([0.1, 0.5, 0.3, 0.1]), 0.4


@pytest.mark.equation("eq-rlhf-objective")
def test_the_objective_by_hand():
    policy = np.array([0.4, 0.3, 0.2, 0.1])
    by_hand = sum(p * (r - BETA * math.log(p / q)) for p, r, q in zip(policy, REWARDS, REFERENCE, strict=True))
    assert rlhf_objective(policy, REWARDS, REFERENCE, BETA) == pytest.approx(by_hand, abs=1e-12)
    assert rlhf_objective(REFERENCE, REWARDS, REFERENCE, 5.0) == pytest.approx(REFERENCE @ REWARDS)
    assert rlhf_objective([0, 0, 1.0, 0], REWARDS, [0.5, 0.5, 0, 0], 0.0) == -0.5  # a divergence that costs nothing
    assert rlhf_objective([0, 0, 1.0, 0], REWARDS, [0.5, 0.5, 0, 0], 0.1) == -math.inf


@pytest.mark.equation("eq-rlhf-optimum")
def test_the_optimum_is_that_of_a_general_optimizer():
    def minus(logits):
        policy = np.exp(logits - logits.max())
        return -rlhf_objective(policy / policy.sum(), REWARDS, REFERENCE, BETA)

    best = minimize(minus, np.zeros(4), tol=1e-12).x
    best = np.exp(best - best.max()) / np.exp(best - best.max()).sum()
    assert rlhf_optimum(REWARDS, REFERENCE, BETA) == pytest.approx(best, abs=1e-5)
    # its value in closed form: beta log E_ref[exp(r / beta)]
    value = BETA * math.log((REFERENCE * np.exp(REWARDS / BETA)).sum())
    assert rlhf_objective(rlhf_optimum(REWARDS, REFERENCE, BETA), REWARDS, REFERENCE, BETA) == pytest.approx(
        value, abs=1e-12
    )


def test_what_the_reference_cannot_say_has_no_part_in_the_optimum():
    for beta in (1e-300, 0.001, 1.0):
        assert rlhf_optimum([1.0, 0.0], [0.0, 1.0], beta).tolist() == [0.0, 1.0]
    found = rlhf_optimum([1e4, 0.2, -0.5, 0.3], [0.0, 0.5, 0.3, 0.2], 0.1)
    weights = np.array([0.0, 0.5, 0.3 * math.exp(-7), 0.2 * math.exp(1)])
    assert found == pytest.approx(weights / weights.sum(), rel=1e-12)
    assert rlhf_optimum([0.0, 1e308, -1e308], [0.5, 0.25, 0.25], 0.5).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.equation("eq-dpo-loss")
def test_dpo_finds_the_rlhf_optimum_without_a_reward_model():
    """All pairs, weighed by how often a Bradley-Terry judge with these rewards prefers each side."""
    target = torch.tensor(rlhf_optimum(REWARDS, REFERENCE, BETA))
    ref, rewards = torch.tensor(REFERENCE).log(), torch.tensor(REWARDS)
    pairs = list(itertools.permutations(range(4), 2))

    def expected_loss(logits):
        log_prob = logits.log_softmax(0)
        parts = [
            torch.sigmoid(rewards[i] - rewards[j]) * dpo_loss(log_prob[i], log_prob[j], ref[i], ref[j], BETA)
            for i, j in pairs
        ]
        return torch.stack(parts).sum()

    logits = target.log().clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(expected_loss(logits), logits)
    assert gradient.abs().max() < 1e-12
    off = (target.log() + torch.tensor([0.3, 0.0, -0.2, 0.0])).requires_grad_(True)
    (gradient,) = torch.autograd.grad(expected_loss(off), off)
    assert gradient.abs().max() > 1e-2
    assert expected_loss(off) > expected_loss(logits)


# ------------------------------------------------------------------------------------ rewards and advantages


def completions_of_two_letters(model, room):
    """All completions of the prompt "a", with their chances: an exact sum stands in for sampling."""
    eos, characters = model.tokenizer.eos, [t for t in range(model.tokenizer.size) if t != model.tokenizer.eos]
    ended = [[*head, eos] for n in range(room) for head in itertools.product(characters, repeat=n)]
    rows = ended + [list(cut) for cut in itertools.product(characters, repeat=room)]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [model.tokenizer.pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])
    return tokens, mask


def log_probs_of(model, tokens, mask):
    prompt, prompt_mask = left_pad([model.tokenizer.encode("a")] * len(tokens), model.tokenizer.pad)
    whole = token_log_probs(model, torch.cat([prompt, tokens], 1), torch.cat([prompt_mask, mask], 1))
    return whole[:, prompt.shape[1] :].detach()


@pytest.mark.equation("eq-sequence-kl")
def test_the_mean_over_completions_is_the_divergence_of_the_sequences():
    model, reference = small_model(0, "ab").double(), small_model(1, "ab").double()
    tokens, mask = completions_of_two_letters(model, room=3)
    log_prob, log_prob_ref = log_probs_of(model, tokens, mask), log_probs_of(reference, tokens, mask)
    p, q = log_prob.sum(1).exp(), log_prob_ref.sum(1).exp()
    assert p.sum().item() == pytest.approx(1.0, abs=1e-12)
    mean = (p * sequence_kl(log_prob, log_prob_ref, mask)).sum().item()
    assert mean == pytest.approx(float(kl_divergence(p.numpy(), q.numpy())), abs=1e-12)
    assert sequence_kl(log_prob, log_prob_ref, mask).min() < 0 < mean  # a single sample may say less than nothing


LOG_PROB = torch.tensor([[-0.5, -1.0, -0.2, math.nan], [-0.7, -0.3, -0.9, -0.1]])
LOG_REF = torch.tensor([[-0.8, -0.9, -0.6, 7.0], [-0.7, -0.5, -0.8, -0.4]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])


@pytest.mark.equation("eq-shaped-reward")
def test_shaped_rewards_by_hand():
    found = shape_rewards(torch.tensor([2.0, -1.0]), LOG_PROB, LOG_REF, MASK, beta=0.1)
    expected = torch.tensor([[-0.03, 0.01, 2.0 - 0.04, 0.0], [0.0, -0.02, 0.01, -1.0 - 0.03]])
    assert torch.allclose(found, expected, atol=1e-6)
    score_minus_kl = torch.tensor([2.0, -1.0]) - 0.1 * sequence_kl(LOG_PROB, LOG_REF, MASK)
    assert torch.allclose(found.sum(1), score_minus_kl, atol=1e-6)


def test_the_reference_stands_in_the_ratio_not_the_old_policy():
    """Against the policy that sampled, the penalty would be 0 whatever the model does (erratum E55)."""
    scores = torch.tensor([2.0, -1.0])
    clean = LOG_PROB.nan_to_num()
    assert torch.equal(shape_rewards(scores, clean, clean, MASK, 0.5).sum(1), scores)
    assert not torch.allclose(shape_rewards(scores, clean, LOG_REF, MASK, 0.5).sum(1), scores)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": torch.zeros(3)}, r"log_prob has shape \(2, 4\); expected \(3, N\), like scores"),
        ({"mask": torch.ones(2, 4)}, "log_prob holds NaN"),
    ],
)
def test_bad_input_to_shape_rewards(changes, message):
    arguments = {"scores": torch.zeros(2), "log_prob": LOG_PROB, "log_prob_ref": LOG_REF, "mask": MASK, "beta": 0.1}
    with pytest.raises(ValueError, match=message):
        shape_rewards(**(arguments | changes))


@pytest.mark.equation("eq-completion-gae")
def test_gae_by_hand_and_whatever_the_padding():
    rewards, values = torch.tensor([[0.1, -0.2, 1.0]]), torch.tensor([[0.5, 0.4, 0.6]])
    lam = 0.9
    errors = [0.1 + 0.4 - 0.5, -0.2 + 0.6 - 0.4, 1.0 - 0.6]  # the last token ends the episode: no value after it
    third = errors[2]
    second = errors[1] + lam * third
    first = errors[0] + lam * second
    found, targets = completion_gae(rewards, values, torch.ones(1, 3), lam=lam)
    assert torch.allclose(found, torch.tensor([[first, second, third]]), atol=1e-6)
    assert torch.allclose(targets, found + values, atol=1e-6)

    padding = torch.tensor([[math.nan, 5.0]])
    other = torch.tensor([[0.3, 0.1, 0.2, 0.4, 0.5]])
    padded, _ = completion_gae(
        torch.cat([torch.cat([rewards, padding], 1), other]),
        torch.cat([torch.cat([values, padding], 1), other]),
        torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
        lam=lam,
    )
    assert torch.allclose(padded[0], torch.tensor([first, second, third, 0.0, 0.0]), atol=1e-6)


@pytest.mark.equation("eq-completion-gae")
def test_gae_is_the_double_sum_at_any_discount():
    generator = torch.Generator().manual_seed(3)
    rewards, values = torch.randn(3, 6, generator=generator), torch.randn(3, 6, generator=generator)
    lengths, gamma, lam = [6, 1, 4], 0.9, 0.8
    found, _ = completion_gae(rewards, values, torch.arange(6)[None] < torch.tensor(lengths)[:, None], gamma, lam)
    for i, length in enumerate(lengths):
        r, v = rewards[i].tolist(), values[i].tolist()
        errors = [r[t] + (gamma * v[t + 1] if t < length - 1 else 0.0) - v[t] for t in range(length)]
        sums = [sum((gamma * lam) ** k * errors[t + k] for k in range(length - t)) for t in range(length)]
        assert found[i].tolist() == pytest.approx(sums + [0.0] * (6 - length), abs=1e-5)


@pytest.mark.equation("eq-whitening")
def test_whitened_advantages_against_numpy():
    generator = torch.Generator().manual_seed(1)
    advantages = torch.randn(5, 7, generator=generator) * 3 + 2
    mask = torch.rand(5, 7, generator=generator) < 0.6
    real = advantages[mask].double().numpy()
    found = whiten(torch.where(mask, advantages, math.nan), mask)
    assert found[mask].numpy() == pytest.approx((real - real.mean()) / real.std(), abs=1e-5)
    assert (found[~mask] == 0).all()


# -------------------------------------------------------------------------------------------------- the losses


@pytest.mark.equation("eq-rlhf-policy-loss")
def test_the_policy_loss_token_by_token():
    generator = torch.Generator().manual_seed(2)
    old = -torch.rand(3, 4, generator=generator)
    new = (old + 0.5 * torch.randn(3, 4, generator=generator)).requires_grad_(True)
    advantages = torch.randn(3, 4, generator=generator)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]])
    terms = []
    for b, t in mask.nonzero().tolist():
        ratio, a = math.exp(float(new[b, t].detach() - old[b, t])), float(advantages[b, t])
        terms.append(min(ratio * a, min(max(ratio, 0.8), 1.2) * a))
    loss = rlhf_policy_loss(new, old, advantages, mask, clip=0.2)
    assert loss.item() == pytest.approx(-sum(terms) / len(terms), abs=1e-6)
    loss.backward()
    assert (new.grad[mask == 0] == 0).all()
    garbage = torch.where(mask.bool(), old, math.nan)
    assert torch.equal(rlhf_policy_loss(new, garbage, advantages, mask), loss)


@pytest.mark.equation("eq-pretraining-mix")
def test_the_gradient_of_the_total_is_the_weighted_sum():
    x = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)

    def parts():
        return x.pow(2).sum(), x.sin().sum(), x.exp().sum()

    policy, entropy, pretraining = parts()
    total = total_loss(
        policy, entropy=entropy, entropy_coefficient=0.01, pretraining_loss=pretraining, pretraining_coefficient=2.0
    )
    (found,) = torch.autograd.grad(total, x)
    assert torch.allclose(found, 2 * x.detach() - 0.01 * x.detach().cos() + 2.0 * x.detach().exp())
    assert total_loss(parts()[0]).item() == pytest.approx(float(x.detach().pow(2).sum()))
    with pytest.raises(ValueError, match="entropy_coefficient"):
        total_loss(policy, entropy=entropy, entropy_coefficient=-1.0)


@pytest.mark.parametrize("formula", [shape_rewards, completion_gae, whiten, rlhf_policy_loss, sequence_kl])
def test_a_bare_formula_ignores_what_a_mask_hides(formula):
    """Value and gradient, as inner calls meet them: no door stands between."""
    generator, found = torch.Generator().manual_seed(0), {}
    tokens = torch.randn(4, 3, 5, generator=generator)
    mask = torch.arange(5)[None] < torch.tensor([5, 1, 3])[:, None]
    count = {shape_rewards: 2, completion_gae: 2, whiten: 1, rlhf_policy_loss: 3, sequence_kl: 2}[formula]
    for garbage in (0.0, 7.0, math.nan, math.inf):
        leaves = [torch.where(mask, x, garbage).requires_grad_(True) for x in tokens[:count]]
        scored = formula is shape_rewards
        out = formula.__unchecked__(*([torch.ones(3)] if scored else []), *leaves, mask, *([0.1] if scored else []))
        parts = out if isinstance(out, tuple) else (out,)
        sum((part**2).sum() for part in parts).backward()
        found[garbage] = [*(part.detach() for part in parts), *(leaf.grad for leaf in leaves if leaf.grad is not None)]
    for other in (7.0, math.nan, math.inf):
        assert len(found[other]) == len(found[0.0]) > 1
        assert all(torch.equal(a, b) for a, b in zip(found[0.0], found[other]))
        assert all((x[~mask] == 0).all() for x in found[other] if x.shape == mask.shape)


@pytest.mark.equation("eq-kl-controller")
def test_the_price_moves_toward_the_target():
    assert adapt_beta(0.1, kl=6.0, target=6.0) == pytest.approx(0.1)
    assert adapt_beta(0.1, kl=6.6, target=6.0) == pytest.approx(0.1 * 1.01)
    assert adapt_beta(0.1, kl=60.0, target=6.0) == pytest.approx(0.1 * 1.02)  # the error is cut
    assert adapt_beta(0.1, kl=-3.0, target=6.0) == pytest.approx(0.1 * 0.98)
    beta = 0.01
    for _ in range(2000):  # a model whose divergence falls as the price rises: KL = 1 / beta
        beta = adapt_beta(beta, kl=1 / beta, target=5.0)
    assert beta == pytest.approx(0.2, rel=1e-3)
    with pytest.raises(ValueError, match="target"):
        adapt_beta(0.1, 1.0, 0.0)


# ------------------------------------------------------------------------------------------------ the training


@pytest.mark.slow
def test_it_learns_a_bandit():
    model = small_model(alphabet="ab")
    config = RLHFConfig(updates=30, batch_size=64, learning_rate=6e-3, beta=0.0, value_warmup=0)
    result = train_rlhf(model, Letter(), config, seed=0)
    assert result.history["reward"][:3].mean() < 0.4
    assert result.history["reward"][-5:].mean() > 0.95
    assert result.history["kl"][0] == pytest.approx(0.0, abs=1e-6)  # the policy begins as its own reference
    assert result.history["kl"][-1] > 0.5


@pytest.mark.slow
def test_a_high_price_of_divergence_keeps_the_policy_home():
    kl = {}
    for beta in (0.0, 2.0):
        config = RLHFConfig(updates=20, batch_size=64, learning_rate=6e-3, beta=beta, value_warmup=0)
        kl[beta] = train_rlhf(small_model(alphabet="ab"), Letter(), config, seed=0).history["kl"][-5:].mean()
    assert kl[2.0] < 0.25 * kl[0.0]


@pytest.mark.slow
def test_the_pretraining_mix_keeps_the_demonstrations_likely():
    chance = {}
    for coefficient in (0.0, 5.0):
        model = small_model(alphabet="ab")
        config = RLHFConfig(
            updates=20, batch_size=64, learning_rate=6e-3, beta=0.0, value_warmup=0, pretraining_coefficient=coefficient
        )
        train_rlhf(model, Letter(), config, seed=0)
        chance[coefficient] = generate(model, ["a"] * 500, max_new_tokens=2, seed=0).texts.count("a") / 500
    assert chance[0.0] < 0.1 < 0.3 < chance[5.0]


def test_one_update_number_by_number():
    """Two epochs of two minibatches in plain torch, a completion at a time: weights of both models, and metrics."""
    task, seen = Sorting(shortest=2, longest=4), []
    model, reference = small_model().double(), small_model(1).double()
    value_model = RewardModel(model).double()
    with torch.no_grad():
        value_model.score.weight.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    plain, critic = copy.deepcopy(model), copy.deepcopy(value_model)
    config = RLHFConfig(updates=4, batch_size=8, epochs=2, minibatches=2, warmup=2, value_warmup=0, temperature=0.7)
    config = replace(config, learning_rate=1e-2, value_learning_rate=2e-2, max_gradient_norm=0.3, clip=0.1)
    config = replace(config, value_clip=0.05, gamma=0.9, lam=0.8, beta=0.3, step_kl_limit=None)
    config = replace(config, entropy_coefficient=0.02, pretraining_coefficient=0.1)
    options = {"reference": reference, "value_model": value_model, "reward": lambda p, text, f: len(text), "seed": 5}
    metrics = next(iterate_rlhf(model, task, config, watch=lambda c, s: seen.append((c, s)), **options)).metrics

    (batch, scores), rng = seen[0], np.random.default_rng(5)
    rng.integers(2**62)  # the seed of the sampling
    assert batch.prompts == task.prompts(8, rng)
    values_of = lambda i: critic.score(alone(critic.trunk, batch, i)[2][:-1])[:, 0]  # noqa: E731
    rows, kl = [], []
    for i in range(8):
        old, ref = batch.log_probs[i][batch.mask[i]], alone(reference, batch, i, 0.7)[0].detach()
        rewards, values, advantages, following = -0.3 * (old - ref), values_of(i).detach(), [], 0.0
        rewards[-1] += scores[i]
        for t in reversed(range(len(old))):
            next_value = values[t + 1] if t + 1 < len(old) else 0.0
            following = rewards[t] + 0.9 * next_value - values[t] + 0.9 * 0.8 * following
            advantages.insert(0, following)
        rows.append((old, values, torch.stack(advantages)))
        kl.append(float((old - ref).sum()))
    every = torch.cat([row[2] for row in rows])
    adam = {"betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0}
    optimizers = [torch.optim.AdamW(m.parameters(), **adam) for m in (plain, critic)]
    shown = []
    for _ in range(2):
        order = rng.permutation(8).tolist()
        for index in (order[:4], order[4:]):
            found = {"policy": [], "entropy": [], "clipped": [], "step_kl": [], "worse": [], "value_loss": []}
            for i in index:
                old, values, advantages = rows[i]
                value, target = values_of(i), values + advantages
                nearby = values + (value - values).clamp(-0.05, 0.05)
                found["worse"].append(torch.maximum((value - target) ** 2, (nearby - target) ** 2) / 2)
                found["value_loss"].append((value - target) ** 2 / 2)
                new, table, _ = alone(plain, batch, i, 0.7)
                ratio, white = (new - old).exp(), (advantages - every.mean()) / (every.std(correction=0) + 1e-8)
                found["policy"].append(torch.minimum(ratio * white, ratio.clamp(0.9, 1.1) * white))
                found["entropy"].append(-(table.exp() * table).sum(1))
                found["clipped"].append(((ratio - 1).abs() > 0.1).double())
                found["step_kl"].append(ratio - 1 - (new - old))
            mean = {name: torch.cat(parts).mean() for name, parts in found.items()}
            prompts = task.prompts(4, rng)
            shown_texts = encode_completions(plain, prompts, [task.demonstration(p, rng) for p in prompts])
            demonstrated = torch.cat([alone(plain, shown_texts, i)[0] for i in range(4)]).mean()
            descend(optimizers[1], mean["worse"], 2e-2 / 2, 0.3)
            descend(optimizers[0], -mean["policy"] - 0.02 * mean["entropy"] - 0.1 * demonstrated, 1e-2 / 2, 0.3)
            shown.append({name: mean[name].item() for name in ("entropy", "clipped", "step_kl", "value_loss")})
    expected = {name: np.mean([row[name] for row in shown]) for name in shown[0]}
    expected |= {"kl": np.mean(kl), "reward": float(scores.mean()), "policy_steps": 4, "beta": 0.3}
    errors, targets = torch.cat([a for *_, a in rows]), torch.cat([v + a for _, v, a in rows])
    expected["explained_variance"] = 1 - float(errors.var() / targets.var())
    for name, number in expected.items():
        assert metrics[name] == pytest.approx(number, rel=1e-5), name
    assert same_weights(model, plain) and same_weights(value_model, critic)
    assert metrics["clipped"] > 0 and metrics["step_kl"] > 1e-4  # the batch has what the formulas are about


def test_reference_and_reward_model_stay_as_they_are():
    model = small_model()
    reward_model, reference = RewardModel(model), frozen_copy(model)
    with torch.no_grad():
        reward_model.score.weight.fill_(0.1)
    before = weights(reward_model), weights(reference), weights(model)
    value_model = RewardModel(model)
    value_before = weights(value_model)
    train_rlhf(model, Sorting(), SHORT, seed=0, reference=reference, reward=reward_model, value_model=value_model)
    assert torch.equal(before[0], weights(reward_model))
    assert torch.equal(before[1], weights(reference))
    assert not torch.equal(before[2], weights(model))
    assert not torch.equal(value_before, weights(value_model))


def test_the_policy_waits_for_the_value_model():
    model = small_model()
    before = weights(model)
    run = iterate_rlhf(model, Sorting(), replace(SHORT, value_warmup=2), seed=0)
    records = [next(run) for _ in range(2)]
    assert torch.equal(before, weights(model))
    assert [record.metrics["policy_steps"] for record in records] == [0.0, 0.0]
    assert next(run).metrics["policy_steps"] > 0
    assert not torch.equal(before, weights(model))


def test_the_pass_ends_at_the_limit():
    model = small_model()
    config = replace(SHORT, learning_rate=3e-2, value_warmup=0, epochs=4, step_kl_limit=1e-4)
    first = next(iterate_rlhf(model, Sorting(), config, seed=0)).metrics
    assert 1 <= first["policy_steps"] < 8
    free = next(iterate_rlhf(small_model(), Sorting(), replace(config, step_kl_limit=None), seed=0)).metrics
    assert free["policy_steps"] == 8


def test_the_price_that_is_steered_is_the_price_that_is_paid():
    config, reference, losses = replace(SHORT, kl_target=0.5), frozen_copy(small_model(1)), {}
    state = next(iterate_rlhf(small_model(), Sorting(), config, seed=0, reference=reference)).state()
    for beta in (state["beta"], 5.0):
        options = {"seed": 0, "reference": reference, "state": state | {"beta": beta}}
        record = next(iterate_rlhf(small_model(), Sorting(), config, **options))
        losses[beta] = record.metrics["value_loss"]
        assert record.state()["beta"] == pytest.approx(adapt_beta(beta, record.metrics["kl"], 0.5), abs=1e-12)
    assert losses[5.0] > 10 * losses[state["beta"]]


def test_a_policy_beyond_the_limit_waits_for_the_next_round(monkeypatch):
    answers = iter([{"step_kl": 0.01}, None, {"step_kl": 0.0}, {"step_kl": 0.0}])
    monkeypatch.setattr(rlhf, "_policy_step", lambda *_: next(answers))
    run = iterate_rlhf(small_model(), Sorting(), replace(SHORT, value_warmup=0), seed=0)
    assert next(run).metrics["policy_steps"] == 1.0


def test_a_batch_without_an_end_of_sequence_trains_on():
    model = small_model()

    class Endless(Sorting):
        max_new_tokens = 1

    metrics = next(iterate_rlhf(model, Endless(), SHORT, seed=0)).metrics
    assert metrics["length"] == 1.0
    assert all(math.isfinite(value) for value in metrics.values())


def test_the_reference_is_the_model_as_it_comes_unless_another_is_given():
    given = train_rlhf(small_model(), Sorting(), SHORT, seed=1, reference=frozen_copy(small_model()))
    default = train_rlhf(small_model(), Sorting(), SHORT, seed=1)
    other = train_rlhf(small_model(), Sorting(), SHORT, seed=1, reference=small_model(1))
    assert np.array_equal(given.history["kl"], default.history["kl"])
    started, *later = np.abs(default.history["kl"])  # of samples, so near 0 of either sign
    assert started < 1e-5 < 1e-4 < max(later) < other.history["kl"][0]


def test_a_run_goes_on_only_with_its_reference():
    state = next(iterate_rlhf(small_model(), Sorting(), SHORT, seed=1)).state()
    with pytest.raises(ValueError, match="reference is missing"):
        next(iterate_rlhf(small_model(), Sorting(), SHORT, seed=1, state=state))


@pytest.mark.parametrize("bad", [{"batch_size": 10, "minibatches": 4}, {"kl_target": 2.0, "beta": 0.0}])
def test_settings_that_do_not_go_together(bad):
    with pytest.raises(ValueError, match=list(bad)[-1]):
        RLHFConfig(**bad)
