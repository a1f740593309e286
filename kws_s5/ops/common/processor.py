"""What this processor can do, as numba compiles for it."""

from functools import cache

from llvmlite import binding
from numba.core import config


@cache
def features() -> frozenset[str]:
    """LLVM's names of the processor's features, for instance "avx512f".

    NUMBA_CPU_FEATURES replaces what the processor has, so that code for smaller ones can be tried on a larger one.
    """
    listed = config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
    return frozenset(name[1:] for name in listed.split(",") if name.startswith("+"))
