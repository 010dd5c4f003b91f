"""A batch of a stream as a learning problem: that of its own signals, with the statistics of all batches before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rkdl._backends.arrays import host, normalize_rows
from rkdl._features.kernels import has_user_code
from rkdl._features.maps import KernelMap
from rkdl._learning.atom_replacement import find_worst
from rkdl._learning.chunk_tasks import GradientTask
from rkdl._learning.kernel_vector_replacement import MIN_SIGNALS_PER_ATOM, keep_kernel_vectors
from rkdl._learning.kernel_vector_updates import PastSignals
from rkdl._learning.reduced import Iterate, ReducedProblem
from rkdl._learning.running_statistics import RunningStatistics

# A discounted sum never ends at zero: atoms used less than this, relative to the most used one, are unused.
NEGLIGIBLE_USE = 1e-6


class StreamProblem:
    """A batch of a stream: the problem of its signals alone, and the running statistics of all signals before it.

    So many signals of the batch are candidates for the places of kernel vectors; 0 leaves these.
    """

    def __init__(self, problem: ReducedProblem, running: RunningStatistics, n_candidates: int = 0) -> None:
        self.problem = problem
        self.running: RunningStatistics = problem.executor.to_backend(running)
        self.n_candidates = n_candidates

    def update(self) -> None:
        """One iteration with the batch: codes, atoms, kernel vectors, unused atoms; all or nothing."""
        problem, running = self.problem, self.running
        iterate = problem.encode_signals(running.past, running.linear)
        iterate = iterate if running.past else problem.refine_objective(iterate)
        problem.measure(iterate)
        uses = iterate.statistics.code_gram.diagonal()
        used = uses > (NEGLIGIBLE_USE * uses.max() if running.is_discounted else 0.0)
        iterate = problem.update_atoms(iterate)
        iterate = problem.update_kernel_vectors(iterate, self._past_signals(iterate))
        iterate = self._replace_kernel_vectors(iterate)
        iterate = iterate if running.past else problem.refine_objective(iterate)
        iterate = problem.replace_unused_atoms(iterate, used, running.worst)
        problem.accept(iterate)
        code_gram, cross_products, energy, _ = iterate.statistics
        code_gram[~used] = code_gram[:, ~used] = cross_products[~used] = 0.0
        self.running = RunningStatistics(
            iterate.statistics._replace(energy=float(energy), residual_energy=0.0),
            running.weight + problem.executor.signals.shape[0],
            None if iterate.linear is None else iterate.linear.statistics,
            is_discounted=running.is_discounted,
        )

    def accumulate(self) -> None:
        """Add the statistics of the batch, coded with the current atoms; nothing else changes."""
        problem, running = self.problem, self.running
        statistics, chunks = problem.encode_with(problem.model.whitened_atoms, past=running.past)
        worst = find_worst(problem.executor, chunks, len(problem.model.whitened_atoms), running.worst)
        energy, residual_energy = map(float, statistics[2:])
        self.running = replace(
            running,
            statistics=statistics._replace(energy=energy, residual_energy=residual_energy),
            weight=running.weight + problem.executor.signals.shape[0],
            linear=None if problem.linear is None else problem.linear_statistics(running.linear),
            worst=worst,
        )

    def _past_signals(self, iterate: Iterate) -> PastSignals | None:
        """Signals of earlier batches as far as the kernel vectors represent them."""
        if self.running.past is None or not self.problem.moves_vectors:
            return None
        assert isinstance(iterate.feature_map, KernelMap)
        cross_products = self.running.past.cross_products
        if iterate.code_scales is not None:
            cross_products = cross_products * iterate.code_scales[:, None]
        combinations = iterate.metric.unwhiten(iterate.metric.whiten(cross_products))
        return PastSignals(iterate.feature_map.kernel_vectors, combinations)

    def _replace_kernel_vectors(self, iterate: Iterate) -> Iterate:
        """Let signals of the batch replace kernel vectors that the atoms can do without.

        Of signals that are gone the new kernel vectors know what the old ones represent. The choice is made for the
        batch and so much of what was seen before as is needed for it to be sure, or the old would always outweigh the
        new.
        """
        past, executor, feature_map, metric = self.running.past, self.problem.executor, *iterate[:2]
        if past is None or self.n_candidates == 0 or metric.rank == 0:
            return iterate
        if not isinstance(feature_map, KernelMap) or has_user_code(feature_map.kernel):
            return iterate
        signals, place = executor.signals, executor.to_backend
        kernel, vectors = feature_map.kernel, feature_map.kernel_vectors
        count, n_atoms = min(self.n_candidates, signals.shape[0]), len(iterate.whitened_atoms)
        candidates = signals.take(np.linspace(0, signals.shape[0] - 1, count).astype(np.intp))
        (own,), _ = executor.map_reduce(GradientTask(kernel, place(candidates), n_atoms, None), iterate.chunks)
        wide = place(candidates.astype(np.float64))
        gone = host(metric.unwhiten(metric.whiten(past.cross_products)) @ kernel(vectors, wide))
        scales = host(iterate.code_scales)[:, None]
        joined = np.concatenate([host(iterate.statistics.cross_products), scales * (host(own) + gone)], axis=1)
        past_joined = scales * np.concatenate([host(past.cross_products), gone], axis=1)
        everything = np.concatenate([host(vectors), host(wide)])
        matrix = host(replace(feature_map, kernel_vectors=place(everything)).matrix(signals.dtype))
        if not np.isfinite(matrix).all():
            return iterate
        surplus = 1.0 - min(1.0, max(signals.shape[0], MIN_SIGNALS_PER_ATOM * n_atoms) / self.running.weight)
        chosen = keep_kernel_vectors(
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
        return self.problem.update_atoms(
            iterate._replace(
                feature_map=fresh,
                metric=fresh_metric,
                whitened_atoms=normalize_rows(moved),
                statistics=iterate.statistics._replace(cross_products=place(joined[:, chosen])),
            )
        )
