"""Hidden tests of assignment 6, reward models and GRPO. Not for students."""

from __future__ import annotations

import numpy as np
import torch

from assignments.grader.comparing import WRONG_SHAPE, close, same
from assignments.grader.edits import edit
from assignments.grader.questions import Assignment, Case, Mistake, Question, Written
from rlbook_lib import divergences, rlhf
from rlbook_lib import grpo as book_grpo

HIDDEN_MARKER = "RLBOOK-HIDDEN-06_grpo"


# ---------------------------------------------------------------------------------------- q1: the pairwise loss


def reference_q1(score_chosen, score_rejected):
    """By automatic differentiation."""
    chosen = torch.tensor(np.asarray(score_chosen), requires_grad=True)
    rejected = torch.tensor(np.asarray(score_rejected), requires_grad=True)
    loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
    loss.backward()
    return loss.item(), chosen.grad.numpy(), rejected.grad.numpy()


def cases_q1(rng):
    found = []
    for size in (int(rng.integers(3, 6)), int(rng.integers(6, 12))):
        one, two = 1.5 * rng.normal(size=(2, size))
        found.append(Case((one, two), "moderate margins"))
    shift = 20 * rng.normal()  # only margins count
    one, two = rng.normal(size=(2, 4))
    found.append(Case((one + shift, two + shift), "moderate margins"))
    for sign in (1.0, -1.0):
        one = rng.normal(size=5)
        margin = sign * rng.uniform(800, 3000, size=5)
        margin[rng.integers(5)] = rng.normal()
        found.append(Case((one + margin, one), "large margins"))
    for _ in range(2):
        one, two = rng.normal(size=(2, 1))
        found.append(Case((one + 0.5, two), "a single pair"))
    tie = rng.normal(size=1)
    found.append(Case((tie, tie.copy()), "a single pair"))
    return found


def pairwise_loss_by_logaddexp(score_chosen, score_rejected):
    margin = score_chosen - score_rejected
    surprise = np.exp(-np.logaddexp(0, margin)) / len(margin)
    return np.logaddexp(0, -margin).mean(), -surprise, surprise


def pairwise_loss_unstable(score_chosen, score_rejected):
    margin = score_chosen - score_rejected
    with np.errstate(all="ignore"):
        chance = 1 / (1 + np.exp(-margin))
        loss = -np.log(chance).mean()
    return loss, -(1 - chance) / len(margin), (1 - chance) / len(margin)


def pairwise_loss_in_a_loop(score_chosen, score_rejected):
    count = len(score_chosen)
    loss, up, down = 0.0, np.zeros(count), np.zeros(count)
    for i in range(count):
        x = float(score_chosen[i] - score_rejected[i])
        small = np.exp(-abs(x))
        loss += (max(-x, 0.0) + np.log1p(small)) / count
        surprise = small / (1 + small) if x >= 0 else 1 / (1 + small)
        up[i], down[i] = -surprise / count, surprise / count
    return loss, up, down


def pairwise_loss_by_tanh(score_chosen, score_rejected):
    x = np.asarray(score_chosen) - np.asarray(score_rejected)
    log_chance = np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))
    up = -0.5 * (1 - np.tanh(x / 2)) / x.size
    return -log_chance.mean(), up, -up


Q1 = Question(
    name="q1",
    title="The pairwise loss and its gradient",
    function="pairwise_loss",
    parts={"moderate margins": 6, "large margins": 4, "a single pair": 2},
    reference=reference_q1,
    cases=cases_q1,
    mistakes=(
        Mistake(
            edit(
                pairwise_loss_by_logaddexp,
                "np.logaddexp(0, -margin).mean(), -surprise, surprise",
                "-np.logaddexp(0, -margin).mean(), surprise, -surprise",
            ),
            "the loss has lost its minus sign. A loss is minimized: at equal scores it must be log 2, which"
            " is positive, and it must fall as the chosen score rises.",
        ),
        Mistake(
            edit(
                pairwise_loss_by_logaddexp,
                "score_chosen - score_rejected",
                "score_rejected - score_chosen",
                "-surprise, surprise",
                "surprise, -surprise",
            ),
            "the margin is rejected minus chosen. The margin inside the sigmoid is the score of the CHOSEN"
            " answer minus that of the rejected one.",
        ),
        Mistake(
            edit(pairwise_loss_by_logaddexp, " / len(margin)", "", ".mean()", ".sum()"),
            "the pairs are summed. The loss is the mean over the pairs, so that it does not grow with the"
            " size of the batch.",
        ),
        Mistake(
            edit(pairwise_loss_by_logaddexp, " / len(margin)", ""),
            "the loss is a mean and the gradient is not: each entry must be divided by the number of pairs,"
            " too. Compare with a finite difference of your own loss.",
        ),
        Mistake(
            pairwise_loss_unstable,
            "the loss is not finite at large margins: the probability is rounded to 0 before the logarithm is"
            " taken. Never compute log(sigmoid(x)) in two steps; use a form of the logarithm that stays exact.",
        ),
        Mistake(
            edit(pairwise_loss_unstable, "np.log(chance)", "np.log(chance + 1e-12)"),
            "a tiny number is added inside the logarithm. It hides the infinity and gives a wrong loss: a"
            " pair that is badly wrong should cost about its margin, however large.",
        ),
        Mistake(
            edit(pairwise_loss_by_logaddexp, "np.logaddexp(0, margin)", "np.logaddexp(0, -margin)"),
            "the factor of the gradient is the probability of what happened. It is the probability of what"
            " did NOT happen, the surprise: a pair that is ranked right with confidence must hardly pull.",
        ),
        Mistake(
            edit(pairwise_loss_by_logaddexp, "-surprise, surprise", "surprise, -surprise"),
            "the loss is right and its gradient has the opposite sign. The loss falls when the chosen score"
            " rises, so the derivative with respect to the chosen score is negative.",
        ),
        Mistake(
            edit(pairwise_loss_by_logaddexp, "-surprise, surprise", "-surprise, -surprise"),
            "both gradients have the same sign. The rejected score enters the margin with a minus, so its"
            " derivative is minus that of the chosen score.",
        ),
        Mistake(
            edit(
                pairwise_loss_by_logaddexp,
                " / len(margin)",
                " / len(margin) / np.log(2)",
                ".mean()",
                ".mean() / np.log(2)",
            ),
            "the logarithm is to the base 2. The book uses natural logarithms: at equal scores the loss is"
            " log 2, about 0.69, not 1.",
        ),
        Mistake(
            edit(
                pairwise_loss_by_logaddexp,
                "surprise = np.exp(-np.logaddexp(0, margin)) / len(margin)",
                "wrong = np.exp(-np.logaddexp(0, margin))\n    surprise = wrong * (1 - wrong) / len(margin)",
                "np.logaddexp(0, -margin)",
                "wrong",
            ),
            "the loss is the mean probability of being wrong. It has to be minus the LOGARITHM of the"
            " probability of what was chosen.",
        ),
    ),
    alternatives=(pairwise_loss_in_a_loop, pairwise_loss_by_tanh, pairwise_loss_by_logaddexp),
    compare=close(1e-5, 1e-8),
)


# ------------------------------------------------------------------- q2: log-probabilities of completions


def drive_q2(function, what, logits, tokens, prompt_columns, eos, weights):
    import torch

    leaf = torch.tensor(logits, requires_grad=True)
    log_prob, mask = function(leaf, torch.tensor(tokens), prompt_columns, eos)
    if what == "values":
        return log_prob
    if what == "mask":
        return [log_prob, mask]
    total = (log_prob * torch.tensor(weights)).sum()
    if total.requires_grad:
        total.backward()
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def reference_q2(logits, tokens, prompt_columns, eos):
    """Token by token, with the sum of exponentials written out."""
    batch, length = tokens.shape
    log_prob = torch.zeros(batch, length - prompt_columns, dtype=logits.dtype)
    mask = torch.zeros(batch, length - prompt_columns, dtype=torch.bool)
    for i in range(batch):
        for column in range(prompt_columns, length):
            row, token = logits[i, column - 1], int(tokens[i, column])
            at = column - prompt_columns
            log_prob[i, at] = row[token] - torch.log(torch.exp(row).sum())
            mask[i, at] = True
            if token == eos:
                break
    return log_prob, mask


def cases_q2(rng):
    def draw(batch, columns, width, size, eos):
        logits = 1.5 * rng.normal(size=(batch, columns + width, size))
        tokens = rng.integers(size - 1, size=(batch, columns + width))
        tokens += tokens >= eos  # no eos yet
        return logits, tokens, rng.normal(size=(batch, width))

    def sizes():
        size = int(rng.integers(5, 9))
        return int(rng.integers(5, 8)), int(rng.integers(2, 5)), int(rng.integers(4, 7)), size, int(rng.integers(size))

    found = []
    for what, spread in (("values", 1), ("values", 12), ("gradient", 1), ("gradient", 1)):  # also very rare tokens
        batch, columns, width, size, eos = sizes()
        logits, tokens, weights = draw(batch, columns, width, size, eos)
        logits *= spread
        tokens[:, -1] = eos
        found.append(Case((what, logits, tokens, columns, eos, weights), {"values": "complete rows"}.get(what, what)))
    for kind in ("ragged", "cut off", "eos in the prompt", "padding is eos"):
        batch, columns, width, size, eos = sizes()
        logits, tokens, weights = draw(batch, columns, width, size, eos)
        ends = rng.permutation(np.arange(batch) % width)
        for i, end in enumerate(ends):
            tokens[i, columns + end] = eos
            if kind == "padding is eos":
                tokens[i, columns + end :] = eos
        if kind == "ragged":  # what stands behind the end may be another eos
            tokens[int(np.flatnonzero(ends < width - 2)[0]), -1] = eos
        if kind == "cut off":
            one, two = rng.choice(batch, 2, replace=False)
            for i in (one, two):
                row = tokens[i, columns:]
                row[row == eos] = (eos + 1) % size
        if kind == "eos in the prompt":
            tokens[rng.integers(batch), rng.integers(columns)] = eos
        found.append(Case(("mask", logits, tokens, columns, eos, weights), "ends and cuts"))
    return found


def completion_log_probs_by_gather(logits, tokens, prompt_columns, eos):
    log_p = logits.log_softmax(-1)[:, prompt_columns - 1 : -1]
    written = tokens[:, prompt_columns:]
    found = log_p.gather(2, written[..., None])[..., 0]
    end = written == eos
    mask = end.cumsum(1) - end.long() == 0
    return found.masked_fill(~mask, 0.0), mask


def completion_log_probs_by_cross_entropy(logits, tokens, prompt_columns, eos):
    batch, length, size = logits.shape
    rows = logits[:, :-1].reshape(-1, size)
    cost = torch.nn.functional.cross_entropy(rows, tokens[:, 1:].reshape(-1), reduction="none")
    log_prob = -cost.reshape(batch, length - 1)[:, prompt_columns - 1 :]
    mask = torch.zeros(log_prob.shape, dtype=torch.long)
    for i, row in enumerate(tokens[:, prompt_columns:].tolist()):
        count = row.index(eos) + 1 if eos in row else len(row)
        mask[i, :count] = 1
    return log_prob * mask, mask


def completion_log_probs_by_indexing(logits, tokens, prompt_columns, eos):
    batch, length = tokens.shape
    columns = torch.arange(prompt_columns, length)
    rows = torch.arange(batch)[:, None]
    chosen = logits[rows, columns - 1, tokens[:, prompt_columns:]]
    log_prob = chosen - torch.logsumexp(logits[:, prompt_columns - 1 : -1], -1)
    before = torch.zeros(batch, length - prompt_columns, dtype=torch.bool)
    before[:, 1:] = (tokens[:, prompt_columns:-1] == eos).cumsum(1) > 0
    return torch.where(before, torch.zeros_like(log_prob), log_prob), ~before


Q2 = Question(
    name="q2",
    title="Log-probabilities of completions",
    function="completion_log_probs",
    parts={"complete rows": 5, "ends and cuts": 6, "gradient": 3},
    reference=reference_q2,
    cases=cases_q2,
    mistakes=(
        Mistake(
            edit(completion_log_probs_by_gather, "prompt_columns - 1 : -1", "prompt_columns:"),
            "the shift by one is missing. Column t of the logits predicts the token of column t + 1, so the"
            " first completion token is predicted in the last column of the prompt.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "prompt_columns - 1 : -1", "prompt_columns - 2 : -2"),
            "the shift is two columns instead of one. The first completion token is predicted in the LAST"
            " column of the prompt.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "log_softmax", "softmax"),
            "the results are probabilities. Their logarithms are asked for: numbers of at most 0.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "logits.log_softmax(-1)", "logits"),
            "the logits are taken as they are. They are not normalized; a log-softmax over the vocabulary"
            " makes log-probabilities of them.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "log_softmax(-1)", "log_softmax(1)"),
            "the softmax runs over the columns of the text. For each column the probabilities of the"
            " VOCABULARY, the last axis, sum to one.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "end.cumsum(1) - end.long() == 0", "end.cumsum(1) == 0"),
            "the end token is not counted. The model decided to stop, so the end token belongs to the"
            " completion; without it a policy never learns to stop.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "end.cumsum(1) - end.long() == 0", "torch.ones_like(end)"),
            "what stands behind the end token is counted. Nobody wrote it: the mask is False there and the"
            " log-probability 0.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "end.cumsum(1) - end.long() == 0", "~end"),
            "the mask is True wherever the token is not the end token. That drops the end token itself and"
            " keeps what stands behind it.",
        ),
        Mistake(
            edit(
                completion_log_probs_by_gather,
                "written == eos",
                "tokens == eos",
                "end.cumsum(1) - end.long() == 0",
                "(end.cumsum(1) - end.long() == 0)[:, prompt_columns:]",
            ),
            "an end token in the PROMPT switches the completion off. Only end tokens of the completion end it.",
        ),
        Mistake(
            edit(
                completion_log_probs_by_gather,
                "end.cumsum(1) - end.long() == 0",
                "torch.arange(end.shape[1]) <= end.long().argmax(1)[:, None]",
            ),
            "a completion without an end token loses its tokens. It was cut off: all its tokens were written"
            " and count. (The argmax of a row without a True is 0.)",
        ),
        Mistake(
            edit(
                completion_log_probs_by_gather,
                "end.cumsum(1) - end.long() == 0",
                "(end.flip(1).cumsum(1).flip(1) > 0) | ~end.any(1, keepdim=True)",
            ),
            "the completion ends at the LAST end token of the row. It ends at the first; behind it anything"
            " may stand, end tokens included.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "found.masked_fill(~mask, 0.0)", "found"),
            "the mask is right, but the log-probabilities at masked positions are not 0, so a sum over a row"
            " would count padding.",
        ),
        Mistake(
            edit(completion_log_probs_by_gather, "logits.log_softmax", "logits.detach().log_softmax"),
            "no gradient reaches the logits. The policy is trained through these numbers; leave the graph"
            " intact (no detach, no no_grad).",
        ),
    ),
    alternatives=(
        completion_log_probs_by_cross_entropy,
        completion_log_probs_by_indexing,
        completion_log_probs_by_gather,
    ),
    driver=drive_q2,
    compare=close(1e-4, 1e-6),
)


# --------------------------------------------------------------------- q3: the estimate k3 and shaped rewards


def drive_q3(function, what, scores, log_prob, log_prob_ref, mask, beta):
    k3, rewards = function(scores, log_prob, log_prob_ref, mask, beta)
    return {"k3": k3, "rewards": rewards, "both": [k3, rewards]}[what]


def reference_q3(scores, log_prob, log_prob_ref, mask, beta):
    """The library's functions."""
    new, ref = (torch.tensor(np.where(mask, x, 0.0)) for x in (log_prob, log_prob_ref))
    k3 = divergences.kl_estimate(new, ref, "k3")
    rewards = rlhf.shape_rewards(torch.tensor(scores), new, ref, torch.tensor(mask), beta)
    return np.asarray(k3) * mask, rewards.numpy()


def cases_q3(rng):
    found = []
    for what, part in (
        ("k3", "the estimate k3"),
        ("k3", "the estimate k3"),
        ("rewards", "shaped rewards"),
        ("rewards", "shaped rewards"),
        ("both", "lengths"),
        ("both", "lengths"),
    ):
        batch, width = int(rng.integers(4, 7)), int(rng.integers(4, 7))
        log_prob = -2.5 * rng.random((batch, width))
        log_prob_ref = log_prob + 0.6 * rng.normal(size=(batch, width))
        mask = np.ones((batch, width), dtype=bool)
        if part == "lengths":
            lengths = 1 + rng.permutation(np.arange(batch) % width)
            mask = np.arange(width) < lengths[:, None]
        if what == "k3":
            log_prob_ref[0, 0] = log_prob[0, 0]
        scores = rng.choice([-1.0, 1.0], batch) * rng.uniform(0.5, 3, size=batch)
        found.append(Case((what, scores, log_prob, log_prob_ref, mask, float(rng.uniform(0.2, 0.8))), part))
    scores, log_prob, log_prob_ref, mask = found[2].arguments[1:5]
    found.append(Case(("rewards", scores, log_prob, log_prob_ref, mask, 0.0), "shaped rewards"))
    return found


def kl_and_rewards_by_index(scores, log_prob, log_prob_ref, mask, beta):
    d = np.where(mask, log_prob_ref - log_prob, 0.0)
    rewards = beta * d
    rewards[np.arange(len(mask)), mask.sum(1) - 1] += scores
    return np.expm1(d) - d, rewards


def kl_and_rewards_in_a_loop(scores, log_prob, log_prob_ref, mask, beta):
    k3, rewards = np.zeros(mask.shape), np.zeros(mask.shape)
    for i in range(mask.shape[0]):
        last = int(np.flatnonzero(mask[i])[-1])
        for t in range(last + 1):
            ratio = np.exp(log_prob_ref[i, t] - log_prob[i, t])
            k3[i, t] = ratio - np.log(ratio) - 1
            rewards[i, t] = -beta * (log_prob[i, t] - log_prob_ref[i, t])
            if t == last:
                rewards[i, t] += scores[i]
    return k3, rewards


def kl_and_rewards_by_a_second_mask(scores, log_prob, log_prob_ref, mask, beta):
    keep = mask.astype(float)
    last = keep * (keep.cumsum(1) == keep.sum(1, keepdims=True))
    fine = (log_prob - log_prob_ref) * keep
    return (np.exp(-fine) + fine - 1) * keep, last * np.asarray(scores)[:, None] - beta * fine


Q3 = Question(
    name="q3",
    title="The estimate k3 and the shaped rewards of RLHF",
    function="kl_and_rewards",
    parts={"the estimate k3": 5, "shaped rewards": 5, "lengths": 4},
    reference=reference_q3,
    cases=cases_q3,
    mistakes=(
        Mistake(
            edit(kl_and_rewards_by_index, "np.expm1(d) - d", "np.expm1(-d) + d"),
            "in k3 the ratio is policy over reference. For samples of the policy, the ratio u is reference"
            " OVER policy; the other way round the mean is not the divergence that is meant.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "np.expm1(d) - d", "-d"),
            "the estimate is k1, minus the log-ratio. It may be negative for a single token; k3 adds a term"
            " with mean 0 that makes every value non-negative.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "np.expm1(d) - d", "0.5 * d**2"),
            "the estimate is k2, half the squared log-ratio. Its mean is close to the divergence, but not"
            " equal to it; k3 is asked for.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "np.expm1(d) - d", "(np.exp(d) - d) * mask"),
            "the last term of k3, minus 1, is missing. Where policy and reference agree the estimate must be"
            " exactly 0.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "beta * d", "-beta * d"),
            "the price has the wrong sign in the reward: a token that the policy likes better than the"
            " reference does is paid for it. It must cost something.",
        ),
        Mistake(
            edit(
                kl_and_rewards_by_index,
                "rewards[np.arange(len(mask)), mask.sum(1) - 1] += scores",
                "rewards += scores[:, None] * mask",
            ),
            "every token gets the score. It is paid once, with the last real token; otherwise long answers earn more.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "np.arange(len(mask)), mask.sum(1) - 1", ":, -1"),
            "the score stands in the last column of the array. It belongs to the last REAL token of each row,"
            " which for shorter completions comes earlier.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "np.arange(len(mask)), mask.sum(1) - 1", ":, 0"),
            "the score is paid with the first token. The judge reads the finished answer, so it is paid with"
            " the last real token.",
        ),
        Mistake(
            edit(
                kl_and_rewards_by_index,
                "rewards = beta * d",
                "rewards = np.zeros(mask.shape)",
                "+= scores",
                "= scores + beta * d.sum(1)",
            ),
            "the whole price is paid with the last token. The return of a row is right, but each token pays"
            " its own price where it was written.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "beta * d", "-beta * (np.expm1(d) - d)"),
            "the price in the reward is k3. In the reward RLHF uses the plain log-ratio, k1, whose sum over a"
            " row is the log-ratio of the whole completion.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "+= scores", "= scores"),
            "the score replaces the price of the last token. It is ADDED to it: the last token has a log-ratio, too.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "np.where(mask, log_prob_ref - log_prob, 0.0)", "log_prob_ref - log_prob"),
            "masked positions are not 0. What stands there was not written by anybody and must neither cost nor count.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "beta * d", "d.copy()"),
            "`beta` is not used: the price of a token is `beta` times its log-ratio.",
        ),
        Mistake(
            edit(kl_and_rewards_by_index, "+= scores", "+= beta * scores"),
            "the score is multiplied by `beta`. Only the price of the divergence is; the score counts in full.",
        ),
    ),
    alternatives=(kl_and_rewards_in_a_loop, kl_and_rewards_by_a_second_mask, kl_and_rewards_by_index),
    driver=drive_q3,
    compare=close(1e-5, 1e-8),
)


# ------------------------------------------------------------------------------------- q4: group advantages


def drive_q4(function, rewards, scale):
    import torch

    given = torch.tensor(rewards)
    advantages = function(given, scale)
    return [advantages, given]


def reference_q4(rewards, scale):
    """The library's function."""
    return book_grpo.group_advantages(rewards, scale)


def cases_q4(rng):
    found = []
    for scale, part in (("std", "divided by the standard deviation"), ("leave_one_out", "leave one out")):
        for _ in range(2):
            prompts = int(rng.integers(2, 5))
            group = prompts + int(rng.integers(1, 4))
            rewards = rng.normal(size=(prompts, 1)) * 3 + rng.uniform(0.3, 2, (prompts, 1)) * rng.normal(
                size=(prompts, group)
            )
            found.append(Case((rewards, scale), part))
        found.append(Case((rng.normal(size=(2, 2)), scale), part))
    tiny = 0.5 + 3e-6 * rng.normal(size=(2, 5))
    found.append(Case((tiny, "std"), "divided by the standard deviation"))
    for scale in ("std", "leave_one_out"):
        group = int(rng.integers(5, 9))
        rewards = (rng.random((4, group)) < 0.5).astype(np.float64)
        rewards[0], rewards[1] = 0.0, 1.0
        rewards[2:, 0], rewards[2:, 1] = 0.0, 1.0
        found.append(Case((rewards, scale), "equal rewards"))
    values = rng.uniform(1000, 3000, size=(40, 1))
    found.append(Case((np.repeat(values, 7, axis=1).astype(np.float32), "std"), "equal rewards"))
    return found


def group_advantages_by_others(rewards, scale):
    equal = rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True)
    if scale == "std":
        found = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, correction=0, keepdim=True) + 1e-6)
    else:
        others = (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
        found = rewards - others
    return found.masked_fill(equal, 0.0)


def group_advantages_in_a_loop(rewards, scale):
    found = torch.zeros_like(rewards)
    for i, row in enumerate(rewards):
        if row.min() == row.max():
            continue
        for j in range(len(row)):
            if scale == "std":
                mean = row.mean()
                found[i, j] = (row[j] - mean) / (((row - mean) ** 2).mean().sqrt() + 1e-6)
            else:
                found[i, j] = row[j] - torch.cat([row[:j], row[j + 1 :]]).mean()
    return found


def group_advantages_by_factor(rewards, scale):
    group = rewards.shape[1]
    mean = rewards.mean(dim=1).unsqueeze(1)
    centered = rewards - mean
    if scale == "std":
        found = centered / (rewards.var(dim=1, unbiased=False).sqrt().unsqueeze(1) + 1e-6)
    else:
        found = centered * group / (group - 1)
    same = (rewards == rewards[:, :1]).all(dim=1, keepdim=True)
    return torch.where(same, torch.zeros_like(found), found)


Q4 = Question(
    name="q4",
    title="Group advantages",
    function="group_advantages",
    parts={"divided by the standard deviation": 6, "leave one out": 4, "equal rewards": 4},
    reference=reference_q4,
    cases=cases_q4,
    mistakes=(
        Mistake(
            edit(group_advantages_by_others, ", correction=0", ""),
            "the standard deviation divides by G - 1. torch does that unless told otherwise (numpy does not);"
            " here the sum of squares is divided by G.",
        ),
        Mistake(
            edit(
                group_advantages_by_others,
                "mean(1, keepdim=True)",
                "mean()",
                "std(1, correction=0, keepdim=True)",
                "std(correction=0)",
                "rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)",
                "rewards.sum() - rewards) / (rewards.numel() - 1)",
            ),
            "mean and spread are taken over the whole batch. Each prompt has its own: an answer is compared"
            " with the other answers to the SAME prompt.",
        ),
        Mistake(
            edit(group_advantages_by_others, "std(1, correction=0, keepdim=True)", "std(correction=0)"),
            "the mean is that of the group, the standard deviation that of the whole batch. Both belong to the group.",
        ),
        Mistake(
            edit(
                group_advantages_by_others,
                "    equal",
                "    rewards = rewards.T\n    equal",
                "equal, 0.0)",
                "equal, 0.0).T",
            ),
            "the comparison runs over the prompts (axis 0). A row of the array is a group: compare along axis 1.",
        ),
        Mistake(
            edit(group_advantages_by_others, " / (rewards.std(1, correction=0, keepdim=True) + 1e-6)", ""),
            "with scale 'std' the division is missing: this is reward minus mean only.",
        ),
        Mistake(
            edit(group_advantages_by_others, "rewards.std(", "rewards.var("),
            "the division is by the variance. Its square root is asked for: doubling all rewards must not"
            " change the advantages.",
        ),
        Mistake(
            edit(
                group_advantages_by_others,
                "rewards.std(1, correction=0, keepdim=True) + 1e-6)",
                "rewards.var(1, correction=0, keepdim=True) + 1e-6).sqrt()",
            ),
            "epsilon stands inside the square root. It is added to the standard deviation itself, which"
            " matters for groups with a small spread.",
        ),
        Mistake(
            edit(group_advantages_by_others, "rewards - others", "rewards - rewards.mean(1, keepdim=True)"),
            "in 'leave_one_out' the baseline is the mean of the whole group. An answer's own reward must not"
            " be part of its baseline.",
        ),
        Mistake(
            edit(group_advantages_by_others, "(rewards.shape[1] - 1)", "rewards.shape[1]"),
            "in 'leave_one_out' the sum of the others is divided by G. There are G - 1 others.",
        ),
        Mistake(
            edit(
                group_advantages_by_others,
                "rewards - others",
                "(rewards - others) / (rewards.std(1, correction=0, keepdim=True) + 1e-6)",
            ),
            "in 'leave_one_out' the result is divided by the standard deviation as well. That scale only subtracts.",
        ),
        Mistake(
            edit(group_advantages_by_others, " + 1e-6", "", ".masked_fill(equal, 0.0)", ""),
            "a group of equal rewards gives 0/0. Nothing in it is better than anything else: its advantages"
            " are exactly 0.",
        ),
        Mistake(
            edit(
                group_advantages_by_others,
                "(rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, correction=0, keepdim=True) + 1e-6)",
                "rewards - rewards.sum(1, keepdim=True) / rewards.shape[1]\n"
                "        found = found / ((found**2).mean(1, keepdim=True).sqrt() + 1e-6)",
                ".masked_fill(equal, 0.0)",
                "",
            ),
            "in a group of equal rewards a rounding error of the mean is divided by a tiny number and becomes"
            " an advantage. Find such groups by comparing rewards with each other, and give them exactly 0.",
        ),
        Mistake(
            edit(
                group_advantages_by_others,
                "(rewards - rewards.mean(1, keepdim=True)) / ",
                "rewards.sub_(rewards.mean(1, keepdim=True)).div_",
                "rewards - others",
                "rewards.sub_(others)",
                "masked_fill",
                "masked_fill_",
            ),
            "the rewards that came in are overwritten (-= and /= act in place on a tensor). Make a new tensor.",
        ),
        Mistake(
            edit(group_advantages_by_others, 'if scale == "std"', "if True"),
            "the argument `scale` is not used: with 'leave_one_out' each answer has the mean of the others as its baseline, and nothing is divided.",
        ),
        Mistake(
            edit(group_advantages_by_others, "(rewards - rewards.mean(1, keepdim=True)) /", "rewards /"),
            "the group's mean is not subtracted before the division.",
        ),
    ),
    alternatives=(group_advantages_in_a_loop, group_advantages_by_factor, group_advantages_by_others),
    driver=drive_q4,
    compare=close(1e-5, 1e-7),
)


# ------------------------------------------------------------------------------------------- q5: GRPO's loss


def drive_q5(function, what, log_prob, log_prob_old, advantages, mask, log_prob_ref, clip, beta, normalize):
    import torch

    new, old, ref = (torch.tensor(x, requires_grad=True) for x in (log_prob, log_prob_old, log_prob_ref))
    loss = function(new, old, torch.tensor(advantages), torch.tensor(mask), ref, tuple(clip), beta, normalize)
    if what == "loss":
        return loss
    loss.backward()
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in (new, old, ref)]


def reference_q5(log_prob, log_prob_old, advantages, mask, log_prob_ref, clip, beta, normalize):
    """The library's function."""
    return book_grpo.grpo_loss(
        log_prob,
        log_prob_old.detach(),
        advantages,
        mask,
        log_prob_ref=log_prob_ref.detach(),
        clip=clip,
        beta=beta,
        normalize=normalize,
    )


def cases_q5(rng):
    found = []
    for part, count in (("clipped objective", 3), ("lengths", 4), ("divergence", 3), ("gradient", 4)):
        for number in range(count):
            batch = int(rng.integers(6, 9))
            width = batch + int(rng.integers(1, 4))
            log_prob = -3 * rng.random((batch, width)) - 0.1
            log_prob_old = log_prob + 0.4 * rng.normal(size=(batch, width))
            log_prob_ref = log_prob + 0.7 * rng.normal(size=(batch, width))
            mask = np.ones((batch, width), dtype=bool)
            if part in ("lengths", "gradient"):
                lengths = 1 + rng.permutation(np.arange(batch))  # one of them is 1
                mask = np.arange(width) < lengths[:, None]
            advantages = rng.normal(size=batch) + 0.3
            clip = (float(rng.uniform(0.1, 0.2)), float(rng.uniform(0.28, 0.4)))
            beta = float(rng.uniform(0.3, 0.8)) if part in ("divergence", "gradient") else 0.0
            what = "gradient" if part == "gradient" else "loss"
            kind = ("sequence", "token")[number % 2]
            arguments = (what, log_prob, log_prob_old, advantages, mask, log_prob_ref, clip, beta, kind)
            found.append(Case(arguments, part))
            if (
                part == "lengths" and number == 3
            ):  # any finite number may stand behind the end, also one whose ratio overflows
                far = np.where(mask, log_prob, 900.0)
                found.append(Case((what, far, log_prob_old, advantages, mask, log_prob_ref, clip, beta, kind), part))
    return found


def grpo_loss_by_terms(
    log_prob, log_prob_old, advantages, mask, log_prob_ref, clip=(0.2, 0.2), beta=0.0, normalize="sequence"
):
    rho, d = (log_prob - log_prob_old.detach()).exp(), log_prob_ref.detach() - log_prob
    a = advantages[:, None]
    terms = torch.minimum(rho * a, rho.clamp(1 - clip[0], 1 + clip[1]) * a)
    terms = (beta * (torch.expm1(d) - d) - terms).masked_fill(~mask, 0.0)
    if normalize == "token":
        return terms.sum() / mask.sum()
    return (terms.sum(1) / mask.sum(1)).mean()


def grpo_loss_in_a_loop(
    log_prob, log_prob_old, advantages, mask, log_prob_ref, clip=(0.2, 0.2), beta=0.0, normalize="sequence"
):
    old, ref = log_prob_old.detach(), log_prob_ref.detach()
    rows, count = [], 0
    for i in range(len(mask)):
        terms = []
        for t in range(mask.shape[1]):
            if mask[i, t]:
                ratio = torch.exp(log_prob[i, t] - old[i, t])
                low, high = 1 - clip[0], 1 + clip[1]
                gain = torch.min(advantages[i] * ratio, advantages[i] * torch.clip(ratio, low, high))
                u = torch.exp(ref[i, t] - log_prob[i, t])
                terms.append(gain - beta * (u - torch.log(u) - 1))
        rows.append(torch.stack(terms))
        count += len(terms)
    if normalize == "sequence":
        return -torch.stack([row.mean() for row in rows]).mean()
    return -torch.cat(rows).sum() / count


def grpo_loss_by_weights(
    log_prob, log_prob_old, advantages, mask, log_prob_ref, clip=(0.2, 0.2), beta=0.0, normalize="sequence"
):
    keep = mask.to(log_prob.dtype)
    zero = torch.zeros_like(log_prob)
    new = torch.where(mask, log_prob, zero)
    old = torch.where(mask, log_prob_old.detach(), zero)
    ref = torch.where(mask, log_prob_ref.detach(), zero)
    ratio, a = (new - old).exp(), advantages.reshape(-1, 1).expand_as(new)
    bound = torch.where(a > 0, torch.full_like(a, 1 + clip[1]), torch.full_like(a, 1 - clip[0]))
    stopped = ((a > 0) & (ratio > bound)) | ((a < 0) & (ratio < bound))
    gain = torch.where(stopped, bound, ratio) * a
    penalty = (ref - new).exp() - (ref - new) - 1
    weight = keep / keep.sum()
    if normalize == "sequence":
        weight = keep / keep.sum(1, keepdim=True) / len(keep)
    return (weight * (beta * penalty - gain)).sum()


Q5 = Question(
    name="q5",
    title="GRPO's loss",
    function="grpo_loss",
    parts={"clipped objective": 6, "lengths": 4, "divergence": 4, "gradient": 4},
    reference=reference_q5,
    cases=cases_q5,
    mistakes=(
        Mistake(
            edit(grpo_loss_by_terms, "beta * (torch.expm1(d) - d) - terms", "terms - beta * (torch.expm1(d) - d)"),
            "this is the objective J, which is maximized. The loss is minimized: it is minus J, divergence included.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "torch.minimum(rho * a, ", "("),
            "the ratio is clipped, but the minimum with the unclipped term is missing. Without it a token"
            " that has moved the WRONG way gets no gradient that brings it back.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "rho.clamp(1 - clip[0], 1 + clip[1])", "rho"),
            "nothing is clipped. At ratio 1 that makes no difference; try ratios outside of the range.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "minimum", "maximum"),
            "the larger of the two terms is taken. The clipped objective is the smaller one, a pessimistic estimate.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "log_prob - log_prob_old.detach()", "log_prob_old.detach() - log_prob"),
            "the ratio is old over new. The policy that is trained stands in the numerator, the one that"
            " sampled in the denominator.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "1 + clip[1]", "1 + clip[0]"),
            "one width is used on both sides. The first entry of clip is the room below 1, the second the room above.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "(beta *", "(-beta *"),
            "the divergence has the wrong sign: this loss rewards running away from the reference. In a loss"
            " that is minimized its sign is plus.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "log_prob_ref.detach() - log_prob", "log_prob - log_prob_ref.detach()"),
            "in k3 the ratio is policy over reference. It has to be u = reference OVER policy at the sampled"
            " token, as in question 3.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "beta * (torch.expm1(d) - d)", "-beta * d"),
            "the divergence is estimated by k1. As a term of a loss its gradient is 0 on average and holds"
            " nothing; k3 is asked for.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "log_prob_ref.detach()", "log_prob_old.detach()"),
            "the divergence is measured from the policy that sampled. The anchor is the frozen reference; the"
            " old policy belongs to the ratio only.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "log_prob_ref.detach() - log_prob", "(log_prob_ref - log_prob).detach()"),
            "the value of the divergence is right, but no gradient flows through it, so it holds nothing."
            " Only the reference is a constant in k3; the policy there is the one that is trained.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "log_prob_ref.detach() - log_prob", "(log_prob_ref - log_prob_old).detach()"),
            "k3 compares the reference with the policy that sampled. It has to be the policy that is trained,"
            " and the gradient flows through it.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "torch.expm1(d)", "torch.exp(d)"),
            "k3 is not 0 where policy and reference agree. Look for the constant at the end of its formula.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, 'normalize == "token"', 'normalize == "sequence"'),
            "the two normalizations are exchanged. 'sequence': first the mean over an answer's tokens, then"
            " over answers. 'token': all tokens count the same.",
        ),
        Mistake(
            edit(
                grpo_loss_by_terms,
                "terms.sum() / mask.sum()",
                "terms.mean()",
                "(terms.sum(1) / mask.sum(1)).mean()",
                "terms.mean()",
            ),
            "the sum is divided by the number of cells of the array, padding included. Divide by the number"
            " of REAL tokens, of the answer or of the batch.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, ".masked_fill(~mask, 0.0)", ""),
            "masked positions are part of the sum. Set their terms to 0 before summing; dividing by the right"
            " number is not enough.",
        ),
        Mistake(
            edit(
                grpo_loss_by_terms,
                "_old.detach()).exp()",
                "_old.detach()).masked_fill(~mask, 0.0).sum(1, keepdim=True).exp()",
            ),
            "there is one ratio for the whole answer. In GRPO each token has its own ratio and is clipped by"
            " itself; only the advantage is shared.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "log_prob_old.detach()", "log_prob_old", "log_prob_ref.detach()", "log_prob_ref"),
            "a gradient flows into the old policy or the reference. They are constants: detach them, or the"
            " ratio has no gradient where both are one tensor.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "beta * (torch", "(torch"),
            "`beta` is not used: the divergence counts `beta` times.",
        ),
        Mistake(
            edit(grpo_loss_by_terms, "1 - clip[0], 1 + clip[1]", "1 - clip[1], 1 + clip[0]"),
            "the two widths have changed places. The first entry of clip is the room below 1, the second the room above.",
        ),
    ),
    alternatives=(grpo_loss_in_a_loop, grpo_loss_by_weights, grpo_loss_by_terms),
    driver=drive_q5,
    compare=close(1e-5, 1e-8),
)


# -------------------------------------------------------------------------------------------- q6: the loop


def drive_q6(function, what, logits, table, group, updates, epochs, learning_rate, clip, beta, seed):
    """The path of the tables; for the rules of the house further runs, and what the first one leaves behind."""
    import torch

    table = torch.tensor(table)  # (P, N, V): what each token is worth
    prompts, places, size = table.shape
    shapes = []

    def reward(tokens):
        shapes.append(list(tokens.shape))
        rows = table[:, None].expand(prompts, tokens.shape[1], places, size)
        return rows.gather(3, tokens[..., None].long())[..., 0].sum(-1)  # (P, G)

    def run(seed, reward=reward):
        given = torch.tensor(logits)
        return function(given, reward, group, updates, epochs, learning_rate, tuple(clip), beta, seed), given

    tensor = torch._C.TensorBase  # unlike those of torch.Tensor its methods cannot be replaced
    if what == "path":
        return tensor.detach(run(seed)[0])
    torch.manual_seed(seed + 1000)  # unlike any that the function is given
    expected = torch.rand(3)
    torch.manual_seed(seed + 1000)
    path, given = run(seed)
    asked, drawn = list(shapes), torch.rand(3)
    return {
        "path": tensor.detach(path),
        "has a graph": tensor.requires_grad.__get__(path),
        "asked": asked,
        "logits": logits,
        "argument": given,
        "expected": expected,
        "drawn": drawn,
        "again": run(seed)[0],
        "other": run(seed + 1)[0],
        "still": run(seed, lambda tokens: torch.full(tokens.shape[:2], 0.7, dtype=torch.float64))[0],
    }


def rules_q6(result, trusted):
    """Whether each rule is kept; ``trusted`` is a result of ours, which says what came in."""
    path, start = result["path"], trusted["logits"]
    return {
        "path": path[0],
        "updates": len(path),
        "asked once an update for G answers a prompt": same(result["asked"], trusted["asked"]),
        "argument kept": same(result["argument"], start),
        "global generator kept": same(result["drawn"], trusted["expected"]),
        "same seed": same(path, result["again"]),
        "other seed": not np.allclose(path, result["other"]),
        "equal rewards move nothing": bool(np.abs(result["still"] - start).max() < 1e-9),
        "no graph": result["has a graph"] is False,
    }


def compare_q6(got, want):
    """The probabilities along the path, within what samples can do, or the rules."""
    if isinstance(want, dict):
        return close(0.0, 0.1)(rules_q6(got, want), rules_q6(want, want))
    if np.shape(got) != want.shape:
        return WRONG_SHAPE
    return close(0.0, 0.1)(*(torch.tensor(np.asarray(path)).softmax(-1).numpy() for path in (got, want)))


def reference_q6(logits, reward, group, updates, epochs, learning_rate, clip, beta, seed):
    """In numpy, with the gradient derived by hand."""
    rng = np.random.default_rng(seed)
    z = logits.numpy().copy()
    reference, path = z.copy(), [z.copy()]
    prompts, places, size = z.shape

    def log_softmax(z):
        top = z.max(-1, keepdims=True)
        return z - top - np.log(np.exp(z - top).sum(-1, keepdims=True))

    for _ in range(updates):
        tokens = np.empty((prompts, group, places), dtype=np.int64)
        for p in range(prompts):
            for n in range(places):
                chances = np.exp(log_softmax(z[p, n]))
                tokens[p, :, n] = rng.choice(size, group, p=chances / chances.sum())
        scores = reward(torch.tensor(tokens)).numpy()
        spread = scores.std(1, keepdims=True)
        equal = scores.max(1, keepdims=True) == scores.min(1, keepdims=True)
        advantages = np.where(equal, 0.0, (scores - scores.mean(1, keepdims=True)) / (spread + 1e-6))
        index = (np.arange(prompts)[:, None, None], np.arange(places), tokens)
        old, ref = log_softmax(z)[index], log_softmax(reference)[index]
        chosen = np.eye(size)[tokens]  # (P, G, N, V)
        for _ in range(epochs):
            log_p = log_softmax(z)
            rho, a = np.exp(log_p[index] - old), advantages[..., None]
            stopped = ((a > 0) & (rho > 1 + clip[1])) | ((a < 0) & (rho < 1 - clip[0]))
            push = np.where(stopped, 0.0, rho * a) + beta * (np.exp(ref - log_p[index]) - 1)
            score = chosen - np.exp(log_p)[:, None]  # d log p / d logits
            z = z + learning_rate * (push[..., None] * score).sum(1) / (prompts * group * places)
        path.append(z.copy())
    return torch.tensor(np.stack(path))


def cases_q6(rng):
    found = []

    def case(what, part, prompts, places, size, group, updates, epochs, learning_rate, clip, beta):
        logits = rng.permuted(np.linspace(-1.1, 1.1, size) * np.ones((prompts, places, 1)), axis=-1)
        worth = np.linspace(0, 1, size) ** 2 * np.ones((prompts, places, 1))
        table = rng.permuted(worth, axis=-1) * np.linspace(0.5, 8, prompts)[:, None, None]
        arguments = (what, logits, table, group, updates, epochs, learning_rate, clip, beta, int(rng.integers(1000)))
        found.append(Case(arguments, part))

    case("path", "learning", int(rng.integers(3, 5)), 1, 4, 6000, 8, 1, 3.0, (0.2, 0.2), 0.0)
    case("path", "learning", 3, 2, 3, 6000, 8, 1, 5.0, (0.2, 0.2), 0.0)
    case("path", "several epochs", 2, 1, 3, 3000, 4, 14, 0.5, (0.15, 0.3), 0.0)
    case("path", "the leash", 2, 1, int(rng.integers(3, 5)), 2000, 12, 2, 1.0, (0.6, 0.6), 2.0)
    case("rules", "rules of the house", 2, 3, 3, 6, 4, 2, 2.0, (0.2, 0.2), 0.5)
    return found


def train_grpo_table_in_steps(logits, reward, group, updates, epochs, learning_rate, clip, beta, seed):
    generator = torch.Generator().manual_seed(seed)
    reference, z = logits.clone(), logits.clone()
    prompts, places, size = z.shape
    mask = torch.ones(prompts * group, places, dtype=torch.bool)

    def sample(z):
        chances = z.softmax(-1).reshape(-1, size)
        tokens = torch.multinomial(chances, group, replacement=True, generator=generator)
        return tokens.reshape(prompts, places, group).transpose(1, 2)  # (P, G, N)

    def log_prob(z, tokens):
        rows = z.log_softmax(-1)[:, None].expand(-1, group, -1, -1)
        return rows.gather(3, tokens[..., None]).reshape(prompts * group, places)

    path = [z.clone()]
    for _ in range(updates):
        tokens = sample(z)
        scores = reward(tokens)
        advantages = book_grpo.group_advantages(scores).reshape(-1)
        old, ref = log_prob(z, tokens), log_prob(reference, tokens)
        for _ in range(epochs):
            leaf = z.clone().requires_grad_(True)
            new = log_prob(leaf, tokens)
            loss = book_grpo.grpo_loss(new, old, advantages, mask, log_prob_ref=ref, clip=clip, beta=beta)
            (gradient,) = torch.autograd.grad(loss, leaf)
            z = z - learning_rate * gradient
        path.append(z.clone())
    return torch.stack(path)


def train_grpo_table_own_parts(logits, reward, group, updates, epochs, learning_rate, clip, beta, seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    start = logits.detach().log_softmax(-1)
    now = logits.detach().clone()
    trajectory = torch.zeros(updates + 1, *logits.shape, dtype=logits.dtype)
    trajectory[0] = now
    for k in range(updates):
        heap = torch.distributions.utils.probs_to_logits(now.softmax(-1))
        noise = torch.rand(group, *now.shape, generator=generator, dtype=now.dtype).clamp_min(1e-300)
        tokens = (heap - torch.log(-torch.log(noise))).argmax(-1).permute(1, 0, 2)  # Gumbel: (P, G, N)
        one_hot = torch.nn.functional.one_hot(tokens, now.shape[-1]).to(now.dtype)
        scores = reward(tokens)
        spread = scores.std(1, correction=0, keepdim=True)
        advantages = (scores - scores.mean(1, keepdim=True)) / (spread + 1e-6)
        same = scores.amax(1, keepdim=True) == scores.amin(1, keepdim=True)
        advantages = torch.where(same, torch.zeros_like(advantages), advantages)[..., None]
        old = (one_hot * now.log_softmax(-1)[:, None]).sum(-1)
        ref = (one_hot * start[:, None]).sum(-1)
        for _ in range(epochs):
            now = now.clone().requires_grad_(True)
            new = (one_hot * now.log_softmax(-1)[:, None]).sum(-1)
            rho = (new - old).exp()
            gain = torch.minimum(rho * advantages, rho.clamp(1 - clip[0], 1 + clip[1]) * advantages)
            loss = (beta * ((ref - new).exp() - (ref - new) - 1) - gain).mean()
            loss.backward()
            now = (now - learning_rate * now.grad).detach()
        trajectory[k + 1] = now
    return trajectory


def train_grpo_table_with_sgd(logits, reward, group, updates, epochs, learning_rate, clip, beta, seed):
    generator = torch.Generator().manual_seed(seed)
    prompts, places, size = logits.shape
    table = torch.nn.Parameter(logits.detach().clone())
    optimizer = torch.optim.SGD([table], lr=learning_rate)
    rows, columns = torch.arange(prompts)[:, None, None], torch.arange(places)
    path = [table.detach().clone()]
    for _ in range(updates):
        with torch.no_grad():
            tokens = torch.stack(
                [
                    torch.multinomial(table[p].softmax(-1), group, replacement=True, generator=generator).T
                    for p in range(prompts)
                ]
            )
            old = table.log_softmax(-1)[rows, columns, tokens].flatten(0, 1)
            ref = logits.log_softmax(-1)[rows, columns, tokens].flatten(0, 1)
        advantages = book_grpo.group_advantages(reward(tokens)).flatten()
        for _ in range(epochs):
            new = table.log_softmax(-1)[rows, columns, tokens].flatten(0, 1)
            loss = book_grpo.grpo_loss(
                new,
                old,
                advantages,
                torch.ones_like(new).bool(),
                log_prob_ref=ref,
                clip=clip,
                beta=beta,
                normalize="token",
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        path.append(table.detach().clone())
    return torch.stack(path)


Q6 = Question(
    name="q6",
    title="The loop: GRPO on a table of logits",
    function="train_grpo_table",
    parts={"learning": 5, "several epochs": 3, "the leash": 3, "rules of the house": 3},
    reference=reference_q6,
    cases=cases_q6,
    mistakes=(
        Mistake(
            edit(train_grpo_table_in_steps, "z - learning_rate", "z + learning_rate"),
            "the step goes up the gradient of the loss, so the rewards fall. Gradient DEscent: subtract the"
            " learning rate times the gradient.",
        ),
        Mistake(
            edit(train_grpo_table_in_steps, "(new, old,", "(new, new.detach(),"),
            "the old log-probabilities are computed anew in every epoch, so that every ratio is 1 and nothing"
            " is ever clipped. They are those of the policy that sampled; keep them for all epochs of an"
            " update.",
        ),
        Mistake(
            edit(train_grpo_table_in_steps, "log_prob(reference, tokens)", "log_prob(z, tokens)"),
            "the reference moves along with the policy. It is the table as it came in, for the whole training.",
        ),
        Mistake(
            edit(
                train_grpo_table_in_steps,
                "    for _ in range(updates):\n        tokens = sample(z)\n",
                "    tokens = sample(z)\n    for _ in range(updates):\n",
            ),
            "the answers are those of the first policy, sampled once before the loop. Each update samples new"
            " ones from the policy as it is now.",
        ),
        Mistake(
            edit(
                train_grpo_table_in_steps,
                "tokens = sample(z)",
                "tokens = z.argmax(-1)[:, None].expand(prompts, group, places)",
            ),
            "the answers are the most likely ones instead of samples. Then a group holds the same answer G"
            " times, and nothing can be compared.",
        ),
        Mistake(
            edit(
                train_grpo_table_in_steps,
                "tokens = sample(z)",
                "tokens = torch.randint(size, (prompts, group, places), generator=generator)",
            ),
            "the tokens are drawn with equal chances. They have to come from the policy: the softmax of the"
            " logits of that prompt and place.",
        ),
        Mistake(
            edit(train_grpo_table_in_steps, "group_advantages(scores)", "group_advantages(scores.reshape(1, -1))"),
            "the advantages compare all answers of the batch with each other. The group of an answer are the"
            " answers to the same prompt; one row of the rewards is a group.",
        ),
        Mistake(
            edit(train_grpo_table_in_steps, "book_grpo.group_advantages(scores)", "scores"),
            "the rewards are used as advantages. Subtract the group's mean and divide by its standard deviation first.",
        ),
        Mistake(
            edit(train_grpo_table_in_steps, "group_advantages(scores)", 'group_advantages(scores, "none")'),
            "the advantages are not divided by the group's standard deviation; prompts with large rewards"
            " then learn fastest.",
        ),
        Mistake(
            edit(
                train_grpo_table_in_steps,
                "logits.clone(), logits.clone()",
                "logits, logits",
                "z = z - learning_rate",
                "z -= learning_rate",
            ),
            "the caller's table is changed, and the reference with it, because two names mean one tensor."
            " Begin with copies (clone).",
        ),
        Mistake(
            edit(
                train_grpo_table_in_steps,
                "tokens.reshape(prompts, places, group).transpose(1, 2)",
                "tokens.reshape(prompts, group, places)",
            ),
            "places and answers are mixed up: some tokens were drawn from the logits of another place. The"
            " numbers drawn for one prompt and place lie in one row; swap axes instead of a reshape.",
        ),
        Mistake(
            edit(
                train_grpo_table_in_steps,
                "z = z - learning_rate",
                "z -= learning_rate",
                "path.append(z.clone())",
                "path.append(z)",
            ),
            "all later entries of the path are the last table, because they are one tensor that is changed in"
            " place. Store a copy (clone) after each update.",
        ),
        Mistake(
            edit(train_grpo_table_in_steps, "range(epochs)", "range(1)"),
            "only one step is taken in each update. The same answers are used for as many steps as epochs says.",
        ),
        Mistake(
            edit(
                train_grpo_table_in_steps,
                "generator = torch.Generator().manual_seed(seed)",
                "torch.manual_seed(seed)",
                ", generator=generator",
                "",
            ),
            "torch's global generator is seeded. Make a generator of your own from the seed and hand it to"
            " the sampling function.",
        ),
    ),
    alternatives=(train_grpo_table_own_parts, train_grpo_table_with_sgd, train_grpo_table_in_steps),
    driver=drive_q6,
    compare=compare_q6,
    sampled=True,
    seconds=20.0,
)


ASSIGNMENT = Assignment(
    title="Reward models and GRPO",
    questions=(Q1, Q2, Q3, Q4, Q5, Q6),
    written=Written("written", "A judge that can be fooled", 14),
    seconds=120.0,
    memory_mb=2048,
)
