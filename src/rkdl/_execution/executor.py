"""Map-reduce over the chunks of the signals, on threads."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from types import TracebackType
from typing import Any

import numpy as np

from rkdl._data.signals import Signals, is_safe, unit_scale
from rkdl._execution.blas import one_blas_thread, resolve_threads
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.pool import submit

# Features are kept until the kernel vectors move while they take no more than this.
KEPT_BYTES = 64 << 20

# So many results of chunks wait to be added, if they take no more than so many bytes each.
FEW_RESULTS, LIGHT_BYTES = 16, 1 << 16

# Chunks whose sums one task of a cluster adds to the total.
ADDED_AT_ONCE = 16

ChunkTask = Callable[[np.ndarray, Any], tuple[tuple, Any]]


def _squares(signals: np.ndarray, kept: Any) -> tuple[tuple, None]:
    flat = signals.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        return (float(np.dot(flat, flat)),), None


_squares.keeps = False  # type: ignore[attr-defined]


def keeps(step: ChunkTask) -> bool:
    """Whether a step has something of its own to keep; one that says no returns what was kept before, or nothing."""
    return bool(getattr(step, "keeps", True))


class Executor:
    """Applies a step to every chunk on a pool of threads and adds the sums in chunk order.

    A step is a function ``(signals, kept) -> (sums, kept)``: the sums of all chunks are added, what is kept (a
    chunk's codes) stays with the chunk for a later step. Because the additions happen in chunk order, the
    result is the same whatever the number of threads.
    """

    def __init__(self, signals: Signals, bounds: Sequence[tuple[int, int]], n_jobs: int | None) -> None:
        self.signals = signals
        self.bounds = list(bounds)
        self.n_jobs = n_jobs
        self._threads = min(resolve_threads(n_jobs), len(self.bounds))
        self._pool: ThreadPoolExecutor | None = None
        # Set by a preparation that was interrupted and went on with what it had.
        self.is_interrupted = False
        # Bytes that may be kept from one walk to the next; None for as many as elsewhere.
        self.kept_bytes: int | None = None
        self._blas = one_blas_thread()

    def __enter__(self) -> Executor:
        self._blas.__enter__()
        if self._threads > 1:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="rkdl")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
        finally:
            self._pool = None
            self._blas.__exit__(None, None, None)

    def to_backend(self, value: Any) -> Any:
        """The value with its arrays where this executor's signals are worked on: here, in NumPy."""
        if sys.modules.get("torch") is None:
            return value
        from rkdl._backends.torch.place import to_host

        return to_host(value)

    def small_to_host(self, sums: tuple) -> tuple:
        """Sums of a walk where the small matrices are worked with: where they are."""
        return sums

    def with_vectors_on_device(self, feature_map: Any) -> Any:
        """A kernel map with its kernel vectors where they are moved: where they are."""
        return feature_map

    def for_signals(self, signals: Signals) -> Executor:
        """A executor over some of the signals."""
        bounds = chunk_bounds(signals.shape[0], 2 * signals.shape[1], signals.dtype.itemsize)
        return Executor(signals, bounds, self.n_jobs)

    def can_cache(self, n_bytes: int) -> bool:
        """Whether so much may be kept from one walk to the next."""
        from rkdl._execution.config import keepable

        limit = KEPT_BYTES if self.kept_bytes is None else self.kept_bytes
        return self.signals.is_in_memory and n_bytes <= keepable(limit)

    def iter_chunks(self, task: Callable[[int, int, int], Any]) -> Any:
        """Yield ``task(number, start, stop)`` of every chunk, in chunk order."""
        # A window of twice the threads keeps them busy and the results in flight few.
        window = 1 if self._pool is None else 2 * self._threads
        waiting: deque = deque()
        upcoming = iter(self.bounds)
        with self.signals.reading():
            try:
                for bound in itertools.islice(upcoming, window + 1):
                    self.signals.announce(*bound)
                for number, (start, stop) in enumerate(self.bounds):
                    if self._pool is None:
                        yield task(number, start, stop)
                    else:
                        waiting.append(submit(self._pool, copy_context().run, task, number, start, stop))
                        if len(waiting) < window:
                            continue
                        yield waiting.popleft().result()
                    for bound in itertools.islice(upcoming, 1):
                        self.signals.announce(*bound)
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def map_chunks(
        self,
        task: Callable[[int, int, int], Any],
        consume: Callable[[Any], Any] = lambda result: None,
        is_light: Callable[[Any], bool] = lambda result: False,
    ) -> None:
        """``consume(task(number, start, stop))`` of every chunk, in chunk order, one at a time, from whatever thread.

        Threads, this one among them, take chunk after chunk and consume what is next in order; none waits for another,
        or for Python's lock, after every chunk. A few results that are light are left to the end.
        """
        if self._pool is None or not self.signals.is_in_memory:
            for result in self.iter_chunks(task):
                consume(result)
            return
        upcoming = iter(enumerate(self.bounds))
        found: dict[int, Any] = {}
        consuming = threading.Lock()
        n_consumed = 0
        is_over = is_heavy = False

        def consume_next() -> None:
            nonlocal n_consumed
            # Who finds another at it leaves what was found to that one, who looks again before it goes.
            while n_consumed in found and not is_over and consuming.acquire(blocking=False):
                try:
                    while n_consumed in found and not is_over:
                        consume(found.pop(n_consumed))
                        n_consumed += 1
                finally:
                    consuming.release()

        def work() -> None:
            nonlocal is_over, is_heavy
            try:
                for number, (start, stop) in upcoming:
                    # One slow chunk does not make the others' results pile up.
                    most = 2 * self._threads + (0 if is_heavy else FEW_RESULTS)
                    while number >= n_consumed + most and not is_over:
                        time.sleep(1e-3)
                        consume_next()
                    if is_over:
                        return
                    result = found[number] = task(number, start, stop)
                    is_heavy = is_heavy or not is_light(result)
                    if is_heavy or len(found) >= FEW_RESULTS:
                        consume_next()
                    del result
            except BaseException:
                is_over = True
                raise

        workers: list[Future] = []
        try:
            for _ in range(self._threads - 1):
                # What holds here for a while, NumPy's way with overflow for one, holds in the threads too.
                workers.append(submit(self._pool, copy_context().run, work))
            # This thread is one of them: to sleep and be woken takes as long as a small chunk.
            work()
            for worker in workers:
                worker.result()
            consume_next()
        finally:
            is_over = True
            wait(workers)

    def inspect(self) -> None:
        """Refuse signals that are not finite; scale those whose squares leave the dtype's range."""
        (total,), _ = self.map_reduce(_squares)
        size = max(1, self.signals.shape[0] * self.signals.shape[1])
        if is_safe(float(total) / size, self.signals.dtype):
            return
        self.signals.check_finite()
        self.signals.scale = unit_scale(self.signals.largest(), self.signals.dtype)

    def map_reduce(self, step: ChunkTask, kept: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
        """Apply `step` to every chunk.

        Parameters
        ----------
        step : callable
            The step.
        kept : list, default=None
            What an earlier step kept, one item a chunk.
        start : tuple, default=None
            Sums of earlier signals that the chunks' are added to.

        Returns
        -------
        sums : tuple
            The chunks' sums added in chunk order, arrays in float64.
        kept : list
            What the step keeps, one item a chunk.
        """

        def task(number: int, start: int, stop: int) -> tuple[tuple, Any]:
            return step(self.signals.read(start, stop), kept[number] if kept is not None else None)

        totals = start
        retained = []

        def consume(result: tuple[tuple, Any]) -> None:
            nonlocal totals
            sums, item = result
            retained.append(item)
            totals = add_sums(totals, sums, fresh=totals is start)

        self.map_chunks(task, consume, _is_light)
        assert totals is not None
        return totals, retained

    def map_states(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk; it stays with the chunk."""
        return [function(item) for item in kept]

    def gather(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk, brought here."""
        return [function(item) for item in kept]


def _is_light(result: tuple[tuple, Any]) -> bool:
    """Whether a chunk's sums may wait beside those of others."""
    return sum(getattr(part, "nbytes", 8) for part in result[0]) <= LIGHT_BYTES


def add_sums(totals: tuple | None, sums: tuple, *, fresh: bool = True) -> tuple:
    """A chunk's sums added to those of the chunks before it, in float64; in place unless `fresh`."""
    if totals is None:
        return tuple(np.array(part, dtype=np.float64) for part in sums)
    if fresh:
        totals = tuple(np.array(total, dtype=np.float64) for total in totals)
    for total, part in zip(totals, sums, strict=True):
        total += part
    return totals
