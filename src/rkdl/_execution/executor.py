"""Executors: map-reduce over the chunks of the signals.

A *pass over the data* applies a *chunk task* to every chunk. Sums of all chunks are added in float64 and in chunk
order, so that a result is bitwise identical whatever the number of threads or workers; a *chunk state* (codes,
features) stays where its chunk is, for a later pass. Here chunks are worked on by threads, in `rkdl._execution.device`
on a torch device, and in `rkdl._execution.dask` on a cluster.
"""

from __future__ import annotations

import hashlib
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from contextvars import Context, copy_context
from copy import copy
from dataclasses import dataclass
from itertools import repeat, starmap
from queue import SimpleQueue
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from rkdl._backends.arrays import host, is_tensor
from rkdl._backends.devices import to_host
from rkdl._data.signals import NotFiniteError, Signals, leaves_range, without_nan
from rkdl._execution.blas import check_n_jobs, resolve_threads
from rkdl._execution.config import CHUNK_BYTES, ON_ROWS, cache_limit, chunk_bounds, plan_chunks
from rkdl._utils.types import Array

# Features are cached between passes while they take no more than this.
CACHE_BYTES = 64 << 20


Bounds = Sequence[tuple[int, int]]
Sums = tuple[Array, ...]
# State that a chunk task stores with its chunk; on a cluster, on the same worker.
State = Any
Value = TypeVar("Value")
Item = TypeVar("Item")
Result = TypeVar("Result")
# A picklable function of a chunk's rows and its chunk state that returns sums over the rows and the new chunk state; if
# its attribute `makes_state` is False, the state that it was given.
ChunkTask = Callable[[Array, State], tuple[Sums, State]]


class Executor:
    """Runs chunk tasks on rows `bounds` of the signals, here on threads; the caller holds BLAS to one thread.

    Signals occupy `row_width` numbers each while they are processed.
    """

    def __init__(
        self,
        signals: Signals,
        bounds: Bounds,
        n_jobs: int | None,
        row_width: float = float("inf"),
    ) -> None:
        self.signals = signals
        self.bounds = list(bounds)
        self.n_jobs = n_jobs
        self._threads = 1
        if n_jobs is not None:
            check_n_jobs(n_jobs)
        if len(self.bounds) > 1 and signals.device is None:
            # Signals that would fit in one chunk are faster in the calling thread, which need not wake others.
            n_bytes = signals.shape[0] * row_width * signals.dtype.itemsize
            if not signals.is_in_memory or n_bytes > CHUNK_BYTES:
                self._threads = min(resolve_threads(n_jobs), len(self.bounds))

    # Contexts that end with the executor, if it has any.
    _context: ExitStack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._context is not None:
            self._context.close()
        if kind is not None and issubclass(kind, NotFiniteError):
            # If the signals themselves are not finite, the error says so.
            self.signals.check_finite()

    def map_reduce(
        self, task: ChunkTask, states: list[State] | None = None, start: Sums | None = None
    ) -> tuple[Sums, list[State]]:
        """One pass over the data: the sums of all chunks, and their new states.

        `states` are those of an earlier pass, one per chunk. Sums are added in chunk order and in float64, to those of
        earlier signals where `start` gives them.
        """
        totals, found = None if start is None else tuple(map(self._wide, start)), []

        def read(number: int) -> tuple[Array, State]:
            return self.signals.read(*self.bounds[number]), None if states is None else states[number]

        def consume(result: tuple[Sums, State]) -> None:
            nonlocal totals
            sums, state = result
            found.append(state)
            totals = add_sums(totals, sums)

        with self.signals.reading(self.bounds, self._threads):
            # Twice the threads keeps them busy and the results in flight few.
            in_order(self.worker(task), read, len(self.bounds), self._threads, 2 * self._threads, consume)
        assert totals is not None
        return totals, found

    def map_chunks(self, task: Callable[[int, int], Result]) -> list[Result]:
        """Results of ``task(start, stop)`` for every chunk, in this process.

        For results of the signals' size, such as codes, which tasks may write into arrays of this process.
        """
        bounds, found, on_rows = self.bounds, list[Result](), ON_ROWS.get()

        def consume(result: Result) -> None:
            if on_rows is not None:
                on_rows(*bounds[len(found)])
            found.append(result)

        with self.signals.reading(bounds, self._threads):
            if self._threads == 1 and on_rows is None:
                return list(starmap(task, bounds))
            in_order(task, bounds.__getitem__, len(bounds), self._threads, len(bounds), consume)
        return found

    def _wide(self, part: Array) -> Array:
        """A copy in float64, where sums are added."""
        return np.array(part, dtype=np.float64)

    def map_states(self, function: Callable[[State], State], states: list[State]) -> list[State]:
        """`function` of every chunk state; the results stay with the chunks."""
        return self.gather(function, states)

    def gather(self, function: Callable[[State], Result], states: list[State]) -> list[Result]:
        """`function` of every chunk state, in this process."""
        return [function(state) for state in states]

    def to_backend(self, value: Value) -> Value:
        """The value with its arrays, or the sums of a pass, where the small matrices are computed: here in NumPy."""
        return to_host(value)

    def to_signals(self, value: Value) -> Value:
        """The value with its arrays where the signals are."""
        return value

    def worker(self, task: ChunkTask) -> ChunkTask:
        """The task on the device of the signals, in pieces if its memory does not hold all rows of a chunk."""
        return task

    def with_vectors_on_device(self, feature_map: Value) -> Value:
        """A kernel map with its kernel vectors where their gradient is computed."""
        return feature_map

    def with_signals(self, signals: Signals) -> Self:
        """This executor for the same rows, read in another dtype; valid as long as this one."""
        other = copy(self)
        other.signals = signals
        return other

    def can_cache(self, n_bytes: int) -> bool:
        """Whether `n_bytes` may be cached between passes."""
        return self.signals.is_in_memory and n_bytes <= cache_limit(CACHE_BYTES)

    def inspected(self) -> Self:
        """An executor in whose dtype squares of the signals stay in range; raises if they do in none."""
        return self._in_range(*self.map_reduce(SquaresTask(self.signals.allows_nan))[0])

    def inspected_with_digest(self) -> tuple[Self, str]:
        """As `inspected`, with a digest of all numbers in their chunks, from the same pass."""
        sums, digests = self.map_reduce(DigestTask(self.signals.allows_nan))
        return self._in_range(*sums), hashlib.sha256(b"".join(self.gather(bytes, digests))).hexdigest()

    def _in_range(self, total: Array) -> Self:
        signals = self.signals

        def largest() -> float:
            signals.check_finite()
            return signals.largest()

        mean_square = float(total) / max(1, signals.shape[0] * signals.shape[1])
        is_out = leaves_range(mean_square, signals.dtype, largest)
        return self.with_signals(signals.with_dtype(np.dtype(np.float64))) if is_out else self


def open_executor(
    signals: Signals,
    row_width: int,
    n_jobs: int | None,
    *,
    is_alone: bool = False,
    is_part: bool = False,
) -> Executor:
    """The executor for the signals, each of which occupies `row_width` numbers while it is processed.

    `is_alone` says that the chunk tasks run no user-defined code, `is_part` that the signals are a part of others, to
    which the user's chunks apply.
    """
    if signals.is_remote:
        from rkdl._data.dask import DaskSignals
        from rkdl._execution.dask import DaskExecutor

        assert isinstance(signals, DaskSignals)
        return DaskExecutor(signals, n_jobs)
    bounds = (chunk_bounds if is_part else plan_chunks)(
        signals.shape[0], row_width, signals.dtype.itemsize, signals.device
    )
    if signals.device is None:
        return Executor(signals, bounds, n_jobs, row_width)
    from rkdl._execution.device import DeviceExecutor, is_light

    # A source of signals that is the user's may differentiate.
    is_alone = is_alone and (is_tensor(signals.data) or type(signals.data) is np.ndarray)
    return DeviceExecutor(signals, bounds, is_light(row_width, signals.shape[1]), is_alone)


@dataclass(frozen=True)
class SquaresTask:
    """Sum of squares of a chunk, without those that are NaN if it `allows_nan`."""

    makes_state: ClassVar[bool] = False

    allows_nan: bool = False

    def __call__(self, rows: Any, state: Any) -> tuple[tuple, Any]:
        flat = (without_nan(rows) if self.allows_nan else rows).reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            return (flat @ flat,), None


class DigestTask(SquaresTask):
    """Sum of squares of a chunk; its state is a digest of its numbers."""

    makes_state: ClassVar[bool] = True

    def __call__(self, rows: Any, state: Any) -> tuple[tuple, bytes]:
        return super().__call__(rows, None)[0], hashlib.sha256(np.ascontiguousarray(host(rows)).data).digest()


def add_sums(totals: Sums | None, sums: Sums) -> Sums:
    """A chunk's sums added to those of the chunks before it, in float64 and in place; the first become the totals."""
    if totals is None:
        # Tensors that a task returns are its own, and may be added to.
        return tuple(part.double() if is_tensor(part) else np.array(part, dtype=np.float64) for part in sums)
    for total, part in zip(totals, sums, strict=True):
        total += part
    return totals


def in_order(
    function: Callable[..., Result],
    arguments: Callable[[int], tuple],
    count: int,
    threads: int,
    window: int,
    consume: Callable[[Result], object],
) -> None:
    """``consume(function(*arguments(number)))`` of each number below `count`, consumed in order.

    On `threads` threads, including this one; at most `window` results are in flight. After an error or Ctrl-C nothing
    more begins. With a pool of the standard library, passes over a few megabytes take a tenth to two fifths longer.
    """
    if threads <= 1:
        for number in range(count):
            consume(function(*arguments(number)))
        return
    upcoming, found = iter(range(count)), dict[int, Result]()
    turn, errors, helpers = Lock(), list[BaseException](), _Helpers()
    # One entry for each result that there is room for.
    room: SimpleQueue[None] = SimpleQueue()
    for _ in range(window):
        room.put(None)
    n_consumed, is_over = 0, False

    def work() -> None:
        nonlocal n_consumed, is_over
        try:
            room.get()
            for number in upcoming:
                if is_over:
                    break
                result = function(*arguments(number))
                with turn:
                    found[number] = result
                    del result
                    while n_consumed in found and not is_over:
                        consume(found.pop(n_consumed))
                        n_consumed += 1
                        room.put(None)
                room.get()
        except BaseException as error:
            is_over = True
            errors.append(error)
        finally:
            # Wakes a thread that waits for room, to see that it is over.
            room.put(None)

    try:
        helpers.start(work, threads - 1)
        work()
        helpers.wait()
    except BaseException:
        is_over = True
        for _ in range(threads):
            room.put(None)
        helpers.wait()
        raise
    if errors:
        raise errors[0]


class _Helpers:
    """Further threads for the work of this one.

    Threads wait on objects that are implemented in C: Ctrl-C inside a semaphore or a future, which are implemented in
    Python, would leave their locks held forever.
    """

    def __init__(self) -> None:
        self._started, self._finished, self._ended = list[int](), list[None](), SimpleQueue[None]()

    def start(self, work: Callable[[], None], count: int) -> None:
        """Call `work` in `count` threads; in none when the interpreter shuts down, and no thread can start."""

        def help_out(context: Context) -> None:
            context.run(work)
            self._finished.append(None)
            self._ended.put(None)

        # The caller's settings, such as NumPy's error state, hold in the threads too.
        contexts = [(copy_context(),) for _ in range(count)]
        with suppress(RuntimeError):
            # A loop in C, so that Ctrl-C cannot come between the start of a thread and its entry in the list.
            self._started.extend(map(start_new_thread, repeat(help_out), contexts))

    def wait(self) -> None:
        """Wait until all have returned."""
        # Counted: Ctrl-C may lose what was taken from the queue.
        while len(self._finished) < len(self._started):
            self._ended.get()


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """``function`` of each item on `threads` threads, in order; if one fails, those not yet started are skipped."""
    found: list[Result] = []
    in_order(function, lambda number: (items[number],), len(items), min(threads, len(items)), len(items), found.append)
    return found
