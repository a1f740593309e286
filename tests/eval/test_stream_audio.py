"""Streams made for measuring: deterministic, words where they are said to be, noise at its level."""

import numpy as np
import pytest
import soundfile
import soxr

from kws_s5.errors import UserError
from kws_s5.eval.stream_audio import (
    AFTER_WORD,
    Clip,
    Material,
    StreamConditions,
    background_stream,
    recordings,
    word_bounds,
    words_stream,
)

RATE = 8000


def burst(length=0.3, before=0.2, after=0.1, rate=RATE, pitch=440.0):
    """A tone between two silences."""
    t = np.arange(round(length * rate)) / rate
    tone = 0.3 * np.sin(2 * np.pi * pitch * t)
    return np.concatenate([np.zeros(round(before * rate)), tone, np.zeros(round(after * rate))]).astype(np.float32)


def material(background=()):
    words = tuple(Clip(burst(before=0.1 * i), RATE, word) for i, word in enumerate(["yes", "no", "yes", "stop"]))
    return Material(words, tuple(background), "test")


def joined(blocks):
    blocks = list(blocks)
    return np.concatenate([b.waveform for b in blocks]), [w for b in blocks for w in b.words]


def test_every_word_is_said_once_and_sounds_where_it_is_listed() -> None:
    x, words = joined(words_stream(material(), StreamConditions(RATE, snr=None)))
    assert sorted(w.label for w in words) == ["no", "stop", "yes", "yes"]
    for word, after in zip(words, [*words[1:], None], strict=True):
        a, b = round(word.start * RATE), round(word.end * RATE)
        assert word.end - word.start == pytest.approx(0.3, abs=0.03)
        assert np.abs(x[a:b]).max() > 0.25 and np.abs(x[b + 160 : b + 4000]).max() == 0
        if after:
            assert after.start - word.end >= AFTER_WORD[0]


def test_streams_are_the_same_for_the_same_seed_only() -> None:
    def make(seed):
        return joined(words_stream(material([Clip(burst(2.0), RATE)]), StreamConditions(RATE, seed=seed)))

    a, b, c = make(0), make(0), make(1)
    assert np.array_equal(a[0], b[0]) and a[1] == b[1] and a[1] != c[1]


def test_the_noise_lies_at_its_level_below_the_words() -> None:
    x, words = joined(words_stream(material(), StreamConditions(RATE, snr=20.0)))
    silent = x[: round(words[0].start * RATE) - 200]
    levels = [np.sqrt(np.mean(np.square(clip.waveform))) for clip in material().words]
    assert 20 * np.log10(np.median(levels) / np.sqrt(np.mean(silent**2))) == pytest.approx(20, abs=1.5)


def test_background_has_no_words_and_all_of_every_recording(tmp_path) -> None:
    x = burst(25.0, rate=16000, pitch=300.0)  # longer than a block
    soundfile.write(tmp_path / "long.flac", x, 16000)
    files = recordings(tmp_path)
    for how, rate in [("soxr", 16000), ("decimate", 8000), ("soxr", 11025)]:
        blocks = list(background_stream(material(files), StreamConditions(rate, how=how, snr=None)))
        sound, words = joined(blocks[:-1])
        assert not words and len(blocks[-1].waveform) >= 0.4 * rate
        expected = x[::2] if how == "decimate" else soxr.resample(x, 16000, rate, quality="HQ")
        assert len(sound) == pytest.approx(len(expected), abs=1)
        assert np.abs(sound[: len(expected)] - expected[: len(sound)]).max() < 1e-4
    with pytest.raises(UserError, match="no recordings"):
        recordings(tmp_path / "nowhere")
    assert sum(len(b.waveform) for b in background_stream(material(), StreamConditions(RATE))) == 60 * RATE


def test_word_bounds_are_those_of_the_sound() -> None:
    assert word_bounds(burst(), RATE) == pytest.approx((0.2, 0.5), abs=0.011)
    assert word_bounds(np.zeros(800, np.float32), RATE) == (0.0, 0.1)
    assert word_bounds(np.ones(3, np.float32), RATE) == (0.0, 3 / RATE)
