"""Errors of a fit, iteration by iteration."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class History:
    """Errors of a fit.

    Attributes
    ----------
    errors : list of float
        After every iteration, of the signals coded with the model that it ended with.
    update_errors : list of float
        After every iteration, with the codes that its update was made for: what the paper reports.
    totals : list of float
        As `errors`, of the error and whatever is minimised beside it: what the best model has the smallest of.
    is_settled : bool
        Whether the fit has converged.
    start_error, start_total : float
        The same of the model that the first iteration began with.
    """

    errors: list[float] = field(default_factory=list)
    update_errors: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    is_settled: bool = False
    start_error: float = np.inf
    start_total: float = np.inf

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def has_improved(self) -> bool:
        """Whether the last iteration ended with the best model so far; of equals the first counts."""
        return self.totals[-1] < min([self.start_total, *self.totals[:-1]])

    @property
    def returned_errors(self) -> np.ndarray:
        """Errors up to that of the returned model, the best that was met; of the start alone if that was the best."""
        if not self.totals or min(self.totals) >= self.start_total:
            return np.array([self.start_error] if np.isfinite(self.start_error) else [])
        return np.array(self.errors[: int(np.argmin(self.totals)) + 1])
