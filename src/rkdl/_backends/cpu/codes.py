"""Codes of a chunk as NumPy arrays, and the compiled pursuit that finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from rkdl._backends.cpu.pursuit import pack_rows, pursue_rows, scale_padded, scatter_padded, weigh_padded
from rkdl._backends.cpu.statistics import (
    _learn,
    _weighted_derivative,
    accumulate_cross_products,
    accumulate_gradient,
)
from rkdl._backends.cpu.vectors import VECTOR_BYTES


class Codes(NamedTuple):
    """Sparse codes of a chunk in CSR form, indices ascending in every row."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Non-zeros of every row."""
        return np.diff(self.indptr)

    def scaled(self, factors: np.ndarray) -> Codes:
        """The codes times one factor per atom."""
        return self if (factors == 1.0).all() else self._replace(values=self.values * factors[self.indices])

    def to_csr(self, n_atoms: int) -> sparse.csr_array:
        """The same codes as SciPy's CSR array, sharing memory."""
        return sparse.csr_array((self.values, self.indices, self.indptr), shape=(len(self.indptr) - 1, n_atoms))

    def dense(self, n_atoms: int, dtype: Any = None) -> np.ndarray:
        """The codes (c, n) with their zeros."""
        return self.to_csr(n_atoms).toarray().astype(dtype or self.values.dtype, copy=False)

    def times(self, atoms: np.ndarray) -> np.ndarray:
        """``Z A`` (c, m)."""
        return self.to_csr(len(atoms)) @ atoms

    def cross_products(self, features: np.ndarray, n_atoms: int) -> np.ndarray:
        """``Z'F`` (n, p)."""
        found = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
        accumulate_cross_products(self.indptr, self.indices, self.values, features, found)
        return found

    def weighted_derivative(self, atoms: np.ndarray, derivative: np.ndarray) -> np.ndarray:
        """``(Z A) * derivative`` (c, p)."""
        weights = np.empty_like(derivative)
        _weighted_derivative(self.indptr, self.indices, self.values, atoms, derivative, weights)
        return weights


class PaddedCodes(NamedTuple):
    """Sparse codes of signals: the first `counts` entries of a row of `indices` and `values`, indices ascending."""

    indices: np.ndarray
    values: np.ndarray
    counts: np.ndarray

    @classmethod
    def empty(cls, n_signals: int, n_nonzero: int, dtype: np.dtype) -> PaddedCodes:
        """Room for the codes of signals with at most `n_nonzero` non-zeros each."""
        return cls(
            np.zeros((n_signals, n_nonzero), dtype=np.int32),
            np.zeros((n_signals, n_nonzero), dtype=dtype),
            np.empty(n_signals, dtype=np.int32),
        )

    def rows(self, start: int, stop: int) -> PaddedCodes:
        """Some of the rows, sharing memory."""
        return PaddedCodes(self.indices[start:stop], self.values[start:stop], self.counts[start:stop])

    def put(self, codes: Codes) -> None:
        """Copy the codes of all rows from CSR form."""
        self.counts[:] = codes.counts
        is_used = np.arange(self.indices.shape[1]) < self.counts[:, None]
        self.indices[is_used], self.values[is_used] = codes.indices, codes.values

    def pack(self) -> Codes:
        """The codes in CSR form; these are not to be used again, because they share its memory."""
        indptr = np.empty(len(self.counts) + 1, dtype=np.int32)
        return self.packed(indptr, pack_rows(self.counts, self.indices, self.values, indptr))

    def packed(self, indptr: np.ndarray, total: int) -> Codes:
        """The codes that `pack_rows` has moved together; a part of the memory is copied, so that the rest can go."""
        indices, values = self.indices.ravel(), self.values.ravel()
        if total < len(indices):
            indices, values = indices[:total].copy(), values[:total].copy()
        return Codes(indptr, indices, values)


def pursue(*parameters: Any) -> tuple[Codes, np.ndarray]:
    """Codes and squared residuals; parameters are those of `rkdl._coding.pursuit.pursue`."""
    given = arguments(*parameters)
    pursue_rows(*given)
    return given.codes.pack(), given.residuals


def write_codes(factors: np.ndarray, dense: np.ndarray, *parameters: Any) -> None:
    """Write the codes, times one factor per atom, into the zeros of `dense` (c, n); parameters as for `pursue`."""
    given = arguments(*parameters)
    pursue_rows(*given)
    scatter_padded(given.counts, given.indices, given.values, factors, dense)


def fill_codes(factors: np.ndarray, codes: PaddedCodes, *parameters: Any) -> None:
    """Fill in `codes`, times one factor per atom; parameters are all those of `pursue`."""
    pursue_rows(*arguments(*parameters, codes))  # type: ignore[call-arg]
    scale_padded(codes.counts, codes.indices, codes.values, factors)


def squared_residuals(*parameters: Any) -> np.ndarray:
    """Squared residuals (c,) alone; parameters as for `pursue`."""
    given = arguments(*parameters)
    pursue_rows(*given)
    return given.residuals


def explained_squares(correlations: np.ndarray, *parameters: Any) -> np.ndarray:
    """Squared norms (c,) of what the codes represent: their inner products with the correlations."""
    given = arguments(correlations, *parameters)
    pursue_rows(*given)
    # The squared norm of a least-squares representation is its inner product with the signal.
    products = np.empty(len(correlations), dtype=correlations.dtype)
    weigh_padded(given.counts, given.indices, given.values, correlations, products)
    return products


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


def pursue_and_sum(
    correlations: np.ndarray, gram: np.ndarray | None, squared_norms: np.ndarray, features: np.ndarray, *options: Any
) -> tuple[Codes, np.ndarray, tuple]:
    """As `pursue`, with the sufficient statistics of the chunk."""
    given = arguments(correlations, gram, squared_norms, *options)
    n_signals, n_atoms = correlations.shape
    code_gram = np.zeros((n_atoms, n_atoms))
    cross_products = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
    indptr = np.empty(n_signals + 1, dtype=np.int32)
    # One call for all of it: threads that meet at Python's lock wait for longer than a small chunk takes.
    total, energy, residual_energy = _learn(given, features, indptr, code_gram, cross_products)
    return given.codes.packed(indptr, total), given.residuals, (code_gram, cross_products, energy, residual_energy)


class Arguments(NamedTuple):
    """What `pursue_rows` takes, in its order; the last four are what it fills."""

    correlations: np.ndarray
    gram: np.ndarray
    dictionary: np.ndarray
    squared_norms: np.ndarray
    residual_tol: Any
    ols: bool
    eps: Any
    indices: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    residuals: np.ndarray

    @property
    def codes(self) -> PaddedCodes:
        """The codes that it fills in."""
        return PaddedCodes(self.indices, self.values, self.counts)


def arguments(
    correlations: np.ndarray,
    gram: np.ndarray | None,
    squared_norms: np.ndarray,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    dictionary: np.ndarray | None = None,
    codes: PaddedCodes | None = None,
) -> Arguments:
    """The parameters of `pursue` as its kernel takes them; `codes` are what it fills in, None for new ones."""
    n_signals = len(correlations)
    dtype = correlations.dtype
    eps, largest, _ = _constants(dtype)
    return Arguments(
        correlations if correlations.flags.c_contiguous else correlations.copy(order="C"),
        *_gram_source(correlations, gram, dictionary),
        squared_norms,
        dtype.type(min(max(residual_tol, -1.0), largest)),
        ols,
        eps,
        *(codes or PaddedCodes.empty(n_signals, n_nonzero, dtype)),
        np.empty(n_signals, dtype=dtype),
    )


@cache
def _constants(dtype: np.dtype) -> tuple[Any, Any, np.ndarray]:
    """The rounding unit and the largest number of a dtype, both of that dtype, and no atoms."""
    found = np.finfo(dtype)
    return dtype.type(found.eps), dtype.type(found.max), np.empty((0, 0), dtype=dtype)


def pursue_padded(*parameters: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As `pursue`: indices and values (c, n_nonzero) with zeros behind the last one, counts and residuals (c,)."""
    given = arguments(*parameters)
    pursue_rows(*given)
    return given[-4:]


def padded_gram(gram: np.ndarray) -> np.ndarray:
    """The Gram matrix with rows padded by zeros to whole vectors; itself if they are."""
    n_atoms = len(gram)
    width = _padded_width(n_atoms, gram.dtype)
    if gram.shape[1] == width:
        return np.ascontiguousarray(gram)
    padded = np.zeros((n_atoms, width), dtype=gram.dtype)
    padded[:, :n_atoms] = gram
    return padded


def _padded_width(n_atoms: int, dtype: np.dtype) -> int:
    lanes = VECTOR_BYTES // dtype.itemsize
    return -(-n_atoms // lanes) * lanes


def _gram_source(
    correlations: np.ndarray, gram: np.ndarray | None, dictionary: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The padded Gram matrix, and the atoms where its rows are still to come."""
    dtype = correlations.dtype
    if gram is not None:
        is_padded = gram.shape[1] * gram.itemsize % VECTOR_BYTES == 0 and gram.flags.c_contiguous
        return gram if is_padded else padded_gram(gram), _constants(dtype)[2]
    assert dictionary is not None
    n_atoms = correlations.shape[1]
    return np.zeros((n_atoms, _padded_width(n_atoms, dtype)), dtype=dtype), dictionary
