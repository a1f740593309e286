"""Sums over the batches of all processes of a training, so that norms see one batch whatever its number of shares.

With one process everything stays as it is. Gradients: every process must take the gradient of the sum of all losses
with respect to its own activations (torch's DistributedDataParallel then averages over processes), so what passes
through shared statistics is summed over processes too, and what belongs to a parameter is not.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def n_processes() -> int:
    """Of this training; 1 where nothing is distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


@torch.no_grad()
def all_reduce(*values: Tensor) -> tuple[Tensor, ...]:
    """The sum of every value over all processes; copies, in one message. All of one type and device."""
    if n_processes() == 1:
        return values
    message = torch.cat([value.reshape(-1) for value in values])
    dist.all_reduce(message)
    parts = message.split([value.numel() for value in values])
    return tuple(part.view_as(value) for part, value in zip(parts, values, strict=True))
