"""Products of a few rows with a constant matrix, inside numba code: what one frame of a stream spends its time on.

    product(x, x_stride, rows, K, weights, n_panels, bias, out, out_stride)      out = x W + bias

for float32 rows x (rows, K). W (K, O) lies in panels of 16 columns, one after the other, each (K, 16), the last one
filled up with zeros (``panels``); bias and rows of out have 16 n_panels numbers. All arguments are int64: addresses,
and strides in bytes. A block of rows and panels keeps its sums in vector registers while k runs, so that a panel is
read once for up to 8 rows. Every number is summed over k in order, whatever the block: a row's result does not depend
on the rows beside it, to the last bit.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kws_s5.ops.common.processor import features

LANES = 16  # numbers of a panel's row: one vector of 64 bytes, which LLVM splits on narrower processors
SIZE = 4  # bytes of a number
ROW = LANES * SIZE  # bytes of a panel's row
INT, FLOAT = ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
FLAGS = ("contract", "nsz")
WIDE = "avx512f" in features()  # 32 registers of 64 bytes


def panels(weight: np.ndarray) -> np.ndarray:
    """(O, K), the layout of torch's Linear -> (n_panels, K, 16) float32."""
    O, K = weight.shape
    packed = np.zeros((-(-O // LANES), LANES, K), np.float32)
    packed.reshape(-1, K)[:O] = weight
    return np.ascontiguousarray(packed.transpose(0, 2, 1))


def padded(n: int) -> int:
    """n, filled up to whole panels."""
    return -(-n // LANES) * LANES


def _block(n_rows: int, n_panels: int):
    """Intrinsic (x, x_stride, K, weights, bias, out, out_stride): n_rows rows times n_panels panels."""
    cells = [(r, q) for r in range(n_rows) for q in range(n_panels)]

    def emit(context, builder, signature, args):
        x, x_stride, K, weights, bias, out, out_stride = args

        def behind(address, index, step):
            index, step = (v if isinstance(v, ir.Value) else ir.Constant(INT, v) for v in (index, step))
            return builder.add(address, builder.mul(index, step))

        def load(address, kind=VECTOR):
            return builder.load(builder.inttoptr(address, kind.as_pointer()), align=SIZE)

        def repeat(number):
            nothing = ir.Constant(VECTOR, ir.Undefined)
            single = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(single, nothing, everywhere)

        panel = builder.mul(K, ir.Constant(INT, ROW))  # bytes
        sums = {(r, q): cgutils.alloca_once_value(builder, ir.Constant(VECTOR, ir.Undefined)) for r, q in cells}
        for r, q in cells:
            builder.store(load(behind(bias, q, ROW)), sums[r, q])
        with cgutils.for_range(builder, K) as loop:
            values = [repeat(load(behind(behind(x, r, x_stride), loop.index, SIZE), FLOAT)) for r in range(n_rows)]
            columns = [load(behind(behind(weights, q, panel), loop.index, ROW)) for q in range(n_panels)]
            for r, q in cells:
                term = builder.fmul(values[r], columns[q], flags=FLAGS)
                builder.store(builder.fadd(builder.load(sums[r, q]), term, flags=FLAGS), sums[r, q])
        for r, q in cells:
            place = behind(behind(out, r, out_stride), q, ROW)
            builder.store(builder.load(sums[r, q]), builder.inttoptr(place, VECTOR.as_pointer()), align=SIZE)
        return context.get_dummy_value()

    @intrinsic
    def block(typingctx, x, x_stride, K, weights, bias, out, out_stride):
        return types.void(*[types.int64] * 7), emit

    return block


def _make(n_rows: int, n_panels: int):
    """The product for as many rows as fill whole blocks; returns how many those were."""
    many, one = _block(n_rows, n_panels), _block(n_rows, 1)

    @njit(nogil=True, error_model="numpy")
    def run(x, x_stride, rows, K, weights, total, bias, out, out_stride):
        done, q = rows // n_rows * n_rows, 0
        while q < total and done > 0:
            w, b, o, whole = weights + q * K * ROW, bias + q * ROW, out + q * ROW, q + n_panels <= total
            for r in range(0, done, n_rows):
                if whole:
                    many(x + r * x_stride, x_stride, K, w, b, o + r * out_stride, out_stride)
                else:
                    one(x + r * x_stride, x_stride, K, w, b, o + r * out_stride, out_stride)
            q += n_panels if whole else 1
        return done

    return run


# rows and panels of a block: as many sums as registers allow, and enough that additions need not wait for each other
_most = _make(8, 2) if WIDE else _make(4, 1)
_two = _make(2, 4) if WIDE else _make(2, 2)
_one = _make(1, 8) if WIDE else _make(1, 4)


@njit(nogil=True, error_model="numpy")
def product(x, x_stride, rows, K, weights, n_panels, bias, out, out_stride):
    """See the head of this file."""
    r = _most(x, x_stride, rows, K, weights, n_panels, bias, out, out_stride)
    r += _two(x + r * x_stride, x_stride, rows - r, K, weights, n_panels, bias, out + r * out_stride, out_stride)
    _one(x + r * x_stride, x_stride, rows - r, K, weights, n_panels, bias, out + r * out_stride, out_stride)
