"""Signals, read chunk by chunk, and the one way to walk them."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite

from rkdl._arrays import cast
from rkdl._blas import one_blas_thread, resolve_threads
from rkdl._pool import submit

# Bytes that a chunk's signals, features and correlations take together: few enough for a core's share of the last
# cache, many enough that a product of matrices and the Python around it lose nothing.
CHUNK_BYTES = 5 << 20
SMALLEST_CHUNK, LARGEST_CHUNK = 256, 8192
# Features are kept until the kernel vectors move while they take no more than this.
KEPT_BYTES = 64 << 20
# So many results of chunks wait to be added, if they take no more than so many bytes each.
FEW_RESULTS, LIGHT_BYTES = 16, 1 << 16
# Numbers that are in float64 together while their variance is found.
MOMENTS_AT_ONCE = 1 << 20
# Chunks whose sums one task of a cluster adds to the total.
ADDED_AT_ONCE = 16

# Squares of squares of the signals must stay finite in the dtype.
_SAFE_EXPONENT = {np.dtype(np.float32): 20, np.dtype(np.float64): 100}


@dataclass(frozen=True)
class Moments:
    """Of some numbers: how many there are, their mean, and the sum of their squared deviations from it."""

    count: int = 0
    mean: float = 0.0
    deviation: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Those of all numbers of an array of float64."""
        if values.size == 0:
            return cls()
        mean = float(values.mean(dtype=np.float64))
        flat = values.ravel() - mean
        return cls(values.size, mean, float(np.dot(flat, flat)))

    def __add__(self, other: Moments) -> Moments:
        """Those of the numbers of both, without the cancellation of a mean of squares less a squared mean."""
        count = self.count + other.count
        if count == 0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        return Moments(count, mean, self.deviation + other.deviation + step * step * (self.count * other.count / count))

    @property
    def variance(self) -> float:
        """Mean squared deviation from the mean."""
        return self.deviation / self.count if self.count else 0.0


class Signals:
    """Rows of `data` in one dtype, multiplied by a power of two where their squares would leave its range.

    Parameters
    ----------
    data : array-like or CSR matrix of shape (n_signals, n_features)
        Anything with ``shape`` and row slicing.
    dtype : dtype
        float32 or float64.
    scale : float, default=1.0
        What rows are multiplied by when they are read.
    """

    def __init__(self, data: Any, dtype: Any, scale: float = 1.0) -> None:
        self.data = data
        self.dtype = np.dtype(dtype)
        self.scale = scale
        self.shape: tuple[int, int] = tuple(data.shape)
        self.median_gamma: float | None = None

    # The dtype of results, where it is not that in which the signals are worked on.
    given_dtype: np.dtype | None = None
    # Whether a walk happens elsewhere, and few signals are better fetched than visited.
    is_remote = False
    # Whether the signals fit in memory, so that something of their size may be kept beside them.
    is_in_memory = True

    def _finish(self, rows: Any) -> np.ndarray:
        if sparse.issparse(rows):
            rows = rows.toarray()
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        return rows if self.scale == 1.0 else rows * self.dtype.type(self.scale)

    def widen(self) -> None:
        """Work on the signals in float64 from here on; results go back to the dtype that they have now."""
        self.given_dtype, self.dtype = self.dtype, np.dtype(np.float64)

    @property
    def result_dtype(self) -> np.dtype:
        """The dtype of results."""
        return self.dtype if self.given_dtype is None else self.given_dtype

    def as_given(self, result: Any) -> Any:
        """A result in the dtype of results."""
        return result if self.given_dtype is None else cast(result, self.given_dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, C-contiguous, scaled; not to be written to."""
        return self._finish(self.data[start:stop])

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the given indices, in their order, scaled."""
        order = np.argsort(indices, kind="stable")
        rows = self._finish(self.data[np.asarray(indices)[order]])
        taken = np.empty_like(rows)
        taken[order] = rows
        return taken

    def subset(self, indices: np.ndarray) -> Signals:
        """Some of the signals, in memory."""
        return Signals(self.take(indices), self.dtype)

    def reading(self) -> AbstractContextManager:
        """Lasts as long as a walk; a source that is slow to read reads announced rows ahead."""
        return nullcontext()

    def announce(self, start: int, stop: int) -> None:
        """These rows will be read soon."""

    def check_finite(self) -> None:
        """Refuse NaN and infinity with scikit-learn's words."""
        for block in self._blocks():
            # A sum of numbers near the dtype's largest may be infinity less infinity.
            with np.errstate(over="ignore", invalid="ignore"):
                assert_all_finite(block, input_name="X")

    def largest(self) -> float:
        """The largest magnitude of all numbers."""
        extents = [max(block.max(initial=0.0), -block.min(initial=0.0)) for block in self._blocks()]
        return float(max(extents, default=0.0))

    def moments(self) -> Moments:
        """Moments of all numbers, after their scale; the zeros of a sparse matrix are among them."""
        total = Moments()
        blocks = [_values_of(self.data)] if sparse.issparse(self.data) else self._blocks()
        for block in blocks:
            step = MOMENTS_AT_ONCE if block.ndim == 1 else max(1, MOMENTS_AT_ONCE // block.shape[1])
            for start in range(0, len(block), step):
                total += Moments.of(self.scale * block[start : start + step].astype(np.float64))
        return total + Moments(self.shape[0] * self.shape[1] - total.count)

    def _blocks(self) -> Iterator[np.ndarray]:
        yield self.data.data if sparse.issparse(self.data) else np.asarray(self.data)


def _values_of(matrix: Any) -> np.ndarray:
    """The values of a sparse matrix, each place once."""
    matrix = sparse.csr_array(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    values: np.ndarray = matrix.data[: matrix.indptr[-1]]
    return values


def is_safe(mean_square: float, dtype: Any) -> bool:
    """Whether squares of numbers of this mean square, and squares of those, stay well inside the dtype."""
    limit = 2.0 ** (2 * _SAFE_EXPONENT[np.dtype(dtype)])
    return 1.0 / limit <= mean_square <= limit


def safe_scale(values: np.ndarray) -> float:
    """The power of two that brings the largest magnitude near one, or 1.0 where all are zero."""
    return unit_scale(float(max(values.max(initial=0.0), -values.min(initial=0.0))), values.dtype)


def unit_scale(largest: float, dtype: Any) -> float:
    """The power of two that brings a magnitude near one as far as the dtype allows, or 1.0 for zero."""
    if largest == 0.0:
        return 1.0
    exponent = int(np.frexp(largest)[1])
    limit = int(np.finfo(dtype).maxexp) - 28
    return float(2.0 ** -min(max(exponent, -limit), limit))


def chunk_bounds(n_signals: int, row_width: int, itemsize: int) -> list[tuple[int, int]]:
    """Cut the rows into chunks that fit the cache; a function of the sizes alone, never of the machine.

    Parameters
    ----------
    n_signals : int
        Number of rows.
    row_width : int
        Numbers that one row occupies while it is worked on.
    itemsize : int
        Bytes of one number.

    Returns
    -------
    list of (start, stop)
        At least eight chunks where the rows allow it, so that a few threads stay busy to the end.
    """
    rows = CHUNK_BYTES // max(1, row_width * itemsize)
    rows = min(max(rows, SMALLEST_CHUNK), LARGEST_CHUNK)
    rows = min(rows, max(SMALLEST_CHUNK, -(-n_signals // 8)))
    n_chunks = max(1, -(-n_signals // rows))
    if 4 < n_chunks <= 16:
        # A multiple of four: two or four threads end together. Of more chunks one more or less is no matter.
        n_chunks = -(-n_chunks // 4) * 4
    edges = [n_signals * i // n_chunks for i in range(n_chunks + 1)]
    return list(itertools.pairwise(edges))


Step = Callable[[np.ndarray, Any], tuple[tuple, Any]]


def _squares(signals: np.ndarray, kept: Any) -> tuple[tuple, None]:
    flat = signals.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        return (float(np.dot(flat, flat)),), None


_squares.keeps = False  # type: ignore[attr-defined]


def keeps(step: Step) -> bool:
    """Whether a step has something of its own to keep; one that says no returns what was kept before, or nothing."""
    return bool(getattr(step, "keeps", True))


class Walker:
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

    def __enter__(self) -> Walker:
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

    def place(self, value: Any) -> Any:
        """The value with its arrays where this walker's signals are worked on: here, in NumPy."""
        if sys.modules.get("torch") is None:
            return value
        from rkdl._torch.place import to_host

        return to_host(value)

    def small(self, sums: tuple) -> tuple:
        """Sums of a walk where the small matrices are worked with: where they are."""
        return sums

    def lend(self, feature_map: Any) -> Any:
        """A kernel map with its kernel vectors where they are moved: where they are."""
        return feature_map

    def over(self, signals: Signals) -> Walker:
        """A walker over some of the signals."""
        bounds = chunk_bounds(signals.shape[0], 2 * signals.shape[1], signals.dtype.itemsize)
        return Walker(signals, bounds, self.n_jobs)

    def may_keep(self, n_bytes: int) -> bool:
        """Whether so much may be kept from one walk to the next."""
        from rkdl._config import keepable

        limit = KEPT_BYTES if self.kept_bytes is None else self.kept_bytes
        return self.signals.is_in_memory and n_bytes <= keepable(limit)

    def each(self, task: Callable[[int, int, int], Any]) -> Any:
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

    def fold(
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
            for result in self.each(task):
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
        (total,), _ = self.run(_squares)
        size = max(1, self.signals.shape[0] * self.signals.shape[1])
        if is_safe(float(total) / size, self.signals.dtype):
            return
        self.signals.check_finite()
        self.signals.scale = unit_scale(self.signals.largest(), self.signals.dtype)

    def run(self, step: Step, kept: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
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

        self.fold(task, consume, _is_light)
        assert totals is not None
        return totals, retained

    def change(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk; it stays with the chunk."""
        return [function(item) for item in kept]

    def fetch(self, function: Callable[[Any], Any], kept: list) -> list:
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
