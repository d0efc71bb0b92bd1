"use strict";
lab.define("lab_language", function (use) {
  const { TASKS, MODELS, GRPO, groupAdvantages, grpoBackward, sampleGroup, sequenceKl } = use("grpo");
  const { RULES, readRule } = use("text_tasks"), { FEATURES, featuresOf, fitJudge, pairFor } = use("reward_model");
  const { launch } = use("worker"), { generator } = use("random");
  const { el, button, choice, seeds, frame, runs, group, code, nice, curves, figure, Panel } = use("page");
  const OWN = "one of your own", HONEST = 25;                // so many updates teach the model what is right before a judge pays it
  /** Each model: how many digits its numbers have, its weights' file, how many weights, and how many starts there are. */
  const FILES = { "5 digits, 27,648 weights": { digits: 5, file: "weights", starts: 2 }, "12 digits, 104,448 weights (0.2 MB more)": { digits: 12, file: "weights_twelve", starts: 1 } };

  /** Pairs of answers for the reader's thumb, and the judge that fits the thumbs, handed on as a rule. */
  function thumbs(hand) {
    const task = TASKS[5], rng = generator(4), pairs = [], said = el("p", { class: "lab-small", role: "status" });
    const asked = el("p"), answers = [0, 1].map(k => button("", () => { pairs.push([featuresOf(pair[k]), featuresOf(pair[1 - k])]); ask(); fit(); }, { class: "lab-answer", "data-first": k ? null : "" }));
    let pair;
    const node = frame("Which answer is better? Press it", asked, ...answers, button("Neither", () => ask()), said);
    function ask() {
      const prompt = task.prompt(rng);
      pair = pairFor(task, prompt, rng);
      asked.textContent = prompt;
      answers.forEach((answer, k) => { answer.textContent = pair[k].text; answer.setAttribute("aria-label", `${"AB"[k]}: ${pair[k].text}`); });
    }
    /** Ten thumbs of a stranger who likes long answers stand in for none. The judge is scaled to pay from 0 to 1 for such answers. */
    function fit() {
      const draw = generator(9), some = Array.from({ length: 40 }, () => pairFor(task, task.prompt(draw), draw)), own = pairs.length;
      const longer = ([a, b]) => (a.text.length > b.text.length ? [a, b] : [b, a]).map(featuresOf);
      const w = fitJudge(own ? pairs : some.slice(0, 10).map(longer));
      const scores = some.flat().map(answer => featuresOf(answer).reduce((sum, x, k) => sum + w[k] * x, 0));
      const low = Math.min(...scores), wide = Math.max(1e-6, Math.max(...scores) - low), number = x => (x / wide).toFixed(2);
      said.textContent = `${own ? `After ${own} thumb${own === 1 ? "" : "s"} your judge pays` : "No thumb yet; the judge of a stranger pays"} for ${Object.keys(FEATURES).map((name, k) => `${name} ${number(w[k])}`).join(", ")}.`;
      hand(`${(-low / wide).toFixed(2)} + ${Object.values(FEATURES).map((rule, k) => `${number(w[k])} * (${rule})`).join(" + ")}`);
    }
    ask();
    return { node, fit, own: () => pairs.length };
  }

  async function build(root) {
    const { mode, digits = "5", price = "0", rule: paid = mode === "judge" ? OWN : Object.keys(RULES)[0] } = root.dataset;
    const sizes = Object.keys(FILES), size = choice("Model", sizes, { value: sizes.find(name => FILES[name].digits === +digits), onchange: () => bring() });
    const rule = choice("Rewarded is", [...Object.keys(RULES), OWN], { value: paid, onchange: () => { own.hidden = rule.value !== OWN; } });
    const text = el("textarea", { "aria-label": "The rule, as an expression in JavaScript", spellcheck: "false" }, "right - (text.length > 6 ? 0.3 : 0)");
    const own = el("div", { style: "width: 100%", hidden: true }, text, el("p", { class: "lab-small" },
      "An expression in prompt, text (the answer), ended (true if the model ended it), digit (the right one), right (0 or 1) and tokens (how many)."));
    const knobs = {
      group: choice("Group", [2, 4, 8, 16], { value: GRPO.group }),
      clip: choice("Clip ε", [0.05, 0.1, 0.2, 0.3, 0.5, 0.95], { value: GRPO.clip }),
      epochs: choice("Passes", [1, 2, 3, 4], { value: GRPO.epochs }),
      learningRate: choice("Learning rate", [5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3], { value: GRPO.learningRate }),
      price: choice("Price of a token", [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3], { value: +price }),
      nat: choice("Price of a nat", [0, 0.1, 0.2, 0.3, 0.5, 1]),
    };
    const scale = choice("Advantages", ["divided by the deviation", "not divided"]);
    const start = choice("Starting weights", ["A", "B"]), seed = seeds("Seed", 0);
    const runButton = button("Train", press, { class: "lab-run" });
    const body = el("tbody"), chart = figure();
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...(mode === "judge" ? ["prompt", "before the judge", "now", "right?"] : ["prompt", "at first", "now", "right?", "at once", "its work"]).map(name => el("th", { scope: "col" }, name)))), body);
    let job = null, points = [], previous = [], changes = [], first = null, began = 0, reached = null;
    const panel = new Panel(root, { sleep: () => job?.pause(), wake: () => job?.go(), reset: stop, begun: () => job, again: "Stop, then Train", live });

    const judging = mode === "judge" ? thumbs(rule => { text.value = rule; job?.set({ rule }); }) : null;
    const training = group(judging ? "How it is trained: GRPO, of chapter 13" : "Model and GRPO", size.node, start.node, seed.node, knobs.group.node, scale.node, knobs.clip.node, knobs.epochs.node, knobs.learningRate.node);
    root.replaceChildren(...judging ? [judging.node] : [], runs("Run", runButton, button("Five updates", step), button("Stop", stop)),
      judging ? frame("Leaving the model that was right", knobs.nat.node) : group("Reward", rule.node, knobs.price.node, own), training, panel.node, el("div", { class: "lab-scroll", tabindex: 0, role: "region", "aria-label": "What the model writes" }, table),
      ...judging ? [] : [el("p", { class: "lab-small" }, "At once: the chance that the model answers without any work. Its work: what would be right.")], chart.node,
      code(sampleGroup, ...judging ? [sequenceKl] : [], groupAdvantages, grpoBackward));
    if (judging) training.open = false;
    panel.state = "stopped";
    await bring();
    judging?.fit();
    own.hidden = rule.value !== OWN;

    /** The weights of the model that is chosen; they are loaded when it is first wanted. */
    async function bring() {
      const { digits, file, starts } = FILES[size.value];
      stop();
      points = previous = changes = [];
      body.replaceChildren();
      start.node.hidden = starts === 1;
      runButton.disabled = true;
      try { await lab.load(file); } catch (error) { return panel.say(`${error.message}. Choose the other model, and this one again to try once more.`); }
      runButton.disabled = false;
      panel.say(judging ? `Press Train: for ${HONEST} updates the model is paid for right answers, then the judge takes over.` : `Press Train: the model answers numbers of ${digits} digits, is rewarded, and learns, here.${digits === 12 ? " This takes about half a minute." : ""}`);
      draw();
    }

    function settings() {
      const set = { scale: scale.value === "not divided" ? "none" : "std", seed: seed.value, rule: rule.value === OWN ? text.value : rule.value };
      for (const [name, { value }] of Object.entries(knobs)) set[name] = value;
      const { digits, starts } = FILES[size.value];
      return { ...set, digits, honest: judging ? HONEST : 0, weights: lab.weights[digits][starts === 1 ? 0 : "AB".indexOf(start.value)].weights };
    }
    function readable(rule) {
      try { return readRule(rule); } catch (error) { panel.say(`The rule cannot be read: ${error.message}.`); return null; }
    }
    /** What is changed during a run counts from the next update on; the curve has a mark there. */
    function live(control) {
      if ([size.input, start.input, seed.input].includes(control)) return "";
      const set = settings(), update = points.at(-1)?.[0] ?? 0, name = control.parentNode.firstChild.textContent;
      if (!readable(set.rule)) return "The rule stays as it was.";
      job.set(set);
      const what = control === text || control.value === OWN ? "your rule" : control === rule.input || control === scale.input ? control.value : `${name} ${control.value}`;
      changes.push({ at: update, what });
      draw();
      return `From update ${update} on: ${what}.`;
    }
    function begin() {
      if (points.length > 1) previous = points;
      points = []; changes = []; first = null; reached = null; began = performance.now();
      judging?.fit();
      panel.later.textContent = "";
      const set = settings();
      if (!readable(set.rule)) return false;
      job = launch("grpo", set, show);
      return true;
    }
    function show({ record, over, error }) {
      if (error) { job = null; panel.state = "stopped"; runButton.textContent = "Train"; return panel.say(`The run broke off: ${error}`); }
      if (over) {
        job = null;
        panel.state = reached === null ? "stopped" : "solved";
        runButton.textContent = "Train";
        const [update, right, , length] = points.at(-1), before = points.find(p => p[0] === HONEST);
        if (judging) return panel.say(`Under ${judging.own() ? "your" : "the stranger's"} judge, ${update - HONEST} updates at a price of ${knobs.nat.value} a nat: right ${Math.round(100 * before[1])} % -> ${Math.round(100 * right)} %; the judge pays ${before[2].toFixed(2)} -> ${points.at(-1)[2].toFixed(2)}.`);
        return panel.say(`After ${update} updates ${Math.round(100 * right)} % of ${GRPO.held} unseen prompts are right, at first ${Math.round(100 * points[0][1])} %, with ${length.toFixed(1)} tokens an answer.${reached ? ` Four in five were right after ${reached.update} updates, ${reached.seconds} s.` : ""}`);
      }
      if (!record) return;
      const { update, right, reward, length, answers, metrics } = record;
      if (!first || judging && update <= HONEST) first = answers;
      points.push([update, right, reward, length]);
      panel.score(right);
      if (right >= 0.8 && reached === null) {
        reached = { update, seconds: ((performance.now() - began) / 1000).toFixed(1) };
        if (panel.running) { panel.state = "solved"; panel.running = true; }
      }
      const more = metrics.clipped === undefined ? "" : `; ${Math.round(100 * metrics.equal)} % of the groups all equal, ${(100 * metrics.clipped).toFixed(1)} % of the ratios outside 0.8 to 1.2`;
      panel.say(`Update ${update}${judging ? update < HONEST ? ", paid for right answers" : ", paid by the judge" : ""}: ${Math.round(100 * right)} % right, reward ${reward.toFixed(2)}, ${length.toFixed(1)} tokens${more}.`, false);
      body.replaceChildren(...answers.map((answer, k) => el("tr", {}, ...[answer.prompt, first[k].text,
        answer.text + (answer.ended ? "" : " …"), answer.right ? "yes" : "no", ...judging ? [] : [`${Math.round(100 * answer.atOnce)} %`, `${TASKS[FILES[size.value].digits].work(answer.prompt)}=${answer.digit}`]].map(cell => el("td", {}, cell)))));
      draw();
    }
    function draw() {
      const last = points.at(-1) ?? [0, 0, 0, 0], chosen = rule.value !== Object.keys(RULES)[0];
      const room = FILES[size.value].digits === 12 ? 20 : 10, column = k => points.map(p => [p[0], p[k]]);
      curves(chart, [...previous.length ? [{ name: "share right, the run before", points: previous.map(p => [p[0], p[1]]), tone: "gray", dash: "3 2" }] : [],
        { name: "share right", points: column(1), tone: "blue" },
        ...(chosen ? [{ name: `what the ${judging ? "judge" : "rule"} pays`, points: column(2), tone: "green", dash: "2 3" }] : []),
        { name: `length / ${room} tokens`, points: points.map(p => [p[0], p[3] / room]), tone: "red", dash: "7 4" }],
        { splits: judging ? [{ at: HONEST, what: "the judge from here" }, ...changes] : changes, xMax: GRPO.updates, yMax: nice(Math.max(1, ...(chosen ? column(2).map(p => p[1]) : []))), x: "updates", y: "unseen prompts", marks: judging ? [] : [{ at: 0.8, what: "0.8" }],
          words: `After ${last[0]} updates: share right ${last[1].toFixed(2)}, reward ${last[2].toFixed(2)}, ${last[3].toFixed(1)} tokens an answer.` });
    }
    function press() {
      if (panel.running) {
        job.pause();
        panel.state = reached ? "solved" : "stopped";
        panel.running = false;
        runButton.textContent = "Go on";
        return panel.say("Paused.");
      }
      if (job) job.go();
      else if (!begin()) return;
      panel.state = reached ? "solved" : "running";
      panel.running = true;
      runButton.textContent = "Pause";
    }
    function step() {
      if (panel.running) press();
      if (!job && !begin()) return;
      job.step();
      runButton.textContent = "Go on";
    }
    function stop() {
      job?.stop();
      job = null;
      panel.state = "stopped";
      runButton.textContent = "Train";
      panel.say("Stopped. The same seed gives the same run again in this browser.");
    }
  }

  return { build };
});
