"""Normalisation over features, in flax's conventions (the ones the published results were trained with).

BatchNorm: statistics over batch and time together, padding left out; running = momentum * running + (1 - momentum) *
batch, biased variance, epsilon 1e-5. LayerNorm: epsilon 1e-6. Parameters are called scale and bias. In evaluation
BatchNorm is one affine map per feature, so it streams; its statistics stay in float32 under autocast. Several processes
share them (all_reduce.py).

Legend: N batch, L steps, H features.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kws_s5.ops.common.all_reduce import all_reduce, n_processes

BATCH_EPSILON = 1e-5
LAYER_EPSILON = 1e-6


class BatchNorm(nn.Module):
    """(x - mean) / sqrt(var + 1e-5) * scale + bias for each of H features, mean and var over (N, L)."""

    def __init__(self, H: int, *, momentum: float = 0.95) -> None:
        """momentum: share of the old running statistics kept at each training step (torch's convention is 1 - this)."""
        super().__init__()
        self.momentum = momentum
        self.scale = nn.Parameter(torch.ones(H))
        self.bias = nn.Parameter(torch.zeros(H))
        self.register_buffer("mean", torch.zeros(H))
        self.register_buffer("var", torch.ones(H))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x (N, L, H) -> (N, L, H). ``lengths`` (N,): valid steps, the others stay out of the statistics."""
        if not self.training:
            gain = self.scale * torch.rsqrt(self.var + BATCH_EPSILON)
            return torch.addcmul(self.bias - self.mean * gain, x, gain)  # (N, L, H)
        with torch.autocast(x.device.type, enabled=False):
            n_steps = x.shape[0] * x.shape[1]
            if lengths is None and n_steps > 1 and n_processes() == 1:
                return self._all_steps(x.to(self.scale.dtype), n_steps)
            return self._valid_steps(x.to(self.scale.dtype), lengths)

    def _all_steps(self, x: Tensor, n_steps: int) -> Tensor:
        mean, var = torch.zeros_like(self.mean), torch.zeros_like(self.var)
        flat = x.reshape(n_steps, -1)  # (N L, H)
        y = F.batch_norm(flat, mean, var, self.scale, self.bias, training=True, momentum=1.0, eps=BATCH_EPSILON)
        self.remember(mean, var * ((n_steps - 1) / n_steps))  # torch reports the unbiased variance
        return y.reshape(x.shape)

    def _valid_steps(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        N, L, H = x.shape
        mask = x.new_ones(N, L) if lengths is None else valid_steps(lengths, L).to(x.dtype)
        (n_valid,) = all_reduce(mask.sum())
        weights = (mask / n_valid.clamp(min=1.0)).reshape(N * L)
        y, mean, var = _WeightedNorm.apply(x.reshape(N * L, H), weights, self.scale, self.bias)
        self.remember(mean, var)
        return y.reshape(N, L, H)

    @torch.no_grad()
    def remember(self, mean: Tensor, var: Tensor) -> None:
        """Moves the running statistics towards those of a batch, (H,) each; var biased."""
        self.mean.lerp_(mean, 1.0 - self.momentum)
        self.var.lerp_(var, 1.0 - self.momentum)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + 1e-6) * scale + bias, mean and var over the H features of each step."""

    def __init__(self, H: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(H))
        self.bias = nn.Parameter(torch.zeros(H))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x (N, L, H) -> (N, L, H); steps do not see each other, so ``lengths`` changes nothing."""
        return F.layer_norm(x, self.scale.shape, self.scale, self.bias, LAYER_EPSILON)


def valid_steps(lengths: Tensor, L: int) -> Tensor:
    """(N, L) bool: True where a step belongs to the clip, False in the padding."""
    return torch.arange(L, device=lengths.device) < lengths[:, None]


class _WeightedNorm(torch.autograd.Function):
    """y = (x - mean) / sqrt(var + epsilon) * scale + bias with mean and var weighted over the rows of all processes.

    x (M, H), weights (M,), of sum 1 over all processes -> y (M, H), mean (H,), var (H,); only y carries a gradient. One
    row-sized tensor is kept for the backward pass, where plain autograd would keep three:
    dx_i = scale / sigma * (dy_i - w_i (sum_j dy_j + xhat_i sum_j dy_j xhat_j)).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, scale: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (mean,) = all_reduce(weights @ x)
        centred = x - mean
        (var,) = all_reduce(weights @ centred.square())
        inverse = torch.rsqrt(var + BATCH_EPSILON)
        ctx.save_for_backward(x, weights, scale, mean, inverse)
        ctx.mark_non_differentiable(mean, var)
        return torch.addcmul(bias, centred, scale * inverse), mean, var

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        x, weights, scale, mean, inverse = ctx.saved_tensors
        xhat = (x - mean).mul_(inverse)
        dbias, dscale = dy.sum(0), (dy * xhat).sum(0)
        all_dbias, all_dscale = all_reduce(dbias, dscale)
        through_statistics = xhat.mul_(all_dscale).add_(all_dbias).mul_(weights[:, None])
        return (dy - through_statistics).mul_(scale * inverse), None, dscale, dbias
