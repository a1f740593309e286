"""A model with fixed weights, prepared for streaming: SequenceModel.stream with less than half of the overhead.

A frame of 10 ms costs a small model far less arithmetic than the forty tensor operations of a layer cost to start. Here
everything that depends on weights alone is worked out once, and the batch norm before an SSM, being affine in
evaluation, disappears into it:

    u = g x + s:   Bu = (B_bar g) x + B_bar s,   y = C xs + D g x + D s

Legend: N streams, f frames, H features, P states.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.model.layer import S5Layer
from kws_s5.model.norm import BATCH_EPSILON, BatchNorm
from kws_s5.model.sequence import SequenceModel, _full_precision, _part
from kws_s5.ssm.scan_cpu import forward_into

State = dict[str, Tensor]


@dataclass(frozen=True)
class _Layer:
    """Constants of one layer, float32 or the model's own type."""

    Lambda_bar: Tensor  # (2P,)
    B: Tensor  # (2P, H)
    B_shift: Tensor  # (2P,)
    C: Tensor  # (H, 2P)
    y_shift: Tensor  # (H,)
    D: Tensor  # (H,)
    activation: str
    out1: nn.Module | None
    out2: nn.Module | None
    after: tuple[Tensor, Tensor] | None  # gain and shift (H,) of a norm behind the layer


class FrozenModel:
    """``stream`` of a model whose weights stay as they are."""

    def __init__(self, model: SequenceModel, step_rescale: float) -> None:
        """``step_rescale`` is that of the layers: train_rate / rate, or 1 behind a front of a fixed frame rate."""
        assert can_freeze(model)
        with torch.no_grad():
            self._layers = [_frozen(layer, step_rescale) for layer in model.layers]
        self._front, self._head, self._n_outputs = model.front, model.head, model.config.n_outputs

    @torch.no_grad()
    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """As SequenceModel.stream: chunk (N, l, U), state -> logits (N, f, K), next state."""
        frames, front = self._front.stream(chunk, _part(state, "front."))
        following = {**state, **{f"front.{k}": v for k, v in front.items()}}
        x = _full_precision(frames)
        if not x.shape[1]:
            return x.new_zeros((len(x), 0, self._n_outputs)), following
        for i, layer in enumerate(self._layers):
            x, following[f"layers.{i}"] = _run(layer, x, state[f"layers.{i}"])
        logits, head = self._head.stream(x, _part(state, "head."))
        following |= {f"head.{k}": v for k, v in head.items()}
        return logits, following


def can_freeze(model: SequenceModel) -> bool:
    """Causal S5 layers with batch norm, on the CPU."""
    return model.config.cell == "s5" and not model.config.ssm.bidirectional and all(
        isinstance(layer, S5Layer) and isinstance(layer.norm, BatchNorm) and layer.seq.D.device.type == "cpu"
        and layer.seq.interpolation == "hold" for layer in model.layers)


def freeze(model: SequenceModel, step_rescale: float) -> FrozenModel:
    """A FrozenModel; the same one again while neither the weights nor the rescale have changed."""
    sources = [*model.layers.parameters(), *model.layers.buffers()]
    key = (step_rescale, *((id(t), t._version, t.data_ptr()) for t in sources))
    known = _kept.get(model)
    if known is None or known[0] != key:
        _kept[model] = known = (key, FrozenModel(model, step_rescale))
    return known[1]


_kept: WeakKeyDictionary[SequenceModel, tuple[tuple, FrozenModel]] = WeakKeyDictionary()


def _frozen(layer: S5Layer, step_rescale: float) -> _Layer:
    seq, norm = layer.seq, layer.norm
    gain = (norm.scale.double() * torch.rsqrt(norm.var.double() + BATCH_EPSILON)).to(norm.scale)
    shift = (norm.bias.double() - norm.mean.double() * gain.double()).to(norm.scale)
    g, s = (gain, shift) if layer.prenorm else (torch.ones_like(gain), torch.zeros_like(shift))
    Lambda_bar, B_bar = seq._system(step_rescale)
    B, B_shift = (B_bar * g).to(seq.D).contiguous(), (B_bar @ s.to(B_bar)).to(seq.D)
    return _Layer(Lambda_bar.to(seq.D).contiguous(), B, B_shift, seq._readout().contiguous(), seq.D * s, seq.D * g,
                  layer.activation, getattr(layer, "out1", None), getattr(layer, "out2", None),
                  None if layer.prenorm else (gain, shift))


def _run(layer: _Layer, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """x (N, f, H), state (N, 2P) -> (N, f, H), next state."""
    Bu = F.linear(x, layer.B, layer.B_shift)  # (N, f, 2P)
    xs = torch.empty_like(Bu)
    N, f, width = Bu.shape
    forward_into(xs, layer.Lambda_bar, Bu, state.contiguous(), (N, f, width // 2), backward=False)
    y = torch.addcmul(F.linear(xs, layer.C, layer.y_shift), layer.D, x)  # (N, f, H)
    h = F.gelu(y, approximate="tanh")
    if layer.activation == "gelu":
        z = x + h
    else:
        gate = torch.sigmoid(layer.out2(h))
        if layer.activation == "full_glu":
            h = layer.out1(h)
        elif layer.activation == "half_glu2":
            h = y
        z = torch.addcmul(x, h, gate)
    if layer.after is not None:
        z = torch.addcmul(layer.after[1], z, layer.after[0])
    return z, xs[:, -1].clone()  # a view would keep all states of the chunk
