"""Elementwise work on a tile of rows, column by column: a vector of features at a time, all rows of it in one loop.

    @columnwise("rrcs")             # one letter an operand: r rows, c one row for all, s a sum over the rows
    def scaled(out, x, gain, total):
        y = gain * x
        return {0: y, 3: total + y}

gives scaled(table, first, last, H) for compiled code: rows first <= r < last of H float32 features. ``table`` is the
address of two int64 numbers for every operand, its address and the bytes from row to row. Constants and sums stay in
registers while the rows run. Sums are float32 over the rows of a tile and are then added to float64 numbers in memory.
A vector is 64 bytes (LLVM splits it on narrower processors); leftovers run number by number.
"""

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kws_s5.ops.common.vector import Vector

INT, FLOAT, DOUBLE = ir.IntType(64), ir.FloatType(), ir.DoubleType()
LANES = (16, 1)
SIZE = 4  # bytes of a number


def number(value: int) -> ir.Constant:
    """An int64 constant."""
    return ir.Constant(INT, value)


def kind_of(scalar: ir.Type, lanes: int) -> ir.Type:
    """The type of ``lanes`` numbers."""
    return scalar if lanes == 1 else ir.VectorType(scalar, lanes)


def load(builder, address, kind):
    """The value of type ``kind`` at an int64 address of any alignment to its numbers."""
    scalar = kind.element if isinstance(kind, ir.VectorType) else kind
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=8 if scalar in (INT, DOUBLE) else SIZE)


def store(builder, value, address) -> None:
    """The other way."""
    kind = value.type
    scalar = kind.element if isinstance(kind, ir.VectorType) else kind
    align = 8 if scalar in (INT, DOUBLE) else SIZE
    builder.store(value, builder.inttoptr(address, kind.as_pointer()), align=align)


def zeros(kind):
    """0 in every lane."""
    return ir.Constant(kind, [0.0] * kind.count if isinstance(kind, ir.VectorType) else 0.0)


def add_to_total(builder, value, address) -> None:
    """Adds float32 lanes to the float64 numbers at ``address``."""
    lanes = value.type.count if isinstance(value.type, ir.VectorType) else 1
    kind = kind_of(DOUBLE, lanes)
    store(builder, builder.fadd(load(builder, address, kind), builder.fpext(value, kind)), address)


def in_groups(builder, n, body: Callable) -> None:
    """body(index, lanes) for all n numbers, in groups of 16, then one by one."""
    done = number(0)
    for lanes in LANES:
        count = builder.udiv(builder.sub(n, done), number(lanes))
        with cgutils.for_range(builder, count) as loop:
            body(builder.add(done, builder.mul(loop.index, number(lanes))), lanes)
        done = builder.add(done, builder.mul(count, number(lanes)))


def columnwise(kinds: str):
    """See the head of this file."""

    def decorate(expression):
        def emit(context, builder, signature, args):
            table, first, last, H = args
            places = [load(builder, builder.add(table, number(16 * k)), INT) for k in range(len(kinds))]
            strides = [load(builder, builder.add(table, number(16 * k + 8)), INT) for k in range(len(kinds))]

            def body(index, lanes):
                kind, offset = kind_of(FLOAT, lanes), builder.mul(index, number(SIZE))
                here = [builder.add(place, offset) for place in places]
                fixed = {k: load(builder, here[k], kind) for k, letter in enumerate(kinds) if letter == "c"}
                sums = {k: cgutils.alloca_once(builder, kind) for k, letter in enumerate(kinds) if letter == "s"}
                for slot in sums.values():
                    builder.store(zeros(kind), slot)
                with cgutils.for_range(builder, builder.sub(last, first)) as loop:
                    row = builder.add(first, loop.index)
                    rows = {
                        k: builder.add(here[k], builder.mul(row, strides[k]))
                        for k, letter in enumerate(kinds)
                        if letter == "r"
                    }
                    values = [
                        fixed[k] if k in fixed else builder.load(sums[k]) if k in sums else load(builder, rows[k], kind)
                        for k in range(len(kinds))
                    ]
                    for k, value in expression(*(Vector(builder, value) for value in values)).items():
                        if k in sums:
                            builder.store(value.value, sums[k])
                        else:
                            store(builder, value.value, rows[k])
                for k, slot in sums.items():
                    add_to_total(builder, builder.load(slot), builder.add(places[k], builder.mul(index, number(8))))

            in_groups(builder, H, body)
            return context.get_dummy_value()

        def typed(typingctx, table, first, last, H):
            return types.void(*[types.int64] * 4), emit

        return intrinsic(typed)

    return decorate
