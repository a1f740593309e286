"""The scan in plain torch: chunks side by side, time inside a chunk one step after the other. Runs on any device.

About 3 sqrt(L) steps of element-wise work instead of L:
    1. summaries: every chunk runs from a zero state and keeps its last state, and the product of its Lambda_bar;
    2. carries:   x entering chunk c + 1 = product_c * x entering chunk c + summary_c;
    3. states:    every chunk runs again from its carry.
Only products of Lambda_bar over a chunk occur, never inverse powers, so nothing overflows where the loop would not.
The gradient is the same scan run the other way with conj(Lambda_bar); it can be differentiated again.

Shapes: N batch, L steps, P stored states, T steps in a chunk, C chunks; planar pairs [re | im] on the last axis.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from kws_s5.ops.scan.reference import multiply

Pair = tuple[Tensor, Tensor]  # real and imaginary parts


def scan_chunked(
    Lambda_bar: Tensor, Bu: Tensor, *, direction: str = "forward", initial: Tensor | None = None
) -> Tensor:
    """States xs (N, L, 2P), or (N, L, 4P) for "both"; arguments as in choice.py."""
    if direction == "both":
        forward = _ChunkedScan.apply(Lambda_bar, Bu, initial, False)
        return torch.cat([forward, _ChunkedScan.apply(Lambda_bar, Bu, None, True)], dim=-1)  # (N, L, 4P)
    return _ChunkedScan.apply(Lambda_bar, Bu, initial, direction == "backward")


@torch.no_grad()
def chunked_forward(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    """What a device's kernels compute going forward, without a graph of its own (operators.py, cuda.py)."""
    return scan_chunked(Lambda_bar, Bu, direction=direction, initial=initial)


@torch.no_grad()
def chunked_adjoint(
    Lambda_bar: Tensor, xs: Tensor, initial: Tensor | None, grad_xs: Tensor, direction: str, needs_Lambda: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What they compute going back: gradients of Lambda_bar (empty unless needed) and Bu (N, L, 2P), and g (N, 2P)
    where the first scan starts."""
    directions = ("forward", "backward") if direction == "both" else (direction,)
    gs, factors, start = [], [], initial
    for states, grad, one in zip(
        xs.chunk(len(directions), -1), grad_xs.chunk(len(directions), -1), directions, strict=True
    ):
        gs.append(_ChunkedScan.apply(_conj(Lambda_bar), grad.contiguous(), None, one == "forward"))  # (N, L, 2P)
        if needs_Lambda:
            factors.append(_gradient_of_factor(Lambda_bar, states, start, gs[-1], one == "backward"))
        start = None  # of the first direction only
    met = gs[0][:, -1 if direction == "backward" else 0].clone() if xs.shape[1] else gs[0].sum(1)
    return sum(factors[1:], factors[0]) if needs_Lambda else xs.new_empty(0), sum(gs[1:], gs[0]), met


class _ChunkedScan(torch.autograd.Function):
    """One direction, with the adjoint recurrence as its gradient."""

    @staticmethod
    def forward(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, backward: bool) -> Tensor:
        if not backward:
            return _run(Lambda_bar, Bu, initial)
        if Lambda_bar.dim() == 3:  # step k uses the factor of step k + 1
            Lambda_bar = Lambda_bar.roll(-1, dims=1).flip(1)
        return _run(Lambda_bar, Bu.flip(1), initial).flip(1)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        Lambda_bar, _, initial, ctx.backward_in_time = inputs
        ctx.save_for_backward(Lambda_bar, initial, output)

    @staticmethod
    def backward(ctx, grad_xs: Tensor):
        Lambda_bar, initial, xs = ctx.saved_tensors
        conjugate = _conj(Lambda_bar)
        g = _ChunkedScan.apply(conjugate, grad_xs, None, not ctx.backward_in_time)  # (N, L, 2P)
        first = -1 if ctx.backward_in_time else 0  # the step that meets the initial state
        grad_initial = grad_Lambda = None
        if initial is not None:
            grad_initial = multiply(conjugate[:, 0] if Lambda_bar.dim() == 3 else conjugate, g[:, first])
        if ctx.needs_input_grad[0]:
            grad_Lambda = _gradient_of_factor(Lambda_bar, xs, initial, g, ctx.backward_in_time)
        return grad_Lambda, g, grad_initial, None


def _gradient_of_factor(Lambda_bar: Tensor, xs: Tensor, initial: Tensor | None, g: Tensor, backward: bool) -> Tensor:
    """Sum of g_k conj(previous state) over every step that used the factor, in the shape of ``Lambda_bar``."""
    start = torch.zeros_like(xs[:, :1]) if initial is None else initial[:, None]  # (N, 1, 2P)
    before = torch.cat([xs[:, 1:], start], 1) if backward else torch.cat([start, xs[:, :-1]], 1)
    product = multiply(g, _conj(before))  # (N, L, 2P)
    if Lambda_bar.dim() == 3:
        return product.roll(1, dims=1) if backward else product
    return product.sum(1) if Lambda_bar.dim() == 2 else product.sum((0, 1))


def _conj(a: Tensor) -> Tensor:
    re, im = a.chunk(2, dim=-1)
    return torch.cat([re, -im], dim=-1)


def _run(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None) -> Tensor:
    """Forward scan of ``Bu`` (N, L, 2P)."""
    N, L, width = Bu.shape
    P = width // 2
    if N * L == 0:
        return torch.empty_like(Bu)
    T = max(1, math.isqrt(L // 2))
    C = -(-L // T)
    drive = F.pad(Bu, (0, 0, 0, C * T - L)).view(N, C, T, 2, P)
    if Lambda_bar.dim() == 3:
        a = F.pad(Lambda_bar, (0, 0, 0, C * T - L)).view(N, C, T, 2, P)
    else:
        a = Lambda_bar.reshape(-1, 1, 1, 2, P).expand(-1, 1, T, 2, P)  # (1 or N, 1, T, 2, P)
    start = Bu.new_zeros(N, 2, P) if initial is None else initial.view(N, 2, P)
    state = _carries(*_summaries(a, drive), start.unbind(1))
    xs = torch.empty_like(drive)
    for t in range(T):
        state = _advance(a[:, :, t], state, drive[:, :, t])
        xs[:, :, t, 0], xs[:, :, t, 1] = state
    return xs.view(N, C * T, 2 * P)[:, :L].contiguous()


def _summaries(a: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
    """Product of the factors of each chunk (N, C, 2, P), and its last state when run from zero (N, C, 2, P)."""
    N, C, T, _, P = drive.shape
    end, product = drive[:, :, 0].unbind(2), a[:, :, 0].unbind(2)
    nothing = a.new_zeros(1, 1, 2, 1)
    for t in range(1, T):
        end = _advance(a[:, :, t], end, drive[:, :, t])
        product = _advance(a[:, :, t], product, nothing)
    return torch.stack(product, 2).expand(N, C, 2, P), torch.stack(end, 2)


def _carries(product: Tensor, end: Tensor, state: Pair) -> Pair:
    """State entering each chunk, (N, C, P) twice; ``state``, (N, P) twice, enters the first."""
    carries = [state]
    for c in range(end.shape[1] - 1):
        carries.append(_advance(product[:, c], carries[-1], end[:, c]))
    re, im = zip(*carries, strict=True)
    return torch.stack(re, 1), torch.stack(im, 1)


def _advance(a: Tensor, x: Pair, drive: Tensor) -> Pair:
    """a x + drive; a and drive (..., 2, P)."""
    (a_re, a_im), (v_re, v_im), (x_re, x_im) = a.unbind(-2), drive.unbind(-2), x
    re = torch.addcmul(torch.addcmul(v_re, a_re, x_re), a_im, x_im, value=-1)
    return re, torch.addcmul(torch.addcmul(v_im, a_re, x_im), a_im, x_re)
