"""Where outliers begin: robust spreads, fences and thresholds of anomalies."""

from __future__ import annotations

import math

import numpy as np

# Anomalies below this, and spreads of their logarithms, are not magnified to those of other dictionaries: this one
# represents all signals, or the differences are rounding errors.
LEAST, LEAST_SPREAD = 0.03, 0.2
# Anomalies that differ by less than this are equal.
EQUAL = 1e-3
# Share of inliers beyond a fence or threshold, if their tail is exponential, and bounds for a threshold with any tail.
FALSE_ALARMS, LEAST_SHARE, MOST, ENOUGH = 0.001, 0.002, 0.01, 200
N_STEPS = 10


def robust_location(values: np.ndarray) -> tuple[float, float, float]:
    """The unit of anomalies, their median but at least `LEAST`; and median and interquartile range of
    their logarithms ``log(1 + anomaly / unit)``."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    unit = max(float(middle), LEAST)
    low, middle, high = (math.log1p(value / unit) for value in (low, middle, high))
    return unit, middle, max(high - low, LEAST_SPREAD)


def threshold(anomalies: np.ndarray, is_inlier: np.ndarray) -> float:
    """What a share `FALSE_ALARMS` of the inliers exceeds, if their tail is exponential, but at most `MOST`.

    All that lies below is an inlier too. Of `ENOUGH` anomalies, at least `LEAST_SHARE` are beyond the threshold.
    """
    highest = float(np.quantile(anomalies, 1.0 - LEAST_SHARE))
    for _ in range(N_STEPS):
        quarter, twentieth, lowest = (float(q) for q in np.quantile(anomalies[is_inlier], (0.75, 0.95, 1.0 - MOST)))
        found = max(_beyond((0.25, quarter), (0.05, twentieth)), lowest)
        found = min(found, highest) if len(anomalies) >= ENOUGH else found
        is_inlier = is_inlier | (anomalies <= found)
    return found


def upper_fence(values: np.ndarray) -> float:
    """Above this is an outlier: what the tail of the inner values, if exponential, hardly ever reaches.

    The search begins with the lowest three quarters of the values and goes on with those below the fence, until none
    is added: it stops at a gap. The tail is that between the quantiles that leave a half and an eighth. Its shape is
    not estimated: from some hundred values, the error of the estimate displaces the fence more than a wrong shape.
    """
    ordered = np.sort(values)
    count = math.ceil(0.75 * len(ordered))
    while True:
        half, eighth = (float(q) for q in np.quantile(ordered[:count], (0.5, 0.875)))
        fence = _beyond((0.5, half), (0.125, eighth))
        found = int(np.searchsorted(ordered, fence, side="right"))
        if found <= count:
            return fence
        count = found


def _beyond(inner: tuple[float, float], outer: tuple[float, float]) -> float:
    """What a share `FALSE_ALARMS` exceeds if the tail is exponential, from two pairs of a share and what it exceeds."""
    step = max(outer[1] - inner[1], EQUAL) / math.log(inner[0] / outer[0])
    return outer[1] + step * math.log(outer[0] / FALSE_ALARMS)
