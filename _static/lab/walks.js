"use strict";
lab.define("walks", function (use) {
  const { generator, below } = use("random"), { Maze, LAYOUTS, ACTIONS } = use("maze");

  const KEY = "rlbook-walks", KEPT = 50, LONG = 60, GAMMA = 0.9;
  const WORLDS = { "six cells": LAYOUTS.L1, "sixteen cells": ["S...", ".#T.", "...#", "#..G"] };

  /** The reader's walks, {world: [walk]}, on this machine only; where nothing can be kept they last as long as the page. */
  const memory = {
    walks: {},
    read() {
      try {
        const kept = JSON.parse(localStorage.getItem(KEY)) ?? {}, isCell = (world, s) => s in [...WORLDS[world].join("")];
        const whole = (world, walk) => walk.length && walk.every(({ state, action, reward, nextState }) =>
          action in ACTIONS && isCell(world, state) && isCell(world, nextState) && Number.isFinite(reward));
        this.walks = Object.fromEntries(Object.keys(WORLDS).map(world => [world, (kept[world] ?? []).filter(walk => whole(world, walk))]));
      } catch { /* then those of this page */ }
      return this.walks;
    },
    keep(world, walk) {
      this.walks[world] = [...(this.walks[world] ?? []), walk].slice(-KEPT);
      try { localStorage.setItem(KEY, JSON.stringify(this.walks)); } catch { /* then for this page */ }
    },
    forget() { this.walks = {}; try { localStorage.removeItem(KEY); } catch { /* there was nothing */ } },
  };

  /** Someone who knows nothing: goes anywhere but where a trap was met, and rather where nobody has been. */
  function standIn(maze, state, met, rng) {
    const open = ACTIONS.map((_, a) => a).filter(a => met.get(maze.destinations[4 * state + a]) !== "T");
    const fresh = open.filter(a => maze.destinations[4 * state + a] !== state && !met.has(maze.destinations[4 * state + a]));
    const from = fresh.length && rng() < 0.7 ? fresh : open.length ? open : [0, 1, 2, 3];
    return from[below(rng, from.length)];
  }

  /** A walk from the start, by whoever chooses. */
  function walkOf(maze, choose, rng = null) {
    const walk = [];
    for (let state = maze.start; walk.length < LONG && !walk.at(-1)?.terminated; state = walk.at(-1).nextState)
      walk.push(maze.step(state, choose(state), rng));
    return walk;
  }

  /** Six walks of a stranger, always the same ones: they stand in for those of a reader who has not walked. */
  function lent(world) {
    const maze = new Maze(WORLDS[world]), rng = generator(11), met = new Map();
    return Array.from({ length: 6 }, () => {
      const walk = walkOf(maze, state => standIn(maze, state, met, rng));
      for (const { nextState } of walk) met.set(nextState, maze.cells[nextState]);
      return walk;
    });
  }

  return { KEY, LONG, GAMMA, WORLDS, memory, standIn, walkOf, lent };
});
