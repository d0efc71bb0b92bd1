import numpy as np
import torch
from claims import cells

from rlbook_lib import reward_model as rm
from rlbook_lib.fine_tuning import SFTConfig, train_sft
from rlbook_lib.language_model import CharTokenizer, Transformer, encode_completions, generate, temperature_log_probs
from rlbook_lib.text_tasks import Sorting


def _table(rng, items=3):
    return rng.integers(1, 13, (items, items)) * (1 - np.eye(items, dtype=int))


def more_wins_of_b_over_c_move_a_against_b(seed):
    """the more of them B wins, the stronger B looks next to A too, and $p_A/p_B$ falls"""
    table = _table(np.random.default_rng(seed))
    games, quotients = table[1, 2] + table[2, 1], []
    for won in range(1, games):
        table[1, 2], table[2, 1] = won, games - won
        p = rm.bradley_terry_mle(table)
        quotients.append(p[0] / p[1])
    return np.all(np.diff(quotients) < 0)


def as_many_wins_as_expected(seed):
    """At the maximum, each answer has *exactly as many wins as the model expects*."""
    wins = _table(np.random.default_rng(seed), items=5)
    p = rm.bradley_terry_mle(wins)
    expected = ((wins + wins.T) * rm.bradley_terry_probability(p[:, None], p[None, :])).sum(1)
    return np.allclose(wins.sum(1), expected, atol=1e-4)


def only_the_zero_is_free_and_each_prompt_has_its_own(seed):
    """a perfect fit would be $3h$ plus a constant, one for each prompt"""
    rng = np.random.default_rng(seed)
    better, worse, weight = [], [], []  # of each pair: 3h, and how often the judges prefer it so
    for prompt in range(2):
        scores = 3 * rng.uniform(-1, 1, 5)
        chance = 1 / (1 + np.exp(scores[None, :] - scores[:, None]))
        fitted = np.log(rm.bradley_terry_mle(100 * chance * (1 - np.eye(5))))
        if np.ptp(fitted - scores) > 1e-3:
            return False
        a, b = np.nonzero(1 - np.eye(5))
        better, worse = [*better, scores[a] + 7 * prompt], [*worse, scores[b] + 7 * prompt]
        weight.append(chance[a, b])
    margins, weight = np.concatenate(better) - np.concatenate(worse), np.concatenate(weight)
    losses = [(weight * np.logaddexp(0, -factor * margins)).sum() for factor in (0.5, 1.0, 2.0)]
    return losses[1] < min(losses[0], losses[2])


def temperature_keeps_the_order(seed):
    """The order of two bars never changes, since dividing by a positive number keeps the order of the logits."""
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (50, 13)))
    orders = [temperature_log_probs(logits, kappa).argsort(-1) for kappa in (0.2, 1.0, 4.0)]
    return torch.equal(orders[0], orders[1]) and torch.equal(orders[1], orders[2])


def imitation_takes_over_what_most_teachers_do(seed):
    """Greedy imitation takes over what *most* teachers do."""
    # 200 updates of fine-tuning: half of the page's, so that a seed takes seconds
    task = Sorting()
    model = Transformer(CharTokenizer(task.alphabet), seed=seed)
    train_sft(model, task, SFTConfig(updates=200), seed=seed)
    asked = [q for q in task.prompts(300, np.random.default_rng(seed), "eval") if len(set(q)) < len(q)]
    written = generate(model, asked, max_new_tokens=task.max_new_tokens, greedy=True).texts
    once, right = (
        np.mean([text == wanted for text, wanted in zip(written, texts, strict=True)])
        for texts in (["".join(sorted(set(q[:-1]))) for q in asked], [task.answer(q) for q in asked])
    )
    return once > 0.4 and once > right


def the_favorite_stays_within_its_bound(seed):
    """The favorite of $n$ is never farther from it than $\\log n - (n-1)/n$ nats"""
    rng = np.random.default_rng(seed)
    for answers in (2, 5, 40):
        reference, scores = rng.dirichlet(np.full(answers, 0.5)), rng.integers(0, 6, answers)  # some are ties
        for n in (2, 8, 256):
            below, upto = (
                np.array([reference[test(scores, x)].sum() for x in scores]) for test in (np.less, np.less_equal)
            )
            ratio = (upto**n - below**n) / (upto - below)  # a tie goes to the one that was drawn first
            chosen = reference * ratio
            some = chosen > 0  # a rare and bad answer is never kept, in floating point
            kl = (chosen[some] * np.log(ratio[some])).sum()
            if not abs(chosen.sum() - 1) < 1e-9 or not kl <= np.log(n) - (n - 1) / n:
                return False
    return True


def _page_on(seed):
    """The page's model, pairs and reward model, all of this seed."""
    texts = (
        "train_sft(model, task, seed={})",
        "preference_pairs(model, task, 600, seed={})",
        "train_reward_model(reward_model, pairs, seed={})",
        "preference_pairs(model, task, 1000, seed={}",
    )
    stored = zip(texts, (0, 1, 0, 2), (seed, 2 * seed + 1, seed, 2 * seed + 2), strict=True)
    edits = tuple((text.format(old), text.format(new)) for text, old, new in stored)
    return cells("11_preferences", "c11-tokens", "c11-write", "c11-rm-run", "c11-own", "c11-kinds", edits=edits)


def most_ties_are_the_same_text(seed):
    """Two in five pairs are ties, and nearly all of these are the same text twice."""
    page = _page_on(seed)
    return 0.3 < page["tied"] / 600 < 0.5 and page["same"] > 0.85 * page["tied"]


def too_short_is_marked_down_and_wrong_digits_are_not(seed):
    """An answer that is too short mostly scores far below the right one; one of the right length, though wrong, mostly scores like it."""
    page = _page_on(seed)
    kinds, less = page["kinds"], page["less"]
    short, wrong = kinds == "too short", np.isin(kinds, ["wrong counts", "wrong order", "foreign digit"])
    return np.median(less[short]) < -1 and (less[short] > -0.5).mean() < 0.3 and (less[wrong] >= -0.1).mean() > 0.6


def a_ruler_ranks_about_as_well(seed):
    """a *ruler* that sees only how many digits are missing ranks unseen pairs about as well as a reward model, or better"""
    page = _page_on(seed)
    return page["ruled"] > page["accuracy"] - 0.06 and 0.4 < page["one_short"] < 0.6


def some_too_long_answers_pass(seed):
    """A reward model marks some of the too long ones down and lets others pass"""
    page = _page_on(seed)
    reach = page["less"][page["kinds"] == "too long"] >= -0.1
    return 0.05 < reach.mean() < 0.7


def some_wrong_answers_score_like_the_right_one(seed):
    """some of the wrong answers score like the right one, and which ones is a matter of the seed"""
    page, typed = _page_on(seed), cells("11_preferences", "c11-tokens", "c11-write", "c11-typed")["TYPED"]
    batch = encode_completions(page["model"], ["72373="] * len(typed), typed)
    with torch.no_grad():
        scores = page["reward_model"].scores(batch)
    return (scores[1:] >= scores[0] - 0.1).sum() >= 3
