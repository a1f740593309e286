"""Ctrl-C and SIGTERM during training: the step (or validation) in progress ends, everything is saved, then we stop."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """Training stopped on request after saving a checkpoint."""


class StopRequest:
    """Remembers that somebody asked to stop; asked twice by Ctrl-C, it stops at once."""

    def __init__(self) -> None:
        self.asked = False

    def install(self) -> None:
        """Takes over both signals (main thread only: elsewhere Python allows no handlers)."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._handle)
            signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        if self.asked and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise KeyboardInterrupt
        if not self.asked:
            print(
                "\nstopping after this step; a checkpoint will be saved (Ctrl-C again: stop at once)",
                file=sys.stderr,
                flush=True,
            )
        self.asked = True


@contextmanager
def handled() -> Iterator[StopRequest]:
    """Handlers are in place inside the block; the earlier ones come back behind it."""
    request = StopRequest()
    main = threading.current_thread() is threading.main_thread()
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)} if main else {}
    try:
        request.install()
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
