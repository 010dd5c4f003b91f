"""Reduced kernel dictionary learning: atoms on a few kernel vectors."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from rkdl._estimators.kernel import KernelLearner
from rkdl._estimators.learner import partial_fit


@dataclass(eq=False, repr=False, kw_only=True)
class RKDL(KernelLearner):
    """Reduced kernel dictionary learning (RKDL-D): atoms are combinations of a few fixed kernel vectors.

    With p kernel vectors the kernel matrix is p x p instead of N x N.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    kernel : {"rbf", "poly", "linear"}, Kernel or callable, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``(gamma x'y + coef0)^degree``, ``x'y``, a kernel from `rkdl.kernels`, or a function
        of two matrices that returns their kernel matrix (or of two rows that returns a number: slow).
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; a `Kernel` has its own. "median" is the inverse of the median squared distance in
        a sample of the signals, "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly".
    n_kernel_vectors : int, default=50
        Number of kernel vectors.
    kernel_vectors : {"dictionary", "random", "kmeans", "rpcholesky"} or array-like, default="kmeans"
        Kernel vectors: a linear dictionary of the signals, as in the paper, scaled to their root-mean-square norm;
        signals drawn at random (Nystrom sampling); cluster centres; signals drawn by randomly pivoted Cholesky; or an
        array of shape (n_kernel_vectors, n_features), which also gives their number.
    n_nonzero_coefs : int or None, default=4
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit if `residual_tol` is set.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual in feature space is at most this; None disables.
    pursuit : {"ols", "omp"}, default="ols"
        Greedy sparse coding: orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        "gram" uses the sufficient statistics of the codes; "aksvd" is the sweep of the paper, which also refits codes.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_kernel_vectors), default="rpcholesky"
        Initial atoms: signals drawn by randomly pivoted Cholesky, or uniformly; Gaussian combinations of the kernel
        vectors; an array gives the combinations.
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
    half_life : float, default=None
        Number of signals after which the weight of a signal in `partial_fit` is halved; None means that it stays. With
        a half-life, signals replace kernel vectors that the atoms can do without, unless the kernel is a function.
    fit_inverse_transform : bool, default=False
        Whether to learn a decoder from codes to signals in one more pass over the data. Without it, `inverse_transform`
        and `denoise` are exact with "linear", iterative (slower) with "rbf", and need `fit_decoder` with other kernels.
    decoder_alpha : float, default=0.001
        Ridge penalty of the decoder, relative to the mean energy of the codes per direction of feature space.
    sparse_output : bool, default=False
        Whether `transform` returns a CSR array.
    device : str or torch.device, default=None
        "cuda" streams arrays through a GPU; None computes where the signals are, on a tensor's device or in NumPy.
    n_jobs : int, default=None
        Number of threads; None means as many as BLAS may use, -1 all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of the kernel vectors and the initial atoms.
    verbose : int, default=0
        Show a progress bar if positive.

    Attributes
    ----------
    dual_components_ : ndarray of shape (n_components, n_kernel_vectors)
        Atoms as linear combinations of the kernel vectors, of unit norm in feature space.
    kernel_vectors_ : ndarray of shape (n_kernel_vectors, n_features)
        Kernel vectors.
    rank_ : int
        Numerical rank of the kernel matrix of the kernel vectors, in the dtype of the signals.
    gram_ : ndarray of shape (n_components, n_components)
        Inner products of the atoms in feature space.
    gamma_ : float
        Value of `gamma` used; for a `Kernel`, its own gamma or the one its rule found, 1.0 if it has neither.
    computes_in_float64_ : bool
        Whether float32 signals are processed in float64, because float32 cannot resolve their residuals.
    errors_ : ndarray of shape (n_iter_,)
        Error ``sqrt(f / (m N))`` after each iteration up to the returned model: f is the squared error in feature space
        of N signals of length m. It may increase, because the pursuit is greedy.
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
    ORKDL : Learns the kernel vectors too.
    KDL : Uses every signal as a kernel vector.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import RKDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = RKDL(n_components=20, n_kernel_vectors=30, random_state=0).fit(X)
    >>> model.kernel_vectors_.shape, model.dual_components_.shape
    ((30, 64), (20, 30))
    """

    n_kernel_vectors: int = 50
    kernel_vectors: str | ArrayLike = "kmeans"
    half_life: float | None = None

    partial_fit = partial_fit
