"""Norms, exponents and differences of rows, compiled."""

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
def normalize_rows(rows, unit, norms):
    """Norms of the rows, and the rows divided by them into `unit`; the smallest and the largest norm, or NaN twice."""
    square_rows(rows, norms)
    smallest, largest = np.inf, 0.0
    for i in range(len(rows)):
        norm = np.sqrt(norms[i])
        if np.isnan(norm):
            return np.nan, np.nan
        norms[i] = norm
        smallest, largest = min(smallest, float(norm)), max(largest, float(norm))
        row, target = rows[i], unit[i]
        for k in range(len(row)):
            target[k] = row[k] / norm
    return smallest, largest


# Without contraction: a product and an offset that overflow both must meet as infinities and leave NaN.
@compiled(error_model="numpy", fastmath={"nsz"})
def find_exponents(values, factor, own, scaled, other):
    """``factor v - scaled_i - other_j`` in place of every value, at most zero; NaN where `own` is not finite.

    Or a signal at infinity would pass for one that is merely far.
    """
    zero = values.dtype.type(0)
    for i in range(len(values)):
        row = values[i]
        if not np.isfinite(own[i]):
            row[:] = np.nan
            continue
        offset = scaled[i]
        for j in range(len(row)):
            exponent = row[j] * factor - offset - other[j]
            row[j] = zero if exponent > zero else exponent


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def subtract_rows(gradient, sums, others, factor):
    """``factor (gradient_i - sums_i others_i)`` in place of every row of `gradient`."""
    for i in range(len(gradient)):
        row, other, total = gradient[i], others[i], sums[i]
        for k in range(len(row)):
            row[k] = factor * (row[k] - total * other[k])
