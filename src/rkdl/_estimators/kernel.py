"""What the kernel estimators share: the kernel's parameters, and coding through kernel vectors."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._coding.encoder import Encoder
from rkdl._coding.preimages import FixedPoint, LinearDecoder, squared_residual_of_noise
from rkdl._data.signals import Signals, is_safe, safe_scale
from rkdl._estimators.denoising import Decoder, Decoding
from rkdl._estimators.gamma import KERNEL_SAMPLE, RULES, find_gamma, raw_gamma, sample_gamma, spread_sample
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import Executor
from rkdl._features.kernels import Custom, Kernel, make_kernel
from rkdl._features.maps import KernelMap
from rkdl._learning.diagnostics import check_kernel

KERNELS = ("rbf", "poly", "linear")


class KernelLearner(Decoding):
    """Atoms are combinations of kernel vectors in feature space."""

    _parameter_constraints: dict = {
        **Decoding._parameter_constraints,
        "kernel": [StrOptions(set(KERNELS)), callable],
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions(set(RULES))],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

    kernel: str | Callable
    gamma: float | str
    degree: int
    coef0: float

    def _feature_scale(self, scale: float) -> float:
        return scale if isinstance(self.kernel, str) and self.kernel == "linear" else 1.0

    def _inspect(self, executor: Executor) -> None:
        if callable(self.kernel):
            # A user's function sees the user's signals, not scaled ones.
            executor.signals.check_finite()
        else:
            super()._inspect(executor)

    def _ready(self, X: Any) -> tuple[Signals, Encoder, float]:
        signals, encoder, unit = super()._ready(X)
        if callable(self.kernel):
            signals.check_finite()
        return signals, encoder, unit

    def _fitted_scale(self, dtype: np.dtype) -> float:
        if callable(self.kernel):
            return 1.0
        vectors = self.kernel_vectors_
        flat = vectors.ravel().astype(np.float64, copy=False)
        # In units of a power of two, so that the squares below stay in range themselves.
        unit = safe_scale(flat)
        mean_square = float(np.dot(flat * unit, flat * unit)) / flat.size / unit / unit
        return 1.0 if is_safe(mean_square, dtype) or mean_square == 0.0 else unit

    def _make_kernel(self, signals: Signals) -> Kernel:
        """The kernel for the signals as they are read."""
        raw_gamma(self.gamma, signals)
        sample = spread_sample(signals, KERNEL_SAMPLE)
        kernel = make_kernel(
            self.kernel,
            gamma=find_gamma(self.gamma, signals),
            degree=self.degree,
            coef0=self.coef0,
            sample=sample,
            check=True,
        )
        check_kernel(kernel, sample)
        return kernel

    def _sample_products(self, sample: np.ndarray) -> np.ndarray | None:
        if self.kernel not in KERNELS:
            # A function is the user's, and so is its dtype.
            return None
        if self.kernel == "linear":
            return super()._sample_products(sample)
        gamma = sample_gamma(self.gamma, sample)
        kernel = make_kernel(self.kernel, gamma=gamma, degree=self.degree, coef0=self.coef0, sample=sample)
        return kernel(sample, sample)

    def _places(self) -> tuple[str | None, str]:
        other = "scale the signals, leave out extreme ones, or use more atoms."
        return "atoms", other.capitalize() if callable(self.kernel) else f"Lower gamma, {other}"

    def _fitted_map(self, dtype: np.dtype, scale: float) -> KernelMap:
        vectors = self.kernel_vectors_ if scale == 1.0 else self.kernel_vectors_ * scale
        gamma = self.gamma_ / scale / scale
        kernel = make_kernel(self.kernel, gamma=gamma, degree=self.degree, coef0=self.coef0, sample=vectors)
        return KernelMap(kernel, vectors.astype(dtype))

    def _encoder(self, dtype: np.dtype, scale: float) -> Encoder:
        # Atoms of unit norm in the scaled features are longer by what the features are shorter.
        atoms = self.dual_components_ / self._feature_scale(scale)
        gram = self.gram_.astype(dtype)
        pursuit = self._pursuit(self._feature_scale(scale))
        return Encoder(self._fitted_map(dtype, scale), atoms.astype(dtype), gram, pursuit)

    def _stored_gamma(self, signals: Signals) -> float:
        """`gamma` for the signals as the user gave them."""
        return raw_gamma(self.gamma, signals)

    def _decoder(self, dtype: np.dtype) -> Decoder:
        name = self.kernel if isinstance(self.kernel, str) else None
        if hasattr(self, "decoder_") or name not in ("rbf", "linear"):
            return super()._decoder(dtype)
        if name == "linear":
            # Feature space is that of the signals.
            atoms = self.dual_components_.astype(np.float64) @ self.kernel_vectors_.astype(np.float64)
            return LinearDecoder(atoms.astype(dtype))
        scale = self._fitted_scale(dtype)
        with one_blas_thread():
            return FixedPoint.prepare(
                self.gamma_ / scale / scale, self.dual_components_, self.kernel_vectors_ * scale, dtype, scale
            )

    @property
    def _has_unit_signals(self) -> bool:
        if isinstance(self.kernel, str):
            return self.kernel == "rbf"
        # A function whose signals all have one length, as far as some kernel vectors and their multiples tell.
        some = np.concatenate([factor * self.kernel_vectors_[:16] for factor in (0.5, 1.0, 2.0)])
        lengths = Custom.wrap(self.kernel, some).diagonal(some)
        return bool(lengths.min() > 0.0 and lengths.max() - lengths.min() <= 1e-5 * lengths.max())

    def _atom_products(self) -> np.ndarray:
        return self.gram_

    def _noise_tolerance(self, noise: float) -> float:
        name = self.kernel if isinstance(self.kernel, str) else None
        if name not in ("rbf", "linear"):
            raise ValueError(
                f"What noise leaves of a signal is not known for kernel={self.kernel!r}: set residual_tol and leave "
                f"noise at None, or use 'rbf' or 'linear'."
            )
        return squared_residual_of_noise(name, noise, self.n_features_in_, self.gamma_)
