"""One visitor's microphone: chunks of any length go in, what the page shows comes out. Constant memory; thread-safe.

Legend: l samples of a chunk, f frames, K keywords.
"""

from collections import deque
from threading import Lock
from typing import Any

import numpy as np

from kws_s5.audio.samples import mono
from kws_s5.bundle import Bundle
from kws_s5.demo.recording import scaled_thresholds
from kws_s5.errors import UserError
from kws_s5.listening.events import Event
from kws_s5.listening.spotter import KeywordSpotter

SHOWN = 8.0  # seconds of scores
LOG = 30  # events
MAX_CHUNK = 30.0  # seconds
SILENT = -100.0  # dB


class Live:
    """Listens to one microphone at its own rate; another rate (or ``over``) starts a new stream and keeps the log."""

    def __init__(self, bundle: Bundle, factor: float = 1.0) -> None:
        """factor: scales the model's thresholds."""
        self.factor = factor
        # gradio gives (l,) or (l, channels)
        self.spotter = KeywordSpotter(bundle, channel_axis=1, thresholds=scaled_thresholds(bundle, factor))
        self.columns = [bundle.labels.index(word) for word in self.spotter.keywords]
        self.level = self.peak = SILENT  # dB of full scale, of the last chunk
        self.log: deque[Event] = deque(maxlen=LOG)  # newest first
        self.n_events = 0
        self.over = False
        self._lock = Lock()
        self._forget()

    @property
    def keywords(self) -> tuple[str, ...]:
        return self.spotter.keywords

    @property
    def scores(self) -> np.ndarray:
        """(K,) highest of each word within the last chunk; what bars show."""
        return self._latest

    def history(self) -> tuple[np.ndarray, np.ndarray]:
        """Times (f,) in seconds and scores (f, K) of the last SHOWN seconds."""
        with self._lock:
            return self._times.copy(), self._scores.copy()

    def push(self, rate: float, samples: Any) -> list[Event]:
        """The next chunk -> the words it decides.

        Args:
            rate: Hz, as the browser records.
            samples: (l,) or (l, channels), of any type.

        Raises:
            UserError: no sound, or more than MAX_CHUNK seconds at once.
        """
        with self._lock:
            if len(samples) > MAX_CHUNK * rate:
                raise UserError(f"a piece of {len(samples) / rate:.0f} s at once: a microphone sends less")
            if self.over or (self.spotter.rate and self.spotter.rate != rate):
                self.spotter.reset(rate)
                self._forget()
                self.over = False
            found, frames = self.spotter.push_frames(samples, rate)
            self._measure(mono(samples, channel_axis=1))
            if len(frames.times):
                new = frames.posteriors[0][:, self.columns]  # (f, K)
                self._latest = new.max(0)
                times = np.concatenate([self._times, frames.times])
                keep = times > times[-1] - SHOWN
                self._times, self._scores = times[keep], np.concatenate([self._scores, new])[keep]
            return self._note(found)

    def finish(self) -> list[Event]:
        """The microphone was switched off: the last words. The next chunk starts a new stream."""
        with self._lock:
            self.over, self.level, self.peak = True, SILENT, SILENT
            self._latest = np.zeros(len(self.columns))
            return self._note(self.spotter.finish())

    def _note(self, events: list[Event]) -> list[Event]:
        self.log.extendleft(events)
        self.n_events += len(events)
        return events

    def _measure(self, waveform: np.ndarray) -> None:
        if len(waveform):
            rms, peak = float(np.sqrt(np.mean(waveform.astype(np.float64) ** 2))), float(np.abs(waveform).max())
            self.level, self.peak = (20 * np.log10(max(x, 10 ** (SILENT / 20))) for x in (rms, peak))

    def _forget(self) -> None:
        self._times, self._scores = np.zeros(0), np.zeros((0, len(self.columns)))
        self._latest = np.zeros(len(self.columns))
