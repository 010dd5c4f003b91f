"""Sweeps over the atoms, compiled."""

from __future__ import annotations

import numpy as np

from rkdl._backends.cpu.jit import compiled
from rkdl._backends.cpu.vectors import prefetch

# A combination whose squared norm is this small relative to its terms' is rounding, not a direction.
_SHORT = 1e-24


@compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp", "reassoc"})
def _sweep_plain(products, targets, atoms, factors):
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
            square += direction[k] * direction[k]
        if not square > _SHORT * terms:
            continue
        norm = np.sqrt(square)
        own = atoms[j]
        for k in range(size):
            own[k] = direction[k] / norm
        factors[j] = norm / products[j, j]


@compiled()
def _users_of_atoms(indptr, indices, n_atoms):
    """Group the non-zeros by atom: where each atom's begin, their signals and their positions in the codes."""
    starts = np.zeros(n_atoms + 1, dtype=np.int64)
    for index in indices:
        starts[index + 1] += 1
    for j in range(n_atoms):
        starts[j + 1] += starts[j]
    rows = np.empty(len(indices), dtype=np.int64)
    positions = np.empty(len(indices), dtype=np.int64)
    ends = starts[:-1].copy()
    for t in range(len(indptr) - 1):
        for position in range(indptr[t], indptr[t + 1]):
            place = ends[indices[position]]
            rows[place] = t
            positions[place] = position
            ends[indices[position]] += 1
    return starts, rows, positions


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
