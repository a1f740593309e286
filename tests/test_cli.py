"""What every command makes of mistakes, refusals of the system, and Ctrl-C: one line and an exit status."""

from pathlib import Path

import numpy as np
import pytest

from kws_s5.atomic import write_json
from kws_s5.cli import guarded
from kws_s5.errors import UserError


def failing(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (UserError("words: no such folder"), 2, "error: words: no such folder"),
        (UserError("no column 'q'; choose from \x1b[31mx\ny"), 2, "error: no column 'q'; choose from \\x1b[31mx\\ny"),
        (KeyboardInterrupt(), 130, "stopped."),
        (OSError(28, "No space left on device"), 2, "error: a file: No space left on device; check"),
        (PermissionError(13, "Permission denied", "runs/a\nb"), 2, "error: runs/a\\nb: Permission denied; check"),
        (MemoryError(), 2, "error: not enough memory"),
    ],
)
def test_a_mistake_is_one_line_and_a_status(error: BaseException, status: int, says: str, capsys) -> None:
    assert guarded(failing(error)) == status
    told = capsys.readouterr().err
    assert told.startswith(says) and told.count("\n") == 1


def test_a_result_that_cannot_be_written_and_an_array_too_large_are_one_line(tmp_path: Path, capsys) -> None:
    assert guarded(lambda: write_json(tmp_path, {})) == 2
    assert guarded(lambda: len(np.empty(1 << 56))) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert told[0].startswith(f"error: {tmp_path}: Is a directory") and "not enough memory" in told[1]


def test_a_tensor_too_large_is_out_of_memory_too(capsys) -> None:
    torch = pytest.importorskip("torch")
    assert guarded(lambda: len(torch.zeros(1 << 56))) == 2
    assert guarded(failing(torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2.00 GiB"))) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and all(line.startswith("error: not enough memory (") for line in told)


def test_what_is_our_own_mistake_keeps_its_traceback() -> None:
    for error in (KeyError("x"), OSError("a library's words"), RuntimeError("shapes do not match")):
        with pytest.raises(type(error)):
            guarded(failing(error))
