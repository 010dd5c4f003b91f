"""Dictionaries of classes on shared features: learned per class, and compared by their residuals.

In whitened coordinates (`rkdl._features.maps.WhitenedMap`) the dictionary of a class is a linear one, so that classes
are learned by the same problem as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, host, is_tensor, normalize_rows
from rkdl._backends.base import backend_of
from rkdl._backends.devices import to_device, to_host
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encoder import Pursuit
from rkdl._coding.passes import map_rows
from rkdl._data.signals import NotFiniteError, Signals, needs_float64
from rkdl._execution.blas import resolve_threads
from rkdl._execution.config import cache_limit
from rkdl._execution.executor import Executor
from rkdl._execution.open import open_executor, open_part
from rkdl._execution.pool import side_by_side
from rkdl._features.maps import FeatureMap, KernelMap, LinearMap, WhitenedMap
from rkdl._features.metric import IdentityMetric, Metric
from rkdl._learning.atom_updates import AtomUpdate
from rkdl._learning.initial_atoms import first_coordinates
from rkdl._learning.learn import Report, inspected, loop_options, start_problem, warm_up
from rkdl._learning.loop import LearningProblem, alternate
from rkdl._learning.reduced import Model, ReducedProblem
from rkdl._learning.specification import Specification
from rkdl._utils.types import Array, Device

# The features of all signals are stored if they take no more than this.
FEATURE_BYTES = 512 << 20
# Where no class explains more of a signal than this, explained fractions are not computed from residuals.
FAINT = 0.01
# Numbers of atoms are padded to multiples of this, so that rows of float32 Gram matrices are whole SIMD vectors.
LANES = 16
# Multiplications of a pass from which on threads are worth starting.
MANY_MULTIPLICATIONS = 1 << 22


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

    def check_finite(self, name: str = "X") -> None:
        self._signals.check_finite(name)

    def largest(self) -> float:
        return self._signals.largest()

    def make_resident(self) -> None:
        """Rows are gathered when they are read."""


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
        vectors = next(iter(feature_map.state().values()), None)
        vectors = None if vectors is None else vectors.astype(dtype)
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
    width, is_alone = specification.row_width(*signals.shape), not specification.features.runs_user_code
    with open_executor(signals, width, n_jobs, is_alone=is_alone) as opened:
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
class ClassDictionaries:
    """Fitted dictionaries of several classes: a value, which keeps what codes signals of a dtype on a device."""

    feature_map: FeatureMap
    atoms: np.ndarray  # (classes, n, p), padded with rows of zeros
    grams: np.ndarray  # (classes, n, n)
    counts: np.ndarray  # atoms of each class
    pursuit: Pursuit
    _known: dict[Hashable, ClassCoder] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Compiled code does not check bounds.
        n_classes, n_atoms, size = self.atoms.shape
        if (
            size != self.feature_map.size
            or self.grams.shape != (n_classes, n_atoms, n_atoms)
            or self.counts.shape != (n_classes,)
            or not ((self.counts >= 0) & (self.counts <= n_atoms)).all()
        ):
            raise ValueError(
                f"The fitted atoms have shape {self.atoms.shape}, their inner products {self.grams.shape}, and a "
                f"signal has {self.feature_map.size} features: these do not fit together."
            )

    def coder(self, dtype: np.dtype, device: Device = None) -> ClassCoder:
        """What codes signals of a dtype, in NumPy or on a device."""
        found = self._known.get((dtype, device))
        if found is None:
            found = self._make_coder(dtype) if device is None else to_device(self.coder(dtype), device)
            self._known[dtype, device] = found
        return found

    def _make_coder(self, dtype: np.dtype) -> ClassCoder:
        atoms, grams, pursuits = [], [], []
        for own, gram, count in zip(self.atoms, self.grams, self.counts, strict=True):
            height = min(count + -count % LANES, len(own))
            atoms.append(own[:height].astype(dtype, copy=False))
            # A copy, since a model that was mapped from a file is read-only and the pursuit takes no such arrays.
            grams.append(np.array(gram[:height, :height], dtype=dtype, order="C"))
            pursuits.append(self.pursuit._replace(n_nonzero=min(self.pursuit.n_nonzero, int(count))))
        return ClassCoder(self.feature_map.as_dtype(dtype), atoms, grams, pursuits)

    def of_class(self, number: int) -> FittedDictionary:
        """The dictionary of one class."""
        count = self.counts[number]
        gram = self.grams[number, :count, :count]
        return FittedDictionary(self.feature_map, self.atoms[number, :count], self.pursuit, gram)


@dataclass(frozen=True)
class ClassCoder:
    """Codes signals with the dictionary of each class, from features that are computed once.

    Per class there are atoms (n_k, p) of unit norm, padded with rows of zeros, their inner products and a pursuit of no
    more non-zeros than features.
    """

    feature_map: FeatureMap
    atoms: Sequence[Array]
    grams: Sequence[Array]
    pursuits: Sequence[Pursuit]

    @property
    def row_width(self) -> int:
        """Size of the working memory per signal, in numbers, while it is coded with one class."""
        own_features = 0 if self.is_linear else self.feature_map.size
        return self.feature_map.signal_size + own_features + 2 * max(len(atoms) for atoms in self.atoms)

    @property
    def is_linear(self) -> bool:
        """Whether the features are the signals, as in `rkdl._coding.encoder.Encoder`."""
        return isinstance(self.feature_map, LinearMap)

    def with_gram(self) -> ClassCoder:
        """The coder, which has all inner products of its atoms."""
        return self

    def in_range(self, signals: np.ndarray) -> tuple[ClassCoder, np.ndarray]:
        """As `rkdl._coding.encoder.Encoder.in_range`."""
        if not self.is_linear or not needs_float64(signals):
            return self, signals
        atoms = [normalize_rows(own.astype(np.float64)) for own in self.atoms]
        return replace(self, atoms=atoms, grams=[own @ own.T for own in atoms]), signals.astype(np.float64)

    def codes(self, features: Array, norms: Array) -> Iterator[tuple[Any, Array]]:
        """Codes and squared residuals of each class in turn."""
        for atoms, gram, pursuit in zip(self.atoms, self.grams, self.pursuits, strict=True):
            # Of batches: a search for zeros would take longer than it saves.
            yield backend_of(features).pursue(features @ atoms.T, gram, norms, *pursuit)

    def relative_residuals(self, signals: Array) -> tuple[Array, Array]:
        """Numbers that tell whether the features are in range, and squared residuals (c, classes) of a chunk.

        These are relative to the signals' squared norms; a zero signal has residuals of zero.
        """
        features, norms, checked = self._map(signals)
        backend = backend_of(features)
        found = backend.full((len(features), len(self.atoms)), 0.0, features)
        for k, (atoms, gram, pursuit) in enumerate(zip(self.atoms, self.grams, self.pursuits, strict=True)):
            found[:, k] = backend.pursue(backend.product(features, atoms), gram, norms, *pursuit)[1]
        found /= backend.where(norms > 0.0, norms, 1.0)[:, None]
        return checked, found

    def faint_shares(self, signals: Array) -> tuple[Array, Array]:
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
        for atoms, gram, pursuit in zip(self.atoms, self.grams, self.pursuits, strict=True):
            correlations = backend.product(features, atoms)
            codes, _ = backend.pursue(correlations, gram, endless, pursuit.n_nonzero, -1.0, pursuit.ols)
            columns.append(codes.correlate(correlations))
        return checked, backend.stack([*columns, largest[:, 0] / norms**0.5]).T

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


class Residuals(NamedTuple):
    """Squared residuals (n_signals, n_classes) relative to the signals' squared norms.

    The residuals of `faint` signals, far from all kernel vectors, are one up to rounding, while the fractions `shares`
    (n_faint, n_classes) that the classes explain still differ.
    """

    relative: Array
    faint: Array
    shares: Array


def relative_residuals(signals: Signals, coder: ClassCoder, n_jobs: int | None) -> Residuals:
    """Residuals of all signals in the classes, as tensors where the signals came as one."""
    count = len(coder.atoms)
    found = map_rows(signals, coder, None, count, n_jobs, _residuals_of)
    faint = backend_of(found).flatnonzero((found > 1.0 - FAINT).all(1))
    if len(faint) == 0:
        return Residuals(found, faint, found[:0])
    scaled = cast(map_rows(Picked(signals, host(faint)), coder, None, count + 1, n_jobs, _shares_of), np.float64)
    return Residuals(found, faint, scaled[:, :count] * scaled[:, count:] ** 2)


def _residuals_of(coder: ClassCoder, decoder: None, rows: Array) -> tuple[Array, Array]:
    return coder.relative_residuals(rows)


def _shares_of(coder: ClassCoder, decoder: None, rows: Array) -> tuple[Array, Array]:
    return coder.faint_shares(rows)


def pad_atoms(atoms: Array) -> Array:
    """Atoms (n, p) padded with rows of zeros, which the pursuit never chooses, to whole SIMD vectors; not tensors."""
    if is_tensor(atoms):
        return atoms
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
        n_signals = sum(len(rows) for rows in members)
        # Classes are learned in parallel; if they are few, their chunks too; if all of it is little work, neither.
        is_little = n_signals * n_atoms * feature_map.size < MANY_MULTIPLICATIONS
        threads = resolve_threads(executor.n_jobs)
        self._threads = 1 if is_little else threads
        own_threads = -(-self._threads // len(members))
        there = executor.to_signals(feature_map)

        def coordinates(rows: np.ndarray) -> np.ndarray:
            return host(there.features(executor.to_signals(rows)))

        self.problems: list[ReducedProblem] = []
        for rows in members:
            count = min(n_atoms, len(rows))
            atoms = rng.standard_normal((count, feature_map.size))
            own = Picked(signals, rows)
            if init != "random":
                atoms = first_coordinates(init, own, count, rng, coordinates).astype(np.float64)
            width = signals.shape[1] + 2 * feature_map.size + 3 * count
            # Asked here: classes learn in threads that do not know the user's settings.
            cache_bytes = cache_limit(executor.cache_room(FEATURE_BYTES) * len(rows) // n_signals)
            problem = ReducedProblem(
                open_part(own, width, own_threads, cache_bytes),
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
