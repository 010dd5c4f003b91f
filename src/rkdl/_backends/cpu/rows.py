"""Norms and exponents of rows, and steps of Adam, compiled."""

from __future__ import annotations

import numpy as np

from rkdl._backends.cpu.jit import compiled


@compiled(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def square_rows(rows, squares):
    """``|x|^2`` of every row."""
    for i in range(len(rows)):
        row = rows[i]
        total = squares.dtype.type(0)
        for k in range(len(row)):
            total += row[k] * row[k]
        squares[i] = total


@compiled(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def divide_rows(rows, norms, unit):
    """Norms of the rows, and the rows divided by them; returns the smallest and the largest norm, or NaN twice."""
    square_rows(rows, norms)
    smallest, largest = np.inf, 0.0
    for i in range(len(rows)):
        norm = np.sqrt(norms[i])
        if np.isnan(norm):
            return np.nan, np.nan
        smallest, largest = min(smallest, float(norm)), max(largest, float(norm))
        norms[i] = norm
        row, target = rows[i], unit[i]
        for k in range(len(row)):
            target[k] = row[k] / norm
    return smallest, largest


# Without contraction: a product and an offset that overflow both must meet as infinities and leave NaN.
@compiled(error_model="numpy", fastmath={"nsz"})
def find_exponents(values, gamma, own, other):
    """``2 gamma v - gamma own_i - gamma other_j`` in place of every value, at most zero; NaN where `own` is not finite.

    Otherwise a signal at infinity would be treated as one that is far away. If gamma is so large that rounding of a
    zero distance matters, such exponents become zero.
    """
    number = values.dtype.type
    zero, factor, scaled = number(0), number(2.0 * gamma), np.empty(len(other), values.dtype)
    largest = 0.0
    for j in range(len(other)):
        scaled[j] = number(gamma) * other[j]
        largest = max(largest, other[j])
    rounding = 8.0 * gamma * np.finfo(values.dtype).eps
    for i in range(len(values)):
        row = values[i]
        if not np.isfinite(own[i]):
            row[:] = np.nan
            continue
        offset = number(gamma) * own[i]
        for j in range(len(row)):
            exponent = row[j] * factor - offset - scaled[j]
            row[j] = zero if exponent > zero else exponent
        if rounding * largest > 1e-4:
            for j in range(len(row)):
                if row[j] > number(-rounding) * (own[i] + other[j]):
                    row[j] = zero


@compiled(error_model="numpy", fastmath={"nsz", "contract"})
def subtract_others(totals, weights, others, factor):
    """``factor (t_i - sum_t w_ti y_i)`` in place of every row of the totals."""
    sums = np.zeros(len(others))
    for t in range(len(weights)):
        for i in range(len(sums)):
            sums[i] += weights[t, i]
    for i in range(len(sums)):
        row, other, own = totals[i], others[i], sums[i]
        for k in range(len(row)):
            row[k] = factor * (row[k] - own * other[k])


@compiled(error_model="numpy", fastmath={"nsz", "contract"})
def adam_step(values, gradient, first, second, momentum, second_momentum, rates, factor, share):
    """See `rkdl._backends.base.Backend.adam_step`; one pass over memory instead of ten."""
    number = values.dtype.type
    left, second_left = number(1.0 - momentum), number(1.0 - second_momentum)
    factor, inverse, least = number(factor), number(1.0 / share), number(1e-8)
    for i in range(len(values)):
        slope = gradient[i]
        first[i] += left * (slope - first[i])
        second[i] += second_left * (slope * slope - second[i])
        values[i] -= factor * rates[i] * first[i] / (np.sqrt(second[i] * inverse) + least)
