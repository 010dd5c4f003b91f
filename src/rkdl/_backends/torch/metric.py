"""The metric of a feature space on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rkdl._features.metric import Metric

# Where the smallest pivot is this many times what counts as zero, no other order of pivots finds one that does.
_CLEAR = 100.0


class TensorMetric:
    """A positive semidefinite matrix seen through its Cholesky factor; as `rkdl._features.metric.Metric`.

    The factor is pivoted, on the host, only where the rank is in doubt.

    Parameters
    ----------
    matrix : Tensor of shape (p, p)
        Symmetric, positive semidefinite up to rounding, float64.
    dtype : dtype
        The dtype of the data behind the matrix: it decides what counts as zero.

    Attributes
    ----------
    rank : int
        Number of coordinates kept.
    """

    def __init__(self, matrix: torch.Tensor, dtype: Any) -> None:
        # Whether the matrix is finite shows in the factor, and only a factor that fails is looked into.
        factor = torch.linalg.cholesky_ex(matrix)[0]
        lowest, largest = torch.stack([factor.diagonal().min(), matrix.diagonal().max()]).tolist()
        zero = len(matrix) * float(np.finfo(dtype).eps) * largest
        if lowest > 0.0 and lowest * lowest > 2.0 * zero:
            self._hold(matrix, len(matrix), None, factor)
            if lowest * lowest > _CLEAR * zero or self._smallest_left() > 2.0 * zero:
                return
        if not matrix.isfinite().all():
            self._hold(matrix, -1, None, factor)
        else:
            self._take(Metric(matrix.cpu().numpy(), dtype), matrix)

    @classmethod
    def of(cls, matrix: torch.Tensor, dtype: Any) -> TensorMetric | None:
        """The metric of a matrix; None if that is not finite."""
        metric = cls(matrix, dtype)
        return metric if metric.rank >= 0 else None

    def _hold(self, matrix: torch.Tensor, rank: int, pivots: torch.Tensor | None, factor: torch.Tensor) -> None:
        self.matrix, self.rank, self.pivots, self.factor = matrix, rank, pivots, factor
        # Small solves are mostly launches: the factor is inverted once, and whitening is a product.
        identity = torch.eye(rank if rank > 0 else 0, dtype=torch.float64, device=matrix.device)
        self.inverse = torch.linalg.solve_triangular(factor, identity, upper=False) if rank > 0 else identity

    def _take(self, metric: Metric, matrix: torch.Tensor) -> None:
        device = matrix.device
        pivots = torch.from_numpy(metric.pivots.astype(np.int64)).to(device)
        self._hold(matrix, metric.rank, pivots, torch.from_numpy(np.ascontiguousarray(metric.factor)).to(device))

    @classmethod
    def placed(cls, metric: Metric, device: torch.device) -> TensorMetric:
        """The same coordinates on a device."""
        placed = cls.__new__(cls)
        placed._take(metric, torch.from_numpy(np.ascontiguousarray(metric.matrix)).to(device))
        return placed

    def on_host(self) -> Metric:
        """The same coordinates in NumPy."""
        metric = Metric.__new__(Metric)
        metric.matrix, metric.rank, metric.factor = self.matrix.cpu().numpy(), self.rank, self.factor.cpu().numpy()
        metric.pivots = np.arange(self.rank) if self.pivots is None else self.pivots.cpu().numpy()
        return metric

    def _smallest_left(self) -> float:
        """The least that all other coordinates leave of one: no order of pivots has a smaller last pivot."""
        return 1.0 / float(self.inverse.square().sum(0).max())

    def whiten(self, products: torch.Tensor) -> torch.Tensor:
        """Products with the coordinates (n, p) to coordinates in which the metric is the identity (n, rank)."""
        kept = products if self.pivots is None else products[:, self.pivots]
        return kept @ self.inverse.T

    def unwhiten(self, coordinates: torch.Tensor) -> torch.Tensor:
        """Whitened coordinates (n, rank) back to combinations of the original ones (n, p)."""
        combined = coordinates @ self.inverse
        if self.pivots is None:
            return combined
        full = torch.zeros((len(coordinates), len(self.matrix)), dtype=combined.dtype, device=combined.device)
        full[:, self.pivots] = combined
        return full

    def to_white(self, combinations: torch.Tensor) -> torch.Tensor:
        """Combinations (n, p) to whitened coordinates: those of their projection on the kept span."""
        return self.whiten(combinations @ self.matrix)
