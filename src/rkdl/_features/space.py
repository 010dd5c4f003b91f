"""Feature spaces of fitted models: from the user's signals, of any dtype, to features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rkdl._data.signals import is_safe, safe_scale
from rkdl._features.kernels import Kernel, family, has_user_code, make_kernel
from rkdl._features.kernels.radial import Radial
from rkdl._features.maps import FeatureMap, FourierMap, GivenKernelMap, KernelMap, LinearMap


class FeatureSpace:
    """The space that atoms live in, in the units of the user's signals.

    Signals whose squares would overflow or underflow in their dtype are multiplied by a power of two, their scale,
    before they are mapped. The space says which, and what that does to features and atoms.
    """

    vectors: np.ndarray | None = None  # kernel vectors or frequencies (p, n_features), where the features depend on any
    gamma: float | None = None
    is_linear = False  # whether features grow in proportion to the signals
    # Whether every signal has norm one, so that the length of a code says nothing about the signal.
    has_unit_norms = False
    is_user_function = False  # whether a function of the user maps the signals, which must see them unscaled

    def feature_map(self, dtype: np.dtype, scale: float) -> FeatureMap:
        """The map of signals of `dtype` that were multiplied by `scale`."""
        raise NotImplementedError

    def scale(self, dtype: np.dtype) -> float:
        """What signals of `dtype` are multiplied by before they are mapped."""
        return 1.0

    def feature_scale(self, scale: float) -> float:
        """What features are multiplied by when signals are multiplied by `scale`."""
        return scale if self.is_linear else 1.0

    def atom_scale(self, scale: float) -> float:
        """What atoms are divided by when signals are multiplied by `scale`, so that their norm stays one."""
        return 1.0


@dataclass(frozen=True)
class SignalSpace(FeatureSpace):
    """Signals as they are: linear dictionary learning."""

    n_features: int
    is_linear = True

    def feature_map(self, dtype: np.dtype, scale: float) -> LinearMap:
        return LinearMap(self.n_features)


@dataclass(frozen=True)
class FourierSpace(FeatureSpace):
    """Random Fourier features of the RBF kernel."""

    vectors: np.ndarray
    gamma: float
    has_unit_norms = True

    def feature_map(self, dtype: np.dtype, scale: float) -> FourierMap:
        return FourierMap(self.vectors / scale)


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
        norms = self._kernel(some, 1.0).diagonal(some)
        return bool(norms.min() > 0.0 and norms.max() - norms.min() <= 1e-5 * norms.max())

    def feature_map(self, dtype: np.dtype, scale: float) -> KernelMap:
        vectors = self.vectors if scale == 1.0 else self.vectors * scale
        return KernelMap(self._kernel(vectors, scale), vectors.astype(dtype))

    def _kernel(self, sample: np.ndarray, scale: float) -> Kernel:
        options: Any = {"gamma": self.gamma / scale / scale, "degree": self.degree, "coef0": self.coef0}
        return make_kernel(self.kernel, **options, sample=sample)

    def scale(self, dtype: np.dtype) -> float:
        """The power of two that the kernel vectors need in this dtype; mostly 1."""
        if self.is_user_function:
            return 1.0
        flat = self.vectors.ravel().astype(np.float64, copy=False)
        # In units of a power of two, so that the squares below stay in range themselves.
        unit = safe_scale(flat)
        mean_square = float(np.dot(flat * unit, flat * unit)) / flat.size / unit / unit
        return 1.0 if is_safe(mean_square, dtype) or mean_square == 0.0 else unit

    def atom_scale(self, scale: float) -> float:
        """Atoms are combinations of the kernel vectors, which are scaled like the signals."""
        return self.feature_scale(scale)


@dataclass(frozen=True)
class PrecomputedSpace(FeatureSpace):
    """Kernel values that the user computed."""

    n_features: int

    def feature_map(self, dtype: np.dtype, scale: float) -> GivenKernelMap:
        return GivenKernelMap(self.n_features)
