"use strict";
lab.define("cartpole", function () {
  const LIMIT = 500, EDGE = 2.4, FALLEN = 12 * Math.PI / 180;
  const OBSERVATION = 4, ACTIONS = 2;

  /** Gymnasium's CartPole-v1: a cart at (x, speed) carries a pole at (angle, turn); each step that it stands pays 1. */
  class CartPole {
    constructor(rng) { this.rng = rng; this.state = new Float64Array(OBSERVATION); this.reset(); }

    reset() {
      this.steps = 0;
      for (let k = 0; k < OBSERVATION; k++) this.state[k] = 0.1 * this.rng() - 0.05;
    }

    /** One push, 0 left or 1 right. Terminated: the pole has fallen or the cart has left; truncated: 500 steps are over. */
    step(action) {
      const s = this.state, [x, speed, angle, turn] = s, sin = Math.sin(angle), cos = Math.cos(angle);
      const push = ((action ? 10 : -10) + 0.05 * turn * turn * sin) / 1.1;
      const spin = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1));
      s[0] = x + 0.02 * speed;
      s[1] = speed + 0.02 * (push - 0.05 * spin * cos / 1.1);
      s[2] = angle + 0.02 * turn;
      s[3] = turn + 0.02 * spin;
      const terminated = Math.abs(s[0]) > EDGE || Math.abs(s[2]) > FALLEN, truncated = ++this.steps >= LIMIT;
      return { reward: 1, terminated, truncated: truncated && !terminated };
    }
  }

  return { LIMIT, EDGE, FALLEN, OBSERVATION, ACTIONS, CartPole };
});
