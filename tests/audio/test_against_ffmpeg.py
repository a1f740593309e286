"""Hundreds of made files sound the same to us and to ffmpeg: formats, codecs, rates, channels. Needs ffmpeg."""

import itertools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import correlate

from kws_s5.audio.files import audio_blocks, load_audio
from kws_s5.errors import UserError

FFMPEG = shutil.which("ffmpeg")
pytestmark = pytest.mark.skipif(not FFMPEG, reason="needs ffmpeg")
SECONDS = 1.3
# suffix and ffmpeg's options; formats that change the length by their padding have the same in both readers
OWN = [
    ("wav", ["-c:a", codec])
    for codec in ("pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le", "pcm_alaw", "pcm_mulaw")
]
OWN += [
    ("w64", []),
    ("aiff", []),
    ("aiff", ["-c:a", "pcm_s24be"]),
    ("au", []),
    ("caf", []),
    ("flac", []),
    ("oga", ["-c:a", "flac"]),
    ("wav", ["-rf64", "always"]),
    ("ogg", ["-c:a", "libvorbis"]),
    ("opus", ["-c:a", "libopus"]),
    ("mp3", ["-c:a", "libmp3lame"]),
    ("mp3", ["-q:a", "5"]),
    ("mp3", ["-c:a", "libmp3lame", "-write_xing", "0"]),
    ("mp3", ["-q:a", "5", "-write_xing", "0"]),
    ("mp3", ["-write_xing", "0", "-id3v2_version", "0", "-write_id3v1", "1", "-metadata", "title=x"]),
]
FOREIGN = [
    ("m4a", []),
    ("mov", []),
    ("mp4", ["-movflags", "faststart"]),
    ("webm", ["-c:a", "libopus"]),
    ("mka", []),
    ("wma", []),
    ("aac", []),
    ("ts", []),
    ("avi", []),
    ("wv", []),
    ("ac3", []),
]
RATES, CHANNELS = (8000, 16000, 22050, 44100, 48000), (1, 2)


def voice(folder: Path, rate: int, channels: int) -> Path:
    """The original: chirps with pauses, the same in every channel but for its level."""
    t = np.arange(round(SECONDS * rate)) / rate
    x = 0.4 * np.sin(2 * np.pi * (300 * t + 500 * t * t)) * (np.sin(2 * np.pi * 3 * t) > -0.5)
    soundfile.write(folder / "original.wav", np.stack([x / (c + 1) for c in range(channels)], 1), rate)
    return folder / "original.wav"


def by_ffmpeg(path: Path, channels: int) -> np.ndarray:
    """Mean over the channels, as ffmpeg decodes them."""
    raw = subprocess.run(
        [FFMPEG, "-v", "error", "-i", path, "-map", "0:a:0", "-f", "f32le", "-"], capture_output=True, check=True
    ).stdout
    return np.frombuffer(raw, "<f4").reshape(-1, channels).mean(1)


def agree(ours: np.ndarray, theirs: np.ndarray, rate: float) -> None:
    """Equal but for the silence that decoders trim or leave at the ends (at most 120 ms)."""
    assert abs(len(ours) - len(theirs)) < 0.12 * rate
    middle = theirs[round(0.3 * rate) : round(0.9 * rate)]
    lag = int(correlate(ours, middle, "valid", method="fft").argmax())
    assert abs(lag - round(0.3 * rate)) < 0.12 * rate
    found = ours[lag : lag + len(middle)]
    assert np.sqrt(np.mean((found - middle) ** 2)) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("rate", RATES)
def test_files_of_every_format_sound_as_ffmpeg_decodes_them(tmp_path: Path, rate: int) -> None:
    made = 0
    for channels, (i, (suffix, options)) in itertools.product(CHANNELS, enumerate(OWN + FOREIGN)):
        if i >= len(OWN) and i % len(RATES) != RATES.index(rate):
            continue  # each foreign format at one rate: they start ffmpeg twice more
        path = tmp_path / f"{i}-{channels}.{suffix}"
        run = subprocess.run(
            [FFMPEG, "-v", "error", "-y", "-i", voice(tmp_path, rate, channels), *options, path], capture_output=True
        )
        if run.returncode or not path.stat().st_size:
            continue  # a codec that has no such rate, or is not in this ffmpeg
        audio, theirs = load_audio(path), by_ffmpeg(path, channels)
        if suffix == "opus" and audio.rate != 48000:  # libsndfile decodes Opus at the rate of its source
            theirs = by_ffmpeg(_resampled(path, audio.rate), channels)
        try:
            agree(audio.waveform, theirs, audio.rate)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{path.name} {options}: {len(audio.waveform)} {len(theirs)}") from error
        made += 1
    assert made > 30


def _resampled(path: Path, rate: float) -> Path:
    out = path.with_suffix(".resampled.wav")
    subprocess.run([FFMPEG, "-v", "error", "-y", "-i", path, "-ar", str(rate), out], check=True)
    return out


@pytest.mark.parametrize("suffix", ["m4a", "webm", "wma", "ts"])
def test_foreign_files_that_are_cut_are_told(tmp_path: Path, suffix: str) -> None:
    whole = tmp_path / f"whole.{suffix}"
    options = ["-movflags", "faststart"] if suffix == "m4a" else []
    subprocess.run(
        [FFMPEG, "-v", "error", "-stream_loop", "9", "-i", voice(tmp_path, 48000, 1), *options, whole], check=True
    )
    data = whole.read_bytes()
    for share in (0.0, 0.001, 0.5):
        (tmp_path / "cut").write_bytes(data[: round(share * len(data))])
        if share == 0.5 and suffix in ("wma", "ts", "webm"):
            continue  # formats made for broadcasts have no end that could be missed
        with pytest.raises(UserError) as error:
            list(audio_blocks(tmp_path / "cut"))
        assert "\n" not in str(error.value) and "cut" in str(error.value)


def test_a_file_cannot_make_ffmpeg_read_another(tmp_path: Path) -> None:
    secret = voice(tmp_path, 16000, 1)
    for i, text in enumerate(
        (f"#EXTM3U\n#EXTINF:1,\nfile://{secret}\n", f"ffconcat version 1.0\nfile '{secret}'\n", f"file '{secret}'\n")
    ):
        (tmp_path / f"list{i}.m4a").write_text(text)
        with pytest.raises(UserError, match="cannot be read as sound"):
            load_audio(tmp_path / f"list{i}.m4a")
    name = tmp_path / "-i;$(touch x) concat:a|b.m4a"
    subprocess.run([FFMPEG, "-v", "error", "-i", secret, "-f", "mp4", "file:" + str(name)], check=True)
    assert len(load_audio(name).waveform) > 16000 and len(load_audio(name.read_bytes()).waveform) > 16000
    assert not (tmp_path / "x").exists()
