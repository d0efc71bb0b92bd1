"""Small networks: policies, state values, action values (chapter 5 on).

Everything here is a multilayer perceptron: linear layers with tanh or ReLU between them. What a policy
network computes from observations, its *outputs*, describes the distributions of the actions:

- ``CategoricalPolicy``: log-probabilities, (n, A);
- ``GaussianPolicy``: means and logarithms of standard deviations side by side, (n, 2 d).

Log-probabilities, entropies and divergences are computed from outputs alone, so that outputs kept from an
earlier moment stand for the earlier policy.

Training needs gradients and runs in torch. Acting does not: on a CPU and with few copies of an environment,
the same few matrix products cost half as much in numpy. ``NumpyForward`` is that function; it reads the
very memory of the weights, so it is always current.

Weights start orthogonal, drawn from a generator of their own: nothing touches torch's global generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlbook_lib.checks import Array, Count, Floats, Numbers, Positive, Seed, Space, UnitInterval
from rlbook_lib.checks import check, checked, library_of

FloatArray: TypeAlias = NDArray[np.floating[Any]]

Activation: TypeAlias = Literal["tanh", "relu"]
# in place: same numbers, less memory to pass over; what the linear layer before it computed is lost
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": partial(nn.ReLU, inplace=True)}
LOG_TWO_PI = math.log(2 * math.pi)


# ---------------------------------------------------------------------- distributions of actions


@checked(arrays="either")
def softmax_log_probs(logits: Floats[Array, "... A"]) -> Array:
    """Logarithms of softmax probabilities: ``log pi(a | s) = z_a - log sum_b exp(z_b)``.

    Equation: eq-softmax-policy

    Source: Sutton & Barto (2018), equation 13.2.
    """
    if isinstance(logits, Tensor):
        return torch.log_softmax(logits, -1)
    z = logits - logits.max(-1, keepdims=True)  # subtracting the largest keeps exp from overflowing
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


@checked(arrays="either")
def gaussian_log_prob(
    mean: Floats[Array, "... d"], log_std: Floats[Array, "... d"] | Floats[Array, "d"], actions: Floats[Array, "... d"]
) -> Array:
    """Log-density of actions under independent normal distributions, summed over the action's components.

    Equation: eq-gaussian-policy

    Source: Williams (1992), section 6; Sutton & Barto (2018), equation 13.19.
    """
    standardized = (actions - mean) * library_of(log_std).exp(-log_std)
    return -(0.5 * standardized * standardized + log_std + 0.5 * LOG_TWO_PI).sum(-1)


# ---------------------------------------------------------------------- the perceptron


@checked
def mlp(
    sizes: Sequence[Count], *, activation: Activation = "tanh", output_gain: Positive = 1.0, seed: Seed
) -> nn.Sequential:
    """A multilayer perceptron with orthogonal weights and zero biases.

    Args:
        sizes: of the input, of each hidden layer, of the output; (in, out) alone is one linear layer.
        output_gain: scale of the last layer's weights; the others have sqrt(2). A small one makes all outputs
            start close to 0: a policy that starts close to uniform.

    Raises:
        ValueError: fewer than two sizes.

    Source: orthogonal weights: Saxe, McClelland & Ganguli (2014).
    """
    if len(sizes) < 2:
        raise ValueError(f"sizes is {sizes}; expected at least the sizes of the input and the output")
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, outputs in zip(sizes[:-2], sizes[1:-1]):
        layers += [_linear(inputs, outputs, math.sqrt(2), generator), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, _linear(sizes[-2], sizes[-1], output_gain, generator))


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    # on its own nn.Linear draws weights from the global generator; torch's skip_init does not, but loads sympy first
    layer = nn.Linear(inputs, outputs, device="meta")
    layer.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.float32))
    layer.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.float32))
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    return layer


class NumpyForward:
    """The network as a numpy function, (n, in) to (n, out), that reads the weights where they are.

    It is always current, also after the weights were replaced or the network was copied. Only on a CPU.

    Raises:
        ValueError: the network holds another kind of layer than linear ones with a bias, tanh and ReLU, or none.
    """

    @checked
    def __init__(self, network: nn.Sequential) -> None:
        self.layers: list[tuple[Tensor, Tensor, str]] = []  # weight (out, in), bias (out,), activation
        for module in network:
            if isinstance(module, nn.Linear) and module.bias is not None:
                self.layers.append((module.weight, module.bias, ""))
            elif isinstance(module, (nn.Tanh, nn.ReLU)) and self.layers and not self.layers[-1][2]:
                self.layers[-1] = (*self.layers[-1][:2], "tanh" if isinstance(module, nn.Tanh) else "relu")
            else:
                raise ValueError(
                    f"network holds {module}; expected linear layers with biases, and tanh or ReLU between"
                )
        if not self.layers:
            raise ValueError("network is empty; expected at least one linear layer")
        self._views: list[tuple[FloatArray, FloatArray, str]] = []
        self._addresses: list[int] = []

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Outputs (n, out) for rows (n, in)."""
        addresses = [tensor.data_ptr() for weight, bias, _ in self.layers for tensor in (weight, bias)]
        if addresses != self._addresses:  # a tensor got new memory: look there
            self._views = [
                (weight.detach().numpy().T, bias.detach().numpy(), activation)
                for weight, bias, activation in self.layers
            ]
            self._addresses = addresses
        for weight, bias, activation in self._views:
            rows = rows @ weight
            rows += bias
            if activation == "tanh":
                np.tanh(rows, out=rows)
            elif activation:
                np.maximum(rows, 0, out=rows)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        """A copy looks at its own weights: it takes no views along."""
        return {"layers": self.layers, "_views": [], "_addresses": []}


class _Perceptron(nn.Module):
    """What all networks below share: one perceptron, run with gradients in torch, or without in numpy."""

    def __init__(
        self,
        observation_size: int,
        outputs: int,
        hidden: Sequence[int],
        activation: Activation,
        seed: int,
        output_gain: float,
    ) -> None:
        super().__init__()
        self.observation_size = observation_size
        sizes = (observation_size, *hidden, outputs)
        self.network = mlp(sizes, activation=activation, output_gain=output_gain, seed=seed)
        self._fast = NumpyForward(self.network)

    def forward(self, observations: Tensor) -> Tensor:
        """Outputs for observations (n, d), with gradients; ``outputs_of`` says which."""
        return self.outputs_of(self.network(observations))

    def outputs_of(self, raw: Tensor) -> Tensor:
        """Outputs from what the perceptron computed."""
        raise NotImplementedError

    def _raw(self, observations: FloatArray) -> FloatArray:
        """The perceptron's outputs in numpy, wherever the weights are."""
        weight = self._fast.layers[0][0]
        if weight.is_cpu:
            return self._fast(observations)
        with torch.no_grad():
            rows = torch.as_tensor(observations, dtype=weight.dtype, device=weight.device)
            outputs: FloatArray = self.network(rows).cpu().numpy()
        return outputs

    def _rows(self, observations: Array) -> FloatArray:
        """Observations as float32 rows (n, observation_size), checked; integers (n,) become one-hot rows."""
        array = np.asarray(observations)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"observations has type {array.dtype}; expected real numbers")
        if array.ndim == 1 and array.dtype.kind in "iu":
            if array.size and not 0 <= array.min() <= array.max() < self.observation_size:
                raise ValueError(f"observations is {array}; expected 0..{self.observation_size - 1}")
            one_hot: FloatArray = np.eye(self.observation_size, dtype=np.float32)[array]
            return one_hot
        if array.ndim < 2 or math.prod(array.shape[1:]) != self.observation_size:
            raise ValueError(f"observations has shape {array.shape}; expected (n, {self.observation_size})")
        rows = array.reshape(len(array), self.observation_size).astype(np.float32, copy=False)
        if not np.isfinite(rows).all():
            raise ValueError("observations holds NaN or infinite values; expected finite numbers")
        return rows


# ---------------------------------------------------------------------- policies


class CategoricalPolicy(_Perceptron):
    """A policy for finitely many actions: the perceptron's outputs are logits of a softmax.

    Args:
        hidden: sizes of the hidden layers; () makes the logits linear in the observation, which for one-hot
            observations is a table. Here and in the networks below.
        output_gain: scale of the last layer; small, so that all actions start about equally likely.

    Source: Sutton & Barto (2018), section 13.1.
    """

    @checked
    def __init__(
        self,
        observation_size: Count,
        n_actions: Count,
        *,
        hidden: Sequence[Count] = (64,),
        activation: Activation = "tanh",
        seed: Seed,
        output_gain: Positive = 0.01,
    ) -> None:
        super().__init__(observation_size, n_actions, hidden, activation, seed, output_gain)
        self.n_actions = n_actions

    def outputs_of(self, raw: Tensor) -> Tensor:
        """Log-probabilities (n, A) from what the perceptron computed, the logits."""
        log_probs: Tensor = softmax_log_probs(raw)
        return log_probs

    def log_prob_of(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """``log pi(a | s)``, (n,), from outputs (n, A) and actions (n,)."""
        return outputs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy_of(self, outputs: Tensor) -> Tensor:
        """Entropy of each row's distribution in nats, (n,)."""
        return -(outputs.exp() * outputs).sum(-1)

    def kl_of(self, old_outputs: Tensor, outputs: Tensor) -> Tensor:
        """``KL(pi_old || pi)`` of each row in nats, (n,), exact."""
        return (old_outputs.exp() * (old_outputs - outputs)).sum(-1)

    def act(self, observations: Array, greedy: bool = True, rng: np.random.Generator | None = None) -> Array:
        """Actions (n,) for observations (n, d), or (n,) integers where Discrete: the first likeliest, or drawn.

        Raises:
            ValueError: observations of another shape, or no ``rng`` to draw with when ``greedy`` is False.
        """
        rows = self._rows(observations)
        if greedy:
            return self._raw(rows).argmax(-1)
        return self.sample(rows, _needed(rng))[0]

    def sample(self, observations: FloatArray, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw actions: (actions (n,), their log-probabilities (n,), outputs (n, A)), unchecked and in numpy.

        One uniform number a row decides: the cumulative probabilities are inverted.
        """
        outputs = self._raw(observations)  # logits (n, A), ours to change
        outputs -= np.maximum.reduce(outputs, -1, keepdims=True)
        cumulative = np.add.accumulate(np.exp(outputs), -1)  # (n, A), not normalized
        total = cumulative[:, -1:]
        outputs -= np.log(total)
        passed = rng.random((len(outputs), 1)) * total >= cumulative[:, :-1]
        actions = np.add.reduce(passed, -1, dtype=np.int64)
        return actions, outputs[np.arange(len(outputs)), actions], outputs

    def sample_torch(self, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """``sample`` for tensors, on any device; the generator lives on that device."""
        with torch.no_grad():
            outputs = self(observations)
            cumulative = outputs.exp().cumsum(-1)[:, :-1]  # (n, A-1)
            u = torch.rand(len(outputs), 1, generator=generator, device=outputs.device, dtype=outputs.dtype)
            actions = (u >= cumulative).sum(-1)
            return actions, self.log_prob_of(outputs, actions), outputs

    def for_environment(self, actions: Array) -> Array:
        """What the environment is given: the actions as they are."""
        return actions


class GaussianPolicy(_Perceptron):
    """A policy for actions of d real numbers: independent normals; their deviations ignore the state.

    Actions are drawn unbounded, and all log-probabilities are of these. They are clipped to the environment's
    bounds only on their way there (``for_environment``): the clip belongs to the environment.

    ``low`` and ``high`` are bounds of an action, numbers or (d,), or None. The standard deviations start at 1.

    Raises:
        ValueError: bounds that do not fit.

    Source: Sutton & Barto (2018), section 13.7.
    """

    low: FloatArray | None
    high: FloatArray | None

    @checked
    def __init__(
        self,
        observation_size: Count,
        action_size: Count,
        *,
        hidden: Sequence[Count] = (64,),
        activation: Activation = "tanh",
        seed: Seed,
        low: Numbers[Array, "..."] | None = None,
        high: Numbers[Array, "..."] | None = None,
        output_gain: Positive = 0.01,
    ) -> None:
        super().__init__(observation_size, action_size, hidden, activation, seed, output_gain)
        self.action_size = action_size
        self.log_std = nn.Parameter(torch.zeros(action_size))
        self.low, self.high = _bound("low", low, action_size), _bound("high", high, action_size)
        if self.low is not None and self.high is not None and (self.low > self.high).any():
            raise ValueError(f"low is {low}; expected at most high, {high}")

    def outputs_of(self, raw: Tensor) -> Tensor:
        """Means and log standard deviations side by side, (n, 2 d), from what the perceptron computed, the means."""
        return torch.cat((raw, self.log_std.expand_as(raw)), -1)

    def log_prob_of(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """``log pi(a | s)``, (n,), from outputs (n, 2 d) and actions (n, d)."""
        mean, log_std = outputs.chunk(2, -1)
        log_prob: Tensor = gaussian_log_prob(mean, log_std, actions)
        return log_prob

    def entropy_of(self, outputs: Tensor) -> Tensor:
        """Differential entropy of each row's distribution in nats, (n,)."""
        return (outputs[..., self.action_size :] + 0.5 * (LOG_TWO_PI + 1)).sum(-1)

    def kl_of(self, old_outputs: Tensor, outputs: Tensor) -> Tensor:
        """``KL(pi_old || pi)`` of each row in nats, (n,), exact."""
        (old_mean, old_log_std), (mean, log_std) = old_outputs.chunk(2, -1), outputs.chunk(2, -1)
        ratio = torch.exp(2 * (old_log_std - log_std))  # of the variances
        distance = ((mean - old_mean) * torch.exp(-log_std)) ** 2
        return (log_std - old_log_std + 0.5 * (ratio + distance - 1)).sum(-1)

    def act(self, observations: Array, greedy: bool = True, rng: np.random.Generator | None = None) -> Array:
        """Actions (n, d) float32 within the bounds: the mean, or drawn; else as ``CategoricalPolicy.act``."""
        rows = self._rows(observations)
        return self.for_environment(self._raw(rows) if greedy else self.sample(rows, _needed(rng))[0])

    def sample(self, observations: FloatArray, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw unclipped actions: (actions (n, d), log-densities (n,), outputs (n, 2 d)), unchecked and in numpy."""
        mean = self._raw(observations)
        log_std = np.broadcast_to(self.log_std.detach().cpu().numpy(), mean.shape)
        actions = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
        log_prob = gaussian_log_prob(mean, log_std, actions)
        return actions, log_prob, np.concatenate((mean, log_std), -1)

    def sample_torch(self, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """``sample`` for tensors, on any device; the generator lives on that device."""
        with torch.no_grad():
            outputs = self(observations)
            mean, log_std = outputs.chunk(2, -1)
            noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
            actions = mean + log_std.exp() * noise
            return actions, gaussian_log_prob(mean, log_std, actions), outputs

    def for_environment(self, actions: Array) -> Array:
        """What the environment is given: the actions, clipped to its bounds."""
        if self.low is None and self.high is None:
            return actions
        return np.clip(actions, self.low, self.high)


Policy: TypeAlias = CategoricalPolicy | GaussianPolicy


def _needed(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        raise ValueError("rng is None; expected a numpy Generator to draw with, since greedy is False")
    generator: np.random.Generator = check("rng", rng, np.random.Generator)
    return generator


def _bound(name: str, value: FloatArray | None, size: int) -> FloatArray | None:
    """A bound of the actions as a float32 array (d,), or None."""
    if value is None:
        return None
    if value.size not in (1, size) or np.isnan(value).any():
        raise ValueError(f"{name} is {value}; expected one number or {size}")
    return np.broadcast_to(value.astype(np.float32).ravel(), (size,)).copy()


# ---------------------------------------------------------------------- values


class ValueNetwork(_Perceptron):
    """State values ``V(s)`` in units of return: a fixed scale times a perceptron with one output.

    The scale is the size of typical returns, so that the perceptron itself computes numbers around one.
    """

    @checked
    def __init__(
        self,
        observation_size: Count,
        *,
        hidden: Sequence[Count] = (64,),
        activation: Activation = "tanh",
        seed: Seed,
        scale: Positive = 1.0,
    ) -> None:
        super().__init__(observation_size, 1, hidden, activation, seed, 1.0)
        self.scale = scale

    def outputs_of(self, raw: Tensor) -> Tensor:
        """Values (n,) from what the perceptron computed, (n, 1)."""
        return self.scale * raw.squeeze(-1)

    def numpy(self, observations: FloatArray) -> FloatArray:
        """Values (n,) for observations (n, d) float32, in numpy and unchecked."""
        return self.scale * self._raw(observations)[:, 0]


class QNetwork(_Perceptron):
    """Action values ``Q(s, a)`` in units of return: a scale times a perceptron, one output for each action."""

    @checked
    def __init__(
        self,
        observation_size: Count,
        n_actions: Count,
        *,
        hidden: Sequence[Count] = (128,),
        activation: Activation = "relu",
        seed: Seed,
        scale: Positive = 1.0,
    ) -> None:
        super().__init__(observation_size, n_actions, hidden, activation, seed, 1.0)
        self.n_actions, self.scale = n_actions, scale

    def outputs_of(self, raw: Tensor) -> Tensor:
        """Action values (n, A) from what the perceptron computed."""
        return self.scale * raw

    def numpy(self, observations: FloatArray) -> FloatArray:
        """Action values (n, A) for observations (n, d) float32, in numpy and unchecked."""
        return self.scale * self._raw(observations)

    def act(
        self, observations: Array, greedy: bool = True, rng: np.random.Generator | None = None, epsilon: float = 0.05
    ) -> Array:
        """Actions (n,): the first best, or epsilon-greedy with ``rng`` when ``greedy`` is False.

        Raises:
            ValueError: as ``CategoricalPolicy.act``, or epsilon, the chance of a uniformly drawn action, out of range.
        """
        best = self._raw(self._rows(observations)).argmax(-1)
        if greedy:
            return best
        rng = _needed(rng)
        explore = rng.random(len(best)) < check("epsilon", epsilon, UnitInterval)
        return np.where(explore, rng.integers(self.n_actions, size=len(best)), best)


# ---------------------------------------------------------------------- networks for an environment


@checked
def make_policy(
    observation_space: Space,
    action_space: Space,
    *,
    hidden: Sequence[Count] = (64,),
    activation: Activation = "tanh",
    seed: Seed,
    env: str = "the environment",
) -> Policy:
    """The policy that an action space asks for: categorical if Discrete, Gaussian within its bounds if a Box.

    Raises:
        ValueError: another kind of space; ``env`` names the environment.
    """
    from gymnasium.spaces import Box, Discrete

    if isinstance(observation_space, Discrete):
        size = int(observation_space.n)
    elif not isinstance(observation_space, Box) or not (size := math.prod(observation_space.shape)):
        raise ValueError(f"{env} has the observation space {observation_space}; expected a Box or Discrete")
    layers: dict[str, Any] = {"hidden": hidden, "activation": activation, "seed": seed}
    if isinstance(action_space, Discrete):
        return CategoricalPolicy(size, int(action_space.n), **layers)
    if isinstance(action_space, Box) and action_space.dtype.kind == "f" and math.prod(action_space.shape) > 0:
        layers |= {"low": action_space.low, "high": action_space.high}
        return GaussianPolicy(size, math.prod(action_space.shape), **layers)
    raise ValueError(f"{env} has the action space {action_space}; expected Discrete or a Box of real numbers")
