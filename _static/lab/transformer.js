"use strict";
lab.define("transformer", function (use) {
  const { linear, linearBack, logSoftmax } = use("network");
  const PAD = 0, EOS = 1;

  /** The parameters in the library's order: name, rows (inputs), columns (outputs). */
  function shapesOf({ vocabulary, width: D, layers, maxLength }) {
    const shapes = [["token", vocabulary, D], ["position", maxLength, D]];
    for (let l = 0; l < layers; l++) shapes.push(
      [`gain1.${l}`, 1, D], [`bias1.${l}`, 1, D], [`qkv.${l}`, D, 3 * D], [`qkvBias.${l}`, 1, 3 * D],
      [`out.${l}`, D, D], [`outBias.${l}`, 1, D], [`gain2.${l}`, 1, D], [`bias2.${l}`, 1, D],
      [`up.${l}`, D, 4 * D], [`upBias.${l}`, 1, 4 * D], [`down.${l}`, 4 * D, D], [`downBias.${l}`, 1, D]);
    return [...shapes, ["gain", 1, D], ["bias", 1, D], ["head", D, vocabulary]];
  }
  const sizeOf = config => shapesOf(config).reduce((sum, [, n, m]) => sum + n * m, 0);

  function named(flat, shapes) {
    let at = 0;
    return Object.fromEntries(shapes.map(([name, n, m]) => [name, flat.subarray(at, at += n * m)]));
  }

  /** Layer normalization of the rows from..to; the normalized rows and 1 / deviation are kept for the way back. */
  function norm(Y, kept, X, gain, bias, from, to, D) {
    for (let i = from; i < to; i++) {
      const x = i * D;
      let mean = 0, square = 0;
      for (let j = 0; j < D; j++) mean += X[x + j];
      mean /= D;
      for (let j = 0; j < D; j++) { const d = X[x + j] - mean; square += d * d; }
      const scale = kept.inverse[i] = 1 / Math.sqrt(square / D + 1e-5);
      for (let j = 0; j < D; j++) Y[x + j] = (kept.hat[x + j] = (X[x + j] - mean) * scale) * gain[j] + bias[j];
    }
  }

  /** dX += what came back through a layer normalization. */
  function normBack(dX, dGain, dBias, dY, kept, gain, rows, D) {
    for (let i = 0; i < rows; i++) {
      const x = i * D;
      let mean = 0, along = 0;
      for (let j = 0; j < D; j++) {
        const d = dY[x + j], hat = kept.hat[x + j];
        dBias[j] += d;
        dGain[j] += d * hat;
        mean += d * gain[j];
        along += d * gain[j] * hat;
      }
      for (let j = 0; j < D; j++) dX[x + j] += kept.inverse[i] * (dY[x + j] * gain[j] - (mean + kept.hat[x + j] * along) / D);
    }
  }

  /** GELU, x P(normal < x), and its slope; erf by Abramowitz and Stegun 7.1.26, whose error is below 2e-7. */
  function gelu(Y, slope, X, from, to) {
    for (let i = from; i < to; i++) {
      const x = X[i], z = Math.abs(x) * Math.SQRT1_2, t = 1 / (1 + 0.3275911 * z), e = Math.exp(-z * z);
      const tail = 0.5 * e * t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
      const below = x > 0 ? 1 - tail : tail;
      Y[i] = x * below;
      slope[i] = below + x * e * 0.3989422804014327;
    }
  }

  /**
   * A decoder-only transformer that reads a tree of tokens. The answers to one prompt share it: the prompt is the trunk,
   * each answer a branch. Every row of every array is one token of the tree and looks at its ancestors only. So nothing
   * is read twice and nothing is padded, and the rows that sampling has computed are its cache.
   */
  class Transformer {
    /** config: alphabet, width, layers, heads, maxLength, and room, the most tokens a tree may have. */
    constructor(config, theta) {
      const { alphabet, width: D, layers, heads, maxLength, room = 512 } = config;
      const V = alphabet.length + 2, shapes = shapesOf({ ...config, vocabulary: V }), row = n => new Float64Array(room * n);
      Object.assign(this, { alphabet, D, V, heads, maxLength, rows: 0 });
      this.theta = Float64Array.from(theta);
      this.gradient = new Float64Array(this.theta.length);
      this.w = named(this.theta, shapes);
      this.g = named(this.gradient, shapes);
      this.tokens = new Int32Array(room); this.parent = new Int32Array(room); this.depth = new Int32Array(room);
      this.blocks = Array.from({ length: layers }, () => ({ x: row(D), norm1: { hat: row(D), inverse: row(1) }, normed1: row(D),
        qkv: row(3 * D), weights: row(heads * maxLength), mixed: row(D), middle: row(D), norm2: { hat: row(D), inverse: row(1) },
        normed2: row(D), up: row(4 * D), slope: row(4 * D), active: row(4 * D) }));
      this.x = row(D); this.norm = { hat: row(D), inverse: row(1) }; this.normed = row(D);
      this.logits = row(V); this.logProbs = row(V); this.dLogits = row(V);
      this.sum = row(D); this.dX = row(D); this.dY = row(D); this.dWide = row(4 * D); this.dQkv = row(3 * D); this.dMixed = row(D);
    }

    encode(text) { return [...text].map(letter => this.alphabet.indexOf(letter) + 2); }
    /** The text before the end of sequence; padding is left out. */
    decode(tokens) { return tokens.map(t => t > EOS ? this.alphabet[t - 2] : "").join(""); }

    /** Begin a tree with a prompt; its last row is returned. */
    plant(prompt) {
      this.rows = 0;
      return this.encode(prompt).reduce((tip, token) => this.grow(token, tip), -1);
    }

    /** Add a token below a row; its own row is returned. */
    grow(token, parent) {
      const i = this.rows++;
      this.tokens[i] = token; this.parent[i] = parent; this.depth[i] = parent < 0 ? 0 : this.depth[parent] + 1;
      return i;
    }

    /** Log-probabilities of what follows each row from..to; the rows before them must have been read. */
    forward(from = 0, to = this.rows) {
      const { w, D, V } = this;
      let { x } = this.blocks[0];
      for (let i = from; i < to; i++)
        for (let j = 0; j < D; j++) x[i * D + j] = w.token[this.tokens[i] * D + j] + w.position[this.depth[i] * D + j];
      this.blocks.forEach((a, l) => {
        norm(a.normed1, a.norm1, a.x, w[`gain1.${l}`], w[`bias1.${l}`], from, to, D);
        linear(a.qkv, a.normed1, w[`qkv.${l}`], w[`qkvBias.${l}`], from, to, D, 3 * D);
        this.attend(a, from, to);
        linear(this.sum, a.mixed, w[`out.${l}`], w[`outBias.${l}`], from, to, D, D);
        for (let i = from * D; i < to * D; i++) a.middle[i] = a.x[i] + this.sum[i];
        norm(a.normed2, a.norm2, a.middle, w[`gain2.${l}`], w[`bias2.${l}`], from, to, D);
        linear(a.up, a.normed2, w[`up.${l}`], w[`upBias.${l}`], from, to, D, 4 * D);
        gelu(a.active, a.slope, a.up, from * 4 * D, to * 4 * D);
        linear(this.sum, a.active, w[`down.${l}`], w[`downBias.${l}`], from, to, 4 * D, D);
        x = this.blocks[l + 1]?.x ?? this.x;
        for (let i = from * D; i < to * D; i++) x[i] = a.middle[i] + this.sum[i];
      });
      norm(this.normed, this.norm, this.x, w.gain, w.bias, from, to, D);
      linear(this.logits, this.normed, w.head, null, from, to, D, V);
      logSoftmax(this.logProbs, this.logits, from, to, V);
    }

    /** Each row takes a weighted mean of its ancestors' values, its own among them. */
    attend({ qkv, weights, mixed }, from, to) {
      const { D, heads, maxLength, parent, depth } = this, d = D / heads, scale = 1 / Math.sqrt(d);
      mixed.fill(0, from * D, to * D);
      for (let i = from; i < to; i++)
        for (let h = 0; h < heads; h++) {
          const q = i * 3 * D + h * d, at = (i * heads + h) * maxLength, o = i * D + h * d;
          let top = -Infinity, sum = 0;
          for (let j = i; j >= 0; j = parent[j]) {
            const k = j * 3 * D + D + h * d;
            let s = 0;
            for (let c = 0; c < d; c++) s += qkv[q + c] * qkv[k + c];
            top = Math.max(top, weights[at + depth[j]] = s * scale);
          }
          for (let t = at; t <= at + depth[i]; t++) sum += weights[t] = Math.exp(weights[t] - top);
          for (let j = i; j >= 0; j = parent[j]) {
            const p = weights[at + depth[j]] /= sum, v = j * 3 * D + 2 * D + h * d;
            for (let c = 0; c < d; c++) mixed[o + c] += p * qkv[v + c];
          }
        }
    }

    attendBack({ qkv, weights }, dQkv, dMixed) {
      const { D, heads, maxLength, parent, depth, rows } = this, d = D / heads, scale = 1 / Math.sqrt(d);
      const dP = this.dP ??= new Float64Array(maxLength);
      dQkv.fill(0, 0, rows * 3 * D);
      for (let i = 0; i < rows; i++)
        for (let h = 0; h < heads; h++) {
          const q = i * 3 * D + h * d, at = (i * heads + h) * maxLength, o = i * D + h * d;
          let mean = 0;
          for (let j = i; j >= 0; j = parent[j]) {
            const p = weights[at + depth[j]], v = j * 3 * D + 2 * D + h * d;
            let s = 0;
            for (let c = 0; c < d; c++) { s += dMixed[o + c] * qkv[v + c]; dQkv[v + c] += p * dMixed[o + c]; }
            dP[depth[j]] = s;
            mean += p * s;
          }
          for (let j = i; j >= 0; j = parent[j]) {
            const ds = weights[at + depth[j]] * (dP[depth[j]] - mean) * scale, k = j * 3 * D + D + h * d;
            for (let c = 0; c < d; c++) { dQkv[q + c] += ds * qkv[k + c]; dQkv[k + c] += ds * qkv[q + c]; }
          }
        }
    }

    /** Add to the gradient what dLogits says; the rows are those of the tree that was read last. */
    backward() {
      const { w, g, rows, D, V, dX, dY, dWide, dQkv, dMixed } = this;
      linearBack(dY, g.head, null, this.dLogits, this.normed, w.head, rows, D, V);
      dX.fill(0, 0, rows * D);
      normBack(dX, g.gain, g.bias, dY, this.norm, w.gain, rows, D);
      for (let l = this.blocks.length - 1; l >= 0; l--) {
        const a = this.blocks[l];
        linearBack(dWide, g[`down.${l}`], g[`downBias.${l}`], dX, a.active, w[`down.${l}`], rows, 4 * D, D);
        for (let i = 0; i < rows * 4 * D; i++) dWide[i] *= a.slope[i];
        linearBack(dY, g[`up.${l}`], g[`upBias.${l}`], dWide, a.normed2, w[`up.${l}`], rows, D, 4 * D);
        normBack(dX, g[`gain2.${l}`], g[`bias2.${l}`], dY, a.norm2, w[`gain2.${l}`], rows, D);
        linearBack(dMixed, g[`out.${l}`], g[`outBias.${l}`], dX, a.mixed, w[`out.${l}`], rows, D, D);
        this.attendBack(a, dQkv, dMixed);
        linearBack(dY, g[`qkv.${l}`], g[`qkvBias.${l}`], dQkv, a.normed1, w[`qkv.${l}`], rows, D, 3 * D);
        normBack(dX, g[`gain1.${l}`], g[`bias1.${l}`], dY, a.norm1, w[`gain1.${l}`], rows, D);
      }
      for (let i = 0; i < rows; i++)
        for (let j = 0; j < D; j++) {
          g.token[this.tokens[i] * D + j] += dX[i * D + j];
          g.position[this.depth[i] * D + j] += dX[i * D + j];
        }
    }

    /** Log-probability of a text after the prompt whose tree was planted and read last: of its first token only. */
    firstLogProb(letter, tip) { return this.logProbs[tip * this.V + this.encode(letter)[0]]; }
  }

  /** Sample `count` answers to one prompt: their tokens, the rows that predict these, and their log-probabilities. */
  function generate(model, prompt, count, maxNewTokens, rng, greedy = false) {
    const { V } = model, trunk = model.plant(prompt);
    model.forward();
    const answers = Array.from({ length: count }, () => ({ tokens: [], logProbs: [], ended: false, tip: trunk }));
    let going = answers;
    for (let n = 0; going.length && n < maxNewTokens; n++) {
      const first = model.rows;
      for (const answer of going) {
        const at = answer.tip * V;
        let token = 0;
        if (greedy) { for (let v = 1; v < V; v++) if (model.logProbs[at + v] > model.logProbs[at + token]) token = v; }
        else for (let left = rng(); token < V - 1 && (left -= Math.exp(model.logProbs[at + token])) >= 0;) token++;
        answer.tokens.push(token);
        answer.logProbs.push(model.logProbs[at + token]);
        answer.ended = token === EOS;
      }
      going = going.filter(answer => !answer.ended);
      if (n + 1 < maxNewTokens) for (const answer of going) answer.tip = model.grow(answer.tokens[n], answer.tip);
      model.forward(first);
    }
    for (const answer of answers) answer.text = model.decode(answer.tokens);
    return answers;
  }

  /** Numbers from the base64 of float16. */
  function fromHalf(base64) {
    const bytes = atob(base64), numbers = new Float64Array(bytes.length / 2);
    for (let i = 0; i < numbers.length; i++) {
      const half = bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8, exponent = half >> 10 & 31, fraction = half & 1023;
      numbers[i] = (half >> 15 ? -1 : 1) * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
    }
    return numbers;
  }

  return { PAD, EOS, shapesOf, sizeOf, Transformer, generate, fromHalf };
});
