"""Two readings of kernel features that were learned for a label.

A signal x has the kernel values ``k_i(x) = exp(-sum_f g_f (x_f - d_if)^2)``, with a width g_f for every feature. They
are read twice for every output c:

    linear       k(x) v_c + intercept_c
    explained    z A_c k(x), the squared norm of what the dictionary A_c represents of the signal's image

A row of A_c is an atom, a combination of the kernel vectors of unit norm, and z are its least-squares coefficients on a
support that the pursuit (OLS) chose. The squared residual of class c is one minus what is explained, since all images
have norm one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from rkdl._backends.arrays import cast
from rkdl._backends.base import backend_of
from rkdl._utils.types import Array

# Squared norms up to this, of what the chosen atoms leave of another one, count as zero.
NOTHING = 1e-4
# The weights of the readings that are expected before any signal was seen, and how many signals that counts for.
EXPECTED, CONFIDENCE = 0.5, 1.0
LARGEST_WEIGHT = 10.0


@dataclass(frozen=True)
class TaskModel:
    """Kernel features and their readings, all in NumPy or all tensors on one device.

    In the fit's own unit of length, and from its centre, lie `vectors`, already times `scales`.
    """

    centre: Array  # (m,)
    scales: Array  # (m,), roots of the widths
    vectors: Array  # (p, m)
    dual: Array  # (p, k), the linear reading as a combination of kernel values
    intercept: Array  # (k,)
    atoms: Array  # (k, n, p), combinations of the kernel vectors; None without dictionaries
    grams: Array  # (k, n, n)
    variances: Array  # (m,), of the features times their widths: what a missing value could be
    n_nonzero: int = 0
    reach: Array = None  # (1,), how far from the centre coordinates count; those beyond are there

    @property
    def row_width(self) -> int:
        """Numbers that a signal occupies while it is read."""
        n_atoms = 0 if self.atoms is None else 8 * self.atoms.shape[0] * self.atoms.shape[1]
        return 2 * sum(self.vectors.shape) + n_atoms

    def as_dtype(self, dtype: np.dtype) -> TaskModel:
        """The model for signals of `dtype`."""
        arrays = {own.name: getattr(self, own.name) for own in fields(self) if own.name != "n_nonzero"}
        found: dict[str, Any] = {key: None if value is None else cast(value, dtype) for key, value in arrays.items()}
        return replace(self, **found)

    def kernel_values(self, rows: Array) -> Array:
        """Kernel values (c, p); where a number is missing (NaN), their mean over a normal distribution of it."""
        backend = backend_of(rows)
        signals = rows - self.centre
        signals = (signals if self.reach is None else signals.clip(-self.reach, self.reach)) * self.scales
        is_missing = backend.xp.isnan(signals)
        if not bool(is_missing.any()):
            return backend.rbf(signals, self.vectors, 1.0)
        values = backend.rbf(backend.where(is_missing, backend.full((1, 1), 0.0, rows), signals), self.vectors, 1.0)
        # E exp(-(d - x)^2) of x ~ N(0, s^2), over what it is at x = 0.
        widened = 1.0 + 2.0 * self.variances
        squares = self.vectors * self.vectors
        logs = squares - squares / widened - 0.5 * backend.xp.log(widened)
        return values * backend.exp(backend.as_like(is_missing, rows) @ logs.T)

    def linear(self, values: Array) -> Array:
        """The linear reading (c, k) of kernel values."""
        return values @ self.dual + self.intercept

    def explained(self, values: Array) -> Array:
        """Squared norms (c, k) that the dictionary of each class explains, of kernel values."""
        n_classes, n_atoms, size = self.atoms.shape
        correlations = (values @ self.atoms.reshape(-1, size).T).reshape(len(values), n_classes, n_atoms)
        return (pursue_classes(correlations, self.grams, self.n_nonzero) * correlations).sum(2)


def pursue_classes(correlations: Array, grams: Array, n_nonzero: int) -> Array:
    """Codes (c, k, n), with their zeros, of signals with every one of k dictionaries of n atoms, by OLS.

    Step for step what `rkdl._backends.cpu.pursuit` does for one dictionary, with all signals and classes at once.
    """
    backend, shape = backend_of(correlations), correlations.shape
    xp = backend.xp
    signal, group = (backend.from_host(index, correlations) for index in np.ogrid[: shape[0], : shape[1]])
    left = backend.full(shape, 1.0, correlations) * xp.einsum("kii->ki", grams)
    codes, residual = backend.full(shape, 0.0, correlations), correlations
    rows: list[Array] = []
    supports: list[Any] = []
    heights: list[Array] = []
    for _ in range(min(n_nonzero, shape[2])):
        scores = backend.where(left > NOTHING, residual * residual / left.clip(min=NOTHING), residual * 0.0 - 1.0)
        chosen = scores.argmax(2)
        at = signal, group, chosen
        root = left[at].clip(min=NOTHING) ** 0.5
        row = grams[group, chosen]
        for earlier in rows:
            row = row - earlier[at][..., None] * earlier
        row = row / root[..., None]
        height = backend.where(scores[at] > 0.0, residual[at] / root, root * 0.0)
        residual, left = residual - height[..., None] * row, left - row * row
        rows.append(row)
        supports.append(at)
        heights.append(height)
    found: list[Array] = []
    for number in reversed(range(len(rows))):
        value = heights[number]
        for later, known in zip(supports[number + 1 :], reversed(found), strict=True):
            value = value - rows[number][later] * known
        found.append(value / rows[number][supports[number]].clip(min=NOTHING**0.5))
        # Of an atom that was chosen a second time, for want of another, the coefficient is zero.
        codes[supports[number]] += found[-1]
    return codes


def mix_readings(readings: tuple[np.ndarray, np.ndarray], labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights (2,) of the readings (n, k) that make held-out signals of these labels the likeliest.

    A few signals are not trusted: the weights are drawn to `EXPECTED` as if by `CONFIDENCE` signals.
    """
    linear, explained = (reading.astype(np.float64) for reading in readings)
    rows, total, weights = np.arange(len(labels)), len(labels), weights / weights.mean()

    def loss(mixture: np.ndarray) -> tuple[float, np.ndarray]:
        logs = backend_of(linear).log_softmax(mixture[0] * linear + mixture[1] * explained)
        errors = np.exp(logs)
        errors[rows, labels] -= 1.0
        away = mixture - EXPECTED
        slope = np.array([np.sum(weights @ (errors * part)) for part in (linear, explained)])
        value = -float(weights @ logs[rows, labels]) + CONFIDENCE * float(away @ away)
        return value / total, (slope + 2.0 * CONFIDENCE * away) / total

    bounds = [(0.0, LARGEST_WEIGHT)] * 2
    return minimize(loss, np.full(2, EXPECTED), jac=True, method="L-BFGS-B", bounds=bounds).x
