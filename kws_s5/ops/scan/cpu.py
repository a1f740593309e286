"""The scan on CPUs: prepares memory and work for the compiled kernels of cpu_kernels.py.

Work is cut into items: one clip and one direction (the gradient: one clip), or, when there are fewer of these than
threads, a slice of the modes of one. Threads are torch's own (common/threads.py). Sums over time are kept in float64.
Shapes: N batch, L steps, P stored states, D directions (1 or 2); planar pairs [re | im] on the last axis.
"""

import numpy as np
import torch
from torch import Tensor

from kws_s5.ops.common.threads import run_parallel
from kws_s5.ops.scan import cpu_kernels as kernels

SMALL = 1 << 15  # numbers below which starting threads costs more than it saves
LANES = 16  # no slice is narrower than one vector


def forward(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    """States xs (N, L, 2 D P)."""
    Lambda_bar, Bu = Lambda_bar.contiguous(), Bu.contiguous()
    N, L, width = Bu.shape
    D = 2 if direction == "both" else 1
    xs = torch.empty(N, L, D * width, dtype=Bu.dtype)
    start = torch.zeros(2, N, width, dtype=Bu.dtype)  # of the first and the second direction
    if initial is not None:
        start[0] = initial
    pointers = [Lambda_bar, Bu, start, xs]
    _launch("forward", Lambda_bar, (N, L, width // 2, D), direction, D, pointers)
    return xs


def adjoint(
    Lambda_bar: Tensor, xs: Tensor, initial: Tensor | None, grad_xs: Tensor, direction: str, needs_Lambda: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Lambda_bar (empty unless needed) and Bu (N, L, 2P), and g (N, 2P) where the first scan starts."""
    Lambda_bar, xs, grad_xs = Lambda_bar.contiguous(), xs.contiguous(), grad_xs.contiguous()
    D = 2 if direction == "both" else 1
    N, L, width = xs.shape[0], xs.shape[1], xs.shape[2] // D
    new = {"dtype": xs.dtype}
    per_step = Lambda_bar.dim() == 3
    grad_Bu = torch.empty(N, L, width, **new)
    start, g = torch.zeros(2, N, width, **new), torch.zeros(2, N, width, **new)
    if initial is not None:
        start[0] = initial
    rows = torch.zeros(N, L if per_step else 1, width, **new) if needs_Lambda else torch.zeros(0, **new)
    sums = torch.zeros(N, width, dtype=torch.float64)
    one = torch.zeros(2, width, **new)
    one[0, : width // 2] = 1
    pointers = [Lambda_bar, xs, start, grad_xs, grad_Bu, g, one, rows, sums]
    _launch("adjoint", Lambda_bar, (N, L, width // 2, D), direction, 1, pointers, needs_Lambda)
    if not needs_Lambda or per_step:
        return rows, grad_Bu, g[0]
    sums = sums.sum(0) if Lambda_bar.dim() == 1 else sums
    return sums.to(xs.dtype), grad_Bu, g[0]


def kernel(name: str, dtype: torch.dtype) -> int:
    """Address of the compiled "forward" or "adjoint"."""
    return kernels.compiled(name, dtype == torch.float64)


def forward_into(
    xs: Tensor, Lambda_bar: Tensor, Bu: Tensor, start: Tensor, sizes: tuple[int, int, int], *, backward: bool
) -> None:
    """Writes the states of one direction to ``xs``. All (N, L, 2P) in memory, ``start`` (N, 2P); sizes (N, L, P)."""
    direction = "backward" if backward else "forward"
    _launch("forward", Lambda_bar, (*sizes, 1), direction, 1, [Lambda_bar, Bu, start, xs])


def adjoint_into(
    grad_Bu: Tensor,
    Lambda_bar: Tensor,
    xs: Tensor,
    start: Tensor,
    grad_xs: Tensor,
    g: Tensor,
    sums: Tensor,
    sizes: tuple[int, int, int],
    *,
    backward: bool,
) -> None:
    """Gradient of ``forward_into`` for a constant factor, as one stretch of a longer one.

    g (N, 2P) is the adjoint state behind the stretch and becomes the one at its start; the factor's gradient is added
    to ``sums`` (N, 2P) float64.
    """
    N, _, P = sizes
    rows, one = xs.new_zeros(N, 2 * P), xs.new_zeros(2, 2 * P)
    one[0, :P] = 1
    pointers = [Lambda_bar, xs, start, grad_xs, grad_Bu, g, one, rows, sums]
    _launch("adjoint", Lambda_bar, (*sizes, 1), "backward" if backward else "forward", 1, pointers, True)


def _launch(
    name: str,
    Lambda_bar: Tensor,
    sizes: tuple[int, int, int, int],
    direction: str,
    items_per_clip: int,
    pointers: list[Tensor],
    needs_Lambda: bool = False,
) -> None:
    """Packs sizes and addresses in the order cpu_kernels.py unpacks them, and runs the items on torch's threads."""
    N, L, P, D = sizes
    n_items = N * items_per_clip
    if n_items * L == 0:
        return
    n_threads = torch.get_num_threads() if N * L * P * D >= SMALL else 1
    tiles = max(1, min(-(-n_threads // n_items), P // LANES))
    span = -(-P // tiles)
    span += -span % LANES if tiles > 1 else 0  # whole vectors
    tiles = -(-P // span)
    n_items *= tiles
    kind = Lambda_bar.dim() - 1  # 0 constant, 1 per clip, 2 per step
    header = [0, n_items, N, L, P, D, tiles, span, kind, direction == "backward", needs_Lambda]
    job = np.array(header + [tensor.data_ptr() for tensor in pointers], dtype=np.int64)
    run_parallel(kernel(name, pointers[1].dtype), job, min(n_threads, n_items))
