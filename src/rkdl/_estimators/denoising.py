"""From codes back to signals: inverse transform, denoising and learned decoders."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import Interval

from rkdl._backends.arrays import host, is_tensor
from rkdl._coding.encoder import Encoder, NotFiniteError, map_rows
from rkdl._coding.preimages import (
    Decode,
    DecoderSums,
    FixedPoint,
    LinearDecoder,
    choose_signs,
    decode_rows,
    learn_decoder,
)
from rkdl._data.open import is_dask, open_signals
from rkdl._data.signals import Signals, float_dtype
from rkdl._data.sources import check_source
from rkdl._estimators.base import DictionaryLearner
from rkdl._estimators.coder import Coder
from rkdl._estimators.prepared import prepared
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import Executor
from rkdl._utils.types import Array, MatrixLike

Decoder = LinearDecoder | FixedPoint


class Denoising(Coder):
    """Base of the methods with `inverse_transform` and `denoise`."""

    @abstractmethod
    def _decoder(self, dtype: np.dtype) -> Decoder:
        """The decoder from codes of `dtype` to the user's signals."""

    @abstractmethod
    def _noise_tolerance(self, noise: float) -> float:
        """The squared residual in feature space that noise of this standard deviation leaves."""

    @one_blas_thread()
    def inverse_transform(self, X: MatrixLike) -> Array:
        """Reconstruct signals from their codes.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_components)
            Codes, one per row, as any kind of array that `fit` takes.

        Returns
        -------
        signals : ndarray of shape (n_signals, n_features)
            Signals, one per row, in the dtype of the codes. A lazy Dask array or a tensor if `X` is one.
        """
        model = self._fitted()
        if is_dask(X):
            check_source(X, type(self).__name__)
            codes: Any = X
        else:
            codes = open_signals(X, caller=type(self).__name__, device=self.device)
        n_atoms, n_features = model._n_atoms, model.n_features_in_
        if codes.shape[1] != n_atoms:
            raise ValueError(f"The codes have {codes.shape[1]} columns and the dictionary {n_atoms} atoms.")
        dtype = float_dtype(codes.dtype)
        # Raised here, and not on the workers, if there is none.
        decoder = model._prepared_decoder(dtype)
        if is_dask(X):
            from rkdl._estimators.lazy import map_blocks

            return map_blocks(
                model, codes.rechunk({1: -1}), "inverse_transform", np.empty((0, n_features), dtype=dtype)
            )
        return decode_rows(codes, decoder, n_features, self.n_jobs)

    @one_blas_thread()
    def atom_preimages(self) -> np.ndarray:
        """Compute a signal for each atom, to look at: its pre-image.

        In general no signal is mapped to an atom exactly; its pre-image is found as `inverse_transform` finds that of a
        code. Since codes may subtract an atom, it is that of the atom or its negative, whichever comes closer.

        Returns
        -------
        signals : ndarray of shape (n_components, n_features)
            Pre-images, one per row, in the units of the training signals. For DL and the linear kernel, the atoms.
        """
        model = self._fitted()
        atoms = np.eye(model._n_atoms, dtype=model._atoms_and_gram()[0].dtype)
        signals = model.inverse_transform(atoms)
        if model._is_linear:
            return signals
        encoder = model._encoder(signals.dtype)
        return choose_signs(signals, model.inverse_transform(-atoms), encoder.feature_map, encoder.atoms)

    @one_blas_thread()
    def denoise(self, X: MatrixLike, *, noise: float | None = None) -> Array:
        """Replace signals by what their codes represent: `transform` and `inverse_transform` in one pass over the data.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        noise : float, default=None
            Standard deviation of the noise per feature. Each signal is then coded with the fewest atoms that leave a
            residual at noise level, whatever `n_nonzero_coefs` and `residual_tol` are; not for kernels other than
            "rbf" and "linear". None means to code as `transform` does.

        Returns
        -------
        signals : ndarray of shape (n_signals, n_features)
            Denoised signals, in the dtype of `X`. A lazy Dask array or a tensor if `X` is one.
        """
        model = self._fitted()
        if noise is not None:
            if isinstance(noise, bool) or not (isinstance(noise, Real) and 0.0 <= float(noise) < np.inf):
                raise ValueError(f"noise={noise!r} must be the standard deviation of the noise, a nonnegative number.")
            model._noise_tolerance(float(noise))
        signals, (encoder, _) = model._ready(X)
        if is_dask(X):
            from rkdl._estimators.lazy import map_blocks

            empty = np.empty((0, signals.shape[1]), dtype=signals.result_dtype)
            return map_blocks(model, signals.data, "denoise", empty, noise=noise)
        if noise is not None:
            tolerance = model._noise_tolerance(float(noise))
            pursuit = encoder.pursuit._replace(n_nonzero=encoder.n_atoms, residual_tol=tolerance)
            encoder = replace(encoder, pursuit=pursuit)
        decoder = model._own_decoder(encoder, signals.dtype)

        def work(coder: Encoder, decoder: Any, rows: Any) -> tuple[Any, Any]:
            codes, checked = coder.checked_codes(rows)
            return checked, decoder(codes.dense(coder.n_atoms) if is_tensor(rows) else codes.to_csr(coder.n_atoms))

        return signals.as_given(map_rows(signals, encoder, decoder, signals.shape[1], self.n_jobs, work))

    def _own_decoder(self, encoder: Encoder, dtype: np.dtype) -> Decoder:
        """The decoder from codes of the encoder's atoms, before they are multiplied by any factors."""
        return self._prepared_decoder(dtype)

    def _prepared_decoder(self, dtype: np.dtype) -> Decoder:
        """`_decoder`, computed once for the model."""
        return prepared(self, ("decoder", dtype), lambda: self._decoder(dtype))


class Decoding(Denoising, DictionaryLearner):
    """Base of the methods that can learn a linear decoder from codes to signals."""

    _parameter_constraints: dict = {
        **DictionaryLearner._parameter_constraints,
        "fit_inverse_transform": ["boolean"],
        "decoder_alpha": [Interval(Real, 0, None, closed="left")],
    }

    fit_inverse_transform: bool
    decoder_alpha: float

    @one_blas_thread()
    def fit_decoder(self, X: MatrixLike) -> Self:
        """Learn a linear decoder from codes to signals, for any kernel; the dictionary does not change.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals like those of `fit`, one per row.

        Returns
        -------
        self : object
            The estimator, with `decoder_` and `decoder_intercept_`.
        """
        model = self._fitted()
        model._check_decodable()
        signals, (encoder, *_) = model._ready(X)
        with model._executor(signals) as executor:
            try:
                sums = model._decoder_sums(executor, encoder)
            except NotFiniteError:
                signals.check_finite()
                raise
        self.decoder_, self.decoder_intercept_ = model._solve_decoder(sums, signals, encoder)
        return self

    def forget_decoder(self) -> Self:
        """Remove the decoder; with kernels "rbf" and "linear", signals can still be reconstructed without it.

        Returns
        -------
        self : object
            The estimator, without `decoder_` and `decoder_intercept_`.
        """
        for name in ("decoder_", "decoder_intercept_"):
            self.__dict__.pop(name, None)
        return self

    def _learn_inverse(self, executor: Executor, earlier: DecoderSums | None = None) -> DecoderSums | None:
        if not self.fit_inverse_transform:
            # A decoder of an earlier fit belongs to other atoms.
            self.forget_decoder()
            return None
        signals = executor.signals
        encoder = self._encoder(signals.dtype)
        sums = self._decoder_sums(executor, encoder, earlier)
        self.decoder_, self.decoder_intercept_ = self._solve_decoder(sums, signals, encoder)
        return sums

    def _decoder_sums(self, executor: Executor, encoder: Encoder, earlier: DecoderSums | None = None) -> DecoderSums:
        parts = encoder.feature_map, encoder.atoms, encoder.gram, encoder.pursuit
        step = Decode(*parts, unit_length=self._space.has_unit_norms)
        sums = DecoderSums(*map(host, executor.map_reduce(step, start=earlier)[0]))
        if not np.isfinite(sums.cross_products).all():
            raise NotFiniteError
        return sums

    def _solve_decoder(self, sums: DecoderSums, signals: Signals, encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
        """Matrix and intercept of the decoder."""
        assert encoder.gram is not None
        matrix, intercept = learn_decoder(sums, encoder.gram, self.decoder_alpha, self._space.has_unit_norms)
        return matrix.astype(signals.dtype), intercept.astype(signals.dtype)

    def _check_decodable(self) -> None:
        """Raise if there are no signals to decode to."""

    def _decoder(self, dtype: np.dtype) -> Decoder:
        if hasattr(self, "decoder_"):
            gram = self._atoms_and_gram()[1].astype(dtype) if self._space.has_unit_norms else None
            return LinearDecoder(self.decoder_.astype(dtype), self.decoder_intercept_.astype(dtype), gram)
        raise NotFittedError(
            f"This {type(self).__name__} has not learned to turn codes back into signals: set "
            f"fit_inverse_transform=True before fit, or call fit_decoder with signals."
        )
