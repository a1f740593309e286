"""The fused first convolution equals torch's operators one by one: outputs and gradients."""

import pytest
import torch
import torch.nn.functional as F

from kws_s5.model.frames_kernel import conv_pool


@pytest.mark.parametrize("N, S, C", [(1, 24, 12), (31, 24, 12), (32, 24, 12), (75, 24, 12), (3, 8, 5), (40, 2, 1)])
def test_outputs_and_gradients_are_those_of_convolution_pooling_and_relu(N: int, S: int, C: int) -> None:
    torch.manual_seed(N + S)
    x, w, b = torch.rand(N, 1, S, S), torch.randn(C, 1, 5, 5, requires_grad=True), torch.randn(C, requires_grad=True)
    ours, theirs = conv_pool(x, w, b), F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=2)), 2)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    weight = torch.randn_like(theirs)
    for a, e in zip(*(torch.autograd.grad(out, (w, b), weight) for out in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, e, atol=1e-3, rtol=1e-4)


def test_black_pictures_give_the_bias_and_no_gradient_of_the_kernel() -> None:
    w, b = torch.randn(3, 1, 5, 5, requires_grad=True), torch.tensor([1.0, -1.0, 0.5], requires_grad=True)
    out = conv_pool(torch.zeros(2, 1, 8, 8), w, b)
    torch.testing.assert_close(out, b.detach().relu().view(1, 3, 1, 1).expand(2, 3, 4, 4))
    out.sum().backward()
    assert (w.grad == 0).all() and b.grad.tolist() == [32.0, 0.0, 32.0]


def test_a_gradient_that_is_not_contiguous_is_read_rightly() -> None:
    x, w = torch.rand(4, 1, 8, 8), torch.randn(3, 1, 5, 5, requires_grad=True)
    weight = torch.randn(4, 4, 4, 3).permute(0, 3, 1, 2)
    ours, theirs = (torch.autograd.grad(f, w, weight)[0] for f in (
        conv_pool(x, w, torch.zeros(3)), F.relu(F.max_pool2d(F.conv2d(x, w, padding=2), 2))))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
