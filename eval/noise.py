"""Noise for test clips: white, pink, or cut from recordings; the same for one seed and clip, whatever is done later.

The noise is added at the clip's own rate, before any change of rate, as in a room where the microphone samples both.
SNR = 10 log10(mean square of the clip / mean square of the noise) over all samples of the clip, padding included. A
clip of digital silence gets noise as if its level were 40 dB below full scale.
"""

from pathlib import Path

import numpy as np

from kws_s5.audio.files import SUFFIXES, load_audio
from kws_s5.audio.resample import resample
from kws_s5.errors import UserError

SILENT_POWER = 1e-4
LOWEST = 20.0  # Hz: pink noise is flat below


class White:
    """Equal power at all frequencies."""

    def __call__(self, n: int, rate: float, random: np.random.Generator) -> np.ndarray:
        """(n,) samples at ``rate`` Hz."""
        return random.standard_normal(n)


class Pink:
    """Power falling with 1 / frequency, like much natural noise."""

    def __call__(self, n: int, rate: float, random: np.random.Generator) -> np.ndarray:
        """(n,) samples at ``rate`` Hz."""
        spectrum = np.fft.rfft(random.standard_normal(n))
        frequency = np.fft.rfftfreq(n, 1.0 / rate)
        return np.fft.irfft(spectrum / np.sqrt(np.maximum(frequency, LOWEST)), n)


class Recorded:
    """A stretch of a recording, chosen at random; short recordings are repeated.

    Where it is digital silence throughout, a stretch around one of the recording's other samples stands in for it.
    """

    def __init__(self, folder: str | Path) -> None:
        """Raises UserError for a folder without recordings."""
        self.files = sorted(p for p in Path(folder).rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        if not self.files:
            raise UserError(f"{folder}: holds no recordings to take noise from; name a folder of sound files")
        self._loaded: dict[tuple[Path, float], np.ndarray] = {}

    def __call__(self, n: int, rate: float, random: np.random.Generator) -> np.ndarray:
        """(n,) samples at ``rate`` Hz."""
        source = self._at(self.files[random.integers(len(self.files))], rate)
        stretch = _stretch(source, random.integers(len(source)), n)
        if not np.any(stretch):
            stretch = _stretch(source, random.choice(np.flatnonzero(source)) - random.integers(n), n)
        return stretch

    def _at(self, file: Path, rate: float) -> np.ndarray:
        if (file, rate) not in self._loaded:
            audio = load_audio(file)
            waveform = resample(audio.waveform, audio.rate, rate)
            if not np.any(waveform):
                raise UserError(f"{file}: is digital silence, which cannot serve as noise; remove it")
            self._loaded[file, rate] = waveform
        return self._loaded[file, rate]


def _stretch(source: np.ndarray, start: int, n: int) -> np.ndarray:
    return np.take(source, np.arange(start, start + n), mode="wrap").astype(np.float64)


Noise = White | Pink | Recorded


def noise_from(name: str) -> Noise:
    """ "white", "pink", or a folder of recordings."""
    if name in ("white", "pink"):
        return White() if name == "white" else Pink()
    if not Path(name).is_dir():
        raise UserError(f"noise = {name!r}: must be white, pink or a folder of recordings")
    return Recorded(name)


def add_noise(
    waveform: np.ndarray, rate: float, noise: Noise, *, snr: float, random: np.random.Generator
) -> np.ndarray:
    """``waveform`` (L,) plus noise at ``snr`` dB, float32. Nothing is clipped."""
    if not len(waveform):
        return waveform
    added = noise(len(waveform), rate, random)
    power, noise_power = float(np.mean(np.square(waveform, dtype=np.float64))), float(np.mean(added**2))
    assert noise_power, "noise is never silent"
    gain = np.sqrt((power or SILENT_POWER) / noise_power * 10.0 ** (-snr / 10.0))
    return (waveform + gain * added).astype(np.float32)
