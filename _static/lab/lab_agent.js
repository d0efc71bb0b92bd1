"use strict";
lab.define("lab_agent", function (use) {
  const { generator } = use("random"), { Maze, ACTIONS } = use("maze");
  const { monteCarloPrediction, tdPrediction, valueIteration } = use("tabular");
  const { el, button, choice, guess, runs, group, code, still, Panel } = use("page");
  const { nameOf, kindOf, two, drawMaze, mazePicture } = use("maze_picture");

  const { GAMMA, LONG, WORLDS, memory, standIn } = use("walks"), { Tables, QUESTION, CHOICES, higher, build: learn } = use("lab_walks");
  const returnOf = walk => walk.reduceRight((G, { reward }) => reward + GAMMA * G, 0);

  function build(root) {
    const { mode } = root.dataset, early = mode === "walk";  // in lesson 1 nobody has heard of values yet
    if (mode && !early) return learn(root, mode);
    let maze, met, state, walk, over, timer, lifted, strange = 0, lent = [];
    const panel = new Panel(root, { sleep: () => clearTimeout(timer), wake: () => strangerStep(), reset: pause });
    memory.read();
    const names = Object.keys(WORLDS), world = choice("Maze", names, { value: memory.last, onchange: () => { pause(); load(); } });
    const another = button("Another maze", () => { world.input.value = names[(names.indexOf(world.value) + 1) % names.length]; pause(); load(); });
    const runButton = button("Let someone else walk", stranger, { class: "lab-run" });
    const picture = mazePicture({ tabindex: 0, "data-first": "", role: "application", "aria-roledescription": "maze in fog" });
    const pad = el("div", { class: "lab-pad" }, ...["↑", "←", "↓", "→"].map((sign, k) => {
      const a = [0, 2, 1, 3][k];
      return button(sign, ({ detail }) => {
        pause();
        go(a);
        if (detail) picture.focus({ preventScroll: true });  // after a click the arrow keys walk, too
      }, { "aria-label": ACTIONS[a] });
    }));
    const tables = new Tables(), verdict = el("p"), best = el("p"), lift = button("Lift the fog", () => { lifted = !lifted; draw(); });
    const asked = guess(QUESTION, CHOICES, draw);        // before the tables are seen
    const said = el("details", { ontoggle: draw }, el("summary", {}, early ? "Is there a shorter way?" : "What do the walks say each cell is worth?"), ...early ? [best] : [asked.node, best, tables.node]);

    root.replaceChildren(runs("Walk", pad, button("Back to the start", () => { pause(); begin(); draw(); say("You are back at the start; this walk does not count."); }), another, runButton), panel.node, picture, verdict, said,
      group("The maze", world.node, lift, button("Forget my walks", () => { pause(); memory.forget(); load(); panel.say("All walks are forgotten."); })),
      code(...early ? [Maze.prototype.step] : [monteCarloPrediction, tdPrediction]));
    load();

    function load() {
      maze = new Maze(WORLDS[world.value]);
      lent = [];
      lifted = said.open = false;
      asked.again();
      met = new Map();
      for (const step of (memory.walks[world.value] ?? []).flat()) met.set(step.nextState, maze.cells[step.nextState]);
      begin();
      panel.state = "stopped";
      panel.score(0);
      draw();
      panel.say("You stand at the start, in fog. Somewhere is a goal. Walk with the arrow keys, swipes, or the buttons.");
    }
    function begin() { state = maze.start; walk = []; over = false; met.set(state, "S"); }
    const say = (text, spoken) => panel.say(text, spoken);

    /** One move, by whoever walks. */
    function go(a) {
      if (over) begin();
      const step = maze.step(state, a, null), stood = step.nextState === state;
      walk.push(step);
      state = step.nextState;
      met.set(state, maze.cells[state]);
      if (stood) {                                           // a bump shows a wall, if it was one
        const [dy, dx] = [[-1, 0], [1, 0], [0, -1], [0, 1]][a], row = Math.floor(state / maze.columns) + dy, column = state % maze.columns + dx;
        if (row >= 0 && row < maze.rows && column >= 0 && column < maze.columns) met.set(row * maze.columns + column, "#");
      }
      over = step.terminated || walk.length >= LONG;
      if (over) finish(step);
      else say(`${ACTIONS[a]}: ${stood ? "there is no way; you are still" : "you are now"} in ${nameOf(maze, state)}. Reward ${step.reward}, step ${walk.length}.`);
      draw();
    }
    function finish(step) {
      const worth = returnOf(walk), kind = step.terminated ? kindOf(maze, state) : "end of the time";
      if (panel.running) lent.push(walk);                    // someone else's walks are not kept as the reader's
      else memory.keep(world.value, walk);
      panel.score(worth);
      say(`The ${kind}, after ${walk.length} steps, reward ${step.reward}${early ? "" : `: at the start this walk was worth ${two(worth)}`}. The next move begins a new walk.`);
      if (kind === "goal" && !panel.running) panel.state = "solved";
    }

    function draw() {
      const own = memory.walks[world.value] ?? [], walks = own.length ? own : lent;
      const fog = maze.cells.map((_, s) => !lifted && !met.has(s));
      lift.setAttribute("aria-pressed", lifted);
      drawMaze(picture, maze, { fog, walker: state, label: `Maze in fog: you are in ${nameOf(maze, state)}; ${fog.filter(x => x).length} of ${maze.nStates} cells are unknown. Arrow keys walk.` });
      said.hidden = !(early ? own.filter(walk => walk.at(-1).reward > 0) : walks).length;  // before that there is nothing to say
      if (said.open) tell(walks, fog);                       // and what the walks say is said when it is asked for
      const best = walks.filter(walk => walk.at(-1).reward > 0), whose = own.length ? "Your walks" : "The walks that you watched";
      verdict.textContent = !walks.length ? `You have not walked here yet. ${early ? "" : "What your walks say will stand below. "}You may also watch someone who knows nothing.`
        : `${whose} so far: ${walks.length}. ${!best.length ? "None has found the goal yet."
          : early ? `The shortest way to the goal took ${Math.min(...best.map(walk => walk.length))} steps.`
            : `The best was worth ${two(Math.max(...walks.map(returnOf)))} at the start.`}${own.length ? "" : " Now walk yourself."}`;
    }
    function tell(walks, fog) {
      best.hidden = tables.node.hidden = !early && !asked.given;
      if (best.hidden) return;
      const top = valueIteration(maze, GAMMA).values[maze.start];
      best.textContent = early ? `The shortest way there is takes ${1 + Math.round(Math.log(top / 10) / Math.log(GAMMA))} steps.`
        : `The best walk there is is worth ${two(top)} at the start. TD went through the walks ten times, with steps of 0.2.`;
      if (early) return;
      const alpha = 0.2, passes = 10, both = [monteCarloPrediction(maze.nStates, walks, GAMMA).values, tdPrediction(maze.nStates, walks, { gamma: GAMMA, alpha, passes })];
      tables.show({ maze, tables: both, walks, updates: Array(passes).fill(walks.flat()).flat().map(step => ({ ...step, alpha })), fog });
      asked.told(higher(both[0][maze.start], both[1][maze.start]));
      tables.maps.forEach(({ line }, k) => { line.textContent = `The start seems worth ${two(both[k][maze.start])}.`; });
    }
    // ---------------------------------------------------------------- someone else walks
    let rng = generator(1);
    function stranger() {
      if (panel.running) return pause();
      rng = generator(++strange);
      if (over) begin();
      panel.state = "running";
      runButton.textContent = "Pause";
      strangerStep();
    }
    function strangerStep() {
      if (over && kindOf(maze, state) === "goal") { pause(); panel.state = "solved"; return; }
      if (over) begin();
      go(standIn(maze, state, met, rng));
      timer = setTimeout(strangerStep, still.matches ? 0 : 250);
    }
    function pause() { clearTimeout(timer); if (panel.running) panel.state = "stopped"; runButton.textContent = "Let someone else walk"; }

    // ---------------------------------------------------------------- keys and swipes
    picture.onkeydown = event => {
      const a = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].indexOf(event.key);
      if (a < 0) return;
      event.preventDefault();
      pause();
      go(a);
    };
    let from = null;
    picture.style.touchAction = "none";                      // a swipe on the maze walks; it does not scroll
    picture.onpointerdown = event => { from = [event.clientX, event.clientY]; picture.setPointerCapture(event.pointerId); picture.focus({ preventScroll: true }); };
    picture.onpointerup = event => {
      if (!from) return;
      const dx = event.clientX - from[0], dy = event.clientY - from[1];
      from = null;
      if (Math.max(Math.abs(dx), Math.abs(dy)) < 20) return;
      pause();
      go(Math.abs(dx) > Math.abs(dy) ? dx > 0 ? 3 : 2 : dy > 0 ? 1 : 0);
    };
  }

  return { build };
});
