"""Sound is read to the end of the file: headers that lie, streams that are chained or joined, files that are cut."""

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from kws_s5.audio import ffmpeg
from kws_s5.audio.files import audio_blocks, audio_info, load_audio
from kws_s5.errors import UserError

RATE = 16000


def sweep(n: int = 30_000, rate: int = RATE) -> np.ndarray:
    """A tone whose pitch rises: every moment differs from every other."""
    t = np.arange(n) / rate
    return (0.4 * np.sin(2 * np.pi * (200 * t + 150 * t * t))).astype(np.float32)


def encoded(format: str, subtype: str | None = None, x: np.ndarray | None = None, rate: int = RATE) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, sweep() if x is None else x, rate, format=format, subtype=subtype)
    return buffer.getvalue()


def wav(
    size: int | None = None,
    *,
    x: np.ndarray | None = None,
    bits: int = 16,
    channels: int = 1,
    tail: bytes = b"",
    head: bytes = b"",
) -> bytes:
    """A wav file written by hand, whose size field may lie."""
    x = np.repeat((sweep() if x is None else x)[:, None], channels, 1)
    whole = np.rint(x.astype(np.float64) * (2 ** (bits - 1) - 1)).astype("<i4")
    sound = (
        whole.tobytes()
        if bits == 32
        else whole.astype("<i2").tobytes()
        if bits == 16
        else np.ascontiguousarray(whole.view("u1").reshape(-1, 4)[:, :3]).tobytes()
    )
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", 1, channels, RATE, RATE * frame, frame, bits)
    n = len(sound) if size is None else size
    return (
        b"RIFF"
        + struct.pack("<I", (36 + n) & 0xFFFFFFFF)
        + b"WAVE"
        + head
        + b"fmt \x10\0\0\0"
        + fmt
        + b"data"
        + struct.pack("<I", n & 0xFFFFFFFF)
        + sound
        + tail
    )


def blocks_of(source: object) -> tuple[np.ndarray, str, list[str]]:
    """All that can be read of a file, the error at its end, and the notes."""
    parts, notes, error = [np.zeros(0, np.float32)], [], ""
    try:
        for block in audio_blocks(source, 0.3, notes.append):
            parts.append(block.waveform)
    except UserError as problem:
        error = str(problem)
    return np.concatenate(parts), error, notes


@pytest.mark.parametrize(("bits", "channels"), [(16, 1), (24, 2), (32, 6)])
@pytest.mark.parametrize("size", ["zero", "half", "wrapped", "plus 16", "plus 44", "unknown", "streaming"])
@pytest.mark.parametrize("tail", [b"", b"LIST\x04\0\0\0INFO"])
def test_wav_is_read_to_its_end_whatever_its_size_field_says(size: str, bits: int, channels: int, tail: bytes) -> None:
    n = 30_000 * channels * bits // 8
    field = {
        "zero": 0,
        "half": n // 2 // (channels * bits) * channels * bits,
        "wrapped": 1234 * channels * bits,
        "plus 16": n + 16,
        "plus 44": n + 44,
        "unknown": 0xFFFFFFFF,
        "streaming": 0x7FFFFFFF,
    }[size]
    if tail and field >= n:
        pytest.skip("a size that covers the tail makes it sound")
    x, error, notes = blocks_of(wav(field, bits=bits, channels=channels, tail=tail))
    assert error == "" and len(x) - 30_000 <= len(tail) and np.abs(x[:30_000] - sweep()).max() < 1e-4
    assert (size in ("half", "wrapped")) == bool(notes) and "\n" not in "".join(notes)


@pytest.mark.parametrize(
    "tail",
    [
        b"LIST\x04\0\0\0INFO",
        b"id3 \x02\0\0\0ab",
        b"bext\x08\0\0\0abcdefgh" * 3,
        b"TAG" + bytes(125),
        b"ID3\x04" + bytes(40),
    ],
)
def test_chunks_and_tags_behind_the_sound_are_not_heard(tail: bytes) -> None:
    assert len(load_audio(wav(tail=tail)).waveform) == 30_000 and load_audio(wav(tail=tail)).notes == ()


def test_wav_of_more_than_four_gigabytes_is_heard_where_its_size_wrapped(tmp_path: Path) -> None:
    """A sparse file: the sound at its start and 4.3 GB later."""
    head, sound = wav()[:44], wav()[44:]
    at = (1 << 32) + 1_000_000
    for name, size in (("wrapped.wav", at + len(sound)), ("zero.wav", 0), ("unknown.wav", 0xFFFFFFFF)):
        with open(tmp_path / name, "wb") as file:
            file.write(head[:40] + struct.pack("<I", size & 0xFFFFFFFF) + sound)
            file.seek(44 + at)
            file.write(sound)
        assert audio_info(tmp_path / name).n_samples == at // 2 + 30_000
    from kws_s5.audio.decoder import opened

    with opened(tmp_path / "wrapped.wav") as file:
        data = file._plan.links[0].data
        data.seek(0)
        last = soundfile.SoundFile(data)
        last.seek(at // 2)
        assert np.abs(last.read(dtype="float32") - sweep()).max() < 1e-4
    os.unlink(tmp_path / "wrapped.wav")


@pytest.mark.parametrize(
    "make",
    [
        lambda: wav(60_000 + 4000),
        lambda: encoded("FLAC")[:-2000],
        lambda: encoded("MP3")[:-2000],
        lambda: encoded("OGG", x=sweep(200_000, 48000))[:-2000],
        lambda: encoded("AIFF")[:-2000],
        lambda: encoded("W64")[:-2000],
        lambda: encoded("AU")[:-2000],
        lambda: encoded("RF64")[:-2000],
    ],
)
def test_cut_files_give_what_is_there_and_then_say_so(make: object) -> None:
    x, error, _ = blocks_of(make())
    assert "cut short" in error and "\n" not in error and len(x) >= 0.3 * 30_000
    with pytest.raises(UserError, match="cut short"):
        load_audio(make())


@pytest.mark.parametrize("format", ["MP3", "FLAC", "OGG"])
@pytest.mark.parametrize("parts", [2, 3])
def test_joined_and_chained_files_are_read_to_their_last_part(format: str, parts: int) -> None:
    one = encoded(format)
    alone = load_audio(one).waveform
    data = one * parts
    if format == "OGG":  # a second stream has its own serial number
        data = one + b"".join(encoded(format, x=sweep()) for _ in range(parts - 1))
    x, error, _ = blocks_of(data)
    assert error == "" and len(x) == parts * len(alone)
    for i in range(parts):
        part = x[i * len(alone) : (i + 1) * len(alone)]
        assert np.sqrt(np.mean((part - sweep()) ** 2)) < 0.03


def test_an_mp3_without_its_length_header_is_read_to_its_end() -> None:
    one = encoded("MP3")
    info = one.index(b"Info") if b"Info" in one else one.index(b"Xing")
    begin = one.rindex(b"\xff", 0, info)
    from kws_s5.audio.mpeg import frame_of

    first = frame_of(int.from_bytes(one[begin : begin + 4], "big"))
    assert first
    plain = one[begin + first.size :]
    for data in (plain, b"ID3\x03\0\0\0\0\x00\x0a" + bytes(10) + plain, plain + b"TAG" + bytes(125), plain + plain):
        x, error, _ = blocks_of(data)
        again = 2 if data == plain + plain else 1
        assert error == "" and again * 30_000 <= len(x) <= again * 30_000 + 3000
        lag = int(np.correlate(x[: 30_000 + 2400].astype("f8"), sweep()[:20_000].astype("f8"), "valid").argmax())
        assert np.sqrt(np.mean((x[lag : lag + 20_000] - sweep()[:20_000]) ** 2)) < 0.03


@pytest.mark.parametrize("format", ["AIFF", "AU", "CAF", "W64", "RF64"])
def test_sizes_that_were_never_written_are_found_from_the_file(format: str) -> None:
    good = bytearray(encoded(format, "PCM_16"))
    expected = load_audio(bytes(good)).waveform
    if format == "AIFF":
        comm, ssnd = good.index(b"COMM"), good.index(b"SSND")
        good[comm + 10 : comm + 14] = bytes(4)
        good[ssnd + 4 : ssnd + 8] = bytes(4)
    elif format == "AU":
        good[8:12] = bytes(4)
    elif format == "CAF":
        at = good.index(b"data", 64)
        good[at + 4 : at + 12] = bytes(8)
    elif format == "W64":
        at = good.index(b"data\xf3\xac") + 16
        good[at : at + 8] = struct.pack("<Q", 24)
    else:
        at = good.index(b"ds64")
        good[at + 8 : at + 32] = bytes(24)
    x, error, _ = blocks_of(bytes(good))
    assert error == "" and np.array_equal(x[: len(expected)], expected) and len(x) <= len(expected) + 2


def test_foreign_formats_without_ffmpeg_are_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ffmpeg, "installed", lambda: "")
    for head, told in ((b"\0\0\0\x20ftypM4A ", "m4a"), (b"\x1a\x45\xdf\xa3", "webm"), (b"#!AMR\n", "AMR")):
        (tmp_path / "memo").write_bytes(head + bytes(500))
        with pytest.raises(UserError, match=r"memo: .*install ffmpeg, or convert") as error:
            load_audio(tmp_path / "memo")
        assert told in str(error.value) and "\n" not in str(error.value)
