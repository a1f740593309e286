"""Augmentation does what its numbers say, leaves the rest of the batch consistent, and repeats with the generator."""

import numpy as np
import pytest
import torch

from kws_s5.config import AugmentConfig
from kws_s5.data.batch import Batch
from kws_s5.errors import UserError
from kws_s5.training import augment_sound as sound
from kws_s5.training import augment_time as time
from kws_s5.training.augment import TRUE_RATES, augment
from kws_s5.training.augment_fft import irfft, resample, rfft

ALL = AugmentConfig(
    shift=0.1, gain=0.5, noise=0.7, reverb=0.5, speed=0.1, band_limit=0.5, true_rate=0.5, mixup=0.3, microphone=6.0
)


def batch(N: int = 8, L: int = 4000, *, lengths: list[int] | None = None, rate: float = 16000.0) -> Batch:
    generator = torch.Generator().manual_seed(7)
    lengths = torch.tensor(lengths or [L] * N)
    x = torch.randn(N, L, 1, generator=generator) * (torch.arange(L) < lengths[:, None])[..., None] * 0.1
    return Batch(x, lengths, torch.arange(N) % 5, torch.full((N,), rate, dtype=torch.float64))


def run(b: Batch, config: AugmentConfig, seed: int = 0, **more) -> Batch:
    return augment(b, config, torch.Generator().manual_seed(seed), n_classes=5, **more)


def spectrum(x: torch.Tensor) -> np.ndarray:
    return np.abs(np.fft.rfft(x.numpy() * np.hanning(len(x)))) ** 2


def tone(frequency: float, L: int = 4000, rate: float = 16000.0) -> torch.Tensor:
    return torch.sin(2 * torch.pi * frequency * torch.arange(L) / rate)


def peak_hz(x: torch.Tensor, rate: float = 16000.0) -> float:
    return float(spectrum(x).argmax() * rate / len(x))


def test_a_config_of_zeros_gives_the_batch_back() -> None:
    b = batch()
    assert augment(b, AugmentConfig(time_mask=0.1, frequency_mask=0.1), torch.Generator()) is b


def test_the_same_generator_gives_the_same_batch_and_nothing_else_is_random() -> None:
    b = batch()
    torch.manual_seed(0)
    one = run(b, ALL, 3)
    torch.manual_seed(1)
    two, other = run(b, ALL, 3), run(b, ALL, 4)
    assert all(torch.equal(getattr(one, f), getattr(two, f)) for f in ("x", "y", "lengths", "rates"))
    assert one.x.shape != other.x.shape or not torch.equal(one.x, other.x)


@pytest.mark.parametrize(
    "name", ["shift", "gain", "noise", "reverb", "speed", "microphone", "band_limit", "true_rate", "mixup"]
)
def test_every_switch_changes_sound_but_neither_the_batch_given_nor_its_padding(name: str) -> None:
    b = batch(lengths=[4000, 3000, 2500, 1000, 4000, 17, 1, 4000])
    before = b.x.clone()
    after = run(b, AugmentConfig(**{name: 0.5}), seed=2)
    assert torch.equal(b.x, before)
    L = min(4000, after.x.shape[1])
    assert not torch.equal(after.x[:, :L], before[:, :L]) and after.x.isfinite().all() and after.x.dtype == b.x.dtype
    assert after.lengths.dtype == torch.int64 and after.x.shape[1] == int(after.lengths.max())
    for row, n in enumerate(after.lengths.tolist()):
        assert not after.x[row, n:].any()
    if name not in ("true_rate", "mixup"):
        assert torch.equal(after.lengths, b.lengths) and torch.equal(after.rates, b.rates)
        assert torch.equal(after.y, b.y)


@pytest.mark.parametrize("name", ["noise", "reverb", "band_limit", "true_rate"])
def test_a_batch_in_which_chance_picks_no_clip_is_left_alone(name: str) -> None:
    b = batch(2)
    assert torch.equal(run(b, AugmentConfig(**{name: 1e-9})).x, b.x)


def test_silent_clips_and_loud_settings_stay_finite() -> None:
    b = batch()
    b.x.zero_()
    after = run(b, ALL)
    assert after.x.isfinite().all() and after.x.abs().max() < 0.02  # noise is measured against -60 dB


def test_shift_moves_rows_by_the_stated_samples_and_fills_with_zeros() -> None:
    x, lengths = batch(4).x[..., 0], torch.tensor([4000, 4000, 100, 50])
    x = sound.cut(x, lengths)
    out = time.shift(x, lengths, np.array([160, -30, 7, -80]))
    assert torch.equal(out[0, 160:], x[0, :-160]) and not out[0, :160].any()
    assert torch.equal(out[1, :-30], x[1, 30:]) and not out[1, -30:].any()
    assert torch.equal(out[2, 7:100], x[2, :93]) and not out[2, 100:].any()
    assert not out[3].any()  # moved out of itself


def test_shift_stays_within_its_limit() -> None:
    b = batch(64, 1000)
    b.x.zero_()
    b.x[:, 500] = 1.0
    moved = run(b, AugmentConfig(shift=0.01)).x[..., 0].argmax(1) - 500
    assert 100 < moved.abs().max() <= 160 and moved.min() < 0 < moved.max()


@pytest.mark.parametrize("recorded", [False, True])
def test_noise_arrives_at_the_stated_ratio(recorded: bool) -> None:
    b = batch(16)
    noises = [(torch.randn(9000), 16000.0), (torch.randn(700), 44100.0)] if recorded else []
    added = (run(b, AugmentConfig(noise=1.0, noise_snr=(10.0, 10.0)), noises=noises).x - b.x)[..., 0]
    ratio = 10 * torch.log10(b.x[..., 0].square().mean(1) / added.square().mean(1))
    torch.testing.assert_close(ratio, torch.full((16,), 10.0), atol=0.01, rtol=0)
    ratios = 10 * torch.log10(
        b.x.square().mean((1, 2))
        / (run(b, AugmentConfig(noise=1.0, noise_snr=(-5.0, 20.0))).x - b.x).square().mean((1, 2))
    )
    assert -5.1 < ratios.min() < ratios.max() < 20.1 and ratios.std() > 3


def test_coloured_noise_falls_by_the_stated_power_of_the_frequency() -> None:
    x = sound.coloured_noise(
        torch.zeros(1, 65536), torch.tensor([16000.0]), torch.Generator().manual_seed(0), np.array([2.0])
    )
    p = spectrum(x[0])
    hz = 65536 / 16000
    low, high = (p[int(f * hz / 1.2) : int(f * hz * 1.2)].mean() for f in (300, 3000))
    assert 10 * np.log10(low / high) == pytest.approx(20, abs=1.5)


def test_recorded_noise_keeps_its_pitch_at_another_rate() -> None:
    noises = [(tone(1000.0, 44100, 44100.0), 44100.0)]
    piece = sound.recorded_noise(noises, 4000, 16000.0, np.random.default_rng(0))
    assert len(piece) == 4000 and peak_hz(piece) == pytest.approx(1000, abs=5)


def test_gain_stays_within_its_limits() -> None:
    b = batch(64, 10)
    gain = (run(b, AugmentConfig(gain=0.5)).x / b.x)[:, 0, 0].log()
    assert -0.5 < gain.min() < -0.3 and 0.3 < gain.max() < 0.5


def test_a_room_keeps_place_and_loudness_and_falls_by_60_decibels() -> None:
    x = torch.zeros(1, 16000)
    x[0, 1000] = 1.0
    wet = sound.room(
        x,
        torch.tensor([16000]),
        torch.tensor([16000.0]),
        torch.Generator().manual_seed(0),
        np.array([0.4]),
        np.array([0.0]),
    )[0]
    assert wet.abs().argmax() == 1000 and wet[:1000].abs().max() < 1e-5
    assert wet.square().sum().item() == pytest.approx(1.0, rel=1e-4)
    early, late = (wet[1000 + int(t * 16000) :][:800].square().mean().item() for t in (0.0625, 0.2625))
    assert 10 * np.log10(early / late) == pytest.approx(30, abs=1.5)  # half of 0.4 s


def test_a_microphone_is_a_smooth_response_without_delay() -> None:
    x = torch.stack([tone(f) for f in (100.0, 1000.0, 3000.0, 7900.0)])
    bends = np.zeros((4, sound.BENDS))
    bends[:, 1] = 6.0  # dB, one whole cosine over the mel scale
    out = sound.microphone(x, torch.full((4,), 16000.0), bends)
    for row, f in enumerate((100.0, 1000.0, 3000.0, 7900.0)):
        gain = 10 ** (6.0 * np.cos(2 * np.pi * np.log1p(f / 700) / np.log1p(8000 / 700)) / 20)
        inner = slice(500, 3500)  # away from the ends, where the tone begins and stops
        torch.testing.assert_close(out[row, inner], x[row, inner] * gain, atol=0.02, rtol=0.02)


def test_microphones_vary_by_their_standard_deviation() -> None:
    b = batch(256, 2000)
    out = run(b, AugmentConfig(microphone=5.0)).x[..., 0]
    level = 10 * torch.log10(torch.fft.rfft(out).abs().square() / torch.fft.rfft(b.x[..., 0]).abs().square())
    assert level[:, 100:900:10].std() == pytest.approx(5.0, rel=0.2)  # response at many frequencies of many clips


def test_a_low_pass_keeps_what_is_below_and_removes_what_is_above() -> None:
    x = (tone(500.0) + tone(3000.0))[None]
    out = spectrum(sound.low_pass(x, torch.tensor([16000.0]), np.array([2000.0]))[0])
    before = spectrum(x[0])
    assert out[125] / before[125] == pytest.approx(1.0, rel=0.02)  # 4 Hz a bin
    assert out[750] / before[750] < 1e-4


def test_band_limits_lie_between_an_eighth_and_a_half_of_the_rate() -> None:
    out = run(batch(64), AugmentConfig(band_limit=1.0)).x[..., 0]
    edges = []
    for row in out:
        p = spectrum(row)
        edges.append(np.flatnonzero(np.cumsum(p) > 0.999 * p.sum())[0] * 4.0)
    assert 1700 < min(edges) < 2500 and 6000 < max(edges) <= 8000


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_speed_changes_pitch_and_duration_about_the_middle(factor: float) -> None:
    x = tone(1000.0)[None] * torch.hann_window(4000)
    x = torch.cat([x, torch.zeros(1, 1000)], 1)
    out = time.speed(x, torch.tensor([4000]), np.array([factor]))[0]
    assert peak_hz(out[:4000]) == pytest.approx(1000 * factor, rel=0.02)
    energy = out.square()
    centre = (energy * torch.arange(5000)).sum() / energy.sum()
    assert float(centre) == pytest.approx(2000, abs=10) and not out[4000:].any()
    assert float(energy.sum() * factor / x.square().sum()) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("ratio", [0.5, 0.75, 1.5])
def test_another_true_rate_is_the_same_sound_with_another_label(ratio: float) -> None:
    x = (tone(440.0) * torch.hann_window(4000))[None]
    out, lengths, rates = time.change_rate(
        x, torch.tensor([4000]), torch.tensor([16000.0]), np.array([ratio]), np.array([False])
    )
    assert rates.item() == 16000 * ratio and lengths.item() == out.shape[1] == 4000 * ratio
    t = torch.arange(out.shape[1]) / ratio
    want = torch.sin(2 * torch.pi * 440 * t / 16000) * torch.sin(torch.pi * t / 4000) ** 2
    torch.testing.assert_close(out[0], want.float(), atol=2e-4, rtol=0)


def test_plain_decimation_keeps_every_second_sample() -> None:
    b = batch(2, lengths=[4000, 999])
    plain = np.array([True, True])
    out, lengths, rates = time.change_rate(b.x[..., 0], b.lengths, b.rates, np.array([0.5, 1.0]), plain)
    assert torch.equal(out[0], b.x[0, ::2, 0]) and lengths.tolist() == [2000, 999]
    assert rates.tolist() == [8000.0, 16000.0] and torch.equal(out[1, :999], b.x[1, :999, 0])


def test_true_rates_are_drawn_with_the_stated_probability() -> None:
    b = batch(400, 40)
    after = run(b, AugmentConfig(true_rate=0.25))
    changed = after.rates != b.rates
    assert 0.15 < changed.double().mean() < 0.35
    assert set((after.rates[changed] / 16000).tolist()) == set(TRUE_RATES)


def test_mixup_blends_sound_and_classes_alike_and_only_within_one_rate() -> None:
    b = batch(40, 400)
    b.rates[::2] = 8000.0
    b.x[:] = (b.y[:, None, None] + 1.0) * (1 + (b.rates[:, None, None] == 8000))
    after = run(b, AugmentConfig(mixup=0.5))
    assert after.y.shape == (40, 5)
    torch.testing.assert_close(after.y.sum(1), torch.ones(40))
    want = (after.y * torch.arange(1.0, 6.0)).sum(1) * torch.where(b.rates == 8000, 2.0, 1.0)
    torch.testing.assert_close(after.x[:, 0, 0], want)
    assert (after.y.max(1).values < 0.99).any()
    again = augment(after, AugmentConfig(mixup=0.5), torch.Generator())  # probabilities need no number of classes
    torch.testing.assert_close(again.y.sum(1), torch.ones(40))


def test_what_is_not_sound_is_refused() -> None:
    tokens = Batch(torch.zeros(2, 5, dtype=torch.int64), torch.tensor([5, 5]), torch.tensor([0, 1]))
    with pytest.raises(UserError, match="only recordings"):
        run(tokens, ALL)


@pytest.mark.parametrize("field", [{"noise": 1.5}, {"shift": -0.1}, {"speed": 0.9}, {"noise_snr": (30.0, 0.0)}])
def test_impossible_settings_are_refused_by_name(field: dict) -> None:
    with pytest.raises(UserError, match=f"augment.{next(iter(field))}"):
        AugmentConfig(**field)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_few_and_many_rows_have_the_same_transform(rows: int) -> None:
    x = torch.randn(rows, 1000, dtype=torch.float64)
    spectrum = rfft(x, 1152)
    torch.testing.assert_close(spectrum, torch.fft.rfft(x, 1152))
    torch.testing.assert_close(irfft(spectrum, 1152)[:, :1000], x)
    torch.testing.assert_close(resample(spectrum, 1152, 576), torch.fft.irfft(spectrum[:, :289], 576) / 2)


def test_level_brings_the_peak_anywhere_between_quiet_and_clipped() -> None:
    x = 0.3 * torch.randn(64, 400, 1)
    batch = Batch(x, torch.full((64,), 400), torch.zeros(64, dtype=torch.long), torch.full((64,), 1000.0).double())
    out = augment(batch, AugmentConfig(level=1.0), torch.Generator().manual_seed(0)).x
    peaks = out.abs().amax((1, 2))
    assert peaks.max() == 1.0 and (peaks == 1.0).sum() >= 3  # clipped ones
    assert peaks.min() < 10 ** (-35 / 20)
    whole = peaks < 1.0
    before = x.abs().amax((1, 2))
    torch.testing.assert_close(out[whole] / peaks[whole, None, None], x[whole] / before[whole, None, None])


def test_without_level_nothing_is_clipped() -> None:
    x = torch.full((4, 100, 1), 2.0)
    batch = Batch(x, torch.full((4,), 100), torch.zeros(4, dtype=torch.long), torch.full((4,), 1000.0).double())
    out = augment(batch, AugmentConfig(level=0.0, gain=0.01), torch.Generator().manual_seed(0)).x
    assert out.max() > 1.5
