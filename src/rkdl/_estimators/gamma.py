"""The kernel's gamma, from a number or from the signals."""

from __future__ import annotations

import numpy as np

from rkdl._data.signals import Signals
from rkdl._features.widths import median_gamma

SAMPLE = 1000
# Signals that a kernel is judged by.
KERNEL_SAMPLE = 100
# Rules that find gamma from the signals.
RULES = ("median", "scale")


def spread_sample(signals: Signals, size: int = SAMPLE) -> np.ndarray:
    """Signals taken evenly from first to last, so that no randomness is spent on them."""
    n_signals = signals.shape[0]
    return signals.take(np.unique(np.linspace(0, n_signals - 1, min(size, n_signals)).astype(np.intp)))


def find_gamma(gamma: float | str, signals: Signals) -> float:
    """Gamma, a number or found from the signals by a rule."""
    if not isinstance(gamma, str):
        return float(gamma)
    return scale_gamma(signals) if gamma == "scale" else median_gamma(spread_sample(signals))


def scale_gamma(signals: Signals) -> float:
    """``1 / (n_features * X.var())`` of the signals, as scikit-learn's ``gamma="scale"``.

    1.0 where all numbers are equal.
    """
    variance = signals.variance()
    if variance == 0.0:
        return 1.0
    gamma = 1.0 / (signals.shape[1] * variance)
    return min(max(gamma, float(np.finfo(np.float64).tiny)), float(np.finfo(np.float64).max))


def sample_gamma(gamma: float | str, sample: np.ndarray) -> float:
    """`gamma` as these few signals would have it."""
    if not isinstance(gamma, str):
        return float(gamma)
    return median_gamma(sample) if gamma == "median" else scale_gamma(Signals(sample, sample.dtype))
