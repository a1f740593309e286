"""Large tensors on large pages of memory."""

import ctypes
import sys
from functools import cache

import torch
from torch import Tensor

LARGE_PAGE, MADV_HUGEPAGE = 1 << 21, 14


def fresh(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """New memory of ``like``'s dtype, on large pages where the system grants them: a page fault for 2 MB, not 4 KB."""
    tensor = torch.empty(shape, dtype=like.dtype)
    size = tensor.numel() * tensor.element_size()
    if size >= 2 * LARGE_PAGE and (advise := _madvise()) is not None:
        first = -(-tensor.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        advise(first, (tensor.data_ptr() + size - first) // LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE)
    return tensor


@cache
def _madvise():
    """The C library's madvise on Linux, or None. It is only advice: a refusal changes nothing."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    return function
