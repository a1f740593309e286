"""Jobs: how compiled functions get their arguments, and how threads share the work.

A job is an array of int64 numbers: counts, and addresses of other arrays. Its first number is a counter from which any
number of threads claim items until none is left.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def claim(typingctx, job):
    """Next item: the counter's value before adding one, atomically."""

    def emit(context, builder, signature, args):
        return builder.atomic_rmw("add", args[0], ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.CPointer(types.int64)), emit


@intrinsic
def pointer(typingctx, address):
    """A number as an untyped pointer, for numba's ``carray``."""

    def emit(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), emit
