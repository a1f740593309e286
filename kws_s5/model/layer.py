"""One layer: norm -> mixer -> nonlinearity -> plus the input (S5 paper, section 3 and appendix B, whose mixer is S5).

With d = dropout, g = GELU (tanh form, as the official code), s = sigmoid and y the mixer's output:
    full_glu    h = d(g(y)),  out1(h) * s(out2(h))
    half_glu1   h = d(g(y)),  h * s(out2(h))
    half_glu2   h = d(g(y)),  y * s(out2(h))
    gelu        d(g(y))
    none        d(y)                                relu   dropout(relu(y)), as in convolutional nets
The three gated forms are dropped out once more. Pre-norm normalises the mixer's input, post-norm the layer's output,
except with mixers whose norm stands between them and the nonlinearity; with ssm_norm (not in the paper) y is the
normalised output of the mixer. Dropout masks are shared over time, (N, 1, H), except relu's.

What a mixer is, and what it can do: mixers/protocol.py.
Legend: N batch, L steps, H features, P stored states.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config.mixers import Mixer
from kws_s5.config.model import Activation, Norm
from kws_s5.errors import UserError
from kws_s5.mixers.protocol import build_mixer
from kws_s5.model.dense import dense
from kws_s5.model.norm import BatchNorm, LayerNorm
from kws_s5.ops.switch import compiled, ready
from kws_s5.ssm.s5 import S5SSM

GATED = ("full_glu", "half_glu1", "half_glu2")


class S5Layer(nn.Module):
    """x (N, L, H) -> (N, L, H), around any mixer."""

    fuse: bool = True
    """On CPUs the whole layer runs as one operation where it can (layer/fused.py); False: never, the reference."""

    def __init__(
        self,
        H: int,
        mixer: Mixer,
        *,
        activation: Activation = "half_glu1",
        dropout: float = 0.0,
        norm: Norm = "batch",
        prenorm: bool = True,
        ssm_norm: bool = False,
        norm_momentum: float = 0.95,
    ) -> None:
        """H: features in and out; dropout: probability; norm_momentum: see BatchNorm."""
        super().__init__()
        self.activation, self.dropout, self.prenorm = activation, dropout, prenorm
        self.norm = _norm(norm, H, norm_momentum)
        self.ssm_norm = _norm(norm, H, norm_momentum) if ssm_norm else None
        self.seq = build_mixer(mixer, H)
        self.norm_place = "between" if self.seq.norm_between else "before" if prenorm else "after"
        if activation == "full_glu":
            self.out1 = dense(H, H)
        if activation in GATED:
            self.out2 = dense(H, H)

    def forward(
        self, x: Tensor, *, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None
    ) -> Tensor:
        """The layer on whole clips.

        Args:
            x: (N, L, H).
            lengths: (N,) valid steps; None: every row is full. Padding never changes a valid step, in either direction.
            step_rescale: train rate / rate, a number or (N,).
            dt: (N, L) step multipliers, or None.
        """
        if self._can_fuse(x, step_rescale, dt):
            return self._fused(x, lengths, step_rescale)
        if dt is not None and not self.seq.takes_intervals:
            raise UserError(
                f"model.mixer: {type(self.seq).__name__} takes no intervals between steps; "
                "use S5, or data without intervals"
            )
        u = self.norm(x, lengths) if self.norm_place == "before" else x
        y = self.seq(u, step_rescale=step_rescale, dt=dt, lengths=lengths)
        z = self._activate(self._normalised(y, lengths), x)
        return self.norm(z, lengths) if self.norm_place == "after" else z

    def stream(self, x: Tensor, state: Tensor, *, step_rescale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """The next chunk of a stream, in evaluation mode: x (N, l, H), mixer's state -> (N, l, H), the next state."""
        assert not self.training, "streams run in evaluation mode"
        u = self.norm(x) if self.norm_place == "before" else x
        y, state = self.seq.stream(u, state, step_rescale=step_rescale)
        z = self._activate(self._normalised(y), x)
        return (self.norm(z) if self.norm_place == "after" else z), state

    def _normalised(self, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The mixer's output (N, L, H) through the norms that stand behind it."""
        y = self.norm(y, lengths) if self.norm_place == "between" else y
        return y if self.ssm_norm is None else self.ssm_norm(y, lengths)

    def _activate(self, y: Tensor, skip: Tensor) -> Tensor:
        """skip + nonlinearity(y), both (N, L, H)."""
        if self.activation == "none":
            return skip + self._drop(y)
        if self.activation == "relu":
            return skip + F.dropout(F.relu(y), self.dropout, self.training)
        h = self._drop(F.gelu(y, approximate="tanh"))
        if self.activation == "gelu":
            return skip + h
        gate = self._drop(torch.sigmoid(self.out2(h)))  # dropping the gate drops the product
        if self.activation == "full_glu":
            h = self.out1(h)
        elif self.activation == "half_glu2":
            h = y
        return torch.addcmul(skip, h.to(skip.dtype), gate.to(skip.dtype))

    def _drop(self, h: Tensor) -> Tensor:
        """Dropout with one mask for all steps of a clip."""
        mask = self._mask(h)
        return h if mask is None else h * mask

    def _mask(self, h: Tensor) -> Tensor | None:
        """(N, 1, H) of 0 and 1 / (1 - p) for h (N, L, H); None where nothing is dropped."""
        if not self.training or self.dropout == 0.0:
            return None
        kept = 1.0 - self.dropout
        return h.new_empty((h.shape[0], 1, h.shape[2])).bernoulli_(kept).div_(kept)

    def _can_fuse(self, x: Tensor, step_rescale: float | Tensor, dt: Tensor | None) -> bool:
        """Whether layer/fused.py has this layer: its usual form, one rate for all clips, float32 on a CPU."""
        if not isinstance(self.seq, S5SSM):
            return False
        usual = self.prenorm and isinstance(self.norm, BatchNorm) and self.activation in ("half_glu1", "half_glu2")
        held = dt is None and self.seq.interpolation == "hold" and not getattr(step_rescale, "ndim", 0)
        here = x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[0] * x.shape[1] > 1
        if not (self.fuse and usual and held and here and compiled()):
            return False
        if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") != torch.bfloat16:
            return False
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.overrides.has_torch_function((x,)):
            return False
        return ready(_compile_fused)

    def _fused(self, x: Tensor, lengths: Tensor | None, step_rescale: float | Tensor) -> Tensor:
        from kws_s5.ops.layer.fused import Options, Weights, fused_layer

        norm, seq = self.norm, self.seq
        half = torch.is_autocast_enabled("cpu") or torch.get_float32_matmul_precision() == "medium"
        with torch.autocast("cpu", enabled=False):
            Lambda_bar, B_bar = seq.system(step_rescale)
            norms = [norm] if self.ssm_norm is None else [norm, self.ssm_norm]
            behind = [] if self.ssm_norm is None else [self.ssm_norm.scale, self.ssm_norm.bias]
            weights = Weights(
                norm.scale,
                norm.bias,
                Lambda_bar,
                B_bar,
                seq._readout(),
                seq.D,
                self.out2.weight,
                self.out2.bias,
                *behind,
            )
            masks = self._mask(x), self._mask(x)  # of h and of the gate, drawn in the order of _activate
            statistics = None if self.training else tuple(s for n in norms for s in (n.mean, n.var))
            options = Options(lengths, masks, self.activation == "half_glu2", "half" if half else "full", statistics)
            out, *found = fused_layer(x, weights, options)
            if self.training:
                for i, n in enumerate(norms):
                    n.remember(*found[2 * i : 2 * i + 2])
        return out


def _compile_fused() -> None:
    from kws_s5.ops.layer import fused, kernel  # noqa: F401

    kernel.compiled(False)


def _norm(kind: Norm, H: int, momentum: float) -> BatchNorm | LayerNorm:
    return BatchNorm(H, momentum=momentum) if kind == "batch" else LayerNorm(H)
