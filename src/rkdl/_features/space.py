"""Feature spaces of fitted models: from the user's signals, of any dtype, to features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rkdl._features.kernels import Kernel, family, has_user_code, make_kernel
from rkdl._features.kernels.radial import Radial
from rkdl._features.maps import FeatureMap, FourierMap, GivenKernelMap, KernelMap, LinearMap


class FeatureSpace:
    """The space that atoms live in."""

    vectors: np.ndarray | None = None  # kernel vectors or frequencies (p, n_features), where the features depend on any
    gamma: float | None = None
    is_linear = False  # whether features grow in proportion to the signals
    # Whether every signal has norm one, so that the length of a code says nothing about the signal.
    has_unit_norms = False
    is_user_function = False  # whether a function of the user maps the signals

    def feature_map(self, dtype: np.dtype) -> FeatureMap:
        """The map of signals of `dtype`."""
        raise NotImplementedError


@dataclass(frozen=True)
class SignalSpace(FeatureSpace):
    """Signals as they are: linear dictionary learning."""

    n_features: int
    is_linear = True

    def feature_map(self, dtype: np.dtype) -> LinearMap:
        return LinearMap(self.n_features)


@dataclass(frozen=True)
class FourierSpace(FeatureSpace):
    """Random Fourier features of the RBF kernel."""

    vectors: np.ndarray
    gamma: float
    has_unit_norms = True

    def feature_map(self, dtype: np.dtype) -> FourierMap:
        return FourierMap(self.vectors)


@dataclass(frozen=True)
class KernelSpace(FeatureSpace):
    """Kernel values with kernel vectors."""

    kernel: str | Callable
    degree: int
    coef0: float
    vectors: np.ndarray
    gamma: float

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        return family(self.kernel) == "linear"

    @property
    def is_user_function(self) -> bool:  # type: ignore[override]
        return has_user_code(self.kernel)

    @property
    def has_unit_norms(self) -> bool:  # type: ignore[override]
        if isinstance(self.kernel, str | Radial):
            return family(self.kernel) not in ("poly", "linear")
        # As far as some kernel vectors and their multiples show.
        some = np.concatenate([factor * self.vectors[:16] for factor in (0.5, 1.0, 2.0)])
        norms = self._kernel(some).diagonal(some)
        return bool(norms.min() > 0.0 and norms.max() - norms.min() <= 1e-5 * norms.max())

    def feature_map(self, dtype: np.dtype) -> KernelMap:
        return KernelMap(self._kernel(self.vectors), self.vectors.astype(dtype))

    def _kernel(self, sample: np.ndarray) -> Kernel:
        return make_kernel(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0, sample=sample)


@dataclass(frozen=True)
class PrecomputedSpace(FeatureSpace):
    """Kernel values that the user computed."""

    n_features: int

    def feature_map(self, dtype: np.dtype) -> GivenKernelMap:
        return GivenKernelMap(self.n_features)
