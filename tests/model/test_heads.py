"""Heads: pooling over valid steps, frame decisions as windowed means, Gaussian outputs."""

import pytest
import torch

from kws_s5.config import ClassHead as ClassHeadConfig
from kws_s5.config import GaussianHead as GaussianHeadConfig
from kws_s5.config import PairHead as PairHeadConfig
from kws_s5.errors import UserError
from kws_s5.model.heads import ClassHead, GaussianHead, PairHead, build_head, pool

N, L, H, K = 3, 40, 6, 4
LENGTHS = torch.tensor([40, 1, 17])


def test_pooling_sees_valid_steps_only() -> None:
    x = torch.randn(N, L, H)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(pool(x, LENGTHS, "mean")[row], x[row, :length].mean(0))
        torch.testing.assert_close(pool(x, LENGTHS, "last")[row], x[row, length - 1])
    torch.testing.assert_close(pool(x, None, "mean"), x.mean(1))
    torch.testing.assert_close(pool(x, None, "last"), x[:, -1])


def frame_oracle(head: ClassHead, x: torch.Tensor, widths: list[int]) -> torch.Tensor:
    rows = [
        torch.stack([x[n, max(0, t + 1 - W) : t + 1].mean(0) for t in range(x.shape[1])]) for n, W in enumerate(widths)
    ]
    return head.decoder(torch.stack(rows))


@pytest.mark.parametrize("window", [1.0, 7.0, 40.0, 1000.0])
def test_frame_decisions_are_windowed_means(window: float) -> None:
    torch.manual_seed(0)
    head, x = ClassHead(H, K, window=window), torch.randn(N, L, H)
    expected = frame_oracle(head, x, [int(window)] * N)
    torch.testing.assert_close(head.frames(x), expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn_like(expected)
    ours = torch.autograd.grad((head.frames(x) * weight).sum(), list(head.parameters()))
    theirs = torch.autograd.grad((expected * weight).sum(), list(head.parameters()))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_the_window_is_physical_time_at_every_rate() -> None:
    head, x = ClassHead(H, K, window=12.0), torch.randn(N, L, H)
    torch.testing.assert_close(head.frames(x, step_rescale=2.0), frame_oracle(head, x, [6] * N), atol=1e-5, rtol=1e-5)
    rescale = torch.tensor([1.0, 2.0, 0.5])
    expected = frame_oracle(head, x, [12, 6, 24])
    torch.testing.assert_close(head.frames(x, step_rescale=rescale), expected, atol=1e-5, rtol=1e-5)


def test_the_last_frame_decides_as_the_clip_within_the_window() -> None:
    head, x = ClassHead(H, K, window=40.0), torch.randn(N, L, H)
    last = head.frames(x)[torch.arange(N), LENGTHS - 1]
    torch.testing.assert_close(last, head(x, LENGTHS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("rescale", [1.0, torch.tensor([1.0, 2.0, 0.5])], ids=["one rate", "rates"])
def test_chunks_of_frames_equal_the_whole(pooling: str, rescale: float | torch.Tensor) -> None:
    head, x = ClassHead(H, K, pooling=pooling, window=9.0), torch.randn(N, L, H)
    state, parts = head.initial_state(N, rescale), []
    for chunk in x.split([1, 0, 2, 30, 7], dim=1):
        logits, state = head.stream(chunk, state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), head.frames(x, step_rescale=rescale), atol=1e-6, rtol=1e-5)


def test_a_long_stream_does_not_drift() -> None:
    head = ClassHead(1, 1, window=3.0)
    state, generator = head.initial_state(1), torch.Generator().manual_seed(0)
    for _ in range(40):
        x = 1e4 * torch.randn(1, 5000, 1, generator=generator)
        logits, state = head.stream(x, state)
    expected = head.decoder(x[:, -3:].double().mean(1).float())
    torch.testing.assert_close(logits[:, -1], expected, atol=1e-2, rtol=1e-6)  # inputs of 1e4


def test_pairs_see_their_padding_and_order() -> None:
    head, x = PairHead(H, 2), torch.randn(2 * N, L, H)
    lengths = torch.tensor([5, 40, 8, 9, 12, 40])
    out = head(x, lengths)
    assert out.shape == (N, 2)
    x[0, 5:] = 99.0
    torch.testing.assert_close(head(x, lengths), out)
    assert not torch.allclose(head(x.roll(N, 0), lengths.roll(N)), out)


def test_gaussian_variance_is_positive_and_smooth_at_zero() -> None:
    torch.manual_seed(0)
    head, x = GaussianHead(H, 2), 50 * torch.randn(N, L, H)
    mean, variance = head(x)
    assert mean.shape == variance.shape == (N, L, 2)
    v = head.variance(x)
    assert (v < 0).any() and (v > 0).any()
    torch.testing.assert_close(variance[v < 0], v[v < 0].exp())
    torch.testing.assert_close(variance[v >= 0], v[v >= 0] + 1)
    huge = torch.tensor([[[1e3]]]).expand(1, 1, H).clone().requires_grad_()
    sum(o.sum() for o in head(huge)).backward()
    assert huge.grad.isfinite().all()


def test_build_head_chooses_by_the_configs_class() -> None:
    assert build_head(ClassHeadConfig(frame_logits=True, window=0.5), H, K, 100.0).window == 50.0
    assert build_head(ClassHeadConfig(), H, K, 0.0).window == 0.0
    assert isinstance(build_head(PairHeadConfig(), H, K, 0.0), PairHead)
    assert isinstance(build_head(GaussianHeadConfig(hidden=7), H, K, 0.0), GaussianHead)
    with pytest.raises(UserError, match="model.rate"):
        build_head(ClassHeadConfig(frame_logits=True), H, K, 0.0)


def test_a_frame_decoder_decides_frames_and_leaves_clips_alone() -> None:
    torch.manual_seed(0)
    plain, own = ClassHead(4, 3, window=5.0), ClassHead(4, 3, window=5.0, own=True)
    own.decoder.load_state_dict(plain.decoder.state_dict())
    x = torch.randn(2, 20, 4)
    torch.testing.assert_close(own(x), plain(x))
    own.frame_decoder.load_state_dict(plain.decoder.state_dict())
    torch.testing.assert_close(own.frames(x), plain.frames(x))
    with torch.no_grad():
        own.frame_decoder.bias += 1.0
    torch.testing.assert_close(own.frames(x), plain.frames(x) + 1.0)
    torch.testing.assert_close(own(x), plain(x))
