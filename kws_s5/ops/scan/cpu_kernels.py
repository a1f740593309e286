"""Compiled loops of the scan and its gradient for CPUs (numba).

A kernel is a C function of one pointer to int64 numbers, the job: it claims items by an atomic counter until none is
left, so that any number of threads may run it on the same job, without Python and without allocating anything.

    job: counter, items, N, L, P, D, tiles, span, kind, backward, needs_Lambda, then addresses
         forward:  Lambda_bar, Bu, start, xs
         adjoint:  Lambda_bar, xs, start, grad_xs, grad_Bu, g, one (a row of 1 + 0i and a row of zeros), rows, sums

Kind of Lambda_bar: 0 constant, 1 per clip, 2 per step. All arrays are flat; a row holds the 2P numbers of one step.
Shapes: N batch, L steps, P stored states, D directions.
"""

from functools import cache

import numpy as np
from numba import carray, njit

from kws_s5.ops.common.jit import compile_kept
from kws_s5.ops.common.jobs import claim, pointer
from kws_s5.ops.common.simd import make_multiply_add

HEADER = 11
BLOCK = 64  # steps summed in the working precision before they go to float64

multiply_add = make_multiply_add(conjugate=False)
conj_multiply_add = make_multiply_add(conjugate=True)


@njit(nogil=True, error_model="numpy")
def _array(job, k, size, dtype):
    """The k-th array of the job."""
    return carray(pointer(job[HEADER + k]), (size,), dtype)


@njit(nogil=True, error_model="numpy")
def _factor_row(kind, n, t, L, width):
    """Index of the row of Lambda_bar for clip n at step t."""
    if kind == 0:
        return 0
    return n * width if kind == 1 else (n * L + min(t, L - 1)) * width


@njit(nogil=True, error_model="numpy")
def _forward(job, dtype):
    N, L, P, D, tiles, span, kind = job[2], job[3], job[4], job[5], job[6], job[7], job[8]
    width = 2 * P
    Lambda_bar = _array(job, 0, N * L * width, dtype)
    Bu = _array(job, 1, N * L * width, dtype)
    start = _array(job, 2, 2 * N * width, dtype)
    xs = _array(job, 3, N * L * D * width, dtype)
    while True:
        item = claim(job)
        if item >= job[1]:
            return
        tile, d, n = item % tiles, item // tiles % D, item // (tiles * D)
        low, high = tile * span, min(P, (tile + 1) * span)
        backward = d + job[9] > 0
        before = 0
        for k in range(L):
            t = L - 1 - k if backward else k
            a = _factor_row(kind, n, t + 1 if backward else t, L, width)
            here = ((n * L + t) * D + d) * width
            v = (n * L + t) * width
            if k == 0:
                multiply_add(Lambda_bar, a, start, (d * N + n) * width, Bu, v, xs, here, P, low, high)
            else:
                multiply_add(Lambda_bar, a, xs, before, Bu, v, xs, here, P, low, high)
            before = here


@njit(nogil=True, error_model="numpy")
def _adjoint(job, dtype):
    N, L, P, D, tiles, span = job[2], job[3], job[4], job[5], job[6], job[7]
    width = 2 * P
    Lambda_bar = _array(job, 0, N * L * width, dtype)
    xs = _array(job, 1, N * L * D * width, dtype)
    start = _array(job, 2, 2 * N * width, dtype)
    grad_xs = _array(job, 3, N * L * D * width, dtype)
    grad_Bu = _array(job, 4, N * L * width, dtype)
    g = _array(job, 5, 2 * N * width, dtype)
    one = _array(job, 6, 2 * width, dtype)
    rows = _array(job, 7, N * L * width, dtype)
    sums = _array(job, 8, N * width, np.float64)
    while True:
        item = claim(job)
        if item >= job[1]:
            return
        tile, n = item % tiles, item // tiles
        low, high = tile * span, min(P, (tile + 1) * span)
        for d in range(D):
            _adjoint_item(job, Lambda_bar, xs, start, grad_xs, grad_Bu, g, one, rows, sums, n, d, low, high)


@njit(nogil=True, error_model="numpy")
def _adjoint_item(job, Lambda_bar, xs, start, grad_xs, grad_Bu, g, one, rows, sums, n, d, low, high):
    N, L, P, D, kind, needs_Lambda = job[2], job[3], job[4], job[5], job[8], job[10]
    backward = d + job[9] > 0
    width = 2 * P
    state = (d * N + n) * width  # row of g
    for k in range(L):
        t = k if backward else L - 1 - k  # against the scan's direction
        here = ((n * L + t) * D + d) * width
        out = (n * L + t) * width
        a = _factor_row(kind, n, t if backward else t + 1, L, width)
        conj_multiply_add(Lambda_bar, a, g, state, grad_xs, here, g, state, P, low, high)
        if d == 0:  # write the row of g
            multiply_add(one, 0, g, state, one, width, grad_Bu, out, P, low, high)
        else:  # add it to the other direction's
            multiply_add(one, 0, g, state, grad_Bu, out, grad_Bu, out, P, low, high)
        if needs_Lambda == 0:
            continue
        source = t + 1 if backward else t  # the step whose factor brought the state here
        row = (n * L + source) * width if kind == 2 else n * width
        if k < L - 1:
            before = here + D * width if backward else here - D * width
            conj_multiply_add(xs, before, g, state, rows, row, rows, row, P, low, high)
        elif kind < 2 or not backward:
            conj_multiply_add(start, state, g, state, rows, row, rows, row, P, low, high)
        if kind < 2 and (k % BLOCK == BLOCK - 1 or k == L - 1):
            _flush(rows, sums, row, P, low, high)


@njit(nogil=True, error_model="numpy")
def _flush(rows, sums, i, P, low, high):
    """Move a partial sum over time to its float64 total."""
    for plane in (0, P):
        for p in range(plane + low, plane + high):
            sums[i + p] += rows[i + p]
            rows[i + p] = 0


def forward_float32(job):
    _forward(job, np.float32)


def forward_float64(job):
    _forward(job, np.float64)


def adjoint_float32(job):
    _adjoint(job, np.float32)


def adjoint_float64(job):
    _adjoint(job, np.float64)


@cache
def compiled(kernel: str, double: bool) -> int:
    """Address of the kernel "forward" or "adjoint", compiled on first use and kept on disk where that is possible."""
    return compile_kept(globals()[f"{kernel}_float{64 if double else 32}"])
