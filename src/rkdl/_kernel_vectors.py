"""How the kernel vectors are chosen before they are learned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from rkdl._arrays import host
from rkdl._kernels import Kernel, offset_of, squared_norms
from rkdl._learning import ReducedProblem, worst_signals
from rkdl._maps import LinearMap
from rkdl._metric import IdentityMetric
from rkdl._products import multiply
from rkdl._signals import Signals, Walker
from rkdl._statistics import Pursuit

METHODS = ("dictionary", "random", "kmeans", "rpcholesky")

# Kernel vectors are chosen from no more signals than this, or than so many for each vector.
LARGEST_SAMPLE = 20_000
SAMPLES_A_VECTOR = 100
KMEANS_ITERATIONS = 20

DICTIONARY_ITERATIONS = 10
DICTIONARY_NONZEROS = 5


def choose_kernel_vectors(
    method: str,
    walker: Walker,
    count: int,
    kernel: Kernel,
    rng: np.random.RandomState,
    *,
    pursuit: Pursuit,
    refit: bool,
) -> np.ndarray:
    """Kernel vectors (count, m), in float64.

    Parameters
    ----------
    method : {"dictionary", "random", "kmeans", "rpcholesky"}
        How.
    walker : Walker
        Walks the signals.
    count : int
        How many, at most the number of signals.
    kernel : Kernel
        The kernel that "rpcholesky" is to approximate.
    rng : RandomState
        Randomness.
    pursuit, refit : Pursuit, bool
        How "dictionary" codes and updates.
    """
    signals = walker.signals
    n_signals = signals.shape[0]
    if method == "random":
        return signals.take(rng.choice(n_signals, count, replace=False)).astype(np.float64)
    if method == "rpcholesky":
        size = min(n_signals, max(LARGEST_SAMPLE, count))
        sample = signals.take(np.sort(rng.choice(n_signals, size, replace=False)))
        pivots: list[int] = []
        try:
            _draw_pivots(sample, count, kernel, rng, pivots)
        except KeyboardInterrupt:
            walker.is_interrupted = True
            pivots += _others(sample, pivots, count, rng)
        return sample[pivots].astype(np.float64)
    with _sampled(walker, max(LARGEST_SAMPLE, SAMPLES_A_VECTOR * count), rng) as few:
        if method == "kmeans":
            vectors = _cluster_centres(few, count, rng)
        else:
            vectors = train_dictionary(few, count, rng, pursuit=pursuit, refit=refit)
    walker.is_interrupted |= few.is_interrupted
    return vectors


@contextmanager
def _sampled(walker: Walker, size: int, rng: np.random.RandomState) -> Iterator[Walker]:
    """A walker over `size` random signals in memory, or the walker itself where there are no more.

    A rule of sizes alone: wherever the signals lie, the same ones are chosen.
    """
    signals = walker.signals
    if signals.shape[0] <= size and not signals.is_remote:
        yield walker
        return
    if signals.shape[0] <= size:
        with Walker(Signals(signals.read(0, signals.shape[0]), signals.dtype), walker.bounds, walker.n_jobs) as few:
            yield few
        return
    with walker.over(signals.subset(np.sort(rng.choice(signals.shape[0], size, replace=False)))) as few:
        yield few


def train_dictionary(
    walker: Walker, count: int, rng: np.random.RandomState, *, pursuit: Pursuit, refit: bool
) -> np.ndarray:
    """A linear dictionary of the signals, its atoms as long as the signals are in the root mean square.

    An atom's sign means nothing to a linear representation and much to a kernel: the one on the side of the
    signals' mean is taken.
    """
    signals = walker.signals
    starts = signals.take(rng.choice(signals.shape[0], count, replace=False)).astype(np.float64)
    size = signals.shape[1]
    problem = ReducedProblem(walker, LinearMap(size), IdentityMetric(size), starts, pursuit, refit=refit)
    try:
        for _ in range(DICTIONARY_ITERATIONS):
            problem.iterate()
    except KeyboardInterrupt:
        walker.is_interrupted = True
    mean, radius = signal_moments(walker)
    atoms = host(problem.atoms)
    signs = np.where(atoms @ mean < 0.0, -1.0, 1.0)
    return atoms * (signs * radius)[:, None]


def signal_moments(walker: Walker) -> tuple[np.ndarray, float]:
    """The signals' mean (m,) and the root mean square of their norms."""
    (total, squares), _ = walker.run(_moments)
    count = walker.signals.shape[0]
    return host(total) / count, float(np.sqrt(float(squares) / count))


def _moments(signals: np.ndarray, kept: object) -> tuple[tuple, None]:
    flat = signals.ravel()
    return (signals.sum(axis=0, dtype=np.float64), float(np.dot(flat, flat))), None


@dataclass(frozen=True)
class _Assign:
    """Sums and counts of the signals nearest to each centre, and the total squared distance.

    From `shift`, where there is one: centres and sums are those of the signals less it.
    """

    centres: np.ndarray
    shift: np.ndarray | None = None

    def __call__(self, signals: np.ndarray, kept: object) -> tuple[tuple, np.ndarray]:
        if self.shift is not None:
            signals = signals - self.shift
        squares = squared_norms(self.centres)
        scores = multiply(signals, self.centres)
        scores *= -2
        scores += squares
        nearest = scores.argmin(axis=1)
        distances = scores[np.arange(len(signals)), nearest] + squared_norms(signals)
        ones = np.ones(len(signals), dtype=signals.dtype)
        members = sparse.csr_array((ones, (nearest, np.arange(len(signals)))), shape=(len(self.centres), len(signals)))
        counts = np.bincount(nearest, minlength=len(self.centres))
        return (members @ signals, counts, distances.sum(dtype=np.float64)), distances


def _cluster_centres(walker: Walker, count: int, rng: np.random.RandomState) -> np.ndarray:
    """Lloyd's iteration from a spread-out start on a sample; an empty cluster moves to the farthest signal."""
    # Slow to import, and seldom needed.
    from sklearn.cluster import kmeans_plusplus

    signals = walker.signals
    sample = signals.take(rng.choice(signals.shape[0], min(signals.shape[0], 20 * count), replace=False))
    shift = offset_of(sample)
    if shift is not None:
        sample = sample - shift
    centres = kmeans_plusplus(sample, count, random_state=rng)[0].astype(np.float64)
    previous = np.inf
    try:
        for _ in range(KMEANS_ITERATIONS):
            found, distances = walker.run(_Assign(centres.astype(signals.dtype), shift))
            sums, counts, total = map(host, found)
            filled = counts > 0
            centres[filled] = sums[filled] / counts[filled, None]
            empty = np.flatnonzero(~filled)
            if empty.size:
                farthest = worst_signals(np.concatenate(walker.fetch(host, distances)), empty.size)
                centres[empty[: farthest.size]] = signals.take(farthest) - (0.0 if shift is None else shift)
            if previous - total <= 1e-4 * total:
                break
            previous = float(total)
    except KeyboardInterrupt:
        walker.is_interrupted = True
    return centres if shift is None else centres + shift


def _draw_pivots(sample: np.ndarray, count: int, kernel: Kernel, rng: np.random.RandomState, pivots: list[int]) -> None:
    """Randomly pivoted Cholesky: each pivot is drawn with the probability of what the earlier ones left of it."""
    residuals = kernel.diagonal(sample).astype(np.float64)
    negligible = float(np.finfo(sample.dtype).eps) * float(residuals.max(initial=0.0))
    factor = np.zeros((count, len(sample)))
    for step in range(count):
        residuals[residuals < negligible] = 0.0
        total = float(residuals.sum())
        if total <= 0.0:
            # The rest adds nothing to the span: any other signals will do.
            pivots += _others(sample, pivots, count, rng)
            break
        pivot = int(rng.choice(len(sample), p=residuals / total))
        column = kernel(sample, sample[pivot : pivot + 1])[:, 0].astype(np.float64)
        column -= factor[:step, pivot] @ factor[:step]
        column /= np.sqrt(column[pivot]) if column[pivot] > 0.0 else 1.0
        factor[step] = column
        residuals -= column * column
        residuals[pivot] = 0.0
        pivots.append(pivot)


def _others(sample: np.ndarray, pivots: list[int], count: int, rng: np.random.RandomState) -> list[int]:
    """As many signals besides the pivots as are missing, at random."""
    rest = np.setdiff1d(np.arange(len(sample)), pivots)
    return [int(t) for t in rng.choice(rest, count - len(pivots), replace=False)]
