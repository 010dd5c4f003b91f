"""Estimators whose features are coordinates: linear dictionary learning, and random Fourier features."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._backends.arrays import host
from rkdl._coding.encoder import Encoder, Pursuit
from rkdl._coding.preimages import LinearDecoder, squared_residual_of_noise
from rkdl._data.signals import Signals
from rkdl._estimators.denoising import Decoding, Denoising
from rkdl._estimators.gamma import KERNEL_SAMPLE, RULES, find_gamma, raw_gamma, sample_gamma, spread_sample
from rkdl._estimators.stream import StreamLearner
from rkdl._execution.executor import Executor
from rkdl._features.kernels import make_kernel
from rkdl._features.maps import FeatureMap, FourierMap, LinearMap
from rkdl._features.metric import IdentityMetric
from rkdl._features.space import FeatureSpace, FourierSpace, SignalSpace
from rkdl._learning.atom_updates import normalize_rows
from rkdl._learning.diagnostics import check_kernel
from rkdl._learning.initial_atoms import first_coordinates
from rkdl._learning.reduced import ReducedProblem
from rkdl._utils.types import Device


class _CoordinateLearner(StreamLearner):
    """Atoms are rows of features; the metric is the identity."""

    def _feature_map(self, signals: Signals, rng: np.random.RandomState) -> FeatureMap:
        raise NotImplementedError

    def _problem(
        self, executor: Executor, pursuit: Pursuit, rng: np.random.RandomState, saved: dict | None = None
    ) -> ReducedProblem:
        signals = executor.signals
        feature_map = self._feature_map(signals, rng)
        shape = (self.n_components, feature_map.size)
        if saved is not None:
            start = np.zeros(shape)
        elif not isinstance(self.init, str):
            start = self._initial_array(shape, "components_")
        else:
            start = rng.standard_normal(shape)
            if self.init != "random":
                found = first_coordinates(self.init, signals, self.n_components, rng, feature_map.features)
                start[: len(found)] = found
        return ReducedProblem(
            executor,
            feature_map,
            IdentityMetric(feature_map.size),
            start,
            pursuit,
            refit=self.atom_update == "aksvd",
        )

    def _continued(self, executor: Executor, pursuit: Pursuit, rng: np.random.RandomState) -> ReducedProblem:
        problem = self._problem(executor, pursuit, rng, {})
        problem.feature_map = executor.to_backend(self._space.feature_map(np.dtype(np.float64), executor.signals.scale))
        problem.white = normalize_rows(executor.to_backend(self.components_.astype(np.float64)))
        return problem

    def _store(self, problem: Any, signals: Signals) -> None:
        self.components_ = host(problem.white).astype(signals.dtype)

    def _atoms_and_gram(self) -> tuple[np.ndarray, np.ndarray]:
        atoms = self.components_.astype(np.float64)
        return self.components_, atoms @ atoms.T


class DL(Denoising, _CoordinateLearner):
    """Linear dictionary learning: every signal a combination of a few atoms.

    Alternates a greedy pursuit (OLS or OMP) with an update of the atoms (from the codes' statistics, or the
    AK-SVD sweep).

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms n.
    n_nonzero_coefs : int or None, default=4
        Most non-zeros of a code; None for no limit but `residual_tol`, and without that a tenth of the atoms.
    residual_tol : float, default=None
        Stop a signal's pursuit when its squared residual is at most this.
    pursuit : {"ols", "omp"}, default="ols"
        Orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        From the codes' statistics, or the paper's sweep, which also refits the codes on their support.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_features), default="rpcholesky"
        First atoms. "rpcholesky" draws signals one after another, each with the probability of what the earlier ones
        leave of its energy (randomly pivoted Cholesky); "data" draws signals at random, "random" Gaussian vectors; an
        array gives them.
    max_iter : int, default=30
        Most iterations.
    tol : float, default=1e-4
        Stop when two errors in a row differ by less than this share from the smallest before them, or none was smaller
        for ten iterations; 0 disables.
    half_life : float, default=None
        Number of signals after which what `partial_fit` learned from a signal counts half, whatever the batches they
        came in; None for never less.
    sparse_output : bool, default=False
        Whether `transform` returns a CSR array.
    device : str or torch.device, default=None
        Where to compute: "cuda" streams arrays through a GPU. None computes where the signals are: a tensor's device,
        or in NumPy.
    n_jobs : int, default=None
        Threads; None for as many as BLAS may use, -1 for all cores. Never changes the result.
    random_state : int, RandomState instance or None, default=None
        Randomness of the first atoms.
    verbose : int, default=0
        A progress bar if positive.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Atoms of unit norm.
    computes_in_float64_ : bool
        Whether codes leave so little of the signals that it takes float64 to find them, so that signals of float32 are
        worked on in float64. Results are float32 all the same.
    errors_ : ndarray of shape (n_iter_,)
        ``|Y - Z A|_F / sqrt(m N)`` after every iteration up to that of the returned model, Z the codes with the atoms
        that the iteration ended with. A greedy pursuit may raise it.
    update_errors_ : ndarray of shape (n_updates,)
        The error right after every update that was made, with the codes that it was made for: what the paper reports.
    n_iter_ : int
        Iteration that ended with the returned model, the best that was met.
    n_revived_ : int
        Unused atoms that were replaced by badly represented signals.
    n_features_in_ : int
        Length of a signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had string names.

    See Also
    --------
    sparse_encode : Codes against a given dictionary.
    RKDL : Its nonlinear counterpart.

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

    def __init__(
        self,
        n_components: int = 20,
        *,
        n_nonzero_coefs: int | None = 4,
        residual_tol: float | None = None,
        pursuit: str = "ols",
        atom_update: str = "gram",
        init: str | ArrayLike = "rpcholesky",
        max_iter: int = 30,
        tol: float = 1e-4,
        half_life: float | None = None,
        sparse_output: bool = False,
        device: Device = None,
        n_jobs: int | None = None,
        random_state: RandomState | int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_nonzero_coefs = n_nonzero_coefs
        self.residual_tol = residual_tol
        self.pursuit = pursuit
        self.atom_update = atom_update
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.half_life = half_life
        self.sparse_output = sparse_output
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _working_width(self, n_signals: int, n_features: int) -> int:
        return n_features + 3 * self.n_components

    _is_linear = True

    def _feature_map(self, signals: Signals, rng: np.random.RandomState) -> LinearMap:
        return LinearMap(signals.shape[1])

    def _space_on(self, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
        return SignalSpace(n_features)

    def _learned_vectors(self, problem: Any, signals: Signals) -> tuple[None, None]:
        return None, None

    def _residual_norms(self, rows: Any, codes: Any, squares: np.ndarray, encoder: Encoder) -> np.ndarray:
        # From the residual itself: the difference of squares has no digits left where the fit is close.
        residual = rows - codes.to_csr(self.n_components) @ encoder.atoms
        return np.sqrt(np.einsum("ij,ij->i", residual, residual))

    def _decoder(self, dtype: np.dtype) -> LinearDecoder:
        return LinearDecoder(self.components_.astype(dtype, copy=False))

    def _noise_tolerance(self, noise: float) -> float:
        return squared_residual_of_noise("linear", noise, self.n_features_in_, None)


class FourierDL(Decoding, _CoordinateLearner):
    """Dictionary learning on random Fourier features of the RBF kernel.

    The kernel ``exp(-gamma |x - y|^2)`` is replaced by the inner product of random cosines and sines, and the
    dictionary is learned in that space. One of the alternatives that the paper names.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms n.
    n_fourier_features : int, default=256
        Number of features, a cosine and a sine for each random frequency; odd numbers are rounded up.
    gamma : float, "median" or "scale", default="median"
        The kernel's parameter; "median" is one over the median squared distance of a sample, "scale" is
        ``1 / (n_features * X.var())`` as in scikit-learn's SVC.
    n_nonzero_coefs : int or None, default=4
        Most non-zeros of a code; None for no limit but `residual_tol`, and without that a tenth of the atoms.
    residual_tol : float, default=None
        Stop a signal's pursuit when its squared residual is at most this.
    pursuit : {"ols", "omp"}, default="ols"
        Orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        From the codes' statistics, or the paper's sweep, which also refits the codes on their support.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_fourier_features), default="rpcholesky"
        First atoms. "rpcholesky" draws signals one after another, each with the probability of what the earlier ones
        leave of its features (randomly pivoted Cholesky); "data" draws signals at random, "random" Gaussian vectors;
        an array gives them.
    max_iter : int, default=30
        Most iterations.
    tol : float, default=1e-4
        Stop when two errors in a row differ by less than this share from the smallest before them, or none was smaller
        for ten iterations; 0 disables.
    half_life : float, default=None
        Number of signals after which what `partial_fit` learned from a signal counts half, whatever the batches they
        came in; None for never less.
    fit_inverse_transform : bool, default=False
        Whether `fit` and `partial_fit` also learn a decoder, by ridge regression from feature space to signals in one
        more walk over them, that `inverse_transform` and `denoise` use. Without it they need
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
        Randomness of the frequencies and the first atoms.
    verbose : int, default=0
        A progress bar if positive.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_fourier_features)
        Atoms of unit norm, in the space of the features.
    frequencies_ : ndarray of shape (n_fourier_features / 2, n_features)
        The random frequencies.
    gamma_ : float
        The kernel's parameter as used.
    computes_in_float64_ : bool
        Whether codes leave so little of the signals that it takes float64 to find them, so that signals of float32 are
        worked on in float64. Results are float32 all the same.
    errors_ : ndarray of shape (n_iter_,)
        ``sqrt(f / (m N))`` after every iteration up to that of the returned model, f the squared error in the space of
        the features of the signals coded with the atoms that the iteration ended with. A greedy pursuit may raise it.
    update_errors_ : ndarray of shape (n_updates,)
        The error right after every update that was made, with the codes that it was made for: what the paper reports.
    n_iter_ : int
        Iteration that ended with the returned model, the best that was met.
    n_revived_ : int
        Unused atoms that were replaced by badly represented signals.
    decoder_ : ndarray of shape (n_components, n_features)
        What codes of unit length in feature space are multiplied by to give signals; only where a decoder was learned.
    decoder_intercept_ : ndarray of shape (n_features,)
        What is added to the product; only where a decoder was learned.
    n_features_in_ : int
        Length of a signal.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had string names.

    See Also
    --------
    RKDL : Learned kernel vectors instead of random features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import FourierDL
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = FourierDL(n_components=32, random_state=0).fit(X)
    >>> model.components_.shape
    (32, 256)
    """

    _parameter_constraints: dict = {
        **Decoding._parameter_constraints,
        **StreamLearner._parameter_constraints,
        "n_fourier_features": [Interval(Integral, 1, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions(set(RULES))],
    }

    def __init__(
        self,
        n_components: int = 20,
        *,
        n_fourier_features: int = 256,
        gamma: float | str = "median",
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
        self.n_fourier_features = n_fourier_features
        self.gamma = gamma
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

    def _depends_on_scale(self) -> bool:
        return isinstance(self.gamma, str)

    def _settings(self) -> dict:
        return {**super()._settings(), "n_fourier_features": self.n_fourier_features, "gamma": self.gamma}

    def _working_width(self, n_signals: int, n_features: int) -> int:
        return n_features + 2 * self.n_fourier_features + 3 * self.n_components

    def _feature_map(self, signals: Signals, rng: np.random.RandomState) -> FourierMap:
        raw_gamma(self.gamma, signals)
        gamma = find_gamma(self.gamma, signals)
        sample = spread_sample(signals, KERNEL_SAMPLE)
        check_kernel(make_kernel("rbf", gamma=gamma, degree=1, coef0=0.0, sample=sample), sample)
        count = -(-self.n_fourier_features // 2)
        return FourierMap(np.sqrt(2.0 * gamma) * rng.standard_normal((count, signals.shape[1])))

    def _sample_products(self, sample: np.ndarray) -> np.ndarray | None:
        return make_kernel("rbf", gamma=sample_gamma(self.gamma, sample), degree=1, coef0=0.0, sample=sample)(
            sample, sample
        )

    def _places(self) -> tuple[str | None, str]:
        return "atoms", "Lower gamma, or use more atoms."

    def _store(self, problem: Any, signals: Signals) -> None:
        super()._store(problem, signals)
        self.frequencies_, self.gamma_ = self._learned_vectors(problem, signals)

    def _space_on(self, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
        return FourierSpace(vectors, gamma)

    def _learned_vectors(self, problem: Any, signals: Signals) -> tuple[np.ndarray, float]:
        frequencies = (host(problem.feature_map.frequencies) * signals.scale).astype(signals.dtype)
        return frequencies, raw_gamma(self.gamma, signals)

    def _noise_tolerance(self, noise: float) -> float:
        return squared_residual_of_noise("rbf", noise, self.n_features_in_, self.gamma_)
