"""A sound file -> blocks of all its channels, up to the end of the file; what could not be read is told at the end.

soundfile decodes what plan.py finds in the file; ffmpeg, where it is installed, what soundfile does not know.
Legend: L samples, l samples of a block, C channels.
"""

import io
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from kws_s5.audio import ffmpeg
from kws_s5.audio.containers import plan
from kws_s5.audio.pieces import Pieces
from kws_s5.audio.plan import Link, Plan
from kws_s5.audio.resample import StreamResampler
from kws_s5.audio.samples import MAX_CHANNELS, checked_level, checked_rate, shown
from kws_s5.errors import UserError

MAX_BYTES = 1 << 30  # read from a file object
NO_LENGTH = 1 << 62  # number of samples that libsndfile gives for a flac header without one
MOST_OPENED = 100  # links that are looked into for the length; more are estimated
SLACK = 2 * 1152  # samples by which a counted number may differ: an mp3 decoder needs a frame or two to begin


MAGIC = (
    b"RIFF",
    b"RIFX",
    b"RF64",
    b"BW64",
    b"riff\x2e\x91",
    b"OggS",
    b"fLaC",
    b"FORM",
    b".snd",
    b"caff",
    b"ID3",
    b"NIST_1A",
    b"Creative Voice",
    b"\x1a\x45\xdf\xa3",
    b"\x30\x26\xb2\x75",
    b"#!AMR",
)


@dataclass(frozen=True)
class SoundData:
    """The bytes of a sound file."""

    data: bytes | bytearray | memoryview
    name: str = "sound data"  # printable


class _Forward(soundfile.SoundFile):
    """Read from start to end only. soundfile seeks after every read, which spoils mp3 files at each seam and fails in
    flac files without a length in the header."""

    def seekable(self) -> bool:
        return False


class Sound:
    """An open recording."""

    def __init__(self, name: str, rate: float, channels: int, format: str) -> None:
        self.name, self.rate, self.channels, self.format = name, rate, channels, format
        self.notes: list[str] = []
        checked_rate(rate, name)
        if not 1 <= channels <= MAX_CHANNELS:
            raise UserError(f"{name}: has {channels} channels; at most {MAX_CHANNELS} can be mixed down")

    def length(self) -> int:
        """Samples per channel that are expected; 0: not known."""
        return 0

    def blocks(self, n: int) -> Iterator[np.ndarray]:
        """Blocks (l, C) float32, n samples each but the last. Raises UserError at the end if sound is missing."""
        waiting: list[np.ndarray] = []
        for x in self._decoded(n):
            waiting.append(checked_level(x, self.name))
            if sum(map(len, waiting)) >= n:
                x = np.concatenate(waiting) if len(waiting) > 1 else x
                for start in range(0, len(x) - n + 1, n):
                    yield x[start : start + n]
                waiting = [x[len(x) - len(x) % n :]] if len(x) % n else []
        if waiting:
            yield np.concatenate(waiting)
        missing = self._missing()
        if missing:
            raise UserError(f"{self.name}: {missing}; get the file again")

    def _decoded(self, n: int) -> Iterator[np.ndarray]:
        raise NotImplementedError

    def _missing(self) -> str:
        raise NotImplementedError


class _Links(Sound):
    """The links of a plan, by soundfile."""

    def __init__(self, name: str, plan: Plan, raw: io.FileIO | io.BytesIO) -> None:
        self._plan, self._raw, self._faults = plan, raw, [plan.missing]
        self._first = self._open(plan.links[0])
        super().__init__(name, self._first.samplerate, self._first.channels, self._first.format_info)
        self.notes = [f"{name}: {note}" for note in plan.notes]
        if self._first.frames <= 0:
            raise UserError(f"{name}: holds no sound (0 samples); record it again or remove it")

    def length(self) -> int:
        total = 0.0
        for i, link in enumerate(self._plan.links):
            try:
                with self._open(link) as file:
                    n = link.least if link.open_end else file.frames
                    total += n * self.rate / file.samplerate if n < NO_LENGTH else 0
            except soundfile.LibsndfileError:
                continue  # told when its sound is wanted
            if i == MOST_OPENED:
                return round(total / (i + 1) * len(self._plan.links))
        return round(total)

    def _open(self, link: Link) -> soundfile.SoundFile:
        # whole files by descriptor: neither the file's name (non-UTF-8) nor its suffix (.raw) steers the decoder
        whole = link.data is self._plan.whole and isinstance(self._raw, io.FileIO) and sys.platform != "win32"
        handle = self._raw.fileno() if whole else link.data
        (self._raw if whole else link.data).seek(0)
        return _Forward(handle, closefd=False)

    def _decoded(self, n: int) -> Iterator[np.ndarray]:
        for i, link in enumerate(self._plan.links):
            try:
                file = self._first if i == 0 else self._open(link)
            except soundfile.LibsndfileError as error:
                self._faults.append(f"part {i + 1} of {len(self._plan.links)} cannot be read ({_reason(error)})")
                continue
            with file:
                if not 1 <= file.channels <= MAX_CHANNELS:
                    self._faults.append(f"part {i + 1} has {file.channels} channels")
                    continue
                yield from self._fitting(self._of_link(file, link, n), file)

    def _of_link(self, file: soundfile.SoundFile, link: Link, n: int) -> Iterator[np.ndarray]:
        promised = file.frames if link.promised is None else link.promised
        unknown, done, why = link.open_end or promised >= NO_LENGTH, 0, ""
        while unknown or done < file.frames:
            try:
                x = file.read(n if unknown else min(n, file.frames - done), dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                why = f" ({_reason(error)})"
                break
            if not len(x):
                break
            done += len(x)
            yield x
        wanted, slack = (link.least, 0) if unknown else (promised, 0 if link.promised is None else SLACK)
        if done + slack < wanted:
            self._faults.append(f"is cut short, {done} of {wanted} samples are there{why}")
        elif why or not done:
            self._faults.append(f"is cut short or damaged after {done} samples{why}")
        elif unknown and wanted and done > wanted:
            self.notes.append(f"{self.name}: its header counts {wanted} samples, but {done} are there: all are read")

    def _fitting(self, blocks: Iterator[np.ndarray], file: soundfile.SoundFile) -> Iterator[np.ndarray]:
        """Blocks with the rate and channels of the first link."""
        resamplers = (
            [StreamResampler(file.samplerate, self.rate) for _ in range(file.channels)]
            if file.samplerate != self.rate
            else []
        )
        if resamplers:
            checked_rate(file.samplerate, self.name)
            self.notes.append(
                f"{self.name}: goes on at {file.samplerate} Hz, which is converted to its first part's {self.rate:g} Hz"
            )
        for x in blocks:
            if resamplers:
                x = np.stack([r.push(np.ascontiguousarray(x[:, c])) for c, r in enumerate(resamplers)], 1)
            yield self._as_first(x)
        if resamplers:
            yield self._as_first(np.stack([r.push(np.zeros(0, np.float32), last=True) for r in resamplers], 1))

    def _as_first(self, x: np.ndarray) -> np.ndarray:
        if x.shape[1] == self.channels:
            return x
        return np.repeat(x.mean(axis=1, keepdims=True), self.channels, axis=1)

    def _missing(self) -> str:
        return next(filter(None, self._faults), "")

    def close(self) -> None:
        self._first.close()


class _Foreign(Sound):
    """A file read by ffmpeg."""

    def __init__(self, name: str, decoding: ffmpeg.Decoding, words: str, missing: str) -> None:
        super().__init__(name, decoding.rate, decoding.channels, words)
        self._decoding, self._done, self._lacks = decoding, 0, missing

    def _decoded(self, n: int) -> Iterator[np.ndarray]:
        while len(x := self._decoding.read(n)):
            self._done += len(x)
            yield x

    def _missing(self) -> str:
        fault = self._decoding.fault()
        if self._lacks:
            return self._lacks
        return f"cannot be read to its end ({fault})" if fault else "" if self._done else "holds no sound"


@contextmanager
def opened(source: Any) -> Iterator[Sound]:
    """A recording: path, bytes, or a binary file object. What the decoders dislike becomes a UserError."""
    raw, name = _raw(source)
    with ExitStack() as stack:
        stack.callback(raw.close)
        size = os.fstat(raw.fileno()).st_size if isinstance(raw, io.FileIO) else len(raw.getbuffer())
        whole = Pieces(raw, [(0, size)])
        head = whole.at(0, 1024)
        if not size:
            raise UserError(f"{name}: is empty (0 bytes); get the file again")
        kind, missing = ffmpeg.kind_of(head), ""
        if kind is None:
            found: Sound | None = None
            try:
                planned = plan(whole)
                planned.whole, missing = whole, planned.missing
                found = _Links(name, planned, raw)
                stack.callback(found.close)
            except soundfile.LibsndfileError as error:
                if missing:
                    raise UserError(f"{name}: {missing}; get the file again") from error
                kind = (ffmpeg.shared_kind(head), "")
                if not kind[0] or not ffmpeg.installed():
                    raise UserError(
                        f"{name}: cannot be read as sound ({_reason(error)}); get the file again, or "
                        "convert it to wav or flac"
                    ) from error
            if found:
                yield found
                return
        assert kind is not None
        if not ffmpeg.installed():
            raise UserError(
                f"{name}: is {kind[1]}, which only ffmpeg can read: install ffmpeg, or convert the file to "
                "wav or flac (ffmpeg -i IN OUT.wav)"
            )
        path = source if isinstance(raw, io.FileIO) else stack.enter_context(_on_disk(raw))
        yield _Foreign(name, stack.enter_context(ffmpeg.decoding(path, kind[0], name)), kind[1] or kind[0], missing)


@contextmanager
def _on_disk(raw: io.BytesIO) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="kws-s5-") as folder:
        path = Path(folder) / "sound"
        path.write_bytes(raw.getbuffer())
        yield str(path)


def _raw(source: Any) -> tuple[io.FileIO | io.BytesIO, str]:
    """A binary stream that can seek, and the printable name of the source."""
    if isinstance(source, (str, os.PathLike)):
        name = shown(os.fspath(source) if not isinstance(os.fspath(source), bytes) else os.fsdecode(source))
        try:
            if not stat.S_ISREG(os.stat(source).st_mode):  # opening a pipe or device could wait for ever
                kind = "a folder" if Path(os.fsdecode(source)).is_dir() else "not a regular file"
                raise UserError(f"{name}: is {kind}; give a sound file")
            return io.FileIO(source), name
        except (OSError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{name}: cannot be opened ({reason}); check path and permissions") from error
    if not isinstance(source, SoundData):
        source = SoundData(source) if isinstance(source, (bytes, bytearray, memoryview)) else read_all(source)
    if len(source.data) > MAX_BYTES:
        raise UserError(f"{source.name}: more than {MAX_BYTES >> 20} MB; save it to disk and give the path")
    return io.BytesIO(source.data), source.name


def read_all(file: Any) -> SoundData:
    """What a binary file object holds, so that it can be read twice."""
    name = shown(getattr(file, "name", "sound data"))
    data = file.read(MAX_BYTES + 1)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise UserError(f"{name}: was opened as text; open it with mode 'rb'")
    return SoundData(data, name)


def is_container(head: bytes) -> bool:
    """Whether bytes begin as a sound file does, rather than as samples."""
    return head.startswith(MAGIC) or head[4:8] == b"ftyp" or head.startswith(b"\xff\xfb")


def _reason(error: soundfile.LibsndfileError) -> str:
    return shown(error.error_string.rstrip("."))
