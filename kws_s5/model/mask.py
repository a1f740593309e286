"""Time and frequency masking of a front's normalised features in training (SpecAugment, Park et al. 2019).

One stretch of frames and one band of channels of every clip are replaced by the channels' average. The training task
switches it on with ``set_masks``; it is never active in evaluation. Random numbers come from torch's global generator.

Legend: N batch, F frames, M channels.
"""

import torch
from torch import Tensor, nn


class FeatureMask(nn.Module):
    """Has no effect until ``set_masks``."""

    def __init__(self, frame_rate: float) -> None:
        """frame_rate: Hz."""
        super().__init__()
        self.frame_rate = frame_rate
        self.time = 0.0  # seconds, longest stretch
        self.frequency = 0.0  # share of the channels, widest band

    def forward(self, x: Tensor, lengths: Tensor | None, fill: Tensor) -> Tensor:
        """x (N, F, M), lengths (N,) frames or None, fill (M,) the average of every channel -> (N, F, M)."""
        if not self.training or (self.time <= 0 and self.frequency <= 0):
            return x
        N, F, M = x.shape
        frames = torch.full((N,), float(F)) if lengths is None else lengths.cpu().float()
        hidden_frames = stretch(F, frames, longest=self.time * self.frame_rate).to(x.device)  # (N, F)
        hidden_channels = stretch(M, torch.full((N,), float(M)), longest=self.frequency * M).to(x.device)  # (N, M)
        hidden = hidden_frames[:, :, None] | hidden_channels[:, None, :]
        return torch.where(hidden, fill.to(x.dtype), x)


def stretch(size: int, available: Tensor, *, longest: float) -> Tensor:
    """(N, size) bool: one random stretch a row, of up to ``longest`` (uniform), inside the first ``available``."""
    width = (torch.rand(len(available)) * (longest + 1.0)).clamp(max=longest).floor()
    width = torch.minimum(width, available)
    start = (torch.rand(len(available)) * (available - width + 1.0)).floor()
    places = torch.arange(size)
    return (places >= start[:, None]) & (places < (start + width)[:, None])


def set_masks(model: nn.Module, *, time: float, frequency: float) -> int:
    """Sets the strength of every mask in ``model``; returns how many there are (0: its front has none).

    Args:
        time: longest stretch in seconds; 0: none.
        frequency: widest band as a share of the channels; 0: none.
    """
    masks = [module for module in model.modules() if isinstance(module, FeatureMask)]
    for mask in masks:
        mask.time, mask.frequency = time, frequency
    return len(masks)
