"""The kernel's gamma, from a number or from the signals."""

from __future__ import annotations

import numpy as np

from rkdl._kernels import median_gamma
from rkdl._signals import Signals

SAMPLE = 1000


def spread_sample(signals: Signals, size: int = SAMPLE) -> np.ndarray:
    """Signals taken evenly from first to last, so that no randomness is spent on them."""
    n_signals = signals.shape[0]
    return signals.take(np.unique(np.linspace(0, n_signals - 1, min(size, n_signals)).astype(np.intp)))


def find_gamma(gamma: float | str, signals: Signals) -> float:
    """`gamma` for the signals as they are read, that is after their scale.

    Parameters
    ----------
    gamma : float or "median"
        A number is meant for the signals as the user gave them.
    signals : Signals
        The signals.
    """
    if isinstance(gamma, str):
        if signals.median_gamma is None:
            signals.median_gamma = median_gamma(spread_sample(signals))
        return signals.median_gamma
    return float(gamma) / signals.scale / signals.scale


def raw_gamma(gamma: float | str, signals: Signals) -> float:
    """`gamma` for the signals as the user gave them."""
    if not isinstance(gamma, str):
        return float(gamma)
    found = find_gamma(gamma, signals) * signals.scale * signals.scale
    if not 0.0 < found < np.inf:
        raise ValueError(
            f"gamma='median' of these signals is {found}: their squared distances leave the range of float64; scale "
            f"the signals."
        )
    return found
