"""Every clip decoded once, in memory-mapped int16: training reads sound without decoding and without waiting for disk.

A store belongs to one list of files by name, size and time of change; when a file changes, appears or goes, another
store is made. It appears whole or not at all (a renamed folder), is made by one process while others wait, and is
checked when opened. 105,829 clips of one second take 3.4 GB.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kws_s5.atomic import new_folder
from kws_s5.audio.files import load_audio
from kws_s5.audio.samples import shown
from kws_s5.data.cache import cache_folder
from kws_s5.data.keywords.decode import INDEX, decode_all
from kws_s5.data.keywords.manifest import Clip
from kws_s5.errors import UserError
from kws_s5.lock import locked
from kws_s5.processes import mapped, n_processors, report

VERSION = 1  # of the layout on disk and of the decoding: a change gets a new number
KEPT = 3  # stores kept for one folder of recordings; older ones are removed
CLIPS_PER_PROCESS = 1500  # fewer are decoded here faster than a process starts
RETRIED = 100  # unreadable files tried again when a store is opened


class Store:
    """Decoded clips by row; ``rows[id]`` finds one. Safe to send to other processes (only the folder travels)."""

    def __init__(self, folder: Path) -> None:
        """Opens a finished store. Raises OSError, ValueError or KeyError if it is not whole."""
        self.folder = folder
        meta = json.loads((folder / "store.json").read_text(encoding="utf-8"))
        self.index = np.load(folder / "index.npy", allow_pickle=False)
        self.failures: dict[str, str] = meta["failures"]  # id -> why the file could not be read
        self.rows = {id: row for row, id in enumerate(meta["ids"])}
        if meta["version"] != VERSION or self.index.dtype != INDEX or len(self.index) != len(self.rows):
            raise ValueError("not a store of this version")
        self._shards = [_mapped(folder / name, size) for name, size in meta["shards"]]
        # as Python lists: reading one number of a structured array takes longer than reading the samples
        self._shard, self._offset, self._scale = (self.index[name].tolist() for name in ("shard", "offset", "scale"))

    def piece(self, row: int, start: int, stop: int) -> tuple[np.ndarray, float]:
        """Samples ``start`` to ``stop`` of a clip, (L,) int16 as a view of the file, and the factor to the waveform."""
        offset = self._offset[row]
        return self._shards[self._shard[row]][offset + start : offset + stop], self._scale[row]

    def waveform(self, row: int) -> np.ndarray:
        """(L,) float32 in [-1, 1] (beyond where the recording was)."""
        samples, scale = self.piece(row, 0, int(self.index["length"][row]))
        return samples * np.float32(scale)

    def readable(self, id: str) -> bool:
        """Whether the clip is there (False: see ``failures``)."""
        return id in self.rows and self.index["length"][self.rows[id]] > 0

    def __getstate__(self) -> dict[str, Path]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["folder"])


def open_store(
    root: Path, clips: Sequence[Clip], *, cache: str = "", progress: bool | None = None, n_workers: int | None = None
) -> Store:
    """The store of ``clips`` (files below ``root``), made now if there is none.

    Args:
        cache: as data.cache.
        progress: show a bar while decoding; None: if stderr is a terminal.
        n_workers: processes that decode; None: by the number of clips and processors.

    Raises:
        UserError: the cache cannot be written, or the disk is full.
    """
    root = Path(os.path.abspath(root))
    shelf = cache_folder(cache) / "clips" / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    folder = shelf / _key(root, clips)
    found = _opened(folder, root)
    if found is None:
        shelf.mkdir(parents=True, exist_ok=True)
        with _alone(shelf, root), _disk_errors(shelf):
            found = _opened(folder, root)  # made by the process that we waited for
            if found is None:
                _make(folder, root, clips, progress=progress, n_workers=n_workers)
                found = Store(folder)
                _remove_old(shelf, folder)
    return found


def _key(root: Path, clips: Sequence[Clip]) -> str:
    digest = hashlib.sha256(f"{VERSION}\n{os.fsencode(root)!r}\n".encode())
    for clip in clips:
        digest.update(os.fsencode(clip.id) + f"\n{clip.size} {clip.modified}\n".encode())
    return digest.hexdigest()[:24]


def _opened(folder: Path, root: Path) -> Store | None:
    """The finished store in ``folder``; None if there is none, it is damaged, or an unreadable file now reads."""
    try:
        store = Store(folder)
        os.utime(folder)
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    for id in list(store.failures)[:RETRIED]:
        try:
            load_audio(root / id)
            return None
        except UserError:
            pass
    return store


def _make(folder: Path, root: Path, clips: Sequence[Clip], *, progress: bool | None, n_workers: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # damaged, or with files that can be read by now
    for leftover in folder.parent.glob(".*"):  # of a process that was killed; we are alone here
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
    paths = [os.path.join(root, *clip.id.split("/", 1)) for clip in clips]
    with new_folder(folder) as temporary, _bar(len(clips), root, progress) as done:
        n = _decode_shards(paths, temporary, done=done, n_workers=n_workers)
        _join([clip.id for clip in clips], temporary, n)
        for path in temporary.iterdir():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def _decode_shards(paths: Sequence[str], folder: Path, *, done: Callable[[int], None], n_workers: int | None) -> int:
    """Decodes ``paths`` into ``folder``/shard-0.*, shard-1.*, ... in as many processes; returns how many."""
    n = n_workers or max(1, min(n_processors(), len(paths) // CLIPS_PER_PROCESS))
    bounds = [len(paths) * i // n for i in range(n + 1)]
    jobs = [(paths[bounds[i] : bounds[i + 1]], folder / f"shard-{i}", i) for i in range(n)]
    for _ in mapped(_decode_shard, jobs, n=n, progress=lambda i, clips: done(clips)):
        pass
    return n


def _decode_shard(paths: Sequence[str], prefix: Path, shard: int) -> None:
    decode_all(paths, prefix, shard=shard, done=report)


def _join(ids: list[str], folder: Path, n_shards: int) -> None:
    """The shards' indices and failures -> index.npy and store.json."""
    parts = [np.load(folder / f"shard-{i}.npy", allow_pickle=False) for i in range(n_shards)]
    first = np.cumsum([0] + [len(part) for part in parts])
    failures = {}
    for i in range(n_shards):
        told = json.loads((folder / f"shard-{i}.json").read_text(encoding="utf-8"))
        failures |= {ids[first[i] + int(row)]: reason for row, reason in told.items()}
        for suffix in ("npy", "json"):
            (folder / f"shard-{i}.{suffix}").unlink()
    np.save(folder / "index.npy", np.concatenate(parts), allow_pickle=False)
    shards = [[f"shard-{i}.i16", (folder / f"shard-{i}.i16").stat().st_size] for i in range(n_shards)]
    meta = {"version": VERSION, "shards": shards, "failures": failures, "ids": ids}
    (folder / "store.json").write_text(json.dumps(meta), encoding="utf-8")  # ASCII: ids may be no valid Unicode


def _mapped(path: Path, size: int) -> np.ndarray:
    if path.stat().st_size != size:
        raise ValueError(f"{path}: is not whole")
    # as a plain array: slices of np.memmap objects are several times slower to make
    return np.asarray(np.memmap(path, np.int16, "r")) if size else np.zeros(0, np.int16)


def _remove_old(shelf: Path, newest: Path) -> None:
    folders = sorted(
        (path for path in shelf.iterdir() if path.is_dir() and path != newest), key=lambda path: path.stat().st_mtime
    )
    for path in folders[: max(0, len(folders) - KEPT + 1)]:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _alone(shelf: Path, root: Path):  # noqa: ANN202
    """Only one process at a time prepares a folder; the lock ends with the process, however that ends."""
    path = shelf.with_suffix(".lock")
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, wait=False))
        except BlockingIOError:
            print(f"waiting for another process that is decoding {shown(root)}", file=sys.stderr)
            held.enter_context(locked(path))
        yield


@contextmanager
def _disk_errors(shelf: Path):  # noqa: ANN202
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{shelf}: decoded clips cannot be kept there ({error.strerror or error}); free some space or "
            "choose another folder with data.cache"
        ) from error


@contextmanager
def _bar(total: int, root: Path, shown_: bool | None):  # noqa: ANN202
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (console.is_terminal if shown_ is None else shown_)) as bar:
        task = bar.add_task(f"decoding {shown(root.name)}", total=total)
        done: Callable[[int], None] = lambda n: bar.advance(task, n)  # noqa: E731
        yield done
        bar.update(task, completed=total)
