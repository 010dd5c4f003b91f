"""Anomaly scores: how badly a signal is represented.

A signal has norm one in the feature space of an RBF kernel, so the squared norm r^2 of what lies outside the span of
some atoms is the fraction of its energy that they do not explain. It is at most one, and all signals far from the
kernel vectors would tie. The same order without an upper bound is that of

    anomaly(y) = -log(1 - r^2)

which is close to r^2 for small r, and to 2 gamma times the squared distance to the nearest kernel vector for r close to
one. To avoid underflow, kernel values are divided by the largest, whose logarithm is added at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, host, joined, squared_norms
from rkdl._backends.base import backend_of
from rkdl._data.signals import NotFiniteError, Signals
from rkdl._execution.executor import open_executor
from rkdl._utils.types import Array

# Quantiles that bound the values which set the scale of a feature; one of at most so many values is a class or a count.
INNER = (0.05, 0.95)
FEW_VALUES = 20
# Signals among which the nearest is far if most others are; the factor of gamma of a kernel of single signals.
FEW, NARROW = 16, 60.0
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
    """Sets of p kernel vectors (k, p, m) of scaled signals, and orthonormal atoms (k, n, p) that are spanned by each.

    The anomalies of a set are that of its dictionary, whose kernel has this gamma; the squared distance to the nearest
    vector, which is the anomaly of a dictionary of these vectors with one nonzero and a narrow kernel; and, if
    `has_few`, the mean distance to the nearest of `FEW` vectors, squared.
    """

    scaling: Scaling
    gamma: float
    kernel_vectors: Array
    atoms: Array
    has_few: bool

    @property
    def width(self) -> int:
        """Numbers that a signal occupies while it is scored."""
        sets, size, n_features = self.kernel_vectors.shape
        return sets * size + 2 * n_features

    def anomalies(self, signals: Array) -> Array:
        """Anomalies (c, 2 k or 3 k) of signals (c, m), those of a set next to each other."""
        rows, columns = self.scaling(signals), list[Array]()
        backend, xp = backend_of(rows), backend_of(rows).xp
        own, factors = self.gamma * squared_norms(rows), -2.0 * self.gamma * rows.T
        for vectors, atoms in zip(self.kernel_vectors, self.atoms, strict=True):
            # Columns are signals, so that minima and sums add rows; gamma |x - y|^2 - gamma |y|^2 comes first.
            distances = vectors @ factors
            distances += self.gamma * squared_norms(vectors)[:, None]
            nearest = xp.amin(distances, 0)
            is_far = ~xp.isfinite(nearest)
            minima = [nearest[None], few_minima(distances)] if self.has_few else [nearest[None]]
            means = [((least + own).clip(min=0.0) ** 0.5).mean(0) ** 2 for least in minima]
            exponents = xp.subtract(nearest, distances, out=distances)
            exponents[:, is_far] = 0.0
            values = atoms @ backend.exp(exponents)
            explained = (values * values).sum(0)
            found = [2.0 * means[0] - xp.log(explained.clip(min=TINY)), *(2.0 * NARROW * mean for mean in means)]
            columns.extend(backend.where(is_far, np.inf, anomaly).clip(min=ROUNDING) for anomaly in found)
        return xp.stack(columns).T


def few_minima(distances: Array) -> Array:
    """Minima (j, c) of distances (p, c) in groups of `FEW` rows."""
    count, n_signals = max(1, len(distances) // FEW), distances.shape[1]
    groups = distances[: len(distances) // count * count].reshape(count, -1, n_signals)
    return backend_of(distances).xp.amin(groups, 1)


@dataclass(frozen=True)
class AnomalyTask:
    """Chunk task: anomalies of signals or, with `locations` (k, g, 3), their scores."""

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


def combine(raw: Array, locations: Array, dtype: np.dtype, weights: Array | None = None) -> Array:
    """Scores from anomalies (c, k g), where lower is more abnormal, and locations (k, g, 3).

    These are the unit and, of the logarithms ``log(1 + anomaly / unit)``, median and spread. Without logarithms, one
    set could outweigh all others. Means over the sets, with `weights` (c, k, g) if given, are estimates of the same
    number; the largest of the g means counts, as what one of them finds need not be visible to the others.
    """
    sets, groups, _ = locations.shape
    units, medians, spreads = (locations[:, :, i] for i in range(3))
    logs = backend_of(raw).xp.log1p(raw.clip(max=LARGEST).reshape(-1, sets, groups) / units)
    relative = (logs - medians) / spreads
    means = relative.mean(1) if weights is None else (relative * weights).sum(1)
    return cast(-backend_of(raw).xp.amax(means, 1), dtype)
