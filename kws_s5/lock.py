"""One process at a time: an advisory lock on a file, which the system frees even when its holder is killed."""

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
    """Holds the lock file ``path`` (made if missing, left behind); ``wait=False``: BlockingIOError if it is held."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        while not _try_lock(file):
            if not wait:
                raise BlockingIOError(f"{path} is held by another process")
            time.sleep(0.05)
        yield  # closing the file gives the lock back


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
