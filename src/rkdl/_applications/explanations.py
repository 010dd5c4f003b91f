"""Why a signal is an outlier: which of its features would make it less abnormal, were it as it is represented."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rkdl._applications.anomaly_scores import AnomalyTask, Ensemble, Scaling
from rkdl._coding.dictionary import FittedDictionary
from rkdl._data.signals import PIECE_SIZE, Signals


def explanations(
    ensemble: Ensemble,
    locations: np.ndarray,
    dictionaries: Sequence[FittedDictionary],
    signals: np.ndarray,
    n_jobs: int | None,
) -> np.ndarray:
    """Increase of the score (n, m) of signals (n, m) if a feature is replaced by that of the mean pre-image."""
    rows, width = ensemble.scaling(signals), signals.shape[1]
    expected = np.mean([own.denoise(Signals(rows, rows.dtype), n_jobs=n_jobs) for own in dictionaries], axis=0)
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
