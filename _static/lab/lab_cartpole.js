"use strict";
lab.define("lab_cartpole", function (use) {
  const { generator } = use("random"), { Network } = use("network"), { CartPole, OBSERVATION, FALLEN, LIMIT, EDGE } = use("cartpole");
  const { REINFORCE, A2C, policyGradientBackward, reinforceUpdate, a2cUpdate } = use("policy_gradient");
  const { DQN, nStepTargets, dqnBackward, dqnUpdate } = use("dqn"), { PPO, clipGradient, ppoBackward, ppoUpdate } = use("ppo");
  const { TRPO, fisherVectorProduct, trpoStep } = use("trpo");
  const { launch } = use("worker");
  const { el, button, choice, seeds, runs, group, code, still, nice, curves, figure, Panel } = use("page");

  const RATES = [1e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 7e-3, 1e-2, 2e-2, 5e-2, 0.1], RATE = ["learningRate", "learning rate", RATES];
  const LAMBDA = ["lambda", "λ of the advantages", [0, 0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1]];
  const REWARDS = ["nStep", "rewards before the guess", [1, 2, 4, 8]], EPISODES = ["episodes", "episodes an update", [1, 2, 4, 8, 16, 32]];
  const REGION = [["delta", "radius δ in nats", [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5]], ["valueLearningRate", "learning rate of the values", RATES], LAMBDA];
  const CONSTANT = { deltaEnd: Infinity };                   // the radius never falls: what the knob says is what holds
  const LATER = ["method", "nStep", "episodes"];             // what a run is made with; all else may change on the way
  /** Each method: its module, what it sets besides its defaults, and the knobs that it offers. */
  const METHODS = {
    PPO: { module: "ppo", defaults: PPO, knobs: [["clip", "clip ε", [0.05, 0.1, 0.2, 0.3, 0.5, 0.9, 0.95]], ["epochs", "epochs", [1, 3, 6, 10, 20, 30, 40]], ["minibatches", "minibatches", [1, 2, 4, 8, 16]], RATE, LAMBDA] },
    TRPO: { module: "trpo", fixed: CONSTANT, defaults: TRPO, knobs: REGION },
    "plain direction": { module: "trpo", fixed: { ...CONSTANT, cgIterations: 1 }, defaults: TRPO, knobs: REGION },  // the first conjugate direction is the gradient
    "plain step": { module: "trpo", defaults: { ...TRPO, rate: 10 }, knobs: [["rate", "rate of the step", [0.1, 0.5, 1, 2, 5, 10, 20, 50]]] },
    A2C: { module: "policy_gradient", fixed: { method: "a2c" }, defaults: A2C, knobs: [RATE, LAMBDA] },
    REINFORCE: { module: "policy_gradient", fixed: { method: "reinforce", baseline: "none", normalize: false }, defaults: REINFORCE, knobs: [EPISODES, RATE] },
    "REINFORCE with a baseline": { module: "policy_gradient", fixed: { method: "reinforce" }, defaults: REINFORCE, knobs: [EPISODES, RATE] },
    DQN: { module: "dqn", defaults: DQN, knobs: [RATE, REWARDS] },
    "DQN without its memory": { module: "dqn", fixed: { replay: false }, defaults: DQN, knobs: [RATE, REWARDS] },
    "DQN without its target network": { module: "dqn", fixed: { target: "none" }, defaults: DQN, knobs: [RATE, REWARDS] },
  };
  const CODE = { dqn: [dqnUpdate, nStepTargets, dqnBackward], ppo: [ppoUpdate, ppoBackward, clipGradient], trpo: [trpoStep, fisherVectorProduct],
    policy_gradient: [reinforceUpdate, a2cUpdate, policyGradientBackward] };
  const TONES = { left: "blue", right: "red" }, DASHES = { left: "", right: "7 4" };
  const percent = x => `${Math.round(100 * x)} %`;

  /** What the diagnostics of an update say, in one line. */
  function diagnosis({ kl, clipFraction, backtracks, entropy, explainedVariance, targetValue }) {
    const parts = [];
    if (kl !== undefined) parts.push(`KL ${kl.toFixed(4)}`);
    if (clipFraction !== undefined) parts.push(`${percent(clipFraction)} of the ratios outside 0.8 to 1.2`);
    if (backtracks !== undefined) parts.push(`step shortened ${backtracks} times`);
    if (entropy !== undefined) parts.push(`entropy ${entropy.toFixed(2)}`);
    if (explainedVariance !== undefined) parts.push(`values explain ${percent(explainedVariance)}`);
    if (targetValue !== undefined) parts.push(`mean target ${targetValue.toFixed(1)}; 500 steps of 1 are worth 99.3, discounted`);
    return parts.join(", ");
  }

  /** A setting as a lesson presets it, "PPO, clip=0.9, epochs=20": the method, and what is otherwise than in the book. */
  function readSetting(text) {
    const [method, ...changes] = text.split(", "), known = METHODS[method]?.knobs.map(([key]) => key);
    const pairs = changes.map(change => change.split("="));
    const unknown = known ? pairs.find(([key, value]) => !known.includes(key) || !Number.isFinite(+value)) : [method];
    if (unknown) throw new Error(`"${text}" is no setting: ${unknown.join("=")}`);
    return [method, Object.fromEntries(pairs.map(([key, value]) => [key, +value]))];
  }

  /** A cart that drives with the policy as it now is, in real time. */
  class Cart {
    constructor() {
      this.pole = new CartPole(generator(5));
      this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      this.svg.setAttribute("viewBox", "0 0 300 90");
      this.svg.setAttribute("aria-hidden", "true");
      this.svg.innerHTML = '<path class="lab-grid" d="M0 78H300"/><g><rect x="-20" y="62" width="40" height="16" fill="currentColor" fill-opacity=".5"/><path d="M0 62V8" stroke-width="5" fill="none"/></g>';
      this.draw();
    }
    use({ sizes, activation, theta }) {
      this.network ??= new Network(sizes, { activation });
      if (this.network.theta.length !== theta.length) this.network = new Network(sizes, { activation });
      this.network.activation = activation;
      this.network.theta.set(theta);
    }
    move() {
      if (!this.network) return;
      for (let k = 0; k < 2; k++) {                          // 50 steps and 25 pictures a second
        const out = this.network.forward(this.pole.state, 1), { terminated, truncated } = this.pole.step(+(out[1] > out[0]));
        if (terminated || truncated) this.pole.reset();
      }
      this.draw();
    }
    draw() {
      const [x, , angle] = this.pole.state, group = this.svg.lastChild;
      group.setAttribute("transform", `translate(${(150 + x / EDGE * 130).toFixed(1)} 0)`);
      group.lastChild.setAttribute("transform", `rotate(${(angle * 180 / Math.PI).toFixed(1)} 0 62)`);
    }
  }

  /** One of the two settings: its controls, its runs over the seeds, its cart. */
  class Side {
    constructor(name, method, changes) {
      this.name = name;
      this.cart = new Cart();
      this.cart.svg.lastChild.setAttribute("class", `lab-${TONES[name]}`);
      this.line = el("p", { class: "lab-small" }, "Not trained yet.");
      this.panels = el("p", { class: "lab-small" });
      this.knobsNode = el("div", { style: "display: contents" });
      this.preset = [method, changes];
      this.method = choice("Method", Object.keys(METHODS), { value: method, key: `${name}-method`, onchange: () => this.offer() });
      this.setting = group(`${name === "left" ? "Left" : "Right"} setting`, this.method.node, this.knobsNode);
      this.node = el("div", {}, this.cart.svg, this.line, this.panels);
      this.offer();
    }
    offer() {
      const { defaults, knobs } = METHODS[this.method.value], changes = this.method.value === this.preset[0] ? this.preset[1] : {};
      this.knobs = knobs.map(([key, label, values]) => ({ key, label, control: choice(label, values, { value: changes[key] ?? defaults[key], key: `${this.name}-${key}` }) }));
      this.knobsNode.replaceChildren(...this.knobs.map(({ control }) => control.node));
    }
    /** The method, and what is set otherwise than in the book. */
    get title() {
      const { defaults } = METHODS[this.method.value], other = this.knobs.filter(({ key, control }) => control.value !== defaults[key]);
      return [this.method.value, ...other.map(({ key, label, control }) => `${label} ${control.value}`)].join(", ");
    }
    start(seeds, report) {
      const { module, fixed = {} } = METHODS[this.method.value];
      Object.assign(this, { module, ran: this.title, settings: { ...fixed, ...Object.fromEntries(this.knobs.map(({ key, control }) => [key, control.value])) } });
      this.runs = seeds.map(seed => ({ seed, points: [[0, 0]], moves: [], mean: 0, solved: false }));
      this.at = -1;
      this.changes = [];
      this.report = report;
      this.next();
    }
    get over() { return !this.job; }
    get run() { return this.runs[Math.min(this.at, this.runs.length - 1)]; }
    next() {
      this.job?.stop();
      this.job = null;
      if (++this.at >= this.runs.length) return this.report(this);
      const run = this.run;
      this.job = launch(this.module, { ...this.settings, seed: run.seed }, ({ record, over, error }) => {
        if (record) {
          run.points.push([record.steps, record.mean]);
          if (record.metrics.kl !== undefined) run.moves.push([record.steps, record.metrics.kl]);
          Object.assign(run, { steps: record.steps, mean: record.mean, solved: record.solved });
          this.cart.use(record);
          this.line.textContent = `Seed ${run.seed}: ${record.steps.toLocaleString("en")} steps, ${record.episodes} episodes; the last 20 lasted ${record.mean.toFixed(0)} of ${LIMIT} steps${run.solved ? ": solved" : ""}.`;
          this.panels.textContent = diagnosis(record.metrics);
        }
        if (error) this.line.textContent = `The run broke off: ${error}.`;
        this.report(this);
        if (over || error) this.next();
      });
    }
    all(order) { this.job?.[order](); }
    /** Take a changed knob into the run that is under way, if it can. */
    change(key) {
      const knob = this.knobs.find(knob => knob.key === key);
      if (!this.job || LATER.includes(key) || !knob) return "";
      const { value } = knob.control, what = `${knob.label} ${value}`;
      this.job.set({ [key]: this.settings[key] = value });
      this.ran += `, then ${what}`;
      this.changes.push({ at: this.run.points.at(-1)[0], what });
      return `${this.name[0].toUpperCase()}${this.name.slice(1)}: ${what} from here on, and in the seeds that follow.`;
    }
    stop() { this.job?.stop(); this.job = null; }
  }

  function build(root) {
    const { left = "PPO", right = "PPO, clip=0.9, epochs=20", seeds: many = "3" } = root.dataset;
    const sides = [new Side("left", ...readSetting(left)), new Side("right", ...readSetting(right))];
    const seed = seeds("First seed"), count = choice("Seeds", [1, 2, 3, 4, 5], { value: +many });
    const runButton = button("Train both", press, { class: "lab-run" }), chart = figure();
    const stepButton = button("One round", step), stopButton = button("Stop", stop), lengths = figure();
    const panel = new Panel(root, { sleep: () => sides.forEach(side => side.all("pause")), wake: () => { sides.forEach(side => side.all("go")); animate(); },
      reset: stop, begun: () => begun, again: "Stop, then Train both", live: ({ dataset: { key } }) => { const [side, ...knob] = key.split("-"); return sides.find(({ name }) => name === side)?.change(knob.join("-")); } });
    let begun = false, drawn = 0, before = [];               // before: the lines of the last run, which stay in gray

    lengths.node.hidden = true;
    root.replaceChildren(runs("Run", runButton, stepButton, stopButton, seed.node, count.node), el("div", { class: "lab-two" }, ...sides.map(side => side.setting)),
      panel.node, el("div", { class: "lab-pair" }, ...sides.map(side => side.node)), chart.node, lengths.node,
      code(...[...new Set([...[left, right].map(text => METHODS[text.split(", ")[0]].module), ...Object.keys(CODE)])].flatMap(module => CODE[module])));
    panel.state = "stopped";
    panel.say("A pole stands on a cart; pushing left or right must keep it up. Two settings learn side by side, each from several seeds.");
    draw();

    function draw() {
      const all = sides.flatMap(side => (side.runs ?? []).map(run => ({ ...run, side: side.name, ran: side.ran })));
      const most = Math.max(20000, ...[...before, ...all].map(run => run.points.at(-1)[0]));
      const words = sides.map(side => `${side.name}, ${side.ran ?? side.title}: ${(side.runs ?? []).filter(run => run.points.length > 1).map(run =>
        `seed ${run.seed} ${run.solved ? "solved after" : "at"} ${run.mean.toFixed(0)} of ${LIMIT} after ${run.steps} steps`.replace(/solved after .* after/, "solved after")).join(", ") || "not begun"}`);
      curves(chart, before.concat(all.map((run, k) => ({ points: run.points, tone: TONES[run.side], dash: DASHES[run.side],
        name: all.findIndex(other => other.side === run.side) === k ? `${run.side}: ${run.ran}` : "" }))),
        { xMax: nice(most), yMax: LIMIT, splits: sides.flatMap(side => side.changes ?? []), x: "environment steps", y: "mean length of the last 20 episodes", marks: [{ at: 475, what: "475: solved" }], words: `${words.join("; ")}.` });
      const moved = all.filter(run => run.moves.length), moves = moved.flatMap(run => run.moves.map(([, kl]) => Math.max(1e-6, kl))), ten = (x, round) => 10 ** round(Math.log10(x));
      lengths.node.hidden = !moved.length;                   // how far each update went, where the method measures it
      if (moved.length) curves(lengths, moved.map(run => ({ points: run.moves, tone: TONES[run.side], dash: DASHES[run.side] })),
        { xMax: nice(most), log: true, yMin: ten(Math.min(1e-3, ...moves), Math.floor), yMax: ten(Math.max(0.1, ...moves), Math.ceil), x: "environment steps", y: "KL of each update, nats (log scale)", words: `KL of each update: the longest ${["left", "right"].map(side =>
          [side, Math.max(0, ...moved.filter(run => run.side === side).flatMap(run => run.moves.map(([, kl]) => kl)))]).filter(([, kl]) => kl).map(([side, kl]) => `${side} ${kl.toFixed(3)}`).join(", ")} nats.` });
    }
    function begin() {
      const seeds = Array.from({ length: count.value }, (_, k) => seed.value + k);
      before = sides.flatMap(({ name, ran, runs = [] }) => runs.filter(run => run.points.length > 1).map((run, k) =>
        ({ points: run.points, tone: "gray", dash: DASHES[name], name: k ? "" : `before, ${name}: ${ran}` })));
      begun = true;
      panel.later.textContent = "";
      sides.forEach(side => side.start(seeds, report));
    }
    function report(side) {
      if (performance.now() - drawn > 300 || side.over) { drawn = performance.now(); draw(); }
      panel.score(sides[0].runs.reduce((sum, run) => sum + run.mean, 0) / Math.max(1, Math.min(sides[0].at + 1, sides[0].runs.length)));
      if (begun && sides.every(side => side.over && side.at >= side.runs.length)) finish();
    }
    function finish() {
      begun = false;
      const done = sides.map(side => side.runs.filter(run => run.solved));
      const after = runs => runs.map(run => run.steps).sort((a, b) => a - b).map(steps => steps.toLocaleString("en")).join("; ");
      const words = sides.map((side, k) => `${side.name}: ${done[k].length} of ${side.runs.length} seeds solved${done[k].length ? `, after ${after(done[k])} steps` : ""}`);
      panel.state = done[0].length === sides[0].runs.length ? "solved" : "stopped";
      runButton.textContent = "Train both";
      panel.say(`${words.join("; ")}.`.replace(/^l/, "L"));
    }
    function press() {
      if (panel.running) {
        sides.forEach(side => side.all("pause"));
        panel.state = "stopped";
        runButton.textContent = "Go on";
        return panel.say("Paused.");
      }
      panel.state = "running";
      runButton.textContent = "Pause";
      panel.say("Training.");
      if (begun) sides.forEach(side => side.all("go"));
      else begin();
      animate();
    }
    function step() {
      if (panel.running) press();
      if (!begun) { begin(); }
      sides.forEach(side => side.all("step"));
      panel.say("One round of each side: some steps, and what is learned from them.");
      runButton.textContent = "Go on";
    }
    function stop() {
      sides.forEach(side => side.stop());
      begun = false;
      panel.state = "stopped";
      runButton.textContent = "Train both";
      panel.say("Stopped. The same seeds give the same runs again in this browser.");
    }
    let last = 0, moving = false;
    function animate() {
      if (moving || still.matches) return;                   // with less motion asked for, the carts stand still
      moving = true;
      requestAnimationFrame(function frame(now) {
        if (panel.state === "stopped" && !begun || !panel.awake) { moving = false; return; }
        if (now - last >= 39) { last = now; sides.forEach(side => side.cart.move()); }
        requestAnimationFrame(frame);
      });
    }
  }

  return { build };
});
