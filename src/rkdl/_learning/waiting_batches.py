"""Batches of a stream that wait, and one pass over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from rkdl._data.signals import Signals
from rkdl._utils.types import Device

# Signals that are looked at together.
ROWS_AT_ONCE = 1024


class WaitingBatch(NamedTuple):
    """Signals as the user gave them, in NumPy, and the numbers of rows of their chunks."""

    rows: np.ndarray
    chunks: tuple[int, ...]

    @classmethod
    def of(cls, signals: Signals, bounds: Sequence[tuple[int, int]]) -> Self:
        """A copy of a batch in host memory."""
        rows = np.array(signals.on_host().read(0, signals.shape[0]))
        return cls(rows, tuple(stop - start for start, stop in bounds))


def join(batches: Sequence[WaitingBatch], device: Device = None) -> tuple[Signals, list[int]]:
    """Batches one after another, in the widest of their dtypes and on a device, and the rows of their chunks."""
    rows = np.concatenate([batch.rows for batch in batches])
    joined = Signals(rows, rows.dtype)
    if device is not None:
        from rkdl._data.tensors import StreamedSignals

        joined = StreamedSignals(joined, device)
    return joined, [count for batch in batches for count in batch.chunks]


def count_distinct(batches: Sequence[WaitingBatch], signals: Signals, enough: int) -> int:
    """Distinct signals other than zero in the batches and the signals, counted up to `enough`."""
    found: set[bytes] = set()
    for source in [*(Signals(batch.rows, batch.rows.dtype) for batch in batches), signals.on_host()]:
        for start in range(0, source.shape[0], ROWS_AT_ONCE):
            rows = source.read(start, min(start + ROWS_AT_ONCE, source.shape[0]))
            # In one dtype, and with one sign of zero.
            rows = rows[np.any(rows, axis=1)].astype(np.float64) + 0.0
            found.update(row.tobytes() for row in rows)
            if len(found) >= enough:
                return len(found)
    return len(found)
