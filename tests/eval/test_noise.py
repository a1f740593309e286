"""Noise has the level and the colour it is asked for, and is the same every time."""

import numpy as np
import pytest

from kws_s5.audio.files import save_wav
from kws_s5.errors import UserError
from kws_s5.eval.noise import Pink, Recorded, White, add_noise, noise_from

RATE = 16000


def random(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("noise", [White(), Pink()])
@pytest.mark.parametrize("snr", [20.0, 0.0, -5.0])
def test_snr_is_the_ratio_of_the_powers_in_decibels(noise, snr):
    x = random(1).normal(size=16000).astype(np.float32) * 0.1
    added = add_noise(x, RATE, noise, snr=snr, random=random()).astype(np.float64) - x
    assert 10 * np.log10(np.mean(x.astype(np.float64) ** 2) / np.mean(added**2)) == pytest.approx(snr, abs=0.01)


def test_the_same_seed_gives_the_same_noise():
    x = np.ones(100, np.float32)
    first, again, other = (add_noise(x, RATE, White(), snr=0, random=random(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_pink_noise_has_equal_power_in_every_octave():
    spectrum = np.abs(np.fft.rfft(Pink()(1 << 18, RATE, random()))) ** 2
    frequency = np.fft.rfftfreq(1 << 18, 1 / RATE)
    octaves = [spectrum[(frequency >= f) & (frequency < 2 * f)].sum() for f in (100, 400, 1600)]
    assert np.allclose(octaves, octaves[0], rtol=0.1)


def test_digital_silence_gets_noise_of_a_quiet_room():
    noisy = add_noise(np.zeros(16000, np.float32), RATE, White(), snr=10, random=random())
    assert 10 * np.log10(np.mean(noisy**2)) == pytest.approx(-50, abs=0.1)
    assert not len(add_noise(np.zeros(0, np.float32), RATE, White(), snr=10, random=random()))


def test_recorded_noise_comes_from_the_folder_at_the_rate_of_the_clip(tmp_path):
    tone = np.sin(2 * np.pi * 1000 * np.arange(4000) / 8000).astype(np.float32)
    save_wav(tmp_path / "fan.wav", tone, 8000)
    cut = Recorded(tmp_path)(16000, RATE, random())  # longer than the half second there is
    frequency = np.fft.rfftfreq(16000, 1 / RATE)[np.argmax(np.abs(np.fft.rfft(cut)))]
    assert len(cut) == 16000 and frequency == pytest.approx(1000, abs=2)


def test_noise_that_cannot_be_had_is_one_clear_error(tmp_path):
    with pytest.raises(UserError, match="white, pink or a folder"):
        noise_from("brown")
    with pytest.raises(UserError, match="no recordings to take noise from"):
        noise_from(str(tmp_path))
    save_wav(tmp_path / "silence.wav", np.zeros(100, np.float32), 8000)
    with pytest.raises(UserError, match="digital silence"):
        noise_from(str(tmp_path))(10, RATE, random())


def test_a_recording_of_almost_only_silence_is_always_heard_the_same_way_each_time(tmp_path):
    x = np.zeros(60 * RATE, np.float32)
    x[5000:5100] = 0.1
    save_wav(tmp_path / "door.wav", x, RATE)
    noise, clip = Recorded(tmp_path), np.full(800, 0.1, np.float32)
    for seed in range(20):
        first, again = (add_noise(clip, RATE, noise, snr=0.0, random=random(seed)) - clip for _ in range(2))
        assert np.array_equal(first, again)
        assert 10 * np.log10(np.mean(first.astype(np.float64) ** 2) / 0.01) == pytest.approx(0.0, abs=0.01)
