"""What KDL, RKDL, ORKDL and MORKDL share: the parameters of the kernel, and the way back from codes to signals."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from rkdl._coding.preimages import FixedPoint, LinearDecoder, squared_residual_of_noise
from rkdl._data.signals import Signals
from rkdl._estimators.coder import Prepared
from rkdl._estimators.denoising import Decoder, Decoding
from rkdl._estimators.gamma import KERNEL_SAMPLE, RULES, find_gamma, sample_gamma, spread_sample
from rkdl._estimators.prepared import fitted_view
from rkdl._features.kernels import Kernel, as_kernel, family, gamma_parameter, has_user_code, make_kernel
from rkdl._features.space import FeatureSpace, KernelSpace
from rkdl._learning.diagnostics import check_kernel
from rkdl._utils.types import MatrixLike

KERNELS = ("rbf", "poly", "linear")


def decoder_of_kernel(space: FeatureSpace, atoms: np.ndarray, dtype: np.dtype) -> Decoder | None:
    """The way back from codes on `atoms` that the RBF and the linear kernel have without learning; None for others."""
    if not isinstance(space, KernelSpace):
        return None
    name = family(space.kernel)
    if name == "linear":
        # Feature space is signal space.
        return LinearDecoder((atoms.astype(np.float64) @ space.vectors.astype(np.float64)).astype(dtype))
    if name != "rbf":
        return None
    return FixedPoint.prepare(space.gamma, atoms, space.vectors, dtype)


class KernelLearner(Decoding):
    """Base of the kernel methods, whose atoms are linear combinations of kernel vectors in feature space."""

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

    @property
    def _is_linear(self) -> bool:  # type: ignore[override]
        return family(self.kernel) == "linear"

    @property
    def _gamma_parameter(self) -> float | str:
        """Gamma, or the rule that finds it: the kernel's own if it is an object."""
        return gamma_parameter(self.kernel, self.gamma)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the numbers that were found for its parameters."""
        gamma = vars(self).get("gamma_")
        if gamma is None:
            raise AttributeError(
                f"{type(self).__name__} has no kernel_: it is not fitted, or the kernel is precomputed."
            )
        model = fitted_view(self)
        return as_kernel(model.kernel, gamma, model.degree, model.coef0)._resolved(gamma)

    def _space_on(self, n_features: int, vectors: Any, gamma: Any) -> FeatureSpace:
        return KernelSpace(self.kernel, self.degree, self.coef0, vectors, gamma)

    def _atoms_and_gram(self) -> tuple[np.ndarray, np.ndarray]:
        return self.dual_components_, self.gram_

    def _find_gamma(self, signals: Signals) -> float | None:
        return find_gamma(self._gamma_parameter, signals)

    def _ready(self, X: MatrixLike) -> tuple[Any, Prepared]:
        signals, ready = super()._ready(X)
        if has_user_code(self.kernel):
            signals.check_finite()
        return signals, ready

    def _make_kernel(self, signals: Signals, gamma: float | None) -> Kernel:
        """The kernel for the signals as they are read."""
        assert gamma is not None
        sample = spread_sample(signals, KERNEL_SAMPLE)
        kernel = make_kernel(
            self.kernel,
            gamma=gamma,
            degree=self.degree,
            coef0=self.coef0,
            sample=sample,
            check=True,
        )
        check_kernel(kernel, sample)
        return kernel

    def _sample_products(self, sample: np.ndarray) -> np.ndarray | None:
        if family(self.kernel) == "precomputed" or has_user_code(self.kernel):
            # A function of the user decides on its dtype.
            return None
        if self._is_linear:
            return super()._sample_products(sample)
        gamma = sample_gamma(self._gamma_parameter, sample)
        kernel = make_kernel(self.kernel, gamma=gamma, degree=self.degree, coef0=self.coef0, sample=sample)
        return kernel(sample, sample)

    def _places(self) -> tuple[str | None, str]:
        other = "scale the signals, leave out extreme ones, or use more atoms."
        return "atoms", other.capitalize() if has_user_code(self.kernel) else f"{self._widening.capitalize()}, {other}"

    @property
    def _widening(self) -> str:
        """What makes the kernel wider."""
        return "lower gamma" if family(self.kernel) else "widen the kernel"

    def _decoder(self, dtype: np.dtype) -> Decoder:
        if not hasattr(self, "decoder_"):
            decoder = decoder_of_kernel(self._space, self.dual_components_, dtype)
            if decoder is not None:
                return decoder
        return super()._decoder(dtype)

    def _noise_tolerance(self, noise: float) -> float:
        name = family(self.kernel)
        if name not in ("rbf", "linear"):
            raise ValueError(
                f"The residual that noise leaves is not known for kernel={self.kernel!r}: set residual_tol and leave "
                f"noise at None, or use 'rbf' or 'linear'."
            )
        return squared_residual_of_noise(name, noise, self.n_features_in_, self.gamma_)
