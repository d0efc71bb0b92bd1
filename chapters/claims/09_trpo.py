from copy import deepcopy

import numpy as np
import torch
from claims import cells
from record_runs import load
from torch.autograd import grad
from torch.nn.utils import parameters_to_vector

from rlbook_lib import trpo
from rlbook_lib.environments import vectorize


def _shares(seed):
    """The step's gain as a share of the largest along the gradient, its divergence, and the other's."""
    page = cells("09_trpo", "tr9-film-tools")
    policy, batch, adv = page["prepare"](seed)
    log_prob = policy.log_prob_of(policy(batch.observations), batch.actions)
    g = parameters_to_vector(grad((log_prob * adv).mean(), list(policy.parameters())))
    tried = [page["moved"](policy, batch, adv, s * g / g.norm())[1:] for s in np.geomspace(0.05, 3.2, 25)]
    peak, divergence = max(tried)
    config = trpo.TRPOConfig(delta=0.05, delta_end=0.05)
    metrics = trpo.trpo_step(policy, batch.observations, batch.actions, adv, config)
    return metrics["gain"] / peak, metrics["kl"], divergence


def the_region_keeps_most_of_the_gain_at_a_fraction_of_the_divergence(seed):
    """The step that stays near promises about half of what the peak does, in the median, within 0.05 nats"""
    share, near, far = np.median([_shares(100 * seed + k) for k in range(40)], axis=0)
    return 0.4 < share < 0.7 and near <= 0.05 < far / 4


def the_truth_has_fallen_where_the_surrogate_peaks(seed):
    """along the plain gradient only by little; at the surrogate's peak it has fallen below where it began. The step that stays near gains much more"""
    runs = [load("trpo_one_step").run(100 * seed + k, 2) for k in range(10)]
    curves = np.array([run["return"] for run in runs])
    before = np.median([run["old return"] for run in runs])
    peak = np.median([curve[np.argmax(run["gain"])] for run, curve in zip(runs, curves)])
    most = np.median(curves, axis=0).max() - before  # along the plain gradient
    return peak < before and 0 < most < (np.median([run["natural"][2] for run in runs]) - before) / 2


def ten_products_point_well_enough(seed):
    """Without rounding, $n$ products are enough for $n$ parameters; ten usually point well enough."""
    policy, batch, adv = cells("09_trpo", "tr9-film-tools")["prepare"](seed)
    theta, log_probs = list(policy.parameters()), policy(batch.observations)
    g = parameters_to_vector(
        grad((policy.log_prob_of(log_probs, batch.actions) * adv).mean(), theta, retain_graph=True)
    )
    slope = parameters_to_vector(grad(policy.kl_of(log_probs.detach(), log_probs).mean(), theta, create_graph=True))
    product = lambda v: parameters_to_vector(grad(slope @ v, theta, retain_graph=True)) + 0.05 * v
    best = g @ torch.linalg.solve(torch.stack([product(v) for v in torch.eye(len(g))]), g)
    y = trpo.conjugate_gradient(product, g, 10)
    return float(g @ y / (y @ product(y) * best).sqrt()) > 0.98  # of the largest gain at one divergence


def one_push_for_all_states_is_dear(seed):
    """a unit of the first direction costs 4 to 14 times as much as one of the second"""
    policy, batch, adv = cells("09_trpo", "tr9-film-tools")["prepare"](seed)
    out, theta = policy(batch.observations), list(policy.parameters())
    slope = lambda number, **keep: parameters_to_vector(grad(number, theta, retain_graph=True, **keep))
    gradient = slope((policy.log_prob_of(out, batch.actions) * adv).mean())
    push = slope((out[:, 0] - out[:, 1]).mean())
    rest = gradient - (gradient @ push) / (push @ push) * push
    bend = slope(policy.kl_of(out.detach(), out).mean(), create_graph=True)
    first, second = (float(v @ slope(bend @ v) / (v @ v)) for v in (push, rest))
    return first > 3 * second


def _pair(seed):
    """A policy, a batch, and it after steps of one divergence: along the gradient, and within the region."""
    page = cells("09_trpo", "tr9-film-tools")
    policy, batch, adv = page["prepare"](seed)
    out = policy(batch.observations)
    g = parameters_to_vector(grad((policy.log_prob_of(out, batch.actions) * adv).mean(), list(policy.parameters())))
    near, low, high = deepcopy(policy), 0.0, 20.0
    config = trpo.TRPOConfig(delta=0.05, delta_end=0.05)
    kl = trpo.trpo_step(near, batch.observations, batch.actions, adv, config)["kl"]
    for _ in range(20):
        middle = (low + high) / 2
        inside = page["moved"](policy, batch, adv, middle * g / g.norm())[2] <= kl
        low, high = (middle, high) if inside else (low, middle)
    return policy, batch.observations, page["moved"](policy, batch, adv, low * g / g.norm())[0], near


def the_plain_direction_is_one_push_for_all_states(seed):
    """It makes one push likelier in nearly *every* state"""
    shares = []
    for k in range(20):
        policy, seen, *steps = _pair(100 * seed + k)
        right = [float((new(seen) > policy(seen))[:, 1].float().mean()) for new in steps]
        shares.append([max(share, 1 - share) for share in right])
    plain, near = np.median(shares, axis=0)
    return plain > 0.95 and near < 0.85


def the_plain_direction_moves_the_states_to_one_side(seed):
    """At this stage more poles then end on one side: the new policy is in other states than the batch"""
    page, sides = cells("09_trpo", "tr9-film-tools"), []
    for k in range(20):
        policy, _, *steps = _pair(100 * seed + k)
        for actor in (policy, *steps):
            seen, ends = page["episodes_of"](actor, seed=seed, copies=100)
            left = (seen[ends.clip(max=len(seen) - 1), np.arange(100), 1] < 0).mean()
            sides.append(max(left, 1 - left))
    before, plain, near = np.median(np.reshape(sides, (20, 3)), axis=0)
    return plain > 0.75 and plain > max(before, near) + 0.05


def the_curvature_is_largest_along_one_push(seed):
    """$F$ is largest along one push for all states, and $F^{-1}$ divides by that."""
    policy, batch, _ = cells("09_trpo", "tr9-film-tools")["prepare"](seed)
    out, theta = policy(batch.observations[::16]), list(policy.parameters())
    slopes = [parameters_to_vector(grad(row[1] - row[0], theta, retain_graph=True)) for row in out]
    slopes, chances = torch.stack(slopes), out.detach().exp()
    fisher = (slopes * chances.prod(1, keepdim=True)).T @ slopes / len(slopes)
    moves = slopes @ torch.linalg.eigh(fisher)[1][:, -1]  # of the logits, in each state, along the largest
    return moves.mean() ** 2 > 0.75 * (moves**2).mean()


def _solved_after(seed, products):
    """Updates until the last 20 episodes of training last 475 steps in the mean; 41 if 40 are too few. The largest KL."""
    config = trpo.TRPOConfig(total_steps=40 * 2048, delta=0.05, delta_end=0.05, cg_iterations=products)
    world, lengths, far = vectorize("CartPole-v1", config.copies, seed=seed), [], 0.0
    ended = world.pop_episodes

    def counted():
        returns, over = ended()
        lengths.extend(over)
        return returns, over

    world.pop_episodes = counted
    for update in trpo.iterate_trpo(world, config, seed=seed):
        far = max(far, update.metrics["kl"])
        if len(lengths) >= 20 and np.mean(lengths[-20:]) >= 475:
            return update.update, far
    return 41, far


def the_plain_direction_needs_about_twice_as_many_updates(seed):
    """The plain direction climbs, too, but it needs about twice as many or more"""
    (natural, far), (plain, farther) = _solved_after(seed, 10), _solved_after(seed, 1)
    return plain > 1.7 * natural and max(far, farther) <= 0.05
