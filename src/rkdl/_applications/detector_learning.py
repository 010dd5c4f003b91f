"""The ensemble of an outlier detector: what its members learn, and from which signals.

Signals that stand apart from all of a few others are left out, or they would become atoms. The others are divided into
folds: a dictionary learns from all folds but one, and a set of reference signals is drawn from one fold, so that every
signal has anomalies by members that have not learned from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from rkdl._applications.anomaly_scores import AnomalyTask, Ensemble, Scaling, combine, nearest_anomalies
from rkdl._applications.thresholds import robust_location, upper_fence
from rkdl._backends.arrays import host
from rkdl._backends.devices import placed
from rkdl._coding.dictionary import FittedDictionary
from rkdl._coding.encoder import Pursuit
from rkdl._data.open import open_signals
from rkdl._data.signals import Signals
from rkdl._execution.blas import resolve_threads
from rkdl._execution.config import config_context
from rkdl._execution.executor import side_by_side
from rkdl._features.kernels import RBF
from rkdl._features.widths import find_gamma
from rkdl._learning.atom_updates import GramUpdate
from rkdl._learning.feature_choice import KernelFeatures
from rkdl._learning.learn import Report, learn
from rkdl._learning.specification import Specification
from rkdl._utils.types import Device
from rkdl._utils.warnings import quiet

N_FOLDS = 5
# Samples that say which signals to leave out, and how many signals each has.
N_FIRST, FIRST_SIZE = 64, 32
# Features from which on distances are compared themselves, not a power of them.
ENOUGH_FEATURES = 6
# Signals, as a multiple of those that a dictionary learns from, that are drawn at random from more.
POOL = 5
Task = tuple[float, int, int, int, np.ndarray]  # gamma, atoms, nonzeros, seed, and the signals to learn from


class Detection(NamedTuple):
    """A learned ensemble, and the scores of the signals, or of a random part of them, that it learned from."""

    dictionaries: list[FittedDictionary]
    ensemble: Ensemble
    locations: np.ndarray  # (n_members + n_sets, 4) of each member's anomalies, as `combine` takes them
    scores: np.ndarray
    unseen_scores: np.ndarray  # by the members that have not learned from a signal; NaN if not every group has one
    is_kept: np.ndarray  # whether a signal does not stand apart


@dataclass(frozen=True)
class DetectorLearning:
    """How an ensemble is learned; `widths` are factors of gamma, numbers of atoms and of nonzeros."""

    widths: list[tuple[float, int, int]]
    gamma: float | str
    n_members: int
    n_kernel_vectors: int
    n_references: int
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
        gamma = find_gamma(self.gamma, Signals(rows, rows.dtype))
        folds, order = rng.permutation(count) % min(N_FOLDS, count), rng.permutation(count)
        is_kept = (
            np.ones(count, dtype=bool)
            if self.novelty
            else ~_stand_apart(rows, gamma, rng, resolve_threads(self.n_jobs))
        )
        own, others = _divided(order[is_kept[order]], folds)
        fold_of = np.arange(self.n_members) // len(self.widths) % len(own)
        tasks = self._tasks(gamma, [others[fold] for fold in fold_of], rng)
        dictionaries = self._dictionaries(rows, tasks, signals.device, bar)
        references = np.stack([rows[indices[: self.n_references]] for indices in own])
        ensemble = Ensemble.of(scaling, dictionaries, references)
        task = AnomalyTask(placed(ensemble, signals.device), signals.dtype)
        raw = host(task.of_all(signals, self.n_jobs))
        return Detection(dictionaries, ensemble, *self._compared(raw, folds, fold_of, signals.dtype), is_kept)

    def _compared(
        self, raw: np.ndarray, folds: np.ndarray, fold_of: np.ndarray, dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Locations of anomalies (n, n_members + n_sets), scores, and scores by members that are new to a signal."""
        n_sets, n_widths = raw.shape[1] - self.n_members, len(self.widths)
        groups = np.r_[np.arange(self.n_members) % n_widths, np.full(n_sets, n_widths)]
        is_new = folds[:, None] == np.r_[fold_of, np.arange(n_sets)]
        is_new[:, self.n_members :] ^= True
        # A reference signal is at distance 0 from itself.
        counts = np.isfinite(raw) & (is_new | (groups < n_widths))
        found = [robust_location(values[known]) for values, known in zip(raw.T, counts.T, strict=True)]
        locations = np.c_[found, _weights(groups)]
        unseen = np.full(len(raw), np.nan)
        for fold in range(n_sets):
            rows = np.flatnonzero(folds == fold)
            columns = np.flatnonzero(is_new[rows[0]])
            if len(set(groups[columns])) == n_widths + 1:
                part = np.c_[locations[columns, :3], _weights(groups[columns])]
                unseen[rows] = combine(raw[np.ix_(rows, columns)], part, dtype)
        return locations, combine(raw, locations, dtype), unseen

    def _tasks(self, gamma: float, samples: list[np.ndarray], rng: np.random.RandomState) -> list[Task]:
        seeds = rng.randint(np.iinfo(np.int32).max, size=len(samples))
        return [
            (gamma * factor, n_atoms, n_nonzero, seed, sample)
            for (factor, n_atoms, n_nonzero), seed, sample in zip(cycle(self.widths), seeds, samples, strict=False)
        ]

    def _dictionaries(self, rows: np.ndarray, tasks: list[Task], device: Device, bar: Any) -> list[FittedDictionary]:
        """The dictionaries, each from its own seed, so that the result does not depend on threads."""

        def learn_one(task: Task) -> FittedDictionary:
            # The user's chunks are those of all signals, not of a sample.
            with config_context(chunk_rows=None):
                found = self._dictionary(rows, device, task)
            if bar is not None:
                bar.update()
            return found

        # A device works on one dictionary after another.
        return side_by_side(learn_one, tasks, resolve_threads(self.n_jobs) if device is None else 1)

    def _dictionary(self, rows: np.ndarray, device: Device, task: Task) -> FittedDictionary:
        gamma, n_atoms, n_nonzero, seed, indices = task
        rng = np.random.RandomState(seed)
        sample = rows[rng.choice(indices, min(len(indices), self.max_samples), replace=False)]
        n_vectors = min(self.n_kernel_vectors, len(sample))
        count = min(n_atoms, n_vectors)
        pursuit = Pursuit(min(n_nonzero, count))
        # Drawn uniformly, and kept: atoms that represent what others do not would be those of the outliers.
        features = KernelFeatures(RBF(gamma), gamma, 0, 0.0, "random", pursuit, n_vectors)
        what = Specification(count, features, pursuit, GramUpdate(), "data", max_iter=self.max_iter, tol=0.0)
        signals = open_signals(placed(sample, device), caller=self.caller)
        with quiet():
            learned = learn(what, signals, rng, Report(self.caller), n_jobs=1)
        if learned.is_interrupted:
            raise KeyboardInterrupt
        return learned.dictionary


def _stand_apart(rows: np.ndarray, gamma: float, rng: np.random.RandomState, threads: int) -> np.ndarray:
    """Whether each signal is far from all others in small random samples."""
    size = max(1, min(FIRST_SIZE, len(rows) // 5))
    drawn = np.stack([rng.permutation(len(rows))[:size] for _ in range(N_FIRST)])
    # A few samples at a time, for memory.
    parts = np.array_split(drawn, N_FIRST // 8)
    raw = np.concatenate(side_by_side(lambda part: nearest_anomalies(rows, rows[part], gamma), parts, threads), axis=1)
    is_other = np.ones(raw.shape, dtype=bool)
    is_other[drawn, np.arange(N_FIRST)[:, None]] = False
    unit = robust_location(raw[is_other])[0]
    # In few dimensions, distances in sparse regions are many times those in dense ones.
    power = min(1.0, rows.shape[1] / ENOUGH_FEATURES) / 2.0
    distances = ((raw / unit) ** power * is_other).sum(axis=1) / np.maximum(is_other.sum(axis=1), 1)
    return distances > upper_fence(distances)


def _divided(indices: np.ndarray, folds: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The indices in each fold, and those outside it; of equal numbers, so that what they give can be stacked.

    All of them where a fold has none.
    """
    parts = [(indices[folds[indices] == fold], indices[folds[indices] != fold]) for fold in range(folds.max() + 1)]
    own, others = ([part[: min(map(len, both))] for part in both] for both in zip(*parts, strict=True))
    is_empty = not len(own[0]) or not len(others[0])
    return ([indices] * len(own), [indices] * len(own)) if is_empty else (own, others)


def _weights(groups: np.ndarray) -> np.ndarray:
    """Weights of columns, so that each of the groups that they are of counts the same."""
    found, places, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return 1.0 / (len(found) * counts[places])
