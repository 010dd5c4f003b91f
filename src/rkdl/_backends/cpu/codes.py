"""Codes of a chunk as NumPy arrays, and the compiled pursuit that finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from rkdl._backends.cpu.pursuit import pursue_rows
from rkdl._backends.cpu.statistics import (
    accumulate_cross_products,
    accumulate_gradient,
    accumulate_gram,
    correlate_codes,
    pack_codes,
    pursue_and_accumulate,
    scatter_codes,
    weight_derivative,
)
from rkdl._backends.cpu.vectors import VECTOR_BYTES


class Codes(NamedTuple):
    """See `rkdl._backends.base.ChunkCodes`; in compressed rows: the entries of all rows, one row after another."""

    counts: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    def scaled(self, factors: np.ndarray) -> Codes:
        """The codes times one factor per atom."""
        return self if (factors == 1.0).all() else self._replace(values=self.values * factors[self.indices])

    def scatter(self, factors: np.ndarray, dense: np.ndarray) -> None:
        """Write the codes, times one factor per atom, into the zeros of `dense` (c, n)."""
        scatter_codes(*self, factors, dense)

    def to_csr(self, n_atoms: int) -> sparse.csr_array:
        indptr = np.zeros(len(self.counts) + 1, dtype=self.indices.dtype)
        np.cumsum(self.counts, out=indptr[1:])
        return sparse.csr_array((self.values, self.indices, indptr), shape=(len(self.counts), n_atoms))

    def dense(self, n_atoms: int, dtype: DTypeLike | None = None) -> np.ndarray:
        return self.to_csr(n_atoms).toarray().astype(dtype or self.values.dtype, copy=False)

    def times(self, atoms: np.ndarray) -> np.ndarray:
        return self.to_csr(len(atoms)) @ atoms

    def gram(self, n_atoms: int) -> np.ndarray:
        found = np.zeros((n_atoms, n_atoms))
        accumulate_gram(*self, found)
        return found

    def cross_products(self, features: np.ndarray, n_atoms: int) -> np.ndarray:
        found = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
        accumulate_cross_products(*self, features, found)
        return found

    def weighted_derivative(self, atoms: np.ndarray, derivative: np.ndarray) -> np.ndarray:
        weights = np.empty_like(derivative)
        weight_derivative(*self, atoms, derivative, weights)
        return weights


class Arguments(NamedTuple):
    """What `pursue_rows` takes: its input, and after `eps` the arrays (c, s) and (c,) that it fills in."""

    correlations: np.ndarray
    gram: np.ndarray
    dictionary: np.ndarray
    squared_norms: np.ndarray
    residual_tol: np.floating
    ols: bool
    eps: np.floating
    indices: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    residuals: np.ndarray

    def packed(self, total: int) -> Codes:
        """The codes that `pack_codes` has moved together; a part of the memory is copied, so that the rest can go."""
        indices, values = self.indices.ravel(), self.values.ravel()
        if total < len(indices):
            indices, values = indices[:total].copy(), values[:total].copy()
        return Codes(self.counts, indices, values)


def arguments(
    correlations: np.ndarray,
    gram: np.ndarray | None,
    squared_norms: np.ndarray,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    dictionary: np.ndarray | None = None,
) -> Arguments:
    """The parameters of `pursue` as its kernel takes them, with room for the codes."""
    n_signals, n_atoms = correlations.shape
    dtype = correlations.dtype
    eps, largest, no_atoms = _constants(dtype)
    atoms = no_atoms
    if gram is None:
        # Rows of the Gram matrix that are needed are computed on the way.
        assert dictionary is not None
        gram, atoms = np.zeros((n_atoms, _padded_width(n_atoms, dtype)), dtype=dtype), dictionary
    return Arguments(
        np.ascontiguousarray(correlations),
        padded_gram(gram),
        atoms,
        squared_norms,
        dtype.type(min(max(residual_tol, -1.0), float(largest))),
        ols,
        eps,
        np.zeros((n_signals, n_nonzero), dtype=np.int32),
        np.zeros((n_signals, n_nonzero), dtype=dtype),
        np.empty(n_signals, dtype=np.int32),
        np.empty(n_signals, dtype=dtype),
    )


@cache
def _constants(dtype: np.dtype) -> tuple[np.floating, np.floating, np.ndarray]:
    """The rounding unit and the largest number of a dtype, both of that dtype, and no atoms."""
    found = np.finfo(dtype)
    return dtype.type(found.eps), dtype.type(found.max), np.empty((0, 0), dtype=dtype)


def padded_gram(gram: np.ndarray) -> np.ndarray:
    """The Gram matrix with rows padded by zeros to whole vectors; itself if they are."""
    n_atoms = len(gram)
    if gram.shape[1] * gram.itemsize % VECTOR_BYTES == 0:
        # The kernel, which may fill in rows, takes no read-only array.
        return np.ascontiguousarray(gram) if gram.flags.writeable else gram.copy()
    padded = np.zeros((n_atoms, _padded_width(n_atoms, gram.dtype)), dtype=gram.dtype)
    padded[:, :n_atoms] = gram
    return padded


def _padded_width(n_atoms: int, dtype: np.dtype) -> int:
    lanes = VECTOR_BYTES // dtype.itemsize
    return -(-n_atoms // lanes) * lanes


def pursue(
    correlations: np.ndarray,
    gram: np.ndarray | None,
    squared_norms: np.ndarray,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    dictionary: np.ndarray | None = None,
) -> tuple[Codes, np.ndarray]:
    """Codes and squared residuals; parameters are those of `rkdl._coding.pursuit.pursue`."""
    given = arguments(correlations, gram, squared_norms, n_nonzero, residual_tol, ols, dictionary)
    pursue_rows(*given)
    return given.packed(pack_codes(given.counts, given.indices, given.values)), given.residuals


def explained_squares(
    correlations: np.ndarray,
    gram: np.ndarray | None,
    squared_norms: np.ndarray,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
) -> np.ndarray:
    """Squared norms (c,) of what the codes represent: their inner products with the correlations."""
    codes, _ = pursue(correlations, gram, squared_norms, n_nonzero, residual_tol, ols)
    # The squared norm of a least-squares representation is its inner product with the signal.
    products = np.empty(len(correlations), dtype=correlations.dtype)
    correlate_codes(*codes, correlations, products)
    return products


def pursue_and_sum(
    correlations: np.ndarray,
    gram: np.ndarray | None,
    squared_norms: np.ndarray,
    features: np.ndarray,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    dictionary: np.ndarray | None = None,
) -> tuple[Codes, np.ndarray, tuple[np.ndarray, np.ndarray, float, float]]:
    """As `pursue`, with the sufficient statistics of the chunk."""
    given = arguments(correlations, gram, squared_norms, n_nonzero, residual_tol, ols, dictionary)
    n_atoms = correlations.shape[1]
    code_gram = np.zeros((n_atoms, n_atoms))
    cross_products = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
    # One call for all of it: threads that meet at Python's lock wait for longer than a small chunk takes.
    total, energy, residual_energy = pursue_and_accumulate(given, features, code_gram, cross_products)
    return given.packed(total), given.residuals, (code_gram, cross_products, energy, residual_energy)


def residual_gradients(
    codes: list[Codes],
    weights: np.ndarray,
    least: np.ndarray,
    own: np.ndarray,
    features: np.ndarray,
    atoms: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """See `rkdl._backends.base.Backend.residual_gradients`."""
    gradients = np.zeros((len(codes), *atoms[0].shape), dtype=features.dtype)
    usage = np.zeros(gradients.shape[:2])
    for k, part in enumerate(codes):
        columns = np.ascontiguousarray(weights[:, k]), least, np.ascontiguousarray(own[:, k])
        accumulate_gradient(*part, *columns, features, atoms[k], gradients[k], usage[k])
    return gradients, usage
