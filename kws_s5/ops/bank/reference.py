"""Mean power of every mode of a bank in every frame, in plain torch over the scan: the oracle of the compiled bank.

    v_k = sum_j c_j u_{k-j},  x^1_k = a x^1_{k-1} + v_k,  x^p_k = a x^p_{k-1} + x^{p-1}_k,  power = |x^n|^2

Legend: N batch, L samples, M modes, F frames, T taps, R = N or 1 (all rows alike); planar pairs [re | im] of length 2M.
"""

import torch
from torch import Tensor

from kws_s5.ops.bank.frames import frame_lengths, frame_means
from kws_s5.ops.scan.choice import scan

TAPS = 3  # of the input; four gain little and cost more


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


def known_frames(lengths: Tensor, step: Tensor, F: int) -> Tensor:
    """(N, F) bool: frames that belong to the clip."""
    return torch.arange(F, device=lengths.device) < frame_lengths(lengths, step)[:, None]


def delay(u: Tensor, j: int) -> Tensor:
    """(N, L), j samples later, zeros before."""
    return torch.nn.functional.pad(u, (j, 0))[:, : u.shape[1]]
