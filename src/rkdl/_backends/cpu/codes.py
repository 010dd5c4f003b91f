"""Codes of a chunk as NumPy arrays, and the compiled pursuit that finds them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from rkdl._backends.cpu.active_set import PURSUITS as PURSUITS
from rkdl._backends.cpu.products import multiply
from rkdl._backends.cpu.statistics import (
    accumulate_cross_products,
    accumulate_gram,
    correlate_codes,
    scatter_codes,
    sum_codes,
    weight_derivative,
)
from rkdl._backends.cpu.vectors import VECTOR_BYTES, whole_vectors


class Codes(NamedTuple):
    """Sparse codes of c signals against n atoms in compressed rows: the entries of all rows, one after another."""

    counts: np.ndarray  # non-zeros of every row
    indices: np.ndarray  # atoms, ascending in every row
    values: np.ndarray  # their coefficients, in the same order

    def scaled(self, factors: np.ndarray) -> Codes:
        """The codes times one factor per atom."""
        return self if (factors == 1.0).all() else self._replace(values=self.values * factors[self.indices])

    def weighted(self, weights: np.ndarray) -> Codes:
        """The codes times one factor per row."""
        factors = np.repeat(weights, self.counts).astype(self.values.dtype)
        return self._replace(values=self.values * factors)

    def scatter(self, factors: np.ndarray, dense: np.ndarray) -> None:
        """Write the codes, times one factor per atom, into the zeros of `dense` (c, n)."""
        scatter_codes(*self, factors, dense)

    def to_csr(self, n_atoms: int) -> sparse.csr_array:
        """The same codes as a CSR array."""
        indptr = np.zeros(len(self.counts) + 1, dtype=self.indices.dtype)
        np.cumsum(self.counts, out=indptr[1:])
        return sparse.csr_array((self.values, self.indices, indptr), shape=(len(self.counts), n_atoms))

    def dense(self, n_atoms: int, dtype: DTypeLike | None = None) -> np.ndarray:
        """The codes (c, n) with their zeros."""
        found = np.zeros((len(self.counts), n_atoms), dtype=dtype or self.values.dtype)
        self.scatter(np.ones(n_atoms, dtype=self.values.dtype), found)
        return found

    def times(self, atoms: np.ndarray) -> np.ndarray:
        """``Z A`` (c, m)."""
        return self.to_csr(len(atoms)) @ atoms

    def gram(self, n_atoms: int) -> np.ndarray:
        """``Z'Z`` (n, n) in float64."""
        found = np.zeros((n_atoms, n_atoms))
        accumulate_gram(*self, found)
        return found

    def correlate(self, correlations: np.ndarray) -> np.ndarray:
        """Inner products (c,) of the codes with correlations (c, n): squared norms of what they represent."""
        found = np.empty(len(correlations), dtype=correlations.dtype)
        correlate_codes(*self, correlations, found)
        return found

    def cross_products(self, features: np.ndarray, n_atoms: int) -> np.ndarray:
        """``Z'F`` (n, p)."""
        found = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
        accumulate_cross_products(*self, features, found)
        return found

    def sums(
        self, roots: Codes, features: np.ndarray, norms: np.ndarray, residuals: np.ndarray, n_atoms: int
    ) -> tuple[np.ndarray, np.ndarray, float, float]:
        """``Z'Z`` of the `roots`, ``Z'F``, and the sums of norms and of residuals, in one call.

        Threads that meet at Python's lock after every sum take a tenth longer for a fit on 1,000 signals.
        """
        code_gram = np.zeros((n_atoms, n_atoms))
        cross_products = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
        totals = sum_codes(*self, roots.values, features, norms, residuals, code_gram, cross_products)
        return code_gram, cross_products, *totals

    def weighted_derivative(self, atoms: np.ndarray, derivative: np.ndarray) -> np.ndarray:
        """``(Z A) * derivative`` (c, p)."""
        weights = np.empty_like(derivative)
        weight_derivative(*self, atoms, derivative, weights)
        return weights


@lru_cache
def _constants(dtype: np.dtype, residual_tol: float) -> tuple[np.floating, np.floating, np.ndarray]:
    """The tolerance and the rounding unit as numbers of the dtype, and no atoms."""
    found = np.finfo(dtype)
    # A residual that is a difference of squares may be any negative number.
    tolerance = min(residual_tol, found.max) if residual_tol >= 0.0 else found.min
    return dtype.type(tolerance), dtype.type(found.eps), np.empty((0, 0), dtype=dtype)


def padded_gram(gram: np.ndarray) -> np.ndarray:
    """The Gram matrix with rows padded by zeros to whole vectors; unchanged if they already are."""
    n_atoms = len(gram)
    if gram.shape[1] * gram.itemsize % VECTOR_BYTES == 0:
        # Writeable, or Numba would compile the pursuit once more, for a read-only argument.
        return gram if gram.flags.carray else np.require(gram, requirements=("C", "A", "W"))
    padded = np.zeros((n_atoms, whole_vectors(n_atoms, gram.dtype)), dtype=gram.dtype)
    padded[:, :n_atoms] = gram
    return padded


def pursue(
    correlations: np.ndarray,
    gram: np.ndarray | None,
    squared_norms: np.ndarray,
    n_nonzero: int,
    residual_tol: float,
    pursuit: str,
    positive: bool = False,
    alpha: float | np.ndarray = 0.0,
    l2: float | np.ndarray = 0.0,
    dictionary: np.ndarray | None = None,
    observed: np.ndarray | None = None,
) -> tuple[Codes, np.ndarray]:
    """Codes and squared residuals; see `rkdl._backends.base.Backend.pursue`."""
    n_signals, n_atoms = correlations.shape
    dtype = correlations.dtype
    tolerance, eps, atoms = _constants(dtype, residual_tol)
    scales = known = atoms
    if observed is not None:
        assert dictionary is not None
        # Signals that are observed in the same places, one after another, share rows of the Gram matrix.
        order = np.lexsort(np.packbits(observed, axis=1).T)
        gram, known = None, observed[order].astype(dtype)
        squares = multiply(known, dictionary * dictionary)
        scales = 1.0 / np.sqrt(np.where(squares > 10.0 * eps, squares, np.inf))
        correlations, squared_norms = correlations[order] * scales, squared_norms[order]
    if gram is None:
        # Rows of the Gram matrix are computed on demand.
        assert dictionary is not None
        gram, atoms = np.zeros((n_atoms, whole_vectors(n_atoms, dtype)), dtype=dtype), dictionary
    problem = np.ascontiguousarray(correlations), padded_gram(gram), atoms, known, scales, squared_norms, tolerance, eps
    # Zeros: a pursuit leaves places out where the Gram matrix, which users can set, lets it choose an atom twice.
    room = np.zeros((n_signals, n_nonzero), dtype=np.int32), np.zeros((n_signals, n_nonzero), dtype=dtype)
    counts, residuals = np.empty(n_signals, dtype=np.int32), np.empty(n_signals, dtype=dtype)
    total = PURSUITS[pursuit](positive, alpha, l2, *problem, *room, counts, residuals)
    indices, values = room[0].ravel(), room[1].ravel()
    if total < len(indices):
        # Copies, so that the rest of the room is freed.
        indices, values = indices[:total].copy(), values[:total].copy()
    if observed is not None:
        rows, back = np.repeat(np.arange(n_signals), counts), np.argsort(order)
        entries = np.argsort(order[rows], kind="stable")
        indices, values = indices[entries], (values * scales[rows, indices])[entries]
        counts, residuals = counts[back], residuals[back]
    return Codes(counts, indices, values), residuals
