"""Kernels compile whether or not their machine code can be kept."""

import ctypes

import numpy as np
import pytest

from kws_s5.ops.common import jit as compiling
from kws_s5.ops.common.jit import compile_kept


def test_a_kernel_without_a_place_to_be_kept_is_compiled_all_the_same() -> None:
    names: dict = {}
    exec("def double(job):\n    job[0] = 2 * job[0]\n", names)  # no file: numba has nowhere to keep it
    job = np.array([21], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compile_kept(names["double"], error_model="numpy"))(job.ctypes.data)
    assert job[0] == 42


def test_whoever_waits_at_a_terminal_is_told_why_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(compiling, "_said", [])
    compiling._tell()
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    compiling._tell()
    compiling._tell()
    assert capsys.readouterr().err.count("compiling") == 1
