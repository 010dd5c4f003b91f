"""Running statistics of a stream: sums over the signals seen, which fade where old signals are to be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rkdl._learning.atom_replacement import WorstSignals
from rkdl._learning.statistics import SufficientStatistics


@dataclass(frozen=True)
class RunningStatistics:
    """Statistics of the signals that were seen before.

    Attributes
    ----------
    statistics : SufficientStatistics
        Those of all signals seen; the residual energy is that of the signals in `worst`'s count.
    weight : float
        Number of signals, old ones counting less.
    linear : SufficientStatistics or None
        Those of the linear term's codes.
    worst : WorstSignals or None
        The worst-represented of the signals seen since the atoms were last updated.
    fades : bool
        Whether anything was ever forgotten.
    """

    statistics: SufficientStatistics
    weight: float = 0.0
    linear: SufficientStatistics | None = None
    worst: WorstSignals | None = None
    fades: bool = False

    @classmethod
    def empty(cls, n_atoms: int, n_coordinates: int) -> RunningStatistics:
        """Nothing seen yet."""
        return cls(SufficientStatistics(np.zeros((n_atoms, n_atoms)), np.zeros((n_atoms, n_coordinates)), 0.0))

    @property
    def past(self) -> SufficientStatistics | None:
        """The statistics that those of a pass are added to; None where nothing was seen."""
        return self.statistics if self.weight > 0.0 else None

    def faded(self, share: float) -> RunningStatistics:
        """The same with every sum multiplied by `share`."""
        if share == 1.0:
            return self
        return replace(
            self,
            statistics=_faded(self.statistics, share),
            weight=self.weight * share,
            linear=None if self.linear is None else _faded(self.linear, share),
            fades=True,
        )


def _faded(statistics: SufficientStatistics, share: float) -> SufficientStatistics:
    code_gram, cross_products, energy, residual_energy = statistics
    return SufficientStatistics(code_gram * share, cross_products * share, energy * share, residual_energy)


def fading(n_signals: int, half_life: float | None) -> tuple[float, float]:
    """What a batch leaves of the sums before it, and what its own signals weigh in the mean.

    The last signal weighs one and each before it ``0.5 ** (1 / half_life)`` of the next. With the mean of that for all
    signals of a batch, the weight of all that was seen does not depend on how it was cut into batches.

    Parameters
    ----------
    n_signals : int
        Signals of the batch.
    half_life : float or None
        Number of signals after which one counts half; None for never less.
    """
    if half_life is None:
        return 1.0, 1.0
    rate = np.log(0.5) / half_life
    return float(np.exp(n_signals * rate)), float(np.expm1(n_signals * rate) / (n_signals * np.expm1(rate)))
