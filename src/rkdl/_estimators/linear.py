"""Dictionary learning on explicit features: the signals themselves, or random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass

from rkdl._estimators.learner import Learner, fit_decoder, partial_fit
from rkdl._learning.feature_choice import FeatureChoice, FourierFeatures, SignalFeatures


@dataclass(eq=False, repr=False, kw_only=True)
class DL(Learner):
    """Linear dictionary learning: every signal is a sparse combination of atoms.

    Alternates sparse coding by a greedy pursuit (OLS or OMP) with an update of the atoms.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    n_nonzero_coefs : int or None, default=4
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit with a tolerance.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual is at most this; None disables.
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
    positive_dict : bool, default=False
        Whether atoms are non-negative; with `positive_code`, this is a sparse non-negative matrix factorisation.
    coherence_max : float, default=1.0
        Bound on the absolute cosine of any two atoms, as `rkdl.metrics.mutual_coherence` measures it. After every
        update, atoms that are closer are turned apart, which makes the error larger.
    missing : {"error", "ignore"}, default="error"
        Whether NaN raises an error, or stands for a number that is not known. Codes then minimise the error of the
        known numbers, as do the atoms, and `denoise` predicts the others.
    atom_update : {"momentum", "gram", "aksvd"}, default="momentum"
        "gram" updates one atom after another from sums over the codes; "momentum" also moves each further by a share
        of its last change, and replaces those of little use in the first iterations; "aksvd" is the sweep of the paper,
        which refits codes.
    init : {"auto", "gradient", "rpcholesky", "data", "random"} or array-like, default="auto"
        Initial atoms: signals drawn by randomly pivoted Cholesky ("rpcholesky") or uniformly ("data"); Gaussian ones
        ("random"); an array of shape (n_components, n_features); or atoms learned from
        mini-batches ("gradient"), more often those that generated the signals. "auto" tries "gradient" where that takes
        at most a third of the fit, and goes on with it if it is much better; otherwise, it is "rpcholesky".
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
    half_life : float, default=None
        Number of signals after which the weight of a signal in `partial_fit` is halved; None means no forgetting.
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
    components_ : ndarray of shape (n_components, n_features)
        Atoms, of unit norm.
    computes_in_float64_ : bool
        Whether float32 signals are processed in float64, because float32 cannot resolve their residuals.
    errors_ : ndarray of shape (n_iter_,)
        Error ``|Y - Z A|_F / sqrt(m N)`` after each iteration, up to the returned model, for N signals of length m,
        coded anew; with "lasso", plus twice the penalties under the root. It may increase. Missing
        numbers have no error.
    update_errors_ : ndarray of shape (n_updates,)
        Error right after each update, with the codes that the update was computed for: what the paper reports. With
        missing numbers, it is an upper bound.
    n_iter_ : int
        Iteration that produced the returned model, the one with the smallest error.
    n_revived_ : int
        Number of unused atoms that were replaced by badly represented signals.
    n_features_in_ : int
        Number of features per signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `X` has column names that are strings.

    See Also
    --------
    sparse_encode : Codes signals with a given dictionary.
    RKDL : The nonlinear counterpart.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import DL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = DL(n_components=32, n_nonzero_coefs=4, random_state=0).fit(X)
    >>> model.transform(X).shape
    (1797, 32)
    >>> bool((model.transform(X) != 0).sum(axis=1).max() <= 4)
    True
    """

    positive_dict: bool = False
    coherence_max: float = 1.0
    missing: str = "error"
    half_life: float | None = None

    def _features(self) -> FeatureChoice:
        return SignalFeatures(self.missing == "ignore")

    partial_fit = partial_fit


@dataclass(eq=False, repr=False, kw_only=True)
class FourierDL(Learner):
    """Dictionary learning on random Fourier features of the RBF kernel.

    The kernel ``exp(-gamma |x - y|^2)`` is approximated by the inner product of random cosines and sines, and the
    dictionary is learned in their space.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    n_fourier_features : int, default=256
        Number of features: a cosine and a sine per random frequency. Odd numbers are rounded up.
    gamma : float, "median" or "scale", default="median"
        Parameter of the kernel. "median" is the inverse of the median squared distance in a sample of the signals,
        "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
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
    init : {"auto", "gradient", "rpcholesky", "data", "random"} or array-like, default="auto"
        Initial atoms: signals drawn by randomly pivoted Cholesky ("rpcholesky") or uniformly ("data"); Gaussian ones
        ("random"); an array of shape (n_components, n_fourier_features); or atoms learned from
        mini-batches ("gradient"), more often those that generated the signals. "auto" tries "gradient" where that takes
        at most a third of the fit, and goes on with it if it is much better; otherwise, it is "rpcholesky".
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
    half_life : float, default=None
        Number of signals after which the weight of a signal in `partial_fit` is halved; None means no forgetting.
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
        Seed or generator of the frequencies and the initial atoms.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_fourier_features)
        Atoms, of unit norm, in the space of the Fourier features.
    frequencies_ : ndarray of shape (n_fourier_features / 2, n_features)
        Random frequencies.
    gamma_ : float
        Value of `gamma` used.
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
        Linear map from codes, normalised in feature space, to signals, if a decoder was learned.
    decoder_intercept_ : ndarray of shape (n_features,)
        Intercept of the decoder, if one was learned.
    n_features_in_ : int
        Number of features per signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if `X` has column names that are strings.

    See Also
    --------
    RKDL : Uses kernel vectors instead of random features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import FourierDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = FourierDL(n_components=32, random_state=0).fit(X)
    >>> model.components_.shape
    (32, 256)
    """

    n_fourier_features: int = 256
    gamma: float | str = "median"
    half_life: float | None = None
    fit_inverse_transform: bool = False
    decoder_alpha: float = 1e-3

    _parts = ("components_", "frequencies_", "gamma_", "decoder_", "decoder_intercept_")

    def _features(self) -> FeatureChoice:
        return FourierFeatures("rbf", self.gamma, 1, 0.0, 2 * -(-self.n_fourier_features // 2))

    partial_fit = partial_fit
    fit_decoder = fit_decoder
