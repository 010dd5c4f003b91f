"""What the classifier and the regressor share: features learned for a label, and how a fit finds them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import RandomState
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight

from rkdl._applications.readouts import TaskModel
from rkdl._applications.task_learning import RIDGE, Examples, Task, TaskLearning, plan
from rkdl._backends.arrays import cast, host, is_tensor, joined
from rkdl._backends.base import backend_of
from rkdl._backends.devices import placed, to_device, to_host
from rkdl._coding.encoder import Pursuit
from rkdl._coding.passes import for_each_chunk
from rkdl._data.signals import Signals
from rkdl._estimators.fitting import constant, freeze, made_once, read_signals, with_one_model
from rkdl._estimators.saving import save
from rkdl._execution.blas import resolve_threads
from rkdl._execution.executor import open_executor
from rkdl._features.kernels import RBF
from rkdl._features.widths import RULES, find_gamma, spread_sample
from rkdl._learning.atom_updates import ATOM_UPDATES
from rkdl._learning.feature_choice import KernelFeatures
from rkdl._learning.kernel_vector_choice import choose_kernel_vectors
from rkdl._learning.loop import progress
from rkdl._utils.inputs import check_rows_finite
from rkdl._utils.types import Array, Device, MatrixLike

# Most kernel vectors per signal: with more, a fit overfits.
VECTORS_PER_SIGNAL = 0.6
# Signals from which the centre and the variances of the features are computed.
MOMENT_SAMPLE = 20_000
# Signals of at most this many numbers stay in memory, where batches are drawn; of larger ones every batch is read.
MOST_KEPT = 1 << 30
# Passes over a batch of a stream, and the size of their steps relative to the largest of a fit.
STREAM_PASSES, STREAM_RATE = 10, 0.3


class Scaling(NamedTuple):
    """The centre (m,) that is subtracted from signals, and the length that they are divided by, in the learning."""

    centre: np.ndarray
    length: float
    variances: np.ndarray  # (m,), of the features, in this length

    @classmethod
    def of(cls, sample: np.ndarray) -> Scaling:
        """Those of a sample."""
        wide = sample.astype(np.float64)
        # In the signals' dtype, in which it is subtracted.
        centre = wide.mean(axis=0).astype(sample.dtype).astype(np.float64)
        with np.errstate(over="ignore"):
            variances = wide.var(axis=0)
            length = float(np.sqrt(variances.mean()))
        length = length if 0.0 < length < np.inf else 1.0
        return cls(centre, length, variances / length**2)


@dataclass(eq=False, repr=False)
class TaskDriven(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators whose kernel vectors and gammas are learned for a label."""

    _: KW_ONLY
    n_kernel_vectors: int = 200
    gamma: float | str = "median"
    device: Device = None
    n_jobs: int | None = None
    random_state: RandomState | int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_kernel_vectors": [Interval(Integral, 1, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions(set(RULES))],
        "device": "no_validation",
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    # Fitted attributes that the model is made of.
    _parts: ClassVar[tuple[str, ...]] = ("kernel_vectors_", "gammas_", "dual_coef_", "intercept_")

    @abstractmethod
    def _task(self, n_outputs: int) -> Task:
        """What is learned, for this number of outputs."""

    def _read_signals(self, X: MatrixLike, *, reset: bool) -> Signals:
        signals = read_signals(self, X, reset=reset, device=self.device, prefers_arrays=True, allows_nan=True)
        if signals.is_remote:
            name = type(self).__name__
            raise ValueError(
                f"{name} does not take Dask arrays: learn from an array, a memory map or any source of row slices, and "
                f"predict the chunks of a Dask array with map_blocks."
            )
        if reset and type(signals) is Signals and isinstance(signals.data, np.ndarray):
            signals = Signals(_without_missing(signals.data), signals.dtype)
        if reset:
            signals.check_finite()
        return signals

    def _check_weights(self, signals: Signals, sample_weight: Any) -> np.ndarray:
        """Weights (n,) in float64, none negative and not all zero."""
        like = np.empty((signals.shape[0], 0))
        return _check_sample_weight(host(sample_weight), like, dtype=np.float64, ensure_non_negative=True)

    def _start(self, signals: Signals, gamma: float, n_outputs: int, rng: RandomState) -> tuple[TaskLearning, Scaling]:
        """A learning that starts from k-means centres of the signals as kernel vectors."""
        count = min(self.n_kernel_vectors, max(1, round(VECTORS_PER_SIGNAL * signals.shape[0])))
        chosen = KernelFeatures("rbf", gamma, 3, 1.0, "kmeans", Pursuit(1), count)
        with open_executor(signals, 2 * (signals.shape[1] + count), self.n_jobs, is_part=True) as executor:
            vectors = choose_kernel_vectors(chosen, executor.inspected(), RBF(gamma), rng, ATOM_UPDATES["gram"])
        scaling = Scaling.of(spread_sample(signals, MOMENT_SAMPLE))
        scaled = ((vectors - scaling.centre) / scaling.length).astype(np.float32)
        return TaskLearning(self._task(n_outputs), placed(scaled, signals.device), gamma * scaling.length**2), scaling

    def _examples(self, signals: Signals, scaling: Scaling, targets: np.ndarray, weights: np.ndarray) -> Examples:
        """The signals with their targets, where the signals are."""
        centre, device = placed(scaling.centre, signals.device), signals.device
        given = placed((targets.astype(np.float32), (weights / weights.mean()).astype(np.float32)), device)
        return Examples(_reader(signals, centre, scaling.length), *given)

    def _learn(
        self, signals: Signals, gamma: float, targets: np.ndarray, weights: np.ndarray, rng: RandomState, name: str
    ) -> tuple[TaskLearning, Scaling, np.ndarray]:
        """A whole learning from these signals, and the mean losses of its passes over them."""
        self.__dict__.pop("_learning", None)
        learning, scaling = self._start(signals, gamma, targets.shape[1], rng)
        examples = self._examples(signals, scaling, targets, weights)
        learning.start_atoms(examples, rng)
        n_steps, batch = plan(signals.shape[0])
        losses: list[Array] = []
        with progress(n_steps, self.verbose, f"{type(self).__name__}: {name}", "step") as bar:
            for loss in learning.run(examples, n_steps, batch, rng, threads=resolve_threads(self.n_jobs)):
                losses.append(loss)
                if bar is not None:
                    bar.update()
        steps = np.array([float(loss) for loss in losses])
        parts = np.array_split(steps, max(1, round(n_steps * batch / signals.shape[0])))
        return learning, scaling, np.array([part.mean() for part in parts])

    def _continue(self, signals: Signals, targets: np.ndarray, weights: np.ndarray) -> None:
        """Learn from a batch of a stream, in a few passes over it, and set the fitted attributes.

        The loss of a batch is that of the first pass, of signals that were not seen before.
        """
        rng, known = check_random_state(self.random_state), vars(self).get("_learning")
        if known is None and "n_iter_" in vars(self):
            known = self._restored(signals.device)
        elif known is None:
            self.gamma_ = find_gamma(self.gamma, signals)
            known = self._start(signals, self.gamma_, targets.shape[1], rng)
            known[0].start_atoms(self._examples(signals, known[1], targets, weights), rng)
        # A copy, so that a failure leaves the learning as it was.
        learning, scaling = self._learning = deepcopy(known)
        examples = self._examples(signals, scaling, targets, weights)
        batch = min(signals.shape[0], plan(signals.shape[0])[1])
        n_steps = -(-signals.shape[0] // batch)
        threads, count = resolve_threads(self.n_jobs), STREAM_PASSES * n_steps
        losses = list(learning.run(examples, count, batch, rng, constant=STREAM_RATE, threads=threads))
        loss = float(np.mean([float(loss) for loss in losses[:n_steps]]))
        self._set(learning, scaling, np.append(vars(self).get("losses_", np.empty(0)), loss), signals.dtype)

    def _restored(self, device: Device) -> tuple[TaskLearning, Scaling]:
        """The learning that the fitted attributes came from, without the moments of its gradients."""
        length = float(np.sqrt(self.feature_variances_.mean()))
        scaling = Scaling(self.feature_means_, length or 1.0, self.feature_variances_ / (length or 1.0) ** 2)
        gammas = self.gammas_ * scaling.length**2
        vectors = ((self.kernel_vectors_ - scaling.centre) / scaling.length).astype(np.float32)
        learning = TaskLearning(self._task(len(self.intercept_)), placed(vectors, device), placed(gammas, device))
        learning.restore(*placed((*self._linear_readout(), vars(self).get("components_")), device))
        return learning, scaling

    def _linear_readout(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and intercepts as they were learned."""
        return self.dual_coef_, self.intercept_

    def _set(self, learning: TaskLearning, scaling: Scaling, losses: np.ndarray, dtype: np.dtype) -> None:
        """Set the fitted attributes of what was learned."""
        self.losses_, self.n_iter_ = losses, len(losses)
        model = to_host(learning.model(scaling.centre, scaling.variances))
        vectors = model.vectors / model.scales
        self.kernel_vectors_ = (vectors * scaling.length + scaling.centre).astype(dtype)
        self.gammas_ = (model.scales.astype(np.float64) / scaling.length) ** 2
        self.dual_coef_, self.intercept_ = model.dual.astype(dtype), model.intercept.astype(dtype)
        self.feature_means_ = scaling.centre
        self.feature_variances_ = scaling.variances * scaling.length**2
        relevance = self.gammas_ * self.feature_variances_
        total = relevance.sum()
        self.feature_relevance_ = relevance / total if total > 0.0 else np.full(len(relevance), 1.0 / len(relevance))
        if model.atoms is not None:
            self.components_, self.grams_ = model.atoms.astype(dtype), model.grams.astype(dtype)
            self.n_nonzero_coefs_ = model.n_nonzero
        freeze(self, (*self._parts, "feature_means_", "feature_variances_"))

    def _assemble(self) -> dict[tuple[Any, Any], TaskModel]:
        """Models by the dtype and device of the signals, filled by `_model`."""
        return {}

    def _model(self, dtype: np.dtype, device: Device) -> TaskModel:
        """The fitted model for signals of `dtype` on `device`."""
        models = made_once(self, self._parts, (), self._assemble)
        if (dtype, device) not in models:
            scales = np.sqrt(constant(self.gammas_))
            centre, state = self.feature_means_, vars(self)
            atoms, grams = state.get("components_"), state.get("grams_")
            model = TaskModel(
                centre,
                scales,
                (self.kernel_vectors_ - centre) * scales,
                constant(self.dual_coef_),
                constant(self.intercept_),
                atoms,
                grams,
                self.feature_variances_ * self.gammas_,
                state.get("n_nonzero_coefs_", 0),
            )
            models[dtype, device] = placed(model.as_dtype(dtype), device)
        return models[dtype, device]

    def _read(self, X: MatrixLike, read: Callable[[TaskModel, Array], Array]) -> Array:
        """``read(model, kernel values)`` of all signals; a tensor if `X` is one, where that is."""
        signals = self._read_signals(X, reset=False)
        model = self._model(signals.dtype, signals.device)

        def task(number: int, start: int, stop: int) -> Array:
            rows = signals.read(start, stop)
            xp = backend_of(rows).xp
            if bool(xp.isinf(rows).any()):
                check_rows_finite(np.nan_to_num(host(rows), posinf=np.inf, neginf=-np.inf))
            return read(model, model.kernel_values(rows))

        found = cast(joined(for_each_chunk(signals, model.row_width, self.n_jobs, task)), signals.dtype)
        return to_device(found, X.device) if is_tensor(X) else host(found)

    @with_one_model
    def transform(self, X: MatrixLike) -> Array:
        """Compute the learned features of signals: whitened kernel values.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        features : ndarray of shape (n_signals, n_kernel_vectors)
            Coordinates whose inner products are those of the signals' projections on the kernel vectors. A tensor if
            `X` is one.
        """
        signals = self._model(np.dtype(np.float64), None)
        backend = backend_of(signals.vectors)
        matrix = backend.rbf(signals.vectors, signals.vectors, 1.0) + RIDGE * np.eye(len(signals.vectors))
        whitening = np.linalg.inv(np.linalg.cholesky(matrix)).T
        return self._read(X, lambda model, values: values @ backend_of(values).as_like(whitening, values))

    @property
    def _n_features_out(self) -> int:
        return len(self.kernel_vectors_)

    save = save

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class _Part(Signals):
    """Some rows of signals that are not in memory."""

    def __init__(self, signals: Signals, rows: np.ndarray) -> None:
        super().__init__(signals.data, signals.dtype, (len(rows), signals.shape[1]))
        self.is_in_memory, self.device, self.home = False, signals.device, signals.home
        self._signals, self._rows = signals, rows

    def read(self, start: int, stop: int) -> Array:
        return self._signals.subset(self._rows[start:stop]).read(0, stop - start)

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self._signals.take(self._rows[indices])

    def subset(self, indices: np.ndarray) -> Signals:
        return self._signals.subset(self._rows[indices])


def part_of(signals: Signals, rows: np.ndarray) -> Signals:
    """Some of the signals, in memory if these are and not sparse."""
    return signals.subset(rows) if _is_kept(signals) else _Part(signals, rows)


def of_positive_weight(
    signals: Signals, targets: np.ndarray, weights: np.ndarray
) -> tuple[Signals, np.ndarray, np.ndarray]:
    """The signals with a positive weight, their targets and their weights."""
    rows = np.flatnonzero(weights)
    if len(rows) < len(weights):
        signals, targets, weights = part_of(signals, rows), targets[rows], weights[rows]
    return signals, targets, weights


def _is_kept(signals: Signals) -> bool:
    """Whether batches are drawn from memory."""
    is_dense = signals.is_in_memory and not sparse.issparse(signals.data)
    return is_dense and signals.shape[0] * signals.shape[1] <= MOST_KEPT


def _without_missing(rows: np.ndarray) -> np.ndarray:
    """The rows with missing numbers (NaN) replaced by the means of their columns."""
    if rows.dtype.kind != "f" or not np.isnan(rows).any():
        return rows
    counts = np.maximum((~np.isnan(rows)).sum(axis=0), 1)
    return np.where(np.isnan(rows), np.nansum(rows, axis=0) / counts, rows)


def _reader(signals: Signals, centre: Array, length: float) -> Callable[[np.ndarray], Array]:
    """A function that reads batches, centred and scaled, in float32; from memory where the signals are kept."""
    if _is_kept(signals):
        kept = signals.read(0, signals.shape[0])
        return lambda chosen: cast((kept[backend_of(kept).from_host(chosen, kept)] - centre) / length, np.float32)
    return lambda chosen: cast((placed(signals.take(chosen), signals.device) - centre) / length, np.float32)
