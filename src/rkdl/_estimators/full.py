"""Full kernel dictionary learning: atoms on all training signals."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import validate_data

from rkdl._backends.arrays import host, is_tensor
from rkdl._data.open import gather
from rkdl._data.signals import Signals
from rkdl._estimators.base import check_has_signals
from rkdl._estimators.learner import KernelLearner
from rkdl._learning.feature_choice import EverySignal, FeatureChoice
from rkdl._learning.full import is_training_matrix
from rkdl._learning.specification import Specification
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import FLOATS, MatrixLike


class KDL(KernelLearner):
    """Kernel dictionary learning (KDL): atoms are combinations of all training signals in feature space.

    Its cost is quadratic in the number of signals, and a fitted model includes the training signals. `RKDL` and `ORKDL`
    avoid both.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    kernel : {"rbf", "poly", "linear", "precomputed"}, Kernel or callable, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``(gamma x'y + coef0)^degree``, ``x'y``, a kernel from `rkdl.kernels`, or a function
        of two matrices that returns their kernel matrix.
        With "precomputed", X is the kernel matrix in `fit`, and kernel values with the training signals after it;
        errors, and codes with `residual_tol`, need k(x, x), which is known for the training signals only.
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; a `Kernel` has its own. "median" is the inverse of the median squared distance in
        a sample of the signals, "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly".
    n_nonzero_coefs : int or None, default=4
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit with a tolerance.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual in feature space is at most this; None disables.
    rtol : float, default=None
        Stop coding a signal when the norm of its residual is at most `rtol` times its own; None disables.
    pursuit : {"ols", "omp", "lasso"}, default="ols"
        Sparse coding: orthogonal least squares, orthogonal matching pursuit as in the paper, or the minimum over codes
        z of half the squared residual plus ``alpha |z|_1 + l2 |z|^2 / 2``, found exactly up to rounding.
    alpha : float, default=0.1
        Penalty of "lasso", in the units of inner products of signals with atoms of unit norm: above their largest
        magnitude, all codes are zero. Only "lasso" has penalties; it uses neither `n_nonzero_coefs` nor tolerances.
    l2 : float, default=0.0
        Second penalty of "lasso", which makes it the elastic net.
    positive_code : bool, default=False
        Whether codes are non-negative. Greedy pursuits then choose among atoms of positive correlation, and codes are
        non-negative least squares on their support.
    atom_update : {"momentum", "gram", "aksvd"}, default="momentum"
        "gram" updates one atom after another from sums over the codes; "momentum" also moves each further by a share
        of its last change, and replaces those of little use in the first iterations; "aksvd" is the sweep of the paper,
        which refits codes.
    init : {"auto", "rpcholesky", "data", "random"} or array-like, default="auto"
        Initial atoms: signals drawn by randomly pivoted Cholesky ("rpcholesky", the same as "auto") or uniformly
        ("data"); Gaussian combinations of the signals ("random"); or those of an array (n_components, n_signals).
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
    fit_inverse_transform : bool, default=False
        Whether to learn a decoder from codes to signals in one more pass over the data, for `inverse_transform`.
    decoder_alpha : float, default=0.001
        Ridge penalty of the decoder, relative to the mean energy of the codes per direction of feature space.
    sparse_output : bool, default=False
        Whether `transform` returns a CSR array.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads; None means as many as BLAS may use, -1 all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of the initial atoms.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    dual_components_ : ndarray of shape (n_components, n_signals)
        Atoms as linear combinations of the training signals, of unit norm in feature space.
    kernel_vectors_ : ndarray of shape (n_signals, n_features)
        Training signals; not set with "precomputed".
    gram_ : ndarray of shape (n_components, n_components)
        Inner products of the atoms in feature space.
    gamma_ : float
        Value of `gamma` used; for a `Kernel`, its own gamma or the one its rule found, 1.0 if it has neither.
    computes_in_float64_ : bool
        Whether float32 signals are processed in float64, because float32 cannot resolve their residuals.
    errors_ : ndarray of shape (n_iter_,)
        Error ``sqrt(f / (m N))`` after each iteration up to the returned model: f is the squared error in feature space
        of N signals of length m, with "lasso" plus twice the penalties. It may increase.
    update_errors_ : ndarray of shape (n_updates,)
        Error right after each update, with the codes that the update was computed for: what the paper reports.
    n_iter_ : int
        Iteration that produced the returned model, the one with the smallest error.
    n_revived_ : int
        Number of unused atoms that were replaced by badly represented signals.
    decoder_ : ndarray of shape (n_components, n_features)
        Linear map from codes (with "rbf", normalised in feature space) to signals, if a decoder was learned.
    decoder_intercept_ : ndarray of shape (n_features,)
        Intercept of the decoder, if one was learned.
    n_features_in_ : int
        Number of features per signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `X` has column names that are strings.

    See Also
    --------
    RKDL : Atoms on a few kernel vectors.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import KDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = KDL(n_components=20, random_state=0).fit(X)
    >>> model.dual_components_.shape
    (20, 1797)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelLearner._parameter_constraints,
        "kernel": [StrOptions({"rbf", "poly", "linear", "precomputed"}), callable],
        "init": [StrOptions({"auto", "rpcholesky", "data", "random"}), "array-like"],
    }

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _features(self) -> FeatureChoice:
        return EverySignal(self.kernel, self.gamma, self.degree, self.coef0)

    def _specification(self) -> Specification:
        check_has_signals(is_precomputed=self._is_precomputed and self.fit_inverse_transform)
        return super()._specification()

    def _read_signals(self, X: MatrixLike, *, reset: bool) -> Signals:
        if reset and self.device is None and not is_tensor(X):
            # All signals are needed together.
            X = gather(X)
        if not self._is_precomputed:
            return super()._read_signals(X, reset=reset)
        if is_tensor(X) or self.device is not None:
            found = super()._read_signals(X, reset=reset)
            found.check_finite()
            return found
        X = validate_data(self, well_formed(X), dtype=FLOATS, reset=reset)
        return Signals(X, X.dtype)

    def _given_norms(self, signals: Signals, *, for_residuals: bool = False) -> dict[str, np.ndarray]:
        has_tolerance = self.residual_tol is not None or self.rtol is not None
        if not self._is_precomputed or not (has_tolerance or for_residuals):
            return {}
        # Norms are on the diagonal of the kernel matrix of the training signals.
        kernel: np.ndarray = host(signals.data)
        if not is_training_matrix(kernel):
            raise ValueError(
                "Residuals, and codes with residual_tol or rtol, need k(x, x), which kernel='precomputed' gives for "
                "the training signals alone, in their square kernel matrix: for other signals give the kernel by name "
                "or as a function, or set n_nonzero_coefs alone."
            )
        return {"squared_norms": np.maximum(kernel.diagonal(), 0.0).astype(signals.dtype, copy=False)}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        tags.input_tags.sparse = not self._is_precomputed
        return tags
