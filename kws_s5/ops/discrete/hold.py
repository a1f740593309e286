"""Zero-order hold with its gradient written out: what discretize.py computes, in a tenth of the operations.

    f(z) = exp(z), gamma = Delta phi(z), phi(z) = (exp(z) - 1) / z, z = Lambda Delta        f' = f
    phi'(z) = (exp(z) - phi(z)) / z

Small models with irregular times spend most of a training step on the many tiny operators of autograd; this is one. All
of it is complex128, in which phi' loses digits near 0 that a float32 gradient does not have: at |z| = 1e-4 it is good
to 12 digits, below 1e-5 two terms of the series are. First derivatives only.

Shapes: P stored states, ... any leading axes of Delta.
"""

from typing import Any

import torch
from torch import Tensor

SERIES_RADIUS = 1e-5


def hold(Lambda_re: Tensor, Lambda_im: Tensor, Delta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lambda_re, Lambda_im (P,) float32, Delta (..., P) float64 -> re, im of Lambda_bar and gamma, (..., P) float32."""
    return _Hold.apply(Lambda_re, Lambda_im, Delta)


class _Hold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Lambda_re: Tensor, Lambda_im: Tensor, Delta: Tensor) -> tuple[Tensor, ...]:
        Lambda = torch.complex(Lambda_re.double(), Lambda_im.double())  # (P,)
        z = Lambda * Delta
        small = z.abs() < SERIES_RADIUS
        safe = torch.where(small, 1.0, z)
        a = torch.exp(z)
        phi = torch.where(small, 1 + z / 2, torch.expm1(safe) / safe)
        slope = torch.where(small, 0.5 + z / 3, (a - phi) / safe)
        ctx.save_for_backward(Lambda, Delta, a, phi, slope)
        ctx.dtype = Lambda_re.dtype
        gamma = Delta * phi
        return tuple(part.to(ctx.dtype) for part in (a.real, a.imag, gamma.real, gamma.imag))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        Lambda, Delta, a, phi, slope = ctx.saved_tensors
        grad_a, grad_gamma = (torch.complex(grads[k].double(), grads[k + 1].double()) for k in (0, 2))
        # of a real loss with respect to re and im, as one complex number: f takes g to g conj(f')
        grad_z = grad_a * a.conj() + grad_gamma * (Delta * slope).conj()
        grad_Lambda = (grad_z * Delta).flatten(0, -2).sum(0) if Delta.dim() > 1 else grad_z * Delta
        grad_Delta = (grad_gamma * phi.conj() + grad_z * Lambda.conj()).real
        return grad_Lambda.real.to(ctx.dtype), grad_Lambda.imag.to(ctx.dtype), grad_Delta
