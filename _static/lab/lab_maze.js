"use strict";
lab.define("lab_maze", function (use) {
  const { generator } = use("random"), { Maze, LAYOUTS, ACTIONS } = use("maze");
  const { backup, sweep, largestChange, qTable, qFromValues, policyImprovement, valueIteration, best, Run, LEARNERS } = use("tabular");
  const { el, button, knob, choice, palette, runs, group, code, still, nice, curves, figure, Panel } = use("page");
  const { nameOf, kindOf, two, drawMaze, bestActions, mazePicture, cellAt } = use("maze_picture");

  const BRUSHES = { "shows its equation": null, "builds a wall": "#", "clears it": ".", "sets a trap": "T", "sets a goal": "G", "moves the start": "S",
    "sets its reward to": "reward" };
  const open = n => Array.from({ length: n }, (_, r) => Array.from({ length: n }, (_, c) => r + c === 0 ? "S" : r + c === 2 * n - 2 ? "G" : ".").join(""));
  const STARTS = { ...LAYOUTS, "4 by 4": ["S...", ".#T.", "...#", "#..G"], "6 by 6": open(6) };
  const COIN = "equal chances", BEST = "the best action";

  /** Which of its parts each mode shows. */
  const MODES = { "": ["model", "policy", "learners"], backup: ["model"], plan: ["model", "policy"], learn: ["learners"] };

  function build(root) {
    const { mode = "", layout: given = "L1" } = root.dataset, has = part => MODES[mode].includes(part);
    const starts = STARTS[given] ? STARTS : { "as in the text": given.split("/"), ...STARTS };
    let maze, values, policy, looked, sweeps, from, rounds, timer, running = null, frame = 0, optimal;
    const panel = new Panel(root, { sleep: () => { clearTimeout(timer); cancelAnimationFrame(frame); }, wake: () => running ? live() : film() });

    // ---------------------------------------------------------------- controls
    const layout = choice("Start from", Object.keys(starts), { value: STARTS[given] ? given : "as in the text", onchange: load });
    const slip = knob("Slip", { min: 0, max: 1, step: 0.05, value: +(root.dataset.slip ?? 0), onchange: () => { maze.slip = slip.value; changed(); } });
    const gamma = knob("Discount γ", { min: 0, max: 0.99, step: 0.01, value: +(root.dataset.gamma ?? 0.9), onchange: changed });
    const brush = palette("A press on a cell", Object.keys(BRUSHES).slice(has("model") ? 0 : 1));
    const reward = knob("", { min: -100, max: 100, step: 1, value: -1 });
    const weights = choice("The backup takes", [BEST, COIN], { value: mode === "backup" ? COIN : BEST, onchange: () => { policy = null; draw(); } });
    const runButton = button("Sweep to the end", run, { class: has("model") ? "lab-run" : null });
    const picture = mazePicture({ tabindex: 0, role: "application", "aria-roledescription": "maze" });
    const equation = el("pre", { class: "lab-equation", "aria-live": "polite", tabindex: 0 });

    const alpha = knob("Step size α", { min: 0.01, max: 1, step: 0.01, value: 0.2, onchange: anew });
    const epsilon = knob("Exploration ε", { min: 0, max: 1, step: 0.05, value: 0.2, onchange: anew });
    const lambda = knob("λ", { min: 0, max: 1, step: 0.05, value: 0.8, onchange: anew });
    const seed = knob("Seed", { min: 0, max: 9999, step: 1, value: 1, onchange: anew });
    const speed = choice("Speed", ["slow", "quick", "very quick"], { value: "quick" });
    const learnButton = button("Let all four learn", learn, { class: has("model") ? null : "lab-run" });
    const small = Object.keys(LEARNERS).map(name => ({ name, svg: mazePicture({}), line: el("p", { class: "lab-small" }) }));
    const chart = figure();
    const learners = el("div", { class: "lab-four", hidden: true }, ...small.map(({ name, svg, line }) => el("div", {}, el("b", {}, name), svg, line)));

    reward.input.setAttribute("aria-label", "Reward to set");
    brush.node.append(reward.node);
    const worlds = [group("The maze", layout.node, slip.node, gamma.node, ...has("model") ? [weights.node] : [], brush.node), panel.node, picture];
    const planning = [runs("With the model", runButton, button("One backup", oneBackup), button("One sweep", oneSweep),
      ...has("policy") ? [button("One round of policy iteration", oneRound)] : [], button("Forget the values", load0)), ...worlds, equation];
    const learning = [runs("Without the model", learnButton, button("One step each", () => { pause(); begin(); stepAll(1); drawLearners(); }),
      button("Start over", () => { pause(); running = null; begin(); drawLearners(); }), speed.node),
    group("The learners", alpha.node, epsilon.node, lambda.node, seed.node), ...has("model") ? [] : worlds, learners, chart.node];
    root.replaceChildren(...has("model") ? planning : [], ...has("learners") ? learning : [], code(...has("model") ? [backup, sweep] : [], ...has("policy") ? [policyImprovement] : [],
      ...has("learners") ? [LEARNERS["Q-learning"], LEARNERS.SARSA, LEARNERS["Monte Carlo"], LEARNERS["SARSA(λ)"]] : []));
    chart.node.hidden = true;

    // ---------------------------------------------------------------- the maze
    function load() { maze = new Maze(starts[layout.value], slip.value); looked = maze.start; load0(); }
    function load0() { values = new Float64Array(maze.nStates); changed(); panel.score(0); panel.say(has("model") ? "All values are 0. Choose a cell to see its equation." : "Four learners start with empty tables. A press on a cell changes the maze, if you choose how."); }
    /** The world has changed: values stay, as the start of the next sweeps; what was learned in the old world goes. */
    function changed() {
      pause();
      policy = running = null; sweeps = 0;
      for (let s = 0; s < maze.nStates; s++) if (maze.terminal(s)) values[s] = 0;
      learners.hidden = chart.node.hidden = true;
      optimal = valueIteration(maze, gamma.value).values;
      draw();
    }
    const rows = () => weights.value === COIN ? new Float64Array(4 * maze.nStates).fill(0.25) : null;

    function draw() {
      const Q = qTable(maze, values, gamma.value), arrows = s => policy ? [policy[s]] : weights.value === COIN ? [] : bestActions(Q, s);
      const worth = maze.cells.map((_, s) => maze.terminal(s) ? `${nameOf(maze, s)} ${kindOf(maze, s)}` : `${nameOf(maze, s)} ${two(values[s])}`);
      drawMaze(picture, maze, { values: has("model") ? values : null, arrows: has("model") ? arrows : null, looked, label: `Maze of ${maze.rows} by ${maze.columns} cells. ${worth.join(", ")}. Arrow keys choose a cell, Enter does what a press does.` });
      equation.textContent = inNumbers(looked);
    }

    /** The chance of each cell: directions that lead to the same one are added up. */
    function together(outcomes) {
      const chances = new Map();
      for (const [p, next] of outcomes) if (p > 0) chances.set(next, (chances.get(next) ?? 0) + p);
      return [...chances];
    }
    /** Equation (2.5), or its form with a maximum, for one cell, in numbers. */
    function inNumbers(s) {
      if (maze.terminal(s)) return `V(${nameOf(maze, s)}) = 0: ${kindOf(maze, s) === "wall" ? "a wall cannot be entered" : "the episode is over there"}.`;
      const term = a => together(maze.outcomes(s, a)).map(([next, p]) =>
        `${p < 1 - 1e-9 ? `${two(p)} ` : ""}(${two(maze.rewards[next])} + ${two(gamma.value)} × ${two(values[next])} [${nameOf(maze, next)}])`).join(" + ");
      const { q, value } = backup(maze, values, gamma.value, s, rows());
      const lines = ACTIONS.map((name, a) => `${name.padEnd(5)} ${term(a)} = ${two(q[a])}`);
      const end = weights.value === COIN ? `0.25 × (${q.map(two).join(" + ")})` : `max(${q.map(two).join(", ")})`;
      return `${lines.join("\n")}\nV(${nameOf(maze, s)}) ← ${end} = ${two(value)}   (now ${two(values[s])})`;
    }

    // ---------------------------------------------------------------- with the model
    function oneBackup() {
      pause();
      const { value } = backup(maze, values, gamma.value, looked, rows()), old = values[looked], name = nameOf(maze, looked);
      if (maze.terminal(looked)) { panel.say(`${name} is a ${kindOf(maze, looked)}, worth 0. Choose another cell.`); }
      else { values[looked] = value; panel.say(`V(${name}) was ${two(old)} and is now ${two(value)}.`); }
      policy = null;
      panel.score(values[maze.start]);
      do looked = (looked + 1) % maze.nStates; while (maze.terminal(looked));
      draw();
    }
    function sweepOnce() {
      const next = sweep(maze, values, gamma.value, rows()), change = largestChange(values, next), count = sweeps + 1;
      if (!sweeps) from = values.some(Boolean) ? "the values of before" : "zeros";
      values = next; policy = null;
      if (change) sweeps = count;
      panel.score(values[maze.start]);
      panel.say(`Sweep ${count}: the largest change of a value is ${change.toPrecision(2)}.`, !panel.running);
      draw();
      return change;
    }
    function oneSweep() { pause(); sweepOnce(); }
    function oneRound() {
      pause();
      const old = policy ? "the arrows that stood there" : "always up", round = policyImprovement(maze, policy ?? new Uint8Array(maze.nStates), gamma.value);
      rounds = policy ? rounds + 1 : 1;
      ({ values, policy } = round);
      sweeps = 0;
      panel.score(values[maze.start]);
      if (round.stable) panel.state = "solved";
      panel.say(`Round ${rounds}: the values of ${old}. ${round.stable ? "No action changed: this policy is optimal." : "The arrows are now the best actions on them."}`);
      draw();
    }
    function run() {
      if (panel.running && !running) return pause();
      pause();
      running = null;
      learners.hidden = chart.node.hidden = true;
      panel.state = "running";
      runButton.textContent = "Pause";
      film();
    }
    function film() {
      let change = sweepOnce();
      while (still.matches && change > 1e-6) change = sweepOnce();
      if (change > 1e-6) { timer = setTimeout(film, 160); return; }
      pause();
      panel.state = "solved";
      panel.say(`${change ? `Sweep ${sweeps} changes less than a millionth` : `Sweep ${sweeps + 1} changes nothing: the values stood after ${sweeps}`}, counted from ${from}. The start is worth ${two(values[maze.start])}.`);
    }
    function pause() {
      clearTimeout(timer);
      cancelAnimationFrame(frame);
      panel.state = "stopped";
      runButton.textContent = "Sweep to the end";
      learnButton.textContent = "Let all four learn";
    }

    // ---------------------------------------------------------------- without the model
    function begin() {
      if (running) return;
      const settings = { gamma: gamma.value, alpha: alpha.value, epsilon: epsilon.value, lambda: lambda.value };
      running = small.map(({ name }) => ({ run: new Run(maze, name, settings, generator(seed.value)), points: [[0, 0]] }));
      learners.hidden = chart.node.hidden = false;
    }
    function stepAll(count) {
      for (const { run, points } of running) for (let k = 0; k < count; k++) {
        const before = run.episodes;
        run.step();
        if (run.episodes > before && (run.episodes < 400 || run.episodes % 50 === 0)) points.push([run.episodes, best(run.learner.Q, maze.start)]);
      }
    }
    /** Other settings: the learners, if there are any, begin again. */
    function anew() {
      if (!running) return;
      pause();
      running = null;
      begin();
      drawLearners();
      panel.say("The four begin anew with these settings: let them learn.");
    }
    function drawLearners() {
      small.forEach(({ name, svg, line }, k) => {
        const { run } = running[k], { Q } = run.learner;
        drawMaze(svg, maze, { Q, arrows: s => bestActions(Q, s), walker: run.state, label: `${name}: the start seems worth ${two(best(Q, maze.start))}` });
        line.textContent = `${run.episodes} episodes, ${run.steps} steps`;
      });
      const most = Math.max(20, ...running.map(({ run }) => run.episodes)), all = running.flatMap(({ points }) => points.map(p => p[1])), truth = optimal[maze.start];
      const tones = ["blue", "red", "green", "purple"], dashes = ["", "8 3", "2 2", "8 2 2 2"];
      curves(chart, small.map(({ name }, k) => ({ name, points: running[k].points, tone: tones[k], dash: dashes[k] })),
        { xMax: nice(most), yMin: Math.min(0, ...all), yMax: Math.max(1, truth, ...all) * 1.1, x: "episodes", y: "worth of the start, as learned",
          marks: [{ at: truth, what: `optimal: ${two(truth)}` }],
          words: `Worth of the start as learned: ${small.map(({ name }, k) => `${name} ${two(best(running[k].run.learner.Q, maze.start))} after ${running[k].run.episodes} episodes`).join(", ")}; the optimal value is ${two(truth)}.` });
      const found = best(running[0].run.learner.Q, maze.start);
      panel.score(found);
      if (panel.running && Math.abs(found - truth) < 0.05 * Math.abs(truth)) { panel.state = "solved"; panel.running = true; }
    }
    function learn() {
      const going = panel.running && running, reached = panel.state;
      pause();
      if (going && reached === "solved") panel.state = reached;
      if (going) { drawLearners(); panel.say(chart.svg.getAttribute("aria-label")); return; }
      begin();
      panel.state = "running";
      learnButton.textContent = "Pause the learners";
      live();
    }
    let credit = 0, drawn = 0;
    function live() {
      const perFrame = { slow: 0.1, quick: 2, "very quick": 40 }[speed.value] * (still.matches ? 30 : 1);
      credit += perFrame;
      const count = Math.floor(credit);
      credit -= count;
      stepAll(count);
      if (count && performance.now() - drawn > 100) {        // ten pictures a second are enough
        drawn = performance.now();
        drawLearners();
        panel.say("Four learners walk the same maze and know nothing of it but what they meet.", false);
      }
      frame = still.matches ? 0 : requestAnimationFrame(live);
      if (still.matches) timer = setTimeout(live, 500);      // less motion: two pictures a second
    }

    // ---------------------------------------------------------------- painting: mouse, touch and keyboard
    function press(s, drag) {
      if (s < 0) return;
      const what = BRUSHES[brush.value], same = s === looked && drag;
      looked = s;
      if (same || what === null || maze.cells[s] === "S" && what !== "reward") { draw(); return; }
      if (what === "reward") maze.paint(s, maze.cells[s] === "#" ? "." : maze.cells[s], reward.value);
      else maze.paint(s, what);
      changed();
      panel.say(`${nameOf(maze, s)} is now ${kindOf(maze, s)}${maze.rewards[s] ? `, and entering it pays ${maze.rewards[s]}` : ""}.`);
    }
    picture.onpointerdown = event => { picture.focus({ preventScroll: true }); picture.setPointerCapture(event.pointerId); press(cellAt(picture, maze, event), false); };
    picture.onpointermove = event => { if (event.buttons && !["S", null].includes(BRUSHES[brush.value])) press(cellAt(picture, maze, event), true); };
    picture.onkeydown = event => {
      const direction = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].indexOf(event.key);
      if (direction < 0 && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      if (direction < 0) return press(looked, false);
      const column = looked % maze.columns + [0, 0, -1, 1][direction], row = Math.floor(looked / maze.columns) + [-1, 1, 0, 0][direction];
      if (column < 0 || row < 0 || column >= maze.columns || row >= maze.rows) return;
      looked = row * maze.columns + column;
      draw();
      panel.say(`${nameOf(maze, looked)}, ${kindOf(maze, looked)}${maze.terminal(looked) ? "" : `, worth ${two(values[looked])}`}.`);
    };
    load();
  }

  return { build };
});
