"""Running statistics of a stream: sums over the signals seen, discounted where old signals are to be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rkdl._learning.atom_replacement import WorstSignals
from rkdl._learning.statistics import SufficientStatistics


@dataclass(frozen=True)
class RunningStatistics:
    """Statistics of the signals that were seen before."""

    statistics: SufficientStatistics  # the residual energy is that of the signals in the count of `worst`
    weight: float = 0.0  # number of signals, old ones counting less
    linear: SufficientStatistics | None = None  # those of the linear term's codes
    worst: WorstSignals | None = None  # of the signals seen since the atoms were last updated
    is_discounted: bool = False

    @property
    def past(self) -> SufficientStatistics | None:
        """The statistics that those of a pass are added to; None where nothing was seen."""
        return self.statistics if self.weight > 0.0 else None

    def discounted(self, factor: float) -> RunningStatistics:
        """The same with every sum multiplied by `factor`."""
        if factor == 1.0:
            return self
        return replace(
            self,
            statistics=_discounted(self.statistics, factor),
            weight=self.weight * factor,
            linear=None if self.linear is None else _discounted(self.linear, factor),
            is_discounted=True,
        )


def _discounted(statistics: SufficientStatistics, factor: float) -> SufficientStatistics:
    code_gram, cross_products, energy, residual_energy = statistics
    return SufficientStatistics(code_gram * factor, cross_products * factor, energy * factor, residual_energy)


def discount_factors(n_signals: int, half_life: float | None) -> tuple[float, float]:
    """What a batch leaves of the sums before it, and what its own signals weigh in the mean.

    The last signal weighs one and each before it ``0.5 ** (1 / half_life)`` of the next, or one without a half-life.
    With the mean of that for all signals of a batch, the weight of all that was seen does not depend on how it was cut
    into batches.
    """
    if half_life is None:
        return 1.0, 1.0
    rate = np.log(0.5) / half_life
    return float(np.exp(n_signals * rate)), float(np.expm1(n_signals * rate) / (n_signals * np.expm1(rate)))
