"""Dictionaries of classes on shared features: learned class by class, compared by their residuals, told apart.

In whitened coordinates (`rkdl._maps.WhiteMap`) a class's dictionary is a linear one, so that classes are learned by the
same problem as everything else. `Refinement` then lowers the cross-entropy of ``softmax(-sharpness * residuals)``. For
codes ``z`` that are least squares on their support, the residual ``R = |f - z A|^2`` has the derivative
``dR/dA = -2 z' (f - z A)``, so a step is once more a sum over signals: of codes times residuals, weighed by how far the
probability of the class is from the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from rkdl._atoms import normalize_rows
from rkdl._blas import one_blas_thread, resolve_threads
from rkdl._jit import compiled
from rkdl._learning import ReducedProblem
from rkdl._maps import FeatureMap, LinearMap
from rkdl._metric import IdentityMetric
from rkdl._pursuit import Codes, pursue
from rkdl._pursuit_kernel import VECTOR_BYTES
from rkdl._signals import Signals, Walker, chunk_bounds
from rkdl._statistics import NotFiniteError, Pursuit, alike, conditioning_scale, for_each_chunk

# Features of all classes' signals together are kept while they take no more than this.
FEATURE_BYTES = 512 << 20
# Rows of a Gram matrix are whole vectors for the pursuit if the atoms are so many, in either dtype.
LANES = VECTOR_BYTES // 4

# Signals of one step of a refinement, at most, and steps of a pass at least where the signals allow it.
BATCH, STEPS = 1000, 16
SMALLEST_BATCH = 64
MOMENTUM = 0.9
# A refinement takes the residuals for less telling than they are, so that signals near the border count too.
DOUBT = 0.6
# A signal whose probability of a class is this close to the truth has nothing to tell about it.
NEGLIGIBLE = 0.01
# Where the residuals of a class are all at rounding level, any number will do.
SHARPEST, DULLEST = 1e6, 1e-3


class Picked(Signals):
    """Some rows of other signals, in an order of their own."""

    def __init__(self, signals: Signals, rows: np.ndarray) -> None:
        super().__init__(signals.data, signals.dtype, signals.scale)
        self.is_in_memory = signals.is_in_memory
        self.shape = (len(rows), signals.shape[1])
        self._signals, self._rows = signals, rows

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` of those picked."""
        return self._signals.take(self._rows[start:stop])

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Some of the rows picked."""
        return self._signals.take(self._rows[indices])


@dataclass(frozen=True)
class ClassCoder:
    """Codes signals against the dictionary of every class, from features that are computed once.

    Attributes
    ----------
    feature_map : FeatureMap
        What turns signals (c, m) into features (c, p).
    atoms, grams : sequence of ndarray of shape (n_k, p), of ndarray of shape (n_k, n_k)
        A class each: atoms of unit norm, then rows of zeros up to whole vectors, and their inner products.
    pursuits : sequence of Pursuit
        When the pursuit of a class stops.
    """

    feature_map: FeatureMap
    atoms: Sequence[np.ndarray]
    grams: Sequence[np.ndarray]
    pursuits: Sequence[Pursuit]

    @property
    def row_width(self) -> int:
        """Numbers that a signal occupies while it is coded against one class."""
        own_features = 0 if isinstance(self.feature_map, LinearMap) else self.feature_map.size
        return self.feature_map.signal_size + own_features + 2 * max(len(atoms) for atoms in self.atoms)

    def codes(self, features: np.ndarray, norms: np.ndarray) -> Iterator[tuple[Codes, np.ndarray]]:
        """Codes and squared residuals against every class in turn."""
        for atoms, gram, pursuit in zip(self.atoms, self.grams, self.pursuits, strict=True):
            limit = min(pursuit.n_nonzero, self.feature_map.size)
            correlations = features @ atoms.T
            yield pursue(correlations, gram, norms, limit, pursuit.residual_tol, pursuit.ols)

    def relative_residuals(self, signals: np.ndarray) -> np.ndarray:
        """Squared residuals (c, classes) of a chunk, over the signals' squared norms; zero for a zero signal."""
        found = np.empty((len(signals), len(self.atoms)), dtype=signals.dtype)
        for group in alike(signals):
            rows = signals if len(group) == len(signals) else signals[group]
            coder, rows = self._conditioned(rows)
            with np.errstate(over="ignore", invalid="ignore"):
                features, norms = self.feature_map.features(rows), self.feature_map.squared_norms(rows)
            if not np.isfinite(features.sum() + norms.sum()):
                raise NotFiniteError
            squares = np.stack([residuals for _, residuals in coder.codes(features, norms)], axis=1)
            found[group] = squares / np.where(norms > 0.0, norms, 1.0)[:, None]
        return found

    def _conditioned(self, rows: np.ndarray) -> tuple[ClassCoder, np.ndarray]:
        """As `rkdl._statistics.Encoder.condition`."""
        scale = conditioning_scale(rows) if isinstance(self.feature_map, LinearMap) else 1.0
        if scale == 1.0:
            return self, rows
        pursuits = [pursuit._replace(residual_tol=pursuit.residual_tol * scale * scale) for pursuit in self.pursuits]
        return replace(self, pursuits=pursuits), rows * rows.dtype.type(scale)


def relative_residuals(signals: Signals, coder: ClassCoder, n_jobs: int | None) -> np.ndarray:
    """Squared residuals (n, classes) of all signals over their squared norms, in one pass over the chunks."""
    found = np.empty((signals.shape[0], len(coder.atoms)), dtype=signals.dtype)

    def task(number: int, start: int, stop: int) -> None:
        found[start:stop] = coder.relative_residuals(signals.read(start, stop))

    for_each_chunk(signals, coder.row_width, n_jobs, task)
    return found


def pad_atoms(atoms: np.ndarray) -> np.ndarray:
    """Atoms (n, p) with rows of zeros up to whole vectors: the pursuit never chooses those."""
    missing = -len(atoms) % LANES
    return np.ascontiguousarray(np.pad(atoms, ((0, missing), (0, 0)))) if missing else np.ascontiguousarray(atoms)


def gram_of(atoms: np.ndarray) -> np.ndarray:
    """Inner products of atoms, in their dtype."""
    return atoms @ atoms.T


class ClassProblem:
    """The dictionaries of all classes as one learning problem for `rkdl._loop.alternate`.

    Parameters
    ----------
    walker : Walker
        Walks all signals.
    feature_map : FeatureMap
        The shared features, in coordinates whose metric is the identity.
    members : list of ndarray
        Rows of the signals of every class.
    n_atoms : int
        Atoms of a class, no more than it has signals.
    pursuit : Pursuit
        How signals are coded.
    rng : RandomState
        Draws the first atoms.
    from_data : bool
        Whether the first atoms are signals, or Gaussian.
    refit : bool
        The paper's sweep instead of the statistics' one.
    """

    def __init__(
        self,
        walker: Walker,
        feature_map: FeatureMap,
        members: Sequence[np.ndarray],
        n_atoms: int,
        pursuit: Pursuit,
        rng: np.random.RandomState,
        *,
        from_data: bool,
        refit: bool,
    ) -> None:
        self.walker = walker
        self.feature_map = feature_map
        signals = walker.signals
        self._threads = resolve_threads(walker.n_jobs)
        # Classes are learned side by side; where they are few, their chunks too.
        own_threads = -(-self._threads // len(members))
        n_signals = sum(len(rows) for rows in members)
        self.objective = np.inf
        self.n_revived = 0
        self.problems = []
        for rows in members:
            count = min(n_atoms, len(rows))
            white = rng.standard_normal((count, feature_map.size))
            if from_data:
                white = feature_map.features(signals.take(rng.choice(rows, count, replace=False))).astype(np.float64)
            width = signals.shape[1] + 2 * feature_map.size + 3 * count
            bounds = chunk_bounds(len(rows), width, signals.dtype.itemsize)
            problem = ReducedProblem(
                Walker(Picked(signals, rows), bounds, own_threads),
                feature_map,
                IdentityMetric(feature_map.size),
                white,
                pursuit._replace(n_nonzero=min(pursuit.n_nonzero, count)),
                refit=refit,
            )
            problem.walker.kept_bytes = FEATURE_BYTES * len(rows) // n_signals
            self.problems.append(problem)

    def __enter__(self) -> ClassProblem:
        self._stack = ExitStack()
        for problem in self.problems:
            self._stack.enter_context(problem.walker)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def iterate(self) -> None:
        """One iteration of every class, each on its own."""
        # The largest first, so that the threads end together.
        queue = sorted(self.problems, key=lambda problem: -problem.walker.signals.shape[0])
        side_by_side(ReducedProblem.iterate, queue, self._threads)
        self.objective = float(sum(problem.objective for problem in self.problems))
        self.n_revived = sum(problem.n_revived for problem in self.problems)

    @property
    def whites(self) -> list[np.ndarray]:
        """Atoms of every class in the coordinates of the features."""
        return [problem.white for problem in self.problems]

    @property
    def pursuits(self) -> list[Pursuit]:
        """Pursuits of the classes."""
        return [problem.pursuit for problem in self.problems]

    def state(self) -> dict[str, np.ndarray]:
        """What the next iteration starts from."""
        return {f"{number}": white for number, white in enumerate(self.whites)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a state over."""
        for number, problem in enumerate(self.problems):
            problem.white = state[f"{number}"]


def side_by_side(function: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list:
    """``function`` of every item on a pool of threads, in their order; what has not begun when one fails is dropped."""
    if threads == 1 or len(items) == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="rkdl") as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class Refinement:
    """Moves the atoms of all classes so that the own class's residual is the smallest by far.

    Parameters
    ----------
    signals : Signals
        The signals.
    labels : ndarray of shape (n_signals,)
        Their classes, by number; negative for a signal that is not learned from.
    feature_map : FeatureMap
        The features, in coordinates whose metric is the identity.
    whites : list of ndarray of shape (n_k, r)
        Atoms of every class.
    pursuits : list of Pursuit
        How signals are coded.
    sharpness : float
        What relative residuals are multiplied by for probabilities.
    learning_rate : float
        Step of an atom, as a share of the one that least squares would make.
    rng : RandomState
        Draws the batches.
    n_jobs : int or None
        Threads.

    Attributes
    ----------
    whites : list of ndarray of shape (n_k, r)
        The atoms now.
    """

    def __init__(
        self,
        signals: Signals,
        labels: np.ndarray,
        feature_map: FeatureMap,
        whites: Sequence[np.ndarray],
        pursuits: Sequence[Pursuit],
        *,
        sharpness: float,
        learning_rate: float,
        rng: np.random.RandomState,
        n_jobs: int | None,
    ) -> None:
        self.signals, self.labels, self.feature_map = signals, labels, feature_map
        self.whites, self.pursuits = list(whites), list(pursuits)
        self.sharpness, self.learning_rate = DOUBT * sharpness, learning_rate
        self.rng, self.n_jobs = rng, n_jobs
        self._threads = resolve_threads(n_jobs)
        self._momenta = [np.zeros_like(white) for white in whites]
        self._usage = [np.zeros(len(white)) for white in whites]
        self._features: np.ndarray | None = None
        n_signals = signals.shape[0]
        size = n_signals * feature_map.size * signals.dtype.itemsize
        if not isinstance(feature_map, LinearMap) and signals.is_in_memory and size <= FEATURE_BYTES:
            self._features = np.empty((n_signals, feature_map.size), dtype=signals.dtype)
            width = signals.shape[1] + 2 * feature_map.size
            with Walker(signals, chunk_bounds(n_signals, width, signals.dtype.itemsize), n_jobs) as walker:
                for _ in walker.each(self._keep):
                    pass

    def _keep(self, number: int, start: int, stop: int) -> None:
        assert self._features is not None
        self._features[start:stop] = self.feature_map.features(self.signals.read(start, stop))

    def run_pass(self, remaining: float, share: float) -> float:
        """One pass over the signals in random batches.

        Parameters
        ----------
        remaining, share : float
            The learning rate falls over the pass from `remaining` by `share`, both parts of the whole.

        Returns
        -------
        float
            Mean cross-entropy of the signals as they were met.
        """
        order = self.rng.permutation(np.flatnonzero(self.labels >= 0))
        size = min(BATCH, max(SMALLEST_BATCH, len(order) // STEPS))
        n_batches = max(1, round(len(order) / size))
        loss = 0.0
        with one_blas_thread():
            for number, batch in enumerate(np.array_split(order, n_batches)):
                rate = self.learning_rate * (remaining - share * number / n_batches)
                loss += self._step(np.sort(batch), rate)
        return loss / len(order)

    def _step(self, batch: np.ndarray, rate: float) -> float:
        """Move all atoms once by what a batch tells; the sum of its cross-entropies."""
        dtype = self.signals.dtype
        atoms = [pad_atoms(white.astype(dtype)) for white in self.whites]
        coder = ClassCoder(self.feature_map, atoms, side_by_side(gram_of, atoms, self._threads), self.pursuits)
        picked = Picked(self.signals, batch)
        pulls: list[np.ndarray] = []
        usage: list[np.ndarray] = []
        loss = 0.0

        def task(number: int, start: int, stop: int) -> tuple[float, list, list]:
            rows = batch[start:stop]
            signals = picked.read(start, stop)
            features = self.feature_map.features(signals) if self._features is None else self._features[rows]
            norms = self.feature_map.squared_norms(signals)
            return _tell(coder, features, norms, self.labels[rows], self.sharpness)

        bounds = chunk_bounds(len(batch), coder.row_width, dtype.itemsize)
        with Walker(picked, bounds, self.n_jobs) as walker:
            for part, chunk_pulls, chunk_usage in walker.each(task):
                loss += part
                if not pulls:
                    pulls, usage = chunk_pulls, chunk_usage
                    continue
                for total, more in zip([*pulls, *usage], [*chunk_pulls, *chunk_usage], strict=True):
                    total += more

        def move(k: int) -> np.ndarray:
            count = len(self.whites[k])
            # What least squares would divide by: the atom's use by its own class, smoothed over the batches.
            known = self._usage[k]
            known += (usage[k][:count] - known) * (1.0 - MOMENTUM if known.any() else 1.0)
            floor = 0.1 * float(known.mean())
            momentum = self._momenta[k]
            momentum *= MOMENTUM
            if floor > 0.0:
                momentum += pulls[k][:count] / np.maximum(known, floor)[:, None]
            return normalize_rows(self.whites[k] + rate * momentum, otherwise=self.whites[k])

        self.whites[:] = side_by_side(move, range(len(self.whites)), self._threads)
        return loss


def _tell(
    coder: ClassCoder, features: np.ndarray, norms: np.ndarray, labels: np.ndarray, sharpness: float
) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    """Of a chunk: its cross-entropy, and for every class the pull on the atoms and their use by own signals."""
    found = list(coder.codes(features, norms))
    squares = np.stack([residuals for _, residuals in found], axis=1)
    inverse = 1.0 / np.where(norms > 0.0, norms, 1.0)
    logs = _log_probabilities(squares * inverse[:, None], sharpness)
    loss = -float(logs[np.arange(len(labels)), labels].sum())
    weights = -np.exp(logs)
    weights[np.arange(len(labels)), labels] += 1.0
    # Signals count alike, however long they are.
    weights = (weights * inverse[:, None]).astype(features.dtype)
    least = (NEGLIGIBLE * inverse).astype(features.dtype)
    pulls, usage = [], []
    for k, (codes, _) in enumerate(found):
        pull, used = np.zeros_like(coder.atoms[k]), np.zeros(len(coder.atoms[k]))
        own = np.where(labels == k, inverse, 0.0)
        _pull_atoms(*codes, np.ascontiguousarray(weights[:, k]), least, own, features, coder.atoms[k], pull, used)
        pulls.append(pull)
        usage.append(used)
    return loss, pulls, usage


def probabilities(residuals: np.ndarray, sharpness: float) -> np.ndarray:
    """``softmax(-sharpness * residuals)`` of every row, in float64."""
    return np.exp(_log_probabilities(residuals, sharpness))


def _log_probabilities(residuals: np.ndarray, sharpness: float) -> np.ndarray:
    logits = -sharpness * residuals.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def fit_sharpness(residuals: np.ndarray, labels: np.ndarray) -> float:
    """The number that makes ``softmax(-number * residuals)`` the likeliest, for signals that were not learned from.

    As in Platt's scaling one signal more of every class but the right one is imagined, so that a small sample without
    an error does not make certainties.

    Parameters
    ----------
    residuals : ndarray of shape (n, classes)
        Relative residuals.
    labels : ndarray of shape (n,)
        Numbers of the true classes.

    Returns
    -------
    float
        Ten where there are no signals.
    """
    if len(labels) == 0:
        return 10.0
    n_classes = residuals.shape[1]
    doubt = 1.0 / (len(labels) + 2.0)

    def loss(exponent: float) -> float:
        logs = _log_probabilities(residuals, float(np.exp(exponent)))
        right = logs[np.arange(len(labels)), labels]
        wrong = (logs.sum(axis=1) - right) / (n_classes - 1)
        return -float(np.mean((1.0 - doubt) * right + doubt * wrong))

    bounds = (float(np.log(DULLEST)), float(np.log(SHARPEST)))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x))


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def _pull_atoms(indptr, indices, values, weights, least, own, features, atoms, pull, used):
    """Add ``w z' (f - z A)`` of every signal whose weight is not negligible, and the squared codes of own signals."""
    size = features.shape[1]
    residual = np.empty(size, dtype=features.dtype)
    for t in range(len(weights)):
        if own[t] > 0.0:
            for position in range(indptr[t], indptr[t + 1]):
                used[indices[position]] += own[t] * values[position] * values[position]
        weight = weights[t]
        if not abs(weight) > least[t]:
            continue
        row = features[t]
        for i in range(size):
            residual[i] = row[i]
        for position in range(indptr[t], indptr[t + 1]):
            value = values[position]
            atom = atoms[indices[position]]
            for i in range(size):
                residual[i] -= value * atom[i]
        for position in range(indptr[t], indptr[t + 1]):
            value = weight * values[position]
            target = pull[indices[position]]
            for i in range(size):
                target[i] += value * residual[i]
