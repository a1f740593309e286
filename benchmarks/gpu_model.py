"""One layer and the whole training step of kws35 on a GPU: eager, compiled, as a CUDA graph, in three precisions.

The step is what training does with a batch: forward, loss, gradients, AdamW. The batch already lies on the device.
Legend: N batch, L steps, H features.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.gpu_clock import Work, graphed, measure, peak_GB, reason
from kws_s5.model.layer import S5Layer
from kws_s5.model.sequence import build_model
from kws_s5.recipes.kws import kws35
from kws_s5.training.optim import build_optimizer

N_WORDS = 35


@contextmanager
def precision(name: str, device: str) -> Iterator[None]:
    """Matrix products in float32, in TF32, or under bf16 autocast with TF32 for the rest; states stay in float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if name == "float32" else "high")
    try:
        with torch.autocast(device, torch.bfloat16) if name == "bf16" else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def layer_rows(device: str, size) -> list[dict[str, Any]]:
    """A bidirectional layer of kws35, forward and gradients."""
    config = _model(size)
    found = []
    for name in size.precisions:
        layer = S5Layer(size.H, config.mixer, activation=config.activation, dropout=config.dropout).to(device)
        x = torch.randn(size.N, size.L, size.H, device=device, requires_grad=True)
        for way, run in _ways(layer, device).items():

            def work(run=run, x=x, layer=layer) -> None:
                with precision(name, device):  # noqa: B023
                    y = run(x)
                torch.autograd.grad(y.float().square().mean(), [x, *layer.parameters()])

            found += _timed({"precision": name, "way": way}, work, device, size.rounds)
    return found


def step_rows(device: str, size) -> list[dict[str, Any]]:
    """Training steps of the whole model."""
    found = []
    for name in size.precisions:
        for way in ("eager", "compiled"):
            model = build_model(_model(size)).to(device)
            optimizer = build_optimizer(model, kws35().optim)
            for group in optimizer.param_groups:
                group["capturable"] = device == "cuda"  # its step counters then live on the device
            run = _ways(model, device)[way]
            work = _step(model, run, optimizer, name, device, size)
            found += _timed({"precision": name, "way": way, "batch": size.N}, work, device, size.rounds)
    return found


def _step(model, run: Callable, optimizer, name: str, device: str, size) -> Work:
    x = torch.randn(size.N, size.L, 1, device=device)
    y = torch.randint(N_WORDS, (size.N,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision(name, device):
            loss = F.cross_entropy(run(x).float(), y)
        loss.backward()
        optimizer.step()

    return step


def _timed(row: dict[str, Any], work: Work, device: str, rounds: int) -> list[dict[str, Any]]:
    """Rows for launches one by one and for one CUDA graph."""
    found = []
    for launched in ("one by one", "CUDA graph"):
        row = row | {"launched": launched, "ms": "", "peak GB": "", "remark": ""}
        try:
            run = work if launched == "one by one" else graphed(work, device)
            row["ms"] = 1e3 * measure({"work": run}, device, rounds)["work"]
            row["peak GB"] = peak_GB(work, device) if launched == "one by one" else ""
        except Exception as problem:  # a way that does not run is a finding: the others are still measured
            row["remark"] = reason(problem)
        found.append(row)
    return found


def _ways(module: torch.nn.Module, device: str) -> dict[str, Callable]:
    backend = "inductor" if device == "cuda" else "aot_eager"
    return {"eager": module, "compiled": torch.compile(module, backend=backend)}


def _model(size):
    """kws35, or its rehearsal."""
    model = replace(kws35().model, d_model=size.H, n_layers=size.n_layers, n_outputs=N_WORDS)
    return replace(model, mixer=replace(model.mixer, ssm_size=2 * size.P, blocks=min(model.mixer.blocks, size.P // 4)))
