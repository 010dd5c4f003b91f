"""The learning problem of every method whose features fit a chunk: codes, atoms, kernel vectors."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, copied, dot, host, is_tensor, row_norms
from rkdl._backends.cpu.statistics import accumulate_gram
from rkdl._backends.cpu.sweeps import project_rows
from rkdl._coding.encoder import Pursuit
from rkdl._coding.pursuit import Codes, join_codes, split_codes
from rkdl._execution.executor import Executor
from rkdl._execution.threads import ThreadExecutor
from rkdl._features.kernels import Custom
from rkdl._features.maps import FeatureMap, GivenKernelMap, KernelMap, LinearMap
from rkdl._features.metric import IdentityMetric, Metric, make_metric
from rkdl._learning.atom_updates import aksvd_sweep, gram_sweep, normalize_rows, unit_gram
from rkdl._learning.chunk_tasks import ChunkState, EncodeTask, Features, GradientTask, ResidualTask
from rkdl._learning.kernel_vector_replacement import MIN_SIGNALS_PER_ATOM, keep_kernel_vectors
from rkdl._learning.kernel_vector_update import LBFGS, KernelVectorUpdate, LinearTerm, Objective
from rkdl._learning.running_statistics import RunningStatistics
from rkdl._persistence.states import check_reduced_state, check_shape

# Numbers of a model.
NUMBERS = ("objective", "penalty", "update_objective", "n_revived", "n_empty")

# Where less than this share of the signals' energy is left, few of their codes are empty.
POOR_SHARE = 0.25


class Model(NamedTuple):
    """What an iteration of `ReducedProblem` ends with; see its attributes."""

    feature_map: FeatureMap
    metric: Metric | IdentityMetric
    white: np.ndarray
    objective: float
    penalty: float
    update_objective: float
    n_revived: int
    n_empty: int

    def state(self) -> dict[str, np.ndarray]:
        """The model as arrays for a file."""
        numbers = {name: np.array(getattr(self, name)) for name in NUMBERS}
        arrays = {"white": self.white, **self.feature_map.state()}
        return {**{name: host(value) for name, value in arrays.items()}, **numbers}


class ReducedProblem:
    """Dictionary learning on features: DL, FourierDL, RKDL, and with a vector_update ORKDL and MORKDL.

    Parameters
    ----------
    executor : Executor
        Walks the signals.
    feature_map, metric : FeatureMap, Metric
        The first feature map and its metric.
    white : ndarray of shape (n, rank)
        The first atoms in whitened coordinates; those of norm zero are revived after the first pursuit.
    pursuit : Pursuit
        How signals are coded.
    refit : bool
        The paper's sweep instead of the statistics' one.
    vector_update : KernelVectorUpdate or None
        What moves the kernel vectors.
    linear : tuple of (float, Pursuit) or None
        Weight, relative to ``tr K(Y, Y) / |Y|^2``, and pursuit of the linear term.

    Attributes
    ----------
    feature_map, metric : FeatureMap, Metric
        The current map and its metric.
    white : ndarray of shape (n, rank)
        Atoms in whitened coordinates, unit norm (or zero).
    objective : float
        ``f`` of the signals coded with the current model; of those of the last `encode`.
    penalty : float
        What is minimised beside it: the linear term at the kernel vectors, where they are optimised.
    update_objective : float
        ``f`` right after the last update, with the codes that it was made for.
    n_revived : int
        Unused atoms replaced so far.
    n_empty : int
        Signals of the last `encode` that are not zero and have a code of zeros, where they may be many; else 0.
    memory : Memory or None
        Statistics of signals that were seen before and count too: a stream's. None in a fit.
    n_candidates : int
        Signals that offer themselves for kernel vectors after an update of a stream that forgets; 0 elsewhere.
    """

    def __init__(
        self,
        executor: Executor,
        feature_map: FeatureMap,
        metric: Metric | IdentityMetric,
        white: np.ndarray,
        pursuit: Pursuit,
        *,
        refit: bool = False,
        vector_update: KernelVectorUpdate | None = None,
        linear: tuple[float, Pursuit] | None = None,
    ) -> None:
        self.executor = executor
        self.feature_map = executor.to_backend(feature_map)
        self.metric = executor.to_backend(metric)
        self.white = normalize_rows(executor.to_backend(white))
        self.pursuit = pursuit
        self.refit = refit
        self.vector_update = vector_update
        self.linear = linear
        self.objective = self.update_objective = np.inf
        self.penalty = 0.0
        self.n_revived = self.n_empty = 0
        self.memory: RunningStatistics | None = None
        self.n_candidates = 0
        self._features: list | None = None
        self._coded: tuple[tuple, list] | None = None
        self._linear_sums: tuple | None = None

    @property
    def atoms(self) -> np.ndarray:
        """Atoms (n, p) as combinations of the features' coordinates, unit norm in the metric."""
        return self.metric.unwhiten(self.white)

    def iterate(self) -> None:
        """One iteration that begins with the codes: all that a stream does with a batch."""
        self.encode()
        self.update()

    def encode(self) -> None:
        """Code the signals with the current model, which gives its error."""
        self._coded = self._encode(self.white)
        (_, _, trace, lost), kept = self._coded
        self.objective = float(lost)
        # Empty codes of many signals leave much; where little is left nobody need count them.
        is_poor = self.objective > POOR_SHARE * float(trace)
        self.n_empty = sum(self.executor.gather(count_empty, kept)) if is_poor else 0
        self._linear_sums = self._sum_linear_codes() if self._moves() else None
        term = self._linear_term(self._linear_sums, float(trace))
        self.penalty = 0.0 if term is None else term.value(self.feature_map.kernel_vectors)  # type: ignore[union-attr]
        if self._is_linear_alone() and self.objective < self._rounding(trace):
            self.objective = self._residual(kept, self.white)

    def update(self) -> None:
        """Update atoms and kernel vectors for the codes of `encode`, replace unused atoms; all or nothing."""
        assert self._coded is not None
        memory = self.memory
        feature_map, metric, white = self.feature_map, self.metric, copied(self.white)
        kept: Any
        (products, projections, trace, lost), kept = self._coded
        self._coded = None
        if self._codes_twice():
            _sweep(products, metric.whiten(projections), white, trace)
            # Features are all that the second coding can use of the first; codes go before the new ones come.
            if not self._keeps_features():
                kept = None
            (products, projections, trace, lost), kept = self._encode(white, kept)
        # A fading sum never ends at zero; what is left of it counts for nothing.
        used = products.diagonal() > (1e-6 * products.diagonal().max() if memory is not None and memory.fades else 0.0)
        vector_update = self.vector_update if self._moves() else None
        factors: Any = self.executor.to_backend(np.ones(len(white)))
        targets = metric.whiten(projections)
        if self.refit:
            kept, products, objective = self._refit(kept, targets, white, trace)
        elif vector_update is None or not vector_update.projects_atoms:
            factors, objective = _sweep(products, targets, white, trace)
            products *= factors[:, None] * factors
            projections *= factors[:, None]
            if vector_update is not None:
                kept = self.executor.map_states(partial(_rescale, factors=factors), kept)

        linear_sums = self._linear_sums
        if vector_update is not None:
            assert isinstance(feature_map, KernelMap)
            assert not isinstance(feature_map.kernel, Custom)
            atoms_before = metric.unwhiten(white)
            surface = self._surface(kept, products, float(trace), linear_sums)
            if not vector_update.projects_atoms:
                surface.held_atoms = atoms_before
            known = None if self.refit else projections
            if memory is not None and memory.sums is not None:
                past = memory.projections * factors[:, None]
                surface.memory, known = (feature_map.kernel_vectors, metric.unwhiten(metric.whiten(past))), None
            # Held by the surface alone, features are gone before those of the new kernel vectors are there.
            self._features = None
            del kept
            assert surface.feature_vectors is not None
            point = vector_update.move(surface, surface.at(surface.feature_vectors, known))
            kept = surface.kept
            feature_map, metric = (
                replace(feature_map, kernel_vectors=self.executor.to_backend(point.vectors)),
                point.metric,
            )
            projections = point.projections
            # The atoms that the accepted value belongs to, or what was gained would be lost again.
            white = normalize_rows(point.white, otherwise=metric.to_white(atoms_before))
            factors = row_norms(point.white)
            objective = point.value - (surface.linear.value(point.vectors) if surface.linear else 0.0)

        if memory is not None and memory.sums is not None and self.n_candidates > 0:
            found = self._exchange(kept, factors, products, projections, white)
            if found is not None:
                feature_map, metric, white, projections = found
                factors, objective = _sweep(products, metric.whiten(projections), white, trace)
                products *= factors[:, None] * factors
                projections *= factors[:, None]
        if self._is_linear_alone() and objective < self._rounding(trace):
            rescaled = kept if self.refit else self.executor.map_states(partial(_rescale, factors=factors), kept)
            objective = self._residual(rescaled, white)
        revived = self._revive(kept, lost, used, feature_map, metric, white)
        if memory is not None:
            if vector_update is not None:
                products = products * factors * factors[:, None]
                projections = projections * factors[:, None]
            products[~used] = products[:, ~used] = projections[~used] = 0.0
            self.memory = RunningStatistics(
                products,
                projections,
                float(trace),
                memory.weight + self.executor.signals.shape[0],
                linear_sums,
                fades=memory.fades,
            )
        if vector_update is not None:
            self._features = None if point.features is None else [_features_alone(item) for item in point.features]
        self.feature_map, self.metric, self.white = feature_map, metric, white
        self.update_objective = float(objective)
        self.n_revived += revived

    def _is_linear_alone(self) -> bool:
        """Whether features are signals, and all that count are here: residuals themselves can be had."""
        is_alone = self.memory is None or self.memory.sums is None
        return is_alone and isinstance(self.feature_map, LinearMap)

    def _rounding(self, trace: float) -> float:
        """Differences of squares below this have no digits left."""
        return 1e3 * float(np.finfo(self.executor.signals.dtype).eps) * float(trace)

    def _residual(self, kept: list, white: np.ndarray) -> float:
        """Sum of squares of the residuals themselves."""
        (square,), _ = self.executor.map_reduce(ResidualTask(cast(white, self.executor.signals.dtype)), kept)
        return float(square)

    def _surface(self, kept: list, products: Any, trace: float, linear_sums: tuple | None) -> Objective:
        """The objective as a function of the kernel vectors, which are where they are moved."""
        lent = self._lent(self.feature_map)
        surface = Objective(self.executor, kept, lent.kernel, products, trace, self._linear_term(linear_sums, trace))
        surface.feature_map = lambda vectors: replace(lent, kernel_vectors=vectors)
        surface.feature_vectors, surface.keeps_features = lent.kernel_vectors, self._keeps_features()
        return surface

    def _exchange(
        self, kept: list, factors: Any, products: Any, projections: Any, white: np.ndarray
    ) -> tuple[KernelMap, Any, np.ndarray, np.ndarray] | None:
        """Let signals of the batch take the place of kernel vectors that the atoms can do without.

        Returns the new map, its metric, atoms and projections; None where nothing changes. Of signals that are gone the
        new kernel vectors know what the old ones represent. The choice is made for the batch and so much of what was
        seen before as is needed for it to be sure, or the old would always outweigh the new.
        """
        feature_map, metric, memory, place = self.feature_map, self.metric, self.memory, self.executor.to_backend
        assert memory is not None
        if not isinstance(feature_map, KernelMap) or isinstance(feature_map.kernel, Custom) or metric.rank == 0:
            return None
        signals, kernel, vectors = self.executor.signals, feature_map.kernel, feature_map.kernel_vectors
        count = min(self.n_candidates, signals.shape[0])
        offered = signals.take(np.linspace(0, signals.shape[0] - 1, count).astype(np.intp))
        (own,), _ = self.executor.map_reduce(GradientTask(kernel, place(offered), len(white), None), kept)
        wide = place(offered.astype(np.float64))
        gone = host(metric.unwhiten(metric.whiten(memory.projections)) @ kernel(vectors, wide))
        scales = host(factors)[:, None]
        joined = np.concatenate([host(projections), scales * (host(own) + gone)], axis=1)
        past = scales * np.concatenate([host(memory.projections), gone], axis=1)
        everything = np.concatenate([host(vectors), host(wide)])
        matrix = host(replace(feature_map, kernel_vectors=place(everything)).matrix())
        if not np.isfinite(matrix).all():
            return None
        surplus = 1.0 - min(1.0, max(signals.shape[0], MIN_SIGNALS_PER_ATOM * len(white)) / memory.weight)
        chosen = keep_kernel_vectors(
            matrix,
            joined - surplus * past,
            host(products) - surplus * scales * scales.T * host(memory.products),
            len(vectors),
            signals.dtype,
        )
        if chosen[-1] < len(vectors):
            return None
        fresh = replace(feature_map, kernel_vectors=place(everything[chosen]))
        new = make_metric(fresh.matrix(), signals.dtype)
        moved = new.whiten(metric.unwhiten(white) @ kernel(vectors, fresh.kernel_vectors))
        return fresh, new, normalize_rows(moved), place(joined[:, chosen])

    def attend(self, executor: Executor | None) -> None:
        """Turn to other signals, or to none."""
        self.executor = executor  # type: ignore[assignment]
        self._features = self._coded = None
        # Between batches everything is in NumPy, so that a stream may be saved, and go on anywhere.
        place = ThreadExecutor.to_backend if executor is None else type(executor).to_backend
        held = (self.feature_map, self.metric, self.white, self.memory)
        self.feature_map, self.metric, self.white, self.memory = place(executor, held)  # type: ignore[arg-type]
        if isinstance(self.vector_update, LBFGS):
            self.vector_update.pairs = place(executor, self.vector_update.pairs)  # type: ignore[arg-type]

    def check(self) -> None:
        """Refuse signals whose features are not finite."""
        self._encode(self.white)

    def accumulate(self) -> None:
        """Codes alone: their sums are added to the memory, and nothing else changes."""
        memory = self.memory
        assert memory is not None
        (products, projections, trace, lost), kept = self._encode(self.white)
        n_signals = self.executor.signals.shape[0]
        residuals, signals = self._worst(kept, len(self.white))
        self.memory = replace(
            memory,
            products=products,
            projections=projections,
            trace=float(trace),
            weight=memory.weight + n_signals,
            linear=self._sum_linear_codes(),
            lost=float(lost),
            n_waiting=memory.n_waiting + n_signals,
            worst_residuals=residuals,
            worst_signals=signals,
        )

    def _codes_twice(self) -> bool:
        """Whether codes and atoms are alternated once more before the kernel vectors move.

        It spares a third of the iterations and costs little where features are kept; where they are not, out of memory
        and on a cluster, it is one walk more. The first iteration moves at once, so that it is what one epoch of a
        stream is.
        """
        is_first = not np.isfinite(self.update_objective)
        is_projected = self._moves() and self.vector_update.projects_atoms  # type: ignore[union-attr]
        return is_projected and not self.refit and not is_first and self.memory is None

    def _moves(self) -> bool:
        """Whether an update optimises the kernel vectors."""
        return self.vector_update is not None and self.vector_update.n_steps > 0

    def _lent(self, feature_map: Any) -> Any:
        """The map with its kernel vectors where they are moved; the metric of moved vectors has the bits of its."""
        is_moved = (
            self.vector_update is not None and self.vector_update.projects_atoms and self.vector_update.n_steps > 0
        )
        # A stream's memory and the linear term are small, and would be mixed with the vectors.
        is_alone = (self.memory is None or self.memory.sums is None) and self.linear is None
        return self.executor.with_vectors_on_device(feature_map) if is_moved and is_alone else feature_map

    def _encode(self, white: np.ndarray, kept: list | None = None) -> tuple[tuple, list]:
        """Sums of the codes against whitened atoms, those of the memory included; and the codes."""
        dtype = self.executor.signals.dtype
        atoms = cast(self.metric.unwhiten(white), dtype)
        step = EncodeTask(self.feature_map, atoms, cast(unit_gram(white), dtype), self.pursuit, self._keeps_features())
        start = None if self.memory is None else self.memory.sums
        sums, kept = self.executor.map_reduce(step, self._features if kept is None else kept, start=start)
        sums = self.executor.small_to_host(sums)
        if step.keeps_features and self.vector_update is None:
            self._features = [_features_alone(item) for item in kept]
        return sums, kept

    def _keeps_features(self) -> bool:
        """Whether features are asked for again, in this iteration or the next, and are few enough to be kept."""
        signals = self.executor.signals
        if isinstance(self.feature_map, LinearMap):
            return False
        return self.executor.can_cache(signals.shape[0] * self.feature_map.size * signals.dtype.itemsize)

    def snapshot(self) -> Model:
        """The current model, by reference."""
        return Model(self.feature_map, self.metric, self.white, *(getattr(self, name) for name in NUMBERS))

    def roll_back(self, snapshot: Model) -> None:
        """Make the model of a snapshot the current one again."""
        if snapshot.feature_map is not self.feature_map:
            # They are of other kernel vectors.
            self._features = None
        self._coded = None
        vars(self).update(snapshot._asdict())

    def state(self) -> dict[str, np.ndarray]:
        """What the next iteration starts from."""
        vector_update = {} if self.vector_update is None else self.vector_update.state()
        return {**self.snapshot().state(), **{name: host(value) for name, value in vector_update.items()}}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a state over; one that is not of this problem is refused."""
        check_reduced_state(
            state, len(self.white), self.feature_map.signal_size, is_moved=self.vector_update is not None
        )
        for name, array in self.feature_map.state().items():
            check_shape(name, state[name] if name in state else np.empty(0), tuple(array.shape))
        state = self.executor.to_backend(state)
        self.feature_map = self.feature_map.restored(state)
        assert not isinstance(self.feature_map, GivenKernelMap)
        self.metric = self._lent(self.feature_map).metric(self.executor.signals.dtype)
        check_shape("white", state["white"], (len(self.white), self.metric.rank))
        self.white = state["white"]
        self.objective, self.penalty = float(state["objective"]), float(state["penalty"])
        self.update_objective = float(state["update_objective"])
        self.n_revived, self.n_empty = int(state["n_revived"]), int(state["n_empty"])
        if self.vector_update is not None:
            self.vector_update.restore(state)

    def _refit(
        self, kept: list[ChunkState], targets: np.ndarray, white: np.ndarray, trace: float
    ) -> tuple[list[ChunkState], np.ndarray, float]:
        """The paper's sweep over all signals at once; `white` changes in place."""
        if hasattr(self.executor.signals, "device"):
            from rkdl._backends.torch.refit import refit

            found: Any = refit(self.executor, self.feature_map, self.metric, kept, targets, white, trace)
            return found
        kept = self.executor.gather(_itself, kept)
        features = self._all_features(kept)
        codes = join_codes([item.codes for item in kept])

        def correlate(j: int, rows: np.ndarray, couplings: np.ndarray, norm: float) -> np.ndarray:
            return project_rows(features, rows, self.metric.unwhiten(white[j : j + 1])[0])

        products = np.zeros((len(white), len(white)))
        accumulate_gram(codes.indptr, codes.indices, codes.values, products)
        fits = aksvd_sweep(codes, products, targets, white, correlate)
        for j in np.flatnonzero(np.isnan(fits)):
            users = np.flatnonzero(codes.indices == j)
            rows = np.searchsorted(codes.indptr, users, side="right") - 1
            fits[j] = correlate(int(j), rows, fits, 1.0) @ codes.values[users]
        objective = float(trace) - 2.0 * float(fits.sum()) + float(np.vdot(products, white @ white.T))
        parts = split_codes(codes, [item.codes for item in kept])
        return (
            [item._replace(codes=part) for item, part in zip(kept, parts, strict=True)],
            products,
            objective,
        )

    def _all_features(self, kept: list[ChunkState]) -> np.ndarray:
        """Features (N, p) of all signals together; signals that lie together are their own."""
        if isinstance(self.feature_map, LinearMap) and self.executor.signals.is_in_memory:
            return self.executor.signals.read(0, self.executor.signals.shape[0])
        parts = self.executor.gather(_itself, self.executor.map_reduce(Features(self.feature_map), kept)[1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _sum_linear_codes(self) -> tuple[np.ndarray, np.ndarray, float] | None:
        """``X'X``, ``X'Y`` and ``|Y|^2``, X the codes of the signals against the current kernel vectors."""
        if self.linear is None:
            return None
        assert isinstance(self.feature_map, KernelMap)
        vectors = self.feature_map.kernel_vectors
        norms = row_norms(vectors)
        norms[norms == 0.0] = 1.0
        unit = vectors / norms[:, None]
        dtype = self.executor.signals.dtype
        gram = cast(unit_gram(unit), dtype)
        step = EncodeTask(LinearMap(vectors.shape[1]), cast(unit, dtype), gram, self.linear[1], keeps=False)
        products, projections, trace, _ = self.executor.small_to_host(self.executor.map_reduce(step)[0])
        products, projections, trace = products / norms / norms[:, None], projections / norms[:, None], float(trace)
        past = None if self.memory is None else self.memory.linear
        if past is None:
            return products, projections, trace
        return past[0] + products, past[1] + projections, past[2] + trace

    def _linear_term(self, sums: tuple | None, kernel_trace: float) -> LinearTerm | None:
        if self.linear is None or sums is None:
            return None
        # Both terms as shares of what there is to represent: the weight means the same at any scale of the signals.
        return LinearTerm(self.linear[0] * kernel_trace / sums[2] if sums[2] > 0.0 else 0.0, *sums)

    def _worst(self, kept: list, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and signals of the `count` worst-represented, those that wait in the memory first among equals."""
        found = self.executor.gather(partial(_worst_of, count=count), kept)
        residuals = np.concatenate([values for values, _ in found])
        starts = [start for start, _ in self.executor.bounds]
        places = np.concatenate([start + rows for start, (_, rows) in zip(starts, found, strict=True)])
        order = worst_first(residuals)[:count]
        residuals, signals = residuals[order], self.executor.signals.take(places[order])
        if self.memory is None or self.memory.worst_residuals is None:
            return residuals, signals
        assert self.memory.worst_signals is not None
        residuals = np.concatenate([self.memory.worst_residuals, residuals])
        order = worst_first(residuals)[:count]
        return residuals[order], np.concatenate([self.memory.worst_signals, signals])[order]

    def _revive(
        self, kept: list, lost: float, used: np.ndarray, feature_map: FeatureMap, metric: Any, white: np.ndarray
    ) -> int:
        """Replace unused atoms by the worst-represented signals, no two of them alike; returns how many."""
        unused = np.flatnonzero(~host(used))
        if unused.size == 0 or metric.rank == 0:
            return 0
        # More than are needed: some may be copies of one another.
        residuals, signals = self._worst(kept, min(4 * unused.size, len(white)))
        n_signals = self.executor.signals.shape[0] + (0 if self.memory is None else self.memory.n_waiting)
        signals = signals[residuals > rounding_level(residuals.dtype, float(lost) / n_signals)]
        if len(signals) == 0:
            return 0
        features = cast(feature_map.features(self.executor.to_backend(signals)), np.float64)
        fresh = host(metric.whiten(features))
        norms = np.linalg.norm(fresh, axis=1)
        usable = norms > 1e-12 * max(float(norms.max()), np.finfo(np.float64).tiny)
        fresh = _distinct(fresh[usable] / norms[usable, None], unused.size, residuals.dtype)
        unused = unused[: len(fresh)]
        white[unused] = self.executor.to_backend(fresh)
        return int(unused.size)


def _distinct(rows: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """The first `count` of unit rows that are not, to rounding, one of those before them."""
    chosen: list[int] = []
    for i, row in enumerate(rows):
        if len(chosen) == count:
            break
        squares = ((rows[chosen] - row) ** 2).sum(axis=1)
        if not (squares <= 1e2 * float(np.finfo(dtype).eps)).any():
            chosen.append(i)
    return rows[chosen]


def _itself(kept: Any) -> Any:
    return kept


def _features_alone(kept: ChunkState) -> ChunkState:
    """What is kept without its codes."""
    return ChunkState(Codes(*(np.empty(0, dtype=np.int32),) * 3), np.empty(0), kept.features)


def _sweep(products: np.ndarray, targets: np.ndarray, white: np.ndarray, trace: float) -> tuple[np.ndarray, float]:
    """One sweep of the atoms, in place; the codes' factors, and the objective after both."""
    factors = gram_sweep(products, targets, white)
    scaled = products * factors[:, None] * factors
    fit = dot(targets * factors[:, None], white)
    return factors, float(trace - 2.0 * fit + dot(scaled, white @ white.T))


def worst_first(residuals: np.ndarray) -> np.ndarray:
    """Indices by falling residual, ties to the first; repeats of a residual, as copies of a signal have, come last."""
    order = np.argsort(-residuals, kind="stable")
    falling = residuals[order]
    repeats = np.zeros(len(order), dtype=bool)
    repeats[1:] = falling[:-1] - falling[1:] <= 1e2 * np.finfo(residuals.dtype).eps * falling[:-1]
    return np.concatenate([order[~repeats], order[repeats]])


def worst_signals(residuals: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest residuals as `worst_first` has them, those at rounding level left out."""
    order = worst_first(residuals)[:count]
    return order[residuals[order] > rounding_level(residuals.dtype, float(residuals.mean()))]


def rounding_level(dtype: np.dtype, mean: float) -> float:
    """Squared residuals up to this are rounding where their mean is `mean`."""
    return 1e3 * float(np.finfo(dtype).eps) * mean


def _worst_of(kept: ChunkState, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest residuals of a chunk and their rows."""
    residuals = host(kept.residuals)
    rows = worst_first(residuals)[:count]
    return residuals[rows], rows


def count_empty(kept: ChunkState) -> int:
    """Signals of a chunk that are not zero and have a code of zeros."""
    return int(((kept.codes.counts == 0) & (kept.residuals > 0)).sum())


def _rescale(kept: ChunkState, factors: np.ndarray) -> ChunkState:
    codes = kept.codes
    return kept._replace(codes=codes._replace(values=codes.values * _like(factors, codes.values)[codes.indices]))


def _like(factors: Any, values: Any) -> Any:
    if is_tensor(values):
        return sys.modules["torch"].as_tensor(factors, dtype=values.dtype, device=values.device)
    return factors.astype(values.dtype)
