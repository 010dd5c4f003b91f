"""Batches of a stream that wait, and one pass over all of them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rkdl._data.signals import Signals

# Signals that are looked at together.
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class WaitingBatch:
    """Signals as the user gave them, in NumPy, and the numbers of rows of their chunks."""

    rows: np.ndarray
    chunks: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Memory that it takes."""
        return int(self.rows.nbytes)


def wait(signals: Signals, bounds: Sequence[tuple[int, int]]) -> WaitingBatch:
    """A copy of a batch in host memory."""
    own = signals.on_host()
    return WaitingBatch(np.array(own.read(0, own.shape[0])), chunk_rows(bounds))


def chunk_rows(bounds: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Rows of every chunk."""
    return tuple(stop - start for start, stop in bounds)


def join(
    batches: Sequence[WaitingBatch], signals: Signals | None = None, bounds: Sequence[tuple[int, int]] = ()
) -> tuple[Signals, list[int]]:
    """Batches one after another and then the signals, on the device of these, and the rows of their chunks."""
    rows = [*itertools.chain.from_iterable(batch.chunks for batch in batches), *chunk_rows(bounds)]
    if signals is not None and not batches:
        return signals, rows
    parts = [Signals(batch.rows, batch.rows.dtype) for batch in batches]
    if signals is not None:
        parts.append(signals.on_host())
    joined: Signals = JoinedSignals(parts)
    if signals is not None and signals.device is not None:
        from rkdl._data.tensors import StreamedSignals

        joined = StreamedSignals(joined, signals.device)
    return joined, rows


def count_distinct(batches: Sequence[WaitingBatch], signals: Signals, enough: int) -> int:
    """Distinct signals other than zero in the batches and the signals, counted up to `enough`."""
    found: set[bytes] = set()
    sources = [*(Signals(batch.rows, batch.rows.dtype) for batch in batches), signals.on_host()]
    for source in sources:
        for start in range(0, source.shape[0], ROWS_AT_ONCE):
            rows = source.read(start, min(start + ROWS_AT_ONCE, source.shape[0]))
            # In one dtype, and with one sign of zero.
            rows = rows[np.any(rows, axis=1)].astype(np.float64) + 0.0
            found.update(row.tobytes() for row in rows)
            if len(found) >= enough:
                return len(found)
    return len(found)


class JoinedSignals(Signals):
    """Batches one after another, as if they were one, read in the widest of their dtypes."""

    def __init__(self, parts: Sequence[Signals]) -> None:
        dtype = np.result_type(*(part.dtype for part in parts))
        self.edges = np.cumsum([0, *(part.shape[0] for part in parts)])
        shape = (int(self.edges[-1]), parts[0].shape[1])
        super().__init__(np.broadcast_to(dtype.type(0), shape), dtype)
        self.parts = [part.with_dtype(dtype) for part in parts]
        self.is_in_memory = all(part.is_in_memory for part in parts)

    def _replaced(self, **changes: Any) -> Self:
        return super()._replaced(parts=[part._replaced(**changes) for part in self.parts], **changes)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Signals, int, int]]:
        """Where rows `start` to `stop` lie: signals, and rows of them."""
        for part, first, last in zip(self.parts, self.edges[:-1], self.edges[1:], strict=True):
            if first < stop and start < last:
                yield part, max(start, int(first)) - int(first), min(stop, int(last)) - int(first)

    def read(self, start: int, stop: int) -> np.ndarray:
        found = [part.read(first, last) for part, first, last in self._pieces(start, stop)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def take(self, indices: np.ndarray) -> np.ndarray:
        indices = np.asarray(indices)
        taken = np.empty((len(indices), self.shape[1]), dtype=self.dtype)
        owners = np.searchsorted(self.edges, indices, side="right") - 1
        for number in np.unique(owners):
            part, own = self.parts[number], owners == number
            taken[own] = part.take(indices[own] - self.edges[number])
        return taken

    def reading(self, bounds: Sequence[tuple[int, int]], at_once: int) -> AbstractContextManager:
        stack, own = ExitStack(), defaultdict[Signals, list[tuple[int, int]]](list)
        for part, first, last in itertools.chain.from_iterable(itertools.starmap(self._pieces, bounds)):
            own[part].append((first, last))
        for part, pieces in own.items():
            stack.enter_context(part.reading(pieces, at_once))
        return stack

    def _blocks(self) -> Iterator[np.ndarray]:
        for part in self.parts:
            yield from part._blocks()
