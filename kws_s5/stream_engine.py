"""How a model runs on a stream: causal models carry their state on; the others look at a window that slides along.

    engine = engine_for(bundle, rate, n_streams)
    logits, state = engine.run(waveforms, engine.initial_state())       # frames that these samples complete

Both give frame f once sound up to ``engine.end_of(f)`` samples is there, whatever the pieces it came in.
Legend: N streams, l samples of a chunk, W samples of a window, f frames, K outputs.
"""

from typing import Protocol

import torch
from torch import Tensor

from kws_s5.bundle import Bundle
from kws_s5.errors import UserError
from kws_s5.model.frozen import can_freeze, freeze
from kws_s5.rate import step_rescale

State = dict[str, Tensor]
MOST_FRAMES = 100.0  # a second; models that decide at every sample are read this often
HOP = 0.1  # seconds between the windows of models that cannot run on
WINDOWS = 16  # sliding windows that the model sees at once: bounds memory on long chunks
STEPS = 1 << 15  # steps of the layers at once, of all streams together, for the same reason
TOLERANCE = 1e-6  # samples: an edge this close to a sample's is meant to be there


class Engine(Protocol):
    """What StreamingSession needs. States are named tensors of constant size; ``run`` leaves its argument as it was."""

    step: float  # samples from frame to frame; need not be whole
    remark: str  # what users should know about the way this model listens

    def initial_state(self) -> State: ...

    def run(self, x: Tensor, state: State, start: int) -> tuple[Tensor, State]:
        """The next samples x (N, l), l >= 1, of which ``start`` went before -> logits (N, f, K) and the next state."""


def engine_for(bundle: Bundle, rate: float, n_streams: int) -> Engine:
    """The engine that suits the model. Raises UserError for models that do not listen, and for rates they refuse."""
    if not bundle.labels or not bundle.rate:
        raise UserError("this model has no labels or no sample rate: only models of sound can listen to a stream")
    bundle.model.eval()
    reason = whole_clips_only(bundle)
    return SlidingEngine(bundle, rate, n_streams, reason) if reason else CausalEngine(bundle, rate, n_streams)


def whole_clips_only(bundle: Bundle) -> str:
    """Why the model cannot carry its state on; empty for models that can."""
    model = bundle.config.model
    if model.cell != "s5":
        return f"{model.cell} layers"
    if model.ssm.bidirectional:
        return "bidirectional"
    return "" if getattr(model.head, "frame_logits", False) else "trained without frame decisions"


def frames_after(n_samples: int, step: float) -> int:
    """Frames that are complete after so many samples."""
    return int((n_samples + TOLERANCE) / step)


class CausalEngine:
    """State carried from chunk to chunk: the cost of a second is the same after a minute and after a day."""

    remark = ""

    def __init__(self, bundle: Bundle, rate: float, n_streams: int) -> None:
        self.model, self.n_streams = bundle.model, n_streams
        self.rescale = step_rescale(bundle.rate, rate)
        self.device = next(self.model.parameters()).device
        self.stream = self.model.stream
        front = self.model.front
        self.stride = 1  # frames of the model for one that is given
        self.step = rate / front.frame_rate
        if not front.fixed_frame_rate:  # a frame for every sample
            self.stride = max(1, int(rate / MOST_FRAMES))
            self.step = float(self.stride)
        self.most = max(1, int(STEPS / n_streams * self.step / self.stride))  # samples

    def initial_state(self) -> State:
        state = self.model.initial_state(self.n_streams, self.rescale)
        if can_freeze(self.model):
            self.stream = freeze(self.model, float(state["step_rescale"])).stream
        return state

    def run(self, x: Tensor, state: State, start: int) -> tuple[Tensor, State]:
        pieces = []
        for piece in x.split(self.most, 1):
            logits, state = self.stream(piece[..., None].to(self.device), state)
            pieces.append(logits)
        logits = pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)
        return logits[:, (-start - 1) % self.stride :: self.stride] if self.stride > 1 else logits, state


class SlidingEngine:
    """The last W samples, looked at every HOP seconds as if they were a clip. Before its start a stream is silent."""

    def __init__(self, bundle: Bundle, rate: float, n_streams: int, reason: str) -> None:
        self.bundle, self.n_streams = bundle, n_streams
        self.seconds = getattr(bundle.config.data, "seconds", 0.0) or 1.0
        self.rescale, self.W, self.step = step_rescale(bundle.rate, rate), round(self.seconds * rate), HOP * rate
        self.device = next(bundle.model.parameters()).device
        self.remark = (f"this model ({reason}) hears whole clips only: it looks at the last {self.seconds:g} s every "
                       f"{1000 * HOP:g} ms, at about {self.seconds / HOP:.0f} times the work of a causal model")

    def initial_state(self) -> State:
        return {"window": torch.zeros(self.n_streams, self.W)}

    @torch.no_grad()
    def run(self, x: Tensor, state: State, start: int) -> tuple[Tensor, State]:
        sound = torch.cat([state["window"], x], 1)  # (N, W + l); begins W samples before ``start``
        first, last = frames_after(start, self.step), frames_after(start + x.shape[1], self.step)
        ends = [round((f + 1) * self.step) - start for f in range(first, last)]
        logits = [self._look(sound, ends[i : i + WINDOWS]) for i in range(0, len(ends), WINDOWS)]
        empty = x.new_zeros(self.n_streams, 0, self.bundle.config.model.n_outputs)
        return torch.cat([empty, *logits], 1), {"window": sound[:, -self.W :].clone()}

    def _look(self, sound: Tensor, ends: list[int]) -> Tensor:
        """(N, len(ends), K): windows of ``sound`` (N, W + l) that end so many samples after its first W."""
        windows = torch.stack([sound[:, end : end + self.W] for end in ends], 1)  # (N, f, W)
        x = windows.flatten(0, 1)[..., None].to(self.device)
        return self.bundle.model(x, step_rescale=self.rescale).float().cpu().unflatten(0, windows.shape[:2])
