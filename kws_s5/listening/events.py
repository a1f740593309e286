"""Scores over time -> events: which word, from when to when, how sure, decided when.

    smoothing    every score is the mean of the last ``smoothing`` seconds
    opening      the first moment when a word's score reaches its threshold opens a decision
    settling     for ``settle`` seconds words compete for it, and the highest score wins: one event, decided at its end
    hysteresis   a word that was reported (or lost) must fall below ``release`` times its threshold before it can return
    refractory   and the same word is not reported twice within ``refractory`` seconds
    warm-up      nothing opens in the first ``warmup`` seconds of a stream, when the model has heard next to nothing

The outcome does not depend on how the scores were cut into pieces. Legend: f frames, K words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kws_s5.config.spotter import SpotterConfig

NEVER = -1e9  # seconds: a time long ago
LEAD = 0.15  # seconds of a word before its score begins to rise, typically


class Event(NamedTuple):
    """A word that was heard. Times in seconds from the start of the stream."""

    label: str
    start: float
    """Estimated from the rise of the score; true boundaries of a word are within some 0.2 s."""
    end: float
    score: float
    """Highest smoothed probability before the decision, in [0, 1]."""
    time: float
    """Moment of the decision: what a live listener waits for."""
    stream: int = 0


@dataclass
class _Candidate:
    """A decision that is being made."""

    word: int
    opened: float
    best: float  # the winner's highest score
    at: float  # and its time


class EventFinder:
    """One stream's events. Cost grows with the time in which words are heard; silence is passed over."""

    def __init__(
        self,
        words: Sequence[str],
        thresholds: Sequence[float],
        frame_rate: float,
        config: SpotterConfig,
        *,
        stream: int = 0,
    ) -> None:
        """words and thresholds: K each, in the order of the scores' columns. frame_rate: Hz."""
        self.words, self.config, self.stream = tuple(words), config, stream
        self.threshold = np.array(thresholds, dtype=np.float64)  # (K,)
        assert self.threshold.shape == (len(self.words),)
        self._release = config.release * self.threshold
        self._wait = 0.5 / frame_rate  # half a frame: times are sums of rounded numbers
        self._window = max(1, round(config.smoothing * frame_rate))
        self.reset()

    def reset(self) -> None:
        """As new."""
        K = len(self.words)
        self._past = np.zeros((0, K))  # raw scores, the last window - 1
        self._free = np.ones(K, dtype=bool)  # fallen below the release level since it was last reported
        self._last = np.full(K, NEVER)  # when it was last reported
        self._low = np.full(K, NEVER)  # last time below the release level
        self._candidate: _Candidate | None = None

    def push(self, scores: np.ndarray, times: np.ndarray) -> list[Event]:
        """Scores (f, K) at times (f,), the next ones -> events decided by them."""
        events: list[Event] = []
        if not len(times):
            return events
        smooth = self._smooth(np.asarray(scores, dtype=np.float64))
        low = smooth < self._release
        hot = (smooth >= self.threshold).any(1) & (times >= self.config.warmup)
        i, f = 0, len(times)
        while i < f:
            if self._candidate is None and self._free.all():  # nothing happens before the next hot frame
                rest = np.flatnonzero(hot[i:])
                j = i + int(rest[0]) if len(rest) else f
                self._note_low(low[i:j], times[i:j])
                i = j
                if i == f:
                    break
            events += self._step(smooth[i], low[i], float(times[i]))
            i += 1
        return events

    def finish(self) -> list[Event]:
        """The stream is over: a decision that is still open is made now."""
        return [] if self._candidate is None else [self._decide(self._candidate, self._candidate.at)]

    def state(self) -> dict[str, np.ndarray]:
        """Everything remembered, as arrays of constant size."""
        past = np.full((self._window - 1, len(self.words)), np.nan)  # rows of nan: not heard yet
        past[len(past) - len(self._past) :] = self._past
        c = self._candidate
        candidate = np.array([np.nan] * 4 if c is None else [c.word, c.opened, c.best, c.at])
        return {
            "past": past,
            "free": self._free.astype(np.float64),
            "last": self._last.copy(),
            "low": self._low.copy(),
            "candidate": candidate,
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Goes on from ``state``."""
        self._past = state["past"][~np.isnan(state["past"]).any(1)]
        self._free, self._last, self._low = state["free"] > 0, state["last"].copy(), state["low"].copy()
        word, opened, best, at = state["candidate"].tolist()
        self._candidate = None if np.isnan(opened) else _Candidate(int(word), opened, best, at)

    def _step(self, scores: np.ndarray, low: np.ndarray, time: float) -> list[Event]:
        """One frame: scores (K,), low (K,) bool."""
        self._free |= low
        self._low[low] = time
        able = self._free & (scores >= self.threshold) & (time - self._last >= self.config.refractory - self._wait)
        if able.any() and time >= self.config.warmup:
            word = int(np.where(able, scores, -1.0).argmax())
            candidate = self._candidate
            if candidate is None:
                self._candidate = _Candidate(word, time, float(scores[word]), time)
            elif scores[word] > candidate.best:
                self._candidate = _Candidate(word, candidate.opened, float(scores[word]), time)
        candidate = self._candidate
        if candidate is None:
            return []
        over = low[candidate.word] or time - candidate.opened >= self.config.settle - self._wait
        if not over:
            return []
        event = self._decide(candidate, time)
        self._free &= scores < self.threshold  # the others lost: they do not become an event of their own
        self._free[candidate.word] = bool(low[candidate.word])
        return [event]

    def _decide(self, candidate: _Candidate, time: float) -> Event:
        k, self._candidate = candidate.word, None
        self._last[k], self._free[k] = time, False
        begin = max(float(self._low[k]), candidate.opened - 1.0)
        return Event(self.words[k], max(0.0, begin - LEAD), candidate.at, candidate.best, time, self.stream)

    def _note_low(self, low: np.ndarray, times: np.ndarray) -> None:
        """Remembers for every word the last of the times (f,) at which it was low (f, K)."""
        if len(times):
            last = len(times) - 1 - low[::-1].argmax(0)  # (K,)
            self._low = np.where(low.any(0), times[last], self._low)

    def _smooth(self, scores: np.ndarray) -> np.ndarray:
        """(f, K): mean of the last ``window`` scores, or of as many as there have been.

        Summed in the same order for every frame, so that pieces give the same numbers to the last bit.
        """
        if self._window == 1:
            return scores
        f, n = len(scores), self._window - 1
        joined = np.concatenate([np.zeros((n - len(self._past), scores.shape[1])), self._past, scores])
        total = joined[:f].copy()
        for i in range(1, self._window):
            total += joined[i : i + f]
        seen = np.minimum(len(self._past) + np.arange(1, f + 1), self._window)
        self._past = joined[len(joined) - min(n, len(self._past) + f) :]
        return total / seen[:, None]
