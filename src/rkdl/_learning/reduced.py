"""The learning problem of every method whose features fit a chunk: codes, atoms, kernel vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, host, normalize_rows, row_norms, where
from rkdl._backends.base import backend_of
from rkdl._coding.encoder import Pursuit
from rkdl._execution.executor import Executor
from rkdl._features.maps import FeatureMap, KernelMap, LinearMap
from rkdl._features.metric import IdentityMetric, Metric
from rkdl._features.widths import spread_evenly
from rkdl._learning.atom_replacement import (
    Sample,
    WorstSignals,
    distinct_rows,
    find_replacements,
    find_worst,
    rounding_level,
    sample_size,
)
from rkdl._learning.atom_updates import AtomUpdate, CodedFeatures, decorrelated
from rkdl._learning.chunk_tasks import (
    ChunkState,
    EncodeTask,
    Features,
    ResidualTask,
    SufficientStatistics,
    count_empty,
    first_states,
)
from rkdl._learning.kernel_vector_updates import KernelVectorUpdate, Objective, PastSignals
from rkdl._learning.linear_term import LinearTerm, LinearTermChoice
from rkdl._learning.loop import NUMBERS, LearningProblem
from rkdl._persistence.named_arrays import Expected, check_arrays, flattened

# If less than this share of the signals' energy is left, few of their codes are empty.
POOR_SHARE = 0.25


class Model(NamedTuple):
    """The model after an iteration of `ReducedProblem`; its numbers are described in `LearningProblem`.

    Atoms are in whitened coordinates (n, rank), of unit norm (or zero). The penalty is the linear term at the kernel
    vectors, where they are optimised.
    """

    feature_map: FeatureMap
    metric: Metric | IdentityMetric
    whitened_atoms: Any
    objective: float = np.inf
    penalty: float = 0.0
    update_objective: float = np.inf
    n_revived: int = 0
    n_empty: int = 0
    swept_atoms: Any = None  # of the last sweep, before the momentum; the first atoms if there was no sweep

    @classmethod
    def start(
        cls,
        feature_map: FeatureMap,
        metric: Metric | IdentityMetric,
        whitened_atoms: Any,
        update: AtomUpdate | None = None,
    ) -> Model:
        """First atoms, as the update wants them; those of norm zero are replaced after the first pursuit."""
        if update is None:
            atoms = normalize_rows(whitened_atoms)
        else:
            atoms = normalize_rows(positive_parts(whitened_atoms) if update.is_positive else whitened_atoms)
            atoms = backend_of(atoms).from_host(decorrelated(host(atoms), update.coherence_max), atoms)
        return cls(feature_map, metric, atoms, swept_atoms=atoms)

    @property
    def atoms(self) -> Any:
        """Atoms (n, p) as combinations of the features' coordinates, unit norm in the metric."""
        return self.metric.unwhiten(self.whitened_atoms)

    def state(self) -> dict[str, np.ndarray]:
        """The model as arrays for a file."""
        return flattened({**self._asdict(), "feature_map": None, "metric": None, **self.feature_map.state()})

    @classmethod
    def restored(cls, state: Mapping[str, Any], feature_map: FeatureMap, metric: Metric | IdentityMetric) -> Model:
        """The model of a state that was checked; an ArrayError if its atoms are not those of the metric."""
        whitened_atoms = state["whitened_atoms"]
        check_arrays({"whitened_atoms": host(whitened_atoms)}, {"whitened_atoms": Expected("nr")}, {"r": metric.rank})
        numbers = {name: host(state[name]).item() for name in NUMBERS}
        return cls(feature_map, metric, whitened_atoms, **numbers, swept_atoms=state["swept_atoms"])


def check_state(
    state: dict[str, np.ndarray], feature_map: FeatureMap, n_atoms: int, of_update: Mapping[str, Expected]
) -> None:
    """Raise an ArrayError unless a state has `n_atoms` atoms on such features, and fits the kernel-vector update."""
    n_vectors = 0 if feature_map.vectors is None else len(feature_map.vectors)
    sizes = {"n": n_atoms, "m": feature_map.signal_size, "p": n_vectors}
    expected = {**NUMBERS, "whitened_atoms": Expected("nr"), "swept_atoms": Expected("nr")}
    check_arrays(state, {**expected, **dict.fromkeys(feature_map.arrays, Expected("pm")), **of_update}, sizes)


class Iterate(NamedTuple):
    """Intermediate result of an iteration; the first three fields are those of `Model`."""

    feature_map: FeatureMap
    metric: Any
    whitened_atoms: Any
    # Of the codes in `chunks`, multiplied by `code_scales`; ``P`` is None if it has to be computed again.
    statistics: SufficientStatistics
    chunks: list[ChunkState]  # steps change the list in place, so that dropped states are freed at once
    objective: float
    linear: LinearTerm | None = None
    code_scales: Any = None  # factors (n,) that the atoms' codes in `chunks` still lack; None for ones
    n_replaced: int = 0  # unused atoms
    swept_atoms: Any = None


class SampledSignals(NamedTuple):
    """A sample of the signals, whose residuals may replace useless atoms."""

    feature_map: FeatureMap
    signals: Any
    rows: Any  # features in whitened coordinates
    weights: np.ndarray


class ReducedProblem(LearningProblem):
    """Dictionary learning on features: DL, FourierDL, RKDL, and with a `vector_update` ORKDL and MORKDL.

    `linear` is the linear term of MORKDL.
    """

    model: Model

    def __init__(
        self,
        executor: Executor,
        model: Model,
        pursuit: Pursuit,
        atom_update: AtomUpdate,
        vector_update: KernelVectorUpdate | None = None,
        linear: LinearTermChoice | None = None,
    ) -> None:
        super().__init__(executor, executor.to_backend(model))
        self.pursuit = pursuit
        self.atom_update = atom_update
        self.vector_update = vector_update
        self.linear = linear
        # Features of the chunks, and the map that they are of.
        self._cached: tuple[FeatureMap, list[ChunkState]] | None = None
        self._sampled: SampledSignals | None = None

    def continue_from(self, other: ReducedProblem) -> None:
        """Take over the model of the same problem without a kernel-vector update; the next update is the first."""
        self.roll_back(other.model._replace(update_objective=np.inf))
        self._cached = other._cached

    def encode(self) -> None:
        self._coded = self.encode_signals()

    def update(self, *, is_rise: bool = False, seed: int | None = None) -> None:
        iterate, self._coded = self._coded, None
        if self._encodes_twice():
            iterate = self.encode_again(iterate)
        used = iterate.statistics.code_gram.diagonal() > 0.0
        iterate = self.update_atoms(iterate)
        iterate = self.update_kernel_vectors(iterate)
        iterate = self.refine_objective(iterate)
        if not is_rise:
            iterate = self.apply_momentum(iterate)
        iterate = self.replace_unused_atoms(iterate, used)
        if seed is not None and not self.moves_vectors:
            iterate, _ = self.replace_useless_atoms(iterate, seed)
        self.accept(iterate)

    def encode_signals(
        self, past: SufficientStatistics | None = None, linear_past: SufficientStatistics | None = None
    ) -> Iterate:
        """Code the signals with the current atoms, which gives the model's error.

        `past` are statistics of other signals to add to.
        """
        feature_map, metric, whitened_atoms, *_ = self.model
        statistics, chunks = self.encode_with(whitened_atoms, past=past)
        term = None
        if self.linear is not None and self.moves_vectors:
            linear_statistics = self.linear.statistics(self.executor, feature_map.vectors, linear_past)
            term = self.linear.term(linear_statistics, float(statistics.energy))
        left, self.energy = float(statistics.residual_energy), float(statistics.energy)
        iterate = Iterate(feature_map, metric, whitened_atoms, statistics, chunks, left, term)
        iterate = iterate if past else self.refine_objective(iterate)
        # Skip counting if the residual is small: empty codes of many signals leave a large one.
        is_poor = iterate.objective > POOR_SHARE * self.energy
        n_empty = sum(self.executor.gather(count_empty, chunks)) if is_poor else 0
        penalty = 0.0 if term is None else term.value(feature_map.vectors)
        self.model = self.model._replace(objective=iterate.objective, penalty=penalty, n_empty=n_empty)
        return iterate

    def encode_again(self, iterate: Iterate) -> Iterate:
        """One atom update, and the codes with the new atoms."""
        targets = iterate.metric.whiten(iterate.statistics.cross_products)
        atoms = self.atom_update(iterate.statistics.code_gram, targets, iterate.whitened_atoms, None).atoms  # type: ignore[arg-type]
        # Only features are used again; without them, the old codes are freed before the new ones are computed.
        if not self._caches_features:
            iterate.chunks.clear()
        statistics, chunks = self.encode_with(atoms, iterate.chunks or None)
        return iterate._replace(whitened_atoms=atoms, statistics=statistics, chunks=chunks)

    def update_atoms(self, iterate: Iterate) -> Iterate:
        """One sweep over the atoms, unless the kernel-vector update eliminates them."""
        update, executor, statistics = self.atom_update, self.executor, iterate.statistics
        if self._eliminates_atoms and not update.refits_codes:
            return iterate
        targets = iterate.metric.whiten(statistics.cross_products)
        signals: Any = None
        if update.refits_codes:
            signals = CodedFeatures(executor, iterate.feature_map, iterate.metric, iterate.chunks)
        sweep = update(statistics.code_gram, targets, iterate.whitened_atoms, signals)
        cross_products = None
        if sweep.codes is None:
            cross_products = statistics.cross_products * sweep.code_scales[:, None]
        else:
            codes = sweep.codes.split([state.codes for state in iterate.chunks])
            iterate.chunks[:] = [state._replace(codes=own) for state, own in zip(iterate.chunks, codes, strict=True)]
        atoms, code_gram = executor.to_backend((sweep.atoms, sweep.code_gram))
        return iterate._replace(
            whitened_atoms=atoms,
            statistics=statistics._replace(code_gram=code_gram, cross_products=cross_products),
            code_scales=sweep.code_scales,
            objective=sweep.objective(statistics.energy),
        )

    def update_kernel_vectors(self, iterate: Iterate, past: PastSignals | None = None) -> Iterate:
        """Move the kernel vectors, and the atoms with them; `past` represents past signals."""
        update, statistics = self.vector_update, iterate.statistics
        if update is None or not self.moves_vectors:
            return iterate
        if iterate.code_scales is not None:
            # Assign in place, so that the old features are freed first.
            iterate.chunks[:] = self.executor.map_states(partial(_rescale, scales=iterate.code_scales), iterate.chunks)
        feature_map = self._movable(iterate.feature_map, past)
        atoms = iterate.metric.unwhiten(iterate.whitened_atoms)
        objective = Objective(
            self.executor,
            iterate.chunks,
            feature_map,
            statistics.code_gram,
            float(statistics.energy),
            iterate.linear,
            None if update.eliminates_atoms else atoms,
            past,
            self._caches_features,
        )
        # Only the chunks hold features now; these are freed before those of the new kernel vectors are computed.
        self._cached = None
        start = objective.at(feature_map.kernel_vectors, statistics.cross_products if past is None else None)
        point = update.minimize(objective, start)
        feature_map = replace(iterate.feature_map, kernel_vectors=self.executor.to_backend(point.vectors))  # type: ignore[type-var, call-arg]
        self._cache(feature_map, point.features)
        scales = row_norms(point.whitened_atoms)
        return iterate._replace(
            feature_map=feature_map,
            metric=point.metric,
            # The atoms at which the value was accepted; others would lose part of the gain.
            whitened_atoms=normalize_rows(point.whitened_atoms, otherwise=point.metric.whiten_combinations(atoms)),
            statistics=statistics._replace(
                code_gram=statistics.code_gram * (scales[:, None] * scales),
                cross_products=point.cross_products * scales[:, None],
            ),
            code_scales=scales,
            objective=point.value - (0.0 if iterate.linear is None else iterate.linear.value(point.vectors)),
        )

    def refine_objective(self, iterate: Iterate) -> Iterate:
        """The objective computed from residuals, if features are signals and cancellation leaves it no digits."""
        dtype, scales = self.executor.signals.dtype, iterate.code_scales
        rounding = 1e3 * float(np.finfo(dtype).eps) * float(iterate.statistics.energy)
        is_exact = not isinstance(iterate.feature_map, LinearMap) or self.pursuit.has_penalty
        if is_exact or not iterate.objective < rounding:
            return iterate
        chunks = iterate.chunks
        if scales is not None:
            chunks = self.executor.map_states(partial(_rescale, scales=scales), chunks)
        (square,), _ = self.executor.map_reduce(ResidualTask(cast(iterate.whitened_atoms, dtype)), chunks)
        return iterate._replace(objective=float(square))

    def apply_momentum(self, iterate: Iterate) -> Iterate:
        """The momentum of the atom update, from the second iteration on."""
        swept, earlier, model = iterate.whitened_atoms, self.model.swept_atoms, self.model
        if self.atom_update.momentum == 0.0 or not np.isfinite(model.update_objective):
            return iterate
        old, new = model.feature_map, iterate.feature_map
        if new is not old and isinstance(old, KernelMap) and isinstance(new, KernelMap):
            # The projections of the earlier atoms onto the span of the new kernel vectors.
            earlier = model.metric.unwhiten(earlier) @ old.kernel(old.kernel_vectors, new.kernel_vectors)
            earlier = iterate.metric.whiten(earlier)
        moved = swept + self.atom_update.momentum * (swept - earlier)
        atoms = normalize_rows(moved.clip(min=0.0) if self.atom_update.is_positive else moved, otherwise=swept)
        return iterate._replace(whitened_atoms=atoms, swept_atoms=swept)

    def replace_useless_atoms(
        self, iterate: Iterate, seed: int, margin: float = 0.0, weight: float = 1.0
    ) -> tuple[Iterate, np.ndarray]:
        """Replace atoms by directions of more use to a sample, see `find_replacements`; returns their indices too.

        With a `margin`, the use is at least that many times what the atom explains by itself, according to the
        statistics, which are of signals of this weight.
        """
        if self.atom_update.momentum == 0.0 or iterate.metric.rank == 0:
            return iterate, np.empty(0, dtype=np.intp)
        rows, weights = self._sampled_signals(iterate)
        atoms = cast(iterate.whitened_atoms, self.executor.signals.dtype)
        sample = Sample.of_rows(rows, atoms, weights, self.executor)
        alone = host(iterate.statistics.code_gram).diagonal() * (margin * len(rows) / weight)
        others = host(sample.gram) ** 2 - np.eye(len(atoms))
        found = find_replacements(sample, self.pursuit, seed, alone * (1.0 - others.max(axis=1)).clip(min=0.0))
        fresh = host(found.combinations @ rows - found.mixes @ atoms)
        return self._with_atoms(iterate, found.atoms, fresh), found.atoms

    def _with_atoms(self, iterate: Iterate, indices: np.ndarray, rows: np.ndarray) -> Iterate:
        """The iterate with some atoms replaced, which have no momentum."""
        swept = iterate.whitened_atoms if iterate.swept_atoms is None else iterate.swept_atoms
        if self.atom_update.is_positive:
            rows = normalize_rows(positive_parts(rows))
        both = [host(atoms).copy() for atoms in (iterate.whitened_atoms, swept)]
        for atoms in both:
            atoms[indices] = rows
        atoms, swept = self.executor.to_backend(both)
        return iterate._replace(whitened_atoms=atoms, swept_atoms=swept)

    def _sampled_signals(self, iterate: Iterate) -> tuple[Any, np.ndarray]:
        """Whitened features (t, r) of a sample of the signals, and their weights."""
        executor, feature_map = self.executor, iterate.feature_map
        if self._sampled is None or self._sampled.feature_map is not feature_map:
            size = sample_size(len(iterate.whitened_atoms), self.pursuit.n_nonzero)
            chosen, factors = spread_evenly(executor.signals, size)
            signals = executor.to_signals(executor.signals.take(chosen))
            features = executor.to_backend(executor.worker(Features(feature_map))(signals, None)[1])
            rows = cast(iterate.metric.whiten(cast(features, np.float64)), executor.signals.dtype)
            self._sampled = SampledSignals(feature_map, signals, rows, factors[:, 0] ** 2)
        _, signals, rows, weights = self._sampled
        observed = feature_map.observed(signals)
        if observed is not None:
            # What is missing is what the codes say.
            atoms = iterate.whitened_atoms
            task = self._encode_task(atoms, atoms @ atoms.T)
            said = executor.worker(task)(signals, None)[1].codes.times(executor.to_signals(task.atoms))
            rows = where(executor.to_backend(observed), rows, executor.to_backend(said))
        return rows, weights

    def replace_unused_atoms(self, iterate: Iterate, used: Any, waiting: WorstSignals | None = None) -> Iterate:
        """Replace unused atoms by the worst-represented signals; `waiting` are some of signals seen before."""
        unused = np.flatnonzero(~host(used))
        if unused.size == 0 or iterate.metric.rank == 0:
            return iterate
        # More than are needed: some may be copies of one another.
        count = min(4 * unused.size, len(iterate.whitened_atoms))
        n_signals, residuals, signals = find_worst(self.executor, iterate.chunks, count, waiting)
        mean = float(iterate.statistics.residual_energy) / n_signals
        signals = signals[residuals > rounding_level(residuals.dtype, mean)]
        if len(signals) == 0:
            return iterate
        features = cast(iterate.feature_map.features(self.executor.to_backend(signals)), np.float64)
        rows = host(iterate.metric.whiten(features))
        rows = distinct_rows(rows, unused.size, residuals.dtype)
        return self._with_atoms(iterate, unused[: len(rows)], rows)._replace(n_replaced=len(rows))

    def accept(self, iterate: Iterate) -> None:
        """Make the result of an iteration the current model."""
        bound, atoms = self.atom_update.coherence_max, iterate.whitened_atoms
        self.model = self.model._replace(
            feature_map=iterate.feature_map,
            metric=iterate.metric,
            whitened_atoms=self.executor.to_backend(decorrelated(host(atoms), bound)) if bound < 1.0 else atoms,
            update_objective=float(iterate.objective),
            n_revived=self.model.n_revived + iterate.n_replaced,
            swept_atoms=iterate.whitened_atoms if iterate.swept_atoms is None else iterate.swept_atoms,
        )

    @property
    def moves_vectors(self) -> bool:
        """Whether an update moves the kernel vectors."""
        return self.vector_update is not None and self.vector_update.n_steps > 0

    @property
    def _eliminates_atoms(self) -> bool:
        return self.moves_vectors and self.vector_update.eliminates_atoms  # type: ignore[union-attr]

    def _encodes_twice(self) -> bool:
        """Whether codes and atoms are alternated once more before the kernel vectors move.

        It saves a third of the iterations and costs little if features are cached; if not, as for data on disk or on a
        cluster, it is one pass more. The first iteration moves at once, as an epoch of a stream does.
        """
        is_first = not np.isfinite(self.model.update_objective)
        return self._eliminates_atoms and not self.atom_update.refits_codes and not is_first

    def _movable(self, feature_map: Any, past: PastSignals | None = None) -> Any:
        """The map with its vectors on the device where they are moved; its metric is bitwise that of the update."""
        # Sums of past signals and of the linear term are in NumPy, and would be combined with the vectors.
        moves_alone = self._eliminates_atoms and past is None and self.linear is None
        return self.executor.with_vectors_on_device(feature_map) if moves_alone else feature_map

    def encode_with(
        self, whitened_atoms: Any, chunks: list | None = None, past: SufficientStatistics | None = None
    ) -> tuple[SufficientStatistics, list]:
        """Statistics of the codes against whitened atoms, and the codes; features are taken from `chunks`."""
        feature_map = self.model.feature_map
        task = self._encode_task(self.model.metric.unwhiten(whitened_atoms), whitened_atoms @ whitened_atoms.T)
        if chunks is None and self._cached is not None and self._cached[0] is feature_map:
            chunks = self._cached[1]
        chunks = first_states(self.executor) if chunks is None else chunks
        sums, chunks = self.executor.map_reduce(task, chunks, start=past)
        if task.caches_features and not self.moves_vectors:
            self._cache(feature_map, chunks)
        return SufficientStatistics(*self.executor.to_backend(sums)), chunks

    def _encode_task(self, atoms: Any, gram: Any) -> EncodeTask:
        """Coding with atoms (n, p) that have these inner products."""
        dtype = self.executor.signals.dtype
        parts = self.model.feature_map, cast(atoms, dtype), cast(gram, dtype)
        return EncodeTask(*parts, self.pursuit, self._caches_features)

    @property
    def _caches_features(self) -> bool:
        """Whether features are needed again, in this iteration or the next, and few enough to be cached."""
        signals, feature_map = self.executor.signals, self.model.feature_map
        if isinstance(feature_map, LinearMap):
            return False
        return self.executor.can_cache(signals.shape[0] * feature_map.size * signals.dtype.itemsize)

    def _cache(self, feature_map: FeatureMap, chunks: list[ChunkState] | None) -> None:
        """Cache features, without codes, for the next pass with the same map."""
        self._cached = None if chunks is None else (feature_map, [state.features_alone() for state in chunks])

    def state(self) -> dict[str, np.ndarray]:
        return flattened({**self.model.state(), **({} if self.vector_update is None else self.vector_update.state())})

    def model_of(self, state: dict[str, np.ndarray]) -> Model:
        model, update = self.model, self.vector_update
        of_update = {} if update is None else update.state_arrays
        check_state(state, model.feature_map, len(model.whitened_atoms), of_update)
        state = self.executor.to_backend(state)
        feature_map = model.feature_map.restored(state)
        return Model.restored(state, feature_map, self._movable(feature_map).metric(self.executor.signals.dtype))

    def restore(self, state: dict[str, np.ndarray]) -> None:
        super().restore(state)
        if self.vector_update is not None:
            self.vector_update = self.vector_update.restored(self.executor.to_backend(state))


def _rescale(state: ChunkState, scales: Any) -> ChunkState:
    """The chunk's state with the codes of every atom multiplied by its scale."""
    codes = state.codes
    scales = backend_of(codes.values).as_like(scales, codes.values)
    return state._replace(codes=codes._replace(values=codes.values * scales[codes.indices]))


def positive_parts(rows: Any) -> Any:
    """The positive or the negative part of every row, whichever is larger."""
    positive, negative = rows.clip(min=0.0), (-rows).clip(min=0.0)
    return where(((positive**2).sum(1) >= (negative**2).sum(1))[:, None], positive, negative)
