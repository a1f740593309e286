"""Freed memory that is kept causes no page faults when it is used again."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from kws_s5.ssm.memory import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(77)
torch.set_num_threads(1)
def work():
    return torch.ones(12_000_000)  # 48 MB, freed at once
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this C library has no such setting")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_large_tensors_reuse_their_pages():
    assert faults("keep") < 100
