"""One process at a time: a lock on a file, which the system frees even when its holder is killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

POLL = 0.05  # seconds


@contextmanager
def locked(path: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the lock file ``path``; ``wait=False``: BlockingIOError if it is held.

    The file is made if it is missing and left behind; its holder may remove it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=-1 if wait else 0, is_singleton=False, thread_local=False)
    try:
        lock.acquire(poll_interval=POLL)
    except Timeout:
        raise BlockingIOError(f"{path} is held by another process") from None
    try:
        yield
    finally:
        lock.release()
