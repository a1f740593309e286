"""The discrete system of one layer on a CPU in a few numpy operations, gradient included: what S5SSM._system computes.

    Lambda_bar = exp(z), z = Lambda Delta        B_bar = gamma B~, gamma = Delta phi(z), phi(z) = (exp(z) - 1) / z
    Delta = step_rescale exp(log_step)

As some sixty tensor operations this costs a small model as much as one of its layers. Complex numbers stay inside;
Lambda_bar and gamma are float64 until they are rounded once. First derivatives only (hold.py has them).

Shapes: P stored states, H features; planar pairs [re | im].
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

SERIES_RADIUS = 1e-5  # below it two terms of phi's series are exact to float64
MOST = 1 << 20  # numbers of B up to which one thread of numpy is quicker


def fits(step_rescale: float | Tensor, *parameters: Tensor) -> bool:
    """Whether ``hold_system`` may have these: float32 on a CPU, one rate, nothing compiled, traced or transformed."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.overrides.has_torch_function(parameters):
        return False
    if isinstance(step_rescale, Tensor) and (step_rescale.dim() or step_rescale.requires_grad):
        return False
    plain = all(p.device.type == "cpu" and p.dtype == torch.float32 and p.is_contiguous() for p in parameters)
    return plain and parameters[-1].numel() <= MOST and not torch._C._are_functorch_transforms_active()


def hold_system(Lambda_re: Tensor, Lambda_im: Tensor, log_step: Tensor, B: Tensor, *, step_rescale: float,
                log_decay: bool) -> tuple[Tensor, Tensor]:
    """Lambda_bar (2P,) and B_bar (2P, H).

    Args:
        Lambda_re, Lambda_im: (P,); ``log_decay``: Lambda_re is log(-Re Lambda).
        log_step: (P, 1); B: (P, H, 2).
    """
    return _System.apply(Lambda_re, Lambda_im, log_step, B, step_rescale, log_decay)


class _System(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Lambda_re: Tensor, Lambda_im: Tensor, log_step: Tensor, B: Tensor, step_rescale: float,
                log_decay: bool) -> tuple[Tensor, Tensor]:
        real = Lambda_re.numpy().astype(np.float64)
        with np.errstate(all="ignore"):  # a diverged model gives infinities, as tensors do
            Lambda = (-np.exp(real) if log_decay else real) + 1j * Lambda_im.numpy()
            Delta = step_rescale * np.exp(log_step.numpy()[:, 0].astype(np.float64))
            z = Lambda * Delta
            small = np.abs(z) < SERIES_RADIUS
            a, phi = np.exp(z), np.where(small, 1 + z / 2, np.expm1(z) / np.where(small, 1, z))
            gamma = (Delta * phi).astype(np.complex64)
            B_bar = gamma[:, None] * _complex(B)
        ctx.save_for_backward(B)  # notices a change in place
        ctx.known = Lambda, Delta, z, small, a, phi, gamma, log_decay
        return torch.from_numpy(_planar(a)), torch.from_numpy(_planar(B_bar))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_a: Tensor, grad_B_bar: Tensor) -> tuple[Tensor | None, ...]:
        Lambda, Delta, z, small, a, phi, gamma, log_decay = ctx.known
        (B,) = ctx.saved_tensors
        P = len(Lambda)
        grad_a, grad_B_bar = (g.numpy()[:P] + 1j * g.numpy()[P:] for g in (grad_a, grad_B_bar))
        with np.errstate(all="ignore"):
            grad_gamma = (_complex(B).conj() * grad_B_bar).sum(1, dtype=np.complex128)
            grad_B = (gamma.conj()[:, None] * grad_B_bar).astype(np.complex64)
            slope = np.where(small, 0.5 + z / 3, (a - phi) / np.where(small, 1, z))
            # of a real loss with respect to re and im, as one complex number: f takes g to g conj(f')
            grad_z = grad_a * a.conj() + grad_gamma * (Delta * slope).conj()
            grad_Lambda = grad_z * Delta
            grad_log_step = (grad_gamma * phi.conj() + grad_z * Lambda.conj()).real * Delta
            grad_real = grad_Lambda.real * (Lambda.real if log_decay else 1.0)
        vectors = (torch.from_numpy(v.astype(np.float32)) for v in (grad_real, grad_Lambda.imag, grad_log_step))
        grad_re, grad_im, grad_step = vectors
        return grad_re, grad_im, grad_step[:, None], torch.view_as_real(torch.from_numpy(grad_B)), None, None


def _complex(B: Tensor) -> np.ndarray:
    """(P, H, 2) -> (P, H) complex64, the same memory."""
    return B.detach().numpy().view(np.complex64)[..., 0]


def _planar(x: np.ndarray) -> np.ndarray:
    """(P, ...) complex -> (2P, ...) float32."""
    return np.concatenate([x.real, x.imag]).astype(np.float32, copy=False)
