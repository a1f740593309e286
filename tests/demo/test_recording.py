"""A recording, its limits, and what the model says with and without a rescaled step."""

import numpy as np
import pytest
import soundfile

from kws_s5.audio.files import Audio, save_wav
from kws_s5.demo.degrade import AS_RECORDED, DEGRADATIONS
from kws_s5.demo.recording import examine, load_clip, scaled_thresholds
from kws_s5.errors import UserError

WORDS = [("low", 0.5), ("high", 1.5), ("low", 2.5)]


def labels(hearing):
    return [event.label for event in hearing.events]


@pytest.fixture
def sound(tone_stream):
    return Audio(tone_stream(WORDS, seconds=3.5), 16000)


@pytest.mark.parametrize("name", DEGRADATIONS)
def test_the_rescaled_model_hears_the_words_at_every_rate_and_when_they_were_said(tone_bundle, sound, name):
    study = examine(tone_bundle, sound, DEGRADATIONS[name])
    ours = study.hearings[0]
    assert labels(ours) == ["low", "high", "low"]
    assert [event.end for event in ours.events] == pytest.approx([0.7, 1.7, 2.7], abs=0.3)
    assert abs(ours.times[-1] - 3.5) < 0.05


@pytest.mark.parametrize("name", ["8 kHz decimated", "4 kHz", "48 kHz"])
def test_without_rescaling_the_same_model_hears_something_else_in_the_same_time(tone_bundle, sound, name):
    ours, control, baseline = examine(tone_bundle, sound, DEGRADATIONS[name]).hearings
    assert labels(control) != labels(ours) == labels(baseline)
    assert abs(control.times[-1] - 3.5) < 0.05


def test_at_the_training_rate_there_is_nothing_to_compare(tone_bundle, sound):
    assert len(examine(tone_bundle, sound, DEGRADATIONS[AS_RECORDED]).hearings) == 1


def test_pictures_cover_the_sound(tone_bundle, sound):
    study = examine(tone_bundle, sound, DEGRADATIONS["8 kHz band-limited"])
    assert study.spectrogram.frequencies[-1] == 4000
    loudest = study.spectrogram.frequencies[study.spectrogram.image[round(0.7 * 100)].argmax()]
    assert abs(loudest - 400) < 40
    assert study.front.image.shape == (350, 2)
    np.testing.assert_allclose(study.front.frequencies, [400, 1600], rtol=1e-5)


def test_a_rate_that_the_model_refuses_is_a_line_and_not_a_crash(tone_bundle):
    low = Audio(np.zeros(2000, np.float32), 2000)  # the model's lower tone needs no more, its frames do not fit
    tone_bundle.model.front.lowest = 3000.0
    study = examine(tone_bundle, low, DEGRADATIONS[AS_RECORDED])
    assert "3000 Hz" in study.hearings[0].error
    assert study.front is None


def test_thresholds_are_scaled_word_by_word_and_never_above_one(tone_bundle, sound):
    tone_bundle.thresholds = {"low": 0.4, "high": 0.9}
    assert scaled_thresholds(tone_bundle, 1.2) == pytest.approx({"high": 1.0, "low": 0.48})
    strict = examine(tone_bundle, sound, DEGRADATIONS[AS_RECORDED], factor=1.2).hearings[0]
    assert labels(strict) == ["low", "low"]  # nothing reaches 1
    assert max(strict.scores[:, 0]) < 1.0


@pytest.mark.parametrize("length", [1, 10, 400])
def test_very_short_recordings_are_studied(tone_bundle, length):
    study = examine(tone_bundle, Audio(np.zeros(length, np.float32), 16000), DEGRADATIONS["8 kHz telephone"])
    assert not study.hearings[0].events


def test_long_recordings_are_refused_by_name_without_their_folder(tmp_path):
    save_wav(tmp_path / "long.wav", np.zeros(16000 * 5), 16000)
    assert load_clip(tmp_path / "long.wav", max_seconds=5).seconds == 5
    with pytest.raises(UserError, match=r"^long\.wav: longer than 4\.9 s"):
        load_clip(tmp_path / "long.wav", max_seconds=4.9)


def test_malformed_recordings_are_refused_by_name_without_their_folder(tmp_path):
    (tmp_path / "odd.wav").write_bytes(b"RIFF no sound at all")
    with pytest.raises(UserError) as caught:
        load_clip(tmp_path / "odd.wav", max_seconds=5)
    assert str(caught.value).startswith("odd.wav: ")
    assert str(tmp_path) not in str(caught.value)


def test_channels_are_averaged_and_counted(tmp_path):
    stereo = np.stack([np.full(800, 0.5), np.full(800, -0.1)], 1)
    soundfile.write(tmp_path / "two.flac", stereo, 44100)
    audio = load_clip(tmp_path / "two.flac", max_seconds=5)
    assert (audio.channels, audio.rate) == (2, 44100)
    np.testing.assert_allclose(audio.waveform, 0.2, atol=1e-4)
