"""Products of signals with rows and with weights, by whatever is fastest for them, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from rkdl._backends.base import backend_of

each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
# Rows, columns and others that fill whole blocks and vectors, and those that do not; many rows and few, many others.
SHAPES = [(64, 64, 16), (67, 784, 50), (257, 65, 256), (515, 131, 20), (64, 1000, 70), (24, 600, 5), (30, 20, 3)]


def sparse_rows(rng, n_rows, size, share, dtype=np.float32):
    return (rng.standard_normal((n_rows, size)) * (rng.random((n_rows, size)) < share)).astype(dtype)


def products(rows, others, weights):
    backend = backend_of(rows)
    return backend.product(rows, others), backend.weighted_sum(weights, rows)


@each_dtype
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.03, 0.3, 1.0])
@pytest.mark.parametrize("order", ["C", "F"])
def test_products_are_those_of_numpy(shape, share, dtype, order):
    n_rows, size, n_others = shape
    rng = np.random.default_rng(0)
    rows = np.asarray(sparse_rows(rng, n_rows, size, share, dtype), order=order)
    others = rng.standard_normal((n_others, size)).astype(dtype)
    weights = rng.standard_normal((n_rows, n_others)).astype(dtype)
    before = rows.copy()
    found, sums = products(rows, others, weights)
    assert found.dtype == dtype
    assert sums.dtype == np.float64
    exact = rows.astype(np.float64), others.astype(np.float64), weights.astype(np.float64)
    tolerance = 40.0 * np.finfo(dtype).eps
    assert (np.abs(found - exact[0] @ exact[1].T) <= tolerance * (np.abs(exact[0]) @ np.abs(exact[1]).T)).all()
    assert (np.abs(sums - exact[2].T @ exact[0]) <= tolerance * (np.abs(exact[2]).T @ np.abs(exact[0]))).all()
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (66, 599), (31, 64)])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_is_not_finite_is_not_passed_over(bad, place, share):
    rows = sparse_rows(np.random.default_rng(0), 67, 600, share)
    rows[place] = bad
    found, sums = products(rows, np.ones((20, 600), dtype=np.float32), np.ones((67, 20), dtype=np.float32))
    np.testing.assert_array_equal(np.isfinite(found).all(axis=1), np.arange(67) != place[0])
    np.testing.assert_array_equal(np.isfinite(sums).all(axis=0), np.arange(600) != place[1])


@pytest.mark.parametrize("n_rows", [512, 8192, pytest.param(60_000, marks=pytest.mark.slow)])
def test_long_sums_keep_their_digits(n_rows):
    """A chunk may have any number of rows; in float32 their sum is no worse than a few roundings."""
    rng = np.random.default_rng(6)
    rows = np.abs(sparse_rows(rng, n_rows, 64, 0.03))
    rows[:8] = 1.0
    weights = rng.random((n_rows, 64), dtype=np.float32)
    exact = weights.astype(np.float64).T @ rows.astype(np.float64)
    assert np.abs(backend_of(rows).weighted_sum(weights, rows) / exact - 1.0).max() < 2e-6


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_row_does_not_depend_on_its_neighbours(share):
    rng = np.random.default_rng(1)
    rows, others = sparse_rows(rng, 200, 600, share), rng.standard_normal((40, 600)).astype(np.float32)
    multiply = backend_of(rows).product
    whole = multiply(rows, others)
    for start in (3, 100):
        np.testing.assert_allclose(multiply(rows[start:], others), whole[start:], rtol=1e-5, atol=1e-4)
