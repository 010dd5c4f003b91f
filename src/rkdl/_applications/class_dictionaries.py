"""Dictionaries of classes on shared features: learned per class, and compared by their residuals.

In whitened coordinates (`rkdl._features.maps.WhitenedMap`) the dictionary of a class is a linear one, so that classes
are learned by the same problem as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rkdl._backends.cpu.codes import explained_squares, squared_residuals
from rkdl._backends.cpu.vectors import VECTOR_BYTES
from rkdl._coding.encoder import NotFiniteError, Pursuit, conditioning_scale, for_each_chunk, group_by_magnitude
from rkdl._coding.pursuit import Codes, pursue
from rkdl._data.signals import Signals
from rkdl._execution.blas import resolve_threads
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.config import cache_limit
from rkdl._execution.executor import Executor
from rkdl._execution.pool import side_by_side
from rkdl._execution.threads import ThreadExecutor
from rkdl._features.maps import FeatureMap, KernelMap, LinearMap, WhitenedMap
from rkdl._features.metric import IdentityMetric, Metric
from rkdl._features.space import FeatureSpace
from rkdl._learning.atom_updates import AtomUpdate
from rkdl._learning.initial_atoms import first_coordinates
from rkdl._learning.loop import LearningProblem
from rkdl._learning.reduced import Model, ReducedProblem

# The features of all signals are stored if they take no more than this.
FEATURE_BYTES = 512 << 20
# Where no class explains more of a signal than this, explained fractions are not computed from residuals.
FAINT = 0.01
# Numbers of atoms are padded to multiples of this, so that rows of Gram matrices are whole SIMD vectors.
LANES = VECTOR_BYTES // 4


class Picked(Signals):
    """Some rows of other signals, in any order."""

    def __init__(self, signals: Signals, rows: np.ndarray) -> None:
        super().__init__(signals.data, signals.dtype, signals.scale, (len(rows), signals.shape[1]))
        self.is_in_memory = signals.is_in_memory
        self._signals, self._rows = signals, rows

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` of the selection."""
        return self._signals.take(self._rows[start:stop])

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Some rows of the selection."""
        return self._signals.take(self._rows[indices])


@dataclass(frozen=True)
class SharedFeatures:
    """Features that the dictionaries of all classes are learned on, of signals multiplied by `scale`."""

    space: FeatureSpace  # in the units of the user's signals
    feature_map: FeatureMap  # to coordinates in which the metric is the identity
    metric: Metric | IdentityMetric  # turns whitened atoms into combinations of the features
    pursuit: Pursuit
    scale: float

    @classmethod
    def of(cls, space: FeatureSpace, problem: ReducedProblem) -> SharedFeatures:
        """Those that a problem was learned on."""
        feature_map, metric, *_ = problem.model
        signals, pursuit = problem.executor.signals, problem.pursuit
        if isinstance(feature_map, KernelMap) and isinstance(metric, Metric):
            feature_map = WhitenedMap.of(feature_map, metric, signals.dtype)
        # As many atoms as coordinates represent any signal, of any class.
        limit = min(pursuit.n_nonzero, max(1, feature_map.size // 2))
        return cls(space, feature_map, metric, pursuit._replace(n_nonzero=limit), signals.scale)

    @property
    def unit(self) -> float:
        """What the features were multiplied by."""
        return self.space.feature_scale(self.scale)

    def components(self, whitened_atoms: np.ndarray) -> np.ndarray:
        """Whitened atoms (n, r) as combinations of the features (n, p), for the user's signals."""
        return self.metric.unwhiten(whitened_atoms) * self.space.atom_scale(self.scale)


@dataclass(frozen=True)
class ClassCoder:
    """Codes signals with the dictionary of each class, from features that are computed once.

    Per class there are atoms (n_k, p) of unit norm, padded with rows of zeros, their inner products and a pursuit.
    """

    feature_map: FeatureMap
    atoms: Sequence[np.ndarray]
    grams: Sequence[np.ndarray]
    pursuits: Sequence[Pursuit]

    @property
    def row_width(self) -> int:
        """Size of the working memory per signal, in numbers, while it is coded with one class."""
        own_features = 0 if isinstance(self.feature_map, LinearMap) else self.feature_map.size
        return self.feature_map.signal_size + own_features + 2 * max(len(atoms) for atoms in self.atoms)

    def codes(self, features: np.ndarray, norms: np.ndarray) -> Iterator[tuple[Codes, np.ndarray]]:
        """Codes and squared residuals of each class in turn."""
        for atoms, gram, pursuit in zip(self.atoms, self.grams, self.pursuits, strict=True):
            limit = min(pursuit.n_nonzero, self.feature_map.size)
            correlations = features @ atoms.T
            yield pursue(correlations, gram, norms, limit, pursuit.residual_tol, pursuit.ols)

    def relative_residuals(self, signals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared residuals (c, classes) of a chunk relative to the signals' squared norms, and explained fractions.

        Both, because the residuals of signals far from all kernel vectors are one up to rounding, while the fractions
        that the classes explain still differ. A zero signal has residuals of zero.
        """
        groups = group_by_magnitude(signals)
        if len(groups) == 1:
            return self._group_residuals(signals)
        found = np.empty((len(signals), len(self.atoms)), dtype=signals.dtype)
        shares = np.empty(found.shape)
        for group in groups:
            found[group], shares[group] = self._group_residuals(signals[group])
        return found, shares

    def _group_residuals(self, signals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`relative_residuals` of signals of like magnitude."""
        coder, rows = self._conditioned(signals)
        with np.errstate(over="ignore", invalid="ignore"):
            features, norms = self.feature_map.features(rows), self.feature_map.squared_norms(rows)
        if not np.isfinite(features.sum() + norms.sum()):
            raise NotFiniteError
        found = coder._squared_residuals(features, norms)
        found /= np.where(norms > 0.0, norms, 1.0)[:, None]
        shares = 1.0 - found.astype(np.float64)
        faint = np.flatnonzero((shares < FAINT).all(axis=1) & (norms > 0.0))
        if faint.size:
            shares[faint] = coder._faint_shares(features[faint], norms[faint])
        return found, shares

    def _squared_residuals(self, features: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Squared residuals (c, classes), without the codes that leave them."""
        found = np.empty((len(features), len(self.atoms)), dtype=features.dtype)
        for k, (atoms, gram, pursuit) in enumerate(zip(self.atoms, self.grams, self.pursuits, strict=True)):
            limit = min(pursuit.n_nonzero, self.feature_map.size)
            correlations = features @ atoms.T
            found[:, k] = squared_residuals(correlations, gram, norms, limit, pursuit.residual_tol, pursuit.ols)
        return found

    def _faint_shares(self, features: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Explained fractions of signals that no class explains well."""
        largest = np.abs(features).max(axis=1)
        largest[largest == 0.0] = 1.0
        # Scaling all features of a signal does not change the choices of the pursuit.
        features, endless = features / largest[:, None], np.full_like(norms, np.inf)
        found = []
        for atoms, gram, pursuit in zip(self.atoms, self.grams, self.pursuits, strict=True):
            correlations = features @ atoms.T
            limit = min(pursuit.n_nonzero, self.feature_map.size)
            found.append(explained_squares(correlations, gram, endless, limit, -1.0, pursuit.ols))
        return np.stack(found, axis=1) * (largest.astype(np.float64) ** 2 / norms)[:, None]

    def _conditioned(self, rows: np.ndarray) -> tuple[ClassCoder, np.ndarray]:
        """As `rkdl._coding.encoder.Encoder.condition`."""
        scale = conditioning_scale(rows) if isinstance(self.feature_map, LinearMap) else 1.0
        if scale == 1.0:
            return self, rows
        pursuits = [pursuit._replace(residual_tol=pursuit.residual_tol * scale * scale) for pursuit in self.pursuits]
        return replace(self, pursuits=pursuits), rows * rows.dtype.type(scale)


def relative_residuals(signals: Signals, coder: ClassCoder, n_jobs: int | None) -> tuple[np.ndarray, np.ndarray]:
    """`ClassCoder.relative_residuals` of all signals, in one pass over the chunks."""
    found = np.empty((signals.shape[0], len(coder.atoms)), dtype=signals.dtype)
    shares = np.empty(found.shape)

    def task(number: int, start: int, stop: int) -> None:
        found[start:stop], shares[start:stop] = coder.relative_residuals(signals.read(start, stop))

    for_each_chunk(signals, coder.row_width, n_jobs, task)
    return found, shares


def pad_atoms(atoms: np.ndarray) -> np.ndarray:
    """Atoms (n, p) padded with rows of zeros, which the pursuit never chooses, to whole SIMD vectors."""
    missing = -len(atoms) % LANES
    return np.ascontiguousarray(np.pad(atoms, ((0, missing), (0, 0)))) if missing else np.ascontiguousarray(atoms)


class ClassModel(NamedTuple):
    """The models of all classes; see `rkdl._learning.loop.LearningProblem`."""

    models: tuple[Model, ...]

    @property
    def objective(self) -> float:
        """The sum over the classes."""
        return float(sum(model.objective for model in self.models))

    @property
    def update_objective(self) -> float:
        """The sum over the classes."""
        return float(sum(model.update_objective for model in self.models))

    @property
    def penalty(self) -> float:
        """Nothing is minimised besides the error."""
        return 0.0


class ClassProblem(LearningProblem):
    """The dictionaries of all classes as one learning problem for `rkdl._learning.loop.alternate`.

    `members` are the rows of each class, which has `n_atoms` atoms but no more than signals. Features are in
    coordinates whose metric is the identity.
    """

    def __init__(
        self,
        executor: Executor,
        feature_map: FeatureMap,
        members: Sequence[np.ndarray],
        n_atoms: int,
        pursuit: Pursuit,
        rng: np.random.RandomState,
        *,
        init: str,
        atom_update: AtomUpdate,
    ) -> None:
        signals = executor.signals
        self._threads = resolve_threads(executor.n_jobs)
        # Classes are learned in parallel; if they are few, their chunks too.
        own_threads = -(-self._threads // len(members))
        n_signals = sum(len(rows) for rows in members)
        self.problems: list[ReducedProblem] = []
        for rows in members:
            count = min(n_atoms, len(rows))
            atoms = rng.standard_normal((count, feature_map.size))
            own = Picked(signals, rows)
            if init != "random":
                atoms = first_coordinates(init, own, count, rng, feature_map.features).astype(np.float64)
            width = signals.shape[1] + 2 * feature_map.size + 3 * count
            bounds = chunk_bounds(len(rows), width, signals.dtype.itemsize)
            # Asked here: classes learn in threads that do not know the user's settings.
            cache_bytes = cache_limit(FEATURE_BYTES * len(rows) // n_signals)
            problem = ReducedProblem(
                ThreadExecutor(own, bounds, own_threads, cache_bytes),
                Model.start(feature_map, IdentityMetric(feature_map.size), atoms),
                pursuit._replace(n_nonzero=min(pursuit.n_nonzero, count)),
                atom_update=atom_update,
            )
            self.problems.append(problem)
        super().__init__(executor, self._models())

    def encode(self) -> None:
        """Code the signals of each class with its own atoms."""
        self._each(ReducedProblem.encode)
        self.model = self._models()

    def update(self) -> None:
        """Update the atoms of each class."""
        self._each(ReducedProblem.update)
        self.model = self._models()

    def _models(self) -> ClassModel:
        return ClassModel(tuple(problem.model for problem in self.problems))

    def _each(self, function: Callable[[ReducedProblem], None]) -> None:
        # The largest first, for a balanced load.
        queue = sorted(self.problems, key=lambda problem: -problem.executor.signals.shape[0])
        side_by_side(function, queue, self._threads)

    def roll_back(self, model: ClassModel) -> None:
        """Make earlier dictionaries the current ones again."""
        super().roll_back(model)
        for problem, own in zip(self.problems, model.models, strict=True):
            problem.roll_back(own)
