"use strict";
lab.define("lab_maze", function (use) {
  const { generator } = use("random"), { Maze, LAYOUTS, ACTIONS } = use("maze");
  const { backup, sweep, largestChange, qTable, qFromValues, policyImprovement, valueIteration, best, Run, LEARNERS } = use("tabular");
  const { el, button, choice, seeds, palette, runs, group, code, still, nice, curves, figure, Panel } = use("page");
  const { choosable, nameOf, kindOf, two, drawMaze, bestActions, mazePicture, cellAt } = use("maze_picture");

  const BRUSHES = { "shows its equation": null, "builds a wall": "#", "clears it": ".", "sets a trap": "T", "sets a goal": "G", "moves the start": "S",
    "sets its reward to": "reward" };
  const open = n => Array.from({ length: n }, (_, r) => Array.from({ length: n }, (_, c) => r + c === 0 ? "S" : r + c === 2 * n - 2 ? "G" : ".").join(""));
  const STARTS = { ...LAYOUTS, "4 by 4": ["S...", ".#T.", "...#", "#..G"], "6 by 6": open(6) };
  const DASHES = ["", "8 3", "2 2", "8 2 2 2"];               // of the four learners
  const COIN = "equal chances", BEST = "the best action";

  /** Which of its parts each mode shows. */
  const MODES = { "": ["model", "policy", "learners"], backup: ["model"], plan: ["model", "policy"], learn: ["learners"] };

  function build(root) {
    const { mode = "", layout: given = "L1" } = root.dataset, has = part => MODES[mode].includes(part);
    const starts = STARTS[given] ? STARTS : { "as in the text": given.split("/"), ...STARTS };
    let maze, values, policy, looked, sweeps, from, rounds, timer, running = null, before = [], marks = [], frame = 0, optimal;
    const panel = new Panel(root, { sleep: () => { clearTimeout(timer); cancelAnimationFrame(frame); }, wake: () => running ? live() : film(), reset: () => { running = null; load0(); } });

    // ---------------------------------------------------------------- controls
    const layout = choice("Start from", Object.keys(starts), { value: STARTS[given] ? given : "as in the text", onchange: () => { painted.value = ""; load(); } });
    const slip = choice("Slip", [0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1], { value: +(root.dataset.slip ?? 0), onchange: () => { maze.slip = slip.value; changed(true); } });
    const gamma = choice("Discount γ", [0, 0.5, 0.8, 0.9, 0.95, 0.99], { value: +(root.dataset.gamma ?? 0.9), onchange: () => changed(true) });
    const brush = palette("A press on a cell", Object.keys(BRUSHES).slice(has("model") ? 0 : 1));
    const reward = choice("", [-20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20], { value: -1, key: "reward" });
    const weights = choice("The backup takes", [BEST, COIN], { value: mode === "backup" ? COIN : BEST, onchange: () => { policy = null; draw(); } });
    const runButton = button("Sweep to the end", run, { class: has("model") ? "lab-run" : null });
    const picture = mazePicture({ tabindex: 0, role: "application", "aria-roledescription": "maze" });
    const equation = el("pre", { class: "lab-equation", "aria-live": "polite", tabindex: 0 });

    const alpha = choice("Step size α", [0.02, 0.05, 0.1, 0.2, 0.5, 1], { value: 0.2, onchange: retune });
    const epsilon = choice("Exploration ε", [0, 0.05, 0.1, 0.2, 0.5, 1], { value: 0.2, onchange: retune });
    const lambda = choice("λ", [0, 0.4, 0.8, 0.9, 1], { value: 0.8, onchange: retune });
    const seed = seeds("Seed", 1);
    const speed = choice("Speed", ["slow", "quick", "very quick"], { value: "quick" });
    const learnButton = button("Let all four learn", learn, { class: has("model") ? null : "lab-run", "data-run": "learners" });
    const small = Object.keys(LEARNERS).map(name => ({ name, svg: mazePicture({}), line: el("p", { class: "lab-small" }) }));
    const chart = figure();
    const learners = el("div", { class: "lab-four", hidden: true }, ...small.map(({ name, svg, line }) => el("div", {}, el("b", {}, name), svg, line)));

    // what was painted, for a link: rows of cells, and the rewards of those that pay otherwise than their kind
    const painted = el("input", { hidden: true, "data-key": "cells", onchange: () => { load(); } });
    reward.input.setAttribute("aria-label", "Reward to set");
    brush.node.append(reward.node, painted);
    const worlds = [group("The maze", layout.node, slip.node, gamma.node, ...has("model") ? [weights.node] : [], brush.node), panel.node, picture];
    const planning = [runs("With the model", runButton, button("One backup", oneBackup), button("One sweep", oneSweep),
      ...has("policy") ? [button("One round of policy iteration", oneRound)] : [], button("Forget the values", load0)), ...worlds, equation];
    const learning = [runs("Without the model", learnButton, button("One step each", () => { pause(); begin(); stepAll(1); drawLearners(); }),
      button("Start over", startOver), speed.node),
    group("The learners", alpha.node, epsilon.node, lambda.node, seed.node), ...has("model") ? [] : worlds, learners, chart.node];
    root.replaceChildren(...has("model") ? planning : [], ...has("learners") ? learning : [], code(...has("model") ? [backup, sweep] : [], ...has("policy") ? [policyImprovement] : [],
      ...has("learners") ? [LEARNERS["Q-learning"], LEARNERS.SARSA, LEARNERS["Monte Carlo"], LEARNERS["SARSA(λ)"]] : []));
    chart.node.hidden = true;

    // ---------------------------------------------------------------- the maze
    function load() {
      const [cells, ...pays] = painted.value.split(" "), rows = cells.split("/");
      const whole = /^[.#TG]*S[.#TG]*$/.test(rows.join("")) && rows.every(row => row.length === rows[0].length) && rows.length * rows[0].length <= 100;
      maze = new Maze(whole ? rows : starts[layout.value], slip.value);
      for (const [s, reward] of pays.map(pay => pay.split(":"))) if (maze.cells[s] && Math.abs(reward) <= 100) maze.paint(+s, maze.cells[s], +reward);
      maze.counted = !has("model");        // as in the lesson of the learners
      looked = maze.start; before = []; load0();
    }
    function load0() { values = new Float64Array(maze.nStates); changed(); panel.score(0); panel.say(has("model") ? "All values are 0. Choose a cell to see its equation." : "Four learners start with empty tables. A press on a cell changes the maze, if you choose how."); }
    /** The world has changed: values stay, as the start of the next sweeps, and so does what was learned; learners go on in it. */
    function changed(onTheWay = false) {
      policy = null; sweeps = 0;
      for (let s = 0; s < maze.nStates; s++) if (maze.terminal(s)) values[s] = 0;
      optimal = valueIteration(maze, gamma.value).values;
      if (onTheWay && running) retune();
      else { pause(); running = null; learners.hidden = chart.node.hidden = true; }
      draw();
    }
    /** Other settings, or another world, for the learners under way; the curve has a mark there. */
    function retune() {
      for (const { run } of running ?? []) {
        Object.assign(run.settings, settings());
        Object.assign(run.learner, settings());
        if (maze.terminal(run.state)) run.begin();
      }
      if (!running) return;
      marks.push({ at: running[0].run.episodes, what: "changed" });
      drawLearners();
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
    const settings = () => ({ gamma: gamma.value, alpha: alpha.value, epsilon: epsilon.value, lambda: lambda.value });
    function begin() {
      if (running) return;
      marks = [];
      running = small.map(({ name }) => ({ run: new Run(maze, name, settings(), generator(seed.value)), points: [[0, 0]] }));
      learners.hidden = chart.node.hidden = false;
    }
    function stepAll(count) {
      for (const { run, points } of running) for (let k = 0; k < count; k++) {
        const before = run.episodes;
        run.step();
        if (run.episodes > before && (run.episodes < 400 || run.episodes % 50 === 0)) points.push([run.episodes, best(run.learner.Q, maze.start)]);
      }
    }
    function drawLearners() {
      small.forEach(({ name, svg, line }, k) => {
        const { run } = running[k], { Q } = run.learner;
        drawMaze(svg, maze, { Q, arrows: s => bestActions(Q, s), walker: run.state, names: false, label: `${name}: the start seems worth ${two(best(Q, maze.start))}` });
        line.textContent = `${run.episodes} episodes, ${run.steps} steps`;
      });
      const most = Math.max(20, ...running.map(({ run }) => run.episodes), ...before.map(({ points }) => points.at(-1)[0])), all = running.flatMap(({ points }) => points.map(p => p[1])), truth = optimal[maze.start];
      const tones = ["blue", "red", "green", "purple"];
      curves(chart, before.concat(small.map(({ name }, k) => ({ name, points: running[k].points, tone: tones[k], dash: DASHES[k] }))),
        { splits: marks, xMax: nice(most), yMin: Math.min(0, ...all), yMax: Math.max(1, truth, ...all) * 1.1, x: "episodes", y: "worth of the start, as learned",
          marks: [{ at: truth, what: `optimal: ${two(truth)}` }],
          words: `Worth of the start as learned: ${small.map(({ name }, k) => `${name} ${two(best(running[k].run.learner.Q, maze.start))} after ${running[k].run.episodes} episodes`).join(", ")}; the optimal value is ${two(truth)}.` });
      const found = best(running[0].run.learner.Q, maze.start);
      panel.score(found);
      if (panel.running && Math.abs(found - truth) < 0.05 * Math.abs(truth)) { panel.state = "solved"; panel.running = true; }
    }
    /** The four begin again; how they learned before stays in gray. */
    function startOver() {
      pause();
      before = (running ?? []).map(({ points }, k) => ({ points, tone: "gray", dash: DASHES[k], name: k ? "" : "the four before" }));
      running = null;
      begin();
      drawLearners();
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
      const plain = new Maze(maze.layout);
      painted.value = [maze.layout.join("/"), ...[...maze.rewards].flatMap((pays, s) => pays === plain.rewards[s] ? [] : [`${s}:${pays}`])].join(" ");
      changed(true);
      panel.say(`${nameOf(maze, s)} is now ${kindOf(maze, s)}${maze.rewards[s] ? `, and entering it pays ${maze.rewards[s]}` : ""}.`);
    }
    choosable(picture, () => maze, () => looked, (s, event) => {
      if (event.type === "pointerdown") { picture.setPointerCapture(event.pointerId); return press(s, false); }
      looked = s;
      draw();
      panel.say(`${nameOf(maze, s)}, ${kindOf(maze, s)}${maze.terminal(s) ? "" : `, worth ${two(values[s])}`}.`);
    });
    picture.onpointermove = event => { if (event.buttons && !["S", null].includes(BRUSHES[brush.value])) press(cellAt(picture, maze, event), true); };
    picture.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(looked, false); } };
    load();
  }

  return { build };
});
