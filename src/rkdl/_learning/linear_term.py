"""The linear term of MORKDL-D, ``lambda |Y - X D|^2`` with sparse X, and the norm that it gives all kernel vectors."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add

import numpy as np

from rkdl._backends.arrays import cast, dot, host, row_norms, squared_norms
from rkdl._coding.encoder import Pursuit
from rkdl._execution.executor import Executor
from rkdl._features.maps import LinearMap
from rkdl._learning.chunk_tasks import EncodeTask, SufficientStatistics, first_states
from rkdl._utils.types import Array

# Signals have one norm if the root mean square of their norms exceeds the mean by no more than this, relatively.
ONE_NORM = 1e-10


@dataclass(frozen=True)
class LinearTermChoice:
    """Weight of the term, relative to ``tr K(Y, Y) / |Y|^2``; the pursuit of X; and the rule for the vectors' norm."""

    weight: float
    pursuit: Pursuit
    norm: str  # "auto", "shared" or "free"

    def find_norm(self, executor: Executor) -> float | None:
        """Norm of all kernel vectors, from the signals; None if it is free."""
        if self.norm == "free":
            return None
        _, root_mean_square, mean = signal_moments(executor)
        return self._norm_from(root_mean_square, mean)

    def find_norm_of(self, vectors: Array) -> float | None:
        """Norm of all kernel vectors, from vectors that were learned; None if it is free."""
        if self.norm == "free":
            return None
        norms = np.linalg.norm(host(vectors), axis=1)
        return self._norm_from(float(np.sqrt(np.mean(norms**2))), float(norms.mean()))

    def _norm_from(self, root_mean_square: float, mean: float) -> float | None:
        if self.norm == "auto":
            return root_mean_square if 0.0 < root_mean_square <= (1.0 + ONE_NORM) * mean else None
        if root_mean_square == 0.0:
            raise ValueError(
                "All signals are zero, and kernel_vector_norm='shared' holds the kernel vectors to the signals' norm: "
                "use 'free'."
            )
        return root_mean_square

    def statistics(
        self, executor: Executor, vectors: Array, past: SufficientStatistics | None = None
    ) -> SufficientStatistics:
        """``X'X``, ``X'Y`` and ``|Y|^2``, X the codes of the signals against the kernel vectors, added to `past`."""
        norms = row_norms(vectors)
        norms[norms == 0.0] = 1.0
        unit = vectors / norms[:, None]
        dtype = executor.signals.dtype
        gram = cast(unit @ unit.T, dtype)
        task = EncodeTask(LinearMap(vectors.shape[1]), cast(unit, dtype), gram, self.pursuit, makes_state=False)
        found = SufficientStatistics(*executor.to_backend(executor.map_reduce(task, first_states(executor))[0]))
        code_gram, cross_products = found.code_gram / norms / norms[:, None], found.cross_products / norms[:, None]
        own = SufficientStatistics(code_gram, cross_products, float(found.energy))
        return own if past is None else SufficientStatistics(*map(add, past, own))

    def term(self, statistics: SufficientStatistics, energy: float) -> LinearTerm:
        """The term for signals of that energy in feature space."""
        # Both terms relative to the energy of the signals, so that the weight does not depend on their scale.
        return LinearTerm(self.weight * energy / statistics.energy if statistics.energy > 0.0 else 0.0, statistics)


@dataclass(frozen=True)
class LinearTerm:
    """``weight |Y - X D|^2``, from ``X'X`` (p, p), ``X'Y`` (p, m) and ``|Y|^2`` of the linear codes X."""

    weight: float
    statistics: SufficientStatistics

    def value(self, vectors: Array) -> float:
        """The term at the kernel vectors (p, m)."""
        code_gram, cross_products, energy, _ = self.statistics
        fit = dot(code_gram, vectors @ vectors.T) - 2.0 * dot(cross_products, vectors)
        return self.weight * (energy + float(fit))

    def gradient(self, vectors: Array, rows: int | slice = slice(None)) -> Array:
        """Its gradient (p, m), or some rows of it."""
        code_gram, cross_products, *_ = self.statistics
        return 2.0 * self.weight * (code_gram[rows] @ vectors - cross_products[rows])


def on_sphere(vectors: np.ndarray, norm: float, rng: np.random.RandomState, *, are_given: bool) -> np.ndarray:
    """Kernel vectors of one norm; a zero signal that was drawn gets a random direction."""
    norms = np.linalg.norm(vectors, axis=1)
    zero = norms == 0.0
    if zero.any():
        if are_given:
            raise ValueError(
                f"Row {int(np.flatnonzero(zero)[0])} of kernel_vectors has norm zero, and MORKDL holds all of them to "
                f"one norm: give every kernel vector a direction, or use kernel_vector_norm='free'."
            )
        vectors[zero] = rng.standard_normal((int(zero.sum()), vectors.shape[1]))
        norms = np.linalg.norm(vectors, axis=1)
    return vectors * (norm / norms)[:, None]


def signal_moments(executor: Executor) -> tuple[np.ndarray, float, float]:
    """The signals' mean (m,), and the root mean square and the mean of their norms."""
    (total, squares, norms), _ = executor.map_reduce(_moments)
    count = executor.signals.shape[0]
    return host(total) / count, float(np.sqrt(float(squares) / count)), float(norms) / count


def _moments(signals: Array, state: object) -> tuple[tuple, None]:
    squares = cast(squared_norms(signals), np.float64)
    return (cast(signals, np.float64).sum(0), squares.sum(), (squares**0.5).sum()), None
