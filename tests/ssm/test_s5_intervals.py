"""Intervals that repeat are discretised once each: the same outputs and gradients as step by step."""

import torch

from kws_s5.config import S5Mixer
from kws_s5.ssm.s5 import S5SSM, _distinct


def run(dt: torch.Tensor, *, bidirectional: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layer = S5SSM(4, S5Mixer(ssm_size=8, blocks=2, dt_min=0.01, bidirectional=bidirectional)).double()
    u = torch.randn(3, 40, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 40, 4, dtype=torch.float64)
    ys = layer(u, dt=dt)
    return [ys, *torch.autograd.grad((ys * weight).sum(), [u, *layer.parameters()])]


def test_repeated_intervals_give_the_outputs_and_gradients_of_each_on_its_own() -> None:
    grid = torch.randint(1, 6, (3, 40), generator=torch.Generator().manual_seed(1)).double()
    for bidirectional in (False, True):
        once = run(grid, bidirectional=bidirectional)
        alone = run(grid.clone().requires_grad_(), bidirectional=bidirectional)
        for a, b in zip(once, alone, strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-10)


def test_only_repeating_intervals_take_the_short_way() -> None:
    grid = torch.tensor([[1.0, 2, 1, 1, 2, 1, 1, 1]])
    values, place = _distinct(grid)
    assert values.tolist() == [1, 2] and torch.equal(values[place], grid)
    every = torch.rand(2, 8)
    assert _distinct(every) == (every, None)
    learned = grid.clone().requires_grad_()
    assert _distinct(learned)[1] is None  # its gradient is wanted
