"""Spectrograms in dB of full scale, and what a front hands on, also while other threads use the model."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from kws_s5.bundle import Bundle
from kws_s5.config import LinearFront, ModelConfig, RunConfig
from kws_s5.demo.pictures import FLOOR, front_view, spectrogram
from kws_s5.model.sequence import build_model


def sine(frequency, rate, seconds=1.0):
    return np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate).astype(np.float32)


@pytest.mark.parametrize("rate", [4000, 8000, 16000, 44100])
def test_a_full_scale_sine_has_minus_3_db_at_its_frequency_at_every_rate(rate):
    picture = spectrogram(sine(1000, rate), rate)
    assert picture.image.shape == (100, len(picture.frequencies))
    assert picture.image[50].max() == pytest.approx(-3.0, abs=0.3)
    assert picture.frequencies[picture.image[50].argmax()] == pytest.approx(1000, abs=20)


@pytest.mark.parametrize("length", [1, 2, 150, 399, 401])
def test_short_sounds_and_silence_have_a_picture(length):
    image = spectrogram(np.zeros(length, np.float32), 16000).image
    assert len(image) >= 1 and (image == FLOOR).all()


def test_the_picture_of_a_long_sound_stays_small():
    assert len(spectrogram(np.zeros(8000 * 600, np.float32), 8000).image) <= 6000


def test_the_front_view_is_the_input_of_the_dense_layer_at_any_rate(tone_bundle):
    for rate in (8000, 16000, 48000):
        picture = front_view(tone_bundle, 0.3 * sine(400, rate), rate)
        assert picture.image.shape == (100, 2)
        assert (picture.image[20:, 0] > picture.image[20:, 1] + 3).all()  # the low mode hears it
    stretched = front_view(tone_bundle, 0.3 * sine(400, 8000), 8000, rescale=False)
    assert len(stretched.image) == 50


def test_threads_see_their_own_sound(tone_bundle):
    sounds = [0.3 * sine(frequency, 16000) for frequency in (400, 1600)] * 8
    alone = [front_view(tone_bundle, x, 16000).image for x in sounds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda x: front_view(tone_bundle, x, 16000).image, sounds))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_front_that_hands_on_samples_has_no_picture():
    torch.manual_seed(0)
    model = ModelConfig(d_model=4, n_layers=1, front=LinearFront(), n_outputs=2, rate=16000)
    bundle = Bundle(build_model(model), RunConfig(name="plain", model=model), labels=("a", "b"))
    assert front_view(bundle, np.zeros(100, np.float32), 16000) is None
