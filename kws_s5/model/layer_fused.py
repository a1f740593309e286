"""A pre-norm S5 layer with batch norm and gate as one operation on CPUs; equals S5Layer's plain forward (layer.py).

Rows are worked through in tiles that stay in the processor's cache: norm -> product with B_bar -> scan -> product with
C -> GELU, gate, dropout, residual. Of all that only the SSM's drive v = B_bar u and output y are kept for the gradient;
the states never reach main memory: they are computed again from the few at the tiles' edges.
A bidirectional layer goes through the tiles twice, from the end for one direction and from the start for the other.

With ``half`` the matrix products take bfloat16 operands (autocast); norm, states, recurrence and sums stay float32.
Legend: N batch, L steps, H features, P stored states; planar pairs [re | im].
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kws_s5.model import layer_kernel as kernel
from kws_s5.model.joint import joint, n_processes
from kws_s5.model.layer_kernel import Sums, launch
from kws_s5.model.norm import BATCH_EPSILON
from kws_s5.model.products import Products, fresh
from kws_s5.model.tiles import Tile, Tiles
from kws_s5.ssm.scan_cpu import adjoint_into, forward_into


@dataclass(frozen=True)
class Weights:
    """Tensors of a layer. Lambda_bar (2P,), B_bar (2P, H), C (H, 2P) or (H, 4P), D (H,), gate W (H, H) and b (H,)."""

    scale: Tensor
    bias: Tensor
    Lambda_bar: Tensor
    B_bar: Tensor
    C: Tensor
    D: Tensor
    W: Tensor
    b: Tensor


@dataclass(frozen=True)
class Options:
    """lengths (N,) int64 or None; masks (N, 1, H): dropout of the GELU and of the gate, or None; ``gate_y``: the gate
    multiplies y (half_glu2), not GELU(y); ``statistics``: (mean, var) in evaluation, None: those of the batch."""

    lengths: Tensor | None = None
    masks: tuple[Tensor | None, Tensor | None] = (None, None)
    gate_y: bool = False
    half: bool = False
    statistics: tuple[Tensor, Tensor] | None = None


def fused_layer(x: Tensor, weights: Weights, options: Options) -> tuple[Tensor, Tensor, Tensor]:
    """x (N, L, H) -> output (N, L, H), and mean and variance (H,) of the norm (no gradient)."""
    tensors = tuple(vars(weights).values())
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *tensors)):
        return _FusedLayer.apply(options, x, *tensors)
    run = _Layer(x, weights, options)
    return run.forward(keep=False), run.mean, run.var


class _FusedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: Options, x: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        run = _Layer(x, Weights(*weights), options)
        out = run.forward(keep=True)
        ctx.save_for_backward(x, *weights, run.mean, run.var, run.y, run.v, *run.starts)
        ctx.options = options
        ctx.mark_non_differentiable(run.mean, run.var)
        return out, run.mean, run.var

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, G: Tensor, *_: Tensor) -> tuple:
        x, *weights, mean, var, y, v = ctx.saved_tensors[:13]
        run = _Layer(x, Weights(*weights), ctx.options, known=(mean, var))
        run.y, run.v, run.starts = y, v, ctx.saved_tensors[13:]
        return None, *run.backward(G.contiguous())


class _Layer:
    """One call on one batch: what forward and backward share."""

    def __init__(self, x: Tensor, weights: Weights, options: Options, *,
                 known: tuple[Tensor, Tensor] | None = None) -> None:
        self.x, self.w, self.o = x.contiguous(), Weights(*(t.contiguous() for t in vars(weights).values())), options
        self.N, self.L, self.H = x.shape
        self.P2 = len(weights.Lambda_bar)
        self.both = weights.C.shape[1] == 2 * self.P2
        self.tiles = Tiles(self.N, self.L)
        self.flat = self.x.view(-1, self.H)
        self.products = Products(options.half)
        self.mean, self.var = known or options.statistics or self._moments()
        self.inverse = torch.rsqrt(self.var + BATCH_EPSILON)
        self.gain = self.w.scale * self.inverse
        self.masks = [m if m is not None else torch.ones_like(self.w.D) for m in options.masks]
        self.y: Tensor | None = None
        self.v: Tensor | None = None
        self.has_v = False  # v is complete
        operand = self.products.operand
        self.B = operand(self.w.B_bar, "B_bar")
        self.W = operand(self.w.W, "W")
        self.C = [operand(C, f"C{i}") for i, C in enumerate(self.w.C.split(self.P2, 1))]

    def forward(self, *, keep: bool) -> Tensor:
        """Output (N, L, H); with ``keep`` y and the states at the tiles' edges stay for the gradient."""
        out, y, C = fresh(self.flat.shape, self.flat), None, self.C
        if keep or self.both:
            y, self.v = fresh(self.flat.shape, self.flat), fresh((len(self.flat), self.P2), self.flat)
        starts = [self.x.new_zeros(len(self.tiles), self.tiles.clips, self.P2) for _ in C]
        if self.both:
            self._sweep(starts[1], backward=True, into=lambda tile, u, xs: self.products(xs, C[1].T, y[tile.rows]))
            self.has_v = True

        def finish(tile: Tile, u: Tensor, xs: Tensor) -> None:
            here = self.tiles.scratch("y", tile, self.H, self.x) if y is None else y[tile.rows]
            self.products(xs, C[0].T, here, add=self.both)
            self._epilogue(tile, here, u, out[tile.rows])

        self._sweep(starts[0], backward=False, into=finish)
        if keep:
            self.y, self.starts = y, starts
        return out.view_as(self.x)

    def backward(self, G: Tensor) -> tuple[Tensor, ...]:
        """Gradients of x and of every tensor of Weights, in order."""
        w, P2 = self.w, self.P2
        self.G, self.dy, self.has_v = G.view(-1, self.H), fresh(self.flat.shape, self.flat), True
        self.dW, self.dB, self.dC = torch.zeros_like(w.W), torch.zeros_like(w.B_bar), torch.zeros_like(w.C)
        self.gate_sums, self.sums = Sums(1, self.tiles.most, self.x), Sums(3, self.tiles.most, self.x)
        self.dLambda = torch.zeros(self.N, P2, dtype=torch.float64)
        g = fresh((len(self.flat), P2), self.flat) if self.both else None
        if self.both:
            self._adjoint_sweep(1, g)
        self._adjoint_sweep(0, g)
        dD, dbias, dscale = self.sums.result()
        if self.o.statistics is None:
            all_dscale, all_dbias, n_valid = joint(dscale, dbias, self._n_valid())
            slope = -(all_dscale * self.inverse * self.gain / n_valid).to(self.x)
            offset = -(all_dbias * self.gain / n_valid).to(self.x)
        else:
            slope = offset = torch.zeros_like(w.D)
        launch(kernel.NORM_GRADIENT, [self.dy, self.G, self.dy, self.flat, self.mean, self.gain, slope, offset],
               first=0, L=self.L, lengths=self.o.lengths)
        like = self.x
        return (self.dy.view_as(self.x), dscale.to(like), dbias.to(like), self.dLambda.sum(0).to(like), self.dB,
                self.dC, dD.to(like), self.dW, self.gate_sums.result()[0].to(like))

    def _moments(self) -> tuple[Tensor, Tensor]:
        sums, (origin,) = Sums(2, len(self.flat), self.x), joint(self.flat[0].clone())
        origin /= n_processes()
        launch(kernel.MOMENTS, [self.flat, origin], first=0, L=self.L, lengths=self.o.lengths, sums=sums)
        total, n_valid = joint(sums.result(), self._n_valid())
        mean, square = total / n_valid
        return (origin + mean).to(self.x), (square - mean * mean).clamp(min=0.0).to(self.x)

    def _n_valid(self) -> Tensor:
        lengths = self.o.lengths
        n_valid = self.N * self.L if lengths is None else max(1, int(lengths.clamp(0, self.L).sum()))
        return torch.tensor(n_valid, dtype=torch.float64)

    def _sweep(self, starts: Tensor, *, backward: bool, into: Any) -> None:
        """Scans all tiles in one direction, keeps the state before each in ``starts``; into(tile, u, xs) goes on."""
        states = self.x.new_zeros(self.N, self.P2)
        order = range(len(self.tiles))
        for i in reversed(order) if backward else order:
            tile = self.tiles[i]
            here = starts[i, : tile.n_clips]
            here.copy_(states[tile.clips])
            u = None if backward and self.has_v else self._input(tile)
            xs = self._states(tile, u, here, backward)
            into(tile, u, xs)
            states[tile.clips] = xs.view(tile.n_clips, -1, self.P2)[:, 0 if backward else -1]

    def _input(self, tile: Tile) -> Tensor:
        """Normalised inputs (rows, H) of a tile, 0 in the padding."""
        u = self.tiles.scratch("u", tile, self.H, self.x)
        launch(kernel.AFFINE, [u, self.flat[tile.rows], self.mean, self.gain, self.w.bias], first=tile.rows.start,
               L=self.L, lengths=self.o.lengths)
        return u

    def _states(self, tile: Tile, u: Tensor | None, start: Tensor, backward: bool) -> Tensor:
        """States (rows, 2P) of a tile; v is taken where it is known, else made from u, and kept if there is a place."""
        v = self.tiles.scratch("v", tile, self.P2, self.x) if self.v is None else self.v[tile.rows]
        if not self.has_v:
            self.products(u, self.B.T, v)
        xs = self.tiles.scratch("xs", tile, self.P2, self.x)
        forward_into(xs, self.w.Lambda_bar, v, start, (tile.n_clips, tile.n_steps, self.P2 // 2), backward=backward)
        return xs

    def _epilogue(self, tile: Tile, y: Tensor, u: Tensor, out: Tensor) -> None:
        first, L = tile.rows.start, self.L
        h = self.tiles.scratch("h", tile, self.H, self.x)
        launch(kernel.ACTIVATE, [y, u, self.w.D, self.masks[0], h], first=first, L=L)
        z = self.products(h, self.W.T, self.tiles.scratch("z", tile, self.H, self.x))
        value = y if self.o.gate_y else h
        launch(kernel.COMBINE, [out, self.flat[tile.rows], value, z, self.w.b, self.masks[1]], first=first, L=L)

    def _adjoint_sweep(self, direction: int, g: Tensor | None) -> None:
        """One direction's gradient, against its scan; the second direction's goes to ``g``, the first ends in dy."""
        backward = direction == 1
        dC = self.dC[:, direction * self.P2 : (direction + 1) * self.P2]
        carried = self.x.new_zeros(self.N, self.P2)
        order = range(len(self.tiles))
        for i in order if backward else reversed(order):
            tile = self.tiles[i]
            dy, sizes = self.dy[tile.rows], (tile.n_clips, tile.n_steps, self.P2 // 2)
            if backward or not self.both:
                self._epilogue_gradient(tile, dy)
            start = self.starts[direction][i, : tile.n_clips]
            xs, low = self._states(tile, None, start, backward), self.products.operand(dy, "a")
            dxs = self.products(low, self.C[direction], self.tiles.scratch("dxs", tile, self.P2, self.x))
            self.products(low.T, self.products.operand(xs, "xs"), dC, add=True)
            dv = g[tile.rows] if backward else self.tiles.scratch("dv", tile, self.P2, self.x)
            adjoint_into(dv, self.w.Lambda_bar, xs, start, dxs, carried[tile.clips], self.dLambda[tile.clips], sizes,
                         backward=backward)
            if not backward:
                self._input_gradient(tile, dv if g is None else dv.add_(g[tile.rows]), dy)

    def _epilogue_gradient(self, tile: Tile, dy: Tensor) -> None:
        """dy of a tile from the gradient of its output."""
        w, first, L, H = self.w, tile.rows.start, self.L, self.H
        y, G = self.y[tile.rows], self.G[tile.rows]
        h, z, dz, dvalue = (self.tiles.scratch(name, tile, H, self.x) for name in ("h", "z", "dz", "dvalue"))
        launch(kernel.ACTIVATE_AGAIN, [y, self.masks[0], h], first=first, L=L)
        low = self.products.operand(h, "h")
        self.products(low, self.W.T, z)
        launch(kernel.GATE_GRADIENT, [G, y if self.o.gate_y else h, z, w.b, self.masks[1], dz, dvalue], first=first,
               L=L, sums=self.gate_sums)
        low_dz = self.products.operand(dz, "a")
        self.products(low_dz.T, low, self.dW, add=True)
        dh = self.products(low_dz, self.W, z)
        zero = torch.zeros_like(w.D)
        through_h, direct = (zero, dvalue) if self.o.gate_y else (dvalue, zero)
        launch(kernel.GELU_GRADIENT, [dy, y, self.masks[0], dh, through_h, direct], first=first, L=L)

    def _input_gradient(self, tile: Tile, dv: Tensor, dy: Tensor) -> None:
        """Turns dy of a tile into du, in place."""
        w, u, low = self.w, self._input(tile), self.products.operand(dv, "a")
        self.products(low.T, self.products.operand(u, "u"), self.dB, add=True)
        through_B = self.products(low, self.B, self.tiles.scratch("h", tile, self.H, self.x))
        launch(kernel.INPUT_GRADIENT, [dy, through_B, dy, w.D, u, self.flat[tile.rows], self.mean, self.inverse],
               first=tile.rows.start, L=self.L, lengths=self.o.lengths, sums=self.sums)
