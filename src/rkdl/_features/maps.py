"""Feature maps: what a method sees of a chunk of signals, and the metric of what it sees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from rkdl._backends.cpu.products import multiply
from rkdl._features.kernels import Kernel, squared_norms
from rkdl._features.metric import IdentityMetric, Metric


@dataclass(frozen=True)
class LinearMap:
    """Signals as they are: linear dictionary learning."""

    size: int

    @property
    def signal_size(self) -> int:
        """Length of a signal."""
        return self.size

    def features(self, signals: np.ndarray) -> np.ndarray:
        """The signals themselves, not a copy."""
        return signals

    def squared_norms(self, signals: np.ndarray) -> np.ndarray:
        """``|y|^2`` of every signal."""
        return squared_norms(signals)

    def metric(self, dtype: np.dtype) -> IdentityMetric:
        """The identity."""
        return IdentityMetric(self.size)

    def state(self) -> dict[str, np.ndarray]:
        """Nothing that learning changes."""
        return {}

    def restored(self, state: dict[str, np.ndarray]) -> LinearMap:
        """The same map."""
        return self


@dataclass(frozen=True)
class FourierMap:
    """Random Fourier features: cosine and sine of each frequency, so that every signal has norm one."""

    frequencies: np.ndarray

    @property
    def signal_size(self) -> int:
        """Length of a signal."""
        return self.frequencies.shape[1]

    @property
    def size(self) -> int:
        """Number of features, two a frequency."""
        return 2 * len(self.frequencies)

    def features(self, signals: np.ndarray) -> np.ndarray:
        """Features (c, 2q) of a chunk."""
        count = len(self.frequencies)
        phases = multiply(signals, self.frequencies.astype(signals.dtype, copy=False))
        features = np.empty((len(signals), 2 * count), dtype=signals.dtype)
        np.cos(phases, out=features[:, :count])
        np.sin(phases, out=features[:, count:])
        features *= signals.dtype.type(1.0 / np.sqrt(count))
        return features

    def squared_norms(self, signals: np.ndarray) -> np.ndarray:
        """One for every signal."""
        return np.ones(len(signals), dtype=signals.dtype)

    def metric(self, dtype: np.dtype) -> IdentityMetric:
        """The identity."""
        return IdentityMetric(self.size)

    def state(self) -> dict[str, np.ndarray]:
        """What a map of the same kind is made from."""
        return {"frequencies": self.frequencies}

    def restored(self, state: dict[str, np.ndarray]) -> FourierMap:
        """The map of a state."""
        return replace(self, frequencies=state["frequencies"])


@dataclass(frozen=True)
class KernelMap:
    """Kernel values with a set of kernel vectors: the reduced methods, and KDL when it meets new signals."""

    kernel: Kernel
    kernel_vectors: np.ndarray

    @property
    def signal_size(self) -> int:
        """Length of a signal."""
        return self.kernel_vectors.shape[1]

    @property
    def size(self) -> int:
        """Number of kernel vectors."""
        return len(self.kernel_vectors)

    def features(self, signals: np.ndarray) -> np.ndarray:
        """``K(Y, D)`` of a chunk."""
        return self.kernel(signals, self.kernel_vectors.astype(signals.dtype, copy=False))

    def squared_norms(self, signals: np.ndarray) -> np.ndarray:
        """``k(y, y)`` of every signal."""
        return self.kernel.diagonal(signals)

    def matrix(self) -> np.ndarray:
        """``K(D, D)`` in float64."""
        vectors = self.kernel_vectors.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            matrix = np.asarray(self.kernel(vectors, vectors), dtype=np.float64)
            matrix = 0.5 * (matrix + matrix.T)
            np.fill_diagonal(matrix, self.kernel.diagonal(vectors))
            return matrix

    def metric(self, dtype: np.dtype) -> Metric:
        """``K(D, D)``, its rank decided for signals of `dtype`."""
        matrix = self.matrix()
        if not np.isfinite(matrix).all():
            raise ValueError(
                "The kernel overflows on the kernel vectors: scale the signals down, or lower gamma or degree."
            )
        return Metric(matrix, dtype)

    def state(self) -> dict[str, np.ndarray]:
        """What a map of the same kind is made from."""
        return {"kernel_vectors": self.kernel_vectors}

    def restored(self, state: dict[str, np.ndarray]) -> KernelMap:
        """The map of a state."""
        return replace(self, kernel_vectors=state["kernel_vectors"])


@dataclass(frozen=True)
class GivenKernelMap:
    """Rows that are kernel values already: a precomputed kernel."""

    size: int

    @property
    def signal_size(self) -> int:
        """Length of a row."""
        return self.size

    def features(self, signals: np.ndarray) -> np.ndarray:
        """The rows themselves."""
        return signals

    def squared_norms(self, signals: np.ndarray) -> np.ndarray:
        """Not known, so that no residual is ever small."""
        return np.full(len(signals), np.finfo(signals.dtype).max / len(signals), dtype=signals.dtype)

    def state(self) -> dict[str, np.ndarray]:
        """Nothing that learning changes."""
        return {}

    def restored(self, state: dict[str, np.ndarray]) -> GivenKernelMap:
        """The same map."""
        return self


@dataclass(frozen=True)
class WhiteMap:
    """Kernel values in coordinates whose metric is the identity, so that what learns from them is linear.

    Attributes
    ----------
    kernel_map : KernelMap
        On the kernel vectors that its metric kept.
    whitening : ndarray of shape (r, r)
        What turns their kernel values into coordinates.
    """

    kernel_map: KernelMap
    whitening: np.ndarray

    @classmethod
    def of(cls, kernel_map: KernelMap, metric: Metric, dtype: np.dtype) -> WhiteMap:
        """The coordinates of a map with its metric, for signals of `dtype`."""
        kept = replace(kernel_map, kernel_vectors=kernel_map.kernel_vectors[metric.pivots].astype(dtype))
        identity = np.eye(metric.rank)
        whitening = (
            solve_triangular(metric.factor, identity, lower=True, check_finite=False).T if metric.rank else identity
        )
        return cls(kept, np.ascontiguousarray(whitening, dtype=dtype))

    @property
    def signal_size(self) -> int:
        """Length of a signal."""
        return self.kernel_map.signal_size

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.whitening)

    def features(self, signals: np.ndarray) -> np.ndarray:
        """Coordinates (c, r) of a chunk."""
        return self.kernel_map.features(signals) @ self.whitening.astype(signals.dtype, copy=False)

    def squared_norms(self, signals: np.ndarray) -> np.ndarray:
        """``k(y, y)`` of every signal, of which the coordinates hold a part."""
        return self.kernel_map.squared_norms(signals)

    def metric(self, dtype: np.dtype) -> IdentityMetric:
        """The identity."""
        return IdentityMetric(self.size)

    def state(self) -> dict[str, np.ndarray]:
        """Nothing that learning changes."""
        return {}

    def restored(self, state: dict[str, np.ndarray]) -> WhiteMap:
        """The same map."""
        return self


FeatureMap = LinearMap | FourierMap | KernelMap | GivenKernelMap | WhiteMap
