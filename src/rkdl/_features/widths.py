"""Location and scale of signals, and gamma from them."""

from __future__ import annotations

import numpy as np

from rkdl._backends.arrays import squared_norms
from rkdl._data.signals import Signals

# Squared distances lose digits to cancellation when the offset outweighs the spread this many times.
_OFFSET_RATIO = 100.0

SAMPLE = 1000
# Signals in the sample on which a kernel is checked.
KERNEL_SAMPLE = 100
# Rules that find gamma from the signals.
RULES = ("median", "scale")


def spread_sample(signals: Signals, size: int = SAMPLE) -> np.ndarray:
    """Signals taken evenly from first to last, so that no random numbers are used."""
    return signals.take(spread_indices(signals.shape[0], size))


def spread_evenly(signals: Signals, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of at most `size` signals, and factors (k, 1) for what they leave, so that they stand for all.

    All signals, times the roots of their weights; or as many of them as `size`, the more often the more they weigh.
    """
    n_signals, weights = signals.shape[0], signals.weights
    if n_signals > size:
        shares = (np.arange(size) + 0.5) / size
        if weights is None:
            return (shares * n_signals).astype(np.intp), np.ones((size, 1))
        places = np.searchsorted(np.cumsum(weights), shares * signals.total, side="right")
        return places.clip(max=n_signals - 1), np.ones((size, 1))
    relative = np.ones(n_signals) if weights is None else weights * (n_signals / signals.total)
    return np.arange(n_signals), np.sqrt(relative)[:, None]


def spread_indices(n_signals: int, size: int) -> np.ndarray:
    """At most `size` indices spread evenly over all signals."""
    return np.linspace(0, n_signals - 1, min(size, n_signals)).astype(np.intp)


def find_gamma(gamma: float | str, signals: Signals) -> float:
    """Gamma, a number or found from the signals by a rule.

    "scale" is scikit-learn's, ``1 / (n_features * X.var())``, and 1.0 where all numbers are equal.
    """
    if not isinstance(gamma, str):
        return float(gamma)
    if gamma == "median":
        return median_gamma(spread_sample(signals))
    variance = signals.variance()
    return 1.0 if variance == 0.0 else _in_range(1.0 / (signals.shape[1] * variance))


def _in_range(gamma: float) -> float:
    limits = np.finfo(np.float64)
    return min(max(gamma, float(limits.tiny)), float(limits.max))


def median_gamma(sample: np.ndarray) -> float:
    """One over the median squared distance between different signals of a sample; 1.0 where all are equal."""
    rows = sample.astype(np.float64)
    rows -= centre_of(rows)
    largest = np.abs(rows).max(initial=0.0)
    if largest == 0.0:
        return 1.0
    rows /= largest
    norms = squared_norms(rows)
    sizes = norms[:, None] + norms
    squares = sizes - 2.0 * (rows @ rows.T)
    pairs = ~np.tri(len(rows), dtype=bool)
    squares, sizes = squares[pairs], sizes[pairs]
    # Cancellation leaves less than this of a zero distance.
    squares = squares[squares > 1e-12 * sizes]
    if squares.size == 0:
        return 1.0
    return _in_range(1.0 / float(np.median(squares)) / float(largest) / float(largest))


def offset_of(sample: np.ndarray) -> np.ndarray | None:
    """The centre (m,) of signals most of which are so far from zero that distances lose digits; None for others."""
    centre = centre_of(sample)
    with np.errstate(over="ignore"):
        spread = float(np.quantile(squared_norms(sample - centre), 0.9))
    return centre.astype(sample.dtype) if float(centre @ centre) > _OFFSET_RATIO * spread else None


def mean_of(rows: np.ndarray) -> np.ndarray:
    """The mean (m,) of the rows in float64; of a feature that is constant, exactly its value, however large."""
    return rows[0] + (rows.astype(np.float64) - rows[0]).mean(axis=0)


def centre_of(rows: np.ndarray) -> np.ndarray:
    """The mean (m,) of the rows, or the median of every feature if a few rows pull the mean far from the others."""
    mean = mean_of(rows)
    some = rows[:: max(1, len(rows) // 256)]
    median = np.median(some, axis=0)
    with np.errstate(over="ignore"):
        spread = float(np.median(squared_norms(some - median)))
        is_dragged = float(np.sum((mean - median) ** 2)) > 1e4 * spread
    return median if is_dragged else mean
