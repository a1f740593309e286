"""What each condition does to the sound, and which rows a report has."""

import numpy as np
import pytest
import soxr

from kws_s5.errors import UserError
from kws_s5.eval.noise import White
from kws_s5.eval.protocol import Condition, conditions_for, degraded

X = np.random.default_rng(0).normal(size=1001).astype(np.float32)


def rows(*args, **options):
    return [(c.rate, c.how, c.treatment) for c in conditions_for(*args, **options)]


def test_native_leaves_the_samples_alone():
    waveform, rate = degraded(Condition(), X, 11025, train_rate=16000)
    assert rate == 11025 and waveform is X


def test_decimation_keeps_every_second_sample_from_the_first_without_a_filter():
    waveform, rate = degraded(Condition(8000, "decimate"), X, 16000, train_rate=16000)
    assert rate == 8000 and np.array_equal(waveform, X[::2])


def test_decimation_of_other_than_whole_factors_is_refused_with_the_way_out():
    with pytest.raises(UserError, match="16000 Hz / 11025 Hz.*--resampler soxr"):
        degraded(Condition(11025, "decimate"), X, 16000, train_rate=16000)
    with pytest.raises(UserError, match="--resampler soxr"):
        degraded(Condition(32000, "decimate"), X, 16000, train_rate=16000)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100])
def test_soxr_goes_up_and_down_to_any_rate(rate):
    waveform, got = degraded(Condition(rate, "soxr"), X, 16000, train_rate=16000)
    assert got == rate and np.array_equal(waveform, soxr.resample(X, 16000, rate, quality="HQ"))


def test_the_baseline_brings_the_degraded_sound_back_to_the_training_rate():
    waveform, rate = degraded(Condition(8000, "decimate", "resample_back"), X, 16000, train_rate=16000)
    assert rate == 16000 and np.array_equal(waveform, soxr.resample(X[::2].copy(), 8000, 16000, quality="HQ"))


def test_clips_of_another_rate_are_never_passed_off_as_recorded():
    with pytest.raises(UserError, match="16000 Hz cannot be used as recorded at 8000 Hz"):
        degraded(Condition(8000, "native"), X, 16000, train_rate=16000)


def test_noise_is_the_same_for_every_rate_and_differs_from_clip_to_clip():
    def noisy(rate, how, index):
        return degraded(Condition(rate, how, snr=0.0), X, 16000, train_rate=16000, noise=White(), index=index)[0]

    assert np.array_equal(noisy(16000, "native", 3)[::2], noisy(8000, "decimate", 3))
    assert not np.array_equal(noisy(16000, "native", 3), noisy(16000, "native", 4))


def test_default_rows_at_the_training_rate_and_at_half_of_it():
    assert rows(16000, [16000]) == [
        (16000, "native", "rescale"),
        (8000, "decimate", "rescale"),
        (8000, "soxr", "rescale"),
        (8000, "decimate", "none"),
        (8000, "decimate", "resample_back"),
    ]


def test_default_rows_for_recordings_at_another_rate_use_them_as_they_are():
    assert rows(16000, [8000]) == [
        (8000, "native", "rescale"),
        (8000, "native", "none"),
        (8000, "native", "resample_back"),
    ]
    assert rows(16000, [8000, 16000]) == [
        (0, "native", "rescale"),
        (0, "native", "none"),
        (0, "native", "resample_back"),
    ]


def test_rates_are_reached_by_decimation_where_it_is_possible_and_by_soxr_everywhere():
    assert rows(16000, [16000], rates=[4000, 11025, 22050], treatments=["rescale"]) == [
        (4000, "decimate", "rescale"),
        (4000, "soxr", "rescale"),
        (11025, "soxr", "rescale"),
        (22050, "soxr", "rescale"),
    ]
    assert rows(16000, [48000, 44100], rates=[8000], treatments=["rescale"]) == [(8000, "soxr", "rescale")]


def test_choices_of_resampler_and_treatment_are_kept():
    assert rows(16000, [16000], rates=[8000], resampler="soxr", treatments=["none"]) == [(8000, "soxr", "none")]
    with pytest.raises(UserError, match="whole number"):
        conditions_for(16000, [16000], rates=[11025], resampler="decimate")


def test_every_part_of_a_protocol_is_in_its_name():
    condition = Condition(8000, "decimate", interpolation="linear", mask_modes=True, snr=10.0, noise="pink")
    assert condition.name == "8000 Hz, decimate, rescale, linear, masked, pink noise at 10 dB"
    names = {
        Condition(8000, how, treatment).protocol
        for how in ("native", "decimate", "soxr")
        for treatment in ("rescale", "none", "resample_back")
    }
    assert len(names) == 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"how": "magic"},
        {"treatment": "x"},
        {"rate": -1.0},
        {"how": "soxr"},
        {"snr": float("nan")},
        {"interpolation": "cubic"},
    ],
)
def test_conditions_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UserError):
        Condition(**wrong)
