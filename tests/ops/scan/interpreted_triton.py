"""The GPU kernels on the CPU, by Triton's interpreter. test_triton_launch.py runs this file in a process of its own:

    TRITON_INTERPRET=1 python -m pytest tests/ops/scan/interpreted_triton.py

Triton reads the variable when it is first imported, so it cannot be set inside the process of the other tests.
"""

import itertools
import os

import pytest
import torch

from kws_s5.ops.scan import operators, triton_launch
from kws_s5.ops.scan.choice import scan

assert os.environ.get("TRITON_INTERPRET") == "1", "see the first lines of this file"
for operator, kernel in [(operators.scan_op, triton_launch.forward), (operators.adjoint_op, triton_launch.adjoint)]:
    operator.register_kernel("cpu", kernel)  # in this process only

DIRECTIONS = ["forward", "backward", "both"]
KINDS = ["constant", "per clip", "per step"]
CASES = [(L, kind, "both", True) for L in (1, 2, 3, 63, 64) for kind in KINDS if L < 63 or kind != "per clip"] + [
    (65, kind, direction, direction != "both" and (kind, direction) != ("per step", "backward"))
    for kind, direction in itertools.product(KINDS, DIRECTIONS)
]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Fresh memory holds NaN, so that whatever a kernel forgets to write is seen."""
    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: new_empty(*a, **k).fill_(float("nan")))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(float("nan")))


@pytest.fixture
def short_chunks(monkeypatch):
    """Many rounds over few steps; one wide program, for the interpreter's time goes by operations, not by lanes."""
    monkeypatch.setattr(triton_launch, "STEPS", 16)  # T is 8 in float64, 4 per step, half of that in the gradient
    monkeypatch.setattr(triton_launch, "BLOCK", 512)


def planar(z):
    return torch.cat([z.real, z.imag], -1)


def make(L, kind, *, N=2, P=5, radius=None):
    """Planar float64: factors, Bu, initial state."""
    generator = torch.Generator().manual_seed(0)
    shape = {"constant": (P,), "per clip": (N, P), "per step": (N, L, P)}[kind]
    radii = 0.2 + 0.79 * torch.rand(shape, generator=generator, dtype=torch.float64)
    angle = 6 * torch.rand(shape, generator=generator, dtype=torch.float64)
    Bu = torch.randn(N, L, P, dtype=torch.complex128, generator=generator)
    a = torch.polar(torch.full_like(radii, radius) if radius else radii, angle)
    return planar(a), planar(Bu), torch.randn(N, 2 * P, dtype=torch.float64, generator=generator)


def loop(a, Bu, initial, direction):
    """The recurrence on complex numbers, written apart from the package."""
    if direction == "both":
        return torch.cat([loop(a, Bu, initial, "forward"), loop(a, Bu, None, "backward")], -1)
    N, L, P = Bu.shape
    a = (a[:, None] if a.dim() == 2 else a).expand(N, L, P)
    x = torch.zeros(N, P, dtype=Bu.dtype) if initial is None else initial
    out = {}
    for k in range(L) if direction == "forward" else range(L - 1, -1, -1):
        x = out[k] = (a[:, k] if direction == "forward" else a[:, min(k + 1, L - 1)]) * x + Bu[:, k]
    return planar(torch.stack([out[k] for k in range(L)], 1))


def compare(a, Bu, initial, direction, *, oracle, tolerance=1e-10):
    """Kernels against float64, outputs and all gradients; ``tolerance`` relative to the largest value."""
    inputs = [x.detach().clone().requires_grad_() for x in (a, Bu, initial) if x is not None]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = oracle(*exact[:2], exact[2] if len(exact) > 2 else None, direction)
    weights = torch.randn(expected.shape, dtype=Bu.dtype, generator=torch.Generator().manual_seed(1))
    references = torch.autograd.grad((expected * weights).sum(), exact, materialize_grads=True)
    xs = scan(*inputs[:2], direction=direction, initial=inputs[2] if len(inputs) > 2 else None, backend="triton")
    grads = torch.autograd.grad((xs * weights).sum(), inputs)
    for value, reference in zip([xs, *grads], [expected, *references], strict=True):
        assert value.dtype == Bu.dtype and value.shape == reference.shape
        assert (value - reference).abs().max() <= tolerance * (1 + reference.abs().max())  # false for NaN


def complex_loop(a, Bu, initial, direction):
    return loop(*(None if x is None else torch.complex(*x.chunk(2, -1)) for x in (a, Bu, initial)), direction)


def chunked(a, Bu, initial, direction):
    return scan(a, Bu, direction=direction, initial=initial, backend="chunked")


@pytest.mark.parametrize(("L", "kind", "direction", "start"), CASES)
def test_outputs_and_gradients_equal_the_complex_loop(L, kind, direction, start, short_chunks):
    a, Bu, initial = make(L, kind)
    compare(a, Bu, initial if start else None, direction, oracle=complex_loop)


@pytest.mark.parametrize("kind", KINDS)
def test_long_clips_take_several_rounds(kind, short_chunks):
    a, Bu, initial = make(1000, kind, P=2)
    compare(a, Bu, initial, "both", oracle=chunked)


@pytest.mark.parametrize(("kind", "L"), [("constant", 100), ("per step", 33)])
def test_float32_stays_close_to_float64_with_the_chunks_that_gpus_use(kind, L):
    a, Bu, initial = make(L, kind, P=3, radius=1 - 1e-3)
    compare(a.float(), Bu.float(), initial.float(), "both", oracle=chunked, tolerance=1e-5)


def test_frozen_factors_cost_no_gradient_and_do_not_change_the_others(short_chunks):
    a, Bu, _ = make(20, "constant")
    grads = []
    for x in (a, a.clone().requires_grad_()):
        Bu = Bu.detach().requires_grad_()
        grads += torch.autograd.grad(scan(x, Bu, direction="both", backend="triton").square().sum(), Bu)
    assert torch.equal(*grads)


def test_no_steps_and_no_clips_give_empty_states():
    for shape in [(2, 0, 4), (0, 3, 4)]:
        a, Bu = torch.rand(4, requires_grad=True), torch.zeros(shape, requires_grad=True)
        xs = scan(a, Bu, direction="both", backend="triton")
        assert xs.shape == (*shape[:2], 8)
        xs.sum().backward()
        assert Bu.grad.shape == shape and torch.equal(a.grad, torch.zeros(4))


def test_strided_inputs_and_gradients_are_read_correctly(short_chunks):
    a, Bu, _ = make(9, "constant")
    strided = Bu.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    assert not strided.is_contiguous()
    xs = scan(a, strided, backend="triton")
    expected = chunked(a, Bu.requires_grad_(), None, "forward")
    assert torch.allclose(xs, expected)
    (grad,) = torch.autograd.grad(xs.sum(), strided)  # the gradient of sum() is expanded: stride 0
    assert torch.allclose(grad, torch.autograd.grad(expected.sum(), Bu)[0])
