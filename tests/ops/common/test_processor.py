"""Kernels are made for the processor that numba compiles for, whatever this one can do besides."""

import json
import os
import subprocess
import sys

import pytest
from llvmlite import binding

HASWELL = [
    "sse2",
    "sse3",
    "ssse3",
    "sse4.1",
    "sse4.2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "bmi",
    "bmi2",
    "popcnt",
    "lzcnt",
    "movbe",
    "cx16",
]
LIMITS = {
    "generic": {"NUMBA_CPU_NAME": "generic"},
    "without AVX": {"NUMBA_ENABLE_AVX": "0"},
    "AVX2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in HASWELL)},
}
WORK = """
import json
import numpy as np
import torch
from kws_s5.ops.common.amx import has_amx
from kws_s5.ops.common.processor import features
from kws_s5.ops.scan.choice import scan
from numba import njit
from kws_s5.ops.common.row_products import LANES, WIDE, panels, product

@njit
def call(x, w, n_panels, bias, out):
    product(x.ctypes.data, x.strides[0], 9, 33, w.ctypes.data, n_panels, bias.ctypes.data, out.ctypes.data, 128)

x, weight = np.random.default_rng(0).standard_normal((2, 32, 33)).astype(np.float32)
packed, out = panels(weight), np.zeros((9, 32), np.float32)
call(x, packed, len(packed), np.zeros(32, np.float32), out)
Bu = torch.randn(2, 9, 42)
a = torch.full((42,), 0.5)
states = torch.equal(scan(a, Bu, backend="cpu"), scan(a, Bu, backend="cpu"))
near = torch.allclose(scan(a, Bu, backend="cpu"), scan(a, Bu, backend="reference"), atol=1e-5)
print(json.dumps({"amx": has_amx(), "wide": WIDE, "avx512": any(f.startswith("avx512") for f in features()),
                  "error": float(np.abs(out - x[:9] @ weight.T).max()), "scan": bool(states and near)}))
"""
on_x86 = pytest.mark.skipif(not binding.get_default_triple().startswith("x86_64"), reason="names of x86 features")


@on_x86
@pytest.mark.parametrize("limit", LIMITS)
def test_a_smaller_processor_gets_code_that_it_can_run(limit: str) -> None:
    if limit == "AVX2" and not binding.get_host_cpu_features().get("avx2"):
        pytest.skip("this processor has no AVX2")
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | LIMITS[limit],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert not found["amx"] and not found["wide"] and not found["avx512"]
    assert found["error"] < 1e-4 and found["scan"]
