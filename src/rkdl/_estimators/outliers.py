"""Outlier detection: outliers are signals that kernel dictionaries of the others cannot represent."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._applications.anomaly_scores import AnomalyTask, Ensemble, Scaling
from rkdl._applications.detector_learning import POOL, Detection, DetectorLearning
from rkdl._applications.explanations import explanations
from rkdl._applications.thresholds import MOST, threshold
from rkdl._backends.arrays import host, is_tensor
from rkdl._backends.base import backend_of
from rkdl._backends.devices import placed
from rkdl._data.open import gather, is_dask, open_signals
from rkdl._data.signals import Signals
from rkdl._estimators.fitting import freeze, made_once, read_signals, replaced_at_once, with_one_model
from rkdl._estimators.saving import save
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import open_executor
from rkdl._features.widths import RULES
from rkdl._learning.loop import progress
from rkdl._utils.inputs import check_rows_finite
from rkdl._utils.types import Array, Device, MatrixLike
from rkdl._utils.warnings import warn

# Fitted attributes that scores are computed from.
PARTS = ("centre_", "scale_", "gamma_", "kernel_vectors_", "dual_components_", "locations_")
STREAM = ("recent_signals_", "recent_keys_", "recent_learned_", "n_signals_seen_")
# Warn if the scores of at least FEW signals differ by less than EQUAL.
FEW, EQUAL = 5, 1e-3
# The detector of a stream learns again when this share of the recent signals is new.
RENEWED = 0.125
_COUNT = [Interval(Integral, 1, None, closed="left")]


@dataclass(eq=False, repr=False)
class KDLOutlierDetector(OutlierMixin, BaseEstimator):
    """Outlier detector: signals that an ensemble of kernel dictionaries represents badly.

    Each member is a set of kernel vectors, drawn from the signals, with a dictionary. A signal is abnormal if it lies
    outside the span of the atoms in feature space, with a residual of norm r: its anomaly is ``-log(1 - r^2)``; if it
    is far from the nearest kernel vector; or, unless all training signals are known to be normal, far from the nearest
    of few, as even a group of outliers is. Logarithms of these three, relative to those of the training signals, are
    averaged over the members, and the largest counts.

    Features may have any scale: they are standardised robustly.

    Parameters
    ----------
    n_components : int, default=32
        Number of atoms per dictionary.
    n_nonzero_coefs : int, default=16
        Maximum number of nonzero coefficients per signal while the atoms are learned. Scores use all atoms.
    gamma : float, "median" or "scale", default="median"
        Parameter of the kernel, for standardised signals. "median" is the inverse of the median squared distance in a
        sample of the signals, "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    gamma_factor : float, default=0.1
        Factor of `gamma`. Wide kernels learn how features depend on each other.
    n_kernel_vectors : int, default=256
        Number of kernel vectors per member.
    n_members : int, default=5
        Number of members. Kernel vectors of each are from another part of the signals, of which there are as many.
    max_samples : int, default=1024
        Maximum number of signals per dictionary, drawn at random.
    max_iter : int, default=2
        Number of iterations per dictionary.
    standardize : bool, default=True
        Whether to divide features by their standard deviations, to which gross errors do not count. The values of a
        feature with at most 20 of them, such as classes and counts, are taken to be at most two deviations apart.
    novelty : bool, default=False
        Whether all training signals are known to be normal. Otherwise, those that stand apart are not learned from, and
        small groups of signals far from the others are abnormal too.
    contamination : float or "auto", default="auto"
        Fraction of outliers, in (0, 0.5]: `fit_predict` labels this fraction of the training signals, and `predict`
        about this fraction of similar new signals. "auto" labels the signals beyond the tail of the scores of those
        that do not stand apart; without outliers that is about one in a hundred.
    half_life : float, default=None
        Number of signals after which `partial_fit` keeps half as many of them; None keeps old and new ones alike.
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
        Threshold: ``decision_function`` is ``score_samples - offset_``. It is set on the training signals, or on the
        scores that these have by members that have not learned from them, if these scores are clearly lower: `predict`
        then labels fewer than `fit_predict`.
    centre_ : ndarray of shape (n_features,)
        Medians of the features.
    scale_ : ndarray of shape (n_features,)
        What features are divided by: ones without `standardize`.
    gamma_ : float
        Kernel parameter of the dictionaries, `gamma_factor` included.
    kernel_vectors_ : ndarray of shape (n_members, n_kernel_vectors, n_features)
        Kernel vectors of each member, standardised.
    dual_components_ : ndarray of shape (n_members, n_components, n_kernel_vectors)
        Orthonormal atoms with the span of each dictionary, as linear combinations of its kernel vectors.
    locations_ : ndarray of shape (n_members, 3, 3)
        For the dictionary of each member, for the nearest of its kernel vectors and for the nearest of few, which
        `novelty` leaves out: the unit of the anomaly, which is its median over the training signals; and of the
        logarithms ``log(1 + anomaly / unit)``, their median and interquartile range. Unit and range have lower bounds,
        so that what is the same for all signals has no influence.
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
    >>> X[:3, 1] += 8.0
    >>> detector = KDLOutlierDetector(contamination=0.01, random_state=0).fit(X)
    >>> np.flatnonzero(detector.predict(X) == -1)
    array([0, 1, 2])
    >>> detector.explain(X[:3]).argmax(axis=1)
    array([1, 1, 1])
    """

    n_components: int = 32
    _: KW_ONLY
    n_nonzero_coefs: int = 16
    gamma: float | str = "median"
    gamma_factor: float = 0.1
    n_kernel_vectors: int = 256
    n_members: int = 5
    max_samples: int = 1024
    max_iter: int = 2
    standardize: bool = True
    novelty: bool = False
    contamination: float | str = "auto"
    half_life: float | None = None
    device: Device = None
    n_jobs: int | None = None
    random_state: RandomState | int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": _COUNT,
        "n_nonzero_coefs": _COUNT,
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions(set(RULES))],
        "gamma_factor": [Interval(Real, 0, None, closed="neither")],
        "n_kernel_vectors": _COUNT,
        "n_members": _COUNT,
        "max_samples": [Interval(Integral, 2, None, closed="left")],
        "max_iter": _COUNT,
        "standardize": ["boolean"],
        "novelty": ["boolean"],
        "contamination": [Interval(Real, 0, 0.5, closed="right"), StrOptions({"auto"})],
        "half_life": [Interval(Real, 0, None, closed="neither"), None],
        "device": "no_validation",
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
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
            work._begin(X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
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
        with replaced_at_once(self) as work:
            # Their own threshold, as the dictionaries have learned from all of them.
            offset = work._begin(X)
        scores = host(self.score_samples(X))
        if not isinstance(self.contamination, str):
            offset = float(np.percentile(scores, 100.0 * self.contamination))
        labels = np.where(scores - scores.dtype.type(offset) < 0.0, -1, 1)
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

    @with_one_model
    def explain(self, X: MatrixLike) -> np.ndarray:
        """Compute how much less abnormal each feature would make a signal if it were as that of its neighbours.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.

        Returns
        -------
        gains : ndarray of shape (n_signals, n_features)
            Increase of `score_samples` if the feature alone is replaced by that of the nearest kernel vector, averaged
            over the members. The features of an outlier with large gains are those that make it one.
        """
        signals = self._read_signals(X, reset=False).on_host()
        rows = signals.take(np.arange(signals.shape[0])).astype(np.float64)
        check_rows_finite(rows)
        ensemble, locations = self._scoring(None)
        return explanations(ensemble, locations, rows, self.n_jobs)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: MatrixLike, y: None = None) -> Self:
        """Learn from the next signals of a stream.

        A random part of the signals so far is kept, of which old ones are forgotten after `half_life`: five times
        `max_samples` at most. The dictionaries and the threshold are learned from it anew when an eighth of it has
        changed. The stream begins with the first call, and again after `fit`.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`. The first batch must have at least two.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted detector.
        """
        # scikit-learn checks the parameters of the first batch only.
        self._validate_params()
        with replaced_at_once(self) as work, one_blas_thread():
            work._learn_on(X)
        return self

    save = save

    def _learn_on(self, X: MatrixLike) -> None:
        is_first = "recent_keys_" not in vars(self)
        signals = self._read_signals(X, reset=is_first).on_host()
        signals.check_finite()
        seen = int(vars(self).get("n_signals_seen_", 0))
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        # Signals of the largest keys are a random sample, whose weights double with every half-life (the Gumbel trick).
        growth = 0.0 if self.half_life is None else np.log(2.0) / max(self.half_life, 1e-300)
        keys = np.random.RandomState([seed, seen % 2**32]).gumbel(size=signals.shape[0])
        keys += growth * np.arange(seen, seen + len(keys))
        recent, is_learned = signals.take(np.arange(len(keys))).astype(np.float64), np.zeros(len(keys), dtype=bool)
        if not is_first:
            known = vars(self)
            recent, keys = np.r_[known["recent_signals_"], recent], np.r_[known["recent_keys_"], keys]
            is_learned = np.r_[known["recent_learned_"], is_learned]
        chosen = np.sort(np.argsort(-keys, kind="stable")[: POOL * self.max_samples])
        self.recent_signals_, self.recent_keys_ = recent[chosen], keys[chosen]
        self.recent_learned_, self.n_signals_seen_ = is_learned[chosen], seen + signals.shape[0]
        if (~self.recent_learned_).mean() >= RENEWED:
            self._fit(open_signals(self.recent_signals_, caller=type(self).__name__, device=self.device))
            self.recent_learned_ = np.ones(len(chosen), dtype=bool)

    def _begin(self, X: MatrixLike) -> float:
        for name in STREAM:
            self.__dict__.pop(name, None)
        return self._fit(self._read_signals(X, reset=True))

    def _fit(self, signals: Signals) -> float:
        """Learn everything; returns the threshold of the training signals themselves."""
        rng = check_random_state(self.random_state)
        with open_executor(signals, 2 * signals.shape[1], self.n_jobs) as executor:
            signals = executor.inspected().signals
        own = {part.name: getattr(self, part.name) for part in fields(DetectorLearning) if hasattr(self, part.name)}
        learning = DetectorLearning(caller=type(self).__name__, **own)
        with progress(self.n_members, self.verbose, learning.caller, unit="dictionary") as bar:
            found = learning.learn(signals, rng, bar)
        self._store(found)
        scores, unseen = found.scores, found.unseen_scores
        offset = self.offset_ = self._offset(scores, found.is_kept)
        is_known = np.isfinite(unseen)
        # New signals are represented worse where there are few to learn from.
        expected = max(float((scores < offset).mean()), MOST * isinstance(self.contamination, str))
        slack = np.sqrt(max(expected * (1.0 - expected), 1.0 / len(unseen)) / max(1, is_known.sum()))
        if float((unseen[is_known] < offset).mean()) > expected + slack:
            self.offset_ = min(offset, self._offset(unseen[is_known], found.is_kept[is_known]))
        if len(scores) >= FEW and float(np.ptp(scores)) < EQUAL:
            warn(
                f"The scores of all {len(scores)} training signals are equal, to within {EQUAL:g}: the dictionaries "
                f"represent every signal equally well, so that there are no outliers. Either gamma={self.gamma!r} is "
                f"too small by orders of magnitude, and 'median' is better, or the signals are copies of few."
            )
        return offset

    def _store(self, found: Detection) -> None:
        (self.centre_, self.scale_), self.gamma_, self.kernel_vectors_, self.dual_components_, _ = found.ensemble
        self.locations_, self.n_iter_ = found.locations, int(self.max_iter)
        freeze(self, PARTS)

    def _scoring(self, device: Device) -> tuple[Ensemble, Array]:
        """The fitted ensemble and the locations of its anomalies, on a device if there is one."""
        known: dict[Device, tuple[Ensemble, Array]] = made_once(self, PARTS, (), dict)
        if device not in known:
            vectors, atoms = (
                np.asarray(own, dtype=np.float64) for own in (self.kernel_vectors_, self.dual_components_)
            )
            scaling, has_few = Scaling(self.centre_, self.scale_), self.locations_.shape[1] > 2
            ensemble = Ensemble(scaling, float(self.gamma_), vectors, atoms, has_few)
            known[device] = placed((ensemble, self.locations_), device)
        return known[device]

    def _offset(self, scores: np.ndarray, is_kept: np.ndarray) -> float:
        if isinstance(self.contamination, str):
            return -threshold(-scores.astype(np.float64), is_kept)
        return float(np.percentile(scores, 100.0 * self.contamination))

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
