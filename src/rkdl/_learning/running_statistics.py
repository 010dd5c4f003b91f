"""What a stream leaves behind: sums over the signals seen, fading where old signals are to be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class RunningStatistics:
    """Statistics of the signals that were seen before.

    Attributes
    ----------
    products, projections, trace : ndarray of shape (n, n), ndarray of shape (n, p), float
        ``S``, ``P`` with the current kernel vectors, and ``tr K(Y, Y)``.
    weight : float
        Number of signals, old ones counting less.
    linear : tuple of ndarray or None
        ``X'X``, ``X'Y`` and ``|Y|^2`` of the linear term.
    lost, n_waiting : float, int
        Sum of squared residuals and number of the signals seen since the atoms were last updated.
    worst_residuals, worst_signals : ndarray of shape (k,), ndarray of shape (k, m)
        The worst-represented of them, worst first.
    fades : bool
        Whether anything was ever forgotten.
    """

    products: np.ndarray
    projections: np.ndarray
    trace: float
    weight: float
    linear: tuple[np.ndarray, np.ndarray, float] | None = None
    lost: float = 0.0
    n_waiting: int = 0
    worst_residuals: np.ndarray | None = None
    worst_signals: np.ndarray | None = None
    fades: bool = False

    @classmethod
    def empty(cls, n_atoms: int, n_coordinates: int) -> RunningStatistics:
        """Nothing seen yet."""
        return cls(np.zeros((n_atoms, n_atoms)), np.zeros((n_atoms, n_coordinates)), 0.0, 0.0)

    @property
    def sums(self) -> tuple | None:
        """What the sums of a walk are added to; None where nothing was seen."""
        return (self.products, self.projections, self.trace, self.lost) if self.weight > 0.0 else None

    def faded(self, share: float) -> RunningStatistics:
        """The same with every sum multiplied by `share`."""
        if share == 1.0:
            return self
        linear = self.linear
        if linear is not None:
            linear = (linear[0] * share, linear[1] * share, linear[2] * share)
        return replace(
            self,
            products=self.products * share,
            projections=self.projections * share,
            trace=self.trace * share,
            weight=self.weight * share,
            linear=linear,
            fades=True,
        )


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
