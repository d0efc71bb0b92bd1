"use strict";
lab.define("maze_picture", function (use) {
  const { MOVES } = use("maze"), { best } = use("tabular");
  const NAMES = { S: "start", G: "goal", T: "trap", "#": "wall", ".": "free" };

  /** Cells have letters, row by row; above 26 cells, and where a lesson counts them, they have row and column. */
  const nameOf = (maze, s) => maze.counted ? `${Math.floor(s / maze.columns)},${s % maze.columns}`
    : maze.nStates <= 26 ? "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[s] : `${Math.floor(s / maze.columns) + 1}.${s % maze.columns + 1}`;
  const kindOf = (maze, s) => NAMES[maze.cells[s]];

  const two = v => (Math.round(v * 100) / 100).toFixed(2).replace("-0.00", "0.00");

  /**
   * A maze as SVG: values (S,) or action values (S, 4) with the arrows of the best actions, the cell that is looked at,
   * who walks, and fog over what nobody has seen.
   */
  function drawMaze(svg, maze, { values = null, Q = null, arrows = null, looked = -1, walker = -1, fog = null, names = true, label }) {
    const most = Math.max(1e-9, ...(Q ?? values ?? [10]).map(Math.abs), 10), side = 100;
    const tint = (v, kind) => `class="${v < 0 ? "lab-low" : kind === "G" ? "lab-good" : "lab-high"}" fill-opacity="${(0.55 * Math.min(1, Math.abs(v) / most)).toFixed(2)}"`;
    let out = "";
    for (let s = 0; s < maze.nStates; s++) {
      const x = s % maze.columns * side, y = Math.floor(s / maze.columns) * side, kind = maze.cells[s], open = !maze.terminal(s);
      const text = (dx, dy, size, what, more = "") => `<text x="${x + dx}" y="${y + dy}" font-size="${size}" text-anchor="middle"${more}>${what}</text>`;
      if (fog && fog[s]) { out += `<rect x="${x}" y="${y}" width="100" height="100" class="lab-fog"/>` + text(50, 62, 34, "?"); continue; }
      const worth = kind === "G" || kind === "T" ? maze.rewards[s] : Q ? best(Q, s) : values ? values[s] : 0;
      out += kind === "#" ? `<rect x="${x}" y="${y}" width="100" height="100" class="lab-wall"/>`
        : `<rect x="${x}" y="${y}" width="100" height="100" ${tint(worth, kind)}/>`;
      out += `<rect x="${x}" y="${y}" width="100" height="100" class="lab-cell"/>`;
      if (kind === "#") continue;
      if (names) out += text(maze.counted ? 19 : 14, 23, 21, nameOf(maze, s), ' class="lab-letter"');
      if (kind === "G" || kind === "T") { out += text(50, 50, 20, NAMES[kind]) + text(50, 78, 22, two(maze.rewards[s]).replace(".00", "")); continue; }
      if (kind === "S") out += text(71, 22, 20, "start");
      if (maze.rewards[s]) out += text(62, kind === "S" ? 42 : 22, 17, `pays ${maze.rewards[s]}`);
      if (values || Q) out += text(50, 91, 22, two(Q ? best(Q, s) : values[s]));
      for (const a of (open && arrows ? arrows(s) : [])) {
        const [dy, dx] = MOVES[a], X = x + 50 + 5 * dx, Y = y + 49 + 4 * dy;
        out += `<path class="lab-arrow" d="M${X} ${Y}l${15 * dx} ${15 * dy}m${-7 * dx - 5 * dy} ${-7 * dy - 5 * dx}l${7 * dx + 5 * dy} ${7 * dy + 5 * dx}l${-7 * dx + 5 * dy} ${-7 * dy + 5 * dx}"/>`;
      }
    }
    const at = s => [s % maze.columns * side, Math.floor(s / maze.columns) * side];
    if (looked >= 0) { const [x, y] = at(looked); out += `<rect x="${x + 4}" y="${y + 4}" width="92" height="92" class="lab-looked"/>`; }
    if (walker >= 0) { const [x, y] = at(walker); out += `<circle cx="${x + 84}" cy="${y + 52}" r="12" class="lab-walker"/>`; }
    svg.setAttribute("viewBox", `-3 -3 ${maze.columns * side + 6} ${maze.rows * side + 6}`);
    svg.setAttribute("aria-label", label);
    svg.innerHTML = out;
  }

  /** The actions that are best in a cell, none where all are equal. */
  function bestActions(Q, s) {
    const top = best(Q, s), ties = [0, 1, 2, 3].filter(a => Q[4 * s + a] > top - 1e-9);
    return ties.length === 4 ? [] : ties;
  }

  function mazePicture(attributes) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of Object.entries({ class: "lab-maze", role: "img", ...attributes })) svg.setAttribute(name, value);
    return svg;
  }

  /** The cell under a pointer. */
  function cellAt(svg, maze, event) {
    const box = svg.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * maze.columns), row = Math.floor((event.clientY - box.top) / box.height * maze.rows);
    return column < 0 || row < 0 || column >= maze.columns || row >= maze.rows ? -1 : row * maze.columns + column;
  }

  /** Choose cells by pointer and by arrow keys: `choose` gets the cell, or -1, and the event. */
  function choosable(svg, maze, looked, choose) {
    svg.addEventListener("pointerdown", event => { svg.focus({ preventScroll: true }); choose(cellAt(svg, maze(), event), event); });
    svg.addEventListener("keydown", event => {
      const direction = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].indexOf(event.key), { rows, columns } = maze();
      if (direction < 0) return;
      event.preventDefault();
      if (looked() < 0) return choose(maze().start, event);
      const row = Math.floor(looked() / columns) + MOVES[direction][0], column = looked() % columns + MOVES[direction][1];
      if (column >= 0 && row >= 0 && column < columns && row < rows) choose(row * columns + column, event);
    });
  }

  return { choosable, nameOf, kindOf, two, drawMaze, bestActions, mazePicture, cellAt };
});
