"""PPO on CartPole-v1 in JAX, for ``cartpole.py``: a lean loop with this library's settings, and Rejax's PPO.

The lean loop is the same algorithm, network and physics as ``rlbook_lib.ppo`` at its defaults, in one compiled
program: two updates of 1024 steps in one call, then the judge looks. Numbers are float32 throughout, those of the
physics, too. It knows no other environment and no other setting; that is what it is for.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from judge import Judge

COPIES, STEPS, EPOCHS, HIDDEN, TOTAL_STEPS = 16, 64, 6, 64, 100_000
CLIP, LEARNING_RATE, GAMMA, LAMBDA = 0.3, 7e-3, 0.99, 0.95
SCALE = 1 / (1 - GAMMA)  # the unit of the value network
SETTINGS = {
    "copies": COPIES,
    "steps": STEPS,
    "epochs": EPOCHS,
    "hidden": [HIDDEN],
    "total_steps": TOTAL_STEPS,
    "clip": CLIP,
    "learning_rate": LEARNING_RATE,
    "gamma": GAMMA,
    "lam": LAMBDA,
}
REJAX_SETTINGS: dict[str, Any] = {  # those of its repository, configs/gymnax/cartpole.yaml
    "env": "CartPole-v1",
    "agent_kwargs": {"activation": "tanh"},
    "num_envs": 5,
    "num_steps": 100,
    "num_epochs": 5,
    "num_minibatches": 5,
    "learning_rate": 0.00075,
    "max_grad_norm": 0.5,
    "total_timesteps": 100_000,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
}


# ------------------------------------------------------------------------------------------------ the lean loop


def run_jax_ppo(seed: int, judge: Judge) -> None:
    """The lean loop, until the judge has seen enough or the steps are used up."""
    networks = new_networks(np.random.default_rng(seed))
    zeros = jax.tree.map(np.zeros_like, networks)
    key, start = jax.random.split(jax.random.key(seed))
    run = networks, (zeros, zeros, np.float32(0)), new_starts(start), np.zeros(COPIES, np.int32), key
    for env_steps in range(2 * COPIES * STEPS, TOTAL_STEPS + 1, 2 * COPIES * STEPS):
        run = jax.block_until_ready(two_updates(run))
        judge(env_steps, functools.partial(greedy_action, run[0][0]))
    judge.next = 0
    judge(env_steps, functools.partial(greedy_action, run[0][0]))


def new_networks(rng: np.random.Generator) -> Any:
    """Policy and value network: (weight, bias) of both layers, orthogonal weights."""

    def layer(inputs: int, outputs: int, gain: float) -> tuple[np.ndarray, np.ndarray]:
        q, r = np.linalg.qr(rng.standard_normal((max(inputs, outputs), min(inputs, outputs))))
        q = q * np.sign(np.diag(r))
        weight = gain * (q if inputs >= outputs else q.T)
        return weight.astype(np.float32), np.zeros(outputs, np.float32)

    return tuple((layer(4, HIDDEN, 2**0.5), layer(HIDDEN, outputs, gain)) for outputs, gain in ((2, 0.01), (1, 1.0)))


def forward(network: Any, observations: Any) -> Any:
    (weight, bias), (weight_out, bias_out) = network
    return jnp.maximum(observations @ weight + bias, 0) @ weight_out + bias_out


def greedy_action(policy: Any, observations: np.ndarray) -> np.ndarray:
    """In numpy, for the judge."""
    (weight, bias), (weight_out, bias_out) = jax.tree.map(np.asarray, policy)
    return (np.maximum(observations @ weight + bias, 0) @ weight_out + bias_out).argmax(1)


def new_starts(key: Any) -> Any:
    return jax.random.uniform(key, (COPIES, 4), minval=-0.05, maxval=0.05)


def push(state: Any, actions: Any) -> Any:
    """One step of CartPole's physics: (N, 4) to (N, 4)."""
    x, speed, angle, spin = state.T
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    pull = (20.0 * actions - 10.0 + 0.05 * spin**2 * sin) / 1.1
    spin_up = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    change = jnp.stack((speed, pull - 0.05 * spin_up * cos / 1.1, spin, spin_up), 1)
    return state + 0.02 * change


def collect(networks: Any, state: Any, lengths: Any, key: Any) -> tuple[Any, Any, Any]:
    """STEPS steps of all copies; the rollout's arrays have shape (STEPS, COPIES, ...)."""

    def step(carry: Any, key: Any) -> tuple[Any, Any]:
        state, lengths = carry
        for_action, for_start = jax.random.split(key)
        log_probs = jax.nn.log_softmax(forward(networks[0], state))
        actions = (jax.random.uniform(for_action, (COPIES,)) < jnp.exp(log_probs[:, 1])).astype(jnp.int32)
        after, lengths = push(state, actions), lengths + 1
        terminated = (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 12 * 2 * np.pi / 360)
        truncated = (lengths >= 500) & ~terminated
        ended = terminated | truncated
        log_prob = jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0]
        following = jnp.where(ended[:, None], new_starts(for_start), after), jnp.where(ended, 0, lengths)
        return following, (state, actions, log_prob, after, terminated, ended)

    (state, lengths), rollout = jax.lax.scan(step, (state, lengths), jax.random.split(key, STEPS))
    return state, lengths, rollout


def advantages_of(networks: Any, observations: Any, after: Any, terminated: Any, ended: Any) -> tuple[Any, Any]:
    """Generalized advantages and value targets, (STEPS, COPIES) each; every reward is 1."""
    values, next_values = (SCALE * forward(networks[1], states)[..., 0] for states in (observations, after))
    errors = 1.0 + GAMMA * jnp.where(terminated, 0.0, next_values) - values

    def back(advantage: Any, now: Any) -> tuple[Any, Any]:
        error, ended = now
        advantage = error + GAMMA * LAMBDA * jnp.where(ended, 0.0, advantage)
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros(COPIES), (errors, ended), reverse=True)
    return advantages, advantages + values


def loss(networks: Any, observations: Any, actions: Any, old: Any, advantages: Any, targets: Any) -> Any:
    log_probs = jax.nn.log_softmax(forward(networks[0], observations))
    ratio = jnp.exp(jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0] - old)
    surrogate = jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages)
    error = forward(networks[1], observations)[:, 0] - targets / SCALE
    return 0.5 * (error**2).mean() - surrogate.mean()


def adam(networks: Any, state: Any, gradient: Any) -> tuple[Any, Any]:
    first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    rate, root = LEARNING_RATE / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
    moved = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) / root + 1e-5), networks, first, second)
    return moved, (first, second, count)


def update(run: Any, _: None) -> tuple[Any, None]:
    networks, optimizer, state, lengths, key = run
    key, for_steps = jax.random.split(key)
    state, lengths, (observations, actions, old, after, terminated, ended) = collect(
        networks, state, lengths, for_steps
    )
    advantages, targets = advantages_of(networks, observations, after, terminated, ended)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (observations, actions, old, advantages, targets))

    def epoch(learner: Any, _: None) -> tuple[Any, None]:
        networks, optimizer = learner
        return adam(networks, optimizer, jax.grad(loss)(networks, *batch)), None

    (networks, optimizer), _ = jax.lax.scan(epoch, (networks, optimizer), None, EPOCHS)
    return (networks, optimizer, state, lengths, key), None


@jax.jit
def two_updates(run: Any) -> Any:
    return jax.lax.scan(update, run, None, 2)[0]


# -------------------------------------------------------------------------------------------------------- Rejax


def run_rejax_ppo(seed: int, judge: Judge) -> None:
    """Rejax's PPO on Gymnax's CartPole-v1: its ``train_iteration``, five at a time."""
    begin, go_on, act, steps = rejax_functions()
    state, env_steps = begin(jax.random.key(seed)), 0
    while env_steps < REJAX_SETTINGS["total_timesteps"]:
        state, env_steps = jax.block_until_ready(go_on(state)), env_steps + steps
        judge(env_steps, padded(functools.partial(act, state)))
    judge.next = 0
    judge(env_steps, padded(functools.partial(act, state)))


@functools.cache  # compiled once in a process
def rejax_functions() -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], int]:
    import rejax

    algorithm = rejax.get_algo("ppo").create(**REJAX_SETTINGS)

    def act(state: Any, observations: Any) -> Any:
        return algorithm.actor.apply(state.actor_ts.params, observations, method="_action_dist").mode()

    def go_on(state: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, state: algorithm.train_iteration(state), state)

    return jax.jit(algorithm.init_state), jax.jit(go_on), jax.jit(act), 5 * algorithm.iteration_size


def padded(act: Callable[[np.ndarray], Any], rows: int = 100) -> Callable[[np.ndarray], np.ndarray]:
    """The same function, always called with as many rows, so that it is compiled once."""

    def call(observations: np.ndarray) -> np.ndarray:
        full = np.zeros((rows, 4), np.float32)
        full[: len(observations)] = observations
        return np.asarray(act(full))[: len(observations)]

    return call
