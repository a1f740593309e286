"""What the compiled parts save in training, recipe by recipe: python -m benchmarks.recipes

A step (forward, loss, backward) of each recipe's model on noise, interleaved: everything in plain torch, compiled in
float32, with operands split into two parts, and rounded to bfloat16 (training.matmul_precision). The bank of the front
is compiled in all of them. Data and augmentation, the same for all, are left out.
"""

import argparse
import statistics
import sys
from dataclasses import replace

import torch

from benchmarks.contestants import CLASSES, Contestant
from benchmarks.cpu import seconds
from kws_s5.model.sequence import build_model
from kws_s5.recipes.registry import RECIPES

NAMES = ("kws12", "quickstart", "flat-small", "kws35")
VARIANTS = {"plain": {"portable": True}, "compiled": {}, "split": {"products": "high"},
            "bfloat16": {"products": "medium"}}


def compare(name: str, *, N: int, rounds: int) -> dict[str, float]:
    """Median milliseconds a clip of one second, of each variant."""
    config = RECIPES[name]()
    rate = config.data.rate or 16000.0
    model = build_model(replace(config.model, n_outputs=CLASSES, rate=float(rate)))
    contestants = {variant: Contestant(variant, model, **options) for variant, options in VARIANTS.items()}
    x = 0.2 * torch.randn(N, int(rate), 1, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(N) % CLASSES
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for contestant in contestants.values():
        contestant.train(x, labels)  # compiled
    for _ in range(rounds):
        for variant, contestant in contestants.items():
            times[variant].append(seconds(contestant.train, x, labels))
    return {variant: 1000 * statistics.median(spent) / N for variant, spent in times.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipes", nargs="*", default=list(NAMES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    print("| recipe | plain, ms a clip | compiled | split | bfloat16 |\n|---|---|---|---|---|")
    for name in args.recipes:
        ms = compare(name, N=args.batch, rounds=args.rounds)
        faster = " | ".join(f"{ms['plain'] / ms[v]:.1f}x" for v in VARIANTS if v != "plain")
        print(f"| `{name}` | {ms['plain']:.1f} | {faster} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
