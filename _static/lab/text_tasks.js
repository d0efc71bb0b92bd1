"use strict";
lab.define("text_tasks", function (use) {
  const { below } = use("random");

  /** CRC-32, by which the library splits prompts: one in five is for evaluation, the same ones on every machine. */
  function crc32(text) {
    let c = -1;
    for (const letter of text) {
      c ^= letter.charCodeAt(0);
      for (let k = 0; k < 8; k++) c = c & 1 ? c >>> 1 ^ 0xEDB88320 : c >>> 1;
    }
    return (c ^ -1) >>> 0;
  }
  const splitOf = prompt => crc32(prompt) % 5 === 0 ? "eval" : "train";

  /** The check digit of a number: with it, the digits times their weights add up to a multiple of ten. */
  class CheckDigit {
    constructor(digits = 5, weights = [1, 3]) { Object.assign(this, { digits, weights, alphabet: "0123456789:=", maxNewTokens: digits + 5 }); }

    prompt(rng, split = "train") {
      for (;;) {
        const prompt = Array.from({ length: this.digits }, () => below(rng, 10)).join("") + ":";
        if (splitOf(prompt) === split) return prompt;
      }
    }

    /** The written work: the last digit of each running sum; the last digit has the last weight. */
    work(prompt) {
      const { digits, weights } = this, shift = (weights.length - digits % weights.length) % weights.length;
      let total = 0;
      return [...prompt.slice(0, -1)].map((digit, place) => (total += digit * weights[(place + shift) % weights.length]) % 10).join("");
    }

    answer(prompt) { return String((10 - +this.work(prompt).at(-1)) % 10); }

    /** 1 if the text has ended and the right digit follows its last "=": nothing asks for work. */
    reward(prompt, text, ended) {
      return +(ended && text.includes("=") && text.slice(text.lastIndexOf("=") + 1) === this.answer(prompt));
    }
  }

  const lastNumber = text => text.match(/\d+/g)?.at(-1) ?? null;

  /** What a rule may look at; the first is what is wanted, and the others are what one might write in its place. */
  const RULES = {
    "right after the last =": ({ right }) => right,
    "contains the digit": ({ text, digit }) => +text.includes(digit),
    "last number is the digit": ({ text, digit }) => +(Number(lastNumber(text) ?? NaN) === +digit),
    "minus its length": ({ tokens }) => -tokens / 10,
  };

  /** A rule from its name, or from an expression in prompt, text, ended, digit, right and tokens. */
  function readRule(rule) {
    if (RULES[rule]) return RULES[rule];
    const written = new Function("prompt", "text", "ended", "digit", "right", "tokens", `"use strict"; return (${rule}\n);`);
    return ({ prompt, text, ended, digit, right, tokens }) => {
      const reward = Number(written(prompt, text, ended, digit, right, tokens));
      if (!Number.isFinite(reward)) throw new Error(`the rule gave ${reward} for the answer "${text}"; expected a number`);
      return reward;
    };
  }

  return { splitOf, CheckDigit, lastNumber, RULES, readRule };
});
