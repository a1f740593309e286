"""The log-mel baseline: torchaudio's numbers, exact frame counts, streams, one rate only."""

import librosa
import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from kws_s5.config.model import LogMelFront
from kws_s5.errors import UserError
from kws_s5.model.front import build_front
from kws_s5.model.mask import set_masks


def front(rate: float = 16000.0, **fields):
    torch.manual_seed(0)
    built = build_front(LogMelFront(**{"n_mels": 20, **fields}), 6, rate).eval()
    built.norm.mean += torch.randn(20)
    return built


def powers(built, x: torch.Tensor) -> torch.Tensor:
    seen = []
    hook = built.norm.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].exp() - built.floor))
    with torch.no_grad():
        built(x)
    hook.remove()
    return seen[0]


def test_a_sine_has_its_own_power_in_its_own_band() -> None:
    x = torch.sin(2 * torch.pi * 1000 * torch.arange(16000) / 16000)[None, :, None]
    power = powers(front(), x)[0, 50]
    assert power.sum().item() == pytest.approx(0.75, rel=0.35)  # a window's main lobe is wider than a bin
    assert power.max() > 100 * power[[0, -1]].max()


def test_powers_are_those_of_a_plain_fourier_transform() -> None:
    built, x = front(), torch.randn(1, 1600, 1)
    f = 4  # ends at 800
    window = torch.zeros(512)
    window[56:456] = torch.hann_window(400)
    spectrum = torch.fft.rfft(x[0, 800 - 512 : 800, 0] * window).abs().square() * 2 / window.sum() ** 2
    want = spectrum @ built.spectrogram.mel_scale.fb
    torch.testing.assert_close(powers(built, x)[0, f], want, rtol=1e-3, atol=1e-7)


def test_powers_are_those_of_librosa() -> None:
    built, x = front(), torch.randn(1, 3200, 1)
    padded = np.concatenate([np.zeros(512 - 160), x[0, :, 0].numpy()])
    want = librosa.feature.melspectrogram(
        y=padded,
        sr=16000,
        n_fft=512,
        win_length=400,
        hop_length=160,
        center=False,
        n_mels=20,
        fmin=60.0,
        fmax=7600.0,
        htk=True,
        norm=None,
    )  # (M, F)
    scale = 2.0 / np.hanning(401)[:400].sum() ** 2
    np.testing.assert_allclose(powers(built, x)[0].numpy(), scale * want.T, rtol=2e-3, atol=1e-7)


def test_a_second_gives_frame_rate_frames_and_padding_changes_nothing() -> None:
    x = torch.randn(3, 16000, 1)
    lengths = torch.tensor([16000, 8000, 70])
    features = front()(x, lengths, torch.ones(3))
    assert features.x.shape == (3, 100, 6) and features.step_rescale == 1.0
    assert features.lengths.tolist() == [100, 50, 1] and features.lengths.dtype == torch.int64
    for row, n in enumerate(lengths.tolist()):
        alone = front()(x[row : row + 1, :n]).x[0]
        torch.testing.assert_close(features.x[row, : len(alone)], alone)


@pytest.mark.parametrize("chunks", [[1] * 30 + [0, 600], [4000], [159, 160, 161, 1, 7], [159, 1, 2]])
def test_a_stream_gives_the_frames_of_the_whole_clip(chunks: list[int]) -> None:
    built, x = front(), torch.randn(2, 4000, 1)
    state, frames = built.initial_state(2), []
    for chunk in x.split([*chunks, 4000 - sum(chunks)], 1):
        before = save(state)
        out, following = built.stream(chunk, state)
        assert save(state) == before, "a stream can be forked"
        frames.append(out)
        assert {k: v.shape for k, v in following.items()} == {k: v.shape for k, v in state.items()}
        state = load(save(following))
    torch.testing.assert_close(torch.cat(frames, 1), built(x).x, rtol=1e-4, atol=1e-5)


def test_other_rates_are_refused_with_the_way_out() -> None:
    for call in (lambda: front()(torch.zeros(1, 800, 1), None, 2.0), lambda: front().initial_state(1, 2.0)):
        with pytest.raises(UserError, match="8000 Hz.*resample it first"):
            call()
    with pytest.raises(UserError, match="whole number of samples"):
        front(11025.0)
    with pytest.raises(UserError, match="training rate"):
        front(0.0)
    with pytest.raises(UserError, match="evenly sampled"):
        front()(torch.zeros(1, 800, 1), dt=torch.ones(1, 800))


def test_it_trains_and_masks() -> None:
    built = front().train()
    assert set_masks(built, time=0.1, frequency=0.2) == 1
    built(torch.randn(4, 4000, 1), torch.tensor([4000, 4000, 2000, 1000])).x.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in built.parameters())
