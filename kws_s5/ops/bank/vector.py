"""The bank's recurrences over a run of samples, with everything a group of modes needs in vector registers.

advance(S, u, first, k0, k1, u1, u2, M, n) runs samples k0 <= k < k1 of the clip that starts at u[first]: states and
sums are loaded from the workspace S once, and stored once. u1 and u2 are the two samples before k0. Groups of 16 modes
(8 in float64), then 4, then single ones. Offsets into S are those of kernel.py.

Legend: M modes, n poles (known when compiling).
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kws_s5.ops.bank.reference import OFFSET
from kws_s5.ops.common.vector import Vector

INT = ir.IntType(64)


def _step(a, c, state, u, n):
    """state: 2n parts of the poles, then the total power. Returns the next one; u: this and the two last samples."""
    re, im = (c[i] * u[0] + c[2 + i] * u[1] + c[4 + i] * u[2] for i in (0, 1))
    following = []
    for p in range(n):
        x_re, x_im = state[2 * p], state[2 * p + 1]
        re, im = re + a[0] * x_re - a[1] * x_im, im + a[0] * x_im + a[1] * x_re
        following += [re, im]
    return [*following, state[2 * n] + re * re + im * im]


def _emit(context, builder, signature, args):
    S, u, first, k0, k1, u1, u2, M, _ = args
    n = signature.args[8].literal_value
    dtype = signature.args[0].dtype
    scalar, size = context.get_value_type(dtype), dtype.bitwidth // 8
    S, u = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1))
    clip = builder.gep(u, [first])
    length = builder.sub(k1, k0)

    def group(mode, lanes):
        kind = scalar if lanes == 1 else ir.VectorType(scalar, lanes)

        def place(row):
            index = builder.add(builder.mul(ir.Constant(INT, row), M), mode)
            return builder.bitcast(builder.gep(S, [index]), kind.as_pointer())

        def repeat(value):
            if lanes == 1:
                return value
            single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), mask)

        rows = [builder.load(place(row), align=size) for row in range(8 + 2 * n + 1)]
        fixed = [Vector(builder, row) for row in rows[:8]]
        kept = [cgutils.alloca_once_value(builder, row) for row in rows[8:]]
        before = [cgutils.alloca_once_value(builder, value) for value in (u1, u2)]
        for slot, value in zip([*kept, *before], [*rows[8:], u1, u2], strict=True):
            builder.store(value, slot)
        with cgutils.for_range(builder, length) as loop:
            sample = builder.load(builder.gep(clip, [builder.add(k0, loop.index)]))
            sample = builder.fadd(sample, ir.Constant(scalar, OFFSET))
            last = [builder.load(slot) for slot in before]
            inputs = [Vector(builder, repeat(value)) for value in (sample, *last)]
            state = [Vector(builder, builder.load(slot)) for slot in kept]
            for slot, value in zip(kept, _step(fixed[:2], fixed[2:], state, inputs, n), strict=True):
                builder.store(value.value, slot)
            builder.store(sample, before[0])
            builder.store(last[0], before[1])
        for row, slot in enumerate(kept):
            builder.store(builder.load(slot), place(8 + row), align=size)

    done = ir.Constant(INT, 0)
    for lanes in (64 // size, 4, 1):
        count = builder.udiv(builder.sub(M, done), ir.Constant(INT, lanes))
        with cgutils.for_range(builder, count) as loop:
            group(builder.add(done, builder.mul(loop.index, ir.Constant(INT, lanes))), lanes)
        done = builder.add(done, builder.mul(count, ir.Constant(INT, lanes)))
    return context.get_dummy_value()


@intrinsic(prefer_literal=True)
def advance(typingctx, S, u, first, k0, k1, u1, u2, M, n):
    """See the head of this file."""
    if not isinstance(n, types.IntegerLiteral):
        return None
    i = types.int64
    return types.void(S, u, i, i, i, S.dtype, S.dtype, i, n), _emit
