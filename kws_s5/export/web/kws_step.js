/* A kws_s5 model that listens, in plain JavaScript: the operations of kws_s5/export/numpy_step.py, in the same order.
 *
 *     const step = new KwsStep(KWS_MODEL, 48000);          // kws_model.js; one of KWS_MODEL.rates
 *     for (const frame of step.push(samples)) ...          // Float32Array in [-1, 1), any length
 *         frame.time                                       // seconds of sound heard
 *         frame.scores                                     // probabilities, in the order of KWS_MODEL.labels
 *
 * Legend: M modes, n poles, H features, P states, K outputs, W frames of the window.
 */
"use strict";

class KwsStep {
  constructor(model, rate) {
    const bank = model.banks[String(rate)];
    if (!bank) throw new Error(`no coefficients for ${rate} Hz; this model has them for ${Object.keys(model.banks).join(", ")}`);
    this.model = model;
    this.rate = rate;
    this.samplesPerFrame = rate / model.frameRate;
    this.bank = Object.fromEntries(Object.entries(bank).map(([name, text]) => [name, Float64Array.from(KwsStep.numbers(text))]));
    this.t = Object.fromEntries(Object.entries(model.tensors).map(([name, tensor]) => [name, KwsStep.tensor(tensor)]));
    this.reset();
  }

  /* base64 -> Float32Array */
  static numbers(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  }

  /* {data, scales?} -> Float32Array; with scales the data are bytes, row by row */
  static tensor({ data, scales, rows }) {
    if (!scales) return KwsStep.numbers(data);
    const bytes = new Int8Array(Uint8Array.from(atob(data), (c) => c.charCodeAt(0)).buffer);
    const scale = KwsStep.numbers(scales), columns = bytes.length / rows, out = new Float32Array(bytes.length);
    for (let i = 0; i < out.length; i++) out[i] = bytes[i] * scale[Math.floor(i / columns)];
    return out;
  }

  /* Silence, as before the first sample. */
  reset() {
    const { M, P, K, W, nPoles, nLayers } = this.model.sizes;
    this.frames = 0;
    this.position = 0;
    this.recent = [0, 0];
    this.re = new Float64Array(nPoles * M);
    this.im = new Float64Array(nPoles * M);
    this.power = new Float32Array(M);
    this.frame = new Float32Array(M);
    this.states = Array.from({ length: nLayers }, () => new Float32Array(2 * P));
    this.votes = Array.from({ length: W }, () => new Float32Array(K));
    this.nextEdge();
  }

  nextEdge() {
    const edge = (this.frames + 1) * this.samplesPerFrame, whole = Math.round(edge);
    this.edge = Math.abs(edge - whole) < 1e-6 ? whole : edge;
    this.end = Math.ceil(this.edge);
  }

  push(samples) {
    const decided = [];
    for (let i = 0; i < samples.length; i++)
      if (this.hear(samples[i] + 1e-12)) decided.push({ time: this.frames * this.samplesPerFrame / this.rate, scores: KwsStep.softmax(this.decide()) });
    return decided;
  }

  /* One sample; true when a frame is complete. */
  hear(u) {
    const { M, nPoles } = this.model.sizes, { tapRe, tapIm, poleRe, poleIm } = this.bank, { re: allRe, im: allIm } = this;
    const complete = ++this.position >= this.end, power = this.power;
    const beyond = complete ? this.position - this.edge : 0, u1 = this.recent[0], u2 = this.recent[1];
    for (let m = 0; m < M; m++) {
      let re = tapRe[m] * u + tapRe[M + m] * u1 + tapRe[2 * M + m] * u2;
      let im = tapIm[m] * u + tapIm[M + m] * u1 + tapIm[2 * M + m] * u2;
      const aRe = poleRe[m], aIm = poleIm[m];
      for (let p = 0, at = m; p < nPoles; p++, at += M) {
        const xRe = allRe[at], xIm = allIm[at];
        re += aRe * xRe - aIm * xIm;
        im += aRe * xIm + aIm * xRe;
        allRe[at] = re;
        allIm[at] = im;
      }
      const square = re * re + im * im;
      if (complete) {
        this.frame[m] = (power[m] + (1 - beyond) * square) / this.samplesPerFrame;
        power[m] = beyond * square;
      } else power[m] += square;
    }
    this.recent[1] = u1;
    this.recent[0] = u;
    if (complete) {
      this.frames++;
      this.nextEdge();
    }
    return complete;
  }

  /* Logits (K) of the frame that is complete. */
  decide() {
    const { M, H, K, W, nLayers } = this.model.sizes, t = this.t;
    let x = Float32Array.from(this.frame, (power) => Math.log(power + this.model.floor));
    x = this.normalise("front.norm", x);
    for (let m = 0; m < M; m++) if (!this.bank.present[m]) x[m] = t["front.bias"][m];
    x = KwsStep.dense(t.encoder, t["encoder.bias"], x);
    for (let i = 0; i < nLayers; i++) x = this.layer(i, x);
    this.votes[(this.frames - 1) % W] = KwsStep.dense(t.decoder, null, x, K);
    const seen = Math.min(this.frames, W), logits = Float64Array.from(t["decoder.bias"]);
    for (let w = 0; w < seen; w++) for (let k = 0; k < K; k++) logits[k] += this.votes[w][k] / seen;
    return logits;
  }

  layer(i, skip) {
    const { H, P } = this.model.sizes, { prenorm, activation } = this.model, t = this.t, name = `layers.${i}`;
    const u = prenorm ? this.normalise(`${name}.norm`, skip) : skip, state = this.states[i];
    const drive = KwsStep.dense(t[`${name}.B`], null, u, 2 * P), re = t[`${name}.LambdaRe`], im = t[`${name}.LambdaIm`];
    for (let p = 0; p < P; p++) {
      const oldRe = state[p], oldIm = state[P + p];
      state[p] = re[p] * oldRe - im[p] * oldIm + drive[p];
      state[P + p] = re[p] * oldIm + im[p] * oldRe + drive[P + p];
    }
    let y = KwsStep.dense(t[`${name}.C`], null, state, H);
    for (let h = 0; h < H; h++) y[h] += t[`${name}.D`][h] * u[h];
    if (t[`${name}.ssm_norm.shift`]) y = this.normalise(`${name}.ssm_norm`, y);
    let h = y.map((v) => v * KwsStep.sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v)));
    if (activation !== "gelu") {
      const gate = KwsStep.dense(t[`${name}.out2`], t[`${name}.out2.bias`], h);
      if (activation === "full_glu") h = KwsStep.dense(t[`${name}.out1`], t[`${name}.out1.bias`], h);
      else if (activation === "half_glu2") h = y;
      h = h.map((v, j) => v * KwsStep.sigmoid(gate[j]));
    }
    const x = h.map((v, j) => v + skip[j]);
    return prenorm ? x : this.normalise(`${name}.norm`, x);
  }

  /* Batch norm is one gain and one shift for each feature; layer norm looks at the frame first. */
  normalise(name, x) {
    const gain = this.t[`${name}.gain`], shift = this.t[`${name}.shift`];
    let mean = 0, scale = 1;
    if (this.model.centred.includes(name)) {
      mean = x.reduce((sum, v) => sum + v, 0) / x.length;
      scale = 1 / Math.sqrt(x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length + 1e-6);
    }
    return x.map((v, j) => (gain ? gain[j] : 1) * (v - mean) * scale + shift[j]);
  }

  /* Matrix (outputs, inputs), row by row, times x. */
  static dense(matrix, bias, x, rows = bias ? bias.length : 0) {
    const n = x.length, out = new Float32Array(rows);
    for (let i = 0, at = 0; i < rows; i++, at += n) {
      let a = bias ? bias[i] : 0, b = 0, c = 0, d = 0, j = 0; // four sums: additions need not wait for each other
      for (; j + 3 < n; j += 4) {
        a += matrix[at + j] * x[j];
        b += matrix[at + j + 1] * x[j + 1];
        c += matrix[at + j + 2] * x[j + 2];
        d += matrix[at + j + 3] * x[j + 3];
      }
      for (; j < n; j++) a += matrix[at + j] * x[j];
      out[i] = a + b + c + d;
    }
    return out;
  }

  static sigmoid(x) {
    return 1 / (1 + Math.exp(-x));
  }

  static softmax(logits) {
    const most = Math.max(...logits), e = Float64Array.from(logits, (v) => Math.exp(v - most));
    const sum = e.reduce((a, b) => a + b, 0);
    return e.map((v) => v / sum);
  }
}
