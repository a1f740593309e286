"""The scan at irregular times on a grid, for CPUs: every step takes its system from a table of the few that occur.

    forward:   x_k = a[m_k]     x_{k-1} + g[m_k] v_k
    backward:  x_k = a[m_{k+1}] x_{k+1} + g[m_k] v_k      (a belongs to the interval between k and k + 1)

with the factor a, the gain g and m_k = place[k]. The same as choice.py on gathered rows, but nothing of N L 4P numbers
is gathered, and the gradient goes straight into the table. On one thread: for small batches. Where the two loops cannot
be compiled, rows are gathered after all.

    gradient, forward:   h_k = grad_k + conj(a[m_{k+1}]) h_{k+1},   a[m_k] += h_k conj(x_{k-1})
    gradient, backward:  h_k = grad_k + conj(a[m_k]) h_{k-1},       a[m_{k+1}] += h_k conj(x_{k+1})
    in both:             v_k = conj(g[m_k]) h_k,                    g[m_k] += h_k conj(v_k)

Shapes: N batch, L steps, P stored states, M systems, D directions; planar pairs [re | im] on the last axis.
"""

from typing import Any

import torch
from torch import Tensor

from kws_s5.ops.scan.choice import scan
from kws_s5.ops.scan.reference import multiply
from kws_s5.ops.switch import ready


def scan_grid(table: Tensor, place: Tensor, v: Tensor, direction: str) -> Tensor:
    """States (N, L, 2P), or (N, L, 4P) = [forward | backward] for "both".

    Args:
        table: (M, 4P) float32 or float64, rows [a_re | a_im | g_re | g_im].
        place: (N, L) int64, row of every step.
        v: (N, L, 2P) of the table's dtype.
    """
    if ready(lambda: _kernels(v.dtype)):
        return _Scan.apply(table, place, v, direction)
    Lambda_bar, gain = table[place].chunk(2, -1)
    return scan(Lambda_bar, multiply(gain, v), direction=direction)


def _kernels(dtype: torch.dtype) -> tuple:
    """The loop and its gradient, compiled."""
    from kws_s5.ops.scan import grid_kernels

    return grid_kernels.compiled(dtype == torch.float64)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, place: Tensor, v: Tensor, direction: str) -> Tensor:
        table, place, v = table.contiguous(), place.contiguous(), v.contiguous()
        N, L, width = v.shape
        D = 2 if direction == "both" else 1
        xs = v.new_empty(N, L, D * width)
        ctx.save_for_backward(table, place, v, xs)
        ctx.direction = direction
        forward, _ = _kernels(v.dtype)
        arrays = [t.detach().view(-1).numpy() for t in (table, place, v, xs)]
        for d in range(D):
            reverse = d == 1 or direction == "backward"
            forward(*arrays, v.new_zeros(2 * width).numpy(), (N, L, width // 2, D, d), reverse)
        return xs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_xs: Tensor) -> tuple[Tensor, None, Tensor, None]:
        table, place, v, xs = ctx.saved_tensors
        N, L, width = v.shape
        D = xs.shape[-1] // width
        _, adjoint = _kernels(v.dtype)
        grad_table, grad_v = torch.zeros_like(table), torch.zeros_like(v)
        arrays = [t.view(-1).numpy() for t in (table, place, v, xs, grad_xs.contiguous(), grad_table, grad_v)]
        for d in range(D):
            reverse = d == 1 or ctx.direction == "backward"
            adjoint(*arrays, v.new_zeros(2 * width).numpy(), (N, L, width // 2, D, d), reverse)
        return grad_table, None, grad_v, None
