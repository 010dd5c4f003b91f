"""Greedy pursuit on a chunk: OMP and OLS, both from the Gram matrix and the correlations alone.

At step k, with b the chosen atom, a the correlations with the residual and u the squared norms that the chosen
atoms leave of the others, one new row of the factor does everything:

    w = (G_b - sum_{q<k} w_q[b] w_q) / sqrt(u_b),   y_k = a_b / sqrt(u_b),   a -= y_k w,   u -= w * w

OMP picks the largest a^2, OLS the largest a^2 / u. One back substitution at the end gives the coefficients, and
the residual's squared norm is that of the signal less the sum of y_k^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from scipy import sparse

# Atoms are looked through in blocks of this many; their arrays are padded to whole blocks.
BLOCK = 32


class Codes(NamedTuple):
    """Sparse codes of a chunk in CSR form, indices ascending in every row."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @property
    def n_signals(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    def to_csr(self, n_atoms: int) -> sparse.csr_array:
        """The same codes as SciPy's CSR array, sharing memory."""
        return sparse.csr_array((self.values, self.indices, self.indptr), shape=(self.n_signals, n_atoms))


def pursue(
    correlations: np.ndarray,
    gram: np.ndarray,
    squared_norms: np.ndarray,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
) -> tuple[Codes, np.ndarray]:
    """Sparse codes of a chunk of signals against atoms of unit norm.

    Parameters
    ----------
    correlations : ndarray of shape (c, n)
        Inner products of signals and atoms; overwritten.
    gram : ndarray of shape (n, n)
        Inner products of the atoms, of the correlations' dtype, with a diagonal of ones (zero for an atom that
        must not be used).
    squared_norms : ndarray of shape (c,)
        Squared norms of the signals.
    n_nonzero : int
        Most atoms a signal may use.
    residual_tol : float
        Squared residual at which a signal is done; negative for never.
    ols : bool
        Orthogonal least squares instead of orthogonal matching pursuit.

    Returns
    -------
    codes : Codes
        The sparse codes.
    residuals : ndarray of shape (c,)
        Squared norms of the residuals, never negative.
    """
    n_signals = len(correlations)
    dtype = correlations.dtype
    indices = np.empty((n_signals, n_nonzero), dtype=np.int32)
    values = np.empty((n_signals, n_nonzero), dtype=dtype)
    counts = np.empty(n_signals, dtype=np.int32)
    residuals = np.empty(n_signals, dtype=dtype)
    bits = np.int32 if dtype == np.float32 else np.int64
    _pursue(
        correlations,
        gram,
        squared_norms,
        dtype.type(residual_tol),
        ols,
        dtype.type(np.finfo(dtype).eps),
        bits(0),
        indices,
        values,
        counts,
        residuals,
    )
    total = int(counts.sum())
    indptr = np.zeros(n_signals + 1, dtype=np.int32)
    if total == n_signals * n_nonzero:
        indptr[1:] = np.arange(n_nonzero, total + 1, n_nonzero)
        return Codes(indptr, indices.ravel(), values.ravel()), residuals
    np.cumsum(counts, out=indptr[1:])
    used = np.arange(n_nonzero, dtype=np.int32) < counts[:, None]
    return Codes(indptr, indices[used], values[used]), residuals


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _pursue(correlations, gram, squared_norms, residual_tol, ols, eps, zero_bits, indices, values, counts, residuals):
    n_signals, n_atoms = correlations.shape
    n_nonzero = indices.shape[1]
    n_blocks = (n_atoms + BLOCK - 1) // BLOCK
    width = n_blocks * BLOCK
    dtype = correlations.dtype
    one, zero = dtype.type(1), dtype.type(0)
    # An atom this close to the span of the chosen ones has nothing of its own left but rounding.
    floor = eps ** (one / dtype.type(1.5))
    # A gain this far below the first one is rounding.
    noise = (dtype.type(32) * eps) ** 2

    factor = np.zeros((n_nonzero, width), dtype=dtype)
    a = np.zeros(width, dtype=dtype)
    u = np.zeros(width, dtype=dtype)
    scores = np.zeros(width, dtype=dtype)
    score_bits = scores.view(type(zero_bits))
    block_best = np.zeros(n_blocks, dtype=score_bits.dtype)
    # triangle[k, q] = w_q[b_k]; its diagonal holds sqrt(u_b).
    triangle = np.zeros((n_nonzero, n_nonzero), dtype=dtype)
    chosen = np.zeros(n_nonzero, dtype=np.int32)
    projections = np.zeros(n_nonzero, dtype=dtype)

    for t in range(n_signals):
        for j in range(n_atoms):
            a[j] = correlations[t, j]
        for j in range(width):
            scores[j] = a[j] * a[j]
        for block in range(n_blocks):
            best = zero_bits
            for j in range(block * BLOCK, block * BLOCK + BLOCK):
                best = max(best, score_bits[j])
            block_best[block] = best

        residual = squared_norms[t]
        threshold = zero
        count = 0
        while count < n_nonzero and residual > residual_tol:
            # Among equals the first atom wins, as in the textbook.
            best_block = 0
            for block in range(1, n_blocks):
                if block_best[block] > block_best[best_block]:
                    best_block = block
            b = best_block * BLOCK
            while score_bits[b] != block_best[best_block]:
                b += 1
            if not (scores[b] > threshold):
                break
            norm = one
            if count > 0:
                norm = u[b]
                if not (norm > floor):
                    break
            root = np.sqrt(norm)
            inverse = one / root
            y = a[b] * inverse
            for q in range(count):
                triangle[count, q] = factor[q, b]
            triangle[count, count] = root
            chosen[count] = b
            projections[count] = y
            residual -= y * y
            if count == 0:
                threshold = noise * scores[b]
            count += 1
            if count == n_nonzero or residual <= residual_tol:
                break

            k = count - 1
            row = factor[k]
            if k == 0:
                for j in range(n_atoms):
                    row[j] = gram[b, j]
                for j in range(width):
                    u[j] = one - row[j] * row[j]
            else:
                for j in range(n_atoms):
                    row[j] = gram[b, j]
                q = 0
                while q + 4 <= k:
                    c0 = triangle[k, q]
                    c1 = triangle[k, q + 1]
                    c2 = triangle[k, q + 2]
                    c3 = triangle[k, q + 3]
                    f0 = factor[q]
                    f1 = factor[q + 1]
                    f2 = factor[q + 2]
                    f3 = factor[q + 3]
                    for j in range(width):
                        row[j] -= c0 * f0[j] + c1 * f1[j] + c2 * f2[j] + c3 * f3[j]
                    q += 4
                while q < k:
                    c0 = triangle[k, q]
                    f0 = factor[q]
                    for j in range(width):
                        row[j] -= c0 * f0[j]
                    q += 1
                for j in range(width):
                    row[j] *= inverse
                for j in range(width):
                    u[j] -= row[j] * row[j]
            for j in range(width):
                a[j] -= y * row[j]
            # A chosen atom has no residual of its own; rounding must not bring it back.
            for q in range(count):
                a[chosen[q]] = zero
            if ols:
                for j in range(width):
                    left = u[j]
                    scores[j] = a[j] * a[j] / left if left > floor else zero
            else:
                for j in range(width):
                    scores[j] = a[j] * a[j]
            for block in range(n_blocks):
                best = zero_bits
                for j in range(block * BLOCK, block * BLOCK + BLOCK):
                    best = max(best, score_bits[j])
                block_best[block] = best

        for k in range(count - 1, -1, -1):
            value = projections[k]
            for q in range(k + 1, count):
                value -= triangle[q, k] * values[t, q]
            values[t, k] = value / triangle[k, k]
        # Rows of a CSR matrix keep their indices in ascending order.
        for k in range(count):
            index = chosen[k]
            value = values[t, k]
            q = k - 1
            while q >= 0 and indices[t, q] > index:
                indices[t, q + 1] = indices[t, q]
                values[t, q + 1] = values[t, q]
                q -= 1
            indices[t, q + 1] = index
            values[t, q + 1] = value
        counts[t] = count
        residuals[t] = max(residual, zero)
