"use strict";
lab.define("lab_walks", function (use) {
  const { generator } = use("random"), { Maze, ACTIONS, MOVES } = use("maze");
  const { monteCarloPrediction, tdPrediction, returnsAfter, tdShares, valueIteration, sweep, largestChange } = use("tabular");
  const { probabilities, returnsOf, WEIGHTS, pullOf, Means } = use("tabular_policy");
  const { el, button, choice, seeds, guess, runs, group, code, still, nice, curves, figure, Panel } = use("page");
  const { choosable, nameOf, two, drawMaze, mazePicture } = use("maze_picture");
  const { GAMMA, WORLDS, memory, walkOf, lent } = use("walks");

  /** The reader's walks, in the maze where they walked last, or those that stand in for them, and a sentence that says which. */
  function theirs(whose) {
    const own = memory.read()[memory.last] ?? [], world = memory.last ?? "six cells";
    const words = own.length ? `${own.length === 1 ? "One walk" : `${own.length} walks`} of yours, in the maze of ${world}` : "Six walks of a stranger stand in for yours, in the small maze";
    whose.replaceChildren(`${words}. `, el("a", { href: "01_what_is_rl.html#you-are-the-agent" }, own.length ? "Walk more in lesson 1" : "Walk yourself in lesson 1"), ".");
    return { maze: new Maze(WORLDS[world]), walks: own.length ? own : lent(world) };
  }
  const forgetButton = again => button("Forget my walks", () => { memory.forget(); again(); });
  const inside = v => v < 0 ? `(${two(v)})` : two(v);
  const cellsOf = (maze, walk) => [...walk.map(({ state }) => state), walk.at(-1).nextState].map(s => nameOf(maze, s)).join(" ");

  const QUESTION = "Guess first: which of the two will think more of the start?";
  const CHOICES = ["Monte Carlo", "TD"], higher = (monteCarlo, td) => two(monteCarlo) === two(td) ? "both say the same" : CHOICES[+(td > monteCarlo)];

  /** Monte Carlo's table and TD's, side by side. A press on a cell says what its number was made of: walks, or neighbors. */
  class Tables {
    constructor() {
      this.maps = ["Monte Carlo", "TD"].map(name => ({ name, svg: mazePicture({ tabindex: 0, role: "application", "aria-roledescription": "table in a maze" }), line: el("p", { class: "lab-small lab-line" }) }));
      this.said = el("p", { class: "lab-small", role: "status" });
      this.node = el("div", {}, el("div", { class: "lab-two" }, ...this.maps.map(({ name, svg, line }) => el("div", {}, el("b", {}, name), svg, line))), this.said);
      for (const { svg } of this.maps) choosable(svg, () => this.maze, () => this.looked, s => { this.looked = s; this.draw(); });
    }
    /** New numbers: `walks` as Monte Carlo has seen them, `updates` as TD has made them; `secret`: the walker only, no number yet. */
    show(now) {
      if (now.maze !== this.maze) this.looked = -1;
      Object.assign(this, { walker: -1, fog: null, secret: false }, now);
      this.draw();
    }
    draw() {
      const { maze, looked, tables, walks, updates } = this, named = looked >= 0 && !maze.terminal(looked), name = named ? nameOf(maze, looked) : "";
      const returns = returnsAfter(walks, GAMMA, looked), shares = [...tdShares(updates, looked)].sort((a, b) => b[1] - a[1]);
      const at = s => [s % maze.columns * 100 + 50, Math.floor(s / maze.columns) * 100 + 55];
      this.maps.forEach(({ line }) => { line.hidden = this.secret; });
      if (this.secret) {
        this.maps.forEach(({ name, svg }) => drawMaze(svg, maze, { walker: this.walker, label: `${name}: its numbers come after your guess.` }));
        this.said.textContent = "Here the numbers come when you have guessed.";
        return;
      }
      this.maps.forEach(({ name, svg }, k) => {
        const words = [...tables[k]].map((v, s) => maze.terminal(s) || this.fog?.[s] ? "" : `${nameOf(maze, s)} ${two(v)}`).filter(Boolean).join(", ");
        drawMaze(svg, maze, { values: tables[k], walker: this.walker, fog: this.fog, looked, label: `${name}: ${words}. Arrow keys choose a cell.` });
      });
      if (!named) { this.said.textContent = "Press a cell: what was its number made of?"; return; }
      const ways = returns.map(([k, G]) => {                 // from the cell to the end of the walk
        const walk = walks[k - 1], path = walk.slice(walk.findIndex(({ state }) => state === looked)), aside = 12 * ((k * 5 % 7) / 3 - 1);
        return `<polyline class="lab-way lab-${G < 0 ? "red" : "blue"}" points="${[looked, ...path.map(({ nextState }) => nextState)].map(s => at(s).map(x => (x + aside).toFixed(0)).join()).join(" ")}"/>`;
      });
      const arrows = shares.filter(([next]) => next >= 0 && next !== looked).map(([next, share]) =>
        `<path class="lab-way lab-purple" style="stroke-width:${(4 + 16 * share).toFixed(1)}" d="M${at(next)}L${at(looked)}"/>`);
      [ways.slice(-8), arrows].forEach((lines, k) => {
        const { svg } = this.maps[k];
        svg.innerHTML += lines.join("");
        svg.append(...svg.querySelectorAll("text"));         // words above lines
      });
      const of = ([next, share]) => `${next < 0 ? "the first guess, 0," : next === looked ? `${name} itself` : nameOf(maze, next)} ${Math.round(100 * share)} %`;
      this.said.textContent = `Cell ${name}. Monte Carlo: ${returns.length ? `the mean of ${returns.length === 1 ? "one return" : `${returns.length} returns`}, ${returns.slice(-8).map(([k, G]) => `walk ${k}: ${two(G)}`).join("; ")}${returns.length > 8 ? " (the last eight)" : ""}` : "no walk has come through here"}. TD: made of the targets from ${shares.filter(([, share]) => share > 0.005).map(of).join(", ")}.`;
    }
  }

  // ------------------------------------------------------------------ lesson 4: Monte Carlo and TD learn from them
  function buildLearn(root) {
    const alpha = choice("Step size α of TD", [0.05, 0.1, 0.2, 0.5, 1], { value: 0.5 });
    const runButton = button("Learn from the walks", run, { class: "lab-run" });
    const tables = new Tables(), { maps } = tables;
    const panel = new Panel(root, { sleep: () => clearTimeout(timer), wake: () => go(), reset });
    const whose = el("p", { class: "lab-small" }), asked = guess(QUESTION, CHOICES, () => { draw(tables.walker); if (panel.state === "solved") tell(); });
    const tell = () => {
      const rounds = seen / walks.length;
      asked.told(higher(mc[maze.start], td[maze.start]));
      panel.say(`${rounds === 1 ? "All walks are through" : `All walks are through ${rounds} times`}. ${asked.given ? `The start: ${two(mc[maze.start])} says Monte Carlo, ${two(td[maze.start])} says TD; the best walker gets ${two(valueIteration(maze, GAMMA).values[maze.start])}. Press again: TD goes on learning from the same walks, Monte Carlo does not.` : "What do the tables say? Guess first, above, or press Just show."}`);
    };
    let timer, maze, walks, seen, at, td, mc, updates;

    root.replaceChildren(runs("The walks", runButton, button("One step", () => { pause(); step(); }), button("Start over", reset)), group("Settings", alpha.node, forgetButton(begin)), whose, asked.node,
      panel.node, tables.node, code(monteCarloPrediction, tdPrediction, tdShares));
    begin();

    function begin() { ({ maze, walks } = theirs(whose)); reset(); }
    function reset() {
      pause();
      seen = at = 0; td = new Float64Array(maze.nStates); mc = new Float64Array(maze.nStates); updates = [];
      panel.score(0);
      asked.again();
      maps.forEach(({ line }) => { line.textContent = ""; });
      draw(-1);
      panel.say("Both tables are empty. Monte Carlo waits for the end of each walk; TD learns at every step.");
    }
    function draw(walker) { tables.show({ maze, tables: [mc, td], walks: walks.slice(0, seen), updates, walker, secret: !asked.given }); }
    /** One step of one walk, through both tables; after the last walk the first comes again. */
    function step() {
      const walk = walks[seen % walks.length], one = walk[at], { state, reward, nextState, terminated } = one, name = nameOf(maze, state);
      const old = td[state], next = terminated ? 0 : td[nextState];
      updates.push({ state, nextState, alpha: alpha.value });
      td = tdPrediction(maze.nStates, [[one]], { gamma: GAMMA, alpha: alpha.value, values: td });
      maps[1].line.textContent = `V(${name}) ← ${two(old)} + ${two(alpha.value)} × (${two(reward)} + 0.90 × ${inside(next)} − ${inside(old)}) = ${two(td[state])}`;
      at++;
      if (at < walk.length) maps[0].line.textContent = `waits for the end of walk ${seen % walks.length + 1}`;
      else {
        seen++; at = 0;
        mc = monteCarloPrediction(maze.nStates, walks.slice(0, Math.min(seen, walks.length)), GAMMA).values;
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
      tell();
    }
    function pause() { clearTimeout(timer); if (panel.running || panel.state !== "solved") panel.state = "stopped"; runButton.textContent = "Learn from the walks"; }
  }

  // ------------------------------------------------------------------ lesson 6: choices are the samples that pull
  const TONES = Object.fromEntries(Object.keys(WEIGHTS).map((name, k) => [name, ["red", "green", "blue"][k]]));

  /** A policy that walks of others pull at first, and then its own; `step` takes one walk. */
  class Puller {
    constructor(maze, walks, seed) { Object.assign(this, { maze, walks, rng: generator(seed), theta: new Float64Array(4 * maze.nStates), count: 0, means: new Means(maze.nStates), values: new Float64Array(maze.nStates) }); }
    step(weight, rate) {
      const pi = probabilities(this.theta), draw = s => { let left = this.rng(), a = 0; while (a < 3 && (left -= pi[4 * s + a]) >= 0) a++; return a; };
      const walk = this.walks[this.count++] ?? walkOf(this.maze, draw), G = returnsOf(walk, GAMMA), psi = WEIGHTS[weight](G, walk, this.means.values);
      const pull = pullOf(this.theta, walk, psi);
      this.means.add(walk, G);
      this.theta = this.theta.map((x, i) => x + rate * pull[i]);
      return { walk, G, psi, pi, pull };
    }
    /** J: what the start is worth under the policy as it now is, without sampling; the sweeps begin where the last ones ended. */
    get worth() {
      const pi = probabilities(this.theta);
      for (let change = 1; change > 1e-6;) { const next = sweep(this.maze, this.values, GAMMA, pi); change = largestChange(this.values, next); this.values = next; }
      return this.values[this.maze.start];
    }
  }

  function buildPull(root) {
    const weight = choice("Each choice is weighted by", Object.keys(WEIGHTS), { onchange: reset });
    const rate = choice("Learning rate", [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], { value: 0.1 }), seed = seeds("Seed", 9);  // with the stranger's walks near the middle of twenty
    const runButton = button("Let the walks pull", run, { class: "lab-run" });
    const picture = mazePicture({}), line = el("p", { class: "lab-small lab-line" }), many = el("p", { class: "lab-small" }), chart = figure();
    const panel = new Panel(root, { sleep: () => clearTimeout(timer), wake: () => go(), reset });
    const whose = el("p", { class: "lab-small" });
    let timer, maze, n, top, walks, now, kept, before = [], asked;  // kept: the last curve of each weight
    const good = it => it.count > walks.length && it.worth > 0.9 * top;

    root.replaceChildren(runs("Pull", runButton, button("One walk", () => { pause(); step(); }), button("Start over", reset), button("Twenty seeds", twenty)),
      group("Settings", weight.node, rate.node, seed.node, forgetButton(begin)), whose, panel.node, el("div", { class: "lab-two" },
      el("div", {}, picture, el("p", { class: "lab-small" }, "Numbers: the chance of each move, in percent. Discs: the pull of the last walk, up (blue) or down (orange). Pay counts 0.9 times as much for each step that it comes later.")), chart.node),
    line, many, code(probabilities, pullOf));
    begin();

    function begin() {
      ({ maze, walks } = theirs(whose));
      n = maze.nStates; top = valueIteration(maze, GAMMA).values[maze.start];
      kept = {};
      many.textContent = asked = "";
      reset();
    }
    function reset() {
      pause();
      now = new Puller(maze, walks, seed.value);
      if (kept[weight.value]?.length > 1) before = kept[weight.value];
      kept[weight.value] = [[0, now.worth]];
      line.textContent = "";
      draw(new Float64Array(4 * n));
      panel.score(now.worth);
      panel.say("The policy goes each way with the same chance. First the walks pull at it, one by one; then it walks by itself, and its own walks pull.");
    }
    function draw(pull) {
      const pi = probabilities(now.theta), most = Math.max(1e-9, ...pull.map(Math.abs));
      drawMaze(picture, maze, { label: `Chances of up, down, left, right: ${Array.from({ length: n }, (_, s) => maze.terminal(s) ? "" : `${nameOf(maze, s)} ${[0, 1, 2, 3].map(a => `${Math.round(100 * pi[4 * s + a])} %`).join(", ")}`).filter(Boolean).join("; ")}` });
      let out = "";
      for (let s = 0; s < n; s++) if (!maze.terminal(s)) for (let a = 0; a < 4; a++) {
        const [dy, dx] = MOVES[a], X = s % maze.columns * 100 + 50, Y = Math.floor(s / maze.columns) * 100 + 60, size = 8.5 * Math.sqrt(Math.abs(pull[4 * s + a]) / most);
        if (size > 0.5) out += `<circle cx="${X + 12 * dx}" cy="${Y + 12 * dy}" r="${size.toFixed(1)}" class="${pull[4 * s + a] > 0 ? "lab-more" : "lab-less"}"/>`;
        out += `<text x="${X + 34 * dx}" y="${Y + 30 * dy + 6}" font-size="17" text-anchor="middle">${Math.round(100 * pi[4 * s + a])}</text>`;
      }
      picture.innerHTML += out;
      const lines = [{ name: before.length ? "the run before" : "", points: before, tone: "gray", dash: "3 2" }, ...Object.entries(kept).map(([name, points]) => ({ name, points, tone: TONES[name], dash: name === weight.value ? "" : "7 4" }))], points = kept[weight.value];
      curves(chart, lines, { xMax: nice(Math.max(20, ...lines.map(each => each.points.length - 1))), yMin: -10, yMax: 10, x: "walks", y: "worth of the start, computed exactly",
        marks: [{ at: top, what: `the best: ${two(top)}` }], words: `Weighted by ${weight.value}, after ${points.length - 1} walks the policy is worth ${two(points.at(-1)[1])}; the best is worth ${two(top)}.` });
    }
    function step() {
      const own = now.count < walks.length, { walk, G, psi, pi, pull } = now.step(weight.value, rate.value), { state, action } = walk[0], worth = now.worth;
      kept[weight.value].push([now.count, worth]);
      line.textContent = `${cellsOf(maze, walk)}. The first choice, ${ACTIONS[action]} in ${nameOf(maze, state)}: ${two(psi[0])} × (1 − ${two(pi[4 * state + action])}) = ${two(psi[0] * (1 - pi[4 * state + action]))}`;
      draw(pull);
      panel.score(worth);
      panel.say(`Walk ${now.count}, ${own ? "given" : "the policy's own"}: it was worth ${two(G[0])}. The policy is now worth ${two(worth)}.`, !panel.running);
    }
    /** For each weight: after how many walks the policy is worth nine tenths of the best, over twenty seeds. */
    async function twenty() {
      const said = [], mine = asked = {}, by = rate.value, first = seed.value;
      for (const name of Object.keys(WEIGHTS)) {
        const counts = [];
        while (counts.length < 20) {
          const it = new Puller(maze, walks, first + counts.length);
          for (let end = 0; it.count < 1000 && !(it.count && good(it)); it.step(name, by)) if (performance.now() > end) {
            await new Promise(done => setTimeout(done));     // the page breathes
            if (mine !== asked) return;
            end = performance.now() + 20;
          }
          counts.push(it.count);
          many.textContent = `${name}: seed ${counts.length} of twenty.`;
        }
        counts.sort((a, b) => a - b);
        said.push(`${name}: ${counts[10]} (${counts[2]} to ${counts[17]})`);
      }
      many.textContent = `Walks until nine tenths of the best, the middle of twenty seeds and where most of them lie. ${said.join("; ")}.`;
    }
    function run() {
      if (panel.state === "solved") reset();
      panel.press(runButton, go, pause);
    }
    function go() {
      do step(); while (still.matches && !good(now) && now.count < 1000);
      if (!good(now) && now.count < 1000) { timer = setTimeout(go, now.count < walks.length ? 600 : 60); return; }
      pause();
      panel.state = good(now) ? "solved" : "stopped";
      panel.say(`After ${now.count} walks, ${Math.min(now.count, walks.length)} of them given, the policy is worth ${two(now.worth)}, ${good(now) ? "nine tenths of the best." : "and no longer much better."} Choose another weight: this curve stays.`);
    }
    function pause() { clearTimeout(timer); panel.state = "stopped"; runButton.textContent = "Let the walks pull"; }
  }

  return { Tables, QUESTION, CHOICES, higher, build: (root, mode) => ({ learn: buildLearn, pull: buildPull })[mode](root) };
});
