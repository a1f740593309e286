"""Expressions on short vectors as LLVM instructions: elementwise work that surely runs vectorised in numba.

    @pointwise
    def axpy(a, x, y, _):       # four operands, used or not
        return {2: a * x + y}   # index of an operand -> what is stored there

gives axpy(n, a, x, y, _) for use inside compiled code: n float32 numbers at each of the four addresses (int64).
A vector is 64 bytes (LLVM splits it on narrower processors); leftovers run number by number.
"""

import math

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FLAGS = ("contract", "nsz")  # a product and a sum may become one fused instruction; nothing else is reordered
INT = ir.IntType(64)


class Vector:
    """A value of ``lanes`` numbers while code is emitted."""

    def __init__(self, builder, value) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other):
        return self._with("fadd", other)

    def __sub__(self, other):
        return self._with("fsub", other)

    def __mul__(self, other):
        return self._with("fmul", other)

    def __truediv__(self, other):
        return self._with("fdiv", other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return self._of(self.constant(other)) - self

    def __rtruediv__(self, other):
        return self._of(self.constant(other)) / self

    def constant(self, number: float):
        """The same number in every lane."""
        kind = self.value.type
        return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)

    def zero(self) -> "Vector":
        """0 in every lane."""
        return self._of(self.constant(0.0))

    def clamp(self, low: float, high: float) -> "Vector":
        """NaN stays NaN."""
        value = self.value
        for bound, sign in ((low, "<"), (high, ">")):
            bound = self.constant(bound)
            value = self.builder.select(self.builder.fcmp_ordered(sign, value, bound), bound, value)
        return self._of(value)

    def exp(self) -> "Vector":
        """exp(x) = 2^n exp(r), |r| <= ln(2) / 2, exp(r) as a Taylor series; good to the last digits."""
        double = self._scalar() == ir.DoubleType()
        terms, bits, bias = (13, 52, 1023) if double else (7, 23, 127)
        high = 0.6931471803691238 if double else 0.693359375  # few bits: n times it is exact
        x = self.clamp(-708.0, 709.0) if double else self.clamp(-87.0, 88.0)
        magic = x.constant(1.5 * 2.0**bits)  # adding it leaves the nearest integer in the last bits
        shifted = x * (1.0 / math.log(2.0)) + self._of(magic)
        n = self._of(self.builder.fsub(shifted.value, magic))
        r = x - n * high - n * (math.log(2.0) - high)
        total = r * 0.0 + 1.0 / math.factorial(terms)
        for k in range(terms - 1, -1, -1):
            total = total * r + 1.0 / math.factorial(k)
        whole = self._integer(64 if double else 32)
        power = self.builder.fptosi(n.value, whole)
        power = self.builder.shl(self.builder.add(power, self._repeat(whole, bias)), self._repeat(whole, bits))
        return total * self._of(self.builder.bitcast(power, self.value.type))

    def sigmoid(self) -> "Vector":
        """1 / (1 + exp(-x))."""
        return 1.0 / (1.0 + (self * -1.0).exp())

    def _with(self, operation, other) -> "Vector":
        other = other.value if isinstance(other, Vector) else self.constant(other)
        return self._of(getattr(self.builder, operation)(self.value, other, flags=FLAGS))

    def _of(self, value) -> "Vector":
        return Vector(self.builder, value)

    def _scalar(self):
        kind = self.value.type
        return kind.element if isinstance(kind, ir.VectorType) else kind

    def _integer(self, bits):
        kind = self.value.type
        return ir.VectorType(ir.IntType(bits), kind.count) if isinstance(kind, ir.VectorType) else ir.IntType(bits)

    @staticmethod
    def _repeat(kind, number):
        return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def pointwise(expression):
    """See the head of this file."""

    def emit(context, builder, signature, args):
        _apply(builder, expression, args[0], args[1:])
        return context.get_dummy_value()

    def typed(typingctx, n, a, b, c, d):
        return types.void(*[types.int64] * 5), emit

    return intrinsic(typed)


def _apply(builder, expression, n, starts) -> None:
    """Emits the expression for n numbers behind every address."""
    scalar, size, lanes = ir.FloatType(), 4, 16
    n_vectors = builder.udiv(n, ir.Constant(INT, lanes))
    done = builder.mul(n_vectors, ir.Constant(INT, lanes))

    def at(index, kind):
        offset = builder.mul(index, ir.Constant(INT, size))
        places = [builder.inttoptr(builder.add(start, offset), kind.as_pointer()) for start in starts]
        values = [Vector(builder, builder.load(place, align=size)) for place in places]
        for k, value in expression(*values).items():
            builder.store(value.value, places[k], align=size)

    with cgutils.for_range(builder, n_vectors) as loop:
        at(builder.mul(loop.index, ir.Constant(INT, lanes)), ir.VectorType(scalar, lanes))
    with cgutils.for_range(builder, builder.sub(n, done)) as loop:
        at(builder.add(done, loop.index), scalar)
