"""Kept machine code of the layer follows its sources: made anew when any of them changes, as after an upgrade.

numba knows kept code by the date of the kernel's own file and by what the function has closed over, so a kernel closes
over a stamp of the files its instructions come from.
"""

import zlib
from functools import cache
from pathlib import Path

SOURCES = ("amx", "columns", "flush", "half_products", "layer_columns", "layer_kernel", "outer_products", "packing",
           "row_products", "tile_scan", "vector")


@cache
def source_stamp() -> int:
    """A number that changes with any of the files that the layer's instructions come from."""
    return zlib.crc32(b"".join(Path(__file__).with_name(f"{name}.py").read_bytes() for name in SOURCES))
