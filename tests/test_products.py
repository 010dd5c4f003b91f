"""Products that skip zeros and products with few others, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from rkdl import DL, ORKDL, sparse_encode
from rkdl._backends.cpu import products as _products
from rkdl._backends.cpu.narrow_products import TILE_OTHERS, TILE_ROWS, multiply_narrow
from rkdl._backends.cpu.products import combine, multiply
from rkdl._backends.cpu.sparse_products import share_of_columns, share_of_rows

# Rows and columns that fill whole groups of four and whole vectors, and those that do not.
SHAPES = [(64, 64, 16), (67, 784, 50), (130, 100, 33), (257, 65, 256), (515, 131, 20), (64, 1000, 70)]


def _sparse(rng, n_rows, size, share, dtype):
    rows = rng.standard_normal((n_rows, size))
    rows[rng.random((n_rows, size)) > share] = 0.0
    return rows.astype(dtype)


@pytest.fixture
def always(monkeypatch):
    """Skip zeros wherever the kernels can, and count how often."""
    calls = []
    monkeypatch.setattr(_products, "_is_worth", lambda *arguments: calls.append(arguments) or True)
    return calls


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.03, 0.3, 1.0])
def test_products_are_those_of_numpy(shape, share, dtype, always):
    n_rows, size, n_others = shape
    rng = np.random.default_rng(0)
    rows = _sparse(rng, n_rows, size, share, dtype)
    others = rng.standard_normal((n_others, size)).astype(dtype)
    weights = rng.standard_normal((n_rows, n_others)).astype(dtype)
    before = rows.copy(), others.copy(), weights.copy()
    products, sums = multiply(rows, others), combine(weights, rows)
    assert len(always) == 2
    assert products.dtype == dtype
    assert products.flags.c_contiguous
    assert sums.dtype == np.float64
    exact = rows.astype(np.float64), others.astype(np.float64), weights.astype(np.float64)
    tolerance = 40.0 * np.finfo(dtype).eps
    sizes = np.abs(exact[0]) @ np.abs(exact[1]).T
    assert (np.abs(products - exact[0] @ exact[1].T) <= tolerance * sizes).all()
    sizes = np.abs(exact[2]).T @ np.abs(exact[0])
    assert (np.abs(sums - exact[2].T @ exact[0]) <= tolerance * sizes).all()
    for array, copy in zip((rows, others, weights), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(TILE_ROWS, 64, TILE_OTHERS), (67, 784, 20), (65, 519, 5), (70, 1, 7), (71, 15, 11)])
def test_products_with_few_others_are_those_of_numpy(shape, dtype):
    n_rows, size, n_others = shape
    rng = np.random.default_rng(7)
    rows, others = (rng.standard_normal((count, size)).astype(dtype) for count in (n_rows, n_others))
    products = np.full((n_rows, n_others), np.nan, dtype=dtype)
    multiply_narrow(rows, others, products)
    exact, sizes = rows.astype(np.float64) @ others.T.astype(np.float64), np.abs(rows) @ np.abs(others).T
    assert (np.abs(products - exact) <= 40.0 * np.finfo(dtype).eps * sizes).all()


def test_long_dense_rows_with_few_others(monkeypatch):
    monkeypatch.setattr(_products, "_FEW", 128)
    rng = np.random.default_rng(8)
    rows, others = (rng.standard_normal((count, 600)).astype(np.float32) for count in (200, 20))
    whole = multiply(rows, others)
    np.testing.assert_allclose(whole, rows @ others.T, atol=1e-3)
    np.testing.assert_array_equal(multiply(rows[3:], others), whole[3:])
    rows[100, 7] = np.inf
    products = multiply(rows, others)
    np.testing.assert_array_equal(np.isfinite(products).all(axis=1), np.arange(200) != 100)
    calls = []
    monkeypatch.setattr(_products, "multiply_narrow", lambda *arguments: calls.append(arguments))
    multiply(rows, others)
    multiply(rows[:24], others)
    assert len(calls) == 2
    multiply(rows[:23], others)
    multiply(rows, others[:3])
    multiply(rows[:, :500], others[:, :500])
    multiply(rows[:, ::-1], others)
    assert len(calls) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (66, 99), (31, 64)])
def test_what_is_not_finite_is_not_passed_over(bad, place, always):
    rows = np.zeros((67, 100), dtype=np.float32)
    rows[place] = bad
    products = multiply(rows, np.ones((20, 100), dtype=np.float32))
    sums = combine(np.ones((67, 20), dtype=np.float32), rows)
    assert len(always) == 2
    np.testing.assert_array_equal(np.isfinite(products).all(axis=1), np.arange(67) != place[0])
    np.testing.assert_array_equal(np.isfinite(sums).all(axis=0), np.arange(100) != place[1])


@pytest.mark.parametrize("n_rows", [512, 8192, 60_000])
def test_long_sums_keep_their_digits(n_rows, always):
    """A chunk may have any number of rows; in float32 their sum is no worse than a few roundings."""
    rng = np.random.default_rng(6)
    rows = np.abs(_sparse(rng, n_rows, 64, 0.3, np.float32))
    weights = rng.random((n_rows, 16), dtype=np.float32)
    exact = weights.astype(np.float64).T @ rows.astype(np.float64)
    assert np.abs(combine(weights, rows) / exact - 1.0).max() < 2e-6


def test_a_row_does_not_depend_on_its_neighbours(always):
    rng = np.random.default_rng(1)
    rows = _sparse(rng, 200, 150, 0.1, np.float32)
    others = rng.standard_normal((40, 150)).astype(np.float32)
    whole = multiply(rows, others)
    np.testing.assert_array_equal(multiply(rows[100:], others), whole[100:])
    np.testing.assert_array_equal(multiply(rows[3:], others), whole[3:])


def test_shares_are_those_counted():
    rng = np.random.default_rng(2)
    rows = _sparse(rng, 4, 300, 0.2, np.float64)
    assert share_of_columns(rows, 1) == (rows != 0.0).any(axis=0).mean()
    groups = (rows.reshape(4, 75, 4) != 0.0).any(axis=2)
    assert share_of_rows(rows, 4) == pytest.approx(groups.mean())


def test_dense_rows_and_small_ones_are_left_to_blas(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("zeros were skipped")

    monkeypatch.setattr(_products, "multiply_rows", refuse)
    monkeypatch.setattr(_products, "combine_rows", refuse)
    rng = np.random.default_rng(3)
    for rows, n_others in [
        (_sparse(rng, 500, 200, 1.0, np.float32), 200),
        (_sparse(rng, 500, 200, 0.5, np.float32), 50),
        (_sparse(rng, 500, 200, 0.05, np.float32), 2),
        (_sparse(rng, 30, 200, 0.05, np.float32), 50),
        (_sparse(rng, 500, 20, 0.05, np.float32), 50),
        (_sparse(rng, 200, 500, 0.05, np.float32).T, 50),
    ]:
        others = rng.standard_normal((n_others, rows.shape[1])).astype(rows.dtype)
        np.testing.assert_allclose(multiply(rows, others), rows @ others.T, rtol=1e-4, atol=1e-4)
        weights = rng.standard_normal((len(rows), n_others)).astype(rows.dtype)
        np.testing.assert_allclose(combine(weights, rows), weights.T @ rows, rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError, match="zeros were skipped"):
        multiply(_sparse(rng, 500, 200, 0.05, np.float32), np.ones((50, 200), dtype=np.float32))
    with pytest.raises(AssertionError, match="zeros were skipped"):
        combine(np.ones((500, 50), dtype=np.float32), _sparse(rng, 500, 200, 0.01, np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_and_learning_are_the_same_either_way(dtype, monkeypatch):
    rng = np.random.default_rng(4)
    signals = np.abs(_sparse(rng, 600, 200, 0.08, dtype))
    signals /= np.linalg.norm(signals, axis=1, keepdims=True)
    dictionary = rng.standard_normal((60, 200)).astype(dtype)

    def learn():
        codes = sparse_encode(signals, dictionary, n_nonzero_coefs=4)
        linear = DL(n_components=40, n_nonzero_coefs=3, max_iter=3, random_state=0).fit(signals)
        moved = ORKDL(n_components=10, n_kernel_vectors=40, n_nonzero_coefs=3, max_iter=3, random_state=0).fit(signals)
        return codes, linear.errors_[-1], moved.errors_[-1]

    passed = learn()
    monkeypatch.setattr(_products, "_is_worth", lambda *arguments: False)
    plain = learn()
    digits = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(passed[0], plain[0], atol=digits)
    assert passed[1:] == pytest.approx(plain[1:], rel=digits)


def test_sparse_signals_are_the_same_with_any_number_of_threads():
    signals = _sparse(np.random.default_rng(5), 3000, 100, 0.1, np.float32)
    fits = [
        ORKDL(n_components=8, n_kernel_vectors=40, max_iter=2, random_state=0, n_jobs=n_jobs).fit(signals)
        for n_jobs in (1, 2, 3)
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.kernel_vectors_, fits[0].kernel_vectors_)
        np.testing.assert_array_equal(other.transform(signals), fits[0].transform(signals))
