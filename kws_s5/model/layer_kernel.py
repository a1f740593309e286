"""Compiled elementwise work of an S5 layer on CPUs: what stands between its matrix products, one pass each.

A kernel is a C function of one pointer to int64 numbers, the job: it claims items (``chunk`` rows) by an atomic counter
until none is left, so any number of threads may run it. Sums over rows go to float64 after every item.

    job: counter, items, operation, rows, first row, H, L, chunk, n_sums, lengths, sums, totals, then the operand table
         (vector.py); lengths (N,) int64 or 0; sums (items, n_sums, H) zeros; totals the same in float64

Rows are steps of clips laid end to end: row r of a tile belongs to clip (first row + r) // L.
Legend: N batch, L steps, H features; G gradient of the layer's output.
"""

import math
from functools import cache

import numpy as np
import torch
from numba import carray, cfunc, njit, types
from torch import Tensor

from kws_s5.model.vector import TABLE, rowwise
from kws_s5.ssm.scan_cpu_kernels import _address, _claim
from kws_s5.ssm.threads import run_parallel

MOMENTS, AFFINE, ACTIVATE, COMBINE = range(4)
ACTIVATE_AGAIN, GATE_GRADIENT, GELU_GRADIENT, INPUT_GRADIENT, NORM_GRADIENT = range(4, 9)
SMALL = 1 << 15  # numbers below which starting threads costs more than it saves
CHUNK = 64  # rows of an item: few enough to sum in the working precision
K, CUBE = 2.0 * math.sqrt(2.0 / math.pi), 0.044715  # gelu(y) = y sigmoid(K (y + CUBE y^3)), the tanh form


@rowwise
def clear(out):
    return {0: out.zero()}


@rowwise
def copy(out, source):
    return {0: source}


@rowwise
def moments(x, origin, total, square):
    centred = x - origin
    return {2: total + centred, 3: square + centred * centred}


@rowwise
def affine(u, x, mean, gain, bias):
    return {0: (x - mean) * gain + bias}


@rowwise
def activate(y, u, D, mask, h):
    y = y + D * u
    return {0: y, 4: mask * y * (K * (y + CUBE * y * y * y)).sigmoid()}


@rowwise
def activate_again(y, mask, h):
    return {2: mask * y * (K * (y + CUBE * y * y * y)).sigmoid()}


@rowwise
def combine(out, skip, value, z, bias, mask):
    return {0: skip + value * mask * (z + bias).sigmoid()}


@rowwise
def gate_gradient(G, value, z, bias, mask, dz, dvalue, dbias):
    s = (z + bias).sigmoid()
    product = G * mask * s
    dz = product * value * (1.0 - s)
    return {5: dz, 6: product, 7: dbias + dz}


@rowwise
def gelu_gradient(dy, y, mask, dh, through_h, direct):
    s = (K * (y + CUBE * y * y * y)).sigmoid()
    slope = s + y * s * (1.0 - s) * (K * (1.0 + 3.0 * CUBE * y * y))
    return {0: (dh + through_h) * mask * slope + direct}


@rowwise
def input_gradient(du, through_B, dy, D, u, x, mean, inverse, dD, dbias, dscale):
    du = through_B + D * dy
    return {0: du, 8: dD + dy * u, 9: dbias + du, 10: dscale + du * (x - mean) * inverse}


@rowwise
def norm_gradient(out, G, du, x, mean, gain, slope, offset):
    return {0: G + du * gain + (x - mean) * slope + offset}


@njit(nogil=True, error_model="numpy")
def _row(job, item, r, n, like, counts):
    """The operation on one row; ``counts``: the row belongs to its clip, it is not padding."""
    operation = job[2]
    if operation == MOMENTS:
        if counts:
            moments(job, item, r, n, like)
    elif operation == AFFINE:
        if counts:
            affine(job, item, r, n, like)
        else:
            clear(job, item, r, n, like)
    elif operation == ACTIVATE:
        activate(job, item, r, n, like)
    elif operation == COMBINE:
        combine(job, item, r, n, like)
    elif operation == ACTIVATE_AGAIN:
        activate_again(job, item, r, n, like)
    elif operation == GATE_GRADIENT:
        gate_gradient(job, item, r, n, like)
    elif operation == GELU_GRADIENT:
        gelu_gradient(job, item, r, n, like)
    elif operation == INPUT_GRADIENT:
        if counts:
            input_gradient(job, item, r, n, like)
        else:
            clear(job, item, r, n, like)
    elif operation == NORM_GRADIENT:
        if counts:
            norm_gradient(job, item, r, n, like)
        else:
            copy(job, item, r, n, like)


@njit(nogil=True, error_model="numpy")
def _run(job, like, dtype):
    rows, first, H, L, chunk, n_sums = job[3], job[4], job[5], job[6], job[7], job[8]
    width = n_sums * H
    lengths = carray(_address(job[9]), (1 << 40,), np.int64)
    sums = carray(_address(job[10]), (job[1] * width,), dtype)
    totals = carray(_address(job[11]), (job[1] * width,), np.float64)
    while True:
        item = _claim(job)
        if item >= job[1]:
            return
        for r in range(item * chunk, min(rows, (item + 1) * chunk)):
            n = (first + r) // L
            counts = True
            if job[9] != 0:
                counts = (first + r) - n * L < lengths[n]
            _row(job, item, r, n, like, counts)
        for i in range(item * width, (item + 1) * width):
            totals[i] += sums[i]
            sums[i] = 0


def run_float32(job):
    _run(job, np.float32(1), np.float32)


def run_float64(job):
    _run(job, np.float64(1), np.float64)


@cache
def compiled(double: bool) -> int:
    """Address of the kernel, compiled on first use and kept on disk where that is possible."""
    function = run_float64 if double else run_float32
    signature = types.void(types.CPointer(types.int64))
    try:
        kept = cfunc(signature, nogil=True, error_model="numpy", cache=True)(function)
    except (RuntimeError, OSError):  # nowhere to keep it: a read-only installation, a full disk
        kept = cfunc(signature, nogil=True, error_model="numpy")(function)
    _alive.append(kept)
    return kept.address


_alive: list[object] = []  # machine code lives as long as its object


class Sums:
    """Running sums over rows, n vectors of H, float64 between items."""

    def __init__(self, n: int, rows: int, like: Tensor) -> None:
        """rows: of the largest tile that will be added."""
        items, H = -(-rows // CHUNK), like.shape[-1]
        self.parts = torch.zeros(items, n, H, dtype=like.dtype)
        self.totals = torch.zeros(items, n, H, dtype=torch.float64)

    def result(self) -> Tensor:
        """(n, H) float64."""
        return self.totals.sum(0)


def launch(operation: int, operands: list[Tensor], *, first: int, L: int, lengths: Tensor | None = None,
           sums: Sums | None = None) -> None:
    """Runs ``operation`` on a tile.

    Args:
        operands: in the order of the expressions above: (rows, H) of the tile, (H,) one for all rows, or (N, 1, H) one
            for each clip; the last ones may be left to ``sums``.
        first: first row of the tile, counted from the start of the batch; L: rows of a clip.
        lengths: (N,) int64; rows behind a clip's length get 0 (NORM_GRADIENT: the gradient of the skip alone).
    """
    rows, H = next(x.shape for x in operands if x.dim() == 2)
    size = operands[0].element_size()
    table = []
    for x in operands:
        strides = (H * size, 0, 0) if x.dim() == 2 else (0, H * size if x.dim() == 3 else 0, 0)
        table += [x.data_ptr(), *strides]
    n_sums = 0
    if sums is not None:
        n_sums = sums.parts.shape[1]
        for k in range(n_sums):
            table += [sums.parts.data_ptr() + k * H * size, 0, 0, n_sums * H * size]
    addresses = [0 if lengths is None else lengths.data_ptr(), *((sums.parts.data_ptr(), sums.totals.data_ptr())
                                                                if sums is not None else (0, 0))]
    items = -(-rows // CHUNK)
    job = np.array([0, items, operation, rows, first, H, L, CHUNK, n_sums, *addresses, *table], dtype=np.int64)
    assert TABLE == 12
    n_threads = min(torch.get_num_threads(), items) if rows * H >= SMALL else 1
    run_parallel(compiled(operands[0].dtype == torch.float64), job, n_threads)
