"""The system of a layer in numpy equals the one in tensor operations, values and gradients."""

import copy

import pytest
import torch

from kws_s5.config import SSMConfig
from kws_s5.ssm.s5 import S5SSM


def results(seq, rescale):
    seq.zero_grad()
    Lambda_bar, B_bar = seq._system(rescale)
    weights = torch.Generator().manual_seed(1)
    loss = sum((torch.randn(t.shape, generator=weights) * t).sum() for t in (Lambda_bar, B_bar))
    loss.backward()
    return [Lambda_bar.detach(), B_bar.detach(), *(p.grad for p in (seq.Lambda_re, seq.Lambda_im, seq.log_step, seq.B))]


@pytest.mark.parametrize("eigenvalues", ["free", "exp", "clip"])
@pytest.mark.parametrize("rescale", [1.0, 2.0, torch.tensor(0.5)])
def test_system_equals_the_one_in_double_precision(eigenvalues, rescale):
    torch.manual_seed(0)
    seq = S5SSM(7, SSMConfig(ssm_size=12, blocks=2, eigenvalues=eigenvalues, dt_min=1e-4, dt_max=0.5))
    exact = results(copy.deepcopy(seq).double(), rescale)
    for ours, theirs in zip(results(seq, rescale), exact, strict=True):
        assert ours.dtype == torch.float32 and ours.shape == theirs.shape
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=2e-6 * float(theirs.abs().max()))


def test_slowest_modes_keep_their_digits():
    seq = S5SSM(3, SSMConfig(ssm_size=4, blocks=1))
    with torch.no_grad():
        seq.Lambda_re.copy_(torch.tensor([0.0, -1e-9]))
        seq.Lambda_im.copy_(torch.tensor([0.0, 1e-9]))
    exact = results(copy.deepcopy(seq).double(), 1.0)
    for ours, theirs in zip(results(seq, 1.0), exact, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-9)


def test_without_gradients_and_after_a_diverged_step():
    seq = S5SSM(3, SSMConfig(ssm_size=4, blocks=1))
    with torch.no_grad():
        seq.Lambda_re.fill_(float("nan"))
        assert seq._system(1.0)[1].isnan().all()
