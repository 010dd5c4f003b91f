"""Reduced kernel dictionary learning: RKDL-D, and with learned kernel vectors ORKDL-D and MORKDL-D."""

from __future__ import annotations

from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from rkdl._estimators.learner import KernelLearner, partial_fit
from rkdl._learning.feature_choice import KernelFeatures
from rkdl._learning.linear_term import LinearTermChoice
from rkdl._learning.specification import Specification, VectorUpdateChoice


@dataclass(eq=False, repr=False, kw_only=True)
class RKDL(KernelLearner):
    """Reduced kernel dictionary learning (RKDL-D): atoms are combinations of a few fixed kernel vectors.

    With p kernel vectors, the kernel matrix is p x p instead of N x N. By Ilie-Ablachim and Dumitrescu, "Reduced kernel
    dictionary learning" (EUSIPCO 2022): "the paper" below.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    kernel : {"rbf", "poly", "linear"}, Kernel or callable, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``(gamma x'y + coef0)^degree``, ``x'y``, a kernel from `rkdl.kernels`, or a function
        of two matrices that returns their kernel matrix.
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; a `Kernel` has its own. "median" is the inverse of the median squared distance in
        a sample of the signals, "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly".
    n_kernel_vectors : int or None, default=None
        Number of kernel vectors; None means 50, or `n_components` if that is more.
    kernel_vectors : {"dictionary", "random", "kmeans", "rpcholesky"} or array-like, default="kmeans"
        Kernel vectors: cluster centres ("kmeans"); signals drawn uniformly ("random") or by randomly pivoted
        Cholesky ("rpcholesky"); a linear dictionary, scaled to the signals' root-mean-square norm ("dictionary", as in
        the paper); or an array of shape (n_kernel_vectors, n_features), which also gives their number.
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
    coherence_max : float, default=1.0
        Bound on the absolute cosine of any two atoms in feature space, as `rkdl.metrics.mutual_coherence` measures it.
        After every update, atoms that are closer are turned apart, which makes the error larger.
    atom_update : {"momentum", "gram", "aksvd"}, default="momentum"
        "gram" updates one atom after another from sums over the codes; "momentum" also moves each further by a share
        of its last change, and replaces those of little use in the first iterations; "aksvd" is the sweep of the paper,
        which refits codes.
    init : {"auto", "gradient", "rpcholesky", "data", "random"} or array-like, default="auto"
        Initial atoms: signals drawn by randomly pivoted Cholesky ("rpcholesky") or uniformly ("data"); Gaussian ones
        ("random"); an array of shape (n_components, n_kernel_vectors); or atoms learned from
        mini-batches ("gradient"), more often those that generated the signals. "auto" tries "gradient" where that takes
        at most a third of the fit, and goes on with it if it is much better; otherwise, it is "rpcholesky".
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
    half_life : float, default=None
        Number of signals after which the weight of a signal in `partial_fit` is halved; None means no forgetting. With
        a half-life, signals replace kernel vectors that the atoms can do without, unless the kernel is a function.
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

    n_kernel_vectors: int | None = None
    kernel_vectors: str | ArrayLike = "kmeans"
    coherence_max: float = 1.0
    half_life: float | None = None

    partial_fit = partial_fit


@dataclass(eq=False, repr=False, kw_only=True)
class ORKDL(KernelLearner):
    """Optimized reduced kernel dictionary learning (ORKDL-D): the kernel vectors are learned with the atoms.

    By Ilie-Ablachim and Dumitrescu, "Reduced kernel dictionary learning" (EUSIPCO 2022): "the paper" below.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    kernel : {"rbf", "poly", "linear"} or Kernel, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``(gamma x'y + coef0)^degree``, ``x'y``, or a kernel with a gradient, from
        `rkdl.kernels` or your own; `RKDL` takes functions too.
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; a `Kernel` has its own. "median" is the inverse of the median squared distance in
        a sample of the signals, "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly".
    n_kernel_vectors : int or None, default=None
        Number of kernel vectors; None means 50, or `n_components` if that is more.
    kernel_vectors : {"dictionary", "random", "kmeans", "rpcholesky"} or array-like, default="kmeans"
        Initial kernel vectors: cluster centres ("kmeans"); signals drawn uniformly ("random") or by randomly pivoted
        Cholesky ("rpcholesky"); a linear dictionary, scaled to the signals' root-mean-square norm ("dictionary", as in
        the paper); or an array of shape (n_kernel_vectors, n_features), which also gives their number.
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
        ("random"); an array of shape (n_components, n_kernel_vectors); or atoms learned from
        mini-batches ("gradient"), more often those that generated the signals. "auto" tries "gradient" where that takes
        at most a third of the fit, and goes on with it if it is much better; otherwise, it is "rpcholesky".
    solver : {"lbfgs", "gd"}, default="lbfgs"
        How the kernel vectors are updated: L-BFGS with the atoms eliminated (variable projection), or the gradient
        descent of the paper, one vector after another with the atoms fixed.
    n_inner_iter : int, default=3
        Number of solver steps per iteration.
    learning_rate : float, default=None
        Fixed step size of "gd", as in the paper. It multiplies a sum over all signals and may diverge, with a warning.
        None means backtracking, which never increases the objective.
    max_iter : int, default=30
        Maximum number of iterations that update the kernel vectors. With "lbfgs", and unless `init` is an array, up to
        ten iterations with fixed kernel vectors come first.
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
    RKDL : Keeps the kernel vectors fixed.
    MORKDL : Adds a linear term for the kernel vectors.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import ORKDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = ORKDL(n_components=20, n_kernel_vectors=30, random_state=0).fit(X)
    >>> model.kernel_vectors_.shape, model.dual_components_.shape
    ((30, 64), (20, 30))
    """

    n_kernel_vectors: int | None = None
    kernel_vectors: str | ArrayLike = "kmeans"
    solver: str = "lbfgs"
    n_inner_iter: int = 3
    learning_rate: float | None = None
    half_life: float | None = None

    def _specification(self) -> Specification:
        update = VectorUpdateChoice(self.solver, self.n_inner_iter, self.learning_rate)
        return replace(super()._specification(), vector_update=update)

    partial_fit = partial_fit


@dataclass(eq=False, repr=False, kw_only=True)
class MORKDL(KernelLearner):
    """Mixed optimized reduced kernel dictionary learning (MORKDL-D), with a linear term.

    The term ``lambda |Y - X D|^2``, X sparse, keeps the kernel vectors D a good linear dictionary of the signals Y.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    kernel : {"rbf", "poly", "linear"} or Kernel, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``(gamma x'y + coef0)^degree``, ``x'y``, or a kernel with a gradient, from
        `rkdl.kernels` or your own; `RKDL` takes functions too.
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; a `Kernel` has its own. "median" is the inverse of the median squared distance in
        a sample of the signals, "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly".
    n_kernel_vectors : int or None, default=None
        Number of kernel vectors; None means 50, or `n_components` if that is more.
    kernel_vectors : {"dictionary", "random", "kmeans", "rpcholesky"} or array-like, default="kmeans"
        Initial kernel vectors: cluster centres ("kmeans"); signals drawn uniformly ("random") or by randomly pivoted
        Cholesky ("rpcholesky"); a linear dictionary, scaled to the signals' root-mean-square norm ("dictionary", as in
        the paper); or an array of shape (n_kernel_vectors, n_features), which also gives their number.
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
        ("random"); an array of shape (n_components, n_kernel_vectors); or atoms learned from
        mini-batches ("gradient"), more often those that generated the signals. "auto" tries "gradient" where that takes
        at most a third of the fit, and goes on with it if it is much better; otherwise, it is "rpcholesky".
    solver : {"lbfgs", "gd"}, default="lbfgs"
        How the kernel vectors are updated: L-BFGS with the atoms eliminated (variable projection), or the gradient
        descent of the paper, one vector after another with the atoms fixed.
    n_inner_iter : int, default=3
        Number of solver steps per iteration.
    learning_rate : float, default=None
        Fixed step size of "gd", as in the paper. It multiplies a sum over all signals and may diverge, with a warning.
        None means backtracking, which never increases the objective.
    linear_weight : float, default=1.0
        Weight lambda of the linear term, relative to ``tr K(Y, Y) / |Y|^2``: with 1.0 both terms weigh the same
        whatever the scale of the signals. For signals of unit norm and kernel "rbf" it is the lambda of the paper.
    linear_n_nonzero_coefs : int, default=5
        Maximum number of nonzero coefficients per signal in the linear term.
    kernel_vector_norm : {"auto", "shared", "free"}, default="auto"
        "shared" constrains all kernel vectors to one norm, the root mean square of the signals' norms, as in the paper;
        "free" does not constrain them; "auto" is "shared" if all signals have the same norm, otherwise "free".
    max_iter : int, default=30
        Maximum number of iterations that update the kernel vectors. With "lbfgs", and unless `init` is an array, up to
        ten iterations with fixed kernel vectors come first.
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
    ORKDL : Has no linear term.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import MORKDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = MORKDL(n_components=20, n_kernel_vectors=30, random_state=0).fit(X)
    >>> model.kernel_vectors_.shape, model.dual_components_.shape
    ((30, 64), (20, 30))
    """

    n_kernel_vectors: int | None = None
    kernel_vectors: str | ArrayLike = "kmeans"
    solver: str = "lbfgs"
    n_inner_iter: int = 3
    learning_rate: float | None = None
    linear_weight: float = 1.0
    linear_n_nonzero_coefs: int = 5
    kernel_vector_norm: str = "auto"
    half_life: float | None = None

    def _specification(self) -> Specification:
        common = super()._specification()
        features = common.features
        assert isinstance(features, KernelFeatures)
        return replace(
            common,
            vector_update=VectorUpdateChoice(self.solver, self.n_inner_iter, self.learning_rate),
            linear=LinearTermChoice(self.linear_weight, features.dictionary_pursuit, self.kernel_vector_norm),
        )

    partial_fit = partial_fit
