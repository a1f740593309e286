"""A baseline layer: a convolution where S5Layer has its SSM, as in the small keyword CNNs.

    x + dropout(relu(norm(W depthwise(x))))      depthwise: each feature over the last KERNEL steps; W: (H, H)

A time-channel separable residual block (Majumdar and Ginsburg, "MatchboxNet", Interspeech 2020), made causal so that it
sees no more than a causal S5 layer. Whole clips only.

Legend: N batch, L steps, H features.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.config.model import Norm
from kws_s5.model.dense import dense
from kws_s5.model.norm import BatchNorm, LayerNorm

KERNEL = 13  # steps, the smallest kernel of the source


class ConvLayer(nn.Module):
    """x (N, L, H) -> (N, L, H), causal."""

    def __init__(self, H: int, *, dropout: float = 0.0, norm: Norm = "batch", prenorm: bool = True,
                 norm_momentum: float = 0.95) -> None:
        """H: features in and out. The norm stands before the nonlinearity, whatever ``prenorm`` says."""
        super().__init__()
        self.dropout = dropout
        self.depthwise = nn.Conv1d(H, H, KERNEL, groups=H, bias=False)
        self.pointwise = dense(H, H)
        self.norm = BatchNorm(H, momentum=norm_momentum) if norm == "batch" else LayerNorm(H)

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, step_rescale: float | Tensor = 1.0,
                dt: Tensor | None = None) -> Tensor:
        """As S5Layer.forward; step_rescale and dt change nothing. Being causal, it needs no masking of padding."""
        past = F.pad(x.transpose(1, 2), (KERNEL - 1, 0))  # (N, H, L + KERNEL - 1)
        y = self.pointwise(self.depthwise(past).transpose(1, 2))  # (N, L, H)
        return x + F.dropout(F.relu(self.norm(y, lengths)), self.dropout, self.training)
