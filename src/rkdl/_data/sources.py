"""Signals that are read from storage: memory maps, Zarr arrays, HDF5 datasets, anything with row slices."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import islice
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse

from rkdl._data.signals import Signals, check_shape, float_dtype
from rkdl._utils.inputs import well_formed
from rkdl._utils.warnings import warn

# Bytes of the largest storage block that is cached while its rows are read; larger ones are read in pieces.
LARGEST_BLOCK = 64 << 20


def is_source(X: Any) -> bool:
    """Whether signals are read chunk by chunk: shape, dtype and row slices, and not an array in memory."""
    if isinstance(X, np.ndarray):
        return isinstance(X, np.memmap) and X.ndim == 2
    if isinstance(X, np.generic) or sparse.issparse(X) or hasattr(X, "iloc") or not hasattr(type(X), "__getitem__"):
        return False
    try:
        return len(X.shape) >= 0 and np.dtype(X.dtype) is not None
    except (AttributeError, TypeError):
        return False


def check_source(X: Any, caller: str) -> None:
    """Refuse a source of the wrong shape or dtype."""
    shape, dtype = tuple(X.shape), np.dtype(X.dtype)
    check_shape(shape, type(X).__name__, caller)
    if dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X is of dtype {dtype}.")
    if dtype.kind not in "fiub":
        raise ValueError(f"X is of dtype {dtype}: signals are numbers.")


class RowSource(Signals):
    """Rows of something that is not in memory, with ``shape``, ``dtype`` and row slicing, read ahead on a thread."""

    is_in_memory = False

    def __init__(self, data: Any) -> None:
        super().__init__(data, float_dtype(data.dtype))
        # A compressed block is always decompressed as a whole.
        self._storage_rows = _rows_of_blocks(data)
        n_bytes = self._storage_rows * self.shape[1] * np.dtype(data.dtype).itemsize
        self._block_rows = self._storage_rows if n_bytes <= LARGEST_BLOCK else 1
        if self._block_rows < self._storage_rows:
            warn(
                f"The signals are stored in blocks of {n_bytes / 2**20:.0f} MiB, decompressed again for every chunk "
                f"that is read from them: store them in blocks of at most {LARGEST_BLOCK >> 20} MiB."
            )
        self._block: tuple[int, np.ndarray] | None = None
        self._lock, self._taking = threading.Lock(), threading.Lock()
        # Reads the next chunks of a pass while one is processed.
        self._reader: ThreadPoolExecutor | None = None
        self._upcoming: Iterator[tuple[int, int]] = iter(())
        self._ahead: dict[tuple[int, int], Future] = {}

    def _replaced(self, **changes: Any) -> Self:
        return super()._replaced(_reader=None, _ahead={}, **changes)

    @contextmanager
    def reading(self, bounds: Sequence[tuple[int, int]], at_once: int) -> Iterator[None]:
        if self._reader is not None:
            yield
            return
        with ThreadPoolExecutor(1, thread_name_prefix="rkdl-read") as self._reader:
            self._upcoming = iter(bounds)
            try:
                self._read_ahead(at_once + 1)
                yield
            finally:
                reader, self._reader = self._reader, None
                reader.shutdown(cancel_futures=True)
                self._ahead.clear()
                self._block = None

    def _read_ahead(self, count: int) -> None:
        if self._reader is not None:
            for start, stop in islice(self._upcoming, count):
                # When the interpreter shuts down, nothing more is read ahead.
                with suppress(RuntimeError):
                    self._ahead[start, stop] = self._reader.submit(copy_context().run, self._read, start, stop)

    def read(self, start: int, stop: int) -> np.ndarray:
        # One thread at a time, so that rows are read ahead in their order.
        with self._taking:
            future = self._ahead.pop((start, stop), None)
            if future is not None:
                self._read_ahead(1)
        return self._read(start, stop) if future is None else future.result()

    def _read(self, start: int, stop: int) -> np.ndarray:
        size = self._block_rows
        if size <= stop - start:
            return self._finish(self._slice(start, stop))
        parts = []
        with self._lock:
            for number in range(start // size, -(-stop // size)):
                first = number * size
                if self._block is None or self._block[0] != number:
                    self._block = (number, self._slice(first, min(first + size, self.shape[0])))
                parts.append(self._block[1][max(start - first, 0) : stop - first])
        return self._finish(parts[0].copy() if len(parts) == 1 else np.concatenate(parts))

    def _slice(self, start: int, stop: int) -> np.ndarray:
        """Rows as stored, dense; a source that returns a wrong number of rows is refused."""
        rows = well_formed(self.data[start:stop])
        if isinstance(rows, np.memmap):
            rows = np.array(rows)
            _forget_pages(self.data)
        rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
        if rows.shape != (stop - start, self.shape[1]):
            raise ValueError(
                f"Rows {start} to {stop} of X have shape {rows.shape}, expected {(stop - start, self.shape[1])}: its "
                f"`shape` and its slices must agree."
            )
        return rows

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the given indices, in their order; every storage block is read once."""
        wanted, inverse = np.unique(np.asarray(indices), return_inverse=True)
        rows = np.empty((len(wanted), self.shape[1]), dtype=self.dtype)
        if isinstance(self.data, np.memmap):
            # A few at a time: a row may bring some hundred kilobytes of pages into memory.
            for begin in range(0, len(wanted), 128):
                rows[begin : begin + 128] = np.asarray(self.data)[wanted[begin : begin + 128]]
                _forget_pages(self.data)
            return self._finish(rows)[inverse]
        # Rows of one storage block, or without blocks neighbouring rows, are one slice.
        group = wanted // self._storage_rows if self._storage_rows > 1 else wanted - np.arange(len(wanted))
        starts = np.flatnonzero(np.diff(group, prepend=group[:1] - 1))
        for first, last in zip(starts, [*starts[1:], len(wanted)], strict=True):
            own = wanted[first:last]
            block = self._slice(int(own[0]), int(own[-1]) + 1)
            rows[first:last] = block[own - own[0]]
        return self._finish(rows)[inverse]


def _rows_of_blocks(data: Any) -> int:
    """Rows of a storage block; 1 if there are no blocks, or `chunks` is not that of Zarr or HDF5."""
    chunks = getattr(data, "chunks", None)
    if not isinstance(chunks, tuple) or not chunks or not isinstance(chunks[0], Integral):
        return 1
    return max(1, int(chunks[0]))


def _forget_pages(data: np.memmap) -> None:
    """Release a memory map's pages that were read; the system's file cache still has them.

    Pages of a copy-on-write map may hold changes that are nowhere else, so those stay.
    """
    mapped = getattr(data, "_mmap", None)
    if mapped is not None and data.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
