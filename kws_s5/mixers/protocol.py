"""The contract of a mixer, the part of a layer that looks along time, and the way from its config to its code.

The layer (model/layer.py) puts norm, nonlinearity, gate and residual around it. Training, streams, packed streams and
exports ask a mixer what it can do through this contract; none of them knows a mixer by its name.

Legend: N batch, L steps, l steps of a chunk, H features.
"""

from importlib import import_module
from typing import Protocol

from torch import Tensor, nn

from kws_s5.config.mixers import Mixer
from kws_s5.config.training import Role
from kws_s5.ssm.diagonal import DiagonalSystem


class MixerModule(Protocol):
    """All are nn.Module. (N, L, H) -> (N, L, H)."""

    takes_intervals: bool
    """Whether ``dt`` sets the steps; where it does not, a layer that is given one refuses."""
    norm_between: bool
    """The layer's norm stands between this mixer and the nonlinearity, whatever ``prenorm`` says."""

    @property
    def whole_clips(self) -> str:
        """Why it needs whole clips, as what it is ("bidirectional"); empty: it can stream."""

    def __call__(
        self, u: Tensor, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Whole clips. What stands behind a clip's end changes nothing before it.

        Args:
            u: (N, L, H).
            step_rescale: training rate / rate, a number or (N,). Mixers without a notion of time leave it out.
            dt: (N, L) step multipliers, or None.
            lengths: (N,) valid steps, or None where every row is full.
        """

    def initial_state(self, N: int) -> Tensor:
        """State of N streams before their first step: one tensor (N, ...), of a size that does not grow."""

    def stream(self, u: Tensor, state: Tensor, *, step_rescale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """The next chunk (N, l, H), l >= 1 -> outputs (N, l, H) as of the whole clip, and the next state.

        ``state`` is left as it was, and the next one is no view of a larger tensor.
        """

    def diagonal_system(self, step_rescale: float = 1.0) -> DiagonalSystem | None:
        """Itself as one diagonal system whose state is that of ``stream``; None where it is none.

        With it a mixer streams on packed weights and can be exported.
        """

    def parameter_roles(self) -> dict[str, Role]:
        """Name -> role of its parameters that have one (training/optim.py); the others train as any weight."""


_FILES = {
    "S5Mixer": "kws_s5.mixers.s5",
    "S4DMixer": "kws_s5.mixers.s4d",
    "GRUMixer": "kws_s5.mixers.gru",
    "ConvMixer": "kws_s5.mixers.conv",
}


def build_mixer(config: Mixer, H: int) -> nn.Module:
    """Config -> mixer of H features. Every mixer file has ``build(config, H)``; it is imported when asked for."""
    return import_module(_FILES[type(config).__name__]).build(config, H)
