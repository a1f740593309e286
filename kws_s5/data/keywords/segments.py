"""Seconds of a made-up stream for training: talk, pauses and words at known times, as a spotter meets them.

    segments = Segments(words, talk, seconds=5.0, rate=16000)
    streams = segments.draw(rng, 16)                  # streams.x (16, L), streams.words: (row, class, start, end)

A stream is filled from left to right. Talk enters at the start of an utterance, in its middle or near its end, and may
be broken off anywhere; now and then only a word's worth of it stands alone between two pauses, as a command does. Words
follow pauses mostly, and sometimes talk closely. All of it is background but the words, their neighbourhood, and
keywords that are said in talk. Legend: N streams, L samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

KINDS = ("word", "talk", "fragment", "pause")
CHANCES = (0.48, 0.34, 0.12, 0.06)  # of what comes next
TALK = (0.6, 3.5)  # seconds
FRAGMENT = (0.15, 0.8)
PAUSE = (0.3, 1.5)
BEFORE, BEFORE_CLOSE = (0.25, 1.2), (0.03, 0.25)  # seconds of pause before a word; where talk is close
AFTER, AFTER_CLOSE = (0.4, 1.2), (0.05, 0.4)  # and behind it
CLOSE = 0.15  # share of words that talk is close to, on either side
TRIMMED = 0.5  # share of words cut to what is heard of them, with a margin
MARGIN = (0.02, 0.25)  # seconds
LEVEL = 4.0  # dB, standard deviation of a piece's level about its recording's
FADE = 0.008  # seconds at both ends of a piece
UNDER, UNDER_LEVEL = 0.15, (5.0, 30.0)  # share of streams with a second speaker below everything, dB below
AUDIBLE, ABOVE_NOISE = 30.0, 8.0  # dB: a word is within so much of its loudest 20 ms, and above its quietest


@dataclass(frozen=True)
class Word:
    """A recorded word; ``target`` is its class."""

    waveform: np.ndarray  # (L,) float32
    target: int
    start: float  # seconds
    end: float


@dataclass(frozen=True)
class Talk:
    """A recording in which people talk, or a noise."""

    samples: np.ndarray  # (L,) int16
    said: tuple[tuple[float, float], ...] = ()  # seconds from, to: keywords in it, which are no background
    places: tuple[tuple[float, float], ...] = ()  # seconds from, to: words of it, for fragments; none: anywhere


@dataclass
class Streams:
    """N streams of equal length."""

    x: Tensor  # (N, L) float32
    words: list[tuple[int, int, float, float]] = field(default_factory=list)  # row, class, start, end in seconds
    unsure: list[tuple[int, float, float]] = field(default_factory=list)  # row, from, to in seconds: neither is known


class Segments:
    """Draws streams; everything random comes from the generator that is given."""

    def __init__(
        self,
        words: Sequence[Word],
        talk: Sequence[Talk],
        *,
        seconds: float,
        rate: float,
        background: Sequence[int] = (),
    ) -> None:
        """background: classes of ``words`` that are no keywords (other words)."""
        self.words, self.talk, self.seconds, self.rate = tuple(words), tuple(talk), seconds, rate
        self.background = frozenset(background)
        self._lengths = np.array([len(talk.samples) for talk in talk], float) / rate
        self._shares = self._lengths / self._lengths.sum() if len(self._lengths) else self._lengths
        targets = np.array([word.target for word in words])
        self._of_class = [np.flatnonzero(targets == k) for k in np.unique(targets)]
        self.hard: list[tuple[int, float]] = []  # (talk, seconds): where a model was wrong
        self.hard_share = 0.35  # of the talk

    def draw(self, rng: np.random.Generator, n: int) -> Streams:
        """``n`` streams."""
        streams = Streams(torch.zeros(n, round(self.seconds * self.rate)))
        for row in range(n):
            _Stream(self, streams, row, rng).fill()
        return streams


class _Stream:
    """One row while it is being filled."""

    def __init__(self, segments: Segments, streams: Streams, row: int, rng: np.random.Generator) -> None:
        self.of, self.streams, self.row, self.rng = segments, streams, row, rng
        self.x = streams.x[row].numpy()
        self.t = 0.0  # seconds filled

    def fill(self) -> None:
        rng, chances = self.rng, CHANCES if self.of.talk else (0.8, 0.0, 0.0, 0.2)
        if self.of.talk and rng.random() < 0.5:
            self.talk(rng.uniform(*TALK), inside=True)
        while self.t < self.of.seconds:
            kind = KINDS[rng.choice(4, p=chances)]
            if kind == "word":
                self.word()
            elif kind == "talk":
                self.talk(rng.uniform(*TALK))
            elif kind == "fragment":
                self.t += rng.uniform(*BEFORE)
                self.fragment()
                self.t += rng.uniform(*AFTER)
            else:
                self.t += rng.uniform(*PAUSE)
        if self.of.talk and rng.random() < UNDER:
            self.under()

    def word(self) -> None:
        """A pause, a word, a pause."""
        rng = self.rng
        members = self.of._of_class[rng.integers(len(self.of._of_class))]
        word = self.of.words[members[rng.integers(len(members))]]
        self.t += rng.uniform(*(BEFORE_CLOSE if rng.random() < CLOSE else BEFORE))
        first, last = 0.0, len(word.waveform) / self.of.rate
        if rng.random() < TRIMMED:
            first, last = max(0.0, word.start - rng.uniform(*MARGIN)), min(last, word.end + rng.uniform(*MARGIN))
        start, end = self.t + word.start - first, self.t + word.end - first
        self.put(word.waveform[round(first * self.of.rate) : round(last * self.of.rate)])
        if word.target not in self.of.background and start < self.of.seconds:
            self.streams.words.append((self.row, word.target, start, end))
        self.t += rng.uniform(*(AFTER_CLOSE if rng.random() < CLOSE else AFTER))

    def talk(self, seconds: float, *, inside: bool = False) -> None:
        """A piece of a recording."""
        rng = self.rng
        if self.of.hard and rng.random() < self.of.hard_share:
            k, at = self.of.hard[rng.integers(len(self.of.hard))]
            first = at - seconds * rng.uniform(0.3, 0.95)
        else:
            k = int(rng.choice(len(self.of.talk), p=self.of._shares))
            free = max(0.0, self.of._lengths[k] - seconds)
            first = rng.choice([0.0, rng.uniform(0.0, free), free], p=[0.0, 1.0, 0.0] if inside else [0.4, 0.4, 0.2])
        self.piece(k, first, first + seconds)

    def fragment(self) -> None:
        """What could be a word, by itself."""
        rng = self.rng
        k = int(rng.choice(len(self.of.talk), p=self.of._shares))
        places = self.of.talk[k].places
        if places:
            first, last = places[rng.integers(len(places))]
            self.piece(k, first - rng.uniform(0.0, 0.06), last + rng.uniform(0.0, 0.06))
        else:
            seconds = rng.uniform(*FRAGMENT)
            first = rng.uniform(0.0, max(0.0, self.of._lengths[k] - seconds))
            self.piece(k, first, first + seconds)

    def piece(self, k: int, first: float, last: float) -> None:
        """Seconds ``first`` to ``last`` of a recording, from now on."""
        first, last = max(0.0, first), min(last, self.of._lengths[k])
        for start, end in self.of.talk[k].said:
            if start < last and end > first:
                self.streams.unsure.append((self.row, self.t + start - first, self.t + end - first))
        samples = self.of.talk[k].samples[round(first * self.of.rate) : round(last * self.of.rate)]
        self.put(samples.astype(np.float32) / 32768.0)

    def put(self, waveform: np.ndarray) -> None:
        """Adds sound from now on, at some other level, and goes to its end."""
        x, n = waveform * np.float32(10.0 ** (self.rng.normal(0.0, LEVEL) / 20.0)), round(FADE * self.of.rate)
        n = min(n, len(x) // 2)
        if n:
            ramp = np.arange(1, n + 1, dtype=np.float32) / (n + 1)
            x[:n] *= ramp
            x[-n:] *= ramp[::-1]
        at = round(self.t * self.of.rate)
        place = self.x[at : at + len(x)]
        place += x[: len(place)]
        self.t += len(x) / self.of.rate

    def under(self) -> None:
        """A second speaker, below all of it. Words that are said there are not listened for."""
        k = int(self.rng.choice(len(self.of.talk), p=self.of._shares))
        samples = self.of.talk[k].samples
        first = int(self.rng.integers(max(1, len(samples) - len(self.x))))
        other = samples[first : first + len(self.x)].astype(np.float32) / 32768.0
        mine, theirs = (float(np.sqrt(np.mean(np.square(y)))) if len(y) else 0.0 for y in (self.x, other))
        if theirs > 0:
            self.x[: len(other)] += other * np.float32(mine / theirs * 10 ** (-self.rng.uniform(*UNDER_LEVEL) / 20))
