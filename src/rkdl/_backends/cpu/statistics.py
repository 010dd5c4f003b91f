"""Sums over the codes of a chunk, in compressed rows, and their conversion to other forms, compiled."""

from __future__ import annotations

from rkdl._backends.cpu.jit import compiled


@compiled()
def scatter_codes(counts, indices, values, factors, dense):
    """Scatter codes, times one factor per atom, into the zeros of `dense`."""
    position = 0
    for t in range(len(counts)):
        for _ in range(counts[t]):
            atom = indices[position]
            dense[t, atom] = values[position] * factors[atom]
            position += 1


@compiled()
def correlate_codes(counts, indices, values, correlations, products):
    """Inner product of every row of codes with its correlations."""
    position = 0
    for t in range(len(counts)):
        total = products.dtype.type(0)
        for _ in range(counts[t]):
            total += values[position] * correlations[t, indices[position]]
            position += 1
        products[t] = total


@compiled()
def accumulate_gram(counts, indices, values, gram):
    """Add ``Z'Z``; rows have ascending indices, so the upper triangle is filled and then mirrored."""
    start = 0
    for t in range(len(counts)):
        stop = start + counts[t]
        for first in range(start, stop):
            value = values[first]
            row = gram[indices[first]]
            for second in range(first, stop):
                row[indices[second]] += value * values[second]
        start = stop
    for i in range(len(gram)):
        for j in range(i):
            gram[i, j] = gram[j, i]


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def accumulate_cross_products(counts, indices, values, features, cross_products):
    """Add ``Z'F``."""
    position = 0
    for t in range(len(counts)):
        source = features[t]
        for _ in range(counts[t]):
            value = values[position]
            target = cross_products[indices[position]]
            for i in range(len(source)):
                target[i] += value * source[i]
            position += 1


@compiled()
def sum_codes(counts, indices, values, roots, features, norms, residuals, gram, cross_products):
    """Add ``Z'Z`` of the roots and ``Z'F``; returns the sums of norms and of residuals."""
    accumulate_gram(counts, indices, roots, gram)
    accumulate_cross_products(counts, indices, values, features, cross_products)
    energy = residual_energy = 0.0
    for t in range(len(counts)):
        energy += norms[t]
        residual_energy += residuals[t]
    return energy, residual_energy


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def weight_derivative(counts, indices, values, atoms, derivative, weights):
    """``(Z A) * derivative`` into `weights`."""
    position = 0
    for t in range(len(counts)):
        target = weights[t]
        target[:] = 0
        for _ in range(counts[t]):
            value = values[position]
            source = atoms[indices[position]]
            for i in range(len(target)):
                target[i] += value * source[i]
            position += 1
        source = derivative[t]
        for i in range(len(target)):
            target[i] *= source[i]
