"use strict";
lab.define("policy_gradient", function (use) {
  const { generator } = use("random"), { logSoftmax, Adam } = use("network");
  const { discountedReturns, normalizeAdvantages } = use("returns"), { ACTIONS } = use("cartpole");
  const { Actors, progress } = use("rollout");

  /** The defaults solve CartPole, as those of the library's ReinforceConfig and A2CConfig. */
  const REINFORCE = { totalSteps: 200000, episodes: 8, learningRate: 1e-2, gamma: 0.99, baseline: "value", normalize: true,
    entropyCoefficient: 0, hidden: [64], activation: "tanh", seed: 0 };
  const A2C = { totalSteps: 200000, copies: 16, steps: 64, learningRate: 7e-3, gamma: 0.99, lambda: 0.98, normalize: true,
    valueCoefficient: 1, entropyCoefficient: 0.01, hidden: [64], activation: "relu", seed: 0 };

  /**
   * Add to the policy's gradient that of -sum(weights_t psi_t log pi(a_t | s_t)) - c mean(entropy); psi is constant.
   * The derivative of log pi(a) by the logits is (1 at a) - pi; that of the entropy is -pi (log pi + entropy).
   */
  function policyGradientBackward(policy, { observations, actions, size }, psi, weight, entropyCoefficient = 0) {
    const logProbs = logSoftmax(new Float64Array(size * ACTIONS), policy.forward(observations, size), 0, size, ACTIONS);
    const dLogits = new Float64Array(size * ACTIONS);
    let total = 0;
    for (let i = 0; i < size; i++) {
      let entropy = 0;
      for (let a = 0; a < ACTIONS; a++) entropy -= Math.exp(logProbs[i * ACTIONS + a]) * logProbs[i * ACTIONS + a];
      for (let a = 0; a < ACTIONS; a++) {
        const log = logProbs[i * ACTIONS + a], p = Math.exp(log);
        dLogits[i * ACTIONS + a] = -weight * psi[i] * ((a === actions[i]) - p) + entropyCoefficient / size * p * (log + entropy);
      }
      total += entropy / size;
    }
    policy.backward(dLogits);
    return { logProbs, entropy: total };
  }

  /** Add to the value network's gradient that of c/2 mean((V - target)^2), both in units of its scale. */
  function criticBackward(value, { observations, size }, targets, scale, coefficient = 1) {
    const outputs = value.forward(observations, size), dY = new Float64Array(size);
    for (let i = 0; i < size; i++) dY[i] = coefficient * (outputs[i] - targets[i] / scale) / size;
    value.backward(dY);
  }

  /** One step of both networks down their gradients. */
  function step({ policy, value, adams }, rate) {
    for (const [k, network] of [policy, value].entries()) adams[k].step(network.theta, network.gradient, rate);
  }
  function begin(actors) {
    actors.adams = [actors.policy, actors.value].map(network => new Adam(network.theta.length, { eps: 1e-5 }));
    return actors;
  }
  function clear({ policy, value }) { policy.gradient.fill(0); value.gradient.fill(0); }

  /** REINFORCE: whole episodes, each score weighted by what followed it, minus V(s) with a baseline; one step uphill. */
  function reinforceUpdate(actors, rollout, config) {
    const { rewards, terminated, truncated } = rollout;
    clear(actors);
    let psi;
    if (config.baseline === "value") {
      const { advantages, targets } = actors.advantagesOf(rollout, { ...config, lambda: 1 });
      psi = advantages;
      criticBackward(actors.value, rollout, targets, actors.scale);
    } else {
      psi = discountedReturns(rewards, terminated, truncated, 1, config.gamma);
      if (config.normalize) psi = normalizeAdvantages(psi);
    }
    const { entropy } = policyGradientBackward(actors.policy, rollout, psi, 1 / config.episodes, config.entropyCoefficient);
    step(actors, config.learningRate);
    return { entropy };
  }

  /** A2C: so many steps of every copy, advantages by GAE, one step of actor and critic. */
  function a2cUpdate(actors, rollout, config) {
    const { advantages, targets } = actors.advantagesOf(rollout, config);
    clear(actors);
    const { entropy } = policyGradientBackward(actors.policy, rollout, advantages, 1 / rollout.size, config.entropyCoefficient);
    criticBackward(actors.value, rollout, targets, actors.scale, config.valueCoefficient);
    step(actors, config.learningRate);
    return { entropy };
  }

  function open(config, copies) {
    const rng = generator(config.seed), scale = 1 / (1 - config.gamma);
    return begin(new Actors({ copies, hidden: config.hidden, activation: config.activation, scale, rng }));
  }

  /** A whole run of either; yields null where it may pause, and a record after each update. */
  function* train(settings) {
    const reinforce = settings.method === "reinforce", config = { ...(reinforce ? REINFORCE : A2C), ...settings };
    const actors = open(config, reinforce ? config.episodes : config.copies);
    for (let steps = 0; steps < config.totalSteps;) {
      Object.assign(config, config.live);
      const rollout = reinforce ? actors.collectEpisodes() : actors.collect(config.steps);
      yield null;
      const metrics = (reinforce ? reinforceUpdate : a2cUpdate)(actors, rollout, config), record = progress(actors.lengths);
      steps += rollout.size;
      yield { steps, ...record, metrics, sizes: actors.policy.sizes, activation: config.activation, theta: actors.policy.theta.slice() };
      if (record.solved) return;
    }
  }

  return { REINFORCE, A2C, policyGradientBackward, criticBackward, begin, clear, step, open, reinforceUpdate, a2cUpdate, train };
});
