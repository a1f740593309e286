"""The scan on CUDA devices: the Triton kernels of triton_launch.py, and plain torch, with a warning, where they fail.

Triton may be missing, older than its driver, or unable to compile for a device. Training goes on then, slower, on the
chunked scan; the reason is told once. Errors that no other code would cure (memory, a broken device) are passed on.
Shapes: N batch, L steps, P stored states; planar pairs [re | im] on the last axis.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from kws_s5.ops.scan import triton_launch
from kws_s5.ops.scan.chunked import scan_chunked
from kws_s5.ops.scan.reference import multiply

PASSED_ON = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError), AssertionError)
_failure: Exception | None = None  # why Triton is not used any more in this process


def forward(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    """States xs (N, L, 2 D P)."""
    return _first_that_works(triton_launch.forward, chunked_forward, Lambda_bar, Bu, initial, direction)


def adjoint(
    Lambda_bar: Tensor, xs: Tensor, initial: Tensor | None, grad_xs: Tensor, direction: str, needs_Lambda: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Lambda_bar (empty unless needed) and Bu (N, L, 2P), and g (N, 2P) where the first scan starts."""
    arguments = (Lambda_bar, xs, initial, grad_xs, direction, needs_Lambda)
    return _first_that_works(triton_launch.adjoint, chunked_adjoint, *arguments)


def _first_that_works(fast: Callable, portable: Callable, *arguments):
    global _failure
    if _failure is None:
        try:
            return fast(*arguments)
        except PASSED_ON:
            raise
        except Exception as error:  # whatever Triton, its compiler or the driver raise
            _failure = error
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            text = f"the Triton scan does not run here ({type(error).__name__}: {reason}); using plain torch, slower"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    with torch.no_grad():
        return portable(*arguments)


def chunked_forward(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    """As ``forward``, in plain torch."""
    return scan_chunked(Lambda_bar, Bu, direction=direction, initial=initial)


def chunked_adjoint(
    Lambda_bar: Tensor, xs: Tensor, initial: Tensor | None, grad_xs: Tensor, direction: str, needs_Lambda: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``adjoint``, in plain torch."""
    directions = ("forward", "backward") if direction == "both" else (direction,)
    halves = zip(xs.chunk(len(directions), -1), grad_xs.chunk(len(directions), -1), directions, strict=True)
    gs, rows = [], []
    start = initial
    for states, grad, one in halves:
        turned = "backward" if one == "forward" else "forward"
        g = scan_chunked(_conj(Lambda_bar), grad.contiguous(), direction=turned)  # (N, L, 2P)
        first = torch.zeros_like(states[:, :1]) if start is None else start[:, None]  # (N, 1, 2P)
        pair = [first, states[:, :-1]] if one == "forward" else [states[:, 1:], first]
        product = multiply(g, _conj(torch.cat(pair, 1)))
        rows.append(product.roll(1, 1) if one == "backward" and Lambda_bar.dim() == 3 else product)
        gs.append(g)
        start = None  # of the first direction only
    met = gs[0][:, -1 if direction == "backward" else 0] if xs.shape[1] else gs[0].sum(1)
    grad_Bu = sum(gs[1:], gs[0])
    if not needs_Lambda:
        return xs.new_empty(0), grad_Bu, met.clone()
    grad_Lambda = sum(rows[1:], rows[0])
    if Lambda_bar.dim() < 3:
        grad_Lambda = grad_Lambda.sum(1 if Lambda_bar.dim() == 2 else (0, 1))
    return grad_Lambda, grad_Bu, met.clone()


def _conj(a: Tensor) -> Tensor:
    re, im = a.chunk(2, dim=-1)
    return torch.cat([re, -im], dim=-1)
