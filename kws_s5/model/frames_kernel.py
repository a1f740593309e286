"""The two convolutions of the frame encoder on CPUs, compiled: forward and gradient, each in one pass over the images.

    h = relu(max_pool2d(conv2d(x, w1, b1, padding=2), 2))                 5x5, one channel in
    y = relu(max_pool2d(conv2d(h, w2, b2, stride=2, padding=1), 2))       3x3

Blocks of 16 images go through the vector code of frames_vector.py; nothing larger than a block is ever laid out anew.
A kernel is a C function of one pointer to int64 numbers, the job: it claims blocks by an atomic counter until none is
left, so any number of threads may run it. Every block has its own sums, added up in order: the threads change nothing.

    job: counter, blocks, threads so far, N, S, keep, then addresses in the order of ``_launch``'s tensors

Legend: N images, S side (even), T = S / 2 side of h, R side of y, C = 12 channels; B blocks.
"""

from functools import cache

import numpy as np
import torch
from numba import carray, njit
from torch import Tensor

from kws_s5.model import frames_vector as vector
from kws_s5.model.frames_vector import LANES, VECTOR
from kws_s5.ssm.compiling import compile_kept
from kws_s5.ssm.scan_cpu_kernels import _address
from kws_s5.ssm.threads import run_parallel

C, GROUP = 12, vector.GROUP
HEADER = 6
SUMS = (26 * C, C * C * 9, C)  # of a block: 25 numbers and the bias for each channel; second kernel; second bias
N_SUMS = sum(SUMS)


def convolve(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """x (N, S, S) float32 without gradient, w1 (C, 1, 5, 5), w2 (C, C, 3, 3), biases (C,) -> y (N, C * R * R)."""
    return _Convolve.apply(x, w1, b1, w2, b2)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        N, S = len(x), x.shape[-1]
        B, T, R = -(-N // LANES), S // 2, (S // 2 + 1) // 4
        keep = any(ctx.needs_input_grad)
        n = B if keep else min(B, torch.get_num_threads())
        kept = [x.new_empty(n, (S + 4) ** 2, LANES), x.new_empty(n, C * (T + 2) ** 2, LANES),
                torch.empty(n, C * T * T, LANES, dtype=torch.uint8), x.new_empty(n, C * R * R, LANES),
                torch.empty(n, C * R * R, LANES, dtype=torch.uint8)]
        y = x.new_empty(N, C * R * R)
        weights = [p.detach().contiguous() for p in (w1, b1, w2, b2)]
        _launch("forward", (N, S, keep), [x.contiguous(), *weights, *kept, y])
        ctx.S = S
        ctx.save_for_backward(kept[0], kept[1], kept[2], kept[4], weights[2])
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[None, Tensor, Tensor, Tensor, Tensor]:
        saved, S, N = ctx.saved_tensors, ctx.S, len(grad)
        B, T, R = len(saved[0]), S // 2, (S // 2 + 1) // 4
        n = min(B, torch.get_num_threads())
        work = [grad.new_empty(n, C * R * R, LANES), grad.new_zeros(n, C * (T // 2 + 2) ** 2, LANES),
                grad.new_empty(n, C * (T + 2) ** 2, LANES)]
        sums = grad.new_zeros(B, N_SUMS)
        _launch("backward", (N, S, True), [grad.contiguous(), *saved, *work, sums])
        first, w2, b2 = sums.sum(0).split(SUMS)
        first = first.view(C, 26)
        return None, first[:, :25].reshape(C, 1, 5, 5), first[:, 25], w2.view(C, C, 3, 3), b2


def _launch(kernel: str, sizes: tuple[int, int, bool], tensors: list[Tensor]) -> None:
    N, S, keep = sizes
    B = -(-N // LANES)
    job = np.array([0, B, 0, N, S, keep, *(tensor.data_ptr() for tensor in tensors)], dtype=np.int64)
    run_parallel(compiled(kernel), job, min(torch.get_num_threads(), B))


@njit(nogil=True, error_model="numpy")
def _gather(images, start, side, block, padding):
    """Images (N, side * side) from ``start`` on -> block, planes with a border of zeros, 16 images last."""
    N, wide = len(images), side + 2 * padding
    _clear_border(block, side, padding)
    for y in range(side):
        for x in range(side):
            target = block[(y + padding) * wide + x + padding]
            for lane in range(LANES):
                target[lane] = images[start + lane, y * side + x] if start + lane < N else np.float32(0)


@njit(nogil=True, error_model="numpy")
def _clear_border(plane, side, padding):
    wide = side + 2 * padding
    for y in range(wide):
        inside = padding <= y < side + padding
        for x in range(wide):
            if not (inside and padding <= x < side + padding):
                plane[y * wide + x] = 0


@njit(nogil=True, error_model="numpy")
def _array(job, k, rows, columns, dtype):
    return carray(_address(job[HEADER + k]), (rows, columns), dtype)


def forward(job):
    """Tensors: x, w1, b1, w2, b2, kept images, h, its winners, y by blocks, its winners, y."""
    N, S = job[3], job[4]
    T, R = S // 2, (S // 2 + 1) // 4
    x, y = _array(job, 0, N, S * S, np.float32), _array(job, 10, N, C * R * R, np.float32)
    w1, b1, w2, b2 = job[HEADER + 1], job[HEADER + 2], job[HEADER + 3], job[HEADER + 4]
    thread = vector.claim(job, 2)
    plane, wide = (T + 2) * (T + 2), T + 2
    while True:
        item = vector.claim(job, 0)
        if item >= job[1]:
            return
        at = item if job[5] else thread
        images = job[HEADER + 5] + at * (S + 4) * (S + 4) * VECTOR
        h, h_winner = job[HEADER + 6] + at * C * plane * VECTOR, job[HEADER + 7] + at * C * T * T * LANES
        out, out_winner = job[HEADER + 8] + at * C * R * R * VECTOR, job[HEADER + 9] + at * C * R * R * LANES
        _gather(x, item * LANES, S, carray(_address(images), ((S + 4) * (S + 4), LANES), np.float32), 2)
        for c in range(C):
            _clear_border(carray(_address(h + c * plane * VECTOR), (plane, LANES), np.float32), T, 1)
        for v in range(T):
            for u in range(T):
                for c in range(0, C, GROUP):
                    vector.convolve_pool_5x5(
                        images + (2 * v * (S + 4) + 2 * u) * VECTOR, w1 + c * 100, b1 + c * 4,
                        h + (c * plane + (v + 1) * wide + u + 1) * VECTOR, h_winner + (c * T * T + v * T + u) * LANES,
                        1, 0, (S + 4) * VECTOR, plane * VECTOR, T * T * LANES)
        for v in range(R):
            for u in range(R):
                cell = v * R + u
                for c in range(0, C, GROUP):
                    vector.convolve_pool_3x3(
                        h + 4 * (v * wide + u) * VECTOR, w2 + c * C * 36, b2 + c * 4, out + (c * R * R + cell) * VECTOR,
                        out_winner + (c * R * R + cell) * LANES, C, plane * VECTOR, wide * VECTOR, R * R * VECTOR,
                        R * R * LANES)
        block = carray(_address(out), (C * R * R, LANES), np.float32)
        for lane in range(min(LANES, N - item * LANES)):
            for k in range(C * R * R):
                y[item * LANES + lane, k] = block[k, lane]


def backward(job):
    """Tensors: gradient of y, kept images, h, its winners, winners of y, w2, work: gradient of y by blocks, spread out
    (with a border of zeros), of h; sums (B, N_SUMS)."""
    N, S = job[3], job[4]
    T, R = S // 2, (S // 2 + 1) // 4
    grad, sums = _array(job, 0, N, C * R * R, np.float32), _array(job, 9, job[1], N_SUMS, np.float32)
    thread = vector.claim(job, 2)
    plane, wide, side = (T + 2) * (T + 2), T + 2, T // 2 + 2
    grad_y = job[HEADER + 6] + thread * C * R * R * VECTOR
    outputs = job[HEADER + 7] + thread * C * side * side * VECTOR
    grad_h = job[HEADER + 8] + thread * C * plane * VECTOR
    block = carray(_address(grad_y), (C * R * R, LANES), np.float32)
    while True:
        item = vector.claim(job, 0)
        if item >= job[1]:
            return
        images, h = job[HEADER + 1] + item * (S + 4) * (S + 4) * VECTOR, job[HEADER + 2] + item * C * plane * VECTOR
        h_winner, winner = job[HEADER + 3] + item * C * T * T * LANES, job[HEADER + 4] + item * C * R * R * LANES
        total = job[HEADER + 9] + item * N_SUMS * 4
        for k in range(C * R * R):
            for lane in range(LANES):
                n = item * LANES + lane
                block[k, lane] = grad[n, k] if n < N else np.float32(0)
        won = carray(_address(winner), (C * R * R, LANES), np.uint8)
        for k in range(C * R * R):
            c, v, u = k // (R * R), k // R % R, k % R
            vector.spread(grad_y + k * VECTOR, winner + k * LANES,
                          outputs + ((c * side + 2 * v + 1) * side + 2 * u + 1) * VECTOR, side * VECTOR)
            for lane in range(LANES):
                if won[k, lane] != vector.NOTHING:
                    sums[item, 26 * C + 9 * C * C + c] += block[k, lane]
        for c in range(0, C, GROUP):
            for i in range(C):
                vector.kernel_gradient_3x3(
                    h + i * plane * VECTOR, outputs + ((c * side + 1) * side + 1) * VECTOR,
                    total + (26 * C + (c * C + i) * 9) * 4, 2 * R, wide * VECTOR, side * side * VECTOR, side * VECTOR,
                    C * 36)
            for v in range(T // 2 + 1):
                for u in range(T // 2 + 1):
                    vector.pixel_gradient_3x3(
                        outputs + ((v + 1) * side + u + 1) * VECTOR, job[HEADER + 5] + c * 36,
                        grad_h + (c * plane + 2 * v * wide + 2 * u) * VECTOR, C, C, side * side * VECTOR, side * VECTOR,
                        plane * VECTOR, wide * VECTOR)
        for c in range(C):
            vector.kernel_gradient_5x5(images, grad_h + (c * plane + wide + 1) * VECTOR, h_winner + c * T * T * LANES,
                                       total + c * 26 * 4, T, (S + 4) * VECTOR, wide * VECTOR)


@cache
def compiled(kernel: str) -> int:
    """Address of the kernel, compiled on first use and kept on disk where that is possible."""
    return compile_kept(globals()[kernel], error_model="numpy")
