"""Evaluation options of a trained S5SSM at a lower rate: linear instead of held input, and no aliased modes.

Zero-order hold with Delta multiplied by r equals the SSM at the training rate on the slow signal with every sample
repeated r times. A trained model has seen smooth signals there, so the straight line between two samples serves it
better, and costs one more tap and no training:

    x_k = a^r x_{k-1} + w0 B~ u_k + w1 B~ u_{k-1},      sum over the r steps that the slow step stands for:
    w0 + w1 = gamma(r Delta),   w1 = sum_{0 <= j < r} a^j gamma(Delta) j / r

with a = exp(z), z = Lambda Delta. In closed form, which also gives a meaning to r that is no whole number,

    w1 = Delta (r - 1) a (r phi2(r z) - (r - 1) phi2((r - 1) z)) / phi1(z),
    phi1(z) = (exp(z) - 1) / z,   phi2(z) = (exp(z) - 1 - z) / z^2

and w1 = 0 at r = 1: the model as it was trained. For r < 1 the input is held. The backward direction mirrors it
(u_{k+1}). Outside a clip its first or last sample is taken to continue.

Shapes: N batch, L steps, H features, P stored states.
"""

import math

import torch
from torch import Tensor

from kws_s5.ops.scan.choice import scan

SERIES_RADIUS = 0.5
SERIES_TERMS = 18  # 0.5^18 / 20! is far below the resolution of float64


def linear_weights(
    Lambda_re: Tensor, Lambda_im: Tensor, Delta: Tensor, rescale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """a^r, w0 and w1, each complex128 of shape (P,) or (N, P).

    Args:
        Lambda_re, Lambda_im: (P,) eigenvalues.
        Delta: (P,) step sizes at the training rate.
        rescale: () or (N, 1), training rate / rate.
    """
    Lambda = torch.complex(Lambda_re.double(), Lambda_im.double())
    Delta, rescale = Delta.double(), rescale.double()
    z, r = Lambda * Delta, rescale.clamp(min=1.0)  # (P,), () or (N, 1)
    hold = rescale * Delta * _phi1(rescale * z)  # gamma(r Delta)
    w1 = Delta * (r - 1) * torch.exp(z) * (r * _phi2(r * z) - (r - 1) * _phi2((r - 1) * z)) / _phi1(z)
    return torch.exp(rescale * z), hold - w1, w1


def linear_states(
    u: Tensor,
    B: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    *,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
    bidirectional: bool = False,
) -> Tensor:
    """States xs (N, L, 2P), or (N, L, 4P) = [forward | backward], of linearly interpolated input.

    Args:
        u: (N, L, H), zero behind the end of each clip.
        B: (P, H, 2) input matrix.
        weights: from ``linear_weights``.
        lengths: (N,) valid steps, or None.
        initial: (N, 2P) state before the first step.
    """
    Lambda_bar, w0, w1 = weights
    Lambda_bar = torch.cat([Lambda_bar.real, Lambda_bar.imag], -1).to(u.dtype)  # (2P,) or (N, 2P)
    B0, B1 = _gain(w0, B).to(u.dtype).mT, _gain(w1, B).to(u.dtype).mT  # (H, 2P) or (N, H, 2P)
    before, after = _neighbours(u, lengths)  # (N, L, H) each
    forward = scan(Lambda_bar, u @ B0 + before @ B1, initial=initial)
    if not bidirectional:
        return forward
    return torch.cat([forward, scan(Lambda_bar, u @ B0 + after @ B1, direction="backward")], -1)


def below_nyquist(Lambda_im: Tensor, Delta: Tensor, rescale: float | Tensor) -> Tensor:
    """1.0 for modes that the slower rate can carry, 0.0 for those it would alias: |Im Lambda| Delta r > pi, r > 1.

    Args:
        Lambda_im: (P,); Delta: (P,) at the training rate; rescale: a number, () or (N, 1).
    Returns:
        (P,) or (N, P), float64. All ones at r <= 1: a mode beyond Nyquist there was trained as it is.
    """
    r = torch.as_tensor(rescale, dtype=torch.float64, device=Delta.device)
    aliased = Lambda_im.double().abs() * Delta.double() * r > math.pi
    return (~(aliased & (r > 1.0))).double()


def _gain(w: Tensor, B: Tensor) -> Tensor:
    """Planar rows (2P, H) or (N, 2P, H) of w B~, for w (P,) or (N, P)."""
    product = w[..., None] * torch.view_as_complex(B.double())
    return torch.cat([product.real, product.imag], -2)


def _neighbours(u: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """u_{k-1} and u_{k+1}, (N, L, H) each; the first sample stands before itself, the last valid one behind itself."""
    before = torch.cat([u[:, :1], u[:, :-1]], 1)
    after = torch.cat([u[:, 1:], u[:, -1:]], 1)
    if lengths is None:
        return before, after
    k = torch.arange(u.shape[1], device=u.device)
    before = torch.where((k < lengths[:, None])[..., None], before, 0)
    return before, torch.where((k == lengths[:, None] - 1)[..., None], u, after)


def _phi1(z: Tensor) -> Tensor:
    small = z.abs() < SERIES_RADIUS
    return torch.where(small, _series(torch.where(small, z, 0), 1), torch.expm1(z) / torch.where(small, 1, z))


def _phi2(z: Tensor) -> Tensor:
    small = z.abs() < SERIES_RADIUS
    safe = torch.where(small, 1, z)
    return torch.where(small, _series(torch.where(small, z, 0), 2), (torch.expm1(z) - z) / safe**2)


def _series(z: Tensor, first: int) -> Tensor:
    """Sum of z^k / (k + first)! by Horner's rule."""
    total = torch.ones_like(z)
    for k in range(SERIES_TERMS, 0, -1):
        total = 1 + total * z / (k + first)
    return total / math.factorial(first)
