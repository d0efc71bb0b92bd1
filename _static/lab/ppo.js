"use strict";
lab.define("ppo", function (use) {
  const { generator, permutation } = use("random"), { logSoftmax } = use("network");
  const { ACTIONS, OBSERVATION } = use("cartpole");
  const { progress } = use("rollout"), { open, clear, step, criticBackward } = use("policy_gradient");

  /** The defaults solve CartPole, as those of the library's PPOConfig. */
  const PPO = { totalSteps: 200000, copies: 16, steps: 64, epochs: 6, minibatches: 1, clip: 0.3, learningRate: 7e-3, gamma: 0.99,
    lambda: 0.95, valueCoefficient: 1, entropyCoefficient: 0, hidden: [64], activation: "relu", seed: 0 };

  /** The derivative of min(rho A, clip(rho) A) by rho: A, or 0 where going on would gain nothing. */
  const clipGradient = (ratio, advantage, epsilon) =>
    advantage > 0 && ratio > 1 + epsilon || advantage < 0 && ratio < 1 - epsilon ? 0 : advantage;

  /** Log-probabilities of all actions under the policy as it is, (size, A). */
  const allLogProbs = (policy, { observations, size }) =>
    logSoftmax(new Float64Array(size * ACTIONS), policy.forward(observations, size), 0, size, ACTIONS);

  /** A rollout with its advantages and targets, and what the policy said before the first gradient step. */
  const prepareBatch = (actors, rollout, config) =>
    ({ ...rollout, ...actors.advantagesOf(rollout, config), outputs: allLogProbs(actors.policy, rollout) });

  /** The steps of a batch that `index` names. */
  function rowsOf(batch, index) {
    const part = { size: index.length, observations: new Float64Array(index.length * OBSERVATION) };
    for (const name of ["actions", "logProbs", "advantages", "targets"]) part[name] = Float64Array.from(index, i => batch[name][i]);
    index.forEach((i, k) => part.observations.set(batch.observations.subarray(i * OBSERVATION, (i + 1) * OBSERVATION), k * OBSERVATION));
    return part;
  }

  /** Set the gradients of both networks to that of the loss: -objective + c1 value loss - c2 entropy. */
  function ppoBackward(actors, batch, config) {
    const { actions, logProbs, advantages, targets, size } = batch, now = allLogProbs(actors.policy, batch);
    const dLogits = new Float64Array(size * ACTIONS), c2 = config.entropyCoefficient;
    clear(actors);
    for (let i = 0; i < size; i++) {
      const at = i * ACTIONS, ratio = Math.exp(now[at + actions[i]] - logProbs[i]);
      const slope = clipGradient(ratio, advantages[i], config.clip) * ratio;     // by log pi(a | s)
      let entropy = 0;
      if (c2) for (let a = 0; a < ACTIONS; a++) entropy -= Math.exp(now[at + a]) * now[at + a];
      for (let a = 0; a < ACTIONS; a++) {
        const p = Math.exp(now[at + a]);
        dLogits[at + a] = (-slope * ((a === actions[i]) - p) + (c2 ? c2 * p * (now[at + a] + entropy) : 0)) / size;
      }
    }
    actors.policy.backward(dLogits);
    criticBackward(actors.value, batch, targets, actors.scale, config.valueCoefficient);
  }

  /** The epochs of gradient steps over one batch; yields null after each, so that a page can breathe. */
  function* ppoUpdate(actors, batch, config, shuffle) {
    const size = batch.size / config.minibatches;
    for (let epoch = 0; epoch < config.epochs; epoch++) {
      const order = config.minibatches > 1 ? shuffle(batch.size) : null;
      for (let k = 0; k < config.minibatches; k++) {
        ppoBackward(actors, order ? rowsOf(batch, order.slice(k * size, (k + 1) * size)) : batch, config);
        step(actors, config.learningRate);
      }
      yield null;
    }
  }

  /** What an update did, measured on its batch after the last step. */
  function diagnose(actors, { size, actions, logProbs, outputs, values, targets, observations }, epsilon) {
    const now = allLogProbs(actors.policy, { observations, size });
    let kl = 0, entropy = 0, clipFraction = 0, left = 0, total = 0, meanLeft = 0, meanTarget = 0;
    for (let i = 0; i < size; i++) {
      for (let a = i * ACTIONS; a < (i + 1) * ACTIONS; a++) {
        kl += Math.exp(outputs[a]) * (outputs[a] - now[a]) / size;
        entropy -= Math.exp(now[a]) * now[a] / size;
      }
      clipFraction += (Math.abs(Math.exp(now[i * ACTIONS + actions[i]] - logProbs[i]) - 1) > epsilon) / size;
      meanLeft += (targets[i] - values[i]) / size; meanTarget += targets[i] / size;
    }
    for (let i = 0; i < size; i++) { left += (targets[i] - values[i] - meanLeft) ** 2; total += (targets[i] - meanTarget) ** 2; }
    return { kl, entropy, clipFraction, explainedVariance: total ? 1 - left / total : 0 };
  }

  /** A whole run; yields null where it may pause, and a record after each update. */
  function* train(settings) {
    const config = { ...PPO, ...settings }, actors = open(config, config.copies);
    for (let steps = 0; steps < config.totalSteps;) {
      Object.assign(config, config.live);
      const rollout = actors.collect(config.steps);
      yield null;
      const batch = prepareBatch(actors, rollout, config);
      yield* ppoUpdate(actors, batch, config, size => permutation(actors.rng, size));
      const metrics = diagnose(actors, batch, 0.2), record = progress(actors.lengths);  // one range for all settings, so that they compare
      steps += rollout.size;
      yield { steps, ...record, metrics, sizes: actors.policy.sizes, activation: config.activation, theta: actors.policy.theta.slice() };
      if (record.solved) return;
    }
  }

  return { PPO, clipGradient, allLogProbs, rowsOf, prepareBatch, ppoBackward, ppoUpdate, diagnose, train };
});
