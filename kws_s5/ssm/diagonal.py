"""A diagonal linear system as plain numbers: what packed streams and exported graphs run, whatever mixer it came from.

    x_k = Lambda_bar x_{k-1} + B_bar u_k        y_k = Re(C x_k) + D u_k

In a stream the state is one row of real pairs, [re of every state | im of every state].
Legend: H features, P states.
"""

from typing import NamedTuple

from torch import Tensor


class DiagonalSystem(NamedTuple):
    """One layer's system at one step size, without gradients."""

    Lambda_bar: Tensor  # (P,) complex128
    B_bar: Tensor  # (P, H) complex128
    C: Tensor  # (H, P) complex128
    D: Tensor  # (H,) float64
