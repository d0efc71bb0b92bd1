"use strict";
lab.define("grpo", function (use) {
  const { generator } = use("random"), { Adam } = use("network"), { mean, deviation } = use("returns");
  const { Transformer, generate, fromHalf } = use("transformer"), { CheckDigit, readRule } = use("text_tasks");

  /** The tasks and their models: twelve digits is chapter 13's; five have half the width. Settings that differ stand beside. */
  const TASKS = { 5: new CheckDigit(5), 12: new CheckDigit(12) };
  const { alphabet } = TASKS[5];
  const MODELS = { 5: { alphabet, width: 32, layers: 2, heads: 4, maxLength: 40 }, 12: { alphabet, width: 64, layers: 2, heads: 4, maxLength: 64 } };
  const GRPO = { digits: 5, updates: 80, prompts: 16, group: 8, epochs: 1, minibatches: 2, learningRate: 5e-4, warmup: 5, finalShare: 0.1,
    maxGradientNorm: 1, clip: 0.2, scale: "std", price: 0, nat: 0, honest: 0, rule: "right after the last =", evaluateEvery: 5, held: 128, seed: 0 };

  /** How much better each reward is than its group's mean; equal rewards teach nothing, exactly. */
  function groupAdvantages(rewards, scale = "std", epsilon = 1e-6) {
    if (rewards.every(r => r === rewards[0])) return rewards.map(() => 0);
    const m = mean(rewards), spread = scale === "std" ? deviation(rewards, m) + epsilon : 1;
    return rewards.map(r => (r - m) / spread);
  }

  /** A linear rise to the highest learning rate, then a linear fall. */
  const learningRateShare = (update, updates, warmup, finalShare) =>
    Math.min(1, (update + 1) / Math.max(1, warmup)) * Math.max(finalShare, 1 - update / updates);

  const tokensOf = groups => groups.reduce((sum, { answers }) => sum + answers.reduce((s, a) => s + a.tokens.length, 0), 0);

  /** The rows that predict each token of each answer. */
  const rowsOf = (model, trunk, answers) => answers.map(({ tokens }) => {
    let tip = trunk;
    return tokens.map((_, n) => n ? tip = model.grow(tokens[n - 1], tip) : trunk);
  });

  /** How far each answer is from a reference, in nats: the sum over its tokens of log(pi_old / pi_ref). */
  function sequenceKl(reference, prompt, answers) {
    const trunk = reference.plant(prompt), rows = rowsOf(reference, trunk, answers);
    reference.forward();
    return answers.map(({ tokens, logProbs }, k) =>
      tokens.reduce((sum, token, n) => sum + logProbs[n] - reference.logProbs[rows[k][n] * reference.V + token], 0));
  }

  /**
   * Add one group's part of the gradient of GRPO's loss: the mean over all tokens (`denominator` of them) of
   * -min(rho A, clip(rho) A). Returns how many of the group's tokens had a ratio outside 0.8 to 1.2,
   * whatever the clip, so that settings compare.
   */
  function grpoBackward(model, { prompt, answers, advantages }, clip, denominator) {
    if (advantages.every(A => A === 0)) return 0;
    const { V, logProbs, dLogits } = model, trunk = model.plant(prompt);
    const rows = rowsOf(model, trunk, answers);
    model.forward();
    dLogits.fill(0, 0, model.rows * V);
    let outside = 0;
    answers.forEach((answer, k) => answer.tokens.forEach((token, n) => {
      const at = rows[k][n] * V, A = advantages[k], ratio = Math.exp(logProbs[at + token] - answer.logProbs[n]);
      outside += Math.abs(ratio - 1) > 0.2;
      if (A > 0 && ratio > 1 + clip || A < 0 && ratio < 1 - clip) return;      // nothing to gain: no gradient
      for (let v = 0; v < V; v++) dLogits[at + v] -= A * ratio / denominator * ((v === token) - Math.exp(logProbs[at + v]));
    }));
    model.backward();
    return outside;
  }

  /** The epochs of gradient steps over one round of groups; yields null after each group, so that a page can breathe. */
  function* grpoUpdate(model, adam, groups, config, learningRate) {
    const size = Math.ceil(groups.length / config.minibatches);
    let outside = 0, tokens = 0;
    for (let epoch = 0; epoch < config.epochs; epoch++)
      for (let start = 0; start < groups.length; start += size) {
        const part = groups.slice(start, start + size), count = tokensOf(part);
        model.gradient.fill(0);
        for (const group of part) { outside += grpoBackward(model, group, config.clip, count); yield null; }
        tokens += count;
        adam.step(model.theta, model.gradient, learningRate, config.maxGradientNorm);
      }
    return { clipped: outside / tokens };
  }

  /** One group: answers to a prompt, the rewards that a rule gives them, less the price of their tokens and of their distance from a reference, and advantages. */
  function sampleGroup(model, task, prompt, config, rule, rng, reference = null) {
    const answers = generate(model, prompt, config.group, task.maxNewTokens, rng);
    const nats = reference && config.nat ? sequenceKl(reference, prompt, answers) : answers.map(() => 0);
    const rewards = answers.map((answer, k) => score(task, prompt, answer, rule) - config.price * answer.tokens.length - config.nat * nats[k]);
    return { prompt, answers, rewards, advantages: groupAdvantages(rewards, config.scale) };
  }
  const score = (task, prompt, { text, ended, tokens }, rule) => rule({ prompt, text, ended, digit: task.answer(prompt),
    right: task.reward(prompt, text, ended), tokens: tokens.length });

  /** How the model does on prompts it never learns from, and what it now writes to six of them. */
  function* evaluate(model, task, held, shown, rule, rng) {
    let right = 0, reward = 0, length = 0;
    for (const prompt of held) {
      const [answer] = generate(model, prompt, 1, task.maxNewTokens, rng);
      right += task.reward(prompt, answer.text, answer.ended) / held.length;
      reward += score(task, prompt, answer, rule) / held.length;
      length += answer.tokens.length / held.length;
      yield null;
    }
    const answers = shown.map(prompt => {
      const [answer] = generate(model, prompt, 1, task.maxNewTokens, rng, true), tip = prompt.length - 1;
      return { prompt, text: answer.text, ended: answer.ended, right: task.reward(prompt, answer.text, answer.ended),
        digit: task.answer(prompt), atOnce: Math.exp(model.firstLogProb("=", tip)) };
    });
    return { right, reward, length, answers };
  }

  /** A whole run; yields null where it may pause, and a record after each evaluation. Its first `honest` updates are paid by what is right; the model after them is the reference. */
  function* train(settings) {
    const config = { ...GRPO, ...settings }, rng = generator(config.seed + 1), honest = readRule(GRPO.rule);
    const task = TASKS[config.digits], model = new Transformer(MODELS[config.digits], fromHalf(config.weights));
    const adam = new Adam(model.theta.length, { betas: [0.9, 0.99] });
    const some = (seed, count) => { const draw = generator(seed); return Array.from({ length: count }, () => task.prompt(draw, "eval")); };
    const held = some(12345, config.held), shown = some(777, 6);
    let metrics = {}, reference = null, rule;
    for (let update = 0; ; update++) {
      Object.assign(config, config.live);
      rule = readRule(config.rule);
      if (update === config.honest && (config.nat || config.honest)) reference = new Transformer(MODELS[config.digits], model.theta.slice());
      if (update % config.evaluateEvery === 0 || update === config.updates)
        yield { update, ...(yield* evaluate(model, task, held, shown, rule, rng)), metrics };
      if (update === config.updates) return;
      const groups = [];
      for (let p = 0; p < config.prompts; p++) {
        groups.push(sampleGroup(model, task, task.prompt(rng), config, update < config.honest ? honest : rule, rng, reference));
        yield null;
      }
      const share = learningRateShare(update, config.updates, config.warmup, config.finalShare);
      metrics = yield* grpoUpdate(model, adam, groups, config, config.learningRate * share);
      metrics.equal = groups.filter(group => group.advantages.every(A => A === 0)).length / groups.length;
    }
  }

  return { TASKS, MODELS, GRPO, groupAdvantages, learningRateShare, grpoBackward, grpoUpdate, sequenceKl, sampleGroup, train };
});
