"use strict";
lab.define("reward_model", function (use) {
  const { below } = use("random");

  /** What a judge sees of an answer, each between 0 and about 1, as rules that can be read and typed. It cannot do the sums. */
  const FEATURES = {
    "length": "text.length / 10",
    "an “=”": 'Number(text.includes("="))',
    "digits before the “=”": 'Math.max(0, text.indexOf("=")) / 10',
    "it ends": "Number(ended)",
  };
  const readers = Object.values(FEATURES).map(rule => new Function("text", "ended", `return ${rule};`));
  const featuresOf = ({ text, ended }) => readers.map(read => read(text, ended));

  /** The gradient of -mean log sigmoid(score of the chosen - score of the rejected) + ridge/2 |w|^2 by w; scores are linear. */
  function preferenceGradient(w, pairs, ridge) {
    const gradient = w.map(x => ridge * x);
    for (const [chosen, rejected] of pairs) {
      let margin = 0;
      for (let k = 0; k < w.length; k++) margin += w[k] * (chosen[k] - rejected[k]);
      const push = 1 / (1 + Math.exp(margin)) / pairs.length;
      for (let k = 0; k < w.length; k++) gradient[k] -= push * (chosen[k] - rejected[k]);
    }
    return gradient;
  }

  /** The judge that fits the thumbs: pairs of features, the chosen one first. The ridge keeps it finite where all agree. */
  function fitJudge(pairs, ridge = 0.02) {
    let w = readers.map(() => 0);
    for (let k = 0; k < 2000; k++) { const gradient = preferenceGradient(w, pairs, ridge); w = w.map((x, i) => x - gradient[i]); }
    return w;
  }

  /** Two answers to a prompt, written at once or with work, right or wrong, short or too long. */
  function pairFor(task, prompt, rng) {
    const work = task.work(prompt), right = task.answer(prompt), wrong = String((+right + 1 + below(rng, 9)) % 10), digit = () => rng() < 0.5 ? right : wrong;
    const texts = ["=" + digit(), `${work}=${digit()}`, `${work.slice(0, 2)}=${digit()}`, work, `${work}${work.slice(0, 2)}=${digit()}`];
    const first = below(rng, texts.length), second = (first + 1 + below(rng, texts.length - 1)) % texts.length;
    return [first, second].map(k => ({ text: texts[k], ended: texts[k].length < task.maxNewTokens }));
  }

  return { FEATURES, featuresOf, preferenceGradient, fitJudge, pairFor };
});
