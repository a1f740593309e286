"""Kernels compile whether or not their machine code can be kept."""

import ctypes

import numpy as np

from kws_s5.ssm.compiling import compile_kept


def test_a_kernel_without_a_place_to_be_kept_is_compiled_all_the_same() -> None:
    names: dict = {}
    exec("def double(job):\n    job[0] = 2 * job[0]\n", names)  # no file: numba has nowhere to keep it
    job = np.array([21], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compile_kept(names["double"], error_model="numpy"))(job.ctypes.data)
    assert job[0] == 42
