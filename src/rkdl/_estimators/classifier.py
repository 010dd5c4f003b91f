"""Classification by the dictionary that represents a signal best."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from rkdl._applications.class_dictionaries import (
    ClassCoder,
    SharedFeatures,
    class_scores,
    relative_residuals,
    shared_features,
)
from rkdl._applications.class_learning import ClassLearning, LearnedClasses
from rkdl._applications.refinement import probabilities
from rkdl._backends.arrays import cast, host, is_tensor, stacked
from rkdl._backends.base import backend_of
from rkdl._backends.devices import placed, to_device
from rkdl._coding.dictionary import FittedDictionary
from rkdl._data.signals import Signals
from rkdl._estimators.class_methods import METHODS, shared_method
from rkdl._estimators.fitting import constant, freeze, made_once, read_signals, replaced_at_once, with_one_model
from rkdl._estimators.learner import Learner, specify
from rkdl._estimators.saving import save
from rkdl._execution.blas import one_blas_thread
from rkdl._learning.learn import Report
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Array, Device, MatrixLike
from rkdl._utils.warnings import warn

# Fitted attributes that the dictionaries are made of.
PARTS = ("components_", "grams_", "n_atoms_", "kernel_vectors_", "gamma_", "n_nonzero_coefs_", "method_")
# More held-out signals than this do not improve the calibration of one number.
LARGEST_CALIBRATION = 2000
# Dtypes of labels that tensors can have, as NumPy's kinds and sizes.
TENSOR_LABELS = ("b1", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
# Warn if, for most of at least FEW signals, the probabilities of all classes differ by less than EQUAL.
FEW, EQUAL, MOST = 5, 1e-3, 0.9


@dataclass(eq=False, repr=False)
class KDLClassifier(ClassifierMixin, BaseEstimator):
    """Classifier with one dictionary per class on shared kernel vectors.

    A signal is assigned to the class whose dictionary leaves the smallest residual in feature space. The kernel vectors
    (or Fourier features) are chosen or learned from all classes together, as `estimator` says, whose other settings
    apply to the dictionary of each class. Passes of stochastic gradient descent then adapt the atoms to discriminate
    between the classes.

    Parameters
    ----------
    estimator : {"DL", "FourierDL", "KDL", "RKDL", "ORKDL", "MORKDL"} or estimator, default="RKDL"
        Method that learns the dictionaries; `n_components` is the number of atoms per class, at most that of its
        signals. ORKDL and MORKDL learn their kernel vectors from all signals first, with one dictionary; KDL becomes
        RKDL with every signal as a kernel vector. A name stands for 64 atoms per class, 5 nonzero coefficients, 10
        iterations and 300 random kernel vectors (ORKDL and MORKDL: 100; FourierDL: 600 Fourier features).
    n_refinements : int, default=2
        Number of passes that then minimise the cross-entropy of the softmax of the residuals; 0 skips them.
    learning_rate : float, default=0.02
        Step size of these passes, relative to a least-squares step. It decreases to zero.
    calibration_size : float, default=0.1
        Fraction of the signals held out to calibrate the probabilities: at most 2,000, and at least one per class of
        two or more. If it is not cut to 2,000, the dictionaries are then learned again from all signals.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads, instead of that of `estimator`; None means as many as BLAS may use, -1 all cores.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of kernel vectors, initial atoms, held-out signals and batches; None: that of `estimator`.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes.
    components_ : ndarray of shape (n_classes, n_atoms, n_coordinates)
        Atoms of each class, of unit norm in feature space: signals for DL, Fourier features for FourierDL, linear
        combinations of the kernel vectors otherwise. The last rows of a class may be zeros.
    n_atoms_ : ndarray of shape (n_classes,)
        Number of atoms per class.
    grams_ : ndarray of shape (n_classes, n_atoms, n_atoms)
        Inner products of the atoms of each class in feature space.
    kernel_vectors_ : ndarray of shape (n_kernel_vectors, n_features)
        Kernel vectors that the classes share; the frequencies for FourierDL, None for DL.
    gamma_ : float
        Value of `gamma` used; None for DL.
    computes_in_float64_ : bool
        Whether float32 signals are processed in float64, because float32 cannot resolve their residuals.
    sharpness_ : float
        Factor of the relative residuals in `predict_proba`, calibrated on held-out signals.
    method_ : estimator
        Method with the settings used; RKDL for KDL.
    errors_ : ndarray of shape (n_iter_,)
        Error ``sqrt(f / (m N))`` after each iteration, up to the returned dictionaries: f is the squared error in
        feature space of N signals of length m, each coded with the dictionary of its class.
    n_nonzero_coefs_ : int
        Maximum number of nonzero coefficients used: that of the method, but at most half the rank of the features.
    losses_ : ndarray of shape (n_refinements,)
        Mean cross-entropy per pass of the refinement.
    n_iter_ : int
        Iteration that produced the returned dictionaries, those with the smallest error.
    n_features_in_ : int
        Number of features per signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `X` has column names that are strings.

    See Also
    --------
    RKDL : The default method underneath.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import RKDL, KDLClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> method = RKDL(n_components=50, n_kernel_vectors=200, kernel_vectors="random", max_iter=5)
    >>> model = KDLClassifier(method, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.97)
    True
    """

    estimator: str | Learner = "RKDL"
    _: KW_ONLY
    n_refinements: int = 2
    learning_rate: float = 0.02
    calibration_size: float = 0.1
    device: Device = None
    n_jobs: int | None = None
    random_state: RandomState | int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Learner._parameter_constraints,
        "estimator": [StrOptions(set(METHODS)), HasMethods(["fit", "transform"])],
        "n_refinements": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "calibration_size": [Interval(Real, 0, 1, closed="neither")],
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Learn one dictionary per class.

        After Ctrl-C, which raises KeyboardInterrupt as usual, the classifier holds what it has learned so far. A fit
        that fails, or is interrupted before the first iteration of the classes' dictionaries is complete, leaves the
        classifier unchanged.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row. Memory maps, Zarr arrays, HDF5 datasets and anything else with ``shape``, ``dtype``
            and row slices are read chunk by chunk; torch tensors are processed where they are.
        y : array-like or tensor of shape (n_signals,)
            Class labels: numbers or strings.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        with replaced_at_once(self) as work, one_blas_thread():
            is_interrupted = work._fit(X, y)
        if is_interrupted:
            raise KeyboardInterrupt(
                f"{type(self).__name__} was interrupted, and holds what it learned in {self.n_iter_} iterations and "
                f"{len(self.losses_)} passes of the refinement."
            )
        return self

    @with_one_model
    def predict(self, X: MatrixLike) -> Array:
        """Predict the class of each signal: the one whose dictionary leaves the smallest residual.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row.

        Returns
        -------
        labels : ndarray of shape (n_signals,)
            Predicted labels. Ties, as for signals so far from all kernel vectors that the kernel underflows, go to the
            first class. A tensor if `X` is one and the labels are numbers of a dtype that tensors have; an array
            otherwise.
        """
        best = class_scores(*self._open(X), self.n_jobs).argmax(1)
        kind = self.classes_.dtype
        if not is_tensor(X) or kind.str[1:] not in TENSOR_LABELS:
            return self.classes_[host(best)]
        classes = to_device(self.classes_.astype(kind.newbyteorder("=")), X.device)
        return classes[to_device(best, X.device)]

    @with_one_model
    def decision_function(self, X: MatrixLike) -> Array:
        """Compute how well the dictionary of each class represents the signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row.

        Returns
        -------
        scores : ndarray of shape (n_signals, n_classes) or (n_signals,)
            Minus the squared residual relative to the squared norm of the signal, in feature space. With two classes,
            the score of the second minus that of the first. A tensor if `X` is one.
        """
        if len(self.classes_) > 2:
            return -self.class_residuals(X)
        signals, coder = self._open(X)
        scores = class_scores(signals, coder, self.n_jobs)
        return _returned(cast(scores[:, 1] - scores[:, 0], signals.dtype), X)

    @with_one_model
    def class_residuals(self, X: MatrixLike) -> Array:
        """Compute what the dictionary of each class leaves of the signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row.

        Returns
        -------
        residuals : ndarray of shape (n_signals, n_classes)
            Squared residuals relative to the squared norms of the signals, in feature space: 0 for a signal that the
            dictionary represents exactly, 1 for one that it does not represent at all. A tensor if `X` is one.
        """
        return _returned(relative_residuals(*self._open(X), self.n_jobs), X)

    @with_one_model
    def predict_proba(self, X: MatrixLike) -> Array:
        """Compute class probabilities, calibrated on held-out signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row.

        Returns
        -------
        probabilities : ndarray of shape (n_signals, n_classes)
            ``softmax(-sharpness_ * residuals)``, with the relative squared residuals of `decision_function`. A tensor
            if `X` is one.
        """
        residuals = relative_residuals(*self._open(X), self.n_jobs)
        found = backend_of(residuals).as_like(probabilities(residuals, self.sharpness_), residuals)
        _warn_if_equal(residuals, found, "signals")
        return _returned(found, X)

    @one_blas_thread()
    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the fraction of signals that are classified correctly.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row.
        y : array-like or tensor of shape (n_signals,)
            True labels.
        sample_weight : array-like of shape (n_signals,), default=None
            Weights of the signals; None means equal weights.

        Returns
        -------
        score : float
            Accuracy of `predict`.
        """
        return float(accuracy_score(host(y), host(self.predict(X)), sample_weight=host(sample_weight)))

    @with_one_model
    def atom_preimages(self) -> list[np.ndarray]:
        """Compute a signal for each atom of each class, to look at: its pre-image.

        For the RBF kernel, the signal whose image comes closest to the atom or to its negative, found by a fixed-point
        iteration. For DL and the linear kernel, the atoms. FourierDL and other kernels have none.

        Returns
        -------
        signals : list of n_classes ndarrays of shape (n_atoms_[k], n_features)
            Pre-images, one per row, in the units of the training signals, in the order of `classes_`.
        """
        dictionaries, _ = made_once(self, PARTS, (), self._assemble)
        if dictionaries[0].find_decoder(dictionaries[0].atoms.dtype) is None:
            raise ValueError(
                f"The atoms of {self.method_!r} have no pre-images here: they are known for DL, the kernels 'rbf' and "
                f"'linear'. For another kernel, fit its method with fit_inverse_transform=True on the signals of a "
                f"class."
            )
        return [dictionary.preimages(n_jobs=self.n_jobs) for dictionary in dictionaries]

    save = save

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the parameters, with `deep` also those of the method, even if it is given by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parameters of the method as ``estimator__<name>``.

        Returns
        -------
        params : dict
            Parameters by name.
        """
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.estimator, str) and self.estimator in METHODS:
            own = METHODS[self.estimator].get_params()
            params.update((f"estimator__{name}", value) for name, value in own.items())
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including those of the method as ``estimator__<name>``.

        If the method is given by name, setting one of its parameters replaces the name by the method it stands for.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self : object
            The classifier.
        """
        method = params.get("estimator", self.estimator)
        if isinstance(method, str) and method in METHODS and any(key.startswith("estimator__") for key in params):
            params = {**params, "estimator": clone(METHODS[method])}
        super().set_params(**params)
        return self

    def _fit(self, X: MatrixLike, y: ArrayLike) -> bool:
        """Set the fitted attributes; returns whether Ctrl-C ended the learning."""
        signals = self._read_signals(X, reset=True)
        labels = self._read_labels(signals.shape[0], y)
        method = shared_method(self.estimator, signals.shape[0])
        seed = self.random_state if self.random_state is not None else method.random_state
        rng = check_random_state(seed)
        method.set_params(n_jobs=self.n_jobs, verbose=max(self.verbose, method.verbose))
        specification, report = specify(method), Report(type(method).__name__, method.verbose)
        with shared_features(specification, signals, rng, report, method.n_jobs) as (executor, features):
            if features.feature_map.size < 2:
                warn(
                    "The signals have one coordinate in feature space, so every class represents all of them: use a "
                    "kernel, or more features."
                )
            held_out = self._hold_out(labels, rng)
            seeds = rng.randint(np.iinfo(np.int32).max, size=2)
            is_small = self.calibration_size * len(labels) <= LARGEST_CALIBRATION
            options = self.n_refinements, self.learning_rate, report._replace(name=type(self).__name__)
            learning = ClassLearning(specification, executor, features, labels, held_out, *options)
            learned, is_interrupted = learning.run(seeds, learns_again=is_small and bool(held_out.any()))
            dtype = executor.signals.dtype
        self.method_ = clone(method)
        self.computes_in_float64_ = dtype != executor.signals.result_dtype
        self._store(features, learned, dtype)
        if learned.residuals is not None:
            chances = probabilities(learned.residuals, learned.sharpness)
            _warn_if_equal(learned.residuals, chances, "held-out signals")
        return is_interrupted

    def _read_signals(self, X: MatrixLike, *, reset: bool) -> Signals:
        signals = read_signals(self, X, reset=reset, device=self.device, prefers_arrays=True)
        if signals.is_remote:
            raise ValueError(
                "KDLClassifier does not take Dask arrays: learn from an array, a memory map or any source of row "
                "slices, and classify the chunks of a Dask array with map_blocks."
            )
        return signals

    def _read_labels(self, n_signals: int, y: ArrayLike) -> np.ndarray:
        """Set the classes; returns the index of the class of each signal."""
        if y is None:
            raise ValueError(
                "KDLClassifier requires y to be passed, but the target y is None: give the label of every signal."
            )
        given: np.ndarray = column_or_1d(well_formed(host(y), "y"), warn=True)
        assert_all_finite(given, input_name="y")
        try:
            self.classes_, labels = np.unique(given, return_inverse=True)
        except TypeError as error:
            raise ValueError("The labels of y have no common order: make them all numbers or all strings.") from error
        check_classification_targets(given)
        check_consistent_length(range(n_signals), given)
        if len(self.classes_) < 2:
            raise ValueError(
                f"KDLClassifier compares the dictionaries of at least two classes, and y holds one class, "
                f"{self.classes_.tolist()[0]!r}: add signals of another, or use RKDL's reconstruction_error to score "
                f"signals by one class."
            )
        return labels

    def _hold_out(self, labels: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Mask of the signals held out for calibration: a fraction of each class, at least one, never the last."""
        share = min(self.calibration_size, LARGEST_CALIBRATION / len(labels))
        held_out = np.zeros(len(labels), dtype=bool)
        for k in range(len(self.classes_)):
            rows = rng.permutation(np.flatnonzero(labels == k))
            held_out[rows[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
        return held_out

    def _store(self, features: SharedFeatures, learned: LearnedClasses, dtype: np.dtype) -> None:
        """Set the fitted attributes."""
        whitened = learned.whitened_atoms
        self.components_ = stacked([features.metric.unwhiten(own) for own in whitened]).astype(dtype)
        self.grams_ = stacked([own @ own.T for own in whitened]).astype(dtype)
        self.n_atoms_ = np.array([len(own) for own in whitened])
        self.n_nonzero_coefs_ = features.pursuit.n_nonzero
        self.kernel_vectors_, self.gamma_ = features.vectors, features.gamma
        self.sharpness_ = learned.sharpness
        self.errors_, self.losses_ = learned.errors, np.array(learned.losses)
        self.n_iter_ = len(learned.errors)
        freeze(self, PARTS)

    def _open(self, X: MatrixLike) -> tuple[Signals, ClassCoder]:
        """Signals, and what codes them in all classes."""
        signals = self._read_signals(X, reset=False)
        if getattr(self, "computes_in_float64_", False):
            signals = signals.with_dtype(np.dtype(np.float64))
        dictionaries, coders = made_once(self, PARTS, (), self._assemble)
        if dictionaries[0].runs_user_code:
            signals.check_finite()
        dtype, device = signals.dtype, signals.device
        if (dtype, device) not in coders:
            atoms = [own.atoms.astype(dtype) for own in dictionaries]
            grams = [np.asarray(own.gram, dtype=dtype) for own in dictionaries]
            feature_map, pursuit = dictionaries[0].feature_map.as_dtype(dtype), dictionaries[0].pursuit
            coders[dtype, device] = placed(ClassCoder.of(feature_map, atoms, grams, pursuit), device)
        return signals, coders[dtype, device]

    def _assemble(self) -> tuple[list[FittedDictionary], dict[tuple[np.dtype, Device], ClassCoder]]:
        """The fitted dictionary of each class, and room for what codes signals with them."""
        specification = specify(self.method_)
        vectors = None if self.kernel_vectors_ is None else constant(self.kernel_vectors_)
        feature_map = specification.features.fitted_map(self.n_features_in_, vectors, self.gamma_)
        pursuit = specification.pursuit._replace(n_nonzero=self.n_nonzero_coefs_)
        parts = zip(constant(self.components_), constant(self.grams_), self.n_atoms_, strict=True)
        return [FittedDictionary(feature_map, own[:n], pursuit, gram[:n, :n]) for own, gram, n in parts], {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        freeze(self, PARTS)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _returned(result: Array, X: MatrixLike) -> Array:
    """A result as a tensor on the device of `X`, if that is one."""
    return to_device(result, X.device) if is_tensor(X) else result


def _warn_if_equal(residuals: Array, found: Array, which: str) -> None:
    """Warn if nearly all probabilities are equal, unless there are very few signals."""
    if len(found) < FEW or not _are_equal(found):
        return
    if not _are_equal(residuals):
        seen = "residuals did not tell the classes of the held-out signals in fit"
        remedy = "the signals are too few, or not informative about their classes: try other features or settings"
    elif float(np.median(host(residuals))) > 0.5:
        seen = "the dictionary of every class leaves every signal unrepresented"
        remedy = "gamma is too large, or these signals lie far from those of fit: scale both alike, use gamma='median'"
    else:
        seen = "the dictionary of every class represents every signal"
        remedy = "the classes overlap, gamma is too small, or there are too many non-zeros: lower n_nonzero_coefs"
    warn(
        f"KDLClassifier: for {MOST:.0%} or more of {len(found)} {which} all classes are equally probable, to within "
        f"{EQUAL:g}, since {seen}. Probably {remedy}."
    )


def _are_equal(values: Array) -> bool:
    """Whether the columns are equal in most rows; a few signals close to a kernel vector differ whatever gamma is."""
    # Counted where the values are: few numbers leave a device.
    return int((abs(values - values[:, :1]) >= EQUAL).any(1).sum()) <= (1.0 - MOST) * len(values)
