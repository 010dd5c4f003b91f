"""Learning from a stream, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from rkdl._backends.arrays import squared_norms
from rkdl._backends.devices import to_host
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.preimages import DecoderSums
from rkdl._data.signals import NotFiniteError, Signals
from rkdl._execution.config import config_context
from rkdl._execution.executor import Executor
from rkdl._features.widths import median_gamma, spread_sample
from rkdl._learning.atom_replacement import WorstSignals
from rkdl._learning.chunk_tasks import SufficientStatistics
from rkdl._learning.diagnostics import check_learned
from rkdl._learning.feature_choice import KernelFeatures
from rkdl._learning.learn import (
    Learned,
    Report,
    decoder_sums,
    inspected,
    learned_of,
    open_learning,
    solved_decoder,
    start_problem,
    warm_up,
)
from rkdl._learning.reduced import Model, ReducedProblem, check_state
from rkdl._learning.running_statistics import RunningStatistics, add_batch, discount_factors, learn_batch, scaled
from rkdl._learning.specification import Specification
from rkdl._persistence.named_arrays import FLAGS, INTEGERS, POSITIVE, Expected, check_arrays, flattened, nested, part_of
from rkdl._utils.types import FLOATS, Device
from rkdl._utils.warnings import warn

# Most bytes of signals that wait.
MOST_BYTES = 256 << 20
# Rows of signals that are searched together for distinct ones.
ROWS_AT_ONCE = 1024
# Fewest distinct signals from which gamma and atoms are chosen.
FEWEST_SIGNALS = 20
# A batch has another scale if its median squared distance is OTHER_SCALE times larger or smaller than that of the first
# signals: 40 random orders of each of 17 data sets stayed below, with at least FEWEST_COMPARED signals. Comparing more
# than MOST_COMPARED would take longer than learning from them.
OTHER_SCALE, FEWEST_COMPARED, MOST_COMPARED = 4.0, 50, 100


class Learning(NamedTuple):
    """How signals are learned, by the current parameters of the estimator."""

    specification: Specification
    random_state: np.random.RandomState | int | None
    report: Report
    n_jobs: int | None

    def open(self, signals: Signals, stream: Stream) -> AbstractContextManager[tuple[Executor, bool]]:
        """As `open_learning`, in float64 if the stream started so."""
        in_float64 = None if stream.model is None else stream.computes_in_float64
        return open_learning(self.specification, signals, self.n_jobs, in_float64)


# Arrays saved of a stream besides its model and the signals that wait. Axes: m features of a signal, s of its feature
# map, n atoms, w worst signals.
_STREAM = {
    **dict.fromkeys(["has_warned", "has_warned_of_scale", "computes_in_float64"], Expected("", FLAGS)),
    **{name: Expected("", group=name, least=POSITIVE) for name in ("gamma", "start_gamma")},
    "norm": Expected("", group="norm"),
    "running.weight": Expected("", least=0.0),
    "running.is_discounted": Expected("", FLAGS),
    # Those of the linear term are of codes against the kernel vectors.
    **{
        f"running.{part}.{name}": Expected(shape, group=part)
        for part, shapes in {"statistics": ("nn", "ns", "", ""), "linear": ("ss", "sm", "", "")}.items()
        for name, shape in zip(SufficientStatistics._fields, shapes, strict=True)
    },
    "running.worst.n_signals": Expected("", INTEGERS, "worst", least=1),
    "running.worst.residuals": Expected("w", FLOATS, "worst"),
    "running.worst.signals": Expected("wm", FLOATS, "worst"),
    "decoder_sums.code_gram": Expected("nn", group="decoder"),
    "decoder_sums.cross_products": Expected("nm", group="decoder"),
    "decoder_sums.codes": Expected("n", group="decoder"),
    "decoder_sums.signals": Expected("m", group="decoder"),
    "decoder_sums.n_signals": Expected("", group="decoder"),
}
_PARTS = {"statistics": SufficientStatistics, "linear": SufficientStatistics, "worst": WorstSignals}


@dataclass(frozen=True)
class Stream:
    """A stream between two batches: the model, statistics of what was seen, and batches that wait.

    Batches wait until there are enough distinct signals to choose a start from and, where kernel vectors are learned,
    for the next update.
    """

    model: Model | None = None  # None before there is a start
    gamma: float | None = None
    norm: float | None = None  # norm of all kernel vectors; None if it is free
    running: RunningStatistics = field(default_factory=RunningStatistics)
    decoder_sums: DecoderSums | None = None
    waiting: tuple[np.ndarray, ...] = ()  # the chunks of batches that wait
    start_gamma: float | None = None  # one over the median squared distance of the signals of the start
    has_warned: bool = False  # of the kernel-vector update
    has_warned_of_scale: bool = False
    computes_in_float64: bool = False
    # The model after the last batch, and its error if the batch ended with an update; None while batches wait.
    learned: Learned | None = None
    error: float | None = None

    @classmethod
    def continuing(cls, specification: Specification, dictionary: FittedDictionary, gamma: float | None) -> Stream:
        """A stream that starts from a fitted dictionary."""
        wide = np.dtype(np.float64)
        feature_map = dictionary.feature_map.as_dtype(wide)
        metric = feature_map.metric(dictionary.atoms.dtype)
        model = Model.start(feature_map, metric, metric.whiten_combinations(dictionary.atoms.astype(wide)))
        norm = None
        if specification.linear is not None:
            norm = specification.linear.find_norm_of(feature_map.vectors)
        return cls(model, gamma, norm)

    def update(self, signals: Signals, how: Learning, *, ends_epoch: bool = True) -> Stream:
        """The stream after a batch and, if `ends_epoch`, an update of the model from all signals seen."""
        stream = self.forgotten()
        # Larger batches are not copied: they never wait, and are not joined with batches that do.
        is_small = not signals.is_remote and _n_bytes(signals) <= MOST_BYTES
        must_wait = is_small and stream._must_wait(signals, how.specification, ends_epoch)
        waiting = stream.waiting
        if must_wait or (is_small and waiting):
            if signals.weights is not None:
                raise ValueError(
                    "Batches with sample_weight do not wait for others: begin with a larger batch, and leave "
                    "update=True."
                )
            with how.open(signals, stream) as (opened, _):
                if must_wait:
                    stream._check(opened, how.specification)
                # A copy, in the chunks of this batch even if it is learned from together with others.
                read = signals.on_host().read
                chunks = [np.array(read(start, stop)) for start, stop in opened.bounds]
            if not must_wait:
                return stream._learned_from(_joined([*waiting, *chunks], signals.device), how, ends_epoch=ends_epoch)
            if waiting and stream._bytes_with(signals) > MOST_BYTES:
                warn(
                    f"The batches that wait for an update exceed {MOST_BYTES / 2**20:.0f} MiB: of the oldest only sums "
                    f"are kept, and kernel vectors move by what they represent of those signals. Update more often."
                )
                stream = stream._learned_from(_joined(waiting), how, ends_epoch=False)
            return replace(stream, waiting=(*stream.waiting, *chunks))
        parts: list[tuple[Signals, list[int] | None]] = [(signals, None)]
        if waiting:
            # A start is chosen from the larger part.
            parts.insert(0 if stream.model is not None else 1, _joined(waiting))
        for number, part in enumerate(parts, 1):
            stream = stream._learned_from(part, how, ends_epoch=ends_epoch and number == len(parts))
        return stream

    def _learned_from(self, batch: tuple[Signals, list[int] | None], how: Learning, *, ends_epoch: bool) -> Stream:
        """The stream after signals in chunks of these numbers of rows, or of the library's; nothing waits then."""
        stream, (signals, rows) = replace(self, waiting=()), batch
        chunks = nullcontext() if rows is None else config_context(chunk_rows=rows)
        with chunks, how.open(signals, stream) as (executor, in_float64):
            if stream.model is None:
                executor = inspected(how.specification, executor)
                stream = stream._started(executor, how, in_float64)
            stream = stream._warned_of_scale(executor.signals, how)
            return stream._advanced(executor, how, ends_epoch)

    def state(self) -> dict[str, np.ndarray]:
        """The state that a stream with a model continues from, as arrays for a file; `forgotten` comes first."""
        assert self.model is not None
        waiting = {str(number): rows for number, rows in enumerate(self.waiting)}
        return flattened({**vars(self), "model": self.model.state(), "waiting": waiting})

    @classmethod
    def restored(cls, state: dict[str, np.ndarray], dictionary: FittedDictionary) -> Stream:
        """The stream of a state, whose last dictionary is given; an ArrayError if they do not fit each other."""
        of_model, waiting = part_of(state, "model"), part_of(state, "waiting")
        own = {name: array for name, array in state.items() if not name.startswith(("model.", "waiting."))}
        n_atoms, like = len(dictionary.atoms), dictionary.feature_map.as_dtype(np.dtype(np.float64))
        check_arrays(own, _STREAM, {"n": n_atoms, "m": like.signal_size, "s": like.size})
        check_state(of_model, like, n_atoms, {})
        for number, (name, rows) in enumerate(waiting.items()):
            check_arrays({name: rows}, {str(number): Expected("im", FLOATS)}, {"m": like.signal_size})
        feature_map = like.restored(of_model)
        parts = nested(own)
        running = parts["running"]
        running |= {name: kind(**running[name]) for name, kind in _PARTS.items() if name in running}
        parts["running"] = RunningStatistics(**running)
        if "decoder_sums" in parts:
            parts["decoder_sums"] = DecoderSums(**parts["decoder_sums"])
        model = Model.restored(of_model, feature_map, feature_map.metric(dictionary.atoms.dtype))
        return cls(**{**parts, "model": model, "waiting": tuple(waiting.values())})

    def forgotten(self) -> Stream:
        """The stream without the model after the last batch, which has become fitted attributes."""
        return replace(self, learned=None, error=None)

    def _check(self, executor: Executor, specification: Specification) -> None:
        """Refuse signals, or features of them, that are not finite: they would make the next update fail."""
        executor.signals.check_finite()
        if self.model is not None:
            problem = self._problem(executor, specification)
            problem.encode_with(problem.model.whitened_atoms)

    def _bytes_with(self, signals: Signals) -> int:
        return _n_bytes(signals) + sum(rows.nbytes for rows in self.waiting)

    def _must_wait(self, signals: Signals, specification: Specification, ends_epoch: bool) -> bool:
        """Whether a small batch is kept until a later one."""
        if specification.moves_vectors and specification.half_life is None and not ends_epoch:
            return True
        if self.model is not None:
            return False
        needed = signals_needed(specification)
        return self._bytes_with(signals) <= MOST_BYTES and _count_distinct(self.waiting, signals, needed) < needed

    def _started(self, executor: Executor, how: Learning, in_float64: bool) -> Stream:
        """The stream with kernel vectors, gamma and first atoms chosen from these signals."""
        rng = check_random_state(how.random_state)
        problem, gamma = start_problem(how.specification, executor, rng, how.report)
        if warm_up(how.specification, problem, how.report):
            raise KeyboardInterrupt
        assert isinstance(problem, ReducedProblem)
        norm = None if problem.vector_update is None else problem.vector_update.radius
        return replace(
            self,
            model=to_host(problem.model),
            gamma=gamma,
            norm=norm,
            start_gamma=median_gamma(spread_sample(executor.signals, MOST_COMPARED)),
            computes_in_float64=in_float64 or executor.signals.dtype != executor.signals.result_dtype,
        )

    def _warned_of_scale(self, signals: Signals, how: Learning) -> Stream:
        """Warn once of a batch of another scale than the signals of the start."""
        known, is_small = self.start_gamma, signals.shape[0] < FEWEST_COMPARED
        if known is None or is_small or self.has_warned_of_scale or signals_needed(how.specification) == 0:
            return self
        sample = spread_sample(signals, MOST_COMPARED)
        half = len(sample) // 2
        with np.errstate(over="ignore", invalid="ignore"):
            # Half as many pairs as signals, which mostly decide, take a tenth of the time of all pairs.
            distance = float(np.median(squared_norms(sample[:half] - sample[half : 2 * half])))
        if 2.0 / OTHER_SCALE < known * distance < OTHER_SCALE / 2.0 or not np.isfinite(sample).all():
            return self
        ratio = known / median_gamma(sample)
        if 1.0 / OTHER_SCALE <= ratio <= OTHER_SCALE:
            return self
        warn(
            f"{how.report.name}: the median squared distance between the signals of this batch is {ratio:.2g} times "
            f"that between those that atoms, gamma and kernel vectors were chosen from. If later batches are like this "
            f"one, start again with a clone, or scale the signals."
        )
        return replace(self, has_warned_of_scale=True)

    def _advanced(self, executor: Executor, how: Learning, ends_epoch: bool) -> Stream:
        """The stream after the statistics of these signals, and after an update if `ends_epoch`."""
        assert self.model is not None
        signals, specification = executor.signals, how.specification
        # The mean weight of these signals is given to them afterwards, so that their pass is that of a fit.
        share, weight = discount_factors(signals.total, specification.half_life)
        problem = self._problem(executor, specification)
        running, error = problem.executor.to_backend(self.running.discounted(share / weight)), None
        if ends_epoch:
            running = learn_batch(problem, running)
            objective = problem.model.update_objective
            if not np.isfinite(objective):
                raise NotFiniteError
            error = float(np.sqrt(max(objective, 0.0) / (signals.shape[1] * running.weight)))
        else:
            running = add_batch(problem, running)
        model, running = to_host((problem.model, running))
        learned = learned_of(specification, problem, self.gamma)
        if ends_epoch and self.running.statistics is None:
            check_learned(specification, signals, problem.model.n_empty, learned, how.report.name)
        sums = None
        if specification.decoder_alpha is not None:
            dictionary = learned.dictionary
            earlier = self.decoder_sums and scaled(self.decoder_sums, share / weight)
            sums = decoder_sums(dictionary, executor, earlier)
            decoder = solved_decoder(dictionary, sums, specification.decoder_alpha)
            learned = learned._replace(dictionary=replace(dictionary, decoder=decoder))
        return replace(
            self,
            model=model,
            running=running.discounted(weight),
            decoder_sums=sums and scaled(sums, weight),
            has_warned=problem.vector_update is not None and problem.vector_update.has_warned,
            learned=learned._replace(computes_in_float64=self.computes_in_float64),
            error=error,
        )

    def _problem(self, executor: Executor, specification: Specification) -> ReducedProblem:
        """The problem of a batch, with the parameters as they are now."""
        assert self.model is not None
        choice = specification.vector_update
        # Without the curvature of the last update, which belongs to other sums.
        update = None if choice is None else choice.make(self.norm, has_warned=self.has_warned)
        pursuit, atom_update, linear = specification.pursuit, specification.atom_update, specification.linear
        return ReducedProblem(executor, self.model, pursuit, atom_update, update, linear)


def signals_needed(specification: Specification) -> int:
    """Distinct signals that are enough to choose a start from; 0 where nothing of it comes from signals."""
    features = specification.features
    draws = isinstance(specification.init, str) and specification.init != "random"
    chooses = isinstance(features, KernelFeatures) and isinstance(features.vectors, str)
    return max(
        FEWEST_SIGNALS if draws or isinstance(features.gamma_parameter, str) else 0,
        specification.n_atoms if draws else 0,
        features.size if chooses else 0,
    )


def _n_bytes(signals: Signals) -> int:
    return signals.shape[0] * signals.shape[1] * signals.dtype.itemsize


def _joined(chunks: Sequence[np.ndarray], device: Device = None) -> tuple[Signals, list[int]]:
    """Chunks one after another, in the widest of their dtypes and on a device, and their numbers of rows."""
    rows = np.concatenate(chunks)
    joined = Signals(rows, rows.dtype)
    if device is not None:
        from rkdl._data.tensors import StreamedSignals

        joined = StreamedSignals(joined, device)
    return joined, [len(chunk) for chunk in chunks]


def _count_distinct(chunks: Sequence[np.ndarray], signals: Signals, enough: int) -> int:
    """Distinct signals other than zero in the chunks and the signals, counted up to `enough`."""
    found: set[bytes] = set()
    for source in [*(Signals(rows, rows.dtype) for rows in chunks), signals.on_host()]:
        for start in range(0, source.shape[0], ROWS_AT_ONCE):
            rows = source.read(start, min(start + ROWS_AT_ONCE, source.shape[0]))
            # In one dtype, and with one sign of zero.
            rows = rows[np.any(rows, axis=1)].astype(np.float64) + 0.0
            found.update(row.tobytes() for row in rows)
            if len(found) >= enough:
                return len(found)
    return len(found)
