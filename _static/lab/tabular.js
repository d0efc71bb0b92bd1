"use strict";
lab.define("tabular", function (use) {
  const { below } = use("random");

  // ------------------------------------------------------------------ with the model: dynamic programming

  /** q(s, a) = sum over s' of P(s' | s, a) (R + gamma V(s')); a terminal cell is worth 0. */
  function qFromValues(maze, values, gamma, s, a) {
    if (maze.terminal(s)) return 0;
    let q = 0;
    for (const [p, next] of maze.outcomes(s, a)) q += p * (maze.rewards[next] + gamma * values[next]);
    return q;
  }

  /** All of them, (S, 4). */
  const qTable = (maze, values, gamma) =>
    Float64Array.from({ length: 4 * maze.nStates }, (_, i) => qFromValues(maze, values, gamma, i >> 2, i & 3));

  const best = (Q, s) => Math.max(Q[4 * s], Q[4 * s + 1], Q[4 * s + 2], Q[4 * s + 3]);
  function greedy(Q, s) {
    let a = 0;
    for (let b = 1; b < 4; b++) if (Q[4 * s + b] > Q[4 * s + a] + 1e-12) a = b;
    return a;
  }

  /** One backup, the equation of one cell: its value by a policy (S, 4), or by the best action where the policy is null. */
  function backup(maze, values, gamma, s, policy = null) {
    const q = [0, 1, 2, 3].map(a => qFromValues(maze, values, gamma, s, a));
    const value = policy ? q.reduce((sum, x, a) => sum + policy[4 * s + a] * x, 0) : Math.max(...q);
    return { q, value };
  }

  /** One sweep: every cell at once, from the old values. */
  function sweep(maze, values, gamma, policy = null) {
    return values.map((_, s) => backup(maze, values, gamma, s, policy).value);
  }

  /** Value iteration: sweep until the values are within the tolerance of the optimal ones. */
  function valueIteration(maze, gamma, tolerance = 1e-10) {
    let values = new Float64Array(maze.nStates);
    for (let iterations = 1; ; iterations++) {
      const next = sweep(maze, values, gamma), change = largestChange(values, next);
      values = next;
      if (change * gamma <= tolerance * (1 - gamma) || iterations === 100000) return { values, iterations };
    }
  }

  const largestChange = (old, now) => old.reduce((most, v, s) => Math.max(most, Math.abs(now[s] - v)), 0);

  /** The values of a policy, one action a cell, exactly: (I - gamma P) V = r, solved by elimination. Needs gamma below 1. */
  function policyEvaluation(maze, policy, gamma) {
    const n = maze.nStates;
    const A = Array.from({ length: n }, (_, s) => {
      const row = new Float64Array(n + 1);
      row[s] = 1;
      if (!maze.terminal(s)) for (const [p, next] of maze.outcomes(s, policy[s])) {
        row[next] -= gamma * p;
        row[n] += p * maze.rewards[next];
      }
      return row;
    });
    for (let k = 0; k < n; k++)                              // the diagonal dominates: no pivoting is needed
      for (let i = 0; i < n; i++) {
        const factor = i === k ? 0 : A[i][k] / A[k][k];
        if (factor) for (let j = k; j <= n; j++) A[i][j] -= factor * A[k][j];
      }
    return Float64Array.from(A, (row, s) => row[n] / row[s]);
  }

  /** One round of policy iteration: the policy's values, and the policy that is greedy on them; a tie keeps the old action. */
  function policyImprovement(maze, policy, gamma) {
    const values = policyEvaluation(maze, policy, gamma), Q = qTable(maze, values, gamma);
    const better = policy.map((a, s) => best(Q, s) > Q[4 * s + a] + 1e-10 ? greedy(Q, s) : a);
    return { values, policy: better, stable: better.every((a, s) => a === policy[s]) };
  }

  function policyIteration(maze, gamma) {
    let policy = new Uint8Array(maze.nStates);
    for (let iterations = 1; ; iterations++) {
      const round = policyImprovement(maze, policy, gamma);
      if (round.stable) return { ...round, iterations };
      policy = round.policy;
    }
  }

  // ------------------------------------------------------------------ without the model: learning from steps

  /** An action by epsilon-greedy; greedy actions that tie are drawn with equal chances. */
  function epsilonGreedy(Q, s, epsilon, rng) {
    if (rng() < epsilon) return below(rng, 4);
    const top = best(Q, s), ties = [0, 1, 2, 3].filter(a => Q[4 * s + a] === top);
    return ties[below(rng, ties.length)];
  }

  // Each learner moves Q(s, a) by alpha toward a target. They differ in the target and in when it is known:
  // Q-learning at once, SARSA when the next action is chosen, Monte Carlo at the end of the episode. SARSA(lambda)
  // hands each error on to the steps before it, by traces that fade with gamma lambda.

  class Learner {
    constructor(nStates, { gamma, alpha }) { Object.assign(this, { gamma, alpha, Q: new Float64Array(4 * nStates), pending: [] }); }
    /** Learn from a step; nextAction is what will be done in the next state, null at an end. */
    learn(step, nextAction) { throw new Error("a learner says how"); }
    forgetEpisode() { this.pending.length = 0; }
  }

  class QLearning extends Learner {
    learn({ state, action, reward, nextState, terminated }) {
      const here = 4 * state + action;
      this.Q[here] += this.alpha * (reward + (terminated ? 0 : this.gamma * best(this.Q, nextState)) - this.Q[here]);
    }
  }

  class Sarsa extends Learner {
    learn({ state, action, reward, nextState, terminated }, nextAction) {
      const here = 4 * state + action;
      this.Q[here] += this.alpha * (reward + (terminated ? 0 : this.gamma * this.Q[4 * nextState + nextAction]) - this.Q[here]);
    }
  }

  class MonteCarlo extends Learner {
    learn({ state, action, reward, terminated }) {
      this.pending.push([4 * state + action, reward]);
      if (!terminated) return;
      const first = new Map();                               // the return of each first visit
      let G = 0;
      for (const [here, r] of this.pending.reverse()) first.set(here, G = r + this.gamma * G);
      for (const [here, G] of first) this.Q[here] += this.alpha * (G - this.Q[here]);
      this.forgetEpisode();
    }
  }

  class SarsaLambda extends Learner {
    constructor(nStates, settings) { super(nStates, settings); this.lambda = settings.lambda; this.traces = new Float64Array(4 * nStates); }
    learn({ state, action, reward, nextState, terminated }, nextAction) {
      const { Q, traces, gamma } = this, here = 4 * state + action;
      const delta = reward + (terminated ? 0 : gamma * Q[4 * nextState + nextAction]) - Q[here];
      traces[here] += 1;
      for (let i = 0; i < Q.length; i++) { Q[i] += this.alpha * delta * traces[i]; traces[i] *= gamma * this.lambda; }
      if (terminated) this.forgetEpisode();
    }
    forgetEpisode() { this.traces.fill(0); }
  }

  const LEARNERS = { "Q-learning": QLearning, SARSA: Sarsa, "Monte Carlo": MonteCarlo, "SARSA(λ)": SarsaLambda };

  /** One run of a learner in a maze: it acts epsilon-greedily and learns; an episode of `limit` steps is broken off. */
  class Run {
    constructor(maze, method, settings, rng) {
      Object.assign(this, { maze, method, settings, rng, learner: new LEARNERS[method](maze.nStates, settings) });
      Object.assign(this, { steps: 0, episodes: 0 });
      this.begin();
    }
    begin() { this.state = this.maze.start; this.age = 0; this.action = this.act(this.state); }
    act(s) { return epsilonGreedy(this.learner.Q, s, this.settings.epsilon, this.rng); }
    step() {
      const step = this.maze.step(this.state, this.action, this.rng), over = step.terminated;
      // the action that comes next is drawn before learning, as SARSA asks; it is the one then taken
      const nextAction = over ? null : this.act(step.nextState);
      this.learner.learn(step, nextAction);
      this.steps++;
      if (over || ++this.age >= (this.settings.limit ?? 500)) {
        if (!over) this.learner.forgetEpisode();
        this.episodes++;
        this.begin();
      } else { this.state = step.nextState; this.action = nextAction; }
      return step;
    }
  }

  /** The values of the policy that walked, from its steps: the mean of the returns that followed (first visits). */
  function monteCarloPrediction(nStates, walks, gamma) {
    const values = new Float64Array(nStates), counts = new Int32Array(nStates);
    for (const walk of walks) {
      const first = new Map();
      let G = 0;
      for (const { state, reward } of [...walk].reverse()) first.set(state, G = reward + gamma * G);
      for (const [s, G] of first) values[s] += (G - values[s]) / ++counts[s];
    }
    return { values, counts };
  }

  /** The same from one step and the next guess: V(s) += alpha (r + gamma V(s') - V(s)), step by step through the walks. */
  function tdPrediction(nStates, walks, { gamma, alpha, passes = 1, values = new Float64Array(nStates) }) {
    for (let pass = 0; pass < passes; pass++)
      for (const walk of walks)
        for (const { state, reward, nextState, terminated } of walk)
          values[state] += alpha * (reward + (terminated ? 0 : gamma * values[nextState]) - values[state]);
    return values;
  }

  /** What Monte Carlo's V(s) is the mean of: [walk, return] of each walk's first visit, walks counted from 1. */
  function returnsAfter(walks, gamma, s) {
    return walks.flatMap((walk, k) => {
      const at = walk.findIndex(({ state }) => state === s);
      return at < 0 ? [] : [[k + 1, walk.slice(at).reduceRight((G, { reward }) => reward + gamma * G, 0)]];
    });
  }

  /** What V(s) is made of after TD's updates, [{state, nextState, alpha}]: a share of each next state's targets, and of the first guess (-1). */
  function tdShares(updates, s) {
    const shares = new Map([[-1, 1]]);
    for (const { nextState, alpha } of updates.filter(({ state }) => state === s)) {
      for (const [next, share] of shares) shares.set(next, (1 - alpha) * share);
      shares.set(nextState, (shares.get(nextState) ?? 0) + alpha);
    }
    return shares;
  }

  return { qFromValues, qTable, best, greedy, backup, sweep, largestChange, valueIteration, policyEvaluation, policyImprovement,
    policyIteration, epsilonGreedy, QLearning, Sarsa, MonteCarlo, SarsaLambda, LEARNERS, Run, monteCarloPrediction, tdPrediction, returnsAfter, tdShares };
});
