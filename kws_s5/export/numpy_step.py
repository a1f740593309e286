"""A stream, sample by sample and frame by frame, in a page of numpy: what a port to C or to a microcontroller does.

    step = Step(constants, rate=16000)             # constants.py: from the tensors of a model file
    state = step.initial_state()
    logits, state = step.run(chunk, state)         # chunk (l,), any l >= 0 -> (f, K), a row for each complete frame

docs/porting.md says the same in words. Equal to the torch model up to rounding (a test holds it to 1e-4). Written to be
read, not to be quick. Legend: l samples, f frames, M modes, n poles, H features, P states, K outputs, W frames.
"""

from dataclasses import dataclass, replace

import numpy as np

from kws_s5.export.coefficients import NUMPY, OFFSET, SINE, TOLERANCE, USABLE, poles, taps
from kws_s5.export.constants import LAYER_EPSILON, Constants, Layer, Norm


@dataclass(frozen=True)
class State:
    """All that a stream remembers. Before its first sample everything is zero."""

    position: int  # samples heard
    recent: np.ndarray  # (2,) the last two samples, the newest last
    modes: np.ndarray  # (n, M) complex: every pole of every mode
    power: np.ndarray  # (M,) summed since the last frame edge
    layers: np.ndarray  # (layers, P) complex
    votes: np.ndarray  # (W, K) of the last W frames, the newest last


class Step:
    """The model at one sample rate."""

    def __init__(self, constants: Constants, rate: float) -> None:
        """``rate`` in Hz: of the sound that will come."""
        c, column = constants, (constants.decay[:, None], constants.frequency[:, None])
        self.constants, self.samples_per_frame = c, rate / c.frame_rate
        self.pole = poles(NUMPY, *column, rate)[:, 0]  # (M,) complex
        self.taps = [c.gain * SINE * tap[:, 0] for tap in taps(NUMPY, *column, rate, c.n_poles)]  # three of (M,)
        self.present = c.frequency <= USABLE * 0.5 * rate  # (M,) bool

    def initial_state(self) -> State:
        """Silence."""
        c, M = self.constants, len(self.constants.decay)
        layers = np.zeros((len(c.layers), len(c.layers[0].Lambda_bar) if c.layers else 0), complex)
        votes = np.zeros((c.window, len(c.decoder[1])))
        return State(0, np.zeros(2), np.zeros((c.n_poles, M), complex), np.zeros(M), layers, votes)

    def run(self, chunk: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """The next samples -> logits of the frames that they complete, and the next state."""
        rows = [np.zeros((0, len(self.constants.decoder[1])))]
        for sample in chunk:
            frame, state = self.hear(float(sample) + OFFSET, state)
            if frame is not None:
                logits, state = self.decide(frame, state)
                rows.append(logits[None])
        return np.concatenate(rows), state

    def hear(self, u: float, state: State) -> tuple[np.ndarray | None, State]:
        """One sample -> the mean power of every mode in the frame that ends within it, or None."""
        x = self.taps[0] * u + self.taps[1] * state.recent[1] + self.taps[2] * state.recent[0]
        modes = np.empty_like(state.modes)
        for p in range(len(modes)):  # each pole drives the next one
            modes[p] = x = self.pole * state.modes[p] + x
        power = np.abs(x) ** 2
        position = state.position + 1
        state = replace(state, position=position, recent=np.array([state.recent[1], u]), modes=modes)
        n_frames = int((position - 1 + TOLERANCE) / self.samples_per_frame)
        edge = (n_frames + 1) * self.samples_per_frame  # where the frame ends, in samples from the start
        edge = round(edge) if abs(edge - round(edge)) < TOLERANCE else edge
        if edge > position:
            return None, replace(state, power=state.power + power)
        beyond = position - edge  # the part of this sample that belongs to the next frame
        frame = (state.power + (1 - beyond) * power) / self.samples_per_frame
        return frame, replace(state, power=beyond * power)

    def decide(self, frame: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Powers (M,) of a frame -> logits (K,)."""
        c = self.constants
        x = normalise(np.log(frame + c.floor), c.norm)
        if c.absent:
            x = np.where(self.present, x, c.bias)
        x = c.encoder[0] @ x + c.encoder[1]  # (H,)
        layers = np.empty_like(state.layers)
        for i, layer in enumerate(c.layers):
            x, layers[i] = self.layer(layer, x, state.layers[i])
        vote = c.frame_decoder[0] @ x
        if c.pooling == "last":
            return vote + c.frame_decoder[1], replace(state, layers=layers)
        votes = np.concatenate([state.votes[1:], vote[None]])
        n_frames = int((state.position + TOLERANCE) / self.samples_per_frame)
        logits = votes.sum(0) / min(n_frames, c.window) + c.frame_decoder[1]
        return logits, replace(state, layers=layers, votes=votes)

    def layer(self, layer: Layer, skip: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features (H,) and state (P,) of one layer -> the next ones."""
        c = self.constants
        u = normalise(skip, layer.norm) if c.prenorm else skip
        state = layer.Lambda_bar * state + layer.B_bar @ u
        y = (layer.C @ state).real + layer.D * u
        y = y if layer.ssm_norm is None else normalise(y, layer.ssm_norm)
        h = gelu(y)
        if c.activation in ("gelu", "relu", "none"):
            x = skip + {"gelu": h, "relu": np.maximum(y, 0), "none": y}[c.activation]
        else:
            gate = sigmoid(layer.out2[0] @ h + layer.out2[1])
            if c.activation == "full_glu":
                h = layer.out1[0] @ h + layer.out1[1]
            elif c.activation == "half_glu2":
                h = y
            x = skip + h * gate
        return (x if c.prenorm else normalise(x, layer.norm)), state


def normalise(x: np.ndarray, norm: Norm) -> np.ndarray:
    """Batch norm is one gain and one shift for each feature; layer norm looks at the frame first."""
    if norm.centred:
        x = (x - x.mean()) / np.sqrt(x.var() + LAYER_EPSILON)
    return norm.gain * x + norm.shift


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form: x/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x sigmoid(2 sqrt(2 / pi) (...))."""
    return x * sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
