"""Every scan backend against an independent complex128 loop: outputs and gradients, awkward lengths, all shapes."""

import itertools

import pytest
import torch

from kws_s5.ops.scan.choice import scan

BACKENDS = ["reference", "chunked", "cpu"]
RUNS = [(b, L) for b in BACKENDS for L in (1, 2, 3, 63, 1000) if (b, L) != ("reference", 1000)]
KINDS = ["constant", "per clip", "per step"]


def planar(z):
    return torch.cat([z.real, z.imag], -1)


def make(L, kind, *, N=3, P=5, seed=0):
    """Stable factors, inputs and an initial state, complex128."""
    generator = torch.Generator().manual_seed(seed)
    shape = {"constant": (P,), "per clip": (N, P), "per step": (N, L, P)}[kind]
    radius = 0.2 + 0.79 * torch.rand(shape, generator=generator, dtype=torch.float64)
    angle = 6 * torch.rand(shape, generator=generator, dtype=torch.float64)
    Bu = torch.randn(N, L, P, dtype=torch.complex128, generator=generator)
    initial = torch.randn(N, P, dtype=torch.complex128, generator=generator)
    return torch.polar(radius, angle), Bu, initial


def loop(a, Bu, initial, direction):
    """The recurrence on complex numbers, written apart from the package."""
    if direction == "both":
        return torch.cat([loop(a, Bu, initial, "forward"), loop(a, Bu, None, "backward")], -1)
    N, L, P = Bu.shape
    a = a.expand(N, L, P) if a.dim() != 2 else a[:, None].expand(N, L, P)
    x = torch.zeros(N, P, dtype=Bu.dtype) if initial is None else initial
    out = {}
    steps = range(L) if direction == "forward" else range(L - 1, -1, -1)
    for k in steps:
        factor = a[:, k] if direction == "forward" else a[:, min(k + 1, L - 1)]
        x = out[k] = factor * x + Bu[:, k]
    return planar(torch.stack([out[k] for k in range(L)], 1))


def cases():
    for kind, direction in itertools.product(KINDS, ["forward", "backward", "both"]):
        for start in (False, True):
            if not (start and direction == "backward" and kind == "per step"):
                yield kind, direction, start


@pytest.mark.parametrize(("backend", "L"), RUNS)
@pytest.mark.parametrize(("kind", "direction", "start"), list(cases()))
def test_outputs_and_gradients_equal_the_complex_loop(backend, L, kind, direction, start):
    a, Bu, initial = make(L, kind)
    leaves = [a, Bu] + ([initial] if start else [])
    leaves = [x.requires_grad_() for x in leaves]
    expected = loop(a, Bu, initial if start else None, direction)
    weights = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected_grads = torch.autograd.grad((expected * weights).sum(), leaves)

    inputs = [planar(x).detach().requires_grad_() for x in leaves]
    xs = scan(*inputs[:2], direction=direction, initial=inputs[2] if start else None, backend=backend)
    grads = torch.autograd.grad((xs * weights).sum(), inputs, allow_unused=True)
    assert torch.allclose(xs, expected, rtol=1e-10, atol=1e-10)
    for grad, reference in zip(grads, expected_grads, strict=True):
        grad = torch.zeros_like(planar(reference)) if grad is None else grad
        assert torch.allclose(grad, planar(reference), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_float32_stays_close_to_float64_over_a_long_scan(backend, direction):
    L = 300 if backend == "reference" else 5000
    a, Bu, _ = make(L, "constant", P=37, N=2)
    a = planar(a / a.abs() * (1 - 1e-3))  # slow decay: errors would pile up
    inputs = [a.float().requires_grad_(), planar(Bu).float().requires_grad_()]
    xs = scan(*inputs, direction=direction, backend=backend)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = scan(*exact, direction=direction, backend="chunked")
    weights = torch.randn(expected.shape, dtype=torch.float64)
    grads = torch.autograd.grad((xs * weights.float()).sum(), inputs)
    references = torch.autograd.grad((expected * weights).sum(), exact)
    for value, reference in zip([xs, *grads], [expected, *references], strict=True):
        assert value.dtype == torch.float32
        assert (value - reference).norm() / reference.norm() < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["forward", "both"])
def test_gradcheck(backend, kind, direction):
    a, Bu, initial = make(4, kind, N=2, P=3)
    inputs = [planar(x).requires_grad_() for x in (a, Bu, initial)]
    run = lambda a, Bu, initial: scan(a, Bu, direction=direction, initial=initial, backend=backend)  # noqa: E731
    assert torch.autograd.gradcheck(run, inputs)


def test_chunked_scan_can_be_differentiated_twice():
    a, Bu, initial = make(5, "constant", N=1, P=2)
    inputs = [planar(x).requires_grad_() for x in (a, Bu, initial)]
    run = lambda a, Bu, initial: scan(a, Bu, initial=initial, backend="chunked")  # noqa: E731
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_continuing_from_the_last_state_equals_one_scan(backend):
    a, Bu, initial = (planar(x) for x in make(50, "per step"))
    whole = scan(a, Bu, initial=initial, backend=backend)
    first = scan(a[:, :17], Bu[:, :17], initial=initial, backend=backend)
    second = scan(a[:, 17:], Bu[:, 17:], initial=first[:, -1], backend=backend)
    assert torch.allclose(torch.cat([first, second], 1), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_factor_of_one_sums_and_a_factor_of_zero_copies(backend):
    Bu = planar(make(40, "constant")[1])
    ones = torch.cat([torch.ones(5), torch.zeros(5)]).double()
    assert torch.allclose(scan(ones, Bu, backend=backend), Bu.cumsum(1), atol=1e-12)
    assert torch.equal(scan(torch.zeros(10).double(), Bu, backend=backend), Bu)


@pytest.mark.parametrize("backend", ["chunked", "cpu"])
def test_no_steps_and_no_clips_give_empty_states(backend):
    a = torch.rand(4)
    for shape in [(2, 0, 4), (0, 3, 4)]:
        Bu = torch.zeros(shape, requires_grad=True)
        xs = scan(a, Bu, direction="both", backend=backend)
        assert xs.shape == (*shape[:2], 8)
        xs.sum().backward()
        assert Bu.grad.shape == shape


@pytest.mark.parametrize("backend", ["chunked", "cpu"])
def test_strided_inputs_and_gradients_are_read_correctly(backend):
    a, Bu, _ = make(30, "constant", P=20)
    Bu = planar(Bu)
    strided = torch.stack([Bu, Bu], 2)[:, :, 0].transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    assert not strided.is_contiguous()
    xs = scan(planar(a), strided, backend=backend)
    assert torch.allclose(xs, scan(planar(a), Bu, backend="reference"))
    (grad,) = torch.autograd.grad(xs.sum(), strided)  # the gradient of sum() is expanded: stride 0
    plain = Bu.clone().requires_grad_()
    scan(planar(a), plain, backend="reference").sum().backward()
    assert torch.allclose(grad, plain.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_half_precision_inputs_are_scanned_in_float32(backend):
    a, Bu, _ = (planar(x).float() for x in make(20, "constant"))
    with torch.autocast("cpu", torch.bfloat16):
        xs = scan(a, Bu.bfloat16(), direction="both", backend=backend)
    assert xs.dtype == torch.float32
    assert torch.allclose(xs, scan(a, Bu.bfloat16().float(), direction="both", backend="reference"), atol=1e-5)


def test_wrong_shapes_and_directions_are_refused():
    a, Bu = torch.rand(4), torch.rand(2, 3, 4)
    for call in (
        lambda: scan(torch.rand(6), Bu),
        lambda: scan(a, Bu, direction="sideways"),
        lambda: scan(a, Bu, initial=torch.rand(2, 6)),
        lambda: scan(torch.rand(2, 3, 4), Bu, direction="backward", initial=torch.rand(2, 4)),
    ):
        with pytest.raises(AssertionError):
            call()
