"use strict";
lab.define("random", function () {
  /** A seeded generator of numbers in [0, 1): mulberry32, whose whole state is one integer. */
  function generator(seed) {
    return () => {
      seed = seed + 0x6D2B79F5 | 0;
      let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
      t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
      return ((t ^ t >>> 14) >>> 0) / 4294967296;
    };
  }

  /** A standard normal number, by Box and Muller. */
  const normal = rng => Math.sqrt(-2 * Math.log(1 - rng())) * Math.cos(2 * Math.PI * rng());

  /** An integer from 0 to n - 1. */
  const below = (rng, n) => Math.floor(n * rng());

  /** The numbers 0 to n - 1 in random order, by Fisher and Yates. */
  function permutation(rng, n) {
    const order = Int32Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = below(rng, i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  return { generator, normal, below, permutation };
});
