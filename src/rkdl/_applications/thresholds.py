"""Where outliers begin: robust spreads, fences and thresholds of anomalies."""

from __future__ import annotations

import math

import numpy as np

# Anomalies below this, and spreads of their logarithms, are not magnified to those of other dictionaries: this one
# represents all signals, or the differences are rounding errors.
LEAST, LEAST_SPREAD = 0.03, 0.2
# Anomalies that differ by less than this are equal.
EQUAL = 1e-3
# Shapes that the tail of distances may have, and the share of it beyond the fence.
SHAPES, RARE = (-0.1, 0.15), 0.0025
# Share of inliers beyond the threshold, if their tail is exponential, and bounds for it with any tail.
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
        step = max(twentieth - quarter, EQUAL) * math.log(0.05 / FALSE_ALARMS) / math.log(5.0)
        found = max(twentieth + step, lowest)
        found = min(found, highest) if len(anomalies) >= ENOUGH else found
        is_inlier = is_inlier | (anomalies <= found)
    return found


def upper_fence(values: np.ndarray) -> float:
    """Above this is an outlier: what a tail like that of the inner values hardly ever reaches.

    The search begins with the lowest three quarters of the values and goes on with those below the fence, until none
    is added: it stops at a gap. Steps between the quantiles that leave a half, a quarter and an eighth give the shape
    of the tail, a generalised Pareto distribution (Pickands), within `SHAPES`; it exceeds the fence with probability
    `RARE`.
    """
    ordered = np.sort(values)
    count = math.ceil(0.75 * len(ordered))
    while True:
        half, quarter, eighth = (float(q) for q in np.quantile(ordered[:count], (0.5, 0.75, 0.875)))
        first, second = max(quarter - half, EQUAL), max(eighth - quarter, EQUAL)
        shape = float(np.clip(np.log2(second / first), *SHAPES)) or 1e-9
        fence = half + (first + second) * math.expm1(shape * math.log(0.5 / RARE)) / math.expm1(shape * math.log(4.0))
        found = int(np.searchsorted(ordered, fence, side="right"))
        if found <= count:
            return fence
        count = found
