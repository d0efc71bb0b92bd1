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

  const total = row => row.reduce((sum, x) => sum + x, 0);

  /** The strengths, with sum 1, that make a table most likely; wins[a][b] says how often a was chosen over b. Zermelo's iteration. */
  function bradleyTerry(wins, rounds = 3000) {
    let p = wins.map(() => 1 / wins.length);
    for (let k = 0; k < rounds; k++) {
      const next = p.map((_, a) => total(wins[a]) / total(p.map((x, b) => b === a ? 0 : (wins[a][b] + wins[b][a]) / (p[a] + x)))), sum = total(next);
      p = next.map(x => x / sum);
    }
    return p;
  }

  /** How many wins each item should have, by the strengths: at the maximum as many as it has. */
  const expectedWins = (wins, p) => p.map((x, a) => total(p.map((y, b) => b === a ? 0 : (wins[a][b] + wins[b][a]) * x / (x + y))));

  /** The standard error of log(p_a / p_b): the curvature of the likelihood with b held fast, inverted by elimination. */
  function standardError(wins, p, a, b) {
    const free = p.map((_, i) => i).filter(i => i !== b), bend = (i, j) => (wins[i][j] + wins[j][i]) * p[i] * p[j] / (p[i] + p[j]) ** 2;
    const rows = free.map(i => [...free.map(j => i === j ? total(p.map((_, k) => k === i ? 0 : bend(i, k))) : -bend(i, j)), +(i === a)]);
    rows.forEach((row, k) => {
      const pivot = row[k];
      rows[k] = row.map(x => x / pivot);
      rows.forEach((other, i) => { if (i !== k) { const times = other[k]; rows[i] = other.map((x, j) => x - times * rows[k][j]); } });
    });
    return Math.sqrt(rows[free.indexOf(a)].at(-1));
  }

  /** Whether a chain of wins leads from every item to every other: only then there is exactly one maximum. */
  function hasMaximum(wins) {
    const reach = wins.map(row => row.map(x => x > 0));
    wins.forEach((_, k) => wins.forEach((_, i) => wins.forEach((_, j) => { reach[i][j] ||= reach[i][k] && reach[k][j]; })));
    return reach.every((row, i) => row.every((x, j) => i === j || x));
  }

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

  return { FEATURES, featuresOf, bradleyTerry, expectedWins, standardError, hasMaximum, preferenceGradient, fitJudge, pairFor };
});
