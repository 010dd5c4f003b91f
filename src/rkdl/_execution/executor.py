"""Executors: map-reduce over the chunks of the signals.

A *pass over the data* applies a *chunk task* to every chunk. The task is a picklable function
``(rows, state) -> (sums, state)``: sums of all chunks are added in float64 and in chunk order, so that a result is
bitwise identical whatever the number of threads or workers; a *chunk state* (codes, features) stays where its chunk is,
for a later pass. There is one executor for each place that chunks are worked on in: `rkdl._execution.threads`,
`rkdl._execution.device` (torch) and `rkdl._execution.dask`.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from rkdl._backends.arrays import host
from rkdl._backends.devices import to_host
from rkdl._data.signals import RangeError, Signals, is_safe
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.config import cache_limit

# Features are cached between passes while they take no more than this.
CACHE_BYTES = 64 << 20

ChunkTask = Callable[[Any, Any], tuple[tuple, Any]]


class Executor(ABC):
    """Runs chunk tasks on rows `bounds` of the signals; a context manager that holds BLAS to one thread.

    At most `cache_bytes` are cached between passes; None for `CACHE_BYTES`, or what the user's configuration says.
    """

    def __init__(
        self, signals: Signals, bounds: Sequence[tuple[int, int]], n_jobs: int | None, cache_bytes: int | None = None
    ) -> None:
        self.signals = signals
        self.bounds = list(bounds)
        self.n_jobs = n_jobs
        self.cache_bytes = cache_bytes
        self._context = ExitStack()

    def __enter__(self) -> Self:
        self._context.enter_context(one_blas_thread())
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.close()

    @abstractmethod
    def map_reduce(self, task: ChunkTask, states: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
        """One pass over the data: the sums of all chunks, and their new states.

        `states` are those of an earlier pass, one per chunk. Sums are added in chunk order and in float64, to those of
        earlier signals where `start` gives them.
        """

    def map_chunks(
        self, task: Callable[[int, int, int], Any], consume: Callable[[Any], Any] = lambda result: None
    ) -> None:
        """``consume(task(number, start, stop))`` for every chunk, in chunk order, in this process.

        For results of the signals' size, such as codes, which tasks write into arrays of this process.
        """
        for result in self.iter_chunks(task):
            consume(result)

    def iter_chunks(self, task: Callable[[int, int, int], Any]) -> Iterator[Any]:
        """Yield ``task(number, start, stop)`` for every chunk, in chunk order; announced rows are read ahead."""
        upcoming = iter(self.bounds)
        with self.signals.reading():
            self._announce(upcoming, 2)
            for number, (start, stop) in enumerate(self.bounds):
                yield task(number, start, stop)
                self.signals.worked_on()
                self._announce(upcoming, 1)

    def _announce(self, upcoming: Iterator[tuple[int, int]], count: int) -> None:
        for bound in itertools.islice(upcoming, count):
            self.signals.announce(*bound)

    def map_states(self, function: Callable[[Any], Any], states: list) -> list:
        """`function` of every chunk state; the results stay with the chunks."""
        return [function(state) for state in states]

    def gather(self, function: Callable[[Any], Any], states: list) -> list:
        """`function` of every chunk state, in this process."""
        return [function(state) for state in states]

    def to_backend(self, value: Any) -> Any:
        """The value with its arrays where the small matrices are computed: here in NumPy."""
        return to_host(value)

    def to_signals(self, value: Any) -> Any:
        """The value with its arrays where the signals are."""
        return value

    def attempt(self, work: Callable, rows: Any, state: Any = None) -> tuple[tuple, Any]:
        """``work(rows, state)``, in pieces where the memory of a device does not hold all rows."""
        return work(rows, state)

    def small_to_host(self, sums: tuple) -> tuple:
        """Sums of a pass where the small matrices are computed."""
        return sums

    def with_vectors_on_device(self, feature_map: Any) -> Any:
        """A kernel map with its kernel vectors where their gradient is computed."""
        return feature_map

    @abstractmethod
    def for_signals(self, signals: Signals) -> Executor:
        """An executor for other signals in the same place."""

    def with_signals(self, signals: Signals) -> Self:
        """This executor for the same rows, read in another dtype; lives as long as this one."""
        other = copy(self)
        other.signals = signals
        return other

    def can_cache(self, n_bytes: int) -> bool:
        """Whether so many bytes may be cached between passes."""
        limit = cache_limit(CACHE_BYTES) if self.cache_bytes is None else self.cache_bytes
        return self.signals.is_in_memory and n_bytes <= limit

    def cache_room(self, n_bytes: int) -> int:
        """Bytes of features that may be cached where the signals are: `n_bytes` on the host, what fits on a GPU."""
        return n_bytes

    def inspected(self) -> Self:
        """The executor for signals whose squares stay in the dtype's range; what no dtype holds is refused."""
        (total,), _ = self.map_reduce(SquaresTask())
        return self._in_range(float(total))

    def inspected_with_digest(self) -> tuple[Self, str]:
        """As `inspected`, with a digest of all numbers in their chunks, from the same pass."""
        (total,), digests = self.map_reduce(DigestTask())
        return self._in_range(float(total)), hashlib.sha256(b"".join(self.gather(bytes, digests))).hexdigest()

    def _in_range(self, total: float) -> Self:
        signals = self.signals
        mean_square = total / max(1, signals.shape[0] * signals.shape[1])
        if is_safe(mean_square, signals.dtype):
            return self
        signals.check_finite()
        largest = signals.largest()
        if largest == 0.0:
            return self
        if not is_safe(largest * largest, np.float64):
            raise RangeError(largest)
        return self.with_signals(signals.with_dtype(np.dtype(np.float64)))


class SquaresTask:
    """Sum of squares of a chunk."""

    makes_state: ClassVar[bool] = False

    def __call__(self, rows: Any, state: Any) -> tuple[tuple, Any]:
        flat = rows.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            return (flat @ flat,), None


class DigestTask(SquaresTask):
    """Sum of squares of a chunk; its state is a digest of its numbers."""

    makes_state: ClassVar[bool] = True

    def __call__(self, rows: Any, state: Any) -> tuple[tuple, bytes]:
        return super().__call__(rows, None)[0], hashlib.sha256(np.ascontiguousarray(host(rows)).data).digest()


def makes_state(task: ChunkTask) -> bool:
    """Whether a task makes a new chunk state; one that does not returns the earlier one, or None."""
    return bool(getattr(task, "makes_state", True))


def add_sums(totals: tuple | None, sums: tuple, *, fresh: bool = True) -> tuple:
    """A chunk's sums added to those of the chunks before it, in float64; in place unless `fresh`."""
    if totals is None:
        return tuple(np.array(part, dtype=np.float64) for part in sums)
    if fresh:
        totals = tuple(np.array(total, dtype=np.float64) for total in totals)
    for total, part in zip(totals, sums, strict=True):
        total += part
    return totals
