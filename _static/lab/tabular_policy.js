"use strict";
lab.define("tabular_policy", function (use) {
  const { logSoftmax } = use("network");

  // A policy as a table of logits, (S, 4): the policy gradient where one can look at every number.

  /** pi(a | s) of every cell, (S, 4). */
  const probabilities = theta => logSoftmax(new Float64Array(theta.length), theta, 0, theta.length / 4, 4).map(Math.exp);

  /** What followed each step of a walk: G_t = r_t + gamma G_{t+1}. */
  function returnsOf(walk, gamma) {
    const returns = new Float64Array(walk.length);
    for (let t = walk.length - 1; t >= 0; t--) returns[t] = walk[t].reward + (t + 1 < walk.length ? gamma * returns[t + 1] : 0);
    return returns;
  }

  /** The weights Psi_t of a walk: the whole return, what came after, or that minus the mean of what came after in that cell. */
  const WEIGHTS = {
    "the whole return G₀": G => G.map(() => G[0]),
    "what came after, Gₜ": G => G,
    "Gₜ minus the mean": (G, walk, means) => G.map((g, t) => g - means[walk[t].state]),
  };

  /** The pull of one walk: the sum over its steps of Psi_t times the score, which is (1 at the action taken) - pi, (S, 4). */
  function pullOf(theta, walk, psi) {
    const pi = probabilities(theta), pull = new Float64Array(theta.length);
    walk.forEach(({ state, action }, t) => {
      for (let a = 0; a < 4; a++) pull[4 * state + a] += psi[t] * ((a === action) - pi[4 * state + a]);
    });
    return pull;
  }

  /** The mean of all returns that were seen after each cell, kept up to date walk by walk. */
  class Means {
    constructor(nStates) { this.values = new Float64Array(nStates); this.counts = new Int32Array(nStates); }
    add(walk, G) { walk.forEach(({ state }, t) => { this.values[state] += (G[t] - this.values[state]) / ++this.counts[state]; }); }
  }

  return { probabilities, returnsOf, WEIGHTS, pullOf, Means };
});
