"""The metric of a feature space: its numerical rank, and whitened coordinates, in which nothing is singular."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rkdl._backends.base import backend_of
from rkdl._utils.types import Array


@dataclass(frozen=True)
class Metric:
    """A positive semidefinite matrix and its pivoted Cholesky factor; `make_metric` makes one.

    A coordinate that the pivots already span (a duplicated kernel vector, say) gets no weight. In whitened coordinates
    the metric is the identity.
    """

    matrix: Array  # (p, p), symmetric, positive semidefinite up to rounding, float64
    pivots: Array  # coordinates (rank,); None for all of them in order
    factor: Array  # the lower triangular factor (rank, rank) of their part of the matrix

    @cached_property
    def inverse(self) -> Array | None:
        """The inverse of the factor, where products are faster than solves."""
        return backend_of(self.factor).inverse_factor(self.factor)

    @property
    def rank(self) -> int:
        """Number of pivots."""
        return len(self.factor)

    def whiten(self, products: Array) -> Array:
        """Products with the coordinates (n, p) to coordinates in which the metric is the identity (n, rank)."""
        backend = backend_of(self.factor)
        if self.rank == 0:
            return backend.full((len(products), 0), 0.0, self.factor)
        pivots = products if self.pivots is None else products[:, self.pivots]
        return backend.solve_rows(self.factor, self.inverse, pivots, transposed=False)

    def unwhiten(self, coordinates: Array) -> Array:
        """Whitened coordinates (n, rank) back to combinations of the original ones (n, p)."""
        backend = backend_of(self.factor)
        if self.rank == 0:
            return backend.full((len(coordinates), len(self.matrix)), 0.0, self.factor)
        combined = backend.solve_rows(self.factor, self.inverse, coordinates, transposed=True)
        if self.pivots is None:
            return combined
        full = backend.full((len(coordinates), len(self.matrix)), 0.0, self.factor)
        full[:, self.pivots] = combined
        return full

    def whiten_combinations(self, combinations: Array) -> Array:
        """Combinations (n, p) to whitened coordinates: those of their projection on the pivots' span."""
        return self.whiten(combinations @ self.matrix)


class OverflowingKernelError(ValueError):
    """A kernel matrix is not finite."""


def make_metric(matrix: Array, dtype: np.dtype | type, least: float = 0.0) -> Metric:
    """The metric of a matrix (p, p), where the matrix is.

    `dtype` is that of the data behind the matrix, whose rounding counts as zero, as does less than `least` of the
    largest entry.
    """
    found = backend_of(matrix).cholesky(matrix, max(len(matrix) * float(np.finfo(dtype).eps), least))
    if found is None:
        raise OverflowingKernelError(
            "The kernel overflows on the kernel vectors: scale the signals down, or lower gamma or degree."
        )
    return Metric(matrix, *found)


class IdentityMetric:
    """The metric of features that are coordinates already: signals themselves, random Fourier features."""

    def __init__(self, size: int) -> None:
        self.rank = size

    def whiten(self, products: Array) -> Array:
        """Products are coordinates."""
        return products

    unwhiten = whiten_combinations = whiten
