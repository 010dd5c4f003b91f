"""Products of signals with a few rows, by whichever way is fastest."""

from __future__ import annotations

import numpy as np

from rkdl._backends.cpu.sparse_products import ROW_BLOCK, combine_rows, multiply_rows, share_of_columns, share_of_rows
from rkdl._backends.cpu.transpose import turn
from rkdl._backends.cpu.vectors import VECTOR_BYTES
from rkdl._utils.types import FLOATS

# Places where a sample of the rows is looked at for zeros, and what is too small for a look.
_SAMPLES = 8
_LEAST_ROWS = _LEAST_SIZE = 64
# Rows whose sums are taken in the rows' dtype, one after the other, before they are added in float64.
_SUMMED_ROWS = 1024


def multiply(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """``rows @ others.T`` (c, n) of rows (c, m) and finite others (n, m), C-contiguous."""
    width = _whole_vectors(len(others), rows.dtype)
    if _may_pass_zeros(rows, others) and _is_worth(share_of_columns(rows, _SAMPLES), len(others), width, 0):
        products = np.empty((len(rows), len(others)), dtype=rows.dtype)
        turned = np.zeros((others.shape[1], width), dtype=rows.dtype)
        turn(others, others.shape[1], turned)
        multiply_rows(rows, turned, products)
        return products
    if rows.dtype == np.float32 or rows.shape[1] < 5 * len(others) or len(rows) < 64:
        return rows @ others.T
    # BLAS takes a sixth less time for the transposed product of long float64 rows with few others.
    products = np.empty((len(rows), len(others)), dtype=rows.dtype)
    turn(others @ rows.T, len(rows), products)
    return products


def combine(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``weights.T @ rows`` (n, m) of weights (c, n) and rows (c, m), in float64 from sums in the rows' dtype."""
    n_others, size = weights.shape[1], rows.shape[1]
    width = _whole_vectors(n_others, rows.dtype)
    if not (_may_pass_zeros(rows, weights) and _is_worth(share_of_rows(rows, _SAMPLES), n_others, width, 40)):
        return (weights.T @ rows).astype(np.float64)
    if width > n_others:
        padded = np.zeros((len(rows), width), dtype=rows.dtype)
        padded[:, :n_others] = weights
        weights = padded
    combined = np.empty((n_others, size))
    for start in range(0, len(rows), _SUMMED_ROWS):
        totals = np.zeros((-(-size // ROW_BLOCK) * ROW_BLOCK, width), dtype=rows.dtype)
        combine_rows(rows[start : start + _SUMMED_ROWS], weights[start : start + _SUMMED_ROWS], totals)
        part = combined if start == 0 else np.empty_like(combined)
        turn(totals[:size], n_others, part)
        if start > 0:
            combined += part
    return combined


def _whole_vectors(count: int, dtype: np.dtype) -> int:
    lanes = VECTOR_BYTES // dtype.itemsize
    return -(-count // lanes) * lanes


def _may_pass_zeros(rows: np.ndarray, beside: np.ndarray) -> bool:
    """Whether the kernels that pass over zeros take these, and there is enough to gain for a sample."""
    if len(rows) < _LEAST_ROWS or rows.shape[1] < _LEAST_SIZE or rows.dtype not in FLOATS:
        return False
    return beside.dtype == rows.dtype and rows.flags.c_contiguous and beside.flags.c_contiguous


def _is_worth(share: float, n_others: int, width: int, listing: int) -> bool:
    """Whether passing over zeros takes less time than BLAS, in units of one more column of a product.

    The search takes as long as 32 columns, an entry of a list as long as `listing`; BLAS spends 24 on its own.
    """
    return share * (width + listing) + 32.0 <= 0.9 * (n_others + 24.0)
