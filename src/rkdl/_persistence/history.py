"""Errors of a fit, per iteration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np


@dataclass
class History:
    """Errors of a fit.

    Attributes
    ----------
    errors : list of float
        Error of the signals coded with the model after each iteration.
    update_errors : list of float
        Error right after the update of each iteration, with the codes it was computed for: what the paper reports.
    totals : list of float
        As `errors`, with the penalty included. The best model is the one with the smallest.
    is_settled : bool
        Whether the fit has converged.
    start_error, start_total : float
        The same of the model before the first iteration.
    """

    errors: list[float] = field(default_factory=list)
    update_errors: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    is_settled: bool = False
    start_error: float = np.inf
    start_total: float = np.inf

    def __len__(self) -> int:
        return len(self.errors)

    def extended(self, error: float, total: float, update_error: float) -> History:
        """The history with one iteration more."""
        errors, totals = [*self.errors, error], [*self.totals, total]
        return replace(self, errors=errors, totals=totals, update_errors=[*self.update_errors, update_error])

    @property
    def has_improved(self) -> bool:
        """Whether the last iteration gave the best model so far; of equals the first counts."""
        return self.totals[-1] < min([self.start_total, *self.totals[:-1]])

    @property
    def returned_errors(self) -> np.ndarray:
        """Errors up to that of the best model, which is returned; of the initial model alone if that was the best."""
        if not self.totals or min(self.totals) >= self.start_total:
            return np.array([self.start_error] if np.isfinite(self.start_error) else [])
        return np.array(self.errors[: int(np.argmin(self.totals)) + 1])
