"""The front door for sound: a file, file object or array with its rate -> mono float32 waveform and its rate.

    load_audio("yes.wav")          load_audio(array, rate=44100)          for block in audio_blocks("hour.flac"): ...

Formats are those of soundfile (wav, flac, ogg, mp3, aiff, au, ...; no FFmpeg). The rate stays the file's own, the level
is never changed, and a file that is not whole is an error, not a shorter recording. Legend: L samples, C channels.
"""

import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from kws_s5.atomic import replacing
from kws_s5.audio.resample import Quality, StreamResampler, decimate, resample
from kws_s5.audio.samples import MAX_CHANNELS, checked_level, checked_rate, downmix, mono, shown
from kws_s5.errors import UserError

__all__ = [
    "SUFFIXES", "Audio", "AudioInfo", "StreamResampler", "audio_blocks", "audio_info", "decimate", "load_audio", "mono",
    "resample", "save_wav", "to_rate",
]

# what is taken for a recording when a folder is read; load_audio itself looks at the content
SUFFIXES = frozenset({".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au",
                      ".snd", ".caf", ".w64", ".rf64", ".nist", ".sph", ".voc"})
MAX_SAMPLES = 120_000_000  # of one waveform in memory (480 MB; 125 minutes at 16 kHz); longer files: audio_blocks
MAX_BYTES = 1 << 30  # read from a file object
BLOCK = 1 << 19  # samples of all channels decoded at a time
UNKNOWN_LENGTH = 0x7FFF0000  # headers written into a pipe claim this many bytes or more: the length is not known
NO_LENGTH = 1 << 62  # number of samples that libsndfile gives for a flac header without one
CLAIM = re.compile(r"^\s*(?:data|SSND|Data Size|riff)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Audio:
    """A mono recording."""

    waveform: np.ndarray  # (L,) float32
    rate: float  # Hz
    channels: int = 1  # of the source, before they were averaged

    @property
    def seconds(self) -> float:
        return len(self.waveform) / self.rate


@dataclass(frozen=True)
class AudioInfo:
    """What the header of a file says."""

    rate: float  # Hz
    channels: int
    n_samples: int  # per channel
    format: str  # in words

    @property
    def seconds(self) -> float:
        return self.n_samples / self.rate


def load_audio(source: Any, rate: float | None = None) -> Audio:
    """One recording, whole, in memory.

    Args:
        source: path, binary file object, bytes of a sound file, or an array, tensor or list of samples
            ((L,), (L, C) or (C, L); integers are divided by their full scale, floats are taken as they are).
        rate: Hz. Needed for arrays. For files it is a check: another rate is an error, never a resampling.

    Raises:
        UserError: anything that is not a whole recording of 2-192 kHz; the line names the file and the mend.
    """
    if not isinstance(source, (str, os.PathLike, bytes)) and not hasattr(source, "read"):
        if rate is None:
            raise UserError("array: samples without their rate; give it in Hz: load_audio(array, rate=...)")
        rate = checked_rate(rate, "array")
        waveform = mono(source)
        if not len(waveform):
            raise UserError("array: holds no samples; give a recording")
        return Audio(np.ascontiguousarray(waveform), rate)
    with _opened(source) as (file, name):
        if rate is not None and rate != file.samplerate:
            raise UserError(f"{name}: is {file.samplerate} Hz, not {rate:g} Hz; leave the rate out, or convert with "
                            "to_rate() (nothing is resampled silently)")
        blocks = list(_decoded(file, name, max(1, BLOCK // file.channels), limit=MAX_SAMPLES))
        return Audio(blocks[0] if len(blocks) == 1 else np.concatenate(blocks), file.samplerate, file.channels)


def audio_blocks(source: Any, seconds: float = 1.0) -> Iterator[Audio]:
    """A file of any length in constant memory: blocks of ``seconds`` (the last one shorter), all at the file's rate."""
    with _opened(source) as (file, name):
        for waveform in _decoded(file, name, max(1, round(seconds * file.samplerate))):
            yield Audio(waveform, file.samplerate, file.channels)


def audio_info(source: Any) -> AudioInfo:
    """Rate, channels and length by the header alone."""
    with _opened(source) as (file, _):
        return AudioInfo(file.samplerate, file.channels, file.frames, file.format_info)


def to_rate(audio: Audio, target: float, *, method: str = "soxr", quality: Quality = "HQ") -> Audio:
    """``audio`` at ``target`` Hz by ``method`` "soxr" (band-limited) or "decimate" (plain, whole ratios only)."""
    if method == "decimate":
        if (audio.rate / target) % 1:
            raise UserError(f"decimate from {audio.rate:g} to {target:g} Hz: not a whole ratio; use the soxr resampler")
        return Audio(decimate(audio.waveform, audio.rate / target), target)
    if method != "soxr":
        raise UserError(f"resampler {method!r}: must be one of soxr, decimate")
    return Audio(resample(audio.waveform, audio.rate, target, quality), checked_rate(target))


def save_wav(path: str | os.PathLike[str], waveform: Any, rate: float, *, subtype: str = "PCM_16") -> None:
    """Writes a mono wav file, whole or not at all. PCM_16 rounds to 1/32768 and clips; subtype "FLOAT" keeps all."""
    rate = checked_rate(rate, shown(path))
    if rate != int(rate):
        raise UserError(f"{shown(path)}: wav files hold whole rates only, not {rate:g} Hz; resample first")
    samples = mono(waveform, where=shown(path))
    if subtype == "PCM_16":  # the inverse of the front door, so that 16-bit sound survives a round trip exactly
        samples = np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)
    with replacing(path) as temporary:
        soundfile.write(os.fspath(temporary), samples, int(rate), subtype=subtype, format="WAV")


class _Bytes(io.BytesIO):
    """Bytes of a sound file. A seek outside of them (damaged headers ask for it) changes nothing, instead of raising an
    error inside libsndfile's callback, where nobody can catch it."""

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return self.tell()


class _Forward(soundfile.SoundFile):
    """Read from start to end only. soundfile seeks after every read, which spoils mp3 files at each seam and fails in
    flac files without a length in the header."""

    def seekable(self) -> bool:
        return False


@contextmanager
def _opened(source: Any) -> Iterator[tuple[soundfile.SoundFile, str]]:
    """An open, checked SoundFile and its printable name; what libsndfile dislikes becomes a UserError."""
    raw, name = _raw(source)
    try:
        # by descriptor, so that neither the file's name (non-UTF-8) nor its suffix (.raw) steers the decoder
        handle = raw.fileno() if isinstance(raw, io.FileIO) and sys.platform != "win32" else raw
        with _Forward(handle, closefd=False) as file:
            _check_header(file, name)
            yield file, name
    except soundfile.LibsndfileError as error:
        size = os.fstat(raw.fileno()).st_size if isinstance(raw, io.FileIO) else len(raw.getbuffer())
        reason = "is empty (0 bytes)" if not size else f"cannot be read as sound ({error.error_string.rstrip('.')})"
        raise UserError(f"{name}: {reason}; get the file again, or convert it to wav or flac") from error
    finally:
        raw.close()


def _raw(source: Any) -> tuple[io.FileIO | _Bytes, str]:
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
    name = shown(getattr(source, "name", "sound data"))
    data = source if isinstance(source, bytes) else source.read(MAX_BYTES + 1)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise UserError(f"{name}: was opened as text; open it with mode 'rb'")
    if len(data) > MAX_BYTES:
        raise UserError(f"{name}: more than {MAX_BYTES >> 20} MB; save it to disk and give the path")
    return _Bytes(data), name


def _check_header(file: soundfile.SoundFile, name: str) -> None:
    checked_rate(file.samplerate, name)
    if not 1 <= file.channels <= MAX_CHANNELS:
        raise UserError(f"{name}: has {file.channels} channels; at most {MAX_CHANNELS} can be mixed down")
    for claimed, found in CLAIM.findall(file.extra_info):
        if int(found) + 8 < int(claimed) < UNKNOWN_LENGTH:
            raise UserError(f"{name}: is cut short, {found} of {claimed} bytes are there; get the file again")
    if file.frames <= 0:
        raise UserError(f"{name}: holds no sound (0 samples); record it again or remove it")


def _decoded(file: soundfile.SoundFile, name: str, block: int, *, limit: int | None = None) -> Iterator[np.ndarray]:
    """Checked mono blocks (block,) float32 up to the end that the header promises, or to the end where it does not."""
    done, promised = 0, file.frames
    while done < promised:
        x = file.read(min(block, promised - done), dtype="float32", always_2d=True)  # (block, C)
        done += len(x)
        if not len(x) and promised >= NO_LENGTH and done:
            return
        if not len(x):
            raise UserError(f"{name}: is cut short, {done} of {promised} samples are there; get the file again")
        if limit is not None and done > limit:
            raise UserError(f"{name}: longer than {limit} samples, too long to hold in memory; cut it, or read it in "
                            "blocks (audio_blocks)")
        yield checked_level(downmix(x), name)
