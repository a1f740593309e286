"""The scan as a plain loop over time: documentation, oracle of the tests and fallback. Same signature as every scan.

    forward:   x_k = Lambda_bar_k     x_{k-1} + Bu_k,   x_{-1} = initial
    backward:  x_k = Lambda_bar_{k+1} x_{k+1} + Bu_k,   x_L    = initial

Complex numbers as planar real pairs: the last axis is [re | im].
Shapes: N batch, L steps, P stored states.
"""

import torch
from torch import Tensor


def scan_reference(
    Lambda_bar: Tensor, Bu: Tensor, *, direction: str = "forward", initial: Tensor | None = None
) -> Tensor:
    """States xs (N, L, 2P), or (N, L, 4P) for "both"; arguments as in choice.py."""
    if direction == "both":
        forward = scan_reference(Lambda_bar, Bu, direction="forward", initial=initial)
        return torch.cat([forward, scan_reference(Lambda_bar, Bu, direction="backward")], dim=-1)  # (N, L, 4P)
    N, L, _ = Bu.shape
    varies = Lambda_bar.dim() == 3
    x = torch.zeros_like(Bu[:, 0]) if initial is None else initial  # (N, 2P)
    xs: list[Tensor] = [x] * L
    for k in range(L) if direction == "forward" else reversed(range(L)):
        if not varies:
            a = Lambda_bar
        elif direction == "forward":
            a = Lambda_bar[:, k]
        else:
            a = Lambda_bar[:, (k + 1) % L]  # at the last step x is zero, so any finite factor will do
        x = multiply(a, x) + Bu[:, k]
        xs[k] = x
    return torch.stack(xs, dim=1)  # (N, L, 2P)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Complex product of planar pairs (..., 2P)."""
    a_re, a_im = a.chunk(2, dim=-1)
    b_re, b_im = b.chunk(2, dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
