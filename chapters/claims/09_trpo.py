import numpy as np
from claims import cells
from torch.autograd import grad
from torch.nn.utils import parameters_to_vector

from rlbook_lib import trpo


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
    """The trust-region step (dashed green) gets more than half of that gain, in the median, within 0.05 nats"""
    share, near, far = np.median([_shares(100 * seed + k) for k in range(40)], axis=0)
    return share > 0.5 and near <= 0.05 < far / 4
