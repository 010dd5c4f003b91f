"""The ensemble of an outlier detector: what its members learn, and from which signals.

Signals that stand apart from all of a few others are left out, or they would become atoms. The others are divided into
folds: the kernel vectors of a member are drawn from one fold, and its dictionary is learned from all but the next, so
that every signal has anomalies by members that have not learned from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rkdl._applications.anomaly_scores import AnomalyTask, Ensemble, Scaling, combine
from rkdl._applications.thresholds import robust_location, upper_fence
from rkdl._backends.arrays import host, squared_norms
from rkdl._backends.devices import placed
from rkdl._coding.encoder import Pursuit
from rkdl._data.open import open_signals
from rkdl._data.signals import Signals
from rkdl._execution.blas import resolve_threads
from rkdl._execution.config import config_context
from rkdl._execution.executor import side_by_side
from rkdl._features.kernels import RBF
from rkdl._features.widths import find_gamma, spread_indices
from rkdl._learning.atom_updates import GramUpdate
from rkdl._learning.feature_choice import KernelFeatures
from rkdl._learning.learn import Report, learn
from rkdl._learning.specification import Specification
from rkdl._utils.types import Device
from rkdl._utils.warnings import quiet

# Samples that say which signals to leave out, and how many signals each has.
N_FIRST, FIRST_SIZE = 64, 32
# Features from which on distances are compared themselves, not a power of them.
ENOUGH_FEATURES = 6
# Signals from which gamma is found; squared norms below this share of the largest are rounding.
GAMMA_SAMPLE, DEPENDENT = 300, 1e-8
# Signals, as a multiple of those that a dictionary learns from, that are drawn at random from more.
POOL = 5


class Detection(NamedTuple):
    """A learned ensemble, and the scores of the signals, or of a random part of them, that it learned from."""

    ensemble: Ensemble
    locations: np.ndarray  # (n_members, 2 or 3, 3), as `combine` takes them
    scores: np.ndarray
    unseen_scores: np.ndarray  # by the members that have not learned from a signal; NaN if not every group has one
    is_kept: np.ndarray  # whether a signal does not stand apart


@dataclass(frozen=True)
class DetectorLearning:
    """How an ensemble is learned; the parameters of `KDLOutlierDetector`."""

    n_components: int
    n_nonzero_coefs: int
    gamma: float | str
    gamma_factor: float
    n_kernel_vectors: int
    n_members: int
    max_samples: int
    max_iter: int
    standardize: bool
    novelty: bool
    n_jobs: int | None
    caller: str

    def learn(self, signals: Signals, rng: np.random.RandomState, bar: Any) -> Detection:
        """Learn the ensemble from signals, at most `POOL` times as many as a dictionary learns from."""
        count = min(signals.shape[0], POOL * self.max_samples)
        if count < signals.shape[0]:
            signals = signals.subset(np.sort(rng.choice(signals.shape[0], count, replace=False)))
        rows = signals.take(np.arange(count)).astype(np.float64)
        scaling = Scaling.of(rows, is_scaled=self.standardize)
        rows = scaling(rows)
        sample = rows[spread_indices(count, GAMMA_SAMPLE)] if self.gamma == "median" else rows
        gamma = find_gamma(self.gamma, Signals(sample, rows.dtype))
        n_folds = min(max(2, self.n_members), count)
        folds, order = rng.permutation(count) % n_folds, rng.permutation(count)
        threads = resolve_threads(self.n_jobs)
        is_kept = np.ones(count, dtype=bool) if self.novelty else ~_stand_apart(rows, gamma, rng, threads)
        own, others = _divided(order[is_kept[order]], folds)
        members, seeds = np.arange(self.n_members), rng.randint(np.iinfo(np.int32).max, size=self.n_members)

        def learn_one(member: int) -> tuple[np.ndarray, np.ndarray]:
            # The vectors are of one fold, and the next is left out.
            indices, seen = own[member % n_folds][: self.n_kernel_vectors], others[(member + 1) % n_folds]
            atoms = self._atoms(rows[indices], rows[seen], gamma * self.gamma_factor, seeds[member], signals.device)
            if bar is not None:
                bar.update()
            return rows[indices], atoms

        # Each from its own seed, so that the result does not depend on threads; a device works on one after another.
        learned = side_by_side(learn_one, range(self.n_members), threads if signals.device is None else 1)
        vectors, atoms = map(np.stack, zip(*learned, strict=True))
        ensemble = Ensemble(scaling, gamma * self.gamma_factor, vectors, atoms, not self.novelty)
        raw = host(AnomalyTask(placed(ensemble, signals.device), signals.dtype).of_all(signals, self.n_jobs))
        # By distances, a signal is new to the vectors of other folds.
        is_new = np.stack([folds[:, None] == (members + 1) % n_folds, folds[:, None] != members % n_folds], axis=2)
        return Detection(ensemble, *_compared(raw, is_new, signals.dtype), is_kept)

    def _atoms(self, vectors: np.ndarray, signals: np.ndarray, gamma: float, seed: int, device: Device) -> np.ndarray:
        """Orthonormal atoms (n, p) with the span of a dictionary learned from signals, and zeros if these are fewer."""
        rng = np.random.RandomState(seed)
        sample = signals[rng.choice(len(signals), min(len(signals), self.max_samples), replace=False)]
        count = min(self.n_components, len(vectors))
        pursuit = Pursuit(min(self.n_nonzero_coefs, count))
        # Drawn uniformly, and kept: atoms that represent what others do not would be those of the outliers.
        features = KernelFeatures(RBF(gamma), gamma, 0, 0.0, vectors, pursuit, len(vectors))
        what = Specification(count, features, pursuit, GramUpdate(), "data", max_iter=self.max_iter, tol=0.0)
        source = open_signals(placed(sample, device), caller=self.caller)
        # The user's chunks are those of all signals, not of a sample.
        with quiet(), config_context(chunk_rows=None):
            learned = learn(what, source, rng, Report(self.caller), n_jobs=1)
        if learned.is_interrupted:
            raise KeyboardInterrupt
        squares, directions = np.linalg.eigh(host(learned.dictionary.gram))
        squares, directions = squares[::-1], directions[:, ::-1]
        rank = int(np.count_nonzero(squares > DEPENDENT * squares[0]))
        atoms = (directions[:, :rank] / np.sqrt(squares[:rank])).T @ learned.dictionary.atoms
        return np.pad(atoms, [(0, count - rank), (0, 0)])


def _compared(raw: np.ndarray, is_new: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Locations of anomalies (n, k g), scores, and scores by the dictionaries and vectors that are new to a signal.

    `is_new` (n, k, 2) says which.
    """
    n_members = is_new.shape[1]
    columns = raw.reshape(len(raw), n_members, -1)
    is_new = is_new[:, :, [0] + [1] * (columns.shape[2] - 1)]
    # A kernel vector is at distance 0 from itself.
    counts = np.isfinite(columns) & (is_new | (np.arange(columns.shape[2]) == 0))
    locations = np.array(
        [[robust_location(columns[counts[:, k, g], k, g]) for g in range(columns.shape[2])] for k in range(n_members)]
    )
    with np.errstate(invalid="ignore"):
        weights = is_new / is_new.sum(axis=1, keepdims=True)
    return locations, combine(raw, locations, dtype), combine(raw, locations, dtype, weights)


def _stand_apart(rows: np.ndarray, gamma: float, rng: np.random.RandomState, threads: int) -> np.ndarray:
    """Whether each signal is far from all others in small random samples."""
    size = max(1, min(FIRST_SIZE, len(rows) // 5))
    drawn = np.stack([rng.permutation(len(rows))[:size] for _ in range(N_FIRST)])
    # A few samples at a time, for memory.
    parts = np.array_split(drawn, N_FIRST // 8)
    raw = np.concatenate(side_by_side(lambda part: _nearest(rows, rows[part]), parts, threads))
    raw *= 2.0 * gamma
    is_other = np.ones(raw.shape, dtype=bool)
    is_other[np.arange(N_FIRST)[:, None], drawn] = False
    unit = robust_location(raw[is_other])[0]
    # In few dimensions, distances in sparse regions are many times those in dense ones.
    power = min(1.0, rows.shape[1] / ENOUGH_FEATURES) / 2.0
    distances = ((raw / unit) ** power * is_other).sum(axis=0) / np.maximum(is_other.sum(axis=0), 1)
    return distances > upper_fence(distances)


def _nearest(rows: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Squared distances (k, n) of rows (n, m) to the nearest of each sample (k, r, m)."""
    others = samples.reshape(-1, rows.shape[1])
    distances = others @ (-2.0 * rows.T)
    distances += squared_norms(others)[:, None]
    nearest = distances.reshape(*samples.shape[:2], len(rows)).min(axis=1)
    return (nearest + squared_norms(rows)).clip(min=0.0)


def _divided(indices: np.ndarray, folds: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The indices in each fold, and those outside it; of equal numbers, so that what they give can be stacked.

    All of them where a fold has none.
    """
    parts = [(indices[folds[indices] == fold], indices[folds[indices] != fold]) for fold in range(folds.max() + 1)]
    own, others = ([part[: min(map(len, both))] for part in both] for both in zip(*parts, strict=True))
    is_empty = not len(own[0]) or not len(others[0])
    return ([indices] * len(own), [indices] * len(own)) if is_empty else (own, others)
