"use strict";
lab.define("maze", function () {
  const ACTIONS = ["up", "down", "left", "right"];
  const MOVES = [[-1, 0], [1, 0], [0, -1], [0, 1]];          // (row, column) step of each action
  const SIDES = [[2, 3], [2, 3], [0, 1], [0, 1]];            // the two directions at a right angle to each action
  const LAYOUTS = { L1: ["S..", ".TG"], L2: ["S..", "T.G"], L3: ["S.G", "..T"], L4: ["S#T", "..G"] };
  const REWARDS = { G: 10, T: -10 };                         // for entering such a cell; every other move pays 0

  /** "S" start, "G" goal, "T" trap, "#" wall, "." free. Goals and traps end an episode; a wall cannot be entered. */
  class Maze {
    constructor(layout = LAYOUTS.L1, slip = 0) {
      this.rows = layout.length; this.columns = layout[0].length; this.nStates = this.rows * this.columns;
      this.slip = slip;
      this.cells = [...layout.join("")];
      this.rewards = Float64Array.from(this.cells, cell => REWARDS[cell] ?? 0);
      this.findDestinations();
    }

    get start() { return this.cells.indexOf("S"); }
    get layout() { return Array.from({ length: this.rows }, (_, r) => this.cells.slice(r * this.columns, (r + 1) * this.columns).join("")); }
    terminal(s) { return "GT#".includes(this.cells[s]); }    // worth 0, whatever follows

    /** Make a cell another kind of cell, with the reward of that kind or one of your own. There is always one start. */
    paint(s, kind, reward = REWARDS[kind] ?? 0) {
      if (this.cells[s] === "S" && kind !== "S") return;
      if (kind === "S") { this.cells[this.start] = "."; }
      this.cells[s] = kind;
      this.rewards[s] = reward;
      this.findDestinations();
    }

    /** Where each move leads: a wall and the edge leave the agent where it is, and so does a terminal cell. */
    findDestinations() {
      this.destinations = Int32Array.from({ length: 4 * this.nStates }, (_, i) => {
        const s = i >> 2, row = Math.floor(s / this.columns) + MOVES[i & 3][0], column = s % this.columns + MOVES[i & 3][1];
        if (this.terminal(s) || row < 0 || row >= this.rows || column < 0 || column >= this.columns) return s;
        const target = row * this.columns + column;
        return this.cells[target] === "#" ? s : target;
      });
    }

    /** What an action may do, as [probability, cell]: the move, or a slip to either side. */
    outcomes(s, a) {
      const to = direction => this.destinations[4 * s + direction];
      return [[1 - this.slip, to(a)], [this.slip / 2, to(SIDES[a][0])], [this.slip / 2, to(SIDES[a][1])]];
    }

    /** One move; a single draw decides between the chosen direction and its two sides. */
    step(s, a, rng) {
      const draw = this.slip ? rng() : 1;
      const direction = draw >= this.slip ? a : SIDES[a][draw < this.slip / 2 ? 0 : 1];
      const nextState = this.destinations[4 * s + direction];
      return { state: s, action: a, reward: this.rewards[nextState], nextState, terminated: this.terminal(nextState), truncated: false };
    }
  }

  return { ACTIONS, MOVES, SIDES, LAYOUTS, REWARDS, Maze };
});
