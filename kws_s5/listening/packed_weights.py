"""A model with fixed weights, packed for streaming: everything that depends on weights alone is worked out once.

A layer may have any mixer that is one diagonal system (mixers/protocol.py). The batch norm before it, being affine in
evaluation, disappears into it:

    u = g x + s:   Bu = (B_bar g) x + B_bar s,   y = C xs + D g x + D s

So does the one behind it (ssm_norm), into C and D. Every matrix lies in the panels that ops/stream/kernel.py
reads; packed_stream.py runs streams on it.
Legend: M modes, H features, P states, K outputs.
"""

from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from kws_s5.model.bank_design import is_present
from kws_s5.model.front_bank import Bank
from kws_s5.model.heads import ClassHead
from kws_s5.model.layer import S5Layer
from kws_s5.model.norm import BATCH_EPSILON, BatchNorm
from kws_s5.model.sequence import SequenceModel
from kws_s5.ops.common.row_products import LANES, padded, panels
from kws_s5.ops.stream import kernel

KINDS = {
    "gelu": kernel.UNGATED,
    "half_glu1": kernel.GATED_GELU,
    "half_glu2": kernel.GATED_SSM,
    "full_glu": kernel.GATED_PRODUCT,
}
PER_LAYER = ("Lambda", "B", "B_bias", "C", "C_bias", "D", "gate", "gate_bias", "value", "value_bias", "gain", "shift")


class PackedModel:
    """Packed constants of a model, float32. What happens to the model afterwards does not change them."""

    def __init__(self, model: SequenceModel, step_rescale: float, rate: Tensor | None = None) -> None:
        """step_rescale: of the layers: train_rate / rate, or 1 behind a front of a fixed frame rate.

        rate: (1,) float64 Hz of the sound, for a Bank (which modes a rate has); None for other fronts.
        """
        assert can_pack(model)
        self.K, self.H, self.n_layers = model.config.n_outputs, model.config.d_model, len(model.layers)
        self.M = len(model.front.log_decay) if isinstance(model.front, Bank) else 0
        self.width = model.layers[0].seq.initial_state(1).shape[1] if self.n_layers else 0  # 2P
        self.widest = max(padded(n) for n in (self.H, self.width, self.K, self.M))
        self.kinds = [KINDS[layer.activation] for layer in model.layers]
        parts: dict[str, np.ndarray] = {"nothing": np.zeros(padded(self.K), np.float32)}
        with torch.no_grad():
            parts |= _front(model.front, rate) if self.M else {}
            for i, layer in enumerate(model.layers):
                parts |= {f"{i}.{name}": value for name, value in _layer(layer, step_rescale).items()}
            parts["decoder"] = panels(model.head.reader.weight.numpy())
            parts["bias"] = model.head.reader.bias.float().numpy()
        self._pack(parts)

    def address(self, name: str) -> int:
        """Of a part; 0 where the model has none of that name."""
        return self.memory.data_ptr() + self._places[name] if name in self._places else 0

    def table(self, states: list[Tensor]) -> list[int]:
        """What the kernel's job says about the layers, whose states (N, 2P) are given."""
        numbers = []
        for i, state in enumerate(states):
            row = [self.address(f"{i}.{name}") for name in PER_LAYER]
            row.insert(kernel.KIND, self.kinds[i])
            numbers += [*row, state.data_ptr()]
        return numbers

    def same_as(self, other: "PackedModel") -> bool:
        """Whether the constants are equal to the last bit."""
        alike = (self._places, self.kinds, self.K) == (other._places, other.kinds, other.K)
        return alike and torch.equal(self.memory, other.memory)

    def _pack(self, parts: dict[str, np.ndarray]) -> None:
        """All parts in one piece of memory, each from a whole vector on."""
        self._places, size = {}, 0
        for name, part in parts.items():
            self._places[name] = size * part.itemsize
            size += padded(part.size)
        self.memory = torch.zeros(size + LANES)
        self.memory = self.memory[-self.memory.data_ptr() // 4 % LANES :][:size]  # from a whole vector on
        for name, part in parts.items():
            start = self._places[name] // 4
            self.memory[start : start + part.size] = torch.from_numpy(part.ravel())


def can_pack(model: SequenceModel) -> bool:
    """Layers around diagonal systems with batch norm, and frame decisions, float32 on the CPU."""
    plain = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
    return (
        plain
        and isinstance(model.head, ClassHead)
        and all(
            isinstance(layer.norm, BatchNorm)
            and layer.activation in KINDS
            and layer.norm_place != "between"
            and layer.seq.diagonal_system() is not None
            for layer in model.layers
        )
    )


def pack(model: SequenceModel, step_rescale: float, rate: Tensor | None = None) -> PackedModel:
    """A PackedModel of the weights as they are; the last one again while these and the rate are the same.

    They are compared by value: sessions share one copy in the processor's cache, and none can be out of date.
    """
    fresh, known = PackedModel(model, step_rescale, rate), _kept.get(model)
    if known is not None and known.same_as(fresh):
        return known
    _kept[model] = fresh
    return fresh


_kept: WeakKeyDictionary[SequenceModel, PackedModel] = WeakKeyDictionary()


def _front(front: Bank, rate: Tensor) -> dict[str, np.ndarray]:
    """Log power (M) -> norm -> dense layer."""
    gain, shift = _affine(front.norm)
    present = is_present(front.modes()[1], rate)[0] if front.absent == "mean" else torch.ones_like(gain) > 0
    level = torch.cat(
        [torch.tensor([front.floor]), torch.where(present, gain, 0.0), torch.where(present, shift, front.norm.bias)]
    )
    return {
        "level": level.numpy(),
        "encoder": panels(front.encoder.weight.numpy()),
        "encoder_bias": _vector(front.encoder.bias),
    }


def _layer(layer: S5Layer, step_rescale: float) -> dict[str, np.ndarray]:
    system = layer.seq.diagonal_system(step_rescale)
    gain, shift = _affine(layer.norm)
    g, s = (gain, shift) if layer.prenorm else (torch.ones_like(gain), torch.zeros_like(shift))
    Lambda_bar = torch.cat([system.Lambda_bar.real, system.Lambda_bar.imag])  # (2P,)
    B_bar = torch.cat([system.B_bar.real, system.B_bar.imag])  # (2P, H)
    C, D = torch.cat([system.C.real, -system.C.imag], 1).float(), system.D.float()  # (H, 2P), (H,)
    D, C_bias = D * g, D * s
    if layer.ssm_norm is not None:
        behind, offset = _affine(layer.ssm_norm)
        C, D, C_bias = behind[:, None] * C, behind * D, behind * C_bias + offset
    parts = {
        "Lambda": Lambda_bar.float().numpy(),
        "B": panels((B_bar * g).float().numpy()),
        "B_bias": _vector(B_bar @ s.double()),
        "C": panels(C.numpy()),
        "C_bias": _vector(C_bias),
        "D": _vector(D),
    }
    for name, dense in (("gate", "out2"), ("value", "out1")):
        if hasattr(layer, dense):
            dense = getattr(layer, dense)
            parts |= {name: panels(dense.weight.numpy()), f"{name}_bias": _vector(dense.bias)}
    return parts if layer.prenorm else parts | {"gain": _vector(gain), "shift": _vector(shift)}


def _affine(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """Gain and shift (H,) of a norm in evaluation."""
    gain = norm.scale.double() * torch.rsqrt(norm.var.double() + BATCH_EPSILON)
    return gain.float(), (norm.bias.double() - norm.mean.double() * gain).float()


def _vector(x: Tensor) -> np.ndarray:
    """(H,) float32, filled up with zeros to whole vectors."""
    return np.pad(x.float().numpy(), (0, padded(len(x)) - len(x)))
