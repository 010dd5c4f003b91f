"""Dictionaries of classes on shared features, compared by their residuals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from rkdl._backends.arrays import cast, host, is_tensor
from rkdl._backends.base import ChunkCodes, backend_of
from rkdl._backends.devices import to_host
from rkdl._coding.encoder import Encoder, Pursuit
from rkdl._coding.passes import map_rows
from rkdl._data.signals import NotFiniteError, Signals
from rkdl._execution.executor import Executor
from rkdl._features.maps import FeatureMap, KernelMap, LinearMap, WhitenedMap
from rkdl._features.metric import IdentityMetric, Metric
from rkdl._learning.learn import Report, inspected, loop_options, open_learning, start_problem, warm_up
from rkdl._learning.loop import LearningProblem, alternate
from rkdl._learning.specification import Specification
from rkdl._utils.types import Array

# Where no class explains more of a signal than this, the fractions that classes explain are compared, not residuals.
FAINT = 0.01


class Picked(Signals):
    """Some rows of other signals, in any order, read to where those are read."""

    def __init__(self, signals: Signals, rows: np.ndarray) -> None:
        super().__init__(signals.data, signals.dtype, (len(rows), signals.shape[1]))
        self.is_in_memory, self.device, self.home = signals.is_in_memory, signals.device, signals.home
        self._signals, self._rows = signals, rows

    def read(self, start: int, stop: int) -> Array:
        """Rows `start` to `stop` of the selection."""
        rows = self._rows[start:stop]
        if self.device is None:
            return self._signals.take(rows)
        return self._signals.subset(rows).read(0, len(rows))

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Some rows of the selection."""
        return self._signals.take(self._rows[indices])

    def on_host(self) -> Signals:
        return Picked(self._signals.on_host(), self._rows)


@dataclass(frozen=True)
class SharedFeatures:
    """Features that the dictionaries of all classes are learned on."""

    vectors: np.ndarray | None  # kernel vectors or frequencies
    gamma: float | None
    feature_map: FeatureMap  # to coordinates in which the metric is the identity
    metric: Metric | IdentityMetric  # turns whitened atoms into combinations of the features
    pursuit: Pursuit

    @classmethod
    def of(cls, specification: Specification, problem: LearningProblem, gamma: float | None) -> SharedFeatures:
        """Those that a problem was learned on, in host memory."""
        feature_map, metric = to_host((problem.model.feature_map, problem.model.metric))
        dtype, pursuit = problem.executor.signals.dtype, specification.pursuit
        vectors = None if feature_map.vectors is None else feature_map.vectors.astype(dtype)
        if isinstance(feature_map, KernelMap) and isinstance(metric, Metric):
            feature_map = WhitenedMap.of(feature_map, metric, dtype)
        # As many atoms as coordinates represent any signal, of any class.
        limit = min(pursuit.n_nonzero, max(1, feature_map.size // 2))
        return cls(vectors, gamma, feature_map, metric, pursuit._replace(n_nonzero=limit))


@contextmanager
def shared_features(
    specification: Specification, signals: Signals, rng: np.random.RandomState, report: Report, n_jobs: int | None
) -> Iterator[tuple[Executor, SharedFeatures]]:
    """What the dictionaries of several classes share: kernel vectors are chosen, and learned if the method does so."""
    with open_learning(specification, signals, n_jobs) as (opened, _):
        executor = inspected(specification, opened)
        problem, gamma = start_problem(specification, executor, rng, report)
        is_interrupted = warm_up(specification, problem, report)
        if specification.vector_update is not None and not is_interrupted:
            of_all = report._replace(name=f"{report.name} of all classes")
            options = loop_options(specification, problem, of_all)
            _, is_interrupted = alternate(problem, max_iter=specification.max_iter, **options)
        if is_interrupted:
            raise KeyboardInterrupt
        yield executor, SharedFeatures.of(specification, problem, gamma)


@dataclass(frozen=True)
class ClassCoder:
    """Codes signals with the dictionary of each class, from features that are computed once.

    To the encoder of a class, with atoms (n_k, p) of unit norm, these features are the signals.
    """

    feature_map: FeatureMap
    encoders: tuple[Encoder, ...]

    @classmethod
    def of(
        cls, feature_map: FeatureMap, atoms: Sequence[Array], grams: Sequence[Array], pursuit: Pursuit
    ) -> ClassCoder:
        """The coder with these atoms and their inner products; no class has more non-zeros than atoms."""
        coordinates, n_nonzero = LinearMap(feature_map.size), pursuit.n_nonzero
        encoders = [
            Encoder(coordinates, own, gram, pursuit._replace(n_nonzero=min(n_nonzero, len(own))))
            for own, gram in zip(atoms, grams, strict=True)
        ]
        return cls(feature_map, tuple(encoders))

    @property
    def row_width(self) -> int:
        """Size of the working memory per signal, in numbers, while it is coded with one class."""
        own_features = 0 if self.is_linear else self.feature_map.size
        return self.feature_map.signal_size + own_features + 2 * max(own.n_atoms for own in self.encoders)

    @property
    def is_linear(self) -> bool:
        """Whether the features are the signals, as in `rkdl._coding.encoder.Encoder`."""
        return isinstance(self.feature_map, LinearMap)

    def in_range(self, signals: np.ndarray) -> tuple[ClassCoder, np.ndarray]:
        """As `rkdl._coding.encoder.Encoder.in_range`."""
        if not self.feature_map.needs_float64(signals):
            return self, signals
        wide = np.dtype(np.float64)
        encoders = tuple(own.wide for own in self.encoders)
        return replace(self, feature_map=self.feature_map.as_dtype(wide), encoders=encoders), signals.astype(wide)

    def codes(self, features: Array, norms: Array) -> Iterator[tuple[ChunkCodes, Array]]:
        """Codes and squared residuals of each class in turn, of signals of these squared norms."""
        backend = backend_of(features)
        for own in self.encoders:
            yield backend.pursue(own.correlate(features)[1], own.padded_gram, norms, *own.limited)

    def relative_residuals(self, decoder: None, signals: Array) -> tuple[Array, Array]:
        """Numbers that tell whether the features are in range, and squared residuals (c, classes) of a chunk.

        These are relative to the signals' squared norms; a zero signal has residuals of zero.
        """
        features, norms, checked = self._map(signals)
        backend = backend_of(features)
        found = backend.xp.stack([residuals for _, residuals in self.codes(features, norms)]).T
        return checked, found / backend.where(norms > 0.0, norms, 1.0)[:, None]

    def faint_shares(self, decoder: None, signals: Array) -> tuple[Array, Array]:
        """As `relative_residuals`, with the explained fractions of signals that no class explains well.

        Fractions (c, classes) are divided by the square of the number in a last column, since they may underflow.
        """
        features, norms, checked = self._map(signals)
        backend = backend_of(features)
        largest = backend.largest(abs(features), 1)[0]
        # Scaling all features of a signal does not change the choices of the pursuit.
        features = features / backend.where(largest > 0.0, largest, 1.0)
        endless = backend.full((len(features),), np.inf, features)
        columns = []
        for own in self.encoders:
            correlations = own.correlate(features)[1]
            pursuit = own.limited._replace(residual_tol=-1.0)
            columns.append(backend.pursue(correlations, own.padded_gram, endless, *pursuit)[0].correlate(correlations))
        return checked, backend.xp.stack([*columns, largest[:, 0] / norms**0.5]).T

    def _map(self, signals: Array) -> tuple[Array, Array, Array]:
        """Features and squared norms of a chunk, and numbers that tell whether the features are in range."""
        with np.errstate(over="ignore", invalid="ignore"):
            features, norms = self.feature_map.features(signals), self.feature_map.squared_norms(signals)
        if is_tensor(features):
            # Looking would wait for the device: zeros, or NaN where features are not finite, are looked at later.
            sums = features.sum(1)
            return features, norms, features if self.is_linear else sums - sums
        if not np.isfinite(features.sum() + norms.sum()):
            raise NotFiniteError
        return features, norms, features


def relative_residuals(signals: Signals, coder: ClassCoder, n_jobs: int | None) -> Array:
    """Squared residuals (n_signals, n_classes) relative to the signals' squared norms."""
    return map_rows(signals, coder, None, len(coder.encoders), n_jobs, ClassCoder.relative_residuals)


def class_scores(signals: Signals, coder: ClassCoder, n_jobs: int | None) -> Array:
    """Scores (n_signals, n_classes) in float64, the largest that of the best class: minus the relative residuals.

    Far from all kernel vectors these are one up to rounding. The scores of such a signal are the fractions that the
    classes explain, which still differ.
    """
    scores = -cast(relative_residuals(signals, coder, n_jobs), np.float64)
    faint = backend_of(scores).xp.argwhere((scores < FAINT - 1.0).all(1))[:, 0]
    if len(faint):
        count = len(coder.encoders)
        picked = Picked(signals, host(faint))
        found = cast(map_rows(picked, coder, None, count + 1, n_jobs, ClassCoder.faint_shares), np.float64)
        scores[faint] = found[:, :count] * found[:, count:] ** 2
    return scores
