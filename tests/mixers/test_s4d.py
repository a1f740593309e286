"""S4D against its definition: dense matrices in continuous time, and a loop over steps and features in complex128."""

import math

import pytest
import torch

from kws_s5.config import S4DMixer
from kws_s5.errors import UserError
from kws_s5.mixers.s4d import S4D, initial_A
from kws_s5.ssm.hippo import make_hippo_normal

H, N_STATES = 3, 6
LENGTHS = (1, 2, 3, 7, 64, 65)  # also lengths that no tile of the kernel divides


def make(**options: object) -> S4D:
    torch.manual_seed(0)
    return S4D(H, S4DMixer(**{"n_states": N_STATES, "dt_min": 0.01, "dt_max": 0.5} | options)).double()


def reference(mixer: S4D, u: torch.Tensor, rescale: float = 1.0) -> torch.Tensor:
    """(N, L, H) -> (N, L, H): the recurrence of each feature by itself."""
    A = torch.complex(-torch.exp(mixer.log_A_real), mixer.A_imag)  # (H, P)
    Delta = rescale * torch.exp(mixer.log_step)  # (H, 1)
    if mixer.discretization == "zoh":
        A_bar = torch.exp(A * Delta)
        B_bar = (A_bar - 1) / A
    else:
        A_bar, B_bar = (1 + A * Delta / 2) / (1 - A * Delta / 2), Delta / (1 - A * Delta / 2)
    C, x, ys = torch.complex(*mixer.C.unbind(-1)), torch.zeros(len(u), *A.shape, dtype=A.dtype), []
    for k in range(u.shape[1]):
        x = A_bar * x + B_bar * u[:, k, :, None]
        ys.append(2 * (C * x).sum(-1).real + mixer.D * u[:, k])
    return torch.stack(ys, 1)


@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
@pytest.mark.parametrize("init", ["lin", "inv", "legs"])
@pytest.mark.parametrize("L", LENGTHS)
def test_convolution_and_stream_equal_the_recurrence_with_gradients(L: int, init: str, discretization: str) -> None:
    mixer = make(init=init, discretization=discretization)
    u = torch.randn(2, L, H, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, L, H, dtype=torch.float64)
    wanted = [u, *mixer.parameters()]
    forms = {
        "reference": reference(mixer, u, 2.0),
        "convolution": mixer(u, step_rescale=2.0),
        "stream": mixer.stream(u, mixer.initial_state(2), step_rescale=2.0)[0],
    }
    gradients = {name: torch.autograd.grad((y * weight).sum(), wanted) for name, y in forms.items()}
    for name, y in forms.items():
        torch.testing.assert_close(y, forms["reference"], atol=1e-9, rtol=1e-9, msg=name)
        for found, expected in zip(gradients[name], gradients["reference"], strict=True):
            torch.testing.assert_close(found, expected, atol=1e-8, rtol=1e-7, msg=name)


def test_a_rescaled_step_is_the_system_sampled_more_coarsely() -> None:
    """Zero-order hold is exact where the input is held: every second output of the doubled sequence."""
    mixer = make(init="inv")
    u = torch.randn(1, 40, H, dtype=torch.float64)
    fine = mixer(u.repeat_interleave(2, 1))
    torch.testing.assert_close(mixer(u, step_rescale=2.0), fine[:, 1::2], atol=1e-10, rtol=1e-10)
    assert (mixer(u) - fine[:, 1::2]).abs().max() > 0.01


def test_the_continuous_system_is_a_dense_real_one() -> None:
    """One step of zero-order hold from the matrix exponential of a real system with conjugate pairs written out."""
    mixer = make(init="lin")
    A = torch.complex(-torch.exp(mixer.log_A_real), mixer.A_imag)[1]  # of feature 1
    C = torch.complex(*mixer.C.unbind(-1))[1]
    P, Delta = len(A), torch.exp(mixer.log_step[1])
    dense, B, out = torch.zeros(2 * P, 2 * P).double(), torch.zeros(2 * P).double(), torch.zeros(2 * P).double()
    for p in range(P):  # re, im of state p
        a, b = A[p].real, A[p].imag
        dense[2 * p : 2 * p + 2, 2 * p : 2 * p + 2] = torch.stack([torch.stack([a, -b]), torch.stack([b, a])]).detach()
        B[2 * p], out[2 * p], out[2 * p + 1] = 1.0, 2 * C[p].real.item(), -2 * C[p].imag.item()
    augmented = torch.zeros(2 * P + 1, 2 * P + 1).double()
    augmented[:-1, :-1], augmented[:-1, -1] = dense * Delta.detach(), B * Delta.detach()
    step = torch.linalg.matrix_exp(augmented)
    kernel = [out @ torch.linalg.matrix_power(step[:-1, :-1], k) @ step[:-1, -1] for k in range(8)]
    torch.testing.assert_close(mixer.kernel(8)[1].detach(), torch.stack(kernel), atol=1e-10, rtol=1e-10)


def test_each_clip_may_have_its_own_rate() -> None:
    mixer, u = make(), torch.randn(3, 30, H, dtype=torch.float64)
    each = mixer(u, step_rescale=torch.tensor([1.0, 2.0, 0.5]))
    for i, rescale in enumerate((1.0, 2.0, 0.5)):
        torch.testing.assert_close(each[i], mixer(u, step_rescale=rescale)[i], atol=1e-10, rtol=1e-10)


def test_the_three_starts_are_those_of_the_paper() -> None:
    lin, inv, legs = (initial_A(kind, 64) for kind in ("lin", "inv", "legs"))
    for A in (lin, inv, legs):
        torch.testing.assert_close(A.real, torch.full((32,), -0.5).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(lin.imag[:3], torch.tensor([0.0, math.pi, 2 * math.pi]).double())
    torch.testing.assert_close(inv.imag[:2], torch.tensor([64 / math.pi * 63, 64 / math.pi * (64 / 3 - 1)]).double())
    exact = torch.linalg.eigvals(make_hippo_normal(64)).imag
    torch.testing.assert_close(legs.imag.sort().values, exact[exact > 0].sort().values, atol=1e-8, rtol=1e-8)
    top = legs.imag.sort(descending=True).values  # S4D-Inv was made to be near S4D-LegS where frequencies are high
    assert (inv.imag[1:4] / top[1:4] - 1).abs().max() < 0.1


def test_float32_is_good_at_16000_steps() -> None:
    torch.manual_seed(0)
    mixer = S4D(H, S4DMixer(n_states=16))
    u = torch.randn(1, 16_000, H)
    with torch.no_grad():
        y = mixer(u).double()
        streamed = mixer.stream(u, mixer.initial_state(1))[0].double()
        exact = mixer.double()(u.double())
    scale = exact.abs().max()
    assert (y - exact).abs().max() / scale < 1e-5 and (streamed - exact).abs().max() / scale < 1e-4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_states": 5}, "mixer.n_states = 5"),
        ({"init": "hippo"}, "mixer.init"),
        ({"dt_min": 0.0}, "mixer.dt_min"),
        ({"discretization": "foh"}, "mixer.discretization"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        S4DMixer(**options)
