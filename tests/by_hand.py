"""Plain torch for tests that redo one update of a trainer number by number: no formula of the library is in it."""

import gymnasium
import torch


def short_poles():
    """CartPole, cut after 12 steps: some episodes end before, some are truncated."""
    return gymnasium.make("CartPole-v1", max_episode_steps=12)


def weights_of(state):
    """Name to tensor, as leaves of a graph of their own."""
    return {name: weight.detach().clone().requires_grad_() for name, weight in state.items()}


def mlp(w, name, x):
    """One hidden layer of ReLU, or none."""
    if f"{name}.2.weight" not in w:
        return x @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"]
    hidden = (x @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"]).clamp(min=0)
    return hidden @ w[f"{name}.2.weight"].T + w[f"{name}.2.bias"]


def log_pi(w, x, name="policy.network"):
    """All log-probabilities, (n, A)."""
    z = mlp(w, name, x)
    return z - z.exp().sum(1, keepdim=True).log()


def advantages_by_hand(rollout, values, next_values, gamma, lam):
    """Generalized advantages, (T, N), from the sum of the errors of each episode; values (T, N)."""
    advantages = torch.zeros(rollout.steps, rollout.copies, dtype=torch.float64)
    for n in range(rollout.copies):
        for t in range(rollout.steps):
            for k in range(t, rollout.steps):
                ends = bool(rollout.terminated[k, n])
                error = rollout.rewards[k, n] + gamma * (0 if ends else next_values[k, n].item()) - values[k, n].item()
                advantages[t, n] += (gamma * lam) ** (k - t) * error
                if ends or rollout.truncated[k, n]:
                    break
    return advantages


class PlainAdam:
    """Kingma & Ba (2015), algorithm 1, on a dict of weights; ``rate`` is a number, or one by name."""

    def __init__(self, weights, rate, eps):
        self.weights, self.rate, self.eps, self.t = weights, rate, eps, 0
        self.m, self.v = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))

    def step(self, loss, max_norm=None):
        gradients = dict(zip(self.weights, torch.autograd.grad(loss, list(self.weights.values()), allow_unused=True)))
        norm = sum((g**2).sum() for g in gradients.values() if g is not None) ** 0.5
        self.t += 1
        for name, g in gradients.items():
            if g is not None:
                g = g * min(1.0, max_norm / norm) if max_norm else g
                self.m[name] = 0.9 * self.m[name] + 0.1 * g
                self.v[name] = 0.999 * self.v[name] + 0.001 * g**2
                size = (self.v[name] / (1 - 0.999**self.t)).sqrt() + self.eps
                rate = self.rate[name] if isinstance(self.rate, dict) else self.rate
                self.weights[name].data -= rate * self.m[name] / (1 - 0.9**self.t) / size


def assert_same_weights(mine, theirs, before, rtol=1e-5, atol=1e-6):
    """The weights of both, and that they moved."""
    for name, weight in mine.items():
        torch.testing.assert_close(weight.detach(), theirs[name], rtol=rtol, atol=atol, msg=lambda m: f"{name}: {m}")
    assert any((mine[name] - before[name]).abs().max() > 1e-3 for name in mine)
