"""Random initial values of B, C and log_step (S5 paper, appendix B.1), drawn in float64 from torch's global generator.

The variances are those of the official code, whose fan-ins differ from what the names suggest: see each function.
Shapes: H features, S ssm_size (full spectrum), P stored states, V (S, P) and Vinv (P, S) from hippo.py.
"""

import math

import torch
from torch import Tensor

TRUNCATION = 2.0  # standard deviations
TRUNCATED_STD = 0.87962566103423978  # standard deviation of N(0, 1) cut at +-2


def lecun_normal(shape: tuple[int, ...], fan_in: int) -> Tensor:
    """Normal values cut at two standard deviations, with variance 1 / fan_in after the cut; float64."""
    values = torch.empty(shape, dtype=torch.float64)
    torch.nn.init.trunc_normal_(values, 0.0, 1.0, -TRUNCATION, TRUNCATION)
    return values / (TRUNCATED_STD * math.sqrt(fan_in))


def init_B(H: int, Vinv: Tensor) -> Tensor:
    """B~ = V^-1 B (P, H) complex128 with B real, LeCun-normal with fan-in S (not H)."""
    S = Vinv.shape[1]
    return Vinv @ lecun_normal((S, H), fan_in=S).to(Vinv.dtype)


def init_C(H: int, V: Tensor, kind: str) -> Tensor:
    """C~ (H, P) complex128.

    Args:
        kind: "trunc_standard_normal": C~ = C V, real and imaginary parts of variance 1 / S (row-wise fan-in, despite
            the name); "lecun_normal": C~ = C V with variance 1 / (S H); "complex_normal": C~ itself, variance 1/2.
    """
    S, P = V.shape
    if kind == "complex_normal":
        return torch.view_as_complex(torch.randn(H, P, 2, dtype=torch.float64) * math.sqrt(0.5))
    fan_in = {"trunc_standard_normal": S, "lecun_normal": S * H}[kind]
    return torch.view_as_complex(lecun_normal((H, S, 2), fan_in)) @ V


def init_log_step(P: int, dt_min: float, dt_max: float) -> Tensor:
    """log Delta (P, 1) float64, uniform between log dt_min and log dt_max."""
    low, high = math.log(dt_min), math.log(dt_max)
    return low + (high - low) * torch.rand(P, 1, dtype=torch.float64)
