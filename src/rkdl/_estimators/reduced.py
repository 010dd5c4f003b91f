"""Reduced kernel dictionary learning: atoms on a few kernel vectors."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array

from rkdl._backends.arrays import host
from rkdl._coding.encode import check_pursuit
from rkdl._coding.encoder import Pursuit
from rkdl._data.signals import Signals
from rkdl._estimators.kernel import KernelLearner
from rkdl._estimators.stream import StreamLearner
from rkdl._execution.executor import Executor
from rkdl._features.kernels import Kernel, has_user_code
from rkdl._features.maps import KernelMap
from rkdl._learning.atom_updates import ATOM_UPDATES
from rkdl._learning.diagnostics import check_rank
from rkdl._learning.initial_atoms import first_coordinates
from rkdl._learning.kernel_vector_choice import DICTIONARY_NONZEROS, METHODS, choose_kernel_vectors
from rkdl._learning.kernel_vector_replacement import count_candidates
from rkdl._learning.kernel_vector_updates import KernelVectorUpdate
from rkdl._learning.reduced import Model, ReducedProblem
from rkdl._learning.stream_problem import StreamProblem
from rkdl._learning.stream_state import Stream
from rkdl._persistence.states import check_kernel_vectors
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Device
from rkdl._utils.warnings import warn


class RKDL(KernelLearner, StreamLearner):
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

    _parameter_constraints: dict = {
        **KernelLearner._parameter_constraints,
        **StreamLearner._parameter_constraints,
        "n_kernel_vectors": [Interval(Integral, 1, None, closed="left")],
        "kernel_vectors": [StrOptions(set(METHODS)), "array-like"],
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

    def _count(self) -> int:
        """Number of kernel vectors."""
        return self.n_kernel_vectors if isinstance(self.kernel_vectors, str) else np.shape(self.kernel_vectors)[0]

    def _working_width(self, n_signals: int, n_features: int) -> int:
        return n_features + 2 * self._count() + 3 * self.n_components

    def _check_sizes(self, n_signals: int) -> None:
        if self.n_components > self._count():
            warn(
                f"n_components={self.n_components} exceeds the number of kernel vectors, {self._count()}: the "
                f"atoms span no more dimensions than that. Use more kernel vectors or fewer atoms.",
            )

    def _linear_pursuit(self, n_vectors: int) -> Pursuit:
        """The pursuit of linear codes on kernel vectors that are trained as a dictionary."""
        n_nonzero = getattr(self, "linear_n_nonzero_coefs", DICTIONARY_NONZEROS)
        return check_pursuit(min(n_nonzero, n_vectors), None, self.pursuit, n_vectors)

    def _vector_update(
        self, executor: Executor, radius: float | None, *, has_warned: bool = False
    ) -> KernelVectorUpdate | None:
        """What moves the kernel vectors; nothing in RKDL."""
        return None

    def _radius(self, executor: Executor, vectors: np.ndarray | None) -> float | None:
        """Norm of all kernel vectors, from those given, otherwise from the signals; None if it is free."""
        return None

    def _linear(self, n_vectors: int) -> tuple[float, Pursuit] | None:
        """Weight and pursuit of the linear term; None except in MORKDL."""
        return None

    def _first_kernel_vectors(self, executor: Executor, kernel: Kernel, rng: RandomState) -> np.ndarray:
        signals = executor.signals
        if not isinstance(self.kernel_vectors, str):
            given = well_formed(host(self.kernel_vectors), "kernel_vectors")
            vectors = check_array(given, dtype=np.float64, input_name="kernel_vectors", copy=True)
            if vectors.shape[1] != signals.shape[1]:
                raise ValueError(
                    f"kernel_vectors has {vectors.shape[1]} features and X has {signals.shape[1]}: they must agree."
                )
            return vectors
        count = self._count()
        return choose_kernel_vectors(
            self.kernel_vectors,
            executor,
            count,
            kernel,
            rng,
            pursuit=self._linear_pursuit(count),
            atom_update=ATOM_UPDATES[self.atom_update],
        )

    def _problem(
        self, executor: Executor, rng: RandomState, gamma: float | None, saved: dict | None = None
    ) -> ReducedProblem:
        signals = executor.signals
        kernel = self._make_kernel(signals, gamma)
        known = None if saved is None else check_kernel_vectors(saved, signals.shape[1])
        vector_update = self._vector_update(executor, self._radius(executor, known))
        if vector_update is not None and not kernel.differentiable:
            is_kernel = isinstance(self.kernel, Kernel)
            remedy = "write its gradient(X, Y, weights)" if is_kernel else "use a Kernel, 'rbf', 'poly' or 'linear'"
            raise ValueError(
                f"{type(self).__name__} moves the kernel vectors along the kernel's derivative, and "
                f"kernel={self.kernel!r} is a {'kernel' if is_kernel else 'function'} without one: {remedy}, or use "
                f"RKDL, which needs no derivative."
            )
        vectors = self._first_kernel_vectors(executor, kernel, rng) if known is None else known
        if saved is None and vector_update is not None and vector_update.radius is not None:
            vectors = self._on_sphere(vectors, vector_update.radius, rng)
        feature_map = KernelMap(kernel, vectors)
        metric = feature_map.metric(signals.dtype)
        shape = (self.n_components, len(vectors))
        if saved is not None:
            whitened_atoms = np.zeros((self.n_components, metric.rank))
        elif not isinstance(self.init, str):
            whitened_atoms = metric.whiten_combinations(self._initial_array(shape, "dual_components_"))
        else:
            whitened_atoms = metric.whiten_combinations(rng.standard_normal(shape))
            if self.init != "random":

                def coordinates(rows: np.ndarray) -> np.ndarray:
                    return metric.whiten(feature_map.features(rows).astype(np.float64))

                found = first_coordinates(self.init, signals, self.n_components, rng, coordinates)
                whitened_atoms[: len(found)] = found
        return ReducedProblem(
            executor,
            Model.start(feature_map, metric, whitened_atoms),
            self._pursuit(),
            atom_update=ATOM_UPDATES[self.atom_update],
            vector_update=vector_update,
            linear=self._linear(len(vectors)),
        )

    def _continued(self, executor: Executor, gamma: float | None) -> ReducedProblem:
        saved = {"kernel_vectors": self.kernel_vectors_.astype(np.float64)}
        problem = self._problem(executor, check_random_state(self.random_state), gamma, saved)
        atoms = executor.to_backend(self.dual_components_.astype(np.float64))
        feature_map, metric, *_ = problem.model
        problem.roll_back(Model.start(feature_map, metric, metric.whiten_combinations(atoms)))
        return problem

    def _bind(self, stream: Stream, executor: Executor) -> StreamProblem:
        # Without the curvature that the last update found, which is that of other sums.
        vector_update = self._vector_update(executor, stream.radius, has_warned=stream.update_has_warned)
        count = stream.model.feature_map.size
        pursuit, linear = self._pursuit(), self._linear(count)
        problem = ReducedProblem(executor, stream.model, pursuit, vector_update=vector_update, linear=linear)
        follows = self.half_life is not None and vector_update is None
        return StreamProblem(problem, stream.running, count_candidates(count) if follows else 0)

    def _choose_dtype(self, signals: Signals, reset: bool) -> Signals:
        # Kernel vectors of a start that will be replaced say nothing about gamma: copies of one signal are all alike.
        return super()._choose_dtype(signals, reset or self._is_unsettled())

    def _signals_needed(self) -> int:
        needed = super()._signals_needed()
        return max(needed, self.n_kernel_vectors) if isinstance(self.kernel_vectors, str) else needed

    def _depends_on_scale(self) -> bool:
        if self._is_linear:
            return False
        return isinstance(self._gamma_parameter, str) or isinstance(self.kernel_vectors, str)

    def _settings(self) -> dict:
        kernel = "a function" if has_user_code(self.kernel) else str(self.kernel)
        values = {"kernel": kernel, "degree": self.degree, "coef0": self.coef0}
        return {**super()._settings(), "n_kernel_vectors": self._count(), "gamma": self.gamma, **values}

    def _on_sphere(self, vectors: np.ndarray, radius: float, rng: RandomState) -> np.ndarray:
        """Kernel vectors of norm `radius`; a zero signal that was drawn gets a random direction."""
        norms = np.linalg.norm(vectors, axis=1)
        zero = norms == 0.0
        if zero.any():
            if not isinstance(self.kernel_vectors, str):
                raise ValueError(
                    f"Row {int(np.flatnonzero(zero)[0])} of kernel_vectors has norm zero, and MORKDL holds all of "
                    f"them to one norm: give every kernel vector a direction, or use kernel_vector_norm='free'."
                )
            vectors[zero] = rng.standard_normal((int(zero.sum()), vectors.shape[1]))
            norms = np.linalg.norm(vectors, axis=1)
        return vectors * (radius / norms)[:, None]

    def _store(self, problem: Any, signals: Signals, gamma: float | None) -> None:
        self.dual_components_ = host(problem.model.atoms).astype(signals.dtype)
        self.kernel_vectors_, self.gamma_ = self._learned_vectors(problem, signals, gamma)
        self.gram_ = host(problem.model.whitened_atoms @ problem.model.whitened_atoms.T)
        self.rank_ = problem.model.metric.rank

    def _learned_vectors(self, problem: Any, signals: Signals, gamma: float | None) -> tuple[np.ndarray, float]:
        assert gamma is not None
        return host(problem.model.feature_map.kernel_vectors).astype(signals.dtype), gamma

    def _check_learned(self, problem: Any, n_signals: int) -> None:
        super()._check_learned(problem, n_signals)
        count, size = self.kernel_vectors_.shape
        limit = size if self._is_linear else count
        dtype = problem.executor.signals.dtype
        check_rank(type(self).__name__, self.rank_, count, self.n_components, limit, dtype)

    def _places(self) -> tuple[str | None, str]:
        words = ["scale the signals", "leave out extreme ones"]
        if not has_user_code(self.kernel):
            words.insert(0, self._widening)
        if not isinstance(self.kernel_vectors, str) or self.kernel_vectors != "kmeans":
            words.append("choose kernel_vectors='kmeans'")
        message = f"{', '.join(words[:-1])}, or {words[-1]}."
        return "kernel vectors", message[0].upper() + message[1:]
