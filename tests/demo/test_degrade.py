"""What the demo's rate selector does to a sound."""

import numpy as np
import pytest

from kws_s5.audio.files import Audio
from kws_s5.demo.degrade import AS_RECORDED, DEGRADATIONS

RATES = {
    AS_RECORDED: 16000,
    "8 kHz decimated": 8000,
    "8 kHz band-limited": 8000,
    "8 kHz telephone": 8000,
    "4 kHz": 4000,
    "11.025 kHz": 11025,
    "48 kHz": 48000,
}


def tone(frequency, rate=16000, seconds=0.5):
    t = np.arange(round(seconds * rate)) / rate
    return Audio((0.5 * np.sin(2 * np.pi * frequency * t)).astype(np.float32), rate)


def level(audio):
    """dB of the middle half, which knows nothing of the edges."""
    n = len(audio.waveform)
    return 20 * np.log10(np.sqrt(np.mean(audio.waveform[n // 4 : -n // 4] ** 2)) + 1e-9)


@pytest.mark.parametrize("name", DEGRADATIONS)
@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
def test_every_choice_gives_its_rate_and_keeps_the_length(name, rate):
    given = DEGRADATIONS[name].apply(tone(1000, rate))
    assert given.rate == (rate if name == AS_RECORDED else RATES[name])
    assert given.waveform.dtype == np.float32
    assert abs(given.seconds - 0.5) < 0.001
    assert level(given) == pytest.approx(level(tone(1000)), abs=0.3)


@pytest.mark.parametrize("name", DEGRADATIONS)
@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_very_short_sounds_pass(name, length):
    given = DEGRADATIONS[name].apply(Audio(np.full(length, 0.1, np.float32), 16000))
    assert np.isfinite(given.waveform).all()


def test_decimation_keeps_every_second_sample_so_that_high_tones_fold_back():
    given = DEGRADATIONS["8 kHz decimated"].apply(tone(6000))
    np.testing.assert_array_equal(given.waveform, tone(6000).waveform[::2])
    assert level(DEGRADATIONS["8 kHz band-limited"].apply(tone(6000))) < level(given) - 60


@pytest.mark.parametrize("frequency", [60, 3900])
def test_telephone_carries_only_its_band(frequency):
    apply = DEGRADATIONS["8 kHz telephone"].apply
    assert level(apply(tone(frequency))) < level(apply(tone(1000))) - 20
