"""Speed and memory on a CPU, side by side with peers in one process: python -m benchmarks.cpu

Medians of interleaved runs in rotating order (turns.py), so that a busy machine slows all alike; ratios come first.
Writes docs/benchmarks.json and docs/benchmarks.md. Peers: pip install 'kws-s5[bench]'.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.contestants import BUILDERS, CLASSES, RATE, STATES, USUAL, Contestant, build
from benchmarks.turns import spent, take_turns
from kws_s5.atomic import write_text
from kws_s5.ops.scan import cpu as scan_cpu

BASE, MINE = "s5-pytorch", "ours, compiled"
LENGTHS = (1_000, 4_000, 16_000, 64_000, 256_000)
MINUTE = 60 * RATE


def batch(N: int, L: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise and labels."""
    generator = torch.Generator().manual_seed(0)
    return 0.2 * torch.randn(N, L, 1, generator=generator), torch.arange(N) % CLASSES


def compare(contestants: list[Contestant], *, N: int, L: int, rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds a clip of each, in training and inference: wall time, and with "_cpu" processor time."""
    x, labels = batch(N, L)
    for c in contestants:  # compile, warm up; torch.compile does it for these very sizes
        some = x if "torch.compile" in c.name else x[:1, : L // 4]
        c.train(some, labels[: len(some)])
        c.infer(some)
    train = take_turns({c.name: partial(c.train, x, labels) for c in contestants}, rounds)
    infer = take_turns({c.name: partial(c.infer, x) for c in contestants}, rounds)
    return {
        c.name: {
            f"{kind}{end}": 1e3 * seconds / N
            for kind, found in (("train", train), ("infer", infer))
            for end, seconds in zip(("", "_cpu"), found[c.name], strict=True)
        }
        for c in contestants
    }


def linearity(contestant: Contestant, *, rounds: int) -> dict[int, float]:
    """L -> median microseconds of a training step for each step of a clip, batch of one."""
    found = {}
    for L in LENGTHS:
        x, labels = batch(1, L)
        contestant.train(x, labels)
        found[L] = 1e6 * statistics.median(spent(contestant.train, x, labels).wall for _ in range(rounds)) / L
    return found


def against_copy(*, N: int, L: int, rounds: int) -> dict[str, float]:
    """Time of the scan of one direction over that of a copy of as many bytes, forward and gradient; medians."""
    P = STATES // 2
    Bu, xs, gradient, out = (torch.randn(N, L, 2 * P) for _ in range(4))
    angle = torch.rand(P)
    Lambda_bar = 0.999 * torch.cat([angle.cos(), angle.sin()])
    start, g, sums = torch.zeros(N, 2 * P), torch.zeros(N, 2 * P), torch.zeros(N, 2 * P, dtype=torch.float64)

    def forward() -> None:
        scan_cpu.forward_into(xs, Lambda_bar, Bu, start, (N, L, P), backward=False)

    def adjoint() -> None:
        scan_cpu.adjoint_into(out, Lambda_bar, xs, start, gradient, g, sums, (N, L, P), backward=False)

    forward(), adjoint()  # compiled
    works = {"copy": partial(out.copy_, Bu), "forward": forward, "gradient": adjoint}
    copy, there, back = (found.wall for found in take_turns(works, 10 * rounds).values())
    return {"forward": there / copy, "gradient": back / copy / 1.5, "copy_gb_per_s": 2 * Bu.nbytes / copy / 1e9}


def peak_memory(name: str, *, N: int, L: int, threads: int) -> float | None:
    """MB that a training step adds to a fresh process; None where the contestant is missing or the process dies."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.cpu",
        "--peak",
        name,
        "--batch",
        str(N),
        "--length",
        str(L),
        "--threads",
        str(threads),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return float(lines[-1]) if done.returncode == 0 and lines else None


def print_peak(name: str, *, N: int, L: int) -> None:
    """The inner half of ``peak_memory``."""
    contestant = build(name)
    assert contestant is not None
    contestant.train(*batch(1, 4000))  # everything is imported and compiled
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    contestant.train(*batch(N, L))
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def streaming() -> list[dict]:
    """What listening costs on one core: rows of benchmarks/streaming.py, kws12 with fresh weights."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "streaming.json"
        subprocess.run(
            [sys.executable, "-m", "benchmarks.streaming", "--out", str(out)], check=True, stdout=subprocess.DEVNULL
        )
        return json.loads(out.read_text())["cost"]


def machine(threads: int) -> dict[str, str]:
    """Processor and versions."""

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "-"

    model, flags = platform.processor() or platform.machine(), ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        flags = next(line for line in lines if line.startswith("flags"))
    except (OSError, StopIteration):
        pass
    units = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {name}" in flags]
    packages = ("torch", "numba", "s5-pytorch", "lrnnx", "torchaudio")
    processor = f"{model} ({', '.join(units) or 'no wide vectors found'})"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor,
        "threads": str(threads),
        "python": platform.python_version(),
        **{p: installed(p) for p in packages},
    }


def report(found: dict) -> str:
    """The results as Markdown, ratios first."""
    speed, memory, base = found["ms_per_clip"], found["peak_mb_per_clip"], found["ms_per_clip"].get(BASE)
    rows = []
    for name, ms in speed.items():
        ratios = [f"{base[k] / ms[k]:.1f}x" if base else "-" for k in ("train", "infer")]
        mb = memory.get(name)
        base_mb = memory.get(BASE)
        ratios.append(f"{mb / base_mb:.2f}" if mb and base_mb else "-")
        rows.append(
            [
                name,
                *ratios,
                *(f"{ms[k]:.0f}" for k in ("train", "train_cpu", "infer", "infer_cpu")),
                f"{mb:.0f}" if mb else "-",
            ]
        )
    head = [
        "",
        "training, times faster",
        "inference, times faster",
        "memory, share",
        "training, ms a clip",
        "processor time",
        "inference, ms a clip",
        "processor time",
        "memory, MB a clip",
    ]
    lines = [
        "# Benchmarks on a CPU",
        "",
        f"`python -m benchmarks.cpu`: the model of recipe `kws35` (six layers, 96 "
        f"features, 128 states, both directions), {found['length']:,} samples, batch of {found['batch']}; medians "
        f"of {found['rounds']} interleaved runs in rotating order. Times faster and share of memory: against "
        f"{BASE}. Processor time: of all threads together, ms a clip.",
        "",
        "Compiled: whole layers as kernels, float32. Scan kernel and torch: what layers do that these do not "
        "cover. bfloat16: under autocast. Portable: plain torch, where nothing can be compiled.",
        "",
    ]
    lines += [_row(head), _row(["---"] * len(head)), *map(_row, rows), "", "## Time against length", ""]
    lines += [
        "Training step, compiled, float32, batch of one.",
        "",
        _row(["samples", "microseconds a sample"]),
        _row(["---", "---"]),
        *(_row([f"{int(L):,}", f"{us:.1f}"]) for L, us in found["us_per_step"].items()),
    ]
    if found.get("minute"):
        minute = found["minute"]
        lines += [
            "",
            f"A clip of one minute ({MINUTE:,} samples): training step in {minute['seconds']:.1f} s, "
            f"{minute['mb']:,.0f} MB.",
        ]
    if found.get("against_copy"):
        ratio = found["against_copy"]
        lines += [
            "",
            "## The scan alone",
            "",
            f"One direction, {STATES // 2} states, against copying as many bytes "
            f"({ratio['copy_gb_per_s']:.1f} GB/s read and written): forward {ratio['forward']:.2f}x, gradient "
            f"{ratio['gradient']:.2f}x the time.",
        ]
    if found.get("streaming"):
        lines += [
            "",
            "## Listening",
            "",
            "The model of `kws12` with all of listening, one core (`python -m benchmarks.streaming`).",
            "",
            _row(["chunk, ms", "streams", "ms a second of sound and stream"]),
            _row(["---"] * 3),
        ]
        lines += [
            _row([str(row["chunk_ms"]), str(row["streams"]), f"{1000 * row['real_time_factor_per_stream']:.1f}"])
            for row in found["streaming"]
        ]
    lines += ["", "## Machine", "", *(f"- {key}: {value}" for key, value in found["machine"].items()), ""]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=RATE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--only", nargs="+", choices=list(BUILDERS), default=list(USUAL), help="default: all but torch.compile"
    )
    parser.add_argument("--quick", action="store_true", help="only times at one length")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.peak:
        print_peak(args.peak, N=args.batch, L=args.length)
        return 0
    contestants = [c for c in map(build, args.only) if c is not None]
    peaks: dict[str, float | None] = {}
    minute: float | None = None
    if not args.quick:  # first: a process inherits the peak of the one that starts it
        for c in contestants:
            peak = peak_memory(c.name, N=args.batch, L=args.length, threads=args.threads)
            peaks[c.name] = peak and peak / args.batch
        minute = peak_memory(MINE, N=1, L=MINUTE, threads=args.threads)
    found = {
        "batch": args.batch,
        "length": args.length,
        "rounds": args.rounds,
        "machine": machine(args.threads),
        "ms_per_clip": compare(contestants, N=args.batch, L=args.length, rounds=args.rounds),
        "peak_mb_per_clip": peaks,
        "us_per_step": {},
    }
    if not args.quick:
        found["streaming"] = streaming()
        found["against_copy"] = against_copy(N=args.batch, L=args.length, rounds=args.rounds)
        mine = build(MINE)
        found["us_per_step"] = linearity(mine, rounds=args.rounds)
        if minute:
            found["minute"] = {"seconds": spent(mine.train, *batch(1, MINUTE)).wall, "mb": minute}
    text = report(found)
    print(text)
    if not args.quick:
        write_text(args.out / "benchmarks.json", json.dumps(found, indent=1))
        write_text(args.out / "benchmarks.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
