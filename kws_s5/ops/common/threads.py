"""Runs a compiled function on torch's own threads: as many as torch.get_num_threads(), no second pool beside them.

torch's CPU operators run on an OpenMP runtime (libgomp on Linux). A pool of our own would compete with its threads,
which keep spinning for a while after every operator, so the function is handed to that same runtime. Where it is not
libgomp (macOS, Windows) a small Python thread pool does the work; the compiled code runs without the interpreter lock.

Both are safe when several Python threads call at once. A forked child has none of its parent's threads, so there
everything runs on the calling thread.
"""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_forked = False


def run_parallel(function: int, job: np.ndarray, n_threads: int) -> None:
    """Calls the C function void(void *) at address ``function`` with the job's address, on ``n_threads`` threads."""
    address = job.ctypes.data
    if n_threads <= 1 or _forked:
        _FUNCTION(function)(address)
        return
    start = _gomp()
    if start is not None:
        start(function, address, n_threads, 0)
        return
    call = _FUNCTION(function)
    others = [_pool().submit(call, address) for _ in range(n_threads - 1)]
    call(address)
    for other in others:
        other.result()


@cache
def _gomp():
    """GOMP_parallel of the libgomp that torch has loaded, or None."""
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
        found = [line.split()[-1] for line in maps if "libgomp" in line]
        inside_torch = [path for path in found if "torch" in path]
        start = ctypes.CDLL((inside_torch or found)[0]).GOMP_parallel
    except (OSError, IndexError, AttributeError):
        return None
    start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    start.restype = None
    return start


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="kws_s5")


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
