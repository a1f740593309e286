"""A baseline layer: a gated recurrent unit where S5Layer has its SSM, with the same norm and skip connection.

    x -> norm(x + GRU(x)) (post-norm)   or   x + GRU(norm(x)) (pre-norm)

It has no notion of time between steps: ``dt`` reaches it only as an input (FrameFront.append_dt). Whole clips only.

Legend: N batch, L steps, H features.
"""

from torch import Tensor, nn

from kws_s5.config.model import Norm
from kws_s5.model.norm import BatchNorm, LayerNorm


class GRULayer(nn.Module):
    """x (N, L, H) -> (N, L, H), causal."""

    def __init__(self, H: int, *, norm: Norm = "batch", prenorm: bool = True, norm_momentum: float = 0.95) -> None:
        """H: features in, out and of the hidden state."""
        super().__init__()
        self.prenorm = prenorm
        self.norm = BatchNorm(H, momentum=norm_momentum) if norm == "batch" else LayerNorm(H)
        self.seq = nn.GRU(H, H, batch_first=True)

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0,
                dt: Tensor | None = None) -> Tensor:
        """As S5Layer.forward; step_rescale and dt change nothing. Being causal, it needs no masking of padding."""
        y, _ = self.seq(self.norm(x, lengths) if self.prenorm else x)
        return x + y if self.prenorm else self.norm(x + y, lengths)
