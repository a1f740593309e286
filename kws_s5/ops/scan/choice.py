"""The scan: states of a diagonal linear recurrence, one signature for every backend (S5 paper, section 2.2).

    forward:   x_k = Lambda_bar_k     x_{k-1} + Bu_k
    backward:  x_k = Lambda_bar_{k+1} x_{k+1} + Bu_k   (the factor belongs to the interval between k and k + 1)

No complex tensors: the last axis holds planar real pairs, [re of every mode | im of every mode].
Shapes: N batch, L steps, P stored states.

Backends: "reference" (reference.py, a loop), "chunked" (chunked.py, plain torch, any device), "cpu"
(cpu.py, compiled) and "triton" (triton_launch.py, CUDA devices).
"""

import torch
from torch import Tensor

from kws_s5.ops.scan.chunked import scan_chunked
from kws_s5.ops.scan.operators import scan_compiled
from kws_s5.ops.scan.reference import scan_reference
from kws_s5.ops.switch import active, compiled

DIRECTIONS = ("forward", "backward", "both")
BACKENDS = {"reference": scan_reference, "chunked": scan_chunked, "cpu": scan_compiled, "triton": scan_compiled}


def scan(
    Lambda_bar: Tensor,
    Bu: Tensor,
    *,
    direction: str = "forward",
    initial: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """States xs (N, L, 2P); for "both" (N, L, 4P) = [forward | backward].

    Args:
        Lambda_bar: (2P,) constant, (N, 2P) one per clip, or (N, L, 2P) one per step.
        Bu: (N, L, 2P) float32 or float64. Half precision is raised to float32: states are never kept in 16 bits.
        direction: "forward", "backward" or "both".
        initial: (N, 2P) state before the first step in the scan's direction; for "both", of the forward scan only.
            The backward scan takes one only with constant or per-clip ``Lambda_bar``.
        backend: name of a backend; None chooses: "cpu" on CPUs, "triton" on CUDA, "chunked" elsewhere and where the
            switch says "reference".
    """
    if Bu.dtype not in (torch.float32, torch.float64):
        Bu = Bu.float()
    Lambda_bar = Lambda_bar.to(Bu.dtype)
    initial = None if initial is None else initial.to(Bu.dtype)
    _check(Lambda_bar, Bu, direction, initial)
    return BACKENDS[backend or _choose(Bu.device.type)](Lambda_bar, Bu, direction=direction, initial=initial)


def _check(Lambda_bar: Tensor, Bu: Tensor, direction: str, initial: Tensor | None) -> None:
    N, L, width = Bu.shape
    allowed = ((width,), (N, width), (N, L, width))
    assert width % 2 == 0 and tuple(Lambda_bar.shape) in allowed, (Lambda_bar.shape, Bu.shape)
    assert direction in DIRECTIONS, direction
    if initial is not None:
        assert tuple(initial.shape) == (N, width), (initial.shape, Bu.shape)
        assert not (direction == "backward" and Lambda_bar.dim() == 3), "backward initial needs a constant factor"


def _choose(device: str) -> str:
    if device == "cpu" and compiled():
        return "cpu"
    return "triton" if device == "cuda" and active() else "chunked"  # cuda.py says so where Triton is missing
