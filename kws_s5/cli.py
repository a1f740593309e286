"""What every command shares: a user's mistake becomes one line on stderr and exit status 2, Ctrl-C becomes 130.

What the system refuses (a file that cannot be written, a full disk, too little memory) is told in one line too.
"""

import io
import os
import re
import sys
from collections.abc import Callable

from kws_s5.audio.samples import shown
from kws_s5.errors import UserError

TORCH = {"torch", "torchaudio", "lightning", "numba", "scipy", "safetensors", "sklearn", "matplotlib"}  # the extra's
NO_MEMORY = re.compile(r"(can't allocate|not enough|out of) memory")  # in torch's RuntimeErrors
ASKED = re.compile(r"tried to allocate [\d.]+ \w+", re.IGNORECASE)


def guarded(command: Callable[[], int | None]) -> int:
    """Runs ``command`` and returns an exit status; never lets a traceback of a user's mistake through."""
    for stream in (sys.stdout, sys.stderr):  # what a terminal or a redirect cannot show is escaped, not an error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return command() or 0
    except UserError as error:
        print(f"error: {shown(error)}", file=sys.stderr)  # names in it may come from strangers' files
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in TORCH:
            raise
        print(f"error: {without_torch(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has gone: not an error
        sys.stderr.close()
        return 0
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not NO_MEMORY.search(str(error)):
            raise
        asked = ASKED.search(str(error))  # torch says more than users need
        what = asked.group().lower() if asked else shown(error) or "out of memory"
        print(f"error: not enough memory ({what}); shorter clips or smaller batches need less", file=sys.stderr)
        return 2
    except OSError as error:
        if error.strerror is None:  # not of the system: a library's own complaint, whose place we need to see
            raise
        where = shown(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else "a file"
        print(f"error: {where}: {error.strerror}; check the path, its permissions and the free space", file=sys.stderr)
        return 2


def without_torch(error: ModuleNotFoundError) -> str:
    """What to do where only the small installation is there, which runs exported models."""
    return (
        f"{error.name} is not installed: pip install 'kws-s5[torch]' trains and runs models; "
        "without it, kws-scan --model FILE.onnx runs exported ones"
    )
