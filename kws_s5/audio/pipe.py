"""Sound from a pipe that nobody can rewind: wav by its header, raw samples as the caller says, the rest through ffmpeg.

    pipe = open_pipe(sys.stdin.buffer)                      # ffmpeg -i anything -f wav - | ...
    pipe = open_pipe(sys.stdin.buffer, RawFormat(16000, "s16le", 1))       # arecord -t raw -f S16_LE -r 16000 | ...
    for block in pipe.blocks: ...                           # (l, C) float32, as soon as it is there

Sizes in the header of a piped wav are never true (nobody knows the end yet), so the sound goes on to the pipe's end.
Memory is constant. Legend: l samples of a block, C channels.
"""

import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np

from kws_s5.audio.samples import MAX_CHANNELS, checked_rate
from kws_s5.errors import UserError

BLOCK = 0.08  # seconds
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE  # format codes of wav
MOST_HEADER = 1 << 20  # bytes before the samples
FORMATS = {
    "u8": (1, "unsigned"),
    "s8": (1, "signed"),
    "s16le": (2, "signed"),
    "s24le": (3, "signed"),
    "s32le": (4, "signed"),
    "f32le": (4, "float"),
    "f64le": (8, "float"),
}  # ffmpeg's names: bytes, kind
CONTAINERS = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"ID3": "mp3",
    b"\xff\xfb": "mp3",
    b"\xff\xf3": "mp3",
    b"\xff\xf2": "mp3",
    b"\x1aE\xdf\xa3": "webm",
    b"FORM": "aiff",
    b"#!AM": "amr",
}


@dataclass(frozen=True)
class RawFormat:
    """Samples without a header."""

    rate: float  # Hz
    format: str = "s16le"
    channels: int = 1

    def __post_init__(self) -> None:
        checked_rate(self.rate, "--rate")
        if self.format not in FORMATS:
            raise UserError(f"--format {self.format!r}: one of {', '.join(FORMATS)}")
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise UserError(f"--channels {self.channels}: 1 to {MAX_CHANNELS}")


@dataclass(frozen=True)
class Pipe:
    """An open pipe."""

    rate: float  # Hz
    channels: int
    blocks: Iterator[np.ndarray]  # (l, C) float32


def open_pipe(stream: BinaryIO, raw: RawFormat | None = None, *, seconds: float = BLOCK) -> Pipe:
    """Reads what is needed to know the format. Raises UserError where that is not told, or not sound.

    Args:
        raw: the format of samples without a header; None: a header tells.
        seconds: of sound in a block.
    """
    if raw is None:
        stream, raw = _described(stream)
    width, kind = FORMATS[raw.format]
    size = max(1, round(seconds * raw.rate)) * width * raw.channels
    return Pipe(raw.rate, raw.channels, _blocks(stream, size, width, kind, raw.channels))


def _blocks(stream: BinaryIO, size: int, width: int, kind: str, channels: int) -> Iterator[np.ndarray]:
    rest, frame = b"", width * channels
    while piece := _read(stream, size - len(rest)):
        data = rest + piece
        whole = len(data) - len(data) % frame
        rest = data[whole:]
        if whole:
            yield _samples(data[:whole], width, kind).reshape(-1, channels)


def _samples(data: bytes, width: int, kind: str) -> np.ndarray:
    """Little-endian samples -> float32 in [-1, 1)."""
    if kind == "float":
        return np.frombuffer(data, f"<f{width}").astype(np.float32)
    bytes_ = np.frombuffer(data, np.uint8).reshape(-1, width)
    wide = np.zeros((len(bytes_), 4), np.uint8)
    wide[:, 4 - width :] = bytes_ ^ 0x80 if kind == "unsigned" else bytes_
    return (wide.view("<i4")[:, 0] / np.float64(1 << 31)).astype(np.float32)


def _read(stream: BinaryIO, n: int) -> bytes:
    """Up to n bytes, as soon as there are any."""
    read = getattr(stream, "read1", stream.read)
    return read(n) or b""


def _exactly(stream: BinaryIO, n: int) -> bytes:
    """n bytes, fewer only at the end."""
    data = b""
    while len(data) < n and (piece := _read(stream, n - len(data))):
        data += piece
    return data


def _described(stream: BinaryIO) -> tuple[BinaryIO, RawFormat]:
    """What the first bytes say: the stream behind the header, and its format."""
    head = _exactly(stream, 12)
    if not head:
        raise UserError("standard input: is empty; pipe sound into it, for example ffmpeg -i FILE -f wav - | ...")
    if head[:4] in (b"RIFF", b"RF64") and head[8:] == b"WAVE":
        return stream, _wav_format(stream)
    name = next((name for start, name in CONTAINERS.items() if head.startswith(start)), "")
    name = "mp4" if head[4:8] == b"ftyp" else name
    if not name:
        raise UserError(
            "standard input: no wav and no other sound that is known; samples without a header need --rate "
            "(and --format, --channels)"
        )
    return _through_ffmpeg(head, stream, name)


def _wav_format(stream: BinaryIO) -> RawFormat:
    """Chunks up to the samples. Raises UserError for what is no PCM."""
    form, seen = None, 0
    while seen < MOST_HEADER:
        head = _exactly(stream, 8)
        if len(head) < 8:
            break
        name, size = head[:4], struct.unpack("<I", head[4:])[0]
        if name == b"data" and form is not None:
            return form
        if size > MOST_HEADER:
            break
        body = _exactly(stream, size + size % 2)
        seen += len(body) + 8
        if name == b"fmt " and len(body) >= 16:
            code, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
            if code == EXTENSIBLE and len(body) >= 26:
                code = struct.unpack("<H", body[24:26])[0]
            form = RawFormat(checked_rate(rate, "standard input"), _named(code, bits), channels)
    raise UserError("standard input: a wav header without samples behind it")


def _named(code: int, bits: int) -> str:
    for name, (width, kind) in FORMATS.items():
        signed = "unsigned" if bits == 8 else "signed"
        if bits == 8 * width and ((code == PCM and kind == signed) or (code == FLOAT and kind == "float")):
            return name
    raise UserError(
        f"standard input: a wav of format {code} with {bits} bits; pipe PCM, for example from ffmpeg -i FILE -f wav -"
    )


def _through_ffmpeg(head: bytes, stream: BinaryIO, name: str) -> tuple[BinaryIO, RawFormat]:
    """An installed ffmpeg decodes; it is asked for wav, whose header tells the rate."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise UserError(
            f"standard input: {name}, which needs ffmpeg to be read from a pipe; install ffmpeg, or give "
            "the file itself"
        )
    command = [
        program,
        "-nostdin",
        "-v",
        "error",
        "-protocol_whitelist",
        "pipe",
        "-i",
        "pipe:0",
        "-vn",
        "-f",
        "wav",
        "-c:a",
        "pcm_f32le",
        "pipe:1",
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    threading.Thread(target=_feed, args=(process, head, stream), daemon=True).start()
    assert process.stdout is not None
    out = cast(BinaryIO, process.stdout)
    start = _exactly(out, 12)
    if start[:4] != b"RIFF":
        raise UserError(f"standard input: looks like {name}, but ffmpeg finds no sound in it")
    return out, _wav_format(out)


def _feed(process: Any, head: bytes, stream: BinaryIO) -> None:
    """Everything that comes in to ffmpeg, on a thread of its own: both pipes would wait for each other otherwise."""
    try:
        process.stdin.write(head)
        while piece := _read(stream, 1 << 16):
            process.stdin.write(piece)
        process.stdin.close()
    except (OSError, ValueError):  # ffmpeg has ended
        pass
