"""Files appear whole or not at all: written to a temporary name beside the target, flushed to disk, then renamed."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside ``path``; a clean exit renames it to ``path``, an error removes it.

    Raises:
        OSError: naming ``path``, not the temporary one.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if path.exists() and not path.is_file():  # /dev/null, a pipe: renaming would put a file in its place
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    except FileExistsError as error:  # a file where a folder of the path should be
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes private files; ours follow the user's umask
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes UTF-8 ``text`` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Writes ``value`` as indented JSON atomically; NaN and infinity are refused because readers reject them."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """What ``write_json`` writes. Raises ValueError for NaN and infinity."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Yields an empty temporary folder beside ``folder``; a clean exit makes it ``folder``, an error removes it.

    ``folder`` may exist only if it is empty: FileExistsError otherwise, and nothing is changed.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o777 & ~umask)
        _become(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _become(temporary: Path, folder: Path) -> None:
    try:
        if folder.is_dir():
            folder.rmdir()  # fails unless it is empty
        os.rename(temporary, folder)
    except OSError as error:
        if folder.exists():
            raise FileExistsError(errno.ENOTEMPTY, "exists and is not empty", str(folder)) from error
        raise
