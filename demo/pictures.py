"""Sound as pictures: its spectrogram, and what a model's front hands on to the layers.

    picture = front_view(bundle, waveform, 8000)          # picture.image (F, C), picture.frequencies (C,) in Hz

Legend: L samples, F frames, C channels.
"""

from dataclasses import dataclass
from threading import get_ident

import numpy as np
import torch
from scipy.signal import ShortTimeFFT
from scipy.signal.windows import hann

from kws_s5.bundle import Bundle
from kws_s5.rate import step_rescale

WINDOW, HOP = 0.025, 0.01  # seconds
FLOOR = -100.0  # dB of full scale: what 16-bit sound calls silence
MOST_FRAMES = 6000  # longer sound gets longer hops


@dataclass(frozen=True)
class Picture:
    """A value for every moment and channel."""

    image: np.ndarray  # (F, C) float32
    frequencies: np.ndarray  # (C,) centre of each channel in Hz, rising; empty: channels are no frequencies
    seconds: float  # length of the sound


def spectrogram(waveform: np.ndarray, rate: float) -> Picture:
    """Level in dB of every frequency up to half of ``rate`` (Hz), of ``waveform`` (L,); a full-scale sine has -3 dB."""
    seconds = len(waveform) / rate
    hop = max(1, round(max(HOP, seconds / MOST_FRAMES) * rate))
    window = hann(max(16, round(WINDOW * rate)), sym=False)
    transform = ShortTimeFFT(window, hop, rate, scale_to="magnitude")
    if len(waveform) < len(window):  # scipy wants at least half a window
        waveform = np.pad(waveform, (0, len(window) - len(waveform)))
    power = 2.0 * np.abs(transform.stft(np.asarray(waveform, np.float64), p0=0, p1=max(1, len(waveform) // hop))) ** 2
    image = 10.0 * np.log10(np.maximum(power.T, 10.0 ** (FLOOR / 10.0)))
    return Picture(image.astype(np.float32), transform.f, seconds)


@torch.no_grad()
def front_view(bundle: Bundle, waveform: np.ndarray, rate: float, *, rescale: bool = True) -> Picture | None:
    """What reaches the dense layer of the model's front, or None for fronts that hand on the samples themselves.

    Args:
        waveform: (L,) float32 at ``rate`` Hz.
        rescale: False: the model takes the sound for one at its training rate.

    Raises:
        UserError: a rate that the front refuses.
    """
    front = bundle.model.eval().front
    encoder = getattr(front, "encoder", None)
    if getattr(encoder, "in_features", 1) == 1:
        return None
    seen, me = [], get_ident()
    # other threads may be using the same model: only what this one sees is kept
    hook = encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]) if get_ident() == me else None)
    try:
        x = torch.from_numpy(np.ascontiguousarray(waveform, np.float32))[None, :, None]  # (1, L, 1)
        front(x.to(encoder.weight.device), None, step_rescale(bundle.rate, rate) if rescale else 1.0)
    finally:
        hook.remove()
    modes = getattr(front, "modes", None)
    frequencies = modes()[1].double().cpu().numpy() if modes else np.zeros(0)
    return Picture(seen[0][0].float().cpu().numpy(), frequencies, len(waveform) / rate)
