"""Sweeps over the atoms."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from rkdl._backends.cpu.jit import compiled
from rkdl._backends.cpu.statistics import accumulate_gram
from rkdl._backends.cpu.vectors import prefetch

# A combination whose squared norm is this small relative to its terms' is rounding, not a direction.
SHORT = 1e-24
# A norm by a metric is itself a difference of large numbers, whose rounding is this share of them.
SHORT_IN_METRIC = 1e-12


def gram_sweep(
    code_gram: np.ndarray,
    targets: np.ndarray,
    atoms: np.ndarray,
    metric: np.ndarray | None = None,
    **options: bool,
) -> np.ndarray:
    """Update every atom once from ``S = Z'Z``, the targets ``Q`` (n, r) and atoms (n, r), which change in place.

    `metric` is that of the coordinates, None for the identity. Returns factors (n,) for the codes of each atom, 1 for
    an atom that is not used, or for all unless it `rescales`. `is_positive` needs the identity.
    """
    scales, rescales = np.ones(len(atoms)), options.get("rescales", True)
    if metric is None:
        rows = np.ascontiguousarray(atoms)
        parts = np.ascontiguousarray(code_gram), np.ascontiguousarray(targets)
        _sweep_plain(*parts, rows, scales, rescales, options.get("is_positive", False))
        if rows is not atoms:
            atoms[:] = rows
        return scales
    for j in range(len(atoms)):
        if not code_gram[j, j] > 0.0:
            continue
        couplings = code_gram[j] * scales
        couplings[j] = 0.0
        direction = targets[j] - couplings @ atoms
        square = float(direction @ (metric @ direction))
        if square > SHORT_IN_METRIC * float(targets[j] @ (metric @ targets[j]) + couplings @ couplings):
            norm = float(np.sqrt(square))
            atoms[j] = direction / norm
            scales[j] = norm / code_gram[j, j] if rescales else 1.0
    return scales


class SweepCodes:
    """Codes of consecutive chunks, refitted atom by atom; ``Z'Z`` follows them."""

    def __init__(self, parts: list[Any], n_atoms: int) -> None:
        counts = np.concatenate([codes.counts for codes in parts])
        self.indptr = np.concatenate(([0], np.cumsum(counts)))
        self.indices = np.concatenate([codes.indices for codes in parts])
        self.values = np.concatenate([codes.values for codes in parts]).astype(np.float64)
        self._gram = np.zeros((n_atoms, n_atoms))
        accumulate_gram(counts, self.indices, self.values, self._gram)
        # Non-zeros by atom: where each atom's begin, their signals and their positions in the codes.
        places = sparse.csr_array(
            (np.arange(len(self.indices)), self.indices, self.indptr), shape=(len(counts), n_atoms)
        ).tocsc()
        self._starts, self._rows, self._positions = places.indptr, places.indices, places.data
        self._changes = np.empty(n_atoms)

    def to_backend_of(self, array: np.ndarray) -> np.ndarray:
        """The array where the codes are."""
        return array

    def code_gram(self) -> np.ndarray:
        """``Z'Z``."""
        return self._gram

    def couplings(self, j: int) -> np.ndarray:
        """Row j of ``Z'Z``, a copy."""
        return self._gram[j].copy()

    def rows(self, j: int) -> np.ndarray:
        """Signals that use atom j."""
        return self._rows[self._starts[j] : self._starts[j + 1]]

    def fit(self, j: int, correlations: np.ndarray) -> float:
        """``sum_t z_tj c_t`` over `rows`."""
        return float(correlations @ self.values[self._positions[self._starts[j] : self._starts[j + 1]]])

    def refit(self, j: int, correlations: np.ndarray, gram_row: np.ndarray) -> float:
        """Refit the coefficients of atom j, the others fixed; returns their `fit`.

        From its inner products with the signals of `rows`, and with all atoms (n,).
        """
        positions = self._positions[self._starts[j] : self._starts[j + 1]]
        square, fit = _refit(
            self.indptr, self.indices, self.values, self.rows(j), positions, correlations, gram_row, self._changes
        )
        self._gram[j] += self._changes
        self._gram[j, j] = square
        self._gram[:, j] = self._gram[j]
        return fit

    def split(self, like: list[Any]) -> list[Any]:
        """The codes of consecutive chunks, in the chunks' dtypes."""
        parts, start = [], 0
        for codes in like:
            stop = start + len(codes.values)
            parts.append(codes._replace(values=self.values[start:stop].astype(codes.values.dtype)))
            start = stop
        return parts


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp", "reassoc"})
def _sweep_plain(products, targets, atoms, factors, rescales, is_positive):
    """The sweep of `gram_sweep` where the metric is the identity, without Python between the atoms."""
    n_atoms, size = atoms.shape
    direction = np.empty(size)
    for j in range(n_atoms):
        if not products[j, j] > 0.0:
            continue
        target = targets[j]
        terms = 0.0
        for k in range(size):
            direction[k] = target[k]
            terms += target[k] * target[k]
        for i in range(n_atoms):
            coupling = products[j, i] * factors[i]
            if i == j or coupling == 0.0:
                continue
            terms += coupling * coupling
            other = atoms[i]
            for k in range(size):
                direction[k] -= coupling * other[k]
        square = 0.0
        for k in range(size):
            if is_positive:
                direction[k] = max(direction[k], 0.0)
            square += direction[k] * direction[k]
        if not square > SHORT * terms:
            continue
        norm = np.sqrt(square)
        own = atoms[j]
        for k in range(size):
            own[k] = direction[k] / norm
        if rescales:
            factors[j] = norm / products[j, j]


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def _refit(indptr, indices, values, rows, positions, correlations, gram_row, changes):
    """Refit the coefficient of one atom in every signal that uses it, with the other coefficients fixed.

    `changes` is set to the change of the atom's row of the code Gram matrix. Returns the sum of squares of the new
    coefficients, and the sum of their products with the correlations.
    """
    changes[:] = 0.0
    square = fit = 0.0
    last = len(rows) - 1
    for k in range(len(rows)):
        # Signals of one atom are far apart in memory: prefetch a few ahead.
        ahead = positions[min(k + 8, last)]
        prefetch(values, ahead)
        prefetch(indices, ahead)
        prefetch(indptr, rows[min(k + 8, last)])
        start, stop = indptr[rows[k]], indptr[rows[k] + 1]
        own = positions[k]
        old = values[own]
        # The loop subtracts the atom's own term too, so add it first.
        value = correlations[k] + old * gram_row[indices[own]]
        for position in range(start, stop):
            value -= values[position] * gram_row[indices[position]]
        change = value - old
        for position in range(start, stop):
            changes[indices[position]] += change * values[position]
        values[own] = value
        square += value * value
        fit += value * correlations[k]
    return square, fit


@compiled(fastmath=True)
def project_rows(features, rows, vector):
    """Inner products of some rows with a vector, in float64."""
    products = np.empty(len(rows))
    last = len(rows) - 1
    size = features.shape[1]
    line = 64 // features.itemsize
    for k in range(len(rows)):
        ahead = rows[min(k + 4, last)] * size
        for i in range(0, min(size, 16 * line), line):
            prefetch(features, ahead + i)
        row = features[rows[k]]
        total = 0.0
        for i in range(len(vector)):
            total += row[i] * vector[i]
        products[k] = total
    return products
