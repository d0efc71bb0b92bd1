"""PPO with usual settings on CartPole, and what leaving out one detail did (chapter 10).

One program with a switch for each detail. A case changes one of them; "measures" also keeps what every second update measured.
"""

import numpy as np
import torch
from torch import nn

from rlbook_lib.environments import vectorize
from rlbook_lib.networks import mlp
from rlbook_lib.returns import gae

UPDATES, COPIES, STEPS, PASSES, PARTS = 40, 8, 128, 4, 4
METERS_AND_RADIANS = np.ones(4)
CENTIMETERS_AND_DEGREES = np.array([100.0, 100.0, 180 / np.pi, 180 / np.pi])

SEEDS = range(10)
CASES = {
    "all details": {"measures": True},
    "learning rate 1e-1 instead of 1e-3": {"rate": 0.1, "anneal": False, "measures": True},
    "rewards times 100, not scaled": {"reward": 100.0, "scale_rewards": False, "measures": True},
    "rewards not scaled": {"scale_rewards": False},
    "observations not scaled": {"scale_observations": False},
    "centimeters and degrees": {"centimeters": True},
    "centimeters and degrees, not scaled": {"centimeters": True, "scale_observations": False},
    "no orthogonal start": {"orthogonal": False},
    "policy's last layer not small": {"head": 1.0},
    "Adam's epsilon 1e-8": {"adam": 1e-8},
    "no annealing": {"anneal": False},
    "advantages not normalized": {"normalize": False},
    "gradients not shortened": {"shorten": None},
    "no entropy bonus": {"entropy": 0.0},
    "time limit taken for an end": {"time_limit_ends": True},
    "whole batch instead of parts": {"parts": 1},
    "log-probabilities computed anew": {"forget_old": True},
    "values clipped at 0.2": {"value_clip": 0.2},
}


class Scale:
    """Running mean and deviation of what was seen."""

    def __init__(self, size):
        self.n, self.mean, self.square = 1e-4, np.zeros(size), np.ones(size) * 1e-4

    def see(self, x):
        for row in x:
            self.n += 1
            change = row - self.mean
            self.mean = self.mean + change / self.n
            self.square = self.square + change * (row - self.mean)

    @property
    def std(self):
        return np.sqrt(self.square / self.n) + 1e-8


def network(outputs, gain, orthogonal, seed):
    net = mlp((4, 64, 64, outputs), activation="tanh", output_gain=gain, seed=seed)
    if not orthogonal:  # what nn.Linear draws by itself
        torch.manual_seed(seed)
        for layer in net:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
    return net


def run(
    seed,
    rate=1e-3,
    reward=1.0,
    scale_rewards=True,
    centimeters=False,
    scale_observations=True,
    orthogonal=True,
    head=0.01,
    adam=1e-5,
    anneal=True,
    normalize=True,
    shorten=0.5,
    entropy=0.01,
    time_limit_ends=False,
    parts=PARTS,
    forget_old=False,
    value_clip=None,
    measures=False,
    clip=0.2,
    gamma=0.99,
    lam=0.95,
):
    """The return of the policy as it acts (ten episodes) after every fourth update; with ``measures`` also what every second update measured."""
    env, rng = vectorize("CartPole-v1", COPIES, seed=seed), np.random.default_rng(seed)
    actor, critic = network(2, head, orthogonal, 2 * seed), network(1, 1.0, orthogonal, 2 * seed + 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, rate, eps=adam)
    units = CENTIMETERS_AND_DEGREES if centimeters else METERS_AND_RADIANS
    seen, sums, running = Scale(4), Scale(1), np.zeros(COPIES)

    def view(observations):
        x = observations * units
        x = np.clip((x - seen.mean) / seen.std, -10, 10) if scale_observations else x
        return torch.tensor(x, dtype=torch.float32)

    def score():
        test, draw, alive = (
            vectorize("CartPole-v1", 10, seed=1000),
            np.random.default_rng(1000),
            np.ones(10, dtype=bool),
        )
        test.reset()
        total = np.zeros(10)
        while alive.any():
            with torch.no_grad():
                right = actor(view(test.observations)).softmax(-1)[:, 1].numpy()
            step = test.step((draw.random(10) < right).astype(int))
            total += alive
            alive &= ~(step.terminated | step.truncated)
        return total.mean()

    env.reset()
    curves = {"return": []}
    for update in range(UPDATES):
        if anneal:
            optimizer.param_groups[0]["lr"] = rate * (1 - update / UPDATES)
        rows = []
        for _ in range(STEPS):
            if scale_observations:
                seen.see(env.observations * units)
            s = view(env.observations)
            with torch.no_grad():
                log_pi = actor(s).log_softmax(-1)
            a = (rng.random(COPIES) < log_pi[:, 1].exp().numpy()).astype(int)
            step = env.step(a)
            r = step.rewards * reward
            if scale_rewards:  # by the deviation of the discounted sums so far
                running = gamma * running + r
                sums.see(running[:, None])
                r = r / sums.std
                running = running * ~(step.terminated | step.truncated)
            end = step.terminated | (step.truncated & time_limit_ends)
            cut = step.truncated & (not time_limit_ends)
            rows.append(
                (
                    s,
                    torch.tensor(a),
                    log_pi,
                    torch.tensor(r, dtype=torch.float32),
                    torch.tensor(end),
                    torch.tensor(cut),
                    view(step.next_observations),
                )
            )
        s, a, log_all, r, end, cut, s2 = map(torch.stack, zip(*rows, strict=True))
        with torch.no_grad():
            v, v2 = critic(s)[..., 0], critic(s2)[..., 0]
        advantages, targets = gae(r, v, v2, end, cut, gamma, lam)
        explained = 1 - ((targets - v).var() / targets.var()).item()
        s, a, log_all, v, advantages, targets = (x.flatten(0, 1) for x in (s, a, log_all, v, advantages, targets))
        log_old, norms = log_all.gather(1, a[:, None])[:, 0], []
        for _ in range(PASSES):
            for rows in torch.from_numpy(rng.permutation(len(a))).chunk(parts):
                log_pi = actor(s[rows]).log_softmax(-1)
                log_prob = log_pi.gather(1, a[rows, None])[:, 0]
                rho = (log_prob - (log_prob.detach() if forget_old else log_old[rows])).exp()
                adv = advantages[rows]
                if normalize:
                    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                surrogate = torch.min(rho * adv, rho.clamp(1 - clip, 1 + clip) * adv).mean()
                values = critic(s[rows])[:, 0]
                error = (values - targets[rows]) ** 2
                if value_clip is not None:
                    near = v[rows] + (values - v[rows]).clamp(-value_clip, value_clip)
                    error = torch.max(error, (near - targets[rows]) ** 2)
                spread = -(log_pi.exp() * log_pi).sum(-1).mean()
                loss = -(surrogate - 0.5 * 0.5 * error.mean() + entropy * spread)
                optimizer.zero_grad()
                loss.backward()
                norms.append(
                    nn.utils.clip_grad_norm_(parameters, shorten if shorten is not None else float("inf")).item()
                )
                optimizer.step()
        if (update + 1) % 4 == 0:
            curves["return"].append(score())
        if measures and update % 2 == 1:
            with torch.no_grad():
                log_pi = actor(s).log_softmax(-1)
            ratio = (log_pi.gather(1, a[:, None])[:, 0] - log_old).exp()
            found = {
                "kl": (log_all.exp() * (log_all - log_pi)).sum(-1).mean().item(),
                "clip_fraction": ((ratio - 1).abs() > clip).float().mean().item(),
                "largest_ratio": ratio.max().item(),
                "entropy": -(log_pi.exp() * log_pi).sum(-1).mean().item(),
                "explained_variance": explained,
                "gradient_norm": float(np.mean(norms)),
            }
            for name, value in found.items():
                curves.setdefault(name, []).append(value)
    return curves
