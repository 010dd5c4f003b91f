"""Full kernel dictionary learning: every signal is a kernel vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import validate_data

from rkdl._backends.arrays import host, is_tensor
from rkdl._backends.devices import free_bytes
from rkdl._coding.pursuit import pursue
from rkdl._data.open import gather
from rkdl._data.signals import Signals, is_safe
from rkdl._estimators.denoising import Decoder
from rkdl._estimators.kernel import KERNELS, KernelLearner
from rkdl._execution.executor import Executor
from rkdl._execution.machine import physical_memory
from rkdl._features.space import FeatureSpace, PrecomputedSpace
from rkdl._learning.atom_updates import ATOM_UPDATES
from rkdl._learning.full import FullProblem, KernelRows
from rkdl._learning.initial_atoms import first_signals
from rkdl._persistence.checkpoint import Checkpoint
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import FLOATS, Device
from rkdl._utils.warnings import warn

# The kernel matrix is stored if it takes no more than this fraction of the memory (on a GPU, of the free memory).
MEMORY_SHARE = 0.6


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
        of two matrices that returns their kernel matrix (or of two rows that returns a number: slow).
        With "precomputed", X is the kernel matrix in `fit`, and kernel values with the training signals after it;
        errors, and codes with `residual_tol`, are then those of the training signals, whose norms alone are known.
    gamma : float, "median" or "scale", default="median"
        Parameter of "rbf" and "poly"; a `Kernel` has its own. "median" is the inverse of the median squared distance in
        a sample of the signals, "scale" is ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly".
    n_nonzero_coefs : int or None, default=4
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit if `residual_tol` is set.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual in feature space is at most this; None disables.
    pursuit : {"ols", "omp"}, default="ols"
        Greedy sparse coding: orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        "gram" uses the sufficient statistics of the codes; "aksvd" is the sweep of the paper, which also refits codes.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_signals), default="rpcholesky"
        Initial atoms: signals drawn by randomly pivoted Cholesky, or uniformly; Gaussian combinations of the signals;
        an array gives the combinations.
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
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

    _parameter_constraints: dict = {
        **KernelLearner._parameter_constraints,
        "kernel": [StrOptions({*KERNELS, "precomputed"}), callable],
    }

    def __init__(
        self,
        n_components: int = 20,
        *,
        kernel: str | Callable = "rbf",
        gamma: float | str = "median",
        degree: int = 3,
        coef0: float = 1.0,
        n_nonzero_coefs: int | None = 4,
        residual_tol: float | None = None,
        pursuit: str = "ols",
        atom_update: str = "gram",
        init: str | ArrayLike = "rpcholesky",
        max_iter: int = 30,
        tol: float = 1e-4,
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
        self.n_nonzero_coefs = n_nonzero_coefs
        self.residual_tol = residual_tol
        self.pursuit = pursuit
        self.atom_update = atom_update
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.fit_inverse_transform = fit_inverse_transform
        self.decoder_alpha = decoder_alpha
        self.sparse_output = sparse_output
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _read_signals(self, X: Any, *, reset: bool) -> Signals:
        if reset and self.device is None and not is_tensor(X):
            # Every signal meets every other one: they are needed together.
            X = gather(X)
        if not self._is_precomputed:
            return super()._read_signals(X, reset=reset)
        if is_tensor(X) or self.device is not None:
            found = super()._read_signals(X, reset=reset)
            found.check_finite()
            return found
        X = validate_data(self, well_formed(X), dtype=FLOATS, reset=reset)
        if reset:
            self.computes_in_float64_ = False
        return Signals(X, X.dtype)

    def _inspect(self, executor: Executor, checkpoint: Checkpoint | None = None) -> Executor:
        if self._is_precomputed:
            if self.fit_inverse_transform:
                self._check_decodable()
            _check_kernel_matrix(host(executor.signals.data).astype(executor.signals.dtype, copy=False))
        return super()._inspect(executor, checkpoint)

    def _find_gamma(self, signals: Signals) -> float | None:
        return None if self._is_precomputed else super()._find_gamma(signals)

    def _working_width(self, n_signals: int, n_features: int) -> int:
        # A chunk is a row block of the kernel matrix.
        return n_signals

    def _problem(
        self, executor: Executor, rng: RandomState, gamma: float | None, saved: dict | None = None
    ) -> FullProblem:
        signals = executor.signals
        n_signals = signals.shape[0]
        memory = physical_memory()
        if signals.device is not None:
            memory = free_bytes(signals.device) if signals.device.type == "cuda" else memory
        if self._is_precomputed:
            given = signals.read(0, n_signals) if signals.device is not None else signals.data
            rows = KernelRows(executor, None, given)
        else:
            kernel = self._make_kernel(signals, gamma)
            needed = n_signals * n_signals * signals.dtype.itemsize
            if needed <= MEMORY_SHARE * memory:
                rows = KernelRows.compute(executor, kernel)
            else:
                warn(
                    f"The kernel matrix of {n_signals} signals takes {needed / 2**30:.1f} GiB and there are "
                    f"{memory / 2**30:.1f}: its blocks are computed again in every iteration. RKDL or ORKDL learn from "
                    f"a few kernel vectors instead."
                )
                rows = KernelRows(executor, kernel, None)
        if not isinstance(self.init, str):
            # Atoms are normalised in feature space, so that the scale of the signals does not matter.
            start = self._initial_array((self.n_components, n_signals), "dual_components_")
        else:
            start = np.zeros((self.n_components, n_signals))
            n_picked = 0
            if self.init != "random":
                picked = first_signals(self.init, signals, self.n_components, rng, rows.products)
                n_picked = len(picked)
                start[np.arange(n_picked), picked] = 1.0
            start[n_picked:] = rng.standard_normal((self.n_components - n_picked, n_signals))
        return FullProblem(rows, start, self._pursuit(), ATOM_UPDATES[self.atom_update])

    def _store(self, problem: Any, signals: Signals, gamma: float | None) -> None:
        self.dual_components_ = host(problem.model.atoms).astype(signals.dtype)
        self.gram_ = host(problem.model.gram)
        vectors, self.gamma_ = self._learned_vectors(problem, signals, gamma)
        if vectors is None:
            self.__dict__.pop("kernel_vectors_", None)
        else:
            self.kernel_vectors_ = vectors

    def _learned_vectors(
        self, problem: Any, signals: Signals, gamma: float | None
    ) -> tuple[np.ndarray | None, float | None]:
        if self._is_precomputed:
            return None, None
        data = host(signals.data)
        # A copy, so that the model does not change with the user's array.
        vectors = data.toarray() if sparse.issparse(data) else np.array(data, dtype=signals.dtype, order="C")
        return vectors.astype(signals.dtype, copy=False), gamma

    def _space_on(self, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
        return PrecomputedSpace(n_features) if self._is_precomputed else super()._space_on(n_features, vectors, gamma)

    def _given_norms(self, signals: Signals) -> np.ndarray | None:
        if not self._is_precomputed or self.residual_tol is None:
            return None
        kernel = host(signals.data)
        if not _is_training_matrix(kernel):
            raise ValueError(
                "residual_tol cannot be held with kernel='precomputed' for new signals: kernel values with the "
                "training signals do not give the norm of a new signal. Set residual_tol=None and n_nonzero_coefs."
            )
        return np.maximum(kernel.diagonal(), 0.0).astype(signals.dtype, copy=False)

    def _residuals(self, X: Any, dtype: Any = None) -> tuple[Any, Any]:
        if not self._is_precomputed:
            return super()._residuals(X, dtype)
        signals, (encoder, *_) = self._ready(X)
        kernel = host(signals.data)
        if not _is_training_matrix(kernel):
            raise ValueError(
                "A residual needs k(x, x), which kernel='precomputed' gives for the training signals alone, in their "
                "square kernel matrix: for other signals give the kernel by name or as a function."
            )
        squares = np.maximum(kernel.diagonal(), 0.0)
        residuals = pursue(kernel @ encoder.atoms.T, encoder.gram, squares, *encoder.pursuit)[1]
        both = np.sqrt(residuals), np.sqrt(squares)
        if signals.home is None:
            return both
        from rkdl._execution.device import send_home

        return send_home(both[0], signals), send_home(both[1], signals)

    def _check_decodable(self) -> None:
        if self._is_precomputed:
            raise ValueError(
                "Codes of a precomputed kernel cannot be turned back into signals, which are not known: give the "
                "kernel by name or as a function, and leave fit_inverse_transform at False for a precomputed one."
            )

    def _decoder(self, dtype: np.dtype) -> Decoder:
        self._check_decodable()
        return super()._decoder(dtype)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        tags.input_tags.sparse = not self._is_precomputed
        return tags


def _is_training_matrix(kernel: np.ndarray) -> bool:
    """Whether this looks like a square kernel matrix: it is symmetric."""
    slack = 1e3 * float(np.finfo(kernel.dtype).eps) * float(np.abs(kernel).max(initial=0.0))
    return kernel.shape[0] == kernel.shape[1] and bool(np.allclose(kernel, kernel.T, rtol=0.0, atol=slack))


def _check_kernel_matrix(matrix: np.ndarray) -> None:
    """Refuse a matrix that is not square, symmetric and positive semidefinite, up to rounding."""
    size = len(matrix)
    if matrix.shape != (size, size):
        raise ValueError(
            f"A precomputed kernel has one row and one column per signal; X has shape {matrix.shape}, which is not "
            f"square."
        )
    largest = float(np.abs(matrix).max())
    if largest > 0.0 and not is_safe(largest, matrix.dtype):
        raise ValueError(
            f"The precomputed kernel has entries of size {largest:.3g}, whose squares leave the range of "
            f"{matrix.dtype}: scale it."
        )
    slack = 1e3 * float(np.finfo(matrix.dtype).eps) * largest
    for start in range(0, size, 1024):
        block = matrix[start : start + 1024]
        worst = float(np.abs(block - matrix[:, start : start + 1024].T).max())
        if worst > slack:
            raise ValueError(
                f"The precomputed kernel is not symmetric: entries differ by up to {worst:.3g} from their "
                f"transposes. Use (K + K.T) / 2 if that is meant."
            )
    lowest = float(matrix.diagonal().min())
    if size > 2 and lowest >= 0.0 < largest:
        try:
            found = eigsh(matrix, k=1, which="SA", tol=1e-2, v0=np.ones(size), maxiter=300, return_eigenvectors=False)
            lowest = float(found[0])
        except ArpackNoConvergence as error:
            lowest = float(error.eigenvalues[0]) if len(error.eigenvalues) else 0.0
    elif size == 2:
        lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -max(slack * size, 1e-6 * largest):
        raise ValueError(
            f"The precomputed kernel is not positive semidefinite: it has an eigenvalue of about {lowest:.3g}. Clip "
            f"its negative eigenvalues or add {-lowest:.3g} to its diagonal."
        )
