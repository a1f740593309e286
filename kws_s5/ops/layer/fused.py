"""A pre-norm S5 layer with batch norm and gate as one operation on CPUs; equals S5Layer's plain forward (layer.py).

    norm -> product with B_bar -> scan -> product with C -> (norm ->) GELU, gate, dropout, residual

Compiled code takes one short tile of rows after the other through all of it, in the processor's cache (program.py,
programs.py). Only the SSM's output y is kept for the gradient; all else, the states too, is computed again from
the few states at the tiles' edges. A bidirectional layer goes through the tiles twice, from the end for one direction
and from the start for the other, and where a norm stands behind the SSM once more from y on. Products can take
bfloat16 operands where the processor has a unit for them (AMX); norm, states, recurrence and sums are float32 always.

Legend: N batch, L steps, H features, P stored states; planar pairs [re | im].
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kws_s5.ops.common.all_reduce import all_reduce, n_processes
from kws_s5.ops.common.amx import has_amx
from kws_s5.ops.common.huge_pages import fresh
from kws_s5.ops.layer.packing import pack
from kws_s5.ops.layer.program import Products, filled
from kws_s5.ops.layer.programs import Form, programs

EPSILON = 1e-5  # of the variance in batch norms, as in model/norm.py


@dataclass(frozen=True)
class Weights:
    """Tensors of a layer. Lambda_bar (2P,), B_bar (2P, H), C (H, 2P) or (H, 4P), D (H,), gate W (H, H) and b (H,);
    scale and bias (H,) of the norm before the SSM and, if there is one, of the norm behind it."""

    scale: Tensor
    bias: Tensor
    Lambda_bar: Tensor
    B_bar: Tensor
    C: Tensor
    D: Tensor
    W: Tensor
    b: Tensor
    y_scale: Tensor | None = None
    y_bias: Tensor | None = None


@dataclass(frozen=True)
class Options:
    """lengths (N,) int64 or None; masks (N, 1, H): dropout of the GELU and of the gate, or None; ``gate_y``: the gate
    multiplies y (half_glu2), not GELU(y); ``statistics``: (mean, var) of each norm in evaluation, or None."""

    lengths: Tensor | None = None
    masks: tuple[Tensor | None, Tensor | None] = (None, None)
    gate_y: bool = False
    products: Products = "full"
    statistics: tuple[Tensor, ...] | None = None


def fused_layer(x: Tensor, weights: Weights, options: Options) -> tuple[Tensor, ...]:
    """x (N, L, H) float32 -> output (N, L, H), and mean and variance (H,) of each norm (no gradient)."""
    tensors = tuple(vars(weights).values())
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *tensors)):
        return _FusedLayer.apply(options, x, *tensors)
    run = _Layer(x, weights, options)
    return run.forward(), *run.statistics


class _FusedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: Options, x: Tensor, *weights: Tensor | None) -> tuple[Tensor, ...]:
        run = _Layer(x, Weights(*weights), options)
        out = run.forward()
        ctx.save_for_backward(x, *weights, run.y, *run.statistics, *run.starts)
        ctx.options, ctx.sizes = options, (len(weights), len(run.statistics))
        ctx.mark_non_differentiable(*run.statistics)
        return out, *run.statistics

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, G: Tensor, *_: Tensor) -> tuple:
        n_weights, n_statistics = ctx.sizes
        x, *rest = ctx.saved_tensors
        weights, y, rest = rest[:n_weights], rest[n_weights], rest[n_weights + 1 :]
        run = _Layer(x, Weights(*weights), ctx.options, known=tuple(rest[:n_statistics]))
        run.y, run.starts = y, rest[n_statistics:]
        return None, *run.backward(G.contiguous())


class _Layer:
    """One call on one batch: what forward and backward share."""

    def __init__(
        self, x: Tensor, weights: Weights, options: Options, *, known: tuple[Tensor, ...] | None = None
    ) -> None:
        """known: mean and variance of each norm, if this is not the first call."""
        weights = Weights(*(t if t is None else t.contiguous() for t in vars(weights).values()))
        self.x, self.w, self.o = x.contiguous(), weights, options
        self.N, self.L, self.H = x.shape
        self.P2 = len(weights.Lambda_bar)
        self.both = weights.C.shape[1] == 2 * self.P2
        self.products: Products = options.products if has_amx() else "full"
        self.form = Form(
            self.N,
            self.L,
            torch.get_num_threads(),
            self.H,
            self.P2,
            self.both,
            options.gate_y,
            self.products,
            options.lengths is not None,
            tuple(m is not None for m in options.masks),
            weights.y_scale is not None,
        )
        self.programs = programs(self.form)
        self.items = len(self.programs.memory.items)
        w, one = self.w, torch.ones_like(self.w.D)
        self.C = [C.contiguous() for C in w.C.split(self.P2, 1)]
        self.places: dict[str, Tensor] = {
            "x": self.x,
            "Lambda": w.Lambda_bar,
            "D": w.D,
            "b": w.b,
            "zeros": x.new_zeros(filled(max(self.H, self.P2))),
            "mask0": one if options.masks[0] is None else options.masks[0],
            "mask1": one if options.masks[1] is None else options.masks[1],
            "last": x.new_empty(self.items, self.P2),
        }
        given = known or options.statistics
        self.statistics: tuple[Tensor, ...] = given[:2] if given else self._moments("x")
        self._place_norm("", self.statistics, w.scale, w.bias)
        if self.form.ssm_norm and given:
            self._place_y_norm(given[2:])

    def forward(self) -> Tensor:
        """Output (N, L, H); y and the states at the tiles' edges stay for the gradient."""
        out, self.y = fresh(self.x.shape, self.x), fresh(self.x.shape, self.x)
        n = self.N * self.form.shape.n_tiles
        self.starts = [self.x.new_zeros(n, self.P2) for _ in self.C]
        self.places |= {"out": out, "y": self.y}
        self._pack({"B": self.w.B_bar, "W": self.w.W, **{f"C{i}": C for i, C in enumerate(self.C)}})
        self.places |= {f"start{i}": start for i, start in enumerate(self.starts)}
        if self.both:
            self._run("from_end", backward=True)
        self._run("from_start", backward=False)
        if self.form.ssm_norm:
            if self.o.statistics is None:
                self._place_y_norm(self._moments("y"))
            self._run("gated", backward=False)
        return out

    def backward(self, G: Tensor) -> tuple[Tensor, ...]:
        """Gradients of x and of every tensor of Weights, in order."""
        w, new, H, P2 = self.w, self.x.new_zeros, self.H, self.P2
        dx = fresh(self.x.shape, self.x)
        matrices = {"dW": w.W, "dB": w.B_bar, **{f"dC{i}": C for i, C in enumerate(self.C)}}
        sums = {name: new(self.items, filled(m.shape[0]), filled(m.shape[1])) for name, m in matrices.items()}
        sums |= {
            name: torch.zeros(self.items, n, width, dtype=torch.float64)
            for name, n, width in (("db", 1, H), ("sums", 3, H), ("y_sums", 2, H), ("dLambda", 1, P2))
        }
        self.places |= {"G": G, "y": self.y, "dy": dx, **sums}
        self._pack(
            {
                "B": w.B_bar,
                "W": w.W,
                "W_back": w.W.T,
                "B_back": w.B_bar.T,
                **{f"C{i}_back": C.T for i, C in enumerate(self.C)},
            }
        )
        for i, start in enumerate(self.starts):
            edges = new(self.N * self.form.shape.n_tiles, P2)
            self.places |= {f"start{i}": start, f"g{i}": edges}
        if self.form.ssm_norm:
            self._run("gated_gradient", backward=False)
            self._norm_gradient("y_", *sums["y_sums"].sum(0))
        if self.both:
            self.places["dv"] = fresh((self.N * self.L, P2), self.x)
            self._run("gradient_from_end", backward=False)
        self._run("gradient_from_start", backward=True)
        dD, dbias, dscale = sums["sums"].sum(0)
        self._norm_gradient("", dbias, dscale)
        dW, dB, *dC = (sums[name].sum(0)[: m.shape[0], : m.shape[1]] for name, m in matrices.items())
        vectors = (t.to(self.x) for t in (dscale, dbias, sums["dLambda"].sum((0, 1))))
        behind = sums["y_sums"].sum(0).to(self.x).flip(0) if self.form.ssm_norm else (None, None)  # scale, bias
        return dx, *vectors, dB, torch.cat(dC, 1), dD.to(self.x), dW, sums["db"].sum((0, 1)).to(self.x), *behind

    def _place_norm(self, name: str, statistics: tuple[Tensor, ...], scale: Tensor, bias: Tensor) -> None:
        """Puts a norm's numbers where programs look for them; name: "", or "y_" for the one behind the SSM."""
        mean, var = statistics
        inverse = torch.rsqrt(var + EPSILON)
        self.places |= {
            f"{name}mean": mean,
            f"{name}inverse": inverse,
            f"{name}gain": scale * inverse,
            f"{name}bias": bias,
        }

    def _place_y_norm(self, statistics: tuple[Tensor, ...]) -> None:
        self.statistics += statistics
        self._place_norm("y_", statistics, self.w.y_scale, self.w.y_bias)

    def _norm_gradient(self, name: str, dbias: Tensor, dscale: Tensor) -> None:
        gain = self.places[f"{name}gain"]
        if self.o.statistics is None:
            all_dscale, all_dbias, n_valid = all_reduce(dscale, dbias, self._n_valid())
            share = gain / n_valid
            slope, offset = -(all_dscale * self.places[f"{name}inverse"] * share), -(all_dbias * share)
        else:
            slope = offset = torch.zeros_like(gain)
        self.places |= {f"{name}slope": slope.to(self.x), f"{name}offset": offset.to(self.x)}
        self._run(f"{name}norm_gradient", backward=False)

    def _moments(self, name: str) -> tuple[Tensor, Tensor]:
        """Mean and biased variance (H,) of x or y, over the valid rows of all processes."""
        (origin,) = all_reduce(self.places[name].view(-1, self.H)[0].clone())
        origin /= n_processes()
        sums = torch.zeros(self.items, 2, self.H, dtype=torch.float64)
        self.places |= {"origin": origin, "moments": sums}
        self._run("moments" if name == "x" else "y_moments", backward=False)
        total, n_valid = all_reduce(sums.sum(0), self._n_valid())
        mean, square = total / n_valid
        return (origin + mean).to(self.x), (square - mean * mean).clamp(min=0.0).to(self.x)

    def _n_valid(self) -> Tensor:
        lengths = self.o.lengths
        n_valid = self.N * self.L if lengths is None else max(1, int(lengths.clamp(0, self.L).sum()))
        return torch.tensor(n_valid, dtype=torch.float64)

    def _pack(self, matrices: dict[str, Tensor]) -> None:
        """(O, K) each, as the products want them."""
        packed = pack(list(matrices.values()), self.products)
        self.places |= dict(zip(matrices, packed, strict=True))

    def _run(self, name: str, *, backward: bool) -> None:
        getattr(self.programs, name).run(self.places, backward=backward, lengths=self.o.lengths)
