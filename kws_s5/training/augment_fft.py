"""Real FFTs of rows of any length, quick for single rows too: torch's for many rows or a GPU, scipy's for a few.

torch prepares every transform of a new length anew (on CPUs three times the transform itself); scipy remembers lengths.
Legend: N rows, S size of an FFT.
"""

import scipy.fft
import torch
from torch import Tensor

MANY = 16  # rows from which torch is quicker


def fft_size(n: int) -> int:
    """The next size from n with a fast FFT, even."""
    return 2 * scipy.fft.next_fast_len(-(-n // 2), real=True)


def rfft(x: Tensor, S: int) -> Tensor:
    """(..., L) -> (..., S/2 + 1), x cut or filled with zeros to S."""
    if _is_many(x):
        return torch.fft.rfft(x, S)
    return torch.from_numpy(scipy.fft.rfft(x.numpy(), S))


def irfft(spectrum: Tensor, S: int, *, scaled: bool = True) -> Tensor:
    """(..., any) -> (..., S), the spectrum cut or filled to S/2 + 1; ``scaled``: by 1 / S, the inverse of rfft."""
    norm = "backward" if scaled else "forward"
    if _is_many(spectrum):
        return torch.fft.irfft(spectrum, S, norm=norm)
    return torch.from_numpy(scipy.fft.irfft(spectrum.numpy(), S, norm=norm))


def resample(spectrum: Tensor, S: int, size: int) -> Tensor:
    """The signal whose rfft over S samples is ``spectrum``, in ``size`` samples: band-limited, without aliases."""
    return irfft(spectrum[..., : min(S, size) // 2 + 1] * (1.0 / S), size, scaled=False)


def _is_many(x: Tensor) -> bool:
    return x.device.type != "cpu" or x.dim() > 1 and len(x) >= MANY
