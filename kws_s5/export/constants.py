"""Everything a step needs, as plain numpy.

    constants = from_model(bundle.model)         # Constants

Each layer's discrete system comes from its mixer (``diagonal_system``, mixers/protocol.py): behind a bank the layers
see frame_rate frames a second at any sample rate, so Lambda_bar and B_bar are constants of the model.
Float64 and complex128 throughout; users round. Legend: M modes, H features, P stored states, K outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kws_s5.config import BankFront, ClassHead
from kws_s5.errors import UserError
from kws_s5.export.coefficients import USABLE
from kws_s5.model.sequence import SequenceModel
from kws_s5.ssm.diagonal import DiagonalSystem

BATCH_EPSILON, LAYER_EPSILON = 1e-5, 1e-6  # of model/norm.py
Tensors = Mapping[str, np.ndarray]
Dense = tuple[np.ndarray, np.ndarray]  # weight (out, in), bias (out,)


@dataclass(frozen=True)
class Norm:
    """gain * x + shift; with ``centred`` x is first brought to mean 0 and variance 1 over its features."""

    gain: np.ndarray
    shift: np.ndarray
    centred: bool = False


@dataclass(frozen=True)
class Layer:
    """One layer at the frame rate."""

    Lambda_bar: np.ndarray  # (P,) complex
    B_bar: np.ndarray  # (P, H) complex
    C: np.ndarray  # (H, P) complex; y = Re(C x) + D u
    D: np.ndarray  # (H,)
    norm: Norm
    ssm_norm: Norm | None  # of y
    out1: Dense | None
    out2: Dense | None


@dataclass(frozen=True)
class Constants:
    """A whole model: BankFront, layers around diagonal systems, ClassHead."""

    decay: np.ndarray  # (M,) 1/s
    frequency: np.ndarray  # (M,) Hz
    n_poles: int
    gain: float  # on the sound
    floor: float  # under the power
    frame_rate: float  # Hz
    lowest: float  # Hz, of a sound
    absent: bool  # modes that a rate cannot carry count as average ones
    norm: Norm  # of the log powers
    bias: np.ndarray  # (M,) an average mode behind the norm
    encoder: Dense
    layers: tuple[Layer, ...]
    activation: str
    prenorm: bool
    decoder: Dense  # of clips
    frame_decoder: Dense  # of frames: the same, or one of its own
    pooling: str
    window: int  # frames that a frame decision looks back; 0: the model has none


def from_model(model: SequenceModel) -> Constants:
    """Raises UserError for models of another kind."""
    _check(model)
    config = model.config
    front, head = config.front, config.head
    t = {name: value.cpu().double().numpy() for name, value in model.state_dict().items()}
    frequency = np.minimum(np.exp(t["front.log_frequency"]), USABLE * 0.5 * config.rate)
    window = max(1, round(head.window * front.frame_rate)) if head.frame_logits else 0
    return Constants(
        np.exp(t["front.log_decay"]),
        frequency,
        front.n_poles,
        front.gain,
        front.floor,
        front.frame_rate,
        max(front.frame_rate, 2.0 * front.f_min / USABLE),
        front.absent == "mean",
        _norm(t, "front.norm"),
        t["front.norm.bias"],
        _dense(t, "front.encoder"),
        tuple(_layer(layer.seq.diagonal_system(), t, f"layers.{i}") for i, layer in enumerate(model.layers)),
        config.activation,
        config.prenorm,
        _dense(t, "head.decoder"),
        _dense(t, "head.frame_decoder") or _dense(t, "head.decoder"),
        head.pooling,
        window,
    )


def _layer(system: DiagonalSystem, t: Tensors, name: str) -> Layer:
    Lambda_bar, B_bar, C, D = (part.cpu().numpy() for part in system)
    behind = None
    if f"{name}.ssm_norm.scale" in t:
        behind = _norm(t, f"{name}.ssm_norm")
        if not behind.centred:  # its gain goes into C and D
            C, D, behind = behind.gain[:, None] * C, behind.gain * D, Norm(np.ones(()), behind.shift)
    return Layer(
        Lambda_bar, B_bar, C, D, _norm(t, f"{name}.norm"), behind, _dense(t, f"{name}.out1"), _dense(t, f"{name}.out2")
    )


def _norm(t: Tensors, name: str) -> Norm:
    if f"{name}.var" not in t:
        return Norm(t[f"{name}.scale"], t[f"{name}.bias"], centred=True)
    gain = t[f"{name}.scale"] / np.sqrt(t[f"{name}.var"] + BATCH_EPSILON)
    return Norm(gain, t[f"{name}.bias"] - t[f"{name}.mean"] * gain)


def _dense(t: Tensors, name: str) -> Dense | None:
    return (t[f"{name}.weight"], t[f"{name}.bias"]) if f"{name}.weight" in t else None


def _check(model: SequenceModel) -> None:
    problem, config = "", model.config
    if not isinstance(config.front, BankFront):
        problem = f"its front is a {type(config.front).__name__}"
    elif reason := model.whole_clips():
        problem = f"it is {reason}"
    elif any(layer.norm_place == "between" or layer.seq.diagonal_system() is None for layer in model.layers):
        problem = f"its mixer is a {type(config.mixer).__name__}"
    elif not isinstance(config.head, ClassHead):
        problem = f"its head is a {type(config.head).__name__}"
    if problem:
        raise UserError(
            f"only models with BankFront, causal S5 or S4D layers and ClassHead can be exported (recipes "
            f"kws12, words, quickstart); {problem}"
        )
