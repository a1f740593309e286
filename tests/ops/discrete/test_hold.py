"""The hold with its gradient written out equals the plain one: every |z|, irregular steps, whole systems."""

import copy
import math

import pytest
import torch

import kws_s5.ops
from kws_s5.config import S5Mixer
from kws_s5.ops.discrete.hold import fits, hold
from kws_s5.ssm.discretize import discretize
from kws_s5.ssm.s5 import S5SSM

ANGLES = [0.0, 0.6, math.pi / 2, 2.2, math.pi]


def exact(z: complex) -> tuple[complex, complex, complex]:
    """exp(z), phi(z) and phi'(z), summed term by term from the largest power down: no cancellation below |z| = 1."""
    phi = slope = 0j
    for k in range(25, -1, -1):
        phi = phi * z + 1 / math.factorial(k + 1)
        slope = slope * z + (k + 1) / math.factorial(k + 2)
    return 1 + z * phi, phi, slope


def value_and_gradients(run, z: complex) -> tuple[complex, complex, complex, complex]:
    """Lambda_bar, gamma, and what Lambda gets back from either, at Lambda = z and Delta = 1: conj(f'(z))."""
    parts = [torch.tensor([v], requires_grad=True, dtype=run[1]) for v in (z.real, z.imag)]
    a_re, a_im, g_re, g_im = run[0](*parts)
    slopes = [torch.autograd.grad(part.sum(), parts, retain_graph=True) for part in (a_re, g_re)]
    a_re, a_im, g_re, g_im = (float(part.detach()) for part in (a_re, a_im, g_re, g_im))
    return (complex(a_re, a_im), complex(g_re, g_im), *(complex(re, im) for re, im in slopes))


def held(re, im):
    (a, g) = hold(re, im, torch.zeros(1, 1), 1.0)
    return *a.chunk(2), *g.chunk(2)


def plain(re, im):
    return discretize(re, im, torch.ones(1, dtype=torch.float64))


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("way", ["held", "plain", "plain in float64"])
def test_values_and_gradients_are_exact_from_far_inside_the_series_to_far_outside(angle: float, way: str) -> None:
    """|z| from 1e-6 to 1: a radius of 1e-2, 1 or 0 for either series fails here."""
    run, tolerance = {
        "held": ((held, torch.float32), 2e-7),
        "plain": ((plain, torch.float32), 2e-7),
        "plain in float64": ((plain, torch.float64), 3e-14),
    }[way]
    for k in range(73):
        size = 10 ** (-6 + k / 12)
        z = torch.tensor([size * math.cos(angle), size * math.sin(angle)], dtype=run[1])
        z = complex(float(z[0]), float(z[1]))
        a, phi, slope = exact(z)
        for found, wanted in zip(value_and_gradients(run, z), (a, phi, a.conjugate(), slope.conjugate()), strict=True):
            assert abs(found - wanted) < tolerance * abs(wanted), (size, found, wanted)


@pytest.mark.parametrize("scale", [1.0, torch.rand(7).double(), torch.rand(3, 5)])
def test_several_scales_at_once_are_those_of_the_plain_operators(scale) -> None:
    torch.manual_seed(0)
    leaves = [
        torch.tensor([0.0, 1e-12, -1e-6, -0.0999, -0.5, -3.0]),
        torch.tensor([0.0, 0.0, 1e-7, 0.003, -19.9, 400.0]),
        -2 * torch.rand(6, 1),
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    doubled = [leaf.detach().double().requires_grad_() for leaf in leaves]
    ours = hold(*leaves, scale)
    Delta = doubled[2][:, 0].exp() * (scale[..., None] if isinstance(scale, torch.Tensor) else scale)
    a_re, a_im, g_re, g_im = discretize(*doubled[:2], Delta)
    theirs = torch.cat([a_re, a_im], -1), torch.cat([g_re, g_im], -1)
    weights = [torch.randn(v.shape, dtype=torch.float64) for v in theirs]
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), wanted, atol=1e-12, rtol=1e-7)
    gradients = (
        torch.autograd.grad(sum((w * v.double()).sum() for w, v in zip(weights, values, strict=True)), at)
        for values, at in ((ours, leaves), (theirs, doubled))
    )
    for mine, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(mine.double(), wanted, atol=2e-6, rtol=1e-6)


def results(seq, rescale):
    seq.zero_grad()
    Lambda_bar, B_bar = seq._system(rescale)
    weights = torch.Generator().manual_seed(1)
    loss = sum((torch.randn(t.shape, generator=weights) * t).sum() for t in (Lambda_bar, B_bar))
    loss.backward()
    return [Lambda_bar.detach(), B_bar.detach(), *(p.grad for p in (seq.Lambda_re, seq.Lambda_im, seq.log_step, seq.B))]


@pytest.mark.parametrize("eigenvalues", ["free", "exp", "clip"])
@pytest.mark.parametrize("rescale", [1.0, 2.0, torch.tensor(0.5)])
def test_the_system_of_a_layer_equals_the_one_in_double_precision(eigenvalues, rescale):
    torch.manual_seed(0)
    seq = S5SSM(7, S5Mixer(ssm_size=12, blocks=2, eigenvalues=eigenvalues, dt_min=1e-4, dt_max=0.5))
    doubled = results(copy.deepcopy(seq).double(), rescale)
    for ours, theirs in zip(results(seq, rescale), doubled, strict=True):
        assert ours.dtype == torch.float32 and ours.shape == theirs.shape
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=2e-6 * float(theirs.abs().max()))


def test_the_switch_decides_which_way_a_layer_takes() -> None:
    seq = S5SSM(3, S5Mixer(ssm_size=4, blocks=1))
    for mode, taken in (("auto", True), ("reference", False)):
        with kws_s5.ops.use(mode):
            assert ("_Hold" in type(seq._system(1.0)[0].grad_fn).__name__) == taken
            assert fits(1.0, seq.B) == taken


def test_slowest_modes_keep_their_digits():
    seq = S5SSM(3, S5Mixer(ssm_size=4, blocks=1))
    with torch.no_grad():
        seq.Lambda_re.copy_(torch.tensor([0.0, -1e-9]))
        seq.Lambda_im.copy_(torch.tensor([0.0, 1e-9]))
    doubled = results(copy.deepcopy(seq).double(), 1.0)
    for ours, theirs in zip(results(seq, 1.0), doubled, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-9)


def test_without_gradients_and_after_a_diverged_step():
    seq = S5SSM(3, S5Mixer(ssm_size=4, blocks=1))
    with torch.no_grad():
        seq.Lambda_re.fill_(float("nan"))
        assert seq._system(1.0)[1].isnan().all()
