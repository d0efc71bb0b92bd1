"use strict";
lab.define("network", function (use) {
  const { normal } = use("random");

  // All arrays are flat and hold their rows one after the other. Weights are stored (inputs, outputs), and the number
  // of inputs is a multiple of 4: the innermost loops take four at a time, which more than halves the time.

  /** Y = X W + b for the rows from..to; X (rows, n), W (n, m), b (m,) or null. */
  function linear(Y, X, W, b, from, to, n, m) {
    for (let i = from; i < to; i++) {
      const y = i * m, x = i * n;
      for (let j = 0; j < m; j++) Y[y + j] = b ? b[j] : 0;
      for (let p = 0; p < n; p += 4) {
        const x0 = X[x + p], x1 = X[x + p + 1], x2 = X[x + p + 2], x3 = X[x + p + 3];
        const w0 = p * m, w1 = w0 + m, w2 = w1 + m, w3 = w2 + m;
        for (let j = 0; j < m; j++) Y[y + j] += x0 * W[w0 + j] + x1 * W[w1 + j] + x2 * W[w2 + j] + x3 * W[w3 + j];
      }
    }
  }

  /** The way back: from dY, the loss's derivative by Y, dX is set (null: not wanted), dW and db are added to. */
  function linearBack(dX, dW, db, dY, X, W, rows, n, m) {
    for (let i = 0; i < rows; i++) {
      const y = i * m, x = i * n;
      if (db) for (let j = 0; j < m; j++) db[j] += dY[y + j];
      if (dX) for (let p = 0; p < n; p += 4) {
        const w0 = p * m, w1 = w0 + m, w2 = w1 + m, w3 = w2 + m;
        let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (let j = 0; j < m; j++) {
          const d = dY[y + j];
          s0 += d * W[w0 + j]; s1 += d * W[w1 + j]; s2 += d * W[w2 + j]; s3 += d * W[w3 + j];
        }
        dX[x + p] = s0; dX[x + p + 1] = s1; dX[x + p + 2] = s2; dX[x + p + 3] = s3;
      }
    }
    let i = 0;
    for (; i + 3 < rows; i += 4)
      for (let p = 0; p < n; p++) {
        const x = i * n + p, x0 = X[x], x1 = X[x + n], x2 = X[x + 2 * n], x3 = X[x + 3 * n];
        const w = p * m, y0 = i * m, y1 = y0 + m, y2 = y1 + m, y3 = y2 + m;
        for (let j = 0; j < m; j++) dW[w + j] += x0 * dY[y0 + j] + x1 * dY[y1 + j] + x2 * dY[y2 + j] + x3 * dY[y3 + j];
      }
    for (; i < rows; i++)
      for (let p = 0; p < n; p++)
        for (let j = 0; j < m; j++) dW[p * m + j] += X[i * n + p] * dY[i * m + j];
  }

  /** Logarithms of softmax probabilities: z_a - log sum exp(z_b), row by row; the largest is taken out first. */
  function logSoftmax(out, logits, from, to, A) {
    for (let i = from * A; i < to * A; i += A) {
      let top = -Infinity, sum = 0;
      for (let a = 0; a < A; a++) top = Math.max(top, logits[i + a]);
      for (let a = 0; a < A; a++) sum += Math.exp(logits[i + a] - top);
      for (let a = 0; a < A; a++) out[i + a] = logits[i + a] - top - Math.log(sum);
    }
    return out;
  }

  /** Fill W (n, m) with orthonormal rows or columns, whichever are fewer, times a gain: random directions made upright. */
  function orthogonal(W, n, m, gain, rng) {
    const tall = n >= m, count = Math.min(n, m), size = Math.max(n, m), vectors = [];
    while (vectors.length < count) {
      const v = Float64Array.from({ length: size }, () => normal(rng));
      for (const u of vectors) {
        const along = v.reduce((sum, x, k) => sum + x * u[k], 0);
        for (let k = 0; k < size; k++) v[k] -= along * u[k];
      }
      const length = Math.hypot(...v);
      vectors.push(v.map(x => x / length));
    }
    for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) W[i * m + j] = gain * (tall ? vectors[j][i] : vectors[i][j]);
  }

  /** A multilayer perceptron: linear layers with tanh or ReLU between them, its weights and its gradient in one row each. */
  class Network {
    constructor(sizes, { activation = "tanh", outputGain = 1, rng = null } = {}) {
      Object.assign(this, { sizes, activation, room: 0 });
      const size = sizes.slice(1).reduce((sum, m, l) => sum + (sizes[l] + 1) * m, 0);
      this.theta = new Float64Array(size);
      this.gradient = new Float64Array(size);
      let at = 0;
      this.layers = sizes.slice(1).map((m, l) => {
        const n = sizes[l], bias = at + n * m, end = bias + m, part = flat => [flat.subarray(at, bias), flat.subarray(bias, end)];
        const [W, b] = part(this.theta), [dW, db] = part(this.gradient);
        at = end;
        if (rng) orthogonal(W, n, m, l === sizes.length - 2 ? outputGain : Math.SQRT2, rng);
        return { n, m, W, b, dW, db };
      });
    }

    /** Outputs (rows, last size) for X (rows, first size); what the way back needs is kept until the next call. */
    forward(X, rows) {
      if (rows > this.room) {
        this.room = rows;
        for (const layer of this.layers) { layer.Y = new Float64Array(rows * layer.m); layer.dY = new Float64Array(rows * layer.m); }
      }
      this.X = X; this.rows = rows;
      this.layers.forEach(({ n, m, W, b, Y }, l) => {
        linear(Y, X, W, b, 0, rows, n, m);
        if (l < this.layers.length - 1) {
          if (this.activation === "relu") { for (let i = 0; i < rows * m; i++) if (Y[i] < 0) Y[i] = 0; }
          else for (let i = 0; i < rows * m; i++) Y[i] = Math.tanh(Y[i]);
        }
        X = Y;
      });
      return X;
    }

    /** How the outputs of the last forward pass move when theta moves along v: the derivative, layer by layer. */
    push(v) {
      let at = 0, moved = null, X = this.X;
      this.layers.forEach(({ n, m, W, Y }, l) => {
        const dW = v.subarray(at, at + n * m), db = v.subarray(at + n * m, at + (n + 1) * m);
        const dY = new Float64Array(this.rows * m), through = new Float64Array(this.rows * m);
        linear(dY, X, dW, db, 0, this.rows, n, m);
        if (moved) linear(through, moved, W, null, 0, this.rows, n, m);
        for (let i = 0; i < dY.length; i++) {
          const slope = l === this.layers.length - 1 ? 1 : this.activation === "relu" ? +(Y[i] > 0) : 1 - Y[i] * Y[i];
          dY[i] = slope * (dY[i] + through[i]);
        }
        at += (n + 1) * m; moved = dY; X = Y;
      });
      return moved;
    }

    /** Add to the gradient what dY, the loss's derivative by the last outputs, says. */
    backward(dY) {
      for (let l = this.layers.length - 1; l >= 0; l--) {
        const { n, m, W, dW, db } = this.layers[l], below = l ? this.layers[l - 1] : null;
        linearBack(below && below.dY, dW, db, dY, below ? below.Y : this.X, W, this.rows, n, m);
        if (!below) return;
        const { Y } = below;
        dY = below.dY;
        if (this.activation === "relu") { for (let i = 0; i < this.rows * n; i++) if (Y[i] <= 0) dY[i] = 0; }
        else for (let i = 0; i < this.rows * n; i++) dY[i] *= 1 - Y[i] * Y[i];
      }
    }
  }

  /** Adam: the mean of the gradient, divided by the root of the mean of its square; both corrected for starting at 0. */
  class Adam {
    constructor(size, { betas = [0.9, 0.999], eps = 1e-8 } = {}) {
      Object.assign(this, { betas, eps, t: 0, m: new Float64Array(size), v: new Float64Array(size) });
    }

    /** One step down the gradient; a gradient longer than maxNorm is shortened to it first. Returns its length, if measured. */
    step(theta, gradient, rate, maxNorm = null) {
      const { m, v, eps, betas: [b1, b2] } = this, c1 = 1 - b1 ** ++this.t, c2 = 1 - b2 ** this.t;
      let norm = NaN, shrink = 1;
      if (maxNorm !== null) {
        norm = Math.sqrt(gradient.reduce((sum, g) => sum + g * g, 0));
        shrink = Math.min(1, maxNorm / (norm + 1e-6));
      }
      for (let i = 0; i < theta.length; i++) {
        const g = gradient[i] * shrink;
        m[i] += (1 - b1) * (g - m[i]);
        v[i] += (1 - b2) * (g * g - v[i]);
        theta[i] -= rate * (m[i] / c1) / (Math.sqrt(v[i] / c2) + eps);
      }
      return norm;
    }
  }

  return { linear, linearBack, logSoftmax, orthogonal, Network, Adam };
});
