"""The scan alone on a GPU: time and bandwidth beside a copy, and beside other ways to compute the same states.

Useful bytes are those no algorithm can avoid: Bu read and the states written once; in the gradient grad_xs and xs read
and grad_Bu written once. Moved bytes count what our passes really ask for: Bu (or grad_xs) is read twice.
Shapes: N batch, L steps, P stored states, D directions; planar pairs [re | im] on the last axis.
"""

from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_clock import Work, graphed, measure, peak_GB, reason
from kws_s5.ops.scan.choice import scan
from kws_s5.ops.scan.chunked import chunked_adjoint
from kws_s5.ops.scan.operators import adjoint_op

SHORT = (256, 1024)


def inputs(device: str, N: int, L: int, P: int, factor: str = "constant") -> tuple[Tensor, Tensor]:
    """Slowly decaying factors and noise."""
    shape = {"constant": (P,), "per clip": (N, P), "per step": (N, L, P)}[factor]
    angle = torch.rand(shape, device=device)
    a = 0.999 * torch.cat([angle.cos(), angle.sin()], -1)
    return a.requires_grad_(), torch.randn(N, L, 2 * P, device=device).requires_grad_()


def rows(device: str, size, copy_GBps: float) -> list[dict[str, Any]]:
    """Ours and the portable path, states alone and with gradients, for every factor and direction worth knowing."""
    cases = [("constant", "both"), ("constant", "forward"), ("per clip", "both"), ("per step", "both")]
    found = []
    for factor, direction in cases:
        a, Bu = inputs(device, size.N, size.L, size.P, factor)
        D = 2 if direction == "both" else 1
        unit = Bu.numel() * 4  # bytes of Bu, or of the states of one direction
        extra = a.numel() * 4 if factor == "per step" else 0
        useful = {"states": (1 + D) * unit + extra, "gradient": (1 + 2 * D) * unit + 2 * extra}
        moved = {"states": (2 + D) * unit + 2 * extra, "gradient": (1 + 3 * D) * unit + 3 * extra}
        for backend in ("triton", "chunked"):
            works = _works(a, Bu, direction, backend)
            times = measure(works | {f"{k}, graph": graphed(w, device) for k, w in works.items()}, device, size.rounds)
            for key, work in works.items():
                row = {
                    "scan": backend,
                    "factor": factor,
                    "directions": direction,
                    "work": key,
                    "ms": 1e3 * times[key],
                    "ms, CUDA graph": 1e3 * times[f"{key}, graph"],
                }
                rate = useful[key] / times[f"{key}, graph"] / 1e9
                row |= {"useful GB/s": rate, "of copy": rate / copy_GBps, "peak GB": peak_GB(work, device)}
                if backend == "triton":
                    row["moved GB/s"] = moved[key] / times[f"{key}, graph"] / 1e9
                found.append(row)
    return found


def _works(a: Tensor, Bu: Tensor, direction: str, backend: str) -> dict[str, Work]:
    """The states, and the gradients by themselves from states computed before (without autograd: graphs capture it)."""
    xs = scan(a, Bu, direction=direction, backend=backend).detach()
    grad = torch.randn_like(xs)
    adjoint = adjoint_op if backend == "triton" else chunked_adjoint
    return {
        "states": torch.no_grad()(lambda: scan(a, Bu, direction=direction, backend=backend)),
        "gradient": torch.no_grad()(lambda: adjoint(a, xs, None, grad, direction, True)),
    }


def small_rows(device: str, size) -> list[dict[str, Any]]:
    """Ours beside torch's associative_scan, compiled, and a convolution by FFT; forward direction, states alone."""
    found = []
    for L in (*SHORT, size.L) if device == "cuda" else (8, size.L):
        a, Bu = (x.detach() for x in inputs(device, size.N, L, size.P))
        expected = scan(a.double(), Bu.double(), backend="chunked")
        ways = {
            "triton": lambda a=a, Bu=Bu: scan(a, Bu, backend="triton"),
            "chunked": lambda a=a, Bu=Bu: scan(a, Bu, backend="chunked"),
            "FFT": lambda a=a, Bu=Bu: by_fft(a, Bu),
        }
        if L != size.L:
            compiled = torch.compile(by_associative_scan, backend="inductor" if device == "cuda" else "eager")
            ways["associative_scan"] = lambda a=a, Bu=Bu, run=compiled: run(a, Bu)
        for name, work in ways.items():
            row: dict[str, Any] = {"L": L, "scan": name}
            try:
                error = (work() - expected).abs().max() / expected.abs().max()
                seconds = measure({name: work}, device, size.rounds)[name]
                row |= {"ms": 1e3 * seconds, "error": float(error), "peak GB": peak_GB(work, device), "remark": ""}
            except Exception as problem:  # a peer that does not run here is a finding, not our failure
                row["remark"] = reason(problem)
            found.append(row)
    return found


def by_fft(a: Tensor, Bu: Tensor) -> Tensor:
    """Forward states (N, L, 2P) as a convolution with the powers of a."""
    L, P = Bu.shape[1], a.shape[0] // 2
    steps = torch.arange(L, device=a.device)[:, None]
    powers = torch.polar((a[:P].hypot(a[P:])) ** steps, torch.atan2(a[P:], a[:P]) * steps)  # (L, P)
    drive = torch.complex(Bu[..., :P], Bu[..., P:])
    spectrum = torch.fft.fft(drive, n=2 * L, dim=1) * torch.fft.fft(powers, n=2 * L, dim=0)
    xs = torch.fft.ifft(spectrum, dim=1)[:, :L]
    return torch.cat([xs.real, xs.imag], -1)


def by_associative_scan(a: Tensor, Bu: Tensor) -> Tensor:
    """Forward states (N, L, 2P) by torch's prototype operator, on pairs (its compiler has no complex numbers)."""
    from torch._higher_order_ops.associative_scan import associative_scan

    P = a.shape[0] // 2
    leaves = [x.expand(*Bu.shape[:2], P).contiguous() for x in (a[:P], a[P:])]
    leaves += [Bu[..., :P].contiguous(), Bu[..., P:].contiguous()]

    def combine(first, second):
        a_re, a_im, x_re, x_im = first
        b_re, b_im, y_re, y_im = second
        return [
            b_re * a_re - b_im * a_im,
            b_re * a_im + b_im * a_re,
            b_re * x_re - b_im * x_im + y_re,
            b_re * x_im + b_im * x_re + y_im,
        ]

    mode = "pointwise" if a.device.type == "cuda" else "generic"
    _, _, re, im = associative_scan(combine, leaves, dim=1, combine_mode=mode)
    return torch.cat([re, im], -1)
