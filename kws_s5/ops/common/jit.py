"""Machine code of kernels: compiled on first use and kept on disk where that is possible.

numba knows kept code by the date of the kernel's own file, but a kernel's instructions come from many files. So its
name carries a stamp of all sources of this room: whatever changes, kept code is made anew.
"""

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

from numba import cfunc, njit, types

OPS = Path(__file__).parents[1]
PATIENCE = 2.0  # seconds; loading kept code takes less


@cache
def sources_stamp() -> int:
    """A number that changes with any source file of kws_s5/ops."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(OPS.rglob("*.py"))))


def compile_kept(function: Callable, **options: Any) -> int:
    """Address of void(int64*) ``function``, compiled with numba's ``options``; called without Python's lock."""
    signature, options = types.void(types.CPointer(types.int64)), {"nogil": True, **options}
    with _told():
        kept = _kept(function, lambda **cache: cfunc(signature, **options, **cache))
    _alive.append(kept)
    return kept.address


def njit_kept(function: Callable, signature: Any) -> Callable:
    """``function`` compiled for arguments of one type, to be called from Python."""
    with _told():
        return _kept(function, lambda **cache: njit(signature, nogil=True, error_model="numpy", **cache))


def _kept(function: Callable, compiler: Callable) -> Any:
    stamp = f"_{sources_stamp():08x}"  # numba's files are named after the function
    function.__qualname__ = function.__qualname__.removesuffix(stamp) + stamp
    try:
        return compiler(cache=True)(function)
    except (RuntimeError, OSError):  # nowhere to keep it: a read-only installation, a full disk
        return compiler()(function)


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
