"""The parts of the fused layer on a tile of rows, against numpy and torch: products, outer products, recurrences."""

import numpy as np
import pytest
import torch
from numba import njit

from kws_s5.ops.common import amx
from kws_s5.ops.common.columns import columnwise
from kws_s5.ops.common.row_products import panels
from kws_s5.ops.layer.half_products import half_outer, half_panels, half_product, work_size
from kws_s5.ops.layer.outer_products import outer
from kws_s5.ops.layer.packing import pack
from kws_s5.ops.layer.tile_scan import adjoint, scan

needs_amx = pytest.mark.skipif(not amx.has_amx(), reason="the processor has no unit for bfloat16 products")
SHAPES = [(1, 1, 1), (7, 21, 40), (64, 96, 128), (100, 128, 96), (33, 32, 64)]


def room(rows, width, fill=0.0):
    """Rows filled up to blocks of 32 each way."""
    return np.full((-(-rows // 32) * 32, -(-width // 32) * 32), fill, np.float32)


def rows_of(rows, width, seed=0):
    x = room(rows, width)
    x[rows:] = np.nan  # what stands behind the tile
    x[:rows, :width] = np.random.default_rng(seed).standard_normal((rows, width))
    return x


def rounded(x):
    return torch.from_numpy(x).bfloat16().double().numpy()


@njit
def run_outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride):
    outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride)


@pytest.mark.parametrize(("rows", "O", "K"), SHAPES)
def test_outer_products_are_added(rows, O, K):
    a, x, out = rows_of(rows, O), rows_of(rows, K, 1), room(O, K, 2.0)
    run_outer(a.ctypes.data, a.strides[0], O, x.ctypes.data, x.strides[0], K, rows, out.ctypes.data, out.strides[0])
    exact = 2.0 + a[:rows, :O].T.astype(float) @ x[:rows, :K]
    np.testing.assert_allclose(out[:O, :K], exact, rtol=1e-5, atol=1e-5 * rows**0.5)


if amx.has_amx():

    @njit
    def run_half(a, a_stride, rows, K, weights, O, out, out_stride, work, saved):
        amx.configure(saved)
        half_product(a, a_stride, rows, K, weights, O, out, out_stride, work)
        amx.restore(saved)

    @njit
    def run_half_outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride, work, saved):
        amx.configure(saved)
        half_outer(a, a_stride, O, x, x_stride, K, rows, out, out_stride, work)
        amx.restore(saved)


@needs_amx
@pytest.mark.parametrize(("rows", "K", "O"), SHAPES)
def test_half_products_round_operands_and_nothing_else(rows, K, O):
    a, out = rows_of(rows, K), room(rows, O, np.nan)
    weight = torch.randn(O, K, generator=torch.Generator().manual_seed(0))
    packed, saved = half_panels(weight), np.zeros(128, np.uint8)
    work = np.zeros(work_size(rows, max(K, O)), np.uint8)
    run_half(
        a.ctypes.data,
        a.strides[0],
        rows,
        K,
        packed.data_ptr(),
        O,
        out.ctypes.data,
        out.strides[0],
        work.ctypes.data,
        saved.ctypes.data,
    )
    left, right = a[:rows, :K], weight.numpy()
    exact = rounded(left) @ rounded(right).T
    np.testing.assert_allclose(out[:rows, :O], exact, rtol=1e-5, atol=1e-5)


@needs_amx
@pytest.mark.parametrize(("rows", "O", "K"), SHAPES)
def test_half_outer_products_round_operands_and_nothing_else(rows, O, K):
    a, x, out = rows_of(rows, O), rows_of(rows, K, 1), room(O, K, 2.0)
    work, saved = np.zeros(work_size(rows, max(K, O)), np.uint8), np.zeros(128, np.uint8)
    run_half_outer(
        a.ctypes.data,
        a.strides[0],
        O,
        x.ctypes.data,
        x.strides[0],
        K,
        rows,
        out.ctypes.data,
        out.strides[0],
        work.ctypes.data,
        saved.ctypes.data,
    )
    left, right = a[:rows, :O].T, x[:rows, :K]
    exact = 2.0 + rounded(left) @ rounded(right)
    np.testing.assert_allclose(out[:O, :K], exact, rtol=1e-5, atol=1e-5)


@needs_amx
def test_torch_still_multiplies_after_the_registers_were_used():
    a = torch.randn(64, 64).bfloat16()
    before = a @ a
    test_half_products_round_operands_and_nothing_else(64, 96, 128)
    assert torch.equal(a @ a, before)


@columnwise("rrcs")
def scaled(out, x, gain, total):
    y = gain * x
    return {0: y, 3: total + y}


@njit
def run_scaled(table, first, last, H):
    scaled(table, first, last, H)


@pytest.mark.parametrize("H", [1, 16, 21, 96])
def test_columns_see_their_rows_only_and_sums_grow(H):
    random = np.random.default_rng(0)
    x, gain = random.standard_normal((9, H)).astype(np.float32), random.standard_normal(H).astype(np.float32)
    out, total = np.full((9, H), 7.0, np.float32), np.ones(H)
    places = [out.ctypes.data, 4 * H, x.ctypes.data, 4 * H, gain.ctypes.data, 0, total.ctypes.data, 0]
    table = np.array(places, np.int64)
    run_scaled(table.ctypes.data, 2, 7, H)
    np.testing.assert_allclose(out[2:7], x[2:7] * gain, rtol=1e-6)
    assert (out[:2] == 7).all() and (out[7:] == 7).all()
    np.testing.assert_allclose(total, 1 + (x[2:7] * gain).sum(0), rtol=1e-5)


@njit
def run_scan(a, start, v, step, rows, P, end):
    scan(a, start, v, step, v, step, rows, P, end)


@njit
def run_adjoint(a, g, d, step, xs, start, rows, P, end, sums):
    adjoint(a, g, d, step, xs, step, start, d, step, rows, P, end, sums)


def pairs(random, *shape):
    """Planar pairs and the same as complex numbers."""
    x = (random.standard_normal(shape) * 0.5).astype(np.float32)
    P = shape[-1] // 2
    return x, x[..., :P].astype(complex) + 1j * x[..., P:]


def planar(z):
    return np.concatenate([z.real, z.imag], -1)


@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize("P", [1, 20, 64])
@pytest.mark.parametrize("rows", [1, 2, 50])
def test_recurrence_and_its_gradient(from_end, P, rows):
    random = np.random.default_rng(0)
    (a, za), (start, zs), (v, zv), (d, zd), (g, zg) = (
        pairs(random, *shape) for shape in ((2 * P,), (2 * P,), (rows, 2 * P), (rows, 2 * P), (2 * P,))
    )
    order = range(rows - 1, -1, -1) if from_end else range(rows)
    step, first = (-8 * P, (rows - 1) * 8 * P) if from_end else (8 * P, 0)
    x, states, before = zs, np.zeros((rows, P), complex), np.zeros((rows, P), complex)
    for k in order:
        before[k] = x
        states[k] = x = za * x + zv[k]
    end = np.zeros(2 * P, np.float32)
    run_scan(a.ctypes.data, start.ctypes.data, v.ctypes.data + first, step, rows, P, end.ctypes.data)
    np.testing.assert_allclose(v, planar(states), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(end, planar(x), rtol=1e-4, atol=1e-5)
    drive, total = np.zeros((rows, P), complex), np.zeros(P, complex)
    for k in reversed(order):
        drive[k] = zg = np.conj(za) * zg + zd[k]
        total += np.conj(before[k]) * zg
    sums = np.ones(2 * P)
    last = (rows - 1) * 8 * P - first  # the step the scan ended with, where its gradient begins
    run_adjoint(
        a.ctypes.data,
        g.ctypes.data,
        d.ctypes.data + last,
        -step,
        v.ctypes.data + last - step,
        start.ctypes.data,
        rows,
        P,
        end.ctypes.data,
        sums.ctypes.data,
    )
    np.testing.assert_allclose(d, planar(drive), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(end, planar(zg), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums, 1 + planar(total), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("products", ["full", pytest.param("half", marks=needs_amx)])
@pytest.mark.parametrize(("O", "K"), [(32, 64), (96, 32), (21, 40), (48, 64)])
@pytest.mark.parametrize("turned", [False, True])
def test_matrices_are_packed_as_the_products_read_them(products, O, K, turned):
    weight = torch.randn(K, O).T if turned else torch.randn(O, K)
    (packed,) = pack([weight], products)
    exact = torch.from_numpy(panels(weight.numpy())) if products == "full" else half_panels(weight)
    assert torch.equal(packed, exact)
