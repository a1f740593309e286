"""Machine code of kernels: compiled on first use and kept on disk where that is possible."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from numba import cfunc, types

PATIENCE = 2.0  # seconds; loading kept code takes less


def compile_kept(function: Callable, **options: Any) -> int:
    """Address of void(int64*) ``function``, compiled with numba's ``options``; called without Python's lock."""
    signature, options = types.void(types.CPointer(types.int64)), {"nogil": True, **options}
    with _told():
        try:
            kept = cfunc(signature, cache=True, **options)(function)
        except (RuntimeError, OSError):  # nowhere to keep it: a read-only installation, a full disk
            kept = cfunc(signature, **options)(function)
    _alive.append(kept)
    return kept.address


@contextmanager
def _told() -> Iterator[None]:
    """Says once, at a terminal, why nothing seems to happen."""
    timer = Timer(PATIENCE, _tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell() -> None:
    if sys.stderr.isatty() and not _said:
        _said.append(True)
        print("compiling kernels for this processor: some seconds to a minute, once", file=sys.stderr)


_said: list[bool] = []
_alive: list[object] = []  # machine code lives as long as its object
