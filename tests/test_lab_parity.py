"""The engine of the labs computes what the library computes: fixed inputs go through both.

The engine (``_static/lab/*.js``) runs in V8 inside Python. Tables agree to 1e-9, networks and their gradients to 1e-5; so
do one whole update of REINFORCE, A2C, PPO, TRPO, DQN and GRPO. At the end faults are planted in the engine, each of which one
of the checks above must notice.
"""

from __future__ import annotations

import functools
import copy
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from py_mini_racer import MiniRacer
from torch import nn

from rlbook_lib import policy_gradient as pg
from rlbook_lib.divergences import entropy
from rlbook_lib.dqn import DQNConfig, NStepWindow, dqn_update
from rlbook_lib.dynamic_programming import (
    bellman_expectation_backup,
    bellman_optimality_backup,
    policy_evaluation,
    policy_iteration,
    q_from_values,
    value_iteration,
)
from rlbook_lib.environments import VectorStep
from rlbook_lib.experience import epsilon_greedy_probabilities, linear_decay
from rlbook_lib.grpo import GRPOConfig, group_advantages, grpo_loss, iterate_grpo
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig, completion_log_probs, generate
from rlbook_lib.maze import LAYOUTS, Maze
from rlbook_lib.monte_carlo import monte_carlo_control, monte_carlo_prediction
from rlbook_lib.networks import CategoricalPolicy, QNetwork, ValueNetwork
from rlbook_lib.ppo import Learner, PPOConfig, clip_gradient, prepare_batch
from rlbook_lib.replay_buffer import Batch
from rlbook_lib.returns import discounted_returns, gae, lambda_returns, normalize_advantages
from rlbook_lib.reward_model import bradley_terry_newton, preference_loss
from rlbook_lib.rollout import open_actors
from rlbook_lib.temporal_difference import q_learning, sarsa, td_prediction
from rlbook_lib.text_tasks import CheckDigit, split_of
from rlbook_lib.training import Adam, learning_rate_share
from rlbook_lib.trpo import (
    TRPOConfig,
    conjugate_gradient,
    fisher_vector_product,
    fit_values,
    line_search,
    trpo_step,
    trpo_targets,
)

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

from lab_weights import SIZE, TASK, flat  # noqa: E402

LAB = ROOT / "_static" / "lab"
MODULES = "random network returns maze tabular tabular_policy cartpole rollout policy_gradient dqn ppo trpo text_tasks reward_model transformer grpo".split()
TABLE, NETWORK = 1e-9, 1e-5  # how far the two may be apart

# What the checks call: arrays come as lists, and go as lists.
CALLS = """
const plain = x => JSON.parse(JSON.stringify(x, (_, v) => ArrayBuffer.isView(v) ? Array.from(v) : v));
const f64 = x => Float64Array.from(x);
function actorsOf({ before, m, v, t, hidden, activation, scale }) {
  const { Actors } = lab.use("rollout"), rng = lab.use("random").generator(0);
  const actors = lab.use("policy_gradient").begin(new Actors({ copies: 1, hidden, activation, scale, rng }));
  [actors.policy, actors.value].forEach((network, k) => {
    network.theta.set(before[k]);
    Object.assign(actors.adams[k], { m: f64(m[k]), v: f64(v[k]), t });
  });
  return actors;
}
function rolloutOf(r) {
  const typed = { ...r };
  for (const name of ["observations", "next", "logProbs", "rewards"]) typed[name] = f64(r[name]);
  return typed;
}
const thetas = actors => plain([actors.policy.theta, actors.value.theta]);
function mazeOf({ layout, slip, rewards }) {
  const maze = new (lab.use("maze").Maze)(layout, slip);
  if (rewards) rewards.forEach((r, s) => { if (!maze.terminal(s)) maze.rewards[s] = r; });
  return maze;
}
const calls = {
  draws: (seed, count) => { const rng = lab.use("random").generator(seed); return Array.from({ length: count }, () => rng()); },
  normals: (seed, count) => { const { generator, normal } = lab.use("random"), rng = generator(seed); return Array.from({ length: count }, () => normal(rng)); },
  permutation: (seed, n) => plain(lab.use("random").permutation(lab.use("random").generator(seed), n)),
  plan(case_) {
    const t = lab.use("tabular"), maze = mazeOf(case_), { gamma, values, rows } = case_;
    return plain({ optimal: t.valueIteration(maze, gamma).values, policy: t.policyIteration(maze, gamma),
      sweep: t.sweep(maze, f64(values), gamma), expectation: t.sweep(maze, f64(values), gamma, rows.flat()),
      q: t.qTable(maze, f64(values), gamma), exact: t.policyEvaluation(maze, case_.actions, gamma),
      one: t.backup(maze, f64(values), gamma, 0).q });
  },
  moves({ layout, slip }) { const maze = mazeOf({ layout, slip }); return plain(maze.destinations); },
  learn(method, nStates, settings, steps) {
    const learner = new (lab.use("tabular").LEARNERS[method])(nStates, settings);
    for (const [step, nextAction] of steps) learner.learn(step, nextAction);
    return plain(learner.Q);
  },
  pull(theta, walk, gamma, weight, means) {
    const { probabilities, returnsOf, WEIGHTS, pullOf } = lab.use("tabular_policy"), G = returnsOf(walk, gamma);
    return plain([probabilities(f64(theta)), G, pullOf(f64(theta), walk, Object.values(WEIGHTS)[weight](G, walk, means))]);
  },
  people: (wins, a, b) => { const r = lab.use("reward_model"), p = r.bradleyTerry(wins); return [p, r.expectedWins(wins, p), r.standardError(wins, p, a, b), r.hasMaximum(wins)]; },
  nats: (weights, prompt, answers) => { const { Transformer } = lab.use("transformer"), { MODELS, sequenceKl } = lab.use("grpo"); return plain(sequenceKl(new Transformer(MODELS[5], Float32Array.from(weights)), prompt, answers)); },
  judge: (w, pairs, ridge) => { const r = lab.use("reward_model"); return [r.preferenceGradient(w, pairs, ridge), r.fitJudge(pairs, ridge)]; },
  predict(nStates, walks, gamma, alpha) {
    const t = lab.use("tabular");
    return plain([t.monteCarloPrediction(nStates, walks, gamma), t.tdPrediction(nStates, walks, { gamma, alpha })]);
  },
  madeOf: (walks, updates, gamma, s) => { const t = lab.use("tabular"); return [t.returnsAfter(walks, gamma, s), [...t.tdShares(updates, s)]]; },
  cartpole(state, actions) {
    const pole = new (lab.use("cartpole").CartPole)(() => 0.5);
    pole.state.set(state);
    return actions.map(a => { const { terminated, truncated } = pole.step(a); return [[...pole.state], terminated, truncated]; });
  },
  returns({ rewards, values, nextValues, terminated, truncated, copies, gamma, lambda }) {
    const r = lab.use("returns"), found = r.gae(rewards, values, nextValues, terminated, truncated, copies, gamma, lambda);
    return plain({ ...found, returns: r.discountedReturns(rewards, terminated, truncated, copies, gamma),
      normalized: r.normalizeAdvantages(found.advantages) });
  },
  network(sizes, activation, theta, X, dY) {
    const network = new (lab.use("network").Network)(sizes, { activation });
    network.theta.set(theta);
    const rows = X.length / sizes[0], Y = plain(network.forward(f64(X), rows)).slice(0, rows * sizes.at(-1));
    network.backward(f64(dY));
    return [Y, plain(network.gradient)];
  },
  orthogonal(n, m, gain) {
    const W = new Float64Array(n * m);
    lab.use("network").orthogonal(W, n, m, gain, lab.use("random").generator(3));
    return plain(W);
  },
  clipGradient: (ratios, advantages, epsilon) => ratios.map((r, i) => lab.use("ppo").clipGradient(r, advantages[i], epsilon)),
  ppo(state, rollout, config, orders) {
    const { prepareBatch, ppoUpdate, diagnose } = lab.use("ppo"), actors = actorsOf(state);
    const batch = prepareBatch(actors, rolloutOf(rollout), config);
    for (const _ of ppoUpdate(actors, batch, config, () => orders.shift()));
    return { after: thetas(actors), metrics: diagnose(actors, batch, config.clip), advantages: plain(batch.advantages) };
  },
  conjugateGradient: (A, b, n) => plain(lab.use("trpo").conjugateGradient(v => f64(A.map(row => row.reduce((s, a, k) => s + a * v[k], 0))), f64(b), n)),
  lineSearch: (step, delta) => plain(lab.use("trpo").lineSearch(s => ({ gain: s[0] - s[1], kl: s[0] ** 2 }), f64(step), delta)),
  fisher(sizes, activation, theta, X, vector, damping) {
    const policy = new (lab.use("network").Network)(sizes, { activation });
    policy.theta.set(theta);
    return plain(lab.use("trpo").fisherVectorProduct(policy, f64(X), X.length / sizes[0], damping)(f64(vector)));
  },
  trpo(state, rollout, config, delta, orders) {
    const actors = actorsOf(state);
    const metrics = lab.use("trpo").trpoUpdate(actors, rolloutOf(rollout), config, delta, () => orders.shift());
    return { after: thetas(actors), metrics };
  },
  policyGradient(which, state, rollout, config) {
    const actors = actorsOf(state), metrics = lab.use("policy_gradient")[which](actors, rolloutOf(rollout), config);
    return { after: thetas(actors), metrics };
  },
  dqn({ sizes, online, target, m, v, t }, batch, config) {
    const { Network, Adam } = lab.use("network"), { dqnUpdate, emaUpdate } = lab.use("dqn");
    const networks = [online, target].map(theta => { const n = new Network(sizes, { activation: "relu" }); n.theta.set(theta); return n; });
    const adam = Object.assign(new Adam(online.length), { m: f64(m), v: f64(v), t });
    for (const name of ["observations", "next", "returns", "discounts"]) batch[name] = f64(batch[name]);
    const metrics = dqnUpdate(...networks, adam, batch, config);
    emaUpdate(...networks, config.tau);
    return { online: plain(networks[0].theta), target: plain(networks[1].theta), metrics };
  },
  windows(n, gamma, steps) {
    const window = new (lab.use("dqn").NStepWindow)(n, gamma);
    return steps.map(([observation, action, step, next]) => window.push(observation, action, step, next));
  },
  weights: start => plain(lab.use("transformer").fromHalf(lab.weights[5][start].weights)),
  logits(theta, texts) {
    const model = new (lab.use("transformer").Transformer)(lab.use("grpo").MODELS[5], theta);
    return texts.map(tokens => {
      model.rows = 0;
      let tip = -1;
      for (const token of tokens) tip = model.grow(token, tip);
      model.forward();
      return plain(model.logits.slice(0, model.rows * model.V));
    });
  },
  grpoGradient(theta, groups, clip, count) {
    const model = new (lab.use("transformer").Transformer)(lab.use("grpo").MODELS[5], theta);
    let outside = 0;
    for (const group of groups) outside += lab.use("grpo").grpoBackward(model, group, clip, count);
    return [plain(model.gradient), outside];
  },
  grpoUpdate({ theta, m, v, t }, groups, config, update) {
    const { grpoUpdate, groupAdvantages, learningRateShare, TASKS, MODELS } = lab.use("grpo");
    const model = new (lab.use("transformer").Transformer)(MODELS[5], theta), { Adam } = lab.use("network");
    const adam = Object.assign(new Adam(theta.length, { betas: [0.9, 0.99] }), { m: f64(m), v: f64(v), t });
    for (const group of groups)                              // texts and rewards are the engine's own work
      for (const answer of group.answers) { answer.ended = answer.tokens.at(-1) === 1; answer.text = model.decode(answer.tokens); }
    for (const group of groups) {
      group.rewards = group.answers.map(({ text, ended }) => TASKS[5].reward(group.prompt, text, ended));
      group.advantages = groupAdvantages(group.rewards, config.scale);
    }
    const rate = config.learningRate * learningRateShare(update, config.updates, config.warmup, config.finalShare);
    for (const _ of grpoUpdate(model, adam, groups, config, rate));
    return { after: plain(model.theta), rewards: groups.map(group => group.rewards) };
  },
  orders: (n, count) => { const { generator, permutation } = lab.use("random"), rng = generator(4); return Array.from({ length: count }, () => plain(permutation(rng, n))); },
  walked(case_, s, a, count) {
    const maze = mazeOf(case_), rng = lab.use("random").generator(6), met = new Array(maze.nStates).fill(0);
    for (let k = 0; k < count; k++) met[maze.step(s, a, rng).nextState]++;
    return met;
  },
  painted(layout, strokes) {
    const maze = mazeOf({ layout, slip: 0 });
    for (const [s, kind] of strokes) maze.paint(s, kind);
    return plain([maze.layout, maze.destinations, maze.rewards]);
  },
  /** What a learner still holds of an episode that was broken off, and what policy improvement makes of a policy whose actions all tie. */
  brokenOff(method) {
    const { Run } = lab.use("tabular"), settings = { gamma: 0.9, alpha: 0.5, epsilon: 1, lambda: 0.8, limit: 3 };
    const run = new Run(mazeOf({ layout: ["S....", "....G"], slip: 0 }), method, settings, lab.use("random").generator(1));
    for (let k = 0; k < 3; k++) run.step();
    return [run.episodes, run.steps, plain(run.learner.traces ?? [0]).filter(Boolean).length + run.learner.pending.length];
  },
  tied: policy => plain(lab.use("tabular").policyImprovement(mazeOf({ layout: ["S..", "..."], slip: 0 }), Uint8Array.from(policy), 0.9).policy),
  means(nStates, walks, gamma) {
    const { Means, returnsOf } = lab.use("tabular_policy"), means = new Means(nStates);
    for (const walk of walks) means.add(walk, returnsOf(walk, gamma));
    return plain(means.values);
  },
  resets: count => { const pole = new (lab.use("cartpole").CartPole)(lab.use("random").generator(2)); return Array.from({ length: count }, () => { pole.reset(); return [...pole.state]; }); },
  lastStep(state) {
    const pole = new (lab.use("cartpole").CartPole)(() => 0.5);
    pole.state.set(state); pole.steps = 499;
    const { terminated, truncated } = pole.step(1);
    return [terminated, truncated];
  },
  progress: lengths => lab.use("rollout").progress(lengths),
  rollouts(copies, steps) {
    const { Actors } = lab.use("rollout"), actors = new Actors({ copies, hidden: [4], activation: "tanh", scale: 1, rng: lab.use("random").generator(3) });
    const { observations, next, terminated, truncated } = actors.collect(steps), lengths = actors.lengths.slice();
    actors.environments.forEach(world => Object.assign(world, { reset() { this.steps = 0; }, step() { const end = ++this.steps === 500; return { reward: 1, terminated: false, truncated: end }; } }));
    return plain([observations, next, terminated.map((x, i) => x || truncated[i]), lengths, actors.collectEpisodes().size]);
  },
  shares: (updates, warmup, end) => Array.from({ length: updates }, (_, k) => lab.use("grpo").learningRateShare(k, updates, warmup, end)),
  shown(settings) {
    for (const record of lab.use("grpo").train({ ...settings, weights: lab.weights[5][0].weights })) if (record) return record.answers;
  },
  pairs(count) {
    const { TASKS } = lab.use("grpo"), { pairFor } = lab.use("reward_model"), rng = lab.use("random").generator(8), task = TASKS[5];
    return Array.from({ length: count }, () => { const prompt = task.prompt(rng); return [prompt, pairFor(task, prompt, rng)]; });
  },
  remembered: (capacity, count) => { const buffer = new (lab.use("dqn").ReplayBuffer)(capacity); for (let k = 0; k < count; k++) buffer.add(k); return buffer.rows; },
  explored(epsilon) {
    const settings = { epsilonStart: epsilon, epsilonEnd: epsilon, learningStarts: 0, learningRate: 0, totalSteps: 4096, batchSize: 4, seed: 3 };
    let last;
    for (const record of lab.use("dqn").train(settings)) if (record) last = record;
    return [last.mean, last.episodes];
  },
  radii: (steps, config) => steps.map(t => lab.use("trpo").radiusAt(t, { ...lab.use("trpo").TRPO, ...config })),
  epsilons: steps => steps.map(t => lab.use("dqn").epsilonAt(t, lab.use("dqn").DQN)),
  openedScale: gamma => lab.use("policy_gradient").open({ seed: 0, gamma, hidden: [4], activation: "tanh" }, 1).scale,
  choices(row, epsilon, count, seed) {
    const { epsilonGreedy } = lab.use("tabular"), rng = lab.use("random").generator(seed), chosen = [0, 0, 0, 0];
    for (let k = 0; k < count; k++) chosen[epsilonGreedy(row, 0, epsilon, rng)]++;
    return chosen;
  },
  advantages: (rewards, scale) => rewards.map(row => lab.use("grpo").groupAdvantages(row, scale)),
  generate(theta, prompt, count, seed) {
    const { Transformer, generate } = lab.use("transformer"), model = new Transformer(lab.use("grpo").MODELS[5], theta);
    return plain(generate(model, prompt, count, 10, lab.use("random").generator(seed)));
  },
  task(prompts, texts) {
    const { CheckDigit, splitOf, RULES } = lab.use("text_tasks"), task = new CheckDigit(prompts[0].length - 1);
    return prompts.map((p, k) => [task.work(p), task.answer(p), splitOf(p), texts.map(t => task.reward(p, t, true)),
      texts.map(t => RULES["last number is the digit"]({ text: t, digit: task.answer(p) })),
      texts.map(t => RULES["contains the digit"]({ text: t, digit: task.answer(p) }))]);
  },
};
"""


@functools.cache
def source(name: str) -> str:
    return (LAB / f"{name}.js").read_text("utf-8")


def scripts_of(lab: str) -> list[str]:
    """The scripts that lab.js brings for a lab: its own and, as their texts say, what they use."""
    found = [f"lab_{lab}"]
    for name in found:
        found += [used for used in dict.fromkeys(re.findall(r' use\("(\w+)"', source(name))) if used not in found]
    return found


class Engine(AbstractContextManager["Engine"]):
    """The engine in V8; a mutant has one text in one module replaced.

    Always closed: the garbage collector would do it at any time, in any thread, which can crash Python.
    """

    def __init__(self, module: str | None = None, old: str = "", new: str = "") -> None:
        self.racer = MiniRacer()
        self.racer.eval(
            "globalThis.atob = t => { const A = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'; let out = ''; for (let i = 0, b = 0, n = 0; i < t.length && t[i] !== '='; i++) { b = b << 6 | A.indexOf(t[i]); n += 6; if (n >= 8) { n -= 8; out += String.fromCharCode(b >> n & 255); b &= (1 << n) - 1; } } return out; };"
        )
        for name in ["lab", *MODULES, "weights"]:
            text = source(name)
            if name == module:
                assert text.count(old) == 1, f"{module}.js holds {text.count(old)} times: {old}"
                text = text.replace(old, new)
            self.racer.eval(text)
        self.racer.eval(CALLS)

    def __call__(self, name: str, *arguments: Any) -> Any:
        texts = json.dumps([*arguments], default=lambda x: x.tolist() if hasattr(x, "tolist") else list(x))
        return json.loads(self.racer.eval(f"JSON.stringify(calls.{name}(...{texts}))", timeout_sec=60))

    def __exit__(self, *error: object) -> None:
        self.racer.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


def near(found: Any, expected: Any, tolerance: float) -> None:
    """All numbers agree within the tolerance, for numbers above 1 a relative one."""
    expected = np.asarray(expected, dtype=float)
    np.testing.assert_allclose(np.asarray(found, dtype=float).reshape(expected.shape), expected, tolerance, tolerance)


# ---------------------------------------------------------------------------------------------- random numbers


def check_random(engine: Engine) -> None:
    """Draws are in [0, 1) and even, normals normal, permutations complete; a seed gives the same ones again."""
    draws = np.array(engine("draws", 7, 20_000))
    assert engine("draws", 7, 5) == draws[:5].tolist() != engine("draws", 8, 5)
    assert 0 <= draws.min() and draws.max() < 1
    counts = np.histogram(draws, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 60  # chi square, 19 degrees of freedom: by chance once in 300,000
    normals = np.array(engine("normals", 1, 20_000))
    assert abs(normals.mean()) < 0.03 and abs(normals.std() - 1) < 0.03 and 0.9 < (normals**4).mean() / 3 < 1.1
    assert sorted(engine("permutation", 3, 50)) == list(range(50)) != engine("permutation", 3, 50)


# ------------------------------------------------------------------------------------------------------- tables


@functools.cache
def mazes() -> list[dict[str, Any]]:
    """The book's layouts and twenty random ones, with slips, step rewards, values and policies."""
    rng, cases = np.random.default_rng(0), []
    layouts = [list(layout) for layout in LAYOUTS.values()]
    for _ in range(20):
        grid = rng.choice(list("....#TG"), size=rng.integers(2, 7, size=2))
        grid.flat[0], grid.flat[-1] = "S", "G"
        layouts.append(["".join(row) for row in grid])
    for layout in layouts:
        n, terminal = len(layout) * len(layout[0]), Maze(layout).terminal
        rows = rng.dirichlet(np.ones(4), size=n)
        cases.append(
            {
                "layout": layout,
                "slip": float(rng.choice([0.0, 0.1, 0.35, 1.0])),
                "gamma": float(rng.choice([0.5, 0.9, 0.99])),
                "rewards": rng.choice([0.0, -1.0, 0.5], size=n),
                "values": np.where(terminal, 0.0, rng.normal(size=n)),
                "rows": rows,
                "actions": rng.integers(4, size=n),
            }
        )
    return cases


def model_of(case: dict[str, Any]) -> Any:
    """The library's model, with the rewards of the free cells painted over."""
    maze = Maze(case["layout"], slip=case["slip"])
    mdp = maze.to_mdp(case["gamma"])
    painted = np.where(maze.terminal, 0.0, case["rewards"])
    rewards = mdp.rewards + np.where(maze.terminal[:, None], 0.0, mdp.transitions @ painted)  # (S, 4)
    return type(mdp)(mdp.transitions, rewards, case["gamma"], terminal=maze.terminal, start=mdp.start)


def check_planners(engine: Engine) -> None:
    for case in mazes():
        mdp, values, found = model_of(case), case["values"], engine("plan", case)
        near(found["q"], np.where(mdp.terminal[:, None], 0.0, q_from_values(mdp, values)), TABLE)
        near(found["sweep"], bellman_optimality_backup(mdp, values), TABLE)
        near(found["expectation"], bellman_expectation_backup(mdp, case["rows"], values), TABLE)
        near(max(found["one"]), bellman_optimality_backup(mdp, values)[0], TABLE)
        near(found["exact"], policy_evaluation(mdp, case["actions"]), TABLE)
        near(found["optimal"], value_iteration(mdp, 1e-11).values, TABLE)
        near(found["policy"]["values"], policy_iteration(mdp).values, TABLE)
        near(engine("moves", case), Maze(case["layout"], slip=case["slip"])._destinations, 0)


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that remembers its steps, so that the engine can learn from the very same ones."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.rows: list[dict[str, Any]] = []
        self.state = 0

    def reset(self, **options: Any) -> Any:
        self.state, info = self.env.reset(**options)
        return self.state, info

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        row = {"state": self.state, "action": int(action), "reward": float(result[1]), "nextState": int(result[0])}
        self.rows.append(row | {"terminated": bool(result[2]), "truncated": bool(result[3])})
        self.state = int(result[0])
        return result

    @property
    def steps(self) -> list[Any]:
        """Each step with the action that came next."""
        actions = [row["action"] for row in self.rows[1:]] + [None]
        return [list(pair) for pair in zip(self.rows, actions)]


SETTINGS = {"gamma": 0.9, "alpha": 0.3}


def check_learners(engine: Engine) -> None:
    common: dict[str, Any] = {"episodes": 60, "epsilon": 0.3, "seed": 4, **SETTINGS}
    for learn, names in (
        (q_learning, ["Q-learning"]),
        (sarsa, ["SARSA", "SARSA(λ)"]),
        (monte_carlo_control, ["Monte Carlo"]),
    ):
        world = Recorder(Maze(["S..#", ".T..", "...G"], slip=0.2))
        table = learn(world, **common).q_values
        assert len(world.rows) > 300 and np.abs(table).max() > 5
        for name in names:
            found = engine("learn", name, len(table), SETTINGS | {"lambda": 0}, world.steps)
            near(found, table.ravel(), TABLE)


def check_traces(engine: Engine) -> None:
    """On a walk without repeats the traces give each step its lambda-return, and fade between episodes."""
    rng, n, lam = np.random.default_rng(2), 6, 0.7
    expected = np.zeros((n, 4))
    steps: list[Any] = []
    for _ in range(3):
        actions, rewards = rng.integers(4, size=n - 1), rng.normal(size=n - 1)
        nexts = np.array([expected[s + 1, actions[s + 1]] for s in range(n - 2)] + [0.0])
        ends = np.arange(n - 1) == n - 2
        targets = lambda_returns(rewards, nexts, ends, np.zeros(n - 1, dtype=bool), SETTINGS["gamma"], lam)
        for s in range(n - 1):
            row = {
                "state": s,
                "action": int(actions[s]),
                "reward": rewards[s],
                "nextState": s + 1,
                "terminated": bool(ends[s]),
            }
            steps.append([row, None if ends[s] else int(actions[s + 1])])
            expected[s, actions[s]] += SETTINGS["alpha"] * (targets[s] - expected[s, actions[s]])
    near(engine("learn", "SARSA(λ)", n, SETTINGS | {"lambda": lam}, steps), expected.ravel(), TABLE)


def check_pull(engine: Engine) -> None:
    """A walk's pull at a table of logits is the gradient that autograd finds, for each kind of weight."""
    rng, gamma, T = np.random.default_rng(7), 0.9, 9
    theta, means = rng.normal(size=(6, 4)), rng.normal(size=6)
    states, actions, rewards = rng.integers(6, size=T), rng.integers(4, size=T), rng.normal(size=T)
    G = discounted_returns(rewards, gamma)
    walk = [{"state": int(s), "action": int(a), "reward": float(r)} for s, a, r in zip(states, actions, rewards)]
    for weight, psi in enumerate((np.full(T, G[0]), G, G - means[states])):
        logits = torch.tensor(theta, requires_grad=True)
        log_prob = torch.log_softmax(logits, -1)[states, actions]
        pg.policy_gradient_loss(log_prob, torch.tensor(psi), torch.ones(T, dtype=torch.float64)).backward()
        found = engine("pull", theta.ravel(), walk, gamma, weight, means)
        near(found[0], torch.softmax(torch.tensor(theta), -1).numpy(), TABLE)
        near(found[1], G, TABLE)
        near(found[2], -logits.grad.numpy(), TABLE)


def check_people(engine: Engine) -> None:
    """Strengths, expected wins and the standard error are the library's; a chain of wins must lead from each to each."""
    wins = np.array([[0, 8, 3], [4, 0, 2], [5, 3, 0]])
    p, covariance = bradley_terry_newton(wins)
    found, expected, error, exists = engine("people", wins, 0, 2)
    near(found, p, TABLE)
    near(expected, wins.sum(1), TABLE)
    near(error, covariance[0, 0] ** 0.5, 1e-7)
    assert exists and not engine("people", np.array([[0, 3, 2], [0, 0, 1], [0, 1, 0]]), 0, 1)[3]


def check_judge(engine: Engine) -> None:
    """The gradient of the judge's loss is autograd's, and at the judge that it finds the gradient is 0."""
    rng, ridge = np.random.default_rng(3), 0.05
    pairs, w = rng.random((12, 2, 4)), rng.normal(size=4)

    def gradient(at: np.ndarray) -> np.ndarray:
        weights = torch.tensor(at, requires_grad=True)
        scores = torch.tensor(pairs) @ weights
        (preference_loss(scores[:, 0], scores[:, 1]) + ridge / 2 * (weights**2).sum()).backward()
        return weights.grad.numpy()

    found, fitted = engine("judge", w, pairs, ridge)
    near(found, gradient(w), TABLE)
    near(gradient(np.array(fitted)), np.zeros(4), TABLE)
    assert np.abs(fitted).max() > 0.1


def check_prediction(engine: Engine) -> None:
    policy, common = np.full((6, 4), 0.25), {"episodes": 40, "gamma": 0.9, "seed": 1}
    world = Recorder(Maze("L1", slip=0.3))
    table = td_prediction(world, policy, alpha=0.1, **common).values
    walks, walk = [], []
    for row in world.rows:
        walk.append(row)
        if row["terminated"]:
            walks.append(walk)
            walk = []
    _, td = engine("predict", 6, walks, 0.9, 0.1)
    near(td, table, TABLE)
    world = Recorder(Maze("L1", slip=0.3))
    table = monte_carlo_prediction(world, policy, **common).values
    ends = [k + 1 for k, row in enumerate(world.rows) if row["terminated"]]
    walks = [world.rows[i:j] for i, j in zip([0, *ends], ends)]
    near(engine("predict", 6, walks, 0.9, 0.1)[0]["values"], table, TABLE)
    # what the numbers are made of: returns whose mean is the library's value, and shares by their closed form
    alphas = np.random.default_rng(0).choice([0.1, 0.5], len(world.rows))
    updates = [
        {"state": row["state"], "nextState": row["nextState"], "alpha": float(a)} for row, a in zip(world.rows, alphas)
    ]
    for s in range(4):
        returns, shares = engine("madeOf", walks, updates, 0.9, s)
        near(np.mean([G for _, G in returns]), table[s], TABLE)
        assert [k for k, _ in returns] == [k for k, walk in enumerate(walks, 1) if any(r["state"] == s for r in walk)]
        mine = [row for row in updates if row["state"] == s]
        left = np.append(np.cumprod([1 - row["alpha"] for row in mine][::-1])[::-1], 1)  # of what stood there before
        for target, share in shares:
            weights = [row["alpha"] * left[k + 1] for k, row in enumerate(mine) if row["nextState"] == target]
            near(share, left[0] if target < 0 else sum(weights), TABLE)
        near(sum(share for _, share in shares), 1, TABLE)


# ------------------------------------------------------------------------------------- networks, environment, returns


def check_cartpole(engine: Engine) -> None:
    environment: Any = gymnasium.make("CartPole-v1").unwrapped
    for seed in range(3):
        rng = np.random.default_rng(seed)
        environment.reset(seed=seed)
        environment.state = rng.uniform(-0.2, 0.2, size=4) * [5, 5, 1, 5]
        start, rows = list(environment.state), []
        actions = rng.integers(2, size=60).tolist()
        for k, action in enumerate(actions):
            terminated = environment.step(action)[2]
            rows.append((list(environment.state), terminated))
            if terminated:
                actions = actions[: k + 1]
                break
        found = engine("cartpole", start, actions)
        near([row[0] for row in found], [row[0] for row in rows], TABLE)
        assert [row[1] for row in found] == [row[1] for row in rows] and rows[-1][1]
    balanced = engine("cartpole", [0, 0, 0, 0], [k % 2 for k in range(500)])
    ends = [row[1] or row[2] for row in balanced]
    assert ends.index(True) == 499 or balanced[ends.index(True)][1]


def check_returns(engine: Engine) -> None:
    rng, shape = np.random.default_rng(5), (12, 3)
    rewards, values, nexts = rng.normal(size=(3, *shape))
    terminated, truncated = rng.random((2, *shape)) < 0.2
    truncated &= ~terminated
    names = {
        "rewards": rewards,
        "values": values,
        "nextValues": nexts,
        "terminated": terminated,
        "truncated": truncated,
    }
    found = engine(
        "returns", {k: v.ravel().tolist() for k, v in names.items()} | {"copies": 3, "gamma": 0.9, "lambda": 0.8}
    )
    advantages, targets = gae(rewards, values, nexts, terminated, truncated, 0.9, 0.8)
    near(found["advantages"], advantages, TABLE)
    near(found["targets"], targets, TABLE)
    near(found["normalized"], normalize_advantages(advantages), TABLE)
    for n in range(3):  # without values nothing comes after an end, whatever its kind
        ends = np.flatnonzero(terminated[:, n] | truncated[:, n]).tolist()
        pieces = np.split(rewards[:, n], [end + 1 for end in ends])
        expected = np.concatenate([discounted_returns(piece, 0.9) for piece in pieces if len(piece)])
        near(np.reshape(found["returns"], shape)[:, n], expected, TABLE)


def row_of(network: nn.Module, values: str = "data") -> list[float]:
    """The parameters of a perceptron, or what belongs to each of them, as the engine keeps them."""
    get = lambda p: p.grad if values == "grad" else p.data
    return np.concatenate([get(p).detach().numpy().T.ravel() for p in network.parameters()]).astype(float).tolist()


def check_networks(engine: Engine) -> None:
    rng = np.random.default_rng(6)
    for network, outputs, activation in [
        (CategoricalPolicy(4, 2, hidden=(64,), activation="tanh", seed=0, output_gain=1.0), 2, "tanh"),
        (ValueNetwork(4, hidden=(32, 16), activation="relu", seed=1), 1, "relu"),
    ]:
        sizes = [4, *(layer.out_features for layer in network.network if isinstance(layer, nn.Linear))]
        rows, weights = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(9, outputs)).astype(np.float32)
        out = network.network(torch.from_numpy(rows))
        (out * torch.from_numpy(weights)).sum().backward()
        found, gradient = engine("network", sizes, activation, row_of(network), rows.ravel(), weights.ravel())
        near(found, out.detach().numpy().ravel(), NETWORK)
        near(gradient, row_of(network, "grad"), NETWORK)
    for n, m in [(4, 64), (64, 2)]:
        w = np.reshape(engine("orthogonal", n, m, 1.5), (n, m))
        gram = w @ w.T if n < m else w.T @ w
        near(gram, 1.5**2 * np.eye(min(n, m)), TABLE)


# ------------------------------------------------------------------------------------------------- whole updates


def state_of(networks: list[nn.Module], optimizer: Any, **more: Any) -> dict[str, Any]:
    """Weights and Adam's means of the networks, as the engine keeps them."""
    means = lambda network, name: np.concatenate(
        [optimizer.state[p][name].numpy().T.ravel() for p in network.parameters()]
    )
    return {
        "before": [row_of(network) for network in networks],
        "m": [means(network, "exp_avg").tolist() for network in networks],
        "v": [means(network, "exp_avg_sq").tolist() for network in networks],
        "t": int(next(iter(optimizer.state.values()))["step"]),
        **more,
    }


NAMES = {"next_observations": "next", "log_probs": "logProbs"}


def rollout_of(rollout: Any) -> dict[str, Any]:
    """The engine's form of a rollout, time first."""
    rows = ("observations", "next_observations", "actions", "log_probs", "rewards", "terminated", "truncated")
    lists = {NAMES.get(name, name): np.asarray(getattr(rollout, name)).astype(float).ravel().tolist() for name in rows}
    return lists | {"size": len(rollout), "copies": rollout.copies}


@functools.cache
def ppo_reference(minibatches: int) -> tuple[Any, ...]:
    """A run of PPO after some updates: what it holds, its next batch, and what one more update makes of it."""
    config = PPOConfig(minibatches=minibatches, clip=0.1, entropy_coefficient=0.01, learning_rate=3e-3)
    learner = Learner("CartPole-v1", config, seed=3)
    networks = [learner.networks.policy, learner.networks.value]
    for _ in range(5):
        learner.improve(prepare_batch(learner.collector.collect(), networks[1], config))
    rollout = learner.collector.collect()
    assert rollout.terminated.any()
    batch = prepare_batch(rollout, networks[1], config)
    state = state_of(networks, learner.run.optimizer, hidden=[64], activation="relu", scale=config.scale)
    orders: list[Any] = []
    shuffle = learner.run.shuffle
    again = np.random.default_rng()
    again.bit_generator.state = shuffle.bit_generator.state
    orders = [again.permutation(len(rollout)).tolist() for _ in range(config.epochs)]
    metrics = learner.improve(batch)
    settings = {"gamma": config.gamma, "lambda": config.lam, "epochs": config.epochs, "minibatches": minibatches}
    settings |= {"clip": config.clip, "entropyCoefficient": config.entropy_coefficient, "valueCoefficient": 1.0}
    settings |= {"learningRate": config.learning_rate}
    after, advantages = [row_of(network) for network in networks], batch.advantages.tolist()
    return state, rollout_of(rollout), settings, orders, after, metrics, advantages


def check_ppo(engine: Engine) -> None:
    """Advantages, six epochs of clipped steps with a used Adam, whole or in four minibatches, and the diagnosis."""
    ratios, advantages = [0.5, 0.5, 1.5, 1.5, 1.05, 0.95], [1.0, -1.0, 1.0, -1.0, 2.0, -2.0]
    expected = clip_gradient(torch.tensor(ratios), torch.tensor(advantages), 0.2)
    near(engine("clipGradient", ratios, advantages, 0.2), expected, 0)
    for minibatches in (1, 4):
        state, rollout, settings, orders, after, metrics, advantages = ppo_reference(minibatches)
        found = engine("ppo", state, rollout, settings, orders)
        near(found["advantages"], advantages, NETWORK)
        assert metrics["clip_fraction"] > 0.05  # the clip is at work
        for mine, theirs, before in zip(found["after"], after, state["before"]):
            near(mine, theirs, NETWORK)
            assert np.abs(np.subtract(theirs, before)).max() > 100 * NETWORK
        names = {
            "kl": "kl",
            "entropy": "entropy",
            "clip_fraction": "clipFraction",
            "explained_variance": "explainedVariance",
        }
        near([found["metrics"][b] for b in names.values()], [metrics[a] for a in names], 1e-4)


@contextmanager
def double_precision() -> Iterator[None]:
    """In float32 the library's own rounding is near the tolerance; and where a gradient is 0 but for rounding (the biases
    of keys), Adam blows it up to whole steps."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@functools.cache
@double_precision()
def trpo_reference(delta: float) -> tuple[Any, ...]:
    """What TRPO holds after two updates, its next rollout, and what one more update of the library makes of it."""
    config = TRPOConfig(copies=16, steps=32, value_epochs=2, value_batch_size=200)
    with open_actors("CartPole-v1", config, [4, 5, 6, 7], copies=config.copies, steps=config.steps) as actors:
        networks = [actors.policy.double(), actors.value.double()]
        optimizer, order = Adam(networks[1].parameters(), config.value_learning_rate, eps=1e-5), torch.Generator()
        for last in (False, False, True):
            rollout = actors.collector.collect()
            batch = rollout.batch()
            observations = batch.observations.double()
            if last:
                optimizer.state |= {  # the policy is not trained by Adam
                    p: {"exp_avg": p.data * 0, "exp_avg_sq": p.data * 0, "step": 0} for p in networks[0].parameters()
                }
                state = state_of(networks[::-1], optimizer, hidden=[64], activation="relu", scale=config.scale)
                state |= {name: state[name][::-1] for name in ("before", "m", "v")}
                again = torch.Generator().manual_seed(9)
                orders = [torch.randperm(len(rollout), generator=again).tolist() for _ in range(config.value_epochs)]
            advantages, targets = trpo_targets(rollout, actors.value, config)
            metrics = trpo_step(actors.policy, observations, batch.actions, advantages, replace(config, delta=delta))
            order.manual_seed(9)
            fit_values(actors.value, optimizer, observations, targets, config, order)
        assert rollout.terminated.any()
        settings = {"gamma": config.gamma, "lambda": config.lam, "damping": config.damping, "fisherEvery": 4}
        settings |= {"cgIterations": config.cg_iterations, "lineSearchFactor": 0.8, "lineSearchTries": 10}
        settings |= {"valueLearningRate": config.value_learning_rate, "valueEpochs": 2, "valueBatchSize": 200}
        return state, rollout_of(rollout), settings, orders, [row_of(network) for network in networks], metrics


def check_trpo(engine: Engine) -> None:
    """Conjugate gradients, Fisher products of both kinds of networks, and updates whose line search goes back."""
    rng = np.random.default_rng(4)
    root = rng.normal(size=(6, 6))
    A, b = root @ root.T + np.eye(6), rng.normal(size=6)
    near(engine("conjugateGradient", A, b, 20), np.linalg.solve(A, b), TABLE)
    near(engine("conjugateGradient", A, b, 3), conjugate_gradient(lambda v: A @ v, b, 3), TABLE)
    near(engine("conjugateGradient", A, b, 1), b @ b / (b @ A @ b) * b, TABLE)  # "plain direction" of the lab
    for step, delta in [([1.0, 0.0], 2.0), ([1.0, 0.0], 0.3), ([1.0, 0.0], 1e-4), ([1.0, 2.0], 2.0)]:
        found = engine("lineSearch", step, delta)
        expected = line_search(lambda s: (float(s[0] - s[1]), float(s[0] ** 2)), np.array(step), delta)
        near([*found["step"], *list(found.values())[1:]], [*expected.step, *expected[1:]], TABLE)
    for activation in ("tanh", "relu"):
        policy = CategoricalPolicy(4, 2, hidden=(8, 12), activation=activation, seed=1, output_gain=1.0).double()
        X, vector = (
            torch.from_numpy(rng.normal(size=(9, 4))),
            rng.normal(size=sum(p.numel() for p in policy.parameters())),
        )
        ends = np.cumsum([p.numel() for p in policy.parameters()])
        parts = [part.reshape(p.shape) for part, p in zip(np.split(vector, ends[:-1]), policy.parameters())]
        turned = np.concatenate([part.T.ravel() for part in parts])  # as the engine keeps the weights
        old = policy(X).detach()
        kl = lambda: policy.kl_of(old, policy(X)).mean()
        product = fisher_vector_product(kl, list(policy.parameters()), torch.from_numpy(vector), 0.1)
        for part, p in zip(product.split([p.numel() for p in policy.parameters()]), policy.parameters()):
            p.grad = part.reshape(p.shape)
        found = engine("fisher", [4, 8, 12, 2], activation, row_of(policy), X.ravel(), turned, 0.1)
        near(found, row_of(policy, "grad"), TABLE)
    backtracks = set()
    for delta in (0.01, 1.0, 5.0):
        state, rollout, settings, orders, after, metrics = trpo_reference(delta)
        found = engine("trpo", state, rollout, settings, delta, orders)
        for mine, theirs, before in zip(found["after"], after, state["before"]):
            near(mine, theirs, NETWORK)
            assert np.abs(np.subtract(theirs, before)).max() > 100 * NETWORK
        names = ("kl", "gain", "backtracks", "entropy")
        near([found["metrics"][name] for name in names], [metrics[name] for name in names], NETWORK)
        backtracks.add(metrics["backtracks"])
    assert len(backtracks) > 1


@contextmanager
def actors_of(config: Any, copies: int, steps: int) -> Iterator[tuple[Any, Adam]]:
    with open_actors("CartPole-v1", config, [4, 5, 6, 7], copies=copies, steps=steps) as actors:
        networks = [*actors.policy.parameters(), *actors.value.parameters()]
        yield actors, Adam(networks, config.learning_rate, eps=1e-5)


@functools.cache
def policy_gradient_reference(which: str) -> tuple[Any, ...]:
    if which == "a2c":
        a2c = pg.A2CConfig()
        settings = {"gamma": a2c.gamma, "lambda": a2c.lam, "normalize": True, "valueCoefficient": 1.0}
        settings |= {"entropyCoefficient": a2c.entropy_coefficient, "learningRate": a2c.learning_rate}
        with actors_of(a2c, a2c.copies, a2c.steps) as (actors, optimizer):
            for last in (False, False, False, True):
                rollout = actors.collector.collect()
                state = (
                    state_of([actors.policy, actors.value], optimizer, hidden=[64], activation="relu", scale=a2c.scale)
                    if last
                    else {}
                )
                advantages, targets = pg.a2c_targets(rollout, actors.value, a2c)
                metrics = pg.a2c_update(actors, optimizer, rollout, advantages, targets, a2c)
            return state, rollout_of(rollout), settings, [row_of(actors.policy), row_of(actors.value)], metrics
    baseline: Any = "value" if which == "baseline" else "none"
    config = pg.ReinforceConfig(baseline=baseline, normalize=which == "baseline", entropy_coefficient=0.01)
    settings = {"gamma": config.gamma, "baseline": baseline, "normalize": config.normalize, "episodes": config.episodes}
    settings |= {"entropyCoefficient": 0.01, "learningRate": config.learning_rate}
    with actors_of(config, config.episodes, 1) as (actors, optimizer):
        for last in (False, False, False, True):
            rollout, mask = actors.collector.collect_episodes(40)  # short enough that some are cut
            if last:
                names = [actors.policy, actors.value]
                if baseline == "none":  # the value network has no gradient and no state
                    optimizer.state |= {
                        p: {"exp_avg": p.data * 0, "exp_avg_sq": p.data * 0, "step": 0}
                        for p in actors.value.parameters()
                    }
                state = state_of(names, optimizer, hidden=[64], activation="tanh", scale=config.scale)
            metrics = pg.reinforce_update(actors, optimizer, rollout, mask, config)
        assert (rollout.truncated & mask).any() and (rollout.terminated & mask).any()
        order = [(t, n) for n in range(rollout.copies) for t in np.flatnonzero(mask[:, n])]  # episode after episode
        t, n = map(np.array, zip(*order))
        lists = {
            NAMES.get(name, name): getattr(rollout, name)[t, n].astype(float).ravel().tolist()
            for name in (
                "observations",
                "next_observations",
                "actions",
                "log_probs",
                "rewards",
                "terminated",
                "truncated",
            )
        }
        return (
            state,
            lists | {"size": len(t), "copies": 1},
            settings,
            [row_of(actors.policy), row_of(actors.value)],
            metrics,
        )


def check_policy_gradient(engine: Engine) -> None:
    for which in ("a2c", "baseline", "none"):
        state, rollout, settings, after, metrics = policy_gradient_reference(which)
        found = engine("policyGradient", "a2cUpdate" if which == "a2c" else "reinforceUpdate", state, rollout, settings)
        near(found["after"][0], after[0], NETWORK)
        near(found["metrics"]["entropy"], metrics["entropy"], NETWORK)
        if which != "none":
            near(found["after"][1], after[1], NETWORK)
        near(engine("openedScale", 0.97), PPOConfig(gamma=0.97).scale, TABLE)
        assert np.abs(np.subtract(after[0], state["before"][0])).max() > 100 * NETWORK


@functools.cache
def dqn_reference(double: bool, loss: Any) -> tuple[Any, ...]:
    config, rng = DQNConfig(double=double, loss=loss, max_gradient_norm=None), np.random.default_rng(8)
    online, target = (QNetwork(4, 2, hidden=(128,), seed=seed, scale=100.0) for seed in (0, 1))
    optimizer = Adam(online.parameters(), config.learning_rate)
    for last in (False, False, False, True):
        rows = {
            "observations": rng.normal(size=(64, 4)),
            "actions": rng.integers(2, size=64),
            "returns": 3 * rng.normal(size=64),
        }
        rows |= {
            "next_observations": rng.normal(size=(64, 4)),
            "discounts": 0.99 ** rng.integers(1, 9, size=64) * (rng.random(64) < 0.8),
        }
        batch = Batch(
            **{k: torch.tensor(v, dtype=torch.int64 if k == "actions" else torch.float32) for k, v in rows.items()}
        )
        if last:
            state = {k: v[0] for k, v in state_of([online], optimizer).items() if k != "t"}
            state |= {"t": 3, "online": state.pop("before"), "target": row_of(target), "sizes": [4, 128, 2]}
        metrics = dqn_update(online, target, optimizer, batch, config)
    data = {
        "size": 64,
        "actions": rows["actions"].tolist(),
        "observations": batch.observations.numpy().ravel().tolist(),
    }
    data |= {
        "next": batch.next_observations.numpy().ravel().tolist(),
        "returns": batch.returns.tolist(),
        "discounts": batch.discounts.tolist(),
    }
    settings = {
        "double": double,
        "loss": loss,
        "learningRate": config.learning_rate,
        "returnScale": 100,
        "tau": config.tau,
    }
    return state, data, settings, row_of(online), metrics


def check_dqn(engine: Engine) -> None:
    for double, loss in ((True, "huber"), (False, "squared")):
        state, data, settings, after, metrics = dqn_reference(double, loss)
        found = engine("dqn", state, data, settings)
        near(found["online"], after, NETWORK)
        near(found["metrics"]["targetValue"], metrics["target_value"], NETWORK)
        near(found["target"], 0.9 * np.array(state["target"]) + 0.1 * np.array(after), NETWORK)
    chances, moments = linear_decay(1.0, 0.05, 4000), [0, 1, 1999, 3998, 3999, 4000, 9999]
    near(engine("epsilons", moments), [chances(step + 1) for step in moments], TABLE)
    rng, n = np.random.default_rng(9), 3
    window, steps, expected = NStepWindow(1, 4, n, 0.9), [], []
    for _ in range(40):
        observation, following = rng.normal(size=(2, 4)).astype(np.float32)
        action, reward, (terminated, truncated) = (
            int(rng.integers(2)),
            float(rng.normal()),
            (rng.random(2) < 0.15).tolist(),
        )
        truncated &= not terminated
        step = VectorStep(
            observations=following[None],
            rewards=np.array([reward]),
            terminated=np.array([terminated]),
            truncated=np.array([truncated]),
            next_observations=following[None],
        )
        rows = zip(*window.push(observation[None], np.array([action]), step))
        expected.append(sorted((*o, a, g, d) for o, a, g, _, d in rows))
        steps.append(
            [
                observation.tolist(),
                action,
                {"reward": reward, "terminated": terminated, "truncated": truncated},
                following.tolist(),
            ]
        )
    found = engine("windows", n, 0.9, steps)
    for mine, theirs in zip(found, expected):
        near(
            sorted((*row["observation"], row["action"], row["G"], row["discount"]) for row in mine),
            theirs or np.zeros((0, 7)),
            TABLE,
        )


# ------------------------------------------------------------------------------------------------ language model


@functools.cache
def model() -> Transformer:
    """The first start that the laboratory ships, in the library."""
    with Engine() as engine:
        weights = np.array(engine("weights", 0))
    made, at = Transformer(CharTokenizer(TASK.alphabet), SIZE, seed=0), 0
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            part = weights[at : (at := at + parameter.numel())]
            turned = parameter.dim() == 2 and not name.startswith("embed")
            shape = parameter.shape[::-1] if turned else parameter.shape
            array = part.reshape(shape).T if turned else part.reshape(shape)
            parameter.copy_(torch.tensor(np.ascontiguousarray(array), dtype=torch.float32))
    assert at == len(weights) == 27_648
    near(flat(made), weights, 0)
    return made


def exact_copy() -> Transformer:
    """The model in float64; to be called in double precision."""
    made = Transformer(CharTokenizer(TASK.alphabet), SIZE, seed=0)
    made.load_state_dict(model().state_dict())
    return made


@functools.cache
@double_precision()
def language_reference() -> tuple[Any, ...]:
    """Answers of the library's model, its logits, and the gradient of GRPO's loss with many ratios out of range."""
    m = exact_copy()
    prompts = TASK.prompts(6, np.random.default_rng(5), "train")
    batch = generate(m, [p for p in prompts for _ in range(8)], max_new_tokens=TASK.max_new_tokens, seed=3)
    rewards = torch.tensor(
        [TASK.reward(*row) for row in zip(batch.prompts, batch.texts, batch.finished.tolist())]
    ).view(6, 8)
    rewards[2, 0] = 0.5
    advantages = group_advantages(rewards)
    noise = 0.25 * torch.randn(batch.log_probs.shape, generator=torch.Generator().manual_seed(1))
    old = (batch.log_probs + noise) * batch.mask  # as if a slightly other policy had sampled
    log_prob, _ = completion_log_probs(m, batch)
    m.zero_grad()
    grpo_loss(log_prob, old, advantages.view(-1), batch.mask, clip=(0.2, 0.2), normalize="token").backward()
    gradient = flat(m, "grad")
    with torch.no_grad():
        tokens, mask = torch.cat([batch.prompt_tokens, batch.tokens], 1), torch.cat([batch.prompt_mask, batch.mask], 1)
        logits = m(tokens, mask).double().numpy()
    learning = (advantages.view(-1) != 0)[:, None] & batch.mask
    outside = int((((log_prob - old).exp() - 1).abs() > 0.2).logical_and(learning).sum())
    assert 0.2 < outside / learning.sum() < 0.8
    lengths = batch.lengths.tolist()
    answers = [{"tokens": t[:n].tolist(), "logProbs": o[:n].tolist()} for t, o, n in zip(batch.tokens, old, lengths)]
    groups = [
        {"prompt": p, "answers": answers[8 * k : 8 * k + 8], "advantages": advantages[k].tolist()}
        for k, p in enumerate(prompts)
    ]
    texts = [tokens[k, : 6 + n].tolist() for k, n in enumerate(lengths)]
    return (
        flat(m).tolist(),
        texts,
        [row[: 6 + n] for row, n in zip(logits, lengths)],
        groups,
        sum(lengths),
        gradient,
        outside,
    )


def check_transformer(engine: Engine) -> None:
    theta, texts, logits, groups, count, gradient, outside = language_reference()
    for found, expected in zip(engine("logits", theta, texts), logits):
        near(found, expected, NETWORK)
    found, outliers = engine("grpoGradient", theta, groups, 0.2, count)
    assert outliers == outside
    assert np.linalg.norm(np.subtract(found, gradient)) < NETWORK * np.linalg.norm(gradient)


@functools.cache
@double_precision()
def grpo_reference() -> tuple[Any, ...]:
    """A run of GRPO after two updates, its next answers, and what one more update makes of it."""
    m = exact_copy()
    config = GRPOConfig(
        updates=10,
        prompts=6,
        group=8,
        epochs=3,
        minibatches=1,
        learning_rate=3e-3,
        warmup=1,
        clip=(0.05, 0.05),
        max_gradient_norm=0.1,
    )
    seen: dict[str, Any] = {}
    run = iterate_grpo(m, TASK, config, seed=11, watch=lambda batch, rewards: seen.update(batch=batch, rewards=rewards))
    for _ in range(2):
        record = next(run)
    adam = record.state()["optimizer"]["state"]
    names = [name for name, _ in m.named_parameters()]
    turn = lambda name, array: (array.T if array.ndim == 2 and not name.startswith("embed") else array).ravel()
    means = [
        np.concatenate([turn(n, adam[k][key].numpy()) for k, n in enumerate(names)]).tolist()
        for key in ("exp_avg", "exp_avg_sq")
    ]
    state = {"theta": flat(m).tolist(), "m": means[0], "v": means[1], "t": int(adam[0]["step"])}
    metrics = next(run).metrics
    assert metrics["clipped"] > 0.02 and metrics["gradient_norm"] > 0.2 and float(seen["rewards"].std()) > 0
    batch = seen["batch"]
    rows = zip(batch.prompts, batch.tokens, batch.log_probs, batch.lengths.tolist())
    groups = [
        {"prompt": prompt, "answers": [{"tokens": t[:n].tolist(), "logProbs": o[:n].tolist()} for _, t, o, n in group]}
        for prompt, group in groupby(rows, key=lambda row: row[0])
    ]
    settings = {"updates": 10, "epochs": 3, "minibatches": 1, "learningRate": 3e-3, "warmup": 1, "finalShare": 0.1}
    settings |= {"clip": 0.05, "scale": "std", "maxGradientNorm": 0.1}
    return state, groups, settings, flat(m), seen["rewards"].tolist()


def check_grpo(engine: Engine) -> None:
    """Rewards, advantages, three epochs over six groups with ratios out of range, the shortened gradient, a used Adam."""
    rewards = [[1.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.4, 0.4]]
    for scale in ("std", "none"):
        near(engine("advantages", rewards, scale), group_advantages(np.array(rewards), scale), TABLE)
    state, groups, settings, after, rewards = grpo_reference()
    found = engine("grpoUpdate", state, groups, settings, 2)
    near(found["rewards"], rewards, 0)
    near(found["after"], after, NETWORK)
    assert np.abs(after - state["theta"]).max() > 100 * NETWORK


def check_worlds(engine: Engine) -> None:
    """What is drawn, painted, walked and broken off in the small worlds."""
    orders = [tuple(order) for order in engine("orders", 3, 6000)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 6 and ((counts - 1000) ** 2 / 1000).sum() < 30  # 5 degrees of freedom: once in 70,000
    case, world = {"layout": ["S..", ".T.", "..G"], "slip": 0.4}, Maze(["S..", ".T.", "..G"], slip=0.4).to_mdp(0.9)
    for s, a in ((0, 3), (1, 1), (5, 0)):
        met = np.array(engine("walked", case, s, a, 4000))
        assert np.abs(met / 4000 - world.transitions[s, a]).max() < 5 * (0.25 / 4000) ** 0.5
    layout, destinations, rewards = engine(
        "painted", ["S..", ".T."], [[5, "G"], [1, "#"], [2, "S"], [2, "."], [4, "."]]
    )
    assert layout == [".#S", "..G"] and rewards == [0, 0, 0, 0, 0, 10]
    assert destinations == engine("moves", {"layout": layout, "slip": 0})
    for method in ("Monte Carlo", "SARSA(λ)"):
        assert engine("brokenOff", method) == [1, 3, 0]  # nothing of it is left for the next episode
    assert engine("tied", [3, 1, 0, 2, 3, 1]) == [3, 1, 0, 2, 3, 1]  # where all actions tie the old one stays
    walks = [
        [{"state": s, "action": 0, "reward": r} for s, r in walk] for walk in ([(0, 0), (1, 0), (0, 4)], [(0, -8)])
    ]
    near(engine("means", 2, walks, 0.5), [(1 + 4 - 8) / 3, 2], TABLE)


def check_runs(engine: Engine) -> None:
    """What runs do between their updates: starts, ends, memories, exploration, radii, what a page shows of them."""
    starts = np.array(engine("resets", 500))
    assert -0.05 <= starts.min() < -0.045 and 0.045 < starts.max() <= 0.05
    assert engine("lastStep", [0, 0, 0, 0]) == [False, True] and engine("lastStep", [0, 0, 0.3, 1]) == [True, False]
    shown = engine("progress", list(range(400, 520)))
    assert shown["episodes"] == 120 and shown["mean"] == pytest.approx(np.mean(range(500, 520))) and shown["solved"]
    copies, steps = 2, 150
    observations, following, ends, lengths, size = engine("rollouts", copies, steps)
    assert size == copies * 500
    observations, following = (np.reshape(x, (steps, copies, 4)) for x in (observations, following))
    ended = np.reshape(ends, (steps, copies)).astype(bool)
    assert len(lengths) == ended.sum() > 5
    found = [np.diff([-1, *np.flatnonzero(ended[:, n])]) for n in range(copies)]
    assert sorted(np.concatenate(found)) == sorted(lengths)
    fresh, going = observations[1:][ended[:-1]], observations[1:][~ended[:-1]]
    assert np.abs(fresh).max() <= 0.05  # after an end a copy starts anew; else it goes on from where it came to
    near(going, following[:-1][~ended[:-1]], TABLE)
    near(engine("shares", 10, 4, 0.2), [learning_rate_share(k, 10, 4, 0.2) for k in range(10)], TABLE)
    m, answers = model(), engine("shown", {"updates": 1, "prompts": 1, "group": 2, "held": 2})
    greedy = generate(m, [a["prompt"] for a in answers], max_new_tokens=TASK.max_new_tokens, greedy=True, seed=0)
    assert [a["text"] for a in answers] == greedy.texts and {split_of(a["prompt"]) for a in answers} == {"eval"}
    for _, pair in engine("pairs", 200):
        assert pair[0]["text"] != pair[1]["text"]
        assert all(answer["ended"] == (len(answer["text"]) < TASK.max_new_tokens) for answer in pair)
    assert engine("remembered", 3, 5) == [3, 4, 2]
    assert 15 < engine("explored", 1)[0] < 35 != engine("explored", 0)[1] != engine("explored", 1)[1]
    near(engine("radii", [0, 20_000, 80_000], {}), [0.05, 0.05 + (0.001 - 0.05) / 4, 0.001], TABLE)
    near(engine("radii", [0, 80_000], {"delta": 0.0005}), [0.0005, 0.0005], TABLE)


def check_sampling(engine: Engine) -> None:
    """Sampled tokens come as often as their probabilities say, with the log-probabilities that a fresh reading gives."""
    theta = language_reference()[0]
    prompt = TASK.prompts(1, np.random.default_rng(0), "eval")[0]
    answers = engine("generate", theta, prompt, 24, 1) + engine("generate", theta, prompt, 24, 2)
    m, tokenizer = model(), CharTokenizer(TASK.alphabet)
    for answer in answers:
        assert answer["text"] == tokenizer.decode(answer["tokens"]) and answer["ended"] == (answer["tokens"][-1] == 1)
        tokens = torch.tensor([tokenizer.encode(prompt) + answer["tokens"]])
        with torch.no_grad():
            rows = torch.log_softmax(m(tokens, torch.ones_like(tokens, dtype=torch.bool)), -1)[0]
        expected = [float(rows[5 + k, token]) for k, token in enumerate(answer["tokens"])]
        near(answer["logProbs"], expected, NETWORK)
    # how far they are from a reference with other weights, the sum over their tokens
    other = copy.deepcopy(m)
    with torch.no_grad():
        for weights in other.parameters():
            weights.mul_(0.9)
        tokens = [torch.tensor([tokenizer.encode(prompt) + answer["tokens"]]) for answer in answers[:5]]
        rows = [torch.log_softmax(other(row, torch.ones_like(row, dtype=torch.bool)), -1)[0] for row in tokens]
        reference = [sum(float(row[5 + k, t]) for k, t in enumerate(a["tokens"])) for row, a in zip(rows, answers)]
    nats = [sum(answer["logProbs"]) - there for answer, there in zip(answers, reference)]
    near(engine("nats", 0.9 * np.asarray(theta), prompt, answers[:5]), nats, 1e-4)
    # surprise minus entropy has mean 0 where tokens are drawn from the distribution itself
    with torch.no_grad():
        first = torch.softmax(
            m(torch.tensor([tokenizer.encode(prompt)]), torch.ones(1, 6, dtype=torch.bool))[0, -1], -1
        )
    surprise = -np.mean([answer["logProbs"][0] for answer in answers])
    assert abs(surprise - float(entropy(first.numpy().astype(float) / float(first.sum())))) < 0.6
    assert len({tuple(answer["tokens"]) for answer in answers}) > 5


def check_task(engine: Engine) -> None:
    for digits in (5, 12):
        task, rng = CheckDigit(digits=digits), np.random.default_rng(digits)
        prompts = task.prompts(30, rng, "train") + task.prompts(30, rng, "eval")
        texts = ["=6", "12=0", "=6=7", "6", "", "=", "=66", "3=6 "]
        for prompt, (work, answer, split, rewards, numbers, held) in zip(prompts, engine("task", prompts, texts)):
            assert (work, answer, split) == (task.work(prompt), task.answer(prompt), split_of(prompt))
            assert rewards == [task.reward(prompt, text, True) for text in texts]
            assert held == [int(answer in text) for text in texts]
            last = [re.findall(r"\d+", text) for text in texts]
            assert numbers == [int(bool(found) and int(found[-1]) == int(answer)) for found in last]


CHECKS: dict[str, Callable[[Engine], None]] = {
    name.removeprefix("check_"): value for name, value in list(globals().items()) if name.startswith("check_")
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_engine_computes_what_the_library_computes(engine: Engine, name: str) -> None:
    CHECKS[name](engine)


def test_the_engine_explores_as_often_as_epsilon_says_and_shares_ties(engine: Engine) -> None:
    row = [1.0, 3.0, 3.0, 2.0]
    assert sum(engine("choices", row, 0, 1000, 1)[1:3]) == 1000
    for epsilon in (0.3, 1.0):
        expected = epsilon_greedy_probabilities(np.array(row), epsilon)
        counts = np.array(engine("choices", row, epsilon, 10_000, 2))
        assert np.abs(counts / 10_000 - expected).max() < 5 * (0.25 / 10_000) ** 0.5


# Faults that a hand could make, and the check that must notice each.
MUTANTS = [
    ("random", "Math.sqrt(-2 *", "Math.sqrt(-1 *", "random"),
    ("maze", "this.slip / 2, to(SIDES[a][1])", "this.slip / 2, to(SIDES[a][0])", "planners"),
    ("maze", 'return this.cells[target] === "#" ? s : target;', "return target;", "planners"),
    ("tabular", "if (maze.terminal(s)) return 0;", "", "planners"),
    ("tabular", "walk.findIndex(", "walk.findLastIndex(", "prediction"),
    ("tabular", "(1 - alpha) * share", "share", "prediction"),
    ("tabular", "row[next] -= gamma * p", "row[next] -= p", "planners"),
    ("tabular", "this.gamma * best(this.Q, nextState)", "this.gamma * this.Q[4 * nextState]", "learners"),
    ("tabular", "this.Q[4 * nextState + nextAction]", "best(this.Q, nextState)", "learners"),
    ("tabular", "first.set(here, G = r + this.gamma * G);", "first.has(here) || first.set(here, r); ", "learners"),
    ("tabular", "traces[i] *= gamma * this.lambda;", "traces[i] *= this.lambda;", "traces"),
    ("tabular", "if (terminated) this.forgetEpisode();", "", "traces"),
    ("tabular_policy", "((a === action) - pi", "((a === action) - 0.25 * pi", "pull"),
    ("tabular_policy", "t + 1 < walk.length ? gamma * returns[t + 1]", "t + 1 < walk.length ? returns[t + 1]", "pull"),
    ("reward_model", "push = 1 / (1 + Math.exp(margin))", "push = 1 / (1 + Math.exp(-margin))", "judge"),
    ("reward_model", "* x / (x + y)", "* y / (x + y)", "people"),
    ("grpo", "sum + logProbs[n] - reference", "sum - logProbs[n] + reference", "sampling"),
    ("cartpole", "0.05 * turn * turn * sin", "0.5 * turn * turn * sin", "cartpole"),
    (
        "returns",
        "goesOn = i + copies < size && !terminated[i] && !truncated[i]",
        "goesOn = i + copies < size && !terminated[i]",
        "returns",
    ),
    (
        "returns",
        "(terminated[i] ? 0 : gamma * nextValues[i])",
        "(terminated[i] || truncated[i] ? 0 : gamma * nextValues[i])",
        "returns",
    ),
    ("network", "dY[i] *= 1 - Y[i] * Y[i]", "dY[i] *= 1 - Y[i]", "networks"),
    ("network", "if (Y[i] <= 0) dY[i] = 0;", "dY[i] *= 1;", "networks"),
    ("network", "Math.sqrt(v[i] / c2)", "Math.sqrt(v[i])", "ppo"),
    ("ppo", "advantage < 0 && ratio < 1 - epsilon", "advantage < 0 && ratio > 1 + epsilon", "ppo"),
    (
        "ppo",
        "clipGradient(ratio, advantages[i], config.clip) * ratio",
        "clipGradient(ratio, advantages[i], config.clip)",
        "ppo",
    ),
    ("network", "dY[i] = slope * (dY[i] + through[i]);", "dY[i] = slope * dY[i] + through[i];", "trpo"),
    ("trpo", "probabilities[a] * (moved[a] - mean)", "probabilities[a] * moved[a]", "trpo"),
    ("trpo", "Math.sqrt(2 * delta / curvature)", "Math.sqrt(delta / curvature)", "trpo"),
    ("trpo", "gain > 0 && kl <= delta", "gain > 0", "trpo"),
    ("trpo", "size / before, direction", "before / size, direction", "trpo"),
    ("trpo", "(_, k) => k * config.fisherEvery", "(_, k) => k", "trpo"),
    ("rollout", "i + copies < size && !terminated[i] && !truncated[i] ?", "i + copies < size ?", "policy_gradient"),
    ("policy_gradient", "p * (log + entropy)", "p * log", "policy_gradient"),
    ("policy_gradient", "scale = 1 / (1 - config.gamma)", "scale = 1", "policy_gradient"),
    ("dqn", "steps / (epsilonSteps - 1)", "steps / epsilonSteps", "dqn"),
    ("dqn", "discount: terminated ? 0 : window.discount", "discount: over ? 0 : window.discount", "dqn"),
    ("dqn", "bestAction(nextQOnline ?? nextQ, i * ACTIONS)", "bestAction(nextQ, i * ACTIONS)", "dqn"),
    ("transformer", "(mean + kept.hat[x + j] * along) / D", "mean / D", "transformer"),
    ("transformer", "(dP[depth[j]] - mean) * scale", "dP[depth[j]] * scale", "transformer"),
    ("transformer", "parent < 0 ? 0 : this.depth[parent] + 1", "i", "transformer"),
    ("transformer", "(left -= Math.exp(model.logProbs[at + token])) >= 0", "(left -= 1 / V) >= 0", "sampling"),
    ("grpo", "A < 0 && ratio < 1 - clip) return;", "A < 0 && ratio < 1) return;", "transformer"),
    ("grpo", "deviation(rewards, m) + epsilon", "1 + epsilon", "grpo"),
    ("grpo", "config.maxGradientNorm)", "null)", "grpo"),
    ("random", "below(rng, i + 1)", "below(rng, i)", "worlds"),
    ("maze", "draw < this.slip / 2 ? 0 : 1", "draw < this.slip ? 0 : 1", "worlds"),
    ("maze", '{ this.cells[this.start] = "."; }', "{}", "worlds"),
    ("tabular", "if (!over) this.learner.forgetEpisode();", "", "worlds"),
    ("tabular", "> Q[4 * s + a] + 1e-10", ">= Q[4 * s + a]", "worlds"),
    ("tabular_policy", "(G[t] - this.values[state])", "(G[0] - this.values[state])", "worlds"),
    ("cartpole", "truncated && !terminated", "truncated", "runs"),
    ("cartpole", "0.1 * this.rng() - 0.05", "0.1 * this.rng()", "runs"),
    ("rollout", "lengths.slice(-20)", "lengths.slice(0, 20)", "runs"),
    ("rollout", "push(environment.steps); environment.reset();", "push(environment.steps);", "runs"),
    ("grpo", "(update + 1) / Math.max(1, warmup)", "update / Math.max(1, warmup)", "runs"),
    ("grpo", 'task.prompt(draw, "eval")', 'task.prompt(draw, "train")', "runs"),
    ("text_tasks", "+text.includes(digit)", '+text.includes("=")', "task"),
    ("transformer", "logProbs[at + v] > model.logProbs", "logProbs[at + v] < model.logProbs", "runs"),
    ("dqn", "(this.place + 1) % this.capacity", "this.place + 1", "runs"),
    ("dqn", "rng() < epsilon ?", "rng() > epsilon ?", "runs"),
    ("trpo", "(Math.min(deltaEnd, delta) - delta)", "(deltaEnd - delta)", "runs"),
    ("text_tasks", 'text.lastIndexOf("=")', 'text.indexOf("=")', "task"),
]


@pytest.mark.parametrize(("module", "old", "new", "check"), MUTANTS, ids=[f"{m[0]}-{k}" for k, m in enumerate(MUTANTS)])
def test_a_fault_in_the_engine_is_noticed(module: str, old: str, new: str, check: str) -> None:
    with Engine(module, old, new) as engine, pytest.raises(AssertionError):
        CHECKS[check](engine)


def test_each_module_of_the_engine_is_checked_and_short() -> None:
    pages = {"lab", "weights", "weights_twelve", "worker", "page", "maze_picture", "walks", "python"}
    files = {path.stem for path in LAB.glob("*.js") if not path.stem.startswith("lab_")} - pages
    assert files == set(MODULES) == {module for module, *_ in MUTANTS}
    lines = sum(source(name).count("\n") for name in [*MODULES, "lab", "worker"])
    assert lines <= 2000


def test_the_weights_are_what_the_tool_says(engine: Engine) -> None:
    """The stored starts have the model's size, are finite, and answer at once: what GRPO is to change."""
    starts = json.loads(re.search(r"\[5\] = (.*);\n$", source("weights"), re.DOTALL)[1])
    assert SIZE == TransformerConfig(width=32, layers=2, heads=4, max_length=40)
    for k, start in enumerate(starts):
        theta = np.array(engine("weights", k))
        assert len(theta) == 27_648 and np.isfinite(theta).all() and 0.05 < start["right"] < 0.4
