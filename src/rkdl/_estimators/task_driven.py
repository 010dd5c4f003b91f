"""What the classifier and the regressor share: features learned for a label, and how a fit finds them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import RandomState
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._applications.readouts import TaskModel
from rkdl._applications.task_learning import RIDGE, Examples, Task, TaskLearning, plan
from rkdl._backends.arrays import cast, host, is_tensor, joined, squared_norms
from rkdl._backends.base import backend_of
from rkdl._backends.devices import placed, to_device, to_host
from rkdl._coding.encoder import Pursuit
from rkdl._coding.passes import for_each_chunk
from rkdl._data.open import gather, is_dask
from rkdl._data.signals import NotFiniteError, Result, Signals
from rkdl._estimators.fitting import constant, freeze, made_once, read_signals, with_one_model
from rkdl._estimators.saving import save
from rkdl._execution.blas import resolve_threads
from rkdl._execution.executor import open_executor
from rkdl._features.kernels import RBF
from rkdl._features.widths import KERNEL_SAMPLE, RULES, find_gamma, mean_of, spread_indices, spread_sample
from rkdl._learning.atom_updates import ATOM_UPDATES
from rkdl._learning.diagnostics import check_scales
from rkdl._learning.feature_choice import KernelFeatures
from rkdl._learning.kernel_vector_choice import LARGEST_SAMPLE, SAMPLES_PER_VECTOR, choose_kernel_vectors
from rkdl._learning.loop import progress
from rkdl._utils.inputs import check_rows_finite
from rkdl._utils.types import Array, Device, MatrixLike, plain_scalar

# Most kernel vectors per signal: with more, a fit overfits.
VECTORS_PER_SIGNAL = 0.6
# Signals this many times farther from the median than half of them do not count for the scaling.
FAR = 100.0
# Largest coordinate that is learned from or read, after scaling: float32 has digits for distances up to it.
LARGEST = 1e3
# Signals of at most this many numbers stay in memory, where batches are drawn; of larger ones every batch is read.
MOST_KEPT = 1 << 30
# Whole weights count as copies where they add up to no more.
MOST_COPIES = 10_000_000
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
        squares = squared_norms(wide - np.median(wide[:: -(-len(wide) // 1000)], axis=0))
        # A gross outlier would make the others one point.
        wide = wide[squares <= FAR**2 * np.median(squares)] if np.median(squares) > 0.0 else wide
        # In the signals' dtype, in which it is subtracted.
        centre = mean_of(wide).astype(sample.dtype).astype(np.float64)
        variances = (wide - wide[0]).var(axis=0)
        length = float(np.sqrt(variances.mean())) or 1.0
        return cls(centre, length, variances / length**2)

    def coordinates(self, rows: Array, centre: Array) -> Array:
        """Rows from this centre, which is where they are, in units of the length; in float32, and none too far."""
        return cast(((rows - centre) / self.length).clip(-LARGEST, LARGEST), np.float32)


def by_blocks(method: Callable[[Any, MatrixLike], Array]) -> Callable[[Any, MatrixLike], Array]:
    """A method `with_one_model` whose result for a Dask array is a lazy one."""

    @with_one_model
    @wraps(method)
    def of_model(self: Any, X: MatrixLike) -> Array:
        if not is_dask(X):
            return method(self, X)
        from rkdl._estimators.lazy import call_lazily

        signals = self._read_signals(X, reset=False)
        empty = method(self, np.zeros((1, signals.shape[1]), dtype=signals.dtype))[:0]
        return call_lazily(self, method.__name__, signals, empty)

    return of_model


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
    _parts: ClassVar[tuple[str, ...]] = (
        *("kernel_vectors_", "gammas_", "dual_coef_", "intercept_", "feature_means_", "feature_variances_"),
        *("components_", "grams_", "n_nonzero_coefs_"),
    )

    @abstractmethod
    def _task(self, n_outputs: int, n_signals: int) -> Task:
        """What is learned, for these numbers of outputs and of signals."""

    def _read_signals(self, X: MatrixLike, *, reset: bool, learns: bool = False) -> Signals:
        # Learning draws signals in random order, so that a Dask array is read into memory for it.
        given = gather(X) if learns and is_dask(X) else X
        return read_signals(self, given, reset=reset, device=self.device, prefers_arrays=True, allows_nan=True)

    def _start(self, signals: Signals, gamma: float, n_outputs: int, rng: RandomState) -> tuple[TaskLearning, Scaling]:
        """A learning that starts from k-means centres of the signals as kernel vectors."""
        count = min(self.n_kernel_vectors, max(1, round(VECTORS_PER_SIGNAL * signals.shape[0])))
        chosen = KernelFeatures("rbf", gamma, 3, 1.0, "kmeans", Pursuit(1), count)
        few = signals.subset(spread_indices(signals.shape[0], max(LARGEST_SAMPLE, SAMPLES_PER_VECTOR * count)))
        with open_executor(few, 2 * (signals.shape[1] + count), self.n_jobs, is_part=True) as executor:
            vectors = choose_kernel_vectors(chosen, executor.inspected(), RBF(gamma), rng, ATOM_UPDATES["gram"])
        check_scales(RBF(gamma), spread_sample(few, KERNEL_SAMPLE))
        scaling = Scaling.of(spread_sample(few, LARGEST_SAMPLE))
        scaled = scaling.coordinates(vectors, scaling.centre)
        task = self._task(n_outputs, signals.shape[0])
        return TaskLearning(task, placed(scaled, signals.device), gamma * scaling.length**2), scaling

    def _examples(self, signals: Drawn, scaling: Scaling, targets: np.ndarray, weights: np.ndarray) -> Examples:
        """The signals with their targets, where the signals are."""
        centre, device = placed(scaling.centre, signals.device), signals.device
        given = placed((targets.astype(np.float32), (weights / weights.mean()).astype(np.float32)), device)
        kept = signals.kept()

        def rows(chosen: np.ndarray) -> Array:
            if kept is None:
                return scaling.coordinates(placed(signals.take(chosen), device), centre)
            return scaling.coordinates(kept[backend_of(kept).from_host(signals.rows[chosen], kept)], centre)

        return Examples(rows, *given)

    def _learn(
        self, signals: Drawn, gamma: float, targets: np.ndarray, weights: np.ndarray, rng: RandomState, name: str
    ) -> tuple[TaskLearning, Scaling, np.ndarray]:
        """A whole learning from these signals, and the mean losses of its passes over them."""
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

    def _continue(self, signals: Drawn, targets: np.ndarray, weights: np.ndarray) -> None:
        """Learn from a batch of a stream, in a few passes over it, and set the fitted attributes.

        The loss of a batch is that of the first pass, of signals that were not seen before.
        """
        rng = check_random_state(self.random_state)
        is_first = "n_iter_" not in vars(self)
        if is_first:
            self.gamma_ = find_gamma(self.gamma, signals)
            learning, scaling = self._start(signals, self.gamma_, targets.shape[1], rng)
        else:
            learning, scaling = self._restored(signals.device, signals.shape[0])
        examples = self._examples(signals, scaling, targets, weights)
        if is_first:
            learning.start_atoms(examples, rng)
        batch = min(signals.shape[0], plan(signals.shape[0])[1])
        n_steps = -(-signals.shape[0] // batch)
        threads, count = resolve_threads(self.n_jobs), STREAM_PASSES * n_steps
        losses = list(learning.run(examples, count, batch, rng, constant=STREAM_RATE, threads=threads))
        loss = float(np.mean([float(loss) for loss in losses[:n_steps]]))
        self._set(learning, scaling, np.append(vars(self).get("losses_", np.empty(0)), loss), signals.dtype)

    def _restored(self, device: Device, n_signals: int) -> tuple[TaskLearning, Scaling]:
        """The learning that the fitted attributes came from, without the moments of its gradients."""
        made_once(self, self._parts, (), self._assemble)  # checks them
        scaling = Scaling(self.feature_means_, self._length, self.feature_variances_ / self._length**2)
        gammas = self.gammas_ * scaling.length**2
        vectors = scaling.coordinates(self.kernel_vectors_, scaling.centre)
        task = self._task(len(self.intercept_), n_signals)
        learning = TaskLearning(task, placed(vectors, device), placed(gammas, device))
        mean, scale = self._target_units()
        readout = self.dual_coef_ / scale, (self.intercept_ - mean) / scale, vars(self).get("components_")
        learning.restore(*placed(readout, device))
        learning.parts["log_sharpness"][:] = float(np.log(vars(self).get("sharpness_", 1.0)))
        return learning, scaling

    @property
    def _length(self) -> float:
        """The length that distances are measured in."""
        return float(np.sqrt(self.feature_variances_.mean())) or 1.0

    def _settings(self) -> dict[str, Any]:
        """Parameters that a stream depends on."""
        names = ("n_components", "n_nonzero_coefs", "n_kernel_vectors", "gamma")
        return {name: plain_scalar(getattr(self, name)) for name in names if hasattr(self, name)}

    def _target_units(self) -> tuple[Any, Any]:
        """Mean and scale of the targets."""
        return 0.0, 1.0

    def _set(self, learning: TaskLearning, scaling: Scaling, losses: np.ndarray, dtype: np.dtype) -> None:
        """Set the fitted attributes of what was learned."""
        self.losses_, self.n_iter_ = losses, len(losses)
        model = to_host(learning.model(scaling.centre, scaling.variances))
        vectors, (mean, scale) = (model.vectors / model.scales).astype(np.float64), self._target_units()
        with np.errstate(over="ignore", invalid="ignore"):
            self.gammas_ = (model.scales.astype(np.float64) / scaling.length) ** 2
            found = model.dual * scale, model.intercept * scale + mean, vectors * scaling.length + scaling.centre
            *parts, scales = (array.astype(dtype) for array in (*found, np.sqrt(self.gammas_)))
        self.dual_coef_, self.intercept_, self.kernel_vectors_ = parts
        if not all(np.isfinite(array).all() for array in (*parts, scales)):
            raise ValueError(f"The learned parameters leave the range of {dtype}: scale X, y or gamma, or use float64.")
        self.feature_means_ = scaling.centre
        self.feature_variances_ = scaling.variances * scaling.length**2
        relevance = self.gammas_ * self.feature_variances_
        total = relevance.sum()
        self.feature_relevance_ = relevance / total if total > 0.0 else np.full(len(relevance), 1.0 / len(relevance))
        if model.atoms is not None:
            self.components_, self.grams_ = model.atoms.astype(dtype), model.grams.astype(dtype)
            self.n_nonzero_coefs_ = model.n_nonzero
        freeze(self, self._parts)

    def _assemble(self) -> dict[tuple[Any, Any], TaskModel]:
        """Models by the dtype and device of the signals, filled by `_model`."""
        return {}

    def _model(self, dtype: np.dtype, device: Device) -> TaskModel:
        """The fitted model for signals of `dtype` on `device`."""
        models = made_once(self, self._parts, (), self._assemble)
        if (dtype, device) not in models:
            scales = np.sqrt(constant(self.gammas_))
            centre, state = self.feature_means_, vars(self)
            # A scale may become zero: no signal in the range of `dtype` is then away from the centre.
            if np.abs(centre).max() > np.finfo(dtype).max:
                raise NotFiniteError
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
                np.full(1, min(LARGEST * self._length, float(np.finfo(dtype).max))),
            )
            models[dtype, device] = placed(model.as_dtype(dtype), device)
        return models[dtype, device]

    def _read(self, X: MatrixLike, read: Callable[[TaskModel, Array], Array]) -> Array:
        """``read(model, kernel values)`` of all signals; a tensor if `X` is one, where that is."""
        signals = self._read_signals(X, reset=False)
        model = self._model(signals.dtype, signals.device)

        def task(start: int, stop: int) -> Array:
            rows = signals.read(start, stop)
            xp = backend_of(rows).xp
            if bool(xp.isinf(rows).any()):
                check_rows_finite(np.nan_to_num(host(rows), posinf=np.inf, neginf=-np.inf))
            with np.errstate(over="ignore", invalid="ignore"):
                results = read(model, model.kernel_values(rows))
            # Differences of two of them, too.
            if not bool(xp.isfinite(2.0 * results).all()):
                raise NotFiniteError
            return results

        found = cast(joined(for_each_chunk(signals, model.row_width, self.n_jobs, task)), signals.dtype)
        return to_device(found, X.device) if is_tensor(X) else host(found)

    @by_blocks
    def transform(self, X: MatrixLike) -> Array:
        """Compute the learned features of signals: whitened kernel values.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        features : ndarray of shape (n_signals, n_kernel_vectors)
            Coordinates whose inner products are those of the signals' projections on the kernel vectors. A lazy Dask
            array or a tensor if `X` is one.
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        freeze(self, self._parts)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Drawn(Signals):
    """Rows of signals in another order, some of them perhaps several times."""

    def __init__(self, signals: Signals, rows: np.ndarray) -> None:
        super().__init__(signals.data, signals.dtype, (len(rows), signals.shape[1]))
        self.device, self.is_in_memory = signals.device, signals.is_in_memory
        self._signals, self.rows = signals, rows

    def read(self, start: int, stop: int) -> Array:
        return self._signals.subset(self.rows[start:stop]).read(0, stop - start)

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self._signals.take(self.rows[indices])

    def subset(self, indices: np.ndarray) -> Signals:
        return self._signals.subset(self.rows[indices])

    def part(self, indices: np.ndarray) -> Drawn:
        """Some of the rows; nothing is copied."""
        return Drawn(self._signals, self.rows[indices])

    def kept(self) -> Array:
        """All signals that rows are drawn from, if they stay in memory while batches are drawn; otherwise None."""
        signals, (n_signals, n_features) = self._signals, self._signals.shape
        is_dense = signals.is_in_memory and not sparse.issparse(signals.data)
        return signals.read(0, n_signals) if is_dense and n_signals * n_features <= MOST_KEPT else None

    def _of_pieces(self, function: Callable[[Array], Result], name: str) -> list[Result]:
        # From storage in the order that they are stored in.
        ordered = self if self.is_in_memory else Drawn(self._signals, np.sort(self.rows))
        return Signals._of_pieces(ordered, function, name)


def counted(
    signals: Signals, targets: np.ndarray, weights: np.ndarray, means: np.ndarray | None
) -> tuple[Drawn, np.ndarray, np.ndarray]:
    """Signals of positive weight in an order that follows from them and their targets, with targets and weights.

    Whole weights are numbers of copies, each of weight one: a signal of weight two is then the same as two signals.
    Numbers that are missing (NaN) from an array become `means`, or the means of their columns.
    """
    direction = np.random.RandomState(0).standard_normal(signals.shape[1])

    def project(rows: Array) -> np.ndarray:
        with np.errstate(all="ignore"):
            # No matrix product: its last digits depend on where in a matrix a row is.
            return (np.nan_to_num(cast(host(rows), np.float64)) * direction).sum(axis=1)

    order = np.lexsort((weights, *np.atleast_2d(targets.T), np.concatenate(signals._of_pieces(project, "order"))))
    are_copies = weights.sum() <= MOST_COPIES and not (weights % 1.0).any()
    rows = np.repeat(order, (weights if are_copies else weights > 0.0)[order].astype(np.intp))
    found = Drawn(signals, rows)
    if type(signals) is Signals and isinstance(signals.data, np.ndarray) and np.isnan(signals.data).any():
        places = np.arange(len(rows))
        found = Drawn(Signals(_without_missing(found.take(places), means), signals.dtype), places)
    found.check_finite()
    return found, targets[rows], np.ones(len(rows)) if are_copies else weights[rows]


def _without_missing(rows: np.ndarray, means: np.ndarray | None) -> np.ndarray:
    """The rows with missing numbers (NaN) replaced by the means of their columns, those given or their own."""
    if means is None:
        means = np.nansum(rows, axis=0, dtype=np.float64) / np.maximum((~np.isnan(rows)).sum(axis=0), 1)
    return np.where(np.isnan(rows), means.astype(rows.dtype), rows)
