"""Settings that hold for a while: chunks, a GPU's precision, whether a cluster holds the signals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral

from rkdl._signals import chunk_bounds

_chunk_rows: ContextVar[int | tuple[int, ...] | None] = ContextVar("rkdl_chunk_rows", default=None)
_tf32: ContextVar[bool] = ContextVar("rkdl_tf32", default=False)
_persist: ContextVar[bool] = ContextVar("rkdl_persist", default=True)
_kept_bytes: ContextVar[int | None] = ContextVar("rkdl_kept_bytes", default=None)


@contextmanager
def config_context(
    *,
    chunk_rows: int | Sequence[int] | None = None,
    tf32: bool = False,
    persist: bool = True,
    kept_bytes: int | None = None,
) -> Iterator[None]:
    """Fix the chunks that signals are learned from and how they are worked on, for as long as the context lasts.

    Sums over signals are added chunk by chunk, so their last bits follow the chunks. The library chooses chunks that
    fit the cache; with the row chunks of a Dask array given here, a local fit ends at the bits of the cluster's.

    Parameters
    ----------
    chunk_rows : int or sequence of int, default=None
        Rows of a chunk, or of every chunk in turn, as in ``dask_array.chunks[0]``. None leaves the choice to the
        library.
    tf32 : bool, default=False
        Whether a GPU multiplies float32 matrices in TF32: several times as fast, three digits instead of seven.
    persist : bool, default=True
        Whether a Dask cluster keeps the blocks of a Dask array for the time of a fit. False reads them again for every
        walk: for signals that take more memory than the workers have, on disks that read as fast as workers spill.
    kept_bytes : int, default=None
        Most bytes of kernel values or Fourier features that a fit keeps for all signals from one walk to the next. 0
        computes them again in every walk: memory then grows by the codes alone, and RKDL takes about twice the time.
        None keeps up to 64 MiB (512 MiB in `KDLClassifier`, what fits on a GPU). Never changes the result.

    Yields
    ------
    None
        Nothing.

    See Also
    --------
    RKDL : One of the estimators whose `fit` walks chunks.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import DL, config_context
    >>> X, _ = load_digits(return_X_y=True)
    >>> with config_context(chunk_rows=300):
    ...     model = DL(n_components=32, random_state=0).fit(X)
    """
    if isinstance(chunk_rows, Sequence):
        chunk_rows = tuple(chunk_rows)
    for rows in chunk_rows if isinstance(chunk_rows, tuple) else (chunk_rows,):
        if rows is not None and not (isinstance(rows, Integral) and int(rows) > 0):
            raise ValueError(f"chunk_rows={chunk_rows!r} must be a number of rows, several of them, or None.")
    if kept_bytes is not None and (
        isinstance(kept_bytes, bool) or not isinstance(kept_bytes, Integral) or kept_bytes < 0
    ):
        raise ValueError(f"kept_bytes={kept_bytes!r} must be a number of bytes, at least 0, or None.")
    tokens = (
        _chunk_rows.set(chunk_rows),
        _tf32.set(bool(tf32)),
        _persist.set(bool(persist)),
        _kept_bytes.set(kept_bytes),
    )
    try:
        yield
    finally:
        for token in tokens:
            token.var.reset(token)  # type: ignore[arg-type]


def uses_tf32() -> bool:
    """Whether the user asked for TF32."""
    return _tf32.get()


def persists() -> bool:
    """Whether a Dask cluster keeps the signals for the time of a fit."""
    return _persist.get()


def keepable(n_bytes: int) -> int:
    """The bytes that may be kept from one walk to the next: as the user fixed them, or else as given."""
    fixed = _kept_bytes.get()
    return n_bytes if fixed is None else fixed


def plan_chunks(
    n_signals: int,
    row_width: int,
    itemsize: int,
    choose: Callable[[int, int, int], list[tuple[int, int]]] = chunk_bounds,
) -> list[tuple[int, int]]:
    """Chunks as the user fixed them, or else those of `choose`."""
    rows = _chunk_rows.get()
    if rows is None:
        return choose(n_signals, row_width, itemsize)
    if isinstance(rows, tuple):
        edges = [0, *itertools.accumulate(rows)]
        if edges[-1] != n_signals:
            raise ValueError(f"chunk_rows add up to {edges[-1]} rows, and there are {n_signals} signals.")
    else:
        edges = [*range(0, n_signals, int(rows)), n_signals]
    return list(itertools.pairwise(edges))
