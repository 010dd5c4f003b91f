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

from rkdl._backends.arrays import cast, host, joined, squared_norms
from rkdl._backends.base import backend_of
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encoder import Encoder
from rkdl._data.signals import NotFiniteError, Signals
from rkdl._execution.executor import open_executor
from rkdl._features.kernels import RBF
from rkdl._features.maps import KernelMap
from rkdl._utils.types import Array

# Quantiles that bound the values which set the scale of a feature; one of at most so many values is a class or a count.
INNER = (0.05, 0.95)
FEW_VALUES = 20
LARGEST = 1e-4 * float(np.finfo(np.float64).max)
TINY = float(np.finfo(np.float64).tiny)
# Signals that are represented completely differ by rounding, which must not order them.
ROUNDING = 1e-12


class Scaling(NamedTuple):
    """Location and scale (m,) of every feature: what is measured in other units is compared in spreads."""

    centre: Array
    scale: Array

    @classmethod
    def of(cls, sample: np.ndarray, *, is_scaled: bool = True) -> Scaling:
        """The medians and, if `is_scaled`, the standard deviations of a sample (n, m), without gross errors.

        Values farther from nine tenths of the values than these are wide count as the end of that range, unless the
        nine tenths are equal. A feature of few values is a class or a count: its steps are at most two scales wide, or
        rare values would decide every distance.
        """
        centre = np.median(sample, axis=0)
        if not is_scaled:
            return cls(centre, np.ones_like(centre))
        deviations = sample - centre
        low, high = np.quantile(deviations, INNER, axis=0)
        reach = np.where(high > low, high - low, np.inf)
        largest = np.maximum(np.abs(deviations).max(axis=0), TINY)
        scale = largest * (deviations.clip(low - reach, high + reach) / largest).std(axis=0)
        # Most features have more values among a few signals already.
        distinct = 1 + (np.diff(np.sort(sample[:64], axis=0), axis=0) > 0.0).sum(axis=0)
        for feature in np.flatnonzero(distinct <= FEW_VALUES):
            found = np.unique(sample[:, feature])
            if 1 < len(found) <= FEW_VALUES:
                scale[feature] = max(scale[feature], float(np.median(np.diff(found))) / 2.0)
        return cls(centre, np.where(scale > 1e-12 * largest, scale, 1.0))

    def __call__(self, signals: Array) -> Array:
        """Signals (c, m) in float64, relative to the location and in units of the scale."""
        return (cast(signals, np.float64) - self.centre) / self.scale


class Ensemble(NamedTuple):
    """Encoders of dictionaries, and k sets of reference signals (k, r, m), all of scaled signals.

    A set is a dictionary of single signals with one nonzero each, under the narrowest of the kernels: the anomaly
    ``2 gamma |y - x|^2`` with the nearest x.
    """

    scaling: Scaling
    encoders: tuple[Encoder, ...]
    references: Array

    @classmethod
    def of(cls, scaling: Scaling, dictionaries: Sequence[FittedDictionary], references: np.ndarray) -> Ensemble:
        """The ensemble of these dictionaries and reference signals."""
        return cls(scaling, tuple(own.encoder(np.dtype(np.float64)) for own in dictionaries), references)

    @property
    def width(self) -> int:
        """Numbers that a signal occupies while it is scored."""
        sets, size, n_features = self.references.shape
        return max([sets * size, *(2 * own.feature_map.size for own in self.encoders)]) + 2 * n_features

    def anomalies(self, signals: Array) -> Array:
        """Anomaly of each signal (c, m) in each dictionary and each set, (c, n_members + k)."""
        rows = self.scaling(signals)
        squares = squared_norms(rows)
        columns = [_anomaly(encoder, rows, squares) for encoder in self.encoders]
        gamma = max(map(gamma_of, self.encoders))
        columns.extend(nearest_anomalies(rows, self.references, gamma).T)
        return backend_of(rows).xp.stack(columns).T


def gamma_of(member: Encoder | FittedDictionary) -> float:
    """Gamma of the RBF kernel of a dictionary."""
    feature_map = member.feature_map
    assert isinstance(feature_map, KernelMap)
    assert isinstance(feature_map.kernel, RBF)
    return feature_map.kernel._gamma


def nearest_anomalies(rows: Array, references: Array, gamma: float) -> Array:
    """``2 gamma |y - x|^2`` (c, k) of rows y (c, m), with x the nearest of each set of reference signals (k, r, m)."""
    sets, size, n_features = references.shape
    others = references.reshape(sets * size, n_features)
    distances = squared_norms(rows)[:, None] + squared_norms(others) - 2.0 * backend_of(rows).product(rows, others)
    return 2.0 * gamma * backend_of(rows).xp.amin(distances.reshape(len(rows), sets, size), 2).clip(min=0.0)


def _anomaly(encoder: Encoder, signals: Array, squares: Array) -> Array:
    """``-log(1 - r^2)`` per signal (c, m) of these squared norms, above 0; infinite where distances overflow."""
    backend, feature_map = backend_of(signals), encoder.feature_map
    assert isinstance(feature_map, KernelMap)
    vectors, gamma = feature_map.kernel_vectors, gamma_of(encoder)
    values, logs = backend.scaled_rbf(signals, vectors, gamma, squares, squared_norms(vectors))
    endless = backend.full((len(signals),), np.inf, signals)
    correlations = values @ encoder.atoms.T
    codes, _ = encoder.pursue(correlations, squared_norms=endless)
    explained = codes.correlate(correlations)
    return (-2.0 * logs - backend.xp.log(explained.clip(min=TINY))).clip(min=ROUNDING)


@dataclass(frozen=True)
class AnomalyTask:
    """Chunk task: anomalies of signals or, with `locations` (n_columns, 4), their scores."""

    ensemble: Ensemble
    dtype: np.dtype
    locations: Array | None = None

    def __call__(self, rows: Array, state: None) -> tuple[tuple, Array]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # A sum is not finite where a number is not.
            total, raw = rows.sum(), self.ensemble.anomalies(rows)
            return (total,), raw if self.locations is None else combine(raw, self.locations, self.dtype)

    def of_all(self, signals: Signals, n_jobs: int | None) -> Array:
        """The results for all signals, as a tensor if these came as one; NaN and infinity are refused."""
        width = self.ensemble.width * (8 // signals.dtype.itemsize)
        with open_executor(signals, width, n_jobs, is_part=True) as executor:
            (total,), parts = executor.map_reduce(self)
        if not np.isfinite(float(total)):
            signals.check_finite()
        found = host(joined(parts)) if signals.result_device is None else joined(parts)
        if self.locations is not None and not bool(backend_of(found).xp.isfinite(found).all()):
            raise NotFiniteError
        return found


def combine(raw: Array, locations: Array, dtype: np.dtype) -> Array:
    """Scores from anomalies (c, n), where lower is more abnormal, and locations (n, 4).

    These are the unit and, of the logarithms ``log(1 + anomaly / unit)``, median, spread and weight. Without
    logarithms, one member could outweigh all others.
    """
    units, medians, spreads, weights = locations.T
    logs = backend_of(raw).xp.log1p(raw.clip(max=LARGEST) / units)
    return cast(-((logs - medians) / spreads) @ weights, dtype)
