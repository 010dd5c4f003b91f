"""Outlier detection: outliers are signals that kernel dictionaries of the others cannot represent."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import cycle
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._applications.anomaly_scores import AnomalyTask, Ensemble, Member, combine, robust_location, upper_fence
from rkdl._backends.arrays import host, is_tensor, stacked
from rkdl._backends.base import backend_of
from rkdl._backends.devices import placed
from rkdl._coding.dictionary import check_shapes
from rkdl._data.open import gather, is_dask
from rkdl._data.signals import Signals
from rkdl._estimators.fitting import freeze, made_once, read_signals, replaced_at_once, with_one_model
from rkdl._estimators.learner import Learner
from rkdl._estimators.reduced import RKDL
from rkdl._estimators.saving import save
from rkdl._execution.blas import one_blas_thread, resolve_threads
from rkdl._execution.config import config_context
from rkdl._execution.executor import open_executor, side_by_side
from rkdl._features.widths import centre_of, find_gamma
from rkdl._learning.loop import progress
from rkdl._utils.types import Array, Device, MatrixLike
from rkdl._utils.warnings import quiet, warn

# Fitted attributes that scores are computed from.
PARTS = ("gammas_", "kernel_vectors_", "dual_components_", "grams_", "sizes_", "medians_", "spreads_")
# Folds for scoring signals that no dictionary has learned from, where there are few signals.
N_FOLDS = 10
# Warn if the scores of at least FEW signals differ by less than EQUAL.
FEW, EQUAL = 5, 1e-3
# Number of unseen signals that is enough to set the threshold.
ENOUGH_UNSEEN = 200


@dataclass(eq=False, repr=False)
class KDLOutlierDetector(OutlierMixin, BaseEstimator):
    """Outlier detector: signals that an ensemble of kernel dictionaries represents badly.

    The dictionaries are small and use RBF kernels of two widths: the wide kernel, with more atoms, learns how features
    depend on each other; the narrow one, with few atoms, where signals are dense. Each is learned twice: from all
    signals, and then, on new kernel vectors, without those that it represented worst. The anomaly of a signal is
    ``-log(1 - r^2)``, with r the norm of its residual in feature space, standardised over the training signals and
    averaged over the dictionaries. Features should have comparable scales; use a ``StandardScaler`` where they do not.

    Parameters
    ----------
    n_components : int or array-like of int, default=(32, 8)
        Number of atoms per dictionary: one number for each of `gamma_factors`, or one for all.
    n_nonzero_coefs : int or array-like of int, default=(16, 8)
        Maximum number of nonzero coefficients per signal, likewise.
    gamma : float, "median" or "scale", default="median"
        Parameter of the kernel. "median" is the inverse of the median squared distance in a sample of the signals,
        "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    gamma_factors : float or array-like of float, default=(0.1, 6.0)
        Factors of `gamma`, one per kernel width.
    n_kernel_vectors : int, default=200
        Number of kernel vectors per dictionary, drawn at random from the signals.
    discard : float, default=0.25
        Fraction of the signals, the worst represented, left out when a dictionary is learned again; 0: learn it once.
    n_members : int, default=10
        Number of dictionaries, assigned to the kernel widths in turn.
    max_samples : int, default=2048
        Maximum number of signals per dictionary, drawn at random.
    max_iter : int, default=4
        Number of iterations per dictionary.
    contamination : float or "auto", default="auto"
        Fraction of outliers, in (0, 0.5]: `fit_predict` labels this fraction of the training signals, and `predict`
        about this fraction of similar new signals. "auto" labels the signals beyond Tukey's fence, adjusted for
        skewness; without outliers that is a few percent.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads; None means as many as BLAS may use, -1 all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of the kernel vectors, initial atoms and samples.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    offset_ : float
        Threshold: ``decision_function`` is ``score_samples - offset_``. It is set on the training signals, or on some
        left out of the learning if these score clearly lower: `predict` then labels fewer than `fit_predict`.
    gammas_ : ndarray of shape (n_members,)
        Kernel parameter of each dictionary.
    kernel_vectors_ : ndarray of shape (n_members, n_kernel_vectors, n_features)
        Kernel vectors of each dictionary.
    dual_components_ : ndarray of shape (n_members, max_components, n_kernel_vectors)
        Atoms of each dictionary as linear combinations of its kernel vectors, padded with zeros.
    grams_ : ndarray of shape (n_members, max_components, max_components)
        Inner products of the atoms of each dictionary in feature space.
    sizes_ : ndarray of shape (n_members, 2)
        Number of atoms, and maximum number of nonzero coefficients, of each dictionary.
    medians_ : ndarray of shape (n_members,)
        Median of ``-log(1 - r^2)`` over the training signals, for each dictionary.
    spreads_ : ndarray of shape (n_members,)
        Its interquartile range, but at least 1e-4, so that dictionaries that represent all signals have no influence.
    n_iter_ : int
        Number of iterations per dictionary.
    n_features_in_ : int
        Number of features per signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `X` has column names that are strings.

    See Also
    --------
    RKDL : The method that learns the dictionaries.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl import KDLOutlierDetector
    >>> X = np.random.default_rng(0).standard_normal((300, 4))
    >>> X[:3] += 8.0
    >>> detector = KDLOutlierDetector(contamination=0.01, random_state=0).fit(X)
    >>> np.flatnonzero(detector.predict(X) == -1)
    array([0, 1, 2])
    """

    n_components: int | ArrayLike = (32, 8)
    _: KW_ONLY
    n_nonzero_coefs: int | ArrayLike = (16, 8)
    gamma: float | str = "median"
    gamma_factors: float | ArrayLike = (0.1, 6.0)
    n_kernel_vectors: int = 200
    discard: float = 0.25
    n_members: int = 10
    max_samples: int = 2048
    max_iter: int = 4
    contamination: float | str = "auto"
    device: Device = None
    n_jobs: int | None = None
    random_state: RandomState | int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Learner._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "n_nonzero_coefs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "gamma_factors": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "discard": [Interval(Real, 0, 1, closed="left")],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "max_samples": [Interval(Integral, 2, None, closed="left")],
        "contamination": [Interval(Real, 0, 0.5, closed="right"), StrOptions({"auto"})],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: None = None) -> Self:
        """Learn the dictionaries and the threshold.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row. Memory maps, Zarr arrays, HDF5 datasets and anything else with ``shape``, ``dtype``
            and row slices are read chunk by chunk; torch tensors are processed where they are.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted detector.
        """
        with replaced_at_once(self) as work, one_blas_thread():
            work._fit(X)
        return self

    @one_blas_thread()
    def fit_predict(self, X: MatrixLike, y: None = None) -> Array:
        """Learn from signals and label the outliers among them.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        labels : ndarray of shape (n_signals,)
            -1 for outliers, 1 for the others. A tensor if `X` is one.
        """
        scores = host(self.fit(X).score_samples(X))
        # Their own threshold, as the dictionaries have learned from all of them.
        labels = np.where(scores - scores.dtype.type(self._offset(scores)) < 0.0, -1, 1)
        return placed(labels, X.device if is_tensor(X) else None)

    @with_one_model
    def score_samples(self, X: MatrixLike) -> Array:
        """Compute how well signals are represented; lower is more abnormal.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.

        Returns
        -------
        scores : ndarray of shape (n_signals,)
            Scores; about zero for a signal that is represented as well as the median training signal. A tensor if `X`
            is one.
        """
        signals = self._read_signals(X, reset=False)
        ensemble, locations = self._scoring(signals.device)
        scores = AnomalyTask(ensemble, signals.dtype, locations).of_all(signals, self.n_jobs)
        return placed(scores, X.device if is_tensor(X) else None)

    @with_one_model
    def decision_function(self, X: MatrixLike) -> Array:
        """Compute `score_samples` minus `offset_`: negative for outliers.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.

        Returns
        -------
        scores : ndarray of shape (n_signals,)
            Shifted scores. A tensor if `X` is one.
        """
        return self.score_samples(X) - self.offset_

    @with_one_model
    def predict(self, X: MatrixLike) -> Array:
        """Label outliers.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.

        Returns
        -------
        labels : ndarray of shape (n_signals,)
            -1 for outliers, 1 for the others. A tensor if `X` is one.
        """
        is_outlier = self.decision_function(X) < 0.0
        return backend_of(is_outlier).where(is_outlier, -1, 1)

    save = save

    def _fit(self, X: MatrixLike) -> None:
        widths = self._widths()
        signals = self._read_signals(X, reset=True)
        rng = check_random_state(self.random_state)
        with open_executor(signals, 2 * signals.shape[1], self.n_jobs) as executor:
            signals = executor.inspected().signals
        gamma = find_gamma(self.gamma, signals)
        seeds = rng.randint(np.iinfo(np.int32).max, size=self.n_members)
        # To the kernel widths in turn.
        tasks = [(gamma * factor, *sizes, seed) for (factor, *sizes), seed in zip(cycle(widths), seeds, strict=False)]
        folds = self._folds(signals.shape[0], rng)
        with progress(self.n_members * (1 + len(folds)), self.verbose, type(self).__name__, unit="dictionary") as bar:
            members = self._learn(signals, tasks, bar)
            raw = self._anomalies(signals, members)
            unseen = []
            for fold in folds:
                others = signals.subset(np.setdiff1d(np.arange(signals.shape[0]), fold))
                unseen.append(self._anomalies(signals.subset(fold), self._learn(others, tasks, bar)))
        locations = np.array([robust_location(row[np.isfinite(row)]) for row in raw.T])
        scores: np.ndarray = combine(raw, locations, signals.dtype)
        self.offset_ = float(self._offset(scores))
        if folds:
            self._lower_offset(scores, combine(np.concatenate(unseen), locations, signals.dtype))
        self._store(members, locations)
        if len(scores) >= FEW and float(np.ptp(scores)) < EQUAL:
            warn(
                f"The scores of all {len(scores)} training signals are equal, to within {EQUAL:g}: the dictionaries "
                f"represent every signal equally well, so that there are no outliers. Either gamma={self.gamma!r} is "
                f"too small by orders of magnitude, and 'median' is better, or the signals themselves are equal."
            )

    def _folds(self, n_signals: int, rng: np.random.RandomState) -> list[np.ndarray]:
        """Indices of the signals to be left out in turn; no folds if most signals are not learned from anyway."""
        if n_signals >= 2 * self.max_samples:
            return []
        folds = np.array_split(rng.permutation(n_signals), min(N_FOLDS, n_signals))
        # The first folds are enough once they hold some hundreds of signals.
        n_needed = 1 + int(np.searchsorted(np.cumsum([len(fold) for fold in folds]), ENOUGH_UNSEEN))
        return [np.sort(fold) for fold in folds[:n_needed]]

    def _anomalies(self, signals: Signals, members: list[Member]) -> np.ndarray:
        """Anomaly of each signal in each dictionary, (n_signals, n_members), in host memory."""
        return host(AnomalyTask(Ensemble.of(members), signals.dtype).of_all(signals, self.n_jobs))

    def _lower_offset(self, scores: np.ndarray, unseen: np.ndarray) -> None:
        """Take the offset of the unseen signals if that of the training signals labels clearly more of them."""
        expected = float((scores < self.offset_).mean())
        slack = np.sqrt(max(expected * (1.0 - expected), 1.0 / len(unseen)) / len(unseen))
        if float((unseen < self.offset_).mean()) > expected + slack:
            self.offset_ = min(self.offset_, float(self._offset(unseen)))

    def _widths(self) -> list[tuple[float, int, int]]:
        """Factor of gamma, number of atoms and of nonzero coefficients per kernel width, checked."""
        found = [_several("gamma_factors", self.gamma_factors, float)]
        count = len(found[0])
        for name in ("n_components", "n_nonzero_coefs"):
            values = _several(name, getattr(self, name), int)
            if len(values) not in (1, count):
                raise ValueError(f"{name} has {len(values)} values and gamma_factors {count}: give one, or as many.")
            found.append(values * count if len(values) == 1 else values)
        return list(zip(*found, strict=True))

    def _learn(self, signals: Signals, tasks: list[tuple[float, int, int, int]], bar: Any) -> list[Member]:
        """The dictionaries, each from its own seed, so that the result does not depend on threads."""
        # A slow source is read by one thread at a time, and a device works on one dictionary after another.
        threads = resolve_threads(self.n_jobs) if signals.is_in_memory and signals.device is None else 1

        def learn(task: tuple[float, int, int, int]) -> Member:
            # The user's chunks are those of all signals, not of a sample.
            with config_context(chunk_rows=None):
                member = self._learn_one(signals, *task)
            if bar is not None:
                bar.update()
            return member

        return side_by_side(learn, tasks, threads)

    def _learn_one(self, signals: Signals, gamma: float, n_atoms: int, n_nonzero: int, seed: int) -> Member:
        """Selective training: learn, leave out the worst represented signals, learn again."""
        rng = np.random.RandomState(seed)
        n_signals, device = signals.shape[0], signals.device
        sample = signals.take(rng.choice(n_signals, min(n_signals, self.max_samples), replace=False))
        sample = sample.astype(np.float64)
        n_kept = max(1, round(len(sample) * (1.0 - self.discard)))

        def dictionary(sample: np.ndarray) -> Member:
            # Centred, for accuracy: distances do not depend on the origin.
            centre = centre_of(sample)
            n_vectors = min(self.n_kernel_vectors, len(sample))
            count = min(n_atoms, n_vectors)
            model = RKDL(
                count,
                gamma=gamma,
                n_kernel_vectors=n_vectors,
                kernel_vectors="random",
                # Uniformly: atoms chosen to represent what others do not would start with the outliers.
                init="data",
                n_nonzero_coefs=min(n_nonzero, count),
                max_iter=self.max_iter,
                tol=0.0,
                n_jobs=1,
                random_state=rng,
            )
            with quiet():
                model.fit(placed(sample - centre, device))
            vectors = model.kernel_vectors_ + centre
            return Member(gamma, vectors, model.dual_components_, model.gram_, min(n_nonzero, count))

        member = dictionary(sample)
        if n_kept == len(sample):
            return member
        ensemble, rows = placed((Ensemble.of([member]), sample), device)
        order = np.argsort(host(ensemble.anomalies(rows))[:, 0], kind="stable")
        return dictionary(sample[np.sort(order[:n_kept])])

    def _store(self, members: list[Member], locations: np.ndarray) -> None:
        self.gammas_ = np.array([member.gamma for member in members])
        self.kernel_vectors_ = np.stack([member.kernel_vectors for member in members])
        self.dual_components_ = stacked([member.atoms for member in members])
        self.grams_ = stacked([member.gram for member in members])
        self.sizes_ = np.array([(len(member.atoms), member.n_nonzero) for member in members])
        self.medians_, self.spreads_ = locations.T.copy()
        self.n_iter_ = int(self.max_iter)
        freeze(self, PARTS)

    def _scoring(self, device: Device) -> tuple[Ensemble, Array]:
        """The fitted ensemble and the locations of its anomalies (n_members, 2), on a device if there is one."""
        known: dict[Device, tuple[Ensemble, Array]] = made_once(self, PARTS, (), dict)
        if device not in known:
            arrays = self.gammas_, self.kernel_vectors_, self.dual_components_, self.grams_
            columns = *(np.asarray(array, dtype=np.float64) for array in arrays), self.sizes_
            members = [
                Member(gamma, vectors, atoms[:n], gram[:n, :n].copy(), int(n_nonzero))
                for gamma, vectors, atoms, gram, (n, n_nonzero) in zip(*columns, strict=True)
            ]
            for own in members:
                check_shapes(own.atoms, own.gram, len(own.kernel_vectors))
            locations = np.stack([self.medians_, self.spreads_], axis=1)
            known[device] = placed((Ensemble.of(members), locations), device)
        return known[device]

    def _offset(self, scores: np.ndarray) -> float:
        if isinstance(self.contamination, str):
            return -upper_fence(-scores.astype(np.float64))
        return np.percentile(scores, 100.0 * self.contamination)

    def _read_signals(self, X: MatrixLike, *, reset: bool) -> Signals:
        # A Dask array is read into memory, because its scores are not lazy.
        signals = read_signals(
            self, gather(X) if is_dask(X) else X, reset=reset, device=self.device, prefers_arrays=True
        )
        if reset and signals.shape[0] < 2:
            raise ValueError(
                f"Found array with 1 sample(s) (shape={signals.shape}) while a minimum of 2 is required by "
                f"{type(self).__name__}."
            )
        return signals

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _several(name: str, values: object, kind: type) -> list:
    """A parameter that is one number or several, as a checked list."""
    array = np.atleast_1d(np.asarray(values))
    is_number = array.ndim == 1 and array.size and array.dtype.kind in ("iu" if kind is int else "iuf")
    if not is_number or not ((array > 0) & (array < np.inf)).all():
        what = "integers" if kind is int else "finite numbers"
        raise ValueError(f"{name}={values!r} must be a positive number or a list of positive {what}.")
    return [kind(value) for value in array]
