"""The bank front: the same features at every rate, exact frames of physical time, streams, learnable poles, masks."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from kws_s5.config.model import BankFront
from kws_s5.errors import UserError
from kws_s5.model.front import build_front
from kws_s5.model.mask import set_masks

RATES = [8000, 11025, 16000, 22050, 44100, 48000]


def front(H: int = 6, **fields):
    torch.manual_seed(0)
    built = build_front(BankFront(**{"n_modes": 16, **fields}), H, 16000.0).eval()
    built.norm.mean += torch.randn(16)
    built.norm.var += torch.rand(16)
    return built


def sound(rate: int, *, below: float = 3500.0, seed: int = 0) -> torch.Tensor:
    """One second of band-limited noise, louder and softer ten times, sampled at ``rate``: (1, rate, 1)."""
    rng, t = np.random.default_rng(seed), np.arange(48000) / 48000
    loudness = np.interp(t, np.linspace(0, 1, 11), 10 ** rng.uniform(-2, 0, 11))
    spectrum = np.fft.rfft(rng.normal(size=48000) * loudness)
    spectrum[int(below) :] = 0  # bins are 1 Hz wide
    return torch.from_numpy(np.fft.irfft(spectrum[: rate // 2 + 1], rate) * rate / 48000).float()[None, :, None]


@pytest.mark.parametrize("rate", RATES)
def test_band_limited_sound_has_the_same_log_powers_at_every_rate(rate: int) -> None:
    bank = front()
    present = bank.modes()[1] < 3000
    seen = []
    bank.norm.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0][0]))
    with torch.no_grad():
        for r in (48000, rate):
            bank(sound(r), None, 16000 / r)
    difference = (seen[1] - seen[0])[5:, present]  # the sound begins with a jump, which no band holds
    assert float(difference.square().mean().sqrt()) < 0.01  # nats
    assert float(difference.abs().max()) < 0.1


@pytest.mark.parametrize("rate", [*RATES, 4000, 12345])
def test_a_second_of_sound_gives_frame_rate_frames_at_every_rate(rate: int) -> None:
    lengths = torch.tensor([rate, (rate + 1) // 2])
    for rescale in (16000 / rate, torch.tensor([16000 / rate] * 2), torch.tensor([16000 / rate] * 2).double()):
        features = front()(torch.zeros(2, rate, 1), lengths, rescale)
        assert features.lengths.tolist() == [100, 50] and features.lengths.dtype == torch.int64
        assert features.x.shape == (2, 100, 6) and features.step_rescale == 1.0
    assert front()(torch.zeros(1, rate, 1), None, 16000 / rate).lengths is None


def test_a_clip_shorter_than_a_frame_gives_one_frame() -> None:
    x = torch.randn(2, 1000, 1)
    features = front()(x, torch.tensor([1000, 7]))
    assert features.lengths.tolist() == [6, 1]
    torch.testing.assert_close(features.x[1:, :1], front()(x[1:, :7]).x)
    assert front()(x, torch.tensor([1000, 0])).lengths.tolist() == [6, 0]


def test_padding_and_neighbours_do_not_change_a_clip() -> None:
    bank, clips = front(), [torch.randn(1, n, 1) for n in (1600, 2205, 700)]
    rates = torch.tensor([16000.0, 22050.0, 8000.0])
    batch = torch.full((3, 2500, 1), 9.0)
    for row, clip in enumerate(clips):
        batch[row, : clip.shape[1]] = clip[0]
    together = bank(batch, torch.tensor([1600, 2205, 700]), 16000.0 / rates)
    assert together.lengths.tolist() == [10, 10, 8]
    for row, (clip, rate) in enumerate(zip(clips, rates.tolist(), strict=True)):
        alone = bank(clip, None, 16000.0 / rate).x[0]
        torch.testing.assert_close(together.x[row, : len(alone)], alone)


@pytest.mark.parametrize("rate", [16000, 11025, 44100])
@pytest.mark.parametrize("chunks", [[1] * 40 + [0, 3, 500], [4000], [159, 160, 161, 1, 7]])
def test_a_stream_gives_the_frames_of_the_whole_clip(rate: int, chunks: list[int]) -> None:
    bank, x = front(absent="mean"), torch.randn(2, 4000, 1)
    chunks = [*chunks, 4000 - sum(chunks)]
    state, frames = bank.initial_state(2, 16000 / rate), []
    sizes = {k: v.shape for k, v in state.items()}
    with torch.no_grad():
        whole = bank(x, None, 16000 / rate).x
    for chunk in x.split(chunks, 1):
        before = save(state)
        out, following = bank.stream(chunk, state)
        assert save(state) == before, "a stream can be forked"
        state = load(save(following))
        frames.append(out)
    torch.testing.assert_close(torch.cat(frames, 1), whole, rtol=1e-5, atol=1e-5)
    assert {k: v.shape for k, v in state.items()} == sizes


def test_streams_of_several_rates_in_one_batch_are_refused() -> None:
    with pytest.raises(UserError, match="same rate"):
        front().initial_state(2, torch.tensor([1.0, 2.0]))
    assert front().initial_state(2, torch.tensor([2.0, 2.0]))["rate"].tolist() == [8000.0]


def test_absent_modes_are_silent_or_average() -> None:
    low = {}
    for absent in ("floor", "mean"):
        bank = front(absent=absent, floor=1e-5)
        bank.mask.register_forward_hook(lambda module, inputs, output, absent=absent: low.update({absent: output}))
        present = bank.modes()[1] < 0.95 * 2000
        with torch.no_grad():
            bank(torch.randn(1, 4000, 1), None, 4.0)
            silent = bank.norm(torch.full((1, 1, 16), 1e-5).log())[0, 0]
        wanted = {"floor": silent, "mean": bank.norm.bias}[absent]
        torch.testing.assert_close(low[absent][0, 50, ~present], wanted[~present])
    torch.testing.assert_close(low["floor"][..., present], low["mean"][..., present])


def test_a_bank_ends_below_the_nyquist_frequency_of_the_training_rate() -> None:
    assert build_front(BankFront(), 4, 8000.0).modes()[1].max().item() == pytest.approx(3800)
    assert build_front(BankFront(), 4, 16000.0).modes()[1].max().item() == pytest.approx(7600)


def test_poles_are_learned_and_stay_stable_under_any_step() -> None:
    bank = front().train()
    bank(sound(16000)).x.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in bank.parameters())
    assert bank.log_decay.grad.abs().max() > 0 and bank.log_frequency.grad.abs().max() > 0
    with torch.no_grad():
        bank.log_decay += 3 * torch.randn(16)
        bank.log_frequency += torch.randn(16)
        decay, frequency = bank.modes()
        assert (decay > 0).all() and (frequency > 0).all() and (frequency < 8000).all()
        assert bank(sound(16000)).x.isfinite().all()
    assert not [n for n, _ in front(learnable=False).named_parameters() if n.startswith("log_")]


def test_changed_poles_are_seen_without_gradients() -> None:
    bank, x = front(), sound(16000)
    with torch.no_grad():
        before = bank(x).x
        bank.log_frequency += 0.1
        assert not torch.allclose(bank(x).x, before)
        bank.log_frequency -= 0.1
        torch.testing.assert_close(bank(x).x, before)


def test_poles_moved_by_a_fused_optimiser_step_are_seen_without_gradients() -> None:
    bank, x = front(), sound(16000)
    poles = [bank.log_decay, bank.log_frequency]
    optimiser = torch.optim.AdamW(poles, lr=0.1, fused=True)  # leaves identity and version counter as they were
    with torch.no_grad():
        before = bank(x).x
    for pole in poles:
        pole.grad = torch.ones_like(pole)
    optimiser.step()
    with torch.no_grad():
        assert not torch.allclose(bank(x).x, before)


def test_the_sound_itself_can_have_a_gradient() -> None:
    x = sound(8000)[:, :800].requires_grad_()
    front()(x, None, 2.0).x.sum().backward()
    assert x.grad.abs().max() > 0 and x.grad.isfinite().all()


def test_masks_hide_at_most_what_was_asked_and_only_in_training() -> None:
    bank = front().train()
    with torch.no_grad():
        bank.norm.bias += torch.randn(16)
    masked = []
    bank.mask.register_forward_hook(lambda module, inputs, output: masked.append(output == bank.norm.bias))
    assert set_masks(bank, time=0.2, frequency=0.25) == 1
    lengths = torch.tensor([16000, 8000] * 8)
    x = sound(16000).expand(16, -1, -1)
    for mode in (True, False):
        bank.train(mode)(x, lengths)
    hidden, evaluation = masked
    assert not evaluation.any()
    frames, channels = hidden.all(2).sum(1), hidden.all(1).sum(1)  # (N,)
    assert 0 < frames.max() <= 20 and 0 < channels.max() <= 4
    assert len(frames.unique()) > 3 and not hidden.all(2)[1::2, 50:].any()  # inside the clip's own frames


def test_masks_follow_the_seed() -> None:
    bank, x = front().train(), sound(16000)
    set_masks(bank, time=0.3, frequency=0.3)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(bank(x).x)
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])


def test_mistakes_are_told_in_one_line() -> None:
    with pytest.raises(UserError, match="evenly sampled"):
        front()(torch.zeros(1, 100, 1), dt=torch.ones(1, 100))
    with pytest.raises(UserError, match="at least 125 Hz"):
        front()(torch.zeros(1, 100, 1), None, 160.0)
    with pytest.raises(UserError, match="training rate"):
        build_front(BankFront(), 4, 0.0)
    with pytest.raises(UserError, match="f_min"):
        build_front(BankFront(f_min=900.0), 4, 1000.0)
