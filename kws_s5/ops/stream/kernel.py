"""The next frames of streams through a whole model in one compiled call: log, norm, layers, votes, window.

Equals SequenceModel.stream behind the bank's powers (or behind any other front) in evaluation; packed_weights.py
packs the weights, packed_stream.py calls it (listening/). A few frames cost a small model far less arithmetic than
torch needs to start its operations. Rows (stream after stream, each in the order of time) run in tiles through all
layers, so that a tile stays in the cache; a row's numbers do not depend on its neighbours, so any chunking gives the
same bits.

A kernel is a C function of one pointer to int64 numbers, the job (threads.py runs it on torch's own threads). All
widths of rows inside are filled up to whole panels (row_products.py); what stands there is 0.

Legend: N streams, f frames, M modes (0: the front gives features), H features, P states, K outputs, W votes kept.
"""

from functools import cache

import numpy as np
from numba import carray, njit

from kws_s5.ops.common.jit import compile_kept
from kws_s5.ops.common.jobs import claim, pointer
from kws_s5.ops.common.row_products import LANES, SIZE, product
from kws_s5.ops.common.vector import pointwise
from kws_s5.ops.layer.elementwise import CUBE
from kws_s5.ops.layer.elementwise import K as SLOPE
from kws_s5.ops.scan.cpu_kernels import multiply_add

# numbers of the job; the addresses of a layer follow, LAYER numbers each
COUNTER, ITEMS, SHARE, STREAMS, FRAMES, MODES, FEATURES, STATES, OUTPUTS, LAYERS, WINDOW, SEEN, WIDEST = range(13)
INPUT, LOGITS, LEVEL, ENCODER, ENCODER_BIAS, DECODER, NO_BIAS, BIAS, VOTES, SUMS, SCRATCH, TABLE = range(13, 25)
# SHARE: streams of an item; SCRATCH: 4 ROWS WIDEST zeros for each item, WIDEST >= all widths
# LEVEL: floor, then gain (M) and shift (M) of the log power; BIAS (K): of the logits
LAMBDA, B, B_BIAS, C, C_BIAS, D, KIND, GATE, GATE_BIAS, VALUE, VALUE_BIAS, GAIN, SHIFT, STATE, LAYER = range(15)
# KIND: what the gate multiplies: nothing (no gate), GELU(y), y, or another product of GELU(y). GAIN 0: no norm behind
UNGATED, GATED_GELU, GATED_SSM, GATED_PRODUCT = range(4)
ROWS = 64  # of a tile


@pointwise
def feed(y, x, D, h):
    y = y + D * x
    return {0: y, 3: y * (SLOPE * (y + CUBE * y * y * y)).sigmoid()}


@pointwise
def add(x, h, _h, __h):
    return {0: x + h}


@pointwise
def gated(x, value, gate, _gate):
    return {0: x + value * gate.sigmoid()}


@pointwise
def affine(x, gain, shift, _shift):
    return {0: x * gain + shift}


@njit(nogil=True, error_model="numpy")
def _numbers(address, size):
    return carray(pointer(address), (size,), np.float32)


@njit(nogil=True, error_model="numpy")
def _padded(n):
    return (n + LANES - 1) // LANES * LANES


@njit(nogil=True, error_model="numpy")
def _encode(job, first, rows, scratch, x):
    """Rows of the input -> features at x. Powers: log, batch norm, dense layer; else they are features already."""
    M, H = job[MODES], job[FEATURES]
    width = M if M > 0 else H
    source = _numbers(job[INPUT] + first * width * SIZE, rows * width)
    stride = _padded(width)
    target = _numbers(scratch if M > 0 else x, rows * stride)
    if M == 0:
        for r in range(rows):
            for i in range(H):
                target[r * stride + i] = source[r * H + i]
        return
    level = _numbers(job[LEVEL], 1 + 2 * M)
    for r in range(rows):
        for m in range(M):
            target[r * stride + m] = np.log(source[r * M + m] + level[0]) * level[1 + m] + level[1 + M + m]
    product(scratch, stride * SIZE, rows, M, job[ENCODER], _padded(H) // LANES, job[ENCODER_BIAS], x, _padded(H) * SIZE)


@njit(nogil=True, error_model="numpy")
def _recur(job, at, first, rows, v):
    """Drive -> states, in place, for one layer; every stream goes on from its own state and leaves the last one."""
    width, f = job[STATES], job[FRAMES]
    stride = _padded(width)
    Lambda = _numbers(job[at + LAMBDA], width)
    state = _numbers(job[at + STATE], job[STREAMS] * width)
    xs = _numbers(v, rows * stride)
    for r in range(rows):
        n, t = (first + r) // f, (first + r) % f
        if r == 0 or t == 0:
            multiply_add(Lambda, 0, state, n * width, xs, r * stride, xs, r * stride, width // 2, 0, width // 2)
        else:
            multiply_add(Lambda, 0, xs, (r - 1) * stride, xs, r * stride, xs, r * stride, width // 2, 0, width // 2)
        if r == rows - 1 or t == f - 1:
            for i in range(width):
                state[n * width + i] = xs[r * stride + i]


@njit(nogil=True, error_model="numpy")
def _layer(job, at, first, rows, x, v, y, h):
    """x -> x behind one layer."""
    H, width = job[FEATURES], job[STATES]
    wide, stride, v_stride = _padded(H), _padded(H) * SIZE, _padded(width) * SIZE
    n_panels, kind = wide // LANES, job[at + KIND]
    product(x, stride, rows, H, job[at + B], _padded(width) // LANES, job[at + B_BIAS], v, v_stride)
    _recur(job, at, first, rows, v)
    product(v, v_stride, rows, width, job[at + C], n_panels, job[at + C_BIAS], y, stride)
    for r in range(rows):
        feed(wide, y + r * stride, x + r * stride, job[at + D], h + r * stride)
    if kind == UNGATED:
        for r in range(rows):
            add(wide, x + r * stride, h + r * stride, h, h)
    else:
        value = y if kind in (GATED_SSM, GATED_PRODUCT) else h
        if kind == GATED_PRODUCT:
            product(h, stride, rows, H, job[at + VALUE], n_panels, job[at + VALUE_BIAS], y, stride)
        product(h, stride, rows, H, job[at + GATE], n_panels, job[at + GATE_BIAS], v, stride)
        for r in range(rows):
            gated(wide, x + r * stride, value + r * stride, v + r * stride, v)
    if job[at + GAIN] != 0:
        for r in range(rows):
            affine(wide, x + r * stride, job[at + GAIN], job[at + SHIFT], x)


@njit(nogil=True, error_model="numpy")
def _vote(job, n, t, f, votes):
    """Logits of frames t .. t + f of stream n from their votes: the bare ones, or the mean of the last W."""
    K, W = job[OUTPUTS], job[WINDOW]
    wide = _padded(K)
    fresh = _numbers(votes, f * wide)
    out = _numbers(job[LOGITS] + (n * job[FRAMES] + t) * K * SIZE, f * K)
    bias = _numbers(job[BIAS], K)
    if W == 0:
        for i in range(f):
            for k in range(K):
                out[i * K + k] = fresh[i * wide + k] + bias[k]
        return
    kept = _numbers(job[VOTES] + n * W * K * SIZE, W * K)
    sums = carray(pointer(job[SUMS] + n * K * 8), (K,), np.float64)
    for i in range(f):
        n_votes = np.float64(min(W, job[SEEN] + t + i + 1))
        for k in range(K):
            leaving = kept[i * K + k] if i < W else fresh[(i - W) * wide + k]
            sums[k] += np.float64(fresh[i * wide + k]) - np.float64(leaving)
            out[i * K + k] = np.float32(sums[k] / n_votes) + bias[k]
    for i in range(W - min(f, W)):
        for k in range(K):
            kept[i * K + k] = kept[(i + f) * K + k]
    for i in range(max(0, W - f), W):
        for k in range(K):
            kept[i * K + k] = fresh[(i + f - W) * wide + k]


@njit(nogil=True, error_model="numpy")
def _tile(job, first, rows, x, v, y, h):
    """Rows first .. first + rows, from input to logits."""
    f, H = job[FRAMES], job[FEATURES]
    _encode(job, first, rows, v, x)
    for i in range(job[LAYERS]):
        _layer(job, TABLE + i * LAYER, first, rows, x, v, y, h)
    wide = _padded(job[OUTPUTS])
    product(x, _padded(H) * SIZE, rows, H, job[DECODER], wide // LANES, job[NO_BIAS], v, wide * SIZE)
    r = 0
    while r < rows:
        n, t = (first + r) // f, (first + r) % f
        here = min(f - t, rows - r)
        _vote(job, n, t, here, v + r * wide * SIZE)
        r += here


def advance(job):
    """Claims shares of streams until none is left."""
    f, width = job[FRAMES], job[WIDEST] * ROWS * SIZE
    while True:
        item = claim(job)
        if item >= job[ITEMS]:
            return
        x = job[SCRATCH] + 4 * item * width
        end = min(job[STREAMS], (item + 1) * job[SHARE]) * f
        for first in range(item * job[SHARE] * f, end, ROWS):
            _tile(job, first, min(ROWS, end - first), x, x + width, x + 2 * width, x + 3 * width)


@cache
def compiled() -> int:
    """Address of the kernel, compiled on first use and kept on disk where that is possible."""
    return compile_kept(advance, error_model="numpy")
