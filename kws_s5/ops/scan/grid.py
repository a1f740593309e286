"""The scan at irregular times on a grid, for CPUs: every step takes its system from a table of the few that occur.

    forward:   x_k = a[m_k]     x_{k-1} + g[m_k] v_k
    backward:  x_k = a[m_{k+1}] x_{k+1} + g[m_k] v_k      (a belongs to the interval between k and k + 1)

with the factor a, the gain g and m_k = place[k]. The same as choice.py on gathered rows, but nothing of N L 4P numbers
is gathered, and the gradient goes straight into the table. On one thread: for small batches.

    gradient, forward:   h_k = grad_k + conj(a[m_{k+1}]) h_{k+1},   a[m_k] += h_k conj(x_{k-1})
    gradient, backward:  h_k = grad_k + conj(a[m_k]) h_{k-1},       a[m_{k+1}] += h_k conj(x_{k+1})
    in both:             v_k = conj(g[m_k]) h_k,                    g[m_k] += h_k conj(v_k)

Shapes: N batch, L steps, P stored states, M systems, D directions; planar pairs [re | im] on the last axis.
"""

from typing import Any

import torch
from torch import Tensor

from kws_s5.ops.common.jit import njit_kept
from kws_s5.ops.scan.cpu_kernels import conj_multiply_add, multiply_add


def scan_grid(table: Tensor, place: Tensor, v: Tensor, direction: str) -> Tensor:
    """States (N, L, 2P), or (N, L, 4P) = [forward | backward] for "both".

    Args:
        table: (M, 4P) float32 or float64, rows [a_re | a_im | g_re | g_im].
        place: (N, L) int64, row of every step.
        v: (N, L, 2P) of the table's dtype.
    """
    return _Scan.apply(table, place, v, direction)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, place: Tensor, v: Tensor, direction: str) -> Tensor:
        table, place, v = table.contiguous(), place.contiguous(), v.contiguous()
        N, L, width = v.shape
        D = 2 if direction == "both" else 1
        xs = v.new_empty(N, L, D * width)
        ctx.save_for_backward(table, place, v, xs)
        ctx.direction = direction
        arrays = [t.detach().view(-1).numpy() for t in (table, place, v, xs)]
        for d in range(D):
            reverse = d == 1 or direction == "backward"
            _forward(*arrays, v.new_zeros(2 * width).numpy(), (N, L, width // 2, D, d), reverse)
        return xs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_xs: Tensor) -> tuple[Tensor, None, Tensor, None]:
        table, place, v, xs = ctx.saved_tensors
        N, L, width = v.shape
        D = xs.shape[-1] // width
        grad_table, grad_v = torch.zeros_like(table), torch.zeros_like(v)
        arrays = [t.view(-1).numpy() for t in (table, place, v, xs, grad_xs.contiguous(), grad_table, grad_v)]
        for d in range(D):
            reverse = d == 1 or ctx.direction == "backward"
            _adjoint(*arrays, v.new_zeros(2 * width).numpy(), (N, L, width // 2, D, d), reverse)
        return grad_table, None, grad_v, None


@njit_kept
def _forward(table, place, v, xs, work, sizes, reverse):
    """work: the drive, then zeros."""
    N, L, P, D, d = sizes
    width = 2 * P
    for n in range(N):
        before = 0
        for k in range(L):
            t = n * L + (L - 1 - k if reverse else k)
            here = (t * D + d) * width
            multiply_add(table, place[t] * 2 * width + width, v, t * width, work, width, work, 0, P, 0, P)
            if k == 0:
                multiply_add(table, place[t] * 2 * width, work, width, work, 0, xs, here, P, 0, P)
            else:
                a = place[t + 1 if reverse else t] * 2 * width
                multiply_add(table, a, xs, before, work, 0, xs, here, P, 0, P)
            before = here


@njit_kept
def _adjoint(table, place, v, xs, grad_xs, grad_table, grad_v, work, sizes, reverse):
    """work: h, then h of the step before (zeros at first)."""
    N, L, P, D, d = sizes
    width = 2 * P
    for n in range(N):
        work[:] = 0
        for k in range(L):  # against the scan's direction
            t = n * L + (k if reverse else L - 1 - k)
            here, row = (t * D + d) * width, place[t] * 2 * width
            last = k == L - 1
            if k > 0:
                a = row if reverse else place[t + 1] * 2 * width
                conj_multiply_add(table, a, work, 0, grad_xs, here, work, 0, P, 0, P)
            else:
                conj_multiply_add(table, row, work, width, grad_xs, here, work, 0, P, 0, P)
            conj_multiply_add(table, row + width, work, 0, grad_v, t * width, grad_v, t * width, P, 0, P)
            conj_multiply_add(v, t * width, work, 0, grad_table, row + width, grad_table, row + width, P, 0, P)
            if not last:
                source = place[t + 1] * 2 * width if reverse else row
                x = here + D * width if reverse else here - D * width
                conj_multiply_add(xs, x, work, 0, grad_table, source, grad_table, source, P, 0, P)
