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
    lock = FileLock(path, timeout=-1 if wait else 0, is_singleton=False, thread_local=False)
    while not _acquired(lock, path):  # the file went with its folder while we waited for it
        pass
    try:
        yield
    finally:
        lock.release()


def _acquired(lock: FileLock, path: Path) -> bool:
    """Whether we hold the file that lies at ``path``; False where its last holder removed it meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(poll_interval=POLL)
    except Timeout:
        raise BlockingIOError(f"{path} is held by another process") from None
    except FileNotFoundError:
        return False
    if path.exists():
        return True
    lock.release()
    return False
