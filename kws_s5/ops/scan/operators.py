"""The compiled scans as torch operators, so that autograd, torch.compile and torch.library.opcheck know them.

    kws_s5::scan          states of the recurrence
    kws_s5::scan_adjoint  its gradient: the recurrence run the other way with conj(Lambda_bar)

        forward scan:   g_k = grad_k + conj(Lambda_bar_{k+1}) g_{k+1},   grad Lambda_bar_k += g_k conj(x_{k-1})
        backward scan:  g_k = grad_k + conj(Lambda_bar_k)     g_{k-1},   grad Lambda_bar_{k+1} += g_k conj(x_{k+1})
        grad Bu = g (the sum of both for "both"),  grad initial = conj(Lambda_bar) g at the scan's first step

A device's kernels live in a module with functions ``forward`` and ``adjoint`` (cpu.py, cuda.py), imported on
first use; where they cannot be compiled, plain torch (chunked.py) computes the same.
Shapes: N batch, L steps, P stored states, D directions (1 or 2); planar pairs [re | im] on the last axis.
"""

import torch
from torch import Tensor

from kws_s5.ops.scan.chunked import chunked_adjoint, chunked_forward
from kws_s5.ops.scan.reference import multiply
from kws_s5.ops.switch import ready


def scan_compiled(
    Lambda_bar: Tensor, Bu: Tensor, *, direction: str = "forward", initial: Tensor | None = None
) -> Tensor:
    """States xs (N, L, 2P), or (N, L, 4P) for "both"; arguments as in choice.py."""
    return scan_op(Lambda_bar, Bu, initial, direction)


@torch.library.custom_op("kws_s5::scan", mutates_args=(), device_types="cpu")
def scan_op(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    """xs (N, L, 2 D P)."""
    if not ready(lambda: _cpu().kernel("forward", Bu.dtype)):
        return chunked_forward(Lambda_bar, Bu, initial, direction)
    return _cpu().forward(Lambda_bar, Bu, initial, direction)


@torch.library.custom_op("kws_s5::scan_adjoint", mutates_args=(), device_types="cpu")
def adjoint_op(
    Lambda_bar: Tensor,
    xs: Tensor,
    initial: Tensor | None,
    grad_xs: Tensor,
    direction: str,
    needs_Lambda: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Lambda_bar (its shape; empty unless needed) and Bu, and g (N, 2P) at the forward scan's start."""
    if not ready(lambda: _cpu().kernel("adjoint", xs.dtype)):
        return chunked_adjoint(Lambda_bar, xs, initial, grad_xs, direction, needs_Lambda)
    return _cpu().adjoint(Lambda_bar, xs, initial, grad_xs, direction, needs_Lambda)


def _cpu():
    from kws_s5.ops.scan import cpu

    return cpu


@scan_op.register_kernel("cuda")
def _(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    from kws_s5.ops.scan import cuda as scan_cuda

    return scan_cuda.forward(Lambda_bar, Bu, initial, direction)


@adjoint_op.register_kernel("cuda")
def _(Lambda_bar, xs, initial, grad_xs, direction, needs_Lambda):
    from kws_s5.ops.scan import cuda as scan_cuda

    return scan_cuda.adjoint(Lambda_bar, xs, initial, grad_xs, direction, needs_Lambda)


@scan_op.register_fake
def _(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    N, L, width = Bu.shape
    return Bu.new_empty(N, L, 2 * width if direction == "both" else width)


@adjoint_op.register_fake
def _(Lambda_bar, xs, initial, grad_xs, direction, needs_Lambda):
    N, L, width = xs.shape
    width = width // 2 if direction == "both" else width
    grad_Lambda = xs.new_empty(Lambda_bar.shape if needs_Lambda else (0,))
    return grad_Lambda, xs.new_empty(N, L, width), xs.new_empty(N, width)


def _setup(ctx, inputs, output) -> None:
    Lambda_bar, _, initial, ctx.direction = inputs
    ctx.save_for_backward(Lambda_bar, initial, output)


def _gradient(ctx, grad_xs: Tensor):
    Lambda_bar, initial, xs = ctx.saved_tensors
    needs_Lambda = ctx.needs_input_grad[0]
    grad_Lambda, grad_Bu, g = adjoint_op(Lambda_bar, xs, initial, grad_xs, ctx.direction, needs_Lambda)
    grad_initial = None
    if initial is not None:
        first = Lambda_bar[:, 0] if Lambda_bar.dim() == 3 else Lambda_bar  # (2P,) or (N, 2P)
        re, im = first.chunk(2, dim=-1)
        grad_initial = multiply(torch.cat([re, -im], dim=-1), g)  # (N, 2P)
    return grad_Lambda if needs_Lambda else None, grad_Bu, grad_initial, None


scan_op.register_autograd(_gradient, setup_context=_setup)
