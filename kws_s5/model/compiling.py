"""Machine code of kernels: compiled on first use, kept on disk where that is possible, made anew after an upgrade.

numba knows kept code by the date of the kernel's own file and by what the function has closed over, so a kernel closes
over a stamp of the files its instructions come from.
"""

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from numba import cfunc, types

SOURCES = ("amx", "columns", "flush", "half_products", "layer_columns", "layer_kernel", "outer_products", "packing",
           "row_products", "tile_scan", "vector")


@cache
def source_stamp() -> int:
    """A number that changes with any of the files that the layer's instructions come from."""
    return zlib.crc32(b"".join(Path(__file__).with_name(f"{name}.py").read_bytes() for name in SOURCES))


def compile_kept(function: Callable) -> int:
    """Address of void(int64*) ``function``."""
    signature, options = types.void(types.CPointer(types.int64)), {"nogil": True, "error_model": "numpy"}
    try:
        kept = cfunc(signature, cache=True, **options)(function)
    except (RuntimeError, OSError):  # nowhere to keep it: a read-only installation, a full disk
        kept = cfunc(signature, **options)(function)
    _alive.append(kept)
    return kept.address


_alive: list[object] = []  # machine code lives as long as its object
