"""How a model runs on a stream: causal models carry their state on; the others look at a window that slides along.

    engine = engine_for(bundle, rate, n_streams)
    logits, state = engine.run(waveforms, engine.initial_state(), 0)    # frames that these samples complete

Both give a frame once its last sample is there, whatever the pieces the sound came in. Arrays go in and come out, the
states are torch's. (onnx_engine.py has the engine of exported models, which does without torch.)
Legend: N streams, l samples of a chunk, W samples of a window, f frames, K outputs.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from kws_s5.bundle import Bundle
from kws_s5.errors import UserError
from kws_s5.listening.engine import frames_after
from kws_s5.model.sequence import SequenceModel
from kws_s5.ops.switch import compiled, ready
from kws_s5.rate import step_rescale

if TYPE_CHECKING:
    from kws_s5.listening.packed_stream import PackedStream

State = dict[str, Tensor]
MOST_FRAMES = 100.0  # a second; models that decide at every sample are read this often
HOP = 0.1  # seconds between the windows of models that cannot run on
WINDOWS = 16  # sliding windows that the model sees at once: bounds memory on long chunks
STEPS = 1 << 15  # steps of the layers at once, of all streams together, for the same reason


def engine_for(bundle: Bundle, rate: float, n_streams: int) -> "CausalEngine | SlidingEngine":
    """The engine that suits the model. Raises UserError for models that do not listen, and for rates they refuse."""
    if not bundle.labels or not bundle.rate:
        raise UserError("this model has no labels or no sample rate: only models of sound can listen to a stream")
    bundle.model.eval()
    reason = whole_clips_only(bundle)
    return SlidingEngine(bundle, rate, n_streams, reason) if reason else CausalEngine(bundle, rate, n_streams)


def whole_clips_only(bundle: Bundle) -> str:
    """Why the model cannot carry its state on; empty for models that can."""
    if reason := bundle.model.whole_clips():
        return reason
    return "" if getattr(bundle.config.model.head, "frame_logits", False) else "trained without frame decisions"


class CausalEngine:
    """State carried from chunk to chunk: the cost of a second is the same after a minute and after a day."""

    remark = ""

    def __init__(self, bundle: Bundle, rate: float, n_streams: int) -> None:
        self.model, self.n_streams = bundle.model, n_streams
        self.rescale = step_rescale(bundle.rate, rate)
        self.device = next(self.model.parameters()).device
        front = self.model.front
        self.stride = 1  # frames of the model for one that is given
        self.step: float = rate / front.frame_rate
        if not front.fixed_frame_rate:  # a frame for every sample
            self.stride = max(1, int(rate / MOST_FRAMES))
            self.step = float(self.stride)
        self.most = max(1, int(STEPS / n_streams * self.step / self.stride))  # samples
        self._packed = _packed_stream(self.model, self.initial_state())

    def stored(self, value: np.ndarray, /) -> Tensor:
        return torch.from_numpy(value)

    def initial_state(self) -> State:
        return self.model.initial_state(self.n_streams, self.rescale)

    def run(self, x: np.ndarray, state: State, start: int) -> tuple[np.ndarray, State]:
        pieces = []
        for i in range(0, x.shape[1], self.most):
            logits, state = self._advance(x[:, i : i + self.most], state)
            pieces.append(logits)
        logits = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, 1)
        return logits[:, (-start - 1) % self.stride :: self.stride] if self.stride > 1 else logits, state

    def _advance(self, x: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        if self._packed is not None and compiled():
            return self._packed.advance(x, state), state
        logits, state = self.model.stream(torch.from_numpy(x)[..., None].to(self.device), state)
        return _array(logits), state


def _packed_stream(model: SequenceModel, state: State) -> "PackedStream | None":
    """The compiled way, for the weights as they are now; None for models it does not take, and where it cannot be."""
    if not (compiled() and ready(lambda: _packing().compile_for(model))):
        return None
    return _packing().PackedStream(model, state) if _packing().can_pack(model) else None


def _packing():
    from kws_s5.listening import packed_stream

    return packed_stream


class SlidingEngine:
    """The last W samples, looked at every HOP seconds as if they were a clip. Before its start a stream is silent."""

    def __init__(self, bundle: Bundle, rate: float, n_streams: int, reason: str) -> None:
        self.bundle, self.n_streams = bundle, n_streams
        self.seconds = getattr(bundle.config.data, "seconds", 0.0) or 1.0
        self.rescale, self.W, self.step = step_rescale(bundle.rate, rate), round(self.seconds * rate), HOP * rate
        self.device = next(bundle.model.parameters()).device
        self.remark = (
            f"this model ({reason}) hears whole clips only: it looks at the last {self.seconds:g} s every "
            f"{1000 * HOP:g} ms, at about {self.seconds / HOP:.0f} times the work of a causal model"
        )

    def stored(self, value: np.ndarray, /) -> Tensor:
        return torch.from_numpy(value)

    def initial_state(self) -> State:
        return {"window": torch.zeros(self.n_streams, self.W)}

    @torch.no_grad()
    def run(self, x: np.ndarray, state: State, start: int) -> tuple[np.ndarray, State]:
        sound = torch.cat([state["window"], torch.from_numpy(x)], 1)  # (N, W + l); begins W samples before ``start``
        first, last = frames_after(start, self.step), frames_after(start + x.shape[1], self.step)
        ends = [round((f + 1) * self.step) - start for f in range(first, last)]
        logits = [self._look(sound, ends[i : i + WINDOWS]) for i in range(0, len(ends), WINDOWS)]
        empty = sound.new_zeros(self.n_streams, 0, self.bundle.config.model.n_outputs)
        return _array(torch.cat([empty, *logits], 1)), {"window": sound[:, -self.W :].clone()}

    def _look(self, sound: Tensor, ends: list[int]) -> Tensor:
        """(N, len(ends), K): windows of ``sound`` (N, W + l) that end so many samples after its first W."""
        windows = torch.stack([sound[:, end : end + self.W] for end in ends], 1)  # (N, f, W)
        x = windows.flatten(0, 1)[..., None].to(self.device)
        return self.bundle.model(x, step_rescale=self.rescale).float().cpu().unflatten(0, windows.shape[:2])


def _array(logits: Tensor) -> np.ndarray:
    return logits.float().cpu().numpy()
