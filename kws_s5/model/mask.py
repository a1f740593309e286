"""Random changes of a front's normalised features in training: warping and masking along frequency, masking in time.

    warp    every clip's channels are stretched by a random factor: other vocal tracts (VTLP, Jaitly and Hinton 2013)
    top     all channels above a random one are replaced by the channels' average: what a lower sample rate leaves
    masks   one stretch of frames and one band of channels likewise (SpecAugment, Park et al. 2019)

The training task switches it on with ``set_masks``; it is never active in evaluation. Random numbers come from torch's
global generator.

Legend: N batch, F frames, M channels.
"""

import torch
from torch import Tensor, nn

LOST = 0.6  # share of the channels that ``top`` hides at most


class FeatureMask(nn.Module):
    """Has no effect until ``set_masks``."""

    def __init__(self, frame_rate: float) -> None:
        """frame_rate: Hz."""
        super().__init__()
        self.frame_rate = frame_rate
        self.time = 0.0  # seconds, longest stretch
        self.frequency = 0.0  # share of the channels, widest band
        self.top = 0.0  # probability that a clip loses its upper channels
        self.warp = 0.0  # natural log of the largest stretch of the frequency axis

    def forward(self, x: Tensor, lengths: Tensor | None, fill: Tensor) -> Tensor:
        """x (N, F, M), lengths (N,) frames or None, fill (M,) the average of every channel -> (N, F, M)."""
        if not self.training or max(self.time, self.frequency, self.top, self.warp) <= 0:
            return x
        N, F, M = x.shape
        if self.warp > 0:
            x = warped(x, torch.exp((2.0 * torch.rand(N) - 1.0) * self.warp))
        frames = torch.full((N,), float(F)) if lengths is None else lengths.cpu().float()
        hidden_frames = stretch(F, frames, longest=self.time * self.frame_rate)  # (N, F)
        hidden_channels = stretch(M, torch.full((N,), float(M)), longest=self.frequency * M)  # (N, M)
        if self.top > 0:
            kept = torch.where(torch.rand(N) < self.top, M * (1.0 - LOST * torch.rand(N)), float(M))
            hidden_channels |= torch.arange(M) >= kept[:, None]
        hidden = hidden_frames.to(x.device)[:, :, None] | hidden_channels.to(x.device)[:, None, :]
        return torch.where(hidden, fill.to(x.dtype), x)


def warped(x: Tensor, factor: Tensor) -> Tensor:
    """x (N, F, M), factor (N,): channel m takes the value at place factor * m, interpolated, the edge continued."""
    M = x.shape[2]
    place = (torch.arange(M) * factor[:, None]).clamp(max=M - 1.0)  # (N, M)
    lower = place.floor().clamp(max=max(M - 2, 0))
    share = (place - lower).to(x)[:, None, :]
    lower = lower.long().to(x.device)[:, None, :].expand_as(x)
    upper = (lower + 1).clamp(max=M - 1)
    return torch.lerp(x.gather(2, lower), x.gather(2, upper), share)


def stretch(size: int, available: Tensor, *, longest: float) -> Tensor:
    """(N, size) bool: one random stretch a row, of up to ``longest`` (uniform), inside the first ``available``."""
    width = (torch.rand(len(available)) * (longest + 1.0)).clamp(max=longest).floor()
    width = torch.minimum(width, available)
    start = (torch.rand(len(available)) * (available - width + 1.0)).floor()
    places = torch.arange(size)
    return (places >= start[:, None]) & (places < (start + width)[:, None])


def set_masks(
    model: nn.Module, *, time: float = 0.0, frequency: float = 0.0, top: float = 0.0, warp: float = 0.0
) -> int:
    """Sets the strength of every mask in ``model``; returns how many there are (0: its front has none).

    Args:
        time: longest stretch in seconds; 0: none.
        frequency: widest band as a share of the channels; 0: none.
        top: probability that a clip loses its upper channels (at most LOST of them).
        warp: natural log of the largest stretch of the frequency axis; 0: none.
    """
    masks = [module for module in model.modules() if isinstance(module, FeatureMask)]
    for mask in masks:
        mask.time, mask.frequency, mask.top, mask.warp = time, frequency, top, warp
    return len(masks)
