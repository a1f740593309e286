"""One switch for every fast path of kws_s5/ops, and what happens where code cannot be compiled.

    KWS_S5_OPS=auto         compiled and written-out operations wherever they can run (what happens without it)
    KWS_S5_OPS=reference    ordinary torch operations only

    with kws_s5.ops.use("reference"):    # the same for a while
        ...

The environment is read when the process starts. ``use`` stands above it, in the calling thread (or asyncio task) only:
threads that were or will be started go by the environment. It nests, and what held before holds afterwards. A gradient
goes back by the way its forward pass came, and a graph of torch.compile is traced again when the answer changes.
"reference" runs the scan in its chunked form (scan/chunked.py): plain torch, tested against the loop of
scan/reference.py, which would be too slow to train with. A backend that is named in a call is always obeyed.

Fast paths ask here: ``active`` before they are chosen, ``compiled`` if they need numba; ``ready`` around what they
import and compile. Where numba is missing, broken or cannot compile, one warning says so, and all go on in plain torch.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kws_s5.errors import UserError

MODES = ("auto", "reference")
_environment = os.environ.get("KWS_S5_OPS") or "auto"
_chosen: ContextVar[str | None] = ContextVar("kws_s5_ops", default=None)
_works: bool | None = None  # whether compiled code works in this process; None: not tried yet


@contextmanager
def use(mode: str) -> Iterator[None]:
    """Within the block and in this thread, operations run as "auto" or "reference" says."""
    token = _chosen.set(_checked(mode, "kws_s5.ops.use"))
    try:
        yield
    finally:
        _chosen.reset(token)


def mode() -> str:
    """ "auto" or "reference", as it holds here and now. Raises UserError for another value in the environment."""
    return _chosen.get() or _checked(_environment, "KWS_S5_OPS")


def active() -> bool:
    """Whether fast paths may be taken at all."""
    return mode() == "auto"


def compiled() -> bool:
    """Whether a fast path of compiled code may be taken: the switch allows it, numba is there, nothing has failed."""
    global _works
    if mode() != "auto":
        return False
    if _works is None:
        try:
            import numba  # noqa: F401  # a package that is found may still be broken

            _works = True
        except Exception as error:  # whatever a broken installation raises
            _fail(error)
    return bool(_works)


def ready(load: Callable[[], object]) -> bool:
    """Whether ``load``, which imports and compiles what an operation needs, succeeds; quick from the second time on."""
    if _works is False:
        return False
    try:
        load()
    except Exception as error:  # of numba, LLVM, the system's linker, a full disk: plain torch needs none of them
        _fail(error)
        return False
    return True


def _checked(value: str, where: str) -> str:
    if value not in MODES:
        raise UserError(f"{where}: {value!r} is unknown; it is 'auto' (compiled where possible) or 'reference' (plain)")
    return value


def _fail(error: Exception) -> None:
    """From now on everything runs in plain torch; said once."""
    global _works
    if _works is not False:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        warnings.warn(
            f"nothing can be compiled here ({type(error).__name__}: {reason}); using plain torch, slower",
            RuntimeWarning,
            stacklevel=3,
        )
    _works = False
