"""Hidden tests of assignment 4: policy gradients and GAE (chapters 6 and 7). For instructors only."""

from __future__ import annotations

import math

import numpy as np
import torch

from assignments.grader.comparing import close, judged
from assignments.grader.edits import edit
from assignments.grader.questions import Assignment, Case, Mistake, Question, Written
from rlbook_lib import returns as book_returns

HIDDEN_MARKER = "RLBOOK-HIDDEN-04_policy_gradients"


# ---------------------------------------------------------------------- q1: log-probabilities from logits


def drive_q1(function, what, logits, actions, weights):
    """Values, or the gradient of a weighted sum of them by the logits."""
    import torch

    logits = torch.tensor(logits, dtype=torch.float64, requires_grad=True)  # (N, A)
    result = function(logits, torch.tensor(actions, dtype=torch.int64))
    if what == "values":
        return result
    if result.requires_grad:
        (result * torch.tensor(weights, dtype=torch.float64)).sum().backward()
    return torch.zeros_like(logits) if logits.grad is None else logits.grad


def cases_q1(rng):
    cases = []

    def add(part, what, logits):
        actions = rng.integers(logits.shape[1], size=len(logits))
        actions[0] = logits[0].argmin()
        cases.append(Case((what, logits, actions, rng.normal(size=len(logits))), part))

    for _ in range(3):
        add("values", "values", rng.normal(0.3, 2.0, (int(rng.integers(4, 9)), int(rng.integers(2, 4)))))
    add("values", "values", rng.normal(size=(1, 3)))
    for scale in (1000.0, 2400.0):
        sides = rng.permutation([-1.0, 1.0, rng.choice([-1.0, 1.0])])
        logits = rng.normal(0.0, 3.0, (int(rng.integers(4, 8)), 3)) + scale * sides
        add("large logits", "values", np.vstack([logits, logits[:1] - scale, -logits[1:2]]))
    for _ in range(2):
        add("gradient", "gradient", rng.normal(0.3, 1.5, (int(rng.integers(5, 9)), int(rng.integers(2, 5)))))
    return cases


def categorical_log_prob_reference(logits, actions):
    return torch.distributions.Categorical(logits=logits).log_prob(actions)


def categorical_log_prob_gather(logits, actions):
    chosen = logits.gather(1, actions.unsqueeze(1)).squeeze(1)
    return chosen - torch.logsumexp(logits, dim=1)


def categorical_log_prob_loop(logits, actions):
    rows = []
    for row, action in zip(logits, actions):
        shifted = row - row.max()
        rows.append(shifted[int(action)] - torch.log(torch.exp(shifted).sum()))
    return torch.stack(rows)


def categorical_log_prob_cross_entropy(logits, actions):
    return -torch.nn.functional.cross_entropy(logits, actions, reduction="none")


def categorical_log_prob_rows(logits, actions):
    log_probs = torch.log_softmax(logits, dim=1)
    return log_probs[torch.arange(len(actions)), actions]


Q1 = Question(
    name="q1",
    title="Log-probability of a discrete action",
    function="categorical_log_prob",
    parts={"values": 4, "large logits": 3, "gradient": 3},
    reference=categorical_log_prob_reference,
    driver=drive_q1,
    cases=cases_q1,
    compare=close(rtol=1e-4, atol=1e-5),
    alternatives=(
        categorical_log_prob_gather,
        categorical_log_prob_loop,
        categorical_log_prob_cross_entropy,
        categorical_log_prob_rows,
    ),
    mistakes=(
        Mistake(
            edit(categorical_log_prob_rows, "log_softmax", "softmax"),
            "the function returns probabilities. The logarithm is missing: a log-probability is never above 0.",
        ),
        Mistake(
            edit(
                categorical_log_prob_rows,
                "torch.log_softmax(logits, dim=1)",
                "torch.log(logits.exp() / logits.exp().sum(dim=1, keepdim=True))",
            ),
            "the exponentials are computed before anything is subtracted, so large logits give infinity"
            " divided by infinity. Only differences of logits matter: make the numbers small first, or use"
            " logsumexp.",
        ),
        Mistake(
            edit(
                categorical_log_prob_rows,
                "torch.log_softmax(logits, dim=1)",
                "torch.log(torch.softmax(logits, dim=1) + 1e-8)",
            ),
            "a small number is added to the probability inside the logarithm. That makes the result finite,"
            " but wrong where an action is very unlikely. Work with the logits, and use logsumexp.",
        ),
        Mistake(
            edit(categorical_log_prob_loop, "row.max()", "logits.max()"),
            "the largest logit of the whole batch is subtracted. In a row that lies far below, all"
            " exponentials become 0: subtract from each row its own largest logit.",
        ),
        Mistake(
            edit(categorical_log_prob_rows, "torch.log_softmax(logits, dim=1)", "logits"),
            "a logit is not yet a log-probability. The logarithm of the sum of all exponentials of the row is"
            " not subtracted, so the probabilities of a row do not sum to one.",
        ),
        Mistake(
            edit(categorical_log_prob_rows, "dim=1", "dim=0"),
            "the softmax runs over the batch instead of over the actions. The probabilities of one row of"
            " logits must sum to one, those of a column need not.",
        ),
        Mistake(
            edit(categorical_log_prob_rows, "[torch.arange(len(actions)), actions]", "[:, actions]"),
            "the index picks every action for every row, which makes an (N, N) table. Row i needs its own"
            " action i only: pair the row numbers with the actions, or gather.",
        ),
        Mistake(
            edit(categorical_log_prob_rows, "actions]", "actions] / math.log(2)"),
            "the logarithm has base 2. The book uses the natural logarithm everywhere.",
        ),
        Mistake(
            edit(categorical_log_prob_rows, "[torch.arange(len(actions)), actions]", ".max(dim=1).values"),
            "the log-probability of the likeliest action is returned. It must be that of the action in"
            " `actions`, which was drawn and need not be the likeliest.",
        ),
        Mistake(
            edit(categorical_log_prob_rows, "logits, dim=1", "logits.detach(), dim=1"),
            "the numbers are right, but no gradient reaches the logits. Stay with torch operations, and do"
            " not detach: the policy learns through this very number.",
        ),
        Mistake(
            edit(categorical_log_prob_loop, "shifted[int(action)]", "row[int(action)]"),
            "the maximum is subtracted inside the sum of exponentials but not from the chosen logit. What is"
            " taken away in one place must be given back in the other.",
        ),
        Mistake(
            edit(categorical_log_prob_rows, "actions]", "actions].sum()"),
            "the result is one number. Each step of the batch needs its own log-probability.",
        ),
    ),
)


# ---------------------------------------------------------------------- q2: diagonal Gaussian


def drive_q2(function, what, mean, log_std, actions, weights):
    """Values, or the gradients of a weighted sum of them by mean and log_std."""
    import torch

    mean = torch.tensor(mean, dtype=torch.float64, requires_grad=True)  # (N, d)
    log_std = torch.tensor(log_std, dtype=torch.float64, requires_grad=True)  # (d,)
    result = function(mean, log_std, torch.tensor(actions, dtype=torch.float64))
    if what == "values":
        return result
    if result.requires_grad:
        (result * torch.tensor(weights, dtype=torch.float64)).sum().backward()
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in (mean, log_std)]


def cases_q2(rng):
    cases = []

    def add(part, what, n, d, scale=1):
        mean, log_std = rng.normal(0, 2, (n, d)), rng.uniform(-1.2, 0.9, d)
        log_std[0] = rng.choice([-1, 1]) * rng.uniform(0.4, 0.9)
        log_std *= scale
        actions = mean + np.exp(log_std) * rng.normal(size=(n, d))
        cases.append(Case((what, mean, log_std, actions, rng.uniform(0.5, 2, n) * rng.choice([-1, 1], n)), part))

    for _ in range(2):
        add("one dimension", "values", int(rng.integers(5, 9)), 1)
    for d in (2, int(rng.integers(3, 5))):
        add("several dimensions", "values", int(rng.integers(5, 9)), d)
    add("several dimensions", "values", 1, 3)
    add("several dimensions", "values", 5, 2, scale=8)  # widths that nobody clipped: the first beyond exp(3)
    for d in (1, 3):
        add("gradient", "gradient", int(rng.integers(5, 9)), d)
    return cases


def gaussian_log_prob_reference(mean, log_std, actions):
    covariance = torch.diag(torch.exp(2 * log_std))
    return torch.distributions.MultivariateNormal(mean, covariance_matrix=covariance).log_prob(actions)


def gaussian_log_prob_normal(mean, log_std, actions):
    return torch.distributions.Normal(mean, log_std.exp()).log_prob(actions).sum(-1)


def gaussian_log_prob_loop(mean, log_std, actions):
    total = torch.zeros_like(mean[:, 0])
    for i in range(mean.shape[1]):
        variance = torch.exp(log_std[i]) ** 2
        total = total - (actions[:, i] - mean[:, i]) ** 2 / (2 * variance)
        total = total - log_std[i] - 0.5 * math.log(2 * math.pi)
    return total


def gaussian_log_prob_formula(mean, log_std, actions):
    z = (actions - mean) / log_std.exp()
    return (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


Q2 = Question(
    name="q2",
    title="Log-density of a continuous action",
    function="gaussian_log_prob",
    parts={"one dimension": 4, "several dimensions": 4, "gradient": 4},
    reference=gaussian_log_prob_reference,
    driver=drive_q2,
    cases=cases_q2,
    compare=close(rtol=1e-4, atol=1e-5),
    alternatives=(gaussian_log_prob_normal, gaussian_log_prob_loop, gaussian_log_prob_formula),
    mistakes=(
        Mistake(
            edit(gaussian_log_prob_formula, ".sum(-1)", ".mean(-1)"),
            "the mean over the action's dimensions is taken. Independent densities multiply, so their"
            " logarithms add up: it is a sum. With one dimension nobody notices.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, ".sum(-1)", ""),
            "one number per coordinate is returned. An action is drawn as a whole and has one log-density:"
            " add up over its dimensions.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, ".sum(-1)", ".sum(0)"),
            "the sum runs over the batch. It belongs over the action's dimensions, the last axis.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, "log_std.exp()", "log_std.exp().sqrt()"),
            "the squared distance is divided by the standard deviation. It must be divided by the variance,"
            " its square; both sides of a fraction have the same unit then.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, "-0.5 * z**2", "-(z**2)"),
            "the factor one half in front of the squared distance is missing: divide by twice the variance.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, "log_std.exp()", "log_std", "- log_std -", "- torch.log(log_std.abs()) -"),
            "`log_std` is used as if it were the standard deviation. It is its logarithm, so that it may be"
            " negative: take the exponential first.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, "log_std.exp()", "log_std.exp().sqrt()", "- log_std", "- 0.5 * log_std"),
            "`log_std` is taken for the logarithm of the variance. It is that of the standard deviation: the"
            " variance is the exponential of twice of it.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, " - 0.5 * math.log(2 * math.pi)", ""),
            "the constant with the logarithm of two pi is missing. It does not change the gradient, but it"
            " changes the density, and with it every comparison with another policy.",
        ),
        Mistake(
            edit(
                gaussian_log_prob_formula,
                " - 0.5 * math.log(2 * math.pi)",
                "",
                ".sum(-1)",
                ".sum(-1) - 0.5 * math.log(2 * math.pi)",
            ),
            "the constant with the logarithm of two pi is subtracted once per action. It belongs to every"
            " dimension: look at which side of the bracket it stands in the formula.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, "- log_std", "+ log_std"),
            "the logarithm of the standard deviation is added. A wider policy spreads its mass, so at its"
            " center the density is lower: the sign is minus.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, "- log_std ", ""),
            "the term with the logarithm of the standard deviation is missing. Without it a wide policy is"
            " never worse than a narrow one, and training would widen it for ever.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, ".sum(-1)", ".sum(-1).exp()"),
            "the density itself is returned. The loss needs its logarithm.",
        ),
        Mistake(
            edit(gaussian_log_prob_formula, ".sum(-1)", ".sum(-1).detach()"),
            "the numbers are right, but no gradient reaches the mean and the width. Do not detach them, and"
            " stay with torch operations.",
        ),
    ),
)


# ---------------------------------------------------------------------- q3: rewards-to-go


def flags_q3(rng, steps, ends):
    """Terminated and truncated flags with ends at these steps, of both kinds in turn."""
    terminated, truncated = np.zeros(steps, dtype=bool), np.zeros(steps, dtype=bool)
    first = int(rng.integers(2))
    for number, step in enumerate(ends):
        (terminated, truncated)[(number + first) % 2][step] = True
    return terminated, truncated


def cases_q3(rng):
    cases = []

    def add(part, rewards, terminated, truncated, gamma):
        cases.append(Case((rewards, terminated, truncated, gamma), part))

    for end in ("terminated", "truncated", "unfinished"):
        steps = int(rng.integers(5, 10))
        flags = np.arange(steps) == steps - 1
        add(
            "one episode",
            rng.normal(1, 1, steps),
            flags & (end == "terminated"),
            flags & (end == "truncated"),
            float(rng.uniform(0.5, 0.95)),
        )
    for _ in range(3):
        lengths = rng.integers(2, 5, size=4)
        terminated, truncated = flags_q3(rng, int(lengths.sum()), lengths.cumsum()[:3] - 1)
        add("several episodes", rng.normal(1, 1, len(terminated)), terminated, truncated, float(rng.uniform(0.5, 0.95)))
    lengths = rng.integers(2, 5, size=3)  # one step long episodes in between, and both flags at once
    terminated, truncated = flags_q3(rng, int(lengths.sum()) + 2, [lengths[0] - 1, lengths[0], lengths[:2].sum() + 1])
    terminated[lengths[0]] = truncated[lengths[0]] = True
    add("several episodes", rng.normal(1, 1, len(terminated)), terminated, truncated, 0.9)
    for gamma in (0.0, 1.0, float(rng.uniform(0.3, 0.8))):
        terminated, truncated = flags_q3(rng, 8, [1, 4])
        rewards = rng.integers(1, 6, size=8)
        add("edge cases", rewards, terminated, truncated, gamma)
    one = np.array([True])
    add("edge cases", rng.normal(1, 1, 1), one, ~one, 0.9)
    return cases


def rewards_to_go_reference(rewards, terminated, truncated, gamma):
    ends = np.asarray(terminated, dtype=bool) | np.asarray(truncated, dtype=bool)
    episode = np.concatenate([[0], np.cumsum(ends)[:-1]])
    lag = np.arange(len(ends))[None, :] - np.arange(len(ends))[:, None]
    together = (lag >= 0) & (episode[None, :] == episode[:, None])
    weights = np.where(together, float(gamma) ** np.maximum(lag, 0), 0.0)
    return weights @ np.asarray(rewards, dtype=float)


def rewards_to_go_double_loop(rewards, terminated, truncated, gamma):
    result = []
    for t in range(len(rewards)):
        total, factor = 0.0, 1.0
        for k in range(t, len(rewards)):
            total += factor * rewards[k]
            factor *= gamma
            if terminated[k] or truncated[k]:
                break
        result.append(total)
    return np.array(result)


def rewards_to_go_by_episode(rewards, terminated, truncated, gamma):
    ends = [t for t in range(len(rewards)) if terminated[t] or truncated[t]]
    parts, start = [], 0
    for stop in [*(t + 1 for t in ends), len(rewards)]:
        if stop > start:
            parts.append(book_returns.discounted_returns(np.array(rewards[start:stop], dtype=float), gamma))
        start = stop
    return np.concatenate(parts)


def rewards_to_go_backwards(rewards, terminated, truncated, gamma):
    result, running = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        ends = terminated[t] or truncated[t]
        running = rewards[t] + gamma * running * (not ends)
        result[t] = running
    return result


def rewards_to_go_clock_not_reset(rewards, terminated, truncated, gamma):
    result, running, clock = np.zeros(len(rewards)), 0.0, []
    for t in range(len(rewards)):
        first = t == 0 or terminated[t - 1] or truncated[t - 1]
        clock.append(0 if first else clock[-1] + 1)
    for t in reversed(range(len(rewards))):
        running = gamma ** clock[t] * rewards[t] + running * (not (terminated[t] or truncated[t]))
        result[t] = running
    return result


Q3 = Question(
    name="q3",
    title="Rewards-to-go",
    function="rewards_to_go",
    parts={"one episode": 5, "several episodes": 6, "edge cases": 3},
    reference=rewards_to_go_reference,
    cases=cases_q3,
    compare=close(rtol=1e-5, atol=1e-6),
    alternatives=(rewards_to_go_double_loop, rewards_to_go_by_episode, rewards_to_go_backwards),
    mistakes=(
        Mistake(
            edit(rewards_to_go_backwards, " * (not ends)", ""),
            "rewards of one episode are added to the episode before it. When you come to the last step of an"
            " episode from behind, what you carry belongs to somebody else: start again from zero.",
        ),
        Mistake(
            edit(rewards_to_go_backwards, " or truncated[t]", ""),
            "a truncation does not end the sum. The next row of a truncated step belongs to another episode,"
            " just as after a termination.",
        ),
        Mistake(
            edit(rewards_to_go_backwards, "terminated[t] or ", ""),
            "a termination does not end the sum. Both flags end an episode here.",
        ),
        Mistake(
            edit(
                rewards_to_go_backwards,
                " * (not ends)",
                "",
                "result[t] = running",
                "result[t] = running\n        running *= not ends",
            ),
            "the reset comes one step too late: the last step of an episode still gets the next episode, and"
            " the step before it loses what follows. Ask whether to reset before or after you add the step's"
            " reward.",
        ),
        Mistake(
            edit(
                rewards_to_go_backwards,
                "rewards[t] + gamma * running * (not ends)",
                "gamma * (rewards[t] + running * (not ends))",
            ),
            "every reward is discounted once too often. The reward of the step itself counts in full.",
        ),
        Mistake(
            edit(
                rewards_to_go_backwards,
                "    return",
                "    for t in range(1, len(rewards)):\n"
                "        if not (terminated[t - 1] or truncated[t - 1]):\n"
                "            result[t] = result[t - 1]\n"
                "    return",
            ),
            "every step gets the return of its whole episode. An action is not responsible for the rewards"
            " before it: sum from the step itself on.",
        ),
        Mistake(
            rewards_to_go_clock_not_reset,
            "the discount counts from the start of the episode. Inside the sum of step t the clock starts at"
            " t; what you computed carries an additional power of gamma.",
        ),
        Mistake(edit(rewards_to_go_backwards, "gamma * ", ""), "gamma is not used: the sums are not discounted."),
        Mistake(
            edit(
                rewards_to_go_backwards,
                "reversed(range(len(rewards)))",
                "range(len(rewards))",
                " * (not ends)",
                "",
                "result[t] = running",
                "result[t] = running\n        running *= not ends",
            ),
            "the sums run over the past. An action can only change what comes after it; go through the steps"
            " from the last to the first.",
        ),
        Mistake(
            edit(
                rewards_to_go_backwards,
                "running = rewards[t] + gamma * running * (not ends)\n        result[t] = running",
                "result[t] = running * (not ends)\n        running = rewards[t] + gamma * result[t]",
            ),
            "the reward of the step itself is left out. In this book the reward with index t follows the"
            " action with index t, so it is the first thing that the action can have caused.",
        ),
        Mistake(
            edit(rewards_to_go_backwards, "np.zeros(len(rewards))", "np.zeros_like(rewards)"),
            "with integer rewards the result is cut to integers. An array made like the rewards has their"
            " type: ask for floats.",
        ),
        Mistake(
            edit(
                rewards_to_go_backwards,
                "running = np.zeros(len(rewards)), 0.0",
                "running, ended = np.zeros(len(rewards)), 0.0, False",
                "result[t] = running",
                "ended = ended or ends\n        result[t] = running * ended",
            ),
            "steps of an episode that the buffer cuts get nothing. They get the rewards that were seen until"
            " the buffer ends.",
        ),
    ),
)


# ---------------------------------------------------------------------- q4: the loss of the policy


def drive_q4(function, what, log_prob, returns, values):
    """The loss, or its gradients. Part of each return comes from the critic, as in a bootstrapped return."""
    import torch

    log_prob = torch.tensor(log_prob, dtype=torch.float64, requires_grad=True)  # (N,)
    values = torch.tensor(values, dtype=torch.float64, requires_grad=True)  # (N,)
    rewards = torch.tensor(returns, dtype=torch.float64) - 0.5 * values.detach()
    returns = rewards + 0.5 * values if what == "critic" else rewards + 0.5 * values.detach()
    loss = function(log_prob, returns, values)
    if what == "loss":
        return loss
    if loss.requires_grad:
        loss.backward()
    by_policy, by_critic = (torch.zeros_like(x) if x.grad is None else x.grad for x in (log_prob, values))
    return by_policy if what == "policy" else {"by the critic's values": by_critic, "by the policy": by_policy}


def judge_q4(result):
    """Where the critic's gradient is asked for, it matters of the policy's only whether there is one."""
    if not isinstance(result, dict):
        return result
    return {**result, "by the policy": bool(np.any(result["by the policy"]))}


def cases_q4(rng):
    parts = {"loss": "value of the loss", "policy": "gradient of the policy", "critic": "no gradient for the critic"}
    cases = []
    for what, part in parts.items():
        for size in (int(rng.integers(4, 9)), int(rng.integers(10, 20)), 2):
            log_prob = -rng.uniform(0.1, 3.0, size)
            returns, values = rng.normal(2.0, 3.0, size), rng.normal(1.0, 2.0, size)
            cases.append(Case((what, log_prob, returns, values), part))
    return cases


def policy_loss_reference(log_prob, returns, values):
    from rlbook_lib.policy_gradient import policy_gradient_loss

    return policy_gradient_loss(log_prob, (returns - values).detach())


def policy_loss_no_grad(log_prob, returns, values):
    with torch.no_grad():
        advantages = returns - values
    return -torch.dot(advantages, log_prob) / len(log_prob)


def policy_loss_loop(log_prob, returns, values):
    total = 0.0
    for lp, g, v in zip(log_prob, returns, values):
        total = total + lp * (v.item() - g.item())
    return total / log_prob.numel()


def policy_loss_detached(log_prob, returns, values):
    advantages = (returns - values).detach()
    return -(advantages * log_prob).mean()


Q4 = Question(
    name="q4",
    title="The loss of the policy",
    function="policy_loss",
    parts={"value of the loss": 4, "gradient of the policy": 6, "no gradient for the critic": 4},
    reference=policy_loss_reference,
    driver=drive_q4,
    cases=cases_q4,
    compare=judged(judge_q4, close(rtol=1e-4, atol=1e-6)),
    alternatives=(policy_loss_no_grad, policy_loss_loop, policy_loss_detached),
    mistakes=(
        Mistake(
            edit(policy_loss_detached, "return -", "return "),
            "the sign is wrong: an optimizer that minimizes this loss makes good actions rarer. Check the"
            " order in the advantage, and the minus in front of the mean.",
        ),
        Mistake(
            edit(policy_loss_detached, ".mean()", ".sum()"),
            "the steps are summed. With the sum the length of an update grows with the batch; the task asks"
            " for the mean.",
        ),
        Mistake(
            edit(policy_loss_detached, ".detach()", ""),
            "the gradient runs through the advantages into the critic. The critic would be pushed up to make"
            " the loss of the actor small, whatever the rewards are. Treat the advantages as constants.",
        ),
        Mistake(
            edit(policy_loss_detached, "(returns - values).detach()", "returns - values.detach()"),
            "the values are cut off, but the returns are not, and a bootstrapped return contains the critic,"
            " too. Cut off the whole advantage.",
        ),
        Mistake(
            edit(
                policy_loss_detached,
                ".detach()",
                ".detach()\n    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)",
            ),
            "the advantages are normalized inside the loss. That is a separate step, in another question;"
            " here they are used in reward units.",
        ),
        Mistake(
            edit(
                policy_loss_detached,
                ".detach()",
                ".detach()\n    advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)",
            ),
            "the advantages are normalized inside the loss. That is a separate step, in another question;"
            " here they are used in reward units.",
        ),
        Mistake(
            edit(policy_loss_detached, "* log_prob", "* log_prob.exp()"),
            "the weights multiply probabilities. The policy gradient theorem has the gradient of the"
            " logarithm: without it, likely actions are pushed more because they are likely.",
        ),
        Mistake(
            edit(policy_loss_detached, "(returns - values)", "returns"),
            "the baseline is not subtracted: the weights are the returns themselves. On average the gradient"
            " is the same, but its variance is not.",
        ),
        Mistake(
            edit(policy_loss_detached, "returns - values", "returns + values"),
            "the baseline is added. It has to be subtracted from the return.",
        ),
        Mistake(
            edit(policy_loss_detached, "- values", "- values.mean()"),
            "the same number, the mean of the values, is subtracted from every return. Each step has the"
            " baseline of its own state.",
        ),
        Mistake(
            edit(policy_loss_detached, "(advantages * log_prob).mean()", "advantages.mean() * log_prob.mean()"),
            "the mean of a product is not the product of the means. Multiply step by step, then take the mean.",
        ),
        Mistake(
            edit(policy_loss_detached, ".detach()", "", "* log_prob", "* log_prob.detach()"),
            "the log-probabilities are cut off, so the policy gets no gradient at all. The constant is the"
            " advantage; the log-probability is what learns.",
        ),
        Mistake(
            edit(policy_loss_detached, ".mean()", ".mean().detach()"),
            "the number is right, but no gradient flows from the loss at all. Stay with torch operations, and"
            " detach the advantages only.",
        ),
        Mistake(
            edit(policy_loss_detached, "advantages * log_prob", "advantages**2 * log_prob"),
            "the advantages are squared. That is the critic's loss; for the policy the sign of the advantage"
            " is the whole message.",
        ),
    ),
)


# ---------------------------------------------------------------------- q5: generalized advantages


def drive_q5(function, rewards, values, next_values, terminated, truncated, gamma, lam):
    """The two results, and the arguments as they are afterwards: the reference leaves them alone."""
    arguments = (rewards, values, next_values, terminated, truncated)
    advantages, targets = function(*arguments, gamma, lam)
    return {"advantages": advantages, "targets": targets, "arguments": arguments}


def cases_q5(rng):
    cases = []

    def add(part, terminated_ends=0, truncated_ends=0, both=0, lam=None, gamma=None, steps=None):
        steps, copies = steps or int(rng.integers(6, 10)), int(rng.integers(1, 4))
        shape = (steps, copies)
        terminated, truncated = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        for column in range(copies):
            free = rng.permutation(np.arange(1, steps - 1)) if steps > 2 else np.arange(0)
            terminated[free[:terminated_ends], column] = True
            truncated[free[terminated_ends : terminated_ends + truncated_ends], column] = True
            twice = free[terminated_ends + truncated_ends :][:both]
            terminated[twice, column] = truncated[twice, column] = True
        rewards, values = rng.normal(0.5, 1, shape), rng.normal(1, 2, shape)
        next_values = np.vstack([values[1:], rng.normal(1, 2, (1, copies))])
        ends = terminated | truncated
        next_values[ends] = rng.normal(1, 2, int(ends.sum())) + 3.0
        cases.append(
            Case(
                (
                    rewards,
                    values,
                    next_values,
                    terminated,
                    truncated,
                    float(rng.uniform(0.7, 0.97)) if gamma is None else gamma,
                    float(rng.uniform(0.4, 0.9)) if lam is None else lam,
                ),
                part,
            )
        )

    for _ in range(2):
        add("inside an episode")
    for _ in range(2):
        add("terminated episodes", terminated_ends=2)
    for _ in range(2):
        add("truncated episodes", truncated_ends=2)
    add("edge cases", 1, 1, 1, lam=0.0)
    add("edge cases", 1, 1, 1, lam=1.0)
    add("edge cases", 1, 1, 1, lam=1.0, gamma=1.0)
    add("edge cases", 2, 1, 1)
    add("edge cases", steps=1)
    return cases


def generalized_advantages_reference(rewards, values, next_values, terminated, truncated, gamma, lam):
    arguments = (rewards, values, next_values, terminated, truncated, gamma, lam)
    return book_returns.gae_mixture(*arguments), book_returns.gae(*arguments)[1]


def generalized_advantages_double_sum(rewards, values, next_values, terminated, truncated, gamma, lam):
    deltas = rewards + gamma * np.where(terminated, 0.0, next_values) - values
    result = np.zeros(deltas.shape)
    for t in range(deltas.shape[0]):
        for n in range(deltas.shape[1]):
            for k in range(t, deltas.shape[0]):
                result[t, n] += (gamma * lam) ** (k - t) * deltas[k, n]
                if terminated[k, n] or truncated[k, n]:
                    break
    return result, result + values


def generalized_advantages_targets_first(rewards, values, next_values, terminated, truncated, gamma, lam):
    targets = np.zeros(rewards.shape)
    for t in range(len(rewards) - 1, -1, -1):
        ahead = next_values[t].copy()
        if t + 1 < len(rewards):
            goes_on = ~(terminated[t].astype(bool) | truncated[t].astype(bool))
            ahead = np.where(goes_on, (1 - lam) * next_values[t] + lam * targets[t + 1], ahead)
        targets[t] = rewards[t] + gamma * np.where(terminated[t], 0.0, ahead)
    return targets - values, targets


def generalized_advantages_per_copy(rewards, values, next_values, terminated, truncated, gamma, lam):
    columns = []
    for r, v, w, d, u in zip(rewards.T, values.T, next_values.T, terminated.T, truncated.T):
        column, later = [], 0.0
        for t in range(len(r) - 1, -1, -1):
            bootstrap = 0.0 if d[t] else gamma * w[t]
            later = 0.0 if d[t] or u[t] else later
            later = r[t] + bootstrap - v[t] + gamma * lam * later
            column.insert(0, later)
        columns.append(column)
    advantages = np.array(columns).T
    return advantages, advantages + values


def generalized_advantages_backwards(rewards, values, next_values, terminated, truncated, gamma, lam):
    advantages, later = np.zeros(rewards.shape), 0.0
    deltas = rewards + gamma * next_values * ~terminated - values
    for t in reversed(range(len(rewards))):
        later = deltas[t] + gamma * lam * ~(terminated[t] | truncated[t]) * later
        advantages[t] = later
    return advantages, advantages + values


Q5 = Question(
    name="q5",
    title="Generalized advantages",
    function="generalized_advantages",
    parts={"inside an episode": 5, "terminated episodes": 6, "truncated episodes": 6, "edge cases": 3},
    reference=generalized_advantages_reference,
    driver=drive_q5,
    cases=cases_q5,
    compare=close(rtol=1e-5, atol=1e-6),
    alternatives=(
        generalized_advantages_double_sum,
        generalized_advantages_targets_first,
        generalized_advantages_per_copy,
        generalized_advantages_backwards,
    ),
    mistakes=(
        Mistake(
            edit(generalized_advantages_backwards, " * ~terminated -", " -"),
            "it bootstraps past a termination. After a terminal state nothing is paid any more, so its value"
            " is zero, whatever the critic says.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "~terminated -", "~(terminated | truncated) -"),
            "it does not bootstrap at a truncation. The time limit stopped the recording, not the world: the"
            " value of the real next state still counts. Only the trace is cut.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "~(terminated[t] | truncated[t])", "~terminated[t]"),
            "advantages of one episode leak into the episode before it, at truncations. The next row belongs"
            " to another episode: cut the trace there, too.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, " * ~(terminated[t] | truncated[t])", ""),
            "the trace is never cut, so advantages leak from every episode into the one before it. Both flags"
            " end the recursion.",
        ),
        Mistake(
            edit(
                generalized_advantages_backwards,
                "gamma * next_values",
                "gamma * np.vstack([values[1:], next_values[-1:]])",
            ),
            "the value of the next row stands in for the value of the next state. At a truncation the next"
            " row is the first state of another episode; that is what `next_values` is for.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "gamma * lam", "lam"),
            "the trace fades with lambda alone. A later TD error is discounted as well: the factor is the"
            " product of gamma and lambda.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "gamma * lam", "gamma"),
            "the trace fades with gamma alone, as if lambda were 1. The factor is the product of both.",
        ),
        Mistake(
            edit(
                generalized_advantages_backwards,
                "gamma * next_values",
                "gamma * np.vstack([next_values[:-1], 0 * next_values[-1:]])",
            ),
            "the last row of the buffer gets no bootstrap. The buffer was full, but the episode goes on:"
            " treat it like a truncation, unless the step terminated.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "advantages + values", "deltas + values"),
            "the advantages are right, but the targets are those of one-step TD. The targets are the"
            " advantages plus the values of the states where they were measured.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "later = deltas[t]", "later = (1 - lam) * deltas[t]"),
            "the TD errors are weighted with an additional factor of one minus lambda. Those are the weights"
            " of the k-step advantages. In the sum of TD errors the first weight is 1.",
        ),
        Mistake(
            edit(
                generalized_advantages_backwards,
                "rewards + gamma * next_values * ~terminated - values",
                "values - rewards - gamma * next_values * ~terminated",
            ),
            "the TD error has the wrong sign. It is what was found minus what was expected.",
        ),
        Mistake(
            edit(
                generalized_advantages_backwards,
                "reversed(range(len(rewards)))",
                "range(len(rewards))",
                " * ~(terminated[t] | truncated[t])",
                "",
                "advantages[t] = later",
                "advantages[t] = later\n        later = later * ~(terminated[t] | truncated[t])",
            ),
            "the recursion runs from the first step to the last, so a step is judged by the TD errors before"
            " it. It must be judged by its own and the later ones.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "    deltas", "    next_values[terminated] = 0.0\n    deltas"),
            "the function changes its arguments. Whoever calls it still needs them: make a new array, for"
            " example with `np.where`.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "~terminated -", "~(terminated & ~truncated) -"),
            "a step with both flags set is bootstrapped. If both are set, it terminated.",
        ),
        Mistake(
            edit(generalized_advantages_backwards, "next_values * ~terminated", "next_values * ~truncated"),
            "the mask of the bootstrap is made of the wrong flag: only a termination means that nothing follows.",
        ),
    ),
)


# ---------------------------------------------------------------------- q6: one update of an actor-critic


def drive_q6(function, what, task):
    """One update of the critic or of the actor on a given batch, or a whole small training run."""
    import numpy as np

    gamma, lam = task["gamma"], task["lam"]
    rates = task["actor_rate"], task["critic_rate"]
    if what != "learning":
        logits, values, batch = task["logits"], task["values"], dict(task["batch"])
        found = function(logits, values, batch, gamma, lam, *rates)
        after = [logits, values, *(batch[name] for name in task["batch"])]
        return {"new": found[0] if what == "actor" else found[1], "arguments": after}

    transitions, rewards = task["transitions"], task["rewards"]  # (S, A, S), (S, A); the last state is terminal
    states, actions = rewards.shape
    rng = np.random.default_rng(task["seed"])
    logits, values = np.zeros((states, actions)), np.zeros(states)

    def policy():
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        return raised / raised.sum(axis=1, keepdims=True)

    def draw(rows):
        return np.minimum((rng.random((len(rows), 1)) > rows.cumsum(axis=1)).sum(axis=1), rows.shape[1] - 1)

    names = ("states", "actions", "rewards", "next_states", "terminated", "truncated")
    for _ in range(task["updates"]):
        batch, probabilities = {name: [] for name in names}, policy()
        state, age = np.zeros(task["copies"], dtype=int), np.zeros(task["copies"], dtype=int)
        for _ in range(task["steps"]):
            action = draw(probabilities[state])
            following, age = draw(transitions[state, action]), age + 1
            terminated = following == states - 1
            truncated = (age == task["limit"]) & ~terminated
            for name, row in zip(names, (state, action, rewards[state, action], following, terminated, truncated)):
                batch[name].append(row)
            over = terminated | truncated
            state, age = np.where(over, 0, following), np.where(over, 0, age)
        batch = {name: np.array(rows) for name, rows in batch.items()}
        logits, values = (np.array(found, dtype=float) for found in function(logits, values, batch, gamma, lam, *rates))
    return {"trained logits": logits, "task": {"transitions": transitions, "rewards": rewards, "gamma": gamma}}


def trained_return(logits, task):
    """Exact expected return of a softmax policy from the first state; the last state is terminal."""
    policy = np.exp(logits - logits.max(axis=1, keepdims=True))
    policy = (policy / policy.sum(axis=1, keepdims=True))[:-1]
    moves = np.einsum("sa,sat->st", policy, task["transitions"][:-1])[:, :-1]
    paid = (policy * task["rewards"][:-1]).sum(axis=1)
    return float(np.linalg.solve(np.eye(len(paid)) - task["gamma"] * moves, paid)[0])


def compare_q6(got, want):
    """Numbers of one update must agree; a trained policy must earn nearly what the reference's earns, or more.

    The policies are judged here, outside of the sandbox, on the task that belongs to the reference's result.
    """
    if isinstance(want, dict) and "trained logits" in want:
        logits = np.asarray(got["trained logits"], dtype=float)
        if logits.shape != want["trained logits"].shape or not np.isfinite(logits).all():
            return "Training does not end with a table of finite logits."
        wanted = trained_return(want["trained logits"], want["task"])
        enough = trained_return(logits, want["task"]) >= wanted - 0.1 * abs(wanted)
        return None if enough else "The trained policy earns too little."
    return close(rtol=1e-4, atol=1e-6)(got, want)


def cases_q6(rng):
    cases = []
    for what, part in (("critic", "the critic's step"), ("actor", "the actor's step")):
        for _ in range(3):
            states, actions = int(rng.integers(3, 5)), int(rng.integers(2, 4))
            shape = (int(rng.integers(6, 10)), int(rng.integers(2, 4)))
            batch = {
                "states": rng.integers(states - 1, size=shape),
                "actions": rng.integers(actions, size=shape),
                "rewards": rng.normal(0.5, 1, shape),
                "next_states": rng.integers(states - 1, size=shape),
                "terminated": np.zeros(shape, dtype=bool),
                "truncated": np.zeros(shape, dtype=bool),
            }
            for column in range(shape[1]):
                ends = rng.permutation(np.arange(shape[0] - 1))[:3]
                batch["terminated"][ends[0], column] = True
                batch["truncated"][ends[1:], column] = True
            batch["next_states"][batch["terminated"]] = states - 1
            goes_on = ~(batch["terminated"] | batch["truncated"])[:-1]
            batch["states"][1:][goes_on] = batch["next_states"][:-1][goes_on]
            cases.append(
                Case(
                    (
                        what,
                        {
                            "logits": rng.normal(0, 1, (states, actions)),
                            "values": rng.normal(2, 1, states) + 0.5,
                            "batch": batch,
                            "gamma": float(rng.uniform(0.8, 0.98)),
                            "lam": float(rng.uniform(0.3, 0.95)),
                            "actor_rate": float(rng.uniform(0.5, 2.0)),
                            "critic_rate": float(rng.uniform(0.3, 0.9)),
                        },
                    ),
                    part,
                )
            )
    wear, price = float(rng.uniform(0.2, 0.35)), float(rng.uniform(7.5, 9.0))
    transitions = np.zeros((3, 3, 3))
    transitions[0, 0] = 1 - wear, wear, 0
    transitions[0, 1, 0] = transitions[1, 0, 1] = transitions[1, 1, 0] = 1
    transitions[:2, 2, 2] = transitions[2, :, 2] = 1
    rewards = np.array([[2.0, -1.0, price], [0.5, -1.0, price], [0.0, 0.0, 0.0]])
    order = rng.permutation(3)  # the actions have other numbers in every run
    cases.append(
        Case(
            (
                "learning",
                {
                    "transitions": transitions[:, order],
                    "rewards": rewards[:, order],
                    "gamma": 0.95,
                    "lam": 0.9,
                    "limit": 8,
                    "steps": 20,
                    "copies": 12,
                    "updates": 40,
                    "actor_rate": 3.0,
                    "critic_rate": 1.0,
                    "seed": int(rng.integers(10**6)),
                },
            ),
            "learns to keep the bakery",
        )
    )
    return cases


def actor_critic_update_reference(logits, values, batch, gamma, lam, actor_rate, critic_rate):
    s, a = batch["states"], batch["actions"]
    advantages, targets = book_returns.gae(
        batch["rewards"], values[s], values[batch["next_states"]], batch["terminated"], batch["truncated"], gamma, lam
    )
    centered = advantages - advantages.mean()
    normalized = centered / (np.sqrt((centered**2).mean()) + 1e-8)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = np.eye(logits.shape[1])[a] - (raised / raised.sum(axis=1, keepdims=True))[s]  # (T, N, A)
    visits = np.eye(len(values))[s]  # (T, N, S)
    by_logits = np.einsum("tns,tn,tna->sa", visits, normalized, scores) / s.size
    by_values = np.einsum("tns,tn->s", visits, targets - values[s]) / s.size
    return logits + actor_rate * by_logits, values + critic_rate * by_values


def actor_critic_update_one_loss(logits, values, batch, gamma, lam, actor_rate, critic_rate):
    z, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (logits, values))
    advantages, targets = book_returns.gae(
        batch["rewards"],
        values[batch["states"]],
        values[batch["next_states"]],
        batch["terminated"],
        batch["truncated"],
        gamma,
        lam,
    )
    normalized = torch.as_tensor(book_returns.normalize_advantages(advantages))
    s, a = torch.as_tensor(batch["states"]), torch.as_tensor(batch["actions"])
    log_prob = torch.log_softmax(z, dim=1)[s, a]
    loss = -(normalized * log_prob).mean() + 0.5 * ((v[s] - torch.as_tensor(targets)) ** 2).mean()
    loss.backward()
    return logits - actor_rate * z.grad.numpy(), values - critic_rate * v.grad.numpy()


def actor_critic_update_loop(logits, values, batch, gamma, lam, actor_rate, critic_rate):
    steps, copies = batch["rewards"].shape
    advantages = np.zeros((steps, copies))
    for n in range(copies):
        later = 0.0
        for t in range(steps - 1, -1, -1):
            d, u = batch["terminated"][t, n], batch["truncated"][t, n]
            bootstrap = 0.0 if d else values[batch["next_states"][t, n]]
            delta = batch["rewards"][t, n] + gamma * bootstrap - values[batch["states"][t, n]]
            later = delta + (0.0 if d or u else gamma * lam * later)
            advantages[t, n] = later
    mean, spread = advantages.mean(), advantages.std() + 1e-8
    new_logits, new_values = np.array(logits, dtype=float), np.array(values, dtype=float)
    for t in range(steps):
        for n in range(copies):
            s, a = batch["states"][t, n], batch["actions"][t, n]
            policy = np.exp(logits[s] - logits[s].max())
            score = -policy / policy.sum()
            score[a] += 1
            new_logits[s] += actor_rate * (advantages[t, n] - mean) / spread * score / (steps * copies)
            new_values[s] += critic_rate * advantages[t, n] / (steps * copies)
    return new_logits, new_values


def actor_critic_update_add_at(logits, values, batch, gamma, lam, actor_rate, critic_rate):
    s, a = batch["states"], batch["actions"]
    advantages, targets = book_returns.gae(
        batch["rewards"], values[s], values[batch["next_states"]], batch["terminated"], batch["truncated"], gamma, lam
    )
    weights = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = np.exp(logits - logits.max(1, keepdims=True))
    policy = policy / policy.sum(1, keepdims=True)
    new_logits, new_values = logits.copy(), values.copy()
    np.add.at(new_logits, s, actor_rate * weights[..., None] * (np.eye(logits.shape[1])[a] - policy[s]) / s.size)
    np.add.at(new_values, s, critic_rate * (targets - values[s]) / s.size)
    return new_logits, new_values


def actor_critic_update_critic_first(logits, values, batch, gamma, lam, actor_rate, critic_rate):
    s, a = batch["states"], batch["actions"]
    flags = batch["terminated"], batch["truncated"]
    targets = book_returns.gae(batch["rewards"], values[s], values[batch["next_states"]], *flags, gamma, lam)[1]
    new_logits, new_values = logits.copy(), values.copy()
    np.add.at(new_values, s, critic_rate * (targets - values[s]) / s.size)
    advantages = book_returns.gae(
        batch["rewards"], new_values[s], new_values[batch["next_states"]], *flags, gamma, lam
    )[0]
    weights = book_returns.normalize_advantages(advantages)
    policy = np.exp(logits - logits.max(1, keepdims=True))
    policy = policy / policy.sum(1, keepdims=True)
    np.add.at(new_logits, s, actor_rate * weights[..., None] * (np.eye(logits.shape[1])[a] - policy[s]) / s.size)
    return new_logits, new_values


Q6 = Question(
    name="q6",
    title="An actor-critic learns",
    function="actor_critic_update",
    parts={"the critic's step": 6, "the actor's step": 6, "learns to keep the bakery": 6},
    reference=actor_critic_update_reference,
    driver=drive_q6,
    cases=cases_q6,
    compare=compare_q6,
    alternatives=(actor_critic_update_one_loss, actor_critic_update_loop, actor_critic_update_add_at),
    mistakes=(
        Mistake(
            edit(actor_critic_update_add_at, "s, actor_rate *", "s, -actor_rate *"),
            "the actor walks downhill: actions with a positive advantage become rarer. Gradient descent on"
            " the loss, or ascent on its negative, but not both.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at,
                "    policy = np.exp",
                "    targets = weights + values[s]\n    policy = np.exp",
            ),
            "the targets of the critic are made from normalized advantages. Values are in reward units:"
            " compute the targets before you normalize.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at, "(advantages - advantages.mean()) / (advantages.std() + 1e-8)", "advantages"
            ),
            "the advantages of the actor are not normalized. The task asks for mean 0 and deviation 1 over"
            " the whole batch.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "advantages.std()", "advantages.std(ddof=1)"),
            "the standard deviation divides by one less than the number of steps (ddof 1, torch's default)."
            " The task asks for ddof 0, numpy's default.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at,
                "advantages.mean()",
                "advantages.mean(1, keepdims=True)",
                "advantages.std()",
                "advantages.std(1, keepdims=True)",
            ),
            "the advantages are normalized row by row, over the copies. The mean and the deviation are those"
            " of all steps of all copies together.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at,
                "advantages.mean()",
                "advantages.mean(0)",
                "advantages.std()",
                "advantages.std(0)",
            ),
            "the advantages are normalized copy by copy, over time. The mean and the deviation are those of"
            " all steps of all copies together.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "(advantages - advantages.mean())", "advantages"),
            "the advantages are divided by their deviation, but their mean is not subtracted before.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, " / (advantages.std() + 1e-8)", ""),
            "the mean of the advantages is subtracted, but they are not divided by their deviation.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "+ 1e-8)", "+ 1e-8) - values[s]"),
            "the values are subtracted from the normalized advantages. The baseline is in the TD errors"
            " already: the weight of a step is its normalized advantage, nothing else.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at,
                "np.add.at(new_logits, s, ",
                "new_logits[s] += (",
                "np.add.at(new_values, s, ",
                "new_values[s] += (",
            ),
            "a state that occurs several times in the batch is moved by its last visit only: `array[index] +="
            " ...` adds once per place. All visits count: use np.add.at, a loop, or automatic differentiation.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, " - policy[s]", ""),
            "only the logit of the chosen action moves. In the score of a softmax all logits of the row take"
            " part; its entries sum to zero.",
        ),
        Mistake(
            actor_critic_update_critic_first,
            "the advantages are computed with the critic after its step. Both steps use the critic as it was"
            " when the update began.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "policy[s]) / s.size", "policy[s])", "values[s]) / s.size", "values[s])"),
            "the steps of the batch are summed. Both losses are means over all steps of all copies.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "logits.copy(), values.copy()", "logits, values"),
            "the function changes its arguments. Return new tables and leave the old ones as they are.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, 'batch["terminated"],', 'batch["terminated"] | batch["truncated"],'),
            "truncated steps are treated as terminated. The agent then believes that nothing comes after the"
            " time limit, and sells a bakery that would earn more.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at,
                'values[batch["next_states"]]',
                'np.vstack([values[s][1:], values[batch["next_states"]][-1:]])',
            ),
            "the next value is taken from the next row of the batch. After a truncation that row belongs to"
            " another episode: look the value up with `next_states`.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at,
                'batch["terminated"], batch["truncated"]',
                'batch["terminated"] & False, batch["terminated"] | batch["truncated"]',
            ),
            "the value of the terminal state is used. After a sale nothing is paid any more, whatever the"
            " table says there.",
        ),
        Mistake(
            edit(
                actor_critic_update_add_at,
                "    new_logits,",
                "    visits = np.bincount(s.ravel(), minlength=len(values)).clip(1)[s]\n    new_logits,",
                "policy[s]) / s.size",
                "policy[s]) / visits[..., None]",
                "values[s]) / s.size",
                "values[s]) / visits",
            ),
            "each state has its own mean over its visits. Both losses are means over all steps of the batch,"
            " so a state that is seen often moves more.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "s, critic_rate *", "s, 2 * critic_rate *"),
            "the critic's step is twice as long as asked for. The loss has a factor one half in front of the"
            " mean square, and it cancels the two of the derivative.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "return new_logits, new_values", "return new_logits, values.copy()"),
            "the critic does not learn: its table comes back as it was.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "critic_rate *", "-critic_rate *"),
            "the critic walks uphill: its values move away from the targets.",
        ),
        Mistake(
            edit(actor_critic_update_add_at, "critic_rate *", "actor_rate *"),
            "the critic moves with the step size of the actor. Each has its own.",
        ),
    ),
)


ASSIGNMENT = Assignment(
    title="Policy gradients and GAE",
    questions=(Q1, Q2, Q3, Q4, Q5, Q6),
    written=Written("written", "Which lambda?", 12),
    seconds=120.0,
    memory_mb=2048,
)
