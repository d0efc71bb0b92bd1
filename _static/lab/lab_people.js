"use strict";
lab.define("lab_people", function (use) {
  const { bradleyTerry, expectedWins, standardError, hasMaximum } = use("reward_model"), { generator } = use("random");
  const { el, button, frame, runs, code, Panel } = use("page");
  /** Answers to one prompt, and their hidden scores, by which others choose: lesson 11's. */
  const PROMPT = "72373=", ANSWERS = ["233777", "2337", "23377", "32377"], HIDDEN = [0.7, 0.3, 1, 0.2];
  const PAIRS = [[0, 1], [2, 3], [1, 2], [0, 3], [0, 2], [1, 3]];

  async function build(root) {
    const wins = ANSWERS.map(() => ANSWERS.map(() => 0)), pressed = [], rng = generator(5), names = "ABCD";
    const asked = el("p"), both = [0, 1].map(k => button("", () => press(k), { class: "lab-answer", "data-first": k ? null : "" }));
    const body = el("tbody"), panel = new Panel(root);
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...["answer", "p", "", "wins", "expected"].map(name => name ? el("th", { scope: "col" }, name) : el("td")))), body);
    root.replaceChildren(frame(`${PROMPT} Which answer is better? Press it`, asked, ...both),
      runs("More", button("100 others press", others, { class: "lab-run" }), button("Take back", back), button("Forget all", forget)), panel.node,
      el("div", { class: "lab-scroll", tabindex: 0, role: "region", "aria-label": "Strengths and wins" }, table), code(bradleyTerry, expectedWins, standardError));
    panel.state = "stopped";
    draw();

    /** A pair of answers, in turn, so that all pairs are asked equally often. */
    function pair() {
      const [a, b] = PAIRS[pressed.length % PAIRS.length];
      return Math.floor(pressed.length / PAIRS.length) % 2 ? [b, a] : [a, b];
    }
    function count(a, b) { wins[a][b] += 1; pressed.push([a, b]); }
    function press(k) { const found = pair(); count(found[k], found[1 - k]); draw(); }
    /** Others choose by the hidden score, with the noise of Bradley and Terry's law. */
    function others() {
      for (let n = 0; n < 100; n++) {
        const [a, b] = pair(), first = rng() < 1 / (1 + Math.exp(-3 * (HIDDEN[a] - HIDDEN[b])));
        if (first) count(a, b); else count(b, a);
      }
      draw();
    }
    function back() { const last = pressed.pop(); if (last) wins[last[0]][last[1]] -= 1; draw(); }
    function forget() { pressed.length = 0; wins.forEach(row => row.fill(0)); draw(); }

    function draw() {
      const [a, b] = pair(), exists = hasMaximum(wins);
      both.forEach((node, k) => { const i = k ? b : a; node.textContent = `${names[i]}  ${ANSWERS[i]}`; });
      asked.textContent = `${pressed.length} ${pressed.length === 1 ? "choice" : "choices"} so far.`;
      const counted = exists ? wins : wins.map((row, i) => row.map((x, j) => i === j ? 0 : x + 0.1)), p = bradleyTerry(counted), expected = expectedWins(counted, p);
      body.replaceChildren(...ANSWERS.map((text, i) => el("tr", {}, el("td", {}, `${names[i]} ${text}`), el("td", {}, p[i].toFixed(3)),
        el("td", {}, el("span", { class: "lab-strength", style: `width:${Math.max(2, 100 * p[i]).toFixed(0)}px` })),
        el("td", {}, String(wins[i].reduce((x, y) => x + y, 0))), el("td", {}, exists ? expected[i].toFixed(3) : "–"))));
      const [first, second] = p.map((x, i) => i).sort((i, j) => p[j] - p[i]), gap = Math.log(p[first] / p[second]);
      panel.score(Math.max(...p));
      panel.state = exists ? "solved" : "stopped";
      panel.say(!pressed.length ? "Nobody has chosen yet." : exists
        ? `${names[first]} leads ${names[second]} by r = ${gap.toFixed(2)}, standard error ${standardError(wins, p, first, second).toFixed(2)}: ${gap > 2 * standardError(wins, p, first, second) ? "settled" : "not settled"}.`
        : "No largest likelihood yet: somebody has won, or lost, all games against the rest. The bars add a tenth of a win each way.");
    }
  }

  return { build };
});
