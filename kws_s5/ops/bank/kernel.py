"""Compiled loops of the bank: samples in, mean power of every mode in every frame out.

    v_k = sum_j c_j u_{k-j},  x^1_k = a x^1_{k-1} + v_k,  x^p_k = a x^p_{k-1} + x^{p-1}_k,  power = |x^n|^2

Nothing of size (L, M) is kept. Samples between two frame edges run in vector.py, group of modes by group. All a clip
needs lies in one workspace S at offsets known when compiling. (One long function, because numba keeps a compiled
closure on disk only when it calls no other closure.) States and sums have the dtype of the input. A kernel is a C
function of one pointer, the job (common/threads.py runs it on torch's own threads):

    counter of claimed rows, N, L, R, F, position, finish, addresses of: u, lengths, step, a, c, recent, memory, out

Legend: N batch, L samples, M modes, F frames, T taps, n poles; planar pairs [re | im] of length 2M.
"""

import math
from functools import cache

import numpy as np
from numba import carray, njit

from kws_s5.ops.bank.frames import TOLERANCE
from kws_s5.ops.bank.reference import OFFSET, TAPS
from kws_s5.ops.bank.vector import advance
from kws_s5.ops.common.jit import compile_kept
from kws_s5.ops.common.jobs import claim, pointer

assert TAPS == 3, "vector.py is written out for three taps"
OPTIONS = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}


@njit(**OPTIONS)
def array(job, k, shape, dtype):
    """The array whose address is the k-th number of the job."""
    return carray(pointer(job[k]), shape, dtype)


@njit(**OPTIONS)
def edge_of(f, step):
    """Edge f in samples; on a sample's edge when it is meant to be."""
    edge = f * step
    whole = round(edge)
    return float(whole) if abs(edge - whole) < TOLERANCE else edge


@cache
def forward_kernel(M: int, n: int, double: bool) -> int:
    """Address of the kernel for M modes of n poles. Takes whole clips, or the next samples of streams.

    Arrays of the job: u (N, L), of which lengths (N,) count; step (R,) samples per frame, R is N or 1 for all rows;
    a (R, 2M); c (R, 6M); recent (N, 2) the last two samples, newest first; memory (N, 2nM + M) states, then the power
    since the last edge; out (N, F, M) zeros. recent, memory and out are written. ``position``: samples before u since
    the start of the stream. ``finish``: write an incomplete first frame too (clips shorter than a frame).
    """
    dtype = np.float64 if double else np.float32
    C, X, TOTAL = 2 * M, 8 * M, (8 + 2 * n) * M  # offsets into S
    SIZE = TOTAL + M

    def forward(job):
        N, L, R, F, position, finish = job[1], job[2], job[3], job[4], job[5], job[6]
        u, out = array(job, 7, (N, L), dtype), array(job, 14, (N, F, M), dtype)
        samples = array(job, 7, (N * L,), dtype)
        lengths, step = array(job, 8, (N,), np.int64), array(job, 9, (R,), np.float64)
        a, c = array(job, 10, (R, 2 * M), dtype), array(job, 11, (R, 6 * M), dtype)
        recent, memory = array(job, 12, (N, 2), dtype), array(job, 13, (N, SIZE - X), dtype)
        S = np.empty(SIZE, dtype)
        while True:
            row = claim(job)
            if row >= N:
                return
            r = row if R > 1 else 0
            S[:C] = a[r]
            S[C:X] = c[r]
            S[X:] = memory[row]
            u1, u2 = recent[row, 0], recent[row, 1]
            scale = dtype(1.0 / step[r])
            first, f = int((position + TOLERANCE) / step[r]), 0
            edge = edge_of(first + 1, step[r]) - position
            k, length = 0, lengths[row]
            while k < length:
                end = min(length, max(k + 1, math.ceil(edge)))  # behind the sample in which the frame ends
                advance(S, samples, row * L, k, end, u1, u2, M, n)
                u2 = u[row, end - 2] + dtype(OFFSET) if end - k > 1 else u1
                u1 = u[row, end - 1] + dtype(OFFSET)
                k = end
                if edge - (k - 1) <= 1.0:  # the frame ends within the last sample
                    beyond = dtype(1.0 - (edge - (k - 1)))
                    for m in range(M):
                        re, im = S[TOTAL - 2 * M + m], S[TOTAL - M + m]
                        after = beyond * (re * re + im * im)
                        out[row, f, m] = (S[TOTAL + m] - after) * scale
                        S[TOTAL + m] = after
                    f += 1
                    edge = edge_of(first + f + 1, step[r]) - position
            if finish == 1 and f == 0 and lengths[row] > 0:
                for m in range(M):
                    out[row, 0, m] = S[TOTAL + m] * scale
            memory[row] = S[X:]
            recent[row, 0], recent[row, 1] = u1, u2

    return compile_kept(forward, **OPTIONS)
