"""Mean power of every mode of a bank in every frame, in plain torch over the scan: the oracle of the compiled bank.

    v_k = sum_j c_j u_{k-j},  x^1_k = a x^1_{k-1} + v_k,  x^p_k = a x^p_{k-1} + x^{p-1}_k,  power = |x^n|^2

Legend: N batch, L samples, M modes, F frames, T taps, R = N or 1 (all rows alike); planar pairs [re | im] of length 2M.
"""

import torch
from torch import Tensor

from kws_s5.ops.bank.frames import count_frames, frame_edges, frame_lengths, frame_means
from kws_s5.ops.scan.choice import scan

TAPS = 3  # of the input; four gain little and cost more
OFFSET = 1e-12  # on every sample of a stream: keeps decaying states out of the denormal range, where processors crawl


def power_reference(u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor, F: int, n_poles: int) -> Tensor:
    """(N, F, M); arguments as ``bank_power`` (power.py). Keeps all states."""
    N, L = u.shape
    valid = torch.arange(L, device=u.device) < lengths[:, None]  # (N, L)
    u = torch.where(valid, u, torch.zeros_like(u))
    x = sum(delay(u, j)[..., None] * c[:, j, None, :] for j in range(c.shape[1]))  # (N, L, 2M)
    for _ in range(n_poles):
        x = scan(a.expand(N, -1), x)
    re, im = x.chunk(2, -1)
    power = (re.square() + im.square()) * valid[..., None]
    return frame_means(power, step.expand(N), F) * known_frames(lengths, step, F)[..., None]


def stream_reference(
    u: Tensor, a: Tensor, c: Tensor, step: Tensor, recent: Tensor, memory: Tensor, position: int, F: int, n_poles: int
) -> Tensor:
    """(N, F, M); arguments as ``stream_power`` (power.py), which moves ``recent`` and ``memory`` on in place."""
    (N, L), M = u.shape, a.shape[1] // 2
    if L == 0:
        return u.new_zeros(N, 0, M)
    heard = torch.cat([recent.flip(1), u + OFFSET], 1)  # (N, 2 + L)
    x = sum(heard[:, TAPS - 1 - j : TAPS - 1 - j + L, None] * c[:, j, None, :] for j in range(TAPS))  # (N, L, 2M)
    for p in range(n_poles):
        pole = memory[:, 2 * M * p : 2 * M * (p + 1)]
        x = scan(a[0], x, initial=pole.contiguous())
        pole.copy_(x[:, -1])
    re, im = x.chunk(2, -1)
    begun = memory[:, 2 * M * n_poles :]  # (N, M) power since the last edge
    total = torch.cat([torch.zeros_like(begun)[:, None], re.square() + im.square()], 1).double().cumsum(1)
    first = count_frames(position, float(step[0]))
    edges = (frame_edges(first + F, step)[0, first + 1 :] - position).clamp(max=float(L))  # (F,) in samples of u
    before = edges.floor().long()
    at_edges = torch.lerp(total[:, before], total[:, (before + 1).clamp(max=L)], (edges - before)[:, None])  # (N, F, M)
    sums = torch.cat([-begun[:, None].double(), at_edges, total[:, -1:]], 1).diff(dim=1)  # (N, F + 1, M)
    begun.copy_(sums[:, -1])
    recent.copy_(heard[:, L:].flip(1))
    return (sums[:, :F] / step[0]).to(u.dtype)


def known_frames(lengths: Tensor, step: Tensor, F: int) -> Tensor:
    """(N, F) bool: frames that belong to the clip."""
    return torch.arange(F, device=lengths.device) < frame_lengths(lengths, step)[:, None]


def delay(u: Tensor, j: int) -> Tensor:
    """(N, L), j samples later, zeros before."""
    return torch.nn.functional.pad(u, (j, 0))[:, : u.shape[1]]
