"""Sufficient statistics of a chunk, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from rkdl._backends.cpu.jit import compiled
from rkdl._backends.cpu.pursuit import pack_rows, pursue_rows


@compiled()
def _learn(given: Any, features: Any, indptr: Any, code_gram: Any, cross_products: Any) -> Any:
    """Encode a chunk, pack its codes and add to its sums; returns the non-zeros, the energy and the residual energy.

    `given` are the `Arguments` of the pursuit.
    """
    pursue_rows(*given)
    indices, values, counts = given.indices, given.values, given.counts
    total = pack_rows(counts, indices, values, indptr)
    flat_indices, flat_values = indices.reshape(indices.size), values.reshape(values.size)
    accumulate_gram(indptr, flat_indices, flat_values, code_gram)
    accumulate_cross_products(indptr, flat_indices, flat_values, features, cross_products)
    energy = residual_energy = 0.0
    for t in range(len(counts)):
        energy += given.squared_norms[t]
        residual_energy += given.residuals[t]
    return total, energy, residual_energy


@compiled()
def accumulate_gram(indptr: Any, indices: Any, values: Any, gram: Any) -> None:
    """Add ``Z'Z``; rows have ascending indices, so the upper triangle is filled and then mirrored."""
    for t in range(len(indptr) - 1):
        for first in range(indptr[t], indptr[t + 1]):
            value = values[first]
            row = gram[indices[first]]
            for second in range(first, indptr[t + 1]):
                row[indices[second]] += value * values[second]
    for i in range(len(gram)):
        for j in range(i):
            gram[i, j] = gram[j, i]


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def accumulate_cross_products(indptr: Any, indices: Any, values: Any, features: Any, cross_products: Any) -> None:
    """Add ``Z'F``."""
    for t in range(len(indptr) - 1):
        source = features[t]
        for position in range(indptr[t], indptr[t + 1]):
            value = values[position]
            target = cross_products[indices[position]]
            for i in range(len(source)):
                target[i] += value * source[i]


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def _weighted_derivative(indptr: Any, indices: Any, values: Any, atoms: Any, derivative: Any, weights: Any) -> None:
    """``(Z A) * derivative`` into `weights`."""
    for t in range(len(indptr) - 1):
        target = weights[t]
        target[:] = 0
        for position in range(indptr[t], indptr[t + 1]):
            value = values[position]
            source = atoms[indices[position]]
            for i in range(len(target)):
                target[i] += value * source[i]
        source = derivative[t]
        for i in range(len(target)):
            target[i] *= source[i]


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def accumulate_gradient(indptr, indices, values, weights, least, own, features, atoms, gradient, used):  # type: ignore[no-untyped-def]
    """Add ``w z' (f - z A)`` per signal of non-negligible weight, and the squared codes of the class's own signals."""
    size = features.shape[1]
    residual = np.empty(size, dtype=features.dtype)
    for t in range(len(weights)):
        if own[t] > 0.0:
            for position in range(indptr[t], indptr[t + 1]):
                used[indices[position]] += own[t] * values[position] * values[position]
        weight = weights[t]
        if not abs(weight) > least[t]:
            continue
        row = features[t]
        for i in range(size):
            residual[i] = row[i]
        for position in range(indptr[t], indptr[t + 1]):
            value = values[position]
            atom = atoms[indices[position]]
            for i in range(size):
                residual[i] -= value * atom[i]
        for position in range(indptr[t], indptr[t + 1]):
            value = weight * values[position]
            target = gradient[indices[position]]
            for i in range(size):
                target[i] += value * residual[i]
