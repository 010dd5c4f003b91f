"""Settings of a context: chunks, a GPU's precision, whether a cluster holds the signals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral
from typing import Any

from rkdl._backends.devices import BLOCK_ROWS

# Bytes that a chunk's signals, features and correlations take together: few enough for a core's share of the last
# cache, many enough that a product of matrices and the Python around it lose nothing.
CHUNK_BYTES = 5 << 20

SMALLEST_CHUNK, LARGEST_CHUNK = 256, 8192
# The same on a GPU: enough to keep it busy. With many atoms the sums of a chunk are as large as many signals.
GPU_CHUNK_BYTES, LEAST_BLOCKS = 1 << 30, 2

_chunk_rows: ContextVar[int | Sequence[int] | None] = ContextVar("rkdl_chunk_rows", default=None)
TF32: ContextVar[bool] = ContextVar("rkdl_tf32", default=False)
PERSIST: ContextVar[bool] = ContextVar("rkdl_persist", default=True)
_kept_bytes: ContextVar[int | None] = ContextVar("rkdl_kept_bytes", default=None)
# Called with (start, stop) of every chunk that is done, in passes whose results have the signals' size.
ON_ROWS: ContextVar[Callable[[int, int], object] | None] = ContextVar("rkdl_on_rows", default=None)


# Default of a setting that a context does not change; None is a value.
UNCHANGED: Any = "unchanged"


@contextmanager
def config_context(
    *,
    chunk_rows: int | Sequence[int] | None = UNCHANGED,
    tf32: bool = UNCHANGED,
    persist: bool = UNCHANGED,
    kept_bytes: int | None = UNCHANGED,
) -> Iterator[None]:
    """Set how signals are cut into chunks and processed while the context lasts.

    Contexts may be nested: "unchanged" leaves a setting as it is outside. Sums over signals are added chunk by chunk,
    so that a local fit with the row chunks of a Dask array is bitwise identical to the cluster's.

    Parameters
    ----------
    chunk_rows : int, sequence of int, None or "unchanged", default="unchanged"
        Rows of a chunk, or of every chunk in turn, as in ``dask_array.chunks[0]``. None, as outside any context, leaves
        the choice to the library.
    tf32 : bool or "unchanged", default="unchanged"
        Whether a GPU multiplies float32 matrices in TF32: faster, but three digits instead of seven. False
        outside any context.
    persist : bool or "unchanged", default="unchanged"
        Whether a Dask cluster keeps the blocks of a Dask array for the time of a fit, as it does outside any context.
        False reads them again for every pass: for signals that take more memory than the workers have.
    kept_bytes : int, None or "unchanged", default="unchanged"
        Most bytes of kernel values or Fourier features that a fit caches between passes; 0 computes them again in every
        pass, and RKDL takes about twice the time. None, as outside a context, caches up to 64 MiB (what fits, on a
        GPU). Never changes the result.

    Yields
    ------
    None
        Nothing.

    See Also
    --------
    RKDL : One of the estimators whose `fit` works in chunks.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import DL, config_context
    >>> X, _ = load_digits(return_X_y=True)
    >>> with config_context(chunk_rows=300):
    ...     model = DL(n_components=32, random_state=0).fit(X)
    """
    given: dict[ContextVar, Any] = {_chunk_rows: chunk_rows, TF32: tf32, PERSIST: persist, _kept_bytes: kept_bytes}
    named = {key: value for key, value in given.items() if not (isinstance(value, str) and value == UNCHANGED)}
    rows, most = named.get(_chunk_rows), named.get(_kept_bytes)
    for count in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else [rows]:
        if count is not None and not (isinstance(count, Integral) and int(count) > 0):
            raise ValueError(f"chunk_rows={rows!r} must be a number of rows, several of them, or None.")
    if most is not None and (isinstance(most, bool) or not isinstance(most, Integral) or most < 0):
        raise ValueError(f"kept_bytes={most!r} must be a number of bytes, at least 0, or None.")
    tokens = [setting.set(value) for setting, value in named.items()]
    try:
        yield
    finally:
        for token in tokens:
            token.var.reset(token)


def cache_limit(n_bytes: int) -> int:
    """The most bytes cached between passes: as the user fixed them, or else as given."""
    fixed = _kept_bytes.get()
    return n_bytes if fixed is None else fixed


def chunk_bounds(n_signals: int, row_width: int, itemsize: int, device: Any = None) -> list[tuple[int, int]]:
    """Cut the rows into chunks (start, stop) that fit the cache; a function of the sizes alone, never of the machine.

    A row occupies `row_width` numbers of `itemsize` bytes while it is processed. There are at least eight chunks where
    the rows allow it, so that a few threads stay busy to the end. Chunks on a GPU are larger, and whole blocks of rows.
    """
    if device is not None and device.type == "cuda":
        step = BLOCK_ROWS * max(LEAST_BLOCKS, GPU_CHUNK_BYTES // (row_width * itemsize * BLOCK_ROWS))
        return list(itertools.pairwise([*range(0, n_signals, step), n_signals]))
    rows = CHUNK_BYTES // max(1, row_width * itemsize)
    if n_signals <= max(min(rows, LARGEST_CHUNK), SMALLEST_CHUNK):
        return [(0, n_signals)]
    rows = min(max(rows, SMALLEST_CHUNK), LARGEST_CHUNK)
    rows = min(rows, max(SMALLEST_CHUNK, -(-n_signals // 8)))
    n_chunks = max(1, -(-n_signals // rows))
    if 4 < n_chunks <= 16:
        # A multiple of four: two or four threads end together. With more chunks, one more or less does not matter.
        n_chunks = -(-n_chunks // 4) * 4
    edges = [n_signals * i // n_chunks for i in range(n_chunks + 1)]
    return list(itertools.pairwise(edges))


def plan_chunks(n_signals: int, row_width: int, itemsize: int, device: Any = None) -> list[tuple[int, int]]:
    """Chunks as the user fixed them, or else those of `chunk_bounds`."""
    rows = _chunk_rows.get()
    if rows is None:
        return chunk_bounds(n_signals, row_width, itemsize, device)
    if isinstance(rows, Sequence):
        edges = [0, *itertools.accumulate(rows)]
        if edges[-1] != n_signals:
            raise ValueError(f"chunk_rows add up to {edges[-1]} rows, and there are {n_signals} signals.")
    else:
        edges = [*range(0, n_signals, int(rows)), n_signals]
    return list(itertools.pairwise(edges))
