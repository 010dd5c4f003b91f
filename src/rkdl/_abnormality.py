"""How badly a dictionary represents a signal, on a scale that does not end.

A signal has norm one in the feature space of an RBF kernel, so its squared residual r^2 is the share of it that the
dictionary leaves over. That share ends at one: all signals far from the kernel vectors would tie. The same order,
without the end, is

    abnormality(y) = -log(1 - r^2)

which is near r^2 where r is small, and near 2 gamma times the squared distance to the kernel vectors where r is near
one. It is computed without underflow: a pursuit's choices do not change when all features of a signal are multiplied
by one number, so they are divided by the largest of them, whose logarithm is added at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rkdl._kernels import squared_norms
from rkdl._pursuit import pursue

# A dictionary whose residuals differ by less than this represents all signals: their order is not magnified to that of
# dictionaries that do tell signals apart. It also covers rounding, where signals have few features or are equal.
LEAST_SPREAD = 1e-4


class Member(NamedTuple):
    """A learned dictionary on kernel vectors, in float64."""

    gamma: float
    kernel_vectors: np.ndarray
    atoms: np.ndarray
    gram: np.ndarray
    n_nonzero: int

    def abnormality(self, signals: np.ndarray) -> np.ndarray:
        """``-log(1 - r^2)`` of every signal (c, m), at least 0; signals at distances that overflow get infinity."""
        with np.errstate(over="ignore", invalid="ignore"):
            exponents = signals @ self.kernel_vectors.T
            exponents *= 2.0
            exponents -= squared_norms(signals)[:, None]
            exponents -= squared_norms(self.kernel_vectors)
            exponents *= self.gamma
        np.minimum(exponents, 0.0, out=exponents)
        nearest = exponents.max(axis=1)
        is_far = ~np.isfinite(nearest)
        exponents[is_far] = 0.0
        exponents -= np.where(is_far, 0.0, nearest)[:, None]
        correlations = np.exp(exponents, out=exponents) @ self.atoms.T
        endless = np.full(len(signals), np.inf)
        codes, _ = pursue(correlations, self.gram, endless, self.n_nonzero, -1.0, True)
        # The squared norm of a least-squares representation is its product with the signal.
        products = codes.to_csr(len(self.atoms)).multiply(correlations)
        explained = np.maximum(np.asarray(products.sum(axis=1)).ravel(), np.finfo(np.float64).tiny)
        left = np.maximum(-2.0 * nearest - np.log(explained), 0.0)
        return np.where(is_far, np.inf, left)


def robust_location(values: np.ndarray) -> tuple[float, float]:
    """Median, and distance between the quartiles but at least `LEAST_SPREAD`."""
    low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
    return middle, max(high - low, LEAST_SPREAD)
