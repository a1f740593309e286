"""Sound from pipes equals the same sound from files, in every format, however the bytes arrive."""

import io
import shutil
import struct
import subprocess

import numpy as np
import pytest
import soundfile

from kws_s5.audio.pipe import FORMATS, RawFormat, open_pipe
from kws_s5.errors import UserError

RATE = 16000


class Dripping(io.RawIOBase):
    """A pipe that gives a few bytes at a time, and cannot seek."""

    def __init__(self, data: bytes, n: int) -> None:
        self._data, self._n = io.BytesIO(data), n

    def read1(self, n: int = -1) -> bytes:
        return self._data.read(min(n, self._n))

    def seek(self, *arguments: int) -> int:
        raise OSError("a pipe")


def stereo(seconds: float = 0.5) -> np.ndarray:
    t = np.arange(round(seconds * RATE)) / RATE
    return np.stack([0.5 * np.sin(2 * np.pi * 440 * t), 0.25 * np.cos(2 * np.pi * 100 * t)], 1)


def wav(subtype: str) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, stereo(), RATE, subtype=subtype, format="WAV")
    return out.getvalue()


def everything(stream, raw: RawFormat | None = None) -> np.ndarray:
    return np.concatenate(list(open_pipe(stream, raw).blocks))


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("n", [1, 7, 1 << 20])
def test_a_wav_from_a_pipe_equals_the_file(subtype: str, n: int) -> None:
    data = wav(subtype)
    want, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    np.testing.assert_allclose(everything(Dripping(data, n)), want, atol=1e-7)


@pytest.mark.parametrize("size", [0, 36, 0xFFFFFFFF, 0x7FFFFFFF])
def test_sizes_in_the_header_of_a_piped_wav_are_not_believed(size: int) -> None:
    data = bytearray(wav("PCM_16"))
    at = data.index(b"data") + 4
    data[4:8] = data[at : at + 4] = struct.pack("<I", size)
    assert len(everything(Dripping(bytes(data), 4096))) == RATE // 2


def test_chunks_before_the_samples_are_passed_over() -> None:
    data = wav("PCM_16")
    at = data.index(b"data")
    listed = data[:at] + b"LIST" + struct.pack("<I", 5) + b"hello\0" + data[at:]
    np.testing.assert_array_equal(everything(Dripping(listed, 64)), everything(Dripping(data, 64)))


@pytest.mark.parametrize("name", FORMATS)
def test_raw_samples_of_every_format_have_full_scale_1(name: str) -> None:
    width, kind = FORMATS[name]
    signed = [-(1 << (8 * width - 1)), 1 << (8 * width - 2)]
    values = {"signed": signed, "unsigned": [0, 192], "float": [-1.0, 0.5]}[kind]
    if kind == "float":
        data = np.array(values, f"<f{width}").tobytes()
    else:
        data = b"".join(v.to_bytes(width, "little", signed=kind == "signed") for v in values)
    got = everything(io.BytesIO(data), RawFormat(RATE, name, 2))
    np.testing.assert_array_equal(got, [[-1.0, 0.5]])


def test_a_last_sample_that_is_cut_off_is_left_out() -> None:
    assert len(everything(io.BytesIO(b"\0" * 9), RawFormat(RATE, "s16le", 2))) == 2


def test_blocks_come_as_soon_as_there_is_sound() -> None:
    pipe = open_pipe(Dripping(b"\0" * 640, 320), RawFormat(RATE))
    assert len(next(pipe.blocks)) == 160  # not the 1,280 samples of a whole block


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"hello, this is no sound", "need --rate"),
        (b"RIFF\0\0\0\0WAVE", "without samples"),
        (b"RIFF\0\0\0\0WAVE" + b"junk" + struct.pack("<I", 1 << 31), "without samples"),
        (
            b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 17, 1, 16000, 16000, 1, 4) + b"data\0\0\0\0",
            "format 17",
        ),
    ],
)
def test_what_is_no_sound_is_one_line(data: bytes, what: str) -> None:
    with pytest.raises(UserError, match=what):
        open_pipe(Dripping(data, 5))


@pytest.mark.parametrize("options", [{"rate": 100}, {"format": "s16be"}, {"channels": 0}, {"channels": 1000}])
def test_raw_formats_that_cannot_be_are_refused(options: dict) -> None:
    with pytest.raises(UserError):
        RawFormat(**{"rate": 16000} | options)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg here")
@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        ("flac", []),
        ("mp3", []),
        ("ogg", []),
        ("webm", ["-c:a", "libopus"]),
        ("m4a", ["-movflags", "frag_keyframe+empty_moov"]),
    ],
)
def test_other_formats_come_through_an_installed_ffmpeg(tmp_path, suffix: str, options: list[str]) -> None:
    (tmp_path / "a.wav").write_bytes(wav("PCM_16"))
    made = tmp_path / f"a.{suffix}"
    subprocess.run(["ffmpeg", "-v", "error", "-i", tmp_path / "a.wav", *options, made], check=True)
    pipe = open_pipe(Dripping(made.read_bytes(), 1000))
    n = sum(len(block) for block in pipe.blocks)
    assert pipe.channels == 2 and n / pipe.rate == pytest.approx(0.5, abs=0.1)


def test_without_ffmpeg_one_line_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="install ffmpeg"):
        open_pipe(Dripping(b"OggS" + b"\0" * 100, 50))
