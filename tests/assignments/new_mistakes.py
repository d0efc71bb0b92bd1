"""Plausible mistakes that no assignment lists, 20 for each: what a student would write, as edits of right solutions.

Each was written before the relation that names it: of assignments 1 and 4 ten before the first relations and ten more
before the further ones, of the others all 20 before anything was measured on them.
What each gets was added after that.
"""

from __future__ import annotations

from typing import NamedTuple


class New(NamedTuple):
    """``question``: counted from 0. ``texts``: pairs for ``edits.edit``. ``why``: what the student thought.

    ``said``: the name of the relation, or the sentence's own words, that the student reads about one part at least,
    whatever the seed; ``KNOWN`` if it is called by the name of a known mistake that it is; None if nothing, or not always.
    """

    assignment: str
    question: int
    base: str
    why: str
    texts: tuple[str, ...]
    said: str | None = None
    often_known: bool = False  # with some seeds it is like a known mistake


MDPS, TD, DQN, GRADIENTS = "01_mdps", "02_td", "03_dqn", "04_policy_gradients"
KNOWN = "KNOWN"
TRUST, GRPO = "05_trpo_ppo", "06_grpo"

NEW_MISTAKES = [
    # ------------------------------------------------------------------------------------------------ assignment 1
    New(MDPS, 0, "discounted_returns_plain", "costs instead of rewards", ("returns[t] = G", "returns[t] = -G"), "opposite"),
    New(MDPS, 0, "discounted_returns_plain", "rounded for printing", ("return returns", "return returns.round(2)"), "rounded"),
    New(MDPS, 0, "discounted_returns_plain", "a column, as for a network", ("return returns", "return returns[:, None]"), "axis of length 1"),
    New(MDPS, 0, "discounted_returns_plain", "the final value stands in the result",
        ("return returns", "return np.append(returns, final_value)"), "one more at the end"),
    New(MDPS, 0, "discounted_returns_plain", "one step too few", ("reversed(range(len(rewards)))", "reversed(range(len(rewards) - 1))")),
    New(MDPS, 1, "build_maze_plain", "one matrix for each action",
        ("return P, R, terminal", "return P.swapaxes(0, 1), R.swapaxes(0, 1), terminal"), "axes"),
    New(MDPS, 2, "q_from_values_plain", "a row for each action", ("return q_values", "return q_values.T"), "axes"),
    New(MDPS, 3, "evaluate_policy_plain", "the discount of two steps", ("gamma * P", "gamma**2 * P"), "if `gamma` is squared"),
    New(MDPS, 4, "value_iteration_plain", "the table of zeros counts as a sweep", ("0, np.inf", "1, np.inf"), "one too large"),
    New(MDPS, 5, "policy_iteration_plain", "the history starts with the table of zeros", ("dtype=int), []", "dtype=int), [np.zeros(S)]"), "one more at the start"),
    New(MDPS, 0, "discounted_returns_plain", "a sign slips", ("rewards[t] + gamma", "rewards[t] - gamma"), "if `gamma` has the opposite sign"),
    New(MDPS, 0, "discounted_returns_plain", "the power inside the recursion", ("gamma * G", "gamma**t * G"), "only the last"),
    New(MDPS, 1, "build_maze_plain", "prizes of 1", ('{"G": 10, "T": -10}', '{"G": 1, "T": -1}'), "factor"),
    New(MDPS, 1, "build_maze_plain", "slip is the chance that the move works",
        ("(a, 1 - slip), (sides[a][0], slip / 2), (sides[a][1], slip / 2)",
         "(a, slip), (sides[a][0], (1 - slip) / 2), (sides[a][1], (1 - slip) / 2)"), "if `slip` is replaced by 1 - `slip`"),
    New(MDPS, 1, "build_maze_plain", "x before y", ("[(-1, 0), (1, 0), (0, -1), (0, 1)]", "[(0, -1), (0, 1), (-1, 0), (1, 0)]"), "permuted"),
    New(MDPS, 2, "q_from_values_plain", "the mask the wrong way round", ("np.where(terminal, 0, values)", "np.where(terminal, values, 0)"), "if `gamma` is 0"),
    New(MDPS, 3, "evaluate_policy_plain", "no discount", ("gamma * P", "P"), "if `gamma` is 1"),
    New(MDPS, 4, "value_iteration_plain", "the cheapest action", ("q_values.max(axis=1)", "q_values.min(axis=1)"), "smallest for largest"),
    New(MDPS, 4, "value_iteration_plain", "the mean change, not the largest", ("np.abs(new - values).max()", "np.abs(new - values).mean()"), often_known=True),
    New(MDPS, 5, "policy_iteration_plain", "the last values in place of the history", ("np.array(history)", "history[-1]"), "last alone"),
    # ------------------------------------------------------------------------------------------------ assignment 2
    New(TD, 0, "first_visit_values_plain", "the sum, not the mean", ("total / np.maximum(counts, 1)", "total"), "whole multiples"),
    New(TD, 0, "first_visit_values_plain", "zero by zero where nobody came",
        ("total / np.maximum(counts, 1)", "np.where(counts > 0, total / np.maximum(counts, 1), np.nan)"), "not finite"),
    New(TD, 0, "first_visit_values_plain", "no discount", ("gamma * g", "g"), "if `gamma` is 1"),
    New(TD, 0, "first_visit_values_plain", "the two results in the other order",
        ("return total / np.maximum(counts, 1), counts", "return counts, total / np.maximum(counts, 1)"), "results in another order"),
    New(TD, 1, "td_zero_plain", "no step size", ("+= alpha * (", "+= ("), "if `alpha` is 1"),
    New(TD, 1, "td_zero_plain", "no discount", ("gamma * (1", "(1"), "if `gamma` is 1"),
    New(TD, 1, "td_zero_plain", "the value of the same state", ("v[next_states[t]]", "v[states[t]]"), "if `states` stands in the place of `next_states`"),
    New(TD, 1, "td_zero_plain", "the reward is discounted",
        ("rewards[t] + gamma * (1 - terminated[t]) * v[next_states[t]]", "gamma * (rewards[t] + (1 - terminated[t]) * v[next_states[t]])"), "if `rewards` is multiplied by `gamma`"),
    New(TD, 2, "n_step_targets_plain", "the value after the first step", ("next_values[k]", "next_values[t]"), "only the last"),
    New(TD, 2, "n_step_targets_plain", "a truncation does not end the sum", ("terminated[k] or truncated[k]", "terminated[k]"), "if `truncated` is set nowhere"),
    New(TD, 2, "n_step_targets_plain", "a mean over the steps", ("return targets", "return targets / n"), "The result is the right one divided by `n`"),
    New(TD, 2, "n_step_targets_plain", "the mask the wrong way round", ("if not terminated[k]", "if terminated[k]"), "if `terminated` is turned around"),
    New(TD, 3, "epsilon_greedy_action_plain", "the value, not the action",
        ("int(rng.choice(np.flatnonzero(action_values == action_values.max())))", "action_values.max()")),
    New(TD, 3, "epsilon_greedy_action_plain", "the last of the best actions",
        ("rng.choice(np.flatnonzero(action_values == action_values.max()))", "np.flatnonzero(action_values == action_values.max())[-1]")),
    New(TD, 3, "epsilon_greedy_action_plain", "the last action is never explored",
        ("rng.integers(len(action_values))", "rng.integers(len(action_values) - 1)")),
    New(TD, 4, "control_targets_plain", "no discount", ("gamma * (1", "(1"), "if `gamma` is 1"),
    New(TD, 4, "control_targets_plain", "the cheapest action", ("after = rows.max(axis=1)", "after = rows.min(axis=1)"), "smallest for largest"),
    New(TD, 4, "control_targets_plain", "the two shares exchanged",
        ("(1 - epsilon) * rows.max(axis=1) + epsilon *", "epsilon * rows.max(axis=1) + (1 - epsilon) *"), "if `epsilon` is replaced by 1 - `epsilon`"),
    New(TD, 5, "q_learning_agent_plain", "no discount", ("gamma * (not", "(not"), "if `gamma` is 1"),
    New(TD, 5, "q_learning_agent_plain", "values of states come back", ("return q,", "return q.max(axis=1),"), "axis of length 1"),
    # ------------------------------------------------------------------------------------------------ assignment 3
    New(DQN, 0, "ReplayMemory_plain", "the columns in another order",
        ("np.array(next_observation), terminated))", "terminated, np.array(next_observation)))",
         "(np.float32, np.int64, np.float32, np.float32, bool)", "(np.float32, np.int64, np.float32, bool, np.float32)"), "permuted"),
    New(DQN, 0, "ReplayMemory_plain", "one too many is kept", ("[-self.capacity :]", "[-self.capacity - 1 :]"), "if `capacity` is larger by one"),
    New(DQN, 0, "ReplayMemory_plain", "every column is a table",
        ("np.array(column, dtype=kind)", "np.array(column, dtype=kind).reshape(batch_size, -1)")),
    New(DQN, 0, "ReplayMemory_plain", "the newest ones are used",
        ("[self.rows[i] for i in self.rng.integers(len(self.rows), size=batch_size)]", "self.rows[-batch_size:]")),
    New(DQN, 1, "dqn_targets_plain", "no discount", ("gamma * (1", "(1"), "if `gamma` is 1"),
    New(DQN, 1, "dqn_targets_plain", "the other flag", ("terminated.float()", "truncated.float()"), "if `truncated` stands in the place of `terminated`"),
    New(DQN, 1, "dqn_targets_plain", "the cheapest action", ("max(1)", "min(1)"), "smallest for largest"),
    New(DQN, 1, "dqn_targets_plain", "no reward", ("rewards + gamma", "gamma"), "The result is the right one minus `rewards`"),
    New(DQN, 2, "double_dqn_targets_plain", "no discount", ("gamma * (1", "(1"), "if `gamma` is 1"),
    New(DQN, 2, "double_dqn_targets_plain", "the mask the wrong way round", ("(1 - terminated.float())", "terminated.float()"), "if `terminated` is turned around"),
    New(DQN, 2, "double_dqn_targets_plain", "a column and a row", (".squeeze(1)", ""), "square"),
    New(DQN, 3, "dqn_loss_plain", "one loss for each transition", (".mean()", "", "delta=kappa)", 'delta=kappa, reduction="none")'), "mean missing"),
    New(DQN, 3, "dqn_loss_plain", "no one half without kappa", ("0.5 * ((", "(("), KNOWN),
    New(DQN, 3, "dqn_loss_plain", "kappa is not used", ("if kappa is None", "if True"), "if `kappa` is always `None`"),
    New(DQN, 3, "dqn_loss_plain", "the absolute error",
        ("((targets.detach() - chosen) ** 2).mean()", "(targets.detach() - chosen).abs().mean()"), "factor in each row"),
    New(DQN, 4, "move_target_plain", "the remainder is 1", ("% interval == 0", "% interval == 1")),
    New(DQN, 4, "move_target_plain", "the old target is dropped", ("(1 - tau) * ours + tau * theirs", "tau * theirs")),
    New(DQN, 5, "train_dqn_plain", "the sum goes on over episodes", ("x, total = env.reset(), 0.0", "x = env.reset()"), "running sum"),
    New(DQN, 5, "train_dqn_plain", "no discount", ("gamma * (1", "(1"), "if `gamma` is 1"),
    New(DQN, 5, "train_dqn_plain", "the mean of the returns", ("return returns", "return sum(returns) / max(len(returns), 1)"), "a mean too many"),
    # ------------------------------------------------------------------------------------------------ assignment 4
    New(GRADIENTS, 0, "categorical_log_prob_rows", "the loss instead of the log-probability", ("return log_probs", "return -log_probs"), "opposite"),
    New(GRADIENTS, 0, "categorical_log_prob_rows", "gathered, not squeezed", ("actions]", "actions][:, None]"), "axis of length 1"),
    New(GRADIENTS, 1, "gaussian_log_prob_formula", "the constant with the wrong sign", ("- 0.5 * math", "+ 0.5 * math"), "constant added"),
    New(GRADIENTS, 1, "gaussian_log_prob_formula", "another map to positive numbers",
        ("log_std.exp()", "torch.nn.functional.softplus(log_std)")),
    New(GRADIENTS, 2, "rewards_to_go_backwards", "a baseline already here", ("return result", "return result - result.mean()"), "constant added"),
    New(GRADIENTS, 3, "policy_loss_detached", "one half as in the critic's loss", ("return -(", "return -0.5 * ("), "half"),
    New(GRADIENTS, 3, "policy_loss_detached", "only good actions are learned from", ("(returns - values)", "(returns - values).clamp(min=0)")),
    New(GRADIENTS, 4, "generalized_advantages_backwards", "one row for each copy",
        ("return advantages, advantages + values", "return advantages.T, (advantages + values).T"), "axes"),
    New(GRADIENTS, 4, "generalized_advantages_backwards", "divided by their deviation here, not in the update",
        ("return advantages,", "return advantages / advantages.std(),"), "factor"),
    New(GRADIENTS, 5, "actor_critic_update_add_at", "the critic goes uphill", ("critic_rate *", "-critic_rate *"), "if `critic_rate` has the opposite sign"),
    New(GRADIENTS, 0, "categorical_log_prob_rows", "actions count from 1", ("actions]", "actions - 1]")),
    New(GRADIENTS, 0, "categorical_log_prob_rows", "one number for the batch", ("actions]", "actions].mean()"), "a mean too many"),
    New(GRADIENTS, 1, "gaussian_log_prob_formula", "a two is lost", ("2 * math.pi", "math.pi"), "constant added"),
    New(GRADIENTS, 2, "rewards_to_go_backwards", "the last reward is masked too",
        ("rewards[t] + gamma * running * (not ends)", "(rewards[t] + gamma * running) * (not ends)")),
    New(GRADIENTS, 2, "rewards_to_go_backwards", "a mean over what is left",
        ("result[t] = running", "result[t] = running / (len(rewards) - t)"), "whole fractions"),
    New(GRADIENTS, 3, "policy_loss_detached", "no mean", (".mean()", ""), "mean missing"),
    New(GRADIENTS, 3, "policy_loss_detached", "the mean return as a baseline", ("- values", "- returns.mean()")),
    New(GRADIENTS, 4, "generalized_advantages_backwards", "the other flag", ("next_values * ~terminated", "next_values * ~truncated"), "if `terminated` and `truncated` change places"),
    New(GRADIENTS, 4, "generalized_advantages_backwards", "the two results in the other order",
        ("return advantages, advantages + values", "return advantages + values, advantages"), "results in another order"),
    New(GRADIENTS, 5, "actor_critic_update_add_at", "one step size for both", ("critic_rate *", "actor_rate *"), "if `actor_rate` stands in the place of `critic_rate`"),
    # ------------------------------------------------------------------------------------------------ assignment 5
    New(TRUST, 0, "kl_and_entropy_where", "a penalty is negative", ("return kl.mean()", "return -kl.mean()"), "opposite"),
    New(TRUST, 0, "kl_and_entropy_where", "the two results in the other order",
        ("return kl.mean(), entropy.mean()", "return entropy.mean(), kl.mean()"), "another result"),
    New(TRUST, 0, "kl_and_entropy_where", "the largest divergence", ("kl.mean()", "kl.max()")),
    New(TRUST, 0, "kl_and_entropy_where", "one number for each state", ("return kl.mean(), entropy.mean()", "return kl, entropy"), "mean missing"),
    New(TRUST, 1, "conjugate_gradient_loop", "the start is b", ("torch.zeros_like(b)", "b.clone()"), "The result is the right one plus `b`"),
    New(TRUST, 1, "conjugate_gradient_loop", "the residual comes back", ("return x", "return r")),
    New(TRUST, 1, "conjugate_gradient_loop", "one iteration more", ("k < iterations", "k <= iterations"), "if `iterations` is larger by one"),
    New(TRUST, 1, "conjugate_gradient_loop", "a sign slips", ("new + new.dot(new)", "new - new.dot(new)")),
    New(TRUST, 2, "fisher_vector_product_double", "a sign slips", ("+ damping", "- damping"), "if `damping` has the opposite sign"),
    New(TRUST, 2, "fisher_vector_product_double", "the gradient comes back",
        ("torch.cat([g.reshape(-1) for g in second])", "flat.detach()"), KNOWN),
    New(TRUST, 2, "fisher_vector_product_double", "shaped like the parameters",
        ("torch.cat([g.reshape(-1) for g in second]) + damping * vector", "second"), "joined"),
    New(TRUST, 3, "trust_region_step_loop", "the two on the wrong side", ("2 * delta", "delta / 2"), "half"),
    New(TRUST, 3, "trust_region_step_loop", "tries are counted, not backtracks", ("return step, j", "return step, j + 1"), "one too large"),
    New(TRUST, 3, "trust_region_step_loop", "factor is what is taken off", ("factor * step", "(1 - factor) * step"), "if `factor` is replaced by 1 - `factor`"),
    New(TRUST, 4, "clip_loss_minimum", "how many are clipped", (".float().mean()", ".float().sum()"), "times the length"),
    New(TRUST, 4, "clip_loss_minimum", "a sign slips", ("ratio - 1 - (log", "ratio - 1 + (log")),
    New(TRUST, 4, "clip_loss_minimum", "clipped around 0", ("ratio.clamp(1 - epsilon, 1 + epsilon)", "ratio.clamp(-epsilon, epsilon)")),
    New(TRUST, 4, "clip_loss_minimum", "normalized advantages",
        ("advantages.detach()\n", "((advantages - advantages.mean()) / (advantages.std() + 1e-8)).detach()\n"), "if `advantages` is normalized"),
    New(TRUST, 5, "ppo_update_split", "no bonus for entropy", (' - config["entropy_coefficient"] * entropy', ""), "if `entropy_coefficient` is 0"),
    New(TRUST, 5, "ppo_update_split", "no weight of the value loss", ('config["value_coefficient"] * error', "error"), "if `value_coefficient` is 1"),
    # ------------------------------------------------------------------------------------------------ assignment 6
    New(GRPO, 0, "pairwise_loss_by_logaddexp", "one loss for each pair", (".mean()", ""), "mean missing"),
    New(GRPO, 0, "pairwise_loss_by_logaddexp", "a hinge", ("np.logaddexp(0, -margin).mean()", "np.maximum(0, 1 - margin).mean()")),
    New(GRPO, 0, "pairwise_loss_by_logaddexp", "divided by the number of scores", (" / len(margin)", " / (2 * len(margin))"), "half"),
    New(GRPO, 0, "pairwise_loss_by_logaddexp", "only the chosen answer is moved", ("-surprise, surprise", "-surprise, 0 * surprise"), "zero"),
    New(GRPO, 1, "completion_log_probs_by_gather", "the loss instead of the log-probability", ("return found", "return -found"), "opposite"),
    New(GRPO, 1, "completion_log_probs_by_gather", "the mask says what is masked", ("0.0), mask", "0.0), ~mask"), "truth turned around"),
    New(GRPO, 1, "completion_log_probs_by_gather", "impossible where nothing was written", ("(~mask, 0.0)", "(~mask, -torch.inf)"), "not finite"),
    New(GRPO, 1, "completion_log_probs_by_gather", "one number for each completion", ("(~mask, 0.0)", "(~mask, 0.0).sum(1)"), "a sum too many"),
    New(GRPO, 2, "kl_and_rewards_by_index", "no beta", ("beta * d", "d.copy()"), "if `beta` is 1"),
    New(GRPO, 2, "kl_and_rewards_by_index", "beta in front of the score", ("+= scores", "+= beta * scores"), "if `scores` is multiplied by `beta`"),
    New(GRPO, 2, "kl_and_rewards_by_index", "the divergence of each completion", ("np.expm1(d) - d", "(np.expm1(d) - d).sum(1)"), "a sum too many"),
    New(GRPO, 2, "kl_and_rewards_by_index", "the score one token too early", ("mask.sum(1) - 1", "mask.sum(1) - 2")),
    New(GRPO, 3, "group_advantages_by_others", "the others minus the answer", ("rewards - others", "others - rewards"), "opposite"),
    New(GRPO, 3, "group_advantages_by_others", "the mean is not subtracted", ("(rewards - rewards.mean(1, keepdim=True)) /", "rewards /"), "constant in each row"),
    New(GRPO, 3, "group_advantages_by_others", "the median", ("rewards.mean(1, keepdim=True)", "rewards.median(1, keepdim=True).values"), "constant in each row"),
    New(GRPO, 3, "group_advantages_by_others", "the argument is not used", ('if scale == "std"', "if True"), "if `scale` is always `'std'`"),
    New(GRPO, 4, "grpo_loss_by_terms", "the sum over an answer", ("(terms.sum(1) / mask.sum(1)).mean()", "terms.sum(1).mean()"), "times the length"),
    New(GRPO, 4, "grpo_loss_by_terms", "no beta", ("beta * (torch", "(torch"), "if `beta` is 1"),
    New(GRPO, 4, "grpo_loss_by_terms", "the two widths exchanged", ("1 - clip[0], 1 + clip[1]", "1 - clip[1], 1 + clip[0]"), "if the two numbers of `clip` change places"),
    New(GRPO, 5, "train_grpo_table_in_steps", "the path without its start", ("path = [z.clone()]", "path = []")),
]  # fmt: skip
