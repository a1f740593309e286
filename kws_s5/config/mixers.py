"""What a layer does along time: the config of every mixer (kws_s5/mixers has their code).

A class here holds a mixer's options with the defaults of its paper. ``proof(H)`` names one of its tensors and that
tensor's shape, by which the reader of a model file sees that the file holds what it claims before memory is taken.

Legend: H features, P stored states.
"""

from dataclasses import dataclass
from typing import Literal

from kws_s5.config.checks import one_of, require

CInit = Literal["trunc_standard_normal", "lecun_normal", "complex_normal"]
Discretization = Literal["zoh", "bilinear"]
Eigenvalues = Literal["free", "clip", "exp"]
S4DInit = Literal["lin", "inv", "legs"]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class S5Mixer:
    """One linear state space model of all features (S5 paper, section 3)."""

    ssm_size: int = 256
    """Nominal state size P (full count; half of it is stored with conj_sym)."""
    blocks: int = 8
    """HiPPO blocks J on the diagonal at initialisation."""
    C_init: CInit = "trunc_standard_normal"
    """Distribution of the initial C."""
    discretization: Discretization = "zoh"
    """zoh: zero-order hold. bilinear: Tustin's rule."""
    dt_min: float = 0.001
    """Smallest initial step Delta, in steps of the layer's input."""
    dt_max: float = 0.1
    """Largest initial step Delta."""
    conj_sym: bool = True
    """Store half of the spectrum and read out 2 Re(C x)."""
    bidirectional: bool = False
    """Scan in both directions of time. Such a model needs whole clips and cannot stream."""
    eigenvalues: Eigenvalues = "free"
    """free: as in the paper; clip: Re(Lambda) <= -1e-4; exp: Re(Lambda) = -exp(rho), always stable."""

    def __post_init__(self) -> None:
        one_of("mixer.C_init", self.C_init, CInit)
        one_of("mixer.discretization", self.discretization, Discretization)
        one_of("mixer.eigenvalues", self.eigenvalues, Eigenvalues)
        require(
            self.blocks >= 1 and self.ssm_size % self.blocks == 0,
            "mixer.blocks",
            self.blocks,
            f"a divisor of ssm_size ({self.ssm_size})",
        )
        if self.conj_sym:
            require(
                (self.ssm_size // self.blocks) % 2 == 0,
                "mixer.ssm_size",
                self.ssm_size,
                "an even multiple of blocks when conj_sym is on",
            )
        _check_steps(self.dt_min, self.dt_max)

    def proof(self, H: int) -> Shapes:
        return {"Lambda_re": (self.ssm_size // 2 if self.conj_sym else self.ssm_size,)}


@dataclass(frozen=True)
class S4DMixer:
    """One diagonal state space model for each feature (Gu et al., S4D, 2022)."""

    n_states: int = 64
    """States of each feature (full count N; half of them are stored, the others are their conjugates)."""
    init: S4DInit = "legs"
    """Eigenvalues at the start: lin and inv as in S4D-Lin and S4D-Inv; legs: those of HiPPO-LegS's normal part."""
    discretization: Discretization = "zoh"
    """zoh: zero-order hold. bilinear: Tustin's rule."""
    dt_min: float = 0.001
    """Smallest initial step Delta, in steps of the layer's input."""
    dt_max: float = 0.1
    """Largest initial step Delta."""

    def __post_init__(self) -> None:
        one_of("mixer.init", self.init, S4DInit)
        one_of("mixer.discretization", self.discretization, Discretization)
        require(self.n_states >= 2 and self.n_states % 2 == 0, "mixer.n_states", self.n_states, "even and at least 2")
        _check_steps(self.dt_min, self.dt_max)

    def proof(self, H: int) -> Shapes:
        return {"A_imag": (H, self.n_states // 2)}


@dataclass(frozen=True)
class GRUMixer:
    """A gated recurrent unit, as a baseline: no notion of time between steps."""

    def proof(self, H: int) -> Shapes:
        return {"weight_hh_l0": (3 * H, H)}


@dataclass(frozen=True)
class ConvMixer:
    """A causal time-channel separable convolution, as a baseline: no notion of time between steps."""

    kernel: int = 13
    """Steps; 13 is the smallest kernel of MatchboxNet."""

    def __post_init__(self) -> None:
        require(self.kernel >= 1, "mixer.kernel", self.kernel, "at least 1")

    def proof(self, H: int) -> Shapes:
        return {"depthwise.weight": (H, 1, self.kernel)}


Mixer = S5Mixer | S4DMixer | GRUMixer | ConvMixer
MIXERS: dict[str, type[Mixer]] = {"s5": S5Mixer, "s4d": S4DMixer, "gru": GRUMixer, "conv": ConvMixer}
"""By their names on the command line."""


def _check_steps(dt_min: float, dt_max: float) -> None:
    require(0 < dt_min <= dt_max, "mixer.dt_min", dt_min, f"in (0, dt_max = {dt_max}]")
