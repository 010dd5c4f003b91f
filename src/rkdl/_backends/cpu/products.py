"""Products of signals with a few rows: BLAS, or kernels for zeros or for few rows where these are faster."""

from __future__ import annotations

import numpy as np

from rkdl._backends.cpu.narrow_products import TILE_OTHERS, TILE_ROWS, multiply_narrow
from rkdl._backends.cpu.sparse_products import ROW_BLOCK, combine_rows, multiply_rows
from rkdl._backends.cpu.vectors import HAS_AVX512, whole_vectors
from rkdl._utils.types import FLOATS

# Rows, or blocks of them, sampled for zeros, and the sizes below which no sample is taken; kernels need rows of four
# vectors.
_SAMPLES = 8
_LEAST_ROWS = _LEAST_SIZE = 64
# The inner products are faster than BLAS for at least _SEVERAL rows of at least _LONG numbers and at most _FEW others;
# never without AVX-512.
_SEVERAL, _LONG, _FEW = 4 * TILE_ROWS, 512, 128 if HAS_AVX512 else 0
# Rows summed in their own dtype before the sums are added in float64.
_SUMMED_ROWS = 1024


def multiply(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """``rows @ others.T`` (c, n) of rows (c, m) and finite others (n, m), C-contiguous."""
    if len(rows) < _SEVERAL:
        # Not `@`, whose check for overflow takes as long as the product of one row.
        return rows.dot(others.T)
    if _suits_kernels(rows, others):
        width = whole_vectors(len(others), rows.dtype)
        if _is_worth(_share_of_columns(rows), len(others), width, 0):
            products = np.empty((len(rows), len(others)), dtype=rows.dtype)
            transposed = np.zeros((others.shape[1], width), dtype=rows.dtype)
            transposed[:, : len(others)] = others.T
            multiply_rows(rows, transposed, products)
            return products
    is_narrow = rows.shape[1] >= _LONG and TILE_OTHERS <= len(others) <= _FEW
    if is_narrow and _are_alike(rows, others):
        products = np.empty((len(rows), len(others)), dtype=rows.dtype)
        multiply_narrow(rows, others, products)
        return products
    if len(rows) < _LEAST_ROWS or rows.dtype == np.float32 or rows.shape[1] < 5 * len(others):
        return rows @ others.T
    # BLAS takes a sixth less time for the transposed product of long float64 rows with few others.
    return np.ascontiguousarray((others @ rows.T).T)


def combine(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``weights.T @ rows`` (n, m) of weights (c, n) and rows (c, m), in float64 from sums in the rows' dtype."""
    n_others, size = weights.shape[1], rows.shape[1]
    width = whole_vectors(n_others, rows.dtype)
    if not (_suits_kernels(rows, weights) and _is_worth(_share_of_rows(rows), n_others, width, 40)):
        return (weights.T @ rows).astype(np.float64)
    if width > n_others:
        padded = np.zeros((len(rows), width), dtype=rows.dtype)
        padded[:, :n_others] = weights
        weights = padded
    parts = []
    for start in range(0, len(rows), _SUMMED_ROWS):
        totals = np.zeros((-(-size // ROW_BLOCK) * ROW_BLOCK, width), dtype=rows.dtype)
        combine_rows(rows[start : start + _SUMMED_ROWS], weights[start : start + _SUMMED_ROWS], totals)
        parts.append(totals[:size, :n_others].T.astype(np.float64, order="C"))
    return sum(parts[1:], start=parts[0])


def _suits_kernels(rows: np.ndarray, other: np.ndarray) -> bool:
    """Whether the compiled kernels take these arrays, and they are large enough to gain."""
    return len(rows) >= _LEAST_ROWS and rows.shape[1] >= _LEAST_SIZE and _are_alike(rows, other)


def _are_alike(rows: np.ndarray, other: np.ndarray) -> bool:
    """Whether both are C-contiguous and of the same dtype, float32 or float64."""
    if rows.dtype not in FLOATS or other.dtype != rows.dtype:
        return False
    return rows.flags.c_contiguous and other.flags.c_contiguous


def _share_of_columns(rows: np.ndarray) -> float:
    """Mean share of columns that are not zero in a block of rows, over some blocks."""
    step = len(rows) // _SAMPLES
    some = rows[: step * _SAMPLES].reshape(_SAMPLES, step, -1)[:, :ROW_BLOCK].any(1)
    return np.count_nonzero(some) / some.size


def _share_of_rows(rows: np.ndarray) -> float:
    """Mean share of blocks of neighbouring columns that are not all zero, over some rows."""
    some = rows[:: (len(rows) - 1) // (_SAMPLES - 1), : rows.shape[1] // ROW_BLOCK * ROW_BLOCK] != 0.0
    # Four at a time as one number: a sum along so short an axis takes long.
    return np.count_nonzero(some.view(np.uint32)) / (some.size // ROW_BLOCK)


def _is_worth(share: float, n_others: int, width: int, listing: int) -> bool:
    """Whether skipping zeros takes less time than BLAS; costs in columns of a product.

    The search for zeros costs 32 columns, an entry of a list `listing`, a call of BLAS 24.
    """
    return share * (width + listing) + 32.0 <= 0.9 * (n_others + 24.0)
