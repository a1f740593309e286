"""What rooms, noises and microphones do to waveforms: functions on (N, L) rows, everything by one FFT per row.

Legend: N rows, L samples, S size of an FFT.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kws_s5.training.augment_fft import fft_size, irfft, resample, rfft

QUIET = 1e-6  # power of the sound that noise is measured against when the clip is silent (-60 dB of full scale)
EDGE = 0.1  # a low-pass falls from 1 to 0 over this share below its cutoff
LOWEST = 20.0  # Hz, below which coloured noise stays flat
BENDS = 4  # half waves of a microphone's frequency response at most, over the mel scale


def put(x: Tensor, rows: np.ndarray, values: Tensor) -> Tensor:
    """x (N, L), its ``rows`` replaced in place."""
    if not len(rows):
        return x
    return values if len(rows) == len(x) else x.index_copy_(0, torch.from_numpy(rows).to(x.device), values)


def cut(x: Tensor, lengths: Tensor) -> Tensor:
    """x (N, L) with zeros behind every row's length."""
    L = x.shape[1]
    if bool((lengths >= L).all()):
        return x
    return x * (torch.arange(L) < lengths[:, None]).to(x)


def power(x: Tensor) -> Tensor:
    """(N, L) -> (N, 1) mean square over L."""
    return x.square().mean(1, keepdim=True)


def room(
    x: Tensor, lengths: Tensor, rates: Tensor, generator: torch.Generator, seconds: np.ndarray, direct: np.ndarray
) -> Tensor:
    """Convolved with a synthetic room; direct sound in place, loudness kept, cut at each row's length.

    The room's answer is noise that falls exponentially behind the direct sound (Polack's model).

    Args:
        x: (N, L), lengths (N,), rates (N,) Hz.
        seconds: (N,) time in which the answer falls by 60 dB.
        direct: (N,) dB of the direct sound over the whole answer.
    """
    if not len(x):
        return x
    decay = torch.from_numpy(np.log(1e3) / (seconds * rates.numpy())).to(x)[:, None]  # per sample
    size = int(np.ceil((seconds * rates.numpy()).max()))
    tail = torch.randn(len(x), size, generator=generator, device=x.device)
    tail *= torch.exp(-decay * torch.arange(1, size + 1, device=x.device))
    level = torch.from_numpy(10.0 ** (-direct / 20.0)).to(x)[:, None]
    tail *= level / tail.square().sum(1, keepdim=True).sqrt()
    S = fft_size(x.shape[1] + size)
    wet = irfft(rfft(x, S).mul_(rfft(tail, S)), S)
    L = x.shape[1]
    out = x.clone()
    out[:, 1:] += wet[:, : L - 1]  # the answer begins one sample after the direct sound
    out = cut(out, lengths)
    return out * (power(x) / power(out).clamp(min=1e-30)).sqrt()


def coloured_noise(x: Tensor, rates: Tensor, generator: torch.Generator, exponent: np.ndarray) -> Tensor:
    """Noise of the shape of x (N, L) whose power falls as 1 / f^exponent, (N,) exponents, rates in Hz."""
    if not len(x):  # no clip of this batch gets noise: MKL refuses to transform nothing
        return x
    L = x.shape[1]
    S = fft_size(L)
    random = torch.randn(len(x), S // 2 + 1, 2, generator=generator, device=x.device)
    frequency = torch.linspace(0, 0.5, S // 2 + 1, device=x.device) * rates.to(x)[:, None]  # (N, S/2 + 1) Hz
    slope = torch.from_numpy(-0.5 * exponent).to(x)[:, None]
    spectrum = torch.view_as_complex(random) * (frequency.clamp(min=LOWEST) / LOWEST) ** slope
    spectrum[:, 0] = 0
    return irfft(spectrum, S)[:, :L]


def recorded_noise(noises: Sequence[tuple[Tensor, float]], L: int, rate: float, rng: np.random.Generator) -> Tensor:
    """(L,) at ``rate`` Hz from a random place of a random recording; short ones repeat."""
    waveform, own = noises[rng.integers(len(noises))]
    S = fft_size(int(np.ceil(L * own / rate)))
    start = int(rng.integers(len(waveform)))
    piece = (
        waveform[start : start + S]
        if start + S <= len(waveform)
        else waveform[torch.arange(start, start + S) % len(waveform)]
    )
    if own == rate:
        return piece[:L]
    return resample(rfft(piece, S), S, max(L, round(S * rate / own)))[:L]


def add_noise(x: Tensor, noise: Tensor, snr: Tensor) -> Tensor:
    """x + noise (N, L), scaled to ``snr`` (N,) dB below the power of x; silent rows count as -60 dB of full scale."""
    wanted = power(x).clamp(min=QUIET) * (10.0 ** (-snr / 10.0)).to(x)[:, None]
    return x + noise * (wanted / power(noise).clamp(min=1e-30)).sqrt()


def microphone(x: Tensor, rates: Tensor, bends: np.ndarray) -> Tensor:
    """x (N, L) through filters with a smooth frequency response: sum_k bends_k cos(pi k m / m_Nyquist) dB at mel m.

    Zero phase, so nothing moves in time. bends: (N, BENDS), for k = 1 ... BENDS.
    """
    S = fft_size(x.shape[1] + 256)
    frequency = torch.linspace(0, 0.5, S // 2 + 1, device=x.device) * rates.to(x)[:, None]  # (N, S/2 + 1) Hz
    mel = torch.log1p(frequency / 700.0)
    place = torch.pi * mel / mel[:, -1:]
    level = sum(torch.from_numpy(bends[:, k - 1 : k]).to(x) * torch.cos(k * place) for k in range(1, BENDS + 1))
    return irfft(rfft(x, S).mul_(10.0 ** (level / 20.0)), S)[:, : x.shape[1]]


def clipped(x: Tensor, peaks: Tensor) -> Tensor:
    """x (N, L) with its loudest sample at ``peaks`` (N,) dB of full scale (nan: as it is), cut at full scale."""
    loudest = x.abs().amax(1, keepdim=True).clamp(min=1e-6)
    wanted = torch.where(peaks.isnan(), 1.0, 10.0 ** (peaks.nan_to_num() / 20.0)).to(x)[:, None]
    factor = torch.where(peaks.isnan().to(x.device)[:, None], 1.0, wanted / loudest)
    return (x * factor).clamp(-1.0, 1.0)


def low_pass(x: Tensor, rates: Tensor, cutoff: np.ndarray) -> Tensor:
    """x (N, L) without what lies above ``cutoff`` (N,) Hz; half a cosine leads there."""
    if not len(x):
        return x
    S = fft_size(x.shape[1] + 256)  # a little silence, so that the end does not ring into the beginning
    frequency = torch.linspace(0, 0.5, S // 2 + 1, device=x.device) * rates.to(x)[:, None]
    above = (frequency / torch.from_numpy(cutoff).to(x)[:, None] - (1.0 - EDGE)) / EDGE
    gain = 0.5 + 0.5 * torch.cos(torch.pi * above.clamp(0.0, 1.0))
    return irfft(rfft(x, S).mul_(gain), S)[:, : x.shape[1]]
