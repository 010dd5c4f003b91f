"""Learning from a stream: a problem that sees one batch, and running statistics of all batches before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rkdl._backends.arrays import host
from rkdl._coding.preimages import DecoderSums
from rkdl._execution.executor import Executor
from rkdl._features.kernels import has_user_code
from rkdl._features.maps import KernelMap
from rkdl._features.metric import make_metric
from rkdl._learning.atom_replacement import WorstSignals, find_worst
from rkdl._learning.atom_updates import normalize_rows
from rkdl._learning.buffered_batches import BufferedBatch
from rkdl._learning.chunk_tasks import GradientTask
from rkdl._learning.kernel_vector_replacement import MIN_SIGNALS_PER_ATOM, keep_kernel_vectors
from rkdl._learning.kernel_vector_updates import KernelVectorUpdate, PastSignals
from rkdl._learning.reduced import Iterate, Model, ReducedProblem
from rkdl._learning.reservoir import Reservoir
from rkdl._learning.running_statistics import RunningStatistics
from rkdl._learning.statistics import SufficientStatistics

# A discounted sum never ends at zero: atoms used less than this, relative to the most used one, are unused.
NEGLIGIBLE_USE = 1e-6


@dataclass(frozen=True)
class Stream:
    """A stream between two batches.

    Attributes
    ----------
    model : Model
        Atoms and kernel vectors.
    running : RunningStatistics
        Statistics of all batches but the buffered ones.
    vector_update : KernelVectorUpdate or None
        What moved the kernel vectors last.
    scale, gamma : float, float or None
        What its signals are multiplied by, and the kernel's parameter for them.
    settings : dict
        Parameters that its statistics depend on.
    decoder_sums : DecoderSums or None
        Sums that the decoder is learned from, where one is.
    buffered : tuple of BufferedBatch
        Batches that wait for an update, and are in neither of the sums.
    buffered_sums : DecoderSums or None
        The decoder's sums with those of the buffered batches, coded with the current atoms.
    is_provisional : bool
        Whether the kernel vectors and the first atoms are to be chosen again, from all signals of the first update.
    has_warned : bool
        Whether the user was warned that not all batches could be buffered.
    seen : Reservoir or None
        A sample of the signals seen, where the start may have to be chosen anew.
    """

    model: Model
    running: RunningStatistics
    vector_update: KernelVectorUpdate | None
    scale: float
    gamma: float | None
    settings: dict
    decoder_sums: DecoderSums | None = None
    buffered: tuple[BufferedBatch, ...] = ()
    buffered_sums: DecoderSums | None = None
    is_provisional: bool = False
    has_warned: bool = False
    seen: Reservoir | None = None

    def state(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Everything that a stream continues from: numbers, and arrays."""
        running = self.running
        numbers = {
            "weight": running.weight,
            "energy": running.statistics.energy,
            "residual_energy": running.statistics.residual_energy,
            "n_waiting": 0 if running.worst is None else running.worst.n_signals,
            "is_discounted": running.is_discounted,
        }
        arrays: dict[str, Any] = {
            "running.code_gram": running.statistics.code_gram,
            "running.cross_products": running.statistics.cross_products,
        }
        if running.worst is not None:
            arrays |= {"worst.residuals": running.worst.residuals, "worst.signals": running.worst.signals}
        if running.linear is not None:
            arrays |= {
                "linear.code_gram": running.linear.code_gram,
                "linear.cross_products": running.linear.cross_products,
            }
            numbers["linear_energy"] = running.linear.energy
        for kind, sums in (("decoder", self.decoder_sums), ("buffered_decoder", self.buffered_sums)):
            if sums is not None:
                arrays |= {f"{kind}.{name}": np.asarray(part) for name, part in sums._asdict().items()}
        arrays |= {f"buffered.{number}": batch.rows for number, batch in enumerate(self.buffered)}
        header = {
            "scale": self.scale,
            "gamma": self.gamma,
            "running": numbers,
            "settings": self.settings,
            "buffered_chunks": [list(batch.chunks) for batch in self.buffered],
            "is_provisional": self.is_provisional,
            "has_warned": self.has_warned,
        }
        if self.seen is not None:
            known = vars(self.seen)
            arrays |= {f"seen.{name}": value for name, value in known.items() if isinstance(value, np.ndarray)}
            header["seen"] = {name: value for name, value in known.items() if not isinstance(value, np.ndarray)}
        if self.vector_update is not None:
            arrays |= self.vector_update.state()
        return header, {**self.model.state(), **{name: host(array) for name, array in arrays.items()}}

    @classmethod
    def restored(cls, problem: ReducedProblem, numbers: dict, arrays: dict[str, np.ndarray]) -> Stream:
        """The stream of a state; `problem` takes over what is its own."""
        problem.restore({name: array for name, array in arrays.items() if "." not in name})
        running, linear, worst = numbers["running"], None, None
        energies = {name: running[name] for name in ("energy", "residual_energy")}
        statistics = SufficientStatistics(**_named(arrays, "running."), **energies)
        if "linear.code_gram" in arrays:
            linear = SufficientStatistics(**_named(arrays, "linear."), energy=running["linear_energy"])
        if "worst.residuals" in arrays:
            worst = WorstSignals(running["n_waiting"], **_named(arrays, "worst."))
        sums, buffered_sums = (_named(arrays, f"{kind}.") for kind in ("decoder", "buffered_decoder"))
        chunks = numbers.get("buffered_chunks", [])
        return cls(
            Executor.to_backend(problem.executor, problem.model),
            RunningStatistics(statistics, running["weight"], linear, worst, running["is_discounted"]),
            problem.vector_update,
            numbers["scale"],
            numbers["gamma"],
            numbers.get("settings", {}),
            DecoderSums(**sums) if sums else None,
            tuple(BufferedBatch(arrays[f"buffered.{number}"], tuple(rows)) for number, rows in enumerate(chunks)),
            DecoderSums(**buffered_sums) if buffered_sums else None,
            numbers.get("is_provisional", False),
            numbers.get("has_warned", False),
            Reservoir(**numbers["seen"], **_named(arrays, "seen.")) if "seen" in numbers else None,
        )

    def after(self, problem: StreamProblem, **changes: Any) -> Stream:
        """The stream with what a batch has made of it; everything is in NumPy, so that it may be saved."""
        own = problem.problem
        # Of any executor: the base class brings everything to the host.
        model, running = Executor.to_backend(own.executor, (own.model, problem.running))
        return replace(self, model=model, running=running, vector_update=own.vector_update, **changes)


def _named(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def fade_sums(sums: DecoderSums | None, share: float) -> DecoderSums | None:
    """The sums multiplied by `share`."""
    if sums is None or share == 1.0:
        return sums
    parts: list[Any] = [share * part for part in sums]
    return DecoderSums(*parts)


class StreamProblem:
    """A batch of a stream: a problem on its signals, to which all signals before it count too.

    Parameters
    ----------
    problem : ReducedProblem
        The problem of the batch alone.
    running : RunningStatistics
        Statistics of the batches before.
    n_candidates : int, default=0
        Signals of the batch that are candidates for the places of kernel vectors; 0 leaves these.
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
        energies = {"energy": float(statistics.energy), "residual_energy": float(statistics.residual_energy)}
        self.running = replace(
            running,
            statistics=statistics._replace(**energies),
            weight=running.weight + problem.executor.signals.shape[0],
            linear=None if problem.linear is None else problem.linear_statistics(running.linear),
            worst=worst,
        )

    def check(self) -> None:
        """Refuse signals whose features are not finite."""
        self.problem.encode_with(self.problem.model.whitened_atoms)

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
        if past is None or self.n_candidates == 0 or not isinstance(feature_map, KernelMap) or metric.rank == 0:
            return iterate
        if has_user_code(feature_map.kernel):
            return iterate
        signals, kernel, vectors, place = (
            executor.signals,
            feature_map.kernel,
            feature_map.kernel_vectors,
            executor.to_backend,
        )
        count, n_atoms = min(self.n_candidates, signals.shape[0]), len(iterate.whitened_atoms)
        candidates = signals.take(np.linspace(0, signals.shape[0] - 1, count).astype(np.intp))
        (own,), _ = executor.map_reduce(GradientTask(kernel, place(candidates), n_atoms, None), iterate.chunks)
        wide = place(candidates.astype(np.float64))
        gone = host(metric.unwhiten(metric.whiten(past.cross_products)) @ kernel(vectors, wide))
        scales = host(iterate.code_scales)[:, None]
        joined = np.concatenate([host(iterate.statistics.cross_products), scales * (host(own) + gone)], axis=1)
        past_joined = scales * np.concatenate([host(past.cross_products), gone], axis=1)
        everything = np.concatenate([host(vectors), host(wide)])
        matrix = host(replace(feature_map, kernel_vectors=place(everything)).matrix())
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
        fresh_metric = make_metric(fresh.matrix(), signals.dtype)
        moved = fresh_metric.whiten(metric.unwhiten(iterate.whitened_atoms) @ kernel(vectors, fresh.kernel_vectors))
        return self.problem.update_atoms(
            iterate._replace(
                feature_map=fresh,
                metric=fresh_metric,
                whitened_atoms=normalize_rows(moved),
                statistics=iterate.statistics._replace(cross_products=place(joined[:, chosen])),
            )
        )
