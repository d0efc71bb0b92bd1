"use strict";
lab.define("returns", function () {
  // Steps of N copies side by side: step t of copy n stands at t N + n. An end is one of two things: after a termination
  // nothing comes, after a truncation (and at the end of the rows) the value of the next state counts.

  /** Generalized advantages and what the values should have been: A_t = delta_t + gamma lambda A_{t+1}, backward in time. */
  function gae(rewards, values, nextValues, terminated, truncated, copies, gamma, lambda) {
    const size = rewards.length, advantages = new Float64Array(size), targets = new Float64Array(size);
    for (let i = size - 1; i >= 0; i--) {
      const delta = rewards[i] + (terminated[i] ? 0 : gamma * nextValues[i]) - values[i];
      const goesOn = i + copies < size && !terminated[i] && !truncated[i];
      advantages[i] = delta + (goesOn ? gamma * lambda * advantages[i + copies] : 0);
      targets[i] = advantages[i] + values[i];
    }
    return { advantages, targets };
  }

  /** G_t = r_t + gamma G_{t+1}: the advantages of a world whose values are all 0, with lambda 1. */
  function discountedReturns(rewards, terminated, truncated, copies, gamma) {
    const zeros = new Float64Array(rewards.length);
    return gae(rewards, zeros, zeros, terminated, truncated, copies, gamma, 1).advantages;
  }

  const mean = x => x.reduce((sum, v) => sum + v, 0) / x.length;
  const deviation = (x, m = mean(x)) => Math.sqrt(x.reduce((sum, v) => sum + (v - m) ** 2, 0) / x.length);

  /** Shifted and scaled to mean 0 and deviation 1. */
  function normalizeAdvantages(advantages) {
    const m = mean(advantages), spread = deviation(advantages, m) + 1e-8;
    return advantages.map(a => (a - m) / spread);
  }

  return { gae, discountedReturns, mean, deviation, normalizeAdvantages };
});
