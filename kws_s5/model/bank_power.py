"""Mean power of every mode of a bank in every frame: one function, compiled on CPUs, plain torch elsewhere.

The compiled version is a torch operator (kws_s5::bank_power and its gradient), so that autograd and torch.compile know
it. It gives gradients for the coefficients, which is what training needs; where the gradient of the sound itself is
asked for, the plain version runs.

Legend: N batch, L samples, M modes, F frames, T taps, R = N or 1 (all rows alike); planar pairs [re | im] of length 2M.
"""

import numpy as np
import torch
from torch import Tensor

from kws_s5.model.bank_frames import frame_lengths, frame_means
from kws_s5.ssm.scan import scan
from kws_s5.ssm.threads import run_parallel

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
        F: frames of the longest clip (bank_frames.py).
        backend: "compiled", "reference", or None: compiled on CPUs unless u needs a gradient or is in half precision.
    """
    if backend is None:
        compiled = u.device.type == "cpu" and u.dtype in FULL and not u.requires_grad
        backend = "compiled" if compiled else "reference"
    run = power_op if backend == "compiled" else power_reference
    return run(u, lengths, a, c, step, F, n_poles)


def power_reference(u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor, F: int, n_poles: int) -> Tensor:
    """The same in plain torch over ``scan``; keeps all states."""
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


def stream_power(u: Tensor, a: Tensor, c: Tensor, step: Tensor, *, recent: Tensor, memory: Tensor, position: int,
                 F: int, n_poles: int) -> Tensor:
    """The F frames (N, F, M) that the next samples u (N, L) complete; moves ``recent`` and ``memory`` on in place.

    recent (N, 2), memory (N, 2nM + M) and position as in bank_kernel.py. Runs on the CPU, without gradients.
    """
    from kws_s5.model.bank_kernel import forward_kernel

    N, L = u.shape
    lengths = torch.full((N,), L)
    return _forward(forward_kernel, u, lengths, a, c, step, recent, memory, position, F, n_poles, finish=False)


@torch.library.custom_op("kws_s5::bank_power", mutates_args=(), device_types="cpu")
def power_op(u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor, F: int, n_poles: int) -> Tensor:
    """(N, F, M), compiled."""
    from kws_s5.model.bank_kernel import forward_kernel

    N, M = u.shape[0], a.shape[1] // 2
    recent, memory = u.new_zeros(N, 2), u.new_zeros(N, (2 * n_poles + 1) * M)
    return _forward(forward_kernel, u, lengths, a, c, step, recent, memory, 0, F, n_poles, finish=True)


@torch.library.custom_op("kws_s5::bank_power_gradient", mutates_args=(), device_types="cpu")
def gradient_op(grad: Tensor, u: Tensor, lengths: Tensor, a: Tensor, c: Tensor, step: Tensor,
                n_poles: int) -> tuple[Tensor, Tensor]:
    """Gradients of a and c, of their shapes, compiled."""
    from kws_s5.model.bank_gradient import gradient_kernel

    (N, L), M, F = u.shape, a.shape[1] // 2, grad.shape[1]
    grad_a = torch.zeros(N, 2 * M, dtype=torch.float64)
    grad_c = torch.zeros(N, c.shape[1] * 2 * M, dtype=torch.float64)
    arrays = [grad, u, lengths, step, a, c]
    function = gradient_kernel(M, n_poles, u.dtype == torch.float64)
    _launch(function, [N, L, len(step), F], arrays, [grad_a, grad_c], N * L * M)
    if len(a) == 1:
        grad_a, grad_c = grad_a.sum(0), grad_c.sum(0)
    return grad_a.reshape(a.shape).to(a.dtype), grad_c.reshape(c.shape).to(c.dtype)


@power_op.register_fake
def _(u, lengths, a, c, step, F, n_poles):
    return u.new_empty(u.shape[0], F, a.shape[1] // 2)


@gradient_op.register_fake
def _(grad, u, lengths, a, c, step, n_poles):
    return torch.empty_like(a), torch.empty_like(c)


def _setup(ctx, inputs, output) -> None:
    u, lengths, a, c, step, _, ctx.n_poles = inputs
    ctx.save_for_backward(u, lengths, a, c, step)


def _gradient(ctx, grad: Tensor):
    grad_a, grad_c = gradient_op(grad, *ctx.saved_tensors, ctx.n_poles)
    return None, None, grad_a, grad_c, None, None, None


power_op.register_autograd(_gradient, setup_context=_setup)


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
