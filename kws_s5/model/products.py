"""Matrix products and memory of the fused layer: float32 or bfloat16 operands, buffers used again, large pages."""

import ctypes
import sys
import threading
from functools import cache

import torch
from torch import Tensor

LARGE_PAGE, MADV_HUGEPAGE = 1 << 21, 14
_local = threading.local()


class Products:
    """products(a, b, out, add=False): out = a b, or out += a b; returns out."""

    def __init__(self, half: bool) -> None:
        self.half = half

    def __call__(self, a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> Tensor:
        """a (M, K), b (K, O), out (M, O), of any strides."""
        if not self.half:
            return torch.addmm(out, a, b, out=out) if add else torch.mm(a, b, out=out)
        a, b = self.operand(a, "a"), self.operand(b, "b")
        product = torch.mm(a, b, out=buffer("product", out.shape, torch.bfloat16))
        return out.add_(product) if add else out.copy_(product)

    def operand(self, x: Tensor, name: str) -> Tensor:
        """x as it enters a product: for use in several ones; ``name`` of the buffer it lies in until the next call."""
        if not self.half or x.dtype == torch.bfloat16:
            return x
        if x.stride(0) == 1 and x.stride(1) != 1:
            return self.operand(x.T, name).T
        return buffer(name, x.shape, torch.bfloat16).copy_(x)


def buffer(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """This thread's buffer of that name, at least as long as needed; its content is whatever was left there."""
    kept = _local.__dict__
    size = shape[0] * shape[1]
    found = kept.get((name, dtype))
    if found is None or len(found) < size:
        with torch.inference_mode(False):
            found = kept[name, dtype] = torch.empty(size, dtype=dtype)
    return found[:size].view(shape)


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
