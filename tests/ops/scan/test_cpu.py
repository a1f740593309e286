"""The compiled CPU scan as a torch operator: opcheck, compile, any width, any number of threads, fork."""

import os
import threading

import pytest
import torch

from kws_s5.ops.common import threads
from kws_s5.ops.scan import operators
from kws_s5.ops.scan.choice import scan


def inputs(N=3, L=50, P=8, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    angle = 6 * torch.rand(P, generator=generator, dtype=torch.float64)
    a = 0.95 * torch.cat([angle.cos(), angle.sin()])
    Bu = torch.randn(N, L, 2 * P, generator=generator, dtype=torch.float64)
    return a.to(dtype).requires_grad_(), Bu.to(dtype).requires_grad_()


def states_and_gradients(a, Bu, **options):
    xs = scan(a, Bu, **options)
    weights = torch.cos(torch.arange(xs.numel(), dtype=xs.dtype)).view_as(xs)
    return [xs.detach(), *torch.autograd.grad((xs * weights).sum(), [a, Bu])]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_opcheck(direction, kind):
    a, Bu = inputs(N=2, L=5, P=3)
    a = [a, a.repeat(2, 1), a.repeat(2, 5, 1)][kind - 1].detach().requires_grad_()
    initial = torch.randn(2, 6, requires_grad=True) if direction == "forward" else None
    torch.library.opcheck(operators.scan_op, (a, Bu, initial, direction))


def test_compiled_graph_has_no_breaks_and_the_same_results():
    a, Bu = inputs()
    run = torch.compile(lambda a, Bu: scan(a, Bu, direction="both").square(), fullgraph=True, backend="aot_eager")
    expected = scan(a, Bu, direction="both", backend="reference").square()
    assert torch.allclose(run(a, Bu), expected, atol=1e-4)
    grads = torch.autograd.grad(run(a, Bu).sum(), [a, Bu])
    for grad, reference in zip(grads, torch.autograd.grad(expected.sum(), [a, Bu]), strict=True):
        assert torch.allclose(grad, reference, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("P", [1, 2, 4, 7, 16, 33, 64, 75])
def test_any_number_of_modes(P, dtype):
    a, Bu = inputs(P=P, dtype=dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    for ours, reference in zip(
        states_and_gradients(a, Bu, direction="both", backend="cpu"),
        states_and_gradients(a, Bu, direction="both", backend="reference"),
        strict=True,
    ):
        assert torch.allclose(ours, reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("N", [1, 3])
@pytest.mark.parametrize("direction", ["forward", "both"])
def test_threads_and_slices_of_modes_do_not_change_a_bit(N, direction):
    a, Bu = inputs(N=N, L=700, P=50)
    before = torch.get_num_threads()
    results = []
    for n_threads in (1, 2, 3, 8):
        torch.set_num_threads(n_threads)
        results.append(states_and_gradients(a, Bu, direction=direction))
    torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(result, results[0], strict=True))


def test_without_torchs_openmp_a_thread_pool_gives_the_same(monkeypatch, two_threads):
    a, Bu = inputs(N=3, L=700, P=32)
    expected = states_and_gradients(a, Bu, direction="both")
    monkeypatch.setattr(threads, "_gomp", lambda: None)
    result = states_and_gradients(a, Bu, direction="both")
    assert all(torch.equal(x, y) for x, y in zip(result, expected, strict=True))


@pytest.mark.parametrize("pool", [False, True])
def test_python_threads_may_scan_at_the_same_time(monkeypatch, pool, two_threads):
    if pool:
        monkeypatch.setattr(threads, "_gomp", lambda: None)
    problems = [inputs(N=3, L=700, P=32, seed=seed) for seed in range(6)]
    expected = [scan(*problem, direction="both") for problem in problems]
    wrong = []

    def work(k):
        torch.set_num_threads(2)
        for _ in range(5):
            if not torch.equal(scan(*problems[k], direction="both"), expected[k]):
                wrong.append(k)

    callers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not wrong and not any(caller.is_alive() for caller in callers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_can_scan_after_its_parent_did(two_threads):
    a, Bu = inputs(N=3, L=700, P=32)
    with torch.no_grad():
        expected = scan(a, Bu, direction="both", backend="cpu")
        child = os.fork()
        if child == 0:
            xs = torch.ops.kws_s5.scan(a, Bu, None, "both")
            same = xs.numpy().tobytes() == expected.numpy().tobytes()  # torch's own threads do not outlive a fork
            os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_frozen_factors_cost_no_gradient():
    a, Bu = inputs()
    a = a.detach()
    scan(a, Bu).sum().backward()
    assert a.grad is None and Bu.grad is not None
