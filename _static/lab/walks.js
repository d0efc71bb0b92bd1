"use strict";
lab.define("walks", function (use) {
  const { generator, below, permutation } = use("random"), { Maze, LAYOUTS, ACTIONS } = use("maze"), { valueIteration } = use("tabular");

  const KEY = "rlbook-walks", KEPT = 50, LONG = 60, GAMMA = 0.9;
  /** A random maze of sixteen cells with three walls and a trap: there is a way to the goal, of five moves or more. */
  function randomMaze(rng) {
    for (;;) {
      const cells = Array(16).fill("."), places = permutation(rng, 16);
      [..."SGT###"].forEach((kind, k) => { cells[places[k]] = kind; });
      const layout = [0, 4, 8, 12].map(at => cells.slice(at, at + 4).join("")), maze = new Maze(layout), worth = valueIteration(maze, GAMMA).values[maze.start];
      if (worth > 0 && worth < 10 * GAMMA ** 3.5) return layout;
    }
  }
  const WORLDS = { ...Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8].map(k => [`sixteen cells, no. ${k}`, randomMaze(generator(k))])), "six cells": LAYOUTS.L1 };

  /** The reader's walks, {world: [walk]}, on this machine only; where nothing can be kept they last as long as the page. */
  const memory = {
    walks: {},
    read() {
      try {
        const kept = JSON.parse(localStorage.getItem(KEY)) ?? {}, worlds = Object.keys(kept).filter(world => WORLDS[world]), isCell = (world, s) => s in [...WORLDS[world].join("")];
        const whole = (world, walk) => walk.length && walk.every(({ state, action, reward, nextState }) =>
          action in ACTIONS && isCell(world, state) && isCell(world, nextState) && Number.isFinite(reward));
        this.walks = Object.fromEntries(worlds.map(world => [world, kept[world].filter(walk => whole(world, walk))]));
      } catch { /* then those of this page */ }
      return this.walks;
    },
    keep(world, walk) {
      const own = this.walks[world] ?? [];
      delete this.walks[world];
      this.walks[world] = [...own, walk].slice(-KEPT);
      try { localStorage.setItem(KEY, JSON.stringify(this.walks)); } catch { /* then for this page */ }
    },
    /** The world in which the reader walked last. */
    get last() { return Object.keys(this.walks).findLast(world => this.walks[world].length); },
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
