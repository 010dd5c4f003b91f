"""Chunk tasks of the learning: each maps a chunk and its state to sums, which are added up, and a new state.

A task is a picklable function for `rkdl._execution.executor.Executor.map_reduce`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, dot, squared_norms, where
from rkdl._backends.base import Codes
from rkdl._coding.encoder import Encoder
from rkdl._execution.executor import Executor
from rkdl._features.kernels import Kernel
from rkdl._features.maps import FeatureMap
from rkdl._utils.types import Array


class SufficientStatistics(NamedTuple):
    """Sums over coded signals, with codes Z and features F; the objective is ``tr K - 2 <P, A> + <S, A M A'>``.

    Penalties of the codes, as `Pursuit.penalty` has them, are part of both energies.
    """

    code_gram: Array  # S = Z'Z (n, n)
    cross_products: Array  # P = Z'F (n, p)
    energy: Array  # tr K(Y, Y)
    residual_energy: Array = 0.0  # sum of the squared residuals that the pursuit left


class ChunkState(NamedTuple):
    """State of a chunk between two tasks; between two iterations, its features alone."""

    codes: Any
    residuals: Array
    features: Array | None = None
    # How much every signal counts (c,), None for all alike: the codes that are kept are multiplied by it.
    weights: Array | None = None

    def features_alone(self) -> ChunkState:
        """The state without its codes."""
        return self._replace(codes=Codes(*(np.empty(0, dtype=np.int32),) * 3), residuals=np.empty(0))


def first_states(executor: Executor) -> list[ChunkState] | None:
    """The weights of the signals with their chunks; None where all count alike."""
    weights = executor.signals.weights
    if weights is None:
        return None
    empty = ChunkState(None, np.empty(0)).features_alone()
    return [executor.to_signals(empty._replace(weights=weights[start:stop])) for start, stop in executor.bounds]


@dataclass(frozen=True)
class EncodeTask(Encoder):
    """Sufficient statistics of a chunk; codes and residuals stay with it if the task `makes_state`."""

    caches_features: bool = False
    makes_state: bool = True

    def __call__(self, signals: np.ndarray, state: ChunkState | None) -> tuple[tuple, ChunkState | None]:
        features, correlations, norms = self.observe(signals, None if state is None else state.features)
        observed = self.feature_map.observed(signals)
        codes, residuals = self.pursue(correlations, squared_norms=norms, observed=observed)
        if observed is not None:
            # What is missing is what the codes say: sums for these signals bound the error of what is observed.
            features = where(observed, features, codes.times(self.atoms))
            norms = squared_norms(features)
        kept: Any = codes
        half, squares, weights = kept, (norms, residuals), None if state is None else state.weights
        if weights is not None:
            kept, half = codes.weighted(weights), codes.weighted(weights**0.5)
            squares = norms * weights, residuals * weights
        code_gram, cross_products, *totals = kept.sums(half, features, *squares, self.n_atoms)
        # Codes with penalties minimise the residual and these together, which is the objective then.
        penalty = self.pursuit.penalty(kept, half)
        sums = SufficientStatistics(code_gram, cross_products, *(total + penalty for total in totals))
        coded = ChunkState(kept, residuals, features if self.caches_features else None, weights)
        return sums, coded if self.makes_state else None


@dataclass(frozen=True)
class GradientTask:
    """For codes of an earlier task: ``P = Z'K(Y, D)``, and the signals' part of the gradient if `atoms` are given.

    Its part for ``d_i`` is the sum over signals of ``(Z A)_ti`` times the derivative of ``k(y_t, d_i)`` by ``d_i``.
    Kernel vectors move after their gradient, so features are dropped with it.
    """

    kernel: Kernel
    kernel_vectors: np.ndarray
    n_atoms: int
    atoms: np.ndarray | None
    at_features: bool = False  # whether the kernel vectors are still those that the cached features belong to
    makes_state: bool = False  # whether features are cached in the state; its codes stay as they are

    def __call__(self, signals: np.ndarray, state: ChunkState) -> tuple[tuple, ChunkState]:
        known = state.features if self.at_features else None
        features, gradient = self.kernel.value_and_gradient(signals, self.kernel_vectors, known)
        cross_products = state.codes.cross_products(features, self.n_atoms)
        if self.atoms is None:
            return (cross_products,), state._replace(features=features) if self.makes_state else state
        weighting = partial(state.codes.weighted_derivative, self.atoms)
        return (cross_products, gradient(weighting)), state._replace(features=None)


@dataclass(frozen=True)
class ResidualTask:
    """Sum of squares of ``Y - Z A``, times the weights, for codes of an earlier task and atoms that are signals."""

    makes_state: ClassVar[bool] = False

    atoms: np.ndarray

    def __call__(self, signals: np.ndarray, state: ChunkState) -> tuple[tuple, ChunkState]:
        roots = 1.0 if state.weights is None else state.weights.clip(min=np.finfo(float).tiny)[:, None] ** 0.5
        residual = signals * roots - state.codes.times(self.atoms) / roots
        # What is missing has no residual.
        residual = where(residual == residual, residual, 0.0)
        return (dot(residual, residual),), state


@dataclass(frozen=True)
class Features:
    """The features (c, p) of a chunk, as its state."""

    feature_map: FeatureMap

    def __call__(self, signals: np.ndarray, state: ChunkState) -> tuple[tuple, np.ndarray]:
        return (), self.feature_map.features(signals)


def resolved_energy(encoder: Encoder, signals: np.ndarray, state: ChunkState | None) -> tuple[tuple, None]:
    """Sum of the squared residuals, times the weights, as `reconstruction_error` has them."""
    squares = cast(encoder.residuals(signals)[1], np.float64)
    return ((squares if state is None else squares * state.weights).sum(),), None


def count_empty(state: ChunkState) -> int:
    """Signals of a chunk that are not zero and have a code of zeros."""
    return int(((state.codes.counts == 0) & (state.residuals > 0)).sum())
