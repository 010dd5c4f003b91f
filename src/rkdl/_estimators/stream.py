"""Learning from a stream, batch by batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if

from rkdl._coding.encoder import NotFiniteError, Pursuit
from rkdl._coding.preimages import DecoderSums
from rkdl._data.signals import Signals
from rkdl._estimators.base import DictionaryLearner
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.config import config_context
from rkdl._execution.executor import Executor
from rkdl._learning.buffered_batches import (
    BUFFER_BYTES,
    BufferedBatch,
    JoinedSignals,
    buffer,
    buffered_size,
    chunk_rows,
)
from rkdl._learning.reduced import ReducedProblem
from rkdl._learning.reservoir import (
    Reservoir,
    count_nonzero_rows,
    distinct_rows,
    reservoir_size,
    some_distinct,
    typical_gamma,
    typical_rows,
)
from rkdl._learning.running_statistics import RunningStatistics, discount_factors
from rkdl._learning.stream import Stream, StreamProblem, fade_sums
from rkdl._persistence.shapes import ArrayError
from rkdl._utils.types import MatrixLike
from rkdl._utils.warnings import quiet, warn

# Different signals that gamma and atoms are chosen from at least.
FEWEST_SIGNALS = 20
# A start is chosen anew where the median squared distance of what was seen is so many times that of the signals it was
# chosen from, or that part of it. Chance gave less, from 50 signals on, in 40 random orders of each of 17 data sets,
# and more in 2 of 40 with Cauchy tails.
OTHER_SCALE = 4.0
# The sample of what was seen is looked at again, up to so many signals of it, when so large a share of it is new.
CHECKED_SIGNALS, CHECKED_SHARE = 200, 0.25


def _learns_from_sums(model: Any) -> bool:
    if model.atom_update == "aksvd":
        raise AttributeError(
            f"{type(model).__name__} with atom_update='aksvd' has no partial_fit: it refits the codes of all signals, "
            f"which a stream does not keep. Use atom_update='gram'."
        )
    return True


class StreamLearner(DictionaryLearner):
    """A method whose learning needs sums over the signals alone, so that signals may come and go."""

    _parameter_constraints: dict = {
        **DictionaryLearner._parameter_constraints,
        "half_life": [Interval(Real, 0, None, closed="neither"), None],
    }

    half_life: float | None

    @available_if(_learns_from_sums)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: MatrixLike, y: None = None, *, update: bool = True) -> Self:
        """Learn from one batch of a stream.

        The batch is coded with the current atoms, its statistics are added to those of earlier batches, which decay
        with `half_life`, and the atoms are updated from all of them. Every signal weighs the same however the stream is
        cut into batches. ORKDL and MORKDL also update the kernel vectors, from the signals of the batch and from what
        the kernel vectors represent of earlier ones. RKDL keeps its kernel vectors, unless there is a `half_life`: then
        signals of the batch replace kernel vectors that the atoms can do without.

        An iteration of `fit` codes all signals with the same atoms before it updates them. To do the same with a
        stream, give all batches of an epoch but the last with ``update=False``: the result is bitwise identical for the
        same chunks, initial atoms, kernel vectors and gamma. ORKDL and MORKDL buffer the signals of such batches, up to
        256 MiB, until the update.

        The first batch determines the kernel vectors, `gamma` and the initial atoms (for ORKDL and MORKDL, all batches
        up to the first update do). They are chosen again as long as they come from fewer distinct nonzero signals than
        there are kernel vectors and atoms; and, where the kernel depends on the scale of the signals, when the median
        squared distance of the signals seen has grown or shrunk by a factor of four. To this end a stream keeps a
        bounded sample of the signals seen, weighted by `half_life`, which stands for all of them at a new start. What
        the user gives (`init`, `kernel_vectors`, a number for `gamma`) does not change, and after `fit` the stream
        starts from the fitted model.

        From then on, `init`, `kernel_vectors` and `random_state` have no effect, and `n_components`,
        `n_kernel_vectors`, `n_fourier_features` and the parameters of the kernel must not change; the others may.

        A batch that fails or is interrupted leaves the estimator unchanged.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_signals, n_features)
            Signals, one per row, as for `fit`.
        y : None
            Ignored.
        update : bool, default=True
            Whether to update atoms and kernel vectors after this batch, or to wait for the next update.

        Returns
        -------
        self : object
            The estimator. An update appends to `errors_` and `update_errors_` the error of all signals seen, with the
            codes that they were given when they were seen; errors near zero are rounding errors.
        """
        before = dict(vars(self))
        generator = self.random_state if isinstance(self.random_state, np.random.RandomState) else None
        position: Any = None if generator is None else generator.get_state()
        try:
            with one_blas_thread():
                is_first = not hasattr(self, "n_iter_")
                if not is_first:
                    self._check_settings()
                signals = self._read_signals(X, reset=is_first)
                try:
                    stream = self._learn_batch(signals, update, is_first)
                except NotFiniteError:
                    signals.check_finite()
                    raise
            self.__dict__.pop("_saved_stream", None)
            self._stream = stream
        except BaseException:
            # A batch that fails changes nothing: the stream before it is still whole.
            self.__dict__.clear()
            self.__dict__.update(before)
            if generator is not None:
                generator.set_state(position)
            raise
        return self

    def _learn_batch(self, signals: Signals, update: bool, is_first: bool) -> Stream:
        """The stream after a batch; the one before it stays as it is, the fitted attributes change."""
        with self._executor(signals) as executor:
            if is_first:
                executor = self._with_dtype(executor)
            stream = self._enter(executor, is_first)
            can_buffer = self._moves() and self.half_life is None and not signals.is_remote
            if can_buffer and not update:
                return self._buffer(stream, executor)
            if not can_buffer:
                stream = self._release(stream, len(stream.buffered), signals)
            if not stream.buffered:
                return self._advance(self._reconsider(stream, executor), executor, update)
            with self._executor_for(stream.buffered, signals, executor.bounds) as joint:
                stream = self._begin(joint) if stream.is_provisional else self._reconsider(stream, joint)
                return self._advance(stream, joint, update)

    def _enter(self, executor: Executor, is_first: bool) -> Stream:
        """The stream that a batch is given to."""
        if is_first:
            return self._begin(executor)
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is not None:
            return stream
        saved = self.__dict__.get("_saved_stream")
        if saved is not None:
            scale, gamma = saved[0]["scale"], saved[0]["gamma"]
        else:
            scale = self._space.scale(executor.signals.dtype)
            gamma = getattr(self, "gamma_", None)
            gamma = None if gamma is None else gamma / scale / scale
        executor = executor.with_signals(executor.signals.with_scale(scale))
        rng = check_random_state(self.random_state)
        pursuit = self._pursuit(self._feature_scale(scale))
        if saved is None:
            return self._opened(self._continued(executor, pursuit, rng, gamma), scale, gamma)
        try:
            # A stream that was never saved is not judged by a batch either.
            with quiet():
                return Stream.restored(self._continued(executor, pursuit, rng, gamma), *saved)
        except ArrayError as error:
            raise ValueError(f"The file that this {type(self).__name__} is of was changed: {error}.") from error

    def _begin(self, executor: Executor) -> Stream:
        """A stream whose kernel vectors and first atoms are chosen from these signals."""
        self._check_sizes(executor.signals.shape[0])
        executor = self._inspect(executor)
        signals = executor.signals
        gamma = self._find_gamma(signals)
        pursuit = self._pursuit(self._feature_scale(signals.scale))
        problem = self._problem(executor, pursuit, check_random_state(self.random_state), gamma)
        if self._prepare(problem):
            raise KeyboardInterrupt
        assert isinstance(problem, ReducedProblem)
        stream = self._opened(problem, signals.scale, gamma)
        return replace(stream, is_provisional=True, seen=self._first_seen(signals))

    def _first_seen(self, signals: Signals) -> Reservoir | None:
        """What tells whether a start chosen from these signals is to be chosen anew; None where it never is."""
        if self._signals_needed() == 0 and not self._depends_on_scale():
            return None
        rows = some_distinct(signals, self._sample_size(signals))
        return Reservoir.empty(signals.shape[1], rows.dtype, count_nonzero_rows(rows), typical_gamma(rows))

    def _reconsider(self, stream: Stream, executor: Executor) -> Stream:
        """The stream that a batch is learned into, begun anew if what was seen asks for another start."""
        seen, signals = stream.seen, executor.signals
        if seen is None or seen.n_seen == 0:
            return stream
        size = self._sample_size(signals)
        if seen.n_distinct < self._signals_needed():
            rows = distinct_rows(np.concatenate([seen.rows, some_distinct(signals, size)]))
            count = count_nonzero_rows(rows)
            # Not after every signal: each start from twice as many as the last one, until there are enough.
            if count >= min(self._signals_needed(), max(1, 2 * seen.n_distinct)) and np.isfinite(rows).all():
                return self._begin_anew(stream, rows, signals)
        n_seen = seen.n_seen + signals.shape[0]
        if not self._depends_on_scale() or n_seen - seen.n_checked < CHECKED_SHARE * stream.running.weight:
            return stream
        rows = seen.add(signals, size, self.half_life).rows
        few = distinct_rows(rows[:: -(-len(rows) // CHECKED_SIGNALS)])
        if np.isfinite(rows).all() and not 1.0 / OTHER_SCALE <= typical_gamma(few) / seen.gamma <= OTHER_SCALE:
            return self._begin_anew(stream, typical_rows(distinct_rows(rows)), signals)
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
            decoder_sums=fade_sums(fresh.decoder_sums, share),
            has_warned=stream.has_warned,
            seen=seen,
        )

    def _remember(self, seen: Reservoir | None, signals: Signals) -> Reservoir | None:
        """The sample of what was seen after a batch; none where the start will not be chosen anew."""
        if seen is None or (seen.n_distinct >= self._signals_needed() and not self._depends_on_scale()):
            return None
        return seen.add(signals, self._sample_size(signals), self.half_life)

    def _sample_size(self, signals: Signals) -> int:
        return reservoir_size(self._signals_needed(), signals.shape[1], signals.dtype)

    def _signals_needed(self) -> int:
        """Different signals that are enough to choose a start from; 0 where nothing of it comes from signals."""
        draws = isinstance(self.init, str) and self.init != "random"
        gamma = getattr(self, "_gamma_parameter", getattr(self, "gamma", None))
        return max(FEWEST_SIGNALS if draws or isinstance(gamma, str) else 0, self.n_components if draws else 0)

    def _is_unsettled(self) -> bool:
        """Whether the start was chosen from too few signals."""
        stream, saved = vars(self).get("_stream"), vars(self).get("_saved_stream")
        if stream is not None:
            return stream.seen is not None and stream.seen.n_distinct < self._signals_needed()
        return saved is not None and "seen" in saved[0] and saved[0]["seen"]["n_distinct"] < self._signals_needed()

    def _depends_on_scale(self) -> bool:
        """Whether a start chosen from signals of one scale is of no use to those of another."""
        return False

    def _opened(self, problem: ReducedProblem, scale: float, gamma: float | None) -> Stream:
        model = Executor.to_backend(problem.executor, problem.model)
        running = RunningStatistics.empty(len(model.whitened_atoms), model.feature_map.size)
        settings = self._plain_settings()
        return Stream(model, running, problem.vector_update, scale, gamma, settings)

    def _bind(self, stream: Stream, executor: Executor) -> StreamProblem:
        """The stream's problem on a batch, with the parameters as they are now."""
        return self._bound(stream, executor)

    def _bound(self, stream: Stream, executor: Executor) -> StreamProblem:
        pursuit = self._pursuit(self._feature_scale(executor.signals.scale))
        return StreamProblem(ReducedProblem(executor, stream.model, pursuit), stream.running)

    def _advance(self, stream: Stream, executor: Executor, update: bool) -> Stream:
        """The stream after the statistics of a batch, and after an update where `update`."""
        signals = executor.signals.with_scale(stream.scale)
        executor = executor.with_signals(signals)
        # The mean weight of these signals is given to them afterwards, so that their pass is that of a fit.
        share, weight = discount_factors(signals.shape[0], self.half_life)
        problem = self._bind(replace(stream, running=stream.running.discounted(share / weight)), executor)
        errors, update_errors = self._errors_so_far()
        if update:
            problem.update()
            objective = problem.problem.model.update_objective
            if not np.isfinite(objective):
                raise NotFiniteError
            mean = max(objective, 0.0) / (signals.shape[1] * problem.running.weight)
            found = float(np.sqrt(mean)) / self._feature_scale(stream.scale)
            errors, update_errors = np.append(errors, found), np.append(update_errors, found)
        else:
            problem.accumulate()
        self.errors_, self.update_errors_ = errors, update_errors
        sums = self._publish(problem.problem, executor, stream.gamma, fade_sums(stream.decoder_sums, share / weight))
        if update and len(update_errors) == 1:
            self._check_learned(problem.problem, signals.shape[0])
        after = stream.after(
            problem,
            decoder_sums=fade_sums(sums, weight),
            buffered=(),
            buffered_sums=None,
            is_provisional=False,
            seen=self._remember(stream.seen, signals),
        )
        return replace(after, running=after.running.discounted(weight))

    def _errors_so_far(self) -> tuple[np.ndarray, np.ndarray]:
        return getattr(self, "errors_", np.empty(0)), getattr(self, "update_errors_", np.empty(0))

    def _publish(
        self, problem: ReducedProblem, executor: Executor, gamma: float | None, earlier: DecoderSums | None
    ) -> DecoderSums | None:
        """Set the fitted attributes; returns the decoder's sums."""
        self._store(problem, executor.signals, gamma)
        self.computes_in_float64_ = self.__dict__.pop("_needs_float64", getattr(self, "computes_in_float64_", False))
        self.errors_, self.update_errors_ = self._errors_so_far()
        self.n_iter_ = len(self.errors_)
        self.n_revived_ = problem.model.n_revived
        return self._learn_inverse(executor, earlier)

    def _buffer(self, stream: Stream, executor: Executor) -> Stream:
        """The stream with a batch that waits for an update; the oldest make room."""
        signals = executor.signals
        room = BUFFER_BYTES - buffered_size(signals)
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
        executor = executor.with_signals(signals.with_scale(stream.scale))
        problem = self._bind(stream, executor)
        # What cannot be learned from is refused now: the update will be that of other batches too.
        problem.check()
        earlier = stream.buffered_sums if stream.buffered else stream.decoder_sums
        sums = self._publish(problem.problem, executor, stream.gamma, earlier)
        batches = (*stream.buffered, buffer(signals, executor.bounds))
        return stream.after(problem, buffered=batches, buffered_sums=sums)

    def _release(self, stream: Stream, count: int, like: Signals) -> Stream:
        """The stream with the statistics of its `count` oldest held batches in place of their signals."""
        if count == 0:
            return stream
        rest, sums = stream.buffered[count:], stream.buffered_sums
        with self._executor_for(stream.buffered[:count], like) as executor:
            stream = self._advance(stream, executor, update=False)
        return replace(stream, buffered=rest, buffered_sums=sums if rest else None)

    def _executor_for(
        self, held: Sequence[BufferedBatch], like: Signals, bounds: Sequence[tuple[int, int]] = ()
    ) -> Executor:
        """A executor over held batches, and after them over `like` by its bounds; on the device of `like`."""
        parts = [batch.signals() for batch in held]
        chunks = [rows for batch in held for rows in batch.chunks]
        if bounds:
            parts.append(like.on_host())
            chunks += chunk_rows(bounds)
        joined: Any = JoinedSignals(parts)
        if like.device is not None:
            from rkdl._data.tensors import StreamedSignals

            joined = StreamedSignals(joined, like.device)
        with config_context(chunk_rows=chunks):
            return self._executor(joined)

    @abstractmethod
    def _continued(
        self, executor: Executor, pursuit: Pursuit, rng: np.random.RandomState, gamma: float | None
    ) -> ReducedProblem:
        """The learning problem at the fitted attributes."""

    def _moves(self) -> bool:
        """Whether kernel vectors move."""
        return False

    def _settings(self) -> dict:
        """Parameters that statistics depend on."""
        return {"n_components": self.n_components}

    def _plain_settings(self) -> dict:
        settings = self._settings()
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}

    def _check_settings(self) -> None:
        """Refuse parameters that what was learned cannot follow."""
        known = {"n_components": len(self.components_ if hasattr(self, "components_") else self.dual_components_)}
        if "_stream" in vars(self):
            known |= self._stream.settings
        elif "_saved_stream" in vars(self):
            known |= self._saved_stream[0].get("settings", {})
        else:
            known |= vars(self).get("_fit_settings", {})
        now = self._plain_settings()
        for name, value in known.items():
            if now.get(name) != value:
                raise ValueError(
                    f"{name}={now.get(name)!r} was {value!r} when this {type(self).__name__} began to learn, and what "
                    f"it learned holds for that alone: set it back, or begin anew with fit or a clone."
                )

    def _fit_signals(self, signals: Any, path: Any = None) -> bool:
        is_interrupted = super()._fit_signals(signals, path)
        for name in ("_stream", "_saved_stream"):
            self.__dict__.pop(name, None)
        self._fit_settings = self._plain_settings()
        return is_interrupted
