"""HiPPO-N: known eigenvalues, reconstruction of the matrix, half of the spectrum, blocks."""

import pytest
import torch

from kws_s5.ssm.hippo import make_dplr_hippo_blocks, make_hippo, make_hippo_normal

# Magnitudes of the imaginary parts, computed once from the definition with another eigenvalue solver
GOLDEN = {
    2: [0.866],
    8: [19.8574, 5.3542, 1.9578, 0.4275],
    16: [80.966, 25.629, 13.834, 8.362, 5.09, 2.90, 1.372, 0.352],
}


@pytest.mark.parametrize("size", GOLDEN)
def test_eigenvalues_are_the_known_ones_with_negative_imaginary_parts(size):
    Lambda, _, _ = make_dplr_hippo_blocks(size, 1, True)
    assert torch.allclose(Lambda.real, torch.full((size // 2,), -0.5, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(Lambda.imag, -torch.tensor(GOLDEN[size], dtype=torch.float64), atol=5e-3, rtol=1e-4)


@pytest.mark.parametrize(("size", "largest"), [(32, 325.43), (128, 5214.7)])
def test_largest_eigenvalue_of_big_blocks(size, largest):
    Lambda, _, _ = make_dplr_hippo_blocks(size, 1, True)
    assert Lambda.imag.abs().max().item() == pytest.approx(largest, rel=1e-4)


def test_legs_matrix_equals_its_definition_entry_by_entry():
    A = make_hippo(5)
    for n in range(5):
        for k in range(5):
            expected = -(((2 * n + 1) * (2 * k + 1)) ** 0.5) if n > k else -(n + 1) if n == k else 0
            assert A[n, k].item() == pytest.approx(expected)


def test_full_spectrum_rebuilds_the_normal_matrix_in_every_block():
    blocks, size = 3, 8
    Lambda, V, Vinv = make_dplr_hippo_blocks(blocks * size, blocks, False)
    rebuilt = V @ torch.diag(Lambda) @ Vinv
    expected = torch.block_diag(*[make_hippo_normal(size)] * blocks)
    assert torch.allclose(rebuilt.imag, torch.zeros_like(expected), atol=1e-10)
    assert torch.allclose(rebuilt.real, expected, atol=1e-10)


def test_eigenvalues_equal_a_general_solver():
    Lambda, _, _ = make_dplr_hippo_blocks(16, 1, False)
    general = torch.linalg.eigvals(make_hippo_normal(16))
    assert torch.allclose(general.imag.sort().values, Lambda.imag, atol=1e-9)
    assert torch.allclose(general.real, Lambda.real, atol=1e-9)


def test_half_spectrum_is_the_half_of_each_block_with_its_conjugate_left_out():
    Lambda, V, Vinv = make_dplr_hippo_blocks(16, 2, True)
    assert Lambda.shape == (8,) and V.shape == (16, 8) and Vinv.shape == (8, 16)
    full, _, _ = make_dplr_hippo_blocks(16, 2, False)
    both = torch.cat([Lambda, Lambda.conj()])
    assert torch.allclose(both.imag.sort().values, full.imag.sort().values)
    assert torch.allclose(Vinv @ V, torch.eye(8, dtype=torch.complex128), atol=1e-12)
