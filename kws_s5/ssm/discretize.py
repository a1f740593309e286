"""Discretisation of a diagonal system: Lambda, Delta -> Lambda_bar and gain gamma, with B_bar = gamma * B~.

    zero-order hold (S5 paper, eq. 6):  Lambda_bar = exp(z),              gamma = (exp(z) - 1) / Lambda = Delta phi(z)
    bilinear:                           Lambda_bar = (1 + z/2) / (1 - z/2),   gamma = Delta / (1 - z/2)
    with z = Lambda Delta and phi(z) = (exp(z) - 1) / z, phi(0) = 1.

Real pairs instead of complex numbers; float64 inside, because a float32 exp(z) - 1 loses up to four digits at small
Delta; differentiable everywhere, at Lambda = 0 too. The same in one operation, for training on CPUs: ops/discrete/.
Shapes: P stored states, ... any leading axes of Delta.
"""

import torch
from torch import Tensor

SERIES_RADIUS = 0.1  # below it phi is summed as a series, which keeps its derivative exact near 0
SERIES_TERMS = 10  # 0.1^10 / 11! is far below the resolution of float64


def discretize(
    Lambda_re: Tensor, Lambda_im: Tensor, Delta: Tensor, method: str = "zoh"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Real and imaginary parts of Lambda_bar and gamma, each of shape (..., P) and of the dtype of ``Lambda_re``.

    Args:
        Lambda_re, Lambda_im: (P,) eigenvalues in continuous time.
        Delta: (..., P) step sizes.
        method: "zoh" or "bilinear".
    """
    dtype = Lambda_re.dtype
    work = torch.float32 if Delta.device.type == "mps" else torch.float64  # Apple GPUs have no float64
    Delta = Delta.to(work)
    x, y = Lambda_re.to(work) * Delta, Lambda_im.to(work) * Delta
    if method == "zoh":
        a_re, a_im, phi_re, phi_im = _exponential(x, y)
    else:
        assert method == "bilinear", method
        a_re, a_im, phi_re, phi_im = _bilinear(x, y)
    return a_re.to(dtype), a_im.to(dtype), (Delta * phi_re).to(dtype), (Delta * phi_im).to(dtype)


def _exponential(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp(z) and phi(z), z = x + iy, as real pairs."""
    growth = torch.exp(x)
    a_re, a_im = growth * torch.cos(y), growth * torch.sin(y)
    small = x * x + y * y < SERIES_RADIUS**2
    series_re, series_im = _phi_series(torch.where(small, x, 0), torch.where(small, y, 0))
    # exp(z) - 1 without cancellation; z is replaced by 1 where the series is used, so that no gradient becomes NaN
    x, y = torch.where(small, 1, x), torch.where(small, 0, y)
    top_re = torch.expm1(x) * torch.cos(y) - 2 * torch.sin(y / 2) ** 2
    top_im = torch.exp(x) * torch.sin(y)
    norm = x * x + y * y
    phi_re = torch.where(small, series_re, (top_re * x + top_im * y) / norm)
    phi_im = torch.where(small, series_im, (top_im * x - top_re * y) / norm)
    return a_re, a_im, phi_re, phi_im


def _phi_series(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """phi(z) = sum of z^k / (k + 1)! by Horner's rule."""
    re, im = torch.ones_like(x), torch.zeros_like(y)
    for k in range(SERIES_TERMS, 1, -1):
        re, im = 1 + (re * x - im * y) / k, (re * y + im * x) / k
    return re, im


def _bilinear(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(1 + z/2) / (1 - z/2) and 1 / (1 - z/2), z = x + iy, as real pairs."""
    down_re, down_im = 1 - x / 2, -y / 2
    norm = down_re**2 + down_im**2
    inverse_re, inverse_im = down_re / norm, -down_im / norm
    up_re, up_im = 1 + x / 2, y / 2
    return (
        up_re * inverse_re - up_im * inverse_im,
        up_re * inverse_im + up_im * inverse_re,
        inverse_re,
        inverse_im,
    )
