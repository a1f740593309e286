"""Where prepared data is kept: the folder a config names, else the user's cache folder of this system."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import soundfile

from kws_s5.errors import UserError
from kws_s5.lock import locked


def cache_folder(chosen: str = "") -> Path:
    """The (existing, writable) cache folder: ``chosen``, else $XDG_CACHE_HOME/kws_s5 or what the system uses.

    Raises:
        UserError: it cannot be made or written to.
    """
    try:
        folder = Path(chosen).expanduser() if chosen else _default()
    except RuntimeError:  # ~name of nobody
        raise UserError(f"data.cache = {chosen!r}: there is no such user; choose another folder") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"no cache can be kept there ({error.strerror})"
        raise UserError(f"{folder}: {reason}; choose another folder with data.cache") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: the cache folder is not writable; choose another one with data.cache")
    return folder


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """What the system refuses while ``folder`` is filled becomes a UserError; a source is told by its name."""
    try:
        yield
    except OSError as error:
        reason, name = error.strerror or error, error.filename
        if isinstance(name, (str, Path)) and not Path(name).is_relative_to(folder):
            raise UserError(f"{name}: cannot be read ({reason}); check the file and its permissions") from error
        raise UserError(
            f"{folder}: prepared data cannot be kept there ({reason}); free some space or choose another "
            "folder with data.cache"
        ) from error


def made_once(kind: str, made_from: list, make: Callable[[Path], object], *, cache: str = "") -> Path:
    """The cache's folder for what ``make`` makes of ``made_from``; ``make`` is called by one process at a time."""
    key = json.dumps(made_from, sort_keys=True, default=list)
    folder = cache_folder(cache) / f"{kind}-{hashlib.sha1(key.encode()).hexdigest()[:12]}"
    with locked(folder.with_name(f".{folder.name}.lock")):
        for left in folder.parent.glob(f".{folder.name}.*"):  # by a process that was killed
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        try:
            with cache_errors(folder):
                make(folder)
        except soundfile.SoundFileError as error:
            raise UserError(
                f"{folder}: synthetic sound cannot be kept there ({error}); free some space or choose "
                "another folder with data.cache"
            ) from None
    return folder


def remove_unfinished(folder: Path) -> None:
    """Removes what a process that was killed left of the files it was writing; call it under the folder's lock."""
    for left in (*folder.glob(".*.npy"), *folder.glob(".*.tsv")):
        left.unlink()


def _default() -> Path:
    """$XDG_CACHE_HOME/kws_s5 on every system where it is set (platformdirs looks at it on Linux only)."""
    own = os.environ.get("XDG_CACHE_HOME")
    return (
        Path(own).expanduser() / "kws_s5"
        if own
        else platformdirs.user_cache_path("kws_s5", appauthor=False, opinion=False)
    )
