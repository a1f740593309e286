"""Matrix products of the fused layer: float32 as it is, or with bfloat16 operands, in buffers that are used again."""

import threading

import torch
from torch import Tensor

_local = threading.local()


class Products:
    """products(a, b, out, add=False): out = a b, or out += a b; returns out."""

    def __init__(self, half: bool) -> None:
        self.half = half

    def __call__(self, a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> Tensor:
        """a (M, K), b (K, O), out (M, O), of any strides."""
        if not self.half:
            return torch.addmm(out, a, b, out=out) if add else torch.mm(a, b, out=out)
        product = torch.mm(_low("a", a), _low("b", b), out=buffer("product", out.shape, torch.bfloat16))
        return out.add_(product) if add else out.copy_(product)


def buffer(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """This thread's buffer of that name, at least as long as needed; its content is whatever was left there."""
    kept = _local.__dict__
    size = shape[0] * shape[1]
    found = kept.get((name, dtype))
    if found is None or len(found) < size:
        with torch.inference_mode(False):
            found = kept[name, dtype] = torch.empty(size, dtype=dtype)
    return found[:size].view(shape)


def _low(name: str, x: Tensor) -> Tensor:
    """x as bfloat16, laid out as x is."""
    if x.stride(0) == 1 and x.stride(1) != 1:
        return _low(name, x.T).T
    return buffer(name, x.shape, torch.bfloat16).copy_(x)
