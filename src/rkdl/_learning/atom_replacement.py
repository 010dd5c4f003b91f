"""Replacement of atoms: unused ones by the worst-represented signals, useless ones by what residuals have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from rkdl._backends.arrays import host
from rkdl._execution.executor import Executor
from rkdl._learning.chunk_tasks import ChunkState
from rkdl._learning.initial_atoms import draw_pivots

# Most atoms replaced at once, besides a fifth of all; residuals per direction that may replace one; fewest residuals.
MOST_REPLACED, RESIDUALS_PER_DIRECTION, FEWEST_RESIDUALS = 200, 5, 250
# A direction must explain this many times as much as the atom that it replaces: codes adapt to the other atoms.
MARGIN = 2.0


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


def distinct_rows(rows: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """The first `count` of rows (k, r) with different directions, scaled to unit norm."""
    squares = np.einsum("ij,ij->i", rows, rows)
    chosen = rows[first_distinct(squares, lambda i: rows @ rows[i], count, dtype)]
    return chosen / np.linalg.norm(chosen, axis=1)[:, None]


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


class ResidualProducts(Protocol):
    """Inner products of the residuals of t signals, a matrix G (t, t)."""

    def diagonal(self) -> np.ndarray:
        """Squared norms of the residuals."""

    def column(self, i: int) -> np.ndarray:
        """Column i of G."""

    def times(self, combinations: np.ndarray) -> np.ndarray:
        """G times combinations (t, k)."""


class ProductsOfRows(NamedTuple):
    """Inner products of residuals that are given as rows (t, r)."""

    rows: np.ndarray

    def diagonal(self) -> np.ndarray:
        return np.einsum("ij,ij->i", self.rows, self.rows)

    def column(self, i: int) -> np.ndarray:
        return self.rows @ self.rows[i]

    def times(self, combinations: np.ndarray) -> np.ndarray:
        return self.rows @ (self.rows.T @ combinations)


class GivenProducts(NamedTuple):
    """Inner products of residuals that are given as a matrix."""

    matrix: np.ndarray

    def diagonal(self) -> np.ndarray:
        return self.matrix.diagonal().clip(min=0.0)

    def column(self, i: int) -> np.ndarray:
        return self.matrix[i]

    def times(self, combinations: np.ndarray) -> np.ndarray:
        return self.matrix @ combinations


class Replacements(NamedTuple):
    """Atoms (k,) to be replaced, each by a combination (k, t) of residuals that has unit norm."""

    atoms: np.ndarray
    combinations: np.ndarray


def sample_size(n_atoms: int) -> int:
    """Number of signals whose residuals are looked at."""
    return max(FEWEST_RESIDUALS, RESIDUALS_PER_DIRECTION * _most_replaced(n_atoms))


def _most_replaced(n_atoms: int) -> int:
    return min(MOST_REPLACED, -(-n_atoms // 5))


def find_replacements(residuals: ResidualProducts, code_gram: np.ndarray, cosines: np.ndarray) -> Replacements:
    """Atoms that explain less of some signals than directions which the residuals of these signals share.

    A direction is the main one of the residuals that are closest to it, up to the sign, among a few that are drawn by
    randomly pivoted Cholesky. What an atom explains that no other one could is about ``S_jj (1 - c^2)``, where
    ``S = Z'Z`` is of the codes of as many signals, and c the largest of the atom's `cosines` with others: little for
    duplicates, mixtures and atoms that are hardly used.
    """
    squares = residuals.diagonal()
    count = min(_most_replaced(len(cosines)), len(squares) // RESIDUALS_PER_DIRECTION)
    pivots = draw_pivots(squares, residuals.column, count, np.random.RandomState(0))
    if not pivots:
        return Replacements(np.empty(0, dtype=np.intp), np.empty((0, len(squares))))
    projections = np.stack([residuals.column(i) / np.sqrt(squares[i]) for i in pivots], axis=1)
    # Every residual counts for the direction that it is closest to.
    rows, closest = np.arange(len(squares)), np.abs(projections).argmax(axis=1)
    combinations = np.zeros_like(projections)
    combinations[rows, closest] = projections[rows, closest]
    products = residuals.times(combinations)
    norms = np.einsum("tk,tk->k", combinations, products).clip(min=0.0) ** 0.5
    norms[norms == 0.0] = np.inf
    gains = np.bincount(closest, (products[rows, closest] / norms[closest]) ** 2, len(pivots))
    best = np.argsort(-gains, kind="stable")
    worst = _least_useful(code_gram.diagonal(), cosines, gains[best])
    chosen = best[: len(worst)]
    return Replacements(worst, (combinations[:, chosen] / norms[chosen]).T)


def _least_useful(energies: np.ndarray, cosines: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """Atoms of the least use, one after another as long as the next one's use is below the next gain.

    Of several atoms that are alike one stays, as each is compared only with atoms that are left.
    """
    others, chosen = cosines**2, []
    np.fill_diagonal(others, 0.0)
    largest = others.max(axis=1)
    uses = energies * (1.0 - largest).clip(min=0.0)
    for gain in gains:
        j = int(uses.argmin())
        if not uses[j] < gain:
            break
        chosen.append(j)
        changed = np.flatnonzero(others[:, j] == largest)
        others[:, j] = 0.0
        largest[changed] = others[changed].max(axis=1)
        uses[changed] = energies[changed] * (1.0 - largest[changed]).clip(min=0.0)
        uses[chosen] = np.inf
    return np.array(chosen, dtype=np.intp)


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
