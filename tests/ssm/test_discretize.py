"""Discretisation against dense matrix formulas, near the removable singularity, and its precision in float32."""

import pytest
import torch

from kws_s5.ssm.discretize import discretize

RE = torch.tensor([-0.5, -0.01, 0.0, -3.0, 0.2], dtype=torch.float64)
IM = torch.tensor([-19.9, 0.3, 0.0, 0.0, 1e-9], dtype=torch.float64)
DELTA = torch.tensor([0.1, 1e-3, 0.5, 0.7, 1e-4], dtype=torch.float64)


def as_complex(values):
    a_re, a_im, g_re, g_im = values
    return torch.complex(a_re, a_im), torch.complex(g_re, g_im)


def test_zoh_equals_matrix_exponential_of_the_augmented_system():
    a, gamma = as_complex(discretize(RE, IM, DELTA))
    for p in range(len(RE)):
        augmented = torch.zeros(2, 2, dtype=torch.complex128)
        augmented[0, 0], augmented[0, 1] = torch.complex(RE[p], IM[p]), 1
        exact = torch.linalg.matrix_exp(augmented * DELTA[p])
        assert torch.allclose(a[p], exact[0, 0], rtol=1e-12)
        assert torch.allclose(gamma[p], exact[0, 1], rtol=1e-12)


def test_bilinear_equals_its_dense_formula():
    a, gamma = as_complex(discretize(RE, IM, DELTA, "bilinear"))
    A, eye, step = torch.diag(torch.complex(RE, IM)), torch.eye(5), torch.diag(DELTA).to(torch.complex128)
    inverse = torch.linalg.inv(eye - step @ A / 2)
    assert torch.allclose(a, torch.diag(inverse @ (eye + step @ A / 2)), rtol=1e-12)
    assert torch.allclose(gamma, torch.diag(inverse @ step), rtol=1e-12)


@pytest.mark.parametrize("method", ["zoh", "bilinear"])
def test_gradients_are_exact_also_at_and_around_zero(method):
    re = torch.tensor([0.0, 1e-12, -1e-6, -0.0999, -0.1001, -0.5], dtype=torch.float64, requires_grad=True)
    im = torch.tensor([0.0, 0.0, 1e-7, 0.003, 0.003, -8.0], dtype=torch.float64, requires_grad=True)
    step = torch.full((2, 6), 1.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *x: discretize(*x, method), (re, im, step))


def test_slope_of_the_gain_at_zero_is_half_a_squared_step():
    re = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    gain = discretize(re, torch.zeros(1, dtype=torch.float64), torch.tensor([3.0]))[2]
    assert gain.item() == 3.0
    assert torch.autograd.grad(gain.sum(), re)[0].item() == pytest.approx(4.5)


def test_series_and_closed_form_meet_without_a_jump():
    Delta = torch.tensor([1.0], dtype=torch.float64)
    angle = torch.tensor([1.1], dtype=torch.float64)
    inside, outside = (discretize(r * angle.cos(), r * angle.sin(), Delta)[2:] for r in (0.1 - 1e-13, 0.1 + 1e-13))
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(inside, outside, strict=True))


def test_float32_gain_keeps_seven_digits_at_the_smallest_steps():
    re, im = torch.full((50,), -0.5), -torch.linspace(0.4, 20, 50)
    Delta = torch.full((50,), 1e-4)
    single = as_complex(discretize(re, im, Delta))[1]
    double = as_complex(discretize(re.double(), im.double(), Delta.double()))[1]
    assert ((single - double).abs() / double.abs()).max() < 2e-7


def test_any_leading_axes_of_the_step():
    Delta = torch.rand(3, 4, 5, dtype=torch.float64)
    whole = discretize(RE, IM, Delta)
    for n in range(3):
        for k in range(4):
            one = discretize(RE, IM, Delta[n, k])
            assert all(torch.equal(w[n, k], o) for w, o in zip(whole, one, strict=True))
