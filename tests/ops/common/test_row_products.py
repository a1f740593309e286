"""Products of rows in panels equal numpy's for every number of rows and columns."""

import numpy as np
import pytest
from numba import njit

from kws_s5.ops.common.row_products import LANES, padded, panels, product


@njit
def _call(x, rows, K, w, n_panels, bias, out, stride):
    product(x, stride, rows, K, w, n_panels, bias, out, 4 * LANES * n_panels)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 9, 16, 29])
@pytest.mark.parametrize(("K", "O"), [(1, 1), (5, 16), (128, 128), (33, 17), (20, 200)])
def test_products_equal_those_in_float64(rows, K, O) -> None:
    random = np.random.default_rng(rows)
    x, weight = (random.standard_normal(shape).astype(np.float32) for shape in ((rows, K + 3), (O, K)))
    bias = np.pad(random.standard_normal(O).astype(np.float32), (0, padded(O) - O))
    packed, out = panels(weight), np.full((rows + 1, padded(O)), 7, np.float32)
    _call(x.ctypes.data, rows, K, packed.ctypes.data, len(packed), bias.ctypes.data, out.ctypes.data, x.strides[0])
    expected = x[:, :K].astype(np.float64) @ weight.T.astype(np.float64) + bias[:O]
    np.testing.assert_allclose(out[:rows, :O], expected, rtol=1e-5, atol=1e-5)
    assert (out[:rows, O:] == 0).all() and (out[rows] == 7).all()  # nothing is written elsewhere
