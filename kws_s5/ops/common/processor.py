"""What this processor can do, as numba compiles for it."""

from functools import cache

from numba.core.registry import cpu_target


@cache
def features() -> frozenset[str]:
    """LLVM's names of the processor's features, for instance "avx512f".

    Those that numba's code generator really names to LLVM: NUMBA_CPU_FEATURES replaces what the processor has,
    NUMBA_ENABLE_AVX=0 takes the wide vectors away, NUMBA_CPU_NAME=generic everything.
    """
    _, _, listed = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(name[1:] for name in listed.split(",") if name.startswith("+"))
