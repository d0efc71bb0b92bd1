"use strict";
lab.define("rollout", function (use) {
  const { Network, logSoftmax } = use("network");
  const { CartPole, LIMIT, OBSERVATION, ACTIONS } = use("cartpole"), { gae, normalizeAdvantages } = use("returns");

  const floats = n => new Float64Array(n), flags = n => new Uint8Array(n);

  /** Room for so many steps. */
  const emptyRollout = (size, copies) => ({ size, copies, observations: floats(size * OBSERVATION),
    next: floats(size * OBSERVATION), actions: flags(size), logProbs: floats(size), rewards: floats(size),
    terminated: flags(size), truncated: flags(size) });

  /** The first so many steps of a rollout. */
  function cut(rollout, size) {
    const part = { size, copies: rollout.copies };
    for (const name of ["actions", "logProbs", "rewards", "terminated", "truncated"]) part[name] = rollout[name].subarray(0, size);
    for (const name of ["observations", "next"]) part[name] = rollout[name].subarray(0, size * OBSERVATION);
    return part;
  }

  /** A policy and a value network for CartPole, and the copies of it in which the policy acts. */
  class Actors {
    constructor({ copies, hidden, activation, scale, rng }) {
      this.rng = rng;
      this.scale = scale;                                    // the value network's unit, in reward units
      this.policy = new Network([OBSERVATION, ...hidden, ACTIONS], { activation, outputGain: 0.01, rng });
      this.value = new Network([OBSERVATION, ...hidden, 1], { activation, rng });
      this.environments = Array.from({ length: copies }, () => new CartPole(rng));
      this.lengths = [];                                     // of all episodes that have ended
    }

    /** Draw an action for each row of observations, into `actions` and `logProbs` from place `at` on. */
    sample(observations, rows, actions, logProbs, at) {
      const out = logSoftmax(this.outputs ??= floats(ACTIONS * this.environments.length), this.policy.forward(observations, rows), 0, rows, ACTIONS);
      for (let n = 0; n < rows; n++) {
        const a = actions[at + n] = +(this.rng() >= Math.exp(out[ACTIONS * n]));
        logProbs[at + n] = out[ACTIONS * n + a];
      }
    }

    /** Let one copy act, and note at place i what came of it; a copy whose episode is over starts anew. */
    act(r, i, environment) {
      const { reward, terminated, truncated } = environment.step(r.actions[i]);
      r.rewards[i] = reward; r.terminated[i] = terminated; r.truncated[i] = truncated;
      r.next.set(environment.state, i * OBSERVATION);        // the real next state, before any reset
      if (terminated || truncated) { this.lengths.push(environment.steps); environment.reset(); }
    }

    /** So many steps of every copy. */
    collect(steps) {
      const copies = this.environments.length, r = emptyRollout(steps * copies, copies);
      for (let t = 0; t < steps; t++) {
        const at = t * copies, rows = r.observations.subarray(at * OBSERVATION, (at + copies) * OBSERVATION);
        this.environments.forEach((environment, n) => rows.set(environment.state, n * OBSERVATION));
        this.sample(rows, copies, r.actions, r.logProbs, at);
        this.environments.forEach((environment, n) => this.act(r, at + n, environment));
      }
      return r;
    }

    /** One whole episode of every copy, one after another in the rows. */
    collectEpisodes() {
      const r = emptyRollout(LIMIT * this.environments.length, 1);
      let size = 0;
      for (const environment of this.environments) {
        environment.reset();
        for (let over = false; !over; size++) {
          r.observations.set(environment.state, size * OBSERVATION);
          this.sample(environment.state, 1, r.actions, r.logProbs, size);
          this.act(r, size, environment);
          over = r.terminated[size] || r.truncated[size];
        }
      }
      return cut(r, size);
    }

    /** V(s_t) and V(s_{t+1}) of every step; the network is asked again only where an episode or the rows end. */
    valueEstimates({ size, copies, observations, next, terminated, truncated }) {
      const { value, scale } = this;
      const values = value.forward(observations, size).slice(0, size).map(v => scale * v), nextValues = floats(size);
      for (let i = 0; i < size; i++)
        nextValues[i] = i + copies < size && !terminated[i] && !truncated[i] ? values[i + copies]
          : scale * value.forward(next.subarray(i * OBSERVATION, (i + 1) * OBSERVATION), 1)[0];
      return { values, nextValues };
    }

    /** Advantages and value targets of a rollout, and the values that they are against: computed once, before any step. */
    advantagesOf(rollout, { gamma, lambda, normalize = true }) {
      const { values, nextValues } = this.valueEstimates(rollout), { rewards, terminated, truncated, copies } = rollout;
      const { advantages, targets } = gae(rewards, values, nextValues, terminated, truncated, copies, gamma, lambda);
      return { values, targets, advantages: normalize ? normalizeAdvantages(advantages) : advantages };
    }
  }

  /** What a page shows of a run: the mean length of the last 20 episodes, and whether that is enough. */
  function progress(lengths) {
    const last = lengths.slice(-20), mean = last.reduce((a, b) => a + b, 0) / (last.length || 1);
    return { episodes: lengths.length, mean, solved: last.length === 20 && mean >= 475 };
  }

  return { Actors, progress };
});
