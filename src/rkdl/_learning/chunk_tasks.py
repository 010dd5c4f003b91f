"""What the learning needs of a chunk: codes that stay with it, and sums that leave it.

With codes Z and features F, the sums are ``S = Z'Z``, ``P = Z'F`` and the traces. Each class is a step for
`rkdl._execution.executor.Executor`: a picklable function of a chunk and of what was kept with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from rkdl._backends.cpu.statistics import _learn, _weigh, accumulate_products
from rkdl._coding.encoder import Encoder
from rkdl._coding.pursuit import Codes, arguments, packed
from rkdl._features.kernels import DifferentiableKernel
from rkdl._features.maps import FeatureMap


class ChunkState(NamedTuple):
    """What stays with a chunk between steps; of an iteration to come, its features alone."""

    codes: Codes
    residuals: np.ndarray
    features: np.ndarray | None = None


@dataclass(frozen=True)
class EncodeTask(Encoder):
    """Sums ``S, P, tr K, sum of squared residuals`` of a chunk; its codes and residuals are kept if it `keeps`."""

    keeps_features: bool = False
    keeps: bool = True

    def __call__(self, signals: np.ndarray, kept: ChunkState | None) -> tuple[tuple, ChunkState | None]:
        features, correlations = self._correlate(signals, None if kept is None else kept.features)
        norms = self.feature_map.squared_norms(signals)
        given = arguments(correlations, self.gram, norms, *self._limited(), dictionary=self.atoms)
        n_atoms = len(self.atoms)
        products = np.zeros((n_atoms, n_atoms))
        projections = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
        indptr = np.empty(len(signals) + 1, dtype=np.int32)
        # One call for all of it: threads that meet at Python's lock wait for longer than a small chunk takes.
        total, trace, lost = _learn(*given, features, indptr, products, projections)
        sums = (products, projections, trace, lost)
        if not self.keeps:
            return sums, None
        return sums, ChunkState(
            packed(given, indptr, total), given.residuals, features if self.keeps_features else None
        )


@dataclass(frozen=True)
class GradientTask:
    """For codes that are kept: ``P = Z'K(Y, D)``, and the pull of the signals on D if `atoms` are given.

    The pull on ``d_i`` is the sum over signals of ``(Z A)_ti`` times the derivative of ``k(y_t, d_i)`` by ``d_i``.
    Kernel vectors move after their pull, so features are not kept beyond it.
    """

    kernel: DifferentiableKernel
    kernel_vectors: np.ndarray
    n_atoms: int
    atoms: np.ndarray | None
    # Whether the kernel vectors are still those that the kept features belong to.
    at_features: bool = False
    keeps_features: bool = False

    @property
    def keeps(self) -> bool:
        """Codes stay as they are; features are all that it may add."""
        return self.keeps_features

    def __call__(self, signals: np.ndarray, kept: ChunkState) -> tuple[tuple, ChunkState]:
        known = kept.features if self.at_features else None
        features, gradient = self.kernel.value_and_gradient(signals, self.kernel_vectors, known)
        projections = np.zeros((self.n_atoms, features.shape[1]), dtype=features.dtype)
        codes = kept.codes
        accumulate_products(codes.indptr, codes.indices, codes.values, features, projections)
        if self.atoms is None:
            return (projections,), kept._replace(features=features) if self.keeps_features else kept

        def weigh(factor: np.ndarray) -> np.ndarray:
            weights = np.empty_like(factor)
            _weigh(codes.indptr, codes.indices, codes.values, self.atoms, factor, weights)
            return weights

        return (projections, gradient(weigh)), kept._replace(features=None)


@dataclass(frozen=True)
class ResidualTask:
    """Sum of squares of ``Y - Z A`` for codes that are kept and atoms that are signals."""

    keeps: ClassVar[bool] = False

    atoms: np.ndarray

    def __call__(self, signals: np.ndarray, kept: ChunkState) -> tuple[tuple, ChunkState]:
        residual = (signals - kept.codes.to_csr(len(self.atoms)) @ self.atoms).ravel()
        return (float(np.dot(residual, residual)),), kept


@dataclass(frozen=True)
class Features:
    """The features (c, p) of a chunk, kept."""

    feature_map: FeatureMap

    def __call__(self, signals: np.ndarray, kept: ChunkState) -> tuple[tuple, np.ndarray]:
        return (), self.feature_map.features(signals)
