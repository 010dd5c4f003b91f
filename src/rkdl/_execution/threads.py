"""Chunk tasks on a pool of threads."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from types import TracebackType
from typing import Any, Self

from rkdl._data.signals import Signals
from rkdl._execution.blas import resolve_threads
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.executor import ChunkTask, Executor, add_sums
from rkdl._execution.pool import submit

# So many results of chunks wait to be consumed, if they take no more than so many bytes each.
FEW_RESULTS, LIGHT_BYTES = 16, 1 << 16


class ThreadExecutor(Executor):
    """Runs chunk tasks on threads; parameters are those of `Executor`."""

    def __init__(
        self,
        signals: Signals,
        bounds: Sequence[tuple[int, int]],
        n_jobs: int | None,
        cache_bytes: int | None = None,
    ) -> None:
        super().__init__(signals, bounds, n_jobs, cache_bytes)
        self._threads = min(resolve_threads(n_jobs), len(self.bounds))
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        super().__enter__()
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
            super().__exit__(kind, error, trace)

    def for_signals(self, signals: Signals) -> ThreadExecutor:
        """An executor for some of the signals."""
        bounds = chunk_bounds(signals.shape[0], 2 * signals.shape[1], signals.dtype.itemsize)
        return ThreadExecutor(signals, bounds, self.n_jobs)

    def map_reduce(self, task: ChunkTask, states: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
        """One pass over the data, as `Executor.map_reduce`."""
        totals, found = start, []

        def apply(number: int, first: int, last: int) -> tuple[tuple, Any]:
            return task(self.signals.read(first, last), None if states is None else states[number])

        def consume(result: tuple[tuple, Any]) -> None:
            nonlocal totals
            sums, state = result
            found.append(state)
            totals = add_sums(totals, sums, fresh=totals is start)

        self.map_chunks(apply, consume, _is_light)
        assert totals is not None
        return totals, found

    def map_chunks(
        self,
        task: Callable[[int, int, int], Any],
        consume: Callable[[Any], Any] = lambda result: None,
        is_light: Callable[[Any], bool] = lambda result: False,
    ) -> None:
        """As `Executor.map_chunks`; results are consumed by one thread at a time, whichever has the next one.

        Threads, this one among them, take chunk after chunk; none waits for another, or for Python's lock, after every
        chunk. A few results that are light are left to the end.
        """
        if self._pool is None or not self.signals.is_in_memory:
            for result in self.iter_chunks(task):
                consume(result)
            return
        results = OrderedResults(consume, 2 * self._threads)
        upcoming = iter(enumerate(self.bounds))

        def work() -> None:
            try:
                for number, (start, stop) in upcoming:
                    if not results.wait_for_room(number):
                        return
                    result = task(number, start, stop)
                    results.put(number, result, is_light(result))
                    del result
            except BaseException:
                results.close()
                raise

        workers: list[Future] = []
        try:
            for _ in range(self._threads - 1):
                # The caller's context, such as NumPy's error state, holds in the threads too.
                workers.append(submit(self._pool, copy_context().run, work))
            # This thread is one of them: to sleep and be woken takes as long as a small chunk.
            work()
            for worker in workers:
                worker.result()
            results.consume()
        finally:
            results.close()
            wait(workers)

    def iter_chunks(self, task: Callable[[int, int, int], Any]) -> Iterator[Any]:
        """Yield ``task(number, start, stop)`` for every chunk, in chunk order; announced rows are read ahead."""
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


class OrderedResults:
    """Results of chunks, which threads put in any order and which are consumed in chunk order.

    Parameters
    ----------
    consume : callable
        Called with one result at a time, from any thread.
    window : int
        Chunks that may be ahead of the one consumed next; `FEW_RESULTS` more while all results are light.
    """

    def __init__(self, consume: Callable[[Any], Any], window: int) -> None:
        self._consume = consume
        self._window = window
        self._found: dict[int, Any] = {}
        self._n_consumed = 0
        self._is_heavy = self._is_closed = False
        self._consuming = threading.Lock()
        self._progress = threading.Condition()
        self._n_waiting = 0

    def put(self, number: int, result: Any, is_light: bool) -> None:
        """Hand over the result of a chunk."""
        self._found[number] = result
        self._is_heavy = self._is_heavy or not is_light
        if self._is_heavy or len(self._found) >= FEW_RESULTS:
            self.consume()

    def consume(self) -> None:
        """Consume what is next in order; where another thread does so now, leave it to that one."""
        # Whoever consumes looks again after the lock is released, so that no result is left between two threads.
        while self._is_next_found() and self._consuming.acquire(blocking=False):
            try:
                while self._is_next_found():
                    self._consume(self._found.pop(self._n_consumed))
                    self._n_consumed += 1
            finally:
                self._consuming.release()
            self._wake()

    def _is_next_found(self) -> bool:
        return self._n_consumed in self._found and not self._is_closed

    def wait_for_room(self, number: int) -> bool:
        """Wait until a chunk is in the window, so that one slow chunk lets no results pile up; False when closed."""
        if not self._has_room(number):
            with self._progress:
                # Counted before the condition is tested: who consumes meanwhile sees that someone waits.
                self._n_waiting += 1
                try:
                    self._progress.wait_for(lambda: self._has_room(number))
                finally:
                    self._n_waiting -= 1
        return not self._is_closed

    def _has_room(self, number: int) -> bool:
        window = self._window + (0 if self._is_heavy else FEW_RESULTS)
        return self._is_closed or number < self._n_consumed + window

    def close(self) -> None:
        """Nothing is consumed from here on, and nobody waits."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._n_waiting:
            with self._progress:
                self._progress.notify_all()


def _is_light(result: tuple[tuple, Any]) -> bool:
    """Whether a chunk's sums may wait for others to be added together."""
    return sum(getattr(part, "nbytes", 8) for part in result[0]) <= LIGHT_BYTES
