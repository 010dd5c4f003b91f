"""How the kernel vectors are chosen before they are learned."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rkdl._backends.arrays import cast, host
from rkdl._backends.base import backend_of
from rkdl._data.signals import NotFiniteError, Signals
from rkdl._execution.executor import Executor, open_executor
from rkdl._features.kernels import RBF, Kernel
from rkdl._features.maps import LinearMap
from rkdl._features.metric import IdentityMetric
from rkdl._features.widths import offset_of
from rkdl._learning.atom_replacement import worst_signals
from rkdl._learning.atom_updates import AtomUpdate
from rkdl._learning.initial_atoms import draw_others, draw_pivots
from rkdl._learning.linear_term import signal_moments
from rkdl._learning.reduced import Model, ReducedProblem

if TYPE_CHECKING:
    from rkdl._learning.feature_choice import KernelFeatures

METHODS = ("dictionary", "random", "kmeans", "rpcholesky")

# Kernel vectors are chosen from at most LARGEST_SAMPLE signals, or SAMPLES_PER_VECTOR per vector if that is more.
LARGEST_SAMPLE = 20_000
SAMPLES_PER_VECTOR = 100
KMEANS_ITERATIONS = 10
# k-means starts from 10 signals a vector, up to START_SAMPLE, or 4 a vector, up to LARGEST_START, if that is more.
START_SAMPLE, LARGEST_START = 2000, 8192

DICTIONARY_ITERATIONS = 10
DICTIONARY_NONZEROS = 5


def choose_kernel_vectors(
    features: KernelFeatures, executor: Executor, kernel: Kernel, rng: np.random.RandomState, atom_update: AtomUpdate
) -> np.ndarray:
    """Kernel vectors (p, m), in float64, by one of `METHODS`; with fewer signals, points between pairs are added.

    `kernel` is what "rpcholesky" approximates, and `atom_update` how "dictionary" updates.
    """
    method, count, signals = features.vectors, features.size, executor.signals
    n_signals = signals.shape[0]
    if method == "random" or (count >= n_signals and method != "dictionary"):
        return _draw_signals(signals, count, rng)
    if method == "rpcholesky":
        size = min(n_signals, max(LARGEST_SAMPLE, count))
        sample = signals.take(np.sort(rng.choice(n_signals, size, replace=False)))
        pivots = draw_pivots(kernel.diagonal(sample), lambda i: kernel(sample, sample[i : i + 1])[:, 0], count, rng)
        return sample[pivots + draw_others(size, pivots, count, rng)].astype(np.float64)
    with sampled(executor, max(LARGEST_SAMPLE, SAMPLES_PER_VECTOR * count), rng) as few:
        if method == "kmeans":
            return _cluster_centres(few, count, kernel, rng)
        return _train_dictionary(few, features, rng, atom_update)


def _draw_signals(signals: Signals, count: int, rng: np.random.RandomState) -> np.ndarray:
    """Different signals at random, in float64; all of them and points between pairs if `count` is larger."""
    n_signals = signals.shape[0]
    drawn = signals.take(rng.choice(n_signals, min(count, n_signals), replace=False)).astype(np.float64)
    n_missing = count - len(drawn)
    first = rng.randint(n_signals, size=n_missing)
    second = (first + rng.randint(1, max(n_signals, 2), size=n_missing)) % n_signals
    share = rng.uniform(0.25, 0.75, size=(n_missing, 1))
    return np.concatenate([drawn, share * drawn[first] + (1.0 - share) * drawn[second]])


def sampled(executor: Executor, size: int, rng: np.random.RandomState) -> AbstractContextManager[Executor]:
    """An executor over `size` random signals in memory, or the executor itself where there are no more.

    It depends on sizes alone, so that the choice does not depend on where signals are stored.
    """
    signals, n_signals = executor.signals, executor.signals.shape[0]
    if n_signals > size:
        chosen = signals.subset(np.sort(rng.choice(n_signals, size, replace=False)))
        return open_executor(chosen, 2 * signals.shape[1], executor.n_jobs, is_part=True)
    if signals.is_remote:
        return Executor(Signals(signals.read(0, n_signals), signals.dtype), executor.bounds, executor.n_jobs)
    return nullcontext(executor)


def _train_dictionary(
    executor: Executor, features: KernelFeatures, rng: np.random.RandomState, atom_update: AtomUpdate
) -> np.ndarray:
    """A linear dictionary of the signals, its atoms scaled to their root-mean-square norm.

    The sign of an atom does not matter to a linear representation, but it does to a kernel: each atom gets the sign
    of its inner product with the signals' mean.
    """
    starts, size = _draw_signals(executor.signals, features.size, rng), executor.signals.shape[1]
    model = Model.start(LinearMap(size), IdentityMetric(size), starts)
    atom_update = copy(atom_update)
    atom_update.coherence_max = 1.0
    problem = ReducedProblem(executor, model, features.dictionary_pursuit, atom_update)
    for _ in range(DICTIONARY_ITERATIONS):
        problem.encode()
        problem.update()
    mean, radius, _ = signal_moments(executor)
    atoms = host(problem.model.atoms)
    signs = np.where(atoms @ mean < 0.0, -1.0, 1.0)
    return atoms * (signs * radius)[:, None]


@dataclass(frozen=True)
class _Assign:
    """Sums and weights of the signals nearest to each centre, their number, and the total distance.

    With `gamma` distances are those of an RBF kernel's feature space, ``1 - exp(-gamma |x - c|^2)``, which are bounded:
    a signal far from every centre has no influence. Otherwise they are squared Euclidean ones.
    Centres and sums are relative to `shift`, if there is one.
    """

    centres: np.ndarray
    shift: np.ndarray | None = None
    gamma: float | None = None

    def __call__(self, signals: np.ndarray, state: object) -> tuple[tuple, np.ndarray]:
        if self.shift is not None:
            signals = signals - self.shift
        backend = backend_of(signals)
        scores = backend.product(signals, self.centres)
        scores *= -2
        scores += backend.squared_norms(self.centres)
        lowest, nearest = backend.xp.amin(scores, 1), scores.argmin(1)
        distances = (lowest + backend.squared_norms(signals)).clip(min=0)
        weights = backend.full((len(signals),), 1.0, signals)
        if self.gamma is not None:
            # In float64: gamma may be beyond the signals' dtype.
            with np.errstate(over="ignore"):
                weights = backend.as_like(backend.exp(cast(distances, np.float64) * -self.gamma), signals)
            distances = 1 - weights
        sums = backend.group_sums(signals, nearest, weights, len(self.centres))
        return (*sums, cast(distances, np.float64).sum()), distances


def _cluster_centres(executor: Executor, count: int, kernel: Kernel, rng: np.random.RandomState) -> np.ndarray:
    """Lloyd's iteration from a spread-out start on a sample; an empty cluster moves to the farthest signal.

    For an RBF kernel, distances are those of its feature space: a centre is then a weighted mean of its signals, as in
    the fixed-point iteration of pre-images, and heavy tails do not pull centres away from where the signals are.
    """
    gamma = kernel._gamma if isinstance(kernel, RBF) else None
    signals = executor.signals
    size = max(count, min(4 * count, LARGEST_START), min(10 * count, START_SAMPLE))
    sample = signals.take(rng.choice(signals.shape[0], min(signals.shape[0], size), replace=False))
    shift = offset_of(sample)
    if shift is not None:
        sample = sample - shift
    centres = _spread_out(sample, count, gamma, rng).astype(np.float64)
    previous = np.inf
    for _ in range(KMEANS_ITERATIONS):
        found, distances = executor.map_reduce(_Assign(centres.astype(signals.dtype), shift, gamma))
        sums, weights, counts, total = map(host, found)
        # A centre whose signals are all too far to have any weight stays where it is.
        moved = weights > np.finfo(signals.dtype).tiny * 1e6
        centres[moved] = sums[moved] / weights[moved, None]
        empty = np.flatnonzero(counts == 0)
        if empty.size:
            farthest = worst_signals(np.concatenate(executor.gather(host, distances)), empty.size)
            centres[empty[: farthest.size]] = signals.take(farthest) - (0.0 if shift is None else shift)
        if previous - total <= 1e-4 * total:
            break
        previous = float(total)
    return centres if shift is None else centres + shift


def _spread_out(sample: np.ndarray, count: int, gamma: float | None, rng: np.random.RandomState) -> np.ndarray:
    """Rows of the sample, each drawn with the probability of its distance from those before it (k-means++)."""
    # All at once: one matrix product is faster than a matrix-vector product per draw.
    products = sample @ sample.T
    squares = products.diagonal().copy()
    distances = np.ones(len(sample))
    chosen: list[int] = []
    for _ in range(count):
        total = float(distances.sum())
        if not np.isfinite(total):
            raise NotFiniteError
        if total == 0.0:
            # The rest are copies of the chosen ones.
            chosen += draw_others(len(sample), chosen, count, rng)
            break
        drawn = int(np.searchsorted(np.cumsum(distances), rng.random_sample() * total, side="right"))
        drawn = min(drawn, len(sample) - 1)
        apart = np.maximum(squares - 2 * products[drawn] + squares[drawn], 0).astype(np.float64)
        apart[drawn] = 0.0
        if gamma is not None:
            with np.errstate(over="ignore"):
                apart = -np.expm1(-gamma * apart)
        distances = apart if not chosen else np.minimum(distances, apart)
        chosen.append(drawn)
    return sample[chosen]
