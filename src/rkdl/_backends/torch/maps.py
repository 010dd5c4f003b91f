"""The feature maps of `rkdl._features.maps` on tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rkdl._backends.torch.metric import TensorMetric
from rkdl._features.kernels import RBF
from rkdl._features.maps import FourierMap, GivenKernelMap, KernelMap


@dataclass(frozen=True)
class TensorFourierMap(FourierMap):
    """Random Fourier features."""

    frequencies: torch.Tensor

    def features(self, signals: torch.Tensor) -> torch.Tensor:
        """Features (c, 2q) of a chunk."""
        phases = signals @ self.frequencies.to(signals.dtype).T
        return torch.cat([phases.cos(), phases.sin()], dim=1).mul_(len(self.frequencies) ** -0.5)

    def squared_norms(self, signals: torch.Tensor) -> torch.Tensor:
        """One for every signal."""
        return torch.ones(len(signals), dtype=signals.dtype, device=signals.device)

    def restored(self, state: dict) -> TensorFourierMap:
        """The map of a state."""
        return replace(self, frequencies=state["frequencies"])


@dataclass(frozen=True)
class TensorKernelMap(KernelMap):
    """Kernel values with a set of kernel vectors."""

    kernel_vectors: torch.Tensor

    def features(self, signals: torch.Tensor) -> torch.Tensor:
        """``K(Y, D)`` of a chunk."""
        return self.kernel(signals, self.kernel_vectors.to(signals.dtype))

    def matrix(self) -> torch.Tensor:
        """``K(D, D)`` in float64."""
        vectors = self.kernel_vectors.double()
        matrix: torch.Tensor = self.kernel(vectors, vectors)
        matrix = 0.5 * (matrix + matrix.T)
        matrix.diagonal().copy_(self.kernel.diagonal(vectors))
        return matrix

    def metric(self, dtype: np.dtype) -> TensorMetric:
        """``K(D, D)``, its rank decided for signals of `dtype`."""
        metric = TensorMetric.of(self.matrix(), dtype)
        if metric is None:
            raise ValueError(
                "The kernel overflows on the kernel vectors: scale the signals down, or lower gamma or degree."
            )
        return metric


@dataclass(frozen=True)
class LentKernelMap(TensorKernelMap):
    """Kernel vectors on a device, and the matrix of them in NumPy."""

    def matrix(self) -> Any:
        """``K(D, D)`` in float64, from the vectors' inner products."""
        vectors = self.kernel._centred(self.kernel_vectors) if isinstance(self.kernel, RBF) else self.kernel_vectors
        return self.kernel.of_products((vectors @ vectors.T).cpu().numpy())  # type: ignore[union-attr]

    metric = KernelMap.metric  # type: ignore[assignment]


@dataclass(frozen=True)
class TensorGivenKernelMap(GivenKernelMap):
    """Rows that are kernel values already."""

    def squared_norms(self, signals: torch.Tensor) -> torch.Tensor:
        """Not known, so that no residual is ever small."""
        largest = torch.finfo(signals.dtype).max / len(signals)
        return torch.full((len(signals),), largest, dtype=signals.dtype, device=signals.device)
