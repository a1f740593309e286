"""Constant matrices in the order in which products read them: one compiled call for all matrices of a layer.

    full    (O, K) -> panels of 16 columns, (O/16, K, 16) float32 (row_products.py)
    half    (O, K) -> (O/32, K/32, 2, 16, 32) bfloat16 (half_products.py)

Matrices whose sides do not fill blocks are packed by torch.
"""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numba import carray, njit
from torch import Tensor

from kws_s5.ops.common.jit import compile_kept
from kws_s5.ops.common.jobs import pointer
from kws_s5.ops.common.row_products import LANES
from kws_s5.ops.common.threads import run_parallel
from kws_s5.ops.layer.half_products import BLOCK, half_panels, pair, round_row, turn
from kws_s5.ops.layer.program import Products

MATRIX = 6  # numbers of a matrix in the job: addresses of it and of its packed form, O, K, whether half, transposed


def pack(matrices: list[Tensor], products: Products) -> list[Tensor]:
    """Every (O, K) float32 matrix, contiguous or the transposed view of one, as the products want it."""
    half = products == "half"
    block = BLOCK if half else LANES
    found, table, kept = [], [], []
    for m in matrices:
        O, K = m.shape
        if O % block or K % block:
            found.append(half_panels(m) if half else _panels(m))
            continue
        turned = not m.is_contiguous() and m.T.is_contiguous()
        m = m if turned else m.contiguous()
        packed = (
            torch.empty(O // BLOCK, K // BLOCK, 2, 16, 32, dtype=torch.bfloat16)
            if half
            else m.new_empty(O // LANES, K, LANES)
        )
        table += [m.data_ptr(), packed.data_ptr(), O, K, half, turned]
        found.append(packed)
        kept.append(m)
    if table:
        work = torch.empty(16, 32, dtype=torch.bfloat16)
        job = np.array([len(kept), work.data_ptr(), *table], np.int64)
        run_parallel(compiled(), job, 1)
    return found


def _panels(weight: Tensor) -> Tensor:
    weight = F.pad(weight, (0, 0, 0, -len(weight) % LANES))
    return weight.reshape(-1, LANES, weight.shape[1]).transpose(1, 2).contiguous()


@njit(nogil=True, error_model="numpy")
def _full(m, out, O, K, turned):
    for o in range(0, O, 16):
        for k in range(0, K, 16):
            to = out + 4 * (o * K + 16 * k)
            if turned != 0:  # in memory it is (K, O)
                for i in range(16):
                    source, target = carray(pointer(m + 4 * ((k + i) * O + o)), (16,), np.float32), to + 64 * i
                    carray(pointer(target), (16,), np.float32)[:] = source
            else:
                turn(m + 4 * (o * K + k), 4 * K, to, 64)


@njit(nogil=True, error_model="numpy")
def _half_rows(m, to, K, work):
    """16 rows of 32 numbers -> a tile: rounded, then pairs and rows exchanged."""
    for i in range(16):
        round_row(m + 4 * i * K, work + 64 * i)
    turn(work, 64, to, 64)


@njit(nogil=True, error_model="numpy")
def _half(m, out, O, K, turned, work):
    to = out
    for o in range(0, O, 32):
        for k in range(0, K, 32):
            for half in range(2):
                column = o + 16 * half
                if turned == 0:
                    _half_rows(m + 4 * (column * K + k), to, K, work)
                else:
                    for j in range(16):
                        row = m + 4 * ((k + 2 * j) * O + column)
                        pair(row, row + 4 * O, 2, to + 64 * j)
                to += 1024


@njit(nogil=True, error_model="numpy")
def _run(job):
    for i in range(job[0]):
        at = 2 + MATRIX * i
        m, out, O, K, half, turned = job[at], job[at + 1], job[at + 2], job[at + 3], job[at + 4], job[at + 5]
        if half != 0:
            _half(m, out, O, K, turned, job[1])
        else:
            _full(m, out, O, K, turned)


@cache
def compiled() -> int:
    """Address of the kernel, compiled on first use and kept on disk where that is possible."""

    def run(job):
        _run(job)

    return compile_kept(run, error_model="numpy")
