"""What estimators that code signals share: validation, transform, residuals and scores."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from rkdl._backends.arrays import cast, host
from rkdl._backends.base import backend_of, is_tensor
from rkdl._backends.devices import to_device
from rkdl._coding.encode import check_pursuit, encode_signals
from rkdl._coding.encoder import Encoder, Pursuit, map_rows
from rkdl._data.open import is_dask, is_plain, open_signals
from rkdl._data.signals import Signals
from rkdl._estimators.documentation import DocumentationLink
from rkdl._estimators.prepared import fitted_view, prepared
from rkdl._estimators.saving import save
from rkdl._execution.blas import one_blas_thread
from rkdl._features.space import FeatureSpace
from rkdl._utils.inputs import check_rows_finite
from rkdl._utils.types import Array, Device, MatrixLike
from rkdl._utils.warnings import quiet


class Prepared(NamedTuple):
    """What codes signals of one dtype, and what it is given of them and returns."""

    encoder: Encoder
    factors: np.ndarray  # what codes of the encoder's atoms are multiplied by (n,)


class Coder(DocumentationLink, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators that code signals with fitted atoms. Subclasses define features and atoms."""

    n_nonzero_coefs: int | None
    residual_tol: float | None
    pursuit: str
    sparse_output: bool
    device: Device
    n_jobs: int | None

    # Whether features grow in proportion to the signals.
    _is_linear = False

    @property
    @abstractmethod
    def _n_atoms(self) -> int:
        """Number of atoms."""

    @property
    @abstractmethod
    def _space(self) -> FeatureSpace:
        """The feature space of the fitted atoms."""

    @abstractmethod
    def _atoms_and_gram(self) -> tuple[np.ndarray, np.ndarray]:
        """Fitted atoms (n, p), in the coordinates of the features, and their inner products (n, n)."""

    def _fitted(self) -> Self:
        """The estimator as it was fitted, or an error if it is not."""
        view: Self = as_fitted(self)
        return view

    def _read_signals(self, X: Any, *, reset: bool) -> Signals:
        """Signals in memory or not, checked; whether they are finite is seen in the first pass over them."""
        return read_signals(self, X, reset=reset, device=self.device)

    @one_blas_thread()
    def transform(self, X: MatrixLike) -> Array:
        """Compute sparse codes of signals.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.

        Returns
        -------
        codes : ndarray or csr_array of shape (n_signals, n_components)
            Sparse codes, in CSR format if `sparse_output`. A lazy Dask array or a tensor if `X` is one.
        """
        model = self._fitted()
        signals, ready = model._ready(X)
        if signals.is_remote:
            from rkdl._estimators.lazy import transform_lazily

            return transform_lazily(model, signals)
        norms = model._given_norms(signals)
        encoder = model._encoder_for(signals, ready)
        codes = encode_signals(
            signals, encoder, self.sparse_output, self.n_jobs, factors=ready.factors, squared_norms=norms
        )
        return signals.as_given(codes)

    def _given_norms(self, signals: Signals) -> np.ndarray | None:
        """Squared norms (n_signals,) of the signals for `transform`; None where the encoder computes them."""
        return None

    @one_blas_thread()
    def reconstruction_error(self, X: MatrixLike) -> Array:
        """Compute the norm of the residual of each signal in feature space.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.

        Returns
        -------
        errors : ndarray of shape (n_signals,)
            Distances in feature space between signals and their representations. A lazy Dask array or a tensor if `X`
            is one.
        """
        model = self._fitted()
        if is_dask(X):
            from rkdl._estimators.lazy import map_blocks

            signals = model._ready(X)[0]
            return map_blocks(model, signals.data, "reconstruction_error", np.empty(0, dtype=signals.result_dtype))
        return model._residuals(X)[0]

    @one_blas_thread()
    def score(self, X: MatrixLike, y: None = None) -> float:
        """Compute the fraction of the signals' energy in feature space that their codes explain; higher is better.

        It compares numbers of atoms, sparsities and methods, but cannot choose `gamma`: as gamma decreases, all signals
        approach one point in feature space, which any dictionary represents.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        score : float
            ``1 - sum of squared residuals / sum of squared norms``, at most 1.
        """
        model = self._fitted()
        if is_dask(X):
            from rkdl._estimators.lazy import norms_of_blocks

            parts = norms_of_blocks(model, model._ready(X)[0])
        else:
            parts = [model._energies(X)]
        residual_energy, energy = (sum(part[i] for part in parts) for i in (0, 1))
        return 1.0 - residual_energy / energy if energy > 0.0 else 1.0

    def _energies(self, X: Any) -> tuple[float, float]:
        """Sums of squared residuals and of squared norms."""
        # In float64: norms of signals near the largest number of float32 leave its range.
        residuals, norms = self._residuals(X, np.float64)
        return float(np.sum(host(residuals) ** 2)), float(np.sum(host(norms) ** 2))

    def _residuals(self, X: Any, dtype: Any = None) -> tuple[Array, Array]:
        """Norms of residuals and signals in feature space, in `dtype` or else that of the signals."""
        signals, ready = self._ready(X)

        def work(coder: Encoder, decoder: None, rows: Any) -> tuple[Any, Any]:
            features, norms, codes, squares = coder.encode(rows)
            squares = self._squared_residuals(rows, codes, squares, coder)
            return features, cast(backend_of(norms).stack([squares, norms]).T, np.float64) ** 0.5

        both = map_rows(signals, self._encoder_for(signals, ready), None, 2, self.n_jobs, work, dtype)
        both = both if dtype is not None else signals.as_given(both)
        return both[:, 0], both[:, 1]

    def _squared_residuals(self, rows: Any, codes: Any, squares: Any, encoder: Encoder) -> Any:
        return squares

    def _ready(self, X: MatrixLike) -> tuple[Any, Prepared]:
        """Signals as they are to be read, and what codes them."""
        signals = self._read_signals(X, reset=False)
        ready = self._coding(signals.dtype)
        if self.n_nonzero_coefs is not None and self.n_nonzero_coefs > self._n_atoms:
            # Warns at every call.
            self._pursuit()
        return signals, ready

    def _encoder_for(self, signals: Signals, ready: Prepared) -> Encoder:
        """The encoder where the signals are; it is sent to a device once."""
        device = signals.device
        if device is None:
            return ready.encoder
        return prepared(self, (signals.dtype, device), lambda: placed(ready.encoder.with_gram(), device))

    def _coding(self, dtype: np.dtype) -> Prepared:
        """What codes signals of `dtype`; computed once for the model."""

        def compute() -> Prepared:
            with quiet():
                return self._prepare_coding(dtype)

        return prepared(self, dtype, compute)

    def _prepare_coding(self, dtype: np.dtype) -> Prepared:
        """What codes signals of `dtype`."""
        return Prepared(self._encoder(dtype), np.ones(self._n_atoms, dtype=dtype))

    def _encoder(self, dtype: np.dtype) -> Encoder:
        """What codes signals of `dtype`."""
        atoms, gram = self._atoms_and_gram()
        return Encoder(self._space.feature_map(dtype), atoms.astype(dtype), gram.astype(dtype), self._pursuit())

    def _pursuit(self) -> Pursuit:
        return check_pursuit(self.n_nonzero_coefs, self.residual_tol, self.pursuit, self._n_atoms)

    save = save

    @property
    def _n_features_out(self) -> int:
        return self._fitted()._n_atoms

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def ensure_fitted(estimator: Any) -> None:
    """As scikit-learn's `check_is_fitted`, which takes longer than coding a signal because it makes all tags first."""
    if "n_features_in_" not in vars(estimator):
        check_is_fitted(estimator)


def as_fitted(estimator: Any) -> Any:
    """The estimator as it was fitted, whatever its parameters are now, or an error if it is not fitted."""
    ensure_fitted(estimator)
    return fitted_view(estimator)


def read_quickly(estimator: Any, X: Any, *, reset: bool, device: Any) -> Signals:
    """As `read_signals`; a tensor in host memory is read as the array that shares it, which NumPy processes faster."""
    signals = read_signals(estimator, X, reset=reset, device=device)
    is_host_tensor = device is None and signals.device is not None and signals.device.type == "cpu"
    return signals.on_host() if is_host_tensor else signals


def placed(value: Any, device: Any) -> Any:
    """The value with its arrays as tensors on a device; as it is without one."""
    if device is None:
        return value
    return to_device(value, device)


def read_signals(estimator: Any, X: Any, *, reset: bool, device: Any = None) -> Signals:
    """Signals in memory or not, whose features are those of the estimator, or with `reset` become them."""
    signals = open_signals(X, caller=type(estimator).__name__, device=device)
    known = vars(estimator)
    is_simple = is_plain(X) or is_tensor(X)
    if reset or "feature_names_in_" in known or not is_simple or X.shape[1] != known.get("n_features_in_"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    if hasattr(X, "columns") and isinstance(signals.data, np.ndarray):
        # Of a data frame, while the names of its columns are known; after the check of these names.
        check_rows_finite(signals.data, columns=list(X.columns))
    return signals
