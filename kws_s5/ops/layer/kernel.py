"""Compiled steps of an S5 layer on CPUs, and the loop that runs a list of them on one tile of rows after the other.

program.py makes the list: each step an operation on operands that lie in the batch or in scratch memory, so that a tile
goes through all of them inside the processor's cache. A kernel is a C function of one pointer to int64 numbers, the job
(common/threads.py runs it on torch's own threads): it claims items by an atomic counter until none is left.

    job    counter, n_items, L, tiles of a clip, lengths or 0, backward, n_steps, addresses of items, steps and scratch
           memory, bytes of that for an item; the first HEADER of them are for registers
    item   first and last clip, first and last tile: its clips one after the other, their tiles in order or against it
    step   operation, which rows, three numbers, number of operands, then the operands: base, bytes for every row of the
           batch before the tile, for every tile, clip and item before it, and from row to row

Legend: N batch, L steps, H features, P states; G gradient of the layer's output.
"""

from functools import cache

import numpy as np
from numba import carray, njit

from kws_s5.ops.common import amx
from kws_s5.ops.common.denormals import flush, keep
from kws_s5.ops.common.jit import compile_kept
from kws_s5.ops.common.jobs import claim, pointer
from kws_s5.ops.common.row_products import product
from kws_s5.ops.layer.elementwise import run_columns
from kws_s5.ops.layer.half_products import half_outer, half_product
from kws_s5.ops.layer.outer_products import outer
from kws_s5.ops.layer.tile_scan import adjoint, scan

ALL, VALID, PADDING = range(3)  # which rows of a tile a step works on
STEP, OPERANDS, OPERAND, MOST = 72, 6, 6, 11  # numbers of a step, where its operands begin, of an operand; operands
HEADER, FLUSHED = 192, 128  # saved registers: bytes, and where those of common/denormals.py are
PRODUCT, OUTER, SCAN, ADJOINT = range(100, 104)  # the other operations: elementwise.py


@njit(nogil=True, error_model="numpy", inline="always")
def _resolve(step, table, row, tile, clip, item):
    """Addresses and strides of a step's operands on this tile."""
    for k in range(step[5]):
        i = OPERANDS + OPERAND * k
        table[2 * k] = step[i] + row * step[i + 1] + tile * step[i + 2] + clip * step[i + 3] + item * step[i + 4]
        table[2 * k + 1] = step[i + 5]


@njit(nogil=True, error_model="numpy", inline="always")
def _scan(step, table, rows, inner):
    """Lambda_bar, v, start, xs, a place for the last state, or (next tile) the start it makes."""
    a, v, v_step, start, xs, x_step = table[0], table[2], table[3], table[4], table[6], table[7]
    P, backward, end = step[2], step[4] != 0, table[8]  # of no use unless the next tile wants it
    if inner and step[3] != 0:
        end = start - step[3] if backward else start + step[3]
    if backward:
        scan(a, start, v + (rows - 1) * v_step, -v_step, xs + (rows - 1) * x_step, -x_step, rows, P, end)
    else:
        scan(a, start, v, v_step, xs, x_step, rows, P, end)


@njit(nogil=True, error_model="numpy", inline="always")
def _adjoint(step, table, rows, inner):
    """Lambda_bar, dxs (becomes dv), xs, start, g, a place for the last g, sums. It goes against the scan."""
    a, d, d_step, xs, x_step, start, g = table[0], table[2], table[3], table[4], table[5], table[6], table[8]
    P, backward, end, sums, last = step[2], step[4] != 0, table[10], table[12], rows - 1
    if inner:
        end = g - step[3] if backward else g + step[3]
    if backward:
        d, xs, d_step, x_step = d + last * d_step, xs + (last - 1) * x_step, -d_step, -x_step
    else:
        xs += x_step
    adjoint(a, g, d, d_step, xs, x_step, start, d, d_step, rows, P, end, sums)


@njit(nogil=True, error_model="numpy", inline="always")
def _multiply(step, table, rows, half):
    """PRODUCT: rows, W, out, work or a bias of zeros. OUTER: rows a, rows x, out, work. Sizes: K and O; O and K."""
    a, a_step, b, b_step, out, out_step, work = table[0], table[1], table[2], table[3], table[4], table[5], table[6]
    if step[0] == PRODUCT:
        if half is None:
            product(a, a_step, rows, step[2], b, (step[3] + 15) // 16, work, out, out_step)
        else:
            half_product(a, a_step, rows, step[2], b, step[3], out, out_step, work)
    elif half is None:
        outer(a, a_step, step[2], b, b_step, step[3], rows, out, out_step)
    else:
        half_outer(a, a_step, step[2], b, b_step, step[3], rows, out, out_step, work)


@njit(nogil=True, error_model="numpy", inline="always")
def _tile(job, steps, table, clip, tile, item, inner, half):
    """All steps on one tile."""
    L, n_tiles = job[2], job[3]
    first, last = tile * L // n_tiles, (tile + 1) * L // n_tiles
    rows = valid = last - first
    if job[4] != 0:
        length = carray(pointer(job[4] + 8 * clip), (1,), np.int64)[0]
        valid = min(max(length - first, 0), rows)
    for i in range(job[6]):
        step = steps[i]
        _resolve(step, table, clip * L + first, clip * n_tiles + tile, clip, item)
        if step[0] == SCAN:
            _scan(step, table, rows, inner)
        elif step[0] == ADJOINT:
            _adjoint(step, table, rows, inner)
        elif step[0] >= PRODUCT:
            _multiply(step, table, rows, half)
        else:
            begin = valid if step[1] == PADDING else 0
            end = valid if step[1] == VALID else rows
            if begin < end:
                run_columns(step[0], table.ctypes.data, begin, end, step[2])


@njit(nogil=True, error_model="numpy")
def _run(job, half):
    steps = carray(pointer(job[8]), (job[6], STEP), np.int64)
    table = np.empty(2 * MOST, np.int64)
    while True:
        item = claim(job)
        if item >= job[1]:
            return
        scratch = job[9] + job[10] * item
        flush(scratch + FLUSHED)
        if half is not None:
            amx.configure(scratch)
        clips = carray(pointer(job[7] + 32 * item), (4,), np.int64)
        for clip in range(clips[0], clips[1]):
            for k in range(clips[2], clips[3]):
                tile = clips[2] + clips[3] - 1 - k if job[5] != 0 else k
                _tile(job, steps, table, clip, tile, item, k + 1 < clips[3], half)
        if half is not None:
            amx.restore(scratch)
        keep(scratch + FLUSHED)


@cache
def compiled(half: bool) -> int:
    """Address of the kernel, compiled on first use and kept on disk where that is possible.

    ``half``: products take bfloat16 operands; needs ``has_amx``.
    """

    def run(job):
        _run(job, None)

    def run_half(job):
        _run(job, 1)

    return compile_kept(run_half if half else run, error_model="numpy")
