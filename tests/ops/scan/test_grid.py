"""The scan with systems from a table equals the reference scan on gathered rows: states and gradients."""

import pytest
import torch

import kws_s5.ops
from kws_s5.config import S5Mixer
from kws_s5.ops.scan.choice import scan
from kws_s5.ops.scan.grid import scan_grid
from kws_s5.ops.scan.reference import multiply
from kws_s5.ssm.s5 import S5SSM


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("N, L, P, M", [(3, 17, 8, 4), (1, 1, 3, 1), (2, 5, 21, 7)])
def test_states_and_gradients_are_those_of_the_reference(direction: str, N: int, L: int, P: int, M: int) -> None:
    torch.manual_seed(0)
    table = (0.5 * torch.randn(M, 4 * P, dtype=torch.float64)).requires_grad_()
    v, place = torch.randn(N, L, 2 * P, dtype=torch.float64, requires_grad=True), torch.randint(M, (N, L))
    ours = scan_grid(table, place, v, direction)
    a, g = table[place].chunk(2, -1)
    theirs = scan(a, multiply(g, v), direction=direction, backend="reference")
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn_like(theirs)
    for x, e in zip(*(torch.autograd.grad(y, (table, v), weight) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(x, e)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_model_at_times_on_a_grid_is_the_one_at_any_times(bidirectional: bool) -> None:
    torch.manual_seed(0)
    model = S5SSM(6, S5Mixer(ssm_size=16, blocks=2, bidirectional=bidirectional))
    u, dt = torch.randn(4, 30, 6), torch.randint(1, 5, (4, 30)).float()
    with kws_s5.ops.use("auto"):
        ours = model(u, dt=dt)
    assert any("_Scan" in type(f).__name__ for f in _graph(ours.grad_fn))
    theirs = model(u, dt=dt.clone().requires_grad_())  # intervals with a gradient are taken one by one
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    pairs = zip(*(torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (ours, theirs)), strict=True)
    for a, e in pairs:
        torch.testing.assert_close(a, e, atol=1e-5 * float(e.abs().max()), rtol=1e-4)


def _graph(node, seen=None):
    seen = set() if seen is None else seen
    if node is not None and node not in seen:
        seen.add(node)
        for following, _ in node.next_functions:
            _graph(following, seen)
    return seen
