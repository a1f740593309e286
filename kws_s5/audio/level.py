"""How loud a recording is, and whether that is a fault: digital silence, too quiet, clipped. Limits stand here only.

dBFS: decibels below full scale, which is a sample of 1.0. Legend: L samples.
"""

import math

import numpy as np

QUIET = -50.0  # dBFS of the loudest sample below which words may go unheard: models are trained down to -45
FULL = 0.9999  # of full scale: samples beyond count as clipped
CLIPPED = 0.005  # share of such samples from which speech is distorted


def dbfs(level: float) -> float:
    """A level, 1.0 at full scale, in decibels; -inf for 0."""
    return 20.0 * math.log10(level) if level > 0 else -math.inf


def peak(x: np.ndarray) -> float:
    """The largest magnitude of samples (L,); 0 for none."""
    return max(float(x.max()), -float(x.min())) if len(x) else 0.0


def rms(x: np.ndarray) -> float:
    """The root mean square of samples (L,); 0 for none."""
    return math.sqrt(float(np.mean(np.square(x, dtype=np.float64)))) if len(x) else 0.0


def clipped(x: np.ndarray) -> float:
    """Share of samples (L,) at full scale or above."""
    return float(np.mean(np.abs(x) >= FULL)) if peak(x) >= FULL else 0.0


class Meter:
    """The level of a recording that comes in blocks."""

    def __init__(self) -> None:
        self.n, self.peak, self.at_full_scale = 0, 0.0, 0.0

    def push(self, x: np.ndarray) -> None:
        """The next samples (L,)."""
        self.n += len(x)
        self.peak = max(self.peak, peak(x))
        self.at_full_scale += clipped(x) * len(x)

    def note(self) -> str:
        """What is wrong with the level, in words; empty: nothing."""
        if not self.n:
            return ""
        if self.peak == 0.0:
            return "is digital silence from start to end: was the microphone muted?"
        if dbfs(self.peak) < QUIET:
            return f"is very quiet: its loudest sample is at {dbfs(self.peak):.0f} dBFS; words may go unheard"
        if self.at_full_scale > CLIPPED * self.n:
            return f"is clipped: {100 * self.at_full_scale / self.n:.1f} % of its samples are at full scale"
        return ""
