"""A batch of a stream: the learning problem of its signals, and running statistics of all signals before it.

These are sums over the signals seen, discounted where old signals are to be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from rkdl._backends.arrays import host, normalize_rows
from rkdl._coding.preimages import DecoderSums
from rkdl._features.maps import KernelMap
from rkdl._features.metric import make_metric
from rkdl._learning.atom_replacement import WorstSignals, find_worst
from rkdl._learning.chunk_tasks import GradientTask, SufficientStatistics
from rkdl._learning.kernel_vector_updates import PastSignals
from rkdl._learning.reduced import Iterate, ReducedProblem

# A discounted sum never ends at zero: atoms used less than this, relative to the most used one, are unused.
NEGLIGIBLE_USE = 1e-6
# A replacement must explain this many times as much as the atom: a stream has no better model to return to.
STREAM_MARGIN = 8.0
# One signal of a batch per CANDIDATE_SHARE kernel vectors is a candidate, at most MAX_CANDIDATES: each costs O(p^2).
CANDIDATE_SHARE, MAX_CANDIDATES = 5, 20
# Kernel vectors are replaced only with this many signals per atom; with fewer, the choice was due to chance.
MIN_SIGNALS_PER_ATOM = 8

Summed = TypeVar("Summed", SufficientStatistics, DecoderSums)


@dataclass(frozen=True)
class RunningStatistics:
    """Statistics of the signals that were seen before."""

    # None where nothing was seen; the residual energy is that of the signals in the count of `worst`.
    statistics: SufficientStatistics | None = None
    weight: float = 0.0  # number of signals, old ones counting less
    linear: SufficientStatistics | None = None  # those of the linear term's codes
    worst: WorstSignals | None = None  # of the signals seen since the atoms were last updated
    is_discounted: bool = False

    def discounted(self, factor: float) -> RunningStatistics:
        """The same with every sum multiplied by `factor`."""
        if factor == 1.0:
            return self
        weight, statistics = self.weight * factor, self.statistics
        if statistics is None or weight == 0.0:
            return RunningStatistics(worst=self.worst, is_discounted=True)
        statistics = scaled(statistics, factor)._replace(residual_energy=statistics.residual_energy)
        linear = self.linear and scaled(self.linear, factor)
        return RunningStatistics(statistics, weight, linear, self.worst, is_discounted=True)


def scaled(sums: Summed, factor: float) -> Summed:
    """Sums of signals that weigh `factor` times as much."""
    parts: list[Any] = [factor * part for part in sums]
    return sums if factor == 1.0 else type(sums)(*parts)


def discount_factors(n_signals: float, half_life: float | None) -> tuple[float, float]:
    """Factor of the sums before a batch, and mean weight of its own signals.

    The last signal weighs one and each before it ``0.5 ** (1 / half_life)`` of the next, or one without a half-life.
    With the mean of that for all signals of a batch, the total weight does not depend on how the stream was cut
    into batches.
    """
    if half_life is None:
        return 1.0, 1.0
    rate = np.log(0.5) / half_life
    return float(np.exp(n_signals * rate)), float(np.expm1(n_signals * rate) / (n_signals * np.expm1(rate)))


def learn_batch(problem: ReducedProblem, running: RunningStatistics, *, replaces_vectors: bool) -> RunningStatistics:
    """One iteration with the batch: codes, atoms, kernel vectors, unused atoms; all or nothing.

    Returns the statistics with those of the batch.
    """
    iterate = problem.encode_signals(running.statistics, running.linear)
    uses = iterate.statistics.code_gram.diagonal()
    used = uses > (NEGLIGIBLE_USE * uses.max() if running.is_discounted else 0.0)
    iterate = problem.update_atoms(iterate)
    iterate = problem.update_kernel_vectors(iterate, _past_signals(problem, running, iterate))
    if replaces_vectors:
        iterate = _replace_kernel_vectors(problem, running, iterate)
    iterate = iterate if running.statistics else problem.refine_objective(iterate)
    iterate = problem.replace_unused_atoms(iterate, used, running.worst)
    weight = running.weight + problem.executor.signals.total
    if np.isfinite(problem.model.update_objective):
        # Not in the first update, which is one iteration of a fit.
        iterate, replaced = problem.replace_useless_atoms(iterate, 0, STREAM_MARGIN, weight)
        used[replaced] = False
    problem.accept(iterate)
    code_gram, cross_products, energy, _ = iterate.statistics
    code_gram[~used] = code_gram[:, ~used] = cross_products[~used] = 0.0
    return RunningStatistics(
        iterate.statistics._replace(energy=float(energy), residual_energy=0.0),
        weight,
        None if iterate.linear is None else iterate.linear.statistics,
        is_discounted=running.is_discounted,
    )


def add_batch(problem: ReducedProblem, running: RunningStatistics) -> RunningStatistics:
    """The statistics with those of the batch, coded with the current atoms; nothing else changes."""
    statistics, chunks = problem.encode_with(problem.model.whitened_atoms, past=running.statistics)
    vectors, linear = problem.model.feature_map.vectors, problem.linear
    worst = find_worst(problem.executor, chunks, len(problem.model.whitened_atoms), running.worst)
    energy, residual_energy = map(float, statistics[2:])
    return replace(
        running,
        statistics=statistics._replace(energy=energy, residual_energy=residual_energy),
        weight=running.weight + problem.executor.signals.total,
        linear=None if linear is None else linear.statistics(problem.executor, vectors, running.linear),
        worst=worst,
    )


def _past_signals(problem: ReducedProblem, running: RunningStatistics, iterate: Iterate) -> PastSignals | None:
    """Signals of earlier batches as far as the kernel vectors represent them."""
    if running.statistics is None or not problem.moves_vectors:
        return None
    cross_products = running.statistics.cross_products
    if iterate.code_scales is not None:
        cross_products = cross_products * iterate.code_scales[:, None]
    combinations = iterate.metric.unwhiten(iterate.metric.whiten(cross_products))
    return PastSignals(iterate.feature_map.vectors, combinations)


def _replace_kernel_vectors(problem: ReducedProblem, running: RunningStatistics, iterate: Iterate) -> Iterate:
    """Replace the kernel vectors that the atoms need least by signals of the batch.

    Past signals enter the products with new kernel vectors as the old ones represent them. The choice is made for the
    batch and only as many past signals as make it reliable, since otherwise the past would always outweigh the
    batch.
    """
    past, executor, feature_map, metric = running.statistics, problem.executor, *iterate[:2]
    if past is None or metric.rank == 0:
        return iterate
    if not isinstance(feature_map, KernelMap) or feature_map.kernel._has_user_code:
        return iterate
    signals, place = executor.signals, executor.to_backend
    kernel, vectors = feature_map.kernel, feature_map.kernel_vectors
    n_atoms = len(iterate.whitened_atoms)
    count = min(max(1, len(vectors) // CANDIDATE_SHARE), MAX_CANDIDATES, signals.shape[0])
    candidates = signals.take(np.linspace(0, signals.shape[0] - 1, count).astype(np.intp))
    (own,), _ = executor.map_reduce(GradientTask(kernel, place(candidates), n_atoms, None), iterate.chunks)
    wide = place(candidates.astype(np.float64))
    past_products = host(metric.unwhiten(metric.whiten(past.cross_products)) @ kernel(vectors, wide))
    scales = host(iterate.code_scales)[:, None]
    joined = np.concatenate([host(iterate.statistics.cross_products), scales * (host(own) + past_products)], axis=1)
    past_joined = scales * np.concatenate([host(past.cross_products), past_products], axis=1)
    everything = np.concatenate([host(vectors), host(wide)])
    matrix = host(replace(feature_map, kernel_vectors=place(everything)).matrix(signals.dtype))
    if not np.isfinite(matrix).all():
        return iterate
    surplus = 1.0 - min(1.0, max(signals.shape[0], MIN_SIGNALS_PER_ATOM * n_atoms) / running.weight)
    chosen = _keep_kernel_vectors(
        matrix,
        joined - surplus * past_joined,
        host(iterate.statistics.code_gram) - surplus * scales * scales.T * host(past.code_gram),
        len(vectors),
        signals.dtype,
    )
    if chosen[-1] < len(vectors):
        return iterate
    fresh = replace(feature_map, kernel_vectors=place(everything[chosen]))
    fresh_metric = fresh.metric(signals.dtype)
    moved = fresh_metric.whiten(metric.unwhiten(iterate.whitened_atoms) @ kernel(vectors, fresh.kernel_vectors))
    return problem.update_atoms(
        iterate._replace(
            feature_map=fresh,
            metric=fresh_metric,
            whitened_atoms=normalize_rows(moved),
            statistics=iterate.statistics._replace(cross_products=place(joined[:, chosen])),
        )
    )


def _keep_kernel_vectors(
    matrix: np.ndarray, cross_products: np.ndarray, code_gram: np.ndarray, count: int, dtype: np.dtype
) -> np.ndarray:
    """Indices, ascending, of the `count` kernel vectors without which the atoms would lose most.

    For codes Z of fixed signals, with ``S = Z'Z``, ``P = Z'K(Y, D)`` and ``M = K(D, D)``, the best atoms on the kernel
    vectors D fit ``tr S^-1 P M^-1 P'`` of the signals' energy. Without kernel vector i they fit less by
    ``B_ii / (M^-1)_ii``, where ``B = M^-1 P'S^-1 P M^-1``; what is left of both matrices is a change of rank one away.
    The dtype of the signals decides what is rounding.
    """
    size = len(matrix)
    # Vectors in the span of the others must not gain weight by rounding.
    ridge = size * max(float(np.finfo(dtype).eps), 1e-12) * float(matrix.diagonal().max())
    inverse = np.linalg.inv(matrix + ridge * np.eye(size))
    halves = inverse @ make_metric(code_gram, np.float64).whiten(cross_products.T)
    benefits = halves @ halves.T
    remaining = np.arange(size)
    while len(remaining) > count:
        i = int(np.argmin(benefits.diagonal() / inverse.diagonal()))
        column, row, scale = inverse[:, i] / inverse[i, i], benefits[i], benefits[i, i]
        benefits = benefits - np.outer(column, row) - np.outer(row, column) + scale * np.outer(column, column)
        inverse = inverse - np.outer(column, inverse[i])
        rest = np.arange(len(remaining)) != i
        remaining, inverse, benefits = remaining[rest], inverse[np.ix_(rest, rest)], benefits[np.ix_(rest, rest)]
    return remaining
