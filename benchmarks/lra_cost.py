"""What one training step of every full Long Range Arena recipe costs: time, memory, arithmetic, and the whole run.

    OMP_NUM_THREADS=1 python -m benchmarks.lra_cost                      all recipes, batch 2, longest sequences
    OMP_NUM_THREADS=1 python -m benchmarks.lra_cost lra-pathx --batch 2

A step is forward, backward and AdamW at the longest length, on random inputs (its cost does not depend on them), in
seconds of a processor. Memory is the peak of a fresh process. FLOPs are those of the matrix products (counted by torch
on plain layers at a short length, in proportion); the scans add about one per cent. Whole runs are scaled from here by
sequences: examples x epochs, and on a GPU by an assumed rate.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from kws_s5 import ops
from kws_s5.config import PairHead, RunConfig, TokenFront
from kws_s5.model import build_model
from kws_s5.recipes.registry import recipes_of
from kws_s5.training.optim import build_optimizer

# longest sequence and training examples of the published tasks, classes
TASKS = {
    "listops": (2048, 96_000, 10),
    "text": (4096, 25_000, 2),
    "retrieval": (4000, 147_086, 2),
    "image": (1024, 45_000, 10),
    "pathfinder": (1024, 160_000, 2),
    "pathx": (16_384, 160_000, 2),
    "smnist": (784, 54_000, 10),
    "psmnist": (784, 54_000, 10),
    "scifar": (1024, 45_000, 10),
}
SHORT = 256  # steps
GPU_FLOPS = 20e12  # assumed: what un-fused fp32/TF32 training sustains on one current data-centre GPU


def main(argv: list[str] | None = None) -> int:
    """Prints one line a recipe as a Markdown table."""
    names = [name for name in recipes_of("lra") if not name.endswith("-tiny")]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipes", nargs="*", default=names)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.child:
        print(json.dumps(measured(given.recipes[0], given.batch, given.steps)))
        return 0
    print("| recipe | L | parameters | s/step | batch | peak GB | TFLOP/sequence | CPU days | GPU hours (assumed) |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.recipes:
        command = [
            sys.executable,
            "-m",
            "benchmarks.lra_cost",
            name,
            "--child",
            "--batch",
            str(given.batch),
            "--steps",
            str(given.steps),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(line(name, json.loads(done.stdout.splitlines()[-1])), flush=True)
    return 0


def measured(name: str, batch: int, n_steps: int) -> dict[str, float]:
    """Seconds and matrix FLOPs of a step, parameters, and the peak memory of this process in bytes."""
    run = recipes_of("lra")[name]()
    L, _, K = TASKS[run.data.task]
    model = model_of(run, K)
    optimizer = build_optimizer(model, run.optim)
    step = partial(_step, model, optimizer, K=K)
    with FlopCounterMode(display=False) as counter, ops.use("reference"):
        step(*inputs(run, batch, SHORT))
    x, lengths = inputs(run, batch, L)
    step(x, lengths)  # compiled
    start = time.process_time()
    for _ in range(n_steps):
        step(x, lengths)
    seconds = (time.process_time() - start) / n_steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": seconds,
        "flops": counter.get_total_flops() * L / SHORT,
        "peak": peak,
        "batch": batch,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def model_of(run: RunConfig, K: int) -> torch.nn.Module:
    """The recipe's model with what the published data would fill in."""
    front = run.model.front
    if isinstance(front, TokenFront) and not front.vocab_size:
        front = replace(front, vocab_size=98)
    return build_model(replace(run.model, front=front, n_outputs=K)).train()


def inputs(run: RunConfig, batch: int, L: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random sequences of full length; of pairs twice as many rows."""
    rows = 2 * batch if isinstance(run.model.head, PairHead) else batch
    if isinstance(run.model.front, TokenFront):
        return torch.randint(3, 18, (rows, L)), torch.full((rows,), L)
    return torch.randn(rows, L, run.model.front.n_inputs), torch.full((rows,), L)


def _step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, lengths: torch.Tensor, *, K: int
) -> None:
    optimizer.zero_grad()
    logits = model(x, lengths)
    F.cross_entropy(logits, torch.arange(len(logits)) % K).backward()
    optimizer.step()


def line(name: str, cost: dict[str, float]) -> str:
    """One row of the table."""
    run = recipes_of("lra")[name]()
    L, n_train, _ = TASKS[run.data.task]
    sequences = n_train * run.training.epochs
    days = cost["seconds"] / cost["batch"] * sequences / 86_400
    hours = cost["flops"] / cost["batch"] * sequences / GPU_FLOPS / 3600
    return (
        f"| {name} | {L:,} | {cost['parameters']:,} | {cost['seconds']:.2g} | {cost['batch']} | "
        f"{cost['peak'] / 2**30:.1f} | {cost['flops'] / cost['batch'] / 1e12:.3f} | {days:,.0f} | {hours:.1f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
