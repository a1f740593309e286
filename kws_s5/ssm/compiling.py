"""Machine code of kernels: compiled on first use and kept on disk where that is possible."""

from collections.abc import Callable
from typing import Any

from numba import cfunc, types


def compile_kept(function: Callable, **options: Any) -> int:
    """Address of void(int64*) ``function``, compiled with numba's ``options``; called without Python's lock."""
    signature, options = types.void(types.CPointer(types.int64)), {"nogil": True, **options}
    try:
        kept = cfunc(signature, cache=True, **options)(function)
    except (RuntimeError, OSError):  # nowhere to keep it: a read-only installation, a full disk
        kept = cfunc(signature, **options)(function)
    _alive.append(kept)
    return kept.address


_alive: list[object] = []  # machine code lives as long as its object
