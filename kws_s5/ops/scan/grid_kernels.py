"""Compiled loops of the scan on a grid (grid.py), forward and gradient, on flat arrays.

Shapes: N batch, L steps, P stored states, D directions, of which d runs; planar pairs [re | im].
"""

from functools import cache

from numba import types

from kws_s5.ops.common.jit import njit_kept
from kws_s5.ops.scan.cpu_kernels import conj_multiply_add, multiply_add


@cache
def compiled(double: bool) -> tuple:
    """(forward, adjoint) for float32 or float64; compiled at once, so that no gradient can fail later."""
    row, place = (types.float64 if double else types.float32)[::1], types.int64[::1]
    sizes = types.UniTuple(types.int64, 5)
    forward = types.void(row, place, row, row, row, sizes, types.boolean)
    adjoint = types.void(row, place, row, row, row, row, row, row, sizes, types.boolean)
    return njit_kept(_forward, forward), njit_kept(_adjoint, adjoint)


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
