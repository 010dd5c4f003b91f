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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, joined, squared_norms
from rkdl._backends.base import backend_of
from rkdl._data.signals import Signals
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.threads import ThreadExecutor
from rkdl._features.widths import centre_of
from rkdl._utils.inputs import check_rows_finite
from rkdl._utils.types import Array

# Residuals that differ by less than this are not magnified to the spread of other dictionaries' residuals: this one
# represents all signals, or the differences are rounding errors.
LEAST_SPREAD = 1e-4
TINY = float(np.finfo(np.float64).tiny)


class Member(NamedTuple):
    """One dictionary of the ensemble, in float64."""

    gamma: float
    kernel_vectors: Array
    atoms: Array
    gram: Array
    n_nonzero: int

    def about(self, centre: np.ndarray) -> Member:
        """The same dictionary for signals minus `centre`: an offset costs accuracy in the distances."""
        return self._replace(kernel_vectors=self.kernel_vectors - centre)

    def anomaly(self, signals: Array) -> Array:
        """``-log(1 - r^2)`` per signal (c, m), at least 0; infinite where distances overflow."""
        return self.anomaly_with(signals, squared_norms(signals), squared_norms(self.kernel_vectors))

    def anomaly_with(self, signals: Array, squares: Array, vector_squares: Array) -> Array:
        """As `anomaly`, with the squared norms of the signals (c,) and of the kernel vectors (p,)."""
        backend = backend_of(signals)
        values, logs = backend.scaled_rbf(signals, self.kernel_vectors, self.gamma, squares, vector_squares)
        endless = backend.full((len(signals),), np.inf, signals)
        correlations = values @ self.atoms.T
        codes, _ = backend.pursue(correlations, self.gram, endless, self.n_nonzero, -1.0, True)
        explained = codes.correlate(correlations)
        return (-2.0 * logs - backend.log(explained.clip(min=TINY))).clip(min=0.0)


@dataclass(frozen=True)
class Ensemble:
    """Dictionaries about one centre, with the squared norms of their kernel vectors."""

    centre: Array
    members: tuple[Member, ...]
    squares: tuple[Array, ...]

    @classmethod
    def of(cls, members: Sequence[Member]) -> Ensemble:
        """The ensemble of these dictionaries about the centre of all their kernel vectors."""
        centre = centre_of(np.concatenate([member.kernel_vectors for member in members]))
        centred = tuple(member.about(centre) for member in members)
        return cls(centre, centred, tuple(squared_norms(member.kernel_vectors) for member in centred))

    @property
    def row_width(self) -> int:
        """Size of the working memory per signal, in numbers of float64."""
        return 2 * sum(self.members[0].kernel_vectors.shape)

    def anomalies(self, signals: Array) -> Array:
        """Anomaly of each signal (c, m) in each dictionary, (c, n_members)."""
        rows = cast(signals, np.float64) - self.centre
        norms = squared_norms(rows)
        found = backend_of(rows).full((len(rows), len(self.members)), 0.0, rows)
        for column, (member, squares) in enumerate(zip(self.members, self.squares, strict=True)):
            found[:, column] = member.anomaly_with(rows, norms, squares)
        return found


def map_signals(signals: Signals, row_width: int, n_jobs: int | None, function: Callable[[Array], Array]) -> Array:
    """``function(rows)`` of all signals, in one pass over the chunks; NaN and infinity are refused.

    A row takes `row_width` numbers of float64. Signals on a device are given to the function there, and the result is
    a tensor on it, or an array if the signals are arrays.
    """
    if signals.device is not None:
        return _map_on_device(signals, row_width, function)

    def task(number: int, start: int, stop: int) -> np.ndarray:
        rows = signals.read(start, stop)
        check_rows_finite(rows)
        return function(rows)

    with ThreadExecutor(signals, chunk_bounds(signals.shape[0], row_width, 8), n_jobs, row_width=row_width) as executor:
        return joined(executor.map_chunks(task))


def _map_on_device(signals: Any, row_width: int, function: Callable[[Array], Array]) -> Array:
    from rkdl._execution.device import DeviceExecutor

    with DeviceExecutor(signals, row_width * 8 // signals.dtype.itemsize) as executor:
        # A sum is not finite where a number is not, which is seen when all chunks are done.
        sums, parts = executor.attempt_chunks(lambda rows, state: ((rows.sum(),), function(rows)))
    if not np.isfinite(sums).all():
        signals.check_finite()
    return joined(parts)


def combine(raw: Array, locations: Array, dtype: np.dtype) -> Array:
    """Scores from anomalies (c, n_members) and their locations (n_members, 2): lower is more abnormal."""
    medians, spreads = locations.T
    with np.errstate(over="ignore"):
        scores = -((raw - medians) / spreads).mean(1)
    limit = float(np.finfo(dtype).max) / 4.0
    return cast(scores.clip(-limit, limit), dtype)


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
