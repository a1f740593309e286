"""Everything a step needs, as plain numpy: from the tensors and the config of a model file, without torch.

    constants = from_tensors(config.model, {"layers.0.seq.B": array, ...})         # Constants

The continuous-time system of each layer is discretised here (S5 paper, eq. 6; ssm/discretize.py): behind a bank the
layers see frame_rate frames a second at any sample rate, so Lambda_bar and B_bar are constants of the model.
Float64 and complex128 throughout; users round. Legend: M modes, H features, P stored states, K outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kws_s5.config import BankFront, ClassHead, ModelConfig, SSMConfig
from kws_s5.errors import UserError
from kws_s5.export.coefficients import USABLE

BATCH_EPSILON, LAYER_EPSILON, CLIP = 1e-5, 1e-6, -1e-4  # of model/norm.py and ssm/s5.py
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
    """One S5 layer at the frame rate."""

    Lambda_bar: np.ndarray  # (P,) complex
    B_bar: np.ndarray  # (P, H) complex
    C: np.ndarray  # (H, P) complex; y = Re(C x) + D u, the factor 2 of conj_sym included
    D: np.ndarray  # (H,)
    norm: Norm
    ssm_norm: Norm | None  # of y
    out1: Dense | None
    out2: Dense | None


@dataclass(frozen=True)
class Constants:
    """A whole model: BankFront, causal S5 layers, ClassHead."""

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
    decoder: Dense
    pooling: str
    window: int  # frames that a frame decision looks back; 0: the model has none


def from_tensors(config: ModelConfig, tensors: Tensors) -> Constants:
    """Raises UserError for models of another kind."""
    _check(config)
    front, head = config.front, config.head
    t = {name: np.asarray(value, np.float64) for name, value in tensors.items()}
    frequency = np.minimum(np.exp(t["front.log_frequency"]), USABLE * 0.5 * config.rate)
    window = max(1, round(head.window * front.frame_rate)) if head.frame_logits else 0
    return Constants(
        np.exp(t["front.log_decay"]), frequency, front.n_poles, front.gain, front.floor, front.frame_rate,
        max(front.frame_rate, 2.0 * front.f_min / USABLE), front.absent == "mean", _norm(t, "front.norm"),
        t["front.norm.bias"], _dense(t, "front.encoder"),
        tuple(_layer(config.ssm, t, f"layers.{i}") for i in range(config.n_layers)), config.activation, config.prenorm,
        _dense(t, "head.decoder"), head.pooling, window)


def discretize(Lambda: np.ndarray, Delta: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Lambda (P,) complex and Delta (P,) -> Lambda_bar (P,) and gamma (P,), with B_bar = gamma B~."""
    z = Lambda * Delta
    if method == "bilinear":
        return (1 + z / 2) / (1 - z / 2), Delta / (1 - z / 2)
    safe = np.where(z == 0, 1, z)
    return np.exp(z), Delta * np.where(z == 0, 1, np.expm1(safe) / safe)


def _layer(ssm: SSMConfig, t: Tensors, name: str) -> Layer:
    real = t[f"{name}.seq.Lambda_re"]
    real = -np.exp(real) if ssm.eigenvalues == "exp" else np.minimum(real, CLIP) if ssm.eigenvalues == "clip" else real
    Delta = np.exp(t[f"{name}.seq.log_step"][:, 0])
    Lambda_bar, gamma = discretize(real + 1j * t[f"{name}.seq.Lambda_im"], Delta, ssm.discretization)
    B, C = (t[f"{name}.seq.{letter}"] @ np.array([1, 1j]) for letter in "BC")  # last axis: real, imaginary
    C = 2 * C if ssm.conj_sym else C
    D, behind = t[f"{name}.seq.D"], None
    if f"{name}.ssm_norm.scale" in t:
        behind = _norm(t, f"{name}.ssm_norm")
        if not behind.centred:  # its gain goes into C and D
            C, D, behind = behind.gain[:, None] * C, behind.gain * D, Norm(np.ones(()), behind.shift)
    return Layer(Lambda_bar, gamma[:, None] * B, C, D, _norm(t, f"{name}.norm"), behind, _dense(t, f"{name}.out1"),
                 _dense(t, f"{name}.out2"))


def _norm(t: Tensors, name: str) -> Norm:
    if f"{name}.var" not in t:
        return Norm(t[f"{name}.scale"], t[f"{name}.bias"], centred=True)
    gain = t[f"{name}.scale"] / np.sqrt(t[f"{name}.var"] + BATCH_EPSILON)
    return Norm(gain, t[f"{name}.bias"] - t[f"{name}.mean"] * gain)


def _dense(t: Tensors, name: str) -> Dense | None:
    return (t[f"{name}.weight"], t[f"{name}.bias"]) if f"{name}.weight" in t else None


def _check(config: ModelConfig) -> None:
    problem = ""
    if not isinstance(config.front, BankFront):
        problem = f"its front is a {type(config.front).__name__}"
    elif config.cell != "s5":
        problem = f"its layers are {config.cell}"
    elif config.ssm.bidirectional:
        problem = "it is bidirectional"
    elif not isinstance(config.head, ClassHead):
        problem = f"its head is a {type(config.head).__name__}"
    if problem:
        raise UserError(f"only models with BankFront, causal S5 layers and ClassHead can be exported (recipes kws12, "
                        f"words, quickstart); {problem}")
