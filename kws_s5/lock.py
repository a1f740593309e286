"""One process at a time: an advisory lock on a file, which the system frees even when its holder is killed."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt


@contextmanager
def locked(path: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the lock file ``path``; ``wait=False``: BlockingIOError if it is held.

    The file is made if it is missing and left behind; its holder may remove it.
    """
    path = Path(path)
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as file:
            if _try_lock(file):
                if _is_at(path, file):
                    yield  # closing the file gives the lock back
                    return
                continue  # its holder has removed it meanwhile: whoever comes next would lock another file
        if not wait:
            raise BlockingIOError(f"{path} is held by another process")
        time.sleep(0.05)


def _is_at(path: Path, file) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _try_lock(file) -> bool:
    try:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
