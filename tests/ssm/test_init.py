"""Initial values have the variances of the official code, whose fan-ins are easy to get wrong."""

import math

import pytest
import torch

from kws_s5.ssm.hippo import make_dplr_hippo_blocks
from kws_s5.ssm.init import init_B, init_C, init_log_step, lecun_normal

S, H = 64, 200


@pytest.fixture(scope="module")
def basis():
    torch.manual_seed(0)
    _, V, Vinv = make_dplr_hippo_blocks(S, 8, True)
    return V, Vinv


def test_lecun_normal_is_cut_at_two_deviations_and_keeps_its_variance():
    torch.manual_seed(1)
    values = lecun_normal((400_000,), fan_in=4)
    assert values.var().item() == pytest.approx(1 / 4, rel=0.01)
    assert values.abs().max().item() <= 2 / (0.8796 * 2)


def test_B_has_variance_one_over_state_size_whatever_the_features(basis):
    torch.manual_seed(2)
    B = init_B(H, basis[1])
    assert (B.abs() ** 2).mean().item() == pytest.approx(1 / S, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "power"),
    [("trunc_standard_normal", 2 / S), ("lecun_normal", 2 / (S * H)), ("complex_normal", 1.0)],
)
def test_C_has_the_power_of_its_initialiser(basis, kind, power):
    torch.manual_seed(3)
    C = init_C(H, basis[0], kind)
    assert C.shape == (H, S // 2)
    assert (C.abs() ** 2).mean().item() == pytest.approx(power, rel=0.05)


def test_log_step_is_uniform_between_its_limits():
    torch.manual_seed(4)
    log_step = init_log_step(20_000, 0.001, 0.1)
    low, high = math.log(0.001), math.log(0.1)
    assert log_step.shape == (20_000, 1)
    assert low <= log_step.min().item() and log_step.max().item() <= high
    assert log_step.mean().item() == pytest.approx((low + high) / 2, rel=0.01)
