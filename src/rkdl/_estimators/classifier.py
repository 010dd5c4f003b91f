"""Classification by the dictionary that represents a signal best."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.random import RandomState
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, check_is_fitted, column_or_1d

from rkdl._applications.class_dictionaries import (
    FAINT,
    LANES,
    ClassCoder,
    ClassProblem,
    Picked,
    SharedFeatures,
    pad_atoms,
    relative_residuals,
)
from rkdl._applications.refinement import Refinement, fit_sharpness, probabilities
from rkdl._backends.arrays import host
from rkdl._coding.encoder import Pursuit
from rkdl._estimators.base import DictionaryLearner, read_signals
from rkdl._estimators.class_methods import METHODS, named_method, shared_method
from rkdl._estimators.saving import Saved
from rkdl._execution.executor import Executor
from rkdl._learning.loop import alternate, progress
from rkdl._utils.inputs import well_formed
from rkdl._utils.warnings import warn

# More signals than this tell no more about one number.
LARGEST_CALIBRATION = 2000
# Probabilities that differ by less than this, of most of at least so many signals, say nothing.
FEW, EQUAL, MOST = 5, 1e-3, 0.9


class KDLClassifier(Saved, ClassifierMixin, BaseEstimator):
    """Classifier with a dictionary for every class on shared kernel vectors.

    A signal belongs to the class whose dictionary leaves the smallest residual of it in feature space. The kernel
    vectors (or random features) are those of all classes together, chosen or learned as `estimator` says; its other
    settings are those of every class's dictionary. `n_refinements` passes over the signals then move the atoms to
    tell the classes apart.

    Parameters
    ----------
    estimator : {"DL", "FourierDL", "KDL", "RKDL", "ORKDL", "MORKDL"} or estimator, default="RKDL"
        The method underneath. An estimator of rkdl says all of its settings: `n_components` is the number of atoms
        of a class, and a class with fewer signals has as many atoms as signals. ORKDL and MORKDL learn their kernel
        vectors from all signals, with one dictionary, before the classes get theirs. KDL, for a few thousand signals,
        is RKDL with every signal for a kernel vector. A name stands for that estimator
        with 64 atoms a class, 5 non-zeros, 10 iterations, and 300 random kernel vectors (100 that are learned, 600
        Fourier features).
    n_refinements : int, default=2
        Passes that lower the cross-entropy of the residuals' softmax, after every class was learned by itself; 0 for
        dictionaries that represent and nothing else.
    learning_rate : float, default=0.02
        Step of these passes, as a share of the step that least squares would make. It falls to zero.
    calibration_size : float, default=0.1
        Share of the signals (2,000 of them at most) that is held out to calibrate the probabilities, and at least one
        of a class that has two. Where that is no more than 2,000 (of up to 20,000 signals, by default) the dictionaries
        are learned once more from all of them.
    n_jobs : int, default=None
        Threads; None for as many as BLAS may use, -1 for all cores. Never changes the result. It takes the place of the
        method's own.
    random_state : int, RandomState instance or None, default=None
        Randomness of the kernel vectors, first atoms, held-out signals and batches. None takes that of `estimator`.
    verbose : int, default=0
        A progress bar if positive.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    components_ : ndarray of shape (n_classes, n_atoms, n_coordinates)
        Atoms of every class, of unit norm in feature space: signals for DL, rows of Fourier features for FourierDL,
        combinations of the kernel vectors for the others. The last rows of a class may be zeros.
    n_atoms_ : ndarray of shape (n_classes,)
        How many atoms each class has.
    grams_ : ndarray of shape (n_classes, n_atoms, n_atoms)
        Inner products of the atoms of every class in feature space.
    kernel_vectors_ : ndarray of shape (n_kernel_vectors, n_features)
        The shared kernel vectors; the frequencies for FourierDL, and None for DL.
    gamma_ : float
        `gamma` as used; None for DL.
    sharpness_ : float
        What relative residuals are multiplied by for `predict_proba`, calibrated on held-out signals.
    method_ : estimator
        The method underneath, its settings as used; RKDL for KDL.
    errors_ : ndarray of shape (n_iter_,)
        ``sqrt(f / (m N))`` after every iteration up to that of the returned dictionaries, f the squared error of all
        signals in feature space, each coded with the dictionary of its class.
    n_nonzero_coefs_ : int
        Most non-zeros of a code: `n_nonzero_coefs` of the method, and no more than half the rank of the features, since
        as many atoms as coordinates represent the signals of all classes.
    losses_ : ndarray of shape (n_refinements,)
        Mean cross-entropy over each pass of the refinement.
    n_iter_ : int
        Iteration that ended with the returned dictionaries, the best that were met.
    n_features_in_ : int
        Length of a signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had string names.

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

    _parameter_constraints: dict = {
        "estimator": [StrOptions(set(METHODS)), HasMethods(["fit", "transform"])],
        "n_refinements": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "calibration_size": [Interval(Real, 0, 1, closed="neither")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator: str | DictionaryLearner = "RKDL",
        *,
        n_refinements: int = 2,
        learning_rate: float = 0.02,
        calibration_size: float = 0.1,
        n_jobs: int | None = None,
        random_state: RandomState | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_refinements = n_refinements
        self.learning_rate = learning_rate
        self.calibration_size = calibration_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def get_params(self, deep=True):
        """Parameters, and with `deep` those of the method underneath, also where it is given by its name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to add the method's parameters as ``estimator__<name>``.

        Returns
        -------
        params : dict
            Names and values.
        """
        params = super().get_params(deep=deep)
        if deep and isinstance(self.estimator, str) and self.estimator in METHODS:
            own = named_method(self.estimator).get_params()
            params.update((f"estimator__{name}", value) for name, value in own.items())
        return params

    def set_params(self, **params):
        """Set parameters, among them those of the method underneath, as ``estimator__<name>``.

        A method that is given by its name becomes the estimator that the name stands for when one of its parameters is
        set.

        Parameters
        ----------
        **params : dict
            Names and values.

        Returns
        -------
        self : object
            The classifier.
        """
        name = params.get("estimator", self.estimator)
        is_named = isinstance(name, str) and name in METHODS
        if is_named and any(key.startswith("estimator__") for key in params):
            params = {**params, "estimator": named_method(name)}
        return super().set_params(**params)

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y):
        """Learn a dictionary for every class.

        Ctrl-C raises KeyboardInterrupt as everywhere, so a search or a script ends; the classifier then holds what it
        had learned, and the exception's message says how far that was. A fit that fails, or is interrupted before the
        first iteration of the classes' dictionaries is complete, leaves the classifier as it was.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            One signal a row. Anything with ``shape``, ``dtype`` and row slices (a memory map, a Zarr array, an HDF5
            dataset) is read chunk by chunk.
        y : array-like of shape (n_signals,)
            Labels of any kind that scikit-learn takes.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        before = dict(vars(self))
        try:
            interruption, message = self._fit(X, y)
        except BaseException:
            # A fit that fails leaves what an earlier one learned.
            vars(self).clear()
            vars(self).update(before)
            raise
        if interruption is not None:
            raise KeyboardInterrupt(f"{type(self).__name__} was interrupted {interruption}.")
        if message is not None:
            warn(message)
        return self

    def _fit(self, X: Any, y: Any) -> tuple[str | None, str | None]:
        """Set the fitted attributes; where Ctrl-C ended the learning, and what is to be said of the probabilities."""
        signals = read_signals(self, host(X), reset=True)
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
        with method._executor(signals) as executor:
            features = method._share_features(executor, rng)
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

    def _learn_again(self, work: _Work, seed: int, before: _Learned) -> _Learned:
        """Dictionaries from all signals, the held-out ones among them."""
        try:
            again = self._learn(work, work.labels, seed, before)
            is_complete = work.interruption is None
        except KeyboardInterrupt:
            is_complete = False
        if is_complete:
            return again
        # What was learned from fewer signals to the end is better than what was begun from all.
        work.interruption = "while it learned from all signals; it holds what it learned without the held-out ones"
        return before

    def _read_labels(self, n_signals: int, y: Any) -> np.ndarray:
        """Numbers of the classes."""
        if y is None:
            raise ValueError(
                "KDLClassifier requires y to be passed, but the target y is None: give every signal's label."
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
        """Whether each signal is kept for the calibration: a share of every class, at least one, never its last."""
        share = min(self.calibration_size, LARGEST_CALIBRATION / len(labels))
        held_out = np.zeros(len(labels), dtype=bool)
        for k in range(len(self.classes_)):
            rows = rng.permutation(np.flatnonzero(labels == k))
            held_out[rows[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
        return held_out

    def _learn(self, work: _Work, labels: np.ndarray, seed: int, before: _Learned | None = None) -> _Learned:
        """Dictionaries from the signals whose label is not negative; how sharp they are is known where `before` is."""
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
            refit=method.atom_update == "aksvd",
        )
        with problem:
            history, is_interrupted = alternate(
                problem,
                max_iter=method.max_iter,
                tol=method.tol,
                n_numbers=int((labels >= 0).sum()) * signals.shape[1],
                unit=work.features.unit,
                verbose=method.verbose,
                name=type(self).__name__,
            )
        if is_interrupted:
            work.interruption = (
                f"after {len(history)} of {method.max_iter} iterations and holds what it learned in them"
            )
        learned = _Learned(problem.whites, problem.pursuits, history.returned_errors, [])
        del problem
        learned.sharpness = self._calibrate(work, learned) if before is None else before.sharpness
        if self.n_refinements and work.interruption is None:
            self._refine(work, learned, labels, rng)
        learned.calibrated = self._calibrate(work, learned) if before is None else before.calibrated
        learned.message = learned.message if before is None else before.message
        return learned

    def _refine(self, work: _Work, learned: _Learned, labels: np.ndarray, rng: np.random.RandomState) -> None:
        """Passes that tell the classes apart; Ctrl-C ends them with what was learned so far."""
        share = 1.0 / self.n_refinements
        with progress(self.n_refinements, work.method.verbose, f"{type(self).__name__}: refinement") as bar:
            try:
                refinement = Refinement(
                    work.executor.signals,
                    labels,
                    work.features.feature_map,
                    learned.whites,
                    learned.pursuits,
                    sharpness=learned.sharpness,
                    learning_rate=self.learning_rate,
                    rng=rng,
                    n_jobs=self.n_jobs,
                )
                # The same list, so that every step is kept.
                learned.whites = refinement.whites
                for number in range(self.n_refinements):
                    learned.losses.append(refinement.run_pass(1.0 - number * share, share))
                    if bar is not None:
                        bar.set_postfix_str(f"cross-entropy {learned.losses[-1]:.4f}", refresh=False)
                        bar.update()
            except KeyboardInterrupt:
                passes = f"{len(learned.losses)} of {self.n_refinements} passes of the refinement"
                work.interruption = f"after {passes} and holds what it learned until then"

    def _calibrate(self, work: _Work, learned: _Learned) -> float:
        """How sharply residuals tell the classes apart, by the signals that were held out."""
        rows = np.flatnonzero(work.held_out)
        if rows.size == 0:
            return fit_sharpness(np.empty((0, len(self.classes_))), work.labels[rows])
        dtype = work.executor.signals.dtype
        atoms = [pad_atoms(white.astype(dtype)) for white in learned.whites]
        coder = ClassCoder(work.features.feature_map, atoms, [own @ own.T for own in atoms], learned.pursuits)
        try:
            residuals, _ = relative_residuals(Picked(work.executor.signals, rows), coder, self.n_jobs)
        except KeyboardInterrupt:
            work.interruption = "while it calibrated its probabilities, so predict_proba may be off"
            rows, residuals = rows[:0], np.empty((0, len(self.classes_)))
        sharpness = fit_sharpness(residuals, work.labels[rows])
        found = probabilities(residuals, sharpness)
        learned.message = _complaint(residuals, found, "held-out signals", hasattr(work.method, "gamma"))
        return sharpness

    def _store(self, work: _Work, learned: _Learned) -> None:
        """The fitted attributes."""
        features, signals = work.features, work.executor.signals
        counts = [len(white) for white in learned.whites]
        height = max(counts) + -max(counts) % LANES
        atoms = [features.components(white) for white in learned.whites]
        self.components_ = np.zeros((len(counts), height, atoms[0].shape[1]), dtype=signals.dtype)
        self.grams_ = np.zeros((len(counts), height, height), dtype=signals.dtype)
        for k, (count, own, white) in enumerate(zip(counts, atoms, learned.whites, strict=True)):
            self.components_[k, :count] = own
            self.grams_[k, :count, :count] = white @ white.T
        self.n_atoms_ = np.array(counts)
        self.n_nonzero_coefs_ = features.pursuit.n_nonzero
        self.kernel_vectors_, self.gamma_ = features.space.vectors, features.space.gamma
        self.method_ = clone(work.method)
        self.sharpness_ = learned.calibrated
        self.errors_ = learned.errors
        self.losses_ = np.array(learned.losses)
        self.n_iter_ = len(learned.errors)

    def predict(self, X):
        """Labels of signals: the class whose dictionary leaves the smallest residual.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            One signal a row.

        Returns
        -------
        labels : ndarray of shape (n_signals,)
            Labels of `classes_`; of classes that represent a signal equally well, the first. So it is for a signal so
            far from all kernel vectors that the kernel is zero in the dtype.
        """
        residuals, shares = self._residuals(X)
        is_faint = (shares < FAINT).all(axis=1)
        return self.classes_[np.where(is_faint, shares.argmax(axis=1), residuals.argmin(axis=1))]

    def decision_function(self, X):
        """How well the dictionaries represent signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            One signal a row.

        Returns
        -------
        scores : ndarray of shape (n_signals, n_classes) or (n_signals,)
            Minus the squared residual over the signal's squared norm, in feature space; of two classes the score of
            the second less that of the first.
        """
        residuals, shares = self._residuals(X)
        if len(self.classes_) > 2:
            return -residuals
        is_faint = (shares < FAINT).all(axis=1)
        scores = np.where(is_faint, shares[:, 1] - shares[:, 0], residuals[:, 0] - residuals[:, 1])
        return scores.astype(residuals.dtype)

    def predict_proba(self, X):
        """Probabilities of the classes, calibrated on held-out signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            One signal a row.

        Returns
        -------
        probabilities : ndarray of shape (n_signals, n_classes)
            ``softmax(-sharpness_ * residuals)``, the residuals as in `decision_function`.
        """
        residuals, _ = self._residuals(X)
        found = probabilities(residuals, self.sharpness_).astype(residuals.dtype)
        message = _complaint(residuals, found, "signals", self.gamma_ is not None)
        if message is not None:
            warn(message)
        return found

    def _residuals(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Relative squared residuals (n_signals, n_classes), and what they leave of one."""
        check_is_fitted(self)
        signals = read_signals(self, host(X), reset=False)
        if signals.is_remote:
            raise ValueError("KDLClassifier does not take Dask arrays: give it their chunks, with map_blocks.")
        method = self.method_
        space = method._space_on(self.n_features_in_, self.kernel_vectors_, self.gamma_)
        if space.is_user_function:
            signals.check_finite()
        scale = signals.scale = space.scale(signals.dtype)
        unit, length = space.feature_scale(scale), space.atom_scale(scale)
        tolerance = -1.0 if method.residual_tol is None else method.residual_tol * unit * unit
        pursuit = Pursuit(self.n_nonzero_coefs_, tolerance, method.pursuit == "ols")
        atoms, grams, pursuits = [], [], []
        for own, gram, count in zip(self.components_, self.grams_, self.n_atoms_, strict=True):
            height = count + -count % LANES
            atoms.append((own[:height] / length).astype(signals.dtype, copy=False))
            # A copy, since a model that was mapped from a file is read-only and the pursuit takes no such arrays.
            grams.append(np.array(gram[:height, :height], dtype=signals.dtype, order="C"))
            pursuits.append(pursuit._replace(n_nonzero=min(pursuit.n_nonzero, int(count))))
        coder = ClassCoder(space.feature_map(signals.dtype, scale), atoms, grams, pursuits)
        return relative_residuals(signals, coder, self.n_jobs)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass
class _Learned:
    """What a round of learning found: atoms in the features' coordinates, and how it went there."""

    whites: list[np.ndarray]
    pursuits: list[Pursuit]
    errors: np.ndarray
    losses: list[float]
    # Before the refinement and after it.
    sharpness: float = 1.0
    calibrated: float = 1.0
    # What is to be said of the probabilities of the held-out signals.
    message: str | None = None


@dataclass
class _Work:
    """What a fit works on."""

    method: DictionaryLearner
    executor: Executor
    features: SharedFeatures
    held_out: np.ndarray
    labels: np.ndarray
    # How far the learning came, where Ctrl-C ended it.
    interruption: str | None = None


def _complaint(residuals: np.ndarray, found: np.ndarray, which: str, has_kernel: bool) -> str | None:
    """What to tell the user of probabilities that are nearly all equal; None of others, or of very few."""
    # A signal that is a kernel vector, or nearly, is told apart whatever gamma is.
    if len(found) < FEW or float(np.quantile(np.ptp(found, axis=1), MOST)) >= EQUAL:
        return None
    if float(np.quantile(np.ptp(residuals, axis=1), MOST)) >= EQUAL:
        seen = "residuals did not tell the classes of the held-out signals in fit"
        remedy = "the signals say little of their classes, or they are too few: try other features, or settings"
    elif float(np.median(residuals)) > 0.5:
        seen = "the dictionary of every class leaves every signal unrepresented"
        remedy = (
            "gamma is too large, or these signals lie far from those of fit: leave it at 'median', scale both alike"
        )
    else:
        seen = "the dictionary of every class represents every signal"
        remedy = "gamma is too small by orders of magnitude: leave it at 'median'"
        if not has_kernel:
            remedy = (
                "there are too many non-zeros for linear dictionaries to differ: lower n_nonzero_coefs, or use RKDL"
            )
    return (
        f"KDLClassifier: for {MOST:.0%} or more of {len(found)} {which} all classes are equally probable, to within "
        f"{EQUAL:g}, since {seen}. Probably {remedy}."
    )
