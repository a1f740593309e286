"""GPU speed of the scan, of one layer and of kws35's training step: first whether results are right, then how fast.

    python -m benchmarks.gpu [--out docs/gpu]        writes docs/gpu.md and docs/gpu.json
    python -m benchmarks.gpu --rehearse              tiny sizes on the CPU: shows that the script runs, measures nothing

Without a CUDA device it says so and ends with status 2; with wrong results it measures nothing and ends with 1. Every
time is the median of interleaved runs in this process; bandwidths stand beside that of a plain copy in the same run.
"""

import argparse
import itertools
import platform
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_model, gpu_scan
from benchmarks.gpu_clock import measure
from kws_s5.atomic import write_json, write_text
from kws_s5.ops.scan.choice import scan

NO_DEVICE = "No CUDA device here: nothing was measured, the GPU figures stay open. (--rehearse tries the script.)"
FACTORS = ("constant", "per clip", "per step")
TOLERANCE = 1e-4  # largest error over largest value, float32 against float64


@dataclass(frozen=True)
class Size:
    """What is measured: N clips of L steps, P modes, H features, n_layers layers, a copy of so many bytes."""

    N: int = 16
    L: int = 16_000
    P: int = 64
    H: int = 96
    n_layers: int = 6
    copied: int = 1 << 30
    rounds: int = 20
    precisions: tuple[str, ...] = ("float32", "tf32", "bf16")


REHEARSAL = Size(N=2, L=80, P=16, H=8, n_layers=1, copied=1 << 16, rounds=1, precisions=("bf16",))


def main(argv: list[str] | None = None) -> int:
    """Check, measure, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="where to write, without its ending")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU")
    arguments = parser.parse_args(argv)
    if not arguments.rehearse and not torch.cuda.is_available():
        print(NO_DEVICE)
        return 2
    device, size = ("cpu", REHEARSAL) if arguments.rehearse else ("cuda", Size())
    report: dict[str, Any] = {"machine": machine(device), "size": vars(size)}
    print(report["machine"])
    report["errors"] = errors(device, lengths=(1, 65, size.L))
    worst = max(report["errors"].values())
    print(f"largest error against float64, of states and gradients: {worst:.1e}")
    if not worst <= TOLERANCE:  # also when it is NaN
        print(f"wrong results ({TOLERANCE:.0e} allowed), nothing measured: {report['errors']}", file=sys.stderr)
        return 1
    report["copy_GBps"] = copy_bandwidth(device, size)
    report["scan"] = gpu_scan.rows(device, size, report["copy_GBps"])
    report["small"] = gpu_scan.small_rows(device, size)
    report["layer"] = gpu_model.layer_rows(device, size)
    report["step"] = gpu_model.step_rows(device, size)
    text = tables(report)
    print(text)
    if arguments.out is not None:
        write_json(arguments.out.with_suffix(".json"), report)
        write_text(arguments.out.with_suffix(".md"), text)
    return 0


def machine(device: str) -> dict[str, str]:
    """What the figures belong to."""
    try:
        import triton

        version = triton.__version__
    except ImportError:
        version = "absent"
    rehearsal = f"rehearsal on {platform.machine()}, times mean nothing"
    name = torch.cuda.get_device_name() if device == "cuda" else rehearsal
    return {"device": name, "torch": torch.__version__, "triton": version, "CUDA": str(torch.version.cuda)}


def errors(device: str, lengths: tuple[int, ...]) -> dict[str, float]:
    """Largest relative error of states and gradients against the chunked scan in float64, by case."""
    found = {}
    for L, factor, direction in itertools.product(lengths, FACTORS, ("forward", "backward", "both")):
        generator = torch.Generator().manual_seed(L)
        N, P = 2, 33
        shape = {"constant": (P,), "per clip": (N, P), "per step": (N, L, P)}[factor]
        angle = 6 * torch.rand(shape, generator=generator)
        a = 0.99 * torch.cat([angle.cos(), angle.sin()], -1)
        Bu = torch.randn(N, L, 2 * P, generator=generator)
        results = []
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # a fallback is not what is measured here
            for backend, dtype in (("triton", torch.float32), ("chunked", torch.float64)):
                inputs = [x.to(device, dtype).requires_grad_() for x in (a, Bu)]
                xs = scan(*inputs, direction=direction, backend=backend)
                weights = torch.arange(xs.numel(), device=device, dtype=torch.float64).cos().view(xs.shape).to(dtype)
                results.append([xs.detach(), *torch.autograd.grad((xs * weights).sum(), inputs)])
        differences = [(x - y).abs().max() / (1e-3 + y.abs().max()) for x, y in zip(*results, strict=True)]
        found[f"{factor}, {direction}, L = {L}"] = float(torch.stack(differences).max())
    return found


def copy_bandwidth(device: str, size: Size) -> float:
    """GB/s, read and written, of a copy within the device's memory."""
    source = torch.zeros(size.copied // 4, device=device)
    target = torch.empty_like(source)
    seconds = measure({"copy": lambda: target.copy_(source)}, device, size.rounds)["copy"]
    return 2 * size.copied / seconds / 1e9


def tables(report: dict[str, Any]) -> str:
    """Everything as Markdown."""
    lines = ["# GPU figures", "", "Written by `python -m benchmarks.gpu`.", ""]
    lines += [f"- {key}: {value}" for key, value in report["machine"].items()]
    lines += [f"- largest error against float64: {max(report['errors'].values()):.1e}"]
    lines += [f"- copy: {report['copy_GBps']:.0f} GB/s, read and written", ""]
    titles = {
        "scan": "Scan alone",
        "small": "Short scans, forward direction, states only",
        "layer": "One layer",
        "step": "Training step of kws35",
    }
    for key, title in titles.items():
        rows = report[key]
        head = list(dict.fromkeys(name for row in rows for name in row))
        lines += [f"## {title}", "", "| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
        lines += ["| " + " | ".join(_cell(row.get(name, "")) for name in head) + " |" for row in rows] + [""]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
