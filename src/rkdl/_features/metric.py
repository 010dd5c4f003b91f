"""The metric of a feature space: a rank decision, whitened coordinates, and nothing singular after that."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

from rkdl._backends.arrays import is_tensor


class Metric:
    """A positive semidefinite matrix seen through its pivoted Cholesky factor.

    The pivots are the coordinates that are kept; a coordinate that the kept ones already span (a duplicated
    kernel vector, say) gets no weight. Whitened coordinates make the metric the identity.

    Parameters
    ----------
    matrix : ndarray of shape (p, p)
        Symmetric, positive semidefinite up to rounding, float64.
    dtype : dtype
        The dtype of the data behind the matrix: it decides what counts as zero.

    Attributes
    ----------
    rank : int
        Number of coordinates kept.
    """

    def __init__(self, matrix: np.ndarray, dtype: np.dtype | type) -> None:
        self.matrix = matrix
        size = matrix.shape[0]
        largest = max(float(matrix.diagonal().max()), 0.0)
        if largest == 0.0:
            self.rank = 0
            self.pivots = np.empty(0, dtype=np.intp)
            self.factor = np.empty((0, 0))
            return
        tolerance = size * float(np.finfo(dtype).eps) * largest
        factor, pivots, rank, _ = lapack.dpstrf(matrix, tol=tolerance, lower=1)
        self.rank = int(rank)
        self.pivots = pivots[: self.rank] - 1
        # What stands above the diagonal is not read.
        self.factor = np.ascontiguousarray(factor[: self.rank, : self.rank])

    def _solve(self, right: np.ndarray, transposed: bool = False) -> np.ndarray:
        # LAPACK itself: SciPy's function looks at its arguments for longer than so small a solution takes. What is
        # lower in rows is upper in columns, and nothing is copied.
        solution: np.ndarray = lapack.dtrtrs(self.factor.T, right, lower=0, trans=int(not transposed))[0]
        return solution

    def whiten(self, products: np.ndarray) -> np.ndarray:
        """Products with the coordinates (n, p) to coordinates in which the metric is the identity (n, rank)."""
        if self.rank == 0:
            return np.zeros((len(products), 0))
        return self._solve(products[:, self.pivots].T).T

    def unwhiten(self, coordinates: np.ndarray) -> np.ndarray:
        """Whitened coordinates (n, rank) back to combinations of the original ones (n, p)."""
        full = np.zeros((len(coordinates), self.matrix.shape[0]))
        if self.rank:
            full[:, self.pivots] = self._solve(coordinates.T, transposed=True).T
        return full

    def to_white(self, combinations: np.ndarray) -> np.ndarray:
        """Combinations (n, p) to whitened coordinates: those of their projection on the kept span."""
        return self.whiten(combinations @ self.matrix)


def make_metric(matrix: Any, dtype: np.dtype | type) -> Any:
    """The metric of a matrix, where the matrix is; None for a matrix that is not finite."""
    if is_tensor(matrix):
        from rkdl._backends.torch.metric import TensorMetric

        return TensorMetric.of(matrix, dtype)
    return Metric(matrix, dtype) if np.isfinite(matrix).all() else None


class IdentityMetric:
    """The metric of features that are coordinates already: signals themselves, random Fourier features."""

    def __init__(self, size: int) -> None:
        self.rank = size

    def whiten(self, products: np.ndarray) -> np.ndarray:
        """Products are coordinates."""
        return products

    unwhiten = to_white = whiten
