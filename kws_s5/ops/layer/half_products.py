"""Products of a tile of float32 rows in bfloat16, inside numba code (amx.py): a W, and a^T x summed over the rows.

    half_product(a, a_stride, rows, K, weights, O, out, out_stride, work, split)           out = a W
    half_outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride, work, split)         out += a^T x

Operands are rounded to the nearest bfloat16 on the way; sums and results are float32. ``split``: every operand is the
sum of two such numbers, x = hi + lo, and three of the four products are taken (relative error about 1e-5):

    a w = a_hi w_hi + a_hi w_lo + a_lo w_hi

All arguments are int64: addresses, and strides in bytes. Everything is filled up to blocks of 32: rows of a, x and out
are that long, there is memory for that many of them, and what stands behind K in the rows of ``a`` is finite (its
weight is 0). ``work`` has ``work_size`` bytes.
"""

import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor

from kws_s5.ops.common.amx import HALF, block, split_block
from kws_s5.ops.common.columns import FLOAT, load, number

BLOCK = 32
WORD = ir.IntType(32)
BITS, HALVES = ir.VectorType(WORD, 16), ir.VectorType(HALF, 32)


def half_panels(weight: Tensor, *, split: bool = False) -> Tensor:
    """(O, K), the layout of torch's Linear -> (parts, O/32, K/32, 2, 16, 32) bfloat16: panels of 32 columns, in tiles.

    One part, or hi and lo.
    """
    O, K = weight.shape
    o, k = -(-O // BLOCK), -(-K // BLOCK)
    parts = [weight.to(torch.bfloat16)]
    if split:
        parts.append((weight - parts[0]).to(torch.bfloat16))
    filled = torch.zeros(len(parts), o * BLOCK, k * BLOCK, dtype=torch.bfloat16)
    for i, part in enumerate(parts):
        filled[i, :O, :K] = part
    tiles = filled.view(-1, o, 2, 16, k, 16, 2).permute(0, 1, 4, 2, 5, 3, 6)  # (.., o, k, half, pair, column, of pair)
    return tiles.reshape(-1, o, k, 2, 16, 32)


def work_size(rows: int, widest: int) -> int:
    """Bytes of ``work`` for tiles of at most ``rows`` rows of ``widest`` numbers."""
    return 12 * (-(-rows // BLOCK) * BLOCK) * (-(-widest // BLOCK) * BLOCK)


def _rounded(builder, bits):
    """16 float32 numbers as bfloat16, to the nearest, ties to even: the upper half of 32 bits; the lower is garbage."""
    odd = builder.and_(builder.lshr(bits, ir.Constant(BITS, [16] * 16)), ir.Constant(BITS, [1] * 16))
    return builder.add(builder.add(bits, ir.Constant(BITS, [0x7FFF] * 16)), odd)


def _upper(builder, bits):
    """The upper half alone."""
    return builder.and_(bits, ir.Constant(BITS, [0xFFFF0000] * 16))


def _parts(builder, address, n: int):
    """hi of 16 numbers and, if n is 2, what it leaves; as ``_rounded``."""
    numbers = load(builder, address, ir.VectorType(FLOAT, 16))
    hi = _rounded(builder, builder.bitcast(numbers, BITS))
    if n == 1:
        return [hi]
    rest = builder.fsub(numbers, builder.bitcast(_upper(builder, hi), numbers.type))
    return [hi, _rounded(builder, builder.bitcast(rest, BITS))]


def _emit_round(context, builder, signature, args):
    """32 numbers at x -> 32 bfloat16 at each of the other addresses."""
    x, *outs = args
    vectors = (_parts(builder, builder.add(x, number(64 * k)), len(outs)) for k in range(2))
    for first, second, out in zip(*vectors, outs, strict=True):
        first, second = (builder.bitcast(v, HALVES) for v in (first, second))
        upper = builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(WORD, 32), list(range(1, 64, 2))))
        builder.store(upper, builder.inttoptr(out, HALVES.as_pointer()), align=2)
    return context.get_dummy_value()


def _emit_pair(context, builder, signature, args):
    """16 numbers of two rows -> 16 pairs at each of the last addresses; only ``n`` rows count, the others are 0."""
    x, y, n, *outs = args
    nothing = ir.Constant(BITS, [0] * 16)
    counts = [builder.icmp_signed(">", n, number(k)) for k in range(2)]
    above, below = (_parts(builder, place, len(outs)) for place in (x, y))
    for first, second, out in zip(above, below, outs, strict=True):
        first = builder.select(counts[0], builder.lshr(first, ir.Constant(BITS, [16] * 16)), nothing)
        second = builder.select(counts[1], _upper(builder, second), nothing)
        builder.store(builder.or_(first, second), builder.inttoptr(out, BITS.as_pointer()), align=4)
    return context.get_dummy_value()


def _emit_turn(context, builder, signature, args):
    """16 x 16 numbers of 32 bits, transposed."""
    x, x_stride, out, out_stride = args
    rows = []
    for k in range(16):
        place = builder.add(x, builder.mul(x_stride, number(k)))
        rows.append(builder.load(builder.inttoptr(place, BITS.as_pointer()), align=4))
    for far in (1, 2, 4, 8):  # exchanges squares of that side
        for i in (k for k in range(16) if not k & far):
            upper, lower = rows[i], rows[i | far]
            first = [lane if not lane & far else 16 + lane - far for lane in range(16)]
            second = [lane + far if not lane & far else 16 + lane for lane in range(16)]
            rows[i], rows[i | far] = (builder.shuffle_vector(upper, lower, ir.Constant(BITS, mask))
                                      for mask in (first, second))
    for k, row in enumerate(rows):
        place = builder.add(out, builder.mul(out_stride, number(k)))
        builder.store(row, builder.inttoptr(place, BITS.as_pointer()), align=4)
    return context.get_dummy_value()


@intrinsic
def _round(typingctx, x, out):
    return types.void(types.int64, types.int64), _emit_round


@intrinsic
def _round_both(typingctx, x, hi, lo):
    return types.void(*[types.int64] * 3), _emit_round


@intrinsic
def _pair(typingctx, x, y, n, out):
    return types.void(*[types.int64] * 4), _emit_pair


@intrinsic
def _pair_both(typingctx, x, y, n, hi, lo):
    return types.void(*[types.int64] * 5), _emit_pair


@intrinsic
def _turn(typingctx, x, x_stride, out, out_stride):
    return types.void(*[types.int64] * 4), _emit_turn


@njit(nogil=True, error_model="numpy")
def _filled(n):
    return (n + 31) // 32 * 32


@njit(nogil=True, error_model="numpy")
def half_product(a, a_stride, rows, K, weights, O, out, out_stride, work, split):
    """See the head of this file."""
    depth, stride = _filled(K) // 32, 2 * _filled(K)
    lo, weights_lo = work + _filled(rows) * stride, weights + _filled(O) * stride
    for r in range(rows):
        for k in range(0, K, 32):
            x, to = a + r * a_stride + 4 * k, r * stride + 2 * k
            if split != 0:
                _round_both(x, work + to, lo + to)
            else:
                _round(x, work + to)
    for r in range(0, rows, 32):  # a block of rows and, for small matrices, all of W stay in the first cache
        u, u_lo = work + r * stride, lo + r * stride
        for o in range(0, O, 32):
            w, w_lo, to = weights + o * stride, weights_lo + o * stride, out + r * out_stride + 4 * o
            if split != 0:
                split_block(u, u_lo, stride, w, w_lo, 1024, 2048, 64, depth, to, out_stride, 0)
            else:
                block(u, u_lo, stride, w, w_lo, 1024, 2048, 64, depth, to, out_stride, 0)


@njit(nogil=True, error_model="numpy")
def _pairs(x, x_stride, rows, K, out, lo, split):
    """Rows -> pairs of rows, (rows/2, K) of 32 bits, both filled up; pairs behind the rows are 0."""
    stride = 4 * _filled(K)
    for r in range(0, _filled(rows), 2):
        here = x + min(r, rows - 1) * x_stride
        second = here + x_stride if r + 1 < rows else here
        n = min(max(rows - r, 0), 2)
        for k in range(0, _filled(K), 16):
            to = r // 2 * stride + 4 * k
            if split != 0:
                _pair_both(here + 4 * k, second + 4 * k, n, out + to, lo + to)
            else:
                _pair(here + 4 * k, second + 4 * k, n, out + to)


@njit(nogil=True, error_model="numpy")
def half_outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride, work, split):
    """See the head of this file."""
    depth = _filled(rows) // 32
    a_row, x_row, turned_row = 4 * _filled(O), 4 * _filled(K), 64 * depth  # bytes
    left_part, right_part = 16 * depth * a_row, 16 * depth * x_row
    left, right = work + 2 * left_part, work + 4 * left_part
    _pairs(a, a_stride, rows, O, work, work + left_part, split)
    for part in range(1 if split == 0 else 2):
        pairs, to = work + part * left_part, left + part * left_part
        for o in range(0, _filled(O), 16):
            for d in range(depth):
                _turn(pairs + 16 * d * a_row + 4 * o, a_row, to + o * turned_row + 64 * d, turned_row)
    _pairs(x, x_stride, rows, K, right, right + right_part, split)
    for o in range(0, O, 32):
        u = left + o * turned_row
        for k in range(0, K, 32):
            w, to = right + 4 * k, out + o * out_stride + 4 * k
            u_lo, w_lo = u + left_part, w + right_part
            if split != 0:
                split_block(u, u_lo, turned_row, w, w_lo, 64, 16 * x_row, x_row, depth, to, out_stride, 1)
            else:
                block(u, u_lo, turned_row, w, w_lo, 64, 16 * x_row, x_row, depth, to, out_stride, 1)
