"""The front door for sound: a file, file object or array with its rate -> mono float32 waveform and its rate.

    load_audio("yes.wav")          load_audio(array, rate=44100)          for block in audio_blocks("hour.flac"): ...

Formats are those of soundfile (wav, flac, ogg, mp3, aiff, au, ...), and with an installed ffmpeg also m4a, webm and the
like. The rate stays the file's own, the level is never changed, and a file that is not whole is an error, not a shorter
recording: audio_blocks gives what is there before it says so. Legend: L samples, C channels.
"""

import io
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile

from kws_s5.atomic import replacing
from kws_s5.audio.channels import SEGMENT, Balance, downmix
from kws_s5.audio.decoder import SoundData, is_container, opened, read_all
from kws_s5.audio.resample import Quality, StreamResampler, decimate, resample
from kws_s5.audio.samples import as_channels, checked_rate, mono, shown, typed
from kws_s5.errors import UserError

__all__ = [
    "SUFFIXES",
    "Audio",
    "AudioInfo",
    "StreamResampler",
    "audio_blocks",
    "audio_info",
    "decimate",
    "load_audio",
    "mono",
    "resample",
    "save_wav",
    "to_rate",
]

# what is taken for a recording when a folder is read; load_audio itself looks at the content
SUFFIXES = frozenset(
    {
        ".wav",
        ".wave",
        ".flac",
        ".ogg",
        ".oga",
        ".opus",
        ".mp3",
        ".aif",
        ".aiff",
        ".aifc",
        ".au",
        ".snd",
        ".caf",
        ".w64",
        ".rf64",
        ".nist",
        ".sph",
        ".voc",
    }
)
MAX_SAMPLES = 120_000_000  # of one waveform in memory (480 MB; 125 minutes at 16 kHz); longer files: audio_blocks
BLOCK = 1 << 19  # samples of all channels decoded at a time
Tell = Callable[[str], None]  # takes a note


@dataclass(frozen=True)
class Audio:
    """A mono recording."""

    waveform: np.ndarray  # (L,) float32
    rate: float  # Hz
    channels: int = 1  # of the source, before they became one
    notes: tuple[str, ...] = ()  # what the user should know about the file, though it is whole

    @property
    def seconds(self) -> float:
        return len(self.waveform) / self.rate


@dataclass(frozen=True)
class AudioInfo:
    """What a file holds, without decoding it."""

    rate: float  # Hz
    channels: int
    n_samples: int  # per channel; 0: not known (files that ffmpeg reads)
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
    source, rate = _of_row(source, rate)
    if not _is_file(source, rate):
        if rate is None:
            raise UserError("array: samples without their rate; give it in Hz: load_audio(array, rate=...)")
        rate = checked_rate(rate, "array")
        x = as_channels(source)
        if not len(x):
            raise UserError("array: holds no samples; give a recording")
        balance = Balance(x.shape[1])
        if x.shape[1] > 1:
            balance.push(x)
        return Audio(np.ascontiguousarray(_downmixed(x, balance)), rate, x.shape[1], _notes(balance))
    if hasattr(source, "read"):
        source = read_all(source)
    notes: list[str] = []
    weights = _weights(source, notes.append)
    with opened(source) as sound:
        if rate is not None and rate != sound.rate:
            raise UserError(
                f"{sound.name}: is {sound.rate} Hz, not {rate:g} Hz; leave the rate out, or convert with "
                "to_rate() (nothing is resampled silently)"
            )
        blocks, done = [], 0
        for x in sound.blocks(max(1, BLOCK // sound.channels)):
            done += len(x)
            if done > MAX_SAMPLES:
                raise UserError(
                    f"{sound.name}: longer than {MAX_SAMPLES} samples, too long to hold in memory; cut it, "
                    "or read it in blocks (audio_blocks)"
                )
            blocks.append(downmix(x, weights))
        waveform = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        return Audio(waveform, sound.rate, sound.channels, (*sound.notes, *notes))


def audio_blocks(source: Any, seconds: float = 1.0, tell: Tell | None = None) -> Iterator[Audio]:
    """A file of any length in constant memory: blocks of ``seconds`` (the last one shorter), all at the file's rate.

    A file that is not whole raises UserError after the last block that can be read. ``tell`` takes notes about it.
    """
    if hasattr(source, "read"):
        source = read_all(source)
    weights = _weights(source, tell)
    with opened(source) as sound:
        for x in sound.blocks(max(1, round(seconds * sound.rate))):
            yield Audio(downmix(x, weights), sound.rate, sound.channels)
        if tell is not None:
            for note in sound.notes:
                tell(note)


def audio_info(source: Any) -> AudioInfo:
    """Rate, channels and length, without decoding."""
    with opened(source) as sound:
        return AudioInfo(sound.rate, sound.channels, sound.length(), sound.format)


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
    with replacing(path) as temporary, open(temporary, "wb") as file:
        try:  # by Python: names may be no UTF-8, and the system's errors (a full disk) keep their words
            data = io.BytesIO()
            soundfile.write(data, samples, int(rate), subtype=subtype, format="WAV")
            file.write(data.getbuffer())
            file.flush()
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from error


def _of_row(source: Any, rate: float | None) -> tuple[Any, float | None]:
    """A row of a Hugging Face data set -> what holds its sound, and the rate where that is an array."""
    if not isinstance(source, Mapping):
        return source, rate
    if isinstance(source.get("audio"), Mapping):
        source = source["audio"]
    if source.get("array") is not None and source.get("sampling_rate") is not None:
        if rate is not None and rate != source["sampling_rate"]:
            raise UserError(
                f"array: is {source['sampling_rate']} Hz, not {rate:g} Hz; leave the rate out, or convert "
                "with to_rate()"
            )
        return source["array"], source["sampling_rate"]
    if isinstance(source.get("bytes"), (bytes, bytearray, memoryview)):
        return source["bytes"], rate
    if isinstance(source.get("path"), (str, os.PathLike)):
        return source["path"], rate
    keys = shown(", ".join(map(str, list(source)[:8])))
    raise UserError(f"array: a dict of {keys} holds no sound; give array and sampling_rate, bytes or path")


def _is_file(source: Any, rate: float | None) -> bool:
    """Whether ``source`` is a file, rather than samples. Bytes beside a rate may be either: their first ones tell."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return not typed(source) and (rate is None or is_container(bytes(memoryview(source)[:64])))
    return isinstance(source, (str, os.PathLike, SoundData)) or hasattr(source, "read")


def _weights(source: Any, tell: Tell | None) -> np.ndarray | None:
    """(C,) of the channels, by the whole recording, which is read once for that; None: there is one channel."""
    with opened(source) as sound:
        if sound.channels == 1:
            return None
        balance = Balance(sound.channels)
        try:
            for x in sound.blocks(SEGMENT * max(1, BLOCK // SEGMENT // sound.channels)):
                balance.push(x)
        except UserError:
            pass  # told by whoever reads it for its sound
        if tell is not None:
            for note in _notes(balance):
                tell(f"{sound.name}: {note}")
        return balance.weights()


def _notes(balance: Balance) -> tuple[str, ...]:
    return (balance.note(),) if balance.note() else ()


def _downmixed(x: np.ndarray, balance: Balance) -> np.ndarray:
    return downmix(x, balance.weights()) if x.shape[1] > 1 else x[:, 0]
