"""Learning from a stream batch by batch: where it starts, what it buffers, and when it starts anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rkdl._coding.encoder import NotFiniteError
from rkdl._coding.preimages import DecoderSums
from rkdl._data.signals import Signals
from rkdl._execution.config import config_context
from rkdl._execution.executor import Executor
from rkdl._learning import reservoir
from rkdl._learning.buffered_batches import BufferedBatch, JoinedSignals, buffer, chunk_rows
from rkdl._learning.reduced import ReducedProblem
from rkdl._learning.running_statistics import RunningStatistics, discount_factors
from rkdl._learning.statistics import SufficientStatistics
from rkdl._learning.stream_problem import StreamProblem
from rkdl._learning.stream_state import Stream
from rkdl._utils.warnings import warn

# Bytes of signals that a stream buffers until the next update of its kernel vectors.
BUFFER_BYTES = 256 << 20
# A start is chosen anew where the median squared distance of what was seen is so many times that of the signals it was
# chosen from, or that part of it. Chance gave less, from 50 signals on, in 40 random orders of each of 17 data sets,
# and more in 2 of 40 with Cauchy tails.
OTHER_SCALE = 4.0
# The sample of what was seen is compared again, up to so many signals of it, when so large a share of it is new.
CHECKED_SIGNALS, CHECKED_SHARE = 200, 0.25


@dataclass(frozen=True)
class StreamLearning:
    """How a method learns from a stream. A `Stream` is a value: a batch that fails leaves it as it was."""

    # What runs passes over signals.
    open_executor: Callable[[Any], Executor]
    # A problem whose kernel vectors and initial atoms are chosen from the signals, and gamma.
    start: Callable[[Executor], tuple[ReducedProblem, float | None]]
    # The stream's problem on a batch, with the parameters as they are now.
    bind: Callable[[Stream, Executor], StreamProblem]
    # ``publish(problem, gamma, sums, error)`` sets the fitted attributes, `error` being that of an update or None, and
    # returns the decoder's `sums` with those of the batch, or None without a decoder.
    publish: Callable[[ReducedProblem, float | None, DecoderSums | None, float | None], DecoderSums | None]
    # Number of signals after which one counts half.
    half_life: float | None
    # Number of distinct signals that is enough to choose a start from; 0 if nothing of it comes from signals.
    n_needed: int
    # Whether a start chosen from signals of one scale is useless for those of another.
    depends_on_scale: bool
    # Whether kernel vectors move, so that batches wait in a buffer for their update.
    moves_vectors: bool
    # Parameters that the statistics depend on.
    settings: dict

    def learn(self, stream: Stream | None, executor: Executor, update: bool) -> Stream:
        """The stream after a batch; None begins one."""
        signals = executor.signals
        stream = self._begin(executor) if stream is None else stream
        can_buffer = self.moves_vectors and self.half_life is None and not signals.is_remote
        if can_buffer and not update:
            return self._buffer(stream, executor)
        if not can_buffer:
            stream = self._release(stream, len(stream.buffered), signals)
        if not stream.buffered:
            return self._advance(self._reconsider(stream, executor), executor, update)
        with self._executor_for(stream.buffered, signals, executor.bounds) as joint:
            stream = self._begin(joint) if stream.is_provisional else self._reconsider(stream, joint)
            return self._advance(stream, joint, update)

    def opened(self, problem: ReducedProblem, gamma: float | None) -> Stream:
        """A stream that starts from the model of a problem."""
        model = Executor.to_backend(problem.executor, problem.model)
        n_atoms, size = len(model.whitened_atoms), model.feature_map.size
        running = RunningStatistics(SufficientStatistics(np.zeros((n_atoms, n_atoms)), np.zeros((n_atoms, size)), 0.0))
        radius = None if problem.vector_update is None else problem.vector_update.radius
        return Stream(model, running, gamma, self.settings, radius)

    def _begin(self, executor: Executor) -> Stream:
        """A stream whose kernel vectors and first atoms are chosen from these signals."""
        problem, gamma = self.start(executor)
        signals, seen = problem.executor.signals, None
        if self.n_needed > 0 or self.depends_on_scale:
            rows = reservoir.some_distinct(signals, self._sample_size(signals))
            seen = reservoir.Reservoir.empty(
                signals.shape[1], rows.dtype, reservoir.count_nonzero_rows(rows), reservoir.typical_gamma(rows)
            )
        return replace(self.opened(problem, gamma), is_provisional=True, seen=seen)

    def _reconsider(self, stream: Stream, executor: Executor) -> Stream:
        """The stream that a batch is learned into, begun anew if what was seen asks for another start."""
        seen, signals = stream.seen, executor.signals
        if seen is None or seen.n_seen == 0:
            return stream
        size = self._sample_size(signals)
        if seen.n_distinct < self.n_needed:
            rows = reservoir.distinct_rows(np.concatenate([seen.rows, reservoir.some_distinct(signals, size)]))
            count = reservoir.count_nonzero_rows(rows)
            # Not after every signal: each start from twice as many as the last one, until there are enough.
            if count >= min(self.n_needed, max(1, 2 * seen.n_distinct)) and np.isfinite(rows).all():
                return self._begin_anew(stream, rows, signals)
        n_seen = seen.n_seen + signals.shape[0]
        if not self.depends_on_scale or n_seen - seen.n_checked < CHECKED_SHARE * stream.running.weight:
            return stream
        rows = seen.add(signals, size, self.half_life).rows
        few = reservoir.distinct_rows(rows[:: -(-len(rows) // CHECKED_SIGNALS)])
        change = reservoir.typical_gamma(few) / seen.gamma
        if np.isfinite(rows).all() and not 1.0 / OTHER_SCALE <= change <= OTHER_SCALE:
            return self._begin_anew(stream, reservoir.typical_rows(reservoir.distinct_rows(rows)), signals)
        return replace(stream, seen=replace(seen, n_checked=n_seen))

    def _begin_anew(self, stream: Stream, rows: np.ndarray, like: Signals) -> Stream:
        """The stream with a start chosen from `rows`, and in its sums the sample for all signals seen."""
        earlier = stream.seen
        assert earlier is not None
        with self._executor_for([BufferedBatch(rows, (len(rows),))], like) as executor:
            fresh = self._begin(executor)
        chosen = fresh.seen
        assert chosen is not None
        seen = replace(earlier, n_distinct=chosen.n_distinct, gamma=chosen.gamma, n_checked=earlier.n_seen)
        try:
            with self._executor_for([BufferedBatch(earlier.rows, (len(earlier.rows),))], like) as executor:
                fresh = self._advance(fresh, executor, update=False)
        except NotFiniteError:
            # Of signals so large beside these that their squares leave the dtype's range nothing can be kept.
            return replace(fresh, has_warned=stream.has_warned, seen=seen)
        share = stream.running.weight / fresh.running.weight
        return replace(
            fresh,
            model=fresh.model._replace(n_revived=fresh.model.n_revived + stream.model.n_revived),
            running=fresh.running.discounted(share),
            decoder_sums=_scaled(fresh.decoder_sums, share),
            has_warned=stream.has_warned,
            seen=seen,
        )

    def _advance(self, stream: Stream, executor: Executor, update: bool) -> Stream:
        """The stream after the statistics of a batch, and after an update where `update`."""
        signals = executor.signals
        # The mean weight of these signals is given to them afterwards, so that their pass is that of a fit.
        share, weight = discount_factors(signals.shape[0], self.half_life)
        problem = self.bind(replace(stream, running=stream.running.discounted(share / weight)), executor)
        error = None
        if update:
            problem.update()
            objective = problem.problem.model.update_objective
            if not np.isfinite(objective):
                raise NotFiniteError
            error = float(np.sqrt(max(objective, 0.0) / (signals.shape[1] * problem.running.weight)))
        else:
            problem.accumulate()
        sums = self.publish(problem.problem, stream.gamma, _scaled(stream.decoder_sums, share / weight), error)
        seen = stream.seen
        if seen is not None:
            # None where the start will not be chosen anew.
            is_final = seen.n_distinct >= self.n_needed and not self.depends_on_scale
            seen = None if is_final else seen.add(signals, self._sample_size(signals), self.half_life)
        after = stream.after(
            problem,
            decoder_sums=_scaled(sums, weight),
            buffered=(),
            buffered_sums=None,
            is_provisional=False,
            seen=seen,
        )
        return replace(after, running=after.running.discounted(weight))

    def _buffer(self, stream: Stream, executor: Executor) -> Stream:
        """The stream with a batch that waits for an update; the oldest make room."""
        signals = executor.signals
        room = BUFFER_BYTES - signals.shape[0] * signals.shape[1] * signals.dtype.itemsize
        sizes = [batch.rows.nbytes for batch in stream.buffered]
        count = 0
        while count < len(sizes) and sum(sizes[count:]) > room:
            count += 1
        if (count or room < 0) and not stream.has_warned:
            warn(
                f"The batches that wait for an update exceed {BUFFER_BYTES / 2**20:.0f} MiB: of the oldest only "
                f"sums are kept, and kernel vectors move by what they represent of those signals. Update more often."
            )
            stream = replace(stream, has_warned=True)
        stream = self._release(stream, count, signals)
        if room < 0:
            return self._advance(stream, executor, update=False)
        problem = self.bind(stream, executor)
        # Signals whose features are not finite are refused now: the update will be that of other batches too.
        problem.problem.encode_with(problem.problem.model.whitened_atoms)
        earlier = stream.buffered_sums if stream.buffered else stream.decoder_sums
        sums = self.publish(problem.problem, stream.gamma, earlier, None)
        batches = (*stream.buffered, buffer(signals, executor.bounds))
        return stream.after(problem, buffered=batches, buffered_sums=sums)

    def _release(self, stream: Stream, count: int, like: Signals) -> Stream:
        """The stream with the statistics of its `count` oldest buffered batches in place of their signals."""
        if count == 0:
            return stream
        rest, sums = stream.buffered[count:], stream.buffered_sums
        with self._executor_for(stream.buffered[:count], like) as executor:
            stream = self._advance(stream, executor, update=False)
        return replace(stream, buffered=rest, buffered_sums=sums if rest else None)

    def _sample_size(self, signals: Signals) -> int:
        """Signals to remember: a bounded number, but twice those that a start is chosen from at least."""
        most = reservoir.RESERVOIR_BYTES // (signals.shape[1] * signals.dtype.itemsize)
        return max(2 * self.n_needed, 2, min(reservoir.RESERVOIR_SIGNALS, most))

    def _executor_for(
        self, batches: Sequence[BufferedBatch], like: Signals, bounds: Sequence[tuple[int, int]] = ()
    ) -> Executor:
        """An executor over buffered batches, and after them over `like` by its bounds; on the device of `like`."""
        parts = [Signals(batch.rows, batch.rows.dtype) for batch in batches]
        chunks = [rows for batch in batches for rows in batch.chunks]
        if bounds:
            parts.append(like.on_host())
            chunks += chunk_rows(bounds)
        joined: Any = JoinedSignals(parts)
        if like.device is not None:
            from rkdl._data.tensors import StreamedSignals

            joined = StreamedSignals(joined, like.device)
        with config_context(chunk_rows=chunks):
            return self.open_executor(joined)


def _scaled(sums: DecoderSums | None, factor: float) -> DecoderSums | None:
    if sums is None or factor == 1.0:
        return sums
    parts: list[Any] = [factor * part for part in sums]
    return DecoderSums(*parts)
