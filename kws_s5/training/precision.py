"""The precision a training runs in: what was asked for where the machine gains from it, float32 where it does not.

Measured on CPUs (docs/experiments.md): S5 layers gain from bfloat16 where the processor has matrix units for it (AMX).
Elsewhere the compiled layers would compute in float32 all the same, and other layers run up to four times slower.
float16 gains nothing on CPUs, and "high" (TF32) is a setting for GPUs. GPUs get what was asked for.
"""

from importlib.util import find_spec
from typing import NamedTuple

import torch

from kws_s5.config.training import TrainingConfig

FULL, EXACT = "32-true", "highest"


class Usable(NamedTuple):
    """Lightning's precision, torch's float32 matmul precision, and a line for each that differs from the config's."""

    precision: str
    matmul_precision: str
    notes: tuple[str, ...]


def usable(training: TrainingConfig) -> Usable:
    """What of the config's precision options this machine gains from."""
    precision, products, notes = training.precision, training.matmul_precision, []
    if not _on_cpu(training.accelerator):
        return Usable(precision, products, ())
    if precision == "16-mixed" or (precision == "bf16-mixed" and not has_bfloat16_unit()):
        notes.append(_note("precision", precision, FULL))
        precision = FULL
    if products == "high" or (products == "medium" and not has_bfloat16_unit()):
        notes.append(_note("matmul_precision", products, EXACT))
        products = EXACT
    return Usable(precision, products, tuple(notes))


def has_bfloat16_unit() -> bool:
    """Whether the compiled layers run and this processor multiplies bfloat16 matrices faster than float32 ones."""
    if find_spec("numba") is None:
        return False
    from kws_s5.ops.common.amx import has_amx

    return has_amx()


def _on_cpu(accelerator: str) -> bool:
    """Lightning's "auto" takes a GPU where there is one."""
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    return accelerator == "cpu" or (accelerator == "auto" and not gpu)


def _note(option: str, asked: str, taken: str) -> str:
    return f"training.{option} = {asked!r} brings nothing on this processor: training runs with {taken!r} (float32)"
