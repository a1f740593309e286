"""The short form of the bank's design gives what model/bank_design.py gives, and uses the same numbers."""

import numpy as np
import pytest
import torch

from kws_s5.export import constants as short_constants
from kws_s5.export.coefficients import (
    BAND,
    EXPONENT,
    GRID,
    NUMPY,
    OFFSET,
    SINE,
    TAPS,
    TOLERANCE,
    USABLE,
    poles,
    solve,
    taps,
)
from kws_s5.model import bank_design, front_bank, norm
from kws_s5.ops.bank import frames as bank_frames
from kws_s5.ops.bank import vector as bank_vector


@pytest.mark.parametrize("n_poles", [1, 2, 3])
@pytest.mark.parametrize("rate", [2000.0, 8000.0, 11025.0, 16000.0, 192000.0])
def test_poles_and_taps_equal_those_of_the_design(rate: float, n_poles: int) -> None:
    frequency = bank_design.mel_frequencies(16, 60.0, 7600.0)
    decay = bank_design.erb_decays(frequency, n_poles)
    a, c = bank_design.discretise_modes(decay, frequency, torch.tensor([rate], dtype=torch.float64), n_poles)
    a, c = (torch.complex(*t[0].chunk(2, -1)).numpy() for t in (a, c))  # (M,), (3, M)
    column = decay.numpy()[:, None], frequency.numpy()[:, None]
    np.testing.assert_allclose(poles(NUMPY, *column, rate)[:, 0], a, atol=1e-12)
    ours = np.concatenate(taps(NUMPY, *column, rate, n_poles), 1).T
    np.testing.assert_allclose(ours, c, atol=1e-10 * np.abs(c).max())
    assert ((ours == 0) == (c == 0)).all()


def test_the_constants_are_those_of_the_model() -> None:
    assert (TAPS, GRID, EXPONENT) == (bank_design.TAPS, bank_design.GRID, bank_design.EXPONENT)
    assert (BAND, USABLE) == (bank_design.BAND, bank_design.USABLE)
    assert (TOLERANCE, OFFSET, SINE) == (bank_frames.TOLERANCE, bank_vector.OFFSET, front_bank.SINE)
    ours = (short_constants.BATCH_EPSILON, short_constants.LAYER_EPSILON)
    assert ours == (norm.BATCH_EPSILON, norm.LAYER_EPSILON)


def test_elimination_solves_hermitian_systems() -> None:
    generator = np.random.default_rng(0)
    A = generator.standard_normal((3, 3)) + 1j * generator.standard_normal((3, 3))
    A, b = A @ A.conj().T + np.eye(3), generator.standard_normal(3) + 0j
    np.testing.assert_allclose(solve([list(row) for row in A], list(b)), np.linalg.solve(A, b))
