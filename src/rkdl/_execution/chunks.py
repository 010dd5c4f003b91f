"""How many rows a chunk has."""

from __future__ import annotations

import itertools
from typing import Any

from rkdl._backends.devices import BLOCK_ROWS

# Bytes that a chunk's signals, features and correlations take together: few enough for a core's share of the last
# cache, many enough that a product of matrices and the Python around it lose nothing.
CHUNK_BYTES = 5 << 20

SMALLEST_CHUNK, LARGEST_CHUNK = 256, 8192
# The same on a GPU: enough to keep it busy. With many atoms the sums of a chunk are as large as many signals.
GPU_CHUNK_BYTES, LEAST_BLOCKS = 1 << 30, 2


def chunk_bounds(n_signals: int, row_width: int, itemsize: int, device: Any = None) -> list[tuple[int, int]]:
    """Cut the rows into chunks (start, stop) that fit the cache; a function of the sizes alone, never of the machine.

    A row occupies `row_width` numbers of `itemsize` bytes while it is worked on. There are at least eight chunks where
    the rows allow it, so that a few threads stay busy to the end. Chunks on a GPU are larger, and whole blocks of rows.
    """
    if device is not None and device.type == "cuda":
        step = BLOCK_ROWS * max(LEAST_BLOCKS, GPU_CHUNK_BYTES // (row_width * itemsize * BLOCK_ROWS))
        return list(itertools.pairwise([*range(0, n_signals, step), n_signals]))
    if n_signals <= SMALLEST_CHUNK:
        return [(0, n_signals)]
    rows = CHUNK_BYTES // max(1, row_width * itemsize)
    rows = min(max(rows, SMALLEST_CHUNK), LARGEST_CHUNK)
    rows = min(rows, max(SMALLEST_CHUNK, -(-n_signals // 8)))
    n_chunks = max(1, -(-n_signals // rows))
    if 4 < n_chunks <= 16:
        # A multiple of four: two or four threads end together. Of more chunks one more or less is no matter.
        n_chunks = -(-n_chunks // 4) * 4
    edges = [n_signals * i // n_chunks for i in range(n_chunks + 1)]
    return list(itertools.pairwise(edges))
