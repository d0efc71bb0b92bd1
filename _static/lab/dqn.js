"use strict";
lab.define("dqn", function (use) {
  const { generator, below } = use("random"), { Network, Adam } = use("network");
  const { CartPole, OBSERVATION, ACTIONS } = use("cartpole"), { progress } = use("rollout");

  /** The defaults solve CartPole, as those of the library's DQNConfig. "none" as target, and replay false, take a device away. */
  const DQN = { totalSteps: 120000, copies: 16, batchSize: 256, learningRate: 2.5e-3, gamma: 0.99, nStep: 8, target: "ema", tau: 0.1,
    copyInterval: 100, replay: true, bufferCapacity: 8192, double: true, loss: "huber", hidden: [128], activation: "relu",
    epsilonStart: 1, epsilonEnd: 0.05, epsilonSteps: 4000, learningStarts: 1000, stepsPerUpdate: 4, returnScale: 100, seed: 0 };

  const bestAction = (q, at) => { let a = 0; for (let b = 1; b < ACTIONS; b++) if (q[at + b] > q[at + a]) a = b; return a; };

  /** y = G + discount max_a Q_target(s', a); with double DQN the online network picks the action. (B, A) each. */
  function nStepTargets(returns, discounts, nextQ, nextQOnline = null) {
    return Float64Array.from(returns, (G, i) => G + discounts[i] * nextQ[i * ACTIONS + bestAction(nextQOnline ?? nextQ, i * ACTIONS)]);
  }

  /** Set the online network's gradient to that of the loss: half the mean square of the errors, or Huber's form of it. */
  function dqnBackward(online, { observations, actions, size }, targets, kind) {
    const q = online.forward(observations, size), dQ = new Float64Array(size * ACTIONS);
    for (let i = 0; i < size; i++) {
      const error = q[i * ACTIONS + actions[i]] - targets[i];
      dQ[i * ACTIONS + actions[i]] = (kind === "huber" ? Math.max(-1, Math.min(1, error)) : error) / size;
    }
    online.gradient.fill(0);
    online.backward(dQ);
  }

  /** One step of the online network toward its targets; all values are in units of returnScale. */
  function dqnUpdate(online, target, adam, batch, config) {
    const nextQ = target.forward(batch.next, batch.size).slice(0, batch.size * ACTIONS);
    const nextQOnline = config.double ? online.forward(batch.next, batch.size) : null;
    const targets = nStepTargets(batch.returns, batch.discounts, nextQ, nextQOnline);
    dqnBackward(online, batch, targets, config.loss);
    adam.step(online.theta, online.gradient, config.learningRate);
    return { targetValue: targets.reduce((a, b) => a + b, 0) / batch.size * config.returnScale };
  }

  /** theta' <- (1 - tau) theta' + tau theta. */
  const emaUpdate = (online, target, tau) => { target.theta.forEach((w, i) => { target.theta[i] = w + tau * (online.theta[i] - w); }); };

  /** A finite memory: the newest transition takes the place of the oldest. */
  class ReplayBuffer {
    constructor(capacity) { this.capacity = capacity; this.rows = []; this.place = 0; }
    add(transition) { this.rows[this.place] = transition; this.place = (this.place + 1) % this.capacity; }
    sample(count, rng) { return Array.from({ length: count }, () => this.rows[below(rng, this.rows.length)]); }
  }

  /** Transitions as arrays. */
  function stacked(rows) {
    const batch = { size: rows.length, observations: new Float64Array(rows.length * OBSERVATION), next: new Float64Array(rows.length * OBSERVATION) };
    rows.forEach((row, i) => { batch.observations.set(row.observation, i * OBSERVATION); batch.next.set(row.next, i * OBSERVATION); });
    batch.actions = Uint8Array.from(rows, row => row.action);
    batch.returns = Float64Array.from(rows, row => row.G);
    batch.discounts = Float64Array.from(rows, row => row.discount);
    return batch;
  }

  /** Turns the steps of one copy into transitions of up to n steps; an end closes all that are open. */
  class NStepWindow {
    constructor(n, gamma) { this.n = n; this.gamma = gamma; this.open = []; }
    push(observation, action, { reward, terminated, truncated }, next) {
      this.open.push({ observation, action, G: 0, discount: 1 });
      for (const window of this.open) { window.G += window.discount * reward; window.discount *= this.gamma; }
      const over = terminated || truncated, closing = over ? this.open.splice(0) : this.open.length === this.n ? [this.open.shift()] : [];
      return closing.map(window => ({ ...window, next, discount: terminated ? 0 : window.discount }));
    }
  }

  /** The chance of a random action: it falls evenly over the first steps, and then stays. */
  const epsilonAt = (steps, { epsilonStart, epsilonEnd, epsilonSteps }) =>
    epsilonStart + (epsilonEnd - epsilonStart) * Math.min(1, steps / (epsilonSteps - 1));

  /** A whole run; yields null where it may pause, and a record now and then. */
  function* train(settings) {
    const config = { ...DQN, ...settings }, rng = generator(config.seed), lengths = [];
    const sizes = [OBSERVATION, ...config.hidden, ACTIONS], online = new Network(sizes, { activation: config.activation, rng });
    const target = config.target === "none" ? online : new Network(sizes, { activation: config.activation });
    if (target !== online) emaUpdate(online, target, 1);
    const adam = new Adam(online.theta.length), buffer = new ReplayBuffer(config.bufferCapacity);
    const environments = Array.from({ length: config.copies }, () => new CartPole(rng));
    const windows = environments.map(() => new NStepWindow(config.nStep, config.gamma));
    for (let steps = 0, updates = 0; steps < config.totalSteps;) {
      Object.assign(config, config.live);
      const fresh = [];
      for (let k = 0; k < config.stepsPerUpdate; k++) {
        const epsilon = epsilonAt(steps, config);
        environments.forEach((environment, n) => {
          const observation = environment.state.slice();
          const action = rng() < epsilon ? below(rng, ACTIONS) : bestAction(online.forward(observation, 1), 0);
          const step = environment.step(action);
          for (const row of windows[n].push(observation, action, step, environment.state.slice())) {
            row.G /= config.returnScale;
            fresh.push(row);
          }
          if (step.terminated || step.truncated) { lengths.push(environment.steps); environment.reset(); }
          steps++;
        });
      }
      for (const row of fresh) buffer.add(row);
      if (steps < config.learningStarts || !fresh.length) continue;
      const batch = stacked(config.replay ? buffer.sample(config.batchSize, rng) : fresh);
      const metrics = dqnUpdate(online, target, adam, batch, config);
      if (config.target === "ema") emaUpdate(online, target, config.tau);
      if (config.target === "copy" && ++updates % config.copyInterval === 0) emaUpdate(online, target, 1);
      const record = progress(lengths);
      yield steps % 512 && !record.solved ? null : { steps, ...record, metrics, sizes, activation: config.activation, theta: online.theta.slice() };
      if (record.solved) return;
    }
  }

  return { DQN, nStepTargets, dqnBackward, dqnUpdate, emaUpdate, epsilonAt, ReplayBuffer, NStepWindow, stacked, train };
});
