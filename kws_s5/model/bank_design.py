"""From a bank of continuous-time modes to recurrences at any sample rate whose powers agree.

A mode is the filter H(w) = (decay / (i w - lambda))^n, lambda = -decay + 2 pi i frequency: n equal poles, gain 1 at its
centre (n = 2: a gammatone of order two). At ``rate`` Hz it becomes

    x_k = n poles a = exp(lambda / rate) behind the short filter  c_0 u_k + c_1 u_{k-1} + ...

The poles are exact; the usual choices of c are not. Holds weaken high sounds, one constant that sets the gain at the
centre leaves the skirts up to 8 dB too strong near the Nyquist frequency. So c is the least-squares fit

    min_c  sum_w |H_c(w) - H(w) exp(i w / (2 rate))|^2 / (|H(w)|^2 + |H(-w)|^2)^0.6

over the rate's own band, scaled to gain 1 at the centre. (A real tone meets the mode at w and -w; the exponent stands
between the absolute error, 0, and the relative one, 1: skirts matter, because speech falls by 40 dB to high sounds.)
The half-sample advance puts the power of sample k at the middle of [k, k + 1) / rate, so that averages over frames of
physical time are exact to second order at every rate. Log powers (nats) of speech below 3.7 kHz at 8 kHz minus those at
192 kHz, root mean square, for modes below 2.8 kHz and for those from there to 3.6 kHz:

    zero-order hold 0.098, 0.319    first-order hold 0.178, 0.553    one constant 0.024, 0.112    this 0.002, 0.015

Legend: R rates, M modes, T taps of c. Everything here is float64 and differentiable in decay and frequency.
"""

import math

import torch
from torch import Tensor

from kws_s5.ops.bank.reference import TAPS

GRID = 64  # frequencies of the fit on either side of zero
EXPONENT = 0.6
BAND = 0.97  # of the Nyquist frequency
TOP = 0.95  # share of the training rate's Nyquist frequency where a bank ends at first
USABLE = 0.96  # modes centred above this share of a rate's Nyquist frequency are absent at that rate
TWO_PI = 2.0 * math.pi


def mel_frequencies(n_modes: int, f_min: float, f_max: float) -> Tensor:
    """(M,) float64 Hz, equally spaced on the mel scale (2595 log10(1 + f / 700)) from f_min to f_max."""
    low, high = (2595.0 * math.log10(1.0 + f / 700.0) for f in (f_min, f_max))
    mel = torch.linspace(low, high, n_modes, dtype=torch.float64)
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def erb_decays(frequency: Tensor, n_poles: int) -> Tensor:
    """(M,) decay in 1/s that gives n poles the equivalent rectangular bandwidth of hearing at ``frequency`` (Hz).

    ERB = 24.7 (4.37 f / 1000 + 1) Hz (Glasberg and Moore, 1990). The ERB of n equal poles with decay d is
    d / 2 times (2n-2)! 2^(2-2n) / (n-1)!^2 (Holdsworth et al., 1988).
    """
    erb = 24.7 * (4.37e-3 * frequency + 1.0)
    factor = math.factorial(2 * n_poles - 2) * 2.0 ** (2 - 2 * n_poles) / math.factorial(n_poles - 1) ** 2
    return 2.0 * erb / factor


def discretise_modes(decay: Tensor, frequency: Tensor, rate: Tensor, n_poles: int) -> tuple[Tensor, Tensor]:
    """Poles and input taps of every mode at every rate, as planar pairs.

    Args:
        decay: (M,) float64, 1/s.
        frequency: (M,) float64, Hz.
        rate: (R,) float64, Hz.
        n_poles: n.
    Returns:
        a (R, 2M) and c (R, T, 2M), float64, last axis [re | im]. Modes that the rate cannot carry have c = 0, so their
        power is exactly 0.
    """
    period = (1.0 / rate)[:, None]  # (R, 1)
    a = torch.polar(torch.exp(-decay * period), TWO_PI * frequency * period)  # (R, M)
    c = _fit(decay, frequency, rate, a, n_poles)  # (R, M, T)
    centre = torch.polar(torch.ones_like(a.real), -TWO_PI * frequency * period)  # (R, M): z^-1 at the centre
    gain = (c * _powers(centre)).sum(-1).abs() / (1.0 - a * centre).abs() ** n_poles
    present = is_present(frequency, rate)
    scale = torch.where(present, 1.0 / torch.where(present, gain, torch.ones_like(gain)), torch.zeros_like(gain))
    c = (c * scale[..., None]).transpose(1, 2)  # (R, T, M)
    return torch.cat([a.real, a.imag], -1), torch.cat([c.real, c.imag], -1)


def is_present(frequency: Tensor, rate: Tensor) -> Tensor:
    """(R, M) bool: which modes lie low enough for each rate."""
    return frequency[None, :] <= USABLE * 0.5 * rate[:, None]


def _fit(decay: Tensor, frequency: Tensor, rate: Tensor, a: Tensor, n_poles: int) -> Tensor:
    """The least-squares taps (R, M, T) complex128, before the gain is set."""
    steps = (torch.arange(-GRID, GRID, device=rate.device) + 0.5).to(rate.dtype)
    theta = steps * (math.pi * BAND / GRID)  # (J,) radians per sample
    unit = torch.polar(torch.ones_like(theta), -theta)  # (J,) z^-1 on the grid
    detuning = theta * rate[:, None, None] - TWO_PI * frequency[:, None]  # (R, M, J) rad/s
    response = (decay[:, None] / torch.complex(decay[:, None].expand_as(detuning), detuning)) ** n_poles
    power = response.abs().square()
    weight = (power + power.flip(-1)) ** -EXPONENT  # the grid is symmetric: flip is w -> -w
    poles = (1.0 - a[..., None] * unit) ** -n_poles  # (R, M, J)
    taps = _powers(unit)  # (J, T)
    target = response * torch.polar(torch.ones_like(theta), 0.5 * theta) / poles
    weight = weight * poles.abs().square()  # error of the taps -> error of the whole filter
    normal = torch.einsum("jt,rmj,js->rmts", taps.conj(), weight.to(taps.dtype), taps)
    right = torch.einsum("jt,rmj->rmt", taps.conj(), weight * target)
    return torch.linalg.solve(normal, right)


def _powers(unit: Tensor) -> Tensor:
    """(...) z^-1 -> (..., T): 1, z^-1, z^-2, ..."""
    return torch.stack([unit**t for t in range(TAPS)], -1)
