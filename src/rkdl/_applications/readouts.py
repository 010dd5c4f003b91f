"""Two readouts of kernel features that were learned for a label.

A signal x has the kernel values ``k_i(x) = exp(-sum_f g_f (x_f - d_if)^2)``, with a gamma g_f for every feature. Every
output c has two readouts of them:

    linear       k(x) v_c + intercept_c
    explained    z A_c k(x), the squared norm of what the dictionary A_c represents of the signal's image

A row of A_c is an atom, a combination of the kernel vectors of unit norm, and z are its least-squares coefficients on a
support that the pursuit (OLS) chose. The squared residual of class c is one minus what is explained, since all images
have norm one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from rkdl._backends.arrays import cast
from rkdl._backends.base import ChunkCodes, backend_of
from rkdl._coding.encoder import with_unit_diagonal
from rkdl._utils.types import Array

# Prior mean of the weights of the readouts, and the number of signals that it counts for.
PRIOR, CONFIDENCE = 0.5, 1.0
LARGEST_WEIGHT = 10.0


@dataclass(frozen=True)
class TaskModel:
    """Kernel features and their readouts, all in NumPy or all tensors on one device.

    The kernel vectors are relative to the centre, and multiplied by `scales` already.
    """

    centre: Array  # (m,)
    scales: Array  # (m,), roots of the gammas
    vectors: Array  # (p, m)
    dual: Array  # (p, k), the linear readout as a combination of kernel values
    intercept: Array  # (k,)
    atoms: Array  # (k, n, p), combinations of the kernel vectors; None without dictionaries
    grams: Array  # (k, n, n)
    variances: Array  # (m,), of the features, times their gammas: how far a missing value may be from its mean
    n_nonzero: int = 0
    reach: Array = None  # (1,), largest distance from the centre in any coordinate; what is beyond counts as there

    @property
    def row_width(self) -> int:
        """Numbers that a signal occupies while it is processed."""
        n_atoms = 0 if self.atoms is None else 8 * self.atoms.shape[0] * self.atoms.shape[1]
        return 2 * sum(self.vectors.shape) + n_atoms

    def as_dtype(self, dtype: np.dtype) -> TaskModel:
        """The model for signals of `dtype`."""
        arrays = {own.name: getattr(self, own.name) for own in fields(self) if own.name != "n_nonzero"}
        found: dict[str, Any] = {key: None if value is None else cast(value, dtype) for key, value in arrays.items()}
        if self.grams is not None:
            found["grams"] = np.stack([with_unit_diagonal(own) for own in found["grams"]])
        return replace(self, **found)

    def kernel_values(self, rows: Array) -> Array:
        """Kernel values (c, p); where a number is missing (NaN), their mean over a normal distribution of it."""
        backend = backend_of(rows)
        signals = rows - self.centre
        signals = (signals if self.reach is None else signals.clip(-self.reach, self.reach)) * self.scales
        is_missing = backend.xp.isnan(signals)
        if not bool(is_missing.any()):
            return backend.rbf(signals, self.vectors, 1.0)
        signals = backend.where(is_missing, backend.full((1, 1), 0.0, rows), signals)
        # E exp(-(d - x)^2) for x ~ N(0, s^2); all factors at once, since each may leave the range.
        missing, squares, widened = backend.as_like(is_missing, rows), self.vectors**2, 1.0 + 2.0 * self.variances
        logs = 2.0 * (signals @ self.vectors.T) - (signals * signals).sum(1)[:, None] - (1.0 - missing) @ squares.T
        logs -= missing @ (squares / widened + 0.5 * backend.xp.log(widened)).T
        return backend.exp(logs.clip(max=0.0))

    def linear(self, values: Array) -> Array:
        """The linear readout (c, k) of kernel values."""
        return values @ self.dual + self.intercept

    def explained(self, values: Array) -> Array:
        """Squared norms (c, k) that the dictionary of each class explains, of kernel values."""
        correlations = [values @ own.T for own in self.atoms]
        codes = pursue_classes(correlations, self.grams, self.n_nonzero)
        found = [own.correlate(given) for own, given in zip(codes, correlations, strict=True)]
        return backend_of(values).xp.stack(found, 1)


def pursue_classes(correlations: Sequence[Array], grams: Sequence[Array], n_nonzero: int) -> list[ChunkCodes]:
    """Codes of signals of norm one with the dictionary of every class, by OLS, from correlations (c, n) with atoms."""
    backend, (n_signals, n_atoms) = backend_of(correlations[0]), correlations[0].shape
    norms = backend.full((n_signals,), 1.0, correlations[0])
    rule = min(n_nonzero, n_atoms), -1.0, "ols"
    return [backend.pursue(own, gram, norms, *rule)[0] for own, gram in zip(correlations, grams, strict=True)]


def mix_readouts(readouts: tuple[np.ndarray, np.ndarray], labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights (2,) of the readouts (n, k) that maximise the likelihood of the labels of held-out signals.

    The weights are shrunk towards `PRIOR`, which counts as much as `CONFIDENCE` signals.
    """
    linear, explained = (readout.astype(np.float64) for readout in readouts)
    rows, total, weights = np.arange(len(labels)), len(labels), weights / weights.mean()

    def loss(mixture: np.ndarray) -> tuple[float, np.ndarray]:
        logs = backend_of(linear).log_softmax(mixture[0] * linear + mixture[1] * explained)
        errors = np.exp(logs)
        errors[rows, labels] -= 1.0
        away = mixture - PRIOR
        slope = np.array([np.sum(weights @ (errors * part)) for part in (linear, explained)])
        value = -float(weights @ logs[rows, labels]) + CONFIDENCE * float(away @ away)
        return value / total, (slope + 2.0 * CONFIDENCE * away) / total

    bounds = [(0.0, LARGEST_WEIGHT)] * 2
    return minimize(loss, np.full(2, PRIOR), jac=True, method="L-BFGS-B", bounds=bounds).x
