"""Line searches along a descent direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rkdl._learning.kernel_vector_updates.base import Point


class Trial(NamedTuple):
    """A point along the direction: the free variables (p, m), and the kernel vectors that they stand for."""

    free: np.ndarray
    point: Point


# ``(evaluate, value, slope)`` to a trial that is good enough, or None: `evaluate` takes a step length, `value` and
# `slope` are those of the objective at length 0.
LineSearch = Callable[[Callable[[float], Trial], float, float], Trial | None]


def backtrack(evaluate: Callable[[float], Trial], value: float, slope: float) -> Trial | None:
    """Shorten the step by quadratic interpolation until the decrease is sufficient (Armijo), twelve times at most."""
    length = 1.0
    for _ in range(12):
        trial = evaluate(length)
        if trial.point.value <= value + 1e-4 * length * slope:
            return trial
        bend = trial.point.value - value - slope * length
        best = -0.5 * slope * length * length / bend if bend > 0.0 and np.isfinite(bend) else 0.0
        length = min(max(best, 0.1 * length), 0.5 * length)
        # Its features, where they were cached, make room for those of the next.
        del trial
    return None
