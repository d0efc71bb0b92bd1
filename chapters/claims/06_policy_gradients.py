import numpy as np
from claims import cells

from rlbook_lib.dynamic_programming import value_iteration
from rlbook_lib.gradient_estimators import trajectory_gradient
from rlbook_lib.mdp import MDP

PAGE = "06_policy_gradients"


def a_gift_misleads_runs(seed):
    """**The gift misleads many runs: after 50 updates a quarter stand below 0.1, after 300 a fifth, without it none."""
    bandit = cells(PAGE, "pg-logtrick-code", "pg-bandit")["bandit"]
    gift, none = (np.mean(bandit(pays, seed=seed) < 0.1, axis=0) for pays in ((5.0, 4.0), (1.0, 0.0)))
    return 0.22 < gift[50] < 0.29 and 0.17 < gift[299] < 0.25 and none.max() < 0.01


def they_come_and_go(seed):
    """half of the runs are below 0.1 at some time, and after 1,000 updates one in six is."""
    below = cells(PAGE, "pg-logtrick-code", "pg-bandit")["bandit"]((5.0, 4.0), seed=seed, updates=1000) < 0.1
    return 0.46 < np.mean(below.any(axis=1)) < 0.56 and 0.14 < np.mean(below[:, -1]) < 0.2


def small_steps_are_misled_less(seed):
    """With a rate of 0.05 in place of 0.2 only 3 % stand there after 300 updates."""
    bandit = cells(PAGE, "pg-logtrick-code", "pg-bandit")["bandit"]
    return 0.015 < np.mean(bandit((5.0, 4.0), alpha=0.05, seed=seed)[:, -1] < 0.1) < 0.055


def a_running_mean_mends_it(seed):
    """Subtract a running mean, and it is as good as without the gift."""
    bandit = cells(PAGE, "pg-logtrick-code", "pg-bandit")["bandit"]
    plain, mended = bandit((1.0, 0.0), seed=seed), bandit((5.0, 4.0), baseline=True, seed=seed)
    return abs(plain[:, 100].mean() - mended[:, 100].mean()) < 0.03 and np.mean(mended[:, -1] < 0.1) < 0.01


def more_doses_miss_by_less(seed):
    """**The mean aims at the truth, and its miss shrinks as $1/\\sqrt N$: a hundred times the doses for a tenth of the miss.**"""
    page = cells(PAGE, "pg-pull-numbers")
    noise, truth = np.random.default_rng(seed).standard_normal((200, 1000)), page["expected"](0.5, page["SIGMA"])[1]
    few, some, many = (
        np.abs(page["pulls_at"](0.5, noise[:, :n])[1].mean(axis=1) - truth).mean() for n in (10, 100, 1000)
    )
    return few > some > many and 1 / 13 < many / few < 1 / 7.5


def a_coin_tosser_learns_to_balance(seed):
    """**Each episode pulls the knob toward what it did, long ones mostly harder than short ones, and the coin-tosser learns to balance**"""
    walk = cells(PAGE, "pg-pull-numbers", "pg-pull-explore", "pg-pole-explore")["pole_walk"](seed)
    hard = np.array(
        [np.abs(pull)[np.argsort(stood)] for _, stood, pull in walk]
    )  # (steps, episodes), the shortest first
    harder = hard[:, 8:].mean(axis=1) > hard[:, :8].mean(axis=1)
    return harder.mean() > 0.75 and walk[-1][1].mean() > 4 * walk[0][1].mean()


def where_the_walk_ends(seed):
    """With other random numbers the walk mostly ends between $k = 3$ and $9$."""
    walk = cells(PAGE, "pg-pull-numbers", "pg-pull-explore", "pg-pole-explore")["pole_walk"]
    return np.mean([3 < walk(100 * seed + k)[-1][0] < 9 for k in range(10)]) > 0.6


def _variances(seed, common):
    """Whole return, reward-to-go, and that minus V, on cures with pays and policies drawn by lot: (40, 3)."""
    cure, rng, found = cells(PAGE, "pg-worlds-code")["cure"], np.random.default_rng(seed), []
    for _ in range(40):
        logits, pays = rng.normal(size=(6, 2)), (rng.normal(size=(6, 2)) + common) * ~cure.terminal[:, None]
        world = MDP(cure.transitions, pays, 0.9, cure.terminal, cure.start)
        kinds = ("return", "none"), ("reward_to_go", "none"), ("reward_to_go", "value")
        found.append([trajectory_gradient(world, logits, 3, kind, baseline=b).variance for kind, b in kinds])
    return np.array(found)


def the_past_is_usually_noise(seed):
    """Same mean, usually less noise."""
    whole, to_go, _ = _variances(seed, 0).T
    return np.mean(to_go < whole) > 0.75


def v_helps_where_returns_share_a_part(seed):
    """$V^\\pi$ helps greatly when all returns share a large common part; without one it may help or harm."""
    apart, shared = (less / to_go for _, to_go, less in (_variances(seed, common).T for common in (0, 3)))
    return 0.1 < np.mean(apart < 1) < 0.9 and np.median(shared) < 0.1 and (shared < 1).all()


def three_worse_draws_mislead(seed):
    """Whoever happens to draw it often at first makes it likelier, draws it again, and then hardly tries the other"""
    page = cells(PAGE, "pg-logtrick-code", "pg-bandit")
    worse, better = page["below_after"](page["bandit"]((5.0, 4.0), seed=seed))
    return worse > 2 * better


def a_wrong_baseline_brings_noise_and_no_bias(seed):
    """**As a baseline a wrong $V$ changes the variance, mostly for the worse, and never brings bias. Where it replaces rewards, it does.**"""
    page, rng, worse, bias = cells(PAGE, "pg-worlds-code"), np.random.default_rng(seed), [], []
    cure, theta = page["cure"], page["theta"]
    true = trajectory_gradient(cure, theta, 3, "reward_to_go", baseline="value")
    for _ in range(40):  # critics drawn by lot, in the range of the true values
        critic = rng.uniform(0, 5, 6) * ~cure.terminal
        base = trajectory_gradient(cure, theta, 3, "reward_to_go", values=critic, baseline="value")
        error = trajectory_gradient(cure, theta, 3, "td_error", values=critic)
        worse.append(base.variance > true.variance)
        bias.append([np.linalg.norm(found.mean - true.mean) for found in (base, error)])
    as_baseline, as_reward = np.array(bias).T
    return np.mean(worse) > 0.75 and as_baseline.max() < 1e-9 and as_reward.min() > 0.01


def a_blind_critic_misleads_at_first(seed):
    """**While the critic is blind, most actors learn the wrong thing about the ill; as the critic learns, they turn around.**"""
    page = cells(PAGE, "pg-logtrick-code", "pg-worlds-code", "pg-ac-cure")
    early = [list(page["actor_critic"](1000 * seed + k, courses=21))[-1][0] for k in range(40)]
    late = [list(page["actor_critic"](1000 * seed + k))[-1][0] for k in range(10)]
    at_first, at_last = (np.median([pi[1, page["STRONG"]] for pi in pis]) for pis in (early, late))
    reached = np.median([page["expected_return"](page["cure"], pi) for pi in late])
    return at_first < 0.48 and at_last > 0.95 and value_iteration(page["cure"]).values[0] - reached < 0.06
