"""Changes of a front's features in training: each does what it says, none is active in evaluation."""

import torch

from kws_s5.model.mask import LOST, FeatureMask, set_masks, warped

N, F, M = 64, 50, 40


def changed(**strength: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Input and output of a training mask of these strengths; the fill value is 7."""
    torch.manual_seed(0)
    mask = FeatureMask(100.0).train()
    assert set_masks(mask, **strength) == 1
    x = torch.randn(N, F, M)
    return x, mask(x, None, torch.full((M,), 7.0))


def test_a_top_mask_hides_the_upper_channels_of_its_share_of_the_clips() -> None:
    _, y = changed(top=0.5)
    hidden = (y == 7.0).all(1)  # (N, M): a channel is hidden in all frames or in none
    assert torch.equal(hidden, (y == 7.0).any(1))
    assert bool((hidden.int().diff(dim=1) >= 0).all()), "only an upper end is hidden"
    assert int(hidden.sum(1).max()) <= round(LOST * M)
    assert 0.3 < float(hidden.any(1).float().mean()) < 0.7


def test_a_warp_moves_a_ridge_by_its_factor_and_keeps_the_lowest_channel() -> None:
    x = torch.zeros(3, F, M)
    x[:, :, 20], x[:, :, 0] = 1.0, 0.5
    y = warped(x, torch.tensor([1.0, 0.8, 1.25]))
    assert torch.equal(y[0], x[0])
    assert y[1, 0].argmax() == 25 and y[2, 0].argmax() == 16
    assert bool((y[:, :, 0] == 0.5).all())


def test_a_warp_continues_the_edge() -> None:
    x = torch.arange(float(M)).expand(1, F, M)
    y = warped(x, torch.tensor([1.5]))
    assert torch.allclose(y[0, 0], (1.5 * torch.arange(float(M))).clamp(max=M - 1.0))


def test_evaluation_changes_nothing() -> None:
    mask = FeatureMask(100.0)
    set_masks(mask, time=0.3, frequency=0.5, top=1.0, warp=0.2)
    x = torch.randn(N, F, M)
    assert torch.equal(mask.eval()(x, None, torch.zeros(M)), x)


def test_the_same_seed_gives_the_same_change() -> None:
    strength = {"time": 0.2, "frequency": 0.3, "top": 0.3, "warp": 0.1}
    assert torch.equal(changed(**strength)[1], changed(**strength)[1])
