/* Scores over time -> events: the rules of kws_s5/listening/events.py, where they are explained.
 *
 *     const finder = new KwsEvents(KWS_MODEL, {threshold: 0.5});
 *     const event = finder.push(frame.scores, frame.time);      // null, or {word, start, end, score, time}
 */
"use strict";

class KwsEvents {
  /* config: threshold (of words without their own), smoothing, settle, release, refractory, warmup (seconds, shares);
   * thresholds: {word: number}; keywords: only these. */
  constructor(model, config = {}) {
    this.config = { ...model.events, ...config };
    this.words = (config.keywords || model.labels).filter((word) => !word.startsWith("_"));
    this.columns = this.words.map((word) => model.labels.indexOf(word));
    this.window = Math.max(1, Math.round(this.config.smoothing * model.frameRate));
    this.wait = 0.5 / model.frameRate;
    this.own = { ...model.thresholds, ...(config.thresholds || {}) };
    this.reset();
  }

  reset() {
    const K = this.words.length;
    this.setThreshold(this.config.threshold);
    this.past = [];
    this.free = new Array(K).fill(true);
    this.last = new Array(K).fill(-1e9);
    this.low = new Array(K).fill(-1e9);
    this.candidate = null;
  }

  /* Decides anew from now on; what was heard stays. */
  setThreshold(threshold) {
    this.threshold = this.words.map((word) => (word in this.own ? this.own[word] : threshold));
  }

  /* The scores of one frame, and its time in seconds. */
  push(all, time) {
    const { release, refractory, warmup, settle } = this.config, K = this.words.length;
    this.past.push(this.columns.map((k) => all[k]));
    if (this.past.length > this.window) this.past.shift();
    const scores = this.words.map((_, k) => this.past.reduce((sum, row) => sum + row[k], 0) / this.past.length);
    const low = scores.map((score, k) => score < release * this.threshold[k]);
    let best = -1;
    for (let k = 0; k < K; k++) {
      if (low[k]) {
        this.free[k] = true;
        this.low[k] = time;
      }
      const able = this.free[k] && scores[k] >= this.threshold[k] && time - this.last[k] >= refractory - this.wait;
      if (able && (best < 0 || scores[k] > scores[best])) best = k;
    }
    if (best >= 0 && time >= warmup) {
      if (!this.candidate) this.candidate = { k: best, opened: time, score: scores[best], at: time };
      else if (scores[best] > this.candidate.score)
        this.candidate = { k: best, opened: this.candidate.opened, score: scores[best], at: time };
    }
    const c = this.candidate;
    if (!c || !(low[c.k] || time - c.opened >= settle - this.wait)) return null;
    const event = this.decide(time);
    for (let k = 0; k < K; k++) this.free[k] = this.free[k] && scores[k] < this.threshold[k];
    this.free[c.k] = low[c.k];
    return event;
  }

  /* The stream is over: a decision that is still open is made now. */
  finish() {
    return this.candidate ? this.decide(this.candidate.at) : null;
  }

  decide(time) {
    const { k, opened, score, at } = this.candidate;
    this.candidate = null;
    this.last[k] = time;
    this.free[k] = false;
    const begin = Math.max(this.low[k], opened - 1);
    return { word: this.words[k], start: Math.max(0, begin - 0.15), end: at, score, time };
  }
}
