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
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, host, joined, squared_norms
from rkdl._backends.base import backend_of
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encoder import Encoder
from rkdl._data.signals import Signals
from rkdl._execution.executor import open_executor
from rkdl._features.kernels import RBF
from rkdl._features.maps import KernelMap
from rkdl._features.widths import centre_of
from rkdl._utils.types import Array

# Residuals that differ by less than this are not magnified to the spread of other dictionaries' residuals: this one
# represents all signals, or the differences are rounding errors.
LEAST_SPREAD = 1e-4
TINY = float(np.finfo(np.float64).tiny)


class Ensemble(NamedTuple):
    """Encoders of dictionaries on kernel vectors relative to one centre: an offset costs accuracy in the distances."""

    centre: Array
    encoders: tuple[Encoder, ...]

    @classmethod
    def of(cls, dictionaries: Sequence[FittedDictionary]) -> Ensemble:
        """The ensemble of these dictionaries about the centre of all their kernel vectors."""
        centre = centre_of(np.concatenate([own.feature_map.vectors for own in dictionaries]))
        encoders = [own.encoder(np.dtype(np.float64)) for own in dictionaries]
        maps = [own.feature_map.restored({"kernel_vectors": own.feature_map.vectors - centre}) for own in encoders]
        return cls(
            centre, tuple(replace(own, feature_map=centred) for own, centred in zip(encoders, maps, strict=True))
        )

    def anomalies(self, signals: Array) -> Array:
        """Anomaly of each signal (c, m) in each dictionary, (c, n_members)."""
        rows = cast(signals, np.float64) - self.centre
        squares = squared_norms(rows)
        return backend_of(rows).xp.stack([_anomaly(encoder, rows, squares) for encoder in self.encoders]).T


def _anomaly(encoder: Encoder, signals: Array, squares: Array) -> Array:
    """``-log(1 - r^2)`` per signal (c, m) of these squared norms, at least 0; infinite where distances overflow."""
    backend, feature_map = backend_of(signals), encoder.feature_map
    assert isinstance(feature_map, KernelMap)
    assert isinstance(feature_map.kernel, RBF)
    vectors, gamma = feature_map.kernel_vectors, feature_map.kernel._gamma
    values, logs = backend.scaled_rbf(signals, vectors, gamma, squares, squared_norms(vectors))
    endless = backend.full((len(signals),), np.inf, signals)
    correlations = values @ encoder.atoms.T
    codes, _ = encoder.pursue(correlations, squared_norms=endless)
    explained = codes.correlate(correlations)
    return (-2.0 * logs - backend.xp.log(explained.clip(min=TINY))).clip(min=0.0)


@dataclass(frozen=True)
class AnomalyTask:
    """Chunk task: anomalies of signals or, with `locations` (n_members, 2), their scores."""

    ensemble: Ensemble
    dtype: np.dtype
    locations: Array | None = None

    def __call__(self, rows: Array, state: None) -> tuple[tuple, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            # A sum is not finite where a number is not.
            total, raw = rows.sum(), self.ensemble.anomalies(rows)
        return (total,), raw if self.locations is None else combine(raw, self.locations, self.dtype)

    def of_all(self, signals: Signals, n_jobs: int | None) -> Array:
        """The results for all signals, as a tensor if these came as one; NaN and infinity are refused."""
        feature_map = self.ensemble.encoders[0].feature_map
        width = 2 * (feature_map.size + feature_map.signal_size) * (8 // signals.dtype.itemsize)
        with open_executor(signals, width, n_jobs, is_part=True) as executor:
            (total,), parts = executor.map_reduce(self)
        if not np.isfinite(float(total)):
            signals.check_finite()
        return host(joined(parts)) if signals.result_device is None else joined(parts)


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
