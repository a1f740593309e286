"""Several channels -> one. The one place where that is decided, for a whole recording at a time.

1. A channel whose peak is 40 dB below that of the loudest says nothing: it is left out, so that one voice in a file
   of six channels stays as loud as it was recorded.
2. The others are averaged.
3. Where they cancel each other (a microphone wired in opposite phase), the loudest channel alone is taken, and told.

Legend: L samples, C channels.
"""

from collections.abc import Sequence

import numpy as np

SILENT = 0.01  # of the loudest channel's peak: -40 dB
CANCELLED = 0.1  # power of the sum of the channels, of what it would be if they had nothing in common
SHARE = 0.05  # of a recording's power that may cancel before the loudest channel is taken
SEGMENT = 16_000  # samples looked at together: a recording may cancel in parts only


class Balance:
    """What is known of a recording's channels; decides at its end."""

    def __init__(self, channels: int) -> None:
        self.peak, self.power = np.zeros(channels), np.zeros(channels)
        self._cancelled = 0.0

    def push(self, x: np.ndarray) -> None:
        """The next samples (L, C). Blocks of equal length give equal results."""
        for start in range(0, len(x), SEGMENT):
            part = np.nan_to_num(x[start : start + SEGMENT].astype(np.float64), posinf=0.0, neginf=0.0)
            if not part.any():
                continue
            self.peak = np.maximum(self.peak, np.abs(part).max(0))
            part = part - part.mean(0)  # a constant offset is no sound
            power = np.square(part).sum(0)
            self.power += power
            if np.square(part.sum(1)).sum() < CANCELLED * power.sum():
                self._cancelled += power.sum()

    @property
    def cancels(self) -> bool:
        """Whether the mean of the channels loses sound."""
        return self._cancelled > SHARE * self.power.sum()

    def weights(self) -> np.ndarray:
        """(C,) of the sum that stands for the recording."""
        if self.cancels:
            chosen = np.arange(len(self.power)) == self.power.argmax()
        else:
            chosen = self.peak >= SILENT * self.peak.max()
        return chosen / chosen.sum()

    def note(self) -> str:
        """What the user should know; mostly nothing."""
        if not self.cancels:
            return ""
        return (
            f"its channels cancel each other (opposite phase): channel {self.power.argmax() + 1} alone is heard; "
            "swap the wires of one microphone"
        )


def downmix(x: np.ndarray, weights: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
    """(L, C) float32 -> (L,): the weighted sum over the channels, without weights the mean."""
    if x.shape[1] == 1:
        return x[:, 0]
    if weights is None:
        return x.mean(axis=1, dtype=np.float64).astype(np.float32)
    chosen = np.flatnonzero(weights)
    if len(chosen) == 1:
        return np.ascontiguousarray(x[:, chosen[0]])
    return (x[:, chosen].astype(np.float64) @ np.asarray(weights, np.float64)[chosen]).astype(np.float32)
