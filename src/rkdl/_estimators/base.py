"""Base of the estimators with a dictionary: coding signals and turning codes back into signals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._backends.base import PURSUITS
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encode import check_pursuit
from rkdl._coding.encoder import Pursuit
from rkdl._data.open import open_signals
from rkdl._data.signals import Signals
from rkdl._estimators.fitting import as_fitted, freeze, made_once, read_signals, with_one_model
from rkdl._estimators.saving import save
from rkdl._features.maps import GivenKernelMap
from rkdl._utils.types import Array, Device, MatrixLike
from rkdl._utils.warnings import warn


@dataclass(eq=False, repr=False, kw_only=True)
class DictionaryEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators with one dictionary; the fields of estimators are their parameters."""

    n_nonzero_coefs: int | None = 4
    residual_tol: float | None = None
    rtol: float | None = None
    pursuit: str = "ols"
    alpha: float = 0.1
    l2: float = 0.0
    positive_code: bool = False
    sparse_output: bool = False
    device: Device = None
    n_jobs: int | None = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_nonzero_coefs": [Interval(Integral, 1, None, closed="left"), None],
        "residual_tol": [Interval(Real, 0, None, closed="left"), None],
        "rtol": [Interval(Real, 0, None, closed="left"), None],
        "pursuit": [StrOptions(set(PURSUITS))],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l2": [Interval(Real, 0, None, closed="left")],
        "positive_code": ["boolean"],
        "missing": [StrOptions({"error", "ignore"})],
        "sparse_output": ["boolean"],
        "device": "no_validation",
        "n_jobs": [Integral, None],
    }
    # Fitted attributes that the dictionary is made of.
    _parts: ClassVar[tuple[str, ...]] = ("components_", "decoder_", "decoder_intercept_")

    @abstractmethod
    def _assemble(self) -> FittedDictionary:
        """The dictionary of the fitted attributes."""

    def _dictionary(self) -> FittedDictionary:
        """The fitted dictionary, made anew if a fitted attribute or an option of the pursuit was set."""
        options = *self._pursuit_options, getattr(self, "missing", "error")
        dictionary = made_once(self, self._parts, options, self._assemble)
        if self.n_nonzero_coefs is not None and self.n_nonzero_coefs > dictionary.n_atoms:
            # Warns at every call.
            self._make_pursuit(dictionary.n_atoms)
        return dictionary

    @property
    def _pursuit_options(self) -> tuple[Any, ...]:
        limits = self.n_nonzero_coefs, self.residual_tol, self.rtol
        return *limits, self.pursuit, self.alpha, self.l2, self.positive_code

    def _make_pursuit(self, n_atoms: int) -> Pursuit:
        return check_pursuit(n_atoms, *self._pursuit_options)

    def _read_signals(self, X: MatrixLike, *, reset: bool) -> Signals:
        """Signals in memory or not, checked; whether they are finite is seen in the first pass over them."""
        missing = getattr(self, "missing", "error")
        signals = read_signals(self, X, reset=reset, device=self.device, allows_nan=missing == "ignore")
        signals = signals.with_missing(missing)
        if not reset and getattr(self, "computes_in_float64_", False):
            return signals.with_dtype(np.dtype(np.float64))
        return signals

    def _open(self, X: MatrixLike) -> tuple[FittedDictionary, Signals]:
        """The dictionary, and signals to be coded with it."""
        dictionary, signals = self._dictionary(), self._read_signals(X, reset=False)
        if dictionary.runs_user_code:
            signals.check_finite()
        return dictionary, signals

    @with_one_model
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
        dictionary, signals = self._open(X)
        if signals.is_remote:
            output = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
            if output != "default":
                raise ValueError(
                    f"transform_output={output!r} would bring all codes of a lazy Dask array to this machine: use "
                    f"set_output(transform='default'), and dask.dataframe.from_dask_array for a lazy data frame."
                )
        encode = self._method_for(signals, dictionary, "encode")
        return encode(signals, sparse_output=self.sparse_output, **self._given_norms(signals))

    def _method_for(self, signals: Signals, dictionary: FittedDictionary, name: str) -> Callable[..., Array]:
        """A method of the dictionary, with lazy results if the signals are a Dask array."""
        if signals.is_remote:
            from rkdl._estimators.lazy import apply_lazily

            return partial(apply_lazily, dictionary, name)
        return partial(getattr(dictionary, name), n_jobs=self.n_jobs)

    def _given_norms(self, signals: Signals, *, for_residuals: bool = False) -> dict[str, np.ndarray]:
        """Squared norms (n_signals,) of the signals, as an option for a dictionary that cannot compute them."""
        return {}

    @with_one_model
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
        dictionary, signals = self._open(X)
        norms = self._given_norms(signals, for_residuals=True)
        return self._method_for(signals, dictionary, "residual_norms")(signals, **norms)

    @with_one_model
    def score(self, X: MatrixLike, y: None = None) -> float:
        """Compute the fraction of the signals' energy that their codes retain; higher is better.

        Errors are those of `inverse_transform`, in the space of the signals, so scores of different methods, kernels
        and values of gamma can be compared. Where codes cannot be turned back into signals, they are in feature space,
        with a warning unless the kernel is precomputed.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        score : float
            ``1 - sum of squared errors / sum of squared norms``, at most 1.
        """
        dictionary, signals = self._open(X)
        if dictionary.find_decoder(signals.dtype) is None and not isinstance(dictionary.feature_map, GivenKernelMap):
            warn(
                f"This {type(self).__name__} cannot turn codes back into signals, so its score is in feature space, "
                f"where it cannot be compared between values of gamma: set fit_inverse_transform=True before fit."
            )
        if signals.is_remote:
            from rkdl._estimators.lazy import energies_of_blocks

            parts = energies_of_blocks(dictionary, signals)  # type: ignore[arg-type]
        else:
            norms = self._given_norms(signals, for_residuals=True)
            parts = [dictionary.energies(signals, n_jobs=self.n_jobs, **norms)]
        residual_energy, energy = (sum(part[i] for part in parts) for i in (0, 1))
        return 1.0 - residual_energy / energy if energy > 0.0 else 1.0

    @with_one_model
    def inverse_transform(self, X: MatrixLike) -> Array:
        """Reconstruct signals from their codes.

        This is exact for `DL` and the linear kernel, and iterative (slower) for kernel "rbf". A decoder, which
        `fit_inverse_transform` or `fit_decoder` learns, makes it a linear map; other kernels, and FourierDL, need one.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_components)
            Codes, one per row, as any kind of array that `fit` takes.

        Returns
        -------
        signals : ndarray of shape (n_signals, n_features)
            Signals, one per row, in the dtype of the codes. A lazy Dask array or a tensor if `X` is one.
        """
        dictionary = self._dictionary()
        codes = open_signals(X, caller=type(self).__name__, device=self.device)
        if codes.shape[1] != dictionary.n_atoms:
            raise ValueError(f"The codes have {codes.shape[1]} columns and the dictionary {dictionary.n_atoms} atoms.")
        # Raised here, and not on the workers, if there is none.
        self._check_decodable(dictionary, codes.dtype)
        return self._method_for(codes, dictionary, "decode")(codes)

    def _check_decodable(self, dictionary: FittedDictionary, dtype: np.dtype) -> None:
        """Raise if codes cannot be turned back into signals."""
        check_has_signals(is_precomputed=isinstance(dictionary.feature_map, GivenKernelMap))
        if dictionary.find_decoder(dtype) is None:
            raise NotFittedError(
                f"This {type(self).__name__} has not learned to turn codes back into signals: set "
                f"fit_inverse_transform=True before fit, or call fit_decoder with signals."
            )

    @with_one_model
    def atom_preimages(self) -> np.ndarray:
        """Return one displayable signal (pre-image) per atom.

        In general no signal is mapped to an atom exactly; its pre-image is found as `inverse_transform` finds that of a
        code. Since codes may subtract an atom, it is that of the atom or its negative, whichever comes closer.

        Returns
        -------
        signals : ndarray of shape (n_components, n_features)
            Pre-images, one per row, in the units of the training signals. For DL and the linear kernel, the atoms.
        """
        dictionary = self._dictionary()
        self._check_decodable(dictionary, dictionary.atoms.dtype)
        return dictionary.preimages(n_jobs=self.n_jobs)

    @with_one_model
    def denoise(self, X: MatrixLike, *, noise: float | None = None) -> Array:
        """Denoise signals: `transform` and `inverse_transform` in one pass over the data.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        noise : float, default=None
            Standard deviation of the noise per feature. The result is then a weighted average of reconstructions from
            0, 1, 2, ... atoms, with larger weights for those whose error is probably small, plus a share of the
            residual if it is larger than the noise. None means to code as `transform` does.

        Returns
        -------
        signals : ndarray of shape (n_signals, n_features)
            Denoised signals, in the dtype of `X`. A lazy Dask array or a tensor if `X` is one.
        """
        dictionary, signals = self._open(X)
        if noise is not None:
            if isinstance(noise, bool) or not (isinstance(noise, Real) and 0.0 <= float(noise) < np.inf):
                raise ValueError(f"noise={noise!r} must be the standard deviation of the noise, a nonnegative number.")
            noise = float(noise)
            if signals.allows_nan:
                raise ValueError("noise does not allow for missing numbers: predict them first, with noise=None.")
        self._check_decodable(dictionary, signals.dtype)
        return self._method_for(signals, dictionary, "denoise")(signals, noise=noise)

    save = save

    @property
    def _n_features_out(self) -> int:
        return as_fitted(self)._dictionary().n_atoms

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        freeze(self, self._parts)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = getattr(self, "missing", "error") == "ignore"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_has_signals(*, is_precomputed: bool) -> None:
    """Raise if the kernel is precomputed, so that the signals are not known."""
    if is_precomputed:
        raise ValueError(
            "With a precomputed kernel, codes cannot be turned back into signals, which are not known: give the kernel "
            "by name or as a function, and leave fit_inverse_transform at False for a precomputed one."
        )
