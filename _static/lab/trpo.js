"use strict";
lab.define("trpo", function (use) {
  const { permutation } = use("random"), { ACTIONS, OBSERVATION } = use("cartpole"), { progress } = use("rollout");
  const { open, clear, policyGradientBackward, criticBackward } = use("policy_gradient"), { allLogProbs, rowsOf } = use("ppo");

  /** The defaults solve CartPole, as those of the library's TRPOConfig. */
  const TRPO = { totalSteps: 80000, copies: 32, steps: 64, gamma: 0.99, lambda: 0.97, delta: 0.05, deltaEnd: 0.001, damping: 0.05,
    cgIterations: 10, fisherEvery: 4, lineSearchFactor: 0.8, lineSearchTries: 10, valueLearningRate: 7e-3, valueEpochs: 8,
    valueBatchSize: 512, hidden: [64], activation: "relu", seed: 0 };

  const dot = (x, y) => { let sum = 0; for (let i = 0; i < x.length; i++) sum += x[i] * y[i]; return sum; };
  const plus = (x, share, y) => x.map((v, i) => v + share * y[i]);

  /** Solve A x = b for a positive definite A that is known only through products A v. */
  function conjugateGradient(matvec, b, iterations = 10, tolerance = 1e-10) {
    let solution = b.map(() => 0), residual = b, direction = b, size = dot(b, b);
    const enough = tolerance ** 2 * size;
    for (let k = 0; k < iterations && size > enough; k++) {
      const product = matvec(direction), length = size / dot(direction, product), before = size;
      solution = plus(solution, length, direction);
      residual = plus(residual, -length, product);
      size = dot(residual, residual);
      direction = plus(residual, size / before, direction);
    }
    return solution;
  }

  /** The best step of a linear objective within a quadratic KL of delta: sqrt(2 delta / g' F^-1 g) F^-1 g. */
  function naturalGradientStep(gradient, matvec, delta, iterations, tolerance) {
    const direction = conjugateGradient(matvec, gradient, iterations, tolerance), curvature = dot(direction, matvec(direction));
    return direction.map(x => curvature > 0 ? Math.sqrt(2 * delta / curvature) * x : 0);
  }

  /** The first of step, factor step, factor^2 step, ... that gains and whose true KL is at most delta. */
  function lineSearch(evaluate, step, delta, { factor = 0.8, tries = 10 } = {}) {
    for (let backtracks = 0; backtracks < tries; backtracks++) {
      const candidate = step.map(x => factor ** backtracks * x), { gain, kl } = evaluate(candidate);
      if (gain > 0 && kl <= delta) return { step: candidate, backtracks, gain, kl, accepted: true };
    }
    return { step: step.map(() => 0), backtracks: tries, gain: 0, kl: 0, accepted: false };
  }

  /**
   * v -> F v + damping v without F: how the logits move along v, what that does to the probabilities (diag(p) - p p'),
   * and back. This is the second derivative of KL(old || new) at new = old, exactly: the first one is 0 there.
   */
  function fisherVectorProduct(policy, observations, size, damping) {
    const probabilities = allLogProbs(policy, { observations, size }).map(Math.exp);
    return vector => {
      const moved = policy.push(vector), pulled = new Float64Array(moved.length);
      for (let i = 0; i < moved.length; i += ACTIONS) {
        let mean = 0;
        for (let a = i; a < i + ACTIONS; a++) mean += probabilities[a] * moved[a];
        for (let a = i; a < i + ACTIONS; a++) pulled[a] = probabilities[a] * (moved[a] - mean) / size;
      }
      policy.gradient.fill(0);
      policy.backward(pulled);
      return plus(policy.gradient, damping, vector);
    };
  }

  /** One update of the policy: gradient, conjugate gradient, line search. If no step is accepted, it stays as it is. */
  function trpoStep({ policy }, batch, config, delta) {
    const { actions, advantages, size } = batch, old = allLogProbs(policy, batch), theta = policy.theta.slice();
    policy.gradient.fill(0);
    const { entropy } = policyGradientBackward(policy, batch, advantages, 1 / size), gradient = policy.gradient.map(g => -g);
    const some = rowsOf(batch, Array.from({ length: Math.ceil(size / config.fisherEvery) }, (_, k) => k * config.fisherEvery));
    const fisher = fisherVectorProduct(policy, some.observations, some.size, config.damping);
    const full = config.rate ? gradient.map(g => config.rate * g) : naturalGradientStep(gradient, fisher, delta, config.cgIterations, 1e-4);
    const evaluate = step => {
      policy.theta.set(plus(theta, 1, step));
      const now = allLogProbs(policy, batch);
      let gain = 0, kl = 0;
      for (let i = 0; i < size; i++) {
        const taken = i * ACTIONS + actions[i];
        gain += (Math.exp(now[taken] - old[taken]) - 1) * advantages[i] / size;
        for (let a = i * ACTIONS; a < (i + 1) * ACTIONS; a++) kl += Math.exp(old[a]) * (old[a] - now[a]) / size;
      }
      return { gain, kl };
    };
    if (config.rate) return { kl: evaluate(full).kl, entropy };  // a plain step, the control: no ruler, no check
    const found = lineSearch(evaluate, full, delta, { factor: config.lineSearchFactor, tries: config.lineSearchTries });
    if (!found.accepted) policy.theta.set(theta);
    return { kl: found.kl, gain: found.gain, backtracks: found.backtracks, entropy };
  }

  /** Passes of the value network toward its targets, in minibatches. */
  function fitValues(actors, batch, config, shuffle) {
    for (let epoch = 0; epoch < config.valueEpochs; epoch++) {
      const order = shuffle(batch.size);
      for (let at = 0; at < batch.size; at += config.valueBatchSize) {
        const rows = rowsOf(batch, order.slice(at, at + config.valueBatchSize));
        clear(actors);
        criticBackward(actors.value, rows, rows.targets, actors.scale, 2);  // mean of the squares, not half of it
        actors.adams[1].step(actors.value.theta, actors.value.gradient, config.valueLearningRate);
      }
    }
  }

  /** A whole update on one rollout: advantages and targets, the policy's step within delta, then the values. */
  function trpoUpdate(actors, rollout, config, delta, shuffle) {
    const batch = { ...rollout, ...actors.advantagesOf(rollout, config) };
    const metrics = trpoStep(actors, batch, config, delta);
    fitValues(actors, batch, config, shuffle);
    return metrics;
  }

  /** The radius falls evenly to its end, and never grows. */
  const radiusAt = (steps, { delta, deltaEnd, totalSteps }) => delta + steps / totalSteps * (Math.min(deltaEnd, delta) - delta);

  /** A whole run; yields null where it may pause, and a record after each update. The radius shrinks as it goes. */
  function* train(settings) {
    const config = { ...TRPO, ...settings }, actors = open(config, config.copies);
    for (let steps = 0; steps < config.totalSteps;) {
      Object.assign(config, config.live);
      const rollout = actors.collect(config.steps);
      yield null;
      const metrics = trpoUpdate(actors, rollout, config, radiusAt(steps, config), size => permutation(actors.rng, size));
      const record = progress(actors.lengths);
      steps += rollout.size;
      yield { steps, ...record, metrics, sizes: actors.policy.sizes, activation: config.activation, theta: actors.policy.theta.slice() };
      if (record.solved) return;
    }
  }

  return { TRPO, conjugateGradient, naturalGradientStep, lineSearch, fisherVectorProduct, radiusAt, trpoStep, trpoUpdate, train };
});
