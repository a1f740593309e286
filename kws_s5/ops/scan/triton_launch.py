"""The scan on GPUs: cuts time into chunks and launches the kernels of triton_kernels.py.

    1. summaries: every chunk runs from zero and keeps its last state;
    2. borders:   the states at the chunks' ends are the same scan over the summaries, with the chunks' products;
    3. states:    every chunk runs again from the border before it.

Step 2 calls the three steps again until one chunk is left, so any length takes about log(L) / log(T) rounds, each T
times smaller than the one before. The gradient is the same scan with conj(Lambda_bar), each direction turned round.
Where Triton cannot be imported or a launch fails, a warning is given once and plain torch does the work.

Shapes: N batch, L steps, C chunks, P stored states, T steps in a chunk, D directions (1 or 2); planar pairs [re | im]
on the last axis. Sums over time leave the chunks in the working precision and are added in float64.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kws_s5.ops.scan.reference import multiply

BLOCK = 128  # threads in a program
STEPS = 32  # T of a float32 scan with a constant factor: what a thread's registers hold


@dataclass(frozen=True)
class Factor:
    """Lambda_bar as the kernels read it: (2P,), (N, 2P) or, per step, (N, L, row) with the down part at ``down``."""

    values: Tensor
    per_step: bool
    row: int  # numbers from one clip's (or step's) factor to the next; 0: all clips share one
    down: int = 0
    conj: bool = False
    squarings: int = 0


@dataclass(frozen=True)
class Drive:
    """What a scan eats: values (N, L, row), and the columns where each direction's pairs start (None: not scanned)."""

    values: Tensor
    P: int
    up: int | None
    down: int | None

    @property
    def D(self) -> int:
        """Number of directions."""
        return (self.up is not None) + (self.down is not None)


def forward(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    """States xs (N, L, 2 D P)."""
    Lambda_bar, Bu = Lambda_bar.contiguous(), Bu.contiguous()
    if Bu.numel() == 0:
        return Bu.new_empty(*Bu.shape[:2], Bu.shape[2] * (2 if direction == "both" else 1))
    if initial is not None and direction == "backward":  # constant or per clip: it enters with the last step
        Bu = Bu.clone()
        Bu[:, -1] += multiply(Lambda_bar, initial)
        initial = None
    columns = {"up": None if direction == "backward" else 0, "down": None if direction == "forward" else 0}
    drive = Drive(Bu, Bu.shape[2] // 2, **columns)
    initial = None if initial is None else initial.contiguous()
    return _states(_factor(Lambda_bar), drive, initial, _chunk(Lambda_bar.dim() == 3, Bu.dtype))


def adjoint(
    Lambda_bar: Tensor, xs: Tensor, initial: Tensor | None, grad_xs: Tensor, direction: str, needs_Lambda: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Lambda_bar (empty unless needed) and Bu (N, L, 2P), and g (N, 2P) where the first scan starts."""
    Lambda_bar, xs, grad_xs = Lambda_bar.contiguous(), xs.contiguous(), grad_xs.contiguous()
    width = xs.shape[2] // (2 if direction == "both" else 1)
    N, L, per_step = xs.shape[0], xs.shape[1], Lambda_bar.dim() == 3
    if xs.numel() == 0:
        grad_Lambda = torch.zeros_like(Lambda_bar) if needs_Lambda else xs.new_empty(0)
        return grad_Lambda, xs.new_zeros(N, L, width), xs.new_zeros(N, width)
    # the scan that went forward is brought back going down: its columns are the first ones
    up = {"forward": None, "backward": 0, "both": width}[direction]
    drive = Drive(grad_xs, width // 2, up=up, down=None if direction == "backward" else 0)
    T = _chunk(per_step, xs.dtype, gradient=True)
    factor = replace(_factor(Lambda_bar), conj=True)
    borders = _borders(factor, drive, None, T) if L > T else None
    grad_Bu, g = xs.new_empty(N, L, width), xs.new_empty(N, width)
    sums = xs.new_empty(N, L if per_step else _ceil(L, T), width) if needs_Lambda else None
    _launch_adjoint(factor, drive, borders, xs, (grad_Bu, g, sums), T)
    if direction == "backward":
        g = grad_Bu[:, -1].clone()  # an operator's results must not share memory
    if sums is None:
        return xs.new_empty(0), grad_Bu, g
    return _gather(Lambda_bar, sums, g, initial), grad_Bu, g


def _gather(Lambda_bar: Tensor, sums: Tensor, g: Tensor, initial: Tensor | None) -> Tensor:
    """Gradient of Lambda_bar in its shape, from the kernel's sums and what the initial state adds."""
    if initial is not None:
        re, im = initial.chunk(2, dim=-1)
        start = multiply(g, torch.cat([re, -im], dim=-1))  # (N, 2P)
    if Lambda_bar.dim() == 3:
        if initial is not None:
            sums[:, 0] += start
        return sums
    total = sums.sum(1, dtype=torch.float64)  # (N, 2P)
    total = total if initial is None else total + start
    return (total if Lambda_bar.dim() == 2 else total.sum(0)).to(Lambda_bar.dtype)


def _states(a: Factor, v: Drive, initial: Tensor | None, T: int) -> Tensor:
    """xs (N, L, 2 D P), [up | down]."""
    N, L, _ = v.values.shape
    borders = _borders(a, v, initial, T) if L > T else None
    xs = v.values.new_empty(N, L, 2 * v.D * v.P)
    unread = xs  # a single chunk has no border; a kernel wants some pointer all the same
    _launch("rescan", a, v, (a.values, v.values, unread if borders is None else borders, initial, xs), T)
    return xs


def _borders(a: Factor, v: Drive, initial: Tensor | None, T: int) -> Tensor:
    """States (N, C, 2 D P) at the end of each chunk, where a scan leaves it."""
    N, L, _ = v.values.shape
    row = 2 * v.D * v.P
    ends = v.values.new_empty(N, _ceil(L, T), row)
    products = torch.empty_like(ends) if a.per_step else None
    _launch("summarize", a, v, (a.values, v.values, ends, products), T)
    down = row - 2 * v.P
    power = a.squarings + T.bit_length() - 1  # T is a power of two
    over = Factor(products, True, row, down) if a.per_step else replace(a, squarings=power)
    columns = {"up": None if v.up is None else 0, "down": None if v.down is None else down}
    return _states(over, Drive(ends, v.P, **columns), initial, _chunk(a.per_step, ends.dtype))


def _factor(Lambda_bar: Tensor) -> Factor:
    row = 0 if Lambda_bar.dim() == 1 else Lambda_bar.shape[-1]
    return Factor(Lambda_bar, Lambda_bar.dim() == 3, row)


def _chunk(per_step: bool, dtype: torch.dtype, gradient: bool = False) -> int:
    """T, a power of two: halved for whatever doubles the numbers a thread has to hold."""
    return STEPS >> (per_step + (dtype == torch.float64) + gradient)


def _ceil(L: int, T: int) -> int:
    return -(-L // T)


def _launch(kernel: str, a: Factor, v: Drive, tensors: tuple[Tensor | None, ...], T: int) -> None:
    """Summarize or rescan."""
    options = {"UP": v.up is not None, "DOWN": v.down is not None, "SHARED": v.D == 2 and v.up == v.down}
    _run(kernel, tensors, v, (a.row, a.down, a.squarings, -1 if a.conj else 1), T, options | {"PER_STEP": a.per_step})


def _launch_adjoint(
    a: Factor, v: Drive, borders: Tensor | None, xs: Tensor, outputs: tuple[Tensor, Tensor, Tensor | None], T: int
) -> None:
    grad_Bu, g, sums = outputs
    tensors = (a.values, v.values, xs if borders is None else borders, xs, grad_Bu, g, sums)
    options = {"UP": v.up is not None, "DOWN": v.down is not None, "NEEDS_A": sums is not None}
    _run("adjoint", tensors, v, (a.row, a.squarings, -1 if a.conj else 1), T, options | {"PER_STEP": a.per_step})


def _run(
    kernel: str, tensors: tuple[Tensor | None, ...], v: Drive, factor: tuple[int, ...], T: int, options: dict[str, bool]
) -> None:
    """One thread for each (clip, chunk, mode)."""
    from kws_s5.ops.scan import triton_kernels  # on first use: Triton is slow to import and absent on most computers

    N, L, row = v.values.shape
    C = _ceil(L, T)
    lanes = N * C * v.P
    assert lanes < 2**31, "too many chunks for one launch"
    sizes = (lanes, L, C, v.P, v.D, row, v.up or 0, v.down or 0, *factor)
    device = v.values.device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        grid = (_ceil(lanes, BLOCK),)
        getattr(triton_kernels, kernel)[grid](*tensors, *sizes, **options, T=T, BLOCK=BLOCK)
