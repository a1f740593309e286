"""Where prepared data is kept: the folder a config names, else the user's cache folder of this system."""

import os
import sys
from pathlib import Path

from kws_s5.errors import UserError


def cache_folder(chosen: str = "") -> Path:
    """The (existing, writable) cache folder: ``chosen``, else $XDG_CACHE_HOME/kws_s5 or what the system uses.

    Raises:
        UserError: it cannot be made or written to.
    """
    folder = Path(chosen).expanduser() if chosen else _default() / "kws_s5"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"no cache can be kept there ({error.strerror})"
        raise UserError(f"{folder}: {reason}; choose another folder with data.cache") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: the cache folder is not writable; choose another one with data.cache")
    return folder


def _default() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path.home() / ".cache"
