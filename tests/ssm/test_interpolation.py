"""Evaluation at a lower rate, against the same SSM run at its training rate on the up-sampled signal."""

import math

import pytest
import torch

from kws_s5.config import S5Mixer
from kws_s5.ssm.interpolation import below_nyquist, linear_weights
from kws_s5.ssm.s5 import S5SSM

H = 4


def small_ssm(**options) -> S5SSM:
    torch.manual_seed(0)
    return S5SSM(H, S5Mixer(ssm_size=16, blocks=2, **options)).double().eval()


def signal(N: int = 2, L: int = 40) -> torch.Tensor:
    return torch.randn(N, L, H, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def lines(u: torch.Tensor, r: int) -> torch.Tensor:
    """Straight lines between samples, r times as many; u_0 continues backwards: point k sits at index r k + r - 1."""
    before = torch.cat([u[:, :1], u[:, :-1]], 1)
    points = [before + (u - before) * (j + 1) / r for j in range(r)]
    return torch.stack(points, 2).flatten(1, 2)  # (N, r L, H)


@pytest.mark.parametrize("r", [2, 3, 4])
def test_hold_equals_the_training_rate_on_repeated_samples(r):
    ssm, u = small_ssm(), signal()
    slow = ssm(u, step_rescale=float(r))
    fast = ssm(u.repeat_interleave(r, 1))[:, r - 1 :: r]
    torch.testing.assert_close(slow, fast, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("r", [2, 3, 4])
def test_linear_equals_the_training_rate_on_straight_lines(r):
    ssm, u = small_ssm(), signal()
    ssm.interpolation = "linear"
    slow = ssm(u, step_rescale=float(r))
    fast = ssm(lines(u, r))[:, r - 1 :: r]
    torch.testing.assert_close(slow, fast, rtol=1e-9, atol=1e-11)


def test_the_backward_direction_is_the_mirror_image():
    ssm, u = small_ssm(bidirectional=True), signal()
    ssm.interpolation = "linear"
    mirrored = small_ssm(bidirectional=True)
    mirrored.interpolation = "linear"
    mirrored.load_state_dict({**ssm.state_dict(), "C1": ssm.C2.detach(), "C2": ssm.C1.detach()})
    torch.testing.assert_close(ssm(u, step_rescale=2.0), mirrored(u.flip(1), step_rescale=2.0).flip(1))


def test_linear_is_the_trained_model_at_its_own_rate_and_holds_above_it():
    ssm, u = small_ssm(bidirectional=True), signal()
    expected = [ssm(u), ssm(u, step_rescale=0.5)]
    ssm.interpolation = "linear"
    torch.testing.assert_close([ssm(u), ssm(u, step_rescale=0.5)], expected, rtol=1e-9, atol=1e-11)


def test_padding_changes_nothing_in_either_direction():
    ssm, u = small_ssm(bidirectional=True), signal(1, 25)
    ssm.interpolation = "linear"
    padded = torch.cat([u, torch.full((1, 15, H), 7.0, dtype=torch.float64)], 1)
    ys = ssm(padded, step_rescale=2.0, lengths=torch.tensor([25]))
    torch.testing.assert_close(ys[:, :25], ssm(u, step_rescale=2.0))


def test_each_clip_of_a_batch_has_its_own_rate():
    ssm, u = small_ssm(bidirectional=True), signal(3)
    ssm.interpolation, ssm.mask_above_nyquist = "linear", True
    rates = torch.tensor([1.0, 2.0, 16000 / 11025], dtype=torch.float64)
    together = ssm(u, step_rescale=rates)
    alone = torch.cat([ssm(u[i : i + 1], step_rescale=float(r)) for i, r in enumerate(rates)])
    torch.testing.assert_close(together, alone)


def test_weights_between_whole_factors_lie_between_theirs_and_stay_exact_at_tiny_steps():
    re, im = torch.tensor([-0.5]).double(), torch.tensor([0.3]).double()
    w1 = [linear_weights(re, im, torch.ones(1), torch.tensor(r))[2].real.item() for r in (1.0, 1.5, 2.0, 2.5, 3.0)]
    assert w1[0] == 0.0 and w1 == sorted(w1)
    Delta = torch.tensor([1e-9], dtype=torch.float64)
    _, w0, w1 = linear_weights(re, im, Delta, torch.tensor(2.0))
    # a -> 1: w0 = 1.5 Delta, w1 = 0.5 Delta
    assert w0.real.item() == pytest.approx(1.5e-9, rel=1e-8) and w1.real.item() == pytest.approx(0.5e-9, rel=1e-8)


def test_straight_lines_serve_a_slow_sine_better_than_steps():
    ssm = small_ssm()
    t = torch.arange(800, dtype=torch.float64)
    u = torch.sin(2 * math.pi * t / 40)[None, :, None].expand(1, 800, H)
    target = ssm(u)[:, ::2]
    held = ssm(u[:, ::2], step_rescale=2.0)
    ssm.interpolation = "linear"
    linear = ssm(u[:, ::2], step_rescale=2.0)
    error = [(ys - target)[:, 100:].norm() / target[:, 100:].norm() for ys in (held, linear)]
    assert error[1] < 0.4 * error[0], error


def test_masking_silences_exactly_the_modes_above_the_lower_nyquist_frequency():
    Lambda_im, Delta = torch.tensor([1.0, 2.0, 4.0]), torch.ones(3)
    assert below_nyquist(Lambda_im, Delta, 2.0).tolist() == [1.0, 0.0, 0.0]  # |Im| Delta r: 2, 4, 8
    assert below_nyquist(Lambda_im, Delta, 1.0).tolist() == [1.0, 1.0, 1.0]
    rates = torch.tensor([[1.0], [1.4], [4.0]])
    assert below_nyquist(Lambda_im, Delta, rates).sum(1).tolist() == [3.0, 2.0, 0.0]


@pytest.mark.parametrize("interpolation", ["hold", "linear"])
def test_a_masked_mode_contributes_nothing(interpolation):
    ssm, u = small_ssm(), signal()
    ssm.interpolation = interpolation
    with torch.no_grad():
        ssm.log_step.fill_(math.log(0.01))
        ssm.log_step[3] = math.log(2.0)  # |Im Lambda| 0.43 and more, times 2, times 4: above pi
        ssm.mask_above_nyquist = True
        masked = ssm(u, step_rescale=4.0)
        ssm.mask_above_nyquist = False
        ssm.C[:, 3] = 0.0
        torch.testing.assert_close(masked, ssm(u, step_rescale=4.0))
