"""Replacement of unused atoms by the worst-represented signals."""

from __future__ import annotations

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
    """The `count` worst-represented signals of the chunks and of those that `waiting` knows, which come first."""
    found = executor.gather(partial(_worst_of, count=count), chunks)
    residuals = np.concatenate([values for values, _ in found])
    starts = [start for start, _ in executor.bounds]
    rows = np.concatenate([start + own for start, (_, own) in zip(starts, found, strict=True)])
    order = worst_first(residuals)[:count]
    n_signals = executor.signals.shape[0]
    worst = WorstSignals(n_signals, residuals[order], executor.signals.take(rows[order]))
    if waiting is None:
        return worst
    residuals = np.concatenate([host(waiting.residuals), worst.residuals])
    signals = np.concatenate([host(waiting.signals), worst.signals])
    order = worst_first(residuals)[:count]
    return WorstSignals(n_signals + waiting.n_signals, residuals[order], signals[order])


def replace_atoms(atoms: np.ndarray, unused: np.ndarray, rows: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Atoms (n, r), the unused ones replaced by the first of `rows` (k, r) that differ; and how many were."""
    norms = np.linalg.norm(rows, axis=1)
    usable = norms > 1e-12 * max(float(norms.max()), np.finfo(np.float64).tiny)
    rows = _distinct(rows[usable] / norms[usable, None], unused.size, dtype)
    atoms = atoms.copy()
    atoms[unused[: len(rows)]] = rows
    return atoms, len(rows)


def worst_first(residuals: np.ndarray) -> np.ndarray:
    """Indices by falling residual, ties to the first; repeats of a residual, as copies of a signal have, come last."""
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


def _distinct(rows: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """The first `count` of unit rows that are not, to rounding, one of those before them."""
    chosen: list[int] = []
    for i, row in enumerate(rows):
        if len(chosen) == count:
            break
        squares = ((rows[chosen] - row) ** 2).sum(axis=1)
        if not (squares <= 1e2 * float(np.finfo(dtype).eps)).any():
            chosen.append(i)
    return rows[chosen]


def _worst_of(state: ChunkState, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest residuals of a chunk and their rows."""
    residuals = host(state.residuals)
    rows = worst_first(residuals)[:count]
    return residuals[rows], rows
