"""Feature maps: the features of a chunk of signals, and the metric of the feature space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from rkdl._backends.arrays import where
from rkdl._backends.base import backend_of, is_tensor
from rkdl._data.signals import has_faint, needs_float64
from rkdl._features.kernels import Kernel, Linear
from rkdl._features.kernels.base import BuiltIn
from rkdl._features.kernels.radial import Radial
from rkdl._features.metric import IdentityMetric, Metric, make_metric
from rkdl._utils.types import Array

# Phases up to this keep three digits in float32.
MOST_PHASE = 1e3
# What kernel vectors leave of another one counts as zero below this share. Combinations that resolve less than 1e-10
# have coefficients above 1e5, of whose squares float64 keeps six digits: the stored error would not be that of what is
# stored.
NEGLIGIBLE = 1e-10


class FeatureMap:
    """Base of feature maps; its features are the signals themselves."""

    size: int  # number of features
    is_linear = False  # whether features are proportional to the signals
    has_unit_norms = False  # whether every signal has norm one, so that the length of a code says nothing about it
    # Attributes that are arrays with one row per kernel vector or frequency, which learning may change.
    arrays: ClassVar[tuple[str, ...]] = ()

    @property
    def vectors(self) -> Array | None:
        """Kernel vectors or frequencies (p, m), if there are any."""
        return getattr(self, self.arrays[0]) if self.arrays else None

    @property
    def signal_size(self) -> int:
        """Length of a signal."""
        return self.size if self.vectors is None else self.vectors.shape[1]

    def features(self, signals: Array) -> Array:
        """The signals themselves, not a copy."""
        return signals

    def observed(self, signals: Array) -> Array | None:
        """Where the features of signals are known (c, p); None if all of them are."""
        return None

    def squared_norms(self, signals: Array) -> Array:
        """``|phi(y)|^2`` of every signal."""
        raise NotImplementedError

    def needs_float64(self, signals: np.ndarray) -> bool:
        """Whether squared norms of the signals leave the range of float32."""
        return False

    def metric(self, dtype: np.dtype) -> Metric | IdentityMetric:
        """The metric of the features, its rank decided for signals of `dtype`: the identity."""
        return IdentityMetric(self.size)

    def as_dtype(self, dtype: np.dtype) -> Self:
        """The map of signals of `dtype`."""
        return self.restored({name: backend_of(array).cast(array, dtype) for name, array in self.state().items()})

    def state(self) -> dict[str, Array]:
        """Its arrays by name."""
        return {name: getattr(self, name) for name in self.arrays}

    def restored(self, state: dict[str, Array]) -> Self:
        """The map of a state."""
        return replace(self, **{name: state[name] for name in self.state()})  # type: ignore[type-var]


@dataclass(frozen=True)
class LinearMap(FeatureMap):
    """Signals as they are: linear dictionary learning."""

    size: int
    ignores_missing: bool = False  # whether NaN stands for a number that is not known
    is_linear = True

    def features(self, signals: Array) -> Array:
        """The signals, not a copy unless numbers are missing, which are zeros then."""
        known = self.observed(signals)
        return signals if known is None else where(known, signals, 0.0)

    def observed(self, signals: Array) -> Array | None:
        if not self.ignores_missing:
            return None
        known = ~backend_of(signals).xp.isnan(signals)
        return None if known.all() else known

    def squared_norms(self, signals: Array) -> Array:
        return backend_of(signals).squared_norms(self.features(signals))

    def needs_float64(self, signals: np.ndarray) -> bool:
        return needs_float64(self.features(signals))


@dataclass(frozen=True)
class FourierMap(FeatureMap):
    """Random Fourier features: cosine and sine of each frequency, so that every signal has norm one."""

    frequencies: Array
    gamma: float
    has_unit_norms = True
    arrays = ("frequencies",)

    @property
    def size(self) -> int:  # type: ignore[override]
        return 2 * len(self.frequencies)

    def features(self, signals: Array) -> Array:
        backend = backend_of(signals)
        # Stored frequencies have the dtype of the signals.
        frequencies = backend.as_like(self.frequencies, signals)
        phases = backend.product(signals, frequencies)
        if not is_tensor(phases) and float(abs(phases).max(initial=0.0)) > MOST_PHASE:
            # Rounded to the dtype of the signals, large phases would be meaningless.
            phases = (signals.astype(np.float64) @ frequencies.astype(np.float64).T) % (2.0 * np.pi)
            phases = phases.astype(signals.dtype)
        return backend.cos_and_sin(phases, float(1.0 / np.sqrt(len(self.frequencies))))

    def squared_norms(self, signals: Array) -> Array:
        return backend_of(signals).full((len(signals),), 1.0, signals)


@dataclass(frozen=True)
class KernelMap(FeatureMap):
    """Kernel values with a set of kernel vectors: the reduced methods, and KDL on new signals."""

    kernel: Kernel
    kernel_vectors: Array
    # Whether small matrices are worked with in NumPy though the kernel vectors are on a device.
    has_host_matrix: bool = False
    arrays = ("kernel_vectors",)

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        return isinstance(self.kernel, Linear)

    @property
    def has_unit_norms(self) -> bool:  # type: ignore[override]
        if isinstance(self.kernel, Radial):
            return True
        if isinstance(self.kernel, BuiltIn):
            return False
        # Judged by some kernel vectors and multiples of them.
        vectors = np.asarray(self.kernel_vectors)
        some = np.concatenate([factor * vectors[:16] for factor in (0.5, 1.0, 2.0)])
        norms = self.kernel.diagonal(some)
        return bool(norms.min() > 0.0 and norms.max() - norms.min() <= 1e-5 * norms.max())

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.kernel_vectors)

    def features(self, signals: Array) -> Array:
        return self.kernel(signals, backend_of(signals).as_like(self.kernel_vectors, signals))

    def squared_norms(self, signals: Array) -> Array:
        return self.kernel.diagonal(signals)

    def needs_float64(self, signals: np.ndarray) -> bool:
        return isinstance(self.kernel, BuiltIn) and has_faint(signals, self.squared_norms(signals))

    def matrix(self, dtype: np.dtype) -> Array:
        """``K(D, D)`` in float64, of kernel vectors rounded to `dtype`: features of signals see no others."""
        backend = backend_of(self.kernel_vectors)
        with np.errstate(over="ignore", invalid="ignore"):
            vectors = backend.cast(backend.cast(self.kernel_vectors, dtype), np.float64)
            matrix, diagonal = self.kernel(vectors, vectors), self.kernel.diagonal(vectors)
            if self.has_host_matrix:
                matrix, diagonal = backend.to_host(matrix), backend.to_host(diagonal)
            matrix = 0.5 * (matrix + matrix.T)
            backend_of(matrix).fill_diagonal(matrix, diagonal)
        return matrix

    def metric(self, dtype: np.dtype) -> Metric:
        return make_metric(self.matrix(dtype), dtype, NEGLIGIBLE)


@dataclass(frozen=True)
class GivenKernelMap(FeatureMap):
    """Rows that are kernel values already: a precomputed kernel."""

    size: int

    def squared_norms(self, signals: Array) -> Array:
        backend = backend_of(signals)
        # Unknown: so large that no residual is ever small.
        return backend.full((len(signals),), float(backend.xp.finfo(signals.dtype).max) / len(signals), signals)


@dataclass(frozen=True)
class WhitenedMap(FeatureMap):
    """Kernel values in coordinates whose metric is the identity, in which learning is linear.

    `kernel_map` is on the pivots of its metric, and `whitening` (r, r) turns their kernel values into coordinates.
    """

    kernel_map: KernelMap
    whitening: Array

    @classmethod
    def of(cls, kernel_map: KernelMap, metric: Metric, dtype: np.dtype) -> WhitenedMap:
        """The coordinates of a map with its metric, for signals of `dtype`."""
        chosen = slice(None) if metric.pivots is None else metric.pivots
        pivots = replace(kernel_map, kernel_vectors=kernel_map.kernel_vectors[chosen].astype(dtype))
        # The transposed inverse of the factor.
        whitening = metric.unwhiten(np.eye(metric.rank))[:, chosen].T
        return cls(pivots, np.ascontiguousarray(whitening, dtype=dtype))

    @property
    def signal_size(self) -> int:
        return self.kernel_map.signal_size

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.whitening)

    def features(self, signals: Array) -> Array:
        return self.kernel_map.features(signals) @ backend_of(signals).as_like(self.whitening, signals)

    def squared_norms(self, signals: Array) -> Array:
        # Coordinates hold only a part of this energy.
        return self.kernel_map.squared_norms(signals)

    def needs_float64(self, signals: np.ndarray) -> bool:
        return self.kernel_map.needs_float64(signals)
