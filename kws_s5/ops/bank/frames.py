"""Frames of physical time over samples of any rate: which samples, and which part of them, a frame averages.

Sample k covers [k, k + 1) / rate; frame f covers [f, f + 1) / frame_rate, that is the samples from f * step to
(f + 1) * step with step = rate / frame_rate, which need not be whole (110.25 at 11,025 Hz). A sample on an edge counts
in both frames, each with its part. Legend: N batch, L samples, F frames, M modes.
"""

import torch
from torch import Tensor

TOLERANCE = 1e-6  # samples: an edge this close to a sample's is meant to be there


def count_frames(L: int, step: float) -> int:
    """Frames that are complete after L samples."""
    return int((L + TOLERANCE) / step)


def frame_lengths(lengths: Tensor, step: Tensor) -> Tensor:
    """(N,) int64 frames of clips of ``lengths`` samples: the complete ones, but at least one where there is a sample.

    A clip shorter than a frame gives one frame, as if silence followed it.
    """
    complete = ((lengths.to(torch.float64) + TOLERANCE) / step).to(torch.int64)
    return torch.maximum(complete, lengths.clamp(max=1))


def frame_edges(F: int, step: Tensor) -> Tensor:
    """(N, F + 1) float64: edges in samples for (N,) steps."""
    edges = torch.arange(F + 1, dtype=torch.float64, device=step.device) * step[:, None]
    whole = edges.round()
    return torch.where((edges - whole).abs() < TOLERANCE, whole, edges)


def frame_means(power: Tensor, step: Tensor, F: int) -> Tensor:
    """(N, L, M) at the samples -> (N, F, M) means over frames; beyond L the power counts as 0."""
    N, L, M = power.shape
    edges = frame_edges(F, step).clamp(max=float(L))  # (N, F + 1)
    before = edges.floor().to(torch.int64)
    total = torch.cat([power.new_zeros(N, 1, M), power], 1).to(torch.float64).cumsum(1)  # (N, L + 1, M)
    here = torch.gather(total, 1, before[..., None].expand(-1, -1, M))
    after = torch.gather(total, 1, (before + 1).clamp(max=L)[..., None].expand(-1, -1, M))
    at_edges = torch.lerp(here, after, (edges - before)[..., None].expand_as(here))
    return (at_edges.diff(dim=1) / step[:, None, None]).to(power.dtype)
