"""Remembers the last result of a small pure function, so that a stream of short chunks does not recompute it.

Discretising a layer costs some forty tiny operations, more than a chunk of ten milliseconds itself. Inputs are compared
by value, never by identity or version counters, so a weight changed in any way is noticed. Only without gradients and
on CPUs: elsewhere comparing would wait for the device.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Memo:
    """One remembered result. Safe to call from several threads: the worst that can happen is computing twice."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[Any, ...], Any] | None = None

    def __call__(self, function: Callable[[], Any], *inputs: Any) -> Any:
        """``function()``, or its last result if ``inputs`` (all it depends on) have the values they had then."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or not all(map(_comparable, inputs)):
            return function()
        kept = self._kept
        if kept is not None and len(kept[0]) == len(inputs) and all(map(_same, kept[0], inputs)):
            return kept[1]
        result = function()
        self._kept = (tuple(x.detach().clone() if isinstance(x, Tensor) else x for x in inputs), result)
        return result


def _comparable(x: Any) -> bool:
    return not isinstance(x, Tensor) or x.device.type == "cpu"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b
