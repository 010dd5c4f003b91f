"""Regression on kernel features that were learned for the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin, _fit_context
from sklearn.metrics import r2_score
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.validation import check_consistent_length

from rkdl._applications.readouts import TaskModel
from rkdl._applications.task_learning import Task, squared_error
from rkdl._backends.arrays import host
from rkdl._estimators.fitting import check_settings, check_weights, replaced_at_once
from rkdl._estimators.task_driven import Drawn, TaskDriven, by_blocks, counted
from rkdl._execution.blas import one_blas_thread
from rkdl._features.widths import find_gamma
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Array, MatrixLike

# Weight decay of the readout counts as much as this many signals; with less it would fit the noise of the targets.
PRIOR_SIGNALS = 200.0


@dataclass(eq=False, repr=False)
class KDLRegressor(RegressorMixin, TaskDriven):
    """Regression on kernel features that are learned for the targets.

    Kernel vectors, one width per feature of the RBF kernel, and a linear readout of the kernel features are learned
    together by stochastic gradient descent on the squared error.

    Parameters
    ----------
    n_kernel_vectors : int, default=200
        Number of kernel vectors, at most 0.6 times that of the signals.
    gamma : float, "median" or "scale", default="median"
        Initial ``gamma`` of every feature; the rules are those of `RKDL`.
    device : str or torch.device, default=None
        "cuda" learns and predicts on a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads of predictions; None means as many as BLAS may use, -1 all cores.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of initial kernel vectors and batches.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    kernel_vectors_ : ndarray of shape (n_kernel_vectors, n_features)
        Learned kernel vectors.
    gammas_ : ndarray of shape (n_features,)
        Learned ``gamma`` of each feature.
    feature_relevance_ : ndarray of shape (n_features,)
        Share of each feature in the mean squared distance that the kernel sees: `gammas_` times the variances,
        divided by their sum.
    dual_coef_ : ndarray of shape (n_kernel_vectors, n_targets)
        Coefficients of the kernel values.
    intercept_ : ndarray of shape (n_targets,)
        Intercepts.
    gamma_ : float
        Value of `gamma` used.
    losses_ : ndarray of shape (n_iter_,)
        Mean loss in each pass over the signals: half the squared error, in units of the targets' variance.
    n_iter_ : int
        Number of passes.
    has_one_target_ : bool
        Whether `y` had one axis, so that predictions have one too.
    target_means_ : ndarray of shape (n_targets,)
        Means of the targets.
    target_scales_ : ndarray of shape (n_targets,)
        Their standard deviations.
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
    KDLClassifier : The same features, learned for classes.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from rkdl import KDLRegressor
    >>> X, y = make_friedman1(600, random_state=0)
    >>> model = KDLRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn kernel vectors, gammas and the readout.

        A fit that fails or is interrupted leaves the regressor unchanged.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `KDLClassifier`.
        y : array-like or tensor of shape (n_signals,) or (n_signals, n_targets)
            Targets.
        sample_weight : array-like of shape (n_signals,), default=None
            Weights of the signals. Whole numbers count as copies: 2 is the same as the signal twice, 0 as none. If any
            is not whole, or their sum is above ten million, they count relative to each other. None: all 1.

        Returns
        -------
        self : object
            The fitted regressor.
        """
        with replaced_at_once(self, self.random_state) as work, one_blas_thread():
            signals, targets, weights = work._opened(X, y, sample_weight, reset=True)
            work._set_scales(targets, weights)
            work.gamma_ = find_gamma(self.gamma, signals)
            scaled = (targets - work.target_means_) / work.target_scales_
            options = scaled, weights, check_random_state(self.random_state), "steps"
            work._set(*work._learn(signals, work.gamma_, *options), signals.dtype)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one batch of a stream.

        The first batch chooses the kernel vectors, `gamma` and the scale of the targets, unless the regressor is
        fitted: give it some hundred signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        y : array-like or tensor of shape (n_signals,) or (n_signals, n_targets)
            Targets.
        sample_weight : array-like of shape (n_signals,), default=None
            Weights of the signals, as for `fit`.

        Returns
        -------
        self : object
            The regressor.
        """
        with replaced_at_once(self, self.random_state) as work, one_blas_thread():
            is_first = "n_iter_" not in vars(work)
            if not is_first:
                check_settings(work)
            signals, targets, weights = work._opened(X, y, sample_weight, reset=is_first)
            if is_first:
                work._set_scales(targets, weights)
            work._continue(signals, (targets - work.target_means_) / work.target_scales_, weights)
        return self

    @by_blocks
    def predict(self, X: MatrixLike) -> Array:
        """Predict the targets of signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row; NaN for what is missing.

        Returns
        -------
        targets : ndarray of shape (n_signals,) or (n_signals, n_targets)
            Predictions, in the shape that `fit` was given. A lazy Dask array or a tensor if `X` is one.
        """
        found = self._read(X, TaskModel.linear)
        return found[:, 0] if self.has_one_target_ else found

    @one_blas_thread()
    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the coefficient of determination of `predict`.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row.
        y : array-like or tensor of shape (n_signals,) or (n_signals, n_targets)
            True targets.
        sample_weight : array-like of shape (n_signals,), default=None
            Weights of the signals; None means equal weights.

        Returns
        -------
        score : float
            ``1 - sum of squared errors / sum of squared deviations from the mean``.
        """
        return float(r2_score(host(y), host(self.predict(X)).astype(np.float64), sample_weight=host(sample_weight)))

    def _task(self, n_outputs: int, n_signals: int) -> Task:
        return Task(n_outputs, squared_error, decay=min(1.0, PRIOR_SIGNALS / n_signals))

    def _opened(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[Drawn, np.ndarray, np.ndarray]:
        """Signals with a positive weight, their targets (n, k) and their weights."""
        signals = self._read_signals(X, reset=reset, learns=True)
        if y is None:
            raise ValueError("KDLRegressor requires y to be passed, but the target y is None: give the targets.")
        given = check_array(well_formed(host(y), "y"), ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(range(signals.shape[0]), given)
        targets = given.reshape(len(given), -1)
        if reset:
            self.has_one_target_ = given.ndim == 1
        elif targets.shape[1] != len(self.target_means_):
            raise ValueError(f"y has {targets.shape[1]} targets, and the regressor learns {len(self.target_means_)}.")
        means = None if reset else self.feature_means_
        return counted(signals, targets, check_weights(signals, sample_weight), means)

    def _set_scales(self, targets: np.ndarray, weights: np.ndarray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self.target_means_ = np.average(targets, axis=0, weights=weights)
            deviations = np.sqrt(np.average((targets - self.target_means_) ** 2, axis=0, weights=weights))
        is_lost = (deviations == 0.0) & (targets != targets[0]).any(axis=0)
        if is_lost.any() or not np.isfinite(deviations).all():
            raise ValueError("Squares of the targets leave the range of float64: scale y to numbers near one.")
        self.target_scales_ = np.where(deviations > 0.0, deviations, 1.0)

    def _target_units(self) -> tuple[np.ndarray, np.ndarray]:
        return self.target_means_, self.target_scales_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
