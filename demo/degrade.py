"""What the demo does to a sound before the model hears it, and the three ways to give the result to the model.

The ways of changing a rate are those of kws-eval (eval/protocol.py). Legend: L samples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.signal import butter, sosfiltfilt

from kws_s5.audio.files import Audio
from kws_s5.audio.resample import resample
from kws_s5.eval.protocol import QUALITY, Condition, degraded

TELEPHONE = (300.0, 3400.0)  # Hz, the band of a telephone line (ITU-T G.712)
COMMON = 16000  # Hz, where "every second sample" starts from


@dataclass(frozen=True)
class Degradation:
    """One entry of the demo's rate selector."""

    name: str
    explanation: str
    apply: Callable[[Audio], Audio]


def _to(target: int, audio: Audio) -> Audio:
    waveform, rate = degraded(Condition(target, "soxr"), audio.waveform, audio.rate, train_rate=target)
    return Audio(waveform, rate)


def _every(step: int, audio: Audio) -> Audio:
    common = resample(audio.waveform, audio.rate, COMMON, QUALITY)
    target = COMMON / step
    waveform, rate = degraded(Condition(target, "decimate"), common, COMMON, train_rate=target)
    return Audio(waveform, rate)


def _telephone(audio: Audio) -> Audio:
    narrow = _to(8000, audio)
    band = butter(4, TELEPHONE, "bandpass", fs=narrow.rate, output="sos")
    padlen = min(3 * (2 * len(band) + 1), max(0, len(narrow.waveform) - 1))
    return Audio(sosfiltfilt(band, narrow.waveform, padlen=padlen).astype(np.float32), narrow.rate)


AS_RECORDED = "As recorded"
DEGRADATIONS = {
    entry.name: entry
    for entry in (
        Degradation(AS_RECORDED, "the sound's own samples, at its own rate", lambda audio: audio),
        Degradation(
            "8 kHz decimated",
            "every second sample of 16 kHz, no filter: what lies above 4 kHz folds back (the protocol of the S5 paper)",
            partial(_every, 2),
        ),
        Degradation("8 kHz band-limited", "resampled to 8 kHz: nothing is left above 4 kHz", partial(_to, 8000)),
        Degradation("8 kHz telephone", "8 kHz, and only the band of a telephone line, 300 to 3400 Hz", _telephone),
        Degradation("4 kHz", "resampled to 4 kHz: nothing is left above 2 kHz", partial(_to, 4000)),
        Degradation("11.025 kHz", "resampled to 11.025 kHz, a rate of old sound cards", partial(_to, 11025)),
        Degradation("48 kHz", "resampled to 48 kHz: three times the samples, the same sound", partial(_to, 48000)),
    )
}
