"""While compiled code runs, numbers below the normal range of float32 count as 0 (x86; elsewhere nothing changes).

A state that nothing drives decays by a constant factor for ever, and once it is below 1e-38 a processor takes a hundred
times as long for every operation on it: silence would be the slowest sound. Both functions take the address of 8 bytes.
"""

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kws_s5.ops.common.columns import number

BOTH = 0x8040  # of the control register: results and operands
X86 = platform.machine().lower() in ("x86_64", "amd64")
WORD = ir.IntType(32)


def _call(builder, name: str, address) -> None:
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}"), [pointer])


@intrinsic
def flush(typingctx, work):
    """From here on."""

    def emit(context, builder, signature, args):
        (work,) = args
        if X86:
            _call(builder, "stmxcsr", work)
            before = builder.load(builder.inttoptr(work, WORD.as_pointer()))
            wanted = builder.add(work, number(4))
            builder.store(builder.or_(before, ir.Constant(WORD, BOTH)), builder.inttoptr(wanted, WORD.as_pointer()))
            _call(builder, "ldmxcsr", wanted)
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def keep(typingctx, work):
    """As it was before ``flush``."""

    def emit(context, builder, signature, args):
        if X86:
            _call(builder, "ldmxcsr", args[0])
        return context.get_dummy_value()

    return types.void(types.int64), emit
