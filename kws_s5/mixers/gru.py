"""A gated recurrent unit as a mixer, a baseline: no notion of time between steps.

With ``activation = none`` the layer around it is x + GRU(norm(x)), or norm(x + GRU(x)) without prenorm.

Legend: N batch, L steps, H features.
"""

from torch import Tensor, nn

from kws_s5.config.mixers import GRUMixer
from kws_s5.config.training import Role


def build(config: GRUMixer, H: int) -> "GRU":
    return GRU(H)


class GRU(nn.GRU):
    """(N, L, H) -> (N, L, H), causal: padding needs no mask. Parameters are named as torch's."""

    takes_intervals = False
    norm_between = False
    whole_clips = ""

    def __init__(self, H: int) -> None:
        super().__init__(H, H, batch_first=True)

    def forward(
        self, u: Tensor, *, step_rescale: float | Tensor = 1.0, dt: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        return super().forward(u)[0]

    def initial_state(self, N: int) -> Tensor:
        """Zero state (N, H)."""
        return self.weight_hh_l0.new_zeros(N, self.hidden_size)

    def stream(self, u: Tensor, state: Tensor, *, step_rescale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        y, following = super().forward(u, state[None])
        return y, following[0]

    def diagonal_system(self, step_rescale: float = 1.0) -> None:
        """It is not linear."""
        return None

    def parameter_roles(self) -> dict[str, Role]:
        return {}
