"""Where the word is in a recording: people press record, wait, say it, wait, and press again.

A word is the stretch that rises farthest above the floor of its recording, in decibels over time: neither a click,
which is short, nor hum, which is the floor. Legend: L samples, F frames of FRAME seconds.
"""

import numpy as np

FRAME = 0.01  # seconds
SMOOTH = 5  # frames over which levels are averaged
FLOOR = 10.0  # percentile of the levels that is the floor
RISE = 0.3  # of the way from the floor to the loudest frame, in dB: above, it is sound
GAP = 0.25  # seconds: sounds so near belong together (the closure of a t, a pause between two words)
QUIET = 1e-10  # power: digital silence


def find_word(waveform: np.ndarray, rate: float) -> tuple[float, float]:
    """Seconds at which the word of a recording (L,) begins and ends; all of it where nothing stands out."""
    size = max(1, round(FRAME * rate))
    n = len(waveform) // size
    if n < 2:
        return 0.0, len(waveform) / rate
    power = np.square(waveform[: n * size], dtype=np.float64).reshape(n, size).mean(1)
    padded = np.pad(10.0 * np.log10(power + QUIET), SMOOTH // 2, "edge")
    level = np.convolve(padded, np.ones(SMOOTH) / SMOOTH, "valid")  # (F,) dB
    floor, top = np.percentile(level, FLOOR), level.max()
    loud = np.flatnonzero(level > floor + RISE * (top - floor))
    if not len(loud):
        return 0.0, len(waveform) / rate
    pieces = np.split(loud, np.flatnonzero(np.diff(loud) > GAP / FRAME) + 1)
    word = max(pieces, key=lambda piece: float((level[piece[0] : piece[-1] + 1] - floor).sum()))
    return word[0] * size / rate, min(len(waveform), (word[-1] + 1) * size) / rate


def around_word(waveform: np.ndarray, rate: float, seconds: float) -> tuple[int, int]:
    """First and last sample of ``seconds`` of a recording (L,) with the word in the middle; all of a shorter one."""
    L, n = len(waveform), round(seconds * rate)
    start, end = find_word(waveform, rate)
    first = max(0, min(round(0.5 * (start + end) * rate - 0.5 * n), L - n))
    return first, min(L, first + n)
