"""The sorting model of chapter 11: supervised fine-tuning, where its heads look, and reward models of its answers; five seeds.

Case "main" is the page's run. The others show what the demonstrators' habit does, and what longer training does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlbook_lib import reward_model as rm
from rlbook_lib.fine_tuning import SFTConfig, iterate_sft
from rlbook_lib.language_model import CharTokenizer, Completions, Transformer, encode_completions, generate
from rlbook_lib.text_tasks import PreferencePairs, Sorting, hidden_score, preference_pairs, score_completions

SEEDS = range(5)
CASES: dict[str, dict[str, Any]] = {
    "main": {"all_of_it": True},
    "four times as long": {"updates": 1600},
    "habit 0.2": {"drop": 0.2, "frames": False},
    "habit 0.4": {"drop": 0.4, "frames": False},
    "habit 0.8": {"drop": 0.8, "frames": False},
}
FRAMES = [0, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200, 300, 400, 800, 1200, 1600]
STEPS = 10  # tokens of an answer that are kept, EOS and padding included
LOOKED = ["72373=", "80253=", "6299952="]  # of these the attention is kept
SIZES = [37, 75, 150, 300, 600]  # pairs
TRIES = [1, 2, 4, 8, 16, 32, 64, 128, 256]  # answers of which the reward model takes its favorite
TYPED = (  # answers to LOOKED[0] that a reader may pick, the right one first
    "23377 233777 2337 32377 237 77777 33333 99999 12345 72373 77332 23337 22377 33377 27733 23773 23378 13377 2333777"
).split()
KINDS = ["right", "too short", "wrong counts", "wrong order", "foreign digit", "too long"]

TASK = Sorting()
UNSEEN = TASK.prompts(1500, np.random.default_rng(7), "eval")
WATCHED = [*LOOKED, *UNSEEN[:11]]  # their answers are kept


def run(
    seed: int, updates: int = 400, drop: float = 0.6, frames: bool = True, all_of_it: bool = False
) -> dict[str, list[float]]:
    """Loss of each update; shares of answers at the frames; and with ``all_of_it`` what the model does and how it is judged."""
    model = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
    at = [f for f in FRAMES if f <= updates] if frames else [updates]
    curves: dict[str, list[float]] = {"loss": [], "frames": [float(f) for f in at], "answers": []}
    if all_of_it:
        curves |= {f"untrained_{name}": values for name, values in looks(model).items()}
    for name in ("right", "right_different", "right_repeated", "once_repeated", "right_sampled"):
        curves[name] = []
    if frames:
        watch(model, curves)
    for update in iterate_sft(model, Sorting(drop=drop), SFTConfig(updates=updates), seed=seed):
        curves["loss"].append(update.metrics["loss"])
        if update.update in at:
            watch(model, curves)
    if all_of_it:
        curves |= looks(model) | {f"greedy_{name}": values for name, values in looks(model, greedy=True).items()}
        curves |= writing(model) | judged(model, seed)
        curves["mass"] = mass(model)
    return curves


@torch.no_grad()
def watch(model: Transformer, curves: dict[str, list[float]]) -> None:
    """Greedy and sampled answers to unseen prompts, and the tokens of the watched ones."""
    greedy = generate(model, UNSEEN, max_new_tokens=TASK.max_new_tokens, greedy=True)
    sampled = generate(model, UNSEEN, max_new_tokens=TASK.max_new_tokens, seed=11)
    right = score_completions(TASK.reward, greedy).numpy()
    repeated = np.array([len(set(p)) < len(p) for p in UNSEEN])
    once = np.array([o == "".join(sorted(set(p[:-1]))) for p, o in zip(UNSEEN, greedy.texts)])
    curves["right"].append(float(right.mean()))
    curves["right_different"].append(float(right[~repeated].mean()))
    curves["right_repeated"].append(float(right[repeated].mean()))
    curves["once_repeated"].append(float(once[repeated].mean()))
    curves["right_sampled"].append(float(score_completions(TASK.reward, sampled).mean()))
    written = generate(model, WATCHED, max_new_tokens=STEPS, greedy=True).tokens.numpy()
    curves["answers"] += np.pad(written, ((0, 0), (0, STEPS - written.shape[1]))).ravel().tolist()


@torch.no_grad()
def attention(model: Transformer, batch: Completions) -> torch.Tensor:
    """(B, layers, heads, T, S): the weights of eq-attention, written out."""
    tokens = torch.cat([batch.prompt_tokens, batch.tokens], 1)
    mask = torch.cat([batch.prompt_mask, batch.mask], 1)
    found: list[torch.Tensor] = []
    hooks = [
        block.query_key_value.register_forward_hook(lambda _, __, out: found.append(out)) for block in model.blocks
    ]
    model.hidden(tokens, mask)
    for hook in hooks:
        hook.remove()
    allowed = (
        torch.ones(tokens.shape[1], tokens.shape[1]).tril().bool() & mask[:, None, :]
        | torch.eye(tokens.shape[1]).bool()
    )
    weights = []
    for out in found:
        query, key, _ = out.view(*tokens.shape, 3, model.config.heads, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights.append(scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1))
    return torch.stack(weights, 1)


@torch.no_grad()
def looks(model: Transformer, greedy: bool = False) -> dict[str, list[float]]:
    """Share of the steps at which a head looks most at a prompt digit that is the one about to be written, head by head and digit by digit.

    The answers are the right ones, or the model's greedy ones; the last step, EOS, is left out. ``even`` is what a head that looks at all columns alike
    would put there, ``longest`` the share of steps at which a head looks most at the digit written last.
    """
    texts = (
        generate(model, UNSEEN, max_new_tokens=STEPS, greedy=True).texts if greedy else [TASK.answer(p) for p in UNSEEN]
    )
    batch = encode_completions(model, UNSEEN, texts)
    weights = attention(model, batch)  # (B, 2, 4, T, T)
    prompt = batch.prompt_tokens.shape[1]
    tokens = torch.cat([batch.prompt_tokens, batch.tokens], 1)
    steps = torch.arange(batch.tokens.shape[1])
    real = batch.mask & (batch.tokens != model.tokenizer.eos)  # (B, N)
    looking = weights[:, :, :, prompt - 1 : -1]  # column P - 1 + t writes token t
    wanted = (tokens[:, None, :prompt] == batch.tokens[:, :, None]) & real[:, :, None]  # (B, N, P)
    top = looking.argmax(-1)  # (B, 2, 4, N)
    hit = (top < prompt) & wanted[:, None, None].expand(-1, 2, 4, -1, -1).gather(
        -1, top.clamp(max=prompt - 1)[..., None]
    )[..., 0]
    on = (looking[..., :prompt] * wanted[:, None, None]).sum(-1)
    count = real.sum()
    last = (top == prompt - 1 + steps) & real[:, None, None]
    digits = [(batch.tokens == token) & real for token in model.tokenizer.encode("0123456789")]
    by_digit = torch.stack([(hit * here[:, None, None]).sum((0, 3)) / here.sum() for here in digits], -1)  # (2, 4, 10)
    even = (wanted.sum(-1) / (batch.prompt_mask.sum(1)[:, None] + steps)).sum() / count
    return {
        "look": (hit.sum((0, 3)) / count).ravel().tolist(),
        "weight": (on.sum((0, 3)) / count).ravel().tolist(),
        "itself": (last.sum((0, 3)) / count).ravel().tolist(),
        "even": [float(even)],
        "by_digit": by_digit.ravel().tolist(),
    }


@torch.no_grad()
def writing(model: Transformer) -> dict[str, list[float]]:
    """Attention along the right answer, and log-probabilities of all next tokens along the right one."""
    curves: dict[str, list[float]] = {}
    for k, prompt in enumerate(LOOKED):
        path = encode_completions(model, [prompt], [TASK.answer(prompt)])
        weights = attention(model, path)[0, :, :, len(prompt) - 1 : -1]  # (2, 4, steps, columns)
        curves[f"attention_{k}"] = [round(x, 3) for x in weights.ravel().tolist()]
        tokens = torch.cat([path.prompt_tokens, path.tokens], 1)
        rows = model(tokens, torch.ones_like(tokens, dtype=torch.bool))[0, len(prompt) - 1 : -1].log_softmax(
            -1
        )  # (steps, V)
        curves[f"path_{k}"] = [round(x, 4) for x in rows.ravel().tolist()]
    return curves


@torch.no_grad()
def mass(model: Transformer) -> list[float]:
    """Of 16 samples a prompt: share that demonstrators could have written, over 256 unseen prompts."""
    asked = [p for p in UNSEEN[:256] for _ in range(16)]
    written = generate(model, asked, max_new_tokens=TASK.max_new_tokens, seed=31)
    return [float(np.mean([possible(p, o) for p, o in zip(asked, written.texts)]))]


def possible(prompt: str, text: str) -> bool:
    """Some demonstrator writes this: the digits in order, or each once, and at most two neighbors swapped."""
    digits = prompt[:-1]
    for line in (sorted(digits), sorted(set(digits))):
        swapped = [[*line[:k], line[k + 1], line[k], *line[k + 2 :]] for k in range(len(line) - 1)]
        if list(text) in [line, *swapped]:
            return True
    return False


def judged(model: Transformer, seed: int) -> dict[str, list[float]]:
    """Reward models of more and more pairs; the page's one in detail."""
    pairs = preference_pairs(model, TASK, max(SIZES), seed=1000 + seed)
    held = preference_pairs(model, TASK, 3000, seed=2000 + seed, split="eval")
    curves: dict[str, list[float]] = {"sizes": [float(size) for size in SIZES], "accuracy": []}
    for size in SIZES:
        model_of_size = rm.RewardModel(model)
        part = pairs.take(torch.arange(size))
        fitted = rm.train_reward_model(
            model_of_size, part, rm.RewardModelConfig(epochs=max(1, 2400 // size)), seed=seed
        )
        curves["accuracy"].append(rm.preference_accuracy(model_of_size, held))
        if size == 600:
            curves["rm_loss"] = [float(x) for x in fitted.history["loss"]]
            curves |= calibration(model_of_size, held) | favorites(model, model_of_size, part)
            curves |= by_kind(model_of_size, held) | typed(model_of_size) | ruler(held)
    curves["judges_erred"] = [float((pairs.margins < 0).float().mean())]
    curves["judges_tied"] = [float((pairs.margins == 0).float().mean())]
    curves |= judged_again(model, pairs.take(torch.arange(600)))
    return curves


def judged_again(model: Transformer, pairs: PreferencePairs) -> dict[str, list[float]]:
    """Share of new answers that the judges have seen: to new prompts, and to the judged ones."""
    seen = {(p, o) for side in (pairs.chosen, pairs.rejected) for p, o in zip(side.prompts, side.texts)}
    shares = {}
    for name, prompts in (("new", TASK.prompts(1000, np.random.default_rng(3))), ("judged", pairs.chosen.prompts)):
        fresh = generate(model, prompts, seed=5, max_new_tokens=TASK.max_new_tokens)
        shares[f"seen_{name}"] = [float(np.mean([s in seen for s in zip(fresh.prompts, fresh.texts)]))]
    return shares


@torch.no_grad()
def calibration(judge: rm.RewardModel, held: PreferencePairs) -> dict[str, list[float]]:
    """What it says, in sevenths, and what happened; losses on held-out pairs; pairs of equal texts are left out."""
    margin = (judge.scores(held.chosen) - judge.scores(held.rejected)).numpy()
    different = np.array([x != y for x, y in zip(held.chosen.texts, held.rejected.texts)])
    margin, true = margin[different], 3 * held.margins.numpy()[different]
    coin = np.where(np.random.default_rng(0).random(len(margin)) < 0.5, 1, -1)
    said, happened = 1 / (1 + np.exp(-coin * margin)), coin > 0
    place = np.digitize(said, np.linspace(0, 1, 8)[1:-1])
    bins = [place == k for k in range(7)]
    return {
        "said": [float(said[b].mean()) for b in bins],
        "happened": [float(happened[b].mean()) for b in bins],
        "in_bin": [float(b.sum()) for b in bins],
        "held_loss": [float(np.logaddexp(0, -margin).mean()), float(np.logaddexp(0, -true).mean())],
    }


@torch.no_grad()
def favorites(model: Transformer, judge: rm.RewardModel, pairs: PreferencePairs) -> dict[str, list[float]]:
    """The favorite of n answers: its score and its hidden score, at two temperatures; and what the favorites of 256 look like."""
    asked = TASK.prompts(64, np.random.default_rng(9), "eval")
    correct = judge.scores(encode_completions(model, asked, [TASK.answer(p) for p in asked]))
    curves: dict[str, list[float]] = {"tries": [float(n) for n in TRIES]}
    for kappa in (1.0, 2.0):
        written = generate(
            model, [p for p in asked for _ in range(256)], max_new_tokens=TASK.max_new_tokens, temperature=kappa, seed=3
        )
        said = judge.scores(written).view(64, 256)
        truth = score_completions(hidden_score, written).view(64, 256)
        best_said, best_truth = [], []
        for n in TRIES:  # the samples in groups of n
            top = said.view(64, -1, n).argmax(-1, keepdim=True)
            best_said.append(float(said.view(64, -1, n).gather(2, top).mean()))
            best_truth.append(float(truth.view(64, -1, n).gather(2, top).mean()))
        curves[f"best_said_{kappa:.0f}"], curves[f"best_truth_{kappa:.0f}"] = best_said, best_truth
        pick = said.argmax(1)
        texts = [written.texts[256 * k + i] for k, i in enumerate(pick.tolist())]
        odd = [strange(p, o) for p, o in zip(asked, texts)]
        curves[f"favorites_{kappa:.0f}"] = [
            float((said.max(1).values >= correct - 0.1).float().mean()),
            float(truth.gather(1, pick[:, None]).mean()),
            float(np.mean(odd)),
            float(np.mean([len(o) < len(p) - 1 for p, o in zip(asked, texts)])),
            float(np.mean([o == TASK.answer(p) for p, o in zip(asked, texts)])),
        ]
    curves["right_said"] = [float(correct.mean())]
    both = [(p, o) for side in (pairs.chosen, pairs.rejected) for p, o in zip(side.prompts, side.texts)]
    curves["strange_judged"] = [float(np.mean([strange(p, o) for p, o in both]))]
    return curves


def kind_of(prompt: str, text: str) -> int:
    """The place in ``KINDS`` of an answer."""
    digits = prompt[:-1]
    if len(text) != len(digits):
        return 1 if len(text) < len(digits) else 5
    if not set(text) <= set(digits):
        return 4
    if sorted(text) != sorted(digits):
        return 2
    return 0 if text == TASK.answer(prompt) else 3


@torch.no_grad()
def by_kind(judge: rm.RewardModel, held: PreferencePairs) -> dict[str, list[float]]:
    """Of each kind of answer in the held-out pairs: its share, the median score less the right answer's, the share within 0.1 of it."""
    right = judge.scores(
        encode_completions(judge.trunk, held.chosen.prompts, [TASK.answer(p) for p in held.chosen.prompts])
    )
    less, kinds = [], []
    for side in (held.chosen, held.rejected):
        less += (judge.scores(side) - right).tolist()
        kinds += [kind_of(p, o) for p, o in zip(side.prompts, side.texts)]
    parts = [np.array(less)[np.array(kinds) == kind] for kind in range(len(KINDS))]
    return {
        "kind_share": [len(part) / len(less) for part in parts],
        "kind_less": [float(np.median(part)) for part in parts],
        "kind_reach": [float((part >= -0.1).mean()) for part in parts],
    }


@torch.no_grad()
def typed(judge: rm.RewardModel) -> dict[str, list[float]]:
    """What the answers of ``TYPED`` score, less the first one's score."""
    scores = judge.scores(encode_completions(judge.trunk, [LOOKED[0]] * len(TYPED), TYPED))
    return {"typed": (scores - scores[0]).tolist()}


def ruler(held: PreferencePairs) -> dict[str, list[float]]:
    """A judge that sees only how many digits are missing: share of the pairs that it ranks right; and of those with one short side."""
    missing = np.array(
        [[max(len(p) - 1 - len(o), 0) for p, o in zip(x.prompts, x.texts)] for x in (held.chosen, held.rejected)]
    )
    better = np.sign(held.margins.numpy())
    right = np.where(missing[0] == missing[1], 0.5, np.sign(missing[1] - missing[0]) == better)
    return {
        "ruler": [float(right[better != 0].mean())],
        "one_short": [float(((missing == 0).sum(0) == 1)[better != 0].mean())],
    }


def strange(prompt: str, text: str) -> bool:
    """Too long, or with a character that the prompt's digits lack."""
    digits = prompt[:-1]
    return len(text) > len(digits) or not set(text) <= set(digits)
