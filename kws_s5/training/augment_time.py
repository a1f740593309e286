"""Changes of when and at which rate a waveform is sampled: functions on (N, L) rows that leave padding silent.

Legend: N rows, L samples, S size of an FFT.
"""

import numpy as np
import torch
from torch import Tensor

from kws_s5.training.augment_fft import fft_size, resample, rfft


def shift(x: Tensor, lengths: Tensor, offsets: np.ndarray) -> Tensor:
    """Rows moved by ``offsets`` (N,) samples (positive: later) within their own lengths; zeros move in."""
    out = torch.zeros_like(x)
    source, target = _views(x), _views(out)
    for row, (n, d) in enumerate(zip(lengths.tolist(), offsets.tolist(), strict=True)):
        d = max(-n, min(n, d))
        target[row, max(d, 0) : n + min(d, 0)] = source[row, max(-d, 0) : n - max(d, 0)]
    return out


def speed(x: Tensor, lengths: Tensor, factors: np.ndarray) -> Tensor:
    """Rows played ``factors`` (N,) times as fast about the middle of their own lengths, pitch included.

    Lengths stay: faster ones get silence at both ends, slower ones lose a little there. Factors are rounded to sizes
    with a fast FFT (well within 1 %).
    """
    S = fft_size(x.shape[1] + 256)  # a little silence, so that the end does not ring into the beginning
    spectra, out = rfft(x, S), torch.zeros_like(x)
    sizes = np.array([fft_size(round(S / factor)) for factor in factors.tolist()])
    target = _views(out)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        stretched = _views(resample(spectra[torch.from_numpy(rows).to(x.device)], S, size))
        for k, row in enumerate(rows.tolist()):
            n = int(lengths[row])
            total = round(n * size / S)  # the row's own samples, stretched
            first = (total - n) // 2  # sample of ``stretched`` where the row begins
            low, high = max(0, -first), min(n, total - first)
            target[row, low:high] = stretched[k, low + first : high + first]
    return out


def change_rate(
    x: Tensor, lengths: Tensor, rates: Tensor, ratios: np.ndarray, plain: np.ndarray
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows sampled at ``ratios`` (N,) times their rate; returns x (N, L'), lengths and rates that say so.

    ``plain`` (N,) bool: where the ratio is 1/2, keep every second sample without a filter (S5 paper, section 6.2).
    Ratios are multiples of 1/4.
    """
    S = fft_size(-(-(x.shape[1] + 256) // 4)) * 4
    new_lengths = torch.from_numpy(np.ceil(lengths.numpy() * ratios)).to(torch.int64)
    out = x.new_zeros(len(x), int(new_lengths.max()))
    for row, (n, ratio) in enumerate(zip(new_lengths.tolist(), ratios.tolist(), strict=True)):
        if ratio == 1.0:
            out[row, :n] = x[row, :n]
        elif ratio == 0.5 and plain[row]:
            out[row, :n] = x[row, : 2 * n : 2]
        else:
            out[row, :n] = resample(rfft(x[row], S), S, round(S * ratio))[:n]
    return out, new_lengths, rates * torch.from_numpy(ratios)


def _views(x: Tensor) -> Tensor | np.ndarray:
    """x as what slices quickest: rows are moved one by one."""
    return x.numpy() if x.device.type == "cpu" else x
