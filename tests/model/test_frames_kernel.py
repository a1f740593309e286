"""The compiled convolutions of the frame encoder equal torch's operators one by one: outputs and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kws_s5.model.frames_kernel import C, convolve


def plain(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    h = F.max_pool2d(F.relu(F.conv2d(x[:, None], w1, b1, padding=2)), 2)
    return F.max_pool2d(F.relu(F.conv2d(h, w2, b2, stride=2, padding=1)), 2).flatten(1)


def weights(scale: float = 0.2) -> list[Tensor]:
    shapes = ((C, 1, 5, 5), (C,), (C, C, 3, 3), (C,))
    return [(scale * torch.randn(shape)).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("N, S", [(1, 24), (16, 24), (75, 24), (3, 8), (18, 10), (5, 12), (20, 14), (17, 32)])
def test_outputs_and_gradients_are_those_of_convolutions_pooling_and_relu(N: int, S: int) -> None:
    torch.manual_seed(N + S)
    x, w = torch.rand(N, S, S), weights()
    ours, theirs = convolve(x, *w), plain(x.double(), *(p.double() for p in w)).float()
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    weight = torch.randn_like(theirs)
    for a, e in zip(*(torch.autograd.grad(out, w, weight) for out in (ours, theirs)), strict=True):
        assert a.shape == e.shape
        torch.testing.assert_close(a, e, atol=1e-5 * float(e.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_threads_and_keeping_for_the_gradient_change_nothing(n_threads: int) -> None:
    torch.manual_seed(0)
    x, w, before = torch.rand(70, 24, 24), weights(), torch.get_num_threads()
    expected = convolve(x, *w)
    gradient = torch.autograd.grad(expected.sum(), w)
    torch.set_num_threads(n_threads)
    try:
        out = convolve(x, *w)
        assert torch.equal(out, expected)
        assert all(torch.equal(a, e) for a, e in zip(torch.autograd.grad(out.sum(), w), gradient, strict=True))
        with torch.inference_mode():
            assert torch.equal(convolve(x, *w), expected)
    finally:
        torch.set_num_threads(before)


def test_black_pictures_give_the_biases_and_no_gradient_of_the_first_kernel() -> None:
    w1, b1, w2, b2 = weights()
    y = convolve(torch.zeros(2, 24, 24), w1, b1, w2, b2)
    torch.testing.assert_close(y, plain(torch.zeros(2, 24, 24), w1, b1, w2, b2))
    y.sum().backward()
    assert (w1.grad == 0).all() and b1.grad.abs().max() > 0


def test_a_gradient_that_is_not_contiguous_is_read_rightly() -> None:
    torch.manual_seed(0)
    x, w = torch.rand(4, 24, 24), weights()
    weight = torch.randn(C * 9, 4).T
    for a, e in zip(*(torch.autograd.grad(f(x, *w), w, weight) for f in (convolve, plain)), strict=True):
        torch.testing.assert_close(a, e, atol=1e-4, rtol=1e-4)


def test_what_is_not_a_number_stays_visible() -> None:
    w = weights()
    w[0].data[0, 0, 0, 0] = float("nan")
    assert convolve(torch.rand(1, 24, 24), *w).isnan().any()


def test_pictures_may_be_a_view_of_others() -> None:
    torch.manual_seed(0)
    x, w = torch.rand(6, 24, 24), weights()
    assert torch.equal(convolve(x.flip(2)[::2], *w), convolve(x.flip(2)[::2].contiguous(), *w))
