"""Prepared sequences on disk: rows of uint8 or uint16 of any length, one after the other, memory-mapped for training.

A folder belongs to one config and one state of the source files (names, sizes, times of change); anything else makes a
new one. It appears whole or not at all, is made by one process while others wait, and is checked when opened.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kws_s5.atomic import new_folder
from kws_s5.config import LraData, to_dict
from kws_s5.data.cache import cache_errors, cache_folder
from kws_s5.errors import UserError
from kws_s5.lock import locked

VERSION = 1  # of the layout on disk, of the readers and generators: a change of their output gets a new number
BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError)  # what opening an incomplete folder raises
Stamp = tuple[str, int, int]  # name, bytes, time of change


class Writer:
    """Writes the rows of one split: ``add(target, row, ...)`` for every example, then ``close``."""

    def __init__(self, folder: Path, split: str, dtype: type = np.uint8) -> None:
        self.folder, self.split, self.dtype = folder, split, np.dtype(dtype)
        self.file = open(folder / f"{split}-values.bin", "wb")  # noqa: SIM115
        self.offsets, self.targets = [0], []

    def add(self, target: int, *rows: np.ndarray) -> None:
        """One example: its class and its row (two rows: a pair)."""
        for row in rows:
            assert row.dtype == self.dtype, f"{row.dtype} rows in a {self.dtype} store"
            self.file.write(np.ascontiguousarray(row).tobytes())
            self.offsets.append(self.offsets[-1] + row.size)
        self.targets.append(target)

    def close(self) -> None:
        """Finishes the split's files."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        np.save(self.folder / f"{self.split}-offsets.npy", np.asarray(self.offsets, np.int64), allow_pickle=False)
        np.save(self.folder / f"{self.split}-targets.npy", np.asarray(self.targets, np.int64), allow_pickle=False)


class Rows:
    """The rows of one split, read-only. Safe to send to other processes (only the place travels)."""

    def __init__(self, folder: Path, split: str, dtype: str) -> None:
        """Raises OSError or ValueError if the files are not whole."""
        self.place = (folder, split, dtype)
        self.targets = np.load(folder / f"{split}-targets.npy", allow_pickle=False)  # (n,)
        self.offsets = np.load(folder / f"{split}-offsets.npy", allow_pickle=False)
        path = folder / f"{split}-values.bin"
        if path.stat().st_size != self.offsets[-1] * np.dtype(dtype).itemsize:
            raise ValueError(f"{path}: is not whole")
        self.values = np.asarray(np.memmap(path, dtype, "r")) if self.offsets[-1] else np.zeros(0, dtype)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> np.ndarray:
        """Row ``row`` (of pairs: example i has rows 2i and 2i + 1) as a view of the file."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __getstate__(self) -> tuple:
        return self.place

    def __setstate__(self, place: tuple) -> None:
        self.__init__(*place)


@dataclass(frozen=True)
class Prepared:
    """A finished folder: its splits, and the plain values its maker left (vocabulary, report, note, ...)."""

    rows: dict[str, Rows]
    meta: dict[str, Any]


def prepared(config: LraData, sources: Iterable[Stamp], make: Callable[[Path], dict[str, Any]]) -> Prepared:
    """The folder of (config, sources), made now if there is none.

    Args:
        make: fills a folder through Writers (splits "train", "validation", "test") and returns plain values to keep;
            under "dtype" that of the rows if it is not uint8.

    Raises:
        UserError: from ``make``, a source cannot be read, or the disk is full.
    """
    shelf = cache_folder(config.cache) / "lra"
    folder = shelf / f"{config.task}-{_key(config, sources)}"
    with cache_errors(shelf), locked(shelf / f"{folder.name}.lock"):
        found = _opened(folder)
        if found is None:
            for left in (folder, *shelf.glob(f".{folder.name}.*")):  # damaged, or of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            with new_folder(folder) as temporary:
                meta = {"version": VERSION, "dtype": "uint8", **make(temporary)}
                (temporary / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
            found = _opened(folder)
    assert found is not None, f"{folder} cannot be read back"
    return found


def stamp(paths: Iterable[Path]) -> list[Stamp]:
    """Name, size and time of change of files: what tells that a prepared folder is still theirs.

    Raises:
        UserError: one of them is a folder, a pipe, ... or cannot be reached.
    """
    stamps = []
    for path in paths:
        try:
            info = path.stat()
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from error
        if not stat.S_ISREG(info.st_mode):
            raise UserError(f"{path}: is not a file; put the official file in its place, or remove it")
        stamps.append((str(path), info.st_size, info.st_mtime_ns))
    return stamps


def _opened(folder: Path) -> Prepared | None:
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta["version"] != VERSION:
            return None
        rows = {split: Rows(folder, split, meta["dtype"]) for split in ("train", "validation", "test")}
    except BROKEN:
        return None
    return Prepared(rows, meta)


def _key(config: LraData, sources: Iterable[Stamp]) -> str:
    settings = to_dict(replace(config, cache="", root=""))
    del settings["mirror"]  # decides how rows are shown, not what they are
    digest = hashlib.sha256(json.dumps([VERSION, settings], sort_keys=True).encode())
    for name, size, changed in sources:
        digest.update(os.fsencode(name) + f"\n{size} {changed}\n".encode())
    return digest.hexdigest()[:24]
