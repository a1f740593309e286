"""What a fused S5 layer does with a tile of rows, forwards and for the gradient, as programs (program.py).

Each goes once through all tiles. Names of tensors are those of fused.py; direction 0 is the scan from the start,
1 the one from the end. ``gradient_from_end`` undoes ``from_end`` and therefore runs in the order of time.

Legend: N batch, L steps, H features, P stored states.
"""

from dataclasses import dataclass
from functools import lru_cache

from kws_s5.ops.layer.elementwise import (
    ACTIVATE,
    ACTIVATE_ADD,
    ACTIVATE_AGAIN,
    ADD,
    AFFINE,
    CLEAR,
    COMBINE,
    COPY,
    GATE_GRADIENT,
    GELU_GRADIENT,
    GELU_GRADIENT_DIRECT,
    INPUT_GRADIENT,
    MOMENTS,
    NORM_GRADIENT,
    NORM_SUMS,
    OUTPUT,
    OUTPUT_ADD,
)
from kws_s5.ops.layer.kernel import ADJOINT, ALL, OUTER, PADDING, PRODUCT, SCAN, VALID
from kws_s5.ops.layer.program import Memory, Operand, Products, Program, Shape, filled

KEPT = 64  # forms whose programs are remembered


@dataclass(frozen=True)
class Form:
    """All that the steps depend on. masks: whether there is dropout of the GELU and of the gate; ``ssm_norm``: y is
    normalised, so that the way ends there until the statistics are known."""

    N: int
    L: int
    threads: int
    H: int
    P2: int
    both: bool
    gate_y: bool
    products: Products
    padded: bool
    masks: tuple[bool, bool]
    ssm_norm: bool = False

    @property
    def shape(self) -> Shape:
        return Shape(self.N, self.L, self.threads)


class Programs:
    """The programs of one form."""

    def __init__(self, form: Form) -> None:
        self.form, self.memory = form, Memory(form.shape, form.products)
        self.valid = VALID if form.padded else ALL
        self.work = self.memory.work(form.H, form.P2)
        self.moments = self._moments("x")
        self.from_start, self.norm_gradient = self._from_start(), self._norm_gradient()
        self.gradient_from_start = self._gradient_from_start()
        if form.ssm_norm:
            self.y_moments, self.gated, self.gated_gradient = self._moments("y"), self._gated(), self._gated_gradient()
            self.y_norm_gradient = self._y_norm_gradient()
        if form.both:
            self.from_end, self.gradient_from_end = self._from_end(), self._gradient_from_end()

    def _moments(self, name: str) -> Program:
        p, H = Program(self.memory), self.form.H
        p.add(MOMENTS, H, p.rows(name, H), p.row("origin"), *_parts("moments", H, 2), part=self.valid)
        return p

    def _from_end(self) -> Program:
        """The part of y that comes from the states after it."""
        p, H = Program(self.memory), self.form.H
        self._states(p, 1, keep=True)
        y = self._readout(p, 1)
        p.add(COPY, H, p.rows("y", H), y)
        return p

    def _from_start(self) -> Program:
        """y and the layer's output; y alone where a norm follows."""
        p, H = Program(self.memory), self.form.H
        u = self._states(p, 0, keep=True)
        y, kept = self._readout(p, 0), p.rows("y", H)
        if self.form.ssm_norm:
            p.add(OUTPUT_ADD if self.form.both else OUTPUT, H, kept, y, u, p.row("D"))
            return p
        h = self.memory.scratch("h", H)
        p.add(ACTIVATE_ADD if self.form.both else ACTIVATE, H, kept, y, u, p.row("D"), self._mask(p, 0), h)
        self._combine(p, kept, h)
        return p

    def _gated(self) -> Program:
        """From y to the layer's output where a norm stands between."""
        p, H = Program(self.memory), self.form.H
        y, h = self._normalised(p), self.memory.scratch("h", H)
        p.add(ACTIVATE_AGAIN, H, y, self._mask(p, 0), h)
        self._combine(p, y, h)
        return p

    def _gated_gradient(self) -> Program:
        """From the output's gradient to that of the norm behind the SSM, at ``dy``."""
        p, H = Program(self.memory), self.form.H
        self._output_gradient(p, self._normalised(p))
        p.add(
            NORM_SUMS,
            H,
            self.memory.scratch("dy", H),
            p.rows("y", H),
            p.row("y_mean"),
            p.row("y_inverse"),
            *_parts("y_sums", H, 2),
        )
        return p

    def _y_norm_gradient(self) -> Program:
        """That norm's own gradient, in place. Padding took no part in its statistics."""
        p, H = Program(self.memory), self.form.H
        dy, zeros = p.rows("dy", H), p.row("zeros")
        p.add(
            NORM_GRADIENT,
            H,
            dy,
            zeros,
            p.rows("y", H),
            p.row("y_mean"),
            p.row("y_gain"),
            p.row("y_slope"),
            p.row("y_offset"),
            part=self.valid,
        )
        if self.form.padded:
            p.add(AFFINE, H, dy, dy, zeros, p.row("y_gain"), zeros, part=PADDING)
        return p

    def _gradient_from_end(self) -> Program:
        """From the output's gradient to y's, and to that of the drive through the states from the end."""
        p = Program(self.memory)
        self._begin_gradient(p, first=True)
        self._states(p, 1, keep=False)
        dv = self._state_gradient(p, 1)
        p.add(COPY, self.form.P2, p.rows("dv", self.form.P2), dv)
        return p

    def _gradient_from_start(self) -> Program:
        """All the rest, down to the gradient of the norm's output, at ``dy``."""
        p, form, H, P2 = Program(self.memory), self.form, self.form.H, self.form.P2
        dy, du = self.memory.scratch("dy", H), self.memory.scratch("z", H)
        self._begin_gradient(p, first=not form.both)
        u = self._states(p, 0, keep=False)
        dv = self._state_gradient(p, 0)
        if form.both:
            p.add(ADD, P2, dv, p.rows("dv", P2))
        p.add(OUTER, P2, dv, u, p.sums("dB", filled(H), filled(P2)), self.work, numbers=(H, 0))
        self._product(p, dv, "B_back", du, P2, H)
        p.add(
            INPUT_GRADIENT,
            H,
            p.rows("dy", H),
            du,
            dy,
            p.row("D"),
            u,
            p.rows("x", H),
            p.row("mean"),
            p.row("inverse"),
            *_parts("sums", H, 3),
            part=self.valid,
        )
        if form.padded:
            p.add(CLEAR, H, p.rows("dy", H), part=PADDING)
        return p

    def _norm_gradient(self) -> Program:
        """The norm's own gradient, and that of the residual."""
        p, H = Program(self.memory), self.form.H
        out, G = p.rows("dy", H), p.rows("G", H)
        p.add(
            NORM_GRADIENT,
            H,
            out,
            G,
            p.rows("x", H),
            p.row("mean"),
            p.row("gain"),
            p.row("slope"),
            p.row("offset"),
            part=self.valid,
        )
        if self.form.padded:
            p.add(COPY, H, out, G, part=PADDING)
        return p

    def _states(self, p: Program, direction: int, *, keep: bool) -> Operand:
        """States of a tile at scratch "xs"; returns its input u. keep: the next tile starts with the last one."""
        form, H, P2 = self.form, self.form.H, self.form.P2
        u, xs = self.memory.scratch("u", H), self.memory.scratch("xs", P2)
        p.add(AFFINE, H, u, p.rows("x", H), p.row("mean"), p.row("gain"), p.row("bias"), part=self.valid)
        if form.padded:
            p.add(CLEAR, H, u, part=PADDING)
        self._product(p, u, "B", xs, H, P2)
        start = p.tiles(f"start{direction}", P2)
        p.add(
            SCAN,
            P2 // 2,
            p.row("Lambda"),
            xs,
            start,
            xs,
            p.sums("last", P2),
            numbers=(start.by_tile if keep else 0, direction),
        )
        return u

    def _readout(self, p: Program, direction: int) -> Operand:
        y = self.memory.scratch("dy", self.form.H)
        self._product(p, self.memory.scratch("xs", self.form.P2), f"C{direction}", y, self.form.P2, self.form.H)
        return y

    def _normalised(self, p: Program) -> Operand:
        """y behind its norm, at scratch "v"."""
        v = self.memory.scratch("v", self.form.H)
        p.add(AFFINE, self.form.H, v, p.rows("y", self.form.H), p.row("y_mean"), p.row("y_gain"), p.row("y_bias"))
        return v

    def _combine(self, p: Program, y: Operand, h: Operand) -> None:
        """The layer's output from y and h = GELU(y)."""
        H, z = self.form.H, self.memory.scratch("z", self.form.H)
        self._product(p, h, "W", z, H, H)
        p.add(
            COMBINE, H, p.rows("out", H), p.rows("x", H), y if self.form.gate_y else h, z, p.row("b"), self._mask(p, 1)
        )

    def _begin_gradient(self, p: Program, *, first: bool) -> None:
        """The gradient of y at scratch "dy": worked out by the first direction, unless a norm had it done before."""
        H = self.form.H
        if first and not self.form.ssm_norm:
            self._output_gradient(p, p.rows("y", H))
        else:
            p.add(COPY, H, self.memory.scratch("dy", H), p.rows("dy", H))

    def _output_gradient(self, p: Program, y: Operand) -> None:
        """The gradient of what the gate and the GELU see of y, at scratch and tensor "dy"."""
        form, H = self.form, self.form.H
        h, z, dz, dvalue, dy = (self.memory.scratch(name, H) for name in ("h", "z", "dz", "dvalue", "dy"))
        p.add(ACTIVATE_AGAIN, H, y, self._mask(p, 0), h)
        self._product(p, h, "W", z, H, H)
        p.add(
            GATE_GRADIENT,
            H,
            p.rows("G", H),
            y if form.gate_y else h,
            z,
            p.row("b"),
            self._mask(p, 1),
            dz,
            dvalue,
            p.sums("db", H, size=8),
        )
        p.add(OUTER, H, dz, h, p.sums("dW", filled(H), filled(H)), self.work, numbers=(H, 0))
        self._product(p, dz, "W_back", z, H, H)
        p.add(
            GELU_GRADIENT_DIRECT if form.gate_y else GELU_GRADIENT,
            H,
            dy,
            p.rows("dy", H),
            y,
            self._mask(p, 0),
            z,
            dvalue,
        )

    def _state_gradient(self, p: Program, direction: int) -> Operand:
        """The gradient of the drive through one direction's states, at scratch "dxs"; those of C and Lambda_bar."""
        H, P2 = self.form.H, self.form.P2
        dy, xs, dxs = (self.memory.scratch(name, n) for name, n in (("dy", H), ("xs", P2), ("dxs", P2)))
        self._product(p, dy, f"C{direction}_back", dxs, H, P2)
        p.add(OUTER, H, dy, xs, p.sums(f"dC{direction}", filled(P2), filled(H)), self.work, numbers=(P2, 0))
        g = p.tiles(f"g{direction}", P2)
        p.add(
            ADJOINT,
            P2 // 2,
            p.row("Lambda"),
            dxs,
            xs,
            p.tiles(f"start{direction}", P2),
            g,
            p.sums("last", P2),
            p.sums("dLambda", P2, size=8),
            numbers=(g.by_tile, 1 - direction),
        )
        return dxs

    def _product(self, p: Program, a: Operand, weight: str, out: Operand, K: int, O: int) -> None:
        p.add(PRODUCT, K, a, p.row(weight), out, self.work, numbers=(O, 0))

    def _mask(self, p: Program, k: int) -> Operand:
        name = f"mask{k}"
        return p.clips(name, self.form.H) if self.form.masks[k] else p.row(name)


@lru_cache(maxsize=KEPT)
def programs(form: Form) -> Programs:
    """The programs of a form, written once."""
    return Programs(form)


def _parts(name: str, H: int, n: int) -> list[Operand]:
    """n sums of H float64 numbers side by side."""
    return [Operand(name, by_item=8 * n * H, offset=8 * k * H) for k in range(n)]
