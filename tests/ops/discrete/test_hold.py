"""The zero-order hold with its gradient written out equals the plain one, near zero too."""

import pytest
import torch

from kws_s5.ops.discrete.hold import hold
from kws_s5.ssm.discretize import discretize


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 6)])
def test_values_and_gradients_are_those_of_the_plain_operators(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    re = torch.tensor([0.0, 1e-12, -1e-6, -0.0999, -0.5, -3.0])
    im = torch.tensor([0.0, 0.0, 1e-7, 0.003, -19.9, 400.0])
    leaves = [re.requires_grad_(), im.requires_grad_(), torch.rand(shape, dtype=torch.float64).requires_grad_()]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    ours, theirs = hold(*leaves), discretize(*exact)
    weights = [torch.randn(shape, dtype=torch.float64) for _ in ours]
    for a, e in zip(ours, theirs, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), e, atol=1e-12, rtol=1e-7)
    gradients = (torch.autograd.grad(sum((w * v.double()).sum() for w, v in zip(weights, values, strict=True)), at)
                 for values, at in ((ours, leaves), (theirs, exact)))
    for a, e in zip(*gradients, strict=True):
        torch.testing.assert_close(a.double(), e, atol=1e-6, rtol=1e-6)


def test_training_in_float32_takes_it_and_evaluation_agrees() -> None:
    re, im, step = torch.tensor([-0.5], requires_grad=True), torch.tensor([-3.0]), torch.tensor([[0.1], [2.0]])
    values = discretize(re, im, step)
    assert "Hold" in type(values[0].grad_fn).__name__
    with torch.no_grad():
        for a, e in zip(values, discretize(re, im, step), strict=True):
            torch.testing.assert_close(a, e, atol=1e-7, rtol=1e-6)
