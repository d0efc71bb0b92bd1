"""Plausible mistakes that no assignment lists, as edits of right solutions."""

from __future__ import annotations

from typing import NamedTuple


class New(NamedTuple):
    """``question``: counted from 0. ``texts``: pairs for ``edits.edit``. ``why``: what the student thought."""

    assignment: str
    question: int
    base: str
    why: str
    texts: tuple[str, ...]
    often_known: bool = False  # with some seeds it is like a known mistake


MDPS, TD, DQN, GRADIENTS = "01_mdps", "02_td", "03_dqn", "04_policy_gradients"
TRUST, GRPO = "05_trpo_ppo", "06_grpo"

NEW_MISTAKES = [
    New(MDPS, 0, "discounted_returns_plain", "costs instead of rewards", ("returns[t] = G", "returns[t] = -G")),
    New(MDPS, 0, "discounted_returns_plain", "rounded for printing", ("return returns", "return returns.round(2)")),
    New(
        MDPS, 0, "discounted_returns_plain", "a column, as for a network", ("return returns", "return returns[:, None]")
    ),
    New(
        MDPS,
        0,
        "discounted_returns_plain",
        "the final value stands in the result",
        ("return returns", "return np.append(returns, final_value)"),
    ),
    New(
        MDPS,
        1,
        "build_maze_plain",
        "one matrix for each action",
        ("return P, R, terminal", "return P.swapaxes(0, 1), R.swapaxes(0, 1), terminal"),
    ),
    New(MDPS, 2, "q_from_values_plain", "a row for each action", ("return q_values", "return q_values.T")),
    New(MDPS, 4, "value_iteration_plain", "the table of zeros counts as a sweep", ("0, np.inf", "1, np.inf")),
    New(
        MDPS,
        5,
        "policy_iteration_plain",
        "the history starts with the table of zeros",
        ("dtype=int), []", "dtype=int), [np.zeros(S)]"),
    ),
    New(MDPS, 1, "build_maze_plain", "prizes of 1", ('{"G": 10, "T": -10}', '{"G": 1, "T": -1}')),
    New(
        MDPS,
        1,
        "build_maze_plain",
        "x before y",
        ("[(-1, 0), (1, 0), (0, -1), (0, 1)]", "[(0, -1), (0, 1), (-1, 0), (1, 0)]"),
    ),
    New(
        TD,
        0,
        "first_visit_values_plain",
        "zero by zero where nobody came",
        ("total / np.maximum(counts, 1)", "np.where(counts > 0, total / np.maximum(counts, 1), np.nan)"),
    ),
    New(
        TD,
        0,
        "first_visit_values_plain",
        "the two results in the other order",
        ("return total / np.maximum(counts, 1), counts", "return counts, total / np.maximum(counts, 1)"),
    ),
    New(TD, 5, "q_learning_agent_plain", "values of states come back", ("return q,", "return q.max(axis=1),")),
    New(
        DQN,
        0,
        "ReplayMemory_plain",
        "the columns in another order",
        (
            "np.array(next_observation), terminated))",
            "terminated, np.array(next_observation)))",
            "(np.float32, np.int64, np.float32, np.float32, bool)",
            "(np.float32, np.int64, np.float32, bool, np.float32)",
        ),
    ),
    New(DQN, 2, "double_dqn_targets_plain", "a column and a row", (".squeeze(1)", "")),
    New(
        DQN,
        3,
        "dqn_loss_plain",
        "one loss for each transition",
        (".mean()", "", "delta=kappa)", 'delta=kappa, reduction="none")'),
    ),
    New(DQN, 5, "train_dqn_plain", "the sum goes on over episodes", ("x, total = env.reset(), 0.0", "x = env.reset()")),
    New(
        DQN,
        5,
        "train_dqn_plain",
        "the mean of the returns",
        ("return returns", "return sum(returns) / max(len(returns), 1)"),
    ),
    New(
        GRADIENTS,
        0,
        "categorical_log_prob_rows",
        "the loss instead of the log-probability",
        ("return log_probs", "return -log_probs"),
    ),
    New(GRADIENTS, 0, "categorical_log_prob_rows", "gathered, not squeezed", ("actions]", "actions][:, None]")),
    New(
        GRADIENTS, 1, "gaussian_log_prob_formula", "the constant with the wrong sign", ("- 0.5 * math", "+ 0.5 * math")
    ),
    New(
        GRADIENTS,
        2,
        "rewards_to_go_backwards",
        "a baseline already here",
        ("return result", "return result - result.mean()"),
    ),
    New(GRADIENTS, 3, "policy_loss_detached", "one half as in the critic's loss", ("return -(", "return -0.5 * (")),
    New(
        GRADIENTS,
        4,
        "generalized_advantages_backwards",
        "one row for each copy",
        ("return advantages, advantages + values", "return advantages.T, (advantages + values).T"),
    ),
    New(
        GRADIENTS,
        4,
        "generalized_advantages_backwards",
        "divided by their deviation here, not in the update",
        ("return advantages,", "return advantages / advantages.std(),"),
    ),
    New(GRADIENTS, 0, "categorical_log_prob_rows", "one number for the batch", ("actions]", "actions].mean()")),
    New(GRADIENTS, 1, "gaussian_log_prob_formula", "a two is lost", ("2 * math.pi", "math.pi")),
    New(GRADIENTS, 3, "policy_loss_detached", "no mean", (".mean()", "")),
    New(
        GRADIENTS,
        4,
        "generalized_advantages_backwards",
        "the two results in the other order",
        ("return advantages, advantages + values", "return advantages + values, advantages"),
    ),
    New(TRUST, 0, "kl_and_entropy_where", "a penalty is negative", ("return kl.mean()", "return -kl.mean()")),
    New(
        TRUST,
        0,
        "kl_and_entropy_where",
        "one number for each state",
        ("return kl.mean(), entropy.mean()", "return kl, entropy"),
    ),
    New(TRUST, 3, "trust_region_step_loop", "the two on the wrong side", ("2 * delta", "delta / 2")),
    New(
        TRUST,
        3,
        "trust_region_step_loop",
        "tries are counted, not backtracks",
        ("return step, j", "return step, j + 1"),
    ),
    New(TRUST, 4, "clip_loss_minimum", "how many are clipped", (".float().mean()", ".float().sum()")),
    New(GRPO, 0, "pairwise_loss_by_logaddexp", "one loss for each pair", (".mean()", "")),
    New(
        GRPO,
        0,
        "pairwise_loss_by_logaddexp",
        "divided by the number of scores",
        (" / len(margin)", " / (2 * len(margin))"),
    ),
    New(
        GRPO,
        0,
        "pairwise_loss_by_logaddexp",
        "only the chosen answer is moved",
        ("-surprise, surprise", "-surprise, 0 * surprise"),
    ),
    New(
        GRPO,
        1,
        "completion_log_probs_by_gather",
        "the loss instead of the log-probability",
        ("return found", "return -found"),
    ),
    New(GRPO, 1, "completion_log_probs_by_gather", "the mask says what is masked", ("0.0), mask", "0.0), ~mask")),
    New(
        GRPO,
        1,
        "completion_log_probs_by_gather",
        "impossible where nothing was written",
        ("(~mask, 0.0)", "(~mask, -torch.inf)"),
    ),
    New(
        GRPO,
        1,
        "completion_log_probs_by_gather",
        "one number for each completion",
        ("(~mask, 0.0)", "(~mask, 0.0).sum(1)"),
    ),
    New(
        GRPO,
        2,
        "kl_and_rewards_by_index",
        "the divergence of each completion",
        ("np.expm1(d) - d", "(np.expm1(d) - d).sum(1)"),
    ),
    New(GRPO, 3, "group_advantages_by_others", "the others minus the answer", ("rewards - others", "others - rewards")),
    New(
        GRPO,
        4,
        "grpo_loss_by_terms",
        "the sum over an answer",
        ("(terms.sum(1) / mask.sum(1)).mean()", "terms.sum(1).mean()"),
    ),
]
