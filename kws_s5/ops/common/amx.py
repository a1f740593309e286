"""The tile registers of Intel processors (AMX) in numba code: products of bfloat16 numbers with float32 sums.

A register holds 16 rows of 64 bytes; one instruction adds the product of two of them to a third:

    out[m, n] += sum_j a[m, 2j] w[2j, n] + a[m, 2j + 1] w[2j + 1, n]        j < 16

so the second factor has pairs of rows side by side. A thread calls ``configure`` before ``block`` and ``restore``
afterwards, both with the address of the same 128 bytes: whatever used the registers before finds their shapes as they
were. ``has_amx`` must be true. All arguments are int64: addresses, strides in bytes, counts.
"""

import ctypes
import platform
import sys
from functools import cache

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kws_s5.ops.common.columns import INT, load, number, store
from kws_s5.ops.common.processor import features

XTILEDATA, REQUEST, ARCH_PRCTL = 18, 0x1023, 158  # Linux: a process asks for the registers before it uses them
BYTE, HALF = ir.IntType(8), ir.IntType(16)


@cache
def has_amx() -> bool:
    """Whether this processor has the unit, numba may use it and the system lets this process have it."""
    listed = {"amx-tile", "amx-bf16", "avx512f"} <= features()
    if not (listed and sys.platform == "linux" and platform.machine() == "x86_64"):
        return False
    try:
        return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST, XTILEDATA) == 0
    except (OSError, AttributeError):
        return False


def _call(builder, name: str, *args) -> None:
    """An instruction of the unit."""
    kind = ir.FunctionType(ir.VoidType(), [a.type for a in args])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), args)


def _memory(builder, address):
    return builder.inttoptr(address, BYTE.as_pointer())


def _emit_configure(context, builder, signature, args):
    (work,) = args
    _call(builder, "sttilecfg", _memory(builder, work))
    wanted = builder.add(work, number(64))
    for k in range(8):
        store(builder, number(0), builder.add(wanted, number(8 * k)))
    builder.store(ir.Constant(BYTE, 1), _memory(builder, wanted))  # palette
    for k in range(8):
        bytes_of_a_row = builder.inttoptr(builder.add(wanted, number(16 + 2 * k)), HALF.as_pointer())
        builder.store(ir.Constant(HALF, 64), bytes_of_a_row, align=1)
        builder.store(ir.Constant(BYTE, 16), _memory(builder, builder.add(wanted, number(48 + k))))
    _call(builder, "ldtilecfg", _memory(builder, wanted))
    return context.get_dummy_value()


def _emit_restore(context, builder, signature, args):
    (work,) = args
    used = builder.trunc(load(builder, work, INT), BYTE)
    with builder.if_else(builder.icmp_signed("==", used, ir.Constant(BYTE, 0))) as (unused, shaped):
        with unused:
            _call(builder, "tilerelease")
        with shaped:
            _call(builder, "ldtilecfg", _memory(builder, work))
    return context.get_dummy_value()


def _emit_block(context, builder, signature, args):
    a, a_stride, w, w_right, w_deeper, w_stride, n, out, out_stride, add = args
    lower = builder.add(out, builder.mul(out_stride, number(16)))
    corners = [out, builder.add(out, number(64)), lower, builder.add(lower, number(64))]
    tile = [ir.Constant(BYTE, k) for k in range(8)]

    def take(first: int, address, to_next, stride):
        for k, place in enumerate((address, builder.add(address, to_next))):
            _call(builder, "tileloadd64", tile[first + k], _memory(builder, place), stride)

    with builder.if_else(builder.icmp_signed("!=", add, number(0))) as (more, new):
        with more:
            for k, corner in enumerate(corners):
                _call(builder, "tileloadd64", tile[k], _memory(builder, corner), out_stride)
        with new:
            for k in range(4):
                _call(builder, "tilezero", tile[k])
    below = builder.mul(a_stride, number(16))
    with cgutils.for_range(builder, n) as loop:
        take(4, builder.add(a, builder.mul(loop.index, number(64))), below, a_stride)
        take(6, builder.add(w, builder.mul(loop.index, w_deeper)), w_right, w_stride)
        for k, (left, right) in enumerate(((4, 6), (4, 7), (5, 6), (5, 7))):
            _call(builder, "tdpbf16ps", tile[k], tile[left], tile[right])
    for k, corner in enumerate(corners):
        _call(builder, "tilestored64", tile[k], _memory(builder, corner), out_stride)
    return context.get_dummy_value()


@intrinsic
def configure(typingctx, work):
    """Shapes all registers 16 x 64 bytes and remembers how they were."""
    return types.void(types.int64), _emit_configure


@intrinsic
def restore(typingctx, work):
    """Shapes them as they were."""
    return types.void(types.int64), _emit_restore


@intrinsic
def block(typingctx, a, a_stride, w, w_right, w_deeper, w_stride, n, out, out_stride, add):
    """32 x 32 float32 numbers of out = a w (out += a w if ``add``), 32 n of depth.

    a: 32 rows of bfloat16. w: 16 rows of 16 pairs for every 16 columns and 32 of depth: w_stride from row to row,
    w_right to the next columns, w_deeper to the next 32 of depth.
    """
    return types.void(*[types.int64] * 10), _emit_block
