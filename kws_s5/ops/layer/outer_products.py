"""Sums of outer products over the rows of a tile, inside numba code: the gradients of constant matrices.

    outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride)        out (O, K) += a (rows, O)^T x (rows, K)

for float32 rows. All arguments are int64: addresses, and strides in bytes. O and K are filled up to blocks of 8 and 32
numbers: rows of a, x and out are at least as long as that, and out has as many rows; what stands behind O and K never
reaches what stands before them. A block of out stays in vector registers while the rows run.
"""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kws_s5.ops.common.columns import FLOAT, SIZE, load, number, store, zeros
from kws_s5.ops.common.row_products import FLAGS, LANES, ROW, VECTOR, WIDE

HIGH, LONG = 8, 32  # O and K are filled up to multiples of these
N_ROWS, N_VECTORS = (8, 2) if WIDE else (4, 1)  # of a block: as many sums as registers allow


def repeat(builder, value):
    """A number in every lane."""
    nothing = ir.Constant(VECTOR, ir.Undefined)
    single = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(single, nothing, everywhere)


def _emit(context, builder, signature, args):
    a, a_stride, x, x_stride, rows, out, out_stride = args
    cells = [(i, j) for i in range(N_ROWS) for j in range(N_VECTORS)]
    sums = {cell: cgutils.alloca_once(builder, VECTOR) for cell in cells}
    for slot in sums.values():
        builder.store(zeros(VECTOR), slot)
    with cgutils.for_range(builder, rows) as loop:
        here = builder.add(x, builder.mul(loop.index, x_stride))
        columns = [load(builder, builder.add(here, number(j * ROW)), VECTOR) for j in range(N_VECTORS)]
        here = builder.add(a, builder.mul(loop.index, a_stride))
        values = [repeat(builder, load(builder, builder.add(here, number(i * SIZE)), FLOAT)) for i in range(N_ROWS)]
        for i, j in cells:
            term = builder.fmul(values[i], columns[j], flags=FLAGS)
            builder.store(builder.fadd(builder.load(sums[i, j]), term, flags=FLAGS), sums[i, j])
    for i, j in cells:
        place = builder.add(builder.add(out, builder.mul(out_stride, number(i))), number(j * ROW))
        store(builder, builder.fadd(load(builder, place, VECTOR), builder.load(sums[i, j])), place)
    return context.get_dummy_value()


@intrinsic
def _block(typingctx, a, a_stride, x, x_stride, rows, out, out_stride):
    return types.void(*[types.int64] * 7), _emit


@njit(nogil=True, error_model="numpy")
def outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride):
    """See the head of this file."""
    for k in range(0, K, N_VECTORS * LANES):
        for o in range(0, O, N_ROWS):
            _block(a + o * SIZE, a_stride, x + k * SIZE, x_stride, rows, out + o * out_stride + k * SIZE, out_stride)
