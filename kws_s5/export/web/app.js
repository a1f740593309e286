/* The page: a microphone at its own rate -> samples -> KwsStep -> KwsEvents -> what is shown. */
"use strict";

const $ = (id) => document.getElementById(id);
const CAPTURE = `registerProcessor("capture", class extends AudioWorkletProcessor {
  constructor() { super(); this.parts = []; this.n = 0; this.sent = 0; }
  process([input]) {
    if (input[0]) { this.parts.push(input[0].slice()); this.n += input[0].length; }
    if (this.n >= 0.04 * sampleRate) {
      this.port.postMessage({ number: this.sent++, parts: this.parts });
      this.parts = []; this.n = 0;
    }
    return true;
  }
});`;
const ui = { context: null, stream: null, step: null, finder: null, heard: 0, expected: 0, lost: 0, scores: [] };
window.kws = { events: [], state: ui }; // for programs that drive this page

function listWords() {
  const words = KWS_MODEL.labels.filter((word) => !word.startsWith("_"));
  $("words").textContent = `Words: ${words.join(", ")}`;
  $("bars").replaceChildren(...words.map((word) => {
    const row = document.createElement("li");
    row.innerHTML = "<span></span><b><i></i></b>";
    row.firstChild.textContent = word;
    return row;
  }));
}

async function start() {
  say("");
  try {
    ui.stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } });
    ui.context = new AudioContext();
    if (!(String(ui.context.sampleRate) in KWS_MODEL.banks)) ui.context = new AudioContext({ sampleRate: 48000 });
    // as data: pages opened from a file may not load worklets from blobs
    await ui.context.audioWorklet.addModule(`data:text/javascript,${encodeURIComponent(CAPTURE)}`);
  } catch (error) {
    return say(`The microphone cannot be used (${error.message}). It needs your permission, and a page from localhost, https or a file.`);
  }
  ui.step = new KwsStep(KWS_MODEL, ui.context.sampleRate);
  ui.finder = new KwsEvents(KWS_MODEL);
  Object.assign(ui, { heard: 0, expected: 0, lost: 0 });
  const node = new AudioWorkletNode(ui.context, "capture");
  node.port.onmessage = (message) => hear(message.data);
  ui.context.createMediaStreamSource(ui.stream).connect(node);
  $("start").textContent = "Stop";
  $("facts").textContent = `${ui.context.sampleRate} Hz, the model was trained at ${KWS_MODEL.rate} Hz`;
}

function hear({ number, parts }) {
  if (number !== ui.expected) ui.lost += number - ui.expected;
  ui.expected = number + 1;
  let peak = 0;
  for (const samples of parts) {
    for (const x of samples) peak = Math.max(peak, Math.abs(x));
    for (const frame of ui.step.push(samples)) {
      ui.scores = frame.scores;
      const event = ui.finder.push(frame.scores, frame.time);
      if (event) found(event);
    }
    ui.heard += samples.length;
  }
  show(peak);
}

function found(event) {
  window.kws.events.push(event);
  $("newest").textContent = event.word;
  const row = document.createElement("li");
  row.textContent = `${event.time.toFixed(2)} s  ${event.word}  ${event.score.toFixed(2)}`;
  $("log").prepend(row);
  while ($("log").children.length > 100) $("log").lastChild.remove();
}

function show(peak) {
  const level = peak ? Math.max(-80, 20 * Math.log10(peak)) : -80;
  $("level").value = level;
  const lost = ui.lost ? `, ${ui.lost} pieces lost` : "";
  $("time").textContent = `${(ui.heard / ui.step.rate).toFixed(1)} s heard${lost}, peak ${level.toFixed(0)} dB`;
  ui.finder.columns.forEach((k, i) => {
    $("bars").children[i].querySelector("i").style.width = `${100 * (ui.scores[k] || 0)}%`;
  });
}

function stop() {
  ui.stream?.getTracks().forEach((track) => track.stop());
  ui.context?.close();
  ui.context = ui.stream = null;
  $("start").textContent = "Listen";
}

function say(text) {
  $("notice").textContent = text;
}

$("start").addEventListener("click", () => (ui.context ? stop() : start()));
listWords();
