"""Dense layers that begin as flax's do: LeCun-normal weights (truncated at two sigma), zero biases.

torch's own default (uniform weights, random bias) is another distribution; the published results rest on this one.
"""

import torch
from torch import Tensor, nn

from kws_s5.ssm.init import lecun_normal


def dense(n_in: int, n_out: int) -> nn.Linear:
    """y = W x + b with W (n_out, n_in) of variance 1 / n_in and b = 0."""
    layer = nn.Linear(n_in, n_out)
    lecun_normal_(layer.weight, n_in)
    nn.init.zeros_(layer.bias)
    return layer


@torch.no_grad()
def lecun_normal_(weight: Tensor, fan_in: int) -> Tensor:
    """Fills ``weight`` in place: normal cut at two sigma, of variance 1 / fan_in."""
    return weight.copy_(lecun_normal(tuple(weight.shape), fan_in))
