"""Chunk tasks on threads."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from rkdl._data.signals import Signals
from rkdl._execution.blas import check_n_jobs, one_blas_thread, resolve_threads
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.executor import ChunkTask, Executor, add_sums
from rkdl._execution.pool import ThreadTeam

# So many results of chunks wait to be consumed, if they take no more than so many bytes each.
FEW_RESULTS, LIGHT_BYTES = 16, 1 << 16
# A pass that takes fewer seconds of work than this, or fewer multiplications, ends sooner on one thread than on
# several, which must be woken.
SHORT_PASS, FEW_MULTIPLICATIONS = 5e-4, 1 << 23


class ThreadExecutor(Executor):
    """Runs chunk tasks on threads; parameters are those of `Executor`."""

    def __init__(
        self, signals: Signals, bounds: Sequence[tuple[int, int]], n_jobs: int | None, cache_bytes: int | None = None
    ) -> None:
        super().__init__(signals, bounds, n_jobs, cache_bytes)
        self._threads = min(resolve_threads(n_jobs), len(self.bounds))
        self._team: ThreadTeam | None = None
        # Seconds of work in the last pass of every kind of task.
        self._seconds: dict[type, float] = {}
        self._always_threaded: set[type] = set()

    def __enter__(self) -> Self:
        super().__enter__()
        if self._threads > 1:
            # This thread is one of them.
            self._team = ThreadTeam(self._threads - 1)
            self._context.callback(self._team.close)
        return self

    def for_signals(self, signals: Signals) -> ThreadExecutor:
        return threads_for(signals, self.n_jobs)

    def map_reduce(self, task: ChunkTask, states: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
        totals, found = start, []

        def apply(number: int, first: int, last: int) -> tuple[tuple, Any]:
            return task(self.signals.read(first, last), None if states is None else states[number])

        def consume(result: tuple[tuple, Any]) -> None:
            nonlocal totals
            sums, state = result
            found.append(state)
            totals = add_sums(totals, sums, fresh=totals is start)

        if self._team is None or not self.signals.is_in_memory:
            self.map_chunks(apply, consume, _is_light)
        else:
            self._map_timed(type(task), apply, consume)
        assert totals is not None
        return totals, found

    def _map_timed(self, kind: type, task: Callable[[int, int, int], Any], consume: Callable[[Any], Any]) -> None:
        """As `map_chunks` for light results, in this thread alone if the last pass of this kind was short."""
        is_short = self._seconds.get(kind, math.inf) < SHORT_PASS
        # Of a thread among others its own time counts, or what it waited for Python's lock would pass for work.
        clock = time.perf_counter if is_short else time.thread_time
        spent: list[float] = []

        def timed(number: int, start: int, stop: int) -> Any:
            begin = clock()
            result = task(number, start, stop)
            spent.append(clock() - begin)
            return result

        if not is_short:
            self.map_chunks(timed, consume, _is_light)
            if kind not in self._always_threaded:
                self._seconds[kind] = sum(spent)
            return
        super().map_chunks(timed, consume)
        if sum(spent) >= SHORT_PASS:
            # Threads seemed to have little to do because they waited.
            self._always_threaded.add(kind)
            del self._seconds[kind]

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
        if self._team is None:
            super().map_chunks(task, consume)
            return
        # A window of twice the threads keeps them busy and the results in flight few.
        window = 2 * self._threads
        upcoming, ahead = iter(enumerate(self.bounds)), iter(self.bounds)

        def consume_and_announce(result: Any) -> None:
            consume(result)
            self._announce(ahead, 1)

        results = OrderedResults(consume_and_announce, window)

        def work() -> None:
            for number, (start, stop) in upcoming:
                if not results.wait_for_room(number):
                    return
                result = task(number, start, stop)
                results.put(number, result, self.signals.is_in_memory and is_light(result))
                del result

        with self.signals.reading():
            self._announce(ahead, window + 1)
            self._team.run(work, results.close)
            results.consume()

    def collect(self, task: Callable[[int, int, int], Any]) -> list[Any]:
        """``task(number, start, stop)`` of every chunk; what each returned, in chunk order."""
        found: list[Any] = []
        if self._team is None or not self.signals.is_in_memory:
            self.map_chunks(task, found.append)
            return found
        # All results are kept, and nothing is read ahead: the threads need not wait for one another.
        found += [None] * len(self.bounds)
        upcoming = iter(enumerate(self.bounds))

        def work() -> None:
            for number, (start, stop) in upcoming:
                found[number] = task(number, start, stop)

        self._team.run(work, lambda: deque(upcoming, maxlen=0))
        return found


def threads_for(signals: Signals, n_jobs: int | None) -> ThreadExecutor:
    """An executor for signals in memory, in chunks that fit the cache."""
    return ThreadExecutor(signals, chunk_bounds(signals.shape[0], 2 * signals.shape[1], signals.dtype.itemsize), n_jobs)


def map_chunks(
    signals: Signals,
    bounds: Sequence[tuple[int, int]],
    n_jobs: int | None,
    task: Callable[[int, int, int], Any],
    multiplications: float = math.inf,
) -> list[Any]:
    """``task(number, start, stop)`` of every chunk, on threads if there are several; what each returned.

    All tasks together take about `multiplications`.
    """
    is_little = len(bounds) == 1 or multiplications <= FEW_MULTIPLICATIONS
    if is_little and signals.is_in_memory and signals.device is None:
        # An executor takes longer to set up than a few signals take.
        check_n_jobs(n_jobs)
        with one_blas_thread():
            return [task(number, *bound) for number, bound in enumerate(bounds)]
    with ThreadExecutor(signals, bounds, n_jobs) as executor:
        return executor.collect(task)


class OrderedResults:
    """Results of chunks, which threads put in any order and which are consumed in chunk order.

    `consume` is called with one result at a time, from any thread. Chunks may be `window` ahead of the one consumed
    next, and `FEW_RESULTS` more while all results are light.
    """

    def __init__(self, consume: Callable[[Any], Any], window: int) -> None:
        self._consume, self._window = consume, window
        # Held while what follows is read or written, never while a result is consumed.
        self._progress = threading.Condition()
        self._found: dict[int, Any] = {}
        self._n_consumed = 0
        self._is_heavy = self._is_closed = self._is_consuming = False

    def put(self, number: int, result: Any, is_light: bool) -> None:
        """Hand over the result of a chunk."""
        with self._progress:
            self._found[number] = result
            self._is_heavy = self._is_heavy or not is_light
            is_due = self._is_heavy or len(self._found) >= FEW_RESULTS
        if is_due:
            self.consume()

    def consume(self) -> None:
        """Consume what is next in order; where another thread does so now, leave it to that one."""
        # Whoever consumes looks again after every result, so that none is left between two threads.
        while self._take_turn():
            try:
                self._consume(self._found.pop(self._n_consumed))
            finally:
                with self._progress:
                    self._n_consumed += 1
                    self._is_consuming = False
                    self._progress.notify_all()

    def _take_turn(self) -> bool:
        with self._progress:
            is_free = not self._is_consuming and not self._is_closed and self._n_consumed in self._found
            self._is_consuming = self._is_consuming or is_free
        return is_free

    def wait_for_room(self, number: int) -> bool:
        """Wait until a chunk is in the window, so that one slow chunk lets no results pile up; False when closed."""
        with self._progress:
            self._progress.wait_for(lambda: self._is_closed or number < self._n_consumed + self._room())
            return not self._is_closed

    def _room(self) -> int:
        return self._window + (0 if self._is_heavy else FEW_RESULTS)

    def close(self) -> None:
        """Nothing is consumed from here on, and nobody waits."""
        with self._progress:
            self._is_closed = True
            self._progress.notify_all()


def _is_light(result: tuple[tuple, Any]) -> bool:
    """Whether a chunk's sums may wait for others to be added together."""
    return sum(getattr(part, "nbytes", 8) for part in result[0]) <= LIGHT_BYTES
