"""What every front has in common: input -> features for the S5 layers, offline and in a stream.

A front turns (N, L, U) input (or (N, L) tokens) into ``Features``. ``step_rescale`` = train_rate / rate is either
passed on to the layers (a front that gives one frame per input step) or used up (``fixed_frame_rate``: frames come at
the same rate in physical time whatever the input's rate, so the layers always see step_rescale 1).

Legend: N batch, L input steps, f frames of a chunk, U input features, H features, L' frames.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from torch import Tensor, nn

from kws_s5.config.model import Front

State = dict[str, Tensor]
"""A stream's state: tensors by name, of a size that does not grow. Saves with safetensors."""


@dataclass
class Features:
    """A batch on its way through the layers."""

    x: Tensor  # (N, L', H)
    lengths: Tensor | None = None  # (N,) valid frames; None: every row is full
    step_rescale: float | Tensor = 1.0  # for the layers: a number, or (N,)
    dt: Tensor | None = None  # (N, L') step multipliers for the layers


class FrontModule(Protocol):
    """The contract of a front (all are nn.Module). Exact in a stream: any chunking gives the offline frames."""

    frame_rate: float
    """Frames per second at step_rescale 1 (Hz); 0: the data has no rate."""
    fixed_frame_rate: bool
    """True: frames always come at frame_rate; False: at frame_rate / step_rescale."""

    def __call__(
        self, x: Tensor, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0, *, dt: Tensor | None = None
    ) -> Features:
        """Whole clips: x (N, L, U) or tokens (N, L), lengths (N,) or None (all full), dt (N, L) or None."""

    def initial_state(self, N: int, step_rescale: float | Tensor = 1.0) -> State:
        """State before the first sample of N streams. Keys are the front's own."""

    def stream(self, chunk: Tensor, state: State) -> tuple[Tensor, State]:
        """chunk (N, l, U) with any l >= 0 -> frames (N, f, H) that are complete now, and the next state.

        ``state`` itself is left as it was.
        """


_FILES = {
    "LinearFront": "kws_s5.model.front_linear",
    "TokenFront": "kws_s5.model.front_linear",
    "BankFront": "kws_s5.model.front_bank",
    "LogMelFront": "kws_s5.model.front_logmel",
    "FrameFront": "kws_s5.model.front_frames",
}


def build_front(config: Front, d_model: int, rate: float) -> nn.Module:
    """Config -> front module giving ``d_model`` features.

    Every front file has ``build(config, d_model, rate) -> nn.Module``; it is imported only when asked for.

    Args:
        config: one of the front configs.
        d_model: H.
        rate: training rate in Hz (step_rescale 1 means this rate); 0: the data has no rate.
    """
    return import_module(_FILES[type(config).__name__]).build(config, d_model, rate)
