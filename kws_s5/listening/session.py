"""StreamingSession: sound in pieces of any length -> the model's opinion at every frame, equal to the whole at once.

    session = StreamingSession(kws_s5.load("runs/kws12"), rate=48000)
    frames = session.push(chunk)               # frames.posteriors (N, f, K) at frames.times (f,)

Memory is constant. A chunk may be one sample or minutes, mono or of several channels, integer or float. The rate is the
sound's own and belongs to the session: another rate needs another session (or ``reset``). A session is for one thread;
spotter.py adds the lock. What runs the model is an engine: torch's (torch_engine.py), or that of an exported model
(onnx_engine.py); nothing here needs torch. Legend: N streams, l samples of a chunk, f frames, K labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kws_s5.audio.samples import MAX_CHANNELS, checked_rate, mono
from kws_s5.errors import NO_NUMBERS, UserError
from kws_s5.listening.engine import Engine, State, frames_after

if TYPE_CHECKING:
    from kws_s5.bundle import Bundle
    from kws_s5.listening.onnx_engine import OnnxModel

WHOLE = {"rate": np.float64, "position": np.int64}  # entries of a saved state that are the session's own


@dataclass(frozen=True)
class Frames:
    """What the model thinks at successive moments."""

    logits: np.ndarray  # (N, f, K) float32
    times: np.ndarray  # (f,) seconds since the start of the stream; the sound up to then is what a frame has heard

    @property
    def posteriors(self) -> np.ndarray:
        """Probabilities (N, f, K) float64."""
        shifted = self.logits.astype(np.float64)
        shifted -= shifted.max(-1, keepdims=True)
        np.exp(shifted, out=shifted)
        return shifted / shifted.sum(-1, keepdims=True)


class StreamingSession:
    """N streams of one rate, in step with each other."""

    def __init__(
        self,
        bundle: "Bundle | OnnxModel",
        rate: float,
        *,
        n_streams: int = 1,
        block: float = 0.0,
        channel_axis: int | None = None,
    ) -> None:
        """Opens a session for the weights as they are now.

        Args:
            rate: Hz, of the sound that will be pushed; nothing is resampled, the model adapts its time step.
            n_streams: streams that advance together, for example 64 microphones of one server.
            block: seconds of frames to collect before the model runs; up to that much later, and cheaper, since a call
                of the model costs nearly the same for one frame and for ten. The frames themselves stay the same.
            channel_axis: 0 for chunks (channels, l), 1 for (l, channels); None: told by the first chunk's shape.

        Raises:
            UserError: a model that cannot listen, or a rate that it refuses.
        """
        self.bundle, self.n_streams, self.block = bundle, n_streams, block
        self._given_axis = channel_axis
        self.rate: float
        self._engine: Engine
        self._pending: list[np.ndarray]  # samples pushed that the model has not seen
        self._open(rate)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.bundle.labels

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.rate / self._engine.step

    @property
    def seconds(self) -> float:
        """Sound pushed so far."""
        return self._position / self.rate

    @property
    def remark(self) -> str:
        """What users should know about the way this model listens; usually empty."""
        return self._engine.remark

    def push(self, samples: Any, rate: float | None = None) -> Frames:
        """The next samples -> the frames they complete.

        Args:
            samples: for one stream (l,), (l, C) or (C, l) samples, of any type (samples.py: integers are divided by
                their full scale, channels averaged); for N streams N such pieces of equal length, or (N, l).
            rate: Hz, a check: a session never changes its rate.

        Raises:
            UserError: another rate, or samples that no recording has; the session stays as it was. Or a model that
                gives no numbers.
        """
        if rate is not None and rate != self.rate:
            raise UserError(
                f"this session listens at {self.rate:g} Hz, but the chunk has {rate:g} Hz: "
                "reset(rate) starts a new stream at another rate"
            )
        x = self._waveforms(samples)
        self._pending.append(x)
        self._position += x.shape[1]
        if self._n_waiting < self._least:
            return self._frames(None)  # fewer samples than a frame (or block) has: they wait
        return self._frames(self._run())

    def flush(self) -> Frames:
        """Frames that wait for their block to fill (``block`` > 0). The stream may go on afterwards."""
        return self._frames(self._run())

    def reset(self, rate: float | None = None) -> None:
        """As new: forgets what was heard; the only moment when the rate may change."""
        self._open(self.rate if rate is None else rate)

    def state(self) -> State:
        """Everything heard so far as named tensors, ready for safetensors. Of constant size.

        With ``block`` call ``flush`` first: frames that wait would be lost (AssertionError).
        """
        assert not self._n_waiting, "flush() first: complete frames wait for their block to fill"
        self._run()  # the samples of an incomplete frame go into the state
        own = {"rate": self.rate, "position": self._position}
        own = {name: self._engine.stored(np.array(value, WHOLE[name])) for name, value in own.items()}
        return own | {f"model.{name}": _copy(value) for name, value in self._state.items()}

    def restore(self, state: State) -> None:
        """Goes on where ``state`` was taken. Raises UserError when it belongs to another model, rate or size."""
        for name, dtype in WHOLE.items():
            if name not in state or _type(state[name]) != dtype.__name__ or state[name].ndim:
                raise UserError(f"state: has no {name}; it is not the state of a session")
        if float(state["rate"]) != self.rate:
            raise UserError(f"state: of a stream at {float(state['rate']):g} Hz, this session has {self.rate:g} Hz")
        model = {name.removeprefix("model."): value for name, value in state.items() if name not in WHOLE}
        if _shapes(model) != _shapes(self._engine.initial_state()):
            raise UserError("state: belongs to another model or another number of streams")
        self._state = {name: _copy(value) for name, value in model.items()}
        self._position, self._pending = int(state["position"]), []
        self._n_frames = frames_after(self._position, self._engine.step)

    def stored(self, value: np.ndarray) -> Any:
        """An array in the kind of the saved states: a tensor, or an array where torch is not used."""
        return self._engine.stored(value)

    def _open(self, rate: float) -> None:
        rate = checked_rate(rate)
        engine = _engine(self.bundle, rate, self.n_streams)
        self._state = engine.initial_state()  # the last step that can refuse
        self.rate, self._engine = rate, engine
        self._axis, self._channels = self._given_axis, 0
        self._position, self._n_frames = 0, 0  # samples pushed, frames given
        self._pending = []
        self._least = max(1, int(self.block * self.frame_rate))

    @property
    def _n_waiting(self) -> int:
        """Frames whose samples are all there, but which the model has not seen."""
        return frames_after(self._position, self._engine.step) - self._n_frames

    def _run(self) -> np.ndarray | None:
        """The model on the samples that wait. Raises UserError where it gives no numbers."""
        pieces, self._pending = self._pending, []
        if not sum(piece.shape[1] for piece in pieces):
            return None
        x = np.concatenate(pieces, 1) if len(pieces) > 1 else pieces[0]
        logits, self._state = self._engine.run(x, self._state, self._position - x.shape[1])
        if not np.isfinite(logits).all():
            raise UserError(NO_NUMBERS)
        return logits

    def _frames(self, logits: np.ndarray | None) -> Frames:
        if logits is None:
            logits = np.zeros((self.n_streams, 0, len(self.labels)), np.float32)
        n = logits.shape[1]
        times = np.arange(self._n_frames + 1, self._n_frames + n + 1) * (self._engine.step / self.rate)
        self._n_frames += n
        return Frames(logits, times)

    def _waveforms(self, samples: Any) -> np.ndarray:
        """(N, l) float32."""
        if self.n_streams == 1:
            return self._mono(samples)[None]
        if not isinstance(samples, Sequence) and not hasattr(samples, "shape"):
            raise UserError(f"chunk: give {self.n_streams} pieces, one for each stream")
        if len(samples) != self.n_streams:
            raise UserError(f"chunk: {len(samples)} pieces for {self.n_streams} streams")
        rows = [self._mono(row) for row in samples]
        if len({len(row) for row in rows}) > 1:
            raise UserError(
                "chunk: pieces of different lengths; streams of one session advance together "
                "(give each microphone a session of its own where they do not)"
            )
        return np.stack(rows)

    def _mono(self, samples: Any) -> np.ndarray:
        """(l,) float32 of one stream; which axis is the channels is decided once, where the shape leaves no doubt."""
        shape = tuple(getattr(samples, "shape", ())) or np.shape(samples)
        if len(shape) != 2:
            return mono(samples, where="chunk")
        if 0 in shape:
            return np.zeros(0, np.float32)
        if self._axis is None:
            if max(shape) <= MAX_CHANNELS:
                raise UserError(
                    f"chunk: shape {shape} does not tell channels from samples; give channel_axis to the "
                    "session (0: channels first, 1: samples first)"
                )
            self._axis = int(shape[1] <= shape[0])
        if self._channels not in (0, shape[self._axis]):
            raise UserError(f"chunk: {shape[self._axis]} channels, before it were {self._channels} (shape {shape})")
        self._channels = shape[self._axis]
        return mono(samples, channel_axis=self._axis, where="chunk")


def _engine(model: "Bundle | OnnxModel", rate: float, n_streams: int) -> Engine:
    """Exported models bring their engine; the others run in torch, which is not imported before."""
    if hasattr(model, "engine"):
        return model.engine(rate, n_streams)
    from kws_s5.listening.torch_engine import engine_for

    return engine_for(model, rate, n_streams)


def _shapes(state: State) -> dict[str, tuple]:
    return {name: (tuple(value.shape), _type(value)) for name, value in state.items()}


def _type(value: Any) -> str:
    """ "float32" for tensors and arrays of that type."""
    return str(value.dtype).removeprefix("torch.")


def _copy(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else value.copy()
