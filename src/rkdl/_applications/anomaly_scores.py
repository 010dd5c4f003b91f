"""Anomaly scores: how badly a dictionary represents a signal.

A signal has norm one in the feature space of an RBF kernel, so its squared residual r^2 is the fraction of its energy
that the dictionary does not explain. It is at most one, and all signals far from the kernel vectors would tie. The same
order without an upper bound is that of

    anomaly(y) = -log(1 - r^2)

which is close to r^2 for small r, and to 2 gamma times the squared distance to the kernel vectors for r close to one.
To avoid underflow, the features of a signal are divided by their largest, which does not change the choices of the
pursuit, and its logarithm is added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rkdl._backends.arrays import squared_norms
from rkdl._backends.cpu.codes import explained_squares
from rkdl._backends.cpu.products import multiply
from rkdl._features.widths import centre_of

# Residuals that differ by less than this are not magnified to the spread of other dictionaries' residuals: this one
# represents all signals, or the differences are rounding errors.
LEAST_SPREAD = 1e-4


class Member(NamedTuple):
    """One dictionary of the ensemble, in float64."""

    gamma: float
    kernel_vectors: np.ndarray
    atoms: np.ndarray
    gram: np.ndarray
    n_nonzero: int

    def about(self, centre: np.ndarray) -> Member:
        """The same dictionary for signals minus `centre`: an offset costs accuracy in the distances."""
        return self._replace(kernel_vectors=self.kernel_vectors - centre)

    def anomaly(self, signals: np.ndarray) -> np.ndarray:
        """``-log(1 - r^2)`` per signal (c, m), at least 0; infinite where distances overflow."""
        return self.anomaly_with(signals, squared_norms(signals), squared_norms(self.kernel_vectors))

    def anomaly_with(self, signals: np.ndarray, squares: np.ndarray, vector_squares: np.ndarray) -> np.ndarray:
        """As `anomaly`, with the squared norms of the signals (c,) and of the kernel vectors (p,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            exponents = multiply(signals, self.kernel_vectors)
            exponents *= 2.0
            exponents -= squares[:, None]
            exponents -= vector_squares
            exponents *= self.gamma
        np.minimum(exponents, 0.0, out=exponents)
        nearest = exponents.max(axis=1)
        is_far = ~np.isfinite(nearest)
        exponents[is_far] = 0.0
        exponents -= np.where(is_far, 0.0, nearest)[:, None]
        correlations = np.exp(exponents, out=exponents) @ self.atoms.T
        endless = np.full(len(signals), np.inf)
        explained = explained_squares(correlations, self.gram, endless, self.n_nonzero, -1.0, True)
        explained = np.maximum(explained, np.finfo(np.float64).tiny)
        left = np.maximum(-2.0 * nearest - np.log(explained), 0.0)
        return np.where(is_far, np.inf, left)


@dataclass(frozen=True)
class Ensemble:
    """Dictionaries about one centre, with the squared norms of their kernel vectors."""

    centre: np.ndarray
    members: tuple[Member, ...]
    squares: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, members: Sequence[Member]) -> Ensemble:
        """The ensemble of these dictionaries about the centre of all their kernel vectors."""
        centre = centre_of(np.concatenate([member.kernel_vectors for member in members]))
        centred = tuple(member.about(centre) for member in members)
        return cls(centre, centred, tuple(squared_norms(member.kernel_vectors) for member in centred))

    def anomalies(self, signals: np.ndarray) -> np.ndarray:
        """Anomaly of each signal (c, m) in each dictionary, (c, n_members)."""
        rows = signals.astype(np.float64) - self.centre
        norms = squared_norms(rows)
        found = np.empty((len(rows), len(self.members)))
        for column, (member, squares) in enumerate(zip(self.members, self.squares, strict=True)):
            found[:, column] = member.anomaly_with(rows, norms, squares)
        return found


def robust_location(values: np.ndarray) -> tuple[float, float]:
    """Median, and interquartile range but at least `LEAST_SPREAD`."""
    low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
    return middle, max(high - low, LEAST_SPREAD)


def upper_fence(values: np.ndarray) -> float:
    """Above this is an outlier: Tukey's fence, moved out where the values are skewed to that side.

    1.5 quartile distances, times ``exp(1.5 M)`` with M the medcouple, a measure of skewness that outliers do not
    change. The adjusted boxplot of Hubert and Vandervieren has 3 in place of the second 1.5, for tails of 0.35 %, which
    leaves few signals to look at.
    """
    low, high = np.quantile(values, (0.25, 0.75))
    return float(high + 1.5 * np.exp(1.5 * max(medcouple(values), 0.0)) * (high - low))


def medcouple(values: np.ndarray, most: int = 1000) -> float:
    """Skewness from -1 to 1: the median, over pairs on both sides of the middle, of how much farther one is from it.

    Of more than `most` values, as many of their order statistics.
    """
    ordered = np.sort(values)
    if len(ordered) > most:
        ordered = ordered[np.linspace(0, len(ordered) - 1, most).astype(np.intp)]
    away = ordered - np.median(ordered)
    above, below = away[away >= 0.0][:, None], -away[away <= 0.0]
    total = above + below
    return float(np.median(np.divide(above - below, total, out=np.zeros_like(total), where=total > 0.0)))
