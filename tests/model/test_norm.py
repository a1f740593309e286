"""Norms: flax's conventions, and padding that stays out of the statistics."""

import pytest
import torch
import torch.nn.functional as F

from kws_s5.model.norm import BatchNorm, LayerNorm, valid_steps

N, L, H = 3, 11, 5
LENGTHS = torch.tensor([11, 4, 7])


def batch_norm(**kwargs: float) -> BatchNorm:
    torch.manual_seed(0)
    norm = BatchNorm(H, **kwargs).train()
    with torch.no_grad():
        norm.scale.normal_()
        norm.bias.normal_()
    return norm


def test_running_statistics_follow_flax_momentum_and_biased_variance() -> None:
    norm, x = batch_norm(momentum=0.9), torch.randn(N, L, H) * 3 + 2
    norm(x)
    flat = x.reshape(-1, H).double()
    torch.testing.assert_close(norm.mean.double(), 0.1 * flat.mean(0), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(norm.var.double(), 0.9 + 0.1 * flat.var(0, correction=0), atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
def test_training_equals_the_formula_on_valid_steps_with_gradients(lengths: torch.Tensor | None) -> None:
    norm, x = batch_norm(), (torch.randn(N, L, H) * 3 + 2).requires_grad_()
    mask = torch.ones(N, L, dtype=torch.bool) if lengths is None else valid_steps(lengths, L)
    y = norm(x, lengths)[mask]
    weight = torch.randn_like(y)
    ours = torch.autograd.grad((y * weight).sum(), [x, norm.scale, norm.bias])
    rows = x.detach().double()[mask].requires_grad_()  # oracle: float64, valid rows only
    scale, bias = (p.detach().double().requires_grad_() for p in (norm.scale, norm.bias))
    expected = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt() * scale + bias
    theirs = torch.autograd.grad((expected * weight.double()).sum(), [rows, scale, bias])
    torch.testing.assert_close(y.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[0][mask].double(), theirs[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours[1].double(), theirs[1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours[2].double(), theirs[2], atol=1e-4, rtol=1e-4)


def test_padding_does_not_change_batch_statistics() -> None:
    x = torch.randn(N, L, H)
    short, long = batch_norm(), batch_norm()
    y_short = short(x, LENGTHS)
    y_long = long(torch.cat([x, 100 * torch.randn(N, 6, H)], 1), LENGTHS)
    torch.testing.assert_close(y_short, y_long[:, :L], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(short.mean, long.mean, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(short.var, long.var, atol=1e-6, rtol=1e-5)


def test_full_lengths_equal_no_lengths() -> None:
    x, full = torch.randn(N, L, H), torch.full((N,), L)
    torch.testing.assert_close(batch_norm()(x, full), batch_norm()(x), atol=1e-5, rtol=1e-5)


def test_evaluation_is_the_affine_map_of_torch() -> None:
    norm, x = batch_norm().eval(), torch.randn(N, L, H)
    with torch.no_grad():
        norm.mean.normal_()
        norm.var.uniform_(0.1, 2)
    expected = F.batch_norm(x.mT, norm.mean, norm.var, norm.scale, norm.bias, eps=1e-5).mT
    torch.testing.assert_close(norm(x), expected, atol=1e-5, rtol=1e-5)


def test_one_step_in_training_gives_the_bias() -> None:
    norm = batch_norm()
    torch.testing.assert_close(norm(torch.randn(1, 1, H))[0, 0], norm.bias)
    assert torch.isfinite(norm.var).all()


def test_statistics_stay_float32_under_autocast() -> None:
    norm, x = batch_norm(), torch.randn(N, L, H)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = norm(x, LENGTHS)
    torch.testing.assert_close(y, batch_norm()(x, LENGTHS), atol=0, rtol=0)


def test_layer_norm_uses_flax_epsilon() -> None:
    x = 1e-3 * torch.randn(N, L, H)
    centred = x - x.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(LayerNorm(H)(x), expected, atol=1e-4, rtol=1e-4)
