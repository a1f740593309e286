"""A causal time-channel separable convolution as a mixer, a baseline: no notion of time between steps.

    y = W depthwise(u)          depthwise: each feature over its last ``kernel`` steps; W: (H, H)

With ``activation = relu`` the layer around it is x + dropout(relu(norm(y))): a residual block of the small keyword CNNs
(Majumdar and Ginsburg, "MatchboxNet", Interspeech 2020), made causal so that it sees no more than a causal S5 layer.

Legend: N batch, L steps, H features, T kernel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config.mixers import ConvMixer
from kws_s5.config.training import Role
from kws_s5.ssm.init import lecun_normal


def build(config: ConvMixer, H: int) -> "Conv":
    return Conv(H, config.kernel)


class Conv(nn.Module):
    """(N, L, H) -> (N, L, H), causal: padding needs no mask."""

    takes_intervals = False
    norm_between = True
    whole_clips = ""

    def __init__(self, H: int, kernel: int) -> None:
        super().__init__()
        self.H, self.T = H, kernel
        self.depthwise = nn.Conv1d(H, H, kernel, groups=H, bias=False)
        self.pointwise = nn.Linear(H, H)
        with torch.no_grad():
            self.pointwise.weight.copy_(lecun_normal((H, H), H))
            self.pointwise.bias.zero_()

    def forward(
        self, u: Tensor, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        return self._filtered(F.pad(u.transpose(1, 2), (self.T - 1, 0)))  # of (N, H, T - 1 + L)

    def initial_state(self, N: int) -> Tensor:
        """The last T - 1 inputs, (N, T - 1, H): zeros."""
        return self.pointwise.bias.new_zeros(N, self.T - 1, self.H)

    def stream(self, u: Tensor, state: Tensor, *, step_rescale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        known = torch.cat([state, u], 1)  # (N, T - 1 + l, H)
        return self._filtered(known.transpose(1, 2)), known[:, known.shape[1] - self.T + 1 :].clone()

    def diagonal_system(self, step_rescale: float = 1.0) -> None:
        """It has no state of its own to carry."""
        return None

    def parameter_roles(self) -> dict[str, Role]:
        return {}

    def _filtered(self, u: Tensor) -> Tensor:
        """(N, H, T - 1 + L) -> (N, L, H)."""
        return self.pointwise(self.depthwise(u).transpose(1, 2))
