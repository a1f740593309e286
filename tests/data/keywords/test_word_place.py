"""The word of a recording is found in noise, hum and clicks, and recordings are cut around it if that is asked for."""

from pathlib import Path

import numpy as np
import pytest

from kws_s5.audio.files import save_wav
from kws_s5.config import KeywordData
from kws_s5.data.build import build
from kws_s5.data.keywords.word_place import around_word, find_word

RATE = 8000.0


def recording(
    start: float,
    seconds: float = 3.0,
    *,
    noise: float = 0.003,
    hum: float = 0.0,
    click: float = -1.0,
    level: float = 0.2,
) -> np.ndarray:
    """(L,) two syllables of 0.2 s, 0.12 s apart, from ``start`` on; a loud click of 10 ms elsewhere."""
    rng = np.random.default_rng(0)
    t = np.arange(round(seconds * RATE)) / RATE
    x = noise * rng.standard_normal(len(t)) + hum * np.sin(2 * np.pi * 50 * t)
    for first in (start, start + 0.32):
        said = (t >= first) & (t < first + 0.2)
        x[said] += level * np.sin(2 * np.pi * 300 * t[said])
    if click >= 0:
        x[(t >= click) & (t < click + 0.01)] += 0.5
    return x.astype(np.float32)


@pytest.mark.parametrize(
    "surrounds", [{}, {"noise": 0.03}, {"hum": 0.05}, {"click": 2.6}, {"click": 0.2}, {"level": 0.002, "noise": 1e-5}]
)
@pytest.mark.parametrize("start", [0.5, 1.7])
def test_a_word_is_found_wherever_it_is_whatever_surrounds_it(surrounds: dict, start: float) -> None:
    first, last = find_word(recording(start, **surrounds), RATE)
    assert abs(first - start) < 0.06 and abs(last - (start + 0.52)) < 0.06


def test_silence_and_next_to_nothing_are_kept_whole() -> None:
    assert find_word(np.zeros(8000, np.float32), RATE) == (0.0, 1.0)
    assert find_word(np.zeros(0, np.float32), RATE) == (0.0, 0.0)
    assert around_word(np.zeros(100, np.float32), RATE, 1.0) == (0, 100)


def test_a_cut_has_the_length_asked_for_also_at_the_ends_of_a_recording() -> None:
    for start in (0.0, 1.2, 2.45):
        first, last = around_word(recording(start), RATE, 1.0)
        assert last - first == 8000 and first / RATE <= start + 0.02 and last / RATE >= start + 0.5


@pytest.mark.parametrize("trim", [True, False])
def test_clips_of_long_recordings_hold_the_word_when_trimmed(tmp_path: Path, trim: bool) -> None:
    rng = np.random.default_rng(1)
    for word in ("one", "two"):
        for i in range(10):
            save_wav(tmp_path / "mine" / word / f"s{i}_nohash_0.wav", recording(rng.uniform(0.1, 2.3)), RATE)
    splits = build(KeywordData(root=str(tmp_path / "mine"), rate=RATE, trim=trim, cache=str(tmp_path / "cache")))
    said = [float(example.x.square().sum()) for split in (splits.train, splits.test) for example in split]
    whole = float(np.square(recording(1.0)).sum())
    assert all(len(example.x) == 8000 for example in splits.train)
    assert all(energy > 0.95 * whole for energy in said) == trim
