"""Convolution of 16 images at once, one in each lane of a vector: what the frame encoder's kernels do at one cell.

Images lie last: pixel (y, x) of a plane is 16 numbers in a row, so no instruction ever mixes pixels, and a cell of
2 x 2 outputs that pooling joins is four accumulators. Arguments are addresses and distances in bytes (int64). Tensors
are float32, aligned to 64 bytes, with the zeros of the convolution's padding around them in memory.
Compiled kernels are cached by the date of their own file: after a change here, delete their __pycache__.

    convolve_pool_5x5, _3x3   GROUP channels of relu(max_pool2d(conv2d(x))) at one cell, and which output won
    kernel_gradient_5x5       sum over all cells of the winner's gradient times its pixels, one channel
    spread                    gradients of the four outputs of a cell: the winner's, and zeros
    kernel_gradient_3x3       GROUP channels and one input channel, from gradients spread out
    pixel_gradient_3x3        2 x 2 pixels of GROUP input channels, from gradients spread out
"""

import inspect

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES, GROUP = 16, 3
VECTOR = 4 * LANES  # bytes
PHASES = ((0, 0), (0, 1), (1, 0), (1, 1))  # outputs of a pooling cell: row, column
NOTHING = len(PHASES)  # "winner" of a cell that relu has set to zero
FLAGS = ("contract", "nsz")  # a product and a sum may become one fused instruction; nothing else is reordered
INT, BYTE, FLOAT = ir.IntType(64), ir.IntType(8), ir.FloatType()
FLOATS, BYTES = ir.VectorType(FLOAT, LANES), ir.VectorType(BYTE, LANES)
ZERO = ir.Constant(FLOATS, [0.0] * LANES)


class Code:
    """Instructions as they are emitted."""

    def __init__(self, builder) -> None:
        self.builder = builder

    def move(self, address, *terms):
        """address + the sum of the terms; a term is a number, a value, or a tuple of factors."""
        for term in terms:
            product = None
            for factor in term if isinstance(term, tuple) else (term,):
                factor = ir.Constant(INT, factor) if isinstance(factor, int) else factor
                product = factor if product is None else self.builder.mul(product, factor)
            address = self.builder.add(address, product)
        return address

    def load(self, address, kind=FLOATS):
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=self._size(kind))

    def store(self, value, address) -> None:
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer()), align=self._size(value.type))

    def repeat(self, address):
        """One float32 in every lane."""
        single = self.builder.insert_element(ir.Constant(FLOATS, ir.Undefined), self.load(address, FLOAT),
                                             ir.Constant(ir.IntType(32), 0))
        return self._shuffle(single, [0] * LANES)

    def sum(self, value):
        """Of all lanes, pairwise."""
        half = LANES // 2
        while half:
            value = self.builder.fadd(value, self._shuffle(value, [(i + half) % LANES for i in range(LANES)]))
            half //= 2
        return self.builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    def multiply_add(self, slot, a, b) -> None:
        """slot += a * b."""
        product = self.builder.fmul(a, b, flags=FLAGS)
        self.builder.store(self.builder.fadd(self.builder.load(slot), product, flags=FLAGS), slot)

    def slots(self, n: int):
        """n vectors of zeros that live in registers."""
        slots = [cgutils.alloca_once(self.builder, FLOATS) for _ in range(n)]
        for slot in slots:
            self.builder.store(ZERO, slot)
        return slots

    def unknown(self, address):
        """The same address, which the compiler cannot tell: it loads again what it would else keep and spill."""
        return self.builder.asm(ir.FunctionType(INT, [INT]), "", "=r,0", [address], False)

    def best(self, values, bias):
        """relu of the largest plus bias, and its number (the first of equals; NOTHING below zero). NaN stays NaN."""
        b, largest, which = self.builder, values[0], ir.Constant(BYTES, [0] * LANES)
        for phase in range(1, len(values)):
            larger = b.fcmp_ordered(">", values[phase], largest)
            largest = b.select(larger, values[phase], largest)
            which = b.select(larger, ir.Constant(BYTES, [phase] * LANES), which)
        largest = b.fadd(largest, bias)
        alive = b.fcmp_unordered(">", largest, ZERO)
        return b.select(alive, largest, ZERO), b.select(alive, which, ir.Constant(BYTES, [NOTHING] * LANES))

    def is_winner(self, winner, phase: int):
        return self.builder.icmp_unsigned("==", winner, ir.Constant(BYTES, [phase] * LANES))

    def _shuffle(self, value, order):
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
        return self.builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)

    @staticmethod
    def _size(kind) -> int:
        return {FLOAT: 4, BYTES: LANES}.get(kind, VECTOR)


def emitted(function):
    """Makes an intrinsic of int64 arguments from a function (code, *values) that emits its instructions."""
    n_arguments = function.__code__.co_argcount - 1

    def emit(context, builder, signature, args):
        function(Code(builder), *args)
        return context.get_dummy_value()

    def typed(typingctx, *arguments):
        assert len(arguments) == n_arguments
        return types.void(*[types.int64] * n_arguments), emit

    typed.__signature__ = inspect.signature(function)  # numba needs the number of arguments
    return intrinsic(typed)


def _convolve_pool(k: int, stride: int):
    size = 4 * k * k  # bytes of a kernel

    @emitted
    def convolve_pool(code, x, w, bias, out, winner, n_in, plane, row, out_plane, winner_plane):
        """x: first pixel of the cell in the first of n_in planes; w (GROUP, n_in, k, k), bias (GROUP,)."""
        b = code.builder
        sums = [code.slots(GROUP) for _ in PHASES]
        with cgutils.for_range(b, n_in) as loop:
            pixels, kernel = code.move(x, (loop.index, plane)), code.move(w, (loop.index, size))
            for ky in range(k):
                pixels = code.unknown(pixels)
                for kx in range(k):
                    tap = 4 * (ky * k + kx)
                    numbers = [code.repeat(code.move(kernel, (n_in, size, c), tap)) for c in range(GROUP)]
                    for (py, px), slots in zip(PHASES, sums, strict=True):
                        pixel = code.load(code.move(pixels, (row, stride * py + ky), VECTOR * (stride * px + kx)))
                        for slot, number in zip(slots, numbers, strict=True):
                            code.multiply_add(slot, pixel, number)
        for c in range(GROUP):
            best, which = code.best([b.load(slots[c]) for slots in sums], code.repeat(code.move(bias, 4 * c)))
            code.store(best, code.move(out, (out_plane, c)))
            code.store(which, code.move(winner, (winner_plane, c)))

    return convolve_pool


convolve_pool_5x5, convolve_pool_3x3 = _convolve_pool(5, 1), _convolve_pool(3, 2)


@emitted
def kernel_gradient_5x5(code, x, grad, winner, out, side, row, grad_row):
    """x, grad and winner: first pixel and cell of the image; side: cells; out: 25 numbers, then the bias's."""
    b, sums = code.builder, code.slots(26)
    with cgutils.for_range(b, side) as y, cgutils.for_range(b, side) as z:
        value = code.load(code.move(grad, (y.index, grad_row), (z.index, VECTOR)))
        which = code.load(code.move(winner, (y.index, side, LANES), (z.index, LANES)), BYTES)
        pixels = code.move(x, (y.index, row, 2), (z.index, 2 * VECTOR))
        for phase, (py, px) in enumerate(PHASES):
            pixels = code.unknown(pixels)
            winning = b.select(code.is_winner(which, phase), value, ZERO)
            b.store(b.fadd(b.load(sums[25]), winning), sums[25])
            for ky in range(5):
                for kx in range(5):
                    pixel = code.load(code.move(pixels, (row, py + ky), VECTOR * (px + kx)))
                    code.multiply_add(sums[5 * ky + kx], pixel, winning)
    for tap, slot in enumerate(sums):
        code.store(code.sum(b.load(slot)), code.move(out, 4 * tap))


@emitted
def spread(code, grad, winner, out, row):
    """grad and winner of one cell -> out: its first output."""
    value, which = code.load(grad), code.load(winner, BYTES)
    for phase, (py, px) in enumerate(PHASES):
        winning = code.builder.select(code.is_winner(which, phase), value, ZERO)
        code.store(winning, code.move(out, (row, py), VECTOR * px))


@emitted
def kernel_gradient_3x3(code, x, grad, out, side, row, grad_plane, grad_row, out_kernel):
    """x: plane of one input channel; grad: GROUP planes of side x side outputs; out: 9 numbers of each."""
    b, sums = code.builder, [code.slots(9) for _ in range(GROUP)]
    with cgutils.for_range(b, side) as y, cgutils.for_range(b, side) as z:
        place = code.move(grad, (y.index, grad_row), (z.index, VECTOR))
        values = [code.load(code.move(place, (grad_plane, c))) for c in range(GROUP)]
        pixels = code.move(x, (y.index, row, 2), (z.index, 2 * VECTOR))
        for tap in range(9):
            pixel = code.load(code.move(pixels, (row, tap // 3), VECTOR * (tap % 3)))
            for slots, value in zip(sums, values, strict=True):
                code.multiply_add(slots[tap], pixel, value)
    for c, slots in enumerate(sums):
        for tap, slot in enumerate(slots):
            code.store(code.sum(b.load(slot)), code.move(out, (out_kernel, c), 4 * tap))


@emitted
def pixel_gradient_3x3(code, grad, w, out, n_out, n_in, grad_plane, grad_row, out_plane, out_row):
    """2 x 2 pixels at even places, of which each sees the outputs within reach of the kernel.

    grad: output at half the pixels' place, in the first of n_out planes; w: kernel of the first input channel.
    """
    b, sums = code.builder, [code.slots(GROUP) for _ in PHASES]
    with cgutils.for_range(b, n_out) as loop:
        place, kernel = code.move(grad, (loop.index, grad_plane)), code.move(w, (loop.index, n_in, 36))
        values = {(up, left): code.load(code.move(place, (grad_row, -up), -VECTOR * left))
                  for up in (0, 1) for left in (0, 1)}
        for ky in range(3):
            for kx in range(3):
                for c, slot in enumerate(sums[PHASES.index((ky % 2, kx % 2))]):
                    number = code.repeat(code.move(kernel, 36 * c + 12 * ky + 4 * kx))
                    code.multiply_add(slot, values[ky // 2, kx // 2], number)
    for (py, px), slots in zip(PHASES, sums, strict=True):
        for c, slot in enumerate(slots):
            code.store(b.load(slot), code.move(out, (out_plane, c), (out_row, py), VECTOR * px))


@intrinsic
def claim(typingctx, job, k):
    """The k-th number of the job, to which one is added, atomically."""

    def emit(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.gep(args[0], [args[1]]), ir.Constant(INT, 1), "monotonic")

    return types.int64(types.CPointer(types.int64), types.int64), emit
