"use strict";
lab.define("lab_walks", function (use) {
  const { generator } = use("random"), { Maze, ACTIONS, MOVES } = use("maze");
  const { monteCarloPrediction, tdPrediction, valueIteration, sweep, largestChange } = use("tabular");
  const { probabilities, returnsOf, WEIGHTS, pullOf, Means } = use("tabular_policy");
  const { el, button, knob, choice, group, code, still, nice, curves, figure, Panel } = use("page");
  const { nameOf, two, drawMaze, mazePicture } = use("maze_picture");
  const { GAMMA, WORLDS, memory, walkOf, lent } = use("walks");

  const WORLD = "six cells";

  /** The reader's walks, or those that stand in for them, and a sentence that says which. */
  function theirs() {
    const own = memory.read()[WORLD] ?? [], walks = own.length ? own : lent(WORLD);
    const whose = own.length ? `${own.length === 1 ? "One walk" : `${own.length} walks`} of yours` : "Six walks of a stranger stand in for yours";
    return { walks, whose: el("p", { class: "lab-small" }, `${whose}. `, el("a", { href: "01_what_is_rl.html#you-are-the-agent" }, own.length ? "Walk more in lesson 1" : "Walk yourself in lesson 1"), ". ") };
  }
  function forgetButton(again) {
    return button("Forget my walks", () => { memory.forget(); again(); });
  }
  const inside = v => v < 0 ? `(${two(v)})` : two(v);
  const cellsOf = (maze, walk) => [...walk.map(({ state }) => state), walk.at(-1).nextState].map(s => nameOf(maze, s)).join(" ");

  // ------------------------------------------------------------------ lesson 4: Monte Carlo and TD learn from them
  function buildLearn(root) {
    const maze = new Maze(WORLDS[WORLD]), n = maze.nStates;
    const alpha = knob("Step size α of TD", { min: 0.05, max: 1, step: 0.05, value: 0.5 });
    const runButton = button("Learn from the walks", run, { class: "lab-run" });
    const maps = ["Monte Carlo", "TD"].map(name => ({ name, svg: mazePicture({}), line: el("p", { class: "lab-small lab-line" }) }));
    const panel = new Panel(root, { sleep: () => clearTimeout(timer), wake: () => go() });
    let timer, walks, whose, seen, at, td, mc;

    function build() {
      ({ walks, whose } = theirs());
      root.replaceChildren(group("The walks", runButton, button("One step", () => { pause(); step(); }), button("Start over", reset), alpha.node, forgetButton(() => { pause(); build(); })), whose,
        panel.status, el("div", { class: "lab-two" }, ...maps.map(({ name, svg, line }) => el("div", {}, el("b", {}, name), svg, line))), code(monteCarloPrediction, tdPrediction));
      reset();
    }
    function reset() {
      pause();
      seen = at = 0; td = new Float64Array(n); mc = new Float64Array(n);
      panel.score(0);
      maps.forEach(({ line }) => { line.textContent = ""; });
      draw(-1);
      panel.say("Both tables are empty. Monte Carlo waits for the end of each walk; TD learns at every step.");
    }
    function draw(walker) {
      maps.forEach(({ name, svg }, k) => {
        const values = k ? td : mc;
        drawMaze(svg, maze, { values, walker, label: `${name}: ${[...values].map((v, s) => maze.terminal(s) ? "" : `${nameOf(maze, s)} ${two(v)}`).filter(Boolean).join(", ")}` });
      });
    }
    /** One step of one walk, through both tables; after the last walk the first comes again. */
    function step() {
      const walk = walks[seen % walks.length], one = walk[at], { state, reward, nextState, terminated } = one, name = nameOf(maze, state);
      const old = td[state], next = terminated ? 0 : td[nextState];
      td = tdPrediction(n, [[one]], { gamma: GAMMA, alpha: alpha.value, values: td });
      maps[1].line.textContent = `V(${name}) ← ${two(old)} + ${two(alpha.value)} × (${two(reward)} + 0.90 × ${inside(next)} − ${inside(old)}) = ${two(td[state])}`;
      at++;
      if (at < walk.length) maps[0].line.textContent = `waits for the end of walk ${seen % walks.length + 1}`;
      else {
        seen++; at = 0;
        mc = monteCarloPrediction(n, walks.slice(0, Math.min(seen, walks.length)), GAMMA).values;
        const G = returnsOf(walk, GAMMA)[0];
        maps[0].line.textContent = seen > walks.length ? "has seen this walk before: the means stay" : `${cellsOf(maze, walk)}: G₀ = ${two(G)}; each cell's value is the mean of its returns`;
      }
      draw(nextState);
      panel.score(mc[maze.start]);
      panel.say(`Walk ${(at ? seen : seen - 1) % walks.length + 1} of ${walks.length}, ${ACTIONS[one.action]} from ${name}, reward ${two(reward).replace(".00", "")}.`, !panel.running);
    }
    function run() { panel.press(runButton, go, pause); }
    function go() {
      const round = Math.floor(seen / walks.length);
      do step(); while (still.matches && Math.floor(seen / walks.length) === round);
      if (Math.floor(seen / walks.length) === round) { timer = setTimeout(go, 350); return; }
      pause();
      panel.state = "solved";
      const rounds = seen / walks.length;
      panel.say(`${rounds === 1 ? "All walks are through" : `All walks are through ${rounds} times`}. The start: ${two(mc[maze.start])} says Monte Carlo, ${two(td[maze.start])} says TD; the best walker gets ${two(valueIteration(maze, GAMMA).values[maze.start])}. Press again: TD goes on learning from the same walks, Monte Carlo does not.`);
    }
    function pause() { clearTimeout(timer); if (panel.running || panel.state !== "solved") panel.state = "stopped"; runButton.textContent = "Learn from the walks"; }
    build();
  }

  // ------------------------------------------------------------------ lesson 6: choices are the samples that pull
  function buildPull(root) {
    const maze = new Maze(WORLDS[WORLD]), n = maze.nStates;
    const weight = choice("Each choice is weighted by", Object.keys(WEIGHTS));
    const rate = knob("Learning rate", { min: 0.01, max: 1, step: 0.01, value: 0.1 }), seed = knob("Seed", { min: 0, max: 9999, step: 1, value: 1 });
    const runButton = button("Let the walks pull", run, { class: "lab-run" });
    const picture = mazePicture({}), line = el("p", { class: "lab-small lab-line" }), chart = figure();
    const panel = new Panel(root, { sleep: () => clearTimeout(timer), wake: () => go() });
    let timer, walks, whose, theta, count, means, rng, points;
    const top = valueIteration(maze, GAMMA).values[maze.start];

    function build() {
      ({ walks, whose } = theirs());
      root.replaceChildren(group("Pull", runButton, button("One walk", () => { pause(); step(); }), button("Start over", reset), weight.node, rate.node, seed.node, forgetButton(() => { pause(); build(); })), whose,
        panel.status, picture, el("p", { class: "lab-small" }, "Strokes: the chance of each move. Discs: the pull of the last walk, up (blue) or down (orange)."), line, chart.node, code(probabilities, pullOf));
      reset();
    }
    function reset() {
      pause();
      theta = new Float64Array(4 * n); count = 0; means = new Means(n); rng = generator(seed.value); points = [[0, worth()]];
      line.textContent = "";
      draw(new Float64Array(4 * n));
      panel.score(worth());
      panel.say("The policy goes each way with the same chance. First the walks pull at it, one by one; then it walks by itself, and its own walks pull.");
    }
    /** J: what the start is worth under the policy as it now is, without sampling. */
    function worth() {
      const pi = probabilities(theta);
      let values = new Float64Array(n);
      for (let change = 1; change > 1e-9;) { const next = sweep(maze, values, GAMMA, pi); change = largestChange(values, next); values = next; }
      return values[maze.start];
    }
    function draw(pull) {
      const pi = probabilities(theta), most = Math.max(1e-9, ...pull.map(Math.abs));
      drawMaze(picture, maze, { label: `Chances of up, down, left, right: ${Array.from({ length: n }, (_, s) => maze.terminal(s) ? "" : `${nameOf(maze, s)} ${[0, 1, 2, 3].map(a => `${Math.round(100 * pi[4 * s + a])} %`).join(", ")}`).filter(Boolean).join("; ")}` });
      let out = "";
      for (let s = 0; s < n; s++) if (!maze.terminal(s)) for (let a = 0; a < 4; a++) {
        const [dy, dx] = MOVES[a], X = s % maze.columns * 100 + 50, Y = Math.floor(s / maze.columns) * 100 + 54, long = 38 * pi[4 * s + a], size = 14 * Math.abs(pull[4 * s + a]) / most;
        out += `<path class="lab-chance" d="M${X} ${Y}l${long * dx} ${long * dy}"/>`;
        if (size > 0.5) out += `<circle cx="${X + 40 * dx}" cy="${Y + 40 * dy}" r="${size.toFixed(1)}" class="${pull[4 * s + a] > 0 ? "lab-more" : "lab-less"}"/>`;
      }
      picture.innerHTML += out;
      curves(chart, [{ name: "what the policy is worth", points, tone: "blue" }], { xMax: nice(Math.max(20, points.length - 1)), yMin: Math.min(-5, ...points.map(p => p[1])), yMax: 10, x: "walks", y: "worth of the start, exactly",
        marks: [{ at: top, what: `optimal: ${two(top)}` }, { at: 0, what: "" }], words: `After ${points.length - 1} walks the policy is worth ${two(points.at(-1)[1])}; the best is worth ${two(top)}.` });
    }
    function step() {
      const own = count < walks.length, pi = probabilities(theta);
      const draws = s => { let left = rng(), a = 0; while (a < 3 && (left -= pi[4 * s + a]) >= 0) a++; return a; };
      const walk = own ? walks[count] : walkOf(maze, draws), G = returnsOf(walk, GAMMA), psi = WEIGHTS[weight.value](G, walk, means.values);
      const pull = pullOf(theta, walk, psi), { state, action } = walk[0];
      means.add(walk, G);
      theta = theta.map((x, i) => x + rate.value * pull[i]);
      points.push([++count, worth()]);
      line.textContent = `${cellsOf(maze, walk)}. The first choice, ${ACTIONS[action]} in ${nameOf(maze, state)}: ${two(psi[0])} × (1 − ${two(pi[4 * state + action])}) = ${two(psi[0] * (1 - pi[4 * state + action]))}`;
      draw(pull);
      panel.score(points.at(-1)[1]);
      panel.say(`Walk ${count}, ${own ? "given" : "the policy's own"}: it was worth ${two(G[0])}. The policy is now worth ${two(points.at(-1)[1])}.`, !panel.running);
    }
    function run() { panel.press(runButton, go, pause); }
    function go() {
      const good = () => count > walks.length && points.at(-1)[1] > 0.9 * top;
      do step(); while (still.matches && !good() && count < 1000);
      if (!good() && count < 1000) { timer = setTimeout(go, count < walks.length ? 600 : 60); return; }
      pause();
      panel.state = good() ? "solved" : "stopped";
      panel.say(`After ${count} walks, ${Math.min(count, walks.length)} of them given, the policy is worth ${two(points.at(-1)[1])}, ${good() ? "nine tenths of the best." : "and no longer much better."}`);
    }
    function pause() { clearTimeout(timer); panel.state = "stopped"; runButton.textContent = "Let the walks pull"; }
    build();
  }

  return { build: (root, mode) => ({ learn: buildLearn, pull: buildPull })[mode](root) };
});
