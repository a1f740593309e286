"""Compiled gradient of the bank's frame powers (bank_kernel.py) with respect to its poles a and input taps c.

It needs no run back in time and keeps nothing of size (L, M): x^n is a holomorphic function of a and c, and

    d x^n_k / d a   = n x^{n+1}_{k-1}      (one pole more behind the cascade)
    d x^n_k / d c_j = q^n_{k-j}            (the same cascade on the bare input)
    d |x^n|^2       = 2 Re(conj(x^n) d x^n)

so it is one more pass forward in time. Sums over a frame have the dtype of the input, sums over frames are float64.

Legend: N batch, L samples, M modes, F frames, T = 3 taps, n poles; planar pairs [re | im] of length 2M.
"""

import math
from functools import cache

import numpy as np

from kws_s5.model.bank_kernel import array, claim, compiled, edge_of
from kws_s5.model.bank_vector import OFFSET, advance_gradient


@cache
def gradient_kernel(M: int, n: int, double: bool) -> int:
    """Address of the kernel for M modes of n poles.

    Job: counter, N, L, R, F, then addresses of grad_out (N, F, M), u (N, L), lengths (N,), step (R,), a (R, 2M),
    c (R, 6M), grad_a (N, 2M) and grad_c (N, 6M), the last two float64 zeros to be filled.
    """
    dtype = np.float64 if double else np.float32
    C, X = 2 * M, 8 * M  # offsets into the workspace; at X: n + 1 poles
    Q = X + 2 * (n + 1) * M  # n poles on the bare input
    PAST = Q + 2 * n * M  # x^{n+1} at k-1, then q^n at k, k-1, k-2
    SUM = PAST + 8 * M  # conj(x^n) times each of those four, summed over the frame
    SIZE = SUM + 8 * M
    Z = X + 2 * (n - 1) * M  # x^n

    def backward(job):
        N, L, R, F = job[1], job[2], job[3], job[4]
        grad_out, u = array(job, 5, (N, F, M), dtype), array(job, 6, (N, L), dtype)
        samples = array(job, 6, (N * L,), dtype)
        lengths, step = array(job, 7, (N,), np.int64), array(job, 8, (R,), np.float64)
        a, c = array(job, 9, (R, 2 * M), dtype), array(job, 10, (R, 6 * M), dtype)
        grad_a, grad_c = array(job, 11, (N, 2 * M), np.float64), array(job, 12, (N, 6 * M), np.float64)
        S = np.empty(SIZE, dtype)
        while True:
            row = claim(job)
            if row >= N:
                return
            r = row if R > 1 else 0
            S[:C] = a[r]
            S[C:X] = c[r]
            S[X:] = 0
            u1 = u2 = dtype(0)
            f, edge, length = 0, edge_of(1, step[r]), lengths[row]
            k = 0
            while k < length:
                end = min(length, max(k + 1, math.ceil(edge)))  # behind the sample in which the frame ends
                advance_gradient(S, samples, row * L, k, end, u1, u2, M, n)
                u2 = u[row, end - 2] + dtype(OFFSET) if end - k > 1 else u1
                u1 = u[row, end - 1] + dtype(OFFSET)
                k = end - 1  # the last sample
                cut = edge - k <= 1.0
                if cut or (f == 0 and k == length - 1):  # or shorter than a frame: it counts as one
                    beyond = dtype(1.0 - (edge - k)) if cut else dtype(0)
                    for m in range(M):
                        z_re, z_im = S[Z + m], S[Z + M + m]
                        weight = 2.0 * grad_out[row, f, m] / step[r]
                        for i in range(4):
                            re, im = S[PAST + 2 * i * M + m], S[PAST + 2 * i * M + M + m]
                            after_re, after_im = beyond * (z_re * re + z_im * im), beyond * (z_re * im - z_im * re)
                            g_re = weight * (S[SUM + 2 * i * M + m] - after_re)
                            g_im = -weight * (S[SUM + 2 * i * M + M + m] - after_im)
                            if i == 0:
                                grad_a[row, m] += n * g_re
                                grad_a[row, M + m] += n * g_im
                            else:
                                grad_c[row, 2 * (i - 1) * M + m] += g_re
                                grad_c[row, 2 * (i - 1) * M + M + m] += g_im
                            S[SUM + 2 * i * M + m] = after_re
                            S[SUM + 2 * i * M + M + m] = after_im
                    f += 1
                    edge = edge_of(f + 1, step[r])
                k = end

    return compiled(backward)
