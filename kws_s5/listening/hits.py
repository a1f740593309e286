"""Cuts found words out of a stream as wav files: examples to listen to, and hard negatives for the next training.

    <folder>/<word>/<recording>_nohash_<milliseconds>.wav

Move what was no such word into _unknown_/ of a training folder and train again. All cuts of one recording carry its
name before _nohash_, as one speaker's clips do, so that they end up in one split. Legend: l samples.
"""

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kws_s5.audio.files import save_wav
from kws_s5.listening.events import Event
from kws_s5.printable import printable

BACK = 4.0  # seconds of sound kept behind the newest sample: longer than a word and its decision


class HitSaver:
    """The recent past of one stream, and the hits that wait for their last samples."""

    def __init__(self, folder: str | Path, name: str, rate: float, *, clip: float = 1.0, margin: float = 0.0) -> None:
        """clip: seconds of a cut, with the word in its middle; margin > 0: the word and so much on either side."""
        self.folder, self.name, self.rate = Path(folder), name, rate
        self.clip, self.margin = clip, margin
        self._recent: deque[np.ndarray] = deque()
        self._end = 0  # samples pushed
        self._kept = 0  # samples in _recent
        self._waiting: list[tuple[Event, int, int]] = []
        self.written: list[Path] = []

    def push(self, waveform: np.ndarray, events: Sequence[Event]) -> None:
        """The next samples (l,) and the events decided by them."""
        self._recent.append(waveform)
        self._end += len(waveform)
        self._kept += len(waveform)
        self._waiting += [(event, *self._span(event)) for event in events]
        self._write([hit for hit in self._waiting if hit[2] <= self._end])
        keep = (BACK + self.clip + 2 * self.margin) * self.rate
        while self._recent and self._kept - len(self._recent[0]) >= keep:
            self._kept -= len(self._recent.popleft())

    def finish(self, events: Sequence[Event] = ()) -> list[Path]:
        """The stream is over: writes the rest, and returns all files."""
        self._waiting += [(event, *self._span(event)) for event in events]
        self._write(self._waiting)
        return self.written

    def _span(self, event: Event) -> tuple[int, int]:
        """Samples from, to."""
        half = 0.5 * (event.end - event.start) + self.margin if self.margin else 0.5 * self.clip
        middle = 0.5 * (event.start + event.end)
        return max(0, round((middle - half) * self.rate)), round((middle + half) * self.rate)

    def _write(self, hits: Sequence[tuple[Event, int, int]]) -> None:
        self._waiting = [hit for hit in self._waiting if hit not in hits]
        if not hits:
            return
        sound, begin = np.concatenate(self._recent), self._end - self._kept
        for event, start, stop in hits:
            cut = sound[max(0, start - begin) : max(0, stop - begin)]
            if len(cut):
                path = self.folder / folder_name(event.label) / f"{self.name}_nohash_{round(1000 * event.start)}.wav"
                save_wav(path, cut, self.rate)
                self.written.append(path)


def folder_name(label: str) -> str:
    """A word as the name of a folder inside another; labels come with models of strangers."""
    return printable(re.sub(r"[/\\:\0]|^\.+", "_", label)).replace("\\", "_") or "_"
