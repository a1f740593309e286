"""Change of sample rate, only where it is asked for: band-limited (soxr) or plain decimation (the papers' protocol).

soxr HQ keeps the band below 0.91 of the new Nyquist frequency and removes what would alias; ``decimate`` keeps every
r-th sample without a filter, so what lies above the new Nyquist frequency folds back (S5 paper, section 6.2).
"""

from typing import Any, Literal, get_args

import numpy as np
import soxr

from kws_s5.audio.samples import checked_rate
from kws_s5.errors import UserError

Quality = Literal["QQ", "LQ", "MQ", "HQ", "VHQ"]


def resample(waveform: np.ndarray, rate: float, target: float, quality: Quality = "HQ") -> np.ndarray:
    """``waveform`` (L,) at ``rate`` Hz -> float32 (about L * target / rate,) at ``target`` Hz, without aliasing.

    Raises:
        UserError: a rate outside 2-192 kHz, or an unknown quality.
    """
    rate, target = checked_rate(rate, "rate"), checked_rate(target, "target rate")
    _check_quality(quality)
    waveform = np.ascontiguousarray(waveform, dtype=np.float32)
    return waveform if rate == target else soxr.resample(waveform, rate, target, quality=quality)


def decimate(waveform: Any, factor: float) -> Any:
    """Every ``factor``-th sample of an array or tensor whose first axis is time. No filter: high sounds alias."""
    if factor != int(factor) or factor < 1:
        raise UserError(f"decimate by {factor:g}: only whole factors; for other rates use the soxr resampler")
    return waveform[:: int(factor)]


class StreamResampler:
    """Resamples a stream piece by piece; all pieces together equal the whole resampled at once."""

    def __init__(self, rate: float, target: float, *, quality: Quality = "HQ") -> None:
        self.rate, self.target = checked_rate(rate, "rate"), checked_rate(target, "target rate")
        _check_quality(quality)
        self._stream = soxr.ResampleStream(self.rate, self.target, 1, dtype="float32", quality=quality)

    def push(self, waveform: np.ndarray, *, last: bool = False) -> np.ndarray:
        """The next samples (l,) -> the output that is ready, (m,) with m varying; ``last`` flushes the rest."""
        return self._stream.resample_chunk(np.ascontiguousarray(waveform, dtype=np.float32), last=bool(last))


def _check_quality(quality: str) -> None:
    if quality not in get_args(Quality):
        raise UserError(f"resampler quality {quality!r}: must be one of {', '.join(get_args(Quality))}")
