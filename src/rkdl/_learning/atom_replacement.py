"""Replacement of atoms: unused ones by the worst-represented signals, useless ones by what residuals have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import host
from rkdl._backends.base import backend_of
from rkdl._coding.encoder import Pursuit
from rkdl._execution.executor import Executor
from rkdl._learning.chunk_tasks import ChunkState
from rkdl._utils.types import Array

# Most atoms replaced at once, besides a fifth of all, and most whose use is found out; signals per direction that may
# replace one; how often a direction is computed anew.
MOST_REPLACED, MOST_TRIED, SIGNALS_PER_DIRECTION, REFINEMENTS = 200, 400, 5, 2
# How often an atom is used by the signals that are looked at, on average, and how many these are.
USES_PER_ATOM, FEWEST_SIGNALS, MOST_SIGNALS = 45, 250, 10_000
# Atoms whose squared cosine is above this may stand for one another.
ALIKE = 0.85


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


class Sample(NamedTuple):
    """Some of the signals, as their inner products with one another and with n atoms, all of one dtype.

    ``products(W, B)`` are those of the signals (t, k), and of the atoms (n, k), with the combinations ``W'Y - B'A`` of
    signals and atoms, for weights W (t, k) and B (n, k). Without an executor, all signals are coded at once.
    """

    correlations: Array  # of signals and atoms (t, n)
    gram: Array
    squared_norms: Array
    products: Callable[[Array, Array], tuple[Array, Array]]
    weights: np.ndarray  # how much every signal counts (t,)
    executor: Executor | None = None

    @classmethod
    def of_rows(cls, rows: Array, atoms: Array, weights: np.ndarray, executor: Executor | None = None) -> Sample:
        """The sample of signals that are given as rows (t, r), with atoms (n, r)."""
        backend = backend_of(rows)

        def products(weights: Array, mixes: Array) -> tuple[Array, Array]:
            found = weights.T @ rows - mixes.T @ atoms
            return rows @ found.T, atoms @ found.T

        norms = backend.squared_norms(rows)
        return cls(backend.product(rows, atoms), backend.product(atoms, atoms), norms, products, weights, executor)

    def coded(self, pursuit: Pursuit) -> tuple[Any, Array]:
        """Codes and squared residuals; in pieces if the memory of a device does not hold all signals."""
        pursue = pursuit.on(backend_of(self.correlations))

        def task(rows: Array, norms: Array) -> tuple[tuple, ChunkState]:
            return (), ChunkState(*pursue(rows, self.gram, norms))

        work = task if self.executor is None else self.executor.worker(task)
        return work(self.correlations, self.squared_norms)[1][:2]


class Directions(NamedTuple):
    """Directions d of unit norm, the columns of ``W'Y - B'A``, and their inner products with signals and atoms."""

    weights: Array  # W (t, k)
    mixes: Array  # B (n, k)
    of_signals: Array  # (t, k)
    of_atoms: Array  # (n, k)
    gram: Array  # (k, k)


class Replacements(NamedTuple):
    """Atoms (k,) to be replaced, each by a combination of signals (k, t) minus one of the atoms (k, n)."""

    atoms: np.ndarray
    combinations: Array
    mixes: Array


def sample_size(n_atoms: int, n_nonzero: int) -> int:
    """Number of signals that are looked at."""
    return min(max(FEWEST_SIGNALS, USES_PER_ATOM * n_atoms // n_nonzero), MOST_SIGNALS)


def find_replacements(sample: Sample, pursuit: Pursuit, seed: int, least: np.ndarray | float = 0.0) -> Replacements:
    """Atoms that signals miss less than they would miss directions which their residuals share.

    The signals are coded with atoms and directions together. The use of either is by how much the error grows where its
    signals are coded without it, at least `least` for an atom; those of the least use give way. This finds duplicates
    and mixtures, which other atoms can stand for, however large their coefficients are.
    """
    n_atoms, gram, correlations = len(sample.gram), sample.gram, sample.correlations
    found = _shared_directions(sample, pursuit, seed, float(np.min(least)))
    if found is None:
        return Replacements(np.empty(0, dtype=np.intp), correlations[:0] @ correlations.T, correlations[:0])
    joined = backend_of(gram).xp.concatenate
    gram = joined([joined([gram, found.of_atoms], 1), joined([found.of_atoms.T, found.gram], 1)])
    extended = sample._replace(gram=gram, correlations=joined([correlations, found.of_signals], 1))
    uses, cosines, dropped = _uses(extended, pursuit, n_atoms), host(gram) ** 2, list[int]()
    uses[:n_atoms] = np.maximum(uses[:n_atoms], least)
    while len(dropped) < len(found.gram) and np.isfinite(uses.min()):
        dropped.append(int(uses.argmin()))
        # What stands for an atom that leaves has to stay.
        uses[cosines[dropped[-1]] > ALIKE] = uses[dropped[-1]] = np.inf
    atoms = [j for j in dropped if j < n_atoms]
    kept = [k for k in range(len(found.gram)) if n_atoms + k not in dropped][: len(atoms)]
    return Replacements(np.array(atoms[: len(kept)], dtype=np.intp), found.weights.T[kept], found.mixes.T[kept])


def _shared_directions(sample: Sample, pursuit: Pursuit, seed: int, least: float) -> Directions | None:
    """Directions that explain more of some signals than the last atom of their codes; None if none explains `least`.

    They are the main ones of groups of what codes with one atom less leave. Groups begin with signals that are drawn by
    their residuals; a signal joins the closest.
    """
    correlations, gram, norms = sample[:3]
    backend, n_atoms = backend_of(gram), len(gram)
    shorter = {"n_nonzero": pursuit.n_nonzero - 1} if pursuit.n_nonzero > 1 else {"residual_tol": np.inf}
    codes, left = sample.coded(pursuit._replace(**shorter))
    fewer, squares = codes.dense(n_atoms), host(left).astype(np.float64)
    residuals = np.minimum(host(sample.coded(pursuit)[1]), squares)
    residuals[residuals <= rounding_level(host(left).dtype, float(host(norms).mean()))] = 0.0
    explained, rows = squares - residuals, np.arange(len(squares))
    shares = sample.weights * residuals
    most = min(MOST_REPLACED, -(-n_atoms // 5))
    count = min(most, len(rows) // SIGNALS_PER_DIRECTION, int(np.count_nonzero(shares)))
    if count == 0:
        return None

    def directions(weights: np.ndarray) -> tuple[Directions, np.ndarray]:
        """Those of these weights of what is left, and their products with it (t, k)."""
        own = backend.as_like(weights, correlations)
        mixes = fewer.T @ own
        of_signals, of_atoms = sample.products(own, mixes)
        of_left = of_signals - fewer @ of_atoms
        lengths = host(own * of_left).sum(0).clip(min=0.0) ** 0.5
        scales = backend.as_like(np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0.0), correlations)
        own, of_left = own * scales, of_left * scales
        return Directions(own, mixes * scales, of_signals * scales, of_atoms * scales, own.T @ of_left), host(of_left)

    drawn = np.random.RandomState(seed).choice(len(rows), size=count, replace=False, p=shares / shares.sum())
    weights = (rows[:, None] == drawn).astype(np.float64)
    for _ in range(REFINEMENTS):
        projections = directions(weights)[1]
        closest = np.abs(projections).argmax(axis=1)
        own = projections[rows, closest]
        gains = sample.weights * (own**2 - explained).clip(min=0.0)
        weights = np.zeros_like(weights)
        weights[rows, closest] = np.where(gains > 0.0, own * sample.weights, 0.0)
    return directions(weights)[0] if np.bincount(closest, gains).max() > least else None


def _uses(sample: Sample, pursuit: Pursuit, n_atoms: int) -> np.ndarray:
    """By how much the error grows without each atom; infinite for those of the largest codes if `n_atoms` are many."""
    correlations, gram, norms = sample[:3]
    backend, uses = backend_of(gram), np.full(len(gram), np.inf)
    codes, residuals = sample.coded(pursuit)
    dense, left = host(codes.dense(len(gram))), host(residuals)
    tried = np.argsort((dense[:, :n_atoms] ** 2).sum(0), kind="stable")[:MOST_TRIED]
    gram = backend.padded_gram(backend.copy(gram))
    for j in [*tried.tolist(), *range(n_atoms, len(uses))]:
        users = np.flatnonzero(dense[:, j])
        chosen = backend.from_host(users, gram)
        own, row, column = correlations[chosen], backend.copy(gram[j]), backend.copy(gram[:, j])
        own[:, j] = gram[j] = gram[:, j] = 0.0
        users_alone = sample._replace(correlations=own, gram=gram, squared_norms=norms[chosen])
        without = host(users_alone.coded(pursuit)[1])
        gram[j], gram[:, j] = row, column
        uses[j] = max(0.0, float((without - left[users]) @ sample.weights[users]))
    return uses


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
