"""The recurrence and its gradient over the rows of a tile, with states and factors in vector registers.

    scan(a, start, v, v_step, xs, x_step, rows, P, end)
        x = a x + v, beginning with ``start``; the last state goes to ``end``
    adjoint(a, g, dxs, d_step, xs, x_step, start, dv, dv_step, rows, P, end, sums)
        g = conj(a) g + dxs, sums += conj(x before) g

All arguments are int64: addresses, bytes from one step to the next, counts. A scan from the end has the addresses of
its last rows and negative steps. ``adjoint`` goes against its scan: ``dxs`` and ``dv`` are addresses of the step it
begins with, ``xs`` of the one after that (the state before it in the scan's order); the step at which the scan began
has ``start`` before it. ``sums`` are 2P float64 numbers, all others 2P float32: planar pairs [re | im].
v and xs, or dxs and dv, may be the same memory. Legend: P modes.
"""

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kws_s5.ops.common.columns import FLOAT, INT, SIZE, add_to_total, kind_of, load, number, store, zeros
from kws_s5.ops.common.vector import Vector

GROUPS = ((16, 2), (16, 1), (1, 1))  # lanes and vectors side by side: additions need not wait for each other


class _Pairs:
    """Complex numbers of one group of modes: n vectors of real parts, n of imaginary ones."""

    def __init__(self, builder, P, index, lanes: int, n: int) -> None:
        self.builder, self.kind = builder, kind_of(FLOAT, lanes)
        real = [builder.add(index, number(i * lanes)) for i in range(n)]
        places = [*real, *(builder.add(i, P) for i in real)]
        self.offsets = [builder.mul(i, number(SIZE)) for i in places]
        self.double_offsets = [builder.mul(i, number(2 * SIZE)) for i in places]

    def load(self, address) -> list[Vector]:
        return [Vector(self.builder, load(self.builder, self.builder.add(address, o), self.kind)) for o in self.offsets]

    def store(self, values: list[Vector], address) -> None:
        for value, offset in zip(values, self.offsets, strict=True):
            store(self.builder, value.value, self.builder.add(address, offset))

    def add_to_totals(self, values: list[Vector], address) -> None:
        for value, offset in zip(values, self.double_offsets, strict=True):
            add_to_total(self.builder, value.value, self.builder.add(address, offset))

    def slots(self, values: list[Vector] | None = None) -> list:
        """Places for values that change in a loop; LLVM makes registers of them."""
        slots = [cgutils.alloca_once(self.builder, self.kind) for _ in self.offsets]
        for k, slot in enumerate(slots):
            self.builder.store(values[k].value if values else zeros(self.kind), slot)
        return slots

    def get(self, slots: list) -> list[Vector]:
        return [Vector(self.builder, self.builder.load(slot)) for slot in slots]

    def put(self, values: list[Vector], slots: list) -> None:
        for value, slot in zip(values, slots, strict=True):
            self.builder.store(value.value, slot)


def _multiply_add(a: list[Vector], b: list[Vector], c: list[Vector], *, conjugate: bool) -> list[Vector]:
    """a b + c, or conj(a) b + c."""
    n = len(a) // 2
    real, imaginary = [], []
    for k in range(n):
        a_re, a_im, b_re, b_im = a[k], a[n + k], b[k], b[n + k]
        re, im = c[k] + a_re * b_re, c[n + k] + a_re * b_im
        real.append(re + a_im * b_im if conjugate else re - a_im * b_im)
        imaginary.append(im - a_im * b_re if conjugate else im + a_im * b_re)
    return real + imaginary


def _over_modes(builder, P, body) -> None:
    """body(pairs) for all P modes, group by group."""
    done = number(0)
    for lanes, n in GROUPS:
        count = builder.udiv(builder.sub(P, done), number(lanes * n))
        with cgutils.for_range(builder, count) as loop:
            body(_Pairs(builder, P, builder.add(done, builder.mul(loop.index, number(lanes * n))), lanes, n))
        done = builder.add(done, builder.mul(count, number(lanes * n)))


def _walk(builder, address, step):
    """Slot of an address, and a function that moves it by one step and returns what it was."""
    slot = cgutils.alloca_once(builder, INT)
    builder.store(address, slot)

    def move():
        here = builder.load(slot)
        builder.store(builder.add(here, step), slot)
        return here

    return move


def _emit_scan(context, builder, signature, args):
    a, start, v, v_step, xs, x_step, rows, P, end = args

    def body(pairs):
        factor, state = pairs.load(a), pairs.slots(pairs.load(start))
        next_v, next_x = _walk(builder, v, v_step), _walk(builder, xs, x_step)
        with cgutils.for_range(builder, rows):
            x = _multiply_add(factor, pairs.get(state), pairs.load(next_v()), conjugate=False)
            pairs.put(x, state)
            pairs.store(x, next_x())
        pairs.store(pairs.get(state), end)

    _over_modes(builder, P, body)
    return context.get_dummy_value()


def _emit_adjoint(context, builder, signature, args):
    a, g, dxs, d_step, xs, x_step, start, dv, dv_step, rows, P, end, sums = args

    def body(pairs):
        factor, adjoint, total = pairs.load(a), pairs.slots(pairs.load(g)), pairs.slots()
        next_d, next_x, next_v = _walk(builder, dxs, d_step), _walk(builder, xs, x_step), _walk(builder, dv, dv_step)

        def step(before):
            here = _multiply_add(factor, pairs.get(adjoint), pairs.load(next_d()), conjugate=True)
            pairs.put(here, adjoint)
            pairs.store(here, next_v())
            pairs.put(_multiply_add(pairs.load(before), here, pairs.get(total), conjugate=True), total)

        with cgutils.for_range(builder, builder.sub(rows, number(1))):
            step(next_x())
        step(start)
        pairs.store(pairs.get(adjoint), end)
        pairs.add_to_totals(pairs.get(total), sums)

    _over_modes(builder, P, body)
    return context.get_dummy_value()


@intrinsic
def scan(typingctx, a, start, v, v_step, xs, x_step, rows, P, end):
    """See the head of this file."""
    return types.void(*[types.int64] * 9), _emit_scan


@intrinsic
def adjoint(typingctx, a, g, dxs, d_step, xs, x_step, start, dv, dv_step, rows, P, end, sums):
    """See the head of this file."""
    return types.void(*[types.int64] * 13), _emit_adjoint
