"""Complex multiply-add on short vectors, for numba kernels: the one operation a diagonal recurrence needs.

    Y = A B + C   or   Y = conj(A) B + C      on planar pairs: real parts at index i, imaginary parts at i + P

Written as LLVM vector instructions, because numba's own loops over several arrays stay scalar (too many possible
overlaps to check). A vector is 64 bytes; on processors with narrower registers LLVM splits it. Leftovers of a row run
on 16 bytes, then on single numbers. All four arrays are one-dimensional, contiguous and of one dtype; no bounds checks.
"""

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

FLAGS = ("contract", "nsz")  # let a product and a sum become one fused instruction; nothing else is reordered


def _block(size: int, conjugate: bool):
    """Intrinsic for one vector of ``size`` bytes (0: one number)."""

    def emit(context, builder, signature, args):
        scalar = context.get_value_type(signature.args[0].dtype)
        lanes = max(1, size // (signature.args[0].dtype.bitwidth // 8))
        vector = scalar if lanes == 1 else ir.VectorType(scalar, lanes)
        P = args[8]

        def pointer(k, shift):
            array = context.make_array(signature.args[k])(context, builder, args[k])
            index = builder.add(args[k + 1], P) if shift else args[k + 1]
            return builder.bitcast(builder.gep(array.data, [index]), vector.as_pointer())

        def load(k):
            align = scalar.get_abi_alignment(context.target_data)
            return [builder.load(pointer(k, shift), align=align) for shift in (False, True)]

        def fma(x, y, z, negative=False):
            product = builder.fmul(x, y, flags=FLAGS)
            return (builder.fsub if negative else builder.fadd)(z, product, flags=FLAGS)

        (a_re, a_im), (b_re, b_im), (c_re, c_im) = load(0), load(2), load(4)
        y_re = fma(a_im, b_im, fma(a_re, b_re, c_re), negative=not conjugate)
        y_im = fma(a_im, b_re, fma(a_re, b_im, c_im), negative=conjugate)
        align = scalar.get_abi_alignment(context.target_data)
        builder.store(y_re, pointer(6, False), align=align)
        builder.store(y_im, pointer(6, True), align=align)
        return context.get_dummy_value()

    @intrinsic
    def block(typingctx, A, i, B, j, C, k, Y, m, P):
        n = types.intp
        return types.void(A, n, B, n, C, n, Y, n, n), emit

    return block


def make_multiply_add(conjugate: bool):
    """njit function (A, i, B, j, C, k, Y, m, P, low, high): Y = A B + C on modes low..high of rows at i, j, k, m."""
    wide, narrow, single = _block(64, conjugate), _block(16, conjugate), _block(0, conjugate)

    @njit(nogil=True, error_model="numpy")
    def multiply_add(A, i, B, j, C, k, Y, m, P, low, high):
        step, p = 64 // A.itemsize, low
        while p + step <= high:
            wide(A, i + p, B, j + p, C, k + p, Y, m + p, P)
            p += step
        step = 16 // A.itemsize
        while p + step <= high:
            narrow(A, i + p, B, j + p, C, k + p, Y, m + p, P)
            p += step
        while p < high:
            single(A, i + p, B, j + p, C, k + p, Y, m + p, P)
            p += 1

    return multiply_add
