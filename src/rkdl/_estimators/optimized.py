"""The reduced methods that learn their kernel vectors: ORKDL-D and MORKDL-D."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._backends.arrays import host
from rkdl._coding.encoder import Pursuit
from rkdl._estimators.reduced import RKDL
from rkdl._execution.executor import Executor
from rkdl._learning.kernel_vector_choice import signal_moments
from rkdl._learning.kernel_vector_update import LBFGS, GradientDescent, KernelVectorUpdate
from rkdl._learning.reduced import ReducedProblem
from rkdl._utils.types import Device

# Signals whose norms' root mean square exceeds their mean by no more than this share have one norm.
ONE_NORM = 1e-10
# Iterations before the kernel vectors are optimised, at most; whatever max_iter is, so that it may be raised.
HELD_ITERATIONS = 10


class ORKDL(RKDL):
    """Optimized reduced kernel dictionary learning (ORKDL-D): the kernel vectors are learned with the atoms.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms n.
    kernel : {"rbf", "poly", "linear"} or callable, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``(gamma x'y + coef0)^degree``, ``x'y``, or a function of two matrices that
        returns the matrix of kernel values (or of two rows that returns a number, which is slow).
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; "median" is one over the median squared distance of a sample, "scale" is
        ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant of "poly".
    n_kernel_vectors : int, default=50
        Number of kernel vectors p.
    kernel_vectors : {"dictionary", "random", "kmeans", "rpcholesky"} or array-like, default="kmeans"
        "dictionary" trains them as a linear dictionary of the signals, as the paper does, each as long as the
        signals are in the root mean square; "random" draws signals (Nystrom sampling); "kmeans" takes cluster
        centres; "rpcholesky" draws signals by randomly pivoted Cholesky; an array of shape (p, n_features) gives
        them, and `n_kernel_vectors` is not used.
    n_nonzero_coefs : int or None, default=4
        Most non-zeros of a code; None for no limit but `residual_tol`, and without that a tenth of the atoms.
    residual_tol : float, default=None
        Stop a signal's pursuit when its squared residual in feature space is at most this.
    pursuit : {"ols", "omp"}, default="ols"
        Orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        From the codes' statistics, or the paper's sweep, which also refits the codes on their support.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_kernel_vectors), default="rpcholesky"
        First atoms. "rpcholesky" draws signals one after another, each with the probability of what the earlier ones
        leave of it in feature space (randomly pivoted Cholesky); "data" draws signals at random, "random" Gaussian
        combinations of the kernel vectors; an array gives the combinations.
    solver : {"lbfgs", "gd"}, default="lbfgs"
        How the kernel vectors move: L-BFGS with the atoms eliminated (variable projection), or the paper's
        gradient, one vector after another with the atoms held.
    n_inner_iter : int, default=3
        Steps of the solver an iteration.
    learning_rate : float, default=None
        Fixed rate of "gd", as in the paper; it multiplies a sum over signals and may diverge, which is
        warned of. None finds a rate by backtracking, which never raises the objective.
    max_iter : int, default=30
        Most iterations that optimise the kernel vectors. Unless `init` is an array, up to ten that hold them come
        first.
    tol : float, default=1e-4
        Stop when two errors in a row differ by less than this share from the smallest before them, or none was smaller
        for ten iterations; 0 disables.
    half_life : float, default=None
        Number of signals after which what `partial_fit` learned from a signal counts half, whatever the batches they
        came in; None for never less.
    fit_inverse_transform : bool, default=False
        Whether `fit` and `partial_fit` also learn a decoder, by ridge regression from feature space to signals in one
        more walk over them, that `inverse_transform` and `denoise` use. Without it they iterate
        to a fixed point with kernel "rbf" (slower), are exact with "linear", and with another kernel need
        `fit_decoder`.
    decoder_alpha : float, default=0.001
        Ridge penalty of the decoder, relative to the mean energy of the codes in a direction of feature space.
    sparse_output : bool, default=False
        Whether `transform` returns a CSR array.
    device : str or torch.device, default=None
        Where to compute: "cuda" streams arrays through a GPU. None computes where the signals are: a tensor's device,
        or in NumPy.
    n_jobs : int, default=None
        Threads; None for as many as BLAS may use, -1 for all cores. Never changes the result.
    random_state : int, RandomState instance or None, default=None
        Randomness of the kernel vectors and the first atoms.
    verbose : int, default=0
        A progress bar if positive.

    Attributes
    ----------
    dual_components_ : ndarray of shape (n_components, n_kernel_vectors)
        Atoms as combinations of the kernel vectors, of unit norm in feature space.
    kernel_vectors_ : ndarray of shape (n_kernel_vectors, n_features)
        The kernel vectors.
    rank_ : int
        Rank of the kernel matrix of the kernel vectors, as decided for the signals' dtype.
    gram_ : ndarray of shape (n_components, n_components)
        Inner products of the atoms in feature space.
    gamma_ : float
        `gamma` as used.
    computes_in_float64_ : bool
        Whether codes leave so little of the signals that it takes float64 to find them, so that signals of float32 are
        worked on in float64. Results are float32 all the same.
    errors_ : ndarray of shape (n_iter_,)
        ``sqrt(f / (m N))`` after every iteration up to that of the returned model, f the squared error in feature
        space of the signals coded with the model that the iteration ended with. A greedy pursuit may raise it.
    update_errors_ : ndarray of shape (n_updates,)
        The error right after every update that was made, with the codes that it was made for: what the paper reports.
    n_iter_ : int
        Iteration that ended with the returned model, the best that was met.
    n_revived_ : int
        Unused atoms that were replaced by badly represented signals.
    decoder_ : ndarray of shape (n_components, n_features)
        What codes, for kernel "rbf" of unit length in feature space, are multiplied by to give signals; only where a
        decoder was learned.
    decoder_intercept_ : ndarray of shape (n_features,)
        What is added to the product; only where a decoder was learned.
    n_features_in_ : int
        Length of a signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had string names.

    See Also
    --------
    RKDL : The kernel vectors stay as they are chosen.
    MORKDL : A linear term keeps the kernel vectors a good dictionary.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import ORKDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = ORKDL(n_components=20, n_kernel_vectors=30, random_state=0).fit(X)
    >>> model.kernel_vectors_.shape, model.dual_components_.shape
    ((30, 64), (20, 30))
    """

    _parameter_constraints: dict = {
        **RKDL._parameter_constraints,
        "solver": [StrOptions({"lbfgs", "gd"})],
        "n_inner_iter": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        n_components: int = 20,
        *,
        kernel: str | Callable = "rbf",
        gamma: float | str = "median",
        degree: int = 3,
        coef0: float = 1.0,
        n_kernel_vectors: int = 50,
        kernel_vectors: str | ArrayLike = "kmeans",
        n_nonzero_coefs: int | None = 4,
        residual_tol: float | None = None,
        pursuit: str = "ols",
        atom_update: str = "gram",
        init: str | ArrayLike = "rpcholesky",
        solver: str = "lbfgs",
        n_inner_iter: int = 3,
        learning_rate: float | None = None,
        max_iter: int = 30,
        tol: float = 1e-4,
        half_life: float | None = None,
        fit_inverse_transform: bool = False,
        decoder_alpha: float = 1e-3,
        sparse_output: bool = False,
        device: Device = None,
        n_jobs: int | None = None,
        random_state: RandomState | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_kernel_vectors = n_kernel_vectors
        self.kernel_vectors = kernel_vectors
        self.n_nonzero_coefs = n_nonzero_coefs
        self.residual_tol = residual_tol
        self.pursuit = pursuit
        self.atom_update = atom_update
        self.init = init
        self.solver = solver
        self.n_inner_iter = n_inner_iter
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.half_life = half_life
        self.fit_inverse_transform = fit_inverse_transform
        self.decoder_alpha = decoder_alpha
        self.sparse_output = sparse_output
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _moves(self) -> bool:
        return self.n_inner_iter > 0

    def _prepare(self, problem: ReducedProblem) -> bool:
        if not isinstance(self.init, str) or not self._moves() or self.solver != "lbfgs":
            return False
        # Iterations that hold the kernel vectors cost little, and what they end with is the least to be beaten.
        vector_update, problem.vector_update = problem.vector_update, None
        name = f"{type(self).__name__}, kernel vectors held"
        _, is_interrupted = self._alternate(problem, name, max_iter=HELD_ITERATIONS)
        problem.vector_update, problem.update_objective = vector_update, np.inf
        return is_interrupted

    def _radius(self, executor: Executor, vectors: np.ndarray | None) -> float | None:
        """Norm that kernel vectors are held to, from those that are given, else from the signals; None for none."""
        return None

    def _vector_update(self, executor: Executor, vectors: np.ndarray | None = None) -> KernelVectorUpdate:
        radius = self._radius(executor, vectors)
        if self.solver == "lbfgs":
            return LBFGS(self.n_inner_iter, radius)
        rate = self.learning_rate
        if rate is not None and self._feature_scale(executor.signals.scale) == 1.0:
            rate *= executor.signals.scale**2
        return GradientDescent(self.n_inner_iter, radius, rate)


class MORKDL(ORKDL):
    """Mixed optimized reduced kernel dictionary learning (MORKDL-D).

    As ORKDL, with a multiple of ``|Y - X D|^2`` in the objective, X sparse, which keeps the kernel vectors D a good
    linear dictionary of the signals.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms n.
    kernel : {"rbf", "poly", "linear"} or callable, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``(gamma x'y + coef0)^degree``, ``x'y``, or a function of two matrices that
        returns the matrix of kernel values (or of two rows that returns a number, which is slow).
        It must have a derivative, which a callable has not.
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; "median" is one over the median squared distance of a sample, "scale" is
        ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant of "poly".
    n_kernel_vectors : int, default=50
        Number of kernel vectors p.
    kernel_vectors : {"dictionary", "random", "kmeans", "rpcholesky"} or array-like, default="kmeans"
        "dictionary" trains them as a linear dictionary of the signals, as the paper does, each as long as the
        signals are in the root mean square; "random" draws signals (Nystrom sampling); "kmeans" takes cluster
        centres; "rpcholesky" draws signals by randomly pivoted Cholesky; an array of shape (p, n_features) gives
        them, and `n_kernel_vectors` is not used.
    n_nonzero_coefs : int or None, default=4
        Most non-zeros of a code; None for no limit but `residual_tol`, and without that a tenth of the atoms.
    residual_tol : float, default=None
        Stop a signal's pursuit when its squared residual in feature space is at most this.
    pursuit : {"ols", "omp"}, default="ols"
        Orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        From the codes' statistics, or the paper's sweep, which also refits the codes on their support.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_kernel_vectors), default="rpcholesky"
        First atoms. "rpcholesky" draws signals one after another, each with the probability of what the earlier ones
        leave of it in feature space (randomly pivoted Cholesky); "data" draws signals at random, "random" Gaussian
        combinations of the kernel vectors; an array gives the combinations.
    solver : {"lbfgs", "gd"}, default="lbfgs"
        How the kernel vectors move: L-BFGS with the atoms eliminated (variable projection), or the paper's
        gradient, one vector after another with the atoms held.
    n_inner_iter : int, default=3
        Steps of the solver an iteration.
    learning_rate : float, default=None
        Fixed rate of "gd", as in the paper; it multiplies a sum over signals and may diverge, which is
        warned of. None finds a rate by backtracking, which never raises the objective.
    linear_weight : float, default=1.0
        Weight lambda of the linear term, relative to ``tr K(Y, Y) / |Y|^2``: with 1.0 the two terms count equally,
        whatever the scale of the signals. For signals of unit norm and kernel "rbf" it is the weight of the paper.
    linear_n_nonzero_coefs : int, default=5
        Most non-zeros s_x of a signal's linear code.
    kernel_vector_norm : {"auto", "shared", "free"}, default="auto"
        "shared" holds all kernel vectors to one norm, the root mean square of the signals' norms, as in the paper;
        "free" leaves their norms to the optimisation; "auto" is "shared" where the signals themselves
        have one norm, and "free" elsewhere.
    max_iter : int, default=30
        Most iterations that optimise the kernel vectors. Unless `init` is an array, up to ten that hold them come
        first.
    tol : float, default=1e-4
        Stop when two errors in a row differ by less than this share from the smallest before them, or none was smaller
        for ten iterations; 0 disables.
    half_life : float, default=None
        Number of signals after which what `partial_fit` learned from a signal counts half, whatever the batches they
        came in; None for never less.
    fit_inverse_transform : bool, default=False
        Whether `fit` and `partial_fit` also learn a decoder, by ridge regression from feature space to signals in one
        more walk over them, that `inverse_transform` and `denoise` use. Without it they iterate
        to a fixed point with kernel "rbf" (slower), are exact with "linear", and with another kernel need
        `fit_decoder`.
    decoder_alpha : float, default=0.001
        Ridge penalty of the decoder, relative to the mean energy of the codes in a direction of feature space.
    sparse_output : bool, default=False
        Whether `transform` returns a CSR array.
    device : str or torch.device, default=None
        Where to compute: "cuda" streams arrays through a GPU. None computes where the signals are: a tensor's device,
        or in NumPy.
    n_jobs : int, default=None
        Threads; None for as many as BLAS may use, -1 for all cores. Never changes the result.
    random_state : int, RandomState instance or None, default=None
        Randomness of the kernel vectors and the first atoms.
    verbose : int, default=0
        A progress bar if positive.

    Attributes
    ----------
    dual_components_ : ndarray of shape (n_components, n_kernel_vectors)
        Atoms as combinations of the kernel vectors, of unit norm in feature space.
    kernel_vectors_ : ndarray of shape (n_kernel_vectors, n_features)
        The kernel vectors.
    rank_ : int
        Rank of the kernel matrix of the kernel vectors, as decided for the signals' dtype.
    gram_ : ndarray of shape (n_components, n_components)
        Inner products of the atoms in feature space.
    gamma_ : float
        `gamma` as used.
    computes_in_float64_ : bool
        Whether codes leave so little of the signals that it takes float64 to find them, so that signals of float32 are
        worked on in float64. Results are float32 all the same.
    errors_ : ndarray of shape (n_iter_,)
        ``sqrt(f / (m N))`` after every iteration up to that of the returned model, f the squared error in feature
        space of the signals coded with the model that the iteration ended with. A greedy pursuit may raise it.
    update_errors_ : ndarray of shape (n_updates,)
        The error right after every update that was made, with the codes that it was made for: what the paper reports.
    n_iter_ : int
        Iteration that ended with the returned model, the best that was met.
    n_revived_ : int
        Unused atoms that were replaced by badly represented signals.
    decoder_ : ndarray of shape (n_components, n_features)
        What codes, for kernel "rbf" of unit length in feature space, are multiplied by to give signals; only where a
        decoder was learned.
    decoder_intercept_ : ndarray of shape (n_features,)
        What is added to the product; only where a decoder was learned.
    n_features_in_ : int
        Length of a signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had string names.

    See Also
    --------
    ORKDL : Without the linear term.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import MORKDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = MORKDL(n_components=20, n_kernel_vectors=30, random_state=0).fit(X)
    >>> model.kernel_vectors_.shape, model.dual_components_.shape
    ((30, 64), (20, 30))
    """

    _parameter_constraints: dict = {
        **ORKDL._parameter_constraints,
        "linear_weight": [Interval(Real, 0, None, closed="left")],
        "linear_n_nonzero_coefs": [Interval(Integral, 1, None, closed="left")],
        "kernel_vector_norm": [StrOptions({"auto", "shared", "free"})],
    }

    def __init__(
        self,
        n_components: int = 20,
        *,
        kernel: str | Callable = "rbf",
        gamma: float | str = "median",
        degree: int = 3,
        coef0: float = 1.0,
        n_kernel_vectors: int = 50,
        kernel_vectors: str | ArrayLike = "kmeans",
        n_nonzero_coefs: int | None = 4,
        residual_tol: float | None = None,
        pursuit: str = "ols",
        atom_update: str = "gram",
        init: str | ArrayLike = "rpcholesky",
        solver: str = "lbfgs",
        n_inner_iter: int = 3,
        learning_rate: float | None = None,
        linear_weight: float = 1.0,
        linear_n_nonzero_coefs: int = 5,
        kernel_vector_norm: str = "auto",
        max_iter: int = 30,
        tol: float = 1e-4,
        half_life: float | None = None,
        fit_inverse_transform: bool = False,
        decoder_alpha: float = 1e-3,
        sparse_output: bool = False,
        device: Device = None,
        n_jobs: int | None = None,
        random_state: RandomState | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_kernel_vectors = n_kernel_vectors
        self.kernel_vectors = kernel_vectors
        self.n_nonzero_coefs = n_nonzero_coefs
        self.residual_tol = residual_tol
        self.pursuit = pursuit
        self.atom_update = atom_update
        self.init = init
        self.solver = solver
        self.n_inner_iter = n_inner_iter
        self.learning_rate = learning_rate
        self.linear_weight = linear_weight
        self.linear_n_nonzero_coefs = linear_n_nonzero_coefs
        self.kernel_vector_norm = kernel_vector_norm
        self.max_iter = max_iter
        self.tol = tol
        self.half_life = half_life
        self.fit_inverse_transform = fit_inverse_transform
        self.decoder_alpha = decoder_alpha
        self.sparse_output = sparse_output
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _radius(self, executor: Executor, vectors: np.ndarray | None) -> float | None:
        if self.kernel_vector_norm == "free":
            return None
        if vectors is not None:
            # Those that were learned tell of their signals, not of these.
            norms = np.linalg.norm(host(vectors), axis=1)
            root_mean_square, mean = float(np.sqrt(np.mean(norms**2))), float(norms.mean())
        else:
            _, root_mean_square, mean = signal_moments(executor)
        if self.kernel_vector_norm == "auto":
            return root_mean_square if 0.0 < root_mean_square <= (1.0 + ONE_NORM) * mean else None
        if root_mean_square == 0.0:
            raise ValueError(
                "All signals are zero, and kernel_vector_norm='shared' holds the kernel vectors to the signals' norm: "
                "use 'free'."
            )
        return root_mean_square

    def _linear_nonzeros(self) -> int:
        return self.linear_n_nonzero_coefs

    def _linear(self, n_vectors: int) -> tuple[float, Pursuit]:
        return self.linear_weight, self._linear_pursuit(n_vectors)
