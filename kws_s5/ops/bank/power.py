"""Mean power of every mode of a bank in every frame: one function, compiled on CPUs, plain torch elsewhere.

The compiled version is a torch operator (kws_s5::bank_power), so that torch.compile knows it. It has no gradient: where
one is asked for (learnable poles, or the sound itself), the plain version of reference.py runs.

Legend: N batch, L samples, M modes, F frames, T taps, R = N or 1 (all rows alike); planar pairs [re | im] of length 2M.
"""

import numpy as np
import torch
from torch import Tensor

from kws_s5.ops.bank.reference import power_reference
from kws_s5.ops.common.threads import run_parallel

FULL = (torch.float32, torch.float64)  # what the kernels read and write
SMALL = 1 << 15  # samples times modes below which starting threads costs more than it saves


def bank_power(u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor, *, F: int, n_poles: int,
               backend: str | None = None) -> Tensor:
    """(N, F, M) mean of |x|^2 over the frames of whole clips. Frames behind a clip's end hold 0.

    Args:
        u: (N, L) float32 or float64.
        lengths: (N,) int64 samples that count; the rest is not looked at.
        a: (R, 2M) poles; c: (R, T, 2M) input taps (bank_design.py), of u's dtype.
        step: (R,) float64 samples per frame, at least 1.
        F: frames of the longest clip (frames.py).
        backend: "compiled", "reference", or None: compiled on CPUs, where no gradient is needed, in full precision.
    """
    if backend is None:
        compiled = u.device.type == "cpu" and u.dtype in FULL and not _needs_gradient(u, a, c)
        backend = "compiled" if compiled else "reference"
    run = power_op if backend == "compiled" else power_reference
    return run(u, lengths, a, c, step, F, n_poles)


def stream_power(u: Tensor, a: Tensor, c: Tensor, step: Tensor, *, recent: Tensor, memory: Tensor, position: int,
                 F: int, n_poles: int) -> Tensor:
    """The F frames (N, F, M) that the next samples u (N, L) complete; moves ``recent`` and ``memory`` on in place.

    recent (N, 2), memory (N, 2nM + M) and position as in kernel.py. Runs on the CPU, without gradients.
    """
    from kws_s5.ops.bank.kernel import forward_kernel

    N, L = u.shape
    lengths = torch.full((N,), L)
    return _forward(forward_kernel, u, lengths, a, c, step, recent, memory, position, F, n_poles, finish=False)


@torch.library.custom_op("kws_s5::bank_power", mutates_args=(), device_types="cpu")
def power_op(u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor, F: int, n_poles: int) -> Tensor:
    """(N, F, M), compiled."""
    from kws_s5.ops.bank.kernel import forward_kernel

    N, M = u.shape[0], a.shape[1] // 2
    recent, memory = u.new_zeros(N, 2), u.new_zeros(N, (2 * n_poles + 1) * M)
    return _forward(forward_kernel, u, lengths, a, c, step, recent, memory, 0, F, n_poles, finish=True)


@power_op.register_fake
def _(u, lengths, a, c, step, F, n_poles):
    return u.new_empty(u.shape[0], F, a.shape[1] // 2)


def _needs_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _forward(kernel, u, lengths, a, c, step, recent, memory, position, F, n_poles, *, finish) -> Tensor:
    assert u.dtype in FULL, f"{u.dtype}: the compiled bank is float32 or float64"
    (N, L), M = u.shape, a.shape[1] // 2
    out = u.new_zeros(N, F, M)
    function = kernel(M, n_poles, u.dtype == torch.float64)
    sizes = [N, L, len(step), F, position, int(finish)]
    _launch(function, sizes, [u, lengths, step, a, c], [recent, memory, out], N * L * M)
    return out


def _launch(function: int, sizes: list[int], inputs: list[Tensor], outputs: list[Tensor], work: int) -> None:
    """Runs a kernel on torch's threads; ``inputs`` are kept contiguous in memory while it runs."""
    inputs = [tensor.contiguous() for tensor in inputs]
    assert all(tensor.is_contiguous() for tensor in outputs)
    addresses = [tensor.data_ptr() for tensor in inputs + outputs]
    n_threads = min(torch.get_num_threads(), sizes[0]) if work >= SMALL else 1
    run_parallel(function, np.array([0, *sizes, *addresses], dtype=np.int64), n_threads)
