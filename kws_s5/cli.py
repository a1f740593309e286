"""What every command shares: a user's mistake becomes one line on stderr and exit status 2, Ctrl-C becomes 130."""

import sys
from collections.abc import Callable

from kws_s5.errors import UserError


def guarded(command: Callable[[], int | None]) -> int:
    """Runs ``command`` and returns an exit status; never lets a traceback of a user's mistake through."""
    try:
        return command() or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has gone: not an error
        sys.stderr.close()
        return 0
