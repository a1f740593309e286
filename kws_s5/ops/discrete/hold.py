"""Zero-order hold with its gradient written out: what ssm/discretize.py computes, in a tenth of the operations.

    Lambda_bar = exp(z), gamma = Delta phi(z), phi(z) = (exp(z) - 1) / z, z = Lambda Delta, Delta = scale exp(log_step)
    phi'(z) = (exp(z) - phi(z)) / z;    with B~ given, B_bar = gamma B~

As dozens of tensor operations it costs a small model as much as one of its layers; this is one. All of it is
complex128, in which phi' loses digits near 0 that a float32 gradient does not have: at |z| = 1e-4 it is good to 12
digits; below 1e-5 two terms of the series are. First derivatives only.

Shapes: P stored states, H features, ... any leading axes of scale; planar pairs [re | im].
"""

from typing import Any

import torch
from torch import Tensor

from kws_s5.ops.switch import active

SERIES_RADIUS = 1e-5


def fits(scale: float | Tensor, *parameters: Tensor) -> bool:
    """Whether ``hold`` may have these: float32 on a CPU, nothing compiled, traced or transformed, scale constant."""
    if not active() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if isinstance(scale, Tensor) and (scale.requires_grad or scale.device.type != "cpu"):
        return False
    plain = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters)
    return plain and not (torch.overrides.has_torch_function(parameters) or torch._C._are_functorch_transforms_active())


def hold(
    Lambda_re: Tensor, Lambda_im: Tensor, log_step: Tensor, scale: float | Tensor, B: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Lambda_bar (..., 2P) and gamma (..., 2P), or B_bar (2P, H) instead of gamma; all float32.

    Args:
        Lambda_re, Lambda_im: (P,) eigenvalues in continuous time.
        log_step: (P, 1).
        scale: multiplies exp(log_step): a number or (...,) float64. It has no gradient.
        B: (P, H, 2), with one scale for all only.
    """
    return _Hold.apply(Lambda_re, Lambda_im, log_step, scale, B)


class _Hold(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, Lambda_re: Tensor, Lambda_im: Tensor, log_step: Tensor, scale: float | Tensor, B: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        Delta = log_step[:, 0].double().exp() * (scale[..., None] if isinstance(scale, Tensor) else scale)  # (..., P)
        Lambda = torch.complex(Lambda_re.double(), Lambda_im.double())  # (P,)
        z = Lambda * Delta
        small = z.abs() < SERIES_RADIUS
        safe = z.masked_fill(small, 1.0)
        a = z.exp()
        phi = torch.where(small, 1 + z / 2, torch.expm1(safe) / safe)
        gamma = (Delta * phi).to(torch.complex64)
        gain = gamma if B is None else gamma[:, None] * _complex(B)
        ctx.save_for_backward(Lambda, Delta, z, small, safe, a, phi, gamma, B)
        return _planar(a, B is not None), _planar(gain, B is not None)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_a: Tensor, grad_gain: Tensor) -> tuple[Tensor | None, ...]:
        Lambda, Delta, z, small, safe, a, phi, gamma, B = ctx.saved_tensors
        one = B is not None
        grad_a, grad_gamma, grad_B = _complex_of(grad_a, one), _complex_of(grad_gain, one), None
        if B is not None:
            grad_B = torch.view_as_real(gamma.conj()[:, None] * grad_gamma)
            grad_gamma = (_complex(B).conj() * grad_gamma).sum(1, dtype=torch.complex128)
        slope = torch.where(small, 0.5 + z / 3, (a - phi) / safe)
        # of a real loss with respect to re and im, as one complex number: f takes g to g conj(f')
        grad_z = grad_a * a.conj() + grad_gamma * (Delta * slope).conj()
        grad_Lambda, grad_step = grad_z * Delta, (grad_gamma * phi.conj() + grad_z * Lambda.conj()).real * Delta
        if Delta.dim() > 1:
            grad_Lambda, grad_step = grad_Lambda.flatten(0, -2).sum(0), grad_step.flatten(0, -2).sum(0)
        return grad_Lambda.real.float(), grad_Lambda.imag.float(), grad_step.float()[:, None], None, grad_B


def _complex(B: Tensor) -> Tensor:
    """(P, H, 2) -> (P, H) complex64, the same memory."""
    return torch.view_as_complex(B)


def _planar(x: Tensor, first: bool) -> Tensor:
    """Complex -> pairs [re | im] float32, along the first axis or the last."""
    return torch.cat([x.real, x.imag], 0 if first else -1).float()


def _complex_of(pairs: Tensor, first: bool) -> Tensor:
    """The other way round."""
    return torch.complex(*pairs.chunk(2, 0 if first else -1))
