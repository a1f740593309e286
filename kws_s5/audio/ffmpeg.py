"""Formats that soundfile does not know (m4a, webm, wma, amr, ...), read through an installed ffmpeg.

ffmpeg runs as a process of its own, without a shell, with the container named by us: a file can name neither other
files (playlists) nor addresses. Sound comes through a pipe, so hours take no more memory than seconds.
"""

import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np

from kws_s5.errors import UserError

# bytes at an offset -> (ffmpeg's name of the container, name in words)
KINDS = (
    (4, b"ftyp", "mov", "MPEG-4 (m4a, mp4, mov, 3gp)"),
    (4, b"moov", "mov", "QuickTime (mov)"),
    (4, b"mdat", "mov", "QuickTime (mov)"),
    (4, b"wide", "mov", "QuickTime (mov)"),
    (0, b"\x1a\x45\xdf\xa3", "matroska", "Matroska (webm, mkv)"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf", "ASF (wma)"),
    (0, b"#!AMR", "amr", "AMR"),
    (0, b"FLV\x01", "flv", "Flash video"),
    (0, b"wvpk", "wv", "WavPack"),
    (0, b"MAC ", "ape", "Monkey's Audio"),
    (0, b"TTA1", "tta", "True Audio"),
    (0, b"\x0b\x77", "ac3", "AC-3"),
    (0, b"ADIF", "aac", "AAC"),
    (0, b"\xff\xf1", "aac", "AAC"),
    (0, b"\xff\xf9", "aac", "AAC"),
    (0, b".RMF", "rm", "RealMedia"),
    (0, b"\x00\x00\x01\xba", "mpeg", "MPEG program stream"),
)
# what soundfile knows, but not with every codec in it
SHARED = ((0, b"OggS", "ogg"), (0, b"caff", "caf"), (8, b"AIFC", "aiff"), (8, b"WAVE", "wav"), (0, b"fLaC", "flac"))
# suffixes a folder of recordings may hold beside those of soundfile
SUFFIXES = frozenset(
    {
        ".m4a",
        ".mp4",
        ".m4b",
        ".mov",
        ".3gp",
        ".3g2",
        ".aac",
        ".webm",
        ".weba",
        ".mkv",
        ".mka",
        ".wma",
        ".asf",
        ".amr",
        ".awb",
        ".flv",
        ".avi",
        ".ts",
        ".wv",
        ".ape",
        ".tta",
        ".ac3",
        ".mp2",
        ".spx",
        ".ogv",
        ".ra",
        ".rm",
    }
)
STALL = 60.0  # seconds without a sample after which ffmpeg is ended
MAX_ALLOCATION = 256 << 20  # bytes of a single allocation in ffmpeg
TOLD = 4000  # bytes of ffmpeg's complaints that are kept


def kind_of(head: bytes) -> tuple[str, str] | None:
    """ffmpeg's name and ours for a file that begins with ``head``; None: it is soundfile's, or no sound."""
    for at, magic, name, words in KINDS:
        if head[at : at + len(magic)] == magic:
            return name, words
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi", "AVI"
    if head[:1] == b"\x47" and head[188:189] == b"\x47" and head[376:377] == b"\x47":
        return "mpegts", "MPEG transport stream"
    return None


def shared_kind(head: bytes) -> str:
    """ffmpeg's name of a container that soundfile knows too; empty: none of them."""
    return next((name for at, magic, name in SHARED if head[at : at + len(magic)] == magic), "")


def installed() -> str:
    """The path of ffmpeg; empty: there is none."""
    return shutil.which("ffmpeg") or ""


class Decoding:
    """A running ffmpeg: rate, channels, and samples until the end."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process, self._name = process, name
        self._said = bytearray()
        self._listener = threading.Thread(target=self._listen, args=(process.stderr,), daemon=True)
        self._listener.start()
        self.stalled = False
        head = self._take(24)
        if len(head) < 24 or head[:4] != b".snd":
            raise UserError(
                f"{name}: cannot be read as sound by ffmpeg ({self.said() or 'it holds no sound'}); get the file again"
            )
        offset, _, _, self.rate, self.channels = struct.unpack(">IIIII", head[4:])
        self._take(offset - 24)

    def read(self, n: int) -> np.ndarray:
        """Up to n samples (l, C) float32; none at the end."""
        frame = 4 * self.channels
        data = self._take(n * frame)
        return np.frombuffer(data[: len(data) - len(data) % frame], ">f4").astype(np.float32).reshape(-1, self.channels)

    def fault(self) -> str:
        """At the end: what ffmpeg could not read; empty: nothing."""
        status = self._process.wait()
        if self.stalled:
            return f"ffmpeg gave nothing for {STALL:.0f} seconds"
        said = self.said()
        return f"ffmpeg: {said or f'ended with status {status}'}" if status or said else ""

    def said(self) -> str:
        """The first line of ffmpeg's complaints."""
        self._process.wait()
        self._listener.join(5.0)
        lines = [line for line in self._said.decode(errors="replace").splitlines() if line.strip()]
        return lines[0].rsplit("] ", 1)[-1].strip()[:200] if lines else ""

    def _take(self, n: int) -> bytes:
        watch = threading.Timer(STALL, self._end)
        watch.daemon = True
        watch.start()
        try:
            assert self._process.stdout
            return self._process.stdout.read(n)
        finally:
            watch.cancel()

    def _end(self) -> None:
        self.stalled = True
        self._process.kill()

    def _listen(self, stream: IO[bytes]) -> None:
        while part := stream.read1(4096):  # type: ignore[attr-defined]
            if len(self._said) < TOLD:
                self._said += part


@contextmanager
def decoding(path: str | bytes | os.PathLike, container: str, name: str) -> Iterator[Decoding]:
    """The sound of a file, by ffmpeg's demuxer ``container``. Raises UserError with the file's printable name."""
    command = [
        installed(),
        "-nostdin",
        "-hide_banner",
        "-v",
        "error",
        "-max_alloc",
        str(MAX_ALLOCATION),
        "-threads",
        "1",
        "-protocol_whitelist",
        "file,pipe",
        "-f",
        container,
        "-i",
        "file:" + os.path.abspath(os.fsdecode(path)),
        "-map",
        "0:a:0",
        "-vn",
        "-sn",
        "-dn",
        "-map_metadata",
        "-1",
        "-c:a",
        "pcm_f32be",
        "-threads",
        "1",
        "-f",
        "au",
        "pipe:1",
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield Decoding(process, name)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
