"""Plausible mistakes that no assignment lists, as edits of right solutions, and the relation that names each."""

from __future__ import annotations

from typing import NamedTuple


class New(NamedTuple):
    """``question``: counted from 0. ``texts``: pairs for ``edits.edit``. ``why``: what the student thought.

    ``said``: the name of the relation whose sentence the student reads about one part at least, whatever the seed.
    """

    assignment: str
    question: int
    base: str
    why: str
    texts: tuple[str, ...]
    said: str
    often_known: bool = False  # with some seeds it is like a known mistake


MDPS, TD, DQN, GRADIENTS = "01_mdps", "02_td", "03_dqn", "04_policy_gradients"
TRUST, GRPO = "05_trpo_ppo", "06_grpo"

NEW_MISTAKES = [
    New(
        MDPS,
        0,
        "discounted_returns_plain",
        "costs instead of rewards",
        ("returns[t] = G", "returns[t] = -G"),
        "opposite",
    ),
    New(
        MDPS,
        0,
        "discounted_returns_plain",
        "rounded for printing",
        ("return returns", "return returns.round(2)"),
        "rounded",
    ),
    New(
        MDPS,
        0,
        "discounted_returns_plain",
        "a column, as for a network",
        ("return returns", "return returns[:, None]"),
        "axis of length 1",
    ),
    New(
        MDPS,
        0,
        "discounted_returns_plain",
        "the final value stands in the result",
        ("return returns", "return np.append(returns, final_value)"),
        "one more at the end",
    ),
    New(
        MDPS,
        1,
        "build_maze_plain",
        "one matrix for each action",
        ("return P, R, terminal", "return P.swapaxes(0, 1), R.swapaxes(0, 1), terminal"),
        "axes",
    ),
    New(MDPS, 2, "q_from_values_plain", "a row for each action", ("return q_values", "return q_values.T"), "axes"),
    New(
        MDPS,
        4,
        "value_iteration_plain",
        "the table of zeros counts as a sweep",
        ("0, np.inf", "1, np.inf"),
        "one too large",
    ),
    New(
        MDPS,
        5,
        "policy_iteration_plain",
        "the history starts with the table of zeros",
        ("dtype=int), []", "dtype=int), [np.zeros(S)]"),
        "one more at the start",
    ),
    New(MDPS, 1, "build_maze_plain", "prizes of 1", ('{"G": 10, "T": -10}', '{"G": 1, "T": -1}'), "factor"),
    New(
        MDPS,
        1,
        "build_maze_plain",
        "x before y",
        ("[(-1, 0), (1, 0), (0, -1), (0, 1)]", "[(0, -1), (0, 1), (-1, 0), (1, 0)]"),
        "permuted",
    ),
    New(
        TD,
        0,
        "first_visit_values_plain",
        "zero by zero where nobody came",
        ("total / np.maximum(counts, 1)", "np.where(counts > 0, total / np.maximum(counts, 1), np.nan)"),
        "not finite",
    ),
    New(
        TD,
        0,
        "first_visit_values_plain",
        "the two results in the other order",
        ("return total / np.maximum(counts, 1), counts", "return counts, total / np.maximum(counts, 1)"),
        "results in another order",
    ),
    New(
        TD,
        5,
        "q_learning_agent_plain",
        "values of states come back",
        ("return q,", "return q.max(axis=1),"),
        "axis of length 1",
    ),
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
        "permuted",
    ),
    New(DQN, 2, "double_dqn_targets_plain", "a column and a row", (".squeeze(1)", ""), "square"),
    New(
        DQN,
        3,
        "dqn_loss_plain",
        "one loss for each transition",
        (".mean()", "", "delta=kappa)", 'delta=kappa, reduction="none")'),
        "mean missing",
    ),
    New(
        DQN,
        5,
        "train_dqn_plain",
        "the sum goes on over episodes",
        ("x, total = env.reset(), 0.0", "x = env.reset()"),
        "running sum",
    ),
    New(
        DQN,
        5,
        "train_dqn_plain",
        "the mean of the returns",
        ("return returns", "return sum(returns) / max(len(returns), 1)"),
        "a mean too many",
    ),
    New(
        GRADIENTS,
        0,
        "categorical_log_prob_rows",
        "the loss instead of the log-probability",
        ("return log_probs", "return -log_probs"),
        "opposite",
    ),
    New(
        GRADIENTS,
        0,
        "categorical_log_prob_rows",
        "gathered, not squeezed",
        ("actions]", "actions][:, None]"),
        "axis of length 1",
    ),
    New(
        GRADIENTS,
        1,
        "gaussian_log_prob_formula",
        "the constant with the wrong sign",
        ("- 0.5 * math", "+ 0.5 * math"),
        "constant added",
    ),
    New(
        GRADIENTS,
        2,
        "rewards_to_go_backwards",
        "a baseline already here",
        ("return result", "return result - result.mean()"),
        "constant added",
    ),
    New(
        GRADIENTS,
        3,
        "policy_loss_detached",
        "one half as in the critic's loss",
        ("return -(", "return -0.5 * ("),
        "half",
    ),
    New(
        GRADIENTS,
        4,
        "generalized_advantages_backwards",
        "one row for each copy",
        ("return advantages, advantages + values", "return advantages.T, (advantages + values).T"),
        "axes",
    ),
    New(
        GRADIENTS,
        4,
        "generalized_advantages_backwards",
        "divided by their deviation here, not in the update",
        ("return advantages,", "return advantages / advantages.std(),"),
        "factor",
    ),
    New(
        GRADIENTS,
        0,
        "categorical_log_prob_rows",
        "one number for the batch",
        ("actions]", "actions].mean()"),
        "a mean too many",
    ),
    New(GRADIENTS, 1, "gaussian_log_prob_formula", "a two is lost", ("2 * math.pi", "math.pi"), "constant added"),
    New(GRADIENTS, 3, "policy_loss_detached", "no mean", (".mean()", ""), "mean missing"),
    New(
        GRADIENTS,
        4,
        "generalized_advantages_backwards",
        "the two results in the other order",
        ("return advantages, advantages + values", "return advantages + values, advantages"),
        "results in another order",
    ),
    New(
        TRUST, 0, "kl_and_entropy_where", "a penalty is negative", ("return kl.mean()", "return -kl.mean()"), "opposite"
    ),
    New(
        TRUST,
        0,
        "kl_and_entropy_where",
        "one number for each state",
        ("return kl.mean(), entropy.mean()", "return kl, entropy"),
        "mean missing",
    ),
    New(TRUST, 3, "trust_region_step_loop", "the two on the wrong side", ("2 * delta", "delta / 2"), "half"),
    New(
        TRUST,
        3,
        "trust_region_step_loop",
        "tries are counted, not backtracks",
        ("return step, j", "return step, j + 1"),
        "one too large",
    ),
    New(
        TRUST, 4, "clip_loss_minimum", "how many are clipped", (".float().mean()", ".float().sum()"), "times the length"
    ),
    New(GRPO, 0, "pairwise_loss_by_logaddexp", "one loss for each pair", (".mean()", ""), "mean missing"),
    New(
        GRPO,
        0,
        "pairwise_loss_by_logaddexp",
        "divided by the number of scores",
        (" / len(margin)", " / (2 * len(margin))"),
        "half",
    ),
    New(
        GRPO,
        0,
        "pairwise_loss_by_logaddexp",
        "only the chosen answer is moved",
        ("-surprise, surprise", "-surprise, 0 * surprise"),
        "zero",
    ),
    New(
        GRPO,
        1,
        "completion_log_probs_by_gather",
        "the loss instead of the log-probability",
        ("return found", "return -found"),
        "opposite",
    ),
    New(
        GRPO,
        1,
        "completion_log_probs_by_gather",
        "the mask says what is masked",
        ("0.0), mask", "0.0), ~mask"),
        "truth turned around",
    ),
    New(
        GRPO,
        1,
        "completion_log_probs_by_gather",
        "impossible where nothing was written",
        ("(~mask, 0.0)", "(~mask, -torch.inf)"),
        "not finite",
    ),
    New(
        GRPO,
        1,
        "completion_log_probs_by_gather",
        "one number for each completion",
        ("(~mask, 0.0)", "(~mask, 0.0).sum(1)"),
        "a sum too many",
    ),
    New(
        GRPO,
        2,
        "kl_and_rewards_by_index",
        "the divergence of each completion",
        ("np.expm1(d) - d", "(np.expm1(d) - d).sum(1)"),
        "a sum too many",
    ),
    New(
        GRPO,
        3,
        "group_advantages_by_others",
        "the others minus the answer",
        ("rewards - others", "others - rewards"),
        "opposite",
    ),
    New(
        GRPO,
        4,
        "grpo_loss_by_terms",
        "the sum over an answer",
        ("(terms.sum(1) / mask.sum(1)).mean()", "terms.sum(1).mean()"),
        "times the length",
    ),
]
