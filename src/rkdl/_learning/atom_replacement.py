"""Replacement of unused atoms by the worst-represented signals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from rkdl._backends.arrays import host
from rkdl._execution.executor import Executor
from rkdl._learning.chunk_tasks import ChunkState


class WorstSignals(NamedTuple):
    """The worst-represented of `n_signals` signals, worst first: squared residuals (k,), and signals (k, m)."""

    n_signals: int
    residuals: np.ndarray
    signals: np.ndarray


def find_worst(
    executor: Executor, chunks: list[ChunkState], count: int, waiting: WorstSignals | None = None
) -> WorstSignals:
    """The `count` worst-represented signals of the chunks and of `waiting`, which come first."""
    found = executor.gather(partial(_worst_of, count=count), chunks)
    residuals = np.concatenate([values for values, _ in found])
    starts = [start for start, _ in executor.bounds]
    rows = np.concatenate([start + own for start, (_, own) in zip(starts, found, strict=True)])
    order = worst_first(residuals)[:count]
    worst = WorstSignals(executor.signals.shape[0], residuals[order], executor.signals.take(rows[order]))
    if waiting is None:
        return worst
    residuals, signals = (np.concatenate([host(old), new]) for old, new in zip(waiting[1:], worst[1:], strict=True))
    order = worst_first(residuals)[:count]
    return WorstSignals(worst.n_signals + waiting.n_signals, residuals[order], signals[order])


def replace_atoms(atoms: np.ndarray, unused: np.ndarray, rows: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Atoms (n, r), the unused ones replaced by the first of `rows` (k, r) that differ; and how many were."""
    squares = np.einsum("ij,ij->i", rows, rows)
    chosen = first_distinct(squares, lambda i: rows @ rows[i], unused.size, dtype)
    atoms = atoms.copy()
    atoms[unused[: len(chosen)]] = rows[chosen] / np.linalg.norm(rows[chosen], axis=1)[:, None]
    return atoms, len(chosen)


def first_distinct(
    squared_norms: np.ndarray, products: Callable[[int], np.ndarray], count: int, dtype: np.dtype
) -> list[int]:
    """The first `count` of k signals in feature space that are not zero and, up to rounding, not parallel.

    ``products(i)`` are the inner products (k,) with signal i; `dtype` is that of the signals.
    """
    lengths = np.sqrt(squared_norms.astype(np.float64))
    chosen: list[int] = []
    for i in np.flatnonzero(lengths > 1e-12 * lengths.max(initial=0.0)).tolist():
        if len(chosen) == count:
            break
        distances = 2.0 - 2.0 * products(i)[chosen] / (lengths[i] * lengths[chosen]) if chosen else np.empty(0)
        if not (distances <= 1e2 * float(np.finfo(dtype).eps)).any():
            chosen.append(i)
    return chosen


def worst_first(residuals: np.ndarray) -> np.ndarray:
    """Indices by decreasing residual, ties in order; repeated residuals, as of copies of a signal, come last."""
    order = np.argsort(-residuals, kind="stable")
    falling = residuals[order]
    repeats = np.zeros(len(order), dtype=bool)
    repeats[1:] = falling[:-1] - falling[1:] <= 1e2 * np.finfo(residuals.dtype).eps * falling[:-1]
    return np.concatenate([order[~repeats], order[repeats]])


def worst_signals(residuals: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest residuals as `worst_first` has them, those at rounding level left out."""
    order = worst_first(residuals)[:count]
    return order[residuals[order] > rounding_level(residuals.dtype, float(residuals.mean()))]


def rounding_level(dtype: np.dtype, mean: float) -> float:
    """Squared residuals up to this are rounding where their mean is `mean`."""
    return 1e3 * float(np.finfo(dtype).eps) * mean


def _worst_of(state: ChunkState, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest residuals of a chunk and their rows."""
    residuals = host(state.residuals)
    rows = worst_first(residuals)[:count]
    return residuals[rows], rows
