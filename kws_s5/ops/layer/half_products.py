"""Products of a tile of float32 rows in bfloat16, inside numba code (amx.py): a W, and a^T x summed over the rows.

    half_product(a, a_stride, rows, K, weights, O, out, out_stride, work)           out = a W
    half_outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride, work)         out += a^T x

Operands are rounded to the nearest bfloat16 on the way; sums and results are float32.

All arguments are int64: addresses, and strides in bytes. Everything is filled up to blocks of 32: rows of a, x and out
are that long, there is memory for that many of them, and what stands behind K in the rows of ``a`` is finite (its
weight is 0). ``work`` has ``work_size`` bytes.
"""

import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor

from kws_s5.ops.common.amx import HALF, block
from kws_s5.ops.common.columns import FLOAT, load, number

BLOCK = 32
WORD = ir.IntType(32)
BITS, HALVES = ir.VectorType(WORD, 16), ir.VectorType(HALF, 32)


def half_panels(weight: Tensor) -> Tensor:
    """(O, K), the layout of torch's Linear -> (O/32, K/32, 2, 16, 32) bfloat16: panels of 32 columns, in tiles."""
    O, K = weight.shape
    o, k = -(-O // BLOCK), -(-K // BLOCK)
    filled = torch.zeros(o * BLOCK, k * BLOCK, dtype=torch.bfloat16)
    filled[:O, :K] = weight.to(torch.bfloat16)
    tiles = filled.view(o, 2, 16, k, 16, 2).permute(0, 3, 1, 4, 2, 5)  # (o, k, half, pair, column, of pair)
    return tiles.reshape(o, k, 2, 16, 32)


def work_size(rows: int, widest: int) -> int:
    """Bytes of ``work`` for tiles of at most ``rows`` rows of ``widest`` numbers."""
    return 6 * (-(-rows // BLOCK) * BLOCK) * (-(-widest // BLOCK) * BLOCK)


def _rounded(builder, bits):
    """16 float32 numbers as bfloat16, to the nearest, ties to even: the upper half of 32 bits; the lower is garbage."""
    odd = builder.and_(builder.lshr(bits, ir.Constant(BITS, [16] * 16)), ir.Constant(BITS, [1] * 16))
    return builder.add(builder.add(bits, ir.Constant(BITS, [0x7FFF] * 16)), odd)


def _upper(builder, bits):
    """The upper half alone."""
    return builder.and_(bits, ir.Constant(BITS, [0xFFFF0000] * 16))


def _load_rounded(builder, address):
    """16 numbers, as ``_rounded``."""
    numbers = load(builder, address, ir.VectorType(FLOAT, 16))
    return _rounded(builder, builder.bitcast(numbers, BITS))


def _emit_round(context, builder, signature, args):
    """32 numbers at x -> 32 bfloat16 at out."""
    x, out = args
    first, second = (builder.bitcast(_load_rounded(builder, builder.add(x, number(64 * k))), HALVES) for k in range(2))
    upper = builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(WORD, 32), list(range(1, 64, 2))))
    builder.store(upper, builder.inttoptr(out, HALVES.as_pointer()), align=2)
    return context.get_dummy_value()


def _emit_pair(context, builder, signature, args):
    """16 numbers of two rows -> 16 pairs at out; only ``n`` rows count, the others are 0."""
    x, y, n, out = args
    nothing = ir.Constant(BITS, [0] * 16)
    counts = [builder.icmp_signed(">", n, number(k)) for k in range(2)]
    first, second = (_load_rounded(builder, place) for place in (x, y))
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
            rows[i], rows[i | far] = (
                builder.shuffle_vector(upper, lower, ir.Constant(BITS, mask)) for mask in (first, second)
            )
    for k, row in enumerate(rows):
        place = builder.add(out, builder.mul(out_stride, number(k)))
        builder.store(row, builder.inttoptr(place, BITS.as_pointer()), align=4)
    return context.get_dummy_value()


@intrinsic
def round_row(typingctx, x, out):
    return types.void(types.int64, types.int64), _emit_round


@intrinsic
def pair(typingctx, x, y, n, out):
    return types.void(*[types.int64] * 4), _emit_pair


@intrinsic
def turn(typingctx, x, x_stride, out, out_stride):
    return types.void(*[types.int64] * 4), _emit_turn


@njit(nogil=True, error_model="numpy")
def _filled(n):
    return (n + 31) // 32 * 32


@njit(nogil=True, error_model="numpy")
def half_product(a, a_stride, rows, K, weights, O, out, out_stride, work):
    """See the head of this file."""
    depth, stride = _filled(K) // 32, 2 * _filled(K)
    for r in range(rows):
        for k in range(0, K, 32):
            round_row(a + r * a_stride + 4 * k, work + r * stride + 2 * k)
    for r in range(0, rows, 32):  # a block of rows and, for small matrices, all of W stay in the first cache
        for o in range(0, O, 32):
            w, to = weights + o * stride, out + r * out_stride + 4 * o
            block(work + r * stride, stride, w, 1024, 2048, 64, depth, to, out_stride, 0)


@njit(nogil=True, error_model="numpy")
def _pairs(x, x_stride, rows, K, out):
    """Rows -> pairs of rows, (rows/2, K) of 32 bits, both filled up; pairs behind the rows are 0."""
    stride = 4 * _filled(K)
    for r in range(0, _filled(rows), 2):
        here = x + min(r, rows - 1) * x_stride
        second = here + x_stride if r + 1 < rows else here
        n = min(max(rows - r, 0), 2)
        for k in range(0, _filled(K), 16):
            pair(here + 4 * k, second + 4 * k, n, out + r // 2 * stride + 4 * k)


@njit(nogil=True, error_model="numpy")
def half_outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride, work):
    """See the head of this file."""
    depth = _filled(rows) // 32
    a_row, x_row, turned_row = 4 * _filled(O), 4 * _filled(K), 64 * depth  # bytes
    left = work + 16 * depth * a_row
    right = left + 16 * depth * a_row
    _pairs(a, a_stride, rows, O, work)
    for o in range(0, _filled(O), 16):
        for d in range(depth):
            turn(work + 16 * d * a_row + 4 * o, a_row, left + o * turned_row + 64 * d, turned_row)
    _pairs(x, x_stride, rows, K, right)
    for o in range(0, O, 32):
        for k in range(0, K, 32):
            u, w, to = left + o * turned_row, right + 4 * k, out + o * out_stride + 4 * k
            block(u, turned_row, w, 64, 16 * x_row, x_row, depth, to, out_stride, 1)
