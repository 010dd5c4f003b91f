"""Classification by the dictionary that represents a signal best."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

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
    LANES,
    ClassCoder,
    ClassDictionaries,
    ClassProblem,
    Picked,
    Residuals,
    SharedFeatures,
    pad_atoms,
    relative_residuals,
    shared_features,
)
from rkdl._applications.refinement import Refinement, fit_sharpness, probabilities
from rkdl._backends.arrays import host, is_tensor
from rkdl._backends.base import backend_of
from rkdl._backends.devices import to_device
from rkdl._coding.encoder import Pursuit
from rkdl._estimators.class_methods import METHODS, named_method, shared_method
from rkdl._estimators.fitting import (
    as_fitted,
    constant,
    doc_link_template,
    freeze,
    made_once,
    read_signals,
    replaced_at_once,
)
from rkdl._estimators.learner import Learner, specify
from rkdl._estimators.saving import save
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import Executor
from rkdl._learning.atom_updates import ATOM_UPDATES
from rkdl._learning.learn import Report
from rkdl._learning.loop import alternate, progress
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

    _doc_link_module, _doc_link_template = "rkdl", doc_link_template
    _parameter_constraints: dict = {
        "estimator": [StrOptions(set(METHODS)), HasMethods(["fit", "transform"])],
        "n_refinements": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "calibration_size": [Interval(Real, 0, 1, closed="neither")],
        "device": "no_validation",
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator: str | Learner = "RKDL",
        *,
        n_refinements: int = 2,
        learning_rate: float = 0.02,
        calibration_size: float = 0.1,
        device: Device = None,
        n_jobs: int | None = None,
        random_state: RandomState | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_refinements = n_refinements
        self.learning_rate = learning_rate
        self.calibration_size = calibration_size
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Learn one dictionary per class.

        After Ctrl-C, which raises KeyboardInterrupt as usual, the classifier holds what it has learned so far, and the
        message of the exception says how far that is. A fit that fails, or is interrupted before the first iteration of
        the classes' dictionaries is complete, leaves the classifier unchanged.

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
            interruption, message = work._fit(X, y)
        if interruption is not None:
            raise KeyboardInterrupt(f"{type(self).__name__} was interrupted {interruption}.")
        if message is not None:
            warn(message)
        return self

    @one_blas_thread()
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
        model = as_fitted(self)
        residuals, faint, shares = model._residuals(X)
        best = residuals.argmin(1)
        if len(faint):
            best[faint] = shares.argmax(1)
        kind = model.classes_.dtype
        if not is_tensor(X) or kind.str[1:] not in TENSOR_LABELS:
            return model.classes_[host(best)]
        classes = to_device(model.classes_.astype(kind.newbyteorder("=")), X.device)
        return classes[to_device(best, X.device)]

    @one_blas_thread()
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
        model = as_fitted(self)
        residuals, faint, shares = model._residuals(X)
        if len(model.classes_) > 2:
            return _returned(-residuals, X)
        scores = residuals[:, 0] - residuals[:, 1]
        if len(faint):
            scores[faint] = backend_of(scores).as_like(shares[:, 1] - shares[:, 0], scores)
        return _returned(scores, X)

    @one_blas_thread()
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
        return _returned(as_fitted(self)._residuals(X).relative, X)

    @one_blas_thread()
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
        model = as_fitted(self)
        residuals = model._residuals(X).relative
        found = backend_of(residuals).as_like(probabilities(residuals, model.sharpness_), residuals)
        message = _complaint(residuals, found, "signals", model.method_)
        if message is not None:
            warn(message)
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

    @one_blas_thread()
    def atom_preimages(self) -> list[np.ndarray]:
        """Compute a signal for each atom of each class, to look at: its pre-image.

        For the RBF kernel, the signal whose image comes closest to the atom or to its negative, found by a fixed-point
        iteration. For DL and the linear kernel, the atoms. FourierDL and other kernels have none.

        Returns
        -------
        signals : list of n_classes ndarrays of shape (n_atoms_[k], n_features)
            Pre-images, one per row, in the units of the training signals, in the order of `classes_`.
        """
        model = as_fitted(self)
        found = []
        for number in range(len(model.classes_)):
            dictionary = model._dictionaries().of_class(number)
            if dictionary.find_decoder(dictionary.atoms.dtype) is None:
                raise ValueError(
                    f"The atoms of {model.method_!r} have no pre-images here: they are known for DL, the kernels 'rbf' "
                    f"and 'linear'. For another kernel, fit its method with fit_inverse_transform=True on the signals "
                    f"of a class."
                )
            found.append(dictionary.preimages(n_jobs=self.n_jobs))
        return found

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
            own = named_method(self.estimator).get_params()
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
        name = params.get("estimator", self.estimator)
        is_named = isinstance(name, str) and name in METHODS
        if is_named and any(key.startswith("estimator__") for key in params):
            params = {**params, "estimator": named_method(name)}
        own = super().get_params(deep=False)
        of_method = named_method(name).get_params() if is_named else getattr(name, "get_params", dict)()
        for key in params:
            if key not in own and key in of_method:
                raise ValueError(
                    f"Invalid parameter {key!r} for estimator {self}: it is a parameter of the method that learns the "
                    f"dictionaries. Set estimator__{key} instead."
                )
        super().set_params(**params)
        return self

    def _fit(self, X: Any, y: Any) -> tuple[str | None, str | None]:
        """Set the fitted attributes; returns where Ctrl-C ended the learning, and a warning about the probabilities."""
        signals = read_signals(self, X, reset=True, device=self.device, prefers_arrays=True)
        if signals.is_remote:
            raise ValueError(
                "KDLClassifier does not learn from Dask arrays: give it an array, a memory map or any source of row "
                "slices, or fit one of the other estimators on the cluster."
            )
        labels = self._read_labels(signals.shape[0], y)
        method = shared_method(self.estimator, signals.shape[0])
        seed = self.random_state if self.random_state is not None else method.random_state
        rng = check_random_state(seed)
        method.set_params(n_jobs=self.n_jobs, verbose=max(self.verbose, method.verbose))
        report = Report(type(method).__name__, method.verbose)
        with shared_features(specify(method), signals, rng, report, method.n_jobs) as (executor, features):
            if features.feature_map.size < 2:
                warn(
                    "The signals have one coordinate in feature space, so every class represents all of them: use a "
                    "kernel, or more features."
                )
            held_out = self._hold_out(labels, rng)
            seeds = rng.randint(np.iinfo(np.int32).max, size=2)
            work = _Work(method, executor, features, held_out, labels)
            learned = self._learn(work, np.where(held_out, -1, labels), seeds[0])
            is_small = self.calibration_size * len(labels) <= LARGEST_CALIBRATION
            if is_small and held_out.any() and work.interruption is None:
                learned = self._learn_again(work, seeds[1], learned)
            self._store(work, learned)
        return work.interruption, learned.message

    def _read_labels(self, n_signals: int, y: Any) -> np.ndarray:
        """Set the classes; returns the index of the class of each signal."""
        if y is None:
            raise ValueError(
                "KDLClassifier requires y to be passed, but the target y is None: give the label of every signal."
            )
        y = column_or_1d(well_formed(host(y), "y"), warn=True)
        assert_all_finite(y, input_name="y")
        kinds = sorted({type(label).__name__ for label in y}) if y.dtype == object else []
        try:
            self.classes_, labels = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise ValueError(
                f"The labels of y are of types that have no common order, {' and '.join(kinds)}: make them all numbers "
                f"or all strings."
            ) from error
        check_classification_targets(y)
        check_consistent_length(range(n_signals), y)
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

    def _learn(self, work: _Work, labels: np.ndarray, seed: int, before: _Learned | None = None) -> _Learned:
        """Dictionaries learned from the signals with nonnegative labels, calibrated unless `before` already was."""
        method, executor, signals = work.method, work.executor, work.executor.signals
        rng = check_random_state(seed)
        problem = ClassProblem(
            executor,
            work.features.feature_map,
            [np.flatnonzero(labels == k) for k in range(len(self.classes_))],
            method.n_components,
            work.features.pursuit,
            rng,
            init=str(method.init),
            atom_update=ATOM_UPDATES[method.atom_update],
        )
        with ExitStack() as stack:
            for own in problem.problems:
                stack.enter_context(own.executor)
            history, is_interrupted = alternate(
                problem,
                max_iter=method.max_iter,
                tol=method.tol,
                n_numbers=int((labels >= 0).sum()) * signals.shape[1],
                verbose=method.verbose,
                name=type(self).__name__,
            )
        if is_interrupted:
            work.interruption = (
                f"after {len(history)} of {method.max_iter} iterations and holds what it learned in them"
            )
        atoms = [host(own.model.whitened_atoms) for own in problem.problems]
        learned = _Learned(atoms, [own.pursuit for own in problem.problems], history.returned_errors, [])
        del problem
        learned.sharpness = self._calibrate(work, learned) if before is None else before.sharpness
        if self.n_refinements and work.interruption is None:
            self._refine(work, learned, labels, rng)
        learned.calibrated = self._calibrate(work, learned) if before is None else before.calibrated
        learned.message = learned.message if before is None else before.message
        return learned

    def _refine(self, work: _Work, learned: _Learned, labels: np.ndarray, rng: np.random.RandomState) -> None:
        """Discriminative passes over the data; Ctrl-C ends them with what was learned so far."""
        share = 1.0 / self.n_refinements
        with progress(self.n_refinements, work.method.verbose, f"{type(self).__name__}: refinement") as bar:
            refinement = None
            try:
                refinement = Refinement(
                    work.executor,
                    labels,
                    work.features.feature_map,
                    learned.whitened_atoms,
                    learned.pursuits,
                    sharpness=learned.sharpness,
                    learning_rate=self.learning_rate,
                    rng=rng,
                )
                for number in range(self.n_refinements):
                    learned.losses.append(refinement.run_pass(1.0 - number * share, share))
                    if bar is not None:
                        bar.set_postfix_str(f"cross-entropy {learned.losses[-1]:.4f}", refresh=False)
                        bar.update()
            except KeyboardInterrupt:
                passes = f"{len(learned.losses)} of {self.n_refinements} passes of the refinement"
                work.interruption = f"after {passes} and holds what it learned until then"
        if refinement is not None:
            learned.whitened_atoms = refinement.whitened_atoms

    def _calibrate(self, work: _Work, learned: _Learned) -> float:
        """The factor of the residuals in the softmax, fitted to the held-out signals."""
        rows = np.flatnonzero(work.held_out)
        if rows.size == 0:
            return fit_sharpness(np.empty((0, len(self.classes_))), work.labels[rows])
        dtype = work.executor.signals.dtype
        atoms = [pad_atoms(whitened.astype(dtype)) for whitened in learned.whitened_atoms]
        coder = ClassCoder(work.features.feature_map, atoms, [own @ own.T for own in atoms], learned.pursuits)
        try:
            found = relative_residuals(Picked(work.executor.signals, rows), coder, self.n_jobs)
            residuals = host(found.relative)
        except KeyboardInterrupt:
            work.interruption = "while it calibrated its probabilities, so predict_proba may be off"
            rows, residuals = rows[:0], np.empty((0, len(self.classes_)))
        sharpness = fit_sharpness(residuals, work.labels[rows])
        chances = probabilities(residuals, sharpness)
        learned.message = _complaint(residuals, chances, "held-out signals", work.method)
        return sharpness

    def _learn_again(self, work: _Work, seed: int, before: _Learned) -> _Learned:
        """Dictionaries learned from all signals, including those held out."""
        try:
            again = self._learn(work, work.labels, seed, before)
            is_complete = work.interruption is None
        except KeyboardInterrupt:
            is_complete = False
        if is_complete:
            return again
        # Complete dictionaries of fewer signals are better than incomplete ones of all.
        work.interruption = "while it learned from all signals; it holds what it learned without the held-out ones"
        return before

    def _store(self, work: _Work, learned: _Learned) -> None:
        """Set the fitted attributes."""
        features, signals = work.features, work.executor.signals
        counts = [len(whitened) for whitened in learned.whitened_atoms]
        height = max(counts) + -max(counts) % LANES
        atoms = [features.metric.unwhiten(whitened) for whitened in learned.whitened_atoms]
        self.components_ = np.zeros((len(counts), height, atoms[0].shape[1]), dtype=signals.dtype)
        self.grams_ = np.zeros((len(counts), height, height), dtype=signals.dtype)
        for k, (count, own, whitened) in enumerate(zip(counts, atoms, learned.whitened_atoms, strict=True)):
            self.components_[k, :count] = own
            self.grams_[k, :count, :count] = whitened @ whitened.T
        self.n_atoms_ = np.array(counts)
        self.n_nonzero_coefs_ = features.pursuit.n_nonzero
        self.kernel_vectors_, self.gamma_ = features.vectors, features.gamma
        self.method_ = clone(work.method)
        self.sharpness_ = learned.calibrated
        self.errors_ = learned.errors
        self.losses_ = np.array(learned.losses)
        self.n_iter_ = len(learned.errors)
        freeze(self, PARTS)

    def _residuals(self, X: Any) -> Residuals:
        """Residuals of signals in all classes, as arrays or, of signals on a device, as tensors."""
        signals = read_signals(self, X, reset=False, device=self.device, prefers_arrays=True)
        if signals.is_remote:
            raise ValueError("KDLClassifier does not take Dask arrays: give it their chunks, with map_blocks.")
        if specify(self.method_).features.runs_user_code:
            signals.check_finite()
        return relative_residuals(signals, self._dictionaries().coder(signals.dtype, signals.device), self.n_jobs)

    def _dictionaries(self) -> ClassDictionaries:
        """The fitted dictionaries."""
        return made_once(self, PARTS, (), self._assemble)

    def _assemble(self) -> ClassDictionaries:
        method, vectors = self.method_, self.kernel_vectors_
        vectors = None if vectors is None else constant(vectors)
        feature_map = specify(method).features.fitted_map(self.n_features_in_, vectors, self.gamma_)
        tolerance = -1.0 if method.residual_tol is None else method.residual_tol
        pursuit = Pursuit(self.n_nonzero_coefs_, tolerance, method.pursuit == "ols")
        parts = constant(self.components_), constant(self.grams_), constant(self.n_atoms_)
        return ClassDictionaries(feature_map, *parts, pursuit)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        freeze(self, PARTS)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _returned(result: Array, X: Any) -> Array:
    """A result as a tensor on the device of `X`, if that is one."""
    return to_device(result, X.device) if is_tensor(X) else result


@dataclass
class _Learned:
    """Result of one round of learning: whitened atoms per class, errors and losses."""

    whitened_atoms: list[np.ndarray]
    pursuits: list[Pursuit]
    errors: np.ndarray
    losses: list[float]
    # Factors of the residuals before the refinement and after it.
    sharpness: float = 1.0
    calibrated: float = 1.0
    # A warning about the probabilities of the held-out signals.
    message: str | None = None


@dataclass
class _Work:
    """What the steps of a fit share."""

    method: Learner
    executor: Executor
    features: SharedFeatures
    held_out: np.ndarray
    labels: np.ndarray
    # Where Ctrl-C ended the learning.
    interruption: str | None = None


def _complaint(residuals: Array, found: Array, which: str, method: Any) -> str | None:
    """A warning if nearly all probabilities are equal; None otherwise, or for very few signals."""
    if len(found) < FEW or _differ(found):
        return None
    residuals, found = host(residuals), host(found)
    # Not of all signals: those close to a kernel vector are classified whatever gamma is.
    if float(np.quantile(np.ptp(found, axis=1), MOST)) >= EQUAL:
        return None
    if float(np.quantile(np.ptp(residuals, axis=1), MOST)) >= EQUAL:
        seen = "residuals did not tell the classes of the held-out signals in fit"
        remedy = "the signals are too few, or not informative about their classes: try other features or settings"
    elif float(np.median(residuals)) > 0.5:
        seen = "the dictionary of every class leaves every signal unrepresented"
        remedy = (
            "gamma is too large, or these signals lie far from those of fit: use gamma='median', and scale both alike"
        )
    else:
        seen = "the dictionary of every class represents every signal"
        if not hasattr(method, "gamma"):
            remedy = (
                "there are too many non-zeros for linear dictionaries to differ: lower n_nonzero_coefs, or use RKDL"
            )
        elif isinstance(method.gamma, str):
            remedy = (
                "the classes overlap, or their dictionaries are too flexible to differ: lower n_nonzero_coefs, or set "
                "gamma to several times gamma_"
            )
        else:
            remedy = "gamma is too small by orders of magnitude: use gamma='median'"
    return (
        f"KDLClassifier: for {MOST:.0%} or more of {len(found)} {which} all classes are equally probable, to within "
        f"{EQUAL:g}, since {seen}. Probably {remedy}."
    )


def _differ(found: Array) -> bool:
    """Whether probabilities differ from that of the first class for so many signals that there is nothing to warn of.

    Found where the probabilities are, so that those of a device are brought to the host only for a warning.
    """
    n_telling = int((abs(found - found[:, :1]) >= EQUAL).any(1).sum())
    return n_telling >= (1.0 - MOST) * len(found) + 2
