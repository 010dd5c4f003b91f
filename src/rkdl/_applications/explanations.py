"""Why a signal is an outlier: which of its features would make it less abnormal, were it as it is represented."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import pairwise_distances_argmin

from rkdl._applications.anomaly_scores import AnomalyTask, Ensemble, Scaling
from rkdl._data.signals import PIECE_SIZE, Signals

# Scaled features whose squares do not overflow.
FARTHEST = 1e100


def explanations(ensemble: Ensemble, locations: np.ndarray, signals: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """Increase of the score (n, m) of signals (n, m) if a feature is replaced by that of the nearest kernel vectors.

    These are the pre-images of codes with one nonzero, averaged over the members. A dictionary of several atoms
    represents an outlier of few features almost as it is.
    """
    rows, width = ensemble.scaling(signals), signals.shape[1]
    within = rows.clip(-FARTHEST, FARTHEST)
    nearest = [vectors[pairwise_distances_argmin(within, vectors)] for vectors in ensemble.kernel_vectors]
    expected = np.mean(nearest, axis=0)
    unscaled = ensemble._replace(scaling=Scaling(np.zeros(width), np.ones(width)))

    def scores(trials: np.ndarray) -> np.ndarray:
        return np.asarray(AnomalyTask(unscaled, rows.dtype, locations).of_all(Signals(trials, rows.dtype), n_jobs))

    gains, step = np.empty(rows.size), max(1, PIECE_SIZE // width)
    for start in range(0, rows.size, step):
        row, feature = np.divmod(np.arange(start, min(start + step, rows.size)), width)
        trials = rows[row]
        trials[np.arange(len(row)), feature] = expected[row, feature]
        gains[start : start + step] = scores(trials)
    return gains.reshape(rows.shape) - scores(rows)[:, None]
