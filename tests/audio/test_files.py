"""The front door for sound: every format, type, layout and rate reads as the same mono waveform; nothing is guessed."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_s5.audio import files as audio
from kws_s5.audio.files import (
    StreamResampler,
    audio_blocks,
    audio_info,
    decimate,
    load_audio,
    mono,
    resample,
    save_wav,
    to_rate,
)
from kws_s5.errors import UserError

RATE = 16000


def tone(n: int = 4000, rate: float = RATE, hertz: float = 440.0, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hertz * np.arange(n) / rate)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "subtype", "tolerance"),
    [
        ("a.wav", "PCM_U8", 2**-7),
        ("a.wav", "PCM_16", 2**-15),
        ("a.wav", "PCM_24", 2**-23),
        ("a.wav", "PCM_32", 1e-7),
        ("a.wav", "FLOAT", 0),
        ("a.wav", "DOUBLE", 0),
        ("a.wav", "ALAW", 0.03),
        ("a.wav", "ULAW", 0.03),
        ("a.flac", "PCM_16", 2**-15),
        ("a.flac", "PCM_24", 2**-23),
        ("a.ogg", "VORBIS", 0.05),
        ("a.mp3", "MPEG_LAYER_III", 0.1),
        ("a.aiff", "PCM_16", 2**-15),
        ("a.au", "PCM_16", 2**-15),
        ("a.w64", "PCM_16", 2**-15),
        ("a.caf", "PCM_16", 2**-15),
    ],
)
def test_every_format_reads_as_the_same_waveform(tmp_path: Path, name: str, subtype: str, tolerance: float) -> None:
    x = tone(16000)
    soundfile.write(tmp_path / name, x, RATE, subtype=subtype)
    found = load_audio(tmp_path / name)
    assert (found.rate, found.channels, found.waveform.dtype, found.waveform.shape) == (RATE, 1, np.float32, (16000,))
    assert np.abs(found.waveform - x).max() <= tolerance


@pytest.mark.parametrize("rate", [2000, 8000, 11025, 16000, 22050, 44100, 48000, 96000, 192000])
def test_rate_is_the_files_own(tmp_path: Path, rate: int) -> None:
    save_wav(tmp_path / "a.wav", tone(500), rate)
    assert load_audio(tmp_path / "a.wav").rate == rate
    assert audio_info(tmp_path / "a.wav").seconds == 500 / rate


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "float16", "float32", "float64"])
def test_integers_are_scaled_by_full_scale_and_floats_are_kept(dtype: str) -> None:
    x = tone().astype(np.float64)
    if dtype.startswith("float"):
        stored, tolerance = x, 1e-3 if dtype == "float16" else 1e-7
    else:
        half = 2 ** (8 * np.dtype(dtype).itemsize - 1)
        stored, tolerance = np.rint(x * half) + (half if dtype[0] == "u" else 0), 1 / half
    assert np.abs(load_audio(stored.astype(dtype), RATE).waveform - x).max() <= max(tolerance, 1e-7)


@settings(max_examples=60, deadline=None)
@given(st.integers(33, 3000), st.integers(1, 32), st.booleans(), st.integers(0, 2**31))
def test_both_layouts_are_mixed_along_the_channels(n: int, channels: int, tensor: bool, seed: int) -> None:
    x = np.random.default_rng(seed).uniform(-1, 1, (n, channels)).astype(np.float32)
    make = torch.from_numpy if tensor else np.asarray
    expected = x.astype(np.float64).mean(axis=1)
    for layout in (x, np.ascontiguousarray(x.T)):
        found = load_audio(make(layout), 44100).waveform
        assert found.shape == (n,) and np.allclose(found, expected, atol=1e-6)


def test_channels_of_files_that_sound_are_averaged(tmp_path: Path) -> None:
    x = np.stack([tone(hertz=300), tone(hertz=700), np.zeros(4000, np.float32)], axis=1)
    soundfile.write(tmp_path / "a.wav", x, RATE, subtype="FLOAT")
    found = load_audio(tmp_path / "a.wav")
    assert found.channels == 3 and np.allclose(found.waveform, x[:, :2].mean(axis=1), atol=1e-7)


def test_short_pieces_of_many_channels_need_their_axis_told() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 10
    assert np.allclose(mono(x, channel_axis=1), x.mean(axis=1)) and np.allclose(mono(x, channel_axis=0), x.mean(axis=0))
    assert mono(np.zeros((0,), np.float32)).shape == (0,)  # an empty piece of a stream is no error


@pytest.mark.parametrize(
    ("array", "rate", "told"),
    [
        (tone(), None, "rate"),
        (tone(), 0, "2000"),
        (tone(), 1e9, "192000"),
        (tone(), float("nan"), "rate"),
        (tone(), "16000", "rate"),
        (tone(), True, "rate"),
        (tone(0), RATE, "no samples"),
        (np.zeros((3, 3), "f4"), RATE, "(3, 3)"),
        (np.zeros((40, 50), "f4"), RATE, "channels"),
        (np.zeros((1, 2, 100), "f4"), RATE, "(L, channels)"),
        (np.array([0.1, np.nan], "f4"), RATE, "NaN"),
        (np.array([0.1, -np.inf]), RATE, "NaN"),
        (tone() * 20000, RATE, "32768"),
        (np.zeros(9, "i8"), RATE, "int64"),
        (np.zeros(9, "c8"), RATE, "complex64"),
        (np.zeros(9, "?"), RATE, "bool"),
        (np.array(["a", "b"]), RATE, "full scale"),
        ([[1.0], [2.0, 3.0]], RATE, "array"),
        ({"a": 1}, RATE, "array"),
        (np.array(0.5), RATE, "()"),
        (None, RATE, "array"),
        (np.full(9, 1e300), RATE, "infinite"),
    ],
)
def test_arrays_that_are_no_recording_are_refused_in_one_line(array: object, rate: object, told: str) -> None:
    with pytest.raises(UserError, match=".") as error:
        load_audio(array, rate)
    assert told in str(error.value) and "\n" not in str(error.value)


def test_level_is_never_changed(tmp_path: Path) -> None:
    for level in (1e-4, 0.3, 1.7):
        soundfile.write(tmp_path / "a.wav", tone(level=level), RATE, subtype="FLOAT")
        assert np.array_equal(load_audio(tmp_path / "a.wav").waveform, tone(level=level))
    assert np.array_equal(load_audio(np.zeros(100, np.int16), RATE).waveform, np.zeros(100, np.float32))


def test_a_rate_beside_a_file_is_a_check_not_a_resampling(tmp_path: Path) -> None:
    save_wav(tmp_path / "a.wav", tone(), 8000)
    assert load_audio(tmp_path / "a.wav", 8000).rate == 8000
    with pytest.raises(UserError, match=r"a\.wav.*8000 Hz, not 16000"):
        load_audio(tmp_path / "a.wav", 16000)


def test_paths_bytes_and_file_objects_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.raw"  # the content decides, not the suffix
    soundfile.write(path, tone(), RATE, format="WAV")
    expected = load_audio(path).waveform
    with open(path, "rb") as file:
        for source in (str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), file):
            assert np.array_equal(load_audio(source).waveform, expected)
    with open(path, encoding="latin-1") as text, pytest.raises(UserError, match="'rb'"):
        load_audio(text)


def test_bfloat16_and_gradient_tensors_are_read() -> None:
    x = torch.from_numpy(tone()).requires_grad_()
    assert np.array_equal(load_audio(x, RATE).waveform, tone())
    assert np.allclose(load_audio(x.bfloat16(), RATE).waveform, tone(), atol=0.01)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg", "a.mp3"])
def test_blocks_together_equal_the_whole(tmp_path: Path, name: str) -> None:
    soundfile.write(tmp_path / name, np.stack([tone(50000), tone(50000, hertz=200)], axis=1), RATE)
    blocks = list(audio_blocks(tmp_path / name, 0.25))
    assert {block.rate for block in blocks} == {RATE} and max(len(block.waveform) for block in blocks) == 4000
    assert np.array_equal(np.concatenate([block.waveform for block in blocks]), load_audio(tmp_path / name).waveform)


def test_flac_without_a_length_in_its_header_reads_to_its_end(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", tone(20000), RATE)
    data = bytearray((tmp_path / "a.flac").read_bytes())
    data[21] &= 0xF0  # the 36 bits of STREAMINFO that count the samples: 0 means unknown
    data[22:26] = bytes(4)
    assert np.allclose(load_audio(bytes(data)).waveform, tone(20000), atol=2**-15)


def test_long_files_are_refused_whole_but_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_wav(tmp_path / "long.wav", tone(30000), RATE)
    monkeypatch.setattr(audio, "MAX_SAMPLES", 20000)
    with pytest.raises(UserError, match=r"long\.wav.*blocks"):
        load_audio(tmp_path / "long.wav")
    assert sum(len(block.waveform) for block in audio_blocks(tmp_path / "long.wav")) == 30000


def test_resampling_keeps_tones_below_and_removes_those_above_the_new_nyquist() -> None:
    for hertz, kept in ((1000, True), (6000, False)):
        x = resample(tone(16000, hertz=hertz), 16000, 8000)[500:-500]
        assert (np.abs(x).max() > 0.49) == kept and (kept or np.abs(x).max() < 1e-4)
    assert np.allclose(decimate(tone(16000, hertz=6000), 2), -tone(8000, 8000, 2000), atol=1e-4)  # folded to 2 kHz
    assert resample(tone(), 16000, 16000) is not None and len(resample(tone(4410), 44100, 16000)) == 1600


def test_to_rate_names_its_method_and_refuses_what_it_cannot() -> None:
    x = load_audio(tone(4800, 48000), 48000)
    assert np.array_equal(to_rate(x, 16000, method="decimate").waveform, x.waveform[::3])
    assert np.array_equal(to_rate(x, 16000).waveform, soxr.resample(x.waveform, 48000, 16000, "HQ"))
    with pytest.raises(UserError, match="whole ratio"):
        to_rate(x, 44100, method="decimate")
    with pytest.raises(UserError, match="soxr, decimate"):
        to_rate(x, 16000, method="linear")
    with pytest.raises(UserError, match="VHQ"):
        resample(x.waveform, 48000, 16000, "best")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.sampled_from([8000, 22050, 44100, 48000]))
def test_a_stream_resampled_in_pieces_equals_the_whole(pieces: list[int], rate: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, sum(pieces)).astype(np.float32)
    stream, ends = StreamResampler(rate, 16000), np.cumsum([0, *pieces])
    parts = [stream.push(x[a:b], last=b == len(x)) for a, b in zip(ends, ends[1:], strict=False)]
    assert np.allclose(np.concatenate(parts), resample(x, rate, 16000), atol=1e-6)


def test_16_bit_sound_survives_a_round_trip_exactly(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-32768, 32768, 5000).astype(np.int16)
    save_wav(tmp_path / "a.wav", x, 8000)
    assert np.array_equal(load_audio(tmp_path / "a.wav").waveform * 32768, x)
    save_wav(tmp_path / "b.wav", tone(level=1.5), 8000, subtype="FLOAT")
    assert np.array_equal(load_audio(tmp_path / "b.wav").waveform, tone(level=1.5))


def test_save_wav_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    for waveform, rate in ((tone(), 16000.5), (tone(), 1), (np.array([np.nan]), 16000)):
        with pytest.raises(UserError, match=r"a\.wav"):
            save_wav(tmp_path / "a.wav", waveform, rate)
    assert not list(tmp_path.iterdir())
