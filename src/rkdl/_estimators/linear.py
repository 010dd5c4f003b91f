"""Dictionary learning on explicit features: the signals themselves, or random Fourier features."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._backends.arrays import host, squared_norms
from rkdl._coding.encoder import Encoder
from rkdl._coding.preimages import LinearDecoder, squared_residual_of_noise
from rkdl._data.signals import Signals
from rkdl._estimators.denoising import Decoding, Denoising
from rkdl._estimators.gamma import KERNEL_SAMPLE, RULES, find_gamma, sample_gamma, spread_sample
from rkdl._estimators.stream import StreamLearner
from rkdl._execution.executor import Executor
from rkdl._features.kernels import make_kernel
from rkdl._features.maps import FeatureMap, FourierMap, LinearMap
from rkdl._features.metric import IdentityMetric
from rkdl._features.space import FeatureSpace, FourierSpace, SignalSpace
from rkdl._learning.atom_updates import ATOM_UPDATES
from rkdl._learning.diagnostics import check_kernel
from rkdl._learning.initial_atoms import first_coordinates
from rkdl._learning.reduced import Model, ReducedProblem
from rkdl._utils.types import Device


class _CoordinateLearner(StreamLearner):
    """Base of the methods whose atoms are feature vectors, so that the metric is the identity."""

    def _feature_map(self, signals: Signals, rng: RandomState, gamma: float | None) -> FeatureMap:
        raise NotImplementedError

    def _problem(
        self, executor: Executor, rng: RandomState, gamma: float | None, saved: dict | None = None
    ) -> ReducedProblem:
        signals = executor.signals
        feature_map = self._feature_map(signals, rng, gamma)
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
        return self._problem_at(executor, feature_map, start)

    def _continued(self, executor: Executor, gamma: float | None) -> ReducedProblem:
        feature_map = self._space.feature_map(np.dtype(np.float64))
        return self._problem_at(executor, feature_map, self.components_.astype(np.float64))

    def _problem_at(self, executor: Executor, feature_map: FeatureMap, atoms: np.ndarray) -> ReducedProblem:
        model = Model.start(feature_map, IdentityMetric(feature_map.size), atoms)
        pursuit, atom_update = self._pursuit(), ATOM_UPDATES[self.atom_update]
        return ReducedProblem(executor, model, pursuit, atom_update=atom_update)

    def _store(self, problem: Any, signals: Signals, gamma: float | None) -> None:
        self.components_ = host(problem.model.whitened_atoms).astype(signals.dtype)

    def _atoms_and_gram(self) -> tuple[np.ndarray, np.ndarray]:
        atoms = self.components_.astype(np.float64)
        return self.components_, atoms @ atoms.T


class DL(Denoising, _CoordinateLearner):
    """Linear dictionary learning: every signal is a sparse combination of atoms.

    Alternates sparse coding by a greedy pursuit (OLS or OMP) with an update of the atoms.

    Parameters
    ----------
    n_components : int, default=20
        Number of atoms.
    n_nonzero_coefs : int or None, default=4
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit if `residual_tol` is set.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual is at most this; None disables.
    pursuit : {"ols", "omp"}, default="ols"
        Greedy sparse coding: orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        "gram" uses the sufficient statistics of the codes; "aksvd" is the sweep of the paper, which also refits codes.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_features), default="rpcholesky"
        Initial atoms: signals drawn by randomly pivoted Cholesky, or uniformly; Gaussian vectors; or those of an array.
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
    half_life : float, default=None
        Number of signals after which the weight of a signal in `partial_fit` is halved; None means that it stays.
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
        coded anew. It may increase, because the pursuit is greedy.
    update_errors_ : ndarray of shape (n_updates,)
        Error right after each update, with the codes that the update was computed for: what the paper reports.
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

    def _feature_map(self, signals: Signals, rng: RandomState, gamma: float | None) -> LinearMap:
        return LinearMap(signals.shape[1])

    def _space_on(self, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
        return SignalSpace(n_features)

    def _learned_vectors(self, problem: Any, signals: Signals, gamma: float | None) -> tuple[None, None]:
        return None, None

    def _squared_residuals(self, rows: Any, codes: Any, squares: Any, encoder: Encoder) -> Any:
        # From the residual itself: a difference of squares loses all digits where the fit is close.
        return squared_norms(rows - codes.times(encoder.atoms))

    def _decoder(self, dtype: np.dtype) -> LinearDecoder:
        return LinearDecoder(self.components_.astype(dtype, copy=False))

    def _noise_tolerance(self, noise: float) -> float:
        return squared_residual_of_noise("linear", noise, self.n_features_in_, None)


class FourierDL(Decoding, _CoordinateLearner):
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
        Maximum nonzero coefficients per signal; None means a tenth of the atoms, or no limit if `residual_tol` is set.
    residual_tol : float, default=None
        Stop coding a signal when its squared residual in feature space is at most this; None disables.
    pursuit : {"ols", "omp"}, default="ols"
        Greedy sparse coding: orthogonal least squares, or orthogonal matching pursuit as in the paper.
    atom_update : {"gram", "aksvd"}, default="gram"
        "gram" uses the sufficient statistics of the codes; "aksvd" is the sweep of the paper, which also refits codes.
    init : {"rpcholesky", "data", "random"} or array of shape (n_components, n_fourier_features), default="rpcholesky"
        Initial atoms: signals drawn by randomly pivoted Cholesky, or uniformly; Gaussian vectors; or those of an array.
    max_iter : int, default=30
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop after two iterations with a relative change of the error below this, or ten without progress; 0 disables.
    half_life : float, default=None
        Number of signals after which the weight of a signal in `partial_fit` is halved; None means that it stays.
    fit_inverse_transform : bool, default=False
        Whether to learn a decoder from codes to signals in one more pass over the data. Without it, `inverse_transform`
        and `denoise` need `fit_decoder`.
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
        of N signals of length m. It may increase, because the pursuit is greedy.
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

    def _find_gamma(self, signals: Signals) -> float | None:
        return find_gamma(self.gamma, signals)

    def _settings(self) -> dict:
        return {**super()._settings(), "n_fourier_features": self.n_fourier_features, "gamma": self.gamma}

    def _working_width(self, n_signals: int, n_features: int) -> int:
        return n_features + 2 * self.n_fourier_features + 3 * self.n_components

    def _feature_map(self, signals: Signals, rng: RandomState, gamma: float | None) -> FourierMap:
        assert gamma is not None
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

    def _store(self, problem: Any, signals: Signals, gamma: float | None) -> None:
        super()._store(problem, signals, gamma)
        self.frequencies_, self.gamma_ = self._learned_vectors(problem, signals, gamma)

    def _space_on(self, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
        return FourierSpace(vectors, gamma)

    def _learned_vectors(self, problem: Any, signals: Signals, gamma: float | None) -> tuple[np.ndarray, float]:
        assert gamma is not None
        return host(problem.model.feature_map.frequencies).astype(signals.dtype), gamma

    def _noise_tolerance(self, noise: float) -> float:
        return squared_residual_of_noise("rbf", noise, self.n_features_in_, self.gamma_)
