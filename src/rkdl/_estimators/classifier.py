"""Classification by kernel features, and dictionaries on them, that were learned for the labels."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from rkdl._applications.readouts import PRIOR, TaskModel, mix_readouts
from rkdl._applications.task_learning import Task, TaskLearning, cross_entropy, smoothed
from rkdl._backends.arrays import host, is_tensor
from rkdl._backends.base import backend_of
from rkdl._backends.devices import to_device, to_host
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encoder import Pursuit
from rkdl._data.signals import Signals
from rkdl._estimators.fitting import check_settings, check_weights, replaced_at_once, with_one_model
from rkdl._estimators.task_driven import Drawn, Scaling, TaskDriven, by_blocks, counted
from rkdl._execution.blas import one_blas_thread
from rkdl._features.kernels import RBF
from rkdl._features.maps import KernelMap
from rkdl._features.widths import find_gamma
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Array, MatrixLike

# Share of the signals that is held out to weight the readouts, and their largest number.
HELD_OUT, MOST_HELD_OUT = 0.2, 2000
# Dtypes of labels that tensors can have, as NumPy's kinds and sizes.
TENSOR_LABELS = ("b1", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")


@dataclass(eq=False, repr=False)
class KDLClassifier(ClassifierMixin, TaskDriven):
    """Classifier on kernel features that are learned for the labels.

    Kernel vectors, and one width per feature of the RBF kernel, are learned by stochastic gradient descent on the
    cross-entropy of two readouts of the kernel features: a linear one, and what the dictionary of each class explains
    of a signal, which is one minus its residual. Held-out signals then determine the weights of the readouts, which
    also calibrates the probabilities, and the rest is learned again from all signals. The linear readout tends to be
    better on noisy tables, the dictionaries on data without noise on curved manifolds, such as images.

    Parameters
    ----------
    n_components : int, default=8
        Number of atoms per class.
    n_nonzero_coefs : int, default=3
        Number of nonzero coefficients of a signal in the dictionary of each class, at most.
    class_weight : dict or "balanced", default=None
        Weights of the classes, by label; "balanced" gives all classes the same total weight. None means equal
        weights of the signals.
    n_kernel_vectors : int, default=200
        Number of kernel vectors, at most 0.6 times that of the signals.
    gamma : float, "median" or "scale", default="median"
        Initial ``gamma`` of every feature; the rules are those of `RKDL`.
    device : str or torch.device, default=None
        "cuda" learns and predicts on a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads of predictions; None means as many as BLAS may use, -1 all cores.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of initial kernel vectors and atoms, held-out signals and batches.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes.
    kernel_vectors_ : ndarray of shape (n_kernel_vectors, n_features)
        Learned kernel vectors.
    gammas_ : ndarray of shape (n_features,)
        Learned ``gamma`` of each feature.
    feature_relevance_ : ndarray of shape (n_features,)
        Share of each feature in the mean squared distance that the kernel sees: `gammas_` times the variances,
        divided by their sum.
    dual_coef_ : ndarray of shape (n_kernel_vectors, n_classes)
        Coefficients of the kernel values in the linear readout.
    intercept_ : ndarray of shape (n_classes,)
        Its intercepts.
    components_ : ndarray of shape (n_classes, n_components, n_kernel_vectors)
        Atoms of each class, combinations of the kernel vectors with unit norm in feature space.
    grams_ : ndarray of shape (n_classes, n_components, n_components)
        Inner products of the atoms of each class in feature space.
    readout_weights_ : ndarray of shape (2,)
        Weights of the linear readout and of the explained energies in the scores.
    sharpness_ : float
        Learned factor of the explained energies.
    gamma_ : float
        Value of `gamma` used.
    losses_ : ndarray of shape (n_iter_,)
        Mean of both cross-entropies in each pass over the signals.
    n_iter_ : int
        Number of passes.
    n_nonzero_coefs_ : int
        Number of nonzero coefficients used.
    feature_means_ : ndarray of shape (n_features,)
        Means of the features.
    feature_variances_ : ndarray of shape (n_features,)
        Variances of the features; a missing value is taken to be normally distributed about its mean.
    n_features_in_ : int
        Number of features per signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `X` has column names that are strings.

    See Also
    --------
    KDLRegressor : The same features, learned for numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import KDLClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KDLClassifier(random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.97)
    True
    """

    n_components: int = 8
    _: KW_ONLY
    n_nonzero_coefs: int = 3
    class_weight: dict | str | None = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **TaskDriven._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_nonzero_coefs": [Interval(Integral, 1, None, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn kernel vectors, gammas and both readouts.

        A fit that fails or is interrupted leaves the classifier unchanged.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, whose order does not matter. Memory maps, Zarr arrays, HDF5 datasets and anything
            else with ``shape``, ``dtype`` and row slices are read batch by batch, Dask arrays into memory; torch
            tensors are processed where they are.
        y : array-like or tensor of shape (n_signals,)
            Class labels: numbers or strings.
        sample_weight : array-like of shape (n_signals,), default=None
            Weights of the signals. Whole numbers count as copies: 2 is the same as the signal twice, 0 as none. If any
            is not whole, or their sum is above ten million, they count relative to each other. None: all 1.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        with replaced_at_once(self, self.random_state) as work, one_blas_thread():
            work.__dict__.pop("classes_", None)
            signals, labels, weights = work._opened(X, y, sample_weight, reset=True)
            work.gamma_ = find_gamma(self.gamma, signals)
            work._fit(signals, labels, weights, check_random_state(self.random_state))
        return self

    def _fit(self, signals: Drawn, labels: np.ndarray, weights: np.ndarray, rng: np.random.RandomState) -> None:
        """Learn from a part and weight the readouts by the rest; then learn from all, unless the rest is large."""
        held_out = self._hold_out(labels, rng)
        targets = smoothed(labels, len(self.classes_), np.dtype(np.float32))
        kept, rest = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        options = self.gamma_, targets[kept], weights[kept], rng, "to weight the readouts"
        self._set(*self._learn(signals.part(kept), *options), signals.dtype)
        self.readout_weights_ = np.full(2, PRIOR)
        if len(rest):
            readouts = self._readouts(signals.subset(rest))
            self.readout_weights_ = mix_readouts(readouts, labels[rest], weights[rest])
        if len(rest) and HELD_OUT * len(labels) < MOST_HELD_OUT:
            self._set(*self._learn(signals, self.gamma_, targets, weights, rng, "of all signals"), signals.dtype)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from one batch of a stream.

        The first batch chooses the kernel vectors and `gamma`, unless the classifier is fitted: give it some hundred
        signals of all classes. Every batch updates the weights of the readouts before they learn from it.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        y : array-like or tensor of shape (n_signals,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            Labels of all classes, which the first call needs.
        sample_weight : array-like of shape (n_signals,), default=None
            Weights of the signals, as for `fit`.

        Returns
        -------
        self : object
            The classifier.
        """
        with replaced_at_once(self, self.random_state) as work, one_blas_thread():
            is_first = _check_partial_fit_first_call(work, host(classes))
            if not is_first:
                check_settings(work)
            signals, labels, weights = work._opened(X, y, sample_weight, reset=is_first)
            if is_first:
                work.readout_weights_ = np.full(2, PRIOR)
            else:
                found = mix_readouts(work._readouts(signals), labels, weights)
                work.readout_weights_ = work.readout_weights_ + (found - work.readout_weights_) / (work.n_iter_ + 1)
            targets = smoothed(labels, len(work.classes_), np.dtype(np.float32))
            work._continue(signals, targets, weights)
        return self

    @by_blocks
    def predict(self, X: MatrixLike) -> Array:
        """Predict the class of each signal.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        labels : ndarray of shape (n_signals,)
            Predicted labels. A lazy Dask array if `X` is one; a tensor if it is one and the labels are numbers of a
            dtype that tensors have.
        """
        best = self._scores(X).argmax(1)
        kind = self.classes_.dtype
        if not is_tensor(X) or kind.str[1:] not in TENSOR_LABELS:
            return self.classes_[host(best)]
        return to_device(self.classes_.astype(kind.newbyteorder("=")), X.device)[best]

    @by_blocks
    def decision_function(self, X: MatrixLike) -> Array:
        """Compute scores of the classes, the logits of their probabilities.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        scores : ndarray of shape (n_signals, n_classes) or (n_signals,)
            Both readouts, weighted. With two classes, the score of the second minus that of the first. A tensor if `X`
            is one.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    @by_blocks
    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Compute logarithms of class probabilities, as `predict_proba`.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        logarithms : ndarray of shape (n_signals, n_classes)
            Logarithms of the probabilities. A lazy Dask array or a tensor if `X` is one.
        """
        scores = self._scores(X)
        return backend_of(scores).log_softmax(scores)

    @by_blocks
    def predict_proba(self, X: MatrixLike) -> Array:
        """Compute class probabilities, calibrated on held-out signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        probabilities : ndarray of shape (n_signals, n_classes)
            Softmax of the scores. A lazy Dask array or a tensor if `X` is one.
        """
        logs = self.predict_log_proba(X)
        return backend_of(logs).exp(logs)

    @by_blocks
    def class_residuals(self, X: MatrixLike) -> Array:
        """Compute what the dictionary of each class leaves of the signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        residuals : ndarray of shape (n_signals, n_classes)
            Squared residuals in feature space, where signals have norm one: 0 for a signal that the dictionary
            represents exactly, 1 for one that it does not represent at all. A lazy Dask array or a tensor if `X` is
            one.
        """
        return 1.0 - self._read(X, TaskModel.explained)

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

        The signal whose image comes closest to the atom or to its negative, found by a fixed-point iteration.

        Returns
        -------
        signals : list of n_classes ndarrays of shape (n_components, n_features)
            Pre-images, one per row, in the units of the training signals, in the order of `classes_`.
        """
        model = self._model(self.components_.dtype, None)
        feature_map, pursuit = KernelMap(RBF(1.0), model.vectors), Pursuit(1)
        parts = zip(model.atoms, model.grams, strict=True)
        found = [FittedDictionary(feature_map, own, pursuit, gram).preimages(n_jobs=self.n_jobs) for own, gram in parts]
        return [own / model.scales + model.centre for own in found]

    def _task(self, n_outputs: int, n_signals: int) -> Task:
        return Task(n_outputs, cross_entropy, self.n_components, min(self.n_nonzero_coefs, self.n_components))

    def _opened(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[Drawn, np.ndarray, np.ndarray]:
        """Signals with a positive weight, the numbers of their classes, and their weights; sets unknown classes."""
        given = self._read_signals(X, reset=reset, learns=True)
        weights = check_weights(given, sample_weight)
        means = None if reset else self.feature_means_
        signals, labels, weights = counted(given, self._read_labels(y, weights), weights, means)
        if self.class_weight is not None:
            present = np.unique(labels)
            found = compute_class_weight(
                self.class_weight, classes=self.classes_[present], y=self.classes_[labels], sample_weight=weights
            )
            weights = check_weights(signals, weights * found[np.searchsorted(present, labels)])
            rows = np.flatnonzero(weights)
            signals, labels, weights = signals.part(rows), labels[rows], weights[rows]
        return signals, labels, weights

    def _read_labels(self, y: ArrayLike, weights: np.ndarray) -> np.ndarray:
        """The number of the class of each signal of positive weight; the classes are set if they are not known."""
        if y is None:
            raise ValueError(
                "KDLClassifier requires y to be passed, but the target y is None: give the label of every signal."
            )
        given: np.ndarray = column_or_1d(well_formed(host(y), "y"), warn=True)
        assert_all_finite(given, input_name="y")
        try:
            known, labels = np.unique(given, return_inverse=True)
        except TypeError as error:
            raise ValueError("The labels in y cannot be sorted: make them all numbers or all strings.") from error
        check_classification_targets(given)
        check_consistent_length(weights, given)
        known = known[np.bincount(labels, weights > 0.0) > 0.0]
        self.classes_ = vars(self).get("classes_", known)
        if len(self.classes_) < 2:
            raise ValueError(
                f"KDLClassifier needs at least two classes, and y contains one class, "
                f"{self.classes_.tolist()[0]!r}: add signals of another, or use RKDL's reconstruction_error to score "
                f"signals by one class."
            )
        unknown = np.setdiff1d(known, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y holds {unknown.tolist()[0]!r}, none of the classes: give all of them in the first call."
            )
        return np.searchsorted(self.classes_, given)

    def _hold_out(self, labels: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Mask of the held-out signals: a share of each class, at least one, never its only one."""
        share = min(HELD_OUT, MOST_HELD_OUT / len(labels))
        held_out = np.zeros(len(labels), dtype=bool)
        for k in range(len(self.classes_)):
            rows = rng.permutation(np.flatnonzero(labels == k))
            held_out[rows[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
        return held_out

    def _readouts(self, signals: Signals) -> tuple[np.ndarray, np.ndarray]:
        """Both readouts of signals, in NumPy."""
        rows = signals.read(0, signals.shape[0])
        model = self._model(signals.dtype, signals.device)
        values = model.kernel_values(rows)
        linear, explained = to_host((model.linear(values), model.explained(values)))
        return linear, explained * self.sharpness_

    def _scores(self, X: MatrixLike) -> Array:
        linear, explained = (float(weight) for weight in self.readout_weights_ * [1.0, self.sharpness_])

        def read(model: TaskModel, values: Array) -> Array:
            return model.linear(values) * linear + model.explained(values) * explained

        return self._read(X, read)

    def _set(self, learning: TaskLearning, scaling: Scaling, losses: np.ndarray, dtype: np.dtype) -> None:
        super()._set(learning, scaling, losses, dtype)
        self.sharpness_ = learning.sharpness
