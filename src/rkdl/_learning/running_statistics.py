"""A batch of a stream: the learning problem of its signals, and running statistics of all signals before it.

These are sums over the signals seen, discounted where old signals are to be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from rkdl._coding.preimages import DecoderSums
from rkdl._learning.atom_replacement import WorstSignals, find_worst
from rkdl._learning.chunk_tasks import SufficientStatistics
from rkdl._learning.kernel_vector_updates import PastSignals
from rkdl._learning.reduced import Iterate, ReducedProblem

# A discounted sum never ends at zero: atoms used less than this, relative to the most used one, are unused.
NEGLIGIBLE_USE = 1e-6
# A replacement must explain this many times as much as the atom: a stream has no better model to return to.
STREAM_MARGIN = 8.0

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
    rate = np.log(0.5) / max(half_life, 1e-300)
    return float(np.exp(n_signals * rate)), float(np.expm1(n_signals * rate) / (n_signals * np.expm1(rate)))


def learn_batch(problem: ReducedProblem, running: RunningStatistics) -> RunningStatistics:
    """One iteration with the batch: codes, atoms, kernel vectors, unused atoms; all or nothing.

    Returns the statistics with those of the batch.
    """
    iterate = problem.encode_signals(running.statistics, running.linear)
    uses = iterate.statistics.code_gram.diagonal()
    used = uses > (NEGLIGIBLE_USE * uses.max() if running.is_discounted else 0.0)
    iterate = problem.update_atoms(iterate)
    iterate = problem.update_kernel_vectors(iterate, _past_signals(problem, running, iterate))
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
