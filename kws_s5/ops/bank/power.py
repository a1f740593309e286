"""Mean power of every mode of a bank in every frame: compiled on CPUs, plain torch elsewhere (reference.py).

The compiled version is a torch operator (kws_s5::bank_power), so that torch.compile knows it. It has no gradient: where
one is asked for (learnable poles, or the sound itself), the plain version runs; so it does where nothing is compiled
(switch.py).

Legend: N batch, L samples, M modes, F frames, T taps, R = N or 1 (all rows alike); planar pairs [re | im] of length 2M.
"""

import numpy as np
import torch
from torch import Tensor

from kws_s5.ops.bank.reference import power_reference, stream_reference
from kws_s5.ops.switch import compiled, ready

FULL = (torch.float32, torch.float64)  # what the kernels read and write
SMALL = 1 << 15  # samples times modes below which starting threads costs more than it saves


def bank_power(
    u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor, *, F: int, n_poles: int, backend: str | None = None
) -> Tensor:
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
        here = u.device.type == "cpu" and u.dtype in FULL and not _needs_gradient(u, a, c)
        backend = "compiled" if here and compiled() else "reference"
    run = power_op if backend == "compiled" else power_reference
    return run(u, lengths, a, c, step, F, n_poles)


def stream_power(
    u: Tensor,
    a: Tensor,
    c: Tensor,
    step: Tensor,
    *,
    recent: Tensor,
    memory: Tensor,
    position: int,
    F: int,
    n_poles: int,
) -> Tensor:
    """The F frames (N, F, M) that the next samples u (N, L) complete; moves ``recent`` and ``memory`` on in place.

    recent (N, 2) and memory (N, 2nM + M): see kernel.py; position: samples before u. On the CPU, without gradients.
    """
    assert u.dtype in FULL, f"{u.dtype}: a stream is float32 or float64"
    if not (compiled() and ready(lambda: _kernel(a, n_poles, u.dtype))):
        return stream_reference(u, a, c, step, recent, memory, position, F, n_poles)
    lengths = torch.full((len(u),), u.shape[1])
    return _run(u, lengths, a, c, step, recent, memory, position, F, n_poles, finish=False)


@torch.library.custom_op("kws_s5::bank_power", mutates_args=(), device_types="cpu")
def power_op(u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor, F: int, n_poles: int) -> Tensor:
    """(N, F, M), compiled; plain where that fails."""
    assert u.dtype in FULL, f"{u.dtype}: the compiled bank is float32 or float64"
    if not ready(lambda: _kernel(a, n_poles, u.dtype)):
        return power_reference(u, lengths, a, c, step, F, n_poles)
    recent, memory = u.new_zeros(len(u), 2), u.new_zeros(len(u), (2 * n_poles + 1) * (a.shape[1] // 2))
    return _run(u, lengths, a, c, step, recent, memory, 0, F, n_poles, finish=True)


@power_op.register_fake
def _(u, lengths, a, c, step, F, n_poles):
    return u.new_empty(u.shape[0], F, a.shape[1] // 2)


def _needs_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _kernel(a: Tensor, n_poles: int, dtype: torch.dtype) -> int:
    from kws_s5.ops.bank.kernel import forward_kernel

    return forward_kernel(a.shape[1] // 2, n_poles, dtype == torch.float64)


def _run(u, lengths, a, c, step, recent, memory, position, F, n_poles, *, finish) -> Tensor:
    """Runs the kernel on torch's threads."""
    from kws_s5.ops.common.threads import run_parallel

    (N, L), M = u.shape, a.shape[1] // 2
    inputs = [tensor.contiguous() for tensor in (u, lengths, step, a, c)]  # alive while it runs
    outputs = [recent, memory, u.new_zeros(N, F, M)]
    assert all(tensor.is_contiguous() for tensor in outputs)
    job = [0, N, L, len(step), F, position, int(finish), *(tensor.data_ptr() for tensor in inputs + outputs)]
    n_threads = min(torch.get_num_threads(), N) if N * L * M >= SMALL else 1
    run_parallel(_kernel(a, n_poles, u.dtype), np.array(job, dtype=np.int64), n_threads)
    return outputs[-1]
