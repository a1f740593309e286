"""The scan on CUDA devices: the Triton kernels of triton_launch.py, and plain torch, with a warning, where they fail.

Triton may be missing, older than its driver, or unable to compile for a device. Training goes on then, slower, on the
chunked scan; the reason is told once. Errors that no other code would cure (memory, a broken device) are passed on.
Shapes: N batch, L steps, P stored states; planar pairs [re | im] on the last axis.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from kws_s5.ops.scan import triton_launch
from kws_s5.ops.scan.chunked import chunked_adjoint, chunked_forward

PASSED_ON = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError), AssertionError)
_failure: Exception | None = None  # why Triton is not used any more in this process


def forward(Lambda_bar: Tensor, Bu: Tensor, initial: Tensor | None, direction: str) -> Tensor:
    """States xs (N, L, 2 D P)."""
    return _first_that_works(triton_launch.forward, chunked_forward, Lambda_bar, Bu, initial, direction)


def adjoint(
    Lambda_bar: Tensor, xs: Tensor, initial: Tensor | None, grad_xs: Tensor, direction: str, needs_Lambda: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of Lambda_bar (empty unless needed) and Bu (N, L, 2P), and g (N, 2P) where the first scan starts."""
    arguments = (Lambda_bar, xs, initial, grad_xs, direction, needs_Lambda)
    return _first_that_works(triton_launch.adjoint, chunked_adjoint, *arguments)


def _first_that_works(fast: Callable, portable: Callable, *arguments):
    global _failure
    if _failure is None:
        try:
            return fast(*arguments)
        except PASSED_ON:
            raise
        except Exception as error:  # whatever Triton, its compiler or the driver raise
            _failure = error
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            text = f"the Triton scan does not run here ({type(error).__name__}: {reason}); using plain torch, slower"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return portable(*arguments)
