"""What the compiled parts save in training, recipe by recipe: python -m benchmarks.recipes

A step (forward, loss, backward) of each recipe's model on noise, in rotating order: portable (plain torch), the scan
kernel between torch operations, and whole layers as kernels, the latter two in float32 and in bfloat16. The bank of the
front is compiled in all of them. Data and augmentation, the same for all, are left out.
"""

import argparse
import resource
import subprocess
import sys
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.contestants import CLASSES, Contestant
from benchmarks.turns import Spent, take_turns
from kws_s5.model.sequence import build_model
from kws_s5.recipes.registry import RECIPES

NAMES = ("kws12", "quickstart", "flat-small", "kws35")
VARIANTS: dict[str, dict] = {
    "portable": {"way": "portable"},
    "scan kernel": {"way": "scan kernel"},
    "scan kernel, bfloat16": {"way": "scan kernel", "half": True},
    "kernels": {},
    "kernels, bfloat16": {"half": True},
}


def contestants(name: str) -> tuple[dict[str, Contestant], float]:
    """Every variant of a recipe's model, and its rate."""
    config = RECIPES[name]()
    rate = float(config.data.rate or 16000.0)
    torch.manual_seed(0)
    model = build_model(replace(config.model, n_outputs=CLASSES, rate=rate))
    return {variant: Contestant(variant, model, **options) for variant, options in VARIANTS.items()}, rate


def batch(N: int, rate: float) -> tuple[Tensor, Tensor]:
    """Clips of one second and labels."""
    return 0.2 * torch.randn(N, int(rate), 1, generator=torch.Generator().manual_seed(0)), torch.arange(N) % CLASSES


def compare(name: str, *, N: int, rounds: int) -> dict[str, Spent]:
    """Median seconds of a step of each variant."""
    found, rate = contestants(name)
    inputs = batch(N, rate)
    for contestant in found.values():
        contestant.train(*inputs)  # compiled
    return take_turns({variant: partial(c.train, *inputs) for variant, c in found.items()}, rounds)


def peak_memory(name: str, variant: str, *, N: int, threads: int) -> float:
    """MB that a step adds to a fresh process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.recipes",
        name,
        "--peak",
        variant,
        "--batch",
        str(N),
        "--threads",
        str(threads),
    ]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def print_peak(name: str, variant: str, *, N: int) -> None:
    """The inner half of ``peak_memory``."""
    found, rate = contestants(name)
    x, labels = batch(N, rate)
    found[variant].train(x[:1, :4000], labels[:1])  # everything is imported and compiled
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found[variant].train(x, labels)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipes", nargs="*", default=list(NAMES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="no memory")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.peak:
        print_peak(args.recipes[0], args.peak, N=args.batch)
        return 0
    print("| recipe | way | ms a clip | processor time, ms | times faster | memory, MB a clip |")
    print("|---|---|---|---|---|---|")
    for name in args.recipes:
        peaks = (
            {}
            if args.quick
            else {v: peak_memory(name, v, N=args.batch, threads=args.threads) / args.batch for v in VARIANTS}
        )
        found = compare(name, N=args.batch, rounds=args.rounds)
        for variant, took in found.items():
            wall, processor = (1e3 * t / args.batch for t in took)
            mb = f"{peaks[variant]:.1f}" if variant in peaks else "-"
            print(
                f"| `{name}` | {variant} | {wall:.1f} | {processor:.1f} | "
                f"{found['portable'].wall / took.wall:.1f}x | {mb} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
