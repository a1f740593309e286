"""The shape of a model: front -> layers -> head. Defaults are those of the published S5 code."""

from dataclasses import dataclass, field
from typing import Literal

from kws_s5.config.checks import one_of, require
from kws_s5.config.mixers import Mixer, S5Mixer

Activation = Literal["full_glu", "half_glu1", "half_glu2", "gelu", "relu", "none"]
Norm = Literal["batch", "layer"]
Pooling = Literal["mean", "last"]
Absent = Literal["floor", "mean"]
MAX_WINDOW = 60.0  # seconds
MAX_WINDOW_FRAMES = 1 << 20  # of decisions that a stream remembers; 60 s at 16 kHz, sample by sample, are fewer


@dataclass(frozen=True)
class LinearFront:
    """Every sample through one dense layer (the paper's encoder): the S5 layers run at the input's rate."""

    n_inputs: int = 1
    gain: float = 1.0
    """Constant factor on the input; the official Speech Commands loader amounts to about 2.4."""


@dataclass(frozen=True)
class TokenFront:
    """Token ids to features: a one-hot vector through a dense layer, written as an embedding plus bias."""

    vocab_size: int = 0
    """0: taken from the data."""


@dataclass(frozen=True)
class BankFront:
    """A bank of complex S5 modes on the raw waveform, read out as log power per frame of physical time.

    Only this bank knows the sample rate; the S5 layers behind it always see ``frame_rate`` frames a second.
    """

    n_modes: int = 64
    """Modes of the bank, each with its own frequency and bandwidth."""
    n_poles: int = 2
    """Cascaded poles of each mode (2: a gammatone of order two)."""
    f_min: float = 60.0
    """Lowest centre frequency in Hz; centres are mel-spaced."""
    f_max: float = 7600.0
    """Highest centre frequency in Hz, at most 0.95 of the training rate's Nyquist frequency."""
    frame_rate: float = 100.0
    """Frames a second, at any sample rate."""
    learnable: bool = True
    """Train centre frequencies and bandwidths (both kept positive, so every mode stays stable)."""
    floor: float = 1e-6
    """Power floor inside the logarithm (a full-scale sine has power 0.5)."""
    absent: Absent = "floor"
    """Value of modes above the Nyquist frequency of the actual rate. floor: as without sound. mean: their average."""
    gain: float = 1.0
    """Constant factor on the input."""

    def __post_init__(self) -> None:
        one_of("front.absent", self.absent, Absent)
        require(self.n_modes >= 1, "front.n_modes", self.n_modes, "at least 1")
        require(1 <= self.n_poles <= 8, "front.n_poles", self.n_poles, "between 1 and 8")
        require(0 < self.f_min <= self.f_max, "front.f_min", self.f_min, f"in (0, f_max = {self.f_max}] Hz")
        require(0 < self.frame_rate <= 192_000, "front.frame_rate", self.frame_rate, "in (0, 192000] Hz")
        require(self.floor > 0, "front.floor", self.floor, "positive")


@dataclass(frozen=True)
class LogMelFront:
    """Log-mel spectrogram (torchaudio), the field's standard front, as the baseline. Fixed to the training rate."""

    n_mels: int = 64
    window: float = 0.025
    """Length of the analysis window in seconds."""
    f_min: float = 60.0
    f_max: float = 7600.0
    frame_rate: float = 100.0
    floor: float = 1e-6
    gain: float = 1.0


@dataclass(frozen=True)
class FrameFront:
    """Small convolutional encoder of one 24 x 24 image per step (pendulum)."""

    image_size: int = 24
    append_dt: bool = False
    """Concatenate the time interval to the features (S5-append)."""


Front = LinearFront | TokenFront | BankFront | LogMelFront | FrameFront


@dataclass(frozen=True)
class ClassHead:
    """Pool over time, then one dense layer to the classes."""

    pooling: Pooling = "mean"
    frame_logits: bool = False
    """Also give logits at every step (same weights, causal running mean), which streams need."""
    window: float = 1.0
    """Seconds of sound behind a frame decision (frame_logits)."""
    frame_decoder: bool = False
    """Frame decisions by a dense layer of their own: a clip of one word and a moment of a stream differ."""

    def __post_init__(self) -> None:
        one_of("head.pooling", self.pooling, Pooling)
        require(0 < self.window <= MAX_WINDOW, "head.window", self.window, f"in (0, {MAX_WINDOW:g}] seconds")


@dataclass(frozen=True)
class PairHead:
    """Two pooled documents a, b -> [a, b, a-b, a*b] -> dense -> gelu -> dense (LRA retrieval)."""


@dataclass(frozen=True)
class GaussianHead:
    """Mean and variance for each target at every step (pendulum)."""

    hidden: int = 30


Head = ClassHead | PairHead | GaussianHead


@dataclass(frozen=True)
class ModelConfig:
    """Front, ``n_layers`` layers of width ``d_model`` around one kind of mixer, head."""

    d_model: int = 128
    """Features H of each layer."""
    n_layers: int = 6
    """Layers behind the front."""
    front: Front = field(default_factory=LinearFront)
    mixer: Mixer = field(default_factory=S5Mixer)
    """What a layer does along time: s5, s4d, gru or conv."""
    head: Head = field(default_factory=ClassHead)
    activation: Activation = "half_glu1"
    """What follows the mixer. relu and none: without gate, as in plain convolutional and recurrent networks."""
    norm: Norm = "batch"
    prenorm: bool = True
    ssm_norm: bool = False
    """Also normalise each mixer's output, before the nonlinearity. Learns faster; not in the paper."""
    norm_momentum: float = 0.95
    """Batch norm: running = momentum * old + (1 - momentum) * batch (the reference's convention)."""
    dropout: float = 0.0
    n_outputs: int = 0
    """Classes or regression targets; 0: taken from the data."""
    rate: float = 0.0
    """Training rate in Hz: audio at this rate has step_rescale 1. 0: the data has no rate."""

    def __post_init__(self) -> None:
        one_of("model.activation", self.activation, Activation)
        one_of("model.norm", self.norm, Norm)
        require(self.d_model >= 1, "model.d_model", self.d_model, "at least 1")
        require(self.n_layers >= 0, "model.n_layers", self.n_layers, "at least 0")
        require(0.0 <= self.dropout < 1.0, "model.dropout", self.dropout, "in [0, 1)")
        require(0.0 <= self.norm_momentum < 1.0, "model.norm_momentum", self.norm_momentum, "in [0, 1)")
        if isinstance(self.head, ClassHead) and self.head.frame_decoder:
            require(self.head.frame_logits, "head.frame_decoder", True, "off without head.frame_logits")
        if isinstance(self.head, ClassHead) and self.head.frame_logits:
            frame_rate = getattr(self.front, "frame_rate", self.rate)
            require(
                self.head.window * frame_rate <= MAX_WINDOW_FRAMES,
                "head.window",
                self.head.window,
                f"at most {MAX_WINDOW_FRAMES} frames, of {frame_rate:g} a second",
            )
