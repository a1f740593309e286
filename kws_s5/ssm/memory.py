"""Keeps freed memory inside the process, so that large tensors are not paged in anew by every operator.

glibc gives blocks above 32 MB back to the system when they are freed, and asks for fresh, zeroed pages the next time.
A layer at 16,000 steps allocates tens of megabytes per operator: the page faults then cost more than the arithmetic.
This is a decision about the whole process, so nothing calls it on import; training, evaluation and benchmarks do.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # names and numbers of malloc.h
NEVER = -1
TOP_PAD = 64 << 20  # bytes asked for beyond need when the heap grows


def keep_freed_memory() -> bool:
    """Turns it on; False where the C library has no such setting. Memory use then stays at its peak."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, such as musl
        return False
    return all(mallopt(*setting) for setting in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, NEVER), (M_TOP_PAD, TOP_PAD)))
